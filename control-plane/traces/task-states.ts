/**
 * How far messages have come that are under way, as the sidecars tell one another: a picture for who looks on, of those of late, and
 * no record. What counts is in the streams.
 */
import type { TaskEvent, TaskState } from '../../proto/wire/messages.ts';
import { parse } from '../push/json.ts';

export interface TaskStanding {
  readonly state: TaskState;
  /** Agent that has it; '' = nobody. */
  readonly by: string;
  readonly attempts: number;
  /** `clock.now()` when it was heard. */
  readonly heardMs: number;
}

const MAX_TASKS = 5_000;
const MAX_CHARS = 256;
const MAX_BYTES = 65_536;

export class TaskStates {
  readonly #tasks = new Map<string, TaskStanding>();

  hear(data: Buffer, nowMs: number): void {
    if (data.length > MAX_BYTES) return;
    const event = parse(data) as Partial<TaskEvent> | null;
    if (event === null || typeof event !== 'object' || event.kind !== 'state') return;
    const { task_id: task, state, by, attempts } = event;
    if (typeof task !== 'string' || task.length > 64 || typeof state !== 'string') return;
    this.#tasks.delete(task);
    this.#tasks.set(task, {
      state,
      by: typeof by === 'string' ? by.slice(0, MAX_CHARS) : '',
      attempts: typeof attempts === 'number' ? attempts : 0,
      heardMs: nowMs,
    });
    if (this.#tasks.size > MAX_TASKS) this.#tasks.delete(this.#tasks.keys().next().value as string);
  }

  of(task: string): TaskStanding | null {
    return this.#tasks.get(task) ?? null;
  }
}
