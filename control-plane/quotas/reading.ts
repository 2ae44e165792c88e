/** A quota as people order it, read and judged: what it may be of, which limits it may have, in words an operator can act on. */
import { formatDuration, parseDuration, quote } from '../../base/duration.ts';
import { parseAgentPattern } from '../../proto/language/acl.ts';
import { isCapabilityName } from '../../proto/language/names.ts';
import { MAX_QUOTA_RATE, type Quota, type QuotaKind, type QuotaRate } from '../../proto/wire/quotas.ts';

/** Keys of an order. */
export const QUOTA_KEYS = ['calls_per_sec', 'calls_burst', 'messages_per_sec', 'messages_burst', 'in_flight', 'for', 'reason'] as const;

const MIN_RATE = 0.01;
const MAX_IN_FLIGHT = 1_000_000;
/** Ten years: longer is for ever. */
const MAX_FOR_MS = 315_360_000_000;

/** Three segments, or what is wrong: `sales.*.*`, `team:sales`, `*` (each one). */
export function targetOf(kind: QuotaKind, text: string): { readonly target: string } | { readonly problem: string } {
  if (text === '*') return { target: '*.*.*' };
  if (kind === 'capability') {
    const segments = text.split('.');
    // A star stands for any segment: what is left must be a name.
    if (segments.length === 3 && isCapabilityName(segments.map((one) => (one === '*' ? 'x' : one)).join('.'))) return { target: text };
    return { problem: `${quote(text)} is no capability: write domain.object.action with * for any part, or * for each capability` };
  }
  const pattern = parseAgentPattern(text);
  if ('problem' in pattern) return { problem: `${pattern.problem}, or * for each ${kind}` };
  return { target: `${pattern.team ?? '*'}.${pattern.role ?? '*'}.${pattern.id ?? '*'}` };
}

/** @param order keys as in `QUOTA_KEYS`; @returns what is wrong with it */
export function readQuota(
  kind: QuotaKind,
  target: string,
  order: Readonly<Record<string, unknown>>,
  author: string,
  wallMs: number,
): Quota | string {
  const calls = rateIn(order, 'calls');
  if (typeof calls === 'string') return calls;
  const messages = rateIn(order, 'messages');
  if (typeof messages === 'string') return messages;
  const inFlight = order['in_flight'] ?? null;
  if (inFlight !== null && !(typeof inFlight === 'number' && Number.isInteger(inFlight) && inFlight >= 1 && inFlight <= MAX_IN_FLIGHT))
    return `in_flight must be a whole number from 1 to ${MAX_IN_FLIGHT}: to let nothing through, block it by an override`;
  if (messages !== null && kind !== 'agent') return `messages are limited for agents; of a ${kind} only calls are`;
  if (inFlight !== null && kind === 'capability')
    return 'calls in flight are limited for agents and providers; of a capability only calls a second are';
  if (calls === null && messages === null && inFlight === null)
    return `name at least one limit: ${kind === 'agent' ? 'calls_per_sec, messages_per_sec or in_flight' : kind === 'provider' ? 'calls_per_sec or in_flight' : 'calls_per_sec'}`;
  const expiresAtMs = expiryIn(order['for'], wallMs);
  if (typeof expiresAtMs === 'string') return expiresAtMs;
  const reason = order['reason'] ?? '';
  if (typeof reason !== 'string' || reason.length > 500) return 'reason must be a text of at most 500 characters';
  return { kind, target, calls, messages, inFlight, reason, author, atMs: wallMs, expiresAtMs };
}

function rateIn(order: Readonly<Record<string, unknown>>, what: 'calls' | 'messages'): QuotaRate | null | string {
  const perSec = order[`${what}_per_sec`] ?? null;
  const burst = order[`${what}_burst`] ?? null;
  if (perSec === null) return burst === null ? null : `${what}_burst stands beside ${what}_per_sec, which is missing`;
  if (typeof perSec !== 'number' || !(perSec >= MIN_RATE && perSec <= MAX_QUOTA_RATE))
    return `${what}_per_sec must be a number from ${MIN_RATE} to ${MAX_QUOTA_RATE}: to let nothing through, block it by an override`;
  // A second's worth, unless said otherwise.
  if (burst === null) return { perSec, burst: Math.max(1, Math.ceil(perSec)) };
  if (typeof burst !== 'number' || !Number.isInteger(burst) || burst < 1 || burst > MAX_QUOTA_RATE)
    return `${what}_burst must be a whole number from 1 to ${MAX_QUOTA_RATE}`;
  return { perSec, burst };
}

function expiryIn(value: unknown, wallMs: number): number | null | string {
  if (value === undefined || value === null) return null;
  const ms = parseDuration(value, MAX_FOR_MS);
  if (typeof ms === 'string') return `for: ${ms}`;
  return ms < 1_000 ? `for: ${formatDuration(ms)} is shorter than a second` : wallMs + ms;
}
