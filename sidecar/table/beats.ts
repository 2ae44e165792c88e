/**
 * Signs of life: the heartbeat that says which agents live, every 45 seconds, and the look at those whose lease has run
 * out. Beats of many sidecars are spread over the whole period and stay so. What is done about an agent that has fallen
 * silent, or is back, is the announcer's affair.
 *
 * Busy is not dead: an agent of the API lives as long as it beats or answers calls. Agents of the file live as long as
 * their sidecar says so; whether they answer is found out by health checks and breakers.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import { type Heartbeat, REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { bytesOf, type RegistryBus } from './bus.ts';
import { isDialIn, type OwnAgent, type OwnAgents } from './own-agents.ts';

/** Beats come up to a tenth early or late, so that those of many sidecars do not meet. */
const JITTER = 0.1;
/** Two hundred sidecars that see the control plane come back spread their extra beats over this. */
const MORE_SPREAD_MS = 5_000;
/** How often to look for agents whose lease has run out. */
const LOOK_EVERY_MS = 5_000;
/** So much later than it was due, a look finds a process that stood still. */
const HALTED_MS = 2_000;

/** What is known of an agent from the calls to it; null = nothing. */
export type Activity = (agentId: string) => { readonly lastAnswerAt: number; readonly inFlight: number; readonly busySince: number } | null;

export interface BeatsParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly own: OwnAgents;
  readonly activity: Activity;
  readonly sidecar: string;
  readonly instance: string;
  readonly heartbeatMs: number;
  readonly leaseMs: number;
  /** An agent of the API has been silent for a whole lease. */
  onSilent(agent: OwnAgent): void;
  /** One that was gone has answered a call. */
  onBack(agent: OwnAgent): void;
}

export class Beats {
  readonly #parts: BeatsParts;
  #timer: Timer | null = null;
  #moreTimer: Timer | null = null;
  #lookTimer: Timer | null = null;
  /** When the next look is due (`clock.now()`). */
  #lookAt = Number.POSITIVE_INFINITY;
  #isStopped = false;
  #beatAt = Number.NEGATIVE_INFINITY;

  constructor(parts: BeatsParts) {
    this.#parts = parts;
  }

  start(): void {
    // The first beat falls anywhere, so that sidecars started together do not beat together.
    this.#beatIn(this.#parts.random.next() * this.#parts.heartbeatMs);
    this.#look();
  }

  stop(): void {
    this.#isStopped = true;
    for (const timer of [this.#timer, this.#moreTimer, this.#lookTimer]) timer?.cancel();
  }

  /**
   * A control plane that was away may have lost count: one beat more. The regular ones stay where they are.
   * @param saidAt when the registry was last told all (`clock.now()` scale).
   */
  onceMore(saidAt: number): void {
    const { clock, random, heartbeatMs } = this.#parts;
    const saidAgoMs = clock.now() - Math.max(this.#beatAt, saidAt);
    if (this.#isStopped || this.#moreTimer !== null || saidAgoMs < heartbeatMs / 2) return;
    this.#moreTimer = clock.after(random.next() * MORE_SPREAD_MS, () => {
      this.#moreTimer = null;
      this.#beat();
    });
  }

  /** Milliseconds since the agent last beat or answered a call. */
  idleMs(agent: OwnAgent): number {
    const answeredAt = this.#parts.activity(agent.agentId)?.lastAnswerAt ?? Number.NEGATIVE_INFINITY;
    return Math.max(0, Math.round(this.#parts.clock.now() - Math.max(agent.lastBeatAt, answeredAt)));
  }

  #beatIn(ms: number): void {
    if (this.#isStopped) return;
    const { clock, random, heartbeatMs } = this.#parts;
    this.#timer = clock.after(ms, () => {
      this.#beat();
      this.#beatIn(heartbeatMs * (1 - JITTER + 2 * JITTER * random.next()));
    });
  }

  #beat(): void {
    const { bus, subjects, clock, own, sidecar, instance } = this.#parts;
    if (!bus.connected) return;
    this.#beatAt = clock.now();
    const agents: Record<string, { idleMs: number; inFlight: number }> = {};
    for (const agent of own.all()) {
      if (agent.state !== 'gone' && agent.state !== 'refused') agents[agent.agentId] = this.#lifeOf(agent);
    }
    const beat: Heartbeat = { wire: REGISTRY_WIRE, sidecar, instance, agents };
    bus.publish(subjects.heartbeat(sidecar), bytesOf(beat));
  }

  /** Until work was handed to it, its silence was rest. */
  #lifeOf(agent: OwnAgent): { idleMs: number; inFlight: number } {
    const idleMs = this.idleMs(agent);
    const activity = this.#parts.activity(agent.agentId);
    if (activity === null || activity.inFlight === 0) return { idleMs, inFlight: 0 };
    return { idleMs: Math.min(idleMs, Math.round(this.#parts.clock.now() - activity.busySince)), inFlight: activity.inFlight };
  }

  /** Agents of the API that have been silent for a whole lease are gone; those that answer again are back. */
  #look(): void {
    const { own, clock, leaseMs } = this.#parts;
    const lateMs = clock.now() - this.#lookAt;
    // This process stood still (halted, or the machine asleep): what its agents said meanwhile is still to be read.
    if (lateMs > HALTED_MS) for (const agent of own.all()) agent.lastBeatAt += lateMs;
    for (const agent of own.all()) {
      // Of an agent that dials in its connection tells.
      if (agent.source !== 'api' || agent.state === 'refused' || isDialIn(agent)) continue;
      const isSilent = this.idleMs(agent) > leaseMs;
      if (isSilent && agent.state !== 'gone') this.#parts.onSilent(agent);
      else if (!isSilent && agent.state === 'gone') this.#parts.onBack(agent);
    }
    this.#lookAt = clock.now() + LOOK_EVERY_MS;
    if (!this.#isStopped) this.#lookTimer = clock.after(LOOK_EVERY_MS, () => this.#look());
  }
}
