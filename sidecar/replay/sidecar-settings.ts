/** Settings of the sidecar that decide about calls, changed for a replay. */
import { BAD, openSource, Place } from '../../proto/language/reader.ts';
import { sidecarShape } from '../config.ts';
import type { RecordedConfig } from '../record/shapes.ts';

/** As they are written, and what they are called in a recording. */
const MEANT: ReadonlySet<string> = new Set(['max_deadline', 'max_hops', 'retry_budget', 'acl']);

/** @param written as under `sidecar` of the settings. Words when they cannot be used. */
export function readSidecarSection(written: Readonly<Record<string, unknown>>): ((config: RecordedConfig) => RecordedConfig) | string {
  for (const key of Object.keys(written))
    if (!MEANT.has(key))
      return `--set sidecar.${key}: what counts in a replay is ${[...MEANT].map((name) => `sidecar.${name}`).join(', ')}`;
  const { source, value } = openSource(JSON.stringify({ name: 'replay', ...written }), '--set');
  const read = sidecarShape.read(value, new Place(source));
  if (read === BAD) return `--set: ${source.problems.map(({ message }) => message).join('; ')}`;
  const { maxDeadlineMs, maxHops, retryBudget, aclAudit } = read.config;
  return (config) => ({
    ...config,
    ...('max_deadline' in written ? { maxDeadlineMs } : {}),
    ...('max_hops' in written ? { maxHops } : {}),
    ...('retry_budget' in written ? { retryBudget: { ...config.retryBudget, ...given(written['retry_budget'], retryBudget) } } : {}),
    ...('acl' in written ? { aclAudit } : {}),
  });
}

function given(written: unknown, read: RecordedConfig['retryBudget']): Partial<RecordedConfig['retryBudget']> {
  const keys = typeof written === 'object' && written !== null ? Object.keys(written) : [];
  return {
    ...(keys.includes('ratio') ? { ratio: read.ratio } : {}),
    ...(keys.includes('min_per_sec') ? { minPerSec: read.minPerSec } : {}),
  };
}
