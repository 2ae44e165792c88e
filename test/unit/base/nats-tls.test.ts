/** TLS towards NATS with an authority of one's own, on a real nats-server. */
import 'reflect-metadata';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { webcrypto } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import * as x509 from '@peculiar/x509';
import { NatsServer } from '../../support/nats.ts';

const SIGN = { name: 'ECDSA', hash: 'SHA-256' };
const HOUR_MS = 3_600_000;

/** A certificate for localhost that vouches for itself: the client looks for names, not for numbers. @returns paths */
async function certificate(t: Test): Promise<{ cert: string; key: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'reach-nats-tls-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const keys = await webcrypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify']);
  const made = await x509.X509CertificateGenerator.createSelfSigned(
    {
      name: 'CN=nats',
      notBefore: new Date(Date.now() - HOUR_MS),
      notAfter: new Date(Date.now() + HOUR_MS),
      keys,
      signingAlgorithm: SIGN,
      extensions: [new x509.SubjectAlternativeNameExtension([{ type: 'dns', value: 'localhost' }])],
    },
    webcrypto,
  );
  const der = Buffer.from(await webcrypto.subtle.exportKey('pkcs8', keys.privateKey)).toString('base64');
  const [cert, key] = [join(folder, 'server.pem'), join(folder, 'server-key.pem')];
  writeFileSync(cert, made.toString('pem'));
  writeFileSync(key, `-----BEGIN PRIVATE KEY-----\n${der.match(/.{1,64}/g)?.join('\n')}\n-----END PRIVATE KEY-----\n`, { mode: 0o600 });
  return { cert, key };
}

t.test('whose certificate the named authority has signed is talked to, and nobody else', async (t) => {
  const { cert, key } = await certificate(t);
  const other = await certificate(t);
  const nats = await NatsServer.start(t, `tls { cert_file: ${JSON.stringify(cert)}, key_file: ${JSON.stringify(key)} }`);
  const servers = [`nats://localhost:${nats.process.port}`];
  const bus = nats.open({ servers, tls: { caFile: cert } });
  t.ok(await bus.ready(10_000), bus.state.why);
  const stranger = nats.open({ servers, tls: { caFile: other.cert } });
  t.notOk(await stranger.ready(1_000));
  t.match(stranger.state.why, /certificate|self.signed|TLS/i);
});

t.test('where certificates are named, nothing is sent to a server that offers no TLS', async (t) => {
  const nats = await NatsServer.start(t);
  const bus = nats.open({ tls: {} });
  t.notOk(await bus.ready(1_000));
  t.match(bus.state.why, /offers no TLS, and nothing is sent without it/);
});
