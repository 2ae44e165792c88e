/**
 * (g) The control plane and the nats-server are killed while calls run. Every sidecar goes on with the table that it has.
 * One of them is killed too and started again, with nobody to ask: it starts from its copy on disk, calls and is called.
 * The shop's other systems answer as before, but for the one that is itself reached over NATS. Then both come back, and everything converges: the same registry, everybody online, and a change reaches everybody.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { inParallel } from '../client.ts';
import type { RegisteredTeam } from '../registered-team.ts';
import { FRONT, ORDER_A3, ORDER_B1 } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { ownersOf, Traffic } from '../traffic.ts';
import { PARCELS, SYSTEMS } from '../systems.ts';
import { ask } from './other-systems.ts';
import { callFrom, type Counts, names, outcome, spread } from './scene.ts';

const TALKS = 60;
const NEWCOMERS = 60;
const WIDTH = 12;
const PER_SEC = 100;
const TARGET = 'crm.order.query@^2.0';
const CAPABILITY = 'crm.order.query';
const VICTIM = ORDER_B1;
/** Each phase is long enough for some hundred calls. */
const PHASE_MS = 1_500;
const STALE_MS = 8_000;
const CALLED_AGAIN_MS = 12_000;
const CONVERGE_MS = 25_000;

export async function controlPlaneLoss(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const { registry } = team;
  const before = await standing(team);
  const traffic = new Traffic((session) => callFrom(team, TARGET, { order: '1042' }, session), names('loss', TALKS), PER_SEC);
  await sleep(PHASE_MS / 2);

  await registry.kill();
  const killedAt = performance.now();
  tell.say(`control plane (pid ${registry.plane.pid}) and nats-server killed with SIGKILL, ${traffic.calls} calls so far`);
  const asked = await registry.reachctl('sidecars', 'list');
  const stale = await team.until(
    'the front sidecar to say that its table may be old',
    STALE_MS,
    async () => (await team.standing(FRONT)).table.stale_because,
  );
  tell.say(`reachctl has nobody to ask (exit status ${asked.code}); the front's sidecar says: ${stale}`);

  const others = SYSTEMS.filter((system) => system !== PARCELS);
  const answeredAway = await Promise.all(others.map((system) => ask(team, system)));
  const parcelsAway = await ask(team, PARCELS);
  const silent = answeredAway.filter(({ isRight }) => !isRight);
  tell.say(
    `the shop's systems: ${others.map(({ protocol }) => protocol).join(', ')} answer, ${silent.length} do not; ${PARCELS.protocol}: ${parcelsAway.words}`,
  );

  const victimPid = team.seat(VICTIM).sidecar.pid;
  await team.killSidecar(VICTIM);
  await sleep(PHASE_MS / 3);
  const restartedAt = performance.now();
  await team.restartSidecar(VICTIM);
  const restartMs = performance.now() - restartedAt;
  const { table } = await team.standing(VICTIM);
  tell.say(
    `sidecar ${VICTIM.sidecar} (pid ${victimPid}) killed too and started again in ${restartMs.toFixed(0)} ms: table from ${table.source}`,
  );
  const executedBefore = (await team.counts(VICTIM))[CAPABILITY] ?? 0;
  const own = await team.seat(VICTIM).client.invoke(TARGET, { order: '1042' }, { 'x-session': 'from-the-restarted' });
  // Who has met it as dead leaves it alone for some seconds.
  const executedAfter = await team.until(`${VICTIM.agentId} to be called again`, CALLED_AGAIN_MS, async () => {
    const executed = (await team.counts(VICTIM))[CAPABILITY] ?? 0;
    return executed > executedBefore ? executed : null;
  });
  await sleep(PHASE_MS / 3);
  const whileDown = traffic.since(killedAt).length;
  tell.say(
    `it calls (${outcome(own)}) and is called, still with nobody to ask; ${whileDown} calls since the kill, ${traffic.failed.length} failed`,
  );

  const backAt = performance.now();
  await registry.restartNats();
  await registry.startPlane();
  const leadingMs = performance.now() - backAt;
  await team.everywhere(CONVERGE_MS);
  const after = await team.until('the registry to be as before', CONVERGE_MS, async () => {
    const now = await standing(team);
    return JSON.stringify(now) === JSON.stringify(before) ? now : null;
  });
  const stillStale = (
    await Promise.all(team.seats().map(async ({ place }) => (await team.standing(place.member)).table.stale_because))
  ).filter((why) => why !== null);
  const convergedMs = performance.now() - backAt;
  tell.say(
    `nats-server and control plane are back; it leads after ${(leadingMs / 1_000).toFixed(1)} s, every sidecar is current after ${(convergedMs / 1_000).toFixed(1)} s`,
  );

  const parcelsBackMs = await team.until('the parcel service to be reached again', CONVERGE_MS, async () => {
    const { isRight } = await ask(team, PARCELS);
    return isRight ? performance.now() - backAt : null;
  });
  const answering = await Promise.all(SYSTEMS.map((system) => ask(team, system)));
  tell.say(`all of the shop's systems answer, the one over NATS ${(parcelsBackMs / 1_000).toFixed(1)} s after its return`);

  await traffic.end();
  tell.say(`${traffic.calls} calls in all, ${traffic.failed.length} failed, the slowest took ${traffic.slowestMs.toFixed(0)} ms`);

  await team.obeyed('providers', 'drain', ORDER_A3.agentId, '--reason', 'to see that it is heard');
  await team.everywhere(CONVERGE_MS);
  const whileDrained = await newcomers(team);
  tell.say(
    `a change that is made now reaches everybody: ${ORDER_A3.agentId} drained, ${NEWCOMERS} new conversations: ${spread(whileDrained)}`,
  );
  await team.obeyed('providers', 'restore', ORDER_A3.agentId);

  const moved = [...ownersOf(traffic.served)].filter(([, owners]) => owners.length > 1 && !owners.includes(VICTIM.agentId));
  tell.equal('calls that failed', traffic.failed, []);
  tell.check('calls while both were away', whileDown, 'some hundred', whileDown > 100);
  tell.check('exit status of reachctl with nobody to ask', asked.code, 'one that says so', asked.code !== 0 && asked.code !== null);
  tell.equal('systems that did not answer without the two', silent, []);
  tell.check('a call over the NATS that is away', parcelsAway.words, 'a refusal', !parcelsAway.isRight);
  tell.equal(
    'systems that do not answer afterwards',
    answering.filter(({ isRight }) => !isRight),
    [],
  );
  tell.equal('where the restarted sidecar had its table from', table.source, 'last good copy');
  tell.check('what the restarted sidecar calls', outcome(own), 'an answer', own.code === 0);
  tell.check('calls that the restarted sidecar served', executedAfter - executedBefore, 'some', executedAfter > executedBefore);
  tell.equal('the registry after its return', after, before);
  tell.equal('sidecars that still call their table old', stillStale, []);
  tell.equal('conversations that moved without need', moved, []);
  tell.check(
    'new conversations at others than the drained one',
    spread(whileDrained),
    `${NEWCOMERS}, none at ${ORDER_A3.agentId}`,
    whileDrained.length === NEWCOMERS && !whileDrained.includes(ORDER_A3.agentId),
  );
  return { loss_calls: traffic.calls, loss_failed: traffic.failed.length, loss_converged_ms: Math.round(convergedMs) };
}

/** Who serves conversations that begin now. */
async function newcomers(team: RegisteredTeam): Promise<string[]> {
  const providers: string[] = [];
  await inParallel(names('after-loss', NEWCOMERS), WIDTH, async (session) => {
    const result = await callFrom(team, TARGET, { order: '1042' }, session);
    if (result.code === 0 && result.provider !== null) providers.push(result.provider);
  });
  return providers;
}

/** What must be as it was: who is registered and in what condition, what operators have said, whose registry it is. */
async function standing(team: RegisteredTeam): Promise<Readonly<Record<string, unknown>>> {
  const { epoch } = await team.fleet();
  const providers = (await team.providers())
    .map(({ agent, sidecar, status, drain }) => `${agent} of ${sidecar}: ${status}${drain ? ', draining' : ''}`)
    .sort();
  const { version } = await team.registry.get<{ version: number }>('/v1/policies');
  const { canary } = await team.registry.get<{ canary: unknown }>(`/v1/capabilities/${CAPABILITY}`);
  return { epoch, providers, policies: version, canary };
}
