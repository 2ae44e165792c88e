/**
 * One recorded call, decided anew by the very functions that decided it: `outbound` (or `inbound`) with clock, chance, health, limits,
 * quotas, ledger and transports that answer out of the recording. What cannot be answered from there ends the replay of this call
 * as a miss: nothing is made up.
 *
 * A provider's recorded answer counts where the same provider is asked for the same version in the same attempt, or in another
 * attempt of the same call, once; what took longer than it was waited for then is not known.
 */
import { nextTurn } from '../../base/clock.ts';
import { SeededRandom } from '../../base/random.ts';
import type { Validator } from '../../base/json-schema.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { Call, HttpAsk, type WayIn } from '../call/call.ts';
import { Principal } from '../call/principal.ts';
import { answered, failed, NO_BODY, Reply, streaming } from '../call/reply.ts';
import { Verdict, type Stage } from '../call/verdict.ts';
import { keyOf } from '../choose/affinity.ts';
import { Chooser } from '../choose/choose.ts';
import type { Decider } from '../engine.ts';
import type { Identities } from '../identify/identify.ts';
import { CallerLimits } from '../limits/limits.ts';
import { inbound, outbound } from '../pipeline.ts';
import { decisionOf } from '../record/decision.ts';
import type { AttemptRecord, CallRecord, Decision, SendRecord, VerdictRecord } from '../record/shapes.ts';
import { RetryBudget } from '../retry/budget.ts';
import type { Candidate, Provider, Snapshot, Version } from '../table/snapshot.ts';
import type { Exchange, Transport } from '../transports/transport.ts';
import { ReplayClock } from './replay-clock.ts';
import { RecordedStream } from './recorded-stream.ts';
import { judgedReply } from './judged-reply.ts';
import { type ReplayTables, stranger, withProvider } from './replay-table.ts';

/** What was asked for and is not in the recording. */
export interface Miss {
  readonly what: string;
  /** Whom, or what, was asked. */
  readonly asked: string;
  /** What is recorded in its place. */
  readonly recorded: string;
}

export interface Replayed {
  /** null = it could not be decided. */
  readonly decision: Decision | null;
  readonly miss: Miss | null;
  /** What was decided before the miss. */
  readonly soFar: Decision;
  /** Answers that were taken from another attempt than the one they were recorded in. */
  readonly moved: number;
}

/** A request that waits for its recorded answer. */
interface Pending {
  readonly n: number;
  readonly exchange: Exchange;
  readonly startedAt: number;
  readonly send: SendRecord | null;
  /** As it was recorded. */
  readonly attempt: AttemptRecord;
  readonly settle: (reply: Reply) => void;
  isAborted: boolean;
}

/** Set by the replayer of a file, read by its validators: calls are decided one after the other. */
export class Deciding {
  now: CallReplay | null = null;
  readonly fits = (version: Version, real: Validator): readonly string[] | null => this.now?.fits(version, real) ?? null;
}

/** Events of one call; more is a fault of ours. */
const MAX_STEPS = 2_000;
/** A call has one conversation at most: no more are remembered. */
const ONE_KEY = { maxEntries: 4, ttlMs: 86_400_000 };
const NO_SECRET = Buffer.alloc(0);
let zeros = Buffer.alloc(65_536);

export class CallReplay implements Decider {
  readonly clock: ReplayClock;
  readonly random: SeededRandom;
  readonly config: Decider['config'];
  readonly table: Decider['table'];
  readonly identities: Identities;
  readonly limits = new CallerLimits();
  readonly quotas: Decider['quotas'];
  readonly chooser: Decider['chooser'];
  readonly ledger: Decider['ledger'];
  readonly retryBudget: Decider['retryBudget'];
  readonly underway: Decider['underway'];
  readonly transports: Decider['transports'];
  readonly observer: Decider['observer'];
  readonly #record: CallRecord;
  readonly #tables: ReplayTables;
  readonly #call: Call;
  readonly #real: Chooser;
  #miss: Miss | null = null;
  #looks = 0;
  #pending: Pending | null = null;
  #stream: RecordedStream | null = null;
  #claim: (() => void) | null = null;
  #arrival: (() => void) | null = null;
  #choices = 0;
  #claims = 0;
  #takes = 0;
  #quotasAsked = 0;
  #rev: number;
  #moved = 0;
  readonly #sent: number[] = [];
  /** Attempts whose answers have been given. */
  readonly #used = new Set<number>();
  #fault: Error | null = null;

  constructor(record: CallRecord, tables: ReplayTables) {
    this.#record = record;
    this.#tables = tables;
    this.#rev = record.rev;
    const { config } = tables;
    this.clock = new ReplayClock(record.stretches, record.started_at, record.wall_ms);
    this.random = new SeededRandom(record.seed);
    const { maxDeadlineMs, maxHops, lateMs } = config;
    this.config = { maxDeadlineMs, maxHops, claims: { lateMs } as Decider['config']['claims'] };
    this.table = { current: () => this.#look() };
    this.#real = new Chooser(this.clock.beside(), this.random, tables.world(record.parts).health, ONE_KEY);
    this.identities = this.#identities();
    for (const [capability, inFlight] of Object.entries(record.in_flight))
      this.limits.assume(capability, record.caller?.agent ?? '', inFlight);
    this.quotas = this.#quotas();
    this.chooser = { choose: (call, now) => this.#choose(call, now), ended: () => undefined };
    this.ledger = {
      claim: () => this.#claimed(),
      record: () => Promise.resolve(),
      settle: () => undefined,
    };
    this.retryBudget = this.#budget(config.retryBudget);
    this.underway = {
      join: (call) => {
        const { work } = record;
        if (work === null) return;
        const { agent: agentId, ends_at: endsAt, total_ms: totalMs } = work;
        call.work = { call, traceId: call.traceId, agentId, spanId: '', endsAt, totalMs, parts: null, next: null };
      },
      add: () => undefined,
      remove: () => undefined,
      leave: () => undefined,
    };
    this.transports = { for: () => this.#transport };
    this.observer = {
      callStarted: () => undefined,
      attemptEnded: (call, attempt) => {
        const rev = this.clock.isAside ? null : (record.after[call.attempts.indexOf(attempt)] ?? null);
        if (rev !== null) this.#restore(call, rev);
      },
      callEnded: () => undefined,
      bug: (_call, error) => {
        this.#fault = error instanceof Error ? error : new Error('no Error was thrown');
      },
    };
    this.#call = this.#callOf(record);
  }

  async run(): Promise<Replayed> {
    const { host } = this.#record;
    const call = this.#call;
    if (host !== null) this.#restoreHosted(host);
    let isDone = false;
    const running = host === null ? outbound(this, call) : inbound(this, call, host.agent, host.version);
    void running.then(() => {
      isDone = true;
    });
    for (let step = 0; this.#miss === null; step++) {
      await nextTurn();
      if (isDone && !call.bodyOpen) break;
      if (this.#miss === null && (step > MAX_STEPS || !this.#step())) this.#missed('an end', 'nothing that was recorded ends it', '');
    }
    if (this.#fault !== null) this.#missed('a fault of ours', this.#fault.stack ?? this.#fault.message, '');
    const soFar = decisionOf(call, false);
    return { decision: this.#miss === null ? soFar : null, miss: this.#miss, soFar, moved: this.#moved };
  }

  /** What was wrong with the payload then; where another version is asked, what is wrong with it if it is all there. */
  fits(version: Version, real: Validator): readonly string[] | null {
    const known = this.#record.fits[`${version.capability.name}@${version.text}`];
    if (known === null) return null;
    if (known !== undefined) return known.args[0] as readonly string[];
    if (this.#record.body.whole) return real.validate(this.#call.json);
    this.#missed(
      'whether the payload fits',
      `${version.capability.name}@${version.text}`,
      'the payload was not kept whole, and this version was not asked',
    );
    return null;
  }

  // ---- what happens next

  #step(): boolean {
    const { clock } = this;
    const call = this.#call;
    if (call.bodyOpen && this.#stream !== null && !this.#stream.isPiped) {
      this.#stream.open(call.reply?.stream ?? null);
      return true;
    }
    const { left } = this.#record;
    if (left !== null && !call.cancelled && clock.unread === left.at) return this.#leave(left.cut_by);
    const next = clock.next;
    if (next !== null) {
      if (this.#follows(next.after, next.n)) return true;
      clock.leave();
    } else clock.leave();
    return this.#aside();
  }

  #leave(cutBy: string | null): boolean {
    if (cutBy === null) this.#call.cancel();
    else this.#call.cut(cutBy);
    return true;
  }

  /** As it was recorded; false = it goes another way from here. */
  #follows(after: string, n: number): boolean {
    const { clock } = this;
    switch (after) {
      case 'answer': {
        const pending = this.#pending;
        if (pending === null || pending.n !== n || pending.send === null || this.#isCutShort(pending)) return false;
        clock.enter();
        this.#answer(pending, pending.send);
        return true;
      }
      case 'timer': {
        const timer = clock.earliest();
        if (timer === null || timer.delayMs !== n) return false;
        clock.enter();
        clock.fire(timer);
        return true;
      }
      case 'claim':
        return this.#come(this.#claim, () => (this.#claim = null));
      case 'arrived':
        return this.#come(this.#arrival, () => (this.#arrival = null));
      case 'chunk':
        if (this.#stream === null || !this.#stream.isPiped) return false;
        clock.enter();
        this.#stream.begin();
        return true;
      case 'end':
        if (this.#stream === null) return false;
        clock.enter();
        this.#stream.finish();
        return true;
      default:
        return false;
    }
  }

  #come(go: (() => void) | null, forget: () => void): boolean {
    if (go === null) return false;
    this.clock.enter();
    forget();
    go();
    return true;
  }

  /** Its time is another one than then, and is over before the answer came. */
  #isCutShort({ n, exchange, startedAt, attempt }: Pending): boolean {
    if (this.#record.sends[n]?.timer_ms === exchange.timeoutMs) return false;
    const timer = this.clock.earliest();
    return timer !== null && timer.dueAt < startedAt + attempt.elapsed_ms;
  }

  /** Nobody has gone this way: time passes as it was recorded of the parts, and nothing else. */
  #aside(): boolean {
    const { clock } = this;
    if (this.#claim !== null) return this.#come(this.#claim, () => (this.#claim = null));
    if (this.#arrival !== null) return this.#come(this.#arrival, () => (this.#arrival = null));
    const pending = this.#pending;
    const timer = clock.earliest();
    const { left } = this.#record;
    const answerAt =
      pending === null ? Number.POSITIVE_INFINITY : pending.isAborted ? clock.last : pending.startedAt + pending.attempt.elapsed_ms;
    const leavesAt = left !== null && !this.#call.cancelled ? Math.max(left.at, clock.last) : Number.POSITIVE_INFINITY;
    const dueAt = timer?.dueAt ?? Number.POSITIVE_INFINITY;
    if (leavesAt < answerAt && leavesAt < dueAt && (pending !== null || timer !== null)) {
      clock.moveTo(leavesAt);
      return this.#leave(left?.cut_by ?? null);
    }
    if (pending !== null && answerAt < dueAt) {
      clock.moveTo(answerAt);
      return this.#answerAside(pending);
    }
    if (this.#stream !== null && !this.#stream.isOver) {
      this.#stream.finish();
      return true;
    }
    if (timer === null) return false;
    clock.moveTo(timer.dueAt);
    clock.fire(timer);
    return true;
  }

  #answerAside(pending: Pending): boolean {
    const { send, attempt, isAborted } = pending;
    if (isAborted) this.#answer(pending, null);
    else if (send === null || gaveUp(attempt, send)) {
      const waited = Math.round(attempt.elapsed_ms);
      this.#missed(
        'the answer',
        `${attempt.provider}, for ${Math.round(pending.exchange.timeoutMs)} ms`,
        `it had not answered when it was given up after ${waited} ms; what would have come later is not known`,
      );
    } else this.#answer(pending, send);
    return true;
  }

  /** @param send null = it was stopped */
  #answer(pending: Pending, send: SendRecord | null): void {
    this.#pending = null;
    pending.exchange.abort = null;
    pending.settle(send === null ? failed(Code.cancelled, 'started', 'stopped while waiting for an answer') : this.#replyOf(pending, send));
  }

  /** One that is judged as the recorded one was. */
  #replyOf({ attempt }: Pending, send: SendRecord): Reply {
    const { code, started, status, detail, reused, retry_after_ms: retryAfterMs, own } = send;
    if (code !== 0) return new Reply(code as Code, started, status, own, NO_BODY, null, detail, reused, retryAfterMs);
    if (send.stream !== null) {
      const stream = new RecordedStream(send.stream);
      if (attempt.code === 0 || send.stream.ended !== null) {
        this.#stream = stream;
        const reply = streaming(status, own, stream);
        return detail === '' ? reply : reply.withDetail(detail);
      }
    }
    const isJudged = attempt.code !== 0 && (status < 300 || status === 304) && !gaveUp(attempt, send);
    if (isJudged) return judgedReply(attempt, own, reused, retryAfterMs);
    const isDefinite = attempt.code === 0 && this.#record.definitely && this.#record.decision.provider === attempt.provider;
    const headers = isDefinite ? { ...own, [Header.definitelySuccess]: 'true' } : own;
    const reply = new Reply(0, started, status, headers, NO_BODY, null, detail, reused, retryAfterMs);
    reply.end = 'known';
    return reply;
  }

  // ---- what is asked

  readonly #transport: Transport = {
    invoke: (exchange) => this.#send(exchange),
    cast: (exchange) => this.#send(exchange),
    invokeStream: (exchange) => this.#send(exchange),
    close: () => Promise.resolve(),
  };

  #send(exchange: Exchange): Promise<Reply> {
    const n = this.#call.attempts.length - 1;
    const recorded = this.#recordedFor(n, exchange.candidate);
    return new Promise((settle) => {
      if (recorded === null) {
        this.clock.leave();
        const { provider, version } = exchange.candidate;
        this.#missed(
          'the answer',
          `${provider.agentId} for ${version.capability.name}@${version.text}, attempt ${n + 1}`,
          this.#record.decision.attempts.map((each) => `${each.provider} for ${each.capability}@${each.version}`).join(', ') ||
            'nobody was asked',
        );
        return;
      }
      const times = (this.#sent[recorded] = (this.#sent[recorded] ?? 0) + 1);
      const pending: Pending = {
        n,
        exchange,
        startedAt: this.clock.last,
        send: this.#record.sends[recorded]?.sends[times - 1] ?? null,
        attempt: this.#record.decision.attempts[recorded] as AttemptRecord,
        settle,
        isAborted: false,
      };
      this.#pending = pending;
      exchange.abort = () => {
        pending.isAborted = true;
      };
    });
  }

  /** Of which recorded attempt the answer is; null = there is none. */
  #recordedFor(n: number, { provider, version }: Candidate): number | null {
    const { attempts } = this.#record.decision;
    const isThere = (at: number): boolean => {
      const one = attempts[at];
      return (
        one !== undefined &&
        (this.#record.sends[at]?.sends.length ?? 0) > 0 &&
        one.provider === provider.agentId &&
        one.version === version.text &&
        one.capability === version.capability.name
      );
    };
    if (isThere(n)) {
      this.#used.add(n);
      return n;
    }
    for (let at = 0; at < attempts.length; at++) {
      if (this.#used.has(at) || !isThere(at)) continue;
      this.#used.add(at);
      this.#moved++;
      this.clock.leave();
      return at;
    }
    return null;
  }

  #look(): Snapshot {
    const { overrides, parts, own, pin_known: isPinKnown } = this.#record;
    let id = overrides[0]?.[1] ?? 0;
    for (const [look, of] of overrides) if (look <= this.#looks) id = of;
    this.#looks++;
    const table = this.#tables.table(parts, id);
    const pin = own[Header.pin];
    if (!isPinKnown || pin === undefined || table.providers.has(pin)) return table;
    return withProvider(table, stranger(pin, []));
  }

  #choose(call: Call, now: number): Verdict {
    const { choices, parts } = this.#record;
    const choice = choices[this.#choices++] ?? choices[choices.length - 1] ?? null;
    if (choice !== null) this.#rev = choice.rev;
    this.#tables.restore(parts, call.lines, this.#rev, now);
    for (const version of call.lines) {
      const line = choice?.lines.find((each) => each.version === version.text && each.capability === version.capability.name);
      const state = this.#real.stateOf(call, version);
      if (line === undefined) continue;
      state.repeatableAt = line.repeatable_at ?? Number.NEGATIVE_INFINITY;
      state.turns.restore(line.turns);
    }
    const key = keyOf(call, call.lines[call.lineIndex] as Version);
    if (key !== null && choice !== null && choice.bound !== null) this.#real.assume(key, this.#bound(call, choice.bound));
    return this.#real.choose(call, now);
  }

  #bound(call: Call, bound: readonly (readonly [string, boolean, boolean])[]): Provider[] {
    return bound.map(([agentId, isSame, offersIt]) => {
      const there = call.table?.providers.get(agentId);
      if (isSame && there !== undefined) return there;
      const offers = offersIt ? [{ name: call.capability?.name ?? '', version: '0.0.0' }] : [];
      return stranger(agentId, offers);
    });
  }

  #restore(call: Call, rev: number): void {
    this.#rev = rev;
    this.#tables.restore(this.#record.parts, call.lines, rev, this.clock.last);
  }

  #restoreHosted({ version }: { readonly version: string }): void {
    const [choice] = this.#record.choices;
    if (choice === undefined) return;
    for (const { versions } of this.#tables.world(this.#record.parts).snapshot.capabilities.values())
      for (const line of versions)
        if (line.text === version) this.#tables.restore(this.#record.parts, [line], choice.rev, this.#record.started_at);
  }

  #claimed(): Promise<Verdict> {
    const claim = this.#record.claims[this.#claims++];
    return new Promise((settle) => {
      if (claim === undefined) {
        this.#missed('the ledger', 'whether the key is free', 'it was not asked then');
        return;
      }
      this.#claim = () => {
        const call = this.#call;
        call.claim = claim.claim as Call['claim'];
        if (claim.retry_after_ms > 0) call.retryAfterMs = claim.retry_after_ms;
        if (claim.answer !== null) {
          const { status, provider, version } = claim.answer;
          call.reply = answered(status, {}, NO_BODY);
          call.status = status;
          call.code = Code.ok;
          call.refusal = null;
          call.replay = { provider, version };
          // The first answer may have been that of a fallback.
          if (this.#record.decision.degraded) call.degraded = true;
        }
        this.#restore(call, claim.rev);
        settle(verdictOf(claim.verdict));
      };
    });
  }

  #budget({ ratio, minPerSec }: { readonly ratio: number; readonly minPerSec: number }): Decider['retryBudget'] {
    const budget = new RetryBudget(ratio, minPerSec);
    const { takes, budget: before } = this.#record;
    return {
      noteCall: (now) => budget.assume(before[0], before[1], now),
      take: (now) => {
        const then = takes[this.#takes++];
        if (then !== undefined) budget.assume(then[0], then[1], now);
        return budget.take(now);
      },
      recent: () => budget.recent(),
    };
  }

  #quotas(): Decider['quotas'] {
    const { quotas } = this.#record;
    const found = (what: string) => {
      const list = quotas ?? [];
      for (let i = this.#quotasAsked; i < list.length; i++) {
        if (list[i]?.[0] !== what) continue;
        this.#quotasAsked = i + 1;
        return list[i] ?? null;
      }
      const known = list.find(([name]) => name === what) ?? null;
      if (known === null) this.#missed('a quota', what, 'it was not asked then');
      return known;
    };
    const verdict = (what: string, call: Call): Verdict | null => {
      const noted = found(what);
      if (noted === null || noted[1] === null) return null;
      if (!noted[1].passes) call.retryAfterMs = noted[2];
      return verdictOf(noted[1]);
    };
    return {
      isOn: quotas !== null,
      agent: (call) => verdict('agent', call),
      capability: (call) => verdict(`capability ${call.capability?.name ?? ''}`, call),
      provider: (_call, { provider }) => {
        const noted = found(`provider ${provider.agentId}`);
        return noted === null || noted[3] === null ? null : { words: noted[3], retryAfterMs: noted[2] };
      },
    };
  }

  /** Who calls was found out then; nothing of a credential is known here. */
  #identities(): Identities {
    const { identify, caller, stretches } = this.#record;
    const words = (at: number): string => String(identify?.args[at] ?? '');
    const isKnown = caller !== null;
    const isArriving = stretches.some(({ after }) => after === 'arrived');
    return {
      caller: () => (isKnown ? new Principal(caller.agent, caller.via) : null),
      callerProblem: () => words(0),
      peer: () => (identify?.reason === 'unknown_peer' ? null : words(1)),
      vouched: () => (isKnown ? new Principal(caller.agent, caller.via) : words(2)),
      stamped: () => (identify?.reason === 'stamped' ? null : identify?.reason === 'no_keys' ? 'later' : { why: words(2) }),
      arriving: isArriving
        ? new Map([
            [
              caller?.agent ?? '',
              new Promise<void>((done) => {
                this.#arrival = done;
              }),
            ],
          ])
        : null,
    };
  }

  #callOf(record: CallRecord): Call {
    const { way, asked, own, body, stream, http, caller, identify, conversations } = record;
    const headers: Record<string, string | string[]> = { ...own };
    if (record.has_key) headers[Header.powerId] = 'recorded';
    if (record.end === 'inbound' && identify?.reason !== 'no_caller') headers[Header.caller] = caller?.agent ?? words(identify, 0);
    if (identify?.reason === 'unknown_credential') headers['authorization'] = words(identify, 0) === 'it was sent twice' ? [] : 'Bearer';
    // Its reading of the clock when it came is not one of those that are told again.
    const call = new Call(way as WayIn, asked, headers, bytesOf(record), body.type, stream, { ...STILL, now: () => record.started_at });
    call.clock = this.clock;
    call.traceId = record.trace_id;
    call.attemptMs = record.attempt_ms;
    call.totalMs = record.total_ms;
    call.lateMs = record.late_ms;
    // The key itself is not here: what it comes to depends on the capability, which may be another one after a fallback.
    const drawn = (): Call['keyDraws'] => (call.capability === null ? null : (conversations[call.capability.name] ?? null));
    Object.defineProperty(call, 'keyDraws', { get: drawn });
    Object.defineProperty(headers, Header.affinity, {
      enumerable: true,
      get: () => {
        const draws = drawn();
        return draws === null ? undefined : `recorded-${draws.owner.toString(36)}`;
      },
    });
    if (http !== null) call.http = new HttpAsk(http.method, http.target);
    if (identify?.reason === 'known' || way === 'message')
      call.principal = caller === null ? null : new Principal(caller.agent, caller.via);
    if (body.whole && body.json !== undefined) call.json = body.json;
    else if (body.base64 === undefined && body.bytes > 0 && !Object.values(record.fits).some((fit) => fit?.reason === 'not_json'))
      call.json = {};
    return call;
  }

  #missed(what: string, asked: string, recorded: string): void {
    this.#miss ??= { what, asked, recorded };
  }
}

const STILL = { wallMs: (): number => 0, after: () => ({ cancel: () => undefined }) };

function words(verdict: VerdictRecord | null, at: number): string {
  return String(verdict?.args[at] ?? '');
}

/** It was stopped before it answered. */
function gaveUp(attempt: AttemptRecord, send: SendRecord): boolean {
  return send.code === Code.cancelled && STOPPED.has(attempt.code);
}

const STOPPED: ReadonlySet<number> = new Set([Code.response_timeout, Code.deadline_exceeded, Code.cancelled, Code.blocked_by_operator]);

function verdictOf({ stage, reason, words: text, passes, code, args }: VerdictRecord): Verdict {
  const [a = null, b = null, c = null] = args;
  return new Verdict({ stage: stage as Stage, name: reason, words: text, passes, code: code as Code }, a, b, c);
}

/** As many bytes as there were; what stood in them only where it was kept. */
function bytesOf({ body }: CallRecord): Buffer {
  if (body.base64 !== undefined) return Buffer.from(body.base64, 'base64');
  if (body.bytes === 0) return NO_SECRET;
  if (zeros.length < body.bytes) zeros = Buffer.alloc(body.bytes);
  return zeros.subarray(0, body.bytes);
}
