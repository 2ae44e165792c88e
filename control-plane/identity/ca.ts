/**
 * A small authority of one's own for the certificates of sidecars: a key and a certificate in two files, and from them
 * certificates that name one sidecar each. For those who have no authority yet; whoever has one has it issue the same name.
 * Node can read X.509 and cannot make it, so a library does; it is loaded by these commands only.
 */
import { createPrivateKey, generateKeyPairSync, randomBytes, webcrypto } from 'node:crypto';
import { sidecarUri } from '../../proto/wire/identity.ts';

export interface Pair {
  /** PEM */
  readonly certificate: string;
  /** PEM, PKCS #8 */
  readonly key: string;
}

/** P-256: what every TLS library takes, at a fraction of RSA's cost. */
const KEY = { name: 'ECDSA', namedCurve: 'P-256' } as const;
const SIGN = { name: 'ECDSA', hash: 'SHA-256' } as const;
/** Clocks of machines differ. */
const BACKDATED_MS = 5 * 60_000;
const SERIAL_BYTES = 16;

export async function makeAuthority(name: string, fromMs: number, ttlMs: number): Promise<Pair> {
  const x509 = await library();
  const { keys, pem } = await newKeys();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned(
    {
      serialNumber: serial(),
      name: `CN=${name}`,
      notBefore: new Date(fromMs - BACKDATED_MS),
      notAfter: new Date(fromMs + ttlMs),
      keys,
      signingAlgorithm: SIGN,
      extensions: [
        // No authorities below this one.
        new x509.BasicConstraintsExtension(true, 0, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      ],
    },
    webcrypto,
  );
  return { certificate: `${certificate.toString('pem')}\n`, key: pem };
}

/** @param authority as `makeAuthority` has made it, or any with an ECDSA P-256 key. Throws with a sentence when it cannot be used. */
export async function makeSidecarCertificate(authority: Pair, env: string, sidecar: string, fromMs: number, ttlMs: number): Promise<Pair> {
  const x509 = await library();
  let issuer: InstanceType<typeof x509.X509Certificate>;
  let signingKey: webcrypto.CryptoKey;
  try {
    issuer = new x509.X509Certificate(authority.certificate);
    const der = createPrivateKey(authority.key).export({ format: 'der', type: 'pkcs8' });
    signingKey = await webcrypto.subtle.importKey('pkcs8', der, KEY, false, ['sign']);
  } catch {
    throw new Error('the certificate and the key of the authority cannot be used: they must be in PEM, with an ECDSA P-256 key');
  }
  if (fromMs + ttlMs > issuer.notAfter.getTime())
    throw new Error(`the authority itself ends on ${issuer.notAfter.toISOString().slice(0, 10)}: ask for less time, or make a new one`);
  const { keys, pem } = await newKeys();
  const certificate = await x509.X509CertificateGenerator.create(
    {
      serialNumber: serial(),
      subject: `CN=${sidecar}`,
      issuer: issuer.subject,
      notBefore: new Date(fromMs - BACKDATED_MS),
      notAfter: new Date(fromMs + ttlMs),
      publicKey: keys.publicKey,
      signingKey,
      signingAlgorithm: SIGN,
      extensions: [
        new x509.BasicConstraintsExtension(false, undefined, true),
        new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
        new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth, x509.ExtendedKeyUsage.clientAuth]),
        new x509.SubjectAlternativeNameExtension([{ type: 'url', value: sidecarUri(env, sidecar) }]),
        await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
        await x509.AuthorityKeyIdentifierExtension.create(issuer),
      ],
    },
    webcrypto,
  );
  return { certificate: `${certificate.toString('pem')}\n`, key: pem };
}

/** It finds its own parts by metadata of classes, which the language does not have. */
async function library() {
  await import('reflect-metadata');
  const loaded = await import('@peculiar/x509');
  // CommonJS, whose names stand under `default` alone when it is bundled.
  return 'default' in loaded ? loaded.default : loaded;
}

async function newKeys(): Promise<{ readonly keys: webcrypto.CryptoKeyPair; readonly pem: string }> {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const pkcs8 = privateKey.export({ format: 'der', type: 'pkcs8' });
  const spki = publicKey.export({ format: 'der', type: 'spki' });
  const keys = {
    privateKey: await webcrypto.subtle.importKey('pkcs8', pkcs8, KEY, true, ['sign']),
    publicKey: await webcrypto.subtle.importKey('spki', spki, KEY, true, ['verify']),
  };
  return { keys, pem: privateKey.export({ format: 'pem', type: 'pkcs8' }) as string };
}

/** Positive, and never the same twice. */
function serial(): string {
  const bytes = randomBytes(SERIAL_BYTES);
  bytes[0] = ((bytes[0] as number) & 0x7f) | 0x40;
  return bytes.toString('hex');
}
