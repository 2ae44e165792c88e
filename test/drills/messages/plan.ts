/** What one drill decides, and what it is told in the end: all that differs from drill to drill is in its plan. */
import type { Demands, Left } from './conditions.ts';
import type { Verdict } from './judge.ts';
import type { Outcome } from './outcomes.ts';
import type { Stage } from './stage.ts';
import type { Accepted, Gate, SubmitOptions, Submitter } from './submitter.ts';
import type { Counted, TeamOptions } from './team.ts';

export interface Plan {
  readonly name: string;
  /** What is done to the fleet, in one sentence. */
  readonly words: string;
  readonly team: TeamOptions;
  readonly workers: number;
  readonly senders: number;
  readonly submit: Pick<
    SubmitOptions,
    'ratePerSec' | 'count' | 'kinds' | 'copies' | 'apartMs' | 'givesUp' | 'headers' | 'connections' | 'pipelining'
  >;
  /** Senders with an inbox at one sidecar each: what they can read there is compared with what was stored for them. */
  readonly readsInboxes?: boolean;
  /** Quotas in words, when they are others. */
  readonly quota?: string;
  /** Gates other than one for each sender's sidecar. */
  readonly gates?: (stage: Stage) => readonly Gate[];
  /** Called when messages flow; returns when no more faults come. */
  readonly faults: (stage: Stage) => Promise<void>;
  /** How long everything may take to settle after the last submission. */
  readonly settleMs?: number;
  /** Where they are others than usual. */
  readonly demands?: (stage: Stage) => Partial<Demands>;
  /** Further words when something is not as it must be. */
  readonly expects?: (outcome: Told) => readonly string[];
  readonly more?: (outcome: Told) => Readonly<Record<string, unknown>>;
}

export interface Told {
  readonly verdict: Verdict;
  readonly accepted: readonly Accepted[];
  readonly counted: Counted;
  readonly submitter: Submitter;
  readonly stage: Stage;
  readonly settleMs: number;
  readonly left: Left;
  /** Accepted messages whose end is not what their sender reads in its inbox; null = not looked at. */
  readonly untold: number | null;
  /** All ends that were told. */
  readonly outcomes: readonly Outcome[];
  /** The first end of each task. */
  readonly ended: ReadonlyMap<string, Outcome>;
}
