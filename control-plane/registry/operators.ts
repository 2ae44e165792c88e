/**
 * What operators have said, as it is stored: `op.policies`, `op.providers`, `op.canary`, `op.quotas`, `op.shifts`. The document is kept as text: it
 * is what people wrote, with their comments, and it is read anew after a restart.
 */
import type { QuotasState } from '../../proto/wire/quotas.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { noShifts, type StoredShifts } from '../shifts/shift.ts';

/** One version of the operators' document (policies and contracts); an entry of the history too. */
export interface AppliedDocument {
  /** Counts up from 1; never given twice. */
  readonly version: number;
  readonly author: string;
  /** Wall clock, for people. */
  readonly atMs: number;
  readonly text: string;
  readonly note: string;
}

/** A document that only a share of the sidecars uses so far. */
export interface Rollout extends AppliedDocument {
  /** Above 0, below 1. */
  readonly share: number;
  /** Sequence of AR_CFG when it began: refusals of later messages count against it. */
  readonly fromSeq: number;
  /** Why it was stopped; '' = it runs. A stopped one is pushed to nobody and waits for abort or a new document. */
  readonly halted: string;
}

export interface PoliciesState {
  readonly wire: number;
  readonly epoch: string;
  /** The highest version that was ever given. */
  readonly last: number;
  readonly active: AppliedDocument | null;
  readonly staged: Rollout | null;
  /** `policy:<pattern>` and `contract:<name>` → the version in which it last changed (or went away). */
  readonly stamps: Readonly<Record<string, number>>;
}

/** Null = as its record (or the policies) say. */
export interface ProviderSetting {
  readonly drain: boolean | null;
  readonly weight: number | null;
}

export interface ProvidersState {
  readonly wire: number;
  readonly epoch: string;
  readonly providers: Readonly<Record<string, ProviderSetting>>;
}

export interface CanaryState {
  readonly wire: number;
  readonly epoch: string;
  /** Capability → exact version → share 0–1. Stronger than the document until that says something new. */
  readonly canary: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

export interface OperatorsState {
  readonly policies: PoliciesState;
  readonly providers: ProvidersState;
  readonly canary: CanaryState;
  readonly quotas: QuotasState;
  readonly shifts: StoredShifts;
}

export function noPolicies(epoch: string): PoliciesState {
  return { wire: REGISTRY_WIRE, epoch, last: 0, active: null, staged: null, stamps: {} };
}

export function noProviderSettings(epoch: string): ProvidersState {
  return { wire: REGISTRY_WIRE, epoch, providers: {} };
}

export function noQuotas(epoch: string): QuotasState {
  return { wire: REGISTRY_WIRE, epoch, quotas: [] };
}

export function noCanary(epoch: string): CanaryState {
  return { wire: REGISTRY_WIRE, epoch, canary: {} };
}

/** The state before any operator has said anything. */
export function noOperators(epoch: string): OperatorsState {
  return {
    policies: noPolicies(epoch),
    providers: noProviderSettings(epoch),
    canary: noCanary(epoch),
    quotas: noQuotas(epoch),
    shifts: noShifts(epoch),
  };
}
