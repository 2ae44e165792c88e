/**
 * A shift of traffic, as it is stored: towards one version or one provider of a capability, in steps, guarded. Whole in
 * itself, so that another leader goes on with it: what was in force before stands in it, what it has set itself (to notice
 * when somebody else sets something), and wall times.
 */
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';

/** `rolled_back`: its guard did; `overtaken`: somebody set shares or weights by hand meanwhile, which count. */
export type ShiftStatus = 'running' | 'paused' | 'finished' | 'aborted' | 'rolled_back' | 'overtaken';

export interface Guard {
  /** Share of attempts that count against it, above which it is rolled back; null = not looked at. */
  readonly errors: number | null;
  /** Growth of the P95 beside the others, above which it is rolled back; null = not looked at. */
  readonly p95: number | null;
  /** Attempts within the window that are needed to judge. */
  readonly minCalls: number;
  readonly windowMs: number;
}

export interface ShiftTarget {
  readonly kind: 'version' | 'provider';
  /** Exact version, or agent id. */
  readonly name: string;
}

/** Shares by version (null = no split of an operator), or weights of providers (null = those of their records). */
export interface Placing {
  readonly shares: Readonly<Record<string, number>> | null;
  readonly weights: Readonly<Record<string, number | null>>;
}

export interface Shift {
  readonly id: string;
  readonly capability: string;
  readonly target: ShiftTarget;
  /** Shares of the target, 0–1, growing. */
  readonly steps: readonly number[];
  /** Index of the one in force. */
  readonly step: number;
  /** How long each step lasts at least; 0 = until an operator says more. */
  readonly everyMs: number;
  readonly guard: Guard | null;
  readonly before: Placing;
  readonly set: Placing;
  readonly status: ShiftStatus;
  readonly author: string;
  readonly reason: string;
  /** Wall clock, as all times here. */
  readonly startedAtMs: number;
  readonly stepAtMs: number;
  readonly endedAtMs: number | null;
  /** Why it is as it is, in words; '' = nothing to say. */
  readonly why: string;
}

/** Stored as `op.shifts`. */
export interface StoredShifts {
  readonly wire: number;
  readonly epoch: string;
  /** Number of the last one that was begun. */
  readonly last: number;
  /** Newest first: all that run, and some that are over. */
  readonly shifts: readonly Shift[];
}

export function noShifts(epoch: string): StoredShifts {
  return { wire: REGISTRY_WIRE, epoch, last: 0, shifts: [] };
}

export function isOver({ status }: Shift): boolean {
  return status !== 'running' && status !== 'paused';
}
