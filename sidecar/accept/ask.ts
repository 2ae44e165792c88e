/**
 * What the control plane may ask a live sidecar: how it stands, who would serve a call of one of its callers, and which messages
 * it accepted last, as rules see them. Whoever
 * can ask has the bus's permission to; nothing is sent to anybody and nothing changes.
 */
import type { RecordedAnswer } from '../../proto/wire/messages.ts';
import { type Ask, REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { readsWire, wireProblem } from '../../proto/wire/version.ts';
import { acl, aclOf } from '../acl/acl.ts';
import { Call, record } from '../call/call.ts';
import { Principal } from '../call/principal.ts';
import { NO_BODY } from '../call/reply.ts';
import { isAgentId } from '../../proto/language/names.ts';
import type { Front } from './front.ts';
import { name } from '../name/name.ts';
import { overrides } from '../overrides/overrides.ts';
import { explained, healthOf } from './pages.ts';

/** null = nothing to answer. */
export function answerAsk(front: Front, data: Uint8Array): object | null {
  const ask = readAsk(data);
  if (typeof ask === 'string') return failure(ask);
  switch (ask.what) {
    case 'status':
      return { wire: REGISTRY_WIRE, ok: true, report: front.registry?.client.report() ?? null, health: healthOf(front) };
    case 'hello':
      front.registry?.client.announcer.helloSoon();
      return null;
    case 'acl':
      return aclFor(front, ask);
    case 'messages':
      return recordedFor(front, ask.limit);
    case 'explain':
      if (!front.ready) return failure('this sidecar has no route table yet');
      return { wire: REGISTRY_WIRE, ok: true, explanation: explainFor(front, ask) };
  }
}

function recordedFor(front: Front, limit: number): RecordedAnswer {
  return { wire: REGISTRY_WIRE, ok: true, messages: front.registry?.client.ruling.recorded(limit) ?? [] };
}

/** The provider's end, as far as it is about who may: no call is made of it. */
function aclFor(front: Front, { capability, caller, version }: Extract<Ask, { what: 'acl' }>): object {
  const call = new Call('mesh', capability, {}, NO_BODY, '', false, front.engine.clock);
  call.table = front.table.current();
  call.principal = new Principal(caller);
  const mayEnter = record(call, name(call)) && record(call, acl(call)) && record(call, overrides(call));
  const line = call.capability?.versions.find(({ text }) => text === version);
  const own = mayEnter && line !== undefined ? aclOf(call, line) : null;
  const allowed = mayEnter && (own === null || record(call, own));
  return { wire: REGISTRY_WIRE, ok: true, allowed, words: call.trace.lines().map(({ stage, words }) => `${stage}: ${words}`) };
}

function explainFor(front: Front, ask: Extract<Ask, { what: 'explain' }>): object {
  const call = new Call('http', ask.target, ask.headers, NO_BODY, '', false, front.engine.clock);
  // Who is meant is said, not proved: the question comes from an operator.
  const anonymous = front.engine.config.anonymous ?? front.engine.config.callers[0]?.agent ?? null;
  const agent = ask.as ?? anonymous;
  if (agent !== null) call.principal = new Principal(agent);
  return explained(front, call);
}

function readAsk(data: Uint8Array): Ask | string {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
  } catch {
    return 'the question is not JSON';
  }
  if (typeof value !== 'object' || value === null) return 'the question is not a JSON object';
  const ask = value as { readonly [key: string]: unknown };
  if (!readsWire(ask['wire'], REGISTRY_WIRE)) return wireProblem(ask['wire'], REGISTRY_WIRE, "the registry's wire");
  if (ask['what'] === 'status' || ask['what'] === 'hello') return value as Ask;
  if (ask['what'] === 'messages') {
    const { limit } = ask;
    if (typeof limit !== 'number' || !Number.isInteger(limit) || limit < 1) return 'limit must be a whole number above 0';
    return { wire: REGISTRY_WIRE, what: 'messages', limit };
  }
  if (ask['what'] === 'acl') {
    const { capability, caller, version } = ask;
    if (typeof capability !== 'string' || typeof version !== 'string') return 'capability and version must be texts';
    if (typeof caller !== 'string' || !isAgentId(caller)) return 'caller must be an agent id';
    return { wire: REGISTRY_WIRE, what: 'acl', capability, caller, version };
  }
  if (ask['what'] !== 'explain')
    return `this sidecar cannot answer ${JSON.stringify(ask['what'])?.slice(0, 40) ?? 'nothing'}: it knows status, explain, acl, messages and hello`;
  const { target, as, headers } = ask;
  if (typeof target !== 'string') return 'target must be a capability, perhaps with a range';
  if (as !== null && as !== undefined && (typeof as !== 'string' || !isAgentId(as))) return 'as must be an agent id or null';
  const given: Record<string, string> = {};
  if (typeof headers === 'object' && headers !== null)
    for (const [name, text] of Object.entries(headers)) if (typeof text === 'string') given[name.toLowerCase()] = text;
  return { wire: REGISTRY_WIRE, what: 'explain', target, as: as ?? null, headers: given };
}

function failure(problem: string): object {
  return { wire: REGISTRY_WIRE, ok: false, problem };
}
