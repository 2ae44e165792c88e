/**
 * The answer of a stream that was to store a message. It comes once for each message, so its usual form is read byte by byte and
 * JSON is parsed for refusals and for forms that are not known. Whether to repeat is left to whoever stores.
 */
import { conflictOf, parseJson, problemOf } from './jetstream.ts';

export type Appended =
  | { readonly seq: number; readonly duplicate: boolean }
  /** The expected sequence is not the last one; the last one is this (null: the server does not say). Nothing was stored. */
  | { readonly conflict: number | null }
  /** `ambiguous`: it may have been stored all the same. `full`: the stream has no room and takes nothing new. */
  | { readonly failed: string; readonly ambiguous: boolean; readonly full?: true };

export const NOT_JETSTREAM = 'the answer is not JetStream’s';

/** The server's words, within its error 10077, for a stream that discards what is new. */
const FULL = /maximum (messages|bytes|messages per subject) exceeded/;
const STREAM_KEY = Buffer.from('{"stream":"', 'latin1');
const SEQ_KEY = Buffer.from('"seq":', 'latin1');
const QUOTE = 0x22;
const COMMA = 0x2c;
const BLANK = 0x20;
const ZERO = 0x30;
const CLOSE = 0x7d;
/** More digits than these would not be exact. */
const MAX_DIGITS = 15;

/** @param subject where it was to be stored, for the words of a failure */
export function readPubAck(data: Buffer, subject: string): Appended {
  const seq = plainSeq(data);
  if (seq !== 0) return { seq, duplicate: false };
  const answer = parseJson(data);
  const problem = answer === null ? null : problemOf(answer);
  if (problem !== null) {
    const conflict = conflictOf(problem);
    if (conflict !== null) return { conflict: conflict.lastSeq };
    const failed = `storing ${subject}: ${problem.words}`;
    return FULL.test(problem.words) ? { failed, ambiguous: false, full: true } : { failed, ambiguous: false };
  }
  const said = answer?.['seq'];
  if (typeof said !== 'number' || typeof answer?.['stream'] !== 'string')
    return { failed: `storing ${subject}: ${NOT_JETSTREAM}`, ambiguous: true };
  return { seq: said, duplicate: answer['duplicate'] === true };
}

/** The number in `{"stream":"NAME","seq":123}`, with or without a blank; 0 = it has another form. */
function plainSeq(data: Buffer): number {
  const end = data.length - 1;
  let at = STREAM_KEY.length;
  if (end <= at || data[end] !== CLOSE || !standsAt(data, 0, STREAM_KEY)) return 0;
  while (at < end && data[at] !== QUOTE) at++;
  if (data[++at] !== COMMA) return 0;
  if (data[++at] === BLANK) at++;
  if (!standsAt(data, at, SEQ_KEY)) return 0;
  at += SEQ_KEY.length;
  if (end - at > MAX_DIGITS) return 0;
  let seq = 0;
  for (; at < end; at++) {
    const digit = (data[at] as number) - ZERO;
    if (digit < 0 || digit > 9) return 0;
    seq = seq * 10 + digit;
  }
  return seq;
}

function standsAt(data: Buffer, at: number, key: Buffer): boolean {
  for (let i = 0; i < key.length; i++) if (data[at + i] !== key[i]) return false;
  return true;
}
