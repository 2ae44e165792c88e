/** (f) Two agents ask each other for a second opinion: the call is refused where the circle would close, and is named. */
import { INTENT, SENTIMENT } from '../roster.ts';
import type { Result } from '../client.ts';
import type { Storyteller } from '../story.ts';
import type { Team } from '../team.ts';
import { callFrom, type Counts, outcome } from './scene.ts';

const LOOP_DETECTED = 2005;
const FIRST = 'nlp.intent.review';
const SECOND = 'nlp.sentiment.review';

export async function loop(team: Team, tell: Storyteller): Promise<Counts> {
  const result = await callFrom(team, FIRST, { text: 'Is this urgent?' }, 'loop-1');
  tell.check('the call itself', outcome(result), 'an answer that tells of the refusal', result.code === 0);
  // The first agent's answer holds the Result it got from the second, whose answer holds the refusal it got.
  const second = (result.data as { second?: Result } | null)?.second;
  const third = (second?.data as { second?: Result } | null)?.second;
  tell.say(`front asks ${FIRST}, which asks ${SECOND}, which asks ${FIRST} again: ${third?.code} ${third?.error?.name}`);
  tell.say(`  ${third?.error?.detail}`);
  const detail = third?.error?.detail ?? '';
  tell.equal('the third call is refused with', third?.code, LOOP_DETECTED);
  tell.check(
    'the refusal',
    detail,
    'both agents with what they were asked',
    detail.includes(`${INTENT.agentId}>${FIRST}`) && detail.includes(`${SENTIMENT.agentId}>${SECOND}`),
  );
  const ran = [(await team.counts(INTENT))[FIRST] ?? 0, (await team.counts(SENTIMENT))[SECOND] ?? 0];
  tell.say(`each of the two ran ${ran[0]} and ${ran[1]} times`);
  tell.equal('executions of the two', ran, [1, 1]);
  return { loops_refused: third?.code === LOOP_DETECTED ? 1 : 0 };
}
