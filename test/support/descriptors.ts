/** The `.proto` files compiled: what server reflection shows, and how the module that holds it is written. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { deflateSync } from 'node:zlib';
import { Reader, Writer } from '../../base/protobuf-fields.ts';
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
  const files = new Map<string, Buffer>();
  try {
    for (const [file, symbol] of Object.entries(FILES)) {
      const out = join(folder, 'set');
      execFileSync(grpcurl, ['-import-path', repoFile('proto'), '-proto', file, '-protoset-out', out, 'describe', symbol]);
      const set = new Reader(readFileSync(out));
      while (set.next()) {
        if (set.field !== 1) continue;
        const bytes = set.bytes();
        const name = nameOf(bytes);
        // The set is one program's output; the well-known files in it are large for their comments, which stand elsewhere.
        if (!files.has(name)) files.set(name, name.startsWith('google/protobuf/') ? withoutComments(bytes) : bytes);
      }
      rmSync(out);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  const whole = new Writer();
  for (const bytes of files.values()) whole.alwaysBytes(1, bytes);
  return Buffer.from(whole.finish());
}

function nameOf(file: Buffer): string {
  const reader = new Reader(file);
  while (reader.next()) if (reader.field === 1) return reader.text();
  return '';
}

/** Field 9 of a FileDescriptorProto is `source_code_info`. */
function withoutComments(file: Buffer): Buffer {
  const writer = new Writer();
  const reader = new Reader(file);
  while (reader.next()) if (reader.field !== 9) writer.alwaysBytes(reader.field, reader.bytes());
  if (reader.failed) throw new Error('a descriptor has a field that is not bytes');
  return writer.finish();
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
