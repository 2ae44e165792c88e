/**
 * The usual answer of an agent, `{"jsonrpc":"2.0","id":7,"result":{"payload":…}}` in the order in which everybody writes it,
 * read in one pass over its bytes. Says nothing of any other message, which then goes the usual way: what is found here, the
 * usual way would have found as well. The payload must be JSON by itself, so that nothing can hide in it.
 */
import { isJson } from '../../../base/json-scan.ts';

const BEFORE_ID = ['{', '"jsonrpc"', ':', '"2.0"', ',', '"id"', ':'].map((token) => Buffer.from(token));
const BEFORE_PAYLOAD = [',', '"result"', ':', '{', '"payload"', ':'].map((token) => Buffer.from(token));
const CLOSE = 0x7d;

/** What `readQuick` has found; one at a time, since reading never waits. */
export const quick = { id: 0, from: 0, to: 0 };

/** True: it is one, and `quick` says of which request, and where its payload stands. */
export function readQuick(bytes: Buffer): boolean {
  let at = pass(bytes, 0, BEFORE_ID);
  if (at < 0) return false;
  at = skipSpace(bytes, at);
  const digits = at;
  let id = 0;
  for (; at < bytes.length; at++) {
    const digit = (bytes[at] as number) - 0x30;
    if (digit < 0 || digit > 9) break;
    id = id * 10 + digit;
  }
  if (at === digits || at - digits > 15) return false;
  at = pass(bytes, at, BEFORE_PAYLOAD);
  if (at < 0) return false;
  let end = skipBack(bytes, bytes.length);
  if (bytes[end - 1] !== CLOSE) return false;
  end = skipBack(bytes, end - 1);
  if (bytes[end - 1] !== CLOSE) return false;
  const from = skipSpace(bytes, at);
  const to = skipBack(bytes, end - 1);
  if (to <= from || !isJson(bytes.subarray(from, to))) return false;
  quick.id = id;
  quick.from = from;
  quick.to = to;
  return true;
}

/** The place behind these tokens, perhaps with white space before each; -1 = they do not stand there. */
function pass(bytes: Buffer, from: number, tokens: readonly Buffer[]): number {
  let at = from;
  for (let t = 0; t < tokens.length; t++) {
    const token = tokens[t] as Buffer;
    at = skipSpace(bytes, at);
    for (let i = 0; i < token.length; i++) if (bytes[at + i] !== token[i]) return -1;
    at += token.length;
  }
  return at;
}

function isSpace(c: number | undefined): boolean {
  return c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09;
}

function skipSpace(bytes: Buffer, from: number): number {
  let at = from;
  while (isSpace(bytes[at])) at++;
  return at;
}

function skipBack(bytes: Buffer, to: number): number {
  let at = to;
  while (at > 0 && isSpace(bytes[at - 1])) at--;
  return at;
}
