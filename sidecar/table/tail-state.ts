/**
 * The newest state of one tail that the registry pushes, as this sidecar has it: never an older one within an epoch, never
 * one that cannot be read. What was in force stays until something better comes. How messages get here is `tails.ts`.
 */
import { judge, NEVER } from './chain.ts';
import type { Opened, Unreadable } from './readable.ts';

/** What is pushed, to look at and to follow. */
export interface StateView<T> {
  /** Never null: before anything is known, an empty state. */
  current(): T;
  /** It was pushed, read or kept on disk; false = `current` is only the empty one. */
  readonly isKnown: boolean;
  /** Called after each change from now on. */
  onChange(listener: (state: T) => void): { close(): void };
}

/** `other epoch`: of a registry that is not the one held; whether it is newer, only the stream can say. */
export type TailJudgement = 'taken' | 'old' | 'refused' | 'other epoch';

/** What following a tail takes, whatever its state is made of. */
export interface FollowedTail {
  readonly tail: string;
  readonly epoch: string;
  readonly seq: number;
  readonly problem: string;
  take(seq: number, opened: Opened, isStored: boolean): TailJudgement;
  absent(): void;
}

export class TailState<T> implements StateView<T>, FollowedTail {
  readonly tail: string;
  /** Why a state cannot be used; null = it can. To be set by whoever uses it, before the start. */
  tryOut: (state: T) => string | null = () => null;
  /** What was wrong with the message refused last; '' = the newest one is in force. */
  problem = '';
  readonly #read: (opened: Opened) => T | Unreadable;
  readonly #listeners = new Set<(state: T) => void>();
  #state: T;
  #epoch = '';
  /** Newest one that was looked at, usable or not. */
  #seq = NEVER;
  #isKnown = false;

  constructor(tail: string, empty: T, read: (opened: Opened) => T | Unreadable) {
    this.tail = tail;
    this.#state = empty;
    this.#read = read;
  }

  get isKnown(): boolean {
    return this.#isKnown;
  }

  get epoch(): string {
    return this.#epoch;
  }

  get seq(): number {
    return this.#seq;
  }

  current(): T {
    return this.#state;
  }

  onChange(listener: (state: T) => void): { close(): void } {
    this.#listeners.add(listener);
    return { close: () => void this.#listeners.delete(listener) };
  }

  /** @param isStored it was read from the stream itself, which decides what epoch counts. */
  take(seq: number, opened: Opened, isStored: boolean): TailJudgement {
    if (opened.epoch !== this.#epoch && !isStored) return 'other epoch';
    const held = opened.epoch === this.#epoch ? this.#seq : NEVER;
    if (judge(held, seq, null) === 'old') return 'old';
    this.#epoch = opened.epoch;
    this.#seq = seq;
    const read = this.#read(opened);
    this.problem = isUnreadable(read) ? read.problem : (this.tryOut(read) ?? '');
    if (isUnreadable(read) || this.problem !== '') return 'refused';
    this.#state = read;
    this.#isKnown = true;
    for (const listener of this.#listeners) listener(read);
    return 'taken';
  }

  /** The stream has nothing under this tail. What is held stays: a registry that begins anew may not have got to it yet. */
  absent(): void {
    this.#isKnown = true;
  }
}

function isUnreadable(read: unknown): read is Unreadable {
  return typeof read === 'object' && read !== null && 'problem' in read;
}
