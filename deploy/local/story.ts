/** How the demo talks: one heading a scene, short lines with the time since the start, and checks that say what was expected. */
import type { Result } from './client.ts';

export class Storyteller {
  readonly #startedAt = performance.now();
  #out: (line: string) => void;
  /** Everything that did not come out as expected, one sentence each. */
  readonly failures: string[] = [];

  constructor(out: (line: string) => void) {
    this.#out = out;
  }

  /** Says no more: the team is being taken down, and what breaks off now is no news. */
  fallSilent(): void {
    this.#out = () => {};
  }

  get elapsedMs(): number {
    return performance.now() - this.#startedAt;
  }

  heading(title: string): void {
    this.#out(`\n== ${title}`);
  }

  say(text: string): void {
    this.#out(`${(this.elapsedMs / 1_000).toFixed(1).padStart(6)} s  ${text}`);
  }

  /** The reasons of one call, from its decision trace: only the stages that tell something here. */
  reasons(result: Result, stages: readonly string[]): void {
    for (const line of result.decision ?? []) {
      if (stages.includes(line.stage))
        this.#out(`            ${line.at_ms.toFixed(1).padStart(7)} ms  ${line.stage.padEnd(9)} ${line.words}`);
    }
  }

  /** A measured fact that must hold; gives whether it does, and prints expected and got when it does not. */
  check(what: string, got: unknown, expected: string, holds: boolean): boolean {
    if (!holds) {
      const words = `${what}: expected ${expected}, got ${short(JSON.stringify(got) ?? 'nothing')}`;
      this.failures.push(words);
      this.#out(`   !!     ${words}`);
    }
    return holds;
  }

  /** `check` for a plain value. */
  equal(what: string, got: unknown, expected: unknown): boolean {
    return this.check(what, got, JSON.stringify(expected), JSON.stringify(got) === JSON.stringify(expected));
  }
}

const SHOWN_CHARS = 400;

function short(text: string): string {
  return text.length <= SHOWN_CHARS ? text : `${text.slice(0, SHOWN_CHARS)}… (${text.length} characters)`;
}
