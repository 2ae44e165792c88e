/** WebSocket by hand: a client's frames with whatever may be wrong in them, and a server's taken apart without forgiveness. */
import { RawClient } from './raw-http.ts';

export interface FrameParts {
  readonly op: number;
  readonly payload?: Buffer;
  /** Default true. */
  readonly fin?: boolean;
  /** The three reserved bits, 0 … 7. */
  readonly rsv?: number;
  /** null = not masked. */
  readonly mask?: Buffer | null;
  /** Written instead of the payload's own length, in the long form. */
  readonly length?: bigint;
}

const MASK = Buffer.from([0x37, 0xfa, 0x21, 0x3d]);

export function clientFrame({ op, payload = Buffer.alloc(0), fin = true, rsv = 0, mask = MASK, length }: FrameParts): Buffer {
  const bit = mask === null ? 0 : 0x80;
  const first = (fin ? 0x80 : 0) | (rsv << 4) | op;
  let head: Buffer;
  if (length !== undefined || payload.length > 65_535) {
    head = Buffer.alloc(10);
    head[1] = bit | 127;
    head.writeBigUInt64BE(length ?? BigInt(payload.length), 2);
  } else if (payload.length > 125) {
    head = Buffer.alloc(4);
    head[1] = bit | 126;
    head.writeUInt16BE(payload.length, 2);
  } else head = Buffer.from([0, bit | payload.length]);
  head[0] = first;
  if (mask === null) return Buffer.concat([head, payload]);
  const masked = Buffer.from(payload);
  for (let i = 0; i < masked.length; i++) masked[i] = (masked[i] as number) ^ (mask[i & 3] as number);
  return Buffer.concat([head, mask, masked]);
}

export interface ServerFrame {
  readonly op: number;
  readonly payload: Buffer;
}

/** Whole frames of a server, and what is left over; throws for what no server may send. */
export function serverFrames(bytes: Buffer): { readonly frames: ServerFrame[]; readonly rest: Buffer } {
  const frames: ServerFrame[] = [];
  let at = 0;
  while (bytes.length - at >= 2) {
    const first = bytes[at] as number;
    const short = bytes[at + 1] as number;
    if ((first & 0x70) !== 0 || (short & 0x80) !== 0)
      throw new Error(`a frame of a server that begins ${first.toString(16)} ${short.toString(16)}`);
    const head = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (bytes.length - at < head) break;
    const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(at + 2) : Number(bytes.readBigUInt64BE(at + 2));
    if (bytes.length - at < head + length) break;
    frames.push({ op: first & 0x0f, payload: bytes.subarray(at + head, at + head + length) });
    at += head + length;
  }
  return { frames, rest: bytes.subarray(at) };
}

export function handshake(port: number, token: string, query = ''): string {
  return `GET /v1/channel${query} HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n${token === '' ? '' : `authorization: Bearer ${token}\r\n`}upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n`;
}

/** A connection that has been upgraded. */
export class RawChannel {
  readonly client: RawClient;
  constructor(client: RawClient) {
    this.client = client;
  }

  /** @param behind sent together with the handshake. */
  static async dial(port: number, token: string, behind: Buffer = Buffer.alloc(0)): Promise<RawChannel> {
    const client = await RawClient.to(port);
    client.write(Buffer.concat([Buffer.from(handshake(port, token), 'latin1'), behind]));
    await client.until((text) => text.includes('\r\n\r\n'));
    if (!client.text.startsWith('HTTP/1.1 101 ')) throw new Error(client.text.slice(0, 500));
    return new RawChannel(client);
  }

  get frames(): ServerFrame[] {
    const { received } = this.client;
    return serverFrames(received.subarray(received.indexOf('\r\n\r\n') + 4)).frames;
  }

  /** Text frames, parsed. */
  get messages(): Record<string, unknown>[] {
    return this.frames.filter(({ op }) => op === 1).map(({ payload }) => JSON.parse(payload.toString('utf8')) as Record<string, unknown>);
  }

  /** Code of the closing frame; null = there was none. */
  get closeCode(): number | null {
    const last = this.frames.find(({ op }) => op === 8);
    return last === undefined || last.payload.length < 2 ? null : last.payload.readUInt16BE(0);
  }

  text(message: unknown): void {
    this.client.write(clientFrame({ op: 1, payload: Buffer.from(typeof message === 'string' ? message : JSON.stringify(message)) }));
  }
}
