/**
 * Shifts of traffic as operators order them and as they go on: what may begin, which shares or weights each step sets, what
 * is put back. Whether one goes on is judged elsewhere (`guard.ts`), when is said by `runner.ts`.
 */
import { nearest } from '../../base/suggest.ts';
import { MAX_RUNNING_SHIFTS, type ShiftsState } from '../../proto/wire/shifts.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { recordSaid } from '../registry/derive.ts';
import { contractsSaid, policiesSaid } from '../registry/said.ts';
import type { SettingsDesk } from '../registry/settings-desk.ts';
import type { RegistryState } from '../registry/state.ts';
import { shareOf, sharesFor, weightsFor } from './placing.ts';
import { type Guard, isOver, noShifts, type Placing, type Shift, type ShiftStatus, type ShiftTarget, type StoredShifts } from './shift.ts';

/** What is ordered; it has been read, and its form is right. */
export interface ShiftOrder {
  readonly capability: string;
  readonly target: ShiftTarget;
  readonly steps: readonly number[];
  readonly everyMs: number;
  readonly guard: Guard | null;
  readonly reason: string;
  readonly author: string;
}

/** Those that are over and are kept to be looked at. */
const KEPT = 50;

export class ShiftDesk {
  readonly #state: RegistryState;
  readonly #settings: SettingsDesk;
  #stored: StoredShifts = noShifts('');

  constructor(state: RegistryState, settings: SettingsDesk) {
    this.#state = state;
    this.#settings = settings;
  }

  get stored(): StoredShifts {
    return this.#stored;
  }

  load(stored: StoredShifts): void {
    this.#stored = stored;
  }

  find(id: string): Shift | null {
    return this.#stored.shifts.find((one) => one.id === id) ?? null;
  }

  /** Those that run or are paused. */
  get underway(): readonly Shift[] {
    return this.#stored.shifts.filter((one) => !isOver(one));
  }

  /** What sidecars are to measure. */
  pushed(): ShiftsState {
    const watched = [...new Set(this.underway.map(({ capability }) => capability))].sort();
    return { wire: REGISTRY_WIRE, epoch: this.#state.epoch, watched };
  }

  /** Begins one with its first step; its id is `stored.shifts[0].id` afterwards. @returns why not */
  start(order: ShiftOrder): string | null {
    const problem = this.#problemWith(order);
    if (problem !== null) return problem;
    const before = this.#before(order);
    if (typeof before === 'string') return before;
    const last = this.#stored.last + 1;
    const now = this.#state.clock.wallMs();
    const begun: Shift = {
      ...order,
      id: `s${last}`,
      step: 0,
      before,
      set: before,
      status: 'running',
      startedAtMs: now,
      stepAtMs: now,
      endedAtMs: null,
      why: '',
    };
    const set = this.#place(begun, order.steps[0] as number);
    if (typeof set === 'string') return set;
    this.#store([{ ...begun, set }, ...this.#stored.shifts], last);
    return null;
  }

  advance(id: string): string | null {
    return this.#change(id, (begun) => {
      const step = begun.step + 1;
      const share = begun.steps[step];
      if (share === undefined) return `${id} is at its last step`;
      const shift = this.#withNewcomers(begun);
      const set = this.#place(shift, share);
      return typeof set === 'string' ? set : { ...shift, step, set, stepAtMs: this.#state.clock.wallMs(), why: '' };
    });
  }

  pause(id: string): string | null {
    return this.#change(id, (shift) => (shift.status === 'paused' ? `${id} is paused already` : { ...shift, status: 'paused' }));
  }

  /** Its step begins anew: what was measured before says nothing of now. */
  resume(id: string): string | null {
    return this.#change(id, (shift) =>
      shift.status === 'running' ? `${id} runs` : { ...shift, status: 'running', stepAtMs: this.#state.clock.wallMs(), why: '' },
    );
  }

  /** What it has reached stays; `isWhole`: its last step first. */
  finish(id: string, isWhole: boolean, why: string): string | null {
    return this.#change(id, (begun) => {
      if (!isWhole || begun.step === begun.steps.length - 1) return this.#ended(begun, 'finished', why);
      const shift = this.#withNewcomers(begun);
      const set = this.#place(shift, shift.steps.at(-1) as number);
      return typeof set === 'string' ? set : this.#ended({ ...shift, set, step: shift.steps.length - 1 }, 'finished', why);
    });
  }

  /** What was before it is in force again: an operator's word. */
  abort(id: string, why: string): string | null {
    return this.#change(id, (shift) => {
      this.#putBack(shift);
      return this.#ended(shift, 'aborted', why);
    });
  }

  /**
   * Its guard takes it back. What was before it is in force again, unless the target had more then than it has now: whoever
   * fails is not given more, but nothing.
   */
  rollBack(id: string, why: string): string | null {
    return this.#change(id, (shift) => {
      this.#putBack(shift);
      if (!this.#hadMore(shift)) return this.#ended(shift, 'rolled_back', why);
      const { capability, target } = shift;
      if (target.kind === 'provider') this.#settings.setProvider(target.name, { weight: 0 });
      else this.#settings.shiftCanary(capability, sharesFor(this.#effective(shift), this.#versions(capability), target.name, 0));
      return this.#ended(shift, 'rolled_back', `${why}; it gets nothing now, for before the shift it had more than with it`);
    });
  }

  /** Those of which somebody has set shares or weights by hand are over: a person's word counts more. @returns their ids */
  overtaken(): readonly string[] {
    const ids: string[] = [];
    for (const shift of this.underway) {
      if (this.#holds(shift)) continue;
      ids.push(shift.id);
      this.#change(shift.id, (one) => this.#ended(one, 'overtaken', 'shares or weights were set otherwise meanwhile; they count'));
    }
    return ids;
  }

  #problemWith({ capability, target, steps }: ShiftOrder): string | null {
    const state = this.#state;
    if (!state.knows(capability)) {
      const meant = state.canonical(capability);
      if (meant !== capability) return `${capability} is an alias: write ${meant}`;
      const near = nearest(capability, state.names());
      return `no capability is called ${capability}${near === null ? '' : `; did you mean ${near}?`}`;
    }
    if (steps.length === 0) return 'a shift needs at least one step';
    const running = this.underway.find((one) => one.capability === capability);
    if (running !== undefined)
      return `${capability} is being shifted already (${running.id}, by ${running.author}): finish or abort that first`;
    if (this.underway.length >= MAX_RUNNING_SHIFTS) return `${MAX_RUNNING_SHIFTS} shifts are under way, which is all there may be`;
    if (target.kind === 'version') {
      const versions = this.#versions(capability);
      if (versions.includes(target.name)) return null;
      return `${capability} has no version ${target.name}; it has ${versions.join(', ')}`;
    }
    const rival = this.underway.find((one) => Object.hasOwn(one.set.weights, target.name));
    if (rival !== undefined) return `the weight of ${target.name} is being shifted already (${rival.id}): finish or abort that first`;
    return null;
  }

  #versions(capability: string): string[] {
    return contractsSaid(capability, this.#state.book, this.#state.active).map(({ version }) => version);
  }

  /** What holds now of all that the shift may touch. */
  #before({ capability, target }: ShiftOrder): Placing | string {
    if (target.kind === 'version') return { shares: this.#state.canary[capability] ?? null, weights: {} };
    const parties = this.#parties(capability, target.name);
    if (typeof parties === 'string') return parties;
    const weights: Record<string, number | null> = {};
    for (const { agent } of [parties.target, ...parties.others]) weights[agent] = this.#weightSet(agent);
    return { shares: null, weights };
  }

  /** Whoever has come beside the target since it began loses its part by the next step too, and is to get it back. */
  #withNewcomers(shift: Shift): Shift {
    const { capability, target, before } = shift;
    const parties = target.kind === 'version' ? '' : this.#parties(capability, target.name);
    if (typeof parties === 'string') return shift;
    const weights = { ...before.weights };
    for (const { agent } of parties.others) if (!Object.hasOwn(weights, agent)) weights[agent] = this.#weightSet(agent);
    return { ...shift, before: { ...before, weights } };
  }

  /** By operators; null = that of its record. */
  #weightSet(agent: string): number | null {
    return (Object.hasOwn(this.#state.settings, agent) ? this.#state.settings[agent]?.weight : null) ?? null;
  }

  /** The provider, and those among which it has its part: that offer what it offers, in its tier. */
  #parties(capability: string, agent: string): { target: Party; others: Party[] } | string {
    const state = this.#state;
    const entry = state.entryOf(agent);
    const offered = (one: string): Set<string> =>
      new Set((state.entryOf(one)?.record.offers ?? []).filter(({ name }) => name === capability).map(({ version }) => version));
    const own = offered(agent);
    const all = [...(state.byCapability.get(capability) ?? [])].filter((one) => state.entryOf(one.agentId) === one && one.isOnline);
    if (entry === undefined || own.size === 0) {
      const near = nearest(
        agent,
        all.map(({ agentId }) => agentId),
      );
      return `no provider of ${capability} is called ${agent}${near === null ? '' : `; did you mean ${near}?`}`;
    }
    if (!entry.isOnline) return `${agent} is offline: nothing can be shifted to it`;
    const others = all.filter(
      (one) =>
        one.agentId !== agent &&
        one.record.tier === entry.record.tier &&
        !recordSaid(state, one.record).drain &&
        [...offered(one.agentId)].some((version) => own.has(version)),
    );
    if (others.length === 0)
      return `${agent} has nobody beside it: no other provider of ${capability} is online in the same version and tier`;
    return { target: this.#party(entry.agentId), others: others.map(({ agentId }) => this.#party(agentId)) };
  }

  #party(agent: string): Party {
    const record = this.#state.entryOf(agent)?.record;
    return { agent, weight: record === undefined ? 0 : recordSaid(this.#state, record).weight };
  }

  /** Sets what gives the target its share. */
  #place(shift: Shift, share: number): Placing | string {
    const { capability, target } = shift;
    if (target.kind === 'version') {
      const shares = sharesFor(this.#effective(shift), this.#versions(capability), target.name, share);
      const problem = this.#settings.shiftCanary(capability, shares);
      return problem ?? { shares, weights: {} };
    }
    const parties = this.#parties(capability, target.name);
    if (typeof parties === 'string') return parties;
    const weights: Record<string, number | null> = { ...shift.set.weights, ...weightsFor(parties.target, parties.others, share) };
    for (const [agent, weight] of Object.entries(weights)) {
      // It has left meanwhile: there is nobody to be given anything.
      if (weight === null && this.#state.entryOf(agent) === undefined) continue;
      const problem = this.#settings.setProvider(agent, { weight });
      if (problem !== null) return problem;
    }
    return { shares: null, weights };
  }

  /** The split that held before, an operator's or that of the policies. */
  #effective({ capability, before }: Shift): Readonly<Record<string, number>> | null {
    if (before.shares !== null) return before.shares;
    let said: Readonly<Record<string, number>> | null = null;
    for (const { canary } of policiesSaid(capability, this.#state.active, undefined)) said = canary ?? said;
    return said;
  }

  #putBack({ capability, target, before }: Shift): void {
    if (target.kind === 'version') {
      // A version of it may be gone by now: then what the policies say.
      if (this.#settings.shiftCanary(capability, before.shares) !== null) this.#settings.shiftCanary(capability, null);
    } else for (const [agent, weight] of Object.entries(before.weights)) this.#settings.setProvider(agent, { weight });
  }

  #hadMore(shift: Shift): boolean {
    const { capability, target, set } = shift;
    if (target.kind === 'version')
      return shareOf(this.#effective(shift), this.#versions(capability), target.name) > (set.shares?.[target.name] ?? 0);
    return this.#party(target.name).weight > (set.weights[target.name] ?? 0);
  }

  #holds({ capability, target, set }: Shift): boolean {
    if (target.kind === 'version') return JSON.stringify(this.#state.canary[capability] ?? null) === JSON.stringify(set.shares);
    return Object.entries(set.weights).every(([agent, weight]) => this.#weightSet(agent) === weight || !this.#state.byAgent.has(agent));
  }

  #ended(shift: Shift, status: ShiftStatus, why: string): Shift {
    return { ...shift, status, why, endedAtMs: this.#state.clock.wallMs() };
  }

  #change(id: string, act: (shift: Shift) => Shift | string): string | null {
    const shift = this.find(id);
    if (shift === null) return `no shift is called ${id}`;
    if (isOver(shift)) return `${id} is over: ${shift.status}`;
    const changed = act(shift);
    if (typeof changed === 'string') return changed;
    this.#store(
      this.#stored.shifts.map((one) => (one === shift ? changed : one)),
      this.#stored.last,
    );
    return null;
  }

  #store(shifts: readonly Shift[], last: number): void {
    let kept = 0;
    this.#stored = { wire: REGISTRY_WIRE, epoch: this.#state.epoch, last, shifts: shifts.filter((one) => !isOver(one) || ++kept <= KEPT) };
    this.#state.marks.operators('shifts');
  }
}

interface Party {
  readonly agent: string;
  readonly weight: number;
}
