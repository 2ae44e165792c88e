/**
 * A sidecar without sockets: the live engine with its observer (whose log lines go nowhere, but are counted), on a virtual
 * clock, seeded chance and mock providers. For cases about many calls, long times and many sidecars; what travels over the wire is asked of `rig.ts`.
 */
import { createLog } from '../../base/log.ts';
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { readTable } from '../../proto/language/document.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { assemble } from '../../sidecar/assemble.ts';
import { Call } from '../../sidecar/call/call.ts';
import { type Result, resultOf } from '../../sidecar/call/result.ts';
import { readSidecarConfig } from '../../sidecar/config.ts';
import type { Engine } from '../../sidecar/engine.ts';
import { Health } from '../../sidecar/health/health.ts';
import type { HealthCell } from '../../sidecar/health/cell.ts';
import { StaticTokens } from '../../sidecar/identify/static-tokens.ts';
import { Observation } from '../../sidecar/observe/observer.ts';
import { outbound } from '../../sidecar/pipeline.ts';
import { InstalledTable } from '../../sidecar/table/installed.ts';
import { Transports } from '../../sidecar/transports/index.ts';
import { mockKind, MockTransport } from '../../sidecar/transports/mock.ts';
import type { Quiet } from './invariants.ts';

export const CALLER = 'support.planner.1';

export interface OfflineOptions {
  /** Lines under `sidecar:`, indented by two blanks. */
  readonly settings?: string;
  readonly seed?: number;
  readonly clock?: VirtualClock;
  /** Default `offline`. */
  readonly name?: string;
  /** Providers that other sidecars host are played by their mocks too, as if the way over the mesh took no time. */
  readonly meshIsMock?: boolean;
}

export interface OfflineCall {
  readonly payload?: unknown;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  readonly caller?: string;
}

export class Offline {
  readonly clock: VirtualClock;
  readonly health: Health;
  readonly table: InstalledTable;
  readonly mock: MockTransport;
  readonly observation: Observation;
  readonly engine: Engine;
  readonly #ids: SeededRandom;
  #forgetting: { readonly isKnown?: (agentId: string) => boolean } = {};

  /** @param table null = it comes from elsewhere. */
  constructor(table: string | null, options: OfflineOptions = {}) {
    const seed = options.seed ?? 1;
    const reading = readSidecarConfig(
      `sidecar:\n  name: ${options.name ?? 'offline'}\n  table: x\n${options.settings ?? ''}\n`,
      'sidecar.yaml',
    );
    if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
    const { config } = reading;
    const clock = options.clock ?? new VirtualClock();
    this.clock = clock;
    this.#ids = new SeededRandom(seed ^ 0x51ed270b);
    this.health = new Health(clock, config.ejection);
    this.table = new InstalledTable(clock, this.health, config);
    this.observation = new Observation(clock, createLog({ level: 'silent', to: 'stderr', service: 'offline' }).logger, 'all');
    this.health.onTransition = this.observation.breakerMoved;
    const context = {
      clock,
      random: new SeededRandom(seed ^ 0x9e3779b9),
      secret: () => '',
      connectTimeoutMs: config.connectTimeoutMs,
      connectionsPerOrigin: config.connectionsPerOrigin,
      maxResponseHeaderBytes: config.limits.headerBytes,
    };
    this.mock = new MockTransport(context);
    this.engine = assemble({
      clock,
      random: new SeededRandom(seed),
      config,
      table: this.table,
      health: this.health,
      identities: new StaticTokens([], [], CALLER),
      transports: new Transports(context, {
        mock: { ...mockKind, make: () => this.mock },
        ...(options.meshIsMock === true ? { mesh: { ...mockKind, make: () => this.mock } } : {}),
      }),
      observer: this.observation,
    });
    if (table !== null) this.push(table);
  }

  /** Installs a table; throws with its problems. */
  push(table: string): void {
    const reading = readTable(table, 'table.yaml');
    if ('problems' in reading)
      throw new Error(reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`).join('\n'));
    this.table.install(reading.document, 'test');
  }

  /** Makes a call and moves time on until it has ended. */
  async call(asked: string, parts: OfflineCall = {}): Promise<Result> {
    const begun = this.begin(asked, parts);
    let isOver = false;
    void begun.then(() => {
      isOver = true;
    });
    // A call that waits for nothing ends within one turn.
    await new Promise<void>((done) => setImmediate(done));
    while (!isOver) {
      await this.clock.advance(0);
      const next = this.clock.nextAt();
      if (!isOver && next !== null) await this.clock.advanceTo(next);
    }
    return await begun;
  }

  /** Begins a call; time is the caller's affair. */
  async begin(asked: string, parts: OfflineCall = {}): Promise<Result> {
    const headers: Record<string, string | string[]> = { 'content-type': 'application/json', ...parts.headers };
    const call = new Call(
      'sandbox',
      asked,
      headers,
      Buffer.from(JSON.stringify(parts.payload ?? {})),
      'application/json',
      false,
      this.clock,
    );
    readTraceContext(call, headers['traceparent'], headers['tracestate'], this.#ids);
    await outbound(this.engine, call);
    return resultOf(call, true);
  }

  /** Who served; or the code. */
  async served(asked: string, parts: OfflineCall = {}): Promise<string> {
    const result = await this.call(asked, parts);
    return result.entry.code === 0 ? (result.provider ?? 'nobody') : String(result.entry.code);
  }

  /** How often each served (or each code came) over so many calls, one after the other. */
  async counts(calls: number, asked: string, parts: OfflineCall | ((n: number) => OfflineCall) = {}): Promise<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (let n = 0; n < calls; n++) {
      const who = await this.served(asked, typeof parts === 'function' ? parts(n) : parts);
      counts[who] = (counts[who] ?? 0) + 1;
    }
    return counts;
  }

  cell(agentId: string, capability: string): HealthCell {
    for (const cell of this.health.cells()) if (cell.agentId === agentId && cell.capability === capability) return cell;
    throw new Error(`no health cell of ${agentId} for ${capability}`);
  }

  /** From now on a scrape forgets who is gone, as the live page does. */
  metricsForget(): void {
    this.#forgetting = { isKnown: (agentId) => this.health.known(agentId) !== null };
  }

  async metrics(): Promise<string> {
    const table = { version: this.table.current().version, ageMs: 0, rejected: this.table.refusals };
    const { health } = this;
    return await this.observation.metrics.render({ table, breakers: health.cells(), providers: health.providers(), ...this.#forgetting });
  }

  /** For `assertQuiet`. */
  get quiet(): Quiet {
    const { observation, engine } = this;
    return {
      inFlight: () => {
        let sum = observation.inFlight() + engine.limits.inFlight() + this.mock.open;
        for (const provider of this.health.providers()) sum += provider.inFlight;
        return sum;
      },
      started: () => observation.started(),
      ended: () => observation.ended(),
      accessRecords: () => observation.accessRecords(),
      calls: () => observation.started(),
    };
  }
}

/** What `counter{…}` adds up to over the series that carry these labels. */
export function metricIn(text: string, name: string, labels: Readonly<Record<string, string>> = {}): number {
  let sum = 0;
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${name}{`) && !line.startsWith(`${name} `)) continue;
    if (Object.entries(labels).every(([key, value]) => line.includes(`${key}="${value}"`)))
      sum += Number(line.slice(line.lastIndexOf(' ') + 1));
  }
  return sum;
}

/** A mock provider line for the `providers` list. */
export function mockLine(agentId: string, offers: readonly string[], extra = '', script = ''): string {
  return `  - {agent_id: ${agentId}, offers: [${offers.map((offer) => `"${offer}"`).join(', ')}], endpoint: {type: mock${script === '' ? '' : `, ${script}`}}${extra === '' ? '' : `, ${extra}`}}`;
}

/** A contract line for the `contracts` list. */
export function contractLine(name: string, version: string, extra = ''): string {
  return `  - {name: ${name}, version: "${version}", acl: public, execution: idempotent${extra === '' ? '' : `, ${extra}`}}`;
}
