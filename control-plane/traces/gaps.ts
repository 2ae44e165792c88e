/**
 * What of a trace is not there and should be, in words, with the reason where it is known. What merely has not happened yet (a message
 * that waits, work that goes on) is no gap: it is under way, until it has been silent for too long. A result that its agent has not
 * taken is neither.
 */
import type { Node, Tree } from './tree.ts';

export interface Missing {
  readonly gaps: readonly string[];
  readonly underWay: readonly string[];
}

export interface Facts {
  /** Spans that were told beyond what one trace may have. */
  readonly cut: number;
  /** A part of it had been thrown out before. */
  readonly isRemainder: boolean;
  /** Sidecars that said of that time that they had no room, and for how many spans. */
  readonly dropped: ReadonlyMap<string, number>;
  /** How long nothing has come of it. */
  readonly silentMs: number;
}

/** Sidecars tell each second; a redelivery and a slow machine are covered. */
const SETTLE_MS = 5_000;
const MAX_GAPS = 40;

export function missingIn(tree: Tree, facts: Facts): Missing {
  const gaps: string[] = [];
  const underWay: string[] = [];
  const roots = tree.tops.filter((top) => !top.orphan);
  if (tree.tops.length > 0 && roots.length === 0) gaps.push('where the trace begins is missing: every span that came has a parent that did not');
  const outside = new Set(roots.map(({ span }) => span.parent_span_id));
  if (roots.length > 1 && (outside.size > 1 || outside.has('')))
    gaps.push(`the trace begins ${roots.length} times: ${roots.slice(0, 4).map(nameOf).join('; ')}: what ties them together did not come`);
  for (const top of tree.tops) if (top.orphan) gaps.push(`the parent of ${nameOf(top)} never came (span ${top.span.parent_span_id})`);
  for (const node of tree.nodes) {
    const words = withoutInbound(node);
    if (words !== null) (facts.silentMs < SETTLE_MS ? underWay : gaps).push(words);
    if (node.span.stage === 'send') message(node, facts, gaps, underWay);
  }
  if (gaps.length > 0 || underWay.length > 0)
    for (const [sidecar, count] of facts.dropped)
      gaps.push(`the sidecar ${sidecar} said of that time that it had no room for ${count} ${count === 1 ? 'span' : 'spans'}`);
  if (facts.cut > 0) gaps.push(`${facts.cut} further spans were told: a trace is kept up to ${tree.nodes.length}`);
  if (facts.isRemainder) gaps.push('an earlier part of it has been thrown out of the store, by age or to make room');
  if (gaps.length > MAX_GAPS) gaps.splice(MAX_GAPS, gaps.length, `and ${gaps.length - MAX_GAPS} more`);
  return { gaps, underWay };
}

/** An attempt through another sidecar that got there and of which that one has told nothing. */
function withoutInbound({ span, children }: Node): string | null {
  if (span.stage !== 'attempt' || span.way !== 'mesh' || span.started === 'not_started') return null;
  if (children.some((child) => child.span.stage === 'inbound')) return null;
  return `the sidecar that ${span.provider ?? 'the provider'} is at has told nothing of the attempt at ${span.capability} (span ${span.span_id})`;
}

/** From the stream's word that it has it: somebody is to work on it, and its sender to be told how it ended. */
function message(send: Node, { silentMs }: Facts, gaps: string[], underWay: string[]): void {
  if (send.span.code !== 0) return;
  const below = (stage: string): Node[] => send.children.filter((child) => child.span.stage === stage);
  const task = `${send.span.capability}${send.span.task_id === undefined ? '' : ` (task ${send.span.task_id})`}`;
  const delivers = below('deliver');
  const results = below('result');
  const isOld = silentMs >= SETTLE_MS;
  if (delivers.length === 0) {
    if (results.some(({ span }) => span.code === 0)) gaps.push(`nobody told of the delivery of the message ${task}, and it has a result`);
    else if (results.length === 0) underWay.push(`the message ${task} ${below('queue').length > 0 ? 'is with a worker' : 'waits in the queue'}`);
    return;
  }
  if (below('queue').length === 0) gaps.push(`how long the message ${task} waited in the queue was not told`);
  for (const deliver of delivers)
    if (deliver.span.started !== 'not_started' && deliver.span.code === 0 && !deliver.children.some(({ span }) => span.stage === 'inbound'))
      gaps.push(`the sidecar that worked on the message ${task} told nothing of the call to its agent (try ${deliver.span.tries ?? 1})`);
  const last = delivers.reduce((a, b) => (b.span.start_ms >= a.span.start_ms ? b : a));
  if (results.length > 0) return;
  if (last.span.code !== 0) underWay.push(`the message ${task} failed at its try ${last.span.tries ?? delivers.length}, and no end of it has been told yet`);
  else if (isOld) gaps.push(`the message ${task} was worked on, and nobody told that its result came to the sender's inbox`);
  else underWay.push(`the result of the message ${task} is on its way`);
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
