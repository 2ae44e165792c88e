/** A sidecar's side of the registry on a bus in memory and a clock that stands still, with a writer that plays the control plane. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import type { Test } from 'tap';
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import type { ProviderRecord } from '../../proto/language/types.ts';
import { Subjects } from '../../proto/wire/subjects.ts';
import { Health } from '../../sidecar/health/health.ts';
import { InstalledTable } from '../../sidecar/table/installed.ts';
import { RegistryClient } from '../../sidecar/table/registry.ts';
import { type MemoryBus, MemoryNats } from './memory-bus.ts';
import { RegistryWriter } from './registry-writer.ts';
import { settle } from './settle.ts';

export const LEASE_MS = 135_000;

export interface ClientOptions {
  readonly name?: string;
  readonly keepAt?: string | null;
  readonly seed?: number;
  readonly callers?: readonly string[];
  readonly unreachable?: (record: ProviderRecord) => string | null;
  /** Told the registry at once; default true. */
  readonly announce?: boolean;
  readonly env?: string;
}

export class VirtualClient {
  readonly bus: MemoryBus;
  readonly table: InstalledTable;
  readonly health: Health;
  readonly client: RegistryClient;
  readonly logged: string[] = [];

  constructor(world: VirtualRegistry, options: ClientOptions = {}) {
    const { clock } = world;
    const name = options.name ?? 'here';
    const env = options.env ?? 'test';
    this.bus = world.nats.open(name);
    this.health = new Health(clock, { consecutive: 3, forMs: 5_000 });
    this.table = new InstalledTable(clock, this.health, { name, region: null, zone: null });
    this.client = new RegistryClient({
      bus: this.bus.bus,
      subjects: new Subjects(env),
      env,
      clock,
      random: new SeededRandom(options.seed ?? 1),
      log: pino({ level: 'debug' }, { write: (line: string) => void this.logged.push(line) }),
      table: this.table,
      self: {
        sidecar: name,
        instance: `instance-of-${name}`,
        region: null,
        zone: null,
        callers: options.callers ?? ['support.planner.1'],
        heartbeatMs: 45_000,
        leaseMs: LEASE_MS,
      },
      staleAfterMs: 5_000,
      keepAt: options.keepAt ?? null,
      version: '0.0.0',
      unreachable: options.unreachable ?? (() => null),
    });
    this.client.start();
    if (options.announce !== false) this.client.announce('http://127.0.0.1:7701');
  }

  /** Agent ids that may serve one version; null = no such version. */
  providers(name: string, version?: string): string[] | null {
    const capability = this.table.current().capabilities.get(name);
    const line = version === undefined ? capability?.versions[0] : capability?.versions.find((each) => each.text === version);
    return line === undefined ? null : line.candidates.map(({ provider }) => provider.agentId);
  }

  get stale(): string {
    return this.table.staleBecause;
  }

  /** As if the provider had just answered a call. */
  answered(agentId: string, clock: VirtualClock): void {
    this.health.provider(agentId).connected(clock.now());
  }
}

export class VirtualRegistry {
  readonly clock = new VirtualClock();
  readonly nats = new MemoryNats(() => this.clock.wallMs());
  readonly writer: RegistryWriter;
  readonly folder: string;
  readonly #clients: VirtualClient[] = [];
  readonly #t: Test;

  constructor(t: Test, epoch = 'epoch-1') {
    this.#t = t;
    this.writer = new RegistryWriter(this.nats.open('control-plane').bus, epoch, this.clock);
    this.folder = mkdtempSync(join(tmpdir(), 'reach-registry-'));
    t.teardown(() => rmSync(this.folder, { recursive: true, force: true }));
  }

  /** With a stream, an epoch and a leader. */
  static async begun(t: Test): Promise<VirtualRegistry> {
    const world = new VirtualRegistry(t);
    await world.begin();
    return world;
  }

  async begin(): Promise<void> {
    await settle();
    await this.writer.begin();
    this.writer.lead();
  }

  /** The stream is lost; another one begins, with nothing in it. */
  async beginAnew(epoch: string): Promise<void> {
    this.nats.deleteStream('AR_CFG');
    this.writer.epoch = epoch;
    await this.writer.begin();
  }

  client(options: ClientOptions = {}): VirtualClient {
    const made = new VirtualClient(this, options);
    this.#clients.push(made);
    this.#t.teardown(() => made.client.stop());
    return made;
  }

  /** A client that has joined and knows everything. */
  async joined(options: ClientOptions = {}): Promise<VirtualClient> {
    const made = this.client(options);
    await this.clock.advance(10_000);
    if (!made.client.sync.confirmed) throw new Error(`not joined: ${made.stale}`);
    return made;
  }

  get keepAt(): string {
    return join(this.folder, 'here');
  }

  /** Real files are written beside the virtual clock. */
  async written(client: VirtualClient): Promise<void> {
    await this.clock.advance(1_100);
    await client.client.stop();
  }
}

/** A table of capabilities with some mock providers each: `{'crm.order.query': 3}`. */
export function tableOf(counts: Readonly<Record<string, number>>, version = '1.0.0'): string {
  const contracts: string[] = [];
  const providers: string[] = [];
  for (const [name, count] of Object.entries(counts)) {
    contracts.push(`  - {name: ${name}, version: ${version}, description: x, acl: public}`);
    const [domain, object] = name.split('.');
    for (let i = 1; i <= count; i++)
      providers.push(`  - {agent_id: ${domain}.${object}.${i}, offers: [${name}@${version}], endpoint: {type: mock}}`);
  }
  return `contracts:\n${contracts.join('\n')}\nproviders:${providers.length === 0 ? ' []' : `\n${providers.join('\n')}`}\n`;
}
