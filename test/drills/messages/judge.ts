/**
 * From what was accepted, what senders were told and what the workers wrote, to the figures of a drill. Pure: the same evidence gives
 * the same verdict. Nothing here asks our own programs what they think they did.
 */
import type { Outcome } from './outcomes.ts';
import type { Accepted } from './submitter.ts';
import type { Counted, Kind } from './team.ts';

export interface Evidence {
  readonly accepted: readonly Accepted[];
  /** Numbers that were sent and never answered: they may have been carried out, as any other, or not. */
  readonly inDoubt: ReadonlySet<number>;
  readonly outcomes: readonly Outcome[];
  readonly counted: Counted;
  /** Wall clock, of what was done to the fleet. */
  readonly faults: readonly { readonly what: string; readonly atMs: number }[];
}

export interface KindFigures {
  readonly accepted: number;
  readonly done: number;
  readonly dead: number;
  readonly inDoubt: number;
  readonly failed: number;
  readonly lost: number;
  readonly replayed: number;
  /** Messages that were started more than once. */
  readonly restarted: number;
}

export interface Figures {
  readonly accepted: number;
  readonly done: number;
  readonly dead: number;
  readonly in_doubt: number;
  readonly failed: number;
  readonly lost: number;
  readonly keyed_effects_wrong: number;
  readonly once_started_twice: number;
  readonly results_per_key_over_one: number;
  readonly idempotent_restarted: number;
  readonly retried_ok_ratio: number;
  readonly recovery_ms: number;
}

export interface Verdict {
  readonly figures: Figures;
  readonly kinds: Readonly<Record<Kind, KindFigures>>;
  /** What is wrong, a line each, for people. */
  readonly problems: readonly string[];
}

const MOST_PROBLEMS = 40;

export function judge(evidence: Evidence): Verdict {
  const { accepted, outcomes, counted } = evidence;
  const problems: string[] = [];
  const byTask = new Map<string, Outcome[]>();
  for (const outcome of outcomes) push(byTask, outcome.taskId, outcome);
  const kinds: Record<Kind, Writable<KindFigures>> = { keyed: none(), idempotent: none(), once: none() };
  let retried = 0;
  let retriedOk = 0;
  let resultsOver = 0;
  for (const message of accepted) {
    const figures = kinds[message.kind];
    figures.accepted++;
    const ends = byTask.get(message.taskId) ?? [];
    if (ends.length > 1) {
      resultsOver++;
      problems.push(`${message.kind} ${message.n} (${message.taskId}) has ${ends.length} ends: ${ends.map(wordsOf).join('; ')}`);
    }
    const [end] = ends;
    if (end === undefined) {
      figures.lost++;
      problems.push(`${message.kind} ${message.n} (${message.taskId}, ${message.durable}) was accepted and has no end`);
      continue;
    }
    if (end.state === 'done') figures.done++;
    else if (end.state === 'dead_lettered') figures.dead++;
    else if (end.state === 'in_doubt') figures.inDoubt++;
    else figures.failed++;
    if (end.replay) figures.replayed++;
    // What is in doubt is not tried again on purpose.
    if (end.attempts > 1 && end.state !== 'in_doubt') {
      retried++;
      if (end.state === 'done') retriedOk++;
    }
    if (end.state !== 'done' && end.state !== 'in_doubt')
      problems.push(`${message.kind} ${message.n} (${message.taskId}): ${wordsOf(end)}`);
  }
  resultsOver += resultsOfKeys(accepted, byTask, problems);
  const effectsWrong = wrongEffects(evidence, byTask, problems);
  const twice = Object.entries(counted.once.starts).filter(([, times]) => times > 1);
  for (const [n, times] of twice) problems.push(`once ${n} was started ${times} times`);
  const restarts = (starts: Readonly<Record<string, number>>): number => Object.values(starts).filter((times) => times > 1).length;
  kinds.keyed.restarted = restarts(counted.keyed.starts);
  kinds.idempotent.restarted = restarts(counted.idempotent.starts);
  kinds.once.restarted = twice.length;
  const sum = (field: keyof KindFigures): number => kinds.keyed[field] + kinds.idempotent[field] + kinds.once[field];
  return {
    figures: {
      accepted: accepted.length,
      done: sum('done'),
      dead: sum('dead'),
      in_doubt: sum('inDoubt'),
      failed: sum('failed'),
      lost: sum('lost'),
      keyed_effects_wrong: effectsWrong,
      once_started_twice: twice.length,
      results_per_key_over_one: resultsOver,
      idempotent_restarted: kinds.idempotent.restarted,
      retried_ok_ratio: retried === 0 ? 1 : Math.round((retriedOk / retried) * 100_000) / 100_000,
      recovery_ms: recoveryMs(evidence, byTask),
    },
    kinds,
    problems: problems.slice(0, MOST_PROBLEMS),
  };
}

/** Keys for which work was carried to an end more than once: further submissions get the first one's result, marked as a replay. */
function resultsOfKeys(accepted: readonly Accepted[], byTask: ReadonlyMap<string, readonly Outcome[]>, problems: string[]): number {
  const made = new Map<string, string[]>();
  for (const { key, taskId } of accepted) {
    if (key === '') continue;
    const fresh = (byTask.get(taskId) ?? []).some(({ state, replay }) => state === 'done' && !replay);
    if (fresh) push(made, key, taskId);
  }
  const over = [...made].filter(([, tasks]) => tasks.length > 1);
  for (const [key, tasks] of over) problems.push(`key ${key} has ${tasks.length} results of its own: ${tasks.join(', ')}`);
  return over.length;
}

/** Keyed messages whose effect did not happen exactly once, or that are not done and had more than one. */
function wrongEffects({ accepted, counted }: Evidence, byTask: ReadonlyMap<string, readonly Outcome[]>, problems: string[]): number {
  const done = new Set<number>();
  for (const { kind, n, taskId } of accepted)
    if (kind === 'keyed' && (byTask.get(taskId) ?? []).some(({ state }) => state === 'done')) done.add(n);
  let wrong = 0;
  for (const n of done) {
    const times = counted.keyed.effects[n] ?? 0;
    if (times === 1) continue;
    wrong++;
    problems.push(`keyed ${n} is done and had ${times} effects`);
  }
  for (const [n, times] of Object.entries(counted.keyed.effects)) {
    if (times <= 1 || done.has(Number(n))) continue;
    wrong++;
    problems.push(`keyed ${n} had ${times} effects`);
  }
  return wrong;
}

/**
 * The longest time from a fault to the end of a message that had been accepted before it; where several faults came before the end,
 * from the last one. 0 = no message waited for anything.
 */
function recoveryMs({ accepted, faults }: Evidence, byTask: ReadonlyMap<string, readonly Outcome[]>): number {
  let longest = 0;
  for (const message of accepted) {
    const endMs = byTask.get(message.taskId)?.[0]?.atMs ?? 0;
    const before = faults.findLast(({ atMs }) => atMs <= endMs);
    if (before !== undefined && message.atMs <= before.atMs) longest = Math.max(longest, endMs - before.atMs);
  }
  return Math.round(longest);
}

function wordsOf({ state, code, cause, by, attempts, replay }: Outcome): string {
  return `${state} ${code} ${cause} by ${by} after ${attempts}${replay ? ' (replay)' : ''}`.replaceAll('  ', ' ');
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

function none(): Writable<KindFigures> {
  return { accepted: 0, done: 0, dead: 0, inDoubt: 0, failed: 0, lost: 0, replayed: 0, restarted: 0 };
}

function push<K, V>(into: Map<K, V[]>, key: K, value: V): void {
  const list = into.get(key);
  if (list === undefined) into.set(key, [value]);
  else list.push(value);
}
