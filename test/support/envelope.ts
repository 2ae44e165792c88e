/** A message as a sender's sidecar writes it, with everything that a test does not care about. */
import { type Envelope, MESSAGE_WIRE } from '../../proto/wire/envelope.ts';

/** The sender is agent `crm.front.x` of sidecar `front`, unless `parts` say otherwise. */
export function envelopeOf(capability: string, pool: string, parts: Partial<Envelope> = {}): Envelope {
  const { task_id = 'task0001', source = 'crm.front.x' } = parts;
  return {
    wire: MESSAGE_WIRE,
    task_id,
    power_id: `${source}:${task_id}:1`,
    keyed: false,
    message_type: 'task_request',
    source,
    home: 'front',
    reply_to: source,
    in_reply_to: null,
    target: { capability, role: null, agent: null },
    capability,
    version: '2.0.0',
    pool,
    lane: 'normal',
    tags: {},
    sequence_id: null,
    retryable: true,
    expires_ms: 86_400_000,
    deadline_ms: null,
    timeout_ms: 30_000,
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    tracestate: '',
    path: [],
    content_type: 'application/json',
    headers: {},
    rule: null,
    payload_hash: '',
    accepted_at_ms: 1,
    ...parts,
  };
}
