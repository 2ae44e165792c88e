/**
 * The operator's emergency rules. They stand before everything that chooses; a rule for one provider is applied by `choose`,
 * which reads the same list, and once more where that provider is hosted (`atHost`), so that a caller whose sidecar has not
 * heard of it gets no further. An expired rule counts as absent, without anybody having to remove it.
 *
 * A rule decides what begins. What is under way ends in peace, unless a block says `cut` (`cut.ts`).
 */
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import { isInForce, signatureOf } from '../../proto/language/override-words.ts';
import type { Override } from '../../proto/language/types.ts';
import { type Call, headerOf } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { passing, type Reason, refusing, Verdict } from '../call/verdict.ts';
import type { Capability, Snapshot } from '../table/snapshot.ts';

const none = passing('overrides', 'none', 'no override is in force for this call');
const NONE = new Verdict(none);
const blocked = refusing('overrides', 'blocked', Code.blocked_by_operator, 'override {a} blocks it: {b} (by {c})');
const draining = refusing('overrides', 'draining', Code.blocked_by_operator, 'override {a} drains it: {b} (by {c})');
const degraded = refusing('overrides', 'degraded', Code.blocked_by_operator, 'override {a} degrades it: {b} (by {c})');
const rerouted = passing('overrides', 'rerouted', 'override {a} sends it to {b}: {c}');
const turnedAway = passing('overrides', 'provider_rerouted', 'override {a} leaves nobody here to serve it and sends it to {b}: {c}');
const answeredFor = refusing(
  'overrides',
  'provider_degraded',
  Code.blocked_by_operator,
  'override {a} leaves nobody to serve it: {b} (by {c})',
);

/** @param list the rules that count: of the call's table, or newer ones */
export function overrides(call: Call, list: readonly Override[] = (call.table as Snapshot).overrides): Verdict {
  if (list.length === 0) return NONE;
  const now = call.clock.wallMs();
  for (const rule of list) {
    if (rule.provider !== null || !isInForce(rule, now) || !covers(rule, call)) continue;
    if (rule.action === 'block') return refusal(blocked, rule);
    if (rule.action === 'drain') return refusal(draining, rule);
    if (rule.action === 'degrade') {
      call.degradedBy = rule;
      return refusal(degraded, rule);
    }
    if (rule.to !== null && call.reroutedBy === null) {
      call.reroutedBy = rule;
      return new Verdict(rerouted, rule.name, rule.to, `${rule.reason} (by ${signatureOf(rule)})`);
    }
  }
  return NONE;
}

/** Where the provider is hosted: what it is blocked for does not begin, whoever has chosen it. */
export function atHost(call: Call, agentId: string): Verdict {
  const list = (call.table as Snapshot).overrides;
  if (list.length === 0) return NONE;
  const now = call.clock.wallMs();
  for (const rule of list) {
    if (rule.provider === null || !isInForce(rule, now) || !coversAgent(rule.provider, agentId) || !covers(rule, call)) continue;
    if (rule.action !== 'drain') return refusal(blocked, rule);
    // What names this provider, or has a key that may be held here, goes on with something.
    if (call.affinityKey === null && headerOf(call, Header.pin) !== agentId) return refusal(draining, rule);
  }
  return NONE;
}

/**
 * Nobody was left to choose: perhaps because rules for single providers degrade or reroute them. Null = they do not. A reroute
 * is followed once; then what was found is told like any other refusal.
 */
export function leftWithout(call: Call): Verdict | null {
  const list = (call.table as Snapshot).overrides;
  if (list.length === 0 || (call.code !== Code.blocked_by_operator && call.code !== Code.none_healthy)) return null;
  const now = call.clock.wallMs();
  for (const rule of list) {
    if (rule.provider === null || !isInForce(rule, now) || !covers(rule, call) || !concerns(rule, call)) continue;
    // Where others are merely unwell, the fallback runs without a rule.
    if (rule.action === 'degrade' && call.code === Code.blocked_by_operator) {
      call.degradedBy = rule;
      return refusal(answeredFor, rule);
    }
    if (rule.action === 'reroute' && call.reroutedBy === null) {
      call.reroutedBy = rule;
      return new Verdict(turnedAway, rule.name, rule.to, `${rule.reason} (by ${signatureOf(rule)})`);
    }
  }
  return null;
}

/** One who could have served it, or the one that was asked for by name. */
function concerns(rule: Override, call: Call): boolean {
  const pin = call.pin ?? (call.reroutedBy === null ? headerOf(call, Header.pin) : null);
  if (pin !== null && pin !== '') return coversAgent(rule.provider, pin);
  for (const line of call.lines) for (const { provider } of line.candidates) if (coversAgent(rule.provider, provider.agentId)) return true;
  return false;
}

function refusal(reason: Reason, rule: Override): Verdict {
  return new Verdict(reason, rule.name, rule.reason, signatureOf(rule));
}

function covers(rule: Override, call: Call): boolean {
  return coversName(rule.capability, (call.capability as Capability).name) && coversAgent(rule.caller, (call.principal as Principal).agent);
}
