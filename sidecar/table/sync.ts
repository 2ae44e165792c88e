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
 * Here the parts of this are put together, and what the connection means for them is decided: what comes in (`intake.ts`),
 * comparing (`comparison.ts`), the beacon (`beacon-watch.ts`), a new epoch (`succession.ts`), the way into the table
 * (`installer.ts`), and how fresh all of it is (`standing.ts`).
 */
import type { BusMessage } from '../../base/bus-message.ts';
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Random } from '../../base/random.ts';
import { shareOf } from '../../proto/language/share.ts';
import type { ProviderRecord } from '../../proto/language/types.ts';
import { type Subjects, Tail } from '../../proto/wire/subjects.ts';
import { BeaconWatch } from './beacon-watch.ts';
import type { RegistryBus } from './bus.ts';
import { type BeaconView, NEVER } from './chain.ts';
import { Comparison } from './comparison.ts';
import type { Standpoint } from './compile.ts';
import { Copy, type SyncCounters } from './copy.ts';
import { Follower } from './follower.ts';
import type { Held, TryOut } from './held.ts';
import type { HeldFile } from './held-file.ts';
import { Installer } from './installer.ts';
import type { InstalledTable } from './installed.ts';
import { Intake } from './intake.ts';
import type { OwnAgents } from './own-agents.ts';
import { readBeacon } from './readable.ts';
import { Reads } from './reads.ts';
import { Standing } from './standing.ts';
import { Succession } from './succession.ts';
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
/** Two hundred sidecars that see the same break spread their reading over this. */
const SPREAD_MS = 500;

/** What the table's reading finds out that concerns the announcements. */
export type LeaderNews =
  /** Heard after a silence. */
  | 'back'
  | 'new epoch'
  /** There is no scope for this sidecar. */
  | 'unknown here';

export class TableSync {
  readonly standing: Standing;
  onLeader: (why: LeaderNews, epoch: string) => void = () => {};
  /** For what is followed beside the table. */
  onBeacon: (beacon: BeaconView & { readonly epoch: string }) => void = () => {};
  /** Something changed that a report would say. */
  onChange: () => void = () => {};
  readonly #parts: SyncParts;
  readonly #options: SyncOptions;
  readonly #tryOut: TryOut;
  readonly #copy: Copy;
  readonly #reads: Reads;
  readonly #follower: Follower;
  readonly #installer: Installer;
  readonly #comparison: Comparison;
  readonly #succession: Succession;
  readonly #watch: BeaconWatch;
  #lastBeacon: { readonly epoch: string; readonly lastSeq: number } | null = null;
  #hasConnected = false;
  #state: { close(): void } | null = null;

  constructor(parts: SyncParts, options: SyncOptions) {
    const { bus, subjects, clock, random, log, table, own } = parts;
    const standing = new Standing(clock, options.staleAfterMs);
    const copy = new Copy(Tail.scope(options.here.name));
    this.#parts = parts;
    this.#options = options;
    this.standing = standing;
    this.#copy = copy;
    this.#tryOut = tryOutFor(clock, options.here);
    this.#installer = new Installer({
      clock,
      table,
      own,
      share: shareOf(options.here.name),
      unreachable: parts.unreachable,
      held: () => copy.held,
      onInstalled: () => this.#installed(),
    });
    const intake = new Intake({
      copy,
      tryOut: this.#tryOut,
      reads: () => this.#reads,
      follower: () => this.#follower,
      installer: this.#installer,
      onOtherEpoch: () => this.#comparison.doubtEpoch(standing.confirmed),
      onNextScope: () => this.#comparison.wake(),
      onTaken: (tail) => standing.accept(tail),
      onRefused: (tail, seq, why) => this.refuse(tail, seq, why),
    });
    this.#reads = new Reads(bus, subjects, clock, random, (tail, message) => intake.read(tail, message));
    this.#follower = new Follower(bus, subjects, (tail, message) => intake.pushed(tail, message));
    this.#comparison = new Comparison({
      bus,
      subjects,
      clock,
      random,
      copy,
      reads: this.#reads,
      follower: this.#follower,
      lastSeqOf: (epoch) => (this.#lastBeacon?.epoch === epoch ? this.#lastBeacon.lastSeq : NEVER),
      onNewEpoch: () => {
        this.#succession.forget();
        standing.forgetRefusals();
      },
      onDone: (target, through) => this.#compared(target, through),
      onAttempt: (trouble) => this.#attempted(trouble),
      onUnknownHere: (epoch) => this.onLeader('unknown here', epoch),
    });
    this.#succession = new Succession({
      clock,
      log,
      table,
      own,
      copy,
      installer: this.#installer,
      leaseMs: options.leaseMs,
      onHeldBack: (trouble, epoch) => {
        standing.heldBack = trouble;
        this.onLeader('new epoch', epoch);
      },
      onSucceeded: (through, isFirst) => this.#succeeded(through, isFirst),
    });
    this.#watch = new BeaconWatch({
      copy,
      reads: this.#reads,
      comparison: this.#comparison,
      onCovered: (lastSeq) => this.#covered(lastSeq),
    });
    own.onChange = (names) => this.#installer.touch(names);
  }

  get counters(): Readonly<SyncCounters> {
    return this.#copy.counters;
  }

  get epoch(): string {
    return this.#copy.held.epoch;
  }

  get appliedSeq(): number {
    return this.#copy.held.highestSeq;
  }

  /** Everything up to this sequence that concerns this sidecar is in force here, as far as can be told. */
  isThrough(seq: number): boolean {
    const { held } = this.#copy;
    if (held.highestSeq < seq || held.scope === null || !this.#installer.isSettled) return false;
    for (const name of held.scope.state) if (held.missing(name).length > 0) return false;
    return true;
  }

  get scopeSize(): number {
    return this.#copy.held.scope?.state.size ?? 0;
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
    const { bus, subjects } = this.#parts;
    this.#loadCopy();
    this.#follower.always(subjects.beacon, (message) => this.#beacon(message));
    this.#follower.follow(this.#copy.scopeTail);
    this.#state = bus.onState(({ connected, why }) => this.#connection(connected, why));
    this.#connection(bus.connected, bus.connected ? '' : 'not connected yet');
  }

  /** Resolves when the newest state is on disk. */
  async stop(): Promise<void> {
    this.#state?.close();
    this.#follower.stop();
    this.#comparison.interrupt();
    this.#installer.stop();
    await this.#parts.file?.flush();
  }

  /** Resolves when all that was changed here until now is in the table that calls use. */
  settled(): Promise<void> {
    return this.#installer.settled();
  }

  /** To be called now and then: what depends on time alone. */
  tick(): void {
    this.#tellStanding();
  }

  #loadCopy(): void {
    const loaded = this.#parts.file?.load(this.#tryOut) ?? null;
    if (loaded === null) return;
    const { held, savedAt } = loaded;
    this.#copy.held = held;
    for (const name of held.scope?.state ?? []) this.#follower.followCapability(name, held.tails(name).length > 1);
    this.#installer.source = 'last good copy';
    this.#installer.installAll();
    const what = { capabilities: this.scopeSize, seq: this.appliedSeq, savedAt };
    this.#parts.log.info(what, 'started from the last good copy of the registry');
  }

  // ---- the connection

  #connection(connected: boolean, why: string): void {
    const { standing } = this;
    const isChange = connected !== standing.connected;
    standing.why = why;
    standing.connected = connected;
    if (isChange) {
      // Whatever is under way, its answers are lost; and while it was away anything may have been.
      this.#comparison.interrupt();
      this.#copy.listedThrough = NEVER;
      standing.confirmed = false;
      standing.trouble = '';
      if (connected) this.#connected();
    }
    this.#tellStanding();
  }

  #connected(): void {
    if (this.#hasConnected) this.#copy.counters.reconnects++;
    this.#hasConnected = true;
    // Who holds nothing asks at once; who holds something waits a moment for a beacon that may spare it the asking.
    this.#comparison.plan(this.#copy.isEmpty ? 0 : BEACON_WAIT_MS + this.#parts.random.next() * SPREAD_MS);
  }

  // ---- what was found out

  #compared(target: Held, through: number): void {
    if (target === this.#copy.held) {
      this.#succession.forget();
      this.standing.heldBack = '';
      this.#confirm(through);
    } else this.#succession.consider(target, through);
  }

  #attempted(trouble: string): void {
    this.standing.trouble = trouble;
    this.#tellStanding();
  }

  #confirm(through: number): void {
    this.#copy.seenThrough = Math.max(this.#copy.seenThrough, through);
    this.standing.confirmed = true;
    this.#installer.source = 'registry';
    // The copy on disk may have been in force until now, or nothing at all.
    this.#installer.touchAll();
  }

  #succeeded(through: number, isFirst: boolean): void {
    const { held } = this.#copy;
    this.standing.heldBack = '';
    this.#follower.keepOnly(held.scope?.state ?? new Set());
    this.#confirm(through);
    this.#installer.installAll();
    if (!isFirst) this.onLeader('new epoch', held.epoch);
  }

  #beacon(message: BusMessage): void {
    const beacon = readBeacon(message.data);
    if (beacon === null) return;
    this.#parts.subjects.speech = beacon.speech;
    this.onBeacon(beacon);
    const { standing } = this;
    const now = this.#parts.clock.now();
    const pauseMs = now - standing.lastBeaconAt;
    standing.lastBeaconAt = now;
    this.#lastBeacon = beacon;
    if (pauseMs > this.#options.staleAfterMs) this.onLeader('back', beacon.epoch);
    if (beacon.epoch === this.#copy.next?.epoch) {
      if (!this.#succession.beacon(now) && this.#comparison.isIdle) void this.#comparison.run(true);
    } else if (beacon.epoch !== this.#copy.held.epoch) this.#comparison.doubtEpoch(standing.confirmed);
    else if (this.#comparison.isIdle) this.#watch.look(beacon, pauseMs);
    this.#tellStanding();
  }

  #covered(lastSeq: number): void {
    if (this.standing.confirmed) return;
    // Since the connection came nothing was missed: there is no need to compare.
    this.#comparison.cancelPlan();
    this.#confirm(lastSeq);
    this.#tellStanding();
  }

  // ---- what is told

  /** A message of the registry cannot be used: said in health, in metrics and in the next report. */
  refuse(tail: string, seq: number, why: string): void {
    this.standing.refuse(tail, seq, why);
    this.#parts.table.refusals++;
    this.#parts.log.error({ tail, seq, why }, 'a message of the registry was refused; what was in force stays');
    this.#tellStanding();
    this.onChange();
  }

  #installed(): void {
    const { held } = this.#copy;
    if (held.scope !== null) this.#parts.file?.keep(held);
    this.#tellStanding();
    this.onChange();
  }

  #tellStanding(): void {
    const { table } = this.#parts;
    this.standing.wentBack = this.#watch.trouble;
    const because = this.standing.because();
    table.problems = this.standing
      .refused()
      .map(({ tail, seq, why }) => ({ file: tail, line: 0, column: 0, path: '', message: `sequence ${seq}: ${why}` }));
    if (table.staleBecause === because) return;
    table.staleBecause = because;
    this.onChange();
  }
}
