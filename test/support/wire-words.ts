/**
 * What the programs of this tree say to one another, written down as they say it: a small fleet does everything once, and one of
 * each kind of word is kept. Run in the tree of a release it makes the fixtures by which the next one is tested:
 *
 *     npx tsx test/support/wire-words.ts > words.json
 */
import { createServer, type IncomingHttpHeaders, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { TestAgent } from './agent.ts';
import { askLeader, FakeSidecar } from './control-plane.ts';
import { cast, Fleet, knows } from './fleet.ts';

import { CALLER } from './rig.ts';
import { waitUntil } from './settle.ts';

export interface Words {
  /** By kind: JSON, or JSON and what stands behind its line. */
  readonly bus: Readonly<Record<string, string>>;
  readonly mesh: {
    readonly request: Readonly<Record<string, string>>;
    readonly path: string;
    readonly answer: Readonly<Record<string, string>>;
    readonly refusal: Readonly<Record<string, string>>;
  };
}

interface Teardowns {
  teardown(end: () => void | Promise<void>): unknown;
}

const NEAR = 'crm.near.query';
const FAR = 'crm.far.query';

/** What is told apart; the first one that matches. */
const KINDS: readonly (readonly [kind: string, subject: RegExp])[] = [
  ['hello', /^ar\.test\.ctl\.hello/],
  ['register', /^ar\.test\.ctl\.register/],
  ['leave', /^ar\.test\.ctl\.leave/],
  ['pool request', /^ar\.test\.ctl\.pool/],
  ['heartbeat', /^ar\.test\.(hb|heartbeat)\./],
  ['report', /^ar\.test\.report\./],
  ['beacon', /^ar\.test\.beacon/],
  ['scope state', /^ar\.test\.push\.scope\./],
  ['work state', /^ar\.test\.push\.work\./],
  ['rules state', /^ar\.test\.push\.rules/],
  ['pool state', /^ar\.test\.push\.pool\./],
  ['registration state', /^ar\.test\.push\.reg\./],
  ['capability state', /^ar\.test\.push\.(cap\.)?crm\.near\.query/],
  ['envelope', /^ar\.test\.task\./],
  ['result event', /^ar\.test\.inbox\./],
  ['note', /^ar\.test\.note\./],
  ['claim', /^ar\.test\.idem\./],
];

export async function recordWords(t: Teardowns): Promise<Words> {
  const fleet = await Fleet.start(t as unknown as Test);
  const bus: Record<string, string> = {};
  const subjects = new Set<string>();
  const heard = ({ subject, data }: { readonly subject: string; readonly data: Buffer }): void => {
    subjects.add(subject);
    const kind = KINDS.find(([, pattern]) => pattern.test(subject))?.[0];
    // The longest one says the most: the first and the last have often nothing to say.
    if (kind !== undefined && data.length > (bus[kind]?.length ?? 0)) bus[kind] = data.toString('utf8');
  };
  fleet.bus.subscribe('ar.test.>', heard, { pushed: true });
  const agent = await TestAgent.listen('near', async () => {
    await new Promise((done) => setTimeout(done, 800));
    return { body: { answer: 42 } };
  });
  t.teardown(() => agent.close());
  const asked: { path: string; headers: IncomingHttpHeaders }[] = [];
  const stub = createServer((request, response) => {
    asked.push({ path: request.url ?? '', headers: request.headers });
    request.resume().on('end', () => response.writeHead(503, { 'reach-code': '2003', 'reach-started': 'not_started' }).end());
  });
  await new Promise<void>((done) => stub.listen(0, '127.0.0.1', done));
  t.teardown(() => void stub.close());
  const far = await FakeSidecar.join(fleet.nats, 'far', { 'crm.far.1': [`${FAR}@1.0.0`] });
  const hello = {
    wire: 1,
    sidecar: 'far',
    instance: 'far-1',
    mesh: `http://127.0.0.1:${(stub.address() as AddressInfo).port}`,
    region: 'north',
    zone: 'a',
    callers: ['crm.front.x'],
    agents: far.agents,
  };
  bus['answer'] = JSON.stringify(await askLeader(far.bus, far.subjects.ctl('hello'), hello));
  const table =
    `contracts: [{name: ${NEAR}, version: 1.0.0, description: what it does, acl: public, execution: keyed, tags: {kind: test}, ` +
    `input: {type: object}, output: {type: object}, limits: {per_caller: 10}}]\n` +
    `providers: [{agent_id: crm.near.1, offers: [${NEAR}@1.0.0], via: near, endpoint: {type: http, address: "${agent.url}"}}]\n`;
  const near = await fleet.sidecar('near', table, '  locality: {region: north, zone: a}\n');
  await knows(near, NEAR);
  await knows(near, FAR);
  await near.invoke(FAR, { payload: { far: true }, headers: { 'reach-sequence-id': 's-1' } });
  await waitUntil('the mesh was used', () => asked.length > 0, 5_000);
  const one = asked[0] as (typeof asked)[number];
  const request: Record<string, string> = {};
  for (const [name, value] of Object.entries(one.headers))
    if (name.startsWith('reach-') || name === 'traceparent' || name === 'content-type') request[name] = String(value);
  const mesh = near.started.meshUrl as string;
  const answer = await askMesh(mesh, `/mesh/v1/invoke/${NEAR}`, { ...request, 'reach-provider': 'crm.near.1' });
  const refusal = await askMesh(mesh, `/mesh/v1/invoke/${NEAR}`, { ...request, 'reach-provider': 'crm.near.9' });

  const task = await cast(near, NEAR, { job: 1 }, { 'reach-execution': 'keyed', 'reach-tags': 'kind=test' });
  await waitUntil('the cast is done', async () => (await fleet.statesOf(task)).join() === 'done', 10_000);
  const registered = await near.ask('/v1/agents', {
    method: 'POST',
    payload: { contracts: [], provider: { agent_id: CALLER, offers: [`${NEAR}@1.0.0`], endpoint: { type: 'http', address: agent.url } } },
  });
  if (registered.status !== 201) throw new Error(`not registered: ${registered.bytes.toString('utf8')}`);
  await far.leave('crm.far.1').catch(() => undefined);
  await waitUntil('all has been said', () => KINDS.every(([kind]) => kind in bus || OPTIONAL.has(kind)), 12_000).catch(() => {
    const missing = KINDS.filter(([kind]) => !(kind in bus)).map(([kind]) => kind);
    throw new Error(`never said: ${missing.join(', ')}; said on: ${[...subjects].sort().join(' ')}`);
  });
  await near.stop();
  return { bus, mesh: { request, path: one.path, answer, refusal } };
}

/** Not said in every fleet. */
const OPTIONAL: ReadonlySet<string> = new Set(['heartbeat', 'rules state', 'pool state', 'registration state', 'note']);

/** As a sidecar asks another; what is told in headers. */
export function askMesh(mesh: string, path: string, headers: Readonly<Record<string, string>>): Promise<Record<string, string>> {
  return new Promise((done, fail) => {
    const all = { ...headers, authorization: 'Bearer token-of-the-mesh', 'content-type': 'application/json' };
    const request = httpRequest(`${mesh}${path}`, { method: 'POST', agent: false, headers: all }, (response) => {
      response.resume();
      const kept: Record<string, string> = { status: String(response.statusCode) };
      for (const [name, value] of Object.entries(response.headers)) if (name.startsWith('reach-')) kept[name] = String(value);
      done(kept);
    });
    request.on('error', fail);
    request.end('{}');
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const ends: (() => void | Promise<void>)[] = [];
  const words = await recordWords({ teardown: (end) => void ends.push(end) });
  process.stdout.write(`${JSON.stringify(words, null, 2)}\n`);
  for (const end of ends.reverse()) await end();
  process.exit(0);
}
