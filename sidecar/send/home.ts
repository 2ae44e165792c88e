/**
 * What is known here of the tasks of this sidecar's agents: accepted by us, told by notes of the workers' sidecars (not
 * final), by final events that the inbox's consumer hands over. Bounded in number and in bytes, the oldest go first; what
 * is forgotten here is asked of the control plane. After a restart it fills again from what still comes.
 *
 * Events overtake each other (notes and final events travel differently), so a state never goes back: a final one stands,
 * and of the others the later hand-over counts.
 */
import { FINAL_STATES, type TaskEvent, type TaskState } from '../../proto/wire/messages.ts';
import type { Lane } from '../../proto/wire/envelope.ts';
import { keyOwner } from '../../proto/wire/ledger-key.ts';
import type { TaskView } from './door.ts';

/** Events of one task that are remembered; the last one always is. */
const MAX_EVENTS = 24;
const NO_EVENTS: readonly TaskEvent[] = Object.freeze([]);

export interface AcceptedTask {
  readonly taskId: string;
  readonly powerId: string;
  /** Who sent it: nobody else may see it. */
  readonly agent: string;
  readonly capability: string;
  readonly lane: Lane | null;
  readonly state: 'accepted' | 'parked';
  /** Wall clock. */
  readonly acceptedAtMs: number;
}

type Hear = (view: TaskView) => void;

class Task implements TaskView {
  readonly taskId: string;
  readonly powerId: string;
  readonly agent: string;
  readonly capability: string;
  readonly lane: Lane | null;
  acceptedAtMs: number;
  state: TaskState;
  events: TaskEvent[] | typeof NO_EVENTS = NO_EVENTS;
  result: Buffer | null = null;
  hearers: Set<Hear> | null = null;

  constructor({
    taskId,
    powerId,
    agent,
    capability,
    lane,
    state,
    acceptedAtMs,
  }: Omit<AcceptedTask, 'state'> & { readonly state: TaskState }) {
    this.taskId = taskId;
    this.powerId = powerId;
    this.agent = agent;
    this.capability = capability;
    this.lane = lane;
    this.state = state;
    this.acceptedAtMs = acceptedAtMs;
  }
}

export class Home {
  readonly #tasks = new Map<string, Task>();
  /**
   * All of them, in the order in which they came, as a ring: the next place is the oldest one's. (The first entry of a Map from
   * which the first is always taken away is found behind all those that were there before.)
   */
  readonly #ring: Task[] = [];
  #next = 0;
  /** Results before this place of the ring have been dropped. */
  #dropAt = 0;
  readonly #maxTasks: number;
  readonly #maxResultBytes: number;
  #resultBytes = 0;

  constructor(maxTasks: number, maxResultBytes: number) {
    this.#maxTasks = maxTasks;
    this.#maxResultBytes = maxResultBytes;
  }

  get size(): number {
    return this.#tasks.size;
  }

  get resultBytes(): number {
    return this.#resultBytes;
  }

  /** A message of an agent here is durable. Its first events may have come before the stream's answer. */
  accepted(task: AcceptedTask): void {
    const known = this.#tasks.get(task.taskId);
    if (known === undefined) this.#add(new Task(task));
    else if (known.acceptedAtMs === 0) known.acceptedAtMs = task.acceptedAtMs;
  }

  /**
   * @param body the result's bytes; null = none.
   * @param agent whose task it is, where that is certain from where the event came; '' = known from before, or from its key.
   */
  noted(event: TaskEvent, body: Buffer | null, agent = ''): void {
    let task = this.#tasks.get(event.task_id);
    if (task === undefined) {
      const owner = agent !== '' ? agent : keyOwner(event.power_id);
      if (owner === null) return;
      const { task_id: taskId, power_id: powerId, capability, state } = event;
      task = new Task({ taskId, powerId, agent: owner, capability, lane: null, state, acceptedAtMs: 0 });
      this.#add(task);
    } else if (!isNewer(event, task)) return;
    else task.state = event.state;
    if (task.events.length >= MAX_EVENTS) (task.events as TaskEvent[]).splice(1, 1);
    if (task.events === NO_EVENTS) task.events = [event];
    else (task.events as TaskEvent[]).push(event);
    if (body !== null && body.length > 0) this.#hold(task, body);
    if (task.hearers !== null) for (const hear of task.hearers) hear(task);
  }

  /** null = not known here, or another agent's. */
  of(agent: string, taskId: string): TaskView | null {
    const task = this.#tasks.get(taskId);
    return task === undefined || task.agent !== agent ? null : task;
  }

  /** Called at each change from now on. null = not known here, or another agent's. */
  hear(agent: string, taskId: string, hear: Hear): { close(): void } | null {
    const task = this.#tasks.get(taskId);
    if (task === undefined || task.agent !== agent) return null;
    (task.hearers ??= new Set()).add(hear);
    return {
      close: () => {
        task.hearers?.delete(hear);
        if (task.hearers?.size === 0) task.hearers = null;
      },
    };
  }

  /** A task that was found elsewhere, from now on heard of here. */
  adopt(view: TaskView, agent: string): void {
    if (this.#tasks.has(view.taskId)) return;
    const task = new Task({ ...view, agent });
    if (view.events.length > 0) task.events = [...view.events];
    this.#add(task);
    if (view.result !== null) this.#hold(task, view.result);
  }

  #add(task: Task): void {
    this.#tasks.set(task.taskId, task);
    if (this.#ring.length < this.#maxTasks) {
      this.#ring.push(task);
      return;
    }
    // One that somebody waits for stays a little longer; where all are waited for, the oldest goes all the same.
    for (let turns = 0; turns < MAX_TURNS && this.#ring[this.#next]?.hearers != null; turns++) this.#step();
    const oldest = this.#ring[this.#next] as Task;
    this.#drop(oldest);
    this.#tasks.delete(oldest.taskId);
    this.#ring[this.#next] = task;
    this.#step();
  }

  #step(): void {
    this.#next = (this.#next + 1) % this.#ring.length;
  }

  #hold(task: Task, body: Buffer): void {
    if (body.length > this.#maxResultBytes) return;
    this.#drop(task);
    // A copy: the bytes are a view into whatever the bus received.
    task.result = Buffer.from(body);
    this.#resultBytes += body.length;
    for (let i = 0; this.#resultBytes > this.#maxResultBytes && i < this.#ring.length; i++) {
      const other = this.#ring[this.#dropAt] as Task;
      if (other !== task) this.#drop(other);
      this.#dropAt = (this.#dropAt + 1) % this.#ring.length;
    }
  }

  #drop(task: Task): void {
    if (task.result === null) return;
    this.#resultBytes -= task.result.length;
    task.result = null;
  }
}

const MAX_TURNS = 64;

/** Hand-overs that have begun make a state newer; in one hand-over it is received after it waited. */
function isNewer(event: TaskEvent, task: Task): boolean {
  // What is not final comes twice, as a note and through the inbox.
  for (const { state, attempts, at_ms: atMs, by } of task.events)
    if (state === event.state && attempts === event.attempts && atMs === event.at_ms && by === event.by) return false;
  if (FINAL_STATES.has(task.state)) {
    // A dead or doubtful task can be driven again by a person.
    if (FINAL_STATES.has(event.state)) return event.state !== task.state && isRevivable(task.state);
    return event.cause === RELEASED && isRevivable(task.state);
  }
  if (FINAL_STATES.has(event.state)) return true;
  const last = task.events.at(-1);
  if (last === undefined || event.attempts !== last.attempts) return last === undefined || event.attempts > last.attempts;
  return !(event.state === last.state && event.by === last.by) && !(last.state === 'received' && event.state === 'parked');
}

/** A person has sent it out again. */
const RELEASED = 'released';

function isRevivable(state: TaskState): boolean {
  return state === 'dead_lettered' || state === 'in_doubt' || state === 'expired';
}
