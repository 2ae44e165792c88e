/** What one agent has asked for by calls, against its quotas. Kept while it has something to remember. */
import type { QuotaRate } from '../../proto/wire/quotas.ts';
import type { CallQuota, RateView } from '../call/call-quota.ts';
import { Bucket } from './bucket.ts';
import type { Limit, QuotaSet } from './quota-set.ts';

export class AgentMeter implements CallQuota {
  readonly agent: string;
  /** Of the set that its limits come from. */
  revision = -1;
  calls: Limit<QuotaRate> | null = null;
  most: Limit<number> | null = null;
  bucket: Bucket | null = null;
  inFlight = 0;

  constructor(agent: string) {
    this.agent = agent;
  }

  /** @param since `clock.now()` when the set came into force */
  follow(set: QuotaSet, revision: number, since: number, now: number): void {
    this.revision = revision;
    this.most = set.inFlight('agent', this.agent);
    this.calls = set.calls('agent', this.agent);
    if (this.calls === null) this.bucket = null;
    else {
      const { perSec, burst } = this.calls.value;
      if (this.bucket === null) this.bucket = new Bucket(perSec, burst, now);
      else this.bucket.change(perSec, burst, since);
    }
  }

  view(now: number): RateView | null {
    const { bucket } = this;
    if (bucket === null) return null;
    bucket.fill(now);
    return { limit: bucket.burst, remaining: Math.max(0, Math.floor(bucket.tokens)), resetMs: bucket.resetMs(now) };
  }

  release(): void {
    this.inFlight--;
  }

  /** Nothing that a new one would not know. */
  isIdle(now: number): boolean {
    return this.inFlight === 0 && (this.bucket === null || this.bucket.isFull(now));
  }
}
