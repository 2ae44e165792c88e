/**
 * When the NATS servers flush to their disks what they have acknowledged, which is what a power loss costs. Only their monitors say so
 * (`/jsz?config=1`), and only since 2.10; whoever does not name the monitors, or has older servers, is told that it is unknown. Asked
 * when somebody wants to see it, and not again within half a minute.
 */
import { request as requestHttp, type IncomingMessage } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Clock } from '../base/clock.ts';
import { formatDuration } from '../base/duration.ts';

const KEEPS_MS = 30_000;
const TIMEOUT_MS = 2_000;
const MOST_BYTES = 1_048_576;
const NANOS_PER_MS = 1_000_000;

/** Of one server; null = it does not say. */
export interface Flush {
  /** 0 = before it acknowledges. */
  readonly everyMs: number | null;
  /** Why it is not known; '' = it is. */
  readonly why: string;
}

/** What a monitor's answer says. Pure. */
export function flushIn(answer: string): Flush {
  let config: Readonly<Record<string, unknown>> | null = null;
  try {
    config = (JSON.parse(answer) as { readonly config?: Readonly<Record<string, unknown>> }).config ?? null;
  } catch {
    return { everyMs: null, why: 'the monitor’s answer is no JSON' };
  }
  if (config === null || typeof config !== 'object') return { everyMs: null, why: 'JetStream is not on' };
  if (config['sync_always'] === true) return { everyMs: 0, why: '' };
  const every = config['sync_interval'];
  if (typeof every === 'number' && every > 0) return { everyMs: Math.round(every / NANOS_PER_MS), why: '' };
  return { everyMs: null, why: 'this version of nats-server does not say' };
}

/** One word or a few for all of them: what the worst one does. Pure. */
export function flushWords(all: readonly Flush[]): string {
  const unknown = all.find(({ everyMs }) => everyMs === null);
  if (unknown !== undefined) return `unknown (${unknown.why})`;
  const everyMs = Math.max(...all.map((each) => each.everyMs ?? 0));
  return everyMs === 0 ? 'always' : `every ${formatDuration(everyMs)}`;
}

export class NatsFlush {
  readonly #monitors: readonly string[];
  readonly #clock: Clock;
  #words: Promise<string> | null = null;
  #askedAt = Number.NEGATIVE_INFINITY;

  /** @param monitors such as `http://127.0.0.1:8222`, one of each server; empty = nobody is asked */
  constructor(monitors: readonly string[], clock: Clock) {
    this.#monitors = monitors;
    this.#clock = clock;
  }

  words(): Promise<string> {
    if (this.#monitors.length === 0) return Promise.resolve('unknown (control_plane.nats.monitor is not set)');
    const now = this.#clock.now();
    if (this.#words === null || now - this.#askedAt >= KEEPS_MS) {
      this.#askedAt = now;
      this.#words = Promise.all(this.#monitors.map((monitor) => this.#ask(monitor))).then(flushWords);
    }
    return this.#words;
  }

  #ask(monitor: string): Promise<Flush> {
    return new Promise((done) => {
      const target = new URL('/jsz?config=1', monitor);
      const end = (flush: Flush): void => {
        timer.cancel();
        request.destroy();
        done(flush);
      };
      const unknown = (why: string): void => end({ everyMs: null, why: `${target.host}: ${why}` });
      const timer = this.#clock.after(TIMEOUT_MS, () => unknown(`no answer within ${TIMEOUT_MS / 1_000} s`));
      const request = (target.protocol === 'https:' ? requestHttps : requestHttp)(target, { agent: false });
      request.on('response', (response: IncomingMessage) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (piece: string) => {
          text += piece;
          if (text.length > MOST_BYTES) unknown('its answer is too long');
        });
        response.on('error', (error) => unknown(error.message));
        response.on('end', () => (response.statusCode === 200 ? end(flushIn(text)) : unknown(`it answered ${response.statusCode}`)));
      });
      request.on('error', (error: NodeJS.ErrnoException) => unknown(error.code ?? error.message));
      request.end();
    });
  }
}
