/**
 * Where the types of a server's methods come from: its own reflection service (v1, then v1alpha), or a file. Read once, at
 * the first call, and kept; reflection is asked again after a reconnect (another release may run there now) and when the
 * server does not know the method. While a new reading fails, the last good one serves.
 */
import { readFile } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import { Schema } from '../../base/protobuf-schema.ts';
import { rawFields, WireWriter } from '../../base/protobuf-wire.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Channel } from './grpc-channel.ts';
import { frameOf } from './grpc-frames.ts';
import { headersFor } from './grpc-metadata.ts';
import { Rpc } from './grpc-rpc.ts';
import { endingWords, type Ending, STATUS_NAMES } from './grpc-status.ts';

type SchemaReading = { readonly schema: Schema } | { readonly code: Code; readonly words: string };

const VERSIONS: readonly string[] = ['v1', 'v1alpha'];
const UNIMPLEMENTED = 12;
const REFLECTION_MS = 5_000;
/** Imports of imports of …: each round asks for the files that the last one named. */
const MAX_ROUNDS = 16;
const MAX_FILES_BYTES = 16_777_216;
/** A reading that is younger is not doubted. */
const FRESH_MS = 2_000;

export class Schemas {
  readonly #channel: Channel;
  readonly #service: string;
  readonly #descriptor: string | null;
  readonly #clock: Clock;
  readonly #metadata: () => readonly string[];
  #schema: Schema | null = null;
  #readAt = 0;
  #epoch = 0;
  #isDoubted = false;
  #reading: Promise<SchemaReading> | null = null;

  /** @param metadata flat name, value … sent to the reflection service too (a credential). */
  constructor(channel: Channel, service: string, descriptor: string | null, clock: Clock, metadata: () => readonly string[]) {
    this.#channel = channel;
    this.#service = service;
    this.#descriptor = descriptor;
    this.#clock = clock;
    this.#metadata = metadata;
  }

  /** Without waiting; null when it has to be read first. */
  get current(): Schema | null {
    return this.#isDue ? null : this.#schema;
  }

  /** The last reading, however old. */
  get last(): Schema | null {
    return this.#schema;
  }

  read(): Promise<SchemaReading> {
    this.#reading ??= this.#readNow();
    return this.#reading;
  }

  /** Something did not fit: true when reading it again may help. */
  doubt(): boolean {
    if (this.#schema === null || this.#clock.now() - this.#readAt < FRESH_MS) return false;
    this.#isDoubted = true;
    return true;
  }

  get #isDue(): boolean {
    if (this.#schema === null || this.#isDoubted) return true;
    return this.#descriptor === null && this.#epoch !== this.#channel.epoch;
  }

  async #readNow(): Promise<SchemaReading> {
    const read = this.#descriptor === null ? await this.#reflect() : await readDescriptor(this.#descriptor);
    this.#reading = null;
    this.#isDoubted = false;
    this.#epoch = this.#channel.epoch;
    this.#readAt = this.#clock.now();
    if ('schema' in read) this.#schema = read.schema;
    else if (this.#schema !== null) return { schema: this.#schema };
    return read;
  }

  async #reflect(): Promise<SchemaReading> {
    for (const version of VERSIONS) {
      const read = await this.#reflectBy(version);
      if (read !== null) return read;
    }
    return {
      code: Code.internal,
      words: `${this.#channel.host} has no server reflection, so its types are not known: switch it on there, or give its types as descriptor: (a .proto file or a FileDescriptorSet)`,
    };
  }

  /** null = the server does not have this version of it. */
  async #reflectBy(version: string): Promise<SchemaReading | null> {
    const schema = new Schema();
    let asked: readonly Buffer[] = [request(4, this.#service)];
    const known = new Set<string>();
    for (let round = 0; round < MAX_ROUNDS && asked.length > 0; round++) {
      const { messages, ending } = await this.#ask(version, asked);
      if (ending.status === UNIMPLEMENTED || ending.httpStatus === 404) return null;
      if (ending.status !== 0)
        return { code: notThere(ending), words: `${this.#channel.host} does not tell its types: ${endingWords(ending)}` };
      for (const message of messages) {
        const problem = this.#take(schema, message, round === 0);
        if (problem !== '') return { code: Code.internal, words: problem };
      }
      const next = [...schema.missing].filter((name) => !known.has(name));
      for (const name of next) known.add(name);
      asked = next.map((name) => request(3, name));
    }
    const problem = schema.link();
    return problem === ''
      ? { schema }
      : { code: Code.internal, words: `what ${this.#channel.host} tells of its types is not whole: ${problem}` };
  }

  /** One answer of the reflection service into the schema; the words of a problem, or ''. */
  #take(schema: Schema, message: Buffer, isFirst: boolean): string {
    const raw = rawFields(message);
    if (raw === null) return `what ${this.#channel.host} tells of its types cannot be read`;
    for (const { number, part } of raw) {
      if (number === 4) {
        for (const file of rawFields(part) ?? []) {
          const problem = file.number === 1 ? schema.addFile(file.part) : '';
          if (problem !== '') return `what ${this.#channel.host} tells of its types cannot be read: ${problem}`;
        }
      } else if (number === 7 && isFirst) {
        const error = rawFields(part) ?? [];
        const code = Number(error.find((one) => one.number === 1)?.value ?? 2n);
        const words =
          error
            .find((one) => one.number === 2)
            ?.part.toString('utf8')
            .slice(0, 200) ?? '';
        return `${this.#channel.host} does not know the service ${this.#service} (${STATUS_NAMES[code] ?? code}: ${words})`;
      }
    }
    return '';
  }

  #ask(version: string, asked: readonly Buffer[]): Promise<{ readonly messages: readonly Buffer[]; readonly ending: Ending }> {
    const path = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;
    return new Promise((resolve) => {
      const messages: Buffer[] = [];
      const rpc = new Rpc(
        headersFor(this.#channel.scheme, this.#channel.authority, path, REFLECTION_MS, this.#metadata()),
        Buffer.concat(asked.map(frameOf)),
        this.#channel.host,
        MAX_FILES_BYTES,
        () => this.#clock.now(),
        {
          head: () => {},
          message: (bytes) => {
            messages.push(bytes);
            return true;
          },
          ended: (ending) => {
            timer.cancel();
            resolve({ messages, ending });
          },
        },
      );
      const timer = this.#clock.after(REFLECTION_MS, () => {
        if (rpc.isSettled) return;
        rpc.stop();
        const fault = { code: Code.response_timeout, words: `no answer from its reflection service within ${REFLECTION_MS} ms` };
        resolve({
          messages: [],
          ending: {
            status: -1,
            headers: {},
            httpStatus: 0,
            rst: 0,
            started: 'not_started',
            isLost: false,
            isReused: false,
            host: this.#channel.host,
            fault,
          },
        });
      });
      this.#channel.run(rpc);
    });
  }
}

/** The call itself was not sent: what kept its types from us is a matter of the connection, or of the server. */
function notThere(ending: Ending): Code {
  if (ending.fault !== null) return ending.fault.code;
  return ending.status === 14 || ending.isLost ? Code.connection_lost : Code.bad_response;
}

function request(field: number, value: string): Buffer {
  const out = new WireWriter();
  out.tag(field, 2);
  out.text(value);
  return out.finish();
}

async function readDescriptor(path: string): Promise<SchemaReading> {
  const schema = new Schema();
  let problem: string;
  try {
    problem = path.endsWith('.proto') ? await addProto(schema, path) : schema.addSet(await readFile(path));
  } catch (error) {
    problem = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : (error as Error).message;
  }
  if (problem === '') problem = schema.link();
  if (problem === '') return { schema };
  const hint = schema.missing.size > 0 ? `; it needs ${[...schema.missing].join(', ')} (protoc --include_imports)` : '';
  return { code: Code.internal, words: `the descriptor ${path} cannot be used: ${problem}${hint}` };
}

/** The parser is loaded only when a .proto file is to be read. */
async function addProto(schema: Schema, path: string): Promise<string> {
  const loaded = await import('@grpc/proto-loader');
  // In the bundle the names of a CommonJS module stand under `default` only.
  const loader = 'load' in loaded ? loaded : (loaded as unknown as { default: typeof loaded }).default;
  const definition = await loader.load(path, { keepCase: true });
  for (const one of Object.values(definition)) {
    const files = 'fileDescriptorProtos' in one && Array.isArray(one.fileDescriptorProtos) ? one.fileDescriptorProtos : [];
    for (const file of files) {
      const problem = schema.addFile(Buffer.from(file));
      if (problem !== '') return problem;
    }
  }
  return '';
}
