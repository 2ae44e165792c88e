/** How the steps of a scenario are written: one shape for each kind, told apart by the key that names it. */
import { agentId } from '../../proto/language/settings-fields.ts';
import { mapped, object, optional, required, type Shape, type TypeOf } from '../../proto/language/reader.ts';
import { anyJson, choice, count, dictionary, duration, flag, isPlainMap, isText, list, text } from '../../proto/language/shapes.ts';
import { callExpectation, stateExpectation } from './expect-shapes.ts';

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

export const callStep = object('call step', {
  ...timing,
  // Bad names are let through: that they are refused at run time can then be expected.
  call: required(text('a capability with or without a range, such as crm.order.query@^2.0'), 'what is asked for'),
  as: optional(agentId, "Who calls. Absent: the scenario's `as`.", null),
  payload: optional<unknown, Readonly<Record<string, never>>>(
    anyJson,
    "The request's payload. `$n` in a text is the number of the call within the step.",
    Object.freeze({}),
  ),
  headers: optional(
    dictionary(
      'header',
      (key) => (/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$/.test(key) ? null : `${JSON.stringify(key)} is not a header name`),
      header,
      100,
    ),
    'Request headers; `$n` as in payload.',
    NO_HEADERS,
  ),
  affinity: optional(text('a key'), 'The conversation (`Reach-Affinity`); `$n` as in payload.', null),
  pin: optional(agentId, 'The provider that must serve (`Reach-Pin`).', null),
  stream: optional(flag, 'true: the body is taken chunk by chunk.', false),
  times: optional(count(1, MAX_CALLS), 'How many calls.', null, '1'),
  every: optional(
    duration(1, LONGEST_MS),
    'A call begins each time this has passed, whatever is under way. Absent: one begins when one has ended.',
    null,
  ),
  for: optional(duration(1, LONGEST_MS), 'With every, instead of times: how long.', null),
  parallel: optional(count(1, 100_000), 'How many begin at the same instant (with every), or are kept under way (without).', 1, '1'),
  cancel_after: optional(duration(0, LONGEST_MS), 'The caller leaves after this long.', null),
  deadline: optional(duration(0, LONGEST_MS), "What is left of the caller's time (`Reach-Deadline-Ms`).", null),
  task: optional(text('the name of a task'), "Which of the scenario's tasks it belongs to: its time is handed on as what is left.", null),
  step: optional(text("the name of a step of the task's budget"), 'The step of that task.', null),
  expect: optional(callExpectation, 'What every call must come to, and the step as a whole.', null),
});
export type CallStepRead = Exclude<TypeOf<typeof callStep>, symbol>;

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
  set: required(
    anyMap,
    'the keys that change: latency, error_rate, status, headers, body, hang, reset, slow_body, refuse_connect, behaviours, capabilities',
  ),
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
export const STEP_KINDS = ['call', 'mock', 'policies', 'table', 'override', 'lift', 'add', 'remove', 'wait'] as const;
