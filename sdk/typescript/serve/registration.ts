/**
 * Tells the sidecar's registry what the agent serves and where, and keeps telling. A sidecar without a registry has its
 * agents in its table file, and wants nothing. What the registry refuses at the start is an error; what it refuses later,
 * and a sidecar that is away, is tried again.
 */
import { Code } from '../../../proto/wire/codes.ts';
import { parsed, resultIn } from '../answer.ts';
import type { Ask } from '../ask.ts';
import { ReachError } from '../error.ts';
import type { HttpAnswer, Http } from '../http.ts';
import { ownFailure } from '../result.ts';
import { Backoff, pause } from './backoff.ts';
import type { Offer } from './offer.ts';

export type Endpoint = { readonly type: 'http'; readonly address: string } | { readonly type: 'channel' };

/** An agent of the API is reported gone when it has been silent for its lease: so many signs of life go into one. */
const BEATS_PER_LEASE = 3;
/** When the registry does not say. */
const LEASE_MS = 135_000;
/** Of a question whose answer is at hand: a sidecar that takes longer is not well. */
const PATIENCE_MS = 10_000;

interface CapabilitiesPage {
  readonly caller: string;
  readonly serves?: { readonly endpoint: string; readonly offers: readonly string[] } | null;
}

export class Registration {
  readonly #http: Http;
  readonly #offers: readonly Offer[];
  readonly #endpoint: Endpoint;
  /** '' = not known yet. */
  agent: string;
  #leaseMs = LEASE_MS;
  /** The sidecar has a registry, which knows us. */
  #isKnown = false;
  /** Whether the table has us has been looked up. */
  #hasLooked = false;
  /** Everything has been said that had to be. */
  #isWell = false;

  constructor(http: Http, offers: readonly Offer[], endpoint: Endpoint, agent: string) {
    this.#http = http;
    this.#offers = offers;
    this.#endpoint = endpoint;
    this.agent = agent;
  }

  /** The sidecar has a registry, and it has taken us. */
  get isKnown(): boolean {
    return this.#isKnown;
  }

  /** Registers, where there is a registry. Rejects with a ReachError; `isFinal` says whether trying again is of use. */
  async enter(): Promise<void> {
    this.#isWell = false;
    const health = await this.#json('GET', '/v1/health');
    if (health['registry'] === null || health['registry'] === undefined) {
      this.#isKnown = false;
      await this.#look();
      this.#isWell = true;
      return;
    }
    if (this.agent === '') this.agent = String((await this.#json('GET', '/v1/capabilities'))['caller']);
    const contracts = this.#offers.map((offer) => offer.contract).filter((contract) => contract !== null);
    const provider = { agent_id: this.agent, offers: this.#offers.map((offer) => offer.key), endpoint: this.#endpoint };
    const view = await this.#json('POST', '/v1/agents', { ...(contracts.length > 0 ? { contracts } : {}), provider });
    const leaseMs = view['lease_ms'];
    this.#leaseMs = typeof leaseMs === 'number' && leaseMs > 0 ? leaseMs : LEASE_MS;
    this.#isKnown = true;
    this.#isWell = true;
  }

  /** At a sidecar with a table file an agent that does not stand in it would wait for ever, and nobody would say why. */
  async #look(): Promise<void> {
    const { settings } = this.#http;
    if (this.#hasLooked || this.#endpoint.type === 'channel' || settings.token === '') return;
    const answer = await this.#ask('GET', '/v1/capabilities');
    const page = answer.status === 200 ? (parsed(answer.bytes) as CapabilitiesPage | undefined) : undefined;
    // Not loaded yet, or a sidecar that does not say it.
    if (page?.serves === undefined) return;
    this.#hasLooked = true;
    // Of an agent under another name than its token's nothing is known.
    if (this.agent !== '' && this.agent !== page.caller) return;
    const { serves } = page;
    for (const { key } of this.#offers)
      if (serves === null || serves.endpoint !== this.#endpoint.type || !serves.offers.includes(key))
        settings.log(
          `nobody is sent here for ${key}: the sidecar's table has no provider ${page.caller} that offers it with endpoint {type: http, address: "${this.#endpoint.address}"}`,
        );
  }

  /**
   * Signs of life until the signal aborts. A sidecar that does not take one is registered at again: it has been restarted, or says
   * then what is wrong. Rejects when it has taken the credential back, as the channel ends then: trying again would do no good.
   */
  async keep(signal: AbortSignal): Promise<void> {
    const { clock, random, log } = this.#http.settings;
    const backoff = new Backoff(random);
    let hasWarned = false;
    for (;;) {
      await pause(this.#isWell ? this.#leaseMs / BEATS_PER_LEASE : backoff.next(), clock, signal);
      if (signal.aborted) return;
      try {
        if (!this.#isKnown || (await this.#ask('POST', `/v1/agents/${this.agent}/heartbeat`)).status >= 300) await this.enter();
        this.#isWell = true;
        backoff.reset();
        hasWarned = false;
      } catch (error) {
        if (error instanceof ReachError && error.code === Code.unauthenticated) {
          log(`not registered at the sidecar any more: ${error.message}`);
          throw error;
        }
        if (!hasWarned) log(`not registered at the sidecar: ${(error as Error).message}; trying again`);
        hasWarned = true;
        this.#isWell = false;
      }
    }
  }

  /** A clean goodbye: nothing new is sent here. Harmless when the sidecar is away. */
  async leave(): Promise<void> {
    if (!this.#isKnown) return;
    this.#isKnown = false;
    await this.#ask('DELETE', `/v1/agents/${this.agent}`).catch(() => undefined);
  }

  async #json(method: Ask['method'], path: string, body?: unknown): Promise<Readonly<Record<string, unknown>>> {
    const answer = await this.#ask(method, path, body);
    const json = parsed(answer.bytes);
    if (answer.status < 300 && typeof json === 'object' && json !== null) return json as Readonly<Record<string, unknown>>;
    const result = resultIn(answer, 0);
    throw new ReachError(result.ok ? ownFailure(Code.bad_response, `${method} ${path}: the answer is not a sidecar's`, false, 0) : result);
  }

  #ask(method: Ask['method'], path: string, body?: unknown): Promise<HttpAnswer> {
    const bytes = body === undefined ? null : Buffer.from(JSON.stringify(body));
    const headers: Record<string, string> = bytes === null ? {} : { 'content-type': 'application/json' };
    return this.#http.ask({ method, path, headers, body: bytes, signals: [], limitMs: PATIENCE_MS });
  }
}

/** Trying again would only be refused again. */
export function isFinal(error: unknown): boolean {
  return error instanceof ReachError && !error.retryable && error.code >= Code.unauthenticated && error.code < Code.deadline_exceeded;
}
