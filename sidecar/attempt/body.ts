/** A streamed answer under way: passes chunks on and reports that they came, and once, when the body has ended, how. */
import { Code } from '../../proto/wire/codes.ts';
import type { BodySink, BodySource } from '../call/reply.ts';

export class MeteredBody implements BodySource, BodySink {
  readonly #source: BodySource;
  readonly #ended: (code: Code, detail: string) => void;
  readonly #came: () => void;
  #sink: BodySink | null = null;
  #open = true;

  constructor(source: BodySource, ended: (code: Code, detail: string) => void, came: () => void) {
    this.#source = source;
    this.#ended = ended;
    this.#came = came;
  }

  pipe(sink: BodySink): void {
    this.#sink = sink;
    this.#source.pipe(this);
  }

  resume(): void {
    this.#source.resume();
  }

  cancel(code: Code, detail: string): void {
    this.#source.cancel(code, detail);
    // A source that nobody reads yet has nobody to tell: the accounting must close all the same.
    if (this.#sink === null) this.#close(code, detail);
  }

  chunk(data: Buffer): boolean {
    this.#came();
    return this.#sink === null || this.#sink.chunk(data);
  }

  end(): void {
    this.#close(Code.ok, '');
    this.#sink?.end();
  }

  cut(code: Code, detail: string): void {
    this.#close(code, detail);
    this.#sink?.cut(code, detail);
  }

  #close(code: Code, detail: string): void {
    if (!this.#open) return;
    this.#open = false;
    this.#ended(code, detail);
  }
}
