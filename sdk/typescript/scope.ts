/**
 * What a call inherits from the work that it is part of: the time left, the budgets and the step, the conversation, the
 * trace and the path. Carried by the asynchronous context, so that nobody has to hand it from function to function. It is
 * one for the process, whichever `Reach` is used. What the figures mean is the sidecar's affair; here they are passed on.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { Header } from '../../proto/wire/headers.ts';
import { formatTraceparent, newSpanId, newTraceId } from '../../proto/wire/trace-context.ts';

export interface Scope {
  /** `clock.now()` when the time is over; Infinity = nobody has said. */
  readonly endsAt: number;
  /** The total of the task, milliseconds; 0 = nobody has said. */
  readonly totalMs: number;
  /** As the headers have them; '' = none. */
  readonly budget: string;
  readonly step: string;
  readonly sequenceId: string;
  readonly path: string;
  readonly traceparent: string;
  readonly tracestate: string;
  /** Aborted when nobody waits for the work any more; null = somebody always does. */
  readonly signal: AbortSignal | null;
}

const NO_SCOPE: Scope = Object.freeze({
  endsAt: Number.POSITIVE_INFINITY,
  totalMs: 0,
  budget: '',
  step: '',
  sequenceId: '',
  path: '',
  traceparent: '',
  tracestate: '',
  signal: null,
});

const carried = new AsyncLocalStorage<Scope>();

export function scopeNow(): Scope {
  return carried.getStore() ?? NO_SCOPE;
}

export function within<T>(scope: Scope, run: () => T): T {
  return carried.run(scope, run);
}

/** The present scope with some of it changed. What begins here is one trace from here on. */
export function changed(change: Partial<Scope>, random: Random): Scope {
  const present = scopeNow();
  const traceparent = present.traceparent || formatTraceparent(newTraceId(random), newSpanId(random), 1);
  return { ...present, traceparent, ...change };
}

/** A limit never gives more time than there was. */
export function limited(ms: number, clock: Clock, random: Random): Scope {
  const present = scopeNow();
  const endsAt = Math.min(present.endsAt, clock.now() + ms);
  return changed({ endsAt, totalMs: present.totalMs || Math.max(0, Math.floor(ms)) }, random);
}

/** The scope of a handler, from the headers that came with the request. */
export function scopeFrom(header: (name: string) => string, signal: AbortSignal, clock: Clock): Scope {
  const leftMs = header(Header.deadlineMs);
  return {
    endsAt: leftMs === '' ? Number.POSITIVE_INFINITY : clock.now() + Number(leftMs),
    totalMs: Number(header(Header.deadlineTotalMs)) || 0,
    budget: header(Header.budget),
    step: '',
    sequenceId: header(Header.sequenceId),
    path: header(Header.path),
    traceparent: header(Header.traceparent),
    tracestate: header(Header.tracestate),
    signal,
  };
}

/** What is carried, as headers. */
export function scopeHeaders(scope: Scope, into: Record<string, string>): void {
  if (scope.totalMs > 0) into[Header.deadlineTotalMs] = String(scope.totalMs);
  if (scope.budget !== '') into[Header.budget] = scope.budget;
  if (scope.step !== '') into[Header.step] = scope.step;
  if (scope.sequenceId !== '') into[Header.sequenceId] = scope.sequenceId;
  if (scope.path !== '') into[Header.path] = scope.path;
  if (scope.traceparent !== '') into[Header.traceparent] = scope.traceparent;
  if (scope.tracestate !== '') into[Header.tracestate] = scope.tracestate;
}

/** `{intent: 1500, order: 2500}` as the header has it. Order counts. */
export function budgetText(budget: Readonly<Record<string, number>>): string {
  return Object.entries(budget)
    .map(([step, ms]) => `${step}=${Math.round(ms)}`)
    .join(', ');
}
