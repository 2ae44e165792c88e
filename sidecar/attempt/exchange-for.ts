/** What one attempt sends beside the payload: time left, trace, path, identity and key, as headers that no caller can forge. */
import { Header } from '../../proto/wire/headers.ts';
import type { Attempt } from '../call/attempt-record.ts';
import { type Call, headerOf } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import type { Candidate } from '../table/snapshot.ts';
import { Exchange } from '../transports/transport.ts';

export function exchangeFor(call: Call, candidate: Candidate, made: Attempt, allowedMs: number, now: number, pathHeader: string): Exchange {
  const own = [
    Header.deadlineMs,
    String(Math.max(1, Math.floor(Math.min(allowedMs, call.deadlineAt - now)))),
    Header.deadlineTotalMs,
    String(Math.floor(call.totalMs)),
    Header.traceparent,
    `00-${call.traceId}-${made.spanId}-${call.traceFlags === 0 ? '00' : '01'}`,
    Header.path,
    pathHeader,
    Header.caller,
    (call.principal as Principal).agent,
  ];
  const pinned = candidate.provider.reach === 'mesh' && (call.pin ?? call.headers[Header.pin]) === candidate.provider.agentId;
  if (pinned) own.push(Header.pin, candidate.provider.agentId);
  if (call.traceState !== '') own.push(Header.tracestate, call.traceState);
  if (call.powerId !== null) own.push(Header.powerId, call.powerId, Header.idempotencyKey, call.powerId);
  const sequence = headerOf(call, Header.sequenceId);
  if (sequence !== null) own.push(Header.sequenceId, sequence);
  if (call.affinityKey !== null) own.push(Header.affinity, call.affinityKey);
  const execution = headerOf(call, Header.execution);
  if (execution !== null) own.push(Header.execution, execution);
  return new Exchange(
    candidate,
    call.body,
    call.contentType,
    call.headers,
    own,
    allowedMs,
    candidate.settings.limits.responseBytes,
    typeof call.json === 'symbol' ? undefined : call.json,
    call.http,
  );
}
