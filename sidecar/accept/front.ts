/**
 * What the ways in need of the rest: the engine, the table with what is known about it, what was observed, and the three
 * doors of the pipeline. Made once by the composition root; a test puts a script behind the doors.
 */
import type { IncomingMessage } from 'node:http';
import type { Call } from '../call/call.ts';
import type { ApiToken } from './api-token.ts';
import type { Principal } from '../call/principal.ts';
import type { Engine } from '../engine.ts';
import type { WorkDoor } from '../deliver/door.ts';
import { isTraceparent } from '../../proto/wire/trace-context.ts';
import type { Span } from '../../proto/wire/spans.ts';
import type { InboxDoor } from '../inbox/door.ts';
import type { Finishing } from './finishing.ts';
import type { Observation } from '../observe/observer.ts';
import type { SendDoor } from '../send/door.ts';
import type { RecordingStatus } from '../record/recorder.ts';
import type { RecordingFilter } from '../recording-config.ts';
import type { Problem } from '../../proto/language/types.ts';
import type { RegistryClient } from '../table/registry.ts';
import type { Table } from '../table/snapshot.ts';

/** The table and its standing; `InstalledTable` is one. */
export interface TableView extends Table {
  /** A table has been installed: calls can be answered. */
  readonly ready: boolean;
  /** `clock.now()` of the last installation. */
  readonly installedAt: number;
  readonly source: string;
  /** '' = it is the newest that was offered. */
  readonly staleBecause: string;
  readonly refusals: number;
  readonly problems: readonly Problem[];
}

export interface Pipeline {
  outbound(engine: Engine, call: Call): Promise<void>;
  inbound(engine: Engine, call: Call, providerAgentId: string, version: string): Promise<void>;
  explain(
    engine: Engine,
    call: Call,
    withPayload: boolean,
  ): { readonly refusal: { readonly code: number; readonly detail: string } | null };
}

/** The recording as operators see it. */
export interface RecorderDoor {
  start(filter: Partial<RecordingFilter>): void;
  /** Resolves when what was recorded is on the disk. */
  stop(): Promise<void>;
  status(): RecordingStatus;
}

/** The registry as the ways in see it. */
export interface RegistryDoor {
  readonly client: RegistryClient;
}

/** The channels as the other ways in see them. */
export interface ChannelDoor {
  /** How many are open. */
  readonly size: number;
  /** Of these, such as take calls. */
  readonly serving: number;
  /** Bytes that wait for agents which do not read, over all channels. */
  readonly waitingBytes: number;
  /** The sidecar has begun to stop: its agents hear of it, and finish. */
  tellGoodbye(graceMs: number): void;
  /** A ticket with which this agent can dial in, at the address by which the request has come. */
  offer(
    agentId: string,
    request: IncomingMessage,
    by: Principal | null,
  ): { readonly url: string; readonly ticket: string; readonly expires_in_ms: number };
}

/** What health and metrics say of identities. */
export interface SecurityView {
  readonly identity: {
    readonly mode: 'enforce' | 'audit';
    readonly trustedKeys: number;
    readonly counts: {
      readonly verified: number;
      readonly refused: number;
      readonly homesRefused: number;
      readonly audited: number;
    };
  } | null;
  readonly certificate: {
    /** Seconds since 1970. */
    readonly endsAtSec: number;
    readonly trouble: string;
  } | null;
}

export class Front {
  readonly engine: Engine;
  readonly table: TableView;
  readonly observation: Observation;
  readonly pipeline: Pipeline;
  /** null = standalone. */
  readonly registry: RegistryDoor | null;
  /** Whether an `Authorization` header is the operator's, with a registry or without. Set by the composition root before the ports are made. */
  isOperator: (authorization: string) => boolean = () => false;
  /** null = agents cannot dial in here. Set by the composition root before the ports are made. */
  channels: ChannelDoor | null = null;
  /** Messages out; null = this sidecar takes none. This and the next two are set before the ports are made. */
  send: SendDoor | null = null;
  /** Messages that wait on this machine's disk until NATS is back; null = there is no disk for them. */
  outbox: { readonly pending: number } | null = null;
  /** What waits for the agents here; null = standalone: no inboxes. */
  inbox: InboxDoor | null = null;
  /** Calls that are written down; null = none can be. */
  recorder: RecorderDoor | null = null;
  /** Tasks in the hands of agents here; null = standalone: none are handed out. */
  work: WorkDoor | null = null;
  /** Issued identities and mutual TLS, to be seen; null = there are none. Set by the composition root. */
  security: SecurityView | null = null;
  /** Messages that told the control plane of the traffic here, and those that could not be sent; null = standalone. */
  digests: { readonly figures: { readonly sent: number; readonly dropped: number } } | null = null;
  /** Null = no traces are made here. */
  tracing: { readonly figures: Readonly<Record<string, number>>; readonly spans: { of(traceId: string): readonly Span[] } } | null = null;
  /** Calls and streams that operators' blocks have cut. Set by the composition root. */
  cutter: { readonly cut: number } | null = null;
  /** What everything on the port for agents has to show; null = nothing beside the agent's credential. Set before the ports are made. */
  apiToken: ApiToken | null = null;
  /**
   * Told of an agent whose credentials have been taken back, or have run out: whatever is open for it ends. `by`: only what was opened
   * with this very credential, since the agent has others; null = all of it.
   */
  readonly onTakenBack = new Set<(agent: string, by: Principal | null) => void>();
  /** Requests that only wait for something to happen: they are answered as it stands when the process is about to stop. */
  readonly waiting = new Set<{ cancel(): void }>();
  /** Whose calls are taken while it stops; null = nobody's. Set by the composition root before the ports are made. */
  finishing: Finishing | null = null;
  /** Messages of agents here that are being made durable. */
  submitting = 0;
  /** Streams that were told that the sidecar goes away, with where to go on. */
  streamsTold = 0;
  #draining = false;
  #isClosed = false;

  constructor(engine: Engine, table: TableView, observation: Observation, pipeline: Pipeline, registry: RegistryDoor | null = null) {
    this.engine = engine;
    this.table = table;
    this.observation = observation;
    this.pipeline = pipeline;
    this.registry = registry;
  }

  takenBack(agent: string, by: Principal | null): void {
    for (const hears of this.onTakenBack) hears(agent, by);
  }

  /** Inbound is closed, the process is about to stop: nothing is taken from other sidecars, and of agents here what they finish. */
  get draining(): boolean {
    return this.#draining;
  }

  set draining(draining: boolean) {
    this.#draining = draining;
  }

  /** Everything is closed: nothing is taken from anybody. */
  get closed(): boolean {
    return this.#isClosed;
  }

  close(): void {
    this.#draining = true;
    this.#isClosed = true;
    for (const each of this.waiting) each.cancel();
  }

  /** Asked of an agent's call while it is not `ready`: true = it is taken all the same, since the agent finishes its work with it. */
  takesLast(principal: Principal | null, traceparent: string | string[] | undefined): boolean {
    if (!this.#draining || this.#isClosed || !this.table.ready || principal === null || this.finishing === null) return false;
    const traceId = typeof traceparent === 'string' && isTraceparent(traceparent) ? traceparent.slice(3, 35) : '';
    return this.finishing.admits(principal.agent, traceId);
  }

  /** A call can succeed. */
  get ready(): boolean {
    return this.table.ready && !this.draining;
  }
}
