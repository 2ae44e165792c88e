/**
 * From which position an agent may read, and what comes next behind it: out of the hot copy where that is complete, else out
 * of the stream. A position counts only if it is one that the agent can know: that of an entry of its own, or right behind one.
 * Positions are those of the whole stream, and so nobody learns from them what others receive.
 */
import type { Box } from './box.ts';
import type { InboxRefusal } from './door.ts';
import type { Entry } from './entry.ts';
import type { Floors } from './floors.ts';
import type { History, HistoryPage } from './history.ts';
import type { Pump } from './pump.ts';

export interface Step {
  readonly ok: true;
  readonly entries: readonly Entry[];
  /** Nothing of the agent lies before it that was not given. */
  readonly at: number;
}

/** Of one step, beside its first entry. */
const MAX_BYTES = 4_194_304;

export class Positions {
  readonly #pump: Pump;
  readonly #history: History;
  readonly #floors: Floors;

  constructor(pump: Pump, history: History, floors: Floors) {
    this.#pump = pump;
    this.#history = history;
    this.#floors = floors;
  }

  /** From here on the hot copy of the agent is complete. */
  completeFrom(box: Box): number {
    if (box.epoch !== this.#pump.epoch) {
      box.epoch = this.#pump.epoch;
      box.completeFrom = Math.max(this.#pump.coverage, box.completeFrom === Number.POSITIVE_INFINITY ? 0 : box.completeFrom);
    }
    return box.completeFrom;
  }

  /** The position at which reading begins, which is the asked one where one was asked for. */
  async begin(box: Box, from: number | null): Promise<{ readonly ok: true; readonly at: number } | InboxRefusal> {
    if (from !== null && (!Number.isSafeInteger(from) || from < 0))
      return refused('invalid', 0, `a position is a whole number from 0 on, not ${String(from).slice(0, 40)}`);
    const problem = await this.#floors.load(box);
    if (problem !== null) return refused('unreachable', 0, `where the agent stands is not known now: ${problem}`);
    const at = from === null ? box.floor + 1 : Math.max(1, from);
    if (from === null) return { ok: true, at };
    if (at >= this.completeFrom(box) && at <= box.known + 1) return { ok: true, at };
    // One entry before it is proof that it is no guess.
    const page = await this.#history.read(box.agent, Math.max(1, at - 1), 1);
    if (typeof page === 'string') return refused('unreachable', 0, page);
    this.#compareFloor(box, page);
    if (at < page.first && page.last > 0)
      return refused(
        'gone',
        page.first,
        `what was at ${at} may be gone: the oldest that is kept is at ${page.first}; read from there, and know that some may be missing`,
      );
    if (page.entries.length === 0 && at > Math.max(box.known + 1, page.first))
      return refused('ahead', box.known + 1, `there has been nothing for this agent at ${at - 1}: it cannot go on from ${at}`);
    return { ok: true, at };
  }

  /** What stands at or behind a position; nothing, when there is nothing yet. */
  async step(box: Box, at: number, limit: number): Promise<Step | InboxRefusal> {
    const hot = this.hot(box, at, limit);
    if (hot !== null) return hot;
    const page = await this.#history.read(box.agent, at, limit);
    if (typeof page === 'string') return refused('unreachable', 0, page);
    this.#compareFloor(box, page);
    const completeFrom = this.completeFrom(box);
    // What is in the hot copy is taken from there.
    const entries = page.entries.filter(({ seq }) => seq < completeFrom);
    const isAll = !page.more || entries.length < page.entries.length;
    const behind = (entries.at(-1)?.seq ?? at - 1) + 1;
    if (!isAll || page.last + 1 < completeFrom)
      return { ok: true, entries, at: isAll ? Math.max(behind, page.last + 1) : Math.max(behind, page.through + 1) };
    // Between this and the hot copy there is nothing.
    box.completeFrom = Math.min(completeFrom, behind);
    if (entries.length === 0 || entries.length >= limit) return { ok: true, entries, at: behind };
    const all = [...entries, ...box.slice(behind, limit - entries.length, MAX_BYTES)];
    return { ok: true, entries: all, at: (all.at(-1) as Entry).seq + 1 };
  }

  /** As `step`, at once; null when the stream has to be asked. */
  hot(box: Box, at: number, limit: number): Step | null {
    if (at < this.completeFrom(box)) return null;
    const entries = box.slice(at, limit, MAX_BYTES);
    return { ok: true, entries, at: entries.length === 0 ? at : (entries.at(-1) as Entry).seq + 1 };
  }

  /** A floor beyond the end of the stream is that of another stream, which is gone. */
  #compareFloor(box: Box, page: HistoryPage): void {
    if (box.floor > page.last && box.lastSeq === 0) this.#floors.reset(box);
  }
}

export function refused(why: InboxRefusal['why'], from: number, detail: string): InboxRefusal {
  return { ok: false, why, from, detail };
}
