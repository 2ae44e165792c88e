/** Security and payload: names that mean two things, web pages at the port, prototypes in JSON, numbers and bytes that must come through as they were, lines that somebody else wrote into our log. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Server as GrpcServer, ServerCredentials, type ServiceDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import t from 'tap';
import { readTable } from '../../proto/language/document.ts';
import { readScenario } from '../../sidecar/lab/read-scenario.ts';
import { TestAgent } from '../support/agent.ts';
import { takeBase } from '../support/invariants.ts';
import { metricIn } from '../support/offline.ts';
import { ask as askRaw, RawClient, type RawAnswer } from '../support/raw-http.ts';
import { CALLER, Rig, TOKEN } from '../support/rig.ts';
import { startProgram } from '../support/sockets.ts';
import { rawAnswer, TcpStub } from '../support/tcp-stub.ts';

type Test = Parameters<typeof Rig.start>[0];

// Other tests share the machine.
t.setTimeout(110_000);
const before = takeBase();
const NAME = 'crm.order.query';
const MESH_TOKEN = 'token-of-the-mesh';
const encoded = encodeURIComponent;

/** Stops everything and asserts that nothing is left. */
async function quiet(t: Test, rig: Rig, agents: readonly (readonly [TestAgent, number])[]): Promise<void> {
  const counts = agents.map(([agent, expected]) => ({ name: agent.name, count: agent.executions, expected }));
  await rig.stop();
  for (const [agent] of agents) await agent.close();
  await rig.finish(t, before, counts);
}

const accessLines = (rig: Rig): Record<string, unknown>[] => rig.logged.filter((line) => line['msg'] === 'call');
const metricsOf = async (rig: Rig): Promise<string> => (await rig.ask('/metrics')).bytes.toString('utf8');

t.test('C114 the name that the ACL sees is the name that is dispatched', async (t) => {
  const open = await TestAgent.listen('public');
  const secret = await TestAgent.listen('admin');
  const failing = await TestAgent.listen('failing', () => ({ status: 503, body: { no: 1 } }));
  const contract = (name: string, acl: string, extra = ''): string =>
    `  - {name: ${name}, version: "1.0.0", acl: ${acl}, execution: idempotent${extra}}`;
  const rig = await Rig.start(t, {
    meshToken: MESH_TOKEN,
    table: [
      'contracts:',
      contract('crm.public.x', '[team:support, team:ops]', ', aliases: [open.x]'),
      contract('crm.admin.x', '[team:ops]', ', aliases: [pub, crm.public.alias]'),
      contract('crm.public.first', '[team:support]', ', fallback: [{capability: crm.admin.x}]'),
      contract('crm.public.second', '[team:support]', ', fallback: [{capability: pub}, {static: {text: later}}]'),
      contract('crm.public.moved', '[team:support]'),
      'providers:',
      `  - {agent_id: crm.open.1, offers: ["crm.public.x@1.0.0", "crm.public.moved@1.0.0"], endpoint: {type: http, address: "${open.url}"}}`,
      `  - {agent_id: crm.secret.1, via: one, offers: ["crm.admin.x@1.0.0"], endpoint: {type: http, address: "${secret.url}"}}`,
      `  - {agent_id: crm.failing.1, offers: ["crm.public.first@1.0.0", "crm.public.second@1.0.0"], endpoint: {type: http, address: "${failing.url}"}}`,
      'overrides:',
      '  - {name: moved, reason: test, action: reroute, capability: crm.public.moved, to: crm.admin.x}',
    ].join('\n'),
  });

  await t.test('a name that is not one is refused at the edge, however it is written', async (t) => {
    const UNDECODABLE = ['%', '%zz', 'crm.admin.x%', '%c0%ae'];
    const written = [
      'crm.admin%2F..%2Fpublic.x',
      'CRM.Admin.x',
      'crm.admin.x.',
      'crm..admin.x',
      'crm.public.x#/../admin',
      'crm.public.x%23/../admin',
      encoded('crm․admin․x'),
      encoded('crm。admin。x'),
      encoded('crm．admin．x'),
      encoded('сrm.admin.x'),
      encoded('crm.admin\u0131.x'),
      encoded('ｃrm.admin.x'),
      encoded('crm.adm\u0000in.x'),
      // Neighbours.
      'crm.public.x/../crm.admin.x',
      'crm.public.x/..%2Fcrm.admin.x',
      'crm.public.x%252F..%252Fcrm.admin.x',
      '../invoke/crm.admin.x',
      '%2e%2e/crm.admin.x',
      '.crm.admin.x',
      'crm.admin.x/',
      '/crm.admin.x',
      'crm.admin.x%20',
      '%20crm.admin.x',
      'crm.admin.x%0a',
      'crm.admin.x%00',
      'crm.admin.x%0d%0aX-Admin:%201',
      'crm.admin.x;v=1',
      'crm.admin.x;crm.public.x',
      'crm.admin.x,crm.public.x',
      'crm.admin.x|crm.public.x',
      'crm.admin.x&y',
      'crm.admin%5Cx',
      'crm.*.x',
      'crm.admin.*',
      '*',
      '',
      '%',
      '%zz',
      'crm.admin.x%',
      '%c0%ae',
      `crm.${'a'.repeat(64)}.x`,
      'a'.repeat(4_000),
      'crm.1admin.x',
      'crm._admin.x',
      'crm.admin-x.y',
      'crm.public',
      'crm.public.x.y',
    ];
    const calls = accessLines(rig).length;
    for (const target of written) {
      // By hand: no client library tidies the path up.
      const answer = await askRaw(rig.port, 'POST', `/v1/invoke/${target}`, { authorization: `Bearer ${TOKEN}` }, '{}');
      const body = JSON.parse(answer.body) as { code: number; detail: string };
      // What no decoder can read never becomes a call; what could be an alias is one that nobody has.
      const code = UNDECODABLE.includes(target) ? 4003 : 4006;
      t.equal(answer.status, 400, `${target.slice(0, 60)}: ${body.detail?.slice(0, 80)}`);
      t.equal(body.code, code, target.slice(0, 60));
    }
    const recorded = written.length - UNDECODABLE.length;
    t.equal(accessLines(rig).length - calls, recorded, 'each that was read has its record');
    t.ok(
      accessLines(rig)
        .slice(calls)
        .every((line) => line['capability'] === null && typeof line['asked'] === 'string'),
    );
    t.equal(metricIn(await metricsOf(rig), 'reach_calls_total', { capability: 'unknown' }), recorded, 'and all of them one label');
    t.equal(open.executions + secret.executions, 0);
  });

  await t.test('a name is decoded once, and then it is the same for the ACL, the route and the metrics', async (t) => {
    for (const target of ['crm%2Epublic%2Ex', '%63rm.public.x', 'open.x', 'open%2Ex']) {
      const answer = await askRaw(rig.port, 'POST', `/v1/invoke/${target}`, { authorization: `Bearer ${TOKEN}` }, '{}');
      t.equal(answer.status, 200, target);
    }
    t.equal(open.executions, 4);
    t.ok(open.requests.every((request) => request.path === '/crm.public.x' && request.headers['reach-capability'] === 'crm.public.x'));
    for (const target of [
      'crm%2Eadmin%2Ex',
      '%63rm.admin.x',
      'pub',
      'p%75b',
      'crm.public.alias',
      'crm.admin.x@^1',
      'pub@*',
      encoded('pub@^1 || ^2'),
    ]) {
      const answer = await askRaw(rig.port, 'POST', `/v1/invoke/${target}`, { authorization: `Bearer ${TOKEN}` }, '{}');
      t.equal(answer.status, 403, `${target}: an alias is judged by what it stands for`);
      t.match(JSON.parse(answer.body), { code: 4002, detail: /may not call crm\.admin\.x/ });
      t.equal(accessLines(rig).at(-1)?.['capability'], 'crm.admin.x');
      t.equal(
        (await askRaw(rig.port, 'GET', `/v1/explain/${target}`, { authorization: `Bearer ${TOKEN}` })).status,
        403,
        'explain tells no more',
      );
    }
    // The router reads an odd spelling of the path itself; the target stays what it is.
    t.equal((await askRaw(rig.port, 'POST', '/v1/%69nvoke/crm.admin.x', { authorization: `Bearer ${TOKEN}` }, '{}')).status, 403);
    const capabilities = (await rig.ask('/v1/capabilities')).bytes.toString();
    t.notMatch(capabilities, /admin|pub"/);
    t.equal(metricIn(await metricsOf(rig), 'reach_calls_total', { capability: 'crm.admin.x', code: '4002' }), 9);
    t.equal(secret.executions, 0);
  });

  await t.test('no header of the caller changes what is asked or who asks', async (t) => {
    const headers = {
      'reach-capability': 'crm.admin.x',
      'reach-caller': 'ops.boss.1',
      'reach-provider': 'crm.secret.1',
      'x-original-url': '/v1/invoke/crm.admin.x',
      'x-http-method-override': 'GET',
      'reach-pin': 'crm.open.1',
    };
    t.match(await rig.invoke('crm.public.x', { headers }), { status: 200, json: { provider: 'crm.open.1' } });
    const sent = open.requests.at(-1);
    t.match(sent?.headers, { 'reach-capability': 'crm.public.x', 'reach-caller': CALLER });
    t.match(await rig.invoke('crm.public.x', { headers: { 'reach-pin': 'crm.secret.1' } }), { status: 404, json: { code: 2001 } });
    t.equal(secret.executions, 0);
  });

  await t.test('every step of a fallback, and every reroute, is judged anew', async (t) => {
    const first = await rig.invoke('crm.public.first');
    t.match(
      first,
      { status: 503, json: { code: 6001, provider: 'crm.failing.1' } },
      'the failure that there was, not the refusal of a capability that was never asked for',
    );
    t.notMatch(first.bytes.toString(), /team:ops/);
    t.match(
      await rig.invoke('crm.public.second'),
      { status: 200, json: { degraded: true, data: { text: 'later' } } },
      'the next step is tried',
    );
    t.match(await rig.invoke('crm.public.moved'), { status: 403, json: { code: 4002 } });
    t.equal(secret.executions, 0);
    t.equal(open.executions, 5);
  });

  await t.test("the provider's end judges again", async (t) => {
    const port = Number(new URL(rig.started.meshUrl ?? '').port);
    const mesh = (capability: string, caller: string): Promise<RawAnswer> =>
      askRaw(
        port,
        'POST',
        `/mesh/v1/invoke/${capability}`,
        {
          authorization: `Bearer ${MESH_TOKEN}`,
          'reach-wire': '1',
          'reach-provider': 'crm.secret.1',
          'reach-version': '1.0.0',
          'reach-caller': caller,
        },
        '{}',
      );
    for (const [capability, caller] of [
      ['crm.admin.x', CALLER],
      ['pub', CALLER],
      ['crm%2Eadmin.x', CALLER],
      ['crm.admin.x', 'OPS.boss.1'],
      ['crm.admin.x', ' ops'],
      ['crm.admin.x', 'ops'],
      ['crm.admin.x', 'ops.boss'],
      ['crm.admin.x', 'ops.boss.1.2'],
      ['crm.admin.x', 'ops..'],
    ] as const) {
      const answer = await mesh(capability, caller);
      t.ok(['4002', '4001'].includes(answer.headers['reach-code'] ?? ''), `${capability} for ${caller}: ${answer.headers['reach-code']}`);
      t.equal(answer.headers['reach-started'], 'not_started');
    }
    for (const capability of ['crm.public.x', 'crm.public.x%2F..%2Fcrm.admin.x', 'CRM.admin.x'])
      t.not((await mesh(capability, 'ops.boss.1')).headers['reach-code'], '0', capability);
    t.equal(secret.executions, 0);
    t.equal((await mesh('crm.admin.x', 'ops.boss.1')).headers['reach-code'], '0', 'whom it names may');
    t.equal(secret.executions, 1);
  });
  await quiet(t, rig, [
    [open, 5],
    [secret, 1],
    [failing, failing.executions],
  ]);
});

t.test('C116 a web page gets nothing from either port, on no path', async (t) => {
  const agent = await TestAgent.listen('order');
  const rig = await Rig.start(t, {
    meshToken: MESH_TOKEN,
    table: `contracts:\n  - {name: ${NAME}, version: "2.0.0", acl: public, streaming: true, execution: idempotent}\nproviders:\n  - {agent_id: crm.order.1, via: one, offers: ["${NAME}@2.0.0"], endpoint: {type: http, address: "${agent.url}"}}\n`,
  });
  const local = rig.port;
  const mesh = Number(new URL(rig.started.meshUrl ?? '').port);
  const PEER = {
    authorization: `Bearer ${MESH_TOKEN}`,
    'reach-wire': '1',
    'reach-provider': 'crm.order.1',
    'reach-version': '2.0.0',
    'reach-caller': CALLER,
  };
  const ports: readonly (readonly [string, number, Record<string, string>, readonly string[]])[] = [
    [
      'agents',
      local,
      { authorization: `Bearer ${TOKEN}` },
      [
        `/v1/invoke/${NAME}`,
        `/v1/stream/${NAME}`,
        `/v1/explain/${NAME}`,
        '/v1/capabilities',
        '/v1/health',
        '/v1/ready',
        '/metrics',
        '/v1/openapi.json',
        '/',
        '/nothing',
        '/v1/invoke/',
        '//v1/health',
        '/admin/drain',
        '/v1/health?x=1',
      ],
    ],
    ['sidecars', mesh, PEER, [`/mesh/v1/invoke/${NAME}`, '/mesh/v1/ready', '/', '/nothing', '/v1/health', '/metrics']],
  ];
  const METHODS = ['GET', 'POST', 'OPTIONS', 'HEAD', 'PUT', 'DELETE'];
  const foreign: readonly (readonly [string, Record<string, string>])[] = [
    ['Host: evil.test', { host: 'evil.test' }],
    ['Origin: https://evil.test', { origin: 'https://evil.test' }],
    ['Origin: null', { origin: 'null' }],
    [
      'a WebSocket of a foreign page',
      {
        origin: 'https://evil.test',
        connection: 'Upgrade',
        upgrade: 'websocket',
        'sec-websocket-version': '13',
        'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
      },
    ],
    // Neighbours.
    ['a rebound name with our port', { host: 'evil.test:PORT' }],
    ['a name that begins like ours', { host: 'localhost.evil.test:PORT' }],
    ['a name that ends like ours', { host: 'evil-localhost' }],
    ['the address of everywhere', { host: 'localhost.:PORT' }],
    ['with user information', { host: '127.0.0.1@evil.test' }],
    ['a list', { host: '127.0.0.1, evil.test' }],
    ['a page on another local port', { origin: 'http://127.0.0.1:1' }],
    ['a page of another scheme on our name', { origin: 'https://localhost' }],
    ['an extension', { origin: 'chrome-extension://abcdefgh' }],
    ['an origin that begins like ours', { origin: 'http://127.0.0.1:PORT.evil.test' }],
    ['an empty origin', { origin: '' }],
    ['an image tag', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }],
    ['a page of a sister site', { 'sec-fetch-site': 'same-site' }],
  ];
  const filled = (headers: Record<string, string>, port: number): Record<string, string> =>
    Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, value.replace('PORT', String(port))]));
  let refused = 0;
  const all: { what: string; answer: RawAnswer }[] = [];
  for (const [who, port, credential, paths] of ports) {
    for (const [what, headers] of foreign) {
      for (const path of paths) {
        for (const method of what.startsWith('a WebSocket') ? ['GET'] : METHODS) {
          for (const [with_, own] of [
            ['with', credential],
            ['without', { authorization: null }],
          ] as const) {
            const answer = await askRaw(port, method, path, { ...own, ...filled(headers, port) }, method === 'POST' ? '{}' : null);
            refused++;
            if (answer.status !== 403)
              all.push({ what: `${who}: ${what}, ${method} ${path}, ${with_} credential: ${answer.status}`, answer });
            for (const name of Object.keys(answer.headers))
              if (name.startsWith('access-control')) all.push({ what: `${name} from ${path}`, answer });
          }
        }
      }
    }
  }
  t.strictSame(
    all.map((each) => each.what),
    [],
    `all ${refused} are refused with 403, whatever the path, the method and the credential`,
  );
  t.equal(metricIn(await metricsOf(rig), 'reach_refused_requests_total'), refused);

  await t.test('a POST that a form could send is refused without a credential', async (t) => {
    const types = [
      'text/plain',
      'text/plain;charset=UTF-8',
      'TEXT/Plain',
      ' text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'text/plain; application/json',
      null,
    ];
    for (const [who, port, credential, paths] of ports) {
      for (const path of paths) {
        for (const type of types) {
          const { authorization: _, ...peer } = credential;
          const answer = await askRaw(port, 'POST', path, { authorization: null, ...peer, 'content-type': type }, '{"sent":"by a page"}');
          t.equal(answer.status, 403, `${who} ${path} ${type}`);
        }
      }
    }
  });

  await t.test('two Host headers, none, and an absolute target', async (t) => {
    for (const [, port] of ports) {
      for (const [text, statuses] of [
        ['GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.test\r\n\r\n', [400, 403]],
        ['GET /v1/health HTTP/1.1\r\nHost: evil.test\r\nHost: 127.0.0.1\r\n\r\n', [400, 403]],
        ['GET /v1/health HTTP/1.1\r\n\r\n', [400]],
        ['GET /v1/health HTTP/1.0\r\n\r\n', [403]],
        // The agents' port is a forward proxy: whoever shows no credential there gets no further, whatever the host.
        [`GET http://evil.test/v1/health HTTP/1.1\r\nHost: evil.test\r\n\r\n`, port === local ? [407] : [400, 403]],
        [`GET http://evil.test/v1/health HTTP/1.1\r\nHost: evil.test\r\nOrigin: http://evil.test\r\n\r\n`, [400, 403]],
        [`GET http://${NAME}/ HTTP/1.1\r\nHost: ${NAME}\r\nOrigin: http://evil.test\r\n\r\n`, [400, 403]],
        [`GET http://127.0.0.1:${port}/v1/health HTTP/1.1\r\nHost: evil.test\r\n\r\n`, [400, 403]],
        ['CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n', port === local ? [405] : [0, 400, 403]],
      ] as const) {
        const client = await RawClient.to(port);
        client.write(text);
        const answer = await client.answer(1_000);
        t.ok((statuses as readonly number[]).includes(answer.status), `${text.split('\r\n', 1)[0]}: ${answer.status}`);
        client.close();
      }
    }
  });

  await t.test('the agent itself is served: its own Host, no Origin, its credential', async (t) => {
    t.equal(agent.executions, 0, 'nothing of all this reached the provider');
    for (const host of [`127.0.0.1:${local}`, `localhost:${local}`, 'LOCALHOST', '[::1]', '127.0.0.1']) {
      t.equal((await askRaw(local, 'POST', `/v1/invoke/${NAME}`, { host, authorization: `Bearer ${TOKEN}` }, '{}')).status, 200, host);
      t.equal(
        (await askRaw(local, 'POST', `/v1/invoke/${NAME}`, { host, authorization: null }, '{}')).status,
        401,
        `${host}, without credential`,
      );
    }
    for (const path of [`/v1/stream/${NAME}`, `/v1/explain/${NAME}`])
      t.equal((await askRaw(local, 'POST', path, { host: `127.0.0.1:${local}`, authorization: null }, '{}')).status, 401, path);
    t.equal((await askRaw(local, 'GET', '/v1/capabilities', { authorization: null })).status, 401);
    for (const authorization of [
      'Bearer wrong',
      `bearer ${TOKEN}`,
      `Bearer ${TOKEN} `.trimEnd() + 'x',
      TOKEN,
      'Basic eDp5',
      `Bearer ${MESH_TOKEN}`,
    ])
      t.equal((await askRaw(local, 'POST', `/v1/invoke/${NAME}`, { authorization }, '{}')).status, 401, authorization.slice(0, 12));
    t.equal(
      (
        await askRaw(
          local,
          'POST',
          `/v1/invoke/${NAME}`,
          { authorization: `Bearer ${TOKEN}`, origin: `http://127.0.0.1:${local}`, host: `127.0.0.1:${local}` },
          '{}',
        )
      ).status,
      200,
      "the sidecar's own page",
    );
    t.equal(
      (await askRaw(local, 'POST', `/v1/invoke/${NAME}`, { authorization: `Bearer ${TOKEN}`, 'content-type': 'text/plain' }, 'hello'))
        .status,
      200,
      'text is a payload like another, from one who is known',
    );
    for (const path of ['/v1/health', '/v1/ready', '/metrics'])
      t.equal((await askRaw(local, 'GET', path, { authorization: null })).status, 200, `${path} is open to the machine's own probes`);
    const { authorization: _, ...anonymous } = PEER;
    t.equal((await askRaw(mesh, 'POST', `/mesh/v1/invoke/${NAME}`, PEER, '{}')).status, 200);
    t.equal((await askRaw(mesh, 'POST', `/mesh/v1/invoke/${NAME}`, { ...anonymous, authorization: null }, '{}')).status, 401);
    t.equal((await askRaw(mesh, 'POST', `/mesh/v1/invoke/${NAME}`, { ...PEER, authorization: `Bearer ${TOKEN}` }, '{}')).status, 401);
  });
  await quiet(t, rig, [[agent, 8]]);
});

t.test('C118 __proto__ and constructor are names like others, or refused; nothing inherits from a payload', async (t) => {
  const shapeBefore = Reflect.ownKeys(Object.prototype).join();
  const pure = (t: Test, about: string): void => {
    const probe: Record<string, unknown> = {};
    t.strictSame(
      [probe['admin'], probe['x'], probe['polluted'], ([] as unknown as Record<string, unknown>)['admin']],
      [undefined, undefined, undefined, undefined],
      `${about}: nothing inherited`,
    );
    t.equal(Reflect.ownKeys(Object.prototype).join(), shapeBefore);
  };
  const payloads = [
    '{"__proto__":{"admin":true}}',
    '{"constructor":{"prototype":{"x":1}}}',
    '{"a":{"__proto__":{"admin":true},"constructor":{"prototype":{"x":1}}},"id":7}',
    '[{"__proto__":{"admin":true}}]',
    '{"__proto__":null}',
    '{"\\u005f_proto__":{"admin":true}}',
    '{"toString":1,"hasOwnProperty":2,"valueOf":3,"__defineGetter__":4}',
  ];

  await t.test('payloads and answers pass byte for byte, through validation, conditions, conversation keys and mappings', async (t) => {
    const agent = await TestAgent.listen('order', (request) => ({ headers: { 'content-type': 'application/json' }, body: request.body }));
    const third = await TestAgent.listen('third party', (request) => ({
      headers: { 'content-type': 'application/json' },
      body: request.body,
    }));
    const rig = await Rig.start(t, {
      table: `contracts:
  - {name: ${NAME}, version: "2.0.0", acl: public, execution: idempotent, input: {type: [object, array]}, output: {type: [object, array], properties: {constructor: {type: object}}}, affinity: {from: /__proto__/admin}, success: {definitely: [{pointer: /__proto__/admin, equals: true}], unless: [{pointer: /polluted, empty: false}]}}
  - {name: crm.order.plain, version: "1.0.0", acl: public, aliases: [constructor, prototype, valueof]}
  - {name: crm.order.third, version: "1.0.0", acl: public}
providers:
  - {agent_id: crm.order.1, offers: ["${NAME}@2.0.0", "crm.order.plain@1.0.0"], endpoint: {type: http, address: "${agent.url}"}, tags: {tier: gold}}
  - agent_id: crm.third.1
    offers: ["crm.order.third@1.0.0"]
    endpoint: {type: http, address: "${third.url}", mapping: {crm.order.third: {method: POST, path: /do, body: {all: "{}", own: "{/id}"}}}}
`.replace('constructor: {type: object}', 'other: {type: object}'),
    });
    for (const body of payloads) {
      const answer = await rig.invoke(NAME, { body });
      t.equal(answer.status, 200, body);
      t.equal(agent.requests.at(-1)?.body.toString(), body, 'to the provider as it came');
      t.ok(answer.bytes.includes(`"data":${body},`), 'and back');
      t.equal((await rig.invoke('constructor', { body })).status, 200, 'an alias called constructor is an alias');
      pure(t, body);
    }
    // 7 × 2 so far.
    const mapped = await rig.invoke('crm.order.third', { body: payloads[2] as string });
    t.equal(mapped.status, 200);
    t.equal(third.requests[0]?.body.toString(), `{"all":${payloads[2]},"own":7}`);
    t.equal(
      (await rig.invoke('crm.order.third', { body: payloads[0] as string })).json.code,
      4003,
      'what the payload only inherits is not there',
    );
    for (const alias of ['tostring', 'hasownproperty', '__proto__', 'prototype.x', 'constructor.prototype'])
      t.ok([2001, 4006].includes((await rig.invoke(alias)).json.code), alias);
    for (const tags of ['__proto__=x', 'constructor=x', 'toString=x', 'tier=gold,__proto__=y'])
      t.match(await rig.invoke(NAME, { headers: { 'reach-tags': tags } }), { status: 400, json: { code: 4006 } }, tags);
    t.equal((await rig.invoke(NAME, { body: '{}', headers: { 'reach-tags': 'tier=gold' } })).status, 200);
    for (const name of ['__proto__', 'constructor', 'prototype', 'hasOwnProperty']) {
      t.equal(
        (
          await askRaw(
            rig.port,
            'POST',
            `/v1/invoke/${NAME}`,
            { authorization: `Bearer ${TOKEN}`, [`${name}x`.slice(0, -1)]: '{"admin":true}', 'reach-pin': '__proto__' },
            '{}',
          )
        ).status,
        404,
        `a header ${name}, a pin __proto__`,
      );
      t.equal(
        (await askRaw(rig.port, 'POST', `/v1/invoke/${NAME}`, { authorization: `Bearer ${TOKEN}`, [name]: '{"admin":true}' }, '{}')).status,
        200,
      );
      pure(t, name);
    }
    t.equal(typeof agent.requests.at(-1)?.headers['authorization'], 'undefined');
    await quiet(t, rig, [
      [agent, 19],
      [third, 1],
    ]);
  });

  await t.test('files of operators', async (t) => {
    const base = (parts: { contract?: string; provider?: string; rest?: string; agent?: string; alias?: string } = {}): string =>
      `contracts:\n  - {name: ${NAME}, version: "2.0.0", acl: public, aliases: [${parts.alias ?? 'orders'}]${parts.contract ?? ''}}\nproviders:\n  - {agent_id: ${parts.agent ?? 'crm.order.1'}, offers: ["${NAME}@2.0.0"], endpoint: {type: mock${parts.provider ?? ''}}}\n${parts.rest ?? ''}`;
    t.notOk('problems' in readTable(base({ alias: 'constructor' }), 't'));
    const bad: readonly (readonly [string, string])[] = [
      ['an agent', base({ agent: '__proto__' })],
      ['an agent of three parts', base({ agent: '__proto__.role.1' })],
      ['an alias', base({ alias: '__proto__' })],
      ['a name', base().replaceAll(NAME, '__proto__.order.query')],
      ['a key of a contract', base({ contract: ', __proto__: {admin: true}' })],
      ['a quoted key', base({ contract: ', "__proto__": {admin: true}' })],
      ['an escaped key', base({ contract: ', "\\u005f_proto__": {admin: true}' })],
      ['constructor as a key', base({ contract: ', constructor: {prototype: {x: 1}}' })],
      ['tags', base({ contract: ', tags: {__proto__: x}' })],
      ['tags, constructor', base({ contract: ', tags: {constructor: x}' })],
      ['tags of an inherited name', base({ contract: ', tags: {toString: x}' })],
      ['a schema', base({ contract: ', input: {properties: {__proto__: {type: object}}}' })],
      ['a static answer', base({ contract: ', fallback: [{static: {__proto__: {admin: true}}}]' })],
      ['a mock script', base({ provider: ', body: {__proto__: {admin: true}}' })],
      ['a provider in a policy', base({ rest: `policies: [{capability: ${NAME}, providers: {__proto__: {weight: 1}}}]\n` })],
      ['a share of a version', base({ rest: `policies: [{capability: ${NAME}, canary: {__proto__: 1}}]\n` })],
      ['an override', base({ rest: 'overrides: [{name: __proto__, reason: r, action: block, caller: team:x, __proto__: 1}]\n' })],
      ['a section', `${base()}__proto__: {admin: true}\n`],
      [
        'JSON',
        JSON.stringify({ contracts: [{ name: NAME, version: '2.0.0', acl: 'public' }] }).replace(
          '"acl"',
          '"__proto__":{"admin":true},"acl"',
        ),
      ],
    ];
    for (const [what, text] of bad) {
      const reading = readTable(text, 't');
      t.ok('problems' in reading && reading.problems.length > 0, what);
      pure(t, what);
    }
    const scenario = readScenario(
      `scenario: x\nas: web.desk.1\ncontracts:\n  - {name: ${NAME}, version: "2.0.0", acl: public}\nproviders:\n  - {agent_id: crm.order.1, offers: ["${NAME}@2.0.0"]}\nmocks:\n  __proto__: {status: 500}\nsteps:\n  - {call: ${NAME}, headers: {__proto__: x}}\n`,
      's',
    );
    t.ok('problems' in scenario);
    pure(t, 'a scenario');
  });
});

t.test('C120 numbers come through as they were written', async (t) => {
  const numbers = [
    '9007199254740993',
    '1285704473650888702',
    '-9223372036854775808',
    '18446744073709551615',
    '1.0',
    '1e400',
    '-1E+400',
    '-0',
    '-0.0',
    '0.1000',
    '0.1234567890123456789012345678901234567890',
    '3.14159265358979323846264338327950288',
    '1e-400',
    `1${'0'.repeat(400)}`,
    '5e-324',
    '1E5',
  ];
  const body = `{ "numbers":[ ${numbers.join(' ,')} ],\n"id":9007199254740993, "price" : 0.1000, "nested":{"list":[1.0,{"deep":1285704473650888702}]},"id2":1,"id2":18446744073709551615 }`;
  const agent = await TestAgent.listen('order', (request) => ({ headers: { 'content-type': 'application/json' }, body: request.body }));
  const third = await TestAgent.listen('third party', () => ({
    headers: { 'content-type': 'application/json' },
    body: '{"id":9007199254740993}',
  }));
  let said = '{}';
  const loose = await TestAgent.listen('loose', () => ({ headers: { 'content-type': 'application/json' }, body: said }));
  const rig = await Rig.start(t, {
    table: `contracts:
  - {name: ${NAME}, version: "2.0.0", acl: public, execution: keyed, streaming: true, affinity: {from: /id}, input: {type: object, required: [id], properties: {id: {type: integer}, numbers: {type: array, maxItems: 100}}}, output: {type: object}}
  - {name: crm.order.third, version: "1.0.0", acl: public}
  - {name: crm.order.loose, version: "1.0.0", acl: public, breaker: {enabled: false}}
  - {name: crm.order.strict, version: "1.0.0", acl: public, output: {type: object}, breaker: {enabled: false}}
providers:
  - {agent_id: crm.order.1, offers: ["${NAME}@2.0.0"], endpoint: {type: http, address: "${agent.url}"}}
  - agent_id: crm.third.1
    offers: ["crm.order.third@1.0.0"]
    endpoint:
      type: http
      address: "${third.url}"
      mapping:
        crm.order.third: {method: POST, path: "/orders/{/id}/{/id2}", query: {price: "{/price}", first: "{/numbers/0}"}, headers: {x-id: "{/nested/list/1/deep}"}, body: {id: "{/id}", text: "no {/id}", all: "{/nested}", list: ["{/numbers}", 1.5]}}
  - {agent_id: crm.loose.1, offers: ["crm.order.loose@1.0.0", "crm.order.strict@1.0.0"], endpoint: {type: http, address: "${loose.url}"}}
`,
  });

  await t.test('through a transport that passes on: the very bytes, there and back', async (t) => {
    const answer = await rig.invoke(NAME, { body, headers: { 'idempotency-key': 'k-1' } });
    t.equal(answer.status, 200);
    t.equal(agent.requests[0]?.body.toString(), body);
    t.equal(agent.requests[0]?.headers['idempotency-key'], 'k-1');
    t.ok(answer.bytes.includes(`"data":${body},`), 'spliced into the Result as it came');
    const raw = await rig.invoke(NAME, { body, headers: { 'reach-mode': 'raw' } });
    t.equal(raw.bytes.toString(), body);
    const streamed = await rig.ask(`/v1/stream/${NAME}`, { method: 'POST', body });
    t.equal(streamed.bytes.toString(), body);
    t.equal(agent.requests[2]?.body.toString(), body);
  });

  await t.test('two ids that are one as doubles are two conversations', async (t) => {
    for (const id of ['9007199254740992', '9007199254740993', '1e400', '1e401', '9007199254740993.0']) {
      await rig.invoke(NAME, { body: `{"id":${id},"numbers":[]}`.replace('1e40', '1e40') });
    }
    const keys = agent.requests.slice(3).map((request) => request.headers['reach-affinity']);
    t.ok(keys.length >= 2 && new Set(keys).size === keys.length, keys.join(' '));
    t.equal(keys[0], '9007199254740992');
    t.equal(keys[1], '9007199254740993');
  });

  await t.test('where a request is made anew, the digits are those of the payload', async (t) => {
    t.equal((await rig.invoke('crm.order.third', { body })).bytes.includes('"data":{"id":9007199254740993},'), true);
    const [request] = third.requests;
    t.equal(request?.path, '/orders/9007199254740993/18446744073709551615?price=0.1000&first=9007199254740993');
    t.equal(request?.headers['x-id'], '1285704473650888702');
    const made = request?.body.toString() ?? '';
    t.ok(
      made.startsWith('{"id":9007199254740993,"text":"no 9007199254740993","all":{"list":[1.0,{"deep":1285704473650888702}]},"list":['),
      made,
    );
    for (const number of numbers) t.ok(made.includes(number), number);
    JSON.parse(made);
  });

  await t.test('where a message is made of it (gRPC), 64 bits arrive, and what would be rounded is refused with its place', async (t) => {
    const folder = t.testdir({
      'pay.proto': `syntax = "proto3"; package pay.v1; import "google/protobuf/struct.proto";
message Ask { int64 id = 1; uint64 most = 2; google.protobuf.Value any = 3; } message Told { string got = 1; int64 id = 2; }
service Pay { rpc Do(Ask) returns (Told); }`,
    });
    const file = join(folder, 'pay.proto');
    const { 'pay.v1.Pay': service } = loadSync(file, { keepCase: true, longs: String }) as unknown as Record<string, ServiceDefinition>;
    const server = new GrpcServer();
    type Ask = { readonly request: { readonly id: string } };
    server.addService(service as ServiceDefinition, {
      Do: ({ request }: Ask, done: (error: null, told: object) => void) => done(null, { got: JSON.stringify(request), id: request.id }),
    });
    const port = await new Promise<number>((done, fail) =>
      server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) => (error === null ? done(bound) : fail(error))),
    );
    const payer = await Rig.start(t, {
      table: `contracts:
  - {name: crm.order.pay, version: "1.0.0", acl: public}
providers:
  - {agent_id: crm.pay.1, offers: ["crm.order.pay@1.0.0"], endpoint: {type: grpc, address: "grpc://127.0.0.1:${port}", descriptor: "${file}", methods: {crm.order.pay: pay.v1.Pay/Do}}}
`,
    });
    for (const id of ['9007199254740993', '1285704473650888702', '-9223372036854775808']) {
      const { json } = await payer.invoke('crm.order.pay', { body: `{"id":${id},"most":18446744073709551615}` });
      t.match(json, { code: 0, data: { id } }, 'and it comes back as text');
      t.match(JSON.parse(json.data.got), { id, most: '18446744073709551615' });
    }
    const refused = await payer.invoke('crm.order.pay', { body: '{"any":{"list":[9007199254740993]}}' });
    t.match(refused, { status: 400, json: { code: 4003, detail: /\/any\/list\/0: 9007199254740993/ } });
    t.match((await payer.invoke('crm.order.pay', { body: '{"id":1e400}' })).json, { code: 4003, detail: /\/id: / });
    await payer.stop();
    server.forceShutdown();
  });

  await t.test('NaN and Infinity are no JSON: an error, never null', async (t) => {
    for (const text of [
      '{"x":NaN}',
      '{"x":Infinity}',
      '{"x":-Infinity}',
      'NaN',
      '[1,NaN]',
      '{"x":undefined}',
      '{"x":01}',
      '{"x":.5}',
      '{"x":1.}',
      '{"x":+1}',
      '{"x":0x10}',
    ]) {
      said = text;
      for (const [name, code] of [
        ['crm.order.loose', 1004],
        ['crm.order.strict', 4004],
      ] as const) {
        const answer = await rig.invoke(name);
        t.equal(answer.status, 502, text);
        t.equal(answer.json.code, code);
        t.notOk(answer.bytes.includes('"x":null'));
      }
      const raw = await rig.invoke('crm.order.loose', { headers: { 'reach-mode': 'raw' } });
      t.match(raw, { status: 502, json: { code: 1004 } }, 'raw mode does not pass it on as good either');
      const sent = await rig.invoke(NAME, { body: text });
      t.match(sent, { status: 400, json: { code: 4003 } }, 'and from a caller');
    }
  });
  await quiet(t, rig, [
    [agent, agent.executions],
    [third, 1],
    [loose, 33],
  ]);
});

t.test('C122 validation looks at a payload and changes nothing', async (t) => {
  const agent = await TestAgent.listen('order', (request) => ({ headers: { 'content-type': 'application/json' }, body: request.body }));
  const object = (properties: string, more = ''): string => `{type: object, properties: {${properties}}${more}}`;
  const schemas: readonly (readonly [string, readonly string[], readonly string[]])[] = [
    ['{oneOf: [{type: "null"}, {type: string}]}', ['null', ' null ', '"text"', '""'], ['0', '[]', '{}', 'false']],
    [
      `{allOf: [${object('a: {type: string}', ', required: [a]')}, ${object('b: {type: integer}', ', required: [b]')}]}`,
      ['{"a":"x","b":1}', '{ "b" : 1.0,"a":"x","c":null }'],
      ['{"a":"x"}', '{"b":1}'],
    ],
    [
      `{anyOf: [${object('a: {type: string}', ', required: [a], additionalProperties: false')}, ${object('b: {type: string}', ', required: [b], additionalProperties: false')}]}`,
      ['{"a":"x"}', '{"b":"y"}'],
      ['{"a":"x","b":"y"}', '{}', '{"c":1}'],
    ],
    [
      object('n: {type: number}, i: {type: integer}, b: {type: boolean}, s: {type: string}'),
      ['{"n":1,"i":2,"b":true,"s":"3"}'],
      ['{"n":"1"}', '{"i":"2"}', '{"b":"true"}', '{"b":1}', '{"b":0}', '{"s":3}', '{"s":null}', '{"n":null}', '{"n":""}', '{"i":1.5}'],
    ],
    [
      object('d: {type: string, default: filled}, e: {type: object, default: {}, properties: {f: {default: 1}}}'),
      ['{}', '{"e":{}}'],
      ['{"d":1}'],
    ],
    [object('a: {const: 1}', ', unevaluatedProperties: false'), ['{"a":1}', '{"a":1.0}'], ['{"a":"1"}', '{"a":1,"b":2}']],
    ['{type: array, items: {type: string}, uniqueItems: true}', ['["a","b"]', '[]'], ['"a"', '["a","a"]', '["a",1]']],
    [
      '{if: {properties: {k: {const: x}}, required: [k]}, then: {required: [v]}, else: {maxProperties: 1}}',
      ['{"k":"x","v":1}', '{"z":1}'],
      ['{"k":"x"}', '{"y":1,"z":2}'],
    ],
  ];
  const name = (i: number): string => `crm.order.check${i}`;
  const rig = await Rig.start(t, {
    settings: '  limits: {body: 8MiB}',
    table: `contracts:\n${schemas.map(([schema], i) => `  - {name: ${name(i)}, version: "1.0.0", acl: public, input: ${schema}, output: ${schema}}`).join('\n')}\n  - {name: ${NAME}, version: "1.0.0", acl: public, limits: {request: 8MiB, response: 8MiB}, input: {type: array, items: {type: object, required: [id, at], properties: {id: {type: integer}, at: {type: string, format: date-time}}, additionalProperties: false}}}\nproviders:\n  - {agent_id: crm.order.1, offers: [${[...schemas.keys()].map((i) => `"${name(i)}@1.0.0"`).join(', ')}, "${NAME}@1.0.0"], endpoint: {type: http, address: "${agent.url}"}}\n`,
  });
  let executions = 0;
  for (const [i, [schema, good, bad]] of schemas.entries()) {
    for (const body of good) {
      const answer = await rig.invoke(name(i), { body });
      t.equal(answer.status, 200, `${schema}: ${body}`);
      executions++;
      t.equal(agent.requests.at(-1)?.body.toString(), body, 'the bytes are those of the caller');
      t.ok(answer.bytes.includes(`"data":${body},`), 'and the answer is that of the provider');
    }
    for (const body of bad) {
      const answer = await rig.invoke(name(i), { body });
      t.match(answer, { status: 400, json: { code: 4003, retryable: false } }, `${schema}: ${body}`);
    }
    t.equal(agent.executions, executions, 'what does not fit is not sent');
  }

  await t.test('ten thousand wrong items: twenty words, and no second of work', async (t) => {
    for (const count of [1_000, 10_000, 100_000]) {
      const body = `[${Array.from({ length: count }, (_, i) => `{"id":"${i}","wrong":${i}}`).join(',')}]`;
      const answer = await rig.invoke(NAME, { body });
      t.match(answer, { status: 400, json: { code: 4003 } });
      const problems = (answer.json.detail as string).split(/, (?=\/|\()|; /);
      t.ok(
        problems.length <= 20 + 1 && answer.json.detail.length <= 2_048,
        `${problems.length} problems in ${answer.json.detail.length} characters`,
      );
      t.ok(answer.elapsedMs < 2_000, `${count} items in ${Math.round(answer.elapsedMs)} ms`);
    }
    const good = `[${Array.from({ length: 10_000 }, (_, i) => `{"at":"2026-01-01T00:00:00Z","id":${i}}`).join(' , ')}]`;
    t.equal((await rig.invoke(NAME, { body: good })).status, 200);
    t.equal(agent.requests.at(-1)?.body.toString(), good);
  });

  await t.test('a pattern that could be driven into endless work is refused when it is registered', (t) => {
    const patterns = [
      '^(a+)+$',
      '(a|a)*$',
      '^(a|aa)+$',
      '(.*a){20}',
      '^(([a-z])+.)+[A-Z]([a-z])+$',
      '(x+x+)+y',
      '^(\\\\w+\\\\s?)*$',
      '([0-9]+)*#',
      '^(?:a?){30}a{30}$',
    ];
    for (const pattern of patterns) {
      const began = performance.now();
      const text = `contracts:\n  - {name: ${NAME}, version: "1.0.0", acl: public, input: {type: object, properties: {s: {type: string, pattern: "${pattern}"}}}}\n`;
      const reading = readTable(text, 't');
      const isRefused = 'problems' in reading;
      if (!isRefused) t.fail(`${pattern} was taken`);
      else
        t.ok(
          reading.problems.some((each) => each.path === '/contracts/0/input'),
          `${pattern}: ${reading.problems[0]?.message.slice(0, 100)}`,
        );
      t.ok(performance.now() - began < 500, 'and the judging takes no time');
    }
    for (const pattern of ['^[a-z]+$', '^\\\\d{3}-\\\\d{4}$', '^(foo|bar)$', '^[A-Z]{2}[0-9]*$', '^(?:[a-z0-9]+\\\\.)+[a-z]{2,}$'])
      t.notOk(
        'problems' in
          readTable(
            `contracts:\n  - {name: ${NAME}, version: "1.0.0", acl: public, input: {type: object, properties: {s: {type: string, pattern: "${pattern}"}}}}\n`,
            't',
          ),
        `${pattern} is harmless`,
      );
    t.end();
  });
  await quiet(t, rig, [[agent, executions + 1]]);
});

t.test('C124 nobody but us writes a line into our log', async (t) => {
  const ESC = '\u001b';
  const hostile = [
    `x\n{"level":50,"msg":"forged"}`,
    `x\r\n{"msg":"forged"}`,
    `${ESC}[2J${ESC}]0;owned\u0007`,
    '\u2028{"msg":"forged"}\u2029',
    '\u009b31m',
    '\u202eforged',
    `\u0000${'M'.repeat(1_048_576)}`,
  ];
  let answer: { status: number; text: string } = { status: 500, text: '' };
  const agent = await TestAgent.listen('order', () => ({
    status: answer.status,
    headers: { 'content-type': 'text/plain; charset=utf-8' },
    body: answer.text,
  }));
  const rawStub = await TcpStub.listen((connection) => connection.write(rawAnswer(500, { 'content-length': 0, 'x-odd': `${ESC}[31m` })));
  const rig = await Rig.start(t, {
    meshToken: MESH_TOKEN,
    table: `contracts:
  - {name: ${NAME}, version: "2.0.0", acl: public, execution: idempotent, retry: {max: 0}, breaker: {min_calls: 2}, affinity: {from: /session}, output: {type: object, additionalProperties: false}}
  - {name: crm.order.raw, version: "1.0.0", acl: public, retry: {max: 0}}
  - {name: crm.order.mapped, version: "1.0.0", acl: public, retry: {max: 0}}
providers:
  - {agent_id: crm.order.1, via: one, offers: ["${NAME}@2.0.0"], endpoint: {type: http, address: "${agent.url}"}}
  - {agent_id: crm.raw.1, offers: ["crm.order.raw@1.0.0"], endpoint: {type: http, address: "${rawStub.url}"}}
  - {agent_id: crm.mapped.1, offers: ["crm.order.mapped@1.0.0"], endpoint: {type: http, address: "${agent.url}", mapping: {crm.order.mapped: {path: /x, headers: {x-name: "{/name}"}}}}}
policies:
  - {capability: ${NAME}, breaker: {min_calls: 2, open: 100ms}}
`,
  });
  const mesh = Number(new URL(rig.started.meshUrl ?? '').port);
  const header = (text: string): string =>
    Buffer.from(text.slice(0, 4_000), 'utf8')
      .toString('latin1')
      .replace(/[\u0000\r\n]/g, ' ');
  for (const text of hostile) {
    await rig.invoke(encoded(text.slice(0, 3_000)));
    await rig.invoke(`${NAME}@${encoded(text.slice(0, 3_000))}`);
    // Header bytes that HTTP allows nobody to send are refused by the parser; the others arrive.
    for (const name of [
      'traceparent',
      'tracestate',
      'x-request-id',
      'reach-sequence-id',
      'reach-affinity',
      'reach-pin',
      'reach-tags',
      'reach-path',
      'reach-step',
      'reach-budget',
      'reach-deadline-ms',
      'reach-execution',
      'reach-mode',
      'reach-power-id',
      'idempotency-key',
      'user-agent',
    ]) {
      await askRaw(rig.port, 'POST', `/v1/invoke/${NAME}`, { authorization: `Bearer ${TOKEN}`, [name]: header(text) }, '{}');
    }
    for (const caller of [header(text), encoded(text.slice(0, 500))]) {
      await askRaw(
        mesh,
        'POST',
        `/mesh/v1/invoke/${NAME}`,
        {
          authorization: `Bearer ${MESH_TOKEN}`,
          'reach-wire': '1',
          'reach-provider': 'crm.order.1',
          'reach-version': '2.0.0',
          'reach-caller': caller,
        },
        '{}',
      );
      await askRaw(
        mesh,
        'POST',
        `/mesh/v1/invoke/${encoded(text.slice(0, 500))}`,
        {
          authorization: `Bearer ${MESH_TOKEN}`,
          'reach-wire': '1',
          'reach-provider': caller,
          'reach-version': header(text),
          'reach-caller': 'a.b.c',
        },
        '{}',
      );
    }
    answer = { status: 500, text };
    await rig.invoke(NAME, { payload: { session: text.slice(0, 10_000) } });
    answer = { status: 200, text: JSON.stringify({ [text.slice(0, 100_000)]: 1 }) };
    await rig.invoke(NAME, { payload: {} });
    await rig.invoke('crm.order.mapped', { payload: { name: text.slice(0, 1_000) } });
    await rig.invoke('crm.order.raw');
    await rig.ask(`/${encoded(text.slice(0, 500))}`);
    await rig
      .push(
        `contracts:\n  - {name: ${JSON.stringify(text.slice(0, 2_000))}, version: "1.0.0", acl: public, ${JSON.stringify(text.slice(0, 2_000))}: 1}\n`,
      )
      .catch(() => undefined);
  }

  await t.test('a conversation key out of the payload cannot add a header', async (t) => {
    const seen = agent.requests.filter((request) => typeof request.headers['reach-affinity'] === 'string');
    t.ok(seen.length > 0, 'keys were passed on');
    for (const { headers } of seen) {
      t.match(String(headers['reach-affinity']), /^[\x21-\x7e]{1,128}$/);
      t.notOk('x-admin' in headers);
    }
    answer = { status: 200, text: '{}' };
    const added = await rig.invoke('crm.order.mapped', { payload: { name: 'a\r\nX-Admin: 1' } });
    t.match(added, { status: 400, json: { code: 4003 } }, 'nor a value of a mapping');
  });

  await t.test('every record is one line of JSON, with nothing in it that moves a cursor', (t) => {
    const raw = rig.logged;
    t.ok(raw.length > 100, `${raw.length} lines`);
    t.equal(raw.filter((line) => 'unparsable' in line).length, 0, 'each line is a JSON object of its own');
    t.equal(raw.filter((line) => line['msg'] === 'forged' || line['level'] === undefined).length, 0, 'none of them is forged');
    const unprintable = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/;
    const bad: string[] = [];
    const look = (value: unknown, at: string): void => {
      if (typeof value === 'string') {
        if (unprintable.test(value) && !at.endsWith('stack')) bad.push(`${at}: ${JSON.stringify(value.slice(0, 80))}`);
        if (value.length > 2_100 * 2) bad.push(`${at}: ${value.length} characters`);
      } else if (typeof value === 'object' && value !== null)
        for (const [key, part] of Object.entries(value)) look(part, `${at}.${key.slice(0, 40)}`);
    };
    for (const line of raw) look(line, String(line['msg']));
    t.strictSame([...new Set(bad)].slice(0, 10), []);
    for (const line of accessLines(rig)) {
      t.match(String(line['trace_id']), /^[0-9a-f]{32}$/);
      if (typeof line['caller'] === 'string' && !/^[A-Za-z0-9_.-]{1,128}$/.test(line['caller'])) t.fail(`caller ${line['caller']}`);
      if (String(line['detail'] ?? '').length > 2_100) t.fail('a detail that is not cut');
    }
    t.end();
  });

  await t.test('nor in a metric, a health page or an answer header', async (t) => {
    const metrics = await metricsOf(rig);
    t.notMatch(metrics, /forged|owned|\u001b|MMMM/);
    t.ok(
      metrics.split('\n').every((line) => line === '' || line.startsWith('#') || /^[a-z_]+(\{[^\n]*\})? [-+0-9.eInfNa]+$/.test(line)),
      'every line is a sample',
    );
    const health = await rig.ask('/v1/health');
    t.notMatch(health.bytes.toString(), /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/);
    t.ok(health.bytes.length < 60_000);
    for (const text of hostile) {
      answer = { status: 500, text };
      const raw = await rig.invoke(encoded(text.slice(0, 500)), { headers: { 'reach-mode': 'raw' } });
      t.match(String(raw.headers['reach-detail']), /^[\x21-\x7e]*$/);
    }
  });

  await t.test('and what the command prints for people', async (t) => {
    const file = join(rig.folder, 'hostile.yaml');
    writeFileSync(
      file,
      `contracts:\n${hostile.map((text) => `  - {name: ${JSON.stringify(text.slice(0, 2_000))}, version: ${JSON.stringify(text.slice(0, 500))}, ${JSON.stringify(text.slice(0, 500))}: 1}`).join('\n')}\n`,
    );
    const program = startProgram('sidecar/main.ts', ['check', file]);
    t.equal((await program.ended(20_000)).code, 2);
    t.notMatch(program.stderr + program.stdout, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029]/, 'no escape sequence');
    t.ok(
      program.stderr
        .split('\n')
        .filter((line) => line !== '')
        .every((line) => line.startsWith('reach-sidecar: ')),
      'every line is ours',
    );
  });

  const sent = agent.executions;
  await rig.stop();
  await rawStub.close();
  await quiet(t, rig, [[agent, sent]]);
});
