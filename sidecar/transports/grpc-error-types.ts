/**
 * The types that servers put into the details of an error (package google.rpc), with the names and numbers of their
 * published form, so that they can be shown without asking the server for them. Made at first use.
 */
import { Schema } from '../../base/protobuf-schema.ts';
import { WireWriter } from '../../base/protobuf-wire.ts';

/** name → fields as `name type`, in the order of their numbers; `*` = a list, `%` = a map from text to text, `.Name` = a message. */
const TYPES: Readonly<Record<string, readonly string[]>> = {
  ErrorInfo: ['reason string', 'domain string', 'metadata %'],
  RetryInfo: ['retry_delay Duration'],
  DebugInfo: ['stack_entries *string', 'detail string'],
  BadRequest: ['field_violations *FieldViolation'],
  FieldViolation: ['field string', 'description string', 'reason string'],
  QuotaFailure: ['violations *QuotaViolation'],
  QuotaViolation: ['subject string', 'description string'],
  PreconditionFailure: ['violations *PreconditionViolation'],
  PreconditionViolation: ['type string', 'subject string', 'description string'],
  RequestInfo: ['request_id string', 'serving_data string'],
  ResourceInfo: ['resource_type string', 'resource_name string', 'owner string', 'description string'],
  Help: ['links *Link'],
  Link: ['description string', 'url string'],
  LocalizedMessage: ['locale string', 'message string'],
};

const STRING = 9;
const INT64 = 3;
const INT32 = 5;
const MESSAGE = 11;

let made: Schema | null = null;

export function errorSchema(): Schema {
  if (made !== null) return made;
  made = new Schema();
  const problem = made.addFile(durationFile()) || made.addFile(errorFile()) || made.link();
  if (problem !== '') throw new Error(problem);
  return made;
}

function durationFile(): Buffer {
  return part((file) => {
    text(file, 1, 'google/protobuf/duration.proto');
    text(file, 2, 'google.protobuf');
    inside(file, 4, (message) => {
      text(message, 1, 'Duration');
      field(message, 'seconds', 1, false, INT64, '');
      field(message, 'nanos', 2, false, INT32, '');
    });
    text(file, 12, 'proto3');
  });
}

function errorFile(): Buffer {
  return part((file) => {
    text(file, 1, 'google/rpc/error_details.proto');
    text(file, 2, 'google.rpc');
    for (const [name, fields] of Object.entries(TYPES)) {
      inside(file, 4, (message) => {
        text(message, 1, name);
        fields.forEach((said, i) => {
          const [fieldName, type] = said.split(' ') as [string, string];
          if (type === '%') {
            field(message, fieldName, i + 1, true, MESSAGE, `.google.rpc.${name}.Entry`);
            return;
          }
          const isList = type.startsWith('*');
          const bare = isList ? type.slice(1) : type;
          if (bare === 'string') field(message, fieldName, i + 1, isList, STRING, '');
          else field(message, fieldName, i + 1, isList, MESSAGE, bare === 'Duration' ? '.google.protobuf.Duration' : `.google.rpc.${bare}`);
        });
        if (!fields.some((said) => said.endsWith('%'))) return;
        inside(message, 3, (entry) => {
          text(entry, 1, 'Entry');
          field(entry, 'key', 1, false, STRING, '');
          field(entry, 'value', 2, false, STRING, '');
          inside(entry, 7, (options) => {
            options.tag(7, 0);
            options.varint32(1);
          });
        });
      });
    }
    text(file, 12, 'proto3');
  });
}

function field(out: WireWriter, name: string, number: number, isList: boolean, type: number, typeName: string): void {
  inside(out, 2, (one) => {
    text(one, 1, name);
    one.tag(3, 0);
    one.varint32(number);
    one.tag(4, 0);
    one.varint32(isList ? 3 : 1);
    one.tag(5, 0);
    one.varint32(type);
    if (typeName !== '') text(one, 6, typeName);
  });
}

function part(fill: (out: WireWriter) => void): Buffer {
  const out = new WireWriter();
  fill(out);
  return out.finish();
}

function inside(out: WireWriter, number: number, fill: (out: WireWriter) => void): void {
  out.tag(number, 2);
  const start = out.open();
  fill(out);
  out.close(start);
}

function text(out: WireWriter, number: number, value: string): void {
  out.tag(number, 2);
  out.text(value);
}
