/**
 * One exchange over gRPC: JSON in, the method's own form on the wire, JSON out. A method that streams and is invoked gives
 * its messages as a JSON array; one that does not and is called as a stream gives one line. A stream is
 * `application/x-ndjson`, and it begins with its first message: a server that says its head at once and fails then has not
 * begun. Settles exactly once; after `stop` nothing changes what was said.
 */
import { Code } from '../../proto/wire/codes.ts';
import { answered, type BodySink, type BodySource, failed, NO_BODY, type Reply, type ReplyHeaders, streaming } from '../call/reply.ts';
import type { Mode } from './http-exchange.ts';
import type { FieldNames } from './grpc-endpoint.ts';
import type { Rpc, RpcListener } from './grpc-rpc.ts';
import type { Method, Schema } from './grpc-schema.ts';
import { endingWords, type Ending, metadataOf, replyOf } from './grpc-status.ts';

const JSON_TYPE = 'application/json';
const LINES_TYPE = 'application/x-ndjson';
const NONE: ReplyHeaders = Object.freeze({});
const NEW_LINE = '\n';

export class GrpcExchange implements RpcListener, BodySource {
  isSettled = false;
  rpc: Rpc | null = null;
  /** To be read anew when the server does not know the method. */
  types: { doubt(): boolean } | null = null;
  method: Method | null = null;
  schema: Schema | null = null;
  readonly #mode: Mode;
  readonly #names: FieldNames;
  readonly #maxBytes: number;
  #resolve: ((reply: Reply) => void) | null;
  #head: ReplyHeaders = NONE;
  #texts: string[] = [];
  #bytes = 0;
  #isStreaming = false;
  #first: Buffer | null = null;
  #sink: BodySink | null = null;
  #ending: { readonly code: Code; readonly detail: string } | null = null;
  #isOver = false;

  constructor(mode: Mode, names: FieldNames, maxBytes: number, resolve: (reply: Reply) => void) {
    this.#mode = mode;
    this.#names = names;
    this.#maxBytes = maxBytes;
    this.#resolve = resolve;
  }

  settle(reply: Reply): void {
    if (this.isSettled) return;
    this.isSettled = true;
    const resolve = this.#resolve;
    this.#resolve = null;
    resolve?.(reply);
  }

  /** Gives up at once: settles, and resets the stream. */
  stop(): void {
    if (this.#isStreaming) return this.cancel(Code.cancelled, 'stopped by the sidecar');
    const isSent = this.rpc?.isSent === true;
    this.settle(
      failed(Code.cancelled, isSent ? 'started' : 'not_started', `stopped ${this.rpc?.where ?? "while learning the method's types"}`),
    );
    this.rpc?.stop();
  }

  // What the call on the wire says.

  head(headers: ReplyHeaders): void {
    this.#head = headers;
    if (this.#mode !== 'head') return;
    this.settle(answered(200, this.#headers(headers, JSON_TYPE), NO_BODY));
  }

  message(bytes: Buffer): boolean {
    if (this.#mode === 'head' || this.#isOver) return true;
    const { method, schema } = this;
    if (method === null || schema === null) return true;
    const decoded = schema.decode(method.output, bytes, this.#names);
    if ('problem' in decoded) {
      this.#broken(Code.bad_response, `a message of the answer is no ${method.output.typeName}: ${decoded.problem}`);
      return true;
    }
    const { json } = decoded;
    if (this.#mode === 'stream') return this.#line(json);
    this.#bytes += Buffer.byteLength(json) + 1;
    if (this.#bytes > this.#maxBytes)
      this.#broken(Code.response_too_large, `the answer is above the limit of ${this.#maxBytes} bytes as JSON`);
    else this.#texts.push(json);
    return true;
  }

  ended(ending: Ending): void {
    if (ending.status === UNIMPLEMENTED) this.types?.doubt();
    if (this.#isStreaming) {
      if (ending.status === 0 && ending.fault === null) this.#over(Code.ok, '');
      else this.#over(Code.stream_interrupted, endingWords(ending, this.schema));
    } else if (!this.isSettled) this.settle(this.#replyFor(ending));
  }

  // What the reader of a stream calls.

  pipe(sink: BodySink): void {
    this.#sink = sink;
    const first = this.#first;
    this.#first = null;
    const goesOn = first === null || sink.chunk(first);
    const ending = this.#ending;
    if (ending !== null) {
      this.#ending = null;
      tell(sink, ending.code, ending.detail);
    } else if (goesOn) this.rpc?.resume();
  }

  resume(): void {
    this.rpc?.resume();
  }

  cancel(code: Code, detail: string): void {
    if (this.#isOver) return;
    this.#over(code, detail);
    this.rpc?.stop();
  }

  #line(text: string): boolean {
    const line = Buffer.from(text + NEW_LINE);
    if (this.#isStreaming) {
      if (this.method?.isServerStreaming === true) return this.#sink === null ? false : this.#sink.chunk(line);
      this.#broken(Code.bad_response, 'the server sent a second message where one belongs');
      return true;
    }
    // The first one is kept for the reader, who decides the pace from there.
    this.#isStreaming = true;
    this.#first = line;
    this.settle(streaming(200, this.#headers(this.#head, LINES_TYPE), this));
    return false;
  }

  #replyFor(ending: Ending): Reply {
    if (ending.status !== 0 || ending.fault !== null) return this.#plainWords(replyOf(ending, this.schema), ending);
    if (this.#mode === 'head') return answered(200, this.#headers(ending.headers, JSON_TYPE), NO_BODY);
    const texts = this.#texts;
    const streams = this.method?.isServerStreaming === true;
    if (streams && this.#mode === 'stream') return answered(200, this.#headers(ending.headers, LINES_TYPE), NO_BODY);
    if (streams) return answered(200, this.#headers(ending.headers, JSON_TYPE), Buffer.from(`[${texts.join(',')}]`));
    if (texts.length !== 1)
      return failed(Code.bad_response, 'started', `the server said OK with ${texts.length} messages where one belongs`);
    return answered(200, this.#headers(ending.headers, JSON_TYPE), Buffer.from(texts[0] as string));
  }

  /** A method that the server does not have is a slip of the registration: it is named. */
  #plainWords(reply: Reply, ending: Ending): Reply {
    if (ending.status !== UNIMPLEMENTED || this.method === null) return reply;
    return reply.withDetail(`${ending.host} does not offer ${this.method.service}/${this.method.name}: ${reply.detail}`);
  }

  #headers(headers: ReplyHeaders, type: string): ReplyHeaders {
    return { ...metadataOf(headers), 'content-type': type };
  }

  #broken(code: Code, words: string): void {
    if (this.#isStreaming) this.#over(code === Code.bad_response ? Code.stream_interrupted : code, words);
    else this.settle(failed(code, 'started', words));
    this.rpc?.stop();
  }

  #over(code: Code, detail: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#sink === null) this.#ending = { code, detail };
    else tell(this.#sink, code, detail);
  }
}

const UNIMPLEMENTED = 12;

function tell(sink: BodySink, code: Code, detail: string): void {
  if (code === Code.ok) sink.end();
  else sink.cut(code, detail);
}
