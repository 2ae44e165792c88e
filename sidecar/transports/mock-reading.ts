/**
 * Reads what a mock is told to do out of the `options` of its endpoint. Checked whole, unknown keys refused, so that a misspelt fault
 * does not turn into a healthy provider; every problem is named with its place.
 */
import { describe } from '../../base/duration.ts';
import type { SubCall, SubCalls } from './mock-calls.ts';
import { MockFields } from './mock-fields.ts';
import { LatencyReader } from './mock-latency-reading.ts';
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
  const fields = new MockFields();
  const script = new Reader(fields).script(options, '');
  return fields.problems.length === 0 ? script : fields.problems;
}

class Reader {
  readonly #fields: MockFields;
  readonly #latency: LatencyReader;

  constructor(fields: MockFields) {
    this.#fields = fields;
    this.#latency = new LatencyReader(fields);
  }

  script(value: Readonly<Record<string, unknown>>, path: string): Script {
    this.#fields.known(value, path === '' ? MOCK_KEYS : [...PART_KEYS, 'answers', 'behaviours'], path);
    const phases: Phase[] = [];
    const behaviours = value['behaviours'];
    if (Array.isArray(behaviours)) {
      for (let i = 0; i < behaviours.length; i++) phases.push(this.#phase(behaviours[i], `${path}/behaviours/${i}`));
    } else if (behaviours !== undefined) {
      this.#fields.problem(`${path}/behaviours`, 'is a list of behaviours');
    }
    const capabilities = new Map<string, Script>();
    for (const [name, one] of Object.entries(path === '' ? (this.#fields.map(value['capabilities'], '/capabilities') ?? {}) : {})) {
      capabilities.set(name, this.script(this.#fields.map(one, `/capabilities/${name}`) ?? {}, `/capabilities/${name}`));
    }
    return { base: this.#part(value, path), phases, life: path === '' ? this.#life(value) : null, capabilities };
  }

  #phase(value: unknown, path: string): Phase {
    const map = this.#fields.map(value, path) ?? {};
    this.#fields.known(map, [...PART_KEYS, 'answers', 'after', 'until', 'payload'], path);
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
      this.#fields.problem(path, 'is a duration such as "10s", or a whole number of calls');
      return null;
    }
    const ms = this.#fields.duration(value, path);
    return ms === null ? null : { ms };
  }

  #part(map: Readonly<Record<string, unknown>>, path: string): Part {
    const errors = this.#errors(map['errors'], `${path}/errors`);
    if (errors !== null && map['error_rate'] !== undefined) this.#fields.problem(`${path}/error_rate`, 'write either error_rate or errors');
    const hangRatio = this.#fields.ratio(map['hang_rate'], `${path}/hang_rate`);
    if (hangRatio !== null && map['hang'] === undefined)
      this.#fields.problem(`${path}/hang_rate`, 'needs hang beside it: where those calls stop');
    return {
      latency: this.#latency.read(map['latency'], `${path}/latency`),
      errorRatio: this.#fields.ratio(map['error_rate'], `${path}/error_rate`),
      errors,
      status: this.#fields.whole(map['status'], `${path}/status`, 200, 599, 'an HTTP status from 200 to 599'),
      headers: this.#headers(map['headers'], `${path}/headers`),
      body: map['body'],
      hang: this.#place(map['hang'], `${path}/hang`),
      hangRatio,
      reset: this.#place(map['reset'], `${path}/reset`),
      slowBody: this.#slowBody(map['slow_body'], `${path}/slow_body`),
      refuseConnect: this.#fields.flag(map['refuse_connect'], `${path}/refuse_connect`),
      retryAfterMs: map['retry_after'] === undefined ? null : this.#fields.duration(map['retry_after'], `${path}/retry_after`),
      answers: this.#answers(map['answers'], `${path}/answers`),
      calls: this.#calls(map['calls'], `${path}/calls`),
    };
  }

  #answers(value: unknown, path: string): readonly Part[] | null {
    if (value === undefined) return null;
    if (!Array.isArray(value) || value.length === 0) {
      this.#fields.problem(path, 'is a list of answers, one for each call: [{status: 503}, {body: {ok: true}}]');
      return null;
    }
    return value.map((one: unknown, i) => {
      const map = this.#fields.map(one, `${path}/${i}`) ?? {};
      this.#fields.known(map, PART_KEYS, `${path}/${i}`);
      return this.#part(map, `${path}/${i}`);
    });
  }

  #errors(value: unknown, path: string): Part['errors'] {
    const map = this.#fields.map(value, path);
    if (map === null) return null;
    let upTo = 0;
    const errors: { status: number; upTo: number }[] = [];
    for (const [key, one] of Object.entries(map)) {
      const status = this.#fields.whole(Number(key), `${path}/${key}`, 400, 599, 'an HTTP status from 400 to 599');
      const share = this.#fields.ratio(one, `${path}/${key}`);
      upTo += share ?? 0;
      if (status !== null) errors.push({ status, upTo });
    }
    if (upTo > 1 + 1e-9) this.#fields.problem(path, 'adds up to more than 100%');
    return errors;
  }

  #life(map: Readonly<Record<string, unknown>>): Lifetime | null {
    if (LIFE_KEYS.every((key) => map[key] === undefined)) return null;
    return {
      flap: this.#flap(this.#fields.map(map['flap'], '/flap')),
      crash: this.#crash(this.#fields.map(map['crash'], '/crash')),
      capacity: this.#capacity(this.#fields.map(map['capacity'], '/capacity')),
      warmUp: this.#warmUp(this.#fields.map(map['warm_up'], '/warm_up')),
    };
  }

  #flap(map: Readonly<Record<string, unknown>> | null): Lifetime['flap'] {
    if (map === null) return null;
    this.#fields.known(map, ['up', 'down', 'first'], '/flap');
    const upMs = this.#fields.span(map['up'], '/flap/up');
    const downMs = this.#fields.span(map['down'], '/flap/down');
    const first = map['first'] ?? 'up';
    if (first !== 'up' && first !== 'down') this.#fields.problem('/flap/first', `is up or down, not ${describe(first)}`);
    return { upMs, downMs, beginsUp: first === 'up' };
  }

  #crash(map: Readonly<Record<string, unknown>> | null): Lifetime['crash'] {
    if (map === null) return null;
    this.#fields.known(map, ['at', 'every', 'on_call', 'back_after'], '/crash');
    const { at, every, on_call: onCall, back_after: backAfter } = map;
    if ((at === undefined) === (onCall === undefined))
      this.#fields.problem('/crash', 'needs either `at` (a time) or `on_call` (a number of a call)');
    if (every !== undefined && at === undefined) this.#fields.problem('/crash/every', 'needs `at`: when it crashes for the first time');
    const atCall = this.#fields.whole(onCall, '/crash/on_call', 1, 1_000_000_000, 'the number of a call, from 1');
    const everyMs = every === undefined ? Number.POSITIVE_INFINITY : this.#fields.span(every, '/crash/every');
    const backAfterMs = backAfter === undefined ? Number.POSITIVE_INFINITY : this.#fields.span(backAfter, '/crash/back_after');
    if (backAfterMs >= everyMs && everyMs !== Number.POSITIVE_INFINITY)
      this.#fields.problem('/crash/back_after', 'must be less than `every`, or it never comes back');
    return {
      atMs: at === undefined ? Number.POSITIVE_INFINITY : (this.#fields.duration(at, '/crash/at') ?? 0),
      everyMs,
      atCall: atCall ?? 0,
      backAfterMs,
    };
  }

  #capacity(map: Readonly<Record<string, unknown>> | null): Lifetime['capacity'] {
    if (map === null) return null;
    this.#fields.known(map, ['concurrent', 'status', 'retry_after'], '/capacity');
    const concurrent = this.#fields.whole(map['concurrent'], '/capacity/concurrent', 1, 1_000_000, 'a whole number from 1 on');
    if (map['concurrent'] === undefined) this.#fields.problem('/capacity/concurrent', 'is needed');
    const status = this.#fields.whole(map['status'], '/capacity/status', 400, 599, 'an HTTP status from 400 to 599');
    const retryAfterMs = map['retry_after'] === undefined ? 0 : (this.#fields.duration(map['retry_after'], '/capacity/retry_after') ?? 0);
    return { concurrent: concurrent ?? 1, status: status ?? 503, retryAfterMs };
  }

  #warmUp(map: Readonly<Record<string, unknown>> | null): Lifetime['warmUp'] {
    if (map === null) return null;
    this.#fields.known(map, ['for', 'slower'], '/warm_up');
    const { slower } = map;
    if (typeof slower !== 'number' || !(slower >= 1 && slower <= 1_000))
      this.#fields.problem('/warm_up/slower', `is how many times slower it is at first, 1 to 1000, not ${describe(slower)}`);
    return { forMs: this.#fields.span(map['for'], '/warm_up/for'), slower: typeof slower === 'number' ? slower : 1 };
  }

  #calls(value: unknown, path: string): SubCalls | null {
    if (value === undefined) return null;
    const isList = Array.isArray(value);
    const map = isList ? { steps: value } : (this.#fields.map(value, path) ?? {});
    this.#fields.known(map, ['steps', 'parallel', 'passes_on'], path);
    const at = isList ? path : `${path}/steps`;
    const { steps } = map as { steps?: unknown };
    if (!Array.isArray(steps) || steps.length === 0 || steps.length > 64) {
      this.#fields.problem(at, 'is a list of 1 to 64 calls that the agent makes before it answers: [{call: kb.article.search}]');
      return null;
    }
    return {
      steps: steps.map((one: unknown, i) => this.#subCall(one, `${at}/${i}`)),
      isParallel: this.#fields.flag((map as Record<string, unknown>)['parallel'], `${path}/parallel`) ?? false,
      passesOn: this.#fields.flag((map as Record<string, unknown>)['passes_on'], `${path}/passes_on`) ?? true,
    };
  }

  #subCall(value: unknown, path: string): SubCall {
    const map = typeof value === 'string' ? { call: value } : (this.#fields.map(value, path) ?? {});
    this.#fields.known(map, ['call', 'step', 'payload', 'headers', 'deadline', 'tries', 'on_error'], path);
    const { call, step, payload, on_error: onError = 'fail' } = map as Record<string, unknown>;
    if (typeof call !== 'string' || call === '')
      this.#fields.problem(`${path}/call`, `is the capability that is asked for, not ${describe(call)}`);
    if (step !== undefined && typeof step !== 'string')
      this.#fields.problem(`${path}/step`, `is the name of a step of the budget, not ${describe(step)}`);
    if (onError !== 'fail' && onError !== 'go_on') this.#fields.problem(`${path}/on_error`, `is fail or go_on, not ${describe(onError)}`);
    const { deadline, tries } = map as Record<string, unknown>;
    return {
      asked: String(call),
      step: typeof step === 'string' ? step : '',
      payload: payload === undefined ? '$payload' : payload,
      headers: this.#headers((map as Record<string, unknown>)['headers'], `${path}/headers`) ?? NOTHING,
      deadlineMs: deadline === undefined ? null : this.#fields.duration(deadline, `${path}/deadline`),
      tries: this.#fields.whole(tries, `${path}/tries`, 1, 100, 'a whole number from 1 to 100') ?? 1,
      onError: onError === 'go_on' ? 'go_on' : 'fail',
    };
  }

  #slowBody(value: unknown, path: string): Part['slowBody'] {
    const map = this.#fields.map(value, path);
    if (map === null) return null;
    this.#fields.known(map, ['chunks', 'every'], path);
    const chunks = this.#fields.whole(map['chunks'], `${path}/chunks`, 1, 100_000, 'a whole number from 1 to 100000');
    const everyMs = this.#fields.duration(map['every'], `${path}/every`);
    if (map['chunks'] === undefined) this.#fields.problem(`${path}/chunks`, 'is needed');
    return chunks === null || everyMs === null ? null : { chunks, everyMs };
  }

  #headers(value: unknown, path: string): Part['headers'] {
    const map = this.#fields.map(value, path);
    if (map === null) return null;
    const headers: Record<string, string> = {};
    for (const [name, one] of Object.entries(map)) {
      if (typeof one === 'string' || typeof one === 'number' || typeof one === 'boolean') headers[name.toLowerCase()] = String(one);
      else this.#fields.problem(`${path}/${name}`, `is text, not ${describe(one)}`);
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
      this.#fields.known(map, ['after_chunks'], path);
      return this.#fields.whole(map['after_chunks'], `${path}/after_chunks`, 0, 100_000, 'a whole number of chunks');
    }
    this.#fields.problem(path, `is true, false, {after_chunks: 3} or one of ${PLACES.join(', ')}, not ${describe(value)}`);
    return null;
  }
}
