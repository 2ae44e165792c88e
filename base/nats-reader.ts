/**
 * Reads what a NATS server says, in place of the client's own reader: messages for those who are registered here by the number of
 * their subscription are cut out of what was received as they are; everything else (pings, errors, facts about the server,
 * messages of others) is given to the client's reader byte for byte, which knows what to do. The client goes over each byte of
 * each line in turn and makes some ten objects for a message, where two are enough.
 */
import { type BusMessage, STATUS } from './bus-message.ts';
import { digitsIn } from './digits.ts';

/** What the client reads with. */
export interface OtherReader {
  parse(bytes: Buffer): void;
}

const NEWLINE = 0x0a;
const LETTER_M = 0x4d;
const LETTER_H = 0x48;
const MSG = 'MSG '.length;
const HMSG = 'HMSG '.length;
/** The end of a line. */
const END_BYTES = 2;
const MAX_MESSAGE_BYTES = 1_000_000_000;

export class NatsReader {
  readonly #other: OtherReader;
  readonly #broke: (error: unknown) => void;
  readonly #bySid = new Map<number, (message: BusMessage) => void>();
  /** The beginning of something that has not come whole. */
  #parts: Buffer[] = [];
  #held = 0;
  /** Before there are so many bytes of it there is nothing to look at. */
  #needed = 0;
  /** It says what is not understood here: the client has the rest of the connection. */
  #isOff = false;

  /** @param broke somebody who was given a message has thrown */
  constructor(other: OtherReader, broke: (error: unknown) => void) {
    this.#other = other;
    this.#broke = broke;
  }

  on(sid: number, take: (message: BusMessage) => void): void {
    this.#bySid.set(sid, take);
  }

  off(sid: number): void {
    this.#bySid.delete(sid);
  }

  parse(chunk: Buffer): void {
    let bytes = chunk;
    if (this.#held > 0) {
      this.#parts.push(chunk);
      this.#held += chunk.length;
      if (this.#held < this.#needed) return;
      bytes = Buffer.concat(this.#parts, this.#held);
      this.#parts = [];
      this.#held = 0;
    }
    this.#read(bytes);
  }

  #read(bytes: Buffer): void {
    let at = 0;
    while (at < bytes.length) {
      if (this.#isOff) {
        this.#other.parse(bytes.subarray(at));
        return;
      }
      const lineEnd = bytes.indexOf(NEWLINE, at);
      if (lineEnd < 0) {
        this.#hold(bytes, at, bytes.length - at + 1);
        return;
      }
      const first = bytes[at];
      if (first !== LETTER_M && first !== LETTER_H) {
        this.#other.parse(bytes.subarray(at, lineEnd + 1));
        at = lineEnd + 1;
        continue;
      }
      const end = this.#message(bytes, at, lineEnd, first === LETTER_H);
      if (end < 0) this.#isOff = true;
      else if (end > bytes.length) {
        this.#hold(bytes, at, end - at);
        return;
      } else at = end;
    }
  }

  /** Where the message that begins there ends, which may be behind the end of what is there (it is not taken then); -1 = it is not understood. */
  #message(bytes: Buffer, at: number, lineEnd: number, hasHeaders: boolean): number {
    const line = bytes.toString('utf8', at + (hasHeaders ? HMSG : MSG), lineEnd - 1);
    const subjectEnd = line.indexOf(' ');
    const sidEnd = line.indexOf(' ', subjectEnd + 1);
    const last = line.lastIndexOf(' ');
    if (subjectEnd <= 0 || sidEnd < 0) return -1;
    const sid = digitsIn(line, subjectEnd + 1, sidEnd);
    const total = digitsIn(line, last + 1, line.length);
    let replyEnd = last;
    let headerBytes = 0;
    if (hasHeaders) {
      replyEnd = line.lastIndexOf(' ', last - 1);
      headerBytes = digitsIn(line, replyEnd + 1, last);
    }
    if (sid < 0 || total < 0 || total > MAX_MESSAGE_BYTES || headerBytes < 0 || headerBytes > total || replyEnd < sidEnd) return -1;
    const begin = lineEnd + 1;
    const end = begin + total + END_BYTES;
    if (end > bytes.length) return end;
    const take = this.#bySid.get(sid);
    if (take === undefined) {
      this.#other.parse(bytes.subarray(at, end));
      return end;
    }
    const reply = replyEnd === sidEnd ? '' : line.slice(sidEnd + 1, replyEnd);
    const headers = hasHeaders ? bytes.subarray(begin, begin + headerBytes) : null;
    try {
      take(new WireMessage(line.slice(0, subjectEnd), reply, headers, bytes.subarray(begin + headerBytes, begin + total)));
    } catch (error) {
      this.#broke(error);
    }
    return end;
  }

  #hold(bytes: Buffer, from: number, needed: number): void {
    const rest = bytes.subarray(from);
    this.#parts.push(rest);
    this.#held = rest.length;
    this.#needed = needed;
  }
}

/** Headers are read when somebody asks for one: most messages on the fast path have none, or none that matter. */
class WireMessage implements BusMessage {
  readonly subject: string;
  readonly reply: string;
  readonly data: Buffer;
  readonly #headers: Buffer | null;

  constructor(subject: string, reply: string, headers: Buffer | null, data: Buffer) {
    this.subject = subject;
    this.reply = reply;
    this.data = data;
    this.#headers = headers;
  }

  header(name: string): string | null {
    if (this.#headers === null) return null;
    const lines = this.#headers.toString('utf8').split('\r\n');
    const status = STATUS_LINE.exec(lines[0] as string);
    if (name === STATUS) return status?.[1] ?? null;
    for (let i = 1; i < lines.length; i++) {
      const line = lines[i] as string;
      const colon = line.indexOf(':');
      if (colon > 0 && line.slice(0, colon).trim() === name) return line.slice(colon + 1).trim();
    }
    // the server's words stand behind its status
    return name === DESCRIPTION ? (status?.[2] ?? null) : null;
  }

  times(name: string): number {
    if (this.#headers === null) return 0;
    const line = `\r\n${name}:`;
    let count = 0;
    for (let at = this.#headers.indexOf(line); at >= 0; at = this.#headers.indexOf(line, at + 1)) count++;
    return count;
  }

  names(): readonly string[] {
    if (this.#headers === null) return [];
    const names = new Set<string>();
    for (const line of this.#headers.toString('utf8').split('\r\n').slice(1)) {
      const colon = line.indexOf(':');
      if (colon > 0) names.add(line.slice(0, colon).trim());
    }
    return [...names];
  }
}

const STATUS_LINE = /^NATS\/1\.0\s+([1-9][0-9]*)\s*(\S.*)?$/;
const DESCRIPTION = 'Description';
