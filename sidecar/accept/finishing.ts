/**
 * A sidecar that stops is still needed by the agents beside it: they were told to stop with it, and have work to finish. Decides
 * whose calls are taken after the signal, and when those agents have finished. Nothing of what others send in is looked at here:
 * mesh and queue are closed from the first moment.
 *
 * A call belongs to work that is being finished when its agent serves here (the work of others is in its hands, or was a moment
 * ago), when its trace has a call under way here, or when it is the next step of an agent that calls one after the other: it
 * called before the signal, and has nothing under way now. What an agent begins beside calls under way is new, and is refused.
 *
 * Whether an agent's process lives cannot be seen from here; so it has finished when it says so (`POST /v1/agents/{id}/finished`),
 * or when it has had nothing under way for a while. Looked at some dozen times a second, and only while the sidecar stops: calls
 * pay nothing for it.
 */
import type { Engine } from '../engine.ts';
import type { ShutdownSettings } from '../shutdown-config.ts';

/** So much of the grace is left to what is under way: nothing is begun that would only be cut. */
const RESERVE_RATIO = 0.1;
const MAX_RESERVE_MS = 500;
/** Who said so earlier is back, or never meant this stop. */
const SAID_BEFORE_MS = 60_000;

export interface Hosted {
  /** The agent serves here. */
  serves(agent: string): boolean;
  /** It has work in hand that is no call: taken with 202, or waiting for its turn. */
  holds(agent: string): boolean;
}

export class Finishing {
  readonly #engine: Engine;
  readonly #settings: ShutdownSettings;
  readonly #hosted: Hosted;
  /** When an agent last had something under way, as far as it was seen. */
  readonly #busyAt = new Map<string, number>();
  /** When an agent said that it has finished. */
  readonly #saidAt = new Map<string, number>();
  #beganAt = Number.POSITIVE_INFINITY;
  /** Nothing new is taken from then on. */
  #lastAt = Number.NEGATIVE_INFINITY;

  constructor(engine: Engine, settings: ShutdownSettings, hosted: Hosted) {
    this.#engine = engine;
    this.#settings = settings;
    this.#hosted = hosted;
  }

  /** The sidecar stops: what is under way is given up at `endsAt` (`clock.now()` scale). */
  begin(endsAt: number): void {
    const now = this.#engine.clock.now();
    if (this.#beganAt > now) {
      this.#beganAt = now;
      for (const agent of this.#engine.limits.callers()) this.#busyAt.set(agent, now);
      for (const [agent, at] of this.#saidAt) if (now - at > SAID_BEFORE_MS) this.#saidAt.delete(agent);
    }
    this.#lastAt = endsAt - Math.min(MAX_RESERVE_MS, RESERVE_RATIO * (endsAt - now));
  }

  /** Whether a call of this agent is taken now; it counts as begun when it is. */
  admits(agent: string, traceId: string): boolean {
    const now = this.#engine.clock.now();
    if (now >= this.#lastAt || !this.#belongs(agent, traceId, now)) return false;
    this.#busyAt.set(agent, now);
    this.#saidAt.delete(agent);
    return true;
  }

  #belongs(agent: string, traceId: string, now: number): boolean {
    const { ownCalls, quietMs } = this.#settings;
    if (ownCalls === 'none') return false;
    if (ownCalls === 'all' || this.#hosted.serves(agent) || this.#engine.underway.has(traceId)) return true;
    const busyAt = this.#busyAt.get(agent);
    return busyAt !== undefined && now - busyAt < quietMs && this.#engine.limits.inFlightOf(agent) === 0;
  }

  /** The agent has made its last call. */
  said(agent: string): void {
    if (this.#saidAt.size >= MAX_KEPT) this.#saidAt.clear();
    this.#saidAt.set(agent, this.#engine.clock.now());
  }

  /** Every agent that has called here has finished. To be asked again and again: it looks who is busy. */
  look(): boolean {
    const { clock, limits } = this.#engine;
    const { ownCalls, quietMs } = this.#settings;
    if (ownCalls === 'none') return true;
    const now = clock.now();
    let isQuiet = true;
    for (const [agent, busyAt] of this.#busyAt) {
      if (limits.inFlightOf(agent) > 0 || this.#hosted.holds(agent)) {
        this.#busyAt.set(agent, now);
        isQuiet = false;
      } else if (now - busyAt < quietMs && !this.#saidAt.has(agent)) isQuiet = false;
    }
    return isQuiet;
  }
}

const MAX_KEPT = 10_000;
