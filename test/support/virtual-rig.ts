/**
 * The lab's sidecar in the hands of a test: the live engine on a virtual clock with mock providers, and calls that the test
 * begins, holds and ends one by one. For what takes long, comes by the thousand, or must happen in one instant.
 */
import type { Test } from 'tap';
import { assertQuiet, type Base, takeBase } from './invariants.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call } from '../../sidecar/call/call.ts';
import { type Result, resultOf } from '../../sidecar/call/result.ts';
import type { HealthCell } from '../../sidecar/health/cell.ts';
import { brokenInvariants } from '../../sidecar/lab/invariants.ts';
import { readScenario } from '../../sidecar/lab/read-scenario.ts';
import { tokenOf } from '../../sidecar/lab/tokens.ts';
import { World } from '../../sidecar/lab/world.ts';
import { outbound } from '../../sidecar/pipeline.ts';

export interface Wish {
  readonly headers?: Readonly<Record<string, string>>;
  readonly deadlineMs?: number;
  readonly payload?: unknown;
  readonly stream?: boolean;
  readonly as?: string;
}

/** A call that has begun; `result` is set when it has ended (for a stream: with its body). */
export class Begun {
  readonly call: Call;
  readonly done: Promise<Result>;
  result: Result | null = null;
  constructor(call: Call, done: Promise<Result>) {
    this.call = call;
    this.done = done.then((result) => (this.result = result));
  }
  get code(): number {
    if (this.result === null) throw new Error('the call is still under way');
    return this.result.entry.code;
  }
  /** Reasons of the decision, as `stage.reason`. */
  get reasons(): string[] {
    return this.call.trace.lines().map((line) => `${line.stage}.${line.reason}`);
  }
}

export const VIRTUAL_CALLER = 'web.desk.1';

/** Further agents that may call. */
const OTHERS = ['web.desk.2', 'web.desk.3'];

export class VirtualRig {
  readonly world: World;
  readonly #base: Base = takeBase();
  #issued = 0;
  readonly #text: string;

  /** `table` as in a scenario: contracts, providers, policies, mocks, sidecar, seed. */
  constructor(table: string) {
    this.#text = table;
    this.world = new World(scenarioOf(table));
  }

  get now(): number {
    return this.world.clock.now();
  }

  begin(asked: string, wish: Wish = {}): Begun {
    const { clock, ids } = this.world;
    const headers: Record<string, string> = {
      authorization: `Bearer ${tokenOf(wish.as ?? VIRTUAL_CALLER)}`,
      'content-type': 'application/json',
    };
    if (wish.deadlineMs !== undefined) headers['reach-deadline-ms'] = String(wish.deadlineMs);
    Object.assign(headers, wish.headers);
    const call = new Call(
      'sandbox',
      asked,
      headers,
      Buffer.from(JSON.stringify(wish.payload ?? {})),
      'application/json',
      wish.stream ?? false,
      clock,
    );
    readTraceContext(call, headers['traceparent'], headers['tracestate'], ids);
    this.#issued++;
    return new Begun(call, run(this.world, call));
  }

  /** Begins a call and moves time until it has ended. */
  async call(asked: string, wish: Wish = {}): Promise<Begun> {
    const begun = this.begin(asked, wish);
    await this.rest(() => begun.result !== null);
    return begun;
  }

  /** Moves time from event to event until `isOver`, at the latest until nothing is pending. */
  async rest(isOver: () => boolean): Promise<void> {
    const { clock } = this.world;
    await clock.advance(0);
    while (!isOver()) {
      const next = clock.nextAt();
      if (next === null) throw new Error('nothing is pending, and it is not over');
      await clock.advanceTo(next);
    }
  }

  /** Lets `ms` pass. */
  async wait(ms: number): Promise<void> {
    await this.world.clock.advance(ms);
  }

  /** Another behaviour of one mock, from now on. */
  mock(agentId: string, options: Readonly<Record<string, unknown>>): void {
    const { document } = this.world.table.current();
    const providers = document.providers.map((record) =>
      record.agentId === agentId ? { ...record, endpoint: { ...record.endpoint, options } } : record,
    );
    this.world.install({ ...document, providers }, 'test');
  }

  /** The table with some text of it replaced, mocks as they are now. */
  edit(from: string, to: string): void {
    if (!this.#text.includes(from)) throw new Error(`the table does not hold ${JSON.stringify(from)}`);
    const now = new Map(this.world.table.current().document.providers.map((record) => [record.agentId, record.endpoint]));
    const { document } = scenarioOf(this.#text.replace(from, to));
    this.world.install(
      { ...document, providers: document.providers.map((record) => ({ ...record, endpoint: now.get(record.agentId) ?? record.endpoint })) },
      'test',
    );
  }

  cell(agentId: string, capability: string): HealthCell {
    for (const cell of this.world.health.cells()) if (cell.agentId === agentId && cell.capability === capability) return cell;
    throw new Error(`no breaker of ${agentId} for ${capability}`);
  }

  executions(agentId: string, capability?: string): number {
    return this.world.mock.executions(agentId, capability);
  }

  /** Moves time until all has come to rest and asserts the lab's invariants and the providers' executions. */
  async finish(t: Test, expected: Readonly<Record<string, number>> = {}): Promise<void> {
    const { clock } = this.world;
    await clock.advance(0);
    for (let next = clock.nextAt(); next !== null; next = clock.nextAt()) await clock.advanceTo(next);
    t.strictSame(brokenInvariants(this.world, this.#issued), [], 'the invariants hold');
    await assertQuiet(t, { before: this.#base });
    t.equal(this.world.engine.underway.size, 0, 'no attempt is remembered');
    const counted = Object.fromEntries(Object.keys(expected).map((agent) => [agent, this.executions(agent)]));
    t.strictSame(counted, expected, 'providers were asked as often as said');
  }
}

function scenarioOf(table: string): ConstructorParameters<typeof World>[0] {
  const steps = [VIRTUAL_CALLER, ...OTHERS].map((agent) => `  - {call: crm.order.query, as: ${agent}}`).join('\n');
  const reading = readScenario(`scenario: a test\nas: ${VIRTUAL_CALLER}\n${table}\nsteps:\n${steps}\n`, 'table.yaml');
  if ('problems' in reading)
    throw new Error(reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`).join('\n'));
  return reading.scenario;
}

async function run(world: World, call: Call): Promise<Result> {
  await outbound(world.engine, call);
  const stream = call.bodyOpen ? (call.reply?.stream ?? null) : null;
  if (stream !== null) await new Promise<void>((over) => stream.pipe({ chunk: () => true, end: over, cut: () => over() }));
  return resultOf(call, true);
}
