/** Puts an engine together from its parts. The live sidecar and the lab differ only in what they pass in. */
import type { Clock } from '../base/clock.ts';
import type { Random } from '../base/random.ts';
import { Underway } from './call/underway.ts';
import { Chooser } from './choose/choose.ts';
import { CallLedger } from './claim/call-ledger.ts';
import type { SidecarConfig } from './config.ts';
import type { Engine, Observer } from './engine.ts';
import type { Health } from './health/health.ts';
import type { Identities } from './identify/identify.ts';
import type { TaskLedger } from './ledger/ledger.ts';
import { MemoryLedger } from './ledger/memory-ledger.ts';
import { CallerLimits } from './limits/limits.ts';
import { Quotas } from './quotas/quotas.ts';
import { RetryBudget } from './retry/budget.ts';
import type { InstalledTable } from './table/installed.ts';
import type { Transports } from './transports/index.ts';

export interface Parts {
  readonly clock: Clock;
  readonly random: Random;
  readonly config: SidecarConfig;
  readonly table: InstalledTable;
  readonly health: Health;
  readonly identities: Identities;
  readonly transports: Transports;
  readonly observer: Observer;
  /** Where keys are claimed; null = in the memory of this process. */
  readonly tasks?: TaskLedger | null;
}

export function assemble(parts: Parts): Engine {
  const { clock, random, config, table, health, identities, transports, observer } = parts;
  const { claims } = config;
  const tasks =
    parts.tasks ??
    new MemoryLedger(clock, {
      maxKeys: claims.memoryKeys,
      maxBytes: claims.memoryBytes,
      maxResultBytes: claims.resultBytes,
      keepMs: claims.memoryMs,
    });
  return {
    clock,
    random,
    config,
    table,
    health,
    identities,
    transports,
    observer,
    limits: new CallerLimits(),
    quotas: new Quotas(clock, config.name),
    chooser: new Chooser(clock, random, health, config.affinity),
    ledger: new CallLedger(tasks, clock, claims),
    retryBudget: new RetryBudget(config.retryBudget.ratio, config.retryBudget.minPerSec),
    underway: new Underway(),
  };
}
