/**
 * The sidecar as forward proxy, on the agents' port: a program that knows nothing of it, told `http_proxy=…`, asks
 * `http://crm.order.query/orders?id=7` and reaches whoever serves that capability. The host is the capability or an alias
 * (a range comes in `Reach-Range`); method, path, query, body and end-to-end headers go on as they came, and the provider's
 * own answer comes back, with what the sidecar knows in `Reach-*` headers. Failures are problem documents.
 *
 * It is no open proxy: a host that is no capability is refused, and so is CONNECT, since what is encrypted cannot be
 * intercepted. As only providers of the table are ever contacted, a request can neither be led to the sidecar itself.
 *
 * Who calls: `Proxy-Authorization` (Bearer, or Basic with the token as password, as `http_proxy=http://agent:token@…` sends
 * it); else `Authorization: Bearer` when the token is one of ours; else whoever `anonymous` names. The client's own
 * `Authorization` and cookies are meant for whoever serves the capability that it names and go there, not to a fallback of
 * another name; no token of ours ever does, however it is written.
 *
 * A method says nothing about repeating: how often the work may run is the contract's to say, for GET as for all.
 */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { nearest } from '../../base/suggest.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { isReachToken } from '../../proto/wire/token.ts';
import { readTraceContext } from '../../proto/wire/trace-context.ts';
import { Call, HttpAsk } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import type { Reply } from '../call/reply.ts';
import { plainProblem, resultOf } from '../call/result.ts';
import type { Capability } from '../table/snapshot.ts';
import { namedInConnection } from '../transports/hygiene.ts';
import { type After, answerRaw, flat, PROBLEM_TYPE, pushOwn, refuse } from './answer.ts';
import { readBody } from './body.ts';
import { PlainFraming } from './framing.ts';
import type { Front } from './front.ts';
import { notNowOf } from './invoke.ts';
import { lineOf } from './line.ts';
import { type Proxied, readProxied } from './proxy-guard.ts';
import { pour } from './stream.ts';

/** How long the refusal of a CONNECT may take to be read. */
const FLUSH_MS = 1_000;

/** A request whose target the guard has found to be in order. */
export function intercept(front: Front, request: IncomingMessage, response: ServerResponse): void {
  const caller = callerOf(front, request.headers);
  if (notNowOf(front, response, caller)) return;
  const proxied = readProxied(request.url as string) as Proxied;
  const { metrics } = front.observation;
  if (caller === null) {
    metrics.requestRefused('credential');
    refuse(response, Code.unauthenticated, 407, NO_CREDENTIAL, after(request));
    return;
  }
  const capability = capabilityOf(front, proxied.host);
  if (capability === null) {
    metrics.requestRefused('host');
    refuse(response, Code.no_provider, 404, strangerWords(front, proxied.host), after(request));
    return;
  }
  const { bodyBytes } = front.engine.config.limits;
  readBody(request, bodyBytes, (error, body) => {
    if (error === null) void pass(front, request, response, proxied, caller, capability, body as Buffer);
    else if ('statusCode' in error) {
      metrics.requestRefused('body');
      lineOf(request.socket).doomed = true;
      refuse(response, Code.payload_too_large, 413, `the body is above the limit of ${bodyBytes} bytes`, 'hear_out');
    }
  });
}

/** Whoever is still sending has to be heard out; all others keep their connection. */
function after({ headers }: IncomingMessage): After {
  const length = headers['content-length'];
  return headers['transfer-encoding'] === undefined && (length === undefined || length === '0') ? 'keep' : 'hear_out';
}

async function pass(
  front: Front,
  request: IncomingMessage,
  response: ServerResponse,
  proxied: Proxied,
  caller: Principal,
  capability: Capability,
  body: Buffer,
): Promise<void> {
  const { headers } = request;
  const { clock, random } = front.engine;
  const range = headers[Header.range];
  const asked = range === undefined ? proxied.host : `${proxied.host}@${String(range)}`;
  const method = request.method as string;
  const call = new Call(
    'proxy',
    asked,
    forStages(headers),
    body,
    headers['content-type'] ?? '',
    method !== 'HEAD' && isStreamed(capability, headers.accept),
    clock,
  );
  call.principal = caller;
  call.http = new HttpAsk(method, proxied.target, credentialsIn(front, headers));
  readTraceContext(call, headers['traceparent'], headers['tracestate'], random);
  const line = lineOf(request.socket);
  line.add(call);
  try {
    await front.pipeline.outbound(front.engine, call);
    line.remove(call);
    const reply = call.reply;
    if (reply !== null && reply.stream !== null && call.code === Code.ok) {
      if (response.destroyed) reply.stream.cancel(Code.cancelled, 'the caller went away');
      else pour(front, line, call, reply.stream, response, reply.status, streamHead(call, reply), new PlainFraming());
    } else if (!response.destroyed) answerRaw(response, call);
  } catch (error) {
    line.remove(call);
    front.observation.fault(error);
    call.cancel();
    refuse(response, Code.internal, 500, 'a fault in Agent-Reach', 'close');
  }
}

function streamHead(call: Call, reply: Reply): string[] {
  const head = flat(reply.headers);
  pushOwn(head, resultOf(call, false));
  return head;
}

/** Answers a CONNECT, whose connection the HTTP server has let go of. */
export function refuseTunnel(front: Front, request: IncomingMessage, socket: Socket): void {
  front.observation.metrics.requestRefused('tunnel');
  const host = (request.url ?? '').slice(0, 200);
  const body = plainProblem(
    Code.invalid_request,
    405,
    `no tunnel to ${host}: what is encrypted cannot be intercepted. Reach a capability as http://<capability>/…; a host that is none is reached directly when it stands in no_proxy`,
  );
  // Whatever the peer does from here on concerns nobody.
  socket.on('error', () => {});
  const timer = front.engine.clock.after(FLUSH_MS, () => socket.destroy());
  socket.once('close', () => timer.cancel());
  socket.end(
    `HTTP/1.1 405 Method Not Allowed\r\nallow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\nconnection: close\r\ncontent-type: ${PROBLEM_TYPE}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  socket.resume();
}

// Who is calling, and what of the caller's goes on.

const NO_CREDENTIAL =
  'no known credential: send Proxy-Authorization: Bearer <token>, or write http_proxy=http://<agent>:<token>@<host>:<port>';
const BEARER = 'Bearer ';

function callerOf(front: Front, headers: IncomingHttpHeaders): Principal | null {
  const { identities } = front.engine;
  const shown = headers['proxy-authorization'];
  if (shown !== undefined) {
    const token = tokenIn(shown);
    return token === null ? null : identities.caller(BEARER + token);
  }
  const { authorization } = headers;
  const token = authorization === undefined || !isScheme(authorization, 'bearer') ? null : tokenIn(authorization);
  return (token === null ? null : identities.caller(BEARER + token)) ?? identities.caller(undefined);
}

/** The token of a Bearer credential, the password of a Basic one; null = neither. */
function tokenIn(value: string): string | null {
  const space = value.indexOf(' ');
  const given = space < 0 ? '' : value.slice(space + 1).trim();
  if (given === '') return null;
  if (isScheme(value, 'bearer')) return given;
  if (!isScheme(value, 'basic')) return null;
  return passwordIn(given);
}

/** Of the user and password that Basic sends in base64; null when it is none. */
function passwordIn(given: string): string | null {
  const pair = Buffer.from(given, 'base64').toString('utf8');
  const colon = pair.indexOf(':');
  return colon < 0 || colon + 1 === pair.length ? null : pair.slice(colon + 1);
}

function isScheme(value: string, scheme: string): boolean {
  return value.slice(0, scheme.length + 1).toLowerCase() === `${scheme} `;
}

/** Credentials that the client has for the provider, which hygiene would drop as meant for us. */
function credentialsIn(front: Front, headers: IncomingHttpHeaders): readonly string[] {
  const { authorization, cookie } = headers;
  if (authorization === undefined && cookie === undefined) return NONE;
  const named = namedInConnection(headers.connection);
  const kept: string[] = [];
  if (authorization !== undefined && !isOurs(front, authorization) && named?.has('authorization') !== true)
    kept.push('authorization', authorization);
  if (cookie !== undefined && named?.has('cookie') !== true) kept.push('cookie', cookie);
  return kept;
}

const NONE: readonly string[] = Object.freeze([]);

/**
 * Whether a credential would open something here, in whatever form it is sent: with a scheme of somebody else's, with none,
 * or as one of several that were sent and became one value.
 */
function isOurs(front: Front, authorization: string): boolean {
  for (const part of authorization.split(/[\s,]+/)) {
    if (part === '') continue;
    const password = passwordIn(part);
    if (opens(front, part) || (password !== null && opens(front, password))) return true;
  }
  return false;
}

function opens(front: Front, token: string): boolean {
  const bearer = BEARER + token;
  const { identities } = front.engine;
  if (isReachToken(token) || identities.caller(bearer) !== null) return true;
  return identities.peer(null, bearer) !== null || front.isOperator(bearer);
}

/** No stage and no adapter gets to see a credential. */
function forStages(headers: IncomingHttpHeaders): Record<string, string | string[] | undefined> {
  const kept: Record<string, string | string[] | undefined> = {};
  for (const name in headers) if (name !== 'authorization' && name !== 'cookie' && !name.startsWith('proxy-')) kept[name] = headers[name];
  return kept;
}

// What is meant.

function capabilityOf(front: Front, host: string): Capability | null {
  const table = front.table.current();
  return table.capabilities.get(host) ?? table.aliases.get(host) ?? null;
}

/** An answer that can be long is passed on as it comes: when some version of the contract streams, or the client wants events. */
function isStreamed(capability: Capability, accept: string | undefined): boolean {
  if (accept !== undefined && accept.includes('text/event-stream')) return true;
  for (const version of capability.versions) if (version.contract.streaming !== null) return true;
  return false;
}

function strangerWords(front: Front, host: string): string {
  const table = front.table.current();
  const near = nearest(host, table.capabilities.keys()) ?? nearest(host, table.aliases.keys());
  const shown = JSON.stringify(host.slice(0, 200));
  const meant = near === null ? '' : ` (did you mean ${near}?)`;
  return `${shown} is no capability and no alias here${meant}, and nothing else is reached through this proxy: list the host in no_proxy to reach it directly`;
}
