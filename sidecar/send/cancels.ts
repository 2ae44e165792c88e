/**
 * Tasks whose senders have called them off. A worker that has one answers; nobody may be there yet who would pull it, so a
 * note is said again until the task has ended, for as long as there is room to remember it. A task that is pulled before
 * its note is heard again is carried out: calling off is asked for, never promised, unless a worker has confirmed it.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { type CancelAnswer, type CancelNote, FINAL_STATES } from '../../proto/wire/messages.ts';
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { ANYBODY, type Subjects } from '../../proto/wire/subjects.ts';

export interface CancelsParts {
  readonly bus: Pick<Bus, 'request' | 'publish' | 'onState' | 'connected'>;
  readonly subjects: Subjects;
  readonly clock: Clock;
}

const ANSWER_MS = 1_000;
const AGAIN_MS = 5_000;
const KEEP = 10_000;
/** Said again for so long; what is still not pulled then is likely to expire. */
const FOR_MS = 86_400_000;

export class Cancels {
  readonly #parts: CancelsParts;
  readonly #wanted = new Map<string, { readonly note: Buffer; readonly until: number }>();
  readonly #listener: { close(): void };
  #timer: Timer | null = null;
  #isClosed = false;

  constructor(parts: CancelsParts) {
    this.#parts = parts;
    this.#listener = parts.bus.onState(({ connected }) => {
      if (connected) this.#sayAll();
    });
  }

  get size(): number {
    return this.#wanted.size;
  }

  async cancel(source: string, taskId: string): Promise<'cancelled' | 'requested' | 'too_late'> {
    const { bus, subjects } = this.#parts;
    const note = this.want(source, taskId);
    const reply = await bus.request(subjects.cancel, note, ANSWER_MS, undefined, ANYBODY);
    const answer = reply.kind === 'ok' ? readAnswer(reply.message.data) : null;
    if (answer === null || answer.task_id !== taskId) return 'requested';
    this.#wanted.delete(taskId);
    return answer.outcome;
  }

  /** Remembers it, to be said now and again. */
  want(source: string, taskId: string): Buffer {
    const { clock } = this.#parts;
    const said: CancelNote = { wire: MESSAGE_WIRE, task_id: taskId, source };
    const note = Buffer.from(JSON.stringify(said), 'utf8');
    if (this.#wanted.size >= KEEP) this.#wanted.delete(this.#wanted.keys().next().value as string);
    this.#wanted.set(taskId, { note, until: clock.now() + FOR_MS });
    this.#later();
    return note;
  }

  /** The task has ended in some way. */
  ended(taskId: string, state: string): void {
    if (this.#wanted.size > 0 && FINAL_STATES.has(state as never)) this.#wanted.delete(taskId);
  }

  close(): void {
    this.#isClosed = true;
    this.#listener.close();
    this.#timer?.cancel();
    this.#timer = null;
    this.#wanted.clear();
  }

  #later(): void {
    if (this.#isClosed || this.#wanted.size === 0) return;
    this.#timer ??= this.#parts.clock.after(AGAIN_MS, () => {
      this.#timer = null;
      this.#sayAll();
      this.#later();
    });
  }

  #sayAll(): void {
    const { bus, subjects, clock } = this.#parts;
    if (!bus.connected) return;
    const now = clock.now();
    for (const [taskId, { note, until }] of this.#wanted) {
      if (until < now) this.#wanted.delete(taskId);
      else bus.publish(subjects.cancel, note);
    }
  }
}

function readAnswer(data: Buffer): CancelAnswer | null {
  try {
    const value = JSON.parse(data.toString('utf8')) as Partial<CancelAnswer> | null;
    if (value === null || typeof value.task_id !== 'string') return null;
    return value.outcome === 'cancelled' || value.outcome === 'too_late' ? (value as CancelAnswer) : null;
  } catch {
    return null;
  }
}
