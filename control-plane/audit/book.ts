/**
 * Reading the audit log: a page of it, newest or oldest first, and single entries. Both streams are read as one, by the time at
 * which the server stored an entry. A cursor is a position in each of the two, so that it stays good while entries come in.
 * Nobody can make a replica read without end: a page looks at so many entries at most, and says where it stopped.
 */
import type { Stored } from '../../base/jetstream.ts';
import type { Bus } from '../../base/nats.ts';
import { type AuditRecord, readEntry } from '../../proto/wire/audit.ts';
import { AUDIT_STREAM, REFUSED_STREAM, type Subjects } from '../../proto/wire/subjects.ts';

/** An entry and where it stands. */
export interface Kept {
  /** Such as `a17` or `r4`: the log, and the position in it. */
  readonly id: string;
  readonly storedAtMs: number;
  readonly entry: AuditRecord;
}

export interface Wanted {
  /** Exact, or with `*` at the end for all that begin so; null = all. */
  readonly actor: string | null;
  readonly action: string | null;
  readonly subject: string | null;
  readonly outcome: string | null;
  /** By the server's clock. */
  readonly sinceMs: number;
  readonly untilMs: number;
  readonly limit: number;
  readonly order: 'newest' | 'oldest';
  readonly cursor: Cursor | null;
}

/** Newest first: everything from here on was shown. Oldest first: everything up to here was shown. */
export interface Cursor {
  readonly a: number;
  readonly r: number;
}

export interface Page {
  readonly entries: readonly Kept[];
  /** Null = there is nothing beyond, at present. */
  readonly next: Cursor | null;
  /** Where one goes on when more has come in, oldest first. */
  readonly end: Cursor;
  /** Entries that were looked at. */
  readonly looked: number;
}

export interface Failed {
  readonly failed: string;
}

type Letter = 'a' | 'r';

/** Entries that one page looks at. */
const MAX_LOOKED = 20_000;
const BLOCK = 64;

export class AuditBook {
  readonly #bus: Bus;
  readonly #pattern: string;

  constructor(bus: Bus, subjects: Subjects) {
    this.#bus = bus;
    this.#pattern = subjects.audit('*', '*');
  }

  /** One entry; null when it is not there, or not any more. */
  async one(id: string): Promise<Kept | null | Failed> {
    const [, letter, digits] = /^([ar])(\d{1,15})$/.exec(id) ?? [];
    if (letter === undefined || digits === undefined) return null;
    const found = await this.#bus.history(streamOf(letter as Letter), this.#pattern, 1, Math.max(1, Number(digits)));
    if ('failed' in found) return found;
    const [stored] = found;
    return stored === undefined || stored.seq !== Number(digits) ? null : keptOf(letter as Letter, stored);
  }

  /** Behind the last entries of both. */
  async end(): Promise<Cursor | Failed> {
    const ends = await this.#bounds();
    return 'failed' in ends ? ends : { a: ends.a.last, r: ends.r.last };
  }

  async page(wanted: Wanted): Promise<Page | Failed> {
    const bounds = await this.#bounds();
    if ('failed' in bounds) return bounds;
    const isNewest = wanted.order === 'newest';
    const walkOf = (letter: Letter): Walk => {
      const { first, last } = bounds[letter];
      const from = wanted.cursor?.[letter] ?? (isNewest ? last + 1 : first - 1);
      const read = (seq: number, count: number): Promise<Stored[] | Failed> =>
        isNewest
          ? this.#back(streamOf(letter), seq, count, first)
          : this.#bus.history(streamOf(letter), this.#pattern, count, Math.max(first, seq));
      return new Walk(
        letter,
        isNewest ? Math.min(from, last + 1) : Math.max(from, first - 1),
        isNewest ? first : last,
        isNewest ? -1 : 1,
        read,
      );
    };
    const walks = [walkOf('a'), walkOf('r')];
    const entries: Kept[] = [];
    let looked = 0;
    let isOver = false;
    while (entries.length < wanted.limit && looked < MAX_LOOKED) {
      const heads = await Promise.all(walks.map((walk) => walk.head()));
      const failed = heads.find((head): head is Failed => head !== null && 'failed' in head);
      if (failed !== undefined) return failed;
      const at = (i: number): number => (heads[i] as Stored | null)?.timestampMs ?? (isNewest ? -1 : Number.MAX_VALUE);
      const i = isNewest ? (at(0) >= at(1) ? 0 : 1) : at(0) <= at(1) ? 0 : 1;
      const stored = heads[i] as Stored | null | undefined;
      if (stored == null || (isNewest ? stored.timestampMs < wanted.sinceMs : stored.timestampMs > wanted.untilMs)) {
        isOver = true;
        break;
      }
      const walk = walks[i] as Walk;
      walk.take();
      looked++;
      if (stored.timestampMs < wanted.sinceMs || stored.timestampMs > wanted.untilMs) continue;
      const kept = keptOf(walk.letter, stored);
      if (kept !== null && fits(kept.entry, wanted)) entries.push(kept);
    }
    const end: Cursor = { a: (walks[0] as Walk).at, r: (walks[1] as Walk).at };
    return { entries, next: isOver ? null : end, end, looked };
  }

  /** Newest first: `count` entries from below `seq`, each asked for by its own position, many at a time. */
  async #back(stream: string, seq: number, count: number, first: number): Promise<Stored[] | Failed> {
    const seqs: number[] = [];
    for (let each = seq; each > seq - count && each >= first; each--) seqs.push(each);
    const found = await Promise.all(seqs.map((each) => this.#bus.history(stream, this.#pattern, 1, each)));
    const block: Stored[] = [];
    for (const [i, one] of found.entries()) {
      if ('failed' in one) return one;
      const [stored] = one;
      if (stored !== undefined && stored.seq === seqs[i]) block.push(stored);
    }
    return block;
  }

  async #bounds(): Promise<Record<Letter, { readonly first: number; readonly last: number }> | Failed> {
    const [a, r] = await Promise.all([this.#bus.stream(AUDIT_STREAM), this.#bus.stream(REFUSED_STREAM)]);
    for (const each of [a, r]) if (each !== null && 'failed' in each) return each;
    const of = (facts: typeof a): { first: number; last: number } =>
      facts === null || 'failed' in facts ? { first: 1, last: 0 } : { first: Math.max(1, facts.firstSeq), last: facts.lastSeq };
    return { a: of(a), r: of(r) };
  }
}

/** Goes through one stream, a block at a time. */
class Walk {
  readonly letter: Letter;
  /** The last one that was taken; before the first one, its neighbour on the other side. */
  at: number;
  readonly #last: number;
  readonly #step: 1 | -1;
  readonly #read: (seq: number, count: number) => Promise<Stored[] | Failed>;
  #block: Stored[] = [];
  #isOver = false;

  constructor(letter: Letter, at: number, last: number, step: 1 | -1, read: (seq: number, count: number) => Promise<Stored[] | Failed>) {
    this.letter = letter;
    this.at = at;
    this.#last = last;
    this.#step = step;
    this.#read = read;
  }

  async head(): Promise<Stored | null | Failed> {
    while (this.#block.length === 0 && !this.#isOver) {
      const next = this.at + this.#step;
      if (this.#step < 0 ? next < this.#last : next > this.#last) {
        this.#isOver = true;
        break;
      }
      const read = await this.#read(next, BLOCK);
      if ('failed' in read) return read;
      // Nothing left of a whole block: what is kept may begin further on.
      if (read.length === 0 && this.#step < 0) this.at = Math.max(this.#last, this.at - BLOCK);
      if (read.length === 0 && (this.#step > 0 || this.at <= this.#last)) this.#isOver = true;
      this.#block = read;
    }
    return this.#block[0] ?? null;
  }

  take(): void {
    const stored = this.#block.shift();
    if (stored !== undefined) this.at = stored.seq;
  }
}

function keptOf(letter: Letter, stored: Stored): Kept | null {
  const entry = readEntry(stored.data.toString('utf8'));
  return entry === null ? null : { id: `${letter}${stored.seq}`, storedAtMs: stored.timestampMs, entry };
}

function streamOf(letter: Letter): string {
  return letter === 'a' ? AUDIT_STREAM : REFUSED_STREAM;
}

function fits(entry: AuditRecord, { actor, action, subject, outcome }: Wanted): boolean {
  return (
    like(entry.actor, actor) &&
    like(entry.action, action) &&
    like(entry.subject, subject) &&
    (outcome === null || entry.outcome === outcome)
  );
}

function like(text: string, wanted: string | null): boolean {
  if (wanted === null) return true;
  return wanted.endsWith('*') ? text.startsWith(wanted.slice(0, -1)) : text === wanted;
}

export function cursorText({ a, r }: Cursor): string {
  return `${a}.${r}`;
}

export function readCursor(text: string): Cursor | null {
  const [, a, r] = /^(\d{1,15})\.(\d{1,15})$/.exec(text) ?? [];
  return a === undefined || r === undefined ? null : { a: Number(a), r: Number(r) };
}
