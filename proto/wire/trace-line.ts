/** One verdict of a stage, as it stands in answers, in `explain`, in spans and in recordings. */
export interface TraceLine {
  /** Since the call began. */
  readonly at_ms: number;
  readonly stage: string;
  readonly reason: string;
  readonly code: number;
  readonly words: string;
}
