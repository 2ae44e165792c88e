/**
 * `/v1/stream/{target}`: the provider's body to the caller as it comes, in chunks, as server-sent events, or as binary
 * frames. The caller's pace rules: when its socket is full, the provider's is not read. An end is told as an end and a cut
 * as a cut: events end with an error event, frames with an error frame, plain chunks without the last chunk, so that no
 * client takes half an answer for a whole one. Accounting and clocks are the pipeline's affair, which has wrapped the source.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { FRAMES_TYPE } from '../../proto/wire/frames.ts';
import { Header } from '../../proto/wire/headers.ts';
import { type Call, GOING_AWAY, record } from '../call/call.ts';
import type { BodySink, BodySource, Reply, ReplyHeaders } from '../call/reply.ts';
import { resultOf, streamEnd } from '../call/result.ts';
import { refusing, Verdict } from '../call/verdict.ts';
import { answerEnveloped, answerRaw, flat, pushOwn, refuse } from './answer.ts';
import { BinaryFraming, type Framing, PlainFraming } from './framing.ts';
import type { Front } from './front.ts';
import { type Line, lineOf, type Stoppable } from './line.ts';
import { callFrom } from './request.ts';
import { readResume, resumeToken } from './resume.ts';
import { eventFraming, isEventStream } from './sse.ts';

/** An idle stream says that it lives, before any middlebox thinks it dead. */
const ALIVE_EVERY_MS = 15_000;
/** How long what was written before a cut may take to leave. */
const FLUSH_MS = 5_000;
/** The same, where the cut is told in words: a slow reader is to hear them, one that does not read at all keeps its socket no longer. */
const TELL_MS = 30_000;

const tooLong = refusing('attempt', 'too_long_event', Code.response_too_large, '{a}: {b}');

/** The form in which the caller wants a stream. */
type Form = 'frames' | 'events' | 'as_it_comes';

/** What the end of a stream tells, as JSON in one line. */
export type EndWords = (call: Call) => string;

export async function stream(
  front: Front,
  request: IncomingMessage,
  response: ServerResponse,
  asked: string,
  body: unknown,
): Promise<void> {
  const problem = readResume(request.headers);
  if (problem !== null) {
    refuse(response, Code.invalid_request, 400, problem, 'keep');
    return;
  }
  const call = callFrom(front, request, 'http', asked, body, true);
  const form = formOf(request);
  let whole: Whole | null = null;
  if (form !== 'as_it_comes') call.onWhole = () => (whole = new Whole(call, form));
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
      flow(front, line, call, call.reply as Reply, source, response, form);
    } else if (!response.destroyed) answerWhole(response, call, whole);
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
  endWords: EndWords = resultWords,
): void {
  // The head and a first piece that is here already leave in one packet.
  const { socket } = response;
  socket?.cork();
  response.writeHead(status, head);
  response.flushHeaders();
  new StreamedAnswer(front, line, call, source, response, framing, endWords).start();
  if (socket !== null) process.nextTick(uncork, socket);
}

function uncork(socket: Socket): void {
  socket.uncork();
}

function resultWords(call: Call): string {
  return streamEnd(resultOf(call, false));
}

function flow(front: Front, line: Line, call: Call, reply: Reply, source: BodySource, response: ServerResponse, form: Form): void {
  const contentType = reply.headers['content-type'];
  const result = resultOf(call, false);
  const isPlain = form === 'as_it_comes' && !isEventStream(contentType);
  const head = isPlain ? flat(reply.headers) : framedHead(reply.headers, form);
  pushOwn(head, result);
  const framing = isPlain ? new PlainFraming() : framingFor(form, contentType, call);
  pour(front, line, call, source, response, reply.status, head, framing);
}

function framingFor(form: Form, contentType: string | string[] | undefined, call: Call): Framing {
  if (form === 'frames') return new BinaryFraming();
  return eventFraming(contentType, call.chosen === null ? Number.POSITIVE_INFINITY : call.chosen.settings.limits.eventBytes);
}

/** The provider's head for a body that is written in another form. */
function framedHead(headers: ReplyHeaders, form: Form): string[] {
  const head: string[] = [];
  const theirs = flat(headers);
  for (let i = 0; i < theirs.length; i += 2)
    if (theirs[i] !== 'content-type' && theirs[i] !== 'cache-control') head.push(theirs[i] as string, theirs[i + 1] as string);
  if (form === 'frames') {
    head.push('content-type', FRAMES_TYPE, 'cache-control', 'no-cache', 'x-accel-buffering', 'no');
    for (let i = 0; i < theirs.length; i += 2) if (theirs[i] === 'content-type') head.push(Header.contentType, theirs[i + 1] as string);
  } else head.push('content-type', 'text/event-stream; charset=utf-8', 'cache-control', 'no-cache', 'x-accel-buffering', 'no');
  return head;
}

/**
 * A whole success in the form of a stream: an answer of an agent that does not stream, a static fallback. Of one that does not fit
 * into the form, what fits is given, and the end says that it was cut, as that of a stream does.
 */
class Whole {
  readonly framing: Framing;
  readonly head: string[];
  readonly body: Buffer | string;

  constructor(call: Call, form: Form) {
    const reply = call.staticBody === null ? call.reply : null;
    const headers: ReplyHeaders = reply === null ? { 'content-type': 'application/json' } : reply.headers;
    this.framing = framingFor(form, headers['content-type'], call);
    this.head = framedHead(headers, form);
    this.body = this.framing.chunk(call.staticBody ?? (reply as Reply).body);
    if (this.framing.problem !== '') unfit(call, this.framing.problem);
  }

  write(response: ServerResponse, call: Call): void {
    const { framing, head, body } = this;
    const result = resultOf(call, false);
    pushOwn(head, result);
    response.writeHead(200, head);
    const before = framing.head(body.length);
    if (before !== null) response.write(before);
    response.write(body);
    if (call.code === Code.ok) response.end(framing.end(framing.tellsResult ? streamEnd(result) : ''));
    else response.end(framing.cut(streamEnd(result)));
  }
}

/** The work was done all the same, which the record of the attempt keeps for the call's key. */
function unfit(call: Call, problem: string): void {
  const last = call.attempts[call.attempts.length - 1];
  if (last !== undefined) {
    last.code = Code.response_too_large;
    last.detail = problem;
  }
  record(call, new Verdict(tooLong, call.chosen?.provider.agentId ?? '', problem));
}

/** An answer without a streamed body: as a success, or what is left of one, in the form that was asked for; else a failure before its head. */
function answerWhole(response: ServerResponse, call: Call, whole: Whole | null): void {
  if (whole !== null) whole.write(response, call);
  else if (call.code === Code.ok || call.code === Code.provider_error) answerRaw(response, call);
  else answerEnveloped(response, call);
}

function formOf(request: IncomingMessage): Form {
  const accept = request.headers.accept;
  if (accept === undefined) return 'as_it_comes';
  if (accept.includes(FRAMES_TYPE)) return 'frames';
  return accept.includes('text/event-stream') ? 'events' : 'as_it_comes';
}

class StreamedAnswer implements BodySink, Stoppable {
  readonly #front: Front;
  readonly #line: Line;
  readonly #call: Call;
  readonly #source: BodySource;
  readonly #response: ServerResponse;
  readonly #framing: Framing;
  readonly #endWords: EndWords;
  #isOver = false;
  #goesAway = false;
  #wroteAt = 0;
  #timer: Timer | null = null;

  constructor(front: Front, line: Line, call: Call, source: BodySource, response: ServerResponse, framing: Framing, endWords: EndWords) {
    this.#front = front;
    this.#line = line;
    this.#call = call;
    this.#source = source;
    this.#response = response;
    this.#framing = framing;
    this.#endWords = endWords;
  }

  start(): void {
    this.#line.add(this);
    this.#response.on('drain', () => {
      if (!this.#isOver) this.#source.resume();
    });
    if (this.#framing.keepAlive() !== null) this.#keepAlive();
    this.#source.pipe(this);
  }

  // From the source.

  chunk(data: Buffer): boolean {
    if (this.#isOver) return true;
    const framing = this.#framing;
    const out = framing.chunk(data);
    const goesOn = out.length === 0 || this.#write(out);
    // The source answers with `cut`, which tells the caller.
    if (framing.problem !== '') this.#source.cancel(Code.response_too_large, framing.problem);
    return goesOn;
  }

  #write(out: Buffer | string): boolean {
    this.#wroteAt = this.#front.engine.clock.now();
    const response = this.#response;
    const head = this.#framing.head(out.length);
    if (head === null) return response.write(out);
    // Both as one chunk of the answer and in one packet.
    response.cork();
    response.write(head);
    const goesOn = response.write(out);
    response.uncork();
    return goesOn;
  }

  end(): void {
    if (!this.#close()) return;
    this.#response.end(this.#framing.end(this.#framing.tellsResult ? this.#endWords(this.#call) : ''));
  }

  /** The words are in the call's record already. */
  cut(code: Code, _detail: string, goesAway = false): void {
    if (!this.#close()) return;
    if (this.#response.destroyed) return;
    // The pipeline has set the code by now; a source of another make may not have.
    if (this.#call.code === Code.ok) this.#call.code = code;
    const words = this.#endWords(this.#call);
    const last = this.#goesAway || goesAway ? this.#framing.goAway(this.#withToken(words)) : this.#framing.cut(words);
    if (last === null) this.#break();
    else {
      if (this.#goesAway) this.#front.streamsTold++;
      this.#tell(last);
    }
  }

  /** The same words, which are JSON, and where to go on. */
  #withToken(words: string): string {
    const { chosen } = this.#call;
    const token = resumeToken(chosen === null ? null : chosen.provider.agentId, this.#framing.position());
    return `${words.slice(0, -1)},"going_away":true,"resume":${JSON.stringify(token)}}`;
  }

  // From the port.

  /** The sidecar stops, and the time for what is under way is over. */
  goAway(): void {
    if (this.#isOver) return;
    this.#goesAway = true;
    this.#source.cancel(Code.blocked_by_operator, GOING_AWAY);
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

  #tell(last: Buffer | string): void {
    const response = this.#response;
    const timer = this.#front.engine.clock.after(TELL_MS, () => response.destroy());
    response.once('close', () => timer.cancel());
    response.end(last);
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
      if (idleMs >= ALIVE_EVERY_MS) {
        const sign = this.#framing.keepAlive();
        // Whoever does not read needs no sign of life, and would only be sent more of what it does not read.
        if (sign !== null && !this.#response.writableNeedDrain) this.#response.write(sign);
        this.#wroteAt = clock.now();
        this.#timer = clock.after(ALIVE_EVERY_MS, look);
      } else this.#timer = clock.after(ALIVE_EVERY_MS - idleMs, look);
    };
    this.#timer = clock.after(ALIVE_EVERY_MS, look);
  }
}
