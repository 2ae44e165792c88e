/** A pool as a sidecar names it, judged before it gets consumers: every part well-formed, and its id the one that follows from them. */
import { isAgentId, isAgentSegment, isCapabilityName, tagKeyProblem, tagValueProblem } from '../../proto/language/names.ts';
import { exactVersionProblem } from '../../proto/language/range.ts';
import type { Pool, PoolAsk } from '../../proto/wire/messages.ts';
import { poolId } from '../../proto/wire/pool.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';

const MAX_TAGS = 32;
const SIDECAR = /^[a-z0-9][a-z0-9_-]{0,62}$/;

export function readPoolAsk(json: unknown): Pick<PoolAsk, 'sidecar' | 'pool'> | { readonly problem: string } {
  if (!isMap(json)) return { problem: 'the request is not a JSON object' };
  if (json['wire'] !== REGISTRY_WIRE)
    return { problem: `it speaks version ${String(json['wire']).slice(0, 20)} of the wire, this is version ${REGISTRY_WIRE}` };
  const { sidecar } = json;
  if (typeof sidecar !== 'string' || !SIDECAR.test(sidecar)) return { problem: 'sidecar must be the name of the asking sidecar' };
  const read = readPool(json['pool']);
  return 'problem' in read ? read : { sidecar, pool: read.pool };
}

/** In its one written form: the same pool gives the same text. */
export function readPool(value: unknown): { readonly pool: Pool } | { readonly problem: string } {
  if (!isMap(value)) return { problem: 'pool must be a map' };
  const { id, capability, version = null, role = null, agent = null, tags = {}, sticky } = value;
  if (typeof capability !== 'string' || !isCapabilityName(capability))
    return bad('capability', capability, 'is not the name of a capability');
  if (version !== null) {
    const problem = typeof version === 'string' ? exactVersionProblem(version) : 'must be text';
    if (problem !== null) return { problem: `the pool’s version: ${problem}` };
  }
  if (role !== null && (typeof role !== 'string' || !(isAgentSegment(role) || tagKeyProblem(role) === null)))
    return bad('role', role, 'is not a role');
  if (agent !== null && (typeof agent !== 'string' || !isAgentId(agent))) return bad('agent', agent, 'is not an agent id');
  if (!isMap(tags)) return { problem: 'the pool’s tags must be a map' };
  const names = Object.keys(tags).sort();
  if (names.length > MAX_TAGS) return { problem: `the pool has ${names.length} tags: at most ${MAX_TAGS} are taken` };
  const sorted: Record<string, string> = {};
  for (const name of names) {
    const text = tags[name];
    const problem = tagKeyProblem(name) ?? (typeof text === 'string' ? tagValueProblem(text) : 'a tag’s value must be text');
    if (problem !== null) return { problem: `the pool’s tags: ${problem}` };
    sorted[name] = text as string;
  }
  if (typeof sticky !== 'boolean') return bad('sticky', sticky, 'must be true or false');
  const parts = {
    capability,
    version: version as string | null,
    role,
    agent,
    tags: sorted,
    sticky,
  };
  const derived = poolId(parts);
  if (id !== derived) return { problem: `the pool calls itself ${shown(id)}, and what it says of itself makes ${derived}` };
  return { pool: { id: derived, ...parts } };
}

function bad(part: string, value: unknown, why: string): { readonly problem: string } {
  return { problem: `the pool’s ${part} ${shown(value)} ${why}` };
}

function shown(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, 80);
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
