/**
 * A canary is shifted with reachctl, while calls run. Every sidecar hears of it, none is restarted; who met the new version
 * stays with it, and of the conversations that begin later the new share does.
 */
import { inParallel } from '../client.ts';
import type { RegisteredTeam } from '../registered-team.ts';
import type { Storyteller } from '../story.ts';
import { Traffic } from '../traffic.ts';
import { callFrom, type Counts, names, outcome } from './scene.ts';

const CAPABILITY = 'crm.order.query';
const NEW = '2.1.0';
const SHARE = 0.5;
const RUNNING = 60;
const LATER = 200;
const PER_SEC = 60;
const WIDTH = 12;
/** In standard deviations: how far chance may take a fair split. */
const TOLERANCE = 4;

export async function shifted(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const pidsBefore = pids(team);
  const running = names('shift', RUNNING);
  const ask = (session: string) => callFrom(team, `${CAPABILITY}@^2.0`, { order: '1042' }, session);
  const met = new Map<string, string>();
  await inParallel(running, WIDTH, async (session) => void met.set(session, (await ask(session)).version ?? '-'));
  const before = [...met.values()].filter((version) => version === NEW).length;

  const traffic = new Traffic(ask, running, PER_SEC);
  const ran = await team.obeyed('canary', CAPABILITY, `${NEW}=${SHARE * 100}%`, '--reason', 'the new build holds');
  const orderedAt = performance.now();
  await team.everywhere();
  const everywhereMs = performance.now() - orderedAt;
  tell.say(`$ reachctl canary ${CAPABILITY} ${NEW}=${SHARE * 100}%`);
  for (const line of ran.stdout.trimEnd().split('\n')) tell.say(`  ${line}`);

  const versions: string[] = [];
  const failed: string[] = [];
  await inParallel(names('after-shift', LATER), WIDTH, async (session) => {
    const result = await ask(session);
    if (result.code === 0) versions.push(result.version ?? '-');
    else failed.push(outcome(result));
  });
  await traffic.end();
  const onNew = versions.filter((version) => version === NEW).length;
  const left = traffic.served.filter(({ session, version }) => met.get(session) === NEW && version !== NEW);
  const sway = TOLERANCE * Math.sqrt(LATER * SHARE * (1 - SHARE));
  const [least, most] = [Math.ceil(LATER * SHARE - sway), Math.floor(LATER * SHARE + sway)];
  tell.say(
    `every sidecar says that it has it in force ${everywhereMs.toFixed(0)} ms after reachctl had its answer; no process was started or stopped`,
  );
  tell.say(
    `${onNew} of ${LATER} new conversations on ${NEW}; of the ${before} that had met it, ${left.length} calls left it; ${traffic.calls} calls ran meanwhile`,
  );

  tell.check('calls that ran meanwhile', traffic.calls, 'some', traffic.calls > 0);
  tell.equal('calls that failed', [...traffic.failed, ...failed], []);
  tell.check(`new conversations on ${NEW}`, onNew, `${least} to ${most}`, onNew >= least && onNew <= most);
  tell.equal(`calls of conversations that had met ${NEW} and left it`, left, []);
  tell.equal('pids of all sidecars', pids(team), pidsBefore);
  tell.check('the registry itself', await shareIn(team), `${NEW} at ${SHARE}`, (await shareIn(team)) === SHARE);
  return { shifted_to_percent: SHARE * 100, shifted_on_new: onNew };
}

function pids(team: RegisteredTeam): number[] {
  return team.seats().map(({ sidecar }) => sidecar.pid);
}

/** What the control plane says that the split is. */
async function shareIn(team: RegisteredTeam): Promise<number | null> {
  const { canary } = await team.registry.get<{ canary: Readonly<Record<string, number>> | null }>(`/v1/capabilities/${CAPABILITY}`);
  return canary?.[NEW] ?? null;
}
