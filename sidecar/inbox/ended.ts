/**
 * Tasks whose end this home has given to their senders. An end that is stored a second time is kept from the agent: it happens to
 * idempotent work without a sender's key when the queue has its message twice, minutes apart (the stream does not know
 * its id any more), or when a killed server has forgotten that it was acknowledged. What people may begin again (dead, in doubt) may end
 * again. Bounded, and gone with the process: then a second end is told, with the same task id.
 */
import type { TaskEvent, TaskState } from '../../proto/wire/messages.ts';

const FOR_GOOD: ReadonlySet<TaskState> = new Set(['done', 'failed', 'expired', 'cancelled']);
const MOST = 50_000;

export class Ended {
  /** Task to the position of its end, oldest first. */
  readonly #seqs = new Map<string, number>();
  readonly #most: number;

  constructor(most: number = MOST) {
    this.#most = most;
  }

  /** Whether the task had ended for good before, as another entry has told. */
  isRepeat({ task_id: task, state }: Pick<TaskEvent, 'task_id' | 'state'>, seq: number): boolean {
    if (!FOR_GOOD.has(state)) return false;
    const before = this.#seqs.get(task);
    if (before !== undefined) return before !== seq;
    if (this.#seqs.size >= this.#most) this.#seqs.delete(this.#seqs.keys().next().value as string);
    this.#seqs.set(task, seq);
    return false;
  }

  /** The stream was made anew. */
  clear(): void {
    this.#seqs.clear();
  }
}
