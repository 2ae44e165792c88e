/** What a call and its answers know of the quota of its caller. Made by `quotas`; null on a call = its caller has none. */

/** As the RateLimit headers tell it. */
export interface RateView {
  /** Calls at once. */
  readonly limit: number;
  readonly remaining: number;
  /** Until it is whole again. */
  readonly resetMs: number;
}

export interface CallQuota {
  /** null = calls in a time are not limited. */
  view(now: number): RateView | null;
  /** The call has ended. */
  release(): void;
}
