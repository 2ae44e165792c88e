/** What an agent says of work that it has taken with 202 and goes on with: that it takes longer, and how it ended. */
import { Header } from '../../proto/wire/headers.ts';
import { parsed } from './answer.ts';
import { bodyOf, isBytes } from './ask.ts';
import type { Http } from './http.ts';
import { failureIn } from './task.ts';

export interface DoneOptions {
  /** The agent's own status: 200 … 299 (default 200) done, 400 … 599 it failed. */
  readonly status?: number;
  /** Of a result of bytes. Default: `application/octet-stream`. */
  readonly contentType?: string;
}

const LIMIT_MS = 15_000;

/** Rejects with a ReachError when it is not taken: it took too long and is somebody else's, or could not be stored yet. */
export async function tellDone(http: Http, taskId: string, result: unknown, { status, contentType }: DoneOptions): Promise<void> {
  const headers: Record<string, string> = {
    'content-type': isBytes(result) ? (contentType ?? 'application/octet-stream') : 'application/json',
  };
  if (status !== undefined) headers[Header.status] = String(status);
  const path = `/v1/tasks/${encodeURIComponent(taskId)}/done`;
  const answer = await http.ask({ method: 'POST', path, headers, body: bodyOf(result), signals: [], limitMs: LIMIT_MS });
  if (answer.status !== 200) throw failureIn(answer);
}

/** Milliseconds that it has from now on. */
export async function extend(http: Http, taskId: string): Promise<number> {
  const path = `/v1/tasks/${encodeURIComponent(taskId)}/extend`;
  const answer = await http.ask({ method: 'POST', path, headers: {}, body: null, signals: [], limitMs: LIMIT_MS });
  const leftMs = (parsed(answer.bytes) as { left_ms?: unknown } | undefined)?.left_ms;
  if (answer.status !== 200 || typeof leftMs !== 'number') throw failureIn(answer);
  return leftMs;
}
