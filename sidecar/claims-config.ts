/** The sidecar's settings for keys (`sidecar.claims`): what is kept of calls and tasks with a key, and what happens without the ledger. */
import { object, optional, mapped, type Shape } from '../proto/language/reader.ts';
import { count, duration, oneOf, size } from '../proto/language/shapes.ts';

export interface ClaimSettings {
  readonly whenUnreachable: 'refuse' | 'pass';
  readonly leaseMs: number;
  /** Of one result. */
  readonly resultBytes: number;
  /** How long a late answer is waited for after its caller was told that the time is over. */
  readonly lateMs: number;
  /** Without a registry: in the memory of the process. */
  readonly memoryKeys: number;
  readonly memoryBytes: number;
  readonly memoryMs: number;
}

export const claimsShape: Shape<ClaimSettings> = mapped(
  object('map', {
    when_unreachable: optional(
      oneOf(['refuse', 'pass']),
      'A call with a key while the ledger cannot be reached or is away: `refuse` answers 7001; `pass` lets it through, and a repeat may be carried out again.',
      'refuse' as const,
      'refuse',
    ),
    lease: optional(
      duration(1_000, 600_000),
      'How long work with a key counts as being done after its sidecar was last heard of. Shorter: quicker take-over after a crash; it is extended every third of it.',
      15_000,
      '15s',
    ),
    result: optional(
      size(0, 67_108_864),
      'Answers up to this size are kept for repeats; of larger ones only that they were given.',
      262_144,
      '256KiB',
    ),
    late: optional(
      duration(0, 600_000),
      'How long the answer of a call with a key is waited for after its caller was told that the time is over. It is kept for a repeat.',
      30_000,
      '30s',
    ),
    memory_keys: optional(
      count(1, 10_000_000),
      'Standalone only: keys that are remembered, about 600 bytes each beside their results. Above it new ones are refused.',
      100_000,
      '100000',
    ),
    memory_bytes: optional(
      size(0, 17_179_869_184),
      'Standalone only: results that are kept, all together. Above it only that they were given.',
      67_108_864,
      '64MiB',
    ),
    memory_age: optional(
      duration(1_000),
      'Standalone only: how long a key is remembered. With a registry the stream says so (24h).',
      86_400_000,
      '24h',
    ),
  }),
  (read): ClaimSettings => ({
    whenUnreachable: read.when_unreachable,
    leaseMs: read.lease,
    resultBytes: read.result,
    lateMs: read.late,
    memoryKeys: read.memory_keys,
    memoryBytes: read.memory_bytes,
    memoryMs: read.memory_age,
  }),
);
