/**
 * `/v1/rates/{agent}`: in an emergency the operator gives one agent another rate of messages at this sidecar alone, with
 * NATS and control plane away too. It is stronger than a quota and holds until the sidecar stops; what is to hold everywhere is
 * a quota (`reachctl quota`), what is to stay stands in the settings (`messages.rates`).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { repeatedName } from '../../base/json-repeats.ts';
import { agentIdProblem } from '../../proto/language/names.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Rate, SendDoor } from '../send/door.ts';
import { refuse } from './answer.ts';
import type { Front } from './front.ts';
import { json } from './pages.ts';

const MAX_RATE = 1_000_000;

/** PUT `{per_sec, burst?}`. */
export function setRate(front: Front, request: IncomingMessage, response: ServerResponse, agent: string, body: unknown): void {
  const send = doorFor(front, request, response, agent);
  if (send === null) return;
  const rate = readRate(Buffer.isBuffer(body) ? body : Buffer.alloc(0));
  if (typeof rate === 'string') {
    refuse(response, Code.invalid_request, 400, rate, 'keep');
    return;
  }
  send.setRate(agent, rate);
  json(response, 200, viewOf(agent, send.rate(agent)));
}

/** DELETE: that of the settings again. */
export function resetRate(front: Front, request: IncomingMessage, response: ServerResponse, agent: string): void {
  const send = doorFor(front, request, response, agent);
  if (send === null) return;
  send.setRate(agent, null);
  json(response, 200, viewOf(agent, send.rate(agent)));
}

function doorFor(front: Front, request: IncomingMessage, response: ServerResponse, agent: string): SendDoor | null {
  const { authorization } = request.headers;
  const problem = agentIdProblem(agent);
  if (authorization === undefined || front.registry === null || !front.isOperator(authorization))
    refuse(
      response,
      Code.forbidden,
      403,
      "rates are set with the operator's token (sidecar.operator_token), at a sidecar with a registry",
      'keep',
    );
  else if (problem !== null) refuse(response, Code.invalid_request, 400, problem, 'keep');
  else return front.send;
  return null;
}

function viewOf(agent: string, { limit, remaining }: Rate): object {
  return { agent, limit, remaining };
}

function readRate(body: Buffer): { readonly perSec: number; readonly burst: number } | string {
  const form = `the body must be {"per_sec": …, "burst": …}: above 0, at most ${MAX_RATE}; burst is that of one second when it is left out`;
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch {
    return form;
  }
  if (typeof value !== 'object' || value === null || repeatedName(body.toString('utf8')) !== null) return form;
  const { per_sec: perSec, burst = null } = value as { per_sec?: unknown; burst?: unknown };
  if (typeof perSec !== 'number' || !(perSec > 0) || perSec > MAX_RATE) return form;
  if (burst === null) return { perSec, burst: Math.max(1, Math.ceil(perSec)) };
  if (typeof burst !== 'number' || !Number.isInteger(burst) || burst < 1 || burst > MAX_RATE) return form;
  return { perSec, burst };
}
