/**
 * Structured logs, one JSON line a record. Decides what text may look like in a log: header values only from an allow
 * list (a list of secrets to hide always misses one), control characters made visible, long text cut. Where the lines go
 * and who writes which is left to the caller.
 */
import { pino, type DestinationStream, type Logger } from 'pino';
import { redactedHeaders, scrubbed } from './redact.ts';

export type { Logger } from 'pino';

export interface LogOptions {
  /** `silent` writes nothing at all. */
  readonly level: 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent';
  /** Where to; stdout stays free for a program's own answer when this is `stderr`. A stream is for tests. */
  readonly to: 'stdout' | 'stderr' | DestinationStream;
  /** Stands in every line. */
  readonly service: string;
}

export interface Log {
  readonly logger: Logger;
  /** Writes out what is buffered; call it before the process ends. */
  flush(): void;
}

/** Lines are gathered while an earlier write is under way, so that logging does not wait for the disk or the terminal. */
export function createLog(options: LogOptions): Log {
  const settings = { level: options.level, base: { service: options.service }, serializers: { headers: loggableHeaders, err: errorWords } };
  if (typeof options.to !== 'string') return { logger: pino(settings, options.to), flush: () => {} };
  const destination = pino.destination({ dest: options.to === 'stdout' ? 1 : 2, sync: false });
  let open = false;
  destination.on('ready', () => {
    open = true;
  });
  // A reader that went away (`reach-sidecar | head`) must not end the process.
  destination.on('error', () => {});
  return {
    logger: pino(settings, destination),
    flush: () => {
      if (open) destination.flushSync();
    },
  };
}

/** Headers whose values say how a request is to be treated and nothing about whom it concerns. */
export const LOGGABLE_HEADERS: ReadonlySet<string> = new Set([
  'accept',
  'content-length',
  'content-type',
  'host',
  'reach-budget',
  'reach-deadline-ms',
  'reach-deadline-total-ms',
  'reach-execution',
  'reach-mode',
  'reach-path',
  'reach-provider',
  'reach-retry',
  'reach-step',
  'reach-version',
  'reach-wire',
  'retry-after',
  'traceparent',
  'transfer-encoding',
  'user-agent',
]);

/** Values of the listed headers only; of the others the name, so that it is seen that they were there. */
export function loggableHeaders(headers: Readonly<Record<string, string | string[] | undefined>>): Record<string, string> {
  const shown = Object.create(null) as Record<string, string>;
  for (const [name, value] of Object.entries(redactedHeaders(headers, LOGGABLE_HEADERS)))
    shown[printable(name, 64)] = printable(value, 256);
  return shown;
}

/**
 * Type, message and stack of a bug; nothing else of the object, which may hold a request. Of the message, what it quotes is left
 * out: the platform quotes what it could not read, such as the payload that is no JSON. Of the stack, its places.
 */
export function errorWords(error: unknown): { type: string; message: string; stack: string } {
  if (!(error instanceof Error)) return { type: typeof error, message: `a ${typeof error} was thrown`, stack: '' };
  const places = (error.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line));
  return {
    type: printable(error.name, 64),
    message: printable(scrubbed(error.message.slice(0, 2 * MAX_TEXT_CHARS)), MAX_TEXT_CHARS),
    stack: printable(places.join('\n'), 2 * MAX_TEXT_CHARS),
  };
}

export const MAX_TEXT_CHARS = 2_048;

/** Characters that move the cursor, end a line or turn the reading direction: in the C0 and C1 sets, U+2028/9, the bidirectional marks. */
function isUnprintable(c: number): boolean {
  if (c < 0x20 || (c >= 0x7f && c <= 0x9f)) return true;
  if (c < 0x061c) return false;
  return c === 0x061c || (c >= 0x200e && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c === 0xfeff;
}

/** Text of unknown origin as it may stand in a log or on a terminal: cut, and every control character written out as \uXXXX. */
export function printable(text: string, maxChars = MAX_TEXT_CHARS): string {
  const end = Math.min(text.length, maxChars);
  let clean = '';
  let from = 0;
  for (let i = 0; i < end; i++) {
    const c = text.charCodeAt(i);
    if (!isUnprintable(c)) continue;
    clean += `${text.slice(from, i)}\\u${c.toString(16).padStart(4, '0')}`;
    from = i + 1;
  }
  if (from === 0 && end === text.length) return text;
  return clean + text.slice(from, end) + (end < text.length ? '…' : '');
}

/** An id as it may stand in a log or a label: `[A-Za-z0-9_.-]{1,128}`; anything else reads `invalid`. */
export function printableId(id: string): string {
  if (id.length === 0 || id.length > 128) return 'invalid';
  for (let i = 0; i < id.length; i++) {
    const c = id.charCodeAt(i);
    const fits = (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x5a) || (c >= 0x61 && c <= 0x7a) || c === 0x5f || c === 0x2e || c === 0x2d;
    if (!fits) return 'invalid';
  }
  return id;
}
