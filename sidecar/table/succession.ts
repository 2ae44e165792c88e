/**
 * A new epoch on its way into force: taken at once, or held back until it is confirmed, by the rules of `guard.ts`. While it
 * is held back it goes on being filled, and each beacon of it is another look.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Copy } from './copy.ts';
import { absentProviders, isSuspiciouslySmall, providersIn } from './guard.ts';
import type { Held } from './held.ts';
import type { Installer } from './installer.ts';
import type { InstalledTable } from './installed.ts';
import type { OwnAgents } from './own-agents.ts';

/** Beacons that confirm a suspiciously small registry, and how far apart they must be to count as two. */
const CONFIRMATIONS = 2;
const APART_MS = 900;
/**
 * The first sidecars that say hello to a registry that begins anew make it, and it names theirs alone until the others have said
 * hello too, within a second or two: for so long whoever is missing is not gone.
 */
const REJOIN_MS = 5_000;

export interface SuccessionParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly table: InstalledTable;
  readonly own: OwnAgents;
  readonly copy: Copy;
  readonly installer: Installer;
  /** For so long an absent provider that answers is kept. */
  readonly leaseMs: number;
  /** Why it is held back. */
  onHeldBack(trouble: string, epoch: string): void;
  /** It has taken the place of the old one (`isFirst`: there was none), and is about to be installed. */
  onSucceeded(through: number, isFirst: boolean): void;
}

export class Succession {
  readonly #parts: SuccessionParts;
  /** What waits to be believed; null = nothing. */
  #heldBack: { confirmations: number; countedAt: number } | null = null;
  /** When the new epoch was first complete enough to be looked at. */
  #seen = { epoch: '', at: 0 };

  constructor(parts: SuccessionParts) {
    this.#parts = parts;
  }

  /** Another epoch has come, or the old one was the right one after all. */
  forget(): void {
    this.#heldBack = null;
  }

  /** The state of a new epoch is complete: into force with it, or not yet. */
  consider(target: Held, through: number): void {
    const { clock, installer, copy, own, log, leaseMs } = this.#parts;
    const now = clock.now();
    if (this.#seen.epoch !== target.epoch) this.#seen = { epoch: target.epoch, at: now };
    const before = installer.parts();
    const after = installer.wouldBe(target);
    const isDoubted = installer.isInUse && isSuspiciouslySmall(before, after);
    if (isDoubted && (this.#heldBack?.confirmations ?? 0) < CONFIRMATIONS) {
      this.#heldBack ??= { confirmations: 0, countedAt: clock.now() };
      const counts = `${providersIn(after).size} providers where there were ${providersIn(before).size}`;
      this.#parts.onHeldBack(`a registry that has begun anew names ${counts}: held back until it is confirmed`, target.epoch);
      return;
    }
    const isFirst = copy.isEmpty;
    const rejoinUntil = this.#seen.at + REJOIN_MS;
    const mayRejoin = now < rejoinUntil;
    const kept = absentProviders(before, after, (agentId) => own.get(agentId) === null && (mayRejoin || this.#hasAnsweredLately(agentId)));
    this.#heldBack = null;
    copy.succeed(target);
    if (!isFirst) {
      copy.counters.epochs++;
      own.forgetConfirmations(target.epoch);
      log.warn({ epoch: target.epoch, kept: kept.size }, 'the registry has begun anew');
    }
    const lease = { until: now + leaseMs, stays: () => true };
    installer.keep(
      kept,
      mayRejoin
        ? [
            { until: rejoinUntil, stays: () => true },
            { ...lease, stays: (agentId) => this.#hasAnsweredLately(agentId) },
          ]
        : [lease],
    );
    this.#parts.onSucceeded(through, isFirst);
  }

  /** A beacon of the new epoch; false = there is something of it still to be read. */
  beacon(now: number): boolean {
    const { next } = this.#parts.copy;
    const waiting = this.#heldBack;
    if (waiting === null || next === null) return true;
    if (now - waiting.countedAt >= APART_MS) {
      waiting.confirmations++;
      waiting.countedAt = now;
    }
    for (const name of next.scope?.state ?? []) if (next.missing(name).length > 0) return false;
    this.consider(next, next.highestSeq);
    return true;
  }

  #hasAnsweredLately(agentId: string): boolean {
    const { clock, table, leaseMs } = this.#parts;
    return (table.healthOf(agentId)?.lastAnswerAt ?? Number.NEGATIVE_INFINITY) >= clock.now() - leaseMs;
  }
}
