/**
 * Messages that a server of 2.9 brings back when it was killed: acknowledged, below the floor of the consumer that owns their subject,
 * delivered to nobody any more. They fill the queue, count as waiting, and would all be done again when a partition gets a new
 * consumer. They are deleted one by one. A floor is the server's own word that everything up to it is acknowledged, and it is
 * kept over restarts; so nothing that waits, or that somebody has in hand, is below one. The one exception, a server that has lost
 * the end of its stream (a power failure) and gives numbers a second time, is looked for, and such messages are left alone.
 */
import type { ConsumerFacts } from '../../base/consumer.ts';
import type { Stored, StreamFacts } from '../../base/jetstream.ts';
import type { Bus } from '../../base/nats.ts';
import { Consumer } from '../../proto/wire/messages.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';
import type { MessageParts } from './parts.ts';

/** Read at a time. */
const PAGE = 64;
/** Deleted of one consumer in one look; the next look goes on. */
const MOST = 20_000;
/** Made by the control plane: `<pool>_<lane>` or `<pool>_s<index>_t<term>`. */
const OURS = /^p[a-z2-7]{20}_/;

/** Numbers up to this were given out before; what was stored under one of them after that moment is new. */
export interface SecondTime {
  readonly upTo: number;
  readonly afterMs: number;
}

/** Whether it is one for certain. Pure. */
export function isGhost({ seq, timestampMs }: Pick<Stored, 'seq' | 'timestampMs'>, floor: number, twice: readonly SecondTime[]): boolean {
  if (seq > floor) return false;
  for (const { upTo, afterMs } of twice) if (seq <= upTo && timestampMs > afterMs) return false;
  return true;
}

/** Whether the stream ever went back, from what is seen of it now and then. Pure. */
export class StreamEnd {
  #seq = 0;
  #atMs = 0;
  readonly twice: SecondTime[] = [];

  /** Answers a sentence when it has gone back. @param floors of its consumers */
  seen({ lastSeq, lastAtMs }: Pick<StreamFacts, 'lastSeq' | 'lastAtMs'>, floors: Iterable<number>): string | null {
    const before = this.#seq;
    let highest = before;
    for (const floor of floors) if (floor > highest) highest = floor;
    if (lastSeq >= highest) {
      this.#seq = lastSeq;
      this.#atMs = lastAtMs;
      return null;
    }
    if (this.twice.some(({ upTo }) => upTo >= highest)) return null;
    // Seen by us: what we saw last is the end that was lost. Else its new end is all that is known.
    this.twice.push({ upTo: highest, afterMs: lastSeq < before && highest === before ? this.#atMs : lastAtMs });
    return `the stream ${TASK_STREAM} has gone back from ${highest} to ${lastSeq}: the server has lost messages`;
  }
}

export class Ghosts {
  /** Deleted in this reign. */
  count = 0;
  readonly #parts: MessageParts;
  readonly #end = new StreamEnd();
  #isBusy = false;

  constructor(parts: MessageParts) {
    this.#parts = parts;
  }

  /** Looks for them where there are more messages than consumers know of. Not awaited by who looks: it may take a while. */
  async sweep(stream: StreamFacts, consumers: Iterable<ConsumerFacts>): Promise<void> {
    const all = [...consumers].filter(({ name }) => OURS.test(name));
    const wentBack = this.#end.seen(
      stream,
      all.map(({ ackFloorSeq }) => ackFloorSeq),
    );
    if (wentBack !== null) this.#parts.logger.error(wentBack);
    let known = 0;
    for (const { pending, ackPending } of all) known += pending + ackPending;
    if (this.#isBusy || stream.messages <= known) return;
    this.#isBusy = true;
    try {
      for (const each of all) if (each.ackFloorSeq >= stream.firstSeq) await this.clear(each);
    } finally {
      this.#isBusy = false;
    }
  }

  /** Those of one consumer. */
  async clear({ name, filter, ackFloorSeq }: ConsumerFacts): Promise<void> {
    const { bus, logger } = this.#parts;
    let gone = 0;
    let from = 1;
    while (gone < MOST) {
      const page = await ghostsFrom(bus, filter, from, ackFloorSeq, this.#end.twice);
      if (page === null) break;
      for (const { seq } of page) {
        from = seq + 1;
        const deleted = await bus.deleteMessage(TASK_STREAM, seq);
        if (deleted === true) gone++;
        else if (deleted !== null)
          return logger.warn({ consumer: Consumer.shown(name) }, `an acknowledged message is not deleted: ${deleted.failed}`);
      }
      if (page.length < PAGE) break;
    }
    this.count += gone;
    if (gone > 0)
      logger.warn(
        { consumer: Consumer.shown(name), messages: gone, up_to: ackFloorSeq },
        'messages that were acknowledged long ago had come back with a restart of NATS, and are deleted',
      );
  }
}

/** The next ones; null = they cannot be read. */
async function ghostsFrom(bus: Bus, filter: string, from: number, floor: number, twice: readonly SecondTime[]): Promise<Stored[] | null> {
  const found: Stored[] = [];
  while (found.length < PAGE) {
    const next = await bus.history(TASK_STREAM, filter, 1, from);
    if ('failed' in next) return null;
    const [stored] = next;
    if (stored === undefined || !isGhost(stored, floor, twice)) break;
    found.push(stored);
    from = stored.seq + 1;
  }
  return found;
}
