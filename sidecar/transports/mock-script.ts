/**
 * What a mock provider is told to do: its script, and what that makes of one call. Deciding is pure: the script, the call's number,
 * the time since the start, and chance. How a script is read stands in mock-reading.ts; what an agent as a whole is at (down, full,
 * cold) in mock-agents.ts.
 */
import type { Random } from '../../base/random.ts';
import type { SubCalls } from './mock-calls.ts';
import { type Latency, latencyOf } from './mock-latency.ts';

/** Where a connection is reset, or an answer stops coming for good; a number: before that many chunks and one. */
export type FaultPlace = 'before_head' | 'after_head' | 'mid_body' | number;

/** One way to behave; `null` = not said here. */
export interface Part {
  /** Before the head. */
  readonly latency: Latency | null;
  /** `error_rate`: share of calls that fail, 0–1 or percent. */
  readonly errorRatio: number | null;
  /** `errors: {503: 2%, 429: 1%}`: up to which share of the dice each status reaches, in order. */
  readonly errors: readonly { readonly status: number; readonly upTo: number }[] | null;
  /** 200–599; see `decideAct` for what it means beside `error_rate`. */
  readonly status: number | null;
  readonly headers: Readonly<Record<string, string>> | null;
  /** Any JSON, with the words of `mock-template.ts`; `undefined` = not said. */
  readonly body: unknown;
  /** Never goes on from there. */
  readonly hang: FaultPlace | 'no' | null;
  /** Share of calls that hang there; the rest go on. */
  readonly hangRatio: number | null;
  /** The connection breaks there. */
  readonly reset: FaultPlace | 'no' | null;
  /** `slow_body: {chunks: 5, every: 100ms}`: the first chunk comes with the head, then one every so often. */
  readonly slowBody: { readonly chunks: number; readonly everyMs: number } | null;
  /** Nothing listens: the call is never started, nor counted as an execution. */
  readonly refuseConnect: boolean | null;
  /** Said with each answer of 429 and 503, in whole seconds. */
  readonly retryAfterMs: number | null;
  /** One for each call, the last one for all that follow. */
  readonly answers: readonly Part[] | null;
  /** What the agent asks of others before it answers. */
  readonly calls: SubCalls | null;
}

/**
 * When a part is in force: `after: 10s, until: 20s` by time since the mock was made (until is exclusive), or
 * `after: 3, until: 5` by calls: once 3 are past, up to and with the 5th; `payload: {kind: poison}` for payloads that contain it.
 */
export interface Phase {
  readonly afterMs: number;
  readonly untilMs: number;
  readonly afterCalls: number;
  readonly untilCalls: number;
  /** What the payload must contain: these keys with these values; undefined = whatever it is. */
  readonly payload: unknown;
  readonly part: Part;
}

/** What an agent as a whole goes through, whatever it is asked for. Times are since the mock was made. */
export interface Lifetime {
  /** Up and down in turns. */
  readonly flap: { readonly upMs: number; readonly downMs: number; readonly beginsUp: boolean } | null;
  /** The process ends: at a time (and each `everyMs` after it), or with the n-th call to a capability of it. */
  readonly crash: { readonly atMs: number; readonly everyMs: number; readonly atCall: number; readonly backAfterMs: number } | null;
  /** Above so many calls at once it answers that it is busy. */
  readonly capacity: { readonly concurrent: number; readonly status: number; readonly retryAfterMs: number } | null;
  /** After a start: so many times slower, less and less, until it is warm. */
  readonly warmUp: { readonly forMs: number; readonly slower: number } | null;
}

export interface Script {
  readonly base: Part;
  /** The first one in force wins, field by field over the base. */
  readonly phases: readonly Phase[];
  readonly life: Lifetime | null;
  /** Scripts of single capabilities, complete in themselves but for the agent's lifetime. */
  readonly capabilities: ReadonlyMap<string, Script>;
}

/** What is to happen to one call. */
export interface Act {
  readonly latencyMs: number;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
  readonly hang: FaultPlace | 'no';
  readonly reset: FaultPlace | 'no';
  /** 1 = in one piece. */
  readonly chunks: number;
  readonly everyMs: number;
  readonly refuseConnect: boolean;
  /** After so long the process at the other end is gone; Infinity = it stays. */
  readonly diesInMs: number;
  /** Of a call that ends well; null = none. */
  readonly calls: SubCalls | null;
}

/** In place of a script: what is to happen to a call of this agent, for recorded answers; null = as the script says. */
export type ActFor = (agentId: string, capability: string, callNumber: number) => Act | null;

const NO_HEADERS: Readonly<Record<string, string>> = Object.freeze({});
/** What a mock answers when nothing is said: who it is and what it was given. */
const DEFAULT_BODY: unknown = Object.freeze({ agent: '$agent', payload: '$payload' });

/** An answer as such; what is not said is the healthy default. */
export function actOf(said: Partial<Act>): Act {
  return { ...HEALTHY, ...said };
}

const HEALTHY: Act = Object.freeze({
  latencyMs: 0,
  status: 200,
  headers: NO_HEADERS,
  body: DEFAULT_BODY,
  hang: 'no',
  reset: 'no',
  chunks: 1,
  everyMs: 0,
  refuseConnect: false,
  diesInMs: Number.POSITIVE_INFINITY,
  calls: null,
});

/**
 * `error_rate` fails that share of the calls with `status` (or 500 when `status` is no error), the rest succeed with
 * 200; without it, `status` is every call's. The numbers drawn do not depend on the outcome: one for latency, one for
 * the error, each call, so that a change of one setting does not shift the others' dice.
 */
export function decideAct(script: Script, callNumber: number, sinceMs: number, random: Random, payload: () => unknown = NOTHING): Act {
  const base = script.base;
  let part = base;
  for (const phase of script.phases) {
    const isNow = sinceMs >= phase.afterMs && sinceMs < phase.untilMs && callNumber > phase.afterCalls && callNumber <= phase.untilCalls;
    if (isNow && (phase.payload === undefined || contains(payload(), phase.payload))) {
      part = phase.part;
      break;
    }
  }
  const latencyDice = random.next();
  const errorDice = random.next();
  const answers = part.answers ?? base.answers;
  const rest = part;
  if (answers !== null) part = answers[Math.min(callNumber, answers.length) - 1] as Part;
  const latency = part.latency ?? rest.latency ?? base.latency;
  const status = statusOf(part, rest, base, errorDice);
  const isError = status < 0;
  const code = isError ? -status : status;
  const body = part.body !== undefined ? part.body : rest.body !== undefined ? rest.body : base.body;
  const slow = part.slowBody ?? rest.slowBody ?? base.slowBody;
  const retryAfterMs = part.retryAfterMs ?? rest.retryAfterMs ?? base.retryAfterMs;
  const headers = part.headers ?? rest.headers ?? base.headers ?? NO_HEADERS;
  const hangRatio = part.hangRatio ?? rest.hangRatio ?? base.hangRatio;
  // The upper end of the dice: what hangs does not take the place of what fails.
  const mayHang = hangRatio === null || errorDice >= 1 - hangRatio;
  return {
    latencyMs: latency === null ? 0 : latencyOf(latency, latencyDice, callNumber),
    status: code,
    headers: retryAfterMs !== null && (code === 429 || code === 503) ? withRetryAfter(headers, retryAfterMs) : headers,
    body: isError ? { error: `scripted error ${code}` } : body === undefined ? DEFAULT_BODY : body,
    hang: mayHang ? (part.hang ?? rest.hang ?? base.hang ?? 'no') : 'no',
    reset: part.reset ?? rest.reset ?? base.reset ?? 'no',
    chunks: slow === null ? 1 : slow.chunks,
    everyMs: slow === null ? 0 : slow.everyMs,
    refuseConnect: part.refuseConnect ?? rest.refuseConnect ?? base.refuseConnect ?? false,
    diesInMs: Number.POSITIVE_INFINITY,
    calls: code >= 400 ? null : (part.calls ?? rest.calls ?? base.calls),
  };
}

const NOTHING = (): unknown => undefined;

function contains(whole: unknown, part: unknown): boolean {
  if (typeof part !== 'object' || part === null) return Object.is(whole, part);
  if (typeof whole !== 'object' || whole === null) return false;
  return Object.entries(part).every(([key, value]) => contains((whole as Record<string, unknown>)[key], value));
}

/** Negative: an error by chance, with a body of its own. */
function statusOf(part: Part, rest: Part, base: Part, dice: number): number {
  const said = part.status ?? rest.status ?? base.status;
  const errors = part.errors ?? rest.errors ?? base.errors;
  if (errors !== null) {
    for (const { status, upTo } of errors) if (dice < upTo) return -status;
    return said !== null && said < 400 ? said : 200;
  }
  const ratio = part.errorRatio ?? rest.errorRatio ?? base.errorRatio;
  if (ratio === null) return said ?? 200;
  if (dice < ratio) return said !== null && said >= 400 ? -said : -500;
  return said !== null && said < 400 ? said : 200;
}

/** As HTTP writes it: whole seconds, never sooner than was meant. */
export function withRetryAfter(headers: Readonly<Record<string, string>>, retryAfterMs: number): Readonly<Record<string, string>> {
  return { ...headers, 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) };
}
