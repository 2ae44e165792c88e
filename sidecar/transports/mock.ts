/**
 * A provider that is only a script: for the sandbox and for tests. It opens no socket and knows no other time than the
 * Clock and no other chance than the Random it is given, so a run can be repeated exactly. In everything else it is held
 * to what a real provider is held to: it can be stopped, its answers have a limit, and its faults have the same codes,
 * words and `started` as the `http` adapter gives them.
 */
import { Code } from '../../proto/wire/codes.ts';
import { failed, type Reply } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import type { Mode } from './http-exchange.ts';
import { MockAgent } from './mock-agents.ts';
import type { MockBody } from './mock-body.ts';
import type { CallOn } from './mock-calls.ts';
import { CLOSING, MockExchange } from './mock-exchange.ts';
import { readScript } from './mock-reading.ts';
import { type Act, type ActFor, decideAct, type Script } from './mock-script.ts';
import { payloadOf } from './mock-template.ts';
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
