/**
 * What of a call was not the plain path, in the words of the stages that decided so: it went somewhere else, again, by an order of the
 * operators, or got an answer that was not made for it. How it failed is told elsewhere; what always happens is not told at all.
 */
import type { Call } from '../call/call.ts';
import type { Reason } from '../call/verdict.ts';
import { lineWords } from './span-of.ts';

/** By stage. */
export const NOTABLE: Readonly<Record<string, readonly string[]>> = {
  acl: ['audited'],
  overrides: ['rerouted', 'provider_rerouted'],
  choose: ['affinity_rebound', 'affinity_detour', 'probe', 'panic'],
  claim: ['unreachable', 'replayed'],
  attempt: ['fresh_connection'],
  retry: ['elsewhere'],
  fallback: ['capability', 'provider', 'static'],
};
const MAX_CHARS = 400;

/** Reasons are made once, at module load: what was found out holds. */
const known = new Map<Reason, boolean>();

/** '' = nothing. */
export function notPlain({ trace }: Call): string {
  let words = '';
  for (let i = 0; i < trace.length && words.length < MAX_CHARS; i++) {
    const { reason, a, b, c } = trace.verdict(i);
    if (isNotable(reason)) words += `${words === '' ? '' : '; '}${lineWords(reason, a, b, c)}`;
  }
  return words.length > MAX_CHARS ? `${words.slice(0, MAX_CHARS)}…` : words;
}

function isNotable(reason: Reason): boolean {
  let notable = known.get(reason);
  if (notable === undefined) {
    notable = reason.code === 0 && NOTABLE[reason.stage]?.includes(reason.name) === true;
    known.set(reason, notable);
  }
  return notable;
}
