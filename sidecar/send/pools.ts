/**
 * The pools that this sidecar sends to: which one a message belongs to, who in the own table could work on it, and that its
 * consumers have been asked for. A pool is asked for once, and its first message waits a moment for the answer, since a
 * refusal (too many pools) should reach who sends. Without an answer the message goes out all the same: the stream takes
 * it, and it waits there until the control plane is back; asking goes on meanwhile.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { PARTITIONS, type Pool, type PoolAnswer } from '../../proto/wire/messages.ts';
import { poolId } from '../../proto/wire/pool.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { Candidate, Capability, Provider, Snapshot, Version } from '../table/snapshot.ts';

export interface PoolsParts {
  readonly bus: Pick<Bus, 'request' | 'onState' | 'connected'>;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly sidecar: string;
  readonly warn: (words: string) => void;
}

/** What makes one pool out of many; see `Pool`. */
export interface PoolAim {
  readonly capability: Capability | null;
  /** Of the pool: `capability` may not be in the table. */
  readonly name: string;
  readonly version: Version | null;
  readonly role: string | null;
  readonly agent: string | null;
  readonly tags: Readonly<Record<string, string>>;
}

/** A first message waits so long for the control plane's answer about its pool: with the wait for the stream, a caller has waited for seconds. */
const ANSWER_MS = 1_000;
const ASK_TIMEOUT_MS = 5_000;
const ASK_AGAIN_MS = 2_000;
const ASK_AGAIN_MOST_MS = 30_000;
/** A pool that is in use is asked for again so often: it may have been given up as unused, or lost with its stream. */
const REFRESH_MS = 600_000;
/** Pools that are kept here; made again from the message when one is needed later. Senders choose tags, so it is bounded. */
const KEEP = 4_096;
const NO_TAGS: Readonly<Record<string, string>> = Object.freeze({});
const NO_NAMES: readonly string[] = Object.freeze([]);

/** One pool as a sender uses it. */
export class SendPool {
  readonly pool: Pool;
  /** Subjects by lane; of a sticky pool by lane and partition. */
  readonly #subjects = new Map<string, readonly string[]>();
  /** Why the control plane will not have it; '' = it has it, or has not been heard yet. */
  refused = '';
  /** `clock.now()` of the last good answer; -Infinity = none. */
  answeredAt = Number.NEGATIVE_INFINITY;
  isAsking = false;
  tries = 0;
  /** Who waits for the first answer. */
  waiting: (() => void)[] | null = null;
  #table: Snapshot | null = null;
  #eligible: readonly Provider[] = [];

  constructor(pool: Pool, subjects: Subjects, sender: string) {
    this.pool = pool;
    const partitions = pool.sticky ? PARTITIONS : 1;
    for (const lane of ['high', 'normal', 'low'])
      this.#subjects.set(
        lane,
        Array.from({ length: partitions }, (_, partition) => subjects.task(pool.id, lane, partition, sender)),
      );
  }

  subject(lane: string, partition: number): string {
    return (this.#subjects.get(lane) as readonly string[])[partition] as string;
  }

  /** Somebody in the table could take it now. */
  hasSomebody(table: Snapshot): boolean {
    for (const provider of this.eligible(table)) if (!provider.health.offline) return true;
    return false;
  }

  /** Those in the table that may work on it and are not drained, online or not. */
  eligible(table: Snapshot): readonly Provider[] {
    if (this.#table === table) return this.#eligible;
    this.#table = table;
    const { pool } = this;
    const found: Provider[] = [];
    for (const version of table.capabilities.get(pool.capability)?.versions ?? []) {
      if (pool.version !== null && version.text !== pool.version) continue;
      for (const candidate of version.candidates)
        if (isEligible(candidate, pool) && !found.includes(candidate.provider)) found.push(candidate.provider);
    }
    this.#eligible = found;
    return found;
  }
}

/** The same question as the control plane answers when it says who works on a pool. */
function isEligible({ provider, drain }: Candidate, pool: Pool): boolean {
  const { record } = provider;
  // Nobody pulls for a third party: no sidecar has its slots.
  if (record.via === null || drain) return false;
  if (pool.agent !== null && record.agentId !== pool.agent) return false;
  // A tag of that name is a role as well.
  if (pool.role !== null && record.role !== pool.role && !Object.hasOwn(record.tags, pool.role)) return false;
  for (const name in record.target) if (!Object.hasOwn(pool.tags, name) || pool.tags[name] !== record.target[name]) return false;
  return true;
}

export class Pools {
  readonly #parts: PoolsParts;
  readonly #pools = new Map<string, SendPool>();
  /** Names that some provider's `target{}` asks for, by capability: what else a message is tagged with makes no other pool. */
  readonly #asked = new WeakMap<Capability, readonly string[]>();
  readonly #listener: { close(): void };
  readonly #timers = new Set<Timer>();
  #isClosed = false;

  constructor(parts: PoolsParts) {
    this.#parts = parts;
    this.#listener = parts.bus.onState(({ connected }) => {
      // What was asked before may be gone with the server.
      if (connected) for (const pool of this.#pools.values()) pool.answeredAt = Number.NEGATIVE_INFINITY;
    });
  }

  get size(): number {
    return this.#pools.size;
  }

  of(aim: PoolAim, sticky: boolean): SendPool {
    const tags = this.#tagsOf(aim);
    let key = `${aim.name}@${aim.version?.text ?? ''}`;
    if (aim.role !== null) key += `\nr${aim.role}`;
    if (aim.agent !== null) key += `\na${aim.agent}`;
    if (sticky) key += '\ns';
    if (tags !== NO_TAGS) for (const name in tags) key += `\n${name}=${tags[name]}`;
    const known = this.#pools.get(key);
    if (known !== undefined) return known;
    const { subjects, sidecar } = this.#parts;
    const what = { capability: aim.name, version: aim.version?.text ?? null, role: aim.role, agent: aim.agent, tags, sticky };
    const pool = new SendPool({ id: poolId(what), ...what }, subjects, sidecar);
    if (this.#pools.size >= KEEP) this.#pools.delete(this.#pools.keys().next().value as string);
    this.#pools.set(key, pool);
    return pool;
  }

  /** True = it is known to be there, or nobody can say now; ask `refused` after a wait. The usual case costs one comparison. */
  isKnown(pool: SendPool): boolean {
    const now = this.#parts.clock.now();
    if (now - pool.answeredAt < REFRESH_MS) return true;
    const isFirst = pool.answeredAt === Number.NEGATIVE_INFINITY && pool.tries === 0;
    this.#ask(pool);
    return !isFirst && pool.refused === '';
  }

  /** Until the control plane has answered about it, or a moment has passed. */
  answer(pool: SendPool): Promise<void> {
    if (!pool.isAsking || !this.#parts.bus.connected) return Promise.resolve();
    return new Promise((done) => {
      const timer = this.#after(ANSWER_MS, done);
      (pool.waiting ??= []).push(() => {
        this.#timers.delete(timer);
        timer.cancel();
        done();
      });
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#listener.close();
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
    for (const pool of this.#pools.values()) wake(pool);
  }

  #ask(pool: SendPool): void {
    if (pool.isAsking || this.#isClosed) return;
    pool.isAsking = true;
    void this.#request(pool);
  }

  async #request(pool: SendPool): Promise<void> {
    const { bus, subjects, clock, sidecar, warn } = this.#parts;
    pool.tries++;
    const ask = Buffer.from(JSON.stringify({ wire: MESSAGE_WIRE, sidecar, pool: pool.pool }), 'utf8');
    const reply = await bus.request(subjects.ctl('pool'), ask, ASK_TIMEOUT_MS);
    const answer = reply.kind === 'ok' ? readAnswer(reply.message.data) : null;
    if (answer !== null) {
      pool.isAsking = false;
      const before = pool.refused;
      pool.refused = answer.ok ? '' : answer.why === '' ? 'the control plane refuses the pool' : answer.why;
      if (answer.ok) {
        pool.tries = 1;
        pool.answeredAt = clock.now();
      } else if (pool.refused !== before) warn(`pool ${pool.pool.id} for ${pool.pool.capability}: ${pool.refused}`);
    }
    if (answer === null && !this.#isClosed) {
      // Nobody answers: what is sent meanwhile waits in the stream for it.
      const again = Math.min(ASK_AGAIN_MOST_MS, ASK_AGAIN_MS * 2 ** Math.min(8, pool.tries - 1));
      this.#after(again, () => void this.#request(pool));
    }
    if (answer !== null || reply.kind !== 'timeout') wake(pool);
  }

  #after(delayMs: number, fire: () => void): Timer {
    const timer = this.#parts.clock.after(delayMs, () => {
      this.#timers.delete(timer);
      fire();
    });
    this.#timers.add(timer);
    return timer;
  }

  /** In the order of their names; `NO_TAGS` itself when there are none that count. */
  #tagsOf({ capability, tags }: PoolAim): Readonly<Record<string, string>> {
    if (capability === null) return NO_TAGS;
    let names = this.#asked.get(capability);
    if (names === undefined) {
      names = namesAskedFor(capability);
      this.#asked.set(capability, names);
    }
    if (names.length === 0) return NO_TAGS;
    let found: Record<string, string> | null = null;
    for (const name of names) {
      if (!Object.hasOwn(tags, name)) continue;
      found ??= {};
      found[name] = tags[name] as string;
    }
    return found ?? NO_TAGS;
  }
}

function namesAskedFor(capability: Capability): readonly string[] {
  let names: Set<string> | null = null;
  for (const version of capability.versions)
    for (const { provider } of version.candidates) for (const name in provider.record.target) (names ??= new Set()).add(name);
  return names === null ? NO_NAMES : [...names].sort();
}

function wake(pool: SendPool): void {
  const { waiting } = pool;
  pool.waiting = null;
  if (waiting !== null) for (const each of waiting) each();
}

function readAnswer(data: Buffer): PoolAnswer | null {
  try {
    const value = JSON.parse(data.toString('utf8')) as Partial<PoolAnswer> | null;
    return value !== null && typeof value.ok === 'boolean'
      ? { wire: MESSAGE_WIRE, ok: value.ok, why: typeof value.why === 'string' ? value.why : '' }
      : null;
  } catch {
    return null;
  }
}
