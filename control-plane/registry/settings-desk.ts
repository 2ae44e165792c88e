/**
 * What operators say by single orders: one provider's drain and weight, the shares of a capability's versions. Stronger
 * than records and documents; an order that cannot be right is refused with what is there instead.
 */
import { nearest } from '../../base/suggest.ts';
import { MAX_WEIGHT } from '../../proto/language/provider.ts';
import type { OperatorsDocument } from '../rules/document.ts';
import { Touch } from './marks.ts';
import {
  type CanaryState,
  noCanary,
  noProviderSettings,
  type OperatorsState,
  type ProviderSetting,
  type ProvidersState,
} from './operators.ts';
import { contractsSaid } from './said.ts';
import type { RegistryState } from './state.ts';

export class SettingsDesk {
  readonly #state: RegistryState;
  #providers: ProvidersState = noProviderSettings('');
  #canary: CanaryState = noCanary('');

  constructor(state: RegistryState) {
    this.#state = state;
  }

  get providers(): ProvidersState {
    return this.#providers;
  }

  get canary(): CanaryState {
    return this.#canary;
  }

  load({ providers, canary }: OperatorsState): void {
    this.#providers = providers;
    this.#canary = canary;
    this.#state.settings = providers.providers;
    this.#state.canary = canary.canary;
  }

  setProvider(agentId: string, setting: { readonly drain?: boolean | null; readonly weight?: number | null }): string | null {
    const before = Object.hasOwn(this.#state.settings, agentId) ? this.#state.settings[agentId] : undefined;
    const entry = this.#state.entryOf(agentId);
    if (entry === undefined && before === undefined) {
      const near = nearest(agentId, this.#state.byAgent.keys());
      return `no provider is called ${agentId}${near === null ? '' : `; did you mean ${near}?`}`;
    }
    const { weight } = setting;
    if (weight !== undefined && weight !== null && !(weight >= 0 && weight <= MAX_WEIGHT))
      return `a weight is a number from 0 to ${MAX_WEIGHT}, not ${weight}`;
    const after: ProviderSetting = {
      drain: setting.drain === undefined ? (before?.drain ?? null) : setting.drain,
      weight: weight === undefined ? (before?.weight ?? null) : weight,
    };
    if (after.drain === (before?.drain ?? null) && after.weight === (before?.weight ?? null)) return null;
    const providers: Record<string, ProviderSetting> = { ...this.#state.settings };
    if (after.drain === null && after.weight === null) delete providers[agentId];
    else providers[agentId] = after;
    this.#state.settings = providers;
    this.#providers = { ...this.#providers, providers };
    this.#state.marks.operators('providers');
    const touch = new Touch();
    for (const { name } of entry?.record.offers ?? []) touch.capabilities.add(name);
    this.#state.marks.atOnce(touch);
    return null;
  }

  shiftCanary(capability: string, shares: Readonly<Record<string, number>> | null): string | null {
    const { canary } = this.#state;
    const had = Object.hasOwn(canary, capability);
    if (shares === null) {
      if (!had) return null;
      this.#setCanary(Object.fromEntries(Object.entries(canary).filter(([name]) => name !== capability)));
    } else {
      const problem = this.#canaryProblem(capability, shares);
      if (problem !== null) return problem;
      if (had && JSON.stringify(canary[capability]) === JSON.stringify(shares)) return null;
      this.#setCanary({ ...canary, [capability]: { ...shares } });
    }
    const touch = new Touch();
    touch.capabilities.add(capability);
    this.#state.marks.atOnce(touch);
    return null;
  }

  #canaryProblem(capability: string, shares: Readonly<Record<string, number>>): string | null {
    if (!this.#state.knows(capability)) {
      const meant = this.#state.canonical(capability);
      if (meant !== capability) return `${capability} is an alias: write ${meant}`;
      const near = nearest(capability, this.#state.names());
      return `no capability is called ${capability}${near === null ? '' : `; did you mean ${near}?`}`;
    }
    const versions = new Set(contractsSaid(capability, this.#state.book, this.#state.active).map((contract) => contract.version));
    let total = 0;
    for (const [version, share] of Object.entries(shares)) {
      if (!versions.has(version)) return `${capability} has no version ${version}; it has ${[...versions].join(', ')}`;
      if (!(share >= 0 && share <= 1)) return `the share of ${version} is ${share}: write 0 to 1, or a percentage`;
      total += share;
    }
    if (Object.keys(shares).length === 0) return 'name at least one version with its share';
    return total > 1 + 1e-9 ? `the shares add up to ${Number((total * 100).toPrecision(6))}%, which is more than 100%` : null;
  }

  /** The file speaks anew about a canary: the shift that was made by hand has had its time. */
  documentChanged(before: OperatorsDocument, after: OperatorsDocument): void {
    const canaryOf = (document: OperatorsDocument, name: string): string =>
      JSON.stringify(document.policies.find((policy) => policy.capability === name)?.canary ?? null);
    const kept = Object.entries(this.#state.canary).filter(([name]) => canaryOf(before, name) === canaryOf(after, name));
    if (kept.length === Object.keys(this.#state.canary).length) return;
    this.#setCanary(Object.fromEntries(kept));
  }

  #setCanary(canary: OperatorsState['canary']['canary']): void {
    this.#state.canary = canary;
    this.#canary = { ...this.#canary, canary };
    this.#state.marks.operators('canary');
  }
}
