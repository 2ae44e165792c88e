/**
 * The load, as a process of its own: told what to do over IPC, answers with what it saw.
 *
 * `saturate`: a closed loop, every connection sends its next request when the last answer is whole.
 *
 * `pace`: an open loop at a fixed rate. The paths take turns in short slices of one window, so that whatever else the
 * machine does meets all of them alike. A call's latency runs from the moment it is taken up, so that waiting for a free
 * connection counts; how late after its schedule that was (the timer's grain, a stall of this very process) is reported
 * apart, since it says nothing about the path.
 */
import { type Caller, type CallerDone, Connection, requestBytes, rpcBody, type Target } from './connection.ts';
import { quantile } from './figures.ts';
import { ANSWER, QUESTION } from './payload.ts';

export type Order =
  | { readonly do: 'saturate'; readonly target: Target; readonly connections: number; readonly durationMs: number }
  | {
      readonly do: 'pace';
      readonly targets: readonly Target[];
      readonly connections: number;
      readonly ratePerSec: number;
      readonly windowMs: number;
      readonly sliceMs: number;
    };

export interface Saturated {
  readonly calls: number;
  readonly elapsedMs: number;
  readonly errors: number;
  /** The first few, in words. */
  readonly problems: readonly string[];
}

export interface PathLatency {
  readonly name: string;
  readonly calls: number;
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
}

export interface Paced {
  readonly paths: readonly PathLatency[];
  readonly errors: number;
  readonly problems: readonly string[];
  /** How late calls were taken up after their schedule. */
  readonly slipP99Ms: number;
  readonly slipMaxMs: number;
}

/** A pass with so many errors ends early: its figures are worth nothing. */
const MAX_ERRORS = 50;
const KEPT_PROBLEMS = 3;

class Faults {
  count = 0;
  readonly problems: string[] = [];
  add(target: Target, problem: string): void {
    if (this.count++ < KEPT_PROBLEMS) this.problems.push(`${target.name}: ${problem}`);
  }
}

async function opened(target: Target, count: number, done: CallerDone): Promise<Caller[]> {
  const callers = await callersOf(target, count, done);
  await Promise.all(callers.map((each) => each.open()));
  return callers;
}

async function callersOf(target: Target, count: number, done: CallerDone): Promise<Caller[]> {
  if (target.speaks === 'grpc') {
    // Loaded for its own passes only: the plain ones are measured without it.
    const { grpcCallers } = await import('./grpc-caller.ts');
    return grpcCallers(target, count, QUESTION, ANSWER, done);
  }
  const request = requestBytes(target, target.speaks === 'json_rpc' ? rpcBody(target, QUESTION) : QUESTION);
  return Array.from({ length: count }, () => new Connection(target, request, ANSWER, done));
}

async function saturate(target: Target, count: number, durationMs: number): Promise<Saturated> {
  const faults = new Faults();
  let calls = 0;
  let running = count;
  let stopAt = 0;
  let finish: () => void = () => {};
  const finished = new Promise<void>((done) => {
    finish = done;
  });
  const connections = await opened(target, count, (connection, problem) => {
    calls++;
    if (problem !== null) faults.add(target, problem);
    const now = performance.now();
    if (now < stopAt && faults.count < MAX_ERRORS) connection.send(now);
    else if (--running === 0) finish();
  });
  const startedAt = performance.now();
  stopAt = startedAt + durationMs;
  for (const each of connections) each.send(startedAt);
  await finished;
  const elapsedMs = performance.now() - startedAt;
  for (const each of connections) each.close();
  return { calls, elapsedMs, errors: faults.count, problems: faults.problems };
}

/** One path of a paced window: its idle connections, the calls that wait for one, and what was seen. */
class Path {
  readonly target: Target;
  readonly latencies: number[] = [];
  readonly #free: Caller[] = [];
  readonly #all: Caller[] = [];
  /** When calls were taken up that wait for a connection, oldest first. */
  readonly #waiting: number[] = [];
  readonly #faults: Faults;
  #underWay = 0;

  constructor(target: Target, faults: Faults) {
    this.target = target;
    this.#faults = faults;
  }

  async open(count: number): Promise<void> {
    this.#all.push(...(await opened(this.target, count, (connection, problem) => this.#ended(connection, problem))));
    this.#free.push(...this.#all);
  }

  take(now: number): void {
    this.#underWay++;
    const connection = this.#free.pop();
    if (connection === undefined) this.#waiting.push(now);
    else connection.send(now);
  }

  get isQuiet(): boolean {
    return this.#underWay === 0;
  }

  close(): void {
    for (const each of this.#all) each.close();
  }

  #ended(connection: Caller, problem: string | null): void {
    this.#underWay--;
    if (problem !== null) this.#faults.add(this.target, problem);
    this.latencies.push(performance.now() - connection.sentAt);
    const takenUpAt = this.#waiting.shift();
    if (takenUpAt === undefined) this.#free.push(connection);
    else connection.send(takenUpAt);
  }
}

/** Whose turn it is `sinceMs` after the start: each path once a round, a round beginning one path later than the last. */
export function turnAt(sinceMs: number, sliceMs: number, paths: number): number {
  const slice = Math.floor(sinceMs / sliceMs);
  return (slice + Math.floor(slice / paths)) % paths;
}

async function pace(order: Extract<Order, { do: 'pace' }>): Promise<Paced> {
  const faults = new Faults();
  const paths = order.targets.map((target) => new Path(target, faults));
  await Promise.all(paths.map((path) => path.open(order.connections)));
  const total = Math.round((order.windowMs / 1_000) * order.ratePerSec);
  const everyMs = 1_000 / order.ratePerSec;
  const slips: number[] = [];
  const startedAt = performance.now();
  await new Promise<void>((done) => {
    let sent = 0;
    const tick = (): void => {
      const now = performance.now();
      while (sent < total && startedAt + sent * everyMs <= now) {
        const dueMs = sent++ * everyMs;
        slips.push(now - startedAt - dueMs);
        (paths[turnAt(dueMs, order.sliceMs, paths.length)] as Path).take(performance.now());
      }
      if (faults.count >= MAX_ERRORS || (sent === total && paths.every((path) => path.isQuiet))) done();
      else setTimeout(tick, 1);
    };
    tick();
  });
  for (const path of paths) path.close();
  slips.sort((a, b) => a - b);
  return {
    paths: paths.map((path) => latencyOf(path)),
    errors: faults.count,
    problems: faults.problems,
    slipP99Ms: quantile(slips, 0.99),
    slipMaxMs: quantile(slips, 1),
  };
}

function latencyOf(path: Path): PathLatency {
  const sorted = path.latencies.sort((a, b) => a - b);
  return {
    name: path.target.name,
    calls: sorted.length,
    p50Ms: quantile(sorted, 0.5),
    p90Ms: quantile(sorted, 0.9),
    p99Ms: quantile(sorted, 0.99),
  };
}

async function obey(order: Order): Promise<void> {
  process.send?.(order.do === 'saturate' ? await saturate(order.target, order.connections, order.durationMs) : await pace(order));
}

if (process.channel !== undefined) {
  process.on('message', (order: Order) => void obey(order));
  process.on('disconnect', () => process.exit());
  process.send?.({ port: 0 });
}
