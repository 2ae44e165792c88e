/** Keys: what is carried out once, what a repeat gets, and what is refused. */
import t from 'tap';
import { TestAgent } from '../support/agent.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { VirtualRig } from '../support/virtual-rig.ts';

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

t.test('C126 two at once, and failures are no answers', async (t) => {
  await t.test('fifty at once: one is carried out, all get its answer', async (t) => {
    const agent = await TestAgent.listen('crm.order.1', async ({ number }) => {
      await sleep(500);
      return { body: { number } };
    });
    const rig = await Rig.start(t, { table: table(agent) });
    const headers = { 'idempotency-key': 'k' };
    const hasty = (async () => {
      await sleep(100);
      return await rig.invoke(X, { headers: { ...headers, 'reach-deadline-ms': '150' } });
    })();
    const other = (async () => {
      await sleep(100);
      return await rig.invoke(X, { headers, body: '{"other":1}' });
    })();
    const all = await Promise.all(Array.from({ length: 50 }, () => rig.invoke(X, { headers })));
    t.strictSame(
      all.map(({ json }) => [json.code, json.data?.number]),
      all.map(() => [0, 1]),
    );
    t.equal(all.filter(({ json }) => json.replay === true).length, 49, 'all but one are marked as repeats');
    const late = await hasty;
    t.equal(late.status, 409, 'who cannot wait that long is told so within its own time');
    t.match(late.json, { code: 4007, retryable: true });
    t.ok(late.headers['retry-after']);
    t.ok(late.elapsedMs < 400, `after ${late.elapsedMs} ms`);
    t.match((await other).json, { code: 4008 }, 'another payload does not wait');
    await stop(t, rig, agent, 1);
  });

  await t.test('503 and time-outs are not kept', async (t) => {
    let status = 503;
    const agent = await TestAgent.listen('crm.order.1', async () => {
      if (status === 0) await sleep(400);
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
    t.match((await rig.invoke(X, { headers })).json, { code: 7003 }, 'work that runs once and may have run is in doubt, not run again');
    status = 0;
    const safe = { 'idempotency-key': 'c', 'reach-deadline-ms': '150', 'reach-execution': 'idempotent' };
    t.match((await rig.invoke(X, { headers: safe })).json, { code: 5001, ambiguous: true });
    status = 200;
    t.match((await rig.invoke(X, { headers: safe })).json, { code: 0 }, 'idempotent work runs again');
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
  const agent = await TestAgent.listen('crm.order.1', async ({ number }) => {
    await sleep(400);
    return { body: { number } };
  });
  const rig = await Rig.start(t, { table: table(agent) });
  const headers = { 'idempotency-key': 'k' };
  const first = await rig.invoke(X, { headers: { ...headers, 'reach-deadline-ms': '200' } });
  t.match(first.json, { code: 5001, ambiguous: true, retryable: false });
  t.ok(first.elapsedMs < 350, 'its caller was told at once');
  t.match((await rig.invoke(X, { headers })).json, { code: 0, replay: true, data: { number: 1 }, provider: 'crm.order.1' });
  t.match((await rig.invoke(X, { headers })).json, { code: 0, replay: true, data: { number: 1 } });
  await stop(t, rig, agent, 1);
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
