/**
 * Watches what waits: each pool that tasks wait in, and what is kept for people. The figures are those of the last look at the server
 * (control-plane/messages); only looks that were taken count, so that a server that does not answer is no queue that stands still.
 */
import type { Clock } from '../../base/clock.ts';
import type { Alert, Observation } from './alert.ts';
import { type AlertsConfig, type BacklogSettings, limitsFor } from './config.ts';
import { type Growth, judgeGrowth, type Seen, type Still } from './growth.ts';
import { countWords, span } from './words.ts';

/** One queue or list as it was found. */
export interface Waiting {
  /** `pool:<id>`, `dead`, `in_doubt`, `review`. */
  readonly subject: string;
  /** null = of a list of what is kept for people. */
  readonly capability: string | null;
  /** As people call it. */
  readonly name: string;
  readonly waiting: number;
  /** What has been taken so far, in any count that only changes when something is; null = nobody takes anything by itself. */
  readonly taken: number | null;
  /** Nobody works on it. */
  readonly isParked: boolean;
  readonly look: string;
}

/** null = there has been no look yet. */
export interface Look {
  /** `clock.now()` of when it was taken. */
  readonly atMs: number;
  readonly lists: readonly Waiting[];
}

/** Looks of one queue that are kept. */
const MAX_SEEN = 200;
const LEAST_APART_MS = 5_000;

interface History {
  readonly seen: Seen[];
  taken: number | null;
  stillSinceMs: number;
  /** Something was taken since it is looked at. */
  hasMoved: boolean;
}

export class Backlogs {
  readonly #config: AlertsConfig;
  readonly #clock: Clock;
  readonly #histories = new Map<string, History>();
  #lookedMs = Number.NEGATIVE_INFINITY;

  constructor(config: AlertsConfig, clock: Clock) {
    this.#config = config;
    this.#clock = clock;
  }

  /** What the newest look says; nothing when it was not a new one. */
  look(look: Look | null, active: readonly Alert[]): Observation[] {
    if (look === null || look.atMs - this.#lookedMs < LEAST_APART_MS) return [];
    this.#lookedMs = look.atMs;
    const there = new Set(look.lists.map(({ subject }) => subject));
    for (const subject of this.#histories.keys()) if (!there.has(subject)) this.#histories.delete(subject);
    const observations = look.lists.flatMap((list) => this.#judge(list, look.atMs) ?? []);
    for (const alert of active)
      if (!there.has(alert.subject))
        observations.push({ ...alert, grade: 'unknown', words: `${alert.subject} is not there any more`, value: 0, beganMs: null });
    return observations;
  }

  #judge(list: Waiting, atMs: number): Observation | null {
    const settings = this.#settings(list);
    if (!settings.enabled) return null;
    const history = this.#take(list, atMs, settings);
    const still: Still | null = list.taken === null ? null : { forMs: atMs - history.stillSinceMs, isAtLeast: !history.hasMoved };
    const growth = judgeGrowth(history.seen, still, settings);
    const isBad = growth.kind === 'growing' || growth.kind === 'stuck';
    return {
      kind: 'backlog',
      subject: list.subject,
      grade: isBad ? 'bad' : growth.kind === 'calm' ? 'good' : growth.kind === 'between' ? 'between' : 'unknown',
      words: wordsOf(list, growth, still, settings),
      value: growth.kind === 'stuck' ? Math.round((still?.forMs ?? 0) / 1_000) : list.waiting,
      limit: growth.kind === 'stuck' ? Math.round(settings.stuckMs / 1_000) : settings.floor,
      capability: list.capability,
      agent: null,
      sidecar: null,
      traceId: null,
      look: list.look,
      held: null,
      beganMs: isBad ? this.#clock.wallMs() - (growth.kind === 'stuck' ? (still?.forMs ?? 0) : settings.windowMs) : null,
    };
  }

  #settings({ capability }: Waiting): BacklogSettings {
    const { backlog } = this.#config;
    return capability === null ? { ...backlog, floor: backlog.keptFloor } : limitsFor(this.#config, capability).backlog;
  }

  #take({ subject, waiting, taken }: Waiting, atMs: number, { windowMs }: BacklogSettings): History {
    let history = this.#histories.get(subject);
    if (history === undefined) {
      history = { seen: [], taken, stillSinceMs: atMs, hasMoved: false };
      this.#histories.set(subject, history);
    }
    if (waiting === 0 || taken !== history.taken) {
      history.taken = taken;
      history.stillSinceMs = atMs;
      history.hasMoved = true;
    }
    const { seen } = history;
    // Over a long window fewer looks are kept: as many as tell how it went.
    const apart = windowMs / (MAX_SEEN / 2);
    const before = seen.at(-2);
    if (before !== undefined && (seen.at(-1) as Seen).atMs - before.atMs < apart) seen.pop();
    seen.push({ atMs, waiting });
    while (seen.length > MAX_SEEN || (seen[1] !== undefined && seen[1].atMs < atMs - windowMs * 1.1)) seen.shift();
    return history;
  }
}

function wordsOf({ name, waiting, isParked }: Waiting, growth: Growth, still: Still | null, { windowMs }: BacklogSettings): string {
  const nobody = isParked ? '; nobody works on it' : '';
  const what = countWords(waiting, 'task');
  if (growth.kind === 'growing')
    return `${name} grows: ${growth.from.toLocaleString('en-US')} to ${what} within ${span(windowMs)}${nobody}`;
  if (growth.kind === 'stuck') return `${what} in ${name}: none has been taken for ${span(still?.forMs ?? 0)}${nobody}`;
  return `${what} in ${name}${nobody}`;
}
