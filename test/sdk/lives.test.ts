/** What an agent of an SDK lives through: its sidecar restarts, it is asked to stop in the midst of work, another takes its place, a registry. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHttp } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import t, { type Test } from 'tap';
import { WebSocketServer } from 'ws';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { Reach, ReachError } from '../../sdk/typescript/index.ts';
import { Plane } from '../support/control-plane.ts';
import { NatsServer } from '../support/nats.ts';
import { type Peer, startPython } from '../support/peers.ts';
import { CALLER, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { type NodeAgent, startNodeAgent } from './node-agent.ts';
import { CALLERS, type Language, tableOf, tokenOf } from './served.ts';

t.setTimeout(110_000);

function clientOf(t: Test, rig: Rig): Reach {
  const reach = new Reach({ url: rig.url, token: TOKEN });
  t.teardown(() => reach.close());
  return reach;
}

const answers = async (reach: Reach, language: Language): Promise<boolean> =>
  (await reach.call(`${language}.work.echo`, 1, { deadlineMs: 1_000 })).ok;

/** Free a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  await new Promise<void>((done) => server.close(() => done()));
  return port;
}

function pythonOn(t: Test, url: string, how = 'channel'): Promise<Peer> {
  return startPython(t, 'test/sdk/python_agent.py', [url, tokenOf('python'), how]);
}

t.test('a sidecar that restarts has its agents back by themselves', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-sdk-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const options = { table: tableOf({ node: 0, python: 0 }), callers: CALLERS, folder };
  const first = await Rig.start(t, options);
  const { lines } = await startNodeAgent(t, first.url, tokenOf('node'), null);
  const python = await pythonOn(t, first.url);
  const listen = new URL(first.url).host;
  const reach = clientOf(t, first);
  t.ok((await answers(reach, 'node')) && (await answers(reach, 'python')));
  await first.stop();
  t.match(await reach.call('node.work.echo', 1), {
    ok: false,
    code: 1001,
    error: { name: 'connect_timeout', ambiguous: false, retryable: true },
  });
  await waitUntil('both have noticed', () => lines.some((line) => /is lost/.test(line)) && /is lost/.test(python.words));
  await Rig.start(t, { ...options, listen });
  for (const language of ['node', 'python'] as const) await waitUntil(`${language} is back`, () => answers(reach, language), 8_000, 50);
  // Said when the sidecar has welcomed them, which may be after it has given them a call.
  await waitUntil('both say so', () => lines.some((line) => /dialled in again/.test(line)) && /dialled in again/.test(python.words));
});

/** Between agent and sidecar: `freeze` keeps what is open open, and lets nothing through it any more. */
class Between {
  readonly #pairs: [Socket, Socket][] = [];
  readonly #server: Server;
  #isFrozen = false;

  static async start(t: Test, port: number): Promise<Between> {
    const between = new Between(port);
    await new Promise<void>((done) => between.#server.listen(0, '127.0.0.1', done));
    t.teardown(() => {
      between.#server.close();
      for (const pair of between.#pairs) for (const socket of pair) socket.destroy();
    });
    return between;
  }

  private constructor(port: number) {
    this.#server = createServer((from) => {
      const to = connect(port, '127.0.0.1');
      const pair: [Socket, Socket] = [from, to];
      this.#pairs.push(pair);
      const isOld = (): boolean => this.#isFrozen && this.#pairs.indexOf(pair) < this.#frozenBefore;
      from.on('data', (data) => isOld() || to.write(data)).on('error', () => {});
      to.on('data', (data) => isOld() || from.write(data)).on('error', () => {});
      from.on('close', () => to.destroy());
      to.on('close', () => isOld() || from.destroy());
    });
  }

  #frozenBefore = 0;

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  freeze(): void {
    this.#isFrozen = true;
    this.#frozenBefore = this.#pairs.length;
  }
}

t.test('an agent whose sidecar has fallen silent notices, and an idle one is not taken for gone', async (t) => {
  // Wide enough that a process which a busy machine does not let run for a second is not taken for a silent one.
  const settings = '  channel: {heartbeat: 400ms, offline_after: 1600ms}';
  const rig = await Rig.start(t, { table: tableOf({ node: 0, python: 0 }), callers: CALLERS, settings });
  const [one, two] = [await Between.start(t, rig.port), await Between.start(t, rig.port)];
  const { lines } = await startNodeAgent(t, one.url, tokenOf('node'), null);
  const python = await pythonOn(t, two.url);
  const reach = clientOf(t, rig);
  await new Promise((done) => setTimeout(done, 2_400));
  t.ok((await answers(reach, 'node')) && (await answers(reach, 'python')), 'after more idleness than an agent may be silent');
  t.strictSame([lines.length, /lost/.test(python.words)], [0, false], 'on the first connection');
  one.freeze();
  two.freeze();
  await waitUntil('both have noticed', () => lines.some((line) => /is lost/.test(line)) && /is lost/.test(python.words), 10_000);
  for (const language of ['node', 'python'] as const) await waitUntil(`${language} is back`, () => answers(reach, language), 8_000, 50);
});

t.test('an agent that is asked to stop finishes what it has begun', async (t) => {
  for (const way of ['channel', 'port'] as const) {
    for (const language of ['node', 'python'] as const) {
      await t.test(`${language}, ${way}`, async (t) => {
        const first = await Rig.start(t, { table: 'contracts: []\n' });
        const listen = new URL(first.url).host;
        await first.stop();
        const start = async (url: string): Promise<{ port: number; stop(): Promise<void> }> => {
          if (language === 'node') {
            const agent: NodeAgent = await startNodeAgent(t, url, tokenOf('node'), way === 'port' ? 0 : null);
            return { port: agent.port, stop: () => agent.reach.close() };
          }
          const peer = await pythonOn(t, url, way === 'port' ? '0' : 'channel');
          return { port: peer.port, stop: () => peer.stop() };
        };
        const before = way === 'port' ? await start(`http://${listen}`) : null;
        const rig = await Rig.start(t, { table: tableOf({ [language]: before?.port ?? 0 }), callers: CALLERS, listen });
        const agent = before ?? (await start(rig.url));
        const reach = clientOf(t, rig);
        const work = reach.call<{ hung: boolean }>(`${language}.work.hang`, { ms: 1_500 });
        const stream = reach.stream(`${language}.work.count`, { n: 5, pause_ms: 250 });
        await stream.head();
        await waitUntil('it is under way', () => rig.quiet.inFlight() >= 2);
        // Under way at the sidecar; the agent has it a moment later.
        await new Promise((done) => setTimeout(done, 300));
        const stopped = agent.stop();
        t.match(await work, { ok: true, data: { hung: true } });
        let text = '';
        for await (const piece of stream) text += piece;
        t.equal(text, '0 1 2 3 4 ', 'a stream too');
        await stopped;
        const late = await reach.call(`${language}.work.echo`, 1);
        t.notOk(late.ok);
        t.strictSame(
          late.attempts.filter(({ started }) => started !== 'not_started'),
          [],
          'what comes later never starts',
        );
      });
    }
  }
});

t.test('an agent that is looking for its sidecar can be stopped', async (t) => {
  const rig = await Rig.start(t, { table: tableOf({ node: 0, python: 0 }), callers: CALLERS });
  const node = await startNodeAgent(t, rig.url, tokenOf('node'), null);
  const python = await pythonOn(t, rig.url);
  await rig.stop();
  await waitUntil('both look', () => /trying again/.test(node.lines.join()) && /trying again/.test(python.words));
  const began = performance.now();
  await Promise.all([node.reach.close(), python.stop()]);
  t.ok(performance.now() - began < 2_500, 'at once, and not by force');
});

t.test('a sidecar that takes the connection and says nothing is not waited for', async (t) => {
  const http = createHttp((request, response) => {
    request.resume();
    response.writeHead(201, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ url: `ws://${request.headers.host}/v1/channel`, ticket: 'one' }));
  });
  const silent = new WebSocketServer({ server: http });
  let connections = 0;
  silent.on('connection', () => connections++);
  await new Promise<void>((done) => http.listen(0, '127.0.0.1', done));
  t.teardown(() => {
    for (const client of silent.clients) client.terminate();
    silent.close();
    http.closeAllConnections();
    http.close();
  });
  const clock = new VirtualClock();
  const lines: string[] = [];
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  const agent = new Reach({ url, token: 'any', clock, log: (line) => lines.push(line) });
  agent.serve('node.work.echo@1.0.0', () => 1);
  const starting = agent.start().catch((error: unknown) => error);
  await waitUntil('it has dialled in', () => connections === 1);
  await waitUntil('it has lost patience', async () => {
    await clock.advanceTo(clock.now() + 1_000);
    return lines.length > 0;
  });
  t.match(lines, [/trying again/]);
  await waitUntil('it tries again', async () => {
    await clock.advanceTo(clock.now() + 100);
    return connections > 1 && silent.clients.size > 0;
  });
  await agent.close();
  t.match(await starting, { message: /closed before it was open/ });
  await waitUntil('and leaves no connection behind', () => silent.clients.size === 0);
});

t.test('an agent whose place is taken by another process does not fight for it', async (t) => {
  const rig = await Rig.start(t, { table: tableOf({ node: 0 }), callers: CALLERS });
  const make = async (name: string): Promise<{ reach: Reach; ended: Promise<unknown> }> => {
    const reach = new Reach({ url: rig.url, token: tokenOf('node'), log: () => {} });
    reach.serve('node.work.echo@1.0.0', () => name);
    t.teardown(() => reach.close());
    const serving = await reach.start();
    return { reach, ended: serving.closed.then(() => 'closed').catch((error: unknown) => error) };
  };
  const older = await make('older');
  await make('newer');
  t.match(await older.ended, { name: 'blocked_by_operator', message: /has taken its place/ });
  t.equal((await clientOf(t, rig).invoke('node.work.echo')).data, 'newer');
});

t.test('an agent that does not stand in the table is told that nobody will call it', async (t) => {
  const rig = await Rig.start(t, { table: tableOf({ node: 0 }), callers: CALLERS });
  const lines: string[] = [];
  const agent = new Reach({ url: rig.url, token: tokenOf('node'), log: (line) => lines.push(line) });
  t.teardown(() => agent.close());
  agent.serve('node.work.echo@1.0.0', () => 1).serve('node.work.other@1.0.0', () => 1);
  await agent.start();
  t.match(lines, [/nobody is sent here for node\.work\.other@1\.0\.0/]);
  t.equal(lines.length, 1, 'and what stands there is not complained of');
  const python = await pythonOn(t, rig.url);
  await waitUntil('it is said', () => /nobody is sent here for python\.work\.echo@1\.0\.0/.test(python.words));
});

t.test('an agent on a port of its own that does not stand in the table is told so as well, once', async (t) => {
  const port = await freePort();
  const rig = await Rig.start(t, { table: tableOf({ node: port }), callers: CALLERS });
  const lines: string[] = [];
  const agent = new Reach({ url: rig.url, token: tokenOf('node'), log: (line) => lines.push(line) });
  t.teardown(() => agent.close());
  agent.serve('node.work.echo@1.0.0', () => 1).serve('node.work.other@1.0.0', () => 1);
  await agent.start({ port });
  t.match(lines, [
    /nobody is sent here for node\.work\.other@1\.0\.0: .* with endpoint \{type: http, address: "http:\/\/127\.0\.0\.1:\d+"\}/,
  ]);
  t.equal(lines.length, 1, 'and what stands there is not complained of');
  const python = await pythonOn(t, rig.url, '0');
  await waitUntil('it is said', () => /nobody is sent here for python\.work\.echo@1\.0\.0/.test(python.words));
  // One that stands there for a channel is not called on a port either.
  const other = await Rig.start(t, { table: tableOf({ node: 0 }), callers: CALLERS });
  const wrong = await startNodeAgent(t, other.url, tokenOf('node'), 0);
  t.match(wrong.lines[0], /nobody is sent here for node\.work\.echo@1\.0\.0/);
});

t.test('without a token the way to give one is named', async (t) => {
  const rig = await Rig.start(t, { table: tableOf({ node: 0 }), callers: CALLERS });
  const nobody = new Reach({ url: rig.url, token: '' });
  t.teardown(() => nobody.close());
  const words = /; no token was sent: set REACH_TOKEN, or the option token/;
  await t.rejects(nobody.invoke('node.work.echo'), { code: 4001, message: words });
  await t.rejects(nobody.stream('node.work.echo').head(), { code: 4001, message: words });
  await t.rejects(nobody.capabilities(), { code: 4001, message: words });
  await t.rejects(startNodeAgent(t, rig.url, '', null), { code: 4001, message: words });
  const foreign = await new Reach({ url: rig.url, token: 'nobody' }).call('node.work.echo');
  t.equal(foreign.code, 4001);
  t.notMatch(foreign.error?.detail, /REACH_TOKEN/, 'one was sent');
  await t.rejects(
    startPython(t, 'test/sdk/python_agent.py', [rig.url, '', 'channel']),
    /no token was sent: set REACH_TOKEN, or give token=/,
  );
});

t.test('an error that nobody catches prints its words and where it came from, not the whole Result', async (t) => {
  const rig = await Rig.start(t, { table: tableOf({ node: 0 }), callers: CALLERS });
  const error = await clientOf(t, rig)
    .invoke('node.work.echo')
    .catch((failure: unknown) => failure as ReachError);
  t.type(error, ReachError);
  const printed = inspect(error);
  const { result } = error as ReachError;
  t.equal(printed.split('\n')[0], `${result.error.name}: ${result.error.detail} (${result.code})`);
  t.ok(
    printed
      .split('\n')
      .slice(1)
      .every((line) => line.startsWith('    at ')),
    printed,
  );
  t.equal(result.ok, false, 'it is still there for whoever looks');
});

t.test('a credential that is not known is said at once, and not tried for ever', async (t) => {
  const rig = await Rig.start(t, { table: tableOf({ node: 0 }), callers: CALLERS });
  await t.rejects(startNodeAgent(t, rig.url, 'nobody', null), { code: 4001, name: 'unauthenticated' });
  await t.rejects(startPython(t, 'test/sdk/python_agent.py', [rig.url, 'nobody', 'channel']), /4001 unauthenticated/);
});

t.test('with a registry an agent registers what it serves, and takes leave', async (t) => {
  const nats = await NatsServer.start(t);
  const plane = await Plane.start(t, nats);
  await plane.leads();
  const folder = mkdtempSync(join(tmpdir(), 'reach-sdk-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const options = { table: 'contracts: []\n', callers: CALLERS, folder, settings: `  registry: {nats: "${nats.url}", env: test}` };
  let rig = await Rig.start(t, options);
  await waitUntil('the sidecar knows its registry', async () => (await rig.ask('/v1/ready')).status === 200, 10_000);
  const make = (language: Language): Reach => {
    const reach = new Reach({ url: rig.url, token: tokenOf(language), log: () => {} });
    t.teardown(() => reach.close());
    return reach;
  };
  const byPort = make('node').serve('sdk.text.count@1.0.0', (text: string) => text.length, {
    acl: 'public',
    execution: 'idempotent',
    description: 'Counts letters.',
  });
  const byChannel = make('python').serve('sdk.text.turn@1.0.0', (text: string) => text.split('').reverse().join(''), { acl: [CALLER] });
  await byPort.start({ port: 0 });
  await byChannel.start();
  let reach = clientOf(t, rig);
  const both = async (): Promise<boolean> =>
    (await reach.call('sdk.text.count', 'four')).data === 4 && (await reach.call('sdk.text.turn', 'four')).data === 'ruof';
  await waitUntil('both can be called', both, 10_000, 50);
  const [count] = (await reach.capabilities()).filter(({ name }) => name === 'sdk.text.count');
  t.match(
    count,
    { versions: [{ version: '1.0.0', execution: 'idempotent', description: 'Counts letters.' }] },
    'the contract is as it was written',
  );
  const other = new Reach({ url: rig.url, token: 'token-of-the-helper' });
  t.teardown(() => other.close());
  t.match(await other.call('sdk.text.turn', 'x'), { ok: false, code: 4002 }, 'and so is its acl');

  const outer = t;
  await t.test('after a restart of the sidecar it registers again', async (t) => {
    const listen = new URL(rig.url).host;
    await rig.stop();
    rig = await Rig.start(outer, { ...options, listen });
    reach = clientOf(outer, rig);
    await waitUntil('both can be called again', both, 20_000, 100);
    t.pass('they are back');
    await byPort.close();
    await byChannel.close();
    await waitUntil(
      'nobody serves it',
      async () => !(await reach.call('sdk.text.count', 'x')).ok && !(await reach.call('sdk.text.turn', 'x')).ok,
      10_000,
      50,
    );
  });

  await t.test('what the registry refuses is an error with its words', async (t) => {
    const bad = make('node').serve('sdk.text.bad@1.0.0', () => 1, { acl: 'public', executon: 'once' });
    await t.rejects(bad.start({ port: 0 }), { code: 4003, message: /unknown key "executon": did you mean execution/ });
  });
});
