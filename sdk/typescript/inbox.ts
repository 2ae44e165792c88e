/**
 * What waits for this agent, one by one: results and states of the tasks that it has sent, and messages to it. The position is
 * kept here, so a connection that breaks loses nothing and doubles nothing; what is acknowledged is kept by the sidecar.
 */
import { Code } from '../../proto/wire/codes.ts';
import { parsed } from './answer.ts';
import type { Ask } from './ask.ts';
import { ReachError } from './error.ts';
import type { Http, HttpAnswer } from './http.ts';
import { Backoff, pause } from './serve/backoff.ts';
import { failureIn, isPassing, type TaskState } from './task.ts';

type Fields = Readonly<Record<string, unknown>>;

export interface InboxOptions {
  /** The position of the entry that is wanted next. Default: after what is acknowledged. */
  readonly from?: number;
  /** `auto` (default): an entry counts as taken when the next one is asked for. `manual`: by `entry.ack()`. */
  readonly ack?: 'auto' | 'manual';
  /** Ends the loop, in good order. */
  readonly signal?: AbortSignal;
}

/** The position cannot be read from: `gone` (older than what is kept), `ahead` (there has been nothing), `invalid`; or `none`: the sidecar has no inboxes. */
export class InboxError extends ReachError {
  declare readonly why: 'gone' | 'ahead' | 'invalid' | 'none';
  /** From here on it would succeed; 0 = not known. */
  declare readonly from: number;

  constructor(failure: ReachError, why: InboxError['why'], from: number) {
    super(failure.result);
    Object.defineProperty(this, 'why', { value: why });
    Object.defineProperty(this, 'from', { value: from });
  }
}

/** One entry: what became of a task of this agent (several as it goes on, the last is its end), or a message from another agent. */
export class InboxMessage<T = unknown> {
  /** Its position: rises, with gaps. */
  readonly seq: number;
  /** `state`: what became of a task of this agent; `message`: from another agent. */
  readonly kind: 'state' | 'message';
  readonly taskId: string;
  readonly messageType: string;
  /** null for a message. `received` and `waiting` are on the way, and may be missing; an end never is. */
  readonly state: TaskState | null;
  /** 0 = fine; else of docs/errors.md. */
  readonly code: number;
  readonly detail: string;
  /** Agent id of who worked on it, or who has sent the message. */
  readonly by: string;
  /** JSON, text, or {base64, content_type}; null = none. */
  readonly data: T;
  /** All of it, as the sidecar tells it. */
  readonly fields: Fields;
  readonly #ack: (seq: number) => Promise<void>;

  /** @internal */
  constructor(fields: Fields, ack: (seq: number) => Promise<void>) {
    this.seq = Number(fields['seq']);
    this.kind = fields['kind'] as 'state' | 'message';
    this.taskId = textIn(fields, 'task_id');
    this.messageType = textIn(fields, 'message_type');
    this.state = this.kind === 'state' ? (fields['state'] as TaskState) : null;
    this.code = Number(fields['code'] ?? 0);
    this.detail = textIn(fields, 'detail');
    this.by = textIn(fields, this.kind === 'state' ? 'by' : 'source');
    this.data = (fields['data'] ?? null) as T;
    this.fields = fields;
    this.#ack = ack;
  }

  /** This one and everything before it have been taken. Rejects with a ReachError when that could not be said. */
  async ack(): Promise<void> {
    await this.#ack(this.seq);
  }
}

const WAIT_MS = 30_000;
const PATIENCE_MS = 15_000;
const LIMIT = 100;
/** While entries take their time, what was taken is said so often. */
const ACK_EVERY_MS = 1_000;

export class Inbox implements AsyncIterable<InboxMessage> {
  readonly #http: Http;
  readonly #options: InboxOptions;
  readonly #signal: AbortSignal;
  /** Asked for next; null = after what is acknowledged. */
  #next: number | null;
  /** Taken by the loop, and known to the sidecar. */
  #taken = 0;
  #acknowledged = 0;

  /** @internal */
  constructor(http: Http, options: InboxOptions) {
    this.#http = http;
    this.#options = options;
    this.#signal = options.signal ?? new AbortController().signal;
    this.#next = options.from ?? null;
  }

  /** Everything up to a position has been taken. */
  async ack(seq: number): Promise<void> {
    const answer = await this.#http.ask(ask('POST', '/v1/inbox/ack', { seq }, [], PATIENCE_MS));
    if (answer.status !== 200) throw refusalIn(answer);
    this.#acknowledged = Math.max(this.#acknowledged, seq);
  }

  /** Ends when the signal aborts; throws an `InboxError` for a position that cannot be read from. A sidecar that is away is waited for. */
  async *[Symbol.asyncIterator](): AsyncGenerator<InboxMessage, void, undefined> {
    const { clock, random } = this.#http.settings;
    const isAuto = this.#options.ack !== 'manual';
    const backoff = new Backoff(random);
    let saidAt = clock.now();
    try {
      while (!this.#signal.aborted) {
        let page: { entries: readonly Fields[]; floor: number };
        try {
          if (isAuto) await this.#say();
          page = await this.#page();
          backoff.reset();
        } catch (error) {
          if (this.#signal.aborted) return;
          if (error instanceof InboxError || !isPassing(error) || this.#http.isClosed) throw error;
          await pause(backoff.next(), clock, this.#signal);
          continue;
        }
        for (const fields of page.entries) {
          const message = new InboxMessage(fields, (seq) => this.ack(seq));
          yield message;
          this.#next = message.seq + 1;
          this.#taken = message.seq;
          if (isAuto && clock.now() - saidAt >= ACK_EVERY_MS) {
            saidAt = clock.now();
            // What cannot be said now is said before the next page.
            await this.#say().catch(() => undefined);
          }
          if (this.#signal.aborted) return;
        }
        // Where the sidecar knows the position, it is asked from there: it stays right however long nothing comes.
        if (isAuto && page.entries.length > 0 && this.#taken > page.floor) this.#next = null;
      }
    } finally {
      if (isAuto) await this.#say().catch(() => undefined);
    }
  }

  async #say(): Promise<void> {
    if (this.#taken > this.#acknowledged) await this.ack(this.#taken);
  }

  async #page(): Promise<{ entries: readonly Fields[]; floor: number }> {
    const from = this.#next === null ? '' : `&from=${this.#next}`;
    const path = `/v1/inbox?wait=${WAIT_MS}ms&limit=${LIMIT}${from}`;
    const answer = await this.#http.ask(ask('GET', path, null, [this.#signal], WAIT_MS + PATIENCE_MS));
    const json = parsed(answer.bytes) as { entries?: unknown; floor?: unknown } | undefined;
    if (answer.status !== 200 || !Array.isArray(json?.entries)) throw refusalIn(answer);
    return { entries: json.entries as readonly Fields[], floor: Number(json.floor) };
  }
}

function textIn(fields: Fields, name: string): string {
  const value = fields[name];
  return typeof value === 'string' ? value : '';
}

function ask(method: Ask['method'], path: string, json: object | null, signals: readonly AbortSignal[], limitMs: number): Ask {
  const headers: Record<string, string> = json === null ? {} : { 'content-type': 'application/json' };
  return { method, path, headers, body: json === null ? null : Buffer.from(JSON.stringify(json)), signals, limitMs };
}

function refusalIn(answer: HttpAnswer): ReachError {
  const failure = failureIn(answer);
  if (answer.status === 404) return new InboxError(failure, 'none', 0);
  const inbox = (parsed(answer.bytes) as { inbox?: Fields } | undefined)?.inbox;
  const why = inbox?.['why'];
  if (failure.code === Code.invalid_request && (why === 'gone' || why === 'ahead' || why === 'invalid'))
    return new InboxError(failure, why, Number(inbox?.['from'] ?? 0));
  return failure;
}
