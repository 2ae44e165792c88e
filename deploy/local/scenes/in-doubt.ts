/**
 * Work that may be begun once at most, and its agent is killed at it. Whether the invoice went out nobody knows: the task is
 * in doubt, its sender is told, and it is kept for a person. Only the person's word begins it a second time.
 */
import type { RegisteredTeam } from '../registered-team.ts';
import { RECORDS_B1, RECORDS_B2 } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { hasWritten } from './one-copy.ts';
import { type Counts, linesOf } from './scene.ts';

const INVOICE = 'inv-2';
const BEGUN_MS = 5_000;
const TOLD_MS = 10_000;
const QUIET_MS = 700;
const IN_DOUBT = 7003;

interface Kept {
  readonly entries: readonly { readonly task_id: string; readonly kind: string; readonly code: number }[];
}

export async function inDoubt(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const { mail } = team;
  const accepted = await mail.cast('crm.invoice.send', { invoice: INVOICE });
  if (accepted === null) throw new Error(mail.refused.join('; '));
  const id = accepted.task_id;
  const b = await team.until('one of the two to have begun it', BEGUN_MS, async () => hasWritten(team, `started ${INVOICE}`));
  await team.kill(b);
  const at = performance.now();
  const [end] = await mail.endsOf([id], TOLD_MS);
  tell.say(
    `${b.agentId} killed while it sends ${INVOICE}; after ${(performance.now() - at).toFixed(0)} ms its sender hears: ${end?.state}`,
  );
  const { code } = await mail.task(id);
  tell.say('$ reachctl tasks list');
  linesOf(tell, (await team.obeyed('tasks', 'list')).stdout);
  const kept = JSON.parse((await team.obeyed('tasks', 'list', '--json')).stdout) as Kept;
  await team.until('some time to pass in which nothing begins', TOLD_MS, async () => performance.now() - at > QUIET_MS);
  const startsBefore = starts(team);

  const released = await team.obeyed('tasks', 'release', id, '--reason', 'the post room has no such invoice');
  tell.say(`$ reachctl tasks release ${id} --reason 'the post room has no such invoice'`);
  linesOf(tell, released.stdout);
  const last = await team.until('its second end', TOLD_MS, async () => {
    await mail.read();
    const ends = mail.ends.filter(({ task_id: task }) => task === id);
    return ends.length > 1 ? ends.at(-1) : null;
  });
  tell.say(`${last?.state} by ${last?.by}; begun ${startsBefore} time before a person said so, ${starts(team)} in all`);

  tell.equal('what its sender heard', [end?.state, code], ['in_doubt', IN_DOUBT]);
  tell.equal(
    'what is kept for people',
    kept.entries.map(({ task_id: task, kind }) => [task, kind]),
    [[id, 'in_doubt']],
  );
  tell.equal('starts before a person released it', startsBefore, 1);
  tell.equal('starts in all', starts(team), 2);
  tell.equal('how it ended', last?.state, 'done');
  tell.equal('what is kept afterwards', (await team.obeyed('tasks', 'list')).stdout.trim(), 'nothing is kept');
  await team.restartAgent(b);
  return { in_doubt_released: 1 };
}

function starts(team: RegisteredTeam): number {
  return [RECORDS_B1, RECORDS_B2].flatMap((member) => team.journal(member)).filter((line) => line === `started ${INVOICE}`).length;
}
