/**
 * The traces at one replica: it hears what all sidecars tell, keeps it (store.ts), and answers what is asked of it. Every replica hears
 * the same, so that a change of the leader loses nothing. One that has just started has nothing: asked for a trace that it does not
 * have whole, it asks the other replicas, and names it to the sidecars, which send after what they still hold (`keep`); it looks again
 * for a moment and answers with what there is. Whoever asks for the same meanwhile waits for the same answers.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { Bus } from '../../base/nats.ts';
import { type KeepTraces, MAX_BATCH_BYTES, SPANS_WIRE } from '../../proto/wire/spans.ts';
import { CONTROL, type Subjects } from '../../proto/wire/subjects.ts';
import { readsWire } from '../../proto/wire/version.ts';
import { encode, parse } from '../push/json.ts';
import type { Traffic } from '../traffic/traffic.ts';
import { breakersFrom } from './breakers.ts';
import type { TracesConfig } from './config.ts';
import type { KeptTrace } from './kept-trace.ts';
import { isTraceId, readBatch, readSpans, type ToldSpan } from './read-batch.ts';
import { TraceStore } from './store.ts';
import { Tellers } from './tellers.ts';
import type { Tail } from './tail.ts';
import { type TaskStanding, TaskStates } from './task-states.ts';
import { type Timeline, timelineOf } from './timeline.ts';
import type { Standing } from './facts.ts';
import { seconds } from './why.ts';

export interface DeskParts {
  /** Of this replica itself, and the connection on which sidecars are heard. */
  readonly bus: Pick<Bus, 'publish' | 'subscribe'>;
  readonly inbound: Pick<Bus, 'subscribe'>;
  readonly subjects: Subjects;
  readonly clock: Clock;
  readonly config: TracesConfig;
  readonly name: string;
  readonly traffic: Pick<Traffic, 'breakerMoves'>;
  /** Whether somebody is registered under that name who serves something. */
  readonly serves: (agent: string) => boolean;
}

/** Sidecars look for what they hold within a quarter of a second, and tell each second: none is later than this. */
const TOLD_MS = 1_300;
const WAIT_MS = 1_600;
const LOOK_EVERY_MS = 100;
/** Something has come, and then nothing more for so long: what was to come has come. */
const QUIET_MS = 500;
/** The same trace is not asked for more often. */
const ASK_AGAIN_MS = 5_000;
const MAX_ASKED = 1_000;
/** Requests that wait for others at once; more are answered with what is here. */
const MAX_WAITING = 50;
/** For clocks that differ, and until its subscriptions stand. */
const YOUNG_MS = 5_000;
const EXPIRE_EVERY_MS = 10_000;
const MAX_TAILS = 100;
/** As far back as moves of breakers are kept that have closed since. */
const MOVES_WITHIN_MS = 7_200_000;

export class TraceDesk {
  readonly #parts: DeskParts;
  readonly #store: TraceStore;
  readonly #tellers = new Tellers();
  readonly #tasks = new TaskStates();
  readonly #tails = new Set<Tail>();
  /** When each was asked for. */
  readonly #asked = new Map<string, number>();
  /** Those that are being asked for. */
  readonly #asking = new Map<string, Promise<void>>();
  /** Wall clock: since when it listens. */
  readonly #sinceMs: number;
  #waiting = 0;
  #batches = 0;
  #refusedBatches = 0;
  #refusedSpans = 0;
  #expiry: Timer | null = null;

  constructor(parts: DeskParts) {
    this.#parts = parts;
    this.#store = new TraceStore(parts.config);
    this.#sinceMs = parts.clock.wallMs();
    const { bus, inbound, subjects } = parts;
    inbound.subscribe(subjects.spans('*'), ({ subject, data }) => this.#hear(subject.slice(subject.lastIndexOf('.') + 1), data));
    inbound.subscribe(subjects.note('*'), ({ data }) => this.#tasks.hear(data, parts.clock.now()));
    bus.subscribe(subjects.traces('ask'), ({ data }) => this.#tell(data));
    bus.subscribe(subjects.traces('told'), ({ data }) => this.#takeTold(data));
    this.#expireLater();
  }

  /** For the metrics. */
  get figures() {
    return {
      ...this.#store.counts,
      traces: this.#store.size,
      bytes: this.#store.bytes,
      maxBytes: this.#parts.config.bytes,
      batches: this.#batches,
      refusedBatches: this.#refusedBatches,
      refusedSpans: this.#refusedSpans,
      /** By the sidecars' own word. */
      droppedBySidecars: this.#tellers.total,
    };
  }

  /** Those that are held here. */
  all(): Iterable<KeptTrace> {
    return this.#store.all();
  }

  /** Null = nobody knows of it, or not any more. */
  async timeline(id: string): Promise<Timeline | null> {
    if (!isTraceId(id)) return null;
    const here = this.#timelineHere(id);
    if (here !== null && this.#isAllThereIs(here)) return here;
    let asking = this.#asking.get(id);
    if (asking === undefined) {
      if (!this.#mayAsk(id)) return here;
      asking = this.#askAround(id).finally(() => this.#asking.delete(id));
      this.#asking.set(id, asking);
    }
    await asking;
    return this.#timelineHere(id);
  }

  /** False = there are too many already. */
  addTail(tail: Tail): boolean {
    if (this.#tails.size >= MAX_TAILS) return false;
    this.#tails.add(tail);
    return true;
  }

  removeTail(tail: Tail): void {
    this.#tails.delete(tail);
    tail.stop();
  }

  stop(): void {
    this.#expiry?.cancel();
    for (const tail of this.#tails) this.removeTail(tail);
  }

  // ---- what is heard

  #hear(sidecar: string, data: Buffer): void {
    const batch = readBatch(data, sidecar);
    if (batch === null) {
      this.#refusedBatches++;
      return;
    }
    this.#batches++;
    this.#refusedSpans += batch.refused;
    this.#tellers.take(batch, this.#parts.clock.wallMs());
    for (const span of batch.spans) this.#keep(span, true);
  }

  #keep(span: ToldSpan, isLive: boolean): void {
    if (!this.#store.add(span, this.#parts.clock.now()) || !isLive) return;
    for (const tail of this.#tails) tail.take(span);
  }

  /** Nobody has more of it: it is whole, or what is not there yet has not happened, and this replica listened from its beginning. */
  #isAllThereIs({ complete, gaps, orphans, start_ms: start }: Timeline): boolean {
    return complete || (gaps.length === 0 && orphans === 0 && start > this.#sinceMs + YOUNG_MS);
  }

  // ---- replicas among themselves

  #mayAsk(id: string): boolean {
    const now = this.#parts.clock.now();
    const before = this.#asked.get(id);
    if (this.#waiting >= MAX_WAITING || (before !== undefined && now - before < ASK_AGAIN_MS)) return false;
    this.#asked.delete(id);
    this.#asked.set(id, now);
    if (this.#asked.size > MAX_ASKED) this.#asked.delete(this.#asked.keys().next().value as string);
    return true;
  }

  async #askAround(id: string): Promise<void> {
    const { bus, subjects, clock, name } = this.#parts;
    const keep: KeepTraces = { wire: SPANS_WIRE, traces: [id] };
    bus.publish(subjects.keep(CONTROL), encode(keep));
    bus.publish(subjects.traces('ask'), encode({ wire: SPANS_WIRE, replica: name, trace_id: id }));
    this.#waiting++;
    const asked = clock.now();
    let size = this.#store.get(id)?.size ?? 0;
    let newsMs = Number.POSITIVE_INFINITY;
    while (clock.now() < asked + WAIT_MS) {
      await new Promise<void>((done) => void clock.after(LOOK_EVERY_MS, done));
      const now = this.#store.get(id)?.size ?? 0;
      if (now !== size) newsMs = clock.now();
      size = now;
      if (clock.now() - asked >= TOLD_MS && clock.now() - newsMs >= QUIET_MS) break;
    }
    this.#waiting--;
  }

  /** Another replica asks: it is told what is held here, in as many messages as that takes. */
  #tell(data: Buffer): void {
    const asked = parse(data) as { readonly wire?: unknown; readonly replica?: unknown; readonly trace_id?: unknown } | null;
    if (asked === null || typeof asked !== 'object' || !readsWire(asked.wire, SPANS_WIRE) || asked.replica === this.#parts.name) return;
    const trace = typeof asked.trace_id === 'string' ? this.#store.get(asked.trace_id) : null;
    if (trace === null) return;
    let spans: ToldSpan[] = [];
    let bytes = 0;
    const send = (): void => {
      if (spans.length > 0)
        this.#parts.bus.publish(this.#parts.subjects.traces('told'), encode({ wire: SPANS_WIRE, replica: this.#parts.name, spans }));
      spans = [];
      bytes = 0;
    };
    for (const span of trace.spans()) {
      const size = JSON.stringify(span).length;
      if (spans.length >= MAX_TOLD || bytes + size > MAX_BATCH_BYTES) send();
      spans.push(span);
      bytes += size;
    }
    send();
  }

  #takeTold(data: Buffer): void {
    const told = parse(data) as { readonly wire?: unknown; readonly replica?: unknown; readonly spans?: unknown } | null;
    if (told === null || typeof told !== 'object' || !readsWire(told.wire, SPANS_WIRE)) return;
    if (told.replica === this.#parts.name || !Array.isArray(told.spans)) return;
    for (const span of readSpans(told.spans, null).spans) this.#keep(span, false);
  }

  // ----

  #timelineHere(id: string): Timeline | null {
    const trace = this.#store.get(id);
    if (trace === null || trace.size === 0) return null;
    const { clock, traffic, serves } = this.#parts;
    const now = clock.now();
    const wall = clock.wallMs();
    return timelineOf(
      id,
      trace.spans(),
      {
        cut: trace.cut,
        isRemainder: trace.isRemainder,
        conflicts: trace.conflicts,
        dropped: this.#tellers.about(trace.startMs, trace.endMs),
        silentMs: now - trace.heardMs,
        standing: (task) => standingWords(this.#tasks.of(task), now),
        serves,
      },
      breakersFrom(
        traffic.breakerMoves(MOVES_WITHIN_MS),
        (atMs) => wall - (now - atMs),
        (...move) => this.#tellers.isReplaced(...move),
      ),
    );
  }

  #expireLater(): void {
    this.#expiry = this.#parts.clock.after(EXPIRE_EVERY_MS, () => {
      this.#store.expire(this.#parts.clock.now());
      this.#expireLater();
    });
  }
}

/** Spans in one message to another replica. */
const MAX_TOLD = 256;

/** Null = nothing was heard of it. */
function standingWords(standing: TaskStanding | null, nowMs: number): Standing | null {
  if (standing === null) return null;
  const { state, by, attempts, heardMs } = standing;
  const ago = `for ${seconds(nowMs - heardMs)}`;
  switch (state) {
    case 'received':
      return { how: 'goes_on', words: `is being worked on by ${by}, ${ago}${attempts > 1 ? ` (try ${attempts})` : ''}` };
    case 'waiting':
      return { how: 'goes_on', words: attempts > 0 ? `waits for another try, ${ago} (${attempts} made)` : `waits in the queue, ${ago}` };
    case 'accepted':
      return { how: 'goes_on', words: `was accepted, and waits, ${ago}` };
    case 'parked':
      return { how: 'goes_on', words: `is parked: nobody works on its pool, ${ago}` };
    default:
      return { how: state === 'done' || state === 'failed' ? 'done' : 'ended', words: `ended as ${state}` };
  }
}
