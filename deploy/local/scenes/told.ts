/**
 * A task is given away instead of waited for. Its sender is told that it is kept, and where; that somebody has it, who and
 * when; how it ended, with the result, in an inbox that keeps it until it is taken.
 */
import type { RegisteredTeam } from '../registered-team.ts';
import { FRONT, RECORDS_B1, RECORDS_B2 } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { acceptedWords, type Counts } from './scene.ts';

const INVOICE = 'inv-1';
const ENDED_MS = 10_000;

export async function told(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  await team.joinAll([RECORDS_B1, RECORDS_B2]);
  tell.say(`${RECORDS_B1.agentId} and ${RECORDS_B2.agentId} join: they keep the customers' records`);
  const { mail } = team;
  const at = performance.now();
  const accepted = await mail.cast('crm.invoice.send', { invoice: INVOICE });
  if (accepted === null) throw new Error(mail.refused.join('; '));
  const acceptedMs = performance.now() - at;
  tell.say(`${FRONT.agentId} casts crm.invoice.send: 202 after ${acceptedMs.toFixed(0)} ms, ${acceptedWords(accepted)}`);
  const [end] = await mail.endsOf([accepted.task_id], ENDED_MS);
  const task = await mail.task(accepted.task_id);
  for (const { state, by, at_ms: atMs } of task.events)
    tell.say(`  + ${String(atMs - (task.accepted_at_ms ?? 0)).padStart(4)} ms  ${state}${by === '' ? '' : ` by ${by}`}`);
  const inbox = mail.entries.filter(({ task_id: id }) => id === accepted.task_id);
  tell.say(`the same in its inbox, the result at position ${end?.seq}: ${JSON.stringify(end?.data)}`);

  tell.equal('where it was durable', accepted.durable, 'stream');
  tell.check('the time to the 202', Math.round(acceptedMs), 'shorter than the work', acceptedMs < 700);
  tell.equal(
    'what the sender was told',
    task.events.map(({ state }) => state),
    ['received', 'done'],
  );
  tell.equal(
    'what its inbox was told',
    inbox.map(({ state }) => state),
    ['received', 'done'],
  );
  tell.equal('the result in the inbox', { data: end?.data, by: end?.by }, { data: task.result, by: task.by });
  tell.equal('the result', { ...(end?.data as object), by: '' }, { invoice: INVOICE, state: 'sent', by: '' });
  const sent = [RECORDS_B1, RECORDS_B2].flatMap((member) => team.journal(member)).filter((line) => line === `sent ${INVOICE}`);
  tell.equal('how often it was sent', sent.length, 1);
  return {};
}
