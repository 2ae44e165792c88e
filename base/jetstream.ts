/**
 * The forms of JetStream's API that are used here: what a stream is asked to be, what the server made of it, what it answers.
 * Pure: bytes and values in, values out. Nothing newer than nats-server 2.9 is needed for any of it.
 */
import { GIVEN_OUT } from './bus-message.ts';

/** What a stream should be. What is left out stays as the server has it (or makes it, for a new one). */
export interface StreamSpec {
  readonly name: string;
  readonly subjects: readonly string[];
  readonly description?: string;
  readonly storage?: 'file' | 'memory';
  readonly retention?: 'limits' | 'interest' | 'workqueue';
  /** What goes when it is full: the oldest message, or the one that is coming in. */
  readonly discard?: 'old' | 'new';
  /** 1 keeps the last message of each subject. */
  readonly maxMsgsPerSubject?: number;
  readonly maxMsgs?: number;
  readonly maxBytes?: number;
  readonly maxAgeMs?: number;
  readonly maxConsumers?: number;
  readonly duplicateWindowMs?: number;
  readonly replicas?: number;
  /** Reading by direct get, from any replica. */
  readonly allowDirect?: boolean;
  readonly denyDelete?: boolean;
  readonly denyPurge?: boolean;
  /** What is stored under `source` is also published under `destination`, with its sequence in headers. */
  readonly republish?: { readonly source: string; readonly destination: string };
  /** Further fields, spelt as the server spells them: what an old server does not know, it ignores, and that is reported. */
  readonly extra?: Readonly<Record<string, unknown>>;
}

/** A message as a stream holds it. */
export interface Stored {
  readonly subject: string;
  /** Position in the stream, over all its subjects. */
  readonly seq: number;
  readonly data: Buffer;
  /** When the *server* stored it, by its clock. */
  readonly timestampMs: number;
}

export interface StreamFacts {
  readonly name: string;
  readonly messages: number;
  readonly bytes: number;
  readonly firstSeq: number;
  readonly lastSeq: number;
  /** When the server stored the last one, by its clock; 0 = it never had one. */
  readonly lastAtMs: number;
  /** What it may hold; -1 = as much as there is room for. */
  readonly maxMessages: number;
  readonly maxBytes: number;
  readonly consumers: number;
  /** As the server writes it. Differs when the stream was deleted and made anew. */
  readonly created: string;
  readonly subjects: readonly string[];
}

/** The server's refusal in its own words. `errCode` is the stable number of the case (10059 = no such stream). */
export interface ApiProblem {
  readonly code: number;
  readonly errCode: number;
  readonly words: string;
}

export const NO_SUCH_STREAM = 10_059;
export const STREAM_NAME_TAKEN = 10_058;
export const NO_MESSAGE_FOUND = 10_037;
export const NO_SUCH_CONSUMER = 10_014;
export const NO_SUCH_SEQUENCE = 10_043;
/** `stream message delete failed`, with its reason in words. */
export const DELETE_FAILED = 10_057;
const WRONG_LAST_SEQUENCE: ReadonlySet<number> = new Set([10_071, 10_164]);

export type Json = Readonly<Record<string, unknown>>;
const NANOS_PER_MS = 1_000_000;

/** The spec in the server's own spelling. */
export function wireConfig(spec: StreamSpec): Record<string, unknown> {
  const config: Record<string, unknown> = { name: spec.name, subjects: spec.subjects };
  const put = (key: string, value: unknown): void => {
    if (value !== undefined) config[key] = value;
  };
  put('description', spec.description);
  put('storage', spec.storage);
  put('retention', spec.retention);
  put('discard', spec.discard);
  put('max_msgs_per_subject', spec.maxMsgsPerSubject);
  put('max_msgs', spec.maxMsgs);
  put('max_bytes', spec.maxBytes);
  put('max_age', nanos(spec.maxAgeMs));
  put('max_consumers', spec.maxConsumers);
  put('duplicate_window', nanos(spec.duplicateWindowMs));
  put('num_replicas', spec.replicas);
  put('allow_direct', spec.allowDirect);
  put('deny_delete', spec.denyDelete);
  put('deny_purge', spec.denyPurge);
  if (spec.republish !== undefined) put('republish', { src: spec.republish.source, dest: spec.republish.destination });
  return { ...config, ...spec.extra };
}

/** A new stream needs these said; an existing one keeps what it has. */
export const NEW_STREAM: Json = Object.freeze({
  storage: 'file',
  retention: 'limits',
  discard: 'old',
  max_msgs: -1,
  max_bytes: -1,
  max_age: 0,
  max_consumers: -1,
  max_msg_size: -1,
  num_replicas: 1,
});

/** Fields that were asked for and are not so: `allow_direct: true (the server has nothing)`. */
export function differences(wanted: Json, actual: Json): string[] {
  const found: string[] = [];
  for (const [key, value] of Object.entries(wanted)) {
    if (isWithin(value, actual[key])) continue;
    const has = actual[key] === undefined ? 'nothing' : JSON.stringify(actual[key]);
    found.push(`${key}: ${JSON.stringify(value)} (the server has ${has})`);
  }
  return found;
}

/** The server leaves out what is false, 0 or empty, and adds fields of its own to objects. */
function isWithin(wanted: unknown, actual: unknown): boolean {
  if (Array.isArray(wanted)) {
    return Array.isArray(actual) && wanted.length === actual.length && wanted.every((each, i) => isWithin(each, actual[i]));
  }
  if (typeof wanted === 'object' && wanted !== null) {
    const has = isJson(actual) ? actual : {};
    return Object.entries(wanted).every(([key, value]) => isWithin(value, has[key]));
  }
  if (actual === undefined) return wanted === false || wanted === 0 || wanted === '' || wanted === null;
  return wanted === actual;
}

export function configIn(reply: Json): Json {
  return isJson(reply['config']) ? reply['config'] : {};
}

export function streamFacts(reply: Json): StreamFacts {
  const config = configIn(reply);
  const state = isJson(reply['state']) ? reply['state'] : {};
  const subjects = config['subjects'];
  return {
    name: text(config['name']),
    messages: whole(state['messages']),
    bytes: whole(state['bytes']),
    firstSeq: whole(state['first_seq']),
    lastSeq: whole(state['last_seq']),
    // the server writes its zero as the year 1
    lastAtMs: Math.max(0, timestamp(text(state['last_ts']))),
    maxMessages: limit(config['max_msgs']),
    maxBytes: limit(config['max_bytes']),
    consumers: whole(state['consumer_count']),
    created: text(reply['created']),
    subjects: Array.isArray(subjects) ? subjects.map(text) : [],
  };
}

/** Subjects (and how many messages each has) of one page of a stream's info. */
export function subjectsOf(reply: Json): Map<string, number> {
  const state = isJson(reply['state']) ? reply['state'] : {};
  const subjects = isJson(state['subjects']) ? state['subjects'] : {};
  return new Map(Object.entries(subjects).map(([subject, count]) => [subject, whole(count)]));
}

/** The JSON object of an API reply; null when it is none. */
export function parseJson(data: Buffer): Json | null {
  try {
    const value: unknown = JSON.parse(data.toString('utf8'));
    return isJson(value) ? value : null;
  } catch {
    return null;
  }
}

export function problemOf(reply: Json): ApiProblem | null {
  const error = reply['error'];
  if (!isJson(error)) return null;
  return { code: whole(error['code']), errCode: whole(error['err_code']), words: text(error['description']) || 'refused without a word' };
}

/** The sequence that the stream (or the subject) is really at, when the refusal is about that; null when it does not say which. */
export function conflictOf(problem: ApiProblem): { lastSeq: number | null } | null {
  if (!WRONG_LAST_SEQUENCE.has(problem.errCode)) return null;
  const number = /(\d+)\s*$/.exec(problem.words);
  return { lastSeq: number === null ? null : Number(number[1]) };
}

/** The message in a reply of MSG.GET. */
export function storedIn(reply: Json): Stored | null {
  const message = reply['message'];
  if (!isJson(message) || typeof message['subject'] !== 'string') return null;
  const isGivenOut = Buffer.from(text(message['hdrs']), 'base64').includes(`\r\n${GIVEN_OUT}:`);
  return {
    subject: message['subject'],
    seq: whole(message['seq']),
    data: Buffer.from(isGivenOut ? '' : text(message['data']), 'base64'),
    timestampMs: timestamp(text(message['time'])),
  };
}

/** Milliseconds since 1970 of the server's RFC 3339 text; 0 when it is none. */
export function timestamp(rfc3339: string): number {
  const at = Date.parse(rfc3339);
  return Number.isNaN(at) ? 0 : at;
}

/** Null when `version` (as `2.14.0`) is one that production should run; else the warning. */
export function versionWarning(version: string): string | null {
  if (version === '') return null;
  const [major = 0, minor = 0, patch = 0] = version.split(/[.+-]/).map(Number);
  const rank = major * 1_000_000 + minor * 1_000 + patch;
  if (Number.isNaN(rank)) return null;
  if (rank < 2_009_000)
    return `nats-server ${version} is too old: 2.9 is the least that works, 2.14 or newer is what production should run`;
  if (rank < 2_010_027) {
    return `nats-server ${version} is below 2.10.27: known vulnerabilities, no control over fsync. It will do for a demo and for tests; for production run 2.14 or newer`;
  }
  return null;
}

export function nanos(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms * NANOS_PER_MS;
}

export function isJson(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function limit(value: unknown): number {
  return typeof value === 'number' && value > 0 ? value : -1;
}

export function whole(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}

export function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
