/** What is to be different in a replay: other policies, other overrides, single settings. Read by the language's own readers. */
import { policiesFor } from '../../proto/language/merge.ts';
import { policy } from '../../proto/language/policy.ts';
import { BAD, openSource, Place, readPresent } from '../../proto/language/reader.ts';
import { override } from '../../proto/language/override.ts';
import { isPlainMap, list } from '../../proto/language/shapes.ts';
import type { Override, Policy, Problem } from '../../proto/language/types.ts';
import { wordsOfProblem } from '../table/file.ts';
import { readSidecarSection } from './sidecar-settings.ts';
import type { RecordedConfig } from '../record/shapes.ts';

const MOST = 100_000;

export interface Changes {
  /** In the place of those recorded; null = they stay. */
  readonly policies: readonly Policy[] | null;
  readonly overrides: readonly Override[] | null;
  /** Stronger than all others. */
  readonly settings: readonly Policy[];
  /** Of the sidecar. */
  readonly config: (config: RecordedConfig) => RecordedConfig;
  /** As they were given. */
  readonly words: readonly string[];
}

export const NO_CHANGES: Changes = Object.freeze({
  policies: null,
  overrides: null,
  settings: Object.freeze([]),
  config: (config: RecordedConfig) => config,
  words: Object.freeze([]),
});

export function isChange(changes: Changes): boolean {
  return changes.words.length > 0;
}

/**
 * @param withText a file with policies, overrides or both; the rest of a table may stand in it, and counts for nothing here
 * @param sets `breaker.failure_ratio=30%`, any setting of a policy; `sidecar.max_hops=4`, those of the sidecar that decide something
 */
export function readChanges(
  withText: { readonly text: string; readonly file: string } | null,
  sets: readonly string[],
): Changes | readonly string[] {
  const wrong: string[] = [];
  let policies: readonly Policy[] | null = null;
  let overrides: readonly Override[] | null = null;
  const words: string[] = [];
  if (withText !== null) {
    const read = readFile(withText.text, withText.file);
    if ('problems' in read) wrong.push(...read.problems.map(wordsOfProblem));
    else {
      ({ policies, overrides } = read);
      words.push(`--with ${withText.file}`);
    }
  }
  const ofPolicy: [string, string][] = [];
  const ofSidecar: [string, string][] = [];
  for (const set of sets) {
    const equals = set.indexOf('=');
    if (equals < 1) wrong.push(`--set ${set}: write name=value, such as breaker.failure_ratio=30%`);
    else if (set.startsWith('sidecar.')) ofSidecar.push([set.slice('sidecar.'.length, equals), set.slice(equals + 1)]);
    else ofPolicy.push([set.slice(0, equals), set.slice(equals + 1)]);
    words.push(`--set ${set}`);
  }
  const settings: Policy[] = [];
  if (ofPolicy.length > 0) {
    const read = readPolicy(ofPolicy);
    if (typeof read === 'string') wrong.push(read);
    else settings.push(read);
  }
  const config = ofSidecar.length === 0 ? NO_CHANGES.config : readSidecarSection(nested(ofSidecar));
  if (typeof config === 'string') wrong.push(config);
  if (wrong.length > 0) return wrong;
  return { policies, overrides, settings, config: config as Changes['config'], words };
}

function readFile(
  text: string,
  file: string,
):
  | { readonly policies: readonly Policy[] | null; readonly overrides: readonly Override[] | null }
  | { readonly problems: readonly Problem[] } {
  const { source, value } = openSource(text, file);
  const place = new Place(source);
  if (source.problems.length === 0) {
    if (!isPlainMap(value)) place.bad('a map with policies or overrides is needed');
    else {
      const map = value as Readonly<Record<string, unknown>>;
      // What a policy names need not stand in this file: it is held against the recorded tables.
      const policies = 'policies' in map ? readPresent(list(policy, MOST), map['policies'], place.at('policies')) : null;
      const overrides = 'overrides' in map ? readPresent(list(override, MOST), map['overrides'], place.at('overrides')) : null;
      if (policies === null && overrides === null)
        place.bad('there are neither policies nor overrides in it, and nothing else can be changed here');
      else if (policies !== BAD && overrides !== BAD && source.problems.length === 0) return { policies, overrides };
    }
  }
  return { problems: source.problems };
}

function readPolicy(sets: readonly (readonly [string, string])[]): Policy | string {
  const { source, value } = openSource(JSON.stringify({ capability: '*', ...nested(sets) }), '--set');
  const read = policy.read(value, new Place(source));
  if (read === BAD || source.problems.length > 0) return `--set: ${source.problems.map(({ message }) => message).join('; ')}`;
  return read;
}

/** `breaker.failure_ratio` → {breaker: {failure_ratio}}; numbers, truth values and lists as YAML has them. */
export function nested(sets: readonly (readonly [string, string])[]): Record<string, unknown> {
  const whole: Record<string, unknown> = {};
  for (const [name, text] of sets) {
    const parts = name.split('.');
    let at = whole;
    for (const part of parts.slice(0, -1)) {
      const next = Object.hasOwn(at, part) ? at[part] : undefined;
      if (isPlainMap(next)) at = next as Record<string, unknown>;
      else {
        const made: Record<string, unknown> = {};
        at[part] = made;
        at = made;
      }
    }
    at[parts[parts.length - 1] as string] = valueOf(text);
  }
  return whole;
}

function valueOf(text: string): unknown {
  const { source, value } = openSource(text, '--set');
  return source.problems.length === 0 ? value : text;
}

/** Weakest first, as a capability's part has them. */
export function policiesOf(name: string, recorded: readonly Policy[], changes: Changes): readonly Policy[] {
  const base = changes.policies === null ? recorded : policiesFor(name, changes.policies);
  return changes.settings.length === 0 ? base : [...base, ...changes.settings];
}
