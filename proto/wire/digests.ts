/**
 * What every sidecar tells of its traffic, each ten seconds: who called what and who served it, how often, how it ended and how
 * long it took, as sketches that can be added up over a fleet. Alerts, topology, console and `reachctl top` are made of these, and
 * of nothing that is sampled. Core NATS on `digest.<sidecar>`; every replica of the control plane hears them.
 */
export const DIGEST_WIRE = 1;
export const DIGEST_EVERY_MS = 10_000;
/** Beyond it, the rest of a period is told under `other` names: by capability, whose figures so stay whole. */
export const MAX_EDGES = 2_000;
/** Rows of one list in one message. What does not fit into a message goes into the next of the same period. */
export const MAX_DIGEST_ROWS = 250;
/** Of rows in one message; what is over it is less than one row. Far below what a NATS server takes (1 MiB where nobody has set it). */
export const MAX_DIGEST_BYTES = 400_000;
/** Agents, capabilities and versions, as they may stand in a digest. */
export const DIGEST_NAME: RegExp = /^[A-Za-z0-9_.+-]{0,256}$/;
export const OTHER = 'other';
/** Nobody's name was asked for; nobody known asked. */
export const UNKNOWN = 'unknown';
/** Newest failures of an edge in a digest; the slowest call comes on top. */
export const MAX_EXAMPLE_FAILURES = 2;

/** Calls of one caller to one provider, counted at the caller's sidecar, as its agent saw them. */
export interface EdgeDigest {
  /** Agent id; `unknown` when nobody known asked; `other` when there was no room. */
  readonly caller: string;
  /** Canonical capability that was asked for; `unknown` when the name is nobody's. */
  readonly capability: string;
  /** '' = nobody was asked. */
  readonly version: string;
  /** Agent id of who was asked last, also where a static text stands in for its answer; '' = nobody was asked: what so ends is fast, and is left out where durations are judged. */
  readonly provider: string;
  readonly calls: number;
  /** By code, failures only: code and how often, in turn. */
  readonly codes: readonly number[];
  /** Attempts after the first. */
  readonly retries: number;
  readonly degraded: number;
  /** Durations of the whole call: bucket (base/sketch.ts) and how many, in turn, rising. */
  readonly times: readonly number[];
  /** For two of the newest failures, and the slowest call: where to look. */
  readonly examples: readonly { readonly trace_id: string; readonly code: number; readonly elapsed_ms: number }[];
}

/** Attempts of all callers here at one provider. */
export interface ProviderDigest {
  readonly capability: string;
  readonly version: string;
  readonly provider: string;
  readonly attempts: number;
  readonly failures: number;
  /** As in EdgeDigest. */
  readonly times: readonly number[];
}

/** A breaker that moved in this period. */
export interface BreakerDigest {
  readonly provider: string;
  readonly capability: string;
  /** Only closed → open is an opening; absent = a sidecar of before, which does not say it. */
  readonly from?: 'closed' | 'open' | 'half_open' | 'ramping';
  readonly to: 'closed' | 'open' | 'half_open' | 'ramping';
  readonly why: string;
  /** Wall clock. */
  readonly at_ms: number;
}

export interface Digest {
  readonly wire: number;
  readonly sidecar: string;
  readonly instance: string;
  /** Counts up from 1 for one instance: what is heard twice counts once, and a gap is seen. */
  readonly seq: number;
  /** Wall clock of the sidecar. */
  readonly from_ms: number;
  readonly to_ms: number;
  readonly edges: readonly EdgeDigest[];
  readonly providers: readonly ProviderDigest[];
  readonly breakers: readonly BreakerDigest[];
}
