/**
 * What a mock provider is told to do, read from the `options` of its endpoint. Checked whole, unknown keys refused, so
 * that a misspelt fault does not turn into a healthy provider. Deciding what happens to one call is pure: the script,
 * the call's number, the time since the start, and chance.
 */
import { describe, parseDuration, parseRatio } from '../../base/duration.ts';
import type { Random } from '../../base/random.ts';
import { nearest } from '../../base/suggest.ts';

/** Where a connection is reset, or an answer stops coming for good. */
export type Place = 'before_head' | 'after_head' | 'mid_body';

/** One way to behave; `null` = not said here. */
interface Part {
  /** Before the head: `latency: 20ms`, or evenly spread: `latency: {from: 10ms, to: 80ms}`. */
  readonly latencyMs: { readonly from: number; readonly to: number } | null;
  /** `error_rate`: share of calls that fail, 0–1 or percent. */
  readonly errorRatio: number | null;
  /** 200–599; see `decideAct` for what it means beside `error_rate`. */
  readonly status: number | null;
  readonly headers: Readonly<Record<string, string>> | null;
  /** Any JSON, with the words of `mock-template.ts`; `undefined` = not said. */
  readonly body: unknown;
  /** Never goes on from there. */
  readonly hang: Place | 'no' | null;
  /** The connection breaks there. */
  readonly reset: Place | 'no' | null;
  /** `slow_body: {chunks: 5, every: 100ms}`: the first chunk comes with the head, then one every so often. */
  readonly slowBody: { readonly chunks: number; readonly everyMs: number } | null;
  /** Nothing listens: the call is never started, nor counted as an execution. */
  readonly refuseConnect: boolean | null;
}

/**
 * When a part is in force: `after: 10s, until: 20s` by time since the mock was made (until is exclusive), or
 * `after: 3, until: 5` by calls: once 3 are past, up to and with the 5th.
 */
interface Phase {
  readonly afterMs: number;
  readonly untilMs: number;
  readonly afterCalls: number;
  readonly untilCalls: number;
  readonly part: Part;
}

export interface Script {
  readonly base: Part;
  /** The first one in force wins, field by field over the base. */
  readonly phases: readonly Phase[];
  /** Scripts of single capabilities, complete in themselves. */
  readonly capabilities: ReadonlyMap<string, Script>;
}

/** What is to happen to one call. */
export interface Act {
  readonly latencyMs: number;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
  readonly hang: Place | 'no';
  readonly reset: Place | 'no';
  /** 1 = in one piece. */
  readonly chunks: number;
  readonly everyMs: number;
  readonly refuseConnect: boolean;
}

const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze({});
/** What a mock answers when nothing is said: who it is and what it was given. */
const DEFAULT_BODY: unknown = Object.freeze({ agent: '$agent', payload: '$payload' });
const PART_KEYS: readonly string[] = ['latency', 'error_rate', 'status', 'headers', 'body', 'hang', 'reset', 'slow_body', 'refuse_connect'];
const PLACES: readonly string[] = ['before_head', 'after_head', 'mid_body'];

/**
 * `error_rate` fails that share of the calls with `status` (or 500 when `status` is no error), the rest succeed with
 * 200; without it, `status` is every call's. The numbers drawn do not depend on the outcome: one for latency, one for
 * the error, each call, so that a change of one setting does not shift the others' dice.
 */
export function decideAct(script: Script, callNumber: number, sinceMs: number, random: Random): Act {
  const base = script.base;
  let part = base;
  for (const phase of script.phases) {
    if (sinceMs >= phase.afterMs && sinceMs < phase.untilMs && callNumber > phase.afterCalls && callNumber <= phase.untilCalls) {
      part = phase.part;
      break;
    }
  }
  const latencyDice = random.next();
  const errorDice = random.next();
  const latency = part.latencyMs ?? base.latencyMs;
  const ratio = part.errorRatio ?? base.errorRatio;
  const said = part.status ?? base.status;
  const isError = ratio !== null && errorDice < ratio;
  const status =
    ratio === null ? (said ?? 200) : isError ? (said !== null && said >= 400 ? said : 500) : said !== null && said < 400 ? said : 200;
  const body = part.body !== undefined ? part.body : base.body;
  const slow = part.slowBody ?? base.slowBody;
  return {
    latencyMs: latency === null ? 0 : latency.from + latencyDice * (latency.to - latency.from),
    status,
    headers: part.headers ?? base.headers ?? NO_HEADERS,
    body: isError ? { error: `scripted error ${status}` } : body === undefined ? DEFAULT_BODY : body,
    hang: part.hang ?? base.hang ?? 'no',
    reset: part.reset ?? base.reset ?? 'no',
    chunks: slow === null ? 1 : slow.chunks,
    everyMs: slow === null ? 0 : slow.everyMs,
    refuseConnect: part.refuseConnect ?? base.refuseConnect ?? false,
  };
}

/** The script, or every problem of it as `path: what is wrong`. */
export function readScript(options: Readonly<Record<string, unknown>>): Script | readonly string[] {
  const reader = new Reader();
  const script = reader.script(options, '');
  return reader.problems.length === 0 ? script : reader.problems;
}

class Reader {
  readonly problems: string[] = [];

  script(value: Readonly<Record<string, unknown>>, path: string): Script {
    this.#known(value, [...PART_KEYS, 'behaviours', ...(path === '' ? ['capabilities'] : [])], path);
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
    return { base: this.#part(value, path), phases, capabilities };
  }

  #phase(value: unknown, path: string): Phase {
    const map = this.#map(value, path) ?? {};
    this.#known(map, [...PART_KEYS, 'after', 'until'], path);
    const after = this.#edge(map['after'], `${path}/after`);
    const until = this.#edge(map['until'], `${path}/until`);
    return {
      afterMs: after?.ms ?? 0,
      untilMs: until?.ms ?? Number.POSITIVE_INFINITY,
      afterCalls: after?.calls ?? 0,
      untilCalls: until?.calls ?? Number.POSITIVE_INFINITY,
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
    return {
      latencyMs: this.#latency(map['latency'], `${path}/latency`),
      errorRatio: this.#ratio(map['error_rate'], `${path}/error_rate`),
      status: this.#whole(map['status'], `${path}/status`, 200, 599, 'an HTTP status from 200 to 599'),
      headers: this.#headers(map['headers'], `${path}/headers`),
      body: map['body'],
      hang: this.#place(map['hang'], `${path}/hang`),
      reset: this.#place(map['reset'], `${path}/reset`),
      slowBody: this.#slowBody(map['slow_body'], `${path}/slow_body`),
      refuseConnect: this.#flag(map['refuse_connect'], `${path}/refuse_connect`),
    };
  }

  #latency(value: unknown, path: string): Part['latencyMs'] {
    if (value === undefined) return null;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      const ms = this.#duration(value, path);
      return ms === null ? null : { from: ms, to: ms };
    }
    const map = value as Record<string, unknown>;
    this.#known(map, ['from', 'to'], path);
    const from = this.#duration(map['from'], `${path}/from`);
    const to = this.#duration(map['to'], `${path}/to`);
    if (from === null || to === null) return null;
    if (to < from) this.#problem(path, '`to` is not below `from`');
    return { from, to };
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

  /** `true` for a hang or reset before the head; `false` takes back what the base says. */
  #place(value: unknown, path: string): Place | 'no' | null {
    if (value === undefined) return null;
    if (value === true) return 'before_head';
    if (value === false) return 'no';
    if (typeof value === 'string' && PLACES.includes(value)) return value as Place;
    this.#problem(path, `is true, false or one of ${PLACES.join(', ')}, not ${describe(value)}`);
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
