/** Calls by capability, version, code and way in. Cells are found once per version; a name that a caller made up reads `unknown`. */
import { Code, CODES } from '../../proto/wire/codes.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call, WayIn } from '../call/call.ts';
import type { Capability, Version } from '../table/snapshot.ts';
import { codePlace, codeText } from './code-places.ts';
import { MAX_SERIES, SIDECAR_METRICS as METRICS } from './declared-metrics.ts';
import type { MetricPage } from './metric-page.ts';
import type { Histogram, Series } from './series.ts';

const WAYS: readonly WayIn[] = ['http', 'mesh', 'proxy', 'json_rpc', 'grpc', 'channel', 'local', 'message', 'sandbox', 'fallback'];
const UNKNOWN = 'unknown';
const OTHER = 'other';

/** Cells of one capability and version; -1 = not made yet. */
class CallCells {
  readonly capability: string;
  readonly version: string;
  readonly calls: Int32Array;
  outbound = -1;
  inbound = -1;
  constructor(capability: string, version: string) {
    this.capability = capability;
    this.version = version;
    this.calls = new Int32Array(WAYS.length * CODES.length).fill(-1);
  }
}

export class CallMetrics {
  readonly #calls: Series;
  readonly #seconds: Histogram;
  readonly #inFlight: Series;
  readonly #retries: Series;
  readonly #fallbacks: Series;
  readonly #panics: Series;
  readonly #overrideRefusals: Series;
  readonly #versions = new WeakMap<Version, CallCells>();
  readonly #capabilities = new WeakMap<Capability, CallCells>();
  /** By name and version, so that a pushed table goes on counting in the same cells. */
  readonly #cells = new Map<string, CallCells>();
  readonly #unknown: CallCells;
  readonly #wayCells: ReadonlyMap<string, number>;

  constructor(page: MetricPage) {
    this.#calls = page.series(METRICS.calls);
    this.#seconds = page.histogram(METRICS.callSeconds);
    this.#inFlight = page.series(METRICS.inFlight);
    this.#retries = page.series(METRICS.retries);
    this.#fallbacks = page.series(METRICS.fallbacks);
    this.#panics = page.series(METRICS.panics);
    this.#overrideRefusals = page.series(METRICS.overrideRefusals);
    this.#unknown = this.#cellsOf(UNKNOWN, '');
    this.#wayCells = new Map<string, number>(WAYS.map((way) => [way, this.#inFlight.cell(way)]));
  }

  started(call: Call): void {
    this.#inFlight.add(this.#wayCells.get(call.way) as number, 1);
  }

  ended(call: Call, elapsedMs: number): void {
    this.#inFlight.add(this.#wayCells.get(call.way) as number, -1);
    const asked = call.fallbackFrom ?? call.capability;
    const cells = this.#callCellsOf(call, asked);
    const code = codePlace(call.code);
    const place = WAYS.indexOf(call.way) * CODES.length + code;
    let cell = cells.calls[place] as number;
    if (cell < 0) {
      cell = this.#calls.cell(cells.capability, cells.version, codeText(code), call.way);
      cells.calls[place] = cell;
    }
    this.#calls.add(cell, 1);
    const durations = this.#durationsOf(cells, call.isInbound);
    if ((call.traceFlags & 1) === 1) this.#seconds.addTraced(durations, elapsedMs / 1_000, call.traceId, call.startedAt + elapsedMs);
    else this.#seconds.add(durations, elapsedMs / 1_000);
    if (call.attempts.length > 1) this.#countRetries(call);
    if (call.fallbackFrom !== null) this.#fallbacks.add(this.#fallbacks.cell(call.fallbackFrom.name, fallbackResult(call)), 1);
    if (call.code === Code.blocked_by_operator) this.#countOverride(call);
    if (call.panicked && asked !== null) this.#panics.add(this.#panics.cell(asked.name), 1);
  }

  /** Calls under way over all ways in. */
  inFlight(): number {
    let sum = 0;
    for (const cell of this.#wayCells.values()) sum += this.#inFlight.value(cell);
    return sum;
  }

  /** Where the rule itself refused; not where the hosting sidecar did, which counts it. */
  #countOverride({ refusal }: Call): void {
    if (refusal === null || refusal.reason.stage !== 'overrides' || refusal.reason.name === 'cut' || typeof refusal.a !== 'string') return;
    this.#overrideRefusals.add(this.#overrideRefusals.cell(refusal.a, refusal.reason.name), 1);
  }

  #countRetries(call: Call): void {
    for (let i = 1; i < call.attempts.length; i++) {
      const capability = (call.attempts[i] as Attempt).candidate.version.capability;
      if (capability === (call.attempts[i - 1] as Attempt).candidate.version.capability)
        this.#retries.add(this.#retries.cell(capability.name), 1);
    }
  }

  #durationsOf(cells: CallCells, isInbound: boolean): number {
    if (isInbound) return cells.inbound < 0 ? (cells.inbound = this.#seconds.cell(cells.capability, 'inbound')) : cells.inbound;
    return cells.outbound < 0 ? (cells.outbound = this.#seconds.cell(cells.capability, 'outbound')) : cells.outbound;
  }

  #callCellsOf(call: Call, asked: Capability | null): CallCells {
    if (asked === null) return this.#unknown;
    const version = call.chosen === null ? call.lines[call.lineIndex] : call.chosen.version;
    if (version === undefined || version.capability !== asked || call.staticBody !== null) {
      let cells = this.#capabilities.get(asked);
      if (cells === undefined) {
        cells = this.#cellsOf(asked.name, '');
        this.#capabilities.set(asked, cells);
      }
      return cells;
    }
    let cells = this.#versions.get(version);
    if (cells === undefined) {
      cells = this.#cellsOf(asked.name, version.text);
      this.#versions.set(version, cells);
    }
    return cells;
  }

  #cellsOf(capability: string, version: string): CallCells {
    const key = `${capability} ${version}`;
    const known = this.#cells.get(key);
    if (known !== undefined) return known;
    // The table's history is bounded as well: after this many versions the rest is counted together.
    if (this.#cells.size >= MAX_SERIES && capability !== OTHER) return this.#cellsOf(OTHER, OTHER);
    const made = new CallCells(capability, version);
    this.#cells.set(key, made);
    return made;
  }
}

function fallbackResult(call: Call): string {
  if (call.code !== 0) return 'failed';
  return call.staticBody === null ? 'served' : 'static';
}
