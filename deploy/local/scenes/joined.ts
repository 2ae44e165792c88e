/**
 * A third order desk takes the place of the one that was killed, which the operator has drained, while calls run: its sidecar
 * is started and registers it from its own file. No call fails, no conversation moves, and new conversations find it as soon
 * as it is in force.
 */
import { inParallel } from '../client.ts';
import type { RegisteredTeam } from '../registered-team.ts';
import { ORDER_A1, ORDER_A3 } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { ownersOf, Traffic } from '../traffic.ts';
import { callFrom, type Counts, names, outcome, spread } from './scene.ts';

const TALKS = 40;
const PER_SEC = 80;
const NEWCOMERS = 60;
const WIDTH = 12;
const TARGET = 'crm.order.query@^2.0';

export async function joined(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const talks = names('running', TALKS);
  const ask = (session: string) => callFrom(team, TARGET, { order: '1042' }, session);
  // Its sidecar lives, so that it is still listed: drained, no conversation begins there, not even to find out that it is dead.
  await team.obeyed('providers', 'drain', ORDER_A1.agentId, '--reason', `dead; ${ORDER_A3.agentId} shall stand in its place`);
  await team.everywhere();
  tell.say(`$ reachctl providers drain ${ORDER_A1.agentId}     (its sidecar lives, so it is still listed)`);
  // Each has its desk before anything changes.
  await inParallel(talks, WIDTH, async (session) => void (await ask(session)));
  const traffic = new Traffic(ask, talks, PER_SEC);
  const at = performance.now();
  const done = await team.join(ORDER_A3);
  const joinedMs = performance.now() - at;
  tell.say(`${ORDER_A3.agentId} joins: ${done} (${(joinedMs / 1_000).toFixed(1)} s, most of it the start of two processes)`);

  const newcomers: string[] = [];
  const failed: string[] = [];
  await inParallel(names('after-join', NEWCOMERS), WIDTH, async (session) => {
    const result = await ask(session);
    if (result.code === 0) newcomers.push(result.provider ?? '-');
    else failed.push(outcome(result));
  });
  await traffic.end();
  const moved = [...ownersOf(traffic.served)]
    .filter(([, owners]) => owners.length > 1)
    .map(([session, owners]) => `${session}: ${owners.join(', ')}`);
  const atThird = newcomers.filter((provider) => provider === ORDER_A3.agentId).length;
  const executed = (await team.counts(ORDER_A3))['crm.order.query'] ?? 0;
  tell.say(
    `${traffic.calls} calls of ${TALKS} conversations ran on meanwhile: ${traffic.failed.length} failed, ${moved.length} conversations moved`,
  );
  tell.say(`${NEWCOMERS} new conversations: ${spread(newcomers)}`);
  const listed = await team.obeyed('providers', 'list', '--capability', 'crm.order.query');
  for (const line of listed.stdout.trimEnd().split('\n')) tell.say(`  ${line}`);

  tell.check('calls that ran meanwhile', traffic.calls, `some, at ${PER_SEC} a second`, traffic.calls > (joinedMs / 1_000) * PER_SEC * 0.5);
  tell.equal('calls that failed', [...traffic.failed, ...failed], []);
  tell.equal('conversations that moved', moved, []);
  tell.check(`new conversations at ${ORDER_A3.agentId}`, atThird, 'some', atThird > 0);
  tell.equal(`executions that ${ORDER_A3.agentId} itself counted`, executed, atThird);
  tell.check('reachctl providers list', listed.stdout, `a line with ${ORDER_A3.agentId}`, listed.stdout.includes(ORDER_A3.agentId));
  return { joined_calls_failed: traffic.failed.length + failed.length, joined_newcomers: atThird };
}
