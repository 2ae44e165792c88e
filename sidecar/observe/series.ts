/**
 * Numbers that calls add to: cells of one Float64Array a metric, found once and then addressed by index, so that the hot
 * path neither builds label strings nor touches prom-client. Bounded: beyond `maxSeries` every new combination of labels
 * goes into one series whose labels all read `other`, so that no caller can make memory or a scrape grow.
 *
 * `get` is asked at scrape time; labels and text exist only then.
 */

import type { Exemplar, Rendered, Sample } from '../../base/exposition.ts';

const NO_LABELS = Object.freeze({});

/** Stands between label values in a key; it can be in none of them. */
const BETWEEN = '\u0000';

class Index {
  readonly labelNames: readonly string[];
  /** By position; null = free for the next labels. */
  readonly #labels: (Record<string, string> | null)[] = [];
  readonly #maxSeries: number;
  readonly #byKey = new Map<string, number>();
  readonly #free: number[] = [];
  #other = -1;

  constructor(labelNames: readonly string[], maxSeries: number) {
    this.labelNames = labelNames;
    this.#maxSeries = maxSeries;
  }

  /** Position of these labels; of `other` when there is no room for more. */
  at(values: readonly string[]): number {
    const key = values.join(BETWEEN);
    const known = this.#byKey.get(key);
    if (known !== undefined) return known;
    // One place is kept for `other`.
    if (this.#byKey.size >= this.#maxSeries - 1) return this.other();
    const at = this.#push(values);
    this.#byKey.set(key, at);
    return at;
  }

  other(): number {
    if (this.#other < 0) this.#other = this.#push(this.labelNames.map(() => 'other'));
    return this.#other;
  }

  get size(): number {
    return this.#labels.length - this.#free.length;
  }

  *entries(): Generator<readonly [at: number, labels: Readonly<Record<string, string>>]> {
    for (const [at, labels] of this.#labels.entries()) if (labels !== null) yield [at, labels];
  }

  /** Frees the positions of these labels, to be given away again. */
  drop(isGone: (labels: Readonly<Record<string, string>>) => boolean): number[] {
    const freed: number[] = [];
    for (const [key, at] of this.#byKey) {
      if (!isGone(this.#labels[at] as Record<string, string>)) continue;
      this.#byKey.delete(key);
      this.#labels[at] = null;
      this.#free.push(at);
      freed.push(at);
    }
    return freed;
  }

  #push(values: readonly string[]): number {
    const labels: Record<string, string> = {};
    for (let i = 0; i < this.labelNames.length; i++) labels[this.labelNames[i] as string] = values[i] as string;
    const free = this.#free.pop();
    if (free === undefined) return this.#labels.push(labels) - 1;
    this.#labels[free] = labels;
    return free;
  }
}

function grown(cells: Float64Array<ArrayBuffer>, needed: number): Float64Array<ArrayBuffer> {
  if (needed <= cells.length) return cells;
  const larger = new Float64Array(Math.max(needed, cells.length * 2));
  larger.set(cells);
  return larger;
}

/** A counter, or a gauge that calls add to. */
export class Series {
  readonly name: string;
  readonly #help: string;
  readonly type: 'counter' | 'gauge';
  readonly #index: Index;
  #cells = new Float64Array(16);

  constructor(type: 'counter' | 'gauge', name: string, help: string, labelNames: readonly string[], maxSeries: number) {
    this.type = type;
    this.name = name;
    this.#help = help;
    this.#index = new Index(labelNames, maxSeries);
  }

  /** The cell of these label values; keep it, it stays valid until it is dropped. */
  cell(...values: string[]): number {
    return this.#room(this.#index.at(values));
  }

  /** The cell of all for whom there is no room. */
  otherCell(): number {
    return this.#room(this.#index.other());
  }

  #room(at: number): number {
    this.#cells = grown(this.#cells, at + 1);
    return at;
  }

  add(cell: number, by: number): void {
    (this.#cells[cell] as number) += by;
  }

  value(cell: number): number {
    return this.#cells[cell] ?? 0;
  }

  /** Forgets the series of these labels. Nobody may hold on to their cells. */
  drop(isGone: (labels: Readonly<Record<string, string>>) => boolean): void {
    for (const at of this.#index.drop(isGone)) this.#cells[at] = 0;
  }

  get size(): number {
    return this.#index.size;
  }

  get(): Rendered {
    const values = [...this.#index.entries()].map(([at, labels]) => ({ labels, value: this.#cells[at] as number }));
    return { name: this.name, help: this.#help, type: this.type, values, aggregator: 'sum' };
  }
}

/** Values that are read, not counted: written anew at every scrape, so that what is gone is not shown any more. */
export class Reading {
  readonly name: string;
  readonly #help: string;
  readonly type: 'counter' | 'gauge';
  readonly #labelNames: readonly string[];
  readonly #maxSeries: number;
  #values: Sample[] = [];

  constructor(type: 'counter' | 'gauge', name: string, help: string, labelNames: readonly string[], maxSeries: number) {
    this.type = type;
    this.name = name;
    this.#help = help;
    this.#labelNames = labelNames;
    this.#maxSeries = maxSeries;
  }

  clear(): void {
    this.#values = [];
  }

  /** Beyond the bound the rest is left out: a sum of states would mean nothing. */
  set(value: number, ...values: string[]): void {
    if (this.#values.length >= this.#maxSeries) return;
    const labels: Record<string, string> = {};
    for (let i = 0; i < this.#labelNames.length; i++) labels[this.#labelNames[i] as string] = values[i] as string;
    this.#values.push({ labels, value });
  }

  get(): Rendered {
    return { name: this.name, help: this.#help, type: this.type, values: this.#values, aggregator: 'sum' };
  }
}

/** Counts by upper bound, not cumulative until they are rendered; the last two cells of a series are +Inf and the sum. */
export class Histogram {
  readonly name: string;
  readonly #help: string;
  readonly #bounds: readonly number[];
  readonly #index: Index;
  readonly #width: number;
  #cells: Float64Array<ArrayBuffer>;
  /** null = nobody reads them. */
  #exemplars: Exemplars | null = null;

  /** @param bounds upper bounds in seconds, rising. */
  constructor(name: string, help: string, labelNames: readonly string[], bounds: readonly number[], maxSeries: number) {
    this.name = name;
    this.#help = help;
    this.#bounds = bounds;
    this.#index = new Index(labelNames, maxSeries);
    this.#width = bounds.length + 2;
    this.#cells = new Float64Array(16 * this.#width);
  }

  cell(...values: string[]): number {
    return this.#room(this.#index.at(values));
  }

  /** The cells of all for whom there is no room. */
  otherCell(): number {
    return this.#room(this.#index.other());
  }

  #room(at: number): number {
    this.#cells = grown(this.#cells, (at + 1) * this.#width);
    return at * this.#width;
  }

  add(cell: number, seconds: number): void {
    this.#at(cell, seconds);
  }

  /** @param endedAt of the clock that does not jump */
  addTraced(cell: number, seconds: number, traceId: string, endedAt: number): void {
    const at = this.#at(cell, seconds);
    if (this.#exemplars === null) return;
    this.#exemplars.traces[at] = traceId;
    this.#exemplars.seconds[at] = seconds;
    this.#exemplars.endedAt[at] = endedAt;
  }

  /** From now on the newest trace of each bucket is remembered. */
  keepExemplars(): void {
    this.#exemplars ??= { traces: [], seconds: [], endedAt: [] };
  }

  #at(cell: number, seconds: number): number {
    const bounds = this.#bounds;
    let i = 0;
    while (i < bounds.length && seconds > (bounds[i] as number)) i++;
    (this.#cells[cell + i] as number)++;
    (this.#cells[cell + this.#width - 1] as number) += seconds;
    return cell + i;
  }

  /** Forgets the series of these labels. Nobody may hold on to their cells. */
  drop(isGone: (labels: Readonly<Record<string, string>>) => boolean): void {
    for (const at of this.#index.drop(isGone)) {
      this.#cells.fill(0, at * this.#width, (at + 1) * this.#width);
      for (let i = 0; i < this.#width; i++) delete this.#exemplars?.traces[at * this.#width + i];
    }
  }

  get size(): number {
    return this.#index.size;
  }

  /** @param wallAhead wall clock less the clock that does not jump, milliseconds */
  get(wallAhead = 0): Rendered {
    const values: Sample[] = [];
    const names = { bucket: `${this.name}_bucket`, sum: `${this.name}_sum`, count: `${this.name}_count` };
    const bounds = [...this.#bounds, '+Inf'].map((le) => ({ le }));
    for (const [at, sharedLabels] of this.#index.entries()) {
      const start = at * this.#width;
      let count = 0;
      for (const [i, labels] of bounds.entries()) {
        count += this.#cells[start + i] as number;
        const exemplar = this.#exemplar(start + i, wallAhead);
        if (exemplar === null) values.push({ metricName: names.bucket, labels, sharedLabels, value: count });
        else values.push({ metricName: names.bucket, labels, sharedLabels, value: count, exemplar });
      }
      values.push({ metricName: names.sum, labels: NO_LABELS, sharedLabels, value: this.#cells[start + this.#width - 1] as number });
      values.push({ metricName: names.count, labels: NO_LABELS, sharedLabels, value: count });
    }
    return { name: this.name, help: this.#help, type: 'histogram', values, aggregator: 'sum' };
  }

  #exemplar(at: number, wallAhead: number): Exemplar | null {
    const trace = this.#exemplars?.traces[at];
    if (this.#exemplars === null || trace === undefined) return null;
    const endedMs = (this.#exemplars.endedAt[at] as number) + wallAhead;
    return { labelSet: { trace_id: trace }, value: this.#exemplars.seconds[at] as number, timestamp: Math.round(endedMs) / 1_000 };
  }
}

/** By cell; with holes. */
interface Exemplars {
  readonly traces: string[];
  readonly seconds: number[];
  readonly endedAt: number[];
}
