/**
 * google.protobuf.Value to and from JSON. Decides what of JSON a Value can hold: its numbers are
 * doubles, so a text with a number that a double does not hold exactly is left to another form, never rounded.
 */
import { fromJson, type JsonValue, toJson } from '@bufbuild/protobuf';
import { type Value, ValueSchema } from '@bufbuild/protobuf/wkt';
import { isDeeper } from '../../base/depth.ts';
import { hasExactNumbers } from '../../base/json-exact.ts';

/** As deep as the usual readers of Protocol Buffers go: each level of JSON is two or three messages there. */
export const MAX_DEPTH = 30;

/** JSON text of a Value; null when it is nested too deep, was not set, or holds a number that JSON has not. */
export function jsonOfValue(value: Value): string | null {
  try {
    const json = toJson(ValueSchema, value);
    return isDeeper(json, MAX_DEPTH) ? null : JSON.stringify(json);
  } catch {
    return null;
  }
}

/** A Value of well-formed JSON; null when a Value cannot hold it as it is. */
export function valueOfJson(json: Buffer): Value | null {
  if (!hasExactNumbers(json)) return null;
  const value = JSON.parse(json.toString('utf8')) as JsonValue;
  return isDeeper(value, MAX_DEPTH) ? null : fromJson(ValueSchema, value);
}
