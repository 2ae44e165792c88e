/**
 * What is posted in one turn, as the bytes that a NATS server reads: one piece for all of it. The client makes five for each
 * message and then copies them together.
 */
import type { WireHeaders } from './bus-message.ts';

export interface Command {
  readonly subject: string;
  /** '' = none. */
  readonly reply: string;
  readonly headers: WireHeaders | null;
  readonly data: Uint8Array;
}

const CR = 0x0d;
const LF = 0x0a;
const END_BYTES = 2;
/** No piece is made larger than that for more than one message. */
const PIECE_BYTES = 262_144;

/** Gives the pieces one after the other. Subjects and headers must be fit to be sent. */
export function writeCommands(commands: readonly Command[], give: (bytes: Buffer) => void): void {
  const lines: string[] = [];
  let from = 0;
  let bytes = 0;
  for (let i = 0; i < commands.length; i++) {
    const command = commands[i] as Command;
    const line = lineOf(command);
    const size = Buffer.byteLength(line) + payloadBytes(command) + END_BYTES;
    if (bytes > 0 && bytes + size > PIECE_BYTES) {
      give(pieceOf(commands, lines, from, i, bytes));
      from = i;
      bytes = 0;
    }
    lines.push(line);
    bytes += size;
  }
  if (bytes > 0) give(pieceOf(commands, lines, from, commands.length, bytes));
}

function payloadBytes({ headers, data }: Command): number {
  return headers === null ? data.length : headers.bytes.length + data.length;
}

function lineOf({ subject, reply, headers, data }: Command): string {
  const to = reply === '' ? subject : `${subject} ${reply}`;
  if (headers === null) return `PUB ${to} ${data.length}\r\n`;
  return `HPUB ${to} ${headers.bytes.length} ${headers.bytes.length + data.length}\r\n`;
}

function pieceOf(commands: readonly Command[], lines: readonly string[], from: number, to: number, bytes: number): Buffer {
  const piece = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (let i = from; i < to; i++) {
    const { headers, data } = commands[i] as Command;
    at += piece.write(lines[i] as string, at, 'utf8');
    if (headers !== null) {
      piece.set(headers.bytes, at);
      at += headers.bytes.length;
    }
    piece.set(data, at);
    at += data.length;
    piece[at++] = CR;
    piece[at++] = LF;
  }
  return piece;
}
