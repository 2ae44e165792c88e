/**
 * Things that may happen often, told seldom: the first of a kind at once, what follows as one sum each interval, and silence
 * ends it. Kinds are bounded; what finds no room is summed up together as one kind more.
 */
import type { Clock, Timer } from './clock.ts';

interface Sum<T> {
  readonly item: T;
  count: number;
  sinceMs: number;
}

export interface SummingOptions<T> {
  readonly clock: Clock;
  readonly everyMs: number;
  readonly maxKinds: number;
  /** What stands for all that found no room. */
  readonly others: (item: T) => T;
  /** @param sinceMs wall clock of the first of them */
  readonly tell: (item: T, count: number, sinceMs: number) => void;
}

/** No key of a kind. */
const OTHERS = '';

export class Summing<T> {
  readonly #options: SummingOptions<T>;
  readonly #sums = new Map<string, Sum<T>>();
  #timer: Timer | null = null;

  constructor(options: SummingOptions<T>) {
    this.#options = options;
  }

  /** @param key not empty */
  add(key: string, item: T): void {
    const known = this.#sums.get(key);
    if (known !== undefined) {
      known.count++;
      return;
    }
    const { clock, maxKinds, everyMs, others } = this.#options;
    const isRoom = this.#sums.size < maxKinds;
    const rest = isRoom ? undefined : this.#sums.get(OTHERS);
    if (rest !== undefined) {
      rest.count++;
      return;
    }
    const kept = isRoom ? item : others(item);
    this.#sums.set(isRoom ? key : OTHERS, { item: kept, count: 0, sinceMs: clock.wallMs() });
    this.#timer ??= clock.after(everyMs, () => this.#sum());
    this.#options.tell(kept, 1, clock.wallMs());
  }

  /** What is not told yet, now. */
  flush(): void {
    this.#timer?.cancel();
    this.#sum();
    this.#timer?.cancel();
    this.#timer = null;
  }

  #sum(): void {
    const { clock, everyMs, tell } = this.#options;
    this.#timer = null;
    for (const [key, sum] of this.#sums) {
      if (sum.count === 0) {
        this.#sums.delete(key);
        continue;
      }
      const { count, sinceMs } = sum;
      sum.count = 0;
      sum.sinceMs = clock.wallMs();
      tell(sum.item, count, sinceMs);
    }
    if (this.#sums.size > 0) this.#timer ??= clock.after(everyMs, () => this.#sum());
  }
}
