/** Attacks on what somebody may do: in another's name, under another name of the capability, by a way round, with another's messages. */
import { request as httpRequest } from 'node:http';
import t from 'tap';
import { startReach } from '../../sidecar/library.ts';
import { Code } from '../../proto/wire/codes.ts';
import { ChannelPeer } from '../support/channel-peer.ts';
import { GrpcClient } from '../support/grpc-client.ts';
import { ask as askRaw } from '../support/raw-http.ts';
import { Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { type Outcome, reaches } from './provider-watch.ts';
import { ALICE, AttackWorld, BOB, MALLORY, OPS, outcomeOf, PROVIDER, QUERY, REFUND, SOFT, TICKET } from './world.ts';

t.setTimeout(60_000);

const world = await AttackWorld.start(t);
const { watch, front } = world;
const { forbidden, unauthenticated, invalid_request: invalid, bad_name: badName } = Code;

/** What makes a request look like that of somebody else. */
const FORGED: Readonly<Record<string, string>> = {
  'reach-caller': OPS,
  'reach-home': 'eyJhbGciOiJFZERTQSJ9.e30.AAAA',
  'reach-path': `${OPS}>${REFUND}`,
  'reach-wire': '1',
  'reach-authorization': `Bearer ${world.token(OPS)}`,
  'x-reach-caller': OPS,
  'x-forwarded-user': OPS,
  'x-agent-id': OPS,
  'x-original-url': `/v1/invoke/${QUERY}`,
  'x-http-method-override': 'GET',
  forwarded: 'for=127.0.0.1',
};

const grpcClient = new GrpcClient(front.started.grpcAddress as string);
t.teardown(() => grpcClient.close());

async function rpc(agent: string, capability: string, headers: Readonly<Record<string, string>> = {}): Promise<Outcome> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: capability, params: {} });
  const { json } = await front.ask('/rpc', { method: 'POST', body, token: world.token(agent), headers });
  return outcomeOf(null, json.error === undefined ? { code: 0 } : json.error.data);
}

async function grpc(agent: string, capability: string, headers: Readonly<Record<string, string>> = {}): Promise<Outcome> {
  const { status, trailers, message } = await grpcClient.invoke(
    { capability, json: '{}', headers },
    { token: world.token(agent), metadata: headers },
  );
  return { code: status === 0 ? Code.ok : Number(trailers['reach-code']), detail: message };
}

async function channel(agent: string, capability: string, headers: Readonly<Record<string, string>> = {}): Promise<Outcome> {
  const { peer } = await ChannelPeer.greet(front.url, world.token(agent), {
    serve: false,
    agent: OPS,
    caller: OPS,
    metadata: { agent: OPS },
  });
  const { error, result } = await peer.ask('reach.invoke', JSON.stringify({ capability, payload: {}, headers })).answer;
  await peer.close();
  return outcomeOf(null, error === undefined ? result : error.data);
}

function proxied(agent: string, capability: string, headers: Readonly<Record<string, string>> = {}, path = '/'): Promise<Outcome> {
  return new Promise((done, fail) => {
    const request = httpRequest(
      {
        host: '127.0.0.1',
        port: front.port,
        path: `http://${capability}${path}`,
        method: 'POST',
        agent: false,
        headers: {
          host: capability,
          'content-type': 'application/json',
          'proxy-authorization': `Bearer ${world.token(agent)}`,
          ...headers,
        },
      },
      (response) => {
        response.resume();
        response.on('end', () =>
          done({
            status: response.statusCode ?? 0,
            code: Number(response.headers['reach-code']),
            detail: decodeURIComponent(String(response.headers['reach-detail'] ?? '')),
          }),
        );
      },
    );
    request.on('error', fail);
    request.end('{}');
  });
}

const WAYS = {
  HTTP: (agent: string, target: string, headers = {}) => world.call({ agent, headers }, target),
  'JSON-RPC': rpc,
  gRPC: grpc,
  'a channel': channel,
  'the proxy': proxied,
};

for (const [way, call] of Object.entries(WAYS)) {
  t.test(`rightful: over ${way}, who may call is served`, async (t) => {
    await reaches(t, watch, () => call(ALICE, QUERY));
  });

  t.test(`over ${way}, no header makes a caller somebody else`, async (t) => {
    await watch.refused(t, () => call(MALLORY, QUERY, FORGED), { code: forbidden, detail: new RegExp(MALLORY) });
    for (const [name, value] of Object.entries(FORGED))
      await watch.refused(t, () => call(MALLORY, QUERY, { [name]: value }), forbidden, name);
  });
}

t.test('in a process of its own, an agent is who the settings say, whatever the call says', async (t) => {
  const settings = {
    sidecar: { name: 'inside' },
    contracts: [{ name: QUERY, version: '2.0.0', acl: ['team:crm'] }],
    providers: [{ agent_id: PROVIDER, offers: [`${QUERY}@2.0.0`], endpoint: { type: 'http', address: watch.url } }],
  };
  const reach = await startReach({ settings, as: MALLORY, log: 'silent' });
  t.teardown(() => reach.stop(0));
  const call = async (headers: Readonly<Record<string, string>>): Promise<Outcome> => {
    const { code, error } = await reach.invoke(QUERY, {}, { headers });
    return { code, detail: error?.detail ?? '' };
  };
  await watch.refused(t, () => call({}), forbidden);
  await watch.refused(t, () => call({ ...FORGED, authorization: `Bearer ${world.token(ALICE)}` }), forbidden);
});

t.test('what a caller says of itself is stamped anew before the provider sees it', async (t) => {
  const { requests } = watch.agent;
  const before = requests.length;
  await world.call({ agent: ALICE, headers: { ...FORGED, 'reach-path': '' } });
  const seen = requests[before]?.headers ?? {};
  t.equal(seen['reach-caller'], ALICE);
  for (const name of ['reach-home', 'reach-authorization', 'reach-wire', 'authorization', 'proxy-authorization', 'cookie'])
    t.notOk(name in seen, name);
  t.notMatch(JSON.stringify(seen), world.token(ALICE), 'nor is there a credential in any header');
  await watch.untouched(t, watch.count);
});

// ---- the name

t.test('no other spelling of a name gets past the ACL that stands at the name', async (t) => {
  const written = [
    'PAY.REFUND.ISSUE',
    'Pay.refund.issue',
    'pay.refund.issue.',
    '.pay.refund.issue',
    'pay..refund.issue',
    'pay.refund%2eissue%00',
    'pay.refund.issue%20',
    '%70ay.refund.issue%0a',
    'pay/refund/issue',
    'pay.refund.issue%2f',
    'pay.refund.issue/',
    '//pay.refund.issue',
    `${QUERY}/../pay.refund.issue`,
    `${QUERY}%2f..%2fpay.refund.issue`,
    'pay%252erefund%252eissue',
    encodeURIComponent('pay․refund․issue'),
    encodeURIComponent('раy.refund.issue'),
    encodeURIComponent('ｐay.refund.issue'),
    encodeURIComponent('pay.refund.\u0131ssue'),
    encodeURIComponent('pay.refund.issue\u200b'),
    'pay.*.issue',
    `${QUERY},pay.refund.issue`,
    'pay.refund.issue;a=b',
  ];
  for (const target of written) {
    const call = async (): Promise<Outcome> => {
      const { status, body } = await askRaw(
        front.port,
        'POST',
        `/v1/invoke/${target}`,
        { authorization: `Bearer ${world.token(ALICE)}` },
        '{}',
      );
      return outcomeOf(status, JSON.parse(body));
    };
    const outcome = await watch.refused(t, call, { code: badName }, target).catch((error: unknown) => t.fail(`${target}: ${error}`));
    t.ok(outcome);
  }
});

t.test('decoded once, a name that is percent-encoded is that name, with its ACL', async (t) => {
  for (const target of [
    '%70%61%79.refund.issue',
    'pay%2Erefund%2Eissue',
    'pay.refund.issue@%5E2.0',
    'pay.refund.issue@2',
    'pay.refund.issue@*',
    'pay.refund.issue@%3E%3D1%20%7C%7C%205',
  ])
    await watch.refused(t, () => world.call({ agent: ALICE }, target), forbidden, target);
});

t.test('an alias opens what its capability opens, no more', async (t) => {
  await reaches(t, watch, () => world.call({ agent: ALICE }, 'crm.order.find'), 'for who may');
  await watch.refused(t, () => world.call({ agent: MALLORY }, 'crm.order.find'), forbidden);
  await watch.refused(t, () => world.call({ agent: MALLORY }, 'crm.order.find@^2.0'), forbidden);
});

t.test('over the other ways in, a name is the same name', async (t) => {
  for (const call of [rpc, grpc, channel]) {
    for (const target of [REFUND, `${REFUND}@^2.0`]) await watch.refused(t, () => call(ALICE, target), forbidden, target);
    for (const target of ['PAY.refund.issue', `${REFUND} `, `${QUERY}\u0000`, 'pay%2Erefund.issue'])
      await watch.refused(t, () => call(ALICE, target), badName, target);
  }
  await watch.refused(t, () => proxied(ALICE, REFUND), forbidden);
});

t.test('an intercepted path cannot lead out of what the agent offers', async (t) => {
  const call = async (target: string): Promise<Outcome> => {
    const { status, headers } = await askRaw(front.port, 'GET', target, {
      host: QUERY,
      authorization: null,
      'proxy-authorization': `Bearer ${world.token(ALICE)}`,
    });
    return { status, code: Number(headers['reach-code'] ?? Number.NaN), detail: decodeURIComponent(headers['reach-detail'] ?? '') };
  };
  for (const path of [
    '/../pay.refund.issue',
    '/%2e%2e/pay.refund.issue',
    '/a/%2e%2e%2f%2e%2e%2fx',
    '/..%5cx',
    '/.%2e/x',
    '/a/..;/x',
    '/a\\..\\x',
    '/x#y',
  ])
    await watch.refused(t, async () => ({ ...(await call(`http://${QUERY}${path}`)), code: null }), { code: null, status: 400 }, path);
});

t.test('what somebody may not call is neither explained nor listed', async (t) => {
  for (const method of ['GET', 'POST'])
    await watch.refused(t, () => world.ask(`/v1/explain/${REFUND}`, { agent: ALICE, method }), forbidden, method);
  await watch.refused(t, () => world.ask(`/v1/explain/${REFUND}`, { token: null }), unauthenticated);
  const { json } = await world.ask('/v1/capabilities', { agent: ALICE });
  t.match(JSON.stringify(json), QUERY);
  t.notMatch(JSON.stringify(json), REFUND);
});

// ---- the way round

t.test('pinning a provider does not open what it serves to others', async (t) => {
  await watch.refused(t, () => world.call({ agent: ALICE, headers: { 'reach-pin': PROVIDER } }, REFUND), forbidden);
  await watch.refused(t, () => world.call({ agent: MALLORY, headers: { 'reach-pin': PROVIDER, 'reach-provider': PROVIDER } }), forbidden);
});

t.test('a fallback leads nobody to what it may not call', async (t) => {
  const outcome = await watch.refused(t, () => world.call({ agent: ALICE }, SOFT), Code.connect_timeout);
  t.notMatch(outcome.detail ?? '', 'degraded');
});

t.test('a reroute leads nobody to what it may not call', async (t) => {
  const rig = await Rig.start(t, {
    name: 'rerouting',
    table: `contracts:
  - {name: ${QUERY}, version: 2.0.0, acl: ["team:crm"]}
  - {name: ${REFUND}, version: 2.0.0, acl: ["team:ops"]}
providers:
  - {agent_id: ${PROVIDER}, offers: [${QUERY}@2.0.0, ${REFUND}@2.0.0], endpoint: {type: http, address: "${watch.url}"}}
overrides:
  - {name: moved, reason: test, action: reroute, capability: ${QUERY}, to: ${REFUND}}
`,
    callers: { [ALICE]: 'token-of-alice', [OPS]: 'token-of-olga' },
  });
  const call = async (target: string, token: string): Promise<Outcome> => {
    const { status, json } = await rig.invoke(target, { token });
    return outcomeOf(status, json);
  };
  await reaches(t, watch, () => call(REFUND, 'token-of-olga'), 'for who may');
  await watch.refused(t, () => call(QUERY, 'token-of-alice'), forbidden);
  await watch.refused(t, () => call(QUERY, 'token-of-olga'), forbidden, 'nor from what it may not call');
  await rig.stop();
});

t.test('a path that was made up neither opens a loop nor hides one', async (t) => {
  const step = `${PROVIDER}>${QUERY}`;
  const looped = [step, `x>y, ${step}`, ` ${step} `, `${step},`, Array.from({ length: 17 }, (_, i) => `crm.a.${i}>crm.b.c`).join(', ')];
  for (const path of looped)
    await watch.refused(t, () => world.call({ agent: ALICE, headers: { 'reach-path': path } }), Code.loop_detected, path.slice(0, 30));
  await watch.refused(t, () => world.call({ agent: ALICE, headers: { 'reach-path': ['x>y', step] } }), Code.loop_detected, 'in two lines');
});

t.test('no header of the sidecars among themselves is taken from an agent', async (t) => {
  for (const [name, value] of [
    ['reach-started', 'not_started'],
    ['reach-late-ms', '1e9'],
    ['reach-frames', '1'],
    ['reach-target', '/admin'],
    ['reach-method', 'DELETE'],
  ] as const) {
    const before = watch.agent.requests.length;
    await world.call({ agent: ALICE, headers: { [name]: value } });
    const [seen] = watch.agent.requests.slice(before);
    t.equal(seen?.method, 'POST', name);
    t.equal(seen?.path, `/${QUERY}`);
    t.notOk(name in (seen?.headers ?? {}), `${name} is not passed on`);
  }
  await watch.untouched(t, watch.count);
});

// ---- messages

t.test('nobody sends a message to what it may not call', async (t) => {
  const send = (agent: string, body: object): Promise<Outcome> => world.ask('/v1/messages', { method: 'POST', payload: body, agent });
  await watch.refused(t, () => world.ask(`/v1/cast/${REFUND}`, { method: 'POST', payload: {}, agent: ALICE }), forbidden);
  await watch.refused(t, () => send(ALICE, { target: { capability: REFUND }, payload: {} }), forbidden);
  await watch.refused(t, () => send(MALLORY, { target: { capability: QUERY }, payload: {} }), forbidden);
  const notified = await front.ask('/rpc', {
    method: 'POST',
    token: world.token(MALLORY),
    body: JSON.stringify({ jsonrpc: '2.0', method: QUERY, params: {} }),
  });
  t.equal(notified.status, 403, 'a notification has no answer of the protocol, and a status of HTTP all the same');
  await watch.untouched(t, watch.count);
});

t.test('what the sidecar stamps cannot be written by the sender', async (t) => {
  for (const [name, value] of Object.entries({
    source: OPS,
    task_id: 'T-1',
    home: 'order-side',
    pool: 'p',
    keyed: true,
    accepted_at_ms: 1,
  }))
    await watch.refused(
      t,
      () =>
        world.ask('/v1/messages', { method: 'POST', payload: { target: { capability: QUERY }, payload: {}, [name]: value }, agent: ALICE }),
      invalid,
      name,
    );
  const twice = `{"target": {"capability": "${QUERY}"}, "payload": {}, "target": {"capability": "${REFUND}"}}`;
  await watch.refused(t, () => world.ask('/v1/messages', { method: 'POST', body: twice, agent: ALICE }), invalid, 'a field twice');
  const nested = `{"target": {"capability": "${QUERY}", "capability": "${REFUND}"}, "payload": {}}`;
  await watch.refused(
    t,
    () => world.ask('/v1/messages', { method: 'POST', body: nested, agent: ALICE }),
    invalid,
    'a field of the target twice',
  );
});

/** A message of Alice that waits, since nobody takes it. */
async function waiting(): Promise<string> {
  const { json } = await world.ask('/v1/messages', {
    method: 'POST',
    agent: ALICE,
    payload: { target: { capability: SOFT }, payload: { secret: 'of alice' } },
  });
  return json.task_id as string;
}

t.test('nobody sees, waits for or calls off the task of another', async (t) => {
  const taskId = await waiting();
  t.ok(taskId);
  const path = `/v1/tasks/${taskId}`;
  t.equal((await world.ask(path, { agent: ALICE })).status, 200, 'it is there');
  for (const agent of [BOB, MALLORY, OPS]) {
    await watch.refused(t, () => world.ask(path, { agent }), { code: invalid, status: 404 }, agent);
    await watch.refused(t, () => world.ask(`${path}?wait=1s`, { agent }), { code: invalid, status: 404 }, agent);
    await watch.refused(
      t,
      () => world.ask(path, { agent, headers: { accept: 'text/event-stream' } }),
      { code: invalid, status: 404 },
      agent,
    );
    await watch.refused(t, () => world.ask(path, { agent, method: 'DELETE' }), { code: invalid, status: 404 }, agent);
  }
  await watch.refused(t, () => world.ask(path, { token: null }), unauthenticated);
  t.equal((await world.ask(path, { agent: ALICE })).json.task_id, taskId, 'and still is');
});

t.test('nobody says how the work of another has ended, or takes longer over it', async (t) => {
  const taskId = await waiting();
  for (const agent of [BOB, OPS, PROVIDER]) {
    await watch.refused(
      t,
      () => world.ask(`/v1/tasks/${taskId}/done`, { method: 'POST', agent, payload: { forged: true } }),
      { code: invalid, status: 404 },
      agent,
    );
    await watch.refused(t, () => world.ask(`/v1/tasks/${taskId}/extend`, { method: 'POST', agent }), { code: invalid, status: 404 }, agent);
  }
  const { peer } = await ChannelPeer.greet(front.url, world.token(BOB), { serve: true });
  for (const method of ['reach.done', 'reach.extend', 'reach.cancel_task', 'reach.task']) {
    const { error } = await peer.ask(method, JSON.stringify({ task_id: taskId, payload: {} })).answer;
    t.ok(error, method);
  }
  await peer.close();
  await watch.untouched(t, watch.count);
});

t.test('an inbox is read by its owner alone', async (t) => {
  const { json } = await world.ask(`/v1/cast/${QUERY}`, { method: 'POST', agent: ALICE, payload: { secret: 'of alice' } });
  const taskId = json.task_id as string;
  const inboxOf = async (agent: string, path = '/v1/inbox', headers = {}): Promise<string> =>
    JSON.stringify((await world.ask(path, { agent, headers })).json);
  await waitUntil('its sender is told how it ended', async () => (await inboxOf(ALICE)).includes('"done"'), 5_000, 50);
  t.match(await inboxOf(ALICE), taskId);
  const posing = { 'reach-agent': ALICE, 'reach-caller': ALICE };
  for (const path of ['/v1/inbox', '/v1/inbox?from=1', `/v1/inbox?from=0&agent=${ALICE}`]) {
    const before = watch.count;
    t.notMatch(await inboxOf(MALLORY, path, posing), taskId, 'nothing of anybody else');
    await watch.untouched(t, before);
  }
  await watch.refused(t, () => world.ask('/v1/inbox', { token: null, headers: posing }), unauthenticated);
  const heard: string[] = [];
  const { peer } = await ChannelPeer.greet(
    front.url,
    world.token(MALLORY),
    { serve: false, agent: ALICE, resume_from: 'floor' },
    { asked: (message) => heard.push(JSON.stringify(message)) },
  );
  const { error, result } = await peer.ask('reach.resume', JSON.stringify({ from: 'floor', agent: ALICE })).answer;
  t.ok(error ?? result);
  await new Promise((done) => setTimeout(done, 50));
  t.notMatch(heard.join('\n'), taskId);
  await peer.close();
  const taken = await world.ask('/v1/inbox/ack', { method: 'POST', agent: MALLORY, payload: { seq: 1, agent: ALICE } });
  t.ok(taken.status !== undefined);
  t.match(await inboxOf(ALICE), taskId, 'and nobody else can say that it was read');
});

t.test("a key is its owner's: with the same key nobody gets the answer of another, nor runs other work under it", async (t) => {
  const power = `${ALICE}:T-77:1790000000000`;
  const once = (agent: string, payload: object, key = power): Promise<Outcome & { json: any }> =>
    world.ask(`/v1/invoke/${TICKET}`, { method: 'POST', agent, payload, headers: { 'reach-power-id': key } });
  await reaches(t, watch, () => once(ALICE, { amount: 1 }), 'the first');
  const before = watch.count;
  const again = await once(ALICE, { amount: 1 });
  t.equal(again.code, Code.ok, 'repeated, it is the first answer');
  await watch.untouched(t, before);
  await watch.refused(t, () => once(ALICE, { amount: 2 }), Code.key_reused, 'other work under the same key');
  await watch.refused(t, () => once(MALLORY, { amount: 1 }), forbidden, 'by who may not call at all');
  const guessed = await once(BOB, { amount: 1 }, 'T-guessed');
  const same = await once(ALICE, { amount: 1 }, 'T-guessed');
  t.same([guessed.json.replay, same.json.replay], [undefined, undefined], 'a key that names nobody is each one’s own');
});

t.test('nobody uses a key that names another agent', async (t) => {
  const power = `${ALICE}:T-78:1790000000000`;
  const call = (agent: string): Promise<Outcome> =>
    world.ask(`/v1/invoke/${TICKET}`, { method: 'POST', agent, payload: { amount: 3 }, headers: { 'reach-power-id': power } });
  await watch.refused(t, () => call(BOB), Code.key_reused);
  await reaches(t, watch, () => call(ALICE), 'it is still free for its owner');
  await watch.refused(t, () => call(BOB), Code.key_reused, 'and after it was used');
});

// ---- registration and channels

t.test('nobody registers, beats or removes another agent', async (t) => {
  const registration = (agent: string): string =>
    JSON.stringify({
      provider: { agent_id: agent, offers: ['crm.fake.query@2.0.0'], endpoint: { type: 'http', address: 'http://127.0.0.1:9' } },
      contracts: [{ name: 'crm.fake.query', version: '2.0.0', acl: 'public' }],
    });
  await watch.refused(t, () => world.ask('/v1/agents', { method: 'POST', body: registration(BOB), agent: MALLORY }), forbidden);
  await watch.refused(
    t,
    () => world.ask('/v1/agents', { method: 'POST', body: registration(PROVIDER), agent: MALLORY }, world.order),
    forbidden,
  );
  await watch.refused(t, () => world.ask(`/v1/agents/${PROVIDER}`, { method: 'DELETE', agent: MALLORY }, world.order), forbidden);
  await watch.refused(t, () => world.ask(`/v1/agents/${PROVIDER}/heartbeat`, { method: 'POST', agent: MALLORY }, world.order), forbidden);
  await watch.refused(t, () => world.ask('/v1/agents', { method: 'POST', body: registration(BOB), token: null }), unauthenticated);
  const { peer } = await ChannelPeer.greet(front.url, world.token(MALLORY), { serve: true });
  const { error } = await peer.ask('reach.register', registration(BOB)).answer;
  t.equal(error?.data?.code, forbidden, JSON.stringify(error));
  await peer.close();
});

t.test('a ticket serves once, for the agent that it was given to', async (t) => {
  const offered = await world.ask('/v1/channel', { method: 'POST', agent: MALLORY });
  const { ticket } = offered.json as { ticket: string };
  const dial = async (query: string): Promise<Outcome> => {
    const { status, body } = await askRaw(front.port, 'GET', `/v1/channel${query}`, {
      authorization: null,
      connection: 'Upgrade',
      upgrade: 'websocket',
      'sec-websocket-version': '13',
      'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==',
    });
    return status === 101 ? { status, code: Code.ok } : outcomeOf(status, JSON.parse(body));
  };
  t.equal((await dial(`?ticket=${ticket}`)).code, Code.ok, 'once');
  await watch.refused(t, () => dial(`?ticket=${ticket}`), unauthenticated, 'twice');
  await watch.refused(t, () => dial(`?ticket=${ticket.slice(0, -1)}A`), unauthenticated, 'guessed');
  await watch.refused(t, () => dial('?ticket='), unauthenticated, 'empty');
  await watch.refused(t, () => dial(''), unauthenticated, 'none');
});
