/**
 * A client of `/v1/stream` that takes nothing for granted: it keeps every byte, the moment of the first one, and whether the
 * answer came to its proper end; `outcome` reads them in the form that was asked for.
 */
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { Frame, FRAMES_TYPE } from '../../proto/wire/frames.ts';
import { framesOf } from './frames.ts';
import { type Rig, TOKEN } from './rig.ts';
import { waitUntil } from './settle.ts';

export type Form = 'plain' | 'events' | 'frames';
export const FORMS: readonly Form[] = ['plain', 'events', 'frames'];

const ACCEPT: Readonly<Record<Form, string | null>> = { plain: null, events: 'text/event-stream', frames: FRAMES_TYPE };

const OURS: readonly string[] = ['error', 'end', 'going_away'];

/** What a client that knows the form makes of it. */
export interface Outcome {
  /**
   * `end` is the proper end; `error` was told in words; `going_away`: a sidecar stops, and says where to go on; `cut`: the connection
   * broke; `refused`: no stream came to be.
   */
  readonly ending: 'end' | 'error' | 'going_away' | 'cut' | 'refused';
  /** The bytes of the body without anything of the form (events: their data, one a line). */
  readonly data: string;
  /** The Result of the last event or frame, or the problem document; null where there is none. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
  readonly result: any;
}

export class StreamClient {
  readonly form: Form;
  status = 0;
  headers: IncomingMessage['headers'] = {};
  readonly chunks: Buffer[] = [];
  isOver = false;
  /** The last chunk of the answer has come. */
  isWhole = false;
  readonly startedAt = performance.now();
  firstMs = Number.NaN;
  overMs = Number.NaN;
  response: IncomingMessage | null = null;
  readonly #request: ReturnType<typeof httpRequest>;

  constructor(rig: Pick<Rig, 'url'>, target: string, form: Form, payload: unknown = {}, headers: Readonly<Record<string, string>> = {}) {
    this.form = form;
    const accept = ACCEPT[form];
    const body = JSON.stringify(payload);
    const all = {
      authorization: `Bearer ${TOKEN}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      ...(accept === null ? {} : { accept }),
      ...headers,
    };
    this.#request = httpRequest(`${rig.url}/v1/stream/${target}`, { method: 'POST', agent: false, headers: all }, (response) => {
      this.response = response;
      this.status = response.statusCode ?? 0;
      this.headers = response.headers;
      response.on('data', (chunk: Buffer) => {
        if (this.chunks.length === 0) this.firstMs = performance.now() - this.startedAt;
        this.chunks.push(chunk);
      });
      response.on('error', () => {});
      response.on('end', () => (this.isWhole = true));
      response.on('close', () => this.#over());
    });
    this.#request.on('error', () => this.#over());
    this.#request.end(body);
  }

  get bytes(): Buffer {
    return Buffer.concat(this.chunks);
  }

  get text(): string {
    return this.bytes.toString('utf8');
  }

  leave(): void {
    this.#request.destroy();
  }

  async over(withinMs = 10_000): Promise<Outcome> {
    await waitUntil('the stream is over', () => this.isOver, withinMs, 5);
    return this.outcome();
  }

  outcome(): Outcome {
    if (this.status !== 200) return { ending: 'refused', data: '', result: this.text === '' ? null : JSON.parse(this.text) };
    if (this.form === 'plain') return { ending: this.isWhole ? 'end' : 'cut', data: this.text, result: null };
    return this.form === 'frames' ? this.#frames() : this.#events();
  }

  #frames(): Outcome {
    const frames = framesOf(this.bytes);
    const data = frames.filter(([type]) => type === Frame.data).map(([, payload]) => payload);
    const last = frames.at(-1);
    const isTold = last !== undefined && (last[0] === Frame.end || last[0] === Frame.error);
    const result = isTold ? JSON.parse(Buffer.from(last[1], 'latin1').toString('utf8')) : null;
    const told = last?.[0] === Frame.end ? 'end' : result?.going_away === true ? 'going_away' : 'error';
    return {
      ending: isTold && this.isWhole ? told : 'cut',
      data: Buffer.from(data.join(''), 'latin1').toString('utf8'),
      result,
    };
  }

  /** A provider's own events end without one of ours. */
  #events(): Outcome {
    const events = eventsIn(this.text);
    const last = events.at(-1);
    const isOurs = last !== undefined && OURS.includes(last.type) && last.data.startsWith('{"code":');
    return {
      ending: !this.isWhole ? 'cut' : last?.type === 'error' || last?.type === 'going_away' ? last.type : 'end',
      data: (isOurs ? events.slice(0, -1) : events).map((event) => event.data).join('\n'),
      result: isOurs ? JSON.parse(last.data) : null,
    };
  }

  #over(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.overMs = performance.now() - this.startedAt;
  }
}

/** The events of a stream by the book: comments are none, an event without its empty line is dropped. */
export function eventsIn(text: string): { readonly type: string; readonly data: string }[] {
  const events: { type: string; data: string }[] = [];
  let type = '';
  let data: string[] = [];
  const lines = text.split(/\r\n|\r|\n/);
  lines.pop();
  for (const line of lines) {
    if (line === '') {
      if (data.length > 0) events.push({ type: type === '' ? 'message' : type, data: data.join('\n') });
      type = '';
      data = [];
    } else if (line.startsWith('event:')) type = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
  }
  return events;
}
