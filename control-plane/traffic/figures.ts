/** Calls that were counted together: how many, how they ended, how long they took, and where to look. Adding up keeps all of it exact but the quantiles. */
import { Sketch } from '../../base/sketch.ts';
import { type EdgeDigest, MAX_EXAMPLE_FAILURES } from '../../proto/wire/digests.ts';

export interface Example {
  readonly trace_id: string;
  readonly code: number;
  readonly elapsed_ms: number;
}

/** Codes of one capability or edge that are told apart. */
const MAX_CODES = 64;

export class Figures {
  calls = 0;
  /** Those that ended with another code than 0. */
  failed = 0;
  retries = 0;
  degraded = 0;
  /** Durations of whole calls, from acceptance to the end of the answer, in milliseconds. */
  readonly times = new Sketch();
  /** null = somebody was asked in all of them: it would be `times` again. */
  #answered: Sketch | null = null;
  #unusual = 0;
  #codes: Map<number, number> | null = null;
  #failures: Example[] | null = null;
  #slowest: Example | null = null;

  /** How often each code ended a call, 0 left out. */
  get codes(): ReadonlyMap<number, number> {
    return this.#codes ?? NONE;
  }

  /** Two of the newest failures, and the slowest call. */
  get examples(): readonly Example[] {
    const slowest = this.#slowest;
    const failures = this.#failures ?? NO_EXAMPLES;
    if (slowest === null || failures.some(({ trace_id: id }) => id === slowest.trace_id)) return failures;
    return [...failures, slowest];
  }

  /**
   * Durations of those calls for which a provider was asked. One that is refused at once, or for which nobody is left, says nothing of
   * how fast the capability is: an outage or a red button would make it look a thousand times as fast.
   */
  get answered(): Sketch {
    return this.#answered ?? this.times;
  }

  /** Of those for which a provider was asked: the share that failed, or that a fallback answered. 0 to 1. */
  get unusualShare(): number {
    const { count } = this.answered;
    return count === 0 ? 0 : Math.min(1, this.#unusual / count);
  }

  /** Share of calls that failed, 0 to 1. */
  get errorShare(): number {
    return this.calls === 0 ? 0 : this.failed / this.calls;
  }

  /** What a sidecar told of one edge. */
  take({ provider, calls, retries, degraded, times, codes, examples }: EdgeDigest): void {
    const failedBefore = this.failed;
    this.calls += calls;
    this.retries += retries;
    this.degraded += degraded;
    for (let i = 0; i < codes.length; i += 2) this.#code(codes[i] as number, codes[i + 1] as number);
    if (provider === '') this.#answered ??= copied(this.times);
    else {
      this.#answered?.addPairs(times);
      this.#unusual += this.failed - failedBefore + degraded;
    }
    this.times.addPairs(times);
    for (const example of examples) this.#example(example);
  }

  #code(code: number, times: number): void {
    this.failed += times;
    const codes = (this.#codes ??= new Map());
    const known = codes.get(code);
    if (known !== undefined || codes.size < MAX_CODES) codes.set(code, (known ?? 0) + times);
  }

  #example(example: Example): void {
    if (example.code !== 0) {
      const failures = (this.#failures ??= []);
      failures.push(example);
      if (failures.length > MAX_EXAMPLE_FAILURES) failures.shift();
    }
    if (this.#slowest === null || example.elapsed_ms > this.#slowest.elapsed_ms) this.#slowest = example;
  }

  /** For one that is kept for long: without examples, whose traces are gone by then, and in as little room as there can be. */
  settle(): void {
    this.#failures = null;
    this.#slowest = null;
    this.times.trim();
    this.#answered?.trim();
  }

  /** @param later the same, of a time after this: its examples are the newer ones. */
  merge(later: Figures): void {
    this.calls += later.calls;
    this.retries += later.retries;
    this.degraded += later.degraded;
    this.#unusual += later.#unusual;
    if (later.#answered !== null) this.#answered ??= copied(this.times);
    this.#answered?.merge(later.answered);
    this.times.merge(later.times);
    for (const [code, times] of later.codes) this.#code(code, times);
    for (const example of later.examples) this.#example(example);
  }
}

function copied(times: Sketch): Sketch {
  const copy = new Sketch();
  copy.merge(times);
  return copy;
}

const NO_EXAMPLES: readonly Example[] = [];
const NONE: ReadonlyMap<number, number> = new Map();

/** Attempts at one provider, of all callers. */
export class AttemptFigures {
  attempts = 0;
  /** Those that count against the provider. */
  failures = 0;
  readonly times = new Sketch();

  merge(other: AttemptFigures): void {
    this.attempts += other.attempts;
    this.failures += other.failures;
    this.times.merge(other.times);
  }
}
