/**
 * Comparing everything in scope with what the stream holds: at the join, after a break of the connection, when a loss
 * cannot be made out in detail, and when the registry has begun anew. Tried again, with pauses that grow and have chance in
 * them, until it is done or something newer makes it void. What is to be done with the result is decided elsewhere.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { CONFIG_STREAM, type Subjects, Tail } from '../../proto/wire/subjects.ts';
import type { RegistryBus } from './bus.ts';
import { COVERED_MS } from './chain.ts';
import type { Copy } from './copy.ts';
import type { Follower } from './follower.ts';
import { Held } from './held.ts';
import { open } from './readable.ts';
import type { Reads } from './reads.ts';

/** Two hundred sidecars that see the same loss spread their reading over this. */
const SPREAD_MS = 500;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 5_000;
/** Where a loss is only suspected, everything is compared not more often than this. */
const COMPARE_EVERY_MS = 10_000;

export interface ComparisonParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly copy: Copy;
  readonly reads: Reads;
  readonly follower: Follower;
  /** Last sequence of the newest beacon of an epoch; `NEVER` = none was heard. */
  lastSeqOf(epoch: string): number;
  /** Something of a new epoch is about to be read for the first time. */
  onNewEpoch(): void;
  /** Everything in scope has been read, and is whole up to a sequence. */
  onDone(target: Held, through: number): void;
  /** An attempt is over; '' = it has reached its end. */
  onAttempt(trouble: string): void;
  /** The registry has no scope for this sidecar. */
  onUnknownHere(epoch: string): void;
}

/** `void`: a newer run has taken its place. */
type Outcome = 'done' | 'not yet' | 'void';

export class Comparison {
  readonly #parts: ComparisonParts;
  /** Grows with every run: an older run that wakes up sees that it is over. */
  #turn = 0;
  #phase: 'idle' | 'reading' | 'waiting' = 'idle';
  #isAgainWanted = false;
  #comparedAt = Number.NEGATIVE_INFINITY;
  #plan: Timer | null = null;
  #wake: (() => void) | null = null;
  #trouble = '';

  constructor(parts: ComparisonParts) {
    this.#parts = parts;
  }

  get isIdle(): boolean {
    return this.#phase === 'idle';
  }

  /** One is planned and has not begun. */
  get isPlanned(): boolean {
    return this.#plan !== null;
  }

  /** The last one is not so long ago that a mere suspicion is worth another one. */
  get isRecent(): boolean {
    return this.#parts.clock.now() - this.#comparedAt < COMPARE_EVERY_MS;
  }

  /** Identifies what is under way: another number, and it has been made void. */
  get turn(): number {
    return this.#turn;
  }

  /** Begins after a while. */
  plan(waitMs: number): void {
    this.#plan?.cancel();
    this.#plan = this.#parts.clock.after(waitMs, () => {
      this.#plan = null;
      void this.run(true);
    });
  }

  planSoon(): void {
    this.plan(this.#parts.random.next() * SPREAD_MS);
  }

  /** What was planned is not needed any more. */
  cancelPlan(): void {
    this.#plan?.cancel();
    this.#plan = null;
  }

  /** Ends what is under way: its connection is gone. */
  interrupt(): void {
    this.#turn++;
    this.#phase = 'idle';
    this.#isAgainWanted = false;
    this.cancelPlan();
    this.wake();
    this.#parts.reads.abandon();
  }

  /** What a pause is waiting for has come. */
  wake(): void {
    this.#wake?.();
  }

  /** Another epoch was seen: looked into now, or as soon as what is being read is over. */
  doubtEpoch(isConfirmed: boolean): void {
    if (this.#phase === 'reading') this.#isAgainWanted = true;
    else void this.run(!isConfirmed);
  }

  /** @param isWhole false = only the epoch is in doubt; nothing is read when it is the one that is held. */
  async run(isWhole: boolean): Promise<void> {
    const { bus, random } = this.#parts;
    if (!bus.connected) return;
    this.cancelPlan();
    const turn = ++this.#turn;
    this.wake();
    let isEverything = isWhole;
    for (let tries = 0; ; tries++) {
      this.#phase = 'reading';
      this.#isAgainWanted = false;
      this.#trouble = '';
      const outcome = await this.#attempt(turn, isEverything);
      if (outcome === 'void' || turn !== this.#turn) return;
      this.#parts.onAttempt(this.#trouble);
      if (outcome === 'done' && !this.#isAgainWanted) break;
      this.#phase = 'waiting';
      // Everything has been read; what came in between was of another epoch, and that alone is in doubt.
      if (outcome === 'done') isEverything = false;
      else await this.#pause(Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(tries, 8)) * (0.5 + random.next()));
      if (turn !== this.#turn) return;
    }
    this.#phase = 'idle';
  }

  async #attempt(turn: number, isWhole: boolean): Promise<Outcome> {
    const { copy, clock } = this.#parts;
    const startedAt = clock.now();
    const epoch = await this.#readEpoch();
    if (turn !== this.#turn) return 'void';
    if (epoch === null) return 'not yet';
    const isSame = epoch === copy.held.epoch;
    if (isSame && !isWhole) return 'done';
    const told = this.#parts.lastSeqOf(epoch);
    const target = this.#targetOf(epoch);
    const isRead = await this.#readAll(target, turn);
    if (turn !== this.#turn) return 'void';
    if (!isRead) {
      this.#trouble =
        target.scope === null
          ? 'the registry has no scope for this sidecar yet'
          : `not everything could be read from the registry (${this.#parts.reads.lastFailure})`;
      if (target.scope === null) this.#parts.onUnknownHere(epoch);
      return 'not yet';
    }
    copy.counters.comparisons++;
    copy.isLossSuspected = false;
    this.#comparedAt = clock.now();
    // What was lost while this read is in the next beacon's list, unless it took long.
    const isQuick = this.#comparedAt - startedAt < COVERED_MS;
    this.#parts.onDone(target, isQuick ? Math.max(told, target.highestSeq) : told);
    return 'done';
  }

  async #readEpoch(): Promise<string | null> {
    const found = await this.#parts.bus.last(CONFIG_STREAM, this.#parts.subjects.cfg(Tail.epoch));
    if (found === null) {
      this.#trouble = 'the registry is empty: no control plane has run here yet';
      return null;
    }
    if ('failed' in found) {
      this.#trouble = `the registry cannot be read (${found.failed})`;
      return null;
    }
    const opened = open(found.data);
    if ('problem' in opened) {
      this.#trouble = `the registry's epoch cannot be read: ${opened.problem}`;
      return null;
    }
    return opened.epoch;
  }

  /** Where what is read belongs. What was read of an epoch that is not the newest is void. */
  #targetOf(epoch: string): Held {
    const { copy } = this.#parts;
    if (epoch === copy.held.epoch) {
      copy.next = null;
      return copy.held;
    }
    if (copy.next?.epoch !== epoch) {
      copy.next = new Held(epoch);
      this.#parts.onNewEpoch();
    }
    return copy.next;
  }

  /** Reads the scope and everything in it, and again what the scope has gained meanwhile. */
  async #readAll(target: Held, turn: number): Promise<boolean> {
    const { reads, copy, follower } = this.#parts;
    if (!(await reads.read(copy.scopeTail)) || turn !== this.#turn || target.scope === null) return false;
    let tails = [...target.scope.state].flatMap((name) => target.tails(name));
    while (tails.length > 0) {
      // Before it is read, so that nothing falls between the two.
      for (const name of target.scope.state) follower.followCapability(name, target.tails(name).length > 1);
      const read = await Promise.all(tails.map((tail) => reads.read(tail)));
      if (turn !== this.#turn || read.includes(false)) return false;
      tails = [...target.scope.state].flatMap((name) => target.missing(name));
    }
    return true;
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        timer.cancel();
        this.#wake = null;
        resolve();
      };
      const timer = this.#parts.clock.after(ms, end);
      this.#wake = end;
    });
  }
}
