/**
 * Clients of the gRPC port for tests: one that a program would use (grpc-js with `proto/reach.proto`), and one that takes
 * grpcurl's arguments, for machines where the real one cannot be had.
 */
import { type Client, credentials, loadPackageDefinition, Metadata, type ServiceError, type StatusObject } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { PROTO_FILES } from './descriptors.ts';
import { repoFile } from './paths.ts';

const LOADED = loadSync([...PROTO_FILES], {
  includeDirs: [repoFile('proto')],
  keepCase: true,
  longs: Number,
  enums: String,
  defaults: true,
  oneofs: true,
});
const PACKAGES = loadPackageDefinition(LOADED) as unknown as {
  readonly agentreach: { readonly v1: { readonly Reach: new (address: string, by: unknown, options?: object) => Client } };
};

/** What one RPC came to. */
export interface Outcome {
  /** gRPC status. */
  readonly status: number;
  readonly message: string;
  /** Every message that came, as plain objects with the names of the .proto file. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
  readonly replies: any[];
  /** Of the trailers, one value each; those that end in `-bin` left out. */
  readonly trailers: Readonly<Record<string, string>>;
  /** `grpc-status-details-bin`, read: by the short name of the type. */
  // biome-ignore lint/suspicious/noExplicitAny: as above
  readonly details: Readonly<Record<string, any>>;
}

export interface GrpcAsking {
  readonly token?: string | null;
  readonly metadata?: Readonly<Record<string, string | readonly string[]>>;
  /** From now; sent as `grpc-timeout`. */
  readonly deadlineMs?: number;
  /** Called with each message of a stream; true = stop reading (the RPC is cancelled). */
  readonly onReply?: (reply: unknown, cancel: () => void) => void;
  /** Called once with the way to cancel. */
  readonly onStart?: (cancel: () => void) => void;
}

interface Rpc {
  cancel(): void;
  on(event: string, listener: (value: never) => void): unknown;
}

/** One connection. */
export class GrpcClient {
  readonly #client: Client;

  /** @param address `host:port` */
  constructor(address: string, options: object = {}) {
    this.#client = new PACKAGES.agentreach.v1.Reach(address, credentials.createInsecure(), {
      // Each client has a connection of its own, which closes with it.
      'grpc.use_local_subchannel_pool': 1,
      'grpc.max_receive_message_length': -1,
      ...options,
    });
  }

  close(): void {
    this.#client.close();
  }

  invoke(request: object, asking: GrpcAsking = {}): Promise<Outcome> {
    return this.unary('/agentreach.v1.Reach/Invoke', request, asking);
  }

  stream(request: object, asking: GrpcAsking = {}): Promise<Outcome> {
    return this.serverStream('/agentreach.v1.Reach/InvokeStream', request, asking);
  }

  unary(path: string, request: object, asking: GrpcAsking = {}): Promise<Outcome> {
    const { serialize, deserialize } = methodAt(path);
    return new Promise((done) => {
      const replies: unknown[] = [];
      let error: ServiceError | null = null;
      const rpc = this.#client.makeUnaryRequest(
        path,
        serialize,
        deserialize,
        request,
        metadataOf(asking),
        optionsOf(asking),
        (problem, reply) => {
          error = problem;
          if (reply !== undefined) replies.push(reply);
        },
      );
      rpc.on('status', (status: StatusObject) => setImmediate(() => done(outcome(error ?? status, replies))));
      asking.onStart?.(() => rpc.cancel());
    });
  }

  serverStream(path: string, request: object, asking: GrpcAsking = {}): Promise<Outcome> {
    const { serialize, deserialize } = methodAt(path);
    const rpc = this.#client.makeServerStreamRequest(path, serialize, deserialize, request, metadataOf(asking), optionsOf(asking));
    return collected(rpc as unknown as Rpc, asking);
  }

  /** Says what it wants when it wants; `hear` gets each message. */
  talk(path: string, asking: GrpcAsking, hear: (message: unknown) => void): Talk {
    const { serialize, deserialize } = methodAt(path);
    const rpc = this.#client.makeBidiStreamRequest(path, serialize, deserialize, metadataOf(asking), optionsOf(asking));
    return {
      outcome: collected(rpc as unknown as Rpc, { ...asking, onReply: hear }),
      write: (message) => void rpc.write(message),
      end: () => void rpc.end(),
      cancel: () => rpc.cancel(),
      pause: () => void rpc.pause(),
      resume: () => void rpc.resume(),
    };
  }

  /** Sends the messages, says that it has said all, and takes what comes. */
  bidi(path: string, messages: readonly object[], asking: GrpcAsking = {}): Promise<Outcome> {
    const { serialize, deserialize } = methodAt(path);
    const rpc = this.#client.makeBidiStreamRequest(path, serialize, deserialize, metadataOf(asking), optionsOf(asking));
    const came = collected(rpc as unknown as Rpc, asking);
    for (const message of messages) rpc.write(message);
    rpc.end();
    return came;
  }
}

/** A bidirectional stream that is held open. */
export interface Talk {
  readonly outcome: Promise<Outcome>;
  write(message: object): void;
  /** All is said. */
  end(): void;
  cancel(): void;
  /** Nothing is read until `resume`. */
  pause(): void;
  resume(): void;
}

/** What a test may do with a stream while it comes, and what it came to. */
function collected(rpc: Rpc, asking: GrpcAsking): Promise<Outcome> {
  const replies: unknown[] = [];
  return new Promise((done) => {
    rpc.on('data', (reply: unknown) => {
      replies.push(reply);
      asking.onReply?.(reply, () => rpc.cancel());
    });
    rpc.on('error', () => undefined);
    rpc.on('status', (status: StatusObject) => setImmediate(() => done(outcome(status, replies))));
    asking.onStart?.(() => rpc.cancel());
  });
}

interface Method {
  readonly path: string;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
  readonly requestSerialize: (value: object) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => object;
  readonly responseType: { readonly type: { readonly field: readonly { readonly name: string; readonly number: number }[] } };
}

/** `/service/Method`; v1alpha of reflection is v1 by another name. */
function methodAt(path: string): { serialize: (value: object) => Buffer; deserialize: (bytes: Buffer) => object; method: Method } {
  const [, service = '', name = ''] = path.replace('.v1alpha.', '.v1.').split('/');
  const method = (LOADED[service] as unknown as Record<string, Method> | undefined)?.[name];
  if (method === undefined) throw new Error(`there is no method ${path} in the .proto files`);
  return { serialize: method.requestSerialize, deserialize: method.responseDeserialize, method };
}

function metadataOf(asking: GrpcAsking): Metadata {
  const metadata = new Metadata();
  if (asking.token !== null && asking.token !== undefined) metadata.set('authorization', `Bearer ${asking.token}`);
  for (const [name, value] of Object.entries(asking.metadata ?? {}))
    for (const one of typeof value === 'string' ? [value] : value)
      metadata.add(name, name.endsWith('-bin') ? Buffer.from(one, 'base64') : one);
  return metadata;
}

function optionsOf(asking: GrpcAsking): { deadline?: number } {
  return asking.deadlineMs === undefined ? {} : { deadline: Date.now() + asking.deadlineMs };
}

function outcome(status: { code: number; details: string; metadata: Metadata }, replies: unknown[]): Outcome {
  const trailers: Record<string, string> = {};
  for (const [name, value] of Object.entries(status.metadata.getMap())) if (typeof value === 'string') trailers[name] = value;
  return {
    status: status.code,
    message: status.details,
    replies,
    trailers,
    details: detailsIn(status.metadata.get('grpc-status-details-bin')[0] as Buffer | undefined),
  };
}

/** By the last word of each type. */
function detailsIn(bytes: Buffer | undefined): Record<string, unknown> {
  if (bytes === undefined) return {};
  const found: Record<string, unknown> = {};
  const status = read('google.rpc.Status', bytes) as { details: { type_url: string; value: Buffer }[] };
  found['Status'] = status;
  for (const { type_url: url, value } of status.details) {
    const type = url.slice(url.indexOf('/') + 1);
    found[type.split('.').at(-1) as string] = read(type, value);
  }
  return found;
}

function read(type: string, bytes: Buffer): object {
  return (LOADED[type] as unknown as { deserialize(bytes: Buffer): object }).deserialize(bytes);
}

/** A JSON value as google.protobuf.Value, and back. */
export function toValue(json: unknown): object {
  if (json === null) return { nullValue: 0 };
  if (typeof json === 'number') return { numberValue: json };
  if (typeof json === 'string') return { stringValue: json };
  if (typeof json === 'boolean') return { boolValue: json };
  if (Array.isArray(json)) return { listValue: { values: json.map(toValue) } };
  return { structValue: { fields: Object.fromEntries(Object.entries(json as object).map(([key, each]) => [key, toValue(each)])) } };
}

export function fromValue(value: unknown): unknown {
  const one = value as Record<string, unknown> | null;
  if (one === null || one === undefined) return undefined;
  switch (one['kind']) {
    case 'numberValue':
    case 'stringValue':
    case 'boolValue':
      return one[one['kind']];
    case 'listValue':
      return ((one['listValue'] as { values?: unknown[] }).values ?? []).map(fromValue);
    case 'structValue':
      return fromStruct(one['structValue']);
    default:
      return null;
  }
}

export function fromStruct(struct: unknown): Record<string, unknown> {
  const { fields } = struct as { fields?: Record<string, unknown> };
  return Object.fromEntries(Object.entries(fields ?? {}).map(([key, each]) => [key, fromValue(each)]));
}

/** The exit code and output that grpcurl would have: for `-plaintext [-H …] [-max-time s] -d JSON address service/Method`. */
export async function likeGrpcurl(args: readonly string[]): Promise<{ readonly code: number; readonly out: string; readonly err: string }> {
  const metadata: Record<string, string> = {};
  let data = '{}';
  let deadlineMs: number | undefined;
  const rest: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] as string;
    if (arg === '-plaintext') continue;
    if (arg === '-H') {
      const header = args[++i] as string;
      const colon = header.indexOf(':');
      metadata[header.slice(0, colon).trim().toLowerCase()] = header.slice(colon + 1).trim();
    } else if (arg === '-d') data = args[++i] as string;
    else if (arg === '-max-time') deadlineMs = Number(args[++i]) * 1_000;
    else if (arg.startsWith('-')) throw new Error(`this stand-in for grpcurl does not know ${arg}`);
    else rest.push(arg);
  }
  const [address = '', target = ''] = rest;
  const client = new GrpcClient(address);
  try {
    const path = `/${target}`;
    const asking: GrpcAsking = { metadata, ...(deadlineMs === undefined ? {} : { deadlineMs }) };
    const request = requestOf(JSON.parse(data) as Record<string, unknown>);
    const { method } = methodAt(path);
    const fields = [...method.responseType.type.field].sort((a, b) => a.number - b.number).map(({ name }) => underscored(name));
    const came = method.responseStream ? await client.serverStream(path, request, asking) : await client.unary(path, request, asking);
    const out = came.replies.map((reply) => `${JSON.stringify(shown(inOrder(reply, fields)), null, 2)}\n`).join('');
    if (came.status === 0) return { code: 0, out, err: '' };
    return { code: 64 + came.status, out, err: `ERROR:\n  Code: ${NAMES[came.status] ?? came.status}\n  Message: ${came.message}\n` };
  } finally {
    client.close();
  }
}

const NAMES: readonly string[] =
  'OK Canceled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists PermissionDenied ResourceExhausted FailedPrecondition Aborted OutOfRange Unimplemented Internal Unavailable DataLoss Unauthenticated'.split(
    ' ',
  );

/** The JSON of a request: values as JSON, names in either spelling. */
function requestOf(json: Record<string, unknown>): object {
  const request: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(json))
    request[underscored(key)] = key === 'params' ? toValue(value) : key === 'payload' ? Buffer.from(value as string, 'base64') : value;
  return request;
}

function underscored(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** By the numbers of the fields, as grpcurl prints them. */
function inOrder(reply: object, fields: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(fields.filter((name) => name in reply).map((name) => [name, (reply as Record<string, unknown>)[name]]));
}

/** As protobuf's JSON has it: names in camelCase, bytes in base64, defaults left out. */
function shown(value: unknown, key = ''): unknown {
  if (Buffer.isBuffer(value)) return value.toString('base64');
  if (key === 'result') return fromValue(value);
  if (key === 'explanation') return fromStruct(value);
  if (Array.isArray(value)) return value.map((each) => shown(each));
  if (typeof value !== 'object' || value === null) return value;
  const out: Record<string, unknown> = {};
  for (const [name, each] of Object.entries(value)) {
    const isDefault = each === '' || each === 0 || each === false || each === null || (Array.isArray(each) && each.length === 0);
    const isOneOf = name === 'output' || name === 'kind' || name === 'answer' || name === 'input';
    if (!isDefault && !isOneOf && !(Buffer.isBuffer(each) && each.length === 0))
      out[name.replace(/_([a-z])/g, (_match, letter: string) => letter.toUpperCase())] = shown(each, name);
  }
  return out;
}
