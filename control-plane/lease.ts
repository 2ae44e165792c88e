/** The record of who leads, as it stands in the control stream. Read without trust: anything that is not whole is nobody's lease. */

const LEASE_WIRE = 1;
const MAX_TEXT_CHARS = 512;

export interface Lease {
  /** Name of the replica; '' = given back. */
  readonly holder: string;
  /** Made anew at each start: a replica that was restarted does not take its predecessor's lease for its own. */
  readonly incarnation: string;
  /** Goes up by one with each change of hands. */
  readonly term: number;
  /** Where its API answers. */
  readonly url: string;
}

export interface LeaseTimes {
  /** The holder renews this often. */
  readonly renewMs: number;
  /** The holder stops leading when it could not renew for so long, counted from the *sending* of its last renewal that arrived. */
  readonly holdMs: number;
  /** Another may take over when it has seen no renewal for so long, counted from the *sight* of the last one. Must exceed `holdMs`. */
  readonly expiryMs: number;
}

/** Sight is never before sending, so between the end of holding and the first taking over there is at least a second, by whatever clock. */
export const LEASE_TIMES: LeaseTimes = Object.freeze({ renewMs: 1_000, holdMs: 3_000, expiryMs: 4_000 });

export function leaseBytes(lease: Lease, times: LeaseTimes): Buffer {
  return Buffer.from(JSON.stringify({ wire: LEASE_WIRE, ...lease, expires_in_ms: times.expiryMs }), 'utf8');
}

/** A lease that nobody holds when the bytes are none. */
export function readLease(data: Buffer): Lease {
  const read = parse(data);
  const { holder, incarnation, term, url } = read;
  if (read['wire'] !== LEASE_WIRE || !isText(holder) || !isText(incarnation) || !isText(url)) return NOBODY;
  if (typeof term !== 'number' || !Number.isSafeInteger(term) || term < 0) return NOBODY;
  return { holder, incarnation, term, url };
}

export const NOBODY: Lease = Object.freeze({ holder: '', incarnation: '', term: 0, url: '' });

function parse(data: Buffer): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(data.toString('utf8'));
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= MAX_TEXT_CHARS;
}
