/**
 * Calls in flight per caller × capability. There is no queue: over the limit the answer is `caller_busy` at once. The slot
 * is given back when the body of the answer has ended, however it ends.
 */
import { Code } from '../../proto/wire/codes.ts';
import type { Call } from '../call/call.ts';
import type { Principal } from '../call/principal.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';
import type { Capability, Version } from '../table/snapshot.ts';

const free = passing('limits', 'free', 'call {a} of {b} allowed at once for this caller');
const busy = refusing('limits', 'caller_busy', Code.caller_busy, '{a} has {b} calls to {c} in flight, its limit');

/** Idle counters are swept when there are more than this many, so that callers that come and go do not fill memory. */
const SWEEP_ABOVE = 10_000;

class CallerSlot {
  inFlight = 0;
  release(): void {
    this.inFlight--;
  }
}

export class CallerLimits {
  readonly #byCapability = new Map<string, Map<string, CallerSlot>>();
  #size = 0;

  check(call: Call): Verdict {
    const capability = call.capability as Capability;
    const agent = (call.principal as Principal).agent;
    const limit = (capability.versions[0] as Version).settings.limits.perCaller;
    const slot = this.#slot(capability.name, agent);
    if (slot.inFlight >= limit) return new Verdict(busy, agent, slot.inFlight, capability.name);
    // A fallback to another capability moves the call's slot there.
    call.callerSlot?.release();
    slot.inFlight++;
    call.callerSlot = slot;
    return new Verdict(free, slot.inFlight, limit);
  }

  /** As if so many were in flight (replay). */
  assume(capability: string, agent: string, inFlight: number): void {
    this.#slot(capability, agent).inFlight = inFlight;
  }

  /** Calls in flight over all callers; 0 when idle. */
  inFlight(): number {
    let sum = 0;
    for (const callers of this.#byCapability.values()) for (const slot of callers.values()) sum += slot.inFlight;
    return sum;
  }

  /** Agents that have called, as far as they are remembered; not on the way of a call. */
  callers(): ReadonlySet<string> {
    const agents = new Set<string>();
    for (const callers of this.#byCapability.values()) for (const agent of callers.keys()) agents.add(agent);
    return agents;
  }

  /** Calls of one agent under way; not on the way of a call. */
  inFlightOf(agent: string): number {
    let sum = 0;
    for (const callers of this.#byCapability.values()) sum += callers.get(agent)?.inFlight ?? 0;
    return sum;
  }

  #slot(capability: string, agent: string): CallerSlot {
    let callers = this.#byCapability.get(capability);
    if (callers === undefined) {
      callers = new Map();
      this.#byCapability.set(capability, callers);
    }
    let slot = callers.get(agent);
    if (slot === undefined) {
      if (++this.#size > SWEEP_ABOVE) this.#sweep();
      slot = new CallerSlot();
      callers.set(agent, slot);
    }
    return slot;
  }

  #sweep(): void {
    this.#size = 0;
    for (const callers of this.#byCapability.values()) {
      for (const [agent, slot] of callers) if (slot.inFlight === 0) callers.delete(agent);
      this.#size += callers.size;
    }
  }
}
