/**
 * Hears of every call, attempt and breaker change and passes it on to metrics and logs. It counts what it heard, so that
 * a test (and the health page) can hold starts against ends. It decides nothing and never throws.
 */
import type { Clock } from '../../base/clock.ts';
import { type Logger, printable } from '../../base/log.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import type { Observer } from '../engine.ts';
import type { BreakerStateName } from '../health/breaker.ts';
import { AccessLog, type AccessMode } from './access.ts';
import { DigestCounts } from './digest.ts';
import { Metrics } from './metrics.ts';
import { Refusals } from './refusals.ts';
import { ShiftCounts } from './shift-counts.ts';
import type { Spans } from './spans.ts';

export class Observation implements Observer {
  readonly metrics = new Metrics();
  /** What the control plane is told of all traffic. */
  readonly digest = new DigestCounts();
  /** What is measured while traffic is shifted. */
  readonly shifts = new ShiftCounts();
  /** What policy refused, for the audit log. */
  readonly refusals: Refusals;
  /** Put in before the first call; null = no traces are made. */
  spans: Spans | null = null;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #access: AccessLog;
  #started = 0;
  #ended = 0;
  #attemptsEnded = 0;
  #accessRecords = 0;

  constructor(clock: Clock, logger: Logger, access: AccessMode) {
    this.#clock = clock;
    this.#logger = logger;
    this.#access = new AccessLog(logger, access);
    this.refusals = new Refusals(clock, logger);
  }

  callStarted(call: Call): void {
    this.#started++;
    if (this.spans !== null) this.spans.begin(call);
    this.metrics.callStarted(call);
  }

  attemptEnded(call: Call, attempt: Attempt): void {
    this.#attemptsEnded++;
    this.shifts.attemptEnded(call, attempt);
    this.digest.attemptEnded(call, attempt);
    this.metrics.attemptEnded(attempt);
    if (this.spans !== null) this.spans.attemptEnded(call, attempt);
  }

  callEnded(call: Call): void {
    this.#ended++;
    const elapsedMs = this.#clock.now() - call.startedAt;
    this.metrics.callEnded(call, elapsedMs);
    this.digest.callEnded(call, elapsedMs);
    this.refusals.judged(call);
    if (this.spans !== null) this.spans.callEnded(call, elapsedMs);
    if (this.#access.write(call, elapsedMs)) this.#accessRecords++;
  }

  /** A throw inside the pipeline: a fault of ours. */
  bug(call: Call, error: unknown): void {
    this.#logger.error({ trace_id: call.traceId, capability: call.capability?.name ?? null, err: error }, 'a fault in the pipeline');
  }

  /** A throw outside any call: in a way in, in a page. */
  fault(error: unknown): void {
    this.#logger.error({ err: error }, 'a fault');
  }

  /** What a puzzled operator may want to know, and nobody else. */
  hint(words: string): void {
    this.#logger.debug(words);
  }

  /** For `Health.onTransition`. An arrow, so that it can be handed over as it is. */
  readonly breakerMoved = (
    cell: { readonly agentId: string; readonly capability: string },
    from: BreakerStateName,
    to: BreakerStateName,
    why: string,
  ): void => {
    this.metrics.breakerMoved(cell.agentId, cell.capability, from, to);
    this.digest.breakerMoved(cell.agentId, cell.capability, from, to, why, this.#clock.wallMs());
    const line = { provider: cell.agentId, capability: cell.capability, from, to, why: printable(why) };
    if (to === 'open') this.#logger.warn(line, 'breaker');
    else this.#logger.info(line, 'breaker');
  };

  started(): number {
    return this.#started;
  }

  ended(): number {
    return this.#ended;
  }

  inFlight(): number {
    return this.#started - this.#ended;
  }

  attemptsEnded(): number {
    return this.#attemptsEnded;
  }

  /** Access lines written; with `access: all` the same as `ended()`. */
  accessRecords(): number {
    return this.#accessRecords;
  }
}
