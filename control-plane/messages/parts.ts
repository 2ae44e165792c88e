/** What the parts of a reign that deal with messages share. */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Bus } from '../../base/nats.ts';
import type { Random } from '../../base/random.ts';
import type { Envelope } from '../../proto/wire/envelope.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import type { Mirror } from '../push/mirror.ts';
import type { Change as Message, Written } from '../push/writer.ts';
import type { Registry } from '../registry/registry.ts';
import type { MessagesConfig } from './config.ts';

export interface MessageParts {
  readonly bus: Bus;
  /** The connection on which sidecars are heard. */
  readonly inbound: Bus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: Logger;
  readonly config: MessagesConfig;
  /** Copies of every stream. */
  readonly replicas: number;
  readonly epoch: string;
  readonly mirror: Mirror;
  readonly registry: () => Registry;
  /** The leader's pen; answers within the time that an asker waits. */
  readonly write: (messages: readonly Message[]) => Promise<Written>;
  /** The text that is in force under a tail, or will be; null = none. */
  readonly latest: (tail: string) => string | null;
  /** A sudden loss is not believed yet: nothing is taken from anybody. */
  readonly isHeld: () => boolean;
  /** The word that an agent is at home at a sidecar, said anew; null = it cannot be. Absent = identities are not issued here. */
  readonly restated?: (statement: string, agent: string, sidecar: string) => Promise<string | null>;
}

/** A message that a person sends on its way again: the statement about its sender would be too old. */
export async function withNewStatement({ restated }: Pick<MessageParts, 'restated'>, envelope: Envelope): Promise<Envelope> {
  const { home_statement: before, source, home } = envelope;
  if (before === undefined || restated === undefined) return envelope;
  const now = await restated(before, source, home);
  return now === null ? envelope : { ...envelope, home_statement: now };
}

/** Does it for each, so many at a time; false when any said so. */
export async function forEachOf<T>(items: Iterable<T>, atOnce: number, act: (item: T) => Promise<boolean>): Promise<boolean> {
  const iterator = items[Symbol.iterator]();
  let isWhole = true;
  const work = async (): Promise<void> => {
    for (let next = iterator.next(); next.done !== true; next = iterator.next()) if (!(await act(next.value))) isWhole = false;
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return isWhole;
}
