/** What a sidecar would tell of its traffic, made by hand. */
import { sketchBucket } from '../../base/sketch.ts';
import { type BreakerDigest, type Digest, DIGEST_WIRE, type EdgeDigest, type ProviderDigest } from '../../proto/wire/digests.ts';

export interface CallsOf {
  readonly caller?: string;
  readonly capability: string;
  readonly version?: string;
  readonly provider: string;
  readonly calls: number;
  /** Of them, by code. */
  readonly failed?: Readonly<Record<number, number>>;
  /** Each took so long. */
  readonly ms?: number;
  readonly trace?: string;
}

let seq = 0;

/** One digest in which each call was one attempt. */
export function digestOf(sidecar: string, calls: readonly CallsOf[], breakers: readonly Omit<BreakerDigest, 'at_ms'>[] = []): Digest {
  seq++;
  const now = 1_700_000_000_000 + seq * 10_000;
  const edges: EdgeDigest[] = [];
  const providers: ProviderDigest[] = [];
  for (const { caller = 'crm.front.x', capability, version = '2.0.0', provider, calls: count, failed = {}, ms = 20, trace } of calls) {
    const codes = Object.entries(failed).flatMap(([code, times]) => [Number(code), times]);
    const failures = Object.values(failed).reduce((sum, times) => sum + times, 0);
    const times = [sketchBucket(ms), count];
    const code = codes[0] ?? 0;
    const examples = trace === undefined ? [] : [{ trace_id: trace, code, elapsed_ms: ms }];
    edges.push({ caller, capability, version, provider, calls: count, codes, retries: 0, degraded: 0, times, examples });
    if (provider !== '') providers.push({ capability, version, provider, attempts: count, failures, times });
  }
  return {
    wire: DIGEST_WIRE,
    sidecar,
    instance: `${sidecar}-1`,
    seq,
    from_ms: now - 10_000,
    to_ms: now,
    edges,
    providers,
    breakers: breakers.map((breaker) => ({ ...breaker, at_ms: now })),
  };
}
