/**
 * One attempt: take the permit and the slot, send, wait no longer than allowed, judge, and give everything back when the
 * *body* has ended, however it ends. The breaker's permit is taken last, after every other gate, so that no later refusal
 * can lose it. Which provider, and whether there is another attempt, is decided elsewhere.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { newSpanId } from '../../proto/wire/trace-context.ts';
import { bodyKind, jsonProblem } from '../call/answer-body.ts';
import { Attempt } from '../call/attempt-record.ts';
import { type Call, note } from '../call/call.ts';
import { elsewhere } from '../call/elsewhere.ts';
import { LateAnswer } from '../call/late-answer.ts';
import { failed, type Reply } from '../call/reply.ts';
import { giveUp, type Underway } from '../call/underway.ts';
import { passing, type Reason, refusing, Verdict } from '../call/verdict.ts';
import { type Candidate, offlineWords, type Table } from '../table/snapshot.ts';
import type { Exchange } from '../transports/transport.ts';
import type { Transports } from '../transports/index.ts';
import { blockSince } from './block-since.ts';
import { MeteredBody } from './body.ts';
import { markerFor, missingIn } from './end-marker.ts';
import { exchangeFor } from './exchange-for.ts';
import { Judgement, type Outcome, judgeAnswer, judgeFailure, retryAfterMsOf } from './judge.ts';
import { extender, leaver, Run, type Stopped } from './run.ts';

/** What the stage needs of the engine. */
export interface AttemptTools {
  readonly clock: Clock;
  readonly random: Random;
  readonly transports: Pick<Transports, 'for'>;
  readonly observer: { attemptEnded(call: Call, attempt: Attempt): void };
  readonly underway: Pick<Underway, 'add' | 'remove'>;
  /** The newest: a call keeps the one that it began with. */
  readonly table: Table;
  /** Of providers that this sidecar reaches itself. */
  readonly quotas: {
    readonly isOn: boolean;
    provider(call: Call, candidate: Candidate): { readonly words: string; readonly retryAfterMs: number } | null;
  };
  readonly config: { readonly claims: { readonly lateMs: number } };
}

const served = passing('attempt', 'served', '{a} answered {b} in {c} ms');
const streams = passing('attempt', 'streaming', '{a} answered {b} and streams, head after {c} ms');
const repeats = passing(
  'attempt',
  'fresh_connection',
  'the connection to {a} had been closed under us; the call is idempotent and nobody else may take it: once more on a fresh one',
);
const failures = new Map<number, Reason>();

/** A caller that leaves when this share of its time is over has in truth timed out: the provider was slow. */
const AS_GOOD_AS_TIMED_OUT = 0.95;

/** How much later than the hosting sidecar the caller's one loses patience with a silent stream. */
const HOST_SPEAKS_FIRST_MS = 1_000;

/** Our own fault: no word about the provider. */
const BROKEN = new Judgement(Code.internal, 'ignored', false, 'a fault in Agent-Reach');

export async function attempt(tools: AttemptTools, call: Call, pathHeader: string): Promise<Verdict> {
  const candidate = call.chosen as Candidate;
  const { clock } = tools;
  const now = clock.now();
  const made = new Attempt(candidate, now - call.startedAt, call.execution);
  call.attempts.push(made);
  if (call.cancelled)
    return call.cutBy === null
      ? notSent(tools, call, made, Code.cancelled, 'the caller went away before the provider was contacted')
      : notSent(tools, call, made, Code.blocked_by_operator, call.cutBy);
  const blocked = blockSince(tools.table, call, candidate);
  if (blocked !== null) return notSent(tools, call, made, Code.blocked_by_operator, blocked);
  const left = call.stepEndsAt - now;
  if (left <= 0) return notSent(tools, call, made, Code.deadline_exceeded, 'the time was over before the provider was contacted');
  if (tools.quotas.isOn && candidate.provider.reach !== 'mesh') {
    const short = tools.quotas.provider(call, candidate);
    if (short !== null) return notSent(tools, call, made, Code.rate_limited, short.words, short.retryAfterMs);
  }
  const permit = call.panicked ? candidate.health.force(now) : candidate.health.admit(now);
  if (permit === 0) {
    const why = candidate.health.usable(now);
    // At the sidecar that hosts it: its agent is not dialled in, or not heard of any more.
    if (why === 'offline') return notSent(tools, call, made, Code.connect_timeout, `it is ${offlineWords(candidate.provider)} at present`);
    return notSent(tools, call, made, Code.breaker_open, `its breaker lets no call through (${why})`);
  }
  candidate.provider.health.begin(now);

  const timeoutMs = call.attemptMs > 0 ? call.attemptMs : candidate.settings.timeoutMs;
  const taskBound = left <= timeoutMs;
  const allowedMs = taskBound ? left : timeoutMs;
  made.spanId = newSpanId(tools.random);
  const lateMs = lateMsOf(tools, call, taskBound);
  const exchange = exchangeFor(call, candidate, made, allowedMs, lateMs, now, pathHeader);
  const run = new Run(exchange, call, made.spanId, call.stream ? call.deadlineAt : now + allowedMs);
  tools.underway.add(run);
  run.timer = clock.after(allowedMs, () => run.stop(taskBound ? 'task_time' : 'attempt_time'));
  call.onCancel = leaver(run);
  if (call.way === 'message') call.onExtend = extender(run, clock);

  let reply: Reply;
  let judgement: Judgement;
  try {
    reply = await (lateMs > 0 ? sendPatiently(tools, call, run, lateMs) : send(tools.transports, call, exchange));
    if (isCutByReuse(call, reply, run) && !mayGoElsewhere(call, clock.now())) {
      note(call, new Verdict(repeats, candidate.provider.agentId));
      run.exchange = exchangeFor(call, candidate, made, allowedMs - (clock.now() - now), lateMs, clock.now(), pathHeader);
      run.exchange.fresh = true;
      reply = await send(tools.transports, call, run.exchange);
    }
    reply = wholeOrCut(call, candidate, reply);
    made.started = reply.started;
    made.status = reply.status;
    call.reply = reply;
    call.status = reply.status;
    judgement = judge(call, candidate, reply, run.stopped, clock.now() - now, allowedMs, taskBound);
  } catch (fault) {
    // A bug of ours; how far the provider got is not known. Permit and slot are given back all the same.
    run.timer.cancel();
    call.onCancel = null;
    call.onExtend = null;
    if (made.started === 'not_started') made.started = 'started';
    else call.reply?.stream?.cancel(Code.internal, 'a fault in Agent-Reach');
    close(tools, call, run, made, permit, BROKEN, 0, clock.now() - now);
    throw fault;
  }
  call.onCancel = null;
  call.onExtend = null;
  if (reply.stream !== null) {
    if (judgement.code === Code.ok && call.stream) return follow(tools, call, run, made, permit, now, run.timer, judgement, reply);
    reply.stream.cancel(judgement.code, 'the body is not wanted');
  }
  run.timer.cancel();
  call.retryAfterMs = judgement.code === Code.ok ? 0 : retryAfterMsOf(reply, clock.wallMs());
  close(tools, call, run, made, permit, judgement, clock.now() - now, clock.now() - now);
  if (judgement.code === Code.ok) {
    call.code = Code.ok;
    call.refusal = null;
    call.definitelySuccess = judgement.definitely;
    return new Verdict(served, candidate.provider.agentId, reply.status, made.elapsedMs);
  }
  return failure(made);
}

function send(transports: Pick<Transports, 'for'>, call: Call, exchange: Exchange): Promise<Reply> {
  const transport = transports.for(exchange.candidate);
  return call.stream ? transport.invokeStream(exchange) : transport.invoke(exchange);
}

/**
 * With a claimed key the answer is wanted also after the time is over: not by this caller, who is told at once, but by whoever repeats
 * the call. Where the work may be begun again, that holds for the last attempt only; and what stands in for an answer that is waited
 * for is not waited for itself. At the provider's end the caller's one says so.
 */
function lateMsOf({ config }: AttemptTools, call: Call, taskBound: boolean): number {
  if (call.stream || call.late !== null) return 0;
  if (call.lateMs > 0) return Math.min(call.lateMs, config.claims.lateMs);
  return call.claim === 'held' && (taskBound || call.execution === 'once') ? config.claims.lateMs : 0;
}

function sendPatiently(tools: AttemptTools, call: Call, run: Run, lateMs: number): Promise<Reply> {
  const candidate = call.chosen as Candidate;
  const sending = send(tools.transports, call, run.exchange);
  return new Promise((resolve, reject) => {
    run.patience = (why) => {
      if (why === 'caller_gone') return false;
      const timer = tools.clock.after(lateMs, () => run.abort());
      const late = new LateAnswer(candidate, call.degraded);
      late.reply = sending.then(
        (reply) => {
          timer.cancel();
          return judgeLate(call, late, reply);
        },
        () => {
          timer.cancel();
          return null;
        },
      );
      call.late = late;
      resolve(failed(Code.response_timeout, 'started', 'no answer in time; it is waited for, for whoever repeats the call with this key'));
      return true;
    };
    sending.then(
      (reply) => {
        run.patience = null;
        resolve(reply);
      },
      (error: unknown) => {
        run.patience = null;
        reject(error instanceof Error ? error : new Error(String(error)));
      },
    );
  });
}

/** The call itself has gone on, to its end or to its fallback: nothing of it may change now. */
function judgeLate(call: Call, late: LateAnswer, came: Reply): Reply | null {
  const reply = wholeOrCut(call, late.candidate, came);
  if (reply.code !== Code.ok) return null;
  const { noRetry, outputChecked } = call;
  const { code, definitely } = judge(call, late.candidate, reply, 'no', 0, 0, false);
  call.noRetry = noRetry;
  call.outputChecked = outputChecked;
  late.definitely = definitely;
  return code === Code.ok ? reply : null;
}

/** The provider may have closed an idle connection just as we used it; harmless to repeat for work that may run again. */
function isCutByReuse(call: Call, reply: Reply, run: Run): boolean {
  return (
    reply.code === Code.connection_lost &&
    reply.reusedConnection &&
    run.stopped === 'no' &&
    call.execution !== 'once' &&
    call.headers[Header.retry] !== 'none'
  );
}

/** `retry` would send it to another provider. At the provider's end there is none. */
function mayGoElsewhere(call: Call, now: number): boolean {
  if (call.isInbound || call.attempts.length - call.attemptsFrom > (call.chosen as Candidate).settings.retry.max) return false;
  return elsewhere(call, now) === 'free';
}

/**
 * An answer without its last word is a cut one, whichever way it was asked for: what `follow` sees of a stream is seen here of a body
 * that came whole. The hosting sidecar has looked already.
 */
function wholeOrCut(call: Call, candidate: Candidate, reply: Reply): Reply {
  const declared = candidate.version.contract.streaming?.done ?? null;
  if (declared === null && reply.end !== 'by_close') return reply;
  if (reply.code !== Code.ok || reply.stream !== null || reply.end === 'known' || candidate.provider.reach === 'mesh') return reply;
  if (reply.status >= 300 || reply.status === 204 || hasNoContent(call, reply)) return reply;
  const missing = missingIn(reply, declared);
  return missing === '' ? reply : failed(Code.bad_response, 'started', missing, reply.reusedConnection);
}

function judge(
  call: Call,
  candidate: Candidate,
  reply: Reply,
  stopped: Stopped,
  elapsedMs: number,
  allowedMs: number,
  taskBound: boolean,
): Judgement {
  if (stopped === 'task_time')
    return new Judgement(Code.deadline_exceeded, 'failure', false, `no answer within the ${Math.round(allowedMs)} ms that were left`);
  if (stopped === 'attempt_time')
    return new Judgement(Code.response_timeout, 'failure', false, `no answer within ${Math.round(allowedMs)} ms`);
  if (stopped === 'caller_gone' && call.cutBy !== null) return new Judgement(Code.blocked_by_operator, 'ignored', false, call.cutBy);
  if (stopped === 'caller_gone')
    return new Judgement(
      Code.cancelled,
      elapsedMs >= AS_GOOD_AS_TIMED_OUT * allowedMs ? 'failure' : 'ignored',
      false,
      call.work === null ? 'the caller went away' : 'the caller went away, or the work that this is part of was given up',
    );
  // The hosting sidecar knows only the time of this attempt, and what was over for it is not over for the task.
  if (reply.code === Code.deadline_exceeded && !taskBound) return new Judgement(Code.response_timeout, 'failure', false, reply.detail);
  if (reply.code !== Code.ok) return judgeFailure(reply);
  call.noRetry = reply.headers[Header.retry] === 'none';
  let parsed: unknown;
  let isParsed = false;
  const json = (): unknown => {
    if (!isParsed) {
      isParsed = true;
      parsed = reply.body.length === 0 ? null : tryJson(reply.body);
    }
    return parsed;
  };
  const { version } = candidate;
  const first = judgeAnswer(reply, version.contract.success, json, call.http !== null);
  if (first.code !== Code.ok || reply.stream !== null || hasNoContent(call, reply)) return first;
  if (first.definitely || version.output === null) return checkForm(call, candidate, reply, first);
  if (json() === undefined)
    return new Judgement(Code.invalid_response, 'failure', false, 'the answer is not JSON, and the contract has an output schema');
  const problems = version.output.validate(parsed);
  if (problems !== null)
    return new Judgement(Code.invalid_response, 'failure', false, `the answer breaks the output schema: ${problems.join('; ')}`);
  call.outputChecked = true;
  return first;
}

/** The answer to a HEAD has no body, and that of a redirect is not what the contract speaks of. */
function hasNoContent(call: Call, reply: Reply): boolean {
  if (reply.status === 304) return true;
  return call.http !== null && (call.http.method === 'HEAD' || (reply.status >= 300 && reply.status < 400));
}

/** An answer that says it is JSON must be: said here once, so that breaker, metrics and Result agree. The hosting sidecar has looked already. */
function checkForm(call: Call, candidate: Candidate, reply: Reply, good: Judgement): Judgement {
  if (reply.body.length === 0 || bodyKind(reply.headers['content-type']) !== 'json') return good;
  if (candidate.provider.reach !== 'mesh' && !reply.isJson) {
    const problem = jsonProblem(reply.body);
    if (problem !== null) return new Judgement(Code.bad_response, 'failure', false, problem);
  }
  call.outputChecked = true;
  return good;
}

function tryJson(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
}

/** The head is good and the body is coming: everything stays taken until it has ended. */
function follow(
  tools: AttemptTools,
  call: Call,
  run: Run,
  made: Attempt,
  permit: number,
  since: number,
  headTimer: Timer,
  judgement: Judgement,
  reply: Reply,
): Verdict {
  const { clock } = tools;
  const headMs = clock.now() - since;
  headTimer.cancel();
  const { candidate } = made;
  const source = reply.stream as NonNullable<Reply['stream']>;
  const isMesh = candidate.provider.reach === 'mesh';
  // The hosting sidecar keeps the same clocks, knows more, and is to speak first; it looks for the marker as well.
  const slackMs = isMesh ? HOST_SPEAKS_FIRST_MS : 0;
  const { firstChunkMs, idleMs } = candidate.settings.streaming;
  const times = { startedAt: since, firstChunkMs: firstChunkMs + slackMs, idleMs: idleMs + slackMs, totalAt: call.deadlineAt };
  const declared = candidate.version.contract.streaming?.done ?? null;
  const marker = isMesh ? null : markerFor(reply.headers, declared, source.endsByClose === true);
  const body = new MeteredBody(source, clock, times, marker, {
    came: (now) => candidate.health.progress(permit, now),
    ended: (code, detail, firstMs) => {
      call.onCancel = null;
      call.bodyOpen = false;
      const elapsedMs = clock.now() - since;
      const ended = code === Code.ok ? judgement : new Judgement(code, outcomeOf(code, elapsedMs, call.deadlineAt - since), false, detail);
      if (code === Code.ok) made.started = 'done';
      if (code !== Code.ok) giveUp(run);
      close(tools, call, run, made, permit, ended, firstMs ?? elapsedMs, elapsedMs);
      call.code = code;
      if (code !== Code.ok) {
        call.refusal = failure(made);
        note(call, call.refusal);
      }
      const done = call.onBodyEnd;
      call.onBodyEnd = null;
      done?.();
    },
  });
  call.bodyOpen = true;
  call.onCancel = () =>
    call.cutBy === null ? body.cancel(Code.cancelled, 'the caller went away') : body.cancel(Code.blocked_by_operator, call.cutBy);
  call.reply = reply.withStream(body);
  call.code = Code.ok;
  call.refusal = null;
  call.definitelySuccess = judgement.definitely;
  return new Verdict(streams, candidate.provider.agentId, reply.status, headMs);
}

/** A cut counts against the provider, unless an operator made it or the caller left; one that left when its time was as good as over waited for nothing. */
function outcomeOf(code: Code, elapsedMs: number, totalMs: number): Outcome {
  if (code === Code.blocked_by_operator) return 'ignored';
  return code === Code.cancelled && elapsedMs < AS_GOOD_AS_TIMED_OUT * totalMs ? 'ignored' : 'failure';
}

/** Gives back permit and slot, and tells health what was seen. `judgedMs` is the time that counts as slow or not. */
function close(
  tools: AttemptTools,
  call: Call,
  run: Run,
  made: Attempt,
  permit: number,
  judgement: Judgement,
  judgedMs: number,
  elapsedMs: number,
): void {
  const { candidate } = made;
  const now = tools.clock.now();
  made.elapsedMs = elapsedMs;
  made.code = judgement.code;
  made.detail = judgement.detail;
  made.isTelling = judgement.outcome !== 'ignored';
  made.isFault = judgement.outcome === 'failure';
  tools.underway.remove(run);
  candidate.provider.health.inFlight--;
  candidate.health.end(permit, judgement.outcome, judgedMs, now);
  if (judgement.code === Code.connect_timeout || judgement.code === Code.tls_failed) candidate.health.connectFailed(now);
  else if (isTimeout(judgement, candidate)) candidate.health.timedOut(now);
  else if (made.started === 'done') candidate.health.connected(now);
  if (judgement.code === Code.breaker_open && call.retryAfterMs > 0) candidate.health.ejectUntil(now + call.retryAfterMs);
  // Marked "do not repeat", it is a limit further on that speaks, not this provider's. Not begun: its quota, which has room for other callers.
  if (judgement.code === Code.rate_limited && !call.noRetry && made.started !== 'not_started')
    candidate.health.pause(call.retryAfterMs, now);
  tools.observer.attemptEnded(call, made);
}

/** A caller that left when its time was as good as over counts where no breaker listens: at callers of a hosted provider. */
function isTimeout(judgement: Judgement, candidate: Candidate): boolean {
  if (judgement.code === Code.response_timeout) return true;
  if (judgement.outcome !== 'failure') return false;
  return judgement.code === Code.deadline_exceeded || (judgement.code === Code.cancelled && !candidate.settings.breaker.enabled);
}

function notSent(tools: AttemptTools, call: Call, made: Attempt, code: Code, detail: string, retryAfterMs = 0): Verdict {
  made.code = code;
  made.detail = detail;
  call.reply = failed(code, 'not_started', detail);
  // The way back tells the callers how long to leave the provider alone.
  call.retryAfterMs = code === Code.breaker_open ? made.candidate.health.retryAfterMs(tools.clock.now()) : retryAfterMs;
  call.status = 0;
  tools.observer.attemptEnded(call, made);
  return failure(made);
}

function failure(made: Attempt): Verdict {
  let reason = failures.get(made.code);
  if (reason === undefined) {
    reason = refusing('attempt', codeEntry(made.code).name, made.code, '{a}: {b} (after {c} ms)');
    failures.set(made.code, reason);
  }
  return new Verdict(reason, made.candidate.provider.agentId, made.detail, Math.round(made.elapsedMs));
}
