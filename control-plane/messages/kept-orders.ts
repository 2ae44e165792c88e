/**
 * What people order about a kept entry, one order at a time over all replicas: before anything is done the order is written
 * beside the entry, and only one that expects what stands there is taken. A leader that stood still in the midst of an order
 * does not meet another one that does something else with the same task: whoever comes later can carry the same order to its end, or
 * is told whose it is. What was written is taken away when the order is carried out, or has failed before it changed anything.
 */
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { KEPT_STREAM } from '../../proto/wire/subjects.ts';
import { encode, parse } from '../push/json.ts';
import type { Kept } from './kept-entry.ts';
import type { MessageParts } from './parts.ts';

/** `expire` is the leader's own: nobody decided in time. */
export type Verb = 'release' | 'reroute' | 'drop' | 'expire';

export interface Order {
  readonly verb: Verb;
  /** Where to; '' = nowhere else. */
  readonly target: string;
  readonly who: string;
}

export interface Begun {
  readonly seq: number;
  /** The server's time, just now. */
  readonly serverMs: number;
  /** What stood there before: the same order, or one about an earlier entry; null = nothing. */
  readonly beforeSeq: number | null;
}

interface OrderRecord extends Order {
  readonly wire: number;
  readonly task_id: string;
  /** Sequence of the entry that it is about: of a later one of the same task it says nothing. */
  readonly entry: number;
}

type Failure = { readonly kind: 'conflict' | 'away'; readonly why: string };

export class KeptOrders {
  readonly #parts: MessageParts;

  constructor(parts: MessageParts) {
    this.#parts = parts;
  }

  async begin({ seq: entry, entry: { task_id } }: Kept, order: Order): Promise<Begun | Failure> {
    const { bus, subjects } = this.#parts;
    const subject = subjects.order(task_id);
    const before = await bus.lastAtLeader(KEPT_STREAM, subject);
    if (before !== null && 'failed' in before) return { kind: 'away', why: before.failed };
    const other = before === null ? null : (parse(before.data) as OrderRecord | null);
    if (other !== null && other.entry === entry && (other.verb !== order.verb || other.target !== order.target))
      return { kind: 'conflict', why: `${other.who} has begun to ${wordsOf(other)}: order the same, and it is carried to its end` };
    const record: OrderRecord = { wire: MESSAGE_WIRE, task_id, entry, ...order };
    const stored = await bus.append(subject, encode(record), { stream: KEPT_STREAM, expectLastSubjectSeq: before?.seq ?? 0 });
    if ('conflict' in stored) return { kind: 'conflict', why: `somebody is doing something with ${task_id} at this moment` };
    if ('failed' in stored) return { kind: 'away', why: stored.failed };
    const mine = await bus.lastAtLeader(KEPT_STREAM, subject);
    if (mine !== null && 'failed' in mine) return { kind: 'away', why: mine.failed };
    if (mine?.seq !== stored.seq) return { kind: 'conflict', why: `somebody is doing something with ${task_id} at this moment` };
    return { seq: stored.seq, serverMs: mine.timestampMs, beforeSeq: before?.seq ?? null };
  }

  /** What is left of it would only keep others from it for a while. */
  async end({ seq, beforeSeq }: Begun): Promise<void> {
    const { bus } = this.#parts;
    // The older one first: it would stand again as soon as the newer one is gone.
    if (beforeSeq !== null) await bus.deleteMessage(KEPT_STREAM, beforeSeq);
    await bus.deleteMessage(KEPT_STREAM, seq);
  }
}

function wordsOf({ verb, target }: Order): string {
  return verb === 'reroute' ? `send it to ${target}` : `${verb} it`;
}
