/**
 * `/v1/stream/{target}`: the provider's body to the caller as it comes, in chunks or as server-sent events. The caller's
 * pace rules: when its socket is full, the provider's is not read. An end is told as an end and a cut as a cut: events end
 * with an error event, plain chunks without the last chunk, so that no client takes half an answer for a whole one.
 * Accounting is the pipeline's affair, which has wrapped the source.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import type { BodySink, BodySource, Reply } from '../call/reply.ts';
import { resultOf, streamEnd } from '../call/result.ts';
import { answerEnveloped, answerRaw, flat, pushOwn, refuse } from './answer.ts';
import type { Front } from './front.ts';
import { type Line, lineOf, type Stoppable } from './line.ts';
import { callFrom } from './request.ts';
import { EventMaker, EventRelay, type Framing, PlainFraming } from './sse.ts';

/** An idle stream of events says that it lives, before any middlebox thinks it dead. */
const COMMENT_EVERY_MS = 15_000;
const COMMENT = ': keep-alive\n\n';
/** How long what was written before a cut may take to leave. */
const FLUSH_MS = 5_000;

export async function stream(
  front: Front,
  request: IncomingMessage,
  response: ServerResponse,
  asked: string,
  body: unknown,
): Promise<void> {
  const call = callFrom(front, request, 'http', asked, body, true);
  const line = lineOf(request.socket);
  line.add(call);
  try {
    await front.pipeline.outbound(front.engine, call);
    line.remove(call);
    const source = call.reply === null ? null : call.reply.stream;
    if (source !== null && call.code === Code.ok) {
      if (response.destroyed) {
        source.cancel(Code.cancelled, 'the caller went away');
        return;
      }
      flow(front, line, call, call.reply as Reply, source, response, wantsEvents(request));
    } else if (!response.destroyed) answerWhole(response, call, wantsEvents(request));
  } catch (error) {
    line.remove(call);
    front.observation.fault(error);
    call.cancel();
    refuse(response, Code.internal, 500, 'a fault in Agent-Reach', 'close');
  }
}

/** Starts a streamed answer; used by the mesh port as well. */
export function pour(
  front: Front,
  line: Line,
  call: Call,
  source: BodySource,
  response: ServerResponse,
  status: number,
  head: string[],
  framing: Framing,
): void {
  response.writeHead(status, head);
  response.flushHeaders();
  new StreamedAnswer(front, line, call, source, response, framing).start();
}

function flow(front: Front, line: Line, call: Call, reply: Reply, source: BodySource, response: ServerResponse, events: boolean): void {
  const head = flat(reply.headers);
  const contentType = reply.headers['content-type'];
  const isEvents = typeof contentType === 'string' && contentType.trim().toLowerCase().startsWith('text/event-stream');
  const result = resultOf(call, false);
  if (!events && !isEvents) {
    pushOwn(head, result);
    pour(front, line, call, source, response, reply.status, head, new PlainFraming());
    return;
  }
  const kept: string[] = [];
  for (let i = 0; i < head.length; i += 2)
    if (head[i] !== 'content-type' && head[i] !== 'cache-control') kept.push(head[i] as string, head[i + 1] as string);
  pushEventHead(kept);
  pushOwn(kept, result);
  pour(front, line, call, source, response, reply.status, kept, isEvents ? new EventRelay() : new EventMaker(contentType));
}

function pushEventHead(head: string[]): void {
  head.push('content-type', 'text/event-stream; charset=utf-8', 'cache-control', 'no-cache', 'x-accel-buffering', 'no');
}

/** An answer without a streamed body: a failure before its head, the agent's own error, a static fallback. */
function answerWhole(response: ServerResponse, call: Call, events: boolean): void {
  if (call.code !== Code.ok || !events) {
    if (call.code === Code.ok || call.code === Code.provider_error) answerRaw(response, call);
    else answerEnveloped(response, call);
    return;
  }
  const result = resultOf(call, false);
  const head: string[] = [];
  pushEventHead(head);
  pushOwn(head, result);
  const isStatic = call.staticBody !== null;
  const reply = call.reply;
  const maker = new EventMaker(isStatic || reply === null ? 'application/json' : reply.headers['content-type']);
  response.writeHead(200, head);
  response.write(maker.chunk(call.staticBody ?? (reply as Reply).body));
  response.end(maker.end(streamEnd(result)));
}

function wantsEvents(request: IncomingMessage): boolean {
  const accept = request.headers.accept;
  return accept !== undefined && accept.includes('text/event-stream');
}

class StreamedAnswer implements BodySink, Stoppable {
  readonly #front: Front;
  readonly #line: Line;
  readonly #call: Call;
  readonly #source: BodySource;
  readonly #response: ServerResponse;
  readonly #framing: Framing;
  #isOver = false;
  #wroteAt = 0;
  #timer: Timer | null = null;

  constructor(front: Front, line: Line, call: Call, source: BodySource, response: ServerResponse, framing: Framing) {
    this.#front = front;
    this.#line = line;
    this.#call = call;
    this.#source = source;
    this.#response = response;
    this.#framing = framing;
  }

  start(): void {
    this.#line.add(this);
    this.#response.on('drain', () => {
      if (!this.#isOver) this.#source.resume();
    });
    if (!(this.#framing instanceof PlainFraming)) this.#keepAlive();
    this.#source.pipe(this);
  }

  // From the source.

  chunk(data: Buffer): boolean {
    if (this.#isOver) return true;
    const out = this.#framing.chunk(data);
    if (out.length === 0) return true;
    this.#wroteAt = this.#front.engine.clock.now();
    return this.#response.write(out);
  }

  end(): void {
    if (!this.#close()) return;
    this.#response.end(this.#framing.end(this.#framing instanceof EventMaker ? streamEnd(resultOf(this.#call, false)) : ''));
  }

  /** The words are in the call's record already. */
  cut(code: Code): void {
    if (!this.#close()) return;
    if (this.#response.destroyed) return;
    if (this.#framing instanceof PlainFraming) {
      this.#break();
      return;
    }
    // The pipeline has set the code by now; a source of another make may not have.
    if (this.#call.code === Code.ok) this.#call.code = code;
    const result = resultOf(this.#call, false);
    this.#response.end(this.#framing.cut(streamEnd(result)));
  }

  // From the caller's connection.

  cancel(): void {
    if (this.#isOver) return;
    this.#call.cancel();
    this.#source.cancel(Code.cancelled, 'the caller went away');
    this.#close();
  }

  /** False when it was over before. */
  #close(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#timer?.cancel();
    this.#line.remove(this);
    return true;
  }

  /** Closes the connection without the last chunk, after what was written has left. */
  #break(): void {
    const socket = this.#response.socket;
    if (socket === null || socket.destroyed) return;
    if (this.#response.req.httpVersionMinor < 1) {
      // Without chunks an orderly close would mean a proper end.
      socket.resetAndDestroy();
      return;
    }
    const timer = this.#front.engine.clock.after(FLUSH_MS, () => socket.destroy());
    socket.once('close', () => timer.cancel());
    socket.destroySoon();
  }

  #keepAlive(): void {
    const { clock } = this.#front.engine;
    this.#wroteAt = clock.now();
    const look = (): void => {
      const idleMs = clock.now() - this.#wroteAt;
      if (idleMs >= COMMENT_EVERY_MS) {
        if (this.#framing.isBetweenEvents && !this.#response.writableNeedDrain) this.#response.write(COMMENT);
        this.#wroteAt = clock.now();
        this.#timer = clock.after(COMMENT_EVERY_MS, look);
      } else this.#timer = clock.after(COMMENT_EVERY_MS - idleMs, look);
    };
    this.#timer = clock.after(COMMENT_EVERY_MS, look);
  }
}
