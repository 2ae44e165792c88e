/**
 * `make drill-control`: 500 calls a second through four sidecars, and everything that is not needed for a call is killed:
 * the control plane and the nats-server with SIGKILL, then one sidecar, which is started again while there is nobody to ask.
 * Then both are brought back. No call may fail, the registry must come back as it was, and a change must reach everybody.
 *
 * Two capabilities, each with two providers behind sidecars of their own; each of the four agents calls both. Calls are
 * sent again by the callers only when their connection was refused. The evidence is left under `build/drill-control`.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RegisteredTeam } from '../../deploy/local/registered-team.ts';
import type { Member } from '../../deploy/local/roster.ts';
import { onLeaving } from '../../deploy/local/signals.ts';
import { REPO } from '../support/paths.ts';
import { Generator } from './generator.ts';
import { figuresOf, type Phase, tableOf } from './phases.ts';

const RATE_PER_SEC = 500;
const WARM_UP_PER_SEC = 100;
const WARM_UP_MS = 2_000;
const CALM_MS = 4_000;
/** How long everything stays away before and after the sidecar is restarted. */
const AWAY_MS = 3_000;
const SIDECAR_DOWN_MS = 1_000;
const CONVERGE_MS = 30_000;
/** Far above the usual; a drill that hangs is a drill that failed. */
const MOST_MS = 150_000;
const EVIDENCE = join(REPO, 'build', 'drill-control');

const ORDER = 'drill.order.query';
const NOTE = 'drill.note.search';
const TEXT = {
  contracts: [ORDER, NOTE].map((name) => ({ name, version: '1.0.0', execution: 'idempotent', timeout: '5s', acl: 'public' })),
  // The drill is about what is lost, not about how slow a busy machine is.
  policies: [ORDER, NOTE].map((capability) => ({ capability, load: 'round_robin', breaker: { slow_call: '5s' } })),
};
const member = (agentId: string, sidecar: string, offers: string): Member => ({
  agentId,
  program: '../../test/drills/agent.ts',
  sidecar,
  zone: 'a',
  offers: [`${offers}@1.0.0`],
});
const VICTIM = member('drill.order.o2', 'order-2', ORDER);
const MEMBERS: readonly Member[] = [
  member('drill.order.o1', 'order-1', ORDER),
  VICTIM,
  member('drill.note.n1', 'note-1', NOTE),
  member('drill.note.n2', 'note-2', NOTE),
];

const say = (line: string): void => void process.stdout.write(`${line}\n`);
const problems: string[] = [];
const check = (holds: boolean, words: string): void => {
  if (holds) return;
  problems.push(words);
  say(`  !! ${words}`);
};

const team = new RegisteredTeam(TEXT);
onLeaving((status) => void team.stop().then(() => process.exit(status)));

interface Outcome {
  readonly generator: Generator;
  readonly phases: readonly Phase[];
  readonly resyncedMs: number | null;
  readonly facts: Readonly<Record<string, unknown>>;
}

/** What must be as it was when both are back. */
async function standing(): Promise<string> {
  const { epoch, sidecars } = await team.fleet();
  const providers = (await team.providers()).map(({ agent, sidecar, status, drain }) => `${agent} ${sidecar} ${status} ${drain}`).sort();
  return JSON.stringify({ epoch, sidecars: sidecars.map(({ sidecar }) => sidecar).sort(), providers });
}

/** Sidecars that say that their table may be old, with the reason. */
async function stale(): Promise<string[]> {
  const all = await Promise.all(MEMBERS.map(async (one) => [one.sidecar, (await team.standing(one)).table.stale_because] as const));
  return all.filter(([, because]) => because !== null).map(([name, because]) => `${name}: ${because}`);
}

async function drill(): Promise<Outcome> {
  const { registry } = team;
  const before = await standing();
  const lanes = team.seats().map(({ place }) => ({ name: place.member.sidecar, url: `http://${place.listen}`, token: place.token }));
  const targets = [`${ORDER}@^1.0`, NOTE];
  // A process that has just started runs slow code.
  const warmUp = new Generator(lanes, targets, WARM_UP_PER_SEC);
  await sleep(WARM_UP_MS);
  await warmUp.end();
  check(
    warmUp.failures.length === 0,
    `${warmUp.failures.length} calls failed before anything was killed: ${warmUp.failures[0]?.words ?? ''}`,
  );
  const generator = new Generator(lanes, targets, RATE_PER_SEC);
  const phases: Phase[] = [];
  const phase = (name: string): void => {
    phases.push({ name, fromMs: generator.nowMs });
    say(`${(generator.nowMs / 1_000).toFixed(1).padStart(6)} s  ${name}`);
  };
  phase('all is well');
  await sleep(CALM_MS);

  phase('control plane and NATS killed');
  await registry.kill();
  await sleep(AWAY_MS);
  const staleWhileAway = await stale();
  check(
    staleWhileAway.length === MEMBERS.length,
    `only ${staleWhileAway.length} of ${MEMBERS.length} sidecars say that their table may be old`,
  );

  phase(`sidecar ${VICTIM.sidecar} killed too`);
  await generator.between(VICTIM.sidecar, async () => {
    await team.killSidecar(VICTIM);
    // The last words of its connections are read before anything is sent again.
    await sleep(20);
  });
  await sleep(SIDECAR_DOWN_MS);
  const executedBefore = await executed();
  await team.restartSidecar(VICTIM);
  phase('it is back, from its disk copy');
  const { table } = await team.standing(VICTIM);
  check(table.source === 'last good copy', `the restarted sidecar has its table from "${table.source}"`);
  await sleep(2 * AWAY_MS);
  const executedAlone = (await executed()) - executedBefore;
  check(executedAlone > 0, 'the restarted sidecar was not called while nobody could tell where it is');

  phase('both are started again');
  const backAt = performance.now();
  await registry.restartNats();
  await registry.startPlane();
  const leadingMs = performance.now() - backAt;
  const resyncedMs = await resynced(before, backAt);

  phase('all is well again');
  const changedAt = performance.now();
  await team.obeyed('providers', 'drain', VICTIM.agentId, '--reason', 'drill');
  await team.everywhere();
  const changeMs = performance.now() - changedAt;
  await sleep(100);
  const drainedFrom = await executed();
  await sleep(1_000);
  const whileDrained = (await executed()) - drainedFrom;
  check(whileDrained === 0, `${whileDrained} calls reached ${VICTIM.agentId} although it was drained everywhere`);
  await team.obeyed('providers', 'restore', VICTIM.agentId);
  await team.everywhere();
  await sleep(CALM_MS / 2);
  phase('the end');
  await generator.end();
  const counted = await executed();
  check(counted > drainedFrom, `${VICTIM.agentId} was not called again after it was given back`);
  return {
    generator,
    phases,
    resyncedMs,
    facts: {
      stale_while_away: staleWhileAway,
      restarted_from: table.source,
      executed_from_disk_copy: executedAlone,
      leading_ms: leadingMs,
      change_ms: changeMs,
    },
  };
}

/** What the victim's agent has counted. */
async function executed(): Promise<number> {
  return (await team.counts(VICTIM))[ORDER] ?? 0;
}

/** Until the registry is as before, every sidecar has all of it and none calls its table old; null when that did not come true. */
async function resynced(before: string, backAt: number): Promise<number | null> {
  try {
    await team.until('everything to be as before', CONVERGE_MS, async () => (await standing()) === before && (await stale()).length === 0);
    await team.everywhere(CONVERGE_MS);
    return performance.now() - backAt;
  } catch (error) {
    check(false, `${(error as Error).message}; stale: ${(await stale()).join('; ')}; registry: ${await standing()}; before: ${before}`);
    return null;
  }
}

function words({ facts, resyncedMs }: Outcome): string {
  const sec = (ms: unknown): string => `${(Number(ms) / 1_000).toFixed(1)} s`;
  return [
    `From its disk copy the restarted sidecar served ${String(facts['executed_from_disk_copy'])} calls.`,
    `Once both were started again, the control plane led after ${sec(facts['leading_ms'])}`,
    resyncedMs === null ? 'and not everything came back.' : `and everything was as before after ${sec(resyncedMs)}.`,
    `A change made then was in force everywhere after ${sec(facts['change_ms'])}, the start of reachctl included.`,
  ].join(' ');
}

async function play(): Promise<Outcome | null> {
  try {
    await team.start(MEMBERS, say);
    return await drill();
  } catch (error) {
    check(false, `it broke off: ${error instanceof Error ? error.message : String(error)}`);
    return null;
  }
}

function keep(outcome: Outcome | null, text: string): void {
  rmSync(EVIDENCE, { recursive: true, force: true });
  mkdirSync(EVIDENCE, { recursive: true });
  for (const [i, { name, pid, said }] of team.logs().entries())
    writeFileSync(join(EVIDENCE, `${String(i).padStart(2, '0')}-${name.replace(/[^a-z0-9.-]+/gi, '-')}-${pid}.log`), said);
  writeFileSync(join(EVIDENCE, 'nats-server.log'), team.registryLog());
  writeFileSync(join(EVIDENCE, 'report.txt'), text);
  if (outcome === null) return;
  const { generator, phases, facts } = outcome;
  writeFileSync(join(EVIDENCE, 'facts.json'), JSON.stringify({ phases, facts, failures: generator.failures, problems }, null, 2));
  writeFileSync(join(EVIDENCE, 'calls.jsonl'), generator.calls.map((call) => JSON.stringify(call)).join('\n'));
}

const late = sleep(MOST_MS, undefined, { ref: false }).then((): null => {
  check(false, `it was not through after ${MOST_MS / 1_000} s`);
  return null;
});
const outcome = await Promise.race([play(), late]);
const casualties = team.casualties();
check(casualties === null, casualties ?? '');
const calls = outcome === null ? [] : outcome.generator.calls;
const failures = outcome === null ? [] : outcome.generator.failures;
const text =
  outcome === null ? '' : tableOf(figuresOf(outcome.phases.slice(0, -1), (outcome.phases.at(-1) as Phase).fromMs, calls, failures));
if (text !== '') say(`\n${text}\n`);
if (outcome !== null) say(`${RATE_PER_SEC} calls a second. ${words(outcome)}\n`);
for (const { lane, words, dueMs } of failures.slice(0, 10)) say(`  failed at ${(dueMs / 1_000).toFixed(2)} s through ${lane}: ${words}`);
keep(outcome, text);
const killed = await team.stop();
check(killed.length === 0, `did not stop when asked and had to be killed: ${killed.join(', ')}`);
const ok = outcome !== null && outcome.resyncedMs !== null && failures.length === 0 && problems.length === 0 && calls.length > 0;
const last = {
  drill: 'control',
  calls: calls.length + failures.length,
  failed: failures.length,
  reconnects: outcome?.generator.reconnects ?? 0,
  resynced_ms: outcome?.resyncedMs == null ? null : Math.round(outcome.resyncedMs),
  nats: team.natsVersion,
};
process.stdout.write(`evidence: build/drill-control\n${JSON.stringify(last)}\n`, () => process.exit(ok ? 0 : 1));
