/**
 * One keep-alive HTTP/1.1 connection that sends the same bytes again and again. Far cheaper than a client library, so that
 * the load does not distort what it measures on a machine with few cores. It reads as much HTTP as the bench needs: a
 * status line, `content-length`, a body; an answer without a length is an error, not something to guess at.
 */
import { connect, type Socket } from 'node:net';
import { isDeepStrictEqual } from 'node:util';

export interface Target {
  readonly name: string;
  readonly port: number;
  readonly path: string;
  /** Sent with every request, beside host, type and length. */
  readonly headers: Readonly<Record<string, string>>;
  /** The answer must be an envelope of success around the agent's answer, not the answer itself. */
  readonly enveloped: boolean;
  /** Absent: plain HTTP. */
  readonly speaks?: 'json_rpc' | 'grpc';
  /** The capability, where it does not stand in the path. */
  readonly asks?: string;
}

/** Whoever sends one request at a time to a target. */
export interface Caller {
  /** `performance.now()` of the request under way. */
  readonly sentAt: number;
  open(): Promise<void>;
  send(now: number): void;
  close(): void;
}

/** Hears of every request that was sent, once: null, or what went wrong. */
export type CallerDone = (caller: Caller, problem: string | null) => void;

/** What an envelope of success begins with. */
const SUCCESS = Buffer.from('{"code":0,');
const LENGTH = /\r\ncontent-length: *(\d+)/i;
/** One answer of so many is read whole. */
const SAMPLE = 997;

export function requestBytes(target: Target, body: Buffer): Buffer {
  const own = Object.entries(target.headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `POST ${target.path} HTTP/1.1\r\nhost: 127.0.0.1:${target.port}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n${own.join('')}\r\n`;
  return Buffer.concat([Buffer.from(head), body]);
}

/** The question as a JSON-RPC request. */
export function rpcBody(target: Target, question: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"${target.asks ?? ''}","params":`), question, Buffer.from('}')]);
}

const RPC_BEGINS = Buffer.from('{"jsonrpc":"2.0","result":');
const RPC_ENDS = Buffer.from(',"id":1}');

/** What is wrong with a JSON-RPC answer around an envelope. */
export function rpcProblem(body: Buffer, expected: Buffer, inFull: boolean): string | null {
  const inner = body.subarray(RPC_BEGINS.length, body.length - RPC_ENDS.length);
  if (!body.subarray(0, RPC_BEGINS.length).equals(RPC_BEGINS) || !body.subarray(-RPC_ENDS.length).equals(RPC_ENDS))
    return `not the JSON-RPC result of request 1: ${body.toString('utf8', 0, 300)}`;
  return bodyProblem(inner, true, expected, inFull);
}

/** What is wrong with an answer's body; null = nothing. Every answer is looked at, one of many in full. */
export function bodyProblem(body: Buffer, enveloped: boolean, expected: Buffer, inFull: boolean): string | null {
  if (enveloped && body.compare(SUCCESS, 0, SUCCESS.length, 0, Math.min(SUCCESS.length, body.length)) !== 0)
    return `not an envelope of success: ${body.toString('utf8', 0, 300)}`;
  if (!enveloped && body.length !== expected.length) return `${body.length} bytes, not ${expected.length}`;
  if (!inFull) return null;
  if (!enveloped) return body.equals(expected) ? null : 'not the answer of the agent';
  const result = JSON.parse(body.toString('utf8')) as {
    code: number;
    data: unknown;
    trace_id: string;
    provider: string;
    attempts: unknown[];
  };
  // In any order of keys: a way out that builds JSON has its own.
  if (result.code !== 0 || !isDeepStrictEqual(result.data, JSON.parse(expected.toString('utf8'))))
    return 'the envelope does not hold the answer of the agent';
  if (!/^[0-9a-f]{32}$/.test(result.trace_id) || typeof result.provider !== 'string' || result.attempts.length !== 1)
    return 'the envelope lacks trace_id, provider or its one attempt';
  return null;
}

export class Connection implements Caller {
  /** `performance.now()` of the request under way. */
  sentAt = 0;
  readonly #target: Target;
  readonly #request: Buffer;
  readonly #expected: Buffer;
  readonly #done: CallerDone;
  #socket: Socket | null = null;
  #held: Buffer | null = null;
  #isBusy = false;
  #answers = 0;

  /** `done` hears of every request that was sent, once: null, or what went wrong. */
  constructor(target: Target, request: Buffer, expected: Buffer, done: CallerDone) {
    this.#target = target;
    this.#request = request;
    this.#expected = expected;
    this.#done = done;
  }

  async open(): Promise<void> {
    const socket = connect({ host: '127.0.0.1', port: this.#target.port, noDelay: true });
    this.#socket = socket;
    await new Promise<void>((opened, refused) => {
      socket.once('connect', opened);
      socket.once('error', refused);
    });
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('error', () => {});
    socket.on('close', () => this.#end('the connection was closed before the answer was complete'));
  }

  send(now: number): void {
    this.sentAt = now;
    this.#isBusy = true;
    if (this.#socket === null || !this.#socket.writable) this.#end('the connection was closed between two requests');
    else this.#socket.write(this.#request);
  }

  close(): void {
    this.#isBusy = false;
    this.#socket?.destroy();
    this.#socket = null;
  }

  #end(problem: string | null): void {
    if (!this.#isBusy) return;
    this.#isBusy = false;
    this.#done(this, problem);
  }

  #read(chunk: Buffer): void {
    const bytes = this.#held === null ? chunk : Buffer.concat([this.#held, chunk]);
    const headEnds = bytes.indexOf('\r\n\r\n');
    const head = headEnds < 0 ? '' : bytes.toString('latin1', 0, headEnds);
    const length = headEnds < 0 ? undefined : LENGTH.exec(head)?.[1];
    if (headEnds >= 0 && length === undefined) {
      this.#end(`an answer without content-length: ${head.slice(0, 200)}`);
      return;
    }
    const total = headEnds + 4 + Number(length);
    if (headEnds < 0 || bytes.length < total) {
      this.#held = bytes;
      return;
    }
    this.#held = null;
    const body = bytes.subarray(headEnds + 4, total);
    const inFull = this.#answers++ % SAMPLE === 0;
    if (bytes.length > total) this.#end('more bytes than one answer');
    else if (!head.startsWith('HTTP/1.1 200 ')) this.#end(`${head.slice(9, 12)}: ${body.toString('utf8', 0, 300)}`);
    else if (this.#target.speaks === 'json_rpc') this.#end(rpcProblem(body, this.#expected, inFull));
    else this.#end(bodyProblem(body, this.#target.enveloped, this.#expected, inFull));
  }
}
