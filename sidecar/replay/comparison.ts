/** What two decisions about one call have different: in the whole, for the proof that nothing is; and in kind, for people. */
import { scrubbed } from '../../base/redact.ts';
import type { AttemptRecord, Decision } from '../record/shapes.ts';

export type Difference = 'code' | 'provider' | 'version' | 'attempts' | 'reasons';
export const DIFFERENCES: readonly Difference[] = ['code', 'provider', 'version', 'attempts', 'reasons'];

/** The first thing that is not the same, bit by bit; null = nothing. Words that came from outside are recorded without what was quoted. */
export function firstDifference(recorded: Decision, replayed: Decision): string | null {
  const lines = Math.max(recorded.trace.length, replayed.trace.length);
  for (let i = 0; i < lines; i++) {
    const [was, is] = [recorded.trace[i], replayed.trace[i]];
    if (was === undefined || is === undefined) return `line ${i + 1} of the trace: recorded ${shown(was)}, now ${shown(is)}`;
    if (was.at_ms === is.at_ms && was.stage === is.stage && was.reason === is.reason && was.code === is.code)
      if (was.words === is.words || was.words === scrubbed(is.words)) continue;
    return `line ${i + 1} of the trace: recorded ${shown(was)}, now ${shown(is)}`;
  }
  for (let i = 0; i < Math.max(recorded.attempts.length, replayed.attempts.length); i++) {
    const [was, is] = [recorded.attempts[i], replayed.attempts[i]];
    if (was !== undefined && is !== undefined && isSameAttempt(was, is)) continue;
    return `attempt ${i + 1}: recorded ${shown(was)}, now ${shown(is)}`;
  }
  for (const key of ['code', 'status', 'capability', 'provider', 'version', 'degraded', 'retry_after_ms'] as const)
    if (recorded[key] !== replayed[key]) return `${key}: recorded ${shown(recorded[key])}, now ${shown(replayed[key])}`;
  return null;
}

function isSameAttempt(was: AttemptRecord, is: AttemptRecord): boolean {
  return (
    was.provider === is.provider &&
    was.capability === is.capability &&
    was.version === is.version &&
    was.at_ms === is.at_ms &&
    was.elapsed_ms === is.elapsed_ms &&
    was.code === is.code &&
    was.status === is.status &&
    was.started === is.started &&
    (was.detail === is.detail || was.detail === scrubbed(is.detail))
  );
}

/** What an operator would call different; instants and the words around a reason are not. */
export function differencesOf(recorded: Decision, replayed: Decision): Difference[] {
  const found: Difference[] = [];
  if (recorded.code !== replayed.code) found.push('code');
  if (recorded.provider !== replayed.provider) found.push('provider');
  if (recorded.version !== replayed.version || recorded.capability !== replayed.capability) found.push('version');
  if (triedIn(recorded) !== triedIn(replayed)) found.push('attempts');
  if (reasonsIn(recorded) !== reasonsIn(replayed)) found.push('reasons');
  return found;
}

function triedIn({ attempts }: Decision): string {
  return attempts.map((one: AttemptRecord) => `${one.provider} ${one.capability}@${one.version} ${one.code}`).join();
}

function reasonsIn({ trace }: Decision): string {
  return trace.map(({ stage, reason, code }) => `${stage}.${reason} ${code}`).join();
}

function shown(value: unknown): string {
  return value === undefined ? 'nothing' : JSON.stringify(value);
}
