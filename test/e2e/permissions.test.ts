/**
 * A fleet on NATS with the keys and permissions that `reachctl nats` makes: two replicas of the control plane and two sidecars
 * with identities, each a process and a user of the server. Calls, messages, rules, overrides, quotas, a person with NATS
 * alone, a change of leaders, a change of keys: all that has to be done can be done, without one permission violation in the
 * server's log; and what must not be done the server refuses.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, nkeyAuthenticator } from 'nats';
import t, { type Test } from 'tap';
import { realClock } from '../../base/clock.ts';
import { runReachctl } from '../../control-plane/cli/program.ts';
import { CONFIG_STREAM, INBOX_STREAM, TASK_STREAM } from '../../proto/wire/subjects.ts';
import { asBrowser, sessionHeaders, signIn } from '../support/browser-session.ts';
import { MARK } from '../support/credential-mark.ts';
import { TestAgent } from '../support/agent.ts';
import { ENV, OPERATOR, settingsText } from '../support/control-plane.ts';
import { newKeyPair } from '../../base/ed25519.ts';
import { CONTROL, startWithUsers } from '../support/nats-permissions.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort, type Program, startProgram } from '../support/sockets.ts';

t.setTimeout(150_000);

type Body = Readonly<Record<string, unknown>>;
const PLANNER = `token-of-the-planner-${MARK}`;
const NAMES = { idempotent: 'crm.order.query', once: 'crm.refund.apply', keyed: 'crm.order.change' } as const;

t.test('with no more than its own permissions a sidecar sends, works, claims, tells, keeps, reads and calls off', async (t) => {
  const users = await startWithUsers(t, { env: ENV, sidecars: ['sender', 'worker', 'thief'], operators: ['ann'] });
  const { nats } = users;
  const folder = mkdtempSync(join(tmpdir(), 'reach-permissions-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const as = (user: string): string => `credential: {nkey: {file: ${JSON.stringify(users.seedFile(user))}}}`;
  writeFileSync(join(folder, 'signing-key.pem'), newKeyPair().privatePem, { mode: 0o600 });
  const [senderPort, firstPort, secondPort] = [await freePort(), await freePort(), await freePort()];
  let planePort = firstPort;
  const programs: Program[] = [];
  const start = (program: string, file: string, settings: string): Program => {
    const path = join(folder, file);
    writeFileSync(path, settings);
    const started = startProgram(program, ['run', path]);
    programs.push(started);
    t.teardown(() => started.stop(15_000));
    return started;
  };
  let hold = false;
  const agent = await TestAgent.listen('worker', async ({ json }) => {
    const { fail = 0 } = (json ?? {}) as { fail?: number };
    if (hold) await new Promise((done) => setTimeout(done, 5_000));
    return fail > 0 ? { status: fail, body: { why: 'as asked' } } : { body: { ok: true } };
  });
  t.teardown(() => agent.close());
  const replica = (name: string, port: number): Program =>
    start(
      'control-plane/main.ts',
      `${name}.yaml`,
      settingsText(
        name,
        nats.url,
        `  messages: {ack_wait: 2s}\n  identity: {signing_key: {file: ${JSON.stringify(join(folder, 'signing-key.pem'))}}}\n`,
        port,
        as(CONTROL),
      ),
    );
  const first = replica('cp-1', firstPort);
  const statusOf = async (port: number): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${port}/v1/health`).catch(() => null);
    return response === null ? 'away' : String(((await response.json()) as Body)['status']);
  };
  await waitUntil('the first replica leads', async () => (await statusOf(firstPort)) === 'leading', 30_000).catch((error: unknown) => {
    t.comment(nats.process.said, first.stderr);
    throw error;
  });
  replica('cp-2', secondPort);
  const operator = async (method: string, path: string, payload?: unknown): Promise<{ status: number; body: Body }> => {
    const response = await fetch(`http://127.0.0.1:${planePort}${path}`, {
      method,
      headers: { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/json' },
      ...(payload === undefined ? {} : { body: JSON.stringify(payload) }),
    });
    return { status: response.status, body: (await response.json()) as Body };
  };
  for (const name of ['sender', 'worker']) {
    const issued = await operator('POST', '/v1/identities', { kind: 'sidecar', name });
    writeFileSync(join(folder, `${name}.token`), String(issued.body['token']), { mode: 0o600 });
  }
  const joined = (name: string): string =>
    `  state_dir: ./state\n  log: {level: info}\n  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh, tls: "off"}\n  identity: {token: {file: ${JSON.stringify(join(folder, `${name}.token`))}}}\n  registry: {nats: "${nats.url}", ${as(name)}, env: ${ENV}, addresses: {loopback: true}}\n`;
  start(
    'sidecar/main.ts',
    'sender.yaml',
    `sidecar:\n  name: sender\n  listen: 127.0.0.1:${senderPort}\n  callers: [{agent: sales.planner.p1, token: ${PLANNER}}]\n${joined('sender')}`,
  );
  const contracts = Object.entries(NAMES).map(
    ([execution, name]) =>
      `  - {name: ${name}, version: 1.0.0, description: d, acl: public, execution: ${execution}, timeout: 5s, deadline: 60s}`,
  );
  start(
    'sidecar/main.ts',
    'worker.yaml',
    `sidecar:\n  name: worker\n  listen: 127.0.0.1:0\n  messages: {work: {tries: 1}}\n${joined('worker')}contracts:\n${contracts.join('\n')}\nproviders:\n  - {agent_id: crm.order.a1, offers: [${Object.values(
      NAMES,
    )
      .map((name) => `"${name}@1.0.0"`)
      .join(', ')}], via: worker, endpoint: {type: http, address: "${agent.url}"}}\n`,
  );
  const ask = async (
    method: string,
    path: string,
    payload?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ status: number; body: Body }> => {
    const response = await fetch(`http://127.0.0.1:${senderPort}${path}`, {
      method,
      headers: { authorization: `Bearer ${PLANNER}`, 'content-type': 'application/json', ...headers },
      ...(payload === undefined ? {} : { body: JSON.stringify(payload) }),
    });
    return { status: response.status, body: (await response.json()) as Body };
  };
  const cast = async (name: string, payload: Body = {}, headers: Readonly<Record<string, string>> = {}): Promise<string> => {
    const { status, body } = await ask('POST', `/v1/cast/${name}`, payload, headers);
    if (status !== 202) throw new Error(`${name}: ${status} ${JSON.stringify(body)}`);
    return String(body['task_id']);
  };
  const ends = async (t: Test, task: string, state: string): Promise<void> => {
    let last: Body = {};
    await waitUntil(
      `${task} is ${state}`,
      async () => (last = (await ask('GET', `/v1/tasks/${task}`)).body)['state'] === state,
      20_000,
    ).catch((error: unknown) => t.fail(`${String(error)}: ${JSON.stringify(last)}`));
  };
  await waitUntil(
    'everything is there',
    async () => {
      try {
        return (await ask('POST', `/v1/cast/${NAMES.idempotent}`, {})).status === 202;
      } catch {
        return false;
      }
    },
    30_000,
  ).catch((error: unknown) => {
    t.comment(nats.process.said);
    for (const { stdout, stderr } of programs) t.comment(`${stdout.slice(-3_000)}${stderr.slice(-1_000)}`);
    throw error;
  });

  await t.test('every kind of work, with and without a key, and every end', async (t) => {
    await ends(t, await cast(NAMES.idempotent), 'done');
    await ends(t, await cast(NAMES.once), 'done');
    await ends(t, await cast(NAMES.keyed, {}, { 'idempotency-key': 'k1' }), 'done');
    await ends(t, await cast(NAMES.keyed, {}, { 'idempotency-key': 'k1' }), 'done');
    await ends(t, await cast(NAMES.once, { fail: 404 }), 'failed');
    await ends(t, await cast(NAMES.keyed, { fail: 503 }), 'dead_lettered');
    t.match((await operator('GET', '/v1/tasks/kept')).body, { entries: [{ kind: 'dead', cause: 'attempts_exhausted' }] });
  });

  await t.test('the inbox is read and acknowledged, also what is older; a task is called off', async (t) => {
    const page = (await ask('GET', '/v1/inbox?limit=3')).body;
    const entries = page['entries'] as { seq: number }[];
    t.equal(entries.length, 3);
    t.equal((await ask('POST', '/v1/inbox/ack', { seq: entries[1]?.seq })).status, 200);
    t.equal((await ask('GET', `/v1/inbox?from=${(entries[0]?.seq ?? 0) + 1}`)).status, 200);
    t.match((await ask('GET', '/v1/tasks/nosuchtask1')).status, 404, 'which the control plane was asked about');
    hold = true;
    const task = await cast(NAMES.idempotent);
    await waitUntil('the agent has it', async () => (await ask('GET', `/v1/tasks/${task}`)).body['state'] === 'received', 10_000);
    t.match((await ask('DELETE', `/v1/tasks/${task}`)).status, 200, 'its worker has answered');
    await ends(t, task, 'cancelled');
    hold = false;
  });

  await t.test('rules reach it; what is sticky is worked on; what nobody can do goes to a person', async (t) => {
    const rules = `rules:
  - {name: together, when: {capability: ${NAMES.idempotent}}, action: {dispatch: sticky, sticky_by: sequence_id}}
  - {name: person, when: {target_role: nobody}, fallback: {if_no_available_agent: notify_admin}}
`;
    const applied = await fetch(`http://127.0.0.1:${planePort}/v1/policies`, {
      method: 'POST',
      headers: { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/yaml' },
      body: rules,
    });
    t.ok(applied.status < 300, await applied.text());
    let body: Body = {};
    await waitUntil('the rule is in force', async () => {
      body = (await ask('POST', `/v1/cast/${NAMES.idempotent}`, {}, { 'reach-sequence-id': 'c1' })).body;
      return body['rule'] === 'together';
    });
    await ends(t, String(body['task_id']), 'done');
    const { status, body: held } = await ask('POST', '/v1/messages', { target: { role: 'nobody' }, payload: {} });
    t.equal(status, 202, JSON.stringify(held));
    t.match(held, { state: 'parked', rule: 'person' });
    t.match((await operator('GET', '/v1/tasks/kept?kind=review')).body, { entries: [{ task_id: held['task_id'] }] });
    t.equal((await operator('POST', `/v1/tasks/kept/${String(held['task_id'])}/reroute`, { capability: NAMES.once })).status, 200);
    await ends(t, String(held['task_id']), 'done');
  });

  await t.test('calls go over the mesh with statements of the home', async (t) => {
    const called = async (): Promise<number> => (await ask('POST', `/v1/invoke/${NAMES.idempotent}`, { payload: {} })).status;
    await waitUntil('it is answered', async () => (await called()) === 200, 10_000);
    t.equal(await called(), 200);
  });

  await t.test('overrides and quotas are in force everywhere, and that is known', async (t) => {
    const target = { capability: NAMES.once };
    const ordered = await operator('POST', '/v1/overrides', {
      action: 'block',
      target,
      reason: 'a test',
      for: '10m',
      id: 'no-refunds',
      wait: '5s',
    });
    t.match(ordered, { status: 201, body: { in_force: 2, of: 2, missing: [] } });
    t.match((await ask('POST', `/v1/invoke/${NAMES.once}`, { payload: {} })).body, { error: { code: 2006 } });
    t.match((await operator('DELETE', '/v1/overrides/no-refunds?reason=over&wait=5s')).body, { in_force: 2, of: 2 });
    const quota = await operator('PUT', `/v1/quotas/capability/${NAMES.idempotent}`, { calls_per_sec: 1_000, reason: 'a test' });
    t.equal(quota.status, 200, JSON.stringify(quota.body));
    const isEverywhere = async (): Promise<boolean> => {
      const { body } = await operator('GET', '/v1/quotas');
      const { on, of } = body['in_force'] as { on: number; of: number };
      return on === 2 && of === 2;
    };
    await waitUntil('both have the quota', isEverywhere, 10_000);
    t.equal((await ask('POST', `/v1/invoke/${NAMES.idempotent}`, { payload: {} })).status, 200);
  });

  await t.test('who signs out of the console at one replica is out at the other', async (t) => {
    const [here, there] = [`http://127.0.0.1:${firstPort}`, `http://127.0.0.1:${secondPort}`];
    const session = await signIn(here, OPERATOR);
    const headers = sessionHeaders(here, session);
    const statusThere = async (): Promise<number> =>
      (await asBrowser(there, '/v1/session', { headers: { cookie: session.cookie } })).status;
    t.equal(await statusThere(), 200);
    t.match((await asBrowser(here, '/v1/session', { method: 'DELETE', headers })).json, { ended: true, on_all_replicas: true });
    await waitUntil('it is told', async () => (await statusThere()) === 401, 5_000);
    t.match(
      (await operator('GET', '/v1/overview')).body['totals'],
      { messages: { dead: Number, review: Number } },
      'and what is kept is counted',
    );
  });

  await t.test('a person with a key of NATS presses the red button without the control plane', async (t) => {
    const said: string[] = [];
    const io = {
      out: (text: string) => void said.push(text),
      err: (text: string) => void said.push(text),
      env: {},
      clock: realClock,
      stdin: () => Promise.resolve(''),
    };
    const alone = ['--nats', nats.url, '--nkey', users.seedFile('ann'), '--env', ENV];
    t.equal(
      await runReachctl(['stop-bleeding', '--capability', NAMES.once, '--reason', 'alone', '--id', 'alone', ...alone], io, 'test'),
      0,
      said.join('\n'),
    );
    t.match(said.join('\n'), /2 of 2/);
    t.match((await ask('POST', `/v1/invoke/${NAMES.once}`, { payload: {} })).body, { error: { code: 2006 } });
    t.equal(await runReachctl(['override', 'lift', 'alone', ...alone], io, 'test'), 0, said.join('\n'));
    await waitUntil('it is over', async () => (await ask('POST', `/v1/invoke/${NAMES.once}`, { payload: {} })).status === 200, 5_000);
  });

  await t.test('another replica takes over', async (t) => {
    await first.stop(15_000);
    planePort = secondPort;
    await waitUntil('the second one leads', async () => (await statusOf(secondPort)) === 'leading', 20_000);
    await waitUntil('it answers questions', async () => (await ask('GET', '/v1/tasks/nosuchtask2')).status === 404, 10_000);
    await ends(t, await cast(NAMES.keyed, {}, { 'idempotency-key': 'k2' }), 'done');
  });

  await t.test('a key is changed while work goes on, and nothing is restarted', async (t) => {
    const reloaded = async (): Promise<void> => {
      const count = nats.process.said.split('Reloaded server configuration').length;
      process.kill(nats.process.pid as number, 'SIGHUP');
      await waitUntil('the server has read it', () => nats.process.said.split('Reloaded server configuration').length > count, 5_000);
    };
    const before = users.seed('worker');
    await users.command('rotate', 'worker');
    t.not(users.seed('worker'), before);
    await reloaded();
    await ends(t, await cast(NAMES.idempotent), 'done');
    await users.command('settle', 'worker');
    await users.command('remove', 'thief');
    await reloaded();
    await ends(t, await cast(NAMES.once), 'done');
    await t.rejects(connect({ servers: nats.url, authenticator: nkeyAuthenticator(Buffer.from(before)), reconnect: false }));
  });

  await t.test('nothing of it was refused by NATS', (t) => {
    t.notMatch(nats.process.said, /violation/i, 'in all that the server has said');
    for (const { stdout, stderr } of programs) t.notMatch(`${stdout}${stderr}`, /does not allow|violation/i);
    t.end();
  });

  await t.test('what is another one’s is refused', async (t) => {
    const thief = await connect({
      servers: nats.url,
      authenticator: nkeyAuthenticator(Buffer.from(users.seed('worker'))),
      inboxPrefix: '_INBOX.worker',
    });
    t.teardown(() => thief.close());
    const refused: string[] = [];
    void (async () => {
      for await (const { data } of thief.status()) refused.push(String(data));
    })();
    const tries: readonly (readonly [string, string])[] = [
      ['a task under another name', `ar.${ENV}.task.pabc.normal.0.sender`],
      ['another one’s inbox', `$JS.API.CONSUMER.MSG.NEXT.${INBOX_STREAM}.inbox_sender`],
      ['acknowledging there', `$JS.ACK.${INBOX_STREAM}.inbox_sender.1.1.1.1.0`],
      ['making a consumer', `$JS.API.CONSUMER.DURABLE.CREATE.${INBOX_STREAM}.mine`],
      ['making one by the newer name', `$JS.API.CONSUMER.CREATE.${TASK_STREAM}.mine`],
      ['reading a stream by its sequence', `$JS.API.STREAM.MSG.GET.${INBOX_STREAM}`],
      ['reading inboxes directly', `$JS.API.DIRECT.GET.${INBOX_STREAM}.ar.${ENV}.inbox.sender.sales.planner.p1`],
      ['reading a stream’s body form', `$JS.API.DIRECT.GET.${CONFIG_STREAM}`],
      ['deleting', `$JS.API.STREAM.MSG.DELETE.${TASK_STREAM}`],
      ['pushing', `ar.${ENV}.push.rules`],
      ['writing what is pushed', `ar.${ENV}.cfg.rules`],
      ['beating for another one', `ar.${ENV}.hb.sender`],
      ['an order of an operator', `ar.${ENV}.kept.order.task0001`],
    ];
    for (const [what, subject] of tries) {
      const before = refused.length;
      thief.publish(subject, '{}');
      await thief.flush();
      await waitUntil(what, () => refused.length > before, 2_000).catch(() => t.fail(`${what}: ${subject} was not refused`));
    }
    for (const subject of ['_INBOX.sender.>', '_INBOX.>', `ar.${ENV}.note.sender`, `ar.${ENV}.task.>`, `ar.${ENV}.inbox.>`]) {
      const before = refused.length;
      thief.subscribe(subject);
      await thief.flush();
      await waitUntil(subject, () => refused.length > before, 2_000).catch(() => t.fail(`hearing ${subject} was not refused`));
    }
    await waitUntil('its log says so', () => /violation/i.test(nats.process.said));
  });
});
