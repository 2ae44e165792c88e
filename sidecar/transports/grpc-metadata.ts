/** The header block of a gRPC request. What may be in it from the caller is decided by `hygiene`. */
import { type OutgoingHttpHeaders, sensitiveHeaders } from 'node:http2';

const NOT_ASCII = /[^\x20-\x7e]/;
/** gRPC allows eight digits. */
const MAX_TIMEOUT_MS = 99_999_999;

/** @param metadata flat name, value …: names in lower case. A name that stands there twice is sent twice. */
export function headersFor(
  scheme: string,
  authority: string,
  path: string,
  timeoutMs: number,
  metadata: readonly string[],
  secret: string | null = null,
): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders & { [sensitiveHeaders]?: string[] } = {
    ':method': 'POST',
    ':scheme': scheme,
    ':authority': authority,
    ':path': path,
    te: 'trailers',
    'content-type': 'application/grpc',
    'grpc-timeout': `${Math.max(1, Math.min(MAX_TIMEOUT_MS, Math.floor(timeoutMs)))}m`,
    'grpc-accept-encoding': 'identity',
  };
  for (let i = 0; i + 1 < metadata.length; i += 2) {
    const name = metadata[i] as string;
    const value = metadata[i + 1] as string;
    // gRPC's own words, and what it has no form for: metadata is printable ASCII.
    if (name.startsWith('grpc-') || name in CONNECTION || NOT_ASCII.test(value)) continue;
    const known = headers[name];
    if (known === undefined) headers[name] = value;
    else if (Array.isArray(known)) known.push(value);
    else headers[name] = [String(known), value];
  }
  headers['user-agent'] ??= 'agent-reach';
  // Never kept in the compression table of either end.
  if (secret !== null) headers[sensitiveHeaders] = [secret];
  return headers;
}

/** Names that would be sent twice, or mean another thing here. */
const CONNECTION: Readonly<Record<string, true>> = { te: true, 'content-type': true, 'content-length': true, host: true, accept: true };
