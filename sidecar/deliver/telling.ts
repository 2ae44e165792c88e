/** What is told of a message in hand, and written about it for people. Pure: where it goes is decided elsewhere. */
import { Code } from '../../proto/wire/codes.ts';
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { KeptEntry, KeptKind, TaskState } from '../../proto/wire/messages.ts';
import type { Report } from './hand-over.ts';
import type { InHand } from './in-hand.ts';
import type { Told } from './results.ts';
import type { FailedTry } from './tries.ts';

/** @param report the agent's answer, where it is told too */
export function toldOf(
  wallMs: number,
  task: InHand,
  state: TaskState,
  code: Code,
  cause: string,
  detail: string,
  report: Report | null,
  by: string,
  version: string,
  replay: boolean,
): Told {
  return {
    state,
    code,
    cause,
    detail,
    by,
    version,
    attempts: task.tries,
    receivedAtMs: task.receivedAtMs > 0 ? task.receivedAtMs : state === 'done' && !replay ? wallMs : 0,
    status: report === null ? 0 : report.status,
    contentType: report === null ? '' : report.contentType,
    replay,
  };
}

export function keptEntry(
  task: InHand,
  kind: KeptKind,
  code: Code,
  cause: string,
  detail: string,
  failed: readonly FailedTry[],
  wallMs: number,
): KeptEntry {
  const { envelope } = task;
  return {
    wire: MESSAGE_WIRE,
    kind,
    task_id: envelope.task_id,
    capability: envelope.capability,
    source: envelope.source,
    code,
    cause,
    detail,
    attempts: failed,
    since_ms: Math.round(wallMs),
    rule: envelope.rule,
  };
}

/** Of a message without an envelope that can be read. */
export function unreadableEntry(id: string, why: string, wallMs: number): KeptEntry {
  return {
    wire: MESSAGE_WIRE,
    kind: 'dead',
    task_id: id,
    capability: '',
    source: '',
    code: Code.dead_lettered,
    cause: 'unreadable',
    detail: why,
    attempts: [],
    since_ms: Math.round(wallMs),
    rule: null,
  };
}

/** Whole answers that cannot be used: the work was done all the same. */
const UNUSABLE: ReadonlySet<number> = new Set([Code.bad_response, Code.response_too_large, Code.invalid_response]);

/** Its key is not to be free again: what was called off in the midst of it, and work of one start whose answer was no good. */
export function mayHaveActed(task: InHand, told: Told): boolean {
  if (task.handedAt < 0) return false;
  return told.state === 'cancelled' || (task.execution === 'once' && UNUSABLE.has(told.code));
}
