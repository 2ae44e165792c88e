/**
 * Settings of the four alerts. Every default stands here once, with its reason in its words. Limits may be other ones for some
 * capabilities; of several entries that cover one, the last that says something counts.
 */
import { describe } from '../../base/duration.ts';
import { coversName } from '../../proto/language/covers.ts';
import { capabilityPattern } from '../../proto/language/policy.ts';
import { defaultsOf } from '../../proto/language/process-shapes.ts';
import { mapped, object, optional, required, type Shape } from '../../proto/language/reader.ts';
import { count, duration, flag, list } from '../../proto/language/shapes.ts';

export interface RiseSettings {
  readonly enabled: boolean;
  /** Share above the baseline: 0.4 = 40 %. */
  readonly rise: number;
  readonly forMs: number;
  readonly baselineMs: number;
  /** Within `forMs`, and within the baseline. */
  readonly minCalls: number;
  /** A P95 that is not longer is never bad. */
  readonly floorMs: number;
}

export interface BreakerSettings {
  readonly enabled: boolean;
  /** More than so many within the window. */
  readonly openings: number;
  readonly windowMs: number;
}

export interface BacklogSettings {
  readonly enabled: boolean;
  /** Fewer that wait are no backlog. */
  readonly floor: number;
  readonly windowMs: number;
  /** However few wait: so long without one being taken is too long. */
  readonly stuckMs: number;
}

export interface BacklogsSettings extends BacklogSettings {
  /** The floor of what is kept for people. */
  readonly keptFloor: number;
}

export interface OfflineSettings {
  readonly enabled: boolean;
  readonly forMs: number;
}

/** What one entry of `capabilities` says; null = as everywhere. */
export interface CapabilityLimits {
  readonly match: string;
  readonly p95: { readonly [K in 'enabled' | 'rise' | 'forMs' | 'minCalls' | 'floorMs']: RiseSettings[K] | null };
  readonly breakers: { readonly [K in keyof BreakerSettings]: BreakerSettings[K] | null };
  readonly backlog: { readonly [K in keyof BacklogSettings]: BacklogSettings[K] | null };
}

export interface AlertsConfig {
  readonly p95: RiseSettings;
  readonly breakers: BreakerSettings;
  readonly backlog: BacklogsSettings;
  readonly offline: OfflineSettings;
  readonly capabilities: readonly CapabilityLimits[];
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
/** What the traffic of two hours can tell, with the rise itself. */
const MAX_BASELINE_MS = 90 * MINUTE_MS;
const MAX_FOR_MS = 25 * MINUTE_MS;

/** A rise may be more than the whole: 150 % = 1.5. */
const aboveBaseline: Shape<number> = {
  kind: 'rise above 0%, up to 1000%, such as 40% (or 0.4)',
  read(value, place) {
    const percent = typeof value === 'string' ? /^(\d{1,4}(?:\.\d{1,4})?) ?%$/.exec(value.trim()) : null;
    const share = percent === null ? value : Number((Number(percent[1]) / 100).toPrecision(12));
    if (typeof share === 'number' && share > 0 && share <= 10) return share;
    return place.bad(`${place.name} must be a rise above 0%, up to 1000%, such as 40% (or 0.4), not ${describe(value)}`);
  },
  schema: () => ({
    anyOf: [
      { type: 'number', exclusiveMinimum: 0, maximum: 10 },
      { type: 'string', pattern: '^[0-9]+(\\.[0-9]+)? ?%$' },
    ],
  }),
};

const wholeMinutes = (minMs: number, maxMs: number): Shape<number> =>
  mapped(duration(minMs, maxMs), (ms, place) => (ms % MINUTE_MS === 0 ? ms : place.bad(`${place.name} must be whole minutes`)));

const SWITCH = 'false: this alert is never raised.';
const RISE = 'How far above its own baseline the P95 must lie.';
const RISE_FOR = 'How long it must have been so, in whole minutes.';
const MIN_CALLS = 'Calls that are needed to judge, within `for` and within the baseline: fewer say nothing of a P95.';
const FLOOR_MS = 'A P95 that is not longer than this is never bad, however far it rose.';
const OPENINGS = 'How often a breaker may go from closed to open within the window; once more raises the alert.';
const OPENINGS_WINDOW = 'The window in which openings are counted.';
const BACKLOG_FLOOR = 'A list or queue with fewer than this many is no backlog, however fast it grows.';
const BACKLOG_WINDOW = 'A queue is growing when all that was seen in the last third of this lies above all of the first third.';
const STUCK = 'However few wait: when for so long none was taken, the oldest has become too old.';

const p95Shape = object('map', {
  enabled: optional(flag, SWITCH, true, 'true'),
  rise: optional(aboveBaseline, RISE, 0.4, '40%'),
  for: optional(wholeMinutes(2 * MINUTE_MS, MAX_FOR_MS), RISE_FOR, 10 * MINUTE_MS, '10m'),
  baseline: optional(
    wholeMinutes(10 * MINUTE_MS, MAX_BASELINE_MS),
    'The stretch before the rise that it is held against: the median of its minutes counts, so that one bad quarter of an hour in it changes little.',
    HOUR_MS,
    '1h',
  ),
  min_calls: optional(count(20, 1_000_000), MIN_CALLS, 100, '100'),
  floor: optional(duration(0, HOUR_MS), FLOOR_MS, 5, '5ms'),
});

const breakersShape = object('map', {
  enabled: optional(flag, SWITCH, true, 'true'),
  openings: optional(count(1, 1_000), OPENINGS, 3, '3'),
  window: optional(duration(MINUTE_MS, 2 * HOUR_MS), OPENINGS_WINDOW, HOUR_MS, '1h'),
});

const backlogShape = object('map', {
  enabled: optional(flag, SWITCH, true, 'true'),
  floor: optional(count(1, 100_000_000), BACKLOG_FLOOR, 100, '100'),
  window: optional(duration(2 * MINUTE_MS, HOUR_MS), BACKLOG_WINDOW, 10 * MINUTE_MS, '10m'),
  stuck: optional(duration(MINUTE_MS, 24 * HOUR_MS), STUCK, 15 * MINUTE_MS, '15m'),
  kept_floor: optional(
    count(1, 100_000_000),
    'The same floor for what is kept for people: dead letters, in doubt, to be reviewed.',
    20,
    '20',
  ),
});

const offlineShape = mapped(
  object('map', {
    enabled: optional(flag, SWITCH, true, 'true'),
    for: optional(
      duration(0, HOUR_MS),
      'How long an agent must be offline; its lease (`leases.offline_after`) comes on top.',
      30_000,
      '30s',
    ),
  }),
  (read): OfflineSettings => ({ enabled: read.enabled, forMs: read.for }),
);

const limitsShape: Shape<CapabilityLimits> = mapped(
  object('entry', {
    match: required(capabilityPattern, 'which capabilities: a name, crm.order.*, crm.* or *'),
    p95: optional(
      object('map', {
        enabled: optional(flag, SWITCH, null),
        rise: optional(aboveBaseline, RISE, null),
        for: optional(wholeMinutes(2 * MINUTE_MS, MAX_FOR_MS), RISE_FOR, null),
        min_calls: optional(count(20, 1_000_000), MIN_CALLS, null),
        floor: optional(duration(0, HOUR_MS), FLOOR_MS, null),
      }),
      'Limits of the P95.',
      null,
    ),
    breakers: optional(
      object('map', {
        enabled: optional(flag, SWITCH, null),
        openings: optional(count(1, 1_000), OPENINGS, null),
        window: optional(duration(MINUTE_MS, 2 * HOUR_MS), OPENINGS_WINDOW, null),
      }),
      'Limits of breakers.',
      null,
    ),
    backlog: optional(
      object('map', {
        enabled: optional(flag, SWITCH, null),
        floor: optional(count(1, 100_000_000), BACKLOG_FLOOR, null),
        window: optional(duration(2 * MINUTE_MS, HOUR_MS), BACKLOG_WINDOW, null),
        stuck: optional(duration(MINUTE_MS, 24 * HOUR_MS), STUCK, null),
      }),
      'Limits of the queues of its tasks.',
      null,
    ),
  }),
  ({ match, p95, breakers, backlog }): CapabilityLimits => ({
    match,
    p95: {
      enabled: p95?.enabled ?? null,
      rise: p95?.rise ?? null,
      forMs: p95?.for ?? null,
      minCalls: p95?.min_calls ?? null,
      floorMs: p95?.floor ?? null,
    },
    breakers: { enabled: breakers?.enabled ?? null, openings: breakers?.openings ?? null, windowMs: breakers?.window ?? null },
    backlog: {
      enabled: backlog?.enabled ?? null,
      floor: backlog?.floor ?? null,
      windowMs: backlog?.window ?? null,
      stuckMs: backlog?.stuck ?? null,
    },
  }),
);

export const alertsShape: Shape<AlertsConfig> = mapped(
  object('map', {
    p95: optional(p95Shape, 'The P95 of a capability has risen and stayed up.', defaultsOf(p95Shape)),
    breakers: optional(breakersShape, 'A breaker opens again and again.', defaultsOf(breakersShape)),
    backlog: optional(
      backlogShape,
      'What waits in a queue, or for people, becomes more and more, or older and older.',
      defaultsOf(backlogShape),
    ),
    offline: optional(offlineShape, 'An agent has gone without a goodbye.', defaultsOf(offlineShape)),
    capabilities: optional(
      list(limitsShape, 1_000),
      'Other limits for some capabilities; of several entries that cover one, the last that says something counts.',
      Object.freeze([]) as readonly CapabilityLimits[],
      'none',
    ),
  }),
  (read): AlertsConfig => ({
    p95: {
      enabled: read.p95.enabled,
      rise: read.p95.rise,
      forMs: read.p95.for,
      baselineMs: read.p95.baseline,
      minCalls: read.p95.min_calls,
      floorMs: read.p95.floor,
    },
    breakers: { enabled: read.breakers.enabled, openings: read.breakers.openings, windowMs: read.breakers.window },
    backlog: {
      enabled: read.backlog.enabled,
      floor: read.backlog.floor,
      windowMs: read.backlog.window,
      stuckMs: read.backlog.stuck,
      keptFloor: read.backlog.kept_floor,
    },
    offline: read.offline,
    capabilities: read.capabilities,
  }),
);

/** Every default. */
export const DEFAULT_ALERTS: AlertsConfig = defaultsOf(alertsShape);

export interface CapabilitySettings {
  readonly p95: RiseSettings;
  readonly breakers: BreakerSettings;
  readonly backlog: BacklogSettings;
}

/** The limits of one capability. */
export function limitsFor(config: AlertsConfig, capability: string): CapabilitySettings {
  let { p95, breakers } = config;
  let backlog: BacklogSettings = config.backlog;
  for (const entry of config.capabilities) {
    if (!coversName(entry.match, capability)) continue;
    p95 = said(p95, entry.p95);
    breakers = said(breakers, entry.breakers);
    backlog = said(backlog, entry.backlog);
  }
  return { p95, breakers, backlog };
}

function said<T extends object>(settings: T, entry: { readonly [K in keyof T]?: T[K] | null }): T {
  const next = { ...settings };
  for (const key of Object.keys(entry) as (keyof T)[]) next[key] = entry[key] ?? settings[key];
  return next;
}
