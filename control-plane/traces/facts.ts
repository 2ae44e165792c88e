/** What is known of a trace beside its spans, and what is found to be missing of it. */
export interface Missing {
  readonly gaps: string[];
  readonly underWay: string[];
  /** How something ended that has no span of its own. */
  readonly notes: string[];
}

export interface Facts {
  /** Spans that were told beyond what one trace may have. */
  readonly cut: number;
  /** A part of it had been thrown out before. */
  readonly isRemainder: boolean;
  /** What was told by two, in words. */
  readonly conflicts: readonly string[];
  /** Sidecars that said of that time that they had no room, and for how many spans. */
  readonly dropped: ReadonlyMap<string, number>;
  /** How long nothing has come of it. */
  readonly silentMs: number;
  /** What was heard of a task while it was under way; null = nothing. */
  readonly standing: (task: string) => Standing | null;
  /** Whether the agent serves something, and so may have called while it was at work. */
  readonly serves: (agent: string) => boolean;
}

export interface Standing {
  /** `ended`: nobody worked on it to the end (it expired, was called off …). */
  readonly how: 'goes_on' | 'done' | 'ended';
  /** Such as `is being worked on by crm.records.b1, for 12 s`. */
  readonly words: string;
}

/**
 * Spans are told when they have ended: what an agent asks comes before the work that it asks it for. Silent for so long, that work is
 * not among what is told, and the caller counts as one outside.
 */
export const OUTSIDE_MS = 60_000;
/** Sidecars tell each second; a redelivery and a slow machine are covered. */
export const SETTLE_MS = 5_000;
