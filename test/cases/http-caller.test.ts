/** Faults at the caller's end of the HTTP adapter: callers that leave, headers that must not pass, bodies that can be read in two ways. */
import { connect, type Socket } from 'node:net';
import t from 'tap';
import { TestAgent } from '../support/agent.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { head, RawClient } from '../support/raw-http.ts';
import { CALLER, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { headerIn, TcpStub } from '../support/tcp-stub.ts';
import { type Offered, providerOf, tableOf } from './http-table.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(110_000);
const before: Base = takeBase();
const MESH_TOKEN = 'mesh-token-of-this-test';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const accessLines = (rig: Rig): Record<string, unknown>[] => rig.logged.filter((line) => line['msg'] === 'call');

/** Answers with a stream; knows when each caller of its own left. */
class Streamer {
  agent: TestAgent | null = null;
  /** By the `n` of the payload, else in the order of arrival. */
  readonly closedAt: number[] = [];
  /** Streams that came to their own end. */
  finished = 0;
  readonly #everyMs: number;
  readonly #events: number;
  readonly #text: string;

  constructor(everyMs: number, events: number, text = '') {
    this.#everyMs = everyMs;
    this.#events = events;
    this.#text = text;
  }

  async listen(t: Test): Promise<TestAgent> {
    this.agent = await TestAgent.listen('crm.streamer.1', (request, response) => {
      const number = (request.json as { n?: number } | undefined)?.n ?? request.number - 1;
      let sent = 0;
      let timer: NodeJS.Timeout | undefined;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const next = (): void => {
        response.write(`data: ${sent}${this.#text}\n\n`);
        if (++sent >= this.#events) {
          this.finished++;
          response.end();
        } else timer = setTimeout(next, this.#everyMs);
      };
      response.on('close', () => {
        clearTimeout(timer);
        this.closedAt[number] = performance.now();
      });
      next();
      return undefined;
    });
    t.teardown(() => this.agent?.close());
    return this.agent;
  }
}

async function quiet(t: Test, rigs: readonly Rig[], agents: readonly (readonly [TestAgent | TcpStub, number])[]): Promise<void> {
  for (const rig of rigs) await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
  const counts = agents.map(([agent, expected], i) => ({ name: `provider ${i + 1}`, count: agent.requests.length, expected }));
  for (const rig of rigs) await rig.stop();
  for (const [agent] of agents) await agent.close();
  for (const rig of rigs) await rig.finish(t, before, counts);
}

/** This sidecar, and behind it the one that hosts the provider when `hops` is 2. */
async function chain(t: Test, hops: number, offered: Offered, settings = ''): Promise<[Rig, ...Rig[]]> {
  const also = settings === '' ? {} : { settings };
  if (hops === 1) return [await Rig.start(t, { table: tableOf([offered]), ...also })];
  const hosted = { ...offered, providerExtra: ['via: two'] };
  const host = await Rig.start(t, {
    name: 'two',
    meshToken: MESH_TOKEN,
    table: tableOf([hosted], 'sidecars: [{name: two, mesh: "http://127.0.0.1:1"}]\n'),
    ...also,
  });
  const first = await Rig.start(t, {
    meshToken: MESH_TOKEN,
    table: tableOf([hosted], `sidecars: [{name: two, mesh: "${host.started.meshUrl}"}]\n`),
    ...also,
  });
  return [first, host];
}

/** The bytes of a call. */
function request(path: string, headers: Readonly<Record<string, string | null>> = {}, body = '{}', method = 'POST'): string {
  const length = method === 'GET' ? {} : { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
  return head(method, path, { authorization: `Bearer ${TOKEN}`, ...length, ...headers }) + (method === 'GET' ? '' : body);
}

function breakerOf(rig: Rig, capability: string): { calls: number; failures: number; state: string; consecutive: number } {
  const { health, clock } = rig.started.front.engine;
  for (const cell of health.cells()) {
    if (cell.agentId === providerOf(capability) && cell.capability === capability)
      return {
        calls: cell.callsInWindow(clock.now()),
        failures: cell.failuresInWindow(clock.now()),
        state: cell.stateName,
        consecutive: cell.provider.consecutiveFailures,
      };
  }
  throw new Error(`no breaker for ${capability}`);
}

const UNJUDGED = { calls: 0, failures: 0, state: 'closed', consecutive: 0 };

t.test('C010 a caller that leaves a stream stops it at the provider', async (t) => {
  for (const hops of [1, 2]) {
    await t.test(hops === 1 ? 'two hundred callers that leave after two events' : "the same through the provider's sidecar", async (t) => {
      // 1 event/s for 60 s and 200 callers, as written; a hundred of them at a time. Twenty for the second way.
      const CALLERS = hops === 1 ? 200 : 20;
      const streamer = new Streamer(1_000, 60);
      const agent = await streamer.listen(t);
      const rigs = await chain(
        t,
        hops,
        {
          name: 'crm.order.watch',
          at: [agent.url],
          extra: ['deadline: 2m', 'timeout: 1m', 'limits: {per_caller: 500, per_provider: 500}'],
        },
        '  connections_per_origin: 256',
      );
      const [rig] = rigs;
      const leave = async (n: number): Promise<void> => {
        const client = await RawClient.to(rig.port);
        client.write(request('/v1/stream/crm.order.watch', n % 2 === 0 ? { accept: 'text/event-stream' } : {}, JSON.stringify({ n })));
        await client.until((text) => text.includes('data: 1\n\n'), 20_000);
        if (!client.text.includes('data: 1\n\n')) t.fail(`caller ${n} saw ${client.text}`);
        if (n % 3 === 0) client.socket.resetAndDestroy();
        else client.close();
        leftAt[n] = performance.now();
      };
      const leftAt: number[] = [];
      for (let from = 0; from < CALLERS; from += 100) {
        const many = Math.min(100, CALLERS - from);
        await Promise.all(Array.from({ length: many }, (_, i) => leave(from + i)));
        await waitUntil('the provider sees all of them leave', () => streamer.closedAt.filter((at) => at > 0).length === from + many);
      }
      const late = leftAt.map((at, n) => (streamer.closedAt[n] as number) - at);
      t.equal(late.length, CALLERS);
      t.ok(Math.max(...late) <= 500, `the provider sees it within 500 ms: at most ${Math.round(Math.max(...late))} ms`);
      t.equal(streamer.finished, 0);
      t.equal(agent.openConnections, 0, 'no connection is kept open');
      await waitUntil('everything has ended', () => rigs.every((each) => each.quiet.inFlight() === 0));
      t.equal(agent.executions, CALLERS, 'no retry was begun');
      for (const each of rigs) {
        t.same(breakerOf(each, 'crm.order.watch'), UNJUDGED, 'neither success nor failure');
        t.notMatch((await each.ask('/metrics')).bytes.toString(), /reach_retries_total\{[^}]*\} [1-9]/);
        t.same([...new Set(accessLines(each).map((line) => JSON.stringify([line['outcome'], line['code']])))], ['["cancelled",5003]']);
        t.equal(accessLines(each).length, CALLERS);
      }
      await quiet(t, rigs, [[agent, CALLERS]]);
    });
  }

  await t.test(
    'leaving at other moments: before the provider has answered, between two attempts, while waiting for a connection',
    async (t) => {
      const hanging = await TcpStub.listen(() => undefined);
      t.teardown(() => hanging.close());
      const failing = await TestAgent.listen('crm.order-query.1', () => ({ status: 503, body: {} }));
      t.teardown(() => failing.close());
      const rig = await Rig.start(t, {
        table: tableOf([
          { name: 'crm.order.hang', at: [hanging.url, hanging.url], extra: ['retry: {max: 2}'] },
          {
            name: 'crm.order.query',
            at: [failing.url, failing.url],
            extra: ['retry: {max: 2, backoff: 5s, backoff_max: 5s, min_remaining: 0%}'],
          },
        ]),
        settings: '  connections_per_origin: 1',
      });
      const leave = async (capability: string, holds: () => boolean): Promise<void> => {
        const client = await RawClient.to(rig.port);
        client.write(request(`/v1/invoke/${capability}`));
        await waitUntil('it is time to leave', holds);
        client.close();
      };
      await leave('crm.order.hang', () => hanging.requests.length === 1);
      await waitUntil('the provider sees it', () => hanging.openConnections === 0, 500);
      await leave('crm.order.query', () => failing.executions === 1);
      await waitUntil('the pause before the retry is over', () => rig.quiet.inFlight() === 0, 500);
      // One holds the only connection, one waits for it and leaves. The first leaves only after the sidecar is rid of the second:
      // a connection that came free a moment earlier would rightly go to the one that waits.
      let waiterLeft = false;
      const holder = leave('crm.order.hang', () => waiterLeft);
      await waitUntil('the connection is taken', () => hanging.requests.length === 2);
      await leave('crm.order.hang', () => rig.started.front.observation.started() === 4);
      await waitUntil('the one that waited is gone', () => rig.started.front.observation.inFlight() === 1, 500);
      waiterLeft = true;
      await holder;
      await waitUntil('all have ended', () => rig.quiet.inFlight() === 0, 1_000);
      t.equal(hanging.requests.length, 2, 'the one that waited was never sent');
      t.equal(failing.executions, 1, 'no retry for a caller that has left');
      t.same(breakerOf(rig, 'crm.order.hang'), UNJUDGED);
      t.same(
        accessLines(rig).map((line) => line['outcome']),
        ['cancelled', 'cancelled', 'cancelled', 'cancelled'],
      );
      await quiet(
        t,
        [rig],
        [
          [hanging, 2],
          [failing, 1],
        ],
      );
    },
  );
});

t.test('C011 the end of a request body is no disconnect, and a disconnect after it is one', async (t) => {
  const BODY = JSON.stringify({ text: 'x'.repeat(2_035) });
  t.equal(BODY.length, 2_046, 'about 2 KB');
  const streamer = new Streamer(250, 13);
  const agent = await streamer.listen(t);
  const slow = await TestAgent.listen('crm.order-query.1', async () => {
    await sleep(1_500);
    return { body: { slow: true } };
  });
  t.teardown(() => slow.close());
  const rig = await Rig.start(t, {
    table: tableOf([
      { name: 'crm.order.watch', at: [agent.url] },
      { name: 'crm.order.query', at: [slow.url] },
    ]),
    settings: '  ejection: {consecutive: 1000}',
  });

  const open = async (path: string, keepAlive: boolean, segments: number): Promise<RawClient> => {
    const client = await RawClient.to(rig.port);
    const headers = { accept: 'text/event-stream', connection: keepAlive ? 'keep-alive' : 'close' };
    const bytes = request(path, headers, BODY);
    const cut = bytes.length - 1_000;
    if (segments === 1) client.write(bytes);
    else {
      client.socket.setNoDelay(true);
      client.write(bytes.slice(0, cut));
      await sleep(30);
      client.write(bytes.slice(cut));
    }
    return client;
  };
  const VARIANTS = [
    [true, 1],
    [true, 2],
    [false, 1],
    [false, 2],
  ] as const;
  let calls = 0;

  // Eight streams of 3 s and eight calls of 1.5 s, all at once.
  const staying = VARIANTS.map(async ([keepAlive, segments]) => {
    const client = await open('/v1/stream/crm.order.watch', keepAlive, segments);
    const answer = await client.answer(10_000);
    const events = [...answer.body.matchAll(/^data: (\d+)$/gm)].map((match) => Number(match[1]));
    const way = `keep-alive ${keepAlive}, ${segments} segments`;
    t.same(
      events,
      Array.from({ length: 13 }, (_, i) => i),
      `A, ${way}: all events are delivered`,
    );
    t.ok(answer.isWhole);
    if (keepAlive) {
      t.notOk(client.isClosed, 'the connection is kept');
      client.write(request('/v1/invoke/crm.order.query', {}, BODY));
      calls++;
      t.equal((await client.answer(10_000)).status, 200, 'and used again');
      client.close();
    } else t.ok(await client.closed(), 'the connection is closed after the answer');
  });
  const whole = VARIANTS.map(async ([keepAlive, segments]) => {
    const client = await open('/v1/invoke/crm.order.query', keepAlive, segments);
    const answer = await client.answer(10_000);
    t.match(JSON.parse(answer.body), { code: 0, data: { slow: true } }, 'an answer that takes a while is not cancelled either');
    client.close();
  });
  await sleep(50);
  await waitUntil('all have begun', () => agent.executions === 4 && slow.executions === 4);
  t.same(
    agent.requests.map((each) => each.body.toString()),
    [BODY, BODY, BODY, BODY],
    'the body arrives as it was sent',
  );
  const leaving: number[] = [];
  // One after the other, so that each knows which of the provider's is its own.
  const begun: { client: RawClient; mine: number }[] = [];
  for (const [keepAlive, segments] of VARIANTS) {
    const mine = agent.executions;
    const client = await open('/v1/stream/crm.order.watch', keepAlive, segments);
    await waitUntil('it has begun', () => agent.executions > mine);
    begun.push({ client, mine });
  }
  await Promise.all(
    begun.map(async ({ client, mine }) => {
      await sleep(1_000);
      client.close();
      const leftAt = performance.now();
      await waitUntil('the provider sees it', () => streamer.closedAt[mine] !== undefined, 3_000);
      leaving.push((streamer.closedAt[mine] as number) - leftAt);
    }),
  );
  t.ok(
    leaving.every((ms) => ms <= 500),
    `B: cancelled within 500 ms of the close: ${leaving.map(Math.round).join(', ')}`,
  );
  const left = await Promise.all(
    VARIANTS.map(async ([keepAlive, segments]) => {
      const abandoned = slow.abandoned;
      const client = await open('/v1/invoke/crm.order.query', keepAlive, segments);
      await sleep(600);
      client.close();
      await waitUntil('the provider sees it', () => slow.abandoned > abandoned, 500);
      return true;
    }),
  );
  t.same(left, [true, true, true, true], 'B without a stream: the same');
  // Who ends its half of the connection has left as well: an answer could not be told from one to nobody.
  const half = await open('/v1/stream/crm.order.watch', true, 1);
  await half.until((text) => text.includes('data: 0'));
  half.socket.end();
  const endedAt = performance.now();
  await waitUntil('the provider sees it', () => streamer.closedAt[8] !== undefined, 3_000);
  t.ok((streamer.closedAt[8] as number) - endedAt <= 500);
  t.ok(await half.closed());
  await Promise.all([...staying, ...whole]);
  t.equal(streamer.finished, 4);
  await waitUntil('all have ended', () => rig.quiet.inFlight() === 0);
  const outcomes = accessLines(rig).map((line) => line['outcome']);
  t.equal(outcomes.filter((each) => each === 'cancelled').length, 9);
  t.equal(outcomes.filter((each) => each === 'ok').length, 8 + calls);
  await quiet(
    t,
    [rig],
    [
      [agent, 9],
      [slow, 8 + calls],
    ],
  );
});

t.test('C012 callers that leave an endless stream harm nobody', async (t) => {
  for (const accept of [null, 'text/event-stream']) {
    await t.test(accept === null ? 'as it comes' : 'as events', async (t) => {
      const agent = await TestAgent.listen('crm.order-watch.1', (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/plain' });
        const more = (): void => {
          while (!response.destroyed && response.write('0123456789'.repeat(100)));
        };
        response.on('drain', more);
        more();
        return undefined;
      });
      t.teardown(() => agent.close());
      const rig = await Rig.start(t, {
        table: tableOf([{ name: 'crm.order.watch', at: [agent.url], extra: ['limits: {per_caller: 500}'] }]),
      });
      const CALLERS = 100;
      await Promise.all(
        Array.from({ length: CALLERS }, async (_, n) => {
          const client = await RawClient.to(rig.port);
          client.write(request('/v1/stream/crm.order.watch', { accept }, '', 'GET'));
          let received = 0;
          // RawClient keeps all it gets; 10 KB are enough.
          await client.until((text) => (received = text.length) >= 10_240, 20_000);
          if (received < 10_240) t.fail(`caller ${n} got ${received} bytes`);
          if (n % 4 === 0) client.socket.resetAndDestroy();
          else if (n % 4 === 1) {
            // Half closed: it says that it is done and reads no more.
            client.socket.pause();
            client.socket.end();
            await sleep(20);
            client.close();
          } else if (n % 4 === 2) {
            // Stops reading first, so that the sidecar is waiting for room.
            client.socket.pause();
            await sleep(50);
            client.close();
          } else client.close();
        }),
      );
      await waitUntil('all streams have ended', () => rig.quiet.inFlight() === 0 && agent.openConnections === 0, 5_000);
      t.equal((await rig.ask('/v1/health')).status, 200, 'the sidecar goes on');
      const trouble = rig.logged.filter((line) => Number(line['level']) >= 40);
      t.same(trouble, [], 'nothing above info is logged');
      t.equal(rig.logged.filter((line) => line['msg'] === 'call').length, CALLERS);
      t.equal(rig.logged.filter((line) => line['msg'] !== 'call' && line['trace_id'] !== undefined).length, 0, 'one line a drop, no more');
      t.same([...new Set(accessLines(rig).map((line) => line['outcome']))], ['cancelled']);
      await quiet(t, [rig], [[agent, CALLERS]]);
    });
  }
});

t.test('C013 a call whose caller leaves gives everything back and is accounted for once', async (t) => {
  for (const hops of [1, 2]) {
    await t.test(hops === 1 ? 'fifty dropped calls, then five' : "the same through the provider's sidecar", async (t) => {
      const agent = await TestAgent.listen('crm.order-query.1', async () => {
        await sleep(1_000);
        return { body: { done: true } };
      });
      t.teardown(() => agent.close());
      const rigs = await chain(t, hops, { name: 'crm.order.query', at: [agent.url], extra: ['limits: {per_caller: 5, per_provider: 5}'] });
      const [rig] = rigs;
      let dropped = 0;
      for (let round = 0; round < 10; round++) {
        const seen = await Promise.allSettled(Array.from({ length: 5 }, () => rig.invoke('crm.order.query', { hangUpAfterMs: 100 })));
        dropped += seen.filter((each) => each.status === 'rejected').length;
        for (const each of seen)
          if (each.status === 'fulfilled') t.fail(`a dropped call was answered: ${each.value.status} ${each.value.bytes.toString()}`);
        // The next five are let in only when these are off the books; a caller's own next call is never that quick.
        await waitUntil('the sidecars have noticed', () => rigs.every((each) => each.quiet.inFlight() === 0), 2_000);
      }
      t.equal(dropped, 50);
      for (const each of rigs) {
        t.equal(each.started.front.engine.limits.inFlight(), 0, 'gauge of the caller');
        t.same(
          [...each.started.front.engine.health.providers()].map((provider) => provider.inFlight),
          [0],
          'gauge of the provider',
        );
      }
      const normal = await Promise.all(Array.from({ length: 5 }, () => rig.invoke('crm.order.query')));
      t.same(
        normal.map(({ json }) => json.code),
        [0, 0, 0, 0, 0],
        'all five are admitted',
      );
      const sixth = await Promise.all(Array.from({ length: 6 }, () => rig.invoke('crm.order.query')));
      t.same(
        sixth.map(({ json }) => json.code as number).sort((a, b) => a - b),
        [0, 0, 0, 0, 0, 3002],
        'and the limit is still five',
      );
      for (const each of rigs) {
        const lines = accessLines(each);
        t.equal(lines.filter((line) => line['outcome'] === 'cancelled').length, 50, 'one access record each');
        t.equal(new Set(lines.map((line) => line['trace_id'])).size, lines.length);
        t.match(
          (await each.ask('/metrics')).bytes.toString(),
          new RegExp(`reach_in_flight\\{way="${each === rig ? 'http' : 'mesh'}"\\} 0\n`),
        );
        t.same(breakerOf(each, 'crm.order.query'), { ...UNJUDGED, calls: 10 }, 'only whole calls are judged');
      }
      await quiet(t, rigs, [[agent, 60]]);
    });
  }
});

t.test('C015 what belongs to the connection of the caller stays there, and nothing of ours can be taken away', async (t) => {
  const HOSTILE: Readonly<Record<string, string>> = {
    connection:
      'X-Custom, X-Agent-Identity, keep-alive, traceparent, Reach-Caller, Reach-Deadline-Ms, Reach-Capability, content-type, content-length, host',
    'x-custom': '1',
    'x-agent-identity': 'admin',
    te: 'trailers',
    'keep-alive': 'timeout=9',
    'proxy-authorization': 'x',
    'proxy-connection': 'keep-alive',
    'proxy-authenticate': 'x',
    upgrade: 'foo',
    trailer: 'x-sum',
    'reach-caller': 'admin.root.1',
    'reach-path': 'admin.root.1>crm.order.create',
    'reach-version': '9.9.9',
    'reach-capability': 'crm.admin.drop',
    'reach-deadline-ms': '4000',
    'reach-anything': 'new',
    'x-kept': 'yes',
    cookie: 'a=b',
  };

  for (const hops of [1, 2]) {
    for (const way of ['invoke', 'stream']) {
      await t.test(`${way}, ${hops === 1 ? 'straight to the provider' : "through the provider's sidecar"}`, async (t) => {
        const stub = await TcpStub.listen(
          (connection) =>
            void connection.write(
              'HTTP/1.1 200 OK\r\nConnection: X-Inner, keep-alive\r\nX-Inner: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nTrailer: x-sum\r\nUpgrade: h2c\r\nReach-Code: 9001\r\nReach-Provider: evil.agent.1\r\nReach-Caller: evil.agent.1\r\nX-Outer: 2\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}',
            ),
        );
        t.teardown(() => stub.close());
        const rigs = await chain(t, hops, { name: 'crm.order.query', at: [stub.url] });
        const [rig] = rigs;
        const client = await RawClient.to(rig.port);
        client.write(
          request(`/v1/${way}/crm.order.query`, {
            ...HOSTILE,
            'reach-mode': 'raw',
            traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
          }),
        );
        const answer = await client.answer();
        t.equal(answer.status, 200, answer.body);
        const seen = stub.requests[0];
        if (seen === undefined) throw new Error('the provider was not asked');
        for (const name of [
          'x-custom',
          'x-agent-identity',
          'te',
          'keep-alive',
          'proxy-authorization',
          'proxy-connection',
          'proxy-authenticate',
          'upgrade',
          'trailer',
          'reach-anything',
          'cookie',
          'authorization',
        ])
          t.equal(headerIn(seen, name), null, `${name} does not reach the provider`);
        const connection = headerIn(seen, 'connection');
        t.ok(connection === null || connection === 'keep-alive', `the connection header is our own: ${connection}`);
        const once = (name: string): number =>
          seen.head
            .toLowerCase()
            .split('\r\n')
            .filter((line) => line.startsWith(`${name}:`)).length;
        for (const name of [
          'reach-caller',
          'reach-deadline-ms',
          'reach-deadline-total-ms',
          'traceparent',
          'reach-path',
          'reach-capability',
          'reach-version',
          'content-type',
          'content-length',
          'host',
        ])
          t.equal(once(name), 1, `${name} is there once`);
        t.equal(headerIn(seen, 'reach-caller'), CALLER, 'the identity is the one that was proved');
        t.equal(headerIn(seen, 'reach-capability'), 'crm.order.query');
        t.equal(headerIn(seen, 'reach-version'), '2.0.0');
        t.match(headerIn(seen, 'traceparent'), /^00-0af7651916cd43dd8448eb211c80319c-(?!b7ad6b7169203331)[0-9a-f]{16}-01$/);
        t.match(headerIn(seen, 'reach-path'), /crm\.order-query\.1>crm\.order\.query$/);
        const left = Number(headerIn(seen, 'reach-deadline-ms'));
        t.ok(left > 3_000 && left <= 4_000, `the deadline is what is left of the caller's: ${left}`);
        t.equal(headerIn(seen, 'x-kept'), 'yes', 'everything else passes');
        t.equal(headerIn(seen, 'content-type'), 'application/json');

        for (const name of ['x-inner', 'proxy-authenticate', 'trailer', 'upgrade', 'reach-caller'])
          t.notOk(name in answer.headers, `${name} of the provider does not reach the caller`);
        t.notMatch(answer.headers['connection'], /x-inner/i);
        t.notMatch(answer.headers['keep-alive'], /timeout=5$/);
        t.match(
          answer.headers,
          { 'x-outer': '2', 'reach-code': '0', 'reach-provider': 'crm.order-query.1' },
          'ours cannot be forged by a provider',
        );
        client.close();
        await quiet(t, rigs, [[stub, 1]]);
      });
    }
  }

  await t.test('a third party sees nothing of it either, and its key cannot be taken out or replaced', async (t) => {
    process.env['REACH_TEST_KEY'] = 'the-key';
    t.teardown(() => void delete process.env['REACH_TEST_KEY']);
    const agent = await TestAgent.listen('crm.order-query.1');
    t.teardown(() => agent.close());
    const table = tableOf([{ name: 'crm.order.query', at: [] }], '').replace(
      'providers:',
      `providers:\n  - agent_id: crm.order-query.1\n    offers: ["crm.order.query@2.0.0"]\n    endpoint: {type: http, address: "${agent.url}", credential: {header: X-Api-Key, secret: {env: REACH_TEST_KEY}}, mapping: {"*": {path: /orders, headers: {X-Fixed: ours}}}}`,
    );
    const rig = await Rig.start(t, { table });
    const { json } = await rig.invoke('crm.order.query', {
      headers: { connection: 'X-Api-Key, X-Fixed, X-Custom', 'x-api-key': 'theirs', 'x-fixed': 'theirs', 'x-custom': '1', te: 'trailers' },
    });
    t.equal(json.code, 0);
    const seen = agent.requests[0]?.headers ?? {};
    t.match(seen, { 'x-api-key': 'the-key', 'x-fixed': 'ours' });
    for (const name of ['x-custom', 'te', 'reach-caller', 'reach-path', 'reach-deadline-ms']) t.notOk(name in seen, name);
    await quiet(t, [rig], [[agent, 1]]);
  });
});

t.test('C016 a body whose length two readers could see differently is refused, and the connection closed', async (t) => {
  const agent = await TestAgent.listen('crm.order-query.1');
  t.teardown(() => agent.close());
  const [rig, host] = (await chain(t, 2, { name: 'crm.order.query', at: [agent.url] })) as [Rig, Rig];
  const mesh = Number(new URL(host.started.meshUrl as string).port);
  const local = ['host: 127.0.0.1', `authorization: Bearer ${TOKEN}`, 'content-type: application/json'];
  const peer = [
    'host: 127.0.0.1',
    `authorization: Bearer ${MESH_TOKEN}`,
    'content-type: application/json',
    'reach-wire: 1',
    'reach-provider: crm.order-query.1',
    'reach-version: 2.0.0',
    `reach-caller: ${CALLER}`,
  ];
  const PORTS = [
    { name: 'the port for agents', port: rig.port, path: '/v1/invoke/crm.order.query', headers: local },
    { name: 'the port for sidecars', port: mesh, path: '/mesh/v1/invoke/crm.order.query', headers: peer },
  ];

  for (const { name, port, path, headers } of PORTS) {
    const inner = `POST ${path} HTTP/1.1\r\n${headers.join('\r\n')}\r\ncontent-length: 13\r\n\r\n{"evil":true}`;
    const chunked = `${inner.length.toString(16)}\r\n${inner}\r\n0\r\n\r\n`;
    const outer = (framing: readonly string[], body: string, version = '1.1'): string =>
      `POST ${path} HTTP/${version}\r\n${[...headers, ...framing].join('\r\n')}\r\n\r\n${body}`;
    const VARIANTS: Readonly<Record<string, string>> = {
      'Content-Length: 0 and chunked': outer(['Content-Length: 0', 'Transfer-Encoding: chunked'], `0\r\n\r\n${inner}`),
      'Content-Length: 0 and chunked, the second request in the chunk': outer(['Content-Length: 0', 'Transfer-Encoding: chunked'], chunked),
      'chunked and then Content-Length': outer(['Transfer-Encoding: chunked', `Content-Length: ${chunked.length}`], chunked),
      'two different Content-Length': outer(['Content-Length: 0', `Content-Length: ${inner.length}`], inner),
      'two equal Content-Length': outer(['Content-Length: 2', 'Content-Length: 2'], `{}${inner}`),
      'a list of Content-Length': outer(['Content-Length: 2, 2'], `{}${inner}`),
      'gzip, chunked': outer(['Transfer-Encoding: gzip, chunked'], chunked),
      'chunked, gzip': outer(['Transfer-Encoding: chunked, gzip'], chunked),
      'chunked twice': outer(['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'], chunked),
      'chunked, chunked': outer(['Transfer-Encoding: chunked, chunked'], chunked),
      identity: outer(['Transfer-Encoding: identity'], inner),
      'identity and a length': outer(['Transfer-Encoding: identity', 'Content-Length: 2'], `{}${inner}`),
      'an unknown coding': outer(['Transfer-Encoding: xchunked'], chunked),
      'an empty coding': outer(['Transfer-Encoding:'], chunked),
      'a space before the colon': outer(['Transfer-Encoding : chunked'], chunked),
      'a space before the colon of the length': outer(['Content-Length : 2'], `{}${inner}`),
      'a vertical tab before the coding': outer(['Transfer-Encoding: \u000bchunked'], chunked),
      'a coding in quotes': outer(['Transfer-Encoding: "chunked"'], chunked),
      'a coding with a parameter': outer(['Transfer-Encoding: chunked;q=1'], chunked),
      'a folded header': outer(['Transfer-Encoding:', ' chunked'], chunked),
      'Content-Length: +5': outer(['Content-Length: +5'], `{"a":1}${inner}`),
      'Content-Length: -1': outer(['Content-Length: -1'], inner),
      'Content-Length: 0x2': outer(['Content-Length: 0x2'], `{}${inner}`),
      'Content-Length: 2 0': outer(['Content-Length: 2 0'], `{}${inner}`),
      'Content-Length: 1e1': outer(['Content-Length: 1e1'], `{}${inner}`),
      'an empty Content-Length': outer(['Content-Length:'], inner),
      'a Content-Length beyond any number': outer(['Content-Length: 99999999999999999999999999'], inner),
      'chunked in HTTP/1.0': outer(['Transfer-Encoding: chunked'], chunked, '1.0'),
      'a chunk size with a sign': outer(['Transfer-Encoding: chunked'], `+2\r\n{}\r\n0\r\n\r\n${inner}`),
      'a chunk size with 0x': outer(['Transfer-Encoding: chunked'], `0x2\r\n{}\r\n0\r\n\r\n${inner}`),
      'a chunk longer than said': outer(['Transfer-Encoding: chunked'], `2\r\n{}${inner}\r\n0\r\n\r\n`),
      'a chunk size that overflows': outer(['Transfer-Encoding: chunked'], `10000000000000002\r\n{}\r\n0\r\n\r\n${inner}`),
      'chunk lines that end in LF': outer(['Transfer-Encoding: chunked'], `2\n{}\n0\n\n${inner}`),
      'header lines that end in LF': outer(['Content-Length: 2'], `{}${inner}`).replaceAll('\r\n', '\n'),
      'a bare CR in a header': outer(['X-A: b\rTransfer-Encoding: chunked', 'Content-Length: 2'], `{}${inner}`),
      'a NUL in a header name': outer(['Content\u0000-Length: 2'], `{}${inner}`),
    };
    await t.test(name, async (t) => {
      for (const [what, bytes] of Object.entries(VARIANTS)) {
        const started = [rig, host].map((each) => each.started.front.observation.started());
        const client = await RawClient.to(port);
        client.write(bytes);
        const answer = await client.answer(2_000);
        t.equal(answer.status, 400, `${what}: 400 ${answer.status === 400 ? '' : client.text}`);
        t.ok(await client.closed(2_000), `${what}: the connection is closed`);
        t.equal(client.text, '', `${what}: one answer, no second`);
        t.same(
          [rig, host].map((each) => each.started.front.observation.started()),
          started,
          `${what}: no call was begun`,
        );
        t.equal(agent.executions, 0, `${what}: the provider was not asked`);
        client.close();
      }
    });
  }
  t.equal(accessLines(rig).length + accessLines(host).length, 0, 'no access record tells of a call');
  const text = (await rig.ask('/metrics')).bytes.toString();
  t.notMatch(text, /^reach_calls_total\{/m);
  t.match(text, /reach_refused_requests_total\{reason="framing"\} [1-9]/, 'they are counted as what they are');

  await t.test('what has one reading only is served: chunked in any case, a length with spaces around it', async (t) => {
    const path = '/v1/invoke/crm.order.query';
    const good = [
      `POST ${path} HTTP/1.1\r\n${local.join('\r\n')}\r\nTransfer-Encoding: Chunked\r\n\r\n2;x=y\r\n{}\r\n0\r\nx-sum: 1\r\n\r\n`,
      `POST ${path} HTTP/1.1\r\n${local.join('\r\n')}\r\nContent-Length:  2 \r\n\r\n{}`,
      `POST ${path} HTTP/1.1\r\n${local.join('\r\n')}\r\ncontent-length: 02\r\n\r\n{}`,
    ];
    const client = await RawClient.to(rig.port);
    for (const bytes of good) {
      client.write(bytes);
      t.equal((await client.answer()).status, 200, client.text);
    }
    client.close();
    t.equal(agent.executions, good.length);
    t.same(
      agent.requests.map((each) => [each.headers['transfer-encoding'], each.headers['content-length']]),
      good.map(() => [undefined, '2']),
      'the provider gets one framing, ours',
    );
  });

  await t.test('a good request before a bad one on the same connection: at most the good one is served', async (t) => {
    const before = agent.executions;
    const socket: Socket = connect(rig.port, '127.0.0.1');
    socket.on('error', () => {});
    const text: Buffer[] = [];
    socket.on('data', (data: Buffer) => text.push(data));
    const closed = new Promise<void>((done) => socket.once('close', () => done()));
    const inner = `POST /v1/invoke/crm.order.query HTTP/1.1\r\n${local.join('\r\n')}\r\ncontent-length: 13\r\n\r\n{"evil":true}`;
    socket.write(
      `POST /v1/invoke/crm.order.query HTTP/1.1\r\n${local.join('\r\n')}\r\ncontent-length: 2\r\n\r\n{}POST /v1/invoke/crm.order.query HTTP/1.1\r\n${local.join('\r\n')}\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${inner}`,
    );
    await closed;
    t.ok(agent.executions - before <= 1);
    t.ok(
      agent.requests.every((each) => !each.body.includes('evil')),
      'the hidden one is never served',
    );
    t.notMatch(Buffer.concat(text).toString(), /evil/);
  });
  await quiet(t, [rig, host], [[agent, agent.executions]]);
});
