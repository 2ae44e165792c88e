/** Whether a message is not to be started any more, whoever has it. Pure: what the queue and the ledger know of it is asked elsewhere. */
import { Code } from '../../proto/wire/codes.ts';
import type { TaskState } from '../../proto/wire/messages.ts';
import type { Cancelled } from './cancelled.ts';
import type { InHand } from './in-hand.ts';

export class Unwanted {
  readonly state: TaskState;
  readonly code: Code;
  readonly detail: string;
  constructor(state: TaskState, code: Code, detail: string) {
    this.state = state;
    this.code = code;
    this.detail = detail;
  }
}

/** @param serverMs the queue's time. @param leftMs of its working time, null = not limited */
export function unwantedNow(
  { envelope, delivery }: Pick<InHand, 'envelope' | 'delivery'>,
  serverMs: number,
  leftMs: number | null,
  cancelled: Pick<Cancelled, 'has'>,
): Unwanted | null {
  if (serverMs - delivery.storedAtMs > envelope.expires_ms)
    return new Unwanted('expired', Code.expired, `not delivered within ${envelope.expires_ms} ms`);
  if (cancelled.has(envelope.task_id, envelope.source, envelope.home))
    return new Unwanted('cancelled', Code.cancelled, 'called off before anybody had it');
  if (leftMs !== null && leftMs <= 0)
    return new Unwanted('failed', Code.deadline_exceeded, `its ${envelope.deadline_ms} ms of working time are over`);
  return null;
}
