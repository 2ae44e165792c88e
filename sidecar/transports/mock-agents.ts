/**
 * What a mock agent is at as a whole, whatever it is asked for: up or down by its schedule, crashed and back, full, still cold.
 * Decides what that makes of one call; what the call itself would have come to is its script's affair.
 */
import type { Act, Lifetime } from './mock-script.ts';
import { withRetryAfter } from './mock-script.ts';

/** One agent. Times are since the mock was made. */
export class MockAgent {
  /** Calls that it is at. */
  atWork = 0;
  /** It crashed by a call's number at this time; -Infinity = it did not. */
  #crashedAtMs = Number.NEGATIVE_INFINITY;
  /** The call that does it has been: it happens once. */
  #hasCrashed = false;

  /** A call of this number ends the process as it is answered. */
  isLastCall(life: Lifetime | null, callNumber: number): boolean {
    const at = life?.crash?.atCall ?? 0;
    return at !== 0 && callNumber >= at && !this.#hasCrashed;
  }

  crash(sinceMs: number): void {
    this.#hasCrashed = true;
    this.#crashedAtMs = sinceMs;
  }

  /** What becomes of a call that would have come to `act`. */
  decide(life: Lifetime, act: Act, sinceMs: number): Act {
    if (this.#isDown(life, sinceMs)) return { ...act, refuseConnect: true };
    const { capacity } = life;
    if (capacity !== null && this.atWork >= capacity.concurrent) return full(act, capacity);
    const factor = warmth(life, sinceMs - this.#upSince(life, sinceMs));
    const diesInMs = this.#nextEnd(life, sinceMs) - sinceMs;
    return factor === 1 && diesInMs === Number.POSITIVE_INFINITY ? act : { ...act, latencyMs: act.latencyMs * factor, diesInMs };
  }

  #isDown({ flap, crash }: Lifetime, sinceMs: number): boolean {
    if (crash !== null) {
      if (sinceMs - this.#crashedAtMs < crash.backAfterMs) return true;
      if (sinceMs - lastOf(crash.atMs, crash.everyMs, sinceMs) < crash.backAfterMs) return true;
    }
    return flap !== null && !isUp(flap, sinceMs);
  }

  /** When it started, the last time. */
  #upSince({ crash, flap }: Lifetime, sinceMs: number): number {
    let since = 0;
    if (crash !== null) {
      for (const at of [this.#crashedAtMs, lastOf(crash.atMs, crash.everyMs, sinceMs)])
        if (at !== Number.NEGATIVE_INFINITY) since = Math.max(since, at + crash.backAfterMs);
    }
    if (flap !== null) since = Math.max(since, sinceMs - intoTurn(flap, sinceMs));
    return since;
  }

  /** When what it is at ends with it: only a process that dies cuts its connections; one that is switched off at the network does too. */
  #nextEnd({ crash, flap }: Lifetime, sinceMs: number): number {
    let at = Number.POSITIVE_INFINITY;
    if (crash !== null && crash.atMs !== Number.POSITIVE_INFINITY) {
      if (sinceMs < crash.atMs) at = crash.atMs;
      else if (crash.everyMs !== Number.POSITIVE_INFINITY)
        at = crash.atMs + (Math.floor((sinceMs - crash.atMs) / crash.everyMs) + 1) * crash.everyMs;
    }
    if (flap !== null) at = Math.min(at, sinceMs - intoTurn(flap, sinceMs) + flap.upMs);
    return at;
  }
}

function full(act: Act, { status, retryAfterMs }: NonNullable<Lifetime['capacity']>): Act {
  const headers = retryAfterMs === 0 ? act.headers : withRetryAfter(act.headers, retryAfterMs);
  return {
    ...act,
    latencyMs: 0,
    status,
    headers,
    body: { error: 'busy' },
    hang: 'no',
    reset: 'no',
    chunks: 1,
    everyMs: 0,
    calls: null,
  };
}

/** The last time not after `now` of `at`, `at + every`, …; -Infinity = none yet. */
function lastOf(at: number, every: number, now: number): number {
  if (now < at) return Number.NEGATIVE_INFINITY;
  return every === Number.POSITIVE_INFINITY ? at : at + Math.floor((now - at) / every) * every;
}

type Flap = NonNullable<Lifetime['flap']>;

/** How far into its present turn of up, or of down, a schedule is. */
function intoTurn(flap: Flap, sinceMs: number): number {
  const into = (sinceMs + (flap.beginsUp ? 0 : flap.upMs)) % (flap.upMs + flap.downMs);
  return into < flap.upMs ? into : into - flap.upMs;
}

function isUp(flap: Flap, sinceMs: number): boolean {
  return (sinceMs + (flap.beginsUp ? 0 : flap.upMs)) % (flap.upMs + flap.downMs) < flap.upMs;
}

/** How many times slower it still is, so long after its start. */
function warmth({ warmUp }: Lifetime, upMs: number): number {
  if (warmUp === null || upMs >= warmUp.forMs) return 1;
  return warmUp.slower - ((warmUp.slower - 1) * Math.max(0, upMs)) / warmUp.forMs;
}
