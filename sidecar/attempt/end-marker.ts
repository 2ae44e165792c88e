/**
 * Watches a body of events or lines for the words that its contract says it ends with. A middlebox that closes an idle connection
 * does so with a clean FIN: for a body without length and chunks that is the same as the proper end, and only the marker
 * tells an answer from a piece of one. Looks and holds little: a line that is longer than a marker may be is none.
 */
import { MAX_MARKER_BYTES } from '../../proto/language/contract.ts';
import { lineForm } from '../call/answer-body.ts';
import type { Reply, ReplyHeaders } from '../call/reply.ts';

/** What providers that follow the best-known streaming API send last; looked for when nothing is declared and nothing else tells the end. */
export const USUAL_MARKER = '[DONE]';

/** A line of NDJSON is looked into up to this size, a line of an event up to what a marker needs. */
const MAX_JSON_BYTES = 8_192;
const MAX_LINE_BYTES = 'event: '.length + MAX_MARKER_BYTES + 3;
const LF = 0x0a;
const CR = 0x0d;

export class EndMarker {
  readonly text: string;
  readonly #isEvents: boolean;
  readonly #line: Buffer;
  #length = 0;
  /** The line under way is longer than what can be looked at. */
  #isLong = false;
  #afterCr = false;
  // Of the event under way.
  #name = '';
  #data: string | null = null;
  #dataLines = 0;
  /** NDJSON: the last line that was not empty; null when it was too long to be looked at. */
  #last: string | null = null;
  #seen = false;

  /** @param isEvents server-sent events; else one message a line. */
  constructor(text: string, isEvents: boolean) {
    this.text = text;
    this.#isEvents = isEvents;
    this.#line = Buffer.allocUnsafe(isEvents ? MAX_LINE_BYTES : MAX_JSON_BYTES);
  }

  watch(data: Buffer): void {
    for (let i = 0; i < data.length; ) {
      const byte = data[i];
      if (byte === LF || byte === CR) {
        if (!(byte === LF && this.#afterCr)) this.#lineEnd();
        this.#afterCr = byte === CR;
        i++;
        continue;
      }
      this.#afterCr = false;
      const end = lineEndIn(data, i);
      this.#take(data, i, end);
      i = end;
    }
  }

  /** The marker has come, as far as the body went. A last line without its line end counts: it says what it says. */
  isDone(): boolean {
    if (this.#length > 0) this.#lineEnd();
    if (!this.#isEvents) return this.#last !== null && lineSays(this.#last, this.text);
    this.#eventEnd();
    return this.#seen;
  }

  #take(data: Buffer, from: number, to: number): void {
    const room = this.#line.length - this.#length;
    if (to - from > room) this.#isLong = true;
    this.#length += data.copy(this.#line, this.#length, from, Math.min(to, from + room));
  }

  #lineEnd(): void {
    const text = this.#isLong ? null : this.#line.toString('utf8', 0, this.#length);
    this.#length = 0;
    this.#isLong = false;
    if (!this.#isEvents) {
      if (text === null) this.#last = null;
      else if (text.trim() !== '') this.#last = text.trim();
    } else if (text === '') this.#eventEnd();
    else if (text === null) this.#dataLines += 2;
    else this.#field(text.charCodeAt(0) === 0xfeff ? text.slice(1) : text);
  }

  #field(line: string): void {
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const from = line[colon + 1] === ' ' ? colon + 2 : colon + 1;
    const value = colon < 0 ? '' : line.slice(from);
    if (name === 'event') this.#name = value;
    else if (name === 'data') {
      this.#data = value;
      this.#dataLines++;
    }
  }

  #eventEnd(): void {
    if (this.#name === this.text || (this.#dataLines === 1 && this.#data?.trim() === this.text)) this.#seen = true;
    this.#name = '';
    this.#data = null;
    this.#dataLines = 0;
  }
}

function lineEndIn(data: Buffer, from: number): number {
  let i = from + 1;
  while (i < data.length && data[i] !== LF && data[i] !== CR) i++;
  return i;
}

/** The line is the text, or JSON whose `type` or `event` is it, or that has `true` under this name. */
function lineSays(line: string, text: string): boolean {
  if (line === text) return true;
  if (!line.startsWith('{')) return false;
  try {
    const { type, event, [text]: member } = JSON.parse(line) as Record<string, unknown>;
    return type === text || event === text || member === true;
  } catch {
    return false;
  }
}

/** The marker to watch for, and null where none is needed or could be found. */
export function markerFor(headers: ReplyHeaders, declared: string | null, endsByClose: boolean): EndMarker | null {
  if (declared === null && !endsByClose) return null;
  const form = lineForm(headers['content-type']);
  return form === null ? null : new EndMarker(declared ?? USUAL_MARKER, form === 'events');
}

/** Why a body that came whole is not known to be all of the answer; '' = nothing speaks against it. */
export function missingIn({ headers, body, end }: Reply, declared: string | null): string {
  const isByClose = end === 'by_close';
  const marker = markerFor(headers, declared, isByClose);
  if (marker === null) return '';
  marker.watch(body);
  return marker.isDone() ? '' : unmarked('answer', marker, isByClose);
}

/** The words for a body without its last ones. */
export function unmarked(what: 'stream' | 'answer', marker: EndMarker, endsByClose: boolean): string {
  const words = JSON.stringify(marker.text);
  return endsByClose
    ? `the ${what} is not known to be whole: its connection was closed, it has neither length nor chunks, and ${words} did not come`
    : `the ${what} ended without ${words}, which ends a whole one`;
}
