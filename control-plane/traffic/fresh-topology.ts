/**
 * Who calls whom, worked out once a second for a window however many ask: pages ask again each second, and the sum over up to two
 * hours of edges is the dearest question there is. Filters are taken from the same sum.
 */
import type { Clock } from '../../base/clock.ts';
import type { Topology, Traffic, Window } from './traffic.ts';

const FRESH_MS = 1_000;
/** Kept of one sum: whoever asks with ever new filters gets them, and fills nothing. */
const MAX_TEXTS = 32;
/** Held at a time; beyond it the oldest goes. */
const MAX_WINDOWS = 4;

export interface FreshTopology {
  /** All edges. */
  readonly found: Topology;
  /** Seconds of the window, as of the sum. */
  readonly seconds: number;
  /** Answers that were made of it, by what was asked. */
  readonly text: (key: string, make: () => string) => string;
}

export class TopologyOnce {
  readonly #traffic: Pick<Traffic, 'topology' | 'seconds'>;
  readonly #clock: Clock;
  /** By minutes, oldest first. */
  readonly #made = new Map<number, FreshTopology & { readonly atMs: number }>();

  constructor(traffic: Pick<Traffic, 'topology' | 'seconds'>, clock: Clock) {
    this.#traffic = traffic;
    this.#clock = clock;
  }

  /** At most a second old. */
  of(window: Pick<Window, 'minutes'>): FreshTopology {
    const now = this.#clock.now();
    for (const [minutes, { atMs }] of this.#made)
      if (now - atMs >= FRESH_MS || (this.#made.size >= MAX_WINDOWS && !this.#made.has(window.minutes))) this.#made.delete(minutes);
    const known = this.#made.get(window.minutes);
    if (known !== undefined) return known;
    const texts = new Map<string, string>();
    const made = {
      atMs: now,
      found: this.#traffic.topology(window, Number.MAX_SAFE_INTEGER),
      seconds: this.#traffic.seconds(window),
      text: (key: string, make: () => string): string => {
        const text = texts.get(key) ?? make();
        if (texts.size < MAX_TEXTS) texts.set(key, text);
        return text;
      },
    };
    this.#made.set(window.minutes, made);
    return made;
  }
}
