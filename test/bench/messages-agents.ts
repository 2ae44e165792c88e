/**
 * Thousands of connections in one process, lean: all of them say hello; the first of them also submit messages and read their inboxes, and any
 * of them may be handed work, which it answers at once. Latency is taken within this process: a message carries the moment at which it
 * was submitted, and is looked for when it arrives at a worker.
 *
 * Told over IPC what to do: `dial`, `run` (saturate: so many messages unfinished at a time; pace: so many a second), `backlog`.
 */
import { connect, type Socket } from 'node:net';
import { quantile } from './figures.ts';

export type MessagesOrder =
  | { readonly do: 'dial'; readonly port: number; readonly count: number; readonly senders: number; readonly tokenPrefix: string }
  | {
      readonly do: 'run';
      readonly capability: string;
      readonly keyed: boolean;
      readonly lane: 'high' | 'normal' | 'low';
      /** Submitted and not finished at a time; 0 = at `ratePerSec`. */
      readonly window: number;
      readonly ratePerSec: number;
      readonly durationMs: number;
      /** Messages of the low lane that are to wait all the while. */
      readonly backlog: number;
      /** How long a worker takes for each. */
      readonly workMs: number;
      readonly seed: number;
    };

export interface MessagesRun {
  readonly accepted: number;
  readonly delivered: number;
  readonly finished: number;
  readonly refused: number;
  readonly words: string;
  readonly elapsedMs: number;
  readonly cpuUs: number;
  /** From submission to the worker, of what was not backlog. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Accepted and without an end when everything was over. */
  readonly lost: number;
}

const AT_ONCE = 64;
const MASK = Buffer.from([0x37, 0xfa, 0x21, 0x3d]);
const PONG = Buffer.from([0x8a, 0x80, ...MASK]);
const REQUEST = '{"jsonrpc":"2.0","id":';
const NOTIFICATION = '{"jsonrpc":"2.0","method":"reach.message"';
const RESULT_FIRST = '{"jsonrpc":"2.0","result"';
const ERROR_FIRST = '{"jsonrpc":"2.0","error"';
const RESUME = '{"jsonrpc":"2.0","id":"r","method":"reach.resume","params":{}}';
const RESUME_AGAIN_MS = 300;
const RESULT = ',"result":{"payload":{"ok":true}}}';
const AT = '"at":';
/** Submissions of a backlog under way at a time. */
const FILLING = 500;
const ACK_EVERY = 32;
const SETTLE_MS = 60_000;
const PADDING = 'x'.repeat(200);

function masked(text: string): Buffer {
  const bytes = Buffer.byteLength(text);
  const headBytes = (bytes < 126 ? 2 : 4) + 4;
  const frame = Buffer.allocUnsafe(headBytes + bytes);
  frame[0] = 0x81;
  if (bytes < 126) frame[1] = 0x80 | bytes;
  else {
    frame[1] = 0xfe;
    frame.writeUInt16BE(bytes, 2);
  }
  MASK.copy(frame, headBytes - 4);
  frame.write(text, headBytes, 'utf8');
  for (let i = headBytes; i < frame.length; i++) frame[i] = (frame[i] as number) ^ (MASK[(i - headBytes) & 3] as number);
  return frame;
}

class Tally {
  submitted = 0;
  accepted = 0;
  delivered = 0;
  finished = 0;
  refused = 0;
  words = '';
  readonly delays: number[] = [];
}

let tally = new Tally();
let workMs = 0;
let onFinished: () => void = () => undefined;
let onAccepted: () => void = () => undefined;

class Agent {
  readonly #socket: Socket;
  readonly #reads: boolean;
  readonly #done: (problem: string | null) => void;
  #held: Buffer | null = null;
  #isUp = false;
  #taken = 0;

  constructor(port: number, token: string, reads: boolean, done: (problem: string | null) => void) {
    this.#done = done;
    this.#reads = reads;
    this.#socket = connect({ host: '127.0.0.1', port, noDelay: true });
    this.#socket.write(
      `GET /v1/channel HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\nauthorization: Bearer ${token}\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n`,
    );
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk));
    this.#socket.on('error', () => {});
    this.#socket.on('close', () => done('a channel was closed'));
  }

  say(text: string): void {
    this.#socket.write(masked(text));
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
      this.say('{"jsonrpc":"2.0","id":"h","method":"reach.hello","params":{"wire":1}}');
      bytes = bytes.subarray(end + 4);
    }
    this.#socket.cork();
    while (bytes.length >= 2) {
      const short = (bytes[1] as number) & 0x7f;
      const headBytes = short < 126 ? 2 : short === 126 ? 4 : 10;
      if (bytes.length < headBytes) break;
      const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : bytes.readUInt32BE(6);
      if (bytes.length < headBytes + length) break;
      if (bytes[0] === 0x89) this.#socket.write(PONG);
      else this.#heard(bytes.toString('latin1', headBytes, headBytes + length));
      bytes = bytes.subarray(headBytes + length);
    }
    this.#socket.uncork();
    if (bytes.length > 0) this.#held = bytes;
  }

  #heard(text: string): void {
    if (text.startsWith(NOTIFICATION)) this.#told(text);
    else if (text.startsWith(REQUEST)) this.#asked(text);
    else if (text.startsWith(RESULT_FIRST)) this.#answered(text, true);
    else if (text.startsWith(ERROR_FIRST)) this.#answered(text, false);
    else if (!text.includes('reach.messages_end')) this.#done(`not understood: ${text.slice(0, 300)}`);
  }

  /** The end of a message that this one submitted. */
  #told(text: string): void {
    if (!text.includes('"state":"done"')) tally.words = text.slice(0, 600);
    if (++this.#taken % ACK_EVERY === 0) {
      const at = text.indexOf('"seq":') + 6;
      this.say(`{"jsonrpc":"2.0","method":"reach.ack","params":{"seq":${Number.parseInt(text.slice(at, at + 16), 10)}}}`);
    }
    tally.finished++;
    onFinished();
  }

  #asked(text: string): void {
    const end = text.indexOf(',', REQUEST.length);
    const id = text.slice(REQUEST.length, end);
    const at = text.indexOf(AT, end);
    if (at >= 0) {
      const sentAt = Number.parseFloat(text.slice(at + AT.length, at + AT.length + 20));
      tally.delivered++;
      if (sentAt > 0) tally.delays.push(performance.now() - sentAt);
    }
    if (workMs === 0) this.say(`${REQUEST}${id}${RESULT}`);
    else setTimeout(() => this.say(`${REQUEST}${id}${RESULT}`), workMs);
  }

  #answered(text: string, isFine: boolean): void {
    if (text.endsWith('"id":"c"}')) {
      if (isFine) {
        tally.accepted++;
        onAccepted();
      } else {
        tally.refused++;
        tally.words = text.slice(0, 600);
        onFinished();
      }
    } else if (text.endsWith('"id":"h"}')) {
      if (!isFine) this.#done(`no hello: ${text.slice(0, 300)}`);
      else if (this.#reads) this.say(RESUME);
      else this.#done(null);
    } else if (isFine) this.#done(null);
    // Its consumer is not there yet.
    else setTimeout(() => this.say(RESUME), RESUME_AGAIN_MS);
  }
}

const agents: Agent[] = [];
let senders = 0;
let nextSender = 0;
let nextKey = 0;

async function dial(order: Extract<MessagesOrder, { do: 'dial' }>): Promise<void> {
  let next = 0;
  let problem: string | null = null;
  senders = order.senders;
  const work = async (): Promise<void> => {
    while (next < order.count && problem === null) {
      const number = next++;
      const token = `${order.tokenPrefix}${number}`;
      const found = await new Promise<string | null>((done) => {
        agents[number] = new Agent(order.port, token, number < order.senders, done);
      });
      if (found !== null) problem = found;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  process.send?.(problem === null ? { connected: order.count } : { problem });
}

type Run = Extract<MessagesOrder, { do: 'run' }>;

function submit({ capability, keyed, seed }: Run, lane: string, isTimed: boolean): void {
  const key = keyed ? `,"power_id":"bench-${seed}-${nextKey++}"` : '';
  tally.submitted++;
  (agents[nextSender++ % senders] as Agent).say(
    `{"jsonrpc":"2.0","id":"c","method":"reach.cast","params":{"capability":"${capability}","priority":"${lane}"${key},"payload":{"at":${isTimed ? performance.now() : 0},"text":"${PADDING}"}}}`,
  );
}

const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

async function run(order: Run): Promise<void> {
  tally = new Tally();
  ({ workMs } = order);
  const { window, ratePerSec, durationMs, lane, backlog } = order;
  let end = Number.POSITIVE_INFINITY;
  const unfinished = (): number => tally.submitted - tally.finished - tally.refused;
  const topUp = (): void => {
    if (performance.now() >= end) return;
    if (window > 0) while (unfinished() < window) submit(order, lane, true);
    // What waits in the low lane is topped up as it is worked off, a little at a time.
    else while (unfinished() < backlog && tally.submitted - tally.accepted - tally.refused < FILLING) submit(order, 'low', false);
  };
  onFinished = topUp;
  onAccepted = backlog > 0 ? topUp : () => undefined;
  topUp();
  while (unfinished() < backlog) await sleep(20);
  const began = performance.now();
  const cpu = process.cpuUsage();
  const finishedBefore = tally.finished;
  end = began + durationMs;
  if (window > 0) await sleep(durationMs);
  else
    for (let sent = 0, everyMs = 1_000 / ratePerSec; performance.now() < end; await sleep(1))
      for (; sent * everyMs <= performance.now() - began; sent++) submit(order, lane, true);
  const elapsedMs = performance.now() - began;
  const { user, system } = process.cpuUsage(cpu);
  const atEnd = { accepted: tally.accepted, delivered: tally.delivered, finished: tally.finished - finishedBefore };
  onFinished = onAccepted = () => undefined;
  const settled = performance.now() + SETTLE_MS;
  while (tally.finished < tally.submitted - tally.refused && performance.now() < settled) await sleep(20);
  const delays = tally.delays.sort((a, b) => a - b);
  const result: MessagesRun = {
    ...atEnd,
    refused: tally.refused,
    words: tally.words,
    elapsedMs,
    cpuUs: user + system,
    p50Ms: quantile(delays, 0.5),
    p99Ms: quantile(delays, 0.99),
    lost: tally.submitted - tally.refused - tally.finished,
  };
  process.send?.(result);
}

if (process.channel !== undefined) {
  process.on('message', (order: MessagesOrder) => {
    if (order.do === 'dial') void dial(order);
    else void run(order);
  });
  process.on('disconnect', () => process.exit());
  process.send?.({ ready: true });
}
