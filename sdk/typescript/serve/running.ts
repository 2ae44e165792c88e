/** One call that the sidecar has sent over the channel, until its answer is out. */
import { ChannelMethod } from '../../../proto/wire/channel.ts';
import { Frame, frameHead } from '../../../proto/wire/frames.ts';
import type { Answer } from './handlers.ts';

/** The connection as an answer sees it. Both are harmless when it is gone. */
export interface Wire {
  text(message: object): void;
  binary(head: Buffer, payload: Buffer): void;
}

/** A data frame; small enough that answers of several calls share the connection fairly. */
const FRAME_BYTES = 65_536;
/** A larger answer goes in frames: a message has a limit, and would hold up everything behind it. */
const WHOLE_BYTES = 1_048_576;
/** JSON-RPC's range for what an implementation defines: the agent's own error. */
const AGENT_ERROR = -32000;

export class Running {
  readonly #id: number;
  readonly #wire: Wire;
  readonly #cancelled = new AbortController();
  readonly #wholeBytes: number;
  #credit: number;
  #whenCredited: (() => void) | null = null;

  constructor(id: number, wire: Wire, windowBytes: number, maxMessageBytes: number) {
    this.#id = id;
    this.#wire = wire;
    this.#credit = windowBytes;
    // Base64 is a third longer, and an object is told with what stands around it.
    this.#wholeBytes = Math.min(WHOLE_BYTES, Math.floor(maxMessageBytes / 2));
  }

  get signal(): AbortSignal {
    return this.#cancelled.signal;
  }

  cancel(): void {
    this.#cancelled.abort();
    this.#whenCredited?.();
  }

  /** The sidecar takes so many bytes more. */
  credited(bytes: number): void {
    this.#credit += bytes;
    this.#whenCredited?.();
  }

  async answer(answer: Answer): Promise<void> {
    const { body } = answer;
    // An error as well: a message above the limit would end the connection, and with it every other call.
    if (body.kind === 'stream') await this.#stream(answer, body.chunks);
    else if (body.kind === 'json') {
      if (Buffer.byteLength(body.text) > this.#wholeBytes) await this.#stream(answer, one(Buffer.from(body.text)));
      else this.#whole(answer, { payload: body.value });
    } else if (body.bytes.length > this.#wholeBytes) await this.#stream(answer, one(body.bytes));
    else this.#whole(answer, { payload_base64: body.bytes.toString('base64') });
  }

  /** The stream broke after its head: an error says so. */
  cut(): void {
    if (!this.signal.aborted)
      this.#wire.text({ jsonrpc: '2.0', id: this.#id, error: { code: AGENT_ERROR, message: 'the stream was cut' } });
  }

  #whole(answer: Answer, payload: object): void {
    if (this.signal.aborted) return;
    const told = { ...payload, status: answer.status, content_type: answer.contentType, headers: answer.headers };
    if (answer.status < 400) this.#wire.text({ jsonrpc: '2.0', id: this.#id, result: told });
    else {
      const error = { code: AGENT_ERROR, message: `the agent answered ${answer.status}`, data: told };
      this.#wire.text({ jsonrpc: '2.0', id: this.#id, error });
    }
  }

  async #stream(answer: Answer, chunks: AsyncIterator<Buffer>): Promise<void> {
    let isWhole = false;
    try {
      const params = { id: this.#id, status: answer.status, content_type: answer.contentType, headers: answer.headers };
      this.#wire.text({ jsonrpc: '2.0', method: ChannelMethod.head, params });
      for (;;) {
        const step = await chunks.next();
        if (step.done === true) break;
        await this.#send(step.value);
        if (this.signal.aborted) return;
      }
      isWhole = true;
      this.#wire.text({ jsonrpc: '2.0', id: this.#id, result: {} });
    } finally {
      if (!isWhole) await chunks.return?.();
    }
  }

  async #send(chunk: Buffer): Promise<void> {
    for (let at = 0; at < chunk.length && !this.signal.aborted; ) {
      while (this.#credit <= 0 && !this.signal.aborted) await this.#credits();
      const piece = chunk.subarray(at, at + Math.min(FRAME_BYTES, Math.max(1, this.#credit)));
      at += piece.length;
      this.#credit -= piece.length;
      if (!this.signal.aborted) this.#wire.binary(frameHead(Frame.data, this.#id), piece);
    }
  }

  #credits(): Promise<void> {
    return new Promise((done) => {
      this.#whenCredited = () => {
        this.#whenCredited = null;
        done();
      };
    });
  }
}

async function* one(bytes: Buffer): AsyncGenerator<Buffer, void, undefined> {
  yield bytes;
}
