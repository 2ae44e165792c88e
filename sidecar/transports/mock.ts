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
import { type Act, decideAct, readScript, type Script } from './mock-script.ts';
import { fillBody } from './mock-template.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

/** A capability's script at one provider, prepared once per candidate. */
class MockTarget {
  readonly owner: object;
  readonly script: Script;
  constructor(owner: object, script: Script) {
    this.owner = owner;
    this.script = script;
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
  #closed = false;

  constructor(context: TransportContext) {
    this.#context = context;
    this.#startedAt = context.clock.now();
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
    const clock = this.#context.clock;
    const act = decideAct(target.script, number, clock.now() - this.#startedAt, this.#context.random);
    if (act.refuseConnect)
      return Promise.resolve(failed(Code.connect_timeout, 'not_started', `no connection to ${agentId}: refused, nothing listens there`));
    count(this.#executions, agentId);
    count(this.#executions, key);
    const body = hasBody(act.status) ? fillBody(act.body, exchange, number) : NO_BODY;
    return new Promise((resolve) => {
      const live = new MockExchange(exchange, mode, act, body, this.#context, this.#live, this.#bodies, resolve);
      exchange.abort = () => live.stop();
      live.begin();
    });
  }

  #target(candidate: Candidate): MockTarget | string {
    const prepared = candidate.prepared;
    if (prepared instanceof MockTarget && prepared.owner === this) return prepared;
    const script = readScript(candidate.provider.record.endpoint.options);
    if (!('base' in script)) return `the mock script of ${candidate.provider.agentId} cannot be used: ${script.join('; ')}`;
    const target = new MockTarget(this, script.capabilities.get(candidate.version.capability.name) ?? script);
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
  readonly #body: Buffer;
  readonly #headers: ReplyHeaders;
  readonly #context: TransportContext;
  readonly #live: Set<MockExchange>;
  readonly #bodies: Set<MockBody>;
  readonly #resolve: (reply: Reply) => void;
  #timer: Timer | null = null;
  #headSent = false;
  #isSettled = false;

  constructor(
    exchange: Exchange,
    mode: Mode,
    act: Act,
    body: Buffer,
    context: TransportContext,
    live: Set<MockExchange>,
    bodies: Set<MockBody>,
    resolve: (reply: Reply) => void,
  ) {
    this.#exchange = exchange;
    this.#mode = mode;
    this.#act = act;
    this.#body = body;
    this.#headers = headersOf(act, body);
    this.#context = context;
    this.#live = live;
    this.#bodies = bodies;
    this.#resolve = resolve;
  }

  begin(): void {
    this.#live.add(this);
    if (this.#act.latencyMs === 0) this.#head();
    else this.#timer = this.#context.clock.after(this.#act.latencyMs, () => this.#head());
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

  #head(): void {
    const { hang, reset, status, chunks, everyMs } = this.#act;
    if (reset === 'before_head')
      return this.#settle(
        failed(
          Code.connection_lost,
          'started',
          `the connection to ${this.#exchange.candidate.provider.agentId} was reset before an answer`,
        ),
      );
    if (hang === 'before_head') return;
    this.#headSent = true;
    if (this.#mode === 'head') return this.#settle(answered(status, this.#headers, NO_BODY));
    if (this.#mode === 'stream' && status < 300 && hasBody(status)) {
      const body = new MockBody(this.#context.clock, this.#body, this.#act, this.#bodies);
      // A stream that goes on outlives this exchange: `abort` then stops the body.
      this.#exchange.abort = () => body.cancel(Code.cancelled, 'stopped by the sidecar');
      return this.#settle(streaming(status, this.#headers, body));
    }
    if (hang === 'after_head') return;
    if (reset === 'after_head') return this.#settle(cut(0));
    const limit = this.#exchange.maxResponseBytes;
    if (this.#body.length > limit)
      return this.#settle(
        failed(
          Code.response_too_large,
          'started',
          `the answer is above the limit of ${limit} bytes: ${this.#body.length} bytes are announced`,
        ),
      );
    const half = hang === 'mid_body' || reset === 'mid_body';
    const bodyMs = everyMs * (half ? Math.floor(chunks / 2) : chunks - 1);
    if (bodyMs === 0) this.#bodyEnd();
    else this.#timer = this.#context.clock.after(bodyMs, () => this.#bodyEnd());
  }

  #bodyEnd(): void {
    const { hang, reset, status } = this.#act;
    if (reset === 'mid_body') this.#settle(cut(this.#body.length >> 1));
    else if (hang !== 'mid_body') this.#settle(answered(status, this.#headers, this.#body));
  }

  #settle(reply: Reply): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#timer?.cancel();
    this.#live.delete(this);
    this.#resolve(reply);
  }
}

function cut(receivedBytes: number, started: Started = 'started'): Reply {
  return failed(Code.bad_response, started, `the body is cut: the connection was reset after ${receivedBytes} bytes, before its end`);
}

function headersOf(act: Act, body: Buffer): ReplyHeaders {
  const headers: Record<string, string> = {};
  if (hasBody(act.status)) {
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
