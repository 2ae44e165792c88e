/**
 * An operator applies a file with two mistakes. It is refused as a whole, each mistake with its line and column, and
 * nothing changes: not the document in force, not one message to the sidecars, not a call.
 */
import { join } from 'node:path';
import { put } from '../files.ts';
import type { RegisteredTeam } from '../registered-team.ts';
import { FRONT } from '../roster.ts';
import type { Storyteller } from '../story.ts';
import { callFrom, type Counts } from './scene.ts';

const GOOD_LINES = ['policies:', '  - capability: crm.order.query', '    retry: { max: 2 }'];
/** A word that does not exist, and a duration without a unit. */
const BAD_LINES = ['  - capability: kb.article.search', '    braeker: { open: 2s }', '    timeout: 250'];

export async function badPush(team: RegisteredTeam, tell: Storyteller): Promise<Counts> {
  const lines = [...GOOD_LINES, ...BAD_LINES];
  const file = join(team.folder, 'bad.yaml');
  put(file, `${lines.join('\n')}\n`);
  const before = await standing(team);
  const explainedBefore = await explained(team);

  const ran = await team.registry.reachctl('apply', file);
  tell.say('$ reachctl apply bad.yaml');
  const said = ran.stderr.trimEnd().split('\n');
  for (const line of said) tell.say(`  ${line.replaceAll(`${team.folder}/`, '')}`);
  const expected = ['braeker', '250'].map((word) => place(lines, word));
  const named = expected.filter(({ line, column }) => said.some((one) => one.includes(`bad.yaml:${line}:${column}:`)));
  tell.say(`exit status ${ran.code}; ${named.length} of ${expected.length} mistakes named with line and column`);

  tell.check('exit status of reachctl', ran.code, 'neither 0 nor none', ran.code !== 0 && ran.code !== null);
  tell.equal('mistakes named with line and column', named, expected);
  tell.equal('document, stream and fleet', await standing(team), before);
  tell.equal('what a call would do', await explained(team), explainedBefore);
  const called = await callFrom(team, 'kb.article.search', { question: 'Still there?' }, 'bad-push-1');
  tell.equal('a call afterwards', [called.code, called.degraded], [0, false]);
  tell.say('the document in force is the one from before, no sidecar was sent anything, and calls go on');
  return { bad_push_mistakes_named: named.length };
}

/** Line and column, from 1, where a word begins. */
function place(lines: readonly string[], word: string): { readonly line: number; readonly column: number } {
  const line = lines.findIndex((text) => text.includes(word));
  return { line: line + 1, column: (lines[line] ?? '').indexOf(word) + 1 };
}

/** Everything that a push could have changed. */
async function standing(team: RegisteredTeam): Promise<Readonly<Record<string, unknown>>> {
  const { version, text } = await team.registry.get<{ version: number; text: string }>('/v1/policies');
  const fleet = await team.fleet();
  return { version, text, last_seq: fleet.last_seq, refusing: fleet.summary.refusing };
}

/** Who would serve and under which settings, as the front's own sidecar sees it. */
async function explained(team: RegisteredTeam): Promise<unknown> {
  const { capabilities } = await team.seat(FRONT).client.get<{ capabilities: readonly unknown[] }>('/v1/capabilities');
  return capabilities;
}
