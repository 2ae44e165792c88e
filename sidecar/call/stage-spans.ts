/**
 * The stages of a message as spans. Sending, delivery and inboxes tell them through this door; who listens (`sidecar/observe`) is put
 * in by the composition root. All stages are children of `send`, whose id travels in the envelope's `traceparent`, so that a restart of
 * any sidecar in between leaves no stage without its parent.
 */
import { hash32 } from '../../base/rendezvous.ts';
import type { Envelope } from '../../proto/wire/envelope.ts';
import type { Span, SpanStage } from '../../proto/wire/spans.ts';
import { isTraceparent } from '../../proto/wire/trace-context.ts';

export interface StageSpans {
  /** 16 hex digits. */
  newId(): string;
  /** Whether the trace of a message that is sent now is told, as far as its id says. */
  picks(traceId: string): boolean;
  /** The wall clock at a time of the clock that does not jump; milliseconds with a fraction. */
  wallAt(clockNow: number): number;
  /** @param isPicked its trace is one of those that are told, as the `traceparent` that came with it says */
  tell(span: Span, isPicked: boolean): void;
  /**
   * A span that another sidecar should have told, and may have been killed before: told to the control plane alone, which knows it
   * by its id, and only along with others of its trace.
   */
  retell(span: Span, isPicked: boolean): void;
}

/** What is read out of a `traceparent` of ours. */
export interface StageContext {
  readonly traceId: string;
  /** Of `send`. */
  readonly spanId: string;
  readonly isPicked: boolean;
}

/** Null when it is none: a message of a sender that had no context. */
export function stageContext(traceparent: unknown): StageContext | null {
  if (typeof traceparent !== 'string' || !isTraceparent(traceparent)) return null;
  return {
    traceId: traceparent.slice(3, 35),
    spanId: traceparent.slice(36, 52),
    isPicked: (traceparent.charCodeAt(54) & 1) === 1,
  };
}

/** What is known of one stage beside its message. */
export interface StageEnd {
  readonly stage: SpanStage;
  readonly spanId: string;
  /** Wall clock. */
  readonly startMs: number;
  readonly endMs: number;
  readonly code: number;
  readonly detail?: string;
  readonly status?: number;
  readonly provider?: string;
  readonly version?: string;
  readonly tries?: number;
  readonly started?: 'not_started' | 'started' | 'done';
  readonly replay?: boolean;
}

/** A stage of a message that stands in an envelope. */
export function stageOf(envelope: Envelope, context: StageContext, parentSpanId: string, end: StageEnd): Span {
  const version = end.version ?? envelope.version ?? '';
  return {
    trace_id: context.traceId,
    span_id: end.spanId,
    parent_span_id: parentSpanId,
    stage: end.stage,
    start_ms: end.startMs,
    elapsed_ms: Math.max(0, end.endMs - end.startMs),
    code: end.code,
    ...(end.status === undefined || end.status === 0 ? null : { status: end.status }),
    capability: envelope.capability,
    ...(version === '' ? null : { version }),
    ...(end.provider === undefined || end.provider === '' ? null : { provider: end.provider }),
    caller: envelope.source,
    way: 'message',
    ...(end.started === undefined ? null : { started: end.started }),
    ...(end.detail === undefined || end.detail === '' ? null : { detail: end.detail }),
    ...(end.replay === true ? { replay: true as const } : null),
    task_id: envelope.task_id,
    lane: envelope.lane,
    pool: envelope.pool,
    ...(envelope.rule === null ? null : { rule: envelope.rule }),
    ...(end.tries === undefined || end.tries === 0 ? null : { tries: end.tries }),
  };
}

/**
 * `send` as whoever has the message later can say it again.
 * @param endMs when it was seen to be durable
 */
export function sentAgain(envelope: Envelope, context: StageContext, endMs: number): Span {
  return stageOf(envelope, context, envelope.sent_in ?? '', {
    stage: 'send',
    spanId: context.spanId,
    startMs: envelope.accepted_at_ms,
    endMs: Math.max(envelope.accepted_at_ms, endMs),
    code: 0,
  });
}

/**
 * The span of one hand-over, out of what every worker knows that gets the message: whoever has it next can say again which one came
 * before, if that one was killed in the midst of it.
 * @param seq of the message in the queue; @param deliveries which one this is, from 1; @param handOver within it, from 1
 */
export function deliverSpanId({ spanId }: StageContext, seq: number, deliveries: number, handOver: number): string {
  const text = `${spanId}:${seq}:${deliveries}:${handOver}`;
  return hex8(hash32(text, 1)) + hex8(hash32(text, 2) || 1);
}

function hex8(word: number): string {
  return (word >>> 0).toString(16).padStart(8, '0');
}
