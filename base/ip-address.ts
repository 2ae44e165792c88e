/**
 * IP addresses as bytes, and what kind of address each is. An IPv6 address that carries an IPv4 one (mapped, compatible,
 * NAT64, 6to4, Teredo, ISATAP) is of the kind of the one that it carries, since that is where the packets go.
 */
import { isIP } from 'node:net';

export type AddressKind =
  | 'public'
  | 'unspecified'
  | 'loopback'
  | 'private'
  | 'link-local'
  | 'metadata'
  | 'multicast'
  | 'broadcast'
  | 'reserved';

/** 4 or 16 bytes, most significant first. */
export type IpBytes = readonly number[];

const DECIMAL_OCTET = /^(?:0|[1-9]\d{0,2})$/;

/** The bytes of an address in its canonical text form (no leading zeros, no zone, no brackets); null when it is none. */
export function parseIp(text: string): IpBytes | null {
  switch (isIP(text)) {
    case 4:
      return text.split('.').every((part) => DECIMAL_OCTET.test(part)) ? text.split('.').map(Number) : null;
    case 6:
      return text.includes('%') ? null : parseIpv6(text);
    default:
      return null;
  }
}

/** `text` is known to be well formed. */
function parseIpv6(text: string): IpBytes {
  const dot = text.indexOf('.');
  let groups = text;
  if (dot >= 0) {
    const start = text.lastIndexOf(':') + 1;
    const [a, b, c, d] = text.slice(start).split('.').map(Number) as [number, number, number, number];
    groups = `${text.slice(0, start)}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  }
  const [head = '', tail] = groups.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === undefined || tail === '' ? [] : tail.split(':');
  const missing = tail === undefined ? 0 : 8 - before.length - after.length;
  const words = [...before, ...Array.from({ length: missing }, () => '0'), ...after];
  return words.flatMap((word) => {
    const value = Number.parseInt(word, 16);
    return [value >> 8, value & 255];
  });
}

interface Block {
  readonly bytes: IpBytes;
  readonly bits: number;
}

function block(text: string): Block {
  const slash = text.indexOf('/');
  return { bytes: parseIp(text.slice(0, slash)) as IpBytes, bits: Number(text.slice(slash + 1)) };
}

/** True when the first `bits` bits are the same; addresses of different length never are. */
export function isWithin(ip: IpBytes, bytes: IpBytes, bits: number): boolean {
  if (ip.length !== bytes.length) return false;
  const whole = bits >> 3;
  for (let i = 0; i < whole; i++) if (ip[i] !== bytes[i]) return false;
  const rest = bits & 7;
  return rest === 0 || ((ip[whole] as number) ^ (bytes[whole] as number)) >> (8 - rest) === 0;
}

/** First match wins. */
const KINDS: readonly (readonly [AddressKind, readonly Block[]])[] = [
  // where clouds keep the credentials of the machine: AWS, GCP, Azure and others; ECS; Alibaba; Oracle; AWS and GCP over IPv6
  [
    'metadata',
    [
      '169.254.169.254/32',
      '169.254.170.2/32',
      '169.254.170.23/32',
      '100.100.100.200/32',
      '192.0.0.192/32',
      'fd00:ec2::254/128',
      'fd00:ec2::23/128',
      'fd20:ce::254/128',
    ].map(block),
  ],
  ['broadcast', ['255.255.255.255/32'].map(block)],
  ['unspecified', ['0.0.0.0/8', '::/128'].map(block)],
  ['loopback', ['127.0.0.0/8', '::1/128'].map(block)],
  ['link-local', ['169.254.0.0/16', 'fe80::/10'].map(block)],
  ['private', ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', 'fc00::/7', 'fec0::/10', '198.18.0.0/15'].map(block)],
  ['multicast', ['224.0.0.0/4', 'ff00::/8'].map(block)],
  [
    'reserved',
    [
      '240.0.0.0/4',
      '192.0.0.0/24',
      '192.0.2.0/24',
      '198.51.100.0/24',
      '203.0.113.0/24',
      '192.88.99.0/24',
      '100::/64',
      '2001:db8::/32',
      '5f00::/16',
    ].map(block),
  ],
];

const MAPPED = block('::ffff:0:0/96');
const TRANSLATED = block('::ffff:0:0:0/96');
const COMPATIBLE = block('::/96');
const NAT64 = block('64:ff9b::/96');
const NAT64_LOCAL = block('64:ff9b:1::/48');
const SIX_TO_FOUR = block('2002::/16');
const TEREDO = block('2001::/32');

/** The IPv4 address that an IPv6 address carries; null when it carries none. */
export function embeddedIpv4(ip: IpBytes): IpBytes | null {
  if (ip.length !== 16) return null;
  for (const { bytes, bits } of [MAPPED, TRANSLATED, NAT64, NAT64_LOCAL]) if (isWithin(ip, bytes, bits)) return ip.slice(12);
  if (isWithin(ip, COMPATIBLE.bytes, 96))
    return ip.slice(0, 15).every((byte) => byte === 0) && (ip[15] as number) <= 1 ? null : ip.slice(12);
  if (isWithin(ip, SIX_TO_FOUR.bytes, 16)) return ip.slice(2, 6);
  if (isWithin(ip, TEREDO.bytes, 32)) return ip.slice(12).map((byte) => byte ^ 255);
  // ISATAP: …:0:5efe:a.b.c.d or …:200:5efe:a.b.c.d
  if ((ip[8] === 0 || ip[8] === 2) && ip[9] === 0 && ip[10] === 0x5e && ip[11] === 0xfe) return ip.slice(12);
  return null;
}

export function kindOf(ip: IpBytes): AddressKind {
  for (const [kind, blocks] of KINDS) for (const { bytes, bits } of blocks) if (isWithin(ip, bytes, bits)) return kind;
  const inner = embeddedIpv4(ip);
  if (inner !== null) return kindOf(inner);
  // of IPv6 only 2000::/3 is given out
  return ip.length === 16 && ((ip[0] as number) & 0xe0) !== 0x20 ? 'reserved' : 'public';
}
