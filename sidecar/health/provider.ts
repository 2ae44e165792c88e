/**
 * What is known of a provider whatever is asked of it: lease, calls in flight, and the short ejection after several
 * connect failures or time-outs in a row. Ejection is not the breaker: it needs no ratio and no samples, so it works
 * for a caller with three calls a minute, and it is short, because connections fail for reasons that pass. Any answer,
 * whatever its status, proves that the provider is reachable and ends it.
 */
import type { Schedule, Timed } from './schedule.ts';

export interface EjectionSettings {
  /** Connect failures or time-outs in a row that eject; 0 = never. */
  readonly consecutive: number;
  /** How long, ms. */
  readonly forMs: number;
}

/** A cell of this provider, as far as the provider needs to know it. */
export interface SlowStarting {
  slowStartMoved(now: number): void;
}

/** All that is known of it, but who it is; instants on the `clock.now()` scale, null = none. */
export interface ProviderDump {
  readonly inFlight: number;
  readonly limit: number | null;
  readonly ejectedUntil: number;
  readonly consecutiveFailures: number;
  readonly lastFailure: ProviderHealth['lastFailure'];
  readonly offline: boolean;
  readonly slowStartAt: number | null;
}

export class ProviderHealth implements Timed {
  readonly agentId: string;
  /** Calls under way, over all capabilities. */
  inFlight = 0;
  /** When the oldest unbroken run of calls under way began (`clock.now()` scale); means nothing while there are none. */
  busySince = Number.NEGATIVE_INFINITY;
  /** Calls allowed under way; Infinity = no limit. Set with the table, read by `slots` and `choose`. */
  limit = Number.POSITIVE_INFINITY;
  /** Not chosen before this instant (`clock.now()` scale); 0 = not ejected. */
  ejectedUntil = 0;
  /** Connect failures and time-outs since the last answer or ejection. */
  consecutiveFailures = 0;
  /** What the last of them was; '' = none yet. */
  lastFailure: '' | 'connect failures' | 'time-outs' = '';
  /** Last answer of any kind (`clock.now()` scale); -Infinity = none yet. */
  lastAnswerAt = Number.NEGATIVE_INFINITY;
  readonly firstSeenAt: number;
  /** Start of the slow start: first seen, or back from offline; -Infinity = counts as warm. */
  slowStartAt: number;
  /** End of the ejection; Infinity = none. */
  dueAt = Number.POSITIVE_INFINITY;
  readonly cells = new Set<SlowStarting>();
  /** The process of its sidecar; '' = not known. */
  #instance = '';
  #offline = false;
  readonly #schedule: Schedule;
  readonly #ejection: EjectionSettings;
  readonly #now: () => number;

  constructor(agentId: string, schedule: Schedule, ejection: EjectionSettings, now: () => number) {
    this.agentId = agentId;
    this.#schedule = schedule;
    this.#ejection = ejection;
    this.#now = now;
    this.firstSeenAt = now();
    this.slowStartAt = this.firstSeenAt;
  }

  /** Lease lost, or said goodbye. Coming back begins a new slow start: most likely it is a new process. */
  get offline(): boolean {
    return this.#offline;
  }

  set offline(offline: boolean) {
    if (offline === this.#offline) return;
    this.#offline = offline;
    this.#schedule.bump();
    if (!offline) this.startSlowlyAt(this.#now());
  }

  /** A call to it begins; whoever says so takes one off `inFlight` when it ends. */
  begin(now: number): void {
    if (this.inFlight++ === 0) this.busySince = now;
  }

  /** Named again after it had been gone: new in all but the calls that are still under way. */
  beginAnew(): void {
    this.consecutiveFailures = 0;
    this.lastFailure = '';
    this.ejectedUntil = 0;
    this.dueAt = Number.POSITIVE_INFINITY;
    this.#offline = false;
    this.startSlowlyAt(this.#now());
  }

  /**
   * Which process its sidecar is. Another one than before has been started anew: what calls have found out about the one that died says
   * nothing of it. Without this, providers that are replaced one after another would be left alone by everybody at the same time.
   */
  servedBy(instance: string): void {
    const before = this.#instance;
    this.#instance = instance;
    if (before === '' || before === instance) return;
    this.consecutiveFailures = 0;
    this.lastFailure = '';
    if (this.ejectedUntil > 0) this.#admitAgain();
    this.startSlowlyAt(this.#now());
  }

  /** Begins the slow start at an instant; -Infinity declares the provider warm. */
  startSlowlyAt(at: number): void {
    this.slowStartAt = at;
    const now = this.#now();
    for (const cell of this.cells) cell.slowStartMoved(now);
  }

  dump(): ProviderDump {
    const { inFlight, limit, ejectedUntil, consecutiveFailures, lastFailure, slowStartAt } = this;
    return {
      inFlight,
      limit: limit === Number.POSITIVE_INFINITY ? null : limit,
      ejectedUntil,
      consecutiveFailures,
      lastFailure,
      offline: this.#offline,
      slowStartAt: slowStartAt === Number.NEGATIVE_INFINITY ? null : slowStartAt,
    };
  }

  /** Goes on from there. Its cells are left as they are. The limit is left to whoever knows the table. */
  restore(dump: ProviderDump): void {
    this.inFlight = dump.inFlight;
    this.ejectedUntil = dump.ejectedUntil;
    this.dueAt = dump.ejectedUntil > 0 ? dump.ejectedUntil : Number.POSITIVE_INFINITY;
    this.consecutiveFailures = dump.consecutiveFailures;
    this.lastFailure = dump.lastFailure;
    this.#offline = dump.offline;
    this.slowStartAt = dump.slowStartAt ?? Number.NEGATIVE_INFINITY;
    this.#schedule.schedule(this);
    this.#schedule.bump();
  }

  connectFailed(now: number): void {
    this.#failed(now, 'connect failures');
  }

  timedOut(now: number): void {
    this.#failed(now, 'time-outs');
  }

  /** An answer came, of whatever status. */
  connected(now: number): void {
    this.lastAnswerAt = now;
    if (this.consecutiveFailures !== 0) this.consecutiveFailures = 0;
    if (this.ejectedUntil > now) this.#admitAgain();
  }

  advance(now: number): void {
    if (now >= this.dueAt) this.#admitAgain();
  }

  /** Failures of calls begun before the ejection come in during it: they do not lengthen it. */
  #failed(now: number, what: 'connect failures' | 'time-outs'): void {
    if (this.ejectedUntil > now) return;
    this.lastFailure = what;
    this.consecutiveFailures++;
    if (this.#ejection.consecutive <= 0 || this.consecutiveFailures < this.#ejection.consecutive) return;
    this.consecutiveFailures = 0;
    this.ejectedUntil = now + this.#ejection.forMs;
    this.dueAt = this.ejectedUntil;
    this.#schedule.schedule(this);
    this.#schedule.bump();
  }

  #admitAgain(): void {
    this.ejectedUntil = 0;
    this.dueAt = Number.POSITIVE_INFINITY;
    this.#schedule.schedule(this);
    this.#schedule.bump();
  }
}
