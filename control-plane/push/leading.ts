/**
 * One reign: what the leader does from the moment it leads until it does not. It loads what the stream holds, works out
 * what should be pushed, writes where that differs, then listens: requests, beats and reports of sidecars, time passing,
 * health checks, orders of operators. Everything that changes goes through `commit`, and everything that is written
 * through one pen. What follows from what is decided by the registry; who leads is decided elsewhere.
 */
import { type Clock, nextTurn, type Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import type { Random } from '../../base/random.ts';
import type { CapabilityState, RegistrationState } from '../../proto/wire/registry.ts';
import { type Subjects, Tail } from '../../proto/wire/subjects.ts';
import type { StoredAlerts } from '../alerts/alert.ts';
import { type AlertsConfig, DEFAULT_ALERTS } from '../alerts/config.ts';
import { AlertWatch } from '../alerts/watch.ts';
import type { Audit } from '../audit/audit.ts';
import type { IdentityState } from '../identity/book.ts';
import { IdentityDesk, type IdentityParts } from '../identity/desk.ts';
import type { MessagesConfig } from '../messages/config.ts';
import { Messages } from '../messages/messages.ts';
import { Sharing } from '../quotas/sharing.ts';
import { type Change, isQuiet, OPERATORS_PARTS, type OperatorsPart, type RegistryEvent } from '../registry/change.ts';
import type { OperatorsState } from '../registry/operators.ts';
import { type Leases, Registry } from '../registry/registry.ts';
import { tallyOf } from '../registry/shrink.ts';
import { ShiftRunner } from '../shifts/runner.ts';
import type { Traffic } from '../traffic/traffic.ts';
import type { Admission } from './admission.ts';
import { Beacon } from './beacon.ts';
import {
  capabilityMessages,
  type Changed,
  everything,
  inputMessages,
  pushedMessages,
  rulesMessages,
  steeringMessages,
} from './derive-writes.ts';
import { Door } from './door.ts';
import { encode } from './json.ts';
import type { Mirror } from './mirror.ts';
import type { Prober } from './prober.ts';
import { ShrinkGuard } from './shrink-guard.ts';
import { configStream, loadRegistry } from './stored.ts';
import { readConfig } from './streams.ts';
import { type Change as Message, Writer, type Written } from './writer.ts';

export interface LeadingParts {
  readonly bus: Bus;
  /** The connection on which sidecars are heard; absent = the same. With two, a crowd that registers does not delay what this replica writes. */
  readonly inbound?: Bus;
  readonly subjects: Subjects;
  readonly mirror: Mirror;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly leases: Leases;
  readonly prober: Prober;
  readonly admission: Admission;
  readonly pendingMax: number;
  readonly random: Random;
  readonly messages: MessagesConfig;
  /** Issued identities; absent = there are none. */
  readonly identity?: Pick<IdentityParts, 'config' | 'keys' | 'env' | 'remembered'> | null;
  /** Where it is kept what a shift does by itself; absent = in the log only. */
  readonly audit?: Pick<Audit, 'record'>;
  /** Absent = every default. */
  readonly alerts?: AlertsConfig;
  /** What goes through the fleet, for alerts; absent = nothing is heard of it. */
  readonly traffic?: Traffic;
  /** Copies of every stream. */
  readonly replicas: number;
  readonly epoch: string;
  readonly term: number;
  /** This replica must not lead any more: somebody else has written, or the stream is another one. Called once. */
  readonly onLost: (why: string) => void;
  /** For people who watch. */
  readonly onEvent: (event: RegistryEvent) => void;
}

const SWEEP_MS = 250;
/** Between two sweeps; less than a quarter of a lease cannot take away a provider that beats. */
const HALTED_MS = 2_000;
const BEACON_MS = 1_000;
/** Writes of one burst share a beacon, and it does not meet them on their way: every sidecar hears it. */
const BEACON_SOON_MS = 250;
const RECOVER_MS = 500;
/** While a crowd knocks, what it changes is written together, but no later than this. */
const GATHER_MOST_MS = 100;
/** Capabilities that are worked out without a pause. */
const SLICE = 32;
/** How long an answer waits for its write. Sidecars ask again after that. */
const WRITE_MS = 2_500;
const NOTHING_CHANGED: Written = Object.freeze({ ok: true, seq: 0 });

interface Dirty {
  readonly registrations: Set<string>;
  readonly operators: Set<OperatorsPart>;
  readonly capabilities: Set<string>;
  readonly scopes: Set<string>;
}

const nothingDirty = (): Dirty => ({ registrations: new Set(), operators: new Set(), capabilities: new Set(), scopes: new Set() });

export class Leading {
  /** Another one after an import. */
  registry: Registry;
  readonly writer: Writer;
  readonly messages: Messages;
  /** Shifts of traffic, as they go on by themselves. */
  readonly shifts: ShiftRunner;
  readonly alerts: AlertWatch;
  /** null = no identities are issued. */
  readonly identity: IdentityDesk | null;
  readonly epoch: string;
  readonly term: number;
  readonly sinceMs: number;
  readonly #parts: LeadingParts;
  readonly #beacon: Beacon;
  readonly #shrink = new ShrinkGuard();
  readonly #door: Door;
  readonly #sharing: Sharing;
  /** What the next write takes with it. */
  #dirty = nothingDirty();
  #gathering: Promise<Written> | null = null;
  /** All that was committed and is not in force yet; null = nothing. */
  #underway: Promise<Written> | null = null;
  #flushing: Promise<void> = Promise.resolve();
  #sweep: Timer | null = null;
  #sweptAt = 0;
  #beat: Timer | null = null;
  #soon: Timer | null = null;
  #recovery: Timer | null = null;
  #recovering = false;
  #ended = false;
  /** The server's clock less ours. */
  #serverAheadMs = 0;

  /** Loads and takes over; a sentence when it cannot. */
  static async begin(parts: LeadingParts): Promise<Leading | { readonly failed: string }> {
    const read = await readConfig(parts.bus, parts.subjects);
    if ('failed' in read) return read;
    if (read.epoch !== parts.epoch) return { failed: 'the stream has been made anew in this moment' };
    parts.mirror.replace(read.entries, read.lastSeq);
    const registry = new Registry(parts.clock, parts.leases);
    const troubles = loadRegistry(registry, parts.mirror, parts.epoch);
    if (troubles.length > 0) return { failed: `what is stored cannot be read: ${troubles.join('; ')}` };
    return new Leading(parts, registry);
  }

  private constructor(parts: LeadingParts, registry: Registry) {
    this.#parts = parts;
    this.registry = registry;
    this.epoch = parts.epoch;
    this.term = parts.term;
    this.sinceMs = parts.clock.now();
    this.#beacon = new Beacon(parts.mirror.lastSeq);
    this.writer = new Writer(configStream(parts.bus, parts.subjects), parts.mirror, parts.pendingMax);
    this.writer.onConflict = (why) => this.#lost(`another replica has written: ${why}`);
    this.writer.onPause = () => this.#recoverIn(0);
    this.writer.onStored = (stored) => {
      this.#beacon.changed(stored, parts.clock.now());
      this.#soon ??= parts.clock.after(BEACON_SOON_MS, () => {
        this.#soon = null;
        this.#sayBeacon();
      });
    };
    for (const { sidecar, mesh } of registry.sidecars()) parts.admission.own(sidecar, mesh);
    this.writer.resume();
    this.#takeOver();
    this.shifts = new ShiftRunner({
      clock: parts.clock,
      logger: parts.logger,
      audit: parts.audit ?? null,
      registry: () => this.registry,
      commit: (change) => this.commit(change),
      onEvent: parts.onEvent,
      notify: (notice) => this.messages.notices?.tell(notice),
    });
    this.#sharing = new Sharing({
      bus: parts.bus,
      subjects: parts.subjects,
      clock: parts.clock,
      epoch: parts.epoch,
      quotas: () => this.registry.operators().quotas.quotas,
      sidecars: () => this.registry.sidecarNames().length,
    });
    this.#door = new Door({
      bus: parts.inbound ?? parts.bus,
      clock: parts.clock,
      subjects: parts.subjects,
      admission: parts.admission,
      epoch: parts.epoch,
      registry: () => this.registry,
      commit: (change) => this.commit(change),
      commitInTime: (change) => this.inTime(this.commit(change)),
      onReport: (report) => {
        this.shifts.report(report);
        if (report.quotas !== undefined) this.#sharing.take(report.sidecar, report.quotas.demand);
      },
      stateSeq: (capability) => this.#stateSeq(capability),
      lastSeq: () => parts.mirror.lastSeq,
    });
    this.messages = new Messages({
      bus: parts.bus,
      inbound: parts.inbound ?? parts.bus,
      subjects: parts.subjects,
      clock: parts.clock,
      random: parts.random,
      logger: parts.logger,
      config: parts.messages,
      replicas: parts.replicas,
      epoch: parts.epoch,
      mirror: parts.mirror,
      registry: () => this.registry,
      write: (messages) => this.inTime(this.writer.write(messages)),
      latest: this.#latest,
      isHeld: () => this.#shrink.held !== null,
      restated: (statement, agent, sidecar) => this.identity?.restated(statement, agent, sidecar) ?? Promise.resolve(null),
    });
    this.identity =
      parts.identity == null
        ? null
        : new IdentityDesk({
            ...parts.identity,
            bus: parts.inbound ?? parts.bus,
            subjects: parts.subjects,
            clock: parts.clock,
            logger: parts.logger,
            epoch: parts.epoch,
            mirror: parts.mirror,
            registry: () => this.registry,
            write: (messages) => this.inTime(this.writer.write(messages)),
          });
    const { notices } = this.messages;
    this.alerts = new AlertWatch({
      clock: parts.clock,
      logger: parts.logger,
      random: parts.random,
      config: parts.alerts ?? DEFAULT_ALERTS,
      epoch: parts.epoch,
      traffic: parts.traffic ?? null,
      registry: () => this.registry,
      backlog: () => this.messages.backlog,
      stored: () => parts.mirror.state(Tail.alerts),
      write: (messages) => this.writer.write(messages),
      deliver: notices === null ? null : (told) => notices.deliver(told),
      onEvent: parts.onEvent,
    });
    this.#sweepAgain();
    this.#beaconAgain();
  }

  /** Where the shrink guard or the registry holds something back, in words; empty = nowhere. */
  get held(): readonly { readonly id: string; readonly reason: string; readonly sinceMs: number | null }[] {
    const held: { id: string; reason: string; sinceMs: number | null }[] = [];
    const leases = this.registry.held();
    if (leases !== null) held.push({ id: 'leases', reason: leases, sinceMs: null });
    const shrink = this.#shrink.held;
    if (shrink !== null) held.push({ id: 'takeover', reason: shrink.reason, sinceMs: shrink.sinceMs });
    return held;
  }

  /**
   * Writes what a step of the registry has changed; resolves when it is in force. Steps of one moment are written
   * together: two hundred sidecars that say hello at once touch the same capabilities, which are not to be worked out
   * two hundred times.
   */
  commit(change: Change): Promise<Written> {
    for (const event of change.events) this.#parts.onEvent(event);
    // What it says again may have been said a moment ago, and be on its way: it is in force when that is.
    if (isQuiet(change)) return this.#underway ?? Promise.resolve(NOTHING_CHANGED);
    this.messages.changed(change);
    for (const each of change.registrations) this.#dirty.registrations.add(each);
    for (const each of change.operators) this.#dirty.operators.add(each);
    for (const each of change.capabilities) this.#dirty.capabilities.add(each);
    for (const each of change.scopes) this.#dirty.scopes.add(each);
    if (this.#gathering === null) {
      this.#gathering = this.#gather();
      this.#follow(this.#gathering);
    }
    return this.#gathering;
  }

  #follow(gathering: Promise<Written>): void {
    const all = this.#underway === null ? gathering : allOf([this.#underway, gathering]);
    this.#underway = all;
    void all.then(() => {
      if (this.#underway === all) this.#underway = null;
    });
  }

  /** Sequence of the newest state of a capability; 0 = none is stored. */
  #stateSeq(name: string): number {
    const { mirror } = this.#parts;
    const shards = mirror.state<CapabilityState>(Tail.capability(name))?.shards ?? 1;
    let seq = 0;
    for (let shard = 0; shard < shards; shard++) seq = Math.max(seq, mirror.get(Tail.shard(name, shard))?.seq ?? 0);
    return seq;
  }

  async #gather(): Promise<Written> {
    // Whatever has come in together gets here in the same round of promises.
    await Promise.resolve();
    const { clock } = this.#parts;
    const until = clock.now() + GATHER_MOST_MS;
    while (this.#door.isCrowded && clock.now() < until && !this.#ended) await nextTurn();
    await this.#flushing;
    this.#gathering = null;
    const { registrations, operators, capabilities, scopes } = this.#dirty;
    this.#dirty = nothingDirty();
    const flushing = this.#flush([...registrations], [...operators], [...capabilities], [...scopes]);
    this.#flushing = flushing.worked;
    return flushing.written;
  }

  /** Works out and hands over, in slices; `worked` when all is handed over, `written` when all is in force. */
  #flush(
    registrations: readonly string[],
    operators: readonly OperatorsPart[],
    capabilities: readonly string[],
    scopes: readonly string[],
  ): { readonly worked: Promise<void>; readonly written: Promise<Written> } {
    const writings: Promise<Written>[] = [];
    const worked = this.#hand(writings, registrations, operators, capabilities, scopes);
    return { worked, written: worked.then(() => allOf(writings)) };
  }

  async #hand(
    writings: Promise<Written>[],
    registrations: readonly string[],
    operators: readonly OperatorsPart[],
    capabilities: readonly string[],
    scopes: readonly string[],
  ): Promise<void> {
    const none: Changed = { registrations: [], operators: [], capabilities: [], scopes: [] };
    writings.push(this.writer.write(inputMessages(this.registry, { ...none, registrations, operators })));
    if (operators.includes('quotas') || operators.includes('shifts'))
      writings.push(this.writer.write(steeringMessages(this.registry, this.#latest)));
    if (operators.includes('policies')) writings.push(this.writer.write(rulesMessages(this.registry, this.#latest)));
    if (capabilities.length <= SLICE) {
      writings.push(this.writer.write(this.#pushable({ ...none, capabilities, scopes })));
      return;
    }
    const lessening: string[] = [];
    for (let at = 0; at < capabilities.length && !this.#ended; at += SLICE) {
      if (at > 0) await nextTurn();
      const messages: Message[] = [];
      for (const name of capabilities.slice(at, at + SLICE)) {
        const { adding, taking } = capabilityMessages(this.registry, [name], this.#latest);
        if (taking.length > 0) lessening.push(name);
        messages.push(...adding);
      }
      writings.push(this.writer.write(this.#allowed(messages)));
    }
    writings.push(this.writer.write(this.#pushable({ ...none, scopes })));
    // What takes away comes last, and is worked out anew: the registry, and what is written, may be further by now.
    for (let at = 0; at < lessening.length && !this.#ended; at += SLICE) {
      await nextTurn();
      const { adding, taking } = capabilityMessages(this.registry, lessening.slice(at, at + SLICE), this.#latest);
      const fresh = adding.filter(({ tail, text }) => this.#latest(tail) !== text);
      writings.push(this.writer.write(this.#allowed([...fresh, ...taking])));
    }
  }

  /** An operator says that what is held back is true. */
  async confirm(): Promise<Written> {
    const written = await this.commit(this.registry.confirm());
    if (!this.#shrink.release() || !written.ok) return written;
    const all = await this.writer.write(this.#everything());
    return all.ok && written.seq > all.seq ? written : all;
  }

  /** The write, or after some seconds that it is not confirmed. */
  inTime(writing: Promise<Written>): Promise<Written> {
    return new Promise((done) => {
      const timer = this.#parts.clock.after(WRITE_MS, () =>
        done({ ok: false, why: 'NATS does not confirm it; it is written as soon as it can be' }),
      );
      void this.#settled(writing, timer, done);
    });
  }

  async #settled(writing: Promise<Written>, timer: Timer, done: (written: Written) => void): Promise<void> {
    const written = await writing;
    timer.cancel();
    done(written);
  }

  /**
   * Takes in what an export holds: sidecars that are not registered here, and the operators' state in place of the one
   * there is. A sentence when it cannot be read; nothing is changed then.
   */
  async import(
    registrations: readonly RegistrationState[],
    operators: OperatorsState,
    identities: readonly IdentityState[] = [],
    alerts: StoredAlerts | null = null,
  ): Promise<Written> {
    const { clock, leases } = this.#parts;
    const present = new Set(this.registry.sidecarNames());
    const added = registrations.filter(({ hello }) => !present.has(hello.sidecar)).map((each) => ({ ...each, epoch: this.epoch }));
    const all = [...[...present].map((name) => this.registry.registration(name)), ...added];
    const last = Math.max(operators.policies.last, this.registry.operators().policies.last);
    const taken: OperatorsState = {
      policies: { ...operators.policies, epoch: this.epoch, last },
      providers: { ...operators.providers, epoch: this.epoch },
      canary: { ...operators.canary, epoch: this.epoch },
      quotas: { ...operators.quotas, epoch: this.epoch },
      shifts: { ...operators.shifts, epoch: this.epoch },
    };
    const registry = new Registry(clock, leases);
    const troubles = registry.load(this.epoch, all, taken);
    if (troubles.length > 0) return { ok: false, why: troubles.join('; ') };
    this.registry = registry;
    this.messages.reload();
    const names = registry.sidecarNames();
    const inputs = inputMessages(registry, {
      registrations: names,
      operators: OPERATORS_PARTS,
      capabilities: [],
      scopes: [],
    });
    if (identities.length > 0) void this.identity?.takeIn(identities);
    if (alerts !== null) this.alerts.takeIn(alerts);
    return this.writer.write([...inputs, ...this.#everything()]);
  }

  end(why: string): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#door.close();
    this.messages.end();
    this.alerts.end();
    this.identity?.end();
    for (const timer of [this.#sweep, this.#beat, this.#soon, this.#recovery]) timer?.cancel();
    this.writer.close(why);
  }

  // ---- taking over

  #takeOver(): void {
    const { logger, mirror } = this.#parts;
    const reason = this.#judged();
    if (reason !== null) logger.error({ held: reason }, `held back: ${reason}; confirm it with: reachctl confirm`);
    const messages = reason === null ? this.#everything() : [];
    void this.writer.write(messages).then((written) => {
      if (written.ok) logger.info({ term: this.term, last_seq: mirror.lastSeq, compared: messages.length }, 'leading');
    });
  }

  /** Why what is pushed is not overwritten with what is derived; null = it may be. */
  #judged(): string | null {
    const { registry } = this;
    const { mirror, clock } = this.#parts;
    const stored = tallyOf(mirror.tails('cap.').flatMap((tail) => mirror.state<CapabilityState>(tail) ?? []));
    const derived = tallyOf(registry.capabilityNames().flatMap((name) => registry.capabilityStates(name)));
    return this.#shrink.judge(stored, derived, (agent) => registry.knowsAgent(agent), clock.now());
  }

  #everything(): Message[] {
    const { changed, voids } = everything(this.registry, this.#parts.mirror, this.epoch);
    return [
      ...rulesMessages(this.registry, this.#latest),
      ...steeringMessages(this.registry, this.#latest),
      ...pushedMessages(this.registry, changed, this.#latest),
      ...voids,
    ];
  }

  readonly #latest = (tail: string): string | null => this.writer.latest(tail);

  #pushable(changed: Changed): Message[] {
    return this.#allowed(pushedMessages(this.registry, changed, this.#latest));
  }

  /** What may be pushed now: while something is held back, only what takes no provider away. */
  #allowed(messages: Message[]): Message[] {
    if (this.#shrink.held === null) return messages;
    return messages.filter(({ tail, text }) => {
      if (!tail.startsWith('cap.')) return true;
      const before = this.#latest(tail);
      return before === null || keepsAll(before, text);
    });
  }

  // ---- time

  #sweepAgain(): void {
    this.#sweptAt = this.#parts.clock.now();
    this.#sweep = this.#parts.clock.after(SWEEP_MS, () => {
      if (this.#ended) return;
      // Nor while this process stood still (halted, or the machine asleep): the beats of that time are still to be read.
      const now = this.#parts.clock.now();
      if (now - this.#sweptAt > Math.max(HALTED_MS, this.#parts.leases.offlineMs / 4)) this.registry.grace();
      // Silence means nothing while nobody can be heard.
      if (this.#parts.bus.connected && this.writer.state === 'open') {
        void this.commit(this.registry.sweep());
        this.shifts.tick();
        this.#sharing.tick();
        this.alerts.tick();
        if (this.#shrink.held !== null) this.#reconsider();
        for (const order of this.registry.probesDue())
          void this.#parts.prober.run(order).then((isWell) => {
            if (!this.#ended) void this.commit(this.registry.probe(order.agent, isWell));
          });
      }
      this.#sweepAgain();
    });
  }

  /** What was missing may have registered again. */
  #reconsider(): void {
    if (this.#judged() !== null) return;
    this.#parts.logger.info('what was held back is no longer missing');
    void this.writer.write(this.#everything());
  }

  #beaconAgain(): void {
    this.#sayBeacon();
    this.#beat = this.#parts.clock.after(BEACON_MS, () => this.#beaconAgain());
  }

  #sayBeacon(): void {
    const { bus, subjects, mirror, clock } = this.#parts;
    if (this.#ended || this.writer.state !== 'open') return;
    const speech = this.registry.isEveryoneNamed() ? 'named' : 'asks';
    subjects.speech = speech;
    bus.publish(subjects.beacon, encode(this.#beacon.message(this.epoch, mirror.lastSeq, this.#serverAheadMs, clock.now(), speech)));
  }

  /** @param aheadMs the server's clock less ours, measured by whoever renews the lease. */
  set serverAheadMs(aheadMs: number) {
    this.#serverAheadMs = aheadMs;
  }

  // ---- the bus comes and goes

  /** The connection is there again: what was on its way may or may not be stored. */
  recover(): void {
    this.registry.grace();
    this.writer.pause('the connection to NATS was lost');
    this.#recoverIn(0);
  }

  #recoverIn(delayMs: number): void {
    if (this.#ended || this.#recovering) return;
    this.#recovery?.cancel();
    this.#recovery = this.#parts.clock.after(delayMs, () => void this.#recoverNow());
  }

  async #recoverNow(): Promise<void> {
    const { bus, subjects, mirror, logger } = this.#parts;
    if (this.#ended || this.#recovering || this.writer.state !== 'paused') return;
    if (!bus.connected) return this.#recoverIn(RECOVER_MS);
    this.#recovering = true;
    const read = await readConfig(bus, subjects);
    this.#recovering = false;
    if (this.#ended) return;
    if ('failed' in read) return this.#recoverIn(RECOVER_MS);
    if (read.epoch !== this.epoch) return this.#lost('the stream has been made anew');
    const foreign = read.entries.find(([tail, seq, text]) => seq > mirror.lastSeq && !this.writer.mayHaveWritten(tail, text));
    if (foreign !== undefined) return this.#lost(`another replica has written ${foreign[0]}`);
    const stored = read.entries.filter(([, seq]) => seq > mirror.lastSeq);
    mirror.replace(read.entries, read.lastSeq);
    this.#beacon.changed(
      stored.map(([tail, seq]) => [tail, seq] as const),
      this.#parts.clock.now(),
    );
    logger.info({ last_seq: read.lastSeq, pending: this.writer.pending }, 'NATS is back: writing what waited');
    this.writer.resume();
  }

  #lost(why: string): void {
    if (this.#ended) return;
    this.end(why);
    this.#parts.onLost(why);
  }
}

function keepsAll(before: string, after: string): boolean {
  const now = new Set((JSON.parse(after) as CapabilityState).providers.map(({ record }) => record.agentId));
  return (JSON.parse(before) as CapabilityState).providers.every(({ record }) => now.has(record.agentId));
}

async function allOf(writings: readonly Promise<Written>[]): Promise<Written> {
  let seq = 0;
  for (const written of await Promise.all(writings)) {
    if (!written.ok) return written;
    seq = Math.max(seq, written.seq);
  }
  return { ok: true, seq };
}
