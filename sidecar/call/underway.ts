/**
 * The attempts under way, by trace, so that a call which an agent makes while it serves one of them is known to be part
 * of that work: it gets no more time than the work has left, and it ends when the work is given up. An agent that passes
 * its `traceparent` on need not do the arithmetic itself, and one that does it wrong cannot outlive its caller.
 *
 * Nobody else's work can be touched: an attempt counts only when it was made to the very agent that calls now. When the
 * trace alone does not say which of several it is, the one with the most time left lends its time, and none its end.
 */
import type { Call } from './call.ts';

/** One attempt under way. */
export interface Work {
  readonly traceId: string;
  readonly agentId: string;
  readonly spanId: string;
  /** `clock.now()` when its answer is no longer waited for. */
  readonly endsAt: number;
  readonly totalMs: number;
  /** Calls that its agent has made for it and that have not ended; null = none yet. */
  parts: Set<Call> | null;
  /** Another attempt of the same trace. */
  next: Work | null;
}

export class Underway {
  readonly #byTrace = new Map<string, Work>();

  /** Traces with attempts under way; 0 when idle. */
  get size(): number {
    return this.#byTrace.size;
  }

  add(work: Work): void {
    work.next = this.#byTrace.get(work.traceId) ?? null;
    this.#byTrace.set(work.traceId, work);
  }

  remove(work: Work): void {
    let one = this.#byTrace.get(work.traceId) ?? null;
    if (one === work) {
      if (work.next === null) this.#byTrace.delete(work.traceId);
      else this.#byTrace.set(work.traceId, work.next);
      return;
    }
    while (one !== null && one.next !== work) one = one.next;
    if (one !== null) one.next = work.next;
  }

  /** Makes an agent's call part of the work that it is made for, if there is any. Its principal must be known. */
  join(call: Call): void {
    const agent = call.principal?.agent;
    let found: Work | null = null;
    let isSure = true;
    for (let work = this.#byTrace.get(call.traceId) ?? null; work !== null; work = work.next) {
      if (work.agentId !== agent) continue;
      if (work.spanId === call.parentSpanId) {
        found = work;
        isSure = true;
        break;
      }
      isSure = found === null;
      if (found === null || work.endsAt > found.endsAt) found = work;
    }
    if (found === null) return;
    call.work = found;
    if (isSure) (found.parts ??= new Set()).add(call);
  }

  /** The call has ended. */
  leave(call: Call): void {
    call.work?.parts?.delete(call);
  }
}

/** Nobody waits for this work any more: what was begun for it ends too. */
export function giveUp(work: Work): void {
  const parts = work.parts;
  if (parts === null) return;
  work.parts = null;
  for (const call of parts) call.cancel();
}
