/**
 * The quotas that hold at one moment, by what they cover. Of several that cover one name the most exact one counts, for
 * each kind of limit by itself: a quota of one agent that says nothing of messages leaves in force what its team's says.
 */
import { exactness, isCovered, MAX_QUOTAS, type Quota, type QuotaKind, type QuotaRate, quotaKey } from '../../proto/wire/quotas.ts';

/** Counts of one quota; they outlive a change of it. */
export class Tally {
  readonly kind: QuotaKind;
  readonly target: string;
  taken = 0;
  refused = 0;
  constructor(kind: QuotaKind, target: string) {
    this.kind = kind;
    this.target = target;
  }
}

/** One limit, and whose it is. */
export class Limit<T> {
  readonly key: string;
  readonly value: T;
  readonly tally: Tally;
  constructor(key: string, value: T, tally: Tally) {
    this.key = key;
    this.value = value;
    this.tally = tally;
  }
}

class Entry {
  readonly quota: Quota;
  readonly segments: readonly string[];
  readonly tally: Tally;
  constructor(quota: Quota, tally: Tally) {
    this.quota = quota;
    this.segments = quota.target.split('.');
    this.tally = tally;
  }
}

export class QuotaSet {
  readonly #byKind: Readonly<Record<QuotaKind, Entry[]>> = { agent: [], capability: [], provider: [] };

  /** @param tallies of the set before; those of quotas that are gone are taken out. */
  constructor(quotas: readonly Quota[], tallies: Map<string, Tally>) {
    const keys = new Set<string>();
    for (const quota of quotas.slice(0, MAX_QUOTAS)) {
      const key = quotaKey(quota.kind, quota.target);
      keys.add(key);
      let tally = tallies.get(key);
      if (tally === undefined) {
        tally = new Tally(quota.kind, quota.target);
        tallies.set(key, tally);
      }
      this.#byKind[quota.kind].push(new Entry(quota, tally));
    }
    for (const key of tallies.keys()) if (!keys.has(key)) tallies.delete(key);
    for (const list of Object.values(this.#byKind)) list.sort((a, b) => exactness(b.segments) - exactness(a.segments));
  }

  has(kind: QuotaKind): boolean {
    return this.#byKind[kind].length > 0;
  }

  calls(kind: QuotaKind, name: string): Limit<QuotaRate> | null {
    const entry = this.#find(kind, name, ({ calls }) => calls !== null);
    return entry === null ? null : limitOf(entry, entry.quota.calls as QuotaRate);
  }

  messages(agent: string): Limit<QuotaRate> | null {
    const entry = this.#find('agent', agent, ({ messages }) => messages !== null);
    return entry === null ? null : limitOf(entry, entry.quota.messages as QuotaRate);
  }

  inFlight(kind: QuotaKind, name: string): Limit<number> | null {
    const entry = this.#find(kind, name, ({ inFlight }) => inFlight !== null);
    return entry === null ? null : limitOf(entry, entry.quota.inFlight as number);
  }

  #find(kind: QuotaKind, name: string, says: (quota: Quota) => boolean): Entry | null {
    const list = this.#byKind[kind];
    if (list.length === 0) return null;
    const segments = name.split('.');
    for (const entry of list) if (says(entry.quota) && isCovered(entry.segments, segments)) return entry;
    return null;
  }
}

function limitOf<T>({ quota, tally }: Entry, value: T): Limit<T> {
  return new Limit(quotaKey(quota.kind, quota.target), value, tally);
}
