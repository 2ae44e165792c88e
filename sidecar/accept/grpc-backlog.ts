/**
 * The answers of one gRPC connection that its client has not taken. Two limits: above so many bytes the connection asks for
 * nothing new, and when whole answers wait of which nothing is taken for a while, it is ended. A streamed answer under way
 * is no reason to end it: there the client's pace rules, and the stream's own clocks end it.
 *
 * Bytes are counted when an RPC writes and when it has room again, so the sum can be too high in between, never too low;
 * it is made exact before anybody is refused for it.
 */
import type { Exchange } from './grpc-exchange.ts';

/**
 * Answers of RPCs that were under way already come on top of the limit, since nobody can know how large they will be: up to
 * so many times the limit. Beyond that an answer is given up for a refusal, which is small.
 */
const LARGEST_AHEAD = 4;

export class Backlog {
  readonly #limitBytes: number;
  /** Each knows its place here. */
  readonly #open: Exchange[] = [];
  #bytes = 0;
  /** RPCs whose status is decided and whose last bytes have not left. */
  #ending = 0;
  /** Something was taken since the last look. */
  #moved = false;
  #movedAt = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Nothing new should be asked for. */
  get isFull(): boolean {
    return this.#isAbove(this.#limitBytes);
  }

  /** Bytes that wait. */
  get bytes(): number {
    this.#recount();
    return this.#bytes;
  }

  /** An answer of so many bytes can wait behind what waits already. The first one always can. */
  hasRoomFor(bytes: number): boolean {
    const room = LARGEST_AHEAD * this.#limitBytes - bytes;
    return this.#bytes <= room || !this.#isAbove(Math.max(0, room));
  }

  #isAbove(bytes: number): boolean {
    if (this.#bytes <= bytes) return false;
    this.#recount();
    return this.#bytes > bytes;
  }

  #recount(): void {
    let sum = 0;
    for (const exchange of this.#open) sum += exchange.count();
    this.#bytes = sum;
  }

  // From the RPCs.

  opened(exchange: Exchange): void {
    exchange.place = this.#open.length;
    this.#open.push(exchange);
  }

  /** The sidecar stops, and the time for what is under way is over. */
  goAway(): void {
    for (const { work } of this.#open.slice()) {
      if (work?.goAway === undefined) work?.cancel();
      else work.goAway();
    }
  }

  changed(byBytes: number): void {
    this.#bytes += byBytes;
  }

  /** The client has taken some. */
  taken(): void {
    this.#moved = true;
  }

  ending(): void {
    this.#ending++;
  }

  /** Its stream is gone. */
  closed(exchange: Exchange, wasEnding: boolean): void {
    const last = this.#open.pop() as Exchange;
    if (last !== exchange) {
      this.#open[exchange.place] = last;
      last.place = exchange.place;
    }
    if (wasEnding) this.#ending--;
    this.#moved = true;
  }

  // From the port, now and then.

  /** For how long whole answers have waited of which nothing was taken, in milliseconds. */
  stalledMs(now: number): number {
    if (this.#moved || this.#ending === 0) {
      this.#moved = false;
      this.#movedAt = now;
      return 0;
    }
    return now - this.#movedAt;
  }
}
