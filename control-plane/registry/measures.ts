/** What sidecars measured, from the JSON of their reports: bounded, and what cannot be meant is left out. */
import { MAX_DEMANDERS, MAX_DEMANDS, MAX_QUOTAS, type QuotaDemand, type QuotaHits, type QuotasReport } from '../../proto/wire/quotas.ts';
import { MAX_RUNNING_SHIFTS, MAX_SHIFT_CELLS, type ShiftCount, TIME_BUCKETS } from '../../proto/wire/shifts.ts';

const QUOTA_KEY = /^(?:agent|capability|provider):[A-Za-z0-9*_.-]{1,200}$/;

export function readQuotasReport(map: Readonly<Record<string, unknown>>): QuotasReport {
  const hits: Record<string, QuotaHits> = {};
  if (isMap(map['hits']))
    for (const [key, one] of Object.entries(map['hits']).slice(0, MAX_QUOTAS))
      if (isMap(one) && QUOTA_KEY.test(key)) hits[key] = { taken: atLeastZero(one['taken']), refused: atLeastZero(one['refused']) };
  const demand: QuotaDemand[] = [];
  for (const one of Array.isArray(map['demand']) ? (map['demand'] as readonly unknown[]).slice(0, MAX_DEMANDS) : []) {
    if (!isMap(one) || !Array.isArray(one['asked'])) continue;
    const { kind, name } = one;
    if ((kind !== 'capability' && kind !== 'provider') || typeof name !== 'string' || !QUOTA_KEY.test(`${kind}:${name}`)) continue;
    demand.push({ kind, name, asked: (one['asked'] as readonly unknown[]).slice(0, MAX_DEMANDERS).map(atLeastZero) });
  }
  return { seq: atLeastZero(map['seq']), hits, demand };
}

/** Of capabilities and agents that look like such; what does not is left out. */
export function readShifted(list: readonly unknown[]): ShiftCount[] {
  const counts: ShiftCount[] = [];
  for (const one of list.slice(0, MAX_RUNNING_SHIFTS * MAX_SHIFT_CELLS)) {
    if (!isMap(one) || !Array.isArray(one['times'])) continue;
    const { capability, version, provider } = one;
    if (typeof capability !== 'string' || typeof version !== 'string' || typeof provider !== 'string') continue;
    const calls = atLeastZero(one['calls']);
    const errors = Math.min(calls, atLeastZero(one['errors']));
    const times = (one['times'] as readonly unknown[]).slice(0, 2 * TIME_BUCKETS).map(atLeastZero);
    counts.push({ capability, version, provider, calls, errors, times });
  }
  return counts;
}

function atLeastZero(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : 0;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
