/**
 * The way out to gRPC servers, which need no change: JSON becomes the method's message by the server's own reflection or a
 * descriptor file (`grpc-schemas.ts`), unary and server-streaming methods alike. What it takes is in `grpc-endpoint.ts`,
 * what its errors mean in `grpc-status.ts`, how it connects in `grpc-channel.ts`.
 *
 * The wire is node:http2, not @grpc/grpc-js: that library repeats refused calls by itself, resolves names
 * past our judgement of addresses, keeps time of its own, and does not tell whether a call was sent, with which code a
 * stream was reset, or up to which stream a leaving server has worked. All of these decide here about repeating work.
 */
import { reachedFields } from '../../proto/language/endpoint.ts';
import { Code } from '../../proto/wire/codes.ts';
import { failed, type Reply } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import { Channel } from './grpc-channel.ts';
import { grpcFields, readGrpcEndpoint } from './grpc-endpoint.ts';
import { GrpcExchange } from './grpc-exchange.ts';
import { frameOf } from './grpc-frames.ts';
import { headersFor } from './grpc-metadata.ts';
import { Rpc } from './grpc-rpc.ts';
import type { Schema } from './grpc-schema.ts';
import { Schemas } from './grpc-schemas.ts';
import { credentialOf, GrpcTarget, type TargetOwner } from './grpc-target.ts';
import type { Mode } from './http-exchange.ts';
import { forwardRequestHeaders } from './hygiene.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

/** Servers kept at most, as long as some are idle. */
const MAX_CHANNELS = 512;

export class GrpcTransport implements Transport, TargetOwner {
  readonly #context: TransportContext;
  readonly #now: () => number;
  readonly #channels = new Map<string, Channel>();
  readonly #schemas = new Map<string, Schemas>();
  readonly #closing = new Set<Promise<void>>();
  #uses = 0;
  #closed = false;

  constructor(context: TransportContext) {
    this.#context = context;
    this.#now = () => context.clock.now();
  }

  get channels(): ReadonlyMap<string, Channel> {
    return this.#channels;
  }

  invoke(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'whole');
  }

  cast(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'head');
  }

  invokeStream(exchange: Exchange): Promise<Reply> {
    return this.#send(exchange, 'stream');
  }

  async close(): Promise<void> {
    this.#closed = true;
    const channels = [...this.#channels.values()];
    this.#channels.clear();
    this.#schemas.clear();
    await Promise.all([...this.#closing, ...channels.map((channel) => channel.close())]);
  }

  channelFor(target: GrpcTarget): Channel {
    const known = this.#channels.get(target.channelKey);
    if (known !== undefined) return known;
    const { clock, connectTimeoutMs, destinations = null, warn } = this.#context;
    const destination = destinations === null ? null : target.isHosted ? destinations.hosted : destinations.thirdParty;
    const channel = new Channel(target.endpoint, destination, { clock, connectTimeoutMs, warn: warn ?? silent });
    if (this.#closed) channel.closed = true;
    else {
      if (this.#channels.size >= MAX_CHANNELS) this.#evict();
      this.#channels.set(target.channelKey, channel);
    }
    return channel;
  }

  /** The types of one service at one server; shared by its capabilities. */
  schemasFor(target: GrpcTarget): Schemas {
    const { descriptor } = target.endpoint;
    const key = `${target.channelKey} ${target.service} ${descriptor ?? ''} ${target.credentialKey}`;
    const known = this.#schemas.get(key);
    if (known !== undefined) return known;
    const made = new Schemas(target.channel, target.service, descriptor, this.#context.clock, () => credentialOf(target) ?? []);
    if (!this.#closed) this.#schemas.set(key, made);
    return made;
  }

  #send(exchange: Exchange, mode: Mode): Promise<Reply> {
    const target = this.#target(exchange.candidate);
    if (typeof target === 'string') return Promise.resolve(failed(Code.internal, 'not_started', target));
    const payload = exchange.json === undefined ? parsed(exchange.body) : exchange.json;
    if (payload === NOT_JSON)
      return Promise.resolve(
        failed(Code.invalid_request, 'not_started', 'the payload is not JSON, which a gRPC method is called with here'),
      );
    const metadata = target.head.slice();
    const secret = credentialOf(target);
    if (secret === null)
      return Promise.resolve(
        failed(
          Code.internal,
          'not_started',
          `the credential of ${exchange.candidate.provider.agentId} (metadata ${target.secret?.name}) cannot be read`,
        ),
      );
    for (const part of secret) metadata.push(part);
    const refusal = forwardRequestHeaders(exchange.incoming, exchange.own, target.fixed, metadata);
    if (refusal !== '') return Promise.resolve(failed(Code.invalid_request, 'not_started', refusal));
    for (const part of exchange.own) metadata.push(part);
    return new Promise((resolve) => {
      const running = new GrpcExchange(mode, target.endpoint.fieldNames, exchange.maxResponseBytes, resolve);
      exchange.abort = stopper(running);
      const schema = target.schemas.current;
      if (schema !== null) this.#start(target, running, exchange, payload, metadata, schema);
      else void this.#learn(target, running, exchange, payload, metadata);
    });
  }

  async #learn(
    target: GrpcTarget,
    running: GrpcExchange,
    exchange: Exchange,
    payload: unknown,
    metadata: readonly string[],
  ): Promise<void> {
    const read = await target.schemas.read();
    if (running.isSettled) return;
    if ('schema' in read) this.#start(target, running, exchange, payload, metadata, read.schema);
    else running.settle(failed(read.code, 'not_started', read.words));
  }

  #start(
    target: GrpcTarget,
    running: GrpcExchange,
    exchange: Exchange,
    payload: unknown,
    metadata: readonly string[],
    schema: Schema,
  ): void {
    const method = target.bind(schema);
    if (typeof method === 'string') {
      if (target.schemas.doubt()) void this.#learn(target, running, exchange, payload, metadata);
      else
        running.settle(
          failed(Code.internal, 'not_started', `the endpoint of ${exchange.candidate.provider.agentId} cannot be used: ${method}`),
        );
      return;
    }
    const encoded = schema.encode(method.input, payload, exchange.body);
    if ('problem' in encoded) {
      // A new release may have a field that the last reading did not know.
      if (target.schemas.doubt()) void this.#learn(target, running, exchange, payload, metadata);
      else running.settle(failed(Code.invalid_request, 'not_started', `the payload is no ${method.input.typeName}: ${encoded.problem}`));
      return;
    }
    const { maxMessageBytes } = target.endpoint;
    const { bytes } = encoded;
    if (maxMessageBytes !== null && bytes.length > maxMessageBytes) {
      running.settle(
        failed(
          Code.payload_too_large,
          'not_started',
          `the message is ${bytes.length} bytes, above the provider's max_message of ${maxMessageBytes}`,
        ),
      );
      return;
    }
    running.method = method;
    running.schema = schema;
    running.types = target.schemas;
    const channel = this.#channelOf(target);
    const headers = headersFor(
      channel.scheme,
      channel.authority,
      `/${method.service}/${method.name}`,
      exchange.timeoutMs,
      metadata,
      target.secret?.name ?? null,
    );
    const most = Math.min(exchange.maxResponseBytes, maxMessageBytes ?? exchange.maxResponseBytes);
    const rpc = new Rpc(headers, frameOf(bytes), channel.host, most, this.#now, running);
    running.rpc = rpc;
    channel.run(rpc);
  }

  /** A candidate may outlive its channel. */
  #channelOf(target: GrpcTarget): Channel {
    if (target.channel.closed && !this.#closed) {
      target.channel = this.channelFor(target);
      target.schemas = this.schemasFor(target);
    }
    target.channel.usedAt = ++this.#uses;
    return target.channel;
  }

  #target(candidate: Candidate): GrpcTarget | string {
    const prepared = candidate.prepared;
    if (prepared instanceof GrpcTarget && prepared.owner === this) return prepared;
    const endpoint = readGrpcEndpoint(candidate.provider.record.endpoint);
    if (!('address' in endpoint)) return `the endpoint of ${candidate.provider.agentId} cannot be used: ${endpoint.join('; ')}`;
    const { name } = candidate.version.capability;
    if (endpoint.service === null && endpoint.methods[name] === undefined)
      return `the endpoint of ${candidate.provider.agentId} cannot be used: its methods do not name ${name}, and it has no service`;
    const target = new GrpcTarget(this, candidate, endpoint, this.#context);
    candidate.prepared = target;
    return target;
  }

  #evict(): void {
    let oldest: [string, Channel] | null = null;
    for (const entry of this.#channels) if (entry[1].isIdle && (oldest === null || entry[1].usedAt < oldest[1].usedAt)) oldest = entry;
    if (oldest === null) return;
    const [key, channel] = oldest;
    this.#channels.delete(key);
    for (const one of this.#schemas.keys()) if (one.startsWith(`${key} `)) this.#schemas.delete(one);
    const closing = channel.close();
    this.#closing.add(closing);
    void closing.then(() => this.#closing.delete(closing));
  }
}

function silent(): void {}

/** Not a literal where it is assigned: V8 would allocate it in the old generation, see `attempt`. */
function stopper(running: GrpcExchange): () => void {
  return () => running.stop();
}

const NOT_JSON = Symbol('not JSON');

function parsed(body: Buffer): unknown {
  if (body.length === 0) return null;
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return NOT_JSON;
  }
}

export const grpcKind: TransportKind = {
  make: (context) => new GrpcTransport(context),
  problems: (endpoint) => {
    const read = readGrpcEndpoint(endpoint);
    return 'address' in read ? [] : read;
  },
  fields: { ...reachedFields, ...grpcFields },
};
