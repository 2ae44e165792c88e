/**
 * The operators' emergency overrides at this sidecar: pushed as one whole list, taken as a whole or not at all, in force when
 * `installOverrides` returns, and told to everybody at once (`inforce`). Nobody waits for the registry's leader: any replica,
 * or `reachctl` alone, writes the stream.
 *
 * - A push that is lost is found by the beacon of each second and read from the stream; so is everything after a break.
 * - Within an epoch (a life of the stream) nothing older comes into force than what is held. What another epoch means only the
 *   stream itself can say. A stream that has nothing lifts nothing.
 * - What cannot be read leaves what is in force as it is, and is told in the log, in health and in each report.
 * - The last good list is on disk, and in force before the first table is, with NATS away too.
 * - What runs out counts as absent to the millisecond (the stages look at the clock); here it is only taken out of the table.
 */
import { type BusMessage, republished } from '../../base/bus-message.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Random } from '../../base/random.ts';
import {
  type InForce,
  OVERRIDES_WIRE,
  type OverrideEntry,
  type OverrideState,
  readOverrideBeacon,
  readOverrideState,
  type RefusedList,
  rulesOf,
} from '../../proto/wire/overrides.ts';
import { OVERRIDE_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import { bytesOf, type RegistryBus } from './bus.ts';
import type { DurableFile } from './durable-file.ts';
import type { InstalledTable } from './installed.ts';
import { OperatorsClock } from './operators-clock.ts';

export interface OverridesParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly env: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly table: Pick<InstalledTable, 'installOverrides'>;
  readonly sidecar: string;
  readonly instance: string;
  /** null = nothing is kept. */
  readonly file: DurableFile | null;
}

/** What can be seen of it. */
export interface OverridesStatus {
  readonly epoch: string;
  /** Sequence of the list in force; 0 = none was ever heard of. */
  readonly seq: number;
  readonly in_force: readonly {
    readonly id: string;
    readonly action: string;
    readonly reason: string;
    readonly author: string;
    readonly expires_at: string | null;
  }[];
  /** A newer list that cannot be used. */
  readonly refused: RefusedList | null;
  /** Why the stream could not be read last; null = it could. */
  readonly trouble: string | null;
  /** By how much this host's clock is behind the operators'; 0 = it is right. */
  readonly clock_behind_ms: number;
}

/** Two hundred sidecars that see the same break spread their reading over this. */
const SPREAD_MS = 200;
const READ_MS = 2_000;
const FIRST_PAUSE_MS = 50;
const MAX_PAUSE_MS = 5_000;
/** A timer is set anew at least this often, in case the wall clock is moved. */
const MAX_TIMER_MS = 60_000;
const FORMAT = 1;

export class OverridesInForce {
  readonly #parts: OverridesParts;
  readonly #closing: { close(): void }[] = [];
  readonly #clock = new OperatorsClock();
  #entries: readonly OverrideEntry[] = [];
  #text = '';
  #epoch = '';
  #seq = 0;
  #refused: RefusedList | null = null;
  #trouble = '';
  /** Of what the table has; to install only changes. */
  #installed = '';
  #expiry: Timer | null = null;
  #pause: Timer | null = null;
  /** Counts connections: an answer over an earlier one is late. */
  #life = 0;
  #isReading = false;
  /** Something newer than this is known to exist. */
  #wanted = 0;
  #failures = 0;
  #hasConnected = false;
  #isStopped = false;
  #isStale = false;
  #writing: Promise<void> | null = null;
  /** Called after each change of what the next report says. */
  onChange: () => void = () => {};

  constructor(parts: OverridesParts) {
    this.#parts = parts;
  }

  /** Puts what is on disk in force, and goes on from there. To be called before the table is there. */
  start(): void {
    this.#load();
    const { bus, subjects } = this.#parts;
    this.#closing.push(
      bus.subscribe(subjects.pushedOverrides, (message) => this.#pushed(message), { pushed: true }),
      bus.subscribe(subjects.overrideBeacon, (message) => this.#beacon(message)),
      bus.onState(({ connected }) => this.#connection(connected)),
    );
    this.#connection(bus.connected);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const each of this.#closing) each.close();
    this.#closing.length = 0;
    this.#expiry?.cancel();
    this.#pause?.cancel();
    await this.flush();
  }

  /** For the report: which list is in force. */
  get standing(): Pick<InForce, 'epoch' | 'seq' | 'refused'> {
    return { epoch: this.#epoch, seq: this.#seq, ...(this.#refused === null ? null : { refused: this.#refused }) };
  }

  status(): OverridesStatus {
    return {
      epoch: this.#epoch,
      seq: this.#seq,
      in_force: this.#lasting().map(({ id, action, reason, author, expires_at: end }) => ({
        id,
        action,
        reason,
        author,
        expires_at: end === null ? null : new Date(end).toISOString(),
      })),
      refused: this.#refused,
      trouble: this.#trouble === '' ? null : this.#trouble,
      clock_behind_ms: this.#clock.aheadMs,
    };
  }

  // ---- what comes

  #pushed(message: BusMessage): void {
    const stored = republished(message);
    if (stored === null || stored.stream !== OVERRIDE_STREAM || stored.subject !== this.#parts.subjects.overrides) {
      this.#parts.log.error('a list of overrides was not published by its stream, and is not believed');
      return;
    }
    this.#take(stored.seq, stored.data, false);
  }

  #take(seq: number, data: Uint8Array, isStored: boolean): void {
    const read = readOverrideState(data);
    if ('problem' in read) {
      if (seq > this.#seq || isStored) this.#refuse(seq, read.problem);
      return;
    }
    if (read.epoch !== this.#epoch && !isStored) return this.#want(seq);
    if (read.epoch === this.#epoch && seq <= this.#seq) return;
    this.#hold(read, seq, Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
    this.#isStale = true;
    void this.flush();
  }

  #hold(state: OverrideState, seq: number, text: string): void {
    const isOtherLife = this.#epoch !== '' && this.#epoch !== state.epoch;
    if (isOtherLife) this.#parts.log.warn({ before: this.#epoch, epoch: state.epoch }, 'the stream of overrides has begun anew');
    this.#entries = state.overrides;
    this.#text = text;
    this.#epoch = state.epoch;
    this.#seq = seq;
    this.#refused = null;
    const changed = this.#install();
    this.#tell();
    if (changed) this.#parts.log.warn({ seq, overrides: state.overrides.map(({ id }) => id) }, 'overrides are in force');
    this.onChange();
  }

  /** What is in force stays: half a list would lift what somebody has just blocked. */
  #refuse(seq: number, why: string): void {
    if (this.#refused?.seq === seq) return;
    this.#refused = { seq, why };
    this.#parts.log.error({ seq, why }, 'A LIST OF OVERRIDES CANNOT BE USED HERE; what was in force before stays');
    this.#tell();
    this.onChange();
  }

  #beacon(message: BusMessage): void {
    const beacon = readOverrideBeacon(message.data);
    if (beacon === null) return;
    const { clock } = this.#parts;
    // A person's machine has no say in what time it is.
    if (beacon.tell !== true && this.#clock.heard(beacon.from, beacon.at, clock.wallMs(), clock.now())) {
      this.#parts.log.warn(
        { aheadMs: this.#clock.aheadMs },
        "this host's clock differs from the control plane's: overrides end by the latter",
      );
      if (this.#install()) this.onChange();
      // After a restart without NATS there is no beacon that would say it again.
      if (this.#text !== '') {
        this.#isStale = true;
        void this.flush();
      }
    }
    const isKnown = beacon.epoch === this.#epoch ? beacon.seq <= Math.max(this.#seq, this.#refused?.seq ?? 0) : false;
    if (!isKnown && beacon.seq > 0) this.#want(beacon.epoch === this.#epoch ? beacon.seq : 0);
    if (beacon.tell === true) this.#tell();
  }

  // ---- the stream

  #connection(connected: boolean): void {
    this.#life++;
    this.#pause?.cancel();
    this.#pause = null;
    this.#isReading = false;
    this.#failures = 0;
    if (!connected || this.#isStopped) return;
    if (this.#hasConnected) this.#later(this.#parts.random.next() * SPREAD_MS);
    else this.#want(0);
    this.#hasConnected = true;
  }

  /** @param atLeastSeq a replica that has only older ones lags, and is asked again */
  #want(atLeastSeq: number): void {
    this.#wanted = Math.max(this.#wanted, atLeastSeq);
    if (this.#isReading || this.#pause !== null || this.#isStopped || !this.#parts.bus.connected) return;
    void this.#read();
  }

  async #read(): Promise<void> {
    const { bus, subjects } = this.#parts;
    const life = this.#life;
    this.#isReading = true;
    const found = await bus.last(OVERRIDE_STREAM, subjects.overrides, READ_MS);
    if (life !== this.#life || this.#isStopped) return;
    this.#isReading = false;
    if (found !== null && 'failed' in found) {
      this.#trouble = found.failed;
      this.#later(Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#failures++));
      return;
    }
    this.#trouble = '';
    const wanted = this.#wanted;
    this.#wanted = 0;
    if (found !== null) this.#take(found.seq, found.data, true);
    if (found !== null && found.seq < wanted && this.#failures < 6) {
      this.#wanted = wanted;
      this.#later(FIRST_PAUSE_MS * 2 ** this.#failures++);
    } else this.#failures = 0;
  }

  #later(ms: number): void {
    this.#pause?.cancel();
    this.#pause = this.#parts.clock.after(ms, () => {
      this.#pause = null;
      this.#want(0);
    });
  }

  // ---- in force

  /** Those that have not run out, by the operators' clock. */
  #lasting(): readonly OverrideEntry[] {
    const theirs = this.#parts.clock.wallMs() + this.#clock.aheadMs;
    return this.#entries.filter(({ expires_at: end }) => end === null || end > theirs);
  }

  /** False when nothing has changed by it. */
  #install(): boolean {
    const lasting = this.#lasting();
    this.#arm(lasting);
    const aheadMs = this.#clock.aheadMs;
    const words = JSON.stringify([aheadMs, lasting]);
    if (words === this.#installed || (lasting.length === 0 && this.#installed === '')) return false;
    this.#installed = lasting.length === 0 ? '' : words;
    this.#parts.table.installOverrides(rulesOf(lasting, aheadMs));
    return true;
  }

  #arm(lasting: readonly OverrideEntry[]): void {
    this.#expiry?.cancel();
    this.#expiry = null;
    let next = Number.POSITIVE_INFINITY;
    for (const { expires_at: end } of lasting) if (end !== null && end < next) next = end;
    if (next === Number.POSITIVE_INFINITY || this.#isStopped) return;
    const { clock, log } = this.#parts;
    const waitMs = next - (clock.wallMs() + this.#clock.aheadMs);
    this.#expiry = clock.after(Math.max(1, Math.min(MAX_TIMER_MS, waitMs)), () => {
      this.#expiry = null;
      if (!this.#install()) return;
      log.warn({ in_force: this.#lasting().map(({ id }) => id) }, 'an override has run out');
      this.onChange();
    });
  }

  #tell(): void {
    const { bus, subjects, sidecar, instance } = this.#parts;
    if (!bus.connected || this.#isStopped) return;
    bus.publish(subjects.inForce(sidecar), bytesOf({ wire: OVERRIDES_WIRE, sidecar, instance, ...this.standing } satisfies InForce));
  }

  // ---- the disk

  #load(): void {
    const { file, log } = this.#parts;
    const [head, about, text] = file?.read() ?? [];
    if (head !== this.#head() || about === undefined || text === undefined) return;
    const read = readOverrideState(Buffer.from(text, 'utf8'));
    if ('problem' in read) {
      log.error({ why: read.problem }, 'THE OVERRIDES ON DISK CANNOT BE USED: until the stream has been read none is in force');
      return;
    }
    try {
      const { seq, aheadMs } = JSON.parse(about) as { seq: number; aheadMs: number };
      this.#clock.aheadMs = Number.isFinite(aheadMs) ? aheadMs : 0;
      this.#hold(read, Number.isSafeInteger(seq) ? seq : 0, text);
    } catch {
      // Sealed by a checksum: it was written so, by no version of this program.
    }
  }

  /** Resolves when the newest list is on disk. */
  async flush(): Promise<void> {
    const { file } = this.#parts;
    if (file === null) return;
    while (this.#writing !== null || this.#isStale) {
      this.#writing ??= this.#write(file);
      await this.#writing;
    }
  }

  async #write(file: DurableFile): Promise<void> {
    this.#isStale = false;
    const trouble = await file.write([this.#head(), JSON.stringify({ seq: this.#seq, aheadMs: this.#clock.aheadMs }), this.#text]);
    this.#writing = null;
    if (trouble !== null) this.#parts.log.warn(`the last good overrides: ${trouble}`);
  }

  #head(): string {
    return JSON.stringify({ format: FORMAT, kind: 'overrides', env: this.#parts.env });
  }
}
