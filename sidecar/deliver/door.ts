/** Work that agents have taken (202) and go on with, as the ways in see it: they say how it ended, or that it takes longer. */
import type { Code } from '../../proto/wire/codes.ts';

export interface WorkReport {
  /** 0 = done; else how it failed. */
  readonly code: Code;
  /** The agent's own status; 0 = none. */
  readonly status: number;
  readonly contentType: string;
  readonly body: Buffer;
  /** For people; '' = nothing to add. */
  readonly detail: string;
}

/**
 * `stored`: the result is durable and the task has ended. `unknown`: the agent has no such task here. `fenced`: it took too long
 * and is somebody else's, or in doubt, by now; what came of it is not taken. `unreachable`: not stored yet, say it again.
 */
export type Reported = 'stored' | 'unknown' | 'fenced' | 'unreachable';

export interface WorkDoor {
  /** Messages at work here, and such as wait here for a slot or for an earlier one of their key. */
  readonly inHand: number;
  /** The agent has a message in hand, also one that it has taken with 202. */
  holds(agent: string): boolean;
  /** What became of messages since the start: words for metrics. */
  outcomes(): Readonly<Record<string, number>>;
  done(agent: string, taskId: string, report: WorkReport): Promise<Reported>;
  /** The time of the try begins anew: milliseconds that are left; null = the agent has no such task here. */
  extend(agent: string, taskId: string): number | null;
}
