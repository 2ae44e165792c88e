/**
 * One provider's one capability as an HTTP target: everything that can be made once per candidate. Decides path, static
 * headers and credential; the per-call part is in `http.ts`.
 */
import type { Clock } from '../../base/clock.ts';
import type { Credential, SecretRef } from '../../proto/language/types.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Candidate } from '../table/snapshot.ts';
import { hasForbiddenCharacter } from './hygiene.ts';
import { type CompiledMapping, compileMapping } from './mapping.ts';
import type { Pool } from './pool.ts';
import type { Pools } from './pools.ts';

/** A secret kept in a file is read anew at most this often, so that a rotated key needs no restart. */
const REREAD_MS = 5000;

export class HttpTarget {
  /** The adapter that made it: a candidate may be handed from one adapter to another in tests and in the lab. */
  readonly owner: object;
  readonly url: URL;
  readonly pool: Pool;
  readonly path: string;
  readonly mapping: CompiledMapping | null;
  /** Put before the mapping's path. */
  readonly basePath: string;
  /** Flat name, value …: sent with every request. */
  readonly head: readonly string[];
  /** Names that a caller may not send since the target sets them; null = none beyond ours. */
  readonly fixed: ReadonlySet<string> | null;
  readonly secret: SecretHeader | null;

  constructor(owner: object, candidate: Candidate, pools: Pools, clock: Clock, read: (ref: SecretRef) => string) {
    const endpoint = candidate.provider.record.endpoint;
    const name = candidate.version.capability.name;
    const version = candidate.version.text;
    const mapping = endpoint.mapping[name] ?? endpoint.mapping['*'] ?? null;
    this.owner = owner;
    this.url = new URL(endpoint.address);
    this.pool = pools.for(this.url);
    this.basePath = this.url.pathname === '/' ? '' : this.url.pathname.replace(/\/+$/, '');
    this.mapping = mapping === null ? null : compileMapping({ ...mapping, path: filledPath(mapping.path, name, version) });
    this.path = this.basePath + filledPath(endpoint.path ?? '/{capability}', name, version);
    this.head =
      mapping === null
        ? ['accept-encoding', 'identity', Header.capability, name, Header.version, version]
        : ['accept-encoding', 'identity'];
    const fixed = new Set(mapping === null ? [] : Object.keys(mapping.headers).map((header) => header.toLowerCase()));
    if (endpoint.credential !== null) fixed.add(endpoint.credential.header);
    this.fixed = fixed.size === 0 ? null : fixed;
    this.secret = endpoint.credential === null ? null : new SecretHeader(endpoint.credential, clock, read);
  }
}

/** The header that carries a provider's key. The value leaves this object only into the request. */
export class SecretHeader {
  readonly name: string;
  readonly #credential: Credential;
  readonly #clock: Clock;
  readonly #read: (ref: SecretRef) => string;
  readonly #rereads: boolean;
  #value: string | null = null;
  #readAt = 0;

  constructor(credential: Credential, clock: Clock, read: (ref: SecretRef) => string) {
    this.name = credential.header;
    this.#credential = credential;
    this.#clock = clock;
    this.#read = read;
    this.#rereads = 'file' in credential.secret;
  }

  /** null when there is none that could be sent; an earlier good one is kept while its file cannot be read. */
  value(): string | null {
    if (this.#value === null || (this.#rereads && this.#clock.now() - this.#readAt >= REREAD_MS)) this.#refresh();
    return this.#value;
  }

  #refresh(): void {
    this.#readAt = this.#clock.now();
    let secret: string;
    try {
      secret = this.#read(this.#credential.secret).trim();
    } catch {
      return;
    }
    const value = this.#credential.prefix + secret;
    if (secret !== '' && !hasForbiddenCharacter(value)) this.#value = value;
  }
}

function filledPath(template: string, capability: string, version: string): string {
  const path = template.replaceAll('{capability}', capability).replaceAll('{version}', encodeURIComponent(version));
  return path.startsWith('/') ? path : `/${path}`;
}
