/**
 * `agent`, `sidecar`, `identity`: tokens that the control plane issues, and the keys and certificates that are made here, in
 * files, without asking anybody. A token and a key are written where only their owner can read them, or shown once.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { parseDuration } from '../../base/duration.ts';
import { keyIdOf, newKeyPair, publicText, readPublicKey } from '../../base/ed25519.ts';
import { isSidecarName } from '../../proto/wire/token.ts';
import type { IdentitiesAnswer, IdentityView, IssuedAnswer, RevokedAnswer } from '../api/identity-shapes.ts';
import { Exit, Failed } from './client.ts';
import type { Context } from './context.ts';
import type { Act, Options } from './program.ts';
import { table, when } from './table.ts';

type Kind = 'agent' | 'sidecar';

const ONLY_OWNER = 0o600;
const DAY_MS = 86_400_000;
/** What clients of TLS take at most these days is about a year. */
const CERTIFICATE_TTL = '365d';
const AUTHORITY_TTL = '3650d';
const MAX_AUTHORITY_MS = 10_000 * DAY_MS;

export function identityCommands(program: Command, act: Act): void {
  const agent = program.command('agent').description('tokens by which agents prove who they are').helpCommand(false);
  agent
    .command('add <agent-id>')
    .description('issue a token to team.role.name; it is shown this once')
    .option('--home <sidecar...>', 'it may be used at these sidecars only')
    .option('--ttl <duration>', 'how long it counts, such as 90d')
    .option('--out <file>', 'write it to this file, for its owner alone, instead of showing it')
    .option('--reason <text>', 'stands in the audit log')
    .action(act((context, [name], options) => add(context, 'agent', name as string, options)));
  shared(agent, act, 'agent', '<agent-id>');
  const sidecar = program.command('sidecar').description('tokens and certificates by which sidecars prove who they are').helpCommand(false);
  sidecar
    .command('add <name>')
    .description('issue a token to a sidecar, for sidecar.identity.token; it is shown this once')
    .option('--ttl <duration>', 'how long it counts, such as 365d')
    .option('--out <file>', 'write it to this file, for its owner alone, instead of showing it')
    .option('--reason <text>', 'stands in the audit log')
    .action(act((context, [name], options) => add(context, 'sidecar', name as string, options)));
  shared(sidecar, act, 'sidecar', '<name>');
  sidecar
    .command('cert <name>')
    .description('make a certificate and its key for sidecar.mesh.tls, signed by an own authority; nobody is asked')
    .option('--ca <folder>', 'where `identity ca` has put the authority', '.')
    .option('--env <name>', 'the environment, as in the settings of the registry', 'default')
    .option('--out <folder>', 'where the files go', '.')
    .option('--ttl <duration>', 'how long it counts', CERTIFICATE_TTL)
    .action(act((context, [name], options) => certificate(context, name as string, options)));

  const identity = program.command('identity').description('the keys behind tokens and certificates').helpCommand(false);
  identity
    .command('init')
    .description('make the key that signs tokens, for control_plane.identity.signing_key; nobody is asked')
    .option('--out <folder>', 'where the files go', '.')
    .action(act((context, _args, options) => init(context, options)));
  identity
    .command('ca')
    .description('make an own authority for the certificates of sidecars; nobody is asked')
    .option('--out <folder>', 'where the files go', '.')
    .option('--env <name>', 'stands in its name', 'default')
    .option('--ttl <duration>', 'how long it counts', AUTHORITY_TTL)
    .action(act((context, _args, options) => authority(context, options)));
  identity
    .command('keys')
    .description('the keys whose signatures count, and which one signs')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ path: '/v1/identities' });
        context.show<IdentitiesAnswer>(answer, keysWords);
      }),
    );
}

function shared(parent: Command, act: Act, kind: Kind, argument: string): void {
  parent
    .command('list')
    .description('to whom tokens were issued, and which of them count')
    .action(
      act(async (context) => {
        const answer = await context.client.call({ path: '/v1/identities', query: { kind } });
        context.show<IdentitiesAnswer>(answer, ({ identities }) => listWords(identities));
      }),
    );
  const rotate = parent
    .command(`rotate ${argument}`)
    .description('issue a further token; the ones before it count for a while yet')
    .option('--overlap <duration>', 'how long they do', '24h')
    .option('--ttl <duration>', 'how long the new one counts')
    .option('--out <file>', 'write it to this file, for its owner alone, instead of showing it')
    .option('--reason <text>', 'stands in the audit log');
  if (kind === 'agent') rotate.option('--home <sidecar...>', 'it may be used at these sidecars only; absent: as before');
  rotate.action(
    act(async (context, [name], options) => {
      const out = outOf(options);
      const json = { ...orderOf(options), overlap: options['overlap'] };
      const answer = await context.client.call({
        method: 'POST',
        path: `/v1/identities/${encodeURIComponent(name as string)}/rotate`,
        json,
      });
      issued(context, answer as IssuedAnswer, out);
    }),
  );
  parent
    .command(`revoke ${kind === 'agent' ? '<agent-or-jti>' : '<name-or-jti>'}`)
    .description('take back all that was issued to it, or one token by its id')
    .option('--reason <text>', 'stands in the audit log')
    .action(
      act(async (context, [target], options) => {
        const path = `/v1/identities/${encodeURIComponent(target as string)}/revoke`;
        const answer = await context.client.call({ method: 'POST', path, json: reasonOf(options) });
        context.show<RevokedAnswer>(answer, ({ name, revoked, seq }) =>
          revoked === name
            ? `${name}: all that was issued to it counts no more; in force at sequence ${seq}`
            : `${name}: the token ${revoked} counts no more; in force at sequence ${seq}`,
        );
      }),
    );
}

async function add(context: Context, kind: Kind, name: string, options: Options): Promise<void> {
  const out = outOf(options);
  const json = { kind, name, ...orderOf(options) };
  const answer = await context.client.call({ method: 'POST', path: '/v1/identities', json });
  issued(context, answer as IssuedAnswer, out);
}

function orderOf(options: Options): Record<string, unknown> {
  return {
    ...(options['home'] === undefined ? {} : { homes: options['home'] }),
    ...(options['ttl'] === undefined ? {} : { ttl: options['ttl'] }),
    ...reasonOf(options),
  };
}

function reasonOf(options: Options): Record<string, string> {
  return typeof options['reason'] === 'string' ? { reason: options['reason'] } : {};
}

/** Looked at before anything is issued: a token that cannot be put away would be lost. */
function outOf(options: Options): string | null {
  const out = options['out'];
  if (typeof out !== 'string') return null;
  if (existsSync(out)) throw new Failed(Exit.usage, [`${out} is there already: name another file, or remove it first`]);
  return out;
}

function issued(context: Context, answer: IssuedAnswer, out: string | null): void {
  if (out !== null) writeNew(out, `${answer.token}\n`, ONLY_OWNER);
  const shown = out === null ? answer : { ...answer, token: undefined, file: out };
  context.show<IssuedAnswer>(shown, ({ name, jti, homes, expires_at_ms: until, seq }) => {
    const where = homes === null ? '' : `, at ${homes.join(', ')} only`;
    const head = `${name}: token ${jti} counts until ${when(until)}${where}; in force at sequence ${seq}`;
    return out === null ? `${head}\n${answer.token}` : `${head}\nwritten to ${out}`;
  });
}

function init(context: Context, options: Options): void {
  const folder = folderOf(options);
  const [key, half] = [join(folder, 'signing-key.pem'), join(folder, 'signing-key.pub.pem')];
  refuseOverwriting([key, half]);
  const { privatePem, publicPem } = newKeyPair();
  writeNew(key, privatePem, ONLY_OWNER);
  writeNew(half, publicPem, 0o644);
  const made = readPublicKey(publicPem);
  const kid = typeof made === 'string' ? '' : keyIdOf(publicText(made));
  context.show({ kid, key, public_key: half }, () =>
    [`key ${kid}`, `  ${key}      signs: control_plane.identity.signing_key, on every replica`, `  ${half}  its public half`].join('\n'),
  );
}

async function authority(context: Context, options: Options): Promise<void> {
  const folder = folderOf(options);
  const [cert, key] = [join(folder, 'ca.pem'), join(folder, 'ca-key.pem')];
  refuseOverwriting([cert, key]);
  const ttlMs = ttlOf(options);
  const { makeAuthority } = await import('../identity/ca.ts');
  const made = await makeAuthority(`Agent-Reach ${String(options['env'])}`, context.io.clock.wallMs(), ttlMs);
  writeNew(cert, made.certificate, 0o644);
  writeNew(key, made.key, ONLY_OWNER);
  context.show({ ca: cert, key }, () =>
    [`${cert}      every sidecar has it: sidecar.mesh.tls.ca`, `${key}  signs certificates: keep it off the sidecars`].join('\n'),
  );
}

async function certificate(context: Context, name: string, options: Options): Promise<void> {
  if (!isSidecarName(name))
    throw new Failed(Exit.usage, [
      `${JSON.stringify(name.slice(0, 80))} is not the name of a sidecar: 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit`,
    ]);
  const env = String(options['env']);
  if (!/^[a-zA-Z0-9_-]{1,64}$/.test(env)) throw new Failed(Exit.usage, ['--env must be 1 to 64 of a-z, A-Z, 0-9, _ and -']);
  const folder = folderOf(options);
  const [cert, key] = [join(folder, `${name}.pem`), join(folder, `${name}-key.pem`)];
  refuseOverwriting([cert, key]);
  const ca = String(options['ca']);
  const pair = { certificate: readOwn(join(ca, 'ca.pem')), key: readOwn(join(ca, 'ca-key.pem')) };
  const ttlMs = ttlOf(options);
  const { makeSidecarCertificate } = await import('../identity/ca.ts');
  const nowMs = context.io.clock.wallMs();
  let made: { readonly certificate: string; readonly key: string };
  try {
    made = await makeSidecarCertificate(pair, env, name, nowMs, ttlMs);
  } catch (error) {
    throw new Failed(Exit.refused, [(error as Error).message]);
  }
  // The key first: a sidecar that looks now finds a certificate with its key.
  writeNew(key, made.key, ONLY_OWNER);
  writeNew(cert, made.certificate, 0o644);
  context.show({ sidecar: name, env, cert, key, ends_at_ms: nowMs + ttlMs }, () =>
    [`${name} in ${env}, until ${when(nowMs + ttlMs)}`, `  ${cert}  sidecar.mesh.tls.cert`, `  ${key}  sidecar.mesh.tls.key`].join('\n'),
  );
}

function ttlOf(options: Options): number {
  const ms = parseDuration(options['ttl'], MAX_AUTHORITY_MS);
  if (typeof ms === 'string') throw new Failed(Exit.usage, [`--ttl: ${ms}`]);
  return ms;
}

function folderOf(options: Options): string {
  const folder = String(options['out']);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new Failed(Exit.usage, [`${folder}: cannot be made (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
  return folder;
}

function refuseOverwriting(files: readonly string[]): void {
  for (const file of files)
    if (existsSync(file)) throw new Failed(Exit.usage, [`${file} is there already and is not written over: take another folder (--out)`]);
}

function writeNew(file: string, text: string, mode: number): void {
  try {
    writeFileSync(file, text, { mode, flag: 'wx' });
  } catch (error) {
    throw new Failed(Exit.refused, [`${file}: cannot be written (${(error as NodeJS.ErrnoException).code ?? 'error'})`]);
  }
}

function readOwn(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'error';
    throw new Failed(Exit.usage, [`${file}: cannot be read (${code}); make an authority with: reachctl identity ca`]);
  }
}

function listWords(identities: readonly IdentityView[]): string {
  return table(
    ['NAME', 'STATUS', 'TOKEN', 'TOKEN IS', 'ISSUED', 'UNTIL', 'HOMES', 'BY'],
    identities.flatMap(({ name, status, tokens }) =>
      tokens.length === 0
        ? [[name, status]]
        : tokens.map((token) => [
            name,
            status,
            token.jti,
            token.status,
            when(token.issued_at_ms),
            when(Math.min(token.expires_at_ms, token.revoked_from_ms ?? token.expires_at_ms)),
            token.homes === null ? 'any' : token.homes.join(' '),
            token.by,
          ]),
    ),
  );
}

function keysWords({ keys }: IdentitiesAnswer): string {
  return table(
    ['KEY', 'SIGNS'],
    keys.map(({ kid, signs }) => [kid, signs]),
  );
}
