/**
 * The life of one message here: is it still wanted, may it be started, hand it over, judge how that ended, write it down, and only
 * then let the queue forget it. The order of the last steps is law: the result is recorded under its key, then stored in
 * the sender's inbox, then the message is acknowledged and that is confirmed; a crash between any two repeats the later ones and
 * never the work. Who gets a message, and when one is pulled, is decided elsewhere.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Delivery } from '../../base/puller.ts';
import type { Random } from '../../base/random.ts';
import { Code } from '../../proto/wire/codes.ts';
import { decodeEnvelope } from '../../proto/wire/envelope.ts';
import type { KeptKind, TaskState, WorkPool } from '../../proto/wire/messages.ts';
import type { Call } from '../call/call.ts';
import { NO_BODY } from '../call/reply.ts';
import type { Engine } from '../engine.ts';
import type { Claim, KeptResult, TaskLedger } from '../ledger/ledger.ts';
import { pauseAfter, pauseWhenBusy } from './backoff.ts';
import type { Cancelled } from './cancelled.ts';
import { DeliverCounts } from './counts.ts';
import type { Reported, WorkReport } from './door.ts';
import type { Failpoint } from './failpoint.ts';
import { envelopeProblem } from './fit.ts';
import { brokenOff, callFor, executionFor, Report, reportOf } from './hand-over.ts';
import { InHand } from './in-hand.ts';
import { type Outcome, outcomeOf, type StoppedBy } from './outcome.ts';
import type { Queue } from './queue.ts';
import type { Results, Told } from './results.ts';
import { heldBy, type Seat } from './seats.ts';
import { ServerTime } from './server-time.ts';
import { keptEntry, mayHaveActed, toldOf, unreadableEntry } from './telling.ts';
import type { DeliverSettings } from './settings.ts';
import { addFailed, Tries } from './tries.ts';

export interface TaskParts {
  readonly engine: Engine;
  /** The provider's end of the pipeline. */
  inbound(engine: Engine, call: Call, agentId: string, version: string): Promise<void>;
  readonly queue: Queue;
  readonly results: Results;
  readonly ledger: TaskLedger;
  /** One subject token for caller, capability and key. */
  ledgerKey(source: string, capability: string, key: string): string;
  /** The server has stamped something with this time. */
  noteServerTime(ms: number): void;
  readonly cancelled: Cancelled;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly settings: DeliverSettings;
  readonly failpoint: Failpoint | null;
}

/** What `#round` answers when there is nothing more to do here. */
const OVER = -1;
/** Two may fail. */
const EXTENSIONS_A_WAIT = 4;
const CONFIRM_TRIES = 3;
const LEDGER_PAUSE_MS = 500;
const TWIN_PAUSE_MS = 5_000;
const AFTER_HAND_OVER_MS = 2;

export class Tasks {
  readonly counts = new DeliverCounts();
  /** Oldest first. */
  readonly inHand = new Set<InHand>();
  /** A slot has become free. */
  onFree: () => void = () => undefined;
  /** Ends that are being written down. */
  ending = 0;
  readonly #parts: TaskParts;
  readonly #time = new ServerTime();
  readonly #tries = new Tries();
  readonly #byTask = new Map<string, InHand>();
  /** As the server has it, once it has said so. */
  #ackWaitMs: number;
  /** Work that agents go on with after a 202: agent, blank, task. */
  readonly #goingOn = new Map<string, InHand>();

  constructor(parts: TaskParts) {
    this.#parts = parts;
    this.#ackWaitMs = parts.settings.ackWaitMs;
  }

  /** Takes a message for an agent. Resolves when nothing more is done for it here; never rejects. */
  async take(delivery: Delivery, arrivedAt: number, consumer: string, { pool }: WorkPool, seat: Seat, inPlace: boolean): Promise<void> {
    const { queue } = this.#parts;
    const decoded = decodeEnvelope(delivery.data);
    const problem = decoded === null ? 'it has no envelope that can be read' : envelopeProblem(decoded.envelope, pool.capability);
    if (decoded === null || problem !== null) return await this.#unreadable(delivery, problem ?? '');
    const { envelope, payload } = decoded;
    const twin = this.#byTask.get(envelope.task_id);
    if (twin !== undefined) {
      if (twin.delivery.streamSeq === delivery.streamSeq) {
        // Delivered anew while we have it: what is said of it from now on is said of this delivery.
        twin.delivery = delivery;
        twin.confirmedAt = arrivedAt;
      } else queue.giveBack(delivery, TWIN_PAUSE_MS);
      return;
    }
    const task = new InHand(delivery, envelope, payload, consumer, seat, inPlace, arrivedAt, arrivedAt);
    this.inHand.add(task);
    this.#byTask.set(envelope.task_id, task);
    let reported: Reported = 'unreachable';
    try {
      for (;;) {
        seat.slots.assigned++;
        task.isSeatFree = false;
        const pauseMs = await this.#round(task);
        this.#freeSeat(task);
        if (pauseMs === OVER) break;
        if (inPlace && task.stoppedBy === 'no') await this.#rest(task, pauseMs);
        if (task.stoppedBy === 'lost') break;
        if (!inPlace || task.stoppedBy !== 'no') {
          queue.giveBack(task.delivery, task.stoppedBy === 'no' ? pauseMs : 0);
          break;
        }
        task.handedAt = -1;
      }
      reported = task.reported;
    } catch (error) {
      this.#freeSeat(task);
      await this.#broke(task, error);
    }
    if (task.isEnding) this.ending--;
    this.inHand.delete(task);
    this.#byTask.delete(envelope.task_id);
    task.onStored?.(reported);
    if (task.isEnding) this.onFree();
  }

  /** Before it is tried again in its place. */
  #rest(task: InHand, pauseMs: number): Promise<void> {
    return new Promise((done) => {
      const timer = this.#parts.clock.after(pauseMs, done);
      task.wake = () => {
        timer.cancel();
        done();
      };
    });
  }

  /** Once through: pause before the next one, or OVER. */
  async #round(task: InHand): Promise<number> {
    const { clock, queue, engine, settings, cancelled } = this.#parts;
    const { envelope, delivery, seat } = task;
    const now = clock.now();
    this.#time.seen(delivery.storedAtMs, now);
    this.#parts.noteServerTime(delivery.storedAtMs);
    if (this.#time.isDue(now)) {
      this.#time.asked(now);
      const facts = await queue.facts(task.consumer);
      if (facts !== null) {
        this.#time.told(facts.nowMs, clock.now());
        this.#ackWaitMs = facts.ackWaitMs;
      }
    }
    if (this.#time.at(clock.now()) - delivery.storedAtMs > envelope.expires_ms) return await this.#expired(task);
    if (cancelled.has(envelope.task_id, envelope.source)) {
      return await this.#finish(task, 'cancelled', Code.cancelled, 'called off before anybody had it', null);
    }
    const memory = this.#tries.of(envelope.task_id);
    const leftMs = envelope.deadline_ms === null ? null : envelope.deadline_ms - (memory?.workedMs ?? 0);
    if (leftMs !== null && leftMs <= 0) {
      return await this.#finish(task, 'failed', Code.deadline_exceeded, `its ${envelope.deadline_ms} ms of working time are over`, null);
    }
    const table = engine.table.current();
    const rule = table.overrides.length === 0 ? null : heldBy(seat.candidate, envelope.source, table, clock.wallMs());
    if (rule !== null) {
      this.#untried(task);
      return pauseWhenBusy(0, this.#parts.random.next(), settings);
    }
    task.execution = executionFor(envelope, seat.candidate.version);
    if (task.execution !== 'idempotent' || envelope.keyed || delivery.deliveries > 1) {
      const pauseMs = await this.#claim(task);
      if (pauseMs !== null) return pauseMs;
    } else task.tries++;
    return await this.#handOver(task, leftMs);
  }

  /** Null = it is ours to start. */
  async #claim(task: InHand): Promise<number | null> {
    const { ledger, settings, random } = this.#parts;
    const { envelope, delivery, seat } = task;
    const key = envelope.keyed ? envelope.power_id : envelope.task_id;
    const isFirstUnrecorded =
      task.execution === 'idempotent' && !envelope.keyed && this.#tries.of(envelope.task_id)?.untried !== true && delivery.deliveries > 1;
    const claimed = await ledger.claim(
      {
        id: this.#parts.ledgerKey(envelope.source, envelope.capability, key),
        caller: envelope.source,
        capability: envelope.capability,
        version: seat.candidate.version.text,
        payloadHash: envelope.payload_hash,
        execution: task.execution,
        key,
        taskId: envelope.task_id,
        worker: seat.slots.agentId,
      },
      task.isRecorded ? 0 : Math.max(task.tries, isFirstUnrecorded ? 1 : 0),
    );
    switch (claimed.kind) {
      case 'claimed': {
        const { claim } = claimed;
        task.claim = claim;
        task.isRecorded = true;
        // Driven again after it was kept as dead: the count goes on in the record, its tries are new.
        task.tries = ((claim.tries - 1) % settings.maxTries) + 1;
        claim.onLost = () => this.#stop(task, 'lost');
        if (task.stoppedBy === 'no') return null;
        await this.#release(task, false);
        return 0;
      }
      case 'done':
        return await this.#replay(task, claimed.result);
      case 'executing':
        // A twin, or a worker that is not heard of: looked at again, without haste.
        return pauseWhenBusy(claimed.againInMs, random.next(), settings);
      case 'in_doubt':
        task.tries = claimed.tries;
        return await this.#inDoubt(
          task,
          `${claimed.worker === '' ? 'its worker' : claimed.worker} vanished after it got the task`,
          claimed.taskId === envelope.task_id,
        );
      case 'reused':
        return await this.#finish(task, 'failed', Code.key_reused, claimed.why, null);
      case 'full':
      case 'unreachable':
        return pauseWhenBusy(0, random.next(), settings);
    }
  }

  async #handOver(task: InHand, leftMs: number | null): Promise<number> {
    const { engine, clock, random, failpoint } = this.#parts;
    const { envelope, seat } = task;
    const { candidate } = seat;
    const via = task.delivery.subject.slice(task.delivery.subject.lastIndexOf('.') + 1);
    const call = callFor(envelope, task.payload, via, leftMs, clock, random);
    if (failpoint !== null) failpoint.pass('before_hand_over');
    task.call = call;
    task.handedAt = clock.now();
    this.counts.started++;
    const ending = this.#parts.inbound(engine, call, candidate.provider.agentId, candidate.version.text);
    // From here on the call itself is counted among the agent's.
    this.#unassign(task);
    if (failpoint !== null) clock.after(AFTER_HAND_OVER_MS, () => failpoint.pass('after_hand_over'));
    await ending;
    task.call = null;
    this.onFree();
    if (failpoint !== null) failpoint.pass('after_effect');
    const report = reportOf(call);
    const outcome = this.#judge(task, report);
    if (outcome !== 'goes_on') return await this.#settle(task, outcome, report);
    const last = await this.#goOn(task);
    return await this.#settle(task, this.#judge(task, last), last);
  }

  #judge(task: InHand, report: Report): Outcome {
    // After a standstill of the whole process nothing has looked at it in time.
    if (task.stoppedBy === 'no' && this.#isLost(task, this.#parts.clock.now())) task.stoppedBy = 'lost';
    return outcomeOf({
      code: report.code,
      status: report.status,
      started: report.started,
      execution: task.execution,
      retryable: task.envelope.retryable,
      noRetry: report.noRetry,
      tries: task.tries,
      maxTries: this.#parts.settings.maxTries,
      stoppedBy: task.stoppedBy,
    });
  }

  /** The agent has said 202: it tells us later, or its time runs out. */
  async #goOn(task: InHand): Promise<Report> {
    const { clock } = this.#parts;
    const { slots } = task.seat;
    const key = `${slots.agentId} ${task.envelope.task_id}`;
    task.receivedAtMs = clock.wallMs();
    this.#note(task, 'received', Code.ok, '');
    task.dueAt = clock.now() + task.envelope.timeout_ms;
    slots.goingOn++;
    this.#goingOn.set(key, task);
    const report = await new Promise<Report>((resolve) => {
      task.onReport = resolve;
    });
    task.onReport = null;
    task.dueAt = Number.POSITIVE_INFINITY;
    this.#goingOn.delete(key);
    slots.goingOn--;
    this.onFree();
    return report;
  }

  async #settle(task: InHand, outcome: Outcome, report: Report): Promise<number> {
    const { random, settings, clock } = this.#parts;
    const { envelope } = task;
    if (outcome === 'done') return await this.#done(task, report);
    if (outcome === 'dropped') return this.#dropped(task);
    const memory = this.#tries.remember(envelope.task_id);
    if (report.started !== 'not_started') memory.workedMs += clock.now() - task.handedAt;
    switch (outcome) {
      case 'wait':
        this.#untried(task);
        if (task.tries > 0) task.tries--;
        if (!(await this.#release(task, false))) return this.#dropped(task);
        return pauseWhenBusy(report.retryAfterMs, random.next(), settings);
      case 'give_back':
        if (!(await this.#release(task, report.started !== 'not_started'))) return this.#dropped(task);
        return 0;
      case 'again':
        this.counts.again++;
        addFailed(memory, this.#failedTry(task, report));
        if (!(await this.#release(task, true))) return this.#dropped(task);
        this.#note(task, 'waiting', report.code, report.detail);
        return pauseAfter(task.tries, random.next(), settings);
      case 'failed':
        return await this.#finish(task, 'failed', report.code, report.detail, report);
      case 'dead':
        addFailed(memory, this.#failedTry(task, report));
        return await this.#dead(task, report);
      case 'in_doubt':
        addFailed(memory, this.#failedTry(task, report));
        return await this.#inDoubt(task, report.detail, true);
      case 'cancelled':
        return await this.#finish(
          task,
          'cancelled',
          Code.cancelled,
          report.started === 'not_started' ? 'called off before the agent had it' : 'called off while the agent had it: it may have acted',
          report,
        );
      case 'goes_on':
        // A second 202 says nothing new.
        return await this.#done(task, report);
    }
  }

  async #done(task: InHand, report: Report): Promise<number> {
    const { claim } = task;
    if (claim !== null && !(await this.#record(task, claim, report))) return this.#dropped(task);
    if (this.#parts.failpoint !== null) this.#parts.failpoint.pass('after_result');
    return await this.#finish(task, 'done', Code.ok, report.detail, report);
  }

  /** False = what came of it is not taken: somebody else has the work, or nobody can tell. */
  async #record(task: InHand, claim: Claim, report: Report): Promise<boolean> {
    const { clock, settings } = this.#parts;
    const kept: KeptResult = {
      code: report.code,
      status: report.status,
      contentType: report.contentType,
      provider: task.seat.slots.agentId,
      version: task.seat.candidate.version.text,
      detail: report.detail,
      body: report.body,
      leftOutBytes: 0,
    };
    const until = clock.now() + settings.storeForMs;
    for (;;) {
      const stored = await claim.done(kept);
      if (stored === 'stored' || stored === 'too_large') {
        task.claim = null;
        return true;
      }
      if (stored === 'fenced' || !claim.held || clock.now() > until) return false;
      await new Promise<void>((done) => void clock.after(LEDGER_PAUSE_MS, done));
    }
  }

  /** The same answer again. */
  async #replay(task: InHand, result: KeptResult): Promise<number> {
    this.counts.replayed++;
    const { code, status, contentType, body } = result;
    const detail = result.leftOutBytes > 0 ? `the result had ${result.leftOutBytes} bytes and was not kept` : result.detail;
    const state: TaskState = code === 0 && result.leftOutBytes === 0 ? 'done' : 'failed';
    const known = (result.leftOutBytes > 0 && code === 0 ? Code.response_too_large : code) as Code;
    const report = new Report(known, status, 'done', false, 0, detail, contentType, body);
    return await this.#end(
      task,
      toldOf(this.#parts.clock.wallMs(), task, state, known, '', detail, report, result.provider, result.version, true),
      body,
    );
  }

  async #expired(task: InHand): Promise<number> {
    return await this.#finish(task, 'expired', Code.expired, `not delivered within ${task.envelope.expires_ms} ms`, null);
  }

  async #dead(task: InHand, report: Report): Promise<number> {
    if (!(await this.#keep(task, 'dead', Code.dead_lettered, 'attempts_exhausted', report.detail))) return await this.#notStored(task);
    return await this.#finish(task, 'dead_lettered', Code.dead_lettered, report.detail, report, 'attempts_exhausted');
  }

  /** @param isOwn this task is the one that nobody knows about; else one of the same key is */
  async #inDoubt(task: InHand, detail: string, isOwn: boolean): Promise<number> {
    const { claim } = task;
    if (claim !== null) {
      if (!(await claim.unknown(detail))) return this.#dropped(task);
      task.claim = null;
    }
    if (isOwn && !(await this.#keep(task, 'in_doubt', Code.in_doubt, 'worker_vanished', detail))) return await this.#notStored(task);
    const words = isOwn ? detail : `another task with the same key is in doubt: ${detail}`;
    return await this.#finish(task, 'in_doubt', Code.in_doubt, words, null, 'worker_vanished');
  }

  async #finish(task: InHand, state: TaskState, code: Code, detail: string, report: Report | null, cause = ''): Promise<number> {
    const isAnswer = report !== null && (state === 'done' || state === 'failed');
    const body = isAnswer ? report.body : NO_BODY;
    const { agentId } = task.seat.slots;
    const had = task.tries > 0;
    const by = had ? agentId : '';
    const version = had ? task.seat.candidate.version.text : '';
    return await this.#end(
      task,
      toldOf(this.#parts.clock.wallMs(), task, state, code, cause, detail, isAnswer ? report : null, by, version, false),
      body,
    );
  }

  /** Stored, acknowledged, and a key that it leaves is free again. */
  async #end(task: InHand, told: Told, body: Buffer): Promise<number> {
    const { results, queue, failpoint } = this.#parts;
    task.isEnding = true;
    this.ending++;
    this.#freeSeat(task);
    let stored = await results.final(task.envelope, told, body, task.delivery.streamSeq);
    if (stored === 'too_large') {
      const detail = `it was carried out; its result of ${body.length} bytes is more than the bus takes, and is left out`;
      const short: Told = {
        ...told,
        state: told.state === 'done' ? 'failed' : told.state,
        code: Code.response_too_large,
        detail,
        contentType: '',
      };
      stored = await results.final(task.envelope, short, NO_BODY, task.delivery.streamSeq);
    }
    if (stored !== 'stored') return await this.#notStored(task);
    if (failpoint !== null) failpoint.pass('before_ack');
    for (let i = 0; i < CONFIRM_TRIES && !(await queue.end(task.delivery)); i++);
    // Last, so that a crash before it cannot make a second start of work that had begun.
    if (mayHaveActed(task, told)) await this.#doubt(task, told.detail);
    else await this.#release(task, true);
    this.#count(told.state);
    this.#tries.forget(task.envelope.task_id);
    this.#parts.cancelled.forget(task.envelope.task_id);
    task.reported = 'stored';
    return OVER;
  }

  /** False when the claim is not ours any more. */
  async #release(task: InHand, countsAsTry: boolean): Promise<boolean> {
    const { claim } = task;
    if (claim === null) return true;
    task.claim = null;
    claim.onLost = null;
    return await claim.release(countsAsTry);
  }

  #dropped(task: InHand): number {
    this.counts.fenced++;
    task.claim = null;
    task.reported = 'fenced';
    const { envelope, seat } = task;
    this.#parts.log.warn(
      { task: envelope.task_id, agent: seat.slots.agentId },
      'what came of a task is not taken: it is not ours any more',
    );
    return OVER;
  }

  /** It comes again; what its key says then must not make a second start of work that may be started once. */
  async #notStored(task: InHand): Promise<number> {
    this.counts.notStored++;
    task.reported = 'unreachable';
    if (task.execution === 'once' && task.handedAt >= 0) await this.#doubt(task, 'it failed, and that could not be told');
    else await this.#release(task, true);
    return OVER;
  }

  async #doubt(task: InHand, detail: string): Promise<void> {
    const { claim } = task;
    if (claim === null) return;
    task.claim = null;
    claim.onLost = null;
    await claim.unknown(detail);
  }

  #untried(task: InHand): void {
    this.counts.waited++;
    if (task.delivery.deliveries === 1 && task.claim === null) this.#tries.remember(task.envelope.task_id).untried = true;
  }

  async #unreadable(delivery: Delivery, why: string): Promise<void> {
    const { results, queue, log, clock } = this.#parts;
    this.counts.unreadable++;
    const id = `q${delivery.streamSeq}`;
    log.error({ subject: delivery.subject, seq: delivery.streamSeq, why }, 'a message cannot be read; it is kept as dead');
    const entry = unreadableEntry(id, why, clock.wallMs());
    if (await results.keep(entry, delivery.data, `${id}.dead`)) await queue.end(delivery);
  }

  /** A fault of ours: this message is set aside, the others go on. */
  async #broke(task: InHand, error: unknown): Promise<void> {
    const { log, queue, settings, random } = this.#parts;
    const { envelope, delivery } = task;
    this.counts.faults++;
    log.error({ task: envelope.task_id, err: error }, 'a fault while a message was dealt with');
    try {
      const { claim } = task;
      task.claim = null;
      if (claim !== null) {
        if (task.execution === 'once' && task.handedAt >= 0) await claim.unknown('a fault in Agent-Reach');
        else await claim.release(true);
      }
      if (delivery.deliveries < settings.maxTries) queue.giveBack(delivery, pauseAfter(delivery.deliveries, random.next(), settings));
      else if (await this.#keep(task, 'dead', Code.internal, 'fault', 'a fault in Agent-Reach')) await queue.end(delivery);
    } catch (again) {
      // It comes again after the ack wait.
      log.error({ task: envelope.task_id, err: again }, 'a message could not be set aside');
    }
  }

  async #keep(task: InHand, kind: KeptKind, code: Code, cause: string, detail: string): Promise<boolean> {
    const { envelope, delivery } = task;
    const failed = this.#tries.of(envelope.task_id)?.failed ?? [];
    const entry = keptEntry(task, kind, code, cause, detail, failed, this.#parts.clock.wallMs());
    return await this.#parts.results.keep(entry, delivery.data, `${envelope.task_id}.${kind}.${delivery.streamSeq}`);
  }

  #failedTry(task: InHand, report: Report): { by: string; at_ms: number; code: number; detail: string } {
    return { by: task.seat.slots.agentId, at_ms: Math.round(this.#parts.clock.wallMs()), code: report.code, detail: report.detail };
  }

  #note(task: InHand, state: TaskState, code: Code, detail: string): void {
    const { agentId } = task.seat.slots;
    const told = toldOf(this.#parts.clock.wallMs(), task, state, code, '', detail, null, agentId, task.seat.candidate.version.text, false);
    this.#parts.results.note(task.envelope, told);
  }

  #count(state: TaskState): void {
    if (state === 'done') this.counts.done++;
    else if (state === 'failed') this.counts.failed++;
    else if (state === 'dead_lettered') this.counts.dead++;
    else if (state === 'in_doubt') this.counts.inDoubt++;
    else if (state === 'expired') this.counts.expired++;
    else if (state === 'cancelled') this.counts.cancelled++;
  }

  #unassign(task: InHand): void {
    if (task.isSeatFree) return;
    task.isSeatFree = true;
    task.seat.slots.assigned--;
  }

  #freeSeat(task: InHand): void {
    if (task.isSeatFree) return;
    this.#unassign(task);
    this.onFree();
  }

  #stop(task: InHand, by: StoppedBy): void {
    if (task.isEnding) return;
    if (task.stoppedBy === 'no') task.stoppedBy = by;
    task.call?.cancel();
    task.wake?.();
    task.onReport?.(brokenOff(Code.cancelled, by === 'draining' ? 'the sidecar of its agent is stopping' : 'stopped'));
  }

  /** The sender calls it off. `cancelled`: it is stopped, and its end follows; null = it is not in hand here. */
  callOff(taskId: string, source: string): 'cancelled' | 'too_late' | null {
    const task = this.#byTask.get(taskId);
    if (task === undefined || task.envelope.source !== source) return null;
    if (task.isEnding) return 'too_late';
    this.#stop(task, 'cancel');
    return 'cancelled';
  }

  async report(agent: string, taskId: string, said: WorkReport): Promise<Reported> {
    const task = this.#goingOn.get(`${agent} ${taskId}`);
    if (task === undefined || task.onReport === null) return 'unknown';
    const { onReport } = task;
    return await new Promise<Reported>((resolve) => {
      task.onStored = resolve;
      task.onReport = null;
      // 202 would say that it goes on still.
      onReport(new Report(said.code, said.status === 202 ? 200 : said.status, 'done', false, 0, said.detail, said.contentType, said.body));
    });
  }

  extendWork(agent: string, taskId: string): number | null {
    const task = this.#goingOn.get(`${agent} ${taskId}`);
    if (task === undefined) return null;
    task.dueAt = this.#parts.clock.now() + task.envelope.timeout_ms;
    return task.envelope.timeout_ms;
  }

  /** To be called some times a second: extends what is in hand, tells what is received, ends what has had its time. */
  sweep(now: number): void {
    const { settings, clock } = this.#parts;
    for (const task of this.inHand) {
      // The others are younger still.
      if (now - task.arrivedAt < settings.receivedAfterMs) return;
      if (task.call !== null && task.receivedAtMs === 0 && now - task.handedAt >= settings.receivedAfterMs) {
        task.receivedAtMs = clock.wallMs() - (now - task.handedAt);
        this.#note(task, 'received', Code.ok, '');
      }
      if (now >= task.dueAt)
        task.onReport?.(brokenOff(Code.response_timeout, `nothing was heard of it within ${task.envelope.timeout_ms} ms`));
      this.extendIfDue(task, now);
      if (this.#isLost(task, now)) this.#stop(task, 'lost');
    }
  }

  /** Without a claim the queue's word is the only proof that it is ours. */
  #isLost(task: InHand, now: number): boolean {
    return task.claim === null && now - task.confirmedAt >= this.#ackWaitMs;
  }

  /** A confirmed word to the queue that it is being worked on (or waits its turn here). */
  extendIfDue(task: { readonly delivery: Delivery; confirmedAt: number; isExtending: boolean }, now: number): void {
    const everyMs = Math.min(this.#parts.settings.extendEveryMs, this.#ackWaitMs / EXTENSIONS_A_WAIT);
    if (task.isExtending || now - task.confirmedAt < everyMs) return;
    task.isExtending = true;
    void this.#parts.queue.extend(task.delivery).then((isConfirmed) => {
      task.isExtending = false;
      if (isConfirmed) task.confirmedAt = now;
    });
  }

  /** Stops what is still under way. */
  stopAll(): void {
    for (const task of this.inHand) this.#stop(task, 'draining');
  }
}
