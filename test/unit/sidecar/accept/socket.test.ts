import { execFile } from 'node:child_process';
import { chmodSync, existsSync, lstatSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Code } from '../../../../proto/wire/codes.ts';
import { Reach } from '../../../../sdk/typescript/index.ts';
import { readSidecarConfig } from '../../../../sidecar/config.ts';
import { TestAgent } from '../../../support/agent.ts';
import { ChannelPeer } from '../../../support/channel-peer.ts';
import { GrpcClient } from '../../../support/grpc-client.ts';
import { CALLER, Rig, type RigOptions, TOKEN } from '../../../support/rig.ts';
import { waitUntil } from '../../../support/settle.ts';

t.setTimeout(30_000);

const NAME = 'crm.order.query';
const API_TOKEN = 'token-of-the-port';

function folderOf(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'rs-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function started(t: Test, options: Partial<RigOptions> = {}): Promise<{ rig: Rig; agent: TestAgent }> {
  const agent = await TestAgent.listen('order');
  t.teardown(() => agent.close());
  const table = `contracts:
  - {name: ${NAME}, version: "2.0.0", acl: public, execution: idempotent}
  - {name: crm.order.spell, version: "1.0.0", acl: public, execution: idempotent}
providers:
  - {agent_id: crm.order.1, via: one, offers: ["${NAME}@2.0.0"], endpoint: {type: http, address: "${agent.url}"}}
  - {agent_id: ${CALLER}, via: one, offers: ["crm.order.spell@1.0.0"], endpoint: {type: channel}}
`;
  const rig = await Rig.start(t, { table, ...options });
  return { rig, agent };
}

function ask(socketPath: string, path: string, headers: Readonly<Record<string, string>> = {}): Promise<{ status: number; text: string }> {
  return new Promise((done, fail) => {
    const request = httpRequest(
      { socketPath, path, method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${TOKEN}`, ...headers } },
      (response) => {
        let text = '';
        response.on('data', (data) => (text += data));
        response.on('end', () => done({ status: response.statusCode ?? 0, text }));
      },
    );
    request.on('error', fail);
    request.end('{}');
  });
}

t.test('a socket in the file system takes the place of the port', async (t) => {
  const path = join(folderOf(t), 'agents.sock');
  const { rig, agent } = await started(t, { listen: `unix:${path}` });
  t.equal(rig.url, `unix:${path}`);
  t.ok(lstatSync(path).isSocket());
  t.equal(lstatSync(path).mode & 0o777, 0o600, 'for its owner alone');
  t.strictSame(readdirSync(join(path, '..')), ['agents.sock'], 'and nothing is left of how it was made');
  t.equal((await ask(path, `/v1/invoke/${NAME}`)).status, 200);
  t.match(await ask(path, `/v1/invoke/${NAME}`, { host: 'evil.test' }), { status: 403 }, 'the guards of the port stand here too');

  await t.test('for the TypeScript client: calls, and serving over a channel', async (t) => {
    const reach = new Reach({ url: rig.url, token: TOKEN, log: () => {} });
    t.match(await reach.invoke(`${NAME}@^2.0`, { id: 7 }), { code: 0, data: { agent: 'order', payload: { id: 7 } } });
    reach.serve('crm.order.spell@1.0.0', () => ({ spelt: true }));
    const serving = await reach.start();
    await waitUntil('it is there', async () => (await reach.invoke('crm.order.spell', {})).ok, 5_000, 50);
    await serving.close();
    await reach.close();
    t.throws(() => new Reach({ url: 'unix:relative' }), /unix:\/run/);
  });

  await t.test('and for curl', async (t) => {
    const out = await new Promise<string>((done, fail) =>
      execFile(
        'curl',
        [
          '-s',
          '--unix-socket',
          path,
          '-H',
          `Authorization: Bearer ${TOKEN}`,
          '-H',
          'Content-Type: application/json',
          '-d',
          '{"id":8}',
          `http://localhost/v1/invoke/${NAME}`,
        ],
        (error, text) => (error === null ? done(text) : fail(error)),
      ),
    );
    t.match(JSON.parse(out), { code: 0, data: { payload: { id: 8 } } });
  });

  t.ok(agent.executions >= 2);
  await rig.stop();
  t.notOk(existsSync(path), 'it goes with the process');
});

t.test('its mode is what is asked for, whatever the umask', async (t) => {
  const path = join(folderOf(t), 's');
  const umask = process.umask(0o077);
  const { rig } = await started(t, { listen: `unix:${path}`, settings: '  socket_mode: "0660"\n' });
  process.umask(umask);
  t.equal(lstatSync(path).mode & 0o777, 0o660);
  await rig.stop();
});

t.test('what stands at the place is taken away only when it is a socket that nobody listens on', async (t) => {
  const folder = folderOf(t);
  const path = join(folder, 's');
  const table = 'contracts: []\nproviders: []\n';
  const start = (): Promise<Rig> => Rig.start(t, { table, listen: `unix:${path}` });
  const first = await start();
  await t.rejects(start(), /somebody listens on the socket .* already/);
  t.equal((await ask(path, '/v1/nothing')).status, 404, 'the first one is not disturbed');
  await first.stop();
  writeFileSync(path, 'mine');
  await t.rejects(start(), /is there already and is no socket/);
  rmSync(path);
  // One whose process was killed: the file stays, and nobody listens.
  const { execFile } = await import('node:child_process');
  await new Promise<void>((done) =>
    execFile(
      process.execPath,
      ['-e', `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`],
      () => done(),
    ),
  );
  t.ok(lstatSync(path).isSocket(), 'a stale one');
  const second = await start();
  t.equal((await ask(path, '/v1/nothing')).status, 404);
  // Another process takes the place: it is not ours any more, and stays.
  rmSync(path);
  const other = createServer().listen(path);
  await new Promise((done) => other.once('listening', done));
  await second.stop();
  t.ok(existsSync(path));
  other.close();
  chmodSync(folder, 0o500);
  if (process.getuid?.() !== 0) await t.rejects(start(), /cannot be made/);
  chmodSync(folder, 0o700);
});

t.test('settings of it', async (t) => {
  const read = (lines: string) => readSidecarConfig(`sidecar:\n  name: one\n${lines}\ncontracts: []\n`, 'sidecar.yaml');
  t.match(read('  listen: unix:/run/reach/a.sock'), { config: { socket: { path: '/run/reach/a.sock', mode: 0o600 } } });
  t.match(read('  listen: 127.0.0.1:7'), { config: { socket: null, listen: { host: '127.0.0.1', port: 7 }, apiToken: null } });
  t.match(read('  listen: unix:a.sock'), { problems: [{ message: /absolute path/ }] });
  t.match(read(`  listen: unix:/${'x'.repeat(100)}`), { problems: [{ message: /at most 88 bytes/ }] });
  t.match(read('  socket_mode: "0777"'), { problems: [{ message: /0600/ }] });
  t.match(read('  api_token: {env: X}'), { config: { apiToken: { env: 'X' } } });
  t.match(read('  api_token: written-in-the-file'), { problems: [{ message: /secret itself does not stand in this file/ }] });
  t.match(
    read('  listen: unix:/a\n  anonymous: crm.a.b'),
    { config: { anonymous: 'crm.a.b' } },
    'who can open the socket may be nobody in particular',
  );
});

t.test('with a token of the port, everything but health wants it, beside the credential of the agent', async (t) => {
  process.env['SOCKET_TEST_API_TOKEN'] = API_TOKEN;
  t.teardown(() => delete process.env['SOCKET_TEST_API_TOKEN']);
  const { rig, agent } = await started(t, { settings: '  api_token: {env: SOCKET_TEST_API_TOKEN}\n  grpc: {listen: "127.0.0.1:0"}\n' });
  const shown = { 'reach-api-token': API_TOKEN };
  for (const headers of [
    {},
    { 'reach-api-token': '' },
    { 'reach-api-token': `${API_TOKEN}x` },
    { 'reach-api-token': API_TOKEN.slice(1) },
    { authorization: `Bearer ${API_TOKEN}` },
  ])
    for (const path of [`/v1/invoke/${NAME}`, '/rpc', '/v1/agents', '/metrics?x', '/nothing'])
      t.match(await rig.ask(path, { method: 'POST', headers }), { status: 401, json: { code: Code.unauthenticated } }, path);
  t.equal(agent.executions, 0);
  t.equal((await rig.invoke(NAME, { headers: shown })).status, 200);
  t.match(
    await rig.invoke(NAME, { headers: shown, token: null }),
    { status: 401, json: { detail: /no known credential|credential/ } },
    'it is no credential of an agent',
  );
  t.notOk('reach-api-token' in (agent.requests[0]?.headers ?? {}), 'and goes no further');
  for (const path of ['/v1/channel?ticket=', '/v1/channel?ticket=x'])
    t.equal((await rig.ask(path, { method: 'POST' })).status, 401, `a ticket is not given for the name of one: ${path}`);
  for (const path of ['/v1/health', '/v1/ready']) t.equal((await rig.ask(path, { token: null })).status, 200, path);
  t.equal((await rig.ask('/metrics', { token: null })).status, 401);
  t.equal((await rig.ask('/metrics', { token: API_TOKEN })).status, 200, 'a scraper may show it as it can');
  await t.rejects(ChannelPeer.dial(rig.url, TOKEN, false), /401/);
  const reach = new Reach({ url: rig.url, token: TOKEN, apiToken: API_TOKEN, log: () => {} });
  reach.serve('crm.order.spell@1.0.0', () => ({ spelt: true }));
  const serving = await reach.start();
  t.equal((await reach.invoke(NAME, {})).code, 0);
  await serving.close();
  await reach.close();
  const grpc = new GrpcClient(rig.started.grpcAddress as string);
  t.equal((await grpc.invoke({ capability: NAME, json: '{}' }, { token: TOKEN })).trailers['reach-code'], String(Code.unauthenticated));
  t.equal((await grpc.invoke({ capability: NAME, json: '{}' }, { token: TOKEN, metadata: shown })).status, 0);
  grpc.close();
  await rig.stop();
});
