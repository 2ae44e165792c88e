/**
 * What can be prepared for choosing within one version: who is usable, in groups of equal place and tier, nearest first.
 * True until the health view changes, an override runs out, or a second has passed (weights follow recent errors, and
 * those change with every call). What depends on the single call (tried, busy, rules for one caller) is left to the pick.
 */
import { Owners } from '../../base/rendezvous.ts';
import type { Candidate, Snapshot, Version } from '../table/snapshot.ts';
import { Group } from './group.ts';
import { anyByCaller, nextExpiry, type ProviderRules, ruleInForce, rulesFor } from './provider-rules.ts';
import { Turns } from './turns.ts';

/** How long momentary weights are used before they are read again. */
export const WEIGHTS_KEPT_MS = 1_000;
/**
 * How long a large view rests once it was made, per candidate: making it costs some 0.1 us each, so that however often health
 * changes (thousands of agents that dial in anew), no more than a few hundredths of the time go into it. 12,000: 24 ms.
 */
const REST_MS_EACH = 0.002;
/** Smaller ones are made anew at every change. */
const LARGE = 500;

/** What outlives table pushes: kept by the chooser, per capability, version and tags. */
export class LineState {
  readonly turns = new Turns();
  /** When a call last came that may be repeated without harm: the kind that should do the probing. */
  repeatableAt = Number.NEGATIVE_INFINITY;
}

/** 0–5: same zone, same region, elsewhere, each primary before backup; 6 and 7: primary, backup when place is ignored. */
export function placeOf(candidate: Candidate): number {
  const backup = candidate.provider.record.tier === 'backup' ? 1 : 0;
  return (candidate.version.settings.locality === 'ignore' ? 3 : candidate.provider.distance) * 2 + backup;
}

const PLACES = 8;

/** Those among whom a conversation key may begin, primary or backup wherever they stand. */
export interface Pool {
  readonly candidates: readonly Candidate[];
  readonly owners: Owners;
}

export class View {
  /** The chooser that made it: two of them (a test, the lab) may share a table. */
  readonly owner: object;
  readonly table: Snapshot;
  readonly version: Version;
  readonly state: LineState;
  /** By index of the version's candidates; null = none. */
  readonly rules: readonly ProviderRules[] | null;
  /** Rules that name a caller: nothing here may be taken as it is. */
  readonly byCaller: boolean;
  /** The best place anybody of this version has, usable or not. */
  readonly bestPlace: number;
  healthVersion = -1;
  validUntil = Number.NEGATIVE_INFINITY;
  /** Until then whoever looks at the one that was picked may use it although health has changed; see `Lines.recentOf`. */
  restsUntil = Number.NEGATIVE_INFINITY;
  /** Usable ones, best place first; after all of them those that asked for a pause. */
  groups: Group[] = [];
  /** How many are usable. */
  usable = 0;
  /** Half-open ones with room for a probe. */
  probes: Candidate[] = [];
  #pools: [primary: Pool, backup: Pool] | null = null;

  constructor(owner: object, table: Snapshot, version: Version, state: LineState) {
    this.owner = owner;
    this.table = table;
    this.version = version;
    this.state = state;
    this.rules = rulesFor(table, version);
    this.byCaller = this.rules !== null && anyByCaller(this.rules);
    let best = PLACES;
    for (const candidate of version.candidates) if (candidate.weight > 0) best = Math.min(best, placeOf(candidate));
    this.bestPlace = best;
  }

  refresh(healthVersion: number, nextChangeAt: number, now: number, wallMs: number): void {
    this.healthVersion = healthVersion;
    this.validUntil = Math.min(nextChangeAt, now + WEIGHTS_KEPT_MS);
    if (this.rules !== null) this.validUntil = Math.min(this.validUntil, now + (nextExpiry(this.rules, wallMs) - wallMs));
    const count = this.version.candidates.length;
    this.restsUntil = count < LARGE ? Number.NEGATIVE_INFINITY : now + count * REST_MS_EACH;
    this.#pools = null;
    this.probes = [];
    const byPlace: Candidate[][] = [];
    const paused: Candidate[][] = [];
    const { candidates } = this.version;
    for (let i = 0; i < candidates.length; i++) {
      const candidate = candidates[i] as Candidate;
      if (candidate.weight <= 0 || candidate.drain) continue;
      // A rule for one caller only is looked at per call.
      if (this.rules !== null && ruleInForce(this.rules[i] as ProviderRules, wallMs, null) !== null) continue;
      const usable = candidate.health.usable(now);
      if (usable === 'yes') {
        const { pausedUntil } = candidate.health;
        const isPaused = pausedUntil > now;
        if (isPaused) this.validUntil = Math.min(this.validUntil, pausedUntil);
        ((isPaused ? paused : byPlace)[placeOf(candidate)] ??= []).push(candidate);
      } else if (usable === 'probe') this.probes.push(candidate);
    }
    this.groups = [];
    this.usable = 0;
    this.#addGroups(byPlace, now);
    this.#addGroups(paused, now);
  }

  #addGroups(byPlace: readonly (readonly Candidate[] | undefined)[], now: number): void {
    for (let place = 0; place < byPlace.length; place++) {
      const members = byPlace[place];
      if (members === undefined) continue;
      this.usable += members.length;
      this.groups.push(
        new Group(
          members,
          Float64Array.from(members, (one) => one.weight * one.health.weightFactor(now)),
          place,
        ),
      );
    }
  }

  /** The candidate of an agent in this version, and its rules. */
  candidateOf(agentId: string): Candidate | null {
    return this.version.candidates[this.version.placeOf(agentId)] ?? null;
  }

  rulesOf(candidate: Candidate): ProviderRules | null {
    if (this.rules === null) return null;
    return this.rules[this.version.placeOf(candidate.provider.agentId)] ?? null;
  }

  /**
   * Hashed with the configured weights, not the momentary ones, and whatever the place: every sidecar in every zone must
   * come to the same owner for a key.
   */
  pools(): readonly [primary: Pool, backup: Pool] {
    this.#pools ??= [this.#pool(0), this.#pool(1)];
    return this.#pools;
  }

  #pool(tier: 0 | 1): Pool {
    const candidates: Candidate[] = [];
    for (const group of this.groups) if ((group.place & 1) === tier) candidates.push(...group.candidates);
    candidates.sort((a, b) => (a.provider.agentId < b.provider.agentId ? -1 : 1));
    return {
      candidates,
      owners: new Owners(
        candidates.map((one) => one.provider.agentId),
        candidates.map((one) => one.weight),
      ),
    };
  }
}
