/**
 * The way out to another sidecar: its mesh port, over the same HTTP machinery. The other end runs `inbound()` and says in
 * headers how far the work got, which plain HTTP cannot: a refusal there (busy, draining) never started and may go
 * elsewhere. An answer without those headers is no sidecar's, and is not believed.
 */
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
import type { Pool } from './pool.ts';
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

  constructor(owner: object, candidate: Candidate, pools: Pools, token: string) {
    this.owner = owner;
    this.url = new URL(candidate.provider.meshUrl);
    this.pool = pools.for(this.url);
    this.path = `${this.url.pathname.replace(/\/+$/, '')}${MESH_PATH}${candidate.version.capability.name}`;
    this.head = [
      'accept-encoding',
      'identity',
      'authorization',
      `Bearer ${token}`,
      Header.wire,
      WIRE_VERSION,
      Header.version,
      candidate.version.text,
      Header.provider,
      candidate.provider.agentId,
    ];
  }
}

export class MeshTransport implements Transport {
  readonly pools: Pools;
  readonly #token: string | null;

  constructor(context: TransportContext, token: string | null) {
    this.pools = new Pools(context, undefined, context.destinations?.mesh ?? null);
    this.#token = token;
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
    const headers = target.head.slice();
    const refusal = forwardRequestHeaders(exchange.incoming, exchange.own, null, headers);
    if (refusal !== '') return Promise.resolve(failed(Code.invalid_request, 'not_started', refusal));
    if (exchange.contentType !== '') headers.push('content-type', exchange.contentType);
    if (mode === 'stream') headers.push(Header.stream, '1', Header.frames, '1');
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
    if (this.#token === null) return `${candidate.provider.agentId} is reached over the sidecar ${via}, and this sidecar has no mesh token`;
    try {
      const target = new MeshTarget(this, candidate, this.pools, this.#token);
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

/** @param token what the other sidecars know this one by; null = the mesh port is not used. */
export function meshKind(token: string | null): TransportKind {
  return { make: (context) => new MeshTransport(context, token), problems: () => [] };
}
