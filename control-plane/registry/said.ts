/** What the operators' documents and the agents say together about one capability. The operator's word is the stronger one. */
import { policiesFor } from '../../proto/language/merge.ts';
import { parseVersion } from '../../proto/language/range.ts';
import { NO_BREAKER, NO_CLOCKS, NO_LIMITS, NO_RETRY } from '../../proto/language/settings-fields.ts';
import type { Contract, Policy } from '../../proto/language/types.ts';
import type { OperatorsDocument } from '../rules/document.ts';
import type { ContractBook } from './contracts.ts';

/** The contracts of a capability as they are pushed, oldest version first. */
export function contractsSaid(name: string, book: ContractBook, document: OperatorsDocument): Contract[] {
  const versions = new Map<string, Contract>();
  for (const [version, known] of book.versions(name)) versions.set(version, known.contract);
  for (const contract of document.contracts) if (contract.name === name) versions.set(contract.version, contract);
  if (versions.size <= 1) return [...versions.values()];
  return [...versions.values()].sort((a, b) => parseVersion(a.version).compare(parseVersion(b.version)));
}

/**
 * The policies that cover a capability, weakest first, with an operator's canary shift put into the one that names the
 * capability itself, so that there is at most one policy of each pattern.
 */
export function policiesSaid(
  name: string,
  document: OperatorsDocument,
  shift: Readonly<Record<string, number>> | undefined,
): readonly Policy[] {
  const covering = policiesFor(name, document.policies);
  if (shift === undefined) return covering;
  const exact = covering.find((policy) => policy.capability === name);
  if (exact === undefined) return [...covering, { ...unsaid(name), canary: shift }];
  return covering.map((policy) => (policy === exact ? { ...policy, canary: shift } : policy));
}

/** A policy that says nothing. */
function unsaid(capability: string): Policy {
  return {
    capability,
    defaultRange: null,
    canary: null,
    load: null,
    panic: null,
    locality: null,
    slowStartMs: null,
    timeoutMs: null,
    deadlineMs: null,
    retry: NO_RETRY,
    breaker: NO_BREAKER,
    limits: NO_LIMITS,
    streaming: NO_CLOCKS,
    fallback: null,
    providers: {},
  };
}
