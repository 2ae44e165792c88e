/** Attacks on who somebody is: forged, stolen and stale credentials, at the port for agents and between sidecars. */
import { createHash, createPrivateKey, createPublicKey, type KeyObject, randomUUID, sign } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { WebSocket } from 'ws';
import { keyIdOf, newKeyPair, publicText } from '../../base/ed25519.ts';
import { makeAuthority, makeSidecarCertificate } from '../../control-plane/identity/ca.ts';
import { Code } from '../../proto/wire/codes.ts';
import { issuerOf, TOKEN_TYPE } from '../../proto/wire/identity.ts';
import { ENV, OPERATOR, VIEWER } from '../support/control-plane.ts';
import { waitUntil } from '../support/settle.ts';
import { hmac, rawToken } from '../support/tokens.ts';
import { reaches } from './provider-watch.ts';
import { ALICE, AttackWorld, BOB, DAY_MS, DAY_SEC, FRONT, MALLORY, meshCall, nowSec, OPS, ORDER, REFUND } from './world.ts';

t.setTimeout(60_000);

const world = await AttackWorld.start(t);
const { watch } = world;
const key = createPrivateKey(world.signingKey);
const kid = keyIdOf(publicText(key));
const forger = createPrivateKey(newKeyPair().privatePem);
const { unauthenticated, forbidden } = Code;

function signed(claims: Readonly<Record<string, unknown>>, by: KeyObject = key, header: object = {}): string {
  const at = nowSec();
  const whole = { iss: issuerOf(ENV), aud: 'agent', sub: ALICE, iat: at - 5, nbf: at - 5, exp: at + DAY_SEC, jti: randomUUID(), ...claims };
  // By hand: the library makes none that nobody should.
  return rawToken({ alg: 'EdDSA', kid, typ: TOKEN_TYPE, ...header }, whole, (text) => sign(null, Buffer.from(text), by));
}
const home = (claims: Readonly<Record<string, unknown>> = {}, by: KeyObject = key): string =>
  signed({ aud: 'home', via: FRONT, ...claims }, by);

const claimsOf = (token: string): Record<string, unknown> => JSON.parse(Buffer.from(token.split('.')[1] as string, 'base64url').toString());

t.test('rightful: a token, a statement and a certificate that are good open the way', async (t) => {
  await reaches(t, watch, () => world.call({ agent: ALICE }));
  const token = signed({});
  await reaches(t, watch, () => world.call({ token }), 'a call with a token that is signed as ours are');
  const shown = await world.shown(FRONT);
  const statement = home();
  await reaches(t, watch, () => meshCall(world.mesh, shown, { home: statement }), 'a call between sidecars');
});

t.test('nobody calls without a credential, and nobody with half of one', async (t) => {
  const token = world.token(ALICE);
  const written = [
    undefined,
    '',
    'Bearer',
    'Bearer ',
    token,
    `Basic ${Buffer.from(`x:${token}`).toString('base64')}`,
    `Bearer ${token}x`,
    `Bearer ${token.slice(0, -1)}`,
  ];
  for (const [i, authorization] of written.entries()) {
    const headers = authorization === undefined ? {} : { authorization };
    await watch.refused(t, () => world.call({ token: null, headers }), unauthenticated, `number ${i}`);
  }
});

t.test('two credentials at once are none, so that nobody can hide behind the second', async (t) => {
  const both = [`Bearer ${world.token(MALLORY)}`, `Bearer ${world.token(ALICE)}`];
  await watch.refused(t, () => world.call({ token: null, headers: { authorization: both } }), unauthenticated);
  await watch.refused(t, () => world.call({ token: null, headers: { authorization: both.join(', ') } }), unauthenticated);
});

t.test('a token without a signature is refused, however its algorithm is spelt', async (t) => {
  const claims = claimsOf(world.token(ALICE));
  for (const alg of ['none', 'None', 'NONE', 'nOnE', '']) {
    const token = rawToken({ alg, kid, typ: TOKEN_TYPE }, claims, () => Buffer.alloc(0));
    await watch.refused(t, () => world.call({ token }), unauthenticated, alg);
    const padded = rawToken({ alg, kid, typ: TOKEN_TYPE }, claims, () => Buffer.alloc(64));
    await watch.refused(t, () => world.call({ token: padded }), unauthenticated, `${alg}, zeros`);
  }
});

t.test('our public key is no secret for HMAC', async (t) => {
  const claims = claimsOf(world.token(ALICE));
  const spki = createPublicKey(key).export({ format: 'pem', type: 'spki' }).toString();
  for (const secret of [spki, spki.trim(), publicText(key)]) {
    const token = rawToken({ alg: 'HS256', kid, typ: TOKEN_TYPE }, claims, hmac(secret));
    await watch.refused(t, () => world.call({ token }), unauthenticated);
  }
});

t.test('a signature of another key counts under no key id', async (t) => {
  const own = signed({}, forger, { kid: keyIdOf(publicText(forger)) });
  const ours = signed({}, forger);
  const none = signed({}, forger, { kid: undefined });
  const embedded = signed({}, forger, { jwk: createPublicKey(forger).export({ format: 'jwk' }) });
  const led = signed({}, forger, { jku: `${watch.url}/keys`, x5u: `${watch.url}/cert` });
  const path = signed({}, forger, { kid: '../../dev/null' });
  for (const [i, token] of [own, ours, none, embedded, led, path].entries())
    await watch.refused(t, () => world.call({ token }), unauthenticated, `number ${i}`);
});

t.test('a token that was tampered with is refused', async (t) => {
  const [head = '', body = '', signature = ''] = world.token(MALLORY).split('.');
  const other = Buffer.from(JSON.stringify({ ...claimsOf(world.token(MALLORY)), sub: ALICE })).toString('base64url');
  const flipped = Buffer.from(signature, 'base64url');
  flipped[0] = (flipped[0] as number) ^ 1;
  const tokens = [
    `${head}.${other}.${signature}`,
    `${head}.${body}.${flipped.toString('base64url')}`,
    `${head}.${body}.`,
    `${head}.${body}`,
    `${head}.${body}.${signature}.${signature}`,
  ];
  for (const [i, token] of tokens.entries()) await watch.refused(t, () => world.call({ token }), unauthenticated, `number ${i}`);
});

t.test('a token that has run out, or is of tomorrow, is refused', async (t) => {
  const at = nowSec();
  await watch.refused(t, async () => world.call({ token: signed({ iat: at - DAY_SEC, nbf: at - DAY_SEC, exp: at - 120 }) }), {
    code: unauthenticated,
    detail: /has expired/,
  });
  await watch.refused(t, async () => world.call({ token: signed({ nbf: at + 3_600 }) }), {
    code: unauthenticated,
    detail: /not valid yet/,
  });
  await watch.refused(t, async () => world.call({ token: signed({ exp: undefined }) }), unauthenticated, 'without an end');
  await watch.refused(t, async () => world.call({ token: signed({ exp: 'never' }) }), unauthenticated, 'with a word for its end');
});

t.test('a token for another purpose or place is none', async (t) => {
  const tokens: readonly (readonly [string, string])[] = [
    ['of another environment', signed({ iss: issuerOf('prod') })],
    ['of nobody', signed({ iss: undefined })],
    ["a sidecar's", signed({ aud: 'sidecar', sub: FRONT })],
    ['a home statement', home()],
    ['for all at once', signed({ aud: ['agent', 'sidecar', 'home'] })],
    ['a JWT of something else', signed({}, key, { typ: 'JWT' })],
    ['about no agent', signed({ sub: '*' })],
    ['about two agents', signed({ sub: `${ALICE} ${OPS}` })],
    ['with an extension that must be understood', signed({}, key, { crit: ['b64'], b64: true })],
  ];
  for (const [what, token] of tokens) await watch.refused(t, () => world.call({ token }), unauthenticated, what);
});

t.test('a token that was taken back is refused at once, everywhere', async (t) => {
  const agent = 'crm.bot.gone';
  const token = await world.issue('agent', agent);
  await waitUntil('it counts', async () => (await world.call({ token })).code === Code.ok, 5_000, 50);
  const { status } = await world.plane.ask(`/v1/identities/${agent}/revoke`, { json: { reason: 'stolen' } });
  t.equal(status, 200);
  await waitUntil('the word is here', async () => (await world.call({ token })).code === unauthenticated, 5_000, 20);
  for (let i = 0; i < 3; i++) await watch.refused(t, () => world.call({ token }), unauthenticated);
  const shown = await world.shown(FRONT);
  const statement = home({ sub: agent });
  await waitUntil(
    'and at the other sidecar',
    async () => (await meshCall(world.mesh, shown, { agent, home: statement })).code === unauthenticated,
    5_000,
    50,
  );
  await watch.refused(t, () => meshCall(world.mesh, shown, { agent, home: statement }), unauthenticated, 'a statement from before');
});

t.test('what was opened with a leaked token ends when that is taken back, and the agent goes on with its other one', async (t) => {
  const agent = 'crm.bot.twice';
  const leaked = await world.issue('agent', agent);
  const { status, body } = await world.plane.ask(`/v1/identities/${agent}/rotate`, { json: { overlap: '1h', reason: 'a second one' } });
  t.equal(status, 201);
  const own = String(body['token']);
  for (const token of [leaked, own]) await waitUntil('it counts', async () => (await world.call({ token })).code === Code.ok, 5_000, 50);
  const opened = [leaked, own].map((token) => {
    const channel = new WebSocket(`${world.front.url.replace('http', 'ws')}/v1/channel`, { headers: { authorization: `Bearer ${token}` } });
    t.teardown(() => channel.terminate());
    return { channel, open: once(channel, 'open'), closed: once(channel, 'close') };
  });
  await Promise.all(opened.map(({ open }) => open));
  await world.plane.ask(`/v1/identities/${String(claimsOf(leaked)['jti'])}/revoke`, { json: { reason: 'leaked' } });
  await waitUntil('the word is here', async () => (await world.call({ token: leaked })).code === unauthenticated, 5_000, 20);
  t.equal((await opened[0]?.closed)?.[0], 4004, 'the channel of whoever has it');
  await watch.refused(t, () => world.call({ token: leaked }), unauthenticated);
  t.equal(opened[1]?.channel.readyState, WebSocket.OPEN, 'the agent’s own');
  await reaches(t, watch, () => world.call({ token: own }), 'a call with the other one');
});

t.test('a token that is bound to another sidecar is worth nothing here', async (t) => {
  const token = await world.issue('agent', 'crm.bot.bound', { homes: [ORDER] });
  await watch.refused(t, () => world.call({ token }), { code: unauthenticated, detail: /may not be used at the sidecar front-side/ });
});

t.test('the credentials of sidecar and operator are no credentials of an agent', async (t) => {
  const tokens = [
    await world.issue('sidecar', 'other-side'),
    'operator-of-the-sidecar',
    OPERATOR,
    VIEWER,
    world.signingKey.replace(/\s/g, ''),
  ];
  for (const [i, token] of tokens.entries()) await watch.refused(t, () => world.call({ token }), unauthenticated, `number ${i}`);
});

t.test('guessing many tokens costs the guesser, and lets nobody in', async (t) => {
  const before = watch.count;
  const codes = new Set<unknown>();
  for (let i = 0; i < 100; i++)
    codes.add(
      (await world.call({ token: `${world.token(ALICE).slice(0, -6)}${createHash('md5').update(String(i)).digest('hex').slice(0, 6)}` }))
        .code,
    );
  t.same([...codes], [unauthenticated]);
  await watch.untouched(t, before);
  await reaches(t, watch, () => world.call({ agent: ALICE }), 'the rightful owner meanwhile');
});

// ---- between sidecars

t.test('the mesh port knows nobody without a certificate of this mesh', async (t) => {
  const ca = world.authority.certificate;
  const strangers = await makeAuthority('somebody else', Date.now(), DAY_MS);
  const issued = async (by: typeof strangers, env: string, from = Date.now()): Promise<{ cert: string; key: string; ca: string }> => {
    const made = await makeSidecarCertificate(by, env, FRONT, from, DAY_MS / 2);
    return { cert: made.certificate, key: made.key, ca };
  };
  const statement = home();
  const shown: readonly (readonly [string, { cert?: string; key?: string; ca: string }])[] = [
    ['none', { ca }],
    ['of another authority', await issued(strangers, ENV)],
    ['of another environment', await issued(world.authority, 'prod')],
    ['of yesterday', await issued(world.authority, ENV, Date.now() - DAY_MS)],
    ["the authority's own", { cert: world.authority.certificate, key: world.authority.key, ca }],
  ];
  for (const [what, each] of shown) await watch.refused(t, () => meshCall(world.mesh, each, { home: statement }), { code: null }, what);
});

t.test('the mesh port speaks to nobody in clear text', async (t) => {
  const port = Number(new URL(world.mesh).port);
  const plain = (): Promise<{ code: null; detail: string }> =>
    new Promise((done) => {
      const socket = connect(port, '127.0.0.1', () =>
        socket.write('POST /mesh/v1/invoke/crm.order.query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}'),
      );
      let heard = '';
      socket.on('data', (data) => (heard += data.toString('latin1')));
      socket.on('close', () => done({ code: null, detail: heard.startsWith('HTTP') ? heard : 'closed' }));
      socket.on('error', () => {});
    });
  await watch.refused(t, plain, { code: null, detail: /^closed$/ });
});

t.test('a peer cannot speak for an agent for whom it has no statement', async (t) => {
  const shown = await world.shown(FRONT);
  const at = nowSec();
  const attempts: readonly (readonly [string, string | null])[] = [
    ['none', null],
    ['nonsense', 'a.b.c'],
    ['about another agent', home({ sub: BOB })],
    ['run out', home({ iat: at - DAY_SEC, nbf: at - DAY_SEC, exp: at - 120 })],
    ['signed by another', home({}, forger)],
    ['of another environment', home({ iss: issuerOf('prod') })],
    ["the agent's own token", world.token(ALICE)],
  ];
  for (const [what, statement] of attempts)
    await watch.refused(t, () => meshCall(world.mesh, shown, { home: statement }), unauthenticated, what);
});

t.test('a statement that was given to one sidecar is worth nothing in the hands of another', async (t) => {
  const thief = await world.shown('third-side');
  const statement = home();
  await watch.refused(t, () => meshCall(world.mesh, thief, { home: statement }), {
    code: unauthenticated,
    detail: /given to another sidecar/,
  });
});

t.test('a certificate in a stolen name does not bring the statements with it', async (t) => {
  const thief = await world.shown(FRONT);
  await watch.refused(t, () => meshCall(world.mesh, thief, { agent: OPS, capability: REFUND }), unauthenticated);
  const own = home({ sub: MALLORY });
  await watch.refused(t, () => meshCall(world.mesh, thief, { agent: OPS, capability: REFUND, home: own }), unauthenticated);
});

t.test("a bearer token opens nothing on the mesh port, whoever's it is", async (t) => {
  const shown = await world.shown(FRONT);
  for (const token of [world.token(ALICE), 'operator-of-the-sidecar', OPERATOR])
    await watch.refused(t, () => meshCall(world.mesh, shown, { headers: { authorization: `Bearer ${token}` } }), unauthenticated);
});

t.test('a good statement opens no capability that the agent may not call: the ACL is judged again', async (t) => {
  const shown = await world.shown(FRONT);
  const statement = home();
  await watch.refused(t, () => meshCall(world.mesh, shown, { home: statement, capability: REFUND }), forbidden);
  const guest = home({ sub: MALLORY });
  await watch.refused(t, () => meshCall(world.mesh, shown, { agent: MALLORY, home: guest }), forbidden);
});

t.test('a sidecar that was taken back is believed by nobody', async (t) => {
  const shown = await world.shown('lost-side');
  await world.issue('sidecar', 'lost-side');
  const statement = home({ via: 'lost-side' });
  await reaches(t, watch, () => meshCall(world.mesh, shown, { home: statement }), 'before');
  const { status } = await world.plane.ask('/v1/identities/lost-side/revoke', { json: { reason: 'stolen' } });
  t.equal(status, 200);
  await waitUntil('the word is there', async () => (await meshCall(world.mesh, shown, { home: statement })).code !== Code.ok, 5_000, 50);
  const before = watch.count;
  const { code } = await meshCall(world.mesh, shown, { home: statement });
  t.ok(code === unauthenticated || code === null, `refused, or not even let in: ${code}`);
  await watch.untouched(t, before);
});
