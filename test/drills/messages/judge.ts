/**
 * From what was accepted, what senders were told and what the workers wrote, to the figures of a drill. Pure: the same evidence gives
 * the same verdict. Nothing here asks our own programs what they think they did: that a message is done is believed when a worker has
 * written it down too, and two answers are one result when they are the same to the byte, whatever is said of a replay.
 */
import { tellingOf } from './inboxes.ts';
import type { Outcome } from './outcomes.ts';
import type { Accepted } from './submitter.ts';
import { type Counted, type Kind, KINDS } from './team.ts';

export interface Fault {
  readonly what: string;
  /** Wall clock. */
  readonly atMs: number;
  /** `strike`: something is broken from here on; `back`: it can recover from here on; `both`: it is back as soon as others notice. */
  readonly kind: 'strike' | 'back' | 'both';
}

export interface Evidence {
  readonly accepted: readonly Accepted[];
  /** Numbers that were sent and never answered: they may have been carried out, as any other, or not. */
  readonly inDoubt: ReadonlySet<number>;
  readonly outcomes: readonly Outcome[];
  readonly counted: Counted;
  readonly faults: readonly Fault[];
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
  /** Messages of which a start has no end: their worker was killed in the midst of it. */
  readonly interrupted: number;
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
  /** Messages that needed more than one try and were allowed one. */
  readonly retried: number;
  readonly keyed_restarted: number;
  readonly interrupted: number;
  /** Messages that had been accepted and had no end when something was broken. */
  readonly under_way: number;
  /** Strikes at which not one message was under way: they prove nothing. */
  readonly idle_strikes: number;
}

export interface Verdict {
  readonly figures: Figures;
  readonly kinds: Readonly<Record<Kind, KindFigures>>;
  readonly strikes: number;
  /** What is wrong, a line each, for people. */
  readonly problems: readonly string[];
}

const MOST_PROBLEMS = 40;

type ByTask = ReadonlyMap<string, readonly Outcome[]>;

export function judge(evidence: Evidence): Verdict {
  const { accepted, outcomes, counted, faults } = evidence;
  const problems: string[] = [];
  const byTask = groupedBy(outcomes, ({ taskId }) => taskId);
  const kinds: Record<Kind, Writable<KindFigures>> = { keyed: none(), idempotent: none(), once: none() };
  const tasksSeen = new Set<string>();
  let retried = 0;
  let retriedOk = 0;
  for (const message of accepted) {
    const figures = kinds[message.kind];
    const name = `${message.kind} ${message.n} (${message.taskId}, ${message.durable})`;
    figures.accepted++;
    const end = byTask.get(message.taskId)?.[0];
    const missing = tasksSeen.has(message.taskId) ? 'has the task id of another message' : missingOf(message, end, counted);
    tasksSeen.add(message.taskId);
    if (missing !== null) {
      figures.lost++;
      problems.push(`${name} ${missing}`);
    }
    if (end === undefined) continue;
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
    if (end.state !== 'done' && (end.state !== 'in_doubt' || message.kind !== 'once')) problems.push(`${name}: ${wordsOf(end)}`);
  }
  const resultsOver = resultsOverOne(byTask, outcomes, problems);
  const effectsWrong = wrongEffects(evidence, byTask, problems);
  const twice = Object.entries(counted.once.starts).filter(([, times]) => times > 1);
  for (const [n, times] of twice) problems.push(`once ${n} was started ${times} times`);
  for (const kind of KINDS) {
    const { starts, ends } = counted[kind];
    kinds[kind].restarted = Object.values(starts).filter((times) => times > 1).length;
    kinds[kind].interrupted = Object.entries(starts).filter(([n, times]) => times > (ends[n] ?? 0)).length;
  }
  const sum = (field: keyof KindFigures): number => KINDS.reduce((total, kind) => total + kinds[kind][field], 0);
  const strikes = faults.filter(({ kind }) => kind !== 'back');
  const underWay = strikes.map(({ atMs }) => underWayAt(atMs, accepted, byTask));
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
      retried_ok_ratio: retried === 0 ? 1 : Math.floor((retriedOk / retried) * 100_000) / 100_000,
      recovery_ms: recoveryMs(evidence, byTask),
      retried,
      keyed_restarted: kinds.keyed.restarted,
      interrupted: sum('interrupted'),
      under_way: underWay.reduce((total, each) => total + each, 0),
      idle_strikes: underWay.filter((each) => each === 0).length,
    },
    kinds,
    strikes: strikes.length,
    problems: problems.slice(0, MOST_PROBLEMS),
  };
}

/**
 * Accepted messages whose end, state and result, is not what their sender reads in its inbox.
 * @param read by task
 */
export function untoldOf(accepted: readonly Accepted[], ended: ReadonlyMap<string, Outcome>, read: ReadonlyMap<string, string>): number {
  let untold = 0;
  for (const { taskId } of accepted) {
    const end = ended.get(taskId);
    if (end !== undefined && read.get(taskId) !== tellingOf(end.state, dataIn(end.answer))) untold++;
  }
  return untold;
}

/** Why it counts as lost; null = it has an end that can be believed. */
function missingOf({ kind, n }: Accepted, end: Outcome | undefined, { idempotent, once }: Counted): string | null {
  if (end === undefined) return 'was accepted and has no end';
  if (end.state !== 'done') return null;
  if (numberIn(end.answer) !== n) return `is done, and its result is not its own: ${end.answer.slice(0, 100) || 'none'}`;
  // Of keyed work the effect is counted.
  const ends = kind === 'idempotent' ? idempotent.ends : kind === 'once' ? once.ends : null;
  return ends === null || (ends[n] ?? 0) > 0 ? null : 'is done, and no worker has done it';
}

/** The message that a worker's answer is about; null when it is no such answer. */
function numberIn(answer: string): number | null {
  return (dataIn(answer) as { n?: number } | null)?.n ?? null;
}

function dataIn(answer: string): unknown {
  try {
    return JSON.parse(answer);
  } catch {
    return null;
  }
}

/** Tasks with more than one end, and keys with more than one result; also of submissions that were never answered. */
function resultsOverOne(byTask: ByTask, outcomes: readonly Outcome[], problems: string[]): number {
  let over = 0;
  for (const [taskId, ends] of byTask) {
    if (ends.length === 1) continue;
    over++;
    problems.push(`task ${taskId} has ${ends.length} ends: ${ends.map(wordsOf).join('; ')}`);
  }
  const done = outcomes.filter(({ state }) => state === 'done');
  for (const [key, results] of groupedBy(done, ({ capability, powerId }) => `${powerId} of ${capability}`)) {
    const different = new Set(results.map(({ answer }) => answer));
    const own = new Set(results.filter(({ replay }) => !replay).map(({ taskId }) => taskId));
    if (different.size === 1 && own.size <= 1) continue;
    over++;
    problems.push(`key ${key} has ${different.size} different results, ${own.size} of them said to be new: ${[...different].join('; ')}`);
  }
  return over;
}

/** Keyed messages whose effect did not happen exactly once, or that are not done and had more than one. */
function wrongEffects({ accepted, counted }: Evidence, byTask: ByTask, problems: string[]): number {
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
 * The longest time from when it could recover to the end of a message that had been accepted before; where several faults came before
 * the end, from the last one. 0 = no message waited for anything.
 */
function recoveryMs({ accepted, faults }: Evidence, byTask: ByTask): number {
  const backs = faults.filter(({ kind }) => kind !== 'strike');
  let longest = 0;
  for (const message of accepted) {
    const endMs = byTask.get(message.taskId)?.[0]?.atMs ?? 0;
    const before = backs.findLast(({ atMs }) => atMs <= endMs);
    if (before !== undefined && message.atMs <= before.atMs) longest = Math.max(longest, endMs - before.atMs);
  }
  return Math.round(longest);
}

function underWayAt(atMs: number, accepted: readonly Accepted[], byTask: ByTask): number {
  let count = 0;
  for (const message of accepted)
    if (message.atMs <= atMs && (byTask.get(message.taskId)?.[0]?.atMs ?? Number.POSITIVE_INFINITY) >= atMs) count++;
  return count;
}

function wordsOf({ state, code, cause, by, attempts, replay }: Outcome): string {
  return `${state} ${code} ${cause} by ${by} after ${attempts}${replay ? ' (replay)' : ''}`.replaceAll('  ', ' ');
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };

function none(): Writable<KindFigures> {
  return { accepted: 0, done: 0, dead: 0, inDoubt: 0, failed: 0, lost: 0, replayed: 0, restarted: 0, interrupted: 0 };
}

function groupedBy<T>(all: readonly T[], keyOf: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of all) {
    const key = keyOf(one);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [one]);
    else group.push(one);
  }
  return groups;
}
