/**
 * A Front with a script behind its doors: what a way in does can be tested byte by byte without providers, tables on disk
 * or the pipeline. The script plays the pipeline's part exactly as its contract says (outcome fields set, accounting done,
 * streams wrapped), so that counters can be held against each other.
 */
import { SemVer } from 'semver';
import { type Clock, realClock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import { SeededRandom } from '../../base/random.ts';
import type { Acl, Contract, ProviderRecord, TableDocument } from '../../proto/language/types.ts';
import type { Settings } from '../../proto/language/settings.ts';
import type { Code } from '../../proto/wire/codes.ts';
import { Front, type Pipeline, type TableView } from '../../sidecar/accept/front.ts';
import { Attempt } from '../../sidecar/call/attempt-record.ts';
import type { Call } from '../../sidecar/call/call.ts';
import { Principal } from '../../sidecar/call/principal.ts';
import { answered, type BodySink, type BodySource, streaming } from '../../sidecar/call/reply.ts';
import type { SidecarConfig } from '../../sidecar/config.ts';
import type { Engine } from '../../sidecar/engine.ts';
import { Health } from '../../sidecar/health/health.ts';
import { Observation } from '../../sidecar/observe/observer.ts';
import { Quotas } from '../../sidecar/quotas/quotas.ts';
import { Candidate, Capability, Provider, Snapshot, Version } from '../../sidecar/table/snapshot.ts';

const EMPTY: TableDocument = { contracts: [], providers: [], policies: [], overrides: [], sidecars: [] };
const BREAKER = {
  enabled: true,
  failureRatio: 0.5,
  windowMs: 60_000,
  slowRatio: 0.3,
  slowCallMs: 3_000,
  minCalls: 10,
  openMs: 120_000,
  probes: 3,
  successes: 3,
  ramp: [6, 12, 24],
  rampStepMs: 10_000,
};
const SETTINGS = {
  timeoutMs: 1_000,
  deadlineMs: 10_000,
  retry: { max: 1, backoffMs: 25, backoffMaxMs: 250, minRemainingRatio: 0.2 },
  breaker: BREAKER,
  limits: { perCaller: 100, perProvider: 100, requestBytes: 1_048_576, responseBytes: 4_194_304, eventBytes: 1_048_576 },
  streaming: { firstChunkMs: 30_000, idleMs: 60_000 },
  fallback: null,
  load: 'least_request',
  panic: false,
  locality: 'prefer',
  slowStartMs: 0,
} as const satisfies Settings;

/** One capability with one version and one provider, made without a file. */
export function candidateOf(
  health: Health,
  name = 'crm.order.query',
  version = '2.1.0',
  agentId = 'crm.order.a',
  acl: Acl = { isPublic: true, patterns: [] },
): Candidate {
  const capability = new Capability(name, null, null);
  const contract = {
    name,
    version,
    description: `about ${name}`,
    examples: [{ id: 1 }],
    aliases: [],
    tags: {},
    input: null,
    output: null,
    execution: 'once',
    acl,
    streaming: { done: null, firstChunkMs: null, idleMs: null },
  } as unknown as Contract;
  const made = new Version(capability, new SemVer(version), contract, SETTINGS, null, null);
  capability.versions.push(made);
  const record = { agentId, endpoint: { type: 'http', address: '' } } as unknown as ProviderRecord;
  const provider = new Provider(record, 'direct', '', 0, false, health.provider(agentId));
  const candidate = new Candidate(provider, made, SETTINGS, 1, health.cell(agentId, name, BREAKER, 0));
  made.candidates.push(candidate);
  return candidate;
}

export class ScriptedTable implements TableView {
  ready = true;
  installedAt = 0;
  source = 'file';
  staleBecause = '';
  refusals = 0;
  problems: TableView['problems'] = [];
  snapshot: Snapshot;
  constructor(candidates: readonly Candidate[]) {
    this.snapshot = new Snapshot(
      1,
      EMPTY,
      new Map(candidates.map((one) => [one.version.capability.name, one.version.capability])),
      new Map(),
      new Map(),
    );
  }
  current(): Snapshot {
    return this.snapshot;
  }
}

/** A body that the test pushes. */
export class ScriptedBody implements BodySource {
  sink: BodySink | null = null;
  cancelled: { code: Code; detail: string } | null = null;
  paused = false;
  resumes = 0;
  onEnd: ((code: Code, detail: string) => void) | null = null;
  pipe(sink: BodySink): void {
    this.sink = sink;
  }
  resume(): void {
    this.resumes++;
    this.paused = false;
  }
  cancel(code: Code, detail: string): void {
    if (this.cancelled !== null) return;
    this.cancelled = { code, detail };
    this.cut(code, detail);
  }
  push(data: string | Buffer): boolean {
    const goesOn = this.sink?.chunk(typeof data === 'string' ? Buffer.from(data) : data) ?? true;
    if (!goesOn) this.paused = true;
    return goesOn;
  }
  end(): void {
    const tell = this.onEnd;
    this.onEnd = null;
    tell?.(0, '');
    this.sink?.end();
  }
  cut(code: Code, detail: string): void {
    const tell = this.onEnd;
    this.onEnd = null;
    tell?.(code, detail);
    this.sink?.cut(code, detail);
  }
}

export type Script = (call: Call, stage: Stage) => void | Promise<void>;

/** What a script can do to a call. */
export class Stage {
  readonly candidate: Candidate;
  readonly front: ScriptedFront;
  constructor(front: ScriptedFront, candidate: Candidate) {
    this.front = front;
    this.candidate = candidate;
  }

  attempt(call: Call, code: Code, started: Attempt['started'], status: number, detail = ''): Attempt {
    const attempt = new Attempt(this.candidate, call.clock.now() - call.startedAt, call.execution);
    attempt.code = code;
    attempt.started = started;
    attempt.status = status;
    attempt.detail = detail;
    call.attempts.push(attempt);
    this.front.observation.attemptEnded(call, attempt);
    return attempt;
  }

  /** The provider answers. */
  answer(
    call: Call,
    status: number,
    body: string | Buffer,
    headers: Record<string, string | string[]> = { 'content-type': 'application/json' },
    code: Code = 0,
  ): void {
    this.#chosen(call);
    this.attempt(call, code, 'done', status);
    call.reply = answered(status, headers, typeof body === 'string' ? Buffer.from(body) : body);
    call.status = status;
    call.code = code;
  }

  /** The provider starts a stream. */
  stream(call: Call, headers: Record<string, string | string[]>, status = 200): ScriptedBody {
    this.#chosen(call);
    const attempt = this.attempt(call, 0, 'started', status);
    const body = new ScriptedBody();
    body.onEnd = (code) => {
      call.code = code;
      attempt.code = code;
      if (code === 0) attempt.started = 'done';
      call.bodyOpen = false;
      this.front.account(call);
    };
    call.onCancel = () => body.cancel(5003, 'the caller went away');
    call.reply = streaming(status, headers, body);
    call.status = status;
    call.bodyOpen = true;
    return body;
  }

  #chosen(call: Call): void {
    call.capability = this.candidate.version.capability;
    call.lines = [this.candidate.version];
    call.chosen = this.candidate;
    call.principal ??= new Principal('shop.chat.1');
  }
}

export interface FrontOptions {
  readonly clock?: Clock;
  readonly config?: Partial<SidecarConfig>;
  readonly script: Script;
  readonly acl?: Acl;
}

export class ScriptedFront extends Front {
  readonly scripted: ScriptedTable;
  readonly lines: string[];
  readonly calls: Call[];
  readonly candidate: Candidate;

  constructor(options: FrontOptions) {
    const clock = options.clock ?? realClock;
    const lines: string[] = [];
    const calls: Call[] = [];
    const log = createLog({ level: 'info', service: 'test', to: { write: (line: string) => void lines.push(line) } });
    const health = new Health(clock, { consecutive: 3, forMs: 1_000 });
    const candidate = candidateOf(health, 'crm.order.query', '2.1.0', 'crm.order.a', options.acl);
    const table = new ScriptedTable([candidate]);
    const config = {
      name: 'here',
      listen: { host: '127.0.0.1', port: 0 },
      mesh: null,
      grpc: null,
      allowedHosts: ['reach.internal'],
      limits: { bodyBytes: 65_536, headerBytes: 16_384, connections: 1_000, batch: 100, unsentBytes: 1_048_576, stallMs: 10_000 },
      maxDeadlineMs: 3_600_000,
      ...options.config,
    } as unknown as SidecarConfig;
    const identities = {
      caller: (authorization: string | undefined) => (authorization === 'Bearer good' ? new Principal('shop.chat.1') : null),
      peer: (authorization: string | undefined) => (authorization === 'Bearer mesh' ? 'there' : null),
    };
    const observation = new Observation(clock, log.logger, 'all');
    const quotas = new Quotas(clock, config.name);
    const engine = {
      clock,
      random: new SeededRandom(7),
      config,
      table,
      health,
      identities,
      observer: observation,
      quotas,
    } as unknown as Engine;
    const run = async (call: Call): Promise<void> => {
      calls.push(call);
      call.table = table.current();
      observation.callStarted(call);
      await options.script(call, new Stage(this, candidate));
      if (call.code === 0 && !call.bodyOpen) call.onWhole?.();
      if (!call.bodyOpen) this.account(call);
    };
    const pipeline: Pipeline = {
      outbound: (_engine, call) => run(call),
      inbound: (_engine, call) => run(call),
      explain: (_engine, call) => ({
        asked: call.asked,
        refusal: call.headers.authorization === undefined ? { code: 4001, detail: 'no credential' } : null,
      }),
    };
    super(engine, table, observation, pipeline);
    this.scripted = table;
    this.lines = lines;
    this.calls = calls;
    this.candidate = candidate;
  }

  account(call: Call): void {
    if (call.settled) return;
    call.settled = true;
    call.onCancel = null;
    this.observation.callEnded(call);
  }

  accessLines(): Record<string, unknown>[] {
    return this.lines.map((line) => JSON.parse(line) as Record<string, unknown>).filter((line) => line['msg'] === 'call');
  }
}
