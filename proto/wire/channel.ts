/**
 * What is said on a channel: the WebSocket that an agent without a port opens to a sidecar. Text frames are JSON-RPC 2.0 in
 * both directions, one message a frame (batches are refused: frames are cheap, and a batch would hold its first answer back
 * until its last); binary frames are pieces of streams (`frames.ts`, the number in their head is the stream).
 *
 *     POST /v1/channel (Authorization: Bearer …)  →  201 {url, ticket, expires_in_ms}     or `channel` in the answer to POST /v1/agents
 *     GET {url}?ticket=…  (WebSocket)             the ticket serves once; Authorization: Bearer … instead of it will do
 *
 *     agent → sidecar                                        answer
 *     reach.hello     {wire, serve?, metadata?, resume_from?} {agent, wire, sidecar, offers, heartbeat_ms, offline_ms, max_message_bytes, window_bytes, resume}
 *     reach.register  the body of POST /v1/agents            its answer
 *     reach.heartbeat {}                                     {}            (any frame, ping and pong included, is a sign of life)
 *     reach.invoke    Ask                                    the Result; a failure is an error whose `data` is the Result
 *     reach.stream    Ask                                    {stream, status, content_type, headers}; then frames, the last is `end` or `error`
 *     reach.explain   Ask                                    what GET /v1/explain answers
 *     reach.cast      a message, as POST /v1/messages takes it  {task_id, power_id, durable, state, capability, version, lane, rule, trace_id}
 *     reach.task      {task_id}                              what GET /v1/tasks/{id} answers
 *     reach.cancel_task {task_id}                            {task_id, outcome}: `cancelled` or `requested`
 *     reach.resume    {from?}                                {from, floor}; then `reach.message`. Without `from`: after what is acknowledged
 *     reach.ack       {seq}                                  {floor}: everything up to `seq` has been taken; also as a notification
 *     reach.done      {task_id, status?, payload | payload_base64?, content_type?}  {task_id, outcome}: how work has ended that was taken with 202
 *     reach.extend    {task_id}                              {task_id, left_ms}: it takes longer
 *     reach.cancel    {id} or {stream}                       notification: nobody waits for it any more
 *
 *     sidecar → agent                                        answer
 *     reach.invoke    Ask, with `version`; id: a number      {payload | payload_base64, status?, content_type?, headers?}, or an error
 *     reach.cancel    {id}                                   notification
 *     reach.message   {seq, kind, task_id, …, data}          notification: the next entry of the agent's inbox
 *     reach.messages_end {why}                               notification: no more of them; `replaced`: the agent reads elsewhere, `closing`: this sidecar stops
 *     reach.not_taken {method, code, name, detail, …}        notification: what the agent has sent as a notification (`reach.cast`) was refused
 *     reach.goodbye   {grace_ms}                             notification: this sidecar stops; what is under way may end within that time
 *
 * Calls are sent to an agent from its hello on, so that it is never called before it listens; `serve: false` says that this
 * connection only calls: it takes nobody's place and gets no calls. Calling needs no hello. `offers` is what the table has
 * this agent for on a channel now, as `name@version`: what is not in it, nobody will call.
 *
 * An inbox is read from a position on: `resume_from` of the hello or `reach.resume`, the `seq` behind the last one that was
 * seen, or "floor". Positions rise and have gaps. A hello that cannot resume says so in `resume` ({from: null, why, reason,
 * available_from}) and is a hello all the same; `reach.resume` answers an error whose `data` has `inbox: {why, from}`. `why`:
 * `gone` (older than what is kept), `ahead` (there has been nothing there), `invalid`, `unreachable`. One connection of an
 * agent reads at a time, the last that asked. Entries come as fast as the agent reads; none is skipped.
 *
 * An agent that fails a call answers with an error; `data` may hold {status, payload | payload_base64, content_type,
 * headers}: status 400 … 599 (default 500) and the body of the answer as HTTP would have them. Without a payload the error
 * object itself is the body. -32601 means that the peer serves no calls at all.
 *
 * An agent that streams its answer sends a notification `reach.head {id, status?, content_type?, headers?}` (it may be left
 * out: 200, application/octet-stream), then `data` frames whose number is the id of the request, and ends with the answer
 * to the request: `{}` is the proper end, an error a cut. It may send `window_bytes` ahead; each `credit` frame from the
 * sidecar allows more. What a sidecar streams to an agent is paced by the connection itself.
 */
export const CHANNEL_PATH = '/v1/channel';
export const CHANNEL_WIRE = 1;

export const ChannelMethod = {
  hello: 'reach.hello',
  register: 'reach.register',
  heartbeat: 'reach.heartbeat',
  invoke: 'reach.invoke',
  stream: 'reach.stream',
  explain: 'reach.explain',
  cast: 'reach.cast',
  task: 'reach.task',
  cancelTask: 'reach.cancel_task',
  resume: 'reach.resume',
  ack: 'reach.ack',
  done: 'reach.done',
  extend: 'reach.extend',
  message: 'reach.message',
  messagesEnd: 'reach.messages_end',
  notTaken: 'reach.not_taken',
  cancel: 'reach.cancel',
  head: 'reach.head',
  goodbye: 'reach.goodbye',
} as const;

/** A call, in either direction. */
export interface ChannelAsk {
  /** Agent → sidecar: `name`, alias or `name@range`; sidecar → agent: the canonical name. */
  readonly capability: string;
  /** Sidecar → agent: the exact version that is meant. */
  readonly version?: string;
  /** Sidecar → agent: the caller takes the answer piece by piece; a whole answer will do all the same. */
  readonly stream?: boolean;
  /** JSON. */
  readonly payload?: unknown;
  /** Bytes that are not JSON, instead of `payload`. */
  readonly payload_base64?: string;
  /** Default `application/json`, with `payload_base64` `application/octet-stream`. */
  readonly content_type?: string;
  /** As the HTTP headers of the same names: `reach-deadline-ms`, `reach-budget`, `traceparent`, … */
  readonly headers?: Readonly<Record<string, string>>;
}

/** What an agent may send ahead of `credit` in one stream. */
export const WINDOW_BYTES = 262_144;
/** What a message may hold beside the largest body that the sidecar takes (`limits.body`). */
export const ENVELOPE_BYTES = 65_536;
/** Close codes beside those of RFC 6455 (1000 … 1015). */
export const ChannelClose = {
  /** A newer connection of the same agent has taken over. */
  replaced: 4001,
  /** Silent for longer than `offline_ms`. */
  silent: 4002,
  /** It did not read what was sent to it for longer than the limit. */
  stalled: 4003,
  /** The credential has been taken back. */
  unauthenticated: 4004,
} as const;
