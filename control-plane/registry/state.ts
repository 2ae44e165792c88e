/**
 * The registry's state and the only ways to change it: an agent is installed, goes offline, comes back, is dropped; what
 * operators say is replaced. Each step keeps the indices whole and notes what it touches. Whether a step is right is
 * decided before (`judge.ts`), when it is due elsewhere (`leases.ts`).
 */
import type { Clock } from '../../base/clock.ts';
import { hash32, unit } from '../../base/rendezvous.ts';
import { policiesFor } from '../../proto/language/merge.ts';
import { sameValue } from '../../proto/language/schema-compat.ts';
import type { Contract } from '../../proto/language/types.ts';
import type { AgentRegistration, OfflineWhy } from '../../proto/wire/registry.ts';
import { Tail } from '../../proto/wire/subjects.ts';
import { fallbackOf, targetsOf } from '../rules/circle.ts';
import { EMPTY_DOCUMENT, type OperatorsDocument } from '../rules/document.ts';
import { ContractBook, type KnownContract, labelOf } from './contracts.ts';
import { AgentEntry, type SidecarEntry } from './entries.ts';
import { Marks, Touch } from './marks.ts';
import type { ProviderSetting } from './operators.ts';
import { sizeOf } from './requests.ts';
import { contractsSaid } from './said.ts';
import { Scopes } from './scopes.ts';

export interface LeaseTimes {
  readonly heartbeatMs: number;
  readonly offlineMs: number;
  /** How long what is offline or retired stays known. */
  readonly retentionMs: number;
}

const FIRST_PROBE_MS = 5_000;

export class RegistryState {
  readonly clock: Clock;
  readonly times: LeaseTimes;
  readonly marks: Marks;
  readonly book = new ContractBook();
  readonly sidecars = new Map<string, SidecarEntry>();
  /** More than one only for a third party that several sidecars describe alike. */
  readonly byAgent = new Map<string, AgentEntry[]>();
  readonly byCapability = new Map<string, Set<AgentEntry>>();
  readonly scopes: Scopes;
  epoch = '';
  /** Goes up with everything that may let in what was refused before. */
  revision = 0;
  active: OperatorsDocument = EMPTY_DOCUMENT;
  /** What a share of the sidecars uses; null = no roll-out runs. */
  staged: OperatorsDocument | null = null;
  settings: Readonly<Record<string, ProviderSetting>> = {};
  canary: Readonly<Record<string, Readonly<Record<string, number>>>> = {};

  constructor(clock: Clock, times: LeaseTimes) {
    this.clock = clock;
    this.times = times;
    this.marks = new Marks(clock);
    this.scopes = new Scopes({
      sidecars: () => this.sidecars.values(),
      contractsOf: (name) => this.#contractsAnywhere(name),
      targetsOf: (name) => this.#targetsOf(name),
      names: () => this.names(),
      canonical: (name) => this.canonical(name),
      isOpen: (name) => this.#isOpen(name),
      hostsOf: (name) => new Set([...(this.byCapability.get(name) ?? [])].map((entry) => entry.sidecar.name)),
    });
  }

  /** Every capability of which anything is known. */
  names(): Set<string> {
    const names = new Set(this.book.names());
    for (const document of [this.active, this.staged]) for (const contract of document?.contracts ?? []) names.add(contract.name);
    return names;
  }

  knows(name: string): boolean {
    return (
      this.book.hasName(name) ||
      [this.active, this.staged].some((document) => document?.contracts.some((contract) => contract.name === name))
    );
  }

  canonical(name: string): string {
    if (this.book.hasName(name)) return name;
    const owner = this.book.ownerOf(name);
    if (owner !== undefined) return owner;
    for (const document of [this.active, this.staged])
      for (const contract of document?.contracts ?? []) if (contract.name !== name && contract.aliases.includes(name)) return contract.name;
    return name;
  }

  #contractsAnywhere(name: string): Contract[] {
    const active = contractsSaid(name, this.book, this.active);
    return this.staged === null ? active : [...active, ...contractsSaid(name, this.book, this.staged)];
  }

  #isOpen(name: string): boolean {
    for (const document of [this.active, this.staged]) {
      if (document === null) continue;
      const said = policiesFor(name, document.policies).findLast((policy) => policy.aclMode != null)?.aclMode;
      if (said === 'audit') return true;
      if (said !== 'enforce' && contractsSaid(name, this.book, document).some(({ acl }) => acl.mode === 'audit')) return true;
    }
    return false;
  }

  #targetsOf(name: string): string[] {
    const targets: string[] = [];
    for (const document of [this.active, this.staged]) {
      if (document === null) continue;
      for (const contract of contractsSaid(name, this.book, document)) targets.push(...targetsOf(fallbackOf(contract, document.policies)));
    }
    return targets;
  }

  /** The entry that counts for an agent: one that is online, else the first. */
  entryOf(agentId: string): AgentEntry | undefined {
    const entries = this.byAgent.get(agentId);
    return entries?.find((entry) => entry.isOnline) ?? entries?.[0];
  }

  /** An agent as registered, online from now on. It has been judged. */
  install(sidecar: SidecarEntry, registration: AgentRegistration, contested: readonly Contract[] = []): void {
    const { record } = registration;
    const now = this.clock.now();
    const touch = new Touch();
    const changed = this.#learn(
      registration.contracts.filter((contract) => !contested.includes(contract)),
      touch,
    );
    const labels = this.labelsFor(registration);
    const existing = sidecar.agents.get(record.agentId);
    const isSame =
      existing !== undefined && changed.size === 0 && sameValue(existing.record, record) && sameLabels(existing.labels, labels);
    const entry = existing ?? new AgentEntry(sidecar, record, [], now, now);
    const wasOnline = existing?.isOnline === true;
    entry.restedAt = now;
    entry.activeAt = now;
    entry.deadline = now + this.times.offlineMs;
    entry.isOverdue = false;
    entry.isOrphan = false;
    this.#contest(entry, contested);
    // a sidecar that says again what it said does not speak for a third party that a probe found dead
    if (isSame && (wasOnline || existing.offline?.why === 'probe')) return;
    if (existing === undefined) this.enter(entry);
    if (!isSame) this.#rewrite(entry, record, labels, touch);
    entry.offline = null;
    if (entry.probing !== null) entry.probing.failures = 0;
    this.#touchEntry(entry, touch);
    for (const name of changed) this.#contractsChanged(name, touch);
    this.marks.event({
      kind: existing === undefined ? 'registered' : isSame ? 'online' : 'changed',
      agent: record.agentId,
      sidecar: sidecar.name,
      why: '',
      words: `${record.agentId} ${existing === undefined ? 'registered' : isSame ? 'is back' : 'registered anew'}: ${record.offers.map(labelOf).join(', ')}`,
    });
    this.marks.touch(record.agentId, touch);
  }

  #contest(entry: AgentEntry, contested: readonly Contract[]): void {
    const before = entry.contested;
    entry.contested = new Map(contested.map((contract) => [labelOf(contract), contract]));
    for (const label of entry.contested.keys()) {
      if (before.has(label)) continue;
      const words = `${entry.agentId} has ${label} otherwise than it is registered elsewhere, and serves under that`;
      this.marks.event({ kind: 'contested', agent: entry.agentId, sidecar: entry.sidecar.name, why: '', words });
    }
  }

  /** Its contracts and those of its offers that are known. */
  labelsFor(registration: AgentRegistration): string[] {
    const labels = new Set(registration.contracts.map(labelOf));
    for (const offer of registration.record.offers) if (this.book.get(offer.name, offer.version) !== undefined) labels.add(labelOf(offer));
    return [...labels];
  }

  /** Puts contracts into the book; the names whose contracts are other ones now. */
  #learn(contracts: readonly Contract[], touch: Touch): Set<string> {
    const changed = new Set<string>();
    for (const contract of contracts) {
      const known = this.book.get(contract.name, contract.version);
      if (known !== undefined && sameValue(known.contract, contract)) continue;
      if (known !== undefined) for (const holder of known.holders) touch.registrations.add(holder.sidecar.name);
      this.book.put(contract);
      this.revision++;
      changed.add(contract.name);
    }
    return changed;
  }

  /** Enters an entry into the indices, without its record's offers. */
  enter(entry: AgentEntry): void {
    entry.sidecar.agents.set(entry.agentId, entry);
    this.byAgent.set(entry.agentId, [...(this.byAgent.get(entry.agentId) ?? []), entry]);
    this.#index(entry);
    entry.sidecar.bytes += sizeOf(entry.record);
  }

  #index(entry: AgentEntry): void {
    for (const { name } of entry.record.offers) {
      const entries = this.byCapability.get(name) ?? new Set<AgentEntry>();
      this.byCapability.set(name, entries.add(entry));
    }
  }

  #unindex(entry: AgentEntry): void {
    for (const { name } of entry.record.offers) {
      const entries = this.byCapability.get(name);
      entries?.delete(entry);
      if (entries?.size === 0) this.byCapability.delete(name);
    }
  }

  #rewrite(entry: AgentEntry, record: AgentEntry['record'], labels: readonly string[], touch: Touch): void {
    const before = entry.record;
    for (const { name } of before.offers) touch.capabilities.add(name);
    const freed = entry.labels.filter((label) => !labels.includes(label));
    this.#unindex(entry);
    entry.sidecar.bytes += sizeOf(record) - sizeOf(before);
    entry.record = record;
    this.#index(entry);
    this.hold(entry, labels, touch);
    for (const label of freed) this.#release(entry, label, true, touch);
    const names = new Set([...before.offers, ...record.offers].map((offer) => offer.name));
    if (this.scopes.hostingChanged(entry.sidecar, names)) touch.scopes.add(entry.sidecar.name);
    this.setProbing(entry);
  }

  setProbing(entry: AgentEntry): void {
    const check = entry.record.via === null ? entry.record.healthCheck : null;
    if (check === null) entry.probing = null;
    // a restarted control plane does not ask all of them in one instant
    else
      entry.probing ??= {
        nextAt: this.clock.now() + unit(hash32(entry.agentId)) * Math.min(check.intervalMs, FIRST_PROBE_MS),
        failures: 0,
      };
  }

  /** Makes an entry a holder of contracts; one that was retired has a holder again. */
  hold(entry: AgentEntry, labels: readonly string[], touch: Touch): void {
    entry.labels = labels;
    for (const label of labels) {
      const known = this.book.byLabel(label);
      if (known === undefined) continue;
      known.holders.add(entry);
      if (known.retiredAt === null) continue;
      known.retiredAt.retired.delete(label);
      touch.registrations.add(known.retiredAt.name);
      known.retiredAt = null;
    }
  }

  #release(entry: AgentEntry, label: string, isRetired: boolean, touch: Touch): void {
    const known = this.book.byLabel(label);
    if (known === undefined) return;
    known.holders.delete(entry);
    if (known.holders.size > 0) return;
    if (isRetired) {
      this.retire(known, entry.sidecar, this.clock.wallMs(), this.clock.now() + this.times.retentionMs);
      touch.registrations.add(entry.sidecar.name);
    } else this.forgetContract(known, touch);
  }

  retire(known: KnownContract, sidecar: SidecarEntry, sinceMs: number, forgetAt: number): void {
    known.retiredAt = sidecar;
    sidecar.retired.set(labelOf(known.contract), { sinceMs, forgetAt });
  }

  forgetContract(known: KnownContract, touch: Touch): void {
    const { contract } = known;
    known.retiredAt?.retired.delete(labelOf(contract));
    if (known.retiredAt !== null) touch.registrations.add(known.retiredAt.name);
    this.book.remove(contract);
    this.revision++;
    this.#contractsChanged(contract.name, touch);
    if (!this.knows(contract.name)) touch.forgotten.add(Tail.capability(contract.name));
  }

  #contractsChanged(name: string, touch: Touch): void {
    touch.capabilities.add(name);
    for (const sidecar of this.scopes.capabilityChanged(name)) touch.scopes.add(sidecar);
  }

  /** What operators say about these capabilities has changed. */
  saidChanged(names: Iterable<string>): Touch {
    this.revision++;
    const touch = new Touch();
    for (const name of names) {
      this.#contractsChanged(name, touch);
      if (!this.knows(name)) touch.forgotten.add(Tail.capability(name));
    }
    return touch;
  }

  #touchEntry(entry: AgentEntry, touch: Touch): void {
    touch.registrations.add(entry.sidecar.name);
    for (const { name } of entry.record.offers) touch.capabilities.add(name);
  }

  setOffline(entry: AgentEntry, why: OfflineWhy, words: string): void {
    if (entry.offline !== null) {
      if (entry.offline.why === why) return;
      entry.offline = { ...entry.offline, why };
      const touch = new Touch();
      touch.registrations.add(entry.sidecar.name);
      this.marks.touch(entry.agentId, touch);
      return;
    }
    this.revision++;
    entry.offline = { sinceMs: this.clock.wallMs(), why, forgetAt: this.clock.now() + this.times.retentionMs };
    entry.isOverdue = false;
    entry.inFlight = 0;
    const touch = new Touch();
    this.#touchEntry(entry, touch);
    this.marks.event({ kind: 'offline', agent: entry.agentId, sidecar: entry.sidecar.name, why, words });
    this.marks.touch(entry.agentId, touch);
  }

  setOnline(entry: AgentEntry, words: string): void {
    if (entry.offline === null) return;
    entry.offline = null;
    const touch = new Touch();
    this.#touchEntry(entry, touch);
    this.marks.event({ kind: 'online', agent: entry.agentId, sidecar: entry.sidecar.name, why: '', words });
    this.marks.touch(entry.agentId, touch);
  }

  /** Takes an entry out altogether. `isRetired`: contracts that nobody else holds stay known for a day. */
  drop(entry: AgentEntry, isRetired: boolean): void {
    this.revision++;
    const touch = new Touch();
    this.#touchEntry(entry, touch);
    entry.sidecar.agents.delete(entry.agentId);
    entry.sidecar.bytes -= sizeOf(entry.record);
    this.#unindex(entry);
    const others = (this.byAgent.get(entry.agentId) ?? []).filter((each) => each !== entry);
    if (others.length > 0) this.byAgent.set(entry.agentId, others);
    else this.byAgent.delete(entry.agentId);
    for (const label of entry.labels) this.#release(entry, label, isRetired, touch);
    const names = new Set(entry.record.offers.map((offer) => offer.name));
    if (this.scopes.hostingChanged(entry.sidecar, names)) touch.scopes.add(entry.sidecar.name);
    this.marks.touch(entry.agentId, touch);
  }
}

function sameLabels(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((label) => b.includes(label));
}
