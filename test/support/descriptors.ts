/** The `.proto` files compiled: what server reflection shows, and how the module that holds it is written. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateSync } from 'node:zlib';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { type FileDescriptorProto, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { repoFile } from './paths.ts';

export const DESCRIPTORS_FILE = repoFile('proto', 'wire', 'reach-descriptors.ts');

/** One symbol of each file that somebody may ask for. */
const FILES: Readonly<Record<string, string>> = {
  'reach.proto': 'agentreach.v1.Reach',
  'google/rpc/status.proto': 'google.rpc.Status',
  'google/rpc/error_details.proto': 'google.rpc.ErrorInfo',
  'grpc/health/v1/health.proto': 'grpc.health.v1.Health',
  'grpc/reflection/v1/reflection.proto': 'grpc.reflection.v1.ServerReflection',
};
export const PROTO_FILES: readonly string[] = Object.keys(FILES);

/** A google.protobuf.FileDescriptorSet with every file once, those needed by others first. */
export function compiledDescriptors(grpcurl: string): Buffer {
  const folder = mkdtempSync(join(tmpdir(), 'reach-descriptors-'));
  const files = new Map<string, FileDescriptorProto>();
  try {
    for (const [file, symbol] of Object.entries(FILES)) {
      const out = join(folder, 'set');
      execFileSync(grpcurl, ['-import-path', repoFile('proto'), '-proto', file, '-protoset-out', out, 'describe', symbol]);
      for (const described of fromBinary(FileDescriptorSetSchema, readFileSync(out)).file) {
        // The well-known files are large for their comments, which stand elsewhere.
        if (described.name.startsWith('google/protobuf/')) delete described.sourceCodeInfo;
        if (!files.has(described.name)) files.set(described.name, described);
      }
      rmSync(out);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  return Buffer.from(toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file: [...files.values()] })));
}

const LINE_CHARS = 120;

/** The text of `proto/wire/reach-descriptors.ts`. */
export function descriptorsModule(set: Buffer): string {
  const lines = deflateSync(set, { level: 9 })
    .toString('base64')
    .match(new RegExp(`.{1,${LINE_CHARS}}`, 'g')) as string[];
  return `/**
 * The protocol of the gRPC port as a google.protobuf.FileDescriptorSet, deflated, in base64: what server reflection shows.
 * Generated from the \`.proto\` files by \`make descriptors\`, since a program in one file has none beside it; a test holds
 * the two against each other.
 */
export const REACH_DESCRIPTORS = \`
${lines.join('\n')}
\`;
`;
}
