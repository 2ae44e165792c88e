/**
 * Reads the types of a service: from the server's reflection (v1, then v1alpha), or from a .proto file or a
 * FileDescriptorSet. One reading, nothing kept: `grpc-schemas.ts` decides when. Loads the library: import it by `import()`.
 */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import { GRPC_STATUS_NAMES } from '../../proto/wire/grpc-status.ts';
import { ReflectionRequest, ReflectionResponse } from '../../proto/wire/reach-messages.ts';
import type { Channel } from './grpc-channel.ts';
import { frameOf } from './grpc-frames.ts';
import { headersFor } from './grpc-metadata.ts';
import { Rpc } from './grpc-rpc.ts';
import type { Schema } from './grpc-schema.ts';
import { SchemaFiles } from './grpc-schema-files.ts';
import { endingWords, type Ending } from './grpc-status.ts';

export type SchemaReading = { readonly schema: Schema } | { readonly code: Code; readonly words: string };

const VERSIONS: readonly string[] = ['v1', 'v1alpha'];
const UNIMPLEMENTED = 12;
const REFLECTION_MS = 5_000;
/** Imports of imports of …: each round asks for the files that the last one named. */
const MAX_ROUNDS = 16;
/** Of all answers together: a server that never ends must not fill the memory of whoever asks. */
const MAX_FILES_BYTES = 16_777_216;
const MAX_WORDS_CHARS = 200;

/** What one server tells of one service. */
export class Reflection {
  readonly #channel: Channel;
  readonly #service: string;
  readonly #clock: Clock;
  readonly #metadata: readonly string[];
  #bytes = 0;

  /** @param metadata flat name, value … (a credential). */
  constructor(channel: Channel, service: string, clock: Clock, metadata: readonly string[]) {
    this.#channel = channel;
    this.#service = service;
    this.#clock = clock;
    this.#metadata = metadata;
  }

  async read(): Promise<SchemaReading> {
    for (const version of VERSIONS) {
      const read = await this.#readBy(version);
      if (read !== null) return read;
    }
    return {
      code: Code.internal,
      words: `${this.#channel.host} has no server reflection, so its types are not known: switch it on there, or give its types as descriptor: (a .proto file or a FileDescriptorSet)`,
    };
  }

  /** null = the server does not have this version of it. */
  async #readBy(version: string): Promise<SchemaReading | null> {
    const files = new SchemaFiles();
    let asked: readonly Uint8Array[] = [
      ReflectionRequest.write({ messageRequest: { case: 'fileContainingSymbol', value: this.#service } }),
    ];
    const known = new Set<string>();
    for (let round = 0; round < MAX_ROUNDS && asked.length > 0; round++) {
      const { messages, ending } = await this.#ask(version, asked);
      if (ending.status === UNIMPLEMENTED || ending.httpStatus === 404) return null;
      if (ending.status !== 0)
        return { code: notThere(ending), words: `${this.#channel.host} does not tell its types: ${endingWords(ending, null)}` };
      for (const message of messages) {
        const problem = this.#take(files, message, round === 0);
        if (problem !== '') return { code: Code.internal, words: problem };
      }
      const next = [...files.missing].filter((name) => !known.has(name));
      for (const name of next) known.add(name);
      asked = next.map((name) => ReflectionRequest.write({ messageRequest: { case: 'fileByFilename', value: name } }));
    }
    const schema = files.schema();
    return typeof schema === 'string'
      ? { code: Code.internal, words: `what ${this.#channel.host} tells of its types is not whole: ${schema}` }
      : { schema };
  }

  /** One answer among the files; the words of a problem, or ''. */
  #take(files: SchemaFiles, message: Uint8Array, isFirst: boolean): string {
    const said = ReflectionResponse.read(message)?.messageResponse;
    if (said === undefined) return `what ${this.#channel.host} tells of its types cannot be read`;
    if (said.case === 'fileDescriptorResponse') {
      for (const file of said.value.fileDescriptorProto) {
        const problem = files.add(file);
        if (problem !== '') return `what ${this.#channel.host} tells of its types cannot be read: ${problem}`;
      }
    } else if (said.case === 'errorResponse' && isFirst) {
      const { errorCode, errorMessage } = said.value;
      const words = errorMessage.slice(0, MAX_WORDS_CHARS);
      return `${this.#channel.host} does not know the service ${this.#service} (${GRPC_STATUS_NAMES[errorCode] ?? errorCode}: ${words})`;
    }
    return '';
  }

  #ask(version: string, asked: readonly Uint8Array[]): Promise<{ readonly messages: readonly Buffer[]; readonly ending: Ending }> {
    const path = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;
    return new Promise((resolve) => {
      const messages: Buffer[] = [];
      const giveUp = (code: Code, words: string): void => {
        if (rpc.isSettled) return;
        timer.cancel();
        rpc.stop();
        resolve({ messages: [], ending: this.#givenUp(code, words) });
      };
      const rpc = new Rpc(
        headersFor(this.#channel.scheme, this.#channel.authority, path, REFLECTION_MS, this.#metadata, this.#metadata[0] ?? null),
        Buffer.concat(asked.map(frameOf)),
        this.#channel.host,
        MAX_FILES_BYTES,
        () => this.#clock.now(),
        {
          head: () => {},
          message: (bytes) => {
            this.#bytes += bytes.length;
            if (this.#bytes > MAX_FILES_BYTES)
              giveUp(Code.response_too_large, `its reflection service tells more than ${MAX_FILES_BYTES} bytes`);
            else messages.push(bytes);
            return true;
          },
          ended: (ending) => {
            timer.cancel();
            resolve({ messages, ending });
          },
        },
      );
      const timer = this.#clock.after(REFLECTION_MS, () =>
        giveUp(Code.response_timeout, `no answer from its reflection service within ${REFLECTION_MS} ms`),
      );
      this.#channel.run(rpc);
    });
  }

  #givenUp(code: Code, words: string): Ending {
    return {
      status: -1,
      headers: {},
      httpStatus: 0,
      rst: 0,
      started: 'not_started',
      isLost: false,
      isReused: false,
      host: this.#channel.host,
      fault: { code, words },
    };
  }
}

/** The call itself was not sent: what kept its types from us is a matter of the connection, or of the server. */
function notThere(ending: Ending): Code {
  if (ending.fault !== null) return ending.fault.code;
  return ending.status === 14 || ending.isLost ? Code.connection_lost : Code.bad_response;
}

export async function readDescriptor(path: string): Promise<SchemaReading> {
  const files = new SchemaFiles();
  let problem: string;
  try {
    problem = path.endsWith('.proto') ? await addProto(files, path) : files.addSet(await readFile(path));
  } catch (error) {
    problem = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : (error as Error).message;
  }
  const schema = problem === '' ? files.schema() : problem;
  if (typeof schema !== 'string') return { schema };
  const hint = files.missing.size > 0 ? `; it needs ${[...files.missing].join(', ')} (protoc --include_imports)` : '';
  return { code: Code.internal, words: `the descriptor ${path} cannot be used: ${schema}${hint}` };
}

/** The parser is loaded only when a .proto file is to be read. */
async function addProto(files: SchemaFiles, path: string): Promise<string> {
  const loaded = await import('@grpc/proto-loader');
  // In the bundle the names of a CommonJS module stand under `default` only.
  const loader = 'load' in loaded ? loaded : (loaded as unknown as { default: typeof loaded }).default;
  const definition = await loader.load(path, { keepCase: true });
  for (const one of Object.values(definition)) {
    const described = 'fileDescriptorProtos' in one && Array.isArray(one.fileDescriptorProtos) ? one.fileDescriptorProtos : [];
    for (const file of described) {
      const problem = files.add(file);
      if (problem !== '') return problem;
    }
  }
  return '';
}
