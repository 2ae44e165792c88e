/**
 * What a stream costs: 256 MiB in pieces of 64 KiB from an HTTP provider to a client, through a bare Node pipe, through a
 * sidecar with every policy on, as binary frames, and through two sidecars. All are processes of their own, and the paths
 * take turns, so that a slow moment of the machine meets all alike; the ratio is formed within a round. The time to the
 * first piece is that of many small streams, beside the same from the provider itself.
 *
 *     make bench-stream                      the last line is one JSON object
 *     node dist/test/bench/stream.js --quick       64 MiB and fewer small streams: the figures are rough
 *     node dist/test/bench/stream.js --profile     CPU profiles of pipe, sidecar and host, in build/*.cpuprofile
 *
 * Memory is looked at every 20 ms while a stream lasts: the most that a sidecar grew by over what it had before it. The small
 * streams come first, so that what any first calls cost (V8 compiles the HTTP parser once more: 30 MB for a moment) is not
 * booked on the big ones. Exit 0 when every stream was whole, also when a target is missed (the table says which).
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { stringify } from 'yaml';
import { FRAMES_TYPE } from '../../proto/wire/frames.ts';
import { COMPILED, repoFile } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';
import { Server } from './servers.ts';
import { STREAM_PATHS, streamFigures, streamTable, type StreamPass, type StreamPath, type StreamRound } from './stream/figures.ts';
import type { Firsts, Flood, StreamOrder, StreamTarget } from './stream/load.ts';

interface Plan {
  readonly mib: number;
  readonly rounds: number;
  readonly firsts: number;
}

const FULL: Plan = { mib: 256, rounds: 5, firsts: 500 };
const QUICK: Plan = { mib: 64, rounds: 3, firsts: 100 };
const SAMPLE_MS = 20;
const TOKEN = 'bench-caller-token-0123456789';
const MESH_TOKEN = 'bench-mesh-token-0123456789';
const DIRECT = 'crm.report.export';
const HOSTED = 'crm.report.archive';

function settings(name: string, agentUrl: string, hostMeshUrl: string | null): string {
  const contract = (capability: string): object => ({
    name: capability,
    version: '1.0.0',
    acl: ['role:planner'],
    execution: 'idempotent',
    deadline: '60s',
    streaming: { first_chunk: '5s', idle: '30s' },
    breaker: { slow_call: '1s' },
  });
  const provider = (id: string, capability: string, via: string | null): object => ({
    agent_id: id,
    offers: [`${capability}@1.0.0`],
    endpoint: { type: 'http', address: agentUrl },
    ...(via === null ? {} : { via }),
  });
  return stringify({
    sidecar: {
      name,
      listen: '127.0.0.1:0',
      mesh: { listen: '127.0.0.1:0', token: MESH_TOKEN },
      callers: [{ agent: 'crm.planner.a1', token: TOKEN }],
    },
    contracts: [contract(DIRECT), contract(HOSTED)],
    providers: [provider('crm.report.a1', DIRECT, null), provider('crm.archive.b1', HOSTED, 'host')],
    sidecars: hostMeshUrl === null ? [] : [{ name: 'host', mesh: hostMeshUrl }],
  });
}

class Stage {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-bench-'));
  readonly #servers: Server[] = [];
  readonly targets = {} as Record<StreamPath | 'direct', StreamTarget>;
  readonly measured = {} as Record<StreamPath, readonly Server[]>;
  readonly #asModules: boolean;
  #load: Server | null = null;

  constructor(asModules: boolean) {
    this.#asModules = asModules;
  }

  async build(): Promise<void> {
    const agent = this.#start('agent', 'test/bench/stream/agent.ts', [], false);
    const agentUrl = `http://127.0.0.1:${(await agent.ask<{ port: number }>(null)).port}`;
    const pipe = this.#start('pipe', 'test/bench/stream/pipe.ts', [`${agentUrl}/${DIRECT}`], true);
    const pipeUrl = `http://127.0.0.1:${(await pipe.ask<{ port: number }>(null)).port}/`;
    const host = this.#sidecar('host', settings('host', agentUrl, null));
    const caller = this.#sidecar('sidecar', settings('caller', agentUrl, await this.#said(host, /, mesh (http:\/\/\S+)/)));
    const url = await this.#said(caller, /listens on (http:\/\/[^\s,]+)/);
    const authorization = { authorization: `Bearer ${TOKEN}` };
    this.targets.direct = { name: 'direct', url: `${agentUrl}/${DIRECT}`, headers: {} };
    this.targets.pipe = { name: 'pipe', url: pipeUrl, headers: {} };
    this.targets.sidecar = { name: 'sidecar', url: `${url}/v1/stream/${DIRECT}`, headers: authorization };
    this.targets.frames = { ...this.targets.sidecar, name: 'frames', headers: { ...authorization, accept: FRAMES_TYPE } };
    this.targets.mesh = { name: 'mesh', url: `${url}/v1/stream/${HOSTED}`, headers: authorization };
    this.measured.pipe = [pipe];
    this.measured.sidecar = [caller];
    this.measured.frames = [caller];
    this.measured.mesh = [caller, host];
    this.#load = this.#start('load', 'test/bench/stream/load.ts', [], false);
    await this.#load.ask(null);
  }

  order<Answer>(order: StreamOrder): Promise<Answer> {
    if (this.#load === null) throw new Error('the load has not been started');
    return this.#load.ask<Answer>(order, 120_000);
  }

  async stop(): Promise<void> {
    for (const server of [...this.#servers].reverse()) await server.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #start(name: string, program: string, args: readonly string[], measured: boolean): Server {
    const outputFile = join(this.folder, `${name}.out`);
    const server = Server.start(name, program, { args, measured, outputFile, asModules: this.#asModules, cwd: this.folder });
    this.#servers.push(server);
    return server;
  }

  #sidecar(name: string, text: string): Server {
    const file = join(this.folder, `${name}.yaml`);
    writeFileSync(file, text, { mode: 0o600 });
    return this.#start(name, 'sidecar/main.ts', ['run', file], true);
  }

  async #said(server: Server, pattern: RegExp): Promise<string> {
    let match: RegExpExecArray | null = null;
    await waitUntil(
      `${server.name} says ${pattern.source}`,
      () => (match = pattern.exec(server.output)) !== null || server.ended !== null,
      20_000,
      50,
    );
    const found = (match as RegExpExecArray | null)?.[1];
    if (found === undefined) throw new Error(`${server.name} ended (${server.ended ?? ''})${server.lastWords}`);
    return found;
  }
}

/** One big stream, with an eye on the memory of everything that carries it. */
async function pass(stage: Stage, path: StreamPath, mib: number): Promise<StreamPass> {
  const servers = stage.measured[path];
  const before = await Promise.all(servers.map((server) => server.usage()));
  let grewBytes = 0;
  let isOver = false;
  const watch = async (): Promise<void> => {
    while (!isOver) {
      const now = await Promise.all(servers.map((server) => server.usage()));
      for (const [i, usage] of now.entries()) grewBytes = Math.max(grewBytes, usage.rssBytes - (before[i]?.rssBytes ?? 0));
      await sleep(SAMPLE_MS);
    }
  };
  const watching = watch();
  const seen = await stage.order<Flood>({ do: 'flood', target: stage.targets[path], mib });
  isOver = true;
  await watching;
  if (seen.problem !== null) throw new Error(seen.problem);
  const after = await Promise.all(servers.map((server) => server.usage()));
  const cpuUs = after.reduce((sum, usage, i) => sum + usage.cpuUs - (before[i]?.cpuUs ?? 0), 0);
  return { bytes: mib * 1_048_576, elapsedMs: seen.elapsedMs, cpuUs, grewBytes };
}

async function measure(stage: Stage, plan: Plan): Promise<void> {
  const names = ['direct', ...STREAM_PATHS] as const;
  const targets = names.map((name) => stage.targets[name]);
  const warm = await stage.order<Firsts>({ do: 'first', targets, count: Math.ceil(plan.firsts / 5) });
  const seen = await stage.order<Firsts>({ do: 'first', targets, count: plan.firsts });
  const problem = warm.problem ?? seen.problem;
  if (problem !== null) throw new Error(problem);
  const rounds: StreamRound[] = [];
  for (let i = 0; i < plan.rounds; i++) {
    const passes = {} as Record<StreamPath, StreamPass>;
    for (const path of STREAM_PATHS) passes[path] = await pass(stage, path, plan.mib);
    const words = STREAM_PATHS.map((path) => `${path} ${(passes[path].bytes / 1_000 / passes[path].elapsedMs).toFixed(0)}`);
    console.log(`  round ${i + 1}: ${words.join(', ')} MB/s`);
    rounds.push(passes);
  }
  const firstMs = Object.fromEntries(names.map((name, at) => [name, seen.firstMs[at] ?? []])) as Record<StreamPath | 'direct', number[]>;
  const figures = streamFigures({ rounds, firstMs });
  console.log(`\n${streamTable({ rounds, firstMs }, figures)}\n`);
  console.log(JSON.stringify(figures));
}

async function profile(stage: Stage, plan: Plan): Promise<void> {
  mkdirSync(repoFile('build'), { recursive: true });
  for (const path of STREAM_PATHS) {
    await pass(stage, path, plan.mib);
    const servers = stage.measured[path];
    for (const server of servers) await server.profile();
    await pass(stage, path, plan.mib);
    for (const server of servers) {
      const file = repoFile('build', `stream-${path}-${server.name}.cpuprofile`);
      await server.unprofile(file);
      console.log(`${path}: ${file}`);
    }
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { quick: { type: 'boolean', default: false }, profile: { type: 'boolean', default: false } } });
  const plan = values.quick ? QUICK : FULL;
  const stage = new Stage(values.profile);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void stage.stop().then(() => process.exit(130)));
  try {
    await stage.build();
    console.log(`bench stream: ${plan.mib} MiB in pieces of 64 KiB; ${cpus().length} CPUs, Node ${process.version}`);
    if (values.quick || !COMPILED) console.log('rough figures: streams are short, or the programs run from source');
    if (values.profile) await profile(stage, plan);
    else await measure(stage, plan);
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  } finally {
    await stage.stop();
  }
}

await main();
