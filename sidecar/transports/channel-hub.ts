/**
 * The agents that have dialled in to this sidecar, by agent id. The way in (`accept/channel`) puts a connection here when it
 * is authenticated and takes it out when it is gone; the adapter (`channel.ts`) asks for it when a call goes out. One
 * connection an agent: a newer one takes the place of the older.
 */
import type { Reply } from '../call/reply.ts';
import type { Exchange } from './transport.ts';

/** One live connection, as the way out sees it. */
export interface ChannelLink {
  readonly agentId: string;
  /** It has ended, or another one has taken its place. */
  readonly isOver: boolean;
  /**
   * Sends one call to the agent. `whole` collects the answer up to `maxResponseBytes`; `stream` settles with a head and a
   * BodySource; `head` with the first sign that the agent has it. Settles always; `exchange.abort` is set while it can stop.
   * @param ask method and beginning of the params, as JSON: what is the same in every such call.
   */
  send(exchange: Exchange, ask: string, mode: 'whole' | 'stream' | 'head'): Promise<Reply>;
}

export class ChannelHub {
  readonly #links = new Map<string, ChannelLink>();
  /** Told after an agent has come (`true`) or gone; set by the composition root. */
  onChange: (agentId: string, isHere: boolean) => void = () => {};

  get size(): number {
    return this.#links.size;
  }

  of(agentId: string): ChannelLink | null {
    return this.#links.get(agentId) ?? null;
  }

  /** The connection whose place it takes, which the caller must end; null = there was none. */
  attach(link: ChannelLink): ChannelLink | null {
    const former = this.#links.get(link.agentId) ?? null;
    this.#links.set(link.agentId, link);
    if (former === null) this.onChange(link.agentId, true);
    return former;
  }

  /** Harmless for a connection that has been replaced: the agent is still here by the newer one. */
  detach(link: ChannelLink): void {
    if (this.#links.get(link.agentId) !== link) return;
    this.#links.delete(link.agentId);
    this.onChange(link.agentId, false);
  }
}
