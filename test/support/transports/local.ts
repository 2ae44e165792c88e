/** Agents as functions of this process for the conformance suite, served as the embedded library serves them. */
import { realClock } from '../../../base/clock.ts';
import { ServingAgent } from '../../../sidecar/embed/agent.ts';
import { ServedAnswer, type ServedRequest } from '../../../sidecar/embed/request.ts';
import { LocalHub } from '../../../sidecar/transports/local-hub.ts';
import { act, type Answering, BEHAVIOURS, type Behaviour, CannotDo, capabilityOf, type Seen } from './behaviour.ts';
import type { TransportFixture } from './fixture.ts';

const NO_CONNECTION = 'there is no connection that could break';

/** A function's answer is what it returns or throws; a stream is what it yields. */
class FunctionAnswering implements Answering, AsyncIterator<unknown>, AsyncIterable<unknown> {
  readonly answered: Promise<unknown>;
  isGone = false;
  #answer: (value: unknown) => void = () => undefined;
  #throw: (error: unknown) => void = () => undefined;
  /** Lines that wait to be taken, each with who waits for it to be. */
  readonly #lines: { readonly line: string; readonly taken: () => void }[] = [];
  #over: 'no' | 'end' | 'snap' = 'no';
  #wake: () => void = () => undefined;

  constructor(request: ServedRequest, seen: Seen) {
    this.answered = new Promise((done, fail) => {
      this.#answer = done;
      this.#throw = fail;
    });
    request.signal.addEventListener('abort', () => {
      if (this.#over === 'end') return;
      this.isGone = true;
      seen.gone++;
      this.#release();
    });
  }

  answer(json: string): void {
    this.#answer(JSON.parse(json));
  }

  empty(): void {
    this.#answer(undefined);
  }

  fail(whose: 'theirs' | 'ours', detail: unknown): void {
    this.#throw(new ServedAnswer(whose === 'theirs' ? 422 : 500, detail));
  }

  sure(): void {
    this.#answer(new ServedAnswer(200, [], { 'reach-definitely-success': 'true' }));
  }

  die(): void {
    throw new CannotDo(NO_CONNECTION);
  }

  halve(): void {
    throw new CannotDo(NO_CONNECTION);
  }

  malformed(): void {
    this.#answer(new ServedAnswer(200, Buffer.from('{"never": ended'), { 'content-type': 'application/json' }));
  }

  write(line: string): Promise<void> {
    this.#answer(this);
    return new Promise((taken) => {
      if (this.isGone) return taken();
      this.#lines.push({ line, taken });
      this.#wake();
    });
  }

  end(): void {
    this.#answer(this);
    this.#over = 'end';
    this.#wake();
  }

  snap(): void {
    this.#over = 'snap';
    this.#wake();
  }

  [Symbol.asyncIterator](): AsyncIterator<unknown> {
    return this;
  }

  async next(): Promise<IteratorResult<unknown>> {
    for (;;) {
      const first = this.#lines.shift();
      if (first !== undefined) {
        first.taken();
        return { done: false, value: JSON.parse(first.line) };
      }
      if (this.#over === 'snap') throw new Error('the work cannot be finished');
      if (this.#over === 'end' || this.isGone) return { done: true, value: undefined };
      await new Promise<void>((done) => {
        this.#wake = done;
      });
    }
  }

  return(): Promise<IteratorResult<unknown>> {
    return Promise.resolve({ done: true, value: undefined });
  }

  #release(): void {
    for (const { taken } of this.#lines.splice(0)) taken();
    this.#wake();
  }
}

function handlerOf(behaviour: Behaviour, seen: Seen): (request: ServedRequest) => unknown {
  return (request) => {
    const answering = new FunctionAnswering(request, seen);
    const asked = { body: request.body, headers: request.headers, deadlineMs: request.remainingMs };
    void act(seen, behaviour, asked, answering);
    return answering.answered;
  };
}

export const localFixture: TransportFixture = {
  type: 'local',
  errorStatus: { theirs: 422, ours: 500 },
  knowsPresence: true,
  cannot: {
    exact: 'a function is given values and returns values; the bytes of the payload are there beside them (`body`)',
    dies: NO_CONNECTION,
    halves: NO_CONNECTION,
  },
  start(_t, seen) {
    const local = new LocalHub();
    for (const behaviour of BEHAVIOURS) {
      const agent = new ServingAgent(`peer.conf.${behaviour}`, realClock, () => undefined);
      agent.set(`${capabilityOf(behaviour)}@2.0.0`, handlerOf(behaviour, seen));
      local.set(agent);
    }
    return Promise.resolve({
      provider: () => ['endpoint: {type: local}'],
      local,
      open: () => 0,
      close: () => Promise.resolve(),
    });
  },
};
