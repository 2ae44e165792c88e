/**
 * W3C trace context, in and out. Decides whether a caller's `traceparent` is taken over or a new trace starts, because a
 * wrong id joins two strangers' timelines. Whatever it gets, the call proceeds: tracing never refuses anything. Sampling
 * is left to whoever exports spans.
 *
 * Taken over: version 00 of exactly 55 characters; a later version whose first 55 characters have the same form and are
 * followed by nothing or by `-`. Everything else (version ff, zero ids, upper case, two headers) starts a new trace and
 * drops `tracestate`, which has no meaning without its `traceparent`.
 */
import type { Random } from '../../base/random.ts';

/** What `readTraceContext` fills in; a Call is one. */
export interface TraceFields {
  /** 32 hex digits. */
  traceId: string;
  /** 16 hex digits of the caller's span; '' when the trace starts here. */
  parentSpanId: string;
  /** The bits that are defined: 1 sampled, 2 random trace id. */
  traceFlags: number;
  traceState: string;
}

type HeaderValue = string | string[] | undefined;

/** Above it `tracestate` is dropped whole. W3C asks for 512 characters at least to be carried on. */
export const MAX_TRACESTATE_CHARS = 2_048;
export const MAX_TRACESTATE_MEMBERS = 32;

const TRACEPARENT_CHARS = 55;
const DASH = 0x2d;
const KNOWN_FLAGS = 3;
const SAMPLED = 1;

/** Takes the caller's context over, or starts a trace of our own. */
export function readTraceContext(into: TraceFields, traceparent: HeaderValue, tracestate: HeaderValue, random: Random): void {
  if (typeof traceparent === 'string' && isTraceparent(traceparent)) {
    into.traceId = traceparent.slice(3, 35);
    into.parentSpanId = traceparent.slice(36, 52);
    into.traceFlags = (hexDigit(traceparent.charCodeAt(53)) * 16 + hexDigit(traceparent.charCodeAt(54))) & KNOWN_FLAGS;
    into.traceState = tracestate === undefined ? '' : cleanTracestate(tracestate);
    return;
  }
  into.traceId = newTraceId(random);
  into.parentSpanId = '';
  into.traceFlags = SAMPLED;
  into.traceState = '';
}

/** `traceparent` of a request that we send: one per attempt, with that attempt's span id. */
export function formatTraceparent(traceId: string, spanId: string, flags: number): string {
  return `00-${traceId}-${spanId}-${HEX[flags & KNOWN_FLAGS] as string}`;
}

/** 32 hex digits, never all zero. */
export function newTraceId(random: Random): string {
  const a = word(random);
  const b = word(random);
  const c = word(random);
  return traceHex(a, b, c, word(random) || 1);
}

/** 16 hex digits, never all zero. */
export function newSpanId(random: Random): string {
  const a = word(random);
  return spanHex(a, word(random) || 1);
}

const HEX: readonly string[] = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));
const DIGITS = Uint8Array.from('0123456789abcdef', (digit) => digit.charCodeAt(0));

function word(random: Random): number {
  return (random.next() * 4_294_967_296) >>> 0;
}

function digit(bits: number, shift: number): number {
  return DIGITS[(bits >>> shift) & 15] as number;
}

/** All digits at once: a text that is put together of parts is copied once more by whoever reads it. */
function spanHex(a: number, b: number): string {
  // biome-ignore format: a word a line
  return String.fromCharCode(
    digit(a, 28), digit(a, 24), digit(a, 20), digit(a, 16), digit(a, 12), digit(a, 8), digit(a, 4), digit(a, 0),
    digit(b, 28), digit(b, 24), digit(b, 20), digit(b, 16), digit(b, 12), digit(b, 8), digit(b, 4), digit(b, 0),
  );
}

function traceHex(a: number, b: number, c: number, d: number): string {
  // biome-ignore format: a word a line
  return String.fromCharCode(
    digit(a, 28), digit(a, 24), digit(a, 20), digit(a, 16), digit(a, 12), digit(a, 8), digit(a, 4), digit(a, 0),
    digit(b, 28), digit(b, 24), digit(b, 20), digit(b, 16), digit(b, 12), digit(b, 8), digit(b, 4), digit(b, 0),
    digit(c, 28), digit(c, 24), digit(c, 20), digit(c, 16), digit(c, 12), digit(c, 8), digit(c, 4), digit(c, 0),
    digit(d, 28), digit(d, 24), digit(d, 20), digit(d, 16), digit(d, 12), digit(d, 8), digit(d, 4), digit(d, 0),
  );
}

export function isTraceparent(text: string): boolean {
  if (text.length < TRACEPARENT_CHARS) return false;
  if (text.charCodeAt(2) !== DASH || text.charCodeAt(35) !== DASH || text.charCodeAt(52) !== DASH) return false;
  if (!isHex(text, 0, 2) || !isHex(text, 3, 35) || !isHex(text, 36, 52) || !isHex(text, 53, 55)) return false;
  if (isZero(text, 3, 35) || isZero(text, 36, 52)) return false;
  if (text.startsWith('ff')) return false;
  if (text.length === TRACEPARENT_CHARS) return true;
  // A later version may carry more; version 00 may not. A comma here is a second header that Node has joined on.
  return !text.startsWith('00') && text.charCodeAt(TRACEPARENT_CHARS) === DASH && !text.includes(',');
}

/** Lower case only, as the standard wants it. */
function isHex(text: string, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (hexDigit(text.charCodeAt(i)) < 0) return false;
  return true;
}

function hexDigit(c: number): number {
  if (c >= 0x30 && c <= 0x39) return c - 0x30;
  if (c >= 0x61 && c <= 0x66) return c - 0x57;
  return -1;
}

function isZero(text: string, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (text.charCodeAt(i) !== 0x30) return false;
  return true;
}

/** The list as it came when it is well formed and within bounds, else ''. */
function cleanTracestate(value: string | string[]): string {
  const text = typeof value === 'string' ? value : value.join(',');
  if (text.length > MAX_TRACESTATE_CHARS) return '';
  let members = 1;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x2c) members++;
    else if ((c < 0x20 && c !== 0x09) || c > 0x7e) return '';
  }
  return members > MAX_TRACESTATE_MEMBERS ? '' : text;
}
