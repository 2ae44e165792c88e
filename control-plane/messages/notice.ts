/** One notice to operators: what it says, and how it is signed. Pure. */
import { createHmac } from 'node:crypto';
import { codeEntry, isCode } from '../../proto/wire/codes.ts';
import type { Kept } from './kept-entry.ts';

export interface Notice {
  /** The same for the same entry, however often it comes. */
  readonly id: string;
  readonly kind: string;
  readonly task_id: string;
  readonly capability: string;
  readonly source: string;
  readonly code: number;
  readonly code_name: string;
  readonly cause: string;
  readonly detail: string;
  readonly attempts: number;
  readonly rule: string | null;
  readonly since: string;
  /** What a person would do next. */
  readonly hint: string;
}

/** That a shift of traffic went on, or was taken back, by itself. */
export interface ShiftNotice {
  readonly id: string;
  readonly kind: 'shift';
  readonly capability: string;
  /** Version or provider. */
  readonly target: string;
  /** Such as `rolled_back`. */
  readonly outcome: string;
  readonly detail: string;
  readonly since: string;
  readonly hint: string;
}

/** That an alert fires, or is resolved. */
export interface AlertNotice {
  readonly id: string;
  readonly kind: 'alert';
  /** Such as `p95_rise`. */
  readonly alert: string;
  readonly state: 'firing' | 'resolved';
  readonly subject: string;
  /** For people. */
  readonly detail: string;
  readonly value: number;
  readonly limit: number;
  readonly capability: string | null;
  readonly agent: string | null;
  readonly sidecar: string | null;
  readonly trace_id: string | null;
  readonly since: string;
  readonly resolved: string | null;
  readonly hint: string;
}

export function noticeOf(epoch: string, { seq, storedAtMs, entry }: Kept): Notice {
  return {
    id: `${epoch}/${seq}`,
    kind: entry.kind,
    task_id: entry.task_id,
    capability: entry.capability,
    source: entry.source,
    code: entry.code,
    code_name: isCode(entry.code) ? codeEntry(entry.code).name : '',
    cause: entry.cause,
    detail: entry.detail,
    attempts: entry.attempts.length,
    rule: entry.rule,
    since: new Date(storedAtMs).toISOString(),
    hint: `reachctl tasks show ${entry.task_id}`,
  };
}

/** Value of `Reach-Signature`: whoever knows the secret can tell that the body is ours and when it was sent. */
export function signature(secret: string, seconds: number, body: string): string {
  return `t=${seconds},v1=${createHmac('sha256', secret).update(`${seconds}.${body}`).digest('hex')}`;
}
