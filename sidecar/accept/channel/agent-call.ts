/**
 * One call that an agent makes over its channel: through the pipeline like every call, and back as the answer to its
 * request. A streamed answer leaves in data frames; when the agent does not take them, whoever produces them is paused.
 */
import { Code } from '../../../proto/wire/codes.ts';
import { Frame, frameHead } from '../../../proto/wire/frames.ts';
import type { RpcId } from '../../../proto/wire/json-rpc.ts';
import { readTraceContext } from '../../../proto/wire/trace-context.ts';
import { Call, GOING_AWAY } from '../../call/call.ts';
import type { Principal } from '../../call/principal.ts';
import { type BodySink, type BodySource, NO_BODY, type Reply } from '../../call/reply.ts';
import { type JsonBytes, resultOf, streamEnd } from '../../call/result.ts';
import { flat } from '../answer.ts';
import type { Front } from '../front.ts';
import { rpcAnswer, rpcFailure } from '../rpc-answer.ts';
import { type Ask, JSON_TYPE, quoted } from './message.ts';

/** What a call needs of its connection. */
export interface CalledOn {
  readonly front: Front;
  readonly principal: Principal;
  /** Number of the next stream to the agent. */
  nextStream(): number;
  sendText(head: string, bytes: Buffer | null, tail: string): void;
  sendJson(json: JsonBytes): void;
  sendBinary(head: Buffer, payload: Buffer): void;
  /** True when no more should be sent for now; then `resume` of the call is called when it may. */
  isFull(waiting: AgentCall): boolean;
  /** It is over. */
  ended(call: AgentCall): void;
}

/** A data frame's payload: receivers of WebSocket messages limit them, and heartbeats go between frames. */
const PIECE_BYTES = 65_536;

export class AgentCall implements BodySink {
  /** What its id means; two calls under way may not have the same. */
  readonly key: string;
  /** As the agent wrote it. */
  readonly id: RpcId;
  /** Number of the stream that answers it; 0 = none. */
  stream = 0;
  readonly #on: CalledOn;
  readonly #call: Call;
  #source: BodySource | null = null;
  #isOver = false;

  constructor(on: CalledOn, key: string, id: RpcId, ask: Ask, wantsStream: boolean) {
    const { engine } = on.front;
    this.key = key;
    this.id = id;
    this.#on = on;
    this.#call = new Call('channel', ask.capability, ask.headers, ask.body, ask.contentType, wantsStream, engine.clock);
    this.#call.principal = on.principal;
    readTraceContext(this.#call, ask.headers['traceparent'], ask.headers['tracestate'], engine.random);
  }

  async run(): Promise<void> {
    const call = this.#call;
    const { front } = this.#on;
    try {
      await front.pipeline.outbound(front.engine, call);
      const source = call.reply === null ? null : call.reply.stream;
      if (this.#isOver) source?.cancel(Code.cancelled, 'the caller went away');
      else if (source !== null && call.code === Code.ok) this.#follow(call.reply as Reply, source);
      else if (call.stream && call.code === Code.ok) this.#wholeAsStream();
      else this.#answer();
    } catch (error) {
      front.observation.fault(error);
      call.cancel();
      if (!this.#isOver) this.#on.sendJson(rpcFailure(this.id, Code.internal, 'a fault in Agent-Reach'));
      this.#over();
    }
  }

  /** Nobody waits for it any more: the agent said so, or is gone. */
  cancel(): void {
    if (!this.#over()) return;
    this.#call.cancel();
    this.#source?.cancel(Code.cancelled, 'the caller went away');
  }

  /** The sidecar stops, and the time for what is under way is over: the agent is told so. */
  goAway(): void {
    if (this.#source === null) this.#call.goAway();
    else {
      this.#on.front.streamsTold++;
      this.#source.cancel(Code.blocked_by_operator, GOING_AWAY);
    }
  }

  /** The connection has room again. */
  resume(): void {
    if (!this.#isOver) this.#source?.resume();
  }

  // From the source.

  chunk(data: Buffer): boolean {
    if (this.#isOver) return true;
    for (let at = 0; at < data.length; at += PIECE_BYTES) {
      const piece = data.length <= PIECE_BYTES ? data : data.subarray(at, at + PIECE_BYTES);
      this.#on.sendBinary(frameHead(Frame.data, this.stream), piece);
    }
    return !this.#on.isFull(this);
  }

  end(): void {
    this.#last(Frame.end);
  }

  cut(code: Code): void {
    if (this.#isOver) return;
    // The pipeline has set the code by now; a source of another make may not have.
    if (this.#call.code === Code.ok) this.#call.code = code;
    this.#last(Frame.error);
  }

  /** Said before it is over: a connection that is left ends with its last call. */
  #last(type: typeof Frame.end | typeof Frame.error): void {
    if (this.#isOver) return;
    this.#on.sendBinary(frameHead(type, this.stream), Buffer.from(streamEnd(resultOf(this.#call, false)), 'utf8'));
    this.#over();
  }

  #answer(): void {
    if (this.#isOver) return;
    this.#on.sendJson(rpcAnswer(this.id, this.#call, false));
    this.#over();
  }

  #follow(reply: Reply, source: BodySource): void {
    this.#source = source;
    this.#sendHead(reply.status, flat(reply.headers));
    source.pipe(this);
  }

  /** The answer came whole although a stream was asked for: a static fallback, or an agent that does not stream. */
  #wholeAsStream(): void {
    const call = this.#call;
    const reply = call.reply;
    const isStatic = call.staticBody !== null || reply === null;
    this.#sendHead(isStatic ? 200 : reply.status, isStatic ? ['content-type', JSON_TYPE] : flat(reply.headers));
    const body = call.staticBody ?? (reply === null ? NO_BODY : reply.body);
    if (body.length > 0) this.chunk(body);
    this.end();
  }

  #sendHead(status: number, headers: readonly string[]): void {
    this.stream = this.#on.nextStream();
    let type = '';
    let others = '';
    for (let i = 0; i < headers.length; i += 2) {
      const name = headers[i] as string;
      if (name === 'content-type') type = headers[i + 1] as string;
      else others += `${others === '' ? '' : ','}${quoted(name)}:${quoted(headers[i + 1] as string)}`;
    }
    const result = resultOf(this.#call, false);
    const from = result.provider === null ? '' : `,"provider":${quoted(result.provider)},"version":${quoted(result.version ?? '')}`;
    const shownType = type === '' ? 'null' : quoted(type);
    this.#on.sendText(
      `{"jsonrpc":"2.0","id":${this.id},"result":{"stream":${this.stream},"status":${status},"content_type":${shownType},"headers":{${others}},"trace_id":"${this.#call.traceId}"${from}}}`,
      null,
      '',
    );
  }

  /** False when it was over before. */
  #over(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    this.#on.ended(this);
    return true;
  }
}
