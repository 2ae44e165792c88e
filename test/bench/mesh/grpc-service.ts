/** A gRPC service whose messages are bytes as they are: what is compared is the protocol, not protobuf. */
import type { MethodDefinition, ServiceDefinition } from '@grpc/grpc-js';
import { STREAM_PATH, UNARY_PATH } from './hop.ts';

const asIs = (bytes: Buffer): Buffer => bytes;

function method(path: string, responseStream: boolean): MethodDefinition<Buffer, Buffer> {
  return {
    path,
    requestStream: false,
    responseStream,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  };
}

export const SERVICE: ServiceDefinition = { invoke: method(UNARY_PATH, false), stream: method(STREAM_PATH, true) };
