import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Code } from '../../../proto/wire/codes.ts';
import type { TaskStatus } from '../../../sidecar/embed/casts.ts';
import {
  type CallOptions,
  type Handler,
  type Reach,
  ReachError,
  type ReachOptions,
  ServedAnswer,
  StartRefused,
  startReach,
} from '../../../sidecar/library.ts';
import { ENV, Plane } from '../../support/control-plane.ts';
import { NatsServer } from '../../support/nats.ts';
import { REPO } from '../../support/paths.ts';
import { Rig } from '../../support/rig.ts';
import { waitUntil } from '../../support/settle.ts';

const PUBLIC = { contract: { acl: 'public' } };

async function start(
  t: Test,
  settings: ReachOptions['settings'] = { sidecar: { name: 'one' } },
  as: string | null = 'support.planner.1',
): Promise<Reach> {
  const reach = await startReach({ settings, log: 'silent', ...(as === null ? {} : { as }) });
  t.teardown(() => reach.stop(0));
  return reach;
}

function listening(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === 'TCPServerWrap' || kind === 'PipeWrap').length;
}

t.test(
  'a call inside the process goes through the whole pipeline without a socket, and its Result has the fields of the HTTP one',
  async (t) => {
    const before = listening();
    const reach = await start(t);
    await reach.serve('crm.order.query@2.1.0', (request) => ({ got: request.payload, by: request.caller }), {
      agent: 'shop.order.1',
      ...PUBLIC,
    });
    const result = await reach.invoke<{ got: unknown; by: string }>('crm.order.query@^2.0', { id: 7 });
    t.equal(listening(), before);
    t.equal(reach.url, '');
    t.equal(reach.meshUrl, null);
    t.equal(result.code, Code.ok, JSON.stringify(result));
    t.equal(result.status, 200);
    t.strictSame(result.data, { got: { id: 7 }, by: 'support.planner.1' });
    t.equal(result.error, null);
    t.equal(result.provider, 'shop.order.1');
    t.equal(result.version, '2.1.0');
    t.equal(result.degraded, false);
    t.equal(result.definitely_success, false);
    t.match(result.trace_id, /^[0-9a-f]{32}$/);
    t.type(result.elapsed_ms, 'number');
    t.match(result.attempts, [{ provider: 'shop.order.1', version: '2.1.0', code: 0, status: 200, started: 'done' }]);
    t.equal(result.decision, undefined);
    const told = await reach.invoke('crm.order.query', null, { explain: true });
    t.ok((told.decision ?? []).length > 3);
  },
);

t.test('a failure is a Result with its code, never a rejection', async (t) => {
  const reach = await start(t);
  const throwing: Handler = () => {
    throw new Error('the database is away');
  };
  await reach.serve('crm.order.query@1.0.0', throwing, { agent: 'shop.order.1', ...PUBLIC });
  await reach.serve('crm.order.hidden@1.0.0', () => 1, { agent: 'shop.order.1', contract: { acl: ['role:nobody'] } });
  await reach.serve('crm.order.slow@1.0.0', () => new Promise(() => {}), { agent: 'shop.order.1', ...PUBLIC });
  await reach.serve('crm.order.typed@1.0.0', () => 'text', {
    agent: 'shop.order.1',
    contract: { acl: 'public', input: { type: 'object', required: ['id'] }, output: { type: 'object' } },
  });
  const rows: readonly [string, unknown, CallOptions, number, RegExp][] = [
    ['crm.order.query', {}, { retry: 'none' }, Code.provider_error, /the database is away/],
    ['crm.order.hidden', {}, {}, Code.forbidden, /./],
    ['crm.order.slow', {}, { deadlineMs: 120 }, Code.deadline_exceeded, /./],
    ['crm.order.typed', { no: 1 }, {}, Code.invalid_request, /id/],
    ['crm.order.typed', { id: 1 }, { retry: 'none' }, Code.invalid_response, /./],
    ['crm.order.nothing', {}, {}, Code.no_provider, /nothing/],
    ['Crm Order', {}, {}, Code.bad_name, /./],
    ['crm.order.query@^9.0', {}, {}, Code.no_matching_version, /1\.0\.0/],
  ];
  for (const [target, payload, options, code, words] of rows) {
    const result = await reach.invoke(target, payload, options);
    t.equal(result.code, code, `${target}: ${JSON.stringify(result)}`);
    t.equal(result.error?.code, code);
    t.match(result.error?.detail, words);
  }
  t.match((await reach.invoke('crm.order.query', {}, { retry: 'none' })).data, { error: { message: 'the database is away' } });
});

t.test('a call that is given up is cancelled, and its function hears of it', async (t) => {
  const reach = await start(t);
  let isAborted = false;
  await reach.serve(
    'crm.order.query@1.0.0',
    (request) =>
      new Promise((_done, fail) =>
        request.signal.addEventListener('abort', () => {
          isAborted = true;
          fail(new Error('aborted'));
        }),
      ),
    { agent: 'shop.order.1', ...PUBLIC },
  );
  const giving = new AbortController();
  const waiting = reach.invoke('crm.order.query', {}, { signal: giving.signal });
  setImmediate(() => giving.abort());
  t.equal((await waiting).code, Code.cancelled);
  t.ok(isAborted);
  t.equal((await reach.invoke('crm.order.query', {}, { signal: giving.signal })).code, Code.cancelled, 'before it began');
});

t.test('calls made while serving are part of the work: its agent, trace, path and remaining time', async (t) => {
  const reach = await start(t);
  const seen: Record<string, unknown>[] = [];
  await reach.serve(
    'crm.order.sum@1.0.0',
    (request) => {
      seen.push({ caller: request.caller, trace: request.traceId, path: request.headers['reach-path'], left: request.remainingMs });
      return 3;
    },
    { agent: 'shop.sum.1', ...PUBLIC },
  );
  await reach.serve('crm.order.query@1.0.0', async () => (await reach.invoke('crm.order.sum', [1, 2], { deadlineMs: 60_000 })).data, {
    agent: 'shop.order.1',
    ...PUBLIC,
  });
  const result = await reach.invoke('crm.order.query', {}, { deadlineMs: 2_000 });
  t.equal(result.data, 3, JSON.stringify(result));
  t.equal(seen[0]?.['caller'], 'shop.order.1');
  t.equal(seen[0]?.['trace'], result.trace_id);
  t.equal(seen[0]?.['path'], 'shop.order.1>crm.order.query, shop.sum.1>crm.order.sum');
  t.ok((seen[0]?.['left'] as number) <= 2_000);

  const told: Readonly<Record<string, string>>[] = [];
  await reach.serve('step.two.run@1.0.0', (request) => void told.push(request.headers), { agent: 'step.two.1', ...PUBLIC });
  await reach.serve(
    'step.one.run@1.0.0',
    async (request) => {
      told.push(request.headers);
      return (await reach.invoke('step.two.run', {}, { step: 'two' })).code;
    },
    { agent: 'step.one.1', ...PUBLIC },
  );
  const budget = { one: 1_000, two: 2_000, three: 2_500 };
  t.equal((await reach.invoke('step.one.run', {}, { deadlineMs: 6_000, budget })).data, 0, 'an agent can make the steps of a task');
  const carried = { 'reach-budget': 'one=1000, two=2000, three=2500', 'reach-deadline-total-ms': '6000' };
  t.match(told, [carried, carried]);
  t.ok(Number(told[1]?.['reach-deadline-ms']) <= 3_500, 'each with its own share');
  t.equal(told[1]?.['reach-step'], undefined);
  t.equal((await reach.invoke('step.two.run', {})).code, 0);
  t.equal(told.at(-1)?.['reach-budget'], undefined, 'none, where none was given');

  await reach.serve('loop.a.run@1.0.0', async () => await inner('loop.b.run'), { agent: 'loop.a.1', ...PUBLIC });
  await reach.serve('loop.b.run@1.0.0', async () => await inner('loop.a.run'), { agent: 'loop.b.1', ...PUBLIC });
  const codes: number[] = [];
  const inner = async (target: string): Promise<unknown> => {
    const inside = await reach.invoke(target, {});
    codes.push(inside.code);
    if (inside.code !== 0) throw new ServedAnswer(422, { code: inside.code });
    return inside.data;
  };
  t.equal((await reach.invoke('loop.a.run', {})).code, Code.provider_error);
  t.strictSame(codes, [Code.loop_detected, Code.provider_error], 'a loop is found at its end and named');
});

t.test('a deadline that is none is refused, also within work that has a time of its own', async (t) => {
  const reach = await start(t);
  await reach.serve('crm.order.sum@1.0.0', () => 3, { agent: 'shop.sum.1', ...PUBLIC });
  const askWith = (headers: Record<string, string>) => reach.invoke('crm.order.sum', [], { headers });
  const given = ['1e9', 'soon', '0x10000000', '9000.5', ''].map((value) => ({ 'reach-deadline-ms': value }));
  await reach.serve('crm.order.query@1.0.0', async () => (await Promise.all(given.map(askWith))).map(({ code }) => code), {
    agent: 'shop.order.1',
    ...PUBLIC,
  });
  const refused = given.map(() => Code.invalid_request);
  t.strictSame(
    (await Promise.all(given.map(askWith))).map(({ code }) => code),
    refused,
  );
  t.strictSame((await reach.invoke('crm.order.query')).data, refused);
});

t.test('explain names headers of ours that nothing reads', async (t) => {
  const reach = await start(t);
  await reach.serve('crm.order.sum@1.0.0', () => 3, {
    agent: 'shop.sum.1',
    contract: { acl: 'public', affinity: { from: 'header:reach-basket' } },
  });
  const hints = (headers: Record<string, string>) => reach.explain('crm.order.sum', [], { headers }).hints;
  t.strictSame(hints({ 'reach-deadline-ms': '100', 'reach-basket': 'b1', 'x-reach': '1', 'idempotency-key': 'one' }), []);
  t.match(hints({ 'Reach-Deadlin-Ms': '100', 'reach-version': '2.0' }), [
    /"reach-deadlin-ms" is passed over.*did you mean reach-deadline-ms/,
    /"reach-version" is passed over: nothing reads it of a call$/,
  ]);
  t.strictSame(hints({ 'reach-retry': 'none' }), []);
  t.match(hints({ 'reach-retry': 'never' }), [/reach-retry is passed over/]);
});

t.test('work that is given up ends the calls made for it', async (t) => {
  const reach = await start(t);
  const aborted: string[] = [];
  await reach.serve(
    'deep.work.run@1.0.0',
    (request) => new Promise(() => request.signal.addEventListener('abort', () => aborted.push('deep'))),
    { agent: 'deep.work.1', ...PUBLIC },
  );
  await reach.serve('top.work.run@1.0.0', async () => await reach.invoke('deep.work.run', {}), { agent: 'top.work.1', ...PUBLIC });
  const giving = new AbortController();
  const waiting = reach.invoke('top.work.run', {}, { signal: giving.signal });
  await new Promise((done) => setTimeout(done, 20));
  giving.abort();
  t.equal((await waiting).code, Code.cancelled);
  await waitUntil('the call below has ended', () => aborted.length === 1, 1_000);
});

t.test('a stream is iterated to its proper end; a cut throws, and leaving it early gives it up', async (t) => {
  const reach = await start(t);
  let made = 0;
  let isClosed = false;
  const write: Handler = async function* (request) {
    const { count, fails } = request.payload as { count: number; fails?: boolean };
    try {
      for (let i = 0; i < count; i++) {
        made++;
        yield { i };
      }
      if (fails === true) throw new Error('boo');
    } finally {
      isClosed = true;
    }
  };
  await reach.serve('nlp.text.write@1.0.0', write, { agent: 'nlp.writer.1', ...PUBLIC });
  const whole = reach.stream('nlp.text.write', { count: 3 });
  t.match(await whole.head(), { status: 200, contentType: 'application/x-ndjson', provider: 'nlp.writer.1', version: '1.0.0' });
  t.equal(whole.result, null);
  const values: unknown[] = [];
  for await (const value of whole.values()) values.push(value);
  t.strictSame(values, [{ i: 0 }, { i: 1 }, { i: 2 }]);
  t.match(whole.result, { code: 0, provider: 'nlp.writer.1', data: null });
  await t.rejects((async () => await whole[Symbol.asyncIterator]().next())(), /once/);

  const cut = reach.stream('nlp.text.write', { count: 2, fails: true });
  const chunks: string[] = [];
  const reading = (async () => {
    for await (const chunk of cut) chunks.push(chunk.toString());
  })();
  await t.rejects(reading, { code: Code.stream_interrupted, name: 'stream_interrupted', message: /boo/ });
  t.strictSame(chunks, ['{"i":0}\n', '{"i":1}\n']);
  t.equal(cut.result, null);

  made = 0;
  isClosed = false;
  for await (const chunk of reach.stream('nlp.text.write', { count: 100_000 })) {
    if (chunk.length > 0) break;
  }
  await waitUntil('the generator is closed', () => isClosed, 1_000);
  t.ok(made < 10, `${made} pieces were made for a reader of one`);

  const refused = reach.stream('nlp.text.nobody', {});
  const error = await refused.head().catch((thrown: unknown) => thrown);
  t.ok(error instanceof ReachError);
  t.equal((error as ReachError).code, Code.no_provider);
  await reach.serve('nlp.text.one@1.0.0', () => ({ a: 1 }), { agent: 'nlp.one.1', ...PUBLIC });
  const one: string[] = [];
  for await (const chunk of reach.stream('nlp.text.one')) one.push(chunk.toString());
  t.strictSame(one, ['{"a":1}'], 'an answer in one piece is one piece');
});

t.test('a signal cuts a stream under way', async (t) => {
  const reach = await start(t);
  await reach.serve(
    'nlp.text.drip@1.0.0',
    async function* (request) {
      yield 'a';
      await new Promise((done) => request.signal.addEventListener('abort', done));
    },
    { agent: 'nlp.writer.1', ...PUBLIC },
  );
  const giving = new AbortController();
  const chunks: string[] = [];
  const reading = (async () => {
    for await (const chunk of reach.stream('nlp.text.drip', {}, { signal: giving.signal })) {
      chunks.push(chunk.toString());
      setImmediate(() => giving.abort());
    }
  })();
  await t.rejects(reading, { code: Code.cancelled });
  t.strictSame(chunks, ['a']);
});

const TABLE = `
contracts:
  - {name: crm.order.query, version: 2.1.0, acl: public}
providers:
  - {agent_id: shop.order.1, offers: ["crm.order.query@2.1.0"], endpoint: {type: local}, via: inner}
`;

t.test('a local agent of the table is offline until it is served, and again afterwards; explain says so', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-embedded-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'sidecar.yaml'), `sidecar: {name: inner, state_dir: none}\n${TABLE}`);
  const reach = await start(t, join(folder, 'sidecar.yaml'));
  t.equal(reach.explain('crm.order.query').would_serve, null);
  const before = await reach.invoke('crm.order.query', {});
  t.equal(before.code, Code.none_healthy);
  t.match(before.error?.detail, /offline/);
  const serving = await reach.serve('crm.order.query@2.1.0', () => 1, { agent: 'shop.order.1' });
  t.match(reach.explain('crm.order.query').would_serve, { provider: 'shop.order.1', version: '2.1.0' });
  t.equal((await reach.invoke('crm.order.query', {})).data, 1);
  writeFileSync(join(folder, 'sidecar.yaml'), `sidecar: {name: inner, state_dir: none}\n${TABLE}# edited\n`);
  const version = reach.explain('crm.order.query').table_version;
  await waitUntil('the edited file is installed', () => reach.explain('crm.order.query').table_version > version, 3_000);
  t.equal((await reach.invoke('crm.order.query', {})).data, 1, 'a new table leaves it online');
  await serving.stop();
  await serving.stop();
  t.equal((await reach.invoke('crm.order.query', {})).code, Code.none_healthy);
});

t.test('callers over HTTP and other sidecars over the mesh port reach a function as any other agent', async (t) => {
  const inner = await start(t, {
    sidecar: {
      name: 'inner',
      listen: '127.0.0.1:0',
      callers: [{ agent: 'support.helper.1', token: 'token-of-the-helper' }],
      mesh: { listen: '127.0.0.1:0', token: 'token-of-the-mesh' },
    },
  });
  await inner.serve('crm.order.query@2.1.0', (request) => ({ by: request.caller, path: request.headers['reach-path'] }), {
    agent: 'shop.order.1',
    ...PUBLIC,
  });
  await inner.serve(
    'nlp.text.write@1.0.0',
    async function* () {
      yield 'a';
      yield 'b';
    },
    { agent: 'shop.order.1', ...PUBLIC },
  );
  const headers = { authorization: 'Bearer token-of-the-helper', 'content-type': 'application/json' };
  const response = await fetch(`${inner.url}/v1/invoke/crm.order.query`, { method: 'POST', headers, body: '{}' });
  t.match(await response.json(), { code: 0, data: { by: 'support.helper.1' }, provider: 'shop.order.1' });
  const streamed = await fetch(`${inner.url}/v1/stream/nlp.text.write`, { method: 'POST', headers, body: '{}' });
  t.equal(await streamed.text(), 'ab');

  const outer = await Rig.start(t, {
    name: 'outer',
    meshToken: 'token-of-the-mesh',
    table: `contracts:
  - {name: crm.order.query, version: 2.1.0, acl: public}
  - {name: nlp.text.write, version: 1.0.0, acl: public}
providers:
  - {agent_id: shop.order.1, offers: ["crm.order.query@2.1.0", "nlp.text.write@1.0.0"], endpoint: {type: local}, via: inner}
sidecars:
  - {name: inner, mesh: "${inner.meshUrl}"}
`,
  });
  const meshed = await outer.invoke('crm.order.query', { payload: {} });
  t.match(meshed.json, { code: 0, data: { by: 'support.planner.1', path: 'shop.order.1>crm.order.query' }, provider: 'shop.order.1' });
  t.equal((await outer.ask('/v1/stream/nlp.text.write', { method: 'POST' })).bytes.toString(), 'ab');
});

t.test(
  'with a registry a served function is registered like any agent: other sidecars reach it, and it leaves when it is stopped',
  async (t) => {
    const nats = await NatsServer.start(t);
    await Plane.start(t, nats);
    const registry = { nats: nats.url, env: ENV };
    const mesh = { listen: '127.0.0.1:0', token: 'token-of-the-mesh' };
    const inner = await start(t, { sidecar: { name: 'inner', registry, mesh } }, 'shop.order.1');
    const outer = await start(t, { sidecar: { name: 'outer', registry, mesh } });
    await waitUntil('the registry knows both', () => inner.ready && outer.ready, 15_000);
    const serving = await inner.serve('crm.order.query@2.1.0', (request) => ({ by: request.caller }), {
      contract: { acl: 'public', description: 'x', execution: 'idempotent' },
    });
    t.match(await inner.invoke('crm.order.query', {}), { code: 0, data: { by: 'shop.order.1' } }, 'here at once');
    await waitUntil('the other one has it', async () => (await outer.invoke('crm.order.query', {})).code === 0, 15_000);
    t.match(await outer.invoke('crm.order.query', {}), { data: { by: 'support.planner.1' }, provider: 'shop.order.1', version: '2.1.0' });
    await serving.stop();
    await waitUntil('it is gone there', async () => (await outer.invoke('crm.order.query', {})).code !== 0, 15_000);
  },
);

t.test('serving says in words why it cannot be', async (t) => {
  const reach = await start(
    t,
    { sidecar: { name: 'inner' }, contracts: [{ name: 'crm.order.list', version: '1.0.0', acl: 'public' }], providers: [] },
    null,
  );
  const why = async (target: string, options: Parameters<Reach['serve']>[2]): Promise<string> =>
    await reach
      .serve(target, () => 1, options)
      .then(
        () => 'served',
        (error: Error) => error.message,
      );
  t.match(await why('crm.order.query@1.0.0', {}), /nobody is named who serves/);
  t.match(await why('crm.order.query', { agent: 'shop.order.1', ...PUBLIC }), /names no version/);
  t.match(await why('Crm@1.0.0', { agent: 'shop.order.1', ...PUBLIC }), /./);
  t.match(await why('crm.order.query@1.0.0', { agent: 'shop.order.1' }), /no contract.*acl/);
  t.match(await why('crm.order.query@1.0.0', { agent: 'shop.order.1', contract: {} }), /acl/);
  t.match(await why('crm.order.query@1.0.0', { agent: 'shop', ...PUBLIC }), /team\.role\.id|agent/);
  t.match(await why('crm.order.query@1.0.0', { agent: 'shop.order.1', contract: { acl: 'public', timeot: '1s' } }), /timeout/);
  t.equal(await why('crm.order.list@1.0.0', { agent: 'shop.order.1' }), 'served', 'its contract is in the table');
  t.match(await why('crm.order.list@1.0.0', { agent: 'shop.order.1' }), /already/);
  await t.rejects(reach.invoke('crm.order.list', {}), /nobody is named who calls/);
  await t.rejects(reach.invoke('crm.order.list', {}, { as: 'nobody' }), /no agent/);
  t.equal((await reach.invoke('crm.order.list', {}, { as: 'support.planner.2' })).data, 1);
});

t.test('an agent may serve several, and what is stopped is gone while the rest stays', async (t) => {
  const reach = await start(t);
  const one = await reach.serve('crm.order.query@1.0.0', () => 'one', { ...PUBLIC });
  await reach.serve('crm.order.query@2.0.0', () => 'two', { ...PUBLIC });
  await reach.serve('crm.order.list@1.0.0', () => 'list', { ...PUBLIC });
  t.equal((await reach.invoke('crm.order.query@^1.0')).data, 'one');
  t.equal((await reach.invoke('crm.order.query@^2.0')).data, 'two');
  await one.stop();
  t.not((await reach.invoke('crm.order.query@^1.0')).code, 0);
  t.equal((await reach.invoke('crm.order.query@^2.0')).data, 'two');
  t.equal((await reach.invoke('crm.order.list')).data, 'list');
});

t.test('what was said of an agent holds for all that it serves, whatever is served or stopped later', async (t) => {
  const reach = await start(t);
  const agent = 'shop.order.1';
  const seenWith = (target: string, tags: Record<string, string>) => reach.explain(target, {}, { tags }).would_serve?.provider ?? null;
  await reach.serve('crm.order.query@1.0.0', () => 'query', { agent, ...PUBLIC, provider: { tags: { region: 'eu' }, weight: 7 } });
  const list = await reach.serve('crm.order.list@1.0.0', () => 'list', { agent, ...PUBLIC });
  t.equal(seenWith('crm.order.query', { region: 'eu' }), agent, 'the first is as it was');
  t.equal(seenWith('crm.order.list', { region: 'eu' }), agent, 'and the second is of the same agent');
  await reach.serve('crm.order.sum@1.0.0', () => 'sum', { agent, ...PUBLIC, provider: { tags: { region: 'us' } } });
  t.equal(seenWith('crm.order.query', { region: 'us' }), agent, 'what is said later holds');
  t.equal(seenWith('crm.order.query', { region: 'eu' }), null);
  await t.rejects(reach.serve('crm.order.pay@1.0.0', () => 'pay', { agent, ...PUBLIC, provider: { tags: { region: 'cn' }, wieght: 1 } }));
  t.equal(seenWith('crm.order.query', { region: 'us' }), agent, 'what was refused does not');
  await list.stop();
  t.equal(
    (await reach.invoke('crm.order.query', {}, { tags: { region: 'us' } })).data,
    'query',
    'stopping one changes nothing for the rest',
  );
  await reach.serve('crm.order.list@1.0.0', () => 'list', { agent, contract: { acl: ['sales.*.*'] } });
  t.equal((await reach.invoke('crm.order.list')).code, Code.forbidden, 'served again, with the contract that was said last');
});

t.test('settings that cannot be used are refused with all that is wrong; after the end nothing is taken', async (t) => {
  await t.rejects(startReach({ settings: { sidecar: { nam: 'x' } }, log: 'silent' }), /nam.*did you mean name/s);
  const refusal = await startReach({ settings: { sidecar: {} }, log: 'silent' }).catch((error: unknown) => error);
  t.ok(refusal instanceof StartRefused);
  await t.rejects(startReach({ settings: { sidecar: { name: 'x' } }, as: 'x', log: 'silent' }), /no agent/);
  await t.rejects(startReach({ settings: join(tmpdir(), 'is-not-there.yaml'), log: 'silent' }), /cannot be read/);
  const reach = await start(t);
  await reach.serve('crm.order.query@1.0.0', () => 1, PUBLIC);
  await reach.stop();
  const result = await reach.invoke('crm.order.query');
  t.equal(result.code, Code.blocked_by_operator);
  t.match(result.error?.detail, /stopping/);
});

t.test('stopping lets calls under way end, with what they still need, and gives up those that do not', async (t) => {
  const reach = await start(t);
  let go: () => void = () => {};
  await reach.serve('crm.order.sum@1.0.0', () => 3, PUBLIC);
  await reach.serve(
    'crm.order.query@1.0.0',
    async () => {
      await new Promise<void>((done) => (go = done));
      return (await reach.invoke('crm.order.sum')).data;
    },
    { agent: 'shop.order.1', ...PUBLIC },
  );
  await reach.serve('crm.order.hang@1.0.0', () => new Promise(() => {}), { agent: 'shop.order.1', ...PUBLIC });
  const ending = reach.invoke('crm.order.query');
  const hanging = reach.invoke('crm.order.hang');
  await new Promise((done) => setImmediate(done));
  const stopped = reach.stop(150);
  t.equal((await reach.invoke('crm.order.sum')).code, Code.blocked_by_operator);
  go();
  t.match(await ending, { code: 0, data: 3 });
  t.equal((await hanging).code, Code.cancelled);
  await stopped;
});

t.test('functions of one agent that are served at the same time are all called', async (t) => {
  const reach = await start(t);
  const names = ['a', 'b', 'c'];
  const serve = (name: string): ReturnType<Reach['serve']> =>
    reach.serve(`crm.order.${name}@1.0.0`, () => name, { agent: 'shop.order.1', ...PUBLIC });
  const served = await Promise.all(names.map(serve));
  for (const name of names) t.equal((await reach.invoke(`crm.order.${name}`)).data, name);
  await Promise.all(served.slice(1).map((one) => one.stop()));
  t.equal((await reach.invoke('crm.order.a')).data, 'a', 'two that end at once leave the third');
  t.equal((await reach.invoke('crm.order.b')).code, Code.no_provider);
  // One that is refused takes nothing with it.
  const bad = reach.serve('crm.order.bad@1.0.0', () => 1, { agent: 'shop.order.1', contract: {} });
  const [refused] = await Promise.allSettled([bad, serve('b')]);
  t.equal(refused.status, 'rejected');
  t.equal((await reach.invoke('crm.order.b')).data, 'b');
});

t.test('what a function gives arrives as it was meant, or is refused with its reason', async (t) => {
  const reach = await start(t);
  const agent = { agent: 'nlp.writer.1', ...PUBLIC };
  await reach.serve('nlp.text.halves@1.0.0', () => 'hi 🙂🙂!'.split('').values(), agent);
  t.equal((await reach.invoke('nlp.text.halves')).data, 'hi 🙂🙂!', 'a character whose halves lie on two pieces is whole');
  let text = '';
  for await (const chunk of reach.stream('nlp.text.halves')) text += chunk.toString('utf8');
  t.equal(text, 'hi 🙂🙂!');
  await reach.serve('nlp.text.half@1.0.0', () => ['a\ud83d'].values(), agent);
  t.equal((await reach.invoke('nlp.text.half')).data, 'a\ufffd', 'a half that stays alone is one mark');
  text = '';
  for await (const chunk of reach.stream('nlp.text.half')) text += chunk.toString('utf8');
  t.equal(text, 'a\ufffd');
  const odd: readonly unknown[] = [new Map([['a', 1]]), { balance: Number.NaN }, [new ArrayBuffer(2)]];
  await reach.serve('nlp.text.odd@1.0.0', (request) => odd[request.payload as number], agent);
  for (const [i, words] of [/kind Map has no form in JSON/, /NaN at "balance" has no form/, /kind ArrayBuffer at "0"/].entries())
    t.match(await reach.invoke('nlp.text.odd', i), { code: Code.provider_error, data: { error: { message: words } } });
});

t.test('a generator whose pieces are collected ends when nobody waits for them any more', async (t) => {
  const reach = await start(t);
  let hasEnded = false;
  async function* endless(): AsyncGenerator<number> {
    try {
      for (let i = 0; ; i++) {
        await new Promise((done) => setTimeout(done, 2));
        yield i;
      }
    } finally {
      hasEnded = true;
    }
  }
  await reach.serve('crm.order.query@1.0.0', endless, { agent: 'shop.order.1', ...PUBLIC });
  t.equal((await reach.invoke('crm.order.query', null, { deadlineMs: 100, retry: 'none' })).code, Code.deadline_exceeded);
  await waitUntil('its finally has run', () => hasEnded);
});

t.test('a stream that is given up before its head stops the function', async (t) => {
  const reach = await start(t);
  let isAsked = false;
  let isAborted = false;
  const hanging: Handler = ({ signal }) => {
    isAsked = true;
    return new Promise(() => signal.addEventListener('abort', () => (isAborted = true)));
  };
  await reach.serve('crm.order.query@1.0.0', hanging, { agent: 'shop.order.1', ...PUBLIC });
  const stream = reach.stream('crm.order.query', null, { deadlineMs: 60_000 });
  const head = stream.head().catch((error: unknown) => error);
  await waitUntil('it is asked', () => isAsked);
  await stream.cancel();
  t.match(await head, { code: Code.cancelled });
  t.ok(isAborted);
});

t.test('a program imports the package by its name', async (t) => {
  if (!existsSync(join(REPO, 'dist', 'sidecar', 'library.js'))) {
    t.comment('there is no build to import');
    t.end();
    return;
  }
  const folder = mkdtempSync(join(REPO, 'build', 'embedded-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(
    join(folder, 'program.mjs'),
    `import { startReach } from 'agent-reach';
const reach = await startReach({ settings: { sidecar: { name: 'one' } }, as: 'support.planner.1' });
await reach.serve('crm.order.query@1.0.0', (request) => ({ id: request.payload.id + 1 }), { agent: 'shop.order.1', contract: { acl: 'public' } });
const result = await reach.invoke('crm.order.query', { id: 7 });
console.log(JSON.stringify(result.data));
await reach.stop();
`,
  );
  const { stdout, stderr, status } = spawnSync(process.execPath, [join(folder, 'program.mjs')], {
    encoding: 'utf8',
    timeout: 20_000,
    env: { PATH: process.env['PATH'] },
  });
  t.equal(stdout.trim(), '{"id":8}', stderr);
  t.equal(status, 0, 'and ends by itself');
});

t.test('a message inside a process without a registry: refused, or carried out without a promise', async (t) => {
  const reach = await start(t);
  const seen: unknown[] = [];
  const work: Handler = (request) => {
    seen.push(request.payload);
    return { done: true };
  };
  await reach.serve('crm.order.query@1.0.0', work, { agent: 'shop.order.1', ...PUBLIC });
  const refused = await reach.cast('crm.order.query', { n: 1 });
  t.match(refused, { ok: false, code: Code.delivery_unavailable, name: 'delivery_unavailable', retryable: true });
  t.match(await reach.cast('crm.order.query', { n: 1 }, { priority: 'high', expiresMs: 1 }), { ok: false, code: Code.invalid_request });
  const cast = await reach.cast('crm.order.query', { n: 2 }, { bestEffort: true, powerId: 'k-1', tags: { lang: 'de' } });
  t.match(cast, { ok: true, durable: 'none', state: 'accepted', power_id: 'k-1', lane: 'normal' });
  const id = cast.ok ? cast.task_id : '';
  const known = async (task: string): Promise<TaskStatus | null> => {
    const found = await reach.task(task);
    return found === 'unsure' ? null : found;
  };
  await waitUntil('it has ended', async () => (await known(id))?.isFinal === true);
  t.match(await reach.task(id), {
    taskId: id,
    state: 'done',
    capability: 'crm.order.query',
    events: [{ by: 'shop.order.1', attempts: 1 }],
  });
  t.equal((await known(id))?.result?.toString('utf8'), '{"done":true}');
  t.strictSame(seen, [{ n: 2 }]);
  t.equal(await reach.task(id, 'sales.helper.2'), null, "another agent's");
  t.equal(await reach.cancelTask(id), 'too_late');
  t.equal(await reach.cancelTask('nosuchtask'), 'unknown');
  const lost = await reach.cast('crm.nobody.here', {}, { bestEffort: true });
  await waitUntil('it has failed', async () => (await known(lost.ok ? lost.task_id : ''))?.state === 'failed');
  t.match(await reach.task(lost.ok ? lost.task_id : ''), { events: [{ code: Code.no_provider }] });
});
