/**
 * Who may call. The name checked is the canonical one that `name` made, which is also the one dispatched; a fallback to
 * another capability passes here again. Versions of one capability may have different lists: a caller who is in none is
 * refused here, and `resolve` leaves out the versions that do not admit it.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import { admittedBy, type Capability, type Version } from '../table/snapshot.ts';

const allowed = passing('acl', 'allowed', '{a} may call {b}: admitted by {c}');
const denied = refusing('acl', 'denied', Code.forbidden, '{a} may not call {b}: no entry of its ACL ({c}) names it');

export function acl(call: Call): Verdict {
  const principal = call.principal as Principal;
  const capability = call.capability as Capability;
  const versions = capability.versions;
  const count = capability.sameAcl ? Math.min(1, versions.length) : versions.length;
  for (let i = 0; i < count; i++) {
    const by = admittedBy((versions[i] as Version).contract.acl, principal.team, principal.role, principal.id);
    if (by !== null) return new Verdict(allowed, principal.agent, capability.name, by);
  }
  return new Verdict(denied, principal.agent, capability.name, listOf(versions));
}

function listOf(versions: readonly Version[]): string[] {
  const texts = new Set<string>();
  for (const version of versions) for (const pattern of version.contract.acl.patterns) texts.add(pattern.text);
  return [...texts];
}
