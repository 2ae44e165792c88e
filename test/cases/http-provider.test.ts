/** Faults at the provider's end of the HTTP adapter: connections closed under us, answers that hang, are cut, or are no answers. */
import { type AddressInfo, createServer, type Socket } from 'node:net';
import t from 'tap';
import { RawClient, head } from '../support/raw-http.ts';
import { type Answer, Rig, TOKEN } from '../support/rig.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { waitUntil } from '../support/settle.ts';
import { rawAnswer, type StubScript, TcpStub } from '../support/tcp-stub.ts';
import { TestAgent } from '../support/agent.ts';
import { type Offered, providerOf, tableOf } from './http-table.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(110_000);
const before: Base = takeBase();
const JSON_HEAD = { 'content-type': 'application/json' };
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const ok = (body = '{"ok":true}'): string => rawAnswer(200, { ...JSON_HEAD, 'content-length': Buffer.byteLength(body) }, body);

async function stubbed(t: Test, script: StubScript): Promise<TcpStub> {
  const stub = await TcpStub.listen(script);
  t.teardown(() => stub.close());
  return stub;
}

/** A sidecar with these capabilities. */
function rigFor(t: Test, offered: readonly Offered[], settings = ''): Promise<Rig> {
  return Rig.start(t, { table: tableOf(offered), ...(settings === '' ? {} : { settings }) });
}

/** The stubs are closed too before it is asserted that nothing is left. */
async function quiet(t: Test, rigs: readonly Rig[], stubs: readonly (readonly [TcpStub | TestAgent, number])[]): Promise<void> {
  for (const rig of rigs) await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
  const counts = stubs.map(([stub, expected], i) => ({ name: `provider ${i + 1}`, count: stub.requests.length, expected }));
  for (const rig of rigs) await rig.stop();
  for (const [stub] of stubs) await stub.close();
  for (const rig of rigs) await rig.finish(t, before, counts);
}

/** What the breaker of a capability's first provider has counted. */
function counted(rig: Rig, capability: string): { calls: number; failures: number } {
  const { health, clock } = rig.started.front.engine;
  for (const cell of health.cells()) {
    if (cell.agentId === providerOf(capability) && cell.capability === capability)
      return { calls: cell.callsInWindow(clock.now()), failures: cell.failuresInWindow(clock.now()) };
  }
  throw new Error(`no breaker for ${capability}`);
}

async function metric(rig: Rig, name: string, labels: Readonly<Record<string, string>>): Promise<number> {
  const text = (await rig.ask('/metrics')).bytes.toString('utf8');
  let sum = 0;
  for (const line of text.split('\n')) {
    if (line.startsWith(`${name}{`) && Object.entries(labels).every(([key, value]) => line.includes(`${key}="${value}"`)))
      sum += Number(line.slice(line.lastIndexOf(' ') + 1));
  }
  return sum;
}

const accessLines = (rig: Rig): Record<string, unknown>[] => rig.logged.filter((line) => line['msg'] === 'call');

t.test('C001 a connection closed under us is replaced, and only for work that may be repeated', async (t) => {
  const LANES = 10;
  const ROUNDS = 50;

  /** Closes as a server does: FIN now, RST for whatever comes later. What comes later was never executed. */
  class Closing {
    /** Executions by the number in the payload. */
    readonly executed = new Map<number, number>();
    readonly #closed = new WeakSet<object>();
    readonly script: StubScript;
    constructor(idleMs: number | null) {
      const timers = new WeakMap<object, NodeJS.Timeout>();
      this.script = async (connection, request) => {
        const { socket } = connection;
        if (this.#closed.has(socket) || socket.destroyed) return;
        clearTimeout(timers.get(socket));
        const n = (JSON.parse(request.body.toString()) as { n: number }).n;
        this.executed.set(n, (this.executed.get(n) ?? 0) + 1);
        const close = (): void => {
          this.#closed.add(socket);
          socket.destroySoon();
        };
        void connection.write(ok(`{"n":${n}}`));
        if (idleMs === null) close();
        else timers.set(socket, setTimeout(close, idleMs));
      };
    }
    get total(): number {
      let sum = 0;
      for (const times of this.executed.values()) sum += times;
      return sum;
    }
    get most(): number {
      return Math.max(...this.executed.values());
    }
  }

  // 500 calls each, as written; ten callers at once, since one after the other would take 25 s a variant.
  const load = async (
    rig: Rig,
    capability: string,
    waits: boolean,
  ): Promise<{ n: number; code: number; ambiguous: boolean; status: number; attempts: number; elapsedMs: number }[]> => {
    const seen: { n: number; code: number; ambiguous: boolean; status: number; attempts: number; elapsedMs: number }[] = [];
    await Promise.all(
      Array.from({ length: LANES }, async (_, lane) => {
        for (let round = 0; round < ROUNDS; round++) {
          const n = lane * ROUNDS + round;
          const { json, status, elapsedMs } = await rig.invoke(capability, { payload: { n }, headers: { 'reach-deadline-ms': '5000' } });
          seen.push({ n, code: json.code, ambiguous: json.ambiguous ?? false, status, attempts: json.attempts.length, elapsedMs });
          if (json.code === 0 && json.data.n !== n) throw new Error(`call ${n} got the answer of ${json.data.n}`);
          if (waits) await sleep(49 + (n % 3));
        }
      }),
    );
    return seen;
  };

  await t.test('an idle timeout of 50 ms, and FIN straight after the answer', async (t) => {
    const doors = {
      'crm.order.query': new Closing(50),
      'crm.order.create': new Closing(50),
      'crm.fin.query': new Closing(null),
      'crm.fin.create': new Closing(null),
    };
    const stubs = new Map<string, TcpStub>();
    for (const [name, door] of Object.entries(doors)) stubs.set(name, await stubbed(t, door.script));
    const rig = await rigFor(
      t,
      Object.keys(doors).map((name) => ({
        name,
        execution: name.endsWith('query') ? ('idempotent' as const) : ('once' as const),
        at: [(stubs.get(name) as TcpStub).url],
        extra: ['breaker: {enabled: false}'],
      })),
      '  ejection: {consecutive: 1000}',
    );
    const results = await Promise.all(
      Object.keys(doors).map(async (name) => [name, await load(rig, name, name.startsWith('crm.order'))] as const),
    );
    for (const [name, seen] of results) {
      const door = doors[name as keyof typeof doors];
      t.equal(seen.length, 500, `${name}: all calls came back`);
      t.ok(
        seen.every((each) => each.elapsedMs < 5_000),
        `${name}: inside the deadline`,
      );
      if (name.endsWith('query')) {
        t.same(
          seen.filter((each) => each.code !== 0),
          [],
          `${name}: 500 of 500 succeed`,
        );
        t.ok(
          seen.every((each) => each.attempts === 1),
          `${name}: a repeat on a fresh connection is no policy retry`,
        );
        t.ok(door.most <= 2, `${name}: at most one repeat of a call`);
      } else {
        t.same(
          seen.filter((each) => each.code !== 0 && !(each.code === 1002 && each.ambiguous && each.status === 502)),
          [],
          `${name}: whole, or lost and called ambiguous`,
        );
        t.equal(door.most, 1, `${name}: no call is executed twice`);
        t.ok(door.total <= 500);
      }
      t.ok((stubs.get(name) as TcpStub).connections > 1, 'connections were replaced');
    }
    t.equal(await metric(rig, 'reach_retries_total', {}), 0);
    await quiet(
      t,
      [rig],
      [...stubs.values()].map((stub) => [stub, stub.requests.length] as const),
    );
  });

  /** Answers the first request of a connection; the second finds it closed: a reset, after the request was written. */
  const closedUnderUs: StubScript = async (connection, request) => {
    if (request.onConnection > 1) connection.rst();
    else {
      await sleep(30);
      await connection.write(ok(request.body.toString()));
    }
  };

  await t.test('the very instant: every kept connection is dead when it is used', async (t) => {
    const stub = await stubbed(t, closedUnderUs);
    const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
    const wave = (from: number): Promise<Answer[]> =>
      Promise.all(Array.from({ length: LANES }, (_, i) => rig.invoke('crm.order.query', { payload: { n: from + i } })));
    await wave(0);
    t.equal(stub.connections, LANES, 'ten kept connections');
    // One call meets ten dead connections: the repeat must not be sent on the next dead one.
    await sleep(10);
    const one = await rig.invoke('crm.order.query', { payload: { n: 99 }, headers: { 'reach-explain': '1' } });
    t.match(one.json, { code: 0, data: { n: 99 } });
    t.equal(one.json.attempts.length, 1);
    t.ok(JSON.stringify(one.json.decision).includes('fresh_connection'), 'the decision tells of it');
    t.equal(stub.requests.filter((request) => request.body.toString() === '{"n":99}').length, 2, 'one repeat');
    const seen = await wave(10);
    t.same(
      seen.map(({ json }) => json.code),
      new Array(LANES).fill(0),
      'and so for ten at once',
    );
    for (let n = 10; n < 20; n++) t.ok(stub.requests.filter((request) => request.body.toString() === `{"n":${n}}`).length <= 2);
    t.equal(counted(rig, 'crm.order.query').failures, 0, 'nothing is held against the provider');
    await quiet(t, [rig], [[stub, stub.requests.length]]);
  });

  for (const how of ['resetAndDestroy', 'destroy'] as const) {
    await t.test(
      `closed (${how}) after the call was taken in and before a byte was written: nothing was started, so it goes on a fresh one`,
      async (t) => {
        let kept: { resetAndDestroy(): void; destroy(): void } | null = null;
        const stub = await stubbed(t, (connection, request) => {
          kept = connection.socket;
          void connection.write(ok(request.body.toString()));
        });
        const rig = await rigFor(t, [{ name: 'crm.order.create', execution: 'once', at: [stub.url] }]);
        const caller = await RawClient.to(rig.port);
        const ROUNDS = 50;
        for (let n = 0; n < ROUNDS; n++) {
          const body = JSON.stringify({ n });
          // In one turn of the event loop: the request arrives at the sidecar, then the end of the connection it is meant for.
          caller.write(
            head('POST', '/v1/invoke/crm.order.create', {
              authorization: `Bearer ${TOKEN}`,
              'content-type': 'application/json',
              'content-length': String(body.length),
            }) + body,
          );
          if (kept !== null) (kept as { resetAndDestroy(): void; destroy(): void })[how]();
          const { status, body: text } = await caller.answer();
          if (status !== 200) t.fail(`call ${n}: ${status} ${text}`);
          else if (JSON.parse(text).data.n !== n) t.fail(`call ${n} got another answer: ${text}`);
        }
        t.equal(stub.requests.length, ROUNDS, 'each was executed once');
        caller.close();
        await quiet(t, [rig], [[stub, ROUNDS]]);
      },
    );
  }

  await t.test('once: never repeated, said to be ambiguous; a stream is no different', async (t) => {
    const stub = await stubbed(t, closedUnderUs);
    const rig = await rigFor(t, [{ name: 'crm.order.create', execution: 'once', at: [stub.url] }]);
    await rig.invoke('crm.order.create', { payload: { n: 1 } });
    const lost = await rig.invoke('crm.order.create', { payload: { n: 2 }, headers: { 'idempotency-key': 'k-2' } });
    t.equal(lost.status, 502);
    t.match(lost.json, { code: 1002, name: 'connection_lost', ambiguous: true, retryable: false, attempts: [{ started: 'started' }] });
    await rig.invoke('crm.order.create', { payload: { n: 3 } });
    const stream = await rig.ask('/v1/stream/crm.order.create', { method: 'POST', payload: { n: 4 } });
    t.match(stream.json, { code: 1002, ambiguous: true });
    t.same(
      stub.requests.map((request) => request.body.toString()),
      ['{"n":1}', '{"n":2}', '{"n":3}', '{"n":4}'],
      'each was sent once, a key or not',
    );
    await quiet(t, [rig], [[stub, 4]]);
  });

  await t.test('with a second provider too, where this call may not go to it; and through the sidecar that hosts both', async (t) => {
    const name = 'crm.order.query';
    const script: StubScript = (connection, request) => {
      if (request.onConnection > 1) connection.rst();
      else void connection.write(ok());
    };
    const ways: readonly (readonly [what: string, isMesh: boolean, extra: readonly string[], headers: Readonly<Record<string, string>>])[] =
      [
        ['pinned', false, [], { 'reach-pin': providerOf(name) }],
        ['strict', false, ['affinity: {from: "header:x-session", mode: strict}'], { 'x-session': 's' }],
        ['no retries', false, ['retry: {max: 0}'], {}],
        ['strict, hosted', true, ['affinity: {from: "header:x-session", mode: strict}'], { 'x-session': 's' }],
        ['hosted', true, [], {}],
      ];
    for (const [what, isMesh, extra, headers] of ways) {
      const stubs = [await stubbed(t, script), await stubbed(t, script)];
      const offered = { name, at: stubs.map(({ url }) => url), extra, ...(isMesh ? { providerExtra: ['via: two'] } : {}) };
      const meshToken = 'mesh-token-of-this-test';
      const host = isMesh
        ? await Rig.start(t, { name: 'two', meshToken, table: tableOf([offered], 'sidecars: [{name: two, mesh: "http://127.0.0.1:1"}]\n') })
        : null;
      const hosts = host === null ? '' : `sidecars: [{name: two, mesh: "${host.started.meshUrl}"}]\n`;
      const rig = await Rig.start(t, { table: tableOf([offered], hosts), ...(isMesh ? { name: 'one', meshToken } : {}) });
      const seen: [number, number][] = [];
      for (let n = 0; n < 4; n++) {
        const { json } = await rig.invoke(name, { payload: { n }, headers });
        seen.push([json.code, json.attempts.length]);
      }
      t.same(seen, new Array(4).fill([0, 1]), what);
      await quiet(
        t,
        host === null ? [rig] : [rig, host],
        stubs.map((stub) => [stub, stub.requests.length] as const),
      );
    }
  });

  await t.test('the repeat stays inside the deadline, and there is only one', async (t) => {
    const stub = await stubbed(t, async (connection, request) => {
      const { n } = JSON.parse(request.body.toString()) as { n: number };
      if (n === 0) void connection.write(ok());
      else if (n === 1 && request.onConnection > 1) {
        await sleep(150);
        connection.rst();
      } else if (n === 2) connection.rst();
      // n = 1 on a fresh connection: silence
    });
    const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
    await rig.invoke('crm.order.query', { payload: { n: 0 } });
    const late = await rig.invoke('crm.order.query', { payload: { n: 1 }, headers: { 'reach-deadline-ms': '300' } });
    t.match(late.json, { code: 5001, ambiguous: true });
    t.ok(late.json.elapsed_ms >= 299 && late.json.elapsed_ms < 900, `${late.json.elapsed_ms} ms`);
    await rig.invoke('crm.order.query', { payload: { n: 0 } });
    const twice = await rig.invoke('crm.order.query', { payload: { n: 2 } });
    t.match(twice.json, { code: 1002 }, 'lost on a fresh connection too: that is no idle race');
    t.equal(stub.requests.filter((request) => request.body.toString() === '{"n":2}').length, 2);
    await quiet(t, [rig], [[stub, 6]]);
  });
});

t.test('C002 a provider that sends its head and then hangs is given up at the deadline', async (t) => {
  const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n';

  /** Every way to hang after the request has come. */
  const HANGS: Readonly<Record<string, StubScript>> = {
    'the start of a body': async (connection) => {
      await connection.write(`${HEAD}{"a":`);
    },
    'a head and nothing': async (connection) => {
      await connection.write(HEAD);
    },
    'nothing at all': () => undefined,
    'half a head': async (connection) => {
      await connection.write('HTTP/1.1 200 OK\r\nContent-Type: appl');
    },
    'a byte now and then': async (connection) => {
      await connection.write(HEAD);
      for (let i = 0; i < 90 && !connection.socket.destroyed; i++) {
        await connection.write(' ');
        await sleep(20);
      }
    },
    'a header now and then': async (connection) => {
      await connection.write('HTTP/1.1 200 OK\r\n');
      for (let i = 0; i < 90 && !connection.socket.destroyed; i++) {
        await connection.write(`x-${i}: y\r\n`);
        await sleep(20);
      }
    },
    'early hints for ever': async (connection) => {
      for (let i = 0; i < 90 && !connection.socket.destroyed; i++) {
        await connection.write('HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n');
        await sleep(20);
      }
    },
    'an endless chunk line': async (connection) => {
      await connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1');
      for (let i = 0; i < 90 && !connection.socket.destroyed; i++) {
        await connection.write(';x');
        await sleep(20);
      }
    },
  };

  for (const [what, hang] of Object.entries(HANGS)) {
    await t.test(what, async (t) => {
      const closedAt = new Map<number, number>();
      const stub = await stubbed(t, (connection, request) => {
        connection.socket.once('close', () => closedAt.set(request.number, performance.now()));
        return hang(connection, request);
      });
      const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }], '  ejection: {consecutive: 100}');
      const TIMES = what === 'the start of a body' ? 5 : 1;
      const elapsed: number[] = [];
      const freed: number[] = [];
      for (let i = 1; i <= TIMES; i++) {
        const { status, json } = await rig.invoke('crm.order.query', { headers: { 'reach-deadline-ms': '300' } });
        const answeredAt = performance.now();
        t.equal(rig.started.front.engine.limits.inFlight(), 0, 'its slot is free');
        t.equal(rig.started.front.observation.attemptsEnded(), i, 'its span has ended');
        await waitUntil('the connection is destroyed', () => closedAt.has(i), 2_000);
        t.equal(status, 504);
        t.match(json, { code: 5001, name: 'deadline_exceeded', ambiguous: true, attempts: [{ code: 5001, started: 'started' }] });
        t.equal(json.attempts.length, 1);
        elapsed.push(json.elapsed_ms);
        freed.push((closedAt.get(i) as number) - answeredAt);
      }
      elapsed.sort((a, b) => a - b);
      freed.sort((a, b) => a - b);
      t.ok((elapsed[0] as number) >= 299, `never before the deadline: ${elapsed[0]} ms`);
      // The machine is shared with other tests: the middle one of five is judged.
      t.ok((elapsed[TIMES >> 1] as number) <= 400, `answered between 300 and 400 ms: ${elapsed.join(', ')}`);
      t.ok((freed[TIMES >> 1] as number) <= 50, `the connection is destroyed within 50 ms: ${freed.join(', ')}`);
      t.equal(stub.connections, TIMES, 'none was kept for the next call');
      t.equal(stub.openConnections, 0);
      t.match(
        accessLines(rig),
        Array.from({ length: TIMES }, () => ({ outcome: 'error', code: 5001 })),
      );
      await quiet(t, [rig], [[stub, TIMES]]);
    });
  }

  await t.test('by the time of an attempt, in a stream, and while waiting for a connection', async (t) => {
    const stub = await stubbed(t, async (connection) => {
      await connection.write(`${HEAD}{"a":`);
    });
    const rig = await rigFor(
      t,
      [
        { name: 'crm.order.query', at: [stub.url], extra: ['timeout: 200ms', 'retry: {max: 0}'] },
        { name: 'crm.order.watch', at: [stub.url] },
      ],
      '  connections_per_origin: 1\n  ejection: {consecutive: 1000}',
    );
    const [first, second] = await Promise.all([
      rig.invoke('crm.order.query'),
      rig.invoke('crm.order.query', { headers: { 'reach-deadline-ms': '150' } }),
    ]);
    t.match(first.json, { code: 1003, ambiguous: true, attempts: [{ code: 1003 }] });
    t.match(
      second.json,
      { code: 5001, ambiguous: false, attempts: [{ code: 5001, started: 'not_started' }] },
      'one that waited for a connection was never sent',
    );
    const cut = await rig.ask('/v1/stream/crm.order.watch', {
      method: 'POST',
      headers: { 'reach-deadline-ms': '300', accept: 'text/event-stream' },
    });
    t.match(cut.bytes.toString(), /^data: \{"a":\n\nevent: error\ndata: \{"code":5001/);
    t.ok(cut.elapsedMs >= 299 && cut.elapsedMs < 900);
    await quiet(t, [rig], [[stub, 2]]);
  });
});

t.test('C004 a body that is cut is no answer, although its bytes are valid JSON', async (t) => {
  const CHUNKED = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
  const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
  const CUTS: Readonly<Record<string, string>> = {
    'no last chunk': CHUNKED + chunk('{"ok":true}'),
    '11 of 20 bytes': `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{"ok":true}`,
    'the last chunk without the empty line': `${CHUNKED}${chunk('{"ok":true}')}0\r\n`,
    'the last chunk without its line end': `${CHUNKED}${chunk('{"ok":true}')}0`,
    'in the middle of a trailer': `${CHUNKED}${chunk('{"ok":true}')}0\r\nx-sum: 1`,
    'before the end of a chunk': `${CHUNKED}b\r\n{"ok":true}`,
    'in the size of the next chunk': `${CHUNKED}${chunk('{"ok":true}')}5`,
    'Connection: close does not make it whole': CHUNKED.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n') + chunk('{"ok":true}'),
    'a length, and Connection: close': `HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{"ok":true}`,
    'a length in HTTP/1.0': `HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{"ok":true}`,
  };
  for (const [what, bytes] of Object.entries(CUTS)) {
    for (const how of ['fin', 'rst'] as const) {
      await t.test(`${what}, then ${how.toUpperCase()}`, async (t) => {
        const stub = await stubbed(t, async (connection) => {
          await connection.write(bytes);
          if (how === 'rst') await sleep(20);
          connection[how]();
        });
        const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
        const asked = [
          await rig.invoke('crm.order.query', { headers: { 'idempotency-key': 'k' } }),
          await rig.invoke('crm.order.query', { headers: { 'idempotency-key': 'k' } }),
          await rig.invoke('crm.order.query', { headers: { 'reach-mode': 'raw' } }),
        ];
        for (const { status, json } of asked) {
          t.equal(status, 502);
          t.match(json, { code: 1004, name: 'bad_response', ambiguous: true, data: null });
          t.equal(json.attempts.length, 1);
        }
        t.equal(stub.requests.length, 3, 'a key does not make a cut answer the answer');
        t.same(counted(rig, 'crm.order.query'), { calls: 3, failures: 3 }, 'the provider failed three times');
        await quiet(t, [rig], [[stub, 3]]);
      });
    }
  }

  await t.test('what only the end of the connection delimits is whole with FIN, and cut with RST', async (t) => {
    const stub = await stubbed(t, async (connection, request) => {
      await connection.write('HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"ok":true}');
      await sleep(20);
      if (request.number === 1) connection.fin();
      else connection.rst();
    });
    const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
    t.match((await rig.invoke('crm.order.query')).json, { code: 0, data: { ok: true } });
    t.match((await rig.invoke('crm.order.query')).json, { code: 1004 });
    await quiet(t, [rig], [[stub, 2]]);
  });

  await t.test('events and lines that are asked for whole are cut where a stream of them would be', async (t) => {
    const LINES = '{"token":"The balance is 1"}\n{"token":"0';
    const EVENTS = 'data: {"a":1}\n\ndata: {"a":2}\n\n';
    const by = (type: string, framing: string): string => `HTTP/1.1 200 OK\r\nContent-Type: ${type}\r\n${framing}\r\n`;
    const close = 'Connection: close\r\n';
    const chunked = 'Transfer-Encoding: chunked\r\n';
    const DECLARED = 'nlp.answer.declared';
    const PLAIN = 'nlp.answer.plain';
    const LAST = 'data: [DONE]\n\n';
    const ANSWERS: readonly (readonly [capability: string, bytes: string, isWhole: boolean])[] = [
      [DECLARED, by('application/x-ndjson', close) + LINES, false],
      [DECLARED, `${by('text/event-stream', chunked)}${chunk(EVENTS)}0\r\n\r\n`, false],
      [DECLARED, `${by('text/event-stream', `Content-Length: ${EVENTS.length}\r\n`)}${EVENTS}`, false],
      [DECLARED, by('application/jsonl', close), false],
      [DECLARED, `${by('application/x-ndjson', close)}${LINES}"}\nfinished\n`, true],
      [DECLARED, `${by('text/event-stream', chunked)}${chunk('event: finished\ndata: {}\n\n')}0\r\n\r\n`, true],
      [DECLARED, `${by('application/json', close)}{"no":"lines"}`, true],
      [PLAIN, by('text/event-stream; charset=utf-8', close) + EVENTS, false],
      [PLAIN, by('application/x-ndjson', close) + LINES, false],
      [PLAIN, by('text/event-stream', close) + EVENTS + LAST, true],
      [PLAIN, `${by('text/event-stream', chunked)}${chunk(EVENTS)}0\r\n\r\n`, true],
      [PLAIN, `${by('text/plain', close)}one\ntwo`, true],
    ];
    const stub = await stubbed(t, async (connection, request) => {
      const [, bytes] = ANSWERS[(JSON.parse(request.body.toString()) as { at: number }).at] as (typeof ANSWERS)[number];
      await connection.write(bytes);
      connection.fin();
    });
    const contract = (name: string, streaming: string): string =>
      `  - {name: ${name}, version: "1.0.0", acl: public, execution: idempotent, breaker: {enabled: false}, streaming: ${streaming}}\n`;
    const table = (meshUrl: string): string => `contracts:
${contract(DECLARED, '{done: finished}')}${contract(PLAIN, 'true')}providers:
  - {agent_id: nlp.writer.1, offers: ["${DECLARED}@1.0.0", "${PLAIN}@1.0.0"], endpoint: {type: http, address: "${stub.url}"}${meshUrl === '' ? '' : ', via: two'}}
${meshUrl === '' ? '' : `sidecars: [{name: two, mesh: "${meshUrl}"}]\n`}`;
    let expected = 0;
    for (const hops of [1, 2]) {
      const meshed = { meshToken: 'a-mesh-token' };
      const two = hops === 1 ? null : await Rig.start(t, { ...meshed, name: 'two', table: table('http://127.0.0.1:1') });
      const rig = await Rig.start(
        t,
        two === null ? { table: table('') } : { ...meshed, name: 'one', table: table(two.started.meshUrl ?? '') },
      );
      for (const [at, [capability, bytes, isWhole]] of ANSWERS.entries()) {
        for (let i = 0; i < 2; i++) {
          const { status, json } = await rig.invoke(capability, { payload: { at }, headers: { 'idempotency-key': `key-${at}` } });
          if (isWhole) t.match({ status, json }, { status: 200, json: { code: 0 } }, bytes);
          else {
            t.equal(status, 502, bytes);
            t.match(json, { code: 1004, ambiguous: true, data: null, attempts: [{ code: 1004, started: 'started' }] });
            t.match(json.detail, /is not known to be whole|ended without "finished"/);
          }
        }
        expected += isWhole ? 1 : 2;
      }
      t.equal(stub.requests.length, expected, 'under its key a whole answer is kept, and a cut one is not');
      if (two === null) await rig.stop();
      else await quiet(t, [rig, two], [[stub, expected]]);
    }
  });

  await t.test('the breaker opens by cut answers, and `once` work is not repeated', async (t) => {
    const stub = await stubbed(t, async (connection) => {
      await connection.write(CUTS['no last chunk'] as string);
      connection.fin();
    });
    const rig = await rigFor(t, [
      { name: 'crm.order.create', execution: 'once', at: [stub.url, stub.url], extra: ['breaker: {min_calls: 4}'] },
    ]);
    const codes: number[] = [];
    for (let i = 0; i < 12; i++) codes.push((await rig.invoke('crm.order.create')).json.code);
    const tried = codes.filter((code) => code === 1004).length;
    t.ok(tried >= 4 && tried <= 8, `${tried} calls until both breakers are open`);
    t.same(codes.slice(tried), new Array(12 - tried).fill(codes[tried]));
    t.ok([2003, 3001].includes(codes[11] as number), `then nobody is asked: ${codes[11]}`);
    await quiet(t, [rig], [[stub, tried]]);
  });
});

t.test('C005 a stream that breaks in the middle never ends like a whole one', async (t) => {
  const CHUNKS = ['one ', 'two ', 'three '];
  const chunk = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
  const breaking =
    (type: string, parts: readonly string[], end: 'rst' | 'fin' | 'length'): StubScript =>
    async (connection) => {
      const framing = end === 'length' ? 'Content-Length: 500' : 'Transfer-Encoding: chunked';
      await connection.write(`HTTP/1.1 200 OK\r\nContent-Type: ${type}\r\n${framing}\r\n\r\n`);
      for (const part of parts) {
        await connection.write(end === 'length' ? part : chunk(part));
        await sleep(10);
      }
      await sleep(30);
      if (end === 'rst') connection.rst();
      else connection.fin();
    };

  /** Reads a stream by hand, so that the last chunk is seen or missed. */
  const read = async (rig: Rig, accept: string | null, version = '1.1'): Promise<RawClient> => {
    const client = await RawClient.to(rig.port);
    client.write(
      head(
        'POST',
        '/v1/stream/crm.order.watch',
        { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json', 'content-length': '2', accept },
        version,
      ),
    );
    client.write('{}');
    await client.until((text) => text.includes('\r\n0\r\n\r\n'), 3_000);
    return client;
  };

  for (const end of ['rst', 'fin', 'length'] as const) {
    for (const hops of [1, 2]) {
      await t.test(`${end}, ${hops === 1 ? 'straight from the provider' : "through the provider's sidecar"}`, async (t) => {
        const stub = await stubbed(t, breaking('text/plain', CHUNKS, end));
        const rigs = await chain(t, hops, stub.url);
        const [rig] = rigs as [Rig];

        const plain = await read(rig, null);
        const answer = await plain.answer(200);
        t.equal(answer.status, 200);
        t.equal(answer.headers['transfer-encoding'], 'chunked');
        t.notOk(answer.isWhole, 'A: no last chunk, so that the client sees an incomplete body');
        t.ok(await plain.closed(), 'A: the connection is closed');
        t.equal(answer.body.replaceAll(/\r\n[0-9a-f]+\r\n/g, ''), CHUNKS.join(''), 'A: the chunks and nothing else');
        await t.rejects(
          fetch(`${rig.url}/v1/stream/crm.order.watch`, {
            method: 'POST',
            body: '{}',
            headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
          }).then((response) => response.text()),
          'A: a usual client reports it',
        );

        const events = await (await read(rig, 'text/event-stream')).answer(200);
        t.ok(events.isWhole, 'B: the events end properly');
        const parts = events.body.split('\n\n').filter((part) => part !== '');
        t.same(
          parts
            .slice(0, -1)
            .map((part) => part.replace('data: ', ''))
            .join(''),
          CHUNKS.join(''),
          'B: the data is the chunks and nothing else',
        );
        const last = parts.at(-1) as string;
        t.ok(last.startsWith('event: error\ndata: {'), 'B: then an explicit error');
        t.match(JSON.parse(last.slice('event: error\ndata: '.length)), {
          code: 1006,
          error: { name: 'stream_interrupted', ambiguous: true },
        });

        const old = await read(rig, null, '1.0');
        t.ok(await old.closed(), 'a caller of HTTP/1.0 sees a reset, not an end');
        for (const each of rigs) {
          t.equal(await metric(each, 'reach_calls_total', { capability: 'crm.order.watch', code: '1006' }), 4, 'the outcome is an error');
          t.equal(await metric(each, 'reach_attempts_total', { capability: 'crm.order.watch', code: '1006' }), 4, 'so is that of the span');
          t.same(
            accessLines(each).map((line) => line['outcome']),
            ['error', 'error', 'error', 'error'],
          );
        }
        await quiet(t, rigs, [[stub, 4]]);
      });
    }
  }

  await t.test('a provider that speaks events itself: the error comes between two events, half an event is not passed on', async (t) => {
    const stub = await stubbed(t, breaking('text/event-stream', ['data: 1\n\n', 'data: 2\n\n', 'data: thr'], 'rst'));
    const rigs = await chain(t, 1, stub.url);
    const [rig] = rigs as [Rig];
    const { body, isWhole } = await (await read(rig, 'text/event-stream')).answer(200);
    t.ok(isWhole);
    t.match(body, /^data: 1\n\ndata: 2\n\nevent: error\ndata: \{"code":1006[^\n]*\n\n$/);
    await quiet(t, rigs, [[stub, 1]]);
  });

  async function chain(t: Test, hops: number, address: string): Promise<Rig[]> {
    const watch: Offered = { name: 'crm.order.watch', at: [address] };
    if (hops === 1) return [await rigFor(t, [watch])];
    const host = await Rig.start(t, {
      name: 'two',
      meshToken: 'mesh-token-of-this-test',
      table: tableOf([{ ...watch, providerExtra: ['via: two'] }], 'sidecars: [{name: two, mesh: "http://127.0.0.1:1"}]\n'),
    });
    const first = await Rig.start(t, {
      meshToken: 'mesh-token-of-this-test',
      table: tableOf([{ ...watch, providerExtra: ['via: two'] }], `sidecars: [{name: two, mesh: "${host.started.meshUrl}"}]\n`),
    });
    return [first, host];
  }
});

t.test('C006 a status without a body never makes anybody wait for one', async (t) => {
  const prompt = async (t: Test, rig: Rig, asking: Parameters<Rig['invoke']>[1] = {}) => {
    const answer = await rig.invoke('crm.order.query', { ...asking, headers: { 'reach-deadline-ms': '2000', ...asking.headers } });
    t.ok(answer.elapsedMs < 400, `answered at once: ${answer.elapsedMs} ms`);
    return answer;
  };

  for (const status of [204, 304]) {
    for (const framing of ['Content-Length: 12', 'Transfer-Encoding: chunked', 'X-None: 1']) {
      await t.test(`${status} with ${framing}`, async (t) => {
        const stub = await stubbed(t, (connection) => void connection.write(`HTTP/1.1 ${status} X\r\n${framing}\r\n\r\n`));
        const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
        const times: number[] = [];
        for (let i = 0; i < 5; i++) {
          const { status: http, json, elapsedMs } = await prompt(t, rig);
          t.equal(http, 200);
          t.match(json, { code: 0, status, data: null });
          times.push(elapsedMs);
        }
        times.sort((a, b) => a - b);
        t.ok((times[2] as number) < 100, `within 100 ms: ${times.join(', ')}`);
        const raw = await prompt(t, rig, { headers: { 'reach-mode': 'raw' } });
        t.equal(raw.status, status, 'raw: as it came');
        t.equal(raw.bytes.length, 0);
        t.notOk('content-length' in raw.headers && raw.headers['content-length'] !== '0', 'and without the length that nothing follows');
        const events = await rig.ask('/v1/stream/crm.order.query', { method: 'POST', headers: { accept: 'text/event-stream' } });
        t.match(events.bytes.toString(), /^event: end\ndata: \{"code":0,/, 'a stream of nothing ends at once');
        await quiet(t, [rig], [[stub, 7]]);
      });
    }

    for (const [when, delayMs] of [
      ['at once', 0],
      ['30 ms later', 30],
    ] as const) {
      for (const stray of [
        '{"evil":true}',
        'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"evil":true}',
      ]) {
        await t.test(
          `${status}, and ${stray.startsWith('HTTP') ? 'a whole answer that nobody asked for' : 'stray bytes'} ${when}`,
          async (t) => {
            const stub = await stubbed(t, async (connection, request) => {
              if (request.number > 1) {
                await connection.write(ok());
                return;
              }
              const first = `HTTP/1.1 ${status} X\r\nContent-Length: ${stray.length}\r\n\r\n`;
              await connection.write(delayMs === 0 ? first + stray : first);
              if (delayMs > 0) await sleep(delayMs);
              if (delayMs > 0) await connection.write(stray);
            });
            const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
            t.match((await prompt(t, rig)).json, { code: 0, status, data: null });
            if (delayMs > 0) await sleep(delayMs - 10);
            for (let i = 0; i < 3; i++)
              t.match((await prompt(t, rig)).json, { code: 0, data: { ok: true } }, 'the next call gets its own answer');
            t.equal(stub.requests[1]?.onConnection, 1, 'on another connection');
            await quiet(t, [rig], [[stub, 4]]);
          },
        );
      }
    }
  }

  await t.test('interim answers are no answers: 103 before 200, 102, several, before a stream', async (t) => {
    const stub = await stubbed(t, async (connection, request) => {
      const interim =
        request.number % 2 === 1
          ? 'HTTP/1.1 103 Early Hints\r\nContent-Length: 12\r\nLink: </a>\r\n\r\n'
          : 'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n';
      await connection.write(interim);
      await sleep(5);
      await connection.write(ok(`{"n":${request.number}}`));
    });
    const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
    for (let n = 1; n <= 4; n++) t.match((await prompt(t, rig)).json, { code: 0, status: 200, data: { n } });
    const streamed = await rig.ask('/v1/stream/crm.order.query', { method: 'POST' });
    t.match(streamed.json, { n: 5 });
    t.equal(stub.connections, 1, 'the connection is kept');
    await quiet(t, [rig], [[stub, 5]]);
  });

  await t.test('100 Continue, though nobody asked for it, is an interim answer too', async (t) => {
    const stub = await stubbed(t, async (connection, request) => {
      const interim = 'HTTP/1.1 100 Continue\r\nX-Why: not\r\n\r\n';
      const answer = ok(`{"n":${request.number}}`);
      const { number } = request;
      // At once, apart, twice, byte by byte, and an answer that begins like one.
      if (number === 1) await connection.write(interim + answer);
      else if (number === 4) for (const byte of interim + answer) await connection.write(byte).then(() => sleep(0));
      else {
        await connection.write(number === 3 ? interim + interim : interim);
        await sleep(5);
        await connection.write(answer.slice(0, 9));
        await sleep(5);
        await connection.write(answer.slice(9));
      }
    });
    const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
    for (let n = 1; n <= 4; n++) t.match((await rig.invoke('crm.order.query')).json, { code: 0, status: 200, data: { n } });
    t.equal(stub.connections, 1, 'the connection is kept');
    await quiet(t, [rig], [[stub, 4]]);
  });

  await t.test('an answer that comes before the request was read is taken, and its connection not used again', async (t) => {
    const UPLOAD = 7_000_000;
    const answers = [
      rawAnswer(413, { ...JSON_HEAD, 'content-length': 2 }, '{}'),
      ok(),
      rawAnswer(413, { ...JSON_HEAD, connection: 'close', 'content-length': 2 }, '{}'),
    ];
    const seen: number[] = [];
    const sockets = new Set<Socket>();
    // Reads a little of each request, answers, and reads no more.
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.once('data', () => {
        socket.pause();
        const answer = answers[seen.length] as string;
        seen.push(sockets.size);
        socket.write(answer);
      });
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    t.teardown(() => server.close());
    const rig = await rigFor(t, [
      { name: 'crm.order.query', at: [`http://127.0.0.1:${(server.address() as AddressInfo).port}`], extra: ['limits: {request: 8MiB}'] },
    ]);
    const body = `{"text":"${'x'.repeat(UPLOAD)}"}`;
    const statuses: number[] = [];
    for (let i = 0; i < 3; i++) statuses.push((await prompt(t, rig, { body })).status);
    t.same(statuses, [413, 200, 413]);
    t.same(seen, [1, 2, 3], 'each on a connection of its own');
    await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0);
    await rig.stop();
    for (const socket of sockets) socket.destroy();
    server.close();
    await rig.finish(t, before, [{ name: 'provider', count: seen.length, expected: 3 }]);
  });

  await t.test('our own answers to HEAD have no body, and the connection goes on', async (t) => {
    const agent = await TestAgent.listen('crm.order-query.1');
    t.teardown(() => agent.close());
    const rig = await rigFor(t, [{ name: 'crm.order.query', at: [agent.url] }]);
    const client = await RawClient.to(rig.port);
    client.write(head('HEAD', '/v1/health') + head('HEAD', '/v1/nowhere') + head('HEAD', '/v1/ready') + head('GET', '/v1/ready'));
    await client.until((text) => text.includes('"ready":true'));
    const heads = client.text.split('HTTP/1.1 ').slice(1);
    t.same(
      heads.map((each) => Number(each.slice(0, 3))),
      [200, 404, 200, 200],
    );
    for (const each of heads.slice(0, 3)) t.ok(each.endsWith('\r\n\r\n'), 'no body');
    client.close();
    await quiet(t, [rig], [[agent, 0]]);
  });
});

t.test('C008 an answer whose headers are above the limit is refused by name, and cut off there', async (t) => {
  const LIMIT = 16_384;
  const large = {
    'one header of 20 000 bytes': `HTTP/1.1 200 OK\r\nX-Large: ${'a'.repeat(20_000)}\r\nContent-Length: 2\r\n\r\n{}`,
    'many small headers': `HTTP/1.1 200 OK\r\n${Array.from({ length: 2_000 }, (_, i) => `X-${i}: ${i}\r\n`).join('')}Content-Length: 2\r\n\r\n{}`,
    'a header name without end': `HTTP/1.1 200 OK\r\n${'n'.repeat(20_000)}`,
    'trailers of 20 000 bytes': `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Large: ${'a'.repeat(20_000)}\r\n\r\n`,
    'early hints of 20 000 bytes': `HTTP/1.1 103 Early Hints\r\nX-Large: ${'a'.repeat(20_000)}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}`,
  };
  for (const [what, bytes] of Object.entries(large)) {
    await t.test(what, async (t) => {
      const stub = await stubbed(t, (connection) => void connection.write(bytes));
      const agent = await TestAgent.listen('crm.order-other.1');
      t.teardown(() => agent.close());
      const rig = await rigFor(t, [
        { name: 'crm.order.query', at: [stub.url] },
        { name: 'crm.order.other', at: [agent.url] },
      ]);
      const [answer, ...others] = await Promise.all([
        rig.invoke('crm.order.query'),
        ...Array.from({ length: 10 }, () => rig.invoke('crm.order.other')),
      ]);
      t.equal(answer?.status, 502);
      t.match(answer?.json, { code: 1004, name: 'bad_response', detail: /headers.*limit of 16384 bytes/ });
      t.notMatch(answer?.json.detail, /fetch failed|UND_ERR/);
      for (const other of others) t.match(other.json, { code: 0 }, 'other calls go on');
      t.equal((await rig.ask('/v1/health')).status, 200);
      t.match(
        accessLines(rig).filter((line) => line['capability'] === 'crm.order.query'),
        [{ level: 30, code: 1004 }],
      );
      await quiet(
        t,
        [rig],
        [
          [stub, 1],
          [agent, 10],
        ],
      );
    });
  }

  await t.test('5 MB of headers sent slowly are cut off at the limit', async (t) => {
    let wrote = 0;
    const stub = await stubbed(t, async (connection) => {
      await connection.write('HTTP/1.1 200 OK\r\n');
      // 5 MB in pieces of 8 KB
      for (let i = 0; i < 640 && !connection.socket.destroyed; i++) {
        await connection.write(`X-${i}: ${'a'.repeat(8_180)}\r\n`);
        wrote += 8_192;
        await sleep(4);
      }
    });
    const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }]);
    const { json } = await rig.invoke('crm.order.query');
    t.match(json, { code: 1004, detail: /limit of 16384 bytes/ });
    await waitUntil('the connection is closed', () => stub.openConnections === 0);
    t.ok(wrote < LIMIT + 65_536, `${wrote} bytes were taken`);
    await quiet(t, [rig], [[stub, 1]]);
  });

  await t.test('the limit is the one that was set, and just below it all is well', async (t) => {
    const stub = await stubbed(
      t,
      (connection, request) =>
        void connection.write(
          `HTTP/1.1 200 OK\r\nX-Large: ${'a'.repeat(request.number === 1 ? 30_000 : 40_000)}\r\nContent-Length: 2\r\n\r\n{}`,
        ),
    );
    const rig = await rigFor(t, [{ name: 'crm.order.query', at: [stub.url] }], '  limits: {header_bytes: 32KiB}');
    const client = await RawClient.to(rig.port);
    client.write(head('POST', '/v1/invoke/crm.order.query', { authorization: `Bearer ${TOKEN}`, 'reach-mode': 'raw' }));
    t.match(await client.answer(), { status: 200, headers: { 'x-large': /^a{30000}$/ }, body: '{}', isWhole: true });
    client.close();
    t.match((await rig.invoke('crm.order.query')).json, { code: 1004, detail: /limit of 32768 bytes/ });
    await quiet(t, [rig], [[stub, 2]]);
  });
});
