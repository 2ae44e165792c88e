/**
 * What the leader says each second, and at once after a batch of writes: the epoch, the last sequence, and what changed
 * lately. A sidecar that lost the last message of a burst finds out by it, and knows how old its table is when the
 * beacon stays away.
 */
import type { Beacon as BeaconMessage } from '../../proto/wire/registry.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';

/** Changes that are repeated: those of the last seconds, so that one lost beacon hides nothing. */
const REPEAT_MS = 10_000;
/** More do not fit in a small message; whoever sees the last sequence jump beyond them compares everything. */
const MAX_RECENT = 200;

interface Changed {
  readonly seq: number;
  readonly atMs: number;
}

export class Beacon {
  /** By tail, oldest first. */
  readonly #recent = new Map<string, Changed>();
  /** Everything that changed after this sequence is among the recent ones. */
  #since: number;

  /** @param lastSeq of the stream when this writer began. */
  constructor(lastSeq: number) {
    this.#since = lastSeq;
  }

  changed(tails: readonly (readonly [tail: string, seq: number])[], nowMs: number): void {
    for (const [tail, seq] of tails) {
      this.#recent.delete(tail);
      this.#recent.set(tail, { seq, atMs: nowMs });
    }
    while (this.#recent.size > MAX_RECENT) this.#forget(this.#recent.keys().next().value as string);
  }

  message(epoch: string, lastSeq: number, term: number, nowMs: number, speech: 'named' | 'asks'): BeaconMessage {
    for (const [tail, { atMs }] of this.#recent) {
      if (nowMs - atMs <= REPEAT_MS) break;
      this.#forget(tail);
    }
    const recent = [...this.#recent].map(([tail, { seq }]) => [tail, seq] as const);
    return { wire: REGISTRY_WIRE, epoch, lastSeq, recent, since: this.#since, term, speech };
  }

  #forget(tail: string): void {
    const seq = this.#recent.get(tail)?.seq ?? 0;
    this.#recent.delete(tail);
    if (seq > this.#since) this.#since = seq;
  }
}
