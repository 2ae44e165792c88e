/** The agents that live in this process: an embedded sidecar calls them as functions. Filled by `embedded.ts`. */
import type { Reply } from '../call/reply.ts';
import type { Exchange } from './transport.ts';

/** One agent in this process; settles always, whatever its functions do. */
export interface LocalAgent {
  readonly agentId: string;
  send(exchange: Exchange, mode: 'whole' | 'stream' | 'head'): Promise<Reply>;
}

export class LocalHub {
  readonly #agents = new Map<string, LocalAgent>();
  /** Told after an agent has come (`true`) or gone; set by the composition root. */
  onChange: (agentId: string, isHere: boolean) => void = () => {};

  of(agentId: string): LocalAgent | null {
    return this.#agents.get(agentId) ?? null;
  }

  set(agent: LocalAgent): void {
    this.#agents.set(agent.agentId, agent);
    this.onChange(agent.agentId, true);
  }

  delete(agentId: string): void {
    if (this.#agents.delete(agentId)) this.onChange(agentId, false);
  }
}
