/** A run as it stands: what expectations about all of it are held against. */
import { lintRules } from '../../proto/language/rule-lint.ts';
import { Durations } from './durations.ts';
import type { State } from './expectations.ts';
import type { Fate } from './scenario.ts';
import type { CallRun, SendRun } from './step-runs.ts';
import { count, Tally } from './tally.ts';
import type { Move, World } from './world.ts';

/** What has happened so far, beside what the world itself remembers. */
export class History {
  readonly runs: CallRun[] = [];
  readonly sends: SendRun[] = [];
  readonly tasks = new Map<string, { readonly beganAtMs: number; endedAtMs: number }>();
  /** Keys that steps gave. */
  readonly keys = new Set<string>();
  /** Calls of steps that have not ended. */
  underWay = 0;
}

export function stateOf(world: World, history: History): State {
  const tally = new Tally();
  for (const run of history.runs) tally.addAll(run.tally);
  const { mock, moves, witness, agentCalls, table, clock } = world;
  return {
    tally,
    inFlight: history.underWay,
    executions: (cell) => {
      const [agent, capability] = cell.split(' ') as [string, string | undefined];
      return mock.executions(agent, capability);
    },
    breaker: (cell) => world.breakerOf(cell),
    opened: (cell) => moves.filter((move) => move.cell === cell && move.to === 'open').length,
    taskMs: (task) => {
      const span = history.tasks.get(task);
      return span === undefined ? null : span.endedAtMs - span.beganAtMs;
    },
    breakerPath: (cell) => {
      const mine = moves.filter((move) => move.cell === cell);
      return [mine[0]?.from ?? 'closed', ...mine.map((move) => move.to)];
    },
    openMs: (cell) => openMs(moves, cell, clock.now()),
    times: (name) => timesOf(history, name) ?? witness.byCapability.get(name) ?? new Durations(),
    agentCalls: agentCalls.begun,
    messages: fatesOf(history),
    byKey: byKeyOf(world, history),
    lint: (rule) => {
      const { rules = [] } = table.current().document;
      if (!rules.some((one) => one.name === rule)) return null;
      return lintRules(rules, null, null).find((finding) => finding.rule === rule)?.kind ?? 'clean';
    },
  };
}

function timesOf(history: History, label: string): Durations | null {
  for (const run of history.runs) if (run.step.label === label) return run.tally.times;
  for (const run of history.sends) {
    if (run.step.label !== label) continue;
    const times = new Durations();
    for (const record of run.records) if (record.elapsedMs !== null) times.add(record.elapsedMs);
    return times;
  }
  return null;
}

function fatesOf(history: History): ReadonlyMap<Fate, number> {
  const fates = new Map<Fate, number>();
  for (const run of history.sends) for (const record of run.records) count(fates, record.fate);
  return fates;
}

function byKeyOf(world: World, history: History): ReadonlyMap<string, number> {
  const byKey = new Map<string, number>();
  for (const key of history.keys) byKey.set(key, world.byKey.get(key) ?? 0);
  return byKey;
}

/** How long a breaker has been open in all. */
function openMs(moves: readonly Move[], cell: string, now: number): number {
  let sum = 0;
  let since: number | null = null;
  for (const move of moves) {
    if (move.cell !== cell) continue;
    if (since !== null) sum += move.atMs - since;
    since = move.to === 'open' ? move.atMs : null;
  }
  return since === null ? sum : sum + now - since;
}
