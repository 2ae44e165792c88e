/** Somebody who waits for a page of an inbox, and may leave before it comes: then nothing waits on, and nothing is given. */
import type { Wakes } from './box.ts';

export class Asking {
  isGone = false;
  /** What it waits with just now. */
  waiting: Wakes | null = null;

  cancel(): void {
    this.isGone = true;
    this.waiting?.wake();
  }
}
