/**
 * A way past the NATS client for the many small messages of the fast path, over the connection that it keeps: it dials, logs in,
 * subscribes, pings and closes as before. It reaches into the client where it offers no door, and so it looks first whether all
 * is there as it is in the version that this was made for (package.json pins it); where not, everything goes by the client, slower.
 */
import type { BusMessage } from './bus-message.ts';
import { type Command, writeCommands } from './nats-commands.ts';
import { NatsReader, type OtherReader } from './nats-reader.ts';

/** Of the client's connection, what is used here. */
interface Inside {
  parser: OtherReader & { readonly state: number };
  sendCommand(bytes: Uint8Array): void;
}

/** The client's reader stands between two messages. */
const BETWEEN = 0;

export class NatsFastLane {
  readonly #inside: Inside;
  readonly #reader: NatsReader;
  readonly #give = (bytes: Buffer): void => this.#inside.sendCommand(bytes);

  private constructor(inside: Inside, broke: (error: unknown) => void) {
    this.#inside = inside;
    this.#reader = new NatsReader(inside.parser, broke);
    inside.parser = this.#reader as unknown as Inside['parser'];
  }

  /** Null when this client does not let us. To be called before anything is subscribed to. */
  static of(connection: object, broke: (error: unknown) => void): NatsFastLane | null {
    const inside = (connection as { readonly protocol?: Partial<Inside> }).protocol;
    if (typeof inside?.sendCommand !== 'function' || typeof inside.parser?.parse !== 'function' || inside.parser.state !== BETWEEN)
      return null;
    return new NatsFastLane(inside as Inside, broke);
  }

  on(sid: number, take: (message: BusMessage) => void): void {
    this.#reader.on(sid, take);
  }

  off(sid: number): void {
    this.#reader.off(sid);
  }

  send(commands: readonly Command[]): void {
    writeCommands(commands, this.#give);
  }
}
