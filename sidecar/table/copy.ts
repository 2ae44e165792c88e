/**
 * The copy of the registry that one sidecar has: what is held in the epoch in force, what is being read of a newer one, and
 * how far it is known that nothing is missing. Shared by those who fill it (`intake.ts`), compare it (`comparison.ts`), hold
 * it against beacons (`beacon-watch.ts`) and put a new epoch into its place (`succession.ts`); it decides nothing itself.
 */
import { NEVER } from './chain.ts';
import { Held } from './held.ts';
import { capabilityTail } from './scope.ts';

export interface SyncCounters {
  /** Messages that were pushed and taken. */
  readonly deltas: number;
  /** Messages that showed that one before them was lost. */
  readonly gaps: number;
  /** Subjects that were read again because a beacon named something newer. */
  readonly repairs: number;
  /** Comparisons of everything in scope. */
  readonly comparisons: number;
  /** Times that the registry had begun anew. */
  readonly epochs: number;
  readonly reconnects: number;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

export class Copy {
  readonly scopeTail: string;
  held = new Held('');
  /** The state of a new epoch while it is being read, or held back. */
  next: Held | null = null;
  /** Everything in scope up to this sequence is held, as far as the last comparison and the beacons since can tell. */
  seenThrough = NEVER;
  /** What beacons have named up to this sequence has been looked at, and repaired where it had to be. */
  listedThrough = NEVER;
  /** Something was lost, and what else may be missing is not known. */
  isLossSuspected = false;
  readonly counters: Mutable<SyncCounters> = { deltas: 0, gaps: 0, repairs: 0, comparisons: 0, epochs: 0, reconnects: 0 };

  constructor(scopeTail: string) {
    this.scopeTail = scopeTail;
  }

  /** Nothing was ever held. */
  get isEmpty(): boolean {
    return this.held.epoch === '';
  }

  /** Where a message of an epoch belongs; null = it is of neither. */
  of(epoch: string): Held | null {
    if (epoch === this.held.epoch) return this.held;
    return epoch === this.next?.epoch ? this.next : null;
  }

  /** What is being read now. */
  get read(): Held {
    return this.next ?? this.held;
  }

  /** The new epoch takes the place of the one in force. */
  succeed(held: Held): void {
    this.held = held;
    this.next = null;
    this.seenThrough = NEVER;
    this.listedThrough = NEVER;
  }

  isMine(tail: string): boolean {
    if (tail === this.scopeTail) return true;
    const at = capabilityTail(tail);
    return at !== null && this.held.scope?.state.has(at.name) === true;
  }
}
