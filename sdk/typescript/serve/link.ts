/**
 * One connection of the channel: says hello, beats, and has every call that comes answered. Ends with the connection; what
 * is under way then is given up, since there is nobody left to tell. When to connect again is decided in `channel.ts`.
 */
import { WebSocket } from 'ws';
import type { Timer } from '../../../base/clock.ts';
import { CHANNEL_WIRE, type ChannelAsk, ChannelMethod, WINDOW_BYTES } from '../../../proto/wire/channel.ts';
import { readFrame } from '../../../proto/wire/frame-reader.ts';
import { Frame } from '../../../proto/wire/frames.ts';
import { Code } from '../../../proto/wire/codes.ts';
import { ReachError } from '../error.ts';
import type { Settings } from '../options.ts';
import { ownFailure, resultFrom } from '../result.ts';
import { type Handlers, wordsOf } from './handlers.ts';
import { Running, type Wire } from './running.ts';

export interface Ended {
  /** Of the WebSocket; 1006 = it just broke. */
  readonly code: number;
  readonly reason: string;
}

type Fields = Readonly<Record<string, unknown>>;

interface Waiting {
  done(result: Fields): void;
  fail(error: ReachError): void;
}

const HANDSHAKE_MS = 10_000;
/** When the sidecar does not say. */
const MAX_MESSAGE_BYTES = 1_048_576;
const NO_SUCH_METHOD = -32601;

export class Link implements Wire {
  readonly ended: Promise<Ended>;
  /** As the sidecar knows it; '' before the hello. */
  agent = '';
  /** What the sidecar's table has it for on a channel, `name@version` each; null = the sidecar does not say. */
  offers: readonly unknown[] | null = null;
  readonly #settings: Settings;
  readonly #handlers: Handlers;
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, Waiting>();
  readonly #running = new Map<number, Running>();
  readonly #connected: Promise<void>;
  #nextId = 1;
  #windowBytes = WINDOW_BYTES;
  #maxMessageBytes = MAX_MESSAGE_BYTES;
  #heardAt: number;
  #beat: Timer | null = null;
  #whenIdle: (() => void) | null = null;
  /** It gets no more calls: what comes all the same is turned away. */
  #isLeaving = false;

  constructor(settings: Settings, handlers: Handlers, url: string) {
    this.#settings = settings;
    this.#handlers = handlers;
    this.#heardAt = settings.clock.now();
    const socket = new WebSocket(url, { perMessageDeflate: false, maxPayload: 0, handshakeTimeout: HANDSHAKE_MS });
    this.#socket = socket;
    this.#connected = new Promise((done, fail) => {
      socket.once('open', done);
      socket.once('error', fail);
    });
    this.#connected.catch(() => {});
    this.ended = new Promise((done) => {
      socket.once('close', (code, reason) => {
        this.#over();
        done({ code, reason: reason.toString('utf8') });
      });
    });
    // The close that follows says all there is to say.
    socket.on('error', () => {});
    socket.on('message', (data: Buffer, isBinary: boolean) => this.#heard(data, isBinary));
    socket.on('ping', () => (this.#heardAt = settings.clock.now()));
    socket.on('pong', () => (this.#heardAt = settings.clock.now()));
  }

  /** Rejects when the connection cannot be made or the sidecar does not want it. */
  async hello(): Promise<void> {
    try {
      await this.#connected;
    } catch (error) {
      throw new ReachError(ownFailure(Code.connect_timeout, `no channel to the sidecar: ${(error as Error).message}`, false, 0));
    }
    // What has taken the connection and says nothing is no sidecar, or one that stands still.
    const patience = this.#settings.clock.after(HANDSHAKE_MS, () => this.#socket.terminate());
    const told = await this.request(ChannelMethod.hello, { wire: CHANNEL_WIRE, metadata: { sdk: 'typescript' } }).finally(() =>
      patience.cancel(),
    );
    this.agent = typeof told['agent'] === 'string' ? told['agent'] : '';
    this.offers = Array.isArray(told['offers']) ? told['offers'] : null;
    this.#windowBytes = numberIn(told, 'window_bytes', WINDOW_BYTES);
    this.#maxMessageBytes = numberIn(told, 'max_message_bytes', MAX_MESSAGE_BYTES);
    this.#keepBeating(numberIn(told, 'heartbeat_ms', 45_000), numberIn(told, 'offline_ms', 135_000));
  }

  request(method: string, params: object): Promise<Fields> {
    const id = this.#nextId++;
    return new Promise((done, fail) => {
      this.#waiting.set(id, { done, fail });
      this.text({ jsonrpc: '2.0', id, method, params });
    });
  }

  text(message: object): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  binary(head: Buffer, payload: Buffer): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(Buffer.concat([head, payload]));
  }

  /** Takes nothing new, lets what is under way end within `graceMs`, then closes. */
  async leave(graceMs: number): Promise<void> {
    this.#isLeaving = true;
    if (this.#running.size > 0) {
      const idle = new Promise<void>((done) => {
        this.#whenIdle = done;
      });
      const grace = this.#settings.clock.after(graceMs, () => this.#whenIdle?.());
      await Promise.race([idle, this.ended]);
      grace.cancel();
    }
    this.#socket.close(1000);
    const patience = this.#settings.clock.after(1_000, () => this.#socket.terminate());
    await this.ended;
    patience.cancel();
  }

  terminate(): void {
    this.#socket.terminate();
  }

  #over(): void {
    this.#beat?.cancel();
    const lost = new ReachError(ownFailure(Code.connection_lost, 'the channel to the sidecar broke', true, 0));
    for (const waiting of this.#waiting.values()) waiting.fail(lost);
    this.#waiting.clear();
    for (const running of this.#running.values()) running.cancel();
  }

  #keepBeating(everyMs: number, offlineMs: number): void {
    const { clock } = this.#settings;
    const beat = (): void => {
      if (clock.now() - this.#heardAt > offlineMs) {
        this.#socket.terminate();
        return;
      }
      this.request(ChannelMethod.heartbeat, {}).catch(() => {});
      this.#beat = clock.after(everyMs, beat);
    };
    this.#beat = clock.after(everyMs, beat);
  }

  #heard(data: Buffer, isBinary: boolean): void {
    this.#heardAt = this.#settings.clock.now();
    if (isBinary) this.#frame(data);
    else {
      let message: Fields;
      try {
        message = JSON.parse(data.toString('utf8')) as Fields;
      } catch {
        this.#settings.log('the sidecar sent a message that is not JSON');
        this.#socket.close(1007);
        return;
      }
      this.#message(message);
    }
  }

  #frame(data: Buffer): void {
    const frame = readFrame(data);
    if (typeof frame === 'string' || frame.type !== Frame.credit) return;
    this.#running.get(frame.number)?.credited(frame.payload.readUInt32BE(0));
  }

  #message(message: Fields): void {
    const { method, id } = message;
    if (typeof method !== 'string') this.#answered(message);
    else if (method === ChannelMethod.invoke && typeof id === 'number') void this.#invoke(id, message['params'] as ChannelAsk);
    else if (method === ChannelMethod.cancel) this.#running.get((message['params'] as { id: number }).id)?.cancel();
    else if (id !== undefined)
      this.text({ jsonrpc: '2.0', id, error: { code: NO_SUCH_METHOD, message: `this agent does not understand ${method}` } });
  }

  #answered(message: Fields): void {
    const id = message['id'] as number;
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (waiting === undefined) return;
    const error = message['error'] as { message?: string; data?: unknown } | undefined;
    if (error === undefined) waiting.done((message['result'] ?? {}) as Fields);
    else {
      const told = resultFrom(error.data, false);
      const result = told === null || told.ok ? ownFailure(Code.invalid_request, String(error.message), false, 0) : told;
      waiting.fail(new ReachError(result));
    }
  }

  async #invoke(id: number, ask: ChannelAsk): Promise<void> {
    if (this.#isLeaving) {
      this.text({ jsonrpc: '2.0', id, error: { code: NO_SUCH_METHOD, message: 'this agent is stopping and takes no more calls' } });
      return;
    }
    const running = new Running(id, this, this.#windowBytes, this.#maxMessageBytes);
    this.#running.set(id, running);
    try {
      const isBytes = ask.payload_base64 !== undefined;
      const contentType = ask.content_type ?? (isBytes ? 'application/octet-stream' : 'application/json');
      const bytes = isBytes ? Buffer.from(ask.payload_base64, 'base64') : null;
      const payload = bytes === null ? (ask.payload ?? null) : contentType.startsWith('text/') ? bytes.toString('utf8') : bytes;
      const headers = { ...ask.headers, 'content-type': contentType };
      const { signal } = running;
      await running.answer(await this.#handlers.run({ capability: ask.capability, version: ask.version ?? '', payload, headers, signal }));
    } catch (error) {
      if (!running.signal.aborted) this.#settings.log(`the answer to ${ask.capability} was cut: ${wordsOf(error)}`);
      running.cut();
    } finally {
      this.#running.delete(id);
      if (this.#running.size === 0) this.#whenIdle?.();
    }
  }
}

function numberIn(fields: Fields, name: string, otherwise: number): number {
  const value = fields[name];
  return typeof value === 'number' && value > 0 ? value : otherwise;
}
