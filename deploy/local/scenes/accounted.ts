/** The front agent's messages are counted: every one that was accepted has an end, and one. */
import type { RegisteredTeam } from '../registered-team.ts';
import type { Storyteller } from '../story.ts';
import { copiesOf } from './one-copy.ts';
import type { Counts } from './scene.ts';

const CUSTOMER = '1042';

export async function accounted(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const { mail } = team;
  // What should not come has a moment to come.
  await mail.read();
  const counted = mail.counted();
  const ended = new Map<string, string[]>();
  for (const { task_id: id, state } of mail.ends) ended.set(id, [...(ended.get(id) ?? []), state]);
  // A person's word gives a second end to what was in doubt, and nothing else does.
  const repeated = [...ended].filter(([, states]) => states.length > 1 && states.join() !== 'in_doubt,done');
  const strangers = [...ended.keys()].filter((id) => !mail.accepted.some(({ task_id: each }) => each === id));
  const lost = counted.get('open') ?? 0;
  const messages = {
    accepted: mail.accepted.length,
    refused: mail.refused.length,
    done: counted.get('done') ?? 0,
    lost,
    ends_over_one: repeated.length,
    copies: copiesOf(team, CUSTOMER),
    answered_as_before: mail.ends.filter(({ replay }) => replay).length,
    on_disk: mail.accepted.filter(({ durable }) => durable === 'local-disk').length,
    in_doubt_released: [...ended.values()].filter((states) => states.join() === 'in_doubt,done').length,
    waited_for_somebody: mail.accepted.filter(({ state }) => state === 'parked').length,
  };
  tell.say(
    `${messages.accepted} accepted: ${[...counted].map(([state, count]) => `${count} ${state}`).join(', ')}; ${messages.refused} refused, ${lost} without an end, ${messages.ends_over_one} with more than one, ${messages.copies} copy of customer ${CUSTOMER}`,
  );
  tell.equal('messages that were refused', mail.refused, []);
  tell.equal('messages without an end', lost, 0);
  tell.equal('messages that were accepted and are not done', messages.accepted - messages.done, 0);
  tell.equal('messages with more ends than one', repeated, []);
  tell.equal('ends of messages that nobody sent', strangers, []);
  tell.equal('copies of the customer', messages.copies, 1);
  return { messages };
}
