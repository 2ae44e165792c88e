/**
 * Which calls are recorded, and what becomes of them. A call that is not pays one comparison. One that is runs through the same
 * pipeline with a `Watch` in place of the engine, and is written down when it has ended, if the rest of the filter wants it: what can
 * be told before (capability, caller) is asked then, and of a call that is not wanted in the end nothing is written or counted.
 *
 * Nothing here waits or throws for a call: no room in the queue, a disk that fails, more time spent than `cpu` allows: the call
 * is not recorded, and counted by the reason.
 */
import type { Clock } from '../../base/clock.ts';
import type { RedactionRules } from '../../base/redact.ts';
import { coversAgent, coversName } from '../../proto/language/covers.ts';
import type { Call } from '../call/call.ts';
import type { Reply } from '../call/reply.ts';
import type { SidecarConfig } from '../config.ts';
import type { Decider, Engine } from '../engine.ts';
import type { RecordingFilter, RecordingSettings } from '../recording-config.ts';
import { targetOf } from '../name/name.ts';
import type { Version } from '../table/snapshot.ts';
import { packageVersion } from '../version.ts';
import { RecordingFiles } from './files.ts';
import { HealthChanges } from './health-changes.ts';
import { type AnyRecord, type FileRecord, type RecordedConfig, RECORDING_FORMAT } from './shapes.ts';
import { TableParts } from './table-parts.ts';
import { isSampled, Watch } from './watch.ts';

/** Why a call that the filter wants is not in the recording. */
export interface RecordingCounts {
  recorded: number;
  /** No room in the queue, or the disk fails. */
  disk: number;
  /** More time was spent than it may take. */
  cpu: number;
  /** The file that it began in was full before it ended. */
  rotated: number;
  /** Ours: told in the log once. */
  fault: number;
}

export interface RecordingStatus extends Readonly<RecordingCounts> {
  readonly isOn: boolean;
  readonly folder: string;
  readonly filter: RecordingFilter;
  readonly bytes: number;
  readonly isFailing: boolean;
}

type Outbound = (engine: Decider, call: Call) => Promise<void>;
type Inbound = (engine: Decider, call: Call, agentId: string, version: string) => Promise<void>;

/** So much may be spent at once, in time that is allowed for: a table of thousands is written in one go. */
const BURST_MS = 10_000;
/** Calls under way that are watched. */
const MAX_WATCHED = 10_000;
/** Revisions of the health view that are held back for calls under way; then they are written, whether one will refer to them or not. */
const MAX_HELD = 1_024;
/** So many are let grow together before it is looked at which of them nobody needs. */
const SETTLE_AT = 64;

export class Recorder {
  readonly counts: RecordingCounts = { recorded: 0, disk: 0, cpu: 0, rotated: 0, fault: 0 };
  readonly parts: TableParts;
  readonly #settings: RecordingSettings;
  readonly #config: RecordedConfig;
  readonly #program = packageVersion();
  readonly #clock: Clock;
  readonly #warn: (words: string) => void;
  readonly #files: RecordingFiles;
  readonly #changes = new HealthChanges();
  #engine: Engine | null = null;
  #filter: RecordingFilter;
  #isOn = false;
  /** Number of the file under way; 0 = none has been begun. */
  #file = 0;
  /** A record that others refer to found no room: the next file has everything anew. */
  #isBroken = false;
  /** What stands in the head of a file has changed. */
  #isOutdated = false;
  /** Oldest first. */
  readonly #watched = new Set<Watch>();
  /** Of revisions that are held: at how many it is looked again which are needed. */
  #settleAt = SETTLE_AT;
  /** Milliseconds that may be spent. */
  #allowance: number;
  #filledAt: number;

  constructor(settings: RecordingSettings, config: SidecarConfig, folder: string, clock: Clock, warn: (words: string) => void) {
    this.#settings = settings;
    this.#filter = settings.filter;
    this.#config = decisive(config);
    this.#clock = clock;
    this.#warn = warn;
    this.#files = new RecordingFiles(folder, settings, clock, warn);
    this.#files.onLost = (calls) => {
      this.counts.recorded -= calls;
      this.counts.disk += calls;
      this.#isBroken = true;
    };
    this.parts = new TableParts((record) => this.#put(record));
    this.#allowance = BURST_MS * settings.cpu;
    this.#filledAt = clock.now();
    this.#isOn = settings.isOn;
  }

  /** Of the health view, as it is written down so far. */
  get rev(): number {
    return this.#changes.rev;
  }

  get rules(): RedactionRules {
    return this.#settings.keep;
  }

  get bodyBytes(): number {
    return this.#settings.bodyBytes;
  }

  /** To be said before the first call. */
  serve(engine: Engine): void {
    this.#engine = engine;
    this.#files.watchAge();
  }

  /** From now on; what is given takes the place of what the settings say. */
  start(filter: Partial<RecordingFilter> = {}): void {
    const before = this.#filter;
    this.#filter = { ...this.#settings.filter, ...filter };
    // The head of a file says which calls stand in it.
    if (JSON.stringify(before) !== JSON.stringify(this.#filter)) this.#isOutdated = true;
    this.#isOn = true;
  }

  /** Calls under way are still written down when they end. Resolves when what has ended is on the disk. */
  async stop(): Promise<void> {
    this.#isOn = false;
    await this.flushed();
  }

  status(): RecordingStatus {
    const { folder, bytes, isFailing } = this.#files;
    return { isOn: this.#isOn, folder, filter: this.#filter, bytes, isFailing, ...this.counts };
  }

  /** Writes what waits, and closes. */
  async close(): Promise<void> {
    this.#isOn = false;
    await this.#files.close();
  }

  /** What was put so far is on the disk. */
  async flushed(): Promise<void> {
    await this.#files.flushed();
  }

  /** The pipeline with a watch in it. */
  outbound(outbound: Outbound): (engine: Engine, call: Call) => Promise<void> {
    return (engine, call) => {
      if (!this.#isOn || !isSampled(call.traceId, this.#filter.share)) return outbound(engine, call);
      if (!this.#mayWant(engine, call)) return outbound(engine, call);
      const watch = this.#watch(engine, call, null);
      return typeof watch === 'string' ? this.#without(outbound(engine, call), call, watch) : outbound(watch, call);
    };
  }

  inbound(inbound: Inbound): (engine: Engine, call: Call, agentId: string, version: string) => Promise<void> {
    return (engine, call, agentId, version) => {
      if (!this.#isOn || !isSampled(call.traceId, this.#filter.share)) return inbound(engine, call, agentId, version);
      if (!this.#mayWant(engine, call)) return inbound(engine, call, agentId, version);
      const watch = this.#watch(engine, call, { agent: agentId, version });
      return typeof watch === 'string'
        ? this.#without(inbound(engine, call, agentId, version), call, watch)
        : inbound(watch, call, agentId, version);
    };
  }

  /** Why it cannot be watched, or its watch. */
  #watch(engine: Engine, call: Call, host: { readonly agent: string; readonly version: string } | null): Watch | 'cpu' | 'disk' {
    if (this.#watched.size >= MAX_WATCHED || !this.#mayspend()) return 'cpu';
    if (!this.#hasFile()) return 'disk';
    const watch = new Watch(this, engine, call, host, this.#file);
    this.#watched.add(watch);
    return watch;
  }

  /** Only when it has ended can be told whether it would have been wanted. */
  async #without(running: Promise<void>, call: Call, why: 'cpu' | 'disk'): Promise<void> {
    await running;
    if (this.wants(call) && this.#wantsEnd(call)) this.counts[why]++;
  }

  /** The call has ended, with its body. */
  ended(watch: Watch): void {
    this.#watched.delete(watch);
    if (watch.isLetGo || !this.wants(watch.call) || !this.#wantsEnd(watch.call)) return;
    if (watch.file !== this.#file || this.#isBroken) {
      this.counts.rotated++;
      return;
    }
    this.timed(() => {
      const record = watch.record();
      this.#putHeld();
      if (record === null || this.#isBroken || !this.#files.put(JSON.stringify(record), true)) this.counts.disk++;
      else this.counts.recorded++;
    });
  }

  /** False = by the capability that it asks for, or by who is known to ask, it is none of those that are wanted. */
  #mayWant(engine: Engine, call: Call): boolean {
    const { capability, caller } = this.#filter;
    if (capability !== '*') {
      const target = targetOf(engine.table.current(), call.asked);
      if (target === null || !coversName(capability, target.capability.name)) return false;
    }
    return caller === '' || call.principal === null || coversAgent(caller, call.principal.agent);
  }

  /** Whether it is one of the calls that the filter names, once it is known who asks for what. What it asked for counts, not what it was led to. */
  wants(call: Call): boolean {
    const { capability, caller } = this.#filter;
    if (capability !== '*') {
      const target = call.table === null ? null : targetOf(call.table, call.asked);
      if (target === null || !coversName(capability, target.capability.name)) return false;
    }
    return caller === '' || coversAgent(caller, call.principal?.agent ?? '');
  }

  /** What can only be told at its end. */
  #wantsEnd(call: Call): boolean {
    const { codes, failedOnly } = this.#filter;
    if (failedOnly && call.code === 0) return false;
    return codes.length === 0 || codes.includes(call.code);
  }

  /** Revision of the health view, held until it is needed as far as it is new; null = it could not be, or the file is another one by now. */
  health(lines: readonly Version[], now: number, file: number): number | null {
    if (file !== this.#file || this.#isBroken || this.#engine === null) return null;
    const { health } = this.#engine;
    const isDone = this.timed(() => {
      this.#changes.look(lines, health, now);
      if (this.#changes.held >= this.#settleAt) this.#settle();
    });
    return this.#isBroken || !isDone ? null : this.#changes.rev;
  }

  /** Lets go what no call under way refers to. */
  #settle(): void {
    const [oldest] = this.#watched;
    this.#changes.settle(oldest?.rev ?? this.#changes.rev);
    if (this.#changes.held >= MAX_HELD) this.#putHeld();
    this.#settleAt = Math.max(SETTLE_AT, 2 * this.#changes.held);
  }

  #putHeld(): void {
    for (const record of this.#changes.take()) this.#put(record);
  }

  /** Of a stream so many bytes may be kept. */
  streamBytes({ headers }: Reply): number {
    const type = headers['content-type'];
    const base = typeof type === 'string' ? (type.split(';', 1)[0] as string).trim().toLowerCase() : '';
    return this.#settings.keep.bodies.has(base) ? this.#settings.streamBytes : 0;
  }

  /** Counts what it takes against what it may take. What goes wrong in it is a fault of ours, and none of the call's. */
  timed(work: () => void): boolean {
    const from = this.#clock.now();
    let isDone = true;
    try {
      work();
    } catch (error) {
      isDone = false;
      if (this.counts.fault++ === 0)
        this.#warn(`recording: a fault in Agent-Reach (${error instanceof Error ? error.message : 'unknown'})`);
    }
    this.#allowance -= this.#clock.now() - from;
    return isDone;
  }

  #mayspend(): boolean {
    const { cpu } = this.#settings;
    if (cpu >= 1) return true;
    const now = this.#clock.now();
    this.#allowance = Math.min(BURST_MS * cpu, this.#allowance + (now - this.#filledAt) * cpu);
    this.#filledAt = now;
    return this.#allowance > 0;
  }

  #hasFile(): boolean {
    if (this.#file > 0 && !this.#isBroken && !this.#isOutdated && !this.#files.isFull && !this.#files.isFailing) return true;
    if (!this.#files.begin()) return false;
    this.#file++;
    this.#isBroken = false;
    this.#isOutdated = false;
    this.#changes.forget();
    this.#settleAt = SETTLE_AT;
    this.parts.forget();
    const head: FileRecord = {
      k: 'file',
      format: RECORDING_FORMAT,
      program: this.#program,
      wall_ms: this.#clock.wallMs(),
      config: this.#config,
      rev: this.#changes.rev,
      share: this.#filter.share,
    };
    this.#put(head);
    return !this.#isBroken;
  }

  #put(record: AnyRecord): void {
    if (!this.#files.put(JSON.stringify(record))) this.#isBroken = true;
  }
}

function decisive(config: SidecarConfig): RecordedConfig {
  const { name, region, zone, aclAudit, maxDeadlineMs, maxHops, claims, retryBudget, ejection, affinity } = config;
  return { name, region, zone, aclAudit, maxDeadlineMs, maxHops, lateMs: claims.lateMs, retryBudget, ejection, affinity };
}
