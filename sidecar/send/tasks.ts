/**
 * What becomes of tasks, for those who sent them: the state as it is known here, else as the control plane finds it; each
 * change; and calling off. A task is shown to its sender and to nobody else: others hear that it is not known.
 */
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { Code } from '../../proto/wire/codes.ts';
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import { FINAL_STATES, type TaskAnswer, type TaskAsk, type TaskCursor, type TaskFound } from '../../proto/wire/messages.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { Principal } from '../call/principal.ts';
import type { Cancels } from './cancels.ts';
import type { TaskView } from './door.ts';
import type { Home } from './home.ts';

export interface TasksParts {
  readonly bus: Pick<Bus, 'request' | 'connected'>;
  readonly subjects: Subjects;
  readonly sidecar: string;
  readonly home: Home;
  readonly cancels: Cancels;
  readonly clock: Clock;
}

const ASK_MS = 3_000;
/** A long inbox is looked through piece by piece, for so long. */
const LOOK_MS = 10_000;

export class Tasks {
  readonly #parts: TasksParts;

  constructor(parts: TasksParts) {
    this.#parts = parts;
  }

  async task({ agent }: Principal, taskId: string): Promise<TaskView | null | 'unsure'> {
    const known = this.#parts.home.of(agent, taskId);
    // A result that was too much to be remembered stands in the inbox still.
    if (known !== null && (known.result !== null || !hasResult(known))) return known;
    const found = await this.#find(agent, taskId);
    if (known === null) {
      if (found !== null && found !== 'unsure') this.#parts.home.adopt(found, agent);
      return this.#parts.home.of(agent, taskId) ?? found;
    }
    return found === null || found === 'unsure' || found.result === null ? known : { ...viewOf(known), result: found.result };
  }

  async watch(principal: Principal, taskId: string, hear: (view: TaskView) => void): Promise<{ close(): void } | null | 'unsure'> {
    const { home } = this.#parts;
    const { agent } = principal;
    const now = await this.task(principal, taskId);
    if (now === null || now === 'unsure') return now;
    const heard = home.hear(agent, taskId, hear);
    hear(now);
    return heard ?? { close: () => undefined };
  }

  async cancel(principal: Principal, taskId: string): Promise<'cancelled' | 'requested' | 'too_late' | 'unknown' | 'unsure'> {
    const view = await this.task(principal, taskId);
    if (view === null) return 'unknown';
    if (view === 'unsure') return 'unsure';
    if (FINAL_STATES.has(view.state)) return view.state === 'cancelled' ? 'cancelled' : 'too_late';
    return await this.#parts.cancels.cancel(principal.agent, taskId);
  }

  /** `unsure`: not everything could be looked at. */
  async #find(agent: string, taskId: string): Promise<TaskView | null | 'unsure'> {
    if (!isTaskId(taskId)) return null;
    const { clock } = this.#parts;
    const until = clock.now() + LOOK_MS;
    let found: TaskFound | null = null;
    let more: TaskCursor | undefined;
    do {
      const answer = await this.#ask(agent, taskId, more);
      if (answer === null) return found === null ? 'unsure' : viewOfFound(taskId, found);
      found = answer.found ?? found;
      more = answer.more;
    } while (more !== undefined && clock.now() < until);
    if (found !== null) return viewOfFound(taskId, found);
    return more === undefined ? null : 'unsure';
  }

  /** null = it cannot be asked now. */
  async #ask(agent: string, taskId: string, from: TaskCursor | undefined): Promise<StatusAnswer | null> {
    const { bus, subjects, sidecar } = this.#parts;
    if (!bus.connected) return null;
    const ask: TaskAsk = { wire: MESSAGE_WIRE, what: 'status', sidecar, agent, task_id: taskId, ...(from === undefined ? null : { from }) };
    const reply = await bus.request(subjects.ctl('task'), Buffer.from(JSON.stringify(ask), 'utf8'), ASK_MS);
    if (reply.kind !== 'ok') return null;
    try {
      const answer = JSON.parse(reply.message.data.toString('utf8')) as TaskAnswer;
      if (answer.ok) return answer.what === 'status' ? answer : null;
      // It is none of ours: to whoever asks it is not known.
      return answer.code === Code.forbidden ? { found: null } : null;
    } catch {
      return null;
    }
  }
}

type StatusAnswer = { readonly found: TaskFound | null; readonly more?: TaskCursor };

/** 8 to 40 of a-z and 0-9: what we mint, and what can stand in a subject. */
export function isTaskId(text: string): boolean {
  if (text.length < 8 || text.length > 40) return false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (!((c >= 0x61 && c <= 0x7a) || (c >= 0x30 && c <= 0x39))) return false;
  }
  return true;
}

/** It has ended with bytes that are not here any more. */
function hasResult(view: TaskView): boolean {
  return (view.state === 'done' || view.state === 'failed') && (view.events.at(-1)?.content_type ?? '') !== '';
}

function viewOf({ taskId, powerId, capability, state, lane, acceptedAtMs, events, result }: TaskView): TaskView {
  return { taskId, powerId, capability, state, lane, acceptedAtMs, events, result };
}

function viewOfFound(taskId: string, found: TaskFound): TaskView {
  return {
    taskId,
    powerId: found.power_id,
    capability: found.capability,
    state: found.state,
    lane: null,
    acceptedAtMs: 0,
    events: found.event === null ? [] : [found.event],
    result: found.result === null ? null : Buffer.from(found.result, 'base64'),
  };
}
