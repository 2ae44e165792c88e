/**
 * The sidecar of a scenario: the same engine as the live one, on a virtual clock, seeded chance and mock providers. It
 * listens to everything that happens, so that what was expected can be held against it.
 */
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import type { TableDocument } from '../../proto/language/types.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { KeptEntry, TaskEvent } from '../../proto/wire/messages.ts';
import { assemble } from '../assemble.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import type { Engine, Observer } from '../engine.ts';
import { Health } from '../health/health.ts';
import type { BreakerStateName } from '../health/breaker.ts';
import type { ProviderHealth } from '../health/provider.ts';
import { StaticTokens } from '../identify/static-tokens.ts';
import { MemoryLedger } from '../ledger/memory-ledger.ts';
import { InstalledTable } from '../table/installed.ts';
import { Transports } from '../transports/index.ts';
import { mockKind, MockTransport } from '../transports/mock.ts';
import type { ActFor } from '../transports/mock-script.ts';
import { headerOf } from '../transports/mock-template.ts';
import { AgentCalls } from './agent-calls.ts';
import { Durations } from './durations.ts';
import { Office } from './messages/office.ts';
import type { Scenario } from './scenario.ts';
import { count } from './tally.ts';
import { tokenOf } from './tokens.ts';

/** A breaker that moved. */
export interface Move {
  readonly atMs: number;
  /** `agent capability`. */
  readonly cell: string;
  readonly from: BreakerStateName;
  readonly to: BreakerStateName;
  readonly why: string;
}

/** Counts what the pipeline says, and keeps what a correct pipeline never says. */
export class Witness implements Observer {
  callsStarted = 0;
  callsEnded = 0;
  attemptsEnded = 0;
  /** Attempts in the records of ended calls. */
  attemptsRecorded = 0;
  /** Calls that were reported as ended more than once. */
  endedTwice = 0;
  readonly bugs: string[] = [];
  /** By capability: times of calls that somebody made, not of messages. */
  readonly byCapability = new Map<string, Durations>();
  /** `clock.now()` when something last ended. */
  lastAt = 0;
  /** Everybody that was ever tried, also those that left the table. */
  readonly seen = new Set<ProviderHealth>();
  readonly #ended = new WeakSet<Call>();

  callStarted(): void {
    this.callsStarted++;
  }

  attemptEnded(_call: Call, attempt: Attempt): void {
    this.attemptsEnded++;
    this.seen.add(attempt.candidate.provider.health);
  }

  callEnded(call: Call): void {
    this.callsEnded++;
    this.attemptsRecorded += call.attempts.length;
    if (this.#ended.has(call)) this.endedTwice++;
    this.#ended.add(call);
    const now = call.clock.now();
    this.lastAt = now;
    if (call.capability === null || call.way === 'message') return;
    let times = this.byCapability.get(call.capability.name);
    if (times === undefined) {
      times = new Durations();
      this.byCapability.set(call.capability.name, times);
    }
    times.add(now - call.startedAt);
  }

  bug(_call: Call, error: unknown): void {
    this.bugs.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  }
}

/** Chance for the engine, for the mocks and for ids comes from different sequences, so that one more call of a mock does not turn all other dice. */
const MOCK_SEED = 0x9e3779b9;
const ID_SEED = 0x51ed270b;
const MESSAGE_SEED = 0x2545f491;
/** A table's wall clock, as `VirtualClock` has it. */
const WALL_START_MS = 1_700_000_000_000;
/** A message goes through more hands than a call between two timers: stream, queue, ledger, delivery. */
const MESSAGE_TURNS = 8;

const MOST_HAND_OVERS = 10_000;

export interface WorldOptions {
  /** Answers of mocks that come from elsewhere than their scripts: recorded ones. */
  readonly actFor?: ActFor;
  /** Hears of final states of messages. */
  readonly ended?: (event: TaskEvent) => void;
  /** Hears of messages that are kept for people. */
  readonly kept?: (entry: KeptEntry) => void;
}

export class World {
  readonly clock: VirtualClock;
  readonly witness = new Witness();
  readonly moves: Move[] = [];
  readonly health: Health;
  readonly table: InstalledTable;
  readonly mock: MockTransport;
  readonly engine: Engine;
  readonly ids: SeededRandom;
  readonly agentCalls: AgentCalls;
  /** null = the scenario has no messages. */
  readonly office: Office | null;
  /** Messages that became calls: one for each hand-over. */
  delivered = 0;
  /** Task → its last hand-over, of the first tasks: what was decided about it. */
  readonly handOvers = new Map<string, Call>();
  /** Executions by the key under which they were asked for. */
  readonly byKey = new Map<string, number>();

  constructor(scenario: Scenario, options: WorldOptions = {}) {
    const hasMessages = scenario.steps.some((step) => step.kind === 'send');
    this.clock = hasMessages ? new VirtualClock(WALL_START_MS, MESSAGE_TURNS) : new VirtualClock();
    const { clock, witness } = this;
    const { config, seed } = scenario;
    this.ids = new SeededRandom(seed ^ ID_SEED);
    this.health = new Health(clock, config.ejection);
    this.health.onTransition = (cell, from, to, why) =>
      this.moves.push({ atMs: clock.now(), cell: `${cell.agentId} ${cell.capability}`, from, to, why });
    this.table = new InstalledTable(clock, this.health, {
      name: config.name,
      region: config.region,
      zone: config.zone,
      aclAudit: config.aclAudit,
    });
    const context = {
      clock,
      random: new SeededRandom(seed ^ MOCK_SEED),
      secret: () => '',
      connectTimeoutMs: config.connectTimeoutMs,
      connectionsPerOrigin: config.connectionsPerOrigin,
      maxResponseHeaderBytes: config.limits.headerBytes,
    };
    const mock = new MockTransport(context, options.actFor ?? null);
    this.mock = mock;
    mock.onExecution = (exchange) => {
      const key = headerOf(exchange, Header.powerId);
      if (typeof key === 'string') count(this.byKey, key);
    };
    const { claims } = config;
    const ledger = new MemoryLedger(clock, {
      maxKeys: claims.memoryKeys,
      maxBytes: claims.memoryBytes,
      maxResultBytes: claims.resultBytes,
      keepMs: claims.memoryMs,
    });
    this.engine = assemble({
      clock,
      random: new SeededRandom(seed),
      config,
      table: this.table,
      health: this.health,
      identities: new StaticTokens(callersOf(scenario), [], null),
      transports: new Transports(context, { mock: { ...mockKind, make: () => mock } }),
      observer: witness,
      tasks: ledger,
    });
    this.agentCalls = new AgentCalls(this.engine, clock, this.ids);
    mock.callOn = (exchange, calls, receivedAt) => this.agentCalls.callOn(exchange, calls, receivedAt);
    this.table.install(scenario.document, 'scenario');
    this.office = hasMessages ? this.#openOffice(ledger, seed, options) : null;
    // Nobody is new to a sidecar that has only just learned of them all.
    if (hasMessages) this.health.warm();
  }

  #openOffice(ledger: MemoryLedger, seed: number, { ended, kept }: WorldOptions): Office {
    const { engine, clock } = this;
    return new Office({
      engine,
      clock,
      random: new SeededRandom(seed ^ MESSAGE_SEED),
      ledger,
      delivered: (call) => this.#delivered(call),
      ended: (event) => ended?.(event),
      kept: (entry) => kept?.(entry),
    });
  }

  #delivered(call: Call): void {
    this.delivered++;
    const task = call.headers[Header.taskId] ?? call.about[call.about.indexOf(Header.taskId) + 1];
    if (typeof task === 'string' && (this.handOvers.size < MOST_HAND_OVERS || this.handOvers.has(task))) this.handOvers.set(task, call);
  }

  install(document: TableDocument, source: string): void {
    this.table.install(document, source);
    this.office?.tableChanged();
  }

  breakerOf(cell: string): BreakerStateName | null {
    for (const each of this.health.cells()) if (`${each.agentId} ${each.capability}` === cell) return each.stateName;
    return null;
  }
}

/** Agents may call too. */
function callersOf(scenario: Scenario): { agent: string; token: string }[] {
  const agents = new Set<string>(scenario.agents);
  for (const step of scenario.steps)
    if (step.kind === 'call' || step.kind === 'send') for (const caller of step.callers) agents.add(caller);
  return [...agents].map((agent) => ({ agent, token: tokenOf(agent) }));
}
