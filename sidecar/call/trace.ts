/** The decision record of one call: every verdict in order, kept as references and rendered only on reading. */
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { type Arg, type Reason, type Verdict, wordsOf } from './verdict.ts';

/** Stages of a usual call: no more room is asked for then. */
const USUAL = 12;
const WIDTH = 2;
/** Of one line as `pack` writes it. */
export const PACKED_WIDTH = 5;
export type PackedLine = number | Reason | Arg;
/** Of one line as `spread` writes it. */
export const SPREAD_WIDTH = 4;
export type SpreadLine = Reason | Arg;

export class Trace {
  /** at, verdict — repeated. */
  readonly #cells: (number | Verdict)[] = new Array<number>(WIDTH * USUAL);
  #count = 0;

  add(atMs: number, verdict: Verdict): void {
    const at = WIDTH * this.#count++;
    this.#cells[at] = atMs;
    this.#cells[at + 1] = verdict;
  }

  get length(): number {
    return this.#count;
  }

  /** @param index from 0, below `length` */
  verdict(index: number): Verdict {
    return this.#cells[WIDTH * index + 1] as Verdict;
  }

  /** Writes the first lines flat (at, reason, a, b, c, and again) over what `into` holds, and says how many. */
  pack(into: PackedLine[], most: number): number {
    const count = this.#count < most ? this.#count : most;
    for (let i = 0, at = 0; i < count; i++, at += PACKED_WIDTH) {
      const { reason, a, b, c } = this.#cells[WIDTH * i + 1] as Verdict;
      into[at] = this.#cells[WIDTH * i] as number;
      into[at + 1] = reason;
      into[at + 2] = a;
      into[at + 3] = b;
      into[at + 4] = c;
    }
    return count;
  }

  /**
   * Writes the first lines flat (reason, a, b, c, and again) over what `into` holds, and their times from a place on, for whoever
   * keeps them longer than the call lives; and says how many. Nothing is kept alive that does not live on anyhow.
   */
  spread(into: SpreadLine[], times: Float64Array, from: number, most: number): number {
    const count = this.#count < most ? this.#count : most;
    for (let i = 0, at = 0; i < count; i++, at += SPREAD_WIDTH) {
      const { reason, a, b, c } = this.#cells[WIDTH * i + 1] as Verdict;
      times[from + i] = this.#cells[WIDTH * i] as number;
      into[at] = reason;
      into[at + 1] = a;
      into[at + 2] = b;
      into[at + 3] = c;
    }
    return count;
  }

  lines(): TraceLine[] {
    const lines: TraceLine[] = [];
    for (let i = 0; i < this.#count; i++) {
      const { reason, a, b, c } = this.#cells[WIDTH * i + 1] as Verdict;
      lines.push({
        at_ms: Math.round((this.#cells[WIDTH * i] as number) * 1000) / 1000,
        stage: reason.stage,
        reason: reason.name,
        code: reason.code,
        words: wordsOf(reason, a, b, c),
      });
    }
    return lines;
  }
}
