/**
 * The operator's emergency rules. They stand before everything that chooses; a block or drain of one provider is applied
 * by `choose`, which reads the same list. An expired rule counts as absent, without anybody having to remove it.
 */
import { Code } from '../../proto/wire/codes.ts';
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import type { Override } from '../../proto/language/types.ts';
import type { Call } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Capability, Snapshot } from '../table/snapshot.ts';

const none = passing('overrides', 'none', 'no override is in force for this call');
const NONE = new Verdict(none);
const blocked = refusing('overrides', 'blocked', Code.blocked_by_operator, 'override {a} blocks it: {b} (by {c})');
const draining = refusing('overrides', 'draining', Code.blocked_by_operator, 'override {a} drains it: {b} (by {c})');
const degraded = refusing('overrides', 'degraded', Code.blocked_by_operator, 'override {a} degrades it: {b} (by {c})');
const rerouted = passing('overrides', 'rerouted', 'override {a} sends it to {b}: {c}');

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
  return coversName(rule.capability, (call.capability as Capability).name) && coversAgent(rule.caller, (call.principal as Principal).agent);
}
