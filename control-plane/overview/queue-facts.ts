/**
 * What waits in the queue and what is kept for people, as NATS counts it: any replica can ask. Looked at when somebody wants to know
 * and the last look is some seconds old; kinds are counted anew only when the stream has changed, or could not be. Which pools have nobody who works
 * on them is known to the leader alone.
 */
import type { Clock } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { KEPT_STREAM, type Subjects, TASK_STREAM } from '../../proto/wire/subjects.ts';

export interface QueueFacts {
  /** In the stream: waiting for a worker, or with one. Null = not known. */
  readonly tasks: number | null;
  readonly dead: number | null;
  readonly inDoubt: number | null;
  readonly review: number | null;
}

const NOTHING: QueueFacts = Object.freeze({ tasks: null, dead: null, inDoubt: null, review: null });
const LEAST_AGE_MS = 2_000;
/** Older ones are not shown: nobody may have asked for hours. */
const MOST_AGE_MS = 5_000;
/** Subjects are counted one by one: beyond so many messages it would be felt. */
const MOST_COUNTED = 50_000;

export class QueueLook {
  readonly #bus: Pick<Bus, 'connected' | 'stream' | 'subjects'>;
  readonly #subjects: Subjects;
  readonly #clock: Clock;
  #facts = NOTHING;
  #lookedMs = Number.NEGATIVE_INFINITY;
  #looking: Promise<void> | null = null;
  /** First and last sequence, and messages, when kinds were counted. */
  #countedAt = '';

  constructor(bus: Pick<Bus, 'connected' | 'stream' | 'subjects'>, subjects: Subjects, clock: Clock) {
    this.#bus = bus;
    this.#subjects = subjects;
    this.#clock = clock;
  }

  /** As of the last look, at most some seconds old; waits for a new one only when that is older. */
  async facts(): Promise<QueueFacts> {
    if (!this.#bus.connected) return NOTHING;
    const ageMs = this.#clock.now() - this.#lookedMs;
    if (ageMs >= LEAST_AGE_MS) this.#looking ??= this.#look();
    if (ageMs >= MOST_AGE_MS && this.#looking !== null) await this.#looking;
    return this.#facts;
  }

  async #look(): Promise<void> {
    const [tasks, kept] = await Promise.all([this.#bus.stream(TASK_STREAM), this.#bus.stream(KEPT_STREAM)]);
    const waiting = tasks === null || 'failed' in tasks ? null : tasks.messages;
    let { dead, inDoubt, review } = this.#facts;
    if (kept === null || 'failed' in kept) {
      [dead, inDoubt, review] = [null, null, null];
      this.#countedAt = '';
    } else {
      const at = `${kept.firstSeq} ${kept.lastSeq} ${kept.messages}`;
      if (at !== this.#countedAt) {
        this.#countedAt = at;
        const isMuch = kept.messages > MOST_COUNTED;
        [dead, inDoubt, review] = isMuch
          ? [null, null, null]
          : await Promise.all([this.#count('dead'), this.#count('in_doubt'), this.#count('review')]);
        if (!isMuch && (dead === null || inDoubt === null || review === null)) this.#countedAt = '';
      }
    }
    this.#facts = { tasks: waiting, dead, inDoubt, review };
    this.#lookedMs = this.#clock.now();
    this.#looking = null;
  }

  async #count(kind: 'dead' | 'in_doubt' | 'review'): Promise<number | null> {
    const found = await this.#bus.subjects(KEPT_STREAM, this.#subjects.kept(kind, '*'));
    return 'failed' in found ? null : found.size;
  }
}
