/**
 * The picture of who calls whom: callers on the left, whom they call to their right. A fleet of hundreds does not fit on a
 * screen one by one, so agents of a team stand as one box until there is room for them, and what is least used is left out and
 * counted. Around one node (focus) only its neighbours are shown. The same input always gives the same picture.
 */
import type { Edge } from './shapes.ts';

export interface View {
  /** Words that an edge must have in its caller, capability or provider. */
  readonly text: string;
  /** An agent, or a team (`crm.*`); '' = the whole. */
  readonly focus: string;
  readonly isGrouped: boolean;
}

export interface Traffic {
  readonly callsPerS: number;
  readonly errorShare: number;
  /** The worst of its edges: percentiles cannot be averaged. */
  readonly p95Ms: number;
}

export interface GraphNode extends Traffic {
  readonly id: string;
  readonly label: string;
  /** Agents in it; 1 for one agent. */
  readonly agents: number;
  readonly isTeam: boolean;
  readonly isInCycle: boolean;
  readonly x: number;
  readonly y: number;
}

export interface GraphLink extends Traffic {
  readonly from: string;
  readonly to: string;
  /** SVG path. */
  readonly path: string;
  /** 1–6. */
  readonly thickness: number;
  readonly isCycle: boolean;
  readonly capabilities: readonly string[];
}

export interface Graph {
  readonly nodes: readonly GraphNode[];
  readonly links: readonly GraphLink[];
  readonly width: number;
  readonly height: number;
  /** Nodes for which there was no room. */
  readonly hidden: number;
  readonly hiddenLinks: number;
}

export const NODE_WIDTH = 168;
export const NODE_HEIGHT = 40;
const COLUMN_GAP = 96;
const ROW_GAP = 14;
const PAD = 16;
/** More boxes than this nobody reads. */
export const MAX_NODES = 60;
/** More lines than this hide one another: the thinnest are left out, unless they fail or go round. */
export const MAX_LINKS = 90;
/** A chain that is longer, or a crowd where everybody calls everybody, is folded into fewer columns. */
const MAX_COLUMNS = 6;
const BAD_SHARE = 0.05;
/** Callers that are nobody, and calls that nobody served. */
export const NOBODY = '(nobody)';

export function teamOf(agent: string): string {
  const dot = agent.indexOf('.');
  return dot < 0 ? agent : agent.slice(0, dot);
}

/** Edges that a view is of: its words, and when it has a focus those that touch it. */
export function edgesOf(edges: readonly Edge[], { text, focus }: Pick<View, 'text' | 'focus'>): readonly Edge[] {
  const words = text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '');
  return edges.filter((edge) => {
    if (focus !== '' && !covers(focus, edge.caller || NOBODY) && !covers(focus, edge.provider || NOBODY)) return false;
    if (words.length === 0) return true;
    const has = `${edge.caller} ${edge.capability} ${edge.version} ${edge.provider}`.toLowerCase();
    return words.every((word) => has.includes(word));
  });
}

function covers(focus: string, agent: string): boolean {
  return focus.endsWith('.*') ? teamOf(agent) === focus.slice(0, -2) : agent === focus;
}

interface Sum {
  calls: number;
  errors: number;
  p95: number;
}

interface LinkSum extends Sum {
  from: string;
  to: string;
  capabilities: Set<string>;
}

/** Whether so many agents are better shown as teams. */
export function wantsGroups(edges: readonly Edge[]): boolean {
  const agents = new Set<string>();
  for (const { caller, provider } of edges) agents.add(caller).add(provider);
  return agents.size > MAX_NODES;
}

export function layout(all: readonly Edge[], cycles: readonly (readonly string[])[], view: View): Graph {
  const edges = edgesOf(all, view);
  const circling = new Set(cycles.flat());
  const idOf = (agent: string): string => {
    if (agent === '') return NOBODY;
    // Around a focus, its own agents stand one by one.
    if (!view.isGrouped || (view.focus !== '' && covers(view.focus, agent))) return agent;
    return `${teamOf(agent)}.*`;
  };
  const links = new Map<string, LinkSum>();
  const members = new Map<string, Set<string>>();
  for (const edge of edges) {
    const from = idOf(edge.caller);
    const to = idOf(edge.provider);
    member(members, from, edge.caller);
    member(members, to, edge.provider);
    const key = `${from} ${to}`;
    const sum = links.get(key) ?? { from, to, calls: 0, errors: 0, p95: 0, capabilities: new Set<string>() };
    links.set(key, sum);
    add(sum, edge);
    sum.capabilities.add(edge.capability);
  }
  const weight = new Map<string, number>();
  for (const { from, to, calls } of links.values()) {
    weight.set(from, (weight.get(from) ?? 0) + calls);
    if (to !== from) weight.set(to, (weight.get(to) ?? 0) + calls);
  }
  const isAlways = (id: string): boolean => id === view.focus || [...(members.get(id) ?? [])].some((agent) => circling.has(agent));
  const ids = [...weight.keys()].sort(
    (a, b) => Number(isAlways(b)) - Number(isAlways(a)) || (weight.get(b) ?? 0) - (weight.get(a) ?? 0) || (a < b ? -1 : 1),
  );
  const shown = new Set(ids.slice(0, MAX_NODES));
  const kept = [...links.values()].filter(({ from, to }) => shown.has(from) && shown.has(to));
  const columns = columnsOf(shown, kept);
  const { places, width, height } = place(columns, kept);
  const top = kept.reduce((most, { calls }) => Math.max(most, calls), 0);
  const onCycle = cycleLinks(cycles, idOf);
  const drawn = strongest(
    kept,
    (link) => onCycle.has(`${link.from} ${link.to}`) || (link.calls > 0 && link.errors / link.calls >= BAD_SHARE),
  );
  const served = new Map<string, Sum>();
  for (const link of kept) {
    const sum = served.get(link.to) ?? { calls: 0, errors: 0, p95: 0 };
    served.set(link.to, sum);
    sum.calls += link.calls;
    sum.errors += link.errors;
    sum.p95 = Math.max(sum.p95, link.p95);
  }
  return {
    nodes: [...places].map(([id, { x, y }]) => {
      const agents = members.get(id) ?? new Set<string>();
      return {
        id,
        label: id,
        agents: agents.size,
        isTeam: id.endsWith('.*'),
        isInCycle: [...agents].some((agent) => circling.has(agent)),
        x,
        y,
        ...trafficOf(served.get(id) ?? { calls: 0, errors: 0, p95: 0 }),
      };
    }),
    links: drawn.map((link) => ({
      from: link.from,
      to: link.to,
      path: curve(places.get(link.from) as Place, places.get(link.to) as Place),
      thickness: top > 0 ? 1 + 5 * Math.sqrt(link.calls / top) : 1,
      isCycle: onCycle.has(`${link.from} ${link.to}`),
      capabilities: [...link.capabilities].sort(),
      ...trafficOf(link),
    })),
    width,
    height,
    hidden: ids.length - shown.size,
    hiddenLinks: kept.length - drawn.length,
  };
}

function strongest(links: readonly LinkSum[], isAlways: (link: LinkSum) => boolean): readonly LinkSum[] {
  if (links.length <= MAX_LINKS) return links;
  return [...links].sort((a, b) => Number(isAlways(b)) - Number(isAlways(a)) || b.calls - a.calls).slice(0, MAX_LINKS);
}

function member(members: Map<string, Set<string>>, id: string, agent: string): void {
  const set = members.get(id);
  if (set === undefined) members.set(id, new Set([agent]));
  else set.add(agent);
}

function add(sum: Sum, edge: Edge): void {
  sum.calls += edge.calls_per_s;
  sum.errors += edge.calls_per_s * edge.error_share;
  sum.p95 = Math.max(sum.p95, edge.p95_ms ?? 0);
}

function trafficOf({ calls, errors, p95 }: Sum): Traffic {
  return { callsPerS: calls, errorShare: calls > 0 ? errors / calls : 0, p95Ms: p95 };
}

function cycleLinks(cycles: readonly (readonly string[])[], idOf: (agent: string) => string): ReadonlySet<string> {
  const keys = new Set<string>();
  for (const cycle of cycles)
    for (const [i, agent] of cycle.entries()) keys.add(`${idOf(agent)} ${idOf(cycle[(i + 1) % cycle.length] as string)}`);
  return keys;
}

/** Each node one column right of those that call it; what would go round is not counted. */
function columnsOf(ids: ReadonlySet<string>, links: readonly LinkSum[]): readonly (readonly string[])[] {
  const next = new Map<string, string[]>();
  for (const { from, to } of links) if (from !== to) next.set(from, [...(next.get(from) ?? []), to]);
  const called = new Set(links.filter(({ from, to }) => from !== to).map(({ to }) => to));
  const roots = [...ids].sort((a, b) => Number(called.has(a)) - Number(called.has(b)) || (a < b ? -1 : 1));
  // Depth first, children before parents: the order in reverse is topological once links that go back are left out.
  const order: string[] = [];
  const state = new Map<string, 1 | 2>();
  const back = new Set<string>();
  for (const root of roots) walk(root, next, state, back, order);
  order.reverse();
  const depth = new Map<string, number>();
  for (const id of order) {
    const own = depth.get(id) ?? 0;
    depth.set(id, own);
    for (const to of next.get(id) ?? []) if (!back.has(`${id} ${to}`)) depth.set(to, Math.max(depth.get(to) ?? 0, own + 1));
  }
  const deepest = Math.max(0, ...depth.values());
  if (deepest >= MAX_COLUMNS) return byFlow(ids, links);
  const columns: string[][] = Array.from({ length: deepest + 1 }, () => []);
  for (const id of [...ids].sort()) columns[depth.get(id) ?? 0]?.push(id);
  return columns;
}

/** Who mostly calls on the left, who is mostly called on the right, in columns of one height. */
function byFlow(ids: ReadonlySet<string>, links: readonly LinkSum[]): readonly (readonly string[])[] {
  const flow = new Map<string, { in: number; out: number }>([...ids].map((id) => [id, { in: 0, out: 0 }]));
  for (const { from, to, calls } of links) {
    if (from === to) continue;
    (flow.get(from) as { out: number }).out += calls;
    (flow.get(to) as { in: number }).in += calls;
  }
  const score = (id: string): number => {
    const of = flow.get(id) as { in: number; out: number };
    return of.in + of.out > 0 ? (of.in - of.out) / (of.in + of.out) : 0;
  };
  const order = [...ids].sort((a, b) => score(a) - score(b) || (a < b ? -1 : 1));
  const count = Math.min(MAX_COLUMNS, Math.max(2, Math.ceil(Math.sqrt(order.length / 2))));
  const size = Math.ceil(order.length / count);
  return Array.from({ length: Math.ceil(order.length / size) }, (_, i) => order.slice(i * size, (i + 1) * size));
}

function walk(
  root: string,
  next: ReadonlyMap<string, readonly string[]>,
  state: Map<string, 1 | 2>,
  back: Set<string>,
  order: string[],
): void {
  if (state.has(root)) return;
  const path: { id: string; at: number }[] = [{ id: root, at: 0 }];
  state.set(root, 1);
  while (path.length > 0) {
    const here = path[path.length - 1] as { id: string; at: number };
    const to = next.get(here.id)?.[here.at++];
    if (to === undefined) {
      state.set(here.id, 2);
      order.push(here.id);
      path.pop();
    } else if (state.get(to) === 1) back.add(`${here.id} ${to}`);
    else if (!state.has(to)) {
      state.set(to, 1);
      path.push({ id: to, at: 0 });
    }
  }
}

interface Place {
  readonly x: number;
  readonly y: number;
}

/** Within a column, near those it is joined to in the column before. */
function place(
  columns: readonly (readonly string[])[],
  links: readonly LinkSum[],
): { readonly places: ReadonlyMap<string, Place>; readonly width: number; readonly height: number } {
  const rows = columns.map((column) => [...column]);
  const at = new Map<string, number>();
  const note = (): void => {
    for (const column of rows) for (const [i, id] of column.entries()) at.set(id, i - column.length / 2);
  };
  note();
  const near = new Map<string, string[]>();
  for (const { from, to } of links) {
    near.set(from, [...(near.get(from) ?? []), to]);
    near.set(to, [...(near.get(to) ?? []), from]);
  }
  for (let pass = 0; pass < 4; pass++) {
    for (const column of pass % 2 === 0 ? rows : [...rows].reverse()) {
      const middle = new Map(column.map((id) => [id, mean(near.get(id) ?? [id], at)]));
      column.sort((a, b) => (middle.get(a) ?? 0) - (middle.get(b) ?? 0) || (a < b ? -1 : 1));
      for (const [i, id] of column.entries()) at.set(id, i - column.length / 2);
    }
  }
  const tallest = rows.reduce((most, column) => Math.max(most, column.length), 1);
  const height = 2 * PAD + tallest * NODE_HEIGHT + (tallest - 1) * ROW_GAP;
  const places = new Map<string, Place>();
  for (const [c, column] of rows.entries()) {
    const free = height - 2 * PAD - column.length * NODE_HEIGHT - Math.max(0, column.length - 1) * ROW_GAP;
    for (const [r, id] of column.entries())
      places.set(id, { x: PAD + c * (NODE_WIDTH + COLUMN_GAP), y: PAD + free / 2 + r * (NODE_HEIGHT + ROW_GAP) });
  }
  // Beside the last column there is room for the bows within it.
  return { places, width: 2 * PAD + rows.length * (NODE_WIDTH + COLUMN_GAP) - COLUMN_GAP / 4, height };
}

function mean(ids: readonly string[], at: ReadonlyMap<string, number>): number {
  let sum = 0;
  for (const id of ids) sum += at.get(id) ?? 0;
  return sum / ids.length;
}

/** To the right a soft line; within a column a bow beside it; back, from the left side, a little lower than the way there. */
function curve(from: Place, to: Place): string {
  const right = from.x + NODE_WIDTH;
  const startY = from.y + NODE_HEIGHT / 2;
  const endY = to.y + NODE_HEIGHT / 2;
  if (to.x > from.x) {
    const middle = (right + to.x) / 2;
    return `M${right} ${startY}C${middle} ${startY} ${middle} ${endY} ${to.x} ${endY}`;
  }
  if (to.x === from.x) {
    const [y1, y2] = from.y === to.y ? [startY - 8, endY + 8] : [startY + 6, endY - 6];
    const bow = right + Math.min(COLUMN_GAP - 16, 26 + Math.abs(y2 - y1) / 6);
    return `M${right} ${y1}C${bow} ${y1} ${bow} ${y2} ${right} ${y2}`;
  }
  const left = to.x + NODE_WIDTH;
  const middle = (from.x + left) / 2;
  return `M${from.x} ${startY + 8}C${middle} ${startY + 8} ${middle} ${endY + 8} ${left} ${endY + 8}`;
}
