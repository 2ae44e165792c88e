/**
 * What one attempt sends beside the payload: time left, trace, path, identity and key, as headers that no caller can forge.
 * The time of one attempt is that to the whole answer; of a stream it is only that to the head, and its body has what is
 * left of the total.
 */
import { Header } from '../../proto/wire/headers.ts';
import { formatTraceparent } from '../../proto/wire/trace-context.ts';
import type { Attempt } from '../call/attempt-record.ts';
import { type Call, headerOf, HttpAsk } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import type { Candidate, Capability } from '../table/snapshot.ts';
import { Exchange } from '../transports/transport.ts';

/** @param lateMs for so long after that an answer is still wanted */
export function exchangeFor(
  call: Call,
  candidate: Candidate,
  made: Attempt,
  allowedMs: number,
  lateMs: number,
  now: number,
  pathHeader: string,
): Exchange {
  const timeMs = call.stream ? call.deadlineAt - now : Math.min(allowedMs, call.deadlineAt - now);
  const own = [
    Header.deadlineMs,
    String(Math.max(1, Math.floor(timeMs))),
    Header.deadlineTotalMs,
    String(Math.floor(call.totalMs)),
    Header.traceparent,
    formatTraceparent(call.traceId, made.spanId, call.traceFlags),
    Header.path,
    pathHeader,
    Header.caller,
    (call.principal as Principal).agent,
  ];
  if (candidate.provider.reach === 'mesh') {
    const pinned = (call.pin ?? call.headers[Header.pin]) === candidate.provider.agentId;
    if (pinned) own.push(Header.pin, candidate.provider.agentId);
    if (lateMs > 0) own.push(Header.lateMs, String(lateMs));
    if (call.headers[Header.retry] === 'none') own.push(Header.retry, 'none');
  }
  if (call.traceState !== '') own.push(Header.tracestate, call.traceState);
  if (call.powerId !== null) own.push(Header.powerId, call.powerId, Header.idempotencyKey, call.powerId);
  const sequence = headerOf(call, Header.sequenceId);
  if (sequence !== null) own.push(Header.sequenceId, sequence);
  // For the calls that its agent makes for this one.
  const budget = headerOf(call, Header.budget);
  if (budget !== null) own.push(Header.budget, budget);
  if (call.affinityKey !== null) own.push(Header.affinity, call.affinityKey);
  const execution = headerOf(call, Header.execution);
  if (execution !== null) own.push(Header.execution, execution);
  for (const text of call.about) own.push(text);
  return new Exchange(
    candidate,
    call.body,
    call.contentType,
    call.headers,
    own,
    timeMs,
    candidate.settings.limits.responseBytes,
    typeof call.json === 'symbol' ? undefined : call.json,
    askOf(call),
  );
}

/** What the client shows is meant for whoever serves the name it asked for: another capability does not get to see it. */
function askOf(call: Call): HttpAsk | null {
  const { http } = call;
  if (http === null || http.credentials.length === 0) return http;
  return call.capability === namedBy(call) ? http : new HttpAsk(http.method, http.target);
}

/** Fallbacks and overrides lead to others. */
function namedBy({ asked, table }: Call): Capability | null {
  const name = asked.split('@', 1)[0] as string;
  return table?.capabilities.get(name) ?? table?.aliases.get(name) ?? null;
}
