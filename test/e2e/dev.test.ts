/** `make dev` as the one who tries it out meets it: what it prints works, and Ctrl-C leaves nothing behind. */
import { existsSync } from 'node:fs';
import t from 'tap';
import { waitUntil } from '../support/settle.ts';
import { startProgram } from '../support/sockets.ts';

/** Two dozen processes in all, on a machine that may be busy. */
t.setTimeout(118_000);

const JSON_TYPE = { 'content-type': 'application/json' };

t.test('`make dev` starts the team with its control plane, what it prints works, and Ctrl-C leaves nothing behind', async (t) => {
  const dev = startProgram('deploy/local/dev.ts', [], { env: { REACH_NATS_URL: '' } });
  t.teardown(() => dev.stop(20_000));
  const [, server, operator] = (await dev.said(/REACH_SERVER=(\S+) REACH_TOKEN=(\S+)/, 80_000)) as unknown as [string, string, string];
  const [, token, url] = (await dev.said(/Bearer (\S+)'.* '(http:\S+)\/v1\/invoke\/crm\.order\.query/)) as unknown as [
    string,
    string,
    string,
  ];
  const [, consoleUrl] = (await dev.said(/(http:\S+\/console\/)/)) as unknown as [string, string];
  t.match(await (await fetch(consoleUrl)).text(), /<div id="app">/, 'the console is there');
  const [, policiesFile] = (await dev.said(/npx reachctl apply (\S+)/)) as unknown as [string, string];
  const headers = { authorization: `Bearer ${token}`, 'x-session': 'me', ...JSON_TYPE };
  const answer = await fetch(`${url}/v1/invoke/crm.order.query@^2.0`, { method: 'POST', headers, body: '{"order":"1042"}' });
  t.match(await answer.json(), { code: 0, version: '2.0.0', provider: /^crm\.order\.(a1|b1)$/, data: { order: '1042', state: 'waiting' } });
  const order = await fetch(`${url}/v1/invoke/shop.order.get`, { method: 'POST', headers, body: '{"orderId":"o-1042"}' });
  t.match(await order.json(), { code: 0, provider: 'shop.order.g1', data: { orderId: 'o-1042' } }, "the shop's systems are there too");
  const [, payload, castUrl] = (await dev.said(/-d '(\{\S+\})' '(http:\S+\/v1\/cast\/\S+)'/)) as unknown as [string, string, string];
  const cast = await fetch(castUrl, { method: 'POST', headers, body: payload });
  t.match({ status: cast.status, body: await cast.json() }, { status: 202, body: { durable: 'stream', capability: 'nlp.reply.write' } });
  // What is told on the way (`received`) may be there before the end, or not.
  let entries: readonly { readonly state: string }[] = [];
  const isDone = async (): Promise<boolean> => {
    const inbox = await fetch(`${url}/v1/inbox`, { headers });
    entries = ((await inbox.json()) as { entries: typeof entries }).entries;
    return entries.some(({ state }) => state === 'done');
  };
  await waitUntil('its result is in the inbox', isDone, 20_000, 100);
  t.match(entries.at(-1), { capability: 'nlp.reply.write', state: 'done', by: 'nlp.writer.g1' });
  const reachctl = async (...args: readonly string[]): Promise<{ code: number | null; stdout: string }> => {
    const ran = startProgram('control-plane/cli/main.ts', args, { env: { REACH_SERVER: server, REACH_TOKEN: operator } });
    const { code } = await ran.ended(20_000);
    return { code, stdout: ran.stdout + ran.stderr };
  };
  t.match(await reachctl('providers', 'list'), { code: 0, stdout: /^crm\.order\.b1 +online/m });
  t.match(await reachctl('apply', policiesFile), { code: 0 });
  t.match(await reachctl('explain', 'crm.order.query@^2.0', '--sidecar', 'front', '--as', 'crm.front.f1', '--header', 'x-session:me'), {
    code: 0,
    stdout: /would serve version 2\.0\.0/,
  });
  dev.signal('SIGINT');
  t.strictSame(await dev.ended(25_000), { code: 0, signal: null });
  t.notOk(existsSync(policiesFile), 'its files are removed');
  await t.rejects(fetch(`${url}/v1/ready`), 'its sidecars are gone');
  await t.rejects(fetch(`${server}/v1/health`), 'its control plane is gone');
});
