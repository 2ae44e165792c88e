/** Keeps a team up until Ctrl-C: starts it, shows how to use it, says once when a process has ended by itself. */
import { KNOWLEDGE, FRONT, TEAM } from './roster.ts';
import { onLeaving } from './signals.ts';
import type { Team } from './team.ts';

const say = (line: string): void => void process.stdout.write(`${line}\n`);

/** @param more what this kind of team has to show besides. */
export async function stay<T extends Team>(team: T, more: (team: T) => string | Promise<string>): Promise<void> {
  let leaving = false;
  onLeaving((status) => {
    leaving = true;
    say('\nstopping');
    // Ctrl-C is how this is meant to end.
    void team.stop().then((killed) => {
      if (killed.length > 0) say(`had to be killed: ${killed.join(', ')}`);
      process.exit(status === 130 ? 0 : status);
    });
  });
  let shown: string;
  try {
    await team.start(TEAM, say);
    shown = await more(team);
  } catch (error) {
    await team.stop();
    say(`the team did not start: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
    return;
  }
  say(howToCall(team));
  say(shown);
  say('Ctrl-C stops everything.');
  let said = '';
  setInterval(() => {
    const casualties = team.casualties() ?? '';
    if (!leaving && casualties !== said) say(`\n${casualties}`);
    said = casualties;
  }, 1_000);
}

function howToCall(team: Team): string {
  const agents = team.seats().map(({ place }) => `  ${place.member.agentId.padEnd(18)} http://${place.listen}   ${place.token}`);
  const { place } = team.seat(FRONT);
  const url = `http://${place.listen}`;
  const auth = `-H 'authorization: Bearer ${place.token}'`;
  return `The team is up. Agent, its sidecar, and the token that the agent shows to it:

${agents.join('\n')}

Call, as ${FRONT.agentId}:

  curl -s ${auth} -H 'content-type: application/json' -H 'x-session: me' -d '{"order":"1042"}' '${url}/v1/invoke/crm.order.query@^2.0'

Ask who would serve that, and why nobody else, without calling anybody:

  curl -s ${auth} -H 'x-session: me' '${url}/v1/explain/crm.order.query@^2.0'

Make ${KNOWLEDGE.agentId} slow and ask it eight times: its breaker opens, and the fallback answers:

  curl -s -d '{"delay_ms":500}' '${team.seat(KNOWLEDGE).place.agent}/_control'; for i in 1 2 3 4 5 6 7 8; do curl -s ${auth} -H 'content-type: application/json' -d '{"question":"why?"}' '${url}/v1/invoke/kb.article.search'; echo; done
`;
}
