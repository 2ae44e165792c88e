/**
 * What a decision read of the table: the capabilities that it met, and those that it could have been led to, each written once
 * a file and as changes of the part before it. Where a provider can be reached is left out, and so are the answers' schemas: a
 * recording leads nowhere, and what an answer was worth stands with the answer.
 */
import { targetOf } from '../name/name.ts';
import type { Contract, Endpoint, Override, ProviderRecord } from '../../proto/language/types.ts';
import type { Capability, Snapshot } from '../table/snapshot.ts';
import type { CapabilityPart } from '../table/compile.ts';
import type { OverridesRecord, PartRecord, RecordedProvider } from './shapes.ts';

/** Capabilities that one call can lead to, by its fallbacks and theirs. */
const MAX_PARTS = 32;

const NO_ENDPOINT: Omit<Endpoint, 'type'> = Object.freeze({ address: '', path: null, mapping: {}, credential: null, options: {} });

export class TableParts {
  readonly #partIds = new WeakMap<object, number>();
  readonly #overrideIds = new WeakMap<readonly Override[], number>();
  readonly #stripped = new WeakMap<ProviderRecord, ProviderRecord>();
  #nextId = 1;
  /** In this file. */
  #written = new Set<number>();
  /** By capability: what the next change is a change of. */
  #last = new Map<string, { readonly id: number; readonly part: CapabilityPart }>();
  readonly #put: (record: PartRecord | OverridesRecord) => void;

  constructor(put: (record: PartRecord | OverridesRecord) => void) {
    this.#put = put;
  }

  forget(): void {
    this.#written = new Set();
    this.#last = new Map();
  }

  overrides(list: readonly Override[]): number {
    let id = this.#overrideIds.get(list);
    if (id === undefined) {
      id = this.#nextId++;
      this.#overrideIds.set(list, id);
    }
    if (!this.#written.has(id)) {
      this.#written.add(id);
      this.#put({ k: 'overrides', id, list });
    }
    return id;
  }

  /** Of these capabilities, and those that their fallbacks and the overrides lead to. */
  parts(table: Snapshot, met: Iterable<Capability>): number[] {
    const all = new Set<Capability>(met);
    for (const capability of all) {
      if (all.size >= MAX_PARTS) break;
      for (const target of targetsOf(capability, table)) {
        const found = targetOf(table, target);
        if (found !== null && all.size < MAX_PARTS) all.add(found.capability);
      }
    }
    const ids: number[] = [];
    for (const capability of all) {
      const id = this.#part(capability);
      if (id !== null) ids.push(id);
    }
    return ids;
  }

  #part({ name, part: made }: Capability): number | null {
    const part = made as CapabilityPart | null;
    if (part === null) return null;
    let id = this.#partIds.get(part);
    if (id === undefined) {
      id = this.#nextId++;
      this.#partIds.set(part, id);
    }
    if (this.#written.has(id)) return id;
    this.#written.add(id);
    const last = this.#last.get(name);
    this.#last.set(name, { id, part });
    const changed = last === undefined ? part.providers : changesOf(last.part, part);
    const there = new Set(part.providers.map(({ record }) => record.agentId));
    this.#put({
      k: 'part',
      id,
      name,
      contracts: part.contracts.map(bare),
      policies: part.policies,
      base: last?.id ?? null,
      providers: changed.map(({ record, mesh }): RecordedProvider => ({ record: this.#bare(record), mesh: mesh !== '' })),
      gone:
        last === undefined
          ? []
          : last.part.providers.filter(({ record }) => !there.has(record.agentId)).map(({ record }) => record.agentId),
    });
    return id;
  }

  #bare(record: ProviderRecord): ProviderRecord {
    let bareOne = this.#stripped.get(record);
    if (bareOne === undefined) {
      bareOne = { ...record, endpoint: { ...NO_ENDPOINT, type: record.endpoint.type }, healthCheck: null };
      this.#stripped.set(record, bareOne);
    }
    return bareOne;
  }
}

function changesOf(before: CapabilityPart, after: CapabilityPart): CapabilityPart['providers'] {
  const known = new Map(before.providers.map((each) => [each.record.agentId, each]));
  return after.providers.filter(({ record, mesh }) => {
    const old = known.get(record.agentId);
    return old === undefined || old.record !== record || (old.mesh !== '') !== (mesh !== '');
  });
}

function bare(contract: Contract): Contract {
  const streaming = contract.streaming === null ? null : { ...contract.streaming, done: null };
  return { ...contract, description: '', examples: [], success: null, output: contract.output === null ? null : true, streaming };
}

function targetsOf(capability: Capability, table: Snapshot): string[] {
  const targets: string[] = [];
  for (const { settings } of capability.versions)
    for (const step of settings.fallback?.chain ?? []) if (step.kind === 'capability') targets.push(step.target);
  for (const { to } of table.overrides) if (to !== null && !to.startsWith('@') && !to.startsWith('provider:')) targets.push(to);
  return targets;
}
