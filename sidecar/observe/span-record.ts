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
import { isMock, isSandbox } from '../call/sandbox.ts';
import type { SpreadLine } from '../call/trace.ts';
import { traceKey, wordAt, wordHex } from './hex-words.ts';

/** Verdicts of one call that are kept; a usual call has ten. */
export const MAX_LINES = 24;
const MAX_DETAIL_CHARS = 512;
/** What a caller wrote as a name, when it is not the name of anything. */
const MAX_ASKED_CHARS = 256;

/** Numbers of all records of a ring, side by side. */
export class SpanColumns {
  /** Of each record: trace 4 words, span 2, parent 2. */
  readonly ids: Uint32Array;
  /** Of each of its lines, milliseconds after the call began. */
  readonly times: Float64Array;
  /** The trace and the hop that were read last, as text and as words: those of a call are those of its attempts. */
  traceId = '';
  hopId = '';
  readonly last = new Uint32Array(TRACE_WORDS + SPAN_WORDS);

  constructor(records: number) {
    this.ids = new Uint32Array(records * ID_WORDS);
    this.times = new Float64Array(records * MAX_LINES);
  }
}

const TRACE_WORDS = 4;
const SPAN_WORDS = 2;
const ID_WORDS = TRACE_WORDS + 2 * SPAN_WORDS;

/** Where ids stand in a record's words. */
const SPAN_AT = TRACE_WORDS;
const PARENT_AT = TRACE_WORDS + SPAN_WORDS;

export class SpanRecord {
  readonly columns: SpanColumns;
  /** Where its words and its times begin. */
  readonly idAt: number;
  readonly timeAt: number;
  hasParent = false;
  stage: SpanStage = 'outbound';
  /** Its trace was picked to be told when it began. */
  isPicked = false;
  /** It has been told, or it was given up: only the control plane is told again. */
  isTold = false;
  /** The control plane was to be told, and could not be. */
  isOwed = false;
  /** Another sidecar should have told it: it goes to the control plane only, and is no reason to tell anything. */
  isAgain = false;
  /** Something before it failed, though it may have gone well: an attempt of the same call, an earlier hand-over of the same message. */
  isRetry = false;
  /** On the wall, as that stood when its call began: of a call and its attempts it is the same one. */
  startMs = 0;
  /** Of the clock that does not jump. */
  endedAt = 0;
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
  isSandbox = false;
  /** A stage of a message: what follows is set. */
  isMessage = false;
  taskId = '';
  lane = '';
  pool = '';
  rule = '';
  tries = 0;
  lineCount = 0;
  readonly lines: SpreadLine[] = [];
  /** Of an attempt: `host:port` of who was asked, or ''. */
  address = '';

  constructor(columns: SpanColumns, index: number) {
    this.columns = columns;
    this.idAt = index * ID_WORDS;
    this.timeAt = index * MAX_LINES;
  }

  get traceId(): string {
    const { ids } = this.columns;
    const at = this.idAt;
    return wordHex(ids[at] as number) + wordHex(ids[at + 1] as number) + wordHex(ids[at + 2] as number) + wordHex(ids[at + 3] as number);
  }

  get traceKey(): number {
    const { ids } = this.columns;
    return traceKey(ids[this.idAt + 3] as number, ids[this.idAt + 2] as number);
  }

  get spanId(): string {
    const { ids } = this.columns;
    return wordHex(ids[this.idAt + 4] as number) + wordHex(ids[this.idAt + 5] as number);
  }

  /** '' = it has none. */
  get parentSpanId(): string {
    const { ids } = this.columns;
    return this.hasParent ? wordHex(ids[this.idAt + 6] as number) + wordHex(ids[this.idAt + 7] as number) : '';
  }

  ofCall(call: Call, elapsedMs: number): void {
    const last = call.attempts.length === 0 ? undefined : call.attempts[call.attempts.length - 1];
    const served = call.staticBody === null ? (call.chosen ?? last?.candidate ?? null) : null;
    this.stage = call.isInbound ? 'inbound' : 'outbound';
    this.#hop(call, SPAN_AT);
    this.#span(PARENT_AT, call.parentSpanId);
    this.hasParent = call.parentSpanId !== '';
    this.isPicked = (call.traceFlags & 1) === 1;
    this.isTold = false;
    this.isOwed = false;
    this.isAgain = false;
    this.isRetry = call.attempts.length > 1;
    this.startMs = call.startedAt + call.wallOffset;
    this.endedAt = call.startedAt + elapsedMs;
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
    this.isSandbox = isSandbox(call);
    this.address = '';
    if (this.isMessage) this.#noMessage();
    this.lineCount = call.trace.spread(this.lines, this.columns.times, this.timeAt, MAX_LINES);
  }

  ofAttempt(call: Call, attempt: Attempt): void {
    const { candidate } = attempt;
    this.stage = 'attempt';
    this.#hop(call, PARENT_AT);
    this.#span(SPAN_AT, attempt.spanId);
    this.hasParent = call.spanId !== '';
    this.isPicked = (call.traceFlags & 1) === 1;
    this.isTold = false;
    this.isOwed = false;
    this.isAgain = false;
    this.isRetry = call.attempts.length > 1;
    const startedAt = call.startedAt + attempt.atMs;
    this.startMs = startedAt + call.wallOffset;
    this.endedAt = startedAt + attempt.elapsedMs;
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
    this.isSandbox = isMock(candidate);
    this.address = candidate.provider.record.endpoint.address;
    if (this.isMessage) this.#noMessage();
    this.lineCount = 0;
  }

  /** @param now `clock.now()` */
  ofStage(span: Span, isPicked: boolean, isAgain: boolean, now: number): void {
    this.stage = span.stage;
    this.#trace(span.trace_id);
    this.#span(SPAN_AT, span.span_id);
    this.#span(PARENT_AT, span.parent_span_id);
    this.hasParent = span.parent_span_id !== '';
    this.isPicked = isPicked;
    this.isTold = false;
    this.isOwed = false;
    this.isAgain = isAgain;
    this.isRetry = span.tries !== undefined && span.tries > 1;
    this.startMs = span.start_ms;
    this.endedAt = now;
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
    this.isSandbox = false;
    this.address = '';
    this.isMessage = true;
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

  /** The trace of a call, and where its hop's id belongs here. */
  #hop({ traceId, spanId }: Call, at: number): void {
    const { columns, idAt } = this;
    const { ids, last } = columns;
    if (columns.traceId === traceId && columns.hopId === spanId) {
      for (let i = 0; i < TRACE_WORDS; i++) ids[idAt + i] = last[i] as number;
      for (let i = 0; i < SPAN_WORDS; i++) ids[idAt + at + i] = last[TRACE_WORDS + i] as number;
      return;
    }
    this.#trace(traceId);
    this.#span(at, spanId);
    columns.traceId = traceId;
    columns.hopId = spanId;
    for (let i = 0; i < TRACE_WORDS; i++) last[i] = ids[idAt + i] as number;
    for (let i = 0; i < SPAN_WORDS; i++) last[TRACE_WORDS + i] = ids[idAt + at + i] as number;
  }

  #trace(id: string): void {
    const { ids } = this.columns;
    for (let i = 0; i < TRACE_WORDS; i++) ids[this.idAt + i] = wordAt(id, 8 * i);
  }

  #span(at: number, id: string): void {
    const { ids } = this.columns;
    for (let i = 0; i < SPAN_WORDS; i++) ids[this.idAt + at + i] = id === '' ? 0 : wordAt(id, 8 * i);
  }

  #noMessage(): void {
    this.isMessage = false;
    this.taskId = '';
    this.lane = '';
    this.pool = '';
    this.rule = '';
    this.tries = 0;
  }
}
