/** One message that this sidecar has from the queue and has not ended, from its arrival to its acknowledgement. */
import type { Delivery } from '../../base/puller.ts';
import type { Execution } from '../../proto/language/types.ts';
import type { Envelope } from '../../proto/wire/envelope.ts';
import type { Call } from '../call/call.ts';
import type { Claim } from '../ledger/ledger.ts';
import type { Reported } from './door.ts';
import type { Report } from './hand-over.ts';
import type { StoppedBy } from './outcome.ts';
import type { Seat } from './seats.ts';

export class InHand {
  /** The latest one of this message: what is said of it counts. */
  delivery: Delivery;
  readonly envelope: Envelope;
  readonly payload: Buffer;
  /** Consumer that it came from. */
  readonly consumer: string;
  readonly seat: Seat;
  /** It is tried again here, since a later one of its key must not pass it. */
  readonly inPlace: boolean;
  /** `clock.now()` of the arrival. */
  readonly arrivedAt: number;
  /** `clock.now()` at which it was certainly ours. */
  confirmedAt: number;
  isExtending = false;
  execution: Execution = 'once';
  call: Call | null = null;
  claim: Claim | null = null;
  /** The ledger counts its tries. */
  isRecorded = false;
  /** Ends the pause before it is tried again in its place. */
  wake: (() => void) | null = null;
  /** Its partition has another owner: it is not tried again here. */
  hasMoved = false;
  /** Hand-overs so far. */
  tries = 0;
  /** Who had it last, where that is not the agent that it was taken for; '' = nobody knows. */
  hadBy: string | null = null;
  /** Its hand-overs by this process. */
  handOvers = 0;
  /** The span of the one under way; '' = there is none. */
  spanId = '';
  /** `clock.now()` of the hand-over; -1 = not handed over yet. */
  handedAt = -1;
  /** Wall clock when the agent is known to have it; 0 = not known. */
  receivedAtMs = 0;
  stoppedBy: StoppedBy = 'no';
  /** The agent goes on with it (202): tells how that ended. */
  onReport: ((report: Report) => void) | null = null;
  /** Whoever reported the end is told what became of that. */
  onStored: ((reported: Reported) => void) | null = null;
  reported: Reported = 'unreachable';
  /** When the task's whole time is over, `clock.now()` scale. */
  endsAt = Number.POSITIVE_INFINITY;
  /** When the agent's time for it is over, `clock.now()` scale. */
  dueAt = Number.POSITIVE_INFINITY;
  /** An agent goes on with it for so long that a restart is thought of. */
  isLong = false;
  /** It is remembered over a restart. */
  isKept = false;
  /** How it ends is known: nothing stops it any more. */
  isDecided = false;
  /** The hand-over is over and its end is being written down. */
  isEnding = false;
  /** The queue has confirmed that it forgets it. */
  isAcked = false;
  /** The seat has been given back. */
  isSeatFree = false;

  constructor(
    delivery: Delivery,
    envelope: Envelope,
    payload: Buffer,
    consumer: string,
    seat: Seat,
    inPlace: boolean,
    arrivedAt: number,
    now: number,
  ) {
    this.delivery = delivery;
    this.envelope = envelope;
    this.payload = payload;
    this.consumer = consumer;
    this.seat = seat;
    this.inPlace = inPlace;
    this.arrivedAt = arrivedAt;
    this.confirmedAt = now;
  }

  /** Whoever reported how a try ended is told what became of that. */
  tell(reported: Reported): void {
    const told = this.onStored;
    this.onStored = null;
    told?.(reported);
  }
}
