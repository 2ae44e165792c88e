/** Points in time as people write them into a query. */
import type { Clock } from '../../base/clock.ts';
import { parseDuration } from '../../base/duration.ts';

/** A duration back from now (`24h`), or a time in RFC 3339; milliseconds since 1970, null = not understood. */
export function timeIn(clock: Clock, text: string | undefined, otherwise: number): number | null {
  if (text === undefined) return otherwise;
  const back = parseDuration(text);
  if (typeof back === 'number') return clock.wallMs() - back;
  if (!/^\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d))?$/.test(text)) return null;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at;
}
