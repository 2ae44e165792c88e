/**
 * The agent's end of a channel, written against `proto/wire/channel.ts` alone: dials in, says hello, asks, and answers what
 * it is asked. Keeps the bytes of payloads as they came.
 */
import { WebSocket } from 'ws';
import { valuesOf } from '../../base/json-values.ts';
import { CHANNEL_PATH, CHANNEL_WIRE, ChannelMethod } from '../../proto/wire/channel.ts';
import { readFrame } from '../../proto/wire/frame-reader.ts';
import { Frame, frameHead } from '../../proto/wire/frames.ts';

/** A message of the sidecar, parsed; `payload` are the bytes of `params.payload`. */
export interface ChannelMessage {
  readonly id?: number;
  readonly method?: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
  readonly params?: any;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  readonly result?: any;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  readonly error?: any;
}

export interface ChannelEvents {
  /** A request or notification of the sidecar. */
  readonly asked?: (message: ChannelMessage, payload: Buffer, peer: ChannelPeer) => void;
  readonly frame?: (type: number, stream: number, payload: Buffer) => void;
  readonly closed?: () => void;
}

/** The problem document with which a dial is refused; rejects when it is not. */
export async function refusedDial(url: string, token: string): Promise<unknown> {
  const socket = new WebSocket(`${url.replace(/^http/, 'ws')}${CHANNEL_PATH}`, { headers: { authorization: `Bearer ${token}` } });
  return await new Promise((done, fail) => {
    socket.once('open', () => {
      socket.terminate();
      fail(new Error('the dial was not refused'));
    });
    socket.once('error', fail);
    socket.once('unexpected-response', (_request, response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => done(JSON.parse(Buffer.concat(chunks).toString('utf8'))));
    });
  });
}

export class ChannelPeer {
  readonly #socket: WebSocket;
  readonly #events: ChannelEvents;
  readonly #waiting = new Map<number, (message: ChannelMessage) => void>();
  #lastId = 0;

  private constructor(socket: WebSocket, events: ChannelEvents) {
    this.#socket = socket;
    this.#events = events;
    socket.on('message', (data: Buffer, isBinary: boolean) => (isBinary ? this.#piece(data) : this.#said(data)));
    socket.on('close', () => {
      for (const tell of this.#waiting.values()) tell({ error: { message: 'the channel was closed' } });
      events.closed?.();
    });
    socket.on('error', () => undefined);
  }

  /** @param url of the sidecar. @param serve calls are taken as well. */
  static async dial(url: string, token: string, serve: boolean, events: ChannelEvents = {}): Promise<ChannelPeer> {
    return (await ChannelPeer.greet(url, token, { serve }, events)).peer;
  }

  /** As `dial`, with further members of the hello; `hello` is what it was answered with. */
  static async greet(
    url: string,
    token: string,
    said: object,
    events: ChannelEvents = {},
    // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
  ): Promise<{ readonly peer: ChannelPeer; readonly hello: any }> {
    const socket = new WebSocket(`${url.replace(/^http/, 'ws')}${CHANNEL_PATH}`, { headers: { authorization: `Bearer ${token}` } });
    await new Promise<void>((done, fail) => {
      socket.once('open', done);
      socket.once('error', fail);
      socket.once('unexpected-response', (_request, response) => fail(new Error(`HTTP ${response.statusCode}`)));
    });
    const peer = new ChannelPeer(socket, events);
    const { error, result } = await peer.ask(ChannelMethod.hello, JSON.stringify({ wire: CHANNEL_WIRE, ...said })).answer;
    if (error !== undefined) throw new Error(`hello was refused: ${JSON.stringify(error)}`);
    return { peer, hello: result };
  }

  get isOpen(): boolean {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  /** @param params JSON text */
  ask(method: string, params: string): { readonly id: number; readonly answer: Promise<ChannelMessage> } {
    const id = ++this.#lastId;
    const answer = new Promise<ChannelMessage>((done) => this.#waiting.set(id, done));
    this.send(`{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params}}`);
    return { id, answer };
  }

  send(text: string): void {
    this.#socket.send(text);
  }

  sendData(stream: number, payload: Buffer): void {
    this.#socket.send(Buffer.concat([frameHead(Frame.data, stream), payload]));
  }

  /** Nothing is read until `resume`. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** As a killed process would. */
  terminate(): void {
    this.#socket.terminate();
  }

  async close(): Promise<void> {
    if (this.#socket.readyState === WebSocket.CLOSED) return;
    const closed = new Promise<void>((done) => this.#socket.once('close', () => done()));
    this.#socket.close();
    await closed;
  }

  #said(data: Buffer): void {
    const message = JSON.parse(data.toString('utf8')) as ChannelMessage;
    if (message.method === undefined) {
      const tell = this.#waiting.get(message.id as number);
      this.#waiting.delete(message.id as number);
      tell?.(message);
      return;
    }
    const params = valuesOf(data, ['params'])?.[0] ?? null;
    const payload = params === null ? null : (valuesOf(params, ['payload'])?.[0] ?? null);
    this.#events.asked?.(message, payload ?? Buffer.alloc(0), this);
  }

  #piece(data: Buffer): void {
    const frame = readFrame(data);
    if (typeof frame === 'string') throw new Error(frame);
    this.#events.frame?.(frame.type, frame.number, frame.payload);
  }
}
