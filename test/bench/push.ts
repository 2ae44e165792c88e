/**
 * How soon a change of the registry is in force everywhere: 200 table clients in four processes and three whole sidecars, one
 * real nats-server, one real control plane, 10,000 providers. What is measured:
 *
 * - from the moment a registration, a change of one or a goodbye *leaves for the control plane* (which is before it is accepted,
 *   so that nothing is left out) to the moment it stands in the table that calls would read; p50 and p99 over (change × client
 *   that has it in scope). The whole sidecars are asked over their own HTTP port until they show it, which adds up to 10 ms.
 *   All clocks are one: `process.hrtime` is the monotonic clock of the machine, the same for every process on it.
 * - lost: pairs where it was not there within 5 s.
 * - join_ms: the control plane is killed, NATS stays; clients that the registry knows start with nothing on disk; median time
 *   until their table is complete.
 * - client_mb_scoped: memory that one client holds, after garbage collection, with 1,000 and with 10,000 providers in the fleet
 *   and the same scope in both.
 *
 *     make bench-push                        about a minute; the last line is one JSON object
 *     node dist/test/bench/push.js --quick   a tenth of the fleet, for development
 *
 * Exit 0 when nothing was lost, also when a target is missed (the table says which); 1 otherwise.
 */
import { randomUUID } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { stringify } from 'yaml';
import { realClock } from '../../base/clock.ts';
import { Bus } from '../../base/nats.ts';
import { systemRandom } from '../../base/random.ts';
import { ensureNatsServer } from '../../deploy/local/nats-binary.ts';
import { NatsProcess } from '../../deploy/local/nats-server.ts';
import type { Answer } from '../../proto/wire/registry.ts';
import { Subjects } from '../../proto/wire/subjects.ts';
import { COMPILED, REPO } from '../support/paths.ts';
import { askLeader, helloOf, leaveOf, registerOf, type Speaker } from '../support/registry-kit.ts';
import { waitUntil } from '../support/settle.ts';
import { median, quantile } from './figures.ts';
import {
  extra,
  groupHost,
  groupName,
  groupsOf,
  type Host,
  PROVIDERS_IN_SCOPE,
  publicHost,
  publicName,
  SCOPE,
  teamOf,
} from './push-fleet.ts';
import {
  type ClientSpec,
  type ClientsOrder,
  Mark,
  type Memory,
  type Noted,
  type Ready,
  type Rejoined,
  sharedNowMs,
} from './push-orders.ts';
import { Server } from './servers.ts';

interface Plan {
  readonly small: number;
  readonly large: number;
  readonly clients: number;
  readonly changes: number;
  readonly perSec: number;
  readonly joins: number;
}

const FULL: Plan = { small: 1_000, large: 10_000, clients: 200, changes: 100, perSec: 5, joins: 10 };
const QUICK: Plan = { small: 460, large: 1_000, clients: 40, changes: 25, perSec: 5, joins: 3 };
const PROCESSES = 4;
const REAL = 3;
const ENV = 'bench';
const LOST_AFTER_MS = 5_000;
/** The whole sidecars are asked for the first time after so long, then again and again. */
const ASK_AFTER_MS = 10;
const ASK_EVERY_MS = 4;
/** An agent that comes goes so many rounds later. */
const STAYS_ROUNDS = 3;
const MB = 1_000_000;
/** Of the run as a whole; whatever hangs, it ends. */
const LIMIT_MS = 240_000;

/** One change and what became of it. */
interface Change {
  readonly agentId: string;
  readonly mark: string;
  /** The capability in which it shows. */
  readonly capability: string;
  readonly group: number | null;
  readonly sentAtMs: number;
  answeredAtMs: number;
}

interface RealSidecar {
  readonly name: string;
  readonly url: string;
  readonly group: number;
  readonly token: string;
}

class Stage {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-bench-push-'));
  readonly subjects = new Subjects(ENV);
  readonly #servers: Server[] = [];
  readonly processes: Server[] = [];
  readonly real: RealSidecar[] = [];
  readonly #http = new Agent({ keepAlive: true });
  #nats: NatsProcess | null = null;
  #bus: Bus | null = null;
  #control: Server | null = null;
  natsVersion = '';

  get bus(): Bus {
    if (this.#bus === null) throw new Error('there is no bus yet');
    return this.#bus;
  }

  get natsUrl(): string {
    return this.#nats?.url ?? '';
  }

  async build(): Promise<void> {
    const store = join(this.folder, 'nats');
    mkdirSync(store);
    this.#nats = await NatsProcess.start({ binary: ensureNatsServer((line) => console.log(line)), folder: store });
    this.natsVersion = this.#nats.version;
    const file = join(this.folder, 'control-plane.yaml');
    writeFileSync(
      file,
      stringify({
        control_plane: {
          name: 'bench-1',
          env: ENV,
          nats: { url: this.natsUrl },
          api: { listen: '127.0.0.1:0' },
          addresses: { loopback: true, private: true },
          log: { level: 'warn' },
        },
      }),
    );
    this.#control = this.#start('control-plane', 'control-plane/main.ts', ['run', file]);
    this.#bus = Bus.open({ servers: [this.natsUrl], name: 'bench', clock: realClock, random: systemRandom });
    await waitUntil('the control plane leads', () => this.#leads(), 20_000, 50);
  }

  async #leads(): Promise<boolean> {
    if (this.#control?.ended != null) throw new Error(`the control plane ended (${this.#control.ended})${this.#control.lastWords}`);
    if (!this.bus.connected) return false;
    const hello = helloOf({ sidecar: 'nobody', instance: 'bench' });
    return (await this.bus.request(this.subjects.ctl('hello'), Buffer.from(JSON.stringify(hello)), 1_000)).kind === 'ok';
  }

  async register(host: Host): Promise<void> {
    const from: Speaker = { sidecar: host.sidecar, instance: 'bench', mesh: host.mesh };
    accepted(host.sidecar, await askLeader(this.bus, this.subjects, 'hello', helloOf(from, host.agents)));
  }

  /** Processes for clients, without any yet. */
  async startProcesses(): Promise<void> {
    for (let at = 0; at < PROCESSES; at++) this.processes.push(this.#start(`clients-${at}`, 'test/bench/push-clients.ts', []));
    await Promise.all(this.processes.map((server) => server.ask(null, 20_000)));
  }

  order<Answered>(at: number, order: ClientsOrder, withinMs = 90_000): Promise<Answered> {
    return (this.processes[at] as Server).ask<Answered>(order, withinMs);
  }

  all<Answered>(order: ClientsOrder, withinMs = 90_000): Promise<Answered[]> {
    return Promise.all(this.processes.map((_, at) => this.order<Answered>(at, order, withinMs)));
  }

  async startReal(): Promise<void> {
    const started = Array.from({ length: REAL }, (_, i) => {
      const name = `real-${i}`;
      const token = randomUUID();
      const file = join(this.folder, `${name}.yaml`);
      const settings = {
        sidecar: {
          name,
          listen: '127.0.0.1:0',
          mesh: { listen: '127.0.0.1:0', token: 'bench-mesh-token-0123456789' },
          callers: [{ agent: `${teamOf(i)}.caller.${name}`, token }],
          registry: { nats: this.natsUrl, env: ENV },
        },
      };
      writeFileSync(file, stringify(settings), { mode: 0o600 });
      return { name, token, group: i, server: this.#start(name, 'sidecar/main.ts', ['run', file]) };
    });
    for (const { name, token, group, server } of started) {
      let url = '';
      const listens = (): boolean => {
        if (server.ended !== null) throw new Error(`${name} ended (${server.ended})${server.lastWords}`);
        url = /listens on (http:\/\/[^\s,]+)/.exec(server.output)?.[1] ?? '';
        return url !== '';
      };
      await waitUntil(`${name} listens`, listens, 20_000, 50);
      const sidecar = { name, token, group, url };
      this.real.push(sidecar);
      await waitUntil(
        `${name} knows its capabilities`,
        async () => (await this.shown(sidecar, publicName(0))).size > 0 && (await this.shown(sidecar, groupName(group, 0))).size > 0,
        20_000,
        50,
      );
    }
  }

  /** What a whole sidecar would choose from, in the marks of `Mark.has`. */
  shown(sidecar: RealSidecar, capability: string): Promise<Set<string>> {
    return new Promise((done, fail) => {
      const headers = { authorization: `Bearer ${sidecar.token}` };
      const request = httpRequest(`${sidecar.url}/v1/explain/${capability}`, { agent: this.#http, headers }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', fail);
        response.on('end', () => {
          const read = JSON.parse(Buffer.concat(chunks).toString('utf8')) as {
            candidates?: readonly { agent_id: string; numbers: { weight: number } }[];
          };
          done(new Set((read.candidates ?? []).map((one) => Mark.has(one.agent_id, one.numbers.weight))));
        });
      });
      request.on('error', fail);
      request.end();
    });
  }

  killControlPlane(): void {
    if (this.#control !== null) process.kill(this.#control.pid, 'SIGKILL');
  }

  async stop(): Promise<void> {
    this.#http.destroy();
    await this.#bus?.close();
    // Clients before those they are clients of.
    await Promise.all([...this.#servers].reverse().map((server) => server.stop()));
    await this.#nats?.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #start(name: string, program: string, args: readonly string[]): Server {
    const server = Server.start(name, program, {
      args,
      measured: false,
      asModules: false,
      outputFile: join(this.folder, `${name}.out`),
      cwd: REPO,
    });
    this.#servers.push(server);
    return server;
  }
}

function accepted(who: string, answer: Answer): void {
  if (answer.ok) return;
  throw new Error(`${who} was refused: ${answer.refused.map(({ agent, problems }) => `${agent} ${problems.join(', ')}`).join('; ')}`);
}

function specOf(n: number, groups: number): ClientSpec {
  return { name: `client-${n}`, caller: `${teamOf(n % groups)}.caller.c${n}`, scope: SCOPE };
}

/** Growing fleet, clients that are measured at both sizes. */
async function populate(stage: Stage, fromGroup: number, toGroup: number): Promise<number> {
  const began = sharedNowMs();
  if (fromGroup === 0) await stage.register(publicHost());
  for (let group = fromGroup; group < toGroup; group++) await stage.register(groupHost(group));
  return sharedNowMs() - began;
}

interface MemoryFigures {
  readonly small: number;
  readonly large: number;
}

/** What each client of the first process holds; the same clients, at both sizes of the fleet. */
async function clientBytes(stage: Stage, emptyBytes: number, clients: number): Promise<number> {
  const { usedBytes, providersHeld, capabilitiesHeld } = await stage.order<Memory>(0, { do: 'memory' });
  if (capabilitiesHeld !== clients * SCOPE || providersHeld !== clients * PROVIDERS_IN_SCOPE)
    throw new Error(`${clients} clients hold ${capabilitiesHeld} capabilities and ${providersHeld} providers: that is not their scope`);
  return (usedBytes - emptyBytes) / clients;
}

/** Sends the changes at their times; each is watched at the whole sidecars as soon as it is sent. */
async function change(stage: Stage, plan: Plan): Promise<{ changes: Change[]; real: Noted; late: number }> {
  const mover: Speaker = { sidecar: 'host-mover', instance: 'bench', mesh: 'http://10.1.0.9:7701' };
  accepted('host-mover', await askLeader(stage.bus, stage.subjects, 'hello', helloOf(mover)));
  const changes: Change[] = [];
  const noted: [string, string, number][] = [];
  const watching: Promise<void>[] = [];
  const began = sharedNowMs();
  let late = 0;
  for (let n = 0; n < plan.changes; n++) {
    const dueAtMs = began + (n * 1_000) / plan.perSec;
    await sleep(Math.max(0, dueAtMs - sharedNowMs()));
    late = Math.max(late, sharedNowMs() - dueAtMs);
    const sent = send(stage, mover, n);
    changes.push(sent.change);
    for (const sidecar of stage.real) if (sees(sidecar.group, sent.change)) watching.push(watch(stage, sidecar, sent.change, noted));
    watching.push(
      sent.answer.then((answer) => {
        sent.change.answeredAtMs = sharedNowMs();
        accepted(sent.change.mark, answer);
      }),
    );
  }
  await Promise.all(watching);
  await sleep(Math.max(0, (changes.at(-1)?.sentAtMs ?? 0) + LOST_AFTER_MS - sharedNowMs()));
  return { changes, real: noted, late };
}

/**
 * In turn: an agent comes, one of the round before changes, one of a group comes, another comes, one that came some rounds ago
 * goes. Every agent is used for a few changes only, and never twice within a second: a registration that flaps is slowed down
 * on purpose, and of two states within a moment a sidecar may see the newer one only.
 */
function send(stage: Stage, mover: Speaker, n: number): { change: Change; answer: Promise<Answer> } {
  const round = Math.floor(n / 5);
  const kind = n % 5;
  const group = kind === 2 ? round % REAL : null;
  const isGoing = kind === 4 && round >= STAYS_ROUNDS;
  const at = kind === 1 ? Math.max(0, round - 1) : isGoing ? round - STAYS_ROUNDS : round;
  const letter = kind === 1 || kind === 3 ? 'b' : kind === 4 && !isGoing ? 'c' : 'a';
  const agentId = `${group === null ? 'pub' : teamOf(group)}.mover.${letter}${at}`;
  const weight = 1_000 + n;
  const sentAtMs = sharedNowMs();
  const answer = isGoing
    ? askLeader(stage.bus, stage.subjects, 'leave', leaveOf(mover, agentId))
    : askLeader(stage.bus, stage.subjects, 'register', registerOf(mover, extra(mover.sidecar, agentId, group, at, weight)));
  const mark = isGoing ? Mark.gone(agentId) : Mark.has(agentId, weight);
  const capability = group === null ? publicName(at) : groupName(group, at);
  return { change: { agentId, mark, capability, group, sentAtMs, answeredAtMs: Number.NaN }, answer };
}

function sees(group: number, change: Change): boolean {
  return change.group === null || change.group === group;
}

async function watch(
  stage: Stage,
  sidecar: RealSidecar,
  { mark, capability, sentAtMs }: Change,
  noted: [string, string, number][],
): Promise<void> {
  await sleep(ASK_AFTER_MS);
  while (sharedNowMs() - sentAtMs < LOST_AFTER_MS) {
    const shown = await stage.shown(sidecar, capability);
    const isThere = mark.startsWith('-') ? ![...shown].some((each) => each.startsWith(`${mark.slice(1)}*`)) : shown.has(mark);
    if (isThere) {
      noted.push([sidecar.name, mark, sharedNowMs()]);
      return;
    }
    await sleep(ASK_EVERY_MS);
  }
}

interface Spread {
  /** From sending, ascending. */
  readonly fromSent: readonly number[];
  /** From the answer of the control plane, ascending; below 0 = it was in force there before the answer was here. */
  readonly fromAnswer: readonly number[];
  readonly lost: readonly string[];
}

function spreadOf(changes: readonly Change[], who: readonly { readonly name: string; readonly group: number }[], noted: Noted): Spread {
  const at = new Map<string, number>();
  for (const [client, mark, atMs] of noted) if (!at.has(`${client} ${mark}`)) at.set(`${client} ${mark}`, atMs);
  const fromSent: number[] = [];
  const fromAnswer: number[] = [];
  const lost: string[] = [];
  for (const { name, group } of who) {
    // Newest first: who goes over a state because a newer one is there already has applied both with that one.
    const newer = new Map<string, number>();
    for (const one of [...changes].reverse()) {
      if (!sees(group, one)) continue;
      const own = at.get(`${name} ${one.mark}`) ?? Number.POSITIVE_INFINITY;
      const appliedAtMs = Math.min(own, newer.get(one.agentId) ?? Number.POSITIVE_INFINITY);
      newer.set(one.agentId, appliedAtMs);
      if (appliedAtMs - one.sentAtMs > LOST_AFTER_MS) lost.push(`${name} ${one.mark}`);
      else {
        fromSent.push(appliedAtMs - one.sentAtMs);
        fromAnswer.push(appliedAtMs - one.answeredAtMs);
      }
    }
  }
  const ascending = (a: number, b: number): number => a - b;
  return { fromSent: fromSent.sort(ascending), fromAnswer: fromAnswer.sort(ascending), lost };
}

async function measure(stage: Stage, plan: Plan): Promise<number> {
  const smallGroups = groupsOf(plan.small);
  const groups = groupsOf(plan.large);
  const perProcess = plan.clients / PROCESSES;
  const specs = (at: number): ClientSpec[] =>
    // The first process has groups that are there from the beginning.
    Array.from({ length: perProcess }, (_, i) => specOf(at * perProcess + i, at === 0 ? smallGroups : groups));

  const smallMs = await populate(stage, 0, smallGroups);
  console.log(`  ${smallGroups * 90 + 100} providers registered in ${(smallMs / 1_000).toFixed(1)} s`);
  await stage.startProcesses();
  const { usedBytes: emptyBytes } = await stage.order<Memory>(0, { do: 'memory' });
  await stage.order<Ready>(0, { do: 'start', url: stage.natsUrl, env: ENV, clients: specs(0) });
  const memory = { small: await clientBytes(stage, emptyBytes, perProcess), large: 0 };

  const largeMs = await populate(stage, smallGroups, groups);
  const providers = groups * 90 + 100;
  console.log(`  ${providers} providers registered in another ${(largeMs / 1_000).toFixed(1)} s`);
  memory.large = await clientBytes(stage, emptyBytes, perProcess);
  const joined: number[] = [];
  for (let at = 1; at < PROCESSES; at++)
    joined.push((await stage.order<Ready>(at, { do: 'start', url: stage.natsUrl, env: ENV, clients: specs(at) })).slowestMs);
  await stage.startReal();
  console.log(
    `  ${plan.clients} clients and ${REAL} sidecars are complete; ${perProcess} joining at once took ${Math.max(...joined).toFixed(0)} ms`,
  );

  await stage.all({ do: 'arm' });
  const { changes, real, late } = await change(stage, plan);
  const noted = (await stage.all<Noted>({ do: 'noted' })).flat();
  const groupOf = (spec: ClientSpec): number => Number(/^team(\d+)\./.exec(spec.caller)?.[1]);
  const who = Array.from({ length: PROCESSES }, (_, at) => specs(at).map((spec) => ({ name: spec.name, group: groupOf(spec) }))).flat();
  const spread = spreadOf(changes, [...who, ...stage.real], [...noted, ...real]);
  const ofReal = spreadOf(changes, stage.real, real);
  for (const each of spread.lost.slice(0, 10)) console.error(`lost: ${each}`);
  if (late > 50) console.log(`  the changes were sent up to ${late.toFixed(0)} ms late: this machine is busy`);

  stage.killControlPlane();
  await sleep(500);
  const rejoined = (await stage.all<Rejoined>({ do: 'rejoin', count: plan.joins })).flatMap(({ tookMs }) => tookMs);
  return say(plan, providers, changes.length, spread, ofReal, rejoined, memory);
}

function say(
  plan: Plan,
  providers: number,
  changes: number,
  spread: Spread,
  ofReal: Spread,
  rejoined: readonly number[],
  memory: MemoryFigures,
): number {
  const ms = (sorted: readonly number[], share: number): number => Number(quantile(sorted, share).toFixed(1));
  const mb = (bytes: number): number => Number((bytes / MB).toFixed(3));
  const ratio = memory.large / memory.small;
  const rows: [string, string][] = [
    ['changes × clients in scope', `${changes} changes, ${spread.fromSent.length} applications, ${spread.lost.length} lost`],
    ['sent → applied', `p50 ${ms(spread.fromSent, 0.5)}, p99 ${ms(spread.fromSent, 0.99)}, most ${ms(spread.fromSent, 1)} ms`],
    ['answered → applied', `p50 ${ms(spread.fromAnswer, 0.5)}, p99 ${ms(spread.fromAnswer, 0.99)} ms`],
    ['sent → shown by a sidecar', `p50 ${ms(ofReal.fromSent, 0.5)}, p99 ${ms(ofReal.fromSent, 0.99)} ms`],
    [
      'join, control plane dead',
      `median ${median(rejoined).toFixed(1)}, most ${Math.max(...rejoined).toFixed(1)} ms (${rejoined.length} joins)`,
    ],
    ['a client, small fleet', `${mb(memory.small)} MB (${plan.small} providers)`],
    ['a client, large fleet', `${mb(memory.large)} MB (${plan.large} providers), ratio ${ratio.toFixed(3)}`],
  ];
  for (const [what, words] of rows) console.log(`  ${what.padEnd(28)}${words}`);
  const p99 = ms(spread.fromSent, 0.99);
  console.log(`  p99 ${p99 <= 100 ? 'meets' : 'MISSES'} 100 ms; memory ${ratio <= 1.1 ? 'does not grow' : 'GROWS'} with the fleet`);
  console.log(
    JSON.stringify({
      bench: 'push',
      sidecars: plan.clients + REAL,
      providers,
      p50_ms: ms(spread.fromSent, 0.5),
      p99_ms: p99,
      lost: spread.lost.length,
      join_ms: Number(median(rejoined).toFixed(1)),
      client_mb_scoped: mb(memory.large),
    }),
  );
  return spread.lost.length;
}

function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { quick: { type: 'boolean', default: false } } });
  const plan = values.quick ? QUICK : FULL;
  const stage = new Stage();
  const give = (code: number, why: string): void => {
    console.error(why);
    void stage.stop().then(() => process.exit(code));
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => give(130, 'stopped'));
  const limit = setTimeout(() => give(1, `not done within ${LIMIT_MS / 1_000} s: given up`), LIMIT_MS);
  try {
    await stage.build();
    console.log(
      `bench push: ${plan.clients} table clients in ${PROCESSES} processes, ${REAL} sidecars, nats-server ${stage.natsVersion}; ${cpus().length} CPUs, Node ${process.version}`,
    );
    if (values.quick || !COMPILED) console.log('rough figures: the fleet is small, or the programs run from source');
    if ((await measure(stage, plan)) > 0) process.exitCode = 1;
  } catch (error) {
    console.error(error instanceof Error ? (error.stack ?? error.message) : error);
    process.exitCode = 1;
  } finally {
    clearTimeout(limit);
    await stage.stop();
  }
}

await main();
