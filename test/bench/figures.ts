/**
 * From what was measured to what is said: medians, the fields of the last line, and which targets they meet. Pure.
 *
 * CPU is compared within one round (the passes of a round run one after the other, so that a machine that slows down slows
 * both), latency within one window (the paths share its slices); then the median over rounds or windows is taken.
 */

/** Value at `share` (0–1) of an ascending list, nearest rank; NaN for an empty one. */
export function quantile(sorted: readonly number[], share: number): number {
  if (sorted.length === 0) return Number.NaN;
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] as number;
}

/** NaN for an empty list. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length % 2 === 1 || sorted.length === 0) return sorted[middle] ?? Number.NaN;
  return ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

export type PathName = 'direct' | 'floor' | 'sidecar' | 'mesh';
export const PATHS: readonly PathName[] = ['direct', 'floor', 'sidecar', 'mesh'];

/** One pass at saturation: what the path's own processes used (the agent's for direct, both sidecars' for mesh). */
export interface Pass {
  readonly calls: number;
  readonly elapsedMs: number;
  readonly cpuUs: number;
}

export interface Latency {
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
}

export type Round = Readonly<Record<PathName, Pass>>;
export type Window = Readonly<Record<PathName, Latency>>;

export interface Measured {
  readonly rounds: readonly Round[];
  readonly windows: readonly Window[];
  readonly errors: number;
  readonly idleRssBytes: number;
  readonly loadedRssBytes: number;
}

/** The last line. Milliseconds, microseconds of CPU per call, MB of 1,000,000 bytes. */
export interface Figures {
  readonly bench: 'call';
  readonly floor_cpu_us: number;
  readonly sidecar_cpu_us: number;
  readonly cpu_ratio: number;
  readonly direct_p50_ms: number;
  readonly added_p50_ms: number;
  readonly added_p90_ms: number;
  /** Over the valid windows only; null when there was none. */
  readonly added_p99_ms: number | null;
  readonly p99_windows_valid: number;
  readonly mesh_cpu_us: number;
  readonly mesh_added_p50_ms: number;
  readonly errors: number;
  readonly idle_rss_mb: number;
  readonly loaded_rss_mb: number;
  readonly max_per_s: number;
}

/** The tail is judged only where the machine itself was quiet: in windows whose direct calls stayed below this. */
const QUIET_P99_MS = 2;
const MB = 1_000_000;

export function figuresOf(measured: Measured): Figures {
  const { rounds, windows } = measured;
  const valid = windows.filter((window) => window.direct.p99Ms < QUIET_P99_MS);
  return {
    bench: 'call',
    floor_cpu_us: rounded(cpuPerCall(rounds, 'floor'), 1),
    sidecar_cpu_us: rounded(cpuPerCall(rounds, 'sidecar'), 1),
    cpu_ratio: rounded(median(rounds.map((round) => perCall(round.sidecar) / perCall(round.floor))), 3),
    direct_p50_ms: rounded(median(windows.map((window) => window.direct.p50Ms)), 3),
    added_p50_ms: rounded(added(windows, 'sidecar', 'p50Ms'), 3),
    added_p90_ms: rounded(added(windows, 'sidecar', 'p90Ms'), 3),
    added_p99_ms: valid.length === 0 ? null : rounded(added(valid, 'sidecar', 'p99Ms'), 3),
    p99_windows_valid: valid.length,
    mesh_cpu_us: rounded(cpuPerCall(rounds, 'mesh'), 1),
    mesh_added_p50_ms: rounded(added(windows, 'mesh', 'p50Ms'), 3),
    errors: measured.errors,
    idle_rss_mb: rounded(measured.idleRssBytes / MB, 1),
    loaded_rss_mb: rounded(measured.loadedRssBytes / MB, 1),
    max_per_s: Math.round(callsPerSec(rounds, 'sidecar')),
  };
}

export interface Target {
  readonly name: string;
  readonly actual: number | null;
  readonly limit: number;
  /** null = it could not be judged. */
  readonly met: boolean | null;
}

export function targetsOf(figures: Figures): Target[] {
  return [
    target('cpu_ratio', figures.cpu_ratio, 1.35),
    target('added_p50_ms', figures.added_p50_ms, 0.5),
    target('added_p99_ms', figures.added_p99_ms, 2),
    target('mesh_added_p50_ms', figures.mesh_added_p50_ms, 1),
    target('idle_rss_mb', figures.idle_rss_mb, 70),
  ];
}

function target(name: string, actual: number | null, limit: number): Target {
  return { name, actual, limit, met: actual === null || Number.isNaN(actual) ? null : actual <= limit };
}

const COLUMNS = [9, 12, 15, 10, 10, 10];

/** For people. */
export function tableOf(measured: Measured, figures: Figures): string {
  const { rounds, windows } = measured;
  const rows = [['path', 'calls/s', 'CPU us/call', 'p50 ms', 'p90 ms', 'p99 ms']];
  for (const name of PATHS) {
    const latency = (key: keyof Latency): string => median(windows.map((window) => window[name][key])).toFixed(3);
    rows.push([
      name,
      callsPerSec(rounds, name).toFixed(0),
      cpuPerCall(rounds, name).toFixed(1),
      latency('p50Ms'),
      latency('p90Ms'),
      latency('p99Ms'),
    ]);
  }
  const lines = rows.map((row) =>
    row.map((cell, at) => (at === 0 ? cell.padEnd(COLUMNS[0] as number) : cell.padStart(COLUMNS[at] as number))).join(''),
  );
  lines.push('');
  for (const each of targetsOf(figures)) {
    const word = each.met === null ? 'not judged' : each.met ? 'met' : 'MISSED';
    lines.push(`${each.name.padEnd(20)}${String(each.actual ?? '-').padStart(8)}  <= ${String(each.limit).padEnd(6)}${word}`);
  }
  return lines.join('\n');
}

export function perCall(pass: Pass): number {
  return pass.cpuUs / pass.calls;
}

function cpuPerCall(rounds: readonly Round[], name: PathName): number {
  return median(rounds.map((round) => perCall(round[name])));
}

function callsPerSec(rounds: readonly Round[], name: PathName): number {
  return median(rounds.map((round) => (round[name].calls / round[name].elapsedMs) * 1_000));
}

function added(windows: readonly Window[], name: PathName, key: keyof Latency): number {
  return median(windows.map((window) => window[name][key] - window.direct[key]));
}

function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
