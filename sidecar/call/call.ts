/**
 * One call on its way through this sidecar. Every field is set in the constructor, so that all calls share one shape;
 * ways in fill the upper part, stages the lower. `record` is the only way for a stage's verdict to take effect, and it
 * always leaves a mark in the trace.
 */
import { isUtf8 } from 'node:buffer';
import type { Clock } from '../../base/clock.ts';
import type { Code } from '../../proto/wire/codes.ts';
import type { Execution, FallbackStep, Override } from '../../proto/language/types.ts';
import type { Candidate, Capability, Snapshot, Version } from '../table/snapshot.ts';
import type { Attempt } from './attempt-record.ts';
import type { CallQuota } from './call-quota.ts';
import type { LateAnswer } from './late-answer.ts';
import type { PeerCertificate } from './peer.ts';
import type { Principal } from './principal.ts';
import { Trace } from './trace.ts';
import type { Verdict } from './verdict.ts';
import type { Reply } from './reply.ts';
import type { Work } from './underway.ts';

export type WayIn = 'http' | 'mesh' | 'proxy' | 'json_rpc' | 'grpc' | 'channel' | 'local' | 'message' | 'sandbox' | 'fallback';

/** Request headers, lower case, as Node gives them; a way in without headers makes an object with the same names. */
export type HeaderView = Readonly<Record<string, string | string[] | undefined>>;

const NO_CREDENTIALS: readonly string[] = Object.freeze([]);

/** What an intercepted HTTP request asked for, to be asked of the provider in the same words. */
export class HttpAsk {
  /** Upper case. */
  readonly method: string;
  /** Path and query as they came, beginning with `/`. */
  readonly target: string;
  /** The client's own credentials for the provider, flat name, value …: `authorization`, `cookie`. Never ours. */
  readonly credentials: readonly string[];

  constructor(method: string, target: string, credentials: readonly string[] = NO_CREDENTIALS) {
    this.method = method;
    this.target = target;
    this.credentials = credentials;
  }
}

export const NO_HEADERS: HeaderView = Object.freeze(Object.create(null) as Record<string, string>);

/** How a capability failed, kept while its fallback is tried. */
export class Failure {
  readonly code: Code;
  readonly refusal: Verdict | null;
  readonly reply: Reply | null;
  readonly status: number;
  readonly retryAfterMs: number;
  readonly chosen: Candidate | null;

  constructor(code: Code, refusal: Verdict | null, reply: Reply | null, status: number, retryAfterMs: number, chosen: Candidate | null) {
    this.code = code;
    this.refusal = refusal;
    this.reply = reply;
    this.status = status;
    this.retryAfterMs = retryAfterMs;
    this.chosen = chosen;
  }
}

const NOTHING: readonly string[] = Object.freeze([]);

export const GOING_AWAY = 'the sidecar stopped, and its time for what was under way was over';

export class Call {
  // What the way in knows.
  readonly way: WayIn;
  /** As the caller wrote it: `name`, `alias` or `name@range`. */
  readonly asked: string;
  readonly headers: HeaderView;
  readonly body: Buffer;
  readonly contentType: string;
  /** The caller wants the body passed on as it comes. */
  readonly stream: boolean;
  /** `clock.now()` at acceptance. */
  readonly startedAt: number;
  /** Another one while it is recorded or decided anew. */
  clock: Clock;
  /** Set by ways in that intercept HTTP; null for all others. */
  http: HttpAsk | null = null;
  /** Who is at the other end of a mesh connection with TLS; null = the way in does not know. */
  peer: PeerCertificate | null = null;
  /** Of a message: the word that its sender is at home where it came from, and when the server stored it. */
  statement: string | null = null;
  storedAtMs = 0;
  /** 32 hex digits. */
  traceId = '';
  /** 16 hex digits: the caller's span, '' when the trace starts here. */
  parentSpanId = '';
  traceFlags = 1;
  traceState = '';
  /** It is at its provider's end. */
  isInbound = false;
  /** 16 hex digits: the span of this hop, below which those of its attempts stand; '' while no traces are made. */
  spanId = '';
  /** Wall clock less `clock.now()` as it began, for all its spans: the wall clock may be set while it runs. */
  wallOffset = 0;

  // What the stages find.
  table: Snapshot | null = null;
  principal: Principal | null = null;
  /** The canonical capability: after `name`, ACL, routing and metrics see only this. */
  capability: Capability | null = null;
  /** null = none given. */
  range: string | null = null;
  /** Sorted `k=v` pairs of the tag selector, '' when none. */
  tags = '';
  /** Agent ids and capabilities passed so far, oldest first: `agent>capability`. */
  path: readonly string[] = [];
  /** Parsed payload; undefined until somebody needs it. Read it with `payloadOf`. */
  json: unknown = undefined;
  /** Versions that may serve it, best first; `line` is the one in use. */
  lines: readonly Version[] = [];
  lineIndex = 0;
  affinityKey: string | null = null;
  /** What the conversation key comes to, where the key itself is not at hand (replay); null = it is. */
  keyDraws: { readonly canary: number; readonly owner: number } | null = null;
  execution: Execution = 'once';
  /** The caller's key, or null. */
  powerId: string | null = null;
  /** `held`: the key is claimed for this call; `passed`: it could not be, and the call goes on all the same. */
  claim: 'none' | 'held' | 'passed' = 'none';
  /** Who gave the answer that this call gets once more; null = it is no repeat. */
  replay: { readonly provider: string; readonly version: string } | null = null;
  /** What is waited for after the caller has been told that the time is over; null = nothing is. */
  late: LateAnswer | null = null;
  /** At the provider's end: for so long after the time is over the caller's end wants the answer still, for its key. */
  lateMs = 0;
  /** `clock.now()` when the total time is over; Infinity until the deadline stage has run. */
  deadlineAt = Number.POSITIVE_INFINITY;
  totalMs = 0;
  /** What one attempt may take, where the way in says so; 0 = what the contract gives a call. */
  attemptMs = 0;
  /** Of a message: what its worker is told about it, as headers (flat). No caller can say them. */
  about: readonly string[] = NOTHING;
  /** When the step's budget is over; ≤ deadlineAt. */
  stepEndsAt = Number.POSITIVE_INFINITY;
  chosen: Candidate | null = null;
  readonly attempts: Attempt[] = [];
  /** The answer of the last attempt, or null. */
  reply: Reply | null = null;
  /** The verdict that refused the call (the latest one), or null. */
  refusal: Verdict | null = null;
  /** An ACL that is in audit would have refused it; null = none would. */
  letIn: Verdict | null = null;
  /** How far the fallback chain has been walked; 0 = the capability asked for. */
  fallbackIndex = 0;
  fallbackFrom: Capability | null = null;
  /** The chain being walked: that of the version that was asked for. */
  fallbackChain: readonly FallbackStep[] | null = null;
  /** The operator's rule that answers for, or moves, this call. */
  degradedBy: Override | null = null;
  reroutedBy: Override | null = null;
  degraded = false;
  definitelySuccess = false;
  /** Code of the call so far: set by `record`, cleared by an attempt or fallback that answers. */
  code: Code = 0;
  /** The provider's status; 0 when none came. */
  status = 0;
  /** When to come back, as the provider or a stage said; 0 = unknown. */
  retryAfterMs = 0;
  /** Where this call began a conversation, so that it can be taken back; null = it goes on with one, or has no key. */
  begunAt: Candidate | null = null;
  /** It began there to find out whether that provider has recovered. */
  begunAsProbe = false;
  /** The provider said that nobody should repeat this. */
  noRetry = false;
  /** The provider asked for by name (`Reach-Pin`), or by a fallback step. */
  pin: string | null = null;
  /** Set by the way in's socket, or by a parent call: the caller is gone. */
  cancelled = false;
  cancelledAt = 0;
  /** It was not the caller: an operator's block cuts what is under way; in words. null = none does. */
  cutBy: string | null = null;
  /** The answer's JSON was parsed and found well formed already (to validate it). */
  outputChecked = false;
  /** The body of a static fallback, as JSON; null when a provider answers. */
  staticBody: Buffer | null = null;
  /** The operator's or contract's chain ended in this failure before the fallback ran; kept as the cause. */
  cause: string | null = null;
  /** That failure itself; set by `fallback` before its first step. */
  firstFailure: Failure | null = null;
  /** Attempts before this index belong to an earlier capability of the fallback chain. */
  attemptsFrom = 0;
  /** A provider was used although none is healthy (`panic: true`); set by `choose`, counted by the observer. */
  panicked = false;
  /** What the retry stage wants waited before the next attempt. */
  pauseMs = 0;
  /** The attempt under way that this call is made for, when its caller is serving one; null = it begins something new. */
  work: Work | null = null;
  /** Stops whatever is under way; set by `attempt` while it runs. */
  onCancel: (() => void) | null = null;
  /** Begins the time of the attempt under way anew; set by `attempt` while it runs, where the way in can ask for it. */
  onExtend: ((ms: number) => void) | null = null;
  /** Slot of caller × capability, given back when the body has ended. */
  callerSlot: { release(): void } | null = null;
  /** The quota of its caller; null = it has none. */
  quota: CallQuota | null = null;
  /** It counts there as a call in flight. */
  quotaHeld = false;
  /** Of a way in with a form of its own for streams: puts a whole success into it before it is accounted for; what does not fit is none. */
  onWhole: (() => void) | null = null;
  /** Runs the last accounting when a streamed body has ended; set by the pipeline. */
  onBodyEnd: (() => void) | null = null;
  /** A streamed body is still on its way; `onBodyEnd` will be called. */
  bodyOpen = false;
  readonly trace = new Trace();
  /** True once the accounting is done (once, however the call ends). */
  settled = false;

  constructor(way: WayIn, asked: string, headers: HeaderView, body: Buffer, contentType: string, stream: boolean, clock: Clock) {
    this.way = way;
    this.asked = asked;
    this.headers = headers;
    this.body = body;
    this.contentType = contentType;
    this.stream = stream;
    this.clock = clock;
    this.startedAt = clock.now();
  }

  /** The caller went away: cancels the work under way; harmless when repeated or late. */
  cancel(): void {
    if (this.cancelled || this.settled) return;
    this.cancelled = true;
    this.cancelledAt = this.clock.now();
    const stop = this.onCancel;
    this.onCancel = null;
    if (stop !== null) stop();
  }

  /** An operator cuts it: it ends at once as blocked (2006), not as cancelled. */
  cut(words: string): void {
    if (this.cancelled || this.settled) return;
    this.cutBy = words;
    this.cancel();
  }

  /** This sidecar stops, and the time for what is under way is over: told like a cut by an operator, since it is nobody's failure. */
  goAway(): void {
    this.cut(GOING_AWAY);
  }

  /** The agent takes longer: the attempt under way has so long from now on. False = none that can be extended is under way. */
  extend(ms: number): boolean {
    if (this.onExtend === null || this.cancelled) return false;
    this.onExtend(ms);
    return true;
  }
}

/** Writes a verdict into the call's trace and lets it take effect; true when the call may go on. */
export function record(call: Call, verdict: Verdict): boolean {
  note(call, verdict);
  if (verdict.reason.passes) return true;
  if (verdict.reason.code !== 0) {
    call.refusal = verdict;
    call.code = verdict.reason.code;
  }
  return false;
}

/** Writes a verdict into the trace without letting it change the outcome. */
export function note(call: Call, verdict: Verdict): void {
  call.trace.add(call.clock.now() - call.startedAt, verdict);
}

/** One request header as a string; null when absent. A header sent twice gives null: the caller must not be guessed at. */
export function headerOf(call: Call, name: string): string | null {
  const value = call.headers[name];
  return typeof value === 'string' ? value : null;
}

const NOT_JSON = Symbol('not JSON');

/**
 * The payload, parsed at most once; undefined when it is not JSON. Bytes that are no UTF-8 are none: what is put in their place
 * while they are read is not what the agent would read.
 */
export function payloadOf(call: Call): unknown {
  if (call.json === undefined) {
    try {
      call.json = call.body.length === 0 ? null : isUtf8(call.body) ? JSON.parse(call.body.toString('utf8')) : NOT_JSON;
    } catch {
      call.json = NOT_JSON;
    }
  }
  return call.json === NOT_JSON ? undefined : call.json;
}
