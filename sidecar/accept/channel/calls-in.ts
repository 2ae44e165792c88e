/** The calls that an agent has under way on one connection. */
import type { AgentCall } from './agent-call.ts';

export class CallsIn {
  readonly #calls: AgentCall[] = [];
  #lastStream = 0;

  get count(): number {
    return this.#calls.length;
  }

  nextStream(): number {
    this.#lastStream = this.#lastStream >= 0xffff_ffff ? 1 : this.#lastStream + 1;
    return this.#lastStream;
  }

  add(call: AgentCall): void {
    this.#calls.push(call);
  }

  byKey(key: string): AgentCall | null {
    for (const call of this.#calls) if (call.key === key) return call;
    return null;
  }

  byStream(stream: number): AgentCall | null {
    for (const call of this.#calls) if (call.stream === stream) return call;
    return null;
  }

  remove(call: AgentCall): void {
    const at = this.#calls.indexOf(call);
    if (at < 0) return;
    const last = this.#calls.pop() as AgentCall;
    if (last !== call) this.#calls[at] = last;
  }

  all(): AgentCall[] {
    return [...this.#calls];
  }
}
