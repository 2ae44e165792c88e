/**
 * Table clients of the push bench, many in one process: each is what a sidecar has inside (bus, table, announcer, reporter,
 * health view), without ports. It notes when a change of the registry stands in the table that calls would read, by the
 * monotonic clock, which on Linux is the same for all processes of a machine.
 */
import { realClock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import { Bus } from '../../base/nats.ts';
import { systemRandom } from '../../base/random.ts';
import { Subjects } from '../../proto/wire/subjects.ts';
import { Health } from '../../sidecar/health/health.ts';
import { InstalledTable } from '../../sidecar/table/installed.ts';
import { RegistryClient } from '../../sidecar/table/registry.ts';
import type { Snapshot } from '../../sidecar/table/snapshot.ts';
import { collected } from '../support/heap.ts';
import { waitUntil } from '../support/settle.ts';
import {
  type ClientSpec,
  type ClientsOrder,
  Mark,
  type Memory,
  type Noted,
  type Ready,
  type Rejoined,
  sharedNowMs,
} from './push-orders.ts';

const COMPLETE_WITHIN_MS = 60_000;

class Client {
  readonly spec: ClientSpec;
  readonly #bus: Bus;
  readonly #table: InstalledTable;
  readonly #registry: RegistryClient;
  readonly #seen = new Map<string, Map<string, number>>();
  readonly #last = new Map<string, unknown>();

  constructor(spec: ClientSpec, url: string, env: string, note: (client: string, change: string) => void) {
    this.spec = spec;
    const clock = realClock;
    this.#bus = Bus.open({ servers: [url], name: spec.name, clock, random: systemRandom, inboxPrefix: `_INBOX.${spec.name}` });
    const here = { name: spec.name, region: null, zone: null };
    this.#table = new InstalledTable(clock, new Health(clock, { consecutive: 3, forMs: 10_000 }), here);
    const install = this.#table.installParts.bind(this.#table);
    this.#table.installParts = (...given) => {
      const snapshot = install(...given);
      this.#look(snapshot, note);
      return snapshot;
    };
    this.#registry = new RegistryClient({
      bus: this.#bus,
      subjects: new Subjects(env, spec.name),
      env,
      clock,
      random: systemRandom,
      log: createLog({ level: 'error', to: 'stderr', service: spec.name }).logger,
      table: this.#table,
      self: {
        sidecar: spec.name,
        instance: `${process.pid}-${Math.floor(sharedNowMs())}`,
        region: null,
        zone: null,
        callers: [spec.caller],
        heartbeatMs: 45_000,
        leaseMs: 135_000,
      },
      staleAfterMs: 5_000,
      keepAt: null,
      version: 'bench',
      unreachable: () => null,
    });
    this.#registry.start();
    this.#registry.announce(null);
  }

  get providers(): number {
    return this.#table.current().providers.size;
  }

  get capabilities(): number {
    return this.#table.current().capabilities.size;
  }

  get isComplete(): boolean {
    return this.#registry.sync.confirmed && this.capabilities === this.spec.scope;
  }

  get words(): string {
    return JSON.stringify({ ...this.#registry.status(), wanted: this.spec.scope, capabilities: this.capabilities });
  }

  async stop(): Promise<void> {
    await this.#registry.stop();
    await this.#bus.close();
  }

  /** Compares only what the compiler has made anew. */
  #look(snapshot: Snapshot, note: (client: string, change: string) => void): void {
    for (const [name, capability] of snapshot.capabilities) {
      if (this.#last.get(name) === capability) continue;
      this.#last.set(name, capability);
      const now = new Map<string, number>();
      for (const version of capability.versions)
        for (const { provider } of version.candidates) now.set(provider.agentId, provider.record.weight);
      const before = this.#seen.get(name);
      this.#seen.set(name, now);
      if (before === undefined) continue;
      for (const [agentId, weight] of now) if (before.get(agentId) !== weight) note(this.spec.name, Mark.has(agentId, weight));
      for (const agentId of before.keys()) if (!now.has(agentId)) note(this.spec.name, Mark.gone(agentId));
    }
  }
}

let noted: [string, string, number][] = [];
let url = '';
let env = '';
const clients: Client[] = [];
const note = (client: string, change: string): void => void noted.push([client, change, sharedNowMs()]);

async function complete(which: readonly Client[]): Promise<void> {
  try {
    await waitUntil('every table is complete', () => which.every((client) => client.isComplete), COMPLETE_WITHIN_MS, 2);
  } catch (error) {
    throw new Error(`${(error as Error).message}; ${which.find((client) => !client.isComplete)?.words ?? ''}`);
  }
}

async function obey(order: ClientsOrder): Promise<object> {
  switch (order.do) {
    case 'start': {
      ({ url, env } = order);
      const began = sharedNowMs();
      const started = order.clients.map((spec) => new Client(spec, url, env, note));
      clients.push(...started);
      await complete(started);
      return { clients: clients.length, slowestMs: sharedNowMs() - began } satisfies Ready;
    }
    case 'arm':
      noted = [];
      return {};
    case 'noted': {
      const taken: Noted = noted;
      noted = [];
      return taken;
    }
    case 'memory': {
      const heapBytes = collected();
      const { external } = process.memoryUsage();
      let providersHeld = 0;
      let capabilitiesHeld = 0;
      for (const client of clients) {
        providersHeld += client.providers;
        capabilitiesHeld += client.capabilities;
      }
      return { usedBytes: heapBytes + external, providersHeld, capabilitiesHeld } satisfies Memory;
    }
    case 'rejoin': {
      const tookMs: number[] = [];
      for (let i = 0; i < Math.min(order.count, clients.length); i++) {
        const old = clients[i] as Client;
        await old.stop();
        const began = sharedNowMs();
        const fresh = new Client(old.spec, url, env, note);
        await complete([fresh]);
        tookMs.push(sharedNowMs() - began);
        clients[i] = fresh;
      }
      return { tookMs } satisfies Rejoined;
    }
  }
}

if (process.channel !== undefined) {
  process.on('message', (order: ClientsOrder) => {
    obey(order).then(
      (answer) => process.send?.(answer),
      (error: unknown) => {
        process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
        process.exit(1);
      },
    );
  });
  process.on('disconnect', () => process.exit(1));
  process.send?.({ ready: true });
}
