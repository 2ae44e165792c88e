/** (d) A version that nobody serves is refused with what exists; an older one is never put in its place. */
import { ORDER_A2, ORDER_B1, ORDER_OLD } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import type { Team } from '../team.ts';
import { callFrom, type Counts } from './scene.ts';

const ASKED = ['crm.order.query@^3.0', 'crm.order.query@^1.9'];
const CAPABILITY = 'crm.order.query';
const NO_MATCHING_VERSION = 2002;

export async function noDowngrade(team: Team, tell: Storyteller): Promise<Counts> {
  const before = await asked(team);
  for (const target of ASKED) {
    const result = await callFrom(team, target, { order: '1042' }, 'version-1');
    const detail = result.error?.detail ?? '';
    tell.say(`${target}: ${result.code} ${result.error?.name}, HTTP ${result.status}`);
    tell.say(`  ${detail}`);
    tell.equal(`${target} is refused with`, result.code, NO_MATCHING_VERSION);
    tell.check(`the detail for ${target}`, detail, 'a list with 2.0.0 and 1.8.0', detail.includes('2.0.0') && detail.includes('1.8.0'));
    tell.equal(`attempts for ${target}`, result.attempts.length, 0);
  }
  const old = await callFrom(team, 'crm.order.query@^1.0', { order: '1042' }, 'version-1');
  tell.say(`crm.order.query@^1.0: ${old.version} of ${old.provider}, for it is what was asked`);
  tell.equal('who serves ^1.0', [old.provider, old.version], [ORDER_OLD.agentId, '1.8.0']);
  const executed = (await asked(team)) - before;
  tell.equal('executions, of which one was due', executed, 1);
  return { versions_refused: ASKED.length };
}

async function asked(team: Team): Promise<number> {
  const counts = await Promise.all([ORDER_OLD, ORDER_A2, ORDER_B1].map((desk) => team.counts(desk)));
  return counts.reduce((sum, each) => sum + (each[CAPABILITY] ?? 0), 0);
}
