/** The figures of the stream bench, from what was measured. Pure. */

import { median } from '../figures.ts';

/** What a piece of a big stream is at its source. */
export const CHUNK_BYTES = 65_536;
const MB = 1_000_000;

export const STREAM_PATHS = ['pipe', 'sidecar', 'frames', 'mesh'] as const;
export type StreamPath = (typeof STREAM_PATHS)[number];

/** One big stream over one path. */
export interface StreamPass {
  readonly bytes: number;
  readonly elapsedMs: number;
  /** Of the path's own processes. */
  readonly cpuUs: number;
  /** The most that one of its processes grew by while it lasted. */
  readonly grewBytes: number;
}

export type StreamRound = Readonly<Record<StreamPath, StreamPass>>;

export interface StreamMeasured {
  readonly rounds: readonly StreamRound[];
  /** ms to the first piece, straight from the provider and by each path. */
  readonly firstMs: Readonly<Record<StreamPath | 'direct', readonly number[]>>;
}

export interface StreamFigures {
  readonly bench: 'stream';
  readonly first_chunk_added_ms: number;
  readonly mb_per_s_ratio: number;
  readonly rss_growth_mb: number;
  readonly mb_per_s: number;
  readonly pipe_mb_per_s: number;
  readonly frames_ratio: number;
  readonly mesh_ratio: number;
  readonly mesh_first_chunk_added_ms: number;
}

export function streamFigures(measured: StreamMeasured): StreamFigures {
  const { rounds, firstMs } = measured;
  const ratio = (path: StreamPath): number => round(median(rounds.map((each) => mbPerSec(each[path]) / mbPerSec(each.pipe))), 3);
  const direct = median(firstMs.direct);
  return {
    bench: 'stream',
    first_chunk_added_ms: round(median(firstMs.sidecar) - direct, 3),
    mb_per_s_ratio: ratio('sidecar'),
    rss_growth_mb: round(
      Math.max(...rounds.flatMap((each) => [each.sidecar.grewBytes, each.frames.grewBytes, each.mesh.grewBytes])) / MB,
      1,
    ),
    mb_per_s: round(median(rounds.map((each) => mbPerSec(each.sidecar))), 0),
    pipe_mb_per_s: round(median(rounds.map((each) => mbPerSec(each.pipe))), 0),
    frames_ratio: ratio('frames'),
    mesh_ratio: ratio('mesh'),
    mesh_first_chunk_added_ms: round(median(firstMs.mesh) - direct, 3),
  };
}

export interface StreamGoal {
  readonly name: string;
  readonly actual: number;
  readonly limit: string;
  readonly isMet: boolean;
}

export function streamGoals(figures: StreamFigures): StreamGoal[] {
  const { first_chunk_added_ms: first, mb_per_s_ratio: ratio, rss_growth_mb: grown } = figures;
  return [
    { name: 'first_chunk_added_ms', actual: first, limit: '<= 1', isMet: first <= 1 },
    { name: 'mb_per_s_ratio', actual: ratio, limit: '>= 0.6', isMet: ratio >= 0.6 },
    { name: 'rss_growth_mb', actual: grown, limit: '< 32', isMet: grown < 32 },
  ];
}

/** For people. */
export function streamTable(measured: StreamMeasured, figures: StreamFigures): string {
  const { rounds, firstMs } = measured;
  const rows = [['path', 'MB/s', 'CPU us/MB', 'grew MB', 'first ms']];
  rows.push(['direct', '', '', '', median(firstMs.direct).toFixed(3)]);
  for (const path of STREAM_PATHS)
    rows.push([
      path,
      median(rounds.map((each) => mbPerSec(each[path]))).toFixed(0),
      median(rounds.map((each) => each[path].cpuUs / (each[path].bytes / MB))).toFixed(0),
      (Math.max(...rounds.map((each) => each[path].grewBytes)) / MB).toFixed(1),
      median(firstMs[path]).toFixed(3),
    ]);
  const lines = rows.map((row) => row.map((cell, at) => (at === 0 ? cell.padEnd(9) : cell.padStart(12))).join(''));
  lines.push('');
  for (const goal of streamGoals(figures))
    lines.push(`${goal.name.padEnd(22)}${String(goal.actual).padStart(8)}  ${goal.limit.padEnd(8)}${goal.isMet ? 'met' : 'MISSED'}`);
  return lines.join('\n');
}

function mbPerSec(pass: StreamPass): number {
  return pass.bytes / MB / (pass.elapsedMs / 1_000);
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
