/**
 * The way out: one interface, three methods. An adapter speaks one protocol and owns its pools, limits, header hygiene,
 * cancellation and error mapping; it decides nothing about retry, health or policy. Adding one is one file here and one
 * line in `index.ts`.
 */
import type { Clock } from '../../base/clock.ts';
import type { Random } from '../../base/random.ts';
import type { FieldTable } from '../../proto/language/reader.ts';
import type { SecretRef } from '../../proto/language/types.ts';
import type { Endpoint } from '../../proto/language/types.ts';
import type { HeaderView, HttpAsk } from '../call/call.ts';
import type { Reply } from '../call/reply.ts';
import type { Candidate } from '../table/snapshot.ts';
import type { ChannelHub } from './channel-hub.ts';
import type { Destinations } from './destinations.ts';
import type { LocalHub } from './local-hub.ts';

/** One attempt on the wire. The attempt stage makes it; the adapter sets `abort` while it can still stop something. */
export class Exchange {
  readonly candidate: Candidate;
  readonly body: Buffer;
  readonly contentType: string;
  /** The caller's headers; the adapter forwards only what `hygiene` lets through, and adds `own` after that. */
  readonly incoming: HeaderView;
  /** Flat name, value, name, value …: identity, deadline, trace, path. Cannot be removed or replaced by the caller's. */
  readonly own: readonly string[];
  /** What is left for this attempt, of a stream for all of it, milliseconds. The attempt stage keeps the clocks; this is for telling. */
  readonly timeoutMs: number;
  readonly maxResponseBytes: number;
  /** The payload parsed, when somebody needed it already; undefined otherwise (mapping templates parse it themselves). */
  readonly json: unknown;
  /** Method, path and query of an intercepted HTTP request, to be kept by adapters that speak HTTP; null = none. */
  readonly http: HttpAsk | null;
  /** It must not go on a connection that has served before: the last one had been closed under us, and so may the next. */
  fresh = false;
  /** Set by the adapter, called at most once by the attempt stage (deadline, caller gone). The adapter then settles at once. */
  abort: (() => void) | null = null;

  constructor(
    candidate: Candidate,
    body: Buffer,
    contentType: string,
    incoming: HeaderView,
    own: readonly string[],
    timeoutMs: number,
    maxResponseBytes: number,
    json: unknown,
    http: HttpAsk | null = null,
  ) {
    this.candidate = candidate;
    this.body = body;
    this.contentType = contentType;
    this.incoming = incoming;
    this.own = own;
    this.timeoutMs = timeoutMs;
    this.maxResponseBytes = maxResponseBytes;
    this.json = json;
    this.http = http;
  }
}

/** One adapter. Every method settles with a Reply, whatever a peer does; `abort` of the exchange settles it at once. */
export interface Transport {
  /** Collects the whole answer, up to `maxResponseBytes`. Resolves always; never rejects for what a peer does. */
  invoke(exchange: Exchange): Promise<Reply>;
  /** Hands over without waiting for an answer body. */
  cast(exchange: Exchange): Promise<Reply>;
  /** Resolves with head and a BodySource once the head is there. */
  invokeStream(exchange: Exchange): Promise<Reply>;
  /** Closes every connection; resolves when none is left. */
  close(): Promise<void>;
}

/** Makes an adapter; the options are the sidecar's settings that concern every adapter. */
export interface TransportContext {
  readonly clock: Clock;
  readonly random: Random;
  /** Reads a secret by reference; throws with a clear sentence when it is not there. */
  readonly secret: (ref: SecretRef) => string;
  readonly connectTimeoutMs: number;
  /** Connections per origin. */
  readonly connectionsPerOrigin: number;
  readonly maxResponseHeaderBytes: number;
  /** Where connections may lead; absent = anywhere: the table is its operator's own file. */
  readonly destinations?: Destinations | null;
  /** For what an operator should know and no call's Result can say; absent = nobody listens. */
  readonly warn?: (words: string) => void;
  /** The agents that have dialled in to this sidecar. Absent in the lab. */
  readonly channels?: ChannelHub;
  /** The agents inside this process. Absent in the lab. */
  readonly local?: LocalHub;
}

/** What an adapter is registered with: the one line in `index.ts`. */
export interface TransportKind {
  make(context: TransportContext): Transport;
  /**
   * What is wrong with what was written for it in a provider's `endpoint`, in words for its author; empty = nothing. Asked
   * when a table is read, so that a misspelt option is refused with its place instead of failing the first call.
   */
  problems(endpoint: Endpoint): readonly string[];
  /** All keys of its `endpoint` beside `type`, for the schema that editors use; absent = the language knows them, or no table does. */
  readonly fields?: FieldTable;
}
