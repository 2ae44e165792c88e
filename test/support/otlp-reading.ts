/** Reads an OTLP request by the published field numbers, with a protobuf reader that is not ours. */
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';

type Fields = Map<number, unknown[]>;

export interface ReadSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: number;
  readonly startNanos: bigint;
  readonly endNanos: bigint;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly events: readonly { readonly name: string; readonly nanos: bigint; readonly attributes: Readonly<Record<string, unknown>> }[];
  readonly statusCode: number;
  readonly statusMessage: string;
  readonly flags: number;
}

export interface ReadRequest {
  readonly resource: Readonly<Record<string, unknown>>;
  readonly scope: { readonly name: string; readonly version: string };
  readonly spans: readonly ReadSpan[];
}

/** Throws for bytes that are no such request. */
export function readOtlp(body: Uint8Array): ReadRequest {
  const resourceSpans = fieldsOf(one(fieldsOf(body), 1));
  const resource = attributesOf(fieldsOf(one(resourceSpans, 1)).get(1));
  const scopeSpans = fieldsOf(one(resourceSpans, 2));
  const scope = fieldsOf(one(scopeSpans, 1));
  return {
    resource,
    scope: { name: text(scope, 1), version: text(scope, 2) },
    spans: (scopeSpans.get(2) ?? []).map((bytes) => spanOf(fieldsOf(bytes as Uint8Array))),
  };
}

function spanOf(fields: Fields): ReadSpan {
  const status = fields.has(15) ? fieldsOf(one(fields, 15)) : new Map<number, unknown[]>();
  return {
    traceId: hex(fields, 1),
    spanId: hex(fields, 2),
    parentSpanId: hex(fields, 4),
    name: text(fields, 5),
    kind: Number(fields.get(6)?.[0] ?? 0),
    startNanos: fields.get(7)?.[0] as bigint,
    endNanos: fields.get(8)?.[0] as bigint,
    attributes: attributesOf(fields.get(9)),
    events: (fields.get(11) ?? []).map((bytes) => {
      const event = fieldsOf(bytes as Uint8Array);
      return { name: text(event, 2), nanos: event.get(1)?.[0] as bigint, attributes: attributesOf(event.get(3)) };
    }),
    statusCode: Number(status.get(3)?.[0] ?? 0),
    statusMessage: text(status, 2),
    flags: Number(fields.get(16)?.[0] ?? 0),
  };
}

function attributesOf(all: readonly unknown[] | undefined): Record<string, unknown> {
  const read: Record<string, unknown> = {};
  for (const bytes of all ?? []) {
    const pair = fieldsOf(bytes as Uint8Array);
    const value = fieldsOf(one(pair, 2));
    read[text(pair, 1)] = value.has(1) ? text(value, 1) : value.has(2) ? value.get(2)?.[0] === 1n : Number(value.get(3)?.[0] ?? 0);
  }
  return read;
}

function fieldsOf(bytes: Uint8Array): Fields {
  const reader = new BinaryReader(bytes);
  const fields: Fields = new Map();
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    const value =
      wire === WireType.LengthDelimited
        ? reader.bytes()
        : wire === WireType.Bit64
          ? BigInt(reader.fixed64())
          : wire === WireType.Bit32
            ? reader.fixed32()
            : BigInt(reader.uint64());
    const values = fields.get(field);
    if (values === undefined) fields.set(field, [value]);
    else values.push(value);
  }
  return fields;
}

function one(fields: Fields, field: number): Uint8Array {
  const value = fields.get(field)?.[0];
  if (!(value instanceof Uint8Array)) throw new Error(`field ${field} is missing`);
  return value;
}

function text(fields: Fields, field: number): string {
  const value = fields.get(field)?.[0];
  return value instanceof Uint8Array ? new TextDecoder('utf-8', { fatal: true }).decode(value) : '';
}

function hex(fields: Fields, field: number): string {
  const value = fields.get(field)?.[0];
  return value instanceof Uint8Array ? Buffer.from(value).toString('hex') : '';
}
