import t from 'tap';
import { TestAgent } from '../support/agent.ts';
import { Collector } from '../support/collector.ts';
import { CALLER, Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';

t.test('one sidecar and a collector, nothing else', async (t) => {
  const collector = await Collector.start(t);
  const agent = await TestAgent.listen('a');
  t.teardown(() => agent.close());
  const rig = await Rig.start(t, {
    table: `
contracts: [{ name: crm.order.query, version: 1.0.0, description: d, execution: idempotent, acl: public }]
providers: [{ agent_id: crm.order.a1, offers: [crm.order.query@1.0.0], endpoint: { type: http, address: '${agent.url}' } }]
`,
    settings: `  traces: { otlp: { url: '${collector.url}', headers: { x-key: 'a-key-of-the-collector' } } }`,
  });
  const answer = await rig.ask('/v1/invoke/crm.order.query', { method: 'POST', payload: { id: 1 }, headers: { traceparent: `00-${TRACE}-${PARENT}-01` } });
  if (answer.status !== 200) console.log(answer.json, rig.logged);
  t.equal(answer.status, 200);
  await waitUntil('the collector has them', () => collector.of(TRACE).length >= 2);
  const [outbound, attempt] = ['outbound', 'attempt'].map((stage) => collector.of(TRACE).find((s) => s.attributes['reach.stage'] === stage));
  t.equal(outbound?.parentSpanId, PARENT);
  t.equal(attempt?.parentSpanId, outbound?.spanId);
  console.log(JSON.stringify(collector.requests[0], (_, v) => (typeof v === 'bigint' ? String(v) : v), 1));
  console.log((await rig.ask(`/v1/traces/${TRACE}`, { method: 'GET' })).json);
  t.equal(CALLER, CALLER);
});
