/**
 * From what callers have seen, what was done to the fleet and what providers wrote down, to the figures about calls; and what the
 * whole drill must have shown to be passed. Pure.
 *
 * A call has failed when it was not answered rightly in the end, when no provider has written down that it carried it out (or another
 * one than the answer names), or when it was sent again and may not have been:
 * - a *reconnect* is a try that the caller's own sidecar did not take: a refused connection, or the words that it is stopping and takes
 *   no new calls. The caller sends the call again, to the same sidecar. It is one only while that very sidecar is being replaced;
 * - a *cut* is a try whose connection to the own sidecar ended before the answer. The calls are idempotent and are sent again. It is
 *   one only when that very sidecar was killed with SIGKILL: one that was asked to stop answers everything that it has taken.
 *
 * What is not idempotent can be ambiguous after SIGKILL: `once` work that is in doubt, and submissions without a key that nobody
 * answered. Those are counted as such, and bounded by what can have been in hand.
 */
import type { Call, Failure, Lapse } from '../generator.ts';
import type { Verdict } from '../messages/judge.ts';
import type { Silence } from '../messages/submitter.ts';
import type { Counted } from '../messages/team.ts';
import { NAMES, type Pass, PASSES, type Roll } from './roll.ts';

export interface CallEvidence {
  readonly calls: readonly Call[];
  readonly failures: readonly Failure[];
  readonly turnedAway: readonly Lapse[];
  readonly cuts: readonly Lapse[];
  readonly rolls: readonly Roll[];
  readonly counted: Counted['call'] | undefined;
}

export interface CallFigures {
  readonly calls: number;
  readonly failed: number;
  readonly reconnects: number;
  readonly cut: number;
}

/** Between an event and the note of it, on a busy machine. */
const SLACK_MS = 250;
/** So long a sidecar may try before it says that it is not certain whether NATS has taken a message. */
const UNCERTAIN_MS = 10_000;
const MOST_PROBLEMS = 20;

export function judgeCalls(evidence: CallEvidence): { readonly figures: CallFigures; readonly problems: readonly string[] } {
  const { calls, failures, turnedAway, cuts, rolls, counted } = evidence;
  const problems = failures.map(({ dueMs, lane, words }) => `a call through ${lane}, due at ${sec(dueMs)}: ${words}`);
  /** By number: a call fails once, however often. */
  const failed = new Set<number>();
  const fail = (n: number, words: string): void => {
    failed.add(n);
    problems.push(`call ${n} ${words}`);
  };
  for (const { n, provider } of calls) {
    const by = counted?.by[n] ?? [];
    if (by.length === 0) fail(n, `was answered by ${provider}, and nobody has carried it out`);
    else if (!by.includes(provider)) fail(n, `was answered by ${provider}, and was carried out by ${by.join(', ')}`);
  }
  for (const { n, lane, atMs, words } of turnedAway)
    if (!rolls.some((roll) => roll.what === lane && isWithin(atMs, roll.fromMs, roll.readyMs)))
      fail(n, `was not taken by ${lane} at ${sec(atMs)}, which nobody was replacing: ${words}`);
  for (const { n, lane, atMs, words } of cuts)
    if (!rolls.some((roll) => roll.what === lane && roll.pass === 'SIGKILL' && isWithin(atMs, roll.fromMs, roll.goneMs)))
      fail(n, `was cut by ${lane} at ${sec(atMs)}, which nobody was killing: ${words}`);
  const numbers = new Set(calls.map(({ n }) => n));
  if (numbers.size < calls.length) problems.push(`${calls.length - numbers.size} calls were answered twice`);
  return {
    figures: {
      calls: calls.length + failures.length,
      failed: failures.length + failed.size + calls.length - numbers.size,
      reconnects: turnedAway.length,
      cut: cuts.length,
    },
    problems: problems.slice(0, MOST_PROBLEMS),
  };
}

interface Demands {
  readonly leastCalls: number;
  readonly leastMessages: number;
  /** Of `once` work in doubt, for each worker that was killed. */
  readonly inHand: number;
}

/** `once` work that is in doubt. */
interface Doubt {
  /** Wall clock of its start. */
  readonly atMs: number;
  /** The sidecar of its worker. */
  readonly sidecar: string;
}

export interface RollingEvidence {
  readonly calls: readonly Call[];
  readonly rolls: readonly Roll[];
  readonly figures: CallFigures;
  readonly messages: Verdict;
  readonly silences: readonly Silence[];
  readonly doubts: readonly Doubt[];
  /** The fleet before and after, such as can be compared; null = nobody could say. */
  readonly before: string | null;
  readonly after: string | null;
  readonly demands: Demands;
}

/** A line for everything that is not as it must be, beside what is wrong with any messages at all. */
export function brokenRolling(evidence: RollingEvidence): string[] {
  const { rolls, figures, messages, demands, before, after } = evidence;
  const words: string[] = [];
  if (figures.failed > 0) words.push(`failed: ${figures.failed}`);
  if (figures.calls < demands.leastCalls) words.push(`only ${figures.calls} calls of ${demands.leastCalls}`);
  if (messages.figures.accepted < demands.leastMessages)
    words.push(`only ${messages.figures.accepted} messages of ${demands.leastMessages}`);
  for (const pass of PASSES) words.push(...brokenPass(pass, evidence));
  words.push(...unhurt(evidence), ...strange(evidence));
  const killed = rolls.filter(({ pass, kind }) => pass === 'SIGKILL' && kind === 'worker').length;
  if (messages.kinds.once.inDoubt > killed * demands.inHand)
    words.push(`${messages.kinds.once.inDoubt} of once work are in doubt, more than ${killed} killed workers can have had in hand`);
  if (before === null || after !== before)
    words.push(`the fleet is not as it was: ${after ?? 'nobody can say'}; before: ${before ?? 'nobody could say'}`);
  return words;
}

function brokenPass(pass: Pass, { rolls, silences, doubts }: RollingEvidence): string[] {
  const words: string[] = [];
  const mine = rolls.filter((roll) => roll.pass === pass);
  const missing = NAMES.filter((name) => !mine.some(({ what }) => what === name));
  if (missing.length > 0) words.push(`${pass} never came to ${missing.join(', ')}`);
  if (!mine.some(({ didLead }) => didLead)) words.push(`${pass} never came to the replica that leads`);
  if (pass === 'SIGKILL') return words;
  for (const { what, codes } of mine)
    if (codes.some((code) => code !== 0)) words.push(`${what} was asked to stop and ended with ${codes.map(String).join(', ')}`);
  const untilMs = Math.max(...mine.map(({ readyWallMs }) => readyWallMs)) + SLACK_MS;
  const early = silences.filter(({ atMs }) => atMs <= untilMs);
  if (early.length > 0)
    words.push(`${early.length} submissions were not answered although nothing had been killed: ${early[0]?.gate} ${early[0]?.words}`);
  // Begun by the process that was asked to stop; what its successor has begun can only have ended with a kill.
  const doubted = doubts.filter(({ atMs, sidecar }) => atMs <= (mine.find(({ what }) => what === sidecar)?.readyWallMs ?? untilMs));
  if (doubted.length > 0) words.push(`${doubted.length} messages were in doubt although nothing had been killed`);
  return words;
}

/** Replacements during which nobody called: they prove nothing. */
function unhurt({ rolls, calls }: RollingEvidence): string[] {
  return rolls
    .filter(({ fromMs, readyMs }) => !calls.some(({ endedMs }) => endedMs >= fromMs && endedMs <= readyMs))
    .map(({ pass, what }) => `no call was answered while ${what} was replaced (${pass})`);
}

/** Submissions that were not answered, and neither the sidecar that was asked nor NATS was being killed. */
function strange({ rolls, silences }: RollingEvidence): string[] {
  const lastMs = Math.max(...rolls.filter(({ pass }) => pass === 'SIGTERM').map(({ readyWallMs }) => readyWallMs)) + SLACK_MS;
  const killed = rolls.filter(({ pass }) => pass === 'SIGKILL');
  const isMeant = ({ gate, atMs }: Silence): boolean =>
    killed.some(({ what, kind, fromWallMs, readyWallMs }) =>
      kind === 'nats' ? isWithin(atMs, fromWallMs, readyWallMs + UNCERTAIN_MS) : what === gate && isWithin(atMs, fromWallMs, readyWallMs),
    );
  const stray = silences.filter((silence) => silence.atMs > lastMs && !isMeant(silence));
  if (stray.length === 0) return [];
  return [`${stray.length} submissions were not answered by a sidecar that nobody was killing: ${stray[0]?.gate} ${stray[0]?.words}`];
}

function isWithin(atMs: number, fromMs: number, untilMs: number): boolean {
  return atMs >= fromMs - SLACK_MS && atMs <= untilMs + SLACK_MS;
}

function sec(ms: number): string {
  return `${(ms / 1_000).toFixed(2)} s`;
}
