/**
 * From the document that people wrote (or the registry pushed) to the table that calls read. Everything that can be known
 * before a call is worked out here: merged settings, parsed versions, compiled schemas, how each provider is reached. The
 * document has been validated as a whole before; what fails here is a fault of ours and throws.
 */
import { parse as parseSemver, rcompare, type SemVer } from 'semver';
import { compileSchema, type Validator } from '../../base/json-schema.ts';
import { mergeSettings, policiesFor, providerLimit, providerPolicyFor } from '../../proto/language/merge.ts';
import type { Settings } from '../../proto/language/settings.ts';
import type { Contract, JsonSchema, Override, Policy, ProviderRecord, TableDocument } from '../../proto/language/types.ts';
import type { Health } from '../health/health.ts';
import { Candidate, Capability, Provider, type Reach, Snapshot, Version } from './snapshot.ts';
import { fromNothing, type Moved, retainOnly, stepFrom } from './step.ts';

/** Where this sidecar stands. */
export interface Standpoint {
  /** This sidecar only logs and counts whom an ACL does not name. Absent = it refuses. */
  readonly aclAudit?: boolean;
  readonly name: string;
  readonly region: string | null;
  readonly zone: string | null;
}

/** All that a table says of one capability, as it came: one object, replaced as a whole; the same object means that nothing has changed. */
export interface CapabilityPart {
  readonly name: string;
  readonly contracts: readonly Contract[];
  /** Those that cover it, weakest first. */
  readonly policies: readonly Policy[];
  /** Those that offer it, with the mesh address of the sidecar that hosts each ('' = none, or unknown), and which process that is. */
  readonly providers: readonly { readonly record: ProviderRecord; readonly mesh: string; readonly instance?: string }[];
}

export type CapabilityParts = ReadonlyMap<string, CapabilityPart>;

/** A whole document: the standalone file, a scenario. */
export function compile(document: TableDocument, health: Health, here: Standpoint, version: number): Snapshot {
  return assembled(partsOf(document), document, null, health, here, version);
}

/**
 * Parts as the registry pushes them. A capability whose part is the same object as in `previous` is taken over as it is, with
 * its caches: the work of a push follows the size of the change, not of the table.
 */
export function compileParts(
  parts: CapabilityParts,
  overrides: readonly Override[],
  previous: Snapshot | null,
  health: Health,
  here: Standpoint,
  version: number,
): Snapshot {
  const meshes = new Map<string, string>();
  for (const part of parts.values()) for (const [name, mesh] of meshesOf(part)) meshes.set(name, mesh);
  const sidecars = [...meshes].map(([name, mesh]) => ({ name, mesh }));
  return assembled(parts, { contracts: [], providers: [], policies: [], overrides, sidecars }, previous, health, here, version);
}

const knownMeshes = new WeakMap<CapabilityPart, ReadonlyMap<string, string>>();

/** Sidecars that host its providers, with their addresses. A part is never written to: what was found out once holds. */
function meshesOf(part: CapabilityPart): ReadonlyMap<string, string> {
  const known = knownMeshes.get(part);
  if (known !== undefined) return known;
  const meshes = new Map<string, string>();
  for (const { record, mesh } of part.providers) if (record.via !== null && mesh !== '') meshes.set(record.via, mesh);
  knownMeshes.set(part, meshes);
  return meshes;
}

/** The same parts that a registry would push for this document. */
export function partsOf(document: TableDocument): CapabilityParts {
  const meshes = new Map(document.sidecars.map((sidecar) => [sidecar.name, sidecar.mesh]));
  const contracts = grouped(document.contracts, (contract) => [contract.name]);
  const offering = grouped(document.providers, (record) => [...new Set(record.offers.map((offer) => offer.name))]);
  const parts = new Map<string, CapabilityPart>();
  for (const [name, ofName] of contracts) {
    const providers = (offering.get(name) ?? []).map((record) => ({
      record,
      mesh: (record.via === null ? undefined : meshes.get(record.via)) ?? '',
    }));
    parts.set(name, { name, contracts: ofName, policies: policiesFor(name, document.policies), providers });
  }
  return parts;
}

function grouped<T>(all: readonly T[], keysOf: (one: T) => readonly string[]): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of all) {
    for (const key of keysOf(one)) {
      const group = groups.get(key);
      if (group === undefined) groups.set(key, [one]);
      else group.push(one);
    }
  }
  return groups;
}

function assembled(
  parts: CapabilityParts,
  document: TableDocument,
  previous: Snapshot | null,
  health: Health,
  here: Standpoint,
  version: number,
): Snapshot {
  const capabilities = new Map<string, Capability>();
  const moved: Moved[] = [];
  for (const [name, part] of parts) {
    const before = previous?.capabilities.get(name) ?? null;
    const after = before !== null && before.part === part ? before : capabilityOf(part, health, here);
    const isThere = after.versions.length > 0;
    if (isThere) capabilities.set(name, after);
    if (after !== before) moved.push({ before, after: isThere ? after : null });
  }
  for (const [name, before] of previous?.capabilities ?? []) if (!parts.has(name)) moved.push({ before, after: null });
  const uses = previous?.uses ?? null;
  const step =
    previous !== null && uses !== null ? stepFrom(previous.providers, uses, moved, capabilities, health) : fromNothing(capabilities);
  // A provider that offers nothing known is kept in sight: a pin to it can then be answered truly.
  for (const record of document.providers)
    if (!step.providers.has(record.agentId)) step.providers.set(record.agentId, providerOf(record, '', health, here));
  if (uses === null) retainOnly(capabilities, step.providers, health);
  // A document names providers that stand in no capability: the step from it to another table cannot be counted.
  return new Snapshot(
    version,
    document,
    capabilities,
    aliasesOf(capabilities),
    step.providers,
    document.providers.length === 0 ? step.uses : null,
  );
}

function capabilityOf(part: CapabilityPart, health: Health, here: Standpoint): Capability {
  const { policies } = part;
  const capability = new Capability(
    part.name,
    strongest(policies, (policy) => policy.defaultRange),
    canaryOf(policies),
    part,
  );
  const aclMode = strongest(policies, (policy) => policy.aclMode ?? null);
  for (const contract of part.contracts) {
    const isAudited = here.aclAudit === true || (aclMode ?? contract.acl.mode) === 'audit';
    capability.versions.push(versionOf(capability, contract, mergeSettings(contract, policies), isAudited));
  }
  capability.versions.sort((a, b) => rcompare(a.semver, b.semver));
  const [newest] = capability.versions;
  capability.sameAcl = newest === undefined || capability.versions.every((line) => aclText(line) === aclText(newest));
  const ordered = [...part.providers].sort((a, b) => (a.record.agentId < b.record.agentId ? -1 : 1));
  for (const { record, mesh, instance } of ordered) {
    let provider: Provider | null = null;
    for (const offer of record.offers) {
      const line = offer.name === part.name ? capability.versions.find((each) => each.text === offer.version) : undefined;
      if (line === undefined) continue;
      // Who stands in no version is not known to the health view either.
      provider ??= providerOf(record, mesh, health, here);
      if (instance !== undefined && provider.reach === 'mesh') provider.health.servedBy(instance);
      const candidate = candidateOf(provider, line, policies, health);
      line.candidates.push(candidate);
      // Of several versions the smallest counts.
      const limit = Math.min(
        providerLimit(record, line.settings, policies),
        capability.members.get(record.agentId)?.limit ?? Number.POSITIVE_INFINITY,
      );
      capability.members.set(record.agentId, { provider, cell: candidate.health, limit });
    }
  }
  return capability;
}

function versionOf(capability: Capability, contract: Contract, settings: Settings, isAudited: boolean): Version {
  const semver = parseSemver(contract.version) as SemVer;
  return new Version(capability, semver, contract, settings, validatorOf(contract.input), validatorOf(contract.output), isAudited);
}

/** `policies` stand weakest first. */
function strongest<T>(policies: readonly Policy[], part: (policy: Policy) => T | null): T | null {
  let found: T | null = null;
  for (const policy of policies) found = part(policy) ?? found;
  return found;
}

function canaryOf(policies: readonly Policy[]): ReadonlyMap<string, number> | null {
  const canary = strongest(policies, (policy) => policy.canary);
  return canary === null ? null : new Map(Object.entries(canary));
}

function aclText(version: Version): string {
  const { acl } = version.contract;
  if (version.isAudited && !acl.isPublic) return `audit\n${acl.patterns.map((pattern) => pattern.text).join('\n')}`;
  return acl.isPublic ? 'public' : acl.patterns.map((pattern) => pattern.text).join('\n');
}

const knownValidators = new WeakMap<object, Validator>();

/** A schema is never written to; that of a contract that stays comes back with every change of its providers. */
function validatorOf(schema: JsonSchema | null): Validator | null {
  if (schema === null || schema === true) return null;
  const known = typeof schema === 'object' ? knownValidators.get(schema) : undefined;
  if (known !== undefined) return known;
  const compiled = compileSchema(schema);
  if ('problem' in compiled) throw new Error(`a schema that was validated does not compile: ${compiled.problem}`);
  if (typeof schema === 'object') knownValidators.set(schema, compiled.validator);
  return compiled.validator;
}

function providerOf(record: ProviderRecord, mesh: string, health: Health, here: Standpoint): Provider {
  const reach: Reach = record.via === null ? 'direct' : record.via === here.name ? 'self' : 'mesh';
  return new Provider(record, reach, reach === 'mesh' ? mesh : '', distanceOf(record, here), record.drain, health.provider(record.agentId));
}

function distanceOf(record: ProviderRecord, here: Standpoint): 0 | 1 | 2 {
  const sameRegion = record.region === here.region;
  if (record.zone !== null && record.zone === here.zone && sameRegion) return 0;
  return record.region !== null && sameRegion ? 1 : 2;
}

function candidateOf(provider: Provider, line: Version, own: readonly Policy[], health: Health): Candidate {
  const { name } = line.capability;
  const forProvider = providerPolicyFor(provider.agentId, own);
  let settings = forProvider === null ? line.settings : mergeSettings(line.contract, own, forProvider);
  const weight = forProvider?.weight ?? provider.record.weight;
  // Where another sidecar hosts the provider, it keeps the breaker over all callers; here only ejection counts.
  if (provider.reach === 'mesh') settings = { ...settings, breaker: { ...settings.breaker, enabled: false } };
  return new Candidate(
    provider,
    line,
    settings,
    weight,
    health.cell(provider.agentId, name, settings.breaker, settings.slowStartMs),
    forProvider?.drain ?? provider.drain,
  );
}

function aliasesOf(capabilities: ReadonlyMap<string, Capability>): Map<string, Capability> {
  const aliases = new Map<string, Capability>();
  for (const capability of capabilities.values())
    for (const line of capability.versions) for (const alias of line.contract.aliases) aliases.set(alias, capability);
  return aliases;
}
