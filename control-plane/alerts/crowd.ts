/**
 * Alerts of one kind that fire and find no room of their own, since too many do: one alert says how many they are and names some. Who
 * was bad a while ago and is not looked at any more is none of them. Who finds no room and is yet to be bad for long enough is known
 * here too, by since when it is. Kept in memory: the next leader sees them for itself.
 */
import { type AlertKind, type Observation } from './alert.ts';

/** Its subject, of each kind; nothing else has that name. */
export const MORE = 'more';
/** Everybody is looked at within it. */
const STALE_MS = 600_000;
/** Who was out of sight for so long and is bad again has been so since then. */
const UNSEEN_MS = 60_000;
const MAX_NAMES = 5_000;
/** So many are named in a sentence. */
const NAMED = 10;

const WHAT: Readonly<Record<AlertKind, string>> = {
  p95_rise: 'capabilities whose P95 rose',
  breaker_flapping: 'breakers that open again and again',
  backlog: 'backlogs',
  agent_offline: 'that are offline',
};
const LOOK: Readonly<Record<AlertKind, string>> = {
  p95_rise: 'reachctl top --sort p95',
  breaker_flapping: 'reachctl top',
  backlog: 'reachctl pools list',
  agent_offline: 'reachctl sidecars list',
};

/** By the clock of whoever says so. */
interface Member {
  readonly sinceMs: number;
  /** When it was bad last. */
  readonly seenMs: number;
  /** False = not for long enough yet. */
  readonly fires: boolean;
}

export class Crowd {
  readonly #kinds = new Map<AlertKind, Map<string, Member>>();
  /** Kinds of which somebody fired without room in this reign. */
  readonly #fired = new Set<AlertKind>();
  /** Since when it is known in this reign how those of a kind are. */
  readonly #judged = new Map<AlertKind, number>();

  join(kind: AlertKind, subject: string, sinceMs: number, fires: boolean, nowMs: number): void {
    let names = this.#kinds.get(kind);
    if (names === undefined) this.#kinds.set(kind, (names = new Map()));
    if (fires) this.#fired.add(kind);
    if (names.has(subject) || names.size < MAX_NAMES) names.set(subject, { sinceMs, seenMs: nowMs, fires });
  }

  leave(kind: AlertKind, subject: string): void {
    this.#kinds.get(kind)?.delete(subject);
  }

  /** Since when one of them is bad without a break; null = it is not known. */
  since(kind: AlertKind, subject: string, nowMs: number): number | null {
    const member = this.#kinds.get(kind)?.get(subject);
    return member === undefined || nowMs - member.seenMs > UNSEEN_MS ? null : member.sinceMs;
  }

  judged(kind: AlertKind, nowMs: number): void {
    if (!this.#judged.has(kind)) this.#judged.set(kind, nowMs);
  }

  /** The wall clock was set by so much. */
  shift(byMs: number): void {
    for (const [kind, atMs] of this.#judged) this.#judged.set(kind, atMs + byMs);
    for (const names of this.#kinds.values())
      for (const [subject, { sinceMs, seenMs, fires }] of names)
        names.set(subject, { sinceMs: sinceMs + byMs, seenMs: seenMs + byMs, fires });
  }

  /** In the order in which they came. */
  names(kind: AlertKind, nowMs: number): readonly string[] {
    const names = this.#kinds.get(kind);
    if (names === undefined) return [];
    for (const [subject, { seenMs }] of names) if (Math.abs(nowMs - seenMs) > STALE_MS) names.delete(subject);
    return [...names].flatMap(([subject, { fires }]) => (fires ? subject : []));
  }

  /** @param names those of them that are to be told of */
  observation(kind: AlertKind, names: readonly string[], nowMs: number): Observation {
    const more = names.length - NAMED;
    const listed = names.slice(0, NAMED).join(', ');
    return {
      kind,
      subject: MORE,
      grade: names.length > 0 ? 'bad' : this.#isKnown(kind, nowMs) ? 'good' : 'unknown',
      words:
        names.length === 0
          ? 'no more of them than have alerts of their own'
          : `${names.length.toLocaleString('en-US')} more ${WHAT[kind]}: ${listed}${more > 0 ? ` and ${more.toLocaleString('en-US')} more` : ''}`,
      value: names.length,
      limit: 0,
      capability: null,
      agent: null,
      sidecar: null,
      traceId: null,
      look: LOOK[kind],
      held: null,
      beganMs: null,
    };
  }

  /** A leader that has just begun has looked at nobody yet; once it knows how they are and nobody has come for long, there is nobody. */
  #isKnown(kind: AlertKind, nowMs: number): boolean {
    return this.#fired.has(kind) || nowMs - (this.#judged.get(kind) ?? nowMs) >= STALE_MS;
  }
}
