/** What a drill tells in a table: its phases, how many calls fell in each, how long they took. Pure. */
import { quantile } from '../bench/figures.ts';
import type { Call, Failure } from './generator.ts';

export interface Phase {
  readonly name: string;
  /** Since the start of the generator. */
  readonly fromMs: number;
}

export interface PhaseFigures {
  readonly name: string;
  readonly seconds: number;
  readonly calls: number;
  readonly failed: number;
  /** Calls that were sent again after a refused connection. */
  readonly again: number;
  /** Calls that were tried at more than one provider. */
  readonly elsewhere: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly mostMs: number;
}

/** A call belongs to the phase in which it was due. */
export function figuresOf(phases: readonly Phase[], endMs: number, calls: readonly Call[], failures: readonly Failure[]): PhaseFigures[] {
  return phases.map(({ name, fromMs }, i) => {
    const toMs = phases[i + 1]?.fromMs ?? endMs;
    const within = ({ dueMs }: { readonly dueMs: number }): boolean => dueMs >= fromMs && dueMs < toMs;
    const mine = calls.filter(within);
    const took = mine.map(({ tookMs }) => tookMs).sort((a, b) => a - b);
    return {
      name,
      seconds: (toMs - fromMs) / 1_000,
      calls: mine.length,
      failed: failures.filter(within).length,
      again: mine.filter(({ refusals }) => refusals > 0).length,
      elsewhere: mine.filter(({ attempts }) => attempts > 1).length,
      p50Ms: quantile(took, 0.5),
      p99Ms: quantile(took, 0.99),
      mostMs: took.at(-1) ?? Number.NaN,
    };
  });
}

const HEAD = ['phase', 'seconds', 'calls', 'failed', 'sent again', 'elsewhere', 'p50 ms', 'p99 ms', 'most ms'] as const;

export function tableOf(figures: readonly PhaseFigures[]): string {
  const ms = (value: number): string => (Number.isNaN(value) ? '-' : value.toFixed(1));
  const rows = figures.map((one) => [
    one.name,
    one.seconds.toFixed(1),
    String(one.calls),
    String(one.failed),
    String(one.again),
    String(one.elsewhere),
    ms(one.p50Ms),
    ms(one.p99Ms),
    ms(one.mostMs),
  ]);
  const widths = HEAD.map((head, i) => Math.max(head.length, ...rows.map((row) => (row[i] as string).length)));
  const line = (cells: readonly string[]): string =>
    cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] as number) : cell.padStart(widths[i] as number))).join('  ');
  return [line(HEAD), ...rows.map(line)].join('\n');
}
