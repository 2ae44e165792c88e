/**
 * What changes from one operators' document to the next: by policy (its pattern), by contract (name and version) and by rule
 * (its name), field by field, in the words of the language. Comments make no difference, nor does order but that of rules.
 */
import { writeStreaming } from '../../proto/language/written.ts';
import { formatDuration, formatRatio, quote } from '../../base/duration.ts';
import type { Rule } from '../../proto/language/rule.ts';
import { sameValue } from '../../proto/language/schema-compat.ts';
import type { OperatorsDocument } from './document.ts';

export interface FieldChange {
  /** In the words of the language, such as `retry.max`. */
  readonly field: string;
  /** As a person would write it; null = not said. */
  readonly before: unknown;
  readonly after: unknown;
}

export interface DiffEntry {
  readonly kind: 'added' | 'removed' | 'changed';
  /** `policy crm.*`, `contract crm.order.query@2.0.0`, `rule to_retriever` or `rules (order)`. */
  readonly what: string;
  /** Of an added or removed one: everything that it says. */
  readonly fields: readonly FieldChange[];
}

export interface DocumentDiff {
  readonly entries: readonly DiffEntry[];
  /** For people: one line for each entry and each field. */
  readonly lines: readonly string[];
}

export const NO_DIFF: DocumentDiff = Object.freeze({ entries: [], lines: [] });

export function diffDocuments(before: OperatorsDocument, after: OperatorsDocument): DocumentDiff {
  const entries = [
    ...diffParts(byKey(before.policies, policyKey), byKey(after.policies, policyKey), 'policy', ['capability']),
    ...diffParts(byKey(before.contracts, contractKey), byKey(after.contracts, contractKey), 'contract', ['name', 'version']),
    ...diffParts(byKey(before.rules, ruleKey), byKey(after.rules, ruleKey), 'rule', ['name']),
    ...diffOrder(before.rules, after.rules),
  ];
  return { entries, lines: entries.flatMap(linesOf) };
}

export const policyKey = (policy: { readonly capability: string }): string => policy.capability;
const contractKey = (contract: { readonly name: string; readonly version: string }): string => `${contract.name}@${contract.version}`;

const ruleKey = (rule: { readonly name: string }): string => rule.name;

/** Of two rules that are equally specific the first one decides. */
function diffOrder(before: readonly Rule[], after: readonly Rule[]): DiffEntry[] {
  const had = new Set(before.map(ruleKey));
  const has = new Set(after.map(ruleKey));
  const old = before.map(ruleKey).filter((name) => has.has(name));
  const now = after.map(ruleKey).filter((name) => had.has(name));
  if (sameValue(old, now)) return [];
  return [{ kind: 'changed', what: 'rules (order)', fields: [{ field: 'order', before: old, after: now }] }];
}

type Loose = Readonly<Record<string, unknown>>;

function byKey<T extends object>(parts: readonly T[], key: (part: T) => string): Map<string, Loose> {
  return new Map(parts.map((part) => [key(part), part as unknown as Loose]));
}

function diffParts(
  before: ReadonlyMap<string, Loose>,
  after: ReadonlyMap<string, Loose>,
  kind: string,
  keys: readonly string[],
): DiffEntry[] {
  const entries: DiffEntry[] = [];
  for (const name of [...new Set([...before.keys(), ...after.keys()])].sort()) {
    const [old, now] = [before.get(name), after.get(name)];
    const fields: FieldChange[] = [];
    compare(without(old ?? {}, keys), without(now ?? {}, keys), '', fields);
    if (old !== undefined && now !== undefined && fields.length === 0) continue;
    entries.push({ kind: old === undefined ? 'added' : now === undefined ? 'removed' : 'changed', what: `${kind} ${name}`, fields });
  }
  return entries;
}

function without(map: Loose, keys: readonly string[]): Loose {
  return Object.fromEntries(Object.entries(map).filter(([key]) => !keys.includes(key)));
}

/** These are one value for people, not maps of settings. */
const WHOLE: ReadonlySet<string> = new Set(['input', 'output', 'fallback', 'acl', 'success', 'examples', 'affinity']);

function compare(before: Loose, after: Loose, at: string, fields: FieldChange[]): void {
  for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [old, now] = [before[key] ?? null, after[key] ?? null];
    if (sameValue(old, now)) continue;
    const field = `${at}${wordOf(key)}`;
    const isMaps = (isMap(old) || isMap(now)) && (isMap(old) || old === null) && (isMap(now) || now === null);
    if (isMaps && !WHOLE.has(key) && !isStreamRule(key, old) && !isStreamRule(key, now)) compare(old ?? {}, now ?? {}, `${field}.`, fields);
    else if (!isNothing(old) || !isNothing(now)) fields.push({ field, before: shown(key, at, old), after: shown(key, at, now) });
  }
}

/** A contract's word on its stream is there or not; a policy's is a map of settings. */
function isStreamRule(key: string, value: unknown): boolean {
  return key === 'streaming' && isMap(value) && 'done' in value;
}

const isMap = (value: unknown): value is Loose => typeof value === 'object' && value !== null && !Array.isArray(value);

/** What a reader gives for a field that nobody wrote. `false` is not among them: said, it is stronger than what stands below. */
function isNothing(value: unknown): boolean {
  return value === null || value === '' || (typeof value === 'object' && Object.keys(value).length === 0);
}

const NAMES: Readonly<Record<string, string>> = {
  minRemainingRatio: 'min_remaining',
  slowStartMs: 'slow_start',
  requestBytes: 'request',
  responseBytes: 'response',
  eventBytes: 'event',
};

/** `backoffMaxMs` → `backoff_max`; what is not a name of our own (a version, an agent) stays. */
function wordOf(key: string): string {
  if (!/^[a-z]+(?:[A-Z][a-z]+)*$/.test(key)) return key;
  return NAMES[key] ?? key.replace(/Ms$/, '').replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function shown(key: string, at: string, value: unknown): unknown {
  if (typeof value === 'number') {
    if (key.endsWith('Ms')) return formatDuration(value);
    if (key.endsWith('Ratio') || at.endsWith('canary.')) return formatRatio(value);
  }
  if (key === 'acl' && isMap(value)) {
    if (value['isPublic'] === true) return 'public';
    const patterns = (value['patterns'] as readonly { text: string }[]).map((pattern) => pattern.text);
    return value['mode'] === 'audit' ? { allow: patterns, mode: 'audit' } : patterns;
  }
  if (key === 'streaming' && isMap(value)) return writeStreaming(value);
  if (key === 'fallback' && isMap(value)) {
    if (!('chain' in value))
      return { if_no_available_agent: value['kind'] === 'capability' ? { capability: value['target'] } : value['kind'] };
    const chain = value['chain'] as readonly { kind: string; target?: string; agentId?: string; data?: unknown }[];
    return chain.length === 0 ? 'none' : chain.map((step) => ({ [step.kind]: step.target ?? step.agentId ?? step.data }));
  }
  return value;
}

const SIGNS = { added: '+', removed: '-', changed: '~' } as const;
const MAX_SHOWN = 160;

function linesOf(entry: DiffEntry): string[] {
  const lines = [`${SIGNS[entry.kind]} ${entry.what}`];
  for (const { field, before, after } of entry.fields) {
    if (entry.kind === 'added') lines.push(`    ${field}: ${text(after)}`);
    else if (entry.kind === 'removed') lines.push(`    ${field}: ${text(before)}`);
    else lines.push(`    ${field}: ${text(before)} -> ${text(after)}`);
  }
  return lines;
}

function text(value: unknown): string {
  if (value === null) return '(not said)';
  return typeof value === 'string' ? quote(value, MAX_SHOWN).slice(1, -1) : quote(JSON.stringify(value), MAX_SHOWN).slice(1, -1);
}
