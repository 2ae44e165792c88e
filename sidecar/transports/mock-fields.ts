/** The small parts of a mock's script: durations, shares, numbers, maps with known keys; every problem is collected with its place. */
import { describe, parseDuration, parseRatio } from '../../base/duration.ts';
import { nearest } from '../../base/suggest.ts';

export class MockFields {
  /** As `path: what is wrong`. */
  readonly problems: string[] = [];

  flag(value: unknown, path: string): boolean | null {
    if (value === undefined || typeof value === 'boolean') return value ?? null;
    this.problem(path, `is true or false, not ${describe(value)}`);
    return null;
  }

  whole(value: unknown, path: string, least: number, most: number, form: string): number | null {
    if (value === undefined) return null;
    if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= most) return value;
    this.problem(path, `is ${form}, not ${describe(value)}`);
    return null;
  }

  duration(value: unknown, path: string): number | null {
    const ms = parseDuration(value);
    if (typeof ms === 'number') return ms;
    this.problem(path, ms);
    return null;
  }

  /** A duration that is not nothing. */
  span(value: unknown, path: string): number {
    const ms = this.duration(value, path);
    if (ms === 0) this.problem(path, 'is more than nothing');
    return ms === null || ms === 0 ? 1 : ms;
  }

  ratio(value: unknown, path: string): number | null {
    if (value === undefined) return null;
    const ratio = parseRatio(value);
    if (typeof ratio === 'number') return ratio;
    this.problem(path, ratio);
    return null;
  }

  map(value: unknown, path: string): Readonly<Record<string, unknown>> | null {
    if (value === undefined) return null;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    this.problem(path, `is a map, not ${describe(value)}`);
    return null;
  }

  known(map: Readonly<Record<string, unknown>>, known: readonly string[], path: string): void {
    for (const key of Object.keys(map)) {
      if (known.includes(key)) continue;
      const near = nearest(key, known);
      this.problem(
        `${path}/${key}`,
        near === null ? `is not known to a mock; known are ${known.join(', ')}` : `is not known to a mock; did you mean "${near}"?`,
      );
    }
  }

  problem(path: string, words: string): void {
    this.problems.push(`${path}: ${words}`);
  }
}
