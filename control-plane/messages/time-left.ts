/**
 * `expires` runs from acceptance, and the queue only knows when a message was stored: what is stored anew, since a person sends it
 * elsewhere, has what is left of its time. Both times are the server's, so that no clocks are compared.
 */
import type { Envelope } from '../../proto/wire/envelope.ts';
import { CONTROL_STREAM } from '../../proto/wire/subjects.ts';
import type { MessageParts } from './parts.ts';

/** At least 1: whoever has it then says that its time is over. */
export function withTimeLeft(envelope: Envelope, storedAtMs: number, serverMs: number): Envelope {
  const heldMs = Math.round(serverMs - storedAtMs);
  return heldMs <= 0 || !Number.isFinite(envelope.expires_ms)
    ? envelope
    : { ...envelope, expires_ms: Math.max(1, envelope.expires_ms - heldMs) };
}

/** The leader's own mark is stamped by the server every second or so: its time is never ahead of the server's clock. Null = not known now. */
export async function serverTime({ bus, subjects }: Pick<MessageParts, 'bus' | 'subjects'>): Promise<number | null> {
  const mark = await bus.lastAtLeader(CONTROL_STREAM, subjects.leader);
  return mark === null || 'failed' in mark ? null : mark.timestampMs;
}
