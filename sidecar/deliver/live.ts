/** Delivery on a real bus. */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import type { Random } from '../../base/random.ts';
import { StreamPublisher } from '../../base/stream-publisher.ts';
import { ledgerKey } from '../../proto/wire/ledger-key.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { StageSpans } from '../call/stage-spans.ts';
import type { Engine } from '../engine.ts';
import type { TaskLedger } from '../ledger/ledger.ts';
import { Deliver, type DeliverParts, type Work } from './deliver.ts';
import { failpointFrom } from './failpoint.ts';
import { LongWork, type LongWorkParts, type WorkFile } from './long-work.ts';
import { NatsQueue } from './queue.ts';
import { DELIVER_DEFAULTS, type DeliverSettings } from './settings.ts';

export interface LiveParts {
  readonly self: string;
  readonly engine: Engine;
  readonly inbound: DeliverParts['inbound'];
  readonly bus: Bus;
  readonly subjects: Subjects;
  readonly ledger: TaskLedger & { noteServerTime(ms: number): void; resume: LongWorkParts['resume'] };
  readonly work: Work;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly settings: Pick<DeliverSettings, 'concurrency' | 'reserveHigh' | 'maxTries'>;
  /** Spans of what is delivered; null = no traces are made. */
  readonly stages: StageSpans | null;
  /** Where work is remembered over a restart; null = nowhere. */
  readonly longWork: WorkFile | null;
  /** `REACH_FAILPOINT`, for drills. */
  readonly failpoint: string | undefined;
}

export interface LiveDelivery {
  readonly deliver: Deliver;
  /** Pulls from now on, as soon as it is known for which pools. */
  start(): void;
  /** Answers how many messages had not ended within that time. */
  stop(graceMs: number): Promise<number>;
}

const MAX_PENDING = 65_536;

/** What agents were at before a restart is taken up at once. Throws with a sentence when the failpoint cannot be read. */
export function liveDelivery(parts: LiveParts): LiveDelivery {
  const { bus, clock, random, ledger } = parts;
  const failpoint = failpointFrom(parts.failpoint, random, () => process.kill(process.pid, 'SIGKILL'));
  const settings: DeliverSettings = Object.freeze({ ...DELIVER_DEFAULTS, ...parts.settings });
  const appender = new StreamPublisher(bus, clock, { timeoutMs: settings.storeTimeoutMs, maxPending: MAX_PENDING });
  const longWork =
    parts.longWork === null
      ? null
      : new LongWork({
          file: parts.longWork,
          resume: (claim, worker, taskId) => ledger.resume(claim, worker, taskId),
          clock,
          log: parts.log,
        });
  const deliver = new Deliver({
    self: parts.self,
    engine: parts.engine,
    inbound: parts.inbound,
    bus,
    queue: new NatsQueue(bus, clock),
    appender,
    ledger,
    ledgerKey,
    noteServerTime: (ms) => ledger.noteServerTime(ms),
    work: parts.work,
    subjects: parts.subjects,
    clock,
    random,
    log: parts.log,
    settings,
    failpoint,
    stages: parts.stages,
    longWork,
  });
  void longWork?.begin();
  return {
    deliver,
    start: () => {
      // Nothing is pulled before it is known what agents are at.
      if (longWork === null) deliver.start();
      else void longWork.begun.finally(() => deliver.start());
    },
    stop: async (graceMs) => {
      const left = await deliver.stop(graceMs);
      appender.close();
      return left;
    },
  };
}
