/** Spans by hand, as sidecars tell them: only what matters to a test is named. */
import { createHash } from 'node:crypto';
import type { Span, SpanBatch, SpanStage } from '../../proto/wire/spans.ts';
import { SPANS_WIRE } from '../../proto/wire/spans.ts';

export const TRACE = 'ab'.repeat(16);
/** 2023-11-14T22:13:20Z, where virtual clocks begin. */
export const WALL = 1_700_000_000_000;

/** A span id out of a short name. */
export function idOf(name: string): string {
  return name === '' ? '' : createHash('sha256').update(name).digest('hex').slice(0, 16);
}

type Given = Partial<Omit<Span, 'span_id' | 'parent_span_id' | 'stage' | 'start_ms' | 'elapsed_ms'>>;

/** @param at milliseconds after WALL; `name` and `parent` are short names */
export function spanOf(stage: SpanStage, name: string, parent: string, at: number, elapsed: number, more: Given = {}): Span {
  return {
    trace_id: TRACE,
    span_id: idOf(name),
    parent_span_id: idOf(parent),
    stage,
    start_ms: WALL + at,
    elapsed_ms: elapsed,
    code: 0,
    capability: 'crm.order.query',
    ...more,
  };
}

export function batchOf(sidecar: string, spans: readonly Span[], dropped = 0, instance = 'i1'): SpanBatch {
  return { wire: SPANS_WIRE, sidecar, instance, spans, dropped };
}

/** One call through a mesh: the caller's sidecar and the provider's. `id` makes several of them in one trace. */
export function meshCall(id = '', at = 0): { readonly front: readonly Span[]; readonly order: readonly Span[] } {
  const who = { caller: 'crm.front.a', provider: 'crm.order.a', version: '2.1.0' };
  return {
    front: [
      spanOf('outbound', `out${id}`, '', at, 30, { ...who, way: 'http' }),
      spanOf('attempt', `try${id}`, `out${id}`, at + 2, 26, { ...who, way: 'mesh', started: 'done' }),
    ],
    order: [
      spanOf('inbound', `in${id}`, `try${id}`, at + 4, 22, { ...who, way: 'mesh' }),
      spanOf('attempt', `own${id}`, `in${id}`, at + 5, 20, { ...who, way: 'http', started: 'done' }),
    ],
  };
}
