/**
 * What a replica hears while it does not lead: the pushes, which it takes into its mirror; the beacon, by which it finds out
 * that it missed something; beats and reports, so that it can answer for the fleet. While it leads, only the reports count:
 * it knows best what it has written.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import { type BusMessage, republished } from '../../base/bus-message.ts';
import type { Bus } from '../../base/nats.ts';
import type { Beacon } from '../../proto/wire/registry.ts';
import { type Subjects, Tail } from '../../proto/wire/subjects.ts';
import { readHeartbeat, readReport } from '../registry/requests.ts';
import type { FollowerCopy } from './copy.ts';
import type { Fleet } from './fleet.ts';
import { parse } from './json.ts';
import type { Mirror } from './mirror.ts';
import { readConfig } from './streams.ts';

/** What was missed is read again, but not for every message of a burst. */
const REREAD_MS = 200;

export interface FollowingParts {
  readonly bus: Bus;
  /** The connection on which sidecars are heard. */
  readonly inbound: Bus;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly mirror: Mirror;
  readonly copy: FollowerCopy;
  readonly fleet: Fleet;
  readonly epoch: () => string;
  readonly isLeading: () => boolean;
}

export class Following {
  readonly #parts: FollowingParts;
  #reread: Timer | null = null;
  #isListening = false;
  #isStopped = false;

  constructor(parts: FollowingParts) {
    this.#parts = parts;
  }

  /** Reads everything and listens from then on; a sentence when it cannot. */
  async begin(): Promise<string | null> {
    const failed = this.#parts.isLeading() ? null : await this.#read();
    if (failed === null) this.#listen();
    return failed;
  }

  rereadSoon(): void {
    if (this.#isStopped) return;
    this.#reread ??= this.#parts.clock.after(REREAD_MS, () => {
      this.#reread = null;
      if (!this.#parts.isLeading()) void this.#read();
    });
  }

  stop(): void {
    this.#isStopped = true;
    this.#reread?.cancel();
  }

  async #read(): Promise<string | null> {
    const { bus, subjects, mirror, isLeading } = this.#parts;
    const read = await readConfig(bus, subjects);
    if ('failed' in read) return read.failed;
    if (!isLeading()) mirror.replace(read.entries, read.lastSeq);
    return null;
  }

  #listen(): void {
    if (this.#isListening) return;
    this.#isListening = true;
    const { bus, inbound, subjects, clock, mirror, copy, fleet, epoch, isLeading } = this.#parts;
    const pushed = (message: BusMessage): void => {
      if (isLeading()) return;
      const one = republished(message);
      const tail = subjects.tailOf(message.subject);
      if (one === null || tail === null || tail === Tail.epoch) return;
      if (one.seq > mirror.lastSeq + 1) this.rereadSoon();
      mirror.apply(tail, one.seq, one.data.toString('utf8'));
    };
    bus.subscribe(subjects.push, pushed, { pushed: true });
    bus.subscribe(subjects.beacon, (message) => {
      const beacon = parse(message.data) as Beacon | null;
      if (beacon === null || isLeading()) return;
      if (beacon.epoch === epoch() && beacon.lastSeq > mirror.lastSeq) this.rereadSoon();
    });
    inbound.subscribe(subjects.heartbeats, (message) => {
      if (isLeading()) return;
      const beat = readHeartbeat(parse(message.data));
      if (beat !== null && message.subject === subjects.heartbeat(beat.sidecar)) copy.beat(beat);
    });
    inbound.subscribe(subjects.reports, (message) => {
      const report = readReport(parse(message.data));
      if (report === null || message.subject !== subjects.report(report.sidecar)) return;
      fleet.take(report, clock.now());
      if (!isLeading()) copy.report(report);
    });
  }
}
