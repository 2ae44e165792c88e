/**
 * What can be seen of image, Compose file, units and examples without Docker and without starting much: that every file they name
 * is there, that settings and secrets fit together, that whoever stops a program waits for its grace, and that every example is
 * taken by the readers of the product. What the image holds is put together from the Dockerfile's own lines, and run.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import t, { type Test } from 'tap';
import { parse } from 'yaml';
import { realClock } from '../../../base/clock.ts';
import { newKeyPair } from '../../../base/ed25519.ts';
import { createLog } from '../../../base/log.ts';
import { newUserKey } from '../../../base/nkey.ts';
import { readControlPlaneConfig } from '../../../control-plane/config.ts';
import { ControlPlane } from '../../../control-plane/control-plane.ts';
import { makeAuthority, makeSidecarCertificate } from '../../../control-plane/identity/ca.ts';
import { readOperatorsDocument } from '../../../control-plane/rules/document.ts';
import { findNatsServer } from '../../../deploy/local/nats-binary.ts';
import { defaultsOf } from '../../../proto/language/process-shapes.ts';
import { readSidecarConfig } from '../../../sidecar/config.ts';
import { shutdownShape } from '../../../sidecar/shutdown-config.ts';
import { problemsIn, startSidecar } from '../../../sidecar/sidecar.ts';
import { Dockerfile } from '../../support/dockerfile.ts';
import { nodeArgs, repoFile } from '../../support/paths.ts';
import { freePort, startNode } from '../../support/sockets.ts';

t.setTimeout(110_000);

interface Service {
  readonly image: string;
  readonly command?: readonly string[];
  readonly user?: string;
  readonly read_only?: boolean;
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly stop_grace_period?: string;
  readonly network_mode?: string;
  readonly configs?: readonly { readonly source: string; readonly target: string }[];
  readonly secrets?: readonly (string | { readonly source: string; readonly target: string })[];
  readonly volumes?: readonly string[];
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly healthcheck?: { readonly test?: readonly string[]; readonly disable?: boolean };
  readonly ulimits?: { readonly nofile: number };
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly configs: Readonly<Record<string, { readonly file: string }>>;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
  readonly volumes: Readonly<Record<string, unknown>>;
}

const read = (path: string): string => readFileSync(repoFile(path), 'utf8');
const docker = new Dockerfile(read('deploy/docker/Dockerfile'));
const COMPOSE = 'deploy/compose';
const compose = parse(read(`${COMPOSE}/compose.yaml`), { merge: true }) as Compose;
const services = Object.entries(compose.services);
const seconds = (text: string): number => Number(/^(\d+)s$/.exec(text)?.[1] ?? Number.NaN);
/** From the signal until the process has gone at the latest, beside the grace itself. */
const AFTER_GRACE_SEC = 5;
const DEFAULT_GRACE_SEC = defaultsOf(shutdownShape).graceMs / 1_000;
/** It stands in its entry, which runs when it is imported. */
const CONTROL_GRACE_SEC = Number(/GRACE_MS = ([\d_]+);/.exec(read('control-plane/main.ts'))?.[1]?.replaceAll('_', '')) / 1_000;

/** Whether the builder is sent this path of the tree: the last line of .dockerignore that speaks of it decides. */
function isSent(path: string): boolean {
  let sent = true;
  for (const line of read('.dockerignore').split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const pattern = line.replace(/^!/, '').replaceAll(/[.+^${}()|[\]]/g, '\\$&');
    const words = pattern.replaceAll('**/', '\u0001').replaceAll('*', '[^/]*').replaceAll('\u0001', '(?:.*/)?');
    if (new RegExp(`^${words}(?:/.*)?$`).test(path)) sent = line.startsWith('!');
  }
  return sent;
}

function temporary(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), 'reach-deploy-'));
  t.teardown(() => {
    spawnSync('chmod', ['-R', 'u+w', folder]);
    rmSync(folder, { recursive: true, force: true });
  });
  return folder;
}

function sidecarSettings(text: string, file: string) {
  const reading = readSidecarConfig(text, file);
  if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
  return reading.config;
}

function controlSettings(text: string, file: string) {
  const reading = readControlPlaneConfig(text, file);
  if ('problems' in reading) throw new Error(JSON.stringify(reading.problems));
  return reading.config;
}

t.test('the image', async (t) => {
  t.test('is made of pinned bases and of files that are there', async (t) => {
    for (const { from } of docker.stages) t.match(from, /^node:20\.\d+\.\d+-[a-z-]+$/, from);
    for (let stage = 0; stage < docker.stages.length; stage++)
      for (const { from, sources } of docker.copies(stage))
        for (const source of sources) {
          if (from === '') t.ok(existsSync(repoFile(source)) && isSent(source), `${source} is there, and sent to the builder`);
          else
            t.ok(
              docker.stages.some(({ name }) => name === from),
              from,
            );
        }
    t.notOk(isSent('deploy/compose/secrets/operator'), 'secrets are not');
    t.notOk(isSent('deploy/examples/key.pem'));
    t.notOk(isSent('.git/config'));
    t.notOk(isSent('node_modules/yaml/package.json'));
  });

  t.test('runs as nobody in particular, tells how it is by itself, and gets its signals', async (t) => {
    const [user] = docker.last('USER');
    t.match(user, /^[1-9]\d{3,}:[1-9]\d{3,}$/, 'a number, which is not that of root');
    t.same(docker.last('STOPSIGNAL'), ['SIGTERM']);
    t.same(docker.last('ENTRYPOINT'), [], 'nothing stands between the program and its signals');
    const command = JSON.parse(docker.last('CMD')[0] as string) as string[];
    t.same(command.slice(0, 2), ['reach-sidecar', 'run'], 'no shell');
    const [health] = docker.last('HEALTHCHECK');
    t.match(health, /CMD \["node", "\/opt\/agent-reach\/dist\/health\.js"\]$/);
    t.notMatch(docker.instructions.map(({ text }) => text).join('\n'), /curl|wget|apt-get/, 'nothing is installed for it');
    const labels = docker.last('LABEL').join(' ');
    for (const label of ['title', 'description', 'licenses', 'version', 'revision', 'created'])
      t.match(labels, `org.opencontainers.image.${label}=`, label);
    const { version } = JSON.parse(read('package.json')) as { version: string };
    t.ok(docker.last('ARG').includes(`VERSION=${version}`), 'the version is that of the package');
    const order = docker.instructions.map(({ name }) => name);
    t.ok(order.lastIndexOf('USER') > order.lastIndexOf('RUN'), 'all that needs root is done before');
  });

  t.test('holds what it needs and no more: put together as the Dockerfile says, read-only, it runs and answers', async (t) => {
    if (!existsSync(repoFile('dist/deploy/docker/health.js'))) {
      t.comment('nothing is built here');
      return;
    }
    const root = temporary(t);
    const workdir = docker.last('WORKDIR').at(-1) as string;
    for (const { from, sources, target } of docker.copies())
      for (const source of sources) {
        const path = from === '' ? repoFile(source) : repoFile(source.replace(/^\/src\//, ''));
        const to = target.endsWith('/') ? join(target, basename(source)) : target;
        cpSync(path, join(root, resolve(workdir, to)), { recursive: true, filter: (each) => !each.endsWith('.map') });
      }
    mkdirSync(join(root, '/usr/local/bin'), { recursive: true });
    for (const [, target, link] of docker
      .last('RUN')
      .join(' ')
      .matchAll(/ln -s (\S+) (\S+)/g))
      symlinkSync(join(root, target as string), join(root, link as string));
    t.ok(existsSync(join(root, workdir, 'dist/bundle-control/console/index.html')), 'the console is in it');
    const bytes = Number(execFileSync('du', ['-sb', root], { encoding: 'utf8' }).split('\t')[0]);
    t.comment(`${(bytes / 1_048_576).toFixed(1)} MiB beside Node`);
    t.ok(bytes < 8 * 1_048_576, `${bytes} bytes`);
    execFileSync('chmod', ['-R', 'a-w', root]);

    const state = temporary(t);
    const port = await freePort();
    const settings = join(state, 'sidecar.yaml');
    writeFileSync(settings, read('deploy/examples/standalone.yaml').replace('127.0.0.1:7700', `127.0.0.1:${port}`));
    const bin = (name: string): string => join(root, '/usr/local/bin', name);
    const env = { DESK_TOKEN: 'token-of-the-desk' };
    const sidecar = startNode([bin('reach-sidecar'), 'run', settings], { cwd: state, env });
    t.teardown(async () => void (await sidecar.stop()));
    await sidecar.said(/listens on/, 30_000);
    const answer = await fetch(`http://127.0.0.1:${port}/v1/health`);
    t.match([answer.status, await answer.json()], [200, { status: 'ok', sidecar: 'desk' }]);

    const health = (pid: number) => spawnSync(process.execPath, [join(root, workdir, 'dist/health.js'), String(pid)], { encoding: 'utf8' });
    t.match(health(sidecar.pid), { status: 0, stdout: /\/v1\/health: 200 ok/ }, 'the health check finds out what runs');
    t.match(health(process.pid), { status: 0 }, 'and is content with what it does not know');
    const good = readFileSync(settings, 'utf8');
    writeFileSync(settings, good.replace('acl: [role:desk]', 'alc: [role:desk]'));
    t.match(health(sidecar.pid), { status: 0 }, 'a bad edit of the table does not make it unwell: it goes on with what it has');
    writeFileSync(settings, good);
    t.same(await sidecar.stop(), { code: 0, signal: null }, 'SIGTERM ends it, with success');
    // The command itself: nobody answers any more.
    const asked = spawnSync(process.execPath, [bin('reach-sidecar'), 'health', settings], { encoding: 'utf8' });
    t.match(asked, { status: 1, stderr: /ECONNREFUSED/ });
    for (const name of ['reach-control', 'reachctl'])
      t.match(spawnSync(process.execPath, [bin(name), '--version'], { encoding: 'utf8' }), { status: 0, stdout: /^\d+\.\d+\.\d+/ }, name);
  });
});

t.test('the Compose file', async (t) => {
  t.test('names nothing that is not there, and leaves nothing unused', async (t) => {
    const used = { configs: new Set<string>(), secrets: new Set<string>(), volumes: new Set<string>() };
    for (const [name, service] of services) {
      for (const { source } of service.configs ?? []) used.configs.add(source);
      for (const secret of service.secrets ?? []) used.secrets.add(typeof secret === 'string' ? secret : secret.source);
      for (const volume of service.volumes ?? []) used.volumes.add(volume.split(':')[0] as string);
      for (const [other, { condition }] of Object.entries(service.depends_on ?? {})) {
        const target = compose.services[other];
        t.ok(target !== undefined, `${name} waits for ${other}, which is there`);
        if (condition === 'service_healthy') t.ok((target?.healthcheck?.test?.length ?? 0) > 0, `${other} can be found healthy`);
      }
      const shared = /^service:(.+)$/.exec(service.network_mode ?? '')?.[1];
      if (shared !== undefined)
        t.ok(
          compose.services[shared] !== undefined && service.depends_on?.[shared] !== undefined,
          `${name} shares the network of ${shared}`,
        );
    }
    t.same([...used.configs].sort(), Object.keys(compose.configs).sort());
    t.same([...used.secrets].sort(), Object.keys(compose.secrets).sort());
    t.same([...used.volumes].sort(), Object.keys(compose.volumes).sort());
    for (const { file } of Object.values(compose.configs)) t.ok(existsSync(repoFile(COMPOSE, file)), file);
  });

  t.test('lets nobody be root, write where it need not, or gain rights', async (t) => {
    for (const [name, service] of services) {
      t.equal(service.read_only, true, `${name}: a root that cannot be written`);
      t.same(service.cap_drop, ['ALL'], `${name}: no rights`);
      t.same(service.security_opt, ['no-new-privileges:true'], name);
      // The image of ours has a user of its own. One service gives new volumes to it, and ends.
      if (!service.image.includes('agent-reach')) t.match(service.user, name === 'volumes' ? /^0:0$/ : /^10001:10001$/, name);
      t.match(service.image, /:\d+\.\d+\.\d+|REACH_IMAGE/, `${name}: a pinned image`);
    }
  });

  t.test('every program of ours has settings that are good, the secrets that they name, and time to stop', async (t) => {
    let seen = 0;
    for (const [name, service] of services) {
      const [program, verb, file] = service.command ?? [];
      if (verb !== 'run') continue;
      seen++;
      const { source } = service.configs?.find(({ target }) => target === file) ?? { source: '' };
      const path = join(COMPOSE, compose.configs[source]?.file ?? '');
      const text = read(path);
      const secrets = new Set((service.secrets ?? []).map((secret) => (typeof secret === 'string' ? secret : secret.target)));
      for (const [, secret] of text.matchAll(/\/run\/secrets\/([\w.-]+)/g))
        t.ok(secrets.delete(secret as string) || text.split(secret as string).length > 2, `${name} is given ${secret}`);
      t.same([...secrets], [], `${name} is given no secret that it does not need`);
      const grace = seconds(service.stop_grace_period as string);
      t.same(service.healthcheck?.test?.slice(0, 3), ['CMD', program, 'health'], `${name} tells how it is`);
      t.equal(service.healthcheck?.test?.[3], file);
      if (program === 'reach-sidecar') {
        const config = sidecarSettings(text, path);
        t.same(problemsIn(text, path), [], path);
        t.ok(
          grace >= config.shutdown.graceMs / 1_000 + AFTER_GRACE_SEC,
          `${name}: ${grace} s are more than its grace of ${config.shutdown.graceMs} ms`,
        );
        t.equal(new URL(config.mesh?.advertise as string).hostname, name, 'others find it by the name of its service');
        t.equal(Number(new URL(config.mesh?.advertise as string).port), config.mesh?.listen.port);
        t.ok((service.ulimits?.nofile ?? 0) > config.limits.connections, `${name}: a file handle for each connection`);
        t.ok(
          service.volumes?.some((volume) => volume.endsWith(`:${config.stateDir}`)),
          `${name}: what has to outlive it lies in a volume`,
        );
      } else {
        const config = controlSettings(text, path);
        t.ok(grace >= CONTROL_GRACE_SEC + AFTER_GRACE_SEC, `${name}: ${grace} s`);
        t.equal(new URL(config.api.publicUrl as string).hostname, name);
        t.equal(config.nats.url, 'nats://nats:4222');
      }
    }
    t.equal(seen, 4, 'two sidecars and two replicas');
    const envs = services
      .flatMap(([, { configs = [] }]) => configs)
      .map(({ source }) => /env: (\w+)/.exec(read(join(COMPOSE, compose.configs[source]?.file ?? '')))?.[1]);
    t.same(new Set(envs.filter((env) => env !== undefined)), new Set(['compose']), 'all are of one environment');
  });

  t.test('its secrets are what prepare.sh makes, which makes nothing twice', async (t) => {
    const folder = temporary(t);
    const out = join(folder, 'secrets');
    const env = { ...process.env, REACH_SECRETS: out, REACHCTL: [process.execPath, ...nodeArgs('control-plane/cli/main.ts')].join(' ') };
    const prepare = () => execFileSync('sh', [repoFile(COMPOSE, 'prepare.sh')], { env, stdio: 'pipe' });
    prepare();
    for (const { file } of Object.values(compose.secrets)) t.ok(existsSync(join(folder, file)), file);
    const given = new Set(Object.values(compose.secrets).map(({ file }) => file.replace('./secrets/', '')));
    const made = readdirSync(out, { recursive: true, encoding: 'utf8' }).filter((file) => statSync(join(out, file)).isFile());
    for (const file of made) {
      const mode = statSync(join(out, file)).mode & 0o777;
      if (given.has(file)) t.equal(mode & 0o044, 0o044, `${file}: a container has another user, and can read it`);
      else if (!/\.pub\.pem$|nats-users\.json$/.test(file)) t.equal(mode & 0o077, 0, `${file}: nobody is given it`);
    }
    t.ok(made.includes('ca-key.pem') && !given.has('ca-key.pem'), 'the authority stays outside');
    t.equal(statSync(out).mode & 0o777, 0o700, 'nobody else on this machine gets into the folder');
    const texts = () => made.map((file) => readFileSync(join(out, file), 'utf8'));
    const before = texts();
    prepare();
    t.same(texts(), before);
  });
});

t.test('the units', async (t) => {
  const folder = repoFile('deploy/systemd');
  const units = readdirSync(folder).filter((file) => file.endsWith('.service'));
  const settings = (unit: string): Map<string, string[]> => {
    const found = new Map<string, string[]>();
    for (const line of read(`deploy/systemd/${unit}`).split('\n')) {
      const match = /^([A-Za-z]+)=(.*)$/.exec(line);
      if (match !== null) found.set(match[1] as string, [...(found.get(match[1] as string) ?? []), match[2] as string]);
    }
    return found;
  };

  t.test('are shut off from what they do not need, stop in time and come back', async (t) => {
    t.equal(units.length, 3);
    for (const unit of units) {
      const of = settings(unit);
      const one = (key: string): string => of.get(key)?.at(-1) ?? '';
      for (const key of [
        'NoNewPrivileges',
        'ProtectHome',
        'PrivateTmp',
        'PrivateDevices',
        'DynamicUser',
        'RestrictNamespaces',
        'LockPersonality',
      ])
        t.equal(one(key), 'yes', `${unit} ${key}`);
      t.equal(one('ProtectSystem'), 'strict');
      t.equal(one('CapabilityBoundingSet'), '');
      t.equal(of.has('LoadCredential'), unit !== 'reach-nats.service', `${unit}: secrets are passed on by systemd`);
      t.match(one('Restart'), /^(?:on-failure|always)$/);
      t.equal(one('KillMode'), 'mixed');
      t.ok(Number(one('LimitNOFILE')) > 4_096);
      t.ok(
        seconds(one('TimeoutStopSec')) >= (unit.startsWith('reach-control') ? CONTROL_GRACE_SEC : DEFAULT_GRACE_SEC) + AFTER_GRACE_SEC,
        `${unit} has the time to stop`,
      );
      t.equal(one('Type'), 'exec');
    }
    t.ok(
      Number(settings('reach-sidecar@.service').get('LimitNOFILE')?.[0]) >
        sidecarSettings(read('deploy/examples/standalone.yaml'), 'x').limits.connections,
    );
  });

  t.test('install.sh puts everything where they look for it, and systemd has nothing to say against them', async (t) => {
    if (!existsSync(repoFile('dist/bundle/main.js'))) {
      t.comment('nothing is built here');
      return;
    }
    const root = temporary(t);
    execFileSync('sh', [join(folder, 'install.sh')], { env: { ...process.env, DESTDIR: root } });
    const bin = join(root, 'opt/agent-reach/bin');
    for (const program of ['reach-sidecar', 'reach-control', 'reachctl']) {
      t.ok(lstatSync(join(bin, program)).isSymbolicLink());
      t.match(spawnSync(join(bin, program), ['--version'], { encoding: 'utf8' }), { status: 0 }, program);
    }
    t.ok(existsSync(join(root, 'opt/agent-reach/dist/bundle-control/console/index.html')), 'the console too');
    const installed = join(root, 'etc/systemd/system');
    t.same(readdirSync(installed).sort(), units.sort());
    if (spawnSync('systemd-analyze', ['--version']).status !== 0) {
      t.comment('no systemd-analyze here');
      return;
    }
    const nats = findNatsServer() ?? process.execPath;
    for (const unit of units) {
      const text = readFileSync(join(installed, unit), 'utf8').replaceAll('/opt/agent-reach', join(root, 'opt/agent-reach'));
      writeFileSync(join(installed, unit), text.replaceAll('/usr/local/bin/nats-server', nats));
    }
    const verified = spawnSync(
      'systemd-analyze',
      ['verify', '--man=no', '--recursive-errors=no', ...units.map((unit) => join(installed, unit))],
      { encoding: 'utf8' },
    );
    t.equal(verified.stderr.trim(), '', 'systemd-analyze verify');
    t.equal(verified.status, 0);
    for (const unit of units) {
      const instance = unit.replace('@.', '@crm.');
      if (instance !== unit) symlinkSync(unit, join(installed, instance));
      const judged = spawnSync('systemd-analyze', ['security', '--offline=yes', '--threshold=30', join(installed, instance)], {
        encoding: 'utf8',
      });
      t.equal(judged.status, 0, `${unit}: ${/Overall exposure.*/.exec(judged.stdout)?.[0]}`);
    }
  });
});

t.test('every example is taken by whoever it is for', async (t) => {
  const folder = repoFile('deploy/examples');
  const readers: Readonly<Record<string, (text: string, file: string) => readonly unknown[]>> = {
    sidecar: problemsIn,
    control_plane: (text, file) => {
      const reading = readControlPlaneConfig(text, file);
      return 'problems' in reading ? reading.problems : [];
    },
    policies: (text, file) => readOperatorsDocument(text, file, null).problems,
  };
  const seen = new Map<string, number>();
  for (const file of readdirSync(folder).filter((each) => each.endsWith('.yaml'))) {
    const text = readFileSync(join(folder, file), 'utf8');
    const kind = Object.keys(readers).find((key) => new RegExp(`^${key}:`, 'm').test(text));
    t.ok(kind !== undefined, `${file} is of a kind that is known`);
    if (kind === undefined) continue;
    seen.set(kind, (seen.get(kind) ?? 0) + 1);
    t.same(readers[kind]?.(text, join(folder, file)), [], file);
    t.match(text, /^# /, `${file} says what it is for`);
    t.notMatch(text, /token: [a-z"']/, `${file}: no secret stands in it`);
  }
  for (const kind of Object.keys(readers)) t.ok((seen.get(kind) ?? 0) > 0, kind);
  const server = findNatsServer();
  if (server === null) {
    t.comment('no nats-server here');
    return;
  }
  const place = temporary(t);
  for (const conf of ['deploy/examples/nats.conf', 'deploy/compose/nats/nats.conf']) {
    const at = join(place, basename(dirname(conf)));
    mkdirSync(at);
    mkdirSync(join(at, 'nats'));
    for (const users of ['nats-users.conf', 'nats/nats-users.conf'])
      writeFileSync(join(at, users), 'authorization { users: [{ user: control, password: "secret-of-control" }] }\n');
    const text = read(conf)
      .replaceAll('../../run/secrets/nats-users.conf', './nats-users.conf')
      .replaceAll('/var/lib/reach-nats', join(at, 'store'));
    writeFileSync(join(at, 'nats.conf'), text);
    chmodSync(join(at, 'nats.conf'), 0o600);
    const tried = spawnSync(server, ['-t', '-c', join(at, 'nats.conf')], { encoding: 'utf8' });
    t.equal(tried.status, 0, `${conf}: ${tried.stderr}`);
  }
});

t.test('every example of settings starts, whether NATS is there or not', async (t) => {
  const place = temporary(t);
  const secrets = join(place, 'secrets');
  mkdirSync(join(place, 'nats'));
  mkdirSync(secrets);
  const authority = await makeAuthority('test', realClock.wallMs(), 10 * 86_400_000);
  writeFileSync(join(secrets, 'ca.pem'), authority.certificate);
  writeFileSync(join(secrets, 'signing-key.pem'), newKeyPair().privatePem, { mode: 0o600 });
  for (const name of ['order-1', 'gateway-1']) {
    const { certificate, key } = await makeSidecarCertificate(authority, 'prod', name, realClock.wallMs(), 86_400_000);
    writeFileSync(join(secrets, `${name}.pem`), certificate);
    writeFileSync(join(secrets, `${name}-key.pem`), key, { mode: 0o600 });
    writeFileSync(join(secrets, `${name}.nk`), newUserKey().seed, { mode: 0o600 });
  }
  writeFileSync(join(place, 'nats', 'control-plane.nk'), newUserKey().seed, { mode: 0o600 });
  for (const name of ['operator-ada', 'operator-dashboard', 'notices', 'mesh-token', 'agent-token', 'sidecar-token'])
    writeFileSync(join(secrets, name), `secret-of-${name}`);
  process.env['DESK_TOKEN'] = 'token-of-the-desk';
  process.env['BILLING_API_KEY'] = 'key-of-billing';
  const log = createLog({ level: 'silent', to: 'stderr', service: 'test' });

  const started: string[] = [];
  for (const file of readdirSync(repoFile('deploy/examples')).filter((each) => each.endsWith('.yaml'))) {
    const text = read(`deploy/examples/${file}`);
    const here = text
      .replaceAll('/etc/reach', place)
      .replaceAll('/var/lib/reach', join(place, 'state'))
      .replaceAll(/nats:\/\/[a-z\d.-]+:4222/g, 'nats://127.0.0.1:9')
      .replaceAll(/(listen: ")[\d.]+:\d+"/g, '$1127.0.0.1:0"')
      .replace('state_dir: .reach', `state_dir: ${join(place, 'state')}`);
    const path = join(place, file);
    writeFileSync(path, here);
    if (/^sidecar:/m.test(text)) {
      const sidecar = await startSidecar(path, log);
      const response = await fetch(`${sidecar.url}/v1/health`);
      const { status } = (await response.json()) as { status: string };
      t.equal(status, /^ {2}registry:/m.test(text) ? 'starting' : 'ok', `${file}: ${status}`);
      t.equal((await fetch(`${sidecar.url}/v1/ready`)).status, status === 'ok' ? 200 : 503, 'and readiness tells the truth');
      await sidecar.stop(0);
    } else if (/^control_plane:/m.test(text)) {
      const plane = new ControlPlane(controlSettings(here, path), log, '0', null);
      await plane.start();
      const response = await fetch(`${plane.api.url}/v1/health`);
      t.match(await response.json(), { status: 'starting', nats: 'away' }, file);
      await plane.stop(0);
    } else continue;
    started.push(file);
  }
  t.equal(started.length, 7, started.join(' '));
});
