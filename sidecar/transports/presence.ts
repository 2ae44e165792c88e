/**
 * Agents that can be reached only while they are here: those inside this process, and those that dial in. One that is not here
 * is offline at once, without a call having to find out, and back as soon as it is. What offline means is for health and choice.
 */
import type { ProviderHealth } from '../health/provider.ts';
import type { Provider, Snapshot } from '../table/snapshot.ts';

/** What is needed of the hubs. */
interface Hub {
  of(agentId: string): object | null;
}

export class Presence {
  readonly #hubs: ReadonlyMap<string, Hub>;
  readonly #healthOf: (agentId: string) => ProviderHealth | null;
  readonly #current: () => Snapshot;

  /** @param hubs by endpoint type. */
  constructor(hubs: ReadonlyMap<string, Hub>, healthOf: (agentId: string) => ProviderHealth | null, current: () => Snapshot) {
    this.#hubs = hubs;
    this.#healthOf = healthOf;
    this.#current = current;
  }

  /** A table has been installed: a provider that it names anew counts as online until this was asked. */
  installed(): void {
    for (const provider of this.#current().providers.values()) this.#look(provider);
  }

  /** An agent has come or gone. */
  moved(agentId: string): void {
    const provider = this.#current().providers.get(agentId);
    if (provider !== undefined) this.#look(provider);
  }

  #look(provider: Provider): void {
    const hub = provider.reach === 'mesh' ? undefined : this.#hubs.get(provider.record.endpoint.type);
    const health = this.#healthOf(provider.agentId);
    // One that a hub has not to do with any more (it has got a port, or moved to another sidecar) is not kept offline by it.
    if (health !== null) health.offline = hub !== undefined && hub.of(provider.agentId) === null;
  }
}
