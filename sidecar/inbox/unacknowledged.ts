/**
 * Entries that the server holds as delivered and not acknowledged, since their agents have not acknowledged them. If this
 * process dies, the server gives them to the next one. There may be only so many (the server's own bound would stop the inboxes
 * of all agents): beyond that the oldest are acknowledged to the server all the same. They stay in the stream, and the agent's
 * floor says that it has not had them. Until then the server is told now and then that they are still in hand.
 */
import type { Bus } from '../../base/nats.ts';
import { ack, extendUnconfirmed, nak } from '../../base/puller.ts';
import type { Box } from './box.ts';

interface Held {
  readonly seq: number;
  ackSubject: string;
  /** `clock.now()` when the server was last told. */
  toldAt: number;
  isGone: boolean;
}

/** Of one agent. */
const MAX_PER_AGENT = 256;
const GIVE_BACK_MS = 500;
const COMPACT = 1_024;

export class Unacknowledged {
  readonly #bus: Pick<Bus, 'post'>;
  readonly #wanted: number;
  #max: number;
  /** By position. */
  readonly #held = new Map<number, Held>();
  /**
   * In the order in which the server was told of them, and when that was; what has gone meanwhile, or was told of again, is passed
   * over. An array beside the map, since the beginning of a map that is emptied from there is ever slower to find.
   */
  #told: Held[] = [];
  #toldAt: number[] = [];
  #first = 0;

  constructor(bus: Pick<Bus, 'post'>, max: number) {
    this.#bus = bus;
    this.#wanted = max;
    this.#max = max;
  }

  /** What is held must leave room for what comes, and for what a process before this one has left behind. */
  within(most: number): void {
    this.#max = Math.max(1, Math.min(this.#wanted, most >> 1));
    while (this.#held.size > this.#max) this.#releaseOldest();
  }

  get size(): number {
    return this.#held.size;
  }

  /** False when it was known: it has come again. */
  add({ pending }: Box, seq: number, ackSubject: string, now: number): boolean {
    const known = this.#held.get(seq);
    if (known !== undefined) {
      known.ackSubject = ackSubject;
      this.#toldNow(known, now);
      return false;
    }
    const held: Held = { seq, ackSubject, toldAt: now, isGone: false };
    this.#held.set(seq, held);
    this.#toldNow(held, now);
    const isBehind = pending.length === 0 || (pending.at(-1) as number) < seq;
    pending.push(seq);
    if (!isBehind) pending.sort((a, b) => a - b);
    if (pending.length > MAX_PER_AGENT) this.release(pending.shift() as number);
    if (this.#held.size > this.#max) this.#releaseOldest();
    return true;
  }

  /** The agent has acknowledged everything up to there. */
  upTo(box: Box, seq: number): void {
    const { pending } = box;
    let count = 0;
    while (count < pending.length && (pending[count] as number) <= seq) this.release(pending[count++] as number);
    if (count > 0) pending.splice(0, count);
  }

  /** The agent has had it, or it has left the hot copy. Harmless when it is gone already. */
  release(seq: number): void {
    const held = this.#held.get(seq);
    if (held === undefined) return;
    this.#held.delete(seq);
    held.isGone = true;
    ack(this.#bus, held);
  }

  /** Tells the server of those of which it has heard nothing for so long. */
  extend(now: number, everyMs: number): void {
    for (let held = this.#oldest(); held !== null && now - held.toldAt >= everyMs; held = this.#oldest()) {
      if (!extendUnconfirmed(this.#bus, held)) return;
      this.#toldNow(held, now);
    }
  }

  /** This process stops: the next one gets them soon, and not only when the ack wait is over. Later than our own last request. */
  giveBack(): void {
    for (const held of this.#held.values()) nak(this.#bus, held, GIVE_BACK_MS);
    this.#held.clear();
  }

  /** They belong to a stream that is gone. */
  clear(): void {
    for (const held of this.#held.values()) held.isGone = true;
    this.#held.clear();
  }

  #toldNow(held: Held, now: number): void {
    held.toldAt = now;
    this.#told.push(held);
    this.#toldAt.push(now);
  }

  #releaseOldest(): void {
    const oldest = this.#oldest();
    if (oldest !== null) this.release(oldest.seq);
  }

  /** Of which the server has heard nothing for the longest time. */
  #oldest(): Held | null {
    while (this.#first < this.#told.length) {
      const held = this.#told[this.#first] as Held;
      if (!held.isGone && held.toldAt === this.#toldAt[this.#first]) break;
      this.#first++;
    }
    if (this.#first >= COMPACT && this.#first * 2 >= this.#told.length) {
      this.#told = this.#told.slice(this.#first);
      this.#toldAt = this.#toldAt.slice(this.#first);
      this.#first = 0;
    }
    return this.#told[this.#first] ?? null;
  }
}
