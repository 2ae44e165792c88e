/**
 * The spans of one trace as lines of a picture: where each begins and how long it is, which have lost their parent, and which
 * can be folded away. The order and depth are the API's; clocks of different machines differ, so what seems to begin before
 * the trace does is put at its beginning and marked.
 */
import type { TraceSpan } from './shapes.ts';

export interface Line {
  readonly span: TraceSpan;
  readonly depth: number;
  /** 0–1 of the whole. */
  readonly left: number;
  /** 0–1 of the whole. */
  readonly width: number;
  readonly startsAfterMs: number;
  /** Its parent is named and not there. */
  readonly isOrphan: boolean;
  /** By the clocks it would have begun before the trace. */
  readonly isSkewed: boolean;
  /** How many lines below belong to it. */
  readonly below: number;
  /** What it took itself, without what its children took of it. */
  readonly ownMs: number;
}

export function timeline(spans: readonly TraceSpan[], startMs: number, elapsedMs: number): readonly Line[] {
  const ids = new Set(spans.map(({ span_id: id }) => id));
  const end = spans.reduce((last, span) => Math.max(last, span.start_ms + span.elapsed_ms - startMs), elapsedMs);
  const whole = end > 0 ? end : 1;
  const inside = childTimes(spans);
  return spans.map((span, i) => {
    const after = span.start_ms - startMs;
    const left = clamp(after / whole);
    return {
      span,
      depth: span.depth,
      left,
      width: Math.min(1 - left, clamp(span.elapsed_ms / whole)),
      startsAfterMs: after,
      isOrphan: span.parent_span_id !== '' && !ids.has(span.parent_span_id) && span.remote_parent !== true,
      isSkewed: after < -1,
      below: below(spans, i),
      ownMs: Math.max(0, span.elapsed_ms - (inside.get(span.span_id) ?? 0)),
    };
  });
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

/** Of each span, the time that its children cover; what they do side by side counts once. */
function childTimes(spans: readonly TraceSpan[]): ReadonlyMap<string, number> {
  const children = new Map<string, TraceSpan[]>();
  const byId = new Map(spans.map((span) => [span.span_id, span]));
  for (const span of spans) {
    const list = children.get(span.parent_span_id);
    if (list === undefined) children.set(span.parent_span_id, [span]);
    else list.push(span);
  }
  const times = new Map<string, number>();
  for (const [id, list] of children) {
    const parent = byId.get(id);
    if (parent !== undefined) times.set(id, covered(list, parent.start_ms, parent.start_ms + parent.elapsed_ms));
  }
  return times;
}

function covered(spans: readonly TraceSpan[], from: number, to: number): number {
  let total = 0;
  let reached = from;
  for (const span of [...spans].sort((a, b) => a.start_ms - b.start_ms)) {
    const start = Math.max(span.start_ms, reached);
    const end = Math.min(span.start_ms + span.elapsed_ms, to);
    if (end > start) {
      total += end - start;
      reached = end;
    }
  }
  return total;
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
