/** Credentials from the sidecar's own configuration: a fixed list of tokens, one agent each. */
import type { PeerCertificate } from '../call/peer.ts';
import { Principal } from '../call/principal.ts';
import type { Identities } from './identify.ts';

const PREFIX = 'Bearer ';

export class StaticTokens implements Identities {
  readonly #callers = new Map<string, Principal>();
  readonly #peers = new Map<string, string>();
  readonly #anonymous: Principal | null;
  readonly arriving = null;

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

  callerProblem(_authorization: string): string {
    return 'it is not known here';
  }

  peer(certificate: PeerCertificate | null, authorization: string | undefined): string | null {
    if (certificate !== null) return certificate.name;
    return authorization === undefined ? null : (this.#peers.get(authorization) ?? null);
  }

  /** Without issued identities the bus's word is enough. */
  stamped(): null {
    return null;
  }

  /** Without issued identities a peer's word is enough. */
  vouched(agent: string, peer: string): Principal {
    return new Principal(agent, peer);
  }
}
