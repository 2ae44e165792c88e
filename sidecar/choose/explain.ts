/**
 * Every candidate of a capability with what speaks for or against it, for this call and this moment. It asks the same
 * functions as the live path (`foresee`, `standingOf`) and only puts their answers side by side.
 */
import { compileRange } from '../../proto/language/range.ts';
import { type Call, record } from '../call/call.ts';
import type { TraceLine } from '../../proto/wire/trace-line.ts';
import { type Capability, type Candidate, offlineWords, type Version } from '../table/snapshot.ts';
import { keyHash, keyOf } from './affinity.ts';
import type { Chooser } from './choose.ts';
import { standingOf, wordsFor } from './standing.ts';
import { placeOf, type View } from './view.ts';

export interface CandidateView {
  readonly agent_id: string;
  readonly version: string;
  /** `serves`: would get this call now. Where chance decides, one possible answer. */
  readonly verdict: 'serves' | 'left_out';
  readonly because: string;
  readonly numbers: {
    readonly weight: number;
    /** After slow start and recent errors. */
    readonly weight_now: number;
    /** 0 same zone, 1 same region, 2 elsewhere or unknown. */
    readonly distance: number;
    readonly tier: 'primary' | 'backup';
    readonly in_flight: number;
    /** null = none. */
    readonly limit: number | null;
    /** 0–1, over the breaker's window. */
    readonly error_ratio: number;
    readonly breaker: string;
    /** null when the call has no conversation key; `rank` 1 is the owner by hash, null = not usable now. */
    readonly affinity: { readonly holds: boolean; readonly rank: number | null } | null;
  };
}

/** Also writes the decision into the call's trace and sets `call.chosen`, as the pipeline would. */
export function explainChoice(chooser: Chooser, call: Call, now: number): CandidateView[] {
  const capability = call.capability as Capability;
  const foreseen = call.lines.length === 0 ? null : chooser.foresee(call, now);
  if (foreseen !== null) {
    record(call, foreseen.verdict);
    call.chosen = foreseen.chosen;
  }
  const decision = call.trace.lines().at(-1);
  const views: CandidateView[] = [];
  const chosen = foreseen?.chosen ?? null;
  for (const version of capability.versions) {
    const line = call.lines.findIndex((one) => one.text === version.text);
    const view = line < 0 ? null : chooser.viewOf(call, call.lines[line] as Version, now);
    const ranks = ranksIn(chooser, call, view);
    for (const candidate of version.candidates) {
      const because = candidate === chosen ? (decision?.words ?? '') : reasonAgainst(call, candidate, view, line, chosen, decision, now);
      views.push({
        agent_id: candidate.provider.agentId,
        version: version.text,
        verdict: candidate === chosen ? 'serves' : 'left_out',
        because,
        numbers: numbersOf(candidate, ranks, now),
      });
    }
  }
  return views;
}

interface Ranks {
  readonly holders: ReadonlySet<string>;
  readonly byAgent: ReadonlyMap<string, number>;
}

function ranksIn(chooser: Chooser, call: Call, view: View | null): Ranks | null {
  const key = view === null ? null : keyOf(call, view.version);
  if (view === null || key === null) return null;
  const byAgent = new Map<string, number>();
  const hash = keyHash(key);
  for (const { candidates, owners } of view.pools()) {
    const costs = candidates.map((candidate, i) => ({ agentId: candidate.provider.agentId, cost: owners.costOf(hash, i) }));
    costs.sort((a, b) => a.cost - b.cost);
    for (const { agentId } of costs) byAgent.set(agentId, byAgent.size + 1);
  }
  return { holders: new Set(chooser.holdersOf(key).map((agent) => agent.agentId)), byAgent };
}

function reasonAgainst(
  call: Call,
  candidate: Candidate,
  view: View | null,
  line: number,
  chosen: Candidate | null,
  decision: TraceLine | undefined,
  now: number,
): string {
  if (view === null) return versionReason(call, candidate);
  if (view.candidateOf(candidate.provider.agentId) === null) return `does not carry ${call.tags}`;
  const rules = view.rulesOf(candidate);
  const standing = standingOf(candidate, call, rules, now, false);
  if (standing !== 'usable') return wordsFor(standing, candidate, call, rules, now);
  return usableBut(call, candidate, line, chosen, decision);
}

function isInRange(call: Call, { capability, semver }: Version): boolean {
  const text = call.range ?? capability.defaultRange;
  if (text === null) return true;
  const range = compileRange(text);
  return !('problem' in range) && range.satisfiedBy(semver);
}

function versionReason(call: Call, { version, provider }: Candidate): string {
  if (version.capability.canary?.get(version.text) === 0) return `version ${version.text} has a share of 0`;
  const allowed = call.lines.map((line) => line.text);
  if (allowed.length === 0 && provider.health.offline && isInRange(call, version)) return offlineWords(provider);
  if (allowed.length === 0)
    return `version ${version.text} is not what was asked for (${[call.range ?? 'no range', call.tags].filter((part) => part !== '').join(', ')})`;
  return `version ${version.text} is none of those this call may use (${allowed.join(', ')})`;
}

function usableBut(call: Call, candidate: Candidate, line: number, chosen: Candidate | null, decision: TraceLine | undefined): string {
  const reason = decision?.reason ?? '';
  if (chosen === null) return `usable, but the call is refused: ${decision?.words ?? ''}`;
  const winner = chosen.provider.agentId;
  if (chosen.version.text !== candidate.version.text) {
    const first = call.lines.findIndex((one) => one.text === chosen.version.text) < line;
    return first
      ? `stands by: ${candidate.version.text} is used when nobody of ${chosen.version.text} can be`
      : `the call stays with ${winner} in ${chosen.version.text}`;
  }
  if (reason === 'pinned') return `usable, but ${winner} was asked for by name`;
  if (reason.startsWith('affinity')) return `usable, but the conversation key leads to ${winner}`;
  if (reason === 'probe') return `usable, but this call probes ${winner}`;
  if (placeOf(candidate) > placeOf(chosen)) return `usable, but farther away or a backup: used when nobody nearer or before is free`;
  if (reason === 'primary_backup') return `stands by for ${winner}`;
  return `usable too: ${reason} took ${winner} this time`;
}

function numbersOf(candidate: Candidate, ranks: Ranks | null, now: number): CandidateView['numbers'] {
  const { provider, health } = candidate;
  const limit = provider.health.limit;
  return {
    weight: candidate.weight,
    weight_now: candidate.weight * health.weightFactor(now),
    distance: provider.distance,
    tier: provider.record.tier,
    in_flight: provider.health.inFlight,
    limit: Number.isFinite(limit) ? limit : null,
    error_ratio: health.errorRatio(now),
    breaker: health.stateName,
    affinity: ranks === null ? null : { holds: ranks.holders.has(provider.agentId), rank: ranks.byAgent.get(provider.agentId) ?? null },
  };
}
