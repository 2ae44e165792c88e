/**
 * Orders and the audit log, in one place: whatever an operator may do and a viewer may not passes through here. What the
 * handler records itself (with what was before and after) is taken; where it recorded nothing, that the order was given is
 * recorded; where it refused, the refusal is counted. The answer waits for the acknowledgement, a second at most, and says when
 * there is none.
 */
import type { Audit } from '../audit/audit.ts';
import type { AuditValue } from '../../proto/wire/audit.ts';
import type { Plane } from './plane.ts';
import type { Refused } from './problem.ts';
import { type Asked, isRefused, type Reply, type Route } from './route.ts';

export interface Ordered {
  readonly reply: Reply;
  /** Why the entry is not acknowledged yet; null = it is, or there was none. */
  readonly unaudited: string | null;
}

export async function audited(audit: Audit, route: Route, asked: Asked): Promise<Ordered> {
  const { result, written, settled } = await audit.during(async () => {
    const reply = await route.handle(asked);
    if (isRefused(reply)) refusedOrder(audit, route, asked, reply);
    return reply;
  });
  if (written > 0 || isRefused(result)) return { reply: result, unaudited: await settled() };
  const unaudited = await audit.recorded({
    actor: asked.operator?.name ?? '',
    role: asked.operator?.role ?? '',
    action: route.action ?? 'request.done',
    subject: Object.values(asked.params).join(' ') || `${route.method} ${route.path}`,
    detail: { ...asked.query },
    outcome: 'done',
  });
  return { reply: result, unaudited };
}

function refusedOrder(audit: Audit, { method, path }: Route, { operator }: Asked, { code }: Refused): void {
  audit.refusedRequest({ actor: operator?.name ?? '', role: operator?.role ?? '', route: `${method} ${path}`, code });
}

export interface Order {
  /** Such as `provider.drain`. */
  readonly what: string;
  /** What it was done to; '' = the whole. */
  readonly target: string;
  readonly before: unknown;
  readonly after: unknown;
  readonly reason: string;
}

/** An order that was carried out, with the state before and after it. */
export function recordOrder(plane: Plane, asked: Asked, { what, target, before, after, reason }: Order): void {
  plane.audit.record({
    actor: asked.operator?.name ?? '',
    role: asked.operator?.role ?? '',
    action: what,
    subject: target,
    reason,
    detail: { ...flat('before', before), ...flat('after', after) },
    outcome: 'done',
  });
}

/** Plain values each under their own key, anything deeper as JSON; null leaves nothing. */
function flat(prefix: string, value: unknown): Record<string, AuditValue> {
  if (value === null || value === undefined) return {};
  if (typeof value !== 'object') return { [prefix]: value as AuditValue };
  if (Array.isArray(value)) return { [prefix]: JSON.stringify(value) };
  const entries: Record<string, AuditValue> = {};
  for (const [key, each] of Object.entries(value))
    if (each !== undefined)
      entries[`${prefix}.${key}`] = typeof each === 'object' && each !== null ? JSON.stringify(each) : (each as AuditValue);
  return entries;
}
