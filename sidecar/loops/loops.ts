/**
 * Calls that go round in circles. Every attempt adds `agent>capability` to the path that travels with the call; the same
 * agent *and* capability twice, or too many hops, is refused and named before the provider is troubled.
 */
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Call } from '../call/call.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Candidate, Capability } from '../table/snapshot.ts';

const clear = passing('loops', 'clear', 'hop {a} of {b} allowed');
const revisit = refusing('loops', 'revisit', Code.loop_detected, '{a} is already in the path of this call: {b} → {a}');
const tooLong = refusing('loops', 'too_many_hops', Code.loop_detected, '{a} hops, {b} allowed: {c}');

export function loops(call: Call, maxHops: number): Verdict {
  const text = call.headers[Header.path];
  if (typeof text !== 'string' || text === '') return new Verdict(clear, 1, maxHops);
  const path = text.split(',').map((part) => part.trim());
  const step = stepOf(call);
  // Between sidecars the caller's end has added this very step already: once is its arrival, twice is a loop.
  if (call.way === 'mesh' && path[path.length - 1] === step) path.pop();
  if (path.length >= maxHops) return new Verdict(tooLong, path.length + 1, maxHops, path.join(' → ').slice(0, 1_024));
  if (path.includes(step)) return new Verdict(revisit, step, path.join(' → ').slice(0, 1_024));
  call.path = path;
  return new Verdict(clear, path.length + 1, maxHops);
}

/** The path as the provider shall see it. */
export function pathWith(call: Call): string {
  return call.path.length === 0 ? stepOf(call) : `${call.path.join(', ')}, ${stepOf(call)}`;
}

function stepOf(call: Call): string {
  return `${(call.chosen as Candidate).provider.agentId}>${(call.capability as Capability).name}`;
}
