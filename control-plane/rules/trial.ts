/**
 * A dry run: what rules would decide about recorded messages, beside what others decide. Nothing is sent. Who is there at
 * the time is not known to a recording, so each decision says both: what happens when somebody is there, and when nobody is.
 */
import { conditionWords } from '../../proto/language/rule-lint.ts';
import type { Rule, RuleFallback, RuleSet, RuleSubject } from '../../proto/language/rule.ts';
import { compileRules } from '../../proto/language/rule-tree.ts';

/** What is decided about a message. */
export interface Decision {
  /** null = no rule matches. */
  readonly rule: string | null;
  readonly dispatch: string;
  /** null = as the sender says. */
  readonly priority: string | null;
  /** Rules that are tried one after the other when nobody is there, the first one included. */
  readonly tried: readonly string[];
  /** What is done then. */
  readonly if_nobody: string;
}

export interface TrialChange {
  /** `message_type task_request, target_role retriever`. */
  readonly message: string;
  readonly count: number;
  readonly before: Decision;
  readonly after: Decision;
}

export interface Trial {
  readonly messages: number;
  /** Messages about which something else is decided. */
  readonly changed: number;
  /** By rule, in the order of the file; null = decided by none. */
  readonly rules: readonly { readonly rule: string | null; readonly before: number; readonly after: number }[];
  /** Messages that rules cannot tell apart stand together; the most frequent first. */
  readonly changes: readonly TrialChange[];
  /** Changes that are not shown. */
  readonly left_out: number;
}

const MAX_CHANGES = 100;

export function tryRules(before: readonly Rule[], after: readonly Rule[], messages: readonly RuleSubject[]): Trial {
  const [old, now] = [compileRules(before, 0), compileRules(after, 0)];
  const counts = new Map<string | null, { before: number; after: number }>();
  for (const { name } of [...after, ...before]) counts.set(name, { before: 0, after: 0 });
  counts.set(null, { before: 0, after: 0 });
  const changes = new Map<string, { subject: RuleSubject; count: number; before: Decision; after: Decision }>();
  let changed = 0;
  for (const [subject, count] of grouped(messages)) {
    const was = decide(old, subject);
    const is = decide(now, subject);
    countOf(counts, was.rule).before += count;
    countOf(counts, is.rule).after += count;
    if (JSON.stringify(was) === JSON.stringify(is)) continue;
    changed += count;
    changes.set(keyOf(subject), { subject, count, before: was, after: is });
  }
  const shown = [...changes.values()].sort((a, b) => b.count - a.count);
  return {
    messages: messages.length,
    changed,
    rules: [...counts].map(([rule, each]) => ({ rule, ...each })),
    changes: shown.slice(0, MAX_CHANGES).map(({ subject, count, before: was, after: is }) => ({
      message: conditionWords(subject),
      count,
      before: was,
      after: is,
    })),
    left_out: Math.max(0, shown.length - MAX_CHANGES),
  };
}

function countOf(counts: Map<string | null, { before: number; after: number }>, rule: string | null): { before: number; after: number } {
  return counts.get(rule) as { before: number; after: number };
}

function grouped(messages: readonly RuleSubject[]): Iterable<readonly [RuleSubject, number]> {
  const groups = new Map<string, [RuleSubject, number]>();
  for (const subject of messages) {
    const key = keyOf(subject);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [subject, 1]);
    else group[1]++;
  }
  return groups.values();
}

function keyOf({ messageType, sourceRole, targetRole, capability, tags }: RuleSubject): string {
  const named = Object.keys(tags).sort();
  return JSON.stringify([messageType, sourceRole, targetRole, capability, named.map((name) => [name, tags[name]])]);
}

export function decide(rules: RuleSet, subject: RuleSubject): Decision {
  const matching = rules.match(subject);
  const [first] = matching;
  const tried: string[] = [];
  const onward: string[] = [];
  for (const { name, fallback } of matching) {
    tried.push(name);
    if (fallback === null) continue;
    onward.push(fallbackWords(fallback));
    if (fallback.kind !== 'capability') break;
  }
  const last = matching[tried.length - 1]?.fallback ?? null;
  if (last === null || last.kind === 'capability') onward.push('queue_task');
  return {
    rule: first?.name ?? null,
    dispatch: first === undefined ? 'random' : first.dispatch === 'sticky' ? `sticky by ${first.stickyBy ?? ''}` : first.dispatch,
    priority: first?.priority ?? null,
    tried,
    if_nobody: onward.join(', else '),
  };
}

export function fallbackWords(fallback: RuleFallback): string {
  return fallback.kind === 'capability' ? `capability: ${fallback.target}` : fallback.kind;
}
