/** The streamed body of a mock: its chunks by the Clock, at the reader's pace, with the script's fault in the middle. */
import type { Clock, Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { BodySink, BodySource } from '../call/reply.ts';
import type { MockAgent } from './mock-agents.ts';
import type { Act } from './mock-script.ts';

export class MockBody implements BodySource {
  readonly #clock: Clock;
  readonly #chunks: Buffer[];
  readonly #everyMs: number;
  /** Index of the chunk before which it breaks or stops for good; none when it is beyond the last. */
  readonly #faultAt: number;
  readonly #resets: boolean;
  readonly #open: Set<MockBody>;
  #next = 0;
  #sentBytes = 0;
  #sink: BodySink | null = null;
  #timer: Timer | null = null;
  #isPaused = false;
  /** A chunk fell due while the reader had asked for a pause. */
  #isDue = false;
  #isOver = false;
  #ending: { readonly code: Code; readonly detail: string } | null = null;

  readonly agent: MockAgent;
  readonly #death: Timer | null;

  /** @param diesInMs until its agent's process ends; Infinity = not within its time */
  constructor(clock: Clock, body: Buffer, act: Act, open: Set<MockBody>, agent: MockAgent, diesInMs: number) {
    this.agent = agent;
    agent.atWork++;
    this.#death = diesInMs === Number.POSITIVE_INFINITY ? null : clock.after(diesInMs, () => this.die());
    this.#clock = clock;
    this.#chunks = pieces(body, act.chunks);
    this.#everyMs = act.everyMs;
    this.#resets = act.reset !== 'no';
    const fault = this.#resets ? act.reset : act.hang;
    this.#faultAt = faultAt(fault, this.#chunks.length);
    this.#open = open;
    open.add(this);
  }

  pipe(sink: BodySink): void {
    this.#sink = sink;
    if (this.#ending !== null) sink.cut(this.#ending.code, this.#ending.detail);
    else this.#step();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    if (this.#isDue) this.#step();
  }

  /** The process at the other end is gone. */
  die(): void {
    this.cancel(Code.stream_interrupted, `the body is cut: the connection was reset after ${this.#sentBytes} bytes, before its end`);
  }

  cancel(code: Code, detail: string): void {
    if (this.#isOver) return;
    this.#close();
    if (this.#sink === null) this.#ending = { code, detail };
    else this.#sink.cut(code, detail);
  }

  /** Sends what is due, and sets the timer for the next. Chunks without a pause between them go in one turn. */
  #step(): void {
    this.#isDue = false;
    const sink = this.#sink as BodySink;
    while (!this.#isOver) {
      if (this.#next === this.#faultAt) {
        if (!this.#resets) return;
        this.#close();
        return sink.cut(
          Code.stream_interrupted,
          `the body is cut: the connection was reset after ${this.#sentBytes} bytes, before its end`,
        );
      }
      const chunk = this.#chunks[this.#next];
      if (chunk === undefined) {
        this.#close();
        return sink.end();
      }
      this.#next++;
      this.#sentBytes += chunk.length;
      if (!sink.chunk(chunk)) this.#isPaused = true;
      if (this.#isOver) return;
      if (this.#everyMs > 0 && this.#next < this.#chunks.length) {
        this.#timer = this.#clock.after(this.#everyMs, () => this.#fellDue());
        return;
      }
      if (this.#isPaused) {
        this.#isDue = true;
        return;
      }
    }
  }

  #fellDue(): void {
    if (this.#isPaused) this.#isDue = true;
    else this.#step();
  }

  #close(): void {
    this.#isOver = true;
    this.#timer?.cancel();
    this.#death?.cancel();
    this.agent.atWork--;
    this.#open.delete(this);
  }
}

function faultAt(fault: Act['hang'], chunks: number): number {
  if (typeof fault === 'number') return fault;
  return fault === 'after_head' ? 0 : fault === 'mid_body' ? Math.ceil(chunks / 2) : Number.POSITIVE_INFINITY;
}

/** Cuts a body into that many pieces of nearly the same size; fewer when it has fewer bytes. */
function pieces(body: Buffer, count: number): Buffer[] {
  const n = Math.max(1, Math.min(count, body.length));
  const out: Buffer[] = [];
  for (let i = 0; i < n; i++) out.push(body.subarray(Math.floor((i * body.length) / n), Math.floor(((i + 1) * body.length) / n)));
  return out;
}
