/**
 * What one step of the registry has changed, in the terms of what is stored and pushed: the shell writes exactly this.
 * Everything here is a set of names; the states themselves are read from the registry when they are written, so that two
 * changes before one write cost one write.
 */
import type { OfflineWhy, Refusal } from '../../proto/wire/registry.ts';

export type OperatorsPart = 'policies' | 'providers' | 'canary' | 'quotas' | 'shifts';

export const OPERATORS_PARTS: readonly OperatorsPart[] = ['policies', 'providers', 'canary', 'quotas', 'shifts'];

export type EventKind =
  | 'registered'
  | 'changed'
  | 'contested'
  | 'online'
  | 'offline'
  | 'forgotten'
  | 'sidecar-joined'
  | 'sidecar-left'
  | 'sidecar-forgotten'
  | 'twin'
  | 'held'
  | 'confirmed'
  | 'rollout-halted'
  | 'quota-over'
  | 'shift'
  | 'alert';

/** For people who watch, and for the audit. */
export interface RegistryEvent {
  readonly kind: EventKind;
  /** '' = the sidecar or the registry as a whole. */
  readonly agent: string;
  readonly sidecar: string;
  readonly why: OfflineWhy | '';
  readonly words: string;
  /** Wall clock, for people. */
  readonly atMs: number;
}

export interface Change {
  /** Whoever spoke has not said hello here: nothing of it was judged. */
  readonly isStranger: boolean;
  readonly refused: readonly Refusal[];
  /** What is in force otherwise than it was said. */
  readonly warned: readonly Refusal[];
  /** Sidecars whose `reg.<sidecar>` is to be written: `registry.registration(name)` gives its state. */
  readonly registrations: readonly string[];
  /** Parts of the operators' state to be written: `registry.operators()` gives them. */
  readonly operators: readonly OperatorsPart[];
  /** Capabilities whose state may have changed. */
  readonly capabilities: readonly string[];
  /** Sidecars whose scope may have changed. */
  readonly scopes: readonly string[];
  /** Tails that nobody needs any more (`reg.x`, `scope.x`, `cap.a.b.c`): once their empty states are written, they may be purged. */
  readonly forgotten: readonly string[];
  /** Agents whose change is known and will come out of a later `sweep`: they change too often. */
  readonly deferred: readonly string[];
  readonly events: readonly RegistryEvent[];
}

export const NO_CHANGE: Change = Object.freeze({
  isStranger: false,
  refused: [],
  warned: [],
  registrations: [],
  operators: [],
  capabilities: [],
  scopes: [],
  forgotten: [],
  deferred: [],
  events: [],
});

/** True when there is nothing to write. */
export function isQuiet(change: Change): boolean {
  return (
    change.registrations.length === 0 &&
    change.operators.length === 0 &&
    change.capabilities.length === 0 &&
    change.scopes.length === 0 &&
    change.forgotten.length === 0
  );
}
