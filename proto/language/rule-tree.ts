/**
 * Rules compiled to a tree: which of them a message matches, the most specific first. Each level asks for one part of the
 * condition, by a map from what is named to the next level and a branch for rules that do not name it; so what a message
 * costs depends on what it says and on how many rules match it, never on how many there are.
 *
 * More specific is what names more: every tag counts as one part. Of two that name as many, the one with the longer name or
 * pattern of capabilities comes first, and then the one that stands first in the file. So a rule always comes before every
 * other whose messages include all of its own.
 */
import type { Rule, RuleCondition, RuleSet, RuleSubject } from './rule.ts';

/** A rule and where it stands among all of them when sorted by how specific they are. */
interface Ranked {
  readonly rule: Rule;
  readonly rank: number;
}

/** One part of the condition: rules that name it by what they name, and those that do not. */
interface Level<T> {
  readonly named: Map<string, T>;
  any: T | null;
}

/** Rules that ask for no further tag, and those that do by name and value of the next one in order. */
interface TagNode {
  readonly rules: Ranked[];
  readonly next: Map<string, Map<string, TagNode>>;
}

type ByCapability = Level<TagNode>;
type ByTarget = Level<ByCapability>;
type BySource = Level<ByTarget>;
type ByType = Level<BySource>;

const NONE: readonly Rule[] = Object.freeze([]);
const NO_KEYS: readonly string[] = Object.freeze([]);
/** Names of capabilities whose patterns are remembered. */
const MAX_REMEMBERED = 10_000;

/** @param version of the operators' document in which they stand. */
export function compileRules(rules: readonly Rule[], version: number): RuleSet {
  return new RuleTree(rules, version);
}

class RuleTree implements RuleSet {
  readonly version: number;
  readonly #root: ByType = level();
  /** Tags that any rule names: the others of a message do not matter. */
  readonly #tagNames: ReadonlySet<string>;
  readonly #patterns = new Map<string, readonly string[]>();
  /** Filled and emptied within one match. */
  readonly #found: Ranked[] = [];

  constructor(rules: readonly Rule[], version: number) {
    this.version = version;
    this.#tagNames = new Set(rules.flatMap(({ when }) => Object.keys(when.tags)));
    for (const ranked of rank(rules)) leafFor(this.#root, ranked.rule.when).rules.push(ranked);
  }

  match(subject: RuleSubject): readonly Rule[] {
    const found = this.#found;
    const tags = this.#tagsOf(subject.tags);
    const { named, any } = this.#root;
    const exact = named.get(subject.messageType);
    if (exact !== undefined) this.#bySource(exact, subject, tags);
    if (any !== null) this.#bySource(any, subject, tags);
    if (found.length === 0) return NONE;
    if (found.length > 1) found.sort(byRank);
    const rules = new Array<Rule>(found.length);
    for (let i = 0; i < found.length; i++) rules[i] = (found[i] as Ranked).rule;
    found.length = 0;
    return rules;
  }

  #bySource({ named, any }: BySource, subject: RuleSubject, tags: readonly string[]): void {
    const exact = named.get(subject.sourceRole);
    if (exact !== undefined) this.#byTarget(exact, subject, tags);
    if (any !== null) this.#byTarget(any, subject, tags);
  }

  #byTarget({ named, any }: ByTarget, subject: RuleSubject, tags: readonly string[]): void {
    const exact = subject.targetRole === null ? undefined : named.get(subject.targetRole);
    if (exact !== undefined) this.#byCapability(exact, subject, tags);
    if (any !== null) this.#byCapability(any, subject, tags);
  }

  #byCapability({ named, any }: ByCapability, subject: RuleSubject, tags: readonly string[]): void {
    if (subject.capability !== null && named.size > 0) {
      for (const pattern of this.#patternsOf(subject.capability)) {
        const node = named.get(pattern);
        if (node !== undefined) this.#byTags(node, subject.tags, tags, 0);
      }
    }
    if (any !== null) this.#byTags(any, subject.tags, tags, 0);
  }

  #byTags(node: TagNode, values: RuleSubject['tags'], names: readonly string[], from: number): void {
    for (const ranked of node.rules) this.#found.push(ranked);
    if (node.next.size === 0) return;
    for (let i = from; i < names.length; i++) {
      const name = names[i] as string;
      const next = node.next.get(name)?.get(values[name] as string);
      if (next !== undefined) this.#byTags(next, values, names, i + 1);
    }
  }

  /** Those of a message that rules ask for, in the order of the tree. */
  #tagsOf(tags: RuleSubject['tags']): readonly string[] {
    if (this.#tagNames.size === 0) return NO_KEYS;
    let names: string[] | null = null;
    for (const name of Object.keys(tags)) if (this.#tagNames.has(name)) (names ??= []).push(name);
    if (names === null) return NO_KEYS;
    return names.length === 1 ? names : names.sort();
  }

  #patternsOf(capability: string): readonly string[] {
    const known = this.#patterns.get(capability);
    if (known !== undefined) return known;
    if (this.#patterns.size >= MAX_REMEMBERED) this.#patterns.clear();
    const patterns = patternsFor(capability);
    this.#patterns.set(capability, patterns);
    return patterns;
  }
}

/** The name and every pattern that covers it, the longest first. */
function patternsFor(capability: string): readonly string[] {
  const second = capability.lastIndexOf('.');
  const first = capability.indexOf('.');
  return [capability, `${capability.slice(0, second)}.*`, `${capability.slice(0, first)}.*`, '*'];
}

function byRank(a: Ranked, b: Ranked): number {
  return a.rank - b.rank;
}

function level<T>(): Level<T> {
  return { named: new Map(), any: null };
}

/** The next level for what a rule names, made if it is the first to name it. */
function under<T>(from: Level<T>, name: string | null, make: () => T): T {
  if (name === null) return (from.any ??= make());
  let next = from.named.get(name);
  if (next === undefined) {
    next = make();
    from.named.set(name, next);
  }
  return next;
}

const tagNode = (): TagNode => ({ rules: [], next: new Map() });

function leafFor(root: ByType, when: RuleCondition): TagNode {
  const source = under(root, when.messageType, () => level<ByTarget>());
  const target = under(source, when.sourceRole, () => level<ByCapability>());
  const capability = under(target, when.targetRole, () => level<TagNode>());
  let node = under(capability, when.capability, tagNode);
  for (const name of Object.keys(when.tags).sort()) {
    let values = node.next.get(name);
    if (values === undefined) node.next.set(name, (values = new Map()));
    const value = when.tags[name] as string;
    let next = values.get(value);
    if (next === undefined) values.set(value, (next = tagNode()));
    node = next;
  }
  return node;
}

function rank(rules: readonly Rule[]): Ranked[] {
  return [...rules.entries()]
    .toSorted(([i, a], [j, b]) => compareSpecificity(a.when, b.when) || i - j)
    .map(([, rule], place) => ({ rule, rank: place }));
}

/** Below 0: `a` is the more specific one and comes first; 0: the order of the file decides. */
export function compareSpecificity(a: RuleCondition, b: RuleCondition): number {
  return partsOf(b) - partsOf(a) || nameDepth(b.capability) - nameDepth(a.capability);
}

function partsOf(when: RuleCondition): number {
  let parts = Object.keys(when.tags).length;
  for (const part of [when.messageType, when.sourceRole, when.targetRole, when.capability]) if (part !== null) parts++;
  return parts;
}

/** 4 for a name, 3 and 2 for patterns, 1 for `*`, 0 for none. */
function nameDepth(pattern: string | null): number {
  if (pattern === null) return 0;
  if (pattern === '*') return 1;
  return pattern.endsWith('.*') ? pattern.split('.').length : 4;
}
