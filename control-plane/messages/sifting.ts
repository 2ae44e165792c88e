/**
 * Takes chosen messages out of the queue, wherever in it they lie. A server below 2.10 must not be told to delete one from the midst:
 * it loses sight of others of the same subject, and no consumer gets those until it is restarted (measured: of 1 to 5 delete 5, 4, 2
 * and 1 in this order, and 3 is not there for anybody). There a message is pulled, as a worker would, and acknowledged; what lies
 * before it is pulled too and goes back at once. Newer servers are asked to delete.
 */
import { ackConfirmed, type Delivery, nak, Puller } from '../../base/puller.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';
import type { MessageParts } from './parts.ts';

const PULL_FOR_MS = 1_000;
const ACK_MS = 5_000;
/** Of what was asked for, held at a time. */
const MOST_BYTES = 16_777_216;

type Parts = Pick<MessageParts, 'bus' | 'clock'>;

/** Whether messages may be deleted in any order. */
export function deletesAnywhere({ bus }: Pick<MessageParts, 'bus'>): boolean {
  // what is warned of is below 2.10.27, the least that was tried
  return bus.serverWarning === null;
}

/**
 * Pulls so many at most and keeps those that are wanted; the others go back when all have come. Only what nobody has in hand comes.
 * What is given must be acknowledged or given back.
 */
export function sift(
  { bus, clock }: Parts,
  consumer: string,
  count: number,
  isWanted: (delivery: Delivery) => boolean,
): Promise<Delivery[]> {
  return new Promise((resolve) => {
    const wanted: Delivery[] = [];
    const others: string[] = [];
    let left = count;
    let bytes = 0;
    const end = (): void => {
      timer.cancel();
      puller.close();
      for (const ackSubject of others) nak(bus, { ackSubject }, 0);
      resolve(wanted);
    };
    const timer = clock.after(10 * PULL_FOR_MS, end);
    const puller = new Puller(bus, clock, {
      stream: TASK_STREAM,
      consumer,
      expiresMs: PULL_FOR_MS,
      onReturned: end,
      onMessage: (delivery) => {
        left--;
        if (isWanted(delivery)) {
          wanted.push(delivery);
          bytes += delivery.data.length;
        } else others.push(delivery.ackSubject);
        if (left === 0 || bytes > MOST_BYTES) end();
      },
    });
    puller.request(count);
  });
}

/** How much lies before one that a person takes out, at most: an old server only. */
const MOST_BEFORE = 2_000;

/** Takes one out that waits. A sentence when it cannot. @param consumer of whom it waits; null = of none */
export async function takeOne(parts: Parts, seq: number, consumer: string | null): Promise<string | null> {
  if (consumer === null || deletesAnywhere(parts)) {
    const gone = await parts.bus.deleteMessage(TASK_STREAM, seq);
    return gone !== null && typeof gone === 'object' ? gone.failed : null;
  }
  const facts = await parts.bus.consumer(TASK_STREAM, consumer);
  if (facts === null) return await takeOne(parts, seq, null);
  if ('failed' in facts) return facts.failed;
  const count = Math.min(MOST_BEFORE, facts.pending + facts.ackPending);
  const found = count === 0 ? [] : await sift(parts, consumer, count, ({ streamSeq }) => streamSeq === seq);
  for (const delivery of found) if (await takeOut(parts, delivery)) return null;
  return `this old nats-server does not give it away (${parts.bus.serverVersion}); try again, or take out first what lies before it`;
}

export async function takeOut({ bus }: Parts, delivery: Delivery): Promise<boolean> {
  return await ackConfirmed(bus, delivery, ACK_MS);
}
