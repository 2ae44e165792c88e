/**
 * One provider × capability: the breaker, what is known of the provider as a whole, what its host has told us, and how
 * much weight it deserves at present. `choose` reads it, `attempt` takes a permit last of all gates and ends it once,
 * however the call ends. Reading takes no place; only `admit` does.
 */
import type { BreakerSettings } from '../../proto/language/settings.ts';
import { Breaker } from './breaker.ts';
import type { BreakerDump, BreakerListener, BreakerStateName, Outcome, Passage } from './breaker.ts';
import type { ProviderHealth, SlowStarting } from './provider.ts';
import type { Schedule, Timed } from './schedule.ts';

/** `yes` and `probe` can be chosen; the others say what is in the way. */
export type Usable = Passage | 'ejected' | 'offline';

export type Announce = (cell: HealthCell, from: BreakerStateName, to: BreakerStateName, why: string) => void;

/** A new provider's weight rises in this many steps, the first being one of them. */
export const SLOW_START_STEPS = 10;
/** Steps are taken on this grid, all that are due together: thousands that came within seconds would else change the view at every call. */
const SLOW_STEP_GRID_MS = 250;
/** Errors alone never take the weight below this share: to say "none" is the breaker's business, and a provider without traffic cannot redeem itself. */
export const MIN_ERROR_FACTOR = 0.05;
/** A change of the error ratio by this much is worth telling readers of. */
export const ERROR_RATIO_STEP = 0.1;
/** The longest that a host's word keeps us away without asking again. */
export const MAX_HOST_OPEN_MS = 600_000;

/** How long a provider that limits its callers and does not say for how long comes last. */
const PAUSE_MS = 1_000;

/** All that it knows beside its provider; instants on the `clock.now()` scale, null = none. */
export interface CellDump {
  readonly breaker: BreakerDump;
  readonly hostOpenUntil: number;
  readonly pausedUntil: number;
  readonly slowFactor: number;
  readonly nextSlowStepAt: number | null;
  readonly toldErrorRatio: number;
}

export class HealthCell implements Timed, BreakerListener, SlowStarting {
  readonly agentId: string;
  readonly capability: string;
  readonly provider: ProviderHealth;
  dueAt = Number.POSITIVE_INFINITY;
  /** Rises with all that a dump would tell; not with calls in flight, which are the provider's. */
  stamp = 0;
  readonly #breaker: Breaker;
  readonly #schedule: Schedule;
  readonly #announce: Announce;
  readonly #now: () => number;
  #slowStartMs: number;
  #slowFactor = 1;
  #nextSlowStepAt = Number.POSITIVE_INFINITY;
  /** The hosting sidecar's breaker is open until then; 0 = not so. */
  #hostOpenUntil = 0;
  /** The provider asked for a pause (429) until then: it comes last, after everybody else who is usable; 0 = none asked. */
  pausedUntil = 0;
  /** The error ratio that readers who cache the weight have last been told of. */
  #toldErrorRatio = 0;
  #forgotten = false;

  constructor(
    provider: ProviderHealth,
    capability: string,
    settings: BreakerSettings,
    slowStartMs: number,
    schedule: Schedule,
    announce: Announce,
    now: () => number,
  ) {
    this.agentId = provider.agentId;
    this.capability = capability;
    this.provider = provider;
    this.#schedule = schedule;
    this.#announce = announce;
    this.#now = now;
    this.#slowStartMs = slowStartMs;
    this.#breaker = new Breaker(settings, this);
    provider.cells.add(this);
    this.slowStartMoved(now());
  }

  /** Who may be chosen, and if not, why. Takes no permit. */
  usable(now: number): Usable {
    if (now >= this.#schedule.nextChangeAt) this.#schedule.advance(now);
    if (this.provider.offline) return 'offline';
    if (this.#hostOpenUntil > now) return 'breaker_open';
    if (this.#isEjected(now)) return 'ejected';
    return this.#breaker.passage();
  }

  /** A permit (> 0), or 0: `usable` says why. To be taken after every other gate, and ended exactly once. */
  admit(now: number): number {
    if (now >= this.#schedule.nextChangeAt) this.#schedule.advance(now);
    if (this.provider.offline || this.#hostOpenUntil > now || this.#isEjected(now)) return 0;
    if (this.#breaker.stateName !== 'closed') this.stamp++;
    return this.#breaker.admit(now);
  }

  /** For `panic: true`: a permit whatever the state. It counts where the state listens, else its end is of no consequence. */
  force(now: number): number {
    if (now >= this.#schedule.nextChangeAt) this.#schedule.advance(now);
    this.stamp++;
    return this.#breaker.force(now);
  }

  /**
   * The call has ended. `durationMs`: to the first chunk for streams. `success`: the provider answered, a caller error
   * included; `ignored`: no verdict (cancelled, refused elsewhere), the place is given back.
   */
  end(permit: number, outcome: Outcome, durationMs: number, now: number): void {
    if (now >= this.#schedule.nextChangeAt) this.#schedule.advance(now);
    this.stamp++;
    if (outcome === 'success') this.provider.connected(now);
    this.#breaker.end(permit, outcome, durationMs, now);
    if (this.#breaker.window.failures !== 0 || this.#toldErrorRatio !== 0) this.#tellErrorRatio();
  }

  /** A chunk came: a long stream that is a probe is not given up for lost. Costs one compare when closed. */
  progress(permit: number, now: number): void {
    if (now >= this.#schedule.nextChangeAt) this.#schedule.advance(now);
    if (this.#breaker.stateName !== 'closed') this.stamp++;
    this.#breaker.progress(permit, now);
  }

  connectFailed(now: number): void {
    this.provider.connectFailed(now);
  }

  timedOut(now: number): void {
    this.provider.timedOut(now);
  }

  /** An answer came that is no success of the call (success reports it by itself). */
  connected(now: number): void {
    this.provider.connected(now);
  }

  /** The hosting sidecar said that its breaker is open until `at` (`clock.now()` scale). The latest word counts; junk does not. */
  ejectUntil(at: number): void {
    const now = this.#now();
    if (Number.isNaN(at)) return;
    this.#hostOpenUntil = at > now ? Math.min(at, now + MAX_HOST_OPEN_MS) : 0;
    this.#setDue();
    this.#schedule.bump();
  }

  /** The provider limits its callers: others are preferred for so long. Without a time of its own, for a second. */
  pause(ms: number, now: number): void {
    this.stamp++;
    if (this.pausedUntil <= now) this.#schedule.bump();
    this.pausedUntil = now + Math.min(ms > 0 ? ms : PAUSE_MS, MAX_HOST_OPEN_MS);
  }

  /** 0–1, to be multiplied with the configured weight: slow start × recent success ratio (once there are `minCalls` samples). */
  weightFactor(now: number): number {
    if (now >= this.#schedule.nextChangeAt) this.#schedule.advance(now);
    if (this.#breaker.window.failures === 0) return this.#slowFactor;
    this.#breaker.window.roll(now);
    const { calls, failures } = this.#breaker.window;
    if (failures === 0 || calls < this.#breaker.settings.minCalls) return this.#slowFactor;
    // Not rounded: readers that do not cache see every sample.
    return this.#slowFactor * Math.max(MIN_ERROR_FACTOR, 1 - failures / calls);
  }

  get stateName(): BreakerStateName {
    return this.#breaker.stateName;
  }

  /** Why the breaker opened last; '' when it never did. */
  get why(): string {
    return this.#breaker.why;
  }

  get settings(): BreakerSettings {
    return this.#breaker.settings;
  }

  /** `clock.now()` scale; null unless the breaker is open. */
  get openedAt(): number | null {
    return this.#breaker.openedAt;
  }

  /** When the next call may pass as a probe, or the host may be asked again; null when neither is open. */
  reopensAt(now: number): number | null {
    const own = this.#breaker.reopensAt;
    if (this.#hostOpenUntil <= now) return own;
    return own === null ? this.#hostOpenUntil : Math.max(own, this.#hostOpenUntil);
  }

  /** How long a caller had better wait, ms: open breaker, host's word or ejection; 0 = nothing known. */
  retryAfterMs(now: number): number {
    const at = Math.max(this.reopensAt(now) ?? 0, this.#isEjected(now) ? this.provider.ejectedUntil : 0);
    return at > now ? at - now : 0;
  }

  /** Probes or ramped calls in flight; 0 when closed or open. */
  get limitedInFlight(): number {
    return this.#breaker.limitedInFlight;
  }

  get probeSuccesses(): number {
    return this.#breaker.probeSuccesses;
  }

  callsInWindow(now: number): number {
    this.#breaker.window.roll(now);
    return this.#breaker.window.calls;
  }

  failuresInWindow(now: number): number {
    this.#breaker.window.roll(now);
    return this.#breaker.window.failures;
  }

  slowInWindow(now: number): number {
    this.#breaker.window.roll(now);
    return this.#breaker.window.slow;
  }

  /** 0–1; 0 without samples. */
  errorRatio(now: number): number {
    const calls = this.callsInWindow(now);
    return calls === 0 ? 0 : this.#breaker.window.failures / calls;
  }

  /** 0–1; 0 without samples. */
  slowRatio(now: number): number {
    const calls = this.callsInWindow(now);
    return calls === 0 ? 0 : this.#breaker.window.slow / calls;
  }

  /** New settings from a table push: state, samples and permits stay. */
  configure(settings: BreakerSettings, slowStartMs: number, now: number): void {
    if (!sameBreaker(settings, this.#breaker.settings)) this.#breaker.configure(settings, now);
    if (slowStartMs !== this.#slowStartMs) {
      this.#slowStartMs = slowStartMs;
      this.slowStartMoved(now);
    }
  }

  dump(): CellDump {
    return {
      breaker: this.#breaker.dump(),
      hostOpenUntil: this.#hostOpenUntil,
      pausedUntil: this.pausedUntil,
      slowFactor: this.#slowFactor,
      nextSlowStepAt: this.#nextSlowStepAt === Number.POSITIVE_INFINITY ? null : this.#nextSlowStepAt,
      toldErrorRatio: this.#toldErrorRatio,
    };
  }

  /** Goes on from there, under the settings that it has; null = from a beginning without any calls, warmed up. */
  restore(dump: CellDump | null): void {
    this.#breaker.restore(dump?.breaker ?? NEW_BREAKER);
    this.#hostOpenUntil = dump?.hostOpenUntil ?? 0;
    this.pausedUntil = dump?.pausedUntil ?? 0;
    this.#slowFactor = dump?.slowFactor ?? 1;
    this.#nextSlowStepAt = dump?.nextSlowStepAt ?? Number.POSITIVE_INFINITY;
    this.#toldErrorRatio = dump?.toldErrorRatio ?? 0;
    this.#setDue();
    this.#schedule.bump();
  }

  /** See `Breaker.isBad`. */
  isBad(now: number): boolean {
    return this.#breaker.isBad(now);
  }

  /** See `Breaker.rejudge`. */
  rejudge(now: number, wasBad: boolean): boolean {
    const moved = this.#breaker.rejudge(now, wasBad);
    if (moved) this.roomChanged();
    return moved;
  }

  /** Removed from the table: calls under way may still end, but nobody hears of it. */
  forget(): void {
    this.#forgotten = true;
    this.provider.cells.delete(this);
    this.#schedule.forget(this);
  }

  advance(now: number): void {
    this.#breaker.advance(now);
    if (this.#hostOpenUntil <= now) this.#hostOpenUntil = 0;
    if (this.#nextSlowStepAt <= now) this.#slowStep(now);
    this.#setDue();
  }

  breakerMoved(from: BreakerStateName, to: BreakerStateName, why: string): void {
    this.roomChanged();
    if (!this.#forgotten) this.#announce(this, from, to, why);
  }

  roomChanged(): void {
    this.#setDue();
    this.#schedule.bump();
  }

  slowStartMoved(now: number): void {
    this.#slowStep(now);
    this.#setDue();
    this.#schedule.bump();
  }

  /** Bumps `version` when the ratio has moved by a tenth, or is gone: not per call, or nobody could cache anything. */
  #tellErrorRatio(): void {
    const { calls, failures } = this.#breaker.window;
    const ratio = calls < this.#breaker.settings.minCalls ? 0 : failures / calls;
    if (Math.abs(ratio - this.#toldErrorRatio) < ERROR_RATIO_STEP && (ratio !== 0 || this.#toldErrorRatio === 0)) return;
    this.#toldErrorRatio = ratio;
    this.#schedule.bump();
  }

  /** A breaker that has judged knows more than a few failures in a row: it names the refusal, and its probes pass. */
  #isEjected(now: number): boolean {
    return this.provider.ejectedUntil > now && this.#breaker.stateName === 'closed';
  }

  /** Step i of ten (from 0) gives (i + 1) / 10. */
  #slowStep(now: number): void {
    const from = this.provider.slowStartAt;
    const stepMs = this.#slowStartMs / SLOW_START_STEPS;
    let step = 0;
    while (step < SLOW_START_STEPS - 1 && now >= from + (step + 1) * stepMs) step++;
    this.#slowFactor = (step + 1) / SLOW_START_STEPS;
    this.#nextSlowStepAt = step === SLOW_START_STEPS - 1 ? Number.POSITIVE_INFINITY : from + (step + 1) * stepMs;
  }

  #setDue(): void {
    this.stamp++;
    if (this.#forgotten) return;
    let due = this.#breaker.dueAt;
    if (this.#nextSlowStepAt < due) due = Math.min(due, onGrid(this.#nextSlowStepAt));
    if (this.#hostOpenUntil > 0 && this.#hostOpenUntil < due) due = this.#hostOpenUntil;
    this.dueAt = due;
    this.#schedule.schedule(this);
  }
}

const NEW_BREAKER: BreakerDump = Object.freeze({ state: Object.freeze({ name: 'closed' as const }), why: '', window: null });

function onGrid(at: number): number {
  return at === Number.POSITIVE_INFINITY ? at : Math.ceil(at / SLOW_STEP_GRID_MS) * SLOW_STEP_GRID_MS;
}

function sameBreaker(a: BreakerSettings, b: BreakerSettings): boolean {
  return (
    a === b ||
    (a.enabled === b.enabled &&
      a.failureRatio === b.failureRatio &&
      a.windowMs === b.windowMs &&
      a.slowRatio === b.slowRatio &&
      a.slowCallMs === b.slowCallMs &&
      a.minCalls === b.minCalls &&
      a.openMs === b.openMs &&
      a.probes === b.probes &&
      a.successes === b.successes &&
      a.rampStepMs === b.rampStepMs &&
      a.ramp.length === b.ramp.length &&
      a.ramp.every((limit, step) => limit === b.ramp[step]))
  );
}
