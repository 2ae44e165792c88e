/**
 * Values of a program as JSON. `JSON.stringify` writes NaN as null, and a Map, an ArrayBuffer or an Error as `{}`: what was
 * meant would arrive as something else, and nobody would know. Such a value is refused, with the name under which it stands.
 */

/** As `JSON.stringify` has it; undefined = it has no form at all. Throws for what would be written as something else. */
export function jsonText(value: unknown): string | undefined {
  const text = JSON.stringify(value) as string | undefined;
  // Looked for only where it can be.
  if (text !== undefined && (text.includes('null') || text.includes('{}'))) JSON.stringify(value, refuseUnseen);
  return text;
}

function refuseUnseen(key: string, value: unknown): unknown {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`${value}${at(key)} has no form in JSON`);
  if (typeof value === 'object' && value !== null && Object.keys(value).length === 0) {
    const kind = Object.prototype.toString.call(value).slice('[object '.length, -1);
    if (!WRITTEN.has(kind) && !isTypedArray(value)) throw new TypeError(`a value of the kind ${kind}${at(key)} has no form in JSON`);
  }
  return value;
}

/** What is empty and still written as what it is. */
const WRITTEN: ReadonlySet<string> = new Set(['Object', 'Array', 'Arguments', 'Number', 'String', 'Boolean']);

function isTypedArray(value: object): boolean {
  return ArrayBuffer.isView(value) && !(value instanceof DataView);
}

function at(key: string): string {
  return key === '' ? '' : ` at ${JSON.stringify(key.slice(0, 64))}`;
}
