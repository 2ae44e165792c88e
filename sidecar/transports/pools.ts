/**
 * The pools of one adapter, by origin, bounded: an origin that no candidate names any more keeps no socket (idle ones
 * close by themselves) and its pool goes when room is needed. `prepare` asks for a pool once per candidate; per call
 * only `use` is paid.
 */
import type { Destination } from './destinations.ts';
import { Pool, type PoolSettings } from './pool.ts';

/** Origins kept at most, as long as some are idle. */
const MAX_POOLS = 512;

export class Pools {
  readonly #settings: PoolSettings;
  readonly #maxPools: number;
  readonly #destination: Destination | null;
  readonly #byOrigin = new Map<string, Pool>();
  readonly #closing = new Set<Promise<void>>();
  #uses = 0;
  #closed = false;

  /** @param destination judges where connections lead; null = they are not judged. */
  constructor(settings: PoolSettings, maxPools = MAX_POOLS, destination: Destination | null = null) {
    this.#settings = settings;
    this.#destination = destination;
    this.#maxPools = maxPools;
  }

  get size(): number {
    return this.#byOrigin.size;
  }

  /** Connections open or being opened, over all origins. */
  get openSockets(): number {
    let open = 0;
    for (const pool of this.#byOrigin.values()) open += pool.sockets.size;
    return open;
  }

  /** @param peer the sidecar that has to be there, where the settings have secure connections. Throws for an address that cannot be called as it is written: a bad configuration. */
  for(url: URL, peer = ''): Pool {
    if (url.protocol !== 'http:' && url.protocol !== 'https:')
      throw new Error(`an address begins with http:// or https://, not ${url.protocol}`);
    if (url.username !== '' || url.password !== '') throw new Error('an address holds no user and password: name a credential instead');
    const key = keyOf(url.origin, peer);
    const known = this.#byOrigin.get(key);
    if (known !== undefined) return known;
    const pool = new Pool(url, this.#destination, this.#settings, peer);
    if (this.#closed) pool.closed = true;
    else {
      if (this.#byOrigin.size >= this.#maxPools) this.#evict();
      this.#byOrigin.set(key, pool);
    }
    return pool;
  }

  /** Marks a use; an evicted pool is replaced by the one in force (a candidate may outlive its pool). */
  use(pool: Pool, url: URL): Pool {
    const current = pool.closed && !this.#closed ? this.for(url, pool.peer) : pool;
    current.usedAt = ++this.#uses;
    return current;
  }

  async close(): Promise<void> {
    this.#closed = true;
    const pools = [...this.#byOrigin.values()];
    this.#byOrigin.clear();
    await Promise.all([...this.#closing, ...pools.map((pool) => pool.close())]);
  }

  #evict(): void {
    let oldest: Pool | null = null;
    for (const pool of this.#byOrigin.values()) {
      if (pool.isIdle && (oldest === null || pool.usedAt < oldest.usedAt)) oldest = pool;
    }
    if (oldest === null) return;
    this.#byOrigin.delete(keyOf(oldest.origin, oldest.peer));
    const closing = oldest.close();
    this.#closing.add(closing);
    void closing.then(() => this.#closing.delete(closing));
  }
}

/** Two sidecars may have had one address, one after the other. */
function keyOf(origin: string, peer: string): string {
  return peer === '' ? origin : `${origin} ${peer}`;
}
