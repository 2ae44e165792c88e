/**
 * Who may call. The name checked is the canonical one that `name` made, which is also the one dispatched; a fallback to
 * another capability, and what an operator reroutes to, pass here again. Versions of one capability may have different lists:
 * a caller who is in none is refused here, `resolve` leaves out the versions that do not admit it, and where a version is
 * named from outside (at the provider's end) that version's own list is asked.
 *
 * A list in `audit` (its contract's, the operator's policy's, this sidecar's) refuses nobody: whom it does not name is
 * written down in the trace, counted and told in the audit log, and goes on.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import { admittedBy, type Capability, type Version } from '../table/snapshot.ts';

const allowed = passing('acl', 'allowed', '{a} may call {b}: admitted by {c}');
const denied = refusing('acl', 'denied', Code.forbidden, '{a} may not call {b}: no entry of its ACL ({c}) names it');
const audited = passing(
  'acl',
  'audited',
  '{a} would not be let in to {b}: no entry of its ACL ({c}) names it; the list is in audit, so it goes on',
);

export function acl(call: Call): Verdict {
  const principal = call.principal as Principal;
  const capability = call.capability as Capability;
  const versions = capability.versions;
  const count = capability.sameAcl ? Math.min(1, versions.length) : versions.length;
  let isAudited = false;
  for (let i = 0; i < count; i++) {
    const version = versions[i] as Version;
    const by = admittedBy(version.contract.acl, principal.team, principal.role, principal.id);
    if (by !== null) return new Verdict(allowed, principal.agent, capability.name, by);
    if (version.isAudited) isAudited = true;
  }
  if (!isAudited) return new Verdict(denied, principal.agent, capability.name, listOf(versions));
  return (call.letIn = new Verdict(audited, principal.agent, capability.name, listOf(versions)));
}

/** The list of the very version, where the versions of a capability have different ones; null = there is nothing to say. */
export function aclOf(call: Call, version: Version): Verdict | null {
  if (version.capability.sameAcl) return null;
  const principal = call.principal as Principal;
  if (admittedBy(version.contract.acl, principal.team, principal.role, principal.id) !== null) return null;
  const name = `${version.capability.name}@${version.text}`;
  if (!version.isAudited) return new Verdict(denied, principal.agent, name, listOf([version]));
  return (call.letIn = new Verdict(audited, principal.agent, name, listOf([version])));
}

function listOf(versions: readonly Version[]): string[] {
  const texts = new Set<string>();
  for (const version of versions) for (const pattern of version.contract.acl.patterns) texts.add(pattern.text);
  return [...texts];
}
