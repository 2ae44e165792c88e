/**
 * What finding the rules for a message costs, among 10 rules and among 1,000 of the same kinds: by role, by capability and its
 * patterns, by sender, by tags, and some for everybody. The same messages are matched against both sets, and as many rules
 * match them, so that only the number of rules differs. Prints a table; the last line is for machines to read.
 *
 * Time is the process's own CPU time, which a busy machine does not distort; each figure is the median of several runs.
 */
import type { Rule, RuleSet, RuleSubject } from '../../proto/language/rule.ts';
import { compileRules } from '../../proto/language/rule-tree.ts';

const MATCHES = Number(process.env['MATCHES'] ?? 200_000);
const RUNS = 7;
const MESSAGES = 500;

const NO_TAGS = {};

function ruleOf(name: string, when: Partial<Rule['when']>): Rule {
  return {
    name,
    when: { messageType: null, sourceRole: null, targetRole: null, capability: null, tags: NO_TAGS, ...when },
    dispatch: 'random',
    stickyBy: null,
    priority: null,
    fallback: null,
  };
}

/** Rules that hold for what everybody sends, and those of one team after the other. */
function rulesFor(count: number): Rule[] {
  const rules = [
    ruleOf('requests', { messageType: 'task_request' }),
    ruleOf('orders', { capability: 'team0.order.*' }),
    ruleOf('team', { capability: 'team0.*' }),
    ruleOf('planners', { sourceRole: 'planner' }),
    ruleOf('gold', { messageType: 'task_request', tags: { tier: 'gold' } }),
  ];
  for (let i = 0; rules.length < count; i++) rules.push(teamRule(i));
  return rules;
}

function teamRule(i: number): Rule {
  const team = Math.floor(i / 5);
  switch (i % 5) {
    case 0:
      return ruleOf(`to_${i}`, { messageType: 'task_request', targetRole: `role${team}` });
    case 1:
      return ruleOf(`what_${i}`, { capability: `team${team}.order.query` });
    case 2:
      return ruleOf(`from_${i}`, { messageType: 'task_result', sourceRole: `role${team}` });
    case 3:
      return ruleOf(`tagged_${i}`, { messageType: 'task_request', tags: { customer: `c${team}`, tier: 'gold' } });
    default:
      return ruleOf(`both_${i}`, { sourceRole: 'planner', capability: `team${team}.*` });
  }
}

/** All of team 0, whose rules stand in both sets. */
function messages(): RuleSubject[] {
  const subjects: RuleSubject[] = [];
  for (let i = 0; i < MESSAGES; i++) {
    const byRole = i % 2 === 0;
    subjects.push({
      messageType: i % 3 === 0 ? 'task_result' : 'task_request',
      sourceRole: i % 5 === 0 ? 'planner' : 'role0',
      targetRole: byRole ? 'role0' : null,
      capability: byRole ? null : 'team0.order.query',
      tags: i % 4 === 0 ? { customer: 'c0', tier: 'gold', trace: `t${i}` } : NO_TAGS,
    });
  }
  return subjects;
}

function matchAll(rules: RuleSet, subjects: readonly RuleSubject[]): number {
  let matched = 0;
  for (let i = 0; i < MATCHES; i++) matched += rules.match(subjects[i % subjects.length] as RuleSubject).length;
  return matched;
}

function measure(rules: RuleSet, subjects: readonly RuleSubject[]): number {
  const before = process.cpuUsage();
  matchAll(rules, subjects);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / MATCHES;
}

const median = (values: number[]): number => values.sort((a, b) => a - b)[values.length >> 1] as number;

const subjects = messages();
const few = compileRules(rulesFor(10), 1);
const many = compileRules(rulesFor(1_000), 1);
const matched = matchAll(few, subjects);
if (matched === 0 || matched !== matchAll(many, subjects)) throw new Error('other rules match in the two sets: the bench measures nothing');
const us: Record<'few' | 'many', number[]> = { few: [], many: [] };
// In turns, so that both see the same machine.
for (let run = 0; run < RUNS; run++) {
  us.few.push(measure(few, subjects));
  us.many.push(measure(many, subjects));
}
const us10 = median(us.few);
const us1000 = median(us.many);
console.log(`${'rules'.padEnd(10)}us/message (${(matched / MATCHES).toFixed(1)} rules match)`);
console.log(`${'10'.padEnd(10)}${us10.toFixed(3)}`);
console.log(`${'1,000'.padEnd(10)}${us1000.toFixed(3)}`);
console.log(JSON.stringify({ bench: 'rules', us_10: Math.round(us10 * 1_000) / 1_000, us_1000: Math.round(us1000 * 1_000) / 1_000 }));
