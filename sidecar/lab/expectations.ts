/**
 * Holds what happened against what was expected: pure, and every answer is a sentence that says what was found and what
 * was wanted. An empty list means that all of it holds.
 */
import { codeEntry } from '../../proto/wire/codes.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { type Comparison, holds, shown } from './comparison.ts';
import type { Durations } from './durations.ts';
import type { Outcome } from './one-call.ts';
import type { MessageRecord } from './one-message.ts';
import type { CallExpectation, Fate, Quantiles, SendExpectation, StateExpectation } from './scenario.ts';
import type { Sessions } from './sessions.ts';
import type { Tally } from './tally.ts';

/** `3001 breaker_open`. */
export function codeWords(code: number): string {
  return `${code} ${codeEntry(code).name}`;
}

/** What is wrong with one call. */
export function checkCall(expect: CallExpectation, outcome: Outcome, trace: readonly TraceLine[]): string[] {
  const { result } = outcome;
  const { call } = result;
  const wrong: string[] = [];
  const unequal = (what: string, is: unknown, must: unknown): void => {
    if (must !== null && is !== must) wrong.push(`${what} is ${shownValue(is)}, expected ${shownValue(must)}`);
  };
  if (expect.code !== null && result.entry.code !== expect.code) {
    wrong.push(
      `code is ${codeWords(result.entry.code)}, expected ${codeWords(expect.code)}${result.detail === '' ? '' : ` (${result.detail})`}`,
    );
  }
  unequal('status', result.status, expect.status);
  unequal('capability', call.capability?.name ?? null, expect.capability);
  if (expect.providers !== null && !expect.providers.includes(result.provider)) {
    wrong.push(`provider is ${result.provider ?? 'none'}, expected ${expect.providers.map((each) => each ?? 'none').join(' or ')}`);
  }
  unequal('version', result.version, expect.version);
  unequal('degraded', call.degraded, expect.degraded);
  unequal('definitely_success', call.definitelySuccess, expect.definitelySuccess);
  unequal('ambiguous', result.ambiguous, expect.ambiguous);
  compare(wrong, 'attempts', expect.attempts, call.attempts.length);
  compare(wrong, 'elapsed', expect.elapsed, result.elapsedMs);
  if (expect.data !== undefined) {
    const problem = misfit(expect.data, dataOf(outcome), '');
    if (problem !== null) wrong.push(`data${problem}`);
  }
  for (const words of expect.detail) {
    if (!result.detail.includes(words))
      wrong.push(`detail is ${JSON.stringify(result.detail)}, expected to contain ${JSON.stringify(words)}`);
  }
  for (const reason of expect.reasons) if (!trace.some((line) => isReason(line, reason))) wrong.push(`the decision has no ${reason}`);
  for (const reason of expect.notReasons) {
    const found = trace.find((line) => isReason(line, reason));
    if (found !== undefined) wrong.push(`the decision has ${found.stage}.${found.reason} (${found.words}), which was not expected`);
  }
  return wrong;
}

/** Whether a decision trace is needed to judge a call. */
export function readsTrace(expect: CallExpectation): boolean {
  return expect.reasons.length > 0 || expect.notReasons.length > 0;
}

function isReason(line: TraceLine, reason: string): boolean {
  return line.reason === reason || `${line.stage}.${line.reason}` === reason;
}

function dataOf(outcome: Outcome): unknown {
  const text = (outcome.streamed ?? outcome.result.data).toString('utf8');
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Where `actual` does not contain `wanted`: null = nowhere. Maps may have more keys, lists may not have more entries. */
function misfit(wanted: unknown, actual: unknown, at: string): string | null {
  if (Array.isArray(wanted)) {
    if (!Array.isArray(actual)) return `${at} is ${shownValue(actual)}, expected ${shownValue(wanted)}`;
    if (actual.length !== wanted.length) return `${at} has ${actual.length} entries, expected ${wanted.length}`;
    return firstOf(wanted.map((each, i) => misfit(each, actual[i], `${at}/${i}`)));
  }
  if (typeof wanted === 'object' && wanted !== null) {
    if (typeof actual !== 'object' || actual === null || Array.isArray(actual))
      return `${at} is ${shownValue(actual)}, expected ${shownValue(wanted)}`;
    return firstOf(
      Object.entries(wanted).map(([key, each]) =>
        Object.hasOwn(actual, key)
          ? misfit(each, (actual as Record<string, unknown>)[key], `${at}/${key}`)
          : `${at}/${key} is missing, expected ${shownValue(each)}`,
      ),
    );
  }
  return Object.is(wanted, actual) ? null : `${at} is ${shownValue(actual)}, expected ${shownValue(wanted)}`;
}

function firstOf(problems: readonly (string | null)[]): string | null {
  return problems.find((problem) => problem !== null) ?? null;
}

function shownValue(value: unknown): string {
  if (typeof value === 'string') return value;
  if (value === undefined || value === null) return 'none';
  const json = JSON.stringify(value);
  return json.length <= 120 ? json : `${json.slice(0, 117)}...`;
}

function compare(wrong: string[], what: string, comparison: Comparison | null, actual: number, whole = 1): void {
  if (comparison === null) return;
  if (comparison.unit === 'share' && whole === 0) wrong.push(`${what}: a share of none, so ${NOTHING_HOLDS}`);
  else if (!holds(comparison, actual, whole)) wrong.push(`${what}: ${shown(comparison, actual, whole)}, expected ${comparison.text}`);
}

/** What never happened is not as it was expected, however little was asked of it. */
const NOTHING_HOLDS = 'nothing holds';

/** A whole distribution: what is not named must not occur. */
function distribution<K extends string | number>(
  wrong: string[],
  expected: ReadonlyMap<K, Comparison> | null,
  actual: ReadonlyMap<K, number>,
  whole: number,
  words: (key: K) => string,
): void {
  if (expected === null) return;
  for (const [key, comparison] of expected) compare(wrong, words(key), comparison, actual.get(key) ?? 0, whole);
  for (const [key, n] of actual) if (!expected.has(key)) wrong.push(`${words(key)}: ${n}, expected none (it is not named)`);
}

/** Who served call n of a step; index 0 is call 1. */
export interface Served {
  readonly providers: readonly (string | null)[];
  readonly versions: readonly (string | null)[];
}

/** What is wrong with a step as a whole. `others`: steps by label. */
export function checkStep(
  expect: CallExpectation,
  tally: Tally,
  served: Served,
  others: ReadonlyMap<string, Served>,
  sessions: Sessions,
  lastedMs: number,
): string[] {
  if (tally.calls === 0) return [`nothing was asked, so ${NOTHING_HOLDS}: the step has made no call that ended`];
  const wrong: string[] = [];
  quantiles(wrong, expect.latency, tally.times, '');
  brokenSessions(wrong, 'provider', expect.brokenSessions, sessions);
  if (expect.perSecond !== null)
    compare(wrong, 'calls in a second', expect.perSecond, Math.round((tally.calls / Math.max(1, lastedMs)) * 1_000));
  compare(wrong, 'succeeded', expect.succeeded, tally.succeeded, tally.calls);
  distribution(wrong, expect.codes, tally.byCode, tally.calls, (code) => `calls ending with ${codeWords(code)}`);
  distribution(wrong, expect.byProvider, tally.byProvider, tally.calls, (agent) => `calls served by ${agent}`);
  distribution(wrong, expect.byVersion, tally.byVersion, tally.calls, (version) => `calls served by version ${version}`);
  if (expect.sameProvider && tally.byProvider.size > 1)
    wrong.push(`served by ${[...tally.byProvider].map(([agent, n]) => `${agent} (${n})`).join(', ')}, expected one provider for all`);
  alike(wrong, 'provider', expect.sameProviderAs, served.providers, (label) => others.get(label)?.providers ?? []);
  alike(wrong, 'version', expect.sameVersionAs, served.versions, (label) => others.get(label)?.versions ?? []);
  return wrong;
}

function brokenSessions(wrong: string[], who: string, comparison: Comparison | null, sessions: Sessions): void {
  if (comparison !== null && sessions.count === 0) wrong.push(`no session met any ${who}, so ${NOTHING_HOLDS}`);
  else compare(wrong, `sessions that met more than one ${who}`, comparison, sessions.broken, sessions.count);
}

function quantiles(wrong: string[], bounds: Quantiles, times: Durations, of: string): void {
  if (bounds.size > 0 && times.count === 0) {
    wrong.push(`times${of}: there is none, so ${NOTHING_HOLDS}`);
    return;
  }
  for (const [quantile, bound] of bounds) {
    const name = quantile === 'most' ? 'the longest' : quantile === 'mean' ? 'the mean' : quantile.toUpperCase();
    compare(wrong, `${name}${of}`, bound, times.at(quantile));
  }
}

/** What is wrong with one message. */
export function checkMessage(expect: SendExpectation, record: MessageRecord): string[] {
  const wrong: string[] = [];
  const unequal = (what: string, is: unknown, must: unknown): void => {
    if (must !== null && is !== must) wrong.push(`${what} is ${shownValue(is)}, expected ${shownValue(must)}`);
  };
  if (expect.state !== null && record.fate !== expect.state) {
    const why = record.code === 0 ? '' : ` (${codeWords(record.code)}${record.detail === '' ? '' : `: ${record.detail}`})`;
    wrong.push(`it is ${record.fate}, expected ${expect.state}${why}`);
  }
  if (expect.code !== null && record.code !== expect.code)
    wrong.push(`code is ${codeWords(record.code)}, expected ${codeWords(expect.code)}`);
  if (expect.providers !== null && !expect.providers.includes(record.by))
    wrong.push(`${record.by ?? 'none'} had it last, expected ${expect.providers.map((each) => each ?? 'none').join(' or ')}`);
  unequal('version', record.version, expect.version);
  unequal('rule', record.rule ?? 'none', expect.rule);
  unequal('lane', record.lane, expect.lane);
  unequal('replay', record.replay, expect.replay);
  compare(wrong, 'hand-overs', expect.attempts, record.attempts);
  if (record.elapsedMs !== null) compare(wrong, 'elapsed', expect.elapsed, record.elapsedMs);
  else if (expect.elapsed !== null) wrong.push(`elapsed: it is ${record.fate} and has not ended, so ${NOTHING_HOLDS}`);
  for (const words of expect.detail)
    if (!record.detail.includes(words))
      wrong.push(`detail is ${JSON.stringify(record.detail)}, expected to contain ${JSON.stringify(words)}`);
  return wrong;
}

/** What is wrong with the messages of a step as a whole. */
export function checkMessages(
  expect: SendExpectation,
  byFate: ReadonlyMap<Fate, number>,
  byProvider: ReadonlyMap<string, number>,
  times: Durations,
  sessions: Sessions,
  sent: number,
): string[] {
  if (sent === 0) return [`nothing was sent, so ${NOTHING_HOLDS}: the step has made no message`];
  const wrong: string[] = [];
  distribution(wrong, expect.states, byFate, sent, (fate) => `messages that are ${fate}`);
  distribution(wrong, expect.byProvider, byProvider, sent, (agent) => `messages that ${agent} had last`);
  quantiles(wrong, expect.latency, times, '');
  brokenSessions(wrong, 'agent', expect.brokenSessions, sessions);
  return wrong;
}

function alike(
  wrong: string[],
  what: string,
  label: string | null,
  mine: readonly (string | null)[],
  of: (label: string) => readonly (string | null)[],
): void {
  if (label === null) return;
  const theirs = of(label);
  const differing: string[] = [];
  for (let i = 0; i < mine.length; i++)
    if (mine[i] !== theirs[i]) differing.push(`call ${i + 1}: ${mine[i] ?? 'none'} instead of ${theirs[i] ?? 'none'}`);
  if (differing.length > 0)
    wrong.push(
      `${differing.length} of ${mine.length} calls met another ${what} than in ${JSON.stringify(label)}: ${differing.slice(0, 3).join('; ')}${differing.length > 3 ? '; …' : ''}`,
    );
}

/** The run as it stands. */
export interface State {
  readonly tally: Tally;
  readonly inFlight: number;
  executions(cell: string): number;
  /** Null when the table has no such provider and capability. */
  breaker(cell: string): string | null;
  opened(cell: string): number;
  /** Null = it has made no call. */
  taskMs(task: string): number | null;
  /** The states that a breaker has been in so far. */
  breakerPath(cell: string): readonly string[];
  openMs(cell: string): number;
  /** By the label of a step, or by capability. */
  times(name: string): Durations;
  readonly agentCalls: number;
  readonly messages: ReadonlyMap<Fate, number>;
  /** Key → how often its work was begun; of keys that were given. */
  readonly byKey: ReadonlyMap<string, number>;
  /** What the linter says of a rule; null = there is no such rule. */
  lint(rule: string): string | null;
}

export function checkState(expect: StateExpectation, state: State): string[] {
  const wrong: string[] = [];
  const { tally } = state;
  compare(wrong, 'calls', expect.calls, tally.calls);
  compare(wrong, 'succeeded', expect.succeeded, tally.succeeded, tally.calls);
  distribution(wrong, expect.codes, tally.byCode, tally.calls, (code) => `calls ending with ${codeWords(code)}`);
  compare(wrong, 'attempts', expect.attempts, tally.attempts);
  compare(wrong, 'retries', expect.retries, tally.retries);
  compare(wrong, 'fallbacks', expect.fallbacks, tally.fallbacks);
  compare(wrong, 'in flight', expect.inFlight, state.inFlight);
  for (const [cell, comparison] of expect.executions ?? []) compare(wrong, `executions at ${cell}`, comparison, state.executions(cell));
  for (const [cell, must] of expect.breaker ?? []) {
    const is = state.breaker(cell);
    if (is !== must) wrong.push(`the breaker of ${cell} is ${is ?? 'not there'}, expected ${must}`);
  }
  for (const [cell, comparison] of expect.opened ?? [])
    compare(wrong, `times that the breaker of ${cell} opened`, comparison, state.opened(cell));
  for (const [task, comparison] of expect.tasks ?? []) {
    const ms = state.taskMs(task);
    if (ms === null) wrong.push(`the task ${task} has made no call, so ${NOTHING_HOLDS}`);
    else compare(wrong, `time of the task ${task}`, comparison, ms);
  }
  for (const [cell, must] of expect.breakerPath ?? []) {
    const is = state.breakerPath(cell);
    if (is.join() !== must.join()) wrong.push(`the breaker of ${cell} went ${is.join(' → ')}, expected ${must.join(' → ')}`);
  }
  for (const [cell, comparison] of expect.openFor ?? [])
    compare(wrong, `time that the breaker of ${cell} was open`, comparison, state.openMs(cell));
  for (const [name, bounds] of expect.latency ?? []) quantiles(wrong, bounds, state.times(name), ` of ${name}`);
  compare(wrong, 'calls of agents', expect.agentCalls, state.agentCalls);
  if (expect.messages !== null) {
    let sent = 0;
    for (const n of state.messages.values()) sent += n;
    for (const [fate, comparison] of expect.messages)
      compare(
        wrong,
        fate === 'sent' ? 'messages sent' : `messages that are ${fate}`,
        comparison,
        fate === 'sent' ? sent : (state.messages.get(fate) ?? 0),
        sent,
      );
  }
  if (expect.executionsPerKey !== null) perKey(wrong, expect.executionsPerKey, state.byKey);
  for (const [rule, must] of expect.lint ?? []) {
    const is = state.lint(rule);
    if (is !== must) wrong.push(`the linter says of rule ${rule}: ${is ?? 'there is no such rule'}, expected ${must}`);
  }
  return wrong;
}

function perKey(wrong: string[], comparison: Comparison, byKey: ReadonlyMap<string, number>): void {
  if (byKey.size === 0) wrong.push('nothing was executed under a key, so there is nothing to hold executions_per_key against');
  let broken = 0;
  let first = '';
  for (const [key, n] of byKey) {
    if (holds(comparison, n)) continue;
    if (broken++ === 0) first = `${JSON.stringify(key)} was executed ${n} times`;
  }
  if (broken > 0)
    wrong.push(`executions under a key: ${first}${broken > 1 ? ` (and ${broken - 1} more keys)` : ''}, expected ${comparison.text}`);
}
