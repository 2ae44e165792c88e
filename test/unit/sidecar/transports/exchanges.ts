/** Candidates and exchanges for the adapters' tests, without a table: only what an adapter reads of them. */
import { SemVer } from 'semver';
import { type Clock, realClock } from '../../../../base/clock.ts';
import { SeededRandom } from '../../../../base/random.ts';
import type { Settings } from '../../../../proto/language/settings.ts';
import type { Contract, Endpoint, ProviderRecord, SecretRef } from '../../../../proto/language/types.ts';
import type { HeaderView } from '../../../../sidecar/call/call.ts';
import type { BodySink, BodySource } from '../../../../sidecar/call/reply.ts';
import type { HealthCell } from '../../../../sidecar/health/cell.ts';
import type { ProviderHealth } from '../../../../sidecar/health/provider.ts';
import { Candidate, Capability, Provider, type Reach, Version } from '../../../../sidecar/table/snapshot.ts';
import { Exchange, type TransportContext } from '../../../../sidecar/transports/transport.ts';

export interface CandidateParts {
  readonly address?: string;
  readonly endpoint?: Partial<Endpoint>;
  readonly reach?: Reach;
  readonly meshUrl?: string;
  readonly agentId?: string;
  readonly capability?: string;
  readonly version?: string;
}

export function candidateOf(parts: CandidateParts = {}): Candidate {
  const endpoint: Endpoint = {
    type: 'http',
    address: parts.address ?? '',
    path: null,
    mapping: {},
    credential: null,
    options: {},
    ...parts.endpoint,
  };
  const agentId = parts.agentId ?? 'shop.order.1';
  const record = { agentId, endpoint, via: parts.reach === 'mesh' ? 'sidecar-b' : null } as ProviderRecord;
  const provider = new Provider(record, parts.reach ?? 'direct', parts.meshUrl ?? '', 2, false, {} as ProviderHealth);
  const capability = new Capability(parts.capability ?? 'crm.order.query', null, null);
  const version = new Version(capability, new SemVer(parts.version ?? '2.1.0'), {} as Contract, {} as Settings, null, null);
  return new Candidate(provider, version, {} as Settings, 1, {} as HealthCell);
}

export interface ExchangeParts {
  readonly body?: string | Buffer;
  readonly contentType?: string;
  readonly incoming?: HeaderView;
  readonly own?: readonly string[];
  readonly maxResponseBytes?: number;
  readonly timeoutMs?: number;
  readonly json?: unknown;
}

export function exchangeOf(candidate: Candidate, parts: ExchangeParts = {}): Exchange {
  const body = Buffer.from(parts.body ?? '{"id":7}');
  return new Exchange(
    candidate,
    body,
    parts.contentType ?? 'application/json',
    parts.incoming ?? {},
    parts.own ?? [],
    parts.timeoutMs ?? 5000,
    parts.maxResponseBytes ?? 1_048_576,
    parts.json,
  );
}

export function contextOf(
  parts: Partial<TransportContext> & { readonly secrets?: Record<string, string>; readonly clock?: Clock } = {},
): TransportContext {
  return {
    clock: realClock,
    random: new SeededRandom(1),
    secret: (ref: SecretRef) => {
      const name = 'env' in ref ? ref.env : ref.file;
      const secret = parts.secrets?.[name];
      if (secret === undefined) throw new Error(`the secret ${name} is not set`);
      return secret;
    },
    connectTimeoutMs: 1000,
    connectionsPerOrigin: 64,
    maxResponseHeaderBytes: 16_384,
    ...parts,
  };
}

/** Collects a stream; `ended` resolves with how it ended. */
export class Collector implements BodySink {
  readonly chunks: Buffer[] = [];
  /** What `chunk` answers; false = ask for a pause. */
  goesOn = true;
  endings = 0;
  code = -1;
  detail = '';
  readonly ended: Promise<void>;
  #done: () => void = () => {};
  #awaited: { readonly chunks: number; readonly done: () => void } | null = null;

  constructor(source: BodySource | null) {
    this.ended = new Promise((done) => (this.#done = done));
    if (source === null) throw new Error('the reply has no stream');
    source.pipe(this);
  }

  get text(): string {
    return Buffer.concat(this.chunks).toString('utf8');
  }

  /** Resolves when so many chunks have come. */
  has(chunks: number): Promise<void> {
    return new Promise((done) => {
      if (this.chunks.length >= chunks) done();
      else this.#awaited = { chunks, done };
    });
  }

  chunk(data: Buffer): boolean {
    this.chunks.push(data);
    if (this.#awaited !== null && this.chunks.length >= this.#awaited.chunks) this.#awaited.done();
    return this.goesOn;
  }

  end(): void {
    this.endings++;
    this.code = 0;
    this.#done();
  }

  cut(code: number, detail: string): void {
    this.endings++;
    this.code = code;
    this.detail = detail;
    this.#done();
  }
}
