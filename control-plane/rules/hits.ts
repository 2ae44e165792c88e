/**
 * How often each rule decided, over all sidecars: from what they report, version by version of the rules. Sidecars count from
 * the start of their process, so what a restarted one had counted is kept here; after a restart of the control plane the
 * counts of the processes that live are all there is.
 */
import type { RuleTraffic } from '../../proto/language/rule-lint.ts';
import type { Report, RulesReport } from '../../proto/wire/registry.ts';

interface Seen {
  readonly instance: string;
  readonly rules: RulesReport;
}

interface Past {
  messages: number;
  forMs: number;
  readonly hits: Map<string, number>;
}

export interface Traffic extends RuleTraffic {
  /** Sidecars that use these rules now. */
  readonly sidecars: number;
}

const MAX_SIDECARS = 100_000;
/** Versions of which anything is kept: the one in force, one that is rolled out, and a few that are on their way out. */
const MAX_VERSIONS = 4;

export class RuleHits {
  readonly #latest = new Map<string, Seen>();
  /** What processes counted that are gone, by version; the oldest first. */
  readonly #past = new Map<number, Past>();

  take({ sidecar, instance, rules }: Report): void {
    const before = this.#latest.get(sidecar);
    if (rules === undefined || (before === undefined && this.#latest.size >= MAX_SIDECARS)) return;
    if (before !== undefined && (before.instance !== instance || hasBegunAnew(before.rules, rules))) this.#keep(before.rules);
    this.#latest.set(sidecar, { instance, rules });
  }

  forget(sidecar: string): void {
    const seen = this.#latest.get(sidecar);
    if (seen !== undefined) this.#keep(seen.rules);
    this.#latest.delete(sidecar);
  }

  /** @param version of the operators' document in which the rules last changed. */
  traffic(version: number): Traffic {
    const past = this.#past.get(version);
    const hits = new Map(past?.hits);
    let messages = past?.messages ?? 0;
    let forMs = past?.forMs ?? 0;
    let sidecars = 0;
    for (const { rules } of this.#latest.values()) {
      if (rules.version !== version) continue;
      sidecars++;
      messages += rules.messages;
      forMs = Math.max(forMs, rules.forMs);
      for (const name of Object.keys(rules.hits)) hits.set(name, (hits.get(name) ?? 0) + (rules.hits[name] as number));
    }
    return { hits, messages, forMs, sidecars };
  }

  #keep({ version, messages, forMs, hits }: RulesReport): void {
    if (messages === 0) return;
    let past = this.#past.get(version);
    if (past === undefined) {
      if (this.#past.size >= MAX_VERSIONS) this.#past.delete(this.#past.keys().next().value as number);
      past = { messages: 0, forMs: 0, hits: new Map() };
      this.#past.set(version, past);
    }
    past.messages += messages;
    past.forMs = Math.max(past.forMs, forMs);
    for (const name of Object.keys(hits)) past.hits.set(name, (past.hits.get(name) ?? 0) + (hits[name] as number));
  }
}

/** With other rules; the same ones under a later version go on being counted there. */
function hasBegunAnew(before: RulesReport, after: RulesReport): boolean {
  return after.forMs < before.forMs || after.messages < before.messages;
}
