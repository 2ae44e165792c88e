/**
 * What crosses between a call and a message of NATS: headers out, and the answer that a message is. Decides which headers go
 * (those that would go over HTTP), which status an answer has (the micro convention's error headers say it, else 200) and
 * what its body is.
 */
import { cited } from '../../base/redact.ts';
import { isUtf8 } from 'node:buffer';
import type { BusMessage, Headers } from '../../base/bus-message.ts';
import { quote } from '../../base/duration.ts';
import { Header } from '../../proto/wire/headers.ts';
import { dataOf, isWholeJson } from '../call/answer-body.ts';
import { NO_BODY, Reply, type ReplyHeaders } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import { forwardRequestHeaders } from './hygiene.ts';
import type { Exchange } from './transport.ts';

/** Of the micro convention, spelt so. */
const ERROR = 'Nats-Service-Error';
const ERROR_CODE = 'Nats-Service-Error-Code';
const MAX_SHOWN_CHARS = 300;
/** The server's and the convention's own: nothing for whoever called. */
const OWN_OF_NATS = 'nats-';
const END_OF_LINE = Buffer.from('\n', 'latin1');
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const BLANK = 0x20;
export const LINES: ReplyHeaders = Object.freeze({ 'content-type': 'application/x-ndjson' });

/** What a request carries beside its payload; or the words of a refusal. */
export function headersFor(exchange: Exchange, { version }: Candidate): Headers | string {
  const flat: string[] = [];
  const refusal = forwardRequestHeaders(exchange.incoming, exchange.own, null, flat);
  if (refusal !== '') return refusal;
  // Any word may be the name of a header, also one that every object has.
  const headers = Object.create(null) as Record<string, string>;
  for (let i = 0; i < flat.length; i += 2) {
    const name = flat[i] as string;
    if (name.startsWith(OWN_OF_NATS)) continue;
    headers[name] = name in headers ? `${headers[name]}, ${flat[i + 1]}` : (flat[i + 1] as string);
  }
  headers[Header.capability] = version.capability.name;
  headers[Header.version] = version.text;
  if (exchange.contentType !== '') headers['content-type'] = exchange.contentType;
  for (let i = 0; i < exchange.own.length; i += 2) headers[exchange.own[i] as string] = exchange.own[i + 1] as string;
  return headers;
}

/** An error of the micro convention. */
export interface ServiceError {
  /** 400 to 599. */
  readonly status: number;
  readonly words: string;
}

/** Null when the message is none. */
export function serviceErrorOf(message: BusMessage): ServiceError | null {
  const said = message.header(ERROR_CODE);
  const description = message.header(ERROR);
  if (said === null && description === null) return null;
  const code = Number(said ?? Number.NaN);
  const status = Number.isInteger(code) && code >= 400 && code <= 599 ? code : 500;
  const words = `${said === null || said === String(status) ? '' : `code ${quote(said, 40).slice(1, -1)}: `}${description === null || description === '' ? '' : cited(description, MAX_SHOWN_CHARS)}`;
  return { status, words };
}

/** A whole answer in one message. */
export function answerOf(message: BusMessage): Reply {
  const error = serviceErrorOf(message);
  const { data } = message;
  const body = error !== null && data.length === 0 ? errorBody(message) : data;
  return new Reply(0, 'done', error?.status ?? 200, headersOf(message, body), body, null, error?.words ?? '', false, 0);
}

function errorBody(message: BusMessage): Buffer {
  return Buffer.from(JSON.stringify({ code: message.header(ERROR_CODE), message: message.header(ERROR) }), 'utf8');
}

/** Its headers with names in lower case, and a content type where none is said. */
function headersOf(message: BusMessage, body: Buffer): ReplyHeaders {
  const headers: Record<string, string> = {};
  for (const name of message.names?.() ?? []) {
    const lower = name.toLowerCase();
    const value = message.header(name);
    if (value !== null && !lower.startsWith(OWN_OF_NATS)) headers[lower] = value;
  }
  if (body.length > 0) headers['content-type'] ??= kindOf(body);
  return headers;
}

function kindOf(body: Buffer): string {
  if (isWholeJson(body)) return 'application/json';
  return isUtf8(body) ? 'text/plain; charset=utf-8' : 'application/octet-stream';
}

/** One message as one line of NDJSON: its JSON on one line, else its text or bytes as JSON. */
export function lineOf(message: BusMessage): Buffer {
  const value = dataOf(NO_TYPE, message.data, false);
  const json = Buffer.isBuffer(value) ? value : NO_BODY;
  return Buffer.concat([onOneLine(json), END_OF_LINE]);
}

const NO_TYPE: ReplyHeaders = Object.freeze({});

/** Inside a string no line can end, so every end of a line is a blank between parts. */
function onOneLine(json: Buffer): Buffer {
  if (!json.includes(LINE_FEED) && !json.includes(CARRIAGE_RETURN)) return json;
  const line = Buffer.from(json);
  for (let i = 0; i < line.length; i++) if (line[i] === LINE_FEED || line[i] === CARRIAGE_RETURN) line[i] = BLANK;
  return line;
}
