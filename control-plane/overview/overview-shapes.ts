/** What `/v1/overview` answers with. */
import type { Traffic } from '../traffic/traffic.ts';
import { type CapabilityRow, LATELY } from './capability-rows.ts';
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

const SPARK_MINUTES = 30;

export function rowView({ capability, figures, providers, online, open }: CapabilityRow, traffic: Traffic): CapabilityRowView {
  const times = figures === null || figures.times.count === 0 ? null : figures.times;
  return {
    capability,
    calls_per_s: figures === null ? 0 : figures.calls / traffic.seconds(LATELY),
    error_share: figures?.errorShare ?? 0,
    p50_ms: times?.quantile(0.5) ?? null,
    p95_ms: times?.quantile(0.95) ?? null,
    p99_ms: times?.quantile(0.99) ?? null,
    providers: providers.length,
    offline: providers.length - online,
    breakers_open: open.length,
    in_flight: providers.reduce((sum, { inFlight }) => sum + inFlight, 0),
    spark: traffic.minutes(capability, SPARK_MINUTES).map((minute) => minute.figures?.calls ?? 0),
  };
}
