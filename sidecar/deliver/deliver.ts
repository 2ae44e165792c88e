/**
 * Messages in: everything that makes a sidecar a worker on the task queue, put together. It follows the pushed list of pools
 * on which its agents work, pulls for them while they are fit, and stops in an order that loses nothing.
 */
import type { BusMessage } from '../../base/bus-message.ts';
import type { Clock, Timer } from '../../base/clock.ts';
import { parseJson } from '../../base/jetstream.ts';
import type { Logger } from '../../base/log.ts';
import type { Random } from '../../base/random.ts';
import type { CancelAnswer, CancelNote, WorkState } from '../../proto/wire/messages.ts';
import { MESSAGE_WIRE } from '../../proto/wire/envelope.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { Call } from '../call/call.ts';
import type { StageSpans } from '../call/stage-spans.ts';
import type { Engine } from '../engine.ts';
import type { TaskLedger } from '../ledger/ledger.ts';
import { Cancelled } from './cancelled.ts';
import type { DeliverCounts } from './counts.ts';
import { Dispatcher } from './dispatcher.ts';
import type { Reported, WorkDoor, WorkReport } from './door.ts';
import type { Failpoint } from './failpoint.ts';
import type { LongWork } from './long-work.ts';
import type { Queue } from './queue.ts';
import { type Appender, type Post, Results } from './results.ts';
import { AllSlots } from './seats.ts';
import type { DeliverSettings } from './settings.ts';
import { Standstill } from './standstill.ts';
import { Sticky } from './sticky.ts';
import { Tasks } from './tasks.ts';

/** What is needed of the bus beside the queue. */
export interface DeliverBus extends Post {
  subscribe(pattern: string, handler: (message: BusMessage) => void): { close(): void };
}

/** The pools on which agents of this sidecar work. */
export interface Work {
  current(): WorkState;
  onChange(listener: (state: WorkState) => void): { close(): void };
}

export interface DeliverParts {
  /** This process, as the control plane calls it: `<sidecar>/<instance>`. */
  readonly self: string;
  readonly engine: Engine;
  inbound(engine: Engine, call: Call, agentId: string, version: string): Promise<void>;
  readonly bus: DeliverBus;
  readonly queue: Queue;
  readonly appender: Appender;
  readonly ledger: TaskLedger;
  ledgerKey(source: string, capability: string, key: string): string;
  /** The server has stamped something with this time: leases that ended before are over. */
  noteServerTime(ms: number): void;
  readonly work: Work;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly settings: DeliverSettings;
  readonly failpoint: Failpoint | null;
  /** Spans of what is delivered; absent or null = no traces are made. */
  readonly stages?: StageSpans | null;
  /** Begun before; null = nothing is remembered over a restart. */
  readonly longWork: LongWork | null;
}

/** Extension, tellings and fitness are looked at so often. */
const SWEEP_MS = 250;
/** What has been told to stop gets so long to end in order. */
const SETTLE_MS = 2_000;
const LOOK_MS = 20;

export class Deliver implements WorkDoor {
  readonly #parts: DeliverParts;
  readonly #tasks: Tasks;
  readonly #dispatcher: Dispatcher;
  readonly #sticky: Sticky;
  readonly #slots: AllSlots;
  readonly #standstill: Standstill;
  readonly #cancelled = new Cancelled();
  #following: { close(): void } | null = null;
  #hearing: readonly { close(): void }[] = [];
  #timer: Timer | null = null;
  #isStopped = false;
  #stopping: Promise<number> | null = null;
  /** `clock.now()` when what is at work is given back. */
  #givesBackAt = Number.POSITIVE_INFINITY;

  constructor(parts: DeliverParts) {
    this.#parts = parts;
    const { queue, clock, log, settings, engine, subjects } = parts;
    const slots = new AllSlots(settings);
    this.#slots = slots;
    const results = new Results(parts.bus, parts.appender, subjects, clock, settings, log);
    const tasks = new Tasks({ ...parts, stages: parts.stages ?? null, results, cancelled: this.#cancelled });
    this.#tasks = tasks;
    const standstill = new Standstill(clock, () => queue.answers());
    this.#standstill = standstill;
    const shared = { queue, table: engine.table, slots, clock, log, standstill, ackWaitMs: () => tasks.watch.ackWaitMs };
    this.#dispatcher = new Dispatcher({
      ...shared,
      settings,
      ending: () => tasks.ends.underWay,
      memoryOf: (delivery) => tasks.memoryOf(delivery),
      unstarted: (delivery) => tasks.unstarted(delivery),
      start: (delivery, arrivedAt, consumer, work, seat) => void tasks.take(delivery, arrivedAt, consumer, work, seat, false),
    });
    this.#sticky = new Sticky({
      ...shared,
      self: parts.self,
      take: (delivery, arrivedAt, consumer, work, seat) => tasks.take(delivery, arrivedAt, consumer, work, seat, true),
      moved: (consumer) => tasks.watch.moved(consumer),
      extendIfDue: (waiting, now) => tasks.watch.extendIfDue(waiting, now),
    });
    tasks.ends.onFree = () => this.#dispatcher.due();
  }

  get counts(): DeliverCounts {
    return this.#tasks.ends.counts;
  }

  /** Messages at work here, and such as wait here for a slot or for an earlier one of their key. */
  get inHand(): number {
    return this.#tasks.watch.size + this.#dispatcher.held + this.#sticky.held;
  }

  holds(agent: string): boolean {
    return this.#tasks.watch.holds(agent);
  }

  /** Calls under way that are messages. */
  get calls(): number {
    return this.#tasks.watch.calls;
  }

  /** Messages at which agents go on (202), remembered over a restart. */
  get kept(): number {
    return this.#tasks.watch.kept;
  }

  /** Messages that agents are at. */
  get atWork(): number {
    return this.#tasks.watch.size;
  }

  outcomes(): Readonly<Record<string, number>> {
    return this.#tasks.ends.counts.outcomes();
  }

  start(): void {
    if (this.#isStopped) return;
    const { work, bus, subjects } = this.#parts;
    this.#following = work.onChange((state) => this.#assign(state));
    this.#hearing = subjects.cancels.map((pattern) => bus.subscribe(pattern, (message) => this.#callOff(message)));
    this.#assign(work.current());
    this.#tick();
  }

  /**
   * Pulls no more, lets what was handed over end within that time, gives the rest back for others. Answers how many had not
   * ended by then: those that may be started again are given back, `once` work is in doubt. Said again, the time may become shorter.
   */
  stop(graceMs: number): Promise<number> {
    this.#givesBackAt = Math.min(this.#givesBackAt, this.#parts.clock.now() + graceMs);
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<number> {
    this.#isStopped = true;
    const { clock, log } = this.#parts;
    this.#following?.close();
    this.#dispatcher.stop();
    this.#sticky.stop();
    await this.#until(() => this.#givesBackAt);
    const left = this.#tasks.watch.size;
    this.#parts.longWork?.stop();
    if (left > 0) {
      log.warn({ unfinished: left }, 'messages were still at work when the time to stop was over');
      this.#tasks.watch.stopAll();
      const settledAt = clock.now() + SETTLE_MS;
      await this.#until(() => settledAt);
    }
    for (const each of this.#hearing) each.close();
    this.#timer?.cancel();
    this.#timer = null;
    await this.#parts.longWork?.close();
    return left;
  }

  async done(agent: string, taskId: string, report: WorkReport): Promise<Reported> {
    const { longWork } = this.#parts;
    if (longWork !== null) await longWork.begun;
    const reported = await this.#tasks.watch.report(agent, taskId, report);
    return reported === 'unknown' && longWork !== null ? await longWork.report(agent, taskId, report) : reported;
  }

  extend(agent: string, taskId: string): number | null {
    return this.#tasks.watch.extendWork(agent, taskId) ?? this.#parts.longWork?.extend(agent, taskId) ?? null;
  }

  async #until(at: () => number): Promise<void> {
    const { clock } = this.#parts;
    while (this.#tasks.watch.size > 0 && clock.now() < at()) await new Promise<void>((done) => void clock.after(LOOK_MS, done));
  }

  #assign({ pools }: WorkState): void {
    if (this.#isStopped) return;
    this.#dispatcher.assign(pools.filter(({ pool }) => !pool.sticky));
    this.#sticky.assign(pools.filter(({ pool }) => pool.sticky));
    const agents = new Set<string>();
    for (const each of pools) for (const agent of each.agents) agents.add(agent);
    this.#slots.keepOnly(agents);
  }

  #tick(): void {
    const { clock } = this.#parts;
    this.#timer = clock.after(SWEEP_MS, () => {
      this.#standstill.beat();
      const now = clock.now();
      this.#tasks.watch.sweep(now);
      this.#parts.longWork?.sweep(now);
      if (!this.#isStopped) {
        this.#dispatcher.sweep(now);
        this.#sticky.sweep(now);
      }
      this.#tick();
    });
  }

  #callOff({ subject, data, reply }: BusMessage): void {
    const note = parseJson(data);
    if (note === null) return;
    const { task_id: taskId, source } = note as Partial<CancelNote>;
    if (typeof taskId !== 'string' || typeof source !== 'string') return;
    const speaker = this.#parts.subjects.speakerOf(subject);
    this.#cancelled.add(taskId, source, speaker);
    const outcome = this.#tasks.watch.callOff(taskId, source, speaker);
    if (outcome === null || !reply.startsWith('_INBOX')) return;
    const answer: CancelAnswer = { wire: MESSAGE_WIRE, task_id: taskId, outcome };
    this.#parts.bus.publish(reply, Buffer.from(JSON.stringify(answer), 'utf8'));
  }
}
