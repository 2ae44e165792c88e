/**
 * Conversations: which agent holds the key of this call, and who takes a key that nobody holds.
 *
 * A new key goes by weighted rendezvous over agent ids, never over one capability's list, so that the same session meets
 * the same agent for every capability that the agent offers; it is then bound, so that a newcomer takes only new keys.
 * While the holder is unfit, `soft` lets the next by hash stand in, without rebinding: exactly those keys go back when it
 * heals. `strict` refuses. A holder that is no longer registered is replaced (`soft`) or its conversations are lost. One
 * that was deregistered and has come back is a newcomer, whatever its id: most likely it is a new process.
 */
import { hash32 } from '../../base/rendezvous.ts';
import type { Call } from '../call/call.ts';
import { Verdict } from '../call/verdict.ts';
import type { Candidate, Provider, Snapshot, Version } from '../table/snapshot.ts';
import type { Bindings } from './bindings.ts';
import { primaryBackup } from './group.ts';
import type { Lines } from './lines.ts';
import { mayProbe, probeFor } from './probe.ts';
import { Reasons } from './reasons.ts';
import { isBusy, isHeldBack, type Standing, standingOf, wasTried, wordsFor } from './standing.ts';
import type { Pool, View } from './view.ts';

const SEED = 0x510e527f;

/** What affinity found; `candidate` is null when there is a refusal, or when neither holder nor hash gives anybody. */
export interface Finding {
  readonly candidate: Candidate | null;
  readonly verdict: Verdict | null;
  /** The unfit holder, for whom somebody must stand in. */
  readonly holder: Candidate | null;
}

const NOBODY: Finding = Object.freeze({ candidate: null, verdict: null, holder: null });

/** The conversation key, or in mode `sticky` (when no other place for a key is declared) the caller itself; null = none. */
export function keyOf(call: Call, version: Version): string | null {
  if (call.affinityKey !== null && call.affinityKey !== '') return call.affinityKey;
  if (version.settings.load !== 'sticky' || version.contract.affinity !== null || call.principal === null) return null;
  return `caller ${call.principal.agent}`;
}

export class Affinity {
  readonly #bindings: Bindings<Provider>;
  readonly #lines: Lines;

  constructor(bindings: Bindings<Provider>, lines: Lines) {
    this.#bindings = bindings;
    this.#lines = lines;
  }

  /** `dry`: leaves no trace (explain). */
  find(call: Call, view: View, key: string, now: number, dry: boolean): Finding {
    const strict = view.version.contract.affinity?.mode === 'strict';
    const agents = this.#bindings.of(key, dry);
    let gone: string | null = null;
    let over: string | null = null;
    for (let i = 0; agents !== undefined && i < agents.length; i++) {
      const agent = agents[i] as Provider;
      const registered = (call.table as Snapshot).providers.get(agent.agentId);
      // The health view forgets who is deregistered, so the same one means: registered all the time.
      if (registered !== undefined && registered.health === agent.health) {
        const there = this.#lineOf(call, view, agent.agentId, now);
        if (there !== null) {
          if (over !== null && !dry) this.#bindings.bind(key, agent, over);
          return this.#held(call, view, there, agent.agentId, strict, key, now);
        }
        if (!isSwitchedOff(agent, view.version)) continue;
        if (strict) return refused(new Verdict(Reasons.lost, agent.agentId, 'serves it in a version that has been taken out of traffic'));
        // Whoever takes over keeps the conversation when the version is switched on again.
        over ??= agent.agentId;
        continue;
      }
      const mattered = offers(agent, view.version);
      if (strict && mattered)
        return refused(
          new Verdict(Reasons.lost, agent.agentId, registered === undefined ? 'is no longer registered' : 'has been registered anew since'),
        );
      if (mattered) gone = agent.agentId;
      if (dry) continue;
      this.#bindings.unbind(key, agent.agentId);
      i--;
    }
    return this.#begin(call, view, key, gone, over, now, dry);
  }

  /** A call with a key that was served although neither holder nor hash gave anybody: the conversation begins there. */
  begunAt(key: string, candidate: Candidate): void {
    this.#bindings.bind(key, candidate.provider);
  }

  /** The version in use if the agent serves it, else another one that this call may use; null = none. */
  #lineOf(call: Call, view: View, agentId: string, now: number): View | null {
    if (view.candidateOf(agentId) !== null) return view;
    for (let i = 0; i < call.lines.length; i++) {
      if (i === call.lineIndex) continue;
      const other = this.#lines.viewOf(call, call.lines[i] as Version, now);
      if (other.candidateOf(agentId) !== null) return other;
    }
    return null;
  }

  #held(call: Call, view: View, there: View, agentId: string, strict: boolean, key: string, now: number): Finding {
    const holder = there.candidateOf(agentId) as Candidate;
    const rules = there.rulesOf(holder);
    const standing = standingOf(holder, call, rules, now, true);
    if (standing === 'usable' || (standing === 'probe' && (strict || mayProbe(call, there, now)))) {
      if (there === view) return { candidate: holder, verdict: new Verdict(Reasons.bound, agentId), holder: null };
      // Later in line: the call moves on to it. Earlier: it was unfit a moment ago, and the call does not go back.
      if (call.lines.indexOf(there.version) > call.lineIndex) return refused(new Verdict(Reasons.held, agentId, there.version.text));
    }
    const words = wordsFor(standing, holder, call, rules, now);
    if (strict) return refused(strictRefusal(standing, agentId, words));
    const other = this.#hashed(call, view, key, now);
    if (other === null) return { candidate: null, verdict: null, holder: there === view ? holder : null };
    return { candidate: other, verdict: new Verdict(Reasons.detour, other.provider.agentId, agentId, words), holder };
  }

  #begin(call: Call, view: View, key: string, gone: string | null, over: string | null, now: number, dry: boolean): Finding {
    const probe = this.#probe(call, view, key, now, dry);
    if (probe !== null) return probe;
    const first = view.version.settings.load === 'primary_backup' ? firstOf(call, view, now) : null;
    const candidate = first ?? this.#hashed(call, view, key, now);
    if (candidate === null) return NOBODY;
    if (!dry) {
      this.#bindings.bind(key, candidate.provider, over);
      call.begunAt = candidate;
      call.begunAsProbe = false;
    }
    const agentId = candidate.provider.agentId;
    if (gone !== null) return { candidate, verdict: new Verdict(Reasons.rebound, agentId, gone), holder: null };
    return { candidate, verdict: new Verdict(first === null ? Reasons.begun : Reasons.begunFirst, agentId, view.usable), holder: null };
  }

  /**
   * A new conversation finds out whether a half-open provider has recovered: where every call has a key, nobody else would.
   * It stays there only if this call succeeds.
   */
  #probe(call: Call, view: View, key: string, now: number, dry: boolean): Finding | null {
    if (view.probes.length === 0) return null;
    const candidate = probeFor(call, view, now);
    if (candidate === null || standingOf(candidate, call, view.rulesOf(candidate), now, false) !== 'probe') return null;
    if (!dry) {
      this.#bindings.bind(key, candidate.provider);
      call.begunAt = candidate;
      call.begunAsProbe = true;
    }
    return { candidate, verdict: new Verdict(Reasons.probe, candidate.provider.agentId, view.usable), holder: null };
  }

  /** The first call of a conversation has found nobody where it was to begin: the conversation is free again. */
  forget(call: Call, key: string): void {
    if (call.begunAt === null) return;
    this.#bindings.unbind(key, call.begunAt.provider.agentId);
    call.begunAt = null;
  }

  /** By hash among the usable primaries wherever they stand, else among the usable backups. */
  #hashed(call: Call, view: View, key: string, now: number): Candidate | null {
    const hash = call.keyDraws?.owner ?? keyHash(key);
    for (const pool of view.pools()) {
      if (pool.candidates.length === 0) continue;
      const owner = pool.candidates[pool.owners.ownerOf(hash)] as Candidate;
      if (isFree(owner, call, view, now)) return owner;
      const next = pool.owners.ownerOf(hash, freeOnes(pool, call, view, now));
      if (next >= 0) return pool.candidates[next] as Candidate;
    }
    return null;
  }
}

export function keyHash(key: string): number {
  return hash32(key, SEED);
}

function refused(verdict: Verdict): Finding {
  return { candidate: null, verdict, holder: null };
}

function strictRefusal(standing: Standing, agentId: string, words: string): Verdict {
  if (standing === 'busy') return new Verdict(Reasons.heldBusy, agentId, words);
  if (standing === 'blocked') return new Verdict(Reasons.heldBlocked, agentId, words);
  return new Verdict(Reasons.lost, agentId, `cannot serve it now: ${words}`);
}

/** In mode `primary_backup` a new conversation begins where any other call would go: the standby gets none while the first serves. */
function firstOf(call: Call, view: View, now: number): Candidate | null {
  for (const group of view.groups) {
    const first = group.candidates[group.first] as Candidate;
    if (isFree(first, call, view, now)) return first;
    const i = primaryBackup(group, freeOnes(group, call, view, now));
    if (i >= 0) return group.candidates[i] as Candidate;
  }
  return null;
}

/** Of a usable candidate: nothing of this call stands against it. */
export function isFree(candidate: Candidate, call: Call, view: View, now: number): boolean {
  if (isBusy(candidate.provider) || wasTried(call, candidate.provider)) return false;
  return !view.byCaller || !isHeldBack(standingOf(candidate, call, view.rulesOf(candidate), now, false));
}

/** 1 for each that is free. */
export function freeOnes(of: Pick<Pool, 'candidates'>, call: Call, view: View, now: number): Uint8Array {
  return Uint8Array.from(of.candidates, (candidate) => (isFree(candidate, call, view, now) ? 1 : 0));
}

/** The operator has taken every version that it offers here out of traffic. */
function isSwitchedOff(agent: Provider, version: Version): boolean {
  const { name, canary } = version.capability;
  return canary !== null && agent.record.offers.some((offer) => offer.name === name && canary.get(offer.version) === 0);
}

function offers(agent: Provider, version: Version): boolean {
  return agent.record.offers.some((offer) => offer.name === version.capability.name);
}
