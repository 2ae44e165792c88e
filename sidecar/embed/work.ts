/**
 * The work that a function of this process is doing, carried by the asynchronous context: calls made meanwhile are part of it,
 * with its trace, its path, what is left of its time, and in the name of its agent. Nobody hands it from function to function.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../../base/clock.ts';
import { parseDeadlineMs } from '../../proto/wire/deadline.ts';
import { Header } from '../../proto/wire/headers.ts';

export interface Work {
  readonly agent: string;
  /** `clock.now()` when nobody waits any more. */
  readonly endsAt: number;
  /** Milliseconds that the whole task was given, and the budgets of its steps; both as the headers have them, '' = not said. */
  readonly totalMs: string;
  readonly budget: string;
  readonly traceparent: string;
  readonly tracestate: string;
  readonly path: string;
  readonly sequenceId: string;
}

const carried = new AsyncLocalStorage<Work>();

/** null = nothing is being worked on. */
export function workNow(): Work | null {
  return carried.getStore() ?? null;
}

export function within<T>(work: Work, run: () => T): T {
  return carried.run(work, run);
}

/** What a call inherits beyond that: the time that the task was given, and how its steps share it. A message has times of its own. */
export function inheritTimes(work: Work, headers: Record<string, string>): void {
  if (work.totalMs !== '') headers[Header.deadlineTotalMs] ??= work.totalMs;
  if (work.budget !== '') headers[Header.budget] ??= work.budget;
}

/** Sets what a call or a message inherits; what the caller said itself stays. */
export function inherit(work: Work, clock: Clock, headers: Record<string, string>): void {
  const leftMs = Math.max(0, Math.floor(work.endsAt - clock.now()));
  const own = parseDeadlineMs(Header.deadlineMs, headers[Header.deadlineMs], Number.POSITIVE_INFINITY);
  // What is no time is left for its stage to refuse.
  if (own === null || (typeof own === 'number' && own > leftMs)) headers[Header.deadlineMs] = String(leftMs);
  headers[Header.traceparent] ??= work.traceparent;
  if (work.tracestate !== '') headers[Header.tracestate] ??= work.tracestate;
  headers[Header.path] = work.path;
  if (work.sequenceId !== '') headers[Header.sequenceId] ??= work.sequenceId;
}
