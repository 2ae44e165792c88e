/**
 * The messages in hand, and what is said of them while they are: that they are ours still (to the queue, confirmed), that their agents
 * have them (to their senders), that their time is over, that they are called off, extended or reported by their agents.
 */
import type { Delivery } from '../../base/puller.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Reported, WorkReport } from './door.ts';
import type { Ends } from './ends.ts';
import { brokenOff, reported } from './hand-over.ts';
import type { InHand } from './in-hand.ts';
import { keepLong } from './keep-long.ts';
import type { TaskParts } from './parts.ts';
import { stopTask } from './stop.ts';

/** Two may fail. */
const EXTENSIONS_A_WAIT = 4;

export class Watch {
  /** As the server has it, once it has said so. */
  ackWaitMs: number;
  /** Oldest first. */
  readonly #inHand = new Set<InHand>();
  readonly #byTask = new Map<string, InHand>();
  readonly #parts: TaskParts;
  readonly #ends: Ends;

  constructor(parts: TaskParts, ends: Ends) {
    this.#parts = parts;
    this.#ends = ends;
    this.ackWaitMs = parts.settings.ackWaitMs;
  }

  get size(): number {
    return this.#inHand.size;
  }

  /** Of these, such as are calls under way; the others are waited for, or go on at their agents (202). */
  get calls(): number {
    let sum = 0;
    for (const task of this.#inHand) if (task.call !== null && !task.call.settled) sum++;
    return sum;
  }

  /** Of these, such as are remembered over a restart. */
  get kept(): number {
    let sum = 0;
    for (const task of this.#inHand) if (task.isKept) sum++;
    return sum;
  }

  holds(agent: string): boolean {
    for (const task of this.#inHand) if (task.seat.slots.agentId === agent) return true;
    return false;
  }

  of(taskId: string): InHand | null {
    return this.#byTask.get(taskId) ?? null;
  }

  add(task: InHand): void {
    this.#inHand.add(task);
    this.#byTask.set(task.envelope.task_id, task);
  }

  remove(task: InHand): void {
    this.#inHand.delete(task);
    this.#byTask.delete(task.envelope.task_id);
  }

  /** The sender calls it off. `cancelled`: it is stopped, and its end follows; null = it is not in hand here. */
  callOff(taskId: string, source: string, speaker: string | null): 'cancelled' | 'too_late' | null {
    const task = this.of(taskId);
    if (task === null || task.envelope.source !== source) return null;
    if (speaker !== null && speaker !== task.envelope.home) return null;
    if (task.stoppedBy === 'cancel') return 'cancelled';
    if (task.isEnding || task.isDecided) return 'too_late';
    stopTask(task, 'cancel');
    return 'cancelled';
  }

  async report(agent: string, taskId: string, said: WorkReport): Promise<Reported> {
    const task = this.#goingOn(agent, taskId);
    if (task === null) return 'unknown';
    const { onReport } = task;
    return await new Promise<Reported>((resolve) => {
      task.onStored = resolve;
      task.onReport = null;
      onReport?.(reported(said));
    });
  }

  /**
   * Its agent takes longer: the time of the try begins anew, whether an answer is awaited or the agent has said 202. Never more than
   * the whole task has. Null = this agent does not have it.
   */
  extendWork(agent: string, taskId: string): number | null {
    const task = this.of(taskId);
    if (task === null || task.seat.slots.agentId !== agent || task.stoppedBy !== 'no') return null;
    const now = this.#parts.clock.now();
    const ms = Math.min(task.envelope.timeout_ms, task.endsAt - now);
    if (ms <= 0) return null;
    if (task.onReport !== null) {
      task.dueAt = now + ms;
      return ms;
    }
    return task.call?.extend(ms) === true ? ms : null;
  }

  /** To be called some times a second: extends what is in hand, tells what is received, ends what has had its time. */
  sweep(now: number): void {
    const { settings, clock } = this.#parts;
    for (const task of this.#inHand) {
      // The others are younger still.
      if (now - task.arrivedAt < settings.receivedAfterMs) return;
      // After a standstill: nothing more is said of what is somebody else's.
      if (this.isLost(task, now)) {
        stopTask(task, 'lost');
        continue;
      }
      if (task.call !== null && task.receivedAtMs === 0 && now - task.handedAt >= settings.receivedAfterMs) {
        task.receivedAtMs = clock.wallMs() - (now - task.handedAt);
        this.#ends.note(task, 'received', Code.ok, '');
      }
      if (!task.isLong && task.onReport !== null && task.stoppedBy === 'no') void keepLong(task, this.#parts);
      if (now >= task.dueAt)
        task.onReport?.(brokenOff(Code.response_timeout, `nothing was heard of it within ${task.envelope.timeout_ms} ms`));
      this.extendIfDue(task, now);
    }
  }

  /** Without a claim the queue's word is the only proof that it is ours. */
  isLost(task: InHand, now: number): boolean {
    return task.claim === null && now - task.confirmedAt >= this.ackWaitMs;
  }

  /** A confirmed word to the queue that it is being worked on (or waits its turn here). */
  extendIfDue(task: { readonly delivery: Delivery; confirmedAt: number; isExtending: boolean }, now: number): void {
    const everyMs = Math.min(this.#parts.settings.extendEveryMs, this.ackWaitMs / EXTENSIONS_A_WAIT);
    if (task.isExtending || now - task.confirmedAt < everyMs) return;
    task.isExtending = true;
    void this.#parts.queue.extend(task.delivery).then((isConfirmed) => {
      task.isExtending = false;
      if (isConfirmed) task.confirmedAt = now;
    });
  }

  /** What is in hand of a partition has another owner now: an agent that has it may end it, and here it is not tried again. */
  moved(consumer: string): void {
    for (const task of this.#inHand) {
      if (task.consumer !== consumer) continue;
      task.hasMoved = true;
      task.wake?.();
    }
  }

  /** Stops what is still under way. */
  stopAll(): void {
    // What is remembered over a restart is the next life's: neither given back nor in doubt.
    for (const task of this.#inHand) stopTask(task, task.isKept ? 'lost' : 'draining');
  }

  /** Work of this agent that has been taken with 202. */
  #goingOn(agent: string, taskId: string): InHand | null {
    const task = this.of(taskId);
    return task !== null && task.onReport !== null && task.seat.slots.agentId === agent ? task : null;
  }
}
