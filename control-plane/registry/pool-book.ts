/**
 * The pools that senders use, and what follows for each sidecar: on which of them which of its agents work (SPEC R9.9).
 * Kept up to date capability by capability, like the scopes. Pure state; who stores it, and when a partition's new owner
 * counts, is decided outside: an owner counts when the consumer that fences the old one is there.
 */
import type { ProviderRecord } from '../../proto/language/types.ts';
import { type Pool, PARTITIONS, type PoolState, type WorkPool } from '../../proto/wire/messages.ts';
import type { Partition } from './sticky.ts';
import type { Worker } from './workers.ts';

/** Eligible for all that is in a pool, or for nothing of it. */
export function isEligible(pool: Pool, { agentId, role, tags, target, offers }: ProviderRecord): boolean {
  if (pool.agent !== null && pool.agent !== agentId) return false;
  if (pool.role !== null && pool.role !== role && !Object.hasOwn(tags, pool.role)) return false;
  if (!offers.some(({ name, version }) => name === pool.capability && (pool.version === null || pool.version === version))) return false;
  // A provider that is fit for certain tags only gets nothing that does not say them.
  for (const name of Object.keys(target)) if (!Object.hasOwn(pool.tags, name) || pool.tags[name] !== target[name]) return false;
  return true;
}

const UNOWNED: Partition = Object.freeze({ owner: '', term: 0 });
const NONE: readonly string[] = [];

export class PoolEntry {
  readonly pool: Pool;
  /** In the names of its consumers; '' = none. */
  secret: string;
  partitions: Partition[];
  /** Sidecar to its eligible agents, by agent id. */
  workers: ReadonlyMap<string, readonly string[]> = new Map();
  /** `clock.now()` when it was asked for last. */
  usedAt: number;
  /** `clock.now()` since when there has been somebody to own its partitions; null = there is nobody. */
  eligibleSince: number | null = null;

  constructor(pool: Pool, partitions: readonly Partition[], now: number, secret: string) {
    this.pool = pool;
    this.secret = secret;
    this.partitions = pool.sticky ? Array.from({ length: PARTITIONS }, (_, i) => partitions[i] ?? UNOWNED) : [];
    this.usedAt = now;
  }

  get agents(): string[] {
    return [...this.workers.values()].flat();
  }

  hostOf(agent: string): string | null {
    for (const [sidecar, agents] of this.workers) if (agents.includes(agent)) return sidecar;
    return null;
  }

  state(wire: number, epoch: string): PoolState {
    const secret = this.secret === '' ? null : { secret: this.secret };
    return { wire, epoch, pool: this.pool, partitions: this.partitions, ...secret };
  }
}

export class PoolBook {
  readonly #workersOf: (capability: string) => readonly Worker[];
  readonly #pools = new Map<string, PoolEntry>();
  readonly #byCapability = new Map<string, Set<PoolEntry>>();
  readonly #bySidecar = new Map<string, Set<PoolEntry>>();
  #dirty = new Set<string>();

  constructor(workersOf: (capability: string) => readonly Worker[]) {
    this.#workersOf = workersOf;
  }

  get size(): number {
    return this.#pools.size;
  }

  get(id: string): PoolEntry | undefined {
    return this.#pools.get(id);
  }

  all(): IterableIterator<PoolEntry> {
    return this.#pools.values();
  }

  add(pool: Pool, partitions: readonly Partition[], now: number, secret = ''): PoolEntry {
    const known = this.#pools.get(pool.id);
    if (known !== undefined) return known;
    const entry = new PoolEntry(pool, partitions, now, secret);
    this.#pools.set(pool.id, entry);
    const same = this.#byCapability.get(pool.capability) ?? new Set();
    this.#byCapability.set(pool.capability, same.add(entry));
    this.#employ(entry, this.#workersOf(pool.capability), now);
    return entry;
  }

  remove(entry: PoolEntry): void {
    this.#pools.delete(entry.pool.id);
    const same = this.#byCapability.get(entry.pool.capability);
    same?.delete(entry);
    if (same?.size === 0) this.#byCapability.delete(entry.pool.capability);
    for (const sidecar of entry.workers.keys()) this.#unlink(sidecar, entry);
  }

  /** Who offers these has changed. */
  touch(capabilities: Iterable<string>, now: number): void {
    for (const name of capabilities) {
      const entries = this.#byCapability.get(name);
      if (entries === undefined) continue;
      const workers = this.#workersOf(name);
      for (const entry of entries) this.#employ(entry, workers, now);
    }
  }

  touchAll(now: number): void {
    this.touch([...this.#byCapability.keys()], now);
  }

  /** A partition has another owner, or its owner another process, and the consumer of this term is there. */
  own(entry: PoolEntry, index: number, owner: string, term: number, host: string): void {
    const before = entry.partitions[index] ?? UNOWNED;
    entry.partitions = entry.partitions.with(index, { owner, term, host });
    for (const agent of [before.owner, owner]) {
      const sidecar = entry.hostOf(agent);
      if (sidecar !== null) this.#dirty.add(sidecar);
    }
  }

  /** Its consumers are called otherwise from now on. */
  rename(entry: PoolEntry, secret: string): void {
    entry.secret = secret;
    for (const sidecar of entry.workers.keys()) this.#dirty.add(sidecar);
  }

  /** Sidecars whose work has changed since this was asked last. */
  takeDirty(): string[] {
    const dirty = [...this.#dirty].sort();
    this.#dirty = new Set();
    return dirty;
  }

  markDirty(sidecars: Iterable<string>): void {
    for (const each of sidecars) this.#dirty.add(each);
  }

  sidecars(): string[] {
    return [...this.#bySidecar.keys()].sort();
  }

  /** By pool id. */
  work(sidecar: string): WorkPool[] {
    const entries = [...(this.#bySidecar.get(sidecar) ?? [])].sort((a, b) => (a.pool.id < b.pool.id ? -1 : 1));
    return entries.map(({ pool, workers, partitions, secret }) => {
      const agents = workers.get(sidecar) ?? NONE;
      return {
        pool,
        ...(secret === '' ? null : { secret }),
        agents,
        partitions: partitions.flatMap((each, index) => (agents.includes(each.owner) ? [{ index, ...each }] : [])),
      };
    });
  }

  #employ(entry: PoolEntry, workers: readonly Worker[], now: number): void {
    const eligible = new Map<string, string[]>();
    for (const { agent, sidecar, record } of workers) {
      if (!isEligible(entry.pool, record)) continue;
      const agents = eligible.get(sidecar);
      if (agents === undefined) eligible.set(sidecar, [agent]);
      else agents.push(agent);
    }
    const before = entry.workers;
    entry.workers = eligible;
    entry.eligibleSince = eligible.size === 0 ? null : (entry.eligibleSince ?? now);
    for (const sidecar of before.keys()) if (!eligible.has(sidecar)) this.#unlink(sidecar, entry);
    for (const [sidecar, agents] of eligible) {
      if (!sameNames(before.get(sidecar) ?? NONE, agents)) this.#dirty.add(sidecar);
      const entries = this.#bySidecar.get(sidecar);
      if (entries === undefined) this.#bySidecar.set(sidecar, new Set([entry]));
      else entries.add(entry);
    }
  }

  #unlink(sidecar: string, entry: PoolEntry): void {
    this.#dirty.add(sidecar);
    const entries = this.#bySidecar.get(sidecar);
    entries?.delete(entry);
    if (entries?.size === 0) this.#bySidecar.delete(sidecar);
  }
}

function sameNames(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((name, i) => name === b[i]);
}
