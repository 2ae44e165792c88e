/** What every scene of the demo is given, and gives. */
import type { Result } from '../client.ts';
import type { Accepted } from '../mail.ts';
import { FRONT } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import type { Team } from '../team.ts';

/** Figures for the last line, by name; lists are what really answered. */
export type Counts = Readonly<Record<string, string | number | readonly string[] | Readonly<Record<string, number | readonly string[]>>>>;

/** Plays one scene with the running team. What does not hold is said through `tell.check`; a throw is a failure too. */
export type Scene<T extends Team = Team> = (team: T, tell: Storyteller) => Promise<Counts>;

/** The front agent calls, in a conversation. */
export function callFrom(team: Team, target: string, payload: unknown, session: string): Promise<Result> {
  return team.seat(FRONT).client.invoke(target, payload, { 'x-session': session });
}

export function names(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, i) => `${prefix}-${String(i + 1).padStart(4, '0')}`);
}

/** How often each value occurs, in words: `crm.order.a1 52, crm.order.b1 48`. */
export function spread(values: Iterable<string>): string {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([value, count]) => `${value} ${count}`)
    .join(', ');
}

/** For a message: what came back, shortly. */
export function outcome(result: Result): string {
  return result.code === 0 ? `ok from ${result.provider ?? 'the fallback'}` : `${result.code} ${result.error?.detail ?? ''}`;
}

/** For a message that was sent: what became of the submission, shortly. */
export function acceptedWords(accepted: Accepted | null): string {
  return accepted === null ? 'not taken' : `task ${accepted.task_id}, durable: ${accepted.durable}`;
}

/** What a command has printed, behind it. */
export function linesOf(tell: Storyteller, text: string): void {
  for (const line of text.trimEnd().split('\n')) tell.say(`  ${line}`);
}
