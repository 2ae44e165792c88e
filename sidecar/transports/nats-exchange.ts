/**
 * One request over NATS and what comes back: settles exactly once, and for a stream is the BodySource. A stream has no
 * connection of its own here: that the responder is gone shows only in silence, which the idle and total clocks of the attempt
 * end; and nobody can be told to wait, so that what a slow reader has not taken is held up to a limit and then the stream is cut.
 */
import { type BusReply, replyWords } from '../../base/bus-message.ts';
import type { Conversation } from '../../base/nats.ts';
import { Code } from '../../proto/wire/codes.ts';
import { answered, type BodySink, type BodySource, failed, NO_BODY, type Reply, streaming } from '../call/reply.ts';
import type { Started } from '../call/attempt-record.ts';
import type { Mode } from './http-exchange.ts';
import { answerOf, LINES, lineOf, serviceErrorOf } from './nats-message.ts';

/** Held for a reader that does not read. */
const MAX_WAITING_BYTES = 4_194_304;

export class NatsExchange implements BodySource {
  readonly #mode: Mode;
  readonly #isStream: boolean;
  readonly #maxBytes: number;
  readonly #where: string;
  #resolve: ((reply: Reply) => void) | null;
  #conversation: Conversation | null = null;
  #onNobody: (() => void) | null = null;
  #onOver: (() => void) | null = null;
  #sent = false;
  /** Lines that have come and not been passed on. */
  #waiting: Buffer[] = [];
  #taken = 0;
  #waitingBytes = 0;
  #receivedBytes = 0;
  #isStreaming = false;
  #sink: BodySink | null = null;
  #isPaused = false;
  /** How the body ended; told when what waits has been read. */
  #ending: { readonly code: Code; readonly detail: string } | null = null;
  #isOver = false;

  /** @param where for messages: subject and server, without secrets. */
  constructor(mode: Mode, isStream: boolean, maxBytes: number, where: string, resolve: (reply: Reply) => void) {
    this.#mode = mode;
    this.#isStream = isStream;
    this.#maxBytes = maxBytes;
    this.#where = where;
    this.#resolve = resolve;
  }

  get isSettled(): boolean {
    return this.#resolve === null;
  }

  /** The request is on its way. @param onNobody asked once when nobody listens there; null = that settles it. */
  began(conversation: Conversation, onNobody: (() => void) | null): void {
    this.#sent = true;
    this.#conversation = conversation;
    this.#onNobody = onNobody;
  }

  /** Called once, when nothing of it is under way any more. */
  whenOver(tell: () => void): void {
    if (this.#resolve === null && !this.#isStreaming) tell();
    else this.#onOver = tell;
  }

  /** Gives up at once. */
  stop(): void {
    if (this.#isStreaming) this.cancel(Code.cancelled, 'stopped by the sidecar');
    else this.settle(failed(Code.cancelled, this.#started(), `stopped while waiting for ${this.#sent ? 'an answer' : 'NATS'}`));
  }

  settle(reply: Reply): void {
    const resolve = this.#resolve;
    if (resolve === null) return;
    this.#resolve = null;
    if (!this.#isStreaming) this.#end();
    resolve(reply);
  }

  /** Whatever the bus has to tell. */
  hear(reply: BusReply): void {
    if (reply.kind !== 'ok') this.#failed(reply);
    else if (!this.#isStream) this.#whole(answerOf(reply.message));
    else {
      const error = serviceErrorOf(reply.message);
      // Until a head was given out, it is the answer; of a whole one what came before it is no part.
      if (error !== null && !this.#isStreaming) this.#whole(answerOf(reply.message));
      else if (error !== null) this.#over(Code.stream_interrupted, `the service ended the stream with an error: ${error.words}`);
      else if (reply.message.data.length === 0) this.#lastOf();
      else this.#line(lineOf(reply.message));
    }
  }

  // What the reader of a stream calls.

  pipe(sink: BodySink): void {
    this.#sink = sink;
    this.#flush();
  }

  resume(): void {
    this.#isPaused = false;
    this.#flush();
  }

  cancel(code: Code, detail: string): void {
    if (this.#isOver) return;
    // What waits is not wanted any more, nor the end that would have come behind it.
    this.#waiting = [];
    this.#taken = 0;
    this.#waitingBytes = 0;
    this.#ending = null;
    this.#over(code, detail);
  }

  #started(): Started {
    return this.#sent ? 'started' : 'not_started';
  }

  #failed(reply: Exclude<BusReply, { kind: 'ok' }>): void {
    if (this.#isStreaming) {
      this.#over(Code.stream_interrupted, replyWords(reply, 'the stream was cut in its middle'));
      return;
    }
    switch (reply.kind) {
      case 'no_responder': {
        const again = this.#onNobody;
        this.#onNobody = null;
        this.#sent = false;
        if (again !== null) again();
        else this.settle(failed(Code.connect_timeout, 'not_started', `nobody answers at ${this.#where}`));
        return;
      }
      case 'unreachable':
        this.settle(failed(Code.connection_lost, 'started', `the connection to NATS broke before an answer from ${this.#where}`));
        return;
      case 'refused':
        this.settle(failed(Code.connect_timeout, 'not_started', `NATS does not take requests for ${this.#where}: ${reply.why}`));
        return;
      case 'timeout':
        this.settle(failed(Code.response_timeout, 'started', `no answer from ${this.#where}`));
    }
  }

  #whole(reply: Reply): void {
    if (this.#mode === 'head') this.settle(answered(reply.status, reply.headers, NO_BODY));
    else if (reply.body.length > this.#maxBytes) this.#tooLarge(reply.body.length);
    else this.settle(reply);
  }

  #line(line: Buffer): void {
    if (this.#isOver || this.#ending !== null) return;
    this.#receivedBytes += line.length;
    if (this.#mode === 'head') return this.settle(answered(200, LINES, NO_BODY));
    if (this.#mode === 'whole') {
      if (this.#receivedBytes > this.#maxBytes) return this.#tooLarge(this.#receivedBytes);
      this.#waiting.push(line);
      return;
    }
    if (this.#sink !== null && !this.#isPaused && this.#waiting.length === 0) {
      this.#isPaused = !this.#sink.chunk(line);
      return;
    }
    this.#waiting.push(line);
    this.#waitingBytes += line.length;
    if (!this.#isStreaming) this.#head();
    if (this.#waitingBytes > MAX_WAITING_BYTES)
      this.cancel(
        Code.stream_interrupted,
        `the reader is too slow: more than ${MAX_WAITING_BYTES} bytes wait for it, and NATS cannot be held back`,
      );
  }

  /** The empty message. */
  #lastOf(): void {
    if (this.#mode === 'whole') this.settle(answered(200, LINES, Buffer.concat(this.#waiting)));
    else if (this.#mode === 'head') this.settle(answered(200, LINES, NO_BODY));
    else {
      if (!this.#isStreaming) this.#head();
      this.#over(Code.ok, '');
    }
  }

  #head(): void {
    this.#isStreaming = true;
    this.settle(streaming(200, LINES, this));
  }

  #tooLarge(bytes: number): void {
    this.settle(failed(Code.response_too_large, 'started', `the answer is above the limit of ${this.#maxBytes} bytes: ${bytes} came`));
  }

  /** Nothing comes any more. */
  #over(code: Code, detail: string): void {
    if (this.#ending !== null || this.#isOver) return;
    this.#ending = { code, detail };
    this.#end();
    this.#flush();
  }

  #end(): void {
    this.#conversation?.close();
    const tell = this.#onOver;
    this.#onOver = null;
    tell?.();
  }

  #flush(): void {
    const sink = this.#sink;
    if (sink === null || this.#isOver) return;
    // The reader may come back here from within `chunk`.
    while (this.#taken < this.#waiting.length && !this.#isPaused) {
      const line = this.#waiting[this.#taken++] as Buffer;
      this.#waitingBytes -= line.length;
      this.#isPaused = !sink.chunk(line);
    }
    if (this.#taken < this.#waiting.length) return;
    this.#waiting = [];
    this.#taken = 0;
    const ending = this.#ending;
    if (ending === null || this.#isOver) return;
    this.#isOver = true;
    if (ending.code === Code.ok) sink.end();
    else sink.cut(ending.code, ending.detail);
  }
}
