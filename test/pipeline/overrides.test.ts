/**
 * Overrides across two real sidecars and their sockets: a block that only the hosting one knows, and a cut of what is under way,
 * as callers see it in every form. What the engine decides alone is tested without sockets.
 */
import t, { type Test } from 'tap';
import { type OverrideEntry, rulesOf } from '../../proto/wire/overrides.ts';
import type { InstalledTable } from '../../sidecar/table/installed.ts';
import { TestAgent } from '../support/agent.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { FORMS, StreamClient } from '../support/stream-client.ts';

const NAME = 'nlp.answer.generate';
const MESH = 'a-mesh-token';

function table(urls: readonly string[], meshUrl: string): string {
  const providers = urls.map(
    (url, i) => `  - {agent_id: nlp.writer.${i + 1}, offers: [${NAME}@1.0.0], endpoint: {type: http, address: "${url}"}, via: two}`,
  );
  return `contracts:
  - {name: ${NAME}, version: 1.0.0, acl: public, execution: idempotent, timeout: 8s, streaming: {first_chunk: 5s, idle: 5s}}
providers:
${providers.join('\n')}
policies: [{capability: "*", load: primary_backup}]
sidecars: [{name: two, mesh: "${meshUrl}"}]`;
}

interface Pair {
  readonly one: Rig;
  readonly two: Rig;
  readonly agents: readonly TestAgent[];
}

async function pair(t: Test): Promise<Pair> {
  const agents: TestAgent[] = [];
  for (const name of ['nlp.writer.1', 'nlp.writer.2']) {
    const agent = await TestAgent.listen(name, async (request, response) => {
      const { act } = request.json as { act: string };
      if (act === 'hang') return new Promise<undefined>((done) => response.on('close', () => done(undefined)));
      if (act !== 'stream') return { body: { by: name } };
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.write('one,');
      await new Promise<void>((done) => response.on('close', done));
      return undefined;
    });
    t.teardown(() => agent.close());
    agents.push(agent);
  }
  const urls = agents.map(({ url }) => url);
  const two = await Rig.start(t, { name: 'two', table: table(urls, 'http://127.0.0.1:1'), meshToken: MESH });
  const one = await Rig.start(t, { name: 'one', table: table(urls, two.started.meshUrl ?? ''), meshToken: MESH });
  return { one, two, agents };
}

function press(rig: Rig, more: Partial<OverrideEntry> | null): void {
  const entry: OverrideEntry = {
    id: 'red',
    action: 'block',
    target: { all: true },
    to: null,
    cut: false,
    reason: 'a fire',
    author: 'dana',
    at: 1,
    expires_at: null,
    ...more,
  };
  (rig.started.front.table as InstalledTable).installOverrides(more === null ? [] : rulesOf([entry], 0));
}

t.test('only the hosting sidecar has heard of it: nothing reaches the agent, and a provider that is not blocked serves', async (t) => {
  const { one, two, agents } = await pair(t);
  press(two, {});
  const refused = await one.invoke(NAME, { payload: { act: 'answer' } });
  t.equal(refused.status, 503);
  t.match(refused.json, { code: 2006, detail: /override red blocks it: a fire \(by dana\)/ });
  press(two, { target: { provider: 'nlp.writer.1' } });
  const elsewhere = await one.invoke(NAME, { payload: { act: 'answer' } });
  t.equal(elsewhere.status, 200);
  t.match(elsewhere.json, {
    data: { by: 'nlp.writer.2' },
    attempts: [{ provider: 'nlp.writer.1', code: 2006, started: 'not_started' }, { code: 0 }],
  });
  t.strictSame(
    agents.map(({ executions }) => executions),
    [0, 1],
  );
  const metrics = (await two.ask('/metrics')).bytes.toString();
  t.match(metrics, /reach_overrides_in_force\{action="block"\} 1\n/);
  t.match(metrics, /reach_override_refusals_total\{override="red",how="blocked"\} \d+\n/);
});

for (const end of ['the caller’s', 'the provider’s'] as const) {
  t.test(`cut at ${end} end: calls end as blocked, streams with an event that says so, and the agent is let go`, async (t) => {
    const { one, two, agents } = await pair(t);
    const at = end === 'the caller’s' ? one : two;
    const call = one.invoke(NAME, { payload: { act: 'hang' } });
    const streams = FORMS.map((form) => ({ form, client: new StreamClient(one, NAME, form, { act: 'stream' }) }));
    await waitUntil('all are under way', () => agents[0]?.executions === 4 && streams.every(({ client }) => client.chunks.length > 0));
    press(at, {});
    t.equal(one.started.front.engine.underway.size, 4, 'without cut they go on');
    press(at, { id: 'cutting', cut: true });
    const { status, json } = await call;
    t.equal(status, 503);
    t.match(json, { code: 2006, ambiguous: true, detail: /override cutting cuts it: a fire/ });
    for (const { form, client } of streams) {
      const outcome = await client.over();
      t.equal(outcome.ending, form === 'plain' ? 'cut' : 'error', form);
      if (form !== 'plain')
        t.match(outcome.result, { code: 2006, error: { name: 'blocked_by_operator', detail: /override cutting cuts it/ } }, form);
      t.match(outcome.data, /^one,/);
    }
    await waitUntil('the agent is let go', () => agents[0]?.abandoned === 4);
    for (const rig of [one, two]) await waitUntil('nothing is under way', () => rig.quiet.inFlight() === 0);
    t.equal(agents[1]?.executions, 0, 'and nobody else is asked');
    t.match((await at.ask('/metrics')).bytes.toString(), /reach_overrides_cut_total 4\n/);
    press(at, null);
    t.equal((await one.invoke(NAME, { payload: { act: 'answer' } })).status, 200, 'lifted, it serves again at once');
  });
}
