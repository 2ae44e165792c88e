/**
 * The way out over HTTP/1.1, to a provider that is reached directly: an agent of this sidecar's host, an old service, a
 * third party behind a mapping. It follows no redirect (a provider's address is a decision of its registration, not of
 * an answer), asks for no compression, and never sends the caller's credentials on.
 */
import type { Dispatcher } from 'undici';
import { Code } from '../../proto/wire/codes.ts';
import { OWN_PREFIX } from '../../proto/wire/headers.ts';
import { lineForm } from '../call/answer-body.ts';
import type { HttpAsk } from '../call/call.ts';
import { failed, NO_BODY, type Reply } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import { type Enough, HttpExchange, type Mode } from './http-exchange.ts';
import { HttpTarget } from './http-target.ts';
import { inClientTerms, intercepted } from './intercepted.ts';
import { forwardNegotiation, forwardRequestHeaders } from './hygiene.ts';
import { applyMapping } from './mapping.ts';
import type { Pool } from './pool.ts';
import { Pools } from './pools.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';
import { unpacked } from './unpacked-body.ts';

export class HttpTransport implements Transport {
  /** To third parties, and to all where addresses are not judged. */
  readonly pools: Pools;
  /** To what this sidecar hosts. */
  readonly hosted: Pools;
  readonly #context: TransportContext;

  constructor(context: TransportContext) {
    const { destinations = null } = context;
    this.#context = context;
    this.pools = new Pools(context, undefined, destinations?.thirdParty ?? null);
    this.hosted = destinations === null ? this.pools : new Pools(context, undefined, destinations.hosted);
  }

  invoke(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'whole');
  }

  cast(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'head');
  }

  async invokeStream(exchange: Exchange): Promise<Reply> {
    const reply = await this.#send(exchange, 'stream');
    // A client that speaks HTTP itself gets the bytes as they are, unless they have to be looked into for the last word.
    return exchange.http === null || isWatched(reply, exchange.candidate) ? unpacked(reply) : reply;
  }

  async close(): Promise<void> {
    await Promise.all([this.pools.close(), this.hosted.close()]);
  }

  #poolsOf(candidate: Candidate): Pools {
    return candidate.provider.reach === 'self' ? this.hosted : this.pools;
  }

  #send(exchange: Exchange, mode: Mode): Promise<Reply> {
    const target = this.#target(exchange.candidate);
    if (typeof target === 'string') return Promise.resolve(failed(Code.internal, 'not_started', target));
    const headers = target.head.slice();
    if (target.secret !== null) {
      const secret = target.secret.value();
      if (secret === null)
        return Promise.resolve(
          failed(
            Code.internal,
            'not_started',
            `the credential of ${exchange.candidate.provider.agentId} (header ${target.secret.name}) cannot be read`,
          ),
        );
      headers.push(target.secret.name, secret);
    }
    const refusal =
      target.mapping === null
        ? forwardRequestHeaders(exchange.incoming, exchange.own, target.fixed, headers)
        : forwardNegotiation(exchange.incoming, target.fixed, headers);
    if (refusal !== '') return Promise.resolve(failed(Code.invalid_request, 'not_started', refusal));
    const pool = this.#poolsOf(exchange.candidate).use(target.pool, target.url);
    if (target.mapping !== null) return sendMapped(exchange, target, pool, headers, mode);
    if (exchange.contentType !== '') headers.push('content-type', exchange.contentType);
    const own = exchange.own;
    for (let i = 0; i < own.length; i++) headers.push(own[i] as string);
    if (exchange.http !== null) return sendIntercepted(exchange, exchange.http, target, pool, headers, mode);
    return run(exchange, pool, { method: 'POST', path: target.path, headers, body: exchange.body }, mode);
  }

  /** What was prepared for a candidate, or the words why it cannot be. */
  #target(candidate: Candidate): HttpTarget | string {
    const prepared = candidate.prepared;
    if (prepared instanceof HttpTarget && prepared.owner === this) return prepared;
    try {
      const target = new HttpTarget(this, candidate, this.#poolsOf(candidate), this.#context.clock, this.#context.secret);
      candidate.prepared = target;
      return target;
    } catch (error) {
      return `the endpoint of ${candidate.provider.agentId} cannot be used: ${(error as Error).message}`;
    }
  }
}

/** Its end is told by words in it, or would be if they could be read. */
function isWatched({ stream, headers }: Reply, { version }: Candidate): boolean {
  if (stream === null || (stream.endsByClose !== true && (version.contract.streaming?.done ?? null) === null)) return false;
  return lineForm(headers['content-type']) !== null;
}

/** Not a literal where it is assigned: V8 would allocate it in the old generation, see `attempt`. */
function stopper(running: HttpExchange): () => void {
  return () => running.stop();
}

/**
 * Starts an exchange on a pool; the only place where one is made, so that `abort` is set for all.
 * @param maxBytes of the answer as it comes: more than the body may have where an envelope is around it.
 * @param enough may end the waiting for a whole answer; null = it is whole when it has ended.
 */
export function run(
  exchange: Exchange,
  pool: Pool,
  options: Dispatcher.DispatchOptions,
  mode: Mode,
  maxBytes: number = exchange.maxResponseBytes,
  enough: Enough | null = null,
): Promise<Reply> {
  return new Promise((resolve) => {
    const running = new HttpExchange(options, mode, maxBytes, exchange.fresh, pool, resolve, enough);
    exchange.abort = stopper(running);
    pool.run(running);
  });
}

async function sendIntercepted(
  exchange: Exchange,
  http: HttpAsk,
  target: HttpTarget,
  pool: Pool,
  headers: string[],
  mode: Mode,
): Promise<Reply> {
  const reply = await run(exchange, pool, intercepted(http, exchange.body, target, headers), mode);
  return inClientTerms(reply, target, exchange.candidate.version.capability.name);
}

function sendMapped(exchange: Exchange, target: HttpTarget, pool: Pool, headers: string[], mode: Mode): Promise<Reply> {
  const mapping = target.mapping;
  if (mapping === null) throw new Error('sendMapped needs a mapping');
  const payload = mapping.isStatic ? undefined : payloadOf(exchange);
  if (payload === NOT_JSON)
    return Promise.resolve(
      failed(Code.invalid_request, 'not_started', 'the payload is not JSON, which the mapping of this provider needs'),
    );
  const source = mapping.isStatic ? '' : exchange.body.length === 0 ? 'null' : exchange.body.toString('utf8');
  const request = applyMapping(mapping, payload, source);
  if (typeof request === 'string') return Promise.resolve(failed(Code.invalid_request, 'not_started', request));
  for (const part of request.headers) headers.push(part);
  const body = mapping.method === 'GET' && mapping.body === 'payload' ? NO_BODY : (request.body ?? exchange.body);
  if (body.length > 0 && !request.headers.includes('content-type'))
    headers.push('content-type', request.body === null && exchange.contentType !== '' ? exchange.contentType : 'application/json');
  // A third party sees the trace and the key of the work, not the names of our agents and the way the call has come.
  const own = exchange.own;
  for (let i = 0; i + 1 < own.length; i += 2) {
    const name = own[i] as string;
    if (!name.startsWith(OWN_PREFIX)) headers.push(name, own[i + 1] as string);
  }
  return run(exchange, pool, { method: mapping.method, path: target.basePath + request.path, headers, body }, mode);
}

const NOT_JSON = Symbol('not JSON');

function payloadOf(exchange: Exchange): unknown {
  if (exchange.json !== undefined) return exchange.json;
  if (exchange.body.length === 0) return null;
  try {
    return JSON.parse(exchange.body.toString('utf8'));
  } catch {
    return NOT_JSON;
  }
}

/** Its options are read with the table: see `proto/language/endpoint.ts`. */
export const httpKind: TransportKind = { make: (context) => new HttpTransport(context), problems: () => [] };
