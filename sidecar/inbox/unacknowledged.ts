/**
 * Entries that the server holds as delivered and not acknowledged, since their agents have not acknowledged them. If this
 * process dies, the server gives them to the next one. There may be only so many (the server's own bound would stop the inboxes
 * of all agents): beyond that the oldest are acknowledged to the server all the same. They stay in the stream, and the agent's
 * floor says that it has not had them. Until then the server is told now and then that they are still in hand.
 */
import type { Bus } from '../../base/nats.ts';
import { ack, extendUnconfirmed } from '../../base/puller.ts';
import type { Box } from './box.ts';

interface Held {
  readonly box: Box;
  readonly seq: number;
  ackSubject: string;
  /** `clock.now()` when the server was last told. */
  toldAt: number;
}

/** Of one agent. */
const MAX_PER_AGENT = 256;

export class Unacknowledged {
  readonly #bus: Pick<Bus, 'post'>;
  readonly #max: number;
  /** By position, those that were told longest ago first. */
  readonly #held = new Map<number, Held>();

  constructor(bus: Pick<Bus, 'post'>, max: number) {
    this.#bus = bus;
    this.#max = max;
  }

  get size(): number {
    return this.#held.size;
  }

  /** False when it was known: it has come again. */
  add(box: Box, seq: number, ackSubject: string, now: number): boolean {
    const known = this.#held.get(seq);
    if (known !== undefined) {
      known.ackSubject = ackSubject;
      this.#toldNow(known, now);
      return false;
    }
    this.#held.set(seq, { box, seq, ackSubject, toldAt: now });
    const { pending } = box;
    if (pending.length === 0 || (pending.at(-1) as number) < seq) pending.push(seq);
    else {
      pending.push(seq);
      pending.sort((a, b) => a - b);
    }
    if (pending.length > MAX_PER_AGENT) this.#release(pending.shift() as number);
    if (this.#held.size > this.#max) for (const oldest of this.#held.keys()) return this.#release(oldest);
    return true;
  }

  /** The agent has acknowledged everything up to there. */
  upTo(box: Box, seq: number): void {
    const { pending } = box;
    let count = 0;
    while (count < pending.length && (pending[count] as number) <= seq) this.#release(pending[count++] as number);
    if (count > 0) pending.splice(0, count);
  }

  /** It has left the hot copy. */
  release(seq: number): void {
    this.#release(seq);
  }

  /** Tells the server of those of which it has heard nothing for so long. */
  extend(now: number, everyMs: number): void {
    for (const held of this.#held.values()) {
      if (now - held.toldAt < everyMs) return;
      if (!extendUnconfirmed(this.#bus, held)) return;
      this.#toldNow(held, now);
    }
  }

  /** They belong to a stream that is gone. */
  clear(): void {
    this.#held.clear();
  }

  #toldNow(held: Held, now: number): void {
    held.toldAt = now;
    this.#held.delete(held.seq);
    this.#held.set(held.seq, held);
  }

  #release(seq: number): true {
    const held = this.#held.get(seq);
    if (held === undefined) return true;
    this.#held.delete(seq);
    ack(this.#bus, held);
    return true;
  }
}
