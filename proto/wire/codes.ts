/**
 * The closed table of codes: one line an error, with every mapping. Nothing outside this table reaches a caller.
 * `docs/errors.md` is generated from it. Codes are stable: one is never reused for another meaning.
 */
export const Code = {
  ok: 0,
  connect_timeout: 1001,
  connection_lost: 1002,
  response_timeout: 1003,
  bad_response: 1004,
  response_too_large: 1005,
  stream_interrupted: 1006,
  tls_failed: 1007,
  no_provider: 2001,
  no_matching_version: 2002,
  none_healthy: 2003,
  affinity_lost: 2004,
  loop_detected: 2005,
  blocked_by_operator: 2006,
  breaker_open: 3001,
  caller_busy: 3002,
  provider_busy: 3003,
  rate_limited: 3004,
  retry_budget_spent: 3005,
  unauthenticated: 4001,
  forbidden: 4002,
  invalid_request: 4003,
  invalid_response: 4004,
  payload_too_large: 4005,
  bad_name: 4006,
  in_flight: 4007,
  key_reused: 4008,
  affinity_key_missing: 4009,
  deadline_exceeded: 5001,
  deadline_too_short: 5002,
  cancelled: 5003,
  provider_error: 6001,
  delivery_unavailable: 7001,
  dead_lettered: 7002,
  in_doubt: 7003,
  expired: 7004,
  parked: 7005,
  internal: 9001,
} as const;

export type CodeName = keyof typeof Code;
export type Code = (typeof Code)[CodeName];

export interface CodeEntry {
  readonly code: Code;
  readonly name: CodeName;
  /** HTTP status of the answer (6001 carries the provider's own status instead, when it is 4xx or 5xx). */
  readonly http: number;
  /** `error.code` of a JSON-RPC 2.0 answer; our own code stands in `error.data.code`. */
  readonly jsonRpc: number;
  /** gRPC status number. */
  readonly grpc: number;
  /** Whether the same request may succeed later or elsewhere; an ambiguous failure is never marked so. */
  readonly retryable: boolean;
  readonly meaning: string;
  readonly advice: string;
}

const row = (name: CodeName, http: number, jsonRpc: number, grpc: number, retryable: boolean, meaning: string, advice: string): CodeEntry =>
  Object.freeze({ code: Code[name], name, http, jsonRpc, grpc, retryable, meaning, advice });

export const CODES: readonly CodeEntry[] = Object.freeze([
  row('ok', 200, 0, 0, false, 'The call succeeded.', 'Nothing to do.'),
  row(
    'connect_timeout',
    503,
    -32001,
    14,
    true,
    'No connection to the provider could be made; it never saw the call.',
    'Check that the provider runs and its address is right; repeating is safe.',
  ),
  row(
    'connection_lost',
    502,
    -32001,
    14,
    true,
    'The connection broke before a whole answer came.',
    'If `ambiguous` is true the provider may have acted: repeat only idempotent work.',
  ),
  row(
    'response_timeout',
    504,
    -32001,
    14,
    true,
    'The provider did not answer within the time of one attempt.',
    "Raise the contract's `timeout` if the work is slow by nature; look at the provider otherwise.",
  ),
  row(
    'bad_response',
    502,
    -32001,
    13,
    true,
    'The answer was cut, malformed, or of a kind that cannot be passed on.',
    'Look at the provider; `detail` says what was wrong.',
  ),
  row(
    'response_too_large',
    502,
    -32001,
    8,
    false,
    'The answer is above the limit on bodies.',
    'Raise `limits.response`, use a stream, or pass a reference.',
  ),
  row(
    'stream_interrupted',
    502,
    -32001,
    14,
    true,
    'A stream ended before its end; what came is not whole.',
    'Treat what was received as incomplete.',
  ),
  row('tls_failed', 502, -32001, 14, false, 'The TLS handshake with the provider failed.', 'Check certificate, name and clock.'),
  row(
    'no_provider',
    404,
    -32601,
    12,
    false,
    'Nobody offers this capability here.',
    'Check the spelling against `GET /v1/capabilities`; is the provider registered, and may you call it?',
  ),
  row(
    'no_matching_version',
    404,
    -32601,
    12,
    false,
    'The capability exists, but in no version of the range asked for. Never silently another one.',
    'The detail lists what exists.',
  ),
  row(
    'none_healthy',
    503,
    -32002,
    14,
    true,
    'Every provider is offline, draining, ejected or behind an open breaker.',
    'The detail says why for each; try again later.',
  ),
  row(
    'affinity_lost',
    503,
    -32002,
    9,
    false,
    'The provider that holds this conversation is gone, and the contract forbids another.',
    'Start a new conversation.',
  ),
  row(
    'loop_detected',
    508,
    -32002,
    9,
    false,
    'The call would come back to an agent and capability that is already in its path, or has too many hops.',
    'The detail names the path; break the cycle.',
  ),
  row(
    'blocked_by_operator',
    503,
    -32002,
    14,
    false,
    'An operator has blocked or is draining the target.',
    'The detail gives the reason and when it ends.',
  ),
  row(
    'breaker_open',
    503,
    -32003,
    14,
    true,
    'The provider has failed or been slow too often lately and is being left alone.',
    'Wait for the time in `Retry-After`.',
  ),
  row(
    'caller_busy',
    429,
    -32003,
    8,
    true,
    'This caller has its full number of calls to this capability in flight.',
    'Wait for some to end, or have the limit raised.',
  ),
  row(
    'provider_busy',
    503,
    -32003,
    8,
    true,
    'The provider has its full number of calls in flight; this one never started.',
    'Repeat a little later; more providers help.',
  ),
  row(
    'rate_limited',
    429,
    -32003,
    8,
    true,
    'Too many in too little time.',
    'Wait for the time in `Retry-After`, or have the quota raised (`reachctl quota`; of messages also `messages.rates`).',
  ),
  row(
    'retry_budget_spent',
    503,
    -32003,
    14,
    true,
    'The attempt failed and retries are stopped, since too many calls are being retried already.',
    'Something is failing widely: look there first.',
  ),
  row('unauthenticated', 401, -32004, 16, false, 'No credential, or not one that is known.', 'Send `Authorization: Bearer <token>`.'),
  row('forbidden', 403, -32004, 7, false, "The capability's ACL does not name this caller.", 'Ask the owner of the capability to add you.'),
  row('invalid_request', 400, -32602, 3, false, 'The request breaks the contract or the protocol.', 'The detail names the place.'),
  row(
    'invalid_response',
    502,
    -32004,
    13,
    false,
    "The provider's answer breaks its own contract.",
    "Tell the provider's owner; the work may have been done.",
  ),
  row('payload_too_large', 413, -32004, 8, false, 'The body is above the limit.', 'Send less, or pass a reference.'),
  row(
    'bad_name',
    400,
    -32601,
    3,
    false,
    'The name, range or selector is not well formed.',
    'A good one looks like `crm.order.query@^2.0`.',
  ),
  row('in_flight', 409, -32004, 10, true, 'A call with the same key is being worked on.', 'Ask again when it has ended.'),
  row(
    'key_reused',
    422,
    -32004,
    9,
    false,
    'The key was used before with another payload or by another caller.',
    'Mint a new key for new work.',
  ),
  row(
    'affinity_key_missing',
    400,
    -32602,
    3,
    false,
    'The contract needs a conversation key and the request has none.',
    'The detail says where the key is read from.',
  ),
  row(
    'deadline_exceeded',
    504,
    -32005,
    4,
    false,
    'The total time of the task was over before an answer came.',
    'If `ambiguous` is true the provider may have acted. Give the task more time or less to do.',
  ),
  row(
    'deadline_too_short',
    504,
    -32005,
    4,
    false,
    'What is left of the time cannot be enough, so the provider was not troubled.',
    'Give the task more time, or this step a larger budget.',
  ),
  row('cancelled', 499, -32005, 1, false, 'The caller went away.', 'Nothing; if `ambiguous` is true the provider may have acted.'),
  row(
    'provider_error',
    500,
    -32000,
    2,
    false,
    'The agent itself answered with an error; it is passed through.',
    "The data is the agent's own answer.",
  ),
  row(
    'delivery_unavailable',
    503,
    -32006,
    14,
    true,
    'A durable message cannot be accepted now: NATS and the disk are away, or the queue is full.',
    'Repeat later, with the same key; nothing was accepted, unless the detail says that it is in doubt.',
  ),
  row(
    'dead_lettered',
    500,
    -32006,
    10,
    false,
    'Every try to deliver the message failed; it is kept in the dead letters.',
    'An operator can look at it and drive it again.',
  ),
  row(
    'in_doubt',
    500,
    -32006,
    10,
    false,
    'A worker vanished after it got the task; whether it acted is not known. It is not run again by itself.',
    'Find out what was done, then release or drop the task.',
  ),
  row('expired', 504, -32006, 4, false, 'The message was not delivered before its expiry.', 'Submit it again if it still matters.'),
  row(
    'parked',
    202,
    -32006,
    14,
    true,
    'The message waits for an agent to appear or for a person to decide.',
    'Nothing; its state can be asked by task id.',
  ),
  row('internal', 500, -32603, 13, false, 'A fault in Agent-Reach itself.', 'Report it with the trace id.'),
]);

const byCode = new Map<number, CodeEntry>(CODES.map((entry) => [entry.code, entry]));

/** The entry of a code; one that is not in the table (a newer peer's) reads as 9001. */
export function codeEntry(code: number): CodeEntry {
  return byCode.get(code) ?? (byCode.get(Code.internal) as CodeEntry);
}

export function isCode(value: number): value is Code {
  return byCode.has(value);
}
