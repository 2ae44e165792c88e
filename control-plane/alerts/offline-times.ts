/**
 * Since when agents are offline, for alerts that wait before they fire. The registry keeps the wall clock's time of it, and that clock
 * may be set in between: of whoever was seen to go, no more time has passed than since then by the clock that does not jump. Of those
 * who were gone when the looks began, the registry's word is all there is; it is taken once.
 */
import type { ProviderView } from '../registry/views.ts';

interface Gone {
  /** As the registry has it: another one = it has gone anew. */
  readonly saidMs: number | null;
  /** Monotonic. */
  readonly sinceMs: number;
}

export class OfflineTimes {
  #gone = new Map<string, Gone>();
  #lookedMs: number | null = null;

  /** The same, with the time they went by what the wall clock reads now. */
  corrected(providers: readonly ProviderView[], wallMs: number, nowMs: number): ProviderView[] {
    const gone = new Map<string, Gone>();
    const seen = providers.map((provider) => {
      const { agent, status, offlineSinceMs: saidMs } = provider;
      if (status !== 'offline') return provider;
      const known = this.#gone.get(agent);
      const since = known?.saidMs === saidMs ? known.sinceMs : this.#sinceOf(saidMs, wallMs, nowMs);
      gone.set(agent, { saidMs, sinceMs: since });
      return saidMs === null ? provider : { ...provider, offlineSinceMs: wallMs - (nowMs - since) };
    });
    this.#gone = gone;
    this.#lookedMs = nowMs;
    return seen;
  }

  #sinceOf(saidMs: number | null, wallMs: number, nowMs: number): number {
    const agoMs = Math.max(0, wallMs - (saidMs ?? wallMs));
    return this.#lookedMs === null ? nowMs - agoMs : Math.max(nowMs - agoMs, this.#lookedMs);
  }
}
