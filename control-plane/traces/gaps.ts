/**
 * What of a trace is not there and should be, in words, with the reason where it is known. What merely has not happened yet (a message
 * that waits, work that goes on) is no gap: it is under way, until it has been silent for too long. A result that its agent has not
 * taken is neither.
 */
import { type Facts, type Missing, OUTSIDE_MS, SETTLE_MS } from './facts.ts';
import { missingOfMessage } from './message-gaps.ts';
import type { Node, Tree } from './tree.ts';

const MAX_GAPS = 40;

export function missingIn(tree: Tree, facts: Facts): Missing {
  const missing: Missing = { gaps: [], underWay: [], notes: [] };
  const { gaps, underWay } = missing;
  const roots = tree.tops.filter((top) => !top.orphan);
  if (tree.tops.length > 0 && roots.length === 0)
    gaps.push('where the trace begins is missing: every span that came has a parent that did not');
  const callers = new Set(roots.filter(({ remoteParent }) => remoteParent).map(({ span }) => span.caller ?? ''));
  for (const caller of callers)
    if (facts.silentMs < OUTSIDE_MS && facts.serves(caller))
      underWay.push(`${caller} is still at the work for which it made these calls, as far as has been told`);
  const outside = new Set(roots.map(({ span }) => span.parent_span_id));
  if (roots.length > 1 && (outside.size > 1 || outside.has('')))
    gaps.push(`the trace begins ${roots.length} times: ${roots.slice(0, 4).map(nameOf).join('; ')}: what ties them together did not come`);
  for (const top of tree.tops) if (top.orphan) gaps.push(`the parent of ${nameOf(top)} never came (span ${top.span.parent_span_id})`);
  for (const node of tree.nodes) {
    const words = withoutInbound(node);
    if (words !== null) (facts.silentMs < SETTLE_MS ? underWay : gaps).push(words);
    if (node.span.stage === 'send') missingOfMessage(node, facts, missing);
  }
  if (gaps.length > 0 || underWay.length > 0)
    for (const [sidecar, count] of facts.dropped)
      gaps.push(`the sidecar ${sidecar} said of that time that it had no room for ${count} ${count === 1 ? 'span' : 'spans'}`);
  missing.notes.push(...facts.conflicts);
  if (facts.cut > 0) gaps.push(`${facts.cut} further spans were told: a trace is kept up to ${tree.nodes.length}`);
  if (facts.isRemainder) gaps.push('an earlier part of it has been thrown out of the store, by age or to make room');
  if (gaps.length > MAX_GAPS) gaps.splice(MAX_GAPS, gaps.length, `and ${gaps.length - MAX_GAPS} more`);
  return missing;
}

/** An attempt through another sidecar that got there and of which that one has told nothing. */
function withoutInbound({ span, children }: Node): string | null {
  if (span.stage !== 'attempt' || span.way !== 'mesh' || span.started === 'not_started') return null;
  if (children.some((child) => child.span.stage === 'inbound')) return null;
  return `the sidecar that ${span.provider ?? 'the provider'} is at has told nothing of the attempt at ${span.capability} (span ${span.span_id})`;
}

export function nameOf({ span }: Node): string {
  const { stage, capability, provider, caller, sidecar } = span;
  switch (stage) {
    case 'outbound':
      return `the call of ${caller ?? 'somebody'} to ${capability} (told by ${sidecar})`;
    case 'attempt':
      return `the attempt at ${provider ?? 'a provider'} for ${capability} (told by ${sidecar})`;
    case 'inbound':
      return `the call that came to ${provider ?? 'an agent'} for ${capability} (told by ${sidecar})`;
    default:
      return `${stage} of the message to ${capability} (told by ${sidecar})`;
  }
}
