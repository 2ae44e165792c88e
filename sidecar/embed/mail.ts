/** An agent's inbox and the work that it has taken, from inside the process: what `/v1/inbox` and `/v1/tasks/{id}/done` are over HTTP. */
import { Code } from '../../proto/wire/codes.ts';
import type { Front } from '../accept/front.ts';
import { entryText, NO_INBOX } from '../accept/inbox-text.ts';
import type { Reported } from '../deliver/door.ts';
import type { InboxRefusal } from '../inbox/door.ts';
import { encoded } from './body.ts';

/** As `GET /v1/inbox` has it: position, what the sender or the task says, and `data`. */
export interface MailEntry {
  readonly seq: number;
  /** `state`: what became of a task of this agent; `message`: from another agent. */
  readonly kind: 'state' | 'message';
  readonly task_id: string;
  readonly data: unknown;
  readonly [field: string]: unknown;
}

export interface MailOptions {
  /** The position that is wanted next; default: after what is acknowledged. */
  readonly from?: number;
  /** Default 100. */
  readonly limit?: number;
  /** Milliseconds to wait for the first entry. */
  readonly waitMs?: number;
  readonly as?: string;
}

export type Mail =
  | { readonly ok: true; readonly entries: readonly MailEntry[]; readonly next: number; readonly floor: number }
  | InboxRefusal
  | { readonly ok: false; readonly why: 'none'; readonly from: 0; readonly detail: string };

export interface DoneOptions {
  /** 200 … 299 (default 200) done, 400 … 599 it failed. */
  readonly status?: number;
  /** Of a result of bytes. Default: `application/octet-stream`. */
  readonly contentType?: string;
  readonly as?: string;
}

const LIMIT = 100;
const MAX_LIMIT = 1_000;
const NONE = Object.freeze({ ok: false, why: 'none', from: 0, detail: NO_INBOX } as const);

export class Mailroom {
  readonly #front: Front;

  constructor(front: Front) {
    this.#front = front;
  }

  async read(agent: string, { from, limit = LIMIT, waitMs = 0 }: MailOptions): Promise<Mail> {
    if (!Number.isInteger(limit) || limit < 1 || limit > MAX_LIMIT) throw new TypeError(`limit is 1 to ${MAX_LIMIT}, not ${String(limit)}`);
    const { inbox } = this.#front;
    if (inbox === null) return NONE;
    const page = await inbox.read(agent, from ?? null, limit, waitMs);
    if (!page.ok) return page;
    const entries = page.entries.map((entry) => JSON.parse(entryText(entry).toString('utf8')) as MailEntry);
    return { ok: true, entries, next: page.next, floor: page.floor };
  }

  async acknowledge(agent: string, seq: number): Promise<{ readonly ok: true; readonly floor: number } | Extract<Mail, { ok: false }>> {
    return (await this.#front.inbox?.acknowledge(agent, seq)) ?? NONE;
  }

  async done(agent: string, taskId: string, result: unknown, { status = 200, contentType }: DoneOptions): Promise<Reported> {
    const isStatus = Number.isInteger(status) && status >= 200 && status <= 599 && (status < 300 || status >= 400);
    if (!isStatus) throw new TypeError(`a status is 200 … 299 (done) or 400 … 599 (it failed), not ${String(status)}`);
    const { work } = this.#front;
    if (work === null) return 'unknown';
    const { bytes, contentType: own } = encoded(result ?? null);
    const isOwn = !(result instanceof Uint8Array) || contentType === undefined;
    return await work.done(agent, taskId, {
      code: status >= 400 ? Code.provider_error : Code.ok,
      status,
      contentType: isOwn ? own : contentType,
      body: bytes,
      detail: '',
    });
  }

  extend(agent: string, taskId: string): number | null {
    return this.#front.work?.extend(agent, taskId) ?? null;
  }
}
