/**
 * The work that a function of this process is doing, carried by the asynchronous context: calls made meanwhile are part of it,
 * with its trace, its path, what is left of its time, and in the name of its agent. Nobody hands it from function to function.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../../base/clock.ts';
import { Header } from '../../proto/wire/headers.ts';

export interface Work {
  readonly agent: string;
  /** `clock.now()` when nobody waits any more. */
  readonly endsAt: number;
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

/** Sets what a call inherits; what the caller said itself stays. */
export function inherit(work: Work, clock: Clock, headers: Record<string, string>): void {
  const leftMs = Math.max(0, Math.floor(work.endsAt - clock.now()));
  const own = headers[Header.deadlineMs];
  if (own === undefined || Number(own) > leftMs) headers[Header.deadlineMs] = String(leftMs);
  headers[Header.traceparent] ??= work.traceparent;
  if (work.tracestate !== '') headers[Header.tracestate] ??= work.tracestate;
  headers[Header.path] = work.path;
  if (work.sequenceId !== '') headers[Header.sequenceId] ??= work.sequenceId;
}
