/** reachctl as a person and a script meet it: against a real control plane, and against nothing at all. */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { realClock } from '../../../base/clock.ts';
import { ago, percent, table, when } from '../../../control-plane/cli/table.ts';
import { runReachctl } from '../../../control-plane/cli/program.ts';
import { FakeSidecar, OPERATOR, Plane, VIEWER } from '../../support/control-plane.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

const ORDER = 'crm.order.query';
let server = '';
let sidecar: FakeSidecar;
const folder = mkdtempSync(join(tmpdir(), 'reach-cli-'));
t.teardown(() => rmSync(folder, { recursive: true, force: true }));

const file = (name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};
const GOOD = file('good.yaml', 'policies:\n  - capability: crm.*\n    timeout: 3s\n');
const BAD = file('bad.yaml', 'policies:\n  - capability: crm.*\n    timeuot: 3s\n    timeout: 3\n');

interface Ran {
  readonly exit: number;
  readonly out: string;
  readonly err: string;
}

async function run(args: readonly string[], env: Readonly<Record<string, string>> = {}, input = ''): Promise<Ran> {
  const out: string[] = [];
  const err: string[] = [];
  const exit = await runReachctl(
    args,
    {
      out: (text) => out.push(text),
      err: (text) => err.push(text),
      env: { REACH_SERVER: server, REACH_TOKEN: OPERATOR, ...env },
      clock: realClock,
      stdin: async () => input,
    },
    '1.2.3',
  );
  return { exit, out: out.join('\n'), err: err.join('\n') };
}

t.before(async () => {
  const nats = await NatsServer.start(t);
  const plane = await Plane.start(t, nats);
  await plane.leads();
  server = plane.url;
  sidecar = await FakeSidecar.join(nats, 'order-a', { 'crm.order.a': [`${ORDER}@2.0.0`], 'crm.order.b': [`${ORDER}@2.1.0`] });
  await sidecar.hello();
  sidecar.report({ appliedSeq: 1_000, refused: [{ tail: 'cap.x.y.z', seq: 3, why: 'two providers of one name' }] });
});

t.test('what people read are columns, what programs read is JSON', async (t) => {
  const list = await run(['providers', 'list', '--capability', ORDER]);
  t.equal(list.exit, 0);
  t.match(list.out, /^AGENT +STATUS +SIDECAR +OFFERS/);
  t.match(list.out, /^crm\.order\.a +online +order-a +crm\.order\.query@2\.0\.0 +1 +primary/m);
  const json = await run(['providers', 'list', '--json']);
  t.match(JSON.parse(json.out), { providers: [{ agent: 'crm.order.a' }, { agent: 'crm.order.b' }] });
  t.match((await run(['capabilities', 'list'])).out, /^crm\.order\.query +2\.1\.0 2\.0\.0/m);
  const shown = await run(['capabilities', 'show', ORDER]);
  t.match(shown.out, /WHO MAY CALL/);
  t.match(shown.out, /crm\.order\.b/);
  const leader = await run(['leader']);
  t.match(leader.out, /^cp-1 leads \(term 1/);
});

t.test('orders say where they are in force', async (t) => {
  t.match(
    (await run(['providers', 'drain', 'crm.order.a', '--reason', 'new build'])).out,
    /^crm\.order\.a: draining, .*in force at sequence \d+$/,
  );
  t.match((await run(['providers', 'list'])).out, /^crm\.order\.a +online, draining .*set by an operator$/m);
  t.match((await run(['providers', 'weight', 'crm.order.b', '3'])).out, /weight 3; in force/);
  t.match((await run(['providers', 'weight', 'crm.order.b', 'record'])).out, /weight as in its record/);
  t.match((await run(['providers', 'restore', 'crm.order.a'])).out, /not drained/);
  t.match((await run(['canary', ORDER, '2.1.0=5%', '2.0.0=0.95'])).out, /2\.1\.0 5%, 2\.0\.0 95%; in force/);
  t.match((await run(['canary', ORDER, '--clear'])).out, /no split/);
  t.match((await run(['audit'])).out, /ada +provider\.drain +crm\.order\.a +new build/);
});

t.test('the document: every mistake has its place, nothing is changed by a bad one', async (t) => {
  const bad = await run(['policies', 'apply', BAD]);
  t.equal(bad.exit, 1);
  t.match(bad.err, new RegExp(`^reachctl: ${BAD}:3:5: unknown key "timeuot": did you mean timeout\\?$`, 'm'));
  t.match(bad.err, new RegExp(`^reachctl: ${BAD}:4:14: .*has no unit`, 'm'));
  t.match(bad.err, /nothing was changed: there are 2 mistakes/);
  const machine = await run(['--json', 'apply', BAD]);
  t.match(JSON.parse(machine.out), { code: 4003, problems: [{ line: 3, column: 5 }, { line: 4 }] });
  t.match((await run(['policies', 'diff', GOOD])).out, /\+ policy crm\.\*\n +timeout: 3s\n.*nothing was changed/);
  t.match((await run(['policies', 'apply', GOOD, '--dry-run'])).out, /nothing was changed/);
  t.match((await run(['policies', 'show'])).out, /nothing has been applied yet/);
  t.match((await run(['policies', 'apply', GOOD, '--note', 'slower'])).out, /version 1 is in force at sequence \d+$/);
  t.match((await run(['policies', 'apply', GOOD])).out, /nothing changed/);
  t.match((await run(['apply', '-'], {}, readFileSync(GOOD, 'utf8').replace('3s', '4s'))).out, /version 2 is in force/);
  t.match((await run(['policies', 'show'])).out, /^# version 2, ada, .*\npolicies:\n[^]*4s$/);
  t.match((await run(['policies', 'show', '1'])).out, /3s/);
  t.match((await run(['policies', 'history'])).out, /^2 +\S+ +ada +apply +\*/m);
  t.match((await run(['policies', 'history'])).out, /^1 .*slower$/m);
  t.match((await run(['policies', 'rollback', '1'])).out, /version 3 is in force/);
  const staged = await run(['policies', 'apply', '-', '--share', '50%'], {}, 'policies:\n  - capability: crm.*\n    timeout: 9s\n');
  t.match(staged.out, /version 4 is rolled out to 50%: in force on \d of \d/);
  t.match((await run(['policies', 'widen', '0.8'])).out, /80%/);
  t.match((await run(['fleet'])).out, /version 4 is rolled out to 80%/);
  t.match((await run(['policies', 'halt'])).out, /the roll-out is over; version 3/);
  t.equal((await run(['policies', 'promote'])).exit, 1);
});

t.test('the fleet: who is where, who refuses what; scripts can ask for the verdict alone', async (t) => {
  const shown = await run(['fleet']);
  t.equal(shown.exit, 0);
  t.match(shown.out, /^order-a +current +1000\/\d+ +0 /m);
  t.match(shown.out, /order-a refuses cap\.x\.y\.z \(sequence 3\): two providers of one name/);
  t.equal((await run(['sidecars', 'list'])).exit, 0);
  const checked = await run(['fleet', '--check']);
  t.equal(checked.exit, 1);
  t.match(checked.err, /1 refuse something/);
  sidecar.report({ appliedSeq: 1_000 });
  await waitUntil('the fleet is well', async () => (await run(['fleet', '--check'])).exit === 0);
});

t.test('explain shows what a live sidecar says', async (t) => {
  sidecar.answer = () => ({
    wire: 1,
    ok: true,
    explanation: {
      would_serve: { provider: 'crm.order.a', version: '2.0.0' },
      refusal: null,
      decision: [{ stage: 'resolve', words: 'two versions match' }],
      candidates: [
        { agent_id: 'crm.order.a', version: '2.0.0', verdict: 'serves', because: 'least in flight' },
        { agent_id: 'crm.order.b', version: '2.1.0', verdict: 'left_out', because: 'its breaker is open' },
      ],
    },
  });
  const shown = await run(['explain', `${ORDER}@^2.0`, '--sidecar', 'order-a', '--as', 'crm.front.x', '--header', 'Reach-Affinity: c1']);
  t.match(shown.out, /^crm\.order\.a would serve version 2\.0\.0/);
  t.match(shown.out, /^crm\.order\.b +2\.1\.0 +left out +its breaker is open$/m);
  t.match(shown.out, /^resolve +two versions match$/m);
  t.equal((await run(['explain', ORDER, '--sidecar', 'order-a', '--header', 'nonsense'])).exit, 2);
});

t.test('watch goes on until told to stop', async (t) => {
  const watching = run(['watch', '--count', '2', '--json']);
  await waitUntil('an event to be seen', async () => {
    await run(['providers', 'drain', 'crm.order.a']);
    await run(['providers', 'restore', 'crm.order.a']);
    return (await Promise.race([watching.then(() => true), realPause()])) === true;
  });
  const { exit, out } = await watching;
  t.equal(exit, 0);
  const lines = out.split('\n').map((line) => JSON.parse(line) as Record<string, unknown>);
  t.equal(lines.length, 2);
  t.match(lines[0], { event: 'stored', tail: String, seq: Number });
  t.equal((await run(['watch', '--count', 'x'])).exit, 2);
});

const realPause = (): Promise<false> => new Promise((done) => void realClock.after(20, () => done(false)));

t.test('an export is a file for nobody else, and can be taken in again', async (t) => {
  const out = join(folder, 'export.json');
  t.equal((await run(['export', '--out', out])).exit, 0);
  t.equal(statSync(out).mode & 0o077, 0);
  t.match(JSON.parse((await run(['export'])).out), { kind: 'agent-reach-export' });
  t.match((await run(['import', out])).out, /^0 sidecars taken in; version 3/);
  t.equal((await run(['import', BAD])).exit, 1);
  t.equal((await run(['import', join(folder, 'none.json')])).exit, 2);
});

t.test('exit codes: 1 refused, 2 not understood, 3 nobody there; each with one clear sentence', async (t) => {
  const cases: readonly (readonly [readonly string[], Readonly<Record<string, string>>, number, RegExp])[] = [
    [['providers', 'drain', 'crm.order.aa'], {}, 1, /did you mean crm\.order\.a\?/],
    [['providers', 'drain', 'crm.order.a'], { REACH_TOKEN: VIEWER }, 1, /may look but not change/],
    [['fleet'], { REACH_TOKEN: 'wrong-token' }, 1, /does not know this token/],
    [['confirm'], {}, 1, /nothing is held back/],
    [['provders', 'list'], {}, 2, /unknown command 'provders'/],
    [['providers', 'drain'], {}, 2, /missing required argument/],
    [['providers', 'list', '--colour'], {}, 2, /unknown option/],
    [['providers', 'weight', 'crm.order.a', 'much'], {}, 2, /number of 0 or more/],
    [['canary', ORDER], {}, 2, /needs VERSION=SHARE/],
    [['canary', ORDER, '2.1.0=5%', '--clear'], {}, 2, /leave one of them out/],
    [['stop-bleeding', '--everything', '--yes', '--reason', 'x', '--env', 'staging'], {}, 2, /--env goes with --nats/],
    [['override', 'list', '--nkey', 'ann.nk'], {}, 2, /--nkey goes with --nats/],
    [['override', 'lift', 'x', '--as', 'ann'], {}, 2, /--as goes with --nats/],
    [['rules', 'test', 'a.yaml', '--messages', 'm', '--against', 'b.yaml', '--in-force'], {}, 2, /leave one of them out/],
    [['shift', ORDER, '2.1.0=5%', '--no-guard', '--min-calls', '9'], {}, 2, /are of the guard/],
    [['canary', ORDER, '2.1.0=150%'], {}, 2, /must be a share/],
    [['policies', 'apply', join(folder, 'none.yaml')], {}, 2, /cannot be read \(ENOENT\)/],
    [['policies', 'rollback', 'first'], {}, 2, /whole number/],
    [['fleet', '--timeout', '5'], {}, 2, /no unit/],
    [['fleet', '--server', 'ftp://x'], {}, 2, /not an address/],
    [['fleet'], { REACH_SERVER: 'http://127.0.0.1:3' }, 3, /cannot be reached \(ECONNREFUSED\)/],
    [['schema', 'nonsense'], {}, 2, /there is a schema for/],
    [['completion', 'tcsh'], {}, 2, /completion is for/],
  ];
  for (const [args, env, exit, words] of cases) {
    const ran = await run(args, env);
    t.equal(ran.exit, exit, args.join(' '));
    t.match(ran.err, words, args.join(' '));
    t.match(ran.err, /^reachctl: /);
    t.equal(ran.out, '');
  }
  t.equal((await run(['--help'])).exit, 0);
  t.match((await run(['--help'])).out, /Exit codes/);
  t.equal((await run(['--version'])).out, '1.2.3');
});

t.test('it follows the way to the leader, but not round in a circle', async (t) => {
  const other = createServer((request, response) => {
    const location = request.url === '/v1/sidecars' ? '/v1/sidecars' : `${server}${request.url ?? ''}`;
    response
      .writeHead(307, { location: location.startsWith('/') ? `http://${request.headers.host ?? ''}${location}` : location })
      .end('{}');
  });
  await new Promise<void>((done) => other.listen(0, '127.0.0.1', done));
  t.teardown(() => void other.close());
  const REACH_SERVER = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
  t.match((await run(['leader'], { REACH_SERVER })).out, /^cp-1 leads/);
  const circle = await run(['fleet'], { REACH_SERVER });
  t.equal(circle.exit, 3);
  t.match(circle.err, /in a circle/);
});

t.test('a server that does not answer, or is none of ours, is said to be so', async (t) => {
  const odd = createServer((request, response) => {
    if (request.url?.startsWith('/v1/leader') === true) response.end('<html>');
  });
  await new Promise<void>((done) => odd.listen(0, '127.0.0.1', done));
  t.teardown(() => {
    odd.closeAllConnections();
    odd.close();
  });
  const REACH_SERVER = `http://127.0.0.1:${(odd.address() as AddressInfo).port}`;
  const silent = await run(['fleet', '--timeout', '100ms'], { REACH_SERVER });
  t.equal(silent.exit, 3);
  t.match(silent.err, /does not answer within 0\.1 s/);
  const html = await run(['leader'], { REACH_SERVER });
  t.equal(html.exit, 1);
  t.match(html.err, /is it a control plane\?/);
});

t.test('completion knows the commands, their options, and the names that exist', async (t) => {
  const complete = async (...words: string[]): Promise<string[]> => (await run(['complete', '--', ...words])).out.split('\n');
  t.same(await complete('prov'), ['providers']);
  t.same(await complete('providers', 'd'), ['drain']);
  t.same(await complete('providers', 'drain', ''), ['crm.order.a', 'crm.order.b']);
  t.same(await complete('providers', 'drain', 'crm.order.b'), ['crm.order.b']);
  t.same(await complete('canary', ''), [ORDER]);
  t.same(await complete('explain', ORDER, '--sidecar', ''), ['order-a']);
  t.same((await complete('policies', 'rollback', '')).slice(-3), ['3', '2', '1']);
  t.same(await complete('providers', 'list', '--st'), ['--state']);
  t.same(await complete('providers', 'list', '--state', 'o'), ['online', 'offline', 'overdue']);
  t.same(await complete('--server', 'x', 'completion', ''), ['bash', 'zsh', 'fish']);
  t.same(await complete('compl'), ['completion'], 'its own helper is not offered');
  t.same(
    (await run(['complete', '--', 'providers', 'drain', ''], { REACH_SERVER: 'http://127.0.0.1:3' })).out,
    '',
    'nobody there: nothing, and no noise',
  );
  for (const shell of ['bash', 'zsh', 'fish']) t.match((await run(['completion', shell])).out, /reachctl complete/);
});

t.test('schemas for editors', async (t) => {
  t.match(JSON.parse((await run(['schema'])).out), { title: 'Agent-Reach policies', properties: { policies: {}, contracts: {} } });
  t.match(JSON.parse((await run(['schema', 'control-plane'])).out), { properties: { control_plane: {} } });
});

t.test('columns, ages and shares', async (t) => {
  t.equal(
    table(
      ['A', 'LONG'],
      [
        ['x', null],
        ['größer', 12],
      ],
    ),
    'A       LONG\nx       -\ngrößer  12',
  );
  t.equal(table(['A'], [['\u001b[2Jx\n']]), 'A\n\\u001b[2Jx\\u000a', 'nothing in a cell moves the cursor');
  t.same([0, 999, 1_000, 61_000, 120_000, 3_660_000, 7_200_000, 259_200_000, null].map(ago), [
    '0ms',
    '999ms',
    '1s',
    '1m 1s',
    '2m',
    '1h 1m',
    '2h',
    '3d',
    '-',
  ]);
  t.same([when(0), when(1_700_000_000_000)], ['-', '2023-11-14T22:13:20Z']);
  t.same([percent(0.05), percent(0.123456), percent(null)], ['5%', '12.35%', '-']);
});
