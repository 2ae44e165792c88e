/**
 * What the conformance suite needs of a transport: a real peer in its protocol, the lines of a provider record that lead to
 * it, and, said aloud, what the protocol cannot do. A transport that is registered and has no fixture fails the suite.
 */
import type { LocalHub } from '../../../sidecar/transports/local-hub.ts';
import type { Rig } from '../rig.ts';
import type { Behaviour, Seen } from './behaviour.ts';
import type { CaseId } from './cases.ts';

/** What is needed of tap's `t`. */
export interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

export interface TransportFixture {
  /** As it is registered. */
  readonly type: string;
  /** The cases that this protocol has no way to pass, each with the reason, for people. */
  readonly cannot: Readonly<Partial<Record<CaseId, string>>>;
  /** Status of the agent's own error in the Result; the asker's fault and its own. */
  readonly errorStatus: { readonly theirs: number; readonly ours: number };
  /** Whether an agent is there is known before anything is sent, so that one who is not is never chosen (2003). Default: it is not. */
  readonly knowsPresence?: boolean;
  start(t: Teardown, seen: Seen): Promise<StartedPeer>;
}

export interface StartedPeer {
  /** Lines of a provider record, without indentation: its endpoint, and what belongs to it. `gone`: one at which nobody is. */
  provider(behaviour: Behaviour | 'gone'): readonly string[];
  /** Put behind the table as it is. */
  readonly tableRest?: string;
  /** Lines below `sidecar:`. */
  readonly settings?: string;
  readonly meshToken?: string;
  /** Agents that have to prove who they are, with their tokens. */
  readonly callers?: Readonly<Record<string, string>>;
  /** Agents inside the process. */
  readonly local?: LocalHub;
  /** The sidecar that hosts the agent; absent = it is reached directly. */
  readonly host?: Rig;
  /** After the sidecar has started: peers that dial in. */
  attach?(rig: Rig): Promise<void>;
  /** Calls and connections that the peer still has open; 0 when it is at rest. */
  open(): number;
  close(): Promise<void>;
}
