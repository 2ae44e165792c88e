/**
 * The spans of one trace as lines of a picture: where each begins and how long it is, and which can be folded away. Order, depth,
 * and where a span is drawn although clocks differ, are the API's.
 */
import type { TraceSpan } from './shapes.ts';

export interface Line {
  readonly span: TraceSpan;
  /** 0–1 of the whole. */
  readonly left: number;
  /** 0–1 of the whole. */
  readonly width: number;
  readonly startsAfterMs: number;
  /** How many lines below belong to it. */
  readonly below: number;
}

export interface Picture {
  readonly lines: readonly Line[];
  /** Of the whole width. */
  readonly wholeMs: number;
}

export function timeline(spans: readonly TraceSpan[], startMs: number, elapsedMs: number): Picture {
  const whole = spans.reduce((last, span) => Math.max(last, span.shown_start_ms + span.elapsed_ms - startMs), elapsedMs);
  const scale = whole > 0 ? whole : 1;
  const lines = spans.map((span, i) => {
    const after = span.shown_start_ms - startMs;
    const left = clamp(after / scale);
    return { span, left, width: Math.min(1 - left, clamp(span.elapsed_ms / scale)), startsAfterMs: after, below: below(spans, i) };
  });
  return { lines, wholeMs: whole };
}

/** Without what is below folded lines. */
export function unfolded(lines: readonly Line[], folded: ReadonlySet<string>): readonly Line[] {
  const shown: Line[] = [];
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i] as Line;
    shown.push(line);
    if (folded.has(line.span.span_id)) i += line.below;
  }
  return shown;
}

function below(spans: readonly TraceSpan[], at: number): number {
  const depth = (spans[at] as TraceSpan).depth;
  let end = at + 1;
  while (end < spans.length && (spans[end] as TraceSpan).depth > depth) end++;
  return end - at - 1;
}

function clamp(share: number): number {
  return share > 0 ? Math.min(1, share) : 0;
}

/** Marks of the scale: four or five round times from the beginning. */
export function ticks(wholeMs: number): readonly number[] {
  if (!(wholeMs > 0)) return [0];
  const power = 10 ** Math.floor(Math.log10(wholeMs / 4));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => wholeMs / each <= 5) ?? wholeMs;
  const marks: number[] = [];
  for (let at = 0; at <= wholeMs * 1.000_001; at += step) marks.push(Number(at.toPrecision(6)));
  return marks;
}
