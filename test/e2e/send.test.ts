/**
 * Messages out of a real sidecar into a real nats-server with a real control plane: every way in, where they are durable, and
 * what their senders are told. What workers make of them is looked at in test/cases/async.test.ts.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { ChannelMethod } from '../../proto/wire/channel.ts';
import { decodeEnvelope, type Envelope } from '../../proto/wire/envelope.ts';
import { TASK_STREAM } from '../../proto/wire/subjects.ts';
import { type CastOptions, type Reach, ServedAnswer, type ServedRequest, startReach, type TaskStatus } from '../../sidecar/library.ts';
import { TestAgent } from '../support/agent.ts';
import { ENV } from '../support/control-plane.ts';
import { ChannelPeer } from '../support/channel-peer.ts';
import { cast, Fleet, knows } from '../support/fleet.ts';
import { GrpcClient } from '../support/grpc-client.ts';
import { type Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

t.setTimeout(110_000);

const NAME = 'crm.order.query';
const FAST = '  messages: {rate: {per_sec: 100000, burst: 100000}}\n';

function tableOf(sidecar: string, url: string): string {
  return `contracts: [{name: ${NAME}, version: 1.0.0, description: x, acl: public, execution: idempotent}]\nproviders:\n  - {agent_id: crm.order.1, offers: [${NAME}@1.0.0], via: ${sidecar}, endpoint: {type: http, address: "${url}"}}\n`;
}

async function waitingIn(fleet: Fleet): Promise<Envelope[]> {
  const found = await fleet.bus.history(TASK_STREAM, fleet.subjects.tasks, 1_000);
  if ('failed' in found) throw new Error(found.failed);
  return found.map(({ data }) => (decodeEnvelope(data) as { envelope: Envelope }).envelope);
}

const none = 'contracts: []\nproviders: []\n';

t.test('by every way in a message ends in the stream, and the answer says so', async (t) => {
  const fleet = await Fleet.start(t);
  const rig = await fleet.sidecar('sender', none, `${FAST}  grpc: {listen: "127.0.0.1:0"}\n`);
  await waitUntil('the table is there', () => rig.started.front.ready, 10_000);
  await waitUntil('NATS is there', () => rig.started.front.registry?.client.status().connected === true, 10_000);
  const body = { target: { role: 'retriever' }, message_type: 'task_request', priority: 'high', tags: { lang: 'de' }, payload: { n: 1 } };
  const told = { durable: 'stream', state: 'parked', capability: 'agent.message.handle', lane: 'high', version: null, rule: null };

  const http = await rig.ask('/v1/messages', { method: 'POST', payload: body });
  t.equal(http.status, 202, http.bytes.toString('utf8'));
  t.match(http.json, told);
  t.match(http.headers, { location: `/v1/tasks/${http.json.task_id}`, 'ratelimit-limit': '100000' });

  const rpc = await rig.ask('/rpc', { method: 'POST', payload: { jsonrpc: '2.0', id: 1, method: 'reach.cast', params: body } });
  t.match(rpc.json.result, told);

  const peer = await ChannelPeer.dial(rig.url, TOKEN, false);
  t.teardown(() => peer.close());
  t.match((await peer.ask(ChannelMethod.cast, JSON.stringify(body)).answer).result, told);

  const grpc = new GrpcClient(rig.started.grpcAddress as string);
  t.teardown(() => grpc.close());
  const unary = await grpc.unary(
    '/agentreach.v1.Reach/Cast',
    {
      json: '{"n":1}',
      headers: { 'reach-role': 'retriever', 'reach-priority': 'high', 'reach-tags': 'lang=de', 'reach-message-type': 'task_request' },
    },
    { token: TOKEN },
  );
  t.equal(unary.status, 0);
  t.match(unary.replies[0], { durable: 'stream', state: 'parked', capability: 'agent.message.handle', lane: 'high', version: '' });

  const waiting = await waitingIn(fleet);
  t.equal(waiting.length, 4);
  for (const envelope of waiting)
    t.match(envelope, { source: 'support.planner.1', home: 'sender', target: { role: 'retriever' }, tags: { lang: 'de' }, lane: 'high' });
  t.equal(new Set(waiting.map(({ pool }) => pool)).size, 1, 'one pool, whatever the way');
  t.equal(new Set(waiting.map(({ task_id: id }) => id)).size, 4);

  const task = await rig.ask(`/v1/tasks/${http.json.task_id}`);
  t.match(task.json, { state: 'parked', is_final: false, result: null, power_id: http.json.power_id });
  t.equal((await rig.ask(`/v1/tasks/${http.json.task_id}`, { token: 'token-of-the-helper' })).status, 404, "another agent's");
  // Whoever speaks JSON-RPC is told the same, and strangers are told nothing.
  const asked = { task_id: http.json.task_id };
  const byRpc = (method: string, params: unknown, token = TOKEN) =>
    rig.ask('/rpc', { method: 'POST', payload: { jsonrpc: '2.0', id: 1, method, params }, token });
  t.strictSame((await byRpc('reach.task', asked)).json.result, task.json);
  t.strictSame((await peer.ask(ChannelMethod.task, JSON.stringify(asked)).answer).result, task.json);
  const stranger = await ChannelPeer.dial(rig.url, 'token-of-the-helper', false);
  t.teardown(() => stranger.close());
  for (const method of [ChannelMethod.task, ChannelMethod.cancelTask]) {
    t.match((await byRpc(method, asked, 'token-of-the-helper')).json.error, {
      data: { code: 4003, detail: /no such task of this caller/ },
    });
    t.match((await stranger.ask(method, JSON.stringify(asked)).answer).error, { data: { code: 4003 } });
    for (const wrong of [{}, { task_id: 7 }, [], null]) t.equal((await byRpc(method, wrong)).json.error.code, -32602);
    t.match((await byRpc(method, { task_id: '../x' })).json.error, { data: { code: 4003 } });
  }
  t.match((await byRpc('reach.cancel_task', { task_id: rpc.json.result.task_id })).json.result, { outcome: 'requested' });
  t.equal((await rig.ask(`/v1/tasks/${http.json.task_id}`, { token: null })).status, 401);
  const began = performance.now();
  t.match((await rig.ask(`/v1/tasks/${http.json.task_id}?wait=400ms`)).json, { is_final: false });
  t.ok(performance.now() - began >= 350, 'it was waited for');
  t.equal((await rig.ask(`/v1/tasks/${http.json.task_id}?wait=10`)).status, 400, 'a time without a unit');
  t.equal((await rig.ask('/v1/tasks/nosuchtask')).status, 404);
  t.match((await rig.ask(`/v1/tasks/${http.json.task_id}`, { method: 'DELETE' })).json, { outcome: 'requested' });
  const wrong = await rig.ask('/v1/messages', { method: 'POST', payload: { ...body, priorty: 'high' } });
  t.equal(wrong.status, 400);
  t.match(wrong.json.detail, /did you mean priority/);
  t.match((await rig.ask('/v1/messages', { method: 'POST', payload: { ...body, source: 'a.b.c' } })).json.detail, /stamped/);

  const waits = rig.ask(`/v1/tasks/${http.json.task_id}?wait=60s`);
  await waitUntil('it waits', () => rig.started.front.waiting.size === 1);
  const stoppedAt = performance.now();
  await rig.started.stop(10_000);
  t.match((await waits).json, { is_final: false }, 'who waits is told how it stands');
  t.ok(performance.now() - stoppedAt < 5_000, 'and does not hold up the stop');
});

t.test('a notification is a cast: carried out by the worker, and its sender hears how far it is', async (t) => {
  const fleet = await Fleet.start(t);
  let release: () => void = () => undefined;
  const agent = await TestAgent.listen('worker', async () => {
    await new Promise<void>((done) => {
      release = done;
    });
    return { body: { done: true } };
  });
  t.teardown(() => agent.close());
  await fleet.sidecar('worker', tableOf('worker', agent.url), FAST);
  const sender = await fleet.sidecar('sender', none, FAST);
  await knows(sender, NAME);
  const silent = await sender.ask('/rpc', { method: 'POST', payload: { jsonrpc: '2.0', method: NAME, params: { n: 1 } } });
  t.equal(silent.status, 204);
  t.equal(silent.bytes.length, 0);
  await waitUntil('the worker has it', () => agent.executions === 1, 10_000);
  t.strictSame(agent.requests[0]?.json, { n: 1 });
  release();
  const lost = await sender.ask('/rpc', { method: 'POST', payload: { jsonrpc: '2.0', method: 'crm.nobody.here' } });
  t.equal(lost.status, 404, 'a lone one that is not accepted is told by its status');
  t.equal(lost.bytes.length, 0, 'and by no answer');
  t.equal(lost.headers['reach-code'], '2001');
  const id = await cast(sender, NAME, { n: 2 });
  await waitUntil('the worker has the second', () => agent.executions === 2, 10_000);
  await waitUntil('the sender hears that it is received', async () => (await stateOf(sender, id)) === 'received', 10_000);
  const told = (await sender.ask('/v1/inbox?wait=5s')).json.entries as {
    task_id: string;
    state: string;
    by: string;
    received_at_ms: number;
  }[];
  t.match(
    told.filter(({ task_id: taskId }) => taskId === id),
    [{ state: 'received', by: 'crm.order.1' }],
    'in its inbox as well: when, and who',
  );
  t.ok((told.find(({ task_id: taskId }) => taskId === id)?.received_at_ms ?? 0) > 0);
  const events = openEvents(sender, id);
  t.teardown(() => events.close());
  await waitUntil('the state comes first', () => events.seen.length === 1, 3_000);
  t.match(events.seen[0], { state: 'received', by: 'crm.order.1' });
  const ends = sender.ask(`/v1/tasks/${id}?wait=20s`);
  release();
  t.match((await ends).json, { state: 'done', is_final: true, result: { done: true }, by: 'crm.order.1', attempts: 1, status: 200 });
  await waitUntil('the last event is the end', () => events.seen.at(-1)?.['is_final'] === true, 5_000);
  t.match(events.seen.at(-1), { state: 'done', result: { done: true } });
  t.equal((await sender.ask(`/v1/tasks/${id}`, { method: 'DELETE' })).status, 409, 'too late to be called off');
  await fleet.emptied(10_000);
});

t.test('an agent is told what a message is, and by its id says later how it ended, also when the key is the sender’s', async (t) => {
  const fleet = await Fleet.start(t);
  const agent = await TestAgent.listen('worker', () => ({ status: 202, body: {} }));
  t.teardown(() => agent.close());
  const worker = await fleet.sidecar('worker', tableOf('worker', agent.url), FAST, { callers: { 'crm.order.1': 'token-of-the-order' } });
  const sender = await fleet.sidecar('sender', none, FAST);
  await knows(sender, NAME);
  const message = {
    target: NAME,
    power_id: 'order-4711',
    message_type: 'task_result',
    priority: 'high',
    tags: { lang: 'de', tenant: 'acme' },
    in_reply_to: 'abcdefgh12',
    payload: { n: 1 },
    headers: { 'reach-task-id': 'forged00', 'x-own': 'kept' },
  };
  const { json: accepted } = await sender.ask('/v1/messages', { method: 'POST', payload: message });
  await waitUntil('the agent has it', () => agent.requests.length === 1, 10_000);
  const taskId = agent.requests[0]?.headers['reach-task-id'] as string;
  t.equal(taskId, accepted.task_id);
  t.match(agent.requests[0]?.headers, {
    'reach-message-type': 'task_result',
    'reach-priority': 'high',
    'reach-tags': 'lang=de,tenant=acme',
    'reach-in-reply-to': 'abcdefgh12',
    'reach-caller': 'support.planner.1',
    'idempotency-key': 'order-4711',
    'x-own': 'kept',
  });
  const asAgent = { method: 'POST', token: 'token-of-the-order' };
  await waitUntil('it is received', async () => (await stateOf(sender, taskId)) === 'received', 10_000);
  t.equal((await worker.ask(`/v1/tasks/${taskId}/done`, { method: 'POST', payload: {} })).status, 404, 'by nobody else');
  t.match(await worker.ask(`/v1/tasks/${taskId}/extend`, asAgent), { status: 200 });
  t.match(await worker.ask(`/v1/tasks/${taskId}/done`, { ...asAgent, payload: { sum: 3 } }), { status: 200, json: { outcome: 'stored' } });
  t.match((await sender.ask(`/v1/tasks/${taskId}?wait=10s`)).json, { state: 'done', result: { sum: 3 } });
  // A call is no message.
  await sender.invoke(NAME, { payload: {}, headers: { 'reach-task-id': 'forged00', 'reach-message-type': 'x' } });
  t.equal(agent.requests[1]?.headers['reach-task-id'], undefined);
  t.equal(agent.requests[1]?.headers['reach-message-type'], undefined);
});

t.test('a message to an agent that takes none as work lies in its inbox, and its sender is told so, also by way of the disk', async (t) => {
  const fleet = await Fleet.start(t);
  const agent = await TestAgent.listen('worker', () => ({ body: {} }));
  t.teardown(() => agent.close());
  const folder = mkdtempSync(join(tmpdir(), 'reach-mail-e2e-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const worker = await fleet.sidecar('worker', tableOf('worker', agent.url), FAST, { callers: { 'crm.order.1': 'token-of-the-order' } });
  const sender = await fleet.sidecar('sender', none, `${FAST}  state_dir: ./state\n`, { folder });
  await knows(sender, NAME);
  const send = (n: number) =>
    sender.ask('/v1/messages', {
      method: 'POST',
      payload: { target: { agent: 'crm.order.1' }, message_type: 'hint', tags: { k: 'v' }, in_reply_to: 'abcdefgh12', payload: { n } },
    });
  const first = await send(1);
  t.match(first, { status: 202, json: { durable: 'stream', state: 'accepted', capability: 'agent.message.handle' } });
  const asReader = { token: 'token-of-the-order' };
  const page = (await worker.ask('/v1/inbox?wait=5s', asReader)).json;
  t.match(page.entries, [
    {
      kind: 'message',
      task_id: first.json.task_id,
      message_type: 'hint',
      source: 'support.planner.1',
      tags: { k: 'v' },
      in_reply_to: 'abcdefgh12',
      content_type: 'application/json',
      data: { n: 1 },
    },
  ]);
  t.match((await sender.ask(`/v1/tasks/${first.json.task_id}?wait=10s`)).json, {
    state: 'done',
    cause: 'inbox',
    by: 'crm.order.1',
    result: null,
  });
  t.match((await sender.ask('/v1/inbox?wait=5s')).json.entries, [{ task_id: first.json.task_id, state: 'done', cause: 'inbox' }]);
  t.equal((await worker.ask('/v1/inbox/ack', { ...asReader, method: 'POST', payload: { seq: page.entries[0].seq } })).status, 200);

  await fleet.nats.kill();
  await waitUntil('it is known', () => sender.started.front.registry?.client.status().connected === false, 5_000);
  const second = await send(2);
  t.match(second.json, { durable: 'local-disk', state: 'accepted' });
  await fleet.nats.restart();
  await waitUntil(
    'it has come',
    async () =>
      ((await worker.ask('/v1/inbox?wait=1s', asReader)).json.entries as { data: { n: number } }[] | undefined)?.[0]?.data.n === 2,
    20_000,
  );
  t.match((await sender.ask(`/v1/tasks/${second.json.task_id}?wait=20s`)).json, { state: 'done', by: 'crm.order.1' });
  t.equal(agent.executions, 0, 'it was no work');
  t.equal(await fleet.queued(), 0);
});

t.test('the operator raises the rate of one agent while the sidecar runs', async (t) => {
  const fleet = await Fleet.start(t);
  const sender = await fleet.sidecar(
    'sender',
    none,
    '  operator_token: token-of-the-operator\n  messages: {rate: {per_sec: 0.01, burst: 3}}\n',
  );
  await waitUntil('the table is there', () => sender.started.front.ready, 10_000);
  const ask = () => sender.ask('/v1/messages', { method: 'POST', payload: { target_role: 'retriever', payload: {} } });
  for (let left = 2; left >= 0; left--)
    t.match(await ask(), { status: 202, headers: { 'ratelimit-limit': '3', 'ratelimit-remaining': String(left) } });
  const refused = await ask();
  t.match(refused, { status: 429, json: { code: 3004 }, headers: { 'ratelimit-remaining': '0' } });
  t.ok(Number(refused.headers['retry-after']) >= 90, 'when the next one is taken');
  const path = '/v1/rates/support.planner.1';
  const change = { method: 'PUT', payload: { per_sec: 1_000 } };
  t.equal((await sender.ask(path, change)).status, 403, 'not by the agent itself');
  t.match(await sender.ask(path, { ...change, token: 'token-of-the-operator' }), { status: 200, json: { limit: 1_000 } });
  await waitUntil('it holds', async () => (await ask()).status === 202, 3_000);
  t.equal((await sender.ask(path, { method: 'PUT', payload: { per_sec: 0 }, token: 'token-of-the-operator' })).status, 400);
  t.match(await sender.ask(path, { method: 'DELETE', token: 'token-of-the-operator' }), { status: 200, json: { limit: 3 } });
});

t.test('NATS away and no disk: within the time of a submission it is refused, and what comes back in time is taken', async (t) => {
  const fleet = await Fleet.start(t);
  const sender = await fleet.sidecar('sender', none, '  messages: {rate: {per_sec: 100000}, ack_wait: 3s}\n  state_dir: none\n');
  await waitUntil('the table is there', () => sender.started.front.ready, 10_000);
  const ask = () => sender.ask('/v1/messages', { method: 'POST', payload: { target_role: 'retriever', payload: {} } });
  t.equal((await ask()).status, 202);
  await fleet.nats.kill();
  await waitUntil('it is known', () => sender.started.front.registry?.client.status().connected === false, 5_000);
  const refused = await ask();
  t.equal(refused.status, 503);
  t.equal(refused.json.code, 7001);
  t.ok(Number(refused.headers['retry-after']) >= 1);
  const waiting = ask();
  await fleet.nats.restart();
  t.equal((await waiting).status, 202, 'the server was back in time');
  await waitUntil('the test is connected too', () => fleet.bus.connected, 10_000);
  t.equal((await waitingIn(fleet)).length, 2, 'what was refused is not there');
});

t.test('NATS away and a disk: accepted onto it, kept over a restart, sent in order before what comes later', async (t) => {
  const fleet = await Fleet.start(t);
  const folder = mkdtempSync(join(tmpdir(), 'reach-outbox-e2e-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const settings = '  messages: {rate: {per_sec: 100000, burst: 100000}}\n  state_dir: ./state\n';
  const first = await fleet.sidecar('sender', none, settings, { folder });
  await waitUntil('the table is there', () => first.started.front.ready, 10_000);
  const ask = (rig: Rig, n: number) => rig.ask('/v1/messages', { method: 'POST', payload: { target_role: 'retriever', payload: { n } } });
  t.match((await ask(first, 0)).json, { durable: 'stream' });
  await fleet.nats.kill();
  await waitUntil('it is known', () => first.started.front.registry?.client.status().connected === false, 5_000);
  for (let n = 1; n <= 20; n++) t.match((await ask(first, n)).json, { durable: 'local-disk', state: 'parked' });
  await t.rejects(fleet.sidecar('sender', none, settings, { folder }), /in use by this process already/, 'a second one on the same folder');
  await first.stop();
  const second = await fleet.sidecar('sender', none, settings, { folder });
  await waitUntil('the table is there again, from the disk', () => second.started.front.ready, 10_000);
  t.match((await ask(second, 21)).json, { durable: 'local-disk' });
  const waiting = async (): Promise<string | undefined> =>
    /^reach_outbox_messages (\d+)$/m.exec((await second.ask('/metrics')).bytes.toString('utf8'))?.[1];
  t.equal(await waiting(), '21', 'whoever watches sees them');
  await fleet.nats.restart();
  await waitUntil('all are in the stream', async () => (await fleet.queued().catch(() => 0)) === 22, 20_000);
  t.match((await ask(second, 22)).json, { durable: 'stream' }, 'and the disk is out of the way');
  t.equal(await waiting(), '0');
  const found = await fleet.bus.history(TASK_STREAM, fleet.subjects.tasks, 1_000);
  if ('failed' in found) throw new Error(found.failed);
  t.strictSame(
    found.map(({ data }) => (JSON.parse(decodeEnvelope(data)?.payload.toString('utf8') ?? '') as { n: number }).n),
    Array.from({ length: 23 }, (_, n) => n),
  );
});

async function stateOf(rig: Rig, id: string): Promise<string> {
  return (await rig.ask(`/v1/tasks/${id}`)).json.state as string;
}

function openEvents(rig: Rig, id: string): { readonly seen: Record<string, unknown>[]; close(): void } {
  const seen: Record<string, unknown>[] = [];
  const controller = new AbortController();
  void fetch(`${rig.url}/v1/tasks/${id}`, {
    headers: { authorization: `Bearer ${TOKEN}`, accept: 'text/event-stream' },
    signal: controller.signal,
  })
    .then(async (response) => {
      for await (const chunk of response.body as AsyncIterable<Uint8Array>)
        for (const line of Buffer.from(chunk).toString('utf8').split('\n'))
          if (line.startsWith('data: ')) seen.push(JSON.parse(line.slice(6)) as Record<string, unknown>);
    })
    .catch(() => undefined);
  return { seen, close: () => controller.abort() };
}

t.test('inside a process: cast, wait, inbox, and work that is taken and ended later', async (t) => {
  const fleet = await Fleet.start(t);
  const folder = mkdtempSync(join(tmpdir(), 'reach-embedded-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const registry = { nats: fleet.nats.url, env: ENV, addresses: { loopback: true } };
  const reach = await startReach({ settings: { sidecar: { name: 'inside', registry } }, as: 'support.planner.1' });
  t.teardown(() => reach.stop());
  const told: Pick<ServedRequest, 'taskId' | 'messageType' | 'tags' | 'inReplyTo' | 'powerId'>[] = [];
  await reach.serve(
    `${NAME}@1.0.0`,
    (request) => {
      const { taskId, messageType, tags, inReplyTo, powerId, payload } = request;
      told.push({ taskId, messageType, tags, inReplyTo, powerId });
      return (payload as { later?: boolean }).later === true ? new ServedAnswer(202, {}) : { n: 7 };
    },
    { agent: 'crm.order.1', contract: { acl: 'public', execution: 'idempotent' } },
  );
  const quick = await castInside(reach, { n: 1 }, { powerId: 'k-1', tags: { lang: 'de' }, messageType: 'report' });
  t.match(await reach.waitForTask(quick, 10_000), { state: 'done', isFinal: true, result: Buffer.from('{"n":7}') });
  t.strictSame(told[0], { taskId: quick, messageType: 'report', tags: { lang: 'de' }, inReplyTo: null, powerId: 'k-1' });
  const later = await castInside(reach, { later: true });
  await waitUntil('it is received', async () => ((await reach.task(later)) as TaskStatus | null)?.state === 'received', 10_000);
  t.match(await reach.waitForTask(later, 50), { state: 'received', isFinal: false }, 'as it is when the time is over');
  t.equal(reach.extendTask(later), null, 'not this agent’s work');
  t.ok((reach.extendTask(later, 'crm.order.1') ?? 0) > 29_000);
  t.equal(await reach.done(later, { sum: 3 }), 'unknown');
  await t.rejects(reach.done(later, {}, { status: 302, as: 'crm.order.1' }), TypeError);
  t.equal(await reach.done(later, { sum: 3 }, { as: 'crm.order.1' }), 'stored');
  t.match(await reach.waitForTask(later, 10_000), { state: 'done', result: Buffer.from('{"sum":3}') });
  const mail = await reach.inbox({ waitMs: 5_000 });
  if (!mail.ok) throw new Error(mail.detail);
  t.match(
    mail.entries.map(({ task_id: id, state, data }) => [id, state, data]),
    [
      [quick, 'done', { n: 7 }],
      [later, 'received', null],
      [later, 'done', { sum: 3 }],
    ],
  );
  t.match(await reach.acknowledge(mail.next - 1), { ok: true, floor: mail.next - 1 });
  t.match(await reach.inbox(), { ok: true, entries: [] });
  t.match(await reach.inbox({ from: 99_999 }), { ok: false, why: 'ahead' });
  t.equal(await reach.waitForTask('nosuchtask', 1_000), null);
});

async function castInside(reach: Reach, payload: unknown, options: CastOptions = {}): Promise<string> {
  for (let tries = 0; ; tries++) {
    const came = await reach.cast(NAME, payload, options);
    if (came.ok) return came.task_id;
    // The registry has not heard of everything yet.
    if (tries === 100) throw new Error(JSON.stringify(came));
    await new Promise((done) => setTimeout(done, 50));
  }
}
