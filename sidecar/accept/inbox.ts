/** `/v1/inbox`: what waits for the caller, page by page or as it comes (events), and saying up to where it has been taken. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Timer } from '../../base/clock.ts';
import { parseDuration, quote } from '../../base/duration.ts';
import { valuesOf } from '../../base/json-values.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Principal } from '../call/principal.ts';
import { NO_BODY } from '../call/reply.ts';
import { Asking } from '../inbox/asking.ts';
import type { InboxDoor, InboxEntry, InboxFollowing, InboxReader, InboxRefusal } from '../inbox/door.ts';
import { JSON_TYPE, PROBLEM_TYPE, refuse } from './answer.ts';
import { callerOf } from './cast.ts';
import type { Front } from './front.ts';
import { entryText, NO_INBOX, pageText, readPosition, refusalOf, refusalText } from './inbox-text.ts';
import { lineOf, type Stoppable } from './line.ts';
import { json } from './pages.ts';
import { queryParameter } from './request.ts';

/** Longest wait of one request; whoever waits longer asks again. */
const MAX_WAIT_MS = 60_000;
const LIMIT = 100;
const MAX_LIMIT = 1_000;
const ALIVE_EVERY_MS = 15_000;
/** Two clients that take the place of one another again and again shall not do it many times a second. */
const RETRY_MS = 5_000;

interface Asked {
  readonly inbox: InboxDoor;
  readonly agent: string;
  readonly principal: Principal;
}

export async function inbox(front: Front, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const asked = askedOf(front, request, response);
  if (asked === null) return;
  const question = readQuestion(request);
  if (typeof question === 'string') {
    refuse(response, Code.invalid_request, 400, question, 'keep');
    return;
  }
  const { from, limit, waitMs } = question;
  if (request.headers.accept?.includes('text/event-stream') === true) {
    await new Events(front, request, response).open(asked, from);
    return;
  }
  const asking = new Asking();
  const line = lineOf(request.socket);
  line.add(asking);
  const page = await asked.inbox.read(asked.agent, from, limit, waitMs, asking).finally(() => line.remove(asking));
  if (response.destroyed) return;
  if (!page.ok) {
    refuseInbox(response, page);
    return;
  }
  const text = pageText(page);
  response.writeHead(200, ['content-type', JSON_TYPE, 'content-length', String(text.length), 'cache-control', 'no-store']);
  response.end(text);
}

/** `{"seq": 41}`: everything up to it has been taken. */
export async function acknowledge(front: Front, request: IncomingMessage, response: ServerResponse, body: unknown): Promise<void> {
  const asked = askedOf(front, request, response);
  if (asked === null) return;
  const text = Buffer.isBuffer(body) ? body : NO_BODY;
  const seq = valuesOf(text, ['seq'])?.[0]?.toString('latin1') ?? '';
  const position = readPosition(seq);
  if (position === null) {
    refuse(response, Code.invalid_request, 400, 'the body must be {"seq": <the position of an entry>}', 'keep');
    return;
  }
  const came = await asked.inbox.acknowledge(asked.agent, position);
  if (response.destroyed) return;
  if (came.ok) json(response, 200, { floor: came.floor });
  else refuseInbox(response, came);
}

function askedOf(front: Front, request: IncomingMessage, response: ServerResponse): Asked | null {
  const principal = callerOf(front, request, response);
  if (principal === null) return null;
  if (front.inbox !== null) return { inbox: front.inbox, agent: principal.agent, principal };
  refuse(response, Code.delivery_unavailable, 404, NO_INBOX, 'keep');
  return null;
}

/** Words when it cannot be read. `Last-Event-ID` is what a browser's or a library's event source had last. */
function readQuestion(request: IncomingMessage): { from: number | null; limit: number; waitMs: number } | string {
  const url = request.url as string;
  const last = request.headers['last-event-id'];
  const given = queryParameter(url, 'from');
  let from: number | null = null;
  if (typeof last === 'string' && last !== '') {
    const position = readPosition(last);
    if (position === null) return `Last-Event-ID must be the position of an entry, not ${quote(last)}`;
    from = position + 1;
  } else if (given !== null) {
    from = readPosition(given);
    if (from === null) return `from must be a position, a whole number from 0 on, not ${quote(given)}`;
  }
  const wait = queryParameter(url, 'wait');
  const waitMs = wait === null ? 0 : parseDuration(wait);
  if (typeof waitMs === 'string' || waitMs > MAX_WAIT_MS) return `wait must be a time of at most 60s: ${String(waitMs)}`;
  const asked = queryParameter(url, 'limit');
  const limit = asked === null ? LIMIT : readPosition(asked);
  if (limit === null || limit < 1 || limit > MAX_LIMIT) return `limit must be 1 to ${MAX_LIMIT}, not ${quote(String(asked))}`;
  return { from, limit, waitMs };
}

function refuseInbox(response: ServerResponse, refusal: InboxRefusal): void {
  const text = refusalText(refusal);
  response.writeHead(refusalOf(refusal).status, ['content-type', PROBLEM_TYPE, 'content-length', String(Buffer.byteLength(text))]);
  response.end(text);
}

/** One event an entry, with its position as `id`; paced by the connection. */
class Events implements InboxReader, Stoppable {
  readonly #front: Front;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  #following: InboxFollowing | null = null;
  #timer: Timer | null = null;
  /** `clock.now()` since when nothing is taken; 0 = it is. */
  #blockedAt = 0;
  #isOver = false;
  #agent = '';
  #principal: Principal | null = null;

  /** Its credential counts no more: what comes for it from now on is not for whoever reads here. */
  readonly #takenBack = (agent: string, by: Principal | null): void => {
    if (agent !== this.#agent || (by !== null && by !== this.#principal) || this.#isOver) return;
    if (this.#response.headersSent) this.#response.write('event: end\ndata: {"why":"unauthenticated"}\n\n');
    this.#over();
  };

  constructor(front: Front, request: IncomingMessage, response: ServerResponse) {
    this.#front = front;
    this.#request = request;
    this.#response = response;
  }

  async open({ inbox, agent, principal }: Asked, from: number | null): Promise<void> {
    const line = lineOf(this.#request.socket);
    line.add(this);
    this.#agent = agent;
    this.#principal = principal;
    this.#front.onTakenBack.add(this.#takenBack);
    const response = this.#response;
    const came = await inbox.follow(agent, from, this);
    if (this.#isOver || !came.ok || response.destroyed) {
      line.remove(this);
      this.#front.onTakenBack.delete(this.#takenBack);
      if (came.ok) came.close();
      else if (!response.destroyed) refuseInbox(response, came);
      return;
    }
    this.#following = came;
    response.writeHead(200, ['content-type', 'text/event-stream; charset=utf-8', 'cache-control', 'no-store']);
    response.write(`retry: ${RETRY_MS}\n: from ${came.from}\n\n`);
    response.on('drain', () => this.#drained());
    this.#aliveLater();
    came.ready();
  }

  take(entry: InboxEntry): boolean {
    if (this.#isOver) return false;
    const text = entryText(entry).toString('utf8').replace(LINE_ENDS, '\ndata: ');
    if (this.#response.write(`id: ${entry.seq}\nevent: ${entry.kind}\ndata: ${text}\n\n`)) return true;
    this.#blockedAt = this.#front.engine.clock.now();
    return false;
  }

  ended(why: 'replaced' | 'closing'): void {
    if (this.#isOver) return;
    this.#response.write(`event: end\ndata: {"why":"${why}"}\n\n`);
    this.#over();
  }

  /** The client has left. */
  cancel(): void {
    if (!this.#isOver) this.#over();
  }

  #drained(): void {
    this.#blockedAt = 0;
    this.#following?.ready();
  }

  #over(): void {
    this.#isOver = true;
    this.#front.onTakenBack.delete(this.#takenBack);
    this.#timer?.cancel();
    this.#following?.close();
    lineOf(this.#request.socket).remove(this);
    if (this.#response.headersSent) this.#response.end();
  }

  #aliveLater(): void {
    const { clock, config } = this.#front.engine;
    this.#timer = clock.after(ALIVE_EVERY_MS, () => {
      if (this.#blockedAt > 0) {
        if (clock.now() - this.#blockedAt >= config.limits.stallMs) {
          this.#over();
          this.#response.destroy();
          return;
        }
      } else this.#response.write(': keep-alive\n\n');
      this.#aliveLater();
    });
  }
}

const LINE_ENDS = /\r\n|\r|\n/g;
