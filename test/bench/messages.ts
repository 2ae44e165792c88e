/**
 * What a durable message costs: submitted over a channel, stored, delivered over another channel, answered, its end stored, told to its
 * sender, acknowledged. One sidecar with thousands of connections, one nats-server, a control plane; beside a naive hub in the same run.
 *
 *     make bench-messages                       a few minutes; the last line is one JSON object
 *     node dist/test/bench/messages.js --quick  fewer connections and shorter passes, for development
 *     node dist/test/bench/messages.js --profile=half|keyed|full  a CPU profile of the sidecar at half rate, with keys or without, in build/messages.cpuprofile
 *
 * CPU is what the processes' own accounting says (user and system), over the messages that were finished meanwhile. Exit 0 when every accepted
 * message had its end, also when a target is missed (the table says which); 1 otherwise.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ensureNatsServer, supportedNatsServer } from '../../deploy/local/nats-binary.ts';
import { type LocalNats, NatsProcess } from '../../deploy/local/nats-server.ts';
import { Processes } from '../../deploy/local/processes.ts';
import { ENVIRONMENT, LocalRegistry } from '../../deploy/local/registry.ts';
import { repoFile } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';
import type { MessagesOrder, MessagesRun } from './messages-agents.ts';
import { Server } from './servers.ts';

interface Plan {
  readonly connections: number;
  /** Of these, how many offer the work (the last ones), and how many submit (the first ones). */
  readonly workers: number;
  readonly senders: number;
  readonly warmMs: number;
  readonly passMs: number;
  readonly rounds: number;
  readonly backlog: number;
}

const FULL: Plan = { connections: 12_000, workers: 500, senders: 200, warmMs: 8_000, passMs: 8_000, rounds: 2, backlog: 10_000 };
const QUICK: Plan = { connections: 1_000, workers: 100, senders: 50, warmMs: 3_000, passMs: 4_000, rounds: 1, backlog: 10_000 };
const WINDOW = 1_000;
/** Of the measured capacity. */
const HALF = 0.5;
/**
 * Lanes are looked at where slots are what is short and not the machine: jobs of 5 ms on 16 slots, which are at most 3,200 a second; a tenth
 * of that is high.
 */
const LANES = { workMs: 5, agents: 8, slots: 2, highPerSec: 320 } as const;
const UNKEYED = 'bench.idempotent.do';
const KEYED = 'bench.keyed.do';
const LANED = 'bench.laned.do';
const TOKEN_PREFIX = 'bench-agent-token-';
const COMES_THROUGH_TRIES = 60;
const TICKS_PER_SEC = 100;
const TARGETS = { unkeyedPerSec: 8_500, keyedUs: 235, halfRateP99Ms: 38, highLaneP99Ms: 80 } as const;

type Run = Extract<MessagesOrder, { do: 'run' }>;

interface Cost {
  readonly perSec: number;
  readonly hubUs: number;
  readonly natsUs: number;
  readonly clientUs: number;
  readonly run: MessagesRun;
}

/** One sidecar or hub, its NATS and its connections. */
class Stage {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-bench-'));
  readonly #children = new Processes();
  readonly #plan: Plan;
  readonly #servers: Server[] = [];
  #nats: NatsProcess | null = null;
  #hub: Server | null = null;
  #agents: Server | null = null;
  #runs = 0;
  readonly #isProfiled: boolean;

  constructor(plan: Plan, isProfiled = false) {
    this.#plan = plan;
    this.#isProfiled = isProfiled;
  }

  get natsVersion(): string {
    return this.#nats?.version ?? '';
  }

  async buildOurs(sync: 'always' | null): Promise<void> {
    const nats = await this.#startNats(sync);
    const local: LocalNats = { url: nats.url, process: nats, version: nats.version, stop: () => nats.stop() };
    await LocalRegistry.start(this.#children, this.folder, local);
    const file = join(this.folder, 'sidecar.yaml');
    writeFileSync(file, settings(this.#plan, nats.url), { mode: 0o600 });
    await this.#dial('sidecar', 'sidecar/main.ts', ['run', file]);
    // Until what the agents offer has gone through the registry and come back as work.
    let words = '';
    for (let tries = 0; ; tries++) {
      const { run } = await this.run({ window: 50, durationMs: 500 });
      words = `${run.accepted} accepted, ${run.refused} refused: ${run.words}`;
      if (run.finished > 0 && run.refused === 0) break;
      if (tries === COMES_THROUGH_TRIES) throw new Error(`no message comes through: ${words}${(this.#hub as Server).lastWords}`);
      await new Promise((done) => setTimeout(done, 500));
    }
  }

  async buildNaive(): Promise<void> {
    const nats = await this.#startNats(null);
    await this.#dial('hub', 'test/bench/messages-hub.ts', [nats.url, String(this.#plan.workers)]);
  }

  async run(order: Partial<Run>): Promise<Cost> {
    const full: Run = {
      do: 'run',
      capability: UNKEYED,
      keyed: false,
      lane: 'normal',
      window: WINDOW,
      ratePerSec: 0,
      durationMs: this.#plan.passMs,
      backlog: 0,
      workMs: 0,
      seed: this.#runs++,
      ...order,
    };
    const hub = this.#hub as Server;
    const before = { hub: cpuUs(hub.pid), nats: cpuUs(this.#nats?.pid ?? 0) };
    const asked = (this.#agents as Server).ask<MessagesRun>(full, full.durationMs + 90_000);
    await new Promise((done) => setTimeout(done, full.durationMs));
    const after = { hub: cpuUs(hub.pid), nats: cpuUs(this.#nats?.pid ?? 0) };
    const run = await asked;
    return {
      perSec: (run.finished * 1_000) / run.elapsedMs,
      hubUs: (after.hub - before.hub) / run.finished,
      natsUs: (after.nats - before.nats) / run.finished,
      clientUs: run.cpuUs / run.finished,
      run,
    };
  }

  /** A CPU profile of the sidecar during one run. */
  async profiled(file: string, order: Partial<Run>): Promise<Cost> {
    const hub = this.#hub as Server;
    await hub.profile();
    const cost = await this.run(order);
    await hub.unprofile(file);
    return cost;
  }

  async stop(): Promise<void> {
    for (const server of [...this.#servers].reverse()) await server.stop();
    await this.#children.stop();
    await this.#nats?.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #startNats(sync: 'always' | null): Promise<NatsProcess> {
    const say = (line: string): void => console.log(line);
    // Below 2.10.27 the setting does not exist.
    const binary = (sync === null ? null : supportedNatsServer(say)) ?? ensureNatsServer(say);
    this.#nats = await NatsProcess.start({ binary, folder: this.folder, ...(sync === null ? {} : { sync }) });
    return this.#nats;
  }

  async #dial(name: string, program: string, args: readonly string[]): Promise<void> {
    this.#hub = this.#start(name, program, args);
    const port = Number(new URL(await said(this.#hub, /listens on (http:\/\/[^\s,]+)/)).port);
    this.#agents = this.#start('agents', 'test/bench/messages-agents.ts', []);
    await this.#agents.ask(null, 20_000);
    const { connections: count, senders } = this.#plan;
    const { problem } = await this.#agents.ask<{ problem?: string }>(
      { do: 'dial', port, count, senders, tokenPrefix: TOKEN_PREFIX },
      180_000,
    );
    if (problem !== undefined) throw new Error(`the agents could not dial in: ${problem}${this.#hub.lastWords}`);
  }

  #start(name: string, program: string, args: readonly string[]): Server {
    const outputFile = join(this.folder, `${name}.out`);
    const server = Server.start(name, program, {
      args,
      measured: this.#isProfiled && name === 'sidecar',
      outputFile,
      asModules: this.#isProfiled,
      cwd: this.folder,
    });
    this.#servers.push(server);
    return server;
  }
}

function settings({ connections, workers }: Plan, natsUrl: string): string {
  const names = Array.from({ length: connections }, (_, i) => i);
  return JSON.stringify({
    sidecar: {
      name: 'bench',
      listen: '127.0.0.1:0',
      registry: { nats: natsUrl, env: ENVIRONMENT },
      messages: { rate: { per_sec: 1_000_000, burst: 1_000_000 } },
      callers: names.map((i) => ({ agent: `bench.agent.a${i}`, token: `${TOKEN_PREFIX}${i}` })),
    },
    contracts: [UNKEYED, KEYED, LANED].map((name) => ({
      name,
      version: '1.0.0',
      description: 'Answers at once',
      execution: name === KEYED ? 'keyed' : 'idempotent',
      acl: ['bench.*.*'],
      timeout: '5s',
      limits: { per_provider: name === LANED ? LANES.slots : 16 },
    })),
    providers: names.slice(connections - workers).map((i, index) => ({
      agent_id: `bench.agent.a${i}`,
      offers: (index < LANES.agents ? [UNKEYED, KEYED, LANED] : [UNKEYED, KEYED]).map((name) => `${name}@1.0.0`),
      endpoint: { type: 'channel' },
      via: 'bench',
    })),
  });
}

/** User and system time of a process so far, as Linux counts it. */
function cpuUs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return ((Number(fields[11]) + Number(fields[12])) * 1_000_000) / TICKS_PER_SEC;
}

async function said(server: Server, pattern: RegExp): Promise<string> {
  let found: string | undefined;
  await waitUntil(
    `${server.name} says ${pattern.source}`,
    () => {
      found = pattern.exec(server.output)?.[1];
      return found !== undefined || server.ended !== null;
    },
    60_000,
    50,
  );
  if (found === undefined) throw new Error(`${server.name} ended (${server.ended ?? ''})${server.lastWords}`);
  return found;
}

let lost = 0;
const problems: string[] = [];

function show(name: string, cost: Cost): Cost {
  const { run } = cost;
  lost += run.lost;
  if (run.words !== '') problems.push(`${name}: ${run.words}`);
  console.log(
    `  ${name.padEnd(10)} ${Math.round(cost.perSec)}/s  sidecar ${cost.hubUs.toFixed(0)} us, nats ${cost.natsUs.toFixed(0)} us, load ${cost.clientUs.toFixed(0)} us; to the worker p50 ${run.p50Ms.toFixed(1)} ms, p99 ${run.p99Ms.toFixed(1)} ms; refused ${run.refused}, lost ${run.lost}`,
  );
  return cost;
}

/** The best round: the others had less of the machine. */
function best(costs: readonly Cost[]): Cost {
  return costs.reduce((a, b) => (b.perSec > a.perSec ? b : a));
}

async function on<T>(stage: Stage, build: () => Promise<void>, measure: () => Promise<T>): Promise<T> {
  try {
    await build();
    return await measure();
  } finally {
    await stage.stop();
  }
}

async function ours(plan: Plan): Promise<{ unkeyed: Cost; keyed: Cost; half: Cost; high: Cost }> {
  const stage = new Stage(plan);
  return await on(
    stage,
    () => stage.buildOurs(null),
    async () => {
      console.log(`nats-server ${stage.natsVersion}, ${plan.connections} connections, ${plan.senders} submit, ${plan.workers} work`);
      await stage.run({ durationMs: plan.warmMs });
      await stage.run({ durationMs: plan.warmMs / 2, capability: KEYED, keyed: true });
      const unkeyed: Cost[] = [];
      const keyed: Cost[] = [];
      for (let i = 0; i < plan.rounds; i++) {
        unkeyed.push(show('unkeyed', await stage.run({})));
        keyed.push(show('keyed', await stage.run({ capability: KEYED, keyed: true })));
      }
      const capacity = best(unkeyed).perSec;
      const half = show('half rate', await stage.run({ window: 0, ratePerSec: capacity * HALF }));
      const high = show(
        'high lane',
        await stage.run({
          window: 0,
          capability: LANED,
          lane: 'high',
          ratePerSec: LANES.highPerSec,
          backlog: plan.backlog,
          workMs: LANES.workMs,
        }),
      );
      return { unkeyed: best(unkeyed), keyed: best(keyed), half, high };
    },
  );
}

/** Null where no server is to be had that knows the setting. */
async function always(plan: Plan): Promise<Cost | null> {
  const stage = new Stage({ ...plan, connections: Math.min(plan.connections, 1_000) });
  try {
    return await on(
      stage,
      () => stage.buildOurs('always'),
      async () => {
        await stage.run({ durationMs: plan.warmMs / 2 });
        console.log(`  always: nats-server ${stage.natsVersion}`);
        return show('always', await stage.run({}));
      },
    );
  } catch (error) {
    console.log(`  always     not measured: ${(error as Error).message.split('\n')[0]}`);
    return null;
  }
}

async function naive(plan: Plan): Promise<Cost> {
  const stage = new Stage(plan);
  return await on(
    stage,
    () => stage.buildNaive(),
    async () => {
      await stage.run({ durationMs: plan.warmMs / 2 });
      return show('naive hub', await stage.run({}));
    },
  );
}

async function profile(plan: Plan, what: string): Promise<void> {
  const stage = new Stage(plan, true);
  const file = repoFile('build', 'messages.cpuprofile');
  mkdirSync(repoFile('build'), { recursive: true });
  await on(
    stage,
    () => stage.buildOurs(null),
    async () => {
      const { perSec } = await stage.run({ durationMs: plan.warmMs });
      const order: Partial<Run> =
        what === 'half' ? { window: 0, ratePerSec: perSec * HALF } : what === 'keyed' ? { capability: KEYED, keyed: true } : {};
      show(what, await stage.profiled(file, order));
      console.log(`while profiled: ${file}`);
    },
  );
}

const round = (value: number): number => Math.round(value * 10) / 10;
const verdict = (name: string, value: number, target: number, isReached: boolean): string =>
  `  ${name.padEnd(34)} ${round(value)}; target ${target}: ${isReached ? 'reached' : 'MISSED'}`;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: { quick: { type: 'boolean', default: false }, connections: { type: 'string' }, profile: { type: 'string' } },
  });
  const base = values.quick ? QUICK : FULL;
  const plan = values.connections === undefined ? base : { ...base, connections: Number(values.connections) };
  if (values.profile !== undefined) {
    await profile(plan, values.profile);
    return;
  }
  const { unkeyed, keyed, half, high } = await ours(plan);
  const synced = await always(plan);
  const hub = await naive(plan);
  const keyedUs = keyed.hubUs + keyed.natsUs;
  console.log(
    [
      '',
      verdict('unkeyed messages a second', unkeyed.perSec, TARGETS.unkeyedPerSec, unkeyed.perSec >= TARGETS.unkeyedPerSec),
      verdict('keyed, sidecar and nats, us', keyedUs, TARGETS.keyedUs, keyedUs <= TARGETS.keyedUs),
      verdict('to the worker at half rate, p99 ms', half.run.p99Ms, TARGETS.halfRateP99Ms, half.run.p99Ms < TARGETS.halfRateP99Ms),
      verdict('high lane, p99 ms', high.run.p99Ms, TARGETS.highLaneP99Ms, high.run.p99Ms < TARGETS.highLaneP99Ms),
      '',
    ].join('\n'),
  );
  for (const words of problems) console.log(`  !! ${words}`);
  console.log(
    JSON.stringify({
      bench: 'messages',
      connections: plan.connections,
      unkeyed_per_s: Math.round(unkeyed.perSec),
      unkeyed_sidecar_us: round(unkeyed.hubUs),
      unkeyed_nats_us: round(unkeyed.natsUs),
      client_us: round(unkeyed.clientUs),
      keyed_per_s: Math.round(keyed.perSec),
      keyed_sidecar_us: round(keyed.hubUs),
      keyed_nats_us: round(keyed.natsUs),
      always_per_s: synced === null ? null : Math.round(synced.perSec),
      half_rate_p99_ms: round(half.run.p99Ms),
      high_lane_p99_ms: round(high.run.p99Ms),
      lost,
      naive_hub_per_s: Math.round(hub.perSec),
      sync: 'default',
    }),
  );
  if (lost > 0) process.exitCode = 1;
}

await main();
