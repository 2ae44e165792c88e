/** What is going on in the fleet, for a page or a program that looks each second: what is wrong, who calls whom. Every replica answers. */
import { parseDuration } from '../../base/duration.ts';
import type { Clock } from '../../base/clock.ts';
import { MAX_ROWS, type Overview, USUAL_ROWS } from '../overview/overview.ts';
import type { Example } from '../traffic/figures.ts';
import { TopologyOnce } from '../traffic/fresh-topology.ts';
import { type EdgeFigures, KEPT_MINUTES, type Window } from '../traffic/traffic.ts';
import type { Plane } from './plane.ts';
import { invalid } from './problem.ts';
import type { Asked, Reply, Route } from './route.ts';

const MAX_EDGES = 2_000;
const USUAL_EDGES = 500;
const MINUTE_MS = 60_000;

export interface EdgeView {
  /** Agent id; `other` = all for which there was no room. */
  readonly caller: string;
  readonly capability: string;
  /** '' = nobody served it. */
  readonly version: string;
  /** Agent id; '' = nobody was asked. */
  readonly provider: string;
  readonly calls: number;
  readonly calls_per_s: number;
  readonly error_share: number;
  readonly retries: number;
  readonly degraded: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  /** Two of the newest failures, and the slowest call. */
  readonly examples: readonly Example[];
}

export interface TopologyAnswer {
  readonly window_ms: number;
  readonly edges: readonly EdgeView[];
  /** Agents that call one another in a circle, as observed. */
  readonly cycles: readonly (readonly string[])[];
  /** There are more edges than are told. */
  readonly cut: boolean;
}

export function overviewRoutes(plane: Plane, overview: Overview): readonly Route[] {
  const read = { method: 'GET', role: 'viewer', onLeader: false } as const;
  const once = new TopologyOnce(plane.traffic, plane.clock);
  return [
    {
      ...read,
      path: '/v1/overview',
      summary: 'What is wrong, worst first and in sentences; the sums; and every capability in one line, the worst first.',
      query: [{ name: 'limit', doc: `Capabilities at most; 1 to ${MAX_ROWS}, usually ${USUAL_ROWS}.` }],
      answer: {
        status: 200,
        doc: 'As old as a second. Rates, shares and durations are of the last 3 minutes; what this replica cannot know is null, and said in `unknown`.',
      },
      handle: async ({ query }) => {
        const limit = wholeIn(query['limit'], USUAL_ROWS, MAX_ROWS);
        if (limit === null) return invalid(`limit must be a whole number from 1 to ${MAX_ROWS}`);
        return { status: 200, text: await overview.text(limit), contentType: 'application/json; charset=utf-8' };
      },
    },
    {
      ...read,
      path: '/v1/topology',
      summary: 'Who calls what and who serves it, as observed, busiest first.',
      query: [
        { name: 'window', doc: `How far back, in whole minutes: 1m to ${KEPT_MINUTES}m, usually 5m.`, example: '15m' },
        { name: 'capability', doc: 'Only calls of this one.' },
        { name: 'agent', doc: 'Only calls by it or to it.' },
        { name: 'limit', doc: `Edges at most; 1 to ${MAX_EDGES}, usually ${USUAL_EDGES}.` },
      ],
      answer: { status: 200, doc: 'Edges, and the circles among them, as old as a second. Nothing is sampled.' },
      handle: (asked) => topology(once, asked),
    },
  ];
}

function topology(once: TopologyOnce, { query }: Asked): Reply {
  const window = windowIn(query['window']);
  if (window === null) return invalid(`window must be a duration from 1m to ${KEPT_MINUTES}m`);
  const limit = wholeIn(query['limit'], USUAL_EDGES, MAX_EDGES);
  if (limit === null) return invalid(`limit must be a whole number from 1 to ${MAX_EDGES}`);
  const { capability, agent } = query;
  const { found, seconds, text } = once.of(window);
  const make = (): string => {
    const edges =
      capability === undefined && agent === undefined
        ? found.edges
        : found.edges.filter(
            (edge) =>
              (capability === undefined || edge.capability === capability) &&
              (agent === undefined || edge.caller === agent || edge.provider === agent),
          );
    const answer: TopologyAnswer = {
      window_ms: window.minutes * MINUTE_MS,
      edges: edges.slice(0, limit).map((edge) => edgeView(edge, seconds)),
      cycles: agent === undefined ? found.cycles : found.cycles.filter((cycle) => cycle.includes(agent)),
      cut: found.isCut || edges.length > limit,
    };
    return JSON.stringify(answer);
  };
  return { status: 200, text: text(JSON.stringify([capability, agent, limit]), make), contentType: 'application/json; charset=utf-8' };
}

export function edgeView({ caller, capability, version, provider, figures }: EdgeFigures, seconds: number): EdgeView {
  const { calls, retries, degraded, times, errorShare, examples } = figures;
  return {
    caller,
    capability,
    version,
    provider,
    calls,
    calls_per_s: calls / seconds,
    error_share: errorShare,
    retries,
    degraded,
    p50_ms: times.quantile(0.5),
    p95_ms: times.quantile(0.95),
    examples,
  };
}

/** Null = it is none. */
export function windowIn(text: string | undefined): Window | null {
  if (text === undefined) return { minutes: 5 };
  const ms = parseDuration(text, KEPT_MINUTES * MINUTE_MS);
  if (typeof ms === 'string' || ms < MINUTE_MS) return null;
  return { minutes: Math.ceil(ms / MINUTE_MS) };
}

/** Null = it is no whole number from 1 to `most`. */
function wholeIn(text: string | undefined, usual: number, most: number): number | null {
  const value = text === undefined ? usual : Number(text);
  return Number.isInteger(value) && value >= 1 && value <= most ? value : null;
}

/** Wall clock of a monotonic time. */
export function wallOf(clock: Clock, atMs: number): number {
  return Math.round(clock.wallMs() - (clock.now() - atMs));
}
