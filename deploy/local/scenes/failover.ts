/**
 * (b) An order desk is killed while calls run. Questions are asked again elsewhere; a refund, which may run once at most,
 * goes elsewhere only if it provably never started. What is in doubt is said to be, and left to the caller. The desks'
 * own journals are the witnesses: no refund was ever started twice.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { inParallel, type Result } from '../client.ts';
import { type Member, ORDER_A1, ORDER_A2, ORDER_B1 } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import type { Team } from '../team.ts';
import { callFrom, type Counts, names, outcome, spread } from './scene.ts';

const CONVERSATIONS = 120;
const WIDTH = 16;
const VICTIM = ORDER_A1;
const SURVIVORS: readonly Member[] = [ORDER_A2, ORDER_B1];
const REFUND = 'crm.refund.apply';

class Ledger {
  readonly booked: string[] = [];
  readonly inDoubt: string[] = [];
  /** The desk that took over knew nothing of the conversation, said so and did nothing: the conversation began anew there. */
  begunAnew = 0;
  readonly unexpected: string[] = [];
  readonly servedAfterKill: string[] = [];
  queryRetried: Result | null = null;
  doubtful: Result | null = null;
  done = 0;
  killed = false;
}

async function converse(team: Team, ledger: Ledger, session: string): Promise<void> {
  for (let round = 0; round < 2; round++) {
    const query = await callFrom(team, 'crm.order.query@^2.0', { order: '1042' }, session);
    if (query.code !== 0) {
      ledger.unexpected.push(`query: ${outcome(query)}`);
      return;
    }
    if (query.attempts.length > 1) ledger.queryRetried = query;
    if (ledger.killed && query.provider !== null) ledger.servedAfterKill.push(query.provider);
    const refund = await callFrom(team, REFUND, { refund_id: session }, session);
    if (refund.code === 0) {
      ledger.booked.push(session);
      return;
    }
    if (refund.error?.ambiguous === true) {
      ledger.inDoubt.push(session);
      ledger.doubtful = refund;
      return;
    }
    if (refund.status !== 409) {
      ledger.unexpected.push(`refund: ${outcome(refund)}`);
      return;
    }
    ledger.begunAnew++;
  }
  ledger.unexpected.push(`${session}: no desk knows it`);
}

export async function failover(team: Team, tell: Storyteller): Promise<Counts> {
  const ledger = new Ledger();
  const countedBefore = await refundsCounted(team);
  const work = inParallel(names('kill', CONVERSATIONS), WIDTH, async (session) => {
    await converse(team, ledger, session);
    ledger.done++;
  });
  const underWay = await killInTheMiddle(team, ledger);
  tell.say(
    `${VICTIM.agentId} (pid ${team.seat(VICTIM).agent?.pid}) killed with SIGKILL after ${ledger.done} of ${CONVERSATIONS} conversations, ${underWay.length} refunds begun there and not booked`,
  );
  await work;

  if (ledger.queryRetried !== null) {
    tell.say('a question whose desk had died: idempotent, so asked elsewhere');
    tell.reasons(ledger.queryRetried, ['choose', 'attempt', 'retry']);
  }
  if (ledger.doubtful !== null) {
    tell.say('a refund whose desk died at work: may have been booked, so never started again');
    tell.reasons(ledger.doubtful, ['attempt', 'retry', 'fallback']);
  }
  tell.say(`after the kill: ${spread(ledger.servedAfterKill)}`);
  const starts = startsIn(team, [VICTIM, ...SURVIVORS]);
  const repeated = [...starts].filter(([, count]) => count > 1).map(([id]) => id);
  const counted = (await refundsCounted(team)) - countedBefore;
  const startedBySurvivors = [...startsIn(team, SURVIVORS).values()].reduce((sum, count) => sum + count, 0);
  tell.say(
    `refunds: ${ledger.booked.length} booked, ${ledger.inDoubt.length} in doubt and left to the caller, ${ledger.begunAnew} conversations begun anew, ${repeated.length} started twice`,
  );

  tell.say(
    `the surviving desks counted ${counted} refund requests: ${startedBySurvivors} started, ${ledger.begunAnew} sent back for want of context`,
  );
  tell.equal('calls that failed without need', ledger.unexpected, []);
  tell.check('refunds under way at the kill', underWay.length, 'at least one, else nothing was proved', underWay.length > 0);
  tell.equal(
    'refunds under way at the kill that are not in doubt',
    underWay.filter((id) => !ledger.inDoubt.includes(id)),
    [],
  );
  tell.equal('refunds started twice', repeated, []);
  tell.equal(
    'refunds answered as booked but not in a journal',
    ledger.booked.filter((id) => starts.get(id) !== 1),
    [],
  );
  tell.equal('booked and in doubt together', ledger.booked.length + ledger.inDoubt.length, CONVERSATIONS);
  tell.equal('refund requests that the surviving desks counted', counted, startedBySurvivors + ledger.begunAnew);
  tell.check(
    'served by the killed desk afterwards',
    spread(ledger.servedAfterKill),
    'others only',
    ledger.servedAfterKill.length > 0 && !ledger.servedAfterKill.includes(VICTIM.agentId),
  );
  return {
    refunds: ledger.booked.length,
    refunds_in_doubt: ledger.inDoubt.length,
    refunds_repeated: repeated.length,
    answered_after_kill: ledger.servedAfterKill.length,
  };
}

/** Waits until the victim is in the midst of refunds, and ends it. Gives the refunds it had under way. */
async function killInTheMiddle(team: Team, ledger: Ledger): Promise<readonly string[]> {
  while (ledger.done < CONVERSATIONS) {
    await sleep(2);
    if (ledger.done < CONVERSATIONS / 6 || unfinished(team.journal(VICTIM)).length < 2) continue;
    // Held for a moment, so that what is under way when it dies is known and not a matter of luck.
    team.signal(VICTIM, 'SIGSTOP');
    await sleep(5);
    if (unfinished(team.journal(VICTIM)).length > 0) break;
    team.signal(VICTIM, 'SIGCONT');
  }
  await team.kill(VICTIM);
  ledger.killed = true;
  return unfinished(team.journal(VICTIM));
}

function unfinished(journal: readonly string[]): string[] {
  const booked = new Set(journal.filter((line) => line.startsWith('booked ')).map((line) => line.slice('booked '.length)));
  return journal
    .filter((line) => line.startsWith('started kill-'))
    .map((line) => line.slice('started '.length))
    .filter((id) => !booked.has(id));
}

/** How often each refund of this scene was started, by all these desks together. */
function startsIn(team: Team, desks: readonly Member[]): Map<string, number> {
  const starts = new Map<string, number>();
  for (const desk of desks) {
    for (const line of team.journal(desk)) {
      if (!line.startsWith('started kill-')) continue;
      const id = line.slice('started '.length);
      starts.set(id, (starts.get(id) ?? 0) + 1);
    }
  }
  return starts;
}

/** By the surviving desks themselves. */
async function refundsCounted(team: Team): Promise<number> {
  const counts = await Promise.all(SURVIVORS.map((desk) => team.counts(desk)));
  return counts.reduce((sum, each) => sum + (each[REFUND] ?? 0), 0);
}
