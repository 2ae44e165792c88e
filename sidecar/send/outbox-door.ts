/**
 * Messages that wait on this machine's disk until NATS is back, as sending sees them. What is `stored` was flushed to the disk
 * before it was said, and leaves in the order in which it came; how that is done, and when it is drained, is the outbox's.
 */
export interface Outbox {
  /** There is one: a folder for it is named. */
  readonly isThere: boolean;
  /** Messages that wait in it. While there are any, new ones go behind them. */
  readonly pending: number;
  /** @param msgId the same as was used for tries to send it directly: what was stored then is not stored twice. */
  put(subject: string, data: Buffer, msgId: string): Promise<'stored' | 'full' | 'broken'>;
  close(): Promise<void>;
}

/** Nowhere to put anything: `state_dir: none`. */
export const NO_OUTBOX: Outbox = Object.freeze({
  isThere: false,
  pending: 0,
  put: (): Promise<'broken'> => Promise.resolve('broken'),
  close: (): Promise<void> => Promise.resolve(),
});
