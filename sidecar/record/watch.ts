/**
 * One call that is recorded, from its beginning to its last accounting: it stands between the pipeline and what the pipeline asks
 * (clock, chance, health, limits, quotas, ledger, transports), passes everything on as it is, and notes what came. The pipeline
 * and all other calls know nothing of it.
 */
import { scrubbed } from '../../base/redact.ts';
import { hash32 } from '../../base/rendezvous.ts';
import { SeededRandom } from '../../base/random.ts';
import { headerOf } from '../call/call.ts';
import type { Call } from '../call/call.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Reply } from '../call/reply.ts';
import { keyHash, keyOf } from '../choose/affinity.ts';
import type { Verdict } from '../call/verdict.ts';
import type { Decider, Engine, Observer } from '../engine.ts';
import type { Identities } from '../identify/identify.ts';
import { targetOf } from '../name/name.ts';
import { drawOf } from '../resolve/canary.ts';
import type { Candidate, Capability, Provider, Snapshot, Version } from '../table/snapshot.ts';
import type { Exchange, Transport } from '../transports/transport.ts';
import { CallClock } from './call-clock.ts';
import { decisionOf, verdictsOf } from './decision.ts';
import { askedName, keptBody, keptHeaders, keptTarget, keptVerdict, ownHeaders } from './kept.ts';
import type { Recorder } from './recorder.ts';
import type { CallRecord, ChoiceRecord, SendRecord, StreamRecord, VerdictRecord } from './shapes.ts';
import { type Heard, HeardStream } from './heard-stream.ts';

/** One request to a provider, as it is under way. */
class Send {
  reply: Reply | null = null;
  stream: Heard | null = null;
}

class SendsOf {
  timerMs = 0;
  readonly sends: Send[] = [];
}

export class Watch implements Decider {
  readonly clock: CallClock;
  readonly random: SeededRandom;
  readonly config: Engine['config'];
  readonly table: Decider['table'];
  readonly identities: Identities;
  readonly limits: Decider['limits'];
  readonly quotas: Decider['quotas'];
  readonly chooser: Decider['chooser'];
  readonly ledger: Decider['ledger'];
  readonly retryBudget: Decider['retryBudget'];
  readonly underway: Decider['underway'];
  readonly transports: Decider['transports'];
  readonly observer: Observer;
  readonly #recorder: Recorder;
  readonly #engine: Engine;
  readonly #call: Call;
  readonly #host: CallRecord['host'];
  /** Of the file that its health revisions stand in. */
  readonly #file: number;
  readonly #seed: number;
  readonly #wallMs: number;
  readonly #met = new Set<Capability>();
  readonly #overrides: (readonly [number, number])[] = [];
  #looks = 0;
  #overridesNow: Snapshot['overrides'] | null = null;
  readonly #choices: ChoiceRecord[] = [];
  /** By capability. */
  readonly #keys = new Map<string, string>();
  readonly #after: (number | null)[] = [];
  readonly #inFlight: Record<string, number> = {};
  readonly #quotas: (readonly [string, VerdictRecord | null, number, string | null])[] = [];
  readonly #claims: CallRecord['claims'][number][] = [];
  #budget: readonly [number, number] = [0, 0];
  readonly #takes: (readonly [number, number])[] = [];
  readonly #rev: number;
  /** As the way in set them, before any stage. */
  readonly #given: { readonly attemptMs: number; readonly totalMs: number; readonly lateMs: number };
  readonly #sends: SendsOf[] = [];
  /** Health could not be written: nothing of this call is. */
  #isLost = false;
  /** It is known that it is not wanted: nothing more is noted. */
  isLetGo = false;

  constructor(recorder: Recorder, engine: Engine, call: Call, host: CallRecord['host'], file: number) {
    this.#recorder = recorder;
    this.#engine = engine;
    this.#call = call;
    this.#host = host;
    this.#file = file;
    this.#seed = Math.floor(engine.random.next() * 4_294_967_296);
    this.#wallMs = engine.clock.wallMs();
    this.clock = new CallClock(engine.clock);
    this.random = new SeededRandom(this.#seed);
    this.config = engine.config;
    this.table = { current: () => this.#look() };
    this.identities = arrivals(engine.identities, this.clock);
    this.limits = { check: (one) => this.#limit(one) };
    this.quotas = this.#quotasOf();
    this.chooser = { choose: (one, now) => this.#choose(one, now), ended: (one) => engine.chooser.ended(one) };
    this.ledger = {
      claim: (one) => this.#claim(one),
      record: (one) => engine.ledger.record(one),
      settle: (one) => engine.ledger.settle(one),
    };
    this.retryBudget = {
      noteCall: (now) => {
        engine.retryBudget.noteCall(now);
        const { calls, retries } = engine.retryBudget.recent();
        this.#budget = [calls, retries];
      },
      take: (now) => this.#take(now),
      recent: () => engine.retryBudget.recent(),
    };
    const { underway } = engine;
    this.underway = {
      join: (one) => {
        // It has a name by now: it may be led elsewhere before anything else is asked.
        if (one.capability !== null) this.#met.add(one.capability);
        if (!recorder.wants(one)) this.isLetGo = true;
        underway.join(one);
      },
      add: (work) => underway.add(work),
      remove: (work) => underway.remove(work),
      leave: (one) => underway.leave(one),
    };
    this.transports = { for: (candidate) => this.#transport(engine.transports.for(candidate), candidate) };
    const { observer } = engine;
    this.observer = {
      callStarted: (one) => this.clock.aside(() => observer.callStarted(one)),
      attemptEnded: (one, attempt) => this.#attemptEnded(one, attempt),
      callEnded: (one) => {
        this.clock.aside(() => observer.callEnded(one));
        recorder.ended(this);
      },
      bug: (one, error) => observer.bug(one, error),
    };
    this.#given = { attemptMs: call.attemptMs, totalMs: call.totalMs, lateMs: call.lateMs };
    call.clock = this.clock;
    this.#rev = recorder.rev;
    if (host !== null) this.#hosted(host);
  }

  /** Of the health view, when it came: it refers to none before. */
  get rev(): number {
    return this.#rev;
  }

  get call(): Call {
    return this.#call;
  }

  /** At the provider's end nobody chooses: what is asked there is whether it has a free place. */
  #hosted({ agent, version }: { readonly agent: string; readonly version: string }): void {
    const line = targetOf(this.#engine.table.current(), this.#call.asked)?.capability.versions.find(({ text }) => text === version);
    if (line === undefined || line.placeOf(agent) < 0) return;
    this.#met.add(line.capability);
    const rev = this.#recorder.health([line], this.#engine.clock.now(), this.#file);
    if (rev === null) this.#isLost = true;
    this.#choices.push({ rev: rev ?? 0, lines: [], bound: null });
  }

  /** What stood in the budget when it was asked, as it is counted after the answer. */
  #take(now: number): boolean {
    const { retryBudget } = this.#engine;
    const isTaken = retryBudget.take(now);
    const { calls, retries } = retryBudget.recent();
    this.#takes.push([calls, isTaken ? retries - 1 : retries]);
    return isTaken;
  }

  #look(): Snapshot {
    const snapshot = this.#engine.table.current();
    if (snapshot.overrides !== this.#overridesNow) {
      this.#overridesNow = snapshot.overrides;
      this.#overrides.push([this.#looks, this.#recorder.parts.overrides(snapshot.overrides)]);
    }
    this.#looks++;
    return snapshot;
  }

  #limit(call: Call): Verdict {
    const capability = call.capability as Capability;
    this.#met.add(capability);
    const verdict = this.#engine.limits.check(call);
    const inFlight = verdict.reason.passes ? Number(verdict.a) - 1 : Number(verdict.b);
    this.#inFlight[capability.name] ??= inFlight;
    return verdict;
  }

  #quotasOf(): Decider['quotas'] {
    const { quotas } = this.#engine;
    const noted = (what: string, call: Call, verdict: Verdict | null): Verdict | null => {
      this.#quotas.push([what, verdict === null ? null : keptVerdict(verdict), call.retryAfterMs, null]);
      return verdict;
    };
    return {
      get isOn() {
        return quotas.isOn;
      },
      agent: (call) => noted('agent', call, quotas.agent(call)),
      capability: (call) => noted(`capability ${call.capability?.name ?? ''}`, call, quotas.capability(call)),
      provider: (call, candidate) => {
        const short = quotas.provider(call, candidate);
        this.#quotas.push([`provider ${candidate.provider.agentId}`, null, short?.retryAfterMs ?? 0, short?.words ?? null]);
        return short;
      },
    };
  }

  #choose(call: Call, now: number): Verdict {
    const { chooser } = this.#engine;
    if (this.isLetGo) return chooser.choose(call, now, this.random);
    this.#noteKey(call);
    const rev = this.#health(call, now);
    const isDone = this.#recorder.timed(() => {
      // Weights are read anew, so that they are those of the health view that is written down, not of a moment ago.
      for (const version of call.lines) version.eligible = null;
      const key = keyOf(call, call.lines[call.lineIndex] as Version);
      this.#choices.push({
        rev,
        lines: call.lines.map((version) => {
          const state = chooser.known(call, version);
          return {
            capability: version.capability.name,
            version: version.text,
            repeatable_at: state === null || state.repeatableAt === Number.NEGATIVE_INFINITY ? null : state.repeatableAt,
            turns: version.settings.load === 'round_robin' ? (state?.turns.dump() ?? null) : null,
          };
        }),
        bound:
          key === null ? null : chooser.holdersOf(key).map((agent) => [agent.agentId, isSame(call, agent), offers(agent, call)] as const),
      });
    });
    if (!isDone) this.#isLost = true;
    return chooser.choose(call, now, this.random);
  }

  #noteKey({ affinityKey, capability }: Call): void {
    if (affinityKey !== null && affinityKey !== '' && capability !== null) this.#keys.set(capability.name, affinityKey);
  }

  #conversationsOf(call: Call): CallRecord['conversations'] {
    // Nobody was chosen, and the key may have decided that.
    if (this.#choices.length === 0) this.#noteKey(call);
    const conversations: Record<string, { canary: number; owner: number }> = {};
    for (const [capability, key] of this.#keys) conversations[capability] = { canary: drawOf(key), owner: keyHash(key) };
    return conversations;
  }

  #health(call: Call, now: number): number {
    if (this.isLetGo) return 0;
    const rev = this.#recorder.health(call.lines, now, this.#file);
    if (rev === null) this.#isLost = true;
    return rev ?? 0;
  }

  async #claim(call: Call): Promise<Verdict> {
    const verdict = await this.#engine.ledger.claim(call);
    this.clock.begin('claim', 0);
    const { claim, replay, status, retryAfterMs } = call;
    this.#claims.push({
      verdict: keptVerdict(verdict),
      claim,
      answer: replay === null ? null : { status, provider: replay.provider, version: replay.version },
      retry_after_ms: retryAfterMs,
      rev: this.#health(call, this.#engine.clock.now()),
    });
    return verdict;
  }

  #transport(transport: Transport, _candidate: Candidate): Transport {
    return {
      invoke: (exchange) => this.#heard(exchange, transport.invoke(exchange)),
      cast: (exchange) => this.#heard(exchange, transport.cast(exchange)),
      invokeStream: (exchange) => this.#heard(exchange, transport.invokeStream(exchange)),
      close: () => transport.close(),
    };
  }

  async #heard(exchange: Exchange, sending: Promise<Reply>): Promise<Reply> {
    const n = this.#call.attempts.length - 1;
    const sends = (this.#sends[n] ??= new SendsOf());
    const send = new Send();
    if (sends.sends.push(send) === 1) sends.timerMs = exchange.timeoutMs;
    const reply = await sending;
    send.reply = reply;
    this.clock.begin('answer', n);
    if (reply.stream === null) return reply;
    const heard = new HeardStream(reply.stream, this.clock, this.#recorder.streamBytes(reply));
    send.stream = heard.heard;
    return reply.withStream(heard);
  }

  #attemptEnded(call: Call, attempt: Attempt): void {
    this.#after[call.attempts.indexOf(attempt)] = attempt.code === 0 ? null : this.#health(call, this.#engine.clock.now());
    this.clock.aside(() => this.#engine.observer.attemptEnded(call, attempt));
  }

  /** What is written down; null = it cannot be. To be asked once, at the end. */
  record(): CallRecord | null {
    const call = this.#call;
    const { rules, parts, bodyBytes } = this.#recorder;
    if (this.#isLost || call.table === null) return null;
    const asked = askedName(call.asked, call.capability !== null);
    const own = ownHeaders(call.headers, 'request');
    const verdicts = verdictsOf(call);
    if (call.capability !== null) this.#met.add(call.capability);
    this.#nearest(call, verdicts);
    const pin = headerOf(call, Header.pin);
    const [first] = verdicts;
    return {
      k: 'call',
      end: this.#host === null ? 'outbound' : 'inbound',
      host: this.#host,
      way: call.way,
      asked: asked ?? '',
      trace_id: call.traceId,
      stream: call.stream,
      http: call.http === null ? null : { method: call.http.method, target: keptTarget(call.http.target, rules) },
      started_at: call.startedAt,
      wall_ms: this.#wallMs,
      seed: this.#seed,
      rev: this.#rev,
      own: own ?? {},
      headers: keptHeaders(call.headers, rules),
      body: keptBody(call.body, call.contentType, rules, bodyBytes),
      caller: call.principal === null ? null : { agent: call.principal.agent, via: call.principal.via },
      identify: first?.reason.stage === 'identify' ? keptVerdict(first) : null,
      attempt_ms: this.#given.attemptMs,
      total_ms: this.#given.totalMs,
      late_ms: this.#given.lateMs,
      has_key: call.powerId !== null,
      conversations: this.#conversationsOf(call),
      parts: parts.parts(call.table, this.#met),
      overrides: this.#overrides,
      pin_known: pin !== null && call.table.providers.has(pin),
      fits: fitsOf(verdicts, call),
      stretches: this.clock.stretches,
      choices: this.#choices,
      after: this.#after.map((rev) => rev ?? null),
      in_flight: this.#inFlight,
      quotas: this.#engine.quotas.isOn ? this.#quotas : null,
      claims: this.#claims,
      budget: this.#budget,
      takes: this.#takes,
      work: call.work === null ? null : { ends_at: call.work.endsAt, total_ms: call.work.totalMs, agent: call.work.agentId },
      left: call.cancelled ? { at: call.cancelledAt, cut_by: call.cutBy } : null,
      sends: Array.from(this.#sends, (each, n) => ({
        timer_ms: each?.timerMs ?? 0,
        sends: (each?.sends ?? []).map((send) => this.#sendOf(send, call.attempts[n])),
      })),
      definitely: call.definitelySuccess,
      unfit: this.#unfit(asked, own, verdicts),
      decision: decisionOf(call, true),
    };
  }

  /** Names that a refusal proposed stand in the table: without them it would not be proposed again. */
  #nearest({ table, capability }: Call, verdicts: readonly Verdict[]): void {
    if (capability !== null || table === null) return;
    for (const { reason, b, c } of verdicts) {
      if (reason.stage !== 'name') continue;
      for (const near of [b, c]) {
        const found = typeof near === 'string' ? (table.capabilities.get(near) ?? table.aliases.get(near)) : undefined;
        if (found !== undefined) this.#met.add(found);
      }
    }
  }

  #unfit(asked: string | null, own: object | null, verdicts: readonly Verdict[]): string {
    if (asked === null) return 'what it asked for is no name, and is not kept';
    if (own === null) return 'one of its headers holds what does not belong there, and is not kept';
    if (this.clock.isOver) return 'it read the clock too often';
    if (
      verdicts.some(
        ({ reason }) => reason.stage === 'contract' && (reason.name === 'bounds' || reason.name === 'key' || reason.name === 'execution'),
      )
    )
      return 'its payload or its key was refused by its form, which is not kept';
    if (verdicts.some(({ reason }) => reason.name === 'internal')) return 'it met a fault of ours';
    return '';
  }

  #sendOf({ reply, stream }: Send, attempt: Attempt | undefined): SendRecord {
    const { rules, bodyBytes } = this.#recorder;
    if (reply === null)
      return {
        code: 0,
        started: 'started',
        status: 0,
        detail: '',
        reused: false,
        retry_after_ms: 0,
        own: {},
        headers: {},
        body: null,
        stream: null,
      };
    const type = reply.headers['content-type'];
    return {
      code: reply.code,
      started: reply.started,
      status: reply.status,
      detail: keptDetail(reply.detail),
      reused: reply.reusedConnection,
      retry_after_ms: reply.retryAfterMs,
      own: ownHeaders(reply.headers, 'answer') ?? {},
      headers: keptHeaders(reply.headers, rules),
      body: stream === null && reply.code === 0 ? keptBody(reply.body, typeof type === 'string' ? type : '', rules, bodyBytes) : null,
      stream: stream === null ? null : judged(stream.record(), attempt),
    };
  }

  get file(): number {
    return this.#file;
  }
}

/** As it was judged: a body that ended in peace, but without the word that ends a whole one, was cut; and the other way round. */
function judged(stream: StreamRecord, attempt: Attempt | undefined): StreamRecord {
  const { ended } = stream;
  if (ended === null || attempt === undefined || ended.by === 'unread') return { ...stream, ended: clean(ended) };
  if (ended.by === 'end' && attempt.code !== 0)
    return { ...stream, ended: clean({ by: 'cut', code: attempt.code, detail: attempt.detail }) };
  if (ended.by === 'cut' && attempt.code === 0) return { ...stream, ended: { by: 'end', code: 0, detail: '' } };
  return { ...stream, ended: clean(ended) };
}

function clean(ended: StreamRecord['ended']): StreamRecord['ended'] {
  return ended === null ? null : { ...ended, detail: keptDetail(ended.detail) };
}

function keptDetail(detail: string): string {
  return detail === '' ? '' : scrubbed(detail);
}

function offers({ record }: Provider, { capability }: Call): boolean {
  return record.offers.some(({ name }) => name === capability?.name);
}

function isSame(call: Call, agent: Provider): boolean {
  return call.table?.providers.get(agent.agentId)?.health === agent.health;
}

/** By capability and version, in the order in which they were looked at. */
function fitsOf(verdicts: readonly Verdict[], call: Call): Record<string, VerdictRecord | null> {
  const fits: Record<string, VerdictRecord | null> = {};
  for (const verdict of verdicts) {
    const { reason, a, b } = verdict;
    if (reason.stage !== 'contract') continue;
    if (reason.passes) fits[`${String(a)}@${String(b)}`] = null;
    else if (reason.name === 'input' || reason.name === 'not_json') {
      const line = call.lines[call.lineIndex] ?? call.lines[0];
      if (line !== undefined) fits[`${line.capability.name}@${line.text}`] = keptVerdict(verdict);
    }
  }
  return fits;
}

/** An agent that shows itself for the first time is waited for. */
function arrivals(identities: Identities, clock: CallClock): Identities {
  return {
    caller: (authorization) => identities.caller(authorization),
    callerProblem: (authorization) => identities.callerProblem(authorization),
    peer: (certificate, authorization) => identities.peer(certificate, authorization),
    vouched: (agent, peer, statement) => identities.vouched(agent, peer, statement),
    stamped: (agent, via, statement, storedAtMs) => identities.stamped(agent, via, statement, storedAtMs),
    get arriving() {
      const { arriving } = identities;
      if (arriving === null) return null;
      const watched = new Map<string, Promise<void>>();
      for (const [agent, there] of arriving)
        watched.set(
          agent,
          there.then(() => clock.begin('arrived', 0)),
        );
      return watched;
    },
  };
}

/** The same share of the traces at every sidecar. */
export function isSampled(traceId: string, share: number): boolean {
  return share >= 1 || hash32(traceId, SEED) < share * 4_294_967_296;
}

const SEED = 0x2545f491;
