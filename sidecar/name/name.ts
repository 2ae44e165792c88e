/**
 * What is asked: the canonical capability and the range, made once from what the caller wrote. Everything after this
 * stage (ACL, routing, metrics, dispatch) sees only the result, so that no two of them can read a name differently.
 */
import { capabilityNameProblem, parseTagSelector, parseTarget, type Target } from '../../proto/language/names.ts';
import { nearest } from '../../base/suggest.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Call } from '../call/call.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Capability, Snapshot } from '../table/snapshot.ts';

const named = passing('name', 'named', '{a}');
const aliased = passing('name', 'alias', '{a} is an alias of {b}');
const bad = refusing('name', 'bad_name', Code.bad_name, '{a}');
const noAlias = refusing('name', 'bad_name', Code.bad_name, 'nothing here has the alias {a}, and {b}');
const noAliasButNear = refusing('name', 'bad_name', Code.bad_name, 'nothing here has the alias {a}; did you mean {c}? {b}');
const unknown = refusing('name', 'unknown', Code.no_provider, 'nobody offers {a}');
const unknownButNear = refusing('name', 'unknown', Code.no_provider, 'nobody offers {a}; did you mean {b}?');

/** Parsed targets are kept, since agents ask for the same few again and again; junk cannot push them all out. */
const KEEP = 2_048;
const parsed = new Map<string, Target>();

export function name(call: Call): Verdict {
  const target = parse(call.asked);
  if (typeof target === 'string') return new Verdict(bad, target);
  const table = call.table as Snapshot;
  const capability = table.capabilities.get(target.name) ?? table.aliases.get(target.name);
  if (capability === undefined) return stranger(target.name, table);
  const tags = call.headers[Header.tags];
  if (tags !== undefined) {
    const selector = parseTagSelector(String(tags));
    if ('problem' in selector) return new Verdict(bad, selector.problem);
    call.tags = selector.text;
  }
  call.capability = capability;
  call.range = target.range;
  return capability.name === target.name ? new Verdict(named, call.asked) : new Verdict(aliased, target.name, capability.name);
}

/** The capability of a target that a policy or an override names; null when it is not in the table. */
export function targetOf(table: Snapshot, text: string): { capability: Capability; range: string | null } | null {
  const target = parse(text);
  if (typeof target === 'string') return null;
  const capability = table.capabilities.get(target.name) ?? table.aliases.get(target.name);
  return capability === undefined ? null : { capability, range: target.range };
}

function parse(text: string): Target | string {
  const kept = parsed.get(text);
  if (kept !== undefined) return kept;
  const target = parseTarget(text);
  if ('problem' in target) return target.problem;
  if (parsed.size >= KEEP) parsed.delete(parsed.keys().next().value as string);
  parsed.set(text, target);
  return target;
}

function stranger(asked: string, table: Snapshot): Verdict {
  const near = nearest(asked, table.capabilities.keys()) ?? nearest(asked, table.aliases.keys());
  const problem = capabilityNameProblem(asked);
  if (problem !== null) return near === null ? new Verdict(noAlias, asked, problem) : new Verdict(noAliasButNear, asked, problem, near);
  return near === null ? new Verdict(unknown, asked) : new Verdict(unknownButNear, asked, near);
}
