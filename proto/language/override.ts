/** An operator's emergency rule: block, drain, reroute or degrade what its selectors name, with a reason and an end. */
import { quote } from '../../base/duration.ts';
import { parseAgentPattern } from './acl.ts';
import { capabilityPattern } from './policy.ts';
import { type Bad, mapped, object, optional, type Place, required, type Shape } from './reader.ts';
import { target } from './settings-fields.ts';
import { anyJson, flag, oneOf, text } from './shapes.ts';
import type { Override } from './types.ts';

/** An instant with its zone: a time without one would mean another moment on every machine. */
const INSTANT = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d\d:\d\d)$/;

const instant: Shape<number> = mapped(text('a time such as 2030-01-31T18:00:00Z'), (source, place) => {
  if (!INSTANT.test(source))
    return place.bad(`${place.name} must be a time with its zone such as 2030-01-31T18:00:00Z, not ${quote(source)}`);
  const ms = Date.parse(source.replace(' ', 'T'));
  return Number.isNaN(ms) ? place.bad(`${quote(source)} is not a day and time that exists`) : ms;
});

const agents: Shape<string> = text('a pattern of agents', (value) => {
  const pattern = parseAgentPattern(value);
  return 'problem' in pattern ? pattern.problem : null;
});

const name: Shape<string> = text('a name', (value) =>
  /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/.test(value) ? null : `${quote(value)} is not a name: letters, digits, _ . and -, at most 63`,
);

export const overrideFields = {
  name: required(name, 'a name for it, unique'),
  action: required(
    oneOf(['block', 'drain', 'reroute', 'degrade']),
    'block (refuse), drain (no new calls, those under way end), reroute (serve by another capability), degrade (answer with the fallback)',
  ),
  capability: optional(capabilityPattern, 'Which capabilities: a name, crm.order.*, crm.* or *. Absent: all.', null),
  provider: optional(agents, 'For block and drain, which providers: an agent id or a pattern. Absent: the whole capability.', null),
  caller: optional(agents, "Whose calls: an agent id or a pattern such as team:crm. Absent: everybody's.", null),
  to: optional(target, 'For reroute: the capability that serves instead.', null),
  data: optional<unknown, null>(anyJson, "For degrade: the static answer. Absent: the capability's own fallback.", null),
  cut: optional(flag, 'For block: cancel what is under way at once, instead of letting it end.', false),
  reason: required(text('text'), 'why, in words that callers and colleagues will read'),
  author: optional(text('text'), 'Who made it.', ''),
  expires: optional(instant, 'When it ends, with its zone: 2030-01-31T18:00:00Z. Absent: when it is removed.', null),
};

export const override: Shape<Override> = mapped(object('override', overrideFields), (read, place): Override | Bad => {
  const problem = selectorProblem(read, place);
  if (problem !== null) return problem;
  return {
    name: read.name,
    action: read.action,
    capability: read.capability,
    provider: read.provider,
    caller: read.caller,
    to: read.to,
    data: read.data,
    cut: read.cut,
    reason: read.reason,
    author: read.author,
    expiresAtMs: read.expires,
  };
});

interface Selectors {
  readonly action: Override['action'];
  readonly capability: string | null;
  readonly provider: string | null;
  readonly caller: string | null;
  readonly to: string | null;
  readonly data: unknown;
  readonly cut: boolean;
}

/** Parts that do not go together. */
function selectorProblem(read: Selectors, place: Place): Bad | null {
  if (read.capability === null && read.provider === null && read.caller === null)
    return place.bad('an override needs at least one of capability, provider, caller; to mean everything write capability: "*"');
  if (read.action === 'reroute' && read.to === null) return place.bad('a reroute needs to: the capability that serves instead');
  if (read.action !== 'reroute' && read.to !== null) return place.at('to').badKey(`to belongs to reroute, and this is a ${read.action}`);
  if (read.action !== 'degrade' && read.data !== null)
    return place.at('data').badKey(`data belongs to degrade, and this is a ${read.action}`);
  if (read.cut && read.action !== 'block') return place.at('cut').badKey(`cut belongs to block, and this is a ${read.action}`);
  if (read.provider !== null && (read.action === 'reroute' || read.action === 'degrade'))
    return place.at('provider').badKey(`provider goes with block and drain; a ${read.action} names a capability or a caller`);
  return null;
}
