/**
 * Which network addresses may be reached when somebody else has written the address (SSRF). A check of the text alone is
 * not enough: numbers have many spellings, names lead anywhere and change where they lead. So the text is brought into
 * one form, every address that it leads to is judged, and the same judgement is asked again of the address at which a
 * socket is opened. Resolving and connecting are left to the callers.
 */
import { quote } from './duration.ts';
import { type AddressKind, embeddedIpv4, type IpBytes, isWithin, kindOf, parseIp } from './ip-address.ts';

/** What is allowed beside public addresses. */
export interface AddressPolicy {
  readonly allow: AllowList;
  /** This machine. */
  readonly loopback: boolean;
  /** Networks that are not routed on the Internet: 10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7. */
  readonly private: boolean;
}

export type Host = { readonly kind: 'ip'; readonly text: string; readonly ip: IpBytes } | { readonly kind: 'name'; readonly text: string };

const HOST_NAME = /^(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*$/;

/** The URL parser would read these as the end of the host, as part of something else, or not at all. */
const NOT_OF_A_HOST = /[\s:/\\@?#]/;

/**
 * A host in its one form: numbers in any spelling (`2130706433`, `0x7f.1`, `0177.0.0.1`) become the address that they
 * mean, names become lower case without a dot at the end. Null when it is neither.
 */
export function parseHost(text: string): Host | null {
  const bare = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text;
  const direct = parseIp(bare);
  if (direct !== null) return { kind: 'ip', text: bare, ip: direct };
  if (NOT_OF_A_HOST.test(bare)) return null;
  let canonical: string;
  try {
    // the WHATWG rules for http hosts: what fetch and undici would make of it
    canonical = new URL(`http://${bare}/`).hostname;
  } catch {
    return null;
  }
  if (canonical.endsWith('.')) canonical = canonical.slice(0, -1);
  const ip = parseIp(canonical);
  if (ip !== null) return { kind: 'ip', text: canonical, ip };
  return HOST_NAME.test(canonical) ? { kind: 'name', text: canonical } : null;
}

/** Names that always mean this machine, whatever a resolver says. */
export function isLoopbackName(name: string): boolean {
  return (
    name === 'localhost' ||
    name.endsWith('.localhost') ||
    name === 'localhost.localdomain' ||
    name === 'ip6-localhost' ||
    name === 'ip6-loopback'
  );
}

/** Names under which clouds hand out the credentials of a machine: what they lead to depends on who asks, so they are judged as names. */
const METADATA_NAMES: ReadonlySet<string> = new Set([
  'metadata',
  'metadata.google.internal',
  'metadata.goog',
  'metadata.azure.internal',
  'metadata.platformequinix.com',
  'metadata.packet.net',
  'metadata.tencentyun.com',
  'instance-data',
  'instance-data.ec2.internal',
]);

/** Addresses, networks and host names that an operator has allowed. */
export class AllowList {
  readonly entries: readonly string[];
  readonly #networks: readonly { readonly bytes: IpBytes; readonly bits: number }[];
  readonly #names: ReadonlySet<string>;
  /** `.example.com` for `*.example.com`. */
  readonly #suffixes: readonly string[];

  private constructor(
    entries: readonly string[],
    networks: AllowList['networks'],
    names: ReadonlySet<string>,
    suffixes: readonly string[],
  ) {
    this.entries = entries;
    this.#networks = networks;
    this.#names = names;
    this.#suffixes = suffixes;
  }

  get networks(): readonly { readonly bytes: IpBytes; readonly bits: number }[] {
    return this.#networks;
  }

  /** `10.1.2.3`, `10.1.0.0/16`, `fd00::/8`, `billing.internal` or `*.internal`; else what is wrong with the first that is none of these. */
  static parse(entries: readonly string[]): AllowList | { readonly problem: string } {
    const networks: { bytes: IpBytes; bits: number }[] = [];
    const names = new Set<string>();
    const suffixes: string[] = [];
    for (const entry of entries) {
      const network = parseNetwork(entry);
      if (network !== null) {
        networks.push(network);
        continue;
      }
      const isWild = entry.startsWith('*.');
      const host = entry.includes('/') ? null : parseHost(isWild ? entry.slice(2) : entry);
      if (host === null || (isWild && host.kind === 'ip'))
        return {
          problem: `${quote(entry)} is not an address, a network or a host name: write one such as 10.1.2.3, 10.1.0.0/16, fd00::/8, billing.internal or *.internal`,
        };
      if (host.kind === 'ip') networks.push({ bytes: host.ip, bits: host.ip.length * 8 });
      else if (isWild) suffixes.push(`.${host.text}`);
      else names.add(host.text);
    }
    return new AllowList(entries, networks, names, suffixes);
  }

  hasName(name: string): boolean {
    return this.#names.has(name) || this.#suffixes.some((suffix) => name.endsWith(suffix));
  }

  hasIp(ip: IpBytes): boolean {
    const inner = embeddedIpv4(ip);
    return this.#networks.some(({ bytes, bits }) => isWithin(ip, bytes, bits) || (inner !== null && isWithin(inner, bytes, bits)));
  }
}

function parseNetwork(text: string): { readonly bytes: IpBytes; readonly bits: number } | null {
  const slash = text.indexOf('/');
  if (slash < 0) return null;
  const bytes = parseIp(text.slice(0, slash));
  const bits = text.slice(slash + 1);
  if (bytes === null || !/^\d{1,3}$/.test(bits) || Number(bits) > bytes.length * 8) return null;
  return { bytes, bits: Number(bits) };
}

export const NOTHING_ALLOWED: AllowList = AllowList.parse([]) as AllowList;

const WORDS: Readonly<Record<AddressKind, string>> = {
  public: 'a public address',
  unspecified: 'an address that stands for no machine or for this one',
  loopback: 'a loopback address (this machine)',
  private: 'a private address',
  'link-local': 'a link-local address',
  metadata: 'the address at which clouds hand out the credentials of a machine',
  multicast: 'a multicast address',
  broadcast: 'the broadcast address',
  reserved: 'a reserved address',
};

/** Why a connection to this address (as text, canonical) is refused; null when it is allowed. `name`: the host name that led here. */
export function judgeAddress(address: string, policy: AddressPolicy, name: string | null = null): string | null {
  const ip = parseIp(address);
  if (ip === null) return `${quote(address)} is not an IP address`;
  const kind = kindOf(ip);
  if (kind === 'public' || (kind === 'loopback' && policy.loopback) || (kind === 'private' && policy.private)) return null;
  // an allowed name may lead to private networks, never to the credentials of the machine: those only by their own address
  if (policy.allow.hasIp(ip) || (kind !== 'metadata' && name !== null && policy.allow.hasName(name))) return null;
  const shown = name === null ? address : `${quote(name)} leads to ${address}, which`;
  return `${shown} is ${WORDS[kind]}, which is not allowed here`;
}

/** The same of a host as written, before names are resolved: null = allowed, or a name whose addresses must be judged one by one. */
export function judgeHost(host: Host, policy: AddressPolicy): string | null {
  if (host.kind === 'ip') return judgeAddress(host.text, policy);
  // as with the addresses: not even an allowed name
  if (METADATA_NAMES.has(host.text))
    return `${quote(host.text)} is a name under which clouds hand out the credentials of a machine, which is not allowed here`;
  if (isLoopbackName(host.text) && !policy.loopback && !policy.allow.hasName(host.text))
    return `${quote(host.text)} is ${WORDS.loopback}, which is not allowed here`;
  return null;
}
