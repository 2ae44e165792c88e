/**
 * Whether a sidecar takes part in a staged roll-out. Both sides work it out from the sidecar's name alone, so that they
 * agree without asking, and a share that grows keeps everybody whom it had.
 */
import { hash32, unit } from '../../base/rendezvous.ts';

const SEED = 0x510e527f;

/** Stable per name, in [0, 1): the sidecar takes part when this is below the share. */
export function shareOf(sidecar: string): number {
  return unit(hash32(sidecar, SEED));
}
