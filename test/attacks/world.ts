/**
 * What is attacked: a control plane that issues identities, a sidecar that hosts the watched provider, and one beside the
 * callers, with every way in open: HTTP, JSON-RPC, gRPC, channel, proxy, embedded; mutual TLS between the two, whose mesh
 * port is there to be knocked at; messages on a real nats-server. All in this process, which makes it quick to start, and
 * nothing is replaced by a double.
 *
 * Capabilities, all served by the one watched agent: `crm.order.query` for whoever is of team crm, `pay.refund.issue` for
 * ops alone, `crm.ticket.open` (keyed) for crm, and `crm.order.soft`, whose fallback is what ops alone may call.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { request as httpsRequest } from 'node:https';
import type { Test } from 'tap';
import { newKeyPair } from '../../base/ed25519.ts';
import { makeAuthority, makeSidecarCertificate, type Pair } from '../../control-plane/identity/ca.ts';
import { ENV, Plane } from '../support/control-plane.ts';
import { NatsServer } from '../support/nats.ts';
import { type Asking, Rig } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { type Outcome, ProviderWatch } from './provider-watch.ts';

export const QUERY = 'crm.order.query';
export const REFUND = 'pay.refund.issue';
export const TICKET = 'crm.ticket.open';
export const SOFT = 'crm.order.soft';
export const PROVIDER = 'crm.order.1';
/** May call what is the team's. */
export const ALICE = 'crm.bot.alice';
/** So may this one; neither is the other. */
export const BOB = 'crm.bot.bob';
/** May call nothing but what is public. */
export const MALLORY = 'ext.guest.mallory';
/** May call `pay.refund.issue`. */
export const OPS = 'ops.desk.olga';
export const FRONT = 'front-side';
export const ORDER = 'order-side';

const DAY_MS = 86_400_000;
const DAY_SEC = 86_400;

export interface Shown {
  readonly cert?: string;
  readonly key?: string;
  readonly ca: string;
}

export class AttackWorld {
  readonly nats: NatsServer;
  readonly plane: Plane;
  readonly watch: ProviderWatch;
  readonly folder: string;
  readonly authority: Pair;
  /** PEM of the key that signs tokens and statements. */
  readonly signingKey: string;
  front!: Rig;
  order!: Rig;
  readonly tokens = new Map<string, string>();

  static async start(t: Test): Promise<AttackWorld> {
    const folder = mkdtempSync(join(tmpdir(), 'reach-attacks-'));
    t.teardown(() => rmSync(folder, { recursive: true, force: true }));
    const signingKey = newKeyPair().privatePem;
    writeFileSync(join(folder, 'signing-key.pem'), signingKey, { mode: 0o600 });
    const nats = await NatsServer.start(t);
    const plane = await Plane.start(
      t,
      nats,
      'cp-1',
      `  identity:\n    signing_key: {file: "${join(folder, 'signing-key.pem')}"}\n  addresses: {loopback: false}\n`,
    );
    const authority = await makeAuthority('attacks', Date.now(), 10 * DAY_MS);
    const world = new AttackWorld(nats, plane, await ProviderWatch.start(t), folder, authority, signingKey);
    await plane.leads();
    await Promise.all([world.#equip(FRONT), world.#equip(ORDER)]);
    for (const agent of [ALICE, BOB, MALLORY, OPS, PROVIDER]) world.tokens.set(agent, await world.issue('agent', agent));
    world.order = await world.#sidecar(t, ORDER, orderTable(world.watch.url));
    world.front = await world.#sidecar(t, FRONT, 'contracts: []\nproviders: []\n');
    for (const agent of [ALICE, BOB, MALLORY, OPS]) await world.#settle(agent);
    return world;
  }

  private constructor(nats: NatsServer, plane: Plane, watch: ProviderWatch, folder: string, authority: Pair, signingKey: string) {
    this.nats = nats;
    this.plane = plane;
    this.watch = watch;
    this.folder = folder;
    this.authority = authority;
    this.signingKey = signingKey;
  }

  async issue(kind: 'agent' | 'sidecar', name: string, more: object = {}): Promise<string> {
    const { status, body } = await this.plane.ask('/v1/identities', { json: { kind, name, ...more } });
    if (status !== 201) throw new Error(`no token for ${name}: ${JSON.stringify(body)}`);
    return body['token'] as string;
  }

  token(agent: string): string {
    const token = this.tokens.get(agent);
    if (token === undefined) throw new Error(`${agent} has no token`);
    return token;
  }

  /** An HTTP call at the callers' sidecar. */
  async call(asking: Asking & { readonly agent?: string } = {}, target = QUERY): Promise<Outcome> {
    const token = asking.agent === undefined ? asking.token : this.token(asking.agent);
    const answer = await this.front.invoke(target, { payload: { order: 'O-1' }, ...asking, ...(token === undefined ? {} : { token }) });
    return outcomeOf(answer.status, answer.json);
  }

  /** The same for any path. */
  async ask(path: string, asking: Asking & { readonly agent?: string } = {}, at = this.front): Promise<Outcome & { readonly json: any }> {
    const token = asking.agent === undefined ? asking.token : this.token(asking.agent);
    const answer = await at.ask(path, { ...asking, ...(token === undefined ? {} : { token }) });
    return { ...outcomeOf(answer.status, answer.json), json: answer.json };
  }

  get mesh(): string {
    return this.order.started.meshUrl as string;
  }

  /** What a sidecar of this mesh shows. */
  async shown(name: string, env = ENV, by = this.authority): Promise<Shown> {
    const made = await makeSidecarCertificate(by, env, name, Date.now(), DAY_MS);
    return { cert: made.certificate, key: made.key, ca: this.authority.certificate };
  }

  async #equip(name: string): Promise<void> {
    const made = await makeSidecarCertificate(this.authority, ENV, name, Date.now(), DAY_MS);
    writeFileSync(join(this.folder, `${name}.pem`), made.certificate);
    writeFileSync(join(this.folder, `${name}-key.pem`), made.key, { mode: 0o600 });
    writeFileSync(join(this.folder, 'ca.pem'), this.authority.certificate);
    writeFileSync(join(this.folder, `${name}.token`), await this.issue('sidecar', name), { mode: 0o600 });
  }

  #sidecar(t: Test, name: string, table: string): Promise<Rig> {
    const file = (what: string): string => JSON.stringify(join(this.folder, what));
    const settings = `  mesh: {listen: "127.0.0.1:0", tls: {cert: ${file(`${name}.pem`)}, key: ${file(`${name}-key.pem`)}, ca: ${file('ca.pem')}}}
  grpc: {listen: "127.0.0.1:0"}
  registry: {nats: "${this.nats.url}", env: ${ENV}}
  identity: {token: {file: ${file(`${name}.token`)}}}
  operator_token: operator-of-the-sidecar
  limits: {body: 64KiB}
`;
    return Rig.start(t, { name, table, settings });
  }

  /** Until a rightful agent is served, or a wrongful one is refused for what it may not: keys, table and statements are there. */
  async #settle(agent: string): Promise<void> {
    const target = agent === OPS ? REFUND : QUERY;
    const wanted = agent === MALLORY ? [2001, 4002] : [0];
    await waitUntil(`${agent} is known`, async () => wanted.includes((await this.call({ agent }, target)).code as number), 20_000, 50);
  }
}

function orderTable(url: string): string {
  const contract = (name: string, acl: string, more = ''): string =>
    `  - {name: ${name}, version: 2.0.0, description: x, acl: [${acl}], execution: idempotent${more}}\n`;
  return `contracts:
${contract(QUERY, '"team:crm"', ', aliases: [crm.order.find]')}${contract(REFUND, '"team:ops"')}${contract(TICKET, '"team:crm"').replace(
  'idempotent',
  'keyed',
)}${contract(SOFT, '"team:crm"', `, fallback: [{capability: ${REFUND}}]`)}providers:
  - agent_id: ${PROVIDER}
    via: ${ORDER}
    offers: [${QUERY}@2.0.0, ${REFUND}@2.0.0, ${TICKET}@2.0.0]
    endpoint: {type: http, address: "${url}", path: "/{capability}"}
  - agent_id: crm.order.broken
    via: ${ORDER}
    offers: [${SOFT}@2.0.0]
    endpoint: {type: http, address: "http://127.0.0.1:9", path: /}
`;
}

/** The code of an answer, whatever its form. @param status null = it is no answer of HTTP */
export function outcomeOf(status: number | null, json: any): Outcome {
  const detail = json?.error?.detail ?? json?.detail ?? json?.error?.message;
  return {
    code: json?.code ?? json?.error?.data?.code ?? json?.error?.code ?? null,
    ...(status === null ? {} : { status }),
    ...(detail === undefined ? {} : { detail: String(detail) }),
  };
}

export interface MeshAsking {
  readonly agent?: string;
  readonly home?: string | null;
  readonly capability?: string;
  readonly version?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A call on the mesh port as a sidecar makes it; code null when there is not even a connection. */
export function meshCall(mesh: string, shown: Shown, asking: MeshAsking = {}): Promise<Outcome> {
  return new Promise((done) => {
    const asked = httpsRequest(
      `${mesh}/mesh/v1/invoke/${asking.capability ?? QUERY}`,
      {
        method: 'POST',
        agent: false,
        ...shown,
        checkServerIdentity: () => undefined,
        headers: {
          'content-type': 'application/json',
          'reach-wire': '1',
          'reach-provider': PROVIDER,
          'reach-version': asking.version ?? '2.0.0',
          'reach-caller': asking.agent ?? ALICE,
          'reach-deadline-ms': '2000',
          'reach-deadline-total-ms': '2000',
          ...(asking.home == null ? {} : { 'reach-home': asking.home }),
          ...asking.headers,
        },
      },
      (response) => {
        response.resume();
        response.on('end', () =>
          done({
            status: response.statusCode ?? 0,
            code: Number(response.headers['reach-code'] ?? Number.NaN),
            detail: decodeURIComponent(String(response.headers['reach-detail'] ?? '')),
          }),
        );
      },
    );
    asked.on('error', (error: NodeJS.ErrnoException) => done({ code: null, detail: error.code ?? error.message }));
    asked.end('{}');
  });
}

export const nowSec = (): number => Math.floor(Date.now() / 1_000);
export { DAY_MS, DAY_SEC };
