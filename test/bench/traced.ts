/**
 * What seeing costs: the same calls through a sidecar that makes no spans and records nothing, and through one that exports the spans of
 * every single call to a collector and records one trace in a hundred; the floor beside them. Decides how these are set up and what is
 * said of them. `traced_default` is a sidecar as shipped, which tells 200 calls a second.
 */
import { type Pass, median, perCall } from './figures.ts';

export type TracedName = 'floor' | 'untraced' | 'default' | 'traced';
/** Those that are compared stand beside one another. */
export const TRACED: readonly TracedName[] = ['floor', 'untraced', 'traced', 'default'];

/** Of the settings of the three sidecars. */
export const UNTRACED = { traces: { enabled: false } };

/** Nothing is left out: no bound on what is told, and room for all of it. */
export function tracedSettings(collectorUrl: string): object {
  return {
    traces: { ratio: 1, max_per_sec: 10_000_000, otlp: { url: collectorUrl, queue: '64MiB' } },
    recording: { share: '1%', dir: 'recordings', keep: { headers: [], query: [], json: ['/id', '/state'] } },
  };
}

export type TracedPasses = Readonly<Record<TracedName, readonly Pass[]>>;

/** Traces of all calls, their export, and recordings of 1 %, over the same without. */
const MOST_RATIO = 1.15;
const MOST_FLOOR_RATIO = 1.55;

/** @param exportedShare spans that the collector took, of those that were made */
export function tracedFigures(passes: TracedPasses, exportedShare: number): Readonly<Record<string, number>> {
  const cpu = (name: TracedName): number => rounded(median(passes[name].map(perCall)), 1);
  return {
    untraced_cpu_us: cpu('untraced'),
    traced_cpu_us: cpu('traced'),
    traced_cpu_ratio: ratio(passes.traced, passes.untraced),
    traced_floor_ratio: ratio(passes.traced, passes.floor),
    traced_default_ratio: ratio(passes.default, passes.untraced),
    traced_exported_share: rounded(exportedShare, 4),
  };
}

function ratio(over: readonly Pass[], under: readonly Pass[]): number {
  return rounded(median(over.map((pass, i) => perCall(pass) / perCall(under[i] as Pass))), 3);
}

/** For people. */
export function tracedTable(passes: TracedPasses, figures: Readonly<Record<string, number>>): string {
  const lines = ['traced         calls/s    CPU us/call'];
  for (const name of TRACED) {
    const perSec = median(passes[name].map((pass) => (pass.calls / pass.elapsedMs) * 1_000));
    lines.push(`${name.padEnd(14)}${perSec.toFixed(0).padStart(8)}${median(passes[name].map(perCall)).toFixed(1).padStart(15)}`);
  }
  lines.push('');
  for (const [name, limit] of [
    ['traced_cpu_ratio', MOST_RATIO],
    ['traced_floor_ratio', MOST_FLOOR_RATIO],
  ] as const) {
    const actual = figures[name] ?? Number.NaN;
    const word = Number.isNaN(actual) ? 'not judged' : actual <= limit ? 'met' : 'MISSED';
    lines.push(`${name.padEnd(22)}${String(actual).padStart(6)}  <= ${String(limit).padEnd(6)}${word}`);
  }
  lines.push(`traced_exported_share ${String(figures['traced_exported_share']).padStart(6)}`);
  return lines.join('\n');
}

function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
