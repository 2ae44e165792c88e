/** The circuit breaker in a whole sidecar: when it opens, who probes, and that nothing ever keeps it from closing again. */
import t from 'tap';
import { readTable } from '../../proto/language/document.ts';
import type { Problem } from '../../proto/language/types.ts';
import type { Transport } from '../../sidecar/transports/transport.ts';
import { TestAgent } from '../support/agent.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { rawAnswer, TcpStub } from '../support/tcp-stub.ts';
import { type Begun, VirtualRig } from '../support/virtual-rig.ts';

type Test = Parameters<typeof Rig.start>[0];

const before: Base = takeBase();
const QUERY = 'crm.order.query';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** One capability and its mock providers `crm.order.1`, `….2`, …. */
function table(breaker: string, mocks: readonly string[], contract = '', rest = ''): string {
  return `
contracts:
  - {name: ${QUERY}, version: 2.0.0, acl: public, execution: idempotent, breaker: {${breaker}}, limits: {per_caller: 100000, per_provider: 100000}${contract === '' ? '' : `, ${contract}`}}
providers:
${mocks.map((_, i) => `  - {agent_id: crm.order.${i + 1}, offers: ["${QUERY}@2.0.0"]}`).join('\n')}
mocks:
${mocks.map((mock, i) => `  crm.order.${i + 1}: {${mock}}`).join('\n')}
${rest}`;
}

const codesOf = (calls: readonly Begun[]): Record<number, number> => {
  const counts: Record<number, number> = {};
  for (const call of calls) counts[call.code] = (counts[call.code] ?? 0) + 1;
  return counts;
};
const opened = (rig: VirtualRig, agent: string): number =>
  rig.world.moves.filter((move) => move.cell.startsWith(`${agent} `) && move.to === 'open').length;

/** Opens the breaker of `crm.order.1` by failures, then heals nothing. */
async function open(t: Test, rig: VirtualRig, calls: number, wish = {}): Promise<void> {
  const cell = rig.cell('crm.order.1', QUERY);
  for (let i = 0; i < calls && cell.stateName === 'closed'; i++) await rig.call(QUERY, wish);
  t.equal(cell.stateName, 'open', 'its breaker is open');
}

async function stop(t: Test, rig: Rig, agents: readonly (TestAgent | TcpStub)[], executions: readonly number[]): Promise<void> {
  await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
  const providers = agents.map((agent, i) => ({
    name: `provider ${i + 1}`,
    count: agent.requests.length,
    expected: executions[i] as number,
  }));
  await rig.stop();
  for (const agent of agents) await agent.close();
  await rig.finish(t, before, providers);
}

const BASIC = 'min_calls: 10, failure_ratio: 50%, open: 1s, probes: 3, successes: 1, ramp: [6, 12, 24], ramp_step: 2s';

t.test('C041 half-open lets three calls in, in the very tick too, and the load comes back in steps', async (t) => {
  for (const ejection of ['', 'sidecar: {ejection: {consecutive: 1000}}']) {
    await t.test(ejection === '' ? 'with the default ejection' : 'without ejection', async (t) => {
      const rig = new VirtualRig(table(BASIC, ['hang: true'], 'deadline: 2s', ejection));
      const { world } = rig;
      const cell = rig.cell('crm.order.1', QUERY);
      const all: Begun[] = [];
      let most = 0;
      let overfull = 0;
      const watch = (): void => {
        if (cell.stateName !== 'half_open') return;
        most = Math.max(most, cell.provider.inFlight - beforeOpening());
        if (cell.limitedInFlight > 3) overfull++;
      };
      // Calls from before the breaker opened hang until their deadline, half-open or not.
      const opens: number[] = [];
      world.health.onTransition = (
        (next) =>
        (...said: Parameters<NonNullable<typeof next>>) => {
          next?.(...said);
          if (said[2] === 'open') opens.push(world.clock.now());
        }
      )(world.health.onTransition);
      const beforeOpening = (): number => {
        const at = opens.find(() => true) ?? 0;
        return all.filter((one) => one.result === null && one.call.startedAt <= at && one.call.attempts.length > 0).length;
      };
      // 500 callers a second for 10 s, fifty in each tenth of one, in the same instant: also in the very tick of a transition.
      for (let i = 0; i < 5_000; i++) {
        all.push(rig.begin(QUERY));
        watch();
        if (i % 50 === 49) await rig.wait(100);
        watch();
      }
      await rig.wait(2_000);
      t.equal(overfull, 0, 'never more than three probes');
      t.ok(most > 0 && most <= 3, `half-open, the provider sees at most three calls (saw ${most})`);
      t.ok(opens.length >= 3, `several half-open windows went by (${opens.length} openings)`);
      const late = all.filter((one) => one.call.startedAt >= (opens[0] as number));
      const admitted = late.filter((one) => one.call.attempts.length > 0);
      const refused = late.filter((one) => one.call.attempts.length === 0);
      t.ok(admitted.length <= 3 * opens.length, `${admitted.length} probes in ${opens.length} windows`);
      t.strictSame(codesOf(refused), { 3001: refused.length }, 'everybody else is told that the breaker is open');
      t.ok(
        refused.every((one) => (one.result?.elapsedMs ?? 99) < 10),
        'at once',
      );
      t.ok(
        refused.some((one) => (one.result?.retryAfterMs ?? 0) > 0),
        'and, while it is open, when to come back',
      );
      const hung = rig.executions('crm.order.1');

      // It recovers.
      rig.mock('crm.order.1', { latency: '100ms' });
      await rig.wait(5_000);
      const herd = async (n: number): Promise<number> => {
        const calls = Array.from({ length: n }, () => rig.begin(QUERY));
        await rig.wait(150);
        t.strictSame(Object.keys(codesOf(calls)).sort(), n > (codesOf(calls)[0] ?? 0) ? ['0', '3001'] : ['0']);
        return codesOf(calls)[0] ?? 0;
      };
      t.equal(await herd(200), 3, 'three probes');
      const recoveredAt = world.clock.now();
      const steps: number[] = [await herd(200)];
      await rig.wait(recoveredAt + 2_000 - world.clock.now());
      steps.push(await herd(200));
      await rig.wait(recoveredAt + 4_000 - world.clock.now());
      steps.push(await herd(200));
      await rig.wait(recoveredAt + 6_000 - world.clock.now());
      steps.push(await herd(200));
      t.strictSame(steps, [6, 12, 24, 200], 'the ramp as configured');
      t.equal(cell.stateName, 'closed');
      await rig.finish(t, { 'crm.order.1': hung + 3 + 6 + 12 + 24 + 200 });
    });
  }

  await t.test('on real sockets: refused within 10 ms, at most three at the provider', async (t) => {
    let inFlight = 0;
    let most = 0;
    const agent = await TestAgent.listen('crm.order.1', () => ({ status: 500, body: {} }));
    const rig = await Rig.start(t, {
      table: `
contracts: [{name: ${QUERY}, version: 2.0.0, acl: public, execution: idempotent, deadline: 600ms, breaker: {min_calls: 10, open: 500ms, probes: 3}, limits: {per_caller: 1000}}]
providers: [{agent_id: crm.order.1, offers: ["${QUERY}@2.0.0"], endpoint: {type: http, address: "${agent.url}"}}]
`,
    });
    for (let i = 0; i < 10; i++) t.equal((await rig.invoke(QUERY)).status, 500);
    const refused = await rig.invoke(QUERY);
    t.match(refused.json, { code: 3001, attempts: [] });
    t.match(refused.headers, { 'retry-after': '1', 'reach-retry': 'none' });
    agent.behaviour = (_, response) => {
      most = Math.max(most, ++inFlight);
      response.once('close', () => inFlight--);
      return undefined; // hangs
    };
    await sleep(600);
    const answers = await Promise.all(Array.from({ length: 60 }, () => rig.invoke(QUERY)));
    t.equal(most, 3);
    t.equal(answers.filter((answer) => answer.json.code === 5001).length, 3);
    const others = answers.filter((answer) => answer.json.code === 3001);
    t.equal(others.length, 57);
    // The sidecar's own time, and not the very slowest: a busy machine may stop the process in the middle of one.
    const elapsed = others.map((answer) => answer.json.elapsed_ms as number).sort((a, b) => a - b);
    t.ok((elapsed[50] ?? 99) < 10, `refused within ${elapsed[50]} ms`);
    await stop(t, rig, [agent], [13]);
  });
});

t.test('C042 fifty failures in one tick never keep the breaker from closing again (200 seeds)', async (t) => {
  const wrong: string[] = [];
  for (let seed = 1; seed <= 200; seed++) {
    const spread = seed % 4;
    const latency = spread === 0 ? 'latency: 10ms' : `latency: {from: 10ms, to: ${10 + spread}ms}`;
    const rig = new VirtualRig(
      table(
        'min_calls: 5, failure_ratio: 50%, open: 1s, ramp: []',
        [`${latency}, status: ${seed % 2 === 0 ? 500 : 503}`],
        '',
        `seed: ${seed}`,
      ),
    );
    const calls: Begun[] = [];
    for (let i = 0; i < 50; i++) calls.push(rig.begin(QUERY, seed % 5 === 0 && i % 7 === 0 ? { deadlineMs: 11 } : {}));
    await rig.wait(20);
    const line = `seed ${seed}`;
    const state = (): string => rig.cell('crm.order.1', QUERY).stateName;
    if (calls.some((one) => one.result === null || one.code === 0)) wrong.push(`${line}: not all failed`);
    if (state() !== 'open' || opened(rig, 'crm.order.1') !== 1)
      wrong.push(`${line}: ${state()}, opened ${opened(rig, 'crm.order.1')} times`);
    rig.mock('crm.order.1', { latency: '10ms' });
    await rig.wait(2_000);
    if (state() !== 'half_open') wrong.push(`${line}: ${state()} when the open time was over`);
    const probe = await rig.call(QUERY);
    if (probe.code !== 0) wrong.push(`${line}: the call was not admitted: ${probe.result?.detail}`);
    if (state() !== 'closed') wrong.push(`${line}: ${state()} after a good call`);
    if (rig.executions('crm.order.1') !== 51) wrong.push(`${line}: ${rig.executions('crm.order.1')} executions`);
    if (rig.world.engine.limits.inFlight() !== 0 || rig.cell('crm.order.1', QUERY).provider.inFlight !== 0)
      wrong.push(`${line}: something is in flight`);
    if (seed === 200) await rig.finish(t, { 'crm.order.1': 51 });
  }
  t.strictSame(wrong, [], 'half-open when it is time, admitted, closed: in every order of the failures');
});

t.test('C043 whatever becomes of a probe, its place comes back', async (t) => {
  const BREAKER = 'min_calls: 5, failure_ratio: 50%, open: 10s, probes: 1, ramp: []';
  /** How long after the end of a probe traffic must flow again: open time, plus what a probe may take. */
  const WITHIN_MS = 10_000 + 30_000;

  const endings: readonly {
    readonly name: string;
    readonly mock: Record<string, unknown>;
    readonly stream?: boolean;
    readonly cancelAfterMs?: number;
    readonly broken?: 'throws' | 'rejects' | 'throws late';
    readonly code: number;
    readonly after: string;
  }[] = [
    { name: '404', mock: { status: 404 }, code: 6001, after: 'closed' },
    { name: '429, which is no verdict', mock: { status: 429 }, code: 3004, after: 'half_open' },
    { name: 'body cut', mock: { reset: 'mid_body' }, code: 1004, after: 'open' },
    {
      name: 'body cut, streamed',
      mock: { reset: 'mid_body', slow_body: { chunks: 4, every: '50ms' } },
      stream: true,
      code: 1006,
      after: 'open',
    },
    { name: 'caller cancels', mock: { hang: true }, cancelAfterMs: 100, code: 5003, after: 'half_open' },
    {
      name: 'caller cancels in the middle of a stream',
      mock: { hang: 'mid_body', slow_body: { chunks: 4, every: '50ms' } },
      stream: true,
      cancelAfterMs: 300,
      code: 5003,
      after: 'half_open',
    },
    { name: 'hangs, and nobody said how long to wait', mock: { hang: true }, code: 1003, after: 'open' },
    { name: 'hangs after the head', mock: { hang: 'after_head' }, code: 1003, after: 'open' },
    {
      name: 'the stream hangs',
      mock: { hang: 'mid_body', slow_body: { chunks: 4, every: '50ms' } },
      stream: true,
      code: 5001,
      after: 'open',
    },
    { name: 'too late to be good', mock: { latency: '4s' }, code: 0, after: 'open' },
    { name: 'the adapter throws', mock: {}, broken: 'throws', code: 9001, after: 'half_open' },
    { name: 'the adapter rejects', mock: {}, broken: 'rejects', code: 9001, after: 'half_open' },
    { name: 'the adapter rejects late', mock: {}, broken: 'throws late', code: 9001, after: 'half_open' },
  ];
  for (const { name, mock, stream, cancelAfterMs, broken, code, after } of endings) {
    await t.test(name, async (t) => {
      const rig = new VirtualRig(table(BREAKER, ['status: 500'], 'timeout: 5s, streaming: true'));
      const cell = rig.cell('crm.order.1', QUERY);
      await open(t, rig, 5);
      rig.mock('crm.order.1', mock);
      await rig.wait(10_000);
      const mend = broken === undefined ? () => undefined : breakAdapter(rig, broken);
      const probe = rig.begin(QUERY, stream === true ? { stream } : {});
      if (broken !== 'throws' && broken !== 'rejects' && mock['status'] === undefined)
        t.equal(cell.limitedInFlight, 1, 'it is the probe, and holds the place');
      if (cancelAfterMs !== undefined) {
        await rig.wait(cancelAfterMs);
        probe.call.cancel();
      }
      await rig.rest(() => probe.result !== null);
      mend();
      const endedAt = rig.now;
      t.equal(probe.code, code, `ends with ${code}`);
      t.equal(cell.stateName, after, `and leaves the breaker ${after}`);
      t.equal(cell.limitedInFlight, 0, 'permits out = probes in flight');
      t.equal(cell.provider.inFlight, 0);
      rig.mock('crm.order.1', { latency: '20ms' });
      let firstOkMs = -1;
      let oks = 0;
      for (let second = 0; second < 45 && oks < 5; second++) {
        const call = await rig.call(QUERY);
        if (call.code === 0) {
          if (oks++ === 0) firstOkMs = rig.now - endedAt;
        } else oks = 0;
        await rig.wait(1_000);
      }
      t.equal(oks, 5, 'traffic flows');
      t.ok(firstOkMs >= 0 && firstOkMs <= WITHIN_MS, `again after ${Math.round(firstOkMs)} ms`);
      await rig.finish(t, { 'crm.order.1': rig.executions('crm.order.1') });
      const bugs = rig.world.witness.bugs.length;
      t.equal(bugs, 0, 'no fault beyond the one that was made');
    });
  }

  await t.test('on real sockets: a probe cut by the provider, and one cut by its caller', async (t) => {
    const stub = await TcpStub.listen(async (connection) => {
      await connection.write(rawAnswer(500, { 'content-type': 'application/json', 'content-length': 2 }, '{}'));
    });
    const rig = await Rig.start(t, {
      table: `
contracts: [{name: ${QUERY}, version: 2.0.0, acl: public, execution: idempotent, breaker: {min_calls: 5, open: 300ms, probes: 1, ramp: []}}]
providers: [{agent_id: crm.order.1, offers: ["${QUERY}@2.0.0"], endpoint: {type: http, address: "${stub.url}"}}]
`,
    });
    for (let i = 0; i < 5; i++) await rig.invoke(QUERY);
    t.equal((await rig.invoke(QUERY)).json.code, 3001);
    stub.script = async (connection) => {
      await connection.write(rawAnswer(200, { 'content-type': 'application/json', 'content-length': 20 }, '{"ok":true}'));
      connection.fin();
    };
    await sleep(350);
    t.equal((await rig.invoke(QUERY)).json.code, 1004, 'the probe is cut');
    t.equal((await rig.invoke(QUERY)).json.code, 3001);
    stub.script = () => undefined;
    await sleep(350);
    await t.rejects(rig.invoke(QUERY, { hangUpAfterMs: 50 }), 'the next probe loses its caller');
    await waitUntil('that call has ended', () => rig.quiet.inFlight() === 0);
    stub.script = async (connection) => {
      await connection.write(rawAnswer(200, { 'content-type': 'application/json', 'content-length': 11 }, '{"ok":true}'));
    };
    t.equal((await rig.invoke(QUERY)).json.code, 0, 'and the one after it probes at once');
    t.equal((await rig.invoke(QUERY)).json.code, 0);
    await stop(t, rig, [stub], [9]);
  });
});

/** Makes the mock adapter fail the way an adapter must not; the result puts it right again. */
function breakAdapter(rig: VirtualRig, how: 'throws' | 'rejects' | 'throws late'): () => void {
  const mock = rig.world.mock as Transport;
  const invoke = mock.invoke.bind(mock);
  mock.invoke = (exchange) => {
    if (how === 'throws') throw new Error('made by the test');
    if (how === 'rejects') return Promise.reject(new Error('made by the test'));
    return new Promise((_, fail) => {
      rig.world.clock.after(50, () => fail(new Error(`made by the test for ${exchange.candidate.provider.agentId}`)));
    });
  };
  return () => {
    mock.invoke = invoke;
    const { bugs } = rig.world.witness;
    if (bugs.length === 1 && bugs[0]?.includes('made by the test')) bugs.length = 0;
  };
}

t.test('C044 a call that another gate refuses takes no probe with it', async (t) => {
  const BREAKER = 'min_calls: 5, failure_ratio: 50%, open: 1s, probes: 1, ramp: []';
  const OVERRIDE = 'overrides: [{name: stop, reason: "an incident", action: block, capability: crm.order.query}]';
  const ONE = 'per_caller: 1';
  const gates: readonly {
    readonly name: string;
    readonly codes: readonly number[];
    readonly shut: (rig: VirtualRig) => unknown;
    readonly free: (rig: VirtualRig) => unknown;
    readonly wish?: object;
  }[] = [
    {
      name: 'ACL deny',
      codes: [4002],
      shut: (rig) => rig.edit('acl: public', 'acl: [nobody.at.all]'),
      free: (rig) => rig.edit('acl: public', 'acl: public '),
    },
    {
      name: 'kill switch',
      codes: [2006],
      shut: (rig) => rig.edit('rest: 0', `rest: 0\n${OVERRIDE}`),
      free: (rig) => rig.edit('rest: 0', 'rest: 0'),
    },
    {
      name: 'kill switch on the provider',
      codes: [2006],
      shut: (rig) => rig.edit('rest: 0', 'rest: 0\noverrides: [{name: stop, reason: "an incident", action: block, provider: crm.order.1}]'),
      free: (rig) => rig.edit('rest: 0', 'rest: 0'),
    },
    { name: 'no time left', codes: [5001], shut: () => undefined, free: () => undefined, wish: { deadlineMs: 0 } },
    {
      name: 'a loop',
      codes: [2005],
      shut: () => undefined,
      free: () => undefined,
      wish: { headers: { 'reach-path': `crm.order.1>${QUERY}` } },
    },
    {
      name: 'a bad request',
      codes: [4003],
      shut: () => undefined,
      free: () => undefined,
      wish: { headers: { 'reach-execution': 'perhaps' } },
    },
  ];
  for (const { name, codes, shut, free, wish } of gates) {
    await t.test(name, async (t) => {
      const rig = new VirtualRig(table(BREAKER, ['status: 500'], '', 'tasks: {rest: {deadline: 1s}} # rest: 0'));
      const cell = rig.cell('crm.order.1', QUERY);
      await open(t, rig, 5);
      rig.mock('crm.order.1', { latency: '10ms' });
      await rig.wait(1_000);
      shut(rig);
      for (let i = 0; i < 3; i++) {
        const refused = await rig.call(QUERY, wish ?? {});
        t.ok(codes.includes(refused.code), `refused with ${refused.code}`);
        t.equal(refused.call.attempts.length, 0);
        t.equal(cell.limitedInFlight, 0, 'no place is taken');
      }
      free(rig);
      const probe = await rig.call(QUERY);
      t.equal(probe.code, 0, 'the next call is the probe');
      t.ok(probe.reasons.includes('choose.probe'), probe.reasons.join(' '));
      t.equal(cell.stateName, 'closed');
      await rig.finish(t, { 'crm.order.1': 6 });
    });
  }

  await t.test('the caller has its full number of calls in flight', async (t) => {
    // Its other call is at a second capability's provider, since the limit is per caller and capability: it hangs at crm.order.2.
    const rig = new VirtualRig(table(BREAKER, ['status: 500', 'hang: true']).replace('per_caller: 100000', ONE));
    const cell = rig.cell('crm.order.1', QUERY);
    for (let i = 0; i < 5; i++) await rig.call(QUERY, { headers: { 'reach-pin': 'crm.order.1' } });
    t.equal(cell.stateName, 'open');
    rig.mock('crm.order.1', { latency: '10ms' });
    const long = rig.begin(QUERY, { headers: { 'reach-pin': 'crm.order.2' }, deadlineMs: 60_000 });
    await rig.wait(1_000);
    t.equal((await rig.call(QUERY)).code, 3002);
    t.equal(cell.limitedInFlight, 0);
    long.call.cancel();
    await rig.rest(() => long.result !== null);
    t.equal((await rig.call(QUERY)).code, 0, 'the next call is the probe');
    t.equal(cell.stateName, 'closed');
    await rig.finish(t, { 'crm.order.1': 6, 'crm.order.2': 1 });
  });

  await t.test('the provider has its full number of calls in flight', async (t) => {
    const rig = new VirtualRig(`
contracts:
  - {name: ${QUERY}, version: 2.0.0, acl: public, execution: idempotent, breaker: {${BREAKER}}}
  - {name: crm.refund.apply, version: 2.0.0, acl: public, execution: idempotent, deadline: 60s, timeout: 60s}
providers:
  - {agent_id: crm.order.1, offers: ["${QUERY}@2.0.0", "crm.refund.apply@2.0.0"], limits: {per_provider: 1}}
mocks:
  crm.order.1: {status: 500}
`);
    const cell = rig.cell('crm.order.1', QUERY);
    await open(t, rig, 5);
    rig.mock('crm.order.1', { capabilities: { 'crm.refund.apply': { hang: true } }, latency: '10ms' });
    const long = rig.begin('crm.refund.apply');
    await rig.wait(1_000);
    t.equal((await rig.call(QUERY)).code, 3003);
    t.equal(cell.limitedInFlight, 0);
    long.call.cancel();
    await rig.rest(() => long.result !== null);
    t.equal((await rig.call(QUERY)).code, 0, 'the next call is the probe');
    t.equal(cell.stateName, 'closed');
    await rig.finish(t, { 'crm.order.1': 7 });
  });
});

t.test('C046 a probe that the caller spoilt neither opens the breaker nor blocks it', async (t) => {
  for (const status of [400, 401, 403, 404, 409, 410, 413, 415, 422, 451]) {
    const rig = new VirtualRig(table('min_calls: 5, open: 1s, probes: 1, ramp: []', ['status: 500']));
    const cell = rig.cell('crm.order.1', QUERY);
    await open(t, rig, 5);
    rig.mock('crm.order.1', { status });
    await rig.wait(1_000);
    const probe = await rig.call(QUERY);
    t.match([probe.code, probe.result?.status], [6001, status]);
    t.equal(cell.stateName, 'closed', `${status} proves that it answers`);
    t.equal((await rig.call(QUERY)).code, 6001, 'the next call passes');
    await rig.finish(t, { 'crm.order.1': 7 });
  }
  const rig = new VirtualRig(table('min_calls: 5, open: 1s, probes: 1, ramp: []', ['status: 500']));
  const cell = rig.cell('crm.order.1', QUERY);
  await open(t, rig, 5);
  rig.mock('crm.order.1', { hang: true });
  await rig.wait(1_000);
  for (let i = 0; i < 20; i++) {
    const probe = rig.begin(QUERY);
    t.equal(cell.limitedInFlight, 1);
    t.equal((await rig.call(QUERY)).code, 3001, 'meanwhile nobody else');
    await rig.wait(10);
    probe.call.cancel();
    await rig.wait(0);
    t.equal(probe.code, 5003);
    t.equal(cell.stateName, 'half_open', 'no verdict');
    t.equal(cell.limitedInFlight, 0, 'the place is free');
  }
  t.equal(opened(rig, 'crm.order.1'), 1);
  rig.mock('crm.order.1', {});
  t.equal((await rig.call(QUERY)).code, 0, 'the next call probes');
  t.equal(cell.stateName, 'closed');
  await rig.finish(t, { 'crm.order.1': 26 });
});

t.test('C047 a provider that has healed is probed, whether it is alone or not, and however calls are shared out', async (t) => {
  await t.test('alone', async (t) => {
    for (const fault of ['status: 500', 'reset: true', 'hang: true, status: 200', 'refuse_connect: true']) {
      const rig = new VirtualRig(table('min_calls: 6, open: 1s', [fault], 'timeout: 100ms'));
      const cell = rig.cell('crm.order.1', QUERY);
      // Time-outs and refused connections eject after three in a row; all six are under way at once.
      const six = Array.from({ length: 6 }, () => rig.begin(QUERY));
      await rig.wait(200);
      t.notOk(six.some((one) => one.code === 0));
      t.equal(cell.stateName, 'open', fault);
      rig.mock('crm.order.1', { latency: '10ms' });
      await rig.wait(1_000);
      const first = await rig.call(QUERY);
      t.equal(first.code, 0);
      t.ok(first.reasons.includes('choose.probe'), 'the first call probes');
      t.equal((await rig.call(QUERY)).code, 0);
      t.equal((await rig.call(QUERY)).code, 0);
      await rig.finish(t, { 'crm.order.1': fault.startsWith('refuse') ? 3 : 9 });
    }
  });

  const traffic: readonly {
    readonly name: string;
    readonly contract?: string;
    readonly policy?: string;
    readonly wish: (n: number) => object;
  }[] = [
    { name: 'least_request', wish: () => ({}) },
    { name: 'round_robin', policy: 'load: round_robin', wish: () => ({}) },
    { name: 'random', policy: 'load: random', wish: () => ({}) },
    { name: 'primary_backup', policy: 'load: primary_backup', wish: () => ({}) },
    { name: 'sticky, each caller a new one', policy: 'load: sticky', wish: (n) => ({ as: `web.desk.${(n % 3) + 1}` }) },
    { name: 'conversations, all of them new', wish: (n) => ({ headers: { 'reach-affinity': `session-${n}` } }) },
    { name: 'conversations that go on', wish: (n) => ({ headers: { 'reach-affinity': `session-${n % 8}` } }) },
    {
      name: 'strict conversations, all of them new',
      contract: 'affinity: {required: true, from: "header:x-session", mode: strict}',
      wish: (n) => ({ headers: { 'x-session': `s${n}` } }),
    },
    { name: 'work that runs once', wish: () => ({ headers: { 'reach-execution': 'once' } }) },
    { name: 'mostly work that runs once', wish: (n) => ({ headers: { 'reach-execution': n % 10 === 0 ? 'idempotent' : 'once' } }) },
    { name: 'streams', contract: 'streaming: true', wish: () => ({ stream: true }) },
  ];
  for (const { name, contract, policy, wish } of traffic) {
    await t.test(`beside a healthy one: ${name}`, async (t) => {
      const rig = new VirtualRig(
        table(
          'min_calls: 6, open: 5s, ramp: []',
          ['status: 500', 'latency: 10ms'],
          contract ?? '',
          policy === undefined ? '' : `policies: [{capability: ${QUERY}, ${policy}}]`,
        ),
      );
      const cell = rig.cell('crm.order.1', QUERY);
      let n = 0;
      while (cell.stateName === 'closed' && n < 200) await rig.call(QUERY, wish(n++));
      t.equal(cell.stateName, 'open');
      rig.mock('crm.order.1', { latency: '10ms' });
      const healedAt = rig.executions('crm.order.1');
      const openUntil = rig.now + 5_000;
      let probedAt = 0;
      while (rig.now < openUntil + 2_000) {
        const call = await rig.call(QUERY, wish(n++));
        if (probedAt === 0 && rig.executions('crm.order.1') > healedAt) {
          probedAt = rig.now;
          t.equal(call.code, 0);
        }
        await rig.wait(50);
      }
      t.ok(probedAt > 0 && probedAt <= openUntil + 1_000, `probed ${Math.round(probedAt - openUntil)} ms after the open time`);
      t.equal(cell.stateName, 'closed', 'and it serves again');
      await rig.finish(t);
    });
  }

  await t.test('a conversation begun by a probe that fails is not lost, even a strict one', async (t) => {
    const rig = new VirtualRig(
      table(
        'min_calls: 6, open: 5s, probes: 1, ramp: []',
        ['status: 500', 'latency: 10ms'],
        'affinity: {required: true, from: "header:x-session", mode: strict}, execution: once',
      ).replace('execution: idempotent, ', ''),
    );
    const cell = rig.cell('crm.order.1', QUERY);
    for (let n = 0; cell.stateName === 'closed' && n < 100; n++) await rig.call(QUERY, { headers: { 'x-session': `old-${n}` } });
    await rig.wait(5_000);
    const probe = await rig.call(QUERY, { headers: { 'x-session': 'new' } });
    t.ok(probe.reasons.includes('choose.probe'), 'it probes');
    t.equal(probe.code, 6001, 'and fails, since work that runs once is not repeated');
    t.equal(cell.stateName, 'open');
    const again = await rig.call(QUERY, { headers: { 'x-session': 'new' } });
    t.match([again.code, again.result?.provider], [0, 'crm.order.2'], 'the conversation begins anew with the healthy one');
    rig.mock('crm.order.1', { latency: '10ms' });
    await rig.wait(5_000);
    const good = await rig.call(QUERY, { headers: { 'x-session': 'newer' } });
    t.match([good.code, good.result?.provider], [0, 'crm.order.1']);
    for (let i = 0; i < 5; i++)
      t.equal(
        (await rig.call(QUERY, { headers: { 'x-session': 'newer' } })).result?.provider,
        'crm.order.1',
        'a good probe holds its conversation',
      );
    t.equal(
      (await rig.call(QUERY, { headers: { 'x-session': 'new' } })).result?.provider,
      'crm.order.2',
      'and the other stays where it began',
    );
    await rig.finish(t);
  });
});

t.test('C049 settings that would break a breaker are refused by name, with what is allowed', async (t) => {
  const agent = await TestAgent.listen('crm.order.1');
  const GOOD = 'breaker: {min_calls: 7, failure_ratio: 50%, open: 90s}';
  const text = (breaker: string, policies = ''): string => `
contracts: [{name: ${QUERY}, version: 2.0.0, acl: public, execution: idempotent, ${breaker}}]
providers: [{agent_id: crm.order.1, offers: ["${QUERY}@2.0.0"], endpoint: {type: http, address: "${agent.url}"}}]
${policies}`;
  const rig = await Rig.start(t, { table: text(GOOD) });
  const { table: view, engine } = rig.started.front;
  const version = view.current().version;
  const settings = (): { minCalls: number; openMs: number } => {
    for (const cell of engine.health.cells()) return cell.settings;
    throw new Error('no breaker');
  };

  const bad: readonly (readonly [key: string, value: string, range: RegExp])[] = [
    ['probes', '0', /from 1 to 100/],
    ['probes', '-1', /from 1 to 100/],
    ['probes', '1.5', /from 1 to 100/],
    ['probes', '.nan', /from 1 to 100/],
    ['probes', '.inf', /from 1 to 100/],
    ['probes', '"50%"', /from 1 to 100/],
    ['probes', '"3"', /from 1 to 100/],
    ['successes', '0', /from 1 to 100/],
    ['failure_ratio', '0', /above 0, up to 1/],
    ['failure_ratio', '0%', /above 0, up to 1/],
    ['failure_ratio', '101', /above 0, up to 1/],
    ['failure_ratio', '101%', /above 0, up to 1/],
    ['failure_ratio', '-0.5', /above 0, up to 1/],
    ['failure_ratio', '.nan', /above 0, up to 1/],
    ['failure_ratio', '50', /above 0, up to 1/],
    ['failure_ratio', 'half', /above 0, up to 1/],
    ['slow_ratio', '0', /above 0, up to 1/],
    ['slow_ratio', '1.01', /above 0, up to 1/],
    ['slow_call', '0s', /from 1ms/],
    ['window', '0s', /from 1s/],
    ['window', '0', /from 1s/],
    ['window', '"50%"', /from 1s/],
    ['window', '60', /from 1s/],
    ['min_calls', '0', /from 1 to 100000/],
    ['min_calls', '"50%"', /from 1 to 100000/],
    ['open', '-1ms', /from 100ms/],
    ['open', '-1', /from 100ms/],
    ['open', '.nan', /from 100ms/],
    ['open', '"50%"', /from 100ms/],
    ['open', '400d', /from 100ms to/],
    ['ramp', '[0]', /from 1 to 100000/],
    ['ramp', '[6, 3]', /must not go down/],
    ['ramp_step', '0s', /from 10ms/],
    ['half_open_max', '0', /half_open_max/],
    ['threshold', '0', /threshold/],
  ];
  const check = (t: Test, problems: readonly Problem[], key: string, range: RegExp): void => {
    const said = problems.map((problem) => `${problem.path} ${problem.message}`).join('; ');
    t.match(said, new RegExp(`\\b${key}\\b`), 'named');
    t.match(said, range, 'with what is allowed');
    t.ok(
      problems.every((problem) => problem.line > 0 && problem.column > 0),
      'and where it stands',
    );
  };
  const inPolicy = (setting: string): string => text(GOOD, `policies: [{capability: ${QUERY}, ${setting}}]`);
  const inProviderPolicy = (setting: string): string =>
    text(GOOD, `policies: [{capability: ${QUERY}, providers: {crm.order.1: {${setting}}}}]`);
  await t.test('each value, in each place that has breaker settings', async (t) => {
    for (const [key, value, range] of bad) {
      const setting = `breaker: {${key}: ${value}}`;
      for (const pushed of [text(setting), inPolicy(setting), inProviderPolicy(setting)]) {
        const reading = readTable(pushed, 'table.yaml');
        if ('problems' in reading) check(t, reading.problems, key, range);
        else t.fail(`${key}: ${value} was taken`);
      }
    }
  });
  const pushes: readonly (readonly [key: string, value: string, range: RegExp])[] = [
    ['probes', '0', /from 1 to 100/],
    ['failure_ratio', '0', /above 0, up to 1/],
    ['failure_ratio', '101', /above 0, up to 1/],
    ['window', '0s', /from 1s/],
    ['min_calls', '0', /from 1 to 100000/],
    ['open', '-1ms', /from 100ms/],
    ['failure_ratio', '.nan', /above 0, up to 1/],
    ['probes', '"50%"', /from 1 to 100/],
    ['threshold', '0', /threshold/],
  ];
  for (const [key, value, range] of pushes) {
    t.equal(await rig.push(inPolicy(`breaker: {${key}: ${value}}`)), 'refused', `${key}: ${value}`);
    check(t, view.problems, key, range);
    t.equal(view.current().version, version);
  }
  const refusals = pushes.length;
  t.equal(view.current().version, version, 'the table in force is the one from before');
  t.match(settings(), { minCalls: 7, openMs: 90_000 });
  const health = (await rig.ask('/v1/health')).json;
  t.equal(JSON.stringify(health).includes('threshold'), true, 'the health page shows the last refusal');
  t.match((await rig.ask('/metrics')).bytes.toString('utf8'), new RegExp(`reach_rejected_pushes_total ${refusals}\\b`));
  t.equal((await rig.invoke(QUERY)).json.code, 0, 'calls go on');

  // A ratio may be written as a percentage: that is its documented form, quoted or not.
  for (const form of ['50%', '"50%"', '0.5', '100%', '1'])
    t.equal(await rig.push(text(`breaker: {failure_ratio: ${form}, min_calls: 9}`)), 'installed', form);
  t.equal(settings().minCalls, 9);
  await stop(t, rig, [agent], [1]);
});

t.test('C050 a breaker counts every attempt, the metric of the capability counts calls', async (t) => {
  const agents = [
    await TestAgent.listen('crm.order.1', () => ({ status: 500, body: { from: 1 } })),
    await TestAgent.listen('crm.order.2', () => ({ status: 500, body: { from: 2 } })),
    await TestAgent.listen('crm.order.3'),
  ];
  const rig = await Rig.start(t, {
    table: `
contracts: [{name: ${QUERY}, version: 2.0.0, acl: public, execution: idempotent, retry: {max: 2, backoff: 1ms, backoff_max: 1ms}, breaker: {min_calls: 5, failure_ratio: 50%, open: 60s}}]
policies: [{capability: ${QUERY}, load: primary_backup, providers: {crm.order.1: {weight: 3}, crm.order.2: {weight: 2}, crm.order.3: {weight: 1}}}]
providers:
${agents.map((agent) => `  - {agent_id: ${agent.name}, offers: ["${QUERY}@2.0.0"], endpoint: {type: http, address: "${agent.url}"}}`).join('\n')}
`,
  });
  const stateOf = (agent: string): string =>
    [...rig.started.front.engine.health.cells()].find((cell) => cell.agentId === agent)?.stateName ?? '?';
  for (let call = 1; call <= 5; call++) {
    const answer = await rig.invoke(QUERY);
    t.equal(answer.json.code, 0);
    t.strictSame(
      answer.json.attempts.map((attempt: { provider: string }) => attempt.provider),
      ['crm.order.1', 'crm.order.2', 'crm.order.3'],
    );
    t.equal(stateOf('crm.order.1'), call < 5 ? 'closed' : 'open', `after ${call} attempts on it`);
  }
  t.equal(stateOf('crm.order.2'), 'open', 'the other counts its own');
  t.equal(stateOf('crm.order.3'), 'closed');
  const after = await rig.invoke(QUERY);
  t.equal(after.json.attempts.length, 1, 'from now on the third alone');
  const text = (await rig.ask('/metrics')).bytes.toString('utf8');
  t.match(text, new RegExp(`reach_calls_total\\{[^}]*capability="${QUERY}"[^}]*code="0"[^}]*\\} 6\\b`), 'six calls, all good');
  t.notMatch(text, new RegExp(`reach_calls_total\\{[^}]*capability="${QUERY}"[^}]*code="6001"`));
  t.match(text, new RegExp(`reach_attempts_total\\{[^}]*provider="crm.order.1"[^}]*code="6001"[^}]*\\} 5\\b`));
  t.match(text, new RegExp(`reach_attempts_total\\{[^}]*provider="crm.order.3"[^}]*code="0"[^}]*\\} 6\\b`));
  t.match(text, new RegExp(`reach_retries_total\\{[^}]*capability="${QUERY}"[^}]*\\} 10\\b`));
  await stop(t, rig, agents, [5, 5, 6]);
});

t.test('C051 a fallback runs for failures only, once, and is seen', async (t) => {
  const LOOKUP = 'crm.order.lookup';
  const first = await TestAgent.listen('crm.order.x');
  const second = await TestAgent.listen('crm.order.y');
  const rig = await Rig.start(t, {
    table: `
contracts:
  - {name: ${QUERY}, version: 2.0.0, acl: public, execution: idempotent, timeout: 200ms, deadline: 3s, streaming: true, fallback: [{capability: ${LOOKUP}}], breaker: {enabled: false}}
  - {name: ${LOOKUP}, version: 1.0.0, acl: public, execution: idempotent, streaming: true, breaker: {enabled: false}}
providers:
  - {agent_id: crm.order.x, offers: ["${QUERY}@2.0.0"], endpoint: {type: http, address: "${first.url}"}}
  - {agent_id: crm.order.y, offers: ["${LOOKUP}@1.0.0"], endpoint: {type: http, address: "${second.url}"}}
`,
    settings: '  ejection: {consecutive: 1000}\n  log: {level: debug, access: all}',
  });
  const fallbacks = async (result: string): Promise<number> => {
    const text = (await rig.ask('/metrics')).bytes.toString('utf8');
    return Number(new RegExp(`reach_fallbacks_total\\{[^}]*result="${result}"[^}]*\\} (\\d+)`).exec(text)?.[1] ?? 0);
  };

  await t.test('a caller error is returned as it is', async (t) => {
    for (const status of [400, 401, 403, 404, 409, 410, 422]) {
      first.behaviour = () => ({ status, body: { says: status } });
      const answer = await rig.invoke(QUERY);
      t.equal(answer.status, status);
      t.match(answer.json, { code: 6001, data: { says: status }, degraded: false, provider: 'crm.order.x' });
      t.notOk('cause' in answer.json);
    }
    t.equal((await rig.invoke(QUERY, { body: '{' })).json.code, 4003, 'nor does a request that breaks the contract fall back');
    t.equal((await rig.invoke(`${QUERY}@^9.0`)).json.code, 2002, 'nor a version that does not exist');
    t.equal(second.executions, 0, 'the other capability is untouched');
    t.equal(await fallbacks('served'), 0);
  });

  await t.test('a time-out at 200 ms that fails once more at 300 ms', async (t) => {
    let late = 0;
    first.behaviour = async (_, response) => {
      await sleep(300);
      late++;
      response.destroy(new Error('too late'));
      return undefined;
    };
    const answer = await rig.invoke(QUERY);
    t.match(answer.json, { code: 0, degraded: true, provider: 'crm.order.y', cause: /^1003 / });
    t.match(answer.json.attempts, [
      { provider: 'crm.order.x', code: 1003, capability: QUERY },
      { provider: 'crm.order.y', code: 0, capability: LOOKUP },
    ]);
    t.ok(answer.elapsedMs >= 195, `after the time-out (${Math.round(answer.elapsedMs)} ms)`);
    await waitUntil('the late failure', () => late === 1);
    await sleep(50);
    t.equal(second.executions, 1, 'the fallback ran once');
    t.equal(await fallbacks('served'), 1);
    const raw = await rig.invoke(QUERY, { headers: { 'reach-mode': 'raw' } });
    t.match(raw.headers, { 'reach-degraded': 'true', 'reach-provider': 'crm.order.y' }, 'seen in raw mode too');
    first.behaviour = async () => {
      await sleep(300);
      return { body: { too: 'late' } };
    };
    const ignored = await rig.invoke(QUERY);
    t.match(ignored.json, { code: 0, data: { agent: 'crm.order.y' } });
    await sleep(150);
    t.equal(second.executions, 3, 'a late answer changes nothing either');
  });

  await t.test('both fail', async (t) => {
    first.behaviour = () => ({ status: 500, body: { from: 'x' } });
    second.behaviour = () => ({ status: 503, body: { from: 'y' } });
    const answer = await rig.invoke(QUERY);
    t.equal(answer.status, 503);
    t.match(answer.json, { code: 6001, data: { from: 'y' }, provider: 'crm.order.y', degraded: true, cause: /^6001 crm\.order\.x/ });
    t.equal(await fallbacks('failed'), 1);
    const line = rig.logged.filter((each) => each['msg'] === 'call').at(-1);
    t.match(line, { degraded: true, outcome: 'error' });
    const raw = await rig.invoke(QUERY, { headers: { 'reach-mode': 'raw' } });
    t.match(raw.headers, { 'reach-degraded': 'true', 'reach-code': '6001' });
  });

  await t.test('a stream falls back before its first byte, and never after it', async (t) => {
    first.behaviour = () => ({ status: 500, body: {} });
    second.behaviour = () => ({ body: { from: 'y' } });
    const whole = await rig.ask(`/v1/stream/${QUERY}`, { method: 'POST' });
    t.match(whole.headers, { 'reach-degraded': 'true' });
    t.match(whole.json, { from: 'y' });
    const asked = second.executions;
    first.behaviour = (_, response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.write('half');
      setTimeout(() => response.destroy(), 50);
      return undefined;
    };
    await t.rejects(rig.ask(`/v1/stream/${QUERY}`, { method: 'POST' }), 'cut');
    t.equal(second.executions, asked);
  });
  await stop(t, rig, [first, second], [7 + 3 + 2 + 2, 3 + 2 + 1]);
});
