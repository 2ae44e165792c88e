/** A client of `/v1/stream` that reads at the test's pace: so much, not at all, or to the end; and can leave. */
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { type Rig, TOKEN } from './rig.ts';

export interface Reading {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  /** Waits until so many bytes, or what the function wants, have come; false when the stream ended before. */
  until(enough: number | ((text: string) => boolean)): Promise<boolean>;
  /** Everything to the end. */
  rest(): Promise<Read>;
  pause(): void;
  resume(): void;
  leave(): void;
}

export interface Read {
  /** It did not come to its proper end. */
  readonly cut: boolean;
  readonly text: string;
  readonly bytes: number;
}

export interface ReadingOptions {
  readonly payload?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Server-sent events instead of plain chunks. */
  readonly events?: boolean;
  /** Nothing is read before `resume`, and only counted, not kept, after it. */
  readonly paused?: boolean;
}

/** Resolves with the head. */
export async function openReading(rig: Rig, target: string, options: ReadingOptions = {}): Promise<Reading> {
  const body = JSON.stringify(options.payload ?? {});
  const response = await new Promise<IncomingMessage>((done, fail) => {
    const request = httpRequest(
      `${rig.url}/v1/stream/${target}`,
      {
        method: 'POST',
        agent: false,
        headers: {
          authorization: `Bearer ${TOKEN}`,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          ...(options.events === true ? { accept: 'text/event-stream' } : {}),
          ...options.headers,
        },
      },
      done,
    );
    request.on('error', fail);
    request.end(body);
  });
  return new ReadingResponse(response, options.paused === true);
}

class ReadingResponse implements Reading {
  readonly #response: IncomingMessage;
  readonly #chunks: Buffer[] = [];
  readonly #keeps: boolean;
  #bytes = 0;
  #over: 'no' | 'end' | 'cut' = 'no';
  #told: (() => void)[] = [];

  constructor(response: IncomingMessage, paused: boolean) {
    this.#response = response;
    this.#keeps = !paused;
    response.on('error', () => this.#end('cut'));
    response.on('aborted', () => this.#end('cut'));
    response.on('close', () => this.#end(response.complete ? 'end' : 'cut'));
    response.on('end', () => this.#end(response.complete ? 'end' : 'cut'));
    if (!paused) this.resume();
  }

  get status(): number {
    return this.#response.statusCode ?? 0;
  }

  get headers(): IncomingMessage['headers'] {
    return this.#response.headers;
  }

  async until(enough: number | ((text: string) => boolean)): Promise<boolean> {
    for (;;) {
      if (typeof enough === 'number' ? this.#bytes >= enough : enough(this.#text())) return true;
      if (this.#over !== 'no') return false;
      await new Promise<void>((done) => this.#told.push(done));
    }
  }

  async rest(): Promise<Read> {
    while (this.#over === 'no') await new Promise<void>((done) => this.#told.push(done));
    return { cut: this.#over === 'cut', text: this.#text(), bytes: this.#bytes };
  }

  pause(): void {
    this.#response.pause();
  }

  resume(): void {
    if (this.#response.listenerCount('data') === 0) this.#response.on('data', (chunk: Buffer) => this.#take(chunk));
    this.#response.resume();
  }

  leave(): void {
    this.#response.destroy();
  }

  #text(): string {
    return Buffer.concat(this.#chunks).toString('utf8');
  }

  #take(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#keeps) this.#chunks.push(chunk);
    this.#tell();
  }

  #end(how: 'end' | 'cut'): void {
    if (this.#over !== 'no') return;
    this.#over = how;
    this.#tell();
  }

  #tell(): void {
    const told = this.#told;
    this.#told = [];
    for (const tell of told) tell();
  }
}

/** The events of a text of server-sent events. */
export function eventsIn(text: string): { readonly event: string; readonly data: string }[] {
  return text
    .split('\n\n')
    .filter((block) => block !== '' && !block.startsWith(':'))
    .map((block) => {
      let event = 'message';
      const data: string[] = [];
      for (const line of block.split('\n')) {
        if (line.startsWith('event: ')) event = line.slice(7);
        else if (line.startsWith('data: ')) data.push(line.slice(6));
      }
      return { event, data: data.join('\n') };
    });
}
