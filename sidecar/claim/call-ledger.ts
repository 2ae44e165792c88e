/** The claim stage at work: from a call to a claim in the ledger and back. What it decides is said in `claim.ts`. */
import { hash } from 'node:crypto';
import type { Clock, Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { keyOwner, ledgerKey } from '../../proto/wire/ledger-key.ts';
import type { Call, HttpAsk } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { answered } from '../call/reply.ts';
import { ending, passing, refusing, Verdict } from '../call/verdict.ts';
import type { Claim, ClaimAsk, Claimed, KeptResult, TaskLedger } from '../ledger/ledger.ts';
import { hashWith, otherThan } from '../ledger/record.ts';
import type { Candidate, Capability } from '../table/snapshot.ts';
import type { ClaimSettings } from '../claims-config.ts';
import type { Ledger } from './claim.ts';
import { type ClaimEnd, claimEndOf, isAnswered, keptLate, STREAMED } from './outcome.ts';

const claimed = passing('claim', 'claimed', 'the key is ours (hand-over {a})');
const kept = passing('claim', 'held', 'the key is ours since the first attempt');
const passed = passing(
  'claim',
  'unreachable',
  'the ledger cannot be reached ({a}); claims.when_unreachable is pass, so that repeats are not recognised',
);
const replayed = ending('claim', 'replayed', 'the key was used before: the first answer again, of {a}');
const notThere = refusing(
  'claim',
  'unreachable',
  Code.delivery_unavailable,
  'the ledger cannot be reached, so that a repeat would not be recognised: {a}',
);
const noAnswer = refusing(
  'claim',
  'no_answer',
  Code.delivery_unavailable,
  'the ledger gave no answer within the time of the call ({a} ms); nothing was started',
);
const full = refusing('claim', 'full', Code.delivery_unavailable, '{a}');
const otherUse = refusing('claim', 'other_use', Code.key_reused, '{a}');
const notYours = refusing(
  'claim',
  'other_agent',
  Code.key_reused,
  'the key begins with the name of {a}; only that agent may use it, not {b}',
);
const streamed = refusing(
  'claim',
  'streamed',
  Code.key_reused,
  'the work of this key is done; its answer was {a}, which is not kept to be given as {b}: look at what it did, or take a new key',
);
const leftOut = refusing(
  'claim',
  'left_out',
  Code.response_too_large,
  'the work of this key is done; its answer of {a} bytes was too large to be kept',
);
const twin = refusing('claim', 'in_flight', Code.in_flight, 'a call with the same key was still being worked on after {a} ms');
const doubt = refusing(
  'claim',
  'in_doubt',
  Code.in_doubt,
  'an earlier call with this key may have been carried out ({a}), and the work must not be started twice: look at what it did, then take a new key',
);
const gone = refusing('claim', 'cancelled', Code.cancelled, 'the caller went away');

const FIRST_PAUSE_MS = 20;
/** A twin answers this much before its time is over. */
const MARGIN_MS = 5;
/** The answer is not kept back for longer when the record takes its time. */
const WAIT_FOR_RECORD_MS = 1_000;
const RECORD_AGAIN_MS = 500;
const MAX_RECORD_TRIES = 60;

/** A key in use by a call of this sidecar. */
class Hold {
  readonly id: string;
  readonly payloadHash: string;
  claim: Claim | null = null;
  isEnding = false;
  /** What twins get without asking; null = they have to ask. */
  result: KeptResult | null = null;
  readonly waiting = new Set<() => void>();
  constructor(id: string, payloadHash: string) {
    this.id = id;
    this.payloadHash = payloadHash;
  }
}

export class CallLedger implements Ledger {
  readonly #tasks: TaskLedger;
  readonly #clock: Clock;
  readonly #settings: ClaimSettings;
  readonly #holds = new Map<string, Hold>();
  readonly #byCall = new WeakMap<Call, Hold>();

  constructor(tasks: TaskLedger, clock: Clock, settings: ClaimSettings) {
    this.#tasks = tasks;
    this.#clock = clock;
    this.#settings = settings;
  }

  /** Keys in use here now. */
  get size(): number {
    return this.#holds.size;
  }

  async claim(call: Call): Promise<Verdict> {
    if (call.claim === 'held') return new Verdict(kept);
    if (call.claim === 'passed') return new Verdict(passed, 'as before');
    const key = call.powerId as string;
    const caller = (call.principal as Principal).agent;
    const owner = keyOwner(key);
    if (owner !== null && owner !== caller) return new Verdict(notYours, owner, caller);
    const ask = askOf(call, key, caller);
    const startedAt = this.#clock.now();
    const endsAt = Math.min(call.deadlineAt, call.stepEndsAt) - MARGIN_MS;
    let pauseMs = FIRST_PAUSE_MS;
    /** What the ledger said last: at work elsewhere, to be looked at after so long; 0 = nothing yet. */
    let againInMs = 0;
    for (;;) {
      if (call.cancelled) return new Verdict(gone);
      const local = this.#holds.get(ask.id);
      if (local !== undefined) {
        if (local.payloadHash !== ask.payloadHash)
          return new Verdict(otherUse, `the key is being used ${otherThan(local.payloadHash, ask.payloadHash)}`);
        const left = endsAt - this.#clock.now();
        if (left <= 0 || !(await this.#wait(call, left, local))) return this.#stillThere(call, startedAt, FIRST_PAUSE_MS);
        if (local.result !== null) return this.#answer(call, local.result);
        continue;
      }
      // In the map before anything is asked: the next twin finds it.
      const hold = new Hold(ask.id, ask.payloadHash);
      this.#holds.set(ask.id, hold);
      const got = await this.#inTime(call, ask, hold, endsAt);
      if (got === null && againInMs > 0) return this.#stillThere(call, startedAt, againInMs);
      if (got === null) return call.cancelled ? new Verdict(gone) : new Verdict(noAnswer, Math.round(this.#clock.now() - startedAt));
      if (got.kind === 'claimed') {
        hold.claim = got.claim;
        call.claim = 'held';
        this.#byCall.set(call, hold);
        return new Verdict(claimed, got.claim.tries);
      }
      if (got.kind !== 'executing') {
        if (got.kind === 'done') hold.result = got.result;
        this.#free(hold);
        return this.#verdictOf(call, got);
      }
      // At work elsewhere. Our own twins wait for this one, which asks for all of them.
      againInMs = Math.max(1, got.againInMs);
      const left = endsAt - this.#clock.now();
      if (left > 0) await this.#wait(call, Math.min(left, pauseMs, againInMs), null);
      this.#free(hold);
      if (this.#clock.now() >= endsAt) return this.#stillThere(call, startedAt, againInMs);
      pauseMs *= 2;
    }
  }

  async record(call: Call): Promise<void> {
    const hold = this.#byCall.get(call);
    if (hold === undefined || hold.isEnding || call.bodyOpen) return;
    const recording = this.#end(call, hold);
    if (call.late !== null && !isAnswered(call)) return;
    await new Promise<void>((over) => {
      const timer = this.#clock.after(WAIT_FOR_RECORD_MS, over);
      void recording.then(() => {
        timer.cancel();
        over();
      });
    });
  }

  settle(call: Call): void {
    const hold = this.#byCall.get(call);
    if (hold !== undefined && !hold.isEnding) void this.#end(call, hold);
  }

  /**
   * The ledger's answer; null when the call's time was over first, or its caller left. The key stays in use here until the answer has come,
   * and is free again then: nothing was started.
   */
  async #inTime(call: Call, ask: ClaimAsk, hold: Hold, endsAt: number): Promise<Claimed | null> {
    const asking = this.#tasks.claim(ask);
    let timer: Timer | null = null;
    const over = new Promise<null>((done) => {
      timer = this.#clock.after(Math.max(0, endsAt - this.#clock.now()), () => done(null));
      call.onCancel = () => done(null);
    });
    let got: Claimed | null;
    try {
      got = await Promise.race([asking, over]);
    } catch (fault) {
      this.#free(hold);
      throw fault;
    } finally {
      (timer as Timer | null)?.cancel();
    }
    call.onCancel = null;
    if (got === null) void this.#tooLate(hold, asking);
    return got;
  }

  async #tooLate(hold: Hold, asking: Promise<Claimed>): Promise<void> {
    try {
      const late = await asking;
      if (late.kind === 'claimed') await late.claim.release(false);
      if (late.kind === 'done') hold.result = late.result;
    } catch {
      // A fault of the ledger: whoever asks next is told.
    } finally {
      this.#free(hold);
    }
  }

  // ---- the end of a claim

  async #end(call: Call, hold: Hold): Promise<void> {
    hold.isEnding = true;
    const claim = hold.claim as Claim;
    const end = await this.#endOf(call);
    if (end.kind === 'done') hold.result = end.result;
    for (let i = 0; i < MAX_RECORD_TRIES; i++) {
      if (await settled(claim, end)) break;
      if (!claim.held) {
        // Somebody else has the key by now, or it is not known: twins have to ask. What can still be written is, in the background.
        hold.result = null;
        break;
      }
      await new Promise<void>((done) => void this.#clock.after(RECORD_AGAIN_MS, done));
    }
    this.#free(hold);
  }

  /**
   * An answer that comes after its caller has been told that the time is over is the answer to the key all the same; unless another
   * provider stood in with one: the first answer stands.
   */
  async #endOf(call: Call): Promise<ClaimEnd> {
    const { late } = call;
    if (late === null || isAnswered(call)) return claimEndOf(call);
    const reply = await late.reply;
    return reply === null ? claimEndOf(call) : { kind: 'done', result: keptLate(reply, late) };
  }

  #free(hold: Hold): void {
    this.#holds.delete(hold.id);
    for (const go of hold.waiting) go();
    hold.waiting.clear();
  }

  // ---- twins

  /** True when the local twin has ended (or, without one, when the time has passed); false when the time was over first, or the caller left. */
  async #wait(call: Call, ms: number, local: Hold | null): Promise<boolean> {
    return await new Promise<boolean>((done) => {
      let timer: Timer | null = null;
      const over = (went: boolean): void => {
        timer?.cancel();
        local?.waiting.delete(go);
        call.onCancel = null;
        done(went);
      };
      const go = (): void => over(true);
      timer = this.#clock.after(ms, () => over(local === null));
      local?.waiting.add(go);
      call.onCancel = () => over(false);
    });
  }

  #stillThere(call: Call, startedAt: number, againInMs: number): Verdict {
    if (call.cancelled) return new Verdict(gone);
    call.retryAfterMs = Math.max(1, Math.ceil(againInMs));
    return new Verdict(twin, Math.round(this.#clock.now() - startedAt));
  }

  // ---- answers

  #verdictOf(call: Call, got: Exclude<Claimed, { kind: 'claimed' } | { kind: 'executing' }>): Verdict {
    switch (got.kind) {
      case 'done':
        return this.#answer(call, got.result);
      case 'in_doubt':
        return new Verdict(doubt, got.worker === '' ? 'its worker is not known' : `by ${got.worker}`);
      case 'ended':
        return new Verdict(otherUse, 'the task of this key has ended');
      case 'reused':
        return new Verdict(otherUse, got.why);
      case 'full':
        return new Verdict(full, got.why);
      case 'unreachable':
        if (this.#settings.whenUnreachable === 'refuse') return new Verdict(notThere, got.why);
        call.claim = 'passed';
        return new Verdict(passed, got.why);
    }
  }

  #answer(call: Call, result: KeptResult): Verdict {
    if (result.detail === STREAMED) return new Verdict(streamed, 'a stream', call.stream ? 'a stream' : 'a whole');
    if (call.stream) return new Verdict(streamed, 'a whole', 'a stream');
    if (result.leftOutBytes > 0) return new Verdict(leftOut, result.leftOutBytes);
    const { marks } = result;
    const type = result.contentType === '' ? null : { 'content-type': result.contentType };
    call.reply = answered(result.status, { ...type, ...marks?.headers }, result.body);
    if (marks?.degraded === true) call.degraded = true;
    call.definitelySuccess = marks?.definitely === true;
    call.status = result.status;
    call.code = Code.ok;
    call.refusal = null;
    call.replay = { provider: result.provider, version: result.version };
    return new Verdict(replayed, result.provider);
  }
}

async function settled(claim: Claim, end: ClaimEnd): Promise<boolean> {
  switch (end.kind) {
    case 'done': {
      const stored = await claim.done(end.result);
      return stored === 'stored' || stored === 'too_large';
    }
    case 'released':
      return await claim.release(end.counts);
    case 'unknown':
      return await claim.unknown(end.detail);
  }
}

function askOf(call: Call, key: string, caller: string): ClaimAsk {
  const capability = (call.capability as Capability).name;
  const candidate = call.chosen as Candidate;
  return {
    id: ledgerKey(caller, capability, key),
    caller,
    capability,
    version: candidate.version.text,
    payloadHash: payloadHashOf(call),
    execution: call.execution,
    key,
    taskId: call.traceId,
    worker: candidate.provider.agentId,
  };
}

/** The bytes as they came: the same JSON with its members in another order is another payload. */
function payloadHashOf(call: Call): string {
  const { http } = call;
  if (http === null) return hash('sha256', call.body, 'base64url');
  const head = Buffer.from(`${http.method}\0${http.target}\0`, 'utf8');
  return hashWith(hash('sha256', Buffer.concat([head, call.body]), 'base64url'), credentialsHashOf(call, http));
}

/** Other headers by which clients of agents show who they are. */
const KEY_HEADERS: readonly string[] = ['x-api-key', 'api-key', 'x-auth-token', 'x-access-token'];

/**
 * An intercepted client may be one of many behind its agent, and a provider answers each with what is his. Another one is refused:
 * with a key of his own for each credential, one that was renewed would begin `once` work again. '' = it shows nothing.
 */
function credentialsHashOf(call: Call, http: HttpAsk): string {
  let shown = '';
  for (const text of http.credentials) shown += `${text}\0`;
  for (const name of KEY_HEADERS) if (call.headers[name] !== undefined) shown += `${name}\0${String(call.headers[name])}\0`;
  // Together with the key, so that records do not tell which of them are of the same client.
  return shown === '' ? '' : hash('sha256', `${call.powerId}\0${shown}`, 'base64url');
}
