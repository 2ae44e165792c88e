/**
 * What a sequence number means to somebody who holds one message of a subject and sees another. Pure arithmetic.
 *
 * Sequences run over the whole stream, so that a sidecar that sees its own scope sees 1, 4, 6: "one more" is no test for a
 * gap. What is compared is the sequence that the server says came before *on the same subject*. Every message holds the
 * whole state of its subject, so that after a gap the newer one is as good as if nothing had been lost; the gap is counted,
 * and taken as a sign that others may have been lost too.
 */

/** Nothing of this subject is held. */
export const NEVER = 0;

export type Judgement =
  /** Newer than what is held, and nothing between them was missed. */
  | 'next'
  /** Newer than what is held, but something between them was missed. */
  | 'gap'
  /** Held already, or older: never taken. */
  | 'old';

/**
 * @param held sequence of the newest message of this subject that was seen; `NEVER` = none.
 * @param seq sequence of the message.
 * @param before sequence of the one before it on the same subject, as the server says; null = not said (a direct read).
 */
export function judge(held: number, seq: number, before: number | null): Judgement {
  if (seq <= held) return 'old';
  // A join subscribes before it reads: what came before its first message is not missed, it was never held.
  if (before === null || held === NEVER || before <= held) return 'next';
  return 'gap';
}

/** Beacons keep a change in their list for ten seconds; a pause longer than this may have hidden one. */
export const COVERED_MS = 8_000;
/** A list as long as this was cut. */
export const LIST_LIMIT = 200;

export interface BeaconView {
  readonly lastSeq: number;
  readonly recent: readonly (readonly [tail: string, seq: number])[];
  /** Everything that changed after this sequence is in the list; null = the writer does not say. */
  readonly since: number | null;
}

/**
 * Whether the list in a beacon shows everything that changed after `seenThrough`; if not, everything must be compared.
 * @param pauseMs since the beacon before this one.
 */
export function covers(beacon: BeaconView, seenThrough: number, pauseMs: number): boolean {
  if (beacon.lastSeq <= seenThrough) return true;
  if (beacon.since !== null) return seenThrough >= beacon.since;
  if (pauseMs > COVERED_MS || beacon.recent.length >= LIST_LIMIT) return false;
  // A complete list has the newest change of all in it; a writer that has just begun does not know the last one's changes.
  return beacon.recent.some(([, seq]) => seq >= beacon.lastSeq);
}
