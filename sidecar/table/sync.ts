/**
 * The table as the registry pushes it. One message holds the whole state of one capability; a sidecar reads those of its
 * scope once, and from then on hears of every change by plain subscriptions: it makes no consumer on the server, so that
 * nothing is left behind however often its connection breaks.
 *
 * What may be lost is found out: by the sequence of the message before on the same subject, by the beacon's list of recent
 * changes, and after every break of the connection, where loss is assumed until the contrary is shown. Repairing is reading
 * again. Within one epoch nothing goes back to an older sequence; when the registry begins anew, what is held stays in
 * force until the new state is complete and believed (`guard.ts`).
 *
 * This file decides when to read, compare and install. What a message means is said in `held.ts`, what a capability is in
 * the end in `parts.ts`, and how fresh all of it is in `standing.ts`.
 */
import type { BusMessage } from '../../base/bus-message.ts';
import { republished } from '../../base/bus-message.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Random } from '../../base/random.ts';
import type { ProviderRecord } from '../../proto/language/types.ts';
import { shareOf } from '../../proto/language/share.ts';
import { CONFIG_STREAM, type Subjects, Tail } from '../../proto/wire/subjects.ts';
import type { RegistryBus } from './bus.ts';
import { type BeaconView, COVERED_MS, covers, NEVER } from './chain.ts';
import type { Standpoint } from './compile.ts';
import { Follower } from './follower.ts';
import { absentButAnswering, isSuspiciouslySmall, providersIn } from './guard.ts';
import { Held, type Taken, type TryOut } from './held.ts';
import type { HeldFile } from './held-file.ts';
import { Installer } from './installer.ts';
import type { InstalledTable } from './installed.ts';
import type { OwnAgents } from './own-agents.ts';
import { open, readBeacon } from './readable.ts';
import { type ReadMessage, Reads } from './reads.ts';
import { capabilityTail, scopeChange } from './scope.ts';
import { Standing } from './standing.ts';
import { tryOutFor } from './try-out.ts';

export interface SyncOptions {
  readonly here: Standpoint;
  /** Without a beacon for so long the table counts as stale. */
  readonly staleAfterMs: number;
  /** For so long an absent provider that answers is kept when the registry begins anew. */
  readonly leaseMs: number;
}

export interface SyncParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly table: InstalledTable;
  readonly own: OwnAgents;
  /** null = nothing is kept on disk. */
  readonly file: HeldFile | null;
  /** Why this sidecar cannot reach a provider that it would have to reach itself; null = it can. */
  readonly unreachable: (record: ProviderRecord) => string | null;
}

/** After a break: how long to wait for a beacon, which may show that nothing was missed, before everything is compared. */
const BEACON_WAIT_MS = 1_500;
/** Two hundred sidecars that see the same loss spread their reading over this. */
const SPREAD_MS = 500;
const FIRST_PAUSE_MS = 200;
const MAX_PAUSE_MS = 5_000;
/** A gap shows that something was lost; everything is compared, but not more often than this. */
const COMPARE_EVERY_MS = 10_000;
/** Beacons that confirm a suspiciously small registry, and how far apart they must be to count as two. */
const CONFIRMATIONS = 2;
const CONFIRM_APART_MS = 900;

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

/** A state of a new epoch that waits to be believed. */
interface HeldBack {
  confirmations: number;
  countedAt: number;
}

/** What the table's reading finds out that concerns the announcements. */
export type LeaderNews =
  /** Heard after a silence. */
  | 'back'
  | 'new epoch'
  /** There is no scope for this sidecar. */
  | 'unknown here';

export class TableSync {
  readonly standing: Standing;
  readonly counters: Readonly<SyncCounters>;
  onLeader: (why: LeaderNews, epoch: string) => void = () => {};
  /** Something changed that a report would say. */
  onChange: () => void = () => {};
  readonly #parts: SyncParts;
  readonly #options: SyncOptions;
  readonly #tryOut: TryOut;
  readonly #reads: Reads;
  readonly #follower: Follower;
  readonly #installer: Installer;
  readonly #count: Mutable<SyncCounters> = { deltas: 0, gaps: 0, repairs: 0, comparisons: 0, epochs: 0, reconnects: 0 };
  readonly #scopeTail: string;
  #held = new Held('');
  /** The state of a new epoch while it is being read, or held back. */
  #next: Held | null = null;
  #heldBack: HeldBack | null = null;
  /** Everything in scope up to this sequence is held, as far as the last comparison and the beacons since can tell. */
  #seenThrough = NEVER;
  /** What beacons have named up to this sequence has been looked at, and repaired where it had to be. */
  #listedThrough = NEVER;
  #lastBeacon: (BeaconView & { readonly epoch: string }) | null = null;
  /** Grows with every run of the comparison: an older run that wakes up sees that it is over. */
  #turn = 0;
  #phase: 'idle' | 'reading' | 'waiting' = 'idle';
  #isAgainWanted = false;
  #isLossSuspected = false;
  #comparedAt = Number.NEGATIVE_INFINITY;
  #timer: Timer | null = null;
  #wake: (() => void) | null = null;
  #hasConnected = false;
  #isStopped = false;
  #state: { close(): void } | null = null;

  constructor(parts: SyncParts, options: SyncOptions) {
    this.#parts = parts;
    this.#options = options;
    this.counters = this.#count;
    this.standing = new Standing(parts.clock, options.staleAfterMs);
    this.#tryOut = tryOutFor(parts.clock, options.here);
    this.#scopeTail = Tail.scope(options.here.name);
    this.#reads = new Reads(parts.bus, parts.subjects, parts.clock, parts.random, (tail, message) => this.#wasRead(tail, message));
    this.#follower = new Follower(parts.bus, parts.subjects, (tail, message) => this.#pushed(tail, message));
    this.#installer = new Installer({
      clock: parts.clock,
      table: parts.table,
      own: parts.own,
      share: shareOf(options.here.name),
      unreachable: parts.unreachable,
      held: () => this.#held,
      onInstalled: () => this.#installed(),
    });
    parts.own.onChange = (names) => this.#installer.touch(names);
  }

  get epoch(): string {
    return this.#held.epoch;
  }

  get appliedSeq(): number {
    return this.#held.highestSeq;
  }

  get scopeSize(): number {
    return this.#held.scope?.state.size ?? 0;
  }

  /** The operators' document in use here. */
  get document(): { readonly version: number; readonly staged: boolean } {
    return this.#installer.document();
  }

  /** Providers that are kept although a registry that has begun anew does not name them. */
  get kept(): readonly { readonly capability: string; readonly provider: string }[] {
    return this.#installer.kept();
  }

  get unusable(): readonly { readonly provider: string; readonly why: string }[] {
    return this.#installer.unusable();
  }

  get confirmed(): boolean {
    return this.standing.confirmed;
  }

  /** Takes the copy on disk, if there is one, and goes on from there as soon as there is a connection. */
  start(): void {
    const { bus } = this.#parts;
    this.#loadCopy();
    this.#follower.always(this.#parts.subjects.beacon, (message) => this.#beacon(message));
    this.#follower.follow(this.#scopeTail);
    this.#state = bus.onState((state) => this.#connection(state.connected, state.why));
    this.#connection(bus.connected, bus.connected ? '' : 'not connected yet');
  }

  /** Resolves when the newest state is on disk. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#interrupt();
    this.#state?.close();
    this.#follower.stop();
    this.#installer.stop();
    this.#timer?.cancel();
    await this.#parts.file?.flush();
  }

  /** To be called now and then: what depends on time alone. */
  tick(): void {
    this.#tellStanding();
  }

  #loadCopy(): void {
    const copy = this.#parts.file?.load(this.#tryOut) ?? null;
    if (copy === null) return;
    this.#held = copy.held;
    for (const name of copy.held.scope?.state ?? []) this.#followCapability(name);
    this.#installer.source = 'last good copy';
    this.#installer.installAll();
    this.#parts.log.info(
      { capabilities: this.scopeSize, seq: this.appliedSeq, savedAt: copy.savedAt },
      'started from the last good copy of the registry',
    );
  }

  // ---- the connection

  #connection(connected: boolean, why: string): void {
    const { standing } = this;
    const wasConnected = standing.connected;
    standing.why = why;
    if (connected === wasConnected) {
      this.#tellStanding();
      return;
    }
    standing.connected = connected;
    standing.confirmed = false;
    standing.trouble = '';
    this.#interrupt();
    if (connected) this.#connected();
    this.#tellStanding();
  }

  #connected(): void {
    const isFirst = !this.#hasConnected;
    this.#hasConnected = true;
    if (!isFirst) this.#count.reconnects++;
    // Who holds nothing asks at once; who holds something waits a moment for a beacon that may spare it the asking.
    const waitMs = this.#held.epoch === '' ? 0 : BEACON_WAIT_MS + this.#parts.random.next() * SPREAD_MS;
    this.#compareIn(waitMs);
  }

  /** Ends what is under way. */
  #interrupt(): void {
    this.#turn++;
    this.#phase = 'idle';
    this.#listedThrough = NEVER;
    this.#isAgainWanted = false;
    this.#timer?.cancel();
    this.#timer = null;
    this.#wake?.();
    this.#reads.abandon();
  }

  #compareIn(waitMs: number): void {
    this.#timer?.cancel();
    this.#timer = this.#parts.clock.after(waitMs, () => {
      this.#timer = null;
      void this.#compare(true);
    });
  }

  // ---- comparing with what the stream holds

  /** @param isWhole false = only the epoch is in doubt; nothing is read when it is the one that is held. */
  async #compare(isWhole: boolean): Promise<void> {
    let isEverything = isWhole;
    if (this.#isStopped || !this.#parts.bus.connected) return;
    this.#timer?.cancel();
    this.#timer = null;
    const turn = ++this.#turn;
    this.#wake?.();
    for (let tries = 0; turn === this.#turn; tries++) {
      this.#phase = 'reading';
      this.#isAgainWanted = false;
      const isDone = await this.#attempt(turn, isEverything);
      if (turn !== this.#turn) return;
      this.#tellStanding();
      if (isDone && !this.#isAgainWanted) break;
      this.#phase = 'waiting';
      // Everything has been read; what came in between was of another epoch, and that alone is in doubt.
      if (isDone) isEverything = false;
      else await this.#pause(Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(tries, 8)) * (0.5 + this.#parts.random.next()));
    }
    if (turn === this.#turn) this.#phase = 'idle';
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#parts.clock.after(ms, () => {
        this.#wake = null;
        resolve();
      });
      this.#wake = () => {
        timer.cancel();
        this.#wake = null;
        resolve();
      };
    });
  }

  /** True when everything in scope is held and in force, or held back for a reason of its own. */
  async #attempt(turn: number, isWhole: boolean): Promise<boolean> {
    const { standing } = this;
    const beaconBefore = this.#lastBeacon;
    const startedAt = this.#parts.clock.now();
    const epoch = await this.#readEpoch();
    if (turn !== this.#turn) return false;
    if (epoch === null) return false;
    const isSame = epoch === this.#held.epoch;
    if (isSame && !isWhole) return true;
    const target = isSame ? this.#held : this.#nextOf(epoch);
    if (isSame) {
      this.#next = null;
      this.#heldBack = null;
    }
    if (!(await this.#readAll(target, turn))) {
      if (turn === this.#turn && target.scope === null) {
        standing.trouble = 'the registry has no scope for this sidecar yet';
        this.onLeader('unknown here', epoch);
      } else if (turn === this.#turn) standing.trouble = `not everything could be read from the registry (${this.#reads.lastFailure})`;
      return false;
    }
    this.#count.comparisons++;
    this.#comparedAt = this.#parts.clock.now();
    this.#isLossSuspected = false;
    standing.trouble = '';
    const told = beaconBefore?.epoch === epoch ? beaconBefore.lastSeq : NEVER;
    // What was lost while this read is in the next beacon's list, unless it took long.
    const isQuick = this.#comparedAt - startedAt < COVERED_MS;
    const through = isQuick ? Math.max(told, target.highestSeq) : told;
    if (isSame) this.#confirm(through);
    else this.#consider(target, through);
    return true;
  }

  async #readEpoch(): Promise<string | null> {
    const found = await this.#parts.bus.last(CONFIG_STREAM, this.#parts.subjects.cfg(Tail.epoch));
    if (found === null) {
      this.standing.trouble = 'the registry is empty: no control plane has run here yet';
      return null;
    }
    if ('failed' in found) {
      this.standing.trouble = `the registry cannot be read (${found.failed})`;
      return null;
    }
    const opened = open(found.data);
    if ('problem' in opened) {
      this.standing.trouble = `the registry's epoch cannot be read: ${opened.problem}`;
      return null;
    }
    return opened.epoch;
  }

  /** Reads the scope and everything in it, and again what the scope has gained meanwhile. */
  async #readAll(target: Held, turn: number): Promise<boolean> {
    if (!(await this.#reads.read(this.#scopeTail)) || turn !== this.#turn || target.scope === null) return false;
    let tails = [...target.scope.state].flatMap((name) => target.tails(name));
    while (tails.length > 0) {
      for (const name of target.scope.state) this.#followCapability(name);
      const read = await Promise.all(tails.map((tail) => this.#reads.read(tail)));
      if (turn !== this.#turn || read.includes(false)) return false;
      tails = [...target.scope.state].flatMap((name) => target.missing(name));
    }
    return true;
  }

  #confirm(through: number): void {
    this.#seenThrough = Math.max(this.#seenThrough, through);
    this.standing.confirmed = true;
    this.#installer.source = 'registry';
    // The copy on disk may have been in force until now, or nothing at all.
    this.#installer.touchAll();
  }

  // ---- an epoch that is new

  /** What is read of it so far. */
  #nextOf(epoch: string): Held {
    if (this.#next?.epoch === epoch) return this.#next;
    this.#next = new Held(epoch);
    this.#heldBack = null;
    this.standing.forgetRefusals();
    return this.#next;
  }

  /** The state of a new epoch is complete: into force with it, or not yet. */
  #consider(target: Held, through: number): void {
    const before = this.#installer.parts();
    const after = this.#installer.wouldBe(target);
    const isDoubted = this.#installer.isInUse && isSuspiciouslySmall(before, after);
    if (isDoubted && (this.#heldBack?.confirmations ?? 0) < CONFIRMATIONS) {
      this.#heldBack ??= { confirmations: 0, countedAt: this.#parts.clock.now() };
      this.standing.trouble = `a registry that has begun anew names ${providersIn(after).size} providers where there were ${providersIn(before).size}: held back until it is confirmed`;
      this.onLeader('new epoch', target.epoch);
      return;
    }
    const answeredAfter = this.#parts.clock.now() - this.#options.leaseMs;
    const { providers } = this.#parts.table.current();
    const hasAnswered = (agentId: string): boolean =>
      this.#parts.own.get(agentId) === null && (providers.get(agentId)?.health.lastAnswerAt ?? Number.NEGATIVE_INFINITY) >= answeredAfter;
    const kept = absentButAnswering(before, after, hasAnswered);
    const isFirst = this.#held.epoch === '';
    this.#held = target;
    this.#next = null;
    this.#heldBack = null;
    this.#seenThrough = NEVER;
    this.#listedThrough = NEVER;
    this.#follower.keepOnly(target.scope?.state ?? new Set());
    this.standing.trouble = '';
    if (!isFirst) {
      this.#count.epochs++;
      this.#parts.own.forgetConfirmations(target.epoch);
      this.#parts.log.warn({ epoch: target.epoch, kept: kept.size }, 'the registry has begun anew');
    }
    this.#installer.keep(kept, this.#parts.clock.now() + this.#options.leaseMs);
    this.#confirm(through);
    this.#installer.installAll();
    if (!isFirst) this.onLeader('new epoch', target.epoch);
  }

  #otherEpoch(): void {
    if (this.#phase === 'reading') this.#isAgainWanted = true;
    else void this.#compare(!this.standing.confirmed);
  }

  // ---- what comes in

  #pushed(tail: string, message: BusMessage): void {
    const stored = republished(message);
    if (stored === null || stored.stream !== CONFIG_STREAM) {
      this.#refused(tail, 0, 'it was not published by the registry: it has no sequence');
      return;
    }
    const opened = open(stored.data);
    if ('problem' in opened) {
      this.#refused(tail, stored.seq, opened.problem);
      return;
    }
    const target = opened.epoch === this.#held.epoch ? this.#held : opened.epoch === this.#next?.epoch ? this.#next : null;
    if (target === null) {
      this.#otherEpoch();
      return;
    }
    const taken = this.#take(target, tail, stored.seq, stored.lastSeq, opened);
    if (taken.judgement === 'old') return;
    this.#count.deltas++;
    if (taken.judgement === 'gap') {
      this.#count.gaps++;
      this.#isLossSuspected = true;
    }
  }

  #wasRead(tail: string, message: ReadMessage | null): void {
    if (message === null) {
      this.#next?.putAbsent(tail);
      if (this.#next === null) this.#held.putAbsent(tail);
      this.#touched(this.#next ?? this.#held, tail);
      return;
    }
    const opened = open(message.data);
    if ('problem' in opened) {
      this.#refused(tail, message.seq, opened.problem);
      (this.#next ?? this.#held).putUnreadable(tail, message.seq);
      return;
    }
    const target = opened.epoch === this.#next?.epoch ? this.#next : opened.epoch === this.#held.epoch ? this.#held : null;
    if (target === null) this.#isAgainWanted = true;
    else this.#take(target, tail, message.seq, null, opened);
  }

  #take(target: Held, tail: string, seq: number, before: number | null, opened: Parameters<Held['takeScope']>[3]): Taken {
    const isScope = tail === this.#scopeTail;
    const scopeBefore = target.scope?.state ?? null;
    const taken = isScope ? target.takeScope(tail, seq, before, opened) : target.takeCapability(tail, seq, before, opened, this.#tryOut);
    if (taken.judgement === 'old') return taken;
    if (taken.problem !== null) this.#refused(tail, seq, taken.problem);
    else {
      this.standing.accept(tail);
      if (isScope) this.#scopeMoved(target, scopeBefore);
      else this.#touched(target, tail);
    }
    return taken;
  }

  #scopeMoved(target: Held, before: ReadonlySet<string> | null): void {
    const after = target.scope?.state ?? new Set<string>();
    if (target !== this.#held) {
      // What the reading of a new epoch has been waiting for.
      if (this.#phase === 'waiting') this.#wake?.();
      return;
    }
    const { added, removed } = scopeChange(before ?? new Set(), after);
    // What was not ours when a beacon named it was not looked at.
    if (added.length > 0) this.#listedThrough = NEVER;
    for (const name of added) {
      this.#followCapability(name);
      this.#readMissing(target, name);
    }
    for (const name of removed) this.#follower.unfollowCapability(name);
    this.#installer.touch(removed);
  }

  /** Something of a capability has come: into force with it, or first what else belongs to it. */
  #touched(target: Held, tail: string): void {
    const at = capabilityTail(tail);
    if (at === null) return;
    if (at.shard === 0 && target.tails(at.name).length > 1) this.#follower.followShards(at.name);
    if (target.shardsOf(at.name) === null) this.#readMissing(target, at.name);
    else if (target === this.#held) this.#installer.touch([at.name]);
  }

  /** What cannot be read now is found missing by the next comparison. */
  #readMissing(target: Held, name: string): void {
    for (const tail of target.missing(name))
      void this.#reads.read(tail).then((isRead) => {
        if (!isRead) this.#isLossSuspected = true;
      });
  }

  #followCapability(name: string): void {
    this.#follower.follow(Tail.capability(name));
    if (this.#held.tails(name).length > 1) this.#follower.followShards(name);
  }

  #refused(tail: string, seq: number, why: string): void {
    this.standing.refuse(tail, seq, why);
    this.#parts.table.refusals++;
    this.#parts.log.error({ tail, seq, why }, 'a message of the registry was refused; what was in force stays');
    this.#tellStanding();
    this.onChange();
  }

  // ---- the beacon

  #beacon(message: BusMessage): void {
    const beacon = readBeacon(message.data);
    if (beacon === null) return;
    const { standing } = this;
    const now = this.#parts.clock.now();
    const pauseMs = now - standing.lastBeaconAt;
    standing.lastBeaconAt = now;
    this.#lastBeacon = beacon;
    if (pauseMs > this.#options.staleAfterMs) this.onLeader('back', beacon.epoch);
    if (this.#next !== null && beacon.epoch === this.#next.epoch) {
      this.#confirmsNew(now);
      this.#tellStanding();
      return;
    }
    if (beacon.epoch !== this.#held.epoch) this.#otherEpoch();
    else if (this.#phase === 'idle') this.#follow(beacon, pauseMs, now);
    this.#tellStanding();
  }

  #follow(beacon: BeaconView, pauseMs: number, now: number): void {
    const mayCompare = now - this.#comparedAt >= COMPARE_EVERY_MS;
    const isCovered = covers(beacon, this.#seenThrough, pauseMs);
    if (!isCovered && this.#timer === null) this.#compareIn(this.#parts.random.next() * SPREAD_MS);
    else if (this.#isLossSuspected && mayCompare && this.#timer === null) this.#compareIn(this.#parts.random.next() * SPREAD_MS);
    if (!isCovered) return;
    // Most of the list is known already: the cheapest question comes first.
    const behind = beacon.recent.filter(([tail, seq]) => seq > this.#listedThrough && this.#isMine(tail) && seq > this.#held.seen(tail));
    if (behind.length === 0) this.#covered(beacon.lastSeq);
    else void this.#repair(behind, beacon.lastSeq);
  }

  async #repair(behind: BeaconView['recent'], lastSeq: number): Promise<void> {
    const turn = this.#turn;
    this.#count.repairs += behind.length;
    const read = await Promise.all(behind.map(([tail, seq]) => this.#reads.read(tail, seq)));
    if (turn === this.#turn && !read.includes(false)) this.#covered(lastSeq);
  }

  #covered(lastSeq: number): void {
    this.#seenThrough = Math.max(this.#seenThrough, lastSeq);
    this.#listedThrough = Math.max(this.#listedThrough, lastSeq);
    if (this.standing.confirmed) return;
    // Since the connection came nothing was missed: there is no need to compare.
    this.#timer?.cancel();
    this.#timer = null;
    this.#confirm(lastSeq);
    this.#tellStanding();
  }

  #isMine(tail: string): boolean {
    if (tail === this.#scopeTail) return true;
    const at = capabilityTail(tail);
    return at !== null && this.#held.scope?.state.has(at.name) === true;
  }

  #confirmsNew(now: number): void {
    const waiting = this.#heldBack;
    if (waiting === null || this.#next === null) return;
    if (now - waiting.countedAt >= CONFIRM_APART_MS) {
      waiting.confirmations++;
      waiting.countedAt = now;
    }
    const next = this.#next;
    const isComplete = [...(next.scope?.state ?? [])].every((name) => next.missing(name).length === 0);
    if (isComplete) this.#consider(next, next.highestSeq);
    else if (this.#phase === 'idle') void this.#compare(true);
  }

  // ---- what follows

  #installed(): void {
    if (this.#held.scope !== null) this.#parts.file?.keep(this.#held);
    this.#tellStanding();
    this.onChange();
  }

  #tellStanding(): void {
    const { table } = this.#parts;
    const because = this.standing.because();
    table.problems = this.standing
      .refused()
      .map(({ tail, seq, why }) => ({ file: tail, line: 0, column: 0, path: '', message: `sequence ${seq}: ${why}` }));
    if (table.staleBecause === because) return;
    table.staleBecause = because;
    this.onChange();
  }
}
