/** `rules`: what is in force and how often it decides, the lint, dry runs. Rules are applied with the document (`policies`). */
import type { Command } from 'commander';
import { conditionWords, lintRules } from '../../proto/language/rule-lint.ts';
import type { Rule, RuleSubject } from '../../proto/language/rule.ts';
import type { LintAnswer, RecordedMessagesAnswer, RulesAnswer, RulesOf, RuleShown, TrialAnswer } from '../api/rule-shapes.ts';
import { readOperatorsDocument } from '../rules/document.ts';
import { readRecording } from '../rules/recorded.ts';
import { type Decision, decide, tryRules } from '../rules/trial.ts';
import { compileRules } from '../../proto/language/rule-tree.ts';
import { Exit, Failed, problemWords } from './client.ts';
import { type Context, wholeOf } from './context.ts';
import type { Act, Options } from './program.ts';
import { ago, percent, table } from './table.ts';

export function ruleCommands(program: Command, act: Act): void {
  const rules = program
    .command('rules')
    .description('rules for messages; they are applied, compared and taken back with `policies`')
    .helpCommand(false);
  rules
    .command('list')
    .description('the rules in force, and how many messages each one decided')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ path: '/v1/rules' });
        context.show<RulesAnswer>(answer, listWords);
      }),
    );
  rules
    .command('lint [file]')
    .description('rules that never decide, overlap, cannot be met, go round, or are not used; of a file, or of those in force')
    .option('--offline', 'of a file, without asking the control plane what is registered')
    .option('--strict', 'exit with 1 when anything is found')
    .action(act(async (context, [file], options) => lint(context, file, options)));
  rules
    .command('test [file]')
    .description('what the rules of a file would decide about recorded messages, beside those in force; nothing is changed')
    .option('--messages <file>', 'a recording, one JSON object a line: the control plane is not asked (see --in-force)')
    .option('--against <file>', 'with --messages: beside the rules of this file')
    .option('--in-force', 'with --messages: beside the rules in force, which the control plane is asked for')
    .action(act(async (context, [file], options) => test(context, file, options)));
  rules
    .command('record')
    .description('the last messages that sidecars accepted, as rules see them, one JSON object a line; for rules test --messages')
    .option('--limit <n>', 'of each sidecar at most so many')
    .action(act(async (context, _args, options) => record(context, options)));
}

async function lint(context: Context, file: string | undefined, options: Options): Promise<void> {
  let answer: LintAnswer;
  if (options['offline'] === true) {
    if (file === undefined) throw new Failed(Exit.usage, ['--offline needs a file']);
    const rules = await rulesIn(context, file);
    answer = { version: null, rules: rules.length, messages: 0, for_ms: 0, findings: lintRules(rules, null, null) };
  } else if (file === undefined) answer = (await context.client.call({ path: '/v1/rules/lint' })) as LintAnswer;
  else {
    const text = await context.read(file);
    answer = (await context.client.call({ method: 'POST', path: '/v1/rules/lint', text, query: { file } })) as LintAnswer;
  }
  context.show<LintAnswer>(answer, lintWords);
  if (options['strict'] === true && answer.findings.length > 0)
    throw new Failed(Exit.refused, [answer.findings.length === 1 ? 'there is a finding' : `there are ${answer.findings.length} findings`]);
}

async function rulesIn(context: Context, file: string): Promise<readonly Rule[]> {
  const { document, problems } = readOperatorsDocument(await context.read(file), file, null);
  if (document === null) throw new Failed(Exit.refused, problems.map(problemWords));
  return document.rules;
}

async function test(context: Context, file: string | undefined, options: Options): Promise<void> {
  const { messages, against } = options;
  if (typeof messages !== 'string') {
    if (against !== undefined || options['inForce'] === true)
      throw new Failed(Exit.usage, [
        '--against and --in-force go with --messages; without it, the rules in force are what a file is compared with',
      ]);
    const json = file === undefined ? {} : { text: await context.read(file), file };
    const answer = await context.client.call({ method: 'POST', path: '/v1/rules/test', json });
    return context.show<TrialAnswer>(answer, trialWords);
  }
  if (against !== undefined && options['inForce'] === true)
    throw new Failed(Exit.usage, ['--against and --in-force are two things to compare with: leave one of them out']);
  const recording = readRecording(await context.read(messages));
  if (typeof recording === 'string') throw new Failed(Exit.usage, [`${messages}: ${recording}`]);
  if (file === undefined) throw new Failed(Exit.usage, ['name the file whose rules are tried']);
  if (options['inForce'] === true) {
    const json = { text: await context.read(file), file, messages: recording.map(headOf) };
    const answer = await context.client.call({ method: 'POST', path: '/v1/rules/test', json });
    return context.show<TrialAnswer>(answer, trialWords);
  }
  const rules = await rulesIn(context, file);
  if (typeof against === 'string')
    return context.show<TrialAnswer>(tryRules(await rulesIn(context, against), rules, recording), trialWords);
  context.show<DecisionsAnswer>(decisionsOf(rules, recording), decisionsText);
}

function headOf({ messageType, sourceRole, targetRole, capability, tags }: RuleSubject): object {
  return { message_type: messageType, source_role: sourceRole, target_role: targetRole, capability, tags };
}

interface DecisionsAnswer {
  readonly messages: readonly (Decision & { readonly message: string; readonly count: number })[];
}

function decisionsOf(rules: readonly Rule[], recording: readonly RuleSubject[]): DecisionsAnswer {
  const compiled = compileRules(rules, 0);
  const groups = new Map<string, { message: string; count: number; decision: Decision }>();
  for (const subject of recording) {
    const message = conditionWords(subject);
    const group = groups.get(message);
    if (group === undefined) groups.set(message, { message, count: 1, decision: decide(compiled, subject) });
    else group.count++;
  }
  const messages = [...groups.values()].sort((a, b) => b.count - a.count);
  return { messages: messages.map(({ message, count, decision }) => ({ message, count, ...decision })) };
}

function decisionsText({ messages }: DecisionsAnswer): string {
  return table(
    ['MESSAGES', 'COUNT', 'RULE', 'DISPATCH', 'PRIORITY', 'WHEN NOBODY IS THERE'],
    messages.map((one) => [one.message, one.count, one.rule, one.dispatch, one.priority, one.if_nobody]),
  );
}

async function record(context: Context, options: Options): Promise<void> {
  const limit = typeof options['limit'] === 'string' ? String(wholeOf(options['limit'], '--limit')) : null;
  const answer = (await context.client.call({ path: '/v1/rules/recorded', query: { limit } })) as RecordedMessagesAnswer;
  if (context.json) context.io.out(JSON.stringify(answer, null, 2));
  else for (const message of answer.messages) context.io.out(JSON.stringify(message));
  if (answer.silent.length > 0) context.io.err(`reachctl: no answer from ${answer.silent.join(', ')}`);
  if (answer.left_out > 0) context.io.err(`reachctl: ${answer.left_out} sidecars were not asked`);
}

function listWords(view: RulesAnswer): string {
  const { staged } = view;
  const lines = [setWords(view, `version ${view.version}`)];
  if (staged !== null) lines.push('', setWords(staged, `version ${staged.version}, rolled out to ${percent(staged.share)}`));
  return lines.join('\n');
}

function setWords(set: RulesOf, title: string): string {
  if (set.rules.length === 0) return `${title}: no rules; messages go to whoever is free, and wait when nobody is there`;
  const rows = set.rules.map((rule) => [rule.name, whenWords(rule), actionWords(rule), nobodyWords(rule), rule.hits]);
  return `${title}, ${countWords(set)}\n${table(['RULE', 'WHEN', 'ACTION', 'WHEN NOBODY IS THERE', 'HITS'], rows)}`;
}

function countWords({ messages, for_ms: forMs, sidecars }: RulesOf): string {
  const age = forMs < 1_000 ? '' : ` in ${ago(forMs)}`;
  return `${messages} message${messages === 1 ? '' : 's'}${age}, ${sidecars} sidecar${sidecars === 1 ? '' : 's'}`;
}

function whenWords({ when }: RuleShown): string {
  if (when === undefined || Object.keys(when).length === 0) return 'anything';
  return Object.entries(when)
    .map(([key, value]) => `${key} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');
}

function actionWords({ action }: RuleShown): string {
  const dispatch = action.sticky_by === undefined ? action.dispatch : `${action.dispatch} by ${action.sticky_by}`;
  return action.priority === undefined ? dispatch : `${dispatch}, ${action.priority}`;
}

function nobodyWords({ fallback }: RuleShown): string {
  if (fallback === undefined) return 'the next rule';
  const { if_no_available_agent: nobody } = fallback;
  return typeof nobody === 'string' ? nobody : `capability: ${nobody.capability}`;
}

function lintWords(view: LintAnswer): string {
  if (view.findings.length === 0) return `${view.rules} rule${view.rules === 1 ? '' : 's'}, nothing found`;
  return view.findings.map(({ rule, kind, words }) => `${rule}: ${kind}: ${words}`).join('\n');
}

function trialWords(view: TrialAnswer): string {
  const counts = table(
    ['RULE', 'BEFORE', 'AFTER'],
    view.rules.map(({ rule, before, after }) => [rule ?? '(none)', before, after]),
  );
  const lines = [counts, '', `of ${view.messages} messages, ${view.changed} would be decided otherwise`];
  for (const { message, count, before, after } of view.changes)
    lines.push(`~ ${count} with ${message}`, `    before: ${decisionWords(before)}`, `    after:  ${decisionWords(after)}`);
  if (view.left_out > 0) lines.push(`and ${view.left_out} more kinds of messages`);
  return lines.join('\n');
}

function decisionWords({ rule, dispatch, priority, tried, if_nobody: nobody }: Decision): string {
  const who = rule ?? 'no rule';
  const then = tried.length > 1 ? `${nobody} (after ${tried.slice(1).join(', ')})` : nobody;
  return `${who}: ${dispatch}, ${priority ?? "the sender's priority"}; when nobody is there: ${then}`;
}
