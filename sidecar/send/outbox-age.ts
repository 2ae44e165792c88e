/**
 * A message that has lain on the disk has less time left when it leaves: `expires` runs from its acceptance, and the queue, which
 * watches over it, only knows when it was stored. Both times are of this machine's clock, so nothing is compared across machines.
 */
import { decodeEnvelope, encodeEnvelope } from '../../proto/wire/envelope.ts';

/** Shorter times are not worth writing a message anew. */
const LEAST_MS = 1_000;
/** 2020: an earlier time is that of a clock which had not been set, and says nothing. */
const EARLIEST_WALL_MS = 1_577_836_800_000;

/** The bytes that go to the stream at `wallMs`: those of the disk, or with what is left of their time. */
export function aged(data: Buffer, wallMs: number): Buffer {
  const read = decodeEnvelope(data);
  if (read === null) return data;
  const { envelope, payload } = read;
  if ((envelope as { readonly kind?: unknown }).kind === 'review') return agedEntry(data, payload, wallMs);
  if (typeof envelope.expires_ms !== 'number' || !(envelope.accepted_at_ms >= EARLIEST_WALL_MS)) return data;
  const heldMs = Math.round(wallMs - envelope.accepted_at_ms);
  if (heldMs < LEAST_MS) return data;
  return encodeEnvelope({ ...envelope, expires_ms: Math.max(1, envelope.expires_ms - heldMs) }, payload);
}

/** An entry for people with the message behind it: that expires too. */
function agedEntry(data: Buffer, message: Buffer, wallMs: number): Buffer {
  const later = aged(message, wallMs);
  return later === message ? data : Buffer.concat([data.subarray(0, data.length - message.length), later]);
}
