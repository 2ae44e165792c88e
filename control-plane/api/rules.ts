/** Rules for messages: those in force with what they decided, what the lint finds, and dry runs. They are applied with the document. */
import type { Rule, RuleSubject } from '../../proto/language/rule.ts';
import { lintRules } from '../../proto/language/rule-lint.ts';
import { writeRule } from '../../proto/language/rule-reading.ts';
import type { RecordedAnswer, RecordedMessage } from '../../proto/wire/messages.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { MAX_DOCUMENT_BYTES } from '../rules/document.ts';
import { MAX_RECORDED, readRecorded } from '../rules/recorded.ts';
import { tryRules } from '../rules/trial.ts';
import type { Plane } from './plane.ts';
import { invalid, Refused } from './problem.ts';
import { type Asked, bodyMap, json, type Reply, type Route, strayKey } from './route.ts';
import type { LintAnswer, RecordedMessagesAnswer, RulesAnswer, RulesOf, TrialAnswer } from './rule-shapes.ts';

/** Of one sidecar. */
const MAX_OF_EACH = 500;
/** Sidecars that are asked for what they recorded. */
const MAX_ASKED = 50;

export function ruleRoutes(plane: Plane): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/v1/rules',
      role: 'viewer',
      onLeader: false,
      summary: 'The rules in force, and those of a staged roll-out, with how many messages each one decided.',
      answer: { status: 200, doc: 'Counts are over all sidecars, since these rules came into force there or their process began.' },
      handle: () => json(listed(plane)),
    },
    {
      method: 'GET',
      path: '/v1/rules/lint',
      role: 'viewer',
      onLeader: false,
      isDear: true,
      summary: 'What the lint finds in the rules in force: shadowed, overlapping, unreachable, circular, unused.',
      answer: { status: 200, doc: 'Findings in the order of the file.' },
      handle: () => json(lintInForce(plane)),
    },
    {
      method: 'POST',
      path: '/v1/rules/lint',
      role: 'viewer',
      onLeader: false,
      isDear: true,
      summary: 'The same of a document that is not in force. Nothing is changed.',
      query: [{ name: 'file', doc: 'Name of the file, for its mistakes.' }],
      body: { contentType: 'application/yaml', doc: "An operators' document.", schema: { type: 'string' }, maxBytes: MAX_DOCUMENT_BYTES },
      answer: { status: 200, doc: 'Findings in the order of the file; 422 with every mistake when it cannot be read.' },
      handle: ({ body, query }) => lintText(plane, body, query['file'] ?? 'policies'),
    },
    {
      method: 'GET',
      path: '/v1/rules/recorded',
      action: 'rules.recorded',
      role: 'operator',
      onLeader: false,
      summary: 'The last messages that sidecars accepted, as rules see them: no payload, no names of agents.',
      query: [{ name: 'limit', doc: `Of each sidecar at most so many; 1 to ${MAX_OF_EACH}, usually ${MAX_OF_EACH}.` }],
      answer: { status: 200, doc: 'Sidecars that did not answer are named.' },
      handle: ({ query }) => recordedReply(plane, query['limit']),
    },
    {
      method: 'POST',
      path: '/v1/rules/test',
      action: 'rules.test',
      role: 'operator',
      onLeader: false,
      summary: 'A dry run: what rules would decide about recorded messages, beside what those in force decide. Nothing is changed.',
      body: {
        contentType: 'application/json',
        doc: "`text`: an operators' document; absent: the rules in force. `messages`: heads of messages; absent: what sidecars recorded.",
        schema: {
          type: 'object',
          properties: { text: { type: 'string' }, file: { type: 'string' }, messages: { type: 'array', items: { type: 'object' } } },
        },
      },
      answer: { status: 200, doc: 'How many each rule decides, before and after, and every kind of message for which it is different.' },
      handle: (asked) => test(plane, asked),
    },
  ];
}

function listed(plane: Plane): RulesAnswer {
  const { version, rules, staged } = plane.registry().rules();
  return {
    ...rulesOf(plane, version, rules),
    staged: staged === null ? null : { ...rulesOf(plane, staged.version, staged.rules), share: staged.share },
  };
}

function rulesOf(plane: Plane, version: number, rules: readonly Rule[]): RulesOf {
  const traffic = plane.fleet.hits.traffic(version);
  return {
    version,
    messages: traffic.messages,
    for_ms: traffic.forMs,
    sidecars: traffic.sidecars,
    rules: rules.map((rule) => ({ ...(writeRule(rule) as RulesOf['rules'][number]), hits: traffic.hits.get(rule.name) ?? 0 })),
  };
}

function lintInForce(plane: Plane): LintAnswer {
  const registry = plane.registry();
  const { version, rules } = registry.rules();
  const traffic = plane.fleet.hits.traffic(version);
  return {
    version,
    rules: rules.length,
    messages: traffic.messages,
    for_ms: traffic.forMs,
    findings: lintRules(rules, registry.ruleWorld(), traffic),
  };
}

function lintText(plane: Plane, text: string, file: string): Reply {
  const registry = plane.registry();
  const { document, problems } = registry.readPolicies(text, file);
  if (document === null) return invalid('the document cannot be read', problems);
  const answer: LintAnswer = {
    version: null,
    rules: document.rules.length,
    messages: 0,
    for_ms: 0,
    findings: lintRules(document.rules, registry.ruleWorld(document), null),
  };
  return json(answer);
}

async function recordedReply(plane: Plane, limitText: string | undefined): Promise<Reply> {
  const limit = Number(limitText ?? MAX_OF_EACH);
  if (!Number.isInteger(limit) || limit < 1 || limit > MAX_OF_EACH) return invalid(`limit must be a whole number from 1 to ${MAX_OF_EACH}`);
  return json(await recorded(plane, limit));
}

async function recorded(plane: Plane, limit: number): Promise<RecordedMessagesAnswer> {
  const live = plane.fleet.rows(plane.clock.now()).filter(({ standing }) => standing !== 'missing');
  const asked = live.slice(0, MAX_ASKED).map(({ sidecar }) => sidecar);
  const answers = await Promise.all(asked.map((sidecar) => plane.ask(sidecar, { wire: REGISTRY_WIRE, what: 'messages', limit })));
  const messages: RecordedMessage[] = [];
  const silent: string[] = [];
  for (const [i, answer] of answers.entries()) {
    const list = 'answer' in answer ? (answer.answer as Partial<RecordedAnswer> | null)?.messages : undefined;
    if (Array.isArray(list)) messages.push(...list);
    else silent.push(asked[i] as string);
  }
  return { messages, asked: asked.length, silent, left_out: live.length - asked.length };
}

async function test(plane: Plane, asked: Asked): Promise<Reply> {
  const map = bodyMap(asked);
  if (typeof map === 'string') return invalid(map);
  const stray = strayKey(map, ['text', 'file', 'messages']);
  if (stray !== null) return invalid(stray);
  const { text, file, messages } = map;
  if ((text !== undefined && typeof text !== 'string') || (file !== undefined && typeof file !== 'string'))
    return invalid('text and file must be texts');
  if (messages !== undefined && !Array.isArray(messages)) return invalid('messages must be a list');
  const registry = plane.registry();
  const inForce = registry.rules().rules;
  let after = inForce;
  if (text !== undefined) {
    const { document, problems } = registry.readPolicies(text, file ?? 'policies');
    if (document === null) return invalid('the document cannot be read', problems);
    after = document.rules;
  }
  const read = subjectsOf(messages ?? (await recorded(plane, MAX_OF_EACH)).messages);
  if (read instanceof Refused) return read;
  const answer: TrialAnswer = tryRules(inForce, after, read);
  return json(answer);
}

function subjectsOf(messages: readonly unknown[]): RuleSubject[] | Refused {
  if (messages.length > MAX_RECORDED) return invalid(`messages: at most ${MAX_RECORDED}`);
  const subjects: RuleSubject[] = [];
  for (const [i, each] of messages.entries()) {
    const subject = readRecorded(each);
    if (typeof subject === 'string') return invalid(`messages/${i}: ${subject}`);
    subjects.push(subject);
  }
  return subjects;
}
