/**
 * How often the breakers of one provider and capability opened within a window, out of what sidecars told of their moves. Pure, and
 * the order in which it was told does not matter.
 *
 * Only closed → open counts: a probe that fails in half-open, or a call on the ramp, says that it is still the same outage, also to
 * whoever begins to listen in the midst of it; a sidecar that does not say from where it moved is gone by its moves before. And a
 * provider's outage is one, however many sidecars see it: an opening belongs to the outage that goes on at another sidecar, or began
 * half a minute ago, unless this sidecar has had its part in that one already. A breaker that opened stays so until its sidecar says
 * that it closed, however long that takes, or is gone.
 */
export interface Move {
  readonly sidecar: string;
  /** Another process has a breaker of its own, which is closed when it starts. */
  readonly instance: string;
  /** Absent = it was not told. */
  readonly from?: Move['to'] | undefined;
  readonly to: 'closed' | 'open' | 'half_open' | 'ramping';
  readonly atMs: number;
}

/** Sidecars see the same outage within this. */
const SAME_MS = 30_000;

interface Outage {
  lastMs: number;
  readonly hosts: Set<string>;
  /** Where it is not closed yet. */
  readonly open: Map<string, Move>;
}

/**
 * When each outage began, oldest first.
 * @param moves of one provider and capability; some before `fromMs` tell what state it was in
 * @param untilMs until when a breaker that has not moved since stood so; Infinity = it still does
 */
export function openingsOf(
  moves: readonly Move[],
  fromMs: number,
  untilMs: (move: Move) => number = () => Number.POSITIVE_INFINITY,
): number[] {
  const ordered = moves.toSorted(
    (a, b) => a.atMs - b.atMs || compare(a.sidecar, b.sidecar) || compare(a.instance, b.instance) || ORDER[a.to] - ORDER[b.to],
  );
  const states = new Map<string, Move['to']>();
  const began: number[] = [];
  let outage: Outage | null = null;
  for (const move of ordered) {
    const { sidecar, instance, from, to, atMs } = move;
    const host = `${sidecar} ${instance}`;
    const before = from ?? states.get(host) ?? 'closed';
    states.set(host, to);
    if (to === 'closed') {
      outage?.open.delete(host);
      continue;
    }
    if (to !== 'open' || before !== 'closed') {
      // One that began before anything was heard: it goes on, and whoever joins it is no opening of its own.
      outage ??= { lastMs: atMs, hosts: new Set([host]), open: new Map() };
      outage.open.set(host, move);
      continue;
    }
    if (outage === null || outage.hosts.has(host) || !goesOn(outage, atMs, untilMs)) {
      outage = { lastMs: atMs, hosts: new Set(), open: new Map() };
      if (atMs >= fromMs) began.push(atMs);
    }
    outage.lastMs = atMs;
    outage.hosts.add(host);
    outage.open.set(host, move);
  }
  return began;
}

function goesOn({ lastMs, open }: Outage, nowMs: number, untilMs: (move: Move) => number): boolean {
  if (nowMs - lastMs <= SAME_MS) return true;
  for (const move of open.values()) if (untilMs(move) >= nowMs) return true;
  return false;
}

/** Within one instant: as it goes round. */
const ORDER: Readonly<Record<Move['to'], number>> = { closed: 0, open: 1, half_open: 2, ramping: 3 };

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
