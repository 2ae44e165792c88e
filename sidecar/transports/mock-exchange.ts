/**
 * One scripted call under way at a mock: its latency, those whom the agent asks, the head, the body, and whatever fault the script has
 * in between. It can be stopped like any other call, and leaves no timer behind.
 */
import type { Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { answered, failed, NO_BODY, type Reply, type ReplyHeaders, streaming } from '../call/reply.ts';
import type { Mode } from './http-exchange.ts';
import type { MockAgent } from './mock-agents.ts';
import { MockBody } from './mock-body.ts';
import type { CallOn, SubAnswer } from './mock-calls.ts';
import type { Act } from './mock-script.ts';
import { fillBody, fillJson } from './mock-template.ts';
import type { Exchange, TransportContext } from './transport.ts';

/** What a call needs of the mock that it is under way at. */
export interface MockHost {
  readonly callOn: CallOn | null;
  crashed(agent: MockAgent): void;
}

export const CLOSING = 'the sidecar is closing its connections';

/** One scripted call under way: latency, then the head, then (unless it streams) the body piece by piece. */
export class MockExchange {
  readonly #exchange: Exchange;
  readonly #mode: Mode;
  readonly #act: Act;
  readonly #number: number;
  readonly agent: MockAgent;
  readonly #mock: MockHost;
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
    mock: MockHost,
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

function cut(receivedBytes: number): Reply {
  return failed(Code.bad_response, 'started', `the body is cut: the connection was reset after ${receivedBytes} bytes, before its end`);
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
