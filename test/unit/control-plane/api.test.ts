/** The HTTP API of a replica, over a real nats-server: what it answers, whom it lets in, what it refuses and how. */
import { request } from 'node:http';
import t, { type Test } from 'tap';
import type { Metric } from '../../../base/metric.ts';
import { CONTROL_METRICS } from '../../../control-plane/api/declared-metrics.ts';
import { controlPlaneSchema, readControlPlaneConfig } from '../../../control-plane/config.ts';
import { readExport } from '../../../control-plane/api/state.ts';
import { type Asked, FakeSidecar, Plane, settingsText, VIEWER } from '../../support/control-plane.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

const ORDER = 'crm.order.query';
const GOOD = 'policies:\n  - capability: crm.*\n    timeout: 3s\n';
const BETTER = 'policies:\n  - capability: crm.*\n    timeout: 5s\n';

let nats: NatsServer;
let plane: Plane;
let sidecar: FakeSidecar;

t.before(async () => {
  nats = await NatsServer.start(t);
  plane = await Plane.start(t, nats);
  await plane.leads();
  sidecar = await FakeSidecar.join(nats, 'order-a', { 'crm.order.a': [`${ORDER}@2.0.0`], 'crm.order.b': [`${ORDER}@2.1.0`] });
  await sidecar.hello();
});

const code = ({ status, body }: Asked): string => `${status} ${String(body['code'])}`;

t.test('nobody gets in without a token, and a wrong one says no more than none', async (t) => {
  const none = await plane.ask('/v1/providers', { token: null });
  const wrong = await plane.ask('/v1/providers', { token: 'operator-tokem' });
  const long = await plane.ask('/v1/providers', { token: 'x'.repeat(4_000) });
  t.equal(code(none), '401 4001');
  t.same(wrong.body, none.body);
  t.same(long.body, none.body);
  t.equal(none.headers.get('www-authenticate'), 'Bearer');
  t.equal(none.headers.get('content-type'), 'application/problem+json');
  t.equal((await plane.ask('/v1/providers', { token: VIEWER })).status, 200);
  const refused = await plane.ask('/v1/providers/crm.order.a/drain', { method: 'POST', token: VIEWER });
  t.equal(code(refused), '403 4002');
  t.match(refused.body['detail'], /vic may look but not change/);
  t.same(await sidecar.pushed(ORDER), ['crm.order.a', 'crm.order.b']);
  for (const path of ['/v1/health', '/v1/ready', '/metrics', '/v1/openapi.json'])
    t.equal((await plane.ask(path, { token: null })).status, 200, `${path} is open`);
});

t.test('web pages and rebound names are kept out', async (t) => {
  const statusWith = (headers: Record<string, string>): Promise<number> =>
    new Promise((done, fail) => {
      request(`${plane.url}/v1/health`, { headers }, (response) => done(response.resume().statusCode ?? 0))
        .on('error', fail)
        .end();
    });
  t.equal(await statusWith({ host: 'evil.example' }), 403);
  t.equal(await statusWith({ origin: 'http://evil.example' }), 403);
  t.equal(await statusWith({ 'sec-fetch-site': 'cross-site' }), 403);
  t.equal(await statusWith({}), 200);
});

t.test('what is not there, not known or not well-formed is refused in one sentence', async (t) => {
  const cases: readonly (readonly [string, Parameters<Plane['ask']>[1], string, RegExp])[] = [
    ['/v1/nothing', {}, '404 4003', /openapi/],
    ['/v1/providers?colour=red', {}, '400 4003', /unknown query parameter "colour"/],
    ['/v1/providers?state=asleep', {}, '400 4003', /state must be one of/],
    ['/v1/capabilities/crm.order.qury', {}, '404 4003', /did you mean crm.order.query/],
    ['/v1/providers/crm.order.c/drain', { method: 'POST' }, '404 4003', /no provider is called/],
    ['/v1/providers/crm.order.a/drain', { json: { why: 'x' } }, '400 4003', /unknown key "why"/],
    ['/v1/providers/crm.order.a/weight', { method: 'PUT', json: { weight: -1 } }, '400 4003', /weight must be/],
    ['/v1/providers/crm.order.a/weight', { method: 'PUT', body: '{', type: 'application/json' }, '400 4003', /not JSON/],
    [`/v1/capabilities/${ORDER}/canary`, { json: { shares: { '2.1.0': 5 } } }, '400 4003', /out of range/],
    [`/v1/capabilities/${ORDER}/canary`, { json: { shares: {} } }, '400 4003', /empty/],
    [`/v1/capabilities/${ORDER}/canary`, { json: { shares: { '9.9.9': 0.1 } } }, '409 4003', /9\.9\.9/],
    ['/v1/policies/rollback', { json: { version: 77 } }, '404 4003', /no version 77/],
    ['/v1/policies/promote', { json: {} }, '409 4003', /no roll-out/],
    ['/v1/confirm', { json: {} }, '409 4003', /nothing is held back/],
    ['/v1/explain?target=x', {}, '400 4003', /which sidecar/],
    ['/v1/explain?sidecar=nobody&target=x', {}, '404 4003', /no sidecar called nobody/],
    ['/v1/import', { json: { kind: 'x' } }, '400 4003', /not an export/],
    ['/v1/audit?limit=0', {}, '400 4003', /limit/],
  ];
  for (const [path, init, expected, words] of cases) {
    const answer = await plane.ask(path, init);
    t.equal(code(answer), expected, path);
    t.match(answer.body['detail'], words, path);
  }
});

t.test('the registry is shown: capabilities, providers, the fleet', async (t) => {
  sidecar.beat();
  sidecar.report({ appliedSeq: 1_000 });
  await waitUntil('the beat is seen', async () => {
    const { body } = await plane.ask(`/v1/providers?capability=${ORDER}&sidecar=order-a&state=online`);
    return (body['providers'] as { in_flight: number }[]).every((one) => one.in_flight === 2);
  });
  const { body } = await plane.ask(`/v1/capabilities/${ORDER}`);
  t.match(body, { capability: ORDER, online: 2, providers: 2, versions: [{ version: '2.1.0', acl: ['public'] }, { version: '2.0.0' }] });
  t.equal((body['provider_list'] as unknown[]).length, 2);
  t.equal((body['contracts'] as unknown[]).length, 2);
  t.ok((body['seq'] as number) > 0);
  t.match((await plane.ask('/v1/capabilities')).body, { capabilities: [{ capability: ORDER }] });
  const fleet = (await plane.ask('/v1/sidecars')).body;
  t.match(fleet, {
    sidecars: [{ sidecar: 'order-a', standing: 'current', registered: { agents_online: 2 } }],
    summary: { total: 1, current: 1 },
    held: [],
    rollout: null,
  });
  t.same((await plane.ask('/v1/providers?state=offline')).body, { providers: [] });
});

t.test('an order is in force before it is answered, and is kept with who, what, before and after', async (t) => {
  const drained = await plane.ask('/v1/providers/crm.order.a/drain', { json: { reason: 'new build' } });
  t.match(drained, { status: 200, body: { agent: 'crm.order.a', operator: { drain: true } } });
  const stored = await sidecar.capability(ORDER);
  t.equal(stored?.seq, drained.body['seq']);
  t.equal(stored?.state.providers.find(({ record }) => record.agentId === 'crm.order.a')?.record.drain, true);
  t.match(
    await plane.ask('/v1/providers/crm.order.a/drain', { method: 'POST' }),
    { status: 200, body: { seq: 0 } },
    'again: nothing changed',
  );
  t.match(await plane.ask('/v1/providers/crm.order.b/weight', { method: 'PUT', json: { weight: 2.5 } }), {
    body: { operator: { weight: 2.5 } },
  });
  t.match(await plane.ask('/v1/providers/crm.order.a/restore', { method: 'POST' }), { status: 200 });
  t.match(await plane.ask('/v1/providers/crm.order.b/weight', { method: 'PUT', json: { weight: null } }), { status: 200 });
  const canary = await plane.ask(`/v1/capabilities/${ORDER}/canary`, { json: { shares: { '2.1.0': '5%' }, reason: 'careful' } });
  t.match(canary.body, { shares: { '2.1.0': 0.05 } });
  t.equal((await sidecar.capability(ORDER))?.state.policies.find((each) => each.capability === ORDER)?.canary?.['2.1.0'], 0.05);
  t.match((await plane.ask(`/v1/capabilities/${ORDER}/canary`, { json: { shares: null } })).body, { shares: null });
  const { body } = await plane.ask('/v1/audit?limit=20&outcome=done');
  const entries = body['entries'] as { action: string }[];
  const first = entries.findLast(({ action }) => action === 'provider.drain');
  t.match(first, {
    actor: 'ada',
    role: 'operator',
    subject: 'crm.order.a',
    detail: { 'after.drain': true },
    reason: 'new build',
    outcome: 'done',
  });
  t.equal((await plane.ask('/v1/audit?limit=1')).body['entries'] !== undefined, true);
});

t.test('a document is applied whole or not at all', async (t) => {
  const bad = await plane.ask('/v1/policies?file=team.yaml', {
    body: 'policies:\n  - capability: crm.*\n    timeuot: 3s\n  - capability: nonsense name\n',
  });
  t.equal(code(bad), '422 4003');
  t.match(bad.body['problems'], [
    { file: 'team.yaml', line: 3, column: 5, message: /timeuot.*did you mean timeout/ },
    { file: 'team.yaml', line: 4 },
  ]);
  t.match((await plane.ask('/v1/policies')).body, { version: 0, text: '' });
  t.match((await plane.ask('/v1/policies?dry_run=true', { body: GOOD })).body, {
    dry_run: true,
    version: null,
    diff: [/\+ policy crm\.\*/, /timeout: 3s/],
  });
  t.match((await plane.ask('/v1/policies')).body, { version: 0 }, 'a dry run changes nothing');
  const applied = await plane.ask('/v1/policies?note=first', { body: GOOD });
  t.match(applied.body, { version: 1, rollout: null });
  t.equal((await sidecar.capability(ORDER))?.state.policies.find((each) => each.capability === 'crm.*')?.timeoutMs, 3_000);
  t.match((await plane.ask('/v1/policies/diff', { body: BETTER, token: VIEWER })).body, { diff: [/crm/, /3s.*5s/] });
  t.match((await plane.ask('/v1/policies', { body: BETTER })).body, { version: 2 });
  t.match((await plane.ask('/v1/policies/diff?version=1')).body, { diff: [/crm/, /5s.*3s/] });
  t.match((await plane.ask('/v1/policies/rollback', { json: { version: 1 } })).body, { version: 3 });
  t.match((await plane.ask('/v1/policies')).body, { version: 3, text: GOOD });
  t.match((await plane.ask('/v1/policies/history')).body, {
    active: 3,
    versions: [
      { version: 3, action: 'rollback' },
      { version: 2, action: 'apply' },
      { version: 1, note: 'first', author: 'ada' },
    ],
  });
  t.match((await plane.ask('/v1/policies/history/2')).body, { text: BETTER });
});

t.test('a roll-out goes to a share first, can be widened, halted and promoted', async (t) => {
  t.match((await plane.ask('/v1/policies?share=0%25', { body: BETTER })).status, 400);
  const staged = await plane.ask('/v1/policies?share=50%25', { body: BETTER });
  t.match(staged.body, { version: 4, rollout: { version: 4, share: 0.5, halted: '' } });
  t.match((await sidecar.capability(ORDER))?.state.staged, { version: 4, share: 0.5 });
  t.match((await plane.ask('/v1/policies')).body, { version: 3, rollout: { version: 4 } }, 'the others keep what they have');
  t.match((await plane.ask('/v1/policies/widen', { json: { share: '80%' } })).body, { rollout: { share: 0.8 } });
  t.match((await plane.ask('/v1/policies/halt', { json: {} })).body, { version: 3, rollout: null });
  t.equal((await sidecar.capability(ORDER))?.state.staged, null);
  await plane.ask('/v1/policies?share=99%25', { body: BETTER });
  t.match((await plane.ask('/v1/policies/promote', { json: { force: true } })).body, { version: 5, rollout: null });
  t.equal((await sidecar.capability(ORDER))?.state.policies.find((each) => each.capability === 'crm.*')?.timeoutMs, 5_000);
});

t.test('a live sidecar is asked who would serve', async (t) => {
  const asks: unknown[] = [];
  sidecar.answer = (ask) => {
    asks.push(ask);
    return { wire: 1, ok: true, explanation: { would_serve: { provider: 'crm.order.a', version: '2.0.0' } } };
  };
  const headers = encodeURIComponent(JSON.stringify({ 'Reach-Affinity': 'c1' }));
  const answer = await plane.ask(`/v1/explain?sidecar=order-a&target=${ORDER}%40%5E2.0&as=crm.front.x&headers=${headers}`);
  t.match(answer.body, { would_serve: { provider: 'crm.order.a' } });
  t.match(asks, [{ what: 'explain', target: `${ORDER}@^2.0`, as: 'crm.front.x', headers: { 'reach-affinity': 'c1' } }]);
  sidecar.answer = () => ({ wire: 1, ok: false, problem: 'this sidecar has no route table yet' });
  t.match((await plane.ask('/v1/explain?sidecar=order-a&target=x')).body, { detail: 'this sidecar has no route table yet' });
});

t.test('everything can be taken out as one document and read again', async (t) => {
  const { body } = await plane.ask('/v1/export');
  const read = readExport(JSON.stringify(body));
  if (typeof read === 'string') throw new Error(read);
  t.equal(read.registrations.length, 1);
  t.equal(read.operators.policies.active?.version, 5);
  t.ok(read.history.length >= 5);
  t.equal((await plane.ask('/v1/export', { token: VIEWER })).status, 403, 'addresses and all: not for viewers');
  t.match((await plane.ask('/v1/import', { json: body })).body, { sidecars: 0, version: 5 }, 'taking it in where it is changes nothing');
  t.same(await sidecar.pushed(ORDER), ['crm.order.a', 'crm.order.b']);
  t.equal((await plane.ask('/v1/import', { json: { ...body, env: 'other' } })).status, 409);
  const spoiled = JSON.parse(JSON.stringify(body)) as { registrations: { hello: { sidecar: string; agents: { record: object }[] } }[] };
  for (const each of spoiled.registrations) {
    each.hello.sidecar = 'other';
    Object.assign(each.hello.agents[0]?.record ?? {}, { weight: 'much' });
  }
  const refused = await plane.ask('/v1/import', { json: spoiled });
  t.equal(refused.status, 400);
  t.match(refused.body, { detail: /registrations\/0 \(other\): crm\.order\.a: .*weight must be/ });
  t.same((await plane.ask('/v1/export')).body['registrations'], body['registrations'], 'nothing of it was taken in');
  t.match(readExport(JSON.stringify({ ...body, registrations: [...read.registrations, ...read.registrations] })), /listed twice/);
  t.match(readExport('{'), /not JSON/);
  t.match(readExport('{"kind":"agent-reach-export","wire":9}'), /version 9/);
  t.match(readExport('{"kind":"agent-reach-export","wire":1,"registrations":[{}]}'), /registrations/);
});

t.test('changes are told as they happen', async (t) => {
  const abort = new AbortController();
  const response = await fetch(`${plane.url}/v1/watch`, { headers: { authorization: `Bearer ${VIEWER}` }, signal: abort.signal });
  t.equal(response.headers.get('content-type'), 'text/event-stream');
  let text = '';
  const reading = (async () => {
    for await (const chunk of response.body as AsyncIterable<Uint8Array>) text += Buffer.from(chunk).toString('utf8');
  })().catch(() => undefined);
  await waitUntil('the greeting', () => text.includes('event: hello'));
  await sidecar.leave('crm.order.b');
  await waitUntil('the goodbye', () => /event: event\ndata: .*"kind":"offline","agent":"crm.order.b"/.test(text));
  await waitUntil('what was stored', () => text.includes(`"tail":"cap.${ORDER}"`));
  t.same(await sidecar.pushed(ORDER), ['crm.order.a']);
  abort.abort();
  await reading;
  await sidecar.hello();
  t.same(await sidecar.pushed(ORDER), ['crm.order.a', 'crm.order.b']);
});

t.test('it says how it is doing', async (t) => {
  t.match((await plane.ask('/v1/health', { token: null })).body, { status: 'leading', nats: 'connected', pending_writes: 0 });
  t.match((await plane.ask('/v1/ready', { token: null })).body, { ready: true });
  t.match((await plane.ask('/v1/leader')).body, { leader: { holder: 'cp-1', url: plane.url }, status: 'leading' });
  const metrics = String((await plane.ask('/metrics', { token: null })).body['text']);
  t.match(metrics, /^reach_control_leading 1$/m);
  t.match(metrics, /^reach_control_providers\{status="online"\} 2$/m);
  t.match(metrics, /^reach_control_requests_total\{route="GET \/v1\/providers",status="401"\} 3$/m);
  const declared: readonly Metric[] = Object.values(CONTROL_METRICS);
  const types = [...metrics.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => `${name} ${type}`);
  t.same(
    types,
    declared.map(({ name, type }) => `${name} ${type}`),
    'what is declared, and nothing else',
  );
  const labels = new Map(declared.map((metric) => [metric.name, [...metric.labels].sort()] as const));
  for (const [, name, inside] of metrics.matchAll(/^([a-z_]+)(?:\{(.*)\})? \S+$/gm)) {
    const shown = [...(inside ?? '').matchAll(/(?:^|,)([a-z_]+)="/g)].map(([, label]) => label as string).sort();
    t.same(shown, labels.get(name as string), name as string);
  }
  // The leader of a fleet that has something of everything but agents that are gone, pools and alerts that wait.
  const silent = declared.filter(({ name }) => !new RegExp(`^${name}[ {]`, 'm').test(metrics)).map(({ name }) => name);
  t.same(silent, ['reach_control_agent_offline', 'reach_control_pool_tasks_waiting', 'reach_control_notices_failing']);
});

t.test('the OpenAPI document names every route, and only those', async (t) => {
  const document = (await plane.ask('/v1/openapi.json', { token: null })).body as {
    paths: Record<string, Record<string, { responses: unknown }>>;
  };
  const described = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  t.equal(new Set(described).size, described.length);
  for (const each of described) {
    const [method = '', path = ''] = each.split(' ');
    if (path === '/v1/watch') continue;
    const answer = await plane.ask(path.replace(/\{\w+\}/g, 'x'), { method, token: null });
    t.not(`${answer.status} ${String(answer.body['detail'])}`.includes('there is nothing at'), true, each);
  }
  t.ok(described.includes('POST /v1/providers/{id}/drain'));
});

function problems(text: string): string[] {
  const reading = readControlPlaneConfig(text, 'cp.yaml');
  return 'problems' in reading ? reading.problems.map(({ line, column, message }) => `${line}:${column} ${message}`) : [];
}

t.test('settings: every default is stated here, and every slip has its place', async (t: Test) => {
  const reading = readControlPlaneConfig('control_plane: {name: cp-1, nats: {url: "nats://127.0.0.1:4222"}}', 'cp.yaml');
  if ('problems' in reading) throw new Error('problems');
  const { addresses, ...config } = reading.config;
  t.same(addresses.allow.entries, []);
  t.match(addresses, { loopback: false, private: false });
  t.same(config, {
    name: 'cp-1',
    env: 'default',
    nats: {
      url: 'nats://127.0.0.1:4222',
      credential: { user: null, password: null, token: null, credsFile: null, nkey: null },
      tls: null,
      replicas: 1,
      monitor: [],
    },
    api: {
      listen: { host: '127.0.0.1', port: 7800 },
      publicUrl: null,
      allowedHosts: [],
      operators: [],
      bodyBytes: 67_108_864,
      connections: 1_000,
    },
    leases: { heartbeatMs: 45_000, offlineMs: 135_000 },
    leader: { ttlMs: 4_000, renewMs: 1_000 },
    reportsMissingMs: 15_000,
    pendingMax: 100_000,
    messages: {
      tasks: { bytes: 1_073_741_824, count: 1_000_000 },
      inbox: { bytes: 1_073_741_824, ageMs: 86_400_000, ackWaitMs: 60_000, ackPending: 100_000 },
      ledger: { bytes: 1_073_741_824, keys: 2_000_000, ageMs: 86_400_000 },
      kept: { bytes: 268_435_456, count: 100_000, ageMs: 2_592_000_000 },
      pools: 600,
      ackWaitMs: 20_000,
      ackPending: 20_000,
      stickyGraceMs: 30_000,
      notices: null,
    },
    audit: { ageMs: 7_776_000_000, bytes: 268_435_456, refusedBytes: 268_435_456 },
    console: { isServed: true, sessionMs: 43_200_000 },
    traces: { bytes: 134_217_728, keepMs: 3_600_000, keepTroubledMs: 21_600_000, slowMs: 3_000 },
    alerts: {
      p95: { enabled: true, rise: 0.4, forMs: 600_000, baselineMs: 3_600_000, minCalls: 100, floorMs: 5 },
      breakers: { enabled: true, openings: 3, windowMs: 3_600_000 },
      backlog: { enabled: true, floor: 100, windowMs: 600_000, stuckMs: 900_000, keptFloor: 20 },
      offline: { enabled: true, forMs: 30_000 },
      capabilities: [],
    },
    identity: null,
    restore: null,
    logLevel: 'info',
  });
  t.same(problems(settingsText('cp-1', 'nats://x:1')), []);
  const wrong = (line: string): string => problems(`control_plane:\n  name: cp-1\n  nats: {url: "nats://x:1"}\n  ${line}\n`).join('\n');
  t.match(wrong('nmae: x'), /4:3 unknown key "nmae": did you mean name/);
  t.match(wrong('leases: {heartbeat: 45}'), /has no unit/);
  t.match(wrong('leases: {heartbeat: 60s, offline_after: 90s}'), /at least two heartbeats/);
  t.match(wrong('leader: {ttl: 1s, renew: 900ms}'), /at least twice renew/);
  t.match(wrong('api: {operators: [{name: a, token: 12345678901, role: boss}]}'), /role must be one of/);
  t.match(wrong('api: {operators: [{name: a, token: secret-one}, {name: b, token: secret-one}]}'), /twice/);
  t.match(wrong('api: {listen: "0.0.0.0:7800"}'), /public_url/);
  t.match(wrong('addresses: {allow: ["10.0.0.0/99"]}'), /not an address, a network or a host name/);
  t.match(wrong('messages: {notices: {secret: abcdefgh}}'), /a secret needs a webhook/);
  t.match(wrong('messages: {notices: {webhook: "ftp://x"}}'), /http/);
  t.match(wrong('messages: {tasks: {size: 10}}'), /size must be from 1MiB/);
  t.match(wrong('console: {session: 8}'), /has no unit/);
  t.match(wrong('console: {session: 30d}'), /session must be/);
  t.match(wrong('console: {enabled: maybe}'), /true or false/);
  t.match(wrong('env: "a.b"'), /not the name of an environment/);
  t.match(problems('control_plane:\n  name: cp-1\n  nats: {url: "nats://me:secret@x:1"}\n').join(), /no user name or password/);
  t.notMatch(problems('control_plane:\n  name: cp-1\n  nats: {url: "nats://me:secret@x:1"}\n').join(), /me:secret/);
  t.match(problems('control_plane:\n  name: cp-1\n  nats: {url: "x:1", credential: {user: a}}\n').join(), /go together/);
  t.match(problems('').join(), /empty/);
  t.match(problems('sidecar: {}').join(), /unknown key "sidecar"/);
  t.match(controlPlaneSchema(), { properties: { control_plane: { required: ['name', 'nats'] } } });
});

t.test('rules for messages: shown with what they decided, looked through, and tried on what sidecars recorded', async (t) => {
  const text =
    'rules:\n  - { name: one, when: { source_role: front } }\n  - { name: two, when: { target_role: order, tags: { tier: gold } } }\n';
  t.equal((await plane.ask('/v1/policies', { body: text })).status, 200);
  const { body: shown } = await plane.ask('/v1/rules', { token: VIEWER });
  const version = shown['version'] as number;
  t.match(shown, { messages: 0, staged: null, rules: [{ name: 'one', when: { source_role: 'front' }, hits: 0 }, { name: 'two' }] });
  const seq = (await sidecar.bus.last('AR_CFG', sidecar.subjects.cfg('rules'))) as { seq: number };
  const rules = { version, staged: false, seq: seq.seq - 1, forMs: 60_000, messages: 500, hits: { one: 400 } };
  const standing = async (): Promise<unknown> =>
    ((await plane.ask('/v1/sidecars')).body['sidecars'] as { standing: string }[])[0]?.standing;
  sidecar.report({ appliedSeq: 100_000, rules });
  await waitUntil('it is behind', async () => (await standing()) === 'behind');
  sidecar.report({ appliedSeq: 100_000, rules: { ...rules, seq: seq.seq } });
  await waitUntil('it has them', async () => (await standing()) === 'current');
  t.match((await plane.ask('/v1/rules')).body, { messages: 500, for_ms: 60_000, sidecars: 1, rules: [{ hits: 400 }, { hits: 0 }] });
  t.match((await plane.ask('/v1/rules/lint')).body, {
    version,
    rules: 2,
    findings: [{ rule: 'two', kind: 'unused', words: 'it decided none of 500 messages in 1m' }],
  });
  const other = `${text}  - { name: three, when: { source_role: nobody } }\n`;
  t.match((await plane.ask('/v1/rules/lint?file=x.yaml', { body: other })).body, {
    version: null,
    findings: [{ rule: 'three', kind: 'unreachable' }],
  });
  const bad = await plane.ask('/v1/rules/lint?file=x.yaml', { body: 'rules: [{ nam: x }]' });
  t.match(bad, { status: 422, body: { problems: [{ file: 'x.yaml', line: 1, column: 9 }, { column: 11 }] } });

  const message = { message_type: 't', source_role: 'front', target_role: 'order', capability: null, tags: { tier: 'gold' }, rule: 'two' };
  sidecar.answer = (ask) => (ask.what === 'messages' ? { wire: 1, ok: true, messages: [message, message].slice(0, ask.limit) } : null);
  t.match((await plane.ask('/v1/rules/recorded?limit=1')).body, { messages: [message], asked: 1, silent: [], left_out: 0 });
  const changed = text.replace('tags: { tier: gold }', 'tags: { tier: silver }');
  t.match((await plane.ask('/v1/rules/test', { json: { text: changed } })).body, {
    messages: 2,
    changed: 2,
    changes: [{ count: 2, before: { rule: 'two' }, after: { rule: 'one' } }],
  });
  t.match((await plane.ask('/v1/rules/test', { json: { messages: [message] } })).body, { messages: 1, changed: 0 });
  for (const [path, init, expected] of [
    ['/v1/rules/recorded', { token: VIEWER }, '403 4002'],
    ['/v1/rules/recorded?limit=0', {}, '400 4003'],
    ['/v1/rules/test', { json: { text: 7 } }, '400 4003'],
    ['/v1/rules/test', { json: { rules: [] } }, '400 4003'],
    ['/v1/rules/test', { json: { messages: {} } }, '400 4003'],
    ['/v1/rules/test', { json: { messages: [{}] } }, '400 4003'],
    ['/v1/rules/test', { json: { text: 'rules: 1' } }, '422 4003'],
  ] as const)
    t.equal(code(await plane.ask(path, init)), expected, `${path} ${'json' in init ? JSON.stringify(init.json) : ''}`);
  sidecar.answer = () => null;
  t.equal((await plane.ask('/v1/policies', { body: BETTER })).status, 200);
});
