/**
 * Spans of this sidecar: what ends is written into a ring, and soon after, off the call's own path, it is looked at. Told are those of
 * traces that were picked at their beginning, and of all in which something failed or was slow, here or, by the word of another
 * sidecar, elsewhere; for these what the ring still holds is told too. To whom is put in (`sinks`): the control plane, a collector.
 * What has no room is dropped and counted; nothing here makes a call wait, and nothing grows.
 */
import { atTurnEnd, type Clock, type Timer } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import type { Span } from '../../proto/wire/spans.ts';
import { newSpanId } from '../../proto/wire/trace-context.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import type { StageSpans } from '../call/stage-spans.ts';
import type { TraceSettings } from '../traces-config.ts';
import { HeadSampling } from './head-sampling.ts';
import { traceKeyOf } from './hex-words.ts';
import { KeptTraces } from './kept-traces.ts';
import { SlowCalls } from './slow-calls.ts';
import { spanOf } from './span-of.ts';
import type { SpanRecord } from './span-record.ts';
import { SpanRing } from './span-ring.ts';

/** Who is told once of each span. */
export interface SpanSink {
  /** Takes what it needs of the record before it returns. */
  take(record: SpanRecord): void;
}

/** The control plane, which knows spans by their id and may be told of one again. */
export interface ControlSink {
  /** As of a sink; false = it cannot be told now: it asks for what it is owed (`tellOwed`) when it can. */
  take(record: SpanRecord): boolean;
}

export interface SpanCounts {
  /** Of all that ended. */
  readonly made: number;
  /** Given to the sinks. */
  readonly told: number;
  /** Overwritten before they were looked at, or before the control plane could be told. */
  readonly dropped: number;
  /** Traces that were named to the other sidecars. */
  readonly named: number;
  /** Share of the traces that are picked at present. */
  readonly ratio: number;
}

interface Again {
  readonly span: Span;
  readonly isPicked: boolean;
  /** `clock.now()` when it is due. */
  readonly at: number;
}

/** From the end of a call until it is looked at. */
const LOOK_MS = 250;
/** In one turn of the event loop. */
const SLICE = 512;
/** Traces that are named to the others each second. */
const MAX_NAMED_PER_SEC = 50;
const SECOND_MS = 1_000;
/** Spans that others should have told: after so long, and so many at most. */
const AGAIN_MS = 3_000;
const MAX_AGAIN = 4_096;
/** For so long spans of a trace may come in which something failed. Of a call's own attempts none is too late: the call knows them. */
const KEPT_MS = 600_000;
const MOST_KEPT = 16_384;
const MOST_NAMED = 32_768;
/** A call that was retried and took longer is named again at its end: in a flood the others may have forgotten its trace. */
const NAMED_AGAIN_MS = 15_000;
/** Who looks at a trace that goes on asks again, every few seconds. */
const ASKED_MS = 10_000;
const MOST_ASKED = 2_048;
/** The wall clock was set: where spans stand on it is found anew. */
const WALL_STEP_MS = 50;
/** Spans of one trace that a page shows. */
const MAX_SHOWN = 1_000;

export class Spans implements StageSpans {
  readonly sinks: SpanSink[] = [];
  /** Null = there is none. */
  controlPlane: ControlSink | null = null;
  /** Hears of traces that something failed in, for the other sidecars. Null = there are none. */
  onNamed: ((traces: readonly string[]) => void) | null = null;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #ring: SpanRing;
  readonly #head: HeadSampling;
  readonly #slow: SlowCalls;
  /** In which something failed or was slow here; and those that others name, which come twenty times as fast and must not drive them out. */
  readonly #kept = new KeptTraces(KEPT_MS, MOST_KEPT);
  readonly #named = new KeptTraces(KEPT_MS, MOST_NAMED);
  readonly #holdMs: number;
  readonly #maxPerSec: number;
  readonly #early: number;
  #timer: Timer | null = null;
  #isLooking = false;
  #isStopped = false;
  /** Wall clock less `clock.now()`, as it was found at that time. */
  #wallOffset: number;
  #wallAt: number;
  /** What the ring holds of these is told at the end of the turn. */
  #after = new Set<number>();
  /** Traces that the control plane asks for: it alone is told, of everything that is here and that comes. */
  readonly #asked = new KeptTraces(ASKED_MS, MOST_ASKED);
  #asking = new Set<number>();
  #naming: string[] = [];
  /** What others should have told, in the order in which it is due. */
  #again: Again[] = [];
  #secondAt = Number.NEGATIVE_INFINITY;
  /** In this second: traces that were kept for a reason, and those that were named. */
  #keptNow = 0;
  #namedNow = 0;
  #made = 0;
  #told = 0;
  #namedInAll = 0;

  constructor(clock: Clock, random: Random, settings: TraceSettings) {
    this.#clock = clock;
    this.#random = random;
    this.#ring = new SpanRing(settings.heldSpans);
    this.#head = new HeadSampling(settings.ratio, settings.maxPerSec);
    this.#slow = new SlowCalls(settings.slowMs);
    this.#holdMs = settings.holdMs;
    this.#maxPerSec = settings.maxPerSec;
    this.#early = settings.heldSpans >> 2;
    this.#wallAt = clock.now();
    this.#wallOffset = clock.wallMs() - this.#wallAt;
  }

  // ---- the path of a call

  /** The hop's own span; and whether its trace is picked, which what it asks is told in `traceparent`. */
  begin(call: Call): void {
    call.spanId = newSpanId(this.#random);
    if ((call.traceFlags & 1) === 1 && !this.#head.picks(call.traceId, call.startedAt)) call.traceFlags &= ~1;
    // Once for all its spans: a clock that is set while it runs would tear them apart.
    if (call.startedAt - this.#wallAt >= SECOND_MS) this.#findWall(call.startedAt);
    call.wallOffset = this.#wallOffset;
  }

  callEnded(call: Call, elapsedMs: number): void {
    this.#ring.next().ofCall(call, elapsedMs);
    this.#came();
  }

  attemptEnded(call: Call, attempt: Attempt): void {
    // One that was not sent has none yet.
    if (attempt.spanId === '') attempt.spanId = newSpanId(this.#random);
    this.#ring.next().ofAttempt(call, attempt);
    this.#came();
  }

  // ---- stages of messages

  newId(): string {
    return newSpanId(this.#random);
  }

  wallAt(clockNow: number): number {
    return clockNow + this.#wallOffset;
  }

  tell(span: Span, isPicked: boolean): void {
    this.#ring.next().ofStage(span, isPicked, false, this.#clock.now());
    this.#came();
  }

  /** After a while: whoever should have told it knows more of it, and the first one counts. */
  retell(span: Span, isPicked: boolean): void {
    if (this.#again.length >= MAX_AGAIN || this.#isStopped) return;
    this.#again.push({ span, isPicked, at: this.#clock.now() + AGAIN_MS });
    if (!this.#isLooking && this.#timer === null) this.#lookLater();
  }

  /** Whether a message that is sent now is picked: as of a call. */
  picks(traceId: string): boolean {
    return this.#head.picks(traceId, this.#clock.now());
  }

  // ---- what becomes of them

  /** Another sidecar names traces that something failed in. */
  keep(traces: readonly string[]): void {
    const now = this.#clock.now();
    for (const traceId of traces) {
      const trace = traceKeyOf(traceId);
      if (this.#named.add(trace, now)) this.#after.add(trace);
    }
    if (this.#after.size > 0) this.#lookLater();
  }

  /** The control plane asks: it has not got these whole, since it has just started, or was not to be had. */
  show(traces: readonly string[]): void {
    const now = this.#clock.now();
    for (const traceId of traces) {
      const trace = traceKeyOf(traceId);
      this.#asked.add(trace, now);
      this.#asking.add(trace);
    }
    if (this.#asking.size > 0) this.#lookLater();
  }

  /** What the control plane could not be told is told now, as far as it is still here. False = some is left for later. */
  tellOwed(): boolean {
    const to = this.controlPlane;
    if (to === null) return true;
    let told = 0;
    for (const record of this.#ring.seen()) {
      if (!record.isOwed) continue;
      if (++told > SLICE || !to.take(record)) return false;
      record.isOwed = false;
    }
    return true;
  }

  /** What the ring holds of a trace, in the order in which it ended. */
  of(traceId: string): Span[] {
    const found: Span[] = [];
    const trace = traceKeyOf(traceId);
    for (const record of this.#ring.all())
      if (record.traceKey === trace && !record.isAgain && found.length < MAX_SHOWN) found.push(spanOf(record));
    return found;
  }

  get counts(): SpanCounts {
    return { made: this.#made, told: this.#told, dropped: this.#ring.dropped, named: this.#namedInAll, ratio: this.#head.ratio };
  }

  /** Everything that has ended is looked at now. Later ones are not looked at any more. */
  stop(): void {
    this.#isStopped = true;
    this.#timer?.cancel();
    this.#timer = null;
    this.look(Number.POSITIVE_INFINITY);
  }

  /** Looks at what has ended: the timer does, and tests. False = some are left for the next turn. */
  look(most = SLICE): boolean {
    const now = this.#clock.now();
    this.#findWall(now);
    if (now - this.#secondAt >= SECOND_MS) {
      this.#secondAt = now;
      this.#keptNow = 0;
      this.#namedNow = 0;
      this.#kept.forget(now);
      this.#named.forget(now);
      this.#asked.forget(now);
    }
    if (this.#again.length > 0) this.#tellAgain(now);
    // Before what comes now, which is shown as it comes.
    if (this.#asking.size > 0) this.#showHeld();
    let record: SpanRecord | null = null;
    for (let i = 0; i < most && (record = this.#ring.look()) !== null; i++) this.#judge(record, now);
    // That goes through the whole ring: once for all slices of a look, unless so much comes that it would be overwritten before.
    const left = this.#ring.unseen;
    if (this.#after.size > 0 && (left === 0 || left > this.#early)) this.#tellHeld(now);
    if (this.#naming.length > 0) {
      const named = this.#naming;
      this.#naming = [];
      this.onNamed?.(named);
    }
    return left === 0;
  }

  #judge(record: SpanRecord, now: number): void {
    const isHop = record.stage === 'outbound' || record.stage === 'inbound';
    const isSlow = isHop && record.code === 0 && this.#slow.isSlow(record.capability, record.elapsedMs);
    if ((record.code !== 0 || record.isRetry || isSlow) && !record.isAgain) this.#keepFor(record, now);
    if (record.isPicked || this.#isKept(record)) this.#give(record);
    else if (!this.#asked.isEmpty && this.#asked.has(record.traceKey)) this.#giveControl(record);
  }

  #isKept(record: SpanRecord): boolean {
    const { isEmpty } = this.#named;
    if (isEmpty && this.#kept.isEmpty) return false;
    const trace = record.traceKey;
    return this.#kept.has(trace) || (!isEmpty && this.#named.has(trace));
  }

  /** Something in it failed or was slow: here and elsewhere it is told whole. */
  #keepFor(record: SpanRecord, now: number): void {
    const { isPicked, isRetry, traceKey: trace } = record;
    const isKept = this.#kept.has(trace);
    if (isKept && !(isRetry && record.elapsedMs >= NAMED_AGAIN_MS && record.stage !== 'attempt')) return;
    // A picked one may be held elsewhere, by whom had less room; for a slow one that is no matter.
    if (isPicked && record.code === 0 && !isRetry) return;
    if (!isKept) {
      if (!isPicked && ++this.#keptNow > this.#maxPerSec) return;
      this.#kept.add(trace, now);
      if (!isPicked) this.#after.add(trace);
    }
    if (this.onNamed === null || ++this.#namedNow > MAX_NAMED_PER_SEC) return;
    this.#naming.push(record.traceId);
    this.#namedInAll++;
  }

  #tellAgain(now: number): void {
    let due = 0;
    for (; due < this.#again.length; due++) {
      const { span, isPicked, at } = this.#again[due] as Again;
      if (at > now) break;
      this.#ring.next().ofStage(span, isPicked, true, now);
    }
    if (due > 0) this.#again.splice(0, due);
    if (this.#again.length > 0) this.#lookLater();
  }

  #tellHeld(now: number): void {
    const traces = this.#after;
    this.#after = new Set();
    for (const record of this.#ring.seen()) {
      if (record.isTold || !traces.has(record.traceKey)) continue;
      if (now - record.endedAt <= this.#holdMs) this.#give(record);
    }
  }

  /** Told or not: what was told is what it may have lost. */
  #showHeld(): void {
    const traces = this.#asking;
    this.#asking = new Set();
    for (const record of this.#ring.seen()) if (traces.has(record.traceKey)) this.#giveControl(record);
  }

  #giveControl(record: SpanRecord): void {
    if (this.controlPlane !== null) record.isOwed = !this.controlPlane.take(record);
  }

  #give(record: SpanRecord): void {
    if (record.isTold) return;
    record.isTold = true;
    this.#told++;
    for (const sink of this.sinks) sink.take(record);
    if (this.controlPlane !== null) record.isOwed = !this.controlPlane.take(record);
  }

  #came(): void {
    this.#made++;
    if (this.#isLooking || this.#isStopped) return;
    if (this.#ring.unseen > this.#early) this.#lookNow();
    else if (this.#timer === null) this.#lookLater();
  }

  #lookLater(): void {
    if (this.#isStopped) return;
    this.#timer ??= this.#clock.after(LOOK_MS, this.#lookOnTimer);
  }

  readonly #lookOnTimer = (): void => {
    this.#timer = null;
    this.#lookOn();
  };

  #lookNow(): void {
    this.#isLooking = true;
    this.#timer?.cancel();
    this.#timer = null;
    atTurnEnd(this.#lookOn);
  }

  /** In slices, so that what is on its way does not wait for a whole ring. */
  readonly #lookOn = (): void => {
    this.#isLooking = false;
    if (!this.#isStopped && !this.look()) this.#lookNow();
  };

  #findWall(now: number): void {
    this.#wallAt = now;
    const offset = this.#clock.wallMs() - now;
    if (Math.abs(offset - this.#wallOffset) > WALL_STEP_MS) this.#wallOffset = offset;
  }
}
