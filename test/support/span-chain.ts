/** The chain of spans from what arrived at an agent up to what its caller sent, out of what the sidecars hold. */
import { equal, ok } from 'node:assert/strict';
import type { Span, SpanStage } from '../../proto/wire/spans.ts';
import type { Rig } from './rig.ts';

export function spansOf(rigs: readonly Rig[], traceId: string): readonly Span[] {
  return rigs.flatMap(({ started }) => started.front.tracing?.spans.of(traceId) ?? []);
}

/**
 * Fails unless the `traceparent` that arrived names an attempt, and that stands, hop by hop, below the caller's own span.
 * @param above the caller's span; '' = its trace began here
 * @returns the stages, from the agent up
 */
export function chainTo(spans: readonly Span[], arrived: string | undefined, above: string): readonly SpanStage[] {
  ok(arrived !== undefined, 'a traceparent has arrived');
  const stages: SpanStage[] = [];
  let id = arrived.slice(36, 52);
  while (id !== above) {
    const span = spans.find(({ span_id: each }) => each === id);
    ok(span !== undefined, `no span ${id} above ${stages.join(', ')}`);
    equal(span.trace_id, arrived.slice(3, 35));
    ok(stages.push(span.stage) < 20, 'it ends');
    id = span.parent_span_id;
  }
  return stages;
}
