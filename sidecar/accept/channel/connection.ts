/**
 * One agent's channel: reads what it says, sends what it is told, and knows what is under way in both directions. When it
 * ends, however it ends, that is over too: calls to the agent fail (it may have acted), calls of the agent are cancelled,
 * and nothing that waited to be sent is kept. An end is always the hard one behind a polite word, since a peer that is
 * silently gone would never answer the polite word alone.
 */
import { valuesOf } from '../../../base/json-values.ts';
import type { Duplex } from 'node:stream';
import { ChannelMethod } from '../../../proto/wire/channel.ts';
import { Code } from '../../../proto/wire/codes.ts';
import { readFrame } from '../../../proto/wire/frame-reader.ts';
import { Frame } from '../../../proto/wire/frames.ts';
import { NO_ID, readRpc, type RpcInvalid, type RpcNotification, type RpcRequest } from '../../../proto/wire/json-rpc.ts';
import type { Principal } from '../../call/principal.ts';
import { failed, type Reply } from '../../call/reply.ts';
import type { ChannelLink } from '../../transports/channel-hub.ts';
import type { Exchange } from '../../transports/transport.ts';
import type { JsonBytes } from '../../call/result.ts';
import type { Front } from '../front.ts';
import type { Stoppable } from '../line.ts';
import { rpcRefusal } from '../rpc-answer.ts';
import type { AgentCall, CalledOn } from './agent-call.ts';
import { Asked, type AskedOn, type Mode } from './asked.ts';
import { CallsIn } from './calls-in.ts';
import { CallsOut } from './calls-out.ts';
import type { InboxOnChannel, ReadOn } from './inbox-reader.ts';
import { ownId } from './message.ts';
import { Outbox } from './outbox.ts';
import { quick, readQuick } from './quick-answer.ts';
import { requestHead, requestPayload } from './request.ts';
import { binaryFrame, closeFrame, controlFrame, latin1Frame, Opcode, textFrame } from './websocket-frame.ts';
import { type FrameSink, WebSocketReader } from './websocket-reader.ts';

/** What a connection needs of what holds all of them. */
export interface Channels {
  readonly front: Front;
  readonly maxInFlight: number;
  readonly sendBufferBytes: number;
  readonly maxMessageBytes: number;
  /** More may never wait for one agent. */
  readonly hardBytes: number;
  /** A request or a notification of the agent. */
  serve(connection: ChannelConnection, message: RpcRequest | RpcNotification): void;
  /** It has ended. `why` is for the log; '' = in good order. */
  gone(connection: ChannelConnection, code: number, why: string): void;
}

/** An end in our own words; `code` as WebSocket has them. */
export interface Ending {
  readonly code: number;
  readonly words: string;
}

const NO_BATCHES = { batch: 0 } as const;
const NO_PAYLOAD: Buffer = Buffer.alloc(0);

export class ChannelConnection implements ChannelLink, AskedOn, CalledOn, ReadOn, Stoppable, FrameSink {
  readonly agentId: string;
  readonly principal: Principal;
  readonly front: Front;
  readonly out: CallsOut;
  readonly in: CallsIn;
  readonly outbox: Outbox;
  /** It takes calls: it has said hello. */
  isServing = false;
  /** Something has come since the last look. */
  heard = true;
  /** `clock.now()` of the look that found so. */
  heardAt: number;
  /** `clock.now()` of the last ping. */
  pingedAt: number;
  /** `clock.now()` when it was last told that this agent lives. */
  toldAt = Number.NEGATIVE_INFINITY;
  isOver = false;
  /** At the last look more waited for it than may. */
  isOverfull = false;
  /** Told to go: it is closed as soon as nothing is under way. */
  isLeaving = false;
  readonly #channels: Channels;
  readonly #socket: Duplex;
  readonly #reader: WebSocketReader;
  #isPaused = false;
  #isToldGoodbye = false;
  #waiting: Set<{ resume(): void }> | null = null;
  reader: InboxOnChannel | null = null;

  constructor(channels: Channels, socket: Duplex, principal: Principal) {
    const { clock } = channels.front.engine;
    this.#channels = channels;
    this.#socket = socket;
    this.#reader = new WebSocketReader(channels.maxMessageBytes);
    this.front = channels.front;
    this.principal = principal;
    this.agentId = principal.agent;
    this.out = new CallsOut();
    this.in = new CallsIn();
    this.outbox = new Outbox(socket, clock);
    this.heardAt = clock.now();
    this.pingedAt = this.heardAt;
    // Before anything can come: what the peer sent together with its handshake is read in this very turn.
    attach(this, socket);
  }

  get inFlight(): number {
    return this.out.count + this.in.count;
  }

  // ---- calls to the agent

  send(exchange: Exchange, ask: string, mode: Mode): Promise<Reply> {
    if (this.isOver) return Promise.resolve(failed(Code.connect_timeout, 'not_started', `${this.agentId} has just left`));
    if (this.out.count >= this.#channels.maxInFlight)
      return Promise.resolve(
        failed(Code.provider_busy, 'not_started', `${this.out.count} calls are under way on the channel of ${this.agentId}, its limit`),
      );
    if (this.outbox.isFilledTo(this.#channels.sendBufferBytes + 1))
      return Promise.resolve(
        failed(Code.provider_busy, 'not_started', `${this.agentId} does not read its channel: ${this.outbox.bytes} bytes wait for it`),
      );
    const id = this.out.nextId();
    const head = requestHead(exchange, ask, id, mode === 'stream');
    if (typeof head !== 'string') return Promise.resolve(failed(Code.invalid_request, 'not_started', head.refusal));
    return new Promise((resolve) => {
      const asked = new Asked(id, mode, this, exchange.maxResponseBytes, resolve);
      this.out.add(asked);
      exchange.abort = stopper(asked);
      const payload = requestPayload(exchange);
      this.outbox.send(textFrame(head + payload.before, payload.bytes, payload.after));
    });
  }

  forget(asked: Asked): void {
    this.out.remove(asked);
    if (this.isLeaving) this.#leaveIfIdle();
  }

  tellCancelled(asked: Asked): void {
    if (this.isOver) return;
    this.sendText(`{"jsonrpc":"2.0","method":"${ChannelMethod.cancel}","params":{"id":${asked.id}}}`, null, '');
  }

  // ---- calls of the agent

  nextStream(): number {
    return this.in.nextStream();
  }

  ended(call: AgentCall): void {
    this.in.remove(call);
    this.#waiting?.delete(call);
    if (this.isLeaving) this.#leaveIfIdle();
  }

  isFull(waiting: { resume(): void }): boolean {
    if (!this.outbox.isFilledTo(this.#channels.sendBufferBytes)) return false;
    (this.#waiting ??= new Set()).add(waiting);
    return true;
  }

  // ---- sending

  sendText(head: string, bytes: Buffer | null, tail: string): void {
    if (!this.isOver) this.outbox.send(textFrame(head, bytes, tail));
  }

  sendJson(json: JsonBytes): void {
    if (this.isOver) return;
    if (typeof json === 'string') this.outbox.send(latin1Frame(json));
    else this.outbox.send(textFrame('', json, ''));
  }

  sendBinary(head: Buffer, payload: Buffer): void {
    if (!this.isOver) this.outbox.send(binaryFrame(head, payload));
  }

  sendPing(now: number): void {
    this.pingedAt = now;
    this.outbox.sendFirst(controlFrame(Opcode.ping, NO_PAYLOAD));
  }

  // ---- from the socket

  received(chunk: Buffer): void {
    this.heard = true;
    if (this.isOver) return;
    this.#reader.push(chunk, this);
    if (this.outbox.queuedBytes <= this.#channels.hardBytes) return;
    this.outbox.flush();
    if (this.outbox.queuedBytes > this.#channels.hardBytes) this.#pause();
  }

  /** A whole message that came by another way than in frames of a WebSocket. */
  took(payload: Buffer, isText: boolean): void {
    this.heard = true;
    if (this.isOver) return;
    const { maxMessageBytes } = this.#channels;
    if (payload.length > maxMessageBytes) this.broken(1009, `a message has at most ${maxMessageBytes} bytes`);
    else if (isText) this.text(payload);
    else this.binary(payload);
    if (this.outbox.queuedBytes > this.#channels.hardBytes) this.#pause();
  }

  /** What it says makes answers, and it takes none: it is not listened to until it does, or until it is cut off for that. */
  #pause(): void {
    if (this.isOver || this.#isPaused) return;
    this.#isPaused = true;
    this.#socket.pause();
  }

  text(payload: Buffer): void {
    this.#said(payload);
  }

  binary(payload: Buffer): void {
    this.#piece(payload);
  }

  ping(payload: Buffer): void {
    this.outbox.sendPong(controlFrame(Opcode.pong, payload));
  }

  pong(): void {
    // Being heard of is all it is for.
  }

  /** The peer's closing word is answered, and that is the end. */
  close(code: number): void {
    this.#sayLast(code === NO_CODE ? NORMAL : code, '');
    this.closed(code, '');
    this.#cutLater();
  }

  broken(code: number, words: string): void {
    this.#sayLast(code, words);
    this.closed(code, words);
    this.#cutLater();
  }

  drained(): void {
    this.outbox.drained();
    if (this.isLeaving) this.#leaveIfIdle();
    if (this.#isPaused && this.outbox.bytes <= this.#channels.sendBufferBytes) {
      this.#isPaused = false;
      this.#socket.resume();
    }
    const waiting = this.#waiting;
    if (waiting === null || this.outbox.bytes > this.#channels.sendBufferBytes / 2) return;
    this.#waiting = null;
    for (const call of waiting) call.resume();
  }

  /** The socket or the protocol has failed, or the peer has closed. */
  closed(code: number, why: string): void {
    this.#finish(code, why, `the channel of ${this.agentId} was lost: ${why === '' ? `it was closed (${code})` : why}`);
  }

  /** The port says that the socket has gone; mostly it is known already. */
  cancel(): void {
    this.closed(ABNORMAL, '');
  }

  /** Told with all channels, which end in an order of their own. */
  goAway(): void {
    for (const call of this.in.all()) call.goAway();
  }

  // ---- ending it

  /** At once: with a word to a peer that can hear it, and without waiting for an answer. */
  end({ code, words }: Ending): void {
    if (this.isOver) return;
    this.#sayLast(code, words);
    this.#finish(code, words, `the channel of ${this.agentId} was ended: ${words}`);
    this.#socket.destroy();
  }

  /** Behind what has left already; what waits is not waited for. Inside a frame no word can be said. */
  #sayLast(code: number, words: string): void {
    if (!this.#socket.writable) return;
    this.outbox.flush();
    if (!this.outbox.isInside) this.#socket.write(closeFrame(code, words));
  }

  /** It has ended its side without a closing word, and does not get one. */
  hungUp(): void {
    if (this.isOver) return;
    this.outbox.flush();
    this.closed(ABNORMAL, '');
    this.#cutLater();
  }

  /**
   * Gives the peer the time to read the closing word: a connection closed over unread bytes is reset, and the word lost.
   * No longer than that: one that reads nothing would keep the connection for ever, and nobody counts it any more.
   */
  #cutLater(): void {
    const timer = this.front.engine.clock.after(CLOSE_MS, () => this.#socket.destroy());
    this.#socket.once('close', () => timer.cancel());
    this.#socket.end();
  }

  /** Lets what is under way end, and closes then. */
  leave(graceMs: number): void {
    if (this.isOver || this.isLeaving) return;
    this.tellGoodbye(graceMs);
    this.isLeaving = true;
    this.#leaveIfIdle();
  }

  /** The sidecar will close: the agent hears it once, and may finish. */
  tellGoodbye(graceMs: number): void {
    if (this.isOver || this.#isToldGoodbye) return;
    this.#isToldGoodbye = true;
    this.sendText(
      `{"jsonrpc":"2.0","method":"${ChannelMethod.goodbye}","params":{"grace_ms":${Math.max(0, Math.round(graceMs))}}}`,
      null,
      '',
    );
  }

  #leaveIfIdle(): void {
    if (this.isOver || this.inFlight > 0) return;
    this.outbox.flush();
    if (this.outbox.queuedBytes > 0) return;
    this.#sayLast(GOING_AWAY, STOPPING);
    this.#finish(GOING_AWAY, '', `the channel of ${this.agentId} was closed: ${STOPPING}`);
    this.#cutLater();
  }

  #finish(code: number, why: string, words: string): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#channels.gone(this, code, why);
    for (const asked of this.out.all()) asked.lost(words);
    for (const call of this.in.all()) call.cancel();
    this.reader?.close();
    this.#waiting = null;
    this.outbox.clear();
  }

  // ---- reading

  #said(frame: Buffer): void {
    if (readQuick(frame)) {
      this.out.find(quick.id)?.payload(frame.subarray(quick.from, quick.to));
      return;
    }
    const reading = readRpc(frame, NO_BATCHES);
    if (reading.isBatch) return;
    const { message } = reading;
    switch (message.kind) {
      case 'request':
        return this.#channels.serve(this, message);
      case 'notification':
        if (message.method === ChannelMethod.head) return this.#head(message.params);
        return this.#channels.serve(this, message);
      // Of those that nobody waits for any more (cancelled, or never asked) nothing is made.
      case 'result':
        return this.out.find(ownId(message.id))?.result(message.result);
      case 'error':
        return this.out.find(ownId(message.id))?.error(message);
      case 'invalid':
        if (message.isAnswer) return this.#badAnswer(message);
        if (message.isNotification) return;
        return this.sendJson(rpcRefusal(message.id, message.code, message.problem));
    }
  }

  /** Answers are not answered: their ids are ours, and one of the agent's own requests may have the same. */
  #badAnswer({ id, code, problem }: RpcInvalid): void {
    const asked = this.out.find(ownId(id));
    if (asked === null) this.sendJson(rpcRefusal(NO_ID, code, problem));
    else asked.broken(`the answer cannot be read: ${problem}`);
  }

  #head(params: Buffer | null): void {
    const id = params === null ? null : (valuesOf(params, ['id'])?.[0] ?? null);
    if (params !== null && id !== null) this.out.find(ownId(id.toString('latin1')))?.head(params);
  }

  #piece(data: Buffer): void {
    const frame = readFrame(data);
    if (typeof frame === 'string') {
      this.end({ code: PROTOCOL_ERROR, words: frame });
      return;
    }
    const asked = this.out.find(frame.number);
    if (asked === null) return;
    if (frame.type === Frame.data) asked.data(frame.payload);
    else if (frame.type === Frame.error) asked.broken(`the agent broke off: ${frame.payload.toString('utf8', 0, MAX_WORDS)}`);
    else if (frame.type === Frame.end) asked.ended();
  }
}

/** How long a peer may take to read and answer a closing word before its connection is cut. */
const CLOSE_MS = 2_000;
const NORMAL = 1000;
const NO_CODE = 1005;
const GOING_AWAY = 1001;
const ABNORMAL = 1006;
const PROTOCOL_ERROR = 1002;
const STOPPING = 'the sidecar stops';
const MAX_WORDS = 500;

/** Not a literal where it is assigned: V8 would allocate it in the old generation, see `attempt`. */
function stopper(asked: Asked): () => void {
  return () => asked.stop();
}

const HELD = Symbol('channel');
type Holding = Duplex & { [HELD]?: ChannelConnection };

/** The same few functions for all connections: each finds its connection where it was put. */
function attach(connection: ChannelConnection, socket: Duplex): void {
  (socket as Holding)[HELD] = connection;
  socket.on('error', onError);
  socket.on('data', onData);
  socket.on('drain', onDrain);
  socket.on('end', onEnd);
  socket.on('close', onClose);
}

function onData(this: Holding, chunk: Buffer): void {
  this[HELD]?.received(chunk);
}

function onDrain(this: Holding): void {
  this[HELD]?.drained();
}

/** Also the closing of a socket that had an error: `close` follows it. */
function onError(this: Holding, error: NodeJS.ErrnoException): void {
  this[HELD]?.closed(ABNORMAL, error.code ?? error.message);
}

function onEnd(this: Holding): void {
  this[HELD]?.hungUp();
  this.end();
}

/** Whatever holds on to the socket shall not hold on to the connection. */
function onClose(this: Holding): void {
  this[HELD]?.closed(ABNORMAL, '');
  delete this[HELD];
}
