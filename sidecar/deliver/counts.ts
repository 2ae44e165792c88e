/** What delivery has done since the start, for metrics and for people. */
export class DeliverCounts {
  /** Hand-overs begun. */
  started = 0;
  done = 0;
  failed = 0;
  /** Failed tries that are followed by another. */
  again = 0;
  /** Given back since nobody could take it. */
  waited = 0;
  dead = 0;
  inDoubt = 0;
  expired = 0;
  cancelled = 0;
  /** Answered with what was recorded for the key. */
  replayed = 0;
  /** Ends that were not taken: the work was somebody else's by then. */
  fenced = 0;
  /** Messages that could not be read. */
  unreadable = 0;
  /** Faults of ours while a message was dealt with. */
  faults = 0;
  /** Ends that the bus did not store: the message comes again. */
  notStored = 0;

  outcomes(): Readonly<Record<string, number>> {
    return {
      started: this.started,
      done: this.done,
      failed: this.failed,
      again: this.again,
      waited: this.waited,
      dead_lettered: this.dead,
      in_doubt: this.inDoubt,
      expired: this.expired,
      cancelled: this.cancelled,
      replayed: this.replayed,
      fenced: this.fenced,
      unreadable: this.unreadable,
      fault: this.faults,
      not_stored: this.notStored,
    };
  }
}
