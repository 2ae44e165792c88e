/**
 * The port for other sidecars: the provider's end of a call. The answer says in headers what plain HTTP cannot: whether
 * the work never started, may have begun, or is done, which is what lets the caller's sidecar go elsewhere safely. A whole
 * answer of the agent is passed on as it came, its own errors too: the caller's end judges it by the same contract.
 * Who is calling, and all else, is decided by `inbound`.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { SidecarAddress } from '../../proto/language/types.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { readsWire, wireProblem } from '../../proto/wire/version.ts';
import { type Call, HttpAsk } from '../call/call.ts';
import type { BodySource, Reply } from '../call/reply.ts';
import { cut, detailOf } from '../call/result.ts';
import type { Listen } from '../../proto/language/process-shapes.ts';
import { MESH_PATH, WIRE_VERSION } from '../transports/mesh.ts';
import { flat, headerText } from './answer.ts';
import { BinaryFraming, PlainFraming } from './framing.ts';
import type { Front } from './front.ts';
import { MeshGuard, type MeshNames } from './guard.ts';
import { type Line, lineOf } from './line.ts';
import { json } from './pages.ts';
import { climbs } from './proxy-guard.ts';
import { callFrom, targetAfter } from './request.ts';
import { Port, type SecureDoor } from './server.ts';
import { pour } from './stream.ts';

const STARTING_MS = 1_000;

/** @param tls null = in clear text. */
export function meshPort(front: Front, listen: Listen, tls: SecureDoor | null = null): Port {
  const { allowedHosts, mesh } = front.engine.config;
  const advertised = mesh?.advertise == null ? [] : [new URL(mesh.advertise).hostname];
  const guard = new MeshGuard([...allowedHosts, ...advertised], new NamesInForce(front), tls !== null);
  const port = new Port(front, { listen, guard: (request) => guard.check(request), ...(tls === null ? {} : { tls }) });
  port.app.post(`${MESH_PATH}*`, (request: FastifyRequest, reply: FastifyReply) => {
    reply.hijack();
    void receive(front, request.raw, reply.raw, targetAfter(request.raw.url as string, MESH_PATH) ?? '', request.body);
  });
  port.app.get('/mesh/v1/ready', (_request: FastifyRequest, reply: FastifyReply) => {
    reply.hijack();
    json(reply.raw, front.ready ? 200 : 503, { ready: front.ready });
  });
  return port;
}

class NamesInForce implements MeshNames {
  readonly #front: Front;

  constructor(front: Front) {
    this.#front = front;
  }

  get ready(): boolean {
    return this.#front.table.ready;
  }

  sidecars(): readonly SidecarAddress[] {
    return this.#front.table.current().document.sidecars;
  }
}

async function receive(front: Front, request: IncomingMessage, response: ServerResponse, capability: string, body: unknown): Promise<void> {
  const { headers } = request;
  const wire = headers[Header.wire];
  const provider = headers[Header.provider];
  const version = headers[Header.version];
  if (!readsWire(versionIn(wire), Number(WIRE_VERSION))) {
    // Nobody's mistake: another provider's sidecar may understand it.
    notStarted(response, Code.none_healthy, wireProblem(versionIn(wire), Number(WIRE_VERSION), 'the mesh'), 0);
    return;
  }
  if (typeof provider !== 'string' || typeof version !== 'string') {
    notStarted(response, Code.invalid_request, `${Header.provider} and ${Header.version} must be given`, 0);
    return;
  }
  if (!front.ready) {
    front.observation.metrics.requestRefused(front.draining ? 'draining' : 'starting');
    notStarted(
      response,
      front.draining ? Code.blocked_by_operator : Code.none_healthy,
      front.draining ? "the provider's sidecar is stopping" : "the provider's sidecar is starting",
      STARTING_MS,
    );
    return;
  }
  const identity = front.security?.identity ?? null;
  if (identity !== null && identity.mode === 'enforce' && identity.trustedKeys === 0) {
    notStarted(
      response,
      Code.none_healthy,
      "the provider's sidecar has not been given the keys yet by which it knows who calls",
      STARTING_MS,
    );
    return;
  }
  const call = callFrom(front, request, 'mesh', capability, body, headers[Header.stream] === '1');
  const http = httpAskIn(request);
  if (typeof http === 'string') {
    notStarted(response, Code.invalid_request, http, 0);
    return;
  }
  const line = lineOf(request.socket);
  call.http = http;
  call.peer = line.peer;
  call.lateMs = lateMsIn(headers[Header.lateMs]);
  line.add(call);
  try {
    await front.pipeline.inbound(front.engine, call, provider, version);
    line.remove(call);
    if (front.draining) response.shouldKeepAlive = false;
    const reply = call.reply;
    if (reply !== null && reply.stream !== null && call.code === Code.ok) {
      if (response.destroyed) reply.stream.cancel(Code.cancelled, 'the peer went away');
      else flow(front, line, call, reply, reply.stream, response, headers[Header.frames] === '1');
      return;
    }
    if (response.destroyed || (call.cancelled && call.cutBy === null)) return;
    if (call.late !== null) {
      await finishLate(call, call.late.reply, response);
      return;
    }
    // An answer that is none ends here: the caller's end relies on its form having been looked at.
    const isWhole = reply !== null && reply.code === Code.ok && reply.stream === null && reply.status > 0;
    if (isWhole && call.code !== Code.bad_response) pass(response, call, reply);
    else fail(response, call);
  } catch (error) {
    line.remove(call);
    front.observation.fault(error);
    call.cancel();
    if (response.headersSent) response.destroy();
    else tell(response, Code.internal, 'started', 'a fault in Agent-Reach', 0);
  }
}

/** What is no number is told as it stands there. */
function versionIn(said: string | string[] | undefined): unknown {
  return typeof said === 'string' && /^[0-9]{1,6}$/.test(said) ? Number(said) : said;
}

/** The time is over, and the caller's end waits on for its key: it gets the answer when it comes. */
async function finishLate(call: Call, late: Promise<Reply | null>, response: ServerResponse): Promise<void> {
  const reply = await late;
  if (response.destroyed) return;
  if (reply === null) fail(response, call);
  else pass(response, call, reply);
}

function lateMsIn(said: string | string[] | undefined): number {
  const ms = typeof said === 'string' ? Number(said) : 0;
  return Number.isFinite(ms) && ms > 0 ? ms : 0;
}

/** As frames, so that an end, a cut and its code are told apart; to a peer that does not know them, as it comes. */
function flow(front: Front, line: Line, call: Call, reply: Reply, source: BodySource, response: ServerResponse, framed: boolean): void {
  const head = answerHead(call, reply);
  if (framed) head.push(Header.frames, '1');
  pour(front, line, call, source, response, reply.status, head, framed ? new BinaryFraming() : new PlainFraming(), endWords);
}

/** The Result in the words of the attempt: the caller's end names the provider itself. */
function endWords(call: Call): string {
  if (call.code === Code.ok) return '{"code":0,"error":null}';
  const last = call.attempts[call.attempts.length - 1];
  const { code, name, meaning, retryable } = codeEntry(call.code);
  const detail = last === undefined || last.detail === '' ? detailOf(call) : cut(last.detail);
  return JSON.stringify({ code, error: { code, name, message: meaning, retryable, ambiguous: true, detail } });
}

/** What a forward proxy answers itself. */
const UNFIT: ReadonlySet<string> = new Set(['CONNECT', 'TRACE']);

/** What an intercepted request asked for, as the peer passes it on; the words of a refusal when it cannot be meant. */
function httpAskIn({ headers }: IncomingMessage): HttpAsk | string | null {
  const method = headers[Header.method];
  const target = headers[Header.target];
  if (method === undefined && target === undefined) return null;
  if (typeof method !== 'string' || !/^[A-Z-]{1,32}$/.test(method) || UNFIT.has(method)) return `${Header.method} is no method`;
  // The peer has looked at it; what a capability of one agent may reach is decided here as well.
  if (typeof target !== 'string' || !/^\/[\x21\x22\x24-\x7e]*$/.test(target) || climbs(target)) return `${Header.target} is no path`;
  const credentials: string[] = [];
  const authorization = headers[Header.authorization];
  if (typeof authorization === 'string') credentials.push('authorization', authorization);
  const cookie = headers[Header.cookie];
  if (typeof cookie === 'string') credentials.push('cookie', cookie);
  return new HttpAsk(method, target, credentials);
}

/** The agent's whole answer. */
function pass(response: ServerResponse, call: Call, reply: Reply): void {
  const head = answerHead(call, reply);
  if (reply.status !== 204 && reply.status !== 304) head.push('content-length', String(reply.body.length));
  response.writeHead(reply.status, head);
  response.end(reply.body);
}

function answerHead(call: Call, reply: Reply): string[] {
  const head = flat(reply.headers);
  head.push(Header.code, '0', Header.started, reply.started);
  // What the agent itself said, and hygiene has taken out with every other header of ours.
  if (call.definitelySuccess) head.push(Header.definitelySuccess, 'true');
  if (call.noRetry) head.push(Header.retry, 'none');
  return head;
}

function fail(response: ServerResponse, call: Call): void {
  const last = call.attempts[call.attempts.length - 1];
  tell(
    response,
    call.code === Code.ok ? Code.internal : call.code,
    last === undefined ? 'not_started' : last.started,
    // The caller's end names the provider itself; said twice it would read as two failures.
    call.refusal?.reason.stage === 'attempt' && last !== undefined && last.detail !== '' ? last.detail : detailOf(call),
    call.retryAfterMs,
  );
}

function notStarted(response: ServerResponse, code: Code, detail: string, retryAfterMs: number): void {
  tell(response, code, 'not_started', detail, retryAfterMs);
}

function tell(response: ServerResponse, code: Code, started: string, detail: string, retryAfterMs: number): void {
  const head = [Header.code, String(code), Header.started, started, 'content-length', '0'];
  if (detail !== '') head.push(Header.detail, headerText(detail));
  if (retryAfterMs > 0) head.push(Header.retryAfterMs, String(Math.ceil(retryAfterMs)));
  response.writeHead(codeEntry(code).http, head);
  response.end();
}
