/**
 * What is held of one trace: its spans as text, since text is small and its size is known, and beside them what lists are made and
 * filtered by. It decides nothing of what is held and for how long.
 */
import type { ToldSpan } from './read-batch.ts';

/** Of one trace; the rest is counted. A loop must not fill the store. */
export const MAX_SPANS_PER_TRACE = 5_000;
/** Names by which it is found; beyond them it is found by reading it. */
const MAX_NAMES = 128;
const MAX_CONFLICTS = 8;
/** Stages that whoever has the message next tells again, should their own teller have been killed. */
const RETOLD: ReadonlySet<string> = new Set(['send', 'deliver']);
/** A message lies there for as long as whoever takes it wants: hours are usual, and no trouble. */
const WAITS: ReadonlySet<string> = new Set(['outbox', 'queue', 'inbox']);
/** What an entry costs beside its text: the string's head, the map's slot, the id. */
const PER_SPAN_BYTES = 120;
const PER_TRACE_BYTES = 600;
const PER_NAME_BYTES = 80;

/** Where it began, as lists show it. */
export interface TraceHead {
  readonly startMs: number;
  readonly capability: string;
  readonly caller: string;
  readonly code: number;
  /** It has no parent, or a parent outside: nothing above it is to come. */
  readonly isRoot: boolean;
}

const NOBODY: TraceHead = Object.freeze({ startMs: Number.POSITIVE_INFINITY, capability: '', caller: '', code: 0, isRoot: false });

export class KeptTrace {
  readonly id: string;
  /** `clock.now()` of the newest span that was kept. The store's order is that of these: whoever changes it moves the trace to the end. */
  heardMs: number;
  bytes = PER_TRACE_BYTES;
  startMs = Number.POSITIVE_INFINITY;
  endMs = 0;
  /** Whether something but `inbox` is there: what an agent takes its time to fetch is nobody's waiting, and says nothing of the times. */
  #isTimed = false;
  head: TraceHead = NOBODY;
  /** A hop failed in it (an attempt that was made good does not count). */
  failed = false;
  /** Held for longer: it failed, something of it did, or it was slow. */
  troubled = false;
  /** Spans that were told and are not held. */
  cut = 0;
  /** Some of it had been thrown out before this was heard. */
  isRemainder = false;
  /** Spans that two sidecars told, each as its own, in words. */
  readonly conflicts: string[] = [];
  readonly #spans = new Map<string, string>();
  readonly #names = new Set<string>();
  #namesCut = false;

  constructor(id: string, nowMs: number) {
    this.id = id;
    this.heardMs = nowMs;
  }

  get size(): number {
    return this.#spans.size;
  }

  /** `twice`: it is there already; `full`: there is no room in a trace for more. */
  add(span: ToldSpan, nowMs: number, slowMs: number): 'new' | 'twice' | 'full' {
    const before = this.#spans.get(span.span_id);
    if (before !== undefined) {
      if (!RETOLD.has(span.stage) && this.conflicts.length < MAX_CONFLICTS) this.#compare(before, span);
      return 'twice';
    }
    if (this.#spans.size >= MAX_SPANS_PER_TRACE) {
      this.cut++;
      return 'full';
    }
    this.heardMs = nowMs;
    const text = JSON.stringify(span);
    this.#spans.set(span.span_id, text);
    this.bytes += 2 * text.length * (isPlain(text) ? 0.5 : 1) + PER_SPAN_BYTES;
    this.#time(span);
    this.#headOf(span);
    const isHop = span.stage !== 'attempt';
    if (span.code !== 0 && isHop) this.failed = true;
    if (span.code !== 0 || (span.elapsed_ms >= slowMs && !WAITS.has(span.stage))) this.troubled = true;
    this.#name(`c ${span.capability}`);
    if (span.caller !== undefined) this.#name(`a ${span.caller}`);
    if (span.provider !== undefined) {
      this.#name(`a ${span.provider}`);
      this.#name(`p ${span.provider}`);
    }
    if (span.code !== 0) {
      this.#name(`k ${span.code}`);
      if (isHop) this.#name(`f ${span.capability}`);
    }
    return 'new';
  }

  spans(): ToldSpan[] {
    return [...this.#spans.values()].map((text) => JSON.parse(text) as ToldSpan);
  }

  /** Whether some name of that kind fits: `c` capability, `f` capability of a hop that failed, `a` agent, `p` provider, `k` code. */
  names(kind: 'c' | 'f' | 'a' | 'p' | 'k', fits: (name: string) => boolean): boolean {
    for (const name of this.#names) if (name.startsWith(kind) && fits(name.slice(2))) return true;
    if (!this.#namesCut) return false;
    return this.spans().some((span) => namesOf(kind, span).some(fits));
  }

  /** The first one stays: who knows the id of a span that is to come could otherwise write over it. */
  #compare(before: string, span: ToldSpan): void {
    const { sidecar } = JSON.parse(before) as ToldSpan;
    if (sidecar !== span.sidecar)
      this.conflicts.push(`span ${span.span_id} was told by ${sidecar} and then by ${span.sidecar}: the first is shown`);
  }

  /** As a timeline's: without `inbox`, unless there is nothing else. */
  #time({ stage, start_ms: start, elapsed_ms: elapsed }: ToldSpan): void {
    const isTime = stage !== 'inbox';
    if (!isTime && this.#isTimed) return;
    const isFirst = isTime && !this.#isTimed;
    if (isFirst) this.#isTimed = true;
    this.startMs = isFirst ? start : Math.min(this.startMs, start);
    this.endMs = isFirst ? start + elapsed : Math.max(this.endMs, start + elapsed);
  }

  #headOf(span: ToldSpan): void {
    const isRoot = span.parent_span_id === '';
    if (this.head.isRoot && !isRoot) return;
    if (isRoot === this.head.isRoot && span.start_ms >= this.head.startMs) return;
    this.head = {
      startMs: span.start_ms,
      capability: span.capability,
      caller: span.caller ?? '',
      code: span.code,
      isRoot,
    };
  }

  #name(name: string): void {
    if (this.#names.has(name)) return;
    if (this.#names.size >= MAX_NAMES) {
      this.#namesCut = true;
      return;
    }
    this.#names.add(name);
    this.bytes += PER_NAME_BYTES + name.length;
  }
}

function namesOf(kind: 'c' | 'f' | 'a' | 'p' | 'k', span: ToldSpan): readonly string[] {
  switch (kind) {
    case 'c':
      return [span.capability];
    case 'f':
      return span.code !== 0 && span.stage !== 'attempt' ? [span.capability] : [];
    case 'a':
      return [span.caller ?? '', span.provider ?? ''].filter((each) => each !== '');
    case 'p':
      return span.provider === undefined ? [] : [span.provider];
    case 'k':
      return span.code === 0 ? [] : [String(span.code)];
  }
}

/** One byte a character, as the engine holds it. */
function isPlain(text: string): boolean {
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) > 0xff) return false;
  return true;
}
