/**
 * A real provider that counts what reaches it, and the one way in which an attempt is judged: it was refused with the code
 * that the documents promise, and the provider has noticed nothing. Without the second an attack that is answered with an
 * error after the work was done would pass for a defence.
 */
import type { Test } from 'tap';
import { REACHED_NOTHING } from './words.ts';
import { Code, codeEntry } from '../../proto/wire/codes.ts';
import { TestAgent } from '../support/agent.ts';

/** How an attempt ended, as the attacker sees it. */
export interface Outcome {
  /** Of HTTP; absent = it was another way in. */
  readonly status?: number;
  /** Ours, of whatever form the answer was; null = the answer carries none. A word for what is not of our table (a NATS error). */
  readonly code: number | string | null;
  readonly detail?: string;
}

export interface Expected {
  readonly code: Code | string | null;
  /** Absent = that of the code in the table of errors. */
  readonly status?: number;
  readonly detail?: RegExp;
}

interface Teardown {
  teardown(end: () => void | Promise<void>): unknown;
}

/** Work that was let in by mistake arrives within this. */
const LATE_MS = 15;

export class ProviderWatch {
  readonly agent: TestAgent;

  static async start(t: Teardown, name = 'watched'): Promise<ProviderWatch> {
    const agent = await TestAgent.listen(name);
    t.teardown(() => agent.close());
    return new ProviderWatch(agent);
  }

  private constructor(agent: TestAgent) {
    this.agent = agent;
  }

  get url(): string {
    return this.agent.url;
  }

  /** Requests that have reached the provider, whole or not. */
  get count(): number {
    return this.agent.begun;
  }

  /** The attempt is refused as expected, and nothing has reached the provider. Several of one kind may stand in one test. */
  async refused(t: Test, attempt: () => Promise<Outcome>, expected: Code | string | Expected, what = ''): Promise<Outcome> {
    const before = this.count;
    const wanted: Expected = typeof expected === 'object' ? expected : { code: expected };
    const outcome = await attempt();
    const on = what === '' ? '' : `: ${what}`;
    t.equal(outcome.code, wanted.code, `refused with its code${on}${outcome.detail === undefined ? '' : ` (${outcome.detail})`}`);
    const status = wanted.status ?? (typeof wanted.code === 'number' ? codeEntry(wanted.code).http : undefined);
    if (outcome.status !== undefined && status !== undefined) t.equal(outcome.status, status, `and its status${on}`);
    if (wanted.detail !== undefined) t.match(outcome.detail ?? '', wanted.detail, `and words that say why${on}`);
    await this.untouched(t, before, on);
    return outcome;
  }

  /** For an attempt whose end is judged by the test itself. @param before `count` before it */
  async untouched(t: Test, before: number, on = ''): Promise<void> {
    await new Promise((done) => setTimeout(done, LATE_MS));
    t.equal(this.count - before, 0, `${REACHED_NOTHING}${on}`);
  }
}

/** That the watch itself works, and that the way is open for whoever may go it: else every refusal would prove nothing. */
export async function reaches(t: Test, watch: ProviderWatch, call: () => Promise<Outcome>, what = 'a rightful call'): Promise<void> {
  const before = watch.count;
  const outcome = await call();
  t.equal(outcome.code, Code.ok, `${what} is answered${outcome.detail === undefined ? '' : ` (${outcome.detail})`}`);
  t.equal(watch.count, before + 1, 'and has reached the provider once');
}
