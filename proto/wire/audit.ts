/**
 * An entry of the audit log as it is stored and exported: who did what to what, with which outcome, or how often a sidecar
 * refused whom. The entries of one writer are a chain: each is numbered and carries the hash of the text of the one before
 * it, so that one that is changed or taken out is seen. The text of an entry is one form only (the order of its keys is
 * fixed), so that whoever has the values can make the text, and its hash, again.
 *
 * Everything in it is text of bounded length without control characters; what looks like a credential is cut out. No
 * payload ever stands here.
 */
import { createHash } from 'node:crypto';
import { printable } from '../../base/log.ts';

export const AUDIT_WIRE = 1;

/** `done`; `refused`: not done, and why is in the code and the reason; `audited`: would have been refused, a list in audit let it pass. */
export type AuditOutcome = 'done' | 'refused' | 'audited';
export type AuditValue = string | number | boolean | null;

/** What whoever acts says of it. */
export interface AuditSaid {
  /** An operator, or the caller that was refused. */
  readonly actor: string;
  readonly role: string;
  /** Dotted, such as `override.set` or `call.refused`. */
  readonly action: string;
  readonly subject: string;
  readonly reason?: string;
  readonly detail?: Readonly<Record<string, AuditValue>>;
  readonly outcome: AuditOutcome;
  /** Of the closed table. */
  readonly code?: number;
  /** How often it happened since `sinceMs`; 1 when absent. */
  readonly count?: number;
  readonly sinceMs?: number;
}

export interface AuditRecord {
  readonly v: number;
  /** The replica of the control plane that wrote it, or `sidecar:<name>`. */
  readonly writer: string;
  /** Of this writer, from 1. */
  readonly n: number;
  /** Hash of the entry before; '' for the first one. */
  readonly prev: string;
  /** Wall clock of the writer, milliseconds. */
  readonly at_ms: number;
  readonly actor: string;
  readonly role: string;
  readonly action: string;
  readonly subject: string;
  readonly reason: string;
  readonly detail: Readonly<Record<string, AuditValue>>;
  readonly outcome: AuditOutcome;
  readonly code: number | null;
  readonly count: number;
  readonly since_ms: number;
}

const MAX_NAME_CHARS = 200;
const MAX_REASON_CHARS = 500;
const MAX_VALUE_CHARS = 2_000;
const MAX_DETAILS = 24;
const DETAIL_KEY = /^[a-z][a-z0-9_.]{0,47}$/i;
/** A signed token of three parts, the head of a private key, and the seeds of NATS. */
const CREDENTIAL =
  /eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}|-----BEGIN [A-Z ]*PRIVATE KEY-----[\w+/=\s]*|\bS[UANOCX][A-Z2-7]{56}\b|\bbearer\s+\S{8,}/gi;

/** As it may stand in the log: cut, printable, without what looks like a credential. */
export function auditText(text: string, maxChars: number): string {
  const short = text.length > 4 * maxChars ? text.slice(0, 4 * maxChars) : text;
  return printable(short.replace(CREDENTIAL, '[a credential, cut out]'), maxChars);
}

/** What was said, within its bounds. */
export function auditRecord(said: AuditSaid, writer: string, atMs: number): Omit<AuditRecord, 'n' | 'prev'> {
  const detail: Record<string, AuditValue> = {};
  for (const [key, value] of Object.entries(said.detail ?? {}).slice(0, MAX_DETAILS))
    if (DETAIL_KEY.test(key)) detail[key] = typeof value === 'string' ? auditText(value, MAX_VALUE_CHARS) : finite(value);
  return {
    v: AUDIT_WIRE,
    writer,
    at_ms: atMs,
    actor: auditText(said.actor, MAX_NAME_CHARS),
    role: auditText(said.role, MAX_NAME_CHARS),
    action: auditText(said.action, MAX_NAME_CHARS),
    subject: auditText(said.subject, MAX_NAME_CHARS),
    reason: auditText(said.reason ?? '', MAX_REASON_CHARS),
    detail,
    outcome: said.outcome,
    code: said.code ?? null,
    count: said.count ?? 1,
    since_ms: said.sinceMs ?? atMs,
  };
}

/** A number that JSON cannot write becomes null when it is read back, and would break the chain. */
function finite(value: AuditValue): AuditValue {
  return typeof value === 'number' && !Number.isFinite(value) ? null : value;
}

/** The one text of an entry. */
export function entryText(record: Omit<AuditRecord, 'n' | 'prev'>, n: number, prev: string): string {
  return JSON.stringify({
    v: record.v,
    writer: record.writer,
    n,
    prev,
    at_ms: record.at_ms,
    actor: record.actor,
    role: record.role,
    action: record.action,
    subject: record.subject,
    reason: record.reason,
    detail: record.detail,
    outcome: record.outcome,
    code: record.code,
    count: record.count,
    since_ms: record.since_ms,
  });
}

export function entryHash(text: string): string {
  return createHash('sha256').update(text, 'utf8').digest('base64url');
}

/** An entry that was stored; null when it is none. */
export function readEntry(text: string): AuditRecord | null {
  let value: unknown;
  try {
    value = JSON.parse(text) as unknown;
  } catch {
    return null;
  }
  return isEntry(value) ? value : null;
}

export function isEntry(value: unknown): value is AuditRecord {
  if (typeof value !== 'object' || value === null) return false;
  const entry = value as Partial<Record<keyof AuditRecord, unknown>>;
  const texts = [entry.writer, entry.prev, entry.actor, entry.role, entry.action, entry.subject, entry.reason, entry.outcome];
  const numbers = [entry.v, entry.n, entry.at_ms, entry.count, entry.since_ms];
  return (
    texts.every((each) => typeof each === 'string') &&
    numbers.every((each) => typeof each === 'number') &&
    typeof entry.detail === 'object' &&
    entry.detail !== null
  );
}
