/**
 * What waits to leave on one connection. While the peer reads, frames leave at the end of the turn in which they came, those
 * of all connections together. When it does not, they wait here rather than in the socket, for three reasons: signs of life
 * overtake what waits; whoever produces can ask how much there is and pause; and progress shows even inside one large
 * message, which leaves in slices.
 */
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../base/clock.ts';
import { atEndOfTurn, type PutOff } from '../../../base/turn.ts';

/** One write to the socket. Small enough that a slow reader shows progress within the stall limit, large enough to be cheap. */
const SLICE_BYTES = 65_536;

export class Outbox implements PutOff {
  readonly #socket: Duplex;
  readonly #clock: Clock;
  #queue: Buffer[] | null = null;
  #queuedBytes = 0;
  /** The end of the turn will come by here. */
  #isPutOff = false;
  /** The first in the queue is the rest of a frame whose beginning has left: nothing may come before it. */
  #isInside = false;
  /** The pong that waits in the queue. */
  #pong: Buffer | null = null;
  /** `clock.now()` since when the peer has taken nothing of what was given to the socket; 0 = it takes all. */
  blockedAt = 0;

  constructor(socket: Duplex, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
  }

  /** Bytes that the peer's machine has not taken. */
  get bytes(): number {
    return this.#socket.writableLength + this.#queuedBytes;
  }

  /** Of these, what waits here. */
  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** Part of a frame has left: nothing else may be said before its rest. */
  get isInside(): boolean {
    return this.#isInside && this.#queue !== null;
  }

  /** Whether so many bytes wait although the socket was given all that it takes. */
  isFilledTo(bytes: number): boolean {
    if (this.bytes < bytes) return false;
    this.flush();
    return this.bytes >= bytes;
  }

  send(frame: Buffer): void {
    (this.#queue ??= []).push(frame);
    this.#queuedBytes += frame.length;
    // Large ones gain nothing by company, and what many make in one turn must not pile up.
    if (this.#queuedBytes >= SLICE_BYTES) this.flush();
    else if (!this.#isPutOff) {
      this.#isPutOff = true;
      atEndOfTurn(this);
    }
  }

  turnEnds(): void {
    this.#isPutOff = false;
    this.flush();
  }

  /** Goes before everything that has not begun to leave. */
  sendFirst(frame: Buffer): void {
    if (this.#queue === null || this.#queue.length === 0) {
      this.send(frame);
      return;
    }
    this.#queue.splice(this.#isInside ? 1 : 0, 0, frame);
    this.#queuedBytes += frame.length;
  }

  /** The answer to a ping. While it waits, a newer one takes its place (RFC 6455, 5.5.3): a flood of pings is answered by one. */
  sendPong(frame: Buffer): void {
    const queue = this.#queue;
    const at = this.#pong === null || queue === null ? -1 : queue.indexOf(this.#pong);
    if (at >= 0 && queue !== null) {
      this.#queuedBytes += frame.length - queue[at]!.length;
      queue[at] = frame;
    } else this.sendFirst(frame);
    this.#pong = this.#queue !== null && this.#queue.includes(frame) ? frame : null;
  }

  /** The socket has room again. */
  drained(): void {
    this.blockedAt = 0;
    this.flush();
  }

  /** Gives the socket all that it takes. */
  flush(): void {
    const queue = this.#queue;
    if (queue === null || this.#socket.writableNeedDrain) return;
    const isOne = queue.length === 1;
    if (!isOne) this.#socket.cork();
    while (queue.length > 0 && !this.#socket.writableNeedDrain) {
      const frame = queue.shift() as Buffer;
      this.#queuedBytes -= frame.length;
      this.#isInside = false;
      if (frame === this.#pong) this.#pong = null;
      this.#write(frame);
    }
    if (!isOne) this.#socket.uncork();
    if (queue.length === 0) this.#queue = null;
  }

  /** The connection is gone: nothing of it is kept. */
  clear(): void {
    this.#queue = null;
    this.#queuedBytes = 0;
    this.#pong = null;
    this.blockedAt = 0;
  }

  #write(frame: Buffer): void {
    let at = 0;
    while (at < frame.length && (at === 0 || !this.#socket.writableNeedDrain)) {
      const slice = frame.length - at <= SLICE_BYTES ? (at === 0 ? frame : frame.subarray(at)) : frame.subarray(at, at + SLICE_BYTES);
      at += slice.length;
      if (!this.#socket.write(slice) && this.blockedAt === 0) this.blockedAt = this.#clock.now();
    }
    if (at === frame.length) return;
    (this.#queue ??= []).unshift(frame.subarray(at));
    this.#queuedBytes += frame.length - at;
    this.#isInside = true;
  }
}
