/**
 * From the document that people wrote (or the registry pushed) to the table that calls read. Everything that can be known
 * before a call is worked out here: merged settings, parsed versions, compiled schemas, how each provider is reached. The
 * document has been validated as a whole before; what fails here is a fault of ours and throws.
 */
import { parse as parseSemver, rcompare, type SemVer } from 'semver';
import { compileSchema, type Validator } from '../../base/json-schema.ts';
import { mergeSettings, policiesFor, providerPolicyFor } from '../../proto/language/merge.ts';
import type { Settings } from '../../proto/language/settings.ts';
import type { Contract, JsonSchema, Policy, ProviderRecord, TableDocument } from '../../proto/language/types.ts';
import { cellKey, type Health } from '../health/health.ts';
import { Candidate, Capability, Provider, type Reach, Snapshot, Version } from './snapshot.ts';

/** Where this sidecar stands. */
export interface Standpoint {
  readonly name: string;
  readonly region: string | null;
  readonly zone: string | null;
}

export function compile(document: TableDocument, health: Health, here: Standpoint, version: number): Snapshot {
  const capabilities = capabilitiesOf(document);
  const providers = new Map<string, Provider>();
  const meshUrls = new Map(document.sidecars.map((sidecar) => [sidecar.name, sidecar.mesh]));
  const cells = new Set<string>();
  for (const record of [...document.providers].sort((a, b) => (a.agentId < b.agentId ? -1 : 1))) {
    const provider = providerOf(record, meshUrls, health, here);
    providers.set(record.agentId, provider);
    const own = document.policies.map((policy) => policy.providers[record.agentId]?.limits.perProvider ?? null).filter((each) => each !== null);
    // The operator's word for this provider, else its record's, else the smallest of its capabilities.
    const said = own.length > 0 ? Math.min(...own) : record.limits.perProvider;
    let limit = said;
    for (const offer of record.offers) {
      const line = capabilities.get(offer.name)?.versions.find((candidate) => candidate.text === offer.version);
      if (line === undefined) continue;
      const candidate = candidateOf(provider, line, document.policies, health);
      line.candidates.push(candidate);
      cells.add(cellKey(record.agentId, offer.name));
      if (said === null) limit = limit === null ? candidate.settings.limits.perProvider : Math.min(limit, candidate.settings.limits.perProvider);
    }
    provider.health.limit = limit ?? Number.POSITIVE_INFINITY;
  }
  health.retain(new Set(providers.keys()), cells);
  return new Snapshot(version, document, capabilities, aliasesOf(capabilities), providers);
}

function capabilitiesOf(document: TableDocument): Map<string, Capability> {
  const capabilities = new Map<string, Capability>();
  for (const contract of document.contracts) {
    const policies = policiesFor(contract.name, document.policies);
    let capability = capabilities.get(contract.name);
    if (capability === undefined) {
      capability = new Capability(contract.name, strongest(policies, (policy) => policy.defaultRange), canaryOf(policies));
      capabilities.set(contract.name, capability);
    }
    capability.versions.push(versionOf(capability, contract, mergeSettings(contract, policies)));
  }
  for (const capability of capabilities.values()) {
    capability.versions.sort((a, b) => rcompare(a.semver, b.semver));
    const first = aclText(capability.versions[0] as Version);
    capability.sameAcl = capability.versions.every((line) => aclText(line) === first);
  }
  return capabilities;
}

function versionOf(capability: Capability, contract: Contract, settings: Settings): Version {
  const semver = parseSemver(contract.version) as SemVer;
  return new Version(capability, semver, contract, settings, validatorOf(contract.input), validatorOf(contract.output));
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
  return acl.isPublic ? 'public' : acl.patterns.map((pattern) => pattern.text).join('\n');
}

function validatorOf(schema: JsonSchema | null): Validator | null {
  if (schema === null || schema === true) return null;
  const compiled = compileSchema(schema);
  if ('problem' in compiled) throw new Error(`a schema that was validated does not compile: ${compiled.problem}`);
  return compiled.validator;
}

function providerOf(record: ProviderRecord, meshUrls: ReadonlyMap<string, string>, health: Health, here: Standpoint): Provider {
  const reach: Reach = record.via === null ? 'direct' : record.via === here.name ? 'self' : 'mesh';
  return new Provider(record, reach, reach === 'mesh' ? (meshUrls.get(record.via as string) ?? '') : '', distanceOf(record, here), record.drain, health.provider(record.agentId));
}

function distanceOf(record: ProviderRecord, here: Standpoint): 0 | 1 | 2 {
  const sameRegion = record.region === here.region;
  if (record.zone !== null && record.zone === here.zone && sameRegion) return 0;
  return record.region !== null && sameRegion ? 1 : 2;
}

function candidateOf(provider: Provider, line: Version, policies: readonly Policy[], health: Health): Candidate {
  const { name } = line.capability;
  const own = policiesFor(name, policies);
  const forProvider = providerPolicyFor(provider.agentId, own);
  let settings = forProvider === null ? line.settings : mergeSettings(line.contract, own, forProvider);
  const weight = forProvider?.weight ?? provider.record.weight;
  // Where another sidecar hosts the provider, it keeps the breaker over all callers; here only ejection counts.
  if (provider.reach === 'mesh') settings = { ...settings, breaker: { ...settings.breaker, enabled: false } };
  return new Candidate(provider, line, settings, weight, health.cell(provider.agentId, name, settings.breaker, settings.slowStartMs), forProvider?.drain ?? provider.drain);
}

function aliasesOf(capabilities: ReadonlyMap<string, Capability>): Map<string, Capability> {
  const aliases = new Map<string, Capability>();
  for (const capability of capabilities.values()) for (const line of capability.versions) for (const alias of line.contract.aliases) aliases.set(alias, capability);
  return aliases;
}
