/** Header names on the wire, in the lower case that HTTP/2 and Node use. One place, so that no end can misspell one. */
export const Header = {
  deadlineMs: 'reach-deadline-ms',
  deadlineTotalMs: 'reach-deadline-total-ms',
  budget: 'reach-budget',
  step: 'reach-step',
  affinity: 'reach-affinity',
  sequenceId: 'reach-sequence-id',
  pin: 'reach-pin',
  tags: 'reach-tags',
  /** The range of versions, where the name alone stands in the address (forward proxy). */
  range: 'reach-range',
  /** Of a stream: the token that came when it was cut, to go on from there. */
  resume: 'reach-resume',
  execution: 'reach-execution',
  retry: 'reach-retry',
  mode: 'reach-mode',
  /** Of messages: what they are, and what their sender wants. `reach-tags` are the message's own there, not a selector. */
  messageType: 'reach-message-type',
  priority: 'reach-priority',
  retryable: 'reach-retryable',
  expires: 'reach-expires',
  replyTo: 'reach-reply-to',
  inReplyTo: 'reach-in-reply-to',
  /** Who is addressed beside the capability: whoever has this role, or this agent. */
  role: 'reach-role',
  agent: 'reach-agent',
  /** `1`: without durable messages a message is carried out at once, and nothing is promised. */
  bestEffort: 'reach-best-effort',
  /** Of a result that an agent reports later: its own status. */
  status: 'reach-status',
  /** `1`: the Result carries the decision trace. */
  explain: 'reach-explain',
  /** To agents: what they are asked for. */
  capability: 'reach-capability',
  /** To agents, of work that came as a message: by this name it is extended and its end told. */
  taskId: 'reach-task-id',
  powerId: 'reach-power-id',
  idempotencyKey: 'idempotency-key',
  path: 'reach-path',
  /** What the sidecar itself wants to be shown, beside the agent's credential. */
  apiToken: 'reach-api-token',
  /** Between sidecars only. */
  caller: 'reach-caller',
  /** The control plane's word that the caller is at home at the sidecar that sends this. */
  home: 'reach-home',
  provider: 'reach-provider',
  wire: 'reach-wire',
  started: 'reach-started',
  /** The key is claimed at the caller's end, where an answer that comes so much too late is still wanted. */
  lateMs: 'reach-late-ms',
  /** The answer is wanted chunk by chunk. */
  stream: 'reach-stream',
  /** Of an intercepted request: method, path and query, and what the client shows the provider. */
  method: 'reach-method',
  target: 'reach-target',
  authorization: 'reach-authorization',
  cookie: 'reach-cookie',
  /** `1`: to the other sidecar, frames can be read here; on its answer, the body is frames. */
  frames: 'reach-frames',
  /** On answers. */
  code: 'reach-code',
  definitelySuccess: 'reach-definitely-success',
  degraded: 'reach-degraded',
  /** `true`: the first answer to this key once more. */
  replay: 'reach-replay',
  /** `true`: a mock answered, and no agent. */
  sandbox: 'reach-sandbox',
  version: 'reach-version',
  elapsedMs: 'reach-elapsed-ms',
  attempts: 'reach-attempts',
  detail: 'reach-detail',
  ambiguous: 'reach-ambiguous',
  retryAfterMs: 'reach-retry-after-ms',
  traceId: 'reach-trace-id',
  /** Of a body that is written as frames: its own content type. */
  contentType: 'reach-content-type',
  traceparent: 'traceparent',
  tracestate: 'tracestate',
} as const;

/** Every header with this prefix belongs to Agent-Reach: a caller's copy is read at the edge and never forwarded as it came. */
export const OWN_PREFIX = 'reach-';

/** Those that are read of whoever calls, casts or reports. What else begins with the prefix is passed over, and explain says so. */
export const CALLER_HEADERS: ReadonlySet<string> = new Set([
  Header.deadlineMs,
  Header.deadlineTotalMs,
  Header.budget,
  Header.step,
  Header.affinity,
  Header.sequenceId,
  Header.pin,
  Header.tags,
  Header.resume,
  Header.execution,
  Header.retry,
  Header.mode,
  Header.messageType,
  Header.priority,
  Header.retryable,
  Header.expires,
  Header.replyTo,
  Header.inReplyTo,
  Header.role,
  Header.agent,
  Header.bestEffort,
  Header.status,
  Header.explain,
  Header.powerId,
  Header.path,
  Header.apiToken,
]);
