/** The look for credentials finds what is planted, and leaves alone what is at home. */
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';
import { newKeyPair } from '../../../base/ed25519.ts';
import { credentialsOf, findCredentials } from '../../run/find-credentials.ts';
import { MARK } from '../../support/credential-mark.ts';
import { nodeArgs } from '../../support/paths.ts';
import { TestKey } from '../../support/tokens.ts';

function folder(t: Test): string {
  const made = mkdtempSync(join(tmpdir(), 'reach-planted-'));
  // In a whole run what is deleted is looked through: what was planted must not be found there.
  t.teardown(() => {
    for (const each of readdirSync(made, { recursive: true, withFileTypes: true }))
      if (each.isFile()) writeFileSync(join(each.parentPath, each.name), '');
    rmSync(made, { recursive: true, force: true });
  });
  return made;
}

const key = new TestKey();
const now = Date.now();
const seed = `SU${'AB3D'.repeat(14)}`;

t.test('whatever is planted in a log, a snapshot or binary data is found, and is not shown', async (t) => {
  const at = folder(t);
  mkdirSync(join(at, 'state', 'deep'), { recursive: true });
  const token = await key.sign({ sub: 'crm.bot.a1' }, now);
  const planted: Readonly<Record<string, [string, RegExp]>> = {
    'rig-log.1': [`{"msg":"authorization: Bearer operator-token-${MARK}"}`, /credential of the tests/],
    'state/deep/table.last-good': [`\u0000\u0001{"agent":"x"}\n${token}\n`, /signed token \(agent\)/],
    'state/order-a.homes': [await key.sign({ sub: 'order-a', aud: 'sidecar' }, now), /signed token \(sidecar\)/],
    'program.stderr': [newKeyPair().privatePem, /private key/],
    'metrics.txt': [`reach_x{seed="${seed}"} 1`, /seed of a NATS key/],
  };
  for (const [name, [text]] of Object.entries(planted)) writeFileSync(join(at, name), text);
  const { found, files } = findCredentials(at);
  t.equal(files, 5);
  for (const [name, [, what]] of Object.entries(planted))
    t.match(
      found.filter(({ file }) => file === join(at, name)),
      [{ what }],
      name,
    );
  t.notMatch(JSON.stringify(found), new RegExp(`${MARK}|${seed}|eyJ`));
  t.equal(findCredentials(join(at, 'metrics.txt')).found.length, 1, 'a file alone as well');
  t.same(findCredentials(join(at, 'gone')), { found: [], files: 0, bytes: 0 });
});

t.test('what is at home is left alone: settings, keys that only their owner can read; and what is no credential', async (t) => {
  const at = folder(t);
  writeFileSync(join(at, 'sidecar.yaml'), `token: x-${MARK}`);
  writeFileSync(join(at, 'signing-key.pem'), newKeyPair().privatePem, { mode: 0o600 });
  writeFileSync(join(at, 'order-side.homes'), await key.sign({ sub: 'crm.bot.a1', aud: 'home', via: 'order-side' }, now));
  writeFileSync(join(at, 'tap.txt'), 'ok 1 - eyJ.not.a-token is refused\nok 2 - SUCH a text');
  t.same(findCredentials(at).found, []);
  chmodSync(join(at, 'signing-key.pem'), 0o644);
  t.match(findCredentials(at).found, [{ what: /private key/ }], 'a key that everybody can read is not at home');
  t.equal(credentialsOf(`${MARK} ${MARK}`).length, 2);
});

t.test('what a test deletes is put aside in a whole run, whichever way it deletes', (t) => {
  const at = folder(t);
  const [temporary, written] = [join(at, 't'), join(at, 'w')];
  for (const each of [temporary, written, join(at, 'elsewhere')]) mkdirSync(each);
  const program = join(at, 'program.mjs');
  writeFileSync(
    program,
    `import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
for (const remove of [(it) => rmSync(it, { recursive: true }), (it) => rm(it, { recursive: true })]) {
  const made = mkdtempSync(join(tmpdir(), 'x-'));
  writeFileSync(join(made, 'log'), 'x-${MARK}');
  await remove(made);
}
rmSync(${JSON.stringify(join(at, 'elsewhere'))}, { recursive: true });
`,
  );
  const [keep, ...loaders] = nodeArgs('test/run/keep-written.ts').toReversed();
  const { status, stderr } = spawnSync(
    process.execPath,
    [...loaders.toReversed(), '--import', pathToFileURL(keep as string).href, program],
    {
      env: { ...process.env, TMPDIR: temporary, REACH_TEST_WRITTEN: written },
      encoding: 'utf8',
    },
  );
  t.equal(status, 0, stderr);
  t.same(
    readdirSync(temporary).filter((name) => name.startsWith('x-')),
    [],
  );
  t.equal(findCredentials(written).found.length, 2);
  t.notOk(existsSync(join(at, 'elsewhere')), 'outside of the run deleting is deleting');
  t.end();
});
