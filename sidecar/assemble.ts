/** Puts an engine together from its parts. The live sidecar and the lab differ only in what they pass in. */
import type { Clock } from '../base/clock.ts';
import type { Random } from '../base/random.ts';
import { Underway } from './call/underway.ts';
import { Chooser } from './choose/choose.ts';
import { nullLedger } from './claim/claim.ts';
import type { SidecarConfig } from './config.ts';
import type { Engine, Observer } from './engine.ts';
import type { Health } from './health/health.ts';
import type { Identities } from './identify/identify.ts';
import { CallerLimits } from './limits/limits.ts';
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
}

export function assemble(parts: Parts): Engine {
  const { clock, random, config, health } = parts;
  return {
    ...parts,
    limits: new CallerLimits(),
    chooser: new Chooser(clock, random, health, config.affinity),
    ledger: nullLedger,
    retryBudget: new RetryBudget(config.retryBudget.ratio, config.retryBudget.minPerSec),
    underway: new Underway(),
  };
}
