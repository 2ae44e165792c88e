/** What the API sees of the control plane: the parts that answer questions, and the one that acts when this replica leads. */
import type { Clock } from '../../base/clock.ts';
import type { Audit } from '../audit/audit.ts';
import type { AuditBook } from '../audit/book.ts';
import type { Ask } from '../../proto/wire/registry.ts';
import type { OverrideDesk } from '../overrides/desk.ts';
import type { Fleet } from '../push/fleet.ts';
import type { Journal } from '../push/journal.ts';
import type { Leading } from '../push/leading.ts';
import type { Mirror } from '../push/mirror.ts';
import type { RegistryEvent } from '../registry/change.ts';
import type { Registry } from '../registry/registry.ts';
import type { TraceDesk } from '../traces/desk.ts';
import type { Traffic } from '../traffic/traffic.ts';

export interface LeaderFacts {
  readonly holder: string;
  readonly term: number;
  readonly url: string;
  readonly isSelf: boolean;
}

/** What a sidecar answered; or why it did not. */
export type AskAnswer = { readonly answer: unknown } | { readonly kind: 'absent' | 'late' | 'away' | 'refused'; readonly why: string };

export interface Plane {
  readonly name: string;
  readonly env: string;
  readonly version: string;
  readonly clock: Clock;
  readonly mirror: Mirror;
  readonly fleet: Fleet;
  readonly journal: Journal;
  readonly audit: Audit;
  readonly auditBook: AuditBook;
  readonly overrides: OverrideDesk;
  /** What went through the fleet in the last two hours, out of the digests of all sidecars. */
  readonly traffic: Traffic;
  /** What sidecars told of single calls and messages. */
  readonly traces: TraceDesk;
  /** Not null while this replica leads. */
  readonly leading: Leading | null;
  /** The leader's own, or a follower's copy of what is stored. */
  registry(): Registry;
  leader(): LeaderFacts | null;
  readonly natsConnected: boolean;
  /** Such as `2.14.0`; '' before the first connection. */
  readonly natsVersion: string;
  /** When the NATS servers flush what they acknowledge, in words. */
  natsFlush(): Promise<string>;
  /** '' until it is known. */
  readonly epoch: string;
  readonly status: 'starting' | 'following' | 'leading' | 'stopping';
  /** What an operator should know, loudest first. */
  warnings(): readonly string[];
  ask(sidecar: string, ask: Ask): Promise<AskAnswer>;
  /** Events of the registry until the returned function is called. */
  watch(listener: (event: RegistryEvent) => void): () => void;
}
