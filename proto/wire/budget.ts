/**
 * Step budgets of one task: `Reach-Budget: intent=1500, order=2500` lists the steps in order, `Reach-Step: order` says
 * which one this call is. Decides how long the step may take: what remains of the task minus the budgets of the *later*
 * steps, so that time saved early is there later and a slow step cannot eat what the rest needs. Calls that run at the
 * same time name the same step and share its budget. Pure; the deadline itself is read elsewhere.
 */

type HeaderValue = string | string[] | undefined;

export interface StepBudget {
  readonly step: string;
  readonly ms: number;
}

export const MAX_STEPS = 64;

const STEP_FORM = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;
const MS_FORM = /^[0-9]{1,12}$/;

/** The steps in their order, or the words of a refusal (code 4003). `maxMs` is the configured maximum of a deadline. */
export function parseBudgets(text: string, maxMs: number): readonly StepBudget[] | string {
  const parts = text.split(',');
  if (parts.length > MAX_STEPS) return `Reach-Budget names ${parts.length} steps, ${MAX_STEPS} are allowed`;
  const budgets: StepBudget[] = [];
  for (const part of parts) {
    const equals = part.indexOf('=');
    const step = part.slice(0, Math.max(0, equals)).trim();
    const amount = part.slice(equals + 1).trim();
    if (equals < 0 || !STEP_FORM.test(step) || !MS_FORM.test(amount))
      return `Reach-Budget must read like \`intent=1500, order=2500\` (step=milliseconds); got ${JSON.stringify(part.trim().slice(0, 60))}`;
    const ms = Number(amount);
    if (ms > maxMs) return `Reach-Budget gives ${step} ${ms} ms, above the maximum of ${maxMs} ms`;
    if (budgets.some((budget) => budget.step === step)) return `Reach-Budget names the step ${step} twice`;
    budgets.push({ step, ms });
  }
  return budgets;
}

/** What `step` may use of `remainingMs`, ≥ 0; or the words of a refusal when the list does not name it. */
export function stepAllowance(budgets: readonly StepBudget[], step: string, remainingMs: number): number | string {
  let found = false;
  let laterMs = 0;
  for (const budget of budgets) {
    if (found) laterMs += budget.ms;
    else if (budget.step === step) found = true;
  }
  if (!found)
    return `Reach-Step ${JSON.stringify(step.slice(0, 60))} is not among the steps of Reach-Budget: ${budgets.map((budget) => budget.step).join(', ')}`;
  return Math.max(0, remainingMs - laterMs);
}

/**
 * The same from the two headers: null when this call is not a step of anything (no step named: a caller may carry the
 * budgets along for the calls below it), the step's milliseconds, or the words of a refusal.
 */
export function allowanceFrom(budget: HeaderValue, step: HeaderValue, remainingMs: number, maxMs: number): number | null | string {
  if (budget === undefined && step === undefined) return null;
  if (Array.isArray(budget) || Array.isArray(step)) return 'Reach-Budget and Reach-Step may be given once';
  if (budget === undefined) return 'Reach-Step is given without Reach-Budget';
  const budgets = parseBudgets(budget, maxMs);
  if (typeof budgets === 'string') return budgets;
  return step === undefined ? null : stepAllowance(budgets, step.trim(), remainingMs);
}
