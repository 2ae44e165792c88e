/** `reachctl nats`: what it writes, and that a real nats-server takes it. */
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { realClock } from '../../../base/clock.ts';
import { publicKeyOf } from '../../../base/nkey.ts';
import { runReachctl } from '../../../control-plane/cli/program.ts';
import { findNatsServer } from '../../../deploy/local/nats-binary.ts';
import { repoFile } from '../../support/paths.ts';

interface Said {
  readonly exit: number;
  readonly text: string;
}

class Desk {
  readonly folder: string;
  /** All that was ever said. */
  text = '';

  constructor(t: Test) {
    this.folder = mkdtempSync(join(tmpdir(), 'reach-users-'));
    t.teardown(() => rmSync(this.folder, { recursive: true, force: true }));
  }

  async run(...words: readonly string[]): Promise<Said> {
    const lines: string[] = [];
    const say = (text: string): void => void lines.push(text);
    const io = { out: say, err: say, env: {}, clock: realClock, stdin: () => Promise.resolve('') };
    const exit = await runReachctl(['nats', ...words, '--folder', this.folder], io, 'test');
    this.text += `${lines.join('\n')}\n`;
    return { exit, text: lines.join('\n') };
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  read(name: string): string {
    return readFileSync(this.path(name), 'utf8');
  }

  key(name: string): string {
    return publicKeyOf(this.read(`${name}.nk`)) ?? '';
  }
}

t.test('keys are made once, for their owner alone, and shown to nobody', async (t) => {
  const desk = new Desk(t);
  t.match(await desk.run('sidecar', 'add', 'order-a'), { exit: 2, text: /begin with: reachctl nats init/ });
  t.match(await desk.run('init', '--env', 'prod', '--operator', 'ann'), { exit: 0, text: /--signal reload/ });
  t.match(await desk.run('sidecar', 'add', 'order-a', 'order-b'), { exit: 0 });
  for (const name of readdirSync(desk.folder).filter((each) => each.endsWith('.nk'))) {
    t.equal(statSync(desk.path(name)).mode & 0o777, 0o600, name);
    t.notOk(desk.text.includes(desk.read(name).trim()));
    for (const other of ['nats-users.conf', 'nats-users.json'])
      t.notOk(desk.read(other).includes(desk.read(name).trim()), `${name} is not in ${other}`);
  }
  const before = { keys: ['control-plane', 'ann', 'order-a'].map((name) => desk.key(name)), config: desk.read('nats-users.conf') };
  await desk.run('init', '--env', 'prod', '--operator', 'ann');
  await desk.run('sidecar', 'add', 'order-b', 'order-a');
  t.same(
    { keys: ['control-plane', 'ann', 'order-a'].map((name) => desk.key(name)), config: desk.read('nats-users.conf') },
    before,
    'again is no change',
  );
  rmSync(desk.path('nats-users.json'));
  await desk.run('init', '--env', 'prod', '--operator', 'ann');
  await desk.run('sidecar', 'add', 'order-a', 'order-b');
  t.equal(desk.read('nats-users.conf'), before.config, 'a lost list is made anew from the keys that are there');
  t.match(await desk.run('init', '--env', 'test'), { exit: 2, text: /is for the environment prod/ });
  t.match(await desk.run('sidecar', 'add', 'ann'), { exit: 1, text: /is there already, as operator/ });
  for (const bad of ['Order', 'a.b', '_control', '>', 'a b'])
    t.match(await desk.run('sidecar', 'add', bad), { exit: 2, text: /is not a name/ }, bad);
  t.match(await desk.run('sidecar', 'add', 'order-a', '--reads', 'crm.>'), { exit: 2, text: /not a pattern of capabilities/ });
  writeFileSync(desk.path('order-c.nk'), 'nonsense');
  t.match(await desk.run('sidecar', 'add', 'order-c'), { exit: 1, text: /no seed of a user’s key/ });
  writeFileSync(desk.path('nats-users.json'), desk.read('nats-users.json').replace(/"U[A-Z2-7]+"/, '"U\\" } evil {"'));
  t.match(
    await desk.run('permissions'),
    { exit: 1, text: /one or two public keys/ },
    'nothing that somebody has put there gets into the configuration',
  );
});

t.test('a scope stays as it was said until something else is said', async (t) => {
  const desk = new Desk(t);
  await desk.run('init');
  await desk.run('sidecar', 'add', 'clerk', '--no-work', '--reads', 'pay.*', 'crm.order.query');
  await desk.run('sidecar', 'add', 'clerk');
  t.match((await desk.run('list')).text, /clerk +sidecar +pay\.\* crm\.order\.query +no/);
  t.notMatch(desk.read('nats-users.conf'), /CONSUMER\.MSG\.NEXT\.AR_TASKS\.\*/);
  await desk.run('sidecar', 'add', 'clerk', '--work');
  t.match((await desk.run('list')).text, /clerk +sidecar +pay\.\* crm\.order\.query +yes/);
});

t.test('a key is changed in two steps or at once, and taken away', async (t) => {
  const desk = new Desk(t);
  await desk.run('init');
  await desk.run('sidecar', 'add', 'order-a');
  const first = desk.key('order-a');
  t.match(await desk.run('rotate', 'order-a'), { exit: 0, text: /the one before counts until/ });
  const second = desk.key('order-a');
  t.not(second, first);
  t.ok(
    [first, second].every((key) => desk.read('nats-users.conf').includes(key)),
    'both count',
  );
  t.match(await desk.run('rotate', 'order-a'), { exit: 1, text: /is under way/ });
  await desk.run('settle', 'order-a');
  t.notOk(desk.read('nats-users.conf').includes(first));
  await desk.run('rotate', 'order-a', '--at-once');
  t.notOk(desk.read('nats-users.conf').includes(second));
  await desk.run('remove', 'order-a');
  t.notOk(existsSync(desk.path('order-a.nk')));
  t.notMatch(desk.read('nats-users.conf'), /order-a/);
  t.match(await desk.run('remove', 'order-a'), { exit: 2, text: /there is no user/ });
});

t.test('a nats-server takes what is written, as a block of its own and within an account', async (t) => {
  const desk = new Desk(t);
  await desk.run('init', '--operator', 'ann');
  await desk.run('sidecar', 'add', 'order-a', '--reads', 'crm.*');
  await desk.run('rotate', 'order-a');
  await desk.run('permissions', '--form', 'users', '--out', desk.path('reach-users.conf'));
  t.match(await desk.run('permissions', '--form', 'both'), { exit: 2 });
  t.match((await desk.run('permissions', '--out', '-')).text, /^authorization \{$/m);
  const binary = findNatsServer() as string;
  const check = (file: string): string => {
    const { stdout, stderr, status } = spawnSync(binary, ['-t', '-c', file], { encoding: 'utf8' });
    return `${status} ${stdout}${stderr}`;
  };
  writeFileSync(desk.path('block.conf'), 'listen: "127.0.0.1:4222"\ninclude "./nats-users.conf"\n');
  t.match(check(desk.path('block.conf')), /^0 .*is valid/s);
  copyFileSync(repoFile('deploy/examples/nats-accounts.conf'), desk.path('nats-accounts.conf'));
  t.match(check(desk.path('nats-accounts.conf')), /^0 .*is valid/s, 'the example as it stands');
  writeFileSync(desk.path('broken.conf'), 'include "./nats-users.conf"\nauthorization { users: [{nkey: "nonsense"}] }\n');
  t.notMatch(check(desk.path('broken.conf')), /^0 /, 'which is no check that takes anything');
  t.ok(execFileSync(binary, ['-v'], { encoding: 'utf8' }).includes('nats-server'));
});
