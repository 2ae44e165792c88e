/** The span of a submission, from its acceptance to the word that it is durable, or to its refusal; and that of its time on the disk. */
import { Code } from '../../proto/wire/codes.ts';
import type { Envelope } from '../../proto/wire/envelope.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Span } from '../../proto/wire/spans.ts';
import { isTraceparent } from '../../proto/wire/trace-context.ts';
import type { Call } from '../call/call.ts';
import { stageContext, stageOf, type StageSpans } from '../call/stage-spans.ts';
import type { Submission, Submitted } from './door.ts';
import { envelopeIn } from './unsendable.ts';

/** What is seen of one submission on its way. */
export class SendSeen {
  readonly startedAt: number;
  call: Call | null = null;
  envelope: Envelope | null = null;
  /** A person decides first. */
  forReview = false;

  constructor(startedAt: number) {
    this.startedAt = startedAt;
  }
}

/** Whether its trace is told is decided here, and travels in the envelope. */
export function pickSend(stages: StageSpans, seen: SendSeen, call: Call, forReview: boolean): void {
  seen.call = call;
  seen.forReview = forReview;
  if ((call.traceFlags & 1) === 1 && !stages.picks(call.traceId)) call.traceFlags &= ~1;
}

export function tellSend(stages: StageSpans, seen: SendSeen, submission: Submission, submitted: Submitted, endedAt: number): void {
  const startMs = stages.wallAt(seen.startedAt);
  const endMs = stages.wallAt(endedAt);
  const { envelope } = seen;
  const context = envelope === null ? null : stageContext(envelope.traceparent);
  if (envelope === null || context === null) {
    if (!submitted.ok) tellRefused(stages, seen, submission, submitted, startMs, endMs);
    return;
  }
  const { code, detail } = outcomeOf(seen, submitted);
  const end = { stage: 'send' as const, spanId: context.spanId, startMs, endMs, code, detail };
  stages.tell(stageOf(envelope, context, envelope.sent_in ?? '', end), context.isPicked);
}

function outcomeOf({ forReview, envelope }: SendSeen, submitted: Submitted): { readonly code: Code; readonly detail: string } {
  if (!submitted.ok) return submitted;
  if (forReview)
    return { code: Code.parked, detail: `a person decides: rule ${envelope?.rule ?? '-'} says so, since nobody is there for it` };
  return { code: Code.ok, detail: submitted.state === 'parked' ? 'it waits: nobody is there to work on it now' : '' };
}

/** Before there was an envelope. A sender without a context of its own never learns of this trace: it is there for operators. */
function tellRefused(
  stages: StageSpans,
  { call }: SendSeen,
  { headers, principal, target, priority }: Submission,
  { code, detail }: Extract<Submitted, { ok: false }>,
  startMs: number,
  endMs: number,
): void {
  const said = headers[Header.traceparent];
  const given = typeof said === 'string' && isTraceparent(said) ? said : null;
  const span: Span = {
    trace_id: call?.traceId ?? given?.slice(3, 35) ?? stages.newId() + stages.newId(),
    span_id: stages.newId(),
    parent_span_id: call?.parentSpanId ?? given?.slice(36, 52) ?? '',
    stage: 'send',
    start_ms: startMs,
    elapsed_ms: Math.max(0, endMs - startMs),
    code,
    capability: call?.capability?.name ?? (target.capability ?? target.agent ?? target.role ?? '').slice(0, MAX_ASKED_CHARS),
    caller: principal.agent,
    way: 'message',
    detail,
    ...(priority === null ? null : { lane: priority }),
  };
  stages.tell(span, call !== null && (call.traceFlags & 1) === 1);
}

const MAX_ASKED_CHARS = 256;

/** A message has left the disk. @param data as it lay there @param why it will never be taken; '' = it is with the stream */
export function tellOutbox(stages: StageSpans, data: Buffer, wallMs: number, why: string): void {
  const envelope = envelopeIn(data);
  const context = envelope === null ? null : stageContext(envelope.traceparent);
  if (envelope === null || context === null || typeof envelope.accepted_at_ms !== 'number') return;
  // One that was written to an inbox, or for people, says less of itself.
  const whole: Envelope = {
    ...envelope,
    capability: envelope.capability ?? '',
    lane: envelope.lane ?? 'normal',
    pool: envelope.pool ?? '',
    rule: envelope.rule ?? null,
  };
  const code = why === '' ? Code.ok : Code.payload_too_large;
  const end = { stage: 'outbox' as const, spanId: stages.newId(), startMs: envelope.accepted_at_ms, endMs: wallMs, code, detail: why };
  stages.tell(stageOf(whole, context, context.spanId, end), context.isPicked);
}
