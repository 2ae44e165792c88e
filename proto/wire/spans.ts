/**
 * What sidecars tell the control plane of calls and messages, so that one trace id gives the whole timeline with nothing else
 * installed. Batches go as core NATS messages on `spans.<sidecar>`, each second at most and bounded; losing one costs a gap in a
 * picture and nothing else. The same spans go to any collector as OTLP (sidecar/observe).
 *
 * Which spans are told is decided per trace, so that a trace is there whole or not at all: by a hash of its id (the same at every
 * sidecar), and always where something failed or was slow. Who finds that out names the trace on `keep.<sidecar>`; the others send
 * after what they still hold of it. The control plane names one there too, when it has not got it whole: it alone is then told, also of
 * what was told before, since it may have been started anew; it knows spans by their id.
 */
import type { TraceLine } from './trace-line.ts';

export const SPANS_WIRE = 1;

/**
 * `outbound`: a call at its caller's sidecar; `attempt`: one try at one provider; `inbound`: the call at the provider's sidecar.
 * Of messages: `send`: from the submission to the stream's word that it has it; `outbox`: on the disk of the sender's machine;
 * `queue`: in the stream; `deliver`: one try at a worker's sidecar, its `inbound` and `attempt` are below it; `result`: until the
 * inbox has it; `inbox`: until the agent has taken it.
 */
export const SPAN_STAGES = ['outbound', 'attempt', 'inbound', 'send', 'outbox', 'queue', 'deliver', 'result', 'inbox'] as const;
export type SpanStage = (typeof SPAN_STAGES)[number];

export interface Span {
  /** 32 hex digits. */
  readonly trace_id: string;
  /** 16 hex digits. */
  readonly span_id: string;
  /** '' = the trace begins here. */
  readonly parent_span_id: string;
  readonly stage: SpanStage;
  /** Wall clock of the sidecar, milliseconds with a fraction. */
  readonly start_ms: number;
  readonly elapsed_ms: number;
  /** 0 = it went well; as in docs/errors.md. */
  readonly code: number;
  /** The provider's or transport's status; absent = none came. */
  readonly status?: number;
  /** Canonical; or what was asked for where that is nobody's name. */
  readonly capability: string;
  readonly version?: string;
  /** Agent id of who served it. */
  readonly provider?: string;
  /** Agent id of who asked. */
  readonly caller?: string;
  /** The way in (`http`, `grpc` …), of an attempt the transport. */
  readonly way?: string;
  /** Of `attempt`: how far the provider got. */
  readonly started?: 'not_started' | 'started' | 'done';
  /** In words, of what failed. */
  readonly detail?: string;
  readonly degraded?: true;
  readonly replay?: true;
  /** A mock answered, and no agent. */
  readonly sandbox?: true;
  /** Of messages. */
  readonly task_id?: string;
  readonly lane?: string;
  readonly pool?: string;
  readonly rule?: string;
  /** Which try of a delivery, from 1. */
  readonly tries?: number;
  /** Of `outbound` and `inbound`: every verdict of the stages, in order. */
  readonly decision?: readonly TraceLine[];
}

/** On `spans.<sidecar>`. */
export interface SpanBatch {
  readonly wire: number;
  readonly sidecar: string;
  readonly instance: string;
  readonly spans: readonly Span[];
  /** Since its start: spans that were to be told and for which there was no room. */
  readonly dropped: number;
}

/** On `keep.<sidecar>`: traces of which something failed or was slow. */
export interface KeepTraces {
  readonly wire: number;
  readonly traces: readonly string[];
}

export const MAX_SPANS_PER_BATCH = 512;
export const MAX_BATCH_BYTES = 262_144;
