/**
 * How reachctl speaks to the control plane: one server named by the user, and from there to whoever leads. What goes wrong
 * is one sentence and an exit code that scripts can tell apart.
 */
import type { Clock } from '../../base/clock.ts';
import { printable } from '../../base/log.ts';
import type { Problem } from '../../proto/language/types.ts';

export const Exit = { ok: 0, refused: 1, usage: 2, unreachable: 3 } as const;
export type Exit = (typeof Exit)[keyof typeof Exit];

/** Ends a command: what to say on stderr, and the code. */
export class Failed extends Error {
  readonly exit: Exit;
  readonly lines: readonly string[];
  /** The server's own words, for `--json`. */
  readonly body: unknown;
  constructor(exit: Exit, lines: readonly string[], body: unknown = null) {
    super(lines.join('\n'));
    this.exit = exit;
    this.lines = lines;
    this.body = body;
  }
}

export interface Request {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly path: string;
  readonly query?: Readonly<Record<string, string | null>>;
  readonly json?: unknown;
  readonly text?: string;
}

const MAX_REDIRECTS = 4;
const UNAUDITED = 'reach-audit-pending';

export class Client {
  readonly #server: string;
  readonly #token: string | null;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #warn: (line: string) => void;

  /** @param warn hears what is to be known of an order that was carried out all the same */
  constructor(server: string, token: string | null, timeoutMs: number, clock: Clock, warn: (line: string) => void = () => {}) {
    this.#server = server.replace(/\/+$/, '');
    this.#token = token;
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
    this.#warn = warn;
  }

  /** The answer's JSON; throws `Failed` for everything else. @param abort by which it can be given up before it has come */
  async call(request: Request, abort: AbortController | null = null): Promise<unknown> {
    const text = await this.text(request, abort);
    try {
      return JSON.parse(text) as unknown;
    } catch {
      throw new Failed(Exit.refused, [`${this.#server} answered with something that is not JSON; is it a control plane?`]);
    }
  }

  /** The answer as it is written. */
  async text(request: Request, abort: AbortController | null = null): Promise<string> {
    const response = await this.#send(request, abort);
    try {
      return await response.text();
    } catch {
      throw new Failed(Exit.unreachable, [`the connection to ${this.#server} was lost`]);
    }
  }

  /** Server-sent events, until the server ends them or `onEvent` says false. */
  async events(request: Request, onEvent: (name: string, data: unknown) => boolean): Promise<void> {
    const abort = new AbortController();
    const response = await this.#send(request, abort);
    if (response.body === null) return;
    const decoder = new TextDecoder();
    let rest = '';
    try {
      for await (const chunk of response.body as AsyncIterable<Uint8Array>) {
        rest += decoder.decode(chunk, { stream: true });
        for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
          const block = rest.slice(0, end);
          rest = rest.slice(end + 2);
          const event = eventOf(block);
          if (event !== null && !onEvent(event.name, event.data)) {
            abort.abort();
            return;
          }
        }
      }
    } catch {
      throw new Failed(Exit.unreachable, [`the connection to ${this.#server} was lost`]);
    }
  }

  async #send(request: Request, abort: AbortController | null = null): Promise<Response> {
    let url = `${this.#server}${request.path}${queryOf(request.query ?? {})}`;
    for (let hop = 0; hop <= MAX_REDIRECTS; hop++) {
      const response = await this.#fetch(url, request, abort ?? new AbortController());
      const location = response.headers.get('location');
      if (response.status === 307 && location !== null) {
        await response.arrayBuffer().catch(() => undefined);
        url = location;
        continue;
      }
      const unaudited = response.headers.get(UNAUDITED);
      if (unaudited !== null)
        this.#warn(
          `done, and not in the audit log yet (${printable(unaudited, 300)}): the replica keeps the entry and writes it as soon as it can`,
        );
      if (response.ok) return response;
      throw failure(response.status, await response.text().catch(() => ''), url);
    }
    throw new Failed(Exit.unreachable, [
      'the replicas send one another round in a circle: an election is under way; try again in a few seconds',
    ]);
  }

  async #fetch(url: string, request: Request, abort: AbortController): Promise<Response> {
    const headers: Record<string, string> = { accept: 'application/json' };
    if (this.#token !== null) headers['authorization'] = `Bearer ${this.#token}`;
    let body: string | undefined;
    if (request.json !== undefined) {
      headers['content-type'] = 'application/json';
      body = JSON.stringify(request.json);
    } else if (request.text !== undefined) {
      headers['content-type'] = 'application/yaml';
      body = request.text;
    }
    let isLate = false;
    const timer = this.#clock.after(this.#timeoutMs, () => {
      isLate = true;
      abort.abort();
    });
    try {
      return await fetch(url, {
        method: request.method ?? 'GET',
        headers,
        ...(body === undefined ? {} : { body }),
        redirect: 'manual',
        signal: abort.signal,
      });
    } catch (error) {
      if (isLate) throw new Failed(Exit.unreachable, [`${originOf(url)} does not answer within ${this.#timeoutMs / 1_000} s`]);
      throw new Failed(Exit.unreachable, [
        `${originOf(url)} cannot be reached (${causeOf(error)}); name another with --server or REACH_SERVER`,
      ]);
    } finally {
      timer.cancel();
    }
  }
}

interface ProblemBody {
  readonly detail?: unknown;
  readonly code?: unknown;
  readonly name?: unknown;
  readonly problems?: unknown;
}

function failure(status: number, text: string, url: string): Failed {
  let body: ProblemBody | null = null;
  try {
    body = JSON.parse(text) as ProblemBody;
  } catch {
    // Said below in our own words.
  }
  const detail = typeof body?.detail === 'string' ? printable(body.detail) : `${originOf(url)} answered ${status}`;
  if (status === 401)
    return new Failed(Exit.refused, ['the control plane does not know this token: give it with --token or REACH_TOKEN'], body);
  if (Array.isArray(body?.problems)) return new Failed(Exit.refused, [...(body.problems as Problem[]).map(problemWords), detail], body);
  return new Failed(status === 503 || status === 502 || status === 504 ? Exit.unreachable : Exit.refused, [detail], body);
}

/** `file:line:column: sentence`, as editors and compilers write it. */
export function problemWords(problem: Problem): string {
  const place = problem.line > 0 ? `:${problem.line}:${problem.column}` : '';
  return `${printable(problem.file)}${place}: ${printable(problem.message)}`;
}

function queryOf(query: Readonly<Record<string, string | null>>): string {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== null) parts.set(key, value);
  const text = parts.toString();
  return text === '' ? '' : `?${text}`;
}

function originOf(url: string): string {
  try {
    return new URL(url).origin;
  } catch {
    return url;
  }
}

function causeOf(error: unknown): string {
  const cause = (error as { cause?: { code?: unknown; message?: unknown } }).cause;
  if (typeof cause?.code === 'string') return cause.code;
  if (typeof cause?.message === 'string') return cause.message;
  return error instanceof Error ? error.message : String(error);
}

function eventOf(block: string): { readonly name: string; readonly data: unknown } | null {
  let name = 'message';
  let data = '';
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) name = line.slice(7);
    else if (line.startsWith('data: ')) data += line.slice(6);
  }
  if (data === '') return null;
  try {
    return { name, data: JSON.parse(data) as unknown };
  } catch {
    return null;
  }
}
