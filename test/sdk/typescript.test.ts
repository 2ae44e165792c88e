/** The TypeScript client: what it makes of answers, faults, streams of all kinds and the context; and its package. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { EventReader, LineReader } from '../../sdk/typescript/events.ts';
import { AgentError, Reach, ReachError, type ReachStream } from '../../sdk/typescript/index.ts';
import { type AgentBehaviour, TestAgent } from '../support/agent.ts';
import { takeBase } from '../support/invariants.ts';
import { Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

t.setTimeout(110_000);

const TASK = 'crm.order.query';
const tableOf = (url: string): string => `contracts:
  - {name: ${TASK}, version: 2.1.0, acl: public, description: Finds orders., tags: {lang: en}}
providers:
  - {agent_id: crm.order.1, offers: [${TASK}@2.1.0], endpoint: {type: http, address: "${url}"}}
`;

async function world(t: Test, behaviour?: AgentBehaviour): Promise<{ rig: Rig; agent: TestAgent; reach: Reach }> {
  const agent = await TestAgent.listen('order', behaviour);
  const rig = await Rig.start(t, { table: tableOf(agent.url) });
  const reach = new Reach({ url: rig.url, token: TOKEN });
  t.teardown(async () => {
    await reach.close();
    await agent.close();
  });
  return { rig, agent, reach };
}

/** A server that is no sidecar. */
async function server(t: Test, behaviour: AgentBehaviour): Promise<Reach> {
  const stranger = await TestAgent.listen('stranger', behaviour);
  const reach = new Reach({ url: stranger.url, token: TOKEN });
  t.teardown(async () => {
    await reach.close();
    await stranger.close();
  });
  return reach;
}

t.test('a call', async (t) => {
  const { rig, agent, reach } = await world(t);

  await t.test('is answered with the whole Result', async (t) => {
    const result = await reach.invoke<{ payload: unknown }>(`${TASK}@^2.0`, { order: 7 });
    t.match(result, {
      ok: true,
      code: 0,
      status: 200,
      error: null,
      provider: 'crm.order.1',
      version: '2.1.0',
      degraded: false,
      definitelySuccess: false,
    });
    t.strictSame(result.data.payload, { order: 7 });
    t.match(result.attempts, [{ provider: 'crm.order.1', code: 0, started: 'done' }]);
    t.match(result.traceId, /^[0-9a-f]{32}$/);
    t.ok(result.elapsedMs > 0 && result.attempts[0]!.elapsedMs > 0);
  });

  await t.test('says to the sidecar what its options say', async (t) => {
    const asked = await reach.call(TASK, 1, {
      deadlineMs: 2_000.7,
      budget: { intent: 500, order: 1_000 },
      step: 'order',
      affinity: 'talk-1',
      sequenceId: 'seq-1',
      pin: 'crm.order.1',
      tags: { lang: 'en' },
      execution: 'idempotent',
      idempotencyKey: 'key-1',
      headers: { 'X-Own': 'grüß dich 🙂' },
    });
    t.ok(asked.ok);
    const { headers } = agent.requests.at(-1)!;
    t.match(headers, {
      'reach-affinity': 'talk-1',
      'reach-sequence-id': 'seq-1',
      'idempotency-key': 'key-1',
      'reach-execution': 'idempotent',
    });
    t.equal(Buffer.from(headers['x-own'] as string, 'latin1').toString('utf8'), 'grüß dich 🙂', 'text of any kind goes as UTF-8');
    t.ok(Number(headers['reach-deadline-ms']) <= 2_000 && Number(headers['reach-deadline-ms']) > 1_000);
    t.match(await reach.call(TASK, 1, { tags: { lang: 'de' } }), { ok: false, code: 2001 });
    t.match(await reach.call(TASK, 1, { pin: 'crm.order.9' }), { ok: false });
    t.match(await reach.call(TASK, 1, { budget: { a: 1_000 }, step: 'b' }), {
      code: 4003,
      error: { detail: /Reach-Step "b" is not among the steps/ },
    });
  });

  await t.test('that fails is a ReachError, or a Result for who asks for that', async (t) => {
    const error = (await reach.invoke(`${TASK}@^3.0`).catch((raised: unknown) => raised)) as ReachError;
    t.ok(error instanceof ReachError && error instanceof Error);
    t.match(error, { name: 'no_matching_version', code: 2002, retryable: false, ambiguous: false, data: null, message: /exists: 2\.1\.0/ });
    t.match(await reach.call(`${TASK}@^3.0`), {
      ok: false,
      code: 2002,
      error: { name: 'no_matching_version' },
      attempts: [],
      status: 0,
      provider: null,
    });
    t.match(await reach.call('not a name'), { ok: false, code: 4006 });
    const nobody = new Reach({ url: rig.url, token: 'wrong' });
    t.match(await nobody.call(TASK), { ok: false, code: 4001 });
    await t.rejects(nobody.capabilities(), { code: 4001 });
    await nobody.close();
  });

  await t.test('with a payload that is no JSON is not sent', async (t) => {
    const before = agent.executions;
    const loop: Record<string, unknown> = {};
    loop['self'] = loop;
    await t.rejects(reach.call(TASK, loop), TypeError);
    await t.rejects(reach.call(TASK, 1n), TypeError);
    await t.rejects(reach.call(TASK, { balance: Number.NaN }), /NaN at "balance" has no form in JSON/);
    await t.rejects(reach.call(TASK, new Map([['a', 1]])), /kind Map has no form in JSON/);
    await t.rejects(
      reach.call(TASK, () => 1),
      /JSON or bytes, not a function/,
    );
    t.equal(agent.executions, before);
  });

  await t.test('that is given up before it began is not sent', async (t) => {
    const before = agent.executions;
    t.match(await reach.call(TASK, 1, { signal: AbortSignal.abort() }), { code: 5003, error: { ambiguous: false } });
    t.equal(agent.executions, before);
  });

  await t.test('may be one of many under one signal', async (t) => {
    const warnings: string[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning.message);
    process.on('warning', onWarning);
    const leaving = new AbortController();
    const all = await Promise.all(Array.from({ length: 30 }, (_, i) => reach.call(TASK, i, { signal: leaving.signal })));
    await new Promise((done) => setImmediate(done));
    process.off('warning', onWarning);
    t.strictSame([all.filter(({ ok }) => !ok).length, warnings], [0, []]);
  });

  await t.test('can be explained, and what may be called is listed', async (t) => {
    const before = agent.executions;
    t.match(await reach.explain(`${TASK}@^2.0`), { asked: `${TASK}@^2.0`, would_serve: { provider: 'crm.order.1' }, refusal: null });
    t.match(await reach.explain(`${TASK}@^3.0`, { order: 1 }), { would_serve: null, refusal: { code: 2002 } });
    t.match(await reach.capabilities(), [{ name: TASK, versions: [{ version: '2.1.0', description: 'Finds orders.' }] }]);
    t.equal(agent.executions, before, 'nobody was asked');
  });
});

t.test('connections are kept and then closed, and no proxy of the environment is used', async (t) => {
  const base = takeBase();
  const { rig, agent, reach } = await world(t);
  const before = { ...process.env };
  Object.assign(process.env, { http_proxy: 'http://127.0.0.1:1', HTTP_PROXY: 'http://127.0.0.1:1', NODE_USE_ENV_PROXY: '1' });
  t.teardown(() => {
    for (const name of ['http_proxy', 'HTTP_PROXY', 'NODE_USE_ENV_PROXY']) {
      if (before[name] === undefined) delete process.env[name];
      else process.env[name] = before[name];
    }
  });
  const other = new Reach({ url: rig.url, token: TOKEN });
  for (let i = 0; i < 20; i++) t.ok((await other.call(TASK, i)).ok);
  await Promise.all(Array.from({ length: 10 }, (_, i) => reach.invoke(TASK, i)));
  for (let i = 0; i < 20; i++) for await (const _ of reach.stream(TASK, i)) break;
  for (let i = 0; i < 20; i++) for await (const _ of reach.stream(TASK, i)) void _;
  await other.close();
  await reach.close();
  await agent.close();
  await rig.finish(t, base);
});

t.test('a sidecar that', async (t) => {
  await t.test('is not there: nothing began, and it may be tried again', async (t) => {
    const reach = new Reach({ url: 'http://127.0.0.1:1', token: TOKEN });
    t.match(await reach.call(TASK), {
      code: 1001,
      error: { name: 'connect_timeout', ambiguous: false, retryable: true, detail: /no sidecar answers at http:\/\/127\.0\.0\.1:1/ },
    });
    await t.rejects(reach.stream(TASK).head(), { code: 1001 });
    await t.rejects(reach.explain(TASK), { code: 1001 });
    await reach.close();
  });

  await t.test('does not answer: the deadline holds all the same', async (t) => {
    const reach = await server(t, () => new Promise(() => {}));
    const began = performance.now();
    t.match(await reach.call(TASK, 1, { deadlineMs: 200 }), { code: 5001, error: { ambiguous: true } });
    t.ok(performance.now() - began < 1_500);
    await t.rejects(
      reach.deadline(100, () => reach.invoke(TASK)),
      { code: 5001 },
    );
    await t.rejects(reach.stream(TASK, 1, { deadlineMs: 100 }).head(), { code: 5001 });
  });

  await t.test('breaks off: the work may have been done', async (t) => {
    const reach = await server(t, (_request, response) => {
      response.socket?.destroy();
      return undefined;
    });
    t.match(await reach.call(TASK), { code: 1002, error: { name: 'connection_lost', ambiguous: true } });
    const half = await server(t, (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '100' });
      response.write('{"code":0,');
      setTimeout(() => response.destroy(), 20);
      return undefined;
    });
    t.match(await half.call(TASK), { code: 1002, error: { ambiguous: true } });
  });

  await t.test('is none: a stranger is not believed', async (t) => {
    const reach = await server(t, () => ({ status: 502, headers: { 'content-type': 'text/html' }, body: '<h1>Bad gateway</h1>' }));
    t.match(await reach.call(TASK), { code: 1004, error: { detail: /not a sidecar's/ } });
    await t.rejects(reach.capabilities(), { code: 1004 });
    await t.rejects(reach.stream(TASK).head(), { code: 1004 });
    const odd = await server(t, () => ({ body: '"fine"', headers: { 'content-type': 'application/json' } }));
    t.match(await odd.call(TASK), { code: 1004 });
  });

  await t.test('is given by an address that cannot be one is refused before anything', async (t) => {
    for (const url of ['127.0.0.1:7700', 'https://127.0.0.1:7700', 'http://127.0.0.1:7700/v1', 'nonsense'])
      t.throws(() => new Reach({ url }), /the sidecar's address reads like http:\/\/127\.0\.0\.1:7700/, url);
    t.doesNotThrow(() => new Reach({ url: 'http://localhost:7700/' }));
  });

  await t.test('is named by the environment', async (t) => {
    const { rig } = await world(t);
    process.env['REACH_URL'] = rig.url;
    process.env['REACH_TOKEN'] = TOKEN;
    const reach = new Reach();
    delete process.env['REACH_URL'];
    delete process.env['REACH_TOKEN'];
    t.ok((await reach.call(TASK)).ok);
    await reach.close();
  });
});

t.test('a stream', async (t) => {
  const { agent, reach, rig } = await world(t);

  await t.test('of any provider can be read as text, lines, events and bytes', async (t) => {
    agent.behaviour = () => ({ headers: { 'content-type': 'text/plain' }, body: 'grüß 😀' });
    let text = '';
    for await (const piece of reach.stream(TASK)) text += piece;
    t.equal(text, 'grüß 😀');
    agent.behaviour = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': hello\n\nevent: word\nda');
      setTimeout(() => response.end('ta: one\ndata: two\nid: 7\n\ndata: last\n\ndata: unfinished'), 20);
      return undefined;
    };
    const events: unknown[] = [];
    for await (const event of reach.stream(TASK).events()) events.push(event);
    t.strictSame(events, [
      { event: 'word', data: 'one\ntwo', id: '7' },
      { event: 'message', data: 'last', id: '7' },
    ]);
    agent.behaviour = () => ({ headers: { 'content-type': 'application/x-ndjson' }, body: '{"a":1}\r\n\n[2]\n3' });
    const values: unknown[] = [];
    for await (const value of reach.stream(TASK).messages()) values.push(value);
    t.strictSame(values, [{ a: 1 }, [2], 3]);
    agent.behaviour = () => ({ headers: { 'content-type': 'image/png' }, body: Buffer.from([0, 255, 128]) });
    const pieces: Buffer[] = [];
    const stream = reach.stream(TASK);
    for await (const piece of stream.bytes()) pieces.push(piece);
    t.strictSame(Buffer.concat(pieces), Buffer.from([0, 255, 128]));
    t.equal((await stream.head()).contentType, 'image/png');
    t.match(stream.result, { ok: true, provider: 'crm.order.1', version: '2.1.0' });
  });

  await t.test('is sent when it is read, and read once', async (t) => {
    const before = agent.executions;
    const stream = reach.stream(TASK);
    await new Promise((done) => setTimeout(done, 20));
    t.equal(agent.executions, before);
    for await (const _ of stream) void _;
    t.equal(agent.executions, before + 1);
    await t.rejects(stream.bytes().next(), /read once/);
    await reach.stream(TASK).cancel();
    t.equal(agent.executions, before + 1, 'one that was never opened is cancelled without a call');
  });

  await t.test('without frames is told cut from whole as well', async (t) => {
    const plain = { headers: { accept: '*/*' } };
    agent.behaviour = () => ({ headers: { 'content-type': 'text/plain' }, body: 'whole' });
    const stream = reach.stream(TASK, 1, plain);
    let text = '';
    for await (const piece of stream) text += piece;
    t.strictSame([text, stream.result?.provider, (await stream.head()).contentType], ['whole', 'crm.order.1', 'text/plain']);
    agent.behaviour = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.write('half');
      setTimeout(() => response.destroy(), 30);
      return undefined;
    };
    text = '';
    const reading = (async () => {
      for await (const piece of reach.stream(TASK, 1, plain)) text += piece;
    })();
    await t.rejects(reading, { code: 1006 });
    t.equal(text, 'half');
  });

  await t.test('ends with its deadline and with its signal', async (t) => {
    agent.behaviour = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.write('first');
      return undefined;
    };
    const read = async (options: object): Promise<void> => {
      for await (const _ of reach.stream(TASK, 1, options)) void _;
    };
    await t.rejects(read({ deadlineMs: 200 }), { code: 5001 });
    const leaving = new AbortController();
    setTimeout(() => leaving.abort(), 50);
    await t.rejects(read({ signal: leaving.signal }), { code: 5003 });
    await waitUntil('the agent is told', () => agent.abandoned >= 2);
  });

  await t.test('that fails with a problem document of the agent’s own is the agent’s error, whatever code stands in it', async (t) => {
    for (const code of [1042, 3001, 6001, 0]) {
      const problem = { type: 'about:blank', title: 'no stock', status: 409, code, detail: 'sold out' };
      agent.behaviour = () => ({ status: 422, headers: { 'content-type': 'application/problem+json' }, body: JSON.stringify(problem) });
      const told = { code: 6001, name: 'provider_error', data: problem };
      await t.rejects(reach.stream(TASK).head(), told, `${code}`);
      t.match(await reach.call(TASK), { code: 6001, status: 422, data: problem });
      t.match(await reach.call(TASK, 1, { headers: { 'reach-mode': 'raw' } }), { code: 6001, status: 422, data: problem });
      agent.behaviour = () => ({ headers: { 'content-type': 'application/problem+json' }, body: JSON.stringify(problem) });
      t.match(await reach.call(TASK, 1, { headers: { 'reach-mode': 'raw' } }), { ok: true, data: problem }, 'nor is a success one');
    }
    const raw = { headers: { 'reach-mode': 'raw' } };
    t.match(
      await reach.call(`${TASK}@^9.0`, 1, raw),
      { code: 2002, data: null, error: { name: 'no_matching_version' } },
      'the sidecar’s own',
    );
    await t.rejects(reach.stream(`${TASK}@^9.0`).head(), { code: 2002, data: null });
  });

  await t.test('of frames that are none is not believed', async (t) => {
    const head = { 'content-type': 'application/vnd.agent-reach.frames' };
    const reading = async (body: Buffer): Promise<string> => {
      const liar = await server(t, () => ({ headers: head, body }));
      let text = '';
      for await (const piece of liar.stream(TASK)) text += piece;
      return text;
    };
    const frame = (type: number, payload: string, version = 1): Buffer =>
      Buffer.concat([Buffer.from([version, type, 0, 0, 0, Buffer.byteLength(payload)]), Buffer.from(payload)]);
    t.equal(await reading(Buffer.concat([frame(1, 'ok'), frame(4, ''), frame(2, '{"code":0}')])), 'ok');
    for (const [what, body] of Object.entries({
      'no end': frame(1, 'half'),
      'another version': frame(1, 'x', 2),
      'an unknown type': frame(9, 'x'),
      'an end that is no Result': frame(2, 'nonsense'),
      'an end that says it failed': frame(2, '{"code":1006}'),
      'a cut that says it is none': frame(3, '{"code":0}'),
      'more after the end': Buffer.concat([frame(2, '{"code":0}'), frame(1, 'x')]),
      nothing: Buffer.alloc(0),
    }))
      await t.rejects(reading(body), { code: 1006 }, what);
  });
  t.equal(rig.quiet.inFlight(), 0);
});

t.test('events and lines are the same however the text is cut', async (t) => {
  const text = '\uFEFFevent: a\r\ndata: 1\r\n\r\ndata\ndata:  x\rid: 9\n\n: note\nretry: 5\n\ndata: end\n\n';
  const whole = new EventReader().push(text);
  t.strictSame(whole, [
    { event: 'a', data: '1', id: '' },
    { event: 'message', data: '\n x', id: '9' },
    { event: 'message', data: 'end', id: '9' },
  ]);
  for (let cut = 1; cut < 8; cut++) {
    const reader = new EventReader();
    const found = [];
    for (let at = 0; at < text.length; at += cut) found.push(...reader.push(text.slice(at, at + cut)));
    t.strictSame(found, whole, `${cut} at a time`);
    const lines = new LineReader();
    const got: string[] = [];
    for (let at = 0; at < 9; at += cut) got.push(...lines.push('a\r\nb\rc\nd'.slice(at, at + cut)));
    t.strictSame([...got, lines.finish()], ['a', 'b', 'c', 'd'], `${cut} at a time`);
  }
  t.strictSame(new EventReader().push('data: 1\r\r'), [{ event: 'message', data: '1', id: '' }], 'a lone CR ends its line at once');
  const long = new LineReader();
  const began = performance.now();
  for (let i = 0; i < 2_000; i++) long.push('x'.repeat(8_192));
  t.equal(long.push('\n')[0]?.length, 16_384_000);
  t.ok(performance.now() - began < 2_000, 'a long line costs no more than its length');
});

t.test('what is carried', async (t) => {
  const { agent, reach, rig } = await world(t);
  const sent = (): NodeJS.Dict<string | string[]> => agent.requests.at(-1)!.headers;

  await t.test('a deadline holds for everything inside, and never gives more time than there was', async (t) => {
    await reach.deadline(1_000, async () => {
      await reach.invoke(TASK);
      t.equal(sent()['reach-deadline-total-ms'], '1000');
      await new Promise((done) => setTimeout(done, 50));
      await reach.invoke(TASK, 1, { deadlineMs: 9_000 });
      t.ok(Number(sent()['reach-deadline-ms']) <= 960, 'what is left');
      await reach.deadline(60_000, () => reach.invoke(TASK));
      t.ok(Number(sent()['reach-deadline-ms']) <= 960);
      await reach.deadline(100, () => reach.invoke(TASK));
      t.ok(Number(sent()['reach-deadline-ms']) <= 100);
      t.ok(reach.leftMs > 0 && reach.leftMs <= 950);
    });
    t.equal(reach.leftMs, Number.POSITIVE_INFINITY);
    t.match(await reach.deadline(0, () => reach.call(TASK)), { code: 5001 });
  });

  await t.test('a stream has the time that is left when it is sent, not when it was made', async (t) => {
    const clock = new VirtualClock();
    const late = new Reach({ url: rig.url, token: TOKEN, clock });
    t.teardown(() => late.close());
    const leftMs = async (stream: ReachStream): Promise<number> => {
      for await (const _ of stream) void _;
      return Number(sent()['reach-deadline-ms']);
    };
    await late.deadline(9_000, async () => {
      const [all, own, more] = [{}, { deadlineMs: 2_000 }, { deadlineMs: 60_000 }].map((options) => late.stream(TASK, 1, options));
      await clock.advance(4_000);
      const left = await leftMs(all as ReachStream);
      t.ok(left > 4_000 && left <= 5_000, `${left} of 9000 ms are left`);
      t.ok((await leftMs(more as ReachStream)) <= 5_000, 'never more');
      const given = await leftMs(own as ReachStream);
      t.ok(given > 1_000 && given <= 2_000, `its own ${given} ms count from then on`);
      const over = late.stream(TASK);
      await clock.advance(5_000);
      await t.rejects(over.head(), { code: 5001 });
    });
  });

  await t.test('calls of one task are one trace, and a conversation goes along', async (t) => {
    await reach.conversation('talk-9', async () => {
      const [a, b] = await Promise.all([reach.invoke(TASK), reach.invoke(TASK)]);
      t.equal(a.traceId, b.traceId);
      t.equal(sent()['reach-sequence-id'], 'talk-9');
    });
    t.not((await reach.invoke(TASK)).traceId, (await reach.invoke(TASK)).traceId, 'outside each is its own');
  });

  await t.test('a step has what is left minus the budgets of later steps', async (t) => {
    await reach.deadline(2_000, () =>
      reach.budget({ intent: 500, order: 500, answer: 500 }, async () => {
        await reach.step('intent', () => reach.invoke(TASK));
        t.ok(Number(sent()['reach-deadline-ms']) <= 1_000, 'a step leaves the later ones their time');
        t.match(await reach.step('intent', () => reach.call(TASK, 1, { budget: { intent: 10, answer: 5_000 } })), { code: 5002 });
        await reach.step('answer', () => reach.invoke(TASK));
        t.ok(Number(sent()['reach-deadline-ms']) > 1_000, 'the last has all that is left');
      }),
    );
  });
});

t.test('a stream is given up before its head as well', async (t) => {
  let isGone = false;
  const { reach } = await world(t, (_request, response) => {
    response.on('close', () => (isGone = true));
    return new Promise(() => {});
  });
  const stream = reach.stream(TASK);
  const head = stream.head();
  await new Promise((done) => setTimeout(done, 50));
  await stream.cancel();
  await t.rejects(head, { code: 5003 });
  await waitUntil('the agent hears of it', () => isGone);
});

t.test('a byte order mark is no text', async (t) => {
  const { reach } = await world(t, () => ({ headers: { 'content-type': 'application/x-ndjson' }, body: '\uFEFF{"n":1}\n{"n":2}\n' }));
  const got = [];
  for await (const value of reach.stream(TASK).messages()) got.push(value);
  t.strictSame(got, [{ n: 1 }, { n: 2 }]);
});

t.test('a header of an answer that cannot be sent does not cost the answer', async (t) => {
  const lines: string[] = [];
  const agent = new Reach({ url: 'http://127.0.0.1:1', log: (line) => lines.push(line) });
  agent.serve('node.work.echo@1.0.0', (_payload, { answerHeaders }) => {
    answerHeaders['x-city'] = 'Kraków → Łódź';
    answerHeaders['x-two'] = 'a\r\nb';
    return { done: true };
  });
  t.teardown(() => agent.close());
  const { port } = await agent.start({ port: 0 });
  const headers = { 'reach-capability': 'node.work.echo', 'reach-version': '1.0.0', 'content-type': 'application/json' };
  const answer = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers, body: '1' });
  t.strictSame([answer.status, await answer.json()], [200, { done: true }]);
  t.equal(Buffer.from(answer.headers.get('x-city') ?? '', 'latin1').toString('utf8'), 'Kraków → Łódź');
  t.equal(answer.headers.get('x-two'), null);
  t.match(lines.join(), /the answer to node\.work\.echo goes without the header "x-two"/);
});

t.test("an answer that is no JSON is the agent's failure, not a broken connection", async (t) => {
  const circle: Record<string, unknown> = {};
  circle['again'] = circle;
  const lines: string[] = [];
  const agent = new Reach({ url: 'http://127.0.0.1:1', log: (line) => lines.push(line) });
  agent.serve('node.work.echo@1.0.0', (payload) => {
    if (payload === 'error') throw new AgentError(409, () => 1);
    return payload === 'bigint' ? 1n : payload === 'function' ? () => 1 : circle;
  });
  t.teardown(() => agent.close());
  const { port } = await agent.start({ port: 0 });
  const headers = { 'reach-capability': 'node.work.echo', 'reach-version': '1.0.0', 'content-type': 'application/json' };
  for (const what of ['bigint', 'function', 'circle', 'error']) {
    const answer = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', headers, body: JSON.stringify(what) });
    t.equal(answer.status, what === 'error' ? 409 : 500, what);
    await answer.text();
  }
  t.match(lines.join(), /BigInt[^]*not a function[^]*circular/);
});

t.test('the port of an agent is for its sidecar alone', async (t) => {
  const agent = new Reach({ url: 'http://127.0.0.1:1', log: () => {} });
  agent.serve('node.work.echo@1.0.0', (payload) => payload);
  t.throws(() => agent.serve('node.work.echo@1.0.0', () => 1), /served already/);
  t.throws(() => agent.serve('node.work.echo', () => 1), /exact version/);
  const { port } = await agent.start({ port: 0 });
  t.throws(() => agent.serve('node.work.late@1.0.0', () => 1), /before start/);
  await t.rejects(agent.start({ port: 0 }), /serves already/);
  const url = `http://127.0.0.1:${port}/node.work.echo`;
  const ask = (headers: Record<string, string>, body = '1', method = 'POST'): Promise<Response> =>
    fetch(url, { method, headers, ...(method === 'POST' ? { body } : {}) });
  const ours = { 'reach-capability': 'node.work.echo', 'reach-version': '1.0.0', 'content-type': 'application/json' };
  t.equal((await ask(ours)).status, 200);
  t.equal((await ask({ 'content-type': 'text/plain' })).status, 404, 'what a web page can send');
  t.equal((await ask(ours, '', 'GET')).status, 404);
  t.equal((await ask(ours, '{')).status, 400);
  t.equal((await ask({ ...ours, 'reach-version': '9.0.0' })).status, 404);
  await agent.close();
  await t.rejects(ask(ours), 'closed is closed');
  const nothing = new Reach({ url: 'http://127.0.0.1:1' });
  await t.rejects(nothing.start(), /nothing to serve/);
  const taken = createServer().listen(0, '127.0.0.1');
  await new Promise((done) => taken.once('listening', done));
  t.teardown(() => taken.close());
  const second = new Reach({ url: 'http://127.0.0.1:1', log: () => {} }).serve('node.work.echo@1.0.0', () => 1);
  await t.rejects(second.start({ port: (taken.address() as AddressInfo).port }), { code: 'EADDRINUSE' });
});
