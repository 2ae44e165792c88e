/** Settings of the store of traces: how much is held in memory, and for how long. */
import { defaultsOf } from '../../proto/language/process-shapes.ts';
import { mapped, object, optional, type Shape } from '../../proto/language/reader.ts';
import { duration, size } from '../../proto/language/shapes.ts';

export interface TracesConfig {
  readonly bytes: number;
  readonly keepMs: number;
  readonly keepTroubledMs: number;
  readonly slowMs: number;
}

const MIB = 1_048_576;
const GIB = 1_073_741_824;

export const tracesShape: Shape<TracesConfig> = mapped(
  object('map', {
    size: optional(
      size(MIB, 64 * GIB),
      'Bytes of spans that this replica holds in memory, about 1,400 a span with its decision. Above it the oldest go, those in which all went well first; what goes is counted.',
      128 * MIB,
      '128MiB',
    ),
    keep: optional(duration(10_000, 7 * 86_400_000), 'How long a trace is held in which all went well and quickly.', 3_600_000, '1h'),
    keep_troubled: optional(
      duration(10_000, 7 * 86_400_000),
      'How long one is held in which something failed or was slow.',
      21_600_000,
      '6h',
    ),
    slow: optional(
      duration(1, 3_600_000),
      'From when on a call, or one step of a message, counts as slow: its trace is then held as long as a failed one. What a message waits in a queue or an inbox does not count.',
      3_000,
      '3s',
    ),
  }),
  (read, place) =>
    read.keep_troubled < read.keep
      ? place.at('keep_troubled').bad('keep_troubled must not be shorter than keep: what failed is what people come to look for')
      : { bytes: read.size, keepMs: read.keep, keepTroubledMs: read.keep_troubled, slowMs: read.slow },
);

export const DEFAULT_TRACES: TracesConfig = defaultsOf(tracesShape);
