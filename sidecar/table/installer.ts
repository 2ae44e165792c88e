/**
 * From what is held to the table in force. Which capabilities may have changed is gathered, and everything that comes in
 * one turn of the event loop is installed by one compile; when compiling is slow, because there is much of it, it may take
 * a fifth of the time and no more.
 */
import type { Clock, Timer } from '../../base/clock.ts';
import type { ProviderRecord } from '../../proto/language/types.ts';
import type { CapabilityPart, CapabilityParts } from './compile.ts';
import type { Held } from './held.ts';
import type { InstalledTable } from './installed.ts';
import type { OwnAgents } from './own-agents.ts';
import { assemble, type Beside, documentOf } from './parts.ts';

/** After an installation that took a while, the next one waits so many times as long. */
const REST = 4;
const MAX_REST_MS = 250;

/** How long providers are kept that the registry does not name, and which of them. */
export interface KeepStep {
  /** `clock.now()`. */
  readonly until: number;
  readonly stays: (agentId: string) => boolean;
}

function staying(kept: ReadonlyMap<string, Beside>, stays: (agentId: string) => boolean): Map<string, Beside> {
  const left = new Map<string, Beside>();
  for (const [name, beside] of kept) {
    const providers = beside.providers.filter(({ record }) => stays(record.agentId));
    if (providers.length > 0) left.set(name, { ...beside, providers });
  }
  return left;
}

export interface InstallerParts {
  readonly clock: Clock;
  readonly table: InstalledTable;
  readonly own: OwnAgents;
  /** This sidecar's own number in [0, 1), for staged roll-outs. */
  readonly share: number;
  readonly unreachable: (record: ProviderRecord) => string | null;
  held(): Held;
  onInstalled(): void;
}

export class Installer {
  readonly #given: InstallerParts;
  #parts = new Map<string, CapabilityPart>();
  readonly #touched = new Set<string>();
  /** Providers that are named and cannot be reached from here, with the reason. */
  readonly #unusable = new Map<string, string>();
  #kept = new Map<string, Beside>();
  #keptTimer: Timer | null = null;
  #timer: Timer | null = null;
  /** Told when what is touched has been installed. */
  #waiting: (() => void)[] = [];
  /** Of the last installation; null = to be found out. */
  #document: { readonly version: number; readonly staged: boolean } | null = null;
  #restUntil = 0;
  /** Nothing is installed before there is something to begin with: a copy, or a complete scope. */
  isInUse = false;
  source = 'registry';

  constructor(given: InstallerParts) {
    this.#given = given;
  }

  unusable(): readonly { readonly provider: string; readonly why: string }[] {
    return [...this.#unusable].map(([provider, why]) => ({ provider, why }));
  }

  parts(): CapabilityParts {
    return this.#parts;
  }

  kept(): readonly { readonly capability: string; readonly provider: string }[] {
    return [...this.#kept].flatMap(([capability, { providers }]) =>
      providers.map(({ record }) => ({ capability, provider: record.agentId })),
    );
  }

  document(): { readonly version: number; readonly staged: boolean } {
    if (!this.isInUse) return this.#newestDocument();
    this.#document ??= this.#newestDocument();
    return this.#document;
  }

  #newestDocument(): { readonly version: number; readonly staged: boolean } {
    let newest = { version: 0, staged: false };
    const held = this.#given.held();
    for (const name of held.scope?.state ?? []) {
      const document = documentOf(held.shardsOf(name) ?? [], this.#given.share);
      if (document.version > newest.version) newest = document;
    }
    return newest;
  }

  /** Nothing waits to be put into force. */
  get isSettled(): boolean {
    return this.#timer === null;
  }

  /** These capabilities may have changed. */
  touch(names: readonly string[]): void {
    if (!this.isInUse || names.length === 0) return;
    for (const name of names) this.#touched.add(name);
    this.#timer ??= this.#given.clock.after(Math.max(0, this.#restUntil - this.#given.clock.now()), () => {
      this.#timer = null;
      this.#install(false);
    });
  }

  /** Resolves when all that was touched until now is in force here. */
  settled(): Promise<void> {
    if (this.#timer === null) return Promise.resolve();
    return new Promise((done) => void this.#waiting.push(done));
  }

  touchAll(): void {
    this.touch(this.#names(this.#given.held()));
  }

  /** Everything, at once. */
  installAll(): void {
    this.isInUse = true;
    for (const name of this.#names(this.#given.held())) this.#touched.add(name);
    this.#install(true);
  }

  /**
   * Lets providers stand beside the registry's word for a while, unless it names them. At the end of each step those stay that
   * the next one lets; after the last one nobody does.
   */
  keep(kept: Map<string, Beside>, steps: readonly KeepStep[]): void {
    const { clock } = this.#given;
    const [step, ...later] = steps;
    this.#kept = kept;
    this.#keptTimer?.cancel();
    this.#keptTimer = null;
    if (kept.size === 0 || step === undefined) return;
    this.#keptTimer = clock.after(step.until - clock.now(), () => {
      const names = [...this.#kept.keys()];
      const next = later[0];
      this.keep(next === undefined ? new Map() : staying(this.#kept, next.stays), later);
      this.touch(names);
    });
  }

  /** The table that another state would make, without what is kept. */
  wouldBe(held: Held): CapabilityParts {
    const parts = new Map<string, CapabilityPart>();
    for (const name of this.#names(held)) {
      const part = this.#assembled(held, name, false);
      if (part !== null) parts.set(name, part);
    }
    return parts;
  }

  stop(): void {
    this.#timer?.cancel();
    this.#keptTimer?.cancel();
    this.#timer = null;
    this.isInUse = false;
    this.#tellWaiting();
  }

  #tellWaiting(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const done of waiting) done();
  }

  #install(isForced: boolean): void {
    this.#document = null;
    const { clock, table } = this.#given;
    const held = this.#given.held();
    const startedAt = clock.now();
    let isChanged = isForced;
    for (const name of this.#touched) {
      // Not all of it is here yet: what was in force stays.
      if (held.scope?.state.has(name) === true && held.shardsOf(name) === null) continue;
      this.#forgetNamed(held, name);
      const part = this.#assembled(held, name, true);
      if (part === (this.#parts.get(name) ?? null)) continue;
      isChanged = true;
      if (part === null) this.#parts.delete(name);
      else this.#parts.set(name, part);
    }
    this.#touched.clear();
    if (isChanged) table.installParts(new Map(this.#parts), [], this.source);
    else table.source = this.source;
    this.#restUntil = startedAt + Math.min(MAX_REST_MS, (clock.now() - startedAt) * (REST + 1));
    this.#given.onInstalled();
    this.#tellWaiting();
  }

  #assembled(held: Held, name: string, withKept: boolean): CapabilityPart | null {
    const { own, share } = this.#given;
    const shards = held.scope?.state.has(name) === true ? (held.shardsOf(name) ?? []) : [];
    const beside: Beside[] = [];
    const mine = own.beside(name, held.seqOf(name), held.epoch);
    if (mine !== null) beside.push(mine);
    const kept = withKept ? this.#kept.get(name) : undefined;
    if (kept !== undefined) beside.push(kept);
    return assemble(name, shards, share, beside, ({ record }) => this.#isUsable(record), this.#parts.get(name) ?? null);
  }

  #isUsable(record: ProviderRecord): boolean {
    const why = this.#given.unreachable(record);
    if (why === null) this.#unusable.delete(record.agentId);
    else this.#unusable.set(record.agentId, why);
    return why === null && !this.#given.own.isAway(record);
  }

  /** The registry names a provider that was kept: from now on its word counts. */
  #forgetNamed(held: Held, name: string): void {
    const kept = this.#kept.get(name);
    if (kept === undefined) return;
    const named = new Set((held.shardsOf(name) ?? []).flatMap((shard) => shard.providers.map(({ record }) => record.agentId)));
    const providers = kept.providers.filter(({ record }) => !named.has(record.agentId));
    if (providers.length === kept.providers.length) return;
    if (providers.length === 0) this.#kept.delete(name);
    else this.#kept.set(name, { ...kept, providers });
  }

  #names(held: Held): string[] {
    const names = new Set(held.scope?.state);
    for (const name of this.#parts.keys()) names.add(name);
    for (const name of this.#kept.keys()) names.add(name);
    for (const agent of this.#given.own.all()) for (const name of agent.names) names.add(name);
    return [...names];
  }
}
