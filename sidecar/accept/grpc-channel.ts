/**
 * The channel over gRPC: the same frames as on a WebSocket, each in a message of its own, so that everything a channel does is
 * done by the same code. What the connection writes are WebSocket frames; they are taken apart here. Pings are answered in the
 * client's name: HTTP/2 has pings of its own, and a client that does not answer those loses its connection.
 */
import { Duplex } from 'node:stream';
import { Code } from '../../proto/wire/codes.ts';
import { ChannelMessage } from '../../proto/wire/reach-messages.ts';
import type { AllChannels } from './channel/all-channels.ts';
import type { ChannelConnection } from './channel/connection.ts';
import { Opcode } from './channel/websocket-frame.ts';
import { headLength, WrittenFrames } from './channel/written-frames.ts';
import { NO_CREDENTIAL } from './cast.ts';
import type { Exchange, Taker } from './grpc-exchange.ts';
import { notNow } from './grpc-invoke.ts';
import { Status } from './grpc-status.ts';
import type { Stoppable } from './line.ts';

const RETRY_MS = 1_000;
const NORMAL = 1000;
const GOING_AWAY = 1001;
/** The client has left without a word. */
const ABNORMAL = 1006;

/** Takes the client's messages; the channel is opened with the RPC, before anything is said. */
export class GrpcChannel implements Taker, Stoppable {
  #connection: ChannelConnection | null = null;

  open(all: AllChannels | null, exchange: Exchange): void {
    if (notNow(exchange)) return;
    const { front, metadata } = exchange;
    const principal = front.engine.identities.caller(metadata.view['authorization']);
    if (principal === null) exchange.refuse(Code.unauthenticated, NO_CREDENTIAL);
    else if (all === null) exchange.refuse(Code.invalid_request, 'no agent can dial in here', 0, Status.unimplemented);
    else if (all.isClosing) exchange.refuse(Code.blocked_by_operator, 'this sidecar is stopping and takes no new channels');
    else {
      const full = all.whyFull(principal.agent);
      if (full !== null) {
        exchange.refuse(Code.caller_busy, full, RETRY_MS);
        return;
      }
      exchange.work = this;
      const pipe = new FramePipe(exchange);
      const connection = all.open(pipe, principal);
      pipe.answersPings(connection);
      this.#connection = connection;
      // The client sees that it is open before it has said anything.
      exchange.begin();
    }
  }

  message(_exchange: Exchange, message: Buffer): void {
    const connection = this.#connection;
    if (connection === null || connection.isOver) return;
    const read = ChannelMessage.read(message);
    if (read === null) {
      connection.broken(1007, 'a message that is no ChannelMessage');
      return;
    }
    if (read.binary.length > 0) connection.took(Buffer.from(read.binary.buffer, read.binary.byteOffset, read.binary.length), false);
    else if (read.text !== '') connection.took(Buffer.from(read.text, 'utf8'), true);
  }

  /** The client has closed its side: that is its closing word. */
  allSaid(exchange: Exchange): void {
    const connection = this.#connection;
    if (connection === null) return;
    if (connection.isOver) exchange.finish(null);
    else connection.close(NORMAL);
  }

  /** The client has gone. */
  cancel(): void {
    this.#connection?.closed(ABNORMAL, '');
  }

  /** All channels are ended in an order of their own. */
  goAway(): void {
    this.#connection?.goAway();
  }

  /** The port closes: what is under way may end within the grace. */
  leave(graceMs: number): void {
    this.#connection?.leave(graceMs);
  }
}

/** What a connection takes for its socket. */
class FramePipe extends Duplex {
  readonly #exchange: Exchange;
  #connection: ChannelConnection | null = null;
  readonly #frames = new WrittenFrames();

  constructor(exchange: Exchange) {
    super({ allowHalfOpen: true });
    this.#exchange = exchange;
  }

  answersPings(connection: ChannelConnection): void {
    this.#connection = connection;
  }

  override _read(): void {
    // Messages are handed over as they come.
  }

  override pause(): this {
    this.#exchange.stream.pause();
    return this;
  }

  override resume(): this {
    this.#exchange.stream.resume();
    return this;
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    const frames = this.#frames;
    frames.push(chunk);
    let mayGoOn = true;
    for (let frame = frames.take(); frame !== null; frame = frames.take()) mayGoOn = this.#frame(frame) && mayGoOn;
    const exchange = this.#exchange;
    if (mayGoOn || exchange.isOver) {
      done();
      return;
    }
    exchange.onDrain = () => {
      exchange.onDrain = null;
      done();
    };
  }

  override _final(done: () => void): void {
    if (!this.#exchange.isOver) this.#exchange.finish(null);
    done();
    // Nothing is ever read from it, so nothing else would tell that it is over.
    this.destroy();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    const exchange = this.#exchange;
    exchange.onDrain = null;
    if (!exchange.isOver) exchange.refuse(Code.connection_lost, 'the channel was cut');
    done(error);
  }

  /** False: the client does not take more for now. */
  #frame(frame: Buffer): boolean {
    const payload = frame.subarray(headLength(frame));
    const exchange = this.#exchange;
    switch ((frame[0] as number) & 0x0f) {
      case Opcode.text:
        return exchange.send(ChannelMessage.write({ text: payload.toString('utf8') }));
      case Opcode.binary:
        return exchange.send(ChannelMessage.write({ binary: payload }));
      case Opcode.ping:
        if (this.#connection !== null) this.#connection.heard = true;
        return true;
      case Opcode.close:
        this.#closing(payload);
        return true;
      default:
        return true;
    }
  }

  /** The closing word becomes the status. */
  #closing(payload: Buffer): void {
    const code = payload.length >= 2 ? payload.readUInt16BE(0) : NORMAL;
    const words = payload.toString('utf8', 2);
    const exchange = this.#exchange;
    if (code === NORMAL) exchange.finish(null);
    else if (code === GOING_AWAY) exchange.refuse(Code.blocked_by_operator, words);
    else if (code < 3_000) exchange.refuse(Code.invalid_request, words);
    else exchange.refuse(Code.connection_lost, `${words} (${code})`);
  }
}
