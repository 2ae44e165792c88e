/**
 * What every sidecar has applied, from what it reports: how far behind it is among the subjects of its own scope, what it
 * refused and why, which version of the operators' document it follows. Who has said nothing for some seconds is missing,
 * whether its agents still beat or not. Every replica listens, so every replica can answer.
 */
import type { CapabilityState, Report, ScopeState } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import { RuleHits } from '../rules/hits.ts';
import { InForceBook } from './in-force.ts';
import type { Mirror } from './mirror.ts';

export type SidecarStanding = 'current' | 'behind' | 'stale' | 'missing';

export interface FleetRow {
  readonly sidecar: string;
  /** Null when it has never reported to this replica. */
  readonly instance: string | null;
  readonly version: string | null;
  readonly standing: SidecarStanding;
  readonly appliedSeq: number | null;
  /** Sequence of the newest message that concerns it. */
  readonly wantedSeq: number;
  /** Messages of its scope that it has not applied yet. */
  readonly behind: number;
  readonly staleBecause: string;
  readonly lastReportAgoMs: number | null;
  readonly capabilities: number | null;
  readonly providers: number | null;
  readonly policies: { readonly version: number; readonly staged: boolean } | null;
  readonly refused: Report['refused'];
  /** The newest list of overrides in force there; null = it knows none, or has never said. */
  readonly overridesSeq: number | null;
  /** Why the newest list of overrides is not in force there; null = it is. */
  readonly lacksOverrides: string | null;
}

interface Seen {
  readonly report: Report;
  readonly atMs: number;
}

const NOT_HEARD = "it has not reported since this replica's connection to NATS came back";
const PREFIX = 'reg.';
/** A sidecar that is neither registered nor heard of for an hour is forgotten. */
const FORGET_MS = 3_600_000;
const MAX_SIDECARS = 100_000;

export class Fleet {
  /** How often each rule decided. */
  readonly hits = new RuleHits();
  /** Overrides. */
  readonly inForce = new InForceBook();
  readonly #mirror: Mirror;
  readonly #missingMs: number;
  readonly #seen = new Map<string, Seen>();
  /** Reports from before then say nothing of what is now. */
  #hearsSinceMs = Number.NEGATIVE_INFINITY;

  /** @param missingMs silence after which a sidecar counts as missing. */
  constructor(mirror: Mirror, missingMs: number) {
    this.#mirror = mirror;
    this.#missingMs = missingMs;
  }

  /** Sidecars can be heard again, after a break in which anything may have become of them. */
  hearsAgain(nowMs: number): void {
    this.#hearsSinceMs = nowMs;
  }

  take(report: Report, nowMs: number): void {
    const before = this.#seen.get(report.sidecar);
    if (before === undefined && this.#seen.size >= MAX_SIDECARS) return;
    this.#seen.set(report.sidecar, { report, atMs: nowMs });
    this.hits.take(report);
    this.inForce.report(report);
  }

  /** The newest of every sidecar that has reported. */
  *reports(): Iterable<Report> {
    for (const { report } of this.#seen.values()) yield report;
  }

  report(sidecar: string): Report | null {
    return this.#seen.get(sidecar)?.report ?? null;
  }

  rows(nowMs: number): FleetRow[] {
    const wanted = new Map<string, readonly number[]>();
    return this.#names(nowMs).map((name) => this.#row(name, nowMs, wanted));
  }

  /** Sorted. */
  #names(nowMs: number): string[] {
    const names = new Set(this.#mirror.tails(PREFIX).map((tail) => tail.slice(PREFIX.length)));
    for (const [name, { atMs }] of this.#seen) {
      if (names.has(name)) continue;
      if (nowMs - atMs > FORGET_MS) {
        this.#seen.delete(name);
        this.hits.forget(name);
        this.inForce.forget(name);
      } else names.add(name);
    }
    return [...names].sort();
  }

  /**
   * Of every sidecar: why it does not have the list of overrides of this sequence in force (null = it has), whether it is heard, and
   * whether it is silent. One that has not been heard since this replica hears anybody at all is neither, until it should have spoken.
   */
  overridesAt(
    seq: number,
    nowMs: number,
  ): { readonly sidecar: string; readonly lacks: string | null; readonly isHeard: boolean; readonly isSilent: boolean }[] {
    return this.#names(nowMs).map((sidecar) => {
      const seen = this.#seen.get(sidecar);
      const isHeard = seen !== undefined && nowMs - seen.atMs <= this.#missingMs;
      const isSilent = !isHeard && (seen !== undefined || nowMs - this.#hearsSinceMs > this.#missingMs);
      const lacks = this.inForce.lacks(sidecar, seq);
      const silence =
        seen === undefined ? 'it has never been heard here' : `it has not been heard for ${Math.round((nowMs - seen.atMs) / 1_000)} s`;
      return { sidecar, lacks: lacks !== null && isSilent ? silence : lacks, isHeard, isSilent };
    });
  }

  #row(sidecar: string, nowMs: number, seqsOf: Map<string, readonly number[]>): FleetRow {
    const seen = this.#seen.get(sidecar) ?? null;
    const seqs = this.#wanted(sidecar, seqsOf);
    let wantedSeq = 0;
    for (const seq of seqs) if (seq > wantedSeq) wantedSeq = seq;
    const report = seen?.report ?? null;
    const refused = new Set(report?.refused.map(({ seq }) => seq));
    let behind = report === null ? seqs.length : seqs.filter((seq) => seq > report.appliedSeq || refused.has(seq)).length;
    // Rules and quotas, which go to everybody, and work, which goes to one, are followed on their own, beside what is in a scope.
    for (const [tail, followed] of [
      [Tail.rules, report?.rules],
      [Tail.work(sidecar), report?.work],
      [Tail.quotas, report?.quotas],
    ] as const) {
      const seq = this.#mirror.get(tail)?.seq ?? 0;
      if (followed === undefined || seq === 0) continue;
      wantedSeq = Math.max(wantedSeq, seq);
      if (seq > followed.seq || refused.has(seq)) behind++;
    }
    const agoMs = seen === null ? null : nowMs - seen.atMs;
    const staleBecause = report === null ? '' : (seen?.atMs ?? nowMs) < this.#hearsSinceMs ? NOT_HEARD : report.staleBecause;
    return {
      sidecar,
      instance: report?.instance ?? null,
      version: report?.version ?? null,
      standing: this.#standing(report, agoMs, staleBecause, behind),
      appliedSeq: report?.appliedSeq ?? null,
      wantedSeq,
      behind,
      staleBecause,
      lastReportAgoMs: agoMs === null ? null : Math.round(agoMs),
      capabilities: report?.capabilities ?? null,
      providers: report?.providers ?? null,
      policies: report?.policies ?? null,
      refused: report?.refused ?? [],
      overridesSeq: this.inForce.seqOf(sidecar),
      lacksOverrides: this.inForce.lacks(sidecar, this.inForce.seq),
    };
  }

  #standing(report: Report | null, agoMs: number | null, staleBecause: string, behind: number): SidecarStanding {
    if (report === null || agoMs === null || agoMs > this.#missingMs) return 'missing';
    if (staleBecause !== '') return 'stale';
    return behind > 0 ? 'behind' : 'current';
  }

  /** Sequences of everything that concerns a sidecar: its scope and the capabilities in it. */
  #wanted(sidecar: string, seqsOf: Map<string, readonly number[]>): number[] {
    const tail = Tail.scope(sidecar);
    const scope = this.#mirror.get(tail);
    if (scope === null) return [];
    const seqs = [scope.seq];
    for (const name of this.#mirror.state<ScopeState>(tail)?.capabilities ?? []) {
      let some = seqsOf.get(name);
      if (some === undefined) {
        some = this.#seqsOf(name);
        seqsOf.set(name, some);
      }
      seqs.push(...some);
    }
    return seqs;
  }

  #seqsOf(name: string): readonly number[] {
    const seqs: number[] = [];
    const shards = this.#mirror.state<CapabilityState>(Tail.capability(name))?.shards ?? 1;
    for (let shard = 0; shard < shards; shard++) {
      const held = this.#mirror.get(Tail.shard(name, shard));
      if (held !== null) seqs.push(held.seq);
    }
    return seqs;
  }
}
