/**
 * The senders of a drill: messages at a fixed rate, whatever becomes of them, through one or more sidecars in turn. What is
 * refused in so many words is submitted again after the time that the refusal names; what is not answered is in doubt, and counts as
 * accepted only with a 202. Numbers are never used twice.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'undici';
import { capabilityOf, type Kind, KINDS } from './team.ts';

export interface Gate {
  readonly name: string;
  /** Base URL of a sidecar. */
  readonly url: string;
  readonly token: string;
}

export interface Accepted {
  readonly n: number;
  readonly kind: Kind;
  readonly taskId: string;
  /** The key that was given; '' = none. */
  readonly key: string;
  readonly durable: string;
  /** The gate through which it came in. */
  readonly gate: string;
  /** Wall clock, since workers' sidecars write theirs. */
  readonly atMs: number;
  /** From when it was due until it was answered. */
  readonly tookMs: number;
}

/** A submission that was sent and not answered. */
export interface Silence {
  readonly n: number;
  readonly gate: string;
  readonly key: string;
  readonly atMs: number;
  readonly words: string;
}

export interface SubmitOptions {
  readonly gates: readonly Gate[];
  readonly ratePerSec: number;
  readonly count: number;
  readonly kinds?: readonly Kind[];
  /** Each message is submitted so many times, with one key, each time through the next gate. */
  readonly copies?: number;
  /** Between two of these; every fourth message has all of them at once. */
  readonly apartMs?: number;
  /** Refused ones are not submitted again. */
  readonly givesUp?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
  /** To each gate. */
  readonly connections?: number;
  /** Requests on one connection that are not answered yet. */
  readonly pipelining?: number;
}

const CONNECTIONS = 24;
const ANSWER_MS = 30_000;
const AGAIN_MS = 100;
const GIVE_UP_MS = 120_000;
const TOGETHER = 4;

interface Refused {
  readonly status: number;
  readonly code: number;
  readonly againMs: number;
}

export class Submitter {
  readonly accepted: Accepted[] = [];
  /** Numbers whose submission was sent and not answered. */
  readonly inDoubt = new Set<number>();
  /** Submissions that were not answered, those that were sent again included. */
  get unanswered(): number {
    return this.silences.length;
  }
  readonly silences: Silence[] = [];
  /** Refusals by code. */
  readonly refusals: Record<string, number> = {};
  /** Given up, with the last words. */
  readonly failures: string[] = [];
  readonly #options: SubmitOptions;
  readonly #mayPipeline: boolean;
  readonly #pools: readonly Pool[];
  /** Gates through which nothing is submitted at present, with those that wait. */
  readonly #paused = new Map<string, (() => void)[]>();
  readonly #underWay = new Set<Promise<void>>();
  readonly #running: Promise<void>;
  readonly #startedAt = performance.now();
  #sent = 0;
  /** From the first submission to the last answer. */
  tookMs = 0;
  /** From the first submission to the last one. */
  sentMs = 0;
  #isEnding = false;

  constructor(options: SubmitOptions) {
    this.#options = options;
    this.#mayPipeline = (options.pipelining ?? 1) > 1;
    this.#pools = options.gates.map(
      ({ url }) =>
        new Pool(url, {
          connections: options.connections ?? CONNECTIONS,
          pipelining: options.pipelining ?? 1,
          headersTimeout: ANSWER_MS,
          bodyTimeout: ANSWER_MS,
        }),
    );
    this.#running = this.#run();
  }

  get sent(): number {
    return this.#sent;
  }

  get isThrough(): boolean {
    return this.#sent >= this.#options.count;
  }

  get waiting(): number {
    return this.#underWay.size;
  }

  /** All are sent and answered. */
  async end(): Promise<void> {
    await this.#running;
    await Promise.all(this.#underWay);
    this.tookMs = performance.now() - this.#startedAt;
    await Promise.all(this.#pools.map((pool) => pool.close()));
  }

  /** What is due at this gate waits until `resume`; what is under way goes on. */
  pause(gate: string): void {
    if (!this.#paused.has(gate)) this.#paused.set(gate, []);
  }

  resume(gate: string): void {
    const waiting = this.#paused.get(gate) ?? [];
    this.#paused.delete(gate);
    for (const go of waiting) go();
  }

  /** No more are sent. */
  stop(): void {
    this.#isEnding = true;
  }

  async #run(): Promise<void> {
    const everyMs = 1_000 / this.#options.ratePerSec;
    while (!this.#isEnding && this.#sent < this.#options.count) {
      const due = Math.min(this.#options.count, Math.floor((performance.now() - this.#startedAt) / everyMs) + 1);
      for (; this.#sent < due; this.#sent++) this.#take(this.#sent);
      await sleep(1);
    }
    this.sentMs = performance.now() - this.#startedAt;
  }

  #take(index: number): void {
    const { kinds = KINDS, copies = 1, apartMs = 0 } = this.#options;
    const n = index;
    const kind = kinds[index % kinds.length] as Kind;
    const key = kind === 'keyed' || copies > 1 ? `drill-${kind}-${n}` : '';
    for (let copy = 0; copy < copies; copy++) {
      const laterMs = index % TOGETHER === 0 ? 0 : copy * apartMs;
      const submitting = this.#submit(n, kind, key, index + copy, laterMs);
      this.#underWay.add(submitting);
      void submitting.finally(() => this.#underWay.delete(submitting));
    }
  }

  async #submit(n: number, kind: Kind, key: string, turn: number, laterMs: number): Promise<void> {
    if (laterMs > 0) await sleep(laterMs);
    const gate = turn % this.#pools.length;
    const { name, token } = this.#options.gates[gate] as Gate;
    const dueAt = performance.now();
    const headers: Record<string, string> = {
      authorization: `Bearer ${token}`,
      'content-type': 'application/json',
      ...this.#options.headers,
      ...(key === '' ? {} : { 'idempotency-key': key }),
    };
    for (;;) {
      for (let paused = this.#paused.get(name); paused !== undefined; paused = this.#paused.get(name))
        await new Promise<void>((go) => paused?.push(go));
      const outcome = await this.#once(this.#pools[gate] as Pool, `/v1/cast/${capabilityOf(kind)}`, headers, JSON.stringify({ n }));
      if ('taskId' in outcome) {
        this.accepted.push({ n, kind, key, ...outcome, gate: name, atMs: Date.now(), tookMs: performance.now() - dueAt });
        return;
      }
      if ('never' in outcome) {
        this.failures.push(`message ${n}: ${outcome.never}`);
        return;
      }
      if ('words' in outcome) {
        this.silences.push({ n, gate: name, key, atMs: Date.now(), words: outcome.words });
        // A key makes it safe to submit it again; without one it might be a second message.
        if (key === '') {
          this.inDoubt.add(n);
          return;
        }
        await sleep(AGAIN_MS);
      } else {
        if (outcome.status > 0) this.refusals[outcome.code] = (this.refusals[outcome.code] ?? 0) + 1;
        if (this.#options.givesUp === true) return;
        await sleep(outcome.againMs);
      }
      if (performance.now() - dueAt > GIVE_UP_MS) {
        this.failures.push(`message ${n}: ${JSON.stringify(outcome)}`);
        return;
      }
    }
  }

  async #once(
    pool: Pool,
    path: string,
    headers: Record<string, string>,
    body: string,
  ): Promise<{ readonly taskId: string; readonly durable: string } | Refused | { readonly words: string } | { readonly never: string }> {
    try {
      const response = await pool.request({ method: 'POST', path, headers, body, idempotent: this.#mayPipeline });
      const answer = (await response.body.json()) as { task_id?: string; durable?: string; code?: number; detail?: string };
      if (response.statusCode === 202) return { taskId: answer.task_id ?? '', durable: answer.durable ?? '' };
      const { statusCode: status } = response;
      // Nothing that a drill does may bring any other answer.
      if (status !== 429 && status !== 503) return { never: `HTTP ${status}: ${answer.detail ?? ''}` };
      // Whether a 503 was stored in the end is not certain; the words of it say so.
      if (status === 503 && (answer.detail ?? '').includes('not certain')) return { words: answer.detail ?? '' };
      return { status, code: answer.code ?? 0, againMs: Number(response.headers['reach-retry-after-ms'] ?? AGAIN_MS) };
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      return code === 'ECONNREFUSED' ? { status: 0, code: 0, againMs: AGAIN_MS } : { words: `${code ?? ''} ${message}` };
    }
  }
}
