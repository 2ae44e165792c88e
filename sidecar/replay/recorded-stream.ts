/** A streamed answer out of a recording: one piece, then the end that it had. */
import type { Code } from '../../proto/wire/codes.ts';
import type { BodySink, BodySource } from '../call/reply.ts';
import type { StreamRecord } from '../record/shapes.ts';

const PIECE = Buffer.alloc(1);
const NOBODY: BodySink = { chunk: () => true, end: () => undefined, cut: () => undefined };

export class RecordedStream implements BodySource {
  readonly #record: StreamRecord;
  #sink: BodySink | null = null;
  #outer: BodySource | null = null;
  /** Somebody takes it. */
  isPiped = false;
  isOver = false;

  constructor(record: StreamRecord) {
    this.#record = record;
  }

  pipe(sink: BodySink): void {
    this.#sink = sink;
  }

  /** @param outer what the caller would have read: this one with the clocks of a stream around it */
  open(outer: BodySource | null): void {
    this.isPiped = true;
    this.#outer = outer;
    if (this.#record.ended?.by !== 'unread') outer?.pipe(NOBODY);
  }

  resume(): void {
    // It is not held back: nothing waits in it.
  }

  cancel(code: Code, detail: string): void {
    if (this.isOver || this.#sink === null) return;
    this.isOver = true;
    this.#sink.cut(code, detail);
  }

  begin(): void {
    this.#sink?.chunk(PIECE);
  }

  finish(): void {
    if (this.isOver) return;
    this.isOver = true;
    const { ended } = this.#record;
    if (ended?.by === 'unread') this.#outer?.cancel(ended.code as Code, ended.detail);
    else if (ended === null || ended.by === 'end') this.#sink?.end();
    else this.#sink?.cut(ended.code as Code, ended.detail);
  }
}
