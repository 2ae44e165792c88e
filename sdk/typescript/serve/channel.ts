/**
 * Serving without a port: dials in to the sidecar and stays connected. When the connection is lost it is made again, with
 * growing pauses, for as long as it takes; a sidecar that takes the credential back, or another process that has taken the
 * agent's place, ends it, since trying again would do harm.
 */
import { CHANNEL_PATH, ChannelClose } from '../../../proto/wire/channel.ts';
import { Code } from '../../../proto/wire/codes.ts';
import { parsed, resultIn } from '../answer.ts';
import { ReachError } from '../error.ts';
import type { Http } from '../http.ts';
import { ownFailure } from '../result.ts';
import { Backoff, pause } from './backoff.ts';
import type { Handlers } from './handlers.ts';
import { type Ended, Link } from './link.ts';
import { isFinal, type Registration } from './registration.ts';

/** Of the question for a ticket, whose answer is at hand: a kept connection that leads nowhere any more must not hold us up. */
const PATIENCE_MS = 2_000;

export class Channel {
  /** Settles when it is closed; rejects when it cannot go on. */
  readonly closed: Promise<void>;
  readonly #http: Http;
  readonly #handlers: Handlers;
  readonly #registration: Registration;
  readonly #leaving = new AbortController();
  #link: Link | null = null;
  #settle: { done(): void; fail(error: unknown): void } = { done: () => {}, fail: () => {} };

  constructor(http: Http, handlers: Handlers, registration: Registration) {
    this.#http = http;
    this.#handlers = handlers;
    this.#registration = registration;
    this.closed = new Promise((done, fail) => {
      this.#settle = { done, fail };
    });
    this.closed.catch(() => {});
  }

  /** Settles when the agent is dialled in and registered. */
  async open(): Promise<void> {
    const link = await this.#connect(isFinal);
    if (link === null) throw new TypeError('it was closed before it was open');
    void this.#stay(link);
  }

  async close(graceMs: number): Promise<void> {
    this.#leaving.abort();
    await this.#registration.leave();
    await this.#link?.leave(graceMs);
    this.#settle.done();
  }

  async #stay(first: Link): Promise<void> {
    const { log } = this.#http.settings;
    try {
      for (let link: Link | null = first; link !== null; ) {
        const ended = await link.ended;
        if (this.#leaving.signal.aborted) return;
        throwIfFinal(ended);
        log(`the channel to the sidecar is lost (${ended.code}${ended.reason === '' ? '' : `: ${ended.reason}`}); dialling in again`);
        // What was good once and is refused now may be good again: a registry that is not there yet knows nobody.
        link = await this.#connect((error) => error instanceof ReachError && error.code === Code.unauthenticated);
        if (link !== null) log('dialled in again');
      }
    } catch (error) {
      this.#settle.fail(error);
    }
  }

  /** null = it is being closed. */
  async #connect(givesUp: (error: unknown) => boolean): Promise<Link | null> {
    const { clock, random, log } = this.#http.settings;
    const backoff = new Backoff(random);
    for (let isFirst = true; !this.#leaving.signal.aborted; isFirst = false) {
      try {
        const link = await this.#once();
        if (!this.#leaving.signal.aborted) return link;
        // It was closed meanwhile, and nobody would end this connection any more.
        await this.#registration.leave();
        link.terminate();
        return null;
      } catch (error) {
        if (givesUp(error)) throw error;
        if (isFirst) log(`${(error as Error).message}; trying again`);
        await pause(backoff.next(), clock, this.#leaving.signal);
      }
    }
    return null;
  }

  async #once(): Promise<Link> {
    const link = new Link(this.#http.settings, this.#handlers, await this.#address());
    // Closed before it is dialled in: nobody waits for the sidecar's word any more.
    const giveUp = (): void => link.terminate();
    this.#leaving.signal.addEventListener('abort', giveUp, { once: true });
    try {
      await link.hello();
      this.#registration.agent ||= link.agent;
      await this.#registration.enter();
    } catch (error) {
      link.terminate();
      throw error;
    } finally {
      this.#leaving.signal.removeEventListener('abort', giveUp);
    }
    this.#link = link;
    if (!this.#registration.isKnown) this.#warnOfUncalled(link);
    return link;
  }

  /** At a sidecar with a table file an agent that does not stand in it would wait for ever, and nobody would say why. */
  #warnOfUncalled({ agent, offers }: Link): void {
    if (offers === null) return;
    for (const { key } of this.#handlers.offers)
      if (!offers.includes(key))
        this.#http.settings.log(
          `nobody is sent here for ${key}: the sidecar's table has no provider ${agent} that offers it with endpoint {type: channel}`,
        );
  }

  /** A ticket serves once: each connection asks for its own. */
  async #address(): Promise<string> {
    const headers = { 'content-type': 'application/json' };
    const body = Buffer.from('{}');
    const answer = await this.#http.ask({ method: 'POST', path: CHANNEL_PATH, headers, body, signals: [], limitMs: PATIENCE_MS });
    const json = parsed(answer.bytes) as { readonly url?: string; readonly ticket?: string } | undefined;
    if (answer.status !== 201 || typeof json?.url !== 'string' || typeof json.ticket !== 'string') {
      const result = resultIn(answer, 0);
      throw new ReachError(result.ok ? ownFailure(Code.bad_response, 'the sidecar gives no ticket', false, 0) : result);
    }
    const { socketPath, url: base } = this.#http.settings;
    const url = new URL(json.url, socketPath === null ? base : 'http://localhost');
    url.protocol = url.protocol.replace(/^http/, 'ws');
    url.searchParams.set('ticket', json.ticket);
    return socketPath === null ? url.href : `ws+unix:${socketPath}:${url.pathname}${url.search}`;
  }
}

function throwIfFinal({ code, reason }: Ended): void {
  if (code === ChannelClose.replaced)
    throw new ReachError(ownFailure(Code.blocked_by_operator, 'another connection of this agent has taken its place', false, 0));
  if (code === ChannelClose.unauthenticated)
    throw new ReachError(ownFailure(Code.unauthenticated, reason || 'the sidecar has taken the credential back', false, 0));
}
