/** An agent that serves: by the channel, or on a port of its own when one is given. */
import type { Http } from '../http.ts';
import type { Settings } from '../options.ts';
import { Channel } from './channel.ts';
import type { Handlers } from './handlers.ts';
import { Port } from './port.ts';
import { isFinal, Registration } from './registration.ts';

export interface RunOptions {
  /** Serves on this port instead of the channel; 0 = any that is free. */
  readonly port?: number;
  /** Where the port listens. Default: 127.0.0.1. */
  readonly host?: string;
  /** Under which address the sidecar reaches the port, when it is not `http://host:port`. */
  readonly address?: string;
  /** Agent id for the registry. Default: the token's. */
  readonly agent?: string;
  /** How long work under way may take when closing, milliseconds. Default: 10 s. */
  readonly graceMs?: number;
}

const GRACE_MS = 10_000;

export class Serving {
  /** Settles when it is closed; rejects when it cannot go on serving. */
  readonly closed: Promise<void>;
  readonly #settings: Settings;
  readonly #http: Http;
  readonly #handlers: Handlers;
  readonly #options: RunOptions;
  readonly #leaving = new AbortController();
  #port: Port | null = null;
  #channel: Channel | null = null;
  #registration: Registration | null = null;
  #closing: Promise<void> | null = null;
  #settle: { done(): void; fail(error: unknown): void } = { done: () => {}, fail: () => {} };

  /** @internal */
  constructor(settings: Settings, http: Http, handlers: Handlers, options: RunOptions) {
    this.#settings = settings;
    this.#http = http;
    this.#handlers = handlers;
    this.#options = options;
    this.closed = new Promise((done, fail) => {
      this.#settle = { done, fail };
    });
    this.closed.catch(() => {});
  }

  /** 0 when it serves by the channel. */
  get port(): number {
    return this.#port?.port ?? 0;
  }

  /** @internal */
  async open(): Promise<void> {
    if (this.#handlers.offers.length === 0) throw new TypeError('there is nothing to serve: call serve(capability, handler) first');
    if (this.#options.port === undefined) await this.#dialIn();
    else await this.#listen(this.#options.port);
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    const graceMs = this.#options.graceMs ?? GRACE_MS;
    this.#leaving.abort();
    await this.#channel?.close(graceMs);
    if (this.#port !== null) {
      await this.#registration?.leave();
      await this.#port.close(graceMs);
    }
    this.#settle.done();
  }

  async #dialIn(): Promise<void> {
    const registration = new Registration(this.#http, this.#handlers.offers, { type: 'channel' }, this.#options.agent ?? '');
    const channel = new Channel(this.#http, this.#handlers, registration);
    this.#channel = channel;
    await channel.open();
    channel.closed.catch((error: unknown) => this.#settle.fail(error));
  }

  async #listen(wanted: number): Promise<void> {
    const host = this.#options.host ?? '127.0.0.1';
    const port = new Port(this.#settings, this.#handlers, host);
    await port.open(wanted);
    this.#port = port;
    const address = this.#options.address ?? `http://${host.includes(':') ? `[${host}]` : host}:${port.port}`;
    const registration = new Registration(this.#http, this.#handlers.offers, { type: 'http', address }, this.#options.agent ?? '');
    this.#registration = registration;
    try {
      await registration.enter();
    } catch (error) {
      if (isFinal(error)) {
        await port.close(0);
        throw error;
      }
      // The sidecar may come later; with a table file it needs no word from us.
      this.#settings.log(`${(error as Error).message}; trying again`);
    }
    registration.keep(this.#leaving.signal).catch((error: unknown) => this.#settle.fail(error));
  }
}
