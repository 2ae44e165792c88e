/**
 * What may come in as a request to a forward proxy (`GET http://crm.order.query/path`): read from the request's head, before
 * anything else, like every guard.
 *
 * A page can make a browser send such a request only when the sidecar was made the browser's proxy; then, however, what
 * protects the port otherwise is missing: Host is the capability's name for every page, and `Sec-Fetch-*` is not sent to
 * names without encryption. So a browser is refused here as such. It gives itself away by `Origin`, by `Sec-Fetch-*`, or by
 * calling itself Mozilla, which a page cannot change in a request that it may send without asking first. The last counts
 * only where the credential is one that a browser adds by itself, or there is none: nobody can make it send a Bearer token.
 *
 * Host has to be the target's, or the sidecar's own: a request that means two places is refused.
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { framingProblem, isSimplePost, type Refusal, refusal, SIMPLE_POST, withoutPort } from '../../base/host-guard.ts';

/** An intercepted request's target, taken apart. */
export interface Proxied {
  /** Lower case, as it stands in the target; with its port unless that is 80. */
  readonly host: string;
  /** Path and query as they came, beginning with `/`. */
  readonly target: string;
}

const SCHEME = 'http://';
const BROWSER = refusal(
  403,
  'origin',
  'requests of browsers are refused: this proxy is for agents (a client that only calls itself Mozilla may send Proxy-Authorization: Bearer <token>)',
);
const OTHER_HOST = refusal(400, 'host', 'the Host header names another host than the request target');
const TRACE = refusal(400, 'target', 'TRACE is not passed on: it would show the headers that are added for the provider');

/** True for what is no path: a request to a proxy. */
export function isProxied(request: IncomingMessage): boolean {
  const url = request.url as string;
  return url.charCodeAt(0) !== 0x2f && url !== '*';
}

export class ProxyGuard {
  readonly #ours: ReadonlySet<string>;

  /** @param extraNames further names of this sidecar, lower case, without port. */
  constructor(extraNames: readonly string[]) {
    this.#ours = new Set(['localhost', '127.0.0.1', '[::1]', ...extraNames]);
  }

  /** Null = it may go on. */
  check(request: IncomingMessage): Refusal | null {
    const framing = framingProblem(request);
    if (framing !== null) return framing;
    const { headers } = request;
    if (isBrowser(headers)) return BROWSER;
    const proxied = readProxied(request.url as string);
    if (typeof proxied === 'string') return refusal(400, 'target', proxied);
    if (headers.host !== undefined && !this.#fits(headers.host, proxied)) return OTHER_HOST;
    if (request.method === 'TRACE') return TRACE;
    if (headers.authorization === undefined && headers['proxy-authorization'] === undefined && isSimplePost(request)) return SIMPLE_POST;
    return null;
  }

  #fits(host: string, { host: meant }: Proxied): boolean {
    const text = host.toLowerCase();
    return text === meant || text === `${meant}:80` || this.#ours.has(withoutPort(text));
  }
}

function isBrowser(headers: IncomingHttpHeaders): boolean {
  if (headers.origin !== undefined || headers['sec-fetch-site'] !== undefined || headers['sec-fetch-mode'] !== undefined) return true;
  const agent = headers['user-agent'];
  if (agent === undefined || !agent.startsWith('Mozilla/')) return false;
  return !isBearer(headers['proxy-authorization']) && !isBearer(headers.authorization);
}

function isBearer(value: string | undefined): boolean {
  return value !== undefined && value.slice(0, 7).toLowerCase() === 'bearer ';
}

/** The target taken apart, or the words of a refusal. */
export function readProxied(url: string): Proxied | string {
  if (url.slice(0, SCHEME.length).toLowerCase() !== SCHEME) {
    return url.slice(0, 8).toLowerCase() === 'https://'
      ? 'what is encrypted cannot be intercepted: write http://<capability>/…, the sidecar encrypts on the way where it is needed'
      : 'the request target must be a path, or, sent to a proxy, http://<capability>/…';
  }
  let end = SCHEME.length;
  for (; end < url.length; end++) {
    const c = url.charCodeAt(end);
    if (c === SLASH || c === QUESTION || c === HASH) break;
  }
  const authority = url.slice(SCHEME.length, end).toLowerCase();
  if (authority === '' || authority.startsWith(':')) return 'the request target names no host';
  if (authority.includes('@'))
    return 'the request target holds a credential or a range before an @: send Proxy-Authorization, or Reach-Range';
  const rest = url.slice(end);
  const target = rest.startsWith('/') ? rest : `/${rest}`;
  for (let i = 0; i < target.length; i++) {
    const c = target.charCodeAt(i);
    if (c <= 0x20 || c >= 0x7f || c === HASH) return 'the request target holds a character that must be percent-encoded';
  }
  if (climbs(target)) return 'the path has . or .. segments: a client resolves them before it asks';
  return { host: authority.endsWith(':80') ? authority.slice(0, -3) : authority, target };
}

const SLASH = 0x2f;
const QUESTION = 0x3f;
const HASH = 0x23;

/**
 * A segment that could lead a provider out of the folder that its address names, however it is written. Most targets have
 * neither a dot nor an escape behind a separator and pay one search each.
 */
export function climbs(target: string): boolean {
  const query = target.indexOf('?');
  const path = query < 0 ? target : target.slice(0, query);
  if (!path.includes('.') && !path.includes('%2e') && !path.includes('%2E')) return false;
  const plain = path.replace(/%(?:2e|2f|5c|3b)/gi, (escape) => decodeURIComponent(escape));
  return plain.split(/[/\\]/).some((segment) => /^\.{1,2}(?:;|$)/.test(segment));
}
