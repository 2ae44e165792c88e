/**
 * One caller's view of a sidecar, whatever way in it takes: it asks in that protocol's own words, and what it is told is
 * read back into the same fields, so that the conformance suite can compare them.
 */
import type { WayIn } from '../../../sidecar/call/call.ts';
import type { Rig } from '../rig.ts';
import type { CaseId } from './cases.ts';

/** What is needed of tap's `t`. */
export interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

export interface Ask {
  /** As a caller writes it: `peer.echo.do`, `peer.echo.do@^2.0`. */
  readonly capability: string;
  /** JSON text. Default `{}`. */
  readonly payload?: string;
  /** null = none. Default: that of the caller of the rig. */
  readonly token?: string | null;
  /** In the way that the protocol has for it. */
  readonly deadlineMs?: number;
  readonly key?: string;
  readonly traceparent?: string;
  /** Leaves, as callers of this protocol do: a call when this settles, a stream (`leaveAfterFirst`) when something of it has come. */
  readonly leave?: Promise<void>;
  readonly leaveAfterFirst?: boolean;
}

/** A Result as the caller was told it. */
export interface Told {
  readonly code: number;
  /** '' on success. */
  readonly name: string;
  /** The agent's own status where it answered (0 and 6001), else 0. */
  readonly status: number;
  readonly data: unknown;
  readonly provider: string | null;
  readonly version: string | null;
  readonly degraded: boolean;
  readonly definitelySuccess: boolean;
  readonly retryable: boolean;
  readonly ambiguous: boolean;
  readonly traceId: string;
}

export interface ToldStream {
  /** `refused`: it never began, and `told` says why. */
  readonly how: 'whole' | 'cut' | 'refused' | 'left';
  readonly text: string;
  /** The code at the end; null where the protocol says only that it was cut. */
  readonly code: number | null;
}

/** What is said of a message beside its payload, by the names of the headers of `POST /v1/cast`. */
export interface Cast {
  readonly capability: string;
  readonly payload: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** What its sender was told: the fields of an acceptance, or a code. */
export interface ToldCast {
  readonly code: number;
  readonly durable: string;
  readonly state: string;
  readonly capability: string;
  readonly lane: string;
  readonly rule: string | null;
  readonly powerId: string;
  readonly traceId: string;
}

export interface Explained {
  readonly provider: string | null;
  /** 0 = it would be served. */
  readonly code: number;
}

export interface WayClient {
  /** Null when it left. */
  call(ask: Ask): Promise<Told | null>;
  stream(ask: Ask): Promise<ToldStream>;
  explain(ask: Ask): Promise<Explained>;
  cast(cast: Cast): Promise<ToldCast>;
  close(): Promise<void>;
}

/** A sidecar that can be asked in this way. */
export interface StartedWay {
  /** Where the calls are made: its counters and its log are looked at. */
  readonly rig: Rig;
  /** Others that have to be at rest at the end. */
  readonly others: readonly Rig[];
  readonly client: WayClient;
}

export interface WayFixture {
  /** What the protocol has no way to say or do, with the reason. */
  readonly cannot: Readonly<Partial<Record<CaseId, string>>>;
  /** What its calls are logged as, where that is not its name. */
  readonly way?: WayIn;
  start(t: Teardown, table: WayTable): Promise<StartedWay>;
}

/** The table of the suite; `via` lines are put into every provider record, and `rest` behind the table. */
export type WayTable = (via?: string, rest?: string) => string;

/** The JSON of a Result or of a problem document. */
// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came
export function toldOf(json: any): Told {
  const code = Number(json.code);
  return {
    code,
    name: json.error?.name ?? '',
    status: code === 0 || code === 6001 ? Number(json.status) : 0,
    data: json.data ?? null,
    provider: json.provider ?? null,
    version: json.version ?? null,
    degraded: json.degraded ?? false,
    definitelySuccess: json.definitely_success ?? false,
    retryable: json.error?.retryable ?? false,
    ambiguous: json.error?.ambiguous ?? false,
    traceId: json.trace_id ?? '',
  };
}

/** The JSON of an acceptance, or of a problem document. */
// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came
export function toldCastOf(json: any): ToldCast {
  if (json.code !== undefined) return { ...REFUSED_CAST, code: Number(json.code) };
  return {
    code: 0,
    durable: json.durable,
    state: json.state,
    capability: json.capability,
    lane: json.lane,
    rule: json.rule === '' ? null : json.rule,
    powerId: json.power_id,
    traceId: json.trace_id,
  };
}

export const REFUSED_CAST: ToldCast = { code: 0, durable: '', state: '', capability: '', lane: '', rule: null, powerId: '', traceId: '' };
