/**
 * Server-sent events: how chunks become events, and how events of a provider pass through so that an error event can be
 * put between two of them and never into one. Pure: bytes in, bytes out; who writes them, and when, is `stream.ts`'s affair.
 */
import { StringDecoder } from 'node:string_decoder';
import { bodyKind } from '../call/answer-body.ts';

/** How a streamed answer is written. `null` from `cut`: there is no way to say it, the connection must break. */
export interface Framing {
  /** What to write for a chunk; empty when there is nothing to write yet. */
  chunk(data: Buffer): Buffer | string;
  /** What to write at the proper end. `result` is JSON in one line. */
  end(result: string): Buffer | string;
  cut(result: string): Buffer | string | null;
  /** A comment may be written now. */
  readonly isBetweenEvents: boolean;
}

const EMPTY = '';
const LF = 0x0a;
const CR = 0x0d;

/** The provider's chunks as they come. */
export class PlainFraming implements Framing {
  readonly isBetweenEvents = false;
  chunk(data: Buffer): Buffer {
    return data;
  }
  end(): string {
    return EMPTY;
  }
  cut(): null {
    return null;
  }
}

/** Makes events out of chunks: text as `data:` lines, other bytes as base64 with the event type `base64`. */
export class EventMaker implements Framing {
  readonly isBetweenEvents = true;
  /** Keeps the first bytes of a character that is cut in two by a chunk's end. */
  readonly #decoder: StringDecoder | null;
  #isFirst = true;

  constructor(contentType: string | string[] | undefined) {
    this.#decoder = bodyKind(contentType) === 'binary' ? null : new StringDecoder('utf8');
  }

  chunk(data: Buffer): string {
    if (this.#decoder === null) return `event: base64\ndata: ${data.toString('base64')}\n\n`;
    return this.#event(this.#decoder.write(data));
  }

  end(result: string): string {
    return `${this.#rest()}event: end\ndata: ${result}\n\n`;
  }

  cut(result: string): string {
    return `${this.#rest()}event: error\ndata: ${result}\n\n`;
  }

  #rest(): string {
    return this.#decoder === null ? EMPTY : this.#event(this.#decoder.end());
  }

  #event(decoded: string): string {
    let text = decoded;
    if (this.#isFirst && text !== EMPTY) {
      this.#isFirst = false;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    return text === EMPTY ? EMPTY : `data: ${lines(text).join('\ndata: ')}\n\n`;
  }
}

function lines(text: string): string[] {
  return text.includes('\r') ? text.split(/\r\n|\r|\n/) : text.split('\n');
}

/** The longest piece of an unfinished event that is held back; a longer one is passed on as it comes. */
export const MAX_HELD_BYTES = 65_536;

/**
 * A provider that speaks SSE itself: its bytes unchanged, but an event that is not finished yet is held back, so that an
 * error can be told between events and a client never takes half an event for a whole one. A receiver could not have used
 * the half either, so nothing comes later than it would have.
 */
export class EventRelay implements Framing {
  #held: Buffer[] = [];
  #heldBytes = 0;
  /** The line under way has no character yet. */
  #atLineStart = true;
  #afterCr = false;
  /** A piece of an unfinished event has been passed on. */
  #isInside = false;

  get isBetweenEvents(): boolean {
    return !this.#isInside;
  }

  chunk(data: Buffer): Buffer | string {
    const end = this.#lastBoundary(data);
    if (end > 0) {
      const out = this.#heldBytes === 0 ? data.subarray(0, end) : Buffer.concat([...this.#held, data.subarray(0, end)]);
      this.#held = [];
      this.#heldBytes = 0;
      this.#isInside = false;
      this.#hold(data.subarray(end));
      return this.#heldBytes <= MAX_HELD_BYTES ? out : Buffer.concat([out, this.#letGo()]);
    }
    if (this.#isInside) return data;
    this.#hold(data);
    return this.#heldBytes <= MAX_HELD_BYTES ? EMPTY : this.#letGo();
  }

  end(): Buffer {
    return this.#heldBytes === 0 ? Buffer.alloc(0) : this.#letGo();
  }

  /** Inside an event the new line makes the error's type the type of the whole, so that it is not taken for a good one. */
  cut(result: string): string {
    return `${this.#isInside ? '\n' : EMPTY}event: error\ndata: ${result}\n\n`;
  }

  #hold(data: Buffer): void {
    if (data.length === 0) return;
    this.#held.push(data);
    this.#heldBytes += data.length;
  }

  #letGo(): Buffer {
    const out = Buffer.concat(this.#held);
    this.#held = [];
    this.#heldBytes = 0;
    this.#isInside = true;
    return out;
  }

  /** Position after the last empty line of `data`, 0 when there is none. Lines end with CR, LF or both. */
  #lastBoundary(data: Buffer): number {
    let last = 0;
    for (let i = 0; i < data.length; i++) {
      const byte = data[i];
      if (byte === LF && this.#afterCr) {
        // The second half of CR LF: it belongs to the line end that was seen already.
        this.#afterCr = false;
        if (last === i && i > 0) last = i + 1;
        continue;
      }
      this.#afterCr = byte === CR;
      if (byte === LF || byte === CR) {
        if (this.#atLineStart) last = i + 1;
        this.#atLineStart = true;
      } else this.#atLineStart = false;
    }
    return last;
  }
}
