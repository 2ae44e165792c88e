/** Which version of a capability a message is for. As a call's where somebody is there; else the one that it can wait for, never an older one. */
import type { Random } from '../../base/random.ts';
import { compileRange } from '../../proto/language/range.ts';
import { type Call, record } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { resolve } from '../resolve/resolve.ts';
import { isOpenTo, type Capability, type Version } from '../table/snapshot.ts';

/** As a call's, or the newest one that is meant and has nobody now: it is known what the message waits for. */
export function versionFor(random: Random, call: Call, capability: Capability, role: string | null, agent: string | null): Version | null {
  const range = call.range ?? capability.defaultRange;
  const verdict = resolve(call, random);
  if (record(call, verdict)) {
    const picked = call.lines[0] as Version;
    if ((role === null && agent === null) || offers(picked, role, agent)) return picked;
    // Who is meant may have stayed with an earlier version, within what the sender allows.
    return newest(call, capability, range, (version) => offers(version, role, agent)) ?? picked;
  }
  if (!WAITABLE.has(verdict.reason.name)) return null;
  const version = newest(call, capability, range, any);
  if (version !== null) {
    call.code = 0;
    call.refusal = null;
  }
  return version;
}

const any = (): boolean => true;

function offers({ candidates }: Version, role: string | null, agent: string | null): boolean {
  for (const { provider } of candidates) {
    const { record: one } = provider;
    if ((agent === null || one.agentId === agent) && (role === null || one.role === role || Object.hasOwn(one.tags, role))) return true;
  }
  return false;
}

/** It is known, and only nobody is there. */
const WAITABLE: ReadonlySet<string> = new Set(['no_provider', 'none_alive', 'all_offline']);

function newest(call: Call, capability: Capability, range: string | null, fits: (version: Version) => boolean): Version | null {
  const compiled = range === null ? null : compileRange(range);
  if (compiled !== null && 'problem' in compiled) return null;
  const { team, role, id } = call.principal as Principal;
  for (const version of capability.versions) {
    const isMeant = compiled === null ? version.semver.prerelease.length === 0 : compiled.satisfiedBy(version.semver);
    if (isMeant && fits(version) && isOpenTo(version, team, role, id)) return version;
  }
  return null;
}
