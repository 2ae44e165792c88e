/**
 * The table of a process that has agents inside it: what its file says, and beside it what was served by program. A new file
 * changes nothing about the served ones, and serving one does not wait for a file. Where a registry owns the table, served agents
 * are registered with it like any other, and this is not used.
 */
import type { Problem, TableDocument } from '../../proto/language/types.ts';
import type { AgentRegistration } from '../../proto/wire/registry.ts';
import type { TableSink } from './file.ts';
import type { InstalledTable } from './installed.ts';

const NOTHING: TableDocument = Object.freeze({ contracts: [], providers: [], policies: [], overrides: [], sidecars: [] });

export class ServedTable implements TableSink {
  readonly #table: InstalledTable;
  #base: TableDocument = NOTHING;
  readonly #served = new Map<string, AgentRegistration>();

  constructor(table: InstalledTable) {
    this.#table = table;
  }

  get ready(): boolean {
    return this.#table.ready;
  }

  get staleBecause(): string {
    return this.#table.staleBecause;
  }

  set staleBecause(why: string) {
    this.#table.staleBecause = why;
  }

  get problems(): readonly Problem[] {
    return this.#table.problems;
  }

  set problems(problems: readonly Problem[]) {
    this.#table.problems = problems;
  }

  install(document: TableDocument, source: string): { readonly version: number } {
    this.#base = document;
    return this.#table.install(this.#merged(), source);
  }

  refuse(problems: readonly Problem[], why: string): void {
    this.#table.refuse(problems, why);
  }

  /** Puts an agent beside the file, in the place of what was served under its name before. Words when it cannot stand there. */
  put(registration: AgentRegistration): string | null {
    const { agentId } = registration.record;
    if (this.#base.providers.some((record) => record.agentId === agentId))
      return `${agentId} stands in the table already, and does not offer this there: add it to its offers`;
    this.#served.set(agentId, registration);
    this.#again();
    return null;
  }

  remove(agentId: string): void {
    if (this.#served.delete(agentId)) this.#again();
  }

  /** What is served under a name; null = nothing. */
  of(agentId: string): AgentRegistration | null {
    return this.#served.get(agentId) ?? null;
  }

  /** The same file with other agents beside it: what is known about its freshness stays. */
  #again(): void {
    const { staleBecause, problems, source } = this.#table;
    this.#table.install(this.#merged(), source === '' ? 'served agents' : source);
    this.#table.staleBecause = staleBecause;
    this.#table.problems = problems;
  }

  #merged(): TableDocument {
    if (this.#served.size === 0) return this.#base;
    const contracts = [...this.#base.contracts];
    const known = new Set(contracts.map(({ name, version }) => `${name}@${version}`));
    const providers = [...this.#base.providers];
    const named = new Set(providers.map(({ agentId }) => agentId));
    for (const { contracts: own, record } of this.#served.values()) {
      if (named.has(record.agentId)) continue;
      providers.push(record);
      for (const contract of own) {
        const key = `${contract.name}@${contract.version}`;
        if (known.has(key)) continue;
        known.add(key);
        contracts.push(contract);
      }
    }
    return { ...this.#base, contracts, providers };
  }
}
