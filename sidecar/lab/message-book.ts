/** The messages of a run that have not come to their end, by task: what is told of them finds its record here, in whatever order it comes. */
import type { KeptEntry, TaskEvent } from '../../proto/wire/messages.ts';
import type { MessageRecord } from './one-message.ts';
import type { StepReport } from './step-runs.ts';

export class MessageBook {
  /** Every message that may still come to an end, parked ones included. */
  readonly #all = new Map<string, { readonly record: MessageRecord; readonly report: StepReport }>();
  /** Those that somebody is there for. */
  readonly #open = new Set<string>();
  /** Ends that came before the submission's own answer. */
  readonly #early = new Map<string, TaskEvent>();
  readonly #inReview = new Set<string>();

  /** Messages that are on their way: none that waits for somebody to come, or for a person. */
  get open(): number {
    return this.#open.size;
  }

  submitted(record: MessageRecord, report: StepReport, now: number): void {
    const { taskId } = record;
    if (taskId === '') return;
    const early = this.#early.get(taskId);
    if (early !== undefined) {
      this.#early.delete(taskId);
      record.ended(early, now);
      return;
    }
    if (this.#inReview.has(taskId)) record.fate = 'review';
    this.#all.set(taskId, { record, report });
    if (record.fate === 'accepted') this.#open.add(taskId);
  }

  ended(event: TaskEvent, now: number): void {
    const known = this.#all.get(event.task_id);
    if (known === undefined) {
      this.#early.set(event.task_id, event);
      return;
    }
    known.record.ended(event, now);
    known.report.endedAtMs = now;
    this.#all.delete(event.task_id);
    this.#open.delete(event.task_id);
  }

  kept({ kind, task_id: taskId }: KeptEntry): void {
    if (kind === 'review') this.#inReview.add(taskId);
  }
}
