/**
 * When the types of a server's methods are read: once, at the first call, and kept; reflection is asked again after a
 * reconnect (another release may run there now) and when the server does not know the method. While a new reading fails,
 * the last good one serves. How they are read, and the library that does it, is loaded with the first reading.
 */
import type { Clock } from '../../base/clock.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Channel } from './grpc-channel.ts';
import type { Schema } from './grpc-schema.ts';
import type { SchemaReading } from './grpc-schema-reading.ts';

/** A reading that is younger is not doubted. */
const FRESH_MS = 2_000;

export class Schemas {
  readonly #channel: Channel;
  readonly #service: string;
  readonly #descriptor: string | null;
  readonly #clock: Clock;
  readonly #metadata: () => readonly string[];
  #schema: Schema | null = null;
  #readAt = 0;
  #epoch = 0;
  #isDoubted = false;
  #reading: Promise<SchemaReading> | null = null;

  /** @param metadata flat name, value … sent to the reflection service too (a credential). */
  constructor(channel: Channel, service: string, descriptor: string | null, clock: Clock, metadata: () => readonly string[]) {
    this.#channel = channel;
    this.#service = service;
    this.#descriptor = descriptor;
    this.#clock = clock;
    this.#metadata = metadata;
  }

  /** Without waiting; null when it has to be read first. */
  get current(): Schema | null {
    return this.#isDue ? null : this.#schema;
  }

  read(): Promise<SchemaReading> {
    this.#reading ??= this.#readNow();
    return this.#reading;
  }

  /** Something did not fit: true when reading it again may help. */
  doubt(): boolean {
    if (this.#schema === null || this.#clock.now() - this.#readAt < FRESH_MS) return false;
    this.#isDoubted = true;
    return true;
  }

  get #isDue(): boolean {
    if (this.#schema === null || this.#isDoubted) return true;
    return this.#descriptor === null && this.#epoch !== this.#channel.epoch;
  }

  async #readNow(): Promise<SchemaReading> {
    const read = await this.#readOnce();
    this.#reading = null;
    this.#isDoubted = false;
    this.#epoch = this.#channel.epoch;
    this.#readAt = this.#clock.now();
    if ('schema' in read) this.#schema = read.schema;
    else if (this.#schema !== null) return { schema: this.#schema };
    return read;
  }

  /** Never rejects: a fault in it would else be kept for every call to come. */
  async #readOnce(): Promise<SchemaReading> {
    try {
      const { readDescriptor, Reflection } = await import('./grpc-schema-reading.ts');
      return await (this.#descriptor === null
        ? new Reflection(this.#channel, this.#service, this.#clock, this.#metadata()).read()
        : readDescriptor(this.#descriptor));
    } catch (error) {
      return { code: Code.internal, words: `a fault in Agent-Reach while types were read: ${(error as Error).name}` };
    }
  }
}
