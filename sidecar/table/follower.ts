/**
 * The subscriptions of one sidecar: its scope, each capability in it, the beacon. Plain ones: they cost the server a line
 * in its routing table and are gone with the connection.
 */
import type { BusMessage } from '../../base/bus-message.ts';
import { type Subjects, Tail } from '../../proto/wire/subjects.ts';
import type { RegistryBus } from './bus.ts';
import { capabilityTail } from './scope.ts';

export class Follower {
  readonly #bus: RegistryBus;
  readonly #subjects: Subjects;
  readonly #pushed: (tail: string, message: BusMessage) => void;
  /** By what is subscribed to, as a tail. */
  readonly #following = new Map<string, { close(): void }>();
  readonly #always: { close(): void }[] = [];

  constructor(bus: RegistryBus, subjects: Subjects, pushed: (tail: string, message: BusMessage) => void) {
    this.#bus = bus;
    this.#subjects = subjects;
    this.#pushed = pushed;
  }

  /** How many subjects. */
  get size(): number {
    return this.#following.size;
  }

  /** Something else than a state. */
  always(subject: string, handler: (message: BusMessage) => void): void {
    this.#always.push(this.#bus.subscribe(subject, handler));
  }

  follow(tail: string): void {
    if (this.#following.has(tail)) return;
    this.#following.set(
      tail,
      this.#bus.subscribe(
        this.#subjects.pushed(tail),
        (message) => {
          const from = this.#subjects.tailOf(message.subject);
          if (from !== null) this.#pushed(from, message);
        },
        { pushed: true },
      ),
    );
  }

  /** @param isSharded it has shards beside the first one. */
  followCapability(name: string, isSharded: boolean): void {
    this.follow(Tail.capability(name));
    if (isSharded) this.follow(shardsOf(name));
  }

  unfollowCapability(name: string): void {
    for (const tail of [Tail.capability(name), shardsOf(name)]) this.#unfollow(tail);
  }

  /** Ends what follows other capabilities than these. */
  keepOnly(names: ReadonlySet<string>): void {
    for (const tail of this.#following.keys()) {
      const name = tail.endsWith('.*') ? tail.slice('cap.'.length, -2) : capabilityTail(tail)?.name;
      if (name !== undefined && !names.has(name)) this.#unfollow(tail);
    }
  }

  stop(): void {
    for (const subscription of [...this.#always, ...this.#following.values()]) subscription.close();
    this.#following.clear();
    this.#always.length = 0;
  }

  #unfollow(tail: string): void {
    this.#following.get(tail)?.close();
    this.#following.delete(tail);
  }
}

function shardsOf(name: string): string {
  return `${Tail.capability(name)}.*`;
}
