/**
 * An RPC's metadata and message to a Call. Metadata are the headers of HTTP by the same lower-case names; what belongs to
 * gRPC itself is read here and goes no further. Reads no policy: stages read the headers they know by name.
 */
import { parseDeadlineMs } from '../../proto/wire/deadline.ts';
import { Header } from '../../proto/wire/headers.ts';
import {
  CastRequest as CastMessage,
  InvokeRequest as Message,
  type InvokeRequest as MessageFields,
} from '../../proto/wire/reach-messages.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call } from '../call/call.ts';
import { NO_BODY } from '../call/reply.ts';
import { hasForbiddenCharacter, isHeaderName } from '../transports/hygiene.ts';
import type { Front } from './front.ts';
import { jsonOfValue } from './grpc-value.ts';

const JSON_TYPE = 'application/json';

/** In which form the caller sent its payload, which is the one it gets its answer in. */
export type Form = 'payload' | 'json' | 'params';

/** Message `InvokeRequest`, read. */
export class InvokeRequest {
  capability = '';
  form: Form = 'payload';
  body: Buffer = NO_BODY;
  contentType = '';
  /** Names and values in turn, as sent; null = none. */
  headers: string[] | null = null;
}

/** Or the words of a refusal. */
export function readInvokeRequest(message: Buffer): InvokeRequest | string {
  const read = Message.read(message);
  return read === null ? 'the message is not a well-formed agentreach.v1.InvokeRequest, or it is nested too deep' : requestFrom(read);
}

/** A cast says what an Invoke says. Or the words of a refusal. */
export function readCastRequest(message: Buffer): InvokeRequest | string {
  const read = CastMessage.read(message);
  return read === null ? 'the message is not a well-formed agentreach.v1.CastRequest, or it is nested too deep' : requestFrom(read);
}

function requestFrom(read: MessageFields): InvokeRequest | string {
  const request = new InvokeRequest();
  request.capability = read.capability;
  request.contentType = read.contentType;
  const { input } = read;
  if (input.case === 'payload') request.body = viewOf(input.value);
  else if (input.case !== undefined) {
    request.form = input.case;
    const json = input.case === 'json' ? input.value : jsonOfValue(input.value);
    if (json === null) return 'params is not a value that JSON can hold (not set, NaN, infinity, or nested too deep)';
    request.body = Buffer.from(json, 'utf8');
  }
  for (const name of Object.keys(read.headers)) (request.headers ??= []).push(name, read.headers[name] as string);
  if (request.form !== 'payload' && request.contentType !== '' && !request.contentType.startsWith(JSON_TYPE))
    return `${request.form} is always ${JSON_TYPE}; send other content as payload`;
  return request;
}

function viewOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Of names and values, as HTTP counts them against its limit. */
export function headerChars({ headers }: InvokeRequest): number {
  let chars = 0;
  if (headers !== null) for (const text of headers) chars += text.length + 2;
  return chars;
}

/** What one RPC's HTTP/2 headers say. */
export class Metadata {
  readonly view: Record<string, string | undefined> = Object.create(null) as Record<string, string>;
  /** Of `grpc-timeout`; null = none was given. */
  timeout: string | null = null;
  /** Of `grpc-encoding`. */
  encoding = 'identity';
}

/** Belongs to the connection or to gRPC, or is told by the message. */
const NOT_OURS: ReadonlySet<string> = new Set([
  'te',
  'host',
  'content-type',
  'content-length',
  'connection',
  'transfer-encoding',
  'accept-encoding',
]);

/** `raw` is names and values in turn, as HTTP/2 has them: names in lower case, pseudo headers first. */
export function readMetadata(raw: readonly string[]): Metadata {
  const metadata = new Metadata();
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    if (name.charCodeAt(0) === 0x3a || NOT_OURS.has(name) || name.endsWith('-bin')) continue;
    const value = raw[i + 1] as string;
    if (name.startsWith('grpc-')) {
      if (name === 'grpc-timeout') metadata.timeout = metadata.timeout === null ? value : together(metadata.timeout, value);
      else if (name === 'grpc-encoding') metadata.encoding = value;
      continue;
    }
    const before = metadata.view[name];
    metadata.view[name] = before === undefined ? value : together(before, value);
  }
  return metadata;
}

/** Sent twice it is one value, as HTTP has it: a list where one is meant, and otherwise nobody's credential and no number. */
function together(before: string, value: string): string {
  return `${before}, ${value}`;
}

/**
 * Milliseconds of a `grpc-timeout` (at most eight digits and a unit), rounded up: what is shorter than a millisecond is not
 * over yet. Null when it is malformed.
 */
export function timeoutMs(text: string): number | null {
  const last = text.length - 1;
  if (last < 1 || last > 8) return null;
  let amount = 0;
  for (let i = 0; i < last; i++) {
    const digit = text.charCodeAt(i) - 0x30;
    if (digit < 0 || digit > 9) return null;
    amount = amount * 10 + digit;
  }
  switch (text[last]) {
    case 'H':
      return amount * 3_600_000;
    case 'M':
      return amount * 60_000;
    case 'S':
      return amount * 1_000;
    case 'm':
      return amount;
    case 'u':
      return Math.ceil(amount / 1_000);
    case 'n':
      return Math.ceil(amount / 1_000_000);
    default:
      return null;
  }
}

/**
 * A call, or the words of a refusal. A client's waiting time may be longer than any task may take here: that is no mistake
 * as a task's deadline above the maximum is, so it is only shortened. `openedAt` is when the RPC's headers came.
 */
export function grpcCall(front: Front, metadata: Metadata, request: InvokeRequest, openedAt: number, stream: boolean): Call | string {
  const { clock, random, config } = front.engine;
  const { view } = metadata;
  const problem = joinHeaders(metadata, request);
  if (problem !== '') return problem;
  if (metadata.timeout !== null) {
    const waitMs = timeoutMs(metadata.timeout);
    if (waitMs === null)
      return `grpc-timeout must be up to eight digits and a unit (H, M, S, m, u, n); got ${JSON.stringify(metadata.timeout.slice(0, 40))}`;
    const leftMs = Math.min(config.maxDeadlineMs, Math.max(0, Math.ceil(waitMs - (clock.now() - openedAt))));
    shorten(view, leftMs, config.maxDeadlineMs);
  }
  const contentType = request.contentType === '' ? JSON_TYPE : request.contentType;
  view['content-type'] = contentType;
  const call = new Call('grpc', request.capability, view, request.body, contentType, stream, clock);
  readTraceContext(call, view[Header.traceparent], view[Header.tracestate], random);
  return call;
}

/** Puts the headers of the message below the metadata. Gives the words of a refusal, or ''. */
export function joinHeaders({ view }: Metadata, request: InvokeRequest): string {
  return request.headers === null ? '' : addHeaders(view, request.headers, request);
}

/** The smaller of both counts. What is no time that may be given is left for its stage to refuse. */
function shorten(view: Metadata['view'], leftMs: number, maxMs: number): void {
  const given = parseDeadlineMs(Header.deadlineMs, view[Header.deadlineMs], maxMs);
  if (given === null || (typeof given === 'number' && given > leftMs)) view[Header.deadlineMs] = String(leftMs);
}

const MAX_NAME_CHARS = 256;

/** Those of the message stand below the metadata. Gives the words of a refusal, or ''. */
function addHeaders(view: Metadata['view'], headers: readonly string[], request: InvokeRequest): string {
  const given = new Set<string>();
  for (let i = 0; i < headers.length; i += 2) {
    const name = (headers[i] as string).toLowerCase();
    const value = headers[i + 1] as string;
    if (name.length > MAX_NAME_CHARS || !isHeaderName(name))
      return `${JSON.stringify((headers[i] as string).slice(0, 64))} in headers is not the name of a header`;
    if (hasForbiddenCharacter(value)) return `the value of ${JSON.stringify(name.slice(0, 64))} in headers cannot stand in a header`;
    if (name === 'content-type' && request.contentType === '' && request.form === 'payload') request.contentType = value;
    if (NOT_OURS.has(name) || name.startsWith('grpc-')) continue;
    const before = view[name];
    if (before === undefined) {
      view[name] = value;
      given.add(name);
    } else if (given.has(name)) view[name] = together(before, value);
  }
  return '';
}
