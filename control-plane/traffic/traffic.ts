/**
 * What went through the fleet in the last two hours, by minute, out of the digests of all sidecars (proto/wire/digests.ts). Every
 * replica hears them and keeps its own book; alerts, overview, topology and `reachctl top` read it. Nothing in it is sampled.
 *
 * Time is this replica's own: a digest belongs to the minute in which it was heard, whatever its sender's clock reads, and so to
 * up to ten seconds after the calls it tells of. What was not heard is not there: a minute says how many sidecars spoke in it, so
 * that silence is not taken for calm.
 */
import type { Clock } from '../../base/clock.ts';
import type { Digest } from '../../proto/wire/digests.ts';
import { BreakerBook, type BreakerMove } from './breaker-book.ts';
import { cyclesOf } from './cycles.ts';
import { AttemptFigures, Figures } from './figures.ts';
import { HeardBook, type SidecarHeard } from './heard.ts';
import { type EdgeName, Minute, type ProviderName } from './minute.ts';

const MINUTE_MS = 60_000;
export const KEPT_MINUTES = 120;
/** After so many minutes only the busiest edges of each are kept. */
const SQUEEZED_AFTER = 15;

/** Whole minutes, and where it ends. */
export interface Window {
  /** How many; the minute that runs comes on top when it ends now. 1 to KEPT_MINUTES. */
  readonly minutes: number;
  /** 0 = now; 10 = ten whole minutes ago. */
  readonly endsMinutesAgo?: number;
}

export interface TrafficMinute {
  /** Whole minutes of this replica's monotonic clock. Counts up by one. */
  readonly index: number;
  /** When it began, by this replica's wall clock: to be shown, not to be reckoned with. */
  readonly startMs: number;
  readonly isRunning: boolean;
  /** Sidecars that spoke in it. */
  readonly sidecars: number;
  /** null = nobody told of a call. */
  readonly figures: Figures | null;
}

export interface EdgeFigures extends EdgeName {
  readonly figures: Figures;
}

export interface ProviderFigures extends ProviderName {
  readonly figures: AttemptFigures;
}

export interface Topology {
  /** Busiest first. */
  readonly edges: readonly EdgeFigures[];
  /** Agents that call one another in a circle, as was observed: each cycle once, without its first agent at its end. */
  readonly cycles: readonly (readonly string[])[];
  /** There are more edges than are shown. */
  readonly isCut: boolean;
}

export class Traffic {
  readonly #clock: Clock;
  readonly #heard: HeardBook;
  /** Oldest first, without gaps in the order but perhaps in the numbers. */
  readonly #minutes: Minute[] = [];
  readonly #breakers = new BreakerBook();
  readonly #listeners = new Set<() => void>();
  readonly #sinceMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#heard = new HeardBook(KEPT_MINUTES * MINUTE_MS);
    this.#sinceMs = clock.now();
  }

  /** A digest as it was read (reading.ts); one that was heard before changes nothing. */
  take(digest: Digest): void {
    const now = this.#clock.now();
    if (!this.#heard.take(digest, now)) return;
    const minute = this.#running(now);
    minute.sidecars.add(digest.sidecar);
    for (const edge of digest.edges) minute.edge(edge);
    for (const provider of digest.providers) minute.provider(provider);
    for (const { provider, capability, from, to, why, at_ms: at } of digest.breakers) {
      // Its sender's clock tells how long before the end of its period it was, and nothing else.
      const agoMs = Math.min(Math.max(0, digest.to_ms - at), MINUTE_MS);
      this.#breakers.take({ sidecar: digest.sidecar, instance: digest.instance, provider, capability, from, to, why, atMs: now - agoMs });
    }
    for (const listener of this.#listeners) listener();
  }

  /** Told after each digest, until the returned function is called. */
  onTaken(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Since when this replica listens, monotonic: nothing can be known of what was before. */
  get sinceMs(): number {
    return this.#sinceMs;
  }

  /** When each sidecar was last heard, and how many digests of it were missed. Sorted by name. */
  sidecars(): SidecarHeard[] {
    return this.#heard.rows(this.#clock.now());
  }

  /** Digests that were heard, heard twice, and missed, since this replica started. */
  get counts(): { readonly heard: number; readonly repeated: number; readonly missed: number; readonly refused: number } {
    return this.#heard.counts;
  }

  /** One came that could not be read. */
  refuse(): void {
    this.#heard.refuse();
  }

  /** Capabilities that were called in the window. Sorted. */
  capabilities(window: Window): string[] {
    const names = new Set<string>();
    for (const minute of this.#within(window)) for (const name of minute.capabilities.keys()) names.add(name);
    return [...names].sort();
  }

  /** null = it was not called in the window. */
  capability(name: string, window: Window): Figures | null {
    let sum: Figures | null = null;
    for (const minute of this.#within(window)) {
      const figures = minute.capabilities.get(name);
      if (figures !== undefined) (sum ??= new Figures()).merge(figures);
    }
    return sum;
  }

  /** Of all capabilities together. */
  total(window: Window): Figures {
    const sum = new Figures();
    for (const minute of this.#within(window)) for (const figures of minute.capabilities.values()) sum.merge(figures);
    return sum;
  }

  /** One capability by minute, oldest first, the running one last; minutes in which nothing was heard stand there as well. */
  minutes(name: string, count: number): TrafficMinute[] {
    const now = this.#clock.now();
    const wall = this.#clock.wallMs();
    const running = Math.floor(now / MINUTE_MS);
    const byIndex = new Map(this.#minutes.map((minute) => [minute.index, minute]));
    const rows: TrafficMinute[] = [];
    for (let index = running - Math.min(count, KEPT_MINUTES) + 1; index <= running; index++) {
      const minute = byIndex.get(index);
      rows.push({
        index,
        startMs: wall - (now - index * MINUTE_MS),
        isRunning: index === running,
        sidecars: minute?.sidecars.size ?? 0,
        figures: minute?.capabilities.get(name) ?? null,
      });
    }
    return rows;
  }

  /** Calls of every capability in each of the last so many minutes, oldest first, the running one last. */
  callsByMinute(count: number): Map<string, number[]> {
    const first = Math.floor(this.#clock.now() / MINUTE_MS) - count + 1;
    const all = new Map<string, number[]>();
    for (const { index, capabilities } of this.#minutes) {
      if (index < first) continue;
      for (const [name, { calls }] of capabilities) {
        let row = all.get(name);
        if (row === undefined) all.set(name, (row = new Array<number>(count).fill(0)));
        row[index - first] = calls;
      }
    }
    return all;
  }

  /** Busiest first. @param capability only this one's; absent = all */
  edges(window: Window, capability?: string): EdgeFigures[] {
    const sums = new Map<string, { readonly name: EdgeName; readonly figures: Figures }>();
    for (const minute of this.#within(window))
      for (const [key, { name, figures }] of minute.edges) {
        if (capability !== undefined && name.capability !== capability) continue;
        let sum = sums.get(key);
        if (sum === undefined) sums.set(key, (sum = { name, figures: new Figures() }));
        sum.figures.merge(figures);
      }
    return [...sums.values()].map(({ name, figures }) => ({ ...name, figures })).sort((a, b) => b.figures.calls - a.figures.calls);
  }

  /** Attempts by provider, busiest first. @param capability only at this one; absent = all */
  providers(window: Window, capability?: string): ProviderFigures[] {
    const sums = new Map<string, { readonly name: ProviderName; readonly figures: AttemptFigures }>();
    for (const minute of this.#within(window))
      for (const [key, { name, figures }] of minute.providers) {
        if (capability !== undefined && name.capability !== capability) continue;
        let sum = sums.get(key);
        if (sum === undefined) sums.set(key, (sum = { name, figures: new AttemptFigures() }));
        sum.figures.merge(figures);
      }
    return [...sums.values()].map(({ name, figures }) => ({ ...name, figures })).sort((a, b) => b.figures.attempts - a.figures.attempts);
  }

  /** How breakers moved in the last so many milliseconds, and before it those that have not closed since; oldest first. */
  breakerMoves(withinMs: number): BreakerMove[] {
    return this.#breakers.since(this.#clock.now() - withinMs);
  }

  /** Until when a breaker that so moved, and has not moved since, stood so; monotonic. Infinity = it still does. */
  untilMs(move: Pick<BreakerMove, 'sidecar' | 'instance' | 'atMs'>): number {
    return this.#heard.untilMs(move, this.#clock.now());
  }

  /** How many seconds of a window this replica has listened for: what rates are divided by. At least one. */
  seconds({ minutes, endsMinutesAgo = 0 }: Window): number {
    const now = this.#clock.now();
    const running = Math.floor(now / MINUTE_MS);
    const end = endsMinutesAgo === 0 ? now : (running - endsMinutesAgo) * MINUTE_MS;
    const start = (running - endsMinutesAgo - minutes) * MINUTE_MS;
    return Math.max(1, (end - Math.max(start, this.#sinceMs)) / 1_000);
  }

  topology(window: Window, maxEdges: number): Topology {
    const edges = this.edges(window);
    return { edges: edges.slice(0, maxEdges), cycles: cyclesOf(edges), isCut: edges.length > maxEdges };
  }

  #within({ minutes, endsMinutesAgo = 0 }: Window): Minute[] {
    const running = Math.floor(this.#clock.now() / MINUTE_MS);
    // A window that ends now has the running minute as well.
    const last = endsMinutesAgo === 0 ? running : running - endsMinutesAgo - 1;
    const first = running - endsMinutesAgo - minutes;
    return this.#minutes.filter(({ index }) => index >= first && index <= last);
  }

  #running(now: number): Minute {
    const index = Math.floor(now / MINUTE_MS);
    const newest = this.#minutes.at(-1);
    if (newest?.index === index) return newest;
    const made = new Minute(index);
    this.#minutes.push(made);
    while (this.#minutes.length > 0 && (this.#minutes[0] as Minute).index < index - KEPT_MINUTES) this.#minutes.shift();
    for (const minute of this.#minutes) if (minute.index < index - SQUEEZED_AFTER) minute.squeeze();
    this.#breakers.forget(now - KEPT_MINUTES * MINUTE_MS, (newest) => this.untilMs(newest) < now);
    return made;
  }
}
