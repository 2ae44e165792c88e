/**
 * What sidecars and the control plane say to each other. JSON, one version number in each message; a receiver refuses a
 * version it does not know and ignores fields it does not know. Contracts and records travel in the normal form of
 * `proto/language/types.ts`: they were validated where a person wrote them, and are validated again by the leader.
 */
import type { Contract, Policy, ProviderRecord } from '../language/types.ts';
import type { QuotasReport } from './quotas.ts';
import type { ShiftCount } from './shifts.ts';

export const REGISTRY_WIRE = 1;

/** An agent as its sidecar registers it: contracts first seen with it, and its record. */
export interface AgentRegistration {
  readonly contracts: readonly Contract[];
  readonly record: ProviderRecord;
}

/** `ctl.hello`: a sidecar is there (again). Answered with `Answer`; its scope is then written. */
export interface Hello {
  readonly wire: number;
  readonly sidecar: string;
  /** Made anew at each start of the process, so that a restart is seen. */
  readonly instance: string;
  /** Base URL of its mesh port; null = none. */
  readonly mesh: string | null;
  readonly region: string | null;
  readonly zone: string | null;
  /** Agents that call through it: what they may call is its scope. */
  readonly callers: readonly string[];
  /** It reads inboxes and callings off that carry the writer's name in their subject; absent = it is of the version before. */
  readonly named?: true;
  /** Everything it hosts at present: the whole list, so that a lost goodbye heals. */
  readonly agents: readonly AgentRegistration[];
}

/** `ctl.register`: one agent more, or the same one changed. */
export interface Register {
  readonly wire: number;
  readonly sidecar: string;
  readonly instance: string;
  readonly agent: AgentRegistration;
}

/** `ctl.leave`: an agent, or (agent null) the whole sidecar, says goodbye. */
export interface Leave {
  readonly wire: number;
  readonly sidecar: string;
  readonly instance: string;
  readonly agent: string | null;
  /** Absent = it said goodbye; `lease` = its sidecar has heard nothing of it for a whole lease. */
  readonly why?: 'left' | 'lease';
}

/** One thing that was refused, with all that is wrong with it. */
export interface Refusal {
  /** Agent id; '' = the request as a whole. */
  readonly agent: string;
  /** Code of the closed table. */
  readonly code: number;
  readonly problems: readonly string[];
}

/** Answer to hello, register and leave. */
export interface Answer {
  readonly wire: number;
  readonly ok: boolean;
  /** What was refused; the rest is in force. */
  readonly refused: readonly Refusal[];
  /** What is in force otherwise than it was said: contracts that other sidecars have otherwise in parts that are no interface. */
  readonly warned?: readonly Refusal[];
  /**
   * Nobody is at fault, and it is to be said again: after a hello (this process of the sidecar has not said one here, or
   * has been forgotten), or later (what follows from it is not stored yet). Those that `refused` names are refused all
   * the same; '' there says it in words.
   */
  readonly again?: 'hello' | 'later';
  /** Stream sequence at which the change is in force; 0 when nothing changed. */
  readonly seq: number;
  /**
   * Of each capability that the request's agents offer, the sequence of its newest state: whoever holds that one or a
   * newer one has the registry's word on them. Absent = an older control plane, which does not say it.
   */
  readonly states?: Readonly<Record<string, number>>;
  readonly epoch: string;
}

/** `hb.<sidecar>` */
export interface Heartbeat {
  readonly wire: number;
  readonly sidecar: string;
  readonly instance: string;
  /** Of each hosted agent that is alive: milliseconds since it last answered a call or beat, and calls under way. */
  readonly agents: Readonly<Record<string, { readonly idleMs: number; readonly inFlight: number }>>;
}

/** Stored as `reg.<sidecar>`. */
export interface RegistrationState {
  readonly wire: number;
  readonly epoch: string;
  readonly hello: Hello;
  /** Agents whose lease has run out or which said goodbye less than a day ago, with the wall time of it (for people). */
  readonly offline: Readonly<Record<string, { readonly sinceMs: number; readonly why: OfflineWhy }>>;
  /** Contracts that nobody here registers any more and that stay known for a day: the compatibility guard remembers them. */
  readonly retired?: readonly { readonly contract: Contract; readonly sinceMs: number }[];
}

export type OfflineWhy = 'lease' | 'left' | 'probe';

/** Stored as `cap.<name>[.<shard>]`: the whole state of one capability. */
export interface CapabilityState {
  readonly wire: number;
  readonly epoch: string;
  readonly name: string;
  /** 0 carries contracts and policies; the others only providers. */
  readonly shard: number;
  /** How many shards there are; a shard ≥ this number is void. */
  readonly shards: number;
  /** Empty = the capability is gone. */
  readonly contracts: readonly Contract[];
  /** Those that cover it, weakest first. */
  readonly policies: readonly Policy[];
  /** Version of the operators' document in which any of these policies or contracts last changed; absent or 0 = never said. */
  readonly policiesVersion?: number;
  /** A staged roll-out: sidecars in the share use these policies instead. */
  readonly staged: Staged | null;
  /** Online ones, with operators' drain and weight applied. */
  readonly providers: readonly PushedProvider[];
}

export interface Staged {
  /** Version of the operators' document. */
  readonly version: number;
  /** 0–1: a sidecar takes part when `shareOf(name)` is below it. */
  readonly share: number;
  readonly contracts: readonly Contract[];
  readonly policies: readonly Policy[];
}

export interface PushedProvider {
  readonly record: ProviderRecord;
  /** Mesh address of its `via`; null without one. */
  readonly mesh: string | null;
  /** Which process its `via` is, that tells one that was started anew; absent without one, and from older control planes. */
  readonly instance?: string;
}

/** Stored as `scope.<sidecar>`. */
export interface ScopeState {
  readonly wire: number;
  readonly epoch: string;
  /** Capability names, sorted. */
  readonly capabilities: readonly string[];
}

/** `beacon`, each second. */
export interface Beacon {
  readonly wire: number;
  readonly epoch: string;
  /** Last sequence of AR_CFG. */
  readonly lastSeq: number;
  /** Tails changed lately, with the sequence of their newest message. */
  readonly recent: readonly (readonly [tail: string, seq: number])[];
  /** Everything that changed after this sequence is in `recent`; absent = not said, and a reader compares more than it must. */
  readonly since?: number;
  /** The server's clock less the writer's, for what runs on the server's time. */
  readonly term: number;
  /** How sidecars are to speak (`Speech` of subjects.ts); absent = a control plane of the version before leads: without names. */
  readonly speech?: 'named' | 'asks';
}

/** `report.<sidecar>` */
export interface Report {
  readonly wire: number;
  readonly sidecar: string;
  readonly instance: string;
  readonly version: string;
  readonly epoch: string;
  /** Highest sequence that is applied. */
  readonly appliedSeq: number;
  readonly tableVersion: number;
  readonly capabilities: number;
  readonly providers: number;
  /** '' = fresh. */
  readonly staleBecause: string;
  /** Messages that could not be applied, newest last, at most 20. */
  readonly refused: readonly { readonly tail: string; readonly seq: number; readonly why: string }[];
  /** Version of the operators' document it uses, and whether as part of a staged roll-out. */
  readonly policies: { readonly version: number; readonly staged: boolean };
  /** The rules for messages that it uses, and what they decided; absent = it sends none. */
  readonly rules?: RulesReport;
  /** What it knows of its work on pools; absent = it takes none. */
  readonly work?: {
    /** Sequence of the newest message about it that it has looked at; 0 = none. */
    readonly seq: number;
  };
  /** Which list of overrides is in force there; absent = it is of a version that knows none. */
  readonly overrides?: {
    readonly epoch: string;
    /** 0 = it has heard of none. */
    readonly seq: number;
    /** A newer one that it cannot use, and why. */
    readonly refused?: { readonly seq: number; readonly why: string };
  };
  /** What it knows of quotas, and what was asked of those that are shared out; absent = it heeds none. */
  readonly quotas?: QuotasReport;
  /** What became of attempts while traffic is shifted, since the report before; absent = nothing is watched, or nothing came. */
  readonly shifted?: readonly ShiftCount[];
}

/** Counts of one sidecar since its process began, or since these rules came into force there. */
export interface RulesReport {
  /** Version of the operators' document. */
  readonly version: number;
  readonly staged: boolean;
  /** Sequence of their newest message that it has looked at; 0 = none. */
  readonly seq: number;
  /** How long it has been counting, milliseconds. */
  readonly forMs: number;
  /** Messages that were accepted, or that a rule refused. */
  readonly messages: number;
  /** Those that each rule decided, by name; what is not named decided none. */
  readonly hits: Readonly<Record<string, number>>;
}

/** `ask.<sidecar>` */
export type Ask =
  | { readonly wire: number; readonly what: 'status' }
  /** Not answered: the leader does not know it (any more), and it is to say hello. */
  | { readonly wire: number; readonly what: 'hello' }
  | {
      readonly wire: number;
      readonly what: 'explain';
      readonly target: string;
      readonly as: string | null;
      readonly headers: Readonly<Record<string, string>>;
    }
  /** Whether the sidecar that hosts it lets an agent in to a version ('' = any): `{allowed, words}`. */
  | { readonly wire: number; readonly what: 'acl'; readonly capability: string; readonly caller: string; readonly version: string }
  /** The last messages that it accepted, as rules see them: `RecordedAnswer`. */
  | { readonly wire: number; readonly what: 'messages'; readonly limit: number };
