/**
 * How a sidecar ends, in one place (SPEC R13.3). The order is the promise:
 *
 * 1. It is not ready any more, and takes nothing from other sidecars or from the queue: calls are refused as not started, so that
 *    they go elsewhere, and connections are closed behind the answers.
 * 2. It leaves the registry: nobody chooses it from now on. A moment later that has reached every table.
 * 3. What is under way ends, and the agents beside it finish (`accept/finishing.ts`), until the grace is over.
 * 4. Everything is closed. What is still under way is told so: streams with where to go on, calls with 2006, messages are given back.
 * 5. What waits to be written leaves: messages, their ends, acknowledgements, the log; then NATS. Each has its time: one that hangs, a
 *    dead disk, or fails takes nothing from those behind it.
 *
 * Asked again with a shorter grace, the time becomes shorter: a second signal means now.
 */
import type { Clock, Timer } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Front } from './accept/front.ts';
import type { GrpcPort } from './accept/grpc.ts';
import type { Port } from './accept/server.ts';
import type { LiveDelivery } from './deliver/live.ts';
import type { Joined } from './join.ts';

export interface StopParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly front: Front;
  readonly ports: readonly Port[];
  readonly grpc: GrpcPort | null;
  readonly delivery: LiveDelivery | null;
  readonly inbox: { leave(): void; close(): Promise<void> } | null;
  readonly joined: Joined | null;
  /** Stops looking at files. */
  readonly unwatch: () => void;
  /** What leaves or is let go behind everything else, in order. */
  readonly flush: readonly LastStep[];
  /** What nothing of `flush` depends on: beside it. */
  readonly beside: readonly LastStep[];
}

/** What it is, for the log; and what is done. */
export type LastStep = readonly [what: string, run: () => Promise<void> | void];

/** What came of it. */
export interface StopReport {
  readonly tookMs: number;
  /** Calls that got no proper answer: told 2006, as far as they could be told. */
  readonly callsCut: number;
  /** Streams that were told that the sidecar goes away, and where to go on. */
  readonly streamsTold: number;
  /** Messages that others carry out now. */
  readonly givenBack: number;
  /** Messages at which agents go on (202): the next start takes them up. */
  readonly kept: number;
  /** Messages of kind `once` that were begun and not ended: a person decides. */
  readonly inDoubt: number;
  /** Messages on this machine's disk that have not reached NATS: the next start sends them. */
  readonly unsent: number;
}

/** How long the registry may take to hear that this sidecar stops. */
const GOODBYE_MS = 1_000;
/** From the registry's answer until every table has it: p99 is 100 ms. */
const SPREAD_MS = 250;
const LOOK_EVERY_MS = 20;
/** What is told at the end may take so long to be read. */
const LAST_WORDS_MS = 300;
/** What is written at the end has so long for each step; beside it what is worth least. */
const STEP_MS = 5_000;
const BESIDE_MS = 1_000;

export class Stop {
  readonly #parts: StopParts;
  #endsAt = Number.POSITIVE_INFINITY;
  #running: Promise<StopReport> | null = null;
  #wake: (() => void) | null = null;

  constructor(parts: StopParts) {
    this.#parts = parts;
  }

  /** Never rejects for what does not end in time. Said again, the time may become shorter. */
  run(graceMs: number): Promise<StopReport> {
    const { clock, front } = this.#parts;
    const endsAt = clock.now() + graceMs;
    if (endsAt < this.#endsAt) {
      this.#endsAt = endsAt;
      front.finishing?.begin(endsAt);
      this.#wake?.();
    }
    this.#running ??= this.#run();
    return this.#running;
  }

  async #run(): Promise<StopReport> {
    const { clock, log, front, ports, grpc, delivery, inbox, joined } = this.#parts;
    const beganAt = clock.now();
    front.draining = true;
    front.channels?.tellGoodbye(this.#endsAt - beganAt);
    this.#parts.unwatch();
    log.logger.info(
      { calls: front.observation.inFlight(), messages: delivery?.deliver.atWork ?? 0, grace_ms: Math.round(this.#endsAt - beganAt) },
      'stops: takes nothing new from others, leaves the registry, and ends what is under way',
    );
    const inDoubtBefore = this.#inDoubt();
    // Given back when this says so, and not by a clock of its own.
    const delivered = delivery?.stop(Number.POSITIVE_INFINITY) ?? Promise.resolve(0);
    if (joined !== null) {
      await joined.leave(Math.min(GOODBYE_MS, this.#endsAt - clock.now() + LAST_WORDS_MS));
      await this.#sleep(SPREAD_MS);
    }
    while (clock.now() < this.#endsAt && !this.#isFinished()) await this.#sleep(LOOK_EVERY_MS);

    const calls = front.observation.inFlight() - (delivery?.deliver.calls ?? 0);
    const kept = delivery?.deliver.kept ?? 0;
    front.close();
    inbox?.leave();
    void delivery?.stop(0);
    for (const port of ports) port.goAway();
    grpc?.goAway();
    if (calls > 0) await this.#told();
    const closingMs = calls > 0 ? LAST_WORDS_MS : Math.max(0, this.#endsAt - clock.now());
    await Promise.all([...ports.map((port) => port.close(closingMs)), grpc?.close(closingMs)]);
    const left = await delivered;
    const unsent = front.outbox?.pending ?? 0;
    const beside = this.#parts.beside.map((step) => this.#last(step, BESIDE_MS));
    for (const step of this.#parts.flush) await this.#last(step, STEP_MS);
    await Promise.all(beside);
    const inDoubt = this.#inDoubt() - inDoubtBefore;
    const report: StopReport = {
      tookMs: Math.round(clock.now() - beganAt),
      callsCut: Math.max(0, calls - front.streamsTold),
      streamsTold: front.streamsTold,
      givenBack: Math.max(0, left - inDoubt - kept),
      kept,
      inDoubt,
      unsent,
    };
    log.logger[isClean(report) ? 'info' : 'warn'](report, `stopped: ${stopWords(report)}`);
    log.flush();
    return report;
  }

  #isFinished(): boolean {
    const { front, delivery, joined } = this.#parts;
    // Looked at each time: it sees who is busy.
    const isQuiet = front.finishing?.look() ?? true;
    if (!isQuiet || front.observation.inFlight() > 0 || front.submitting > 0 || (delivery?.deliver.atWork ?? 0) > 0) return false;
    // What waits on disk leaves now, when it can.
    return (front.outbox?.pending ?? 0) === 0 || joined?.bus.connected !== true;
  }

  /** Never rejects, and is over in that time. */
  async #last([what, run]: LastStep, withinMs: number): Promise<void> {
    const { clock, log } = this.#parts;
    let timer: Timer | null = null;
    try {
      const running = run();
      if (running === undefined) return;
      const isOver = await Promise.race([
        running.then(() => false),
        new Promise<boolean>((done) => {
          timer = clock.after(withinMs, () => done(true));
        }),
      ]);
      if (isOver) log.logger.warn({ what, within_ms: withinMs }, 'stops without waiting longer for what does not end');
    } catch (error) {
      log.logger.warn({ what, err: error }, 'stops, though this failed');
    } finally {
      (timer as Timer | null)?.cancel();
    }
  }

  #inDoubt(): number {
    return this.#parts.delivery?.deliver.outcomes()['in_doubt'] ?? 0;
  }

  /** What was cut has ended, or does not take its end. */
  async #told(): Promise<void> {
    const { clock, front, delivery } = this.#parts;
    const until = clock.now() + LAST_WORDS_MS;
    while (front.observation.inFlight() > (delivery?.deliver.calls ?? 0) && clock.now() < until)
      await new Promise<void>((done) => void clock.after(LOOK_EVERY_MS, done));
  }

  /** Never beyond the end of the grace, also when that comes nearer. */
  async #sleep(ms: number): Promise<void> {
    const { clock } = this.#parts;
    const waitMs = Math.min(ms, this.#endsAt - clock.now());
    if (waitMs <= 0) return;
    await new Promise<void>((done) => {
      const timer = clock.after(waitMs, done);
      this.#wake = () => {
        timer.cancel();
        done();
      };
    });
    this.#wake = null;
  }
}

/** Nothing was lost, and nobody was left without an end. */
export function isClean({ callsCut, inDoubt }: StopReport): boolean {
  return callsCut === 0 && inDoubt === 0;
}

/** One sentence for the log and for whoever sent the signal. */
export function stopWords(report: StopReport): string {
  const parts: string[] = [];
  if (report.callsCut > 0) parts.push(`${count(report.callsCut, 'call')} cut`);
  if (report.inDoubt > 0) parts.push(`${count(report.inDoubt, 'message')} of kind once in doubt`);
  if (report.streamsTold > 0) parts.push(`${count(report.streamsTold, 'stream')} told to go on elsewhere`);
  if (report.givenBack > 0) parts.push(`${count(report.givenBack, 'message')} given back for others`);
  if (report.kept > 0) parts.push(`${count(report.kept, 'message')} at agents that go on, for the next start`);
  if (report.unsent > 0) parts.push(`${count(report.unsent, 'message')} on disk for the next start`);
  return parts.length === 0 ? 'everything that was under way has ended' : parts.join(', ');
}

function count(n: number, noun: string): string {
  return `${n} ${noun}${n === 1 ? '' : 's'}`;
}
