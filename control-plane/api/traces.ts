/**
 * Traces: found by what was called, by whom, and how it ended; one as a timeline; and hops as they end. Every replica answers, out of
 * what it holds itself. No payload, header or query stands in any of it.
 */
import { printable } from '../../base/log.ts';
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import { SPAN_STAGES } from '../../proto/wire/spans.ts';
import type { KeptTrace } from '../traces/kept-trace.ts';
import { isTraceId, type ToldSpan } from '../traces/read-batch.ts';
import { Tail } from '../traces/tail.ts';
import type { Plane } from './plane.ts';
import { absent, invalid, Refused, unavailable } from './problem.ts';
import { type Asked, type Described, json, type Reply, type Route } from './route.ts';
import { timeIn } from './times.ts';
import type { TailLine, TraceLineView, TracesAnswer } from './trace-shapes.ts';

const MAX_LIMIT = 500;
const MAX_LINES_PER_SEC = 1_000;
/** What a tail shows unless stages are named: each call and message once, and each try of its delivery. */
const USUAL_STAGES: readonly string[] = ['outbound', 'send', 'deliver'];

const FILTERS: readonly Described[] = [
  { name: 'capability', doc: 'Canonical name, or a pattern such as crm.*.', example: 'crm.order.query' },
  { name: 'agent', doc: 'Who called or served: an id, or a pattern such as crm.order.*.' },
  { name: 'provider', doc: 'Who served, in the same forms.' },
  { name: 'code', doc: 'A code of docs/errors.md that some hop or attempt ended with.', example: '1003' },
  { name: 'failed', doc: '`1`: only those in which a hop failed; with `capability`, a hop of it.' },
  { name: 'min_ms', doc: 'Those that took so long, or longer.', example: '1000' },
];

export function traceRoutes(plane: Plane): readonly Route[] {
  const read = { method: 'GET', role: 'viewer', onLeader: false } as const;
  return [
    {
      ...read,
      path: '/v1/traces',
      summary: 'Traces that this replica holds, newest first.',
      query: [
        ...FILTERS,
        { name: 'since', doc: 'Begun no earlier: a duration back from now, or a time in RFC 3339.', example: '15m' },
        { name: 'limit', doc: `At most this many; 1 to ${MAX_LIMIT}, usually 50.` },
      ],
      answer: { status: 200, doc: 'Each with where it began; `more` counts those that fit beyond `limit`.' },
      handle: (asked) => list(plane, asked),
    },
    {
      ...read,
      path: '/v1/traces/:id',
      summary: 'One trace: its spans as a tree, what is missing, and why its calls went where they went.',
      params: [{ name: 'id', doc: '32 hex digits, as every Result has it.' }],
      answer: {
        status: 200,
        doc: 'Spans depth first. What this replica does not have whole it asks the other replicas and the sidecars for, which takes up to two seconds.',
      },
      handle: async ({ params }) => {
        const id = (params['id'] ?? '').toLowerCase();
        if (!isTraceId(id)) return invalid(`${JSON.stringify(printable(id, 64))} is no trace id: 32 hex digits, as every Result has it`);
        const timeline = await plane.traces.timeline(id);
        if (timeline !== null) return json(timeline);
        return absent(
          `no trace ${id} is known: it is older than what is held (traces.keep), was not among those that sidecars tell (traces.ratio), or nobody has made a call with it`,
        );
      },
    },
    {
      ...read,
      path: '/v1/tail',
      summary: 'Hops as they end, as server-sent events named `hop`; those that were too many are counted in `left_out`.',
      query: [
        ...FILTERS,
        {
          name: 'stage',
          doc: `Which stages, with commas, or \`all\`; usually ${USUAL_STAGES.join(',')}. There are ${SPAN_STAGES.join(', ')}.`,
        },
        { name: 'max_per_sec', doc: `Lines that are sent each second at most; 1 to ${MAX_LINES_PER_SEC}, usually 100.` },
      ],
      answer: { status: 200, doc: 'Goes on until the asker leaves. Of the traces that sidecars tell.', contentType: 'text/event-stream' },
      handle: (asked) => tail(plane, asked),
    },
  ];
}

interface Wanted {
  readonly capability: string | null;
  readonly agent: string | null;
  readonly provider: string | null;
  readonly code: number | null;
  readonly failed: boolean;
  readonly minMs: number;
}

function list(plane: Plane, { query }: Asked): Reply {
  const wanted = wantedIn(query);
  if (wanted instanceof Refused) return wanted;
  const since = timeIn(plane.clock, query['since'], 0);
  if (since === null) return invalid('since must be a duration such as 15m, or a time such as 2026-05-01T12:00:00Z');
  const limit = wholeIn(query['limit'], 50, MAX_LIMIT);
  if (limit === null) return invalid(`limit must be a whole number from 1 to ${MAX_LIMIT}`);
  const found: KeptTrace[] = [];
  for (const trace of plane.traces.all()) if (trace.size > 0 && trace.startMs >= since && traceFits(trace, wanted)) found.push(trace);
  found.sort((a, b) => b.startMs - a.startMs);
  const answer: TracesAnswer = { traces: found.slice(0, limit).map(lineOf), more: Math.max(0, found.length - limit) };
  return json(answer);
}

function traceFits(trace: KeptTrace, wanted: Wanted): boolean {
  const { capability, agent, provider, code, failed, minMs } = wanted;
  if (trace.endMs - trace.startMs < minMs || (failed && !trace.failed)) return false;
  if (capability !== null && !trace.names(failed ? 'f' : 'c', (name) => coversName(capability, name))) return false;
  if (agent !== null && !trace.names('a', (name) => coversAgent(agent, name))) return false;
  if (provider !== null && !trace.names('p', (name) => coversAgent(provider, name))) return false;
  return code === null || trace.names('k', (name) => name === String(code));
}

function lineOf(trace: KeptTrace): TraceLineView {
  return {
    trace_id: trace.id,
    start_ms: trace.startMs,
    elapsed_ms: Math.round((trace.endMs - trace.startMs) * 1_000) / 1_000,
    capability: trace.head.capability,
    caller: trace.head.caller,
    code: trace.head.code,
    spans: trace.size + trace.cut,
    failed: trace.failed,
  };
}

function tail(plane: Plane, { query }: Asked): Reply {
  const wanted = wantedIn(query);
  if (wanted instanceof Refused) return wanted;
  const maxPerSec = wholeIn(query['max_per_sec'], 100, MAX_LINES_PER_SEC);
  if (maxPerSec === null) return invalid(`max_per_sec must be a whole number from 1 to ${MAX_LINES_PER_SEC}`);
  const stages = stagesIn(query['stage']);
  if (stages === null) return invalid(`stage must be \`all\`, or of ${SPAN_STAGES.join(', ')}, with commas between`);
  return {
    start: (out) => {
      const one = new Tail(plane.clock, (span) => stages.has(span.stage) && spanFits(span, wanted), maxPerSec, {
        hop: (span) => out.event('hop', withoutDecision(span)),
        leftOut: (count) => out.event('left_out', { count }),
      });
      out.event('hello', { replica: plane.name });
      if (!plane.traces.addTail(one)) {
        const { detail } = unavailable('too many look on at this replica already');
        out.event('full', { detail });
        out.end();
      }
      return () => plane.traces.removeTail(one);
    },
  };
}

function spanFits(span: ToldSpan, { capability, agent, provider, code, failed, minMs }: Wanted): boolean {
  if (span.elapsed_ms < minMs || (failed && span.code === 0) || (code !== null && span.code !== code)) return false;
  if (capability !== null && !coversName(capability, span.capability)) return false;
  if (provider !== null && (span.provider === undefined || !coversAgent(provider, span.provider))) return false;
  if (agent === null) return true;
  return [span.caller, span.provider].some((each) => each !== undefined && coversAgent(agent, each));
}

function withoutDecision(span: ToldSpan): TailLine {
  const { decision: _decision, ...line } = span;
  return line;
}

function wantedIn(query: Readonly<Record<string, string>>): Wanted | Refused {
  const { capability = null, agent = null, provider = null, failed = '0' } = query;
  if (failed !== '0' && failed !== '1') return invalid('failed must be 1 or 0');
  const code = query['code'] === undefined ? null : Number(query['code']);
  if (code !== null && !(Number.isInteger(code) && code > 0 && code <= 99_999))
    return invalid('code must be a code of docs/errors.md, such as 1003');
  const minMs = Number(query['min_ms'] ?? 0);
  if (!(minMs >= 0)) return invalid('min_ms must be a number of milliseconds');
  return { capability, agent, provider, code, failed: failed === '1', minMs };
}

function wholeIn(text: string | undefined, usual: number, most: number): number | null {
  const value = Number(text ?? usual);
  return Number.isInteger(value) && value >= 1 && value <= most ? value : null;
}

function stagesIn(text: string | undefined): ReadonlySet<string> | null {
  if (text === undefined) return new Set(USUAL_STAGES);
  if (text === 'all') return new Set(SPAN_STAGES);
  const named = text.split(',').map((each) => each.trim());
  return named.every((each) => (SPAN_STAGES as readonly string[]).includes(each)) ? new Set(named) : null;
}
