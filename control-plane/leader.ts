/**
 * Which replica of the control plane leads: a lease in the control stream, taken and renewed by compare-and-set on its sequence.
 * Nobody compares clocks: the holder counts from when it sent its last renewal, all others from when they saw it, each on a clock
 * that cannot jump; the holder's time is the shorter one. That is no proof against a process that is halted between looking and
 * writing: what the leader writes is fenced by the sequence it expects (push/), and a write that fails there ends in `resign`.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Clock, Timer } from '../base/clock.ts';
import type { Stored } from '../base/jetstream.ts';
import type { Bus } from '../base/nats.ts';
import type { BusSubscription } from '../base/nats-listeners.ts';
import { type Random, systemRandom } from '../base/random.ts';
import type { Appended } from '../base/streams.ts';
import { CONTROL_STREAM, Subjects } from '../proto/wire/subjects.ts';
import { LEASE_TIMES, type Lease, type LeaseTimes, leaseBytes, NOBODY, readLease } from './lease.ts';

export type Role = 'leader' | 'follower';

export interface Replica {
  readonly id: string;
  /** Base URL of its API: what the others send operators to. */
  readonly url: string;
}

/** What is needed of the bus. */
export type LeaseStore = Pick<Bus, 'connected' | 'append' | 'lastAtLeader' | 'ensureStream' | 'subscribe'>;

export interface LeadershipOptions {
  readonly random?: Random;
  readonly times?: LeaseTimes;
  /** Copies of the control stream that the NATS cluster keeps; unset = 1 for a new one, an existing one as it is. */
  readonly replicas?: number;
  readonly notice?: (level: 'info' | 'warn' | 'error', words: string) => void;
}

/** After a read or write that failed. */
const RETRY_MS = 200;
/** After a sign that the lease has changed: however many signs come, no more looks than this allows. */
const SOON_MS = 10;
const REQUEST_TIMEOUT_MS = 1_000;
const TOO_LATE = 'could not renew the lease in time';

/** The lease as it was last seen. */
interface Seen {
  readonly lease: Lease;
  readonly seq: number;
  readonly atMs: number;
  /** The stream has nothing any more: it was deleted. That ends nobody's lease. */
  readonly isGone: boolean;
}

export class Leadership {
  readonly #bus: LeaseStore;
  readonly #clock: Clock;
  readonly #subject: string;
  readonly #control: string;
  readonly #me: Replica;
  readonly #times: LeaseTimes;
  readonly #replicas: number | null;
  readonly #incarnation: string;
  readonly #notice: (level: 'info' | 'warn' | 'error', words: string) => void;
  readonly #listeners = new Set<(role: Role) => void>();
  #role: Role = 'follower';
  /** Of our own lease, while we lead. */
  #term = 0;
  /** Sequence of our own lease. */
  #seq = 0;
  #holdsUntilMs = 0;
  /** When the oldest renewal was sent of which it is not known whether it arrived; null = none. */
  #doubtSinceMs: number | null = null;
  #seen: Seen | null = null;
  /** When the last answer came to the question who leads. */
  #lookedAtMs = 0;
  /** After giving it back we let others go first. */
  #standsAsideUntilMs = 0;
  #hasStream = false;
  #isRunning = false;
  #work: Promise<void> | null = null;
  #next: Timer | null = null;
  #nextAtMs = 0;
  #deadline: Timer | null = null;
  #watch: BusSubscription | null = null;
  #lastWords = '';

  constructor(bus: LeaseStore, clock: Clock, env: string, me: Replica, options: LeadershipOptions = {}) {
    const random = options.random ?? systemRandom;
    const subjects = new Subjects(env);
    this.#bus = bus;
    this.#clock = clock;
    this.#subject = subjects.leader;
    this.#control = subjects.control;
    this.#me = me;
    this.#times = options.times ?? LEASE_TIMES;
    this.#incarnation = `${Math.floor(random.next() * 2 ** 48).toString(36)}-${Math.floor(random.next() * 2 ** 48).toString(36)}`;
    this.#replicas = options.replicas ?? null;
    this.#notice = options.notice ?? ((): void => {});
    if (this.#times.holdMs >= this.#times.expiryMs) throw new Error('a lease must be given up before others may take it');
    if (me.id === '') throw new Error('a replica needs a name');
  }

  /** Holds now, by the clock: true also means that nobody else can hold. Look at it right before acting on it. */
  get isLeader(): boolean {
    return this.#role === 'leader' && this.#clock.now() < this.#holdsUntilMs;
  }

  /** Of the lease as far as it is known here; 0 = none was seen. */
  get term(): number {
    return this.#role === 'leader' ? this.#term : (this.#seen?.lease.term ?? 0);
  }

  /** Null when nobody is known to lead. */
  leader(): Replica | null {
    if (this.isLeader) return this.#me;
    const seen = this.#seen;
    if (seen === null || seen.lease.holder === '' || this.#isMine(seen.lease)) return null;
    return this.#isStale(seen) ? null : { id: seen.lease.holder, url: seen.lease.url };
  }

  /** Called at each change of our own role. */
  onChange(listener: (role: Role) => void): { close(): void } {
    this.#listeners.add(listener);
    return { close: () => void this.#listeners.delete(listener) };
  }

  start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    // All that is published there is seen here too, also what was refused: a reason to look, never a fact.
    this.#watch = this.#bus.subscribe(this.#subject, () => this.#lookSoon());
    this.#lookIn(0);
  }

  /** Stops leading at once and gives the lease back, so that another takes it without waiting. We do not for a while. */
  async resign(): Promise<void> {
    if (this.#role !== 'leader') return;
    this.#standsAsideUntilMs = this.#clock.now() + this.#times.expiryMs;
    this.#become('follower', 'resigned');
    // a renewal that is under way moves the sequence
    await this.#work;
    await this.#write({ ...NOBODY, term: this.#term }, this.#seq, REQUEST_TIMEOUT_MS);
  }

  async stop(): Promise<void> {
    this.#isRunning = false;
    this.#next?.cancel();
    this.#watch?.close();
    await this.resign();
    await this.#work;
    this.#next?.cancel();
    this.#deadline?.cancel();
  }

  // ---- one look at a time

  #lookSoon(): void {
    // who leads renews by its own rhythm, and a conflict tells it the rest
    if (this.#role === 'follower' && this.#work === null && this.#nextAtMs > this.#clock.now() + SOON_MS) this.#lookIn(SOON_MS);
  }

  #lookIn(ms: number): void {
    this.#next?.cancel();
    if (!this.#isRunning) return;
    this.#nextAtMs = this.#clock.now() + ms;
    this.#next = this.#clock.after(ms, () => {
      this.#work = this.#look().then((waitMs) => {
        this.#work = null;
        this.#lookIn(waitMs);
      });
    });
  }

  /** Gives the time until the next look. Never rejects. */
  async #look(): Promise<number> {
    return this.#role === 'leader' ? await this.#renew() : await this.#observe();
  }

  // ---- leading

  async #renew(): Promise<number> {
    const sentAtMs = this.#clock.now();
    const leftMs = this.#holdsUntilMs - sentAtMs;
    if (leftMs <= 0) {
      this.#become('follower', TOO_LATE);
      return 0;
    }
    const written = await this.#write(this.#mine(this.#term), this.#seq, Math.min(REQUEST_TIMEOUT_MS, leftMs));
    if ('seq' in written) {
      this.#hold(written.seq, this.#doubtSinceMs ?? sentAtMs);
      return this.#role === 'leader' ? this.#times.renewMs : 0;
    }
    if (this.#role !== 'leader') return 0;
    if ('conflict' in written) return await this.#settleConflict();
    if (written.ambiguous) this.#doubtSinceMs ??= sentAtMs;
    this.#say('warn', `cannot renew the lease: ${written.failed}`);
    return RETRY_MS;
  }

  /** Either a renewal that we had given up for lost did arrive, or somebody else has the lease. */
  async #settleConflict(): Promise<number> {
    const found = await this.#bus.lastAtLeader(CONTROL_STREAM, this.#subject, REQUEST_TIMEOUT_MS);
    if (found !== null && 'seq' in found) {
      const lease = readLease(found.data);
      if (this.#isMine(lease) && lease.term === this.#term && this.#doubtSinceMs !== null) {
        this.#hold(found.seq, this.#doubtSinceMs);
        return 0;
      }
    } else if (found !== null) return RETRY_MS; // no answer; the deadline stands
    this.#become('follower', 'another replica has the lease');
    return 0;
  }

  /** @param sinceMs when what is stored now was sent, at the earliest */
  #hold(seq: number, sinceMs: number): void {
    this.#seq = seq;
    this.#doubtSinceMs = null;
    if (this.#role !== 'leader') return; // resigned meanwhile
    this.#holdsUntilMs = sinceMs + this.#times.holdMs;
    this.#deadline?.cancel();
    // a renewal that hangs must not keep us in office
    this.#deadline = this.#clock.after(this.#holdsUntilMs - this.#clock.now(), () => this.#become('follower', TOO_LATE));
  }

  // ---- following

  async #observe(): Promise<number> {
    if (!this.#hasStream && !(await this.#makeStream())) return RETRY_MS;
    const found = await this.#bus.lastAtLeader(CONTROL_STREAM, this.#subject, REQUEST_TIMEOUT_MS);
    const nowMs = this.#clock.now();
    if (found !== null && 'failed' in found) {
      this.#hasStream = false;
      this.#say('warn', `cannot see who leads: ${found.failed}`);
      return RETRY_MS;
    }
    const seen = this.#saw(found, nowMs);
    // nobody ever led; or it was given back; or it is our own, out of which we fell, and nobody else can have it
    const isFree = seen === null || (!seen.isGone && (seen.lease.holder === '' || this.#isMine(seen.lease)));
    const waitMs = Math.max(isFree ? 0 : seen.atMs + this.#times.expiryMs - nowMs, this.#standsAsideUntilMs - nowMs);
    if (waitMs > 0) return Math.min(waitMs, this.#times.renewMs);
    return await this.#claim((seen?.lease.term ?? 0) + 1, seen?.isGone === false ? seen.seq : 0);
  }

  /** Time begins anew with each change that is seen. */
  #saw(found: Stored | null, nowMs: number): Seen | null {
    const seen = this.#seen;
    // Nothing, then a time of not looking, then nothing again: in between there may have been a stream and a lease.
    const hasLookedAway = nowMs - this.#lookedAtMs > 2 * this.#times.renewMs;
    this.#lookedAtMs = nowMs;
    if (found === null) {
      if (seen !== null && (!seen.isGone || hasLookedAway)) this.#seen = { ...seen, atMs: nowMs, isGone: true };
    } else {
      const lease = readLease(found.data);
      const isSame = seen !== null && !seen.isGone && seen.seq === found.seq && isDeepStrictEqual(lease, seen.lease);
      if (!isSame) this.#seen = { lease, seq: found.seq, atMs: nowMs, isGone: false };
    }
    return this.#seen;
  }

  async #claim(term: number, expectedSeq: number): Promise<number> {
    const sentAtMs = this.#clock.now();
    const written = await this.#write(this.#mine(term), expectedSeq, REQUEST_TIMEOUT_MS);
    if ('seq' in written) {
      this.#term = term;
      this.#seq = written.seq;
      // what came too late is ours and not held: the next look takes it anew
      if (!this.#isRunning || this.#clock.now() >= sentAtMs + this.#times.holdMs) return RETRY_MS;
      this.#holdsUntilMs = sentAtMs + this.#times.holdMs;
      this.#become('leader', `leads, term ${term}`);
      this.#hold(written.seq, sentAtMs);
      return this.#times.renewMs;
    }
    if ('failed' in written) this.#say('warn', `cannot take the lease: ${written.failed}`);
    return RETRY_MS;
  }

  async #makeStream(): Promise<boolean> {
    const ready = await this.#bus.ensureStream({
      name: CONTROL_STREAM,
      subjects: [this.#control],
      storage: 'file',
      maxMsgsPerSubject: 1,
      allowDirect: true,
      ...(this.#replicas === null ? {} : { replicas: this.#replicas }),
    });
    this.#hasStream = 'facts' in ready;
    if ('failed' in ready) this.#say('warn', `no control stream: ${ready.failed}`);
    return this.#hasStream;
  }

  // ---- both

  #write(lease: Lease, expectLastSubjectSeq: number, timeoutMs: number): Promise<Appended> {
    return this.#bus.append(this.#subject, leaseBytes(lease, this.#times), { stream: CONTROL_STREAM, expectLastSubjectSeq, timeoutMs });
  }

  #mine(term: number): Lease {
    return { holder: this.#me.id, incarnation: this.#incarnation, term, url: this.#me.url };
  }

  #isMine(lease: Lease): boolean {
    return lease.incarnation === this.#incarnation && lease.holder === this.#me.id;
  }

  #isStale(seen: Seen): boolean {
    return this.#clock.now() - seen.atMs > this.#times.expiryMs;
  }

  #become(role: Role, why: string): void {
    if (role === this.#role) return;
    this.#role = role;
    // what a follower goes on from
    if (role === 'follower') this.#seen = { lease: this.#mine(this.#term), seq: this.#seq, atMs: this.#clock.now(), isGone: false };
    this.#deadline?.cancel();
    this.#say('info', `${this.#me.id}: ${role === 'leader' ? why : `no longer leads: ${why}`}`);
    for (const listener of this.#listeners) {
      try {
        listener(role);
      } catch (error) {
        this.#say(
          'error',
          `who listens to the change of leader threw: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`,
        );
      }
    }
  }

  /** Once for a run of equal words; what the connection suffers, the bus itself tells. */
  #say(level: 'info' | 'warn' | 'error', words: string): void {
    if (level === 'warn' && !this.#bus.connected) return;
    if (words !== this.#lastWords) this.#notice(level, words);
    this.#lastWords = words;
  }
}
