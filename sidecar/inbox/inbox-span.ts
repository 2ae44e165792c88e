/** The span of an entry of an inbox: from when it was stored until its agent is given it for the first time. */
import { MESSAGE_CAPABILITY } from '../../proto/wire/envelope.ts';
import { stageContext, type StageSpans } from '../call/stage-spans.ts';
import type { Entry } from './entry.ts';

/** @param now `clock.now()` */
export function tellGiven(stages: StageSpans, entry: Entry, agent: string, now: number): void {
  const waited = entry.toTell;
  entry.toTell = null;
  if (waited === null) return;
  const { head, storedAtMs } = waited;
  const context = stageContext(head.traceparent);
  if (context === null) return;
  const isState = head.kind === 'state';
  stages.tell(
    {
      trace_id: context.traceId,
      span_id: stages.newId(),
      parent_span_id: context.spanId,
      stage: 'inbox',
      start_ms: storedAtMs,
      elapsed_ms: Math.max(0, stages.wallAt(now) - storedAtMs),
      code: 0,
      capability: isState ? head.capability : MESSAGE_CAPABILITY,
      provider: agent,
      caller: isState ? head.by : head.source,
      way: 'message',
      detail: isState ? head.state : head.kind,
      task_id: head.task_id,
    },
    context.isPicked,
  );
}
