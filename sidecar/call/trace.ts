/** The decision record of one call: every verdict in order, kept as references and rendered only on reading. */
import { type Arg, type Reason, type Stage, type Verdict, wordsOf } from './verdict.ts';

/** As it stands in answers: `decision` of a Result and of `explain`. */
export interface TraceLine {
  readonly at_ms: number;
  readonly stage: Stage;
  readonly reason: string;
  readonly code: number;
  readonly words: string;
}

const WIDTH = 5;

export class Trace {
  /** at, reason, a, b, c — repeated. */
  readonly #cells: (number | Reason | Arg)[] = [];

  add(atMs: number, verdict: Verdict): void {
    this.#cells.push(atMs, verdict.reason, verdict.a, verdict.b, verdict.c);
  }

  get length(): number {
    return this.#cells.length / WIDTH;
  }

  lines(): TraceLine[] {
    const lines: TraceLine[] = [];
    for (let i = 0; i < this.#cells.length; i += WIDTH) {
      const reason = this.#cells[i + 1] as Reason;
      lines.push({
        at_ms: Math.round((this.#cells[i] as number) * 1000) / 1000,
        stage: reason.stage,
        reason: reason.name,
        code: reason.code,
        words: wordsOf(reason, this.#cells[i + 2] as Arg, this.#cells[i + 3] as Arg, this.#cells[i + 4] as Arg),
      });
    }
    return lines;
  }
}
