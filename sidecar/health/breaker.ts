/**
 * The breaker's state machine: who may pass now, and what the end of a call changes.
 *
 * Two signals, because services die in two ways. A failure ratio sees the crash and the bug; it is blind to the
 * provider that still answers, but so late that callers pile up behind it, so a slow-call ratio looks at durations
 * (whatever the outcome: a slow success and a slow failure both count). Streams are judged by their first chunk.
 *
 *     closed ──ratio reached, enough samples──▶ open ──openMs──▶ half_open ──`successes` good probes──▶ ramping ──time──▶ closed
 *                                                ▲                   │ one failed, slow or lost probe      │ still bad
 *                                                └───────────────────┴────────────────────────────────────┘
 *
 * - **Trips** when the window holds `minCalls` samples and either ratio is reached.
 * - **Recovers** by time alone: nothing a call does can lengthen or cancel an open period. Then at most `probes` calls
 *   are in flight at once, counted from the very instant of the transition. `successes` good ones clear the window and
 *   start the ramp: at most `ramp[i]` calls in flight in step i, so that a service that has just got up is not run over.
 * - **Ramp.** It opens again after `probes` (at least two) bad calls in a row, or when at least `probes` are bad *and* a
 *   ratio is reached. A plain count would never let a provider with one error in a thousand come back under load.
 *
 * The odd cases:
 * - Fifty calls fail in one tick: the tenth opens it, the other forty belong to the time before and change nothing.
 *   Permits are serial numbers; opening draws a line, and an end from below the line is not listened to.
 * - A probe that ends without a verdict (cancelled, refused further on) gives its place back, no more.
 * - A probe nobody ends (the caller forgot, the adapter hangs) counts as failed when its limit is over, from that
 *   instant, even when this is noticed an hour later; its late end is below the line.
 * - A long stream through half-open is no lost probe: `progress` restarts its limit.
 * - Probes still under way when the ramp starts occupy places of its first step.
 * - Switched off, it lets everything pass and keeps measuring; switching off closes it, for nobody would open it again.
 *
 * Left alone here: which provider, ejection, slow start (cell.ts), whether a given answer is a failure (`attempt`).
 */
import type { BreakerSettings } from '../../proto/language/settings.ts';
import { probeLimitMs, seconds, tripCause, tripWords } from './trip.ts';
import { Window, type WindowDump } from './window.ts';

export type BreakerStateName = 'closed' | 'open' | 'half_open' | 'ramping';
export type Outcome = 'success' | 'failure' | 'ignored';
export type Passage = 'yes' | 'probe' | 'breaker_open' | 'half_open_full' | 'ramp_full';

type State =
  | { readonly name: 'closed' }
  | { readonly name: 'open'; readonly openedAt: number }
  /** `permits` and `movedAt` (start or last sign of life) run in parallel, one entry per probe in flight. */
  | { readonly name: 'half_open'; readonly permits: number[]; readonly movedAt: number[]; successes: number }
  | { readonly name: 'ramping'; readonly since: number; readonly permits: Set<number>; step: number; badInARow: number };

const CLOSED: State = { name: 'closed' };

/** A permit of no consequence: its end changes nothing. Serial numbers start above it. */
const UNHEARD = 1;

/** State with what belongs to it, why it opened last, and the window: enough to go on from. */
export interface BreakerDump {
  readonly state:
    | { readonly name: 'closed' }
    | { readonly name: 'open'; readonly openedAt: number }
    | { readonly name: 'half_open'; readonly movedAt: readonly number[]; readonly successes: number }
    | { readonly name: 'ramping'; readonly since: number; readonly permits: number; readonly step: number; readonly badInARow: number };
  readonly why: string;
  readonly window: WindowDump | null;
}

/** Who is told. `breakerMoved` comes after every transition, `roomChanged` when a place was the last, or is free again. */
export interface BreakerListener {
  breakerMoved(from: BreakerStateName, to: BreakerStateName, why: string): void;
  roomChanged(): void;
}

export class Breaker {
  readonly window: Window;
  /** When time alone next changes the state; Infinity = never. */
  dueAt = Number.POSITIVE_INFINITY;
  /** Why it opened last; '' when it never did. */
  why = '';
  #settings: BreakerSettings;
  #state: State = CLOSED;
  readonly #listener: BreakerListener;
  #nextPermit = UNHEARD + 1;
  /** Permits below it were given before the breaker opened last. */
  #line = UNHEARD + 1;

  constructor(settings: BreakerSettings, listener: BreakerListener) {
    this.#settings = settings;
    this.#listener = listener;
    this.window = new Window(settings.windowMs);
  }

  get settings(): BreakerSettings {
    return this.#settings;
  }

  get stateName(): BreakerStateName {
    return this.#state.name;
  }

  /** Null unless open. */
  get openedAt(): number | null {
    return this.#state.name === 'open' ? this.#state.openedAt : null;
  }

  /** When the first probe may pass; null unless open. */
  get reopensAt(): number | null {
    return this.#state.name === 'open' ? this.#state.openedAt + this.#settings.openMs : null;
  }

  /** Calls in flight that occupy one of a limited number of places; 0 when closed or open. */
  get limitedInFlight(): number {
    const state = this.#state;
    return state.name === 'half_open' ? state.permits.length : state.name === 'ramping' ? state.permits.size : 0;
  }

  /** Good probes so far; 0 unless half-open. */
  get probeSuccesses(): number {
    return this.#state.name === 'half_open' ? this.#state.successes : 0;
  }

  /** Takes new settings; the state and the samples stay. A new `openMs` also holds for the period under way. */
  configure(settings: BreakerSettings, now: number): void {
    if (settings.windowMs !== this.#settings.windowMs) this.window.resize(settings.windowMs);
    this.#settings = settings;
    if (!settings.enabled && this.#state.name !== 'closed') this.#move(CLOSED, 'switched off by its settings');
    this.#setDue();
    this.advance(now);
    this.#listener.roomChanged();
  }

  /** What `admit` would say, without taking a place. Right for `now` only after `advance(now)`. */
  passage(): Passage {
    const state = this.#state;
    switch (state.name) {
      case 'closed':
        return 'yes';
      case 'open':
        return 'breaker_open';
      case 'half_open':
        return state.permits.length < this.#settings.probes ? 'probe' : 'half_open_full';
      case 'ramping':
        return state.permits.size < this.#rampLimit(state.step) ? 'yes' : 'ramp_full';
    }
  }

  /** A permit, or 0. Right for `now` only after `advance(now)`. */
  admit(now: number): number {
    if (this.#state === CLOSED) return this.#nextPermit++;
    return this.#admitLimited(now);
  }

  #admitLimited(now: number): number {
    const passage = this.passage();
    if (passage !== 'yes' && passage !== 'probe') return 0;
    const permit = this.#nextPermit++;
    const state = this.#state;
    if (state.name === 'half_open') {
      state.permits.push(permit);
      state.movedAt.push(now);
      this.#setDue();
      if (state.permits.length >= this.#settings.probes) this.#listener.roomChanged();
    } else if (state.name === 'ramping') {
      state.permits.add(permit);
      if (state.permits.size >= this.#rampLimit(state.step)) this.#listener.roomChanged();
    }
    return permit;
  }

  /** A permit in any state: where none was to be had, one whose end is not listened to. */
  force(now: number): number {
    const permit = this.admit(now);
    return permit === 0 ? UNHEARD : permit;
  }

  /** A sign of life of a call under way; only a probe needs it. */
  progress(permit: number, now: number): void {
    const state = this.#state;
    if (state.name !== 'half_open') return;
    const at = state.permits.indexOf(permit);
    if (at < 0) return;
    state.movedAt[at] = now;
    this.#setDue();
  }

  /** Right for `now` only after `advance(now)`. */
  end(permit: number, outcome: Outcome, durationMs: number, now: number): void {
    if (permit < this.#line) return;
    if (this.#state !== CLOSED) {
      this.#endLimited(permit, outcome, durationMs, now);
      return;
    }
    if (outcome === 'ignored') return;
    const settings = this.#settings;
    const window = this.window;
    window.add(now, outcome === 'failure', durationMs > settings.slowCallMs);
    if (window.failures === 0 && window.slow === 0) return;
    const cause = tripCause(window.calls, window.failures, window.slow, settings.minCalls, 1, settings);
    if (cause !== null && settings.enabled) {
      this.#open(now, tripWords(cause, window.calls, window.failures, window.slow, settings));
    }
  }

  #endLimited(permit: number, outcome: Outcome, durationMs: number, now: number): void {
    const state = this.#state;
    if (state.name === 'half_open') this.#endProbe(state, permit, outcome, durationMs, now);
    else if (state.name === 'ramping') this.#endRamped(state, permit, outcome, durationMs, now);
  }

  #endProbe(state: State & { name: 'half_open' }, permit: number, outcome: Outcome, durationMs: number, now: number): void {
    const at = state.permits.indexOf(permit);
    if (at < 0) return;
    const wasFull = state.permits.length >= this.#settings.probes;
    state.permits.splice(at, 1);
    state.movedAt.splice(at, 1);
    if (outcome !== 'ignored') {
      const slow = durationMs > this.#settings.slowCallMs;
      this.window.add(now, outcome === 'failure', slow);
      if (outcome === 'failure') return this.#open(now, 'a probe failed');
      if (slow) return this.#open(now, `a probe took ${seconds(durationMs)} (slow above ${seconds(this.#settings.slowCallMs)})`);
      state.successes++;
      if (state.successes >= this.#settings.successes) return this.#recover(state.permits, state.successes, now);
    }
    this.#setDue();
    if (wasFull) this.#listener.roomChanged();
  }

  #endRamped(state: State & { name: 'ramping' }, permit: number, outcome: Outcome, durationMs: number, now: number): void {
    const limit = this.#rampLimit(state.step);
    const wasFull = state.permits.size >= limit;
    if (!state.permits.delete(permit)) return;
    if (outcome !== 'ignored') {
      const settings = this.#settings;
      const window = this.window;
      const slow = durationMs > settings.slowCallMs;
      const failed = outcome === 'failure';
      window.add(now, failed, slow);
      state.badInARow = failed || slow ? state.badInARow + 1 : 0;
      if (state.badInARow >= Math.max(2, settings.probes)) {
        return this.#open(now, `${state.badInARow} calls in a row failed or were slow while ramping up`);
      }
      const cause = tripCause(window.calls, window.failures, window.slow, 1, settings.probes, settings);
      if (cause !== null) {
        return this.#open(now, `while ramping up, ${tripWords(cause, window.calls, window.failures, window.slow, settings)}`);
      }
    }
    if (wasFull && state.permits.size < limit) this.#listener.roomChanged();
  }

  dump(): BreakerDump {
    return { state: this.#dumpState(), why: this.why, window: this.window.dump() };
  }

  #dumpState(): BreakerDump['state'] {
    const state = this.#state;
    switch (state.name) {
      case 'closed':
      case 'open':
        return state;
      case 'half_open':
        return { name: state.name, movedAt: [...state.movedAt], successes: state.successes };
      case 'ramping':
        return { name: state.name, since: state.since, permits: state.permits.size, step: state.step, badInARow: state.badInARow };
    }
  }

  /** Goes on from there, under the settings that it has. Calls that were under way then never end. Nobody is told. */
  restore({ state, why, window }: BreakerDump): void {
    this.window.restore(window);
    this.why = why;
    this.#line = UNHEARD + 1;
    this.#nextPermit = this.#line;
    switch (state.name) {
      case 'closed':
        this.#state = CLOSED;
        break;
      case 'open':
        this.#state = state;
        break;
      case 'half_open':
        this.#state = {
          name: state.name,
          permits: state.movedAt.map(() => this.#nextPermit++),
          movedAt: [...state.movedAt],
          successes: state.successes,
        };
        break;
      case 'ramping': {
        const permits = new Set<number>();
        for (let i = 0; i < state.permits; i++) permits.add(this.#nextPermit++);
        this.#state = { name: state.name, since: state.since, permits, step: state.step, badInARow: state.badInARow };
      }
    }
    this.#setDue();
  }

  /** Whether the samples that it was opened by, or has now, are bad enough for a closed one under its settings. */
  isBad(now: number): boolean {
    const settings = this.#settings;
    if (!settings.enabled) return false;
    const { window } = this;
    // What came in while it was open is nothing: its samples are those of the instant when it opened.
    window.roll(this.#state.name === 'open' ? this.#state.openedAt : now);
    return tripCause(window.calls, window.failures, window.slow, settings.minCalls, 1, settings) !== null;
  }

  /**
   * Its samples were counted under other settings: what the ones it has now make of them. It moves only where the samples were evidence
   * for one judgement and are for the other now; where they never were (it was opened by a probe, or while ramping), it stays as it is.
   * Switched off, it is closed from any state. True = it moved.
   *
   * @param wasBad what `isBad` said under the others
   */
  rejudge(now: number, wasBad: boolean): boolean {
    const settings = this.#settings;
    const { name } = this.#state;
    if (!settings.enabled) {
      if (name === 'closed') return false;
      this.#state = CLOSED;
    } else {
      if (name !== 'closed' && name !== 'open') return false;
      const isBad = this.isBad(now);
      if (isBad === wasBad || isBad === (name === 'open')) return false;
      if (isBad) {
        const { calls, failures, slow } = this.window;
        const cause = tripCause(calls, failures, slow, settings.minCalls, 1, settings) ?? 'failures';
        this.why = tripWords(cause, calls, failures, slow, settings);
        this.#state = { name: 'open', openedAt: now };
      } else this.#state = CLOSED;
    }
    this.#setDue();
    return true;
  }

  /** Lets happen what time alone had brought about by `now`, each at the instant it fell due. */
  advance(now: number): void {
    while (this.dueAt <= now) {
      const state = this.#state;
      const settings = this.#settings;
      if (state.name === 'open') {
        this.#move({ name: 'half_open', permits: [], movedAt: [], successes: 0 }, `open for ${seconds(settings.openMs)}, probing`);
      } else if (state.name === 'half_open') {
        this.#open(this.dueAt, `a probe gave no answer within ${seconds(probeLimitMs(settings.slowCallMs))}`);
      } else if (state.name === 'ramping') {
        state.step++;
        if (state.step >= settings.ramp.length) this.#move(CLOSED, 'ramped up');
        else {
          this.#setDue();
          this.#listener.roomChanged();
        }
      } else {
        this.#setDue();
      }
    }
  }

  #open(at: number, why: string): void {
    this.why = why;
    this.#line = this.#nextPermit;
    this.#move({ name: 'open', openedAt: at }, why);
  }

  #recover(stillOut: readonly number[], successes: number, now: number): void {
    this.window.clear();
    const why = `${successes} probe${successes === 1 ? '' : 's'} succeeded`;
    if (this.#settings.ramp.length === 0) this.#move(CLOSED, why);
    else this.#move({ name: 'ramping', since: now, permits: new Set(stillOut), step: 0, badInARow: 0 }, why);
  }

  #move(to: State, why: string): void {
    const from = this.#state.name;
    this.#state = to;
    this.#setDue();
    this.#listener.breakerMoved(from, to.name, why);
  }

  #rampLimit(step: number): number {
    const ramp = this.#settings.ramp;
    return step < ramp.length ? (ramp[step] as number) : Number.POSITIVE_INFINITY;
  }

  #setDue(): void {
    const state = this.#state;
    const settings = this.#settings;
    let due = Number.POSITIVE_INFINITY;
    if (state.name === 'open') due = state.openedAt + settings.openMs;
    else if (state.name === 'ramping') due = state.since + (state.step + 1) * settings.rampStepMs;
    else if (state.name === 'half_open') {
      for (const movedAt of state.movedAt) if (movedAt < due) due = movedAt;
      due += probeLimitMs(settings.slowCallMs);
    }
    this.dueAt = due;
  }
}
