/**
 * Calls that go on while something happens: at a steady pace, in conversations, whatever the answers do. Everything that
 * came back is kept, so that what happened in between can be counted instead of believed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Result } from './client.ts';

export interface Served {
  /** When it was asked, by `performance.now()`. */
  readonly atMs: number;
  readonly tookMs: number;
  readonly session: string;
  readonly provider: string | null;
  readonly version: string | null;
  readonly attempts: number;
}

/** Makes the call of one conversation. */
export type Ask = (session: string) => Promise<Result>;

export class Traffic {
  readonly served: Served[] = [];
  /** One sentence each. */
  readonly failed: string[] = [];
  readonly #ask: Ask;
  readonly #sessions: readonly string[];
  readonly #underWay = new Set<Promise<void>>();
  readonly #running: Promise<void>;
  #isEnding = false;

  /** Starts at once; conversations take turns. */
  constructor(ask: Ask, sessions: readonly string[], perSec: number) {
    this.#ask = ask;
    this.#sessions = sessions;
    this.#running = this.#run(1_000 / perSec);
  }

  get calls(): number {
    return this.served.length + this.failed.length;
  }

  /** Asks no more and waits for the last answer. */
  async end(): Promise<void> {
    this.#isEnding = true;
    await this.#running;
    await Promise.all(this.#underWay);
  }

  /** Those of one call after that moment, by `performance.now()`. */
  since(atMs: number): Served[] {
    return this.served.filter((one) => one.atMs >= atMs);
  }

  get slowestMs(): number {
    return this.served.reduce((slowest, one) => Math.max(slowest, one.tookMs), 0);
  }

  async #run(everyMs: number): Promise<void> {
    const startedAt = performance.now();
    for (let asked = 0; !this.#isEnding; ) {
      while (startedAt + asked * everyMs <= performance.now()) this.#one(this.#sessions[asked++ % this.#sessions.length] as string);
      await sleep(Math.max(1, startedAt + asked * everyMs - performance.now()));
    }
  }

  #one(session: string): void {
    const atMs = performance.now();
    const call = this.#ask(session).then(
      (result) => {
        const { code, provider, version, degraded, attempts } = result;
        if (code === 0 && !degraded)
          this.served.push({ atMs, tookMs: performance.now() - atMs, session, provider, version, attempts: attempts.length });
        else this.failed.push(`${session}: ${code} ${result.error?.detail ?? (degraded ? 'degraded' : '')}`);
      },
      (error: unknown) => void this.failed.push(`${session}: ${String(error)}`),
    );
    this.#underWay.add(call);
    void call.finally(() => this.#underWay.delete(call));
  }
}

/** Who served each conversation, in the order in which they came. */
export function ownersOf(served: readonly Served[]): Map<string, string[]> {
  const owners = new Map<string, string[]>();
  for (const { session, provider } of served) {
    const seen = owners.get(session) ?? [];
    if (provider !== null && seen.at(-1) !== provider) seen.push(provider);
    owners.set(session, seen);
  }
  return owners;
}
