import { createPublicKey, sign } from 'node:crypto';
import t from 'tap';
import { jwtVerify } from 'jose';
import { createLog } from '../../../../base/log.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { issuerOf, TOKEN_TYPE } from '../../../../proto/wire/identity.ts';
import { Trust, verifyToken, standingProblem, isReachToken } from '../../../../proto/wire/token.ts';
import { PeerCertificate } from '../../../../sidecar/call/peer.ts';
import { Credentials } from '../../../../sidecar/identify/credentials.ts';
import { Remembered } from '../../../../sidecar/identify/remembered.ts';
import { StaticTokens } from '../../../../sidecar/identify/static-tokens.ts';

import { hmac, rawToken, TestKey, TOKEN_ENV, trustOf } from '../../../support/tokens.ts';

const AGENT = 'crm.bot.a1';
const DAY_SEC = 86_400;

function world(mode: 'enforce' | 'audit' = 'enforce', hasPeerNames = true) {
  const clock = new VirtualClock();
  const tokens = new StaticTokens([{ agent: 'crm.old.1', token: 'static-token' }], [{ name: 'mesh', token: 'mesh-token' }], null);
  const credentials = new Credentials(
    tokens,
    { self: 'here', mode, hasPeerNames },
    clock,
    createLog({ level: 'silent', to: 'stderr', service: 'test' }).logger,
  );
  const key = new TestKey();
  credentials.trust(trustOf([key]));
  const nowSec = (): number => Math.floor(clock.wallMs() / 1_000);
  return { clock, credentials, key, nowSec };
}

const bearer = (token: string): string => `Bearer ${token}`;

t.test('a good token names its agent, and is verified once', async (t) => {
  const { clock, credentials, key } = world();
  const token = await key.sign({ sub: AGENT }, clock.wallMs());
  const first = credentials.caller(bearer(token));
  t.match(first, { agent: AGENT, team: 'crm', role: 'bot', id: 'a1', via: null });
  t.equal(credentials.caller(bearer(token)), first, 'the very same principal');
  t.equal(credentials.counts.verified, 1);
  t.equal(credentials.caller('Bearer static-token')?.agent, 'crm.old.1', 'static tokens stand beside it');
  t.equal(credentials.caller(undefined), null);
  t.equal(credentials.peer(null, 'Bearer mesh-token'), 'mesh');
  const verified = await jwtVerify(token, createPublicKey(key.privateKey), {
    issuer: issuerOf(TOKEN_ENV),
    audience: 'agent',
    typ: TOKEN_TYPE,
    currentDate: new Date(clock.wallMs()),
  });
  t.equal(verified.payload.sub, AGENT, 'the library takes it as well');
});

t.test('every token that is not exactly ours is refused, with words that say why and nothing of the token', async (t) => {
  const { clock, key, nowSec } = world();
  const stranger = new TestKey();
  const at = clock.wallMs();
  const claims = {
    iss: issuerOf(TOKEN_ENV),
    sub: AGENT,
    aud: 'agent',
    iat: nowSec(),
    nbf: nowSec(),
    exp: nowSec() + 60,
    jti: 'T0123456789',
  };
  const header = { alg: 'EdDSA', kid: key.kid, typ: TOKEN_TYPE };
  const ours = (text: string): Buffer => sign(null, Buffer.from(text), key.privateKey);
  const good = rawToken(header, claims, ours);
  const trust = trustOf([key]);
  t.notOk('why' in verifyToken(good, trust, 'agent'), 'the form itself is good');
  const table: [string, string | Promise<string>, RegExp][] = [
    ['alg none', rawToken({ ...header, alg: 'none' }, claims, () => Buffer.from('x')), /no token/],
    ['alg none with a good signature', rawToken({ ...header, alg: 'none' }, claims, ours), /no token/],
    ['HS256 with the public key as the secret', rawToken({ ...header, alg: 'HS256' }, claims, hmac(key.public)), /no token/],
    ['HS256 under our alg', rawToken(header, claims, hmac(key.public)), /signature is wrong/],
    ['another key', stranger.sign({ sub: AGENT }, at), /not trusted here/],
    ['another key under our id', stranger.sign({ sub: AGENT }, at, { kid: key.kid }), /signature is wrong/],
    ['no kid', rawToken({ alg: 'EdDSA', typ: TOKEN_TYPE }, claims, ours), /header says more or less/],
    [
      'a key of its own (jwk)',
      rawToken({ ...header, jwk: { kty: 'OKP', crv: 'Ed25519', x: stranger.public } }, claims, ours),
      /header says more or less/,
    ],
    ['crit', rawToken({ ...header, crit: ['x'] }, claims, ours), /header says more or less/],
    ['another typ', rawToken({ ...header, typ: 'JWT' }, claims, ours), /no token/],
    ['another environment', key.sign({ sub: AGENT, iss: issuerOf('prod') }, at), /another environment/],
    ['a home statement', key.sign({ sub: AGENT, aud: 'home', via: 'here' }, at), /a statement about a home/],
    ["a sidecar's token", key.sign({ sub: 'order-side', aud: 'sidecar' }, at), /a sidecar's token/],
    ['two audiences', key.sign({ sub: AGENT, aud: ['agent', 'home'] }, at), /claims cannot be read/],
    ['no agent', key.sign({ sub: 'crm.bot' }, at), /claims cannot be read/],
    ['a pattern as an agent', key.sign({ sub: 'crm.*.*' }, at), /claims cannot be read/],
    ['without an end', rawToken(header, { ...claims, exp: undefined }, ours), /claims cannot be read/],
    ['an end that is a text', rawToken(header, { ...claims, exp: '9999999999' }, ours), /claims cannot be read/],
    ['an end in milliseconds', rawToken(header, { ...claims, exp: Date.now() * 10 }, ours), /claims cannot be read/],
    ['homes that are a text', key.sign({ sub: AGENT, homes: 'here' }, at), /claims cannot be read/],
    ['no homes at all', key.sign({ sub: AGENT, homes: [] }, at), /claims cannot be read/],
    ['padding', `${good}==`, /no token/],
    ['a line break', `${good}\n`, /no token/],
    ['bits that mean nothing', respelt(good), /no token/],
    ['four parts', `${good}.x`, /no token/],
    ['far too long', `${good}${'A'.repeat(5_000)}`, /no token/],
    ['an array as claims', rawToken(header, [claims], ours), /no token/],
  ];
  for (const [what, token, why] of table) {
    const text = await token;
    const judged = verifyToken(text, trust, 'agent');
    t.match('why' in judged ? judged.why : 'taken', why, what);
    if ('why' in judged) t.notOk(judged.why.includes(text.slice(0, 12)), 'it is not repeated');
  }
  t.ok(isReachToken(good));
  t.ok(isReachToken(await stranger.sign({ sub: AGENT }, at)), 'a bad one of ours is ours still: it goes to nobody else');
  t.notOk(isReachToken('a.b.c'));
});

/** Another text for the same bytes, as lenient readers take it: the last character carries bits that are dropped. */
function respelt(token: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
  const last = alphabet.indexOf(token.at(-1) as string);
  const other = `${token.slice(0, -1)}${alphabet[last ^ 1] as string}`;
  if (!Buffer.from(other.split('.')[2] as string, 'base64url').equals(Buffer.from(token.split('.')[2] as string, 'base64url')))
    throw new Error('these are other bytes');
  return other;
}

t.test('an id that was not made from its key is no key', async (t) => {
  const [key, stranger] = [new TestKey(), new TestKey()];
  const trust = new Trust({ env: TOKEN_ENV, keys: [{ kid: key.kid, public: stranger.public }], tokens: [], subjects: [] });
  t.equal(trust.size, 0);
});

t.test('a token counts from its beginning to its end, with a minute for clocks that differ', async (t) => {
  const { clock, credentials, key, nowSec } = world();
  credentials.start();
  t.teardown(() => credentials.stop());
  const early = bearer(await key.sign({ sub: AGENT, nbf: nowSec() + 90, jti: 'T-early-00' }, clock.wallMs()));
  t.equal(credentials.caller(early), null);
  t.match(credentials.callerProblem(early), /not valid yet/);
  const short = bearer(await key.sign({ sub: AGENT, exp: nowSec() + 10, jti: 'T-short-00' }, clock.wallMs()));
  t.ok(credentials.caller(short));
  const ended: string[] = [];
  credentials.onEnded = (agent) => ended.push(agent);
  await clock.advanceTo(clock.now() + 31_000);
  t.ok(credentials.caller(early), 'what failed is asked again after some seconds: now it is near enough');
  t.ok(credentials.caller(short), 'over, but within the minute');
  await clock.advanceTo(clock.now() + 45_000);
  t.equal(credentials.caller(short), null);
  t.match(credentials.callerProblem(short), /has expired/);
  t.same(ended, [], 'the agent has another one that counts');
  t.match(
    standingProblem(
      { iss: '', sub: AGENT, aud: 'agent', iat: nowSec() + 61, nbf: 0, exp: nowSec() + 99, jti: '' },
      trustOf([key]),
      nowSec(),
    ),
    /not valid yet/,
    'issued in the future',
  );
});

t.test('what the trust document takes back ends at once, and what it adds counts at once', async (t) => {
  const { clock, credentials, key, nowSec } = world();
  const next = new TestKey();
  const ended: string[] = [];
  const met: string[] = [];
  credentials.onEnded = (agent) => ended.push(agent);
  credentials.onMet = (agent) => met.push(agent);
  const one = bearer(await key.sign({ sub: AGENT, jti: 'T-one-0000' }, clock.wallMs()));
  const two = bearer(await key.sign({ sub: AGENT, jti: 'T-two-0000' }, clock.wallMs()));
  const other = bearer(await next.sign({ sub: 'crm.bot.b2', jti: 'T-three-00' }, clock.wallMs()));
  t.ok(credentials.caller(one));
  t.ok(credentials.caller(two));
  t.same(met, [AGENT], 'met once');
  t.equal(credentials.caller(other), null, 'signed with a key that is not known yet');
  credentials.trust(trustOf([next, key], { tokens: [{ jti: 'T-one-0000', from: nowSec(), until: nowSec() + DAY_SEC }] }));
  t.ok(credentials.caller(other), 'and that counts now, without waiting for the failure to be forgotten');
  t.equal(credentials.caller(one), null);
  t.match(credentials.callerProblem(one), /has been revoked/);
  t.ok(credentials.caller(two));
  t.same(ended, [], 'it has another one');
  credentials.trust(trustOf([next, key], { subjects: [{ kind: 'agent', sub: AGENT, before: nowSec(), until: nowSec() + DAY_SEC }] }));
  t.equal(credentials.caller(two), null);
  t.same(ended, [AGENT]);
  const later = bearer(await key.sign({ sub: AGENT, iat: nowSec() + 1, nbf: nowSec() + 1, jti: 'T-four-000' }, clock.wallMs()));
  t.ok(credentials.caller(later), 'what was issued after that counts');
  credentials.trust(trustOf([next]));
  t.equal(credentials.caller(later), null, 'a key that is taken away takes with it what it signed');
  credentials.trust(trustOf([]));
  t.equal(credentials.caller(other), null, 'without keys nothing counts');
  t.equal(credentials.caller('Bearer static-token')?.agent, 'crm.old.1');
});

t.test('a rotated token ends when its time is over, without a further word', async (t) => {
  const { clock, credentials, key, nowSec } = world();
  credentials.start();
  t.teardown(() => credentials.stop());
  credentials.trust(trustOf([key], { tokens: [{ jti: 'T0123456789', from: nowSec() + 30, until: nowSec() + DAY_SEC }] }));
  const token = bearer(await key.sign({ sub: AGENT }, clock.wallMs()));
  t.ok(credentials.caller(token));
  await clock.advanceTo(clock.now() + 32_000);
  t.equal(credentials.caller(token), null);
});

t.test('a token for certain sidecars counts at these', async (t) => {
  const { clock, credentials, key } = world();
  t.ok(credentials.caller(bearer(await key.sign({ sub: AGENT, homes: ['there', 'here'] }, clock.wallMs()))));
  const elsewhere = bearer(await key.sign({ sub: AGENT, homes: ['there'] }, clock.wallMs()));
  t.equal(credentials.caller(elsewhere), null);
  t.match(credentials.callerProblem(elsewhere), /may not be used at the sidecar here/);
});

t.test('a bad token that is sent again costs nothing, and there is room for few of them', async (t) => {
  const { clock, credentials } = world();
  const stranger = new TestKey();
  const bad = bearer(await stranger.sign({ sub: AGENT }, clock.wallMs()));
  for (let i = 0; i < 100; i++) t.equal(credentials.caller(bad), null);
  t.equal(credentials.counts.refused, 1, 'judged once');
  const remembered = new Remembered<{ endsAtSec: number; used: boolean }>(3);
  const entry = (endsAtSec = 100) => ({ endsAtSec, used: false });
  for (const name of ['a', 'b', 'c']) remembered.keep(name, entry());
  remembered.find('a');
  remembered.keep('d', entry());
  t.equal(remembered.size, 3);
  t.ok(remembered.find('a'), 'what is used stays');
  t.notOk(remembered.find('b'), 'what is not used goes first');
  const gone: number[] = [];
  remembered.keep('e', entry(50));
  remembered.sweep(49, (one) => gone.push(one.endsAtSec));
  t.same(gone, []);
  remembered.sweep(50, (one) => gone.push(one.endsAtSec));
  t.same(gone, [50]);
});

t.test("a peer's word counts with the control plane's statement, about this agent, given to this peer", async (t) => {
  const { clock, credentials, key, nowSec } = world();
  const home = await key.sign({ sub: AGENT, aud: 'home', via: 'front' }, clock.wallMs());
  const principal = credentials.vouched(AGENT, 'front', home);
  t.match(principal, { agent: AGENT, via: 'front' });
  t.equal(credentials.vouched(AGENT, 'front', home), principal, 'verified once');
  t.equal(credentials.counts.verified, 1);
  const refusals: [string, string, string | null, RegExp][] = [
    [AGENT, 'front', null, /no statement/],
    ['crm.bot.b2', 'front', home, /another agent/],
    [AGENT, 'evil', home, /another sidecar/],
    [AGENT, 'front', await key.sign({ sub: AGENT }, clock.wallMs()), /an agent's token/],
    [
      AGENT,
      'front',
      await key.sign({ sub: AGENT, aud: 'home', via: 'front', exp: nowSec() - 61, iat: nowSec() - 99 }, clock.wallMs()),
      /expired/,
    ],
    [AGENT, 'front', await new TestKey().sign({ sub: AGENT, aud: 'home', via: 'front' }, clock.wallMs()), /not trusted/],
  ];
  for (const [agent, peer, statement, why] of refusals) t.match(credentials.vouched(agent, peer, statement), why);
  t.equal(credentials.counts.homesRefused, refusals.length);
  credentials.trust(trustOf([key], { subjects: [{ kind: 'agent', sub: AGENT, before: nowSec(), until: nowSec() + DAY_SEC }] }));
  t.match(credentials.vouched(AGENT, 'front', home), /revoked/, 'it ends with the agent');
});

t.test('where peers have no names, a statement names the peer', async (t) => {
  const { clock, credentials, key } = world('enforce', false);
  const home = await key.sign({ sub: AGENT, aud: 'home', via: 'front' }, clock.wallMs());
  t.match(credentials.vouched(AGENT, 'mesh', home), { agent: AGENT, via: 'front' });
  t.match(credentials.vouched('crm.bot.b2', 'mesh', home), /another agent/);
});

t.test('in audit nobody is refused, and all is counted', async (t) => {
  const { credentials } = world('audit');
  t.match(credentials.vouched(AGENT, 'front', null), { agent: AGENT, via: 'front' });
  t.match(credentials.vouched(AGENT, 'front', 'nonsense'), { agent: AGENT, via: 'front' });
  t.equal(credentials.counts.audited, 2);
  t.equal(credentials.counts.homesRefused, 0);
});

t.test('a message is judged by its statement as of the time at which it was stored; what was taken back never counts', async (t) => {
  const { credentials, key, clock, nowSec } = world();
  const storedAt = clock.wallMs();
  const home = await key.sign({ sub: AGENT, aud: 'home', via: 'front', exp: nowSec() + 600 }, storedAt);
  t.equal(credentials.stamped(AGENT, 'front', home, storedAt), null);
  await clock.advanceTo(clock.now() + 5 * DAY_SEC * 1_000);
  t.equal(credentials.stamped(AGENT, 'front', home, storedAt), null, 'it has waited for five days');
  t.match(credentials.vouched(AGENT, 'front', home), /expired/, 'a call may not show it any more');
  const why = (...args: Parameters<typeof credentials.stamped>): string => {
    const doubt = credentials.stamped(...args);
    return doubt === null || doubt === 'later' ? String(doubt) : doubt.why;
  };
  t.match(why(AGENT, 'front', home, clock.wallMs()), /expired/, 'one that is stored now cannot show it');
  t.match(why(AGENT, 'front', home, storedAt - 3_600_000), /not valid yet/);
  t.match(why('crm.bot.b2', 'front', home, storedAt), /about another agent/);
  t.match(why(AGENT, 'elsewhere', home, storedAt), /given to another sidecar/);
  t.match(why(AGENT, 'front', null, storedAt), /carries no statement/);
  t.match(why(AGENT, 'front', `${home.slice(0, -4)}AAAA`, storedAt), /signature is wrong/);
  t.match(why(AGENT, 'front', await key.sign({ sub: AGENT, via: undefined }, storedAt), storedAt), /an agent's token/);
  t.equal(credentials.stamped(AGENT, 'front', home, null), null, 'where the time of storing is not known it is not looked at');
  credentials.trust(trustOf([key], { tokens: [{ jti: 'T0123456789', from: nowSec(), until: nowSec() + DAY_SEC }] }));
  t.match(why(AGENT, 'front', home, storedAt), /revoked/, 'by its id, too');
  credentials.trust(trustOf([key], { subjects: [{ kind: 'agent', sub: AGENT, before: nowSec(), until: nowSec() + DAY_SEC }] }));
  t.match(why(AGENT, 'front', home, storedAt), /revoked/, 'stored before, and taken back since');
  credentials.trust(trustOf([]));
  t.equal(credentials.stamped(AGENT, 'front', home, storedAt), 'later', 'without keys nothing can be told, and it waits');
});

t.test('in audit a message without a statement goes on, and is counted', async (t) => {
  const { credentials } = world('audit');
  t.equal(credentials.stamped(AGENT, 'front', null, 0), null);
  t.match(credentials.counts, { audited: 1, homesRefused: 0 });
});

t.test('a certificate names the peer until it ends or is taken back', async (t) => {
  const { credentials, clock, key, nowSec } = world();
  const certificate = new PeerCertificate('front', nowSec() - 100, nowSec() + 60);
  t.equal(credentials.peer(certificate, undefined), 'front');
  t.equal(credentials.peer(certificate, 'Bearer mesh-token'), 'front', 'a token beside it says nothing');
  credentials.trust(trustOf([key], { subjects: [{ kind: 'sidecar', sub: 'front', before: nowSec() - 50, until: nowSec() + DAY_SEC }] }));
  t.equal(credentials.peer(certificate, undefined), null);
  t.equal(
    credentials.peer(new PeerCertificate('front', nowSec() - 10, nowSec() + 60), undefined),
    'front',
    'one that was made later counts',
  );
  await clock.advanceTo(clock.now() + 61_000);
  t.equal(
    credentials.peer(new PeerCertificate('other', nowSec() - 100, nowSec() - 1), undefined),
    null,
    'also on a connection that was opened in time',
  );
});
