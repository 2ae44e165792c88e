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
  /** That it is an attempt of. */
  readonly call: Call;
  readonly traceId: string;
  readonly agentId: string;
  readonly spanId: string;
  /** `clock.now()` when its answer is no longer waited for. */
  readonly endsAt: number;
  readonly totalMs: number;
  /** Calls that its agent has made for it and that have not ended; null = none yet. */
  parts: Set<Call> | null;
  /** Another attempt in the same bucket. */
  next: Work | null;
}

/** A power of 16: the last hex digits of a trace id choose. */
const BUCKETS = 4_096;

/**
 * A table of our own, since entries come and go with every call: a Map that is added to and deleted from replaces its
 * inner table every few dozen calls, and each old table links to the next and to the work of its time, which keeps whole
 * calls alive until a full collection (1.2 MB in every young collection under load).
 */
export class Underway {
  readonly #buckets: (Work | null)[] = new Array<Work | null>(BUCKETS).fill(null);
  #size = 0;

  /** Attempts under way; 0 when idle. */
  get size(): number {
    return this.#size;
  }

  add(work: Work): void {
    const at = bucketOf(work.traceId);
    work.next = this.#buckets[at] as Work | null;
    this.#buckets[at] = work;
    this.#size++;
  }

  remove(work: Work): void {
    const at = bucketOf(work.traceId);
    let one = this.#buckets[at] as Work | null;
    if (one === work) this.#buckets[at] = work.next;
    else {
      while (one !== null && one.next !== work) one = one.next;
      if (one === null) return;
      one.next = work.next;
    }
    work.next = null;
    this.#size--;
  }

  /** Every attempt under way; some may end while they are walked through. */
  all(): readonly Work[] {
    const works: Work[] = [];
    if (this.#size === 0) return works;
    for (const first of this.#buckets) for (let work = first; work !== null; work = work.next) works.push(work);
    return works;
  }

  /** An attempt of this trace is under way. */
  has(traceId: string): boolean {
    for (let work = this.#buckets[bucketOf(traceId)] as Work | null; work !== null; work = work.next)
      if (work.traceId === traceId) return true;
    return false;
  }

  /** Makes an agent's call part of the work that it is made for, if there is any. Its principal must be known. */
  join(call: Call): void {
    const agent = call.principal?.agent;
    let found: Work | null = null;
    let isSure = true;
    for (let work = this.#buckets[bucketOf(call.traceId)] as Work | null; work !== null; work = work.next) {
      if (work.agentId !== agent || work.traceId !== call.traceId) continue;
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

function bucketOf(traceId: string): number {
  return (digit(traceId.charCodeAt(29)) << 8) | (digit(traceId.charCodeAt(30)) << 4) | digit(traceId.charCodeAt(31));
}

/** Of 0-9 and a-f; some number below 16 for anything else. */
function digit(c: number): number {
  return ((c & 0xf) + (c > 0x39 ? 9 : 0)) & 0xf;
}
