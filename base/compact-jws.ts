/**
 * The three parts of a compact JWS (RFC 7515), opened without believing any of it. One token has one spelling here: other
 * characters, padding, or bits that mean nothing are refused, so that nobody can make many texts out of one signature and
 * have each of them verified anew. What the parts say, and whether the signature is good, is judged elsewhere.
 */
export interface CompactJws {
  readonly header: Readonly<Record<string, unknown>>;
  readonly payload: Readonly<Record<string, unknown>>;
  /** What is signed: the first two parts as they stand. */
  readonly signedText: string;
  readonly signature: Buffer;
}

const FORM = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** Null when it is none, or longer than this. */
export function openCompact(text: string, maxChars: number): CompactJws | null {
  if (text.length > maxChars || !FORM.test(text)) return null;
  const first = text.indexOf('.');
  const second = text.indexOf('.', first + 1);
  const header = mapIn(text.slice(0, first));
  const payload = mapIn(text.slice(first + 1, second));
  const signature = bytesIn(text.slice(second + 1));
  if (header === null || payload === null || signature === null) return null;
  return { header, payload, signedText: text.slice(0, second), signature };
}

function bytesIn(part: string): Buffer | null {
  const bytes = Buffer.from(part, 'base64url');
  return bytes.toString('base64url') === part ? bytes : null;
}

function mapIn(part: string): Readonly<Record<string, unknown>> | null {
  const bytes = bytesIn(part);
  if (bytes === null) return null;
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Readonly<Record<string, unknown>>) : null;
  } catch {
    return null;
  }
}
