/**
 * Where connections may lead when the registry names the address (SPEC R11.4): somebody registered it, and others connect.
 * It was judged at registration; but a name may lead elsewhere since, so the address at which a socket is opened is judged
 * again, here, and nothing is sent to one that is not allowed. Three kinds of provider, three answers:
 *  - hosted by this sidecar: its own machine and network, and the Internet;
 *  - a third party: the Internet, and what the operator allows in `addresses`. An address that is written as a number
 *    cannot lead elsewhere than when the registry judged it, so the registry's judgement stands;
 *  - another sidecar's mesh port: any network.
 * None of them leads to the addresses at which clouds hand out credentials, nor to a port of this sidecar itself, where a
 * call would run in a circle, nor with another protocol to the server of the bus, which would take the lines of a body for
 * commands. A table in a file is its operator's own word and is not judged.
 */
import { lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { networkInterfaces } from 'node:os';
import { type AddressPolicy, isLoopbackName, judgeAddress, judgeHost, NOTHING_ALLOWED, parseHost } from '../../base/address-guard.ts';
import { embeddedIpv4, kindOf, parseIp } from '../../base/ip-address.ts';
import { readServerAddress, type ServerAddress } from '../../base/server-address.ts';
import type { ProviderRecord } from '../../proto/language/types.ts';

const ANY_NETWORK: AddressPolicy = Object.freeze({ allow: NOTHING_ALLOWED, loopback: true, private: true });
const BUS = 'the server of Agent-Reach’s own bus, and nothing else is spoken there';
const CIRCLE = 'a port of this sidecar itself: a call would come back to where it was sent';

export class Destinations {
  readonly hosted: Destination;
  readonly thirdParty: Destination;
  readonly mesh: Destination;
  /** Ports at which this sidecar listens, on whichever of its addresses. */
  readonly #ownPorts = new Set<number>();
  readonly #ownAddresses: ReadonlySet<string>;
  #bus: readonly ServerAddress[] = [];

  /**
   * @param allowed where third parties may stand beside public addresses.
   * @param resolve how names become addresses; the system's way unless a test says otherwise.
   */
  constructor(allowed: AddressPolicy, resolve: LookupFunction = lookup) {
    const isOwn = (address: string, port: number): boolean => this.#ownPorts.has(port) && this.#isHere(address);
    const network = { ...ANY_NETWORK, allow: allowed.allow };
    const isBus = (host: string, port: number): boolean =>
      this.#bus.some((server) => server.port === port && (server.host === host || (this.#isNear(server.host) && this.#isNear(host))));
    this.hosted = new Destination(network, false, isOwn, isBus, resolve);
    this.thirdParty = new Destination(allowed, true, isOwn, isBus, resolve);
    this.mesh = new Destination(network, false, isOwn, isBus, resolve);
    this.#ownAddresses = new Set(
      Object.values(networkInterfaces()).flatMap((addresses) => (addresses ?? []).map(({ address }) => address)),
    );
  }

  /** Why this sidecar may not send anything to a provider that it would have to reach itself; null = it may try. */
  problemOf({ via, endpoint }: ProviderRecord, own: string): string | null {
    if ((via !== null && via !== own) || !/^https?:/i.test(endpoint.address) || !URL.canParse(endpoint.address)) return null;
    return (via === own ? this.hosted : this.thirdParty).refusal(new URL(endpoint.address));
  }

  /** A port has been opened. */
  own(port: number): void {
    this.#ownPorts.add(port);
  }

  /** The servers of the bus, as the settings name them. */
  bus(servers: readonly string[]): void {
    this.#bus = servers.map(readServerAddress).filter((each): each is ServerAddress => typeof each !== 'string');
  }

  /** This machine, by name or by number. */
  #isNear(host: string): boolean {
    return isLoopbackName(host) || this.#isHere(host);
  }

  #isHere(address: string): boolean {
    const ip = parseIp(address);
    if (ip === null) return false;
    const inner = embeddedIpv4(ip);
    const kind = kindOf(inner ?? ip);
    return kind === 'loopback' || kind === 'unspecified' || this.#ownAddresses.has(inner === null ? address : inner.join('.'));
  }
}

export class Destination {
  readonly #policy: AddressPolicy;
  readonly #believesNumbers: boolean;
  readonly #isOwn: (address: string, port: number) => boolean;
  readonly #isBus: (host: string, port: number) => boolean;
  readonly #resolve: LookupFunction;

  constructor(
    policy: AddressPolicy,
    believesNumbers: boolean,
    isOwn: (address: string, port: number) => boolean,
    isBus: (host: string, port: number) => boolean,
    resolve: LookupFunction,
  ) {
    this.#policy = policy;
    this.#believesNumbers = believesNumbers;
    this.#isOwn = isOwn;
    this.#isBus = isBus;
    this.#resolve = resolve;
  }

  /**
   * Why nothing may be sent there, as far as the address alone tells; null = nothing is against it, or it is a name.
   * @param speaksNats the server of the bus may be spoken to, in its own language
   */
  refusal(url: URL, speaksNats = false): string | null {
    const host = parseHost(url.hostname);
    if (host === null) return 'its host cannot be read';
    if (!speaksNats && this.#isBus(host.text, portOf(url))) return `${host.text}:${portOf(url)} is ${BUS}`;
    if (host.kind === 'name') return judgeHost(host, this.#policy);
    if (this.#isOwn(host.text, portOf(url))) return `${host.text}:${portOf(url)} is ${CIRCLE}`;
    return judgeHost(host, this.#believesNumbers ? { ...ANY_NETWORK, allow: this.#policy.allow } : this.#policy);
  }

  /**
   * Gives only addresses at which a socket may be opened; an error with the reason when a name leads to none.
   * @param resolve another way of finding addresses (a name server that the address names).
   * @param speaksNats see `refusal`
   */
  lookupFor(url: URL, resolve: LookupFunction = this.#resolve, speaksNats = false): LookupFunction {
    const port = portOf(url);
    return (hostname, options, callback) => {
      resolve(hostname, { ...options, all: true }, (error, found) => {
        if (error !== null) return callback(error, '', 0);
        const addresses = typeof found === 'string' ? [] : found;
        const reasons = addresses.map(({ address }) =>
          !speaksNats && this.#isBus(address, port)
            ? `${hostname} leads to ${address}:${port}, ${BUS}`
            : this.#problem(address, port, hostname),
        );
        const allowed = addresses.filter((_, i) => reasons[i] === null);
        const [first] = allowed;
        if (first === undefined) return callback(new NotAllowed(reasons[0] ?? 'the name leads nowhere'), '', 0);
        if (options.all === true) callback(null, allowed);
        else callback(null, first.address, first.family);
      });
    };
  }

  #problem(address: string, port: number, name: string): string | null {
    return this.#isOwn(address, port) ? `${name} leads to ${address}:${port}, ${CIRCLE}` : judgeAddress(address, this.#policy, name);
  }
}

/** Nothing may be sent there; the message is the reason. */
export class NotAllowed extends Error {}

function portOf(url: URL): number {
  return url.port !== '' ? Number(url.port) : url.protocol === 'https:' ? 443 : 80;
}
