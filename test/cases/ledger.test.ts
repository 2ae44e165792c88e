/** Keys: what is carried out once, what a repeat gets, and what is refused. */
import { type IncomingMessage, request } from 'node:http';
import t from 'tap';
import { TestAgent } from '../support/agent.ts';
import { DeliverRig, deliverTable } from '../support/deliver-rig.ts';
import { cast, Fleet, knows } from '../support/fleet.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { VirtualRig } from '../support/virtual-rig.ts';
import { agentOf, finishFleet, NONE, WORK, workerProcess, workTable } from '../support/workers.ts';

type Test = Parameters<typeof Rig.start>[0];

const before: Base = takeBase();
const X = 'crm.order.query';
const Y = 'crm.order.close';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const OTHER = { agent: 'support.planner.2', token: 'token-of-another' };

function table(agent: TestAgent, contract = ''): string {
  const offers = `["${X}@1.0.0", "${X}@2.0.0", "${Y}@1.0.0"]`;
  const one = (name: string, version: string): string => `  - {name: ${name}, version: ${version}, acl: public${contract}}`;
  return `
contracts:
${one(X, '1.0.0')}
${one(X, '2.0.0')}
${one(Y, '1.0.0')}
providers:
  - {agent_id: ${agent.name}, offers: ${offers}, endpoint: {type: http, address: "${agent.url}"}}`;
}

async function stop(t: Test, rig: Rig, agent: TestAgent, expected: number): Promise<void> {
  await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000);
  await rig.stop();
  await agent.close();
  await rig.finish(t, before, [{ name: agent.name, count: agent.requests.length, expected }]);
}

t.test('C125 a key belongs to one caller, one capability and one payload', async (t) => {
  const agent = await TestAgent.listen('crm.order.1', ({ number, json }) => ({ body: { number, json } }));
  const rig = await Rig.start(t, { table: table(agent), callers: { [OTHER.agent]: OTHER.token } });
  const ask = (target: string, body: string, key = 'k', token?: string): ReturnType<Rig['invoke']> =>
    rig.invoke(target, { body, headers: { 'idempotency-key': key }, ...(token === undefined ? {} : { token }) });

  const first = await ask(`${X}@^2.0`, '{"a":1,"b":2}');
  t.match(first.json, { code: 0, data: { number: 1 } });
  t.equal(first.json.replay, undefined, 'a first answer is no repeat');

  const again = await ask(`${X}@^2.0`, '{"a":1,"b":2}');
  t.match(again.json, { code: 0, replay: true, provider: 'crm.order.1', version: '2.0.0', attempts: [], data: first.json.data });
  t.equal(again.headers['reach-replay'], 'true');
  t.not(again.json.trace_id, first.json.trace_id, 'the trace id of the new call is kept');
  const raw = await rig.invoke(`${X}@^2.0`, { body: '{"a":1,"b":2}', headers: { 'idempotency-key': 'k', 'reach-mode': 'raw' } });
  t.match(raw.headers, { 'reach-replay': 'true', 'reach-provider': 'crm.order.1' });
  t.strictSame(raw.json, first.json.data, 'the same bytes');

  const other = await ask(`${X}@^2.0`, '{"a":2}');
  t.equal(other.status, 422);
  t.match(other.json, { code: 4008, detail: /another payload/ });
  const order = await ask(`${X}@^2.0`, '{"b":2,"a":1}');
  t.match(order.json, { code: 4008 }, 'the bytes count: members in another order are another payload');
  const major = await ask(`${X}@^1.0`, '{"a":1,"b":2}');
  t.match(major.json, { code: 4008, detail: /major/ }, 'another major version is another use');

  t.match((await ask(Y, '{"a":1,"b":2}')).json, { code: 0, data: { number: 2 } }, 'another capability is another key');
  const theirs = await ask(`${X}@^2.0`, '{"a":1,"b":2}', 'k', OTHER.token);
  t.match(theirs.json, { code: 0, data: { number: 3 } }, "another caller never gets the first one's answer");
  const stolen = await ask(X, '{}', `${OTHER.agent}:task-1:1700000000000`);
  t.match(stolen.json, { code: 4008, detail: /support\.planner\.2/ }, 'a power id with the name of another agent');
  t.match((await ask(X, '{}', 'support.planner.1:task-1:1700000000000')).json, { code: 0 }, 'and with the own one');
  await stop(t, rig, agent, 4);
});

t.test('C125 a client behind an agent gets no answer that was given to another client of the same agent', async (t) => {
  const agent = await TestAgent.listen('crm.order.1', ({ headers, number }) => ({
    status: 201,
    headers: { location: `/orders/${number}`, etag: `"${number}"`, 'set-cookie': 'session=1' },
    body: { account: headers['authorization'] ?? headers['cookie'] ?? headers['x-api-key'] ?? 'nobody' },
  }));
  const rig = await Rig.start(t, { table: table(agent) });
  const post = (shown: Readonly<Record<string, string>>, key: string): Promise<[IncomingMessage, string]> =>
    new Promise((done, failed) => {
      const headers = {
        host: X,
        'content-type': 'application/json',
        'proxy-authorization': `Bearer ${TOKEN}`,
        'idempotency-key': key,
        ...shown,
      };
      const options = { host: '127.0.0.1', port: rig.port, method: 'POST', path: `http://${X}/orders`, agent: false, headers } as const;
      const sending = request(options, (answer) => {
        let text = '';
        answer.setEncoding('utf8');
        answer.on('data', (piece: string) => (text += piece));
        answer.on('end', () => done([answer, text]));
      });
      sending.on('error', failed);
      sending.end('{"n":1}');
    });
  const alice = { authorization: 'Bearer alice-at-shop' };
  const [first, text] = await post(alice, 'k');
  t.strictSame([first.statusCode, text], [201, '{"account":"Bearer alice-at-shop"}']);
  const [again, same] = await post(alice, 'k');
  t.equal(same, text);
  t.match(again.headers, { 'reach-replay': 'true', location: '/orders/1', etag: '"1"' }, 'what names the work comes with the repeat');
  t.equal(again.headers['set-cookie'], undefined, 'and nothing of a session');
  for (const shown of [{ authorization: 'Bearer bob-at-shop' }, { cookie: 'session=carol' }, { 'x-api-key': 'of-dave' }, {}]) {
    const [other, words] = await post(shown, 'k');
    t.equal(other.statusCode, 422, JSON.stringify(shown));
    t.match(JSON.parse(words), { code: 4008, detail: /other credentials/ });
    t.notMatch(words, /at-shop|carol|dave/);
  }
  t.equal((await post({ cookie: 'session=carol' }, 'k2'))[1], '{"account":"session=carol"}');
  await stop(t, rig, agent, 2);
});

/** A pays, B stands in for it. */
function standIn(a: string, b: string, fallback: string, lateMs = 30_000): VirtualRig {
  const rig = new VirtualRig(`
contracts:
  - {name: ${X}, version: 1.0.0, acl: public, execution: once, timeout: 200ms, retry: {max: 0}, fallback: ${fallback}}
  - {name: ${Y}, version: 1.0.0, acl: public, execution: idempotent, timeout: 200ms, retry: {max: 0}}
providers:
  - {agent_id: crm.pay.1, offers: ["${X}@1.0.0"]}
  - {agent_id: crm.note.1, offers: ["${Y}@1.0.0"]}
mocks:
  crm.pay.1: ${a}
  crm.note.1: ${b}`);
  const { engine } = rig.world;
  Object.assign(engine, { config: { ...engine.config, claims: { ...engine.config.claims, lateMs } } });
  return rig;
}
const KEYED = { headers: { 'idempotency-key': 'k' } };
const LATE = '{latency: 700ms, body: {by: pay}}';

t.test('C126 work that may have been done stays in doubt, whatever stood in for it', async (t) => {
  for (const [b, code, retryable] of [
    ['{status: 503}', 6001, false],
    ['{hang: true}', 1003, false],
  ] as const) {
    const rig = standIn(LATE, b, `[{capability: ${Y}}]`, 0);
    const first = await rig.call(X, KEYED);
    t.match(first.result, { entry: { code }, ambiguous: true, retryable }, b);
    t.equal((await rig.call(X, KEYED)).code, 7003, 'a repeat does not begin it again');
    await rig.finish(t, { 'crm.pay.1': 1, 'crm.note.1': 1 });
  }
  const rig = standIn('{refuse_connect: true}', '{status: 503}', `[{capability: ${Y}}]`);
  t.equal((await rig.call(X, KEYED)).code, 6001);
  rig.mock('crm.pay.1', { body: { by: 'pay' } });
  t.equal((await rig.call(X, KEYED)).code, 0, 'what was never begun is free');
  await rig.finish(t, { 'crm.pay.1': 1, 'crm.note.1': 1 });
});

t.test('C126 a repeat gets what was answered, as it was answered, and from whom', async (t) => {
  const again = async (rig: VirtualRig): Promise<object> => {
    const { call, result } = await rig.call(X, KEYED);
    return {
      code: result?.entry.code,
      data: result?.data.toString(),
      replay: call.replay?.provider,
      degraded: call.degraded,
      definitely: call.definitelySuccess,
      location: call.reply?.headers['location'],
    };
  };
  await t.test('the late answer, where only a static text stood in', async (t) => {
    const rig = standIn(LATE, '{}', '[{static: later}]');
    const first = await rig.call(X, KEYED);
    t.match(first.result?.data.toString(), '"later"');
    t.ok(first.call.degraded);
    t.equal(rig.now, 200, 'nobody waits for it');
    t.match(await again(rig), { code: 0, data: '{"by":"pay"}', replay: 'crm.pay.1', degraded: false });
    await rig.finish(t, { 'crm.pay.1': 1 });
  });
  await t.test('the late answer as that of its own provider, where what stood in failed', async (t) => {
    for (const b of ['{status: 503}', '{latency: 900ms, body: {by: note}}']) {
      const rig = standIn(LATE, b, `[{capability: ${Y}}]`);
      // Of both: what stands in would be waited for as well.
      t.not((await rig.call(X, { headers: { ...KEYED.headers, 'reach-execution': 'once' } })).code, 0);
      t.match(await again(rig), { code: 0, data: '{"by":"pay"}', replay: 'crm.pay.1', degraded: false }, b);
      await rig.finish(t, { 'crm.pay.1': 1, 'crm.note.1': 1 });
    }
  });
  await t.test('the answer of what stood in, marked as such, with what names the work', async (t) => {
    const headers = '{location: /notes/1, reach-definitely-success: "true", set-cookie: a=b}';
    const rig = standIn(LATE, `{body: {by: note}, headers: ${headers}}`, `[{capability: ${Y}}]`);
    const { call } = await rig.call(X, KEYED);
    t.match(call, { code: 0, degraded: true, definitelySuccess: true });
    const told = { code: 0, data: '{"by":"note"}', replay: 'crm.note.1', degraded: true, definitely: true, location: '/notes/1' };
    t.match(await again(rig), told);
    await rig.wait(1_000);
    t.match(await again(rig), told, 'the first answer stands, whatever comes later');
    await rig.finish(t, { 'crm.pay.1': 1, 'crm.note.1': 1 });
  });
});

t.test('C126 two at once, and failures are no answers', async (t) => {
  await t.test('fifty at once: one is carried out, all get its answer', async (t) => {
    let letGo: () => void = () => undefined;
    const end = new Promise<void>((done) => (letGo = done));
    const agent = await TestAgent.listen('crm.order.1', async ({ number }) => {
      await end;
      return { body: { number } };
    });
    const rig = await Rig.start(t, { table: table(agent) });
    const headers = { 'idempotency-key': 'k' };
    const asking = Array.from({ length: 50 }, () => rig.invoke(X, { headers }));
    await waitUntil('one of them is carried out', () => agent.executions === 1, 10_000);
    const late = await rig.invoke(X, { headers: { ...headers, 'reach-deadline-ms': '150' } });
    const other = await rig.invoke(X, { headers, body: '{"other":1}' });
    letGo();
    const all = await Promise.all(asking);
    t.strictSame(
      all.map(({ json }) => [json.code, json.data?.number]),
      all.map(() => [0, 1]),
    );
    t.equal(all.filter(({ json }) => json.replay === true).length, 49, 'all but one are marked as repeats');
    t.equal(late.status, 409, 'who cannot wait that long is told so within its own time');
    t.match(late.json, { code: 4007, retryable: true });
    t.ok(late.headers['retry-after']);
    t.ok(late.elapsedMs < 2_000, `after ${late.elapsedMs} ms, long before there was an answer`);
    t.match(other.json, { code: 4008 }, 'another payload does not wait');
    await stop(t, rig, agent, 1);
  });

  await t.test('503 and time-outs are not kept', async (t) => {
    let status = 503;
    const agent = await TestAgent.listen('crm.order.1', async () => {
      if (status === 0) await sleep(1_000);
      return { status: status === 0 ? 200 : status, body: {} };
    });
    const rig = await Rig.start(t, { table: table(agent, ', retry: {max: 0}'), settings: '  claims: {late: 0s}' });
    const failing = await rig.invoke(X, { headers: { 'idempotency-key': 'a' } });
    t.match(failing.json, { code: 6001, ambiguous: false });
    status = 200;
    t.match((await rig.invoke(X, { headers: { 'idempotency-key': 'a' } })).json, { code: 0 }, 'a repeat is carried out');
    status = 0;
    const headers = { 'idempotency-key': 'b', 'reach-deadline-ms': '150' };
    t.match((await rig.invoke(X, { headers })).json, { code: 5001, ambiguous: true });
    status = 200;
    const patient = { 'reach-deadline-ms': '10000' };
    t.match(
      (await rig.invoke(X, { headers: { ...headers, ...patient } })).json,
      { code: 7003 },
      'work that runs once and may have run is in doubt, not run again',
    );
    status = 0;
    const safe = { 'idempotency-key': 'c', 'reach-deadline-ms': '150', 'reach-execution': 'idempotent' };
    t.match((await rig.invoke(X, { headers: safe })).json, { code: 5001, ambiguous: true });
    status = 200;
    t.match((await rig.invoke(X, { headers: { ...safe, ...patient } })).json, { code: 0 }, 'idempotent work runs again');
    await stop(t, rig, agent, 5);
  });

  await t.test('what is too large is carried out once, and a repeat is told so', async (t) => {
    const agent = await TestAgent.listen('crm.order.1', () => ({ body: { text: 'x'.repeat(300_000) } }));
    const rig = await Rig.start(t, { table: table(agent) });
    const headers = { 'idempotency-key': 'large' };
    t.match((await rig.invoke(X, { headers })).json, { code: 0 });
    t.match((await rig.invoke(X, { headers })).json, { code: 1005, detail: /is done; its answer of 300\d+ bytes/ });
    await stop(t, rig, agent, 1);
  });

  await t.test('the memory of keys is bounded, and when it is full that is said', async (t) => {
    const agent = await TestAgent.listen('crm.order.1');
    const rig = await Rig.start(t, { table: table(agent), settings: '  claims: {memory_keys: 2}' });
    for (const key of ['a', 'b']) t.match((await rig.invoke(X, { headers: { 'idempotency-key': key } })).json, { code: 0 });
    t.match((await rig.invoke(X, { headers: { 'idempotency-key': 'c' } })).json, { code: 7001, detail: /memory_keys/ });
    t.match((await rig.invoke(X, { headers: { 'idempotency-key': 'a' } })).json, { code: 0, replay: true }, 'nothing was dropped for it');
    t.match((await rig.invoke(X)).json, { code: 0 }, 'calls without a key go on');
    await stop(t, rig, agent, 3);
  });
});

t.test('C039 the late answer of a call with a key is kept for its repeat', async (t) => {
  let letGo: () => void = () => undefined;
  const end = new Promise<void>((done) => (letGo = done));
  const agent = await TestAgent.listen('crm.order.1', async ({ number }) => {
    await end;
    return { body: { number } };
  });
  const rig = await Rig.start(t, { table: table(agent) });
  const headers = { 'idempotency-key': 'k' };
  // Its caller is told before there is an answer at all.
  const first = await rig.invoke(X, { headers: { ...headers, 'reach-deadline-ms': '200' } });
  t.match(first.json, { code: 5001, ambiguous: true, retryable: false });
  letGo();
  t.match((await rig.invoke(X, { headers })).json, { code: 0, replay: true, data: { number: 1 }, provider: 'crm.order.1' });
  t.match((await rig.invoke(X, { headers })).json, { code: 0, replay: true, data: { number: 1 } });
  await stop(t, rig, agent, 1);
});

t.test('C039 the late answer is kept although another sidecar hosts the agent, and the key has been asked for meanwhile', async (t) => {
  const fleet = await Fleet.start(t);
  const agent = await agentOf(t, 'agent', async ({ number }) => {
    await sleep(500);
    return { body: { number } };
  });
  const worker = await fleet.sidecar('worker', workTable('worker', [['crm.order.1', agent]], 'once'));
  const caller = await fleet.sidecar('caller', NONE);
  const other = await fleet.sidecar('other', NONE);
  for (const each of [caller, other]) await knows(each, WORK);
  const headers = { 'idempotency-key': 'k' };
  const first = await caller.invoke(WORK, { headers: { ...headers, 'reach-deadline-ms': '250' } });
  t.match(first.json, { code: 5001, ambiguous: true, retryable: false });
  t.ok(first.elapsedMs < 450, 'its caller was told at once');
  const waited = other.invoke(WORK, { headers: { ...headers, 'reach-deadline-ms': '5000' } });
  t.match((await waited).json, { code: 0, replay: true, data: { number: 1 }, provider: 'crm.order.1' });
  t.match((await caller.invoke(WORK, { headers })).json, { code: 0, replay: true, data: { number: 1 } });
  const keyless = await caller.invoke(WORK, { headers: { 'reach-deadline-ms': '250' } });
  t.match(keyless.json, { code: 5001 }, 'without a key nobody wants it any more');
  await finishFleet(t, before, fleet, [caller, other, worker], [[agent, 2]]);
});

t.test('C082 a key holds for 24 hours, not for the window of a broker (calls)', async (t) => {
  const rig = new VirtualRig(`
contracts: [{name: ${X}, version: 2.0.0, acl: public, retry: {max: 0}}]
providers: [{agent_id: crm.order.1, offers: ["${X}@2.0.0"]}]
mocks: {crm.order.1: {latency: 10ms}}`);
  const headers = { 'idempotency-key': 'k' };
  const HOUR_MS = 3_600_000;
  t.equal((await rig.call(X, { headers })).code, 0);
  for (const at of [60_000, 125_000, 23 * HOUR_MS]) {
    await rig.wait(at - rig.now);
    const repeat = await rig.call(X, { headers });
    t.equal(repeat.code, 0, `at ${at} ms`);
    t.ok(repeat.reasons.includes('claim.replayed'));
    t.equal(rig.executions('crm.order.1'), 1, 'executed once');
  }
  await rig.wait(24 * HOUR_MS + 60_000 - rig.now);
  t.equal((await rig.call(X, { headers })).call.replay, null, 'after that it is a new key; repeats do not extend it');
  // A final failure leaves the key free: the repeat is a new run.
  rig.mock('crm.order.1', { latency: '10ms', error_rate: 1 });
  const failed = await rig.call(X, { headers: { 'idempotency-key': 'f' } });
  t.not(failed.code, 0);
  rig.mock('crm.order.1', { latency: '10ms' });
  await rig.wait(30_000);
  const run = await rig.call(X, { headers: { 'idempotency-key': 'f' } });
  t.equal(run.code, 0);
  t.equal(run.call.replay, null, 'a new run, not a stored failure');
  await rig.finish(t, { 'crm.order.1': 4 });
});

t.test('C082 a key holds for 24 hours, not for the window of a broker (messages)', async (t) => {
  const HOUR_MS = 3_600_000;
  const KEY = 'support.planner.1:order-4711:1700000000000';
  const rig = new DeliverRig(deliverTable({ 'crm.order.1': 'latency: 10ms, body: {ok: true}' }), ['crm.order.1']);
  const run = async (key: string): Promise<Readonly<Record<string, unknown>>> => {
    const task = rig.send({ kind: 'idempotent', key });
    await rig.pass(60_000, () => rig.stateOf(task).length > 0, 50);
    return rig.events.find(({ event }) => event.task_id === task)?.event as unknown as Record<string, unknown>;
  };
  t.match(await run(KEY), { state: 'done', replay: false });
  let was = 0;
  for (const at of [60_000, 125_000, 23 * HOUR_MS]) {
    await rig.clock.advance(at - was);
    was = at;
    t.match(await run(KEY), { state: 'done', replay: true, by: 'crm.order.1' }, `at ${at} ms the first result again`);
    t.equal(rig.rig.executions('crm.order.1'), 1, 'executed once');
  }
  await rig.stop();
});

t.test('C082 a key holds although the broker has forgotten what it had seen, and is free after a final failure', async (t) => {
  const fleet = await Fleet.start(t);
  let fails = false;
  const agent = await agentOf(t, 'agent', ({ number }) => (fails ? { status: 422, body: { why: 'no' } } : { body: { number } }));
  const worker = await fleet.sidecar('worker', workTable('worker', [['crm.order.1', agent]], 'idempotent'));
  const senders = [await fleet.sidecar('sender-1', NONE), await fleet.sidecar('sender-2', NONE)] as const;
  for (const sender of senders) await knows(sender, WORK);
  const ended = async (sender: Rig, key: string): Promise<Readonly<Record<string, unknown>>> => {
    const task = await cast(sender, WORK, { n: 1 }, { 'idempotency-key': key });
    const told = await sender.ask(`/v1/tasks/${task}?wait=15s`);
    t.not(told.json?.state, undefined, 'accepted, and not without an end');
    return told.json as Record<string, unknown>;
  };
  t.match(await ended(senders[0], 'k'), { state: 'done', replay: false });
  t.match(await ended(senders[1], 'k'), { state: 'done', replay: true }, 'within the window, through another sidecar');
  await fleet.emptied(5_000);
  // A work queue forgets at a restart which ids it has seen of what was acknowledged.
  await fleet.nats.kill();
  await fleet.nats.restart();
  for (const sender of [...senders, worker])
    await waitUntil('NATS is there again', () => sender.started.front.registry?.client.status().connected === true, 10_000);
  t.match(await ended(senders[0], 'k'), { state: 'done', replay: true }, 'after a restart of the broker');
  t.equal(agent.executions, 1, 'carried out once');
  const other = await cast(senders[0], WORK, { n: 2 }, { 'idempotency-key': 'k' });
  t.match((await senders[0].ask(`/v1/tasks/${other}?wait=10s`)).json, { state: 'failed', code: 4008 }, 'another payload is refused');

  fails = true;
  t.match(await ended(senders[0], 'f'), { state: 'failed', code: 6001, status: 422 });
  fails = false;
  t.match(await ended(senders[1], 'f'), { state: 'done', replay: false }, 'after a final failure it is a new run');
  t.match(await ended(senders[0], 'f'), { state: 'done', replay: true }, 'and that one is kept');
  t.equal(agent.executions, 3);
  await finishFleet(t, before, fleet, [worker, ...senders], [[agent, 3]]);
});

// The lease is 15 s by default; a fifth of it here.
t.test('C126 the mark of a sidecar that was killed in the middle of a call ends with its lease', async (t) => {
  const LEASE_MS = 3_000;
  const CLAIMS = `  claims: {lease: ${LEASE_MS}ms}\n`;
  const fleet = await Fleet.start(t);
  let isHung = true;
  const agent = await agentOf(t, 'agent', async ({ number, headers }) => {
    if (headers['idempotency-key'] === 'twins') await sleep(500);
    else if (isHung) await new Promise(() => undefined);
    return { body: { number } };
  });
  const worker = await fleet.sidecar('worker', workTable('worker', [['crm.order.1', agent]], 'once'), CLAIMS);
  const caller = await fleet.sidecar('caller', NONE, CLAIMS);
  await knows(caller, WORK);
  const killed = workerProcess(t, fleet, 'killed', NONE, CLAIMS).start();
  const [, url] = (await killed.said(/(http:\/\/127\.0\.0\.1:\d+)/)) as unknown as [string, string];
  const headersOf = (kind: string): Record<string, string> => ({
    'content-type': 'application/json',
    'idempotency-key': kind,
    'reach-execution': kind,
    'reach-deadline-ms': '20000',
    authorization: `Bearer ${TOKEN}`,
  });
  await waitUntil('it has its table', async () => (await fetch(`${url}/v1/ready`)).status === 200, 10_000);
  const ask = async (kind: string, key: string): Promise<Response> =>
    await fetch(`${url}/v1/invoke/${WORK}`, { method: 'POST', headers: { ...headersOf(kind), 'idempotency-key': key }, body: '{}' });

  // Fifty at once, half of them through another sidecar.
  const twins = Array.from({ length: 50 }, async (_, i) => {
    if (i % 2 === 0) return (await caller.invoke(WORK, { headers: { ...headersOf('once'), 'idempotency-key': 'twins' } })).json;
    return await (await ask('once', 'twins')).json();
  });
  const answers = await Promise.all(twins);
  t.strictSame(
    answers.map(({ code, data }) => [code, data?.number]),
    answers.map(() => [0, 1]),
    'all have the one answer',
  );
  t.equal(answers.filter(({ replay }) => replay === true).length, 49, 'and all but one know that it is a repeat');
  t.equal(agent.executions, 1);

  const cut = ['once', 'idempotent', 'keyed'].map((kind) =>
    ask(kind, kind).then(
      ({ status }) => `answered ${status}`,
      () => 'cut',
    ),
  );
  await waitUntil('the agent has all three', () => agent.executions === 4, 10_000);
  killed.signal('SIGKILL');
  await killed.ended();
  const killedAt = performance.now();
  t.strictSame(await Promise.all(cut), ['cut', 'cut', 'cut']);
  isHung = false;
  const repeat = (kind: string, deadlineMs: string): ReturnType<Rig['invoke']> =>
    caller.invoke(WORK, { headers: { 'idempotency-key': kind, 'reach-execution': kind, 'reach-deadline-ms': deadlineMs } });
  const early = await repeat('keyed', '500');
  t.equal(early.status, 409, 'before that it counts as being worked on');
  t.match(early.json, { code: 4007, retryable: true });
  const [once, idempotent, keyed] = await Promise.all(['once', 'idempotent', 'keyed'].map((kind) => repeat(kind, '10000')));
  const tookMs = performance.now() - killedAt;
  t.ok(tookMs <= 2 * LEASE_MS, `all are answered ${tookMs.toFixed(0)} ms after the kill: the lease is ${LEASE_MS} ms from the first look`);
  t.match(once?.json, { code: 7003, detail: /may have been carried out/ }, 'once is in doubt, and is not begun again');
  t.match(idempotent?.json, { code: 0 }, 'idempotent work is begun again');
  t.match(keyed?.json, { code: 0 }, 'keyed work too: the agent knows the key');
  t.equal(idempotent?.json.replay, undefined, 'a run, no repeat');
  t.match((await repeat('once', '1000')).json, { code: 7003 }, 'and so it stays');
  t.match((await repeat('keyed', '1000')).json, { code: 0, replay: true, data: keyed?.json.data });
  await finishFleet(t, before, fleet, [caller, worker], [[agent, 6]]);
});

t.test('C126 a stream with a key is carried out once; it is not kept, and a repeat is told so', async (t) => {
  const agent = await TestAgent.listen('crm.order.1', () => ({
    headers: { 'content-type': 'text/event-stream' },
    body: 'data: 1\n\ndata: 2\n\n',
  }));
  const rig = await Rig.start(t, { table: table(agent) });
  const headers = { 'idempotency-key': 's' };
  const first = await rig.ask(`/v1/stream/${X}`, { method: 'POST', headers });
  t.equal(first.status, 200);
  t.match(first.bytes.toString(), /data: 2/);
  for (const path of ['stream', 'invoke']) {
    const again = await rig.ask(`/v1/${path}/${X}`, { method: 'POST', headers });
    t.equal(again.status, 422, path);
    t.match(again.json, { code: 4008, detail: /its answer was a stream, which is not kept/ });
  }
  await stop(t, rig, agent, 1);
});
