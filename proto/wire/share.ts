/** Which sidecars take part in a staged roll-out: the same ones at every stage, so that a growing share only adds. */
import { hash32, unit } from '../../base/rendezvous.ts';

/** Any number, the same on both sides of the wire. */
const SEED = 0x51ed270b;

/** A number in [0, 1) that is this sidecar's own; it takes part when the number is below the share. */
export function shareOf(sidecar: string): number {
  return unit(hash32(sidecar, SEED));
}
