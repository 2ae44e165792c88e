/**
 * The registry: who is there, what they promise, what operators say about it. Pure state behind one door: no I/O, the
 * clock passed in. Every verb gives a Change, which names what is to be written; saying the same thing again changes
 * nothing. Requests have been read (`requests.ts`) and their addresses judged (`address-guard.ts`) before they come here.
 */
import type { Clock } from '../../base/clock.ts';
import type { AgentRegistration, CapabilityState, Heartbeat, Hello, Leave, Refusal, Register, RegistrationState, Report, ScopeState } from '../../proto/wire/registry.ts';
import type { Change } from './change.ts';
import { capabilityStates, registrationState, scopeState } from './derive.ts';
import { type ApplyOptions, Desk, type DeskOutcome } from './desk.ts';
import { SidecarEntry } from './entries.ts';
import { isShared, type Judgement, judgeAgent, rivalsOf } from './judge.ts';
import { LeaseKeeper, type ProbeOrder } from './leases.ts';
import { loadRegistrations } from './load.ts';
import { Touch } from './marks.ts';
import type { AppliedDocument, OperatorsState } from './operators.ts';
import { refusal } from './requests.ts';
import { RegistryState } from './state.ts';
import { capabilityViews, providerViews, sidecarViews } from './view.ts';
import type { CapabilityView, ProviderView, RolloutView, SidecarView } from './views.ts';

export type { ApplyOptions } from './desk.ts';
export type { ProbeOrder } from './leases.ts';

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
  #leases: LeaseKeeper;
  #desk: Desk;

  constructor(clock: Clock, leases: Leases = DEFAULT_LEASES) {
    this.#clock = clock;
    this.#times = { ...DEFAULT_LEASES, ...leases };
    this.#state = new RegistryState(clock, this.#times);
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
  load(epoch: string, regs: readonly RegistrationState[], ops: OperatorsState, newness: (sidecar: string) => number = () => 0): readonly string[] {
    this.#state = new RegistryState(this.#clock, this.#times);
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

  hello(hello: Hello, refused: readonly Refusal[] = []): Change {
    const { marks } = this.#state;
    for (const each of refused) marks.refuse(each);
    if (refused.some((each) => each.agent === '')) return marks.take();
    const known = this.#state.sidecars.get(hello.sidecar);
    if (known !== undefined && this.#isTwin(known, hello.instance)) {
      const words = `another process calls itself ${hello.sidecar} and is the newer one: give each sidecar a name of its own`;
      marks.event({ kind: 'twin', agent: '', sidecar: hello.sidecar, why: '', words });
      marks.refuse(refusal('', [words]));
      return marks.take();
    }
    const isNewProcess = known?.instance !== hello.instance;
    const sidecar = this.#greet(known, hello);
    const unreadable = new Set(refused.map((each) => each.agent));
    const inForce = this.#registerAll(sidecar, hello.agents.filter(({ record }) => !unreadable.has(record.agentId)));
    const listed = new Set([...hello.agents.map(({ record }) => record.agentId), ...unreadable]);
    for (const entry of sidecar.agents.values()) {
      // a refused change of a process that goes on leaves what it had in force; a new process has nothing else
      if (inForce.has(entry.agentId) || (!isNewProcess && listed.has(entry.agentId))) continue;
      this.#state.setOffline(entry, 'left', `${entry.agentId} is no longer among what ${sidecar.name} hosts`);
    }
    return marks.take();
  }

  #isTwin(sidecar: SidecarEntry, instance: string): boolean {
    const isHeard = sidecar.leftAt === null && this.#clock.now() - sidecar.lastSignAt() < this.#times.offlineMs;
    return isHeard && sidecar.instance !== instance && sidecar.former.includes(instance);
  }

  /** The sidecar itself: its process, its place, its callers. */
  #greet(known: SidecarEntry | undefined, hello: Hello): SidecarEntry {
    const now = this.#clock.now();
    const sidecar = known ?? new SidecarEntry(hello, now, true);
    const touch = new Touch();
    if (known === undefined || known.leftAt !== null)
      this.#state.marks.event({ kind: 'sidecar-joined', agent: '', sidecar: hello.sidecar, why: '', words: `the sidecar ${hello.sidecar} joined` });
    if (known === undefined) {
      this.#state.sidecars.set(sidecar.name, sidecar);
      touch.registrations.add(sidecar.name);
      this.#state.scopes.refresh(sidecar);
      touch.scopes.add(sidecar.name);
    }
    const { callers } = hello;
    const callersChanged = sidecar.callers.length !== callers.length || sidecar.callers.some((caller, i) => caller !== callers[i]);
    if (sidecar.mesh !== hello.mesh)
      for (const entry of sidecar.agents.values()) if (entry.record.via !== null) for (const { name } of entry.record.offers) touch.capabilities.add(name);
    if (sidecar.instance !== hello.instance || sidecar.mesh !== hello.mesh || sidecar.region !== hello.region || sidecar.zone !== hello.zone || callersChanged)
      touch.registrations.add(sidecar.name);
    if (sidecar.instance !== hello.instance) sidecar.replace(hello.instance);
    sidecar.mesh = hello.mesh;
    sidecar.region = hello.region;
    sidecar.zone = hello.zone;
    sidecar.callers = callers;
    sidecar.beatAt = now;
    sidecar.knownAt = now;
    sidecar.leftAt = null;
    if (callersChanged && this.#state.scopes.refresh(sidecar)) touch.scopes.add(sidecar.name);
    this.#state.marks.touch(`sidecar:${sidecar.name}`, touch);
    return sidecar;
  }

  /** Agents may rely on contracts that others of the same hello bring, in any order. @returns those that are in force. */
  #registerAll(sidecar: SidecarEntry, agents: readonly AgentRegistration[]): Set<string> {
    const inForce = new Set<string>();
    let waiting = agents;
    let refusals: Refusal[] = [];
    for (let progress = true; progress && waiting.length > 0; ) {
      progress = false;
      refusals = [];
      const again: AgentRegistration[] = [];
      for (const agent of waiting) {
        const { refusal: refused, isAdmitted } = this.#registerOne(sidecar, agent);
        if (!isAdmitted) {
          again.push(agent);
          refusals.push(refused as Refusal);
          continue;
        }
        if (refused !== null) this.#state.marks.refuse(refused);
        inForce.add(agent.record.agentId);
        progress = true;
      }
      waiting = again;
    }
    for (const each of refusals) this.#state.marks.refuse(each);
    return inForce;
  }

  #registerOne(sidecar: SidecarEntry, agent: AgentRegistration): Judgement {
    const judgement = judgeAgent(this.#state, sidecar, agent);
    if (!judgement.isAdmitted) return judgement;
    const rivals = rivalsOf(this.#state, sidecar, agent.record.agentId);
    this.#state.install(sidecar, agent, judgement.contested);
    // the new one first, so that contracts which both hold are never without a holder
    for (const rival of rivals) if (!isShared(rival, agent.record)) this.#state.drop(rival, true);
    return judgement;
  }

  register(register: Register, refused: readonly Refusal[] = []): Change {
    const { marks } = this.#state;
    for (const each of refused) marks.refuse(each);
    if (refused.length > 0) return marks.take();
    const sidecar = this.#heard(register);
    if (sidecar === null) return marks.take();
    const { refusal: problem } = this.#registerOne(sidecar, register.agent);
    if (problem !== null) marks.refuse(problem);
    return marks.take();
  }

  /** The sidecar that asks, when it has said hello; else the refusal is noted. */
  #heard(from: { readonly sidecar: string; readonly instance: string }): SidecarEntry | null {
    const sidecar = this.#state.sidecars.get(from.sidecar);
    if (sidecar !== undefined && sidecar.instance === from.instance && sidecar.leftAt === null) {
      sidecar.beatAt = this.#clock.now();
      return sidecar;
    }
    this.#state.marks.refuse(refusal('', [`this process of ${from.sidecar} has not said hello here: say hello first`]));
    return null;
  }

  leave(leave: Leave): Change {
    const { marks } = this.#state;
    const sidecar = this.#heard(leave);
    if (sidecar === null) return marks.take();
    if (leave.agent !== null) {
      const entry = sidecar.agents.get(leave.agent);
      if (entry !== undefined) this.#state.setOffline(entry, 'left', `${leave.agent} said goodbye`);
      return marks.take();
    }
    sidecar.leftAt = this.#clock.now();
    marks.event({ kind: 'sidecar-left', agent: '', sidecar: sidecar.name, why: 'left', words: `the sidecar ${sidecar.name} said goodbye` });
    for (const entry of sidecar.agents.values()) {
      // a third party is reached without this sidecar: it stays for the rest of its lease, in which the sidecar may be back
      if (entry.record.via === null) entry.isOrphan = true;
      else this.#state.setOffline(entry, 'left', `${entry.agentId} left with its sidecar`);
    }
    return marks.take();
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
    return this.#order(this.#desk.setProvider(agentId, setting));
  }

  /** Null takes the shift back: the document's word counts again. */
  shiftCanary(capability: string, shares: Readonly<Record<string, number>> | null): OrderOutcome {
    return this.#order(this.#desk.shiftCanary(capability, shares));
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

  registration(sidecar: string): RegistrationState {
    return registrationState(this.#state, sidecar);
  }

  operators(): OperatorsState {
    return this.#desk.operators;
  }

  capabilityStates(name: string): CapabilityState[] {
    return capabilityStates(this.#state, this.#desk.operators, name);
  }

  scope(sidecar: string): ScopeState {
    return scopeState(this.#state, sidecar);
  }

  capabilityNames(): string[] {
    return [...this.#state.names()].sort();
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
