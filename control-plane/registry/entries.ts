/**
 * What is known of one sidecar and of one agent that it registered. Plain state: who may change it and what follows from
 * that stands in `state.ts`. Times without a unit word in their comment are monotonic milliseconds.
 */
import type { Contract, ProviderRecord } from '../../proto/language/types.ts';
import type { Hello, OfflineWhy } from '../../proto/wire/registry.ts';

export interface Offline {
  /** Wall clock, for people. */
  readonly sinceMs: number;
  readonly why: OfflineWhy;
  /** When it is forgotten. */
  readonly forgetAt: number;
}

/** The declared health check of a third party, asked by the control plane. */
export interface Probing {
  nextAt: number;
  failures: number;
}

const NONE: ReadonlyMap<string, Contract> = new Map();

export class AgentEntry {
  readonly sidecar: SidecarEntry;
  record: ProviderRecord;
  /** `name@version` of the contracts that it holds: those that came with it and those of its offers. */
  labels: readonly string[];
  /** Null = online. */
  offline: Offline | null = null;
  /** When its lease runs out. */
  deadline: number;
  /** When it was last seen with nothing under way: until then, silence is rest and not trouble. */
  restedAt: number;
  /** Last answer or beat; null = nothing heard since the registry was loaded. */
  activeAt: number | null = null;
  inFlight = 0;
  /** The lease has run out, and the registry does not believe it yet. */
  isOverdue = false;
  /** A third party whose sidecar said goodbye: it goes with its lease, and probes do not keep it. */
  isOrphan = false;
  probing: Probing | null = null;
  /** `name@version` → the contract as it would have it, where others that are online have it otherwise. */
  contested: ReadonlyMap<string, Contract> = NONE;

  constructor(sidecar: SidecarEntry, record: ProviderRecord, labels: readonly string[], now: number, deadline: number) {
    this.sidecar = sidecar;
    this.record = record;
    this.labels = labels;
    this.restedAt = now;
    this.deadline = deadline;
  }

  get agentId(): string {
    return this.record.agentId;
  }

  get isOnline(): boolean {
    return this.offline === null;
  }
}

/** Instances that were replaced and are remembered, so that two processes of one name are seen. */
const MAX_FORMER = 8;

export class SidecarEntry {
  readonly name: string;
  instance: string;
  mesh: string | null;
  region: string | null;
  zone: string | null;
  callers: readonly string[];
  /** It knows subjects with the names of who speaks (`Hello.named`). */
  isNamed: boolean;
  readonly agents = new Map<string, AgentEntry>();
  /** `name@version` → when and until when: contracts that it was the last to hold. */
  readonly retired = new Map<string, { readonly sinceMs: number; readonly forgetAt: number }>();
  readonly former: string[] = [];
  /** Null = nothing heard since the registry was loaded. */
  beatAt: number | null;
  /** Silence is counted from here at the earliest. */
  knownAt: number;
  /** When it said goodbye; null = it did not. */
  leftAt: number | null = null;
  /** The registry's revision when something that it said was not taken; null = everything was. Worth another try when that has moved on. */
  refusedAt: number | null = null;
  /** Bytes of its agents' records. */
  bytes = 0;

  constructor(hello: Hello, now: number, isHeard: boolean) {
    this.name = hello.sidecar;
    this.instance = hello.instance;
    this.mesh = hello.mesh;
    this.region = hello.region;
    this.zone = hello.zone;
    this.callers = hello.callers;
    this.isNamed = hello.named === true;
    this.beatAt = isHeard ? now : null;
    this.knownAt = now;
  }

  /** A new process has taken the name. */
  replace(instance: string): void {
    this.former.push(this.instance);
    if (this.former.length > MAX_FORMER) this.former.shift();
    this.instance = instance;
  }

  lastSignAt(): number {
    return Math.max(this.knownAt, this.beatAt ?? 0);
  }
}
