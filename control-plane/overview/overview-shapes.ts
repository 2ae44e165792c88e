/** What `/v1/overview` answers with. */
import type { Sketch } from '../../base/sketch.ts';
import type { CapabilityRow } from './capability-rows.ts';
import type { ProblemKind, Severity } from './problem.ts';

export interface ProblemView {
  readonly severity: Severity;
  readonly kind: ProblemKind;
  readonly words: string;
  readonly capability: string | null;
  readonly agent: string | null;
  readonly sidecar: string | null;
  readonly trace_id: string | null;
  /** Wall clock. */
  readonly since_ms: number | null;
}

export interface CapabilityRowView {
  readonly capability: string;
  readonly calls_per_s: number;
  /** 0–1; of all failures, also those that callers have brought on themselves. */
  readonly error_share: number;
  /** Of the whole call; null = it was not called. */
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly p99_ms: number | null;
  readonly providers: number;
  readonly offline: number;
  readonly breakers_open: number;
  /** Under way at its providers by their last heartbeats; one that offers several capabilities counts at each. */
  readonly in_flight: number;
  /** Calls in each of the last 30 minutes, the running one last. */
  readonly spark: readonly number[];
}

export interface OverviewAnswer {
  readonly at_ms: number;
  readonly replica: string;
  readonly leads: boolean;
  /** What this replica cannot know, in sentences. */
  readonly unknown: readonly string[];
  /** Worst first. */
  readonly problems: readonly ProblemView[];
  readonly problems_total: number;
  readonly totals: {
    readonly calls_per_s: number;
    readonly error_share: number;
    readonly p95_ms: number | null;
    readonly agents: number;
    readonly agents_offline: number;
    readonly capabilities: number;
    readonly sidecars: { readonly current: number; readonly behind: number; readonly stale: number; readonly missing: number };
    /** Null = this replica cannot know. */
    readonly messages: {
      readonly waiting: number | null;
      readonly parked: number | null;
      readonly dead: number | null;
      readonly in_doubt: number | null;
      readonly review: number | null;
    };
  };
  /** Worst first, at most as many as were asked for. */
  readonly capabilities: readonly CapabilityRowView[];
}

export const SPARK_MINUTES = 30;
const QUIET: readonly number[] = Object.freeze(new Array<number>(SPARK_MINUTES).fill(0));

/** @param sparks of all capabilities @param seconds that rates are divided by */
export function rowView(
  { capability, figures, providers, online, open }: CapabilityRow,
  sparks: ReadonlyMap<string, readonly number[]>,
  seconds: number,
): CapabilityRowView {
  const times = figures === null || figures.times.count === 0 ? null : figures.times;
  return {
    capability,
    calls_per_s: figures === null ? 0 : rounded(figures.calls / seconds, 1_000),
    error_share: figures === null ? 0 : rounded(figures.errorShare, 10_000),
    p50_ms: quantile(times, 0.5),
    p95_ms: quantile(times, 0.95),
    p99_ms: quantile(times, 0.99),
    providers: providers.length,
    offline: providers.length - online,
    breakers_open: open.length,
    in_flight: providers.reduce((sum, { inFlight }) => sum + inFlight, 0),
    spark: sparks.get(capability) ?? QUIET,
  };
}

/** A thousand rows are told each second: digits that nobody sees are left out. */
function rounded(value: number, parts: number): number {
  return Math.round(value * parts) / parts;
}

function quantile(times: Sketch | null, share: number): number | null {
  const ms = times?.quantile(share) ?? null;
  return ms === null ? null : rounded(ms, 100);
}
