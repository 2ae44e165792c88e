/**
 * An override as an operator orders it (the body of `POST /v1/overrides`, the options of `reachctl`): read strictly, with what a
 * person leaves out filled in, and asked about once more where it is very wide. It lasts an hour unless something else is
 * said, so that what is made at night is not forgotten for ever.
 */
import { parseDuration } from '../../base/duration.ts';
import type { Random } from '../../base/random.ts';
import { newOverrideId } from '../../proto/wire/override-id.ts';
import { type OverrideAction, OVERRIDE_ACTIONS, type OverrideEntry, overrideProblem } from '../../proto/wire/overrides.ts';

export const DEFAULT_FOR_MS = 3_600_000;
export const FOREVER = 'forever';
/** How long an operator's answer waits for sidecars to say that it is in force. */
export const DEFAULT_WAIT_MS = 1_000;
const MAX_WAIT_MS = 10_000;
const MAX_FOR_MS = 366 * 86_400_000;

export const DRAFT_KEYS: readonly string[] = ['id', 'action', 'target', 'to', 'cut', 'reason', 'for', 'confirm', 'dry_run', 'wait'];

export interface Draft {
  readonly entry: OverrideEntry;
  readonly isConfirmed: boolean;
  readonly isDry: boolean;
  readonly waitMs: number;
}

export interface DraftedBy {
  readonly author: string;
  /** Wall clock, milliseconds. */
  readonly nowMs: number;
  readonly random: Random;
}

/** A sentence when it cannot be meant. */
export function draftOf(map: Readonly<Record<string, unknown>>, { author, nowMs, random }: DraftedBy): Draft | string {
  const { action = 'block', target, to = null, cut = false, reason, confirm = false, dry_run: dryRun = false } = map;
  if (typeof action !== 'string' || !(OVERRIDE_ACTIONS as readonly string[]).includes(action))
    return `action must be one of ${OVERRIDE_ACTIONS.join(', ')}`;
  if (typeof target !== 'object' || target === null || Array.isArray(target))
    return 'target must be an object: {"capability": …}, {"provider": …}, {"agent": …}, {"caller": …}, some of these together, or {"all": true}';
  for (const [name, value] of Object.entries(target)) {
    if (name === 'all') {
      if (value !== true) return 'all must be true, or left out';
    } else if (typeof value !== 'string') return `target.${name.slice(0, 80)} must be a text`;
  }
  if (to !== null && typeof to !== 'string') return 'to must be a text';
  for (const [name, value] of Object.entries({ cut, confirm, dry_run: dryRun }))
    if (typeof value !== 'boolean') return `${name} must be true or false`;
  if (typeof reason !== 'string' || reason.trim() === '') return 'a reason is needed: callers whose calls are refused will read it';
  const id = map['id'] ?? newOverrideId(action, random);
  if (typeof id !== 'string') return 'id must be a text';
  const forMs = lastingOf(map['for'] ?? null);
  if (typeof forMs === 'string') return forMs;
  const waitMs = map['wait'] === undefined ? DEFAULT_WAIT_MS : parseDuration(map['wait'], MAX_WAIT_MS);
  if (typeof waitMs === 'string') return `wait: ${waitMs}`;
  const entry: OverrideEntry = {
    id,
    action: action as OverrideAction,
    target,
    to,
    cut: cut as boolean,
    reason: reason.trim(),
    author,
    at: nowMs,
    expires_at: forMs === null ? null : nowMs + forMs,
  };
  const problem = overrideProblem(entry);
  if (problem !== null) return problem;
  const isConfirmed = confirm as boolean;
  const isDry = dryRun as boolean;
  if (isWide(entry) && !isConfirmed && !isDry)
    return `this ${action}s everything: say "confirm": true when you mean it, or "dry_run": true to see what it would hit`;
  return { entry, isConfirmed, isDry, waitMs };
}

/** Null = for ever. */
function lastingOf(value: unknown): number | null | string {
  if (value === null) return DEFAULT_FOR_MS;
  if (value === FOREVER) return null;
  const ms = parseDuration(value, MAX_FOR_MS);
  if (typeof ms === 'string') return `for: ${ms}, or the word ${FOREVER}`;
  return ms === 0 ? 'for: it must last some time' : ms;
}

/** Everything, however it is written. */
export function isWide({ target }: OverrideEntry): boolean {
  if (target.all === true) return true;
  const isEvery = (pattern: string | undefined): boolean => pattern === undefined || pattern === '*' || pattern === '*.*.*';
  return isEvery(target.capability) && isEvery(target.provider) && isEvery(target.agent) && isEvery(target.caller);
}
