/**
 * Issued identities with real processes: a control plane, sidecars that demand them over mutual TLS, agents with tokens. What
 * is refused here must not have reached the provider either.
 */
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { createPrivateKey, type KeyObject } from 'node:crypto';
import { SignJWT } from 'jose';
import t, { type Test } from 'tap';
import { WebSocket } from 'ws';
import { keyIdOf, publicText } from '../../base/ed25519.ts';
import { makeAuthority, makeSidecarCertificate } from '../../control-plane/identity/ca.ts';
import type { AclTestAnswer } from '../../control-plane/api/acl-shapes.ts';
import { decodeEnvelope, type Envelope, encodeEnvelope } from '../../proto/wire/envelope.ts';
import { issuerOf, TOKEN_TYPE } from '../../proto/wire/identity.ts';
import { ENV, OPERATOR } from '../support/control-plane.ts';
import { CALLER, IdentityWorld, OTHER, QUERY, type Sidecar, tokenIn } from '../support/identity-world.ts';
import { waitUntil } from '../support/settle.ts';

t.setTimeout(180_000);

const FRONT = 'front-side';
const ORDER = 'order-side';
const DAY_SEC = 86_400;
const nowSec = (): number => Math.floor(Date.now() / 1_000);

interface Shown {
  readonly cert: string;
  readonly key: string;
  readonly ca: string;
}

interface PeerAnswer {
  readonly status: number;
  readonly code: string | undefined;
  readonly detail: string;
}

/** A call on the mesh port as a sidecar makes it, with whatever certificate and statement. Rejects when there is no TLS. */
function peerCall(mesh: string, shown: Partial<Shown>, agent: string, home: string | null): Promise<PeerAnswer> {
  return new Promise((resolve, reject) => {
    const asked = httpsRequest(
      `${mesh}/mesh/v1/invoke/${QUERY}`,
      {
        method: 'POST',
        agent: false,
        ...shown,
        checkServerIdentity: () => undefined,
        headers: {
          'content-type': 'application/json',
          'reach-wire': '1',
          'reach-provider': 'crm.order.1',
          'reach-version': '2.0.0',
          'reach-caller': agent,
          'reach-deadline-ms': '2000',
          'reach-deadline-total-ms': '2000',
          ...(home === null ? {} : { 'reach-home': home }),
        },
      },
      (response) => {
        response.resume();
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            code: response.headers['reach-code'] as string | undefined,
            detail: decodeURIComponent(String(response.headers['reach-detail'] ?? '')),
          }),
        );
      },
    );
    asked.on('error', reject);
    asked.end('{}');
  });
}

function certificateServed(mesh: string, shown: Shown): Promise<string> {
  const { hostname, port } = new URL(mesh);
  return new Promise((resolve, reject) => {
    const socket: TLSSocket = connect({ host: hostname, port: Number(port), ...shown, checkServerIdentity: () => undefined }, () => {
      resolve(socket.getPeerCertificate().fingerprint256);
      socket.destroy();
    });
    socket.on('error', reject);
  });
}

function statement(key: KeyObject, kid: string, claims: Readonly<Record<string, unknown>>): Promise<string> {
  const whole = { iss: issuerOf(ENV), aud: 'home', iat: nowSec(), nbf: nowSec(), exp: nowSec() + DAY_SEC, jti: randomUUID(), ...claims };
  return new SignJWT(whole).setProtectedHeader({ alg: 'EdDSA', kid, typ: TOKEN_TYPE }).sign(key);
}

/** The API of the control plane, for what only looks. */
async function look(world: IdentityWorld, path: string): Promise<{ readonly [key: string]: any }> {
  const response = await fetch(`${world.controlUrl}${path}`, { headers: { authorization: `Bearer ${OPERATOR}` } });
  return (await response.json()) as { readonly [key: string]: any };
}

function cast(sidecar: Sidecar, token: string): Promise<Response> {
  return fetch(`${sidecar.url}/v1/cast/${QUERY}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: '{"order":"cast"}',
  });
}

/** Calls one after another until it is told to stop; every answer that is not a success is kept. */
class Caller {
  readonly failures: string[] = [];
  calls = 0;
  #isStopped = false;
  readonly #done: Promise<void>;

  constructor(sidecar: Sidecar, token: () => string) {
    this.#done = this.#run(sidecar, token);
  }

  async #run(sidecar: Sidecar, token: () => string): Promise<void> {
    while (!this.#isStopped) {
      const { status, json } = await sidecar.call(token());
      this.calls++;
      if (status !== 200) this.failures.push(JSON.stringify(json));
      await new Promise((done) => setTimeout(done, 5));
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#done;
  }
}

const wait = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

async function ready(world: IdentityWorld): Promise<{ front: Sidecar; order: Sidecar; mesh: string }> {
  await Promise.all([world.equip(FRONT), world.equip(ORDER)]);
  const order = await world.host(ORDER);
  const front = await world.sidecar(FRONT, { tls: `tls: ${world.tls(FRONT)}` });
  const mesh = (await order.program.said(/mesh (https:\/\/127\.0\.0\.1:\d+)/))[1] as string;
  await waitUntil(
    'the order agent is registered',
    async () => (await order.ask('/v1/health')).json['registry']?.announced === true,
    10_000,
    50,
  );
  await waitUntil('keys are there', async () => (await front.ask('/v1/health')).json['security']?.identity?.trusted_keys > 0, 10_000, 50);
  return { front, order, mesh };
}

function shownBy(world: IdentityWorld, name: string): Shown {
  return {
    cert: readFileSync(world.path(name, `${name}.pem`), 'utf8'),
    key: readFileSync(world.path(name, `${name}-key.pem`), 'utf8'),
    ca: readFileSync(world.path('ca', 'ca.pem'), 'utf8'),
  };
}

t.test('identities from the first token to the last', async (t: Test) => {
  const world = await IdentityWorld.start(t);
  const { front, order, mesh } = await ready(world);
  const { agent } = world;
  let token = '';

  t.test('a token is issued by one command, and the first call with it goes through two sidecars', async (t) => {
    t.equal(statSync(world.path('keys', 'signing-key.pem')).mode & 0o777, 0o600, 'keys are for their owner');
    t.equal(statSync(world.path(FRONT, 'token')).mode & 0o777, 0o600);
    const before = await front.call('eyJ.not.a-token');
    t.match(before, { status: 401, json: { code: 4001 } });
    token = tokenIn(await world.ctl('agent', 'add', CALLER, '--reason', 'first'));
    const { status, json } = await front.call(token);
    t.equal(status, 200, JSON.stringify(json));
    t.match(json, { code: 0, provider: 'crm.order.1' });
    const [got] = agent.requests;
    t.equal(got?.headers['reach-caller'], CALLER);
    t.notOk(got?.headers['authorization'], 'the token stays at its sidecar');
    t.notOk(got?.headers['reach-home'], 'and the statement between sidecars');
    await t.rejects(world.ctl('agent', 'add', CALLER), /rotate it, or revoke it first/);
  });

  t.test('what a caller says of itself is passed to nobody', async (t) => {
    const forged = {
      'reach-caller': 'ops.root.1',
      'reach-home': 'x.y.z',
      'reach-path': 'ops.root.1>crm.order.query',
      'x-reach-caller': 'a',
    };
    const before = agent.executions;
    const { status } = await front.call(token, { 'reach-caller': forged['reach-caller'], 'reach-home': forged['reach-home'] });
    t.equal(status, 200);
    t.equal(agent.requests[before]?.headers['reach-caller'], CALLER, 'stamped anew');
    t.notOk(agent.requests[before]?.headers['reach-home']);
  });

  t.test('a token for one sidecar is refused at another', async (t) => {
    const before = agent.executions;
    const bound = tokenIn(await world.ctl('agent', 'add', 'crm.bot.bound', '--home', ORDER));
    t.match(await front.call(bound), { status: 401, json: { code: 4001, error: { detail: /may not be used at the sidecar front-side/ } } });
    t.equal((await order.call(bound)).status, 200, 'and taken at its own');
    t.equal(agent.executions, before + 1);
  });

  t.test('the peer has to prove that the agent is at home there', async (t) => {
    const before = agent.executions;
    const own = shownBy(world, FRONT);
    const real = createPrivateKey(readFileSync(world.path('keys', 'signing-key.pem')));
    const kid = keyIdOf(publicText(real));
    const { privateKey: forger } = generateKeyPairSync('ed25519');
    const about = { sub: CALLER, via: FRONT };
    const attempts: readonly (readonly [string, string | null, RegExp])[] = [
      ['none', null, /no statement/],
      ['no token at all', 'nonsense', /no token of Agent-Reach/],
      ['signed by another key', await statement(forger, keyIdOf(publicText(forger)), about), /key that is not trusted/],
      ['signed by another key under the id of ours', await statement(forger, kid, about), /signature is wrong/],
      ['run out', await statement(real, kid, { ...about, iat: nowSec() - 2 * DAY_SEC, exp: nowSec() - 120 }), /has expired/],
      ['of tomorrow', await statement(real, kid, { ...about, nbf: nowSec() + 3_600 }), /not valid yet/],
      ['about another agent', await statement(real, kid, { ...about, sub: OTHER }), /about another agent/],
      ['given to another sidecar', await statement(real, kid, { ...about, via: ORDER }), /given to another sidecar/],
      ['of another environment', await statement(real, kid, { ...about, iss: issuerOf('prod') }), /another environment/],
      ["the agent's own token in its place", token, /an agent's token/],
    ];
    for (const [what, home, why] of attempts) {
      const answer = await peerCall(mesh, own, CALLER, home);
      t.match(answer, { status: 401, code: '4001', detail: why }, what);
    }
    t.equal(agent.executions, before, 'no call has reached the provider');
    t.equal(
      (await peerCall(mesh, own, CALLER, await statement(real, kid, about))).code,
      '0',
      'a good one counts: the test itself is no refusal',
    );
    const metrics = (await order.ask('/metrics')).json['text'] as string;
    t.match(metrics, /reach_identity_events_total\{event="home_refused"\} 10\n/);
  });

  t.test('a connection without a certificate of this mesh is none', async (t) => {
    const before = agent.executions;
    const own = shownBy(world, FRONT);
    const pair = { certificate: own.ca, key: readFileSync(world.path('ca', 'ca-key.pem'), 'utf8') };
    const issued = async (
      ca: typeof pair,
      env: string,
      name: string,
      from = Date.now(),
      ttl = DAY_SEC * 1_000,
    ): Promise<Partial<Shown>> => {
      const made = await makeSidecarCertificate(ca, env, name, from, ttl);
      return { cert: made.certificate, key: made.key, ca: own.ca };
    };
    const strangers = await makeAuthority('somebody else', Date.now(), 10 * DAY_SEC * 1_000);
    const attempts: readonly (readonly [string, Partial<Shown>])[] = [
      ['none', { ca: own.ca }],
      ['of another authority', await issued(strangers, ENV, FRONT)],
      ['of another environment', await issued(pair, 'prod', FRONT)],
      ['that has run out', await issued(pair, ENV, FRONT, Date.now() - 2 * DAY_SEC * 1_000, DAY_SEC * 1_000)],
      ['of the authority itself', { cert: pair.certificate, key: pair.key, ca: own.ca }],
    ];
    for (const [what, shown] of attempts) await t.rejects(peerCall(mesh, shown, CALLER, null), { code: /ECONNRESET|ERR_SSL|EPIPE/ }, what);
    const plain = await fetch(mesh.replace('https:', 'http:')).then(
      ({ status }) => status,
      () => 'refused',
    );
    t.equal(plain, 'refused', 'nor is one in clear text');
    t.equal(agent.executions, before);
  });

  t.test('a message is verified where it is accepted, stamped, and carried out in the name of who sent it', async (t) => {
    const before = agent.executions;
    const post = async (path: string, credential: string, body: object): Promise<{ status: number; json: Record<string, unknown> }> => {
      const headers = { authorization: `Bearer ${credential}`, 'content-type': 'application/json', 'reach-caller': 'ops.root.1' };
      const response = await fetch(`${front.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
      return { status: response.status, json: (await response.json()) as Record<string, unknown> };
    };
    await waitUntil('it is accepted', async () => (await post(`/v1/cast/${QUERY}`, token, { order: 'cast' })).status === 202, 10_000, 200);
    await waitUntil('it is carried out', () => agent.executions > before, 10_000, 20);
    t.equal(agent.requests[before]?.headers['reach-caller'], CALLER);
    t.notOk(agent.requests[before]?.headers['authorization']);
    const forged = await post('/v1/messages', token, { target: { capability: QUERY }, source: 'ops.root.1', payload: {} });
    t.match(forged, { status: 400 }, JSON.stringify(forged.json));
    t.match(await post(`/v1/cast/${QUERY}`, 'eyJ.no.token', {}), { status: 401, json: { code: 4001 } });
    const outsider = await world.token('ops.root.1');
    t.match(await post(`/v1/cast/${QUERY}`, outsider, {}), { status: 403, json: { code: 4002 } }, 'the list of who may is asked here, too');
    t.match(await front.call(outsider), { status: 403, json: { code: 4002 } });
  });

  t.test('a message that another sidecar writes in the name of an agent is refused where it would be worked on', async (t) => {
    const bus = await world.nats.connect();
    const seen: { subject: string; data: Buffer }[] = [];
    bus.subscribe('ar.test.task.>', ({ subject, data }) => void seen.push({ subject, data: Buffer.from(data) }));
    await wait(100);
    const started = agent.executions;
    t.equal((await cast(front, token)).status, 202);
    await waitUntil('a true one is carried out', () => agent.executions === started + 1, 10_000, 50);
    const { subject, data } = seen[0] as { subject: string; data: Buffer };
    const { envelope, payload } = decodeEnvelope(data) as { envelope: Envelope; payload: Buffer };
    t.ok((envelope.home_statement ?? '').length > 100, 'it carries the statement');
    const { home_statement: shown, ...bare } = envelope;
    const forged: readonly Envelope[] = [
      { ...bare, task_id: 'forged000001', power_id: 'p1' },
      { ...bare, task_id: 'forged000002', power_id: 'p2', source: OTHER, reply_to: null, home_statement: shown as string },
      { ...bare, task_id: 'forged000003', power_id: 'p3', home_statement: `${(shown as string).slice(0, -6)}AAAAAA` },
    ];
    for (const each of forged) t.match(await bus.append(subject, encodeEnvelope(each, payload)), { seq: Number });
    const refused = async (): Promise<{ code: number; reason: string; count: number; writer: string }[]> =>
      (await look(world, '/v1/audit?action=message.refused'))['entries'].filter(({ code }: { code: number }) => code === 4001);
    await waitUntil('each is refused', async () => (await refused()).reduce((sum, { count }) => sum + count, 0) >= 3, 15_000, 100);
    for (const entry of await refused()) t.match(entry, { code: 4001, writer: `sidecar:${ORDER}`, reason: /which is not believed: / });
    t.equal(agent.executions, started + 1, 'none of them was carried out');
  });

  t.test('reachctl says whether an agent may call, at both ends, and why', async (t) => {
    const may = (await look(world, `/v1/acl/test?caller=${CALLER}&target=${QUERY}@%5E2`)) as AclTestAnswer;
    t.match(may, {
      allowed: true,
      against: [],
      identity: 'valid',
      versions: [{ version: '2.0.0', by: 'team:crm', mode: 'enforce', admits: true }],
    });
    t.match(
      may.callers_end.find(({ sidecar }) => sidecar === FRONT)?.words.join('\n'),
      /acl: crm\.bot\.a1 may call crm\.order\.query: admitted by team:crm/,
    );
    t.match(may.providers_end, [{ sidecar: ORDER, allowed: true }]);
    const words = await world.ctl('acl', 'test', 'web.shop.1', QUERY).then(
      () => '',
      (error: Error) => error.message,
    );
    t.match(words, /exit 1\n.*web\.shop\.1 may not call crm\.order\.query/);
    t.match((await look(world, `/v1/acl/who?target=${QUERY}`))['agents'], [{ agent: CALLER, by: ['team:crm'] }]);
  });

  t.test('a certificate that is replaced comes into force without a dropped call', async (t) => {
    const own = shownBy(world, FRONT);
    const served = await certificateServed(mesh, own);
    const caller = new Caller(front, () => token);
    mkdirSync(world.path('fresh'), { recursive: true });
    for (const name of [ORDER, FRONT]) {
      await world.ctl('sidecar', 'cert', name, '--ca', world.path('ca'), '--env', ENV, '--out', world.path('fresh'));
      for (const file of [`${name}-key.pem`, `${name}.pem`]) {
        copyFileSync(world.path('fresh', file), world.path(name, `${file}.new`));
        renameSync(world.path(name, `${file}.new`), world.path(name, file));
      }
    }
    await waitUntil('the new one is served', async () => (await certificateServed(mesh, own)) !== served, 10_000, 50);
    // Kept connections end after some seconds of rest; the ones after them show the new certificate.
    await wait(300);
    await caller.stop();
    t.same(caller.failures, []);
    t.ok(caller.calls > 10, `${caller.calls} calls`);
    writeFileSync(world.path(ORDER, `${ORDER}.pem`), 'half a file');
    await waitUntil(
      'it is said',
      async () => (await order.ask('/v1/health')).json['security'].mesh_certificate.trouble !== null,
      10_000,
      50,
    );
    t.equal((await front.call(token)).status, 200, 'a bad one changes nothing');
    copyFileSync(world.path('fresh', `${ORDER}.pem`), world.path(ORDER, `${ORDER}.pem`));
  });

  t.test('the key that signs is replaced, and no call is refused', async (t) => {
    let inUse = token;
    const caller = new Caller(front, () => inUse);
    await world.ctl('identity', 'init', '--out', world.path('keys-2'));
    await world.control.stop();
    const former = world.path('keys', 'signing-key.pem');
    await world.startControl(`    previous_keys: [{file: "${former}"}]\n    settle: 1s\n`, world.path('keys-2', 'signing-key.pem'));
    const kids = async (): Promise<{ kid: string; signs: boolean }[]> => JSON.parse(await world.ctl('--json', 'identity', 'keys'))['keys'];
    const [fresh, old] = await kids();
    t.ok(old !== undefined, 'both count');
    await waitUntil('the new one signs', async () => (await kids()).find(({ kid }) => kid === fresh?.kid)?.signs === true, 10_000, 100);
    const rotated = tokenIn(await world.ctl('agent', 'rotate', CALLER));
    t.equal(JSON.parse(Buffer.from(rotated.split('.')[0] as string, 'base64url').toString('utf8'))['kid'], fresh?.kid);
    inUse = rotated;
    await wait(300);
    await caller.stop();
    t.same(caller.failures, []);
    t.ok(caller.calls > 20, `${caller.calls} calls`);
    t.equal((await front.call(token)).status, 200, 'the token before it counts for a while');
    token = rotated;
  });

  t.test('without the control plane calls go on, also of a sidecar that starts anew', async (t) => {
    await world.control.stop();
    t.equal((await front.call(token)).status, 200);
    await wait(1_200);
    await front.restart();
    await waitUntil('it has its last good table', async () => (await front.ask('/v1/ready')).status === 200, 10_000, 50);
    const { status, json } = await front.call(token);
    t.equal(status, 200, JSON.stringify(json));
    const former = world.path('keys', 'signing-key.pem');
    await world.startControl(`    previous_keys: [{file: "${former}"}]\n`, world.path('keys-2', 'signing-key.pem'));
  });

  t.test('a token that is revoked is refused within a second, and what is open for it ends', async (t) => {
    const channel = new WebSocket(`${front.url.replace('http', 'ws')}/v1/channel`, { headers: { authorization: `Bearer ${token}` } });
    const closed = new Promise<number>((done) => channel.on('close', (code) => done(code)));
    await new Promise((done, fail) => channel.once('open', done).once('error', fail));
    t.equal((await front.call(token)).status, 200);
    const home = await statement(
      createPrivateKey(readFileSync(world.path('keys-2', 'signing-key.pem'))),
      keyIdOf(publicText(createPrivateKey(readFileSync(world.path('keys-2', 'signing-key.pem'))))),
      { sub: CALLER, via: FRONT },
    );
    t.equal((await peerCall(mesh, shownBy(world, FRONT), CALLER, home)).code, '0');
    const began = performance.now();
    await world.order(`/v1/identities/${CALLER}/revoke`, { reason: 'stolen' });
    await waitUntil('refused', async () => (await front.call(token)).status === 401, 5_000, 5);
    const ms = performance.now() - began;
    t.ok(ms < 1_000, `refused after ${Math.round(ms)} ms`);
    const before = agent.executions;
    t.match(await front.call(token), { status: 401, json: { code: 4001, error: { detail: /has been revoked/ } } });
    t.equal(await closed, 4004, 'the channel that was opened with it');
    await waitUntil(
      'the statement about it counts no more either',
      async () => (await peerCall(mesh, shownBy(world, FRONT), CALLER, home)).code === '4001',
      1_000,
      20,
    );
    t.equal(agent.executions, before);
    const again = tokenIn(await world.ctl('agent', 'add', CALLER));
    const { status, json } = await front.call(again);
    t.equal(status, 200, `whoever is given another one is let in with it: ${JSON.stringify(json)}`);
    t.match(await front.call(token), { status: 401 });
  });

  t.test('a sidecar that is revoked is believed by nobody', async (t) => {
    const fresh = tokenIn(await world.ctl('agent', 'add', OTHER));
    t.equal((await front.call(fresh)).status, 200);
    await world.ctl('sidecar', 'revoke', FRONT);
    const before = agent.executions;
    await waitUntil('refused', async () => (await front.call(fresh)).json['code'] === 4001, 2_000, 20);
    const after = agent.executions;
    t.ok(after - before < 20);
    t.match((await front.call(fresh)).json, { code: 4001 });
    t.equal(agent.executions, after);
  });

  t.test('what was ordered stands in the audit, and no token stands anywhere', async (t) => {
    const audit = JSON.parse(await world.ctl('--json', 'audit'))['entries'] as { action: string; actor: string }[];
    for (const what of ['agent.add', 'agent.rotate', 'agent.revoke', 'sidecar.add', 'sidecar.revoke'])
      t.ok(
        audit.some((entry) => entry.action === what && entry.actor === 'ada'),
        what,
      );
    const tokens = [token, readFileSync(world.path(FRONT, 'token'), 'utf8').trim()];
    const written =
      [order, front].map(({ program }) => program.stdout + program.stderr).join('') + world.control.stdout + world.control.stderr;
    const state = [FRONT, ORDER].map((name) => join(world.folder, '.reach', `${name}.tails`)).filter((file) => existsSync(file));
    const kept = state.map((file) => readFileSync(file, 'utf8')).join('');
    for (const each of tokens) {
      t.notOk((written + kept + JSON.stringify(audit)).includes(each));
      t.notOk((written + kept).includes(each.split('.')[2] as string), 'nor its signature');
    }
  });
});
