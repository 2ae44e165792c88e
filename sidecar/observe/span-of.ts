/** A record as the span that the control plane and a person read. */
import { printable } from '../../base/log.ts';
import { scrubbed } from '../../base/redact.ts';
import type { Span } from '../../proto/wire/spans.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { SPREAD_WIDTH } from '../call/trace.ts';
import { type Arg, type Reason, wordsOf } from '../call/verdict.ts';
import type { SpanRecord } from './span-record.ts';

const MAX_WORDS_CHARS = 512;

export function spanOf(record: SpanRecord): Span {
  const span: { -readonly [K in keyof Span]: Span[K] } = {
    trace_id: record.traceId,
    span_id: record.spanId,
    parent_span_id: record.parentSpanId,
    stage: record.stage,
    start_ms: rounded(record.startMs),
    elapsed_ms: rounded(record.elapsedMs),
    code: record.code,
    capability: record.capability,
  };
  if (record.status !== 0) span.status = record.status;
  if (record.version !== '') span.version = record.version;
  if (record.provider !== '') span.provider = record.provider;
  if (record.caller !== '') span.caller = record.caller;
  if (record.way !== '') span.way = record.way;
  if (record.started !== null) span.started = record.started;
  if (record.detail !== '') span.detail = record.cleanDetail;
  if (record.isDegraded) span.degraded = true;
  if (record.isReplay) span.replay = true;
  if (record.isSandbox) span.sandbox = true;
  if (record.taskId !== '') span.task_id = record.taskId;
  if (record.lane !== '') span.lane = record.lane;
  if (record.pool !== '') span.pool = record.pool;
  if (record.rule !== '') span.rule = record.rule;
  if (record.tries !== 0) span.tries = record.tries;
  if (record.lineCount !== 0) span.decision = linesOf(record);
  return span;
}

function linesOf({ lines, lineCount, columns, timeAt }: SpanRecord): TraceLine[] {
  const made: TraceLine[] = [];
  for (let i = 0, at = 0; i < lineCount; i++, at += SPREAD_WIDTH) {
    const reason = lines[at] as Reason;
    made.push({
      at_ms: rounded(columns.times[timeAt + i] as number),
      stage: reason.stage,
      reason: reason.name,
      code: reason.code,
      words: lineWords(reason, lines[at + 1] as Arg, lines[at + 2] as Arg, lines[at + 3] as Arg),
    });
  }
  return made;
}

/** What a provider has said stands in the words of a failure: it may repeat what it was asked with. */
export function lineWords(reason: Reason, a: Arg, b: Arg, c: Arg): string {
  const words = wordsOf(reason, a, b, c);
  return printable(reason.passes ? words : scrubbed(words), MAX_WORDS_CHARS);
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
