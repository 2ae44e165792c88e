/** What monitors are told about messages, from what the last look at the server has found: some seconds old, and costs nothing to ask. */
import type { ConsumerFacts } from '../../base/consumer.ts';
import { LANES } from '../../proto/wire/envelope.ts';
import { Consumer } from '../../proto/wire/messages.ts';
import type { PoolBook } from '../registry/pool-book.ts';

export interface Figures {
  readonly pools: number;
  /** With messages, and nobody who works on them. */
  readonly parkedPools: number;
  /** By lane; `sticky` for partitions, which keep their order over lanes. */
  readonly waiting: Readonly<Record<string, number>>;
  /** The pools that hold most, fullest first. */
  readonly fullest: readonly PoolFigures[];
  /** With workers, or waiting for another try. */
  readonly inHand: number;
  /** Entries for people; -1 = not known. */
  readonly kept: number;
  /** By stream, how full it is: 0 to 1. */
  readonly fill: ReadonlyMap<string, number>;
  /** Acknowledged messages that had come back with a restart of NATS, and were deleted in this reign. */
  readonly ghosts: number;
  /** Tasks that nobody took in time, told by the leader in this reign. */
  readonly expired: number;
}

export interface PoolFigures {
  readonly pool: string;
  readonly capability: string;
  readonly waiting: number;
}

const MAX_FULLEST = 200;

export function figuresOf(book: PoolBook, facts: Iterable<ConsumerFacts>, kept: number): Omit<Figures, 'fill' | 'ghosts' | 'expired'> {
  const waiting: Record<string, number> = { sticky: 0 };
  for (const lane of LANES) waiting[lane] = 0;
  const parked = new Set<string>();
  const byPool = new Map<string, number>();
  let inHand = 0;
  for (const { name, pending, ackPending } of facts) {
    const cut = name.indexOf('_');
    const rest = Consumer.shown(name).slice(cut + 1);
    const lane = Object.hasOwn(waiting, rest) ? rest : 'sticky';
    waiting[lane] = (waiting[lane] ?? 0) + pending;
    inHand += ackPending;
    const pool = name.slice(0, cut);
    if (pending + ackPending > 0 && book.get(pool)?.workers.size === 0) parked.add(pool);
    if (pending > 0) byPool.set(pool, (byPool.get(pool) ?? 0) + pending);
  }
  return { pools: book.size, parkedPools: parked.size, waiting, fullest: fullestOf(book, byPool), inHand, kept };
}

function fullestOf(book: PoolBook, byPool: ReadonlyMap<string, number>): PoolFigures[] {
  return [...byPool]
    .map(([pool, waiting]) => ({ pool, capability: book.get(pool)?.pool.capability ?? '', waiting }))
    .sort((a, b) => b.waiting - a.waiting)
    .slice(0, MAX_FULLEST);
}
