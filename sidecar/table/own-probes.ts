/**
 * Declared health checks of the agents of this sidecar: an agent that has crashed behind a living sidecar leaves every table within
 * seconds, instead of costing each caller a failed attempt until its breaker opens, and comes back by itself. (The checks of third
 * parties are the control plane's.) The decisions alone; how an agent is asked is passed in.
 *
 * Two failures in a row count, the second asked soon after the first. Busy is not dead: an agent that answers calls, or lets a check
 * wait while it is at work, is well.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Activity } from './beats.ts';
import { isDialIn, type OwnAgent, type OwnAgents } from './own-agents.ts';

/** `late`: it took the connection and said nothing in time. */
export type Condition = 'well' | 'unwell' | 'late';

export interface OwnProbesParts {
  readonly own: OwnAgents;
  readonly clock: Clock;
  readonly log: Logger;
  readonly activity: Activity;
  /** Never rejects. */
  ask(url: string, timeoutMs: number): Promise<Condition>;
  /** It is reported gone. */
  onLost(agent: OwnAgent): void;
  /** It is there (again). */
  onBack(agent: OwnAgent): void;
}

const LOOK_EVERY_MS = 250;
const TIMEOUT_MS = 2_000;
/** After a failure, and while an agent is gone. */
const SOON_MS = 500;
const AGAIN_MS = 1_000;
const FAILURES = 2;

class Check {
  nextAt = Number.NEGATIVE_INFINITY;
  failures = 0;
  isUnderWay = false;
}

export class OwnProbes {
  readonly #parts: OwnProbesParts;
  /** By registration: one that says something else is another agent. */
  readonly #checks = new WeakMap<OwnAgent, Check>();
  #timer: Timer | null = null;
  #isStopped = false;

  constructor(parts: OwnProbesParts) {
    this.#parts = parts;
  }

  start(): void {
    if (this.#isStopped) return;
    this.#look();
  }

  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
  }

  #look(): void {
    const { clock, own } = this.#parts;
    const now = clock.now();
    for (const agent of own.all()) {
      const url = urlOf(agent);
      if (url === null || agent.state === 'refused') continue;
      let check = this.#checks.get(agent);
      if (check === undefined) {
        check = new Check();
        this.#checks.set(agent, check);
      }
      if (!check.isUnderWay && now >= check.nextAt) void this.#run(agent, check, url);
    }
    this.#timer = clock.after(LOOK_EVERY_MS, () => this.#look());
  }

  async #run(agent: OwnAgent, check: Check, url: string): Promise<void> {
    const { clock, own, activity } = this.#parts;
    const { intervalMs } = agent.registration.record.healthCheck as { intervalMs: number };
    check.isUnderWay = true;
    const askedAt = clock.now();
    const condition = await this.#parts.ask(url, Math.min(TIMEOUT_MS, intervalMs));
    check.isUnderWay = false;
    if (this.#isStopped || own.get(agent.agentId) !== agent) return;
    const calls = activity(agent.agentId);
    const isAtWork = calls !== null && (calls.lastAnswerAt >= askedAt || (condition === 'late' && calls.inFlight > 0));
    if (condition === 'well' || isAtWork) {
      check.nextAt = askedAt + intervalMs;
      this.#well(agent, check);
    } else this.#unwell(agent, check, intervalMs);
  }

  #well(agent: OwnAgent, check: Check): void {
    check.failures = 0;
    if (!agent.isUnwell) return;
    agent.isUnwell = false;
    this.#parts.log.info({ agent: agent.agentId }, 'an agent answers its health check again');
    this.#parts.onBack(agent);
  }

  #unwell(agent: OwnAgent, check: Check, intervalMs: number): void {
    const now = this.#parts.clock.now();
    check.failures++;
    check.nextAt = now + Math.min(intervalMs, check.failures < FAILURES ? SOON_MS : AGAIN_MS);
    if (check.failures < FAILURES || agent.isUnwell) return;
    agent.isUnwell = true;
    this.#parts.log.warn(
      { agent: agent.agentId },
      `an agent failed its health check ${check.failures} times in a row: it is reported gone`,
    );
    this.#parts.onLost(agent);
  }
}

/** Null = it has no check that could be asked. */
function urlOf(agent: OwnAgent): string | null {
  const { healthCheck, endpoint } = agent.registration.record;
  if (healthCheck === null || isDialIn(agent) || !/^https?:\/\//.test(endpoint.address)) return null;
  return endpoint.address.replace(/\/+$/, '') + healthCheck.path;
}
