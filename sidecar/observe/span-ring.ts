/**
 * The last spans of this sidecar, told or not, in one ring: a record is made at the first use of its place, and from then on written
 * over. What is overwritten before anybody looked at it, or before the control plane could be told, is counted as dropped: it never waits and
 * never grows.
 */
import { SpanColumns, SpanRecord } from './span-record.ts';

export class SpanRing {
  readonly size: number;
  /** Overwritten unseen, or before the control plane could be told. */
  dropped = 0;
  readonly #slots: SpanRecord[] = [];
  readonly #columns: SpanColumns;
  /** Spans so far: the next one goes to `written % size`. */
  #written = 0;
  #seen = 0;

  constructor(size: number) {
    this.size = size;
    this.#columns = new SpanColumns(size);
  }

  /** The place of the next span, to be written at once. */
  next(): SpanRecord {
    const at = this.#written++ % this.size;
    if (this.#written - this.#seen > this.size) {
      this.#seen++;
      this.dropped++;
    }
    let record = this.#slots[at];
    if (record === undefined) {
      record = new SpanRecord(this.#columns, at);
      this.#slots[at] = record;
    } else if (record.isOwed) {
      // Once: a look may come before the place is written.
      record.isOwed = false;
      this.dropped++;
    }
    return record;
  }

  /** Written and not looked at yet. */
  get unseen(): number {
    return this.#written - this.#seen;
  }

  /** The oldest one that has not been looked at; null = all have. */
  look(): SpanRecord | null {
    if (this.#seen === this.#written) return null;
    return this.#slots[this.#seen++ % this.size] as SpanRecord;
  }

  /** All that have been looked at and are still here, oldest first. */
  *seen(): Generator<SpanRecord> {
    for (let i = Math.max(0, this.#written - this.size); i < this.#seen; i++) yield this.#slots[i % this.size] as SpanRecord;
  }

  /** Everything that is here, oldest first. */
  *all(): Generator<SpanRecord> {
    for (let i = Math.max(0, this.#written - this.size); i < this.#written; i++) yield this.#slots[i % this.size] as SpanRecord;
  }
}
