/**
 * The way out to an agent that speaks JSON-RPC 2.0 over HTTP and knows nothing of us. Decides method, params and id; the
 * payload's bytes are put into `params` and the bytes of `result` are the answer, neither is built and written again. What an
 * answer means is read in `json-rpc-answer.ts`; connections, their limits and errors are those of `http`, in pools of its own.
 *
 * The id is counted here and belongs to this one request, whatever ids our callers use: an answer with another one is never
 * taken for theirs. A JSON-RPC answer has no parts, so a call for a stream gets it whole; where it comes in a stream of events,
 * what comes behind it is not waited for.
 */
import { isJson } from '../../base/json-scan.ts';
import { reachedFields } from '../../proto/language/endpoint.ts';
import { addressProblem } from '../../proto/language/http-text.ts';
import { capabilityNameProblem } from '../../proto/language/names.ts';
import { optional, type Shape } from '../../proto/language/reader.ts';
import { dictionary, oneOf, text } from '../../proto/language/shapes.ts';
import type { Endpoint } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { paramsWithTrace } from '../../proto/wire/json-rpc-trace.ts';
import { failed, type Reply } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import { run } from './http.ts';
import { SecretHeader } from './http-target.ts';
import { forwardRequestHeaders } from './hygiene.ts';
import { ENVELOPE_BYTES, notified, RpcAsked, understood } from './json-rpc-answer.ts';
import { isProblems, readOptions } from './options.ts';
import type { Pool } from './pool.ts';
import { Pools } from './pools.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

const NO_METHODS: Readonly<Record<string, string>> = Object.freeze(Object.create(null) as Record<string, string>);

/** A number in YAML as well, since nobody quotes it. */
const version: Shape<string> = {
  kind: '"2.0"',
  read: (value, place) => (value === '2.0' || value === 2 ? '2.0' : place.bad('version must be "2.0": no other JSON-RPC is spoken here')),
  schema: () => ({ enum: ['2.0', 2] }),
};

export const jsonRpcFields = {
  methods: optional(
    dictionary('capability', capabilityNameProblem, text("the name of the agent's method"), 256),
    "The agent's method for each capability. What is not named here is asked for by its own name.",
    NO_METHODS,
  ),
  params: optional(
    oneOf(['by_name', 'by_position']),
    '`by_name`: an object or a list is the params as it is, anything else the one thing in a list. `by_position`: an object is the one thing in a list too.',
    'by_name' as const,
    'by_name',
  ),
  version: optional(version, 'The version of JSON-RPC.', '2.0', '"2.0"'),
};

/** What can be made once per candidate. */
class RpcTarget {
  readonly owner: object;
  readonly url: URL;
  readonly pool: Pool;
  readonly path: string;
  readonly method: string;
  /** `,"method":"…"`, as it stands in every request. */
  readonly methodText: string;
  readonly isByName: boolean;
  /** Flat name, value …: sent with every request. */
  readonly head: readonly string[];
  readonly fixed: ReadonlySet<string>;
  readonly secret: SecretHeader | null;

  constructor(owner: object, candidate: Candidate, pools: Pools, context: TransportContext) {
    const { endpoint } = candidate.provider.record;
    const options = readOptions(jsonRpcFields, endpoint.options);
    if (isProblems(options)) throw new Error(options.join('; '));
    const name = candidate.version.capability.name;
    this.owner = owner;
    this.url = new URL(endpoint.address);
    this.pool = pools.for(this.url);
    this.path = this.url.pathname;
    this.method = options.methods[name] ?? name;
    this.methodText = `,"method":${JSON.stringify(this.method)}`;
    this.isByName = options.params === 'by_name';
    this.head = [
      'accept-encoding',
      'identity',
      'accept',
      'application/json, text/event-stream',
      'content-type',
      'application/json',
      // To another sidecar's `/rpc`: the agent's own answer is the result. Nobody else knows it.
      Header.mode,
      'raw',
      Header.capability,
      name,
      Header.version,
      candidate.version.text,
    ];
    this.fixed = new Set(endpoint.credential === null ? ['accept'] : ['accept', endpoint.credential.header]);
    this.secret = endpoint.credential === null ? null : new SecretHeader(endpoint.credential, context.clock, context.secret);
  }
}

export class JsonRpcTransport implements Transport {
  readonly pools: Pools;
  /** To what this sidecar hosts. */
  readonly hosted: Pools;
  readonly #context: TransportContext;
  #lastId = 0;

  constructor(context: TransportContext) {
    const { destinations = null } = context;
    this.#context = context;
    this.pools = new Pools(context, undefined, destinations?.thirdParty ?? null);
    this.hosted = destinations === null ? this.pools : new Pools(context, undefined, destinations.hosted);
  }

  invoke(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, ++this.#lastId);
  }

  /** A notification: it has no id, and no answer can refer to it. */
  cast(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 0);
  }

  invokeStream(exchange: Exchange): Promise<Reply> {
    return this.invoke(exchange);
  }

  async close(): Promise<void> {
    await Promise.all([this.pools.close(), this.hosted.close()]);
  }

  /** @param id 0 = a notification. */
  async #send(exchange: Exchange, id: number): Promise<Reply> {
    const { candidate } = exchange;
    const target = this.#target(candidate);
    if (typeof target === 'string') return failed(Code.internal, 'not_started', target);
    const body = requestBody(target, exchange, id);
    if (body === null) return failed(Code.invalid_request, 'not_started', 'the payload is not JSON, which this agent (JSON-RPC) needs');
    const headers = target.head.slice();
    if (target.secret !== null) {
      const secret = target.secret.value();
      if (secret === null)
        return failed(
          Code.internal,
          'not_started',
          `the credential of ${candidate.provider.agentId} (header ${target.secret.name}) cannot be read`,
        );
      headers.push(target.secret.name, secret);
    }
    const refusal = forwardRequestHeaders(exchange.incoming, exchange.own, target.fixed, headers);
    if (refusal !== '') return failed(Code.invalid_request, 'not_started', refusal);
    for (let i = 0; i < exchange.own.length; i++) headers.push(exchange.own[i] as string);
    const pool = this.#poolsOf(candidate).use(target.pool, target.url);
    const maxBytes = exchange.maxResponseBytes;
    const asked = new RpcAsked(id, target.method, maxBytes);
    const options = { method: 'POST', path: target.path, headers, body } as const;
    const reply = await run(exchange, pool, options, 'whole', maxBytes + ENVELOPE_BYTES, asked);
    if (reply.code !== Code.ok) return reply;
    return id === 0 ? notified(reply) : understood(reply, asked);
  }

  #poolsOf(candidate: Candidate): Pools {
    return candidate.provider.reach === 'self' ? this.hosted : this.pools;
  }

  #target(candidate: Candidate): RpcTarget | string {
    const prepared = candidate.prepared;
    if (prepared instanceof RpcTarget && prepared.owner === this) return prepared;
    try {
      const target = new RpcTarget(this, candidate, this.#poolsOf(candidate), this.#context);
      candidate.prepared = target;
      return target;
    } catch (error) {
      return `the endpoint of ${candidate.provider.agentId} cannot be used: ${(error as Error).message}`;
    }
  }
}

const OBJECT = 0x7b;
const LIST = 0x5b;
const END = Buffer.from('}', 'latin1');
const LIST_END = Buffer.from(']}', 'latin1');

/** Null when the payload is not JSON. No payload, or null, means no params. */
function requestBody(target: RpcTarget, exchange: Exchange, id: number): Buffer | null {
  const payload = trimmed(exchange.body);
  const head = id === 0 ? `{"jsonrpc":"2.0"${target.methodText}` : `{"jsonrpc":"2.0","id":${id}${target.methodText}`;
  if (payload.length === 0 || (payload.length === 4 && payload.toString('latin1') === 'null')) return Buffer.from(`${head}}`, 'utf8');
  // Whoever splices bytes has to know that they are one whole value.
  if (exchange.json === undefined && !isJson(payload)) return null;
  const isAsItIs = payload[0] === LIST || (payload[0] === OBJECT && target.isByName);
  const params = payload[0] === OBJECT ? paramsWithTrace(payload, ownTrace(exchange)) : payload;
  return Buffer.concat([Buffer.from(`${head},"params":${isAsItIs ? '' : '['}`, 'utf8'), params, isAsItIs ? END : LIST_END]);
}

/** The span that the agent works in. */
function ownTrace({ own }: Exchange): string {
  for (let i = 0; i < own.length; i += 2) if (own[i] === Header.traceparent) return own[i + 1] as string;
  return '';
}

/** Without white space around it and without a byte order mark. */
function trimmed(body: Buffer): Buffer {
  let from = body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf ? 3 : 0;
  let to = body.length;
  while (from < to && isSpace(body[from] as number)) from++;
  while (to > from && isSpace(body[to - 1] as number)) to--;
  return from === 0 && to === body.length ? body : body.subarray(from, to);
}

function isSpace(c: number): boolean {
  return c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09;
}

function problemsOf({ address, options }: Endpoint): readonly string[] {
  const wrong =
    address === '' ? 'address is missing: where the agent takes JSON-RPC, such as http://127.0.0.1:8080/rpc' : addressProblem(address);
  const read = readOptions(jsonRpcFields, options);
  return [...(wrong === null ? [] : [wrong]), ...(isProblems(read) ? read : [])];
}

export const jsonRpcKind: TransportKind = {
  make: (context) => new JsonRpcTransport(context),
  problems: problemsOf,
  fields: { ...reachedFields, ...jsonRpcFields },
};
