/**
 * Text that nobody can guess who has seen all that was made before it: for names that open something to whoever knows them. From
 * the system's generator, in blocks, since each request of it costs more than a message may.
 */
import { randomFillSync } from 'node:crypto';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz234567';
const block = Buffer.alloc(4_096);
let used = block.length;

/** @param letters of 5 bits each, at most 64 */
export function unguessable(letters: number): string {
  if (used + letters > block.length) {
    randomFillSync(block);
    used = 0;
  }
  let text = '';
  for (const end = used + letters; used < end; used++) {
    text += LETTERS[(block[used] as number) & 31];
    block[used] = 0;
  }
  return text;
}
