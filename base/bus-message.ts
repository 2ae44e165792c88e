/** A message as it comes off the bus, and what a stream's republishing adds to it. */

export type Headers = Readonly<Record<string, string>>;

/** Status of an answer of the server's own (`404`), as a header. */
export const STATUS = ':status';

/**
 * A header of all that the server gives out of a stream by itself: what it publishes again, and what it is asked for by subject. Nobody
 * writes it, and what a consumer delivers has none. Whoever may ask may name any subject as the place for the answer, whatever his
 * permissions: so where an answer has no business, and in what is stored, a message with it says nothing.
 */
export const GIVEN_OUT = 'Nats-Stream';

export interface BusMessage {
  readonly subject: string;
  /** A view into what was received: copy it if it is to be kept for long. */
  readonly data: Buffer;
  /** Where an answer is expected; '' = nowhere. */
  readonly reply: string;
  /** The first value of a header, spelt exactly so; null = not there. */
  header(name: string): string | null;
  /** How many values a header has, spelt exactly so; absent where messages are made without a server. */
  times?(name: string): number;
  /** Names of its headers, as they are spelt; absent where messages are made without a server. */
  names?(): readonly string[];
}

/** Headers as they travel, made once for a message that is posted. */
export class WireHeaders {
  readonly bytes: Buffer;

  /** @param lines `Name: value` and the end of a line for each, of names and values that were looked at */
  constructor(lines: string) {
    this.bytes = Buffer.from(`NATS/1.0\r\n${lines}\r\n`, 'utf8');
  }

  encode(): Uint8Array {
    return this.bytes;
  }
}

/** `NATS/1.0`, its end and the end of all; colon, blank and end of a line. */
const HEADER_FRAME_BYTES = 12;
const HEADER_LINE_BYTES = 4;

/** What a message counts for against `maxPayload`. */
export function messageBytes(data: Uint8Array, headers: Headers | undefined): number {
  if (headers === undefined) return data.length;
  let bytes = data.length + HEADER_FRAME_BYTES;
  for (const name in headers) bytes += name.length + Buffer.byteLength(headers[name] as string) + HEADER_LINE_BYTES;
  return bytes;
}

/** A message that a stream stored and then published again. */
export interface Republished {
  readonly stream: string;
  /** The subject under which it is stored. */
  readonly subject: string;
  /** Position in the stream, over all its subjects: a subscriber to some of them sees gaps, and they mean nothing. */
  readonly seq: number;
  /** Position of the message before it *on the same subject*, 0 = it is the first. What a reader must hold, or it missed something. */
  readonly lastSeq: number;
  readonly data: Buffer;
}

/**
 * Null when the message carries no (whole) sequence numbers: somebody else published it. What a stream publishes again wants no answer;
 * what somebody has a consumer give out to a subject of his choice does.
 */
export function republished(message: BusMessage): Republished | null {
  if (message.reply !== '' || (message.times?.(GIVEN_OUT) ?? 1) !== 1) return null;
  const stream = message.header('Nats-Stream');
  const subject = message.header('Nats-Subject');
  const seq = sequence(message.header('Nats-Sequence'));
  const lastSeq = sequence(message.header('Nats-Last-Sequence'));
  if (stream === null || subject === null || seq === null || seq === 0 || lastSeq === null) return null;
  return { stream, subject, seq, lastSeq, data: message.data };
}

/** A whole number written in digits alone. */
export function sequence(text: string | null): number | null {
  if (text === null || text === '' || text.length > 16) return null;
  const value = Number(text);
  return Number.isSafeInteger(value) && value >= 0 ? value : null;
}

/** What came of a request. */
export type BusReply =
  | { readonly kind: 'ok'; readonly message: BusMessage }
  /** Nobody listens on that subject. */
  | { readonly kind: 'no_responder' }
  | { readonly kind: 'timeout' }
  /** No connection; `sent`: the request may have arrived all the same. */
  | { readonly kind: 'unreachable'; readonly sent: boolean }
  /** Not sent, not allowed, or its handler broke. */
  | { readonly kind: 'refused'; readonly why: string };

/** For people: what a request met instead of an answer. `what` begins the sentence. */
export function replyWords(reply: Exclude<BusReply, { kind: 'ok' }>, what: string): string {
  switch (reply.kind) {
    case 'no_responder':
      return `${what}: nobody answers there`;
    case 'timeout':
      return `${what}: no answer in time`;
    case 'unreachable':
      return reply.sent ? `${what}: the connection to NATS broke before the answer came` : `${what}: no connection to NATS`;
    case 'refused':
      return `${what}: ${reply.why}`;
  }
}
