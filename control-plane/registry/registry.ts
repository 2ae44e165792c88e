/**
 * The registry: who is there, what they promise, what operators say about it. Pure state behind one door: no I/O, the
 * clock passed in. Every verb gives a Change, which names what is to be written; saying the same thing again changes
 * nothing. Requests have been read (`requests.ts`) and their addresses judged (`address-guard.ts`) before they come here.
 */
import type { Clock } from '../../base/clock.ts';
import type {
  CapabilityState,
  Heartbeat,
  Hello,
  Leave,
  Refusal,
  Register,
  RegistrationState,
  Report,
  ScopeState,
} from '../../proto/wire/registry.ts';
import type { RuleWorld } from '../../proto/language/rule-lint.ts';
import type { RulesState } from '../../proto/wire/messages.ts';
import type { Quota, QuotaKind, QuotasState } from '../../proto/wire/quotas.ts';
import type { ShiftsState } from '../../proto/wire/shifts.ts';
import type { ShiftDesk } from '../shifts/desk.ts';
import type { Shift } from '../shifts/shift.ts';
import { type DocumentReading, type OperatorsDocument, ruleWorldWith } from '../rules/document.ts';
import type { Change } from './change.ts';
import { capabilityStates, registrationState, rulesState, scopeState } from './derive.ts';
import { type ApplyOptions, Desk, type DeskOutcome } from './desk.ts';
import { LeaseKeeper, type ProbeOrder } from './leases.ts';
import { loadRegistrations } from './load.ts';
import { Touch } from './marks.ts';
import type { AppliedDocument, OperatorsState } from './operators.ts';
import { Reception } from './reception.ts';
import { RegistryState } from './state.ts';
import { capabilityViews, providerViews, sidecarViews } from './view.ts';
import { ruleWorldOf } from './world.ts';
import { homeJudge, homesOf, isHostedAt, type Presence, presenceOf, type Worker, workersOf } from './workers.ts';
import type { CapabilityView, ProviderView, RolloutView, SidecarView } from './views.ts';

export interface Leases {
  /** How often sidecars beat. Default 45 s. */
  readonly heartbeatMs: number;
  /** Silence after which a provider is offline. Default 135 s: three missed beats. */
  readonly offlineMs: number;
  /** How long what is offline or retired stays known. Default a day. */
  readonly retentionMs?: number;
}

export const DEFAULT_LEASES: Required<Leases> = Object.freeze({ heartbeatMs: 45_000, offlineMs: 135_000, retentionMs: 86_400_000 });

export interface BeatOutcome {
  readonly change: Change;
  /** The sidecar is to say hello: it, its process or one of its agents is not known here. */
  readonly askHello: boolean;
}

/** What an operator's order came to; `problem` null = done (perhaps nothing changed). */
export interface OrderOutcome {
  readonly problem: string | null;
  readonly change: Change;
}

export interface PolicyOutcome extends DeskOutcome {
  readonly change: Change;
}

export class Registry {
  readonly #clock: Clock;
  readonly #times: Required<Leases>;
  #state: RegistryState;
  #reception: Reception;
  #leases: LeaseKeeper;
  #desk: Desk;

  constructor(clock: Clock, leases: Leases = DEFAULT_LEASES) {
    this.#clock = clock;
    this.#times = { ...DEFAULT_LEASES, ...leases };
    this.#state = new RegistryState(clock, this.#times);
    this.#reception = new Reception(this.#state);
    this.#leases = new LeaseKeeper(this.#state);
    this.#desk = new Desk(this.#state);
  }

  get epoch(): string {
    return this.#state.epoch;
  }

  /**
   * Starts anew from what is stored, after a restart or when this replica begins to lead. Everybody who was online has a
   * whole lease. Nothing counts as changed: compare `everything()` with what is stored.
   * @param newness of a sidecar's registration (its sequence): of two that claim one agent the newer one has it.
   * @returns what keeps it from leading (something stored that cannot be read); empty = fine.
   */
  load(
    epoch: string,
    regs: readonly RegistrationState[],
    ops: OperatorsState,
    newness: (sidecar: string) => number = () => 0,
  ): readonly string[] {
    this.#state = new RegistryState(this.#clock, this.#times);
    this.#reception = new Reception(this.#state);
    this.#leases = new LeaseKeeper(this.#state);
    this.#desk = new Desk(this.#state);
    this.#state.epoch = epoch;
    const troubles = [...this.#desk.load(ops), ...loadRegistrations(this.#state, regs, newness)];
    this.#state.marks.discard();
    return troubles;
  }

  /** All that can be written, as a change. */
  everything(): Change {
    const touch = new Touch();
    for (const name of this.#state.names()) touch.capabilities.add(name);
    for (const name of this.#state.byCapability.keys()) touch.capabilities.add(name);
    for (const name of this.#state.sidecars.keys()) {
      touch.registrations.add(name);
      touch.scopes.add(name);
    }
    this.#state.marks.atOnce(touch);
    return this.#state.marks.take();
  }

  /** @param refused agents of it that could not be read or whose address is not allowed. */
  hello(hello: Hello, refused: readonly Refusal[] = []): Change {
    this.#reception.hello(hello, refused);
    return this.#state.marks.take();
  }

  register(register: Register, refused: readonly Refusal[] = []): Change {
    this.#reception.register(register, refused);
    return this.#state.marks.take();
  }

  leave(leave: Leave): Change {
    this.#reception.leave(leave);
    return this.#state.marks.take();
  }

  heartbeat(beat: Heartbeat): BeatOutcome {
    const askHello = this.#leases.beat(beat);
    return { change: this.#state.marks.take(), askHello };
  }

  report(report: Report): Change {
    this.#desk.report(report);
    return this.#state.marks.take();
  }

  /** Everything that is due by now. To be called a few times a second; costs little when nothing is. */
  sweep(): Change {
    this.#leases.sweep();
    this.#desk.judge();
    for (const { kind, target } of this.#desk.quotas.sweep())
      this.#state.marks.event({
        kind: 'quota-over',
        agent: '',
        sidecar: '',
        why: '',
        words: `the quota of the ${kind} ${target} is over: its time has run out`,
      });
    this.#state.marks.release();
    return this.#state.marks.take();
  }

  /** A whole lease for everybody who is online: the bus was away, so silence meant nothing. */
  grace(): void {
    this.#leases.grace();
  }

  /** Why a sudden loss is held back; null = nothing is. */
  held(): string | null {
    return this.#leases.held;
  }

  /** An operator says that the loss is real. */
  confirm(): Change {
    this.#leases.confirm();
    return this.#state.marks.take();
  }

  probesDue(): readonly ProbeOrder[] {
    return this.#leases.probesDue();
  }

  probe(agentId: string, isWell: boolean): Change {
    this.#leases.probed(agentId, isWell);
    return this.#state.marks.take();
  }

  setProvider(agentId: string, setting: { readonly drain?: boolean | null; readonly weight?: number | null }): OrderOutcome {
    return this.#order(this.#desk.settings.setProvider(agentId, setting));
  }

  /** Null takes the shift back: the document's word counts again. */
  shiftCanary(capability: string, shares: Readonly<Record<string, number>> | null): OrderOutcome {
    return this.#order(this.#desk.settings.shiftCanary(capability, shares));
  }

  setQuota(quota: Quota): OrderOutcome {
    return this.#order(this.#desk.quotas.set(quota));
  }

  removeQuota(kind: QuotaKind, target: string): OrderOutcome {
    return this.#order(this.#desk.quotas.remove(kind, target));
  }

  /** What sidecars are told of quotas. */
  quotas(): QuotasState {
    return this.#desk.quotas.pushed();
  }

  /** What sidecars are told of shifts. */
  shifts(): ShiftsState {
    return this.#desk.shifts.pushed();
  }

  /** Newest first: all that run, and some that are over. */
  shiftList(): readonly Shift[] {
    return this.#desk.shifts.stored.shifts;
  }

  /** One step of a shift; what it changes is one change. */
  shift(act: (desk: ShiftDesk) => string | null): OrderOutcome {
    return this.#order(act(this.#desk.shifts));
  }

  /** Lets go of a contract before its day is over, when no agent that is online holds it. */
  forgetContract(capability: string, version: string): OrderOutcome {
    const known = this.#state.book.get(capability, version);
    if (known === undefined) return this.#order(`no contract ${capability}@${version} is known from agents`);
    const holder = [...known.holders].find((entry) => entry.isOnline);
    if (holder !== undefined) return this.#order(`${holder.agentId} is online and holds ${capability}@${version}`);
    for (const entry of known.holders) {
      const offers = entry.record.offers.some((offer) => offer.name === capability && offer.version === version);
      if (offers) this.#state.drop(entry, true);
      else entry.labels = entry.labels.filter((label) => label !== `${capability}@${version}`);
    }
    const touch = new Touch();
    for (const entry of known.holders) touch.registrations.add(entry.sidecar.name);
    this.#state.forgetContract(known, touch);
    this.#state.marks.atOnce(touch);
    return this.#order(null);
  }

  /** What `applyPolicies` would say and change. */
  previewPolicies(text: string, file?: string): PolicyOutcome {
    return { ...this.#desk.preview(text, file), change: this.#state.marks.take() };
  }

  applyPolicies(text: string, options: ApplyOptions): PolicyOutcome {
    const outcome = this.#desk.apply(text, options);
    return { ...outcome, change: this.#state.marks.take() };
  }

  /** Applies an old entry of the history as a new version. A roll-out that runs must be aborted first. */
  rollback(entry: AppliedDocument, author: string): PolicyOutcome {
    return this.applyPolicies(entry.text, { author, note: `rollback to version ${entry.version}`, file: `version ${entry.version}` });
  }

  /** Ends a roll-out: everybody uses the new version. */
  promote(options: { readonly force?: boolean } = {}): OrderOutcome {
    return this.#order(this.#desk.promote(options.force === true));
  }

  /** Ends a roll-out: nobody uses the new version. */
  abort(): OrderOutcome {
    return this.#order(this.#desk.abort());
  }

  widen(share: number): OrderOutcome {
    return this.#order(this.#desk.widen(share));
  }

  rollout(): RolloutView | null {
    return this.#desk.view();
  }

  #order(problem: string | null): OrderOutcome {
    return { problem, change: this.#state.marks.take() };
  }

  /** True when anything is known of the agent, be it offline: its going has a reason (`shrinks`). */
  knowsAgent(agentId: string): boolean {
    return this.#state.byAgent.has(agentId);
  }

  /** Agents that can be given messages of a capability. */
  workersOf(capability: string): Worker[] {
    return workersOf(this.#state, capability);
  }

  /** `<sidecar>/<instance>`: a sidecar that was started anew is another one. */
  processOf(sidecar: string): string {
    return `${sidecar}/${this.#state.sidecars.get(sidecar)?.instance ?? ''}`;
  }

  presenceOf(agent: string): Presence {
    return presenceOf(this.#state, agent);
  }

  /** Sidecars at which an agent is at home, the hosting one first. */
  homesOf(agent: string): string[] {
    return homesOf(this.#state, agent);
  }

  /** Of a sidecar's process that has said hello: why an agent is not at home there, null = it is. Null = it has not. */
  homeJudge(sidecar: string, instance: string): ((agent: string) => string | null) | null {
    return homeJudge(this.#state, sidecar, instance);
  }

  /** Whether a sidecar may ask about an agent. */
  isHostedAt(sidecar: string, agent: string): boolean {
    return isHostedAt(this.#state, sidecar, agent);
  }

  registration(sidecar: string): RegistrationState {
    return registrationState(this.#state, sidecar);
  }

  operators(): OperatorsState {
    return this.#desk.operators;
  }

  capabilityStates(name: string): CapabilityState[] {
    return capabilityStates(this.#state, this.#desk.operators, name);
  }

  rules(): RulesState {
    return rulesState(this.#state, this.#desk.operators);
  }

  /** What conditions of rules can be met by, as far as is registered. @param document with what it lays down. */
  ruleWorld(document: OperatorsDocument = this.#state.active): RuleWorld {
    return ruleWorldWith(document.contracts, ruleWorldOf(this.#state));
  }

  /** A document that is only looked at. */
  readPolicies(text: string, file: string): DocumentReading {
    return this.#desk.read(text, file);
  }

  scope(sidecar: string): ScopeState {
    return scopeState(this.#state, sidecar);
  }

  capabilityNames(): string[] {
    return [...this.#state.names()].sort();
  }

  /** Every sidecar that is there is of a version that knows subjects with names. */
  isEveryoneNamed(): boolean {
    for (const { isNamed, leftAt } of this.#state.sidecars.values()) if (!isNamed && leftAt === null) return false;
    return true;
  }

  /** It has been heard, and is of a version that does not. */
  isUnnamed(sidecar: string): boolean {
    const entry = this.#state.sidecars.get(sidecar);
    return entry !== undefined && !entry.isNamed && entry.leftAt === null && entry.beatAt !== null;
  }

  sidecarNames(): string[] {
    return [...this.#state.sidecars.keys()].sort();
  }

  sidecars(): SidecarView[] {
    return sidecarViews(this.#state);
  }

  providers(): ProviderView[] {
    return providerViews(this.#state);
  }

  capabilities(): CapabilityView[] {
    return capabilityViews(this.#state);
  }
}
