/** Starts in any order, a change of leaders, and an agent that dies behind a living sidecar: what readiness says, and what calls see. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { Plane } from '../support/control-plane.ts';
import { Fleet, knows } from '../support/fleet.ts';
import { NatsServer } from '../support/nats.ts';
import { TestAgent } from '../support/agent.ts';
import { freePort } from '../support/sockets.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { eventsIn, StreamClient } from '../support/stream-client.ts';
import { agentOf, NONE } from '../support/workers.ts';

const WORK = 'crm.order.query';
const SLOW = 'crm.slow.query';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

function table(sidecar: string, address: string, more = ''): string {
  return (
    `contracts: [{name: ${WORK}, version: 1.0.0, description: x, acl: public, execution: idempotent}]\n` +
    `providers: [{agent_id: crm.order.1, offers: [${WORK}@1.0.0], via: ${sidecar}, endpoint: {type: http, address: "${address}"}${more}}]\n`
  );
}

t.test('the order of a start does not matter, and readiness says in words what is waited for', async (t) => {
  const nats = await NatsServer.start(t);
  await nats.kill();
  const port = await freePort();
  const rig = await Rig.start(t, {
    table: table('one', `http://127.0.0.1:${port}`, ', health_check: {path: /health, interval: 1s}'),
    meshToken: 'token-of-the-mesh',
    settings: `  registry: {nats: "${nats.url}", env: test, addresses: {loopback: true}}\n`,
  });
  const readiness = async () => await rig.ask('/v1/ready');
  t.match(await readiness(), { status: 503, json: { ready: false, status: 'starting', why: /^waits for NATS/ } }, 'before NATS');
  t.equal((await rig.ask('/v1/health')).status, 200, 'alive all the same');
  t.match(await rig.invoke(WORK), { status: 503, json: { code: 2003 } });

  await nats.restart();
  await waitUntil('NATS is there', async () => String((await readiness()).json.why).startsWith('waits for the control plane'), 10_000);
  t.equal((await readiness()).status, 503, 'before the control plane');

  const plane = await Plane.start(t, nats, 'cp-1');
  t.match(
    (await plane.ask('/v1/ready', { token: null })).body,
    { ready: false, why: String },
    'a control plane that has just started is not ready either',
  );
  await plane.leads();
  await waitUntil('ready', async () => (await readiness()).status === 200, 10_000);
  t.match((await plane.ask('/v1/ready', { token: null })).body, { ready: true, why: null });

  await waitUntil('its agent is missed', async () => /own agents is not there/.test((await readiness()).json.lacks.join()), 5_000);
  const early = await rig.invoke(WORK);
  t.match(early.json, { code: /2001|2003|1001/, data: null }, 'before its agent: nobody is there, and that is known');
  t.notOk((early.json.attempts as { started: string }[]).some(({ started }) => started !== 'not_started'));

  const agent = await TestAgent.listen('late', undefined, port);
  t.teardown(() => agent.close());
  await waitUntil('the agent that came last is called', async () => (await rig.invoke(WORK)).status === 200, 5_000);
  await waitUntil('nothing is missed', async () => (await readiness()).json.lacks.length === 0, 5_000);

  await nats.kill();
  await waitUntil('stale', async () => (await readiness()).json.status === 'stale', 5_000);
  t.match(await readiness(), {
    status: 200,
    json: { ready: true, lacks: [/changes of the table: NATS cannot be reached/, /durable messages wait/] },
  });
  t.equal((await rig.invoke(WORK)).status, 200, 'calls go on without NATS');
  await nats.restart();
  await waitUntil('fresh again', async () => (await readiness()).json.status === 'ok', 15_000);
});

t.test('an agent that dies behind a living sidecar leaves every table within seconds, and comes back by itself', async (t) => {
  const fleet = await Fleet.start(t);
  let agent = await TestAgent.listen('mortal');
  const { port } = agent;
  const host = await fleet.sidecar('host', table('host', agent.url, ', health_check: {path: /health, interval: 1s}'));
  const caller = await fleet.sidecar('caller', NONE);
  await knows(caller, WORK);
  // Beside it one that is at work, and answers neither calls nor checks meanwhile.
  let release = (): void => undefined;
  const atWork = new Promise<void>((done) => (release = done));
  const busy = await agentOf(t, 'busy', async () => {
    await atWork;
    return { body: 'done' };
  });
  const busyTable = table('other', busy.url, ', health_check: {path: /health, interval: 1s}').replaceAll('crm.order.', 'crm.slow.');
  const other = await fleet.sidecar('other', busyTable);
  await knows(caller, SLOW);
  const call = caller.invoke(SLOW);
  await waitUntil('it is called', async () => (await caller.invoke(WORK)).status === 200, 5_000);
  await agent.close();
  const diedAt = performance.now();
  const usable = (): boolean => {
    const lines = caller.started.front.table.current().capabilities.get(WORK)?.versions ?? [];
    return lines.some(({ candidates }) => candidates.some(({ health }) => health.usable(performance.now()) !== 'offline'));
  };
  await waitUntil('it has left the table of the caller', () => !usable(), 6_000);
  t.ok(performance.now() - diedAt < 5_000, `after ${(performance.now() - diedAt).toFixed(0)} ms`);
  t.match((await caller.invoke(WORK)).json, { code: 2001, attempts: [] }, 'no attempt is wasted on it');
  t.match((await host.ask('/v1/ready')).json, { ready: true, lacks: [/1 of its own agents is not there/] });
  agent = await TestAgent.listen('mortal', undefined, port);
  t.teardown(() => agent.close());
  await waitUntil('it is called again', async () => (await caller.invoke(WORK)).status === 200, 6_000);
  t.match(other.started.front.registry?.client.status().agents, { gone: 0 }, 'busy is not dead');
  release();
  t.equal((await call).status, 200);
});

t.test('a leading replica that stops hands over at once, and calls and registrations go on', async (t) => {
  const fleet = await Fleet.start(t);
  const second = await Plane.start(t, fleet.nats, 'cp-2');
  await second.follows();
  const agent = await agentOf(t, 'steady');
  const host = await fleet.sidecar('host', table('host', agent.url));
  await knows(host, WORK);
  let isOver = false;
  const failed: unknown[] = [];
  let calls = 0;
  const load = (async () => {
    while (!isOver) {
      calls++;
      const { status, json } = await host.invoke(WORK);
      if (status !== 200) failed.push(json);
      await sleep(5);
    }
  })();
  await sleep(200);
  const since = performance.now();
  const stopped = fleet.plane.control.stop(5_000);
  await waitUntil('the other one leads', () => second.control.status === 'leading', 5_000, 5);
  const tookMs = performance.now() - since;
  t.ok(tookMs < 1_000, `the other one leads after ${tookMs.toFixed(0)} ms`);
  await stopped;
  t.ok(performance.now() - since < 3_000, 'and the first one has gone');
  t.match((await second.ask('/v1/providers')).body, { providers: [{ agent: 'crm.order.1', status: 'online' }] });
  const late = await fleet.sidecar('late', NONE);
  await waitUntil('one that joins now is taken in', () => late.started.front.registry?.client.status().announced === true, 10_000);
  isOver = true;
  await load;
  t.strictSame(failed, [], `none of ${calls} calls failed`);
});

t.test(
  'a stream that was told of a stop goes on behind its last event, at the same provider, with the token that it was given',
  async (t) => {
    const asked: (string | undefined)[] = [];
    const agent = await agentOf(t, 'feed', async ({ headers }, response) => {
      asked.push(headers['last-event-id'] as string | undefined);
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      let isOver = false;
      response.on('close', () => (isOver = true));
      for (let n = Number(headers['last-event-id'] ?? 0) + 1; !isOver; n++) {
        response.write(`id: ${n}\ndata: tick ${n}\n\n`);
        await sleep(20);
      }
      return undefined;
    });
    const folder = mkdtempSync(join(tmpdir(), 'reach-resume-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const spare = agent.url.replace('127.0.0.1', 'localhost');
    const twice =
      `contracts: [{name: ${WORK}, version: 1.0.0, description: x, acl: public, execution: idempotent, streaming: true}]\n` +
      `providers:\n  - {agent_id: crm.order.1, offers: [${WORK}@1.0.0], endpoint: {type: http, address: "${agent.url}"}}\n` +
      `  - {agent_id: crm.order.2, offers: [${WORK}@1.0.0], endpoint: {type: http, address: "${spare}"}}\n`;
    const first = await Rig.start(t, { table: twice, folder });
    const stream = new StreamClient(first, WORK, 'events');
    await waitUntil('it flows', () => eventsIn(stream.text).length >= 5, 5_000);
    const report = await first.started.stop(100);
    t.match(report, { callsCut: 0, streamsTold: 1 });
    await stream.over();
    const events = eventsIn(stream.text);
    const told = JSON.parse(events.at(-1)?.data ?? '{}') as { going_away: boolean; resume: string; provider: string; code: number };
    t.match([events.at(-1)?.type, told], ['going_away', { going_away: true, code: 2006 }]);
    const last = events.length - 1;

    const second = await Rig.start(t, { table: twice, folder });
    const bad = new StreamClient(second, WORK, 'events', {}, { 'reach-resume': 'made-up' });
    t.match(await bad.over(), { ending: 'refused', result: { code: 4003 } });
    const rest = new StreamClient(second, WORK, 'events', {}, { 'reach-resume': told.resume });
    await waitUntil('it flows again', () => eventsIn(rest.text).length >= 2, 5_000);
    t.equal(rest.headers['reach-provider'], told.provider, 'the same provider');
    t.strictSame(asked, [undefined, String(last)], 'which is told what its caller has had');
    t.equal(eventsIn(rest.text)[0]?.data, `tick ${last + 1}`, 'nothing twice, nothing left out');
    rest.leave();
  },
);
