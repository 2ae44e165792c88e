import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { realClock } from '../../../../base/clock.ts';
import { createLog } from '../../../../base/log.ts';
import { makeAuthority, makeSidecarCertificate, type Pair } from '../../../../control-plane/identity/ca.ts';
import { sidecarIn } from '../../../../proto/wire/certificate.ts';
import { type HomeStatements, MeshTransport } from '../../../../sidecar/transports/mesh.ts';
import { MeshTls } from '../../../../sidecar/transports/mesh-tls.ts';
import { meshPort } from '../../../../sidecar/accept/mesh.ts';
import { ScriptedFront } from '../../../support/front.ts';
import { waitUntil } from '../../../support/settle.ts';
import { candidateOf, contextOf, exchangeOf } from './exchanges.ts';

const DAY_MS = 86_400_000;
const logger = createLog({ level: 'silent', to: 'stderr', service: 'test' }).logger;

/** One authority for all tests; another one that nobody knows. */
const authority = await makeAuthority('test', Date.now(), 100 * DAY_MS);
const strangers = await makeAuthority('strangers', Date.now(), 100 * DAY_MS);

class Files {
  readonly folder: string;
  constructor(t: Test) {
    this.folder = mkdtempSync(join(tmpdir(), 'reach-tls-'));
    t.teardown(() => rmSync(this.folder, { recursive: true, force: true }));
  }
  path = (name: string): string => join(this.folder, name);
  write(own: Pair, ca = authority.certificate): { cert: string; key: string; ca: string } {
    writeFileSync(this.path('key.pem'), own.key, { mode: 0o600 });
    writeFileSync(this.path('cert.pem'), own.certificate);
    writeFileSync(this.path('ca.pem'), ca);
    return { cert: this.path('cert.pem'), key: this.path('key.pem'), ca: this.path('ca.pem') };
  }
}

interface Made {
  readonly by?: Pair;
  readonly env?: string;
  readonly from?: number;
  readonly ttl?: number;
  readonly ca?: string;
}

async function tlsOf(t: Test, name: string, made: Made = {}, as = name): Promise<{ tls: MeshTls; files: Files }> {
  const files = new Files(t);
  const own = await makeSidecarCertificate(made.by ?? authority, made.env ?? 'test', name, made.from ?? Date.now(), made.ttl ?? DAY_MS);
  const tls = new MeshTls(made.env ?? 'test', as, files.write(own, made.ca), 60_000, realClock, logger);
  t.teardown(() => tls.stop());
  return { tls, files };
}

async function listening(t: Test, tls: MeshTls) {
  const seen: (string | undefined)[] = [];
  const since: (number | undefined)[] = [];
  const open = new Map<object, string>();
  let count = 0;
  const headers: IncomingMessage['headers'][] = [];
  const server: Server = tls.server({}, (request: IncomingMessage, response: ServerResponse) => {
    const peer = tls.peerOf(request.socket);
    seen.push(peer?.name);
    since.push(peer?.sinceSec);
    headers.push(request.headers);
    request.resume();
    response.writeHead(200, { 'reach-code': '0', 'content-type': 'application/json' });
    response.end('{}');
  });
  // As the port does it: whoever has no business there is let go.
  server.on('secureConnection', (socket: Socket) => {
    count++;
    const peer = tls.peerOf(socket);
    if (peer === null) return void socket.destroy();
    open.set(socket, peer.name);
    socket.once('close', () => open.delete(socket));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  t.teardown(
    () =>
      new Promise<void>((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  );
  const { port } = server.address() as AddressInfo;
  const candidate = candidateOf({ reach: 'mesh', meshUrl: `https://127.0.0.1:${port}` });
  return {
    seen,
    headers,
    candidate,
    connections: () => count,
    /** Who is connected. */
    alive: () => [...open.values()].sort(),
    /** From when the certificate counts that the n-th request was sent with. */
    sinceOf: (n: number) => since[n],
  };
}

function transport(t: Test, tls: MeshTls | null, homes: HomeStatements | null = null): MeshTransport {
  const mesh = new MeshTransport(contextOf(), { token: null, secure: tls, homes });
  t.teardown(() => mesh.close());
  return mesh;
}

const ask = () => ({ own: ['reach-caller', 'shop.web.1'] });

t.test('two sidecars of one authority know one another by name', async (t) => {
  const [{ tls: server }, { tls: client }] = [await tlsOf(t, 'sidecar-b'), await tlsOf(t, 'front-side')];
  const { seen, headers, candidate } = await listening(t, server);
  const reply = await transport(t, client).invoke(exchangeOf(candidate, ask()));
  t.match(reply, { code: 0, status: 200 });
  t.same(seen, ['front-side']);
  t.notOk(headers[0]?.authorization, 'no token goes beside it');
});

t.test('whoever is not the sidecar that is meant gets nothing', async (t) => {
  const { tls: client } = await tlsOf(t, 'front-side');
  const mesh = transport(t, client);
  const servers: [string, MeshTls, RegExp][] = [
    ['another sidecar', (await tlsOf(t, 'evil-side')).tls, /that of evil-side in test, not of sidecar-b/],
    ['the same name in another environment', (await tlsOf(t, 'sidecar-b', { env: 'prod' })).tls, /sidecar-b in prod/],
    ['another authority', (await tlsOf(t, 'sidecar-b', { by: strangers })).tls, /UNABLE_TO_VERIFY|SELF_SIGNED/],
  ];
  for (const [what, server, why] of servers) {
    const { seen, candidate } = await listening(t, server);
    const reply = await mesh.invoke(exchangeOf(candidate, ask()));
    t.match(reply, { code: 1007, started: 'not_started', detail: why }, what);
    t.same(seen, [], `${what} has not seen a request`);
  }
});

t.test('a server lets in nobody without a certificate of this mesh', async (t) => {
  const { tls: server } = await tlsOf(t, 'sidecar-b');
  const { seen, candidate } = await listening(t, server);
  const { tls: stranger } = await tlsOf(t, 'front-side', { by: strangers });
  const reply = await transport(t, stranger).invoke(exchangeOf(candidate, ask()));
  t.match(reply, { status: 0 });
  t.ok(reply.code === 1007 || reply.code === 1002, `${reply.code} ${reply.detail}`);
  t.same(seen, []);
});

t.test('TLS and clear text do not take the place of one another', async (t) => {
  const { tls } = await tlsOf(t, 'front-side');
  const plain = candidateOf({ reach: 'mesh', meshUrl: 'http://127.0.0.1:1' });
  t.match(await transport(t, tls).invoke(exchangeOf(plain, ask())), { code: 9001, started: 'not_started', detail: /speaks TLS only/ });
  const secure = candidateOf({ reach: 'mesh', meshUrl: 'https://127.0.0.1:1' });
  const tokenOnly = new MeshTransport(contextOf(), 'mesh-token');
  t.teardown(() => tokenOnly.close());
  t.match(await tokenOnly.invoke(exchangeOf(secure, ask())), { code: 9001, detail: /has no certificate/ });
});

t.test('files that cannot be used are refused at the start with a sentence', async (t) => {
  const good = await makeSidecarCertificate(authority, 'test', 'a', Date.now(), DAY_MS);
  const other = await makeSidecarCertificate(authority, 'test', 'b', Date.now(), DAY_MS);
  const old = await makeSidecarCertificate(authority, 'test', 'a', Date.now() - 3 * DAY_MS, DAY_MS);
  const table: [string, Pair, string, RegExp][] = [
    ['of another sidecar', other, authority.certificate, /must name reach:\/\/test\/sidecar\/a$/],
    ['another key', { certificate: good.certificate, key: other.key }, authority.certificate, /is the key of another certificate/],
    ['run out', old, authority.certificate, /has expired/],
    ['no certificate', { certificate: 'hello', key: good.key }, authority.certificate, /holds no certificate in PEM/],
    ['no key', { certificate: good.certificate, key: 'hello' }, authority.certificate, /holds no private key in PEM/],
    ['no authority', good, 'hello', /ca\.pem holds no certificate/],
  ];
  for (const [what, pair, ca, why] of table) {
    const paths = new Files(t).write(pair, ca);
    t.throws(() => new MeshTls('test', 'a', paths, 60_000, realClock, logger), { message: why }, what);
  }
  t.throws(
    () => new MeshTls('test', 'a', { cert: '/none', key: '/none', ca: '/none' }, 60_000, realClock, logger),
    /cannot be read \(ENOENT\)/,
  );
});

t.test('files that are bad change nothing', async (t) => {
  const [{ tls: server, files }, { tls: client }] = [await tlsOf(t, 'sidecar-b'), await tlsOf(t, 'front-side')];
  const { seen, candidate, connections } = await listening(t, server);
  const mesh = transport(t, client);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 });
  writeFileSync(files.path('cert.pem'), 'half');
  server.reload();
  t.match(server.trouble, /holds no certificate/);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 }, 'the one before stays in force');
  t.same([seen.length, connections()], [2, 1], 'and so does the connection');
});

t.test('other files come into use with the next call, on another connection', async (t) => {
  const [{ tls: server }, { tls: client, files }] = [await tlsOf(t, 'sidecar-b'), await tlsOf(t, 'front-side')];
  const { seen, candidate, connections, sinceOf } = await listening(t, server);
  const mesh = transport(t, client);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 });
  files.write(await makeSidecarCertificate(authority, 'test', 'front-side', Date.now() - 60_000, DAY_MS));
  client.reload();
  for (let i = 0; i < 3; i++) t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 });
  t.same([seen.length, connections()], [4, 2]);
  t.ok((sinceOf(3) ?? 0) < (sinceOf(0) ?? 0), 'the new certificate is shown there');
});

t.test('an authority that is taken out of the files ends the connections that hang on it, and no others', async (t) => {
  const both = `${authority.certificate}\n${strangers.certificate}`;
  const { tls: server, files } = await tlsOf(t, 'sidecar-b', { ca: both });
  const own = await makeSidecarCertificate(strangers, 'test', 'sidecar-b', Date.now(), DAY_MS);
  const { candidate, connections, alive } = await listening(t, server);
  const [before, after] = [await tlsOf(t, 'front-side', { ca: both }), await tlsOf(t, 'other-side', { by: strangers, ca: both })];
  const [old, renewed] = [transport(t, before.tls), transport(t, after.tls)];
  for (const mesh of [old, renewed]) t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 });
  t.same(alive(), ['front-side', 'other-side']);
  files.write(own, strangers.certificate);
  server.reload();
  await waitUntil('the connection of the old authority to end', () => alive().length === 1);
  t.same(alive(), ['other-side']);
  t.match(await renewed.invoke(exchangeOf(candidate, ask())), { code: 0 });
  const refused = await old.invoke(exchangeOf(candidate, ask()));
  t.ok(refused.code === 1007 || refused.code === 1002, `${refused.code} ${refused.detail}`);
  t.equal(refused.status, 0);
  t.ok(connections() >= 2);
});

t.test('a sidecar that was taken back is cut off, in both directions, until it has a certificate of later', async (t) => {
  const [{ tls: server, files }, { tls: client }] = [await tlsOf(t, 'sidecar-b'), await tlsOf(t, 'front-side')];
  const { seen, candidate, alive } = await listening(t, server);
  const mesh = transport(t, client);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 });
  const takenAtSec = Date.now() / 1_000 + 1;
  client.judgeBy((sidecar, sinceSec) => sidecar === 'sidecar-b' && sinceSec < takenAtSec);
  await waitUntil('its connection to end', () => alive().length === 0);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 1007, started: 'not_started', detail: /sidecar-b has been taken back/ });
  files.write(await makeSidecarCertificate(authority, 'test', 'sidecar-b', Date.now() + 2_000, DAY_MS));
  client.judgeBy(() => false);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 });
  t.equal(seen.length, 2);
  server.judgeBy((sidecar) => sidecar === 'front-side');
  await waitUntil('the connection of the caller to end', () => alive().length === 0);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 }, 'what comes anew is refused by who looks at calls, with words');
});

t.test('a port that closes does not wait for handshakes that were never finished', async (t) => {
  const { tls } = await tlsOf(t, 'sidecar-b');
  const port = meshPort(new ScriptedFront({ script: async () => {} }), { host: '127.0.0.1', port: 0 }, tls);
  await port.open();
  const silent = connect(port.address.port, '127.0.0.1');
  await once(silent, 'connect');
  silent.write(Buffer.from([0x16, 0x03, 0x01]));
  await new Promise((done) => setTimeout(done, 20));
  const gone = once(silent, 'close');
  silent.on('error', () => {});
  const beganAt = performance.now();
  await port.close(10_000);
  t.ok(performance.now() - beganAt < 1_000);
  await gone;
});

t.test('the statement of an agent goes with its call; one that is on its way is waited for', async (t) => {
  const [{ tls: server }, { tls: client }] = [await tlsOf(t, 'sidecar-b'), await tlsOf(t, 'front-side')];
  const { headers, candidate } = await listening(t, server);
  const held = new Map([['shop.web.1', 'statement-1']]);
  const waiting: (() => void)[] = [];
  const homes: HomeStatements = {
    of: (agent) => held.get(agent) ?? null,
    arrived: () => new Promise((done) => waiting.push(done)),
  };
  const mesh = transport(t, client, homes);
  await mesh.invoke(exchangeOf(candidate, { ...ask(), incoming: { 'reach-home': 'forged' } }));
  t.equal(headers[0]?.['reach-home'], 'statement-1', "and not the caller's own");
  const later = mesh.invoke(exchangeOf(candidate, { own: ['reach-caller', 'shop.web.2'] }));
  await waitUntil('it is waited for', () => waiting.length === 1);
  t.equal(headers.length, 1);
  held.set('shop.web.2', 'statement-2');
  waiting[0]?.();
  t.match(await later, { code: 0 });
  t.equal(headers[1]?.['reach-home'], 'statement-2');
  const given = exchangeOf(candidate, { own: ['reach-caller', 'shop.web.3'] });
  const up = mesh.invoke(given);
  given.abort?.();
  t.match(await up, { code: 5003, started: 'not_started' }, 'nobody waits for it any more');
  t.equal(headers.length, 2);
});

t.test('a certificate has one name of ours, or none that counts', async (t) => {
  const table: [string | undefined, string | null][] = [
    ['URI:reach://prod/sidecar/a-1', 'a-1'],
    ['DNS:a.internal, URI:reach://prod/sidecar/a-1, IP Address:10.0.0.1', 'a-1'],
    ['URI:spiffe://x/y, URI:reach://prod/sidecar/a', 'a'],
    ['DNS:reach://prod/sidecar/a', null],
    ['URI:reach://prod/sidecar/a, URI:reach://prod/sidecar/b', null],
    ['URI:"reach://prod/sidecar/a\\u002c URI:reach://prod/sidecar/b"', null],
    ['URI:reach://prod/sidecar/a/b', null],
    ['URI:reach://prod/sidecar/A', null],
    ['URI:reach://pr od/sidecar/a', null],
    ['URI:https://prod/sidecar/a', null],
    ['', null],
    [undefined, null],
  ];
  for (const [names, wanted] of table) t.equal(sidecarIn(names)?.sidecar ?? null, wanted, names ?? 'none');
});
