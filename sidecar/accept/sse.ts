/**
 * Server-sent events: how the pieces or the lines of a body become events, and how events of a provider pass through so
 * that an error event can be put between two of them and never into one. What is not whole yet is held back, up to a
 * limit: a line end or an empty line that never comes must not fill the memory. Pure: bytes in, bytes out.
 */
import { StringDecoder } from 'node:string_decoder';
import { HeldBytes } from '../../base/held-bytes.ts';
import { bodyKind } from '../call/answer-body.ts';
import type { Framing } from './framing.ts';

const EMPTY = '';
const LF = 0x0a;
const CR = 0x0d;
const COMMENT = ': keep-alive\n\n';

/** The framing for a caller that wants events, or whose provider sends them. @param maxEventBytes of one event or line. */
export function eventFraming(contentType: string | string[] | undefined, maxEventBytes: number): Framing {
  if (isEventStream(contentType)) return new EventRelay(maxEventBytes);
  return isLines(contentType) ? new LineEvents(maxEventBytes) : new EventMaker(contentType);
}

export function isEventStream(contentType: string | string[] | undefined): boolean {
  return typeIs(contentType, 'text/event-stream');
}

/** One message a line: what message-oriented sources (gRPC, NATS) and NDJSON providers send. */
export function isLines(contentType: string | string[] | undefined): boolean {
  return typeIs(contentType, 'application/x-ndjson') || typeIs(contentType, 'application/jsonl');
}

function typeIs(contentType: string | string[] | undefined, type: string): boolean {
  if (typeof contentType !== 'string') return false;
  const end = contentType.indexOf(';');
  return (end < 0 ? contentType : contentType.slice(0, end)).trim().toLowerCase() === type;
}

/** What the makers of events have in common. */
abstract class Events implements Framing {
  problem = EMPTY;
  readonly tellsResult: boolean = true;

  abstract chunk(data: Buffer): Buffer | string;
  /** What is held and is whole now that the body is over. */
  protected abstract rest(): string;

  head(): null {
    return null;
  }

  end(result: string): Buffer | string {
    return `${this.rest()}event: end\ndata: ${result}\n\n`;
  }

  cut(result: string): string {
    return `${this.rest()}event: error\ndata: ${result}\n\n`;
  }

  goAway(result: string): string {
    return `${this.rest()}event: going_away\ndata: ${result}\n\n`;
  }

  /** Of events that are made here. */
  position(): string {
    return String(this.passed);
  }

  /** Events that the caller was given. */
  protected passed = 0;

  keepAlive(): string {
    return COMMENT;
  }
}

/** Makes events out of chunks: text as `data:` lines, other bytes as base64 with the event type `base64`. */
export class EventMaker extends Events {
  /** Keeps the first bytes of a character that is cut in two by a chunk's end. null = these bytes are no text. */
  readonly #decoder: Decoder | null;
  #isFirst = true;
  /** The last line ended with CR: an LF that comes next is the second half of that line end. */
  #afterCr = false;

  constructor(contentType: string | string[] | undefined) {
    super();
    this.#decoder = bodyKind(contentType) === 'binary' ? null : decoderFor(contentType);
  }

  chunk(data: Buffer): string {
    if (this.#decoder === null) this.passed++;
    if (this.#decoder === null) return `event: base64\ndata: ${data.toString('base64')}\n\n`;
    return this.#event(this.#decoder.write(data));
  }

  protected rest(): string {
    return this.#decoder === null ? EMPTY : this.#event(this.#decoder.end());
  }

  #event(decoded: string): string {
    let text = decoded;
    if (this.#isFirst && text !== EMPTY) {
      this.#isFirst = false;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    if (text === EMPTY) return EMPTY;
    const isSecondHalf = this.#afterCr && text.charCodeAt(0) === LF;
    this.#afterCr = text.charCodeAt(text.length - 1) === CR;
    if (isSecondHalf) text = text.slice(1);
    if (text === EMPTY) return EMPTY;
    this.passed++;
    return `data: ${lines(text).join('\ndata: ')}\n\n`;
  }
}

/** What reads text piece by piece. */
interface Decoder {
  write(data: Buffer): string;
  end(): string;
}

/** Events are UTF-8, whatever the body is. null = an encoding that cannot be read here. */
function decoderFor(contentType: string | string[] | undefined): Decoder | null {
  const charset = typeof contentType === 'string' ? /;\s*charset="?([^\s";]+)/i.exec(contentType)?.[1] : undefined;
  if (charset === undefined || /^utf-?8$|^us-ascii$/i.test(charset)) return new StringDecoder('utf8');
  try {
    const decoder = new TextDecoder(charset);
    return { write: (data) => decoder.decode(data, { stream: true }), end: () => decoder.decode() };
  } catch {
    return null;
  }
}

function lines(text: string): string[] {
  return text.includes('\r') ? text.split(/\r\n|\r|\n/) : text.split('\n');
}

/** One event for each line, however the lines came; empty lines are none. A line that was cut in two is told to nobody. */
export class LineEvents extends Events {
  readonly #maxBytes: number;
  readonly #held = new HeldBytes();
  #isFirst = true;

  constructor(maxBytes: number) {
    super();
    this.#maxBytes = maxBytes;
  }

  chunk(data: Buffer): string {
    let out = EMPTY;
    let from = 0;
    for (let at = data.indexOf(LF); at >= 0; at = data.indexOf(LF, from)) {
      const piece = data.subarray(from, at);
      if (this.#held.length + piece.length > this.#maxBytes) return this.#tooLong(out);
      out += this.#line(piece);
      from = at + 1;
    }
    if (this.#held.length + data.length - from > this.#maxBytes) return this.#tooLong(out);
    this.#held.add(data.subarray(from));
    return out;
  }

  /** The last line needs no line end when the body came to its proper end. */
  protected rest(): string {
    return EMPTY;
  }

  override end(result: string): string {
    return `${this.#line(NOTHING)}${super.end(result) as string}`;
  }

  #line(piece: Buffer): string {
    let line = piece;
    if (this.#held.length > 0) {
      this.#held.add(piece);
      line = this.#held.take();
    }
    let text = line.toString('utf8').trim();
    if (this.#isFirst && text !== EMPTY) {
      this.#isFirst = false;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    if (text === EMPTY) return EMPTY;
    this.passed++;
    return `data: ${lines(text).join('\ndata: ')}\n\n`;
  }

  #tooLong(out: string): string {
    this.#held.clear();
    this.problem = `a line of the stream is above the limit of ${this.#maxBytes} bytes`;
    return out;
  }
}

/**
 * A provider that speaks SSE itself: its bytes unchanged (but for a byte order mark at the start, which would stand inside
 * a line if anything of ours came first), and an event that is not finished yet is held back. A receiver could not have
 * used the half either, so nothing comes later than it would have. Lines end with CR, LF or both.
 */
export class EventRelay extends Events {
  override readonly tellsResult = false;
  readonly #maxBytes: number;
  readonly #held = new HeldBytes();
  /** Bytes of a byte order mark seen at the start of the body; -1 = the start is over. */
  #markBytes = 0;
  /** The line under way has no character yet. */
  #atLineStart = true;
  #afterCr = false;
  /** What was passed on last. */
  #last: Buffer = NOTHING;

  constructor(maxBytes: number) {
    super();
    this.#maxBytes = maxBytes;
  }

  chunk(data: Buffer): Buffer | string {
    const bytes = this.#markBytes < 0 ? data : this.#withoutMark(data);
    if (bytes.length === 0 || this.problem !== EMPTY) return EMPTY;
    const end = this.#lastBoundary(bytes);
    if (this.problem !== EMPTY) {
      this.#held.clear();
      if (end === 0) return EMPTY;
    }
    if (end === 0) {
      this.#hold(bytes);
      return EMPTY;
    }
    let out = bytes;
    if (this.#held.length > 0) {
      this.#held.add(bytes.subarray(0, end));
      out = this.#held.take();
    } else if (end < bytes.length) out = bytes.subarray(0, end);
    if (this.problem === EMPTY && end < bytes.length) this.#hold(bytes.subarray(end));
    this.#last = out;
    return out;
  }

  /** The id in the last events that were passed on; whoever gives ids gives one to each. */
  override position(): string {
    const text = this.#last.toString('utf8');
    const ids = text.match(LAST_ID);
    return (
      ids
        ?.at(-1)
        ?.replace(/^id: ?/, '')
        .trim() ?? EMPTY
    );
  }

  /** An event without its empty line is left to the receiver, who knows what to do with it. */
  override end(): Buffer {
    return this.#held.take();
  }

  protected rest(): string {
    this.#held.clear();
    return EMPTY;
  }

  #hold(bytes: Buffer): void {
    if (this.#held.length + bytes.length > this.#maxBytes) this.#tooLong();
    else this.#held.add(bytes);
  }

  #tooLong(): void {
    this.#held.clear();
    this.problem = `an event of the stream is above the limit of ${this.#maxBytes} bytes`;
  }

  /** Position after the last empty line of `data`, 0 when there is none; or after the one before an event that is too long. */
  #lastBoundary(data: Buffer): number {
    let last = 0;
    let atLineStart = this.#atLineStart;
    let afterCr = this.#afterCr;
    for (let i = 0; i < data.length; i++) {
      const byte = data[i];
      if (byte === LF && afterCr) {
        // The second half of CR LF: it belongs to the line end that was seen already.
        afterCr = false;
        if (last === i && i > 0) last = i + 1;
        continue;
      }
      afterCr = byte === CR;
      if (byte !== LF && byte !== CR) {
        atLineStart = false;
        continue;
      }
      if (atLineStart) {
        if ((last === 0 ? this.#held.length : 0) + i + 1 - last > this.#maxBytes) {
          this.problem = `an event of the stream is above the limit of ${this.#maxBytes} bytes`;
          return last;
        }
        last = i + 1;
      }
      atLineStart = true;
    }
    this.#atLineStart = atLineStart;
    this.#afterCr = afterCr;
    return last;
  }

  /** Takes the byte order mark off the start of the body, in however many pieces it comes. */
  #withoutMark(data: Buffer): Buffer {
    const seen = this.#markBytes;
    let i = 0;
    while (i < data.length && seen + i < MARK.length && data[i] === MARK[seen + i]) i++;
    if (seen + i === MARK.length) {
      this.#markBytes = -1;
      return data.subarray(i);
    }
    if (i === data.length) {
      this.#markBytes = seen + i;
      return NOTHING;
    }
    this.#markBytes = -1;
    return seen === 0 ? data : Buffer.concat([MARK.subarray(0, seen), data]);
  }
}

const LAST_ID = /^id:.*$/gm;
const MARK = Buffer.from([0xef, 0xbb, 0xbf]);
const NOTHING = Buffer.alloc(0);
