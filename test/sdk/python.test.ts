/** The Python client. Its checks run in Python (`python_calls.py`), against a real sidecar and a Node agent; here they are told. */
import { execFile } from 'node:child_process';
import t from 'tap';
import { CODES } from '../../proto/wire/codes.ts';
import { TestAgent } from '../support/agent.ts';
import { repoFile } from '../support/paths.ts';
import { pythonPath } from '../../deploy/local/python.ts';
import { Rig, TOKEN } from '../support/rig.ts';
import { startNodeAgent } from './node-agent.ts';
import { CALLERS, tableOf, tokenOf } from './served.ts';

t.setTimeout(110_000);

interface Line {
  readonly name?: string;
  readonly ok?: boolean;
  readonly problem?: string;
  readonly codes?: Readonly<Record<string, readonly [number, boolean]>>;
}

const frame = (type: number, payload: string, version = 1): Buffer =>
  Buffer.concat([Buffer.from([version, type, 0, 0, 0, Buffer.byteLength(payload)]), Buffer.from(payload)]);

const FRAMES: Readonly<Record<string, Buffer>> = {
  frames_good: Buffer.concat([frame(1, 'o'), frame(4, ''), frame(1, 'k'), frame(2, '{"code":0}')]),
  frames_cut: frame(1, 'half'),
  frames_version: frame(1, 'x', 2),
  frames_type: frame(9, 'x'),
  frames_nonsense: frame(2, 'nonsense'),
  frames_lie: frame(3, '{"code":0}'),
  frames_more: Buffer.concat([frame(2, '{"code":0}'), frame(1, 'x')]),
  frames_none: Buffer.alloc(0),
};

/** A server that is no sidecar, and misbehaves as its path says. */
async function stranger(): Promise<TestAgent> {
  return await TestAgent.listen('stranger', ({ path }, response) => {
    const word = path.split('.').at(-1) as string;
    if (word === 'hangs') return new Promise(() => {});
    if (word === 'breaks') response.socket?.destroy();
    else if (word === 'half') {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '100' });
      response.write('{"code":0,');
      setTimeout(() => response.destroy(), 20);
    } else if (word in FRAMES) return { headers: { 'content-type': 'application/vnd.agent-reach.frames' }, body: FRAMES[word] };
    else return { status: 502, headers: { 'content-type': 'text/html' }, body: '<h1>Bad gateway</h1>' };
    return undefined;
  });
}

t.test('the Python client', async (t) => {
  const rig = await Rig.start(t, { table: tableOf({ node: 0 }), callers: CALLERS });
  await startNodeAgent(t, rig.url, tokenOf('node'), null);
  const other = await stranger();
  t.teardown(() => other.close());
  const { out, err } = await new Promise<{ out: string; err: string }>((done) => {
    const args = ['-u', '-X', 'dev', '-W', 'error', repoFile('test/sdk/python_calls.py'), rig.url, TOKEN, other.url];
    execFile(
      pythonPath(),
      args,
      { encoding: 'utf8', timeout: 90_000, env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' } },
      (_error, out, err) => done({ out, err }),
    );
  });
  const lines = out
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Line);
  const checks = lines.filter(({ name }) => name !== undefined);
  t.ok(checks.length >= 12, `${checks.length} checks ran`);
  for (const { name, problem } of checks) t.equal(problem, '', name as string);
  t.equal(err, '', 'nothing is left open, and nothing is complained of');
  t.strictSame(
    lines.find(({ codes }) => codes !== undefined)?.codes,
    Object.fromEntries(CODES.map(({ name, code, retryable }) => [name, [code, retryable]])),
    'its table of codes is the sidecar’s',
  );
});
