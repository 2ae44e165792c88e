/**
 * Which version serves this call, and which may stand in for it. It decides range, tags, per-version ACL, canary and
 * "no silent downgrade"; which instance serves is left to `choose`.
 *
 * `call.lines` is the version picked, then the other matching versions of the same major, newest first. Later lines are
 * for the case that nobody usable is left in the earlier ones; they never lie outside what the caller allowed.
 */
import type { Random } from '../../base/random.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import { type Capability, offlineWords, type Version } from '../table/snapshot.ts';
import { drawOf, Split } from './canary.ts';
import { match, type Matching } from './matching.ts';

const only = passing('resolve', 'only_match', '{a} is the only living version that matches ({b})');
const newest = passing('resolve', 'newest_match', '{a} is the newest of the living versions that match ({b}): {c}');
const split = passing('resolve', 'canary', '{a} by canary: {b}; the draw of this {c}');
const noProvider = refusing('resolve', 'no_provider', Code.no_provider, 'nobody offers {a} at present');
const noTagged = refusing('resolve', 'no_tagged_provider', Code.no_provider, 'no provider of {a} carries {b}; exists: {c}');
const noVersion = refusing('resolve', 'no_matching_version', Code.no_matching_version, '{a}: asked {b}; exists: {c}');
const noneAlive = refusing(
  'resolve',
  'none_alive',
  Code.no_matching_version,
  '{a}: asked {b}, whose providers are all offline; exists: {c}',
);
const allOffline = refusing('resolve', 'all_offline', Code.none_healthy, 'every provider of {a} is offline: {c}');
const notAdmitted = refusing('resolve', 'not_admitted', Code.forbidden, '{a}: the ACL of no version that matches ({b}) names {c}');
const badRange = refusing('resolve', 'bad_range', Code.bad_name, '{a}: {c} ({b})');
const switchedOff = refusing('resolve', 'switched_off', Code.none_healthy, '{a}: no version that matches ({b}) may serve: {c}');

/** How many (range, tags) one capability keeps; the oldest goes first. Callers choose ranges, so it must be bounded. */
const KEEP = 256;

/** A matching with what follows from it, kept until the table changes. Who is alive is looked at again on every call. */
class Resolution {
  readonly matching: Matching;
  #split: Split;
  #alive: boolean[];
  /** `lines` for each version of the split, made once. */
  #lines: readonly (readonly Version[])[];
  #verdicts: readonly (readonly [byKey: Verdict, byTrace: Verdict])[];
  readonly #canary: ReadonlyMap<string, number> | null;

  constructor(matching: Matching, canary: ReadonlyMap<string, number> | null) {
    this.matching = matching;
    this.#canary = canary;
    this.#alive = [];
    this.#split = new Split([], null);
    this.#lines = [];
    this.#verdicts = [];
  }

  /** The split over the versions alive now. */
  current(): Split {
    const versions = this.matching.versions;
    const alive = this.#alive;
    let same = alive.length === versions.length;
    for (let i = 0; i < versions.length; i++) {
      const now = (versions[i] as Version).isAlive;
      if (alive[i] === now) continue;
      alive[i] = now;
      same = false;
    }
    if (!same) this.#rebuild(versions.filter((_, i) => alive[i]));
    return this.#split;
  }

  get anyAlive(): boolean {
    return this.#alive.includes(true);
  }

  lines(pick: number): readonly Version[] {
    return this.#lines[pick] as readonly Version[];
  }

  verdict(pick: number, byKey: boolean): Verdict {
    return (this.#verdicts[pick] as readonly [Verdict, Verdict])[byKey ? 0 : 1];
  }

  #rebuild(alive: readonly Version[]): void {
    const next = new Split(alive, this.#canary);
    this.#split = next;
    this.#lines = next.versions.map((first) => [
      first,
      ...next.allowed.filter((other) => other !== first && other.semver.major === first.semver.major),
    ]);
    const shares = next.versions.map((version, i) => `${version.text} ${percent(next.shares[i] as number)}`);
    const names = alive.map((version) => version.text);
    this.#verdicts = next.versions.map(({ text }) => {
      if (next.versions.length > 1)
        return [new Verdict(split, text, shares, 'conversation key'), new Verdict(split, text, shares, 'trace')];
      const verdict =
        names.length === 1 ? new Verdict(only, text, this.matching.rule) : new Verdict(newest, text, this.matching.rule, names);
      return [verdict, verdict];
    });
  }
}

export function resolve(call: Call, random: Random): Verdict {
  const capability = call.capability as Capability;
  const resolution = resolutionOf(capability, call);
  call.lines = [];
  call.lineIndex = 0;
  if (resolution.matching.lack !== null) return lacking(capability, call, resolution.matching);
  const current = resolution.current();
  let pick = 0;
  let byKey = false;
  if (current.versions.length > 1) {
    byKey = call.affinityKey !== null && call.affinityKey !== '';
    const key = byKey ? (call.affinityKey as string) : call.traceId;
    pick = current.pick(key === '' ? random.next() : byKey && call.keyDraws !== null ? call.keyDraws.canary : drawOf(key));
  } else if (current.versions.length === 0) {
    return noneLeft(capability, resolution);
  }
  call.lines = resolution.lines(pick);
  return resolution.verdict(pick, byKey);
}

function resolutionOf(capability: Capability, call: Call): Resolution {
  const byCaller = capability.sameAcl || call.principal === null ? '' : call.principal.agent;
  // No part can hold a line feed: ranges, tags and agent ids are checked where they come in.
  const key = call.tags === '' && byCaller === '' ? (call.range ?? '') : `${call.range ?? ''}\n${call.tags}\n${byCaller}`;
  const kept = capability.resolved.get(key) as Resolution | undefined;
  if (kept !== undefined) return kept;
  const made = new Resolution(match(capability, call.range, call.tags, call.principal), capability.canary);
  if (capability.resolved.size >= KEEP) capability.resolved.delete(capability.resolved.keys().next().value as string);
  capability.resolved.set(key, made);
  return made;
}

function lacking(capability: Capability, call: Call, matching: Matching): Verdict {
  const exists = listed(matching.offered);
  switch (matching.lack) {
    case 'no_provider':
      return new Verdict(noProvider, capability.name);
    case 'no_tagged_provider':
      return new Verdict(noTagged, capability.name, call.tags, exists);
    case 'not_admitted':
      return new Verdict(notAdmitted, capability.name, matching.rule, call.principal?.agent ?? 'this caller');
    case 'bad_range':
      return new Verdict(badRange, capability.name, matching.rule, matching.problem);
    default:
      return new Verdict(noVersion, capability.name, matching.rule, exists);
  }
}

/** Something matches, but nobody of it is alive, or all of it is switched off. */
function noneLeft(capability: Capability, resolution: Resolution): Verdict {
  const { matching } = resolution;
  if (resolution.anyAlive) return new Verdict(switchedOff, capability.name, matching.rule, matching.versions.map(whyNot));
  const elsewhere = matching.offered.some((version) => version.isAlive);
  return new Verdict(elsewhere ? noneAlive : allOffline, capability.name, matching.rule, listed(matching.offered));
}

function whyNot(version: Version): string {
  return `${version.text} (${version.capability.canary?.get(version.text) === 0 ? 'share 0' : 'offline'})`;
}

/** `1.8.0 (2 providers)`, newest first. */
function listed(versions: readonly Version[]): string[] {
  return versions.map((version) => {
    const count = version.candidates.length;
    const offline = version.candidates.filter((candidate) => candidate.provider.health.offline);
    const words = [...new Set(offline.map(({ provider }) => offlineWords(provider)))].join(' or ');
    const note = offline.length === 0 ? '' : offline.length === count ? `, ${words}` : `, ${offline.length} of them ${words}`;
    return `${version.text} (${count} provider${count === 1 ? '' : 's'}${note})`;
  });
}

function percent(share: number): string {
  return `${Number((share * 100).toFixed(4))} %`;
}
