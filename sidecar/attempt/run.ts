/** The state of one attempt that its timer and the caller's leaving act on. */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Call } from '../call/call.ts';
import { giveUp, type Work } from '../call/underway.ts';
import type { Exchange } from '../transports/transport.ts';

export type Stopped = 'no' | 'attempt_time' | 'task_time' | 'caller_gone';

/** The state of one attempt that its timer and the caller's leaving act on, and what its agent does for it meanwhile. */
export class Run implements Work {
  stopped: Stopped = 'no';
  exchange: Exchange;
  readonly call: Call;
  readonly traceId: string;
  readonly agentId: string;
  readonly spanId: string;
  /** Moves when the work is extended. */
  endsAt: number;
  readonly totalMs: number;
  parts: Set<Call> | null = null;
  next: Work | null = null;
  /** Stops it when its time is over. */
  timer: Timer | null = null;
  /** Called instead of the abort when the time is over: the answer is still wanted, by whoever repeats the call. Null = it is not. */
  patience: ((why: Stopped) => boolean) | null = null;
  constructor(exchange: Exchange, call: Call, spanId: string, endsAt: number) {
    this.exchange = exchange;
    this.call = call;
    this.traceId = call.traceId;
    this.agentId = exchange.candidate.provider.agentId;
    this.spanId = spanId;
    this.endsAt = endsAt;
    this.totalMs = call.totalMs;
  }
  stop(why: Stopped): void {
    if (this.stopped !== 'no') return;
    this.stopped = why;
    if (this.patience?.(why) === true) {
      giveUp(this);
      return;
    }
    this.abort();
    giveUp(this);
  }
  /** Frees the connection. */
  abort(): void {
    const abort = this.exchange.abort;
    this.exchange.abort = null;
    abort?.();
  }
}

/**
 * Made by a function of its own for V8's sake: a function literal that is assigned to a property is allocated in the old
 * generation, where each dead one keeps its whole call alive until the next full collection (17 us of CPU a call).
 */
export function leaver(run: Run): () => void {
  return () => run.stop('caller_gone');
}

/** Made apart for the same reason. */
export function extender(run: Run, clock: Clock): (ms: number) => void {
  return (ms) => {
    if (run.stopped !== 'no') return;
    run.timer?.cancel();
    run.timer = clock.after(ms, () => run.stop('attempt_time'));
    run.endsAt = clock.now() + ms;
  };
}
