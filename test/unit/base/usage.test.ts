import t from 'tap';
import { notTaken } from '../../../base/usage.ts';
import { startProgram } from '../../support/sockets.ts';

const HEALTH = 'health <settings.yaml> [--ready] [--wait TIME]';

t.test('a command takes the options and the words of its usage line, and no others', (t) => {
  const of = (usage: string, given: Record<string, unknown>, ...words: string[]): string | null => notTaken('prog', usage, given, words);
  t.equal(of(HEALTH, { ready: true, wait: '5s', with: undefined }, 'a.yaml'), null);
  t.equal(of(HEALTH, {}), null, 'what is missing the command says itself');
  t.equal(of(HEALTH, { json: true }, 'a.yaml'), `health takes no --json; it is: prog ${HEALTH}`);
  t.equal(of(HEALTH, { rea: true }, 'a.yaml'), `health takes no --rea; it is: prog ${HEALTH}`);
  t.match(of(HEALTH, {}, 'a.yaml', 'b.yaml'), /^health does not take "b\.yaml" as well; it is: prog health/);
  t.equal(of('record <settings.yaml> [start|stop|status]', {}, 'a.yaml', 'stop'), null);
  t.match(of('record <settings.yaml> [start|stop|status]', {}, 'a.yaml', 'stop', 'now'), /"now" as well/);
  t.equal(of('sandbox <file|folder> … [--seed N]', { seed: '1' }, ...new Array<string>(50).fill('a.yaml')), null);
  t.match(of('schema', {}, 'x'), /^schema does not take "x"/);
  t.end();
});

t.test('the programs hold to it', async (t) => {
  const programs = [
    [
      'sidecar/main.ts',
      ['sandbox', 'ok.yaml', '--set', 'timeout=1ms'],
      /^reach-sidecar: sandbox takes no --set; it is: .*\[--junit FILE\]$/m,
    ],
    ['control-plane/main.ts', ['check', 'c.yaml', '--ready'], /^reach-control: check takes no --ready; it is: .*<settings\.yaml>$/m],
  ] as const;
  await Promise.all(
    programs.map(async ([source, args, words]) => {
      const program = startProgram(source, args);
      t.equal((await program.ended(20_000)).code, 2);
      t.match(program.stderr, words);
    }),
  );
});
