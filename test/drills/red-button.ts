/**
 * `make drill-red-button`: an operator blocks everything, and it is measured when it is in force at each of 200 sidecars: when a
 * call through it is answered 2006. Three are whole sidecars with agents, asked over HTTP; the others are what a sidecar has
 * inside, in a few processes, asked at their engine. Three times: all is well; the leading replica was killed a moment before and
 * the other one takes the order; no replica is left and `reachctl` writes into NATS. The clock starts with the operator's order;
 * what the command of `reachctl` takes to start is told beside it.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ENVIRONMENT, type LocalRegistry } from '../../deploy/local/registry.ts';
import { RegisteredTeam } from '../../deploy/local/registered-team.ts';
import type { Member } from '../../deploy/local/roster.ts';
import { onLeaving } from '../../deploy/local/signals.ts';
import { sharedNowMs } from '../bench/push-orders.ts';
import { Server } from '../bench/servers.ts';
import { REPO } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';
import type { Codes, Noted, SidecarsOrder } from './red-button/orders.ts';

const SIDECARS = 200;
const PROCESSES = 4;
/** A sidecar that is not blocked by then counts as missing. */
const PATIENCE_MS = 5_000;
/** Between the death of the leader and the order. */
const MOMENT_MS = 50;
const LIMIT_MS = 1_000;
const MOST_MS = 150_000;
const EVIDENCE = join(REPO, 'build', 'drill-red-button');

const ORDER = 'drill.order.query';
const TEXT = {
  contracts: [{ name: ORDER, version: '1.0.0', execution: 'idempotent', timeout: '5s', acl: 'public' }],
  policies: [{ capability: ORDER, load: 'round_robin', breaker: { slow_call: '5s' } }],
};
const MEMBERS: readonly Member[] = [1, 2, 3].map((n) => ({
  agentId: `drill.order.o${n}`,
  program: '../../test/drills/agent.ts',
  sidecar: `real-${n}`,
  zone: 'a',
  offers: [`${ORDER}@1.0.0`],
}));

class Fleet extends RegisteredTeam {
  get mesh(): string {
    return this.meshToken;
  }
}

interface Round {
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly max_ms: number;
  readonly missing: number;
  /** What the operator was told, and after how long. */
  readonly told: string;
  readonly answered_ms: number;
}

const say = (line: string): void => void process.stdout.write(`${line}\n`);
const problems: string[] = [];
const check = (holds: boolean, words: string): void => {
  if (holds) return;
  problems.push(words);
  say(`  !! ${words}`);
};

const team = new Fleet(TEXT);
const servers: Server[] = [];
async function stop(): Promise<string[]> {
  await Promise.all(servers.map((server) => server.stop()));
  return await team.stop();
}
onLeaving((status) => void stop().then(() => process.exit(status)));

const all = <T>(order: SidecarsOrder): Promise<T[]> => Promise.all(servers.map((server) => server.ask<T>(order, 90_000)));

/** A call through a whole sidecar. */
async function code(url: string, token: string): Promise<number> {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const answer = await fetch(`${url}/v1/invoke/${ORDER}`, { method: 'POST', body: '{}', headers });
  return ((await answer.json()) as { code: number }).code;
}

const seats = (): { name: string; url: string; token: string }[] =>
  team.seats().map(({ place }) => ({ name: place.member.sidecar, url: `http://${place.listen}`, token: place.token }));

/** Codes of a call through everybody. */
async function everybody(): Promise<Map<string, number>> {
  const codes = new Map<string, number>();
  for (const some of await all<Codes>({ do: 'probe' })) for (const [name, one] of Object.entries(some)) codes.set(name, one);
  for (const { name, url, token } of seats()) codes.set(name, await code(url, token));
  return codes;
}

/** Presses, and waits until everybody is blocked. @param press gives the moment of the order and what the operator was told */
async function round(what: string, press: () => Promise<{ startedAt: number; told: string }>): Promise<Round> {
  const before = (await all<Codes>({ do: 'arm' })).flatMap((some) => Object.values(some));
  check(
    before.every((one) => one === 0),
    `${what}: ${before.filter((one) => one !== 0).length} sidecars do not let a call through before`,
  );
  const times = new Map<string, number>();
  let isOver = false;
  const watching = seats().map(async ({ name, url, token }) => {
    while (!isOver && !times.has(name)) {
      if ((await code(url, token).catch(() => -1)) === 2006) times.set(name, sharedNowMs());
      await sleep(2);
    }
  });
  const { startedAt, told } = await press();
  const answeredMs = sharedNowMs() - startedAt;
  const until = performance.now() + PATIENCE_MS;
  for (;;) {
    for (const some of await all<Noted>({ do: 'noted' })) for (const [name, at] of some) if (!times.has(name)) times.set(name, at);
    if (times.size >= SIDECARS || performance.now() > until) break;
    await sleep(20);
  }
  isOver = true;
  await Promise.all(watching);
  const after = await everybody();
  const open = [...after].filter(([, one]) => one !== 2006).map(([name]) => name);
  check(open.length === 0, `${what}: calls go through ${open.slice(0, 5).join(', ')} although everything is blocked`);
  const took = [...times.values()].map((at) => at - startedAt).sort((a, b) => a - b);
  const at = (share: number): number =>
    Math.round(10 * (took[Math.min(took.length - 1, Math.floor(share * took.length))] ?? Number.NaN)) / 10;
  const result = {
    p50_ms: at(0.5),
    p99_ms: at(0.99),
    max_ms: at(1),
    missing: SIDECARS - times.size,
    told,
    answered_ms: Math.round(answeredMs),
  };
  say(
    `${what}: in force on ${times.size} of ${SIDECARS}; p50 ${result.p50_ms} ms, p99 ${result.p99_ms} ms, last ${result.max_ms} ms; told after ${result.answered_ms} ms: ${told}`,
  );
  check(result.missing === 0 && result.p99_ms < LIMIT_MS, `${what}: p99 ${result.p99_ms} ms, ${result.missing} missing`);
  return result;
}

async function ask<T>(registry: LocalRegistry, method: string, path: string, json?: object): Promise<T> {
  const answer = await fetch(`${registry.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${registry.token}`, 'content-type': 'application/json' },
    ...(json === undefined ? {} : { body: JSON.stringify(json) }),
  });
  const text = await answer.text();
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${text.slice(0, 300)}`);
  return JSON.parse(text) as T;
}

interface Counted {
  readonly in_force: number;
  readonly of: number;
  readonly missing: readonly { readonly sidecar: string }[];
}

const countWords = ({ in_force: has, of, missing }: Counted): string =>
  `in force on ${has} of ${of}${
    missing.length === 0
      ? ''
      : `, missing: ${missing
          .slice(0, 5)
          .map(({ sidecar }) => sidecar)
          .join(', ')}`
  }`;

const press = (registry: LocalRegistry, id: string) => async (): Promise<{ startedAt: number; told: string }> => {
  const startedAt = sharedNowMs();
  const order = { id, target: { all: true }, confirm: true, reason: 'the drill', for: '10m' };
  return { startedAt, told: countWords(await ask<Counted>(registry, 'POST', '/v1/overrides', order)) };
};

async function lift(registry: LocalRegistry, id: string): Promise<void> {
  await ask(registry, 'DELETE', `/v1/overrides/${id}?reason=drill`);
  await waitUntil('calls go through again', async () => [...(await everybody()).values()].every((one) => one === 0), 20_000, 100);
}

/** The order is made when reachctl has read its command line, before it connects. */
async function pressDirectly(): Promise<{ launchedAt: number; startedAt: number; told: string }> {
  const launchedAt = sharedNowMs();
  const wallAhead = Date.now() - launchedAt;
  const args = ['stop-bleeding', '--everything', '--yes', '--reason', 'the drill', '--id', 'direct', '--as', 'drill', '--env', ENVIRONMENT];
  const ran = await team.registry.reachctl('--json', ...args, '--nats', team.registry.nats.url);
  if (ran.code !== 0) throw new Error(`reachctl failed${ran.lastWords}`);
  const answer = JSON.parse(ran.stdout) as Counted & { readonly override: { readonly at: string } };
  return { launchedAt, startedAt: Date.parse(answer.override.at) - wallAhead, told: countWords(answer) };
}

interface Outcome {
  readonly normal: Round;
  readonly leaderKilled: Round;
  /** Beside it: how much longer it is from the start of the command. */
  readonly direct: Round & { readonly start_ms: number };
}

async function drill(): Promise<Outcome> {
  await team.start(MEMBERS, say);
  const second = await team.registry.second();
  const replicas = [team.registry, second];
  mkdirSync(EVIDENCE, { recursive: true });
  const inside = SIDECARS - MEMBERS.length;
  for (let i = 0; i < PROCESSES; i++)
    servers.push(
      Server.start(`sidecars-${i}`, 'test/drills/red-button/sidecars.ts', {
        measured: false,
        asModules: true,
        outputFile: join(EVIDENCE, `sidecars-${i}.log`),
        cwd: EVIDENCE,
      }),
    );
  await Promise.all(servers.map((server) => server.ask(null, 30_000)));
  const names = Array.from({ length: inside }, (_, i) => `inside-${i}`);
  const start = { do: 'start', nats: team.registry.nats.url, env: ENVIRONMENT, meshToken: team.mesh, capability: ORDER } as const;
  await Promise.all(
    servers.map((server, at) =>
      server.ask({ ...start, names: names.filter((_, i) => i % PROCESSES === at) } satisfies SidecarsOrder, 90_000),
    ),
  );
  for (const replica of replicas)
    await waitUntil(
      `${replica.name} knows all ${SIDECARS}`,
      async () => {
        const { in_force: has, of } = await replica.get<Counted>('/v1/overrides');
        return of === SIDECARS && has === SIDECARS;
      },
      30_000,
      100,
    );
  say(`${SIDECARS} sidecars, ${MEMBERS.length} of them whole, and two replicas of the control plane are up`);

  const normal = await round('all is well', press(team.registry, 'normal'));
  await lift(second, 'normal');

  const { leader } = await second.get<{ leader: { holder: string } }>('/v1/leader');
  const [dying, other] = leader.holder === second.name ? [second, team.registry] : [team.registry, second];
  const leaderKilled = await round(`the leader ${dying.name} was killed ${MOMENT_MS} ms before`, async () => {
    dying.plane.signal('SIGKILL');
    await sleep(MOMENT_MS);
    return await press(other, 'leaderless')();
  });
  await lift(other, 'leaderless');

  other.plane.signal('SIGKILL');
  await other.plane.end;
  let startMs = 0;
  const direct = await round('no control plane, reachctl alone', async () => {
    const { launchedAt, startedAt, told } = await pressDirectly();
    startMs = Math.round(startedAt - launchedAt);
    return { startedAt, told };
  });
  say(`before that, Node and reachctl took ${startMs} ms to start`);
  return { normal, leaderKilled, direct: { ...direct, start_ms: startMs } };
}

async function play(): Promise<Outcome | null> {
  try {
    return await drill();
  } catch (error) {
    check(false, `it broke off: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    return null;
  }
}

const late = sleep(MOST_MS, undefined, { ref: false }).then((): null => {
  check(false, `it was not through after ${MOST_MS / 1_000} s`);
  return null;
});
const outcome = await Promise.race([play(), late]);
const casualties = team.casualties();
check(casualties === null, casualties ?? '');
const killed = await stop();
check(killed.length === 0, `did not stop when asked and had to be killed: ${killed.join(', ')}`);
const last = {
  drill: 'red-button',
  sidecars: SIDECARS,
  p99_ms: outcome?.normal.p99_ms ?? null,
  missing: outcome?.normal.missing ?? SIDECARS,
  leader_killed: outcome === null ? null : { p99_ms: outcome.leaderKilled.p99_ms, missing: outcome.leaderKilled.missing },
  direct: outcome === null ? null : { p99_ms: outcome.direct.p99_ms, missing: outcome.direct.missing, start_ms: outcome.direct.start_ms },
};
process.stdout.write(`evidence: build/drill-red-button\n${JSON.stringify(last)}\n`, () =>
  process.exit(outcome !== null && problems.length === 0 ? 0 : 1),
);
