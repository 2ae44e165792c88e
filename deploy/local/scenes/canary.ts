/** (e) Five per cent of the conversations meet the new build, and go on meeting it; the share is raised without losing one. */
import { inParallel } from '../client.ts';
import { ORDER_NEXT } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import type { Split, Team } from '../team.ts';
import { callFrom, type Counts, names, outcome } from './scene.ts';

const SESSIONS = 400;
const CALLS_EACH = 3;
const WIDTH = 16;
const NEW = '2.1.0';
const SHARE = 0.05;
const RAISED = 0.2;
/** How far chance may take a fair split of this many conversations, in standard deviations. */
const TOLERANCE = 4;

/** The version that each conversation met, and the conversations that met two. */
async function meet(
  team: Team,
  tell: Storyteller,
  sessions: readonly string[],
  times: number,
): Promise<{ met: Map<string, string>; changed: string[] }> {
  const met = new Map<string, string>();
  const changed: string[] = [];
  const failed: string[] = [];
  for (let round = 0; round < times; round++) {
    await inParallel(sessions, WIDTH, async (session) => {
      const result = await callFrom(team, 'crm.order.query@^2.0', { order: '1042' }, session);
      if (result.code !== 0) failed.push(outcome(result));
      const version = result.version ?? '-';
      if ((met.get(session) ?? version) !== version) changed.push(session);
      met.set(session, version);
    });
  }
  tell.equal('calls that failed', failed, []);
  return { met, changed };
}

export async function canary(team: Team, tell: Storyteller): Promise<Counts> {
  tell.say(
    `${ORDER_NEXT.agentId} joins with ${NEW}, which gets ${SHARE * 100} % of the conversations: ${await team.join(ORDER_NEXT, split(SHARE))}`,
  );

  const sessions = names('canary', SESSIONS);
  const { met, changed } = await meet(team, tell, sessions, CALLS_EACH);
  const onNew = sessions.filter((session) => met.get(session) === NEW);
  const [least, most] = expected(SHARE);
  tell.say(
    `${SESSIONS} conversations × ${CALLS_EACH} calls: ${onNew.length} on ${NEW} (${((onNew.length / SESSIONS) * 100).toFixed(2)} %), ${changed.length} changed version`,
  );
  tell.equal('conversations that changed version', changed, []);
  tell.check(`conversations on ${NEW}`, onNew.length, `${least} to ${most}`, onNew.length >= least && onNew.length <= most);
  if (onNew[0] !== undefined)
    tell.reasons(await callFrom(team, 'crm.order.query@^2.0', { order: '1042' }, onNew[0]), ['resolve', 'choose']);

  const strayed: string[] = [];
  await inParallel(onNew, WIDTH, async (session) => {
    const refund = await callFrom(team, 'crm.refund.apply', { refund_id: session }, session);
    if (refund.provider !== ORDER_NEXT.agentId) strayed.push(`${session}: ${outcome(refund)}`);
  });
  tell.say(`the ${onNew.length} then asked for a refund: ${strayed.length} met another agent than the one that knows them`);
  tell.equal('refunds that strayed', strayed, []);

  const raising = await team.divide(split(RAISED));
  const raised = await meet(team, tell, [...sessions, ...names('later', SESSIONS)], 1);
  const lost = onNew.filter((session) => raised.met.get(session) !== NEW);
  const later = names('later', SESSIONS).filter((session) => raised.met.get(session) === NEW).length;
  const [leastLater, mostLater] = expected(RAISED);
  tell.say(
    `raised to ${RAISED * 100} %, ${raising}: ${later} of ${SESSIONS} new conversations on ${NEW}, ${lost.length} of the ${onNew.length} earlier ones left it`,
  );
  tell.equal(`conversations that left ${NEW}`, lost, []);
  tell.check(`later conversations on ${NEW}`, later, `${leastLater} to ${mostLater}`, later >= leastLater && later <= mostLater);
  return { canary_conversations: SESSIONS, canary_on_new: onNew.length, canary_changed: changed.length + lost.length };
}

function split(share: number): Split {
  return { capability: 'crm.order.query', version: NEW, share };
}

/** Least and most conversations that a fair split may give. */
function expected(share: number): [least: number, most: number] {
  const mean = SESSIONS * share;
  const sway = TOLERANCE * Math.sqrt(SESSIONS * share * (1 - share));
  return [Math.max(1, Math.ceil(mean - sway)), Math.floor(mean + sway)];
}
