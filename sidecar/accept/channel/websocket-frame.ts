/**
 * WebSocket frames as a server writes them (RFC 6455 section 5.2: unmasked, never fragmented), head and payload in one
 * Buffer, so that a frame is one write.
 */
export const Opcode = { text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
type Opcode = (typeof Opcode)[keyof typeof Opcode];

const FIN = 0x80;

function headLength(payloadBytes: number): number {
  return payloadBytes < 126 ? 2 : payloadBytes < 65_536 ? 4 : 10;
}

/** Room for a frame, its head written. The payload begins at `length - payloadBytes`. */
function frameFor(opcode: Opcode, payloadBytes: number): Buffer {
  const head = headLength(payloadBytes);
  const frame = Buffer.allocUnsafe(head + payloadBytes);
  frame[0] = FIN | opcode;
  if (head === 2) frame[1] = payloadBytes;
  else if (head === 4) {
    frame[1] = 126;
    frame[2] = payloadBytes >>> 8;
    frame[3] = payloadBytes & 0xff;
  } else {
    frame[1] = 127;
    frame.writeUInt32BE(Math.floor(payloadBytes / 0x1_0000_0000), 2);
    frame.writeUInt32BE(payloadBytes >>> 0, 6);
  }
  return frame;
}

/** Text, bytes, text, in one text frame. The bytes are UTF-8 already. */
export function textFrame(head: string, bytes: Buffer | null, tail: string): Buffer {
  const headBytes = Buffer.byteLength(head);
  const middle = bytes === null ? 0 : bytes.length;
  const total = headBytes + middle + Buffer.byteLength(tail);
  const frame = frameFor(Opcode.text, total);
  let at = frame.length - total;
  // ASCII, as it nearly always is, is written faster when it is said to be.
  at += headBytes === head.length ? frame.write(head, at, 'latin1') : frame.write(head, at, 'utf8');
  if (bytes !== null) {
    bytes.copy(frame, at);
    at += middle;
  }
  frame.write(tail, at, 'utf8');
  return frame;
}

/** A text frame of a text that has one character a byte. */
export function latin1Frame(text: string): Buffer {
  const frame = frameFor(Opcode.text, text.length);
  frame.write(text, frame.length - text.length, 'latin1');
  return frame;
}

/** A binary frame of two parts. */
export function binaryFrame(head: Buffer, payload: Buffer): Buffer {
  const total = head.length + payload.length;
  const frame = frameFor(Opcode.binary, total);
  const at = frame.length - total;
  head.copy(frame, at);
  payload.copy(frame, at + head.length);
  return frame;
}

/** Ping or pong; at most 125 bytes, which the reader has seen to. */
export function controlFrame(opcode: typeof Opcode.ping | typeof Opcode.pong, payload: Buffer): Buffer {
  const frame = frameFor(opcode, payload.length);
  payload.copy(frame, frame.length - payload.length);
  return frame;
}

/** The closing word; the reason is cut to what a control frame holds. */
export function closeFrame(code: number, reason: string): Buffer {
  let words = Buffer.from(reason, 'utf8');
  if (words.length > MAX_REASON_BYTES) words = Buffer.from(reason.slice(0, MAX_REASON_BYTES / 4), 'utf8');
  const frame = frameFor(Opcode.close, 2 + words.length);
  frame.writeUInt16BE(code, 2);
  words.copy(frame, 4);
  return frame;
}

const MAX_REASON_BYTES = 120;
