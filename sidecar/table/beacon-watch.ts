/**
 * The copy held against the beacon, each second: what it names as newer than what is held was lost and is read again; a
 * beacon whose list does not reach back to what was seen leads to a comparison of everything; a stream whose sequence has
 * gone back is told. Which epoch counts, and what follows, is decided elsewhere.
 */
import { type BeaconView, covers } from './chain.ts';
import type { Comparison } from './comparison.ts';
import type { Copy } from './copy.ts';
import type { Reads } from './reads.ts';

/** A beacon may have been written before a message that has overtaken it; so many in a row have not. */
const WENT_BACK_BEACONS = 3;

export interface BeaconWatchParts {
  readonly copy: Copy;
  readonly reads: Reads;
  readonly comparison: Comparison;
  /** Everything that the beacon names is held. */
  onCovered(lastSeq: number): void;
}

export class BeaconWatch {
  readonly #parts: BeaconWatchParts;
  /** Beacons in a row whose last sequence is below what is held. */
  #below = 0;
  /** Why the stream cannot be followed; '' = it can. */
  trouble = '';

  constructor(parts: BeaconWatchParts) {
    this.#parts = parts;
  }

  /** A beacon of the epoch that is held. */
  look(beacon: BeaconView, pauseMs: number): void {
    const { copy, comparison } = this.#parts;
    this.#seeWhetherItWentBack(beacon.lastSeq);
    const isCovered = covers(beacon, copy.seenThrough, pauseMs);
    const isSuspicious = copy.isLossSuspected && !comparison.isRecent;
    if ((!isCovered || isSuspicious) && !comparison.isPlanned) comparison.planSoon();
    if (!isCovered) return;
    // Most of the list is known already: the cheapest question comes first.
    const behind = beacon.recent.filter(([tail, seq]) => seq > copy.listedThrough && copy.isMine(tail) && seq > copy.held.seen(tail));
    if (behind.length === 0) this.#covered(beacon.lastSeq);
    else void this.#repair(behind, beacon.lastSeq);
  }

  async #repair(behind: BeaconView['recent'], lastSeq: number): Promise<void> {
    const { copy, reads, comparison } = this.#parts;
    const { turn } = comparison;
    copy.counters.repairs += behind.length;
    const read = await Promise.all(behind.map(([tail, seq]) => reads.read(tail, seq)));
    if (turn === comparison.turn && !read.includes(false)) this.#covered(lastSeq);
  }

  #covered(lastSeq: number): void {
    const { copy } = this.#parts;
    copy.seenThrough = Math.max(copy.seenThrough, lastSeq);
    copy.listedThrough = Math.max(copy.listedThrough, lastSeq);
    this.#parts.onCovered(lastSeq);
  }

  /** A stream that was put back from an old copy without a new epoch: nothing that it says would be taken. */
  #seeWhetherItWentBack(lastSeq: number): void {
    const { highestSeq } = this.#parts.copy.held;
    this.#below = lastSeq < highestSeq ? this.#below + 1 : 0;
    this.trouble =
      this.#below < WENT_BACK_BEACONS
        ? ''
        : `the registry has gone back to sequence ${lastSeq}, and ${highestSeq} is held here: restored from an old copy, it needs a new epoch`;
  }
}
