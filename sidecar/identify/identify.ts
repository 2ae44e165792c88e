/**
 * Who is calling. A caller shows a token; a peer sidecar shows its own and names the agent it vouches for. Static tokens
 * from the configuration stand behind the same interface that issued credentials will use: nothing after this stage
 * knows the difference. A token is looked up whole and never logged.
 */
import { isAgentId } from '../../proto/language/names.ts';
import { Code } from '../../proto/wire/codes.ts';
import { Header } from '../../proto/wire/headers.ts';
import { type Call, headerOf } from '../call/call.ts';
import { Principal } from '../call/principal.ts';
import { passing, refusing, Verdict } from '../call/verdict.ts';

export interface Identities {
  /** The agent behind an `Authorization` header; null when it is not known. An absent header is for the development setting `anonymous`. */
  caller(authorization: string | undefined): Principal | null;
  /** The name of the sidecar behind an `Authorization` header on the mesh port, or null. */
  peer(authorization: string | undefined): string | null;
}

const known = passing('identify', 'known', '{a} is calling');
const vouched = passing('identify', 'vouched', '{a} is calling, vouched for by sidecar {b}');
const stamped = passing('identify', 'stamped', '{a} sent this message, stamped by sidecar {b}');
const missing = refusing('identify', 'no_credential', Code.unauthenticated, 'no credential: send Authorization: Bearer <token>');
const unknown = refusing('identify', 'unknown_credential', Code.unauthenticated, 'the credential is not known to this sidecar');
const strangePeer = refusing('identify', 'unknown_peer', Code.unauthenticated, "the sidecar's credential is not known here");
const nobody = refusing('identify', 'no_caller', Code.unauthenticated, 'the peer sidecar named no calling agent (team.role.id)');

/** The caller's end. */
export function identify(identities: Identities, call: Call): Verdict {
  if (call.principal === null) {
    const authorization = call.headers.authorization;
    call.principal = identities.caller(typeof authorization === 'string' ? authorization : undefined);
    if (call.principal === null) return new Verdict(authorization === undefined ? missing : unknown);
  }
  return new Verdict(known, call.principal.agent);
}

/**
 * The provider's end: the peer's credential counts, and the agent it names is taken from it. A message has no peer: who may
 * write to the sender's subject is decided by the bus, and delivery has set the principal from what stands there.
 */
export function identifyPeer(identities: Identities, call: Call): Verdict {
  if (call.way === 'message' && call.principal !== null) return new Verdict(stamped, call.principal.agent, call.principal.via);
  const authorization = call.headers.authorization;
  const peer = identities.peer(typeof authorization === 'string' ? authorization : undefined);
  if (peer === null) return new Verdict(strangePeer);
  const agent = headerOf(call, Header.caller);
  // An ACL that names a team must not let in whoever is no agent at all.
  if (agent === null || !isAgentId(agent)) return new Verdict(nobody);
  call.principal = new Principal(agent, peer);
  return new Verdict(vouched, agent, peer);
}
