/**
 * What a set of rules is told about itself: rules that never decide because another one does (shadowed), pairs of which
 * only the count of parts or the order of the file decides which comes first (overlapping), rules that no message can meet
 * as far as is known (unreachable), fallbacks that go round (circular), and rules that no message met (unused). Findings are
 * advice: nothing of it keeps a document from being applied.
 */
import { formatDuration } from '../../base/duration.ts';
import { coversName } from './covers.ts';
import { isCapabilityName, parseTarget } from './names.ts';
import type { Rule, RuleCondition, RuleSet, RuleSubject } from './rule.ts';
import { compareSpecificity, compileRules } from './rule-tree.ts';

export type FindingKind = 'shadowed' | 'overlapping' | 'unreachable' | 'circular' | 'unused';

export interface RuleFinding {
  readonly kind: FindingKind;
  readonly rule: string;
  /** Where the rule stands in the list. */
  readonly index: number;
  /** The rule because of which; null = none. */
  readonly other: string | null;
  readonly words: string;
}

/** What is registered, as far as rules ask for it. */
export interface RuleWorld {
  /** Roles of senders that are known. */
  readonly senders: ReadonlySet<string>;
  /** Roles and tags of agents that messages can be addressed to. */
  readonly targets: ReadonlySet<string>;
  /** Canonical names. */
  readonly capabilities: ReadonlySet<string>;
  /** The name for which an alias stands; null = it is none. */
  ownerOf(alias: string): string | null;
}

/** Real messages, by the rules that decided them. */
export interface RuleTraffic {
  readonly hits: ReadonlyMap<string, number>;
  /** All messages, also those that no rule met. */
  readonly messages: number;
  /** Over how long. */
  readonly forMs: number;
}

/** Fewer messages do not show that a rule is unused. */
export const MIN_MESSAGES = 100;
/** Of overlapping pairs; a set that has more has one problem, not many. */
const MAX_OVERLAPS = 100;

/** @param world null = nothing is known. @param traffic null = no hits are known. */
export function lintRules(rules: readonly Rule[], world: RuleWorld | null, traffic: RuleTraffic | null): readonly RuleFinding[] {
  const shadowed = shadowedIn(rules);
  const findings = [
    ...faultsIn(rules, world),
    ...overlapsIn(rules, shadowed),
    ...(traffic === null ? [] : unusedIn(rules, traffic, shadowed)),
  ];
  return findings.toSorted((a, b) => a.index - b.index);
}

/** Those that are hardly ever meant. The pairs that overlap are a matter of taste, and of time: they grow with the square. */
export function faultsIn(rules: readonly Rule[], world: RuleWorld | null): readonly RuleFinding[] {
  return [...shadowedIn(rules).values(), ...(world === null ? [] : unreachableIn(rules, world)), ...circlesIn(rules)];
}

/** By index. Only a rule with the very same condition can keep another one from ever deciding: the rest is more or less specific. */
function shadowedIn(rules: readonly Rule[]): ReadonlyMap<number, RuleFinding> {
  const found = new Map<number, RuleFinding>();
  const before = new Map<string, { readonly first: Rule; ender: Rule | null; readonly tried: Map<string, Rule> }>();
  for (const [index, rule] of rules.entries()) {
    const key = conditionKey(rule.when);
    const onward = rule.fallback?.kind === 'capability' ? rule.fallback.target : null;
    const same = before.get(key);
    if (same === undefined) {
      before.set(key, { first: rule, ender: endsIt(rule) ? rule : null, tried: new Map(onward === null ? [] : [[onward, rule]]) });
      continue;
    }
    const { first, ender, tried } = same;
    const tries = onward === null ? undefined : tried.get(onward);
    if (ender !== null) {
      const words = `it never decides: ${ender.name} has the same condition, comes before it, and ends the matter with ${fallbackWords(ender)} when nobody is there`;
      found.set(index, { kind: 'shadowed', rule: rule.name, index, other: ender.name, words });
    } else if (rule.fallback === null) {
      const words = `it never decides: ${first.name} has the same condition and comes before it, so it is tried only when nobody is there, and has no fallback for that`;
      found.set(index, { kind: 'shadowed', rule: rule.name, index, other: first.name, words });
    } else if (onward !== null && tries !== undefined) {
      const words = `it never decides: ${tries.name} has the same condition, comes before it, and has tried ${onward} by then`;
      found.set(index, { kind: 'shadowed', rule: rule.name, index, other: tries.name, words });
    } else if (endsIt(rule)) same.ender = rule;
    else if (onward !== null) tried.set(onward, rule);
  }
  return found;
}

/** Whatever comes after it is not tried. */
function endsIt({ fallback }: Rule): boolean {
  return fallback !== null && fallback.kind !== 'capability';
}

function fallbackWords({ fallback }: Rule): string {
  return fallback === null ? 'nothing' : fallback.kind;
}

function conditionKey({ messageType, sourceRole, targetRole, capability, tags }: RuleCondition): string {
  const named = Object.keys(tags)
    .sort()
    .map((name) => [name, tags[name]]);
  return JSON.stringify([messageType, sourceRole, targetRole, capability, named]);
}

function overlapsIn(rules: readonly Rule[], shadowed: ReadonlyMap<number, RuleFinding>): RuleFinding[] {
  const found: RuleFinding[] = [];
  for (const [j, later] of rules.entries()) {
    if (shadowed.has(j)) continue;
    for (let i = 0; i < j; i++) {
      const earlier = rules[i] as Rule;
      if (shadowed.has(i) || doesSame(earlier, later)) continue;
      const common = commonOf(earlier.when, later.when);
      if (common === null || covers(earlier.when, later.when) || covers(later.when, earlier.when)) continue;
      const order = compareSpecificity(earlier.when, later.when);
      const [first, second] = order <= 0 ? [earlier, later] : [later, earlier];
      const why =
        order === 0
          ? 'because it stands first in the file; write a rule for what both meet, or say more in one of them'
          : 'because its condition says more';
      const words = `messages with ${conditionWords(common)} meet both ${first.name} and ${second.name}, and ${first.name} decides ${why}`;
      found.push({ kind: 'overlapping', rule: second.name, index: order <= 0 ? j : i, other: first.name, words });
      if (found.length >= MAX_OVERLAPS) return found;
    }
  }
  return found;
}

function doesSame(a: Rule, b: Rule): boolean {
  const isSameFallback =
    a.fallback?.kind === b.fallback?.kind &&
    (a.fallback?.kind !== 'capability' || (b.fallback?.kind === 'capability' && a.fallback.target === b.fallback.target));
  return (
    (a.dispatch === 'sticky') === (b.dispatch === 'sticky') && a.stickyBy === b.stickyBy && a.priority === b.priority && isSameFallback
  );
}

/** Every message that meets `narrow` meets `wide`. */
export function covers(wide: RuleCondition, narrow: RuleCondition): boolean {
  return (
    (wide.messageType === null || wide.messageType === narrow.messageType) &&
    (wide.sourceRole === null || wide.sourceRole === narrow.sourceRole) &&
    (wide.targetRole === null || wide.targetRole === narrow.targetRole) &&
    (wide.capability === null || (narrow.capability !== null && coversPattern(wide.capability, narrow.capability))) &&
    Object.keys(wide.tags).every((name) => narrow.tags[name] === wide.tags[name])
  );
}

function coversPattern(wide: string, narrow: string): boolean {
  return wide === narrow || wide === '*' || (narrow !== '*' && coversName(wide, narrow));
}

/** What a message that meets both says; null = none does. */
function commonOf(a: RuleCondition, b: RuleCondition): RuleCondition | null {
  const differs = (one: string | null, other: string | null): boolean => one !== null && other !== null && one !== other;
  if (differs(a.messageType, b.messageType) || differs(a.sourceRole, b.sourceRole) || differs(a.targetRole, b.targetRole)) return null;
  for (const name of Object.keys(a.tags)) if (name in b.tags && a.tags[name] !== b.tags[name]) return null;
  let capability = a.capability ?? b.capability;
  if (a.capability !== null && b.capability !== null) {
    if (coversPattern(a.capability, b.capability)) capability = b.capability;
    else if (!coversPattern(b.capability, a.capability)) return null;
  }
  return {
    messageType: a.messageType ?? b.messageType,
    sourceRole: a.sourceRole ?? b.sourceRole,
    targetRole: a.targetRole ?? b.targetRole,
    capability,
    tags: { ...a.tags, ...b.tags },
  };
}

/** `message_type task_request, target_role retriever`. */
export function conditionWords({ messageType, sourceRole, targetRole, capability, tags }: RuleCondition): string {
  const parts: string[] = [];
  if (messageType !== null) parts.push(`message_type ${messageType}`);
  if (sourceRole !== null) parts.push(`source_role ${sourceRole}`);
  if (targetRole !== null) parts.push(`target_role ${targetRole}`);
  if (capability !== null) parts.push(`capability ${capability}`);
  for (const name of Object.keys(tags)) parts.push(`tag ${name}=${tags[name] as string}`);
  return parts.length === 0 ? 'anything' : parts.join(', ');
}

function unreachableIn(rules: readonly Rule[], world: RuleWorld): RuleFinding[] {
  const found: RuleFinding[] = [];
  for (const [index, { name, when }] of rules.entries()) {
    const words = whyUnmet(when, world);
    if (words !== null) found.push({ kind: 'unreachable', rule: name, index, other: null, words });
  }
  return found;
}

function whyUnmet({ sourceRole, targetRole, capability }: RuleCondition, world: RuleWorld): string | null {
  if (sourceRole !== null && !world.senders.has(sourceRole))
    return `no message meets it so far: no sender with the role ${sourceRole} is known`;
  if (targetRole !== null && !world.targets.has(targetRole))
    return `no message meets it so far: no agent with the role or tag ${targetRole} is known`;
  if (capability === null || capability === '*' || world.capabilities.has(capability)) return null;
  if (!isCapabilityName(capability)) {
    for (const name of world.capabilities) if (coversName(capability, name)) return null;
    return `no message meets it so far: no capability of ${capability} is known`;
  }
  const owner = world.ownerOf(capability);
  if (owner !== null) return `no message meets it: ${capability} is an alias, and rules are asked by the name: write ${owner}`;
  return `no message meets it so far: the capability ${capability} is not known`;
}

function circlesIn(rules: readonly Rule[]): RuleFinding[] {
  if (!rules.some(({ fallback }) => fallback?.kind === 'capability')) return [];
  const found: RuleFinding[] = [];
  const compiled = compileRules(rules, 0);
  for (const [index, rule] of rules.entries()) {
    const circle = circleFrom(rule, compiled);
    if (circle !== null)
      found.push({
        kind: 'circular',
        rule: rule.name,
        index,
        other: null,
        words: `when nobody is there it goes round: ${circle.join(' > ')}`,
      });
  }
  return found;
}

/** The way of a message that meets the rule when nobody is there at all. */
function circleFrom(start: Rule, rules: RuleSet): string[] | null {
  const trail: string[] = [];
  let next: Rule | undefined = start;
  while (next?.fallback?.kind === 'capability') {
    const target = parseTarget(next.fallback.target);
    if ('problem' in target) return null;
    const at = trail.indexOf(target.name);
    // A rule that also meets what it sends on comes to the same capability once more, and no further.
    if (at >= 0) return at === trail.length - 1 ? null : [...trail.slice(at), target.name];
    trail.push(target.name);
    next = rules.match(sampleOf(start.when, target.name)).find(({ fallback }) => fallback?.kind === 'capability');
  }
  return null;
}

function sampleOf({ messageType, sourceRole, tags }: RuleCondition, capability: string): RuleSubject {
  return { messageType: messageType ?? '', sourceRole: sourceRole ?? '', targetRole: null, capability, tags };
}

function unusedIn(rules: readonly Rule[], traffic: RuleTraffic, shadowed: ReadonlyMap<number, RuleFinding>): RuleFinding[] {
  if (traffic.messages < MIN_MESSAGES) return [];
  const found: RuleFinding[] = [];
  for (const [index, { name }] of rules.entries()) {
    if (shadowed.has(index) || (traffic.hits.get(name) ?? 0) > 0) continue;
    const words = `it decided none of ${traffic.messages} messages in ${formatDuration(rounded(traffic.forMs))}`;
    found.push({ kind: 'unused', rule: name, index, other: null, words });
  }
  return found;
}

/** Nobody reads 4021s: what is left over of the larger unit does not matter. */
function rounded(ms: number): number {
  const unit = ms > 7_200_000 ? 3_600_000 : ms > 120_000 ? 60_000 : 1_000;
  return Math.max(unit, Math.round(ms / unit) * unit);
}
