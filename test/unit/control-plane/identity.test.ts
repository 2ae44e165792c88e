import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { realClock } from '../../../base/clock.ts';
import { newKeyPair } from '../../../base/ed25519.ts';
import { runReachctl } from '../../../control-plane/cli/program.ts';
import {
  endingAt,
  issuedAt,
  liveOf,
  merged,
  nobody,
  readIdentity,
  revocations,
  revokedWhole,
  withToken,
} from '../../../control-plane/identity/book.ts';
import type { HomeAnswer, TrustState } from '../../../proto/wire/identity.ts';
import { Tail } from '../../../proto/wire/subjects.ts';
import { Trust, verifyToken } from '../../../proto/wire/token.ts';
import { ENV, FakeSidecar, OPERATOR, Plane, VIEWER } from '../../support/control-plane.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

t.setTimeout(60_000);

const AGENT = 'crm.bot.a1';
const record = (jti: string, iat: number, exp: number) => ({ jti, iat, exp, homes: null, by: 'ada', revokedFrom: null });

t.test('the book: what was taken back stays so for as long as it could have counted', async (t) => {
  const empty = nobody('agent', AGENT, 'e');
  const two = withToken(withToken(empty, record('T-one', 100, 1_000), 100), record('T-two', 200, 1_000), 200);
  t.equal(liveOf(two, 300).length, 2);
  const rotated = endingAt(two, ({ jti }) => jti === 'T-one', 400);
  t.equal(liveOf(rotated, 399).length, 2);
  t.equal(liveOf(rotated, 400).length, 1);
  t.same(revocations([rotated], 300).tokens, [{ jti: 'T-one', from: 400, until: 1_060 }]);
  t.same(revocations([rotated], 1_060).tokens, [], 'it has ended by itself');
  const gone = revokedWhole(rotated, 500, 86_400);
  t.equal(liveOf(gone, 500).length, 0);
  t.same(
    revocations([gone], 500),
    { tokens: [], subjects: [{ kind: 'agent', sub: AGENT, before: 500, until: 500 + 90 * 86_400 + 60 }] },
    'also for a message that has waited for weeks',
  );
  t.equal(issuedAt(gone, 500.9), 501, 'what is issued in the same second begins in the next one');
  const again = withToken(gone, record('T-three', 501, 2_000), 501);
  t.equal(liveOf(again, 600).length, 1);
  const back = merged(two, again);
  t.equal(liveOf(back, 600).length, 1, 'an older account brings nothing back');
  t.same(readIdentity(JSON.parse(JSON.stringify(back))), { ...back, epoch: '' });
  for (const bad of [null, 7, {}, { ...back, name: 'x' }, { ...back, tokens: [{}] }, { ...back, revokedBefore: 'y' }])
    t.equal(readIdentity(bad), null);
});

async function issuing(t: Test, more = '') {
  const folder = mkdtempSync(join(tmpdir(), 'reach-issuing-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const key = join(folder, 'key.pem');
  writeFileSync(key, newKeyPair().privatePem, { mode: 0o600 });
  const nats = await NatsServer.start(t);
  const plane = await Plane.start(t, nats, 'cp-1', `  identity:\n    signing_key: {file: "${key}"}\n${more}`);
  await plane.leads();
  return { nats, plane, folder, key };
}

function trustIn(plane: Plane): Trust {
  const state = plane.control.mirror.state<TrustState>(Tail.trust);
  if (state === null) throw new Error('no trust document');
  return new Trust(state);
}

t.test('orders: issued once, rotated, taken back, audited; and who may give them', async (t) => {
  const { plane } = await issuing(t);
  const post = (path: string, json: object, token = OPERATOR) => plane.ask(path, { json, token });
  const made = await post('/v1/identities', { kind: 'agent', name: AGENT, ttl: '10d', homes: ['b', 'a'] });
  t.match(made, { status: 201, body: { kind: 'agent', name: AGENT, homes: ['a', 'b'], seq: Number } });
  const token = made.body['token'] as string;
  const verified = verifyToken(token, trustIn(plane), 'agent');
  t.match(verified, { claims: { sub: AGENT, iss: `reach:${ENV}`, aud: 'agent', homes: ['a', 'b'] } });
  if (!('claims' in verified)) throw new Error('unreachable');
  t.equal(verified.claims.exp - verified.claims.iat, 864_000);
  for (const [json, status, why] of [
    [{ kind: 'agent', name: AGENT }, 409, /rotate it, or revoke it first/],
    [{ kind: 'agent', name: 'crm.bot' }, 400, /team\.role/],
    [{ kind: 'sidecar', name: 'Not_A.Name' }, 400, /name of a sidecar/],
    [{ kind: 'operator', name: 'ada' }, 400, /agent or sidecar/],
    [{ kind: 'sidecar', name: 's1', homes: ['a'] }, 400, /homes are for agents/],
    [{ kind: 'agent', name: 'crm.bot.x', ttl: '500d' }, 400, /too long/],
    [{ kind: 'agent', name: 'crm.bot.x', ttl: 10 }, 400, /no unit/],
    [{ kind: 'agent', name: 'crm.bot.x', homes: [] }, 400, /list of 1 to/],
    [{ kind: 'agent', name: 'crm.bot.x', key: 1 }, 400, /unknown key/],
  ] as const)
    t.match(await post('/v1/identities', json), { status, body: { detail: why } }, JSON.stringify(json));
  t.equal((await post('/v1/identities', { kind: 'agent', name: 'crm.bot.y' }, VIEWER)).status, 403);
  t.equal((await plane.ask('/v1/identities', { token: null })).status, 401);

  const second = await post(`/v1/identities/${AGENT}/rotate`, { overlap: '0s' });
  t.match(second, { status: 201, body: { homes: ['a', 'b'] } }, 'for the same homes');
  t.notOk('why' in verifyToken(second.body['token'] as string, trustIn(plane), 'agent'));
  const listed = await plane.ask('/v1/identities?kind=agent', { token: VIEWER });
  t.match(listed.body['identities'], [{ name: AGENT, status: 'valid', tokens: [{ status: 'revoked' }, { status: 'valid', by: 'ada' }] }]);
  t.notOk(JSON.stringify(listed.body).includes(token.split('.')[2] as string));
  t.match(await post('/v1/identities/crm.bot.nobody/rotate', {}), { status: 404 });

  const { jti } = second.body as { jti: string };
  t.match(await post(`/v1/identities/${jti}/revoke`, { reason: 'lost' }), { status: 200, body: { name: AGENT, revoked: jti } });
  t.ok(trustIn(plane).isRevokedBefore('agent', AGENT, verified.claims.iat), 'with its last token an agent is at home nowhere');
  t.match(await post(`/v1/identities/${AGENT}/revoke`, {}), { status: 409, body: { detail: /revoked already/ } });
  t.match(await post('/v1/identities/T-unknown-0/revoke', {}), { status: 404 });
  const again = await post('/v1/identities', { kind: 'agent', name: AGENT });
  t.equal(again.status, 201);
  const fresh = verifyToken(again.body['token'] as string, trustIn(plane), 'agent');
  t.ok('claims' in fresh && !trustIn(plane).isRevokedBefore('agent', AGENT, fresh.claims.iat), 'a new one counts');

  const { body } = await plane.ask('/v1/audit?outcome=done');
  t.same(
    (body['entries'] as { action: string }[]).map(({ action }) => action),
    ['agent.add', 'agent.revoke', 'agent.rotate', 'agent.add'],
  );
  t.notOk(JSON.stringify(body).includes(token));
  t.notOk(JSON.stringify(plane.lines).includes(token));

  const exported = await plane.ask('/v1/export');
  t.match(exported.body['identities'], [{ name: AGENT, revokedBefore: Number }]);
  t.match(await plane.ask('/v1/import', { json: exported.body }), { status: 200 });
  t.ok(trustIn(plane).isRevokedBefore('agent', AGENT, verified.claims.iat), 'what was taken back comes with an import');
});

t.test('a sidecar is told of its own agents only, and only with its own token', async (t) => {
  const { nats, plane } = await issuing(t);
  const sidecar = await FakeSidecar.join(nats, 'front', { 'crm.order.a': ['crm.order.query@2.0.0'] });
  const other = await FakeSidecar.join(nats, 'elsewhere', { 'crm.order.b': ['crm.order.query@2.0.0'] });
  sidecar.callers = ['crm.front.x', 'crm.order.b', AGENT];
  const tokenOf = async (kind: string, name: string, more: object = {}): Promise<string> =>
    (await plane.ask('/v1/identities', { json: { kind, name, ...more } })).body['token'] as string;
  const own = await tokenOf('sidecar', 'front');
  const homes = async (agents: readonly string[], token = own, name = 'front', instance = 'front-1'): Promise<HomeAnswer> => {
    const request = { wire: 1, sidecar: name, instance, token, agents };
    const reply = await sidecar.bus.request(sidecar.subjects.ctl('home'), Buffer.from(JSON.stringify(request)), 3_000);
    if (reply.kind !== 'ok') throw new Error(reply.kind);
    return JSON.parse(reply.message.data.toString('utf8')) as HomeAnswer;
  };
  t.match(await homes([AGENT]), { ok: false, refused: [{ agent: '', problems: [/say hello first/] }] });
  await sidecar.hello();
  await other.hello();
  const foreign = await tokenOf('sidecar', 'elsewhere');
  const agentToken = await tokenOf('agent', AGENT);
  for (const [token, why] of [
    ['', /shows no token of its own/],
    ['nonsense', /no token of Agent-Reach/],
    [foreign, /that of the sidecar elsewhere/],
    [agentToken, /an agent's token/],
  ] as const)
    t.match(await homes([AGENT], token), { ok: false, homes: {}, refused: [{ code: 4001, problems: [why] }] });
  const given = await homes([AGENT, 'crm.front.x', 'crm.order.a', 'crm.order.b', 'crm.stranger.z']);
  t.same(Object.keys(given.homes).sort(), [AGENT, 'crm.front.x', 'crm.order.a'].sort());
  t.match(
    [...given.refused].sort((a, b) => (a.agent < b.agent ? -1 : 1)),
    [
      { agent: 'crm.order.b', problems: [/hosted by elsewhere/] },
      { agent: 'crm.stranger.z', problems: [/neither hosted by front nor among/] },
    ],
  );
  const statement = verifyToken(given.homes[AGENT] as string, trustIn(plane), 'home');
  t.match(statement, { claims: { sub: AGENT, aud: 'home', via: 'front' } });
  t.ok('claims' in statement && statement.claims.exp - statement.claims.iat <= 86_400);
  await plane.ask(`/v1/identities/${AGENT}/revoke`, { json: {} });
  t.match(await homes([AGENT]), { homes: {}, refused: [{ agent: AGENT, problems: [/revoked/] }] });
  await tokenOf('agent', AGENT, { homes: ['elsewhere'] });
  t.match(await homes([AGENT]), { refused: [{ agent: AGENT, problems: [/may not be used at front/] }] });
  await plane.ask('/v1/identities/front/revoke', { json: {} });
  t.match(await homes(['crm.front.x']), { refused: [{ agent: '', problems: [/revoked/] }] });
  t.match(await homes(['not an agent'], own), { refused: [{ problems: [/list of at most 200 agent ids/] }] });
});

t.test('a key that is new is pushed first and signs later, with the one before it signing until then', async (t) => {
  const { plane, nats, folder, key } = await issuing(t);
  const kidOf = (token: string): string => JSON.parse(Buffer.from(token.split('.')[0] as string, 'base64url').toString('utf8'))['kid'];
  const first = (await plane.ask('/v1/identities', { json: { kind: 'agent', name: AGENT } })).body['token'] as string;
  await plane.control.stop(0);
  const next = join(folder, 'next.pem');
  writeFileSync(next, newKeyPair().privatePem, { mode: 0o600 });
  const settings = `  identity:\n    signing_key: {file: "${next}"}\n    previous_keys: [{file: "${key}"}]\n    settle: 1500ms\n`;
  const after = await Plane.start(t, nats, 'cp-1', settings);
  await after.leads();
  const rotate = async (): Promise<string> => (await after.ask(`/v1/identities/${AGENT}/rotate`, { json: {} })).body['token'] as string;
  t.equal(kidOf(await rotate()), kidOf(first), 'the old one, at first');
  await waitUntil('the new one signs', async () => {
    const { body } = await after.ask('/v1/identities');
    return (body['keys'] as { kid: string; signs: boolean }[])[0]?.signs === true;
  });
  const second = await rotate();
  t.not(kidOf(second), kidOf(first));
  const trust = trustIn(after);
  for (const token of [first, second]) t.notOk('why' in verifyToken(token, trust, 'agent'));
});

t.test('without a signing key nothing is issued, and a bad key is no start', async (t) => {
  const nats = await NatsServer.start(t);
  const plane = await Plane.start(t, nats);
  await plane.leads();
  t.match(await plane.ask('/v1/identities', { json: { kind: 'agent', name: AGENT } }), {
    status: 409,
    body: { detail: /names no signing key/ },
  });
  t.match((await plane.ask('/v1/identities')).body, { identities: [], keys: [] });
  const folder = mkdtempSync(join(tmpdir(), 'reach-bad-key-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'bad.pem'), 'hello');
  await t.rejects(
    Plane.start(t, nats, 'cp-2', `  identity: {signing_key: {file: "${join(folder, 'bad.pem')}"}}\n`),
    /holds no private key in PEM/,
  );
  await t.rejects(Plane.start(t, nats, 'cp-2', '  identity: {signing_key: {file: /none}}\n'), /cannot be read \(ENOENT\)/);
});

t.test('keys and certificates are made in files for their owner, and nothing is written over', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-ctl-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const said: string[] = [];
  const io = {
    out: (text: string) => void said.push(text),
    err: (text: string) => void said.push(text),
    env: {},
    clock: realClock,
    stdin: () => Promise.resolve(''),
  };
  const run = (...args: string[]) => runReachctl(args, io, '0');
  t.equal(await run('identity', 'init', '--out', folder), 0);
  t.equal(await run('identity', 'ca', '--out', folder, '--env', ENV), 0);
  t.equal(await run('sidecar', 'cert', 'front', '--ca', folder, '--out', folder, '--env', ENV, '--ttl', '30d'), 0);
  for (const file of ['signing-key.pem', 'ca-key.pem', 'front-key.pem']) t.equal(statSync(join(folder, file)).mode & 0o777, 0o600, file);
  const before = readFileSync(join(folder, 'signing-key.pem'), 'utf8');
  t.equal(await run('identity', 'init', '--out', folder), 2);
  t.match(said.at(-1), /is there already and is not written over/);
  t.equal(readFileSync(join(folder, 'signing-key.pem'), 'utf8'), before);
  t.equal(await run('sidecar', 'cert', 'front', '--ca', join(folder, 'none')), 2);
  t.match(said.at(-1), /make an authority with: reachctl identity ca/);
  t.equal(await run('sidecar', 'cert', 'No Name', '--ca', folder), 2);
  t.equal(await run('sidecar', 'cert', 'late', '--ca', folder, '--out', folder, '--ttl', '9000d'), 1);
  t.match(said.at(-1), /the authority itself ends/);
  t.equal(await run('agent', 'add', AGENT, '--out', join(folder, 'ca.pem')), 2, 'before anything is issued');
  t.notOk(said.join('\n').includes('PRIVATE KEY'));
});
