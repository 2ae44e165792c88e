/** The sandbox: a mock is held to everything that a real provider is held to, and nothing leaves the process. */
import { Socket } from 'node:net';
import { Resolver } from 'node:dns';
import t from 'tap';
import { envelope, problem } from '../../sidecar/call/result.ts';
import { readScenario } from '../../sidecar/lab/read-scenario.ts';
import { jsonOf } from '../../sidecar/lab/report.ts';
import { runScenario } from '../../sidecar/lab/run.ts';
import { TestAgent } from '../support/agent.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { type Answer, Rig } from '../support/rig.ts';
import { StreamClient } from '../support/stream-client.ts';
import { VirtualRig } from '../support/virtual-rig.ts';

const before: Base = takeBase();

/** What each provider does, as a mock script and as a real agent under a path of that name. */
const PROVIDERS: Readonly<Record<string, { readonly capability: string; readonly contract: string; readonly mock: string }>> = {
  slow: { capability: 'crm.slow.query', contract: 'acl: public, execution: idempotent', mock: 'latency: 10s' },
  broken: { capability: 'crm.broken.query', contract: 'acl: public, execution: idempotent', mock: 'status: 503' },
  narrow: { capability: 'crm.narrow.query', contract: 'acl: public, limits: {per_provider: 2}', mock: 'latency: 150ms' },
  few: { capability: 'crm.few.query', contract: 'acl: public, limits: {per_caller: 2}', mock: 'latency: 150ms' },
  secret: { capability: 'crm.secret.query', contract: 'acl: [team.other.*]', mock: 'latency: 1ms' },
  limited: { capability: 'crm.limited.query', contract: 'acl: public, breaker: {enabled: false}', mock: 'status: 429, retry_after: 7s' },
  stalled: {
    capability: 'crm.stalled.stream',
    contract: 'acl: public, streaming: {first_chunk: 2s, idle: 300ms}',
    mock: 'body: abcdefgh, slow_body: {chunks: 4, every: 20ms}, hang: {after_chunks: 2}',
  },
};

/** @param url of real agents; null = mocks */
function tableOf(url: string | null): string {
  const contracts = Object.values(PROVIDERS).map(
    ({ capability, contract }) => `  - {name: ${capability}, version: 1.0.0, deadline: 5s, ${contract}}`,
  );
  const providers = Object.entries(PROVIDERS).map(([name, { capability, mock }]) => {
    const endpoint = url === null ? `{type: mock, ${mock}}` : `{type: http, address: "${url}/${name}"}`;
    return `  - {agent_id: crm.${name}.1, offers: [${capability}@1.0.0], endpoint: ${endpoint}}`;
  });
  return `contracts:\n${contracts.join('\n')}\nproviders:\n${providers.join('\n')}\n`;
}

/** Real agents that do what the mocks say. */
function realAgents(): Promise<TestAgent> {
  return TestAgent.listen('crm', async ({ path, json }, response) => {
    const who = path.split('/')[1];
    if (who === 'slow') return await new Promise(() => undefined);
    if (who === 'broken') return { status: 503, body: { error: 'no' } };
    if (who === 'limited') return { status: 429, headers: { 'retry-after': '7' }, body: { error: 'no' } };
    if (who === 'stalled') {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write('"ab');
      setTimeout(() => response.write('cd'), 20);
      return undefined;
    }
    await new Promise((done) => setTimeout(done, 150));
    return { body: { agent: path, payload: json } };
  });
}

/** What a caller sees of an answer that does not depend on who gave it. */
function seen({ json, status }: Answer): unknown {
  const { code, name, retryable, ambiguous, retry_after_ms: retryAfterMs, attempts } = json as Record<string, unknown>;
  return {
    http: status,
    code,
    name,
    retryable,
    ambiguous,
    // What is left of a time has gone on a little from one to the other.
    retryAfterS: typeof retryAfterMs === 'number' ? Math.ceil(retryAfterMs / 7_000) : null,
    attempts: (attempts as Record<string, unknown>[]).map(({ code: of, started, status: its }) => ({ code: of, started, status: its })),
  };
}

async function script(rig: Rig): Promise<{ readonly outcomes: unknown; readonly elapsedMs: number; readonly answers: readonly Answer[] }> {
  const late = await rig.invoke('crm.slow.query', { payload: {}, headers: { 'reach-deadline-ms': '200' } });
  const answers: Answer[] = [late];
  const broken: unknown[] = [];
  for (let i = 0; i < 20; i++) {
    const answer = await rig.invoke('crm.broken.query', { payload: {} });
    answers.push(answer);
    broken.push(seen(answer));
  }
  const narrow = await Promise.all(Array.from({ length: 5 }, () => rig.invoke('crm.narrow.query', { payload: {} })));
  const few = await Promise.all(Array.from({ length: 5 }, () => rig.invoke('crm.few.query', { payload: {} })));
  const secret = await rig.invoke('crm.secret.query', { payload: {} });
  const limited = await rig.invoke('crm.limited.query', { payload: {} });
  answers.push(limited);
  const stream = new StreamClient(rig, 'crm.stalled.stream', 'events');
  const outcome = await stream.over();
  const codes = (all: readonly Answer[]): unknown[] => all.map((one) => (one.json as { code: number }).code).sort();
  return {
    outcomes: {
      late: seen(late),
      broken,
      narrow: codes(narrow),
      few: codes(few),
      secret: seen(secret),
      limited: seen(limited),
      stalled: { ending: outcome.ending, code: outcome.result?.code, ambiguous: outcome.result?.error?.ambiguous },
    },
    elapsedMs: late.elapsedMs,
    answers,
  };
}

const COUNTED = /^(reach_calls_total|reach_attempts_total|reach_breaker_transitions_total|reach_retries_total)\{/;

async function counted(rig: Rig): Promise<string[]> {
  const text = (await rig.ask('/metrics')).bytes.toString('utf8');
  return text
    .split('\n')
    .filter((line) => COUNTED.test(line))
    .sort();
}

t.test('C138 a mock is subject to deadlines, breakers, limits, lists and metrics as a real provider is, and opens no socket', async (t) => {
  t.test('the same script against real agents and against mocks comes to the same, code by code and counter by counter', async (t) => {
    const agents = await realAgents();
    const real = await Rig.start(t, { table: tableOf(agents.url) });
    const mock = await Rig.start(t, { table: tableOf(null) });
    const fromReal = await script(real);
    const fromMock = await script(mock);
    t.strictSame(fromMock.outcomes, fromReal.outcomes);
    t.match(fromMock.outcomes, {
      late: { code: 5001, ambiguous: true, attempts: [{ started: 'started' }] },
      narrow: [0, 0, 3003, 3003, 3003],
      few: [0, 0, 3002, 3002, 3002],
      secret: { code: 4002, attempts: [] },
      limited: { http: 429 },
      stalled: { ending: 'error' },
    });
    const broken = (fromMock.outcomes as { broken: { code: number }[] }).broken.map(({ code }) => code);
    t.strictSame(broken, [...Array<number>(10).fill(6001), ...Array<number>(10).fill(3001)], 'ten failures, and then the breaker');
    t.ok(
      fromMock.elapsedMs < 2_000 && fromMock.elapsedMs >= 200,
      `10 s of delay, and an answer after ${Math.round(fromMock.elapsedMs)} ms`,
    );
    const counters = await counted(mock);
    t.strictSame(counters, await counted(real), 'the same counters');
    t.ok(counters.length >= 8, counters.join('\n'));
    t.ok(
      fromMock.answers.every(
        ({ json }) => (json as { sandbox?: boolean; attempts: unknown[] }).attempts.length === 0 || json.sandbox === true,
      ),
      'what a mock answered is marked',
    );
    t.notOk(
      fromReal.answers.some(({ json }) => 'sandbox' in (json as object)),
      'and nothing else is',
    );
    const raw = await mock.invoke('crm.few.query', { payload: {}, headers: { 'reach-mode': 'raw' } });
    t.equal(raw.headers['reach-sandbox'], 'true', 'in raw mode by a header');
    t.ok(mock.logged.filter((line) => line['msg'] === 'call' && line['provider'] !== null).every((line) => line['sandbox'] === true));
    t.equal(agents.requests.filter(({ path }) => path.startsWith('/secret')).length, 0);
    await Promise.all([mock.stop(), real.stop(), agents.close()]);
    for (const rig of [mock, real]) await rig.finish(t, before);
  });

  t.test('in the sandbox the same holds on virtual time, and every outcome is marked', async (t) => {
    const rig = new VirtualRig(`
contracts:
  - {name: crm.order.query, version: 1.0.0, acl: [web.desk.1], execution: idempotent, deadline: 5s}
providers:
  - {agent_id: crm.slow.1, offers: [crm.order.query@1.0.0], endpoint: {type: mock, latency: 10s}}
`);
    const late = await rig.call('crm.order.query', { deadlineMs: 200 });
    t.match(late, { code: 5001 });
    t.equal(rig.now, 200, 'after the deadline, not after the delay');
    const refused = await rig.call('crm.order.query', { as: 'web.desk.2' });
    t.match(refused, { code: 4002 });
    rig.mock('crm.slow.1', { latency: '5ms' });
    const good = await rig.call('crm.order.query');
    for (const { result } of [late, refused, good]) {
      t.equal(result?.sandbox, true);
      if (result === null) continue;
      const json = String(result.entry.code === 0 ? envelope(result, false) : problem(result, false));
      t.equal((JSON.parse(json) as { sandbox: unknown }).sandbox, true);
    }
    await rig.finish(t, { 'crm.slow.1': 2 });
  });

  t.test('with every way out refused, a table of real addresses runs all the same', async (t) => {
    const { connect } = Socket.prototype;
    const { resolve } = Resolver.prototype;
    let tried = 0;
    const refuse = (): never => {
      tried++;
      throw new Error('egress is refused');
    };
    Socket.prototype.connect = refuse;
    Resolver.prototype.resolve = refuse as unknown as typeof resolve;
    t.teardown(() => {
      Socket.prototype.connect = connect;
      Resolver.prototype.resolve = resolve;
    });
    t.throws(() => new Socket().connect(9, '127.0.0.1'), /egress is refused/, 'the refusal is real');
    const before = tried;
    const folder = t.testdir({
      'team.yaml': `
contracts:
  - {name: crm.order.query, version: 1.0.0, acl: public, execution: idempotent}
  - {name: crm.report.write, version: 1.0.0, acl: public, execution: idempotent}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@1.0.0, crm.report.write@1.0.0], endpoint: {type: http, address: "https://crm.example"}, via: crm-sidecar}
  - {agent_id: crm.order.2, offers: [crm.order.query@1.0.0], endpoint: {type: grpc, address: "127.0.0.1:9"}}
sidecars:
  - {name: crm-sidecar, mesh: "http://127.0.0.1:1"}
`,
    });
    const reading = readScenario(
      `scenario: real addresses
as: web.desk.1
table: ./team.yaml
mocks: {crm.order.1: {latency: 5ms}, crm.order.2: {latency: 5ms}}
steps:
  - {call: crm.order.query, times: 50, every: 10ms, expect: {code: ok}}
  - {send: crm.report.write, times: 20, every: 10ms, expect: {state: done, provider: crm.order.1}}
`,
      `${folder}/scenario.yaml`,
    );
    if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
    const report = await runScenario(reading.scenario);
    t.strictSame(report.failures, []);
    t.equal(tried, before, 'nobody tried to leave');
    t.equal(jsonOf(report)['sandbox'], true, 'and the report is marked');
  });
});
