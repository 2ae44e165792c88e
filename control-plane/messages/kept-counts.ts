/**
 * How many entries of each kind are kept for people. The server counts a stream's messages for nothing, and its subjects one by one:
 * so they are asked for only when something has come or gone, not more often than every half minute, and not at all where there are
 * too many; then it is known how many there are together.
 */
import type { Clock } from '../../base/clock.ts';
import type { StreamFacts } from '../../base/jetstream.ts';
import type { Bus } from '../../base/nats.ts';
import type { KeptKind } from '../../proto/wire/messages.ts';
import { KEPT_STREAM, type Subjects } from '../../proto/wire/subjects.ts';
import { KEPT_KINDS } from './kept-entry.ts';

const APART_MS = 30_000;
const MOST = 5_000;

export class KeptCounts {
  readonly #bus: Pick<Bus, 'subjects'>;
  readonly #subjects: Subjects;
  readonly #clock: Clock;
  #counts: Readonly<Record<KeptKind, number>> | null = null;
  #countedMs = Number.NEGATIVE_INFINITY;
  #of = '';
  #isCounting = false;

  constructor({ bus, subjects, clock }: { readonly bus: Pick<Bus, 'subjects'>; readonly subjects: Subjects; readonly clock: Clock }) {
    this.#bus = bus;
    this.#subjects = subjects;
    this.#clock = clock;
  }

  /** null = not known: not counted yet, or too many to count. */
  get counts(): Readonly<Record<KeptKind, number>> | null {
    return this.#counts;
  }

  /** The stream as the server has it now. */
  seen({ messages, firstSeq, lastSeq }: StreamFacts): void {
    if (messages > MOST) {
      this.#counts = null;
      this.#of = '';
      return;
    }
    const of = `${messages} ${firstSeq} ${lastSeq}`;
    const now = this.#clock.now();
    if (of === this.#of || this.#isCounting || now - this.#countedMs < APART_MS) return;
    this.#countedMs = now;
    this.#isCounting = true;
    void this.#count(of).finally(() => {
      this.#isCounting = false;
    });
  }

  async #count(of: string): Promise<void> {
    const found = await this.#bus.subjects(KEPT_STREAM, this.#subjects.allKept);
    if (found instanceof Map) {
      const counts: Record<KeptKind, number> = { dead: 0, in_doubt: 0, review: 0 };
      for (const [subject, count] of found)
        for (const kind of KEPT_KINDS) if (subject.startsWith(this.#subjects.kept(kind, '*').slice(0, -1))) counts[kind] += count;
      this.#counts = counts;
      this.#of = of;
    }
  }
}
