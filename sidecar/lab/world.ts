/**
 * The sidecar of a scenario: the same engine as the live one, on a virtual clock, seeded chance and mock providers. It
 * listens to everything that happens, so that what was expected can be held against it.
 */
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import type { TableDocument } from '../../proto/language/types.ts';
import { assemble } from '../assemble.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import type { Engine, Observer } from '../engine.ts';
import { Health } from '../health/health.ts';
import type { BreakerStateName } from '../health/breaker.ts';
import type { ProviderHealth } from '../health/provider.ts';
import { StaticTokens } from '../identify/static-tokens.ts';
import { InstalledTable } from '../table/installed.ts';
import { Transports } from '../transports/index.ts';
import { mockKind, MockTransport } from '../transports/mock.ts';
import type { Scenario } from './scenario.ts';

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
  }

  bug(_call: Call, error: unknown): void {
    this.bugs.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  }
}

/** Chance for the engine, for the mocks and for ids comes from different sequences, so that one more call of a mock does not turn all other dice. */
const MOCK_SEED = 0x9e3779b9;
const ID_SEED = 0x51ed270b;

export class World {
  readonly clock = new VirtualClock();
  readonly witness = new Witness();
  readonly moves: Move[] = [];
  readonly health: Health;
  readonly table: InstalledTable;
  readonly mock: MockTransport;
  readonly engine: Engine;
  readonly ids: SeededRandom;

  constructor(scenario: Scenario) {
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
    const mock = new MockTransport(context);
    this.mock = mock;
    this.engine = assemble({
      clock,
      random: new SeededRandom(seed),
      config,
      table: this.table,
      health: this.health,
      identities: new StaticTokens(callersOf(scenario), [], null),
      transports: new Transports(context, { mock: { ...mockKind, make: () => mock } }),
      observer: witness,
    });
    this.install(scenario.document, 'scenario');
  }

  install(document: TableDocument, source: string): void {
    this.table.install(document, source);
  }

  breakerOf(cell: string): BreakerStateName | null {
    for (const each of this.health.cells()) if (`${each.agentId} ${each.capability}` === cell) return each.stateName;
    return null;
  }
}

/** What a caller shows: good for this run only. */
export function tokenOf(agent: string): string {
  return `lab-${agent}`;
}

function callersOf(scenario: Scenario): { agent: string; token: string }[] {
  const agents = new Set<string>();
  for (const step of scenario.steps) if (step.kind === 'call') agents.add(step.caller);
  return [...agents].map((agent) => ({ agent, token: tokenOf(agent) }));
}
