/**
 * The callers of a drill: one lane for each sidecar, as an agent beside it would call, all at a fixed rate whatever the
 * answers do. A call is sent again, to the same sidecar, when nothing can have come of it: its connection was refused, or the
 * sidecar said in so many words that it is stopping and took it not. With `repeatsCut` (calls that are idempotent) also when the
 * connection to the own sidecar ended before the answer: each such cut is kept, for the judge to say whether it may have been.
 * Everything else that is not a full answer has failed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'undici';

export interface Lane {
  readonly name: string;
  /** Base URL of the sidecar. */
  readonly url: string;
  readonly token: string;
}

export interface Call {
  readonly n: number;
  /** Since the start of the generator. */
  readonly dueMs: number;
  readonly endedMs: number;
  /** From when it was due, so that waiting counts. */
  readonly tookMs: number;
  readonly lane: number;
  readonly provider: string;
  /** How often its connection was refused before one was made. */
  readonly refusals: number;
  /** How often its connection ended before the answer. */
  readonly cuts: number;
  readonly attempts: number;
}

export interface Failure {
  readonly dueMs: number;
  readonly lane: string;
  readonly words: string;
}

/** A try that the own sidecar did not take, or did not answer. */
export interface Lapse {
  readonly n: number;
  readonly lane: string;
  /** Since the start of the generator. */
  readonly atMs: number;
  readonly words: string;
}

export interface GeneratorOptions {
  /** The calls are idempotent, and the callers know it. */
  readonly repeatsCut?: boolean;
  /** Number of the first one; default 0. */
  readonly from?: number;
}

/** Between two tries of a call whose connection was refused. */
const AGAIN_MS = 100;
/** A call that is refused for so long has failed: a sidecar is back within seconds. Counted in tries, so that its own wait for a turn is none. */
const GIVE_UP_MS = 20_000;
const MOST_AGAIN = GIVE_UP_MS / AGAIN_MS;
/** Calls that one agent has under way at most: well below what its sidecar admits (64 a capability), so that a backlog drains and is not refused. */
const MAX_IN_FLIGHT = 24;
const ANSWER_MS = 15_000;

class LaneState {
  readonly lane: Lane;
  readonly index: number;
  readonly pool: Pool;
  inFlight = 0;
  /** No new call is sent. */
  #isHeld = false;
  /** Calls that wait for their turn, oldest first. */
  readonly #waiting: (() => void)[] = [];
  #idle: (() => void) | null = null;

  constructor(lane: Lane, index: number) {
    this.lane = lane;
    this.index = index;
    this.pool = new Pool(lane.url, { connections: MAX_IN_FLIGHT, headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS });
  }

  /** Resolves when a call may be sent. */
  async turn(): Promise<void> {
    if (this.#isHeld || this.inFlight >= MAX_IN_FLIGHT) await new Promise<void>((go) => this.#waiting.push(go));
    else this.inFlight++;
  }

  ended(): void {
    this.inFlight--;
    this.#admit();
    if (this.inFlight === 0) this.#idle?.();
  }

  pause(): void {
    this.#isHeld = true;
  }

  /** What is due from now on waits; resolves when nothing is under way. */
  async hold(): Promise<void> {
    this.pause();
    if (this.inFlight > 0)
      await new Promise<void>((done) => {
        this.#idle = done;
      });
    this.#idle = null;
  }

  release(): void {
    this.#isHeld = false;
    this.#admit();
  }

  #admit(): void {
    while (!this.#isHeld && this.inFlight < MAX_IN_FLIGHT && this.#waiting.length > 0) {
      this.inFlight++;
      this.#waiting.shift()?.();
    }
  }
}

export class Generator {
  readonly calls: Call[] = [];
  readonly failures: Failure[] = [];
  /** Connections that were refused. */
  reconnects = 0;
  /** These, and tries that a stopping sidecar turned away; only with `repeatsCut`. */
  readonly turnedAway: Lapse[] = [];
  readonly cuts: Lapse[] = [];
  readonly #repeatsCut: boolean;
  readonly #lanes: readonly LaneState[];
  readonly #targets: readonly string[];
  readonly #underWay = new Set<Promise<void>>();
  readonly #running: Promise<void>;
  #isEnding = false;
  #ended: Promise<void> | null = null;
  #startedAt = performance.now();

  /** Starts at once; lanes and targets take turns. */
  constructor(lanes: readonly Lane[], targets: readonly string[], ratePerSec: number, options: GeneratorOptions = {}) {
    this.#repeatsCut = options.repeatsCut === true;
    this.#lanes = lanes.map((lane, i) => new LaneState(lane, i));
    this.#targets = targets;
    this.#running = this.#run(1_000 / ratePerSec, options.from ?? 0);
  }

  /** Since its start. */
  get nowMs(): number {
    return performance.now() - this.#startedAt;
  }

  get inFlight(): number {
    return this.#lanes.reduce((sum, lane) => sum + lane.inFlight, 0);
  }

  /**
   * Waits until nothing is under way in one lane, does something, and lets the lane go on. An agent whose own sidecar is
   * killed loses what it has under way there, whatever anybody does; a drill that is to show what can be kept has to
   * kill between two calls of that one agent. Nobody else's calls are spared.
   */
  async between(lane: string, act: () => Promise<void>): Promise<void> {
    const state = this.#state(lane);
    await state.hold();
    await act();
    state.release();
  }

  /** What is due in this lane waits until `resume`; what is under way goes on. */
  pause(lane: string): void {
    this.#state(lane).pause();
  }

  resume(lane: string): void {
    this.#state(lane).release();
  }

  #state(lane: string): LaneState {
    const state = this.#lanes.find((each) => each.lane.name === lane);
    if (state === undefined) throw new Error(`there is no lane ${lane}`);
    return state;
  }

  /** Asks no more and waits for the last answer. Once, however often it is asked. */
  end(): Promise<void> {
    this.#ended ??= this.#end();
    return this.#ended;
  }

  async #end(): Promise<void> {
    this.#isEnding = true;
    await this.#running;
    await Promise.all(this.#underWay);
    await Promise.all(this.#lanes.map(({ pool }) => pool.close()));
  }

  async #run(everyMs: number, from: number): Promise<void> {
    for (let sent = 0; !this.#isEnding; ) {
      for (; sent * everyMs <= this.nowMs; sent++) this.#take(from + sent, sent * everyMs);
      await sleep(1);
    }
  }

  #take(n: number, dueMs: number): void {
    const lane = this.#lanes[n % this.#lanes.length] as LaneState;
    const target = this.#targets[Math.floor(n / this.#lanes.length) % this.#targets.length] as string;
    const call = this.#one(n, dueMs, lane, target);
    this.#underWay.add(call);
    void call.finally(() => this.#underWay.delete(call));
  }

  async #one(n: number, dueMs: number, lane: LaneState, target: string): Promise<void> {
    const { name } = lane.lane;
    let refusals = 0;
    let cuts = 0;
    for (;;) {
      await lane.turn();
      const outcome = await send(lane, target, n);
      lane.ended();
      const isCut = outcome instanceof Cut && this.#repeatsCut;
      if (outcome !== REFUSED && !isCut && !(outcome instanceof Stopping && this.#repeatsCut)) {
        const endedMs = this.nowMs;
        if ('provider' in outcome)
          this.calls.push({ n, dueMs, endedMs, tookMs: endedMs - dueMs, lane: lane.index, refusals, cuts, ...outcome });
        else this.failures.push({ dueMs, lane: name, words: `${target}: ${outcome.words}` });
        return;
      }
      if (isCut) {
        cuts++;
        this.cuts.push({ n, lane: name, atMs: this.nowMs, words: outcome.words });
      } else {
        refusals++;
        this.reconnects++;
        if (this.#repeatsCut) this.turnedAway.push({ n, lane: name, atMs: this.nowMs, words: outcome.words });
      }
      if (refusals + cuts > MOST_AGAIN) {
        this.failures.push({ dueMs, lane: name, words: `${target}: its sidecar took no call for ${GIVE_UP_MS / 1_000} s` });
        return;
      }
      await sleep(AGAIN_MS);
    }
  }
}

/** No full answer, in words. */
class Failed {
  readonly words: string;
  constructor(words: string) {
    this.words = words;
  }
}

/** The connection ended before the answer, or within it. */
class Cut extends Failed {}

/** The own sidecar took it not, since it stops. */
class Stopping extends Failed {}

const REFUSED = new Failed('its connection was refused');
const CUTS: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);
/** `blocked_by_operator`: what a sidecar says that stops. */
const STOPPING_CODE = 2006;

interface Answer {
  readonly code: number;
  readonly degraded: boolean;
  readonly data: { readonly asked?: unknown; readonly by?: unknown } | null;
  readonly provider: string | null;
  readonly attempts: readonly unknown[];
  readonly error?: { readonly detail: string } | null;
  /** Of a problem document. */
  readonly detail?: string;
}

/** The answer, or why it is no full one. */
async function send(
  lane: LaneState,
  target: string,
  n: number,
): Promise<{ readonly provider: string; readonly attempts: number } | Failed> {
  try {
    const { statusCode, body } = await lane.pool.request({
      method: 'POST',
      path: `/v1/invoke/${target}`,
      headers: { authorization: `Bearer ${lane.lane.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ n }),
    });
    const answer = (await body.json()) as Answer;
    if (statusCode !== 200 || answer.code !== 0) return refused(answer, statusCode);
    if (answer.degraded) return new Failed('degraded');
    if (answer.data?.asked !== n) return new Failed(`the answer to another call: ${JSON.stringify(answer.data).slice(0, 100)}`);
    if (answer.data.by !== answer.provider) return new Failed(`answered by ${String(answer.data.by)}, said to be ${answer.provider}`);
    return { provider: answer.provider ?? '', attempts: answer.attempts.length };
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    if (code === 'ECONNREFUSED') return REFUSED;
    const words = `${code} ${message}`.trim();
    return CUTS.has(code) ? new Cut(words) : new Failed(words);
  }
}

function refused(answer: Answer, statusCode: number): Failed {
  const words = `${answer.code} ${answer.error?.detail ?? answer.detail ?? ''} (HTTP ${statusCode})`;
  const isTaken = (answer.attempts?.length ?? 0) > 0;
  return statusCode === 503 && answer.code === STOPPING_CODE && !isTaken && words.includes('stopping')
    ? new Stopping(words)
    : new Failed(words);
}
