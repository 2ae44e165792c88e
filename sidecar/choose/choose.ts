/**
 * Which instance serves this call, within the version in use (`call.lines[call.lineIndex]`). The order is:
 *
 *   override → pinned provider → affinity → health → locality → tier/weight → load mode
 *
 * A function of the call, its table, the health view, clock and chance, and of the two memories kept here: which agent
 * holds which conversation, and where round robin stands. It sets `call.chosen`, `call.panicked` and `call.begunAt`,
 * nothing else.
 *
 * - **Drain** means that nothing new begins: a pin or a live conversation still reaches a draining provider. A block
 *   lets nothing through.
 * - **A pin** is exact: if that provider cannot serve, the call is refused; nobody is put in its place.
 * - **Affinity** stands before health, place and load mode. A conversation held in another version that the call may use
 *   stays there, so that neither a canary nor a new version tears it apart.
 * - **Panic** is off, or on for the whole call: only when nobody in any allowed version is fit. No mixture.
 */
import type { Clock } from '../../base/clock.ts';
import { type Random, SeededRandom } from '../../base/random.ts';
import { hash32 } from '../../base/rendezvous.ts';
import { Header } from '../../proto/wire/headers.ts';
import { type Call, headerOf } from '../call/call.ts';
import { hasBegun } from '../call/elsewhere.ts';
import { Verdict } from '../call/verdict.ts';
import type { Health } from '../health/health.ts';
import type { Candidate, Provider, Snapshot, Version } from '../table/snapshot.ts';
import { Affinity, freeOnes, keyOf } from './affinity.ts';
import { type BindingLimits, Bindings } from './bindings.ts';
import { draw, Group, leastRequest, primaryBackup } from './group.ts';
import { Lines } from './lines.ts';
import { probeFor } from './probe.ts';
import { BY_LOAD, Reasons } from './reasons.ts';
import { pinRefusal, refusal } from './refusal.ts';
import { isBusy, isUnfitOnly, standingOf, wordsFor } from './standing.ts';
import type { LineState, View } from './view.ts';

/** Where the live path and `explain` differ: whether anything is remembered. */
interface Mode {
  readonly dry: boolean;
  readonly random: Random;
}

/** A pin longer than any agent id is cut before it is shown. */
const PIN_SHOWN_MAX = 200;

export class Chooser {
  readonly #lines: Lines;
  readonly #bindings: Bindings<Provider>;
  readonly #affinity: Affinity;
  readonly #live: Mode;

  constructor(clock: Clock, random: Random, health: Health, affinity: BindingLimits) {
    this.#lines = new Lines(clock, health);
    this.#bindings = new Bindings(clock, affinity);
    this.#affinity = new Affinity(this.#bindings, this.#lines);
    this.#live = { dry: false, random };
  }

  /** Conversations remembered at present. */
  get bound(): number {
    return this.#bindings.size;
  }

  /** @param random of this call alone; null = the one that all share */
  choose(call: Call, now: number, random: Random | null = null): Verdict {
    return this.#choose(call, now, random === null ? this.#live : { dry: false, random });
  }

  /** What was remembered of a version before this call (recordings); null = nothing yet. */
  known(call: Call, version: Version): LineState | null {
    return this.#lines.known(call, version);
  }

  /** Where replay puts what was remembered then. */
  stateOf(call: Call, version: Version): LineState {
    return this.#lines.stateOf(call, version);
  }

  /** As if these agents held the conversation, oldest first, and nobody else (replay). */
  assume(key: string, agents: readonly Provider[]): void {
    for (const { agentId } of this.#bindings.of(key, true)?.slice() ?? []) this.#bindings.unbind(key, agentId);
    for (const agent of agents) this.#bindings.bind(key, agent);
  }

  /** The call has ended: a conversation that it began somewhere goes on there only if there was somebody. */
  ended(call: Call): void {
    if (call.begunAt === null || hasBegun(call)) return;
    const key = keyOf(call, call.begunAt.version);
    if (key !== null) this.#affinity.forget(call, key);
  }

  /**
   * The same decision, walking the versions as the pipeline does, without anything being remembered or changed. Where
   * chance decides, it is drawn from the trace id, so that it is one possible answer. `chosen` is null on a refusal.
   */
  foresee(call: Call, now: number): { readonly verdict: Verdict; readonly chosen: Candidate | null } {
    const { lineIndex, chosen, panicked } = call;
    const mode: Mode = { dry: true, random: new SeededRandom(hash32(call.traceId)) };
    let verdict = new Verdict(Reasons.noneHealthy, call.capability?.name ?? '', 'no version may serve it');
    let found: Candidate | null = null;
    for (let line = 0; line < call.lines.length && found === null; line++) {
      call.lineIndex = line;
      verdict = this.#choose(call, now, mode);
      if (verdict.reason.passes) found = call.chosen;
    }
    call.lineIndex = lineIndex;
    call.chosen = chosen;
    call.panicked = panicked;
    return { verdict, chosen: found };
  }

  /** What is prepared for a version, for `explain`. */
  viewOf(call: Call, version: Version, now: number): View {
    return this.#lines.viewOf(call, version, now);
  }

  /** The agents that hold the conversation of this call, oldest first. */
  holdersOf(key: string): readonly Provider[] {
    return this.#bindings.of(key, true) ?? [];
  }

  #choose(call: Call, now: number, mode: Mode): Verdict {
    const version = call.lines[call.lineIndex] as Version;
    const pin = pinOf(call);
    const key = keyOf(call, version);
    const isPlain = pin === null && key === null && call.attempts.length === 0 && !mode.dry;
    const view = isPlain ? this.#lines.recentOf(call, version, now) : this.#lines.viewOf(call, version, now);
    if (call.execution !== 'once' && !mode.dry) view.state.repeatableAt = now;
    if (pin !== null) return this.#pinned(call, view, pin, now);
    if (key !== null && call.begunAt !== null && !mode.dry && !hasBegun(call)) this.#affinity.forget(call, key);
    if (key !== null) return this.#byKey(call, view, key, now, mode);
    if (call.attempts.length > 0) return this.#exactly(call, view, now, mode, null);
    const found = this.#atOnce(call, view, now, mode);
    if (found !== null) return found;
    if (this.#lines.holds(view, now)) return this.#exactly(call, view, now, mode, null);
    const fresh = this.#lines.viewOf(call, version, now);
    return this.#atOnce(call, fresh, now, mode) ?? this.#exactly(call, fresh, now, mode, null);
  }

  /** The usual case: a probe, or the first pick of the first group, if health, which may have moved on, still has them so. */
  #atOnce(call: Call, view: View, now: number, mode: Mode): Verdict | null {
    if (view.byCaller) return null;
    if (view.probes.length > 0) {
      const probe = probeFor(call, view, now);
      if (probe !== null) {
        if (probe.health.usable(now) !== 'probe') return null;
        return take(call, probe, new Verdict(Reasons.probe, probe.provider.agentId, view.usable));
      }
    }
    const group = view.groups[0];
    if (group === undefined) return null;
    const candidate = group.candidates[pick(group, view, null, mode)] as Candidate;
    if (isBusy(candidate.provider) || candidate.health.usable(now) !== 'yes') return null;
    return takeByLoad(call, candidate, group, view);
  }

  /** A probe, then place by place, leaving out who is busy, tried or held back from this caller; then whoever has room for a probe; then panic. */
  #exactly(call: Call, view: View, now: number, mode: Mode, holder: Candidate | null): Verdict {
    if (view.probes.length > 0 && holder === null) {
      const probe = probeFor(call, view, now);
      if (probe !== null && standingOf(probe, call, view.rulesOf(probe), now, false) === 'probe') {
        return take(call, probe, new Verdict(Reasons.probe, probe.provider.agentId, view.usable));
      }
    }
    for (const group of view.groups) {
      const free = freeOnes(group, call, view, now);
      if (free.includes(1)) return takeByLoad(call, group.candidates[pick(group, view, free, mode)] as Candidate, group, view);
    }
    for (const candidate of view.probes) {
      if (standingOf(candidate, call, view.rulesOf(candidate), now, false) === 'probe') {
        return take(call, candidate, new Verdict(Reasons.lastProbe, candidate.provider.agentId));
      }
    }
    return this.#panic(call, view, now, mode, holder) ?? refusal(call, this.#viewsSoFar(call, now), now);
  }

  #pinned(call: Call, view: View, pin: string, now: number): Verdict {
    const candidate = view.candidateOf(pin);
    if (candidate === null) return this.#pinNotHere(call, view, pin, now);
    const rules = view.rulesOf(candidate);
    const standing = standingOf(candidate, call, rules, now, true);
    if (standing === 'usable' || standing === 'probe') return take(call, candidate, new Verdict(Reasons.pinned, pin));
    return pinRefusal(standing, candidate, wordsFor(standing, candidate, call, rules, now));
  }

  #pinNotHere(call: Call, view: View, pin: string, now: number): Verdict {
    if (!(call.table as Snapshot).providers.has(pin)) return new Verdict(Reasons.pinUnknown, pin.slice(0, PIN_SHOWN_MAX));
    for (let i = 0; i < call.lines.length; i++) {
      if (i === call.lineIndex) continue;
      const other = this.#lines.viewOf(call, call.lines[i] as Version, now);
      const there = other.candidateOf(pin);
      if (there === null) continue;
      if (i > call.lineIndex) return new Verdict(Reasons.pinElsewhere, pin, view.version.text, other.version.text);
      const rules = other.rulesOf(there);
      const standing = standingOf(there, call, rules, now, true);
      return pinRefusal(standing, there, wordsFor(standing, there, call, rules, now));
    }
    const versions = call.lines.map((line) => line.text);
    return new Verdict(Reasons.pinUnfit, pin, view.version.capability.name, versions);
  }

  #byKey(call: Call, view: View, key: string, now: number, mode: Mode): Verdict {
    const found = this.#affinity.find(call, view, key, now, mode.dry);
    if (found.candidate !== null && found.verdict !== null) return take(call, found.candidate, found.verdict);
    if (found.verdict !== null) return found.verdict;
    const verdict = this.#exactly(call, view, now, mode, found.holder);
    if (verdict.reason.passes && verdict.reason !== Reasons.panic && found.holder === null && !mode.dry)
      this.#affinity.begunAt(key, call.chosen as Candidate);
    return verdict;
  }

  /** Everybody who is unfit but not gone, by weight; a conversation stays with its holder. Null when panic does not apply. */
  #panic(call: Call, view: View, now: number, mode: Mode, holder: Candidate | null): Verdict | null {
    if (!view.version.settings.panic || this.#anybodyFit(call, now)) return null;
    const members = view.version.candidates.filter((candidate) =>
      isUnfitOnly(standingOf(candidate, call, view.rulesOf(candidate), now, candidate === holder)),
    );
    if (members.length === 0) return null;
    const group = new Group(
      members,
      Float64Array.from(members, (candidate) => candidate.weight),
      0,
    );
    const candidate = holder !== null && members.includes(holder) ? holder : (members[draw(group, mode.random, null, -1)] as Candidate);
    call.panicked = true;
    return take(call, candidate, new Verdict(Reasons.panic, candidate.provider.agentId, members.length));
  }

  /** In any version that this call may use. Who was tried was fit, unless it was tried in panic. */
  #anybodyFit(call: Call, now: number): boolean {
    for (const version of call.lines) {
      const view = this.#lines.viewOf(call, version, now);
      for (const candidate of version.candidates) {
        const standing = standingOf(candidate, call, view.rulesOf(candidate), now, false);
        if (standing === 'usable' || standing === 'probe' || standing === 'busy' || (standing === 'tried' && !call.panicked)) return true;
      }
    }
    return false;
  }

  #viewsSoFar(call: Call, now: number): View[] {
    return call.lines.slice(0, call.lineIndex + 1).map((version) => this.#lines.viewOf(call, version, now));
  }
}

/** `Reach-Pin`, or the provider that a fallback step names. An operator's reroute, and a fallback elsewhere, drop the caller's pin. */
function pinOf(call: Call): string | null {
  if (call.pin !== null) return call.pin;
  if (call.headers[Header.pin] === undefined || call.fallbackFrom !== null || call.reroutedBy !== null) return null;
  const pin = headerOf(call, Header.pin);
  return pin === '' ? null : pin;
}

function pick(group: Group, view: View, free: Uint8Array | null, mode: Mode): number {
  switch (view.version.settings.load) {
    case 'round_robin':
      return view.state.turns.pick(group, mode.random, free, mode.dry);
    case 'random':
      return draw(group, mode.random, free, -1);
    case 'primary_backup':
      return primaryBackup(group, free);
    default:
      return leastRequest(group, mode.random, free);
  }
}

function take(call: Call, candidate: Candidate, verdict: Verdict): Verdict {
  call.chosen = candidate;
  return verdict;
}

function takeByLoad(call: Call, candidate: Candidate, group: Group, view: View): Verdict {
  const reasons = BY_LOAD[group.place > view.bestPlace ? 1 : 0][view.version.settings.load];
  call.chosen = candidate;
  return new Verdict(
    reasons[group.place] as (typeof reasons)[number],
    candidate.provider.agentId,
    group.candidates.length,
    candidate.provider.health.inFlight,
  );
}
