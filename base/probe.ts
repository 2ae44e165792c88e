/**
 * Asks a program of ours on this machine how it is, for health checks of containers and units, which have neither curl nor
 * a shell. It takes one answer a second until it is good or the time is over; what is judged is the status alone.
 */
import { request } from 'node:http';
import type { Clock } from './clock.ts';

/** One answer has so long: a program that needs more to say how it is, is not well. */
const ANSWER_MS = 3_000;
const AGAIN_MS = 500;

export interface Probed {
  readonly isGood: boolean;
  /** What was answered, or why nothing was. */
  readonly words: string;
}

/** Where a program on this machine is reached that listens there: every address of it is also its own. */
export function localUrl({ host, port }: { readonly host: string; readonly port: number }): string {
  const near = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return `http://${near.includes(':') ? `[${near}]` : near}:${port}`;
}

/**
 * @param waitMs how long it is asked again when the answer is not good; 0 = once
 * @param socketPath the Unix socket it listens on, null = a port
 */
export async function probe(url: string, waitMs: number, clock: Clock, socketPath: string | null = null): Promise<Probed> {
  const until = clock.now() + waitMs;
  for (;;) {
    const probed = await once(url, socketPath);
    if (probed.isGood || clock.now() + AGAIN_MS > until) return probed;
    await new Promise<void>((done) => void clock.after(AGAIN_MS, done));
  }
}

function once(url: string, socketPath: string | null): Promise<Probed> {
  return new Promise((done) => {
    const at = socketPath === null ? {} : { socketPath };
    const asked = request(url, { agent: false, timeout: ANSWER_MS, ...at }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => void chunks.push(chunk));
      response.on('error', () => done({ isGood: false, words: `${url}: the answer broke off` }));
      response.on('end', () => {
        const status = response.statusCode ?? 0;
        done({ isGood: status === 200, words: `${url}: ${status} ${statusIn(Buffer.concat(chunks).toString('utf8'))}`.trimEnd() });
      });
    });
    asked.on('timeout', () => asked.destroy(Object.assign(new Error(), { code: `no answer within ${ANSWER_MS / 1_000} s` })));
    asked.on('error', (error: NodeJS.ErrnoException) => done({ isGood: false, words: `${url}: ${error.code ?? error.message}` }));
    asked.end();
  });
}

/** The word by which the program itself says how it is. */
function statusIn(body: string): string {
  try {
    const { status } = JSON.parse(body) as { status?: unknown };
    return typeof status === 'string' ? status : '';
  } catch {
    return '';
  }
}
