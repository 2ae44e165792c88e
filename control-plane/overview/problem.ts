/** What is wrong, one thing at a time: how bad, in a sentence, about what, and where to look. */
export type Severity = 'critical' | 'warning' | 'info';

export type ProblemKind =
  | 'failing'
  | 'refused'
  | 'no_provider'
  | 'unknown_name'
  | 'breaker'
  | 'agent_offline'
  | 'agent_overdue'
  | 'held'
  | 'sidecar_missing'
  | 'sidecar_stale'
  | 'sidecar_behind'
  | 'push_refused'
  | 'rollout'
  | 'override'
  | 'override_missing'
  | 'kept'
  | 'parked'
  | 'queue_full'
  | 'alert'
  | 'control_plane';

/** What it is about, and where to look; absent = nothing of that kind. */
export interface Subject {
  readonly capability?: string | null;
  readonly agent?: string | null;
  readonly sidecar?: string | null;
  /** 32 hex digits. */
  readonly traceId?: string | null;
  /** Wall clock. */
  readonly sinceMs?: number | null;
}

export interface Problem {
  readonly severity: Severity;
  readonly kind: ProblemKind;
  /** A whole sentence, without its full stop. */
  readonly words: string;
  readonly capability: string | null;
  readonly agent: string | null;
  readonly sidecar: string | null;
  readonly traceId: string | null;
  readonly sinceMs: number | null;
  /** Among those of one severity: how many it hurts, roughly. Not told. */
  readonly weight: number;
}

const RANK: Readonly<Record<Severity, number>> = { critical: 0, warning: 1, info: 2 };

export function problem(severity: Severity, kind: ProblemKind, words: string, weight: number, subject: Subject = {}): Problem {
  const { capability = null, agent = null, sidecar = null, traceId = null, sinceMs = null } = subject;
  return { severity, kind, words, capability, agent, sidecar, traceId, sinceMs, weight };
}

/** Of equals the order is always the same, so that a page that is redrawn does not jump. */
export function worstFirst(problems: readonly Problem[]): Problem[] {
  return problems.toSorted(
    (a, b) => RANK[a.severity] - RANK[b.severity] || b.weight - a.weight || (a.words < b.words ? -1 : a.words > b.words ? 1 : 0),
  );
}

/** `3 agents`, `1 agent`. */
export const counted = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

/** The first few names, and how many more. */
export function named(names: readonly string[], most = 5): string {
  return names.length <= most ? names.join(', ') : `${names.slice(0, most).join(', ')} and ${names.length - most} more`;
}

/** `0.4 %`, `12 %`: never 0 % of what is not nothing. */
export function percent(share: number): string {
  const hundredths = share * 100;
  return `${hundredths >= 10 || hundredths === 0 ? Math.round(hundredths) : Math.max(0.1, Math.round(hundredths * 10) / 10)} %`;
}
