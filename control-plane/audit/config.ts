/** Settings of the audit log: how long and how much of it is kept. */
import { mapped, object, optional, type Shape } from '../../proto/language/reader.ts';
import { defaultsOf } from '../../proto/language/process-shapes.ts';
import { duration, size } from '../../proto/language/shapes.ts';

export interface AuditConfig {
  readonly ageMs: number;
  readonly bytes: number;
  readonly refusedBytes: number;
}

const MIB = 1_048_576;
const GIB = 1_073_741_824;
const DAY_MS = 86_400_000;

export const auditShape: Shape<AuditConfig> = mapped(
  object('map', {
    age: optional(
      duration(3_600_000, 4_000 * DAY_MS),
      'How long entries are kept: as long as you must be able to tell.',
      90 * DAY_MS,
      '90d',
    ),
    size: optional(
      size(MIB, 1_024 * GIB),
      'Bytes of what operators did, about 500 an entry. Nothing is dropped to make room: when it is full, orders go on and are answered with the warning that they are not in the log; health warns from 80 %. NATS sets this much disk aside.',
      256 * MIB,
      '256MiB',
    ),
    refused_size: optional(
      size(MIB, 1_024 * GIB),
      'Bytes of what was refused, to operators and by sidecars. Whoever is refused fills it, so its oldest entries go first, and it cannot push out what operators did.',
      256 * MIB,
      '256MiB',
    ),
  }),
  (read): AuditConfig => ({ ageMs: read.age, bytes: read.size, refusedBytes: read.refused_size }),
);

export const DEFAULT_AUDIT: AuditConfig = defaultsOf(auditShape);
