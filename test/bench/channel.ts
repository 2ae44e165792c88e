/**
 * What twelve thousand dial-in agents cost their sidecar: memory each, and CPU for a call that comes in over HTTP on another
 * connection and goes out over an agent's channel. The floor (a bare fastify and undici pass-through to an HTTP agent) is
 * measured in the same run, the passes taking turns, and the ratio is formed within a round.
 *
 *     make bench-channel                        about a minute; the last line is one JSON object
 *     node dist/test/bench/channel.js --quick   fewer agents and shorter passes, for development
 *     node dist/test/bench/channel.js --profile a CPU profile of the sidecar in build/channel.cpuprofile
 *
 * Exit 0 when every call was answered rightly, also when a target is missed (the table says which); 1 otherwise.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { COMPILED, repoFile } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';
import type { AgentsOrder } from './channel-agents.ts';
import type { Target } from './connection.ts';
import type { Order, Paced, Saturated } from './load.ts';
import { QUESTION_SCHEMA } from './payload.ts';
import { Server } from './servers.ts';

interface Plan {
  readonly agents: number;
  readonly warmMs: number;
  readonly passMs: number;
  readonly rounds: number;
  readonly windowMs: number;
}

const FULL: Plan = { agents: 12_000, warmMs: 3_000, passMs: 4_000, rounds: 4, windowMs: 8_000 };
const QUICK: Plan = { agents: 3_000, warmMs: 1_000, passMs: 1_500, rounds: 2, windowMs: 2_000 };
const CALLERS = 16;
const PACE_PER_SEC = 1_000;
/** Files beside the agents' connections: ports, callers, the program itself. */
const SPARE_FILES = 500;
const CAPABILITY = 'crm.order.query';
const PREFIX = 'crm.desk.a';
const TOKEN_PREFIX = 'bench-agent-token-';
const CALLER_TOKEN = 'bench-caller-token-0123456789';
const KB = 1_024;
const TARGETS = { bytesPerConnection: 16 * KB, cpuRatio: 1.35 } as const;

/** Everything on, as in `bench-call`; one capability that every agent offers, and none may be spared by the choice. */
function settings(agents: number): string {
  const names = Array.from({ length: agents }, (_, i) => i);
  return JSON.stringify({
    sidecar: {
      name: 'bench-channels',
      listen: '127.0.0.1:0',
      state_dir: 'none',
      callers: [
        { agent: 'crm.planner.a1', token: CALLER_TOKEN },
        ...names.map((i) => ({ agent: `${PREFIX}${i}`, token: `${TOKEN_PREFIX}${i}` })),
      ],
    },
    contracts: [
      {
        name: CAPABILITY,
        version: '2.0.0',
        description: 'The state of an order and the reason for it',
        execution: 'idempotent',
        input: QUESTION_SCHEMA,
        acl: ['role:planner', 'shop.*.*', 'crm.desk.*'],
        timeout: '2s',
        deadline: '8s',
        retry: { max: 2, backoff: '25ms', backoff_max: '250ms', min_remaining: '20%' },
        breaker: { failure_ratio: '50%', window: '30s', slow_ratio: '30%', slow_call: '1s', min_calls: 20, open: '10s' },
        limits: { per_caller: 64, per_provider: 128, request: '64KiB', response: '256KiB' },
        fallback: [{ static: { state: 'unknown' } }],
      },
    ],
    providers: names.map((i) => ({
      agent_id: `${PREFIX}${i}`,
      offers: [`${CAPABILITY}@2.0.0`],
      endpoint: { type: 'channel' },
      via: 'bench-channels',
    })),
  });
}

/** The limit on open files, as this process and its children have it; Infinity = none. */
function openFiles(): number {
  const text = execFileSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).trim();
  return text === 'unlimited' ? Number.POSITIVE_INFINITY : Number(text);
}

class Stage {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-bench-'));
  readonly #servers: Server[] = [];
  readonly #asModules: boolean;
  sidecar!: Server;
  floor!: Server;
  #load!: Server;
  #agents!: Server;
  #port = 0;
  #floorPort = 0;

  constructor(asModules: boolean) {
    this.#asModules = asModules;
  }

  async build(plan: Plan): Promise<void> {
    const agent = this.#start('agent', 'test/bench/agent.ts', [], true);
    const agentUrl = `http://127.0.0.1:${(await agent.ask<{ port: number }>(null)).port}`;
    this.floor = this.#start(
      'floor',
      'test/bench/floor/floor.ts',
      ['--port', '0', '--target', `${agentUrl}/${CAPABILITY}`, '--connections', String(CALLERS)],
      true,
    );
    this.#floorPort = Number(await said(this.floor, /"port":(\d+)/));
    const file = join(this.folder, 'sidecar.yaml');
    writeFileSync(file, settings(plan.agents), { mode: 0o600 });
    this.sidecar = this.#start('sidecar', 'sidecar/main.ts', ['run', file], true);
    this.#port = Number(new URL(await said(this.sidecar, /listens on (http:\/\/[^\s,]+)/)).port);
    this.#load = this.#start('load', 'test/bench/load.ts', [], false);
    await this.#load.ask(null);
    this.#agents = this.#start('agents', 'test/bench/channel-agents.ts', [], false);
    await this.#agents.ask(null);
  }

  /** Every agent is connected and has said hello; how long that took, ms. */
  async dial(plan: Plan): Promise<number> {
    const began = performance.now();
    const order: AgentsOrder = { do: 'dial', port: this.#port, count: plan.agents, tokenPrefix: TOKEN_PREFIX };
    const { problem } = await this.#agents.ask<{ problem?: string }>(order, 120_000);
    if (problem !== undefined) throw new Error(`the agents could not dial in: ${problem}${this.sidecar.lastWords}`);
    return performance.now() - began;
  }

  /** @param extra headers that say which agent: a pin, or a conversation. */
  target(name: string, extra: Readonly<Record<string, string>> = {}): Target {
    if (name === 'floor') return { name, port: this.#floorPort, path: `/v1/invoke/${CAPABILITY}`, headers: {}, enveloped: false };
    return {
      name,
      port: this.#port,
      path: `/v1/invoke/${CAPABILITY}@%5E2.0`,
      headers: { authorization: `Bearer ${CALLER_TOKEN}`, ...extra },
      enveloped: true,
    };
  }

  saturate(target: Target, durationMs: number): Promise<Saturated> {
    return this.#load.ask<Saturated>({ do: 'saturate', target, connections: CALLERS, durationMs } satisfies Order, durationMs + 20_000);
  }

  pace(target: Target, windowMs: number): Promise<Paced> {
    const order: Order = { do: 'pace', targets: [target], connections: CALLERS, ratePerSec: PACE_PER_SEC, windowMs, sliceMs: 10 };
    return this.#load.ask<Paced>(order, windowMs + 20_000);
  }

  async stop(): Promise<void> {
    for (const server of [...this.#servers].reverse()) await server.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #start(name: string, program: string, args: readonly string[], measured: boolean): Server {
    const server = Server.start(name, program, {
      args,
      measured,
      outputFile: join(this.folder, `${name}.out`),
      asModules: this.#asModules,
      cwd: this.folder,
    });
    this.#servers.push(server);
    return server;
  }
}

async function said(server: Server, pattern: RegExp): Promise<string> {
  let match: RegExpExecArray | null = null;
  await waitUntil(
    `${server.name} says ${pattern.source}`,
    () => {
      match = pattern.exec(server.output);
      return match !== null || server.ended !== null;
    },
    60_000,
    50,
  );
  const found = (match as RegExpExecArray | null)?.[1];
  if (found === undefined) throw new Error(`${server.name} ended (${server.ended ?? ''})${server.lastWords}`);
  return found;
}

let errors = 0;

/** CPU microseconds a call of one pass, and calls a second. */
async function pass(stage: Stage, server: Server, target: Target, durationMs: number): Promise<{ us: number; perSec: number }> {
  const before = (await server.usage()).cpuUs;
  const seen = await stage.saturate(target, durationMs);
  const { cpuUs } = await server.usage();
  errors += seen.errors;
  for (const problem of seen.problems) console.error(`error: ${problem}`);
  return { us: (cpuUs - before) / seen.calls, perSec: (seen.calls * 1_000) / seen.elapsedMs };
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? (sorted[middle] as number) : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

async function measure(stage: Stage, plan: Plan): Promise<void> {
  // Warm before the agents come: what the program itself needs is no connection's.
  await pass(stage, stage.floor, stage.target('floor'), plan.warmMs);
  const empty = await stage.sidecar.memory();
  const dialledMs = await stage.dial(plan);
  const idle = await stage.sidecar.memory();
  console.log(
    `  ${plan.agents} agents dialled in within ${(dialledMs / 1_000).toFixed(1)} s; idle: ${perConnection(idle.usedBytes - empty.usedBytes, plan)} KB each (resident: ${perConnection(idle.rssBytes - empty.rssBytes, plan)} KB)`,
  );
  await pass(stage, stage.sidecar, stage.target('channel'), plan.warmMs);
  const ratios: number[] = [];
  const floors: number[] = [];
  const ours: number[] = [];
  const rates: number[] = [];
  for (let i = 0; i < plan.rounds && errors === 0; i++) {
    const floor = await pass(stage, stage.floor, stage.target('floor'), plan.passMs);
    const channel = await pass(stage, stage.sidecar, stage.target('channel'), plan.passMs);
    const pinned = await pass(
      stage,
      stage.sidecar,
      stage.target('pinned', { 'reach-pin': `${PREFIX}${(i * 997) % plan.agents}` }),
      plan.passMs / 2,
    );
    const sticky = await pass(stage, stage.sidecar, stage.target('sticky', { 'reach-affinity': `conversation-${i}` }), plan.passMs / 2);
    console.log(
      `  round ${i + 1}: floor ${floor.us.toFixed(1)} us, channel ${channel.us.toFixed(1)} us (${(channel.us / floor.us).toFixed(2)} x, ${Math.round(channel.perSec)}/s), pinned ${pinned.us.toFixed(1)} us, sticky ${sticky.us.toFixed(1)} us`,
    );
    ratios.push(channel.us / floor.us);
    floors.push(floor.us);
    ours.push(channel.us);
    rates.push(channel.perSec);
  }
  const paced = await stage.pace(stage.target('channel'), plan.windowMs);
  errors += paced.errors;
  for (const problem of paced.problems) console.error(`error: ${problem}`);
  const after = await stage.sidecar.memory();
  const figures = {
    bench: 'channel',
    connections: plan.agents,
    bytes_per_connection: Math.round((after.usedBytes - empty.usedBytes) / plan.agents),
    rss_per_connection: Math.round((after.rssBytes - empty.rssBytes) / plan.agents),
    calls_per_s: Math.round(median(rates)),
    sidecar_cpu_us: round(median(ours)),
    floor_cpu_us: round(median(floors)),
    cpu_ratio: round(median(ratios)),
    p99_ms: round(paced.paths[0]?.p99Ms ?? Number.NaN),
    errors,
  };
  const verdict = (ok: boolean): string => (ok ? 'reached' : 'MISSED');
  console.log(
    `\n  memory   ${figures.bytes_per_connection} bytes a connection after collection (resident ${figures.rss_per_connection}); target ${TARGETS.bytesPerConnection}: ${verdict(figures.bytes_per_connection <= TARGETS.bytesPerConnection)}\n` +
      `  cpu      ${figures.cpu_ratio} x the floor; target ${TARGETS.cpuRatio}: ${verdict(figures.cpu_ratio <= TARGETS.cpuRatio)}\n` +
      `  latency  p99 ${figures.p99_ms} ms at ${PACE_PER_SEC} calls a second\n`,
  );
  console.log(JSON.stringify(figures));
}

function perConnection(bytes: number, plan: Plan): string {
  return (bytes / plan.agents / KB).toFixed(1);
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

async function profile(stage: Stage, plan: Plan): Promise<void> {
  await stage.dial(plan);
  await pass(stage, stage.sidecar, stage.target('channel'), plan.warmMs);
  await new Promise((d) => setTimeout(d, Number(process.env['BENCH_REST'] ?? 0)));
  mkdirSync(repoFile('build'), { recursive: true });
  const file = repoFile('build', 'channel.cpuprofile');
  await stage.sidecar.profile();
  const { us } = await pass(stage, stage.sidecar, stage.target('channel'), plan.passMs);
  await stage.sidecar.unprofile(file);
  console.log(`${us.toFixed(1)} us of CPU a call while profiled: ${file}`);
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      profile: { type: 'boolean', default: false },
      agents: { type: 'string' },
    },
  });
  const base = values.quick ? QUICK : FULL;
  const plan = values.agents === undefined ? base : { ...base, agents: Number(values.agents) };
  const limit = openFiles();
  const needed = plan.agents + SPARE_FILES;
  if (limit < needed) {
    console.error(
      `bench channel needs ${needed} open files for ${plan.agents} agents, and the limit here is ${limit}: raise it (ulimit -n ${needed}) or pass --agents.`,
    );
    process.exitCode = 1;
    return;
  }
  const stage = new Stage(values.profile);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void stage.stop().then(() => process.exit(130)));
  try {
    await stage.build(plan);
    console.log(
      `bench channel: ${plan.agents} agents on one sidecar, ${CALLERS} HTTP callers, 1 KiB JSON both ways; limit on open files ${limit}; ${cpus().length} CPUs, Node ${process.version}`,
    );
    if (values.quick || !COMPILED) console.log('rough figures: passes are short, or the programs run from source');
    if (values.profile) await profile(stage, plan);
    else await measure(stage, plan);
    if (errors > 0) process.exitCode = 1;
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  } finally {
    await stage.stop();
  }
}

await main();
