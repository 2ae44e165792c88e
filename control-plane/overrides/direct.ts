/**
 * The red button with NATS alone: what `reachctl` does when no control plane is left. It writes the same list on the same
 * conditions as a replica, beacons it so that whoever missed the push asks for it, and counts who says that it is in force. Whom
 * to expect it reads from the registry in the stream, where it may; else it can only count those who answer. The clock of its machine
 * may be wrong: by it nothing of others is taken out. What it did it
 * puts into the audit log itself.
 */
import type { Clock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import { Bus } from '../../base/nats.ts';
import type { BusCredential } from '../../base/nats-link.ts';
import type { Random } from '../../base/random.ts';
import { type InForce, OVERRIDES_WIRE, type OverrideBeacon, type OverrideEntry, readInForce } from '../../proto/wire/overrides.ts';
import { CONFIG_STREAM, OVERRIDE_STREAM, Subjects, Tail } from '../../proto/wire/subjects.ts';
import { Audit } from '../audit/audit.ts';
import { type Edit, lasting, withAdded, withLifted } from './book.ts';
import type { InForceCount } from './desk.ts';
import { OverrideWriter, type StoredOverrides, type Written } from './writer.ts';

export interface DirectOptions {
  readonly servers: readonly string[];
  readonly env: string;
  /** Of the operator: also the name of his user on NATS, where permissions are generated. */
  readonly name: string;
  /** null = what stands in the address, if anything does. */
  readonly credential: BusCredential | null;
  readonly clock: Clock;
  readonly random: Random;
  /** How long a connection may take. */
  readonly connectMs: number;
}

export type DirectOrdered =
  | { readonly entry: OverrideEntry; readonly seq: number; readonly isRepeated: boolean; readonly unaudited: string | null }
  | { readonly problem: string };

const REPEAT_MS = 250;
/** What writing and reading take is in the difference. */
const TOLERATED_MS = 15_000;

export class DirectButton {
  readonly #options: DirectOptions;
  readonly #bus: Bus;
  readonly #subjects: Subjects;
  readonly #writer: OverrideWriter;
  readonly #audit: Audit;
  readonly #said = new Map<string, InForce>();
  #changed: () => void = () => {};
  #expected: ReadonlySet<string> = new Set();
  /** The registry could be read: `expected` is everybody. */
  knowsFleet = false;
  /** By how much the clock of this machine is behind the server's; 0 = it is right, or has not been looked at. */
  clockBehindMs = 0;

  private constructor(options: DirectOptions) {
    const { clock, random, env, name, servers, credential } = options;
    this.#options = options;
    this.#subjects = new Subjects(env);
    this.#bus = Bus.open({
      servers,
      name: `reachctl ${name}`,
      clock,
      random,
      inboxPrefix: `_INBOX.${name}`,
      ...(credential === null ? null : { credential: () => credential }),
    });
    this.#writer = new OverrideWriter({ bus: this.#bus, subjects: this.#subjects, clock, random, replicas: 1, remembered: () => null });
    const { logger } = createLog({ level: 'silent', to: 'stderr', service: 'reachctl' });
    this.#audit = new Audit({ bus: this.#bus, subjects: this.#subjects, clock, logger, writer: name });
  }

  /** A sentence when there is no connection. */
  static async open(options: DirectOptions): Promise<DirectButton | string> {
    let button: DirectButton;
    try {
      button = new DirectButton(options);
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
    if (await button.#bus.ready(options.connectMs)) {
      button.#listen();
      return button;
    }
    const { why } = button.#bus.state;
    await button.close();
    return `no connection to NATS: ${why}`;
  }

  async close(): Promise<void> {
    await this.#audit.stop(0);
    await this.#bus.close();
  }

  /** Whom to expect; what cannot be read is no reason to wait with the order. */
  async readFleet(): Promise<void> {
    const prefix = this.#subjects.cfg(Tail.registration('x')).slice(0, -1);
    const found = await this.#bus.subjects(CONFIG_STREAM, `${prefix}*`);
    if ('failed' in found) return;
    this.knowsFleet = true;
    this.#expected = new Set([...found.keys()].map((subject) => subject.slice(prefix.length)));
  }

  /** Those that last; a sentence when they cannot be read. */
  async list(): Promise<StoredOverrides | string> {
    const read = await this.#writer.read();
    if ('failed' in read) return read.failed;
    return { ...read, state: { ...read.state, overrides: lasting(read.state.overrides, this.#options.clock.wallMs()) } };
  }

  async add(entry: OverrideEntry): Promise<DirectOrdered> {
    const now = this.#options.clock.wallMs();
    const written = await this.#writer.change<Edit>((state) => withAdded(state, entry, now, false));
    return await this.#ordered('override.set', entry.reason, await this.#inTime(written, now));
  }

  /** A laptop's clock may be wrong, and the override would end at once, or never: then it is written again by the server's. */
  async #inTime(written: Written<Edit>, now: number): Promise<Written<Edit>> {
    if ('failed' in written || !('entry' in written.edit)) return written;
    this.#beacon(written.stored);
    const found = await this.#bus.lastAtLeader(OVERRIDE_STREAM, this.#subjects.overrides);
    if (found === null || 'failed' in found || found.seq !== written.stored.seq) return written;
    const aheadMs = found.timestampMs - now;
    if (Math.abs(aheadMs) < TOLERATED_MS) return written;
    this.clockBehindMs = aheadMs;
    const { entry } = written.edit;
    const end = entry.expires_at;
    const moved: OverrideEntry = { ...entry, at: entry.at + aheadMs, expires_at: end === null ? null : end + aheadMs };
    return await this.#writer.change<Edit>((state) => {
      const overrides = state.overrides.map((each) => (each.id === entry.id ? moved : each));
      return { state: { ...state, revision: state.revision + 1, overrides }, entry: moved };
    });
  }

  async lift(id: string, reason: string): Promise<DirectOrdered> {
    const now = this.#options.clock.wallMs();
    return await this.#ordered('override.lift', reason, await this.#writer.change<Edit>((state) => withLifted(state, id, now, false)));
  }

  async #ordered(action: string, reason: string, written: Written<Edit>): Promise<DirectOrdered> {
    if ('failed' in written) return { problem: `not written: ${written.failed}` };
    const { edit, stored } = written;
    if ('problem' in edit) return { problem: edit.problem };
    this.#beacon(stored);
    if ('same' in edit) return { entry: edit.same, seq: stored.seq, isRepeated: true, unaudited: null };
    const { entry } = edit;
    const unaudited = await this.#audit.recorded({
      actor: this.#options.name,
      role: 'operator',
      action,
      subject: entry.id,
      reason,
      detail: { by: 'reachctl, directly', action: entry.action, ...entry.target, to: entry.to, cut: entry.cut },
      outcome: 'done',
    });
    return { entry, seq: stored.seq, isRepeated: false, unaudited };
  }

  /** Asks everybody what is in force until all say it, or the time is over. @param told after each change, at most a few times a second */
  async counted(
    stored: { readonly seq: number; readonly epoch: string },
    waitMs: number,
    told: (count: InForceCount) => void,
  ): Promise<InForceCount> {
    const { clock } = this.#options;
    const until = clock.now() + waitMs;
    for (;;) {
      const count = this.#count(stored);
      told(count);
      const left = until - clock.now();
      if (left <= 0 || (this.knowsFleet && count.missing.length === 0)) return count;
      await new Promise<void>((done) => {
        const timer = clock.after(Math.min(REPEAT_MS, left), done);
        this.#changed = () => {
          if (!this.knowsFleet || this.#count(stored).missing.length > 0) return;
          timer.cancel();
          done();
        };
      });
      this.#changed = () => {};
      this.#tell(stored);
    }
  }

  #count({ seq, epoch }: { readonly seq: number; readonly epoch: string }): InForceCount {
    const all = [...new Set([...this.#expected, ...this.#said.keys()])].sort();
    const missing: { sidecar: string; why: string }[] = [];
    for (const sidecar of all) {
      const said = this.#said.get(sidecar);
      if (said === undefined) missing.push({ sidecar, why: 'it has said nothing' });
      else if (said.epoch !== epoch || said.seq < seq)
        missing.push({ sidecar, why: said.refused === undefined ? 'it has an older list' : `it cannot use the list: ${said.refused.why}` });
    }
    return { in_force: all.length - missing.length, of: all.length, missing };
  }

  #listen(): void {
    this.#bus.subscribe(this.#subjects.inForce('*'), ({ data, subject }) => {
      const said = readInForce(data);
      if (said === null || subject !== this.#subjects.inForce(said.sidecar)) return;
      this.#said.set(said.sidecar, said);
      this.#changed();
    });
  }

  #beacon({ state, seq }: StoredOverrides): void {
    this.#tell({ epoch: state.epoch, seq });
  }

  #tell({ epoch, seq }: { readonly epoch: string; readonly seq: number }): void {
    const { name, clock } = this.#options;
    const beacon: OverrideBeacon = { wire: OVERRIDES_WIRE, from: name, epoch, seq, at: clock.wallMs(), tell: true };
    this.#bus.publish(this.#subjects.overrideBeacon, Buffer.from(JSON.stringify(beacon), 'utf8'));
  }
}
