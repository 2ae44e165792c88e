/**
 * Files of descriptors (`FileDescriptorProto`), as reflection, `protoc` and the .proto parser give them, put together into a
 * `Schema`. The library wants every file after those it needs and every type by its full name; files come here in any order,
 * twice, and from a parser that leaves names relative and imports out. What is imported and never used may be missing.
 * The well-known types are the library's own.
 */
import { create, createFileRegistry, fromBinary } from '@bufbuild/protobuf';
import { protoCamelCase } from '@bufbuild/protobuf/reflect';
import {
  type DescriptorProto,
  type FieldDescriptorProto,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
  file_google_protobuf_any,
  file_google_protobuf_api,
  file_google_protobuf_descriptor,
  file_google_protobuf_duration,
  file_google_protobuf_empty,
  file_google_protobuf_field_mask,
  file_google_protobuf_source_context,
  file_google_protobuf_struct,
  file_google_protobuf_timestamp,
  file_google_protobuf_type,
  file_google_protobuf_wrappers,
} from '@bufbuild/protobuf/wkt';
import { Schema } from './grpc-schema.ts';

const WELL_KNOWN_PACKAGE = 'google.protobuf';
/** Those that others need first. */
const WELL_KNOWN: readonly FileDescriptorProto[] = [
  file_google_protobuf_any,
  file_google_protobuf_source_context,
  file_google_protobuf_type,
  file_google_protobuf_api,
  file_google_protobuf_descriptor,
  file_google_protobuf_duration,
  file_google_protobuf_empty,
  file_google_protobuf_field_mask,
  file_google_protobuf_struct,
  file_google_protobuf_timestamp,
  file_google_protobuf_wrappers,
].map((file) => file.proto);
const WELL_KNOWN_NAMES: ReadonlySet<string> = new Set(WELL_KNOWN.map(({ name }) => name));
const NO_SET = 'it is no FileDescriptorSet: make it with protoc --include_imports --descriptor_set_out=…';

export class SchemaFiles {
  readonly #files = new Map<string, FileDescriptorProto>();
  /** Files that are imported by those added and have not been added. */
  readonly missing = new Set<string>();

  /** Adds one `FileDescriptorProto`; the words of what is wrong with it, or ''. */
  add(bytes: Uint8Array): string {
    try {
      this.#take(fromBinary(FileDescriptorProtoSchema, bytes));
      return '';
    } catch {
      return 'a file descriptor cannot be read';
    }
  }

  /** Adds a `FileDescriptorSet`; the words of what is wrong with it, or ''. */
  addSet(bytes: Uint8Array): string {
    try {
      const { file } = fromBinary(FileDescriptorSetSchema, bytes);
      for (const each of file) this.#take(each);
      return file.length === 0 ? NO_SET : '';
    } catch {
      return NO_SET;
    }
  }

  /** To be called once, when the files are all there; the words of what is wrong, or the schema. */
  schema(): Schema | string {
    const types = new Types([...WELL_KNOWN, ...this.#files.values()]);
    const needs = new Map<FileDescriptorProto, ReadonlySet<FileDescriptorProto>>();
    for (const file of this.#files.values()) {
      const needed = types.complete(file);
      if (types.problem !== '') return types.problem;
      needs.set(file, needed);
    }
    try {
      const file = [...WELL_KNOWN, ...inOrder(needs)];
      return new Schema(createFileRegistry(create(FileDescriptorSetSchema, { file })));
    } catch (error) {
      return (error as Error).message;
    }
  }

  #take(file: FileDescriptorProto): void {
    this.missing.delete(file.name);
    if (this.#files.has(file.name) || file.package === WELL_KNOWN_PACKAGE) return;
    this.#files.set(file.name, file);
    for (const name of file.dependency) if (!this.#files.has(name) && !WELL_KNOWN_NAMES.has(name)) this.missing.add(name);
    // Kept in order by what is used, since what is only imported need not be there.
    file.dependency = [];
  }
}

/** Types by full name, and the file of each. */
class Types {
  problem = '';
  readonly #fileOf = new Map<string, FileDescriptorProto>();
  #needed = new Set<FileDescriptorProto>();

  constructor(files: readonly FileDescriptorProto[]) {
    for (const file of files) {
      for (const { name } of file.enumType) this.#fileOf.set(joined(file.package, name), file);
      for (const message of file.messageType) this.#addMessage(message, file.package, file);
    }
  }

  /** Makes every name full; the files that this one needs. Extensions of what is not described are left out. */
  complete(file: FileDescriptorProto): ReadonlySet<FileDescriptorProto> {
    this.#needed = new Set();
    for (const message of file.messageType) this.#completeMessage(message, joined(file.package, message.name));
    file.extension = file.extension.filter((field) => this.#isKnownExtension(field, file.package));
    for (const service of file.service) {
      for (const method of service.method) {
        method.inputType = this.#full(file.package, method.inputType, method.name);
        method.outputType = this.#full(file.package, method.outputType, method.name);
      }
    }
    this.#needed.delete(file);
    return this.#needed;
  }

  #addMessage(message: DescriptorProto, scope: string, file: FileDescriptorProto): void {
    const fullName = joined(scope, message.name);
    this.#fileOf.set(fullName, file);
    for (const { name } of message.enumType) this.#fileOf.set(joined(fullName, name), file);
    for (const nested of message.nestedType) this.#addMessage(nested, fullName, file);
  }

  #completeMessage(message: DescriptorProto, fullName: string): void {
    for (const field of message.field) {
      if (field.jsonName === '') field.jsonName = protoCamelCase(field.name);
      if (field.typeName !== '') field.typeName = this.#full(fullName, field.typeName, field.name);
    }
    message.extension = message.extension.filter((field) => this.#isKnownExtension(field, fullName));
    for (const nested of message.nestedType) this.#completeMessage(nested, joined(fullName, nested.name));
  }

  #isKnownExtension(field: FieldDescriptorProto, scope: string): boolean {
    const extendee = this.#find(scope, field.extendee);
    const type = field.typeName === '' ? '' : this.#find(scope, field.typeName);
    if (extendee === null || type === null) return false;
    field.extendee = extendee;
    field.typeName = type;
    return true;
  }

  #full(scope: string, name: string, of: string): string {
    const full = this.#find(scope, name);
    if (full === null) this.problem ||= `the type ${name} of ${scope}.${of} is not described`;
    return full ?? name;
  }

  /** A full name begins with a dot; others are sought from the innermost scope outwards, as the language demands. */
  #find(scope: string, name: string): string | null {
    let at = name.startsWith('.') ? '' : scope;
    const bare = name.startsWith('.') ? name.slice(1) : name;
    for (;;) {
      const full = joined(at, bare);
      const file = this.#fileOf.get(full);
      if (file !== undefined) {
        this.#needed.add(file);
        return `.${full}`;
      }
      if (at === '') return null;
      at = at.slice(0, Math.max(0, at.lastIndexOf('.')));
    }
  }
}

/** Every file after those it needs. Files that need one another stay as they come: the library says what it misses. */
function inOrder(needs: ReadonlyMap<FileDescriptorProto, ReadonlySet<FileDescriptorProto>>): Set<FileDescriptorProto> {
  const ordered = new Set<FileDescriptorProto>();
  const seen = new Set<FileDescriptorProto>();
  const visit = (file: FileDescriptorProto): void => {
    const needed = needs.get(file);
    if (needed === undefined || seen.has(file)) return;
    seen.add(file);
    for (const each of needed) visit(each);
    ordered.add(file);
  };
  for (const file of needs.keys()) visit(file);
  return ordered;
}

function joined(scope: string, name: string): string {
  return scope === '' ? name : `${scope}.${name}`;
}
