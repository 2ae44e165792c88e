/**
 * An alert: what it is about, how far it has got, and what is stored of it. Wall-clock times, since the next leader goes on with
 * them. Pure; who judges is elsewhere (`rise.ts`, `openings.ts`, `growth.ts`, `offline.ts`), and so is what follows (`book.ts`).
 */

/** The four of them, and no more: everything else is a dashboard. */
export const ALERT_KINDS = ['p95_rise', 'breaker_flapping', 'backlog', 'agent_offline'] as const;
export type AlertKind = (typeof ALERT_KINDS)[number];

export const ALERT_STATES = ['pending', 'firing', 'resolved'] as const;
export type AlertState = (typeof ALERT_STATES)[number];

/** What a judge says of one subject at one time. */
export interface Observation {
  readonly kind: AlertKind;
  /** Of one kind each subject has one alert: a capability, `agent@capability` of a breaker, a pool or list, an agent, `sidecar:x`. */
  readonly subject: string;
  /**
   * `bad`: fires, once it has been so for `forMs`. `rising`: on its way there. `between`: neither clearly bad nor clearly good, so
   * everything stays as it is. `good`: clearly. `unknown`: nobody can tell, which ends nothing and begins nothing.
   */
  readonly grade: 'bad' | 'rising' | 'between' | 'good' | 'unknown';
  /** For people. */
  readonly words: string;
  readonly value: number;
  readonly limit: number;
  readonly capability: string | null;
  readonly agent: string | null;
  readonly sidecar: string | null;
  readonly traceId: string | null;
  /** A command that shows more. */
  readonly look: string;
  /** What the alert is judged against as long as it lasts; null = nothing. */
  readonly held: number | null;
  /** Wall clock of when it really began, where that is known better than by this observation. */
  readonly beganMs: number | null;
}

/** How patient the alerts of one kind are. */
export interface Patience {
  /** Bad for so long: it fires. */
  readonly forMs: number;
  /** Good for so long: it is resolved. */
  readonly calmMs: number;
  /** Nothing known for so long: it is resolved too, for what is not there any more cannot be bad. */
  readonly unknownMs: number;
}

export interface Alert {
  readonly id: string;
  readonly kind: AlertKind;
  readonly subject: string;
  readonly state: AlertState;
  /** Since when it has been so that an alert is made of it. */
  readonly sinceMs: number;
  readonly firedMs: number | null;
  readonly resolvedMs: number | null;
  /** Since when it has been good, or unknown, without a break; null = it is not. */
  readonly goodSinceMs: number | null;
  readonly unknownSinceMs: number | null;
  readonly words: string;
  readonly value: number;
  readonly limit: number;
  readonly capability: string | null;
  readonly agent: string | null;
  readonly sidecar: string | null;
  readonly traceId: string | null;
  readonly look: string;
  readonly held: number | null;
  /** Whether operators have been told by webhook, or need not be. */
  readonly toldFiring: boolean;
  readonly toldResolved: boolean;
}

export interface Silence {
  readonly id: string;
  /** null = every kind. */
  readonly kind: AlertKind | null;
  /** `*` stands for any run of characters. */
  readonly subject: string;
  readonly untilMs: number;
  readonly reason: string;
  readonly author: string;
  readonly createdMs: number;
}

/** As it stands under `op.alerts`. */
export interface StoredAlerts {
  readonly wire: number;
  readonly epoch: string;
  /** Numbers that have been given: ids are never used twice. */
  readonly lastAlert: number;
  readonly lastSilence: number;
  readonly alerts: readonly Alert[];
  readonly silences: readonly Silence[];
}

/** What is needed of an alert to find the silence that covers it. */
export function covers(silence: Silence, { kind, subject }: Pick<Alert, 'kind' | 'subject'>, nowMs: number): boolean {
  return silence.untilMs > nowMs && (silence.kind === null || silence.kind === kind) && fits(silence.subject, subject);
}

/** Without backtracking: each piece between stars is looked for behind the one before it. */
export function fits(pattern: string, text: string): boolean {
  const [first, ...rest] = pattern.split('*') as [string, ...string[]];
  if (rest.length === 0) return text === first;
  if (!text.startsWith(first)) return false;
  const last = rest.pop() as string;
  let at = first.length;
  for (const piece of rest) {
    const found = text.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}
