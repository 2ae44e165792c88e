/**
 * JSON-RPC 2.0, read and written without losing anything: ids stay the text that the peer wrote (`1.0`, an integer above
 * 2^53, an escape), params, results and data stay its bytes. Used by the way in at `/rpc`, by the channel, and by the way
 * out. Decides what kind of message something is and what the protocol says of a bad one; what a method means is decided
 * elsewhere.
 *
 * Stricter than the letter in two places: a member of the protocol that stands twice is refused (two readers could take
 * different ones), and nesting is bounded. Laxer in one: `"params": null` counts as left out, since several clients write it.
 */
import { itemsOf, type Member, membersOf, type Span, startOf, stringAt } from '../../base/json-members.ts';
import { isJson } from '../../base/json-scan.ts';
import { type MessageTrace, traceOfParams } from './json-rpc-trace.ts';
import { isTraceparent } from './trace-context.ts';

/** The protocol's own `error.code`s; ours are in `codes.ts`. */
export const RpcError = {
  parse: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internal: -32603,
} as const;
export type RpcErrorCode = (typeof RpcError)[keyof typeof RpcError];

/** JSON text of an id: a string, a number or `null`, exactly as it came. */
export type RpcId = string;
export const NO_ID: RpcId = 'null';

export interface RpcRequest {
  readonly kind: 'request';
  readonly id: RpcId;
  readonly method: string;
  /** An object or a list, byte for byte; null = there are none. */
  readonly params: Buffer | null;
  /** The message's own trace context, as it stands there; absent = it has none. See json-rpc-trace.ts. */
  readonly trace?: MessageTrace;
}

/** A request that must not be answered. */
export interface RpcNotification {
  readonly kind: 'notification';
  readonly method: string;
  readonly params: Buffer | null;
  readonly trace?: MessageTrace;
}

export interface RpcResult {
  readonly kind: 'result';
  readonly id: RpcId;
  /** JSON, byte for byte. */
  readonly result: Buffer;
}

export interface RpcFailure {
  readonly kind: 'error';
  /** `null` when the peer could not read the id. */
  readonly id: RpcId;
  readonly code: number;
  readonly message: string;
  /** JSON, byte for byte; null = there is none. */
  readonly data: Buffer | null;
}

/** No message of the protocol. */
export interface RpcInvalid {
  readonly kind: 'invalid';
  /** What an error about it has to carry: its id when that could be read. */
  readonly id: RpcId;
  readonly code: RpcErrorCode;
  /** For people. */
  readonly problem: string;
  /** It is a notification that cannot be carried out: its sender is told nothing, as the protocol demands. */
  readonly isNotification: boolean;
  /** It is an answer (a result or an error, and no method): nobody answers it. */
  readonly isAnswer: boolean;
}

export type RpcMessage = RpcRequest | RpcNotification | RpcResult | RpcFailure | RpcInvalid;

/** What a body or a frame holds. A list that is no batch (empty, too long) is one invalid message. */
export type RpcReading =
  | { readonly isBatch: false; readonly message: RpcMessage }
  | { readonly isBatch: true; readonly messages: readonly RpcMessage[] };

export interface RpcLimits {
  /** Messages of one batch; 0 = batches are not taken at all. */
  readonly batch: number;
}

/** Lists and maps inside one another in `params`, `result` or `data`. As deep as the check by a schema goes. */
export const MAX_RPC_DEPTH = 256;

export function readRpc(bytes: Buffer, limits: RpcLimits): RpcReading {
  const text = withoutMark(bytes);
  if (!isJson(text)) return one(invalid(NO_ID, RpcError.parse, 'the body is not well-formed JSON in UTF-8'));
  const start = startOf(text);
  if (text[start] !== OPEN_LIST) return one(readMessage(text, start));
  if (limits.batch === 0) return one(invalid(NO_ID, RpcError.invalidRequest, 'batches are not taken here: send one message at a time'));
  const items = itemsOf(text, start, limits.batch + 1);
  if (items.length === 0) return one(invalid(NO_ID, RpcError.invalidRequest, 'the batch is empty'));
  if (items.length > limits.batch)
    return one(invalid(NO_ID, RpcError.invalidRequest, `the batch has more than ${limits.batch} messages; none of them was read`));
  return { isBatch: true, messages: items.map(({ from }) => readMessage(text, from)) };
}

function one(message: RpcMessage): RpcReading {
  return { isBatch: false, message };
}

function invalid(id: RpcId, code: RpcErrorCode, problem: string, isNotification = false, isAnswer = false): RpcInvalid {
  return { kind: 'invalid', id, code, problem, isNotification, isAnswer };
}

function badAnswer(id: RpcId, problem: string): RpcInvalid {
  return invalid(id, RpcError.invalidRequest, problem, false, true);
}

const PARTS = ['jsonrpc', 'id', 'method', 'params', 'result', 'error', 'traceparent', 'tracestate'] as const;

class Parts {
  jsonrpc: Span | null = null;
  id: Span | null = null;
  method: Span | null = null;
  params: Span | null = null;
  result: Span | null = null;
  error: Span | null = null;
  traceparent: Span | null = null;
  tracestate: Span | null = null;
}

function readMessage(bytes: Buffer, start: number): RpcMessage {
  if (bytes[start] !== OPEN_MAP) return invalid(NO_ID, RpcError.invalidRequest, 'a message is a JSON object');
  const parts = new Parts();
  const twice = collect(parts, PARTS, membersOf(bytes, start));
  const id = twice === 'id' ? null : idOf(bytes, parts.id);
  const known = id ?? NO_ID;
  const isAnswer = parts.method === null && (parts.result !== null || parts.error !== null);
  if (twice !== null) return invalid(known, RpcError.invalidRequest, `${twice} stands there twice`, false, isAnswer);
  if (parts.jsonrpc === null || textAt(bytes, parts.jsonrpc) !== '2.0')
    return invalid(known, RpcError.invalidRequest, 'jsonrpc must be "2.0"', false, isAnswer);
  if (id === null && parts.id !== null) return invalid(NO_ID, RpcError.invalidRequest, 'id must be a string, a number or null');
  if (parts.method === null) return readAnswer(bytes, parts, id);
  if (parts.result !== null || parts.error !== null)
    return invalid(known, RpcError.invalidRequest, 'a message with a method is a request and has neither result nor error');
  const method = textAt(bytes, parts.method);
  if (method === null) return invalid(known, RpcError.invalidRequest, 'method must be a string');
  const { params } = parts;
  if (params !== null && !isStructured(bytes, params) && !isNull(bytes, params))
    return invalid(known, RpcError.invalidRequest, 'params must be an object or a list');
  const given = params === null || isNull(bytes, params) ? null : params;
  if (given !== null && given.depth > MAX_RPC_DEPTH)
    return invalid(known, RpcError.invalidParams, `params are nested more than ${MAX_RPC_DEPTH} levels deep`, id === null);
  const body = given === null ? null : bytes.subarray(given.from, given.to);
  const trace = traceIn(bytes, parts, body);
  const more = trace === null ? NO_TRACE : { trace };
  return id === null ? { kind: 'notification', method, params: body, ...more } : { kind: 'request', id, method, params: body, ...more };
}

const NO_TRACE = Object.freeze({});

function traceIn(bytes: Buffer, { traceparent, tracestate }: Parts, params: Buffer | null): MessageTrace | null {
  const text = traceparent === null ? null : textAt(bytes, traceparent);
  if (text === null || !isTraceparent(text)) return params === null ? null : traceOfParams(params);
  return { traceparent: text, tracestate: (tracestate === null ? null : textAt(bytes, tracestate)) ?? undefined };
}

function readAnswer(bytes: Buffer, parts: Parts, id: RpcId | null): RpcMessage {
  const { result, error } = parts;
  if (result === null && error === null) return invalid(id ?? NO_ID, RpcError.invalidRequest, 'method is missing');
  if (id === null) return badAnswer(NO_ID, 'an answer has the id of its request');
  // Some peers of version 1 habits write both, one of them null.
  const failed = error !== null && !(result !== null && isNull(bytes, error));
  if (failed && result !== null && !isNull(bytes, result)) return badAnswer(id, 'an answer has a result or an error, not both');
  const body = (failed ? error : result) as Span;
  if (body.depth > MAX_RPC_DEPTH) return badAnswer(id, `the answer is nested more than ${MAX_RPC_DEPTH} levels deep`);
  if (!failed) return { kind: 'result', id, result: bytes.subarray(body.from, body.to) };
  return readError(bytes, body, id);
}

class ErrorParts {
  code: Span | null = null;
  message: Span | null = null;
  data: Span | null = null;
}

function readError(bytes: Buffer, at: Span, id: RpcId): RpcMessage {
  const bad = (problem: string): RpcInvalid => badAnswer(id, problem);
  if (bytes[at.from] !== OPEN_MAP) return bad('error must be an object');
  const parts = new ErrorParts();
  const twice = collect(parts, ['code', 'message', 'data'], membersOf(bytes, at.from));
  if (twice !== null) return bad(`error.${twice} stands there twice`);
  const code = parts.code === null ? Number.NaN : Number(bytes.toString('latin1', parts.code.from, parts.code.to));
  if (!Number.isSafeInteger(code)) return bad('error.code must be an integer');
  const message = parts.message === null ? '' : textAt(bytes, parts.message);
  if (message === null) return bad('error.message must be a string');
  return { kind: 'error', id, code, message, data: parts.data === null ? null : bytes.subarray(parts.data.from, parts.data.to) };
}

/** Puts the members of the given names into their places; gives the name that stands there twice, or null. */
function collect<Name extends string>(into: Record<Name, Span | null>, names: readonly Name[], members: readonly Member[]): Name | null {
  for (const member of members) {
    const name = member.name as Name;
    if (!names.includes(name)) continue;
    if (into[name] !== null) return name;
    into[name] = member;
  }
  return null;
}

/** Null when there is none, or none that the protocol allows. */
function idOf(bytes: Buffer, at: Span | null): RpcId | null {
  if (at === null) return null;
  const c = bytes[at.from] as number;
  const allowed = c === QUOTE || c === MINUS || (c >= ZERO && c <= NINE) || c === SMALL_N;
  return allowed ? bytes.toString('utf8', at.from, at.to) : null;
}

function textAt(bytes: Buffer, at: Span): string | null {
  return bytes[at.from] === QUOTE ? stringAt(bytes, at.from, at.to) : null;
}

function isStructured(bytes: Buffer, at: Span): boolean {
  const c = bytes[at.from];
  return c === OPEN_MAP || c === OPEN_LIST;
}

function isNull(bytes: Buffer, at: Span): boolean {
  return bytes[at.from] === SMALL_N;
}

function withoutMark(bytes: Buffer): Buffer {
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? bytes.subarray(3) : bytes;
}

const QUOTE = 0x22;
const MINUS = 0x2d;
const ZERO = 0x30;
const NINE = 0x39;
const OPEN_LIST = 0x5b;
const OPEN_MAP = 0x7b;
const SMALL_N = 0x6e;

/**
 * One key for all spellings of an id, for whoever keeps requests by id: `"a"` and `"\u0061"` are one, `1` and `1.0` are one,
 * `1` and `"1"` are two. A number that a double cannot hold is taken as it is written.
 */
export function idKey(id: RpcId): string {
  if (id.startsWith('"')) return id.includes('\\') ? JSON.stringify(JSON.parse(id)) : id;
  const value = Number(id);
  return id !== NO_ID && Number.isSafeInteger(value) ? String(value) : id;
}

// Writing. Every part is text that is spliced in as it is; what may be large is given as bytes.

/** @param result JSON. */
export function writeRpcResult(id: RpcId, result: Buffer): Buffer {
  return joined('{"jsonrpc":"2.0","result":', result, `,"id":${id}}`);
}

/** @param data JSON, or null for none. */
export function writeRpcError(id: RpcId, code: number, message: string, data: Buffer | null): Buffer {
  const head = `{"jsonrpc":"2.0","error":{"code":${code},"message":${JSON.stringify(message)}`;
  const tail = `},"id":${id}}`;
  return data === null ? Buffer.from(head + tail, 'utf8') : joined(`${head},"data":`, data, tail);
}

function joined(head: string, bytes: Buffer, tail: string): Buffer {
  const headBytes = Buffer.byteLength(head);
  const out = Buffer.allocUnsafe(headBytes + bytes.length + Buffer.byteLength(tail));
  out.write(head, 0, 'utf8');
  bytes.copy(out, headBytes);
  out.write(tail, headBytes + bytes.length, 'utf8');
  return out;
}
