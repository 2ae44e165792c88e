/**
 * What a call costs: straight to the agent, through a bare pass-through (the floor), through a sidecar with every policy
 * on, and through two sidecars. All are processes of their own on one machine, and so is the load. Two kinds of figures:
 *
 * CPU per call at saturation, from each process's own accounting, which a busy machine does not distort. The passes of the
 * four paths take turns, and the ratio is formed within a round.
 *
 * Latency at a fixed 1,000 calls a second, the paths taking turns every 10 ms, so that a stall of the machine meets all
 * alike. The tail is judged only in windows in which the direct calls themselves were quick.
 *
 * When all that is taken, the same is measured with issued identities and mutual TLS, beside the plain mesh (`secured.ts`), and then
 * the other ways in and out, each on sidecars of their own.
 *
 *     make bench-call                     about five minutes; the last line is one JSON object
 *     node dist/test/bench/call.js --quick      seconds, for development: the figures are rough
 *     node dist/test/bench/call.js --secured    only the paths with identities and mutual TLS, beside the plain mesh
 *     node dist/test/bench/call.js --traced     only what traces, their export and recordings cost
 *     node dist/test/bench/call.js --profile    CPU profiles of floor, sidecar and host at saturation, in build/*.cpuprofile, secured too
 *
 * Exit 0 when every call was answered rightly, also when a target is missed (the table says which); 1 otherwise.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { readSidecarConfig } from '../../sidecar/config.ts';
import { COMPILED, repoFile } from '../support/paths.ts';
import { waitUntil } from '../support/settle.ts';
import type { Target } from './connection.ts';
import { figuresOf, type Latency, type Pass, PATHS, type PathName, perCall, type Round, tableOf, type Window } from './figures.ts';
import type { Order, Paced, Saturated } from './load.ts';
import { type Secured, SECURED, type SecuredName, securedFigures, securedTable, type SecuredWindow, secure } from './secured.ts';
import { aloneSettings, CALLER_TOKEN, callerSettings, DIRECT, HOSTED, hostSettings } from './scenario.ts';
import { Server } from './servers.ts';
import { TRACED, type TracedName, tracedFigures, tracedSettings, tracedTable, UNTRACED } from './traced.ts';
import { type WayName, wayFigures, waysHere, waysSettings, wayTable, wayTarget, type WayWindow } from './ways.ts';

interface Plan {
  readonly idleMs: number;
  readonly warmMs: number;
  readonly passMs: number;
  readonly rounds: number;
  readonly windowMs: number;
  readonly windows: number;
  /** Windows of the other ways in and out, and of the secured mesh. */
  readonly wayWindows: number;
}

const FULL: Plan = { idleMs: 3_000, warmMs: 3_000, passMs: 5_000, rounds: 3, windowMs: 10_000, windows: 5, wayWindows: 2 };
const QUICK: Plan = { idleMs: 500, warmMs: 700, passMs: 1_000, rounds: 3, windowMs: 2_000, windows: 2, wayWindows: 1 };
const CONNECTIONS = 16;
const RATE_PER_SEC = 1_000;
const SLICE_MS = 10;

/** Everything that runs, and where the load goes. */
class Stage {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-bench-'));
  readonly #servers: Server[] = [];
  readonly targets = {} as Record<PathName, Target>;
  readonly measured = {} as Record<PathName, readonly Server[]>;
  accessLog = '';
  readonly #asModules: boolean;
  #load: Server | null = null;
  #agentUrl = '';
  readonly #wayTargets = new Map<WayName, Target>();
  #secured: Secured | null = null;
  readonly #traced = new Map<TracedName, { readonly server: Server; readonly target: Target }>();

  /** @param asModules the sidecars from their modules, for profiles. */
  constructor(asModules: boolean) {
    this.#asModules = asModules;
  }

  async build(): Promise<void> {
    const agent = this.#start('agent', 'test/bench/agent.ts', [], true);
    const agentUrl = `http://127.0.0.1:${(await agent.ask<{ port: number }>(null)).port}`;
    this.#agentUrl = agentUrl;
    const floor = this.#start(
      'floor',
      'test/bench/floor/floor.ts',
      ['--port', '0', '--target', `${agentUrl}/${DIRECT}`, '--connections', String(CONNECTIONS)],
      true,
    );
    const floorPort = Number(await this.#said(floor, /"port":(\d+)/));
    const host = this.#sidecar('host', hostSettings(agentUrl));
    const caller = this.#sidecar('sidecar', callerSettings(agentUrl, await this.#said(host, /, mesh (http:\/\/\S+)/)));
    const callerPort = Number(new URL(await this.#said(caller, /listens on (http:\/\/[^\s,]+)/)).port);
    const authorization = { authorization: `Bearer ${CALLER_TOKEN}` };
    const sidecarTarget = (name: PathName, capability: string): Target => ({
      name,
      port: callerPort,
      path: `/v1/invoke/${capability}@%5E2.0`,
      headers: authorization,
      enveloped: true,
    });
    this.targets.direct = { name: 'direct', port: Number(new URL(agentUrl).port), path: `/${DIRECT}`, headers: {}, enveloped: false };
    this.targets.floor = { name: 'floor', port: floorPort, path: `/v1/invoke/${DIRECT}`, headers: {}, enveloped: false };
    this.targets.sidecar = sidecarTarget('sidecar', DIRECT);
    this.targets.mesh = sidecarTarget('mesh', HOSTED);
    this.measured.direct = [agent];
    this.measured.floor = [floor];
    this.measured.sidecar = [caller];
    this.measured.mesh = [caller, host];
    this.#load = this.#start('load', 'test/bench/load.ts', [], false);
    await this.#load.ask(null);
  }

  get caller(): Server {
    return this.measured.sidecar[0] as Server;
  }

  saturate(path: PathName, durationMs: number): Promise<Saturated> {
    return this.#order<Saturated>({ do: 'saturate', target: this.targets[path], connections: CONNECTIONS, durationMs }, durationMs);
  }

  pace(windowMs: number): Promise<Paced> {
    const targets = PATHS.map((name) => this.targets[name]);
    return this.#order<Paced>(
      { do: 'pace', targets, connections: CONNECTIONS, ratePerSec: RATE_PER_SEC, windowMs, sliceMs: SLICE_MS },
      windowMs,
    );
  }

  /** Sidecars with identities and mutual TLS; started when the plain figures are taken. */
  async buildSecured(): Promise<void> {
    this.#secured = await secure(
      {
        folder: this.folder,
        start: (name, program, args) => this.#start(name, program, args, false),
        sidecar: (name, text) => this.#sidecar(name, text),
        said: (server, pattern) => this.#said(server, pattern),
      },
      this.#agentUrl,
    );
  }

  /** Whose CPU is counted, and where the load goes. */
  secured(name: SecuredName): { readonly servers: readonly Server[]; readonly target: Target } {
    if (name === 'mesh') return { servers: this.measured.mesh, target: this.targets.mesh };
    const { caller, host, targets } = this.#secured as Secured;
    return { servers: name === 'mesh_tls' ? [caller, host] : [caller], target: targets[name] };
  }

  saturateSecured(name: SecuredName, durationMs: number): Promise<Saturated> {
    const { target } = this.secured(name);
    return this.#order<Saturated>({ do: 'saturate', target, connections: CONNECTIONS, durationMs }, durationMs);
  }

  paceSecured(windowMs: number): Promise<Paced> {
    const targets = [this.targets.direct, this.targets.mesh, this.secured('mesh_tls').target];
    return this.#order<Paced>(
      { do: 'pace', targets, connections: CONNECTIONS, ratePerSec: RATE_PER_SEC, windowMs, sliceMs: SLICE_MS },
      windowMs,
    );
  }

  /** Sidecars that see nothing, everything, and what is shipped; started when the plain figures are taken. */
  async buildTraced(): Promise<void> {
    const receiver = this.#start('otlp-receiver', 'test/bench/otlp-receiver.ts', [], false);
    const collectorUrl = `http://127.0.0.1:${(await receiver.ask<{ port: number }>(null)).port}`;
    this.#traced.set('floor', { server: this.measured.floor[0] as Server, target: this.targets.floor });
    for (const [name, more] of [
      ['untraced', UNTRACED],
      ['default', {}],
      ['traced', tracedSettings(collectorUrl)],
    ] as const) {
      const server = this.#sidecar(`bench-${name}`, aloneSettings(`bench-${name}`, this.#agentUrl, more));
      const port = Number(new URL(await this.#said(server, /listens on (http:\/\/[^\s,]+)/)).port);
      this.#traced.set(name, { server, target: { ...this.targets.sidecar, port } });
    }
  }

  traced(name: TracedName): { readonly server: Server; readonly target: Target } {
    return this.#traced.get(name) as { readonly server: Server; readonly target: Target };
  }

  saturateTraced(name: TracedName, durationMs: number): Promise<Saturated> {
    return this.#order<Saturated>({ do: 'saturate', target: this.traced(name).target, connections: CONNECTIONS, durationMs }, durationMs);
  }

  /** The sidecar of the other ways; started when the plain figures are taken, so that it cannot disturb them. */
  async buildWays(): Promise<Server> {
    let grpcAgentPort: number | null = null;
    if (waysHere().includes('grpc_out'))
      grpcAgentPort = (await this.#start('grpc-agent', 'test/bench/grpc-agent.ts', [], false).ask<{ port: number }>(null, 20_000)).port;
    const sidecar = this.#sidecar('ways', waysSettings(this.#agentUrl, grpcAgentPort));
    const httpPort = Number(new URL(await this.#said(sidecar, /listens on (http:\/\/[^\s,]+)/)).port);
    const grpcPort = Number(await this.#said(sidecar, /, gRPC [^\s,]*:(\d+)/));
    for (const name of waysHere()) this.#wayTargets.set(name, wayTarget(name, httpPort, grpcPort));
    return sidecar;
  }

  saturateWay(way: WayName, durationMs: number): Promise<Saturated> {
    const target = this.#wayTargets.get(way) as Target;
    return this.#order<Saturated>({ do: 'saturate', target, connections: CONNECTIONS, durationMs }, durationMs);
  }

  paceWays(windowMs: number): Promise<Paced> {
    const targets = [this.targets.direct, ...this.#wayTargets.values()];
    return this.#order<Paced>(
      { do: 'pace', targets, connections: CONNECTIONS, ratePerSec: RATE_PER_SEC, windowMs, sliceMs: SLICE_MS },
      windowMs,
    );
  }

  async stop(): Promise<void> {
    // Callers before those they call, so that nobody sees a connection refused.
    for (const server of [...this.#servers].reverse()) await server.stop();
    await this.#secured?.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #order<Answer>(order: Order, durationMs: number): Promise<Answer> {
    if (this.#load === null) throw new Error('the load has not been started');
    return this.#load.ask<Answer>(order, durationMs + 20_000);
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

  #sidecar(name: string, text: string): Server {
    const file = join(this.folder, `${name}.yaml`);
    writeFileSync(file, text, { mode: 0o600 });
    const reading = readSidecarConfig(text, file);
    if ('config' in reading) this.accessLog = reading.config.log.access;
    return this.#start(name, 'sidecar/main.ts', ['run', file], true);
  }

  /** Waits for words in a server's output and gives their first group. */
  async #said(server: Server, pattern: RegExp): Promise<string> {
    let match: RegExpExecArray | null = null;
    await waitUntil(
      `${server.name} says ${pattern.source}`,
      () => {
        match = pattern.exec(server.output);
        return match !== null || server.ended !== null;
      },
      20_000,
      50,
    );
    const found = (match as RegExpExecArray | null)?.[1];
    if (found === undefined) throw new Error(`${server.name} ended (${server.ended ?? ''})${server.lastWords}`);
    return found;
  }
}

/** Errors over the whole run, with the words of the first ones. */
class Errors {
  count = 0;
  add(found: { readonly errors: number; readonly problems: readonly string[] }): void {
    this.count += found.errors;
    for (const problem of found.problems) console.error(`error: ${problem}`);
  }
}

async function used(servers: readonly Server[]): Promise<number> {
  let sum = 0;
  for (const server of servers) sum += (await server.usage()).cpuUs;
  return sum;
}

async function pass(stage: Stage, path: PathName, durationMs: number, errors: Errors): Promise<Pass> {
  const servers = stage.measured[path];
  const before = await used(servers);
  const seen = await stage.saturate(path, durationMs);
  const cpuUs = (await used(servers)) - before;
  errors.add(seen);
  return { calls: seen.calls, elapsedMs: seen.elapsedMs, cpuUs };
}

async function round(stage: Stage, durationMs: number, errors: Errors): Promise<Round> {
  const passes = {} as Record<PathName, Pass>;
  for (const path of PATHS) passes[path] = await pass(stage, path, durationMs, errors);
  return passes;
}

async function window(stage: Stage, durationMs: number, errors: Errors): Promise<Window> {
  const seen = await stage.pace(durationMs);
  errors.add(seen);
  if (seen.slipP99Ms > 3)
    console.log(
      `  the load was late in this window: p99 ${seen.slipP99Ms.toFixed(1)} ms, at most ${seen.slipMaxMs.toFixed(1)} ms after its schedule`,
    );
  return Object.fromEntries(seen.paths.map((path): [string, Latency] => [path.name, path])) as unknown as Window;
}

async function measure(stage: Stage, plan: Plan): Promise<number> {
  const errors = new Errors();
  await sleep(plan.idleMs);
  const idle = await stage.caller.usage();
  await round(stage, plan.warmMs, errors);
  const rounds: Round[] = [];
  for (let i = 0; i < plan.rounds && errors.count === 0; i++) {
    const done = await round(stage, plan.passMs, errors);
    console.log(`  round ${i + 1}: ${PATHS.map((path) => `${path} ${perCall(done[path]).toFixed(1)}`).join(', ')} us of CPU per call`);
    rounds.push(done);
  }
  const windows: Window[] = [];
  for (let i = 0; i < plan.windows && errors.count === 0; i++) {
    const done = await window(stage, plan.windowMs, errors);
    console.log(
      `  window ${i + 1}: ${PATHS.map((path) => `${path} ${done[path].p50Ms.toFixed(2)}/${done[path].p99Ms.toFixed(2)}`).join(', ')} ms p50/p99`,
    );
    windows.push(done);
  }
  const loaded = await stage.caller.usage();
  const measured = { rounds, windows, errors: errors.count, idleRssBytes: idle.rssBytes, loadedRssBytes: loaded.rssBytes };
  const figures = figuresOf(measured);
  console.log(`\n${tableOf(measured, figures)}\n`);
  const secured = errors.count === 0 ? await measureSecured(stage, plan, errors) : {};
  const traced = errors.count === 0 ? await measureTraced(stage, plan, errors) : {};
  const ways = errors.count === 0 ? await measureWays(stage, plan, errors) : {};
  console.log(JSON.stringify({ ...figures, errors: errors.count, ...secured, ...traced, ...ways }));
  return errors.count;
}

async function securedPass(stage: Stage, name: SecuredName, durationMs: number, errors: Errors): Promise<Pass> {
  const { servers } = stage.secured(name);
  const before = await used(servers);
  const seen = await stage.saturateSecured(name, durationMs);
  const cpuUs = (await used(servers)) - before;
  errors.add(seen);
  return { calls: seen.calls, elapsedMs: seen.elapsedMs, cpuUs };
}

/** With identities and mutual TLS, beside the plain mesh. */
async function measureSecured(stage: Stage, plan: Plan, errors: Errors): Promise<Readonly<Record<string, number>>> {
  await stage.buildSecured();
  // These sidecars have just been started; the plain ones have not.
  for (let i = 0; i < 2; i++) for (const name of SECURED) await securedPass(stage, name, plan.warmMs, errors);
  const passes: Record<SecuredName, Pass[]> = { mesh: [], mesh_tls: [], static: [], identity: [] };
  for (let i = 0; i < plan.rounds && errors.count === 0; i++) {
    for (const name of SECURED) passes[name].push(await securedPass(stage, name, plan.passMs, errors));
    console.log(
      `  secured, round ${i + 1}: ${SECURED.map((name) => `${name} ${perCall(passes[name].at(-1) as Pass).toFixed(1)}`).join(', ')} us of CPU per call`,
    );
  }
  const windows: SecuredWindow[] = [];
  for (let i = 0; i < plan.wayWindows && errors.count === 0; i++) {
    const seen = await stage.paceSecured(plan.windowMs);
    errors.add(seen);
    windows.push(Object.fromEntries(seen.paths.map((path): [string, Latency] => [path.name, path])) as unknown as SecuredWindow);
  }
  const figures = securedFigures(passes, windows);
  console.log(`\n${securedTable(passes, figures)}\n`);
  return figures;
}

async function tracedPass(stage: Stage, name: TracedName, durationMs: number, errors: Errors): Promise<Pass> {
  const { server } = stage.traced(name);
  const before = await used([server]);
  const seen = await stage.saturateTraced(name, durationMs);
  // What was made in this pass leaves within a second or so, and is part of it; a process at rest costs something too, so all rest.
  await sleep(LEAVES_MS);
  const cpuUs = (await used([server])) - before;
  errors.add(seen);
  return { calls: seen.calls, elapsedMs: seen.elapsedMs, cpuUs };
}

const LEAVES_MS = 1_200;
const TRACED_WARM = 5;

/** Spans that the collector took, of those that were made. */
async function exportedShare(stage: Stage): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${stage.traced('traced').target.port}/metrics`)).text();
  const value = (outcome: string): number =>
    Number(new RegExp(`reach_spans_total\\{outcome="${outcome}"\\} (\\d+)`).exec(text)?.[1] ?? Number.NaN);
  return value('exported') / value('made');
}

/** What seeing costs, beside the same without, and the floor. */
async function measureTraced(stage: Stage, plan: Plan, errors: Errors): Promise<Readonly<Record<string, number>>> {
  await stage.buildTraced();
  // What runs for one call in a hundred is compiled a hundred times later than the rest; a sidecar lives for weeks, and so it counts warm.
  for (let i = 0; i < TRACED_WARM; i++) for (const name of TRACED) await tracedPass(stage, name, plan.warmMs, errors);
  const passes: Record<TracedName, Pass[]> = { floor: [], untraced: [], default: [], traced: [] };
  for (let i = 0; i < plan.rounds + 1 && errors.count === 0; i++) {
    // Each is the first once and the last once: where one stands among the others costs some per cent, whatever it does.
    for (let at = 0; at < TRACED.length; at++) {
      const name = TRACED[(i + at) % TRACED.length] as TracedName;
      passes[name].push(await tracedPass(stage, name, plan.passMs, errors));
    }
    console.log(
      `  traced, round ${i + 1}: ${TRACED.map((name) => `${name} ${perCall(passes[name].at(-1) as Pass).toFixed(1)}`).join(', ')} us of CPU per call`,
    );
  }
  const figures = tracedFigures(passes, await exportedShare(stage));
  console.log(`\n${tracedTable(passes, figures)}\n`);
  return figures;
}

/** The other ways in and out, on a sidecar of their own. */
async function measureWays(stage: Stage, plan: Plan, errors: Errors): Promise<Readonly<Record<string, number>>> {
  const sidecar = await stage.buildWays();
  const ways = waysHere();
  const wayPass = async (way: WayName, durationMs: number): Promise<Pass> => {
    const before = await used([sidecar]);
    const seen = await stage.saturateWay(way, durationMs);
    const cpuUs = (await used([sidecar])) - before;
    errors.add(seen);
    return { calls: seen.calls, elapsedMs: seen.elapsedMs, cpuUs };
  };
  for (const way of ways) await wayPass(way, plan.warmMs);
  const passes: Partial<Record<WayName, Pass[]>> = {};
  for (let i = 0; i < plan.rounds && errors.count === 0; i++) {
    for (const way of ways) (passes[way] ??= []).push(await wayPass(way, plan.passMs));
    console.log(
      `  ways, round ${i + 1}: ${ways.map((way) => `${way} ${perCall(passes[way]?.at(-1) as Pass).toFixed(1)}`).join(', ')} us of CPU per call`,
    );
  }
  const windows: WayWindow[] = [];
  for (let i = 0; i < plan.wayWindows && errors.count === 0; i++) {
    const seen = await stage.paceWays(plan.windowMs);
    errors.add(seen);
    windows.push(Object.fromEntries(seen.paths.map((path): [string, Latency] => [path.name, path])));
  }
  console.log(`\n${wayTable(passes, windows)}\n`);
  return wayFigures(passes, windows);
}

async function tracedOnly(stage: Stage, plan: Plan): Promise<number> {
  const errors = new Errors();
  await round(stage, plan.warmMs, errors);
  console.log(JSON.stringify({ bench: 'call', ...(await measureTraced(stage, plan, errors)), errors: errors.count }));
  return errors.count;
}

async function securedOnly(stage: Stage, plan: Plan): Promise<number> {
  const errors = new Errors();
  await round(stage, plan.warmMs, errors);
  console.log(JSON.stringify({ bench: 'call', ...(await measureSecured(stage, plan, errors)), errors: errors.count }));
  return errors.count;
}

async function profileTraced(stage: Stage, plan: Plan, errors: Errors): Promise<void> {
  await stage.buildTraced();
  for (const name of ['untraced', 'traced'] as const) {
    const { server } = stage.traced(name);
    await tracedPass(stage, name, plan.warmMs, errors);
    await server.profile();
    const done = await tracedPass(stage, name, plan.passMs, errors);
    await server.unprofile(repoFile('build', `${name}.cpuprofile`));
    console.log(`${name}: ${done.calls} calls, ${perCall(done).toFixed(1)} us of CPU each while profiled`);
  }
}

/** One profile for each measured process but the agent; nothing else is asked of this run. */
async function profile(stage: Stage, plan: Plan): Promise<number> {
  const errors = new Errors();
  mkdirSync(repoFile('build'), { recursive: true });
  await round(stage, plan.warmMs, errors);
  for (const path of ['floor', 'sidecar', 'mesh'] as const) {
    const servers = stage.measured[path];
    for (const server of servers) await server.profile();
    const done = await pass(stage, path, plan.passMs, errors);
    for (const server of servers) {
      const file = repoFile('build', `${path}-${server.name}.cpuprofile`);
      await server.unprofile(file);
      console.log(`${path}: ${done.calls} calls, ${perCall(done).toFixed(1)} us of CPU each while profiled: ${file}`);
    }
  }
  await profileTraced(stage, plan, errors);
  await stage.buildSecured();
  const { servers } = stage.secured('mesh_tls');
  await securedPass(stage, 'mesh_tls', plan.warmMs, errors);
  for (const server of servers) await server.profile();
  const done = await securedPass(stage, 'mesh_tls', plan.passMs, errors);
  for (const server of servers) await server.unprofile(repoFile('build', `mesh_tls-${server.name}.cpuprofile`));
  console.log(`mesh_tls: ${done.calls} calls, ${perCall(done).toFixed(1)} us of CPU each while profiled`);
  return errors.count;
}

function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      profile: { type: 'boolean', default: false },
      secured: { type: 'boolean', default: false },
      traced: { type: 'boolean', default: false },
    },
  });
  const plan = values.quick ? QUICK : FULL;
  const stage = new Stage(values.profile);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void stage.stop().then(() => process.exit(130)));
  try {
    await stage.build();
    console.log(
      `bench call: ${CONNECTIONS} connections, 1 KiB JSON both ways, enveloped; ${cpus().length} CPUs, Node ${process.version}; access log: ${stage.accessLog} (as shipped), to a file`,
    );
    if (values.quick || !COMPILED) console.log('rough figures: passes are short, or the programs run from source');
    const errors = values.profile
      ? await profile(stage, plan)
      : values.secured
        ? await securedOnly(stage, plan)
        : values.traced
          ? await tracedOnly(stage, plan)
          : await measure(stage, plan);
    if (errors > 0) process.exitCode = 1;
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  } finally {
    await stage.stop();
  }
}

await main();
