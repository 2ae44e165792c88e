/**
 * The frame of a drill with messages: a team of real processes is started, messages are submitted at a fixed rate, faults come while
 * they are, everything is left to settle, and what senders were told and workers wrote is judged. Prints a table and one line of
 * JSON; the evidence stays under `build/drill-<name>`. A drill says its faults and what it expects beyond that; nothing else.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { onLeaving } from '../../../deploy/local/signals.ts';
import { broken, type Demands } from './conditions.ts';
import { readInboxes } from './inboxes.ts';
import { judge, untoldOf } from './judge.ts';
import { Outcomes } from './outcomes.ts';
import type { Plan, Told } from './plan.ts';
import { evidenceOf, keep, lineOf, tableOf } from './report.ts';
import { Stage } from './stage.ts';
import { Submitter } from './submitter.ts';
import { MessageTeam, PER_PROVIDER, QUOTA, sender, worker } from './team.ts';

const SETTLE_MS = 120_000;
const QUIET_LOOK_MS = 250;
/**
 * What has ended may come once more: a server that was killed forgets acknowledgements, and delivers such messages again after the ack
 * wait of 20 s. If that did harm, it would be seen then.
 */
const LAST_WORDS_MS = 60_000;
const CALM_MS = 1_000;
/** Of one that never ends. */
const MOST_MS = 420_000;
const STOP_MOST_MS = 30_000;
const USUAL: Demands = { least: 20_000, mostInDoubt: 0, mostRecoveryMs: 90_000, emptiesQueue: true, hits: [] };

export async function runDrill(plan: Plan): Promise<void> {
  const workers = Array.from({ length: plan.workers }, (_, i) => worker(`w${i + 1}`));
  const senders = Array.from({ length: plan.senders }, (_, i) => sender(`s${i + 1}`));
  const team = new MessageTeam(plan.team);
  const stage = new Stage(plan.name, team, workers, senders);
  onLeaving((status) => void team.stop().then(() => process.exit(status)));
  for (const event of ['uncaughtException', 'unhandledRejection'] as const)
    process.on(event, (error: unknown) => void leave(stage, [`a fault of the drill itself: ${wordsOf(error)}`], lineOf(stage, null, {})));
  const problems: string[] = [];
  let told: Told | null = null;
  try {
    told = await Promise.race([played(plan, stage), late()]);
    if (told === null) problems.push(`it was not through after ${MOST_MS / 1_000} s`);
    else
      problems.push(
        ...broken(told.verdict, told.left, told.untold, {
          ...USUAL,
          emptiesQueue: !team.natsVersion.startsWith('2.9.'),
          ...plan.demands?.(stage),
        }),
        ...(plan.expects?.(told) ?? []),
      );
    problems.push(...(stage.submitter?.failures ?? []));
  } catch (error) {
    problems.push(`it broke off: ${wordsOf(error)}`);
  }
  const casualties = team.casualties();
  if (casualties !== null) problems.push(casualties);
  const line = lineOf(stage, told, told === null ? {} : (plan.more?.(told) ?? {}));
  const text = told === null ? '' : tableOf(told);
  if (text !== '') process.stdout.write(`\n${text}\n\n`);
  for (const words of problems) process.stdout.write(`  !! ${words}\n`);
  for (const words of told?.verdict.problems ?? []) process.stdout.write(`     ${words}\n`);
  try {
    keep(stage, told, problems, text, line);
  } catch (error) {
    problems.push(`the evidence could not be kept: ${wordsOf(error)}`);
    process.stdout.write(`  !! ${problems.at(-1)}\n`);
  }
  await leave(stage, problems, line);
}

/** Stops all that was started, says the last line, and ends this process: with 0 only if there are no problems. */
export async function leave(stage: Stage, problems: readonly string[], line: unknown): Promise<void> {
  const killed = await Promise.race([stage.team.stop(), sleep(STOP_MOST_MS, ['something that did not even end by SIGKILL'])]);
  if (killed.length > 0) process.stdout.write(`  !! did not stop when asked and had to be killed: ${killed.join(', ')}\n`);
  const last = `evidence: ${evidenceOf(stage)}\n${JSON.stringify(line)}\n`;
  process.stdout.write(last, () => process.exit(problems.length === 0 && killed.length === 0 ? 0 : 1));
}

async function late(): Promise<null> {
  await sleep(MOST_MS, undefined, { ref: false });
  return null;
}

async function played(plan: Plan, stage: Stage): Promise<Told> {
  await stage.team.start([...stage.workers, ...stage.senders], (line) => stage.say(line));
  stage.say(`${plan.words}; quota of a sender ${plan.quota ?? QUOTA}, ${PER_PROVIDER} at a time for each worker`);
  const outcomes = await Outcomes.open(stage.team.registry.nats.url);
  try {
    return await play(plan, stage, outcomes);
  } finally {
    await outcomes.close();
  }
}

async function play(plan: Plan, stage: Stage, outcomes: Outcomes): Promise<Told> {
  const submitter = new Submitter({ gates: plan.gates?.(stage) ?? stage.gates(), ...plan.submit, count: countOf(plan) });
  stage.submitter = submitter;
  await Promise.all([plan.faults(stage), submitter.end()]);
  stage.say(`all ${submitter.sent} messages are submitted, ${submitter.accepted.length} accepted, the last faults are over`);
  const settlingAt = performance.now();
  await settle(submitter, outcomes, plan.settleMs ?? SETTLE_MS, stage);
  const settleMs = performance.now() - settlingAt;
  const left = await outcomes.left();
  const ended = new Map([...outcomes.all].reverse().map((outcome) => [outcome.taskId, outcome]));
  const untold = plan.readsInboxes === true ? untoldOf(submitter.accepted, ended, await readInboxes(stage.gates())) : null;
  const counted = await stage.team.counted();
  const { accepted, inDoubt } = submitter;
  const verdict = judge({ accepted, inDoubt, outcomes: outcomes.all, counted, faults: stage.faultsSeen });
  submitter.failures.push(...outcomes.strange);
  return { verdict, accepted, counted, submitter, stage, settleMs, left, untold, outcomes: outcomes.all, ended };
}

/** `DRILL_COUNT` makes a drill shorter while it is worked on; a verdict needs all of it. */
function countOf({ submit: { count } }: Plan): number {
  return Number(process.env['DRILL_COUNT'] ?? count);
}

/** Until every accepted message has its end, or the time is up; then whatever else is told is waited for. */
export async function settle({ accepted }: Submitter, outcomes: Outcomes, withinMs: number, stage: Stage): Promise<void> {
  const end = performance.now() + withinMs;
  let saidAt = performance.now();
  for (;;) {
    const missing = accepted.filter(({ taskId }) => !outcomes.tasks.has(taskId)).length;
    if (missing === 0) break;
    if (performance.now() > end) {
      stage.say(`${missing} have no end after ${withinMs / 1_000} s; ${String(await outcomes.queued())} are in the queue`);
      break;
    }
    if (performance.now() - saidAt > 10_000) {
      saidAt = performance.now();
      stage.say(`${missing} have no end yet, ${String(await outcomes.queued())} are in the queue`);
    }
    await sleep(QUIET_LOOK_MS);
  }
  const last = performance.now() + LAST_WORDS_MS;
  while ((await outcomes.queued()) !== 0 && performance.now() < last) await sleep(QUIET_LOOK_MS);
  // Whatever was started a second time would be seen by now.
  await sleep(CALM_MS);
}

export function wordsOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
