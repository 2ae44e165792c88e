/**
 * Carries shifts on while this replica leads: adds up what sidecars report, lets the guard judge a few times a second, and
 * does what follows. Everything it needs to go on with stands in the stored shift but the measurements: a new leader
 * measures anew, and judges when it has seen enough.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Report } from '../../proto/wire/registry.ts';
import type { Audit } from '../audit/audit.ts';
import type { ShiftNotice } from '../messages/notice.ts';
import type { Change, RegistryEvent } from '../registry/change.ts';
import type { Registry } from '../registry/registry.ts';
import type { ShiftDesk } from './desk.ts';
import { Figures } from './figures.ts';
import { decide, type Side } from './guard.ts';
import { isOver, type Shift } from './shift.ts';

export interface RunnerParts {
  readonly clock: Clock;
  readonly logger: Logger;
  /** null = what it does is only logged. */
  readonly audit: Pick<Audit, 'record'> | null;
  registry(): Registry;
  commit(change: Change): Promise<unknown>;
  onEvent(event: RegistryEvent): void;
  /** By webhook, where there is one. */
  notify(notice: ShiftNotice): void;
}

/** What is known of one that is under way. */
export interface ShiftFigures {
  readonly fresh: Side;
  readonly old: Side;
  /** Why it stands where it stands. */
  readonly why: string;
}

/** Without a guard there is no window; what is shown is of the last minute. */
const SHOWN_MS = 60_000;
const ACTOR = 'control plane';

class Watched {
  readonly figures: Figures;
  readonly windowMs: number;
  /** Of the step that is measured. */
  stepAtMs: number;
  /** P95 of the old side when it was last known well enough. */
  oldP95Ms: number | null = null;
  why = '';
  constructor(shift: Shift) {
    this.windowMs = shift.guard?.windowMs ?? SHOWN_MS;
    this.figures = new Figures(this.windowMs);
    this.stepAtMs = shift.stepAtMs;
  }
}

export class ShiftRunner {
  readonly #parts: RunnerParts;
  readonly #watched = new Map<string, Watched>();

  constructor(parts: RunnerParts) {
    this.#parts = parts;
  }

  report({ shifted }: Report): void {
    if (shifted === undefined) return;
    const now = this.#parts.clock.now();
    for (const shift of this.#parts.registry().shiftList()) {
      if (isOver(shift)) continue;
      const { figures } = this.#watchedOf(shift);
      const { kind, name } = shift.target;
      for (const count of shifted) {
        if (count.capability !== shift.capability) continue;
        // Beside a provider stand those that it shares the traffic with; others are not touched by the shift.
        if (kind === 'provider' && !Object.hasOwn(shift.before.weights, count.provider)) continue;
        figures.add(count, (kind === 'version' ? count.version : count.provider) === name, now);
      }
    }
  }

  /** To be called a few times a second. */
  tick(): void {
    const { clock } = this.#parts;
    const shifts = this.#parts
      .registry()
      .shiftList()
      .filter((one) => !isOver(one));
    for (const id of this.#watched.keys()) if (!shifts.some((one) => one.id === id)) this.#watched.delete(id);
    if (shifts.length === 0) return;
    let overtaken: readonly string[] = [];
    this.#do((desk) => {
      overtaken = desk.overtaken();
      return null;
    });
    for (const shift of shifts) {
      if (overtaken.includes(shift.id)) this.#tell(shift, 'overtaken', 'somebody has set shares or weights by hand, which count');
      else if (shift.status === 'running') this.#step(shift, clock.wallMs());
    }
  }

  /** null = it is over, or nothing is known of it here. */
  figures(shift: Shift): ShiftFigures | null {
    if (isOver(shift)) return null;
    const { figures, why } = this.#watchedOf(shift);
    const now = this.#parts.clock.now();
    return { fresh: figures.side(true, now), old: figures.side(false, now), why };
  }

  #step(shift: Shift, wallMs: number): void {
    const watched = this.#watchedOf(shift);
    const now = this.#parts.clock.now();
    const fresh = watched.figures.side(true, now);
    const old = watched.figures.side(false, now);
    if (shift.guard !== null && old.calls >= shift.guard.minCalls) watched.oldP95Ms = old.p95Ms;
    const action = decide(shift, fresh, old, watched.oldP95Ms, wallMs);
    switch (action.kind) {
      case 'stay':
        watched.why = action.why;
        return;
      case 'advance':
        if (this.#done(shift, (desk) => desk.advance(shift.id)))
          this.#tell(shift, 'advanced', `step ${shift.step + 2} of ${shift.steps.length}`);
        return;
      case 'finish':
        if (this.#done(shift, (desk) => desk.finish(shift.id, false, ''))) this.#tell(shift, 'finished', 'its last step has gone well');
        return;
      case 'roll_back':
        if (this.#done(shift, (desk) => desk.rollBack(shift.id, action.why))) this.#tell(shift, 'rolled_back', action.why);
        return;
    }
  }

  #watchedOf(shift: Shift): Watched {
    let watched = this.#watched.get(shift.id);
    if (watched === undefined || watched.windowMs !== (shift.guard?.windowMs ?? SHOWN_MS)) {
      watched = new Watched(shift);
      this.#watched.set(shift.id, watched);
    }
    // What was measured at other shares says nothing of these.
    if (watched.stepAtMs !== shift.stepAtMs) {
      watched.figures.clear();
      watched.stepAtMs = shift.stepAtMs;
    }
    return watched;
  }

  #done(shift: Shift, act: (desk: ShiftDesk) => string | null): boolean {
    const problem = this.#do(act);
    if (problem === null) return true;
    const watched = this.#watchedOf(shift);
    if (watched.why !== problem)
      this.#parts.logger.warn({ shift: shift.id, capability: shift.capability }, `a shift cannot go on: ${problem}`);
    watched.why = problem;
    return false;
  }

  #do(act: (desk: ShiftDesk) => string | null): string | null {
    const { problem, change } = this.#parts.registry().shift(act);
    void this.#parts.commit(change);
    return problem;
  }

  #tell({ id, capability, target, reason, author }: Shift, what: string, why: string): void {
    const { clock, audit } = this.#parts;
    const words = `shift ${id} of ${capability} to ${target.name}: ${what.replace('_', ' ')}; ${why}`;
    this.#parts.onEvent({
      kind: 'shift',
      agent: target.kind === 'provider' ? target.name : '',
      sidecar: '',
      why: '',
      words,
      atMs: clock.wallMs(),
    });
    if (what === 'rolled_back')
      this.#parts.notify({
        id: `${this.#parts.registry().epoch}/shift/${id}`,
        kind: 'shift',
        capability,
        target: target.name,
        outcome: what,
        detail: why,
        since: new Date(clock.wallMs()).toISOString(),
        hint: `reachctl shift show ${id}`,
      });
    audit?.record({
      actor: ACTOR,
      role: 'leader',
      action: `shift.${what}`,
      subject: id,
      reason: why,
      detail: { capability, target: target.name, begun_by: author, begun_because: reason },
      outcome: 'done',
    });
  }
}
