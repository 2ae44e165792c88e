/** Quotas as operators set them: one for each kind and target, those whose time is over taken out. Their form has been judged. */
import { MAX_QUOTAS, type Quota, type QuotaKind, type QuotasState, quotaKey } from '../../proto/wire/quotas.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import { noQuotas } from '../registry/operators.ts';
import type { RegistryState } from '../registry/state.ts';

export class QuotaDesk {
  readonly #state: RegistryState;
  #stored: QuotasState = noQuotas('');

  constructor(state: RegistryState) {
    this.#state = state;
  }

  get stored(): QuotasState {
    return this.#stored;
  }

  load(stored: QuotasState): void {
    this.#stored = stored;
  }

  find(kind: QuotaKind, target: string): Quota | null {
    return this.#stored.quotas.find((one) => one.kind === kind && one.target === target) ?? null;
  }

  set(quota: Quota): string | null {
    const others = this.#stored.quotas.filter((one) => one.kind !== quota.kind || one.target !== quota.target);
    if (others.length >= MAX_QUOTAS) return `there are ${MAX_QUOTAS} quotas, which is all there may be: cover several names by one with *`;
    this.#store([...others, quota]);
    return null;
  }

  remove(kind: QuotaKind, target: string): string | null {
    const others = this.#stored.quotas.filter((one) => one.kind !== kind || one.target !== target);
    if (others.length === this.#stored.quotas.length) return `there is no quota of the ${kind} ${target}`;
    this.#store(others);
    return null;
  }

  /** Takes out those whose time is over; sidecars have let them fall already. */
  sweep(): readonly Quota[] {
    const now = this.#state.clock.wallMs();
    const over = this.#stored.quotas.filter(({ expiresAtMs }) => expiresAtMs !== null && expiresAtMs <= now);
    if (over.length > 0) this.#store(this.#stored.quotas.filter((one) => !over.includes(one)));
    return over;
  }

  /** What is pushed. */
  pushed(): QuotasState {
    return { wire: REGISTRY_WIRE, epoch: this.#state.epoch, quotas: this.#stored.quotas };
  }

  #store(quotas: readonly Quota[]): void {
    const sorted = [...quotas].sort((a, b) => (quotaKey(a.kind, a.target) < quotaKey(b.kind, b.target) ? -1 : 1));
    this.#stored = { wire: REGISTRY_WIRE, epoch: this.#state.epoch, quotas: sorted };
    this.#state.marks.operators('quotas');
  }
}
