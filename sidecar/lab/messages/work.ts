/**
 * Who works on which pool, as the control plane would say it: every pool that somebody sends to, with the agents of the table that are
 * eligible, and of a sticky one its partitions, each with an owner that keeps it while it is there.
 */
import type { Pool, WorkPool, WorkState } from '../../../proto/wire/messages.ts';
import { Consumer, PARTITIONS } from '../../../proto/wire/messages.ts';
import { MESSAGE_WIRE } from '../../../proto/wire/envelope.ts';
import type { Subjects } from '../../../proto/wire/subjects.ts';
import type { Work } from '../../deliver/deliver.ts';
import { SendPool } from '../../send/pools.ts';
import type { Table } from '../../table/snapshot.ts';

/** In subjects that nobody sends to from here. */
const SENDER = 'lab';

interface Partition {
  readonly owner: string;
  readonly term: number;
}

export class LabWork implements Work {
  readonly #table: Table;
  readonly #subjects: Subjects;
  readonly #host: string;
  /** What waited for the owner before waits for the next one. */
  readonly #moved: (from: string, to: string) => void;
  readonly #pools = new Map<string, { readonly send: SendPool; partitions: readonly Partition[] }>();
  readonly #listeners = new Set<(state: WorkState) => void>();
  #state: WorkState = { wire: MESSAGE_WIRE, epoch: 'lab', pools: [] };

  /** @param host this process, as `WorkPool` names it */
  constructor(table: Table, subjects: Subjects, host: string, moved: (from: string, to: string) => void) {
    this.#table = table;
    this.#subjects = subjects;
    this.#host = host;
    this.#moved = moved;
  }

  current(): WorkState {
    return this.#state;
  }

  onChange(listener: (state: WorkState) => void): { close(): void } {
    this.#listeners.add(listener);
    return { close: () => void this.#listeners.delete(listener) };
  }

  /** Somebody is going to send to it. */
  use(pool: Pool): void {
    if (this.#pools.has(pool.id)) return;
    this.#pools.set(pool.id, { send: new SendPool(pool, this.#subjects, SENDER), partitions: [] });
    this.tableChanged();
  }

  /** Which consumer a task of a pool lies at. */
  consumerOf(pool: string, lane: string, partition: number): string {
    const known = this.#pools.get(pool);
    if (known === undefined || !known.send.pool.sticky) return Consumer.lane(pool, lane);
    return Consumer.partition(pool, partition, known.partitions[partition]?.term ?? 0);
  }

  tableChanged(): void {
    const table = this.#table.current();
    const pools: WorkPool[] = [];
    for (const known of this.#pools.values()) {
      const { pool } = known.send;
      const agents: string[] = [];
      for (const provider of known.send.eligible(table)) if (!provider.health.offline) agents.push(provider.agentId);
      if (pool.sticky) known.partitions = this.#share(pool, agents, known.partitions);
      const partitions = known.partitions.map(({ owner, term }, index) => ({ index, owner, term, host: this.#host }));
      pools.push({ pool, agents, partitions: partitions.filter(({ owner }) => owner !== '') });
    }
    this.#state = { ...this.#state, pools };
    for (const listener of this.#listeners) listener(this.#state);
  }

  #share(pool: Pool, agents: readonly string[], before: readonly Partition[]): readonly Partition[] {
    const after: Partition[] = [];
    for (let index = 0; index < PARTITIONS; index++) {
      const old = before[index] ?? { owner: '', term: 0 };
      if (agents.includes(old.owner)) after.push(old);
      else if (agents.length === 0) after.push({ owner: '', term: old.term });
      else {
        const next = { owner: agents[index % agents.length] as string, term: old.term + 1 };
        after.push(next);
        this.#moved(Consumer.partition(pool.id, index, old.term), Consumer.partition(pool.id, index, next.term));
      }
    }
    return after;
  }
}
