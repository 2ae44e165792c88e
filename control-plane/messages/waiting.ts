/** What waits in the queue, pool by pool: how much, since when, and whether anybody works on it. */
import { decodeEnvelope } from '../../proto/wire/envelope.ts';
import type { Pool } from '../../proto/wire/messages.ts';
import { poolWords } from '../../proto/wire/pool.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';
import type { MessageParts } from './parts.ts';
import type { PoolDesk } from './pool-desk.ts';
import { guessPool } from './pool-guess.ts';

export interface WaitingPool {
  readonly id: string;
  /** null = nobody remembers it, and it cannot be worked out either. */
  readonly pool: Pool | null;
  readonly words: string;
  readonly messages: number;
  readonly lanes: Readonly<Record<string, number>>;
  /** Agents that are eligible and online. */
  readonly agents: number;
  /** Those of them that are drained: they are not given any. */
  readonly drained: number;
  readonly sidecars: readonly string[];
  /** Given to a worker and not done: in work, or waiting for another try. */
  readonly inHand: number;
  /** Of a sticky pool: owners of its partitions. */
  readonly owners: readonly string[];
  /** When its oldest message was stored, by the server's clock; null = it has none, or that was not looked up. */
  readonly oldestAtMs: number | null;
}

export class Waiting {
  readonly #parts: MessageParts;
  readonly #pools: PoolDesk;

  constructor(parts: MessageParts, pools: PoolDesk) {
    this.#parts = parts;
    this.#pools = pools;
  }

  /** @param isParkedOnly those that have messages and nobody who works on them, or only agents that are drained. */
  async all(isParkedOnly: boolean): Promise<readonly WaitingPool[] | { readonly failed: string }> {
    const counted = await this.#counts();
    if ('failed' in counted) return counted;
    const { book, consumers } = this.#pools;
    const ids = new Set([...counted.keys(), ...[...book.all()].map(({ pool }) => pool.id)]);
    const inHand = new Map<string, number>();
    for (const { name, ackPending } of consumers.facts.values()) {
      const id = name.slice(0, name.indexOf('_'));
      inHand.set(id, (inHand.get(id) ?? 0) + ackPending);
    }
    const idle = new Set<string>();
    for (const { agent, drain } of this.#parts.registry().providers()) if (drain) idle.add(agent);
    const pools: WaitingPool[] = [];
    for (const id of [...ids].sort()) {
      const entry = book.get(id);
      const lanes = counted.get(id) ?? {};
      const messages = Object.values(lanes).reduce((sum, count) => sum + count, 0);
      const agents = entry?.agents ?? [];
      let drained = 0;
      for (const agent of agents) if (idle.has(agent)) drained++;
      if (isParkedOnly && (messages === 0 || agents.length > drained)) continue;
      const pool = entry?.pool ?? null;
      pools.push({
        id,
        pool,
        words: pool === null ? 'a pool that nobody remembers' : poolWords(pool),
        messages,
        lanes,
        agents: agents.length,
        drained,
        sidecars: [...(entry?.workers.keys() ?? [])].sort(),
        inHand: inHand.get(id) ?? 0,
        owners: entry?.partitions.map(({ owner }) => owner) ?? [],
        oldestAtMs: messages === 0 ? null : await this.#oldest(id),
      });
    }
    return pools;
  }

  /**
   * Pools that hold messages and that nobody remembers, after the registry's stream was lost: worked out from their messages, and
   * made again. False = it could not look at all of them, or make one again.
   */
  async recover(): Promise<boolean> {
    const counted = await this.#counts();
    if ('failed' in counted) return false;
    let isDone = true;
    for (const id of counted.keys()) {
      if (this.#pools.book.get(id) !== undefined) continue;
      const first = await this.#parts.bus.history(TASK_STREAM, this.#filter(id), 1);
      if ('failed' in first) isDone = false;
      if ('failed' in first || first[0] === undefined) continue;
      const envelope = decodeEnvelope(first[0].data)?.envelope;
      const pool = envelope === undefined ? null : guessPool(envelope);
      if (pool === null || pool.id !== id) continue;
      this.#parts.logger.warn({ pool: id }, `messages of a forgotten pool wait: ${poolWords(pool)} is made again`);
      const made = await this.#pools.use(pool);
      if (!made.ok) isDone = false;
    }
    return isDone;
  }

  /** By pool, then by lane. */
  async #counts(): Promise<Map<string, Record<string, number>> | { readonly failed: string }> {
    const { bus, subjects } = this.#parts;
    const listed = await bus.subjects(TASK_STREAM, subjects.tasks);
    if ('failed' in listed) return listed;
    const start = subjects.tasks.length - 1;
    const pools = new Map<string, Record<string, number>>();
    for (const [subject, count] of listed) {
      const [id = '', lane = ''] = subject.slice(start).split('.', 2);
      const lanes = pools.get(id) ?? {};
      lanes[lane] = (lanes[lane] ?? 0) + count;
      pools.set(id, lanes);
    }
    return pools;
  }

  async #oldest(id: string): Promise<number | null> {
    const first = await this.#parts.bus.history(TASK_STREAM, this.#filter(id), 1);
    return 'failed' in first ? null : (first[0]?.timestampMs ?? null);
  }

  #filter(id: string): string {
    return `${this.#parts.subjects.tasks.slice(0, -1)}${id}.>`;
  }
}
