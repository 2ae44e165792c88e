/**
 * The statements that this sidecar shows its peers: of each agent that calls through it, the control plane's word that it is
 * at home here. Asked for when the registry knows the sidecar, renewed when half of their time is over, kept on disk: calls
 * go on while the control plane is away, for hours. Who is given one is the control plane's decision; what was refused is
 * said in health and asked for again later.
 */
import { openCompact } from '../../base/compact-jws.ts';
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import { replyWords } from '../../base/bus-message.ts';
import { type HomeAnswer, HOMES_PER_REQUEST, type HomeRequest } from '../../proto/wire/identity.ts';
import { REGISTRY_WIRE } from '../../proto/wire/registry.ts';
import type { Subjects } from '../../proto/wire/subjects.ts';
import { MAX_TOKEN_CHARS, standingProblem, type Trust, verifyToken } from '../../proto/wire/token.ts';
import { bytesOf, type RegistryBus } from './bus.ts';
import type { DurableFile } from './durable-file.ts';

export interface HomesParts {
  readonly bus: RegistryBus;
  readonly subjects: Subjects;
  readonly env: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly sidecar: string;
  readonly instance: string;
  /** The sidecar's own token, read anew each time; '' = it cannot be read at present. */
  readonly token: () => string;
  /** Everybody who may call through this sidecar, as of now. */
  readonly wanted: () => Iterable<string>;
  /** The registry knows this process. */
  readonly isAdmitted: () => boolean;
  /** null = nothing is kept. */
  readonly file: DurableFile | null;
}

interface Statement {
  readonly text: string;
  readonly renewAtSec: number;
  readonly endsAtSec: number;
}

const REQUEST_MS = 5_000;
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 15_000;
/** Whoever waits for a statement has gone on without it by then. */
const MOST_WAIT_MS = 2_000;
const FORMAT = 1;

export class Homes {
  readonly #parts: HomesParts;
  readonly #held = new Map<string, Statement>();
  /** Agent → why it is given none. */
  readonly #refused = new Map<string, string>();
  readonly #waiting = new Map<string, Set<() => void>>();
  #trust: Trust | null = null;
  #isAsking = false;
  #failures = 0;
  #nextAskAt = Number.NEGATIVE_INFINITY;
  /** When refused agents are asked for again. */
  #retryAt = Number.NEGATIVE_INFINITY;
  #isStale = false;
  #writing: Promise<void> | null = null;
  /** Why the last request had no effect; '' = it had. */
  trouble = '';

  constructor(parts: HomesParts) {
    this.#parts = parts;
    this.#load();
  }

  /** What is shown of this agent; null = there is none. */
  of(agent: string): string | null {
    return this.#held.get(agent)?.text ?? null;
  }

  get size(): number {
    return this.#held.size;
  }

  /** The agents that are given none, and why. */
  get refused(): ReadonlyMap<string, string> {
    return this.#refused;
  }

  /**
   * Resolves when there is a statement for the agent, when it is refused one or nobody can be asked, and after a while in any case: every
   * call of an agent without a statement waits here, and each holds its payload.
   */
  arrived(agent: string): Promise<void> {
    const { bus, clock } = this.#parts;
    const isRefused = this.#refused.has(agent) && !this.#isAsking;
    if (this.#held.has(agent) || isRefused || !bus.connected) return Promise.resolve();
    const waiting = this.#waiting.get(agent) ?? new Set<() => void>();
    this.#waiting.set(agent, waiting);
    return new Promise((done) => {
      const end = (): void => {
        timer.cancel();
        waiting.delete(end);
        if (waiting.size === 0 && this.#waiting.get(agent) === waiting) this.#waiting.delete(agent);
        done();
      };
      const timer = clock.after(MOST_WAIT_MS, end);
      waiting.add(end);
    });
  }

  /** Other keys count, or something was taken back: statements that count no more are asked for anew. */
  trust(trust: Trust): void {
    this.#trust = trust;
    const nowSec = this.#nowSec();
    for (const [agent, { text }] of this.#held) {
      const verified = verifyToken(text, trust, 'home');
      if ('why' in verified || standingProblem(verified.claims, trust, nowSec) !== null) this.#drop(agent);
    }
    this.again();
  }

  /** Whatever stood against asking is over: the registry has just taken a hello, or somebody is new here. */
  again(): void {
    this.#failures = 0;
    this.#nextAskAt = Number.NEGATIVE_INFINITY;
    this.#retryAt = Number.NEGATIVE_INFINITY;
    this.look();
  }

  /** To be called now and then: asks for what is missing or will end. */
  look(): void {
    const { clock, bus, isAdmitted } = this.#parts;
    const now = clock.now();
    if (this.#isAsking || now < this.#nextAskAt || !bus.connected || !isAdmitted()) return;
    const due = this.#due(now);
    if (due.length > 0) void this.#ask(due);
  }

  /** Resolves when the newest state is on disk. */
  async flush(): Promise<void> {
    while (this.#writing !== null || this.#isStale) {
      this.#writing ??= this.#write();
      await this.#writing;
    }
  }

  #due(now: number): string[] {
    const nowSec = this.#nowSec();
    const due: string[] = [];
    const mayRetry = now >= this.#retryAt;
    const wanted = new Set(this.#parts.wanted());
    for (const agent of [...this.#held.keys(), ...this.#refused.keys()]) if (!wanted.has(agent)) this.#drop(agent);
    for (const agent of wanted) {
      const held = this.#held.get(agent);
      if (held !== undefined && nowSec >= held.endsAtSec) this.#drop(agent);
      if (held !== undefined && nowSec < held.renewAtSec) continue;
      if (this.#refused.has(agent) && !mayRetry) continue;
      due.push(agent);
      if (due.length === HOMES_PER_REQUEST) break;
    }
    return due;
  }

  async #ask(agents: readonly string[]): Promise<void> {
    const { bus, subjects, sidecar, instance, token, clock, log } = this.#parts;
    this.#isAsking = true;
    const request: HomeRequest = { wire: REGISTRY_WIRE, sidecar, instance, token: token(), agents };
    const reply = await bus.request(subjects.ctl('home'), bytesOf(request), REQUEST_MS);
    this.#isAsking = false;
    const answer = reply.kind === 'ok' ? readAnswer(reply.message.data) : null;
    const whole = answer?.refused.find(({ agent }) => agent === '');
    if (answer === null || whole !== undefined) {
      const before = this.trouble;
      this.trouble =
        reply.kind === 'ok' ? (whole?.problems.join('; ') ?? 'the answer cannot be read') : replyWords(reply, 'the control plane');
      if (this.trouble !== before) log.warn({ why: this.trouble }, 'no statements that agents are at home here');
      this.#nextAskAt = clock.now() + Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures++, 10));
      return;
    }
    this.trouble = '';
    this.#failures = 0;
    if (answer.refused.length > 0) this.#retryAt = clock.now() + MAX_PAUSE_MS;
    for (const { agent, problems } of answer.refused) this.#refuse(agent, problems.join('; '));
    for (const agent of agents) if (typeof answer.homes[agent] === 'string') this.#take(agent, answer.homes[agent]);
    this.look();
  }

  #refuse(agent: string, why: string): void {
    if (this.#refused.get(agent) !== why)
      this.#parts.log.error(
        { agent, why },
        'the control plane does not say that this agent is at home here: its calls to other sidecars are refused',
      );
    this.#held.delete(agent);
    this.#refused.set(agent, why);
    this.#tell(agent);
  }

  #take(agent: string, text: string): void {
    const statement = readStatement(text);
    if (statement === null || (this.#trust !== null && 'why' in verifyToken(text, this.#trust, 'home'))) {
      // The key that it is signed with is on its way here.
      this.#nextAskAt = this.#parts.clock.now() + FIRST_PAUSE_MS;
      return;
    }
    this.#refused.delete(agent);
    this.#held.set(agent, statement);
    this.#isStale = true;
    void this.flush();
    this.#tell(agent);
  }

  #drop(agent: string): void {
    this.#held.delete(agent);
    this.#refused.delete(agent);
    this.#isStale = true;
    this.#tell(agent);
  }

  #tell(agent: string): void {
    const waiting = this.#waiting.get(agent);
    this.#waiting.delete(agent);
    if (waiting !== undefined) for (const done of waiting) done();
  }

  #load(): void {
    const [head, ...lines] = this.#parts.file?.read() ?? [];
    if (head !== this.#head()) return;
    for (const line of lines) {
      const at = line.indexOf(' ');
      const statement = readStatement(line.slice(at + 1));
      if (at > 0 && statement !== null) this.#held.set(line.slice(0, at), statement);
    }
  }

  async #write(): Promise<void> {
    const { file, log } = this.#parts;
    // What comes in one turn is written together.
    await Promise.resolve();
    this.#isStale = false;
    const trouble =
      file === null ? null : await file.write([this.#head(), ...[...this.#held].map(([agent, { text }]) => `${agent} ${text}`)]);
    this.#writing = null;
    if (trouble !== null) log.warn(`statements that agents are at home here: ${trouble}`);
  }

  #head(): string {
    return JSON.stringify({ format: FORMAT, kind: 'homes', env: this.#parts.env, sidecar: this.#parts.sidecar });
  }

  #nowSec(): number {
    return this.#parts.clock.wallMs() / 1_000;
  }
}

/** Its times, unverified: it is our own, and whoever gets it judges it. */
function readStatement(text: string): Statement | null {
  const payload = openCompact(text, MAX_TOKEN_CHARS)?.payload;
  const iat = payload?.['iat'];
  const exp = payload?.['exp'];
  return typeof iat === 'number' && typeof exp === 'number' ? { text, renewAtSec: (iat + exp) / 2, endsAtSec: exp } : null;
}

function readAnswer(data: Uint8Array): HomeAnswer | null {
  try {
    const answer = JSON.parse(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8')) as HomeAnswer;
    const isAnswer =
      answer.wire === REGISTRY_WIRE && typeof answer.homes === 'object' && answer.homes !== null && Array.isArray(answer.refused);
    return isAnswer ? answer : null;
  } catch {
    return null;
  }
}
