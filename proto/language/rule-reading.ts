/**
 * Rules as people write them (SPEC section 10): read into the normal form, with line and column for everything that is
 * wrong, and written back into it (what comes over the wire is judged by writing it out and reading it again). What a rule
 * does beside others is asked by the lint; what it matches, by the tree.
 */
import { quote } from '../../base/duration.ts';
import { isAgentSegment, tagKeyProblem } from './names.ts';
import { tags } from './contract.ts';
import { capabilityPattern } from './policy.ts';
import { BAD, type Bad, mapped, object, optional, type Place, readPresent, required, type Shape } from './reader.ts';
import type { Rule, RuleCondition, RuleFallback } from './rule.ts';
import { good, type Section } from './sections.ts';
import { target } from './settings-fields.ts';
import { hasKey, list, oneOf, text } from './shapes.ts';

/** All of them go to every sidecar that sends, in one message. */
export const MAX_RULES = 2_000;
/** The same in bytes, as pushed; those of a staged roll-out stand beside them, and a server takes a mebibyte. */
export const MAX_RULES_BYTES = 393_216;

const NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;
const MESSAGE_TYPE = /^[a-z][a-z0-9_]{0,62}$/;

export function isRuleName(text: string): boolean {
  return NAME.test(text) && !(text in Object.prototype);
}

const name: Shape<string> = text('a name', (value) =>
  isRuleName(value) ? null : `${quote(value)} is not a name: letters, digits, _ . and -, at most 63, beginning with a letter or digit`,
);

/** Everything but what is named is met anyway: there is no word for it. */
function anyProblem(value: string): string | null {
  return value === '*' ? 'leave the key out to mean any; there is no * here' : null;
}

const messageType: Shape<string> = text(
  'a type of messages such as task_request',
  (value) =>
    anyProblem(value) ??
    (MESSAGE_TYPE.test(value)
      ? null
      : `${quote(value)} is not a type of messages: a lower-case letter followed by up to 62 of a-z, 0-9 and _ ; such as task_request`),
);

const role = (kind: string): Shape<string> =>
  text(
    kind,
    (value) =>
      anyProblem(value) ??
      (isAgentSegment(value) || tagKeyProblem(value) === null
        ? null
        : `${quote(value)} is not ${kind}: letters, digits, _ . / and -, at most 63, beginning with a letter or digit`),
  );

const NO_TAGS: RuleCondition['tags'] = Object.freeze(Object.create(null) as Record<string, string>);
const ANYTHING: RuleCondition = Object.freeze({ messageType: null, sourceRole: null, targetRole: null, capability: null, tags: NO_TAGS });

const whenFields = {
  message_type: optional(messageType, 'task_request, task_result, health_check or any other type. Absent: every type.', null),
  source_role: optional(role('a role'), 'Role of the sender. Absent: everybody.', null),
  target_role: optional(
    role('a role'),
    'The role (or tag) that is addressed, or the role of the agent that is. Absent: whatever is addressed.',
    null,
  ),
  capability: optional(
    capabilityPattern,
    'Of messages that address a capability: its name, crm.order.*, crm.* or *. Not an alias. Absent: whatever is addressed.',
    null,
  ),
  tags: optional(tags, 'Tags that the message has, with these values; all of them.', NO_TAGS),
  custom_tags: optional(tags, 'The same as tags.', NO_TAGS),
};

const when: Shape<RuleCondition> = mapped(object('condition', whenFields), (read, place): RuleCondition | Bad => {
  const isBoth = read.tags !== NO_TAGS && read.custom_tags !== NO_TAGS;
  if (isBoth) return place.at('custom_tags').badKey('custom_tags is another word for tags: write one of the two');
  return {
    messageType: read.message_type,
    sourceRole: read.source_role,
    targetRole: read.target_role,
    capability: read.capability,
    tags: read.tags === NO_TAGS ? read.custom_tags : read.tags,
  };
});

const stickyBy: Shape<string> = text('what messages are kept together by', (value) => {
  if (value === 'sequence_id' || value === 'source') return null;
  if (!value.startsWith('tags.')) return `${quote(value)} is none of sequence_id, source, tags.<name>`;
  return tagKeyProblem(value.slice('tags.'.length));
});

const actionFields = {
  dispatch: optional(
    oneOf(['random', 'round_robin', 'least_request', 'sticky']),
    'Who of those that can take it does: random, round_robin and least_request all come to the first free slot, since messages are pulled; sticky: those that belong together go to one agent, in order.',
    'random' as const,
    'random',
  ),
  sticky_by: optional(
    stickyBy,
    'For sticky: sequence_id, source (the sender) or tags.<name>. Messages that have none go to whoever is free.',
    null,
  ),
  priority: optional(
    oneOf(['high', 'normal', 'low']),
    "Lane; stronger than the sender's word. Absent: as the sender says, else normal.",
    null,
  ),
};

type Action = Pick<Rule, 'dispatch' | 'stickyBy' | 'priority'>;
const FIRST_FREE: Action = Object.freeze({ dispatch: 'random', stickyBy: null, priority: null });

const action: Shape<Action> = mapped(object('action', actionFields), (read, place): Action | Bad => {
  if (read.dispatch === 'sticky' && read.sticky_by === null)
    return place.at('dispatch').bad('sticky needs sticky_by: sequence_id, source or tags.<name>');
  if (read.dispatch !== 'sticky' && read.sticky_by !== null)
    return place.at('sticky_by').badKey(`sticky_by belongs to dispatch: sticky, and this is ${read.dispatch}`);
  return { dispatch: read.dispatch, stickyBy: read.sticky_by, priority: read.priority };
});

const WORDS = ['queue_task', 'notify_admin', 'fail'] as const;
const CAPABILITY = 'capability:';

const onward: Shape<RuleFallback> = mapped(
  object('map', { capability: required(target, 'the capability that serves instead, with a range or without') }),
  (read): RuleFallback => ({ kind: 'capability', target: read.capability }),
);

const word: Shape<RuleFallback> = mapped(oneOf(WORDS), (kind): RuleFallback => ({ kind }));

/** A word, `{capability: name}`, or the same as text. */
const ifNobody: Shape<RuleFallback> = {
  kind: `one of ${WORDS.join(', ')}, or capability: <name>`,
  read(value, place) {
    if (hasKey('capability')(value)) return onward.read(value, place);
    if (typeof value === 'string' && value.startsWith(CAPABILITY)) {
      const read = target.read(value.slice(CAPABILITY.length).trim(), place);
      return read === BAD ? BAD : { kind: 'capability', target: read };
    }
    return typeof value === 'string' ? word.read(value, place) : place.bad(`${place.name} must be ${this.kind}`);
  },
  schema: () => ({ anyOf: [word.schema(), onward.schema(), { type: 'string', pattern: '^capability: ?.+$' }] }),
};

const fallback: Shape<RuleFallback> = mapped(
  object('fallback', {
    if_no_available_agent: required(
      ifNobody,
      'what is done when nobody is there: queue_task (it waits for somebody), notify_admin (a person decides), fail (the sender is told), or capability: <name> (that one serves instead; the next rule is tried when nobody serves it either)',
    ),
  }),
  (read) => read.if_no_available_agent,
);

export const ruleFields = {
  name: required(name, 'a name for it, unique: it stands in answers, metrics and findings'),
  when: optional(when, 'Which messages; all of what is named must be met. Absent: every message.', ANYTHING),
  action: optional(action, 'What is done with them.', FIRST_FREE),
  fallback: optional(
    fallback,
    'What is done when nobody is there. Absent: the next rule that matches is tried; at last the message waits.',
    null,
  ),
};

export const rule: Shape<Rule> = mapped(
  object('rule', ruleFields),
  (read): Rule => ({
    name: read.name,
    when: read.when,
    dispatch: read.action.dispatch,
    stickyBy: read.action.stickyBy,
    priority: read.action.priority,
    fallback: read.fallback,
  }),
);

export const rulesShape: Shape<readonly Rule[]> = list(rule, MAX_RULES);

/** What is wrong with a list of rules as a whole. @param place of the list. */
export function checkRules(section: Section<Rule>, place: Place): void {
  const seen = new Map<string, number>();
  let bytes = 2;
  for (const [i, each] of good(section)) {
    bytes += Buffer.byteLength(JSON.stringify(each)) + 1;
    const before = seen.get(each.name);
    if (before === undefined) seen.set(each.name, i);
    else {
      const line = place.source.lineOf(place.at(before, 'name').path);
      place.at(i, 'name').bad(`there is a rule ${each.name} already (line ${line}): every rule has a name of its own`);
    }
  }
  if (bytes > MAX_RULES_BYTES)
    place.bad(`the rules have ${bytes} bytes in the form in which they are pushed, and at most ${MAX_RULES_BYTES} are allowed`);
}

type Loose = Readonly<Record<string, unknown>>;
const isMap = (value: unknown): value is Loose => typeof value === 'object' && value !== null && !Array.isArray(value);

function said(parts: Record<string, unknown>): Record<string, unknown> {
  for (const key of Object.keys(parts)) if (parts[key] === null || parts[key] === undefined) delete parts[key];
  return parts;
}

/** A rule as it would stand in a file. Takes anything; what has the wrong type is passed on for the reader to name. */
export function writeRule(value: unknown): unknown {
  if (!isMap(value)) return value;
  const { when: condition, fallback: nobody } = value;
  return said({
    name: value['name'],
    when: isMap(condition) ? writeCondition(condition) : condition,
    action: said({ dispatch: value['dispatch'], sticky_by: value['stickyBy'], priority: value['priority'] }),
    fallback: isMap(nobody) ? { if_no_available_agent: writeFallback(nobody) } : nobody,
  });
}

function writeCondition(condition: Loose): unknown {
  const { messageType: type, sourceRole, targetRole, capability, tags: named } = condition;
  return said({
    message_type: type,
    source_role: sourceRole,
    target_role: targetRole,
    capability,
    tags: isMap(named) && Object.keys(named).length === 0 ? null : named,
  });
}

function writeFallback(nobody: Loose): unknown {
  return nobody['kind'] === 'capability' ? { capability: nobody['target'] } : nobody['kind'];
}

/** What came over the wire, read again as if it stood in a file. */
export function rereadRules(rules: unknown, place: Place): readonly Rule[] | Bad {
  const written = Array.isArray(rules) ? rules.map(writeRule) : rules;
  const read = readPresent(rulesShape, written, place);
  if (read === BAD) return BAD;
  const problemsBefore = place.source.problems.length;
  checkRules({ entries: read, raw: written as readonly unknown[] }, place);
  return place.source.problems.length === problemsBefore ? read : BAD;
}
