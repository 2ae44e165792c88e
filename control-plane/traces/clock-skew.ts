/**
 * Machines' clocks differ, and a span is told by the clock of its own. What cannot be (a call that reached its provider before it was
 * made, or that the provider ended after its caller had the answer) is moved for display, with everything below it that the same
 * sidecar told, by no more than it takes; each such move is said. Durations are never changed: they are measured by clocks that do
 * not jump.
 */
import type { Node, Tree } from './tree.ts';

/** Wall clocks are read in whole milliseconds. */
const TOLERANCE_MS = 1.5;

/** Sets `movedMs`; gives one sentence for each pair of sidecars whose clocks differ. */
export function straighten({ nodes }: Tree): readonly string[] {
  const most = new Map<string, number>();
  for (const node of nodes) {
    const { parent } = node;
    if (parent === null || node.inferred) continue;
    const isSame = parent.span.sidecar === node.span.sidecar;
    node.movedMs = isSame ? parent.movedMs : 0;
    const by = isSame ? 0 : moveOf(node, parent);
    if (by === 0) continue;
    node.movedMs += by;
    const key = `${node.span.sidecar} ${parent.span.sidecar}`;
    if (Math.abs(by) > Math.abs(most.get(key) ?? 0)) most.set(key, by);
  }
  return [...most].map(([key, by]) => {
    const [sidecar, above] = key.split(' ') as [string, string];
    return `the clock of ${sidecar} is about ${shown(Math.abs(by))} ms ${by > 0 ? 'behind' : 'ahead of'} that of ${above}: what it told is shown ${by > 0 ? 'later' : 'earlier'} by so much`;
  });
}

function moveOf(node: Node, parent: Node): number {
  const before = parent.startMs - node.startMs;
  if (before > TOLERANCE_MS) return before;
  // An answer that has come cannot end later at the provider's end. What the caller gave up on can.
  const isInside = node.span.stage === 'inbound' && parent.span.stage === 'attempt' && parent.span.code === 0;
  if (!isInside || node.span.elapsed_ms > parent.span.elapsed_ms + TOLERANCE_MS) return 0;
  const after = node.endMs - parent.endMs;
  return after > TOLERANCE_MS ? -Math.min(after, node.startMs - parent.startMs) : 0;
}

function shown(ms: number): string {
  return ms < 10 ? ms.toFixed(1) : String(Math.round(ms));
}
