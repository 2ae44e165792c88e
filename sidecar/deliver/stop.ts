/** How work in hand is stopped from here: the call is cut, a pause ends, and what an agent goes on with is not waited for any more. */
import { Code } from '../../proto/wire/codes.ts';
import { brokenOff } from './hand-over.ts';
import type { InHand } from './in-hand.ts';
import type { StoppedBy } from './outcome.ts';

export function stopTask(task: InHand, by: StoppedBy): void {
  if (task.isEnding || task.isDecided) return;
  if (task.stoppedBy === 'no') task.stoppedBy = by;
  task.call?.cancel();
  task.wake?.();
  task.onReport?.(brokenOff(Code.cancelled, by === 'draining' ? 'the sidecar of its agent is stopping' : 'stopped'));
}
