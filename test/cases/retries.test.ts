/** Second attempts: where they go, when there must be none, and what is said when the outcome is not known. */
import { request as httpRequest } from 'node:http';
import t from 'tap';
import { type AgentBehaviour, TestAgent } from '../support/agent.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { type Answer, CALLER, Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { type Begun, VirtualRig, type Wish } from '../support/virtual-rig.ts';

type Test = Parameters<typeof Rig.start>[0];

const before: Base = takeBase();
const QUERY = 'crm.order.query';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** A table with one capability. `contract`, `policy` and `provider` are what else stands in each. */
function table(agents: readonly TestAgent[], contract: string, policy = '', provider: (i: number) => string = () => '', rest = ''): string {
  return `
contracts: [{name: ${QUERY}, version: 2.0.0, acl: public, ${contract}}]
providers:
${agents.map((agent, i) => `  - {agent_id: ${agent.name}, offers: ["${QUERY}@2.0.0"], endpoint: {type: http, address: "${agent.url}"}${provider(i)}}`).join('\n')}
${policy === '' ? '' : `policies: [{capability: ${QUERY}, ${policy}}]`}
${rest}`;
}

function mocks(contract: string, each: readonly string[], rest = '', provider = ''): string {
  return `
contracts: [{name: ${QUERY}, version: 2.0.0, acl: public, limits: {per_caller: 100000, per_provider: 100000}, ${contract}}]
providers:
${each.map((_, i) => `  - {agent_id: crm.order.${i + 1}, offers: ["${QUERY}@2.0.0"]${provider}}`).join('\n')}
mocks:
${each.map((mock, i) => `  crm.order.${i + 1}: {${mock}}`).join('\n')}
${rest}`;
}

async function stop(t: Test, rigs: readonly Rig[], agents: readonly TestAgent[], executions: readonly number[]): Promise<void> {
  for (const rig of rigs) await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
  const providers = agents.map((agent, i) => ({ name: agent.name, count: agent.requests.length, expected: executions[i] as number }));
  for (const rig of rigs) await rig.stop();
  for (const agent of agents) await agent.close();
  for (const rig of rigs) await rig.finish(t, before, providers);
}

const cellOf = (rig: Rig, agent: string): { state: string; calls: number; failures: number; usable: string } => {
  const { health, clock } = rig.started.front.engine;
  for (const cell of health.cells()) {
    if (cell.agentId === agent)
      return {
        state: cell.stateName,
        calls: cell.callsInWindow(clock.now()),
        failures: cell.failuresInWindow(clock.now()),
        usable: cell.usable(clock.now()),
      };
  }
  throw new Error(`no breaker of ${agent}`);
};
const count = <T>(all: readonly T[], of: (one: T) => string | number): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const one of all) counts[of(one)] = (counts[of(one)] ?? 0) + 1;
  return counts;
};
const triedOf = (begun: Begun): string[] => begun.call.attempts.map((attempt) => attempt.candidate.provider.agentId);
const reasonsOf = (answer: Answer): string[] =>
  answer.json.decision.map((line: { stage: string; reason: string }) => `${line.stage}.${line.reason}`);
const EXPLAIN = { 'reach-explain': '1' };

t.test('C030 a retry never goes to the provider that has just failed', async (t) => {
  const HERD = 1_000;
  const modes: readonly { readonly name: string; readonly policy: string; readonly wish: (n: number) => Wish }[] = [
    { name: 'round_robin', policy: 'load: round_robin', wish: () => ({}) },
    { name: 'hash of a key', policy: 'load: least_request', wish: (n) => ({ headers: { 'reach-affinity': `session-${n % 50}` } }) },
    { name: 'least_request', policy: 'load: least_request', wish: () => ({}) },
    { name: 'random', policy: 'load: random', wish: () => ({}) },
    { name: 'primary_backup', policy: 'load: primary_backup', wish: () => ({}) },
    { name: 'sticky', policy: 'load: sticky', wish: (n) => ({ as: `web.desk.${(n % 3) + 1}` }) },
    {
      name: 'round_robin with weights',
      policy: 'load: round_robin, providers: {crm.order.1: {weight: 7}, crm.order.2: {weight: 2}}',
      wish: () => ({}),
    },
  ];
  // With the breaker, it soon takes the failing one out; without it (and with budget to match) every call may meet it.
  const settings = [
    { name: 'as shipped', contract: 'execution: idempotent', rest: '' },
    { name: 'no breaker', contract: 'execution: idempotent, breaker: {enabled: false}', rest: 'sidecar: {retry_budget: {ratio: 100%}}' },
  ];
  for (const mode of modes) {
    for (const setting of settings) {
      for (const concurrency of [1, 8]) {
        const rig = new VirtualRig(
          mocks(
            setting.contract,
            ['latency: 2ms, status: 503', 'latency: 2ms'],
            `${setting.rest}\npolicies: [{capability: ${QUERY}, ${mode.policy}}]`,
          ),
        );
        const calls: Begun[] = [];
        while (calls.length < HERD) {
          const together = Array.from({ length: concurrency }, (_, i) => rig.begin(QUERY, mode.wish(calls.length + i)));
          calls.push(...together);
          await rig.rest(() => together.every((one) => one.result !== null));
        }
        const name = `${mode.name}, ${setting.name}, ${concurrency} at a time`;
        t.strictSame(
          count(calls, (one) => one.code),
          { 0: HERD },
          `${name}: all succeed`,
        );
        t.strictSame(
          calls.filter((one) => triedOf(one).filter((agent) => agent === 'crm.order.1').length > 1).length,
          0,
          'and nobody meets the failing one twice',
        );
        t.ok(rig.executions('crm.order.1') > 0, `it was met ${rig.executions('crm.order.1')} times`);
        await rig.finish(t, { 'crm.order.2': HERD });
      }
    }
  }

  await t.test('on real sockets', async (t) => {
    const agents = [await TestAgent.listen('crm.order.1', () => ({ status: 503, body: {} })), await TestAgent.listen('crm.order.2')];
    const rig = await Rig.start(t, {
      table: table(agents, 'execution: idempotent, breaker: {enabled: false}', 'load: round_robin'),
      settings: '  retry_budget: {ratio: 100%}',
    });
    const answers: Answer[] = [];
    for (let i = 0; i < 100; i++) answers.push(await rig.invoke(QUERY));
    for (let i = 0; i < 13; i++) answers.push(...(await Promise.all(Array.from({ length: 8 }, () => rig.invoke(QUERY)))));
    t.strictSame(
      count(answers, (answer) => answer.status),
      { 200: 204 },
    );
    t.notOk(
      answers.some(
        (answer) => answer.json.attempts.filter((attempt: { provider: string }) => attempt.provider === 'crm.order.1').length > 1,
      ),
    );
    const met = answers.filter((answer) => answer.json.attempts.length === 2).length;
    t.ok(met > 0, `${met} calls met it`);
    await stop(t, [rig], agents, [met, 204]);
  });

  await t.test('when it is the only one, there is one attempt', async (t) => {
    const agents = [await TestAgent.listen('crm.order.1', () => ({ status: 503, body: { tired: true } }))];
    const rig = await Rig.start(t, { table: table(agents, 'execution: idempotent, retry: {max: 2}, breaker: {enabled: false}') });
    for (let i = 1; i <= 20; i++) {
      const answer = await rig.invoke(QUERY, { headers: EXPLAIN });
      t.match([answer.status, answer.json.code, answer.json.attempts.length], [503, 6001, 1]);
      t.ok(reasonsOf(answer).includes('retry.nobody_else'));
      t.equal(agents[0]?.executions, i);
    }
    await agents[0]?.close();
    const answer = await rig.invoke(QUERY);
    t.match([answer.status, answer.json.code, answer.json.attempts.length], [503, 1001, 1], 'nor is a refused connection tried twice');
    await stop(t, [rig], agents, [20]);
  });

  await t.test('nor by another door: two versions, a fallback step that names it', async (t) => {
    const rig = new VirtualRig(`
contracts:
  - {name: ${QUERY}, version: 2.0.0, acl: public, execution: idempotent, retry: {max: 2}, fallback: [{provider: crm.order.1}, {provider: crm.order.2}]}
  - {name: ${QUERY}, version: 2.1.0, acl: public, execution: idempotent, retry: {max: 2}, fallback: [{provider: crm.order.1}, {provider: crm.order.2}]}
providers:
  - {agent_id: crm.order.1, offers: ["${QUERY}@2.0.0", "${QUERY}@2.1.0"]}
  - {agent_id: crm.order.2, offers: ["${QUERY}@2.0.0"]}
mocks:
  crm.order.1: {status: 503}
  crm.order.2: {status: 503}
`);
    const call = await rig.call(`${QUERY}@^2.0`);
    t.equal(call.code, 6001);
    t.strictSame(triedOf(call), ['crm.order.1', 'crm.order.2']);
    await rig.finish(t, { 'crm.order.1': 1, 'crm.order.2': 1 });
  });
});

t.test('C031 a caller error is one attempt, keeps its status, and is nothing against the provider', async (t) => {
  let next = 0;
  const turns = [400, 404, 409, 422];
  const answerInTurn: AgentBehaviour = () => {
    const status = turns[next++ % turns.length] as number;
    return { status, headers: { 'content-type': 'application/problem+json' }, body: { said: status } };
  };
  const agents = [await TestAgent.listen('crm.order.1', answerInTurn), await TestAgent.listen('crm.order.2', answerInTurn)];
  const rig = await Rig.start(t, { table: table(agents, 'execution: idempotent, retry: {max: 2}, breaker: {min_calls: 5}') });
  for (let i = 0; i < 100; i++) {
    const raw = i % 2 === 1;
    const answer = await rig.invoke(QUERY, { headers: { ...EXPLAIN, ...(raw ? { 'reach-mode': 'raw' } : {}) } });
    const status = turns[i % 4] as number;
    t.equal(answer.status, status);
    if (raw)
      t.match(
        [answer.json, answer.headers],
        [{ said: status }, { 'reach-code': '6001', 'reach-attempts': '1', 'reach-ambiguous': 'false' }],
      );
    else {
      t.match(answer.json, { code: 6001, status, data: { said: status }, retryable: false, ambiguous: false });
      t.equal(answer.json.attempts.length, 1);
      t.ok(reasonsOf(answer).includes('retry.not_repeatable'));
    }
  }
  const [one, two] = agents as [TestAgent, TestAgent];
  t.equal(one.executions + two.executions, 100, 'one attempt a call');
  for (const agent of agents) t.match(cellOf(rig, agent.name), { state: 'closed', failures: 0, usable: 'yes' });
  t.equal(cellOf(rig, one.name).calls + cellOf(rig, two.name).calls, 100, 'they count, as answers');
  await stop(t, [rig], agents, [one.executions, two.executions]);

  await t.test('every other 4xx too; 408, 425 and 429 mean "not now, not here" and go elsewhere, unheld against it', async (t) => {
    const rig = new VirtualRig(
      mocks(
        'execution: idempotent, breaker: {min_calls: 5}',
        ['status: 400', ''],
        `policies: [{capability: ${QUERY}, load: primary_backup}]\nsidecar: {retry_budget: {ratio: 100%}}`,
      ),
    );
    let elsewhere = 0;
    let asked = 0;
    for (let status = 400; status <= 499; status++) {
      rig.mock('crm.order.1', { status });
      const goesOn = status === 408 || status === 425 || status === 429;
      const call = await rig.call(QUERY);
      asked++;
      t.strictSame(triedOf(call), goesOn ? ['crm.order.1', 'crm.order.2'] : ['crm.order.1'], String(status));
      t.match([call.code, call.result?.status], goesOn ? [0, 200] : [6001, status]);
      if (goesOn) elsewhere++;
      await rig.wait(60_000); // whatever a 429 means for the next calls is over
    }
    for (let i = 0; i < 20; i++) rig.begin(QUERY);
    await rig.wait(10);
    const cell = rig.cell('crm.order.1', QUERY);
    t.equal(cell.stateName, 'closed');
    t.equal(cell.failuresInWindow(rig.now), 0);
    await rig.finish(t, { 'crm.order.1': asked + 20, 'crm.order.2': elsewhere });
  });

  await t.test('work that runs once is repeated elsewhere after 425 alone: it says that nothing was begun', async (t) => {
    for (const [status, tried] of [
      [408, 1],
      [425, 2],
      [429, 1],
      [500, 1],
      [503, 1],
    ] as const) {
      const rig = new VirtualRig(
        mocks('execution: once', [`status: ${status}`, ''], `policies: [{capability: ${QUERY}, load: primary_backup}]`),
      );
      const call = await rig.call(QUERY);
      t.equal(triedOf(call).length, tried, String(status));
      await rig.finish(t, { 'crm.order.1': 1, 'crm.order.2': tried - 1 });
    }
  });
});

t.test('C032 a 429 goes elsewhere at once, or back to the caller with the time to wait; nobody waits here', async (t) => {
  const limited: AgentBehaviour = () => ({ status: 429, headers: { 'retry-after': '1' }, body: { slow: 'down' } });

  await t.test('with a second provider', async (t) => {
    const agents = [await TestAgent.listen('crm.order.1', limited), await TestAgent.listen('crm.order.2')];
    const rig = await Rig.start(t, { table: table(agents, 'execution: idempotent', 'load: primary_backup') });
    for (const deadlineMs of ['300', '3000']) {
      const answer = await rig.invoke(QUERY, { headers: { ...EXPLAIN, 'reach-deadline-ms': deadlineMs } });
      t.match(answer.json, { code: 0, provider: 'crm.order.2' });
      t.strictSame(
        answer.json.attempts.slice(-1).map((attempt: { provider: string; code: number }) => [attempt.provider, attempt.code]),
        [['crm.order.2', 0]],
      );
      t.ok(answer.json.elapsed_ms < 100, `at once (${answer.json.elapsed_ms} ms)`);
      t.notOk(answer.headers['retry-after'], "the first one's wish is not this answer's");
      await sleep(1_050); // the time that it asked for
    }
    t.match(cellOf(rig, 'crm.order.1'), { state: 'closed', failures: 0 });
    await stop(t, [rig], agents, [2, 2]);
  });

  await t.test('alone', async (t) => {
    const agents = [await TestAgent.listen('crm.order.1', limited)];
    const [agent] = agents as [TestAgent];
    const rig = await Rig.start(t, { table: table(agents, 'execution: idempotent, breaker: {min_calls: 5}') });
    for (const deadlineMs of ['300', '3000']) {
      const answer = await rig.invoke(QUERY, { headers: { 'reach-deadline-ms': deadlineMs } });
      t.equal(answer.status, 429);
      t.match(answer.json, { code: 3004, name: 'rate_limited', retryable: true, ambiguous: false, retry_after_ms: 1_000 });
      t.match(answer.headers, { 'retry-after': '1' });
      t.equal(answer.json.attempts.length, 1);
      t.ok(answer.json.elapsed_ms < 100, `nothing is waited for (${answer.json.elapsed_ms} ms)`);
      const raw = await rig.invoke(QUERY, { headers: { 'reach-deadline-ms': deadlineMs, 'reach-mode': 'raw' } });
      t.match([raw.status, raw.headers], [429, { 'retry-after': '1', 'reach-code': '3004', 'reach-retry-after-ms': '1000' }]);
    }
    for (let i = 0; i < 50; i++) t.equal((await rig.invoke(QUERY)).json.code, 3004);
    t.match(cellOf(rig, agent.name), { state: 'closed', calls: 0, failures: 0, usable: 'yes' }, 'fifty more do not open its breaker');

    const words: readonly (readonly [string, number | undefined])[] = [
      ['0', undefined],
      ['7', 7_000],
      ['999999999', 999_999_999_000],
      ['-5', undefined],
      ['soon', undefined],
      ['1.5', undefined],
      ['9'.repeat(30), undefined],
      ['Wed, 21 Oct 2015 07:28:00 GMT', undefined],
    ];
    for (const [word, ms] of words) {
      agent.behaviour = () => ({ status: 429, headers: { 'retry-after': word } });
      const answer = await rig.invoke(QUERY);
      t.equal(answer.json.code, 3004);
      t.equal(answer.json.retry_after_ms, ms, `Retry-After: ${word}`);
    }
    agent.behaviour = () => ({ status: 429, headers: { 'retry-after': new Date(Date.now() + 5_000).toUTCString() } });
    const dated = (await rig.invoke(QUERY)).json.retry_after_ms;
    t.ok(dated > 3_000 && dated <= 5_000, 'a date is understood as well');
    await stop(t, [rig], agents, [2 * 2 + 50 + 8 + 1]);
  });

  await t.test('a thousand calls while one of two is limited', async (t) => {
    for (const policy of ['load: least_request', 'load: round_robin', 'load: primary_backup', 'load: random']) {
      const rig = new VirtualRig(
        mocks(
          'execution: idempotent',
          ['latency: 5ms, status: 429, headers: {retry-after: 1}', 'latency: 5ms'],
          `policies: [{capability: ${QUERY}, ${policy}}]`,
        ),
      );
      const calls: Begun[] = [];
      for (let i = 0; i < 1_000; i++) calls.push(await rig.call(QUERY));
      t.strictSame(
        count(calls, (one) => one.code),
        { 0: 1_000 },
        `${policy}: all succeed, within the shipped budget of retries`,
      );
      t.ok(rig.executions('crm.order.1') < 100, `and the one that asked for a pause gets it (${rig.executions('crm.order.1')} calls)`);
      t.equal(rig.cell('crm.order.1', QUERY).stateName, 'closed');
      rig.mock('crm.order.1', { latency: '5ms' });
      await rig.wait(1_000);
      const asked = rig.executions('crm.order.1');
      for (let i = 0; i < 100; i++) await rig.call(QUERY);
      t.ok(rig.executions('crm.order.1') > asked + 20, 'afterwards it has its share again');
      await rig.finish(t);
    }
  });
});

/** An agent that hands its work on through its own sidecar, and passes the answer back as it came. */
function handingOn(sidecar: () => string, target: string, withMark: boolean, seen: { mark: unknown; status: number }[]): AgentBehaviour {
  return (request) =>
    new Promise((done) => {
      const sent = httpRequest(
        `${sidecar()}/v1/invoke/${target}`,
        {
          method: 'POST',
          agent: false,
          headers: {
            authorization: 'Bearer token-of-the-helper',
            'content-type': 'application/json',
            traceparent: String(request.headers['traceparent']),
            'reach-path': String(request.headers['reach-path']),
          },
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('end', () => {
            const mark = response.headers['reach-retry'];
            seen.push({ mark, status: response.statusCode ?? 0 });
            done({
              status: response.statusCode ?? 0,
              headers: withMark && mark !== undefined ? { 'reach-retry': String(mark) } : {},
              body: Buffer.concat(chunks),
            });
          });
        },
      );
      sent.end('{}');
    });
}

t.test('C034 what a limit refuses is not retried, here or at the hop before', async (t) => {
  await t.test('at the sidecar whose limit it is', async (t) => {
    let release: () => void = () => undefined;
    const agents = [
      await TestAgent.listen('crm.order.1', async () => {
        await new Promise<void>((done) => (release = done));
        return { body: {} };
      }),
    ];
    const rig = await Rig.start(t, {
      table: table(agents, 'execution: idempotent, streaming: true, retry: {max: 2}, limits: {per_provider: 1}'),
    });
    const first = rig.invoke(QUERY);
    await waitUntil('the provider is busy', () => agents[0]?.executions === 1);
    const answer = await rig.invoke(QUERY, { headers: EXPLAIN });
    t.equal(answer.status, 503);
    t.match(answer.json, { code: 3003, name: 'provider_busy', attempts: [], ambiguous: false });
    const times = [answer.json.elapsed_ms as number];
    for (let i = 0; i < 8; i++) times.push((await rig.invoke(QUERY)).json.elapsed_ms);
    const median = times.sort((a, b) => a - b)[4] as number;
    t.ok(median < 20, `at once (${median} ms)`);
    t.equal(reasonsOf(answer).filter((reason) => reason.startsWith('choose.')).length, 1, 'one decision only');
    t.notOk(reasonsOf(answer).some((reason) => reason.startsWith('retry.')));
    t.equal(answer.headers['reach-retry'], 'none');
    for (const [path, headers] of [
      [`/v1/invoke/${QUERY}`, { 'reach-mode': 'raw' }],
      [`/v1/stream/${QUERY}`, {}],
      [`/v1/stream/${QUERY}`, { accept: 'text/event-stream' }],
    ] as [string, Record<string, string>][]) {
      const other = await rig.ask(path, { method: 'POST', headers });
      t.match([other.status, other.headers['reach-retry']], [503, 'none'], `${path} ${JSON.stringify(headers)}`);
    }
    release();
    const good = await first;
    t.equal(good.status, 200);
    t.notOk('reach-retry' in good.headers, 'a success carries no such mark');
    await stop(t, [rig], agents, [1]);
  });

  // a -> b (two of them, so that a retry would have somewhere to go) -> c, which has one place and it is taken.
  for (const mesh of [false, true]) {
    await t.test(`two hops, b ${mesh ? 'behind its own sidecar' : 'reached directly'}`, async (t) => {
      let inner = '';
      let target = 'crm.order.query';
      const seen: { mark: unknown; status: number }[] = [];
      let release: () => void = () => undefined;
      const c = await TestAgent.listen('crm.order.1', async () => {
        await new Promise<void>((done) => (release = done));
        return { body: {} };
      });
      const b1 = await TestAgent.listen('sales.helper.2');
      const b2 = await TestAgent.listen('sales.helper.3');
      const answers = (withMark: boolean): void => {
        for (const b of [b1, b2]) b.behaviour = handingOn(() => inner, target, withMark, seen);
      };
      const text = (meshUrl: string): string => `
contracts:
  - {name: sales.offer.make, version: 1.0.0, acl: public, execution: idempotent, breaker: {enabled: false}}
  - {name: crm.order.query, version: 2.0.0, acl: public, execution: idempotent, limits: {per_provider: 1}}
  - {name: crm.order.close, version: 2.0.0, acl: [crm.only.these], execution: idempotent}
  - {name: crm.order.single, version: 2.0.0, acl: public, execution: idempotent, limits: {per_caller: 1}}
  - {name: crm.order.broken, version: 2.0.0, acl: public, execution: idempotent}
providers:
  - {agent_id: sales.helper.2, offers: [sales.offer.make@1.0.0], endpoint: {type: http, address: "${b1.url}"}${mesh ? ', via: two' : ''}}
  - {agent_id: sales.helper.3, offers: [sales.offer.make@1.0.0], endpoint: {type: http, address: "${b2.url}"}${mesh ? ', via: two' : ''}}
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0, crm.order.close@2.0.0, crm.order.single@2.0.0], endpoint: {type: http, address: "${c.url}"}}
  - {agent_id: crm.order.2, offers: [crm.order.broken@2.0.0], endpoint: {type: http, address: "http://127.0.0.1:1"}}
policies: [{capability: sales.offer.make, load: primary_backup}]
${mesh ? `sidecars: [{name: two, mesh: "${meshUrl}"}]` : ''}`;
      const two = await Rig.start(t, { name: 'two', table: text('http://127.0.0.1:1'), ...(mesh ? { meshToken: 'a-mesh-token' } : {}) });
      const one = await Rig.start(t, {
        name: 'one',
        table: text(two.started.meshUrl ?? ''),
        ...(mesh ? { meshToken: 'a-mesh-token' } : {}),
      });
      inner = two.url;
      const busy = two.invoke('crm.order.query');
      await waitUntil('c is busy', () => c.executions === 1);

      answers(true);
      const answer = await one.invoke('sales.offer.make', { headers: EXPLAIN });
      t.strictSame(seen, [{ mark: 'none', status: 503 }], 'b is told not to repeat it');
      t.match(answer.json, { code: 6001, status: 503, data: { code: 3003 } });
      t.ok(reasonsOf(answer).includes('retry.told_not_to'), reasonsOf(answer).join(' '));
      t.strictSame([b1.executions, b2.executions], [1, 0], 'and a does not repeat it either');
      t.equal(answer.headers['reach-retry'], 'none', 'nor shall whoever called a');
      const raw = await one.invoke('sales.offer.make', { headers: { 'reach-mode': 'raw' } });
      t.match([raw.status, raw.headers['reach-retry'], raw.json.code], [503, 'none', 3003]);

      // The same answer without the mark is retried: it is the mark that counts.
      answers(false);
      const unmarked = await one.invoke('sales.offer.make');
      t.equal(unmarked.json.attempts.length, 2);
      t.strictSame([b1.executions, b2.executions], [3, 1]);
      release();
      t.equal((await busy).status, 200);

      // Every refusal of that sidecar is marked: the ACL, a loop, a full caller, a request that it cannot place.
      const single = two.invoke('crm.order.single', { token: 'token-of-the-helper' });
      await waitUntil('the caller is busy', () => c.executions === 2);
      let hops = 3;
      for (const [where, status] of [
        ['crm.order.close', 403],
        ['crm.order.single', 429],
        ['sales.offer.make', 508],
        ['no.such.thing', 404],
        ['crm.order.query@^9', 404],
        ['Crm.Order.Query', 400],
      ] as const) {
        target = where;
        answers(true);
        seen.length = 0;
        const refused = await one.invoke('sales.offer.make');
        t.strictSame(seen, [{ mark: 'none', status }], where);
        t.equal(refused.json.attempts.length, 1);
        t.equal(refused.headers['reach-retry'], 'none');
        hops++;
      }
      release();
      t.equal((await single).status, 200);

      // A provider that cannot be reached is no refusal: another b may reach it, or another.
      target = 'crm.order.broken';
      answers(true);
      seen.length = 0;
      t.equal((await one.invoke('sales.offer.make')).json.attempts.length, 2);
      t.strictSame(seen, [
        { mark: undefined, status: 503 },
        { mark: undefined, status: 503 },
      ]);
      await stop(t, [one, two], [b1, b2, c], [hops + 1, 2, 2]);
    });
  }

  await t.test("the provider's sidecar refuses: one try elsewhere, and the refusal is marked", async (t) => {
    const agents = [await TestAgent.listen('crm.order.1', () => undefined), await TestAgent.listen('crm.order.2', () => undefined)];
    const text = (meshUrl: string): string =>
      table(
        agents,
        'execution: once, limits: {per_provider: 1}, retry: {max: 2}',
        '',
        () => ', via: two',
        `sidecars: [{name: two, mesh: "${meshUrl}"}]`,
      );
    const two = await Rig.start(t, { name: 'two', table: text('http://127.0.0.1:1'), meshToken: 'a-mesh-token' });
    const one = await Rig.start(t, { name: 'one', table: text(two.started.meshUrl ?? ''), meshToken: 'a-mesh-token' });
    const held = [two.invoke(QUERY, { hangUpAfterMs: 1_000 }), two.invoke(QUERY, { hangUpAfterMs: 1_000 })].map((call) =>
      call.catch(() => undefined),
    );
    await waitUntil('both are busy', () => agents.every((agent) => agent.executions === 1));
    const answer = await one.invoke(QUERY, { headers: EXPLAIN });
    t.match(answer.json, { code: 3003, ambiguous: false });
    t.strictSame(
      answer.json.attempts.map((attempt: { code: number; started: string }) => [attempt.code, attempt.started]),
      [
        [3003, 'not_started'],
        [3003, 'not_started'],
      ],
      'it never started, so once elsewhere',
    );
    t.equal(answer.headers['reach-retry'], 'none');
    await Promise.all(held);
    await stop(t, [one, two], agents, [1, 1]);
  });
});

t.test('C035 an own limit is nothing against the provider', async (t) => {
  for (const mesh of [false, true]) {
    await t.test(mesh ? 'hosted by another sidecar, half of the callers there' : 'reached directly', async (t) => {
      let release = (): void => {};
      const released = new Promise<void>((done) => (release = done));
      // Both slots are held until all others have been answered.
      const slow: AgentBehaviour = async () => {
        await released;
        return { body: {} };
      };
      let answered = 0;
      const counted = <T>(answer: T): T => {
        if (++answered === 98) release();
        return answer;
      };
      const agents = [await TestAgent.listen('crm.order.1', slow)];
      const [agent] = agents as [TestAgent];
      const text = (meshUrl: string): string =>
        table(
          agents,
          'execution: idempotent, limits: {per_caller: 1000, per_provider: 2}',
          '',
          () => (mesh ? ', via: two' : ''),
          mesh ? `sidecars: [{name: two, mesh: "${meshUrl}"}]` : '',
        );
      const two = mesh ? await Rig.start(t, { name: 'two', table: text('http://127.0.0.1:1'), meshToken: 'a-mesh-token' }) : null;
      const one = await Rig.start(t, {
        name: 'one',
        table: text(two?.started.meshUrl ?? ''),
        ...(mesh ? { meshToken: 'a-mesh-token' } : {}),
      });
      const rigs = two === null ? [one] : [one, two];
      const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => (rigs[i % rigs.length] as Rig).invoke(QUERY).then(counted)));
      const counts = count(answers, (answer) => answer.json.code);
      const served = counts[0] ?? 0;
      t.equal(served, 2);
      t.strictSame(counts, { 0: served, 3003: 100 - served }, 'everybody else is told that it is busy');
      t.equal(agent.executions, served);
      for (const rig of rigs) {
        t.match(cellOf(rig, agent.name), { state: 'closed', failures: 0, usable: 'yes' });
        t.ok(cellOf(rig, agent.name).calls <= served, 'what was refused is no sample');
      }
      t.equal((await one.invoke(QUERY)).json.code, 0, 'it serves on');
      const text2 = (await one.ask('/metrics')).bytes.toString('utf8');
      t.match(text2, /reach_breaker_state\{[^}]*provider="crm.order.1"[^}]*\} 0\b/);
      await stop(t, rigs, agents, [served + 1]);
    });
  }
});

t.test('C039 a call that timed out may have been carried out, and that is what is said', async (t) => {
  for (const mesh of [false, true]) {
    await t.test(mesh ? 'behind another sidecar' : 'reached directly', async (t) => {
      let committed = 0;
      let answered = 0;
      const commits: AgentBehaviour = async () => {
        await sleep(150);
        committed++;
        await sleep(250);
        answered++;
        return { body: { ok: true } };
      };
      const agents = [await TestAgent.listen('crm.order.1', commits), await TestAgent.listen('crm.order.2', commits)];
      const text = (meshUrl: string, rest = ''): string =>
        `${table(agents, `retry: {max: 2, min_remaining: 0%}, breaker: {enabled: false}${rest}`, 'load: primary_backup', () => (mesh ? ', via: two' : ''), mesh ? `sidecars: [{name: two, mesh: "${meshUrl}"}]` : '')}`;
      const settings = '  ejection: {consecutive: 1000}';
      const two = mesh ? await Rig.start(t, { name: 'two', table: text('http://127.0.0.1:1'), meshToken: 'a-mesh-token', settings }) : null;
      const one = await Rig.start(t, {
        name: 'one',
        table: text(two?.started.meshUrl ?? ''),
        settings,
        ...(mesh ? { meshToken: 'a-mesh-token' } : {}),
      });
      const [first, second] = agents as [TestAgent, TestAgent];

      const answer = await one.invoke(QUERY, { headers: { 'reach-deadline-ms': '200' } });
      t.equal(answer.status, 504);
      t.match(answer.json, { code: 5001, ambiguous: true, retryable: false, error: { ambiguous: true, retryable: false } });
      t.strictSame(
        answer.json.attempts.map((attempt: { started: string }) => attempt.started),
        ['started'],
      );
      await waitUntil('it is carried out', () => committed === 1);
      await sleep(100);
      t.strictSame([committed, first.executions, second.executions], [1, 1, 0], 'carried out, once');
      const raw = await one.invoke(QUERY, { headers: { 'reach-deadline-ms': '200', 'reach-mode': 'raw' } });
      t.match(raw.headers, { 'reach-ambiguous': 'true', 'reach-code': '5001' });

      // With a key the same is said, and the provider gets the key; what a repeat gets is in ledger.test.ts.
      for (const [i, name] of ['idempotency-key', 'reach-power-id'].entries()) {
        const key = `${CALLER}:task-${i}:1700000000000`;
        const asked = first.executions;
        const keyed = await one.invoke(QUERY, {
          headers: { ...EXPLAIN, 'reach-deadline-ms': '200', [name]: key },
        });
        t.match(keyed.json, { code: 5001, ambiguous: true, retryable: false });
        t.ok(reasonsOf(keyed).includes('claim.claimed'), 'the decision says that the key is held');
        t.equal(first.executions, asked + 1, 'executed once');
        t.match(first.requests.at(-1)?.headers, {
          'idempotency-key': key,
          'reach-power-id': key,
        });
      }
      t.equal(second.executions, 0, 'a key alone makes nothing repeatable elsewhere');

      // The time of one attempt instead of the whole: the same for work that runs once; work that may run again goes elsewhere.
      t.equal(await (two ?? one).push(text(two?.started.meshUrl ?? '', ', timeout: 200ms')), 'installed');
      if (two !== null) t.equal(await one.push(text(two.started.meshUrl ?? '', ', timeout: 200ms')), 'installed');
      const timed = await one.invoke(QUERY, { headers: { ...EXPLAIN, 'idempotency-key': 'k-1' } });
      t.match(timed.json, { code: 1003, ambiguous: true, retryable: false });
      t.ok(reasonsOf(timed).includes('retry.may_have_acted'));
      t.equal(second.executions, 0);
      const again = await one.invoke(QUERY, {
        headers: { 'reach-execution': 'keyed', 'idempotency-key': 'k-2', 'reach-deadline-ms': '1000' },
      });
      t.match(again.json, { code: 1003, ambiguous: true, retryable: true });
      t.strictSame(
        [first.requests.at(-1)?.headers['idempotency-key'], second.requests.at(-1)?.headers['idempotency-key']],
        ['k-2', 'k-2'],
        'both get the same key',
      );
      await waitUntil('the agents are done', () => answered === first.executions + second.executions, 2_000);
      t.equal(committed, answered);
      await stop(t, two === null ? [one] : [one, two], agents, [6, 1]);
    });
  }
});

t.test('C040 when the time is over nothing more is begun, and the real failure is still told', async (t) => {
  const fails: AgentBehaviour = async () => {
    await sleep(120);
    return { status: 500, body: { broken: true } };
  };
  await t.test('on real sockets', async (t) => {
    const contacts: number[] = [];
    const agents = await Promise.all(
      [1, 2, 3].map((n) =>
        TestAgent.listen(`crm.order.${n}`, (request, response) => {
          contacts.push(performance.now());
          return fails(request, response);
        }),
      ),
    );
    const rig = await Rig.start(t, {
      table: table(agents, 'execution: idempotent, retry: {max: 2}, breaker: {enabled: false}', 'load: round_robin'),
    });
    let retried = 0;
    for (let round = 0; round < 4; round++) {
      contacts.length = 0;
      const began = performance.now();
      const answer = await rig.invoke(QUERY, { headers: { 'reach-deadline-ms': '200' } });
      const attempts = answer.json.attempts as { code: number; status: number; elapsed_ms: number }[];
      if (attempts.length === 2) {
        retried++;
        t.equal(answer.status, 504);
        t.match(
          answer.json,
          { code: 5001, name: 'deadline_exceeded', cause: /^6001 crm\.order\.\d: .*500/ },
          'the end, and the cause behind it',
        );
        t.match(attempts, [{ code: 6001, status: 500 }, { code: 5001 }]);
      } else {
        // A busy machine made the first one so late that a fifth of the time was not left after the pause.
        t.match(answer.json, { code: 6001 });
        t.ok((attempts[0]?.elapsed_ms ?? 0) > 130, `failed after ${attempts[0]?.elapsed_ms} ms: too late for another`);
      }
      t.ok(answer.elapsedMs < 400, `${Math.round(answer.elapsedMs)} ms`);
      await sleep(500);
      t.equal(contacts.length, attempts.length);
      t.ok(
        contacts.every((at) => at - began <= 220),
        'nobody is contacted after the end',
      );
    }
    t.ok(retried > 0);
    await stop(
      t,
      [rig],
      agents,
      agents.map((agent) => agent.executions),
    );
  });

  await t.test('to the millisecond, and watched for five seconds', async (t) => {
    /** Failing after `failMs` of 200: how many attempts, and which code at the end. */
    const rows: readonly (readonly [failMs: number, attempts: number, code: number])[] = [
      [120, 2, 5001],
      [40, 3, 6001],
      [60, 2, 6001],
      [134, 2, 5001],
      [160, 1, 6001],
      [165, 1, 6001],
      [190, 1, 6001],
      [199, 1, 6001],
      [200, 1, 5001],
      [250, 1, 5001],
    ];
    for (const [failMs, attempts, code] of rows) {
      const each = `latency: ${failMs}ms, status: 500`;
      const rig = new VirtualRig(mocks('execution: idempotent, retry: {max: 2}, breaker: {enabled: false}', [each, each, each]));
      const began = rig.now;
      const call = await rig.call(QUERY, { deadlineMs: 200 });
      t.match([call.call.attempts.length, call.code], [attempts, code], `failing after ${failMs} ms`);
      t.ok(rig.now - began <= 200, 'not a millisecond longer');
      if (attempts === 1 && code === 6001) t.ok(call.reasons.includes('retry.too_late'), 'under a fifth of the time is left');
      t.ok(call.call.attempts.every((attempt) => attempt.atMs < 200));
      const asked = [1, 2, 3].map((n) => rig.executions(`crm.order.${n}`));
      await rig.wait(5_000);
      t.strictSame(
        [1, 2, 3].map((n) => rig.executions(`crm.order.${n}`)),
        asked,
        'nothing happens in the five seconds after it',
      );
      t.equal(asked[0]! + asked[1]! + asked[2]!, attempts);
      await rig.finish(t);
    }
  });

  await t.test('nor in the pause before a retry, when the caller leaves or the time ends in it', async (t) => {
    const each = 'latency: 10ms, status: 500';
    const slowly = 'execution: idempotent, retry: {max: 2, backoff: 10s, backoff_max: 10s, min_remaining: 0%}, breaker: {enabled: false}';
    const rig = new VirtualRig(mocks(slowly, [each, each]));
    const late = await rig.call(QUERY, { deadlineMs: 200 });
    t.match([late.call.attempts.length, late.code], [1, 6001], 'a pause that would outlast the time is not begun');
    const leaving = rig.begin(QUERY, { deadlineMs: 60_000 });
    await rig.wait(100);
    leaving.call.cancel();
    await rig.wait(0);
    t.match([leaving.call.attempts.length, leaving.code], [1, 5003]);
    const asked = rig.executions('crm.order.1') + rig.executions('crm.order.2');
    await rig.wait(60_000);
    t.equal(rig.executions('crm.order.1') + rig.executions('crm.order.2'), asked);
    await rig.finish(t);
  });
});
