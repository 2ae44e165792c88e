/**
 * What stands under a key in AR_IDEM: one line of JSON, a newline, then the result's bytes as they came. Who may change it is not
 * decided here. A record that cannot be read is none of ours: it is answered as in doubt, never written over.
 */
import type { Execution } from '../../proto/language/types.ts';
import { LEDGER_WIRE } from '../../proto/wire/ledger-key.ts';
import type { ClaimAsk, KeptMarks, KeptResult } from './ledger.ts';

export type ClaimState = 'executing' | 'done' | 'released' | 'unknown';

export class ClaimRecord {
  readonly state: ClaimState;
  readonly ask: ClaimAsk;
  /** Of one claim, and of no other: tells our own writes from those of others. */
  readonly nonce: string;
  /** Counts the writes of that claim. */
  readonly step: number;
  /** Hand-overs that count. */
  readonly tries: number;
  readonly leaseMs: number;
  /** Only of `done`. */
  readonly result: KeptResult | null;
  /** Why, for people; only of `unknown`. */
  readonly detail: string;
  /** Only of `released`: the task that had it has ended for good. */
  readonly ended: boolean;

  constructor(
    state: ClaimState,
    ask: ClaimAsk,
    nonce: string,
    step: number,
    tries: number,
    leaseMs: number,
    result: KeptResult | null,
    detail: string,
    ended = false,
  ) {
    this.state = state;
    this.ask = ask;
    this.nonce = nonce;
    this.step = step;
    this.tries = tries;
    this.leaseMs = leaseMs;
    this.result = result;
    this.detail = detail;
    this.ended = ended;
  }
}

const MAX_DETAIL_CHARS = 500;
const NEWLINE = 0x0a;
const NO_BYTES = Buffer.alloc(0);

/**
 * A claim keeps room for its end: a stream that is full to the last byte takes a record in place of one that is no smaller, and
 * nothing longer. Enough for all that an end says, but for the result's bytes and for people's words.
 */
const ROOM = ' '.repeat(512);
const END_CHARS = 320;
const BARE_CHARS = 64;

function roomOf({ ask, step, tries }: ClaimRecord, expected: number): string {
  // So that it is as long in the stream however often it is extended: the sequence that is expected stands in its headers.
  const digits = String(step).length + String(tries).length + String(expected).length;
  return ROOM.slice(0, END_CHARS + ask.worker.length + ask.version.length - digits);
}

/** @param expected sequence that it is to take the place of */
export function encodeRecord(record: ClaimRecord, expected: number = 0): Buffer {
  const { ask, result } = record;
  const line = `${JSON.stringify({
    wire: LEDGER_WIRE,
    state: record.state,
    key: ask.key,
    caller: ask.caller,
    capability: ask.capability,
    version: ask.version,
    hash: ask.payloadHash,
    execution: ask.execution,
    task: ask.taskId,
    worker: ask.worker,
    nonce: record.nonce,
    step: record.step,
    tries: record.tries,
    lease_ms: record.leaseMs,
    ...(record.detail === '' ? null : { detail: record.detail.slice(0, MAX_DETAIL_CHARS) }),
    ...(record.ended ? { ended: true } : null),
    ...(result === null ? null : { result: headOf(result) }),
    ...(record.state === 'executing' ? { room: roomOf(record, expected) } : null),
  })}\n`;
  return result === null || result.body.length === 0 ? Buffer.from(line, 'utf8') : Buffer.concat([Buffer.from(line, 'utf8'), result.body]);
}

function headOf(result: KeptResult): object {
  const { marks } = result;
  return {
    code: result.code,
    status: result.status,
    content_type: result.contentType,
    provider: result.provider,
    version: result.version,
    detail: result.detail.slice(0, MAX_DETAIL_CHARS),
    left_out: result.leftOutBytes,
    ...(marks?.degraded === true ? { degraded: true } : null),
    ...(marks?.definitely === true ? { definitely: true } : null),
    ...(marks === null || marks.headers === null ? null : { headers: marks.headers }),
  };
}

/** Null when it is not a record of this form. `data` may be a view: the body is copied out of it. */
export function readRecord(id: string, data: Buffer): ClaimRecord | null {
  const end = data.indexOf(NEWLINE);
  if (end < 0) return null;
  let line: Readonly<Record<string, unknown>>;
  try {
    line = JSON.parse(data.toString('utf8', 0, end)) as Readonly<Record<string, unknown>>;
  } catch {
    return null;
  }
  if (line === null || typeof line !== 'object') return null;
  const { state, execution, result } = line;
  if (line['wire'] !== LEDGER_WIRE || !isState(state) || !isExecution(execution)) return null;
  const ask: ClaimAsk = {
    id,
    caller: text(line['caller']),
    capability: text(line['capability']),
    version: text(line['version']),
    payloadHash: text(line['hash']),
    execution,
    key: text(line['key']),
    taskId: text(line['task']),
    worker: text(line['worker']),
  };
  let kept: KeptResult | null = null;
  if (state === 'done') {
    if (typeof result !== 'object' || result === null) return null;
    const head = result as Readonly<Record<string, unknown>>;
    kept = {
      code: whole(head['code']),
      status: whole(head['status']),
      contentType: text(head['content_type']),
      provider: text(head['provider']),
      version: text(head['version']),
      detail: text(head['detail']),
      body: end + 1 < data.length ? Buffer.from(data.subarray(end + 1)) : NO_BYTES,
      leftOutBytes: whole(head['left_out']),
      marks: marksIn(head),
    };
  }
  return new ClaimRecord(
    state,
    ask,
    text(line['nonce']),
    whole(line['step']),
    whole(line['tries']),
    whole(line['lease_ms']),
    kept,
    text(line['detail']),
    line['ended'] === true,
  );
}

/** Records of older programs have none. */
function marksIn(head: Readonly<Record<string, unknown>>): KeptMarks | null {
  const degraded = head['degraded'] === true;
  const definitely = head['definitely'] === true;
  const headers = headersIn(head['headers']);
  return degraded || definitely || headers !== null ? { degraded, definitely, headers } : null;
}

function headersIn(value: unknown): Readonly<Record<string, string>> | null {
  if (typeof value !== 'object' || value === null) return null;
  const headers: Record<string, string> = {};
  for (const [name, text] of Object.entries(value)) if (typeof text === 'string') headers[name] = text;
  return headers;
}

function isState(value: unknown): value is ClaimState {
  return value === 'executing' || value === 'done' || value === 'released' || value === 'unknown';
}

function isExecution(value: unknown): value is Execution {
  return value === 'once' || value === 'idempotent' || value === 'keyed';
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function whole(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : 0;
}

/** Stands in a payload's hash before that of what an intercepted client shows the provider. */
const WITH_CREDENTIALS = '.';

/** @param credentials hash of what the client shows; '' = nothing, which is written down too */
export function hashWith(payload: string, credentials: string): string {
  return payload + WITH_CREDENTIALS + credentials;
}

/** A record of before credentials were looked at tells of the payload alone. */
export function isSameUse(before: string, now: string): boolean {
  if (before === now) return true;
  return !before.includes(WITH_CREDENTIALS) && now.startsWith(before + WITH_CREDENTIALS);
}

/** How one use of a key differs from the other; in words. */
export function otherThan(before: string, now: string): string {
  const isSamePayload = before.split(WITH_CREDENTIALS, 1)[0] === now.split(WITH_CREDENTIALS, 1)[0];
  return isSamePayload ? 'by a client with other credentials for the provider' : 'with another payload (the bytes are compared)';
}

/** Why this use of the key is another one than the recorded use; null = it is the same. Answers of one major version fit each other. */
export function reuseOf(record: ClaimRecord, ask: ClaimAsk): string | null {
  if (!isSameUse(record.ask.payloadHash, ask.payloadHash)) return `the key was used ${otherThan(record.ask.payloadHash, ask.payloadHash)}`;
  // Of a message to a role nobody knows the version before it is handed over.
  if (record.ask.version !== '' && majorOf(record.ask.version) !== majorOf(ask.version))
    return `the key was used with ${record.ask.capability}@${record.ask.version}, another major version than ${ask.version}`;
  return null;
}

/**
 * Hand-overs that count for whoever claims a key that is free again: those of its own task. What another task with the same key had
 * is its own affair, unless its worker vanished: then that may be what the payload does to whoever gets it.
 */
function triesBefore({ state, ask: before, tries }: ClaimRecord, { taskId }: ClaimAsk): number {
  return state === 'released' && before.taskId !== taskId ? 0 : tries;
}

/**
 * The same, with what is known from elsewhere. A task that was given back with none has none: whoever gave it back knew of the first
 * hand-over, which is nowhere recorded otherwise.
 */
export function triesWith(record: ClaimRecord, ask: ClaimAsk, known: number): number {
  const isGivenBack = record.state === 'released' && record.ask.taskId === ask.taskId && record.tries === 0;
  return isGivenBack ? 0 : Math.max(known, triesBefore(record, ask));
}

function majorOf(version: string): string {
  const dot = version.indexOf('.');
  return dot < 0 ? version : version.slice(0, dot);
}

/** What is kept of a result: without its bytes when they are more than `maxBytes`. */
export function fitted(result: KeptResult, maxBytes: number): KeptResult {
  return result.body.length <= maxBytes ? result : { ...result, body: NO_BYTES, leftOutBytes: result.body.length };
}

/** As short as the end of a claim can be: its room is enough for this, whatever the agent said. */
export function bare(result: KeptResult): KeptResult {
  const marks = result.marks === null ? null : { ...result.marks, headers: null };
  return { ...fitted(result, 0), contentType: result.contentType.slice(0, BARE_CHARS), detail: '', marks };
}
