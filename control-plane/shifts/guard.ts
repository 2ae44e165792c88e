/**
 * Whether a shift goes on, as a pure function of what was measured. The new side is held against a limit and against the
 * old side in the same window: when both fail alike the cause is elsewhere, and going back would not help. It is judged
 * when there are enough attempts; a failure is certain earlier, when so many have failed already that good ones could not make up for
 * it. Without enough attempts nothing goes on and nothing goes back.
 */
import type { Guard, Shift } from './shift.ts';

/** Of one side within the window. */
export interface Side {
  readonly calls: number;
  readonly errors: number;
  /** null = there are no calls. */
  readonly p95Ms: number | null;
}

export type Judgement =
  | { readonly kind: 'good' }
  | { readonly kind: 'wait'; readonly why: string }
  | { readonly kind: 'bad'; readonly why: string };

export type Action =
  | { readonly kind: 'stay'; readonly why: string }
  | { readonly kind: 'advance' }
  | { readonly kind: 'finish' }
  | { readonly kind: 'roll_back'; readonly why: string };

/** Fewer failures are chance. */
const LEAST_ERRORS = 3;
/** The old side fails too: the new one must fail so much more often. */
const MORE_THAN_OLD = 1.5;
/** Durations that differ by less are equal, whatever their ratio. */
const LEAST_MS = 1;

/** @param oldP95Ms of the old side when it was last known well enough; null = never */
export function judge(guard: Guard, fresh: Side, old: Side, oldP95Ms: number | null = null): Judgement {
  const oldRatio = old.calls >= guard.minCalls ? ratioOf(old) : null;
  if (guard.errors !== null && fresh.errors >= LEAST_ERRORS) {
    // Over fewer attempts than are needed: the best that can still come of them.
    const ratio = fresh.errors / Math.max(fresh.calls, guard.minCalls);
    if (ratio > guard.errors && (oldRatio === null || ratio > MORE_THAN_OLD * oldRatio)) {
      const beside = old.calls === 0 ? 'there were no others to compare with' : `of the others ${old.errors} of ${old.calls} failed`;
      return {
        kind: 'bad',
        why: `${fresh.errors} of ${fresh.calls} attempts failed within ${seconds(guard.windowMs)}, above ${percent(guard.errors)}; ${beside}`,
      };
    }
  }
  if (fresh.calls < guard.minCalls)
    return {
      kind: 'wait',
      why: `${fresh.calls} of the ${guard.minCalls} attempts within ${seconds(guard.windowMs)} that are needed to judge`,
    };
  const before = old.calls >= guard.minCalls ? old.p95Ms : oldP95Ms;
  if (guard.p95 !== null && before !== null && fresh.p95Ms !== null) {
    if (fresh.p95Ms > before * (1 + guard.p95) && fresh.p95Ms - before > LEAST_MS)
      return {
        kind: 'bad',
        why: `its P95 is ${rounded(fresh.p95Ms)} ms and that of the others ${rounded(before)} ms: more than ${percent(guard.p95)} above`,
      };
  }
  return { kind: 'good' };
}

/** What is to be done now with one that runs. */
export function decide(shift: Shift, fresh: Side, old: Side, oldP95Ms: number | null, wallMs: number): Action {
  const judged: Judgement = shift.guard === null ? { kind: 'good' } : judge(shift.guard, fresh, old, oldP95Ms);
  if (judged.kind === 'bad') return { kind: 'roll_back', why: judged.why };
  if (shift.everyMs === 0) return { kind: 'stay', why: 'until it is finished or aborted by an operator' };
  const leftMs = shift.stepAtMs + shift.everyMs - wallMs;
  if (leftMs > 0) return { kind: 'stay', why: `the next step is due in ${seconds(leftMs)}` };
  if (judged.kind === 'wait') return { kind: 'stay', why: `the next step waits: ${judged.why}` };
  return shift.step + 1 < shift.steps.length ? { kind: 'advance' } : { kind: 'finish' };
}

function ratioOf({ calls, errors }: Side): number {
  return calls === 0 ? 0 : errors / calls;
}

function percent(ratio: number): string {
  return `${Number((ratio * 100).toPrecision(4))} %`;
}

function seconds(ms: number): string {
  return `${Number((ms / 1_000).toPrecision(3))} s`;
}

function rounded(ms: number): number {
  return Number(ms.toPrecision(3));
}
