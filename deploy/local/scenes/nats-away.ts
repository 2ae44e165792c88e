/**
 * NATS is killed while messages are sent. They are accepted all the same, on the disk of the sender's sidecar, and leave in
 * their order when it is back. Half of them are for a role that nobody has: these wait where an operator sees them, and are
 * sent on to somebody who is there.
 */
import type { Accepted } from '../mail.ts';
import type { RegisteredTeam } from '../registered-team.ts';
import { FRONT } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { type Counts, linesOf } from './scene.ts';

const EACH = 15;
const NOBODY = 'translator';
const TO = 'crm.customer.note';
const AWAY_MS = 5_000;
const BACK_MS = 25_000;

interface Pools {
  readonly pools: readonly { readonly pool: string; readonly role: string | null; readonly messages: number }[];
}
interface Parked {
  readonly tasks: readonly { readonly task_id: string }[];
}

export async function natsAway(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const { mail, registry } = team;
  await registry.killNats();
  await team.until('the front sidecar to notice', AWAY_MS, async () => (await team.standing(FRONT)).table.stale_because);
  const notes: (Accepted | null)[] = [];
  const parked: (Accepted | null)[] = [];
  for (let n = 0; n < EACH; n++) {
    notes.push(await mail.cast(TO, { note: `away-${n}` }));
    parked.push(await mail.send({ target_role: NOBODY, payload: { note: `translate-${n}` } }));
  }
  const all = [...notes, ...parked];
  const onDisk = all.filter((each) => each?.durable === 'local-disk').length;
  tell.say(`nats-server killed; ${all.length} messages sent meanwhile: ${onDisk} answered 202, on the disk of the front's sidecar`);
  const at = performance.now();
  await registry.restartNats();
  const noteEnds = await mail.endsOf(idsOf(notes), BACK_MS);
  tell.say(`nats-server is back; ${noteEnds.filter((end) => end?.state === 'done').length} of ${EACH} are done ${seconds(at)} s after`);

  const pool = await team.until('the others to be parked', BACK_MS, async () => {
    const ran = await registry.reachctl('tasks', 'parked', '--json');
    if (ran.code !== 0) return null;
    const found = (JSON.parse(ran.stdout) as Pools).pools.find(({ role }) => role === NOBODY);
    return found?.messages === EACH ? found : null;
  });
  tell.say(`the other ${EACH} are for a role that nobody has:`);
  tell.say('$ reachctl tasks parked');
  linesOf(tell, (await team.obeyed('tasks', 'parked')).stdout);
  const listed = JSON.parse((await team.obeyed('tasks', 'parked', pool.pool, '--json')).stdout) as Parked;
  const order = listed.tasks.map(({ task_id: id }) => id);
  tell.say(`in the queue they lie in the order in which they were accepted: ${String(same(order, idsOf(parked)))}`);
  const moved = await team.obeyed('tasks', 'reroute', '--pool', pool.pool, '--to', TO, '--reason', 'no translator any more');
  tell.say(`$ reachctl tasks reroute --pool ${pool.pool} --to ${TO} --reason 'no translator any more'`);
  linesOf(tell, moved.stdout);
  const parkedEnds = await mail.endsOf(idsOf(parked), BACK_MS);

  tell.equal('messages that were not taken while NATS was away', EACH * 2 - idsOf(all).length, 0);
  tell.equal('on the disk', onDisk, EACH * 2);
  tell.equal(
    'ends of what was sent meanwhile',
    [...noteEnds, ...parkedEnds].map((end) => end?.state ?? 'none').filter((state) => state !== 'done'),
    [],
  );
  tell.equal('order in the queue', order, idsOf(parked));
  await team.everywhere(BACK_MS);
  return { on_disk: onDisk, parked: listed.tasks.length };
}

function idsOf(accepted: readonly (Accepted | null)[]): string[] {
  return accepted.flatMap((each) => (each === null ? [] : [each.task_id]));
}

function same(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((each, i) => each === b[i]);
}

function seconds(since: number): string {
  return ((performance.now() - since) / 1_000).toFixed(1);
}
