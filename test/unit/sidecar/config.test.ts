/** sidecar/config.ts, and what `check` says of a file */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { compileSchema } from '../../../base/json-schema.ts';
import { documentSchema, readTable } from '../../../proto/language/document.ts';
import { withEndpointTypes } from '../../../proto/language/endpoint.ts';
import { configSchema, readSidecarConfig, type SidecarConfig } from '../../../sidecar/config.ts';
import { problemsIn } from '../../../sidecar/sidecar.ts';
import { endpointTables, endpointTypes, registerTransports } from '../../../sidecar/transports/index.ts';

const TABLE = 'contracts: []\n';
const problems = (text: string): string[] => {
  const reading = readSidecarConfig(text, 'sidecar.yaml');
  return 'problems' in reading ? reading.problems.map((each) => `${each.line}:${each.column} ${each.path} ${each.message}`) : [];
};
const config = (text: string): SidecarConfig => {
  const reading = readSidecarConfig(text, 'sidecar.yaml');
  if ('problems' in reading) throw new Error(problems(text).join('\n'));
  return reading.config;
};
const inSidecar = (line: string): string[] => problems(`sidecar:\n  name: s1\n  ${line}\n${TABLE}`);

t.test('every default of the sidecar is stated here', async (t) => {
  t.same(config(`sidecar: {name: s1}\n${TABLE}`), {
    name: 's1',
    listen: { host: '127.0.0.1', port: 7700 },
    socket: null,
    apiToken: null,
    mesh: null,
    grpc: null,
    identity: null,
    aclAudit: false,
    channel: {
      heartbeatMs: 45_000,
      offlineAfterMs: 135_000,
      stallMs: 10_000,
      sendBufferBytes: 1_048_576,
      ticketTtlMs: 30_000,
      connections: 16_000,
      inFlight: 256,
    },
    region: null,
    zone: null,
    callers: [],
    operatorToken: null,
    registry: null,
    stateDir: '.reach',
    anonymous: null,
    allowedHosts: [],
    limits: { bodyBytes: 8_388_608, headerBytes: 16_384, connections: 20_000, batch: 100, unsentBytes: 16_777_216, stallMs: 10_000 },
    messages: {
      rate: { perSec: 100, burst: 100 },
      rates: [],
      ackWaitMs: 10_000,
      inFlight: 8_192,
      expiresMs: 86_400_000,
      timeouts: { taskRequestMs: 30_000, healthCheckMs: 5_000, otherMs: 30_000 },
      remembered: 50_000,
      resultBytes: 67_108_864,
      outboxBytes: 268_435_456,
      work: { concurrency: null, reserveHigh: 0, maxTries: 7 },
      inbox: { hotMs: 900_000, bytes: 67_108_864, agentBytes: 4_194_304, agentCount: 1_000, unacknowledged: 10_000 },
    },
    claims: {
      whenUnreachable: 'refuse',
      leaseMs: 15_000,
      resultBytes: 262_144,
      lateMs: 30_000,
      memoryKeys: 100_000,
      memoryBytes: 67_108_864,
      memoryMs: 86_400_000,
    },
    shutdown: { graceMs: 10_000, quietMs: 1_500, ownCalls: 'finishing' },
    traces: { isOn: true, ratio: 1, maxPerSec: 200, slowMs: 0, holdMs: 5_000, heldSpans: 8_192, otlp: null },
    recording: null,
    maxDeadlineMs: 600_000,
    maxHops: 16,
    retryBudget: { ratio: 0.2, minPerSec: 10 },
    affinity: { maxEntries: 100_000, ttlMs: 1_800_000 },
    connectTimeoutMs: 1_000,
    connectionsPerOrigin: 128,
    log: { level: 'info', access: 'errors' },
    ejection: { consecutive: 3, forMs: 5_000 },
  });
});

t.test('everything that can be said is normalised and frozen', async (t) => {
  const read = config(`
sidecar:
  name: s1
  listen: "[::1]:0"
  mesh: {listen: localhost:9001, token: {env: MESH_TOKEN}}
  locality: {region: eu, zone: eu-1}
  callers:
    - {agent: crm.planner.a1, token: not-for-production}
    - {agent: crm.planner.a2, token: {file: ./a2.token}}
  anonymous: dev.local.me
  state_dir: none
  allowed_hosts: [Reach.Internal, "[fd00::1]"]
  limits: {body: 1MiB, header_bytes: 32KiB, connections: 50, batch: 7, unsent: 1MiB, stall: 3s}
  max_deadline: 30m
  max_hops: 8
  retry_budget: {ratio: 0, min_per_sec: 0.5}
  affinity: {entries: 500, ttl: 5m}
  connect_timeout: 250ms
  connections_per_origin: 4
  log: {level: warn, access: all}
  ejection: {consecutive: 1, for: 1s}
${TABLE}`);
  t.match(read, {
    listen: { host: '::1', port: 0 },
    mesh: { listen: { host: 'localhost', port: 9001 }, token: { env: 'MESH_TOKEN' } },
    region: 'eu',
    zone: 'eu-1',
    callers: [
      { agent: 'crm.planner.a1', token: { literal: 'not-for-production' } },
      { agent: 'crm.planner.a2', token: { file: './a2.token' } },
    ],
    anonymous: 'dev.local.me',
    stateDir: null,
    allowedHosts: ['reach.internal', '[fd00::1]'],
    limits: { bodyBytes: 1_048_576, headerBytes: 32_768, connections: 50, batch: 7, unsentBytes: 1_048_576, stallMs: 3_000 },
    maxDeadlineMs: 1_800_000,
    maxHops: 8,
    retryBudget: { ratio: 0, minPerSec: 0.5 },
    affinity: { maxEntries: 500, ttlMs: 300_000 },
    connectTimeoutMs: 250,
    connectionsPerOrigin: 4,
    log: { level: 'warn', access: 'all' },
    ejection: { consecutive: 1, forMs: 1_000 },
  });
  t.ok(Object.isFrozen(read) && Object.isFrozen(read.limits) && Object.isFrozen(read.callers[0]));
});

t.test('the table stands in the file or beside it, never both and never nowhere', async (t) => {
  const beside = readSidecarConfig('sidecar: {name: s1, table: ./team.yaml}\n', 'f');
  t.match(beside, { tableFile: './team.yaml', document: null });
  const inside = readSidecarConfig(
    `sidecar: {name: s1}\ncontracts:\n  - {name: a.b.c, version: "1.0.0", acl: public}\nproviders:\n  - {agent_id: a.b.c1, offers: ["a.b.c@1.0.0"], via: s1, endpoint: {type: http, address: "http://127.0.0.1:1"}}\n`,
    'f',
  );
  t.match(inside, { tableFile: null, document: { providers: [{ agentId: 'a.b.c1', via: 's1' }] } }, 'its own name may stand in via');
  t.match(problems('sidecar: {name: s1, table: a.yaml}\ncontracts: []\n'), [/the table stands in this file already \(contracts\)/]);
  t.match(problems('sidecar: {name: s1}\n'), [/there is no table/]);
  t.match(problems('contracts: []\n'), [/sidecar is missing/]);
  t.match(problems(''), [/the file is empty/]);
  t.match(problems('sidecar:\ncontracts: []\n'), [/sidecar is empty/]);
});

t.test('problems of the settings and of the table come together', async (t) => {
  const found = problems('sidecar: {name: s1, max_hops: 0}\ncontracts:\n  - {name: a.b, version: "1.0.0", acl: public}\npolices: []\n');
  t.equal(found.length, 3);
  t.ok(found.some((each) => /max_hops must be a whole number from 1 to 64/.test(each)));
  t.ok(found.some((each) => /^3:12 .*not a capability name/.test(each)));
  t.ok(found.some((each) => /did you mean policies\?/.test(each)));
});

t.test('what is out of range, misspelt or unsafe is refused', async (t) => {
  for (const [line, expected] of [
    ['listen: 7700', /unquoted 7700 is a number/],
    ['listen: ":7700"', /a host and a port/],
    ['listen: "127.0.0.1:70000"', /a host and a port/],
    ['listen: "http://127.0.0.1:7700"', /a host and a port/],
    ['lisen: "127.0.0.1:1"', /did you mean listen\?/],
    ['mesh: {listen: "127.0.0.1:7702"}', /token is missing/],
    ['mesh: {listen: "127.0.0.1:7700", token: {env: T}}', /another one than the agents' port/],
    ['anonymous: dev', /not an agent id/],
    ['callers: [{agent: a.b.c}]', /token is missing/],
    ['callers: [{agent: a.b.c, token: {env: A}}, {agent: a.b.d, token: {env: A}}]', /stands here twice/],
    ['allowed_hosts: ["http://x"]', /not a host name/],
    ['limits: {body: 0}', /body must be from 1KiB/],
    ['limits: {request: 1MiB}', /unknown key "request"/],
    ['max_deadline: 3s2', /not a duration/],
    ['max_deadline: 31d', /at most 30 days/],
    ['retry_budget: {ratio: 20}', /out of range/],
    ['log: {level: verbose}', /level must be one of/],
    ['ejection: {for: 5}', /has no unit/],
    ['affinity: {entries: 0}', /entries must be a whole number/],
  ] as const) {
    const found = inSidecar(line);
    t.equal(found.length, 1, line);
    t.match(found[0], expected, line);
  }
  t.match(problems(`sidecar: {name: s1, listen: "0.0.0.0:7700", anonymous: dev.local.me}\n${TABLE}`), [
    /anonymous calls are for a loopback address only/,
  ]);
  t.match(problems(`sidecar: {name: "S 1"}\n${TABLE}`), [/not the name of a sidecar/]);
});

t.test('a token is never repeated in a problem', async (t) => {
  for (const token of [
    'hunter2',
    '"hunter2 with spaces"',
    '["hunter2hunter2"]',
    '4711471147',
    '{value: hunter2hunter2}',
    '{env: "hunter2 x"}',
    '0471147114',
    '94711471147114711471',
  ]) {
    const found = inSidecar(`callers: [{agent: a.b.c, token: ${token}}]`);
    t.ok(found.length >= 1, token);
    t.notMatch(found.join(), /hunter2|4711/, found.join());
  }
});

t.test('the JSON Schema for editors knows the same keys', async (t) => {
  const schema = configSchema() as { properties: Record<string, { properties?: object }> };
  t.same(Object.keys(schema.properties), ['sidecar', 'contracts', 'providers', 'policies', 'overrides', 'sidecars', 'rules']);
  t.ok('retry_budget' in (schema.properties['sidecar']?.properties ?? {}));
});

t.test('`check` knows settings however they are written, and looks at the table that they name', async (t) => {
  const folder = t.testdir();
  const said = (text: string): string[] =>
    problemsIn(text, join(folder, 'sidecar.yaml')).map((each) => `${each.file.slice(folder.length + 1)}:${each.line} ${each.message}`);
  const settings = 'sidecar: {name: s1}\ncontracts: []\n';
  for (const text of [
    settings,
    `\uFEFF${settings}`,
    settings.replace('sidecar', '"sidecar"'),
    '{"sidecar": {"name": "s1"}, "contracts": []}',
  ])
    t.same(said(text), [], text);
  t.match(said('sidecars: []\nname: s1\n'), [/^sidecar\.yaml:2 unknown key "name"/], 'without settings it is a table');

  const split = 'sidecar: {name: s1, table: table.yaml}\n';
  t.match(said(split), [/table\.yaml cannot be read \(ENOENT\)/]);
  writeFileSync(join(folder, 'table.yaml'), 'contracts:\n  - {name: crm.order.query, version: 1.0.0, alc: public}\n');
  t.match(said(split), [/^table\.yaml:2 unknown key "alc": did you mean acl\?/, /^table\.yaml:2 acl is missing/]);
  writeFileSync(join(folder, 'table.yaml'), 'contracts: []\n');
  t.same(said(split), []);
});

t.test('with a registry the file holds agents, and may hold none', async (t) => {
  const registry = (more = '{}'): string => `sidecar: {name: s1, registry: ${more}}\n`;
  t.match(config(registry()).registry, {
    servers: ['nats://127.0.0.1:4222'],
    env: 'default',
    credential: null,
    heartbeatMs: 45_000,
    leaseMs: 135_000,
    staleAfterMs: 5_000,
  });
  t.match(
    config(
      registry(
        '{nats: "nats://a:1,tls://b:2", env: prod, credential: {user: u, password: {env: P}}, heartbeat: 1s, lease: 3s, stale_after: 2s}',
      ),
    ).registry,
    {
      servers: ['nats://a:1', 'tls://b:2'],
      env: 'prod',
      credential: { user: 'u', password: { env: 'P' } },
      heartbeatMs: 1_000,
      leaseMs: 3_000,
      staleAfterMs: 2_000,
    },
  );
  t.match(config(registry('{credential: {creds_file: ./me.creds}}')).registry, { credential: { credsFile: './me.creds' } });
  t.match(config(registry('{credential: {token: {file: ./t}}}')).registry, { credential: { token: { file: './t' } } });
  t.match(config(registry('{credential: {nkey: {file: ./me.nk}}, tls: {ca: ./ca.pem}}')).registry, {
    credential: { nkey: { file: './me.nk' } },
    tls: { caFile: './ca.pem', certFile: null, keyFile: null },
  });
  for (const [more, expected] of [
    ['{nats: "nats://u:p@a"}', /holds no user name or password/],
    ['{nats: "http://a"}', /not the address of a NATS server/],
    ['{env: "a.b"}', /not the name of an environment/],
    ['{env: "*"}', /not the name of an environment/],
    ['{credential: {user: u}}', /go together/],
    ['{credential: {token: {env: T}, nkey: {env: K}}}', /give one of user and password, token, creds_file, or nkey/],
    ['{tls: {cert: ./me.pem}}', /cert and key go together/],
    ['{credential: {user: u, password: {env: P}, token: {env: T}}}', /give one of/],
    ['{heartbeat: 45s, lease: 60s}', /at least two heartbeats/],
    ['{stale: 5s}', /unknown key "stale"/],
  ] as const)
    t.match(problems(registry(more)).join('\n'), expected, more);
  t.match(problems('sidecar: {name: s.1, registry: {}}\n').join('\n'), /cannot be the name of a sidecar in a registry/);
  t.strictSame(problems(`sidecar: {name: s.1}\n${TABLE}`), [], 'without one it may have dots');
});

t.test('with a registry what the operators decide has no place in the file', async (t) => {
  const head = 'sidecar: {name: s1, registry: {}}\ncontracts: [{name: a.b.c, version: "1.0.0", acl: public}]\n';
  const agent = (via: string): string =>
    `providers: [{agent_id: a.b.c1, offers: ["a.b.c@1.0.0"]${via}, endpoint: {type: http, address: "http://127.0.0.1:1"}}]\n`;
  t.strictSame(problems(head + agent(', via: s1')), []);
  t.strictSame(problems(head + agent('')), [], 'a third party');
  t.match(problems(`${head}${agent('')}policies: [{capability: "*", timeout: 1s}]\n`), [
    /4:1 \/policies with a registry policies are the operators' affair/,
  ]);
  t.match(
    problems(`${head}${agent('')}overrides: [{name: x, action: block, capability: a.b.c, reason: r, author: me}]\n`).join('\n'),
    /overrides are the operators' affair/,
  );
  t.match(problems(`${head}${agent(', via: s2')}sidecars: [{name: s2, mesh: "http://127.0.0.1:9"}]\n`), [
    /the addresses of sidecars come from it/,
    /hosted by s2/,
  ]);
  t.match(problems(head), [/no provider here offers a\.b\.c/]);
  t.strictSame(problems(`sidecar: {name: s1, registry: {}}\n${agent('')}`), [], 'its contract may be known to the registry already');
  t.match(problems(`sidecar: {name: s1}\n${agent('')}`).join('\n'), /no contract is called/);
});

t.test('a mesh port on every address says where it is reached', async (t) => {
  const mesh = (more: string, registry = ', registry: {}'): string[] =>
    problems(`sidecar: {name: s1${registry}, mesh: {token: not-for-production, ${more}}}\n${TABLE}`);
  t.match(mesh('listen: "0.0.0.0:7701"'), [/advertise is missing/]);
  t.match(mesh('listen: "[::]:7701"'), [/advertise is missing/]);
  t.strictSame(mesh('listen: "0.0.0.0:7701", advertise: "http://s1.mesh:7701/"'), []);
  t.strictSame(mesh('listen: "0.0.0.0:7701"', ''), [], 'standalone it stands in the others’ tables');
  t.match(mesh('listen: "0.0.0.0:7701", advertise: "s1:7701"'), [/begins with http/]);
  t.match(config(`sidecar: {name: s1, mesh: {token: not-for-production, advertise: "http://s1.mesh:7701/"}}\n${TABLE}`).mesh, {
    advertise: 'http://s1.mesh:7701',
  });
});

t.test('the schema for editors knows the keys of every endpoint type, and takes what the sidecar takes', (t) => {
  const kinds = registerTransports(null);
  const schema = withEndpointTypes(documentSchema(), endpointTables(kinds));
  const compiled = compileSchema(schema);
  if ('problem' in compiled) throw new Error(compiled.problem);
  const verdict = (endpoint: object): boolean =>
    compiled.validator.validate({ providers: [{ agent_id: 'a.b.c', offers: ['a.b.c@1.0.0'], endpoint }] }) === null;
  const credential = { secret: { env: 'TOKEN' } };
  const good: Record<string, object> = {
    http: { address: 'http://x.test', path: '/{capability}', credential },
    jsonrpc: { address: 'http://x.test/rpc', params: 'by_position', methods: { 'a.b.c': 'do' }, credential },
    grpc: { address: 'x.test:1', service: 'shop.v1.Orders', max_message: '8MiB', credential },
    nats: { address: 'nats://x.test:4222', mode: 'publish', subject: 'a.b', credential },
    channel: {},
    local: {},
  };
  for (const [type, keys] of Object.entries(good)) {
    t.ok(verdict({ type, ...keys }), type);
    t.notOk(verdict({ type, ...keys, no_such_key: 1 }), `${type}: a key that it does not have`);
    const read = readDocumentOf(`{type: ${type}, ${JSON.stringify(keys).slice(1, -1)}}`);
    t.strictSame(read, [], `${type}: the reader says the same`);
  }
  t.notOk(verdict({ type: 'jsonrpc', address: 'http://x.test', params: 'by_wish' }), 'a value that it does not have');
  t.notOk(verdict({ type: 'grpc', address: 'x.test:1', subject: 'a.b' }), 'the key of another type');
  t.notOk(verdict({ type: 'channel', address: 'http://x.test' }), 'a channel has no address');
  t.notOk(verdict({ address: 'http://x.test' }), 'the type has to be said');
  t.ok(verdict({ type: 'mock', answers: [] }), 'what no table describes is left to the sidecar');
  t.strictSame(
    endpointTypes(kinds).filter((type) => !(type in good)),
    ['mock'],
    'no type was forgotten',
  );
  t.end();

  function readDocumentOf(endpoint: string): readonly string[] {
    const reading = readTable(
      `contracts: [{name: a.b.c, version: 1.0.0, acl: public}]\nproviders: [{agent_id: a.b.c, offers: [a.b.c@1.0.0], endpoint: ${endpoint}}]`,
      'table.yaml',
    );
    if ('problems' in reading) return reading.problems.map(({ message }) => message);
    const provider = reading.document.providers[0];
    if (provider === undefined) return ['there is no provider'];
    return kinds[provider.endpoint.type]?.problems(provider.endpoint) ?? ['no such type'];
  }
});
