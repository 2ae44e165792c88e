/**
 * All connections to one gRPC server name. Resolves it once, again after `refresh`, and after connections were lost or
 * refused (at most once a second), never per call. Calls go round over the addresses; one that cannot be connected to is
 * left alone for a while as long as another serves. Connects only when a call wants it: a server that keeps closing is not
 * hammered by us. Calls wait in the order of arrival where a server takes only so many at once.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Destination } from './destinations.ts';
import { Connection, type ConnectionOwner } from './grpc-connection.ts';
import { bracketed, type GrpcEndpoint } from './grpc-endpoint.ts';
import { Names } from './grpc-names.ts';

/** A name is not looked up more often than this, whatever happens. */
const MIN_LOOKUP_MS = 1_000;
/** An address that refused is left alone from the first figure on, doubling to the second, while others serve. */
const BACKOFF_MS = 250;
const BACKOFF_MAX_MS = 5_000;
/** Opened to one address at most, when the server takes few calls on each. */
const MAX_CONNECTIONS = 8;
/** A connection that nothing uses is closed after this long. */
const IDLE_MS = 300_000;
const IDLE_LOOK_MS = 60_000;
const SWEEP_AT = 64;
const KEEPALIVE_MAX_MS = 7_200_000;

/** What wants a connection. */
export interface Tenant {
  /** Nobody waits for it any more. */
  readonly isSettled: boolean;
  start(connection: Connection): void;
  /** There is no connection; it was never sent. */
  refused(code: Code, words: string): void;
}

interface Place {
  readonly address: string;
  retryAt: number;
  failures: number;
}

export interface ChannelSettings {
  readonly clock: Clock;
  readonly connectTimeoutMs: number;
  readonly warn: (words: string) => void;
}

export class Channel implements ConnectionOwner {
  readonly names: Names;
  readonly authority: string;
  /** Connections made so far; a change means that the server may be another one. */
  epoch = 0;
  usedAt = 0;
  closed = false;
  readonly #endpoint: GrpcEndpoint;
  readonly #settings: ChannelSettings;
  #places: Place[] = [];
  readonly #connections: Connection[] = [];
  #waiting: Tenant[] = [];
  #turn = 0;
  #resolvedAt = Number.NEGATIVE_INFINITY;
  #nextLookAt = 0;
  #isResolving = false;
  /** A connection was lost or refused since the name was looked up. */
  #isDoubtful = false;
  #keepaliveMs: number | null;
  #hasWarned = false;
  #idleTimer: Timer | null = null;
  #whenEmpty: (() => void) | null = null;
  /** Connections in a row that came to be and went without having taken a call. */
  #barren = 0;
  /** Nothing is opened before, since the last ones were of no use. */
  #restUntil = 0;
  #restTimer: Timer | null = null;
  /** Those that nobody waits for any more are taken out of the waiting list at this length. */
  #sweepAt = SWEEP_AT;
  /** Why the name led nowhere; '' = it leads somewhere, or has not been looked up. */
  #nowhere = '';

  constructor(endpoint: GrpcEndpoint, destination: Destination | null, settings: ChannelSettings) {
    this.names = new Names(endpoint.address, destination);
    this.authority = `${bracketed(endpoint.address.host)}:${endpoint.address.port}`;
    this.#endpoint = endpoint;
    this.#settings = settings;
    this.#keepaliveMs = endpoint.keepaliveMs;
  }

  /** For messages, and as `:authority`. */
  get host(): string {
    return this.authority;
  }

  get scheme(): string {
    return this.#endpoint.address.isTls ? 'https' : 'http';
  }

  get openConnections(): number {
    return this.#connections.length;
  }

  /** Calls without a connection; for tests. */
  get waiting(): number {
    return this.#waiting.length;
  }

  get isIdle(): boolean {
    return this.#waiting.length === 0 && this.#connections.every((connection) => connection.active === 0);
  }

  run(tenant: Tenant): void {
    if (this.closed) return tenant.refused(Code.connection_lost, 'the sidecar is closing its connections');
    if (this.#settings.clock.now() >= this.#nextLookAt && this.#places.length > 0) this.#look();
    const connection = this.#waiting.length === 0 ? this.#pick() : null;
    if (connection !== null) return tenant.start(connection);
    this.#waiting.push(tenant);
    if (this.#waiting.length >= this.#sweepAt) this.#sweep();
    this.#provide();
  }

  /** Ends every connection, whatever runs on it; resolves when none is left. */
  async close(): Promise<void> {
    this.closed = true;
    this.#idleTimer?.cancel();
    this.#restTimer?.cancel();
    this.names.close();
    this.#refuseAll(Code.connection_lost, 'the sidecar is closing its connections');
    for (const connection of this.#connections) connection.destroy();
    if (this.#connections.length > 0) await new Promise<void>((resolve) => (this.#whenEmpty = resolve));
  }

  // What connections call.

  ready(connection: Connection): void {
    this.epoch++;
    const place = this.#placeOf(connection.address);
    if (place !== null) {
      place.failures = 0;
      place.retryAt = 0;
    }
    this.#idleTimer ??= this.#settings.clock.after(IDLE_LOOK_MS, () => this.#dropIdle());
    if (place === null && this.#waiting.length === 0) connection.leave();
    this.room(connection);
  }

  failed(connection: Connection, code: Code, words: string): void {
    this.#remove(connection);
    const now = this.#settings.clock.now();
    const place = this.#placeOf(connection.address);
    if (place !== null) {
      place.failures++;
      place.retryAt = now + Math.min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** (place.failures - 1));
    }
    this.#doubtful();
    if (this.closed || this.#waiting.length === 0 || this.#connections.some(isComingOrUsable)) return;
    // Nobody is left: perhaps the name leads elsewhere by now.
    if (this.#mayLookUp(now)) this.#resolve(code, words);
    else this.#refuseAll(code, words);
  }

  leaving(connection: Connection): void {
    this.#writeOff(connection);
    this.#doubtful();
    this.#provide();
  }

  lost(connection: Connection): void {
    this.#writeOff(connection);
    this.#remove(connection);
    this.#doubtful();
    this.#provide();
  }

  room(connection: Connection): void {
    while (connection.hasRoom) {
      const tenant = this.#nextWaiting();
      if (tenant === null) return;
      tenant.start(connection);
    }
    if (this.#waiting.length > 0) this.#provide();
  }

  tooManyPings(): void {
    if (this.#keepaliveMs === null) return;
    this.#keepaliveMs = Math.min(KEEPALIVE_MAX_MS, this.#keepaliveMs * 2);
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.#settings.warn(`${this.host} is pinged more often than it allows: keepalive is doubled to ${this.#keepaliveMs} ms; set it higher`);
  }

  /** What a ping is sent after, now. */
  get keepaliveMs(): number | null {
    return this.#keepaliveMs;
  }

  /** The first that was of no use may have met a restart; a server that goes on so is not hammered. */
  #writeOff(connection: Connection): void {
    if (connection.isWrittenOff) return;
    connection.isWrittenOff = true;
    if (connection.hasBegun) this.#barren = 0;
    else if (++this.#barren > 1)
      this.#restUntil = this.#settings.clock.now() + Math.min(BACKOFF_MAX_MS, BACKOFF_MS * 2 ** (this.#barren - 2));
  }

  /** False until the rest is over; somebody who waits is provided for then. */
  #mayConnect(): boolean {
    this.#sweep();
    if (this.#waiting.length === 0) return false;
    const { clock } = this.#settings;
    const restMs = this.#restUntil - clock.now();
    if (restMs <= 0) return true;
    this.#restTimer ??= clock.after(restMs, () => {
      this.#restTimer = null;
      this.#provide();
    });
    return false;
  }

  /** A server that takes no calls must not keep those that nobody waits for any more. */
  #sweep(): void {
    this.#waiting = this.#waiting.filter(isWanted);
    this.#sweepAt = Math.max(SWEEP_AT, 2 * this.#waiting.length);
  }

  #remove(connection: Connection): void {
    const at = this.#connections.indexOf(connection);
    if (at >= 0) this.#connections.splice(at, 1);
    if (this.#connections.length > 0) return;
    this.#idleTimer?.cancel();
    this.#idleTimer = null;
    this.#whenEmpty?.();
  }

  #pick(): Connection | null {
    const all = this.#connections;
    for (let i = 0; i < all.length; i++) {
      this.#turn = this.#turn + 1 >= all.length ? 0 : this.#turn + 1;
      const connection = all[this.#turn] as Connection;
      if (connection.hasRoom) return connection;
    }
    return null;
  }

  /** Somebody waits: sees to it that there will be a connection, or an answer. */
  #provide(): void {
    if (this.#waiting.length === 0 || this.closed) return;
    if (this.#places.length === 0) {
      // Nobody knew it a moment ago: the name server is not asked for every call.
      if (this.#nowhere !== '' && !this.#isResolving && this.#settings.clock.now() - this.#resolvedAt < MIN_LOOKUP_MS)
        return this.#refuseAll(Code.connect_timeout, this.#nowhere);
      return this.#resolve(Code.connect_timeout, '');
    }
    if (this.#connections.some(({ state }) => state === 'connecting')) return;
    if (!this.#connections.some(({ isUsable }) => isUsable)) {
      if (!this.#mayConnect()) return;
      for (const place of this.#places) this.#connect(place.address);
      return;
    }
    // All are full: one more where there are fewest.
    let least: Place | null = null;
    let fewest = MAX_CONNECTIONS;
    for (const place of this.#places) {
      const open = this.#connections.filter(({ address, isUsable }) => isUsable && address === place.address).length;
      if (open > 0 && open < fewest) {
        least = place;
        fewest = open;
      }
    }
    if (least !== null && this.#mayConnect()) this.#connect(least.address);
  }

  #connect(address: string): void {
    const { clock, connectTimeoutMs } = this.#settings;
    const { address: at, keepaliveTimeoutMs } = this.#endpoint;
    const settings = { clock, at, connectTimeoutMs, keepaliveMs: this.#keepaliveMs, keepaliveTimeoutMs };
    this.#connections.push(new Connection(address, settings, this));
  }

  /** Now and then, with a call: is the name due, is there an address without a connection? */
  #look(): void {
    const now = this.#settings.clock.now();
    const dueAt = this.#resolvedAt + (this.#isDoubtful ? MIN_LOOKUP_MS : this.#endpoint.refreshMs);
    if (this.names.isName && now >= dueAt) this.#resolve(Code.connect_timeout, '');
    let nextAt = this.names.isName ? Math.max(dueAt, now + 50) : Number.POSITIVE_INFINITY;
    for (const place of this.#places) {
      if (this.#connections.some((connection) => connection.address === place.address && isComingOrUsable(connection))) continue;
      if (place.retryAt > now) nextAt = Math.min(nextAt, place.retryAt);
      else if (this.#places.length > 1 || this.#connections.length === 0) this.#connect(place.address);
    }
    this.#nextLookAt = nextAt;
  }

  #doubtful(): void {
    this.#isDoubtful = true;
    this.#nextLookAt = 0;
  }

  #mayLookUp(now: number): boolean {
    return this.names.isName && !this.#isResolving && now - this.#resolvedAt >= MIN_LOOKUP_MS;
  }

  /** @param words what those who wait are told when the name leads to nothing new; '' = what the lookup says. */
  #resolve(code: Code, words: string): void {
    if (this.#isResolving) return;
    this.#isResolving = true;
    void this.names.find().then((found) => {
      this.#isResolving = false;
      this.#resolvedAt = this.#settings.clock.now();
      this.#isDoubtful = false;
      this.#nextLookAt = 0;
      if (this.closed) return;
      const isOther = 'addresses' in found && this.#replace(found.addresses);
      this.#nowhere = 'problem' in found ? `no connection to ${this.host}: ${found.problem}` : '';
      if (this.#connections.some(isComingOrUsable)) return this.#provide();
      if (this.#nowhere !== '' && this.#places.length === 0) this.#refuseAll(Code.connect_timeout, this.#nowhere);
      else if (!isOther && words !== '') this.#refuseAll(code, words);
      else this.#provide();
    });
  }

  /** True when there is an address that was not known. Connections to those that are gone end when their calls have. */
  #replace(addresses: readonly string[]): boolean {
    const known = new Map(this.#places.map((place) => [place.address, place]));
    const isOther = addresses.some((address) => !known.has(address));
    this.#places = addresses.map((address) => known.get(address) ?? { address, retryAt: 0, failures: 0 });
    for (const connection of this.#connections) if (!addresses.includes(connection.address)) connection.leave();
    return isOther;
  }

  #placeOf(address: string): Place | null {
    return this.#places.find((place) => place.address === address) ?? null;
  }

  #nextWaiting(): Tenant | null {
    for (let tenant = this.#waiting.shift(); tenant !== undefined; tenant = this.#waiting.shift()) if (!tenant.isSettled) return tenant;
    return null;
  }

  #refuseAll(code: Code, words: string): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const tenant of waiting) if (!tenant.isSettled) tenant.refused(code, words);
  }

  #dropIdle(): void {
    const now = this.#settings.clock.now();
    for (const connection of this.#connections)
      if (connection.state === 'ready' && connection.active === 0 && now - connection.usedAt >= IDLE_MS) connection.leave();
    this.#idleTimer = this.#connections.length === 0 ? null : this.#settings.clock.after(IDLE_LOOK_MS, () => this.#dropIdle());
  }
}

function isWanted({ isSettled }: Tenant): boolean {
  return !isSettled;
}

function isComingOrUsable({ state, isUsable }: Connection): boolean {
  return state === 'connecting' || isUsable;
}
