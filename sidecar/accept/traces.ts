/**
 * What this sidecar itself still holds of one trace, told or not: with one sidecar and nothing else a trace id is of use. An agent sees the
 * spans of what it asked for and of what it served; the operator's token sees all. The whole timeline over a fleet is the control
 * plane's (`reachctl trace`).
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Span } from '../../proto/wire/spans.ts';
import { Code } from '../../proto/wire/codes.ts';
import { isTraceparent } from '../../proto/wire/trace-context.ts';
import { refuse } from './answer.ts';
import { NO_CREDENTIAL } from './cast.ts';
import type { Front } from './front.ts';
import { json } from './pages.ts';

export function traceHeld(front: Front, request: IncomingMessage, response: ServerResponse, traceId: string): void {
  if (!isTraceparent(`00-${traceId}-0000000000000001-01`)) {
    refuse(response, Code.invalid_request, 400, 'a trace id has 32 hex digits, in lower case', 'keep');
    return;
  }
  const { authorization } = request.headers;
  const isOperator = authorization !== undefined && front.isOperator(authorization);
  const principal = isOperator ? null : front.engine.identities.caller(authorization);
  if (!isOperator && principal === null) {
    refuse(response, Code.unauthenticated, 401, NO_CREDENTIAL, 'keep');
    return;
  }
  if (front.tracing === null) {
    refuse(response, Code.invalid_request, 404, 'no spans are made here (traces.enabled)', 'keep');
    return;
  }
  const held = front.tracing.spans.of(traceId);
  const spans = held.filter((span) => principal === null || concerns(span, principal.agent)).sort((a, b) => a.start_ms - b.start_ms);
  if (spans.length === 0) {
    refuse(response, Code.invalid_request, 404, 'nothing is held of this trace here: it was elsewhere, or is too long ago', 'keep');
    return;
  }
  json(response, 200, { trace_id: traceId, sidecar: front.engine.config.name, spans });
}

function concerns({ caller, provider }: Span, agent: string): boolean {
  return caller === agent || provider === agent;
}
