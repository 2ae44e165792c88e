/**
 * Server reflection: what services there are and how their messages look, so that a client needs no .proto file. Answers
 * from the descriptors of our own protocol; agents' own services are not shown here, since they are asked by capability.
 */
import { type DescMessage, toBinary } from '@bufbuild/protobuf';
import { type FileDescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import { Code } from '../../proto/wire/codes.ts';
import { reachFiles, reachTypes, ReflectionRequest, ReflectionResponse } from '../../proto/wire/reach-messages.ts';
import type { Exchange } from './grpc-exchange.ts';
import { Status } from './grpc-status.ts';

type Answer = ReflectionResponse['messageResponse'];

const MAX_NAME_CHARS = 200;

/** One question, one answer; the stream stays open for more. */
export function reflect(exchange: Exchange, message: Buffer): void {
  const request = ReflectionRequest.read(message);
  if (request === null) {
    exchange.refuse(Code.invalid_request, 'the message is not a well-formed ServerReflectionRequest');
    return;
  }
  const { host, messageRequest } = request;
  exchange.send(ReflectionResponse.write({ validHost: host, originalRequest: request, messageResponse: answerTo(messageRequest) }));
}

function answerTo(asked: ReflectionRequest['messageRequest']): Answer {
  switch (asked.case) {
    case 'listServices':
      return { case: 'listServicesResponse', value: { service: services().map((name) => ({ name })) } };
    case 'fileByFilename':
      return filesFrom(asked.value, asked.value);
    case 'fileContainingSymbol':
      return filesFrom(fileHolding(asked.value), asked.value);
    case 'allExtensionNumbersOfType':
      // proto3 has no extensions: a message that is known has none.
      return reachTypes.getMessage(asked.value) === undefined
        ? notFound(`there is no message ${shown(asked.value)} here`)
        : { case: 'allExtensionNumbersResponse', value: { baseTypeName: asked.value, extensionNumber: [] } };
    case 'fileContainingExtension':
      return notFound('there are no extensions here');
    default:
      return {
        case: 'errorResponse',
        value: { errorCode: Status.unimplemented, errorMessage: 'this reflection knows no such question' },
      };
  }
}

function services(): string[] {
  return [...reachTypes].filter(({ kind }) => kind === 'service').map(({ typeName }) => typeName);
}

/** The file of that name with everything it needs, itself first. */
function filesFrom(name: string | null, asked: string): Answer {
  const first = name === null ? undefined : fileNamed(name);
  if (first === undefined) return notFound(`there is no ${shown(asked)} here`);
  const found = new Set<FileDescriptorProto>([first]);
  for (const file of found) {
    for (const needed of file.dependency) {
      const other = fileNamed(needed);
      if (other !== undefined) found.add(other);
    }
  }
  const fileDescriptorProto = [...found].map((file) => toBinary(FileDescriptorProtoSchema, file));
  return { case: 'fileDescriptorResponse', value: { fileDescriptorProto } };
}

function fileNamed(name: string): FileDescriptorProto | undefined {
  return reachFiles.file.find((file) => file.name === name);
}

/** The name of the file in which something stands: a type, a service, or what is directly in one. */
function fileHolding(symbol: string): string | null {
  const type = reachTypes.get(symbol);
  if (type !== undefined) return 'file' in type ? type.file.proto.name : null;
  const dot = symbol.lastIndexOf('.');
  const around = dot < 0 ? undefined : reachTypes.get(symbol.slice(0, dot));
  const name = symbol.slice(dot + 1);
  if (around?.kind === 'service') return around.methods.some((method) => method.name === name) ? around.file.proto.name : null;
  return around?.kind === 'message' && hasMember(around, name) ? around.file.proto.name : null;
}

function hasMember(message: DescMessage, name: string): boolean {
  return message.fields.some((field) => field.name === name) || message.oneofs.some((oneof) => oneof.name === name);
}

function notFound(errorMessage: string): Answer {
  return { case: 'errorResponse', value: { errorCode: Status.not_found, errorMessage } };
}

function shown(name: string): string {
  return JSON.stringify(name.slice(0, MAX_NAME_CHARS));
}
