/**
 * Reads what a mock is told to do out of the `options` of its endpoint. Checked whole, unknown keys refused, so that a misspelt fault
 * does not turn into a healthy provider; every problem is named with its place.
 */
import { describe, parseDuration, parseRatio } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import { type Latency, sigmaOf } from './mock-latency.ts';
import type { SubCall, SubCalls } from './mock-calls.ts';
import type { FaultPlace, Lifetime, Part, Phase, Script } from './mock-script.ts';

/** Of a part: at the top, in `behaviours`, in `answers`. */
const PART_KEYS: readonly string[] = [
  'latency',
  'error_rate',
  'errors',
  'status',
  'headers',
  'body',
  'hang',
  'hang_rate',
  'reset',
  'slow_body',
  'refuse_connect',
  'retry_after',
  'calls',
];
const LIFE_KEYS: readonly string[] = ['flap', 'crash', 'capacity', 'warm_up'];
/** Everything that may stand at the top of a script. */
export const MOCK_KEYS: readonly string[] = [...PART_KEYS, ...LIFE_KEYS, 'answers', 'behaviours', 'capabilities'];
const PLACES: readonly string[] = ['before_head', 'after_head', 'mid_body'];
const NOTHING: Readonly<Record<string, string>> = Object.freeze({});

/** The script, or every problem of it as `path: what is wrong`. */
export function readScript(options: Readonly<Record<string, unknown>>): Script | readonly string[] {
  const reader = new Reader();
  const script = reader.script(options, '');
  return reader.problems.length === 0 ? script : reader.problems;
}

class Reader {
  readonly problems: string[] = [];

  script(value: Readonly<Record<string, unknown>>, path: string): Script {
    this.#known(value, path === '' ? MOCK_KEYS : [...PART_KEYS, 'answers', 'behaviours'], path);
    const phases: Phase[] = [];
    const behaviours = value['behaviours'];
    if (Array.isArray(behaviours)) {
      for (let i = 0; i < behaviours.length; i++) phases.push(this.#phase(behaviours[i], `${path}/behaviours/${i}`));
    } else if (behaviours !== undefined) {
      this.#problem(`${path}/behaviours`, 'is a list of behaviours');
    }
    const capabilities = new Map<string, Script>();
    for (const [name, one] of Object.entries(path === '' ? (this.#map(value['capabilities'], '/capabilities') ?? {}) : {})) {
      capabilities.set(name, this.script(this.#map(one, `/capabilities/${name}`) ?? {}, `/capabilities/${name}`));
    }
    return { base: this.#part(value, path), phases, life: path === '' ? this.#life(value) : null, capabilities };
  }

  #phase(value: unknown, path: string): Phase {
    const map = this.#map(value, path) ?? {};
    this.#known(map, [...PART_KEYS, 'answers', 'after', 'until', 'payload'], path);
    const after = this.#edge(map['after'], `${path}/after`);
    const until = this.#edge(map['until'], `${path}/until`);
    return {
      afterMs: after?.ms ?? 0,
      untilMs: until?.ms ?? Number.POSITIVE_INFINITY,
      afterCalls: after?.calls ?? 0,
      untilCalls: until?.calls ?? Number.POSITIVE_INFINITY,
      payload: map['payload'],
      part: this.#part(map, path),
    };
  }

  #edge(value: unknown, path: string): { ms?: number; calls?: number } | null {
    if (value === undefined) return null;
    if (typeof value === 'number') {
      if (Number.isInteger(value) && value >= 0) return { calls: value };
      this.#problem(path, 'is a duration such as "10s", or a whole number of calls');
      return null;
    }
    const ms = this.#duration(value, path);
    return ms === null ? null : { ms };
  }

  #part(map: Readonly<Record<string, unknown>>, path: string): Part {
    const errors = this.#errors(map['errors'], `${path}/errors`);
    if (errors !== null && map['error_rate'] !== undefined) this.#problem(`${path}/error_rate`, 'write either error_rate or errors');
    const hangRatio = this.#ratio(map['hang_rate'], `${path}/hang_rate`);
    if (hangRatio !== null && map['hang'] === undefined) this.#problem(`${path}/hang_rate`, 'needs hang beside it: where those calls stop');
    return {
      latency: this.#latency(map['latency'], `${path}/latency`),
      errorRatio: this.#ratio(map['error_rate'], `${path}/error_rate`),
      errors,
      status: this.#whole(map['status'], `${path}/status`, 200, 599, 'an HTTP status from 200 to 599'),
      headers: this.#headers(map['headers'], `${path}/headers`),
      body: map['body'],
      hang: this.#place(map['hang'], `${path}/hang`),
      hangRatio,
      reset: this.#place(map['reset'], `${path}/reset`),
      slowBody: this.#slowBody(map['slow_body'], `${path}/slow_body`),
      refuseConnect: this.#flag(map['refuse_connect'], `${path}/refuse_connect`),
      retryAfterMs: map['retry_after'] === undefined ? null : this.#duration(map['retry_after'], `${path}/retry_after`),
      answers: this.#answers(map['answers'], `${path}/answers`),
      calls: this.#calls(map['calls'], `${path}/calls`),
    };
  }

  #answers(value: unknown, path: string): readonly Part[] | null {
    if (value === undefined) return null;
    if (!Array.isArray(value) || value.length === 0) {
      this.#problem(path, 'is a list of answers, one for each call: [{status: 503}, {body: {ok: true}}]');
      return null;
    }
    return value.map((one: unknown, i) => {
      const map = this.#map(one, `${path}/${i}`) ?? {};
      this.#known(map, PART_KEYS, `${path}/${i}`);
      return this.#part(map, `${path}/${i}`);
    });
  }

  #errors(value: unknown, path: string): Part['errors'] {
    const map = this.#map(value, path);
    if (map === null) return null;
    let upTo = 0;
    const errors: { status: number; upTo: number }[] = [];
    for (const [key, one] of Object.entries(map)) {
      const status = this.#whole(Number(key), `${path}/${key}`, 400, 599, 'an HTTP status from 400 to 599');
      const share = this.#ratio(one, `${path}/${key}`);
      upTo += share ?? 0;
      if (status !== null) errors.push({ status, upTo });
    }
    if (upTo > 1 + 1e-9) this.#problem(path, 'adds up to more than 100%');
    return errors;
  }

  #life(map: Readonly<Record<string, unknown>>): Lifetime | null {
    if (LIFE_KEYS.every((key) => map[key] === undefined)) return null;
    return {
      flap: this.#flap(this.#map(map['flap'], '/flap')),
      crash: this.#crash(this.#map(map['crash'], '/crash')),
      capacity: this.#capacity(this.#map(map['capacity'], '/capacity')),
      warmUp: this.#warmUp(this.#map(map['warm_up'], '/warm_up')),
    };
  }

  #flap(map: Readonly<Record<string, unknown>> | null): Lifetime['flap'] {
    if (map === null) return null;
    this.#known(map, ['up', 'down', 'first'], '/flap');
    const upMs = this.#span(map['up'], '/flap/up');
    const downMs = this.#span(map['down'], '/flap/down');
    const first = map['first'] ?? 'up';
    if (first !== 'up' && first !== 'down') this.#problem('/flap/first', `is up or down, not ${describe(first)}`);
    return { upMs, downMs, beginsUp: first === 'up' };
  }

  #crash(map: Readonly<Record<string, unknown>> | null): Lifetime['crash'] {
    if (map === null) return null;
    this.#known(map, ['at', 'every', 'on_call', 'back_after'], '/crash');
    const { at, every, on_call: onCall, back_after: backAfter } = map;
    if ((at === undefined) === (onCall === undefined))
      this.#problem('/crash', 'needs either `at` (a time) or `on_call` (a number of a call)');
    if (every !== undefined && at === undefined) this.#problem('/crash/every', 'needs `at`: when it crashes for the first time');
    const atCall = this.#whole(onCall, '/crash/on_call', 1, 1_000_000_000, 'the number of a call, from 1');
    const everyMs = every === undefined ? Number.POSITIVE_INFINITY : this.#span(every, '/crash/every');
    const backAfterMs = backAfter === undefined ? Number.POSITIVE_INFINITY : this.#span(backAfter, '/crash/back_after');
    if (backAfterMs >= everyMs && everyMs !== Number.POSITIVE_INFINITY)
      this.#problem('/crash/back_after', 'must be less than `every`, or it never comes back');
    return {
      atMs: at === undefined ? Number.POSITIVE_INFINITY : (this.#duration(at, '/crash/at') ?? 0),
      everyMs,
      atCall: atCall ?? 0,
      backAfterMs,
    };
  }

  #capacity(map: Readonly<Record<string, unknown>> | null): Lifetime['capacity'] {
    if (map === null) return null;
    this.#known(map, ['concurrent', 'status', 'retry_after'], '/capacity');
    const concurrent = this.#whole(map['concurrent'], '/capacity/concurrent', 1, 1_000_000, 'a whole number from 1 on');
    if (map['concurrent'] === undefined) this.#problem('/capacity/concurrent', 'is needed');
    const status = this.#whole(map['status'], '/capacity/status', 400, 599, 'an HTTP status from 400 to 599');
    const retryAfterMs = map['retry_after'] === undefined ? 0 : (this.#duration(map['retry_after'], '/capacity/retry_after') ?? 0);
    return { concurrent: concurrent ?? 1, status: status ?? 503, retryAfterMs };
  }

  #warmUp(map: Readonly<Record<string, unknown>> | null): Lifetime['warmUp'] {
    if (map === null) return null;
    this.#known(map, ['for', 'slower'], '/warm_up');
    const { slower } = map;
    if (typeof slower !== 'number' || !(slower >= 1 && slower <= 1_000))
      this.#problem('/warm_up/slower', `is how many times slower it is at first, 1 to 1000, not ${describe(slower)}`);
    return { forMs: this.#span(map['for'], '/warm_up/for'), slower: typeof slower === 'number' ? slower : 1 };
  }

  #calls(value: unknown, path: string): SubCalls | null {
    if (value === undefined) return null;
    const isList = Array.isArray(value);
    const map = isList ? { steps: value } : (this.#map(value, path) ?? {});
    this.#known(map, ['steps', 'parallel', 'passes_on'], path);
    const at = isList ? path : `${path}/steps`;
    const { steps } = map as { steps?: unknown };
    if (!Array.isArray(steps) || steps.length === 0 || steps.length > 64) {
      this.#problem(at, 'is a list of 1 to 64 calls that the agent makes before it answers: [{call: kb.article.search}]');
      return null;
    }
    return {
      steps: steps.map((one: unknown, i) => this.#subCall(one, `${at}/${i}`)),
      isParallel: this.#flag((map as Record<string, unknown>)['parallel'], `${path}/parallel`) ?? false,
      passesOn: this.#flag((map as Record<string, unknown>)['passes_on'], `${path}/passes_on`) ?? true,
    };
  }

  #subCall(value: unknown, path: string): SubCall {
    const map = typeof value === 'string' ? { call: value } : (this.#map(value, path) ?? {});
    this.#known(map, ['call', 'step', 'payload', 'headers', 'deadline', 'tries', 'on_error'], path);
    const { call, step, payload, on_error: onError = 'fail' } = map as Record<string, unknown>;
    if (typeof call !== 'string' || call === '')
      this.#problem(`${path}/call`, `is the capability that is asked for, not ${describe(call)}`);
    if (step !== undefined && typeof step !== 'string')
      this.#problem(`${path}/step`, `is the name of a step of the budget, not ${describe(step)}`);
    if (onError !== 'fail' && onError !== 'go_on') this.#problem(`${path}/on_error`, `is fail or go_on, not ${describe(onError)}`);
    const { deadline, tries } = map as Record<string, unknown>;
    return {
      asked: String(call),
      step: typeof step === 'string' ? step : '',
      payload: payload === undefined ? '$payload' : payload,
      headers: this.#headers((map as Record<string, unknown>)['headers'], `${path}/headers`) ?? NOTHING,
      deadlineMs: deadline === undefined ? null : this.#duration(deadline, `${path}/deadline`),
      tries: this.#whole(tries, `${path}/tries`, 1, 100, 'a whole number from 1 to 100') ?? 1,
      onError: onError === 'go_on' ? 'go_on' : 'fail',
    };
  }

  #latency(value: unknown, path: string): Latency | null {
    if (value === undefined) return null;
    if (Array.isArray(value)) return this.#latencyList(value, path);
    if (typeof value !== 'object' || value === null) {
      const ms = this.#duration(value, path);
      return ms === null ? null : { kind: 'uniform', from: ms, to: ms };
    }
    const map = value as Record<string, unknown>;
    if ('list' in map) {
      this.#known(map, ['list'], path);
      return this.#latencyList(map['list'], `${path}/list`);
    }
    if ('mean' in map) {
      this.#known(map, ['mean', 'deviation', 'most'], path);
      const mean = this.#duration(map['mean'], `${path}/mean`);
      const deviation = this.#duration(map['deviation'], `${path}/deviation`);
      return mean === null || deviation === null ? null : { kind: 'normal', mean, deviation, most: this.#most(map, path) };
    }
    if ('median' in map) {
      this.#known(map, ['median', 'p95', 'most'], path);
      const median = this.#span(map['median'], `${path}/median`);
      const p95 = this.#span(map['p95'], `${path}/p95`);
      if (p95 < median) this.#problem(path, '`p95` is not below `median`');
      return { kind: 'lognormal', median, sigma: sigmaOf(median, p95), most: this.#most(map, path) };
    }
    if (Object.keys(map).some((key) => /^p\d/.test(key))) return this.#percentiles(map, path);
    this.#known(map, ['from', 'to', 'mean', 'deviation', 'median', 'p50', 'p95', 'p99', 'most', 'list'], path);
    const from = this.#duration(map['from'], `${path}/from`);
    const to = this.#duration(map['to'], `${path}/to`);
    if (from === null || to === null) return null;
    if (to < from) this.#problem(path, '`to` is not below `from`');
    return { kind: 'uniform', from, to };
  }

  #latencyList(value: unknown, path: string): Latency | null {
    if (!Array.isArray(value) || value.length === 0) {
      this.#problem(path, 'is a list of durations, one for each call: [20ms, 20ms, 3s]');
      return null;
    }
    return { kind: 'list', times: value.map((one: unknown, i) => this.#duration(one, `${path}/${i}`) ?? 0) };
  }

  /** `{p50: 200ms, p95: 1s, p99: 4s}`, with `least` and `most` where they are known. */
  #percentiles(map: Readonly<Record<string, unknown>>, path: string): Latency | null {
    const points: { share: number; ms: number }[] = [];
    for (const [key, value] of Object.entries(map)) {
      if (key === 'least' || key === 'most') continue;
      const share = /^p\d{1,2}(\.\d{1,3})?$/.test(key) ? Number(key.slice(1)) / 100 : 0;
      if (share <= 0) this.#problem(`${path}/${key}`, 'is no percentile: write p50, p95, p99, p99.9, and least and most');
      else points.push({ share, ms: this.#duration(value, `${path}/${key}`) ?? 0 });
    }
    points.sort((a, b) => a.share - b.share);
    const first = points[0];
    const last = points.at(-1);
    if (first === undefined || last === undefined) return null;
    const least = map['least'] === undefined ? first.ms / 2 : (this.#duration(map['least'], `${path}/least`) ?? 0);
    // A tail like the one before it, when nobody says how long it is.
    const before = points.at(-2) ?? { share: 0, ms: least };
    const slope = (last.ms - before.ms) / (last.share - before.share);
    const most = map['most'] === undefined ? last.ms + slope * (1 - last.share) : (this.#duration(map['most'], `${path}/most`) ?? 0);
    const shares = [0, ...points.map((point) => point.share), 1];
    const times = [least, ...points.map((point) => point.ms), most];
    if (times.some((ms, i) => i > 0 && ms < (times[i - 1] as number))) this.#problem(path, 'must rise from one percentile to the next');
    return { kind: 'percentiles', shares, times };
  }

  #most(map: Readonly<Record<string, unknown>>, path: string): number {
    return map['most'] === undefined ? Number.POSITIVE_INFINITY : (this.#duration(map['most'], `${path}/most`) ?? 0);
  }

  #slowBody(value: unknown, path: string): Part['slowBody'] {
    const map = this.#map(value, path);
    if (map === null) return null;
    this.#known(map, ['chunks', 'every'], path);
    const chunks = this.#whole(map['chunks'], `${path}/chunks`, 1, 100_000, 'a whole number from 1 to 100000');
    const everyMs = this.#duration(map['every'], `${path}/every`);
    if (map['chunks'] === undefined) this.#problem(`${path}/chunks`, 'is needed');
    return chunks === null || everyMs === null ? null : { chunks, everyMs };
  }

  #headers(value: unknown, path: string): Part['headers'] {
    const map = this.#map(value, path);
    if (map === null) return null;
    const headers: Record<string, string> = {};
    for (const [name, one] of Object.entries(map)) {
      if (typeof one === 'string' || typeof one === 'number' || typeof one === 'boolean') headers[name.toLowerCase()] = String(one);
      else this.#problem(`${path}/${name}`, `is text, not ${describe(one)}`);
    }
    return headers;
  }

  /** `true` for a hang or reset before the head; `false` takes back what the base says; `{after_chunks: 3}` within a body. */
  #place(value: unknown, path: string): FaultPlace | 'no' | null {
    if (value === undefined) return null;
    if (value === true) return 'before_head';
    if (value === false) return 'no';
    if (typeof value === 'string' && PLACES.includes(value)) return value as FaultPlace;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      const map = value as Record<string, unknown>;
      this.#known(map, ['after_chunks'], path);
      return this.#whole(map['after_chunks'], `${path}/after_chunks`, 0, 100_000, 'a whole number of chunks');
    }
    this.#problem(path, `is true, false, {after_chunks: 3} or one of ${PLACES.join(', ')}, not ${describe(value)}`);
    return null;
  }

  #flag(value: unknown, path: string): boolean | null {
    if (value === undefined || typeof value === 'boolean') return value ?? null;
    this.#problem(path, `is true or false, not ${describe(value)}`);
    return null;
  }

  #whole(value: unknown, path: string, least: number, most: number, form: string): number | null {
    if (value === undefined) return null;
    if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value;
    this.#problem(path, `is ${form}, not ${describe(value)}`);
    return null;
  }

  #duration(value: unknown, path: string): number | null {
    const ms = parseDuration(value);
    if (typeof ms === 'number') return ms;
    this.#problem(path, ms);
    return null;
  }

  /** A duration that is not nothing. */
  #span(value: unknown, path: string): number {
    const ms = this.#duration(value, path);
    if (ms === 0) this.#problem(path, 'is more than nothing');
    return ms === null || ms === 0 ? 1 : ms;
  }

  #ratio(value: unknown, path: string): number | null {
    if (value === undefined) return null;
    const ratio = parseRatio(value);
    if (typeof ratio === 'number') return ratio;
    this.#problem(path, ratio);
    return null;
  }

  #map(value: unknown, path: string): Readonly<Record<string, unknown>> | null {
    if (value === undefined) return null;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    this.#problem(path, `is a map, not ${describe(value)}`);
    return null;
  }

  #known(map: Readonly<Record<string, unknown>>, known: readonly string[], path: string): void {
    for (const key of Object.keys(map)) {
      if (known.includes(key)) continue;
      const near = nearest(key, known);
      this.#problem(
        `${path}/${key}`,
        near === null ? `is not known to a mock; known are ${known.join(', ')}` : `is not known to a mock; did you mean "${near}"?`,
      );
    }
  }

  #problem(path: string, words: string): void {
    this.problems.push(`${path}: ${words}`);
  }
}
