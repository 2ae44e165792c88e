/**
 * The compatibility guard over everything that is known (SPEC R2.3): what a contract that somebody wants to register, or
 * an operator to apply, breaks. All of it is named, with what to do.
 */
import { breaks } from '../../proto/language/compat.ts';
import { parseVersion } from '../../proto/language/range.ts';
import { sameValue } from '../../proto/language/schema-compat.ts';
import type { Contract } from '../../proto/language/types.ts';

const label = (contract: Contract): string => `${contract.name}@${contract.version}`;

/** What `contract` breaks of the other versions of its name, or they of it; one sentence for each pair. */
export function versionProblems(contract: Contract, others: Iterable<Contract>): string[] {
  const problems: string[] = [];
  for (const other of others) {
    if (other.version === contract.version) continue;
    const broken = breaks(other, contract);
    if (broken.length > 0) problems.push(`${label(contract)} breaks ${other.version} of the same major: ${broken.join('; ')}. ${REMEDY}`);
    const breaking = breaks(contract, other);
    if (breaking.length > 0)
      problems.push(`${label(contract)} is broken by ${other.version}, which is registered already: ${breaking.join('; ')}. ${REMEDY}`);
  }
  return problems;
}

const REMEDY = 'Give it a new major, or take these back';

/** What a new content of the same version breaks of the content that was promised before. */
export function sameVersionBreaks(before: Contract, after: Contract): string[] {
  const { major, minor, patch, prerelease } = parseVersion(after.version);
  if (prerelease.length > 0) return [];
  return breaks(before, { ...after, version: `${major}.${minor}.${patch + 1}` });
}

/** The parts of two contracts that differ, in the words of the language. */
export function differingParts(a: Contract, b: Contract): string[] {
  return (Object.keys(WORDS) as (keyof Contract)[]).filter((key) => !sameValue(a[key], b[key])).map((key) => WORDS[key]);
}

/** The same of what a provider implements; the rest (who may call, times, fallback, words) is the operator's to change. */
export function differingInterface(a: Contract, b: Contract): string[] {
  return INTERFACE.filter((key) => !sameValue(interfaceOf(a, key), interfaceOf(b, key))).map((key) => WORDS[key]);
}

/** Of a stream, that it is one and how its end is told; how long one waits for it is the operator's. */
function interfaceOf(contract: Contract, key: keyof Contract): unknown {
  return key === 'streaming' ? contract.streaming && { done: contract.streaming.done } : contract[key];
}

const INTERFACE: readonly (keyof Contract)[] = ['input', 'output', 'execution', 'affinity', 'streaming'];

const WORDS: Readonly<Record<keyof Contract, string>> = {
  name: 'name',
  version: 'version',
  description: 'description',
  examples: 'examples',
  aliases: 'aliases',
  tags: 'tags',
  input: 'input',
  output: 'output',
  execution: 'execution',
  affinity: 'affinity',
  timeoutMs: 'timeout',
  deadlineMs: 'deadline',
  retry: 'retry',
  breaker: 'breaker',
  limits: 'limits',
  fallback: 'fallback',
  acl: 'acl',
  streaming: 'streaming',
  success: 'success',
};
