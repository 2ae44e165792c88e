/**
 * Counts, for the digest that is told every ten seconds, who called what and who served it, and how attempts at each provider
 * went. Counted at the caller's end (and, of messages, where they are handed over): what a peer asks for over the mesh, the peer
 * counts. Nothing is sampled.
 *
 * The path of a call is two look-ups in maps and some additions: cells are found by the caller's name and the candidate that
 * answered. Names become text when a period is told. A cell that had nothing in a whole period goes; beyond MAX_EDGES whoever is
 * new is counted under `other`, by capability, whose figures so stay whole; also there calls for which nobody was asked stand apart,
 * since they end at once, and the durations of the others are judged.
 */
import { printable } from '../../base/log.ts';
import { scrubbed } from '../../base/redact.ts';
import { Sketch } from '../../base/sketch.ts';
import {
  type BreakerDigest,
  DIGEST_NAME,
  type EdgeDigest,
  MAX_EDGES,
  MAX_EXAMPLE_FAILURES,
  OTHER,
  type ProviderDigest,
  UNKNOWN,
} from '../../proto/wire/digests.ts';
import type { Attempt } from '../call/attempt-record.ts';
import type { Call } from '../call/call.ts';
import type { BreakerStateName } from '../health/breaker.ts';
import type { Candidate, Capability } from '../table/snapshot.ts';

/** Of one period; beyond it the oldest go. Whoever hears of an opening counts on hearing of its end. */
const MAX_MOVES = 2_000;
const MAX_WORDS = 300;

/** What an edge is found by: who was asked last; when nobody was, what was asked for (null = nobody's name); of a fallback, both in words. */
type Place = Candidate | Capability | string | null;

class Edge {
  readonly caller: string;
  readonly capability: string;
  readonly version: string;
  readonly provider: string;
  calls = 0;
  retries = 0;
  degraded = 0;
  /** null = nothing has failed yet. */
  codes: Map<number, number> | null = null;
  readonly times = new Sketch();
  /** The newest failures, in turn. */
  readonly failedIds: string[] = ['', ''];
  readonly failedCodes = new Int32Array(MAX_EXAMPLE_FAILURES);
  readonly failedMs = new Float64Array(MAX_EXAMPLE_FAILURES);
  failures = 0;
  slowestId = '';
  slowestCode = 0;
  slowestMs = -1;

  constructor(caller: string, capability: string, version: string, provider: string) {
    this.caller = named(caller);
    this.capability = named(capability);
    this.version = named(version);
    this.provider = named(provider);
  }

  add(call: Call, elapsedMs: number): void {
    this.calls++;
    if (call.attempts.length > 1) this.retries += call.attempts.length - 1;
    if (call.degraded) this.degraded++;
    this.times.add(elapsedMs);
    if (call.code !== 0) this.#failed(call, elapsedMs);
    if (elapsedMs > this.slowestMs) {
      this.slowestMs = elapsedMs;
      this.slowestId = call.traceId;
      this.slowestCode = call.code;
    }
  }

  #failed(call: Call, elapsedMs: number): void {
    const codes = (this.codes ??= new Map());
    codes.set(call.code, (codes.get(call.code) ?? 0) + 1);
    const at = this.failures++ % MAX_EXAMPLE_FAILURES;
    this.failedIds[at] = call.traceId;
    this.failedCodes[at] = call.code;
    this.failedMs[at] = elapsedMs;
  }

  /** What it counted; it begins anew. */
  take(): EdgeDigest {
    const { caller, capability, version, provider, calls, retries, degraded } = this;
    const codes: number[] = [];
    for (const [code, times] of this.codes ?? []) codes.push(code, times);
    const told = {
      caller,
      capability,
      version,
      provider,
      calls,
      codes,
      retries,
      degraded,
      times: this.times.pairs(),
      examples: this.#examples(),
    };
    this.calls = this.retries = this.degraded = this.failures = 0;
    this.codes = null;
    this.slowestMs = -1;
    this.times.clear();
    return told;
  }

  #examples(): EdgeDigest['examples'] {
    const examples: { trace_id: string; code: number; elapsed_ms: number }[] = [];
    for (let i = Math.max(0, this.failures - MAX_EXAMPLE_FAILURES); i < this.failures; i++) {
      const at = i % MAX_EXAMPLE_FAILURES;
      examples.push({
        trace_id: this.failedIds[at] as string,
        code: this.failedCodes[at] as number,
        elapsed_ms: rounded(this.failedMs[at] as number),
      });
    }
    const { slowestId, slowestCode, slowestMs } = this;
    if (!examples.some(({ trace_id: id }) => id === slowestId))
      examples.push({ trace_id: slowestId, code: slowestCode, elapsed_ms: rounded(slowestMs) });
    // A call that was refused before it had a trace shows nothing.
    return examples.filter(({ trace_id: id }) => id !== '');
  }
}

class Served {
  readonly capability: string;
  readonly version: string;
  readonly provider: string;
  attempts = 0;
  failures = 0;
  readonly times = new Sketch();

  constructor(capability: string, version: string, provider: string) {
    this.capability = named(capability);
    this.version = named(version);
    this.provider = named(provider);
  }

  add(attempt: Attempt): void {
    this.attempts++;
    if (attempt.isFault) this.failures++;
    this.times.add(attempt.elapsedMs);
  }

  take(): ProviderDigest {
    const { capability, version, provider, attempts, failures } = this;
    const told = { capability, version, provider, attempts, failures, times: this.times.pairs() };
    this.attempts = this.failures = 0;
    this.times.clear();
    return told;
  }
}

export interface Counted {
  readonly edges: readonly EdgeDigest[];
  readonly providers: readonly ProviderDigest[];
  readonly breakers: readonly BreakerDigest[];
}

export class DigestCounts {
  readonly #callers = new Map<string, Map<Place, Edge>>();
  /** Those for whom there is no room, by capability. */
  readonly #others = new Map<string, Edge>();
  /** The same of those for which nobody was asked. */
  readonly #othersUnasked = new Map<string, Edge>();
  readonly #providers = new Map<Candidate, Served>();
  #otherProviders: Served | null = null;
  #edges = 0;
  #moves: BreakerDigest[] = [];
  /** Nobody reads it: a sidecar without a registry. */
  #isOn = false;

  begin(): void {
    this.#isOn = true;
  }

  callEnded(call: Call, elapsedMs: number): void {
    if (!this.#isOn || call.way === 'mesh') return;
    const { attempts, fallbackFrom } = call;
    // A static text stands in for whoever was asked last: how long that took is what the caller waited for.
    const served = attempts.length === 0 ? null : (attempts[attempts.length - 1] as Attempt).candidate;
    const place = served === null ? (fallbackFrom ?? call.capability) : placeOf(fallbackFrom, served);
    const caller = call.principal === null ? UNKNOWN : call.principal.agent;
    const edge = this.#callers.get(caller)?.get(place) ?? this.#edgeOf(caller, place, call, served);
    edge.add(call, elapsedMs);
  }

  attemptEnded(call: Call, attempt: Attempt): void {
    if (!this.#isOn || call.way === 'mesh') return;
    const served = this.#providers.get(attempt.candidate) ?? this.#servedBy(attempt.candidate);
    served.add(attempt);
  }

  /** @param atMs wall clock */
  breakerMoved(provider: string, capability: string, from: BreakerStateName, to: BreakerStateName, why: string, atMs: number): void {
    if (!this.#isOn) return;
    this.#moves.push({
      provider: named(provider),
      capability: named(capability),
      from,
      to,
      why: printable(scrubbed(why), MAX_WORDS),
      at_ms: atMs,
    });
    if (this.#moves.length > MAX_MOVES) this.#moves.shift();
  }

  /** What was counted since the last time. */
  take(): Counted {
    const edges: EdgeDigest[] = [];
    for (const [caller, places] of this.#callers) {
      for (const [place, edge] of places) {
        if (edge.calls > 0) edges.push(edge.take());
        else {
          places.delete(place);
          this.#edges--;
        }
      }
      if (places.size === 0) this.#callers.delete(caller);
    }
    for (const others of [this.#others, this.#othersUnasked])
      for (const [capability, edge] of others) {
        if (edge.calls > 0) edges.push(edge.take());
        else others.delete(capability);
      }
    const providers: ProviderDigest[] = [];
    for (const [candidate, served] of this.#providers) {
      if (served.attempts > 0) providers.push(served.take());
      else this.#providers.delete(candidate);
    }
    if ((this.#otherProviders?.attempts ?? 0) > 0) providers.push((this.#otherProviders as Served).take());
    const breakers = this.#moves;
    this.#moves = [];
    return { edges, providers, breakers };
  }

  #edgeOf(caller: string, place: Place, call: Call, served: Candidate | null): Edge {
    const capability = (call.fallbackFrom ?? call.capability)?.name ?? UNKNOWN;
    if (this.#edges >= MAX_EDGES)
      return served === null ? otherOf(this.#othersUnasked, capability, '') : otherOf(this.#others, capability, OTHER);
    const edge = new Edge(caller, capability, served?.version.text ?? '', served?.provider.agentId ?? '');
    let places = this.#callers.get(caller);
    if (places === undefined) this.#callers.set(caller, (places = new Map()));
    places.set(place, edge);
    this.#edges++;
    return edge;
  }

  #servedBy(candidate: Candidate): Served {
    if (this.#providers.size >= MAX_EDGES) return (this.#otherProviders ??= new Served(OTHER, '', OTHER));
    const { version, provider } = candidate;
    const served = new Served(version.capability.name, version.text, provider.agentId);
    this.#providers.set(candidate, served);
    return served;
  }
}

function otherOf(others: Map<string, Edge>, capability: string, provider: string): Edge {
  const key = others.size < MAX_EDGES ? capability : OTHER;
  let edge = others.get(key);
  if (edge === undefined) others.set(key, (edge = new Edge(OTHER, key, '', provider)));
  return edge;
}

/** Counted under what was asked for, whoever served it. */
function placeOf(fallbackFrom: Capability | null, served: Candidate): Place {
  const { version, provider } = served;
  if (fallbackFrom === null || fallbackFrom === version.capability) return served;
  return `${fallbackFrom.name} ${version.capability.name}@${version.text} ${provider.agentId}`;
}

/** As a digest may hold it: one odd name must not spoil the others. */
function named(name: string): string {
  return DIGEST_NAME.test(name) ? name : OTHER;
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
