/** Policies after merging: nothing is missing any more. Weaker to stronger: shipped default, contract, policy, policy for one provider. */
import type { FallbackPolicy, LoadMode } from './types.ts';

export interface RetrySettings {
  readonly max: number;
  readonly backoffMs: number;
  readonly backoffMaxMs: number;
  readonly minRemainingRatio: number;
}

export interface BreakerSettings {
  readonly enabled: boolean;
  readonly failureRatio: number;
  readonly windowMs: number;
  readonly slowRatio: number;
  readonly slowCallMs: number;
  readonly minCalls: number;
  readonly openMs: number;
  readonly probes: number;
  readonly successes: number;
  readonly ramp: readonly number[];
  readonly rampStepMs: number;
}

export interface LimitsSettings {
  readonly perCaller: number;
  readonly perProvider: number;
  readonly requestBytes: number;
  readonly responseBytes: number;
  readonly eventBytes: number;
}

export interface StreamSettings {
  readonly firstChunkMs: number;
  readonly idleMs: number;
}

export interface Settings {
  readonly timeoutMs: number;
  readonly deadlineMs: number;
  readonly retry: RetrySettings;
  readonly breaker: BreakerSettings;
  readonly limits: LimitsSettings;
  readonly streaming: StreamSettings;
  /** null = nothing said: no fallback. An empty chain says the same on purpose. */
  readonly fallback: FallbackPolicy | null;
  readonly load: LoadMode;
  readonly panic: boolean;
  readonly locality: 'prefer' | 'ignore';
  readonly slowStartMs: number;
}
