/**
 * What is known of those who tell spans: which process of a sidecar it is and since when, and for which spans it said that it had no
 * room, so that a gap in a timeline has a reason that is known.
 */
import type { ToldBatch } from './read-batch.ts';

const MAX_SIDECARS = 4_000;
const MAX_TIMES = 32;
/** A batch tells of the time since the one before. */
const BATCH_SPANS_MS = 5_000;

interface Teller {
  instance: string;
  /** Wall clock: when this process was first heard. */
  sinceMs: number;
  dropped: number;
  readonly times: { readonly wallMs: number; readonly count: number }[];
}

export class Tellers {
  readonly #tellers = new Map<string, Teller>();
  total = 0;

  take({ sidecar, instance, dropped }: ToldBatch, wallMs: number): void {
    let teller = this.#tellers.get(sidecar);
    if (teller === undefined) {
      if (this.#tellers.size >= MAX_SIDECARS) this.#tellers.delete(this.#tellers.keys().next().value as string);
      // What was lost before this replica listened is nothing new: it says nothing of when.
      teller = { instance, sinceMs: wallMs, dropped, times: [] };
      this.#tellers.set(sidecar, teller);
      return;
    }
    const more = teller.instance === instance ? dropped - teller.dropped : dropped;
    if (teller.instance !== instance) teller.sinceMs = wallMs;
    teller.instance = instance;
    teller.dropped = dropped;
    if (more <= 0) return;
    this.total += more;
    teller.times.push({ wallMs, count: more });
    if (teller.times.length > MAX_TIMES) teller.times.shift();
  }

  /** It is another process that tells since then: what the one before had in mind is gone. */
  isReplaced(sidecar: string, instance: string, wallMs: number): boolean {
    const teller = this.#tellers.get(sidecar);
    return teller !== undefined && teller.instance !== instance && wallMs >= teller.sinceMs;
  }

  /** Of the sidecars that had no room about that time, how many spans each. */
  about(fromMs: number, toMs: number): ReadonlyMap<string, number> {
    const found = new Map<string, number>();
    for (const [sidecar, { times }] of this.#tellers) {
      let count = 0;
      for (const { wallMs, count: more } of times) if (wallMs >= fromMs && wallMs - BATCH_SPANS_MS <= toMs) count += more;
      if (count > 0) found.set(sidecar, count);
    }
    return found;
  }
}
