/**
 * The tour of identities of README.md, walked as it stands there: keys, certificates and tokens are made by the commands of the page,
 * every program is started by them, and what is refused in the page is refused here.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { repoFile } from '../support/paths.ts';
import { freePort } from '../support/sockets.ts';
import { stepsOf } from '../support/tour.ts';
import { typed, Walk } from '../support/walk.ts';

t.setTimeout(110_000);

const README = readFileSync(repoFile('README.md'), 'utf8');
/** As they stand in the README. */
const PORTS = ['4222', '7800', '7710', '7711', '7720', '7721', '9001'] as const;

t.test('the tour of identities, from the first key to the token that was taken back', async (t) => {
  const ports = new Map(await Promise.all(PORTS.map(async (port) => [port, await freePort()] as const)));
  const walk = Walk.make(t, ports, { REACH_SERVER: `http://127.0.0.1:${ports.get('7800')}` });
  const agent = stepsOf(README, 'A tour of five minutes').find((step) => step.kind === 'file' && step.name === 'agent.mjs');
  walk.write('agent.mjs', (agent as { text: string }).text);
  let commands = 0;
  for (const step of stepsOf(README, 'Identities')) {
    if (step.kind === 'file') walk.write(step.name, step.text);
    else if (step.kind === 'command') {
      await typed(t, walk, step);
      commands++;
    }
  }
  t.ok(commands > 20, `${commands} commands`);
  const exits = await Promise.all(walk.started.map(async (each) => [each.command, await each.stop()] as const));
  for (const [command, code] of exits) if (command.includes('reach-')) t.equal(code, 0, `${command} ends well`);
});
