/**
 * Control plane and sidecars in one process on virtual clocks, over a bus in memory: the leader's whole reign (registry, leases,
 * writer, beacon) and what a sidecar has inside (table, announcer, health, calls to mocks), without sockets. For what takes
 * minutes, and for faults that must happen in one instant. Each sidecar may have a clock of its own, to be halted or to run wrong.
 */
import { type AddressPolicy, NOTHING_ALLOWED } from '../../base/address-guard.ts';
import { createLog } from '../../base/log.ts';
import { SeededRandom } from '../../base/random.ts';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { Leadership } from '../../control-plane/leader.ts';
import { DEFAULT_MESSAGES } from '../../control-plane/messages/config.ts';
import { Admission } from '../../control-plane/push/admission.ts';
import { Fleet } from '../../control-plane/push/fleet.ts';
import { Leading } from '../../control-plane/push/leading.ts';
import { Mirror } from '../../control-plane/push/mirror.ts';
import { Prober } from '../../control-plane/push/prober.ts';
import { readyStreams } from '../../control-plane/push/streams.ts';
import type { RegistryEvent } from '../../control-plane/registry/change.ts';
import type { Resolve } from '../../control-plane/registry/address-guard.ts';
import type { Leases } from '../../control-plane/registry/registry.ts';
import { readTable } from '../../proto/language/document.ts';
import { Subjects } from '../../proto/wire/subjects.ts';
import { RegistryClient } from '../../sidecar/table/registry.ts';
import { type MemoryBus, MemoryNats } from './memory-bus.ts';
import { Offline } from './offline.ts';

export const ENV = 'test';
export const LEASES: Leases = Object.freeze({ heartbeatMs: 45_000, offlineMs: 135_000 });

const quietLog = createLog({ level: 'silent', to: 'stderr', service: 'test' }).logger;

/** What happens at one instant happens before time goes on. */
const STEP_MS = 50;

/** The world in which they all live. */
export class VirtualFleet {
  readonly clock = new VirtualClock();
  readonly nats: MemoryNats;
  readonly subjects = new Subjects(ENV);
  readonly sidecars: VirtualSidecar[] = [];
  readonly replicas: VirtualReplica[] = [];
  /** Clocks that go with the world's. */
  readonly #others = new Set<VirtualClock>();

  constructor() {
    this.nats = new MemoryNats(() => this.clock.wallMs());
  }

  /** A replica of the control plane; it has to be told to lead, or stands for election. */
  replica(name: string, options: ReplicaOptions = {}): VirtualReplica {
    const { clock = this.clock } = options;
    if (clock !== this.clock) this.#others.add(clock);
    const replica = new VirtualReplica(this, name, clock, options);
    this.replicas.push(replica);
    return replica;
  }

  /** @param table contracts and providers that it registers; '' = none. */
  async sidecar(name: string, table: string, options: SidecarOptions = {}): Promise<VirtualSidecar> {
    const clock = options.clock ?? this.clock;
    if (clock !== this.clock) this.#others.add(clock);
    const sidecar = new VirtualSidecar(this, name, clock, options);
    this.sidecars.push(sidecar);
    sidecar.offer(table);
    sidecar.start();
    await this.pass(3_000);
    return sidecar;
  }

  /** A clock that stands still until it is let go. */
  halt(clock: VirtualClock): void {
    this.#others.delete(clock);
  }

  letGo(clock: VirtualClock): void {
    this.#others.add(clock);
  }

  /** Time goes on for everybody whose clock is not halted. */
  async pass(ms: number): Promise<void> {
    for (let left = ms; left > 0; left -= STEP_MS) {
      const step = Math.min(STEP_MS, left);
      await this.clock.advance(step);
      for (const other of this.#others) await other.advance(step);
    }
  }

  async stop(): Promise<void> {
    for (const sidecar of this.sidecars) await sidecar.kill();
    for (const replica of this.replicas) await replica.stop();
  }
}

export interface ReplicaOptions {
  readonly leases?: Leases;
  readonly clock?: VirtualClock;
  /** Where third parties may stand beside public addresses. Default: this machine and its network. */
  readonly addresses?: AddressPolicy;
  /** In place of the system's names. */
  readonly resolve?: Resolve;
}

export interface SidecarOptions {
  readonly clock?: VirtualClock;
  readonly callers?: readonly string[];
  readonly mesh?: string | null;
  readonly seed?: number;
}

let instances = 0;

export class VirtualSidecar {
  readonly name: string;
  readonly clock: VirtualClock;
  readonly bus: MemoryBus;
  readonly offline: Offline;
  readonly registry: RegistryClient;
  readonly instance = `instance-${++instances}`;
  readonly #mesh: string | null;

  constructor(fleet: VirtualFleet, name: string, clock: VirtualClock, options: SidecarOptions) {
    const seed = options.seed ?? 1 + fleet.sidecars.length;
    this.name = name;
    this.clock = clock;
    this.bus = fleet.nats.open(name);
    this.offline = new Offline(null, { clock, name, seed, meshIsMock: true });
    this.#mesh = options.mesh === undefined ? `http://127.0.0.1:${1_000 + fleet.sidecars.length}` : options.mesh;
    this.registry = new RegistryClient({
      bus: this.bus,
      subjects: fleet.subjects,
      env: ENV,
      clock,
      random: new SeededRandom(seed),
      log: quietLog,
      table: this.offline.table,
      self: {
        sidecar: name,
        instance: this.instance,
        region: null,
        zone: null,
        callers: options.callers ?? [],
        heartbeatMs: LEASES.heartbeatMs,
        leaseMs: LEASES.offlineMs,
      },
      staleAfterMs: 5_000,
      keepAt: null,
      version: 'test',
      unreachable: () => null,
    });
  }

  /** The agents of its file, from now on. */
  offer(table: string): void {
    const reading = readTable(table === '' ? 'contracts: []\n' : table, 'agents.yaml', this.name, false);
    if ('problems' in reading)
      throw new Error(reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`).join('\n'));
    this.registry.ownFile.install(reading.document);
  }

  start(): void {
    this.registry.start();
    this.registry.announce(this.#mesh);
  }

  /** Agents that its table offers for a capability, whatever their health. */
  providersOf(capability: string): string[] {
    const versions = this.offline.table.current().capabilities.get(capability)?.versions ?? [];
    return [...new Set(versions.flatMap(({ candidates }) => candidates.map(({ provider }) => provider.agentId)))].sort();
  }

  /** Gone without a word, as by SIGKILL. */
  async kill(): Promise<void> {
    await this.bus.close();
    await this.registry.stop();
  }
}

export class VirtualReplica {
  readonly name: string;
  readonly clock: VirtualClock;
  readonly bus: MemoryBus;
  readonly mirror = new Mirror();
  readonly fleet: Fleet;
  readonly leadership: Leadership;
  readonly events: RegistryEvent[] = [];
  /** Why it stopped leading, each time. */
  readonly lost: string[] = [];
  readonly #world: VirtualFleet;
  readonly #options: ReplicaOptions;
  #leading: Leading | null = null;

  constructor(world: VirtualFleet, name: string, clock: VirtualClock, options: ReplicaOptions) {
    this.name = name;
    this.clock = clock;
    this.#world = world;
    this.#options = options;
    this.bus = world.nats.open(name);
    this.fleet = new Fleet(this.mirror, 15_000);
    this.leadership = new Leadership(
      this.bus.bus,
      clock,
      ENV,
      { id: name, url: `http://127.0.0.1/${name}` },
      { random: new SeededRandom(world.replicas.length + 100) },
    );
  }

  get leading(): Leading {
    if (this.#leading === null) throw new Error(`${this.name} does not lead`);
    return this.#leading;
  }

  get isLeading(): boolean {
    return this.#leading !== null;
  }

  /** Takes the pen, whoever else may think that it has it. */
  async lead(term = 1): Promise<Leading> {
    await this.bus.ready();
    const ready = await readyStreams(this.bus.bus, this.#world.subjects, 1);
    if ('failed' in ready) throw new Error(ready.failed);
    const { clock } = this;
    const policy = this.#options.addresses ?? { allow: NOTHING_ALLOWED, loopback: true, private: true };
    const leading = await Leading.begin({
      bus: this.bus.bus,
      subjects: this.#world.subjects,
      mirror: this.mirror,
      clock,
      logger: quietLog,
      leases: this.#options.leases ?? LEASES,
      prober: new Prober(policy, clock),
      admission: new Admission(policy, clock, this.#options.resolve),
      pendingMax: 100_000,
      random: new SeededRandom(1),
      messages: DEFAULT_MESSAGES,
      replicas: 1,
      epoch: ready.epoch,
      term,
      onLost: (why) => {
        this.lost.push(why);
        this.#leading = null;
      },
      onEvent: (event) => this.events.push(event),
    });
    if ('failed' in leading) throw new Error(leading.failed);
    this.#leading = leading;
    return leading;
  }

  /** Ends at once, without giving anything back. */
  die(): void {
    this.#leading?.end('killed');
    this.#leading = null;
  }

  async stop(): Promise<void> {
    this.die();
    await this.leadership.stop();
    await this.bus.close();
  }
}
