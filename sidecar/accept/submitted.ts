/** What a submission came to, for every way in: the same fields under the same names, whatever the protocol. */
import { FINAL_STATES, type TaskEvent } from '../../proto/wire/messages.ts';
import { dataOf } from '../call/answer-body.ts';
import type { Submitted, TaskView } from '../send/door.ts';

export interface Accepted {
  readonly task_id: string;
  readonly power_id: string;
  readonly durable: 'stream' | 'local-disk' | 'none';
  readonly state: 'accepted' | 'parked';
  readonly capability: string;
  readonly version: string | null;
  readonly lane: string;
  readonly rule: string | null;
  readonly trace_id: string;
}

export function acceptedOf(submitted: Extract<Submitted, { ok: true }>): Accepted {
  const { taskId, powerId, durable, state, capability, version, lane, rule, traceId } = submitted;
  return { task_id: taskId, power_id: powerId, durable, state, capability, version, lane, rule, trace_id: traceId };
}

/** A task as its sender sees it, as a JSON text; the result stands in it as its author wrote it. */
export function taskText(view: TaskView): string {
  const last = view.events.at(-1) ?? null;
  const received = view.events.find((event) => event.received_at_ms > 0) ?? null;
  const head = {
    task_id: view.taskId,
    power_id: view.powerId,
    capability: view.capability,
    state: view.state,
    is_final: FINAL_STATES.has(view.state),
    lane: view.lane,
    accepted_at_ms: view.acceptedAtMs === 0 ? null : view.acceptedAtMs,
    received_at_ms: received?.received_at_ms ?? null,
    by: orNull(last?.by),
    version: orNull(last?.version),
    attempts: last?.attempts ?? 0,
    code: last?.code ?? 0,
    cause: orNull(last?.cause),
    detail: orNull(last?.detail),
    status: last?.status ?? 0,
    replay: last?.replay ?? false,
    trace_id: orNull(last?.trace_id),
    events: view.events.map(eventOf),
    content_type: orNull(last?.content_type),
  };
  const text = JSON.stringify(head);
  return `${text.slice(0, -1)},"result":${resultText(view, last)}}`;
}

function eventOf({ state, code, cause, detail, by, version, attempts, at_ms, received_at_ms, status }: TaskEvent): object {
  return { state, code, cause, detail, by, version, attempts, at_ms, received_at_ms: received_at_ms === 0 ? null : received_at_ms, status };
}

/** JSON as it is, text as a string, other bytes as {base64, content_type}: as `data` of a Result. */
function resultText(view: TaskView, last: TaskEvent | null): string {
  if (view.result === null) return 'null';
  const type = last?.content_type ?? '';
  const data = dataOf(type === '' ? {} : { 'content-type': type }, view.result, false);
  if (data === null) return 'null';
  return typeof data === 'string' ? JSON.stringify(view.result.toString('utf8')) : data.toString('utf8');
}

function orNull(text: string | undefined): string | null {
  return text === undefined || text === '' ? null : text;
}
