/**
 * Runs one declared health check: a GET that must answer 2xx in time. The address was written by somebody else, so it is
 * judged again at the moment of connecting, on the address that is really dialled; redirects are not followed, and no more
 * than the head of the answer is read. When to ask, and what an answer means, is decided by the registry.
 */
import { lookup } from 'node:dns';
import { request as requestHttp, type RequestOptions } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { LookupFunction } from 'node:net';
import { type AddressPolicy, judgeAddress, judgeHost, parseHost } from '../../base/address-guard.ts';
import type { Clock } from '../../base/clock.ts';

export interface Probe {
  readonly url: string;
  readonly timeoutMs: number;
}

/** Checks under way at once: what is above waits for its turn, and its time runs from then. */
const MAX_AT_ONCE = 64;

export class Prober {
  readonly #policy: AddressPolicy;
  readonly #clock: Clock;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(policy: AddressPolicy, clock: Clock) {
    this.#policy = policy;
    this.#clock = clock;
  }

  /** True when it answered 2xx. */
  async run(probe: Probe): Promise<boolean> {
    if (this.#running >= MAX_AT_ONCE) await new Promise<void>((turn) => this.#waiting.push(turn));
    this.#running++;
    try {
      return await this.#ask(probe);
    } finally {
      this.#running--;
      this.#waiting.shift()?.();
    }
  }

  #ask({ url, timeoutMs }: Probe): Promise<boolean> {
    let target: URL;
    try {
      target = new URL(url);
    } catch {
      return Promise.resolve(false);
    }
    const host = parseHost(target.hostname);
    if (host === null || judgeHost(host, this.#policy) !== null) return Promise.resolve(false);
    return new Promise((done) => {
      const options: RequestOptions = {
        method: 'GET',
        agent: false,
        headers: { 'user-agent': 'agent-reach-health', connection: 'close' },
        lookup: this.#guardedLookup,
      };
      const request = (target.protocol === 'https:' ? requestHttps : requestHttp)(target, options);
      const end = (isWell: boolean): void => {
        timer.cancel();
        request.destroy();
        done(isWell);
      };
      const timer = this.#clock.after(timeoutMs, () => end(false));
      request.on('response', (response) => {
        const status = response.statusCode ?? 0;
        end(status >= 200 && status < 300);
      });
      request.on('error', () => end(false));
      request.end();
    });
  }

  /** Names are resolved here, so that what was judged is what is dialled. */
  readonly #guardedLookup: LookupFunction = (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, '', 0);
      const allowed = addresses.filter(({ address }) => judgeAddress(address, this.#policy, hostname) === null);
      const first = allowed[0];
      if (first === undefined) return callback(Object.assign(new Error('the address is not allowed'), { code: 'EACCES' }), '', 0);
      if (options.all === true) callback(null, allowed);
      else callback(null, first.address, first.family);
    });
  };
}
