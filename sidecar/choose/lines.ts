/**
 * The prepared views of all versions, made when first asked for and refreshed when they no longer hold, and what is kept
 * for each version across table pushes.
 */
import type { Clock } from '../../base/clock.ts';
import type { Call } from '../call/call.ts';
import type { Health } from '../health/health.ts';
import type { Snapshot, Version } from '../table/snapshot.ts';
import { LineState, View } from './view.ts';

/** Versions whose state is kept; the oldest goes first. */
const KEEP = 10_000;

export class Lines {
  readonly #clock: Clock;
  readonly #health: Health;
  readonly #states = new Map<string, LineState>();

  constructor(clock: Clock, health: Health) {
    this.#clock = clock;
    this.#health = health;
  }

  viewOf(call: Call, version: Version, now: number): View {
    const health = this.#health;
    const kept = version.eligible as View | null;
    if (kept !== null && this.holds(kept, now) && kept.owner === this && kept.table === call.table) return kept;
    // What falls due with time happens first, so that the version read here is the one that the view is made from.
    health.advance(now);
    let view = kept;
    if (view === null || view.owner !== this || view.table !== call.table) {
      view = new View(this, call.table as Snapshot, version, this.#stateOf(`${version.capability.name}@${version.text}#${call.tags}`));
      version.eligible = view;
    }
    view.refresh(health.version, health.nextChangeAt, now, this.#clock.wallMs());
    return view;
  }

  /**
   * Also one that health has moved on from, if it is large and was made a moment ago. Whoever is picked from it must be asked
   * whether it is still usable; somebody who has become usable meanwhile is that moment late.
   */
  recentOf(call: Call, version: Version, now: number): View {
    const kept = version.eligible as View | null;
    if (kept !== null && now < kept.restsUntil && kept.owner === this && kept.table === call.table) return kept;
    return this.viewOf(call, version, now);
  }

  /** What is kept of a version; null = nothing yet. */
  known(call: Call, version: Version): LineState | null {
    return this.#states.get(`${version.capability.name}@${version.text}#${call.tags}`) ?? null;
  }

  /** The same, made when there is none. */
  stateOf(call: Call, version: Version): LineState {
    return this.#stateOf(`${version.capability.name}@${version.text}#${call.tags}`);
  }

  /** It says what health says now. */
  holds(view: View, now: number): boolean {
    return view.healthVersion === this.#health.version && now < view.validUntil;
  }

  #stateOf(key: string): LineState {
    let state = this.#states.get(key);
    if (state === undefined) {
      state = new LineState();
      if (this.#states.size >= KEEP) this.#states.delete(this.#states.keys().next().value as string);
      this.#states.set(key, state);
    }
    return state;
  }
}
