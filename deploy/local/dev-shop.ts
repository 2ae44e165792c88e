/** What `make dev` says about the shop's other systems: how to call each, and how to call in by other ways than HTTP. */
import type { RegisteredTeam } from './registered-team.ts';
import { hasPython } from './python.ts';
import { FRONT } from './roster.ts';
import { ORDERS, PARCELS, SPEAK, SYSTEMS, TEXT } from './systems.ts';

/** Starts them when that is possible; the team is of use without them. */
export async function openedShop(team: RegisteredTeam): Promise<string> {
  if (!hasPython())
    return "The shop's other systems are left out: most are written in Python, and there is none to run them (make python).\n";
  try {
    await team.openShop();
  } catch (error) {
    return `The shop's other systems did not start: ${(error as Error).message}\n`;
  }
  return howToCall(team);
}

function howToCall(team: RegisteredTeam): string {
  const { place } = team.seat(FRONT);
  const url = `http://${place.listen}`;
  const post = (payload: unknown): string =>
    `-H 'authorization: Bearer ${place.token}' -H 'content-type: application/json' -d '${JSON.stringify(payload)}'`;
  const calls = SYSTEMS.map(
    ({ protocol, what, capability, payload }) => `  # ${protocol}: ${what}\n  curl -s ${post(payload)} '${url}/v1/invoke/${capability}'`,
  );
  const rpc = { jsonrpc: '2.0', id: 1, method: ORDERS.capability, params: ORDERS.payload };
  const grpc = { capability: PARCELS.capability, params: PARCELS.payload };
  const speech = { text: 'Your order 1042 ships tomorrow.', pause_ms: 300 };
  return `The shop's other systems, which nobody wrote for Agent-Reach; each is called in its own protocol (${team.shop.settingsFile}):

${calls.join('\n')}

A reply word by word, and the same calls by JSON-RPC, by gRPC, and by a program that knows of nothing but its proxy:

  curl -sN -H 'accept: text/event-stream' ${post(speech)} '${url}/v1/stream/${SPEAK}'
  curl -s ${post(rpc)} '${url}/rpc'
  grpcurl -plaintext -H 'authorization: Bearer ${place.token}' -d '${JSON.stringify(grpc)}' ${place.grpc} agentreach.v1.Reach/Invoke
  http_proxy=http://${FRONT.agentId}:${place.token}@${place.listen} curl -s -H 'content-type: application/json' -d '${JSON.stringify(TEXT.payload)}' http://${TEXT.capability}/sentiment
`;
}
