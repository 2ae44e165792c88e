/** Credentials from the sidecar's own configuration: a fixed list of tokens, one agent each. */
import { Principal } from '../call/principal.ts';
import type { Identities } from './identify.ts';

const PREFIX = 'Bearer ';

export class StaticTokens implements Identities {
  readonly #callers = new Map<string, Principal>();
  readonly #peers = new Map<string, string>();
  readonly #anonymous: Principal | null;

  /**
   * @param callers agent and token of each caller.
   * @param peers name and token of each sidecar that may use the mesh port.
   * @param anonymous development only: the agent that a call without any credential counts as; null refuses it.
   */
  constructor(
    callers: Iterable<{ agent: string; token: string }>,
    peers: Iterable<{ name: string; token: string }>,
    anonymous: string | null,
  ) {
    for (const { agent, token } of callers) this.#callers.set(PREFIX + token, new Principal(agent));
    for (const { name, token } of peers) this.#peers.set(PREFIX + token, name);
    this.#anonymous = anonymous === null ? null : new Principal(anonymous);
  }

  caller(authorization: string | undefined): Principal | null {
    if (authorization === undefined) return this.#anonymous;
    return this.#callers.get(authorization) ?? null;
  }

  peer(authorization: string | undefined): string | null {
    return authorization === undefined ? null : (this.#peers.get(authorization) ?? null);
  }
}
