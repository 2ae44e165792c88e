import t from 'tap';
import { readSidecarConfig } from '../../../sidecar/config.ts';

const TABLE = 'contracts: []\nproviders: []\n';
const REGISTRY = '  registry: {env: prod}\n';

function read(lines: string): ReturnType<typeof readSidecarConfig> {
  return readSidecarConfig(`sidecar:\n  name: front\n${lines}${TABLE}`, 'sidecar.yaml');
}

function problem(lines: string): string {
  const reading = read(lines);
  return 'problems' in reading ? reading.problems.map(({ message }) => message).join(' | ') : 'taken';
}

t.test('with identities, the mesh speaks TLS unless it is said that it does not', async (t) => {
  const identity = '  identity: {token: {file: token}}\n';
  t.match(
    problem(`${REGISTRY}${identity}  mesh: {token: token-of-mesh}\n`),
    /tls is missing: with identity, sidecars prove themselves by certificates/,
  );
  const off = read(`${REGISTRY}${identity}  mesh: {token: token-of-mesh, tls: "off"}\n`);
  t.match(off, {
    config: { mesh: { tls: null, token: { literal: 'token-of-mesh' } }, identity: { mode: 'enforce', token: { file: 'token' } } },
  });
  t.match(read(`${REGISTRY}${identity}  mesh: {token: token-of-mesh, tls: false}\n`), { config: { mesh: { tls: null } } });
  t.match(problem(`${REGISTRY}${identity}  mesh: {tls: "off"}\n`), /token is missing/, 'without both, sidecars would believe anybody');
  const on = read(`${REGISTRY}${identity}  mesh: {tls: {cert: c.pem, key: k.pem, ca: ca.pem}}\n`);
  t.match(on, { config: { mesh: { token: null, tls: { cert: 'c.pem', key: 'k.pem', ca: 'ca.pem', reloadMs: 2_000 } } } });
  t.match(
    read(`${REGISTRY}${identity}`),
    { config: { mesh: null, identity: { mode: 'enforce' } } },
    'a sidecar without a mesh port needs none',
  );
});

t.test('TLS can be had without identities, and its slips have their places', async (t) => {
  const files = 'cert: c.pem, key: k.pem, ca: ca.pem';
  t.match(read(`  mesh: {tls: {${files}}}\n`), { config: { mesh: { token: null } } });
  t.match(
    read(`  mesh: {token: token-of-mesh, tls: {${files}}}\n`),
    { config: { mesh: { token: null } } },
    'certificates take the place of the token',
  );
  t.match(problem('  mesh: {tls: {cert: c.pem, key: k.pem}}\n'), /ca is missing/);
  t.match(problem(`  mesh: {tls: {${files}, verify: false}}\n`), /unknown key|verify/);
  t.match(problem('  mesh: {token: token-of-mesh, tls: true}\n'), /must be \{cert, key, ca\} or "off"/);
  t.match(problem(`  mesh: {tls: {${files}}, advertise: "http://front:7701"}\n`), /speaks TLS: write https/);
  t.match(problem('  mesh: {token: token-of-mesh, advertise: "https://front:7701"}\n'), /speaks clear text/);
  t.match(problem('  mesh: {}\n'), /token is missing/);
});

t.test('identities come from a registry', async (t) => {
  t.match(problem('  identity: {}\n'), /identity needs a registry/);
  t.match(problem(`${REGISTRY}  identity: {mode: none}\n`), /mode/);
  t.match(read(`${REGISTRY}  identity: {mode: audit}\n`), { config: { identity: { mode: 'audit', token: null } } });
  t.match(read(REGISTRY), { config: { identity: null } });
});
