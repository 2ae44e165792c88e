/**
 * Who is alive. An agent is online while its lease runs, and its sidecar's heartbeats renew it; time is the leader's own
 * monotonic clock, so that no machine's wall clock has a say.
 *
 * Busy is not dead: a heartbeat that lists an agent with nothing under way renews its lease from now; one that lists it
 * with calls under way renews it from its last answer (or from when it was last seen at rest), so that a busy agent keeps
 * its place for a whole lease, and one that hangs on its calls for longer does not keep it for ever.
 *
 * One sidecar that dies takes its agents along, as it should. When more than half of all providers fall silent at once, on
 * three sidecars or more, the fault is more likely on our side of the wire: they stay until an operator confirms it, or
 * until enough of them are back.
 */
import { formatDuration } from '../../base/duration.ts';
import { hash32, unit } from '../../base/rendezvous.ts';
import type { Heartbeat } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import type { AgentEntry, SidecarEntry } from './entries.ts';
import { Touch } from './marks.ts';
import type { RegistryState } from './state.ts';

export interface ProbeOrder {
  readonly agent: string;
  readonly url: string;
  readonly timeoutMs: number;
}

/** A health check that fails so many times in a row is believed. */
const PROBE_FAILURES = 3;
const PROBE_TIMEOUT_MS = 5_000;

/** Fewer providers than this are believed whatever happens to them. */
const MIN_PROVIDERS = 8;
const MIN_SIDECARS = 3;
/** Losses within it count as one. */
const LOSS_WINDOW_MS = 60_000;
/** A heartbeat so soon after a goodbye was under way when it was said. */
const LATE_BEAT_MS = 5_000;

export class LeaseKeeper {
  readonly #state: RegistryState;
  /** Leases that ran out lately: when, and whose. */
  #losses: { readonly at: number; readonly sidecar: string }[] = [];
  #held: string | null = null;
  #isConfirmed = false;

  constructor(state: RegistryState) {
    this.#state = state;
  }

  /** Why a sudden loss is not believed; null = nothing is held back. */
  get held(): string | null {
    return this.#held;
  }

  /** @returns whether the sidecar is to say hello. */
  beat(beat: Heartbeat): boolean {
    const sidecar = this.#state.sidecars.get(beat.sidecar);
    if (sidecar === undefined) return true;
    const now = this.#state.clock.now();
    if (sidecar.instance !== beat.instance) {
      if (!sidecar.former.includes(beat.instance)) return true;
      this.#state.marks.event({
        kind: 'twin',
        agent: '',
        sidecar: sidecar.name,
        why: '',
        words: `two processes call themselves ${sidecar.name}: the older one is not listened to. Give each sidecar a name of its own`,
      });
      return false;
    }
    if (sidecar.leftAt !== null) return now - sidecar.leftAt > LATE_BEAT_MS;
    // the first one that a new leader hears: what its predecessor had not yet written comes with the hello
    let isAsked = sidecar.beatAt === null;
    sidecar.beatAt = now;
    for (const [agentId, life] of Object.entries(beat.agents)) {
      const entry = sidecar.agents.get(agentId);
      if (entry !== undefined) this.#renew(entry, life.idleMs, life.inFlight, now);
      if (entry === undefined || entry.offline?.why === 'left') isAsked = true;
    }
    // what was refused may be taken now
    if (sidecar.refusedAt !== null && sidecar.refusedAt !== this.#state.revision) isAsked = true;
    return isAsked;
  }

  #renew(entry: AgentEntry, idleMs: number, inFlight: number, now: number): void {
    const { offlineMs } = this.#state.times;
    entry.inFlight = inFlight;
    entry.activeAt = Math.max(entry.activeAt ?? Number.NEGATIVE_INFINITY, now - idleMs);
    if (inFlight === 0) entry.restedAt = now;
    const deadline = Math.max(entry.restedAt, now - idleMs) + offlineMs;
    entry.deadline = Math.max(entry.deadline, deadline);
    if (entry.deadline <= now) return;
    entry.isOverdue = false;
    // what said goodbye comes back by registering, what a probe found dead by a probe
    if (entry.offline?.why === 'lease') this.#state.setOnline(entry, `${entry.agentId} is back`);
  }

  /** Everything that is due by now. */
  sweep(): void {
    const now = this.#state.clock.now();
    const expired: AgentEntry[] = [];
    const forgotten: AgentEntry[] = [];
    let online = 0;
    for (const sidecar of this.#state.sidecars.values()) {
      for (const entry of sidecar.agents.values()) {
        if (entry.offline !== null) {
          if (entry.offline.forgetAt <= now) forgotten.push(entry);
          continue;
        }
        online++;
        if (entry.deadline <= now) expired.push(entry);
      }
    }
    this.#expire(expired, online, now);
    for (const entry of forgotten) {
      this.#state.marks.event({
        kind: 'forgotten',
        agent: entry.agentId,
        sidecar: entry.sidecar.name,
        why: '',
        words: `${entry.agentId} is forgotten`,
      });
      this.#state.drop(entry, false);
    }
    for (const sidecar of this.#state.sidecars.values()) this.#forgetWithin(sidecar, now);
  }

  #expire(expired: readonly AgentEntry[], online: number, now: number): void {
    this.#losses = this.#losses.filter((loss) => now - loss.at <= LOSS_WINDOW_MS);
    const doubt = this.#isConfirmed ? null : this.#doubt(expired, online);
    if (doubt !== null) {
      for (const entry of expired) entry.isOverdue = true;
      if (this.#held === null) this.#state.marks.event({ kind: 'held', agent: '', sidecar: '', why: 'lease', words: doubt });
      this.#held = doubt;
      return;
    }
    this.#held = null;
    this.#isConfirmed = false;
    for (const entry of expired) {
      // an orphan's end is the late effect of a goodbye, no loss
      if (!entry.isOrphan) this.#losses.push({ at: now, sidecar: entry.sidecar.name });
      const words = entry.isOrphan
        ? `${entry.agentId} goes with the sidecar that described it`
        : `${entry.agentId} is offline: no sign of life for ${formatDuration(this.#state.times.offlineMs)}`;
      this.#state.setOffline(entry, entry.isOrphan ? 'left' : 'lease', words);
    }
  }

  #doubt(expired: readonly AgentEntry[], online: number): string | null {
    const fresh = expired.filter((entry) => !entry.isOrphan);
    if (fresh.length === 0) return null;
    const lost = fresh.length + this.#losses.length;
    const total = online + this.#losses.length;
    const sidecars = new Set([...fresh.map((entry) => entry.sidecar.name), ...this.#losses.map((loss) => loss.sidecar)]);
    if (total < MIN_PROVIDERS || sidecars.size < MIN_SIDECARS || lost * 2 <= total) return null;
    return `${lost} of ${total} providers on ${sidecars.size} sidecars fell silent within ${formatDuration(LOSS_WINDOW_MS)}: they are kept until this is confirmed`;
  }

  /** An operator says that it is true. */
  confirm(): void {
    if (this.#held === null) return;
    this.#state.marks.event({ kind: 'confirmed', agent: '', sidecar: '', why: '', words: `confirmed: ${this.#held}` });
    this.#isConfirmed = true;
    this.sweep();
  }

  #forgetWithin(sidecar: SidecarEntry, now: number): void {
    const touch = new Touch();
    for (const [label, { forgetAt }] of sidecar.retired) {
      if (forgetAt > now) continue;
      const known = this.#state.book.byLabel(label);
      if (known !== undefined) this.#state.forgetContract(known, touch);
      else sidecar.retired.delete(label);
    }
    if (sidecar.agents.size === 0 && sidecar.retired.size === 0) {
      const silentSince = sidecar.leftAt ?? sidecar.lastSignAt();
      if (now - silentSince >= this.#state.times.retentionMs) {
        this.#state.sidecars.delete(sidecar.name);
        this.#state.scopes.forget(sidecar.name);
        touch.registrations.add(sidecar.name);
        touch.scopes.add(sidecar.name);
        touch.forgotten.add(Tail.registration(sidecar.name));
        touch.forgotten.add(Tail.scope(sidecar.name));
        this.#state.marks.event({
          kind: 'sidecar-forgotten',
          agent: '',
          sidecar: sidecar.name,
          why: '',
          words: `the sidecar ${sidecar.name} is forgotten`,
        });
      }
    }
    this.#state.marks.atOnce(touch);
  }

  /** A whole lease for everybody who is online. */
  grace(): void {
    const now = this.#state.clock.now();
    for (const sidecar of this.#state.sidecars.values()) {
      sidecar.knownAt = now;
      for (const entry of sidecar.agents.values()) {
        if (entry.offline !== null) continue;
        entry.deadline = Math.max(entry.deadline, now + this.#state.times.offlineMs);
        entry.restedAt = now;
        entry.isOverdue = false;
      }
    }
  }

  /** The health checks of third parties that are due; each is counted as asked. */
  probesDue(): ProbeOrder[] {
    const now = this.#state.clock.now();
    const due: ProbeOrder[] = [];
    for (const [agentId, entries] of this.#state.byAgent) {
      // of several sidecars that describe it alike, the first asks for all
      const entry = entries[0] as AgentEntry;
      const check = entry.record.healthCheck;
      if (entry.probing === null || check === null || entry.offline?.why === 'left' || entry.probing.nextAt > now) continue;
      // not all in the same instant, and each always at its own
      const phase = unit(hash32(agentId)) * check.intervalMs;
      entry.probing.nextAt = now + check.intervalMs - ((((now - phase) % check.intervalMs) + check.intervalMs) % check.intervalMs);
      due.push({
        agent: agentId,
        url: entry.record.endpoint.address + check.path,
        timeoutMs: Math.min(PROBE_TIMEOUT_MS, check.intervalMs),
      });
    }
    return due;
  }

  probed(agentId: string, isWell: boolean): void {
    const now = this.#state.clock.now();
    const entries = this.#state.byAgent.get(agentId) ?? [];
    const first = entries[0]?.probing;
    if (first === null || first === undefined) return;
    first.failures = isWell ? 0 : first.failures + 1;
    for (const entry of entries) {
      if (isWell) this.#probedWell(entry, now);
      else if (first.failures >= PROBE_FAILURES && entry.offline?.why !== 'left')
        this.#state.setOffline(entry, 'probe', `${agentId} is offline: its health check failed ${first.failures} times in a row`);
    }
  }

  #probedWell(entry: AgentEntry, now: number): void {
    if (entry.offline?.why === 'left' || entry.isOrphan) return;
    // a third party outlives the silence of the sidecar that described it, but not for ever
    if (now - entry.sidecar.lastSignAt() < this.#state.times.retentionMs)
      entry.deadline = Math.max(entry.deadline, now + this.#state.times.offlineMs);
    entry.activeAt = now;
    entry.restedAt = now;
    if (entry.deadline > now) this.#state.setOnline(entry, `${entry.agentId} is back: its health check succeeds`);
  }
}
