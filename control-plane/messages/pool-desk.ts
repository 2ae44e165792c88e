/**
 * Pools while this replica leads: a sender names one (`ctl.pool`), it gets its consumers, is stored for the next leader,
 * and the sidecars whose agents work on it are told (`work.<sidecar>`), also whenever those agents change. Partitions of
 * sticky pools are given owners here. Everything is derived again when a reign begins; only the pools and the owners of
 * partitions are stored.
 */
import type { Timer } from '../../base/clock.ts';
import { unguessable } from '../../base/unguessable.ts';
import { POOL_SECRET, type Pool, type PoolAnswer, type PoolState, type WorkPool, type WorkState } from '../../proto/wire/messages.ts';
import { poolWords } from '../../proto/wire/pool.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { Tail, TASK_STREAM } from '../../proto/wire/subjects.ts';
import { PoolBook, type PoolEntry } from '../registry/pool-book.ts';
import { assign, keepsOwnership } from '../registry/sticky.ts';
import type { Change as Message, Written } from '../push/writer.ts';
import type { MessageParts } from './parts.ts';
import { PoolConsumers } from './pool-consumers.ts';
import { readPool } from './pool-request.ts';

/** What changes together is written together. */
const FLUSH_MS = 30;
/** A long list of agents that grows one by one is not written each time. */
const LARGE_BYTES = 65_536;
const LARGE_FLUSH_MS = 1_000;
const RETRY_MS = 1_000;
/** Below what a server takes in one message (1 MiB). */
const MAX_WORK_BYTES = 786_432;
/** So long after the first agent came, the others that start with it have come too, and partitions can be shared out. */
const SETTLE_MS = 1_000;
/** Pools that are made at a time. */
const AT_ONCE = 16;
/** As `POOL_SECRET` has them. */
const SECRET_LETTERS = 26;
/** A pool that nobody works on and nobody has named for so long may make room for another one. */
const UNUSED_MS = 1_800_000;

export class PoolDesk {
  readonly book: PoolBook;
  readonly consumers: PoolConsumers;
  readonly #parts: MessageParts;
  /** Pools whose consumers are known to be there. */
  readonly #ready = new Set<string>();
  readonly #making = new Map<string, Promise<PoolAnswer>>();
  /** Of pools that are being made, so that a second attempt makes the same consumers. */
  readonly #minted = new Map<string, string>();
  /** Entries whose partitions are being given owners, or whose consumers get other names. */
  readonly #moving = new Set<PoolEntry>();
  #atWork = 0;
  readonly #waiting: (() => void)[] = [];
  /** Pools to be written, with the write that takes them, and the one before it. */
  readonly #unstored = new Set<PoolEntry>();
  #storing: Promise<Written> | null = null;
  #written: Promise<void> = Promise.resolve();
  /** Capabilities whose agents have changed since the book was last brought up to date. */
  #touched = new Set<string>();
  #timer: Timer | null = null;
  #isClosed = false;

  constructor(parts: MessageParts) {
    this.#parts = parts;
    this.book = new PoolBook((capability) => parts.registry().workersOf(capability));
    this.consumers = new PoolConsumers(parts);
    this.#load();
  }

  /** The registry is another one (an import). */
  reload(): void {
    this.book.touchAll(this.#parts.clock.now());
    this.#flushIn(0);
  }

  changed(capabilities: Iterable<string>): void {
    for (const name of capabilities) this.#touched.add(name);
    this.#flushIn(FLUSH_MS);
  }

  /** What has changed is worked out when it is needed, so that a crowd that registers costs once and not once each. */
  #settle(): void {
    if (this.#touched.size === 0) return;
    const touched = this.#touched;
    this.#touched = new Set();
    this.book.touch(touched, this.#parts.clock.now());
  }

  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
  }

  // ---- pools

  /** Answers once its consumers are there and whoever works on it has been told. */
  async use(pool: Pool): Promise<PoolAnswer> {
    const known = this.book.get(pool.id);
    if (known !== undefined) known.usedAt = this.#parts.clock.now();
    if (known !== undefined && this.#ready.has(pool.id)) return OK;
    let making = this.#making.get(pool.id);
    if (making === undefined) {
      making = this.#inTurn(pool).finally(() => this.#making.delete(pool.id));
      this.#making.set(pool.id, making);
    }
    return making;
  }

  /** Some at a time: the server makes consumers one after another, and a request that waits behind hundreds runs out. */
  async #inTurn(pool: Pool): Promise<PoolAnswer> {
    if (this.#atWork >= AT_ONCE) await new Promise<void>((turn) => this.#waiting.push(turn));
    this.#atWork++;
    try {
      return this.#isClosed ? refused('this replica leads no longer') : await this.#make(pool);
    } finally {
      this.#atWork--;
      this.#waiting.shift()?.();
    }
  }

  async #make(pool: Pool): Promise<PoolAnswer> {
    const { clock, config, logger } = this.#parts;
    if (this.book.get(pool.id) === undefined && this.book.size >= config.pools && !(await this.#makeRoom()))
      return refused(
        `there are ${this.book.size} pools, which is as many as are kept (control_plane.messages.pools), and each is in use: ${poolWords(pool)} gets none`,
      );
    const secret = this.#secretOf(pool.id);
    const problem = pool.sticky ? null : await this.consumers.lanes(pool, secret);
    if (problem !== null) return refused(`the consumers of ${poolWords(pool)} cannot be made: ${problem}`);
    if (this.#isClosed) return refused('this replica leads no longer');
    const isNew = this.book.get(pool.id) === undefined;
    // Others were made meanwhile; the consumers are taken away by the next check.
    if (isNew && this.book.size >= config.pools) return refused('there are as many pools as are kept (control_plane.messages.pools)');
    const entry = this.book.add(pool, [], clock.now(), secret);
    this.#minted.delete(pool.id);
    if (isNew) logger.info({ pool: pool.id, agents: entry.agents.length }, `a new pool: ${poolWords(pool)}`);
    const written = await this.#store(entry);
    if (!written.ok) return refused(`not written: ${written.why}; ask again`);
    this.#ready.add(pool.id);
    return OK;
  }

  #secretOf(id: string): string {
    const known = this.book.get(id)?.secret ?? this.#minted.get(id);
    if (known !== undefined) return known;
    const secret = this.#parts.registry().isEveryoneNamed() ? unguessable(SECRET_LETTERS) : '';
    this.#minted.set(id, secret);
    return secret;
  }

  /** Gives up the pool that has been unused for longest. */
  async #makeRoom(): Promise<boolean> {
    this.#settle();
    const { bus, clock, subjects, logger } = this.#parts;
    const unused = [...this.book.all()]
      .filter((entry) => entry.workers.size === 0 && clock.now() - entry.usedAt > UNUSED_MS)
      .sort((a, b) => a.usedAt - b.usedAt);
    for (const entry of unused) {
      const waiting = await bus.subjects(TASK_STREAM, `${subjects.tasks.slice(0, -1)}${entry.pool.id}.>`);
      if ('failed' in waiting || waiting.size > 0) continue;
      logger.info({ pool: entry.pool.id }, `nobody uses the pool any more: ${poolWords(entry.pool)}`);
      this.book.remove(entry);
      this.#ready.delete(entry.pool.id);
      await this.consumers.remove(entry);
      await this.#parts.write([
        {
          tail: Tail.pool(entry.pool.id),
          text: JSON.stringify({ wire: REGISTRY_WIRE, epoch: this.#parts.epoch, pool: null, partitions: [] }),
        },
      ]);
      return true;
    }
    return false;
  }

  /** What the server lost is made anew. A sentence when it could not be. */
  async check(): Promise<string | null> {
    const problem = await this.consumers.check(this.book.all(), (id) => {
      const entry = this.book.get(id);
      return this.#making.has(id) || (entry !== undefined && this.#moving.has(entry));
    });
    if (problem === null) for (const { pool } of this.book.all()) this.#ready.add(pool.id);
    return problem;
  }

  /** The stream was made anew: no consumer is there. */
  forgetConsumers(): void {
    this.#ready.clear();
  }

  // ---- partitions

  /** Gives owners to partitions that have none any more. Called now and then. */
  async share(): Promise<void> {
    if (this.#parts.isHeld()) return;
    this.#settle();
    const sticky = [...this.book.all()].filter((entry) => entry.pool.sticky && !this.#moving.has(entry));
    await Promise.all(sticky.map((entry) => this.#shareOne(entry)));
    await this.#renameSome();
  }

  /**
   * A sidecar of the version before knows no names with a secret: where one works, there is none. When the last one is gone, all
   * pools get one. What was in hand then is given out anew, which the ledger makes harmless.
   */
  async #renameSome(): Promise<void> {
    const registry = this.#parts.registry();
    const isEveryoneNamed = registry.isEveryoneNamed();
    for (const entry of this.book.all()) {
      if (this.#isClosed) return;
      const isOld = (sidecar: string): boolean => registry.isUnnamed(sidecar);
      const secret =
        entry.secret !== '' && [...entry.workers.keys()].some(isOld)
          ? ''
          : entry.secret === '' && isEveryoneNamed
            ? unguessable(SECRET_LETTERS)
            : null;
      if (secret === null || this.#moving.has(entry) || this.#making.has(entry.pool.id)) continue;
      this.#moving.add(entry);
      this.#ready.delete(entry.pool.id);
      const problem = await this.consumers.rename(entry, secret);
      this.#moving.delete(entry);
      if (problem !== null) {
        this.#parts.logger.warn({ pool: entry.pool.id }, `its consumers cannot be named anew yet: ${problem}`);
        return;
      }
      this.book.rename(entry, secret);
      this.#ready.add(entry.pool.id);
      this.#parts.logger.info({ pool: entry.pool.id, secret: secret !== '' }, `the consumers of ${poolWords(entry.pool)} have other names`);
      await this.#store(entry);
    }
  }

  async #shareOne(entry: PoolEntry): Promise<void> {
    const moves = this.#movesOf(entry);
    if (moves.length === 0) return;
    this.#moving.add(entry);
    let isMoved = false;
    for (const { index, owner } of moves) {
      const term = (entry.partitions[index]?.term ?? 0) + 1;
      const problem = await this.consumers.partition(entry, index, term);
      if (this.#isClosed) return;
      if (problem !== null) {
        this.#parts.logger.warn({ pool: entry.pool.id, partition: index }, `the partition gets no owner yet: ${problem}`);
        break;
      }
      this.book.own(entry, index, owner, term, this.#processOf(entry, owner) ?? '');
      isMoved = true;
    }
    this.#moving.delete(entry);
    if (!isMoved) return;
    const owners = entry.partitions.map(({ owner }) => owner);
    this.#parts.logger.info({ pool: entry.pool.id, owners }, `partitions of ${poolWords(entry.pool)} have owners`);
    this.#settle();
    await this.#store(entry);
  }

  #movesOf(entry: PoolEntry): { readonly index: number; readonly owner: string }[] {
    const { clock, config, registry } = this.#parts;
    const isFresh = entry.eligibleSince === null || clock.now() - entry.eligibleSince < SETTLE_MS;
    if (isFresh && entry.partitions.every(({ owner }) => owner === '')) return [];
    const agents = entry.agents;
    const eligible = new Set(agents);
    const book = registry();
    const moves = assign(entry.partitions, agents, (owner) =>
      keepsOwnership(book.presenceOf(owner), eligible.has(owner), clock.wallMs(), config.stickyGraceMs),
    );
    const moved = new Set(moves.map(({ index }) => index));
    for (const [index, { owner, host }] of entry.partitions.entries()) {
      const process = owner === '' || moved.has(index) ? null : this.#processOf(entry, owner);
      // An owner that moves house, or whose sidecar was started anew, is another one as far as fencing goes: the process that had it must
      // not go on beside the new one, and what that one had in hand comes again in its order only by a consumer that begins anew.
      if (process !== null && process !== host) moves.push({ index, owner });
    }
    return moves;
  }

  #processOf(entry: PoolEntry, owner: string): string | null {
    const host = entry.hostOf(owner);
    return host === null ? null : this.#parts.registry().processOf(host);
  }

  // ---- what is stored and pushed

  #load(): void {
    const { mirror, clock, logger } = this.#parts;
    for (const tail of mirror.tails('pool.')) {
      const state = mirror.state<PoolState>(tail);
      if (state === null || state.pool === null) continue;
      const read = readPool(state.pool);
      if ('problem' in read) {
        logger.error({ tail }, `a stored pool cannot be read, and is left out: ${read.problem}`);
        continue;
      }
      const secret = typeof state.secret === 'string' && POOL_SECRET.test(state.secret) ? state.secret : '';
      this.book.add(read.pool, Array.isArray(state.partitions) ? state.partitions : [], clock.now(), secret);
    }
    const told = mirror.tails('work.').map((tail) => tail.slice('work.'.length));
    this.book.markDirty(told);
    this.#flushIn(0);
  }

  /**
   * Writes a pool, and the work that follows from it. What comes while something is being written goes out together after it:
   * a work message holds all pools of a sidecar, and a crowd of new ones would write it once for each.
   */
  #store(entry: PoolEntry): Promise<Written> {
    this.#unstored.add(entry);
    this.#storing ??= this.#written.then(() => this.#storeAll());
    return this.#storing;
  }

  async #storeAll(): Promise<Written> {
    this.#storing = null;
    const entries = [...this.#unstored];
    this.#unstored.clear();
    this.#settle();
    const dirty = this.book.takeDirty();
    const writing = this.#parts.write([...entries.map((entry) => this.#poolMessage(entry)), ...this.#workMessages(dirty)]);
    this.#written = writing.then(ignored);
    const written = await writing;
    if (!written.ok) {
      this.book.markDirty(dirty);
      for (const entry of entries) this.#unstored.add(entry);
      this.#flushIn(RETRY_MS);
    }
    return written;
  }

  #flushIn(delayMs: number): void {
    if (this.#isClosed) return;
    this.#timer ??= this.#parts.clock.after(delayMs, () => {
      this.#timer = null;
      void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    if (this.#parts.isHeld()) return this.#flushIn(RETRY_MS);
    if (this.#unstored.size > 0) return void (await this.#store([...this.#unstored][0] as PoolEntry));
    this.#settle();
    const dirty = this.book.takeDirty();
    const messages = this.#workMessages(dirty);
    if (messages.length === 0) return;
    const isLarge = messages.some(({ text }) => text.length > LARGE_BYTES);
    const written = await this.#parts.write(messages);
    if (!written.ok) this.book.markDirty(dirty);
    if (!written.ok || isLarge) this.#flushIn(written.ok ? LARGE_FLUSH_MS : RETRY_MS);
  }

  #poolMessage(entry: PoolEntry): Message {
    return { tail: Tail.pool(entry.pool.id), text: JSON.stringify(entry.state(REGISTRY_WIRE, this.#parts.epoch)) };
  }

  #workMessages(sidecars: readonly string[]): Message[] {
    const messages: Message[] = [];
    for (const sidecar of sidecars) {
      const tail = Tail.work(sidecar);
      const text = this.#workText(this.book.work(sidecar));
      const latest = this.#parts.latest(tail);
      // Who never had work is not told that there is none.
      if (latest !== text && !(latest === null && this.book.work(sidecar).length === 0)) messages.push({ tail, text });
    }
    return messages;
  }

  /** A list of agents that is too long is cut: fewer agents get work, and none is lost. */
  #workText(pools: readonly WorkPool[]): string {
    const { epoch, logger } = this.#parts;
    const textOf = (list: readonly WorkPool[]): string => {
      const state: WorkState = { wire: REGISTRY_WIRE, epoch, pools: list };
      return JSON.stringify(state);
    };
    let text = textOf(pools);
    for (let most = 4_096; Buffer.byteLength(text) > MAX_WORK_BYTES && most >= 1; most = Math.floor(most / 2)) {
      logger.warn({ agents_a_pool: most }, 'one sidecar has more agents in its pools than fit in a message: some of them get no messages');
      text = textOf(pools.map((each) => ({ ...each, agents: cut(each, most) })));
    }
    return text;
  }
}

function ignored(): void {}

const OK: PoolAnswer = Object.freeze({ wire: REGISTRY_WIRE, ok: true, why: '' });

function refused(why: string): PoolAnswer {
  return { wire: REGISTRY_WIRE, ok: false, why };
}

/** Owners of partitions stay. */
function cut({ agents, partitions }: WorkPool, most: number): string[] {
  const owners = new Set(partitions.map(({ owner }) => owner));
  return agents.filter((agent, i) => i < most || owners.has(agent));
}
