/**
 * The connection to the sidecar. `node:http` with an agent of our own instead of `fetch`: no proxy setting of the
 * environment applies, no hidden time limit of five minutes cuts a quiet stream, and headers go as they are written.
 * Connections are kept; a call is sent once and never repeated, since only the sidecar knows what may be.
 */
import { setMaxListeners } from 'node:events';
import { Agent, type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http';
import type { Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Ask } from './ask.ts';
import { ReachError } from './error.ts';
import type { Settings } from './options.ts';
import { ownFailure } from './result.ts';
import { wireText } from './wire-text.ts';

/** The sidecar answers when the time is over; the client's own clock is for a sidecar that does not. */
const GRACE_MS = 500;

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly bytes: Buffer;
  /** The question went without a credential. */
  readonly isAnonymous: boolean;
}

export class Http {
  readonly settings: Settings;
  /** Nobody wants anything more of it. */
  isClosed = false;
  readonly #agent = new Agent({ keepAlive: true, noDelay: true });

  constructor(settings: Settings) {
    this.settings = settings;
  }

  /** The whole answer. Rejects with a ReachError when there is none. */
  async ask(ask: Ask): Promise<HttpAnswer> {
    const exchange = this.open(ask);
    try {
      const response = await exchange.head;
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      return {
        status: response.statusCode ?? 0,
        headers: response.headers,
        bytes: Buffer.concat(chunks),
        isAnonymous: exchange.isAnonymous,
      };
    } catch (error) {
      throw exchange.failure(error);
    } finally {
      exchange.done();
    }
  }

  open(ask: Ask): Exchange {
    return new Exchange(this.settings, this.#agent, ask);
  }

  /** What is under way is cut. */
  close(): void {
    this.isClosed = true;
    this.#agent.destroy();
  }
}

/** One request under way; `done` must be called, and destroys what has not come to its end. */
export class Exchange {
  readonly head: Promise<IncomingMessage>;
  /** It goes without a credential. */
  readonly isAnonymous: boolean;
  readonly #settings: Settings;
  readonly #signals: readonly AbortSignal[];
  readonly #startedAt: number;
  readonly #request: ClientRequest;
  #response: IncomingMessage | null = null;
  #limit: Timer | null = null;
  #connected = false;
  /** Why we ended it ourselves; null = we did not. */
  #stopped: ReachError | null = null;
  readonly #onAbort = (): void => this.#stop(Code.cancelled, 'the caller gave it up');

  constructor(settings: Settings, agent: Agent, ask: Ask) {
    const { clock, token, apiToken, host, port, socketPath } = settings;
    this.#settings = settings;
    this.#signals = ask.signals;
    this.#startedAt = clock.now();
    const headers: Record<string, string> = {};
    for (const [name, value] of Object.entries(ask.headers)) headers[name] = wireText(value);
    if (token !== '' && headers['authorization'] === undefined) headers['authorization'] = `Bearer ${token}`;
    if (apiToken !== '' && headers['reach-api-token'] === undefined) headers['reach-api-token'] = apiToken;
    this.isAnonymous = headers['authorization'] === undefined;
    if (ask.body !== null) headers['content-length'] = String(ask.body.length);
    const at = socketPath === null ? { host, port } : { host, socketPath };
    const request = httpRequest({ ...at, agent, method: ask.method, path: ask.path, headers });
    this.#request = request;
    request.on('socket', (socket) => {
      if (socket.connecting) socket.once('connect', () => (this.#connected = true));
      else this.#connected = true;
    });
    this.head = new Promise((done, fail) => {
      request.once('response', (response) => {
        this.#response = response;
        done(response);
      });
      request.on('error', fail);
    });
    // Whoever reads the head hears of it; a request that was stopped before must not be nobody's rejection.
    this.head.catch(() => {});
    for (const signal of ask.signals) {
      // A hundred calls under one signal are no leak: each takes its listener away when it is done.
      setMaxListeners(0, signal);
      signal.addEventListener('abort', this.#onAbort, { once: true });
    }
    if (Number.isFinite(ask.limitMs)) {
      const late = (): void => this.#stop(Code.deadline_exceeded, `the sidecar did not answer within ${Math.round(ask.limitMs)} ms`);
      this.#limit = clock.after(Math.max(0, ask.limitMs) + GRACE_MS, late);
    }
    if (ask.signals.some((signal) => signal.aborted)) this.#onAbort();
    else request.end(ask.body ?? undefined);
  }

  get elapsedMs(): number {
    return this.#settings.clock.now() - this.#startedAt;
  }

  /** What became of it, as the error to be told. @param code for a break after the head. */
  failure(error: unknown, code: Code = Code.connection_lost): ReachError {
    if (error instanceof ReachError) return error;
    if (this.#stopped !== null) return this.#stopped;
    const words = error instanceof Error ? error.message : String(error);
    const { url } = this.#settings;
    const result = this.#connected
      ? ownFailure(code, `the connection to the sidecar at ${url} broke: ${words}`, true, this.elapsedMs)
      : ownFailure(Code.connect_timeout, `no sidecar answers at ${url}: ${words}`, false, this.elapsedMs);
    return new ReachError(result, { cause: error });
  }

  /** Has no effect once the head has come: then `done` has. */
  giveUp(): void {
    if (this.#response === null) this.#onAbort();
  }

  done(): void {
    this.#limit?.cancel();
    for (const signal of this.#signals) signal.removeEventListener('abort', this.#onAbort);
    if (this.#response?.readableEnded !== true) this.#request.destroy();
  }

  #stop(code: Code, detail: string): void {
    if (this.#stopped !== null) return;
    this.#stopped = new ReachError(ownFailure(code, detail, this.#connected, this.elapsedMs));
    this.#request.destroy(this.#stopped);
    this.#response?.destroy(this.#stopped);
  }
}
