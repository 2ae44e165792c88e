/** One sidecar, a collector, and nothing else: what becomes of every kind of call as spans, and what the sidecar itself shows. */
import t, { type Test } from 'tap';
import { Code } from '../../proto/wire/codes.ts';
import type { Span } from '../../proto/wire/spans.ts';
import { type AgentRequest, TestAgent } from '../support/agent.ts';
import { Collector } from '../support/collector.ts';
import { MARK } from '../support/credential-mark.ts';
import { CALLER, Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { chainTo } from '../support/span-chain.ts';

const PARENT = '00f067aa0ba902b7';
const OTHER = 'support.other.1';
const OTHER_TOKEN = `token-of-the-other-${MARK}`;
const OPERATOR_TOKEN = `token-of-the-operator-${MARK}`;
let traces = 0;
const newTrace = (): string => `4bf92f3577b34da6a3ce929d0e0e${(0x1000 + ++traces).toString(16)}`;
const above = (trace: string): Record<string, string> => ({ traceparent: `00-${trace}-${PARENT}-01` });

class World {
  readonly rig: Rig;
  readonly agent: TestAgent;
  readonly spare: TestAgent;
  readonly rpc: TestAgent;
  readonly collector: Collector;

  static async start(t: Test): Promise<World> {
    const collector = await Collector.start(t);
    const agent = await TestAgent.listen('agent', ({ path, json }, response) => {
      if (path.includes('fails') || path.includes('given')) return { status: 503, body: 'no' };
      if (!path.includes('flow')) return { body: { seen: json ?? null } };
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.write('first');
      setTimeout(() => response.end('last'), 120);
      return undefined;
    });
    const spare = await TestAgent.listen('spare');
    const rpc = await TestAgent.listen('rpc', ({ json }) => ({ body: { jsonrpc: '2.0', id: (json as { id: unknown }).id, result: {} } }));
    for (const each of [agent, spare, rpc]) t.teardown(() => each.close());
    const contract = (name: string, more = ''): string =>
      `{name: ${name}, version: 1.0.0, description: d, execution: idempotent, acl: public${more}}`;
    const provider = (id: string, offer: string, at: TestAgent, type = 'http'): string =>
      `{agent_id: ${id}, offers: [${offer}@1.0.0], endpoint: {type: ${type}, address: "${at.url}"}}`;
    const rig = await Rig.start(t, {
      callers: { [OTHER]: OTHER_TOKEN },
      table: `
contracts:
  - ${contract('crm.order.query')}
  - ${contract('crm.order.fails', ', retry: {max: 2, backoff: 1ms, backoff_max: 2ms}, fallback: [{capability: crm.spare.query}]')}
  - ${contract('crm.order.given', ', fallback: [{static: {state: unknown}}]')}
  - ${contract('crm.spare.query')}
  - ${contract('crm.text.flow', ', streaming: {}')}
  - ${contract('crm.rpc.query')}
  - {name: crm.closed.query, version: 1.0.0, description: d, execution: idempotent, acl: ["role:nobody"]}
providers:
  - ${provider('crm.order.a1', 'crm.order.query', agent)}
  - ${provider('crm.order.f1', 'crm.order.fails', agent)}
  - ${provider('crm.order.f2', 'crm.order.fails', agent)}
  - ${provider('crm.order.g1', 'crm.order.given', agent)}
  - ${provider('crm.spare.a1', 'crm.spare.query', spare)}
  - ${provider('crm.text.a1', 'crm.text.flow', agent)}
  - ${provider('crm.rpc.a1', 'crm.rpc.query', rpc, 'jsonrpc')}
`,
      settings: `  operator_token: "${OPERATOR_TOKEN}"
  traces: {otlp: {url: '${collector.url}', headers: {x-key: 'a-key-of-the-collector'}}}`,
    });
    t.strictSame(rig.started.front.table.problems, [], 'the table is taken');
    return new World(rig, agent, spare, rpc, collector);
  }

  private constructor(rig: Rig, agent: TestAgent, spare: TestAgent, rpc: TestAgent, collector: Collector) {
    this.rig = rig;
    this.agent = agent;
    this.spare = spare;
    this.rpc = rpc;
    this.collector = collector;
  }

  spans(trace: string): readonly Span[] {
    return this.rig.started.front.tracing?.spans.of(trace) ?? [];
  }

  hop(trace: string): Span | undefined {
    return this.spans(trace).find(({ stage }) => stage === 'outbound');
  }

  attempts(trace: string): readonly Span[] {
    return this.spans(trace).filter(({ stage }) => stage === 'attempt');
  }

  async rest(): Promise<void> {
    await waitUntil('no call is under way', () => this.rig.quiet.inFlight() === 0, 3_000);
  }

  async call(name: string, more: Record<string, string> = {}): Promise<string> {
    const trace = newTrace();
    await this.rig.ask(`/v1/invoke/${name}`, { method: 'POST', payload: { id: 1 }, headers: { ...above(trace), ...more } });
    await this.rest();
    return trace;
  }
}

t.test('one sidecar and a collector, nothing else', async (t) => {
  const world = await World.start(t);
  const { rig, collector } = world;

  await t.test('a call reaches the collector, with its parent, its attempt and what arrived at the agent', async (t) => {
    const trace = await world.call('crm.order.query');
    await waitUntil('the collector has it', () => collector.of(trace).length === 2);
    const [outbound, attempt] = ['outbound', 'attempt'].map((stage) =>
      collector.of(trace).find(({ attributes }) => attributes['reach.stage'] === stage),
    );
    t.match(outbound, { parentSpanId: PARENT, kind: 2, name: 'crm.order/query' });
    t.ok((outbound?.events.length ?? 0) > 5, 'every decision');
    t.match(attempt, {
      parentSpanId: outbound?.spanId,
      kind: 3,
      attributes: { 'server.address': '127.0.0.1', 'server.port': world.agent.port },
    });
    t.equal(world.agent.requests.at(-1)?.headers['traceparent'], `00-${trace}-${attempt?.spanId}-01`);
    t.match(collector.requests[0]?.resource, { 'service.name': 'one', 'service.namespace': 'agent-reach', 'reach.sidecar': 'one' });
    t.match(collector.heads[0], { 'x-key': 'a-key-of-the-collector' });
    t.equal(collector.paths[0], '/v1/traces');
  });

  await t.test('retries and fallbacks: each attempt, and what served at last', async (t) => {
    const trace = await world.call('crm.order.fails');
    const attempts = world.attempts(trace);
    t.same(
      attempts.map(({ provider, code }) => [provider?.slice(0, 9), code]),
      [
        ['crm.order', Code.provider_error],
        ['crm.order', Code.provider_error],
        ['crm.spare', 0],
      ],
    );
    for (const attempt of attempts) t.equal(attempt.parent_span_id, world.hop(trace)?.span_id);
    t.match(world.hop(trace), { code: 0, provider: 'crm.spare.a1', degraded: true });
  });

  await t.test('a static answer, a refusal, and a name that is nobody’s', async (t) => {
    const given = await world.call('crm.order.given');
    t.match(world.hop(given), { code: 0, degraded: true });
    t.equal(world.hop(given)?.provider, undefined, 'nobody served it');
    t.match(world.attempts(given)[0], { code: Code.provider_error, provider: 'crm.order.g1', status: 503 });
    const refused = await world.call('crm.closed.query');
    t.match(world.hop(refused), { code: Code.forbidden, caller: CALLER });
    t.equal(world.attempts(refused).length, 0);
    const nobodys = world.hop(await world.call('crm.no.body'));
    t.equal(nobodys?.capability, 'crm.no.body');
    t.not(nobodys?.code, 0);
  });

  await t.test('a repeat with the same key says that it is one', async (t) => {
    const key = { 'idempotency-key': 'key-of-the-repeat' };
    await world.call('crm.order.query', key);
    const trace = await world.call('crm.order.query', key);
    t.match(world.hop(trace), { replay: true, provider: 'crm.order.a1', code: 0 });
    t.equal(world.attempts(trace).length, 0);
  });

  await t.test('a stream ends when its body does; one that was left says so', async (t) => {
    const trace = newTrace();
    await rig.ask('/v1/stream/crm.text.flow', { method: 'POST', payload: {}, headers: above(trace) });
    await world.rest();
    for (const span of world.spans(trace)) t.ok(span.elapsed_ms >= 100, `${span.stage} ${span.elapsed_ms} ms`);
    const left = newTrace();
    await rig
      .ask('/v1/stream/crm.text.flow', { method: 'POST', payload: {}, headers: above(left), hangUpAfterMs: 60 })
      .catch(() => undefined);
    await world.rest();
    t.match(world.hop(left), { code: Code.cancelled });
  });

  await t.test('JSON-RPC messages have a trace of their own, each of a batch; it goes before the header', async (t) => {
    const [header, member, meta] = [newTrace(), newTrace(), newTrace()];
    const message = (id: number, more: string, params: string): string =>
      `{"jsonrpc":"2.0","id":${id},"method":"crm.rpc.query"${more},"params":${params}}`;
    const answer = await rig.ask('/rpc', {
      method: 'POST',
      body: `[${message(1, '', '{"a":1}')},${message(2, `,"traceparent":"00-${member}-${PARENT}-01"`, '{"a":2}')},${message(
        3,
        '',
        `{"a":3,"_meta":{"other":1,"traceparent":"00-${meta}-${PARENT}-01"}}`,
      )}]`,
      headers: { ...above(header), 'content-type': 'application/json' },
    });
    t.equal(answer.status, 200, answer.bytes.toString());
    await world.rest();
    for (const trace of [header, member, meta]) {
      const asked = world.rpc.requests.find(({ headers }) => headers['traceparent']?.includes(trace) === true);
      t.same(chainTo(world.spans(trace), String(asked?.headers['traceparent']), PARENT), ['attempt', 'outbound']);
      const { params } = (asked as AgentRequest).json as { params: { a: number; _meta?: { other: number; traceparent: string } } };
      if (params._meta === undefined) continue;
      t.equal(params._meta.traceparent, asked?.headers['traceparent'], 'an agent that reads it there finds the span that it works in');
      t.equal(params._meta.other, 1);
    }
  });

  await t.test('the sidecar shows what it holds: to an agent what concerns it, to the operator all', async (t) => {
    const trace = await world.call('crm.order.query');
    const mine = await rig.ask(`/v1/traces/${trace}`);
    t.equal(mine.status, 200);
    t.same(
      mine.json.spans.map(({ stage }: Span) => stage),
      ['outbound', 'attempt'],
    );
    t.equal((await rig.ask(`/v1/traces/${trace}`, { token: OTHER_TOKEN })).status, 404);
    const all = await rig.ask(`/v1/traces/${trace}`, { token: OPERATOR_TOKEN });
    t.equal(all.status, 200, 'without a registry too');
    t.equal(all.json.spans.length, 2);
    for (const token of [null, `${OPERATOR_TOKEN}x`]) t.equal((await rig.ask(`/v1/traces/${trace}`, { token })).status, 401);
    t.equal((await rig.ask('/v1/agents', { token: OPERATOR_TOKEN })).status, 409, 'there is no registry all the same');
    t.equal((await rig.ask(`/v1/rates/${CALLER}`, { method: 'DELETE', token: OPERATOR_TOKEN })).status, 403);
    t.equal((await rig.ask('/v1/traces/nonsense')).status, 400);
    t.equal((await rig.ask(`/v1/traces/${newTrace()}`)).status, 404);
  });

  await t.test('what became of the spans is counted, and what is at hand leaves when it stops', async (t) => {
    const page = (await rig.ask('/metrics', { token: null })).bytes.toString();
    t.match(page, /reach_spans_total\{outcome="made"\} \d{2}/);
    t.match(page, /reach_spans_total\{outcome="exported"\} \d/);
    const trace = await world.call('crm.order.query');
    await rig.stop();
    t.equal(collector.of(trace).length, 2);
    const ids = new Set(collector.spans.map(({ spanId }) => spanId));
    t.equal(ids.size, collector.spans.length, 'none twice');
    t.notMatch(
      JSON.stringify(collector.requests, (_key, value: unknown) => (typeof value === 'bigint' ? String(value) : value)),
      MARK,
    );
  });
});

t.test('without traces the context goes on all the same', async (t) => {
  const agent = await TestAgent.listen('agent');
  t.teardown(() => agent.close());
  const rig = await Rig.start(t, {
    table: `
contracts: [{name: crm.order.query, version: 1.0.0, description: d, execution: idempotent, acl: public}]
providers: [{agent_id: crm.order.a1, offers: [crm.order.query@1.0.0], endpoint: {type: http, address: "${agent.url}"}}]
`,
    settings: '  traces: {enabled: false}',
  });
  const trace = newTrace();
  await rig.ask('/v1/invoke/crm.order.query', { method: 'POST', payload: {}, headers: above(trace) });
  t.match(agent.requests[0]?.headers['traceparent'], new RegExp(`^00-${trace}-(?!${PARENT})[0-9a-f]{16}-01$`));
  t.equal((await rig.ask(`/v1/traces/${trace}`)).status, 404);
  await rig.stop();
});
