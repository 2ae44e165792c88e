/**
 * Who is calling. A caller shows a token; a peer sidecar shows its certificate or its token and names the agent it vouches
 * for. Static tokens from the configuration (`static-tokens.ts`) and issued credentials (`credentials.ts`) stand behind one
 * interface: nothing after this stage knows the difference. A token is looked up whole and never logged.
 */
import { isAgentId } from '../../proto/language/names.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { type Call, headerOf } from '../call/call.ts';
import type { PeerCertificate } from '../call/peer.ts';
import type { Principal } from '../call/principal.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';

export interface Identities {
  /** The agent behind an `Authorization` header; null when it is not known. An absent header is for the development setting `anonymous`. */
  caller(authorization: string | undefined): Principal | null;
  /** Why `caller` does not know it, for people; holds nothing of the credential. */
  callerProblem(authorization: string): string;
  /** The name of the sidecar behind a certificate, or else behind an `Authorization` header, on the mesh port; or null. */
  peer(certificate: PeerCertificate | null, authorization: string | undefined): string | null;
  /** The agent that a peer names, as it counts here; or why it is not believed. */
  vouched(agent: string, peer: string, statement: string | null): Principal | string;
  /**
   * Whether a message may be believed to be an agent's, by the statement that it carries: null = yes, `later` = that cannot be told
   * yet, else why not.
   *
   * @param via the sidecar that sent it, as the bus says
   * @param storedAtMs when the server stored it; null = that is not known, and the time is not looked at
   */
  stamped(agent: string, via: string, statement: string | null, storedAtMs: number | null): null | 'later' | { readonly why: string };
  /** Agents that have shown a credential for the first time and for whom the registry is being told; null = there are none at present. */
  readonly arriving: ReadonlyMap<string, Promise<void>> | null;
}

const known = passing('identify', 'known', '{a} is calling');
const vouched = passing('identify', 'vouched', '{a} is calling, vouched for by sidecar {b}');
const stamped = passing('identify', 'stamped', '{a} sent this message, stamped by sidecar {b}');
const unproved = refusing('identify', 'not_at_home', Code.unauthenticated, 'the sidecar {b} sends for {a}, which is not believed: {c}');
const blind = refusing(
  'identify',
  'no_keys',
  Code.none_healthy,
  'this sidecar has not been given the keys yet by which it knows who sends',
);
const missing = refusing('identify', 'no_credential', Code.unauthenticated, 'no credential: send Authorization: Bearer <token>');
const unknown = refusing('identify', 'unknown_credential', Code.unauthenticated, 'the credential does not count at this sidecar: {a}');
const strangePeer = refusing('identify', 'unknown_peer', Code.unauthenticated, "the sidecar's credential is not known here");
const nobody = refusing('identify', 'no_caller', Code.unauthenticated, 'the peer sidecar named no calling agent (team.role.id)');
const notAtHome = refusing('identify', 'not_at_home', Code.unauthenticated, 'the sidecar {b} calls for {a}, which is not believed: {c}');

/** The caller's end. */
export function identify(identities: Identities, call: Call): Verdict {
  if (call.principal === null) {
    const { authorization } = call.headers;
    call.principal = identities.caller(typeof authorization === 'string' ? authorization : undefined);
    if (call.principal === null) {
      if (authorization === undefined) return new Verdict(missing);
      return new Verdict(unknown, typeof authorization === 'string' ? identities.callerProblem(authorization) : 'it was sent twice');
    }
  }
  return new Verdict(known, call.principal.agent);
}

/**
 * The provider's end: the peer's credential counts, and the agent it names is taken from it. A message has no peer: which sidecar
 * wrote to the sender's subject is decided by the bus, and delivery has set the principal from what stands there; that the agent is
 * at home there is proved by the statement that the message carries.
 */
export function identifyPeer(identities: Identities, call: Call): Verdict {
  if (call.way === 'message' && call.principal !== null) {
    const { agent, via } = call.principal;
    const doubt = identities.stamped(agent, via ?? '', call.statement, call.storedAtMs);
    if (doubt === null) return new Verdict(stamped, agent, via);
    return doubt === 'later' ? new Verdict(blind) : new Verdict(unproved, agent, via, doubt.why);
  }
  const { authorization } = call.headers;
  const peer = identities.peer(call.peer, typeof authorization === 'string' ? authorization : undefined);
  if (peer === null) return new Verdict(strangePeer);
  const agent = headerOf(call, Header.caller);
  // An ACL that names a team must not let in whoever is no agent at all.
  if (agent === null || !isAgentId(agent)) return new Verdict(nobody);
  const principal = identities.vouched(agent, peer, headerOf(call, Header.home));
  if (typeof principal === 'string') return new Verdict(notAtHome, agent, peer, principal);
  call.principal = principal;
  return new Verdict(vouched, agent, principal.via);
}
