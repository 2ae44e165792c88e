/**
 * The route table as one sidecar uses it: compiled once per change, read once per call, never written after it is
 * installed (but for the caches marked as such). `compile.ts` makes it from a TableDocument.
 */
import type { SemVer } from 'semver';
import type { Validator } from '../../base/json-schema.ts';
import type { Settings } from '../../proto/language/settings.ts';
import type { Acl, Contract, Override, ProviderRecord, TableDocument } from '../../proto/language/types.ts';
import type { HealthCell } from '../health/cell.ts';
import type { ProviderHealth } from '../health/provider.ts';

/** How this sidecar reaches a provider: itself, over the mesh port of the sidecar that hosts it, or through its own inbound end. */
export type Reach = 'direct' | 'mesh' | 'self';

export class Provider {
  readonly agentId: string;
  readonly record: ProviderRecord;
  readonly reach: Reach;
  /** Base URL of the host's mesh port when `reach` is `mesh`; '' otherwise. */
  readonly meshUrl: string;
  /** 0 same zone, 1 same region, 2 elsewhere or unknown. */
  readonly distance: 0 | 1 | 2;
  /** Drained by its record: for all that it offers. Ask the candidate, which knows the operator's policy too. */
  readonly drain: boolean;
  readonly health: ProviderHealth;

  constructor(record: ProviderRecord, reach: Reach, meshUrl: string, distance: 0 | 1 | 2, drain: boolean, health: ProviderHealth) {
    this.agentId = record.agentId;
    this.record = record;
    this.reach = reach;
    this.meshUrl = meshUrl;
    this.distance = distance;
    this.drain = drain;
    this.health = health;
  }
}

/** One provider offering one version of one capability. */
export class Candidate {
  readonly provider: Provider;
  readonly version: Version;
  /** Settings of the version with the operator's settings for this provider on top. */
  readonly settings: Settings;
  /** After the operator's policy. */
  readonly weight: number;
  readonly health: HealthCell;
  /** By the provider's record, or by the operator's policy for this capability, which is the stronger one. */
  readonly drain: boolean;
  /** Whatever the transport prepared for this target (URL parts, header arrays); owned by the transport, made once. */
  prepared: unknown = null;
  /** Where its attempts are counted; owned by the metrics, found once. */
  counted: unknown = null;

  constructor(provider: Provider, version: Version, settings: Settings, weight: number, health: HealthCell, drain = provider.drain) {
    this.provider = provider;
    this.version = version;
    this.settings = settings;
    this.weight = weight;
    this.health = health;
    this.drain = drain;
  }
}

export class Version {
  readonly capability: Capability;
  readonly text: string;
  readonly semver: SemVer;
  readonly contract: Contract;
  readonly settings: Settings;
  readonly input: Validator | null;
  readonly output: Validator | null;
  /** Its ACL refuses nobody: whom it does not name is logged and counted. */
  readonly isAudited: boolean;
  /** Filled by the compiler; stable order (agent id). */
  readonly candidates: Candidate[] = [];
  /** Cache of `choose`: who is eligible at which health version. Owned by choose. */
  eligible: unknown = null;
  /** Where somebody was found online last: with thousands of candidates one does not begin at the first each time. */
  #aliveAt = 0;
  #places: Map<string, number> | null = null;

  constructor(
    capability: Capability,
    semver: SemVer,
    contract: Contract,
    settings: Settings,
    input: Validator | null,
    output: Validator | null,
    isAudited = false,
  ) {
    this.capability = capability;
    this.text = semver.version;
    this.semver = semver;
    this.contract = contract;
    this.settings = settings;
    this.input = input;
    this.output = output;
    this.isAudited = isAudited;
  }

  /** Place of an agent among the candidates, -1 when it is not there. To be asked when all of them are. */
  placeOf(agentId: string): number {
    this.#places ??= new Map(this.candidates.map((candidate, i) => [candidate.provider.agentId, i]));
    return this.#places.get(agentId) ?? -1;
  }

  /** Somebody of it is online. */
  get isAlive(): boolean {
    const { candidates } = this;
    const from = this.#aliveAt;
    for (let i = from; i < candidates.length; i++) if (this.#isOnline(i)) return true;
    for (let i = 0; i < from && i < candidates.length; i++) if (this.#isOnline(i)) return true;
    return false;
  }

  #isOnline(i: number): boolean {
    if ((this.candidates[i] as Candidate).provider.health.offline) return false;
    this.#aliveAt = i;
    return true;
  }
}

/** A provider as it stands in one capability. */
export interface Member {
  readonly provider: Provider;
  readonly cell: HealthCell;
  /** Calls at once that it is given here. */
  readonly limit: number;
}

export class Capability {
  readonly name: string;
  /** Newest first. */
  readonly versions: Version[] = [];
  /** Operator's range for calls that name none. */
  readonly defaultRange: string | null;
  /** Exact version → share 0–1. */
  readonly canary: ReadonlyMap<string, number> | null;
  /** True when every version has the same ACL: one check answers for all. Set by the compiler. */
  sameAcl = true;
  /** By agent id, over all versions. Filled by the compiler. */
  readonly members = new Map<string, Member>();
  /** Cache of `resolve`, keyed by range and tags. Owned by resolve; bounded there. */
  readonly resolved = new Map<string, unknown>();

  /** What it was compiled from: the same object means that nothing has changed. */
  readonly part: object | null;

  constructor(name: string, defaultRange: string | null, canary: ReadonlyMap<string, number> | null, part: object | null = null) {
    this.name = name;
    this.defaultRange = defaultRange;
    this.canary = canary;
    this.part = part;
  }
}

export class Snapshot {
  /** Increases by one with every table that is installed. */
  readonly version: number;
  /** As read from a file; of a pushed table only the overrides and the sidecars' addresses are kept here. */
  readonly document: TableDocument;
  /** Canonical name → capability. */
  readonly capabilities: ReadonlyMap<string, Capability>;
  /** Alias → capability. */
  readonly aliases: ReadonlyMap<string, Capability>;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly overrides: readonly Override[];
  /** In how many capabilities an agent stands, where it is more than one; null = not counted. Owned by the compiler. */
  readonly uses: ReadonlyMap<string, number> | null;

  constructor(
    version: number,
    document: TableDocument,
    capabilities: ReadonlyMap<string, Capability>,
    aliases: ReadonlyMap<string, Capability>,
    providers: ReadonlyMap<string, Provider>,
    uses: ReadonlyMap<string, number> | null = null,
  ) {
    this.version = version;
    this.document = document;
    this.capabilities = capabilities;
    this.aliases = aliases;
    this.providers = providers;
    this.overrides = document.overrides;
    this.uses = uses;
  }
}

/** In what way a provider is offline, for people. */
export function offlineWords({ record, reach }: Provider): string {
  return record.endpoint.type === 'channel' && reach !== 'mesh' ? 'not dialled in' : 'offline';
}

/** Whether an ACL lets a caller in; null = no, else the words of the pattern that did. */
export function admittedBy(acl: Acl, team: string, role: string, id: string): string | null {
  if (acl.isPublic) return 'public';
  for (const pattern of acl.patterns) {
    if (
      (pattern.team === null || pattern.team === team) &&
      (pattern.role === null || pattern.role === role) &&
      (pattern.id === null || pattern.id === id)
    )
      return pattern.text;
  }
  return null;
}

/** Whether a version may be had by that caller: its ACL names it, or refuses nobody. */
export function isOpenTo(version: Version, team: string, role: string, id: string): boolean {
  return version.isAudited || admittedBy(version.contract.acl, team, role, id) !== null;
}

/** The table in force, behind one reference: a call reads it once and keeps what it read. */
export interface Table {
  current(): Snapshot;
}
