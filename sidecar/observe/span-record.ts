/**
 * One ended hop, attempt or stage as it is held until it is told or forgotten. The records are made once and used again and again:
 * ending a call writes numbers and references into one and builds nothing. Words are made of it when it is told (`span-of.ts`,
 * `otlp-span.ts`). Nothing of a payload or a header comes in here.
 */
import { printable, printableId } from '../../base/log.ts';
import { scrubbed } from '../../base/redact.ts';
import type { Span, SpanStage } from '../../proto/wire/spans.ts';
import type { Attempt, Started } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import { detailOf } from '../call/result.ts';
import type { PackedLine } from '../call/trace.ts';

/** Verdicts of one call that are kept; a usual call has ten. */
export const MAX_LINES = 32;
const MAX_DETAIL_CHARS = 512;
/** What a caller wrote as a name, when it is not the name of anything. */
const MAX_ASKED_CHARS = 256;

export class SpanRecord {
  stage: SpanStage = 'outbound';
  traceId = '';
  spanId = '';
  parentSpanId = '';
  /** Its trace was picked to be told when it began. */
  isPicked = false;
  /** It has been told, or it was given up: nothing is told twice. */
  isTold = false;
  /** Another sidecar should have told it: it goes to the control plane only, and is no reason to tell anything. */
  isAgain = false;
  /** Of the clock that does not jump; of stages of messages the wall clock. */
  startedAt = 0;
  isWall = false;
  elapsedMs = 0;
  code = 0;
  status = 0;
  capability = '';
  version = '';
  provider = '';
  caller = '';
  way = '';
  started: Started | null = null;
  /** As it was said; `cleanDetail` is what may be told. */
  detail = '';
  isDegraded = false;
  isReplay = false;
  taskId = '';
  lane = '';
  pool = '';
  rule = '';
  tries = 0;
  lineCount = 0;
  readonly lines: PackedLine[] = [];
  /** Of an attempt: `host:port` of who was asked, or ''. */
  address = '';

  ofCall(call: Call, elapsedMs: number): void {
    const last = call.attempts.length === 0 ? undefined : call.attempts[call.attempts.length - 1];
    const served = call.staticBody === null ? (call.chosen ?? last?.candidate ?? null) : null;
    this.stage = call.isInbound ? 'inbound' : 'outbound';
    this.traceId = call.traceId;
    this.spanId = call.spanId;
    this.parentSpanId = call.parentSpanId;
    this.isPicked = (call.traceFlags & 1) === 1;
    this.isTold = false;
    this.isAgain = false;
    this.startedAt = call.startedAt;
    this.isWall = false;
    this.elapsedMs = elapsedMs;
    this.code = call.code;
    this.status = call.status;
    this.capability = call.capability === null ? printable(call.asked, MAX_ASKED_CHARS) : call.capability.name;
    this.version = served === null ? '' : served.version.text;
    this.provider = served === null ? (call.replay?.provider ?? '') : served.provider.agentId;
    this.caller = call.principal === null ? '' : call.principal.agent;
    this.way = call.way;
    this.started = null;
    this.detail = call.code === 0 ? '' : detailOf(call);
    this.isDegraded = call.degraded;
    this.isReplay = call.replay !== null;
    this.address = '';
    if (this.taskId !== '' || this.pool !== '') this.#noMessage();
    this.lineCount = call.trace.pack(this.lines, MAX_LINES);
  }

  ofAttempt(call: Call, attempt: Attempt): void {
    const { candidate } = attempt;
    this.stage = 'attempt';
    this.traceId = call.traceId;
    this.spanId = attempt.spanId;
    this.parentSpanId = call.spanId;
    this.isPicked = (call.traceFlags & 1) === 1;
    this.isTold = false;
    this.isAgain = false;
    this.startedAt = call.startedAt + attempt.atMs;
    this.isWall = false;
    this.elapsedMs = attempt.elapsedMs;
    this.code = attempt.code;
    this.status = attempt.status;
    this.capability = candidate.version.capability.name;
    this.version = candidate.version.text;
    this.provider = candidate.provider.agentId;
    this.caller = call.principal === null ? '' : call.principal.agent;
    this.way = candidate.provider.reach === 'mesh' ? 'mesh' : candidate.provider.record.endpoint.type;
    this.started = attempt.started;
    this.detail = attempt.code === 0 ? '' : attempt.detail;
    this.isDegraded = false;
    this.isReplay = false;
    this.address = candidate.provider.record.endpoint.address;
    if (this.taskId !== '' || this.pool !== '') this.#noMessage();
    this.lineCount = 0;
  }

  ofStage(span: Span, isPicked: boolean, isAgain: boolean): void {
    this.stage = span.stage;
    this.traceId = span.trace_id;
    this.spanId = span.span_id;
    this.parentSpanId = span.parent_span_id;
    this.isPicked = isPicked;
    this.isTold = false;
    this.isAgain = isAgain;
    this.startedAt = span.start_ms;
    this.isWall = true;
    this.elapsedMs = span.elapsed_ms;
    this.code = span.code;
    this.status = span.status ?? 0;
    this.capability = span.capability;
    this.version = span.version ?? '';
    this.provider = span.provider === undefined ? '' : printableId(span.provider);
    this.caller = span.caller === undefined ? '' : printableId(span.caller);
    this.way = span.way ?? '';
    this.started = span.started ?? null;
    this.detail = span.detail ?? '';
    this.isDegraded = false;
    this.isReplay = span.replay === true;
    this.address = '';
    this.taskId = span.task_id ?? '';
    this.lane = span.lane ?? '';
    this.pool = span.pool ?? '';
    this.rule = span.rule ?? '';
    this.tries = span.tries ?? 0;
    this.lineCount = 0;
  }

  get cleanDetail(): string {
    return this.detail === '' ? '' : printable(scrubbed(this.detail), MAX_DETAIL_CHARS);
  }

  #noMessage(): void {
    this.taskId = '';
    this.lane = '';
    this.pool = '';
    this.rule = '';
    this.tries = 0;
  }
}
