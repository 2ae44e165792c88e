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

/** What samples are judged by; the others say what a sample is, or what an open breaker does. */
const JUDGING = ['enabled', 'failureRatio', 'slowRatio', 'minCalls', 'windowMs'] as const;
const SLOW_CALL =
  'breaker.slow_call: calls were counted as slow by the limit of then, and are not counted anew: of breakers it changes nothing here';
const LONGER_WINDOW =
  'breaker.window: no more is recorded than the shorter window of then held: a longer one is judged by that, and opens no breaker that it would have';

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
  readonly #judgedOtherwise = new WeakMap<HealthCell, boolean>();
  /** What the changes would have to count anew, and cannot. */
  readonly remarks = new Set<string>();

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
        const dump = this.#file.cell(cell.agentId, cell.capability, rev);
        if (this.#isJudgedOtherwise(parts, cell)) {
          cell.restore(dump === null ? null : this.#under(parts, cell, dump));
          cell.rejudge(now, this.#base?.wasBad(parts, cell, dump, now) ?? false);
        } else cell.restore(dump);
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

  /** Settings by which samples are judged are other ones. Of those by which they were counted it is remarked that they do nothing. */
  #isJudgedOtherwise(parts: readonly number[], cell: HealthCell): boolean {
    if (this.#base === null) return false;
    let isOther = this.#judgedOtherwise.get(cell);
    if (isOther === undefined) {
      const before = this.#base.settingsOf(parts, cell);
      const { settings } = cell;
      isOther = before !== null && JUDGING.some((name) => before[name] !== settings[name]);
      if (before !== null && settings.enabled) {
        if (before.slowCallMs !== settings.slowCallMs) this.remarks.add(SLOW_CALL);
        if (before.windowMs < settings.windowMs) this.remarks.add(LONGER_WINDOW);
      }
      this.#judgedOtherwise.set(cell, isOther);
    }
    return isOther;
  }

  /** Under the settings of then, with all that its window held. */
  wasBad(parts: readonly number[], { agentId, capability }: HealthCell, dump: CellDump | null, now: number): boolean {
    const cell = this.world(parts).snapshot.capabilities.get(capability)?.members.get(agentId)?.cell ?? null;
    if (cell === null) return false;
    cell.restore(dump);
    return cell.isBad(now);
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
