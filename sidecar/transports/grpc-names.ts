/**
 * Where a gRPC server's name leads: every address, each judged before a connection is opened to it. The system's resolver
 * is asked, or the name server that the address names (`dns://server/name:port`). When to ask is the channel's affair.
 */
import { lookup, Resolver } from 'node:dns';
import { isIP } from 'node:net';
import type { LookupFunction } from 'node:net';
import type { Destination } from './destinations.ts';
import { bracketed, type GrpcAddress } from './grpc-endpoint.ts';

export type Found = { readonly addresses: readonly string[] } | { readonly problem: string };

/** One query of a named server is repeated after this long, and given up after `TRIES`. */
const QUERY_MS = 1_000;
const TRIES = 2;
/** More are not connected to. */
const MAX_ADDRESSES = 32;

export class Names {
  /** Lookups so far; for tests. */
  lookups = 0;
  readonly #at: GrpcAddress;
  readonly #destination: Destination | null;
  readonly #lookup: LookupFunction;
  readonly #resolver: Resolver | null;

  constructor(at: GrpcAddress, destination: Destination | null) {
    this.#at = at;
    this.#destination = destination;
    this.#resolver = at.nameServer === null || isIP(at.host) !== 0 ? null : new Resolver({ timeout: QUERY_MS, tries: TRIES });
    if (this.#resolver === null) this.#lookup = destination === null ? lookup : destination.lookupFor(this.#url());
    else {
      if (at.nameServer !== null) this.#resolver.setServers([at.nameServer]);
      const ask = askServer(this.#resolver);
      this.#lookup = destination === null ? ask : destination.lookupFor(this.#url(), ask);
    }
  }

  /** A number leads nowhere else tomorrow. */
  get isName(): boolean {
    return isIP(this.#at.host) === 0;
  }

  find(): Promise<Found> {
    const refusal = this.#destination?.refusal(this.#url()) ?? null;
    if (refusal !== null) return Promise.resolve({ problem: refusal });
    if (!this.isName) return Promise.resolve({ addresses: [this.#at.host] });
    this.lookups++;
    return new Promise((resolve) => {
      this.#lookup(this.#at.host, { all: true }, (error, found) => {
        if (error !== null) resolve({ problem: WORDS[error.code ?? ''] ?? error.message });
        else {
          const all = typeof found === 'string' ? [found] : found.map(({ address }) => address);
          if (all.length === 0) resolve({ problem: 'the name leads nowhere' });
          else resolve({ addresses: [...new Set(all)].slice(0, MAX_ADDRESSES) });
        }
      });
    });
  }

  close(): void {
    this.#resolver?.cancel();
  }

  #url(): URL {
    return new URL(`${this.#at.isTls ? 'https' : 'http'}://${bracketed(this.#at.host)}:${this.#at.port}`);
  }
}

/** Both families; one that has no answer does not hide the other's. */
function askServer(resolver: Resolver): LookupFunction {
  return (hostname, _options, callback) => {
    const found: { address: string; family: number }[] = [];
    let failure: NodeJS.ErrnoException | null = null;
    let open = 2;
    const done = (family: number) => (error: NodeJS.ErrnoException | null, addresses: string[]) => {
      if (error === null) for (const address of addresses) found.push({ address, family });
      else if (failure === null || error.code !== 'ENODATA') failure = error;
      if (--open > 0) return;
      if (found.length === 0) callback(failure ?? new Error('the name leads nowhere'), []);
      else callback(null, found);
    };
    resolver.resolve4(hostname, done(4));
    resolver.resolve6(hostname, done(6));
  };
}

const WORDS: Readonly<Record<string, string>> = {
  ENOTFOUND: 'the name does not resolve',
  ENODATA: 'the name has no address',
  EAI_AGAIN: 'the name server does not answer',
  ETIMEOUT: 'the name server does not answer',
  ECONNREFUSED: 'the name server does not answer',
};
