/**
 * Tells the control plane of spans, and the other sidecars of traces that something failed in (proto/wire/spans.ts). Core NATS: a
 * batch that is lost costs a gap in a picture. A batch is closed when it is full, or at the end of its second. What a second has no room
 * for, and what comes while there is no connection, is left in the ring of spans, and taken from there as long as it still stands there.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { type KeepTraces, MAX_BATCH_BYTES, MAX_SPANS_PER_BATCH, SPANS_WIRE } from '../../proto/wire/spans.ts';
import { CONTROL, type Subjects } from '../../proto/wire/subjects.ts';
import { readsWire } from '../../proto/wire/version.ts';
import { spanOf } from './span-of.ts';
import type { SpanRecord } from './span-record.ts';
import type { ControlSink } from './spans.ts';

const EVERY_MS = 1_000;
/** What stands around the spans. */
const FRAME_BYTES = 512;
/** Batches of one period, at most: 2,048 spans a second. */
const MAX_BATCHES = 4;
const MAX_TRACES_HEARD = 1_000;
const TRACE_ID = /^[0-9a-f]{32}$/;

export interface SpansPublisherParts {
  readonly bus: Pick<Bus, 'connected' | 'publish' | 'subscribe'>;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly sidecar: string;
  readonly instance: string;
  /** What was dropped before it came here. */
  readonly dropped: () => number;
  /** Another sidecar names traces. */
  readonly keep: (traces: readonly string[]) => void;
  /** The control plane asks for traces. */
  readonly show: (traces: readonly string[]) => void;
  /** There is room again: what was not taken is to be offered. False = there is more. */
  readonly tellOwed: () => boolean;
}

export class SpansPublisher implements ControlSink {
  /** The connection did not take them. */
  dropped = 0;
  /** Handed to the connection. */
  published = 0;
  readonly #parts: SpansPublisherParts;
  readonly #hearing: { close(): void };
  #texts: string[] = [];
  #bytes = 0;
  #batches = 0;
  #timer: Timer | null = null;
  /** Something was not taken. */
  #owes = false;

  constructor(parts: SpansPublisherParts) {
    this.#parts = parts;
    const own = parts.subjects.keep(parts.sidecar);
    const asked = parts.subjects.keep(CONTROL);
    this.#hearing = parts.bus.subscribe(parts.subjects.keep('*'), ({ subject, data }) => {
      if (subject === own) return;
      const traces = readKeep(data);
      if (traces === null) return;
      if (subject === asked) parts.show(traces);
      else parts.keep(traces);
    });
  }

  take(record: SpanRecord): boolean {
    this.#timer ??= this.#parts.clock.after(EVERY_MS, this.#onTimer);
    // Before it is made into text: that is most of what it costs.
    if (this.#batches >= MAX_BATCHES || !this.#parts.bus.connected) return this.#later();
    const text = JSON.stringify(spanOf(record));
    const bytes = Buffer.byteLength(text) + 1;
    if (this.#texts.length >= MAX_SPANS_PER_BATCH || this.#bytes + bytes + FRAME_BYTES > MAX_BATCH_BYTES) this.#send();
    if (this.#batches >= MAX_BATCHES) return this.#later();
    this.#texts.push(text);
    this.#bytes += bytes;
    return true;
  }

  name(traces: readonly string[]): void {
    const { bus, subjects, sidecar } = this.#parts;
    const said: KeepTraces = { wire: SPANS_WIRE, traces };
    if (bus.connected) bus.publish(subjects.keep(sidecar), Buffer.from(JSON.stringify(said), 'utf8'));
  }

  /** What is at hand leaves; the bus must still be there. */
  close(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#hearing.close();
    this.#send();
    this.dropped += this.#texts.length;
    this.#texts = [];
  }

  readonly #onTimer = (): void => {
    this.#timer = null;
    this.#send();
    this.#batches = 0;
    if (!this.#owes) return;
    this.#timer = this.#parts.clock.after(EVERY_MS, this.#onTimer);
    if (this.#parts.bus.connected) this.#owes = !this.#parts.tellOwed();
  };

  #later(): boolean {
    this.#owes = true;
    return false;
  }

  #send(): void {
    if (this.#texts.length === 0) return;
    if (!this.#parts.bus.connected) {
      this.#owes = true;
      return;
    }
    const { bus, subjects, sidecar, instance } = this.#parts;
    const dropped = this.#parts.dropped() + this.dropped;
    // Put together from the texts, which were made to know their length. As SpanBatch.
    const head = JSON.stringify({ wire: SPANS_WIRE, sidecar, instance, dropped });
    const data = Buffer.from(`${head.slice(0, -1)},"spans":[${this.#texts.join(',')}]}`, 'utf8');
    if (bus.publish(subjects.spans(sidecar), data)) this.published += this.#texts.length;
    else this.dropped += this.#texts.length;
    this.#texts = [];
    this.#bytes = 0;
    this.#batches++;
  }
}

/** Null = it is none of ours. */
function readKeep(data: Buffer): readonly string[] | null {
  try {
    const said = JSON.parse(data.toString('utf8')) as KeepTraces | null;
    if (said === null || !readsWire(said.wire, SPANS_WIRE) || !Array.isArray(said.traces)) return null;
    return said.traces.slice(0, MAX_TRACES_HEARD).filter((trace) => typeof trace === 'string' && TRACE_ID.test(trace));
  } catch {
    return null;
  }
}
