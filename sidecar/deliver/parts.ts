/** What dealing with a message needs of the rest of the sidecar, and what is common to its steps. */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Random } from '../../base/random.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { Call } from '../call/call.ts';
import type { StageSpans } from '../call/stage-spans.ts';
import type { Engine } from '../engine.ts';
import type { TaskLedger } from '../ledger/ledger.ts';
import type { Cancelled } from './cancelled.ts';
import type { Failpoint } from './failpoint.ts';
import type { LongWork } from './long-work.ts';
import type { Queue } from './queue.ts';
import type { Results } from './results.ts';
import type { DeliverSettings } from './settings.ts';

export interface TaskParts {
  readonly engine: Engine;
  /** The provider's end of the pipeline. */
  inbound(engine: Engine, call: Call, agentId: string, version: string): Promise<void>;
  readonly queue: Queue;
  readonly results: Results;
  readonly ledger: TaskLedger;
  /** One subject token for caller, capability and key. */
  ledgerKey(source: string, capability: string, key: string): string;
  /** The server has stamped something with this time. */
  noteServerTime(ms: number): void;
  readonly cancelled: Cancelled;
  /** The name of who sent a task stands in its subject. */
  readonly subjects: Pick<Subjects, 'senderOf'>;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly settings: DeliverSettings;
  readonly failpoint: Failpoint | null;
  /** null = no traces are made. */
  readonly stages: StageSpans | null;
  /** null = nothing is remembered over a restart. */
  readonly longWork: LongWork | null;
}

/** What a round answers, instead of the pause before the next one, when there is nothing more to do here. */
export const OVER = -1;
