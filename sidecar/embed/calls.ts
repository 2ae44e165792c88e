/** Calls from inside the process: a value and options to a Call on the same pipeline, and what came of it to a Result or a stream. */
import { jsonText } from '../../base/json-text.ts';
import { isAgentId } from '../../proto/language/names.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call } from '../call/call.ts';
import { Principal } from '../call/principal.ts';
import { NO_BODY } from '../call/reply.ts';
import type { Front } from '../accept/front.ts';
import { explain, type Explanation } from '../explain.ts';
import { type CallOptions, headersOf } from './options.ts';
import { refusedResult, type Result, resultFrom } from './result.ts';
import { ReachStream } from './stream.ts';
import { inherit, inheritTimes, workNow } from './work.ts';

export class Calls {
  readonly #front: Front;
  /** Who calls when nobody is named and nothing is being served; null = somebody has to be named. */
  readonly #agent: string | null;
  /** Verified ids: a principal each. */
  readonly #principals = new Map<string, Principal>();
  /** Calls under way, each in a place of its own: a Set would make garbage that holds whole calls (see `underway`). */
  readonly #open: (Call | null)[] = [];
  readonly #free: number[] = [];
  #whenNone: (() => void) | null = null;

  constructor(front: Front, agent: string | null) {
    this.#front = front;
    this.#agent = agent;
  }

  async invoke<T>(target: string, payload: unknown, options: CallOptions): Promise<Result<T>> {
    const begun = await this.#run(target, payload, options, false);
    return ('way' in begun ? resultFrom<T>(begun) : begun) as Result<T>;
  }

  stream(target: string, payload: unknown, options: CallOptions): ReachStream {
    return new ReachStream((made) => this.#run(target, payload, options, true, made));
  }

  explain(target: string, payload: unknown, options: CallOptions): Explanation {
    return explain(this.#front.engine, this.#callFor(target, payload, options, false), payload !== undefined);
  }

  /** In whose names calls have been made. */
  agents(): Iterable<string> {
    return this.#principals.keys();
  }

  /** In whose name something is done that does not say so. */
  get agent(): string | null {
    return this.#agent;
  }

  /** @param made is given the call before it runs. */
  async #run(
    target: string,
    payload: unknown,
    options: CallOptions,
    isStream: boolean,
    made?: (call: Call) => void,
  ): Promise<Call | Result<null>> {
    const front = this.#front;
    const call = this.#callFor(target, payload, options, isStream);
    made?.(call);
    // An agent that is still at work may finish it, with whom it needs for that.
    if (!front.ready && !(front.draining && front.table.ready && workNow() !== null))
      return front.draining
        ? refusedResult(Code.blocked_by_operator, 'this sidecar is stopping and takes no new calls')
        : refusedResult(Code.none_healthy, 'starting: no route table is loaded yet');
    const { signal } = options;
    const leave = signal === undefined ? null : leaving(call);
    if (signal?.aborted === true) call.cancel();
    else if (signal !== undefined && leave !== null) signal.addEventListener('abort', leave, { once: true });
    const place = this.#began(call);
    await front.pipeline.outbound(front.engine, call);
    const ended = (): void => {
      this.#ended(place);
      if (signal !== undefined && leave !== null) signal.removeEventListener('abort', leave);
    };
    if (call.bodyOpen) afterBody(call, ended);
    else ended();
    return call;
  }

  /** Waits until no call is under way, as long as the grace lasts; then gives up the rest. */
  async drain(graceMs: number): Promise<void> {
    if (this.#isIdle) return;
    await new Promise<void>((done) => {
      const timer = this.#front.engine.clock.after(graceMs, done);
      this.#whenNone = () => {
        timer.cancel();
        done();
      };
    });
    this.#whenNone = null;
    for (const call of this.#open) call?.cancel();
  }

  get #isIdle(): boolean {
    return this.#free.length === this.#open.length;
  }

  #began(call: Call): number {
    const place = this.#free.pop() ?? this.#open.length;
    this.#open[place] = call;
    return place;
  }

  #ended(place: number): void {
    this.#open[place] = null;
    this.#free.push(place);
    if (this.#isIdle) this.#whenNone?.();
  }

  #callFor(target: string, payload: unknown, options: CallOptions, isStream: boolean): Call {
    const { clock, random } = this.#front.engine;
    const work = workNow();
    const headers = headersOf(options);
    if (work !== null) {
      inherit(work, clock, headers);
      inheritTimes(work, headers);
    }
    const isBytes = payload instanceof Uint8Array;
    const body = payload === undefined ? NO_BODY : isBytes ? Buffer.from(payload) : Buffer.from(jsonText(payload) ?? 'null', 'utf8');
    const contentType = options.contentType ?? (body.length === 0 ? '' : isBytes ? 'application/octet-stream' : 'application/json');
    if (contentType !== '') headers['content-type'] = contentType;
    const call = new Call('local', target, headers, body, contentType, isStream, clock);
    readTraceContext(call, headers[Header.traceparent], headers[Header.tracestate], random);
    call.principal = this.principal(options.as ?? work?.agent ?? this.#agent);
    return call;
  }

  /** Throws when it is no agent, or nobody is named. */
  principal(agent: string | null): Principal {
    if (agent === null) throw new TypeError('nobody is named who calls: start the engine with `as`, or give `as` with the call');
    const known = this.#principals.get(agent);
    if (known !== undefined) return known;
    if (!isAgentId(agent)) throw new TypeError(`${JSON.stringify(agent)} is no agent: it reads like support.planner.1`);
    const principal = new Principal(agent);
    if (this.#principals.size >= MAX_PRINCIPALS) this.#principals.clear();
    this.#principals.set(agent, principal);
    return principal;
  }
}

const MAX_PRINCIPALS = 1_024;

function leaving(call: Call): () => void {
  return () => call.cancel();
}

/** Runs something when the accounting of a streamed body is done, beside what the pipeline does then. */
function afterBody(call: Call, then: () => void): void {
  const settle = call.onBodyEnd;
  call.onBodyEnd = () => {
    then();
    settle?.();
  };
}
