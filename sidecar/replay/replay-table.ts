/**
 * The tables that the calls of a file read, made anew from its parts by the same compiler, with a health view of their own that
 * is set to what it was before each decision. With changes, what they change is told apart, since recorded figures hold only for
 * settings that are the same.
 */
import type { Validator } from '../../base/json-schema.ts';
import type { WindowDump } from '../health/window.ts';
import type { Override, ProviderRecord } from '../../proto/language/types.ts';
import type { CellDump, HealthCell } from '../health/cell.ts';
import { Health } from '../health/health.ts';
import { BUCKETS } from '../health/window.ts';
import type { RecordedFile } from '../record/reading.ts';
import type { RecordedConfig } from '../record/shapes.ts';
import { type CapabilityPart, compileParts } from '../table/compile.ts';
import { Provider, Snapshot, type Version } from '../table/snapshot.ts';
import { type Changes, policiesOf } from './changes.ts';

/** Says what is wrong with the payload of the call that is being decided; null = nothing. */
export type Fits = (version: Version, real: Validator) => readonly string[] | null;

/** Time of the health view's own: it is only ever set, never left to itself. */
const STILL = { now: (): number => 0, wallMs: (): number => 0, after: () => ({ cancel: () => undefined }) };

export class World {
  readonly health: Health;
  readonly snapshot: Snapshot;
  /** By agent: what the table says of calls at once. */
  readonly limits = new Map<string, number>();

  constructor(health: Health, snapshot: Snapshot) {
    this.health = health;
    this.snapshot = snapshot;
    for (const [agent, { health: known }] of snapshot.providers) this.limits.set(agent, known.limit);
  }
}

export class ReplayTables {
  readonly config: RecordedConfig;
  readonly #file: RecordedFile;
  readonly #changes: Changes;
  readonly #fits: Fits;
  readonly #parts = new Map<number, CapabilityPart>();
  /** By the parts that stand in it. */
  readonly #worlds = new Map<string, World>();
  readonly #withOverrides = new Map<string, Snapshot>();
  /** The same file without changes; null = this is it. */
  readonly #base: ReplayTables | null;
  readonly #changed = new WeakMap<HealthCell, boolean>();

  constructor(file: RecordedFile, changes: Changes, fits: Fits, base: ReplayTables | null) {
    this.#file = file;
    this.#changes = changes;
    this.#fits = fits;
    this.#base = base;
    this.config = changes.config(file.head.config);
  }

  world(parts: readonly number[]): World {
    const key = parts.join();
    let world = this.#worlds.get(key);
    if (world === undefined) {
      world = this.#make(parts);
      this.#worlds.set(key, world);
    }
    return world;
  }

  /** The table with those overrides; the same object for the same ones. */
  table(parts: readonly number[], overrides: number): Snapshot {
    const id = this.#changes.overrides === null ? overrides : -1;
    const key = `${parts.join()} ${id}`;
    let table = this.#withOverrides.get(key);
    if (table === undefined) {
      const list = this.#changes.overrides ?? this.#file.overrides(overrides);
      table = withOverrides(this.world(parts).snapshot, list);
      this.#withOverrides.set(key, table);
    }
    return table;
  }

  /** Sets what is known of everybody who may serve in these versions to what it was then. */
  restore(parts: readonly number[], lines: readonly Version[], rev: number, now: number): void {
    const world = this.world(parts);
    for (const version of lines) {
      for (const { provider, health: cell } of version.candidates) {
        const known = this.#file.provider(provider.agentId, rev);
        if (known !== null) {
          provider.health.restore(known);
          provider.health.limit = this.#limitOf(parts, provider.agentId, world, known.limit);
        }
        const isChanged = this.#isChanged(parts, cell);
        const dump = this.#file.cell(cell.agentId, cell.capability, rev);
        cell.restore(isChanged && dump !== null ? this.#under(parts, cell, dump) : dump);
        if (isChanged) cell.rejudge(now);
      }
      version.eligible = null;
    }
    world.health.advance(now);
  }

  /** The recorded one, unless what the table says has been changed. */
  #limitOf(parts: readonly number[], agent: string, world: World, recorded: number | null): number {
    const now = world.limits.get(agent) ?? Number.POSITIVE_INFINITY;
    const before = this.#base?.world(parts).limits.get(agent) ?? now;
    return now === before ? (recorded ?? Number.POSITIVE_INFINITY) : now;
  }

  #isChanged(parts: readonly number[], cell: HealthCell): boolean {
    if (this.#base === null) return false;
    let isChanged = this.#changed.get(cell);
    if (isChanged === undefined) {
      const before = this.#base.settingsOf(parts, cell);
      isChanged = before !== null && JSON.stringify(before) !== JSON.stringify(cell.settings);
      this.#changed.set(cell, isChanged);
    }
    return isChanged;
  }

  settingsOf(parts: readonly number[], { agentId, capability }: HealthCell): HealthCell['settings'] | null {
    return this.world(parts).snapshot.capabilities.get(capability)?.members.get(agentId)?.cell.settings ?? null;
  }

  /** A shorter window holds fewer of the samples that were counted. A longer one would hold some that are gone. */
  #under(parts: readonly number[], cell: HealthCell, dump: CellDump): CellDump {
    const before = this.#base?.settingsOf(parts, cell) ?? null;
    const { window } = dump.breaker;
    if (before === null || window === null || cell.settings.windowMs >= before.windowMs) return dump;
    const kept = Math.max(1, Math.ceil(cell.settings.windowMs / (before.windowMs / BUCKETS)));
    return { ...dump, breaker: { ...dump.breaker, window: newest(window, kept) } };
  }

  #make(ids: readonly number[]): World {
    const { name, region, zone, aclAudit, ejection } = this.config;
    const health = new Health(STILL, ejection);
    const parts = new Map<string, CapabilityPart>();
    for (const id of ids) {
      const part = this.#part(id);
      if (part !== null) parts.set(part.name, part);
    }
    const snapshot = compileParts(parts, [], null, health, { name, region, zone, aclAudit }, 1);
    health.warm();
    for (const { versions } of snapshot.capabilities.values())
      for (const version of versions) if (version.input !== null) this.#guard(version, version.input);
    return new World(health, snapshot);
  }

  #part(id: number): CapabilityPart | null {
    let part = this.#parts.get(id) ?? null;
    if (part !== null) return part;
    const recorded = this.#file.part(id);
    if (recorded === null) return null;
    part = { ...recorded, policies: policiesOf(recorded.name, recorded.policies, this.#changes) };
    this.#parts.set(id, part);
    return part;
  }

  /** What a payload came to is known, the payload itself perhaps not. */
  #guard(version: Version, real: Validator): void {
    const fits = this.#fits;
    Object.assign(version, { input: { validate: () => fits(version, real) } });
  }
}

function withOverrides({ version, document, capabilities, aliases, providers, uses }: Snapshot, list: readonly Override[]): Snapshot {
  return new Snapshot(version, { ...document, overrides: list }, capabilities, aliases, providers, uses);
}

function newest([index, endsAt, calls, failures, slow]: WindowDump, kept: number): WindowDump {
  const isKept = (i: number): boolean => (index - i + BUCKETS) % BUCKETS < kept;
  const only = (counts: readonly number[]): number[] => counts.map((count, i) => (isKept(i) ? count : 0));
  return [index, endsAt, only(calls), failures === null ? null : only(failures), slow === null ? null : only(slow)];
}

/** Somebody who is known of by name alone. */
export function stranger(agentId: string, offers: ProviderRecord['offers']): Provider {
  const health = new Health(STILL, { consecutive: 0, forMs: 0 });
  const record: ProviderRecord = {
    agentId,
    team: '',
    role: '',
    offers,
    tags: {},
    target: {},
    endpoint: { type: 'http', address: '', path: null, mapping: {}, credential: null, options: {} },
    region: null,
    zone: null,
    weight: 1,
    tier: 'primary',
    via: null,
    limits: { perCaller: null, perProvider: null, requestBytes: null, responseBytes: null, eventBytes: null },
    drain: false,
    healthCheck: null,
  };
  return new Provider(record, 'direct', '', 2, false, health.provider(agentId));
}

/** The same table with one more name in it. */
export function withProvider(table: Snapshot, provider: Provider): Snapshot {
  const { version, document, capabilities, aliases, providers, uses } = table;
  return new Snapshot(version, document, capabilities, aliases, new Map([...providers, [provider.agentId, provider]]), uses);
}
