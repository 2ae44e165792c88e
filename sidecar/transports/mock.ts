/**
 * A provider that is only a script: for the sandbox and for tests. It opens no socket and knows no other time than the
 * Clock and no other chance than the Random it is given, so a run can be repeated exactly. In everything else it is held
 * to what a real provider is held to: it can be stopped, its answers have a limit, and its faults have the same codes,
 * words and `started` as the `http` adapter gives them.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { Timer } from '../../base/clock.ts';
import type { Started } from '../call/attempt-record.ts';
import { answered, failed, NO_BODY, type Reply, type ReplyHeaders, streaming } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import type { Mode } from './http-exchange.ts';
import { MockBody } from './mock-body.ts';
import type { CallOn, SubAnswer } from './mock-calls.ts';
import { MockAgent } from './mock-agents.ts';
import { readScript } from './mock-reading.ts';
import { type Act, type ActFor, decideAct, type Script } from './mock-script.ts';
import { fillBody, fillJson, payloadOf } from './mock-template.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

/** A capability's script at one provider, prepared once per candidate. */
class MockTarget {
  readonly owner: object;
  readonly script: Script;
  /** Of the whole agent. */
  readonly life: Script['life'];
  constructor(owner: object, script: Script, life: Script['life']) {
    this.owner = owner;
    this.script = script;
    this.life = life;
  }
}

export class MockTransport implements Transport {
  readonly #context: TransportContext;
  readonly #startedAt: number;
  /** Calls that arrived, refused connections included: what a script's call numbers count. By agent and capability. */
  readonly #arrivals = new Map<string, number>();
  readonly #executions = new Map<string, number>();
  readonly #live = new Set<MockExchange>();
  readonly #bodies = new Set<MockBody>();
  readonly #agents = new Map<string, MockAgent>();
  /** Where answers come from others than scripts: recorded ones; null = there are none. */
  readonly #actFor: ActFor | null;
  /** Set by who has a pipeline; null = agents answer without asking anybody. */
  callOn: CallOn | null = null;
  /** Hears of every execution as it begins; null = nobody listens. */
  onExecution: ((exchange: Exchange) => void) | null = null;
  #closed = false;

  /** @param actFor in place of scripts, where it gives something */
  constructor(context: TransportContext, actFor: ActFor | null = null) {
    this.#context = context;
    this.#startedAt = context.clock.now();
    this.#actFor = actFor;
  }

  /** How often an agent's work was begun: requests that reached it. Of all its capabilities, or of one. */
  executions(agentId: string, capability?: string): number {
    return this.#executions.get(capability === undefined ? agentId : keyOf(agentId, capability)) ?? 0;
  }

  /** Calls and bodies that have not ended. */
  get open(): number {
    return this.#live.size + this.#bodies.size;
  }

  invoke(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'whole');
  }

  cast(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'head');
  }

  invokeStream(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'stream');
  }

  close(): Promise<void> {
    this.#closed = true;
    for (const live of this.#live) live.close();
    for (const body of this.#bodies) body.cancel(Code.stream_interrupted, 'the sidecar is closing its connections');
    return Promise.resolve();
  }

  #send(exchange: Exchange, mode: Mode): Promise<Reply> {
    const candidate = exchange.candidate;
    const target = this.#target(candidate);
    if (typeof target === 'string') return Promise.resolve(failed(Code.internal, 'not_started', target));
    if (this.#closed) return Promise.resolve(failed(Code.connection_lost, 'not_started', CLOSING));
    const agentId = candidate.provider.agentId;
    const key = keyOf(agentId, candidate.version.capability.name);
    const number = count(this.#arrivals, key);
    const sinceMs = this.#context.clock.now() - this.#startedAt;
    const agent = this.#agent(agentId);
    const act = this.#act(target, agent, agentId, exchange, number, sinceMs);
    if (act.refuseConnect)
      return Promise.resolve(failed(Code.connect_timeout, 'not_started', `no connection to ${agentId}: refused, nothing listens there`));
    count(this.#executions, agentId);
    count(this.#executions, key);
    this.onExecution?.(exchange);
    const isLast = agent.isLastCall(target.life, number);
    return new Promise((resolve) => {
      const live = new MockExchange(exchange, mode, act, number, this.#context, this, agent, isLast, this.#live, this.#bodies, resolve);
      exchange.abort = () => live.stop();
      live.begin();
    });
  }

  #act(target: MockTarget, agent: MockAgent, agentId: string, exchange: Exchange, number: number, sinceMs: number): Act {
    const given = this.#actFor?.(agentId, exchange.candidate.version.capability.name, number) ?? null;
    if (given !== null) return given;
    const act = decideAct(target.script, number, sinceMs, this.#context.random, () => payloadOf(exchange));
    return target.life === null || act.refuseConnect ? act : agent.decide(target.life, act, sinceMs);
  }

  #agent(agentId: string): MockAgent {
    let agent = this.#agents.get(agentId);
    if (agent === undefined) {
      agent = new MockAgent();
      this.#agents.set(agentId, agent);
    }
    return agent;
  }

  /** The process of an agent is gone, with everything that it was at. */
  crashed(agent: MockAgent): void {
    agent.crash(this.#context.clock.now() - this.#startedAt);
    for (const live of this.#live) if (live.agent === agent) live.die();
    for (const body of this.#bodies) if (body.agent === agent) body.die();
  }

  #target(candidate: Candidate): MockTarget | string {
    const prepared = candidate.prepared;
    if (prepared instanceof MockTarget && prepared.owner === this) return prepared;
    const script = readScript(candidate.provider.record.endpoint.options);
    if (!('base' in script)) return `the mock script of ${candidate.provider.agentId} cannot be used: ${script.join('; ')}`;
    const target = new MockTarget(this, script.capabilities.get(candidate.version.capability.name) ?? script, script.life);
    candidate.prepared = target;
    return target;
  }
}

const CLOSING = 'the sidecar is closing its connections';

/** One scripted call under way: latency, then the head, then (unless it streams) the body piece by piece. */
class MockExchange {
  readonly #exchange: Exchange;
  readonly #mode: Mode;
  readonly #act: Act;
  readonly #number: number;
  readonly agent: MockAgent;
  readonly #mock: MockTransport;
  /** With its end the agent's process ends. */
  readonly #isLast: boolean;
  readonly #context: TransportContext;
  readonly #live: Set<MockExchange>;
  readonly #bodies: Set<MockBody>;
  readonly #resolve: (reply: Reply) => void;
  #timer: Timer | null = null;
  /** For its agent's end, when that falls into its time. */
  #death: Timer | null = null;
  #deathAt = Number.POSITIVE_INFINITY;
  #beganAt = 0;
  #calling: { stop(): void } | null = null;
  #status: number;
  #body: Buffer = NO_BODY;
  #headSent = false;
  #isSettled = false;

  constructor(
    exchange: Exchange,
    mode: Mode,
    act: Act,
    number: number,
    context: TransportContext,
    mock: MockTransport,
    agent: MockAgent,
    isLast: boolean,
    live: Set<MockExchange>,
    bodies: Set<MockBody>,
    resolve: (reply: Reply) => void,
  ) {
    this.#exchange = exchange;
    this.#mode = mode;
    this.#act = act;
    this.#number = number;
    this.#status = act.status;
    this.#mock = mock;
    this.agent = agent;
    this.#isLast = isLast;
    this.#context = context;
    this.#live = live;
    this.#bodies = bodies;
    this.#resolve = resolve;
  }

  begin(): void {
    this.#live.add(this);
    this.#beganAt = this.#context.clock.now();
    this.agent.atWork++;
    const { latencyMs, diesInMs } = this.#act;
    if (diesInMs !== Number.POSITIVE_INFINITY) {
      this.#deathAt = this.#context.clock.now() + diesInMs;
      this.#death = this.#context.clock.after(diesInMs, () => this.die());
    }
    if (latencyMs === 0) this.#worked();
    else this.#timer = this.#context.clock.after(latencyMs, () => this.#worked());
  }

  /** The deadline passed or the caller left. */
  stop(): void {
    this.#settle(
      failed(Code.cancelled, 'started', `stopped ${this.#headSent ? 'in the middle of the answer' : 'while waiting for an answer'}`),
    );
  }

  close(): void {
    this.#settle(failed(Code.connection_lost, 'started', CLOSING));
  }

  /** The agent's process is gone. */
  die(): void {
    this.#settle(this.#headSent ? cut(0) : this.#lost());
  }

  #lost(): Reply {
    const { agentId } = this.#exchange.candidate.provider;
    return failed(Code.connection_lost, 'started', `the connection to ${agentId} was reset before an answer`);
  }

  /** Its own work is done; now it asks those whom it needs. */
  #worked(): void {
    if (this.#isLast) return this.#mock.crashed(this.agent);
    const { calls } = this.#act;
    const { callOn } = this.#mock;
    if (calls === null || callOn === null) return this.#answer([]);
    const calling = callOn(this.#exchange, calls, this.#beganAt);
    this.#calling = calling;
    void calling.done.then(({ answers, failed: why }) => {
      if (this.#isSettled) return;
      this.#calling = null;
      if (why === null) return this.#answer(answers);
      this.#status = 502;
      this.#body = fillJson({ error: why });
      this.#head();
    });
  }

  #answer(answers: readonly SubAnswer[]): void {
    if (hasBody(this.#status)) this.#body = fillBody(this.#act.body, this.#exchange, this.#number, answers);
    this.#head();
  }

  #head(): void {
    const { hang, reset, chunks, everyMs } = this.#act;
    const status = this.#status;
    if (reset === 'before_head') return this.#settle(this.#lost());
    if (hang === 'before_head') return;
    this.#headSent = true;
    const headers = headersOf(this.#act, status, this.#body);
    if (this.#mode === 'head') return this.#settle(answered(status, headers, NO_BODY));
    if (this.#mode === 'stream' && status < 300 && hasBody(status)) {
      const dies = this.#deathAt - this.#context.clock.now();
      const body = new MockBody(this.#context.clock, this.#body, this.#act, this.#bodies, this.agent, dies);
      // A stream that goes on outlives this exchange: `abort` then stops the body.
      this.#exchange.abort = () => body.cancel(Code.cancelled, 'stopped by the sidecar');
      return this.#settle(streaming(status, headers, body));
    }
    if (hang === 'after_head' || hang === 0) return;
    if (reset === 'after_head' || reset === 0) return this.#settle(cut(0));
    const limit = this.#exchange.maxResponseBytes;
    if (this.#body.length > limit)
      return this.#settle(
        failed(
          Code.response_too_large,
          'started',
          `the answer is above the limit of ${limit} bytes: ${this.#body.length} bytes are announced`,
        ),
      );
    const sent = Math.min(sentBefore(hang, chunks), sentBefore(reset, chunks));
    const bodyMs = everyMs * Math.min(sent, chunks - 1);
    const end = (): void => this.#bodyEnd(sent);
    if (bodyMs === 0) end();
    else this.#timer = this.#context.clock.after(bodyMs, end);
  }

  /** @param sent chunks that came before a fault; as many as there are, or more = there is none */
  #bodyEnd(sent: number): void {
    const { hang, reset, chunks } = this.#act;
    const isReset = sentBefore(reset, chunks) === sent && sent < chunks;
    if (isReset) this.#settle(cut(Math.floor((this.#body.length * sent) / chunks)));
    else if (sentBefore(hang, chunks) > sent || sent >= chunks)
      this.#settle(answered(this.#status, headersOf(this.#act, this.#status, this.#body), this.#body));
  }

  #settle(reply: Reply): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#timer?.cancel();
    this.#death?.cancel();
    this.#calling?.stop();
    this.#live.delete(this);
    this.agent.atWork--;
    this.#resolve(reply);
  }
}

function cut(receivedBytes: number, started: Started = 'started'): Reply {
  return failed(Code.bad_response, started, `the body is cut: the connection was reset after ${receivedBytes} bytes, before its end`);
}

/** Chunks of a whole answer that come before a fault in its body; Infinity = there is none. Half of one chunk is none of it. */
function sentBefore(fault: Act['hang'], chunks: number): number {
  if (typeof fault === 'number') return fault;
  return fault === 'mid_body' ? Math.floor(chunks / 2) : Number.POSITIVE_INFINITY;
}

function headersOf(act: Act, status: number, body: Buffer): ReplyHeaders {
  const headers: Record<string, string> = {};
  if (hasBody(status)) {
    headers['content-type'] = 'application/json';
    headers['content-length'] = String(body.length);
  }
  return Object.assign(headers, act.headers);
}

function hasBody(status: number): boolean {
  return status !== 204 && status !== 304;
}

function keyOf(agentId: string, capability: string): string {
  return `${agentId} ${capability}`;
}

function count(counts: Map<string, number>, key: string): number {
  const next = (counts.get(key) ?? 0) + 1;
  counts.set(key, next);
  return next;
}

export const mockKind: TransportKind = {
  make: (context) => new MockTransport(context),
  problems: ({ options }) => {
    const script = readScript(options);
    return 'base' in script ? [] : script;
  },
};
