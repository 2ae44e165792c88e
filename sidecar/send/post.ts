/**
 * Takes a message to where it is durable: the stream, or the disk while the stream cannot be reached or stands still. What is
 * uncertain (no answer, a broken connection) goes to the disk with the same id, which the stream does not store twice; where there is
 * no disk it is sent again with that id for as long as a submission waits, and then given up. Exactly one of these is told, once.
 *
 * While messages wait on the disk new ones go behind them: the order in which an agent sent them is kept.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import type { Appended } from '../../base/pub-ack.ts';
import type { StreamPublisher } from '../../base/stream-publisher.ts';
import type { Outbox } from './outbox-door.ts';
import { isDenied, isTooLarge } from './unsendable.ts';

export type Posted =
  | { readonly kind: 'stream'; readonly seq: number }
  | { readonly kind: 'local-disk' }
  /** The stream, or the disk, has no room. */
  | { readonly kind: 'full'; readonly why: string }
  /** `mayBeStored`: a try is in doubt. */
  | { readonly kind: 'unavailable'; readonly why: string; readonly mayBeStored: boolean };

export interface PostParts {
  readonly bus: Pick<Bus, 'connected' | 'onState' | 'state'>;
  readonly stream: Pick<StreamPublisher, 'send'>;
  readonly outbox: () => Outbox;
  readonly clock: Clock;
  /** All tries together. */
  readonly waitMs: number;
  /** Messages on their way at once; each is held in memory. */
  readonly maxOpen: number;
}

const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 1_000;
const TOO_MANY: Posted = Object.freeze({ kind: 'full', why: 'too many submissions wait for the stream (messages.in_flight)' });
const ON_DISK: Posted = Object.freeze({ kind: 'local-disk' });

export class Post {
  readonly #parts: PostParts;
  readonly #listener: { close(): void };
  /** Those that wait for a connection or for their next try. */
  #waiting = new Set<Parcel>();
  #open = 0;

  constructor(parts: PostParts) {
    this.#parts = parts;
    this.#listener = parts.bus.onState(({ connected }) => {
      if (connected) for (const parcel of this.#takeWaiting()) parcel.again();
    });
  }

  /** @param msgId names the message for good: a repeat with it is not stored twice. */
  put(subject: string, data: Buffer, msgId: string): Promise<Posted> {
    const { bus } = this.#parts;
    const outbox = this.#parts.outbox();
    if (outbox.isThere && (outbox.pending > 0 || !bus.connected)) return this.#toDisk(outbox, subject, data, msgId, bus.state.why, false);
    if (this.#open >= this.#parts.maxOpen) return Promise.resolve(TOO_MANY);
    this.#open++;
    return new Promise((told) => {
      new Parcel(this, subject, data, msgId, told).begin();
    });
  }

  /** Messages on their way. */
  get open(): number {
    return this.#open;
  }

  close(): void {
    this.#listener.close();
    for (const parcel of this.#takeWaiting()) parcel.giveUp('this sidecar is stopping');
  }

  /** Those that have to wait again come into another set. */
  #takeWaiting(): ReadonlySet<Parcel> {
    const waiting = this.#waiting;
    this.#waiting = new Set();
    return waiting;
  }

  // ---- for parcels

  get parts(): PostParts {
    return this.#parts;
  }

  waits(parcel: Parcel): void {
    this.#waiting.add(parcel);
  }

  ended(): void {
    this.#open--;
  }

  goesOn(parcel: Parcel): void {
    this.#waiting.delete(parcel);
  }

  async toDisk(parcel: Parcel, why: string, mayBeStored: boolean): Promise<Posted> {
    const outbox = this.#parts.outbox();
    if (!outbox.isThere) return { kind: 'unavailable', why, mayBeStored };
    return await this.#toDisk(outbox, parcel.subject, parcel.data, parcel.msgId, why, mayBeStored);
  }

  async #toDisk(outbox: Outbox, subject: string, data: Buffer, msgId: string, why: string, mayBeStored: boolean): Promise<Posted> {
    const kept = await outbox.put(subject, data, msgId);
    if (kept === 'stored') return ON_DISK;
    const cannot = why === '' ? '' : ` (${why})`;
    if (kept === 'full' && !mayBeStored) return { kind: 'full', why: `the outbox on this machine's disk is full${cannot}` };
    return { kind: 'unavailable', why: `it could not be written to this machine's disk either${cannot}`, mayBeStored };
  }
}

/** One message on its way. */
class Parcel {
  readonly subject: string;
  readonly data: Buffer;
  readonly msgId: string;
  readonly #post: Post;
  readonly #told: (posted: Posted | Promise<Posted>) => void;
  readonly #heard = (outcome: Appended): void => this.#answered(outcome);
  #startedAt = 0;
  #pauseMs = FIRST_PAUSE_MS;
  #timer: Timer | null = null;
  #mayBeStored = false;
  #isUnderWay = false;
  #isOver = false;

  constructor(post: Post, subject: string, data: Buffer, msgId: string, told: (posted: Posted | Promise<Posted>) => void) {
    this.#post = post;
    this.subject = subject;
    this.data = data;
    this.msgId = msgId;
    this.#told = told;
  }

  begin(): void {
    this.#startedAt = this.#post.parts.clock.now();
    this.#try();
  }

  /** The connection is there again. */
  again(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#post.goesOn(this);
    this.#try();
  }

  giveUp(why: string): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#end(this.#post.toDisk(this, why, this.#mayBeStored));
  }

  #try(): void {
    if (this.#isOver || this.#isUnderWay) return;
    if (this.#post.parts.stream.send(this.subject, this.data, this, this.#heard)) this.#isUnderWay = true;
    else this.#later(this.#post.parts.bus.connected ? 'too many messages wait for the stream' : this.#post.parts.bus.state.why);
  }

  #answered(outcome: Appended): void {
    this.#isUnderWay = false;
    if (this.#isOver) return;
    if ('seq' in outcome) {
      this.#end({ kind: 'stream', seq: outcome.seq });
      return;
    }
    if ('conflict' in outcome) {
      this.#end({ kind: 'unavailable', why: 'the stream expects another sequence', mayBeStored: false });
      return;
    }
    const { failed, ambiguous, full } = outcome;
    if (ambiguous) {
      this.#mayBeStored = true;
      // NATS stands still, or the connection broke: whoever sends need not wait for what becomes of that.
      if (this.#post.parts.outbox().isThere) {
        void this.#toDisk(failed);
        return;
      }
    }
    if (full === true && !this.#mayBeStored) this.#end({ kind: 'full', why: failed });
    else if (!ambiguous && !this.#mayBeStored && (isDenied(failed) || isTooLarge(failed)))
      this.#end({ kind: 'unavailable', why: failed, mayBeStored: false });
    else this.#later(failed);
  }

  /** A disk that does not take it is no reason to give up: the stream may answer yet. */
  async #toDisk(why: string): Promise<void> {
    const posted = await this.#post.toDisk(this, why, true);
    if (this.#isOver) return;
    if (posted.kind === 'local-disk') this.#end(posted);
    else this.#later(why);
  }

  /** Tries again in a while, as long as there is time; at the end the disk takes it. */
  #later(why: string): void {
    const { clock, waitMs, bus } = this.#post.parts;
    const outbox = this.#post.parts.outbox();
    const leftMs = this.#startedAt + waitMs - clock.now();
    // Nobody has to wait for a connection where there is a disk.
    if (leftMs <= 0 || (outbox.isThere && !bus.connected)) {
      this.#end(this.#post.toDisk(this, why, this.#mayBeStored));
      return;
    }
    this.#post.waits(this);
    this.#timer = clock.after(Math.min(leftMs, this.#pauseMs), () => this.again());
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 2);
  }

  #end(posted: Posted | Promise<Posted>): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#post.goesOn(this);
    this.#post.ended();
    this.#told(posted);
  }
}
