/**
 * A streamed answer to a caller inside the process: an iteration that ends only when the whole body has come, and throws when it
 * was cut. The reader sets the pace: the provider is asked for more when all that has come was read. Leaving the loop early
 * gives the call up, all the way to the agent.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import type { BodySink, BodySource, ReplyHeaders } from '../call/reply.ts';
import { ReachError, type Result, resultFrom, streamResult } from './result.ts';

export interface StreamHead {
  readonly status: number;
  /** '' = not said. */
  readonly contentType: string;
  readonly headers: ReplyHeaders;
  readonly provider: string | null;
  readonly version: string | null;
  readonly traceId: string;
}

/** Iterated once: pieces as they come, their borders mean nothing. */
export class ReachStream implements AsyncIterable<Buffer> {
  readonly #begin: (made: (call: Call) => void) => Promise<Call | Result<null>>;
  /** Made, and perhaps without a head yet. */
  #call: Call | null = null;
  #begun: Promise<Call> | null = null;
  #isTaken = false;
  #result: Result<null> | null = null;

  /** @internal */
  constructor(begin: (made: (call: Call) => void) => Promise<Call | Result<null>>) {
    this.#begin = begin;
  }

  /** The Result without data, once the stream has come to its end; null before. */
  get result(): Result<null> | null {
    return this.#result;
  }

  /** Makes the call, unless iterating has done so, and waits for the head. Throws `ReachError` when it failed before. */
  async head(): Promise<StreamHead> {
    const call = await this.#open();
    const headers = call.reply?.headers ?? {};
    const contentType = headers['content-type'];
    const served = call.staticBody === null ? call.chosen : null;
    return {
      status: call.status,
      contentType: typeof contentType === 'string' ? contentType : call.staticBody === null ? '' : 'application/json',
      headers,
      provider: served?.provider.agentId ?? null,
      version: served?.version.text ?? null,
      traceId: call.traceId,
    };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void, undefined> {
    if (this.#isTaken) throw new TypeError('a stream can be read once');
    this.#isTaken = true;
    const call = await this.#open();
    const source = call.reply?.stream ?? null;
    if (source === null || call.staticBody !== null) {
      const whole = call.staticBody ?? call.reply?.body;
      this.#result = streamResult(call);
      if (whole !== undefined && whole.length > 0) yield whole;
      return;
    }
    const reading = new Reading(source);
    source.pipe(reading);
    try {
      for (;;) {
        const chunk = await reading.next();
        if (chunk === null) break;
        yield chunk;
      }
      if (reading.code !== Code.ok) {
        if (call.code === Code.ok) call.code = reading.code;
        throw new ReachError(streamResult(call));
      }
      this.#result = streamResult(call);
    } finally {
      reading.leave();
    }
  }

  /** The values of an answer in lines (`application/x-ndjson`), one by one. */
  async *values<T = unknown>(): AsyncGenerator<T, void, undefined> {
    let rest: Buffer[] = [];
    for await (const chunk of this) {
      let from = 0;
      for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, from)) {
        const line = Buffer.concat([...rest, chunk.subarray(from, end)]).toString('utf8');
        rest = [];
        from = end + 1;
        if (line.trim() !== '') yield JSON.parse(line) as T;
      }
      if (from < chunk.length) rest.push(chunk.subarray(from));
    }
    const last = Buffer.concat(rest).toString('utf8');
    if (last.trim() !== '') yield JSON.parse(last) as T;
  }

  /** Gives the call up when it is not to be read. */
  async cancel(): Promise<void> {
    // Not after its head: it may be the head that does not come.
    this.#call?.cancel();
    const call = await this.#begun?.catch(() => null);
    call?.reply?.stream?.cancel(Code.cancelled, 'the caller gave the stream up');
  }

  #open(): Promise<Call> {
    this.#begun ??= this.#begin((made) => (this.#call = made)).then((call) => {
      if (!('way' in call)) throw new ReachError(call);
      if (call.code !== Code.ok) throw new ReachError(resultFrom(call));
      return call;
    });
    return this.#begun;
  }
}

const LINE_FEED = 0x0a;

class Reading implements BodySink {
  readonly #source: BodySource;
  #chunks: Buffer[] = [];
  #taken = 0;
  #isEnded = false;
  #isWaiting = false;
  code: Code = Code.ok;
  #wake: (() => void) | null = null;

  constructor(source: BodySource) {
    this.#source = source;
  }

  chunk(data: Buffer): boolean {
    this.#chunks.push(data);
    this.#awake();
    this.#isWaiting = true;
    return false;
  }

  end(): void {
    this.#isEnded = true;
    this.#awake();
  }

  cut(code: Code): void {
    this.#isEnded = true;
    this.code = code;
    this.#awake();
  }

  /** null = nothing comes any more. */
  async next(): Promise<Buffer | null> {
    for (;;) {
      if (this.#taken < this.#chunks.length) return this.#chunks[this.#taken++] as Buffer;
      this.#chunks = [];
      this.#taken = 0;
      if (this.#isEnded) return null;
      const woken = new Promise<void>((done) => (this.#wake = done));
      if (this.#isWaiting) {
        this.#isWaiting = false;
        this.#source.resume();
      }
      await woken;
    }
  }

  /** The reader has gone; harmless at the end. */
  leave(): void {
    if (!this.#isEnded) this.#source.cancel(Code.cancelled, 'the caller gave the stream up');
  }

  #awake(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }
}
