/**
 * A bucket that several callers share fairly. Each caller of the last second has a part of its own that holds an equal share
 * of the burst; what comes is poured equally into the parts that are not full, and only what nobody holds is to spare, for
 * anybody. So
 * - no more is let through than one bucket of this rate would let through whose burst is at least one for each caller: tokens
 *   are moved, never made (but for one that a newcomer may borrow);
 * - a caller that asks for no more than its equal share gets all of it, however much the others ask for, and one that asks
 *   for more shares what is left over equally with all who do;
 * - nothing is left unused while somebody wants it (with a burst smaller than the number of callers, about an eighth may be).
 * Somebody who has just come has saved nothing: when nothing is to spare, its first call takes the next token of the caller
 * that was served most lately.
 */
import { MAX_DEMANDERS } from '../../proto/wire/quotas.ts';

/** A caller that asked for nothing for so long has no part any more. */
const ACTIVE_MS = 1_000;
/** Callers with a part of their own; the others share one. */
export const MAX_PARTS = 256;
const OTHERS = '';
/** After so many the rest is as good as nothing. */
const ROUNDS = 4;

class Part {
  readonly caller: string;
  tokens = 0;
  askedAt: number;
  /** Since the last look of `demand`. */
  asked = 0;
  /** Of this and about the last second; fades. */
  served = 0;
  constructor(caller: string, now: number) {
    this.caller = caller;
    this.askedAt = now;
  }
}

export class FairBucket {
  #perSec: number;
  #burst: number;
  #spare: number;
  #at: number;
  #sweptAt: number;
  readonly #byCaller = new Map<string, Part>();
  readonly #parts: Part[] = [];
  /** What those asked who have left since the last look of `demand`. */
  #left: number[] = [];

  /** Full. */
  constructor(perSec: number, burst: number, now: number) {
    this.#perSec = perSec;
    this.#burst = burst;
    this.#spare = burst;
    this.#at = now;
    this.#sweptAt = now;
  }

  get perSec(): number {
    return this.#perSec;
  }

  /** Callers of the last second. */
  get callers(): number {
    return this.#parts.length;
  }

  take(caller: string, now: number): boolean {
    this.#fill(now);
    const part = this.#partOf(caller, now);
    part.asked++;
    part.askedAt = now;
    if (part.tokens >= 1) part.tokens--;
    else if (this.#spare >= 1) this.#spare--;
    else return false;
    part.served++;
    return true;
  }

  /** Until this caller gets one, as far as can be said now. */
  waitMs(caller: string, now: number): number {
    this.#fill(now);
    const part = this.#byCaller.get(caller) ?? this.#byCaller.get(OTHERS);
    if (this.#spare >= 1 || (part?.tokens ?? 0) >= 1) return 0;
    const share = this.#perSec / Math.max(1, this.#parts.length);
    return ((1 - (part?.tokens ?? 0)) / share) * 1_000;
  }

  /** @param since `clock.now()` when the new rate began to count. */
  change(perSec: number, burst: number, since: number): void {
    this.#fill(since, true);
    this.#perSec = perSec;
    this.#burst = burst;
    this.#cap();
  }

  isIdle(now: number): boolean {
    this.#fill(now);
    return this.#parts.length === 0 && this.#spare >= this.#burst;
  }

  /** All that is in it: of one bucket these would be the tokens. */
  get tokens(): number {
    let sum = this.#spare;
    for (const part of this.#parts) sum += part.tokens;
    return sum;
  }

  /** What each caller has asked for since the last time, greediest first; empty = nothing. */
  demand(): number[] {
    const asked = this.#left;
    this.#left = [];
    for (const part of this.#parts) {
      if (part.asked > 0) asked.push(part.asked);
      part.asked = 0;
    }
    asked.sort((a, b) => b - a);
    if (asked.length <= MAX_DEMANDERS) return asked;
    const rest = asked.splice(MAX_DEMANDERS - 1).reduce((sum, one) => sum + one, 0);
    asked.push(rest);
    return asked;
  }

  /** Distributes what has come since the last time, as soon as it is a whole token; @param toTheLast a part of one as well */
  #fill(now: number, toTheLast = false): void {
    const elapsedMs = now - this.#at;
    const came = (elapsedMs * this.#perSec) / 1_000;
    if (elapsedMs <= 0 || (!toTheLast && came < 1 && elapsedMs < ACTIVE_MS)) return;
    this.#at = now;
    this.#pour(came);
    if (now - this.#sweptAt >= ACTIVE_MS) this.#sweep(now);
    this.#cap();
  }

  /** Equally into the parts that are not full; what these do not hold, among the others again; what nobody holds, to spare. */
  #pour(came: number): void {
    const room = this.#room();
    let left = came;
    // A debt that somebody left behind comes first.
    if (this.#spare < 0) {
      const paid = Math.min(left, -this.#spare);
      this.#spare += paid;
      left -= paid;
    }
    for (let round = 0; round < ROUNDS && left > 0; round++) {
      let open = 0;
      for (const part of this.#parts) if (part.tokens < room) open++;
      if (open === 0) break;
      const each = left / open;
      left = 0;
      for (const part of this.#parts) {
        if (part.tokens >= room) continue;
        part.tokens += each;
        if (part.tokens <= room) continue;
        left += part.tokens - room;
        part.tokens = room;
      }
    }
    this.#spare += left;
  }

  /** What one part holds at most. */
  #room(): number {
    return Math.max(1, this.#burst / Math.max(1, this.#parts.length));
  }

  /** All together hold no more than the burst, or one for each caller: less than one would never become one. */
  #cap(): void {
    const most = Math.max(this.#burst, this.#parts.length);
    let held = 0;
    for (const part of this.#parts) held += part.tokens;
    if (this.#spare > most - held) this.#spare = Math.max(0, most - held);
    if (held <= most) return;
    // A smaller burst than before: each gives back alike.
    const factor = most / held;
    for (const part of this.#parts) if (part.tokens > 0) part.tokens *= factor;
  }

  #sweep(now: number): void {
    this.#sweptAt = now;
    const parts = this.#parts;
    let kept = 0;
    for (const part of parts) {
      part.served /= 2;
      if (now - part.askedAt < ACTIVE_MS) parts[kept++] = part;
      else {
        this.#spare += part.tokens;
        this.#byCaller.delete(part.caller);
        if (part.asked > 0 && this.#left.length < MAX_DEMANDERS) this.#left.push(part.asked);
      }
    }
    parts.length = kept;
  }

  #partOf(caller: string, now: number): Part {
    const known = this.#byCaller.get(caller);
    if (known !== undefined) return known;
    if (this.#parts.length >= MAX_PARTS) {
      const others = this.#byCaller.get(OTHERS);
      if (others !== undefined) return others;
      return this.#enter(OTHERS, now);
    }
    return this.#enter(caller, now);
  }

  #enter(caller: string, now: number): Part {
    const part = new Part(caller, now);
    if (this.#spare >= 0 && this.#spare < 1) part.tokens = this.#fromMostServed();
    this.#byCaller.set(caller, part);
    this.#parts.push(part);
    return part;
  }

  /** 1 when somebody could give it up: one token is owed at a time, so that it stays one that is let through too much. */
  #fromMostServed(): number {
    let from: Part | null = null;
    for (const part of this.#parts) {
      if (part.tokens < 0) return 0;
      if (from === null || part.served > from.served) from = part;
    }
    if (from === null) return 0;
    from.tokens--;
    return 1;
  }
}
