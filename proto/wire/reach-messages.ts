/**
 * The messages of our own `.proto` files, to and from bytes by @bufbuild/protobuf, with the types that the files give
 * their fields. What is read came from somebody else: bytes that are no such message are null. Import it only where gRPC is
 * spoken, and there by `import()` from what is loaded in every sidecar: the library costs memory.
 */
import { inflateSync } from 'node:zlib';
import { create, createFileRegistry, type DescMessage, type FileRegistry, fromBinary, type Message, toBinary } from '@bufbuild/protobuf';
import { type Any, type FileDescriptorSet, FileDescriptorSetSchema, type Value } from '@bufbuild/protobuf/wkt';
import { REACH_DESCRIPTORS } from './reach-descriptors.ts';

export const reachFiles: FileDescriptorSet = fromBinary(FileDescriptorSetSchema, inflateSync(Buffer.from(REACH_DESCRIPTORS, 'base64')));
export const reachTypes: FileRegistry = createFileRegistry(reachFiles);

/** Nobody looks at what a message holds beside its fields. */
const PLAIN = Object.freeze({ readUnknownFields: false });

/** One type of message; `T` is what its fields hold. */
export class MessageType<T extends object> {
  readonly #type: DescMessage;

  constructor(name: string) {
    const type = reachTypes.getMessage(name);
    if (type === undefined) throw new Error(`there is no message ${name} in the .proto files: make descriptors`);
    this.#type = type;
  }

  /** null = the bytes are no such message. Bytes in it are views, not copies. */
  read(bytes: Uint8Array): T | null {
    try {
      return fromBinary(this.#type, bytes, PLAIN) as Message as T;
    } catch {
      return null;
    }
  }

  /** Fields that are left out hold their default. */
  write(fields: Partial<T>): Uint8Array {
    return toBinary(this.#type, create(this.#type, fields as Record<string, unknown>));
  }
}

/** The one of several fields that is set. */
type OneOf<Fields> =
  | { readonly [K in keyof Fields]: { readonly case: K; readonly value: Fields[K] } }[keyof Fields]
  | { readonly case: undefined; readonly value?: undefined };

export interface InvokeRequest {
  readonly capability: string;
  readonly input: OneOf<{ payload: Uint8Array; json: string; params: Value }>;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Attempt {
  readonly provider: string;
  readonly version: string;
  readonly atMs: number;
  readonly elapsedMs: number;
  readonly code: number;
  readonly status: number;
  readonly started: string;
  readonly detail: string;
}

export interface Decision {
  readonly atMs: number;
  readonly stage: string;
  readonly reason: string;
  readonly code: number;
  readonly words: string;
}

export interface InvokeReply {
  readonly status: number;
  readonly output: OneOf<{ data: Uint8Array; json: string; result: Value }>;
  readonly contentType: string;
  readonly elapsedMs: number;
  readonly definitelySuccess: boolean;
  readonly degraded: boolean;
  readonly provider: string;
  readonly version: string;
  readonly traceId: string;
  readonly attempts: readonly Attempt[];
  readonly cause: string;
  readonly decision: readonly Decision[];
  readonly replay: boolean;
}

export interface Failure {
  readonly code: number;
  readonly name: string;
  readonly retryable: boolean;
  readonly ambiguous: boolean;
  readonly detail: string;
  readonly status: number;
  readonly contentType: string;
  readonly answer: OneOf<{ text: string; data: Uint8Array }>;
  readonly answerLeftOut: boolean;
  readonly elapsedMs: number;
  readonly provider: string;
  readonly version: string;
  readonly traceId: string;
  readonly attempts: readonly Attempt[];
  readonly attemptsLeftOut: boolean;
  readonly cause: string;
}

export interface StreamReply {
  readonly head: {
    readonly status: number;
    readonly contentType: string;
    readonly provider: string;
    readonly version: string;
    readonly traceId: string;
  };
  readonly data: Uint8Array;
  readonly end: Partial<InvokeReply>;
  readonly text: string;
}

interface ErrorResponse {
  readonly errorCode: number;
  readonly errorMessage: string;
}

export interface ReflectionRequest {
  readonly host: string;
  readonly messageRequest: OneOf<{
    fileByFilename: string;
    fileContainingSymbol: string;
    fileContainingExtension: { readonly containingType: string; readonly extensionNumber: number };
    allExtensionNumbersOfType: string;
    listServices: string;
  }>;
}

export interface ReflectionResponse {
  readonly validHost: string;
  readonly originalRequest: ReflectionRequest;
  readonly messageResponse: OneOf<{
    fileDescriptorResponse: { readonly fileDescriptorProto: readonly Uint8Array[] };
    allExtensionNumbersResponse: { readonly baseTypeName: string; readonly extensionNumber: readonly number[] };
    listServicesResponse: { readonly service: readonly { readonly name: string }[] };
    errorResponse: ErrorResponse;
  }>;
}

export interface CastReply {
  readonly taskId: string;
  readonly durable: string;
  readonly powerId: string;
  readonly state: string;
  readonly capability: string;
  readonly version: string;
  readonly lane: string;
  readonly rule: string;
  readonly traceId: string;
}

export const InvokeRequest = new MessageType<InvokeRequest>('agentreach.v1.InvokeRequest');
export const InvokeReply = new MessageType<InvokeReply>('agentreach.v1.InvokeReply');
export const Attempt = new MessageType<Attempt>('agentreach.v1.Attempt');
export const Failure = new MessageType<Failure>('agentreach.v1.Failure');
export const CastRequest = new MessageType<InvokeRequest>('agentreach.v1.CastRequest');
export const CastReply = new MessageType<CastReply>('agentreach.v1.CastReply');
export const StreamReply = new MessageType<StreamReply>('agentreach.v1.StreamReply');
export const ChannelMessage = new MessageType<{ readonly text: string; readonly binary: Uint8Array }>('agentreach.v1.ChannelMessage');
export const ExplainReply = new MessageType<{ readonly explanation: object }>('agentreach.v1.ExplainReply');
export const HealthRequest = new MessageType<{ readonly service: string }>('grpc.health.v1.HealthCheckRequest');
export const HealthResponse = new MessageType<{ readonly status: number }>('grpc.health.v1.HealthCheckResponse');
export const ReflectionRequest = new MessageType<ReflectionRequest>('grpc.reflection.v1.ServerReflectionRequest');
export const ReflectionResponse = new MessageType<ReflectionResponse>('grpc.reflection.v1.ServerReflectionResponse');
export const ErrorInfo = new MessageType<{
  readonly reason: string;
  readonly domain: string;
  readonly metadata: Readonly<Record<string, string>>;
}>('google.rpc.ErrorInfo');
export const RetryInfo = new MessageType<{ readonly retryDelay: { readonly seconds: bigint; readonly nanos: number } }>(
  'google.rpc.RetryInfo',
);
export const RpcStatus = new MessageType<{
  readonly code: number;
  readonly message: string;
  readonly details: readonly Pick<Any, 'typeUrl' | 'value'>[];
}>('google.rpc.Status');
