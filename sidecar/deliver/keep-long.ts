/** Puts work that an agent goes on with among what is remembered over a restart; work that has no claim gets one for it. */
import { askFor } from './keys.ts';
import type { InHand } from './in-hand.ts';
import type { TaskParts } from './parts.ts';
import { stopTask } from './stop.ts';

export async function keepLong(task: InHand, parts: TaskParts): Promise<void> {
  const { longWork, ledger } = parts;
  if (longWork === null || task.isLong) return;
  task.isLong = true;
  const ask = askFor(task, parts);
  if (task.claim === null) {
    const claimed = await ledger.claim(ask, Math.max(0, task.tries - 1));
    if (claimed.kind !== 'claimed') return;
    if (task.onReport === null || task.stoppedBy !== 'no') {
      // It has ended meanwhile, or is being stopped.
      await claimed.claim.release(false);
      return;
    }
    task.claim = claimed.claim;
    task.isRecorded = true;
    stopWhenLost(task);
  }
  task.isKept = true;
  longWork.add(task, ask.id);
}

/** What nobody else will start goes on: the ledger says at its end whether it is taken. */
export function stopWhenLost(task: InHand): void {
  if (task.claim === null) return;
  task.claim.onLost = (by) => {
    if (by === 'fenced' || task.execution !== 'once') stopTask(task, 'lost');
  };
}
