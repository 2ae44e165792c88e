/**
 * The same calls with issued identities and mutual TLS, beside the plain ones: a control plane that signs, two sidecars that are joined
 * to it, and an agent's token, all made for the run by the commands that an operator uses. Decides how that is set up, where the load
 * goes, and what is said of it.
 *
 * Two ratios, each formed within a round: `mesh_tls` over the plain mesh row, and `identity` (an issued token, straight to the agent)
 * over `static` (a token of the settings, on the same sidecar and way).
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { ensureNatsServer } from '../../deploy/local/nats-binary.ts';
import { NatsProcess } from '../../deploy/local/nats-server.ts';
import { secret } from '../../deploy/local/secret.ts';
import { waitUntil } from '../support/settle.ts';
import { startProgram } from '../support/sockets.ts';
import type { Target } from './connection.ts';
import { type Latency, median, type Pass, perCall } from './figures.ts';
import { QUESTION } from './payload.ts';
import { CALLER_TOKEN, contract, DIRECT, HOSTED, provider } from './scenario.ts';
import type { Server } from './servers.ts';

export type SecuredName = 'mesh' | 'mesh_tls' | 'static' | 'identity';
/** Those that are compared stand beside one another. */
export const SECURED: readonly SecuredName[] = ['mesh', 'mesh_tls', 'static', 'identity'];

const ENV = 'bench';
const CALLER = 'bench-caller';
const HOST = 'bench-host';
const AGENT = 'crm.planner.a1';
const OTHER = 'crm.planner.a2';

/** How the bench starts a process and reads what it says. */
interface Starter {
  readonly folder: string;
  start(name: string, program: string, args: readonly string[]): Server;
  sidecar(name: string, text: string): Server;
  said(server: Server, pattern: RegExp): Promise<string>;
}

export interface Secured {
  readonly caller: Server;
  readonly host: Server;
  readonly targets: Readonly<Record<Exclude<SecuredName, 'mesh'>, Target>>;
  stop(): Promise<void>;
}

/** Resolves when a call with an issued token gets through two sidecars. */
export async function secure(starter: Starter, agentUrl: string): Promise<Secured> {
  const { folder } = starter;
  const path = (...parts: string[]): string => join(folder, ...parts);
  mkdirSync(path('nats'));
  const nats = await NatsProcess.start({ binary: ensureNatsServer(() => {}), folder: path('nats') });
  try {
    await Promise.all([reachctl('identity', 'init', '--out', path('keys')), reachctl('identity', 'ca', '--out', path('ca'), '--env', ENV)]);
    const operator = secret();
    writeFileSync(path('control.yaml'), controlSettings(nats.url, operator, path('keys', 'signing-key.pem')), { mode: 0o600 });
    const control = starter.start('control', 'control-plane/main.ts', ['run', path('control.yaml')]);
    const at = await starter.said(control, /listens on (http:\/\/\S+)/);
    await waitUntil('the control plane leads', async () => (await healthOf(at)) === 'leading', 20_000, 50);
    const env = { REACH_SERVER: at, REACH_TOKEN: operator };
    for (const name of [CALLER, HOST]) {
      await reachctl('sidecar', 'cert', name, '--ca', path('ca'), '--env', ENV, '--out', path(name));
      await withEnv(env, 'sidecar', 'add', name, '--out', path(name, 'token'));
    }
    await withEnv(env, 'agent', 'add', AGENT, '--out', path('agent-token'));
    const settings = (name: string, callers: readonly unknown[], offer: string, agentId: string): string =>
      sidecarSettings(name, path, nats.url, callers, offer, agentId, agentUrl);
    const host = starter.sidecar('secure-host', settings(HOST, [], HOSTED, 'crm.order.b1'));
    await starter.said(host, /, mesh (https:\/\/\S+)/);
    const callers = [{ agent: OTHER, token: CALLER_TOKEN }];
    const caller = starter.sidecar('secure-caller', settings(CALLER, callers, DIRECT, 'crm.order.a1'));
    const port = Number(new URL(await starter.said(caller, /listens on (http:\/\/[^\s,]+)/)).port);
    const token = readFileSync(path('agent-token'), 'utf8').trim();
    const target = (name: SecuredName, capability: string, shown: string): Target => ({
      name,
      port,
      path: `/v1/invoke/${capability}@%5E2.0`,
      headers: { authorization: `Bearer ${shown}` },
      enveloped: true,
    });
    const targets = {
      mesh_tls: target('mesh_tls', HOSTED, token),
      static: target('static', DIRECT, CALLER_TOKEN),
      identity: target('identity', DIRECT, token),
    };
    for (const each of Object.values(targets)) await waitUntil(`a call by ${each.name}`, () => isAnswered(each), 20_000, 100);
    return { caller, host, targets, stop: () => nats.stop() };
  } catch (error) {
    await nats.stop();
    throw error;
  }
}

async function reachctl(...args: readonly string[]): Promise<void> {
  await withEnv({}, ...args);
}

async function withEnv(env: Readonly<Record<string, string>>, ...args: readonly string[]): Promise<void> {
  const program = startProgram('control-plane/cli/main.ts', args, { env });
  const { code } = await program.ended(60_000);
  if (code !== 0) throw new Error(`reachctl ${args.slice(0, 2).join(' ')}: exit ${code}\n${program.stderr}`);
}

async function healthOf(at: string): Promise<string> {
  const response = await fetch(`${at}/v1/health`).catch(() => null);
  return response === null ? '' : ((await response.json()) as { status: string }).status;
}

async function isAnswered({ port, path, headers }: Target): Promise<boolean> {
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: new Uint8Array(QUESTION),
  }).catch(() => null);
  await answer?.arrayBuffer();
  return answer?.status === 200;
}

function controlSettings(natsUrl: string, token: string, keyFile: string): string {
  return stringify({
    control_plane: {
      name: 'bench',
      env: ENV,
      nats: { url: natsUrl },
      api: { listen: '127.0.0.1:0', operators: [{ name: 'bench', role: 'operator', token }] },
      addresses: { loopback: true },
      identity: { signing_key: { file: keyFile } },
      log: { level: 'warn' },
    },
  });
}

function sidecarSettings(
  name: string,
  path: (...parts: string[]) => string,
  natsUrl: string,
  callers: readonly unknown[],
  offer: string,
  agentId: string,
  agentUrl: string,
): string {
  const tls = { cert: path(name, `${name}.pem`), key: path(name, `${name}-key.pem`), ca: path('ca', 'ca.pem') };
  const sidecar = {
    name,
    listen: '127.0.0.1:0',
    mesh: { listen: '127.0.0.1:0', tls },
    locality: { region: 'eu', zone: 'a' },
    state_dir: 'none',
    registry: { nats: natsUrl, env: ENV, addresses: { loopback: true } },
    identity: { mode: 'enforce', token: { file: path(name, 'token') } },
    callers,
  };
  const table = { contracts: [contract(offer)], providers: [provider(agentId, offer, { type: 'http', address: agentUrl }, name)] };
  return stringify({ sidecar, ...table }, { aliasDuplicateObjects: false });
}

export type SecuredPasses = Readonly<Record<SecuredName, readonly Pass[]>>;
export type SecuredWindow = Readonly<Record<'direct' | 'mesh' | 'mesh_tls', Latency>>;

/** What TLS and statements may cost between two sidecars, over the same path in clear text. */
const MOST_TLS_RATIO = 1.5;
/** Room of a token that was verified before, over one of the settings; both ways. */
const MOST_IDENTITY_RATIO = 1.05;

/** @param windows none: the latencies are NaN, and null in JSON */
export function securedFigures(passes: SecuredPasses, windows: readonly SecuredWindow[]): Readonly<Record<string, number>> {
  const cpu = (name: SecuredName): number => rounded(median(passes[name].map(perCall)), 1);
  const added = windows.map((window) => window.mesh_tls.p50Ms - window.direct.p50Ms);
  return {
    mesh_tls_cpu_us: cpu('mesh_tls'),
    mesh_tls_ratio: ratio(passes.mesh_tls, passes.mesh),
    mesh_tls_added_p50_ms: rounded(median(added), 3),
    static_cpu_us: cpu('static'),
    identity_cpu_us: cpu('identity'),
    identity_cpu_ratio: ratio(passes.identity, passes.static),
  };
}

function ratio(over: readonly Pass[], under: readonly Pass[]): number {
  return rounded(median(over.map((pass, i) => perCall(pass) / perCall(under[i] as Pass))), 3);
}

/** For people. */
export function securedTable(passes: SecuredPasses, figures: Readonly<Record<string, number>>): string {
  const lines = ['secured        calls/s    CPU us/call'];
  for (const name of SECURED) {
    const perSec = median(passes[name].map((pass) => (pass.calls / pass.elapsedMs) * 1_000));
    lines.push(`${name.padEnd(14)}${perSec.toFixed(0).padStart(8)}${median(passes[name].map(perCall)).toFixed(1).padStart(15)}`);
  }
  lines.push('');
  for (const [name, limit] of [
    ['mesh_tls_ratio', MOST_TLS_RATIO],
    ['identity_cpu_ratio', MOST_IDENTITY_RATIO],
  ] as const) {
    const actual = figures[name] ?? Number.NaN;
    const word = Number.isNaN(actual) ? 'not judged' : actual <= limit ? 'met' : 'MISSED';
    lines.push(`${name.padEnd(22)}${String(actual).padStart(6)}  <= ${String(limit).padEnd(6)}${word}`);
  }
  return lines.join('\n');
}

function rounded(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
