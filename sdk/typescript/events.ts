/** Server-sent events and lines, out of text however it was cut. For agents that stream in these forms. */

export interface StreamEvent {
  /** `message` when the event names none. */
  readonly event: string;
  readonly data: string;
  /** The last id that was given. */
  readonly id: string;
}

/** Complete lines; what stands after the last line end waits. Line ends are CR, LF or both. */
export class LineReader {
  /** Of the line under way; put together once, when its end has come. */
  #pieces: string[] = [];
  /** A CR ends its line at once; an LF that comes after it is its other half. */
  #afterCr = false;

  push(text: string): string[] {
    if (text === '') return [];
    const lines = (this.#afterCr && text.startsWith('\n') ? text.slice(1) : text).split(/\r\n|\r|\n/);
    this.#afterCr = text.endsWith('\r');
    const rest = lines.pop() as string;
    if (lines.length > 0) lines[0] = this.finish() + (lines[0] as string);
    if (rest !== '') this.#pieces.push(rest);
    return lines;
  }

  /** A last line without an end; '' = none. */
  finish(): string {
    const rest = this.#pieces.join('');
    this.#pieces = [];
    return rest;
  }
}

export class EventReader {
  readonly #lines = new LineReader();
  #isFirst = true;
  #event = '';
  #id = '';
  #data: string[] = [];

  /** Events that are complete; an unfinished one at the end of the stream is none, as the standard has it. */
  push(text: string): StreamEvent[] {
    const events: StreamEvent[] = [];
    for (const line of this.#lines.push(this.#isFirst ? text.replace(/^\uFEFF/, '') : text)) {
      if (line !== '') this.#field(line);
      else if (this.#data.length > 0) {
        events.push({ event: this.#event || 'message', data: this.#data.join('\n'), id: this.#id });
        this.#clear();
      } else this.#clear();
    }
    if (text !== '') this.#isFirst = false;
    return events;
  }

  #clear(): void {
    this.#event = '';
    this.#data = [];
  }

  #field(line: string): void {
    const colon = line.indexOf(':');
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (name === 'data') this.#data.push(value);
    else if (name === 'event') this.#event = value;
    else if (name === 'id' && !value.includes('\0')) this.#id = value;
  }
}
