/**
 * The contracts that are known: each `name@version` once, with the agents that hold it. One that nobody holds any more is
 * retired: it stays known for a day, so that the compatibility guard remembers what callers were promised.
 */
import type { Contract } from '../../proto/language/types.ts';
import type { AgentEntry, SidecarEntry } from './entries.ts';
import { sizeOf } from './requests.ts';

export const labelOf = (of: { readonly name: string; readonly version: string }): string => `${of.name}@${of.version}`;

export class KnownContract {
  contract: Contract;
  readonly holders = new Set<AgentEntry>();
  /** The sidecar that held it last and keeps it in its registration; null while there are holders. */
  retiredAt: SidecarEntry | null = null;

  constructor(contract: Contract) {
    this.contract = contract;
  }
}

const NONE: ReadonlyMap<string, KnownContract> = new Map();

export class ContractBook {
  /** Name → version → contract. */
  readonly #names = new Map<string, Map<string, KnownContract>>();
  /** Alias → the names that use it. */
  readonly #aliases = new Map<string, Map<string, number>>();

  names(): IterableIterator<string> {
    return this.#names.keys();
  }

  hasName(name: string): boolean {
    return this.#names.has(name);
  }

  versions(name: string): ReadonlyMap<string, KnownContract> {
    return this.#names.get(name) ?? NONE;
  }

  get(name: string, version: string): KnownContract | undefined {
    return this.#names.get(name)?.get(version);
  }

  byLabel(label: string): KnownContract | undefined {
    const at = label.indexOf('@');
    return this.get(label.slice(0, at), label.slice(at + 1));
  }

  /** The capability that an alias stands for; undefined when none uses it. */
  ownerOf(alias: string): string | undefined {
    return this.#aliases.get(alias)?.keys().next().value;
  }

  /** Bytes of all versions of a capability. */
  bytesOf(name: string): number {
    let bytes = 0;
    for (const known of this.versions(name).values()) bytes += sizeOf(known.contract);
    return bytes;
  }

  /** Makes the content known, or replaces it; true when it is news. */
  put(contract: Contract): boolean {
    const versions = this.#names.get(contract.name) ?? new Map<string, KnownContract>();
    this.#names.set(contract.name, versions);
    const known = versions.get(contract.version);
    if (known?.contract === contract) return false;
    if (known === undefined) versions.set(contract.version, new KnownContract(contract));
    else {
      this.#countAliases(known.contract, -1);
      known.contract = contract;
    }
    this.#countAliases(contract, 1);
    return true;
  }

  remove(contract: Contract): void {
    const versions = this.#names.get(contract.name);
    if (versions?.delete(contract.version) !== true) return;
    this.#countAliases(contract, -1);
    if (versions.size === 0) this.#names.delete(contract.name);
  }

  #countAliases(contract: Contract, by: 1 | -1): void {
    for (const alias of contract.aliases) {
      const users = this.#aliases.get(alias) ?? new Map<string, number>();
      const count = (users.get(contract.name) ?? 0) + by;
      if (count > 0) users.set(contract.name, count);
      else users.delete(contract.name);
      if (users.size > 0) this.#aliases.set(alias, users);
      else this.#aliases.delete(alias);
    }
  }
}
