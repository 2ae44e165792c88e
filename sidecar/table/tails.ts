/**
 * Keeps single tails of the registry as new as the stream has them, beside the table: subscribed to, and repaired as the
 * table is: by the beacon's list of recent changes, by reading again where that list does not reach back far enough, and
 * after every break of the connection. When the registry has begun anew, the stream itself is asked; what was held stays
 * in force until it has something. The last good states are kept on disk.
 */
import { type BusMessage, republished } from '../../base/bus-message.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { CONFIG_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { RegistryBus } from './bus.ts';
import { type BeaconView, covers, NEVER } from './chain.ts';
import { open } from './readable.ts';
import { type ReadMessage, Reads } from './reads.ts';
import type { FollowedTail } from './tail-state.ts';
import type { TailsFile } from './tails-file.ts';

export interface TailsParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  /** null = nothing is kept on disk. */
  readonly file: TailsFile | null;
  /** A message that cannot be used, to be told to people. */
  onRefused(tail: string, seq: number, why: string): void;
  /** The newest message of a tail is in force. */
  onTaken(tail: string): void;
}

/** Two hundred sidecars that see the same break spread their reading over this. */
const SPREAD_MS = 500;

export class Tails {
  readonly #parts: TailsParts;
  readonly #states = new Map<string, FollowedTail>();
  readonly #reads: Reads;
  readonly #closing: { close(): void }[] = [];
  #planned: Timer | null = null;
  /** Of the last beacon; '' = none was heard. */
  #epoch = '';
  /** Last sequence of the last beacon. */
  #lastSeq = NEVER;
  #beaconAt = Number.NEGATIVE_INFINITY;
  /** Everything up to here is held, within `#seenEpoch`. */
  #seenThrough = NEVER;
  #seenEpoch = '';
  #hasConnected = false;

  constructor(parts: TailsParts, states: readonly FollowedTail[]) {
    const { bus, subjects, clock, random } = parts;
    this.#parts = parts;
    for (const state of states) this.#states.set(state.tail, state);
    this.#reads = new Reads(bus, subjects, clock, random, (tail, message) => this.#read(tail, message));
  }

  /** Takes what is on disk, and goes on from there as soon as there is a connection. */
  start(): void {
    const { bus, subjects, file } = this.#parts;
    for (const { tail, seq, data } of file?.load() ?? []) {
      const opened = open(data);
      if (!('problem' in opened)) this.#states.get(tail)?.take(seq, opened, true);
    }
    for (const tail of this.#states.keys())
      this.#closing.push(bus.subscribe(subjects.pushed(tail), (message) => this.#pushed(tail, message), { pushed: true }));
    this.#closing.push(bus.onState(({ connected }) => this.#connection(connected)));
    this.#connection(bus.connected);
  }

  /** Resolves when the newest states are on disk. */
  async stop(): Promise<void> {
    this.#planned?.cancel();
    for (const each of this.#closing) each.close();
    this.#closing.length = 0;
    this.#reads.abandon();
    await this.#parts.file?.flush();
  }

  #connection(connected: boolean): void {
    this.#planned?.cancel();
    this.#planned = null;
    this.#reads.abandon();
    // While it was away anything may have been.
    this.#seenEpoch = '';
    if (!connected) return;
    this.#plan(this.#hasConnected ? this.#parts.random.next() * SPREAD_MS : 0);
    this.#hasConnected = true;
  }

  #plan(waitMs: number): void {
    this.#planned ??= this.#parts.clock.after(waitMs, () => void this.#readAll());
  }

  /** Stays planned until it is over, so that a beacon does not plan another one beside it. */
  async #readAll(): Promise<void> {
    const planned = this.#planned;
    const epoch = this.#epoch;
    const lastSeq = this.#lastSeq;
    const read = await Promise.all([...this.#states.keys()].map((tail) => this.#reads.read(tail)));
    if (this.#planned !== planned) return;
    this.#planned = null;
    if (read.includes(false)) return;
    this.#seenEpoch = epoch;
    this.#seenThrough = lastSeq;
  }

  /** The leader's word of each second; heard once for the table and for this. */
  beacon(beacon: BeaconView & { readonly epoch: string }): void {
    const now = this.#parts.clock.now();
    const pauseMs = now - this.#beaconAt;
    this.#beaconAt = now;
    this.#epoch = beacon.epoch;
    this.#lastSeq = beacon.lastSeq;
    if (beacon.epoch !== this.#seenEpoch || !covers(beacon, this.#seenThrough, pauseMs)) {
      this.#plan(this.#parts.random.next() * SPREAD_MS);
      return;
    }
    let isBehind = false;
    for (const [tail, seq] of beacon.recent) {
      const state = this.#states.get(tail);
      if (state === undefined || (state.epoch === beacon.epoch && state.seq >= seq)) continue;
      isBehind = true;
      void this.#reads.read(tail, seq);
    }
    if (!isBehind) this.#seenThrough = beacon.lastSeq;
  }

  #pushed(tail: string, message: BusMessage): void {
    const stored = republished(message);
    if (stored === null || stored.stream !== CONFIG_STREAM) {
      this.#parts.onRefused(tail, NEVER, 'it was not published by the registry: it has no sequence');
      return;
    }
    this.#take(tail, stored.seq, stored.data, false);
  }

  /** @param message null = the subject has none. */
  #read(tail: string, message: ReadMessage | null): void {
    if (message === null) this.#states.get(tail)?.absent();
    else this.#take(tail, message.seq, message.data, true);
  }

  #take(tail: string, seq: number, data: Uint8Array, isStored: boolean): void {
    const state = this.#states.get(tail);
    if (state === undefined) return;
    const opened = open(data);
    if ('problem' in opened) {
      this.#parts.onRefused(tail, seq, opened.problem);
      return;
    }
    switch (state.take(seq, opened, isStored)) {
      case 'taken':
        this.#parts.file?.put(tail, seq, data);
        this.#parts.onTaken(tail);
        return;
      case 'refused':
        this.#parts.onRefused(tail, seq, state.problem);
        return;
      case 'other epoch':
        void this.#reads.read(tail, seq);
        return;
      case 'old':
    }
  }
}
