/** How the steps of a scenario are written: one shape for each kind, told apart by the key that names it. */
import { agentIdProblem } from '../../proto/language/names.ts';
import { agentId } from '../../proto/language/settings-fields.ts';
import { type Bad, mapped, object, optional, type Place, required, type Shape, type TypeOf } from '../../proto/language/reader.ts';
import { anyJson, choice, count, dictionary, duration, flag, isPlainMap, isText, list, oneOf, text } from '../../proto/language/shapes.ts';
import { MOCK_KEYS } from '../transports/mock-reading.ts';
import type { Load, Slope } from './arrivals.ts';
import { callExpectation, stateExpectation } from './expect-shapes.ts';
import { sendExpectation } from './send-expect.ts';

const LONGEST_MS = 30 * 86_400_000;
export const MAX_CALLS = 1_000_000;

const timing = {
  at: optional(
    duration(0, LONGEST_MS),
    'When it begins, from the start of the scenario, whatever is still under way. Absent: when all steps before have ended.',
    null,
  ),
  after: optional(duration(0, LONGEST_MS), 'Waited before it begins.', null),
  label: optional(text('a label'), 'A name that other steps can refer to.', null),
  note: optional(text('text'), 'Shown in the report.', ''),
};

const header: Shape<string> = choice<string>('a text or a number', [
  { accepts: isText, shape: text("a header's value") },
  { accepts: (value) => typeof value === 'number' || typeof value === 'boolean', shape: mapped(anyJson, String) },
]);

const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze({});

/** Calls in a millisecond, from `100/s`, `30/m`, `0.5/s`, `600/h`. */
const RATE = /^(\d{1,7}(?:\.\d{1,6})?) ?\/ ?(s|m|h)$/;
const RATE_MS: Readonly<Record<string, number>> = Object.freeze({ s: 1_000, m: 60_000, h: 3_600_000 });

const oneRate: Shape<number> = {
  kind: 'a rate such as "100/s", "30/m" or "600/h"',
  read(value, place) {
    const match = typeof value === 'string' ? RATE.exec(value.trim()) : null;
    if (match === null) return place.bad(`${place.name} must be a rate such as "100/s", "30/m" or "600/h"`);
    return Number(match[1]) / (RATE_MS[match[2] as string] as number);
  },
  schema: () => ({ type: 'string' }),
};

interface RateRead {
  readonly from: number;
  readonly to: number;
}

/** `100/s`, or `{from: 10/s, to: 200/s}`. */
const slope: Shape<RateRead> = choice<RateRead>('a rate, or {from, to}', [
  { accepts: isText, shape: mapped(oneRate, (rate) => ({ from: rate, to: rate })) },
  {
    accepts: () => true,
    shape: object('rate', { from: required(oneRate, 'the rate at its beginning'), to: required(oneRate, 'the rate at its end') }),
  },
]);

const phase = object('phase of the load', {
  for: required(duration(1, LONGEST_MS), 'how long it lasts'),
  rate: required(slope, 'calls in a second, minute or hour'),
});

/** One rate for all of `for`, or phases that say for how long. */
export type LoadRead = { readonly slopes: readonly Slope[]; readonly isWhole: boolean };
const rate: Shape<LoadRead> = choice<LoadRead>('a rate, {from, to}, or a list of phases', [
  {
    accepts: Array.isArray,
    shape: mapped(list(phase, 1_000, 1), (phases) => ({
      slopes: phases.map((one) => ({ forMs: one.for, fromPerMs: one.rate.from, toPerMs: one.rate.to })),
      isWhole: true,
    })),
  },
  {
    accepts: () => true,
    shape: mapped(slope, (one) => ({ slopes: [{ forMs: 0, fromPerMs: one.from, toPerMs: one.to }], isWhole: false })),
  },
]);

const bursts = object('bursts', {
  every: required(duration(1, LONGEST_MS), 'how much time lies between two'),
  calls: required(count(1, MAX_CALLS), 'how many come at once'),
});

/** A list of agents, or `{prefix: web.desk, count: 50}` for web.desk.1 to web.desk.50. */
const callers: Shape<readonly string[]> = choice<readonly string[]>('a list of agent ids, or {prefix, count}', [
  { accepts: Array.isArray, shape: list(agentId, 10_000, 1) },
  {
    accepts: () => true,
    shape: mapped(
      object('callers', {
        prefix: required(text('team.role'), 'what their ids begin with: team.role'),
        count: required(count(1, 10_000), 'how many there are'),
      }),
      (read, place): readonly string[] | Bad => {
        const problem = agentIdProblem(`${read.prefix}.1`);
        if (problem !== null) return place.at('prefix').bad(problem);
        return Array.from({ length: read.count }, (_, i) => `${read.prefix}.${i + 1}`);
      },
    ),
  },
]);

const sessions = mapped(
  object('sessions', {
    count: required(count(1, 100_000), 'how many are under way at a time'),
    calls: optional(
      choice<RateRead>('a number, or {from, to}', [
        { accepts: (value) => typeof value === 'number', shape: mapped(count(1, 1_000_000), (n) => ({ from: n, to: n })) },
        {
          accepts: () => true,
          shape: object('calls', { from: required(count(1, 1_000_000), 'at least'), to: required(count(1, 1_000_000), 'at most') }),
        },
      ]),
      'How many calls each one makes before another one takes its place.',
      { from: 10, to: 10 },
      '10',
    ),
  }),
  (read, place) => {
    if (read.calls.to < read.calls.from) return place.at('calls').bad('`to` is not below `from`');
    return { count: read.count, from: read.calls.from, to: read.calls.to };
  },
);

/** How often, by whom and with what: the same for calls and for messages. */
const traffic = {
  as: optional(agentId, "Who calls. Absent: the scenario's `as`.", null),
  callers: optional(callers, 'Instead of as: a pool of callers, one by chance for each call (or for each session).', null),
  payload: optional<unknown, Readonly<Record<string, never>>>(
    anyJson,
    "The request's payload. In its texts $n is the number of the call within the step, $caller and $session who it is, $id, $int(1,100) and $pick(a,b) are drawn.",
    Object.freeze({}),
  ),
  headers: optional(
    dictionary(
      'header',
      (key) => (/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/.test(key) ? null : `${JSON.stringify(key)} is not a header name`),
      header,
      100,
    ),
    'Request headers; words as in payload.',
    NO_HEADERS,
  ),
  times: optional(count(1, MAX_CALLS), 'How many calls.', null, '1'),
  every: optional(
    duration(1, LONGEST_MS),
    'A call begins each time this has passed, whatever is under way. Absent: one begins when one has ended.',
    null,
  ),
  for: optional(duration(1, LONGEST_MS), 'With every or rate, instead of times: how long.', null),
  parallel: optional(count(1, 100_000), 'How many begin at the same instant (with every), or are kept under way (without).', 1, '1'),
  rate: optional(rate, 'Generated load: calls in a second, a ramp {from, to}, or a list of phases [{for, rate}].', null),
  arrivals: optional(oneOf(['poisson', 'even']), 'With rate: by chance, as independent callers do, or evenly.', null, 'poisson'),
  bursts: optional(bursts, 'With rate: so many more at once, each time that this has passed.', null),
  sessions: optional(
    sessions,
    'Conversations with a key of their own (`Reach-Affinity`, of messages the sequence id); `$session` in texts.',
    null,
  ),
};
export type TrafficRead = {
  readonly [K in keyof typeof traffic]: (typeof traffic)[K] extends { readonly absent: infer T } ? T : never;
};

const asked: Shape<readonly string[]> = choice<readonly string[]>('a capability, or a list of them', [
  // Bad names are let through: that they are refused at run time can then be expected.
  { accepts: isText, shape: mapped(text('a capability with or without a range, such as crm.order.query@^2.0'), (one) => [one]) },
  { accepts: () => true, shape: list(text('a capability with or without a range'), 1_000, 1) },
]);

export const callStep = object('call step', {
  ...timing,
  call: required(asked, 'what is asked for; of a list, one by chance for each call'),
  ...traffic,
  affinity: optional(text('a key'), 'The conversation (`Reach-Affinity`); words as in payload.', null),
  key: optional(text('a key'), 'The idempotency key (`Idempotency-Key`); words as in payload.', null),
  pin: optional(agentId, 'The provider that must serve (`Reach-Pin`).', null),
  stream: optional(flag, 'true: the body is taken chunk by chunk.', false),
  cancel_after: optional(duration(0, LONGEST_MS), 'The caller leaves after this long.', null),
  deadline: optional(duration(0, LONGEST_MS), "What is left of the caller's time (`Reach-Deadline-Ms`).", null),
  budget: optional(text('a budget such as intent=1500, order=2500'), 'Time planned for each step of the work (`Reach-Budget`).', null),
  task: optional(text('the name of a task'), "Which of the scenario's tasks it belongs to: its time is handed on as what is left.", null),
  step: optional(text("the name of a step of the task's budget"), 'The step of that task.', null),
  expect: optional(callExpectation, 'What every call must come to, and the step as a whole.', null),
});
export type CallStepRead = Exclude<TypeOf<typeof callStep>, symbol>;

export const sendStep = object('send step', {
  ...timing,
  send: optional(
    text('a capability with or without a range'),
    'The capability that the message is for. Absent: role or agent says who.',
    null,
  ),
  ...traffic,
  role: optional(text('a role'), 'Whoever has this role, or a tag of that name.', null),
  agent: optional(agentId, 'This agent.', null),
  type: optional(text('a message type'), 'Its message_type.', null, 'task_request'),
  lane: optional(oneOf(['high', 'normal', 'low']), 'Its priority, where no rule says.', null, 'normal'),
  key: optional(text('a key'), 'The idempotency key; words as in payload.', null),
  copies: optional(count(1, 1_000), 'So many of each, at once, with the same key and payload.', 1, '1'),
  tags: optional(
    dictionary(
      'tag',
      (key) => (/^[A-Za-z0-9_.-]{1,64}$/.test(key) ? null : `${JSON.stringify(key)} is not the name of a tag`),
      text('a tag'),
      50,
    ),
    'Tags, which rules and targets go by.',
    NO_HEADERS,
  ),
  sequence: optional(text('a sequence id'), "The sender's conversation, for rules with dispatch: sticky; words as in payload.", null),
  retryable: optional(flag, 'false: it is handed over once.', true),
  deadline: optional(duration(1, LONGEST_MS), 'Time for one hand-over.', null),
  expires: optional(duration(1, LONGEST_MS), 'After so long nobody wants it any more.', null),
  expect: optional(sendExpectation, 'What every message must come to, and the step as a whole.', null),
});
export type SendStepRead = Exclude<TypeOf<typeof sendStep>, symbol>;

/** The load of a step; null = it is scripted; BAD = what was written does not go together. */
export function loadOf(read: TrafficRead, place: Place): Load | null | Bad {
  if (read.rate === null) {
    if (read.arrivals !== null) return place.at('arrivals').badKey('arrivals is about generated load: say its rate');
    if (read.bursts !== null) return place.at('bursts').badKey('bursts come on top of generated load: say its rate');
    return null;
  }
  for (const key of ['times', 'every'] as const) if (read[key] !== null) return place.at(key).badKey(`write either rate or ${key}`);
  if (read.parallel !== 1) return place.at('parallel').badKey('with rate, calls begin when they come: write bursts');
  const { slopes, isWhole } = read.rate;
  if (isWhole === (read.for !== null))
    return isWhole ? place.at('for').badKey('each phase says how long it lasts') : place.at('rate').badKey('rate needs for: how long');
  const whole = isWhole ? slopes : slopes.map((one) => ({ ...one, forMs: read.for as number }));
  if (whole.every((one) => one.fromPerMs + one.toPerMs === 0)) return place.at('rate').bad('a rate of nothing makes no calls');
  const totalMs = whole.reduce((sum, one) => sum + one.forMs, 0);
  const { bursts: each } = read;
  return {
    slopes: whole,
    totalMs,
    spread: read.arrivals ?? 'poisson',
    bursts: each === null ? null : { everyMs: each.every, calls: each.calls },
  };
}

const agents: Shape<readonly string[]> = choice<readonly string[]>('an agent id or a list of them', [
  { accepts: isText, shape: mapped(agentId, (one) => [one]) },
  { accepts: () => true, shape: list(agentId, 1_000, 1) },
]);

const anyMap: Shape<Readonly<Record<string, unknown>>> = {
  kind: 'a map',
  read: (value, place) => (isPlainMap(value) ? (value as Readonly<Record<string, unknown>>) : place.bad(`${place.name} must be a map`)),
  schema: () => ({ type: 'object' }),
};

export const mockStep = object('mock step', {
  ...timing,
  mock: required(agents, 'whose behaviour changes from now on'),
  set: required(anyMap, `the keys that change: ${MOCK_KEYS.join(', ')}`),
});

export const policiesStep = object('policies step', {
  ...timing,
  policies: required(anyJson, 'the policies from now on, instead of all before'),
});

export const tableStep = object('table step', { ...timing, table: required(anyJson, 'a table file, or the sections that are replaced') });

export const overrideStep = object('override step', {
  ...timing,
  override: required(anyMap, 'the emergency rule'),
  for: optional(duration(1, LONGEST_MS), 'It ends by itself after this long.', null),
});

export const liftStep = object('lift step', {
  ...timing,
  lift: required(text('the name of an override'), 'the override that is taken away'),
});

export const addStep = object('add step', {
  ...timing,
  add: required(anyMap, 'a provider record that joins, or takes the place of the one with its agent_id'),
});

export const removeStep = object('remove step', { ...timing, remove: required(agentId, 'the provider that leaves the table') });

export const waitStep = object('wait step', { ...timing, wait: required(duration(0, LONGEST_MS), 'time that passes') });

export const checkStep = object('check step', { ...timing, expect: required(stateExpectation, 'what must be true of the run by now') });

export const taskShape = object('task', {
  deadline: required(duration(1, LONGEST_MS), 'its total time'),
  budget: optional(
    dictionary(
      'step',
      (key) => (/^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/.test(key) ? null : `${JSON.stringify(key)} is not the name of a step`),
      duration(0, LONGEST_MS),
      64,
    ),
    'Its steps in their order, with the time planned for each.',
    null,
  ),
});

/** In the order in which they are looked for; `expect` alone is a check. */
export const STEP_KINDS = ['call', 'send', 'mock', 'policies', 'table', 'override', 'lift', 'add', 'remove', 'wait'] as const;
