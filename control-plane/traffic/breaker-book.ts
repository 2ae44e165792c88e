/**
 * How breakers moved, by sidecar, process, provider and capability. Each has its own moves, so that those that move a lot do not push
 * out what is known of the others, and the state in which each stands is known for as long as it stands so. Probes that fail are many
 * and say little: of one outage its beginning is kept, and its newest probe.
 */
import type { BreakerDigest } from '../../proto/wire/digests.ts';

export interface BreakerMove {
  readonly sidecar: string;
  /** The process: each has breakers of its own, which are closed when it starts. */
  readonly instance: string;
  readonly provider: string;
  readonly capability: string;
  /** Absent = its sidecar did not say. */
  readonly from?: BreakerDigest['to'] | undefined;
  readonly to: BreakerDigest['to'];
  readonly why: string;
  /** Monotonic, of this replica. */
  readonly atMs: number;
}

/** Of all together. Beyond it those that have the most lose their oldest. */
const MAX_MOVES = 20_000;
/** What is left of it then. */
const ENOUGH = 15_000;
/** What one has at the least: the beginning of an outage, and its newest probe. */
const FEWEST = 4;
const MOST_OF_ONE = 4_096;

export class BreakerBook {
  /** Oldest first, of each; those that moved last stand last. */
  readonly #cells = new Map<string, BreakerMove[]>();
  #size = 0;

  take(move: BreakerMove): void {
    const key = `${move.sidecar} ${move.instance} ${move.provider} ${move.capability}`;
    const moves = this.#cells.get(key) ?? [];
    const last = moves.at(-1);
    this.#size -= moves.length;
    if (move.to === 'open' && (move.from ?? last?.to ?? 'closed') !== 'closed') dropProbes(moves);
    moves.push(last !== undefined && last.atMs > move.atMs ? { ...move, atMs: last.atMs } : move);
    this.#size += moves.length;
    this.#cells.delete(key);
    this.#cells.set(key, moves);
    if (this.#size > MAX_MOVES) this.#shed();
  }

  /** Those since then, and of an outage that goes on also those before; oldest first. */
  since(fromMs: number): BreakerMove[] {
    const found: BreakerMove[] = [];
    for (const moves of this.#cells.values())
      for (let i = firstKept(moves, fromMs); i < moves.length; i++) found.push(moves[i] as BreakerMove);
    return found.sort((a, b) => a.atMs - b.atMs);
  }

  /** @param isOver whether a breaker that moved so last does not stand so any more */
  forget(fromMs: number, isOver: (newest: BreakerMove) => boolean): void {
    for (const [key, moves] of this.#cells) {
      const newest = moves.at(-1) as BreakerMove;
      this.#cut(key, moves, newest.atMs < fromMs && isOver(newest) ? moves.length : firstKept(moves, fromMs));
    }
  }

  #shed(): void {
    for (let most = MOST_OF_ONE; this.#size > ENOUGH && most >= FEWEST; most /= 2)
      for (const [key, moves] of this.#cells) this.#cut(key, moves, moves.length - most);
    for (const isClosed of [true, false])
      for (const [key, moves] of this.#cells) {
        if (this.#size <= ENOUGH) return;
        if ((moves.at(-1)?.to === 'closed') === isClosed) this.#cut(key, moves, moves.length);
      }
  }

  #cut(key: string, moves: BreakerMove[], count: number): void {
    if (count <= 0) return;
    moves.splice(0, count);
    this.#size -= count;
    if (moves.length === 0) this.#cells.delete(key);
  }
}

/** Where the newest outage begins: behind the last move to closed, or at the last that says that it was closed. */
function beginning(moves: readonly BreakerMove[]): number {
  for (let i = moves.length - 1; i >= 0; i--) {
    const { from, to } = moves[i] as BreakerMove;
    if (to === 'closed') return i + 1;
    if (from === 'closed') return i;
  }
  return 0;
}

/** Another probe of the same outage has failed: between its beginning and what follows the newest opening nothing is kept. */
function dropProbes(moves: BreakerMove[]): void {
  const first = beginning(moves);
  const newest = moves.findLastIndex(({ to }) => to === 'open');
  if (newest > first) moves.splice(first + 1, newest - first);
}

/** The first that is kept: not older, or of the outage that goes on. */
function firstKept(moves: readonly BreakerMove[], fromMs: number): number {
  const first = moves.findIndex(({ atMs }) => atMs >= fromMs);
  return Math.min(first < 0 ? moves.length : first, beginning(moves));
}
