/** What the API says of overrides: reachctl reads the same. */
import type { InForceCount } from '../overrides/desk.ts';
import type { Reach } from '../overrides/reach.ts';
import type { OverrideAction, OverrideTarget } from '../../proto/wire/overrides.ts';

export interface OverrideView {
  readonly id: string;
  readonly action: OverrideAction;
  readonly target: OverrideTarget;
  readonly to: string | null;
  readonly cut: boolean;
  readonly reason: string;
  readonly author: string;
  /** RFC 3339. */
  readonly at: string;
  /** null = until it is lifted. */
  readonly expires_at: string | null;
}

/** Answer to an order: what stands, and where. */
export interface OverrideOrdered extends InForceCount {
  readonly id: string;
  /** The list in which it was written. */
  readonly seq: number;
  readonly override: OverrideView;
  /** It stood already, said by an earlier order with the same id. */
  readonly repeated: boolean;
  /** What the operator should know of it. */
  readonly warnings: readonly string[];
}

export interface OverrideLifted extends InForceCount {
  readonly id: string;
  readonly seq: number;
  readonly lifted: true;
}

export interface OverrideTried {
  readonly dry_run: true;
  readonly override: OverrideView;
  readonly would_hit: Reach;
  /** Why the order would be refused as it stands; null = it would not. */
  readonly problem: string | null;
  readonly warnings: readonly string[];
}

export type OverrideShown = OverrideView & InForceCount;

export interface OverridesAnswer extends InForceCount {
  readonly epoch: string;
  /** The newest list; the counts beside are of it. */
  readonly seq: number;
  readonly revision: number;
  readonly overrides: readonly OverrideShown[];
}
