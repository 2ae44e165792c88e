/**
 * One provider's one capability as a gRPC target: everything that can be made once per candidate. Decides which method is
 * meant, and which connections and types it shares with others.
 */
import { Header } from '../../proto/wire/headers.ts';
import type { Candidate } from '../table/snapshot.ts';
import type { Channel } from './grpc-channel.ts';
import { bracketed, type GrpcEndpoint } from './grpc-endpoint.ts';
import type { Method, Schema } from './grpc-schema.ts';
import type { Schemas } from './grpc-schemas.ts';
import { SecretHeader } from './http-target.ts';
import type { TransportContext } from './transport.ts';

/** What targets share. */
export interface TargetOwner {
  channelFor(target: GrpcTarget): Channel;
  schemasFor(target: GrpcTarget): Schemas;
}

export class GrpcTarget {
  readonly owner: object;
  readonly endpoint: GrpcEndpoint;
  readonly channelKey: string;
  readonly isHosted: boolean;
  readonly service: string;
  /** As written; '' = the service's method that has the capability's last segment as its name. */
  readonly methodName: string;
  readonly wanted: string;
  readonly secret: SecretHeader | null;
  /** Tells credentials apart; it is no secret. */
  readonly credentialKey: string;
  readonly fixed: ReadonlySet<string> | null;
  readonly head: readonly string[];
  channel: Channel;
  schemas: Schemas;
  method: Method | null = null;
  schema: Schema | null = null;

  constructor(owner: TargetOwner, candidate: Candidate, endpoint: GrpcEndpoint, context: TransportContext) {
    const { credential } = candidate.provider.record.endpoint;
    const capability = candidate.version.capability.name;
    const written = endpoint.methods[capability]?.replace(/^\//, '') ?? null;
    this.owner = owner;
    this.endpoint = endpoint;
    this.isHosted = candidate.provider.reach === 'self';
    this.wanted = capability.slice(capability.lastIndexOf('.') + 1);
    this.service = written === null ? (endpoint.service ?? '') : written.slice(0, written.indexOf('/'));
    this.methodName = written === null ? '' : written.slice(written.indexOf('/') + 1);
    this.secret = credential === null ? null : new SecretHeader(credential, context.clock, context.secret);
    this.credentialKey = credential === null ? '' : JSON.stringify(credential);
    this.fixed = credential === null ? null : new Set([credential.header]);
    this.head = [Header.capability, capability, Header.version, candidate.version.text];
    const { address } = endpoint;
    const { nameServer, host, port, isTls } = address;
    this.channelKey = [
      this.isHosted,
      nameServer ?? '',
      isTls,
      bracketed(host),
      port,
      endpoint.keepaliveMs,
      endpoint.keepaliveTimeoutMs,
      endpoint.refreshMs,
    ].join(' ');
    this.channel = owner.channelFor(this);
    this.schemas = owner.schemasFor(this);
  }

  /** Of the schema in force; words when there is no such method. */
  bind(schema: Schema): Method | string {
    if (this.schema === schema && this.method !== null) return this.method;
    const name = this.methodName === '' ? methodLike(schema, this.service, this.wanted) : this.methodName;
    const method =
      name === null
        ? `the service ${this.service} has no method like ${this.wanted}; it has ${(schema.methodsOf(this.service) ?? []).join(', ') || 'none'}`
        : schema.method(this.service, name);
    if (typeof method === 'string') return method;
    if (method.isClientStreaming) return `${method.service}/${method.name} takes a stream of requests, which cannot be sent`;
    this.schema = schema;
    this.method = method;
    return method;
  }
}

/** The method that is called so but for case and underscores. */
function methodLike(schema: Schema, service: string, wanted: string): string | null {
  const plain = wanted.replaceAll('_', '').toLowerCase();
  return (schema.methodsOf(service) ?? []).find((name) => name.replaceAll('_', '').toLowerCase() === plain) ?? null;
}

/** Flat name and value; null when it cannot be read. */
export function credentialOf(target: GrpcTarget): readonly string[] | null {
  if (target.secret === null) return NO_CREDENTIAL;
  const value = target.secret.value();
  return value === null ? null : [target.secret.name, value];
}

const NO_CREDENTIAL: readonly string[] = [];
