/** Where the time went: of each span, what none of its children account for. Children that run side by side count once. */
import type { Node, Tree } from './tree.ts';

export function measureSelf({ nodes }: Tree): void {
  for (const node of nodes) node.selfMs = Math.max(0, node.span.elapsed_ms - covered(node));
}

/** Milliseconds of the node's own span during which some child was under way. */
function covered(node: Node): number {
  const { startMs, endMs } = node;
  const spans = node.children
    .map((child) => [Math.max(startMs, child.startMs), Math.min(endMs, child.endMs)] as const)
    .filter(([from, to]) => to > from)
    .sort(([a], [b]) => a - b);
  let sum = 0;
  let until = startMs;
  for (const [from, to] of spans) {
    if (to <= until) continue;
    sum += to - Math.max(from, until);
    until = to;
  }
  return sum;
}
