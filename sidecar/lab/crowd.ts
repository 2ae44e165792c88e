/**
 * Who makes the calls of a step: one caller, or a pool of them; and in which session. A session is one caller's, lasts for so many calls,
 * and then another one takes its place, so that there are always as many under way as was said.
 */
import { SeededRandom } from '../../base/random.ts';
import type { Traffic } from './scenario.ts';
import type { Words } from './templates.ts';

interface Session {
  readonly name: string;
  readonly caller: string;
  left: number;
}

export class Crowd {
  readonly #traffic: Traffic;
  readonly random: SeededRandom;
  readonly #sessions: Session[] = [];
  #made = 0;

  constructor(traffic: Traffic, seed: number) {
    this.#traffic = traffic;
    this.random = new SeededRandom(seed);
  }

  /** Of the call with this number. */
  next(n: number): Words {
    const { callers, sessions } = this.#traffic;
    if (sessions === null) {
      const caller = callers.length === 1 ? callers[0] : callers[Math.floor(this.random.next() * callers.length)];
      return { n, caller: caller as string, session: '', random: this.random };
    }
    const place = Math.floor(this.random.next() * sessions.count);
    let session = this.#sessions[place];
    if (session === undefined || session.left === 0) {
      const lasts = sessions.from + Math.floor(this.random.next() * (sessions.to - sessions.from + 1));
      const caller = callers[this.#made % callers.length] as string;
      session = { name: `session-${++this.#made}`, caller, left: lasts };
      this.#sessions[place] = session;
    }
    session.left--;
    return { n, caller: session.caller, session: session.name, random: this.random };
  }
}
