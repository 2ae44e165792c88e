/**
 * Mock agents that call on: their calls go through the same pipeline as everybody's, as the agents themselves. A careful agent hands on
 * what it was handed (time left, budget, path, trace, conversation) and stops when its caller has left; a careless one does neither, so
 * that what it has begun goes on for nobody.
 */
import type { Clock } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { Header } from '../../proto/wire/headers.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call } from '../call/call.ts';
import { type Result, resultOf } from '../call/result.ts';
import type { Engine } from '../engine.ts';
import { outbound } from '../pipeline.ts';
import type { SubAnswer, SubCall, SubCalls, SubEnding } from '../transports/mock-calls.ts';
import { filled, headerOf } from '../transports/mock-template.ts';
import type { Exchange } from '../transports/transport.ts';
import { tokenOf } from './tokens.ts';

/** What is handed on as it is. */
const HANDED_ON: readonly string[] = [
  Header.budget,
  Header.path,
  Header.traceparent,
  Header.tracestate,
  Header.affinity,
  Header.sequenceId,
];

export class AgentCalls {
  readonly #engine: Engine;
  readonly #clock: Clock;
  readonly #ids: Random;
  begun = 0;
  open = 0;

  constructor(engine: Engine, clock: Clock, ids: Random) {
    this.#engine = engine;
    this.#clock = clock;
    this.#ids = ids;
  }

  /** See `CallOn`. */
  callOn(exchange: Exchange, calls: SubCalls, receivedAt: number): { readonly done: Promise<SubEnding>; stop(): void } {
    const work = new Work(exchange, calls, receivedAt);
    return { done: calls.isParallel ? this.#together(work) : this.#inTurn(work), stop: () => work.stop() };
  }

  async #inTurn(work: Work): Promise<SubEnding> {
    for (const step of work.calls.steps) {
      const failed = await this.#step(work, step);
      if (failed !== null) return { answers: work.answers, failed };
    }
    return { answers: work.answers, failed: null };
  }

  async #together(work: Work): Promise<SubEnding> {
    const failed = await Promise.all(work.calls.steps.map((step) => this.#step(work, step)));
    return { answers: work.answers, failed: failed.find((words) => words !== null) ?? null };
  }

  /** Why the agent fails with it; null = it goes on. */
  async #step(work: Work, step: SubCall): Promise<string | null> {
    const place = work.calls.steps.indexOf(step);
    let result: Result | null = null;
    for (let tries = 0; tries < step.tries && !work.isStopped; tries++) {
      result = await this.#call(work, step);
      if (result.entry.code === 0) break;
    }
    if (result === null) return `it was told to stop before ${step.asked}`;
    work.answers[place] = { code: result.entry.code, data: dataOf(result) };
    if (result.entry.code === 0 || step.onError === 'go_on') return null;
    return `${step.asked}: ${result.entry.code} ${result.entry.name}`;
  }

  async #call(work: Work, step: SubCall): Promise<Result> {
    const { exchange } = work;
    const body = Buffer.from(JSON.stringify(filled(step.payload, exchange, 0, work.answers)));
    const headers = this.#headers(work, step);
    const call = new Call('sandbox', step.asked, headers, body, 'application/json', false, this.#clock);
    readTraceContext(call, headers[Header.traceparent], headers[Header.tracestate], this.#ids);
    this.begun++;
    this.open++;
    work.open.add(call);
    await outbound(this.#engine, call);
    work.open.delete(call);
    this.open--;
    return resultOf(call, true);
  }

  #headers({ exchange, calls, receivedAt }: Work, step: SubCall): Record<string, string> {
    const agent = exchange.candidate.provider.agentId;
    const headers: Record<string, string> = { authorization: `Bearer ${tokenOf(agent)}`, 'content-type': 'application/json' };
    let leftMs = step.deadlineMs ?? Number.POSITIVE_INFINITY;
    if (calls.passesOn) {
      const given = Number(headerOf(exchange, Header.deadlineMs));
      if (Number.isFinite(given)) leftMs = Math.min(leftMs, Math.max(0, Math.floor(given - (this.#clock.now() - receivedAt))));
      const total = headerOf(exchange, Header.deadlineTotalMs);
      if (typeof total === 'string') headers[Header.deadlineTotalMs] = total;
      for (const name of HANDED_ON) {
        const value = headerOf(exchange, name);
        if (typeof value === 'string') headers[name] = value;
      }
      if (step.step !== '') headers[Header.step] = step.step;
    }
    if (leftMs !== Number.POSITIVE_INFINITY) headers[Header.deadlineMs] = String(leftMs);
    return Object.assign(headers, step.headers);
  }
}

/** What one agent asks of others for one call to it. */
class Work {
  readonly exchange: Exchange;
  readonly calls: SubCalls;
  readonly receivedAt: number;
  readonly answers: SubAnswer[] = [];
  readonly open = new Set<Call>();
  isStopped = false;

  constructor(exchange: Exchange, calls: SubCalls, receivedAt: number) {
    this.exchange = exchange;
    this.calls = calls;
    this.receivedAt = receivedAt;
  }

  stop(): void {
    if (!this.calls.passesOn) return;
    this.isStopped = true;
    for (const call of this.open) call.cancel();
  }
}

function dataOf(result: Result): unknown {
  try {
    return JSON.parse(result.data.toString('utf8')) as unknown;
  } catch {
    return null;
  }
}
