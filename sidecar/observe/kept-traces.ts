/**
 * Traces that are told whatever their hash says, for so long as spans of them may come; bounded. Two sets take turns, so that nothing
 * is looked through: when the younger one is full, or as old as its traces are kept, the older one is forgotten and it takes its place.
 * A trace stays for the time at least, and for less only when more come in that time than there is room for.
 */
export class KeptTraces {
  readonly #forMs: number;
  readonly #most: number;
  /** Of traces (`traceKey`). */
  #young = new Set<number>();
  #old = new Set<number>();
  /** `clock.now()` when they take their turns next. */
  #turnAt = Number.NEGATIVE_INFINITY;

  /** @param most as many are kept in any case */
  constructor(forMs: number, most: number) {
    this.#forMs = forMs;
    this.#most = most;
  }

  /** True = it was not kept before. */
  add(trace: number, now: number): boolean {
    if (this.#young.has(trace)) return false;
    if (this.#young.size >= this.#most) this.#turn(now);
    this.#young.add(trace);
    return !this.#old.has(trace);
  }

  has(trace: number): boolean {
    return this.#young.has(trace) || (this.#old.size > 0 && this.#old.has(trace));
  }

  get isEmpty(): boolean {
    return this.#young.size === 0 && this.#old.size === 0;
  }

  forget(now: number): void {
    if (now >= this.#turnAt) this.#turn(now);
  }

  #turn(now: number): void {
    this.#old = this.#young;
    this.#young = new Set();
    this.#turnAt = now + this.#forMs;
  }
}
