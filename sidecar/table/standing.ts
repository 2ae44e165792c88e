/**
 * How fresh the table is, in words for people and as one flag for machines. A table is stale while nobody has confirmed
 * that it is the newest: no connection, no beacon, a comparison that is still under way, something that was refused or is
 * held back. Calls go on with it all the same; what is stale is what would be known of a change.
 */
import type { Clock } from '../../base/clock.ts';

export interface Refused {
  readonly tail: string;
  readonly seq: number;
  readonly why: string;
}

/** So many refused messages are remembered, and told. */
const MAX_REFUSED = 20;

export class Standing {
  readonly #clock: Clock;
  readonly #staleAfterMs: number;
  connected = false;
  /** Why there is no connection. */
  why = '';
  /** Everything in scope has been compared since the connection came. */
  confirmed = false;
  /** What the comparison is waiting for; '' = for nothing. */
  trouble = '';
  /** Why a new epoch is not in force yet; '' = there is none. */
  heldBack = '';
  /** Why the stream cannot be followed; '' = it can. */
  wentBack = '';
  /** `clock.now()`; -Infinity = never. */
  lastBeaconAt = Number.NEGATIVE_INFINITY;
  /** `clock.now()` since which there has been a reason without a break; null = fresh. */
  #staleSince: number | null = null;
  /** By tail: the newest message of a subject, where it could not be used. */
  readonly #refused = new Map<string, Refused>();
  /** Since start. */
  refusals = 0;

  constructor(clock: Clock, staleAfterMs: number) {
    this.#clock = clock;
    this.#staleAfterMs = staleAfterMs;
  }

  refuse(tail: string, seq: number, why: string): void {
    this.refusals++;
    this.#refused.delete(tail);
    this.#refused.set(tail, { tail, seq, why });
    if (this.#refused.size > MAX_REFUSED) this.#refused.delete(this.#refused.keys().next().value as string);
  }

  /** A good message of that subject was taken. */
  accept(tail: string): void {
    this.#refused.delete(tail);
  }

  forgetRefusals(): void {
    this.#refused.clear();
  }

  /** Newest last. */
  refused(): readonly Refused[] {
    return [...this.#refused.values()];
  }

  /** '' = fresh. */
  because(): string {
    const reason = this.#reason();
    if (reason === '') this.#staleSince = null;
    else this.#staleSince ??= Math.max(0, this.#reasonSince());
    return reason;
  }

  /** How long it has been stale; 0 = it is fresh. */
  staleForMs(): number {
    this.because();
    return this.#staleSince === null ? 0 : this.#clock.now() - this.#staleSince;
  }

  #reason(): string {
    if (!this.connected) return `NATS cannot be reached${this.why === '' ? '' : ` (${this.why})`}`;
    const trouble = this.#trouble;
    if (trouble !== '') return trouble;
    if (!this.confirmed) return 'not compared with the registry yet since the connection came';
    if (!this.#isBeaconFresh()) return 'the control plane is not heard';
    const newest = [...this.#refused.values()].at(-1);
    return newest === undefined ? '' : `a change of ${newest.tail} was refused: ${newest.why}`;
  }

  get #trouble(): string {
    return this.trouble !== '' ? this.trouble : this.heldBack !== '' ? this.heldBack : this.wentBack;
  }

  #isBeaconFresh(): boolean {
    return this.#clock.now() - this.lastBeaconAt <= this.#staleAfterMs;
  }

  /** Silence counts from the last word, not from when it was noticed. */
  #reasonSince(): number {
    const isSilence = this.connected && this.#trouble === '' && this.confirmed && !this.#isBeaconFresh();
    return isSilence && Number.isFinite(this.lastBeaconAt) ? this.lastBeaconAt : this.#clock.now();
  }
}
