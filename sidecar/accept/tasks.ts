/**
 * `/v1/tasks/{id}`: what became of a task, at once, when it has ended (`?wait=10s`) or as it goes on (events); calling it off;
 * and, for agents that have answered 202, saying how it ended or that it takes longer.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Timer } from '../../base/clock.ts';
import { parseDuration, quote } from '../../base/duration.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { FINAL_STATES } from '../../proto/wire/messages.ts';
import type { Principal } from '../call/principal.ts';
import { NO_BODY } from '../call/reply.ts';
import type { SendDoor, TaskView } from '../send/door.ts';
import { JSON_TYPE, refuse } from './answer.ts';
import { callerOf } from './cast.ts';
import type { Front } from './front.ts';
import { lineOf, type Stoppable } from './line.ts';
import { json } from './pages.ts';
import { queryParameter } from './request.ts';
import { taskText } from './submitted.ts';

/** Longest wait of one request; whoever waits longer asks again. */
const MAX_WAIT_MS = 60_000;
export const TOO_LATE = 'the task has ended, or is being worked on and cannot be stopped';
const ALIVE_EVERY_MS = 15_000;
export const NOT_KNOWN = 'no such task of this caller is known here';
export const NOT_SURE =
  'this sidecar does not remember the task, and whether the streams do cannot be said now: NATS or the control plane does not answer, or they hold very much; ask again';

export async function task(front: Front, request: IncomingMessage, response: ServerResponse, taskId: string): Promise<void> {
  const asked = askedOf(front, request, response);
  if (asked === null) return;
  const { send, principal } = asked;
  const wait = queryParameter(request.url as string, 'wait');
  const waitMs = wait === null ? 0 : parseDuration(wait);
  if (typeof waitMs === 'string' || waitMs > MAX_WAIT_MS) {
    refuse(response, Code.invalid_request, 400, `wait must be a time of at most 60s: ${String(waitMs)}`, 'keep');
    return;
  }
  if (request.headers.accept?.includes('text/event-stream') === true) {
    await events(front, request, response, asked, taskId);
    return;
  }
  const view = waitMs === 0 ? await send.task(principal, taskId) : await ended(front, request, asked, taskId, waitMs);
  if (response.destroyed) return;
  if (view === null) notKnown(response);
  else if (view === 'unsure') notSure(response);
  else writeTask(response, view);
}

/** DELETE. 200 stopped, 202 asked for, 409 too late. */
export async function cancelTask(front: Front, request: IncomingMessage, response: ServerResponse, taskId: string): Promise<void> {
  const asked = askedOf(front, request, response);
  if (asked === null) return;
  const outcome = await asked.send.cancel(asked.principal, taskId);
  if (response.destroyed) return;
  if (outcome === 'unknown') notKnown(response);
  else if (outcome === 'unsure') notSure(response);
  else if (outcome === 'too_late') refuse(response, Code.invalid_request, 409, TOO_LATE, 'keep');
  else json(response, outcome === 'cancelled' ? 200 : 202, { task_id: taskId, outcome });
}

/** By the agent that works on it: the body is the result, `Reach-Status` the agent's own status (default 200). */
export async function taskDone(
  front: Front,
  request: IncomingMessage,
  response: ServerResponse,
  taskId: string,
  body: unknown,
): Promise<void> {
  const principal = workerOf(front, request, response);
  if (principal === null || front.work === null) return;
  const status = statusIn(request.headers[Header.status]);
  if (typeof status === 'string') {
    refuse(response, Code.invalid_request, 400, status, 'keep');
    return;
  }
  const reported = await front.work.done(principal.agent, taskId, {
    code: status >= 400 ? Code.provider_error : Code.ok,
    status,
    contentType: request.headers['content-type'] ?? '',
    body: Buffer.isBuffer(body) ? body : NO_BODY,
    detail: '',
  });
  if (response.destroyed) return;
  switch (reported) {
    case 'stored':
      json(response, 200, { task_id: taskId, outcome: 'stored' });
      return;
    case 'unknown':
      refuse(response, Code.invalid_request, 404, 'no such task is in the hands of this agent here', 'keep');
      return;
    case 'fenced':
      refuse(response, Code.invalid_request, 409, 'the task took too long: it is somebody else’s by now, in doubt, or has ended', 'keep');
      return;
    case 'unreachable':
      refuse(response, Code.delivery_unavailable, 503, 'the result could not be stored: say it again', 'keep', RETRY_MS);
  }
}

/** By the agent that works on it: the time of the try begins anew. */
export function extendTask(front: Front, request: IncomingMessage, response: ServerResponse, taskId: string): void {
  const principal = workerOf(front, request, response);
  if (principal === null || front.work === null) return;
  const leftMs = front.work.extend(principal.agent, taskId);
  if (leftMs === null) refuse(response, Code.invalid_request, 404, 'no such task is in the hands of this agent here', 'keep');
  else json(response, 200, { task_id: taskId, left_ms: Math.round(leftMs) });
}

const RETRY_MS = 1_000;

interface Asked {
  readonly send: SendDoor;
  readonly principal: Principal;
}

function askedOf(front: Front, request: IncomingMessage, response: ServerResponse): Asked | null {
  const principal = callerOf(front, request, response);
  if (principal === null) return null;
  if (front.send === null) {
    notKnown(response);
    return null;
  }
  return { send: front.send, principal };
}

function workerOf(front: Front, request: IncomingMessage, response: ServerResponse): Principal | null {
  const principal = callerOf(front, request, response);
  if (principal === null) return null;
  if (front.work !== null) return principal;
  refuse(response, Code.invalid_request, 404, 'this sidecar hands out no tasks: it has no registry', 'keep');
  return null;
}

function notKnown(response: ServerResponse): void {
  refuse(response, Code.invalid_request, 404, NOT_KNOWN, 'keep');
}

/** That it is not known would be taken for the word that it was never accepted. */
function notSure(response: ServerResponse): void {
  refuse(response, Code.delivery_unavailable, 503, NOT_SURE, 'keep');
}

function writeTask(response: ServerResponse, view: TaskView): void {
  const text = taskText(view);
  response.writeHead(200, ['content-type', JSON_TYPE, 'content-length', String(Buffer.byteLength(text)), 'cache-control', 'no-store']);
  response.end(text);
}

/** The task when it has ended, or as it is when the wait is over; null = not known. */
async function ended(
  front: Front,
  request: IncomingMessage,
  { send, principal }: Asked,
  taskId: string,
  waitMs: number,
): Promise<TaskView | null | 'unsure'> {
  const waiting = new Waiting();
  const line = lineOf(request.socket);
  line.add(waiting);
  front.waiting.add(waiting);
  const timer = front.engine.clock.after(front.closed ? 0 : waitMs, () => waiting.over());
  const watching = await send.watch(principal, taskId, (view) => {
    waiting.last = view;
    if (FINAL_STATES.has(view.state)) waiting.over();
  });
  const isWatched = watching !== null && watching !== 'unsure';
  if (isWatched) await waiting.whenOver;
  if (isWatched) watching.close();
  timer.cancel();
  line.remove(waiting);
  front.waiting.delete(waiting);
  // What was too large to be remembered is looked up.
  if (waiting.last === null) return watching === 'unsure' ? 'unsure' : null;
  return await send.task(principal, taskId);
}

/** Ends when its time is over, the task has ended, or the caller has left. */
class Waiting implements Stoppable {
  last: TaskView | null = null;
  readonly whenOver: Promise<void>;
  over: () => void = () => undefined;

  constructor() {
    this.whenOver = new Promise((done) => {
      this.over = done;
    });
  }

  cancel(): void {
    this.over();
  }
}

/** One event a change, the first at once; the last is the final state. */
async function events(
  front: Front,
  request: IncomingMessage,
  response: ServerResponse,
  { send, principal }: Asked,
  taskId: string,
): Promise<void> {
  // In the line before anything is asked: a caller that leaves meanwhile is not waited for.
  const waiting = new Waiting();
  const line = lineOf(request.socket);
  line.add(waiting);
  front.waiting.add(waiting);
  const leave = (): void => {
    line.remove(waiting);
    front.waiting.delete(waiting);
  };
  let isOpen = false;
  const watching = await send.watch(principal, taskId, (view) => {
    if (response.destroyed) return;
    if (!isOpen) {
      isOpen = true;
      response.writeHead(200, ['content-type', 'text/event-stream; charset=utf-8', 'cache-control', 'no-store']);
    }
    const text = taskText(view).replaceAll('\n', '\ndata: ').replaceAll('\r', '');
    response.write(`event: state\ndata: ${text}\n\n`);
    // One that does not read is not written to without end: a task has few states, and it can ask again.
    if (FINAL_STATES.has(view.state) || response.writableLength > MAX_UNREAD_BYTES) waiting.over();
  });
  if (watching === null || watching === 'unsure' || response.destroyed) {
    leave();
    if (watching !== null && watching !== 'unsure') watching.close();
    if (response.destroyed) return;
    if (watching === 'unsure') notSure(response);
    else notKnown(response);
    return;
  }
  // The port closes: the caller asks again, elsewhere or later.
  if (front.closed) waiting.over();
  let timer: Timer;
  const alive = (): void => {
    response.write(': keep-alive\n\n');
    timer = front.engine.clock.after(ALIVE_EVERY_MS, alive);
  };
  timer = front.engine.clock.after(ALIVE_EVERY_MS, alive);
  await waiting.whenOver;
  timer.cancel();
  watching.close();
  leave();
  response.end();
}

const MAX_UNREAD_BYTES = 8_388_608;

function statusIn(said: string | string[] | undefined): number | string {
  if (said === undefined) return 200;
  const status = Number(said);
  if (Number.isInteger(status) && status >= 200 && status <= 599 && (status < 300 || status >= 400)) return status;
  return `${Header.status} must be 200 … 299 (done) or 400 … 599 (it failed), not ${quote(String(said))}`;
}
