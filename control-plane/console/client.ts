/**
 * The page's way to the API: same origin, with the session's cookie; changes carry what only a page of ours knows (CSRF). What
 * is refused comes back as a value with the API's own words. Each question ends, answered or not: a connection that is half open
 * never says so by itself. It keeps nothing.
 */
import type { Clock } from '../../base/clock.ts';
import type { Session } from './shapes.ts';

/** A refusal in the API's words; status 0 = there was no answer. */
export interface ApiProblem {
  readonly status: number;
  readonly code: number;
  readonly name: string;
  readonly detail: string;
  /** Mistakes in a document, with their places. */
  readonly mistakes: readonly string[];
}

export type Answer<T> = { readonly ok: T; readonly pending: string | null } | { readonly problem: ApiProblem };

export type Method = 'POST' | 'PUT' | 'DELETE';

type Fetch = (path: string, init: RequestInit) => Promise<Response>;

/** After so long there is no answer. Nothing that is read takes so long. */
const ASK_MS = 15_000;
/** Longer than an order that is passed on to the leader may take. */
const ORDER_MS = 45_000;

const CSRF = 'x-reach-csrf';
/** Says that an order was carried out and is not in the audit log yet. */
const PENDING = 'reach-audit-pending';

export class Client {
  /** Told by the session. */
  csrf = '';
  /** Called with each answer: whether the control plane could be reached. */
  onReach: (isReached: boolean) => void = () => {};
  /** Called when the session is over. */
  onSignedOut: () => void = () => {};
  /** Called when another window has signed in anew meanwhile, with the session that counts now. */
  onChanged: (session: Session) => void = () => {};
  readonly #fetch: Fetch;
  readonly #clock: Clock;

  constructor(fetch: Fetch, clock: Clock) {
    this.#fetch = fetch;
    this.#clock = clock;
  }

  async get<T>(path: string, withinMs = ASK_MS): Promise<Answer<T>> {
    return this.#ask<T>(path, { method: 'GET', headers: { accept: 'application/json' } }, withinMs);
  }

  /** @param withinMs after which it is not known whether the order was carried out (status 0) */
  async order<T>(method: Method, path: string, body?: unknown, withinMs = ORDER_MS): Promise<Answer<T>> {
    const { csrf } = this;
    const headers: Record<string, string> = { accept: 'application/json', [CSRF]: csrf };
    if (body !== undefined) headers['content-type'] = 'application/json';
    const answer = await this.#ask<T>(path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) }, withinMs);
    const isRefused = 'problem' in answer && answer.problem.status === 403;
    return isRefused ? ((await this.#otherSession(csrf)) ?? answer) : answer;
  }

  /**
   * The cookie is the browser's, and what an order carries is this window's: whether they still belong together. The order is not
   * repeated by itself, for it may be somebody else's now.
   */
  async #otherSession(csrf: string): Promise<{ readonly problem: ApiProblem } | null> {
    const now = await this.get<Session>('/v1/session');
    if (!('ok' in now) || now.ok.csrf === csrf) return null;
    this.onChanged(now.ok);
    const detail = `nothing was changed: this browser has signed in anew meanwhile, as ${now.ok.name} (${now.ok.role}), and so has this window now. Look, and order it again`;
    return { problem: { status: 403, code: 0, name: '', detail, mistakes: [] } };
  }

  async #ask<T>(path: string, init: RequestInit, withinMs: number): Promise<Answer<T>> {
    let response: Response;
    let text: string;
    const stop = new AbortController();
    const timer = this.#clock.after(withinMs, () => stop.abort());
    try {
      response = await this.#fetch(path, { ...init, credentials: 'same-origin', redirect: 'error', signal: stop.signal });
      text = await response.text();
    } catch {
      this.onReach(false);
      const detail = stop.signal.aborted
        ? `the control plane did not answer within ${Math.round(withinMs / 1_000)} s`
        : 'the control plane cannot be reached';
      return { problem: { status: 0, code: 0, name: '', detail, mistakes: [] } };
    } finally {
      timer.cancel();
    }
    this.onReach(true);
    const value = parsed(text);
    if (response.ok)
      return value === undefined && text !== ''
        ? { problem: { status: response.status, code: 0, name: '', detail: 'the answer is not JSON', mistakes: [] } }
        : { ok: value as T, pending: response.headers.get(PENDING) };
    if (response.status === 401 && !path.startsWith('/v1/session')) this.onSignedOut();
    return { problem: problemOf(response.status, value) };
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

export function problemOf(status: number, value: unknown): ApiProblem {
  const map = typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  const text = (name: string): string => (typeof map[name] === 'string' ? map[name] : '');
  const detail = text('detail');
  return {
    status,
    code: typeof map['code'] === 'number' ? map['code'] : 0,
    name: text('name'),
    detail: detail === '' ? `the control plane answered ${status}` : detail,
    mistakes: Array.isArray(map['problems']) ? map['problems'].map(mistake) : [],
  };
}

function mistake(value: unknown): string {
  const { file, line, column, message } = (value ?? {}) as { file?: unknown; line?: unknown; column?: unknown; message?: unknown };
  const place = typeof line === 'number' && line > 0 ? `:${line}${typeof column === 'number' ? `:${column}` : ''}` : '';
  return `${typeof file === 'string' ? file : ''}${place}${place === '' && (file === undefined || file === '') ? '' : ': '}${String(message)}`;
}
