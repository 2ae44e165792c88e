/**
 * A sidecar's side of the registry, put together: the table that is pushed to it, what it announces, what it reports. One
 * object that is started before the ports are open (the table may come from disk) and told the mesh address when they are.
 * It makes no difference to it whether a whole sidecar stands around it or only a table, as in the push benchmark.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Random } from '../../base/random.ts';
import type { ProviderRecord } from '../../proto/language/types.ts';
import type { TrustState } from '../../proto/wire/identity.ts';
import type { QuotasState } from '../../proto/wire/quotas.ts';
import type { AgentRegistration, Report } from '../../proto/wire/registry.ts';
import type { ShiftsState } from '../../proto/wire/shifts.ts';
import { type Subjects, Tail } from '../../proto/wire/subjects.ts';
import { NO_TRUST, Trust } from '../../proto/wire/token.ts';
import { AgentsFile } from './agents-file.ts';
import { Announcer, type Self } from './announce.ts';
import type { RegistryBus } from './bus.ts';
import type { SyncCounters } from './copy.ts';
import { DurableFile } from './durable-file.ts';
import { HeldFile } from './held-file.ts';
import { Homes } from './homes.ts';
import type { InstalledTable } from './installed.ts';
import { Newcomers } from './newcomers.ts';
import { type OwnAgent, OwnAgents, type OwnSource, type OwnState } from './own-agents.ts';
import { OwnFile } from './own-file.ts';
import { type Condition, OwnProbes } from './own-probes.ts';
import { OverridesInForce, type OverridesStatus } from './overrides-in-force.ts';
import { Reporter } from './reporter.ts';
import { TableSync } from './sync.ts';
import type { TailState } from './tail-state.ts';
import { Tails } from './tails.ts';
import { TailsFile } from './tails-file.ts';
import { quotasTail, shiftsTail } from './steering-tails.ts';
import { trustTail } from './trust-tail.ts';
import { isRegistrationUsable, tryOutFor } from './try-out.ts';
import { RulesInForce } from './rules-in-force.ts';
import { RulesTail, type RulesView, workState, type WorkView } from './work-view.ts';

export interface RegistryParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly env: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly table: InstalledTable;
  readonly self: Self;
  readonly staleAfterMs: number;
  /** Where what must outlive a restart is kept, as paths without an ending; null = nothing is kept. */
  readonly keepAt: string | null;
  /** Version of this program. */
  readonly version: string;
  readonly unreachable: (record: ProviderRecord) => string | null;
  /** Asks an agent of this sidecar how it is; absent = nobody is asked. */
  readonly askHealth?: (url: string, timeoutMs: number) => Promise<Condition>;
  /** The sidecar's own token, read anew each time; null or absent = there are no issued identities here. */
  readonly token?: (() => string) | null;
}

/** Issued identities, as the registry's client has them. */
export interface IdentityClient {
  /** In force at present. */
  readonly trust: Trust;
  readonly homes: Homes;
  readonly newcomers: Newcomers;
  /** Called after each change from now on. */
  onTrust: (trust: Trust) => void;
}

/** What can be seen of it. */
export interface RegistryStatus {
  readonly connected: boolean;
  readonly reconnects: number;
  readonly epoch: string;
  readonly applied_seq: number;
  readonly confirmed: boolean;
  readonly scope: number;
  /** Milliseconds since the last beacon; null = none was heard. */
  readonly beacon_ago_ms: number | null;
  readonly stale_for_ms: number;
  readonly counters: SyncCounters;
  readonly refused: readonly { readonly tail: string; readonly seq: number; readonly why: string }[];
  readonly kept: readonly { readonly capability: string; readonly provider: string }[];
  readonly announced: boolean;
  readonly announce_trouble: string | null;
  readonly agents: Readonly<Record<OwnState, number>>;
  /** Why the newest own file is not what is announced; null = it is. */
  readonly own_file_trouble: string | null;
  /** Providers that the registry names and this sidecar cannot reach. */
  readonly unusable: readonly { readonly provider: string; readonly why: string }[];
  /** Operators' emergency rules. */
  readonly overrides: OverridesStatus;
  /** Issued identities; absent = there are none here. */
  readonly identity?: {
    readonly trusted_keys: number;
    /** Agents for which there is a statement that they are at home here. */
    readonly homes: number;
    readonly homes_trouble: string | null;
    /** Agents that are given none, and why. */
    readonly homes_refused: Readonly<Record<string, string>>;
  };
}

const TICK_MS = 1_000;

export class RegistryClient {
  readonly own = new OwnAgents();
  readonly sync: TableSync;
  readonly announcer: Announcer;
  readonly ownFile: OwnFile;
  readonly reporter: Reporter;
  /** On which pools the agents of this sidecar work. */
  readonly work: WorkView;
  /** The rules for messages. */
  readonly rules: RulesView;
  /** The same, compiled and counted. */
  readonly ruling: RulesInForce;
  /** Operators' emergency rules, as they are in force here. */
  readonly overrides: OverridesInForce;
  /** Quotas that operators set at run time. */
  readonly quotas: TailState<QuotasState>;
  /** Capabilities whose traffic is being shifted. */
  readonly shifts: TailState<ShiftsState>;
  /** null = none are issued here. */
  readonly identity: IdentityClient | null;
  readonly #tails: Tails;
  readonly #parts: RegistryParts;
  readonly #agentsFile: AgentsFile | null;
  readonly #probes: OwnProbes | null;
  #timer: Timer | null = null;

  constructor(parts: RegistryParts) {
    const { bus, subjects, clock, random, log, table, self, keepAt } = parts;
    this.#parts = parts;
    const file =
      keepAt === null ? null : new HeldFile(new DurableFile(`${keepAt}.registry`), parts.env, Tail.scope(self.sidecar), clock, log);
    const here = { name: self.sidecar, region: self.region, zone: self.zone };
    const tryOut = tryOutFor(clock, here);
    const isUsable = (registration: AgentRegistration): boolean => isRegistrationUsable(registration, tryOut);
    this.#agentsFile = keepAt === null ? null : new AgentsFile(new DurableFile(`${keepAt}.agents`), log, isUsable);
    this.sync = new TableSync(
      { bus, subjects, clock, random, log, table, own: this.own, file, unreachable: parts.unreachable },
      { here, staleAfterMs: parts.staleAfterMs, leaseMs: self.leaseMs },
    );
    const activity = (agentId: string) => table.healthOf(agentId);
    const work = workState(self.sidecar);
    const rules = new RulesTail(self.sidecar);
    const quotas = quotasTail();
    const shifts = shiftsTail();
    const trust = parts.token == null ? null : trustTail(parts.env);
    this.work = work;
    this.rules = rules;
    this.quotas = quotas;
    this.shifts = shifts;
    this.ruling = new RulesInForce(rules, clock);
    this.#tails = new Tails(
      {
        bus,
        subjects,
        clock,
        random,
        file: keepAt === null ? null : new TailsFile(new DurableFile(`${keepAt}.tails`), parts.env, clock, log),
        onRefused: (tail, seq, why) => this.sync.refuse(tail, seq, why),
        onTaken: (tail) => this.sync.standing.accept(tail),
      },
      trust === null ? [work, rules, quotas, shifts] : [work, rules, quotas, shifts, trust],
    );
    this.overrides = new OverridesInForce({
      bus,
      subjects,
      env: parts.env,
      clock,
      random,
      log,
      table,
      sidecar: self.sidecar,
      instance: self.instance,
      file: keepAt === null ? null : new DurableFile(`${keepAt}.overrides`),
    });
    this.announcer = new Announcer({ bus, subjects, clock, random, log, own: this.own, activity }, self);
    this.identity = trust === null || parts.token == null ? null : this.#identify(trust, parts.token);
    this.#probes =
      parts.askHealth === undefined
        ? null
        : new OwnProbes({
            own: this.own,
            clock,
            log,
            activity,
            ask: parts.askHealth,
            onLost: (agent) => this.announcer.lost(agent),
            onBack: (agent) => void this.announcer.beat(agent.agentId),
          });
    this.ownFile = new OwnFile(this.announcer);
    this.reporter = new Reporter({
      bus,
      subjects,
      clock,
      table,
      sync: this.sync,
      sidecar: self.sidecar,
      instance: self.instance,
      version: parts.version,
      rules: this.ruling,
      work,
      overrides: this.overrides,
      quotas,
    });
    quotas.onChange(() => this.reporter.changed());
    this.overrides.onChange = () => this.reporter.changed();
    rules.onChange(() => this.reporter.changed());
    work.onChange(() => this.reporter.changed());
    this.sync.onLeader = (why, epoch) => this.announcer.leaderIs(why, epoch);
    this.sync.onBeacon = (beacon) => this.#tails.beacon(beacon);
    this.sync.onChange = () => this.reporter.changed();
  }

  /** Puts the copy on disk into force, if there is one, and goes on from there in the background. */
  start(): void {
    this.#agentsFile?.attach(this.own, this.#parts.clock.now());
    // Before the table: what is blocked is not to be let through while the rest is being read.
    this.overrides.start();
    this.sync.start();
    this.#tails.start();
    this.reporter.start();
    this.#tick();
  }

  /** The ports are open: tells the registry who is here. */
  announce(mesh: string | null): void {
    this.announcer.start(mesh);
    this.#probes?.start();
  }

  /** Registers one agent; resolves when it can be called here, or is refused. `pending`: the control plane is told later. */
  async register(registration: AgentRegistration, source: OwnSource): Promise<OwnAgent> {
    const agent = await this.announcer.register(registration, source);
    await this.sync.settled();
    return agent;
  }

  /** Why this sidecar cannot reach a provider that it would have to reach itself; null = it can. */
  unreachable(record: ProviderRecord): string | null {
    return this.#parts.unreachable(record);
  }

  /** This process, as the control plane calls it. */
  get self(): string {
    const { sidecar, instance } = this.#parts.self;
    return `${sidecar}/${instance}`;
  }

  report(): Report {
    return this.reporter.report();
  }

  status(): RegistryStatus {
    const { sync, announcer } = this;
    const { standing } = sync;
    const agoMs = this.#parts.clock.now() - standing.lastBeaconAt;
    return {
      connected: standing.connected,
      reconnects: sync.counters.reconnects,
      epoch: sync.epoch,
      applied_seq: sync.appliedSeq,
      confirmed: sync.confirmed,
      scope: sync.scopeSize,
      beacon_ago_ms: Number.isFinite(agoMs) ? Math.round(agoMs) : null,
      stale_for_ms: Math.round(standing.staleForMs()),
      counters: sync.counters,
      refused: standing.refused(),
      kept: sync.kept,
      announced: announcer.isKnown,
      announce_trouble: announcer.trouble === '' ? null : announcer.trouble,
      agents: this.own.counts(),
      own_file_trouble: this.ownFile.staleBecause === '' ? null : this.ownFile.staleBecause,
      unusable: sync.unusable,
      overrides: this.overrides.status(),
      ...this.#identityStatus(),
    };
  }

  #identityStatus(): Pick<RegistryStatus, 'identity'> {
    if (this.identity === null) return {};
    const { trust, homes } = this.identity;
    return {
      identity: {
        trusted_keys: trust.size,
        homes: homes.size,
        homes_trouble: homes.trouble === '' ? null : homes.trouble,
        homes_refused: Object.fromEntries(homes.refused),
      },
    };
  }

  #identify(tail: TailState<TrustState>, token: () => string): IdentityClient {
    const { bus, subjects, env, clock, log, self, keepAt } = this.#parts;
    const { announcer, own, sync } = this;
    const homes = new Homes({
      bus,
      subjects,
      env,
      clock,
      log,
      sidecar: self.sidecar,
      instance: self.instance,
      token,
      wanted: () => [...announcer.callers, ...[...own.all()].filter(({ state }) => state !== 'refused').map(({ agentId }) => agentId)],
      isAdmitted: () => announcer.isAdmitted,
      file: keepAt === null ? null : new DurableFile(`${keepAt}.homes`),
    });
    const newcomers = new Newcomers({
      clock,
      meet: (agent) => announcer.meet(agent),
      isConnected: () => bus.connected,
      isThrough: (seq) => sync.isThrough(seq),
    });
    const identity = { trust: NO_TRUST, homes, newcomers, onTrust: (_trust: Trust): void => {} };
    tail.onChange((state) => {
      const trust = new Trust(state);
      identity.trust = trust;
      identity.onTrust(trust);
      homes.trust(trust);
    });
    announcer.onHello = (seq) => {
      homes.again();
      if (announcer.isEveryCallerTold) newcomers.helloTaken(seq);
    };
    return identity;
  }

  /** Leaves the registry, waiting for it no longer than this; the table stays in force. */
  async leave(withinMs: number): Promise<void> {
    this.#probes?.stop();
    this.own.leave();
    await this.announcer.goodbye(withinMs);
  }

  /** Resolves when what must outlive a restart is on disk. */
  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#probes?.stop();
    this.announcer.stop();
    this.reporter.stop();
    await this.sync.stop();
    await this.#tails.stop();
    await this.overrides.stop();
    await this.identity?.homes.flush();
    await this.#agentsFile?.flush();
  }

  #tick(): void {
    this.#timer = this.#parts.clock.after(TICK_MS, () => {
      this.sync.tick();
      this.identity?.homes.look();
      this.#tick();
    });
  }
}
