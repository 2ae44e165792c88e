/**
 * InvokeStream: the provider's body to the caller as it comes, one message a piece. The caller's pace rules: when its
 * stream is full, the provider is not read. A proper end is told by a last message with the Result and the status OK, a
 * cut by the status of its code, so that no client takes half an answer for a whole one.
 */
import { StringDecoder } from 'node:string_decoder';
import { Code } from '../../proto/wire/codes.ts';
import { StreamReply } from '../../proto/wire/reach-messages.ts';
import { bodyKind } from '../call/answer-body.ts';
import { type Call, GOING_AWAY } from '../call/call.ts';
import type { BodySink, BodySource, Reply } from '../call/reply.ts';
import { resultOf } from '../call/result.ts';
import type { Exchange } from './grpc-exchange.ts';
import { askedBy, contentTypeOf, fault, resultFields } from './grpc-invoke.ts';
import type { Form } from './grpc-request.ts';
import { failureTrailers, successTrailers } from './grpc-status.ts';
import type { Stoppable } from './line.ts';

/** Usual clients take messages of 4 MiB, and none wants to wait for one. */
const MAX_PIECE_BYTES = 1_048_576;

export async function invokeStream(exchange: Exchange, message: Buffer): Promise<void> {
  const { front } = exchange;
  const asked = askedBy(exchange, message, true);
  if (asked === null) return;
  const { call, form } = asked;
  exchange.work = call;
  try {
    await front.pipeline.outbound(front.engine, call);
    exchange.work = null;
    const source = call.reply === null ? null : call.reply.stream;
    if (source !== null && call.code === Code.ok) {
      if (exchange.isOver) source.cancel(Code.cancelled, 'the caller went away');
      else new StreamedReply(exchange, call, source, form).start();
    } else if (!exchange.isOver) answerWhole(exchange, call, form);
  } catch (error) {
    fault(exchange, error);
    call.cancel();
  }
}

/** An answer without a streamed body: a failure before its head, the agent's own error, a static fallback. */
function answerWhole(exchange: Exchange, call: Call, form: Form): void {
  const result = resultOf(call, false);
  if (result.entry.code !== Code.ok) {
    exchange.fail(failureTrailers(result));
    return;
  }
  const body = call.staticBody ?? (call.reply as Reply).body;
  if (exchange.givesUp(body.length)) return;
  const pieces = new Pieces(call, form);
  exchange.send(pieces.head());
  pieces.send(exchange, body);
  pieces.end(exchange);
}

/** The messages of one streamed answer. */
class Pieces {
  readonly #call: Call;
  /** Keeps the first bytes of a character that is cut in two; null = bytes are sent. */
  readonly #decoder: StringDecoder | null;

  constructor(call: Call, form: Form) {
    this.#call = call;
    this.#decoder = form === 'payload' || bodyKind(contentTypeOf(call)) === 'binary' ? null : new StringDecoder('utf8');
  }

  head(): Uint8Array {
    const call = this.#call;
    const { chosen } = call;
    const isServed = chosen !== null && call.staticBody === null;
    return StreamReply.write({
      head: {
        status: call.status,
        contentType: contentTypeOf(call),
        provider: isServed ? chosen.provider.agentId : '',
        version: isServed ? chosen.version.text : '',
        traceId: call.traceId,
      },
    });
  }

  /** False = wait for the caller. */
  send(exchange: Exchange, data: Buffer): boolean {
    let goesOn = true;
    for (let from = 0; from < data.length; from += MAX_PIECE_BYTES) {
      const piece = data.length <= MAX_PIECE_BYTES ? data : data.subarray(from, from + MAX_PIECE_BYTES);
      if (this.#decoder === null) goesOn = exchange.send(StreamReply.write({ data: piece }));
      else goesOn = this.#sendText(exchange, this.#decoder.write(piece));
    }
    return goesOn;
  }

  /** The Result and the good end. */
  end(exchange: Exchange): void {
    this.rest(exchange);
    const result = resultOf(this.#call, false);
    exchange.finish(StreamReply.write({ end: resultFields(result, contentTypeOf(this.#call)) }), successTrailers(this.#call));
  }

  /** What is left of a character that never came whole. */
  rest(exchange: Exchange): void {
    if (this.#decoder !== null) this.#sendText(exchange, this.#decoder.end());
  }

  #sendText(exchange: Exchange, text: string): boolean {
    if (text === '') return true;
    return exchange.send(StreamReply.write({ text }));
  }
}

class StreamedReply implements BodySink, Stoppable {
  readonly #exchange: Exchange;
  readonly #call: Call;
  readonly #source: BodySource;
  readonly #pieces: Pieces;
  #isOver = false;

  constructor(exchange: Exchange, call: Call, source: BodySource, form: Form) {
    this.#exchange = exchange;
    this.#call = call;
    this.#source = source;
    this.#pieces = new Pieces(call, form);
  }

  start(): void {
    this.#exchange.work = this;
    this.#exchange.onDrain = () => {
      if (!this.#isOver) this.#source.resume();
    };
    this.#exchange.send(this.#pieces.head());
    this.#source.pipe(this);
  }

  // From the source.

  chunk(data: Buffer): boolean {
    return this.#isOver || this.#pieces.send(this.#exchange, data);
  }

  end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#pieces.end(this.#exchange);
  }

  cut(code: Code): void {
    if (this.#isOver) return;
    this.#isOver = true;
    // The pipeline has set the code by now; a source of another make may not have.
    if (this.#call.code === Code.ok) this.#call.code = code;
    this.#exchange.fail(failureTrailers(resultOf(this.#call, false)));
  }

  /** The sidecar stops, and the time for what is under way is over. */
  goAway(): void {
    if (this.#isOver) return;
    this.#exchange.front.streamsTold++;
    this.#source.cancel(Code.blocked_by_operator, GOING_AWAY);
  }

  // From the caller's stream.

  cancel(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#call.cancel();
    this.#source.cancel(Code.cancelled, 'the caller went away');
  }
}
