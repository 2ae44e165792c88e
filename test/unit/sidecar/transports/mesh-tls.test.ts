import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { realClock } from '../../../../base/clock.ts';
import { createLog } from '../../../../base/log.ts';
import { makeAuthority, makeSidecarCertificate, type Pair } from '../../../../control-plane/identity/ca.ts';
import { sidecarIn } from '../../../../proto/wire/certificate.ts';
import { type HomeStatements, MeshTransport } from '../../../../sidecar/transports/mesh.ts';
import { MeshTls } from '../../../../sidecar/transports/mesh-tls.ts';
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
    writeFileSync(this.path('key.pem'), own.key);
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
  const headers: IncomingMessage['headers'][] = [];
  const server: Server = tls.server({}, (request: IncomingMessage, response: ServerResponse) => {
    seen.push(tls.peerOf(request.socket)?.name);
    headers.push(request.headers);
    request.resume();
    response.writeHead(200, { 'reach-code': '0', 'content-type': 'application/json' });
    response.end('{}');
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
  return { seen, headers, candidate };
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

t.test('new files are for new connections; bad ones change nothing', async (t) => {
  const [{ tls: server, files }, { tls: client }] = [await tlsOf(t, 'sidecar-b'), await tlsOf(t, 'front-side')];
  const { seen, candidate } = await listening(t, server);
  const mesh = transport(t, client);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 });
  writeFileSync(files.path('cert.pem'), 'half');
  server.reload();
  t.match(server.trouble, /holds no certificate/);
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 }, 'the one before stays in force');
  // Another authority: the open connection goes on, and whoever comes now is not believed.
  files.write(await makeSidecarCertificate(strangers, 'test', 'sidecar-b', Date.now(), DAY_MS), strangers.certificate);
  server.reload();
  t.equal(server.trouble, '');
  t.match(await mesh.invoke(exchangeOf(candidate, ask())), { code: 0 }, 'on the connection that is open');
  const fresh = exchangeOf(candidate, ask());
  fresh.fresh = true;
  const refused = await mesh.invoke(fresh);
  t.match(refused, { code: 1007, started: 'not_started' });
  t.equal(seen.length, 3);
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
