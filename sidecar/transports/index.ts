/** Which adapter serves which endpoint type: one line each. Everything else about adapters is in their own files. */
import type { FieldTable } from '../../proto/language/reader.ts';
import { Code } from '../../proto/wire/codes.ts';
import { failed, type Reply } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import { channelKind } from './channel.ts';
import { grpcKind } from './grpc.ts';
import { httpKind } from './http.ts';
import { jsonRpcKind } from './json-rpc.ts';
import { localKind } from './local.ts';
import { meshKind, type MeshSecurity } from './mesh.ts';
import { mockKind } from './mock.ts';
import { natsKind } from './nats.ts';
import type { Exchange, Transport, TransportContext, TransportKind } from './transport.ts';

export type TransportKinds = Readonly<Record<string, TransportKind>>;

/** The name of the adapter that reaches another sidecar; not an endpoint type that people may write. */
const MESH = 'mesh';

/** @param security what this sidecar shows the others: a token alone, or more; null = the mesh port is not used. */
export function registerTransports(security: MeshSecurity | string | null): TransportKinds {
  return {
    channel: channelKind,
    grpc: grpcKind,
    http: httpKind,
    jsonrpc: jsonRpcKind,
    local: localKind,
    [MESH]: meshKind(security),
    mock: mockKind,
    nats: natsKind,
  };
}

/** The keys of each endpoint type whose adapter has a table of them. */
export function endpointTables(kinds: TransportKinds): Readonly<Record<string, FieldTable>> {
  const tables: Record<string, FieldTable> = {};
  for (const type of endpointTypes(kinds)) {
    const fields = kinds[type]?.fields;
    if (fields !== undefined) tables[type] = fields;
  }
  return tables;
}

/** The endpoint types that a provider record may name. */
export function endpointTypes(kinds: TransportKinds): string[] {
  return Object.keys(kinds).filter((type) => type !== MESH);
}

export class Transports {
  readonly #byType = new Map<string, Transport>();
  #mesh: Transport;

  constructor(context: TransportContext, kinds: TransportKinds) {
    for (const [type, kind] of Object.entries(kinds)) this.#byType.set(type, kind.make(context));
    this.#mesh = this.#byType.get(MESH) ?? new NoTransport('no adapter reaches other sidecars here');
  }

  /** Always an adapter; a type that nobody registered gets one that refuses. */
  for(candidate: Candidate): Transport {
    return candidate.provider.reach === 'mesh' ? this.#mesh : this.#direct(candidate);
  }

  /** The adapter of the provider's own endpoint. */
  #direct(candidate: Candidate): Transport {
    const type = candidate.provider.record.endpoint.type;
    return this.#byType.get(type) ?? this.#unknown(type);
  }

  /** The adapter of a type; null when none is registered. */
  of(type: string): Transport | null {
    return this.#byType.get(type) ?? null;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#byType.values()].map((transport) => transport.close()));
  }

  #unknown(type: string): Transport {
    return new NoTransport(
      `no transport adapter is called ${JSON.stringify(type.slice(0, 40))}; there are: ${[...this.#byType.keys()].filter((name) => name !== MESH).join(', ')}`,
    );
  }
}

/** Refuses every exchange with the same words. */
class NoTransport implements Transport {
  readonly #words: string;
  constructor(words: string) {
    this.#words = words;
  }
  invoke(_exchange: Exchange): Promise<Reply> {
    return Promise.resolve(failed(Code.internal, 'not_started', this.#words));
  }
  cast(exchange: Exchange): Promise<Reply> {
    return this.invoke(exchange);
  }
  invokeStream(exchange: Exchange): Promise<Reply> {
    return this.invoke(exchange);
  }
  close(): Promise<void> {
    return Promise.resolve();
  }
}
