/** A streamed body as it passes: how much, its beginning where that may be kept, and how it ended. It goes on untouched. */
import type { Code } from '../../proto/wire/codes.ts';
import type { BodySink, BodySource } from '../call/reply.ts';
import type { CallClock } from './call-clock.ts';
import type { StreamRecord } from './shapes.ts';

export class Heard {
  bytes = 0;
  chunks = 0;
  ended: StreamRecord['ended'] = null;
  readonly #most: number;
  readonly #head: Buffer[] = [];
  #headBytes = 0;

  /** @param most bytes of its beginning that are kept; 0 = none may be */
  constructor(most: number) {
    this.#most = most;
  }

  came(data: Buffer): void {
    this.chunks++;
    this.bytes += data.length;
    const room = this.#most - this.#headBytes;
    if (room <= 0) return;
    const piece = Buffer.from(data.subarray(0, room));
    this.#head.push(piece);
    this.#headBytes += piece.length;
  }

  record(): StreamRecord {
    const { bytes, chunks, ended } = this;
    return { bytes, chunks, head: this.#most === 0 ? null : Buffer.concat(this.#head).toString('base64'), ended };
  }
}

export class HeardStream implements BodySource, BodySink {
  readonly heard: Heard;
  readonly #source: BodySource;
  readonly #clock: CallClock;
  #sink: BodySink | null = null;

  constructor(source: BodySource, clock: CallClock, most: number) {
    this.heard = new Heard(most);
    this.#source = source;
    this.#clock = clock;
  }

  get endsByClose(): boolean {
    return this.#source.endsByClose === true;
  }

  pipe(sink: BodySink): void {
    this.#sink = sink;
    this.#source.pipe(this);
  }

  resume(): void {
    this.#source.resume();
  }

  cancel(code: Code, detail: string): void {
    if (this.#sink === null && this.heard.ended === null) this.#ended('unread', code, detail);
    this.#source.cancel(code, detail);
  }

  chunk(data: Buffer): boolean {
    const isFirst = this.heard.chunks === 0;
    if (isFirst) this.#clock.begin('chunk', 0);
    this.heard.came(data);
    const goesOn = this.#sink?.chunk(data) ?? true;
    // From here on the readings are many, and decide nothing.
    if (isFirst) this.#clock.mute(true);
    return goesOn;
  }

  end(): void {
    this.#ended('end', 0, '');
    this.#sink?.end();
  }

  cut(code: Code, detail: string, goesAway?: boolean): void {
    this.#ended('cut', code, detail);
    this.#sink?.cut(code, detail, goesAway);
  }

  #ended(by: 'end' | 'cut' | 'unread', code: Code, detail: string): void {
    this.#clock.mute(false);
    this.#clock.begin('end', 0);
    this.heard.ended = { by, code, detail };
  }
}
