/** The time of a task: handed on as what is left of it, cut by whoever has less, and noticed by health however it ends. */
import { request as httpRequest } from 'node:http';
import t from 'tap';
import { type AgentBehaviour, TestAgent } from '../support/agent.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { type Begun, VirtualRig } from '../support/virtual-rig.ts';

type Test = Parameters<typeof Rig.start>[0];

const before: Base = takeBase();
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

async function stop(t: Test, rigs: readonly Rig[], agents: readonly TestAgent[], executions: readonly number[]): Promise<void> {
  for (const rig of rigs) await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
  for (const rig of rigs) t.equal(rig.started.front.engine.underway.size, 0, 'no attempt is remembered');
  for (const rig of rigs) await rig.stop();
  for (const agent of agents) await agent.close();
  const providers = agents.map((agent, i) => ({ name: agent.name, count: agent.requests.length, expected: executions[i] as number }));
  for (const rig of rigs) await rig.finish(t, before, providers);
}

/** What `x` sends on with its call to `y`. */
type Passing = (incoming: Readonly<Record<string, string | string[] | undefined>>, elapsedMs: number) => Record<string, string>;

/** Passes time on as an agent should: what it got, minus what it has used, or its own wish if that is less. */
const arithmetic =
  (ownMs: number): Passing =>
  (incoming, elapsedMs) => ({
    'reach-deadline-ms': String(Math.min(ownMs, Math.floor(Number(incoming['reach-deadline-ms']) - elapsedMs))),
  });
const trace = (incoming: Readonly<Record<string, unknown>>): Record<string, string> => ({ traceparent: String(incoming['traceparent']) });
/** The same trace, as an instrumented agent passes it on: with a span of its own. */
const ownSpan = (incoming: Readonly<Record<string, unknown>>): Record<string, string> => {
  const parts = String(incoming['traceparent']).split('-');
  return { traceparent: `${parts[0]}-${parts[1]}-00f067aa0ba902b7-${parts[3]}` };
};

interface Sub {
  status: number;
  code: number;
  tookMs: number;
}

/** `x` as an agent behind `sidecar()`; after `afterMs` it calls `y` there, and keeps what came of it. */
function calling(sidecar: () => string, afterMs: () => number, passing: () => Passing, subs: Sub[], target: () => string): AgentBehaviour {
  return async (request) => {
    const since = performance.now();
    await sleep(afterMs());
    const sub = await new Promise<Sub>((done) => {
      const began = performance.now();
      const sent = httpRequest(
        `${sidecar()}/v1/invoke/${target()}`,
        {
          method: 'POST',
          agent: false,
          headers: {
            authorization: 'Bearer token-of-the-helper',
            'content-type': 'application/json',
            ...passing()(request.headers, performance.now() - since),
          },
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('end', () =>
            done({
              status: response.statusCode ?? 0,
              code: JSON.parse(Buffer.concat(chunks).toString('utf8')).code,
              tookMs: performance.now() - began,
            }),
          );
        },
      );
      sent.on('error', () => done({ status: 0, code: -1, tookMs: performance.now() - began }));
      sent.end('{}');
    });
    subs.push(sub);
    return { body: sub };
  };
}

t.test('C026 a sub-call gets the smaller of its own time and what is left, and is cancelled with its caller', async (t) => {
  for (const mesh of [false, true]) {
    await t.test(mesh ? 'x stands behind a sidecar of its own' : 'x and its caller share a sidecar', async (t) => {
      const subs: Sub[] = [];
      let inner = '';
      let afterMs = 400;
      let passing: Passing = trace;
      let target = 'crm.order.query';
      const x = await TestAgent.listen(
        'sales.helper.2',
        calling(
          () => inner,
          () => afterMs,
          () => passing,
          subs,
          () => target,
        ),
      );
      const y = await TestAgent.listen('crm.order.1');
      const table = (meshUrl: string): string => `
contracts:
  - {name: sales.offer.make, version: 1.0.0, acl: public, execution: idempotent, timeout: 8s}
  - {name: crm.order.query, version: 2.0.0, acl: public, execution: idempotent, timeout: 5s, deadline: 5s}
  - {name: crm.order.peek, version: 2.0.0, acl: public, execution: idempotent, timeout: 100ms, deadline: 5s}
providers:
  - {agent_id: sales.helper.2, offers: [sales.offer.make@1.0.0], endpoint: {type: http, address: "${x.url}"}${mesh ? ', via: two' : ''}}
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0, crm.order.peek@2.0.0], endpoint: {type: http, address: "${y.url}"}}
${mesh ? `sidecars: [{name: two, mesh: "${meshUrl}"}]` : ''}`;
      const ejection = '  ejection: {consecutive: 1000}';
      const two = mesh
        ? await Rig.start(t, { name: 'two', table: table('http://127.0.0.1:1'), meshToken: 'a-mesh-token', settings: ejection })
        : null;
      const one = await Rig.start(t, {
        name: 'one',
        table: table(two?.started.meshUrl ?? ''),
        settings: ejection,
        ...(mesh ? { meshToken: 'a-mesh-token' } : {}),
      });
      inner = (two ?? one).url;
      const told = (): number => Number(y.requests.at(-1)?.headers['reach-deadline-ms']);

      const passings: readonly (readonly [string, Passing])[] = [
        ['does the arithmetic', arithmetic(5_000)],
        ['names its own time and passes the trace on', (incoming) => ({ ...trace(incoming), 'reach-deadline-ms': '5000' })],
        [
          'passes on what it got, unchanged',
          (incoming) => ({ ...trace(incoming), 'reach-deadline-ms': String(incoming['reach-deadline-ms']) }),
        ],
        ['passes on the trace alone', trace],
        ['passes on the trace with a span of its own', ownSpan],
      ];
      for (const [name, how] of passings) {
        passing = how;
        const answer = await one.invoke('sales.offer.make', { headers: { 'reach-deadline-ms': '1000' } });
        t.equal(answer.json.code, 0, `x ${name}`);
        t.ok(told() <= 600 && told() > 300, `y is told ${told()} ms`);
      }
      t.equal(y.requests.at(-1)?.headers['reach-deadline-total-ms'], '1000', 'the total of the task goes with it');

      // Its own time is 100 ms: said by x, or by y's contract.
      y.behaviour = () => undefined;
      for (const [own, how] of [
        ['crm.order.query', (incoming) => ({ ...trace(incoming), 'reach-deadline-ms': '100' })],
        ['crm.order.peek', trace],
      ] as [string, Passing][]) {
        passing = how;
        target = own;
        afterMs = 100;
        subs.length = 0;
        await one.invoke('sales.offer.make', { headers: { 'reach-deadline-ms': '1000' } });
        t.ok(told() <= 100 && told() > 0, `y is told ${told()} ms`);
        t.match(subs, [{ status: 504, code: own === 'crm.order.query' ? 5001 : 1003 }]);
        t.ok((subs[0]?.tookMs ?? 0) < 300, 'and not waited for any longer');
      }
      target = 'crm.order.query';

      // The caller drops its call at 200 ms, while y runs.
      afterMs = 0;
      let closedAt = 0;
      y.behaviour = (_, response) => {
        response.once('close', () => (closedAt = performance.now()));
        return undefined;
      };
      const delays: number[] = [];
      for (const [name, how] of passings.slice(1)) {
        passing = how;
        closedAt = 0;
        subs.length = 0;
        const asked = y.executions;
        let droppedAt = 0;
        await t.rejects(
          one
            .invoke('sales.offer.make', { headers: { 'reach-deadline-ms': '5000' }, hangUpAfterMs: 200 })
            .finally(() => (droppedAt = performance.now())),
        );
        await waitUntil('y is cancelled', () => closedAt > 0, 1_000).catch(() => undefined);
        t.equal(y.executions, asked + 1);
        t.ok(closedAt > 0, `x ${name}: y is cancelled`);
        delays.push(Math.round(closedAt - droppedAt));
        await waitUntil('x hears of it', () => subs.length === 1, 1_000);
        t.match(subs, [{ status: 499, code: 5003 }], 'x, which waits for y without watching its own caller, is told');
      }
      // All but one: a busy machine may stop the process just then.
      t.ok(delays.filter((ms) => ms < 200).length >= delays.length - 1, `${delays.join(', ')} ms after the caller left`);

      // The attempt to x is given up: what x began for it ends too.
      passing = trace;
      closedAt = 0;
      subs.length = 0;
      const began = performance.now();
      t.equal((await one.invoke('sales.offer.make', { headers: { 'reach-deadline-ms': '300' } })).json.code, 5001);
      await waitUntil('y is cancelled', () => closedAt > 0, 1_000);
      t.ok(closedAt - began < 500, 'with the time of the task');
      await waitUntil('x hears of it', () => subs.length === 1, 1_000);

      // Nothing is left when x gets round to it.
      afterMs = 400;
      const asked = y.executions;
      for (const left of ['0', '-100']) {
        subs.length = 0;
        passing = () => ({ 'reach-deadline-ms': left });
        t.equal((await one.invoke('sales.offer.make', { headers: { 'reach-deadline-ms': '300' } })).json.code, 5001);
        await waitUntil('x hears of it', () => subs.length === 1, 1_000);
        t.match(subs, [{ status: 504, code: 5001 }], `${left} ms left`);
      }
      t.equal(y.executions, asked, 'y is not contacted');

      // Another agent's trace is nobody's leash, and an agent that has answered may go on in peace.
      y.behaviour = () => ({ body: {} });
      t.equal(
        (
          await one.invoke('crm.order.query', {
            headers: { traceparent: String(x.requests.at(-1)?.headers['traceparent']), 'reach-deadline-ms': '4000' },
          })
        ).json.code,
        0,
      );
      t.ok(told() > 3_000);
      await stop(t, two === null ? [one] : [one, two], [x, y], [passings.length + 2 + 4 + 1 + 2, passings.length + 2 + 4 + 1 + 1]);
    });
  }
});

t.test('C027 a deadline that is none is refused, one that is over is not sent to anybody', async (t) => {
  const agent = await TestAgent.listen('crm.order.1');
  const rig = await Rig.start(t, {
    table: `
contracts:
  - {name: crm.order.query, version: 2.0.0, acl: public, execution: idempotent, deadline: 4s, timeout: 2h, fallback: [{static: {text: nobody}}]}
  - {name: crm.order.export, version: 2.0.0, acl: public, execution: idempotent, deadline: 2h, timeout: 2h}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0, crm.order.export@2.0.0], endpoint: {type: http, address: "${agent.url}"}}
`,
    settings: '  max_deadline: 60s',
  });
  const told = (): number => Number(agent.requests.at(-1)?.headers['reach-deadline-ms']);
  const ask = (value: string | string[], header = 'reach-deadline-ms') => rig.invoke('crm.order.query', { headers: { [header]: value } });

  for (const header of ['reach-deadline-ms', 'reach-deadline-total-ms']) {
    for (const value of ['0', '-1', '-500', '-0', '00', '-99999999999999999999']) {
      const answer = await ask(value, header);
      t.equal(answer.status, 504, `${header}: ${value}`);
      t.match(answer.json, { code: 5001, name: 'deadline_exceeded', ambiguous: false, retryable: false, attempts: [], degraded: false });
      t.ok(answer.json.elapsed_ms < 50, 'at once');
    }
    const past = Date.now() - 10_000;
    const malformed: readonly (string | string[])[] = [
      'abc',
      '1e3',
      '99999999999999999999',
      ['100', '9000'],
      ['100', '100'],
      '100, 9000',
      '60001',
      '9'.repeat(400),
      '500ms',
      '0.5',
      '1.',
      '+5',
      '0x10',
      '1_000',
      '5 00',
      '--1',
      '-',
      '',
      ' ',
      'NaN',
      'Infinity',
      'null',
      // Absolute times: another host's clock is not trusted, whatever it says.
      String(past),
      String(Math.floor(past / 1_000)),
      new Date(past).toISOString(),
      new Date(past).toUTCString(),
    ];
    for (const value of malformed) {
      const answer = await ask(value, header);
      t.equal(answer.status, 400, `${header}: ${JSON.stringify(value).slice(0, 60)}`);
      t.match(answer.json, { code: 4003, attempts: [] });
      t.match(answer.json.detail, new RegExp(header, 'i'), 'named');
    }
  }
  t.equal(agent.executions, 0, 'nobody was contacted');

  t.equal((await ask(' 500 ')).json.code, 0);
  t.ok(told() <= 500 && told() > 300, `space around it does not count (${told()})`);
  t.equal((await ask('000500')).json.code, 0);
  t.equal((await ask('60000')).json.code, 0, 'the largest is the configured maximum');
  t.ok(told() <= 60_000 && told() > 55_000);
  t.equal((await rig.invoke('crm.order.query')).json.code, 0);
  t.ok(told() <= 4_000 && told() > 3_000, 'without a header the contract says it');
  t.equal((await rig.invoke('crm.order.export')).json.code, 0);
  t.ok(told() <= 60_000 && told() > 55_000, 'a contract cannot give more than the maximum either');
  t.equal(
    (await rig.invoke('crm.order.query', { headers: { 'reach-deadline-ms': '3000', 'reach-deadline-total-ms': '500' } })).json.code,
    0,
  );
  t.ok(told() <= 500, 'of two that contradict each other the smaller counts');

  for (const path of ['/v1/stream/crm.order.query', '/v1/invoke/crm.order.query?mode=raw']) {
    const asked = agent.executions;
    t.equal((await rig.ask(path, { method: 'POST', headers: { 'reach-deadline-ms': '0' } })).status, 504, path);
    t.equal((await rig.ask(path, { method: 'POST', headers: { 'reach-deadline-ms': 'abc' } })).status, 400, path);
    t.equal(agent.executions, asked);
  }

  // Budgets are times too.
  const budgets: readonly (readonly [Record<string, string>, number])[] = [
    [{ 'reach-budget': 'a=100, b=-1', 'reach-step': 'a' }, 4003],
    [{ 'reach-budget': 'a=abc', 'reach-step': 'a' }, 4003],
    [{ 'reach-budget': 'a=1e3', 'reach-step': 'a' }, 4003],
    [{ 'reach-budget': 'a=99999999999999999999', 'reach-step': 'a' }, 4003],
    [{ 'reach-budget': 'a=60001', 'reach-step': 'a' }, 4003],
    [{ 'reach-budget': 'a=100, a=200', 'reach-step': 'a' }, 4003],
    [{ 'reach-budget': 'a=100', 'reach-step': 'b' }, 4003],
    [{ 'reach-step': 'a' }, 4003],
    [{ 'reach-budget': '', 'reach-step': 'a' }, 4003],
    [{ 'reach-budget': 'a=100, b=5000', 'reach-step': 'a', 'reach-deadline-ms': '4000' }, 5002],
  ];
  const asked = agent.executions;
  for (const [headers, code] of budgets)
    t.equal(
      (await rig.invoke('crm.order.query', { headers: { 'reach-deadline-ms': '4000', ...headers } })).json.code,
      code === 5002 ? 0 : code,
      JSON.stringify(headers),
    );
  t.equal(agent.executions, asked, 'nobody was contacted');
  await stop(t, [rig], [agent], [agent.executions]);
});

t.test('C029 a caller that gives up a moment before the time is over is a time-out to health', async (t) => {
  const CONTRACT = 'name: crm.order.query, version: 2.0.0, acl: public, execution: idempotent';
  const virtual = (breaker: string, rest = ''): VirtualRig =>
    new VirtualRig(`
contracts: [{${CONTRACT}, streaming: true, breaker: {${breaker}}, limits: {per_caller: 1000}}]
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0], tier: backup}
mocks:
  crm.order.1: {latency: 10s}
  crm.order.2: {latency: 10s}
${rest}`);
  const leaving = async (rig: VirtualRig, afterMs: number, wish: object = {}): Promise<Begun> => {
    const begun = rig.begin('crm.order.query', { deadlineMs: 500, headers: { 'reach-pin': 'crm.order.1' }, ...wish });
    if (begun.result === null) await rig.wait(afterMs);
    begun.call.cancel();
    await rig.wait(0);
    return begun;
  };
  const seen = (rig: VirtualRig): { calls: number; failures: number; state: string } => {
    const cell = rig.cell('crm.order.1', 'crm.order.query');
    return { calls: cell.callsInWindow(rig.now), failures: cell.failuresInWindow(rig.now), state: cell.stateName };
  };

  await t.test('fifty on real sockets', async (t) => {
    const agent = await TestAgent.listen('crm.order.1', () => undefined);
    const rig = await Rig.start(t, {
      table: `
contracts: [{${CONTRACT}, breaker: {min_calls: 50}, limits: {per_caller: 1000}}]
providers: [{agent_id: crm.order.1, offers: [crm.order.query@2.0.0], endpoint: {type: http, address: "${agent.url}"}}]
`,
    });
    const cell = [...rig.started.front.engine.health.cells()][0];
    // Four times as long as in the case, which follows below to the millisecond, and in groups: a caller's time begins when it
    // sends, the sidecar's when it gets to read, and on a busy machine fifty connections at once take their time.
    const ask = (hangUpAfterMs: number): Promise<unknown> =>
      rig.invoke('crm.order.query', { headers: { 'reach-deadline-ms': '2000' }, hangUpAfterMs }).catch(() => undefined);
    const fifty = (hangUpAfterMs: number): Promise<unknown> =>
      Promise.all(Array.from({ length: 50 }, async (_, i) => (await sleep(Math.floor(i / 5) * 60), await ask(hangUpAfterMs))));
    await fifty(200);
    await waitUntil('the calls have ended', () => rig.quiet.inFlight() === 0);
    t.equal(cell?.callsInWindow(rig.started.front.engine.clock.now()), 0, 'leaving after a tenth of the time is neither good nor bad');
    t.equal(cell?.stateName, 'closed');
    await fifty(1_996);
    await waitUntil('the calls have ended', () => rig.quiet.inFlight() === 0);
    t.equal(cell?.failuresInWindow(rig.started.front.engine.clock.now()), 50, 'all fifty are seen');
    t.equal(cell?.stateName, 'open');
    t.match((await rig.invoke('crm.order.query')).json, { code: 3001 });
    const outcomes = rig.logged.filter((line) => line['msg'] === 'call').map((line) => line['outcome']);
    t.ok(outcomes.filter((outcome) => outcome === 'cancelled').length >= 50);
    await stop(t, [rig], [agent], [100]);
  });

  await t.test('one after the other, at 499 ms of 500', async (t) => {
    const rig = virtual('min_calls: 50');
    for (let i = 0; i < 50; i++) {
      const call = await leaving(rig, 499);
      t.equal(call.code, 5003);
      t.equal(call.call.attempts.length, 1, 'nothing is retried for a caller that is gone');
    }
    t.strictSame(seen(rig), { calls: 50, failures: 50, state: 'open' });
    await rig.finish(t, { 'crm.order.1': 50, 'crm.order.2': 0 });
  });

  await t.test('the line is at 95 per cent', async (t) => {
    const rig = virtual('min_calls: 10');
    for (let i = 0; i < 50; i++) await leaving(rig, 50);
    t.strictSame(seen(rig), { calls: 0, failures: 0, state: 'closed' }, 'at a tenth of the time: nothing');
    for (let i = 0; i < 20; i++) await leaving(rig, 474);
    t.strictSame(seen(rig), { calls: 0, failures: 0, state: 'closed' }, 'just before it: nothing');
    for (let i = 0; i < 9; i++) await leaving(rig, 475);
    t.strictSame(seen(rig), { calls: 9, failures: 9, state: 'closed' });
    await leaving(rig, 499, { stream: true });
    t.equal(seen(rig).state, 'open', 'a stream whose head has not come is no exception');
    await rig.finish(t, { 'crm.order.1': 80, 'crm.order.2': 0 });
  });

  await t.test('the time of one attempt is the measure, when that is shorter', async (t) => {
    const rig = virtual('min_calls: 10', 'policies: [{capability: crm.order.query, timeout: 200ms, retry: {max: 0}}]');
    for (let i = 0; i < 5; i++) await leaving(rig, 199);
    for (let i = 0; i < 5; i++) await leaving(rig, 100);
    t.strictSame(seen(rig), { calls: 5, failures: 5, state: 'closed' });
    await rig.finish(t, { 'crm.order.1': 10 });
  });

  await t.test('who keeps no breaker ejects', async (t) => {
    const rig = virtual('enabled: false');
    for (let i = 0; i < 10; i++) await leaving(rig, 50);
    for (let i = 0; i < 2; i++) await leaving(rig, 499);
    t.equal(rig.cell('crm.order.1', 'crm.order.query').usable(rig.now), 'yes');
    await leaving(rig, 499);
    t.equal(rig.cell('crm.order.1', 'crm.order.query').usable(rig.now), 'ejected', 'three in a row, as with time-outs');
    await rig.finish(t, { 'crm.order.1': 13 });
  });
});
