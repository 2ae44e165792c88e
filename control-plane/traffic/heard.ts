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
  seq: number;
  /** The instance before it, whose last digest may still be on its way. */
  before: { readonly instance: string; seq: number } | null;
  atMs: number;
  digests: number;
  missed: number;
}

export const SILENT_MS = 3 * DIGEST_EVERY_MS;
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
      row = { instance, seq: seq - 1, before: null, atMs: nowMs, digests: 0, missed: 0 };
      this.#rows.set(sidecar, row);
    }
    if (row.before?.instance === instance) {
      if (seq <= row.before.seq) return this.#twice();
      row.before.seq = seq;
    } else {
      if (row.instance !== instance) {
        row.before = { instance: row.instance, seq: row.seq };
        row.instance = instance;
        // What it said before this replica could hear it is not missed; a start is heard from its first word.
        row.seq = 0;
      }
      if (seq <= row.seq) return this.#twice();
      const missed = seq - row.seq - 1;
      row.missed += missed;
      this.#missed += missed;
      row.seq = seq;
    }
    row.atMs = nowMs;
    row.digests++;
    this.#heard++;
    return true;
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
