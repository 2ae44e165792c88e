/**
 * Which versions of a capability a call may mean: those whose tags and ACL fit, that the range allows, that somebody
 * offers. A question of the table alone, so the answer is kept per (range, tags) until the table changes; who is alive
 * is asked per call.
 */
import { compileRange, type Range } from '../../proto/language/range.ts';
import type { Principal } from '../call/principal.ts';
import { type Capability, isOpenTo, Version } from '../table/snapshot.ts';

/** Why there is nothing to choose from, or null. */
export type Lack = 'no_provider' | 'no_tagged_provider' | 'not_admitted' | 'no_match' | 'bad_range' | null;

/** Newest first throughout. */
export interface Matching {
  readonly lack: Lack;
  /** The rule that was applied, in words: `^2.0`, `the operator's range ^1`, `newest stable major 2`. */
  readonly rule: string;
  /** Versions that match, each with at least one provider. */
  readonly versions: readonly Version[];
  /** What the caller could have asked for: every version with a provider that has the tags and admits the caller. */
  readonly offered: readonly Version[];
  /** The problem with the range, for `bad_range`. */
  readonly problem: string;
}

export function match(capability: Capability, range: string | null, tags: string, principal: Principal | null): Matching {
  const provided = capability.versions.filter((version) => version.candidates.length > 0);
  if (provided.length === 0) return lacking('no_provider', '', []);
  const tagged = tags === '' ? provided : withTags(provided, tags);
  if (tagged.length === 0) return lacking('no_tagged_provider', '', provided);
  const open = capability.sameAcl ? tagged : tagged.filter((version) => admits(version, principal));
  const text = range ?? capability.defaultRange;
  if (text === null) {
    if (open.length === 0) return lacking('not_admitted', 'any version', []);
    return byDefault(capability, open);
  }
  const compiled = compileRange(text);
  const rule = range === null ? `the operator's range ${text}` : text;
  if ('problem' in compiled) return lacking('bad_range', rule, open, compiled.problem);
  const versions = satisfying(open, compiled);
  if (versions.length > 0) return { lack: null, rule, versions, offered: open, problem: '' };
  return lacking(satisfying(tagged, compiled).length > 0 ? 'not_admitted' : 'no_match', rule, open);
}

function lacking(lack: Lack, rule: string, offered: readonly Version[], problem = ''): Matching {
  return { lack, rule, versions: [], offered, problem };
}

function satisfying(versions: readonly Version[], range: Range): Version[] {
  return versions.filter((version) => range.satisfiedBy(version.semver));
}

function admits(version: Version, principal: Principal | null): boolean {
  return isOpenTo(version, principal?.team ?? '', principal?.role ?? '', principal?.id ?? '');
}

/**
 * Nothing was asked: the newest stable major. A major that is only a canary (every version of it has a share, and the
 * shares leave something over) does not stand alone: the rest of the traffic belongs to the next major.
 */
function byDefault(capability: Capability, open: readonly Version[]): Matching {
  const released = open.filter((version) => version.semver.prerelease.length === 0);
  const weighty = released.filter((version) => version.candidates.some((one) => one.weight > 0));
  // Where every weight is 0 it is the weights that are in the way, and `choose` says so.
  const stable = weighty.length > 0 ? weighty : released;
  const versions: Version[] = [];
  let rule = '';
  let named = 0;
  let complete = false;
  for (const major of new Set(stable.map((version) => version.semver.major))) {
    rule = rule === '' ? `newest stable major ${major}` : `${rule} and, beside its canary, ${major}`;
    for (const version of stable) {
      if (version.semver.major !== major) continue;
      versions.push(version);
      const share = capability.canary?.get(version.text);
      if (share === undefined) complete = true;
      else named += share;
    }
    if (complete || named >= 0.999_999) break;
  }
  if (versions.length === 0) return lacking('no_match', 'newest stable version', open);
  return { lack: null, rule, versions, offered: open, problem: '' };
}

/** The same versions with only the providers that carry every tag; those left without one are dropped. */
function withTags(versions: readonly Version[], selector: string): Version[] {
  const wanted = selector.split(',').map((pair) => {
    const at = pair.indexOf('=');
    return [pair.slice(0, at), pair.slice(at + 1)] as const;
  });
  const views: Version[] = [];
  for (const version of versions) {
    const view = new Version(version.capability, version.semver, version.contract, version.settings, version.input, version.output);
    for (const candidate of version.candidates) {
      const own = candidate.provider.record.tags;
      const fits = wanted.every(([key, value]) => (Object.hasOwn(own, key) ? own[key] : version.contract.tags[key]) === value);
      if (fits) view.candidates.push(candidate);
    }
    if (view.candidates.length > 0) views.push(view);
  }
  return views;
}
