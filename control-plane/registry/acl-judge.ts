/**
 * Who may call a capability, judged as the sidecars judge it, from what is pushed to them: per version, by which pattern, and
 * whether the list is held to or only audits, and who says so.
 */
import { compileRange, parseVersion } from '../../proto/language/range.ts';
import type { AclMode, AclPattern, Contract, Policy } from '../../proto/language/types.ts';
import type { CapabilityState } from '../../proto/wire/registry.ts';

export interface AclVerdict {
  readonly version: string;
  readonly is_in_range: boolean;
  /** The entry that lets the caller in; null = none does. */
  readonly by: string | null;
  readonly acl: readonly string[];
  readonly mode: AclMode;
  /** Who says the mode. */
  readonly mode_by: string;
  /** It gets this version: an entry names it, or the list only audits. */
  readonly admits: boolean;
}

/** Newest first. @param range null = any version */
export function judgeAcl(
  state: Pick<CapabilityState, 'contracts' | 'policies'>,
  caller: string,
  range: string | null,
): readonly AclVerdict[] {
  const compiled = range === null ? null : compileRange(range);
  const said = modeSaid(state.policies);
  return state.contracts
    .map((contract): AclVerdict => {
      const by = admittedBy(contract, caller);
      const mode = said?.mode ?? contract.acl.mode ?? 'enforce';
      return {
        version: contract.version,
        is_in_range: compiled === null || (!('problem' in compiled) && compiled.satisfiedBy(parseVersion(contract.version))),
        by,
        acl: contract.acl.isPublic ? ['public'] : contract.acl.patterns.map(({ text }) => text),
        mode,
        mode_by:
          said !== null ? `the policy for ${said.by}` : contract.acl.mode === undefined ? 'nobody: it is the default' : 'its contract',
        admits: by !== null || mode === 'audit',
      };
    })
    .reverse();
}

/** `policies` stand weakest first. */
function modeSaid(policies: readonly Policy[]): { readonly mode: AclMode; readonly by: string } | null {
  const policy = policies.findLast(({ aclMode }) => aclMode != null);
  return policy?.aclMode == null ? null : { mode: policy.aclMode, by: policy.capability };
}

function admittedBy({ acl }: Contract, caller: string): string | null {
  if (acl.isPublic) return 'public';
  const [team = '', role = '', id = ''] = caller.split('.');
  const fits = (pattern: AclPattern): boolean =>
    (pattern.team === null || pattern.team === team) &&
    (pattern.role === null || pattern.role === role) &&
    (pattern.id === null || pattern.id === id);
  return acl.patterns.find(fits)?.text ?? null;
}
