/**
 * Overrides at one replica, leading or not: it holds the newest list, writes it on an operator's order, beacons it each second,
 * takes out what has run out, puts it back when the stream has been lost, and counts at how many sidecars it is in force. It
 * needs NATS and nothing else: not the registry, not a leader.
 */
import { type BusMessage, republished } from '../../base/bus-message.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import type { Random } from '../../base/random.ts';
import {
  NO_OVERRIDES,
  OVERRIDES_WIRE,
  type OverrideBeacon,
  type OverrideEntry,
  type OverrideState,
  readInForce,
  readOverrideBeacon,
  readOverrideState,
} from '../../proto/wire/overrides.ts';
import { CONTROL_STREAM, OVERRIDE_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import type { Audit } from '../audit/audit.ts';
import type { Fleet } from '../push/fleet.ts';
import { type Edit, lasting, withAdded, withLifted, withoutExpired } from './book.ts';
import { ServerClock } from './server-clock.ts';
import { overrideStream } from './stream.ts';
import { OverrideWriter, type StoredOverrides, type Written } from './writer.ts';

export interface OverrideDeskParts {
  readonly bus: Bus;
  /** The connection on which sidecars are heard. */
  readonly inbound: Bus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly fleet: Fleet;
  readonly audit: Pick<Audit, 'record'>;
  /** This replica. */
  readonly name: string;
  readonly replicas: number;
  /** Sidecars that have said goodbye: they are missed by nobody, unless they are heard again. */
  left(): ReadonlySet<string>;
}

/** At how many sidecars of the fleet a list is in force. */
export interface InForceCount {
  readonly in_force: number;
  readonly of: number;
  readonly missing: readonly { readonly sidecar: string; readonly why: string }[];
}

export type Ordered =
  | { readonly entry: OverrideEntry; readonly seq: number; readonly isRepeated: boolean }
  | Extract<Edit, { problem: string }>
  | { readonly failed: string };

const BEACON_MS = 1_000;
/** How often the stream is looked at although nothing is known to be missing. */
const LOOK_BEACONS = 3;
/** What has run out is taken out so long after, by whichever replica is first. */
const SWEEP_AFTER_MS = 1_000;
const SWEEP_SPREAD_MS = 2_000;

export class OverrideDesk {
  readonly #parts: OverrideDeskParts;
  readonly #writer: OverrideWriter;
  #held: StoredOverrides = { state: NO_OVERRIDES, seq: 0 };
  /** Sequence with which each override was first seen here. */
  readonly #sinceSeq = new Map<string, number>();
  readonly #servers = new ServerClock();
  #isListening = false;
  #isStopped = false;
  #timer: Timer | null = null;
  #ticks = 0;
  #sweepAt = Number.POSITIVE_INFINITY;
  #trouble = '';

  constructor(parts: OverrideDeskParts) {
    this.#parts = parts;
    this.#writer = new OverrideWriter({ ...parts, remembered: () => (this.#held.state === NO_OVERRIDES ? null : this.#held.state) });
  }

  /** What an operator should know; '' = nothing. */
  get trouble(): string {
    return this.#trouble;
  }

  /** What time it is, as overrides are counted. */
  get wallMs(): number {
    return this.#parts.clock.wallMs() + this.#servers.aheadMs;
  }

  /** Those that last, oldest first. */
  get overrides(): readonly OverrideEntry[] {
    return lasting(this.#held.state.overrides, this.wallMs);
  }

  get seq(): number {
    return this.#held.seq;
  }

  get revision(): number {
    return this.#held.state.revision;
  }

  get epoch(): string {
    return this.#held.state.epoch;
  }

  /** There is a connection to NATS: makes sure of the stream, and of what it holds. A sentence when it cannot. */
  async arrive(): Promise<string | null> {
    const { bus, subjects, replicas } = this.#parts;
    this.#listen();
    this.#timer ??= this.#parts.clock.after(BEACON_MS, () => this.#tick());
    const ready = await bus.ensureStream(overrideStream(subjects, replicas));
    if ('failed' in ready) return ready.failed;
    await Promise.all([this.#look(), this.#readTime()]);
    return this.#trouble === '' ? null : this.#trouble;
  }

  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
  }

  /** Whoever orders it is named in it. Repeated, it changes nothing. */
  async add(entry: OverrideEntry): Promise<Ordered> {
    const now = this.wallMs;
    return this.#ordered(await this.#writer.change((state) => withAdded(state, entry, now, this.#servers.isKnown)), entry);
  }

  async lift(id: string): Promise<Ordered> {
    const now = this.wallMs;
    let gone: OverrideEntry | null = null;
    const lifted = (state: OverrideState): Edit => {
      const edit = withLifted(state, id, now, this.#servers.isKnown);
      if ('entry' in edit) gone = edit.entry;
      // Its own work, of which it was not told: the answer was lost.
      else if (gone !== null) return { same: gone };
      return edit;
    };
    return this.#ordered(await this.#writer.change(lifted), null);
  }

  #ordered(written: Written<Edit>, asked: OverrideEntry | null): Ordered {
    if ('failed' in written) return written;
    const { edit, stored } = written;
    if ('problem' in edit) return edit;
    this.#hold(stored);
    if ('same' in edit) return { entry: edit.same, seq: this.sinceSeq(edit.same.id), isRepeated: edit.same.at !== asked?.at };
    this.#beacon();
    return { entry: edit.entry, seq: stored.seq, isRepeated: false };
  }

  /** From which list on an override is in it. */
  sinceSeq(id: string): number {
    return this.#sinceSeq.get(id) ?? this.#held.seq;
  }

  // ---- who has it

  count(seq: number): InForceCount {
    const all = this.#fleetAt(seq);
    const missing = all.filter(({ lacks }) => lacks !== null).map(({ sidecar, lacks }) => ({ sidecar, why: lacks ?? '' }));
    return { in_force: all.length - missing.length, of: all.length, missing };
  }

  /** The count as soon as nobody who can be heard lacks it, or when the time is over. */
  async counted(seq: number, waitMs: number): Promise<InForceCount> {
    const { fleet, clock } = this.#parts;
    const { onSaid } = fleet.inForce;
    const awaited = new Set<string>();
    for (const { sidecar, lacks, isSilent } of this.#fleetAt(seq)) if (lacks !== null && !isSilent) awaited.add(sidecar);
    if (waitMs > 0 && awaited.size > 0) {
      await new Promise<void>((done) => {
        const end = (): void => {
          timer.cancel();
          onSaid.delete(look);
          done();
        };
        const timer = clock.after(waitMs, end);
        const look = (sidecar: string): void => {
          if (awaited.has(sidecar) && fleet.inForce.lacks(sidecar, seq) === null) awaited.delete(sidecar);
          if (awaited.size === 0) end();
        };
        onSaid.add(look);
      });
    }
    return this.count(seq);
  }

  #fleetAt(seq: number): ReturnType<Fleet['overridesAt']> {
    const left = this.#parts.left();
    return this.#parts.fleet.overridesAt(seq, this.#parts.clock.now()).filter(({ sidecar, isHeard }) => isHeard || !left.has(sidecar));
  }

  // ---- what is heard

  #listen(): void {
    if (this.#isListening) return;
    this.#isListening = true;
    const { bus, inbound, subjects, fleet } = this.#parts;
    bus.subscribe(subjects.pushedOverrides, (message) => this.#pushed(message), { pushed: true });
    bus.subscribe(subjects.overrideBeacon, (message) => {
      const beacon = readOverrideBeacon(message.data);
      if (beacon === null || beacon.from === this.#parts.name) return;
      if (beacon.epoch !== this.#held.state.epoch || beacon.seq > this.#held.seq) void this.#look();
    });
    inbound.subscribe(subjects.inForce('*'), (message) => {
      const said = readInForce(message.data);
      if (said !== null && message.subject === subjects.inForce(said.sidecar)) fleet.inForce.take(said);
    });
  }

  #pushed(message: BusMessage): void {
    const stored = republished(message);
    if (stored === null || stored.stream !== OVERRIDE_STREAM) return;
    const read = readOverrideState(stored.data);
    if ('problem' in read) {
      this.#unreadable(read.problem);
      return;
    }
    if (read.epoch === this.#held.state.epoch) this.#hold({ state: read, seq: stored.seq });
    else void this.#look();
  }

  #hold(stored: StoredOverrides): void {
    const before = this.#held;
    if (stored.state.epoch === before.state.epoch && stored.seq <= before.seq) return;
    this.#held = stored;
    this.#trouble = '';
    const { overrides, epoch } = stored.state;
    if (epoch !== before.state.epoch) this.#sinceSeq.clear();
    const ids = new Set(overrides.map(({ id }) => id));
    for (const id of this.#sinceSeq.keys()) if (!ids.has(id)) this.#sinceSeq.delete(id);
    for (const id of ids) if (!this.#sinceSeq.has(id)) this.#sinceSeq.set(id, stored.seq);
    const { inForce } = this.#parts.fleet;
    inForce.epoch = epoch;
    inForce.seq = stored.seq;
    inForce.isEmpty = overrides.length === 0;
    this.#sweepAt = Number.POSITIVE_INFINITY;
  }

  #unreadable(why: string): void {
    const words = `the list of overrides in the stream cannot be read here (${why}); what was held before goes on`;
    if (this.#trouble !== words) this.#parts.logger.error(words);
    this.#trouble = words;
  }

  // ---- what is done each second

  #tick(): void {
    if (this.#isStopped) return;
    this.#timer = this.#parts.clock.after(BEACON_MS, () => this.#tick());
    if (!this.#parts.bus.connected) return;
    this.#beacon();
    this.#sweep();
    if (++this.#ticks % LOOK_BEACONS !== 0) return;
    void this.#look();
    void this.#readTime();
  }

  #beacon(): void {
    const { bus, subjects, name } = this.#parts;
    if (this.#held.seq === 0) return;
    const beacon: OverrideBeacon = {
      wire: OVERRIDES_WIRE,
      from: name,
      epoch: this.#held.state.epoch,
      seq: this.#held.seq,
      at: this.wallMs,
    };
    bus.publish(subjects.overrideBeacon, Buffer.from(JSON.stringify(beacon), 'utf8'));
  }

  /** Reads the stream; where it has nothing, it is given what is held: what operators have blocked outlives the stream. */
  async #look(): Promise<void> {
    const { bus, subjects, logger } = this.#parts;
    const found = await bus.last(OVERRIDE_STREAM, subjects.overrides, BEACON_MS);
    if (this.#isStopped) return;
    if (found !== null && !('failed' in found)) {
      const read = readOverrideState(found.data);
      if ('problem' in read) this.#unreadable(read.problem);
      else this.#hold({ state: read, seq: found.seq });
      return;
    }
    // Silence, too, may mean that there is no such stream.
    if (!bus.connected) return;
    const written = await this.#writer.change((state) => (state.revision === 0 ? { state: { ...state, revision: 1 } } : { held: true }));
    if ('failed' in written) {
      this.#trouble = `overrides cannot be written at present: ${written.failed}`;
      return;
    }
    if ('state' in written.edit && this.#held.seq > 0)
      logger.error(
        { overrides: written.stored.state.overrides.map(({ id }) => id) },
        'THE STREAM OF OVERRIDES WAS LOST and has been made anew with what this replica held',
      );
    this.#hold(written.stored);
  }

  async #readTime(): Promise<void> {
    const { bus, subjects, clock } = this.#parts;
    const renewed = await bus.last(CONTROL_STREAM, subjects.leader, BEACON_MS);
    if (renewed === null || 'failed' in renewed) return;
    const before = this.#servers.aheadMs;
    this.#servers.seen(renewed.seq, renewed.timestampMs, clock.wallMs());
    if (before === 0 && this.#servers.aheadMs !== 0)
      this.#parts.logger.error(
        { aheadMs: this.#servers.aheadMs },
        "THE CLOCK OF THIS MACHINE DIFFERS from that of the NATS servers: overrides begin and end by the servers'",
      );
  }

  /** One of the replicas takes out what has run out, so that it is gone for sidecars with a wrong clock as well. */
  #sweep(): void {
    // A replica that has just started may have a wrong clock, and would lift what others have blocked.
    if (!this.#servers.isKnown) return;
    const { clock, random } = this.#parts;
    const now = clock.now();
    const overdue = withoutExpired(this.#held.state, this.wallMs - SWEEP_AFTER_MS);
    if (overdue === null) return;
    if (this.#sweepAt === Number.POSITIVE_INFINITY) this.#sweepAt = now + random.next() * SWEEP_SPREAD_MS;
    if (now < this.#sweepAt) return;
    this.#sweepAt = Number.POSITIVE_INFINITY;
    void this.#sweepNow();
  }

  async #sweepNow(): Promise<void> {
    const { audit, name } = this.#parts;
    const written = await this.#writer.change((state) => withoutExpired(state, this.wallMs) ?? { gone: [] });
    if ('failed' in written) return;
    this.#hold(written.stored);
    for (const { id, author, reason } of written.edit.gone)
      audit.record({
        actor: name,
        role: 'replica',
        action: 'override.expired',
        subject: id,
        reason,
        detail: { author },
        outcome: 'done',
      });
  }
}
