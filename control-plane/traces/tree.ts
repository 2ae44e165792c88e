/**
 * Spans as the tree they are: children below their parents, in the order of time, depth first. A span whose parent never came is an
 * orphan and stands at the end; where the trace begins is a root. An agent that is instrumented itself puts spans of its own between
 * what it was asked and what it asks: those go to its collector and never come here. So a call whose parent is unknown hangs below the
 * work that its caller was doing at that time (`inferred`), and where there is none, its caller stands outside (`remote_parent`).
 */
import type { ToldSpan } from './read-batch.ts';

export class Node {
  readonly span: ToldSpan;
  readonly children: Node[] = [];
  parent: Node | null = null;
  depth = 0;
  /** The trace begins here, and the caller says of a parent that is none of ours. */
  remoteParent = false;
  /** Its parent is unknown, and this is where it belongs by time and agent. */
  inferred = false;
  /** Its parent should be here and never came. */
  orphan = false;
  /** For display: what its sidecar's clock is put right by. */
  movedMs = 0;
  /** Of its time, what none of its children account for. */
  selfMs = 0;

  constructor(span: ToldSpan) {
    this.span = span;
  }

  get startMs(): number {
    return this.span.start_ms + this.movedMs;
  }

  get endMs(): number {
    return this.startMs + this.span.elapsed_ms;
  }
}

export interface Tree {
  /** Roots first, then orphans; each as its own small tree. */
  readonly tops: readonly Node[];
  /** All, depth first. */
  readonly nodes: readonly Node[];
}

/** Deeper than any chain that the sidecars let through; below it a circle of parents is cut. */
const MAX_DEPTH = 500;
/** Clocks of two machines may differ by so much and a call still belong to the work that it was made for. */
const SKEW_MS = 2_000;

export function treeOf(spans: readonly ToldSpan[]): Tree {
  const nodes = spans.map((span) => new Node(span)).sort((a, b) => a.span.start_ms - b.span.start_ms || order(a, b));
  const byId = new Map(nodes.map((node) => [node.span.span_id, node]));
  const tops: Node[] = [];
  const homeless: Node[] = [];
  for (const node of nodes) {
    const parent = byId.get(node.span.parent_span_id);
    if (parent !== undefined && !isBelow(parent, node)) adopt(parent, node);
    else if (node.span.parent_span_id === '') tops.push(node);
    else homeless.push(node);
  }
  for (const node of homeless) {
    if (!isBegun(node)) {
      node.orphan = true;
      tops.push(node);
      continue;
    }
    const work = workOf(nodes, node);
    if (work !== null && !isBelow(work, node)) {
      node.inferred = true;
      adopt(work, node);
    } else {
      node.remoteParent = true;
      tops.push(node);
    }
  }
  tops.sort((a, b) => Number(a.orphan) - Number(b.orphan) || a.span.start_ms - b.span.start_ms);
  const all: Node[] = [];
  for (const top of tops) walk(top, 0, all);
  return { tops, nodes: all };
}

/** A parent before its children where both began at once. */
function order(a: Node, b: Node): number {
  if (a.span.parent_span_id === b.span.span_id) return 1;
  if (b.span.parent_span_id === a.span.span_id) return -1;
  return b.span.elapsed_ms - a.span.elapsed_ms || (a.span.span_id < b.span.span_id ? -1 : 1);
}

/** What an agent begins, with any traceparent that it likes. */
function isBegun({ span }: Node): boolean {
  return span.stage === 'outbound' || span.stage === 'send';
}

/** The innermost work that the caller of `node` was doing when it made it: the attempt at it, or the inbound before. */
function workOf(nodes: readonly Node[], node: Node): Node | null {
  const { caller, start_ms: at } = node.span;
  if (caller === undefined) return null;
  let found: Node | null = null;
  for (const one of nodes) {
    const { span } = one;
    if (one === node || span.provider !== caller || (span.stage !== 'attempt' && span.stage !== 'inbound')) continue;
    if (span.start_ms > at + SKEW_MS || span.start_ms + span.elapsed_ms < at - SKEW_MS) continue;
    if (found === null || isDeeper(one, found)) found = one;
  }
  return found;
}

function isDeeper(one: Node, other: Node): boolean {
  if (isBelow(one, other)) return true;
  return !isBelow(other, one) && one.span.start_ms >= other.span.start_ms;
}

/** `node` stands somewhere below `above`, or is it. */
function isBelow(node: Node, above: Node): boolean {
  let at: Node | null = node;
  for (let step = 0; at !== null && step < MAX_DEPTH; step++) {
    if (at === above) return true;
    at = at.parent;
  }
  return at !== null;
}

function adopt(parent: Node, node: Node): void {
  node.parent = parent;
  parent.children.push(node);
}

/** Without recursion: a chain may be long. */
function walk(top: Node, depth: number, into: Node[]): void {
  const open: Node[] = [top];
  top.depth = depth;
  for (let node = open.pop(); node !== undefined; node = open.pop()) {
    into.push(node);
    node.children.sort((a, b) => a.span.start_ms - b.span.start_ms || order(a, b));
    for (let i = node.children.length - 1; i >= 0; i--) {
      const child = node.children[i] as Node;
      child.depth = node.depth + 1;
      open.push(child);
    }
  }
}
