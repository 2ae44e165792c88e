/**
 * A streamed answer under way: passes pieces on, watches the clocks of a stream and the words that end it, and reports
 * once how the body ended. First piece, silence between pieces and total time each cut the provider off at once. Silence
 * counts only while somebody reads: a provider that is held back for a slow caller is not slow.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import { bytesPassed } from '../../base/read-garbage.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { BodySink, BodySource } from '../call/reply.ts';
import { type EndMarker, unmarked } from './end-marker.ts';

/** `clock.now()` scale for `…At`. */
export interface BodyTimes {
  readonly startedAt: number;
  readonly firstChunkMs: number;
  readonly idleMs: number;
  readonly totalAt: number;
}

/** Hears of what comes. */
export interface BodyWatcher {
  came(now: number): void;
  /** Once. `firstMs`: from the start of the attempt to the first piece; null = none came. */
  ended(code: Code, detail: string, firstMs: number | null): void;
}

export class MeteredBody implements BodySource, BodySink {
  readonly #source: BodySource;
  readonly #clock: Clock;
  readonly #times: BodyTimes;
  readonly #marker: EndMarker | null;
  readonly #watcher: BodyWatcher;
  #sink: BodySink | null = null;
  #isOpen = true;
  #firstMs: number | null = null;
  /** When the provider was last heard of, or last let go on. */
  #movedAt: number;
  #isHeldBack = false;
  #watch: Timer | null;
  readonly #total: Timer;

  constructor(source: BodySource, clock: Clock, times: BodyTimes, marker: EndMarker | null, watcher: BodyWatcher) {
    this.#source = source;
    this.#clock = clock;
    this.#times = times;
    this.#marker = marker;
    this.#watcher = watcher;
    this.#movedAt = times.startedAt;
    const now = clock.now();
    this.#watch = clock.after(Math.max(0, times.startedAt + times.firstChunkMs - now), () => this.#look());
    this.#total = clock.after(Math.max(0, times.totalAt - now), () =>
      this.cancel(Code.deadline_exceeded, 'the total time was over before the stream ended'),
    );
  }

  get endsByClose(): boolean {
    return this.#source.endsByClose === true;
  }

  pipe(sink: BodySink): void {
    this.#sink = sink;
    this.#source.pipe(this);
  }

  resume(): void {
    if (this.#isHeldBack) {
      this.#isHeldBack = false;
      this.#movedAt = this.#clock.now();
    }
    this.#source.resume();
  }

  cancel(code: Code, detail: string): void {
    this.#source.cancel(code, detail);
    // A source that nobody reads yet has nobody to tell: the accounting must close all the same.
    if (this.#sink === null) this.#close(code, detail);
  }

  chunk(data: Buffer): boolean {
    if (!this.#isOpen) return true;
    const now = this.#clock.now();
    this.#movedAt = now;
    if (this.#firstMs === null) this.#begun(now);
    this.#watcher.came(now);
    bytesPassed(data.length);
    this.#marker?.watch(data);
    const goesOn = this.#sink === null || this.#sink.chunk(data);
    this.#isHeldBack = !goesOn;
    return goesOn;
  }

  end(): void {
    const marker = this.#marker;
    if (marker === null || marker.isDone()) this.#whole();
    else this.#broken(Code.stream_interrupted, unmarked('stream', marker, this.endsByClose));
  }

  cut(code: Code, detail: string, goesAway = false): void {
    // What came after its own last word, or did not, makes an answer no less whole.
    if (code === Code.stream_interrupted && this.#marker !== null && this.#marker.isDone()) this.#whole();
    else this.#broken(code, detail, goesAway);
  }

  #whole(): void {
    this.#close(Code.ok, '');
    this.#sink?.end();
  }

  #broken(code: Code, detail: string, goesAway = false): void {
    this.#close(code, detail);
    this.#sink?.cut(code, detail, goesAway);
  }

  /** From here on the time of silence counts, which may be over long before that of the first piece would have been. */
  #begun(now: number): void {
    this.#firstMs = now - this.#times.startedAt;
    this.#watch?.cancel();
    this.#watch = this.#isOpen ? this.#clock.after(this.#times.idleMs, () => this.#look()) : null;
  }

  /** The time of the first piece, or that of silence, may be over. One timer, set anew when it was too early. */
  #look(): void {
    const now = this.#clock.now();
    const { firstChunkMs, idleMs } = this.#times;
    if (this.#firstMs === null) {
      this.cancel(Code.response_timeout, `no chunk of the body within ${Math.round(firstChunkMs)} ms`);
      return;
    }
    const silentMs = this.#isHeldBack ? 0 : now - this.#movedAt;
    if (silentMs >= idleMs)
      this.cancel(Code.stream_interrupted, `the stream is cut: nothing came for ${Math.round(idleMs)} ms, and its end had not come`);
    else this.#watch = this.#clock.after(idleMs - silentMs, () => this.#look());
  }

  #close(code: Code, detail: string): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#watch?.cancel();
    this.#watch = null;
    this.#total.cancel();
    this.#watcher.ended(code, detail, this.#firstMs);
  }
}
