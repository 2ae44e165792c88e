/** SKELETON: signatures are final, bodies follow. */
import type { Clock } from '../../base/clock.ts';
import type { Problem } from '../../proto/language/types.ts';
import type { CapabilityState, Heartbeat, Hello, Leave, Refusal, Register, RegistrationState, Report, ScopeState } from '../../proto/wire/registry.ts';
import type { DocumentDiff } from '../rules/diff.ts';
import type { Change } from './change.ts';
import type { AppliedDocument, OperatorsState } from './operators.ts';
import type { CapabilityView, ProviderView, RolloutView, SidecarView } from './views.ts';

export interface Leases {
  readonly heartbeatMs: number;
  readonly offlineMs: number;
  /** How long what is offline stays known. Default a day. */
  readonly retentionMs?: number;
}

export interface BeatOutcome {
  readonly change: Change;
  /** The sidecar is to say hello (it, its instance or one of its agents is not known here). */
  readonly askHello: boolean;
}

/** What an operator's order came to; `problem` null = done (perhaps nothing changed). */
export interface OrderOutcome {
  readonly problem: string | null;
  readonly change: Change;
}

export interface PolicyOutcome {
  readonly ok: boolean;
  /** Why nothing was applied, each with its line and column. */
  readonly problems: readonly Problem[];
  /** What looks like a slip but may come true later (a name that nobody has registered yet). */
  readonly warnings: readonly Problem[];
  readonly diff: DocumentDiff;
  /** The entry for the history (`ops.policies`); null when nothing was applied. */
  readonly entry: AppliedDocument | null;
  readonly change: Change;
}

export interface ApplyOptions {
  readonly author: string;
  readonly note?: string;
  /** Null or 1 = everybody at once. */
  readonly share?: number | null;
  /** Last sequence of AR_CFG at this moment. */
  readonly lastSeq?: number;
  /** Name of the file, for the problems. */
  readonly file?: string;
}

export interface ProbeOrder {
  readonly agent: string;
  readonly url: string;
  readonly timeoutMs: number;
}

const todo = (): never => {
  throw new Error('not built yet');
};

export class Registry {
  constructor(_clock: Clock, _leases: Leases) {}
  /** @returns troubles that keep it from leading (a stored document that cannot be read); empty = fine. */
  load(_epoch: string, _regs: readonly RegistrationState[], _ops: OperatorsState): readonly string[] { return todo(); }
  hello(_hello: Hello, _refused: readonly Refusal[] = []): Change { return todo(); }
  register(_register: Register, _refused: readonly Refusal[] = []): Change { return todo(); }
  leave(_leave: Leave): Change { return todo(); }
  heartbeat(_beat: Heartbeat): BeatOutcome { return todo(); }
  report(_report: Report): Change { return todo(); }
  /** Call a few times a second. */
  sweep(): Change { return todo(); }
  /** A full lease for everybody: the bus was away, so silence meant nothing. */
  grace(): void { todo(); }
  /** An operator says that a sudden loss that is held back is true. */
  confirm(): Change { return todo(); }
  held(): string | null { return todo(); }
  probesDue(): readonly ProbeOrder[] { return todo(); }
  probe(_agent: string, _ok: boolean): Change { return todo(); }
  setProvider(_agent: string, _setting: { readonly drain?: boolean | null; readonly weight?: number | null }): OrderOutcome { return todo(); }
  shiftCanary(_capability: string, _shares: Readonly<Record<string, number>> | null): OrderOutcome { return todo(); }
  forgetContract(_capability: string, _version: string): OrderOutcome { return todo(); }
  /** What apply would say and change. */
  previewPolicies(_text: string, _file?: string): PolicyOutcome { return todo(); }
  applyPolicies(_text: string, _options: ApplyOptions): PolicyOutcome { return todo(); }
  /** Applies an old entry of the history as a new version. */
  rollback(_entry: AppliedDocument, _author: string): PolicyOutcome { return todo(); }
  promote(_options?: { readonly force?: boolean }): OrderOutcome { return todo(); }
  abort(): OrderOutcome { return todo(); }
  widen(_share: number): OrderOutcome { return todo(); }
  rollout(): RolloutView | null { return todo(); }
  get epoch(): string { return todo(); }
  registration(_sidecar: string): RegistrationState { return todo(); }
  operators(): OperatorsState { return todo(); }
  capabilityStates(_name: string): CapabilityState[] { return todo(); }
  scope(_sidecar: string): ScopeState { return todo(); }
  capabilityNames(): string[] { return todo(); }
  sidecarNames(): string[] { return todo(); }
  sidecars(): SidecarView[] { return todo(); }
  providers(): ProviderView[] { return todo(); }
  capabilities(): CapabilityView[] { return todo(); }
}
