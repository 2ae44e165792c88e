/**
 * The stages of a message at its worker as spans: the time in the queue, each hand-over, and its result. What was killed in the midst of
 * a hand-over cannot tell it: whoever has the message next does so (`deliverSpanId`), and says again that it was sent.
 */
import { Code } from '../../proto/wire/codes.ts';
import { deliverSpanId, sentAgain, stageContext, type StageContext, type StageEnd, stageOf, type StageSpans } from '../call/stage-spans.ts';
import type { Report } from './hand-over.ts';
import type { InHand } from './in-hand.ts';
import type { Told } from './results.ts';

/** It has come out of the queue. @param isNew this process has not had it before */
export function tellQueue(stages: StageSpans, task: InHand, isNew: boolean): void {
  const { envelope, delivery } = task;
  const context = stageContext(envelope.traceparent);
  if (context === null || !isNew) return;
  const { storedAtMs, deliveries } = delivery;
  const end = {
    stage: 'queue' as const,
    spanId: stages.newId(),
    startMs: storedAtMs,
    endMs: stages.wallAt(task.arrivedAt),
    code: 0,
    tries: deliveries,
  };
  tell(stages, task, context, end);
  stages.retell(sentAgain(envelope, context, storedAtMs), context.isPicked);
}

/** Its id, which the call that the message becomes has as its parent; '' = no traces are made. */
export function beginDeliver(stages: StageSpans | null, task: InHand): string {
  const context = stages === null ? null : stageContext(task.envelope.traceparent);
  if (context === null) return '';
  task.spanId = deliverSpanId(context, task.delivery.streamSeq, task.delivery.deliveries, ++task.handOvers);
  return task.spanId;
}

/** After a restart: the hand-over that goes on is the one before this delivery. */
export function resumeDeliver(stages: StageSpans | null, task: InHand): void {
  const context = stages === null ? null : stageContext(task.envelope.traceparent);
  if (context !== null) task.spanId = deliverSpanId(context, task.delivery.streamSeq, Math.max(1, task.delivery.deliveries - 1), 1);
}

/** A hand-over has ended, as it was reported. @param startedAt `clock.now()`, or null = by the wall clock that is in the task */
export function tellDeliver(stages: StageSpans | null, task: InHand, report: Report, now: number): void {
  const context = stages === null ? null : stageContext(task.envelope.traceparent);
  if (stages === null || context === null || task.spanId === '') return;
  const spanId = task.spanId;
  task.spanId = '';
  const startMs = task.isKept && task.receivedAtMs > 0 ? task.receivedAtMs : stages.wallAt(task.handedAt);
  tell(stages, task, context, {
    stage: 'deliver',
    spanId,
    startMs,
    endMs: stages.wallAt(now),
    code: report.code,
    detail: report.detail,
    status: report.status,
    started: report.started,
    provider: task.seat.slots.agentId,
    version: task.seat.candidate.version.text,
    tries: task.tries,
  });
}

/** Its key says that it was handed over before, and nothing was heard of that: its spans, if there are any, get their parent. */
export function retellDeliver(stages: StageSpans | null, task: InHand, now: number): void {
  const context = stages === null ? null : stageContext(task.envelope.traceparent);
  const { delivery, envelope, tries } = task;
  if (stages === null || context === null || delivery.deliveries < 2 || tries < 2) return;
  const spanId = deliverSpanId(context, delivery.streamSeq, delivery.deliveries - 1, 1);
  const end: StageEnd = {
    stage: 'deliver',
    spanId,
    startMs: delivery.storedAtMs,
    endMs: stages.wallAt(now),
    code: Code.connection_lost,
    detail: 'its worker was not heard of any more',
    started: 'started',
    tries: tries - 1,
  };
  stages.retell(stageOf(envelope, context, context.spanId, end), context.isPicked);
}

/** How it ended, from then until that lies where its sender finds it. @param isStored false = it could not be written, and comes again */
export function tellResult(stages: StageSpans | null, task: InHand, told: Told, startedAt: number, now: number, isStored: boolean): void {
  const context = stages === null ? null : stageContext(task.envelope.traceparent);
  if (stages === null || context === null) return;
  tell(stages, task, context, {
    stage: 'result',
    spanId: stages.newId(),
    startMs: stages.wallAt(startedAt),
    endMs: stages.wallAt(now),
    code: isStored ? told.code : Code.delivery_unavailable,
    detail: isStored ? wordsOf(told) : 'what came of it could not be stored; the message comes again',
    status: told.status,
    provider: told.by,
    version: told.version,
    tries: told.attempts,
    replay: told.replay,
  });
}

function wordsOf({ state, cause, detail }: Told): string {
  if (state === 'done') return detail;
  const what = cause === '' ? state : `${state} (${cause})`;
  return detail === '' ? what : `${what}: ${detail}`;
}

function tell(stages: StageSpans, { envelope }: InHand, context: StageContext, end: StageEnd): void {
  stages.tell(stageOf(envelope, context, context.spanId, end), context.isPicked);
}
