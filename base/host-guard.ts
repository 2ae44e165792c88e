/**
 * What may not come in at a port at all, whatever the path: decided on the request's head, before routing, for every route
 * and for paths that do not exist.
 *
 * A port on localhost is open to every web page in the user's browser: by DNS rebinding (then `Host` is the page's name),
 * by a request that the browser sends across sites (then `Origin` or `Sec-Fetch-Site` says so), or by one that needs no
 * preflight because its content type is a form's. None of these headers can be set by a page's script, so they can be
 * believed. CORS would only hide the answer; the work would have been done.
 *
 * Framing: a body whose length two readers could see differently hides a second request. The parser refuses most of it;
 * what is left (a transfer coding other than `chunked`, one in HTTP/1.0) is refused here.
 *
 * Who is calling, and whether the caller may, is not decided here.
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

export interface Refusal {
  readonly status: 400 | 401 | 403;
  /** For a metric: one of a few fixed words. */
  readonly reason: 'framing' | 'host' | 'origin' | 'simple_post' | 'target' | 'api_token';
  readonly detail: string;
}

export const refusal = (status: Refusal['status'], reason: Refusal['reason'], detail: string): Refusal =>
  Object.freeze({ status, reason, detail });

const BAD_CODING = refusal(400, 'framing', 'the only transfer coding taken is `chunked`, and only in HTTP/1.1');
export const BAD_TARGET = refusal(400, 'target', 'the request target must be a path');
const FOREIGN_ORIGIN = refusal(403, 'origin', 'requests of web pages of another origin are refused');
export const SIMPLE_POST = refusal(
  403,
  'simple_post',
  'a POST without credential must say what it sends: use Content-Type: application/json (form and text/plain bodies, and those that name no type, can be sent by any web page)',
);

/** What a request may be smuggled in with; null = nothing wrong. */
export function framingProblem(request: IncomingMessage): Refusal | null {
  const coding = request.headers['transfer-encoding'];
  if (coding === undefined) return null;
  if (coding.toLowerCase() !== 'chunked' || request.httpVersionMinor < 1 || request.headers['content-length'] !== undefined)
    return BAD_CODING;
  return null;
}

/** Accepted Host values are remembered as written, ports and all; a flood of ports cannot fill it. */
const KEEP_HOSTS = 64;

/** Guards a port that programs on this machine use, and browsers perhaps, as long as the page is the port's own. */
export class HostGuard {
  readonly #names: ReadonlySet<string>;
  readonly #accepted = new Set<string>();
  readonly #badHost: Refusal;

  /**
   * @param extraNames further host names, lower case, without port.
   * @param badHost what to say when the Host is none of them.
   */
  constructor(extraNames: readonly string[], badHost: string) {
    this.#names = new Set(['localhost', '127.0.0.1', '[::1]', ...extraNames]);
    this.#badHost = refusal(403, 'host', badHost);
  }

  /** Null = it may go on to routing. */
  check(request: IncomingMessage): Refusal | null {
    const framing = framingProblem(request);
    if (framing !== null) return framing;
    const { headers } = request;
    if (!this.#isOurs(headers.host)) return this.#badHost;
    if ((request.url as string).charCodeAt(0) !== 0x2f && request.url !== '*') return BAD_TARGET;
    if (headers.origin !== undefined && !isSameOrigin(headers.origin, headers.host as string)) return FOREIGN_ORIGIN;
    const site = headers['sec-fetch-site'];
    if (site !== undefined && site !== 'same-origin' && site !== 'none') return FOREIGN_ORIGIN;
    if (headers.authorization === undefined && isSimplePost(request)) return SIMPLE_POST;
    return null;
  }

  /** What is wrong with the host that a request names; null = nothing. For ports that have no HTTP/1.1 request. */
  hostProblem(host: string | undefined): Refusal | null {
    return this.#isOurs(host) ? null : this.#badHost;
  }

  #isOurs(host: string | undefined): boolean {
    if (host === undefined) return false;
    if (this.#accepted.has(host)) return true;
    if (!this.#names.has(withoutPort(host))) return false;
    if (this.#accepted.size >= KEEP_HOSTS) this.#accepted.clear();
    this.#accepted.add(host);
    return true;
  }
}

/** The host of a Host header, lower case; '' when its port is none. */
export function withoutPort(host: string): string {
  const text = host.toLowerCase();
  const colon = text.lastIndexOf(':');
  if (colon < 0 || text.endsWith(']')) return text;
  for (let i = colon + 1; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c < 0x30 || c > 0x39) return '';
  }
  return colon + 1 === text.length ? '' : text.slice(0, colon);
}

function isSameOrigin(origin: string, host: string): boolean {
  const text = origin.toLowerCase();
  const at = text.indexOf('://');
  return at > 0 && text.slice(at + 3) === host.toLowerCase() && (text.startsWith('http:') || text.startsWith('https:'));
}

/** What an HTML form, or a script without asking first, can send to another site. */
export function isSimplePost(request: IncomingMessage): boolean {
  if (request.method !== 'POST') return false;
  const type = contentType(request.headers);
  if (type === null) return hasBody(request.headers);
  return type.startsWith('text/plain') || type.startsWith('application/x-www-form-urlencoded') || type.startsWith('multipart/form-data');
}

/** Null when there is none. */
function contentType(headers: IncomingHttpHeaders): string | null {
  const value = headers['content-type'];
  if (value === undefined || value === '') return null;
  return value.startsWith('application/json') ? '' : value.trim().toLowerCase();
}

function hasBody(headers: IncomingHttpHeaders): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}
