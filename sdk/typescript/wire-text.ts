/** Text as the value of a header. */

const ASCII = /^[\x20-\x7e]*$/;
const SENDABLE = /^[\t\x20-\x7e\x80-\u{10ffff}]*$/u;

/** As UTF-8, one character a byte: what curl and the Python SDK send for the same text, so that it is the same key everywhere. */
export function wireText(text: string): string {
  return ASCII.test(text) ? text : Buffer.from(text, 'utf8').toString('latin1');
}

/** null = no header can have that value: a control character would end it, and an object is no text. */
export function sendableText(value: unknown): string | null {
  if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean' && typeof value !== 'bigint') return null;
  const text = String(value);
  return SENDABLE.test(text) ? wireText(text) : null;
}
