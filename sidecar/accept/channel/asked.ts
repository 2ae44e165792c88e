/**
 * One call to an agent on its connection: what it was asked, and what it has answered so far. Collects a whole answer up to
 * its limit, or is the source of a streamed one, which the agent may send ahead of its reader no further than the window.
 * Settles exactly once; after that nothing the agent says changes what was said.
 */
import { valuesOf } from '../../../base/json-values.ts';
import { Frame, frameHead } from '../../../proto/wire/frames.ts';
import { WINDOW_BYTES } from '../../../proto/wire/channel.ts';
import { Code } from '../../../proto/wire/codes.ts';
import { RpcError, type RpcFailure } from '../../../proto/wire/json-rpc.ts';
import { answered, type BodySink, type BodySource, failed, NO_BODY, type Reply, type ReplyHeaders, streaming } from '../../call/reply.ts';
import { Crumbs } from './crumbs.ts';
import { BYTES_TYPE, JSON_TYPE, readContent, readHeaders } from './message.ts';

export type Mode = 'whole' | 'stream' | 'head';

/** What an answer needs of its connection. */
export interface AskedOn {
  readonly agentId: string;
  /** It is over: nobody waits for more of it. */
  forget(asked: Asked): void;
  /** Tells the agent that nobody waits any more. */
  tellCancelled(asked: Asked): void;
  sendBinary(head: Buffer, payload: Buffer): void;
}

const JSON_ONLY: ReplyHeaders = Object.freeze({ 'content-type': JSON_TYPE });
const PAYLOAD_HEAD = Buffer.from('{"payload":');
const PAYLOAD_TAIL = Buffer.from('}');
const NONE: ReplyHeaders = Object.freeze({});
const ANSWER = ['payload', 'payload_base64', 'status', 'content_type', 'headers'] as const;
const HEAD = ['status', 'content_type', 'headers'] as const;

export class Asked implements BodySource {
  readonly id: number;
  readonly mode: Mode;
  /** In the list of its connection. */
  next: Asked | null = null;
  readonly #on: AskedOn;
  readonly #maxBytes: number;
  #resolve: ((reply: Reply) => void) | null;
  #status = 200;
  #headers: ReplyHeaders | null = null;
  /** Came and was not given to a reader yet. */
  #held: Crumbs | null = null;
  #bytes = 0;
  /** What the agent may still send. */
  #window = WINDOW_BYTES;
  /** Given to the reader and not allowed anew yet. */
  #owed = 0;
  #isStreaming = false;
  #sink: BodySink | null = null;
  #isPaused = false;
  #isOver = false;
  /** How the body ended while the reader was not ready to hear it: code and words; -1 = it has not. */
  #endCode = -1;
  #endWords = '';

  constructor(id: number, mode: Mode, on: AskedOn, maxBytes: number, resolve: (reply: Reply) => void) {
    this.id = id;
    this.mode = mode;
    this.#on = on;
    this.#maxBytes = maxBytes;
    this.#resolve = resolve;
  }

  // From the agent.

  /** `reach.head`; what is wrong with it makes the whole answer bad. */
  head(params: Buffer): void {
    if (this.#headers !== null || this.#isOver) return;
    const [status, contentType, headers] = valuesOf(params, HEAD) as [Buffer | null, Buffer | null, Buffer | null];
    const problem = this.#takeHead(status, headers, contentType);
    if (problem !== null) {
      this.#bad(problem);
      return;
    }
    this.#begun();
  }

  /** A piece of a streamed answer. */
  data(piece: Buffer): void {
    if (this.#isOver) return;
    if (this.#headers === null) {
      this.#headers = { 'content-type': BYTES_TYPE };
      this.#begun();
    }
    // It costs its sender nothing of the window, and would cost us memory.
    if (piece.length === 0) return;
    this.#window -= piece.length;
    if (this.#window < 0) {
      this.#bad(`${this.#on.agentId} sent more than the ${WINDOW_BYTES} bytes that were allowed ahead`);
      return;
    }
    this.#bytes += piece.length;
    if (this.#isStreaming) {
      if (this.#sink === null || this.#isPaused) this.#hold(piece);
      else this.#give(this.#sink, piece);
      return;
    }
    if (this.#bytes > this.#maxBytes) {
      this.#fail(failed(Code.response_too_large, 'started', `the answer is above the limit of ${this.#maxBytes} bytes: it went on`));
      return;
    }
    this.#hold(piece);
    this.#allow(piece.length);
  }

  /** The answer to the request, JSON bytes: a whole answer, or the proper end of a streamed one. */
  result(value: Buffer): void {
    if (this.#isOver) return;
    if (this.#headers !== null) {
      if (hasPayload(value)) this.#bad('the answer has a payload behind the head of a stream: it is one or the other');
      else if (this.#isStreaming) this.#end(0, '');
      else this.#done(answered(this.#status, this.#headers, this.#collected()));
      return;
    }
    const members = valuesOf(value, ANSWER);
    if (members === null) {
      this.#bad('the answer is no object with payload, or payload_base64 and content_type');
      return;
    }
    const [payload, base64, status, contentType, headers] = members as [
      Buffer | null,
      Buffer | null,
      Buffer | null,
      Buffer | null,
      Buffer | null,
    ];
    if (payload !== null && base64 === null && status === null && contentType === null && headers === null) {
      this.#whole(200, JSON_ONLY, payload);
      return;
    }
    const content = readContent(payload, base64, contentType);
    const problem = typeof content === 'string' ? content : this.#takeHead(status, headers, null);
    if (problem !== null || typeof content === 'string') this.#bad(problem ?? '');
    else this.#whole(this.#status, withType(this.#headers ?? NONE, content.contentType), content.body);
  }

  /** The usual answer: `{payload}` and nothing else, and the payload has been seen to be JSON. */
  payload(body: Buffer): void {
    if (this.#headers !== null || body.length > this.#maxBytes) {
      this.result(Buffer.concat([PAYLOAD_HEAD, body, PAYLOAD_TAIL]));
      return;
    }
    const reply = answered(200, JSON_ONLY, this.mode === 'head' ? NO_BODY : body);
    reply.isJson = true;
    this.#done(reply);
  }

  /** The agent's own failure. */
  error(failure: RpcFailure): void {
    if (this.#isOver) return;
    if (this.#isStreaming) {
      this.#end(Code.stream_interrupted, `the agent broke off: ${wordsOf(failure)}`);
      return;
    }
    // Who has begun an answer does serve calls: what is missing is missing further on.
    if (failure.code === RpcError.methodNotFound && this.#headers === null) {
      this.#fail(
        failed(Code.bad_response, 'not_started', `${this.#on.agentId} is connected but serves no calls: ${wordsOf(failure)}`),
        false,
      );
      return;
    }
    const parts = failure.data === null ? null : valuesOf(failure.data, ANSWER);
    const [payload = null, base64 = null, status = null, contentType = null, headers = null] = parts ?? [];
    const content = readContent(payload, base64, contentType);
    this.#status = failure.code === RpcError.invalidParams || failure.code === RpcError.invalidRequest ? 400 : 500;
    const problem = typeof content === 'string' ? content : this.#takeHead(status, headers, null, 400);
    if (problem !== null || typeof content === 'string') this.#bad(problem ?? '');
    else if (content.body.length === 0) this.#whole(this.#status, withType(this.#headers ?? NONE, JSON_TYPE), bodyOf(failure));
    else this.#whole(this.#status, withType(this.#headers ?? NONE, content.contentType), content.body);
  }

  /** The connection is gone. */
  lost(words: string): void {
    if (this.#isOver) return;
    if (this.#isStreaming) this.#end(Code.stream_interrupted, `the answer is cut after ${this.#bytes} bytes: ${words}`);
    else this.#done(failed(Code.connection_lost, 'started', words));
  }

  /** An end frame: as the empty answer to the request, which is then not needed any more. */
  ended(): void {
    if (this.#headers !== null) this.result(NO_BODY);
    else this.#bad('the stream ended before it began');
  }

  /** The agent says a cut of its stream by an error frame: as an error in answer to the request. */
  broken(words: string): void {
    if (this.#isStreaming) this.#end(Code.stream_interrupted, words);
    else this.#bad(words);
  }

  // From the caller's side.

  /** Gives up at once. */
  stop(): void {
    if (this.#isStreaming) this.cancel(Code.cancelled, 'stopped by the sidecar');
    else if (!this.#isOver)
      this.#fail(
        failed(
          Code.cancelled,
          'started',
          this.#bytes === 0 ? 'stopped while waiting for an answer' : `stopped in the middle of the answer, after ${this.#bytes} bytes`,
        ),
      );
  }

  pipe(sink: BodySink): void {
    this.#sink = sink;
    this.#flush();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#flush();
  }

  cancel(code: Code, detail: string): void {
    if (this.#endCode >= 0 && this.#sink === null) return;
    if (this.#isOver && this.#endCode < 0) return;
    if (!this.#isOver) this.#on.tellCancelled(this);
    this.#held = null;
    this.#over();
    this.#endCode = -1;
    this.#tell(code, detail);
  }

  #tell(code: Code, detail: string): void {
    const sink = this.#sink;
    if (sink === null) {
      this.#endCode = code;
      this.#endWords = detail;
    } else if (code === Code.ok) sink.end();
    else sink.cut(code, detail);
  }

  /** Gives what is held, as far as the reader goes along, and then the end if it has come. */
  #flush(): void {
    const sink = this.#sink;
    if (sink === null) return;
    while (!this.#isPaused && this.#held !== null) {
      const piece = this.#held.take();
      if (piece === null) this.#held = null;
      else this.#give(sink, piece);
    }
    if (this.#isPaused || this.#endCode < 0) return;
    const code = this.#endCode as Code;
    this.#endCode = -1;
    this.#tell(code, this.#endWords);
  }

  #give(sink: BodySink, piece: Buffer): void {
    if (!sink.chunk(piece)) this.#isPaused = true;
    this.#allow(piece.length);
  }

  #hold(piece: Buffer): void {
    (this.#held ??= new Crumbs()).add(piece);
  }

  /** So much more may come; said when half of the window has been used, not for every piece. */
  #allow(bytes: number): void {
    this.#owed += bytes;
    if (this.#owed < WINDOW_BYTES / 2 || this.#isOver) return;
    const more = Buffer.allocUnsafe(4);
    more.writeUInt32BE(this.#owed);
    this.#window += this.#owed;
    this.#owed = 0;
    this.#on.sendBinary(frameHead(Frame.credit, this.id), more);
  }

  /** Notes status, headers and type; in words what is wrong with them. */
  #takeHead(status: Buffer | null, headers: Buffer | null, contentType: Buffer | null, least = 200): string | null {
    if (status !== null) {
      const number = Number(status.toString('latin1'));
      if (!Number.isInteger(number) || number < least || number > 599)
        return `the status of the answer must be a number from ${least} to 599`;
      this.#status = number;
    }
    const read = headers === null ? Object.create(null) : readHeaders(headers);
    if (typeof read === 'string') return `of the answer: ${read}`;
    const content = readContent(null, null, contentType);
    if (typeof content === 'string') return `of the answer: ${content}`;
    this.#headers = withType(read as ReplyHeaders, content.contentType);
    return null;
  }

  /** The head of a streamed answer is there. An answer that is none of 2xx is short and is collected, as over HTTP. */
  #begun(): void {
    if (this.mode === 'head') this.#done(answered(this.#status, this.#headers ?? NONE, NO_BODY));
    else if (this.mode === 'stream' && this.#status < 300) {
      this.#isStreaming = true;
      this.#settle(streaming(this.#status, this.#headers ?? NONE, this));
    }
  }

  #whole(status: number, headers: ReplyHeaders, body: Buffer): void {
    if (body.length > this.#maxBytes)
      this.#fail(
        failed(Code.response_too_large, 'started', `the answer is above the limit of ${this.#maxBytes} bytes: it has ${body.length}`),
        false,
      );
    else this.#done(answered(status, headers, this.mode === 'head' ? NO_BODY : body));
  }

  #collected(): Buffer {
    const held = this.#held;
    this.#held = null;
    return held === null ? NO_BODY : held.whole();
  }

  #bad(words: string): void {
    if (this.#isStreaming) {
      this.#on.tellCancelled(this);
      this.#end(Code.stream_interrupted, words);
    } else this.#fail(failed(Code.bad_response, 'started', words));
  }

  /** @param tell the agent is still at it. */
  #fail(reply: Reply, tell = true): void {
    if (tell) this.#on.tellCancelled(this);
    this.#held = null;
    this.#done(reply);
  }

  #done(reply: Reply): void {
    this.#over();
    this.#settle(reply);
  }

  #end(code: Code, words: string): void {
    this.#over();
    if (this.#sink === null || this.#isPaused || this.#held !== null) {
      this.#endCode = code;
      this.#endWords = words;
    } else this.#tell(code, words);
  }

  #over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#on.forget(this);
  }

  #settle(reply: Reply): void {
    const resolve = this.#resolve;
    this.#resolve = null;
    if (resolve !== null) resolve(reply);
  }
}

/** Of the answer that ends a stream: nothing is left out in silence. */
function hasPayload(value: Buffer): boolean {
  const members = value.length === 0 ? null : valuesOf(value, PAYLOADS);
  return members !== null && (members[0] !== null || members[1] !== null);
}

const PAYLOADS = ['payload', 'payload_base64'] as const;
const MAX_WORDS = 500;

function wordsOf({ code, message }: RpcFailure): string {
  return `${code} ${message.slice(0, MAX_WORDS)}`.trim();
}

/** The error as the agent said it. */
function bodyOf({ code, message, data }: RpcFailure): Buffer {
  const head = `{"code":${code},"message":${JSON.stringify(message)}`;
  return data === null ? Buffer.from(`${head}}`, 'utf8') : Buffer.concat([Buffer.from(`${head},"data":`, 'utf8'), data, Buffer.from('}')]);
}

function withType(headers: ReplyHeaders, contentType: string): ReplyHeaders {
  return contentType === '' ? headers : { ...headers, 'content-type': contentType };
}
