/** (a) A conversation stays with one agent, across capabilities, also after a third one joins; newcomers use all three. */
import { inParallel, type Result } from '../client.ts';
import { ORDER_A2 } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import type { Team } from '../team.ts';
import { callFrom, type Counts, names, outcome, spread } from './scene.ts';

const SESSIONS = 100;
const WIDTH = 12;

/** Asks for the order and gives a refund, in each conversation; who answered both. */
async function talk(team: Team, tell: Storyteller, sessions: readonly string[], round: string): Promise<Map<string, string>> {
  const owners = new Map<string, string>();
  const torn: string[] = [];
  const failed: string[] = [];
  await inParallel(sessions, WIDTH, async (session) => {
    const query = await callFrom(team, 'crm.order.query@^2.0', { order: '1042' }, session);
    const refund = await callFrom(team, 'crm.refund.apply', { refund_id: `${session}-${round}` }, session);
    for (const result of [query, refund]) if (result.code !== 0) failed.push(outcome(result));
    if (query.provider !== refund.provider) torn.push(`${session}: ${query.provider} then ${refund.provider}`);
    owners.set(session, query.provider ?? '-');
  });
  tell.equal('calls that failed', failed, []);
  tell.equal('conversations torn between two agents', torn, []);
  return owners;
}

export async function affinity(team: Team, tell: Storyteller): Promise<Counts> {
  const old = names('talk', SESSIONS);
  const before = await talk(team, tell, old, 'first');
  tell.say(`${SESSIONS} conversations asked for an order, then for a refund: each met one agent for both (${spread(before.values())})`);

  tell.say(`${ORDER_A2.agentId} joins: ${await team.join(ORDER_A2)}`);

  const after = await talk(team, tell, old, 'second');
  const moved = old.filter((session) => before.get(session) !== after.get(session));
  tell.say(`the same ${SESSIONS} conversations again: ${moved.length} moved`);
  tell.equal('conversations that moved', moved, []);
  tell.reasons(await sample(team, old[0] as string), ['choose']);

  const fresh = names('newcomer', SESSIONS);
  const newcomers = await talk(team, tell, fresh, 'first');
  const atThird = [...newcomers.values()].filter((owner) => owner === ORDER_A2.agentId).length;
  tell.say(`${SESSIONS} new conversations: ${spread(newcomers.values())}`);
  tell.check(`newcomers at ${ORDER_A2.agentId}`, atThird, 'some', atThird > 0);
  return { conversations: 2 * SESSIONS, moved: moved.length, newcomers_at_third: atThird };
}

function sample(team: Team, session: string): Promise<Result> {
  return callFrom(team, 'crm.order.query@^2.0', { order: '1042' }, session);
}
