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

  of(agentId: string): LocalAgent | null {
    return this.#agents.get(agentId) ?? null;
  }

  set(agent: LocalAgent): void {
    this.#agents.set(agent.agentId, agent);
  }

  delete(agentId: string): void {
    this.#agents.delete(agentId);
  }
}
