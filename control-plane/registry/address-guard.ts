/**
 * The addresses that a registration brings (C117): whoever registers one makes others connect to it. Judged here is what
 * is written and every address that a name leads to *now*; whoever connects judges again, since names flip. A name that
 * cannot be resolved here may be one that its sidecar can resolve: it is let in, and judged when it is connected to.
 */
import { type AddressPolicy, type Host, judgeAddress, judgeHost, parseHost } from '../../base/address-guard.ts';
import type { ProviderRecord } from '../../proto/language/types.ts';

/** Every address of a host name; empty = it leads nowhere. */
export type Resolve = (name: string) => Promise<readonly string[]>;

export interface EndpointGuard {
  /** For third parties, which every sidecar connects to. */
  readonly direct: AddressPolicy;
  /** For what a sidecar hosts itself: only that sidecar connects to it. */
  readonly hosted: AddressPolicy;
  /** `host:port` of the control plane and of the sidecars' mesh ports: never a target, or a call would run in a circle. */
  readonly ownPorts: ReadonlySet<string>;
  /** The same of the servers of the bus: only what speaks NATS may be registered there. */
  readonly busPorts?: ReadonlySet<string>;
}

/** Schemes that a transport understands; of one that is not named here the form is judged, whatever its scheme. */
const SCHEMES: Readonly<Record<string, readonly string[]>> = {
  http: ['http:', 'https:'],
  jsonrpc: ['http:', 'https:'],
  'json-rpc': ['http:', 'https:'],
  grpc: ['grpc:', 'grpcs:', 'http:', 'https:'],
  nats: ['nats:', 'tls:'],
};

/** What an address without a scheme begins with, where a transport takes one. */
const USUAL_SCHEME: Readonly<Record<string, string>> = { grpc: 'grpc://', nats: 'nats://' };

const DEFAULT_PORTS: Readonly<Record<string, string>> = {
  'http:': '80',
  'https:': '443',
  'grpcs:': '443',
  'nats:': '4222',
  'tls:': '4222',
};

/** Why an endpoint may not be registered; null = it may. */
export async function judgeEndpoint(record: ProviderRecord, guard: EndpointGuard, resolve: Resolve): Promise<string | null> {
  const { type, address } = record.endpoint;
  // Each server of a list is connected to.
  for (const each of type === 'nats' ? address.split(',') : [address]) {
    const problem = await judgeOne(written(type, each.trim()), record, guard, resolve);
    if (problem !== null) return problem;
  }
  return null;
}

/** With its scheme. Where `dns:///name:port` leads, `grpc://name:port` does; `dns://server/…` asks a server that nobody judges. */
function written(type: string, address: string): string {
  const scheme = USUAL_SCHEME[type];
  if (scheme === undefined) return address;
  const plain = type === 'grpc' ? address.replace(/^dns:(?:\/\/\/)?(?!\/)/i, '') : address;
  return plain.includes('://') ? plain : scheme + plain;
}

async function judgeOne(address: string, record: ProviderRecord, guard: EndpointGuard, resolve: Resolve): Promise<string | null> {
  const { type } = record.endpoint;
  const schemes = SCHEMES[type];
  if (schemes === undefined && !address.includes('://')) return null;
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    return `the address of ${record.agentId} cannot be read`;
  }
  if (schemes !== undefined && !schemes.includes(url.protocol))
    return `the address of ${record.agentId} begins with ${url.protocol}//, and the transport ${type} takes ${schemes.map((each) => `${each}//`).join(' or ')}`;
  if (url.username !== '' || url.password !== '')
    return `the address of ${record.agentId} holds a user name or password: name the secret under credential`;
  const host = parseHost(url.hostname);
  if (host === null) return `the host in the address of ${record.agentId} cannot be read`;
  const policy = record.via === null ? guard.direct : guard.hosted;
  return (
    ownPortProblem(record, host, url, guard) ?? judgeHost(host, policy) ?? (await judgeName(host, policy, url, guard, record, resolve))
  );
}

async function judgeName(
  host: Host,
  policy: AddressPolicy,
  url: URL,
  guard: EndpointGuard,
  record: ProviderRecord,
  resolve: Resolve,
): Promise<string | null> {
  if (host.kind === 'ip') return null;
  for (const address of await resolve(host.text)) {
    const problem = judgeAddress(address, policy, host.text);
    if (problem !== null) return problem;
    const reached = parseHost(address);
    const own = reached === null ? null : ownPortProblem(record, reached, url, guard);
    if (own !== null) return own;
  }
  return null;
}

function ownPortProblem(record: ProviderRecord, host: Host, url: URL, guard: EndpointGuard): string | null {
  const place = placeOf(host, url);
  if (record.endpoint.type !== 'nats' && guard.busPorts?.has(place) === true)
    return `the address of ${record.agentId} (${place}) is the server of Agent-Reach’s own bus, and nothing else is spoken there`;
  return guard.ownPorts.has(place)
    ? `the address of ${record.agentId} (${place}) is a port of Agent-Reach itself: a call would come back to where it was sent`
    : null;
}

function placeOf(host: Host, url: URL): string {
  // all spellings of this machine are one
  const text = host.text === 'localhost' || host.text === '::1' || host.text.startsWith('127.') ? 'loopback' : host.text;
  return `${text}:${url.port === '' ? (DEFAULT_PORTS[url.protocol] ?? '') : url.port}`;
}

/** `host:port` of an http(s) address as `ownPorts` has it; null when it cannot be read. */
export function ownPort(address: string): string | null {
  try {
    const url = new URL(address);
    const host = parseHost(url.hostname);
    return host === null ? null : placeOf(host, url);
  } catch {
    return null;
  }
}
