/** What only the whole table can tell: names that must exist, must not exist twice, must not run in a circle. */
import type { SemVer } from 'semver';
import { quote } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';
import { checkFallbacks } from './fallback-check.ts';
import { breaks } from './compat.ts';
import { isAgentId, isCapabilityName, parseTarget } from './names.ts';
import { BAD, type Place } from './reader.ts';
import { good, type Sections } from './sections.ts';
import { Known } from './known.ts';
import { parseVersion } from './range.ts';
import type { Contract, Override } from './types.ts';

/**
 * Notes every problem at its place.
 * @param isWhole false = contracts that are offered may be known elsewhere (a registry).
 */
export function crossCheck(sections: Sections, place: Place, ownSidecar: string | null, isWhole = true): void {
  const known = new Known(sections);
  checkContracts(sections, place, known);
  checkSidecars(sections, place);
  checkProviders(sections, place, known, ownSidecar, isWhole);
  checkPolicies(sections, place, known);
  checkOverrides(sections, place, known);
  checkFallbacks(sections, place, known);
}

/** Contracts beside one another: versions, aliases, compatibility. */
export function checkContracts(sections: Sections, place: Place, known: Known): void {
  const first = new Map<string, number>();
  const aliasOwner = new Map<string, string>();
  for (const [i, contract] of good(sections.contracts)) {
    const at = place.at('contracts', i);
    const key = `${contract.name}@${contract.version}`;
    const before = first.get(key);
    if (before !== undefined)
      at.at('version').bad(
        `${key} is defined twice (first at line ${place.source.lineOf(place.at('contracts', before).path)}): give it another version`,
      );
    else first.set(key, i);
    for (const [j, alias] of contract.aliases.entries()) {
      const owner = aliasOwner.get(alias);
      if (known.hasName(alias))
        at.at('aliases', j).bad(`the alias ${alias} is the name of another contract: an alias must not stand for two things`);
      else if (owner !== undefined && owner !== contract.name) at.at('aliases', j).bad(`the alias ${alias} belongs to ${owner} already`);
      else aliasOwner.set(alias, contract.name);
    }
  }
  checkCompatibility(sections, place);
}

/** Each version against the one before it. */
function checkCompatibility(sections: Sections, place: Place): void {
  const byName = new Map<string, [number, Contract][]>();
  for (const each of good(sections.contracts)) {
    const versions = byName.get(each[1].name);
    if (versions === undefined) byName.set(each[1].name, [each]);
    else versions.push(each);
  }
  for (const versions of byName.values()) {
    const parsed = new Map(versions.map(([, { version }]) => [version, parseVersion(version)]));
    const of = ({ version }: Contract): SemVer => parsed.get(version) as SemVer;
    versions.sort((a, b) => of(a[1]).compare(of(b[1])));
    /** The newest one so far that is no pre-release. */
    let earlier: Contract | null = null;
    for (const [i, later] of versions) {
      if (place.source.isFull) return;
      const found = earlier === null ? [] : breaks(earlier, later);
      if (earlier !== null && found.length > 0)
        place
          .at('contracts', i, 'version')
          .bad(
            `${later.name}@${later.version} breaks ${earlier.version} of the same major: ${found.join('; ')}. Give it a new major, or take these back`,
          );
      if (of(later).prerelease.length === 0) earlier = later;
    }
  }
}

function checkSidecars(sections: Sections, place: Place): void {
  const seen = new Set<string>();
  for (const [i, sidecar] of good(sections.sidecars)) {
    if (seen.has(sidecar.name)) place.at('sidecars', i, 'name').bad(`the sidecar ${sidecar.name} is listed twice`);
    seen.add(sidecar.name);
  }
}

function checkProviders(sections: Sections, place: Place, known: Known, ownSidecar: string | null, isWhole: boolean): void {
  const seen = new Map<string, number>();
  const hosts = new Set<string>([...good(sections.sidecars)].map(([, sidecar]) => sidecar.name));
  if (ownSidecar !== null) hosts.add(ownSidecar);
  for (const [i, provider] of good(sections.providers)) {
    const at = place.at('providers', i);
    const before = seen.get(provider.agentId);
    if (before !== undefined)
      at.at('agent_id').bad(
        `the agent ${provider.agentId} is listed twice (first at line ${place.source.lineOf(place.at('providers', before).path)}): put its offers together`,
      );
    else seen.set(provider.agentId, i);
    for (const [j, offer] of provider.offers.entries()) {
      const problem = isWhole ? known.versionProblem(offer.name, offer.version) : null;
      if (problem !== null) at.at('offers', j).bad(problem);
    }
    for (const name of Object.keys(provider.endpoint.mapping)) {
      if (name !== '*' && !provider.offers.some((offer) => offer.name === name))
        at.at('endpoint', 'mapping', name).badKey(`a mapping for ${name}, which this provider does not offer`);
    }
    if (provider.via !== null && !hosts.has(provider.via) && !sections.sidecars.entries.includes(BAD)) {
      const near = nearest(provider.via, hosts);
      at.at('via').bad(
        `the sidecar ${quote(provider.via)} is not listed under sidecars${near !== null ? `; did you mean ${near}?` : hosts.size > 0 ? `; listed are ${[...hosts].join(', ')}` : ''}`,
      );
    }
  }
}

function checkPolicies(sections: Sections, place: Place, known: Known): void {
  const seen = new Map<string, number>();
  for (const [i, policy] of good(sections.policies)) {
    const at = place.at('policies', i);
    const before = seen.get(policy.capability);
    if (before !== undefined)
      at.at('capability').bad(
        `there is a policy for ${policy.capability} already (line ${place.source.lineOf(place.at('policies', before).path)}): put the two together`,
      );
    else seen.set(policy.capability, i);
    for (const agent of Object.keys(policy.providers)) {
      const problem = known.agentProblem(agent);
      if (problem !== null) at.at('providers', agent).badKey(problem);
    }
    if (!isCapabilityName(policy.capability)) continue;
    const problem = known.nameProblem(policy.capability, false);
    if (problem !== null) {
      at.at('capability').bad(problem);
      continue;
    }
    if (policy.defaultRange !== null) {
      const unmet = known.targetProblem(`${policy.capability}@${policy.defaultRange}`);
      if (unmet !== null) at.at('default_range').bad(unmet);
    }
    for (const version of Object.keys(policy.canary ?? {})) {
      const unknown = known.versionProblem(policy.capability, version);
      if (unknown !== null) at.at('canary', version).badKey(unknown);
    }
  }
}

function checkOverrides(sections: Sections, place: Place, known: Known): void {
  const seen = new Set<string>();
  for (const [i, rule] of good(sections.overrides)) {
    const at = place.at('overrides', i);
    if (seen.has(rule.name)) at.at('name').bad(`there is an override ${rule.name} already`);
    seen.add(rule.name);
    if (rule.capability !== null && isCapabilityName(rule.capability)) {
      const problem = known.nameProblem(rule.capability, false);
      if (problem !== null) at.at('capability').bad(problem);
    }
    if (rule.provider !== null && isAgentId(rule.provider)) {
      const problem = known.agentProblem(rule.provider);
      if (problem !== null) at.at('provider').bad(problem);
    }
    if (rule.to !== null) {
      const problem = known.targetProblem(rule.to) ?? selfProblem(rule, known);
      if (problem !== null) at.at('to').bad(problem);
    }
  }
}

/** A reroute of a capability to itself moves nothing, unless it names a range. */
function selfProblem(rule: Override, known: Known): string | null {
  const target = parseTarget(rule.to ?? '');
  if ('problem' in target || target.range !== null || rule.capability === null) return null;
  return known.canonical(target.name) === rule.capability
    ? `${rule.capability} would be sent to itself: name another capability, or a range of its versions`
    : null;
}
