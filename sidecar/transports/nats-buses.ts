/**
 * The connections to NATS of one adapter: one for each address and credential, opened when it is first needed and shared by all
 * providers behind it. A call waits for a connection only while the first one is being made; after that, one that is away is
 * away, and the call is told at once. The client is loaded with the first connection, not before.
 */
import type { Bus, BusOptions } from '../../base/nats.ts';
import { readServerAddress, type ServerAddress } from '../../base/server-address.ts';
import type { SecretRef } from '../../proto/language/types.ts';
import type { Destination } from './destinations.ts';
import type { NatsOptions } from './nats-options.ts';
import type { TransportContext } from './transport.ts';

type BusCredential = NonNullable<ReturnType<NonNullable<BusOptions['credential']>>>;

/** Kept at most, as long as some are not in use. */
const MAX_BUSES = 64;

/** One connection, as it is asked for. */
export interface BusPlan {
  readonly key: string;
  readonly options: NatsOptions;
  readonly secret: SecretRef | null;
  /** Judges where it may lead; null = it is not judged. */
  readonly destination: Destination | null;
}

class Held {
  readonly opening: Promise<Bus | string>;
  bus: Bus | null = null;
  usedAt = 0;
  /** Exchanges that run on it. */
  users = 0;

  constructor(opening: Promise<Bus | string>) {
    this.opening = opening;
  }
}

export class Buses {
  readonly #context: TransportContext;
  readonly #held = new Map<string, Held>();
  readonly #closing = new Set<Promise<void>>();
  #uses = 0;
  #isClosed = false;

  constructor(context: TransportContext) {
    this.#context = context;
  }

  get size(): number {
    return this.#held.size;
  }

  /** A bus that is connected, or why there is none. Each one that was given is to be given back. */
  async take(plan: BusPlan): Promise<Bus | string> {
    if (this.#isClosed) return 'the sidecar is closing its connections';
    const held = this.#held.get(plan.key) ?? this.#open(plan);
    held.usedAt = ++this.#uses;
    // Counted while it waits too, so that nobody closes what is being opened for it.
    held.users++;
    const bus = held.bus ?? (await held.opening);
    if (typeof bus !== 'string' && bus.connected) return bus;
    held.users--;
    if (typeof bus !== 'string') return `no connection to NATS at ${shownServers(plan.options)}: ${bus.state.why}`;
    // What can be put right (a secret, a name) may be by the next call.
    if (this.#held.get(plan.key) === held) this.#held.delete(plan.key);
    return bus;
  }

  giveBack(plan: BusPlan): void {
    const held = this.#held.get(plan.key);
    if (held !== undefined && held.users > 0) held.users--;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const all = [...this.#held.values()];
    this.#held.clear();
    await Promise.all([...this.#closing, ...all.map(closed)]);
  }

  #open(plan: BusPlan): Held {
    if (this.#held.size >= MAX_BUSES) this.#evict();
    const held: Held = new Held(
      this.#opened(plan).then((bus) => {
        if (typeof bus !== 'string') held.bus = bus;
        return bus;
      }),
    );
    this.#held.set(plan.key, held);
    return held;
  }

  /** Settles with the first success or failure, or after the time for a connection; the bus goes on dialling by itself. */
  async #opened(plan: BusPlan): Promise<Bus | string> {
    const { clock, random, connectTimeoutMs } = this.#context;
    const refusal = plan.destination === null ? null : await refusalOf(plan.options.servers, plan.destination);
    if (refusal !== null) return `no connection to NATS at ${shownServers(plan.options)}: ${refusal}`;
    const credential = this.#credentialOf(plan);
    if (typeof credential === 'string') return credential;
    const { Bus } = await import('../../base/nats.ts');
    if (this.#isClosed) return 'the sidecar is closing its connections';
    const bus = Bus.open({
      servers: plan.options.servers,
      name: 'agent-reach sidecar, as a caller',
      clock,
      random,
      dialTimeoutMs: connectTimeoutMs,
      ...(credential === null ? {} : { credential }),
      ...(plan.destination === null ? {} : { refusal: refusalBy(plan.destination) }),
    });
    await new Promise<void>((done) => {
      const end = (): void => {
        timer.cancel();
        listener.close();
        done();
      };
      const timer = clock.after(connectTimeoutMs, end);
      const listener = bus.onState(end);
    });
    return bus;
  }

  /** Asked at every dial; while its secret cannot be read, the last one is used. Words when it cannot be read at all. */
  #credentialOf({ options, secret }: BusPlan): (() => BusCredential | null) | null | string {
    if (secret === null) return null;
    let known: BusCredential;
    try {
      known = credentialOf(options, this.#context.secret(secret));
    } catch (error) {
      return `the credential for NATS at ${shownServers(options)} cannot be read: ${(error as Error).message}`;
    }
    return () => {
      try {
        known = credentialOf(options, this.#context.secret(secret));
      } catch {
        // The old one may do.
      }
      return known;
    };
  }

  #evict(): void {
    let oldest: [string, Held] | null = null;
    for (const entry of this.#held) if (entry[1].users === 0 && (oldest === null || entry[1].usedAt < oldest[1].usedAt)) oldest = entry;
    if (oldest === null) return;
    this.#held.delete(oldest[0]);
    const closing = closed(oldest[1]);
    this.#closing.add(closing);
    void closing.then(() => this.#closing.delete(closing));
  }
}

async function closed(held: Held): Promise<void> {
  const bus = await held.opening;
  if (typeof bus !== 'string') await bus.close();
}

function credentialOf({ login, user }: NatsOptions, secret: string): BusCredential {
  switch (login) {
    case 'password':
      return { user, password: secret };
    case 'token':
      return { token: secret };
    case 'creds':
      return { creds: secret };
    case 'nkey':
      return { nkeySeed: secret.trim() };
  }
}

/** For messages. An address holds no credentials. */
export function shownServers({ servers }: NatsOptions): string {
  return servers.join(', ');
}

/** Why nothing may be sent to one of them; null = nothing is against it. */
async function refusalOf(servers: readonly string[], destination: Destination): Promise<string | null> {
  for (const server of servers) {
    const address = readServerAddress(server);
    const refusal = typeof address === 'string' ? address : await judged(address, destination);
    if (refusal !== null) return refusal;
  }
  return null;
}

/** Made once a connection. */
function refusalBy(destination: Destination): (address: ServerAddress) => Promise<string | null> {
  return (address) => judged(address, destination);
}

/** Where a name leads is looked at just before the client does. */
async function judged({ host, port }: ServerAddress, destination: Destination): Promise<string | null> {
  const url = new URL(`http://${host.includes(':') ? `[${host}]` : host}:${port}`);
  return destination.refusal(url, true) ?? (await nameRefusal(url, destination));
}

function nameRefusal(url: URL, destination: Destination): Promise<string | null> {
  if (/^[[\d]/.test(url.hostname)) return Promise.resolve(null);
  return new Promise((resolve) => {
    destination.lookupFor(url, undefined, true)(url.hostname, {}, (error) => resolve(error === null ? null : error.message));
  });
}
