/**
 * What people write under `endpoint:` for type `grpc`, read and checked:
 *
 *     {type: grpc, address: "dns:///orders.internal:50051", service: shop.v1.Orders}
 *
 * `address`: `grpc://host:port`, `grpcs://host[:443]` (TLS; `http://` and `https://` mean the same), `host:port`, `dns:///name:port`, or `dns://10.0.0.2:53/name:port` to
 * ask that name server, which is named by its number. Which method serves a capability: `methods` names it; else it is the one of `service` whose name is
 * the capability's last segment, whatever its case and underscores (`get_status` finds GetStatus). `descriptor` is a path
 * from the directory in which the sidecar runs.
 */
import { isIP } from 'node:net';
import { quote } from '../../base/duration.ts';
import { capabilityNameProblem } from '../../proto/language/names.ts';
import { BAD, object, openSource, optional, Place } from '../../proto/language/reader.ts';
import { dictionary, duration, flag, oneOf, size, text } from '../../proto/language/shapes.ts';
import type { Endpoint } from '../../proto/language/types.ts';

/** `camel` is what the JSON mapping says; `original` keeps the names as they stand in the .proto file. */
export type FieldNames = 'camel' | 'original';

export interface GrpcAddress {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
  /** `host:port` of the name server to ask; null = the system's own way. */
  readonly nameServer: string | null;
}

export interface GrpcEndpoint {
  readonly address: GrpcAddress;
  /** `service/method` by capability. */
  readonly methods: Readonly<Record<string, string>>;
  readonly service: string | null;
  /** Path of a .proto file or of a FileDescriptorSet; null = the server is asked (reflection). */
  readonly descriptor: string | null;
  /** Of one message, both ways; null = the contract's limits only. */
  readonly maxMessageBytes: number | null;
  /** A ping after so long while calls are under way; null = never. */
  readonly keepaliveMs: number | null;
  readonly keepaliveTimeoutMs: number;
  /** A name in use is looked up again after so long. */
  readonly refreshMs: number;
  readonly fieldNames: FieldNames;
}

const METHOD = /^\/?[A-Za-z_][A-Za-z0-9_.]*\/[A-Za-z_][A-Za-z0-9_]*$/;
const SERVICE = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$/;

export const grpcFields = {
  methods: optional(
    dictionary(
      'capability',
      capabilityNameProblem,
      text('a method', (value) => (METHOD.test(value) ? null : `${quote(value)} is not a method: write it as shop.v1.Orders/Query`)),
      256,
    ),
    'Which method serves a capability, such as {crm.order.query: shop.v1.Orders/Query}.',
    Object.freeze(Object.create(null) as Record<string, string>),
  ),
  service: optional(
    text('a service', (value) =>
      SERVICE.test(value) ? null : `${quote(value)} is not the full name of a service, such as shop.v1.Orders`,
    ),
    "The service whose method with the capability's last segment as its name is called.",
    null,
  ),
  descriptor: optional(
    text('a path'),
    'A .proto file or a FileDescriptorSet (protoc --include_imports --descriptor_set_out), from the directory the sidecar runs in. Absent: the server is asked by reflection.',
    null,
  ),
  max_message: optional(size(1_024, 268_435_456), 'Largest message, both ways.', null),
  tls: optional(flag, 'TLS; for addresses without grpc:// or grpcs://.', null),
  keepalive: optional(
    duration(1_000, 86_400_000),
    'A ping after so long while calls are under way. Servers refuse frequent ones (many allow one in five minutes); the time is doubled when one does.',
    null,
  ),
  keepalive_timeout: optional(duration(100, 600_000), 'A ping must be answered within this.', 20_000, '20s'),
  refresh: optional(duration(1_000, 86_400_000), 'A name in use is looked up again after so long.', 30_000, '30s'),
  field_names: optional(
    oneOf(['camel', 'original']),
    'Names in answers: camelCase (the JSON mapping of protobuf) or as in the .proto file.',
    'camel' as const,
    'camel',
  ),
};
const shape = object('endpoint', grpcFields);

/** The endpoint as read, or every problem in words. */
export function readGrpcEndpoint(endpoint: Endpoint): GrpcEndpoint | readonly string[] {
  const { source } = openSource('{}', 'endpoint');
  const read = shape.read(endpoint.options, new Place(source));
  const problems = source.problems.map(({ message }) => message);
  const address = readAddress(endpoint.address, read === BAD ? null : read.tls);
  if (typeof address === 'string') problems.push(address);
  if (read === BAD || typeof address === 'string') return problems;
  if (read.service === null && Object.keys(read.methods).length === 0)
    return ['say which method is called: service: shop.v1.Orders, or methods: {crm.order.query: shop.v1.Orders/Query}'];
  return {
    address,
    methods: read.methods,
    service: read.service,
    descriptor: read.descriptor,
    maxMessageBytes: read.max_message,
    keepaliveMs: read.keepalive,
    keepaliveTimeoutMs: read.keepalive_timeout,
    refreshMs: read.refresh,
    fieldNames: read.field_names,
  };
}

const FORMS = 'write one such as grpc://127.0.0.1:50051, grpcs://orders.example.com:443 or dns:///orders.internal:50051';

export function readAddress(text: string, tls: boolean | null): GrpcAddress | string {
  const found = /^(?:(grpcs?|https?):\/\/|dns:(?:\/\/([^/]*)\/)?)?([^/@?#\s\\]+?)\/?$/i.exec(text);
  if (found === null)
    return text === ''
      ? `address is missing: ${FORMS}`
      : `${quote(text.replace(/\/\/[^/@]*@/, '//...@'))} is not the address of a gRPC server: ${FORMS}`;
  const [, scheme, server, target] = found;
  const isTls = scheme === undefined ? tls === true : scheme.toLowerCase().endsWith('s');
  if (scheme !== undefined && tls !== null && tls !== isTls) return `tls: ${String(tls)} contradicts ${scheme}://`;
  const at = hostAndPort(target as string, isTls ? 443 : null);
  if (at === null) return `${quote(text)} has no host and port: ${FORMS}`;
  const nameServer = server === undefined || server === '' ? null : hostAndPort(server, 53);
  // By number only: nobody could be asked for its name.
  if (server !== undefined && server !== '' && (nameServer === null || isIP(nameServer.host) === 0))
    return `${quote(server)} is not the address of a name server, such as 10.0.0.2:53`;
  return { ...at, isTls, nameServer: nameServer === null ? null : `${bracketed(nameServer.host)}:${nameServer.port}` };
}

function hostAndPort(text: string, usualPort: number | null): { readonly host: string; readonly port: number } | null {
  if (!URL.canParse(`http://${text}`)) return null;
  const url = new URL(`http://${text}`);
  const said = /:(\d{1,5})$/.exec(text)?.[1];
  const port = said === undefined ? usualPort : Number(said);
  if (url.hostname === '' || port === null || port < 1 || port > 65_535) return null;
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port };
}

export function bracketed(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
