/**
 * The way out to another sidecar: its mesh port, over the same HTTP machinery. The other end runs `inbound()` and says in
 * headers how far the work got, which plain HTTP cannot: a refusal there (busy, draining) never started and may go
 * elsewhere. An answer without those headers is no sidecar's, and is not believed.
 */
import type { Clock } from '../../base/clock.ts';
import { Code, isCode } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import type { Started } from '../call/attempt-record.ts';
import type { HttpAsk } from '../call/call.ts';
import { failed, type Reply } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import { FramedBody } from './framed-body.ts';
import { run } from './http.ts';
import type { Mode } from './http-exchange.ts';
import { forwardRequestHeaders } from './hygiene.ts';
import type { Pool, SecureConnectors } from './pool.ts';
import { Pools } from './pools.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

/** The version of what sidecars say to one another. */
export const WIRE_VERSION = '1';
export const MESH_PATH = '/mesh/v1/invoke/';

class MeshTarget {
  readonly owner: object;
  readonly url: URL;
  readonly pool: Pool;
  readonly path: string;
  readonly head: readonly string[];

  constructor(owner: object, candidate: Candidate, pools: Pools, { token, secure }: MeshSecurity) {
    this.owner = owner;
    this.url = new URL(candidate.provider.meshUrl);
    // Never in clear text to whoever can make the registry say so.
    if (secure !== null && this.url.protocol !== 'https:')
      throw new Error('it begins with http://, and this sidecar speaks TLS only (mesh.tls)');
    if (secure === null && this.url.protocol === 'https:')
      throw new Error('it begins with https://, and this sidecar has no certificate (mesh.tls)');
    this.pool = pools.for(this.url, secure === null ? '' : (candidate.provider.record.via ?? '?'));
    this.path = `${this.url.pathname.replace(/\/+$/, '')}${MESH_PATH}${candidate.version.capability.name}`;
    this.head = [
      'accept-encoding',
      'identity',
      ...(token === null ? [] : ['authorization', `Bearer ${token}`]),
      Header.wire,
      WIRE_VERSION,
      Header.version,
      candidate.version.text,
      Header.provider,
      candidate.provider.agentId,
    ];
  }
}

/** What this sidecar shows the others; all null = it has no mesh port, and uses none. */
export interface MeshSecurity {
  readonly token: string | null;
  /** Mutual TLS; takes the place of the token. */
  readonly secure: SecureConnectors | null;
  /** The control plane's word for each agent that calls through here; null = identities are not issued. */
  readonly homes: HomeStatements | null;
}

export interface HomeStatements {
  /** Null = there is none at present. */
  of(agent: string): string | null;
  /** Resolves when that has changed. */
  arrived(agent: string): Promise<void>;
}

/** An agent that is new here has its statement some milliseconds later; with a control plane that is away it never comes. */
const ARRIVAL_MS = 1_500;

export class MeshTransport implements Transport {
  readonly pools: Pools;
  readonly #security: MeshSecurity;
  readonly #clock: Clock;

  constructor(context: TransportContext, security: MeshSecurity | string | null) {
    const full = typeof security === 'string' || security === null ? { token: security, secure: null, homes: null } : security;
    this.pools = new Pools({ ...context, secure: full.secure, doubtsFailures: false }, undefined, context.destinations?.mesh ?? null);
    this.#security = full;
    this.#clock = context.clock;
  }

  async invoke(exchange: Exchange): Promise<Reply> {
    return understood(await this.#send(exchange, 'whole'), exchange.candidate);
  }

  async cast(exchange: Exchange): Promise<Reply> {
    return understood(await this.#send(exchange, 'head'), exchange.candidate);
  }

  async invokeStream(exchange: Exchange): Promise<Reply> {
    const reply = understood(await this.#send(exchange, 'stream'), exchange.candidate);
    if (reply.stream === null || reply.headers[Header.frames] !== '1') return reply;
    return reply.withStream(new FramedBody(reply.stream));
  }

  close(): Promise<void> {
    return this.pools.close();
  }

  #send(exchange: Exchange, mode: Mode): Promise<Reply> {
    const target = this.#target(exchange.candidate);
    if (typeof target === 'string') return Promise.resolve(failed(Code.internal, 'not_started', target));
    const { homes } = this.#security;
    if (homes === null) return this.#sendAs(exchange, mode, target, null);
    const agent = callerIn(exchange.own);
    const statement = homes.of(agent);
    return statement === null ? this.#sendLater(exchange, mode, target, homes, agent) : this.#sendAs(exchange, mode, target, statement);
  }

  /** Without a statement it is sent as well, in the end: whether that is believed is decided at the other end. */
  async #sendLater(exchange: Exchange, mode: Mode, target: MeshTarget, homes: HomeStatements, agent: string): Promise<Reply> {
    const isAborted = await new Promise<boolean>((resolve) => {
      const timer = this.#clock.after(Math.min(ARRIVAL_MS, exchange.timeoutMs), () => resolve(false));
      const settle = (aborted: boolean): void => {
        timer.cancel();
        resolve(aborted);
      };
      exchange.abort = () => settle(true);
      void homes.arrived(agent).then(() => settle(false));
    });
    if (isAborted) return failed(Code.cancelled, 'not_started', 'nobody waits for it any more');
    return this.#sendAs(exchange, mode, target, homes.of(agent));
  }

  #sendAs(exchange: Exchange, mode: Mode, target: MeshTarget, statement: string | null): Promise<Reply> {
    const headers = target.head.slice();
    const refusal = forwardRequestHeaders(exchange.incoming, exchange.own, null, headers);
    if (refusal !== '') return Promise.resolve(failed(Code.invalid_request, 'not_started', refusal));
    if (exchange.contentType !== '') headers.push('content-type', exchange.contentType);
    if (mode === 'stream') headers.push(Header.stream, '1', Header.frames, '1');
    if (statement !== null) headers.push(Header.home, statement);
    if (exchange.http !== null) pushAsk(exchange.http, headers);
    const own = exchange.own;
    for (let i = 0; i < own.length; i++) headers.push(own[i] as string);
    return run(
      exchange,
      this.pools.use(target.pool, target.url),
      { method: 'POST', path: target.path, headers, body: exchange.body },
      mode,
    );
  }

  #target(candidate: Candidate): MeshTarget | string {
    const prepared = candidate.prepared;
    if (prepared instanceof MeshTarget && prepared.owner === this) return prepared;
    const via = candidate.provider.record.via ?? '?';
    if (this.#security.token === null && this.#security.secure === null)
      return `${candidate.provider.agentId} is reached over the sidecar ${via}, and this sidecar has no mesh token`;
    try {
      const target = new MeshTarget(this, candidate, this.pools, this.#security);
      candidate.prepared = target;
      return target;
    } catch (error) {
      return `the mesh address of the sidecar ${via} cannot be used: ${(error as Error).message}`;
    }
  }
}

/** An intercepted request, for the other sidecar to repeat in its own words. */
function pushAsk({ method, target, credentials }: HttpAsk, headers: string[]): void {
  headers.push(Header.method, method, Header.target, target);
  for (let i = 0; i + 1 < credentials.length; i += 2)
    headers.push(credentials[i] === 'cookie' ? Header.cookie : Header.authorization, credentials[i + 1] as string);
}

/** What the other sidecar said of the work, read from its headers. Pure but for letting go of a stream that is not one. */
export function understood(reply: Reply, candidate: Candidate): Reply {
  if (reply.code !== Code.ok) return reply;
  const said = text(reply, Header.code);
  const code = said === null ? Number.NaN : Number(said);
  if (!Number.isInteger(code)) {
    reply.stream?.cancel(Code.bad_response, 'not a sidecar');
    return failed(
      Code.bad_response,
      'started',
      `what listens at the mesh address of ${candidate.provider.record.via ?? '?'} is no sidecar: HTTP ${reply.status} without ${Header.code}`,
    );
  }
  if (code === Code.ok) return reply;
  reply.stream?.cancel(Code.bad_response, 'refused');
  const known = isCode(code) ? code : Code.internal;
  const words = unescaped(text(reply, Header.detail) ?? '');
  return failed(
    known,
    startedOf(text(reply, Header.started)),
    isCode(code) ? words : `code ${code} of a newer sidecar: ${words}`,
    false,
    millisecondsOf(text(reply, Header.retryAfterMs)),
  );
}

function text(reply: Reply, name: string): string | null {
  const value = reply.headers[name];
  return typeof value === 'string' ? value : null;
}

/** What is not said is taken for the worse: the provider may have acted. */
function startedOf(value: string | null): Started {
  return value === 'not_started' || value === 'done' ? value : 'started';
}

function millisecondsOf(value: string | null): number {
  const ms = value === null ? 0 : Number(value);
  return Number.isFinite(ms) && ms > 0 ? ms : 0;
}

function unescaped(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}

/** The calling agent, as the attempt stage has stamped it. */
function callerIn(own: readonly string[]): string {
  for (let i = 0; i < own.length; i += 2) if (own[i] === Header.caller) return own[i + 1] as string;
  return '';
}

/** @param security a token alone, or more; null = the mesh port is not used. */
export function meshKind(security: MeshSecurity | string | null): TransportKind {
  return { make: (context) => new MeshTransport(context, security), problems: () => [] };
}
