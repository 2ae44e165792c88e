/** What waits where, as the last look at the server found it: each pool that has something, and each kind of what is kept for people. Pure. */
import type { ConsumerFacts } from '../../base/consumer.ts';
import type { KeptKind } from '../../proto/wire/messages.ts';
import { poolWords } from '../../proto/wire/pool.ts';
import type { Waiting } from '../alerts/backlogs.ts';
import type { PoolBook } from '../registry/pool-book.ts';
import { KEPT_KINDS } from './kept-entry.ts';

const KEPT_NAMES: Readonly<Record<KeptKind, string>> = {
  dead: 'the list of dead letters',
  in_doubt: 'the list of tasks in doubt',
  review: 'the list of tasks to be reviewed',
};

export function backlogOf(
  book: PoolBook,
  facts: Iterable<ConsumerFacts>,
  kept: Readonly<Record<KeptKind, number>> | null,
  keptInAll: number,
): Waiting[] {
  const pools = new Map<string, { waiting: number; taken: number }>();
  for (const { name, pending, deliveredConsumerSeq } of facts) {
    const id = name.slice(0, name.indexOf('_'));
    const sum = pools.get(id);
    if (sum === undefined) pools.set(id, { waiting: pending, taken: deliveredConsumerSeq });
    else {
      sum.waiting += pending;
      sum.taken += deliveredConsumerSeq;
    }
  }
  const lists: Waiting[] = [];
  for (const { pool, workers } of book.all()) {
    const sum = pools.get(pool.id);
    if (sum === undefined) continue;
    const isParked = workers.size === 0;
    lists.push({
      subject: `pool:${pool.id}`,
      capability: pool.capability,
      name: `the queue of ${poolWords(pool)}`,
      ...sum,
      isParked,
      look: isParked ? `reachctl tasks parked ${pool.id}` : 'reachctl pools list',
    });
  }
  const ofPeople = { capability: null, taken: null, isParked: false };
  if (kept !== null)
    for (const kind of KEPT_KINDS)
      lists.push({ ...ofPeople, subject: kind, name: KEPT_NAMES[kind], waiting: kept[kind], look: `reachctl tasks list --kind ${kind}` });
  else if (keptInAll >= 0)
    lists.push({
      ...ofPeople,
      subject: 'kept',
      name: 'the list of what is kept for people',
      waiting: keptInAll,
      look: 'reachctl tasks list',
    });
  return lists;
}
