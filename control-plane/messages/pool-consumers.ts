/**
 * The consumers of pools in AR_TASKS: three lanes of an ordinary pool; of a sticky one a consumer for each partition and
 * term. On a work queue two consumers must not want the same message, so that of an old term goes before that of a new one
 * comes; what waits meanwhile stays in the stream. What the server has lost is made anew, what nobody wants is taken away.
 */
import type { ConsumerFacts, ConsumerSpec } from '../../base/consumer.ts';
import { LANES } from '../../proto/wire/envelope.ts';
import { Consumer, type Pool } from '../../proto/wire/messages.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';
import type { PoolEntry } from '../registry/pool-book.ts';
import { Ghosts } from './ghosts.ts';
import { forEachOf, type MessageParts } from './parts.ts';

const AT_ONCE = 8;
/** Made by us: `<pool>_<lane>` or `<pool>_s<index>_t<term>`, with or without a secret behind it. */
const OURS = /^p[a-z2-7]{20}_/;

export class PoolConsumers {
  readonly ghosts: Ghosts;
  readonly #parts: MessageParts;
  /** As the last check found them; by name. */
  #facts: ReadonlyMap<string, ConsumerFacts> = new Map();

  constructor(parts: MessageParts) {
    this.#parts = parts;
    this.ghosts = new Ghosts(parts);
  }

  get facts(): ReadonlyMap<string, ConsumerFacts> {
    return this.#facts;
  }

  /** Those of an ordinary pool. A sentence when they cannot be made. */
  async lanes(pool: Pool, secret: string): Promise<string | null> {
    const made = await Promise.all(LANES.map((lane) => this.#ensure(this.#lane(pool, lane, secret))));
    return made.find((problem) => problem !== null) ?? null;
  }

  /** Takes away the consumer of the term before, which fences whoever has it, and makes that of this term. A sentence when it cannot. */
  async partition({ pool, secret }: PoolEntry, index: number, term: number): Promise<string | null> {
    if (term > 1) {
      const problem = await this.#takeAway(Consumer.partition(pool.id, index, term - 1, secret));
      if (problem !== null) return problem;
    }
    return this.#ensure(this.#part(pool, index, term, secret));
  }

  /** Other names for the same: what was given out and is not acknowledged is given out anew. A sentence when it cannot. */
  async rename(entry: PoolEntry, secret: string): Promise<string | null> {
    for (const { name } of this.#wanted(entry.pool, entry.partitions, entry.secret)) {
      const problem = await this.#takeAway(name);
      if (problem !== null) return problem;
    }
    const made = await Promise.all(this.#wanted(entry.pool, entry.partitions, secret).map((spec) => this.#ensure(spec)));
    return made.find((problem) => problem !== null) ?? null;
  }

  async #takeAway(name: string): Promise<string | null> {
    const { bus } = this.#parts;
    // To the next consumer what came back with a restart of the server would be new.
    const facts = await bus.consumer(TASK_STREAM, name);
    if (facts !== null && !('failed' in facts)) await this.ghosts.clear(facts);
    const gone = await bus.deleteConsumer(TASK_STREAM, name);
    return typeof gone === 'object' ? gone.failed : null;
  }

  /** Of a pool that is given up. */
  async remove({ pool, partitions, secret }: PoolEntry): Promise<void> {
    for (const { name } of this.#wanted(pool, partitions, secret)) await this.#parts.bus.deleteConsumer(TASK_STREAM, name);
  }

  /**
   * Looks at what the server has, and puts it right; a sentence when it could not.
   * @param isBusy whether consumers of a pool are being made or moved at this moment: they are left alone
   */
  async check(entries: Iterable<PoolEntry>, isBusy: (id: string) => boolean): Promise<string | null> {
    const { bus, logger } = this.#parts;
    const listed = await bus.consumers(TASK_STREAM);
    if ('failed' in listed) return listed.failed;
    const facts = new Map(listed.map((each) => [each.name, each]));
    this.#facts = facts;
    const missing: ConsumerSpec[] = [];
    const wanted = new Set<string>();
    for (const entry of entries) {
      const { id } = entry.pool;
      for (const spec of this.#wanted(entry.pool, entry.partitions, entry.secret)) {
        wanted.add(spec.name);
        if (!facts.has(spec.name) && !isBusy(id)) missing.push(spec);
      }
    }
    const strays = [...facts.keys()].filter((name) => OURS.test(name) && !wanted.has(name) && !isBusy(name.slice(0, name.indexOf('_'))));
    // Somebody may have named the pool while the others were taken away.
    for (const name of strays) if (!isBusy(name.slice(0, name.indexOf('_')))) await bus.deleteConsumer(TASK_STREAM, name);
    if (strays.length + missing.length > 0)
      logger.warn(
        { missing: missing.map(({ name }) => Consumer.shown(name)), strays: strays.map(Consumer.shown) },
        'consumers of pools were not as they should be, and are put right',
      );
    let problem: string | null = null;
    await forEachOf(missing, AT_ONCE, async (spec) => {
      const failed = await this.#ensure(spec);
      problem ??= failed;
      return failed === null;
    });
    return problem;
  }

  async #ensure(spec: ConsumerSpec): Promise<string | null> {
    const ready = await this.#parts.bus.ensureConsumer(spec);
    return 'failed' in ready ? ready.failed : null;
  }

  #wanted(pool: Pool, partitions: PoolEntry['partitions'], secret: string): ConsumerSpec[] {
    if (!pool.sticky) return LANES.map((lane) => this.#lane(pool, lane, secret));
    return partitions.flatMap(({ term }, index) => (term > 0 ? [this.#part(pool, index, term, secret)] : []));
  }

  #lane(pool: Pool, lane: string, secret: string): ConsumerSpec {
    return this.#spec(Consumer.lane(pool.id, lane, secret), this.#parts.subjects.taskFilter(pool.id, lane, '*'));
  }

  #part(pool: Pool, index: number, term: number, secret: string): ConsumerSpec {
    return this.#spec(Consumer.partition(pool.id, index, term, secret), this.#parts.subjects.taskFilter(pool.id, '*', index));
  }

  #spec(name: string, filter: string): ConsumerSpec {
    const { ackWaitMs, ackPending } = this.#parts.config;
    return { stream: TASK_STREAM, name, filter, ackWaitMs, maxAckPending: ackPending, maxDeliver: -1, deliver: 'all' };
  }
}
