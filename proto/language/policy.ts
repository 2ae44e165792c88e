/** What an operator says about the capabilities that a pattern covers. */
import { quote } from '../../base/duration.ts';
import { adviceOf, shownDefault } from './defaults.ts';
import { agentIdProblem, isCapabilityName } from './names.ts';
import { MAX_WEIGHT } from './provider.ts';
import { compileRange, exactVersionProblem } from './range.ts';
import { mapped, object, optional, required, type Shape } from './reader.ts';
import {
  breaker,
  clocks,
  limitsAtProvider,
  NO_BREAKER,
  NO_CLOCKS,
  NO_LIMITS,
  setting,
  settings,
  sharedFields,
  sharedSettings,
} from './settings-fields.ts';
import { dictionary, duration, flag, number, oneOf, ratio, text } from './shapes.ts';
import type { Policy } from './types.ts';

const SEGMENT = /^[a-z][a-z0-9_]{0,62}$/;

/** A name, `domain.object.*`, `domain.*` or `*`. */
export function capabilityPatternProblem(pattern: string): string | null {
  if (pattern === '*' || isCapabilityName(pattern)) return null;
  const segments = pattern.split('.');
  const isPrefix =
    segments.length >= 2 &&
    segments.length <= 3 &&
    segments.at(-1) === '*' &&
    segments.slice(0, -1).every((segment) => SEGMENT.test(segment));
  return isPrefix ? null : `${quote(pattern)} is not a pattern of capabilities: write a name (crm.order.query), crm.order.*, crm.* or *`;
}

export const capabilityPattern: Shape<string> = text('a capability name or a pattern such as crm.*', capabilityPatternProblem);

/** Text of a range; `2` unquoted is a number, and `2.10` would read as 2.1. */
const rangeText: Shape<string> = mapped(
  text('a version range', (value) => {
    const range = compileRange(value);
    return 'problem' in range ? range.problem : null;
  }),
  (value) => value.trim(),
);

const canary: Shape<Readonly<Record<string, number>>> = mapped(
  dictionary('exact version', exactVersionProblem, ratio(true), 32),
  (shares, place) => {
    const total = Object.values(shares).reduce((sum, share) => sum + share, 0);
    if (total > 1 + 1e-9) return place.bad(`the shares add up to ${Number((total * 100).toPrecision(6))}%, which is more than 100%`);
    return shares;
  },
);

const ofProvider: Shape<Policy['providers'][string]> = mapped(
  object('map', {
    breaker: settings(breaker, 'As above, for this provider.', NO_BREAKER),
    limits: settings(limitsAtProvider, 'As above, for this provider.', NO_LIMITS),
    timeout: optional(duration(1), 'Time of one attempt at this provider.', null),
    weight: optional(number(0, MAX_WEIGHT), 'Instead of the weight on its record. 0: takes no traffic.', null),
    drain: optional(flag, '`true`: no new calls to this provider.', null),
  }),
  (read) => ({ breaker: read.breaker, limits: read.limits, timeoutMs: read.timeout, weight: read.weight, drain: read.drain }),
);

const NO_PROVIDERS: Policy['providers'] = Object.freeze(Object.create(null) as Record<string, Policy['providers'][string]>);

export const policyFields = {
  capability: required(capabilityPattern, 'which capabilities it covers: a name, crm.order.*, crm.* or *'),
  default_range: optional(rangeText, 'Range for calls that name none. Absent: the newest stable major.', null),
  canary: optional(
    canary,
    'Share of the calls by exact version, such as {"2.1.0": 5%}; what is not named shares the rest. Needs an exact capability name.',
    null,
  ),
  load: setting('load', oneOf(['primary_backup', 'round_robin', 'least_request', 'random', 'sticky'])),
  panic: setting('panic', flag),
  locality: optional(oneOf(['prefer', 'ignore']), adviceOf('locality'), null, shownDefault('locality')),
  slow_start: setting('slow_start', duration(0, 3_600_000)),
  acl_mode: optional(
    oneOf(['enforce', 'audit']),
    '`audit`: a caller that the ACL does not name is let in, logged and counted (`reachctl audit list --outcome audited`), to see before it is enforced who would be refused; with `capability: "*"` for the whole fleet. It never lets in who has no known identity. Stronger than the contract.',
    null,
    'what the contract says',
  ),
  ...sharedFields,
  streaming: settings(clocks, 'How long a stream may keep its reader waiting.', NO_CLOCKS),
  providers: optional(
    dictionary('agent id', agentIdProblem, ofProvider, 10_000),
    'Settings for single providers, by agent id.',
    NO_PROVIDERS,
  ),
};

export const policy: Shape<Policy> = mapped(object('policy', policyFields), (read, place) => {
  if (read.canary !== null && !isCapabilityName(read.capability))
    return place.at('canary').badKey('canary names versions of one capability: write its full name under capability, not a pattern');
  return {
    capability: read.capability,
    defaultRange: read.default_range,
    canary: read.canary,
    load: read.load,
    panic: read.panic,
    locality: read.locality,
    slowStartMs: read.slow_start,
    ...(read.acl_mode === null ? {} : { aclMode: read.acl_mode }),
    ...sharedSettings(read),
    streaming: read.streaming,
    providers: read.providers,
  };
});
