/**
 * Thousands of dial-in agents in one process, lean, so that the load does not distort what it measures: each is a raw socket
 * that has shaken hands, said hello, and answers every call with the same kilobyte. What it sends is masked, as a client's
 * must be, with a mask that the sidecar has to undo; the masked bytes are made once, with room for the id.
 *
 * Told over IPC which agents to be; answers `{connected}`, or `{problem}`. Later `{answered}` on `count`.
 */
import { connect, type Socket } from 'node:net';
import { ANSWER } from './payload.ts';

export type AgentsOrder =
  | { readonly do: 'dial'; readonly port: number; readonly count: number; readonly tokenPrefix: string }
  | { readonly do: 'count' };

/** Handshakes under way at once: what the other side's accept queue bears. */
const AT_ONCE = 64;
const ID_DIGITS = 12;
const MASK = Buffer.from([0x37, 0xfa, 0x21, 0x3d]);

function masked(payload: Buffer): Buffer {
  const head =
    payload.length < 126
      ? Buffer.from([0x81, 0x80 | payload.length])
      : Buffer.from([0x81, 0xfe, payload.length >> 8, payload.length & 0xff]);
  const frame = Buffer.concat([head, MASK, payload]);
  for (let i = head.length + 4; i < frame.length; i++) frame[i] = (frame[i] as number) ^ (MASK[(i - head.length - 4) & 3] as number);
  return frame;
}

const BEFORE_ID = '{"jsonrpc":"2.0","id":';
const TEMPLATE = masked(
  Buffer.concat([Buffer.from(`${BEFORE_ID}${' '.repeat(ID_DIGITS)},"result":{"payload":`), ANSWER, Buffer.from('}}')]),
);
const ID_AT = 8 + BEFORE_ID.length;
const HELLO = masked(Buffer.from('{"jsonrpc":"2.0","id":"h","method":"reach.hello","params":{"wire":1}}'));
const PONG = Buffer.from([0x8a, 0x80, ...MASK]);

function answerTo(id: string): Buffer {
  const frame = Buffer.from(TEMPLATE);
  const from = ID_AT + ID_DIGITS - id.length;
  for (let i = 0; i < id.length; i++) frame[from + i] = id.charCodeAt(i) ^ (MASK[(from + i - 8) & 3] as number);
  return frame;
}

let answered = 0;
const agents: Agent[] = [];

class Agent {
  readonly #socket: Socket;
  #held: Buffer | null = null;
  #isUp = false;
  readonly #done: (problem: string | null) => void;

  constructor(port: number, token: string, done: (problem: string | null) => void) {
    this.#done = done;
    this.#socket = connect({ host: '127.0.0.1', port, noDelay: true });
    this.#socket.write(
      `GET /v1/channel HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\nauthorization: Bearer ${token}\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n`,
    );
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk));
    this.#socket.on('error', () => {});
    this.#socket.on('close', () => done('a channel was closed'));
  }

  #read(chunk: Buffer): void {
    let bytes = this.#held === null ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = null;
    if (!this.#isUp) {
      const end = bytes.indexOf('\r\n\r\n');
      if (end < 0) {
        this.#held = bytes;
        return;
      }
      const head = bytes.toString('latin1', 0, end);
      if (!head.startsWith('HTTP/1.1 101 ')) {
        this.#done(`no WebSocket: ${bytes.toString('utf8', 0, 300)}`);
        return;
      }
      this.#isUp = true;
      this.#socket.write(HELLO);
      bytes = bytes.subarray(end + 4);
    }
    while (bytes.length >= 2) {
      const short = (bytes[1] as number) & 0x7f;
      const headBytes = short < 126 ? 2 : short === 126 ? 4 : 10;
      if (bytes.length < headBytes) break;
      const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : bytes.readUInt32BE(6);
      if (bytes.length < headBytes + length) break;
      this.#frame(bytes[0] as number, bytes, headBytes, headBytes + length);
      bytes = bytes.subarray(headBytes + length);
    }
    if (bytes.length > 0) this.#held = bytes;
  }

  #frame(first: number, bytes: Buffer, from: number, to: number): void {
    if (first === 0x89) {
      this.#socket.write(PONG);
      return;
    }
    // Requests begin `{"jsonrpc":"2.0","id":7,"method":…`; the answer to hello has its result first.
    let at = from + BEFORE_ID.length;
    const digits = at;
    while (at < to && (bytes[at] as number) >= 0x30 && (bytes[at] as number) <= 0x39) at++;
    if (at === digits) {
      this.#done(bytes.includes('"result"', from) ? null : `not a request: ${bytes.toString('utf8', from, Math.min(to, from + 300))}`);
      return;
    }
    answered++;
    this.#socket.write(answerTo(bytes.toString('latin1', digits, at)));
  }
}

async function dial(order: Extract<AgentsOrder, { do: 'dial' }>): Promise<void> {
  let next = 0;
  const end = order.count;
  let problem: string | null = null;
  const work = async (): Promise<void> => {
    while (next < end && problem === null) {
      const number = next++;
      const found = await new Promise<string | null>((done) => agents.push(new Agent(order.port, `${order.tokenPrefix}${number}`, done)));
      if (found !== null) problem = found;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  process.send?.(problem === null ? { connected: order.count } : { problem });
}

if (process.channel !== undefined) {
  process.on('message', (order: AgentsOrder) => {
    if (order.do === 'dial') void dial(order);
    else process.send?.({ answered });
  });
  process.on('disconnect', () => process.exit());
  process.send?.({ ready: true });
}
