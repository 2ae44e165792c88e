/**
 * The life of one message here: is it still wanted, may it be started, hand it over, and judge how that ended. Who gets a message,
 * and when one is pulled, is decided elsewhere; how it leaves stands in `ends.ts`, what is said of it meanwhile (its time is over,
 * it is extended, called off, reported) comes in by `Watch`.
 */
import type { Delivery } from '../../base/puller.ts';
import { Code } from '../../proto/wire/codes.ts';
import { decodeEnvelope } from '../../proto/wire/envelope.ts';
import type { WorkPool } from '../../proto/wire/messages.ts';
import { pauseAfter, pauseWhenBusy } from './backoff.ts';
import { Ends } from './ends.ts';
import { envelopeProblem } from './fit.ts';
import { brokenOff, callFor, executionFor, type Report, reported, reportOf } from './hand-over.ts';
import { InHand } from './in-hand.ts';
import { stopWhenLost } from './keep-long.ts';
import { abandon, askFor, release } from './keys.ts';
import type { Resumed } from './long-work.ts';
import { type Outcome, outcomeOf } from './outcome.ts';
import { OVER, type TaskParts } from './parts.ts';
import { heldBy, type Seat } from './seats.ts';
import { ServerTime } from './server-time.ts';
import { beginDeliver, resumeDeliver, retellDeliver, tellDeliver, tellQueue } from './stages.ts';
import { addFailed, type Memory } from './tries.ts';
import { type Unwanted, unwantedNow } from './unwanted.ts';
import { Watch } from './watch.ts';

const TWIN_PAUSE_MS = 5_000;
/** It is another agent's here, and comes to that one sooner or later. */
const OTHER_AGENT_PAUSE_MS = 1_000;
const AFTER_HAND_OVER_MS = 2;

export class Tasks {
  readonly ends: Ends;
  readonly watch: Watch;
  readonly #parts: TaskParts;
  readonly #time = new ServerTime();

  constructor(parts: TaskParts) {
    this.#parts = parts;
    this.ends = new Ends(parts);
    this.watch = new Watch(parts, this.ends);
  }

  /**
   * Takes a message for an agent. Resolves when nothing more is done for it here; never rejects. True = the queue has forgotten it;
   * false = it comes again.
   */
  async take(delivery: Delivery, arrivedAt: number, consumer: string, { pool }: WorkPool, seat: Seat, inPlace: boolean): Promise<boolean> {
    const { queue, longWork, stages } = this.#parts;
    const decoded = decodeEnvelope(delivery.data);
    const problem = decoded === null ? 'it has no envelope that can be read' : envelopeProblem(decoded.envelope, pool.capability);
    if (decoded === null || problem !== null) return await this.ends.unreadable(delivery, problem ?? '');
    const { envelope, payload } = decoded;
    const sender = this.#parts.subjects.senderOf(delivery.subject);
    if (sender !== envelope.home) return await this.ends.unreadable(delivery, `it was sent by ${sender} in the name of ${envelope.home}`);
    const twin = this.watch.of(envelope.task_id);
    if (twin !== null) {
      if (twin.delivery.streamSeq === delivery.streamSeq) {
        // Delivered anew while we have it: what is said of it from now on is said of this delivery.
        twin.delivery = delivery;
        twin.confirmedAt = arrivedAt;
      } else queue.giveBack(delivery, TWIN_PAUSE_MS);
      return false;
    }
    let resumed = longWork === null ? null : longWork.of(envelope.task_id);
    if (resumed !== null && resumed.kept.agent !== seat.slots.agentId) {
      queue.giveBack(delivery, OTHER_AGENT_PAUSE_MS);
      return false;
    }
    const task = new InHand(delivery, envelope, payload, consumer, seat, inPlace, arrivedAt, arrivedAt);
    if (stages !== null) tellQueue(stages, task, delivery.deliveries === 1 || this.ends.tries.of(envelope.task_id) === null);
    this.watch.add(task);
    try {
      for (;;) {
        seat.slots.assigned++;
        task.isSeatFree = false;
        const came = resumed === null ? await this.#begin(task) : await this.#takeUp(task, resumed);
        resumed = null;
        const pauseMs = typeof came === 'number' ? came : await this.#ended(task, came);
        this.ends.freeSeat(task);
        if (pauseMs === OVER) break;
        // A failed try that its agent has reported is taken, whatever follows.
        task.tell('stored');
        if (inPlace && staysHere(task)) await this.#rest(task, pauseMs);
        if (task.stoppedBy === 'lost') break;
        if (!inPlace || !staysHere(task)) {
          queue.giveBack(task.delivery, staysHere(task) ? pauseMs : 0);
          break;
        }
        task.handedAt = -1;
        task.receivedAtMs = 0;
      }
    } catch (error) {
      this.ends.freeSeat(task);
      await this.ends.broke(task, error);
    }
    // None is left by now, but for a fault.
    abandon(task);
    if (task.isEnding) this.ends.underWay--;
    this.watch.remove(task);
    if (task.isKept && longWork !== null) longWork.remove(envelope.task_id);
    task.tell(task.reported);
    if (task.isEnding) this.ends.onFree();
    return task.isAcked;
  }

  /** Null = nothing is remembered of it here. */
  memoryOf({ data }: Delivery): Memory | null {
    const decoded = decodeEnvelope(data);
    return decoded === null ? null : this.ends.tries.of(decoded.envelope.task_id);
  }

  /** It goes back without a hand-over. */
  unstarted({ data, deliveries }: Delivery): void {
    const decoded = deliveries === 1 ? decodeEnvelope(data) : null;
    if (decoded !== null) this.ends.tries.unstarted(decoded.envelope.task_id);
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

  /** How its agent ended it; or, when it was not handed over, the pause before the next time, or OVER. */
  #begin(task: InHand): Report | number | Promise<Report | number> {
    const now = this.#parts.clock.now();
    // It waited here while this process stood still, or was cut off: others have it by now.
    if (this.watch.isLost(task, now)) return this.ends.dropped(task);
    const { storedAtMs } = task.delivery;
    this.#time.seen(storedAtMs, now);
    this.#parts.noteServerTime(storedAtMs);
    return this.#time.isDue(now) ? this.#askTime(task, now) : this.#look(task);
  }

  async #askTime(task: InHand, now: number): Promise<Report | number> {
    this.#time.asked(now);
    const facts = await this.#parts.queue.facts(task.consumer);
    if (facts !== null) {
      this.#time.told(facts.nowMs, this.#parts.clock.now());
      this.watch.ackWaitMs = facts.ackWaitMs;
    }
    return await this.#look(task);
  }

  /** Most messages go straight through: nothing is waited for before the agent has them. */
  #look(task: InHand): Report | number | Promise<Report | number> {
    const { clock, engine, settings } = this.#parts;
    const { envelope, delivery, seat } = task;
    const memory = this.ends.tries.of(envelope.task_id);
    const leftMs = envelope.deadline_ms === null ? null : envelope.deadline_ms - (memory?.workedMs ?? 0);
    const unwanted = unwantedNow(task, this.#time.at(clock.now()), leftMs, this.#parts.cancelled);
    // One that was delivered before may be at work, or done, elsewhere: its key is looked at before anything is said of it.
    if (unwanted !== null && delivery.deliveries === 1) return this.ends.finish(task, unwanted.state, unwanted.code, unwanted.detail, null);
    // The owner of its key has asked for a pause. Looked at again now and then: its time may be over before that.
    const restMs = task.inPlace ? seat.candidate.health.pausedUntil - clock.now() : 0;
    if (restMs > 0 && unwanted === null) {
      this.#untried(task);
      return pauseWhenBusy(restMs, this.#parts.random.next(), settings);
    }
    const table = engine.table.current();
    const rule = table.overrides.length === 0 ? null : heldBy(seat.candidate, envelope.source, table, clock.wallMs());
    if (rule !== null && unwanted === null) {
      this.#untried(task);
      this.ends.tries.remember(envelope.task_id).sentAway(seat.slots.agentId);
      return pauseWhenBusy(0, this.#parts.random.next(), settings);
    }
    task.execution = executionFor(envelope, seat.candidate.version);
    if (task.execution !== 'idempotent' || envelope.keyed || delivery.deliveries > 1) return this.#claimFirst(task, unwanted, leftMs);
    task.tries++;
    return task.stoppedBy === 'no' ? this.#handOver(task, leftMs) : this.#leave(task);
  }

  async #claimFirst(task: InHand, unwanted: Unwanted | null, leftMs: number | null): Promise<Report | number> {
    const pauseMs = await this.#claim(task);
    if (pauseMs !== null) return pauseMs;
    if (unwanted !== null) {
      task.tries--;
      return await this.ends.finish(task, unwanted.state, unwanted.code, unwanted.detail, null);
    }
    return task.stoppedBy === 'no' ? await this.#handOver(task, leftMs) : await this.#leave(task);
  }

  /** Called off, or we are stopping, while it was looked at. */
  async #leave(task: InHand): Promise<number> {
    return (await release(task, false)) ? 0 : this.ends.dropped(task);
  }

  /** Null = it is ours to start. */
  async #claim(task: InHand, isLookedAt = false): Promise<number | null> {
    const { ledger, settings, random } = this.#parts;
    const { envelope, delivery } = task;
    const isFirstUnrecorded =
      task.execution === 'idempotent' && !envelope.keyed && delivery.deliveries > 1 && !this.ends.tries.isUntried(envelope.task_id);
    const claimed = await ledger.claim(askFor(task, this.#parts), task.isRecorded ? 0 : Math.max(task.tries, isFirstUnrecorded ? 1 : 0));
    switch (claimed.kind) {
      case 'claimed': {
        const { claim } = claimed;
        task.claim = claim;
        task.isRecorded = true;
        task.tries = Math.min(claim.tries, settings.maxTries);
        retellDeliver(this.#parts.stages, task, this.#parts.clock.now());
        stopWhenLost(task);
        // Whoever stood still since it asked for the claim does not begin: others may have it by now.
        if (task.stoppedBy !== 'no' || !claim.held) {
          await release(task, false);
          return 0;
        }
        return claim.tries > settings.maxTries ? await this.ends.exhausted(task) : null;
      }
      case 'done':
        return await this.ends.replay(task, claimed.result);
      case 'executing':
        // A worker that did not extend it: the server's time may show that its lease is over too, without waiting for it here.
        if (!isLookedAt && delivery.deliveries > 1) {
          const facts = await this.#parts.queue.facts(task.consumer);
          if (facts !== null) this.#parts.noteServerTime(facts.nowMs);
          if (facts !== null && task.stoppedBy === 'no') return await this.#claim(task, true);
        }
        // A twin, or a worker that is not heard of: looked at again, without haste.
        return pauseWhenBusy(claimed.againInMs, random.next(), settings);
      case 'in_doubt':
        task.tries = claimed.tries;
        task.hadBy = claimed.worker;
        return await this.ends.inDoubt(
          task,
          `${claimed.worker === '' ? 'its worker' : claimed.worker} vanished after it got the task`,
          claimed.taskId === envelope.task_id,
        );
      case 'ended':
        return await this.ends.again(task);
      case 'reused':
        return await this.ends.finish(task, 'failed', Code.key_reused, claimed.why, null);
      case 'full':
      case 'unreachable':
        return pauseWhenBusy(0, random.next(), settings);
    }
  }

  /** Nothing of the call is held any longer than it takes: what follows waits for the bus. */
  async #handOver(task: InHand, leftMs: number | null): Promise<Report> {
    const { engine, clock, random, failpoint, stages } = this.#parts;
    const { envelope, seat } = task;
    const { candidate } = seat;
    const via = task.delivery.subject.slice(task.delivery.subject.lastIndexOf('.') + 1);
    const call = callFor(envelope, task.payload, via, leftMs, task.delivery.storedAtMs, clock, random, beginDeliver(stages, task));
    if (failpoint !== null) failpoint.pass('before_hand_over');
    task.call = call;
    task.handedAt = clock.now();
    task.endsAt = leftMs === null ? Number.POSITIVE_INFINITY : task.handedAt + leftMs;
    this.ends.counts.started++;
    const ending = this.#parts.inbound(engine, call, candidate.provider.agentId, candidate.version.text);
    // From here on the call itself is counted among the agent's.
    this.ends.unassign(task);
    if (failpoint !== null) clock.after(AFTER_HAND_OVER_MS, () => failpoint.pass('after_hand_over'));
    await ending;
    task.call = null;
    this.ends.onFree();
    if (failpoint !== null) failpoint.pass('after_effect');
    return reportOf(call);
  }

  #ended(task: InHand, report: Report): number | Promise<number> {
    const outcome = this.#judge(task, report);
    return outcome === 'goes_on' ? this.#goesOn(task) : this.#settle(task, outcome, report);
  }

  async #goesOn(task: InHand): Promise<number> {
    const last = await this.#goOn(task);
    return await this.#settle(task, this.#judge(task, last), last);
  }

  /** Its agent has it since before our restart: it is waited for, and not handed over. */
  async #takeUp(task: InHand, before: Resumed): Promise<number> {
    const { longWork, clock, settings } = this.#parts;
    const { claim, kept, report: said } = before;
    longWork?.takeUp(before);
    task.claim = claim;
    task.isRecorded = true;
    task.isLong = true;
    task.isKept = true;
    task.tries = ((claim.tries - 1) % settings.maxTries) + 1;
    task.execution = kept.execution;
    task.handedAt = clock.now();
    task.receivedAtMs = kept.received_at_ms;
    const { deadline_ms: deadlineMs } = task.envelope;
    task.endsAt = deadlineMs === null ? Number.POSITIVE_INFINITY : clock.now() + deadlineMs;
    task.onStored = before.onStored;
    stopWhenLost(task);
    resumeDeliver(this.#parts.stages, task);
    this.ends.unassign(task);
    const report = said === null ? await this.#goOn(task) : reported(said);
    return await this.#settle(task, this.#judge(task, report), report);
  }

  #judge(task: InHand, report: Report): Outcome {
    // After a standstill of the whole process nothing has looked at it in time.
    if (task.stoppedBy === 'no' && this.watch.isLost(task, this.#parts.clock.now())) task.stoppedBy = 'lost';
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
    if (!task.isKept) {
      task.receivedAtMs = clock.wallMs();
      this.ends.note(task, 'received', Code.ok, '');
    }
    // It was to be stopped while it was handed over, and nobody says so again.
    if (task.stoppedBy !== 'no') return brokenOff(Code.cancelled, 'stopped while the agent took it');
    task.dueAt = Math.min(clock.now() + task.envelope.timeout_ms, task.endsAt);
    slots.goingOn++;
    const report = await new Promise<Report>((resolve) => {
      task.onReport = resolve;
    });
    task.onReport = null;
    task.dueAt = Number.POSITIVE_INFINITY;
    slots.goingOn--;
    this.ends.onFree();
    return report;
  }

  #settle(task: InHand, outcome: Outcome, report: Report): number | Promise<number> {
    tellDeliver(this.#parts.stages, task, report, this.#parts.clock.now());
    if (outcome === 'dropped') return this.ends.dropped(task);
    task.isDecided = outcome !== 'wait' && outcome !== 'give_back' && outcome !== 'again';
    // A second 202 says nothing new.
    if (outcome === 'done' || outcome === 'goes_on') return this.ends.done(task, report);
    return this.#settleFailed(task, outcome, report);
  }

  async #settleFailed(task: InHand, outcome: Exclude<Outcome, 'dropped' | 'done' | 'goes_on'>, report: Report): Promise<number> {
    const { random, settings, clock } = this.#parts;
    const { envelope } = task;
    const memory = this.ends.tries.remember(envelope.task_id);
    if (report.started !== 'not_started') memory.workedMs += clock.now() - task.handedAt;
    switch (outcome) {
      case 'wait':
        if (task.tries > 0) task.tries--;
        this.#untried(task);
        memory.sentAway(task.seat.slots.agentId);
        if (!(await release(task, false))) return this.ends.dropped(task);
        // An agent that is to be left alone for so long gets nothing meanwhile: the message may go to another one before.
        return pauseWhenBusy(isPaused(task, clock.now()) ? 0 : report.retryAfterMs, random.next(), settings);
      case 'give_back':
        return (await this.#giveBack(task)) ? 0 : this.ends.dropped(task);
      case 'again':
        this.ends.counts.again++;
        addFailed(memory, this.ends.failedTry(task, report));
        memory.sentAway(task.seat.slots.agentId);
        if (!(await release(task, true))) return this.ends.dropped(task);
        this.ends.note(task, 'waiting', report.code, report.detail);
        return pauseAfter(task.tries, random.next(), settings);
      case 'failed':
        return await this.ends.finish(task, 'failed', report.code, report.detail, report);
      case 'dead':
        addFailed(memory, this.ends.failedTry(task, report));
        return await this.ends.dead(task, report);
      case 'in_doubt':
        addFailed(memory, this.ends.failedTry(task, report));
        return await this.ends.inDoubt(task, report.detail, true);
      case 'cancelled':
        return await this.ends.finish(
          task,
          'cancelled',
          Code.cancelled,
          report.started === 'not_started' ? 'called off before the agent had it' : 'called off while the agent had it: it may have acted',
          report,
        );
    }
  }

  /** No try: it is this sidecar that gives up. A first hand-over is recorded nowhere, so whoever has it next is told by its key. */
  async #giveBack(task: InHand): Promise<boolean> {
    if (task.claim === null && task.tries > 0) {
      const claimed = await this.#parts.ledger.claim(askFor(task, this.#parts), task.tries - 1);
      if (claimed.kind === 'claimed') task.claim = claimed.claim;
    }
    return await release(task, false);
  }

  #untried(task: InHand): void {
    this.ends.counts.waited++;
    // One that is tried in its place may have had a try before.
    if (task.tries === 0 && task.delivery.deliveries === 1 && task.claim === null)
      this.ends.tries.remember(task.envelope.task_id).untried = true;
  }
}

function isPaused({ seat, inPlace }: InHand, now: number): boolean {
  return !inPlace && seat.candidate.health.pausedUntil > now;
}

/** Nothing has stopped it, and nobody else is to have it. */
function staysHere({ stoppedBy, hasMoved }: InHand): boolean {
  return stoppedBy === 'no' && !hasMoved;
}
