/**
 * What a sidecar tells, looked at before it is kept: whoever may publish under his own name may still write anything. A batch that
 * is too large, no JSON, of another version or signed by somebody else is refused whole; a span that is no span is left out; words
 * that are too long are cut, and control characters in them written out: they go to terminals, pages and logs. Spans are built anew, so that nothing is kept that has no name here.
 */
import { printable } from '../../base/log.ts';
import { isTraceparent } from '../../proto/wire/trace-context.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { MAX_BATCH_BYTES, MAX_SPANS_PER_BATCH, SPAN_STAGES, type Span, type SpanStage, SPANS_WIRE } from '../../proto/wire/spans.ts';
import { readsWire } from '../../proto/wire/version.ts';
import { parse } from '../push/json.ts';

/** A span, and who told it. */
export type ToldSpan = Span & { readonly sidecar: string };

export interface ToldBatch {
  readonly sidecar: string;
  readonly instance: string;
  readonly spans: readonly ToldSpan[];
  /** Of the batch: what was no span, or one too many. */
  readonly refused: number;
  /** By the sidecar's own count, since its start. */
  readonly dropped: number;
}

const STAGES: ReadonlySet<string> = new Set(SPAN_STAGES);
const STARTED: ReadonlySet<unknown> = new Set(['not_started', 'started', 'done']);
const MAX_NAME_CHARS = 256;
const MAX_WORDS_CHARS = 600;
const MAX_LINES = 64;
/** The year 5138; beyond it dates are none. */
const MAX_WALL_MS = 100_000_000_000_000;
const MAX_ELAPSED_MS = 10_000_000_000;
const HEX32 = /^[0-9a-f]{32}$/;
const HEX16 = /^[0-9a-f]{16}$/;
const NOUGHT16 = '0000000000000000';

export function isTraceId(text: string): boolean {
  return HEX32.test(text) && isTraceparent(`00-${text}-1111111111111111-01`);
}

/** Null = refused whole. */
export function readBatch(data: Buffer, sidecar: string): ToldBatch | null {
  if (data.length > 2 * MAX_BATCH_BYTES) return null;
  const batch = parse(data) as Readonly<Record<string, unknown>> | null;
  if (typeof batch !== 'object' || batch === null || Array.isArray(batch)) return null;
  const { wire, sidecar: said, instance, spans, dropped } = batch;
  if (!readsWire(wire, SPANS_WIRE) || said !== sidecar || !Array.isArray(spans)) return null;
  return {
    sidecar,
    instance: typeof instance === 'string' ? clean(instance, MAX_NAME_CHARS) : '',
    ...readSpans(spans, sidecar),
    dropped: countOf(dropped),
  };
}

/** @param sidecar null = each span says who told it (what another replica hands over) */
export function readSpans(values: readonly unknown[], sidecar: string | null): { readonly spans: ToldSpan[]; readonly refused: number } {
  const spans: ToldSpan[] = [];
  let refused = Math.max(0, values.length - MAX_SPANS_PER_BATCH);
  for (const value of values.slice(0, MAX_SPANS_PER_BATCH)) {
    const span = readSpan(value, sidecar);
    if (span === null) refused++;
    else spans.push(span);
  }
  return { spans, refused };
}

function readSpan(value: unknown, teller: string | null): ToldSpan | null {
  if (typeof value !== 'object' || value === null) return null;
  const given = value as Readonly<Record<string, unknown>>;
  const { trace_id: trace, span_id: span, parent_span_id: parent, stage, start_ms: start, elapsed_ms: elapsed, code, capability } = given;
  const sidecar = teller ?? given['sidecar'];
  if (typeof sidecar !== 'string' || sidecar.length > 64 || printable(sidecar) !== sidecar) return null;
  if (typeof trace !== 'string' || !isTraceId(trace)) return null;
  if (typeof span !== 'string' || !HEX16.test(span) || span === NOUGHT16) return null;
  if (typeof parent !== 'string' || (parent !== '' && !HEX16.test(parent)) || parent === span) return null;
  if (typeof stage !== 'string' || !STAGES.has(stage)) return null;
  if (typeof start !== 'number' || !(start >= 0 && start <= MAX_WALL_MS)) return null;
  if (typeof elapsed !== 'number' || !(elapsed <= MAX_ELAPSED_MS)) return null;
  if (typeof code !== 'number' || !Number.isInteger(code) || code < 0 || code > 99_999) return null;
  if (typeof capability !== 'string') return null;
  const made: Mutable<ToldSpan> = {
    sidecar,
    trace_id: trace,
    span_id: span,
    parent_span_id: parent === NOUGHT16 ? '' : parent,
    stage: stage as SpanStage,
    start_ms: start,
    elapsed_ms: Math.max(0, elapsed),
    code,
    capability: clean(capability, MAX_NAME_CHARS),
  };
  for (const key of ['version', 'provider', 'caller', 'way', 'task_id', 'lane', 'pool', 'rule'] as const) {
    const text = given[key];
    if (typeof text === 'string' && text !== '') made[key] = clean(text, MAX_NAME_CHARS);
  }
  for (const key of ['status', 'tries'] as const) {
    const number = given[key];
    if (typeof number === 'number' && number > 0) made[key] = number;
  }
  if (STARTED.has(given['started'])) made.started = given['started'] as NonNullable<Span['started']>;
  if (typeof given['detail'] === 'string' && given['detail'] !== '') made.detail = clean(given['detail'], MAX_WORDS_CHARS);
  if (given['degraded'] === true) made.degraded = true;
  if (given['replay'] === true) made.replay = true;
  if (given['sandbox'] === true) made.sandbox = true;
  if (Array.isArray(given['decision'])) {
    const lines = given['decision'].slice(0, MAX_LINES).flatMap(lineIn);
    if (lines.length > 0) made.decision = lines;
  }
  return made;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

function lineIn(value: unknown): TraceLine[] {
  if (typeof value !== 'object' || value === null) return [];
  const { at_ms: at, stage, reason, code, words } = value as Readonly<Record<string, unknown>>;
  if (typeof at !== 'number' || typeof stage !== 'string' || typeof reason !== 'string' || typeof words !== 'string') return [];
  return [
    {
      at_ms: at,
      stage: clean(stage, 64),
      reason: clean(reason, 64),
      code: typeof code === 'number' ? code : 0,
      words: clean(words, MAX_WORDS_CHARS),
    },
  ];
}

function countOf(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}

/** As it may stand anywhere, and no longer than that when all of it had to be written out. */
function clean(text: string, max: number): string {
  const shown = printable(text, max);
  return shown.length <= max ? shown : `${shown.slice(0, max - 1)}…`;
}
