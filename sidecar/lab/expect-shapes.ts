/** How expectations are written: the keys of `expect` beside a call, and of the `expect` that looks at the whole run. */
import { nearest } from '../../base/suggest.ts';
import { exactVersionProblem } from '../../proto/language/range.ts';
import { type Bad, type Field, mapped, object, optional, type Place, type Shape } from '../../proto/language/reader.ts';
import { agentId } from '../../proto/language/settings-fields.ts';
import { anyJson, choice, count, dictionary, flag, isText, list, oneOf, text } from '../../proto/language/shapes.ts';
import { CODES, codeEntry, isCode } from '../../proto/wire/codes.ts';
import { type Comparison, formOf, type Measure, parseComparison } from './comparison.ts';
import { type Quantile, QUANTILES } from './durations.ts';
import type { CallExpectation, Fate, Quantiles, SendExpectation, StateExpectation } from './scenario.ts';

export function comparison(measure: Measure): Shape<Comparison> {
  return {
    kind: formOf(measure),
    read(value, place) {
      const read = parseComparison(value, measure);
      return typeof read === 'string' ? place.bad(`${place.name}: ${read}`) : read;
    },
    schema: () => (measure === 'ms' ? { type: 'string' } : { anyOf: [{ type: 'integer', minimum: 0 }, { type: 'string' }] }),
  };
}

export const counted = comparison('count');
export const shared = comparison('count or share');
export const lasting = comparison('ms');

const codeNames = CODES.map((entry) => entry.name);

/** A code by number or by name. */
function codeOf(value: string | number): number | null {
  const number = typeof value === 'number' ? value : Number(value);
  if (Number.isInteger(number)) return isCode(number) ? number : null;
  return CODES.find((entry) => entry.name === value)?.code ?? null;
}

function codeProblem(value: string): string | null {
  if (codeOf(value) !== null) return null;
  const near = nearest(value, codeNames);
  return `${JSON.stringify(value)} is no code of the table in docs/errors.md${near === null ? '' : `; did you mean ${near} (${codeEntry(codeOf(near) as number).code})?`}`;
}

export const code: Shape<number> = {
  kind: 'a code such as 0 or 3001, or its name such as breaker_open',
  read(value, place) {
    const found = typeof value === 'number' || typeof value === 'string' ? codeOf(value) : null;
    return (
      found ??
      place.bad(
        typeof value === 'string' || typeof value === 'number'
          ? (codeProblem(String(value)) as string)
          : `${place.name} must be a code or its name`,
      )
    );
  },
  schema: () => ({ anyOf: [{ type: 'integer' }, { enum: codeNames }] }),
};

const codes: Shape<ReadonlyMap<number, Comparison>> = mapped(
  dictionary('code', codeProblem, shared, 100),
  (read, place): ReadonlyMap<number, Comparison> | Bad => {
    const byCode = new Map<number, Comparison>();
    for (const [key, each] of Object.entries(read)) {
      const found = codeOf(key) as number;
      if (byCode.has(found)) return place.at(key).badKey(`the code ${found} stands here twice`);
      byCode.set(found, each);
    }
    return byCode;
  },
);

/** The word for "no provider": a refusal, or a static answer. */
export const NOBODY = 'none';

export const provider: Shape<string | null> = mapped(
  choice<string>(`an agent id, or ${NOBODY}`, [
    { accepts: (value) => value === NOBODY, shape: text(NOBODY) },
    { accepts: () => true, shape: agentId },
  ]),
  (value) => (value === NOBODY ? null : value),
);

export const counts = (
  kind: string,
  check: (key: string) => string | null,
  inner: Shape<Comparison>,
): Shape<ReadonlyMap<string, Comparison>> => mapped(dictionary(kind, check, inner, 10_000), (read) => new Map(Object.entries(read)));

export const any = (): string | null => null;
const words: Shape<readonly string[]> = list(text('the name of a reason, such as breaker_open or retry.elsewhere'), 50);
export const phrases: Shape<readonly string[]> = choice<readonly string[]>('a text or a list of texts', [
  { accepts: isText, shape: mapped(text('a text'), (one) => [one]) },
  { accepts: () => true, shape: list(text('a text'), 20) },
]);
const NONE: readonly string[] = Object.freeze([]);

/** Percentiles of the times of a step: they stand beside its other expectations. */
export const quantileFields = {
  p50: optional(lasting, 'Half of the calls take no longer.', null),
  p90: optional(lasting, 'Nine of ten take no longer.', null),
  p95: optional(lasting, '95 of a hundred take no longer.', null),
  p99: optional(lasting, '99 of a hundred take no longer.', null),
  mean: optional(lasting, 'Mean time.', null),
  most: optional(lasting, 'The longest one.', null),
};

export function quantilesOf(read: Readonly<Record<Quantile, Comparison | null>>): Quantiles {
  const found = new Map<Quantile, Comparison>();
  for (const quantile of QUANTILES) {
    const bound = read[quantile];
    if (bound !== null) found.set(quantile, bound);
  }
  return found;
}

/** What becomes of messages. */
export const FATES: readonly Fate[] = [
  'accepted',
  'waiting',
  'received',
  'done',
  'failed',
  'dead_lettered',
  'in_doubt',
  'expired',
  'parked',
  'cancelled',
  'refused',
  'review',
];

export function fates<K extends string>(known: readonly K[]): Shape<ReadonlyMap<K, Comparison>> {
  const check = (key: string): string | null => {
    if ((known as readonly string[]).includes(key)) return null;
    const near = nearest(key, known);
    return `${JSON.stringify(key)} is none of ${known.join(', ')}${near === null ? '' : `; did you mean ${near}?`}`;
  };
  return mapped(dictionary('state', check, shared, 100), (read) => new Map(Object.entries(read) as [K, Comparison][]));
}

const perCall = {
  code: optional(code, 'Code or name that every call ends with.', null),
  code_name: optional(code, 'The same, by its name.', null),
  status: optional(count(0, 599), "The provider's status; 0 = none came.", null),
  capability: optional(text('a capability name'), 'The capability that answered at last (a fallback changes it).', null),
  provider: optional(provider, 'Who serves every call; none = nobody.', undefined),
  provider_in: optional(list(provider, 1_000, 1), 'Everybody who may serve.', null),
  version: optional(
    text('a version', (value) => exactVersionProblem(value)),
    'The version that serves.',
    null,
  ),
  degraded: optional(flag, 'Whether a fallback answered.', null),
  definitely_success: optional(flag, 'Whether the provider or the contract called it a definite success.', null),
  ambiguous: optional(flag, 'Whether a provider may have acted although no answer came.', null),
  attempts: optional(counted, 'Attempts of each call.', null),
  elapsed: optional(lasting, 'Time of each call.', null),
  data: optional<unknown, undefined>(anyJson, 'What the answer must contain: the keys named here, with these values.', undefined),
  detail: optional(phrases, "Words that the failure's explanation must contain.", NONE),
  reasons: optional(words, 'Reasons that must stand in the decision trace: name, or stage.name.', NONE),
  not_reasons: optional(words, 'Reasons that must not.', NONE),
};

const ofStep = {
  succeeded: optional(shared, 'Calls that succeeded: a number or a share.', null),
  codes: optional(codes, 'How many ended with which code; a code that is not named must not occur.', null),
  providers: optional(
    counts('agent id or none', any, shared),
    'How many each provider served; one that is not named must not occur.',
    null,
  ),
  versions: optional(counts('version', any, shared), 'How many each version served; one that is not named must not occur.', null),
  same_provider: optional(flag, 'true: one provider served all calls of the step.', null),
  same_provider_as: optional(text('a label'), 'Label of another step: call n met the provider that call n of that step met.', null),
  same_version_as: optional(text('a label'), 'Label of another step: call n met the version that call n of that step met.', null),
  broken_sessions: optional(shared, 'Sessions that did not meet one and the same provider throughout.', null),
  ...quantileFields,
  per_second: optional(counted, 'Calls that began in a second, over the time of the step.', null),
};

export const callExpectFields = { ...perCall, ...ofStep };

export const callExpectation: Shape<CallExpectation> = mapped(object('expect', callExpectFields), (read, place) => {
  if (read.code !== null && read.code_name !== null && read.code !== read.code_name)
    return place.at('code_name').bad('code and code_name name different codes');
  if (read.provider !== undefined && read.provider_in !== null)
    return place.at('provider_in').badKey('write either provider or provider_in');
  return {
    code: read.code ?? read.code_name,
    status: read.status,
    capability: read.capability,
    providers: read.provider !== undefined ? [read.provider] : read.provider_in,
    version: read.version,
    degraded: read.degraded,
    definitelySuccess: read.definitely_success,
    ambiguous: read.ambiguous,
    attempts: read.attempts,
    elapsed: read.elapsed,
    data: read.data,
    detail: read.detail,
    reasons: read.reasons,
    notReasons: read.not_reasons,
    succeeded: read.succeeded,
    codes: read.codes,
    byProvider: read.providers,
    byVersion: read.versions,
    sameProvider: read.same_provider === true,
    sameProviderAs: read.same_provider_as,
    sameVersionAs: read.same_version_as,
    brokenSessions: read.broken_sessions,
    latency: quantilesOf(read),
    perSecond: read.per_second,
  };
});

function cellProblem(key: string): string | null {
  return /^\S+ \S+$/.test(key) ? null : `${JSON.stringify(key)} is not "agent capability", such as "crm.order.1 crm.order.query"`;
}

const breakers: Shape<ReadonlyMap<string, string>> = mapped(
  dictionary('"agent capability"', cellProblem, oneOf(['closed', 'open', 'half_open', 'ramping']), 10_000),
  (read) => new Map(Object.entries(read)),
);

const BREAKER_STATES = ['closed', 'open', 'half_open', 'ramping'] as const;
const paths: Shape<ReadonlyMap<string, readonly string[]>> = mapped(
  dictionary('"agent capability"', cellProblem, list(oneOf(BREAKER_STATES), 1_000), 10_000),
  (read) => new Map(Object.entries(read)),
);
const latencies: Shape<ReadonlyMap<string, Quantiles>> = mapped(
  dictionary('a label or a capability', any, mapped(object('percentiles', quantileFields), quantilesOf), 1_000),
  (read) => new Map(Object.entries(read)),
);
const findings: Shape<ReadonlyMap<string, string>> = mapped(
  dictionary('a rule', any, oneOf(['clean', 'shadowed', 'overlapping', 'unreachable', 'circular']), 2_000),
  (read) => new Map(Object.entries(read)),
);

const bare = <T>(shape: Shape<T>, doc: string): Field<T | null> => optional(shape, doc, null);

export const stateExpectFields = {
  calls: bare(counted, 'Calls made so far.'),
  succeeded: bare(shared, 'Of these, how many succeeded.'),
  codes: bare(codes, 'How many ended with which code; a code that is not named must not occur.'),
  attempts: bare(counted, 'Attempts of all calls.'),
  retries: bare(counted, 'Attempts after a failed one, elsewhere.'),
  fallbacks: bare(counted, 'Calls that went into a fallback.'),
  in_flight: bare(counted, 'Calls under way.'),
  executions: bare(counts('agent, or "agent capability"', any, counted), "How often each agent's work was begun."),
  breaker: bare(breakers, 'State of breakers: closed, open, half_open, ramping.'),
  opened: bare(counts('"agent capability"', cellProblem, counted), 'How often breakers opened.'),
  tasks: bare(counts('task', any, lasting), "How long tasks took, from the first call's start to the last call's end."),
  breaker_path: bare(paths, 'The states that breakers have been in so far, in order, the first one included.'),
  open_for: bare(counts('"agent capability"', cellProblem, lasting), 'How long breakers have been open in all.'),
  latency: bare(latencies, 'Percentiles by the label of a step or by capability: p50, p90, p95, p99, mean, most.'),
  agent_calls: bare(counted, 'Calls that agents made of one another.'),
  messages: bare(
    fates<Fate | 'sent'>(['sent', ...FATES]),
    'Messages by what became of them; sent is all of them. What is not named is not looked at.',
  ),
  executions_per_key: bare(counted, 'How often work was begun under each idempotency key: must hold for every one.'),
  lint: bare(findings, 'What the linter says of rules: shadowed, overlapping, unreachable, circular; clean = nothing.'),
};

export const stateExpectation: Shape<StateExpectation> = mapped(object('expect', stateExpectFields), (read) => ({
  calls: read.calls,
  succeeded: read.succeeded,
  codes: read.codes,
  attempts: read.attempts,
  retries: read.retries,
  fallbacks: read.fallbacks,
  inFlight: read.in_flight,
  executions: read.executions,
  breaker: read.breaker,
  opened: read.opened,
  tasks: read.tasks,
  breakerPath: read.breaker_path,
  openFor: read.open_for,
  latency: read.latency,
  agentCalls: read.agent_calls,
  messages: read.messages,
  executionsPerKey: read.executions_per_key,
  lint: read.lint,
}));

/** Every agent that an expectation names must exist in the scenario, or it could hold for a misspelt name. */
export function refuseUnknownAgents(
  expect: CallExpectation | SendExpectation | StateExpectation,
  place: Place,
  known: ReadonlySet<string>,
): void {
  const look = (agent: string | null, at: Place): void => {
    if (agent === null || agent === NOBODY || known.has(agent)) return;
    const near = nearest(agent, known);
    at.bad(`no table of this scenario has a provider ${agent}${near === null ? '' : `; did you mean ${near}?`}`);
  };
  if ('byProvider' in expect) {
    for (const agent of expect.providers ?? []) look(agent, place.at('provider'));
    for (const agent of expect.byProvider?.keys() ?? []) look(agent, place.at('providers', agent));
    return;
  }
  for (const [key, cells] of [
    ['executions', expect.executions],
    ['breaker', expect.breaker],
    ['opened', expect.opened],
    ['breaker_path', expect.breakerPath],
    ['open_for', expect.openFor],
  ] as const) {
    for (const cell of cells?.keys() ?? []) look(cell.split(' ', 1)[0] as string, place.at(key, cell));
  }
}
