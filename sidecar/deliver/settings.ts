/** What delivery goes by. Every default has its reason; what an operator may change stands in the sidecar's settings too. */
export interface DeliverSettings {
  /** Messages at once for an agent, calls counted, where that is less than its calls may be; null = it is not less. Above it they wait in the queue. */
  readonly concurrency: number | null;
  /** Slots of each agent that only the high lane may take. For targets with long jobs; 0 = none. */
  readonly reserveHigh: number;
  /** Hand-overs before a message is kept as dead. */
  readonly maxTries: number;
  /** Pause after the first failed try; it doubles with each further one. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
  /** Share of the pause that is added by chance, so that what failed together does not come back together. */
  readonly jitter: number;
  /** Pause when nobody could take it: not a failed try, so it does not grow. */
  readonly busyPauseMs: number;
  /** What was not extended for so long is somebody else's; until the server has said what it is. */
  readonly ackWaitMs: number;
  /** Work in hand is extended so often: twice may fail before the wait is over. */
  readonly extendEveryMs: number;
  /** Work that goes on for so long after the hand-over is told to be `received`. */
  readonly receivedAfterMs: number;
  /** A message that came although no slot is free is kept for so long, then given back for others. */
  readonly holdMs: number;
  /** Messages whose end is being written down at a time; above it nothing is pulled. Bounds memory when the bus is slow. */
  readonly maxEnding: number;
  /** The stream's answer to a result; a fail-over of three replicas takes up to 7 s. */
  readonly storeTimeoutMs: number;
  /** A result is offered to the stream for so long before the message is left to come again. */
  readonly storeForMs: number;
}

export const DELIVER_DEFAULTS: DeliverSettings = Object.freeze({
  concurrency: null,
  reserveHigh: 0,
  maxTries: 7,
  firstPauseMs: 1_000,
  longestPauseMs: 32_000,
  jitter: 0.2,
  busyPauseMs: 1_000,
  ackWaitMs: 20_000,
  extendEveryMs: 5_000,
  receivedAfterMs: 500,
  holdMs: 1_000,
  maxEnding: 4_096,
  storeTimeoutMs: 8_000,
  storeForMs: 30_000,
});
