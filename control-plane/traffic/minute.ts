/**
 * What was heard in one minute: figures by capability, by edge (who called what, and who served it) and by provider. Each has
 * room for so many names; whatever finds none is counted under `other`, so that sums stay right and nobody can make it grow.
 */
import { type EdgeDigest, OTHER, type ProviderDigest } from '../../proto/wire/digests.ts';
import { AttemptFigures, Figures } from './figures.ts';

export const MAX_CAPABILITIES = 2_000;
export const MAX_EDGES_A_MINUTE = 2_000;
export const MAX_PROVIDERS_A_MINUTE = 2_000;
/** Of a minute that is older than a quarter of an hour: the busiest; all others under `other`, and no examples. */
export const KEPT_EDGES = 300;

/** Stands between names in a key; it can be in none of them. */
const BETWEEN = '\u0000';

export interface EdgeName {
  /** Agent id. */
  readonly caller: string;
  readonly capability: string;
  /** '' = nobody served it. */
  readonly version: string;
  /** Agent id; '' = nobody was asked. */
  readonly provider: string;
}

export interface ProviderName {
  readonly capability: string;
  readonly version: string;
  readonly provider: string;
}

interface Edge {
  readonly name: EdgeName;
  readonly figures: Figures;
}

interface Served {
  readonly name: ProviderName;
  readonly figures: AttemptFigures;
}

const OTHER_EDGE: EdgeName = { caller: OTHER, capability: OTHER, version: '', provider: OTHER };
const OTHER_PROVIDER: ProviderName = { capability: OTHER, version: '', provider: OTHER };

export class Minute {
  /** Monotonic, of this replica: whole minutes since its clock began. */
  readonly index: number;
  readonly capabilities = new Map<string, Figures>();
  readonly edges = new Map<string, Edge>();
  readonly providers = new Map<string, Served>();
  /** Sidecars of which a digest was heard in it. */
  readonly sidecars = new Set<string>();
  #isSqueezed = false;

  constructor(index: number) {
    this.index = index;
  }

  edge(digest: EdgeDigest): void {
    this.capability(digest.capability).take(digest);
    this.edgeOf(digest).take(digest);
  }

  provider(digest: ProviderDigest): void {
    const figures = this.providerOf(digest);
    figures.attempts += digest.attempts;
    figures.failures += digest.failures;
    figures.times.addPairs(digest.times);
  }

  capability(name: string): Figures {
    const known = this.capabilities.get(name);
    if (known !== undefined) return known;
    if (this.capabilities.size >= MAX_CAPABILITIES && name !== OTHER) return this.capability(OTHER);
    const made = new Figures();
    this.capabilities.set(name, made);
    return made;
  }

  edgeOf({ caller, capability, version, provider }: EdgeName): Figures {
    const key = [caller, capability, version, provider].join(BETWEEN);
    const known = this.edges.get(key);
    if (known !== undefined) return known.figures;
    if (this.edges.size >= MAX_EDGES_A_MINUTE && caller !== OTHER) return this.edgeOf(OTHER_EDGE);
    const made = { name: { caller, capability, version, provider }, figures: new Figures() };
    this.edges.set(key, made);
    return made.figures;
  }

  providerOf({ capability, version, provider }: ProviderName): AttemptFigures {
    const key = [capability, version, provider].join(BETWEEN);
    const known = this.providers.get(key);
    if (known !== undefined) return known.figures;
    if (this.providers.size >= MAX_PROVIDERS_A_MINUTE && provider !== OTHER) return this.providerOf(OTHER_PROVIDER);
    const made = { name: { capability, version, provider }, figures: new AttemptFigures() };
    this.providers.set(key, made);
    return made.figures;
  }

  /** It is over: keeps the busiest edges and providers, and no examples; counts and times by capability stay whole. */
  squeeze(): void {
    if (this.#isSqueezed) return;
    this.#isSqueezed = true;
    const edges = [...this.edges].filter(([, { name }]) => name.caller !== OTHER);
    for (const [key, { figures }] of edges.sort(([, a], [, b]) => b.figures.calls - a.figures.calls).slice(KEPT_EDGES)) {
      this.edges.delete(key);
      this.edgeOf(OTHER_EDGE).merge(figures);
    }
    const providers = [...this.providers].filter(([, { name }]) => name.provider !== OTHER);
    for (const [key, { figures }] of providers.sort(([, a], [, b]) => b.figures.attempts - a.figures.attempts).slice(KEPT_EDGES)) {
      this.providers.delete(key);
      this.providerOf(OTHER_PROVIDER).merge(figures);
    }
    for (const figures of this.capabilities.values()) figures.settle();
    for (const { figures } of this.edges.values()) figures.settle();
    for (const { figures } of this.providers.values()) figures.times.trim();
  }
}
