/** What an agent needs to use its sidecar: an HTTP client and the shape of a Result. */
import { Pool } from 'undici';

export interface TraceLine {
  readonly at_ms: number;
  readonly stage: string;
  readonly reason: string;
  readonly words: string;
}

export interface AttemptLine {
  readonly provider: string;
  readonly code: number;
  readonly started: string;
}

/** A Result, or the problem document of a failure: both carry these fields. */
export interface Result {
  readonly code: number;
  readonly name?: string;
  readonly status: number;
  readonly data: unknown;
  readonly error: {
    readonly code: number;
    readonly name: string;
    readonly detail: string;
    readonly retryable: boolean;
    readonly ambiguous: boolean;
  } | null;
  readonly elapsed_ms: number;
  readonly degraded: boolean;
  readonly definitely_success: boolean;
  readonly provider: string | null;
  readonly version: string | null;
  readonly attempts: readonly AttemptLine[];
  readonly trace_id: string;
  readonly decision?: readonly TraceLine[];
}

type Headers = Readonly<Record<string, string>>;

interface Answer<T> {
  readonly status: number;
  readonly body: T;
}

export class Client {
  readonly #pool: Pool;
  readonly #token: string;

  constructor(url: string, token: string) {
    this.#pool = new Pool(url, { connections: 32, headersTimeout: 30_000, bodyTimeout: 30_000 });
    this.#token = token;
  }

  /** Calls a capability; the Result carries the decision trace. */
  async invoke(target: string, payload: unknown, headers: Headers = {}): Promise<Result> {
    const { body } = await this.#pool.request({
      method: 'POST',
      path: `/v1/invoke/${encodeURI(target)}`,
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': 'application/json', 'reach-explain': '1', ...headers },
      body: JSON.stringify(payload),
    });
    return (await body.json()) as Result;
  }

  /** Any request with our credential: the status, and the parsed answer. */
  async ask<T>(method: 'GET' | 'POST' | 'DELETE', path: string, payload?: unknown, headers: Headers = {}): Promise<Answer<T>> {
    const { statusCode, body } = await this.#pool.request({
      method,
      path,
      headers: { authorization: `Bearer ${this.#token}`, 'content-type': 'application/json', ...headers },
      body: payload === undefined ? null : JSON.stringify(payload),
    });
    return { status: statusCode, body: (await body.json()) as T };
  }

  /** A GET with our credential; the parsed answer. */
  async get<T>(path: string): Promise<T> {
    const { body } = await this.#pool.request({ method: 'GET', path, headers: { authorization: `Bearer ${this.#token}` } });
    return (await body.json()) as T;
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }
}

/** Works through `items`, at most `width` at once. */
export async function inParallel<T>(items: readonly T[], width: number, work: (item: T) => Promise<void>): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < items.length) await work(items[next++] as T);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, lane));
}
