/**
 * Server reflection: what services there are and how their messages look, so that a client needs no .proto file. Answers
 * from the descriptors of our own protocol; agents' own services are not shown here, since they are asked by capability.
 */
import { inflateSync } from 'node:zlib';
import { Reader, Writer } from '../../base/protobuf-fields.ts';
import { Code } from '../../proto/wire/codes.ts';
import { REACH_DESCRIPTORS } from '../../proto/wire/reach-descriptors.ts';
import type { Exchange } from './grpc-exchange.ts';
import { Status } from './grpc-status.ts';

/** Fields of ServerReflectionRequest. */
const Ask = { host: 1, file: 3, symbol: 4, extension: 5, extensionNumbers: 6, services: 7 } as const;

interface File {
  readonly name: string;
  readonly bytes: Buffer;
  readonly needs: readonly string[];
}

/** Files by name, and by the full name of each thing in them. */
class Descriptors {
  readonly services: string[] = [];
  readonly messages = new Set<string>();
  readonly #files = new Map<string, File>();
  readonly #bySymbol = new Map<string, File>();

  /** @param set a google.protobuf.FileDescriptorSet. */
  constructor(set: Buffer) {
    const reader = new Reader(set);
    while (reader.next()) if (reader.field === 1) this.#addFile(reader.bytes());
  }

  /** The file of that name with everything it needs, itself first. */
  named(name: string): readonly Buffer[] | null {
    const file = this.#files.get(name);
    return file === undefined ? null : this.#withNeeds(file);
  }

  holding(symbol: string): readonly Buffer[] | null {
    const file = this.#bySymbol.get(symbol);
    return file === undefined ? null : this.#withNeeds(file);
  }

  #withNeeds(first: File): readonly Buffer[] {
    const found = new Set<File>([first]);
    for (const file of found)
      for (const name of file.needs) {
        const needed = this.#files.get(name);
        if (needed !== undefined) found.add(needed);
      }
    return [...found].map(({ bytes }) => bytes);
  }

  #addFile(bytes: Buffer): void {
    let name = '';
    let scope = '';
    const needs: string[] = [];
    const parts: [field: number, bytes: Buffer][] = [];
    const reader = new Reader(bytes);
    while (reader.next()) {
      if (reader.field === 1) name = reader.text();
      else if (reader.field === 2) scope = reader.text();
      else if (reader.field === 3) needs.push(reader.text());
      else if (reader.field >= 4 && reader.field <= 6) parts.push([reader.field, reader.bytes()]);
    }
    const file: File = { name, bytes, needs };
    this.#files.set(name, file);
    for (const [field, part] of parts) {
      if (field === 4) this.#addMessage(file, scope, part);
      else if (field === 5) this.#bySymbol.set(`${scope}.${nameIn(part)}`, file);
      else this.#addService(file, scope, part);
    }
  }

  #addMessage(file: File, scope: string, bytes: Buffer): void {
    const full = `${scope}.${nameIn(bytes)}`;
    this.#bySymbol.set(full, file);
    this.messages.add(full);
    const reader = new Reader(bytes);
    while (reader.next()) {
      if (reader.field === 2) this.#bySymbol.set(`${full}.${nameIn(reader.bytes())}`, file);
      else if (reader.field === 3) this.#addMessage(file, full, reader.bytes());
      else if (reader.field === 4) this.#bySymbol.set(`${full}.${nameIn(reader.bytes())}`, file);
    }
  }

  #addService(file: File, scope: string, bytes: Buffer): void {
    const full = `${scope}.${nameIn(bytes)}`;
    this.services.push(full);
    this.#bySymbol.set(full, file);
    const reader = new Reader(bytes);
    while (reader.next()) if (reader.field === 2) this.#bySymbol.set(`${full}.${nameIn(reader.bytes())}`, file);
  }
}

function nameIn(bytes: Buffer): string {
  const reader = new Reader(bytes);
  while (reader.next()) if (reader.field === 1) return reader.text();
  return '';
}

let made: Descriptors | null = null;

/** Read when somebody first asks: most sidecars are never reflected upon. */
function descriptors(): Descriptors {
  return (made ??= new Descriptors(inflateSync(Buffer.from(REACH_DESCRIPTORS, 'base64'))));
}

/** One question, one answer; the stream stays open for more. */
export function reflect(exchange: Exchange, message: Buffer): void {
  const reader = new Reader(message);
  let host = '';
  let what = 0;
  let name = '';
  while (reader.next()) {
    const { field } = reader;
    if (field === Ask.host) host = reader.text();
    else if (field === Ask.extension) {
      what = field;
      name = '';
      reader.bytes();
    } else if (field >= Ask.file && field <= Ask.services) {
      what = field;
      name = reader.text();
    }
  }
  if (reader.failed) {
    exchange.refuse(Code.invalid_request, 'the message is not a well-formed ServerReflectionRequest');
    return;
  }
  const reply = exchange.begin(1_024);
  reply.text(1, host);
  reply.bytes(2, message);
  writeAnswer(reply, what, name);
  exchange.send(reply);
}

function writeAnswer(reply: Writer, what: number, name: string): void {
  const known = descriptors();
  switch (what) {
    case Ask.services: {
      const list = new Writer();
      for (const service of known.services) {
        const one = new Writer(0, 64);
        one.text(1, service);
        list.message(1, one);
      }
      reply.message(6, list);
      return;
    }
    case Ask.file:
    case Ask.symbol: {
      const files = what === Ask.file ? known.named(name) : known.holding(name);
      if (files === null) reply.message(7, error(Status.not_found, `there is no ${JSON.stringify(name.slice(0, 200))} here`));
      else {
        const found = new Writer();
        for (const file of files) found.alwaysBytes(1, file);
        reply.message(4, found);
      }
      return;
    }
    case Ask.extensionNumbers:
      // proto3 has no extensions: a message that is known has none.
      if (known.messages.has(name)) {
        const none = new Writer(0, 64);
        none.text(1, name);
        reply.message(5, none);
      } else reply.message(7, error(Status.not_found, `there is no message ${JSON.stringify(name.slice(0, 200))} here`));
      return;
    case Ask.extension:
      reply.message(7, error(Status.not_found, 'there are no extensions here'));
      return;
    default:
      reply.message(7, error(Status.unimplemented, 'this reflection knows no such question'));
  }
}

function error(code: number, words: string): Writer {
  const writer = new Writer();
  writer.uint(1, code);
  writer.text(2, words);
  return writer;
}
