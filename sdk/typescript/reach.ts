/**
 * The client. Everything that is decided is decided by the sidecar: this puts questions in its words and reads its answers,
 * repeats nothing, and keeps nothing but connections.
 */
import { Code } from '../../proto/wire/codes.ts';
import { FRAMES_TYPE } from '../../proto/wire/frames.ts';
import { parsed, resultIn } from './answer.ts';
import { type Ask, askFor, type InvokeOptions, timed } from './ask.ts';
import { type Address, type CastOptions, castAsk } from './cast.ts';
import { ReachError } from './error.ts';
import { type HttpAnswer, Http } from './http.ts';
import { Inbox, type InboxOptions } from './inbox.ts';
import { type ReachOptions, type Settings, settingsOf } from './options.ts';
import { ownFailure, type Result, type Success } from './result.ts';
import { budgetText, changed, limited, scopeNow, within } from './scope.ts';
import { type Handler, Handlers } from './serve/handlers.ts';
import { Offer, type ServeOptions } from './serve/offer.ts';
import { type RunOptions, Serving } from './serve/serving.ts';
import { untilSignal } from './serve/signals.ts';
import { ReachStream } from './stream.ts';
import { Task, taskIn } from './task.ts';
import { type DoneOptions, extend, tellDone } from './work.ts';

export class Reach {
  readonly #settings: Settings;
  readonly #http: Http;
  readonly #handlers: Handlers;
  #serving: Serving | null = null;

  constructor(options: ReachOptions = {}) {
    this.#settings = settingsOf(options);
    this.#http = new Http(this.#settings);
    this.#handlers = new Handlers(this.#settings);
  }

  /** `name`, alias or `name@range`, and a payload: JSON, or bytes. Rejects with a `ReachError` unless it succeeds. */
  async invoke<T = unknown>(target: string, payload?: unknown, options: InvokeOptions = {}): Promise<Success<T>> {
    const result = await this.call<T>(target, payload, options);
    if (!result.ok) throw new ReachError(result);
    return result;
  }

  /** The same, and a failure is a Result as well: look at `ok`. Rejects only for what cannot be sent at all. */
  async call<T = unknown>(target: string, payload?: unknown, options: InvokeOptions = {}): Promise<Result<T>> {
    const ask = this.#ask('/v1/invoke/', target, payload, options);
    const began = this.#settings.clock.now();
    try {
      const answer = await this.#http.ask(ask);
      return resultIn(answer, this.#settings.clock.now() - began) as Result<T>;
    } catch (error) {
      if (error instanceof ReachError) return error.result;
      throw error;
    }
  }

  /** The answer as it comes. Nothing is sent before the first piece is asked for; from then on `deadlineMs` counts. */
  stream(target: string, payload?: unknown, options: InvokeOptions = {}): ReachStream {
    const scope = scopeNow();
    const ask = askFor('/v1/stream/', target, payload, options, scope);
    ask.headers['accept'] ??= STREAM_ACCEPT;
    return new ReachStream(this.#http, ask, scope.endsAt);
  }

  /**
   * Gives work away: to a capability (`name`, alias or `name@range`), or to a role or an agent. Settles when the message is durable,
   * in NATS or on the sidecar's disk (`task.accepted.durable`): from then on it is not lost, and has one end. States and result
   * come to the task, and to the inbox.
   *
   * Rejects with a `ReachError` when it was not accepted: 3004 above the agent's rate (`error.result.retryAfterMs`), 7001 when it can be
   * kept nowhere now (send it again, with the same key), 4005 when it is too large, 4008 when the key is somebody else's, and
   * as a call would: 2001, 2002, 2003, 4002, 4003. A rejection says nothing of a message whose answer was lost on the way
   * (`error.ambiguous`): with an `idempotencyKey` it is safe to send it again.
   *
   * @param payload anything that JSON can say, or bytes (`Uint8Array`), which are passed on as they are
   */
  async cast<T = unknown>(target: string | Address, payload?: unknown, options: CastOptions = {}): Promise<Task<T>> {
    return taskIn<T>(this.#http, await this.#http.ask(castAsk(target, payload, options, scopeNow())));
  }

  /** A task that this agent has sent before, by its id (`task.id`). Nothing is asked yet; `T` is the shape of its result. */
  task<T = unknown>(id: string): Task<T> {
    return new Task<T>(this.#http, id, null);
  }

  /**
   * How work ended that this agent has taken with 202 (`context.status = 202`) and gone on with. The id is the context's
   * `taskId`. Rejects with a ReachError when it is not taken, or could not be stored yet (then say it again).
   */
  done(taskId: string, result?: unknown, options: DoneOptions = {}): Promise<void> {
    return tellDone(this.#http, taskId, result, options);
  }

  /** This agent is still at work on a task: its time begins anew. Settles with the milliseconds that it has now. */
  extend(taskId: string): Promise<number> {
    return extend(this.#http, taskId);
  }

  /** What waits for this agent, and what comes: read it with `for await`. One reader an agent. */
  inbox(options: InboxOptions = {}): Inbox {
    return new Inbox(this.#http, options);
  }

  /** Who would serve it and why nobody else, as the sidecar tells it. Nothing is sent to any agent. */
  async explain(target: string, payload?: unknown, options: InvokeOptions = {}): Promise<Readonly<Record<string, unknown>>> {
    const ask = this.#ask('/v1/explain/', target, payload, options);
    return this.#page(payload === undefined ? { ...ask, body: null, method: 'GET' } : ask);
  }

  /** What this agent may call: name, aliases, and each version with its contract. */
  async capabilities(): Promise<readonly Readonly<Record<string, unknown>>[]> {
    const page = await this.#page({ method: 'GET', path: '/v1/capabilities', headers: {}, body: null, signals: [], limitMs: Infinity });
    return page['capabilities'] as readonly Readonly<Record<string, unknown>>[];
  }

  /** Every call inside `run` has what is left of `ms`, at most, however deep. */
  deadline<T>(ms: number, run: () => T): T {
    return within(limited(ms, this.#settings.clock, this.#settings.random), run);
  }

  /** Milliseconds of each step of the task, in order; `step` says which one a call is. */
  budget<T>(steps: Readonly<Record<string, number>>, run: () => T): T {
    return within(changed({ budget: budgetText(steps) }, this.#settings.random), run);
  }

  step<T>(name: string, run: () => T): T {
    return within(changed({ step: name }, this.#settings.random), run);
  }

  /** Calls inside belong to one conversation, and meet the same agents. */
  conversation<T>(sequenceId: string, run: () => T): T {
    return within(changed({ sequenceId }, this.#settings.random), run);
  }

  /** Milliseconds left of the work under way here; Infinity when nobody has said. */
  get leftMs(): number {
    return Math.max(0, scopeNow().endsAt - this.#settings.clock.now());
  }

  /** Makes a function the agent's answer to a capability; `name@version`. `run` or `start` begins to serve. */
  serve<P = unknown, R = unknown>(capability: string, handler: Handler<P, R>, options: ServeOptions = {}): this {
    if (this.#serving !== null) throw new TypeError('serve everything before start()');
    this.#handlers.add(new Offer(capability, options), handler);
    return this;
  }

  /** Begins to serve; settles when calls can come, rejects when the sidecar or its registry refuses. */
  async start(options: RunOptions = {}): Promise<Serving> {
    if (this.#serving !== null) throw new TypeError('it serves already');
    const serving = new Serving(this.#settings, this.#http, this.#handlers, options);
    this.#serving = serving;
    try {
      await serving.open();
    } catch (error) {
      this.#serving = null;
      throw error;
    }
    return serving;
  }

  /** Serves until SIGINT or SIGTERM, then finishes what is under way and closes. Rejects when it cannot go on serving. */
  async run(options: RunOptions = {}): Promise<void> {
    const serving = await this.start(options);
    const asked = untilSignal();
    try {
      await Promise.race([asked.promise, serving.closed]);
    } finally {
      asked.forget();
      await this.close();
    }
  }

  /** Finishes what is being served, then closes every connection. */
  async close(): Promise<void> {
    await this.#serving?.close();
    this.#http.close();
  }

  #ask(base: string, target: string, payload: unknown, options: InvokeOptions): Ask {
    const scope = scopeNow();
    return timed(askFor(base, target, payload, options, scope), scope.endsAt, this.#settings.clock);
  }

  async #page(ask: Ask): Promise<Readonly<Record<string, unknown>>> {
    const answer: HttpAnswer = await this.#http.ask(ask);
    const json = parsed(answer.bytes);
    if (answer.status === 200 && typeof json === 'object' && json !== null) return json as Readonly<Record<string, unknown>>;
    const result = resultIn(answer, 0);
    throw new ReachError(result.ok ? ownFailure(Code.bad_response, "the answer is not a sidecar's", false, 0) : result);
  }
}

/** Frames, so that an end is told from a cut. */
const STREAM_ACCEPT = FRAMES_TYPE;
