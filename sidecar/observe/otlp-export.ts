/**
 * Sends spans to a collector as OTLP over HTTP (protobuf). A request is closed when it is large enough, or a second after its first
 * span; what waits is bounded in bytes, and above that new spans are dropped and counted. What the collector cannot take now (429,
 * 502, 503, 504, no connection) is sent again after its own `Retry-After`, else after a pause that doubles, for a while; nothing
 * else is. The address is the operator's own: it is not held against the addresses that agents may register.
 */
import { Agent as HttpAgent, type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Clock, Timer } from '../../base/clock.ts';
import { printable } from '../../base/log.ts';
import type { Random } from '../../base/random.ts';
import { otlpHeaders, type OtlpSettings } from '../traces-config.ts';
import { type OtlpVerdict, verdictOf } from './otlp-answer.ts';
import { OtlpRequest, type OtlpResource } from './otlp-request.ts';
import { OtlpSpans } from './otlp-span.ts';
import type { SpanRecord } from './span-record.ts';
import type { SpanSink } from './spans.ts';

const compressed = promisify(gzip);

/** Of one request: well below the usual bound of collectors (4 MiB), and with its last span within the 1 MiB that its buffer grows to. */
const REQUEST_BYTES = 1_000_000;
const REQUEST_SPANS = 4_096;
const EVERY_MS = 1_000;
/** Requests on their way at once. */
const AT_ONCE = 2;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
/** After so many tries a request is given up: the collector does not take this one. */
const MOST_TRIES = 8;
/** Buffers that wait to be used again. */
const KEPT_BUFFERS = 4;
const MAX_ANSWER_BYTES = 16_384;

export interface OtlpCounts {
  /** Taken by the collector. */
  exported: number;
  /** It said that it did not take them (partial success), or refused the request. */
  rejected: number;
  /** There was no room, or they were given up. */
  dropped: number;
  requests: number;
  retries: number;
}

/** What sends one request, so that a test can put a script there. Rejects when there was no answer. */
export type OtlpPost = (body: Buffer, headers: Readonly<Record<string, string>>, timeoutMs: number) => Promise<OtlpVerdict>;

export interface OtlpParts {
  readonly clock: Clock;
  readonly random: Random;
  readonly settings: OtlpSettings;
  readonly resource: OtlpResource;
  readonly post: OtlpPost;
  readonly warn: (words: string) => void;
}

class Sending {
  readonly request: OtlpRequest;
  readonly body: Buffer;
  tries = 0;
  constructor(request: OtlpRequest, body: Buffer) {
    this.request = request;
    this.body = body;
  }
}

export class OtlpExport implements SpanSink {
  readonly counts: OtlpCounts = { exported: 0, rejected: 0, dropped: 0, requests: 0, retries: 0 };
  readonly #parts: OtlpParts;
  readonly #spans = new OtlpSpans();
  readonly #free: OtlpRequest[] = [];
  #open: OtlpRequest | null = null;
  #openTimer: Timer | null = null;
  #waiting: Sending[] = [];
  #waitingBytes = 0;
  #underWay = 0;
  #pauseMs = 0;
  /** Nothing is sent before it has fired. */
  #pause: Timer | null = null;
  #saidFailing = false;
  #isClosed = false;
  #onIdle: (() => void) | null = null;

  constructor(parts: OtlpParts) {
    this.#parts = parts;
  }

  take(record: SpanRecord): void {
    // What another sidecar tells as well would stand there twice.
    if (record.isAgain || this.#isClosed) return;
    const open = (this.#open ??= this.#begin());
    if (this.#waitingBytes + open.bytes > this.#parts.settings.queueBytes) {
      this.counts.dropped++;
      return;
    }
    open.add(this.#spans, record);
    if (open.bytes >= REQUEST_BYTES || open.spans >= REQUEST_SPANS) this.#close();
    else this.#openTimer ??= this.#parts.clock.after(EVERY_MS, this.#onTimer);
  }

  /** What is at hand is sent, once, and what has not been taken when the time is over is given up. */
  async stop(withinMs: number): Promise<void> {
    this.#close();
    this.#isClosed = true;
    this.#pause?.cancel();
    this.#pause = null;
    this.#sendOn();
    if (this.#underWay > 0) {
      let timer: Timer | null = null;
      await new Promise<void>((done) => {
        this.#onIdle = done;
        timer = this.#parts.clock.after(withinMs, done);
      });
      (timer as Timer | null)?.cancel();
    }
    for (const { request } of this.#waiting) this.counts.dropped += request.spans;
    this.#waiting = [];
  }

  readonly #onTimer = (): void => {
    this.#openTimer = null;
    this.#close();
  };

  #begin(): OtlpRequest {
    return this.#free.pop() ?? new OtlpRequest();
  }

  #close(): void {
    this.#openTimer?.cancel();
    this.#openTimer = null;
    const request = this.#open;
    if (request === null || request.spans === 0) return;
    this.#open = null;
    const body = request.close(this.#parts.resource);
    this.#waiting.push(new Sending(request, body));
    this.#waitingBytes += body.length;
    this.#sendOn();
  }

  #sendOn(): void {
    while (this.#pause === null && this.#underWay < AT_ONCE) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      void this.#send(next);
    }
  }

  /** Never rejects. */
  async #send(sending: Sending): Promise<void> {
    this.#underWay++;
    sending.tries++;
    const { request, body } = sending;
    const verdict = await this.#ask(body);
    this.#underWay--;
    if (verdict.kind === 'again' && sending.tries < MOST_TRIES && !this.#isClosed) {
      this.counts.retries++;
      this.#waiting.unshift(sending);
      this.#rest(verdict);
    } else {
      this.#judge(verdict, request.spans);
      this.#waitingBytes -= body.length;
      request.clear();
      if (this.#free.length < KEPT_BUFFERS) this.#free.push(request);
    }
    this.#sendOn();
    if (this.#underWay === 0) this.#onIdle?.();
  }

  async #ask(body: Buffer): Promise<OtlpVerdict> {
    const { settings, post } = this.#parts;
    const own = otlpHeaders(settings);
    if (own === null) return { kind: 'again', afterMs: 0, why: 'a header of traces.otlp.headers cannot be read' };
    this.counts.requests++;
    try {
      const headers: Record<string, string> = { ...own, 'content-type': 'application/x-protobuf' };
      if (settings.gzip) headers['content-encoding'] = 'gzip';
      return await post(settings.gzip ? await compressed(body, { level: 1 }) : body, headers, settings.timeoutMs);
    } catch (error) {
      return { kind: 'again', afterMs: 0, why: (error as NodeJS.ErrnoException).code ?? (error as Error).message };
    }
  }

  #judge(verdict: OtlpVerdict, spans: number): void {
    const { counts } = this;
    if (verdict.kind === 'taken') {
      const rejected = Math.min(spans, verdict.rejected);
      counts.exported += spans - rejected;
      counts.rejected += rejected;
      this.#pauseMs = 0;
      if (rejected === 0) this.#well();
      else this.#say(`took all but ${rejected} of ${spans} spans: ${verdict.why}`);
    } else if (verdict.kind === 'refused') {
      counts.rejected += spans;
      this.#say(`refuses spans: ${verdict.why}`);
    } else {
      counts.dropped += spans;
      this.#say(`takes no spans, and some are given up: ${verdict.why}`);
    }
  }

  #rest({ afterMs, why }: Extract<OtlpVerdict, { kind: 'again' }>): void {
    this.#say(`takes no spans at present: ${why}`);
    if (this.#pause !== null) return;
    this.#pauseMs = Math.min(LONGEST_PAUSE_MS, this.#pauseMs === 0 ? FIRST_PAUSE_MS : this.#pauseMs * 2);
    const { clock, random } = this.#parts;
    const pauseMs = afterMs > 0 ? afterMs : this.#pauseMs * (0.5 + random.next() / 2);
    this.#pause = clock.after(pauseMs, () => {
      this.#pause = null;
      this.#sendOn();
    });
  }

  #well(): void {
    if (this.#saidFailing) this.#parts.warn(`the collector ${this.#parts.settings.url} takes spans again`);
    this.#saidFailing = false;
  }

  /** Once for a run of troubles. */
  #say(words: string): void {
    if (this.#saidFailing) return;
    this.#saidFailing = true;
    this.#parts.warn(`the collector ${this.#parts.settings.url} ${printable(words, 512)}`);
  }
}

/** Over connections that are kept. `close` ends them. */
export async function otlpPost(url: string, clock: Clock): Promise<{ readonly post: OtlpPost; readonly close: () => void }> {
  const target = new URL(url);
  const isSecure = target.protocol === 'https:';
  // TLS costs memory: loaded only where it is used.
  const https = isSecure ? await import('node:https') : null;
  const options = { keepAlive: true, maxSockets: AT_ONCE };
  const agent = https === null ? new HttpAgent(options) : new https.Agent(options);
  const ask = https === null ? httpRequest : https.request;
  const post: OtlpPost = (body, headers, timeoutMs) =>
    new Promise((resolve, reject) => {
      const request: ClientRequest = ask(target, {
        method: 'POST',
        agent,
        headers: { ...headers, 'content-length': String(body.length) },
      });
      const timer = clock.after(timeoutMs, () => request.destroy(new Error('it does not answer in time')));
      request.on('close', () => timer.cancel());
      request.on('error', reject);
      request.on('response', (response: IncomingMessage) => {
        const parts: Buffer[] = [];
        let bytes = 0;
        response.on('data', (part: Buffer) => {
          bytes += part.length;
          if (bytes <= MAX_ANSWER_BYTES) parts.push(part);
        });
        response.on('error', reject);
        response.on('end', () => {
          const { statusCode = 0, headers: said } = response;
          resolve(verdictOf(statusCode, said['retry-after'], Buffer.concat(parts), clock.wallMs()));
        });
      });
      request.end(body);
    });
  return { post, close: () => agent.destroy() };
}
