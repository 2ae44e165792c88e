/**
 * Whether the chains of an audit log hold: the entries of each writer are numbered without a gap and each carries the hash of
 * the one before. Works on what was read or exported, wherever that is done, so that the one who checks need not believe the
 * server. The beginning of a chain may be gone by age; what was cut off at its end shows only against the log of its writer,
 * where number and hash of each entry stand.
 */
import { type AuditRecord, entryHash, entryText } from '../../proto/wire/audit.ts';

export interface ChainFacts {
  readonly writer: string;
  readonly log: 'acts' | 'refusals';
  readonly entries: number;
  readonly first: number;
  readonly last: number;
  /** Of its last entry: to be held against the log of its writer. */
  readonly hash: string;
}

const MAX_PROBLEMS = 1_000;

export class ChainCheck {
  readonly problems: string[] = [];
  readonly #chains = new Map<string, ChainFacts>();
  entries = 0;

  /** Oldest first, as they stand in their stream. */
  add(id: string, entry: AuditRecord): void {
    this.entries++;
    const log = id.startsWith('a') ? 'acts' : 'refusals';
    const key = `${log} ${entry.writer}`;
    const before = this.#chains.get(key) ?? null;
    const where = `${id} (entry ${entry.n} of ${entry.writer})`;
    if (before === null) {
      if (entry.n === 1 && entry.prev !== '') this.#problem(`${where} says that it is the first one and that another stands before it`);
    } else if (entry.n !== before.last + 1) {
      const gone = entry.n - before.last - 1;
      this.#problem(
        gone > 0
          ? `${where} follows entry ${before.last}: ${gone} ${gone === 1 ? 'entry is' : 'entries are'} missing between them`
          : `${where} follows entry ${before.last}: the numbers go back`,
      );
    } else if (entry.prev !== before.hash)
      this.#problem(`${where} does not follow from entry ${before.last}: that one was changed or replaced`);
    const hash = entryHash(entryText(entry, entry.n, entry.prev));
    const facts: ChainFacts = {
      writer: entry.writer,
      log,
      entries: (before?.entries ?? 0) + 1,
      first: before?.first ?? entry.n,
      last: entry.n,
      hash,
    };
    this.#chains.set(key, facts);
  }

  chains(): readonly ChainFacts[] {
    return [...this.#chains.values()];
  }

  #problem(words: string): void {
    if (this.problems.length < MAX_PROBLEMS) this.problems.push(words);
    else if (this.problems.length === MAX_PROBLEMS) this.problems.push('and more');
  }
}
