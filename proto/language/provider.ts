/** A provider record as people write it: one instance of an agent (or a third party) and what it offers. */
import { quote } from '../../base/duration.ts';
import { tags } from './contract.ts';
import { endpoint } from './endpoint.ts';
import { pathProblem } from './http-text.ts';
import { capabilityNameProblem } from './names.ts';
import { exactVersionProblem } from './range.ts';
import { mapped, object, optional, required, type Shape } from './reader.ts';
import { agentId, NO_LIMITS, recordLimits } from './settings-fields.ts';
import { duration, flag, list, number, oneOf, text } from './shapes.ts';
import type { Offer, ProviderRecord } from './types.ts';

const SIDECAR_NAME = /^[a-z0-9][a-z0-9_.-]{0,62}$/;

export const sidecarName: Shape<string> = text('the name of a sidecar', (value) =>
  SIDECAR_NAME.test(value)
    ? null
    : `${quote(value)} is not the name of a sidecar: 1 to 63 of a-z, 0-9, _ . and -, beginning with a letter or digit`,
);

/** Largest weight: beyond it the small ones vanish in the sum. */
export const MAX_WEIGHT = 1_000_000;

const offer: Shape<Offer> = mapped(text('a capability with its exact version, such as crm.order.query@2.0.0'), (source, place) => {
  const at = source.indexOf('@');
  if (at < 0) return place.bad(`${quote(source)} names no version: write the exact one, such as ${source}@1.0.0`);
  const problem = capabilityNameProblem(source.slice(0, at)) ?? exactVersionProblem(source.slice(at + 1));
  return problem === null ? { name: source.slice(0, at), version: source.slice(at + 1) } : place.bad(problem);
});

const word: Shape<string> = text('a word', (value) =>
  /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/.test(value)
    ? null
    : `${quote(value)} is not a name of a place: letters, digits, _ . and -, at most 63`,
);

export const locality = object('map', {
  region: optional(word, 'The region.', null),
  zone: optional(word, 'The zone within the region.', null),
});

const NOWHERE = Object.freeze({ region: null, zone: null });
const NO_TAGS: Readonly<Record<string, string>> = Object.freeze({});

export const providerFields = {
  agent_id: required(agentId, 'team.role.id, unique; the id is a uuid or any short id'),
  offers: required(list(offer, 1_000, 1), 'what it serves, each as name@version: ["crm.order.query@2.0.0"]'),
  tags: optional(tags, 'Words to select by (`Reach-Tags`).', NO_TAGS),
  target: optional(tags, 'Which message tags it is fit for.', NO_TAGS),
  endpoint: required(endpoint, 'how it is reached: {type: http, address: "http://127.0.0.1:8080"}'),
  locality: optional<{ readonly region: string | null; readonly zone: string | null }, typeof NOWHERE>(
    locality,
    'Where it stands; the nearest providers are preferred.',
    NOWHERE,
  ),
  weight: optional(number(0, MAX_WEIGHT), 'Its share beside the others of its tier; may be fractional. 0: takes no traffic.', 1, '1'),
  tier: optional(oneOf(['primary', 'backup']), '`backup` is used when no primary can be.', 'primary' as const, 'primary'),
  via: optional(
    sidecarName,
    'The sidecar that hosts it; everybody reaches it through that one. Absent: a third party, reached directly.',
    null,
  ),
  limits: optional<typeof NO_LIMITS, typeof NO_LIMITS>(recordLimits, 'Limits of this provider, all its capabilities together.', NO_LIMITS),
  drain: optional(flag, '`true`: no new calls; those under way end in peace.', false, 'false'),
  health_check: optional(
    mapped(
      object('map', {
        path: required(
          text('a path', (value) => pathProblem(value, [], false)),
          'the path that answers 2xx when it is well, such as /health',
        ),
        interval: optional(duration(1_000, 3_600_000), 'How often it is asked.', 15_000, '15s'),
      }),
      (read) => ({ path: read.path, intervalMs: read.interval }),
    ),
    'A health check: asked by the sidecar that hosts the agent, of a third party by the control plane. One that fails twice is in no table until it answers again. A standalone sidecar does not ask.',
    null,
  ),
};

export const provider: Shape<ProviderRecord> = mapped(object('provider', providerFields), (read, place) => {
  const seen = new Set<string>();
  for (const [i, each] of read.offers.entries()) {
    const text = `${each.name}@${each.version}`;
    if (seen.has(text)) return place.at('offers', i).bad(`${text} is offered twice`);
    seen.add(text);
  }
  const [team, role] = read.agent_id.split('.') as [string, string];
  return {
    agentId: read.agent_id,
    team,
    role,
    offers: read.offers,
    tags: read.tags,
    target: read.target,
    endpoint: read.endpoint,
    region: read.locality.region,
    zone: read.locality.zone,
    weight: read.weight,
    tier: read.tier,
    via: read.via,
    limits: read.limits,
    drain: read.drain,
    healthCheck: read.health_check,
  };
});
