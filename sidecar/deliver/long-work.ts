/**
 * Work that agents have taken (202) and are still at, remembered over a restart of this sidecar. The agent does not notice that its
 * sidecar was away, and will report; the claim on the work is what says whose it is. So each such work has a claim (also
 * idempotent work, which has none before), and a file names them. After a restart they are extended before anything is pulled: nobody
 * else begins the work, a report is recorded in the claim, and when the queue brings the message again it is not handed over but
 * waited for as before. A claim that somebody else has taken meanwhile stays with them: the report is refused. What is over within
 * half a second never gets here, and without a folder there is none of this.
 */
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { Execution } from '../../proto/language/types.ts';
import { Code } from '../../proto/wire/codes.ts';
import type { Claim } from '../ledger/ledger.ts';
import type { Reported, WorkReport } from './door.ts';
import type { InHand } from './in-hand.ts';

/** What is needed of a `DurableFile`. */
export interface WorkFile {
  read(): readonly string[] | null;
  write(lines: Iterable<string>): Promise<string | null>;
}

export interface LongWorkParts {
  readonly file: WorkFile;
  /** The claim that an earlier life of this sidecar had. */
  resume(claim: string, worker: string, taskId: string): Promise<Claim | 'gone' | 'unreachable'>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** As it stands in the file, a line each. */
interface Kept {
  readonly task: string;
  readonly agent: string;
  readonly version: string;
  readonly claim: string;
  readonly execution: Execution;
  readonly timeout_ms: number;
  readonly received_at_ms: number;
}

const RESUME_FOR_MS = 5_000;
const RESUME_PAUSE_MS = 250;
/** Whoever reports a failure is answered once the message is there again: after the ack wait, and a little more. */
const REPORT_FOR_MS = 45_000;
const RECORD_FOR_MS = 10_000;
const MOST = 10_000;

/** Work of before the restart. */
export class Resumed {
  readonly kept: Kept;
  readonly claim: Claim;
  dueAt: number;
  /** How it ended, said before the message was there again. */
  report: WorkReport | null = null;
  onStored: ((reported: Reported) => void) | null = null;

  constructor(kept: Kept, claim: Claim, dueAt: number) {
    this.kept = kept;
    this.claim = claim;
    this.dueAt = dueAt;
  }
}

export class LongWork {
  readonly #parts: LongWorkParts;
  readonly #kept = new Map<string, Kept>();
  readonly #resumed = new Map<string, Resumed>();
  /** Task to agent, of those of which the ledger has not said yet whose they are. */
  readonly #asked = new Map<string, string>();
  /** Task to agent, of those that somebody else has, or that ended otherwise. */
  readonly #gone = new Map<string, string>();
  /** Resolves once what an earlier life was at is taken up again. */
  begun: Promise<void> = Promise.resolve();
  #isStopping = false;
  #isChanged = false;
  #writing: Promise<void> | null = null;
  #said = '';

  constructor(parts: LongWorkParts) {
    this.#parts = parts;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Before anything is pulled: takes up again what an earlier life was at. */
  begin(): Promise<void> {
    this.begun = this.#begin();
    return this.begun;
  }

  async #begin(): Promise<void> {
    const { file, clock, log } = this.#parts;
    const found = (file.read() ?? []).flatMap((line) => readKept(line) ?? []).slice(0, MOST);
    if (found.length === 0) return;
    for (const kept of found) {
      this.#asked.set(kept.task, kept.agent);
      this.#kept.set(kept.task, kept);
    }
    const all = Promise.all(found.map((kept) => this.#resume(kept))).then(() => {
      this.#isChanged = true;
      log.info({ found: found.length, resumed: this.#resumed.size }, 'work that agents have taken before the restart');
    });
    // While NATS is away nothing can be pulled either.
    await new Promise<void>((done) => {
      const timer = clock.after(RESUME_FOR_MS, done);
      const goOn = (): void => {
        timer.cancel();
        done();
      };
      void all.then(goOn);
    });
  }

  async #resume(kept: Kept): Promise<void> {
    const { clock } = this.#parts;
    let claim = await this.#parts.resume(kept.claim, kept.agent, kept.task);
    while (claim === 'unreachable' && !this.#isStopping) {
      await new Promise<void>((done) => void clock.after(RESUME_PAUSE_MS, done));
      claim = await this.#parts.resume(kept.claim, kept.agent, kept.task);
    }
    this.#asked.delete(kept.task);
    if (claim === 'unreachable') return;
    if (claim === 'gone') {
      this.remove(kept.task);
      this.#gone.set(kept.task, kept.agent);
      return;
    }
    claim.onLost = (by) => {
      if (by === 'fenced') this.#lose(kept);
    };
    this.#resumed.set(kept.task, new Resumed(kept, claim, clock.now() + kept.timeout_ms));
  }

  /** An agent is at it for so long that a restart of ours should not lose it. It has a claim. */
  add(task: InHand, claim: string): void {
    const { envelope, seat } = task;
    this.#kept.set(envelope.task_id, {
      task: envelope.task_id,
      agent: seat.slots.agentId,
      version: seat.candidate.version.text,
      claim,
      execution: task.execution,
      timeout_ms: envelope.timeout_ms,
      received_at_ms: Math.round(task.receivedAtMs),
    });
    this.#isChanged = true;
  }

  /** It has ended, or is not at work here any more. */
  remove(taskId: string): void {
    if (this.#isStopping) return;
    if (this.#kept.size !== 0 && this.#kept.delete(taskId)) this.#isChanged = true;
  }

  /** The queue brings it again: who gets it waits for its report, instead of handing it over. */
  of(taskId: string): Resumed | null {
    return this.#resumed.size === 0 ? null : (this.#resumed.get(taskId) ?? null);
  }

  /** It is in hand again. */
  takeUp({ kept, claim }: Resumed): void {
    claim.onLost = null;
    this.#resumed.delete(kept.task);
  }

  /** How work of before the restart has ended. A result is recorded at once; a failure is judged with the message at hand. */
  async report(agent: string, taskId: string, said: WorkReport): Promise<Reported> {
    const resumed = this.of(taskId);
    if (resumed === null || resumed.kept.agent !== agent) {
      if (this.#asked.get(taskId) === agent) return 'unreachable';
      return this.#gone.get(taskId) === agent ? 'fenced' : 'unknown';
    }
    if (said.code === Code.ok) return await this.#record(resumed, said);
    resumed.report = said;
    return await new Promise<Reported>((resolve) => {
      const timer = this.#parts.clock.after(REPORT_FOR_MS, () => resolve('unreachable'));
      resumed.onStored = (reported) => {
        timer.cancel();
        resolve(reported);
      };
    });
  }

  /** Milliseconds that are left; null = the agent has no such work of before. */
  extend(agent: string, taskId: string): number | null {
    const resumed = this.of(taskId);
    if (resumed === null || resumed.kept.agent !== agent || resumed.report !== null) return null;
    resumed.dueAt = this.#parts.clock.now() + resumed.kept.timeout_ms;
    return resumed.kept.timeout_ms;
  }

  /** To be called now and then. */
  sweep(now: number): void {
    for (const resumed of this.#resumed.values()) if (now >= resumed.dueAt && resumed.report === null) void this.#giveUp(resumed);
    if (this.#isChanged && this.#writing === null) this.#writing = this.#write();
  }

  /** From now on what is let go of is left to the next life. */
  stop(): void {
    this.#isStopping = true;
  }

  /** The file stays. */
  async close(): Promise<void> {
    for (const { claim } of this.#resumed.values()) claim.abandon();
    await this.#writing;
    if (this.#isChanged) await this.#write();
  }

  async #record(resumed: Resumed, said: WorkReport): Promise<Reported> {
    const { kept, claim } = resumed;
    const { clock } = this.#parts;
    const until = clock.now() + RECORD_FOR_MS;
    for (;;) {
      const stored = await claim.done({
        code: said.code,
        status: said.status === 202 ? 200 : said.status,
        contentType: said.contentType,
        provider: kept.agent,
        version: kept.version,
        detail: said.detail,
        body: said.body,
        leftOutBytes: 0,
        marks: null,
      });
      if (stored === 'fenced') this.#lose(kept);
      if (stored === 'fenced' || clock.now() > until) return stored === 'fenced' ? 'fenced' : 'unreachable';
      if (stored !== 'unreachable') break;
      await new Promise<void>((done) => void clock.after(RESUME_PAUSE_MS, done));
    }
    // Whoever gets the message from the queue finds the result, and tells its sender.
    this.#resumed.delete(kept.task);
    this.remove(kept.task);
    return 'stored';
  }

  async #giveUp({ kept, claim }: Resumed): Promise<void> {
    this.#lose(kept);
    const words = `nothing was heard of it within ${kept.timeout_ms} ms after a restart of the sidecar of ${kept.agent}`;
    if (kept.execution === 'once') await claim.unknown(words);
    else await claim.release(true);
  }

  #lose(kept: Kept): void {
    this.#resumed.get(kept.task)?.onStored?.('fenced');
    this.#resumed.delete(kept.task);
    this.remove(kept.task);
    if (this.#gone.size >= MOST) this.#gone.delete(this.#gone.keys().next().value as string);
    this.#gone.set(kept.task, kept.agent);
  }

  async #write(): Promise<void> {
    this.#isChanged = false;
    const problem = await this.#parts.file.write([...this.#kept.values()].map((kept) => JSON.stringify(kept)));
    this.#writing = null;
    if (problem !== null && problem !== this.#said)
      this.#parts.log.warn(`${problem}: after a restart agents could not report work that they have taken`);
    this.#said = problem ?? '';
  }
}

function readKept(line: string): Kept | null {
  try {
    const kept = JSON.parse(line) as Partial<Kept> | null;
    if (kept === null || typeof kept.task !== 'string' || typeof kept.agent !== 'string' || typeof kept.claim !== 'string') return null;
    const { execution, timeout_ms: timeoutMs } = kept;
    if (execution !== 'once' && execution !== 'idempotent' && execution !== 'keyed') return null;
    if (typeof timeoutMs !== 'number' || !(timeoutMs > 0) || typeof kept.version !== 'string') return null;
    return { ...(kept as Kept), received_at_ms: typeof kept.received_at_ms === 'number' ? kept.received_at_ms : 0 };
  } catch {
    return null;
  }
}
