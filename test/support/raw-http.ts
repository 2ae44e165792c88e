/** HTTP by hand: bytes out exactly as written, the answers taken apart without a client library's forgiveness. */
import { connect, type Socket } from 'node:net';

export interface RawAnswer {
  readonly status: number;
  /** Lower case names; a repeated header is joined with a comma. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The body came to its proper end: all of its length, or the last chunk. */
  readonly isWhole: boolean;
}

/** One connection. */
export class RawClient {
  readonly socket: Socket;
  received: Buffer = Buffer.alloc(0);
  isClosed = false;
  #wake: (() => void) | null = null;

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (data) => {
      this.received = Buffer.concat([this.received, data]);
      this.#wake?.();
    });
    socket.on('close', () => {
      this.isClosed = true;
      this.#wake?.();
    });
    socket.on('error', () => {});
  }

  static async to(port: number): Promise<RawClient> {
    const socket = connect(port, '127.0.0.1');
    await new Promise<void>((done, failed) => socket.once('connect', () => done()).once('error', failed));
    return new RawClient(socket);
  }

  write(text: string | Buffer): void {
    this.socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text);
  }

  get text(): string {
    return this.received.toString('utf8');
  }

  /** Waits until `holds`, the connection's end, or the time limit. */
  async until(holds: (text: string) => boolean, withinMs = 3_000): Promise<void> {
    const timer = setTimeout(() => this.#wake?.(), withinMs);
    const end = performance.now() + withinMs;
    while (!holds(this.text) && !this.isClosed && performance.now() < end) await new Promise<void>((done) => (this.#wake = done));
    clearTimeout(timer);
  }

  async closed(withinMs = 3_000): Promise<boolean> {
    await this.until(() => false, withinMs);
    return this.isClosed;
  }

  /** The next whole answer of this connection, taken off what was received. */
  async answer(withinMs = 3_000): Promise<RawAnswer> {
    let taken: { answer: RawAnswer; bytes: number } | null = null;
    await this.until(() => (taken = take(this.received)) !== null && taken.answer.isWhole, withinMs);
    const found = taken ?? take(this.received);
    if (found === null) return { status: 0, headers: {}, body: this.text, isWhole: false };
    this.received = this.received.subarray(found.bytes);
    return found.answer;
  }

  close(): void {
    this.socket.destroy();
  }
}

function take(received: Buffer): { answer: RawAnswer; bytes: number } | null {
  const end = received.indexOf('\r\n\r\n');
  if (end < 0) return null;
  const [statusLine = '', ...lines] = received.toString('latin1', 0, end).split('\r\n');
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  const status = Number(statusLine.split(' ')[1]);
  const start = end + 4;
  const base = { status, headers };
  if (headers['transfer-encoding'] === 'chunked') {
    const chunks: Buffer[] = [];
    for (let at = start; ; ) {
      const lineEnd = received.indexOf('\r\n', at);
      const size = lineEnd < 0 ? Number.NaN : Number.parseInt(received.toString('latin1', at, lineEnd), 16);
      const from = lineEnd + 2;
      if (Number.isNaN(size) || received.length < from + size + 2)
        return { answer: { ...base, body: Buffer.concat(chunks).toString('utf8'), isWhole: false }, bytes: received.length };
      if (size === 0) return { answer: { ...base, body: Buffer.concat(chunks).toString('utf8'), isWhole: true }, bytes: from + 2 };
      chunks.push(received.subarray(from, from + size));
      at = from + size + 2;
    }
  }
  const length = headers['content-length'] === undefined ? 0 : Number(headers['content-length']);
  const body = received.subarray(start, start + length);
  return { answer: { ...base, body: body.toString('utf8'), isWhole: body.length === length }, bytes: start + body.length };
}

/** The head of a request with the usual headers; a value of null leaves one out. */
export function head(method: string, path: string, headers: Readonly<Record<string, string | null>> = {}, version = '1.1'): string {
  const all: Record<string, string | null> = { host: '127.0.0.1', authorization: 'Bearer good', ...headers };
  return `${method} ${path} HTTP/${version}\r\n${Object.entries(all)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')}\r\n`;
}

/** A whole request on a connection of its own. */
export async function ask(
  port: number,
  method: string,
  path: string,
  headers: Readonly<Record<string, string | null>> = {},
  body: string | Buffer | null = null,
): Promise<RawAnswer> {
  const client = await RawClient.to(port);
  const bytes = body === null ? null : Buffer.from(body as string);
  client.write(
    head(method, path, {
      ...(bytes === null ? {} : { 'content-type': 'application/json', 'content-length': String(bytes.length) }),
      ...headers,
    }),
  );
  if (bytes !== null) client.write(bytes);
  const answer = await client.answer();
  client.close();
  return answer;
}
