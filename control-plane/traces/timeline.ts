/** One trace as people look at it: the tree in order, what is missing, why it went as it went, where the time went. */
import { straighten } from './clock-skew.ts';
import type { Facts } from './facts.ts';
import { missingIn } from './gaps.ts';
import type { ToldSpan } from './read-batch.ts';
import { measureSelf } from './self-time.ts';
import { type Node, type Tree, treeOf } from './tree.ts';
import { type Surroundings, whyOf } from './why.ts';

/** A span in its place. */
export type PlacedSpan = ToldSpan & {
  readonly depth: number;
  /** Where it is to be drawn: `start_ms`, put right where clocks differ. */
  readonly shown_start_ms: number;
  /** Of its time, what nothing below it accounts for. */
  readonly self_ms: number;
  /** The trace begins here, below a span of a caller outside. */
  readonly remote_parent?: true;
  /** Its parent is a span of its agent's own, which is told elsewhere: it is shown below the work that it was made for. */
  readonly inferred_parent?: string;
  /** Its parent never came. */
  readonly orphan?: true;
};

export interface Timeline {
  readonly trace_id: string;
  readonly start_ms: number;
  readonly elapsed_ms: number;
  /** One beginning, nothing missing, nothing under way. */
  readonly complete: boolean;
  readonly gaps: readonly string[];
  /** What has not happened yet. */
  readonly under_way: readonly string[];
  readonly orphans: number;
  /** What else is to be known: how something ended that has no span, clocks that differ. */
  readonly notes: readonly string[];
  readonly spans: readonly PlacedSpan[];
  readonly why: readonly string[];
}

export function timelineOf(traceId: string, spans: readonly ToldSpan[], facts: Facts, around: Surroundings): Timeline {
  const tree = treeOf(spans);
  const clocks = straighten(tree);
  measureSelf(tree);
  const start = Math.min(...nodeTimes(tree, ({ startMs }) => startMs));
  const end = Math.max(...nodeTimes(tree, ({ endMs }) => endMs));
  const elapsed = Math.max(0, end - start);
  const { gaps, underWay, notes } = missingIn(tree, facts);
  const orphans = tree.tops.filter(({ orphan }) => orphan).length;
  return {
    trace_id: traceId,
    start_ms: start,
    elapsed_ms: rounded(elapsed),
    complete: gaps.length === 0 && orphans === 0 && underWay.length === 0,
    gaps,
    under_way: underWay,
    orphans,
    notes: [...notes, ...clocks],
    spans: tree.nodes.map(placed),
    why: whyOf(tree, elapsed, around),
  };
}

function placed(node: Node): PlacedSpan {
  return {
    ...node.span,
    depth: node.depth,
    shown_start_ms: rounded(node.startMs),
    self_ms: rounded(node.selfMs),
    ...(node.remoteParent ? { remote_parent: true as const } : null),
    ...(node.inferred && node.parent !== null ? { inferred_parent: node.parent.span.span_id } : null),
    ...(node.orphan ? { orphan: true as const } : null),
  };
}

/** Without what an agent takes its time to fetch: that is nobody's waiting. */
function nodeTimes({ nodes }: Tree, of: (node: Node) => number): number[] {
  const times = nodes.filter(({ span }) => span.stage !== 'inbox').map(of);
  return times.length > 0 ? times : nodes.map(of);
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
