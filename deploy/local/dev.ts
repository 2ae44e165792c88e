/** `make dev`: the same team as in the demo, registered at a control plane, up until Ctrl-C, with all that is needed to try it by hand. */
import { openedShop } from './dev-shop.ts';
import { teamText } from './files.ts';
import { getNats } from './nats-server.ts';
import { RegisteredTeam } from './registered-team.ts';
import { FRONT, ORDER_B1 } from './roster.ts';
import { stay } from './stay.ts';

/** A task that is given away, and where what becomes of it can be read. */
function howToCast(team: RegisteredTeam): string {
  const { place } = team.seat(FRONT);
  const url = `http://${place.listen}`;
  const auth = `-H 'authorization: Bearer ${place.token}'`;
  return `Give a task away instead of waiting for it: 202 says where it is kept, the inbox what became of it, reachctl what waits and for whom:

  curl -s ${auth} -H 'content-type: application/json' -d '{"facts":{}}' '${url}/v1/cast/nlp.reply.write'
  curl -s ${auth} '${url}/v1/inbox?wait=5s'
  npx reachctl pools list
`;
}

await stay(
  new RegisteredTeam(teamText(), (_folder, say) => getNats(say)),
  async (team) => `${await openedShop(team)}
Look at it in a browser: the console says first what is wrong, and has the red button. Sign in with the token below.

  ${team.registry.url}/console/

Speak to the control plane (NATS: ${team.registry.nats.url}); reachctl is at node_modules/.bin/reachctl:

  export REACH_SERVER=${team.registry.url} REACH_TOKEN=${team.registry.token}
  npx reachctl providers list
  npx reachctl fleet
  npx reachctl providers drain ${ORDER_B1.agentId}        and back: npx reachctl providers restore ${ORDER_B1.agentId}
  npx reachctl explain 'crm.order.query@^2.0' --sidecar front --as crm.front.f1 --header x-session:me

${howToCast(team)}
The operators' policies; edit a copy and apply it, break it and it is refused with line and column:

  npx reachctl apply ${team.policiesFile}
`,
);
