/** Of which sidecars digests were heard, when, and which were missed: numbers count up for one instance, so a gap is seen and what comes twice counts once. */
import { type Digest, DIGEST_EVERY_MS } from '../../proto/wire/digests.ts';

export interface SidecarHeard {
  readonly sidecar: string;
  readonly instance: string;
  readonly lastHeardAgoMs: number;
  /** Nothing was heard for longer than three periods: it may be anything, not calm. */
  readonly isSilent: boolean;
  readonly digests: number;
  /** Digests that were sent and not heard, as far as this replica can know. */
  readonly missed: number;
}

interface Row {
  instance: string;
  /** When that instance was heard first. */
  sinceMs: number;
  seq: number;
  /** When it was heard last before digests of it were missed. */
  gapMs: number;
  /** The instance before it, whose last digest may still be on its way. */
  before: { readonly instance: string; seq: number } | null;
  atMs: number;
  digests: number;
  missed: number;
}

export const SILENT_MS = 3 * DIGEST_EVERY_MS;
/** Nothing was heard for so long: its process is taken for gone, and so is what it had in memory. */
const GONE_MS = 120_000;
/** A state that was told, and after which digests were missed, is believed for so long: its end may have been among them. */
const UNSURE_MS = 900_000;
const MAX_SIDECARS = 20_000;

export class HeardBook {
  readonly #rows = new Map<string, Row>();
  readonly #forgetMs: number;
  #heard = 0;
  #repeated = 0;
  #missed = 0;
  #refused = 0;

  /** @param forgetMs a sidecar that has said nothing for so long is forgotten. */
  constructor(forgetMs: number) {
    this.#forgetMs = forgetMs;
  }

  get counts(): { readonly heard: number; readonly repeated: number; readonly missed: number; readonly refused: number } {
    return { heard: this.#heard, repeated: this.#repeated, missed: this.#missed, refused: this.#refused };
  }

  refuse(): void {
    this.#refused++;
  }

  /** False = it does not count: it was heard before, or there is no room for another sidecar. */
  take({ sidecar, instance, seq }: Digest, nowMs: number): boolean {
    let row = this.#rows.get(sidecar);
    if (row === undefined) {
      if (this.#rows.size >= MAX_SIDECARS) this.#forget(nowMs);
      if (this.#rows.size >= MAX_SIDECARS) {
        this.#refused++;
        return false;
      }
      row = { instance, sinceMs: nowMs, seq: seq - 1, gapMs: Number.NEGATIVE_INFINITY, before: null, atMs: nowMs, digests: 0, missed: 0 };
      this.#rows.set(sidecar, row);
    }
    if (row.before?.instance === instance) {
      if (seq <= row.before.seq) return this.#twice();
      row.before.seq = seq;
    } else {
      if (row.instance !== instance) {
        row.before = { instance: row.instance, seq: row.seq };
        row.instance = instance;
        row.sinceMs = nowMs;
        // What it said before this replica could hear it is not missed; a start is heard from its first word.
        row.seq = 0;
      }
      if (seq <= row.seq) return this.#twice();
      const missed = seq - row.seq - 1;
      if (missed > 0) row.gapMs = row.atMs;
      row.missed += missed;
      this.#missed += missed;
      row.seq = seq;
    }
    row.atMs = nowMs;
    row.digests++;
    this.#heard++;
    return true;
  }

  /**
   * Until when what a process told at a time, and has not taken back since, is so: until it was replaced by another one of that name, or
   * is not heard any more; Infinity = still.
   */
  untilMs(
    { sidecar, instance, atMs }: { readonly sidecar: string; readonly instance: string; readonly atMs: number },
    nowMs: number,
  ): number {
    const row = this.#rows.get(sidecar);
    if (row === undefined) return Number.NEGATIVE_INFINITY;
    if (row.instance !== instance) return row.sinceMs;
    if (nowMs - row.atMs > GONE_MS) return row.atMs;
    return atMs <= row.gapMs ? atMs + UNSURE_MS : Number.POSITIVE_INFINITY;
  }

  /** Sorted by name. */
  rows(nowMs: number): SidecarHeard[] {
    this.#forget(nowMs);
    return [...this.#rows]
      .map(([sidecar, { instance, atMs, digests, missed }]) => {
        const agoMs = nowMs - atMs;
        return { sidecar, instance, lastHeardAgoMs: agoMs, isSilent: agoMs > SILENT_MS, digests, missed };
      })
      .sort((a, b) => (a.sidecar < b.sidecar ? -1 : 1));
  }

  #twice(): false {
    this.#repeated++;
    return false;
  }

  #forget(nowMs: number): void {
    for (const [sidecar, { atMs }] of this.#rows) if (nowMs - atMs > this.#forgetMs) this.#rows.delete(sidecar);
  }
}
