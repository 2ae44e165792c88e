/**
 * The list of overrides and what may be done to it, as pure functions: whoever writes (a replica, `reachctl` alone) does the
 * same. What contradicts what stands is refused with a sentence; what is only repeated changes nothing, and what is repeated for
 * another time ends at that time.
 */
import { coversName } from '../../proto/language/covers.ts';
import { parseTarget } from '../../proto/language/names.ts';
import {
  OVERRIDES_BYTES_MAX,
  OVERRIDES_MAX,
  type OverrideEntry,
  overrideProblem,
  type OverrideState,
  TO_PROVIDER,
} from '../../proto/wire/overrides.ts';

/** What an order comes to. */
export type Edit =
  /** Write this. */
  | { readonly state: OverrideState; readonly entry: OverrideEntry }
  /** It stands already: nothing is written. */
  | { readonly same: OverrideEntry }
  | { readonly problem: string; readonly kind: 'invalid' | 'conflict' | 'absent' };

export function lasting(overrides: readonly OverrideEntry[], nowMs: number): readonly OverrideEntry[] {
  return overrides.filter(({ expires_at: end }) => end === null || end > nowMs);
}

/** What has run out goes with every write, unless it is not certain that it has. */
function next(state: OverrideState, overrides: readonly OverrideEntry[]): OverrideState {
  return { ...state, revision: state.revision + 1, overrides };
}

/** @param isSure of what time it is; where it may be wrong, nothing of others is taken out by it */
export function withAdded(state: OverrideState, entry: OverrideEntry, nowMs: number, isSure = true): Edit {
  const problem = overrideProblem(entry);
  if (problem !== null) return { problem, kind: 'invalid' };
  const standing = lasting(state.overrides, nowMs);
  const same = standing.find(({ id }) => id === entry.id);
  if (same !== undefined) {
    if (meaning(same) !== meaning(entry))
      return {
        problem: `there is an override ${entry.id} already, and it says something else: lift it first, or choose another id`,
        kind: 'conflict',
      };
    if (lastsAsLong(same, entry)) return { same };
    // The same for another time: whoever says so wants it to end later, or earlier.
    const kept = isSure ? standing : state.overrides;
    return { state: next(state, [...kept.filter(({ id }) => id !== entry.id), entry]), entry };
  }
  const contradiction = contradictionIn(standing, entry);
  if (contradiction !== null) return { problem: contradiction, kind: 'conflict' };
  const overrides = [...(isSure ? standing : state.overrides.filter(({ id }) => id !== entry.id)), entry];
  if (overrides.length > OVERRIDES_MAX)
    return {
      problem: `there are ${OVERRIDES_MAX} overrides, which is the most: lift some, or make one that covers more`,
      kind: 'conflict',
    };
  const made = next(state, overrides);
  if (Buffer.byteLength(JSON.stringify(made)) > OVERRIDES_BYTES_MAX)
    return { problem: `the list of overrides would have more than ${OVERRIDES_BYTES_MAX} bytes: lift some`, kind: 'conflict' };
  return { state: made, entry };
}

/** @param isSure as above */
export function withLifted(state: OverrideState, id: string, nowMs: number, isSure = true): Edit {
  const standing = isSure ? lasting(state.overrides, nowMs) : state.overrides;
  const entry = standing.find((each) => each.id === id);
  if (entry === undefined)
    return {
      problem: `no override is called ${JSON.stringify(id.slice(0, 80))}${standing.length === 0 ? '; none is in force' : ''}; it may have been lifted or have run out`,
      kind: 'absent',
    };
  return {
    state: next(
      state,
      standing.filter((each) => each !== entry),
    ),
    entry,
  };
}

/** Without those that have run out; null = none has. */
export function withoutExpired(
  state: OverrideState,
  nowMs: number,
): { readonly state: OverrideState; readonly gone: readonly OverrideEntry[] } | null {
  const standing = lasting(state.overrides, nowMs);
  if (standing.length === state.overrides.length) return null;
  return { state: next(state, standing), gone: state.overrides.filter((each) => !standing.includes(each)) };
}

/** By which a repeated order is known: who sent it when does not count. */
function meaning({ action, target, to, cut, reason }: OverrideEntry): string {
  const { capability = null, provider = null, agent = null, caller = null, all = null } = target;
  return JSON.stringify([action, capability, provider, agent, caller, all, to, cut, reason]);
}

/** A repeated order says the same time from its own moment on; clocks are corrected by a little. */
function lastsAsLong(one: OverrideEntry, other: OverrideEntry): boolean {
  if (one.expires_at === null || other.expires_at === null) return one.expires_at === other.expires_at;
  return Math.abs(one.expires_at - one.at - (other.expires_at - other.at)) <= SAME_MS;
}

const SAME_MS = 2_000;

function contradictionIn(standing: readonly OverrideEntry[], entry: OverrideEntry): string | null {
  if (entry.action === 'block') return null;
  for (const other of standing) {
    if (other.action === 'block' && (other.target.all === true || sameTarget(other, entry)))
      return `override ${other.id} blocks that already (${other.reason}), and a block is stronger: lift it first`;
    if (entry.action !== 'reroute' || other.action !== 'reroute') continue;
    if (sameTarget(other, entry)) return `override ${other.id} sends that to ${other.to ?? '?'} already: lift it first`;
    const problem = chainProblem(other, entry);
    if (problem !== null) return problem;
  }
  return null;
}

function sameTarget(one: OverrideEntry, other: OverrideEntry): boolean {
  const keys = ['capability', 'provider', 'agent', 'caller', 'all'] as const;
  return keys.every((key) => one.target[key] === other.target[key]);
}

/** Only one step is followed: what is sent to where it would be sent on, in a circle or not, is a mistake. */
function chainProblem(other: OverrideEntry, entry: OverrideEntry): string | null {
  const theirs = nameOf(other.to);
  const ours = nameOf(entry.to);
  if (ours !== null && movesName(other, ours))
    return `${ours} is itself sent to ${other.to ?? '?'} by override ${other.id}: only one step is followed, so name where the calls shall end`;
  if (theirs !== null && movesName(entry, theirs))
    return `override ${other.id} sends calls to ${theirs}, which this one would send on: only one step is followed; lift ${other.id} first`;
  return null;
}

/** A reroute of everything a caller calls moves all names; one within a pattern, its own target, is no step. */
function movesName({ target, to }: OverrideEntry, name: string): boolean {
  if (target.provider !== undefined || nameOf(to) === name) return false;
  if (target.capability === undefined && target.all !== true) return false;
  return coversName(target.capability ?? null, name);
}

function nameOf(to: string | null): string | null {
  if (to === null || to.startsWith(TO_PROVIDER) || to.startsWith('@')) return null;
  const target = parseTarget(to);
  return 'problem' in target ? null : target.name;
}
