/**
 * Direct reads of the newest messages, a few at a time: what a join, a repair and a comparison are made of. One subject is
 * asked for once however many want it; what fails is tried again after a moment, with chance in it, so that two hundred
 * sidecars that lost the same connection do not ask in one breath.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { CONFIG_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { RegistryBus } from './bus.ts';

/** Under way at once. A round trip is a fifth of a millisecond, and the server serves others too. */
export const AT_ONCE = 16;
const TRIES = 5;
const FIRST_PAUSE_MS = 100;
const TIMEOUT_MS = 2_000;

export interface ReadMessage {
  readonly seq: number;
  readonly data: Uint8Array;
}

class Wanted {
  readonly tail: string;
  /** A message older than this is a replica's that lags: it is asked for again. */
  atLeastSeq: number;
  tries = 0;
  timer: Timer | null = null;
  readonly done: Promise<boolean>;
  readonly settle: (isRead: boolean) => void;

  constructor(tail: string, atLeastSeq: number) {
    this.tail = tail;
    this.atLeastSeq = atLeastSeq;
    let settle: (isRead: boolean) => void = () => {};
    this.done = new Promise((resolve) => {
      settle = resolve;
    });
    this.settle = settle;
  }
}

export class Reads {
  readonly #bus: RegistryBus;
  readonly #subjects: Subjects;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #deliver: (tail: string, message: ReadMessage | null) => void;
  readonly #wanted = new Map<string, Wanted>();
  readonly #queue: Wanted[] = [];
  #underway = 0;
  /** Reads made since start. */
  made = 0;
  lastFailure = '';

  /** @param deliver is told of every answer; null = the subject has no message. */
  constructor(
    bus: RegistryBus,
    subjects: Subjects,
    clock: Clock,
    random: Random,
    deliver: (tail: string, message: ReadMessage | null) => void,
  ) {
    this.#bus = bus;
    this.#subjects = subjects;
    this.#clock = clock;
    this.#random = random;
    this.#deliver = deliver;
  }

  /** True when the subject has been read and delivered; false when it could not be, or `abandon` came between. */
  read(tail: string, atLeastSeq = 0): Promise<boolean> {
    const known = this.#wanted.get(tail);
    if (known !== undefined) {
      known.atLeastSeq = Math.max(known.atLeastSeq, atLeastSeq);
      return known.done;
    }
    const wanted = new Wanted(tail, atLeastSeq);
    this.#wanted.set(tail, wanted);
    this.#queue.push(wanted);
    this.#next();
    return wanted.done;
  }

  /** The connection is gone: nothing that is asked for will come. */
  abandon(): void {
    this.#queue.length = 0;
    for (const wanted of this.#wanted.values()) this.#end(wanted, false);
  }

  #next(): void {
    while (this.#underway < AT_ONCE) {
      const wanted = this.#queue.shift();
      if (wanted === undefined) return;
      this.#underway++;
      void this.#ask(wanted);
    }
  }

  async #ask(wanted: Wanted): Promise<void> {
    wanted.tries++;
    this.made++;
    const found = await this.#bus.last(CONFIG_STREAM, this.#subjects.cfg(wanted.tail), TIMEOUT_MS);
    this.#underway--;
    if (this.#wanted.get(wanted.tail) === wanted) this.#answered(wanted, found);
    this.#next();
  }

  #answered(wanted: Wanted, found: Awaited<ReturnType<RegistryBus['last']>>): void {
    if (found !== null && 'failed' in found) {
      this.lastFailure = found.failed;
      this.#again(wanted);
      return;
    }
    this.#deliver(wanted.tail, found);
    if ((found?.seq ?? 0) < wanted.atLeastSeq) this.#again(wanted);
    else this.#end(wanted, true);
  }

  #again(wanted: Wanted): void {
    if (wanted.tries >= TRIES || !this.#bus.connected) {
      this.#end(wanted, false);
      return;
    }
    const pauseMs = FIRST_PAUSE_MS * 2 ** (wanted.tries - 1) * (0.5 + this.#random.next());
    wanted.timer = this.#clock.after(pauseMs, () => {
      wanted.timer = null;
      this.#queue.push(wanted);
      this.#next();
    });
  }

  #end(wanted: Wanted, isRead: boolean): void {
    wanted.timer?.cancel();
    this.#wanted.delete(wanted.tail);
    wanted.settle(isRead);
  }
}
