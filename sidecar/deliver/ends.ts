/**
 * How a message leaves: what came of it is stored for its sender, what a person should see is kept, and only then the queue is told
 * to forget it, and that is confirmed. A crash between any two of these repeats the later ones and never the work. What cannot
 * be stored stays in the queue and comes again. Which end it is has been decided before.
 */
import type { Delivery } from '../../base/puller.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { KeptKind, TaskState } from '../../proto/wire/messages.ts';
import { NO_BODY } from '../call/reply.ts';
import type { Claim, KeptResult } from '../ledger/ledger.ts';
import { pauseAfter } from './backoff.ts';
import { DeliverCounts } from './counts.ts';
import { Report } from './hand-over.ts';
import type { InHand } from './in-hand.ts';
import { abandon, doubt, endKey, recordDone, release } from './keys.ts';
import { OVER, type TaskParts } from './parts.ts';
import type { Told } from './results.ts';
import { tellResult } from './stages.ts';
import { keptEntry, mayHaveActed, toldOf, unreadableEntry } from './telling.ts';
import { type FailedTry, Tries } from './tries.ts';

/** An acknowledgement that was not confirmed is sent again after this. */
const ACK_PAUSE_MS = 500;

export class Ends {
  readonly counts = new DeliverCounts();
  readonly tries = new Tries();
  /** Those that are being written down. */
  underWay = 0;
  /** A slot has become free. */
  onFree: () => void = () => undefined;
  readonly #parts: TaskParts;

  constructor(parts: TaskParts) {
    this.#parts = parts;
  }

  done(task: InHand, report: Report): Promise<number> {
    if (task.claim !== null) return this.#doneWithClaim(task, task.claim, report);
    if (this.#parts.failpoint !== null) this.#parts.failpoint.pass('after_result');
    return this.finish(task, 'done', Code.ok, report.detail, report);
  }

  async #doneWithClaim(task: InHand, claim: Claim, report: Report): Promise<number> {
    if (!(await recordDone(task, claim, report, this.#parts.clock))) return this.dropped(task);
    if (this.#parts.failpoint !== null) this.#parts.failpoint.pass('after_result');
    return await this.finish(task, 'done', Code.ok, report.detail, report);
  }

  /** The same answer again. */
  async replay(task: InHand, result: KeptResult): Promise<number> {
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

  async dead(task: InHand, report: Report): Promise<number> {
    if (!(await this.#keep(task, 'dead', Code.dead_lettered, 'attempts_exhausted', report.detail))) return await this.#notStored(task);
    return await this.finish(task, 'dead_lettered', Code.dead_lettered, report.detail, report, 'attempts_exhausted');
  }

  /** Every worker that had it died with it, and so would the next one: that it was tried is known from its claim alone. */
  async exhausted(task: InHand): Promise<number> {
    const detail = `it was handed over ${task.tries} times, and the last worker vanished with it`;
    task.hadBy = '';
    if (!(await this.#keep(task, 'dead', Code.dead_lettered, 'attempts_exhausted', detail))) return await this.#notStored(task);
    return await this.finish(task, 'dead_lettered', Code.dead_lettered, detail, null, 'attempts_exhausted');
  }

  /** @param isOwn this task is the one that nobody knows about; else one of the same key is */
  async inDoubt(task: InHand, detail: string, isOwn: boolean): Promise<number> {
    if (!(await doubt(task, detail))) return this.dropped(task);
    if (isOwn && !(await this.#keep(task, 'in_doubt', Code.in_doubt, 'worker_vanished', detail))) return await this.#notStored(task);
    const words = isOwn ? detail : `another task with the same key is in doubt: ${detail}`;
    return await this.finish(task, 'in_doubt', Code.in_doubt, words, null, 'worker_vanished');
  }

  finish(task: InHand, state: TaskState, code: Code, detail: string, report: Report | null, cause = ''): Promise<number> {
    const isAnswer = report !== null && (state === 'done' || state === 'failed');
    const body = isAnswer ? report.body : NO_BODY;
    const { agentId } = task.seat.slots;
    const had = task.tries > 0 && task.hadBy === null;
    const by = had ? agentId : (task.hadBy ?? '');
    const version = had ? task.seat.candidate.version.text : '';
    return this.#end(
      task,
      toldOf(this.#parts.clock.wallMs(), task, state, code, cause, detail, isAnswer ? report : null, by, version, false),
      body,
    );
  }

  /** It came again although it has ended and its sender was told. */
  async again(task: InHand): Promise<number> {
    task.isEnding = true;
    this.underWay++;
    await this.#acknowledge(task);
    task.reported = 'stored';
    return OVER;
  }

  /** What came of it is not taken: it is somebody else's, or comes again. */
  dropped(task: InHand): number {
    this.counts.fenced++;
    abandon(task);
    task.reported = 'fenced';
    const { envelope, seat } = task;
    this.#parts.log.warn(
      { task: envelope.task_id, agent: seat.slots.agentId },
      'what came of a task is not taken: it is not ours any more',
    );
    return OVER;
  }

  async unreadable(delivery: Delivery, why: string): Promise<boolean> {
    const { results, queue, log, clock } = this.#parts;
    this.counts.unreadable++;
    const id = `q${delivery.streamSeq}`;
    log.error({ subject: delivery.subject, seq: delivery.streamSeq, why }, 'a message cannot be read; it is kept as dead');
    const entry = unreadableEntry(id, why, clock.wallMs());
    return (await results.keep(entry, delivery.data, `${id}.dead`)) && (await queue.end(delivery));
  }

  /** A fault of ours: this message is set aside, the others go on. */
  async broke(task: InHand, error: unknown): Promise<void> {
    const { log, queue, settings, random } = this.#parts;
    const { envelope, delivery } = task;
    this.counts.faults++;
    log.error({ task: envelope.task_id, err: error }, 'a fault while a message was dealt with');
    try {
      if (task.execution === 'once' && task.handedAt >= 0) await doubt(task, 'a fault in Agent-Reach');
      else await release(task, true);
      if (delivery.deliveries < settings.maxTries) queue.giveBack(delivery, pauseAfter(delivery.deliveries, random.next(), settings));
      else if (await this.#keep(task, 'dead', Code.internal, 'fault', 'a fault in Agent-Reach')) task.isAcked = await queue.end(delivery);
    } catch (again) {
      // It comes again after the ack wait.
      log.error({ task: envelope.task_id, err: again }, 'a message could not be set aside');
    }
  }

  note(task: InHand, state: TaskState, code: Code, detail: string): void {
    const { agentId } = task.seat.slots;
    const told = toldOf(this.#parts.clock.wallMs(), task, state, code, '', detail, null, agentId, task.seat.candidate.version.text, false);
    this.#parts.results.note(task.envelope, told);
  }

  failedTry(task: InHand, report: Report): FailedTry {
    return { by: task.seat.slots.agentId, at_ms: Math.round(this.#parts.clock.wallMs()), code: report.code, detail: report.detail };
  }

  unassign(task: InHand): void {
    if (task.isSeatFree) return;
    task.isSeatFree = true;
    task.seat.slots.assigned--;
  }

  freeSeat(task: InHand): void {
    if (task.isSeatFree) return;
    this.unassign(task);
    this.onFree();
  }

  /** Stored, acknowledged, and a key that it leaves is free again. */
  async #end(task: InHand, told: Told, body: Buffer): Promise<number> {
    const { results, failpoint, clock, stages } = this.#parts;
    task.isEnding = true;
    this.underWay++;
    this.freeSeat(task);
    const startedAt = clock.now();
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
    tellResult(stages, task, told, startedAt, clock.now(), stored === 'stored');
    if (stored !== 'stored') return await this.#notStored(task);
    if (failpoint !== null) failpoint.pass('before_ack');
    task.isAcked = await this.#parts.queue.end(task.delivery);
    if (!task.isAcked) await this.#acknowledge(task);
    if (task.claim !== null) await this.#leaveKey(task, told);
    this.#count(told.state);
    this.tries.forget(task.envelope.task_id);
    this.#parts.cancelled.forget(task.envelope.task_id);
    task.reported = 'stored';
    return OVER;
  }

  async #leaveKey(task: InHand, told: Told): Promise<void> {
    // Last, so that a crash before it cannot make a second start of work that had begun. A server that is killed may forget an
    // acknowledgement that it has confirmed: what has ended says so in its key.
    if (mayHaveActed(task, told)) await doubt(task, told.detail);
    else if (told.state === 'failed') await endKey(task);
    else await release(task, true);
  }

  /** Until it is confirmed: while there is no connection an answer cannot come, and one that does not come says nothing. */
  async #acknowledge(task: InHand): Promise<void> {
    const { queue, clock, settings } = this.#parts;
    const until = clock.now() + settings.storeForMs;
    for (;;) {
      task.isAcked = await queue.end(task.delivery);
      if (task.isAcked || clock.now() > until) return;
      await new Promise<void>((done) => void clock.after(ACK_PAUSE_MS, done));
    }
  }

  /** It comes again; what its key says then must not make a second start of work that may be started once. */
  async #notStored(task: InHand): Promise<number> {
    this.counts.notStored++;
    task.reported = 'unreachable';
    if (task.execution === 'once' && task.handedAt >= 0) await doubt(task, 'it failed, and that could not be told');
    // The last try is the last one also when that could not be told.
    else await release(task, task.tries < this.#parts.settings.maxTries);
    return OVER;
  }

  async #keep(task: InHand, kind: KeptKind, code: Code, cause: string, detail: string): Promise<boolean> {
    const { envelope, delivery } = task;
    const failed = this.tries.of(envelope.task_id)?.failed ?? [];
    const entry = keptEntry(task, kind, code, cause, detail, failed, this.#parts.clock.wallMs());
    return await this.#parts.results.keep(entry, delivery.data, `${envelope.task_id}.${kind}.${delivery.streamSeq}`);
  }

  #count(state: TaskState): void {
    if (state === 'done') this.counts.done++;
    else if (state === 'failed') this.counts.failed++;
    else if (state === 'dead_lettered') this.counts.dead++;
    else if (state === 'in_doubt') this.counts.inDoubt++;
    else if (state === 'expired') this.counts.expired++;
    else if (state === 'cancelled') this.counts.cancelled++;
  }
}
