/**
 * An operator applies rules for messages (`rules.yaml`). Nobody is there for a request: a person is to decide. A retriever
 * joins and the request is released to it. Requests go to it in the high lane, whatever their senders said; the parts that it
 * sends meet at one aggregator each sequence, one after the other.
 */
import { writtenHere } from '../files.ts';
import type { RegisteredTeam } from '../registered-team.ts';
import { AGGREGATOR_A1, AGGREGATOR_A2, RETRIEVER } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { type Counts, linesOf } from './scene.ts';

const SEQUENCES = ['s-0', 's-1', 's-2', 's-3', 's-4', 's-5'];
const PARTS = [1, 2, 3, 4];
const ARRIVED_MS = 20_000;

export async function byRule(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const { mail } = team;
  const applied = await team.applyRules(writtenHere('rules.yaml'));
  tell.say('$ reachctl apply policies.yaml     (with the rules of rules.yaml)');
  linesOf(tell, applied.stdout.replace(/^(?!\+ rule|version).*\n/gm, ''));
  const request = (sequence: string) =>
    mail.send({ message_type: 'task_request', target_role: 'retriever', priority: 'low', payload: { sequence } });
  const early = await request(SEQUENCES[0] as string);
  tell.say(`a request while nobody retrieves: ${early?.state}, by rule ${early?.rule}`);
  tell.say('$ reachctl tasks list');
  linesOf(tell, (await team.obeyed('tasks', 'list')).stdout);

  await team.joinAll([RETRIEVER, AGGREGATOR_A1, AGGREGATOR_A2]);
  const released = await team.obeyed('tasks', 'release', early?.task_id ?? '-', '--reason', 'a retriever has come');
  tell.say(`${RETRIEVER.agentId} and two aggregators join; $ reachctl tasks release ${early?.task_id}`);
  linesOf(tell, released.stdout);
  const later = [];
  for (const sequence of SEQUENCES.slice(1)) later.push(await request(sequence));
  const lanes = new Set(later.map((each) => `${each?.rule}: ${each?.lane}`));
  tell.say(`${later.length} more, sent with priority low: ${[...lanes].join(', ')}`);
  const ends = await mail.endsOf(
    [early, ...later].flatMap((each) => (each === null ? [] : [each.task_id])),
    ARRIVED_MS,
  );
  const total = SEQUENCES.length * PARTS.length;
  await team.until(`all ${total} parts to be at an aggregator`, ARRIVED_MS, async () => partsAt(team, null).length >= total);
  const places = SEQUENCES.map((sequence) => ({ sequence, parts: AGGREGATORS.map(({ agentId }) => partsAt(team, agentId, sequence)) }));
  for (const { sequence, parts } of places)
    tell.say(`  ${sequence}: ${AGGREGATORS.map(({ agentId }, i) => `${agentId} ${(parts[i] as number[]).join(' ') || '-'}`).join(', ')}`);
  const apart = places.filter(({ parts }) => parts.every((each) => each.length > 0)).length;

  tell.equal('the first request', [early?.state, early?.rule], ['parked', 'fallback_to_human_review']);
  tell.equal('rule and lane of the others', [...lanes], ['route_to_retriever: high']);
  tell.equal(
    'ends of the requests',
    ends.map((end) => end?.state),
    SEQUENCES.map(() => 'done'),
  );
  tell.equal('sequences that were torn apart', apart, 0);
  tell.equal(
    'parts in another order than they were sent in',
    places.filter(({ parts }) => JSON.stringify(parts.flat()) !== JSON.stringify(PARTS)),
    [],
  );
  return { parts: total, sequences_torn: apart };
}

const AGGREGATORS = [AGGREGATOR_A1, AGGREGATOR_A2];

/** In the order in which they came. @param agent null = any; @param sequence null = any */
function partsAt(team: RegisteredTeam, agent: string | null, sequence: string | null = null): number[] {
  return AGGREGATORS.filter(({ agentId }) => agent === null || agentId === agent)
    .flatMap((member) => team.journal(member))
    .map((line) => line.split(' '))
    .filter(([of]) => sequence === null || of === sequence)
    .map(([, part]) => Number(part));
}
