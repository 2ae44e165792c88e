/**
 * An intercepted request at a provider that speaks HTTP: asked in the words of its client, below the address of the
 * provider. What the provider says of its own address in a redirect is put back into the client's terms, since a framework
 * that completes a path (`/orders` → `/orders/`) names the host that it was reached by, which the client cannot reach.
 */
import type { Dispatcher } from 'undici';
import type { HttpAsk } from '../call/call.ts';
import type { Reply } from '../call/reply.ts';
import type { HttpTarget } from './http-target.ts';

/** @param headers flat name, value …; what the client shows the provider is added to them. */
export function intercepted(http: HttpAsk, payload: Buffer, target: HttpTarget, headers: string[]): Dispatcher.DispatchOptions {
  const { credentials } = http;
  for (let i = 0; i + 1 < credentials.length; i += 2) {
    const name = credentials[i] as string;
    if (target.fixed === null || !target.fixed.has(name)) headers.push(name, credentials[i + 1] as string);
  }
  // A GET with an empty body has none; undici would announce one.
  const body = payload.length === 0 ? null : payload;
  return { method: http.method, path: target.basePath + http.target, headers, body };
}

/** The reply with `location` as the client has to write it. The same one when there is nothing to change. */
export function inClientTerms(reply: Reply, { url, basePath }: HttpTarget, capability: string): Reply {
  const { location } = reply.headers;
  if (typeof location !== 'string') return reply;
  const own = clientLocation(location, url.origin, basePath, capability);
  return own === location ? reply : reply.withHeaders({ ...reply.headers, location: own });
}

/** @param origin of the provider. @param basePath of its address, '' for none. */
export function clientLocation(location: string, origin: string, basePath: string, capability: string): string {
  const isAbsolute = location.slice(0, origin.length).toLowerCase() === origin && !/^[^/?#]/.test(location.slice(origin.length));
  const path = isAbsolute ? location.slice(origin.length) : location;
  if (!isAbsolute && (!path.startsWith('/') || path.startsWith('//'))) return location;
  const isBelow = basePath !== '' && path.startsWith(basePath) && !/^[^/?#]/.test(path.slice(basePath.length));
  const below = isBelow ? path.slice(basePath.length) : path;
  if (isAbsolute) return `http://${capability}${below}`;
  return below.startsWith('/') && !below.startsWith('//') ? below : `/${below.replace(/^\/+/, '')}`;
}
