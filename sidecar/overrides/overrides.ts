/**
 * The operator's emergency rules. They stand before everything that chooses; a block or drain of one provider is applied
 * by `choose`, which reads the same list. An expired rule counts as absent, without anybody having to remove it.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { Override } from '../../proto/language/types.ts';
import type { Call } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Capability, Snapshot } from '../table/snapshot.ts';

const none = passing('overrides', 'none', 'no override is in force for this call');
const NONE = new Verdict(none);
const blocked = refusing('overrides', 'blocked', Code.blocked_by_operator, 'override {a} blocks it: {b} (by {c})');
const draining = refusing('overrides', 'draining', Code.blocked_by_operator, 'override {a} drains it: {b} (by {c})');
export const degraded = refusing('overrides', 'degraded', Code.blocked_by_operator, 'override {a} degrades it: {b} (by {c})');
export const rerouted = passing('overrides', 'rerouted', 'override {a} sends it to {b}: {c}');

export function overrides(call: Call): Verdict {
  const list = (call.table as Snapshot).overrides;
  if (list.length === 0) return NONE;
  const now = call.clock.wallMs();
  for (const rule of list) {
    if (rule.provider !== null || !inForce(rule, now) || !covers(rule, call)) continue;
    if (rule.action === 'block') return new Verdict(blocked, rule.name, rule.reason, rule.author);
    if (rule.action === 'drain') return new Verdict(draining, rule.name, rule.reason, rule.author);
    if (rule.action === 'degrade') {
      call.degradedBy = rule;
      return new Verdict(degraded, rule.name, rule.reason, rule.author);
    }
    if (rule.to !== null && call.reroutedBy === null) {
      call.reroutedBy = rule;
      return new Verdict(rerouted, rule.name, rule.to, rule.reason);
    }
  }
  return NONE;
}

function inForce(rule: Override, wallMs: number): boolean {
  return rule.expiresAtMs === null || rule.expiresAtMs > wallMs;
}

function covers(rule: Override, call: Call): boolean {
  return (
    (rule.capability === null || coversName(rule.capability, (call.capability as Capability).name)) &&
    (rule.caller === null || coversAgent(rule.caller, call.principal as Principal))
  );
}

/** `crm.order.query`, `crm.order.*`, `crm.*` or `*`. */
function coversName(pattern: string, name: string): boolean {
  if (pattern === '*' || pattern === name) return true;
  return pattern.endsWith('.*') && name.startsWith(pattern.slice(0, -1));
}

/** `team.role.id` with `*` for any part, `team:x`, `role:x` or `agent:a.b.c`. */
function coversAgent(pattern: string, principal: Principal): boolean {
  if (pattern.startsWith('team:')) return pattern.slice(5) === principal.team;
  if (pattern.startsWith('role:')) return pattern.slice(5) === principal.role;
  const [team, role, ...id] = (pattern.startsWith('agent:') ? pattern.slice(6) : pattern).split('.');
  const last = id.length === 0 ? '*' : id.join('.');
  return (
    (team === '*' || team === principal.team) &&
    (role === undefined || role === '*' || role === principal.role) &&
    (last === '*' || last === principal.id)
  );
}
