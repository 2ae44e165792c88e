/** Reads the latency of a mock: one of the distributions of mock-latency.ts, in the words that people know them by. */
import type { MockFields } from './mock-fields.ts';
import { type Latency, sigmaOf } from './mock-latency.ts';

export class LatencyReader {
  readonly #fields: MockFields;

  constructor(fields: MockFields) {
    this.#fields = fields;
  }

  /** null = not said, or not understood. */
  read(value: unknown, path: string): Latency | null {
    if (value === undefined) return null;
    if (Array.isArray(value)) return this.#latencyList(value, path);
    if (typeof value !== 'object' || value === null) {
      const ms = this.#fields.duration(value, path);
      return ms === null ? null : { kind: 'uniform', from: ms, to: ms };
    }
    const map = value as Record<string, unknown>;
    if ('list' in map) {
      this.#fields.known(map, ['list'], path);
      return this.#latencyList(map['list'], `${path}/list`);
    }
    if ('mean' in map) {
      this.#fields.known(map, ['mean', 'deviation', 'most'], path);
      const mean = this.#fields.duration(map['mean'], `${path}/mean`);
      const deviation = this.#fields.duration(map['deviation'], `${path}/deviation`);
      return mean === null || deviation === null ? null : { kind: 'normal', mean, deviation, most: this.#most(map, path) };
    }
    if ('median' in map) {
      this.#fields.known(map, ['median', 'p95', 'most'], path);
      const median = this.#fields.span(map['median'], `${path}/median`);
      const p95 = this.#fields.span(map['p95'], `${path}/p95`);
      if (p95 < median) this.#fields.problem(path, '`p95` is not below `median`');
      return { kind: 'lognormal', median, sigma: sigmaOf(median, p95), most: this.#most(map, path) };
    }
    if (Object.keys(map).some((key) => /^p\d/.test(key))) return this.#percentiles(map, path);
    this.#fields.known(map, ['from', 'to', 'mean', 'deviation', 'median', 'p50', 'p95', 'p99', 'most', 'list'], path);
    const from = this.#fields.duration(map['from'], `${path}/from`);
    const to = this.#fields.duration(map['to'], `${path}/to`);
    if (from === null || to === null) return null;
    if (to < from) this.#fields.problem(path, '`to` is not below `from`');
    return { kind: 'uniform', from, to };
  }

  #latencyList(value: unknown, path: string): Latency | null {
    if (!Array.isArray(value) || value.length === 0) {
      this.#fields.problem(path, 'is a list of durations, one for each call: [20ms, 20ms, 3s]');
      return null;
    }
    return { kind: 'list', times: value.map((one: unknown, i) => this.#fields.duration(one, `${path}/${i}`) ?? 0) };
  }

  /** `{p50: 200ms, p95: 1s, p99: 4s}`, with `least` and `most` where they are known. */
  #percentiles(map: Readonly<Record<string, unknown>>, path: string): Latency | null {
    const points: { share: number; ms: number }[] = [];
    for (const [key, value] of Object.entries(map)) {
      if (key === 'least' || key === 'most') continue;
      const share = /^p\d{1,2}(\.\d{1,3})?$/.test(key) ? Number(key.slice(1)) / 100 : 0;
      if (share <= 0) this.#fields.problem(`${path}/${key}`, 'is no percentile: write p50, p95, p99, p99.9, and least and most');
      else points.push({ share, ms: this.#fields.duration(value, `${path}/${key}`) ?? 0 });
    }
    points.sort((a, b) => a.share - b.share);
    const first = points[0];
    const last = points.at(-1);
    if (first === undefined || last === undefined) return null;
    const least = map['least'] === undefined ? first.ms / 2 : (this.#fields.duration(map['least'], `${path}/least`) ?? 0);
    // A tail like the one before it, when nobody says how long it is.
    const before = points.at(-2) ?? { share: 0, ms: least };
    const slope = (last.ms - before.ms) / (last.share - before.share);
    const most = map['most'] === undefined ? last.ms + slope * (1 - last.share) : (this.#fields.duration(map['most'], `${path}/most`) ?? 0);
    const shares = [0, ...points.map((point) => point.share), 1];
    const times = [least, ...points.map((point) => point.ms), most];
    if (times.some((ms, i) => i > 0 && ms < (times[i - 1] as number)))
      this.#fields.problem(path, 'must rise from one percentile to the next');
    return { kind: 'percentiles', shares, times };
  }

  #most(map: Readonly<Record<string, unknown>>, path: string): number {
    return map['most'] === undefined ? Number.POSITIVE_INFINITY : (this.#fields.duration(map['most'], `${path}/most`) ?? 0);
  }
}
