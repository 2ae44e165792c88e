/**
 * The callers of a drill: one lane for each sidecar, as an agent beside it would call, all at a fixed rate whatever the
 * answers do. A call is sent again only when nothing can have come of it, since its connection was refused; everything else
 * that is not a full answer has failed.
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
  /** Since the start of the generator. */
  readonly dueMs: number;
  readonly endedMs: number;
  /** From when it was due, so that waiting counts. */
  readonly tookMs: number;
  readonly lane: number;
  readonly provider: string;
  /** How often its connection was refused before one was made. */
  readonly refusals: number;
  readonly attempts: number;
}

export interface Failure {
  readonly dueMs: number;
  readonly lane: string;
  readonly words: string;
}

/** Between two tries of a call whose connection was refused. */
const AGAIN_MS = 100;
/** A call that is refused for so long has failed: a sidecar is back within seconds. */
const GIVE_UP_MS = 20_000;
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

  /** What is due from now on waits; resolves when nothing is under way. */
  async hold(): Promise<void> {
    this.#isHeld = true;
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
  readonly #lanes: readonly LaneState[];
  readonly #targets: readonly string[];
  readonly #underWay = new Set<Promise<void>>();
  readonly #running: Promise<void>;
  #isEnding = false;
  #ended: Promise<void> | null = null;
  #startedAt = performance.now();

  /** Starts at once; lanes and targets take turns. */
  constructor(lanes: readonly Lane[], targets: readonly string[], ratePerSec: number) {
    this.#lanes = lanes.map((lane, i) => new LaneState(lane, i));
    this.#targets = targets;
    this.#running = this.#run(1_000 / ratePerSec);
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
    const state = this.#lanes.find((each) => each.lane.name === lane);
    if (state === undefined) throw new Error(`there is no lane ${lane}`);
    await state.hold();
    await act();
    state.release();
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

  async #run(everyMs: number): Promise<void> {
    for (let sent = 0; !this.#isEnding; ) {
      for (; sent * everyMs <= this.nowMs; sent++) this.#take(sent, sent * everyMs);
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
    for (let refusals = 0; ; refusals++) {
      await lane.turn();
      const outcome = await send(lane, target, n);
      lane.ended();
      if (outcome !== REFUSED) {
        const endedMs = this.nowMs;
        if (typeof outcome === 'string') this.failures.push({ dueMs, lane: lane.lane.name, words: `${target}: ${outcome}` });
        else this.calls.push({ dueMs, endedMs, tookMs: endedMs - dueMs, lane: lane.index, refusals, ...outcome });
        return;
      }
      this.reconnects++;
      if (this.nowMs - dueMs > GIVE_UP_MS) {
        this.failures.push({
          dueMs,
          lane: lane.lane.name,
          words: `${target}: its sidecar refused connections for ${GIVE_UP_MS / 1_000} s`,
        });
        return;
      }
      await sleep(AGAIN_MS);
    }
  }
}

const REFUSED = Symbol('refused');

interface Answer {
  readonly code: number;
  readonly degraded: boolean;
  readonly data: { readonly asked?: unknown; readonly by?: unknown } | null;
  readonly provider: string | null;
  readonly attempts: readonly unknown[];
  readonly error?: { readonly detail: string } | null;
}

/** The answer, `REFUSED`, or why it is no full answer. */
async function send(
  lane: LaneState,
  target: string,
  n: number,
): Promise<{ readonly provider: string; readonly attempts: number } | typeof REFUSED | string> {
  try {
    const { statusCode, body } = await lane.pool.request({
      method: 'POST',
      path: `/v1/invoke/${target}`,
      headers: { authorization: `Bearer ${lane.lane.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ n }),
    });
    const answer = (await body.json()) as Answer;
    if (statusCode !== 200 || answer.code !== 0) return `${answer.code} ${answer.error?.detail ?? ''} (HTTP ${statusCode})`;
    if (answer.degraded) return 'degraded';
    if (answer.data?.asked !== n) return `the answer to another call: ${JSON.stringify(answer.data).slice(0, 100)}`;
    if (answer.data.by !== answer.provider) return `answered by ${String(answer.data.by)}, said to be ${answer.provider}`;
    return { provider: answer.provider ?? '', attempts: answer.attempts.length };
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === 'ECONNREFUSED' ? REFUSED : `${code ?? ''} ${message}`.trim();
  }
}
