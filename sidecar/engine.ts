/**
 * What the pipeline works with: made once by the composition root (`sidecar.ts`) or by the lab, which differ only in
 * clock, chance and transports.
 */
import type { Clock } from '../base/clock.ts';
import type { Random } from '../base/random.ts';
import type { Attempt } from './call/attempt-record.ts';
import type { Call } from './call/call.ts';
import type { Chooser } from './choose/choose.ts';
import type { Underway } from './call/underway.ts';
import type { Ledger } from './claim/claim.ts';
import type { SidecarConfig } from './config.ts';
import type { Health } from './health/health.ts';
import type { Identities } from './identify/identify.ts';
import type { CallerLimits } from './limits/limits.ts';
import type { Quotas } from './quotas/quotas.ts';
import type { RetryBudget } from './retry/budget.ts';
import type { Table } from './table/snapshot.ts';
import type { Transports } from './transports/index.ts';

/** Hears of every call and attempt, exactly once each; must not throw and must not wait. */
export interface Observer {
  callStarted(call: Call): void;
  attemptEnded(call: Call, attempt: Attempt): void;
  callEnded(call: Call): void;
  /** A throw inside the pipeline: a fault of ours, with its stack. */
  bug(call: Call, error: unknown): void;
}

/**
 * What the life of a call asks of it, and no more: for a call that is recorded, and for one that is decided anew from a recording,
 * others stand in its place.
 */
export interface Decider {
  readonly clock: Clock;
  readonly random: Random;
  readonly config: Pick<SidecarConfig, 'maxDeadlineMs' | 'maxHops' | 'claims'>;
  readonly table: Table;
  readonly identities: Identities;
  readonly limits: Pick<CallerLimits, 'check'>;
  readonly quotas: Pick<Quotas, 'isOn' | 'agent' | 'capability' | 'provider'>;
  readonly chooser: Pick<Chooser, 'choose' | 'ended'>;
  readonly ledger: Ledger;
  readonly retryBudget: Pick<RetryBudget, 'noteCall' | 'take' | 'recent'>;
  readonly underway: Pick<Underway, 'join' | 'add' | 'remove' | 'leave'>;
  readonly transports: Pick<Transports, 'for'>;
  readonly observer: Observer;
}

export interface Engine extends Decider {
  readonly clock: Clock;
  readonly random: Random;
  readonly config: SidecarConfig;
  readonly table: Table;
  readonly health: Health;
  readonly identities: Identities;
  readonly limits: CallerLimits;
  readonly quotas: Quotas;
  readonly chooser: Chooser;
  readonly ledger: Ledger;
  readonly retryBudget: RetryBudget;
  readonly underway: Underway;
  readonly transports: Transports;
  readonly observer: Observer;
}
