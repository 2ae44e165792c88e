/**
 * The traces that a replica holds: in memory, by bytes and by age. Those in which something failed or was slow are held for longer
 * and go last, but for a quarter of the room, which the others keep: where everything fails, one still sees what a good call was.
 * What is thrown out is counted, and remembered by name for a while, so that its rest does not pass for the whole.
 */
import type { TracesConfig } from './config.ts';
import { KeptTrace } from './kept-trace.ts';
import type { ToldSpan } from './read-batch.ts';

const FORGOTTEN_REMEMBERED = 10_000;
/** Of the bytes, what traces in which all went well keep against the others. */
const ORDINARY_SHARE = 0.25;

export interface StoreCounts {
  /** Spans that were kept; that were told twice; that had no room in their trace. */
  readonly spans: number;
  readonly twice: number;
  readonly cut: number;
  /** Traces thrown out: to make room, and by age. */
  readonly evicted: number;
  readonly aged: number;
}

export class TraceStore {
  readonly #config: TracesConfig;
  /** Longest without a word first; a trace stands in one of the two. */
  readonly #ordinary = new Map<string, KeptTrace>();
  readonly #troubled = new Map<string, KeptTrace>();
  readonly #forgotten = new Set<string>();
  #ordinaryBytes = 0;
  #troubledBytes = 0;
  #spans = 0;
  #twice = 0;
  #cut = 0;
  #evicted = 0;
  #aged = 0;

  constructor(config: TracesConfig) {
    this.#config = config;
  }

  get bytes(): number {
    return this.#ordinaryBytes + this.#troubledBytes;
  }

  get size(): number {
    return this.#ordinary.size + this.#troubled.size;
  }

  get counts(): StoreCounts {
    return { spans: this.#spans, twice: this.#twice, cut: this.#cut, evicted: this.#evicted, aged: this.#aged };
  }

  /** True when it is new. */
  add(span: ToldSpan, nowMs: number): boolean {
    const id = span.trace_id;
    const was = this.#troubled.get(id) ?? this.#ordinary.get(id);
    const trace = was ?? this.#begin(id, nowMs);
    const before = trace.bytes;
    const wasTroubled = trace.troubled;
    const added = trace.add(span, nowMs, this.#config.slowMs);
    if (added !== 'new') {
      if (added === 'twice') this.#twice++;
      else this.#cut++;
      return false;
    }
    this.#spans++;
    const more = trace.bytes - before;
    if (wasTroubled) this.#troubledBytes += more;
    else this.#ordinaryBytes += more;
    if (trace.troubled && !wasTroubled) {
      this.#ordinaryBytes -= trace.bytes;
      this.#troubledBytes += trace.bytes;
    }
    // Anew at the end: the order is that of the newest word.
    (wasTroubled ? this.#troubled : this.#ordinary).delete(id);
    (trace.troubled ? this.#troubled : this.#ordinary).set(id, trace);
    this.#makeRoom();
    return true;
  }

  get(id: string): KeptTrace | null {
    return this.#troubled.get(id) ?? this.#ordinary.get(id) ?? null;
  }

  /** Lets go of what is too old. */
  expire(nowMs: number): void {
    this.#expireOf(this.#ordinary, nowMs - this.#config.keepMs);
    this.#expireOf(this.#troubled, nowMs - this.#config.keepTroubledMs);
  }

  *all(): Generator<KeptTrace> {
    yield* this.#troubled.values();
    yield* this.#ordinary.values();
  }

  #expireOf(traces: ReadonlyMap<string, KeptTrace>, beforeMs: number): void {
    for (const trace of traces.values()) {
      if (trace.heardMs > beforeMs) return;
      this.#drop(trace);
      this.#aged++;
    }
  }

  #begin(id: string, nowMs: number): KeptTrace {
    const trace = new KeptTrace(id, nowMs);
    trace.isRemainder = this.#forgotten.has(id);
    this.#ordinary.set(id, trace);
    this.#ordinaryBytes += trace.bytes;
    return trace;
  }

  #makeRoom(): void {
    const { bytes } = this.#config;
    while (this.bytes > bytes && this.size > 1) {
      const fromOrdinary = this.#ordinary.size > 0 && (this.#ordinaryBytes > bytes * ORDINARY_SHARE || this.#troubled.size === 0);
      const oldest = (fromOrdinary ? this.#ordinary : this.#troubled).values().next().value ?? null;
      if (oldest === null) return;
      this.#drop(oldest);
      this.#evicted++;
    }
  }

  #drop(trace: KeptTrace): void {
    if (this.#ordinary.delete(trace.id)) this.#ordinaryBytes -= trace.bytes;
    else if (this.#troubled.delete(trace.id)) this.#troubledBytes -= trace.bytes;
    this.#forgotten.add(trace.id);
    if (this.#forgotten.size > FORGOTTEN_REMEMBERED) this.#forgotten.delete(this.#forgotten.values().next().value as string);
  }
}
