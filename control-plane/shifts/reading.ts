/** A shift as people order it, read and judged for its form; whether it can begin is asked of the registry. */
import { formatDuration, parseDuration, parseRatio, quote } from '../../base/duration.ts';
import { agentIdProblem } from '../../proto/language/names.ts';
import { exactVersionProblem } from '../../proto/language/range.ts';
import type { ShiftOrder } from './desk.ts';
import type { Guard, ShiftTarget } from './shift.ts';

export const SHIFT_KEYS = ['capability', 'version', 'provider', 'share', 'steps', 'every', 'guard', 'reason'] as const;
const GUARD_KEYS = ['errors', 'p95', 'min_calls', 'window'] as const;

/** Without a word of the operator a shift is guarded all the same. */
export const DEFAULT_GUARD: Guard = Object.freeze({ errors: 0.05, p95: null, minCalls: 50, windowMs: 60_000 });

const MAX_STEPS = 20;
const MIN_EVERY_MS = 1_000;
const MAX_EVERY_MS = 604_800_000;
const MIN_WINDOW_MS = 1_000;
const MAX_WINDOW_MS = 3_600_000;
const MAX_MIN_CALLS = 1_000_000;
/** A P95 a hundred times as high is no limit. */
const MAX_GROWTH = 100;

/** @returns what is wrong with it */
export function readShift(order: Readonly<Record<string, unknown>>, author: string): ShiftOrder | string {
  const { capability } = order;
  if (typeof capability !== 'string' || capability === '') return 'capability is missing: the canonical name, such as crm.order.query';
  const target = targetIn(order);
  if (typeof target === 'string') return target;
  const steps = stepsIn(order);
  if (typeof steps === 'string') return steps;
  const every = order['every'] ?? null;
  const everyMs = every === null ? 0 : parseDuration(every, MAX_EVERY_MS);
  if (typeof everyMs === 'string') return `every: ${everyMs}`;
  if (every !== null && everyMs < MIN_EVERY_MS) return `every: a step lasts at least ${formatDuration(MIN_EVERY_MS)}`;
  if (steps.length > 1 && everyMs === 0) return 'steps need every: how long each one lasts, such as 5m';
  const guard = guardIn(order['guard']);
  if (typeof guard === 'string') return guard;
  const reason = order['reason'] ?? '';
  if (typeof reason !== 'string' || reason.length > 500) return 'reason must be a text of at most 500 characters';
  return { capability, target, steps, everyMs, guard, reason, author };
}

function targetIn({ version, provider }: Readonly<Record<string, unknown>>): ShiftTarget | string {
  if ((version === undefined) === (provider === undefined)) return 'name either a version or a provider to which traffic is shifted';
  if (version !== undefined) {
    const problem = typeof version === 'string' ? exactVersionProblem(version) : 'version must be a text';
    return problem ?? { kind: 'version', name: version as string };
  }
  const problem = typeof provider === 'string' ? agentIdProblem(provider) : 'provider must be an agent id';
  return problem ?? { kind: 'provider', name: provider as string };
}

function stepsIn({ share, steps }: Readonly<Record<string, unknown>>): number[] | string {
  if ((share === undefined) === (steps === undefined)) return 'name either a share, such as "20%", or steps, such as ["5%", "20%", "100%"]';
  const list = steps === undefined ? [share] : steps;
  if (!Array.isArray(list) || list.length === 0 || list.length > MAX_STEPS) return `steps must be a list of 1 to ${MAX_STEPS} shares`;
  const read: number[] = [];
  for (const one of list as readonly unknown[]) {
    const ratio = parseRatio(one);
    if (typeof ratio === 'string') return `the share ${quote(String(one))}: ${ratio}`;
    if (ratio <= 0) return 'a share is above 0: to give it nothing, abort, or set a canary or weight of 0';
    if (ratio <= (read.at(-1) ?? 0)) return 'steps grow: each share must be above the one before';
    read.push(ratio);
  }
  return read;
}

function guardIn(value: unknown): Guard | null | string {
  if (value === undefined) return DEFAULT_GUARD;
  if (value === null) return null;
  if (typeof value !== 'object' || Array.isArray(value)) return 'guard must be an object, or null for none';
  const map = value as Readonly<Record<string, unknown>>;
  for (const key of Object.keys(map))
    if (!GUARD_KEYS.some((one) => one === key)) return `guard: unknown key ${quote(key)}: known are ${GUARD_KEYS.join(', ')}`;
  const errors = ratioIn(map['errors'], 'guard.errors', 1);
  if (typeof errors === 'string') return errors;
  const p95 = ratioIn(map['p95'], 'guard.p95', MAX_GROWTH);
  if (typeof p95 === 'string') return p95;
  const minCalls = map['min_calls'] ?? DEFAULT_GUARD.minCalls;
  if (!(typeof minCalls === 'number' && Number.isInteger(minCalls) && minCalls >= 1 && minCalls <= MAX_MIN_CALLS))
    return `guard.min_calls must be a whole number from 1 to ${MAX_MIN_CALLS}`;
  const windowMs = map['window'] === undefined ? DEFAULT_GUARD.windowMs : parseDuration(map['window'], MAX_WINDOW_MS);
  if (typeof windowMs === 'string') return `guard.window: ${windowMs}`;
  if (windowMs < MIN_WINDOW_MS) return `guard.window: at least ${formatDuration(MIN_WINDOW_MS)}, for sidecars report once a second`;
  if (errors === null && p95 === null) return { ...DEFAULT_GUARD, minCalls, windowMs };
  return { errors, p95, minCalls, windowMs };
}

/** `5%`, `0.05`; of growth above one `140%` as well. */
function ratioIn(value: unknown, what: string, most: number): number | null | string {
  if (value === undefined || value === null) return null;
  const percent = typeof value === 'string' ? /^(\d{1,6}(?:\.\d{1,6})?)\s*%$/.exec(value.trim()) : null;
  const ratio = percent === null ? value : Number(percent[1]) / 100;
  if (typeof ratio !== 'number' || !(ratio > 0 && ratio <= most))
    return `${what} must be a share such as "5%", above 0 and up to ${most * 100}%`;
  return ratio;
}
