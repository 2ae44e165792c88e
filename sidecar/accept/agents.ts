/**
 * `/v1/agents`: an agent registers at the sidecar beside it, beats, and leaves. Who may: the agent itself, by its own
 * token, or whoever has the operator's token. Whether the registry takes it is the registry's decision; what cannot be
 * decided now, because the control plane is away, is answered as pending and said later.
 *
 * An agent may not have the sidecar read a secret for it, nor send calls to the addresses at which clouds hand out
 * credentials: it writes the address that the secret would be sent to.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { judgeHost, NOTHING_ALLOWED, parseHost } from '../../base/address-guard.ts';
import { type Registration, readRegistration } from '../../proto/language/registration.ts';
import type { Problem } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Principal } from '../call/principal.ts';
import { plainProblem } from '../call/result.ts';
import { isDialIn, type OwnAgent } from '../table/own-agents.ts';
import type { RegistryClient } from '../table/registry.ts';
import { PROBLEM_TYPE, refuse } from './answer.ts';
import type { Front } from './front.ts';
import { json } from './pages.ts';

/** When to ask again whether the control plane has answered. */
const PENDING_RETRY_SEC = 5;
const MAX_SHOWN_PROBLEMS = 50;
/** What an agent says of itself. */
const MAX_BODY_BYTES = 1_048_576;

/** Where this sidecar's own agents may be: on this machine, in this network, or anywhere public. */
const HOSTED = { allow: NOTHING_ALLOWED, loopback: true, private: true } as const;

type Who = { readonly agent: string } | 'operator';

/** 201 in force (or, an agent that dials in and has not yet: known), 202 pending, 409 refused by the registry, 422 not what can be registered. */
export async function register(front: Front, request: IncomingMessage, response: ServerResponse, body: unknown): Promise<void> {
  const registry = registryOf(front, response);
  const who = registry === null ? null : whoIs(front, request, response);
  if (registry === null || who === null) return;
  const outcome = await registerAgent(front, who, Buffer.isBuffer(body) ? body : Buffer.alloc(0));
  if (response.destroyed) return;
  if ('problem' in outcome) {
    sendProblem(response, outcome);
    return;
  }
  const { agent } = outcome;
  const offer = isDialIn(agent) ? front.channels?.offer(agent.agentId, request, who === 'operator' ? null : who) : undefined;
  const view = offer === undefined ? outcome.view : { ...outcome.view, channel: offer };
  json(response, agent.state === 'pending' ? 202 : 201, view, agent.state === 'pending' ? PENDING_RETRY_SEC : 0);
}

/** How a registration ended, however it came. */
export type RegisterOutcome =
  | { readonly agent: OwnAgent; readonly view: AgentView }
  /** A problem document. */
  | { readonly code: Code; readonly status: number; readonly problem: string; readonly retryAfterSec: number };

export async function registerAgent(front: Front, who: Who, bytes: Buffer): Promise<RegisterOutcome> {
  if (front.registry === null) return refused(Code.invalid_request, 409, NO_REGISTRY);
  const registry = front.registry.client;
  if (front.draining) return refused(Code.blocked_by_operator, 503, 'this sidecar is stopping and takes no new agents', [], 1);
  if (bytes.length > MAX_BODY_BYTES) return refused(Code.payload_too_large, 413, `a registration has at most ${MAX_BODY_BYTES} bytes`);
  const reading = readRegistration(bytes.toString('utf8'), 'request', front.engine.config.name);
  if ('problems' in reading) return refused(Code.invalid_request, 422, 'the registration cannot be read', reading.problems.map(wordsOf));
  const { registration } = reading;
  const forbidden = whyForbidden(who, registration);
  if (forbidden !== null) return refused(Code.forbidden, 403, forbidden);
  const unusable = registry.unreachable(registration.record);
  if (unusable !== null) return refused(Code.invalid_request, 422, 'this sidecar cannot reach the agent', [unusable]);
  const agent = await registry.register(registration, 'api');
  if (agent.state === 'refused')
    return refused(codeOf(agent), agent.code === Code.forbidden ? 403 : 409, 'the registry refuses the registration', agent.problems);
  return { agent, view: viewOf(registry, agent) };
}

const NO_REGISTRY = 'this sidecar has no registry (sidecar.registry): its agents stand in the table file';

/** @param problems each thing that is wrong, behind what is wrong as a whole. */
function refused(code: Code, status: number, what: string, problems: readonly string[] | null = null, retryAfterSec = 0): RegisterOutcome {
  if (problems === null || problems.length === 0) return { code, status, problem: plainProblem(code, status, what), retryAfterSec };
  const detail = `${what}: ${problems.length === 1 ? problems[0] : `${problems.length} problems, the first: ${problems[0] ?? 'unknown'}`}`;
  const fields = JSON.parse(plainProblem(code, status, detail)) as object;
  return { code, status, problem: JSON.stringify({ ...fields, problems: problems.slice(0, MAX_SHOWN_PROBLEMS) }), retryAfterSec };
}

function sendProblem(response: ServerResponse, { status, problem, retryAfterSec }: Extract<RegisterOutcome, { problem: string }>): void {
  const head = ['content-type', PROBLEM_TYPE, 'content-length', String(Buffer.byteLength(problem))];
  if (retryAfterSec > 0) head.push('retry-after', String(retryAfterSec));
  response.writeHead(status, head);
  response.end(problem);
}

/** 204 = it is gone, or will be as soon as the control plane hears of it. */
export async function deregister(front: Front, request: IncomingMessage, response: ServerResponse, agentId: string): Promise<void> {
  const found = ownAgent(front, request, response, agentId);
  if (found === null) return;
  if (found.agent.source === 'file') {
    refuse(response, Code.invalid_request, 409, `${agentId} stands in this sidecar's file: take it out there`, 'keep');
    return;
  }
  await found.registry.announcer.deregister(agentId);
  if (response.destroyed) return;
  response.writeHead(204);
  response.end();
}

export function heartbeat(front: Front, request: IncomingMessage, response: ServerResponse, agentId: string): void {
  const found = ownAgent(front, request, response, agentId);
  if (found === null) return;
  found.registry.announcer.beat(agentId);
  json(response, 200, viewOf(found.registry, found.agent));
}

/** 204: the agent has made its last call; a sidecar that stops waits for it no more. It needs no registration: whoever calls here can say so. */
export function finished(front: Front, request: IncomingMessage, response: ServerResponse, agentId: string): void {
  const who = whoIs(front, request, response);
  if (who === null) return;
  if (who !== 'operator' && who.agent !== agentId) {
    refuse(response, Code.forbidden, 403, `this credential is ${who.agent}'s, not ${agentId}'s`, 'keep');
    return;
  }
  front.finishing?.said(agentId);
  response.writeHead(204);
  response.end();
}

/** The agents of this sidecar; an agent sees itself, the operator all. */
export function agents(front: Front, request: IncomingMessage, response: ServerResponse): void {
  const registry = registryOf(front, response);
  const who = registry === null ? null : whoIs(front, request, response);
  if (registry === null || who === null) return;
  const shown = [...registry.own.all()].filter((agent) => who === 'operator' || who.agent === agent.agentId);
  json(response, 200, { sidecar: front.engine.config.name, agents: shown.map((agent) => viewOf(registry, agent)) });
}

export interface AgentView {
  readonly agent: string;
  readonly state: OwnAgent['state'];
  readonly source: OwnAgent['source'];
  /** Sequence at which it came into force; 0 = not known. */
  readonly seq: number;
  readonly offers: readonly string[];
  readonly code: number;
  readonly problems: readonly string[];
  /** What of it is in force otherwise than it was said. */
  readonly warnings: readonly string[];
  /** Since it last beat or answered a call. */
  readonly idle_ms: number;
  /** An agent of the API is reported gone when it has been idle for so long. */
  readonly lease_ms: number;
}

function viewOf(registry: RegistryClient, agent: OwnAgent): AgentView {
  return {
    agent: agent.agentId,
    state: agent.state,
    source: agent.source,
    seq: agent.seq,
    offers: agent.registration.record.offers.map(({ name, version }) => `${name}@${version}`),
    code: agent.code,
    problems: agent.problems,
    warnings: agent.warnings,
    idle_ms: registry.announcer.idleMs(agent),
    lease_ms: registry.announcer.leaseMs,
  };
}

function registryOf(front: Front, response: ServerResponse): RegistryClient | null {
  if (front.registry === null) refuse(response, Code.invalid_request, 409, NO_REGISTRY, 'keep');
  return front.registry?.client ?? null;
}

function whoIs(front: Front, request: IncomingMessage, response: ServerResponse): Principal | 'operator' | null {
  const { authorization } = request.headers;
  if (authorization !== undefined && front.isOperator(authorization)) return 'operator';
  const principal = front.engine.identities.caller(authorization);
  if (principal === null) refuse(response, Code.unauthenticated, 401, 'no known credential: send Authorization: Bearer <token>', 'keep');
  return principal;
}

function ownAgent(
  front: Front,
  request: IncomingMessage,
  response: ServerResponse,
  agentId: string,
): { readonly registry: RegistryClient; readonly agent: OwnAgent } | null {
  const registry = registryOf(front, response);
  const who = registry === null ? null : whoIs(front, request, response);
  if (registry === null || who === null) return null;
  if (who !== 'operator' && who.agent !== agentId) {
    refuse(response, Code.forbidden, 403, `this credential is ${who.agent}'s, not ${agentId}'s`, 'keep');
    return null;
  }
  const agent = registry.own.get(agentId);
  if (agent === null)
    refuse(
      response,
      Code.invalid_request,
      404,
      `${agentId} is not registered at this sidecar: register it again (POST /v1/agents)`,
      'keep',
    );
  return agent === null ? null : { registry, agent };
}

function whyForbidden(who: Who, { record }: Registration): string | null {
  if (who !== 'operator' && who.agent !== record.agentId) return `this credential is ${who.agent}'s: it cannot register ${record.agentId}`;
  if (who !== 'operator' && record.endpoint.credential !== null)
    return "an agent cannot have the sidecar read a secret for it: have it registered with the operator's token, or in the sidecar's file";
  return addressProblem(record.endpoint.address);
}

function addressProblem(address: string): string | null {
  if (!/^https?:/i.test(address)) return null;
  const host = parseHost(new URL(address).hostname);
  return host === null ? `the address ${JSON.stringify(address.slice(0, 200))} names no host` : judgeHost(host, HOSTED);
}

function codeOf(agent: OwnAgent): Code {
  return agent.code === 0 ? Code.invalid_request : (agent.code as Code);
}

function wordsOf({ line, column, path, message }: Problem): string {
  return `${line > 0 ? `line ${line}, column ${column}: ` : ''}${path === '' ? '' : `${path}: `}${message}`;
}
