/**
 * "Agent B never got the message, C gave up waiting, and a retry produced three copies of a customer's data." B's machine is
 * killed when it has made the copy and has told nobody. C gives up waiting and sends the same again, twice, with the same
 * key. All that B had and all that waited for it is worked on by its other instance; the archive has one copy.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RegisteredTeam } from '../registered-team.ts';
import { FRONT, type Member, RECORDS_B1, RECORDS_B2 } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { acceptedWords, type Counts } from './scene.ts';

const CUSTOMER = '1042';
const KEY = `copy-of-${CUSTOMER}`;
const NOTES = 20;
const PEOPLE: readonly Member[] = [RECORDS_B1, RECORDS_B2];
const BEGUN_MS = 5_000;
const TAKEN_OVER_MS = 20_000;

export async function oneCopy(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const { mail } = team;
  const submit = () => mail.cast('crm.customer.copy', { customer: CUSTOMER, data: 'all of it' }, { 'idempotency-key': KEY });
  const first = await submit();
  const casting = Promise.all(Array.from({ length: NOTES }, (_, n) => mail.cast('crm.customer.note', { note: `n-${n}` })));
  const b = await team.until('one of the two to have made the copy', BEGUN_MS, async () => hasWritten(team, `archived ${KEY}`));
  const noted = notesIn(team).length;
  await Promise.all([team.kill(b), team.killSidecar(b)]);
  const killedAt = performance.now();
  tell.say(
    `B is ${b.agentId}: its agent and its sidecar killed with SIGKILL, the copy made and nobody told, ${NOTES - noted} notes under way`,
  );
  const notes = await casting;
  const again = [await submit(), await submit()];
  tell.say(
    `C (${FRONT.agentId}) gives up waiting and sends the same twice more, with the same key: ${again.map(acceptedWords).join('; ')}`,
  );

  const copies = [first, ...again].flatMap((each) => (each === null ? [] : [each.task_id]));
  const copyEnds = await mail.endsOf(copies, TAKEN_OVER_MS);
  const noteEnds = await mail.endsOf(
    notes.flatMap((each) => (each === null ? [] : [each.task_id])),
    TAKEN_OVER_MS,
  );
  const tookMs = performance.now() - killedAt;
  for (const [i, end] of copyEnds.entries())
    tell.say(`submission ${i + 1}: ${end === null ? 'no end' : `${end.state} by ${end.by}${end.replay ? ', as answered before' : ''}`}`);
  const starts = PEOPLE.flatMap((member) => team.journal(member)).filter((line) => line === `started ${KEY}`).length;
  const inArchive = copiesOf(team, CUSTOMER);
  tell.say(
    `taken over within ${(tookMs / 1_000).toFixed(1)} s; the work was begun ${starts} times, the archive has ${inArchive} copy of ${CUSTOMER}`,
  );

  tell.equal('copies of the customer in the archive', inArchive, 1);
  tell.check('starts of the work', starts, '2: once by B, once by its successor', starts === 2);
  tell.equal(
    'ends of the three submissions',
    copyEnds.map((end) => end?.state),
    ['done', 'done', 'done'],
  );
  tell.equal('results that were made before', copyEnds.filter((end) => end?.replay === true).length, 2);
  tell.equal('different results', new Set(copyEnds.map((end) => JSON.stringify(end?.data))).size, 1);
  tell.equal(
    'notes without a good end',
    noteEnds.filter((end) => end?.state !== 'done'),
    [],
  );
  tell.check('notes that were still to be written when B died', NOTES - noted, 'some, else nothing was proved', noted < NOTES);
  tell.equal('notes that nobody wrote', NOTES - new Set(notesIn(team)).size, 0);
  await Promise.all([team.restartAgent(b), team.restartSidecar(b)]);
  tell.say(`${b.agentId} is back`);
  return {};
}

/** Who has such a line in its journal; null = nobody. */
export function hasWritten(team: RegisteredTeam, line: string): Member | null {
  return PEOPLE.find((member) => team.journal(member).includes(line)) ?? null;
}

function notesIn(team: RegisteredTeam): string[] {
  return PEOPLE.flatMap((member) => team.journal(member)).filter((line) => line.startsWith('noted n-'));
}

/** Counted in the archive itself. */
export function copiesOf(team: RegisteredTeam, customer: string): number {
  const archive = join(team.store, 'archive');
  return readdirSync(archive)
    .map((file) => JSON.parse(readFileSync(join(archive, file), 'utf8')) as { customer: unknown })
    .filter((copy) => copy.customer === customer).length;
}
