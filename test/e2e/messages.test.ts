/**
 * Messages between agents of two sidecars, every program a process of its own: nats-server, control plane, the sender's sidecar and
 * the worker's, which is killed while it has work. All is said over HTTP, as an agent or a person with curl would.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { FINAL_STATES, type TaskState } from '../../proto/wire/messages.ts';
import { MARK } from '../support/credential-mark.ts';
import { TestAgent } from '../support/agent.ts';
import { ENV, OPERATOR, settingsText } from '../support/control-plane.ts';
import { NatsServer } from '../support/nats.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort, type Program, startProgram } from '../support/sockets.ts';

t.setTimeout(110_000);

const NAME = 'crm.order.query';
const PLANNER = `token-of-the-planner-${MARK}`;
const AGENT = 'crm.order.a1';

type Body = Readonly<Record<string, unknown>>;
interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Body;
}

/** The programs, with their files and ports. */
class Team {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-messages-'));
  readonly #t: Test;
  readonly #nats: NatsServer;
  readonly senderPort: number;
  readonly planePort: number;

  static async make(t: Test): Promise<Team> {
    const nats = await NatsServer.start(t);
    const team = new Team(t, nats, await freePort(), await freePort());
    t.teardown(() => rmSync(team.folder, { recursive: true, force: true }));
    return team;
  }

  private constructor(t: Test, nats: NatsServer, senderPort: number, planePort: number) {
    this.#t = t;
    this.#nats = nats;
    this.senderPort = senderPort;
    this.planePort = planePort;
  }

  plane(): Program {
    const settings = settingsText('cp-1', this.#nats.url, '  messages: {ack_wait: 2s}\n', this.planePort);
    return this.#start('control-plane/main.ts', 'control-plane.yaml', settings);
  }

  sender(): Program {
    return this.#start(
      'sidecar/main.ts',
      'sender.yaml',
      `sidecar:\n  name: sender\n  listen: 127.0.0.1:${this.senderPort}\n  callers: [{agent: sales.planner.p1, token: ${PLANNER}}]\n${this.#joined()}`,
    );
  }

  /** @param agentUrl of the agent behind it */
  worker(agentUrl: string): Program {
    const table = `contracts:
  - {name: ${NAME}, version: 1.0.0, description: Looks up an order, acl: public, execution: idempotent, timeout: 30s, deadline: 60s}
providers:
  - {agent_id: ${AGENT}, offers: ["${NAME}@1.0.0"], via: worker, endpoint: {type: http, address: "${agentUrl}"}}
`;
    return this.#start(
      'sidecar/main.ts',
      'worker.yaml',
      `sidecar:\n  name: worker\n  listen: 127.0.0.1:0\n  claims: {lease: 2s}\n${this.#joined()}${table}`,
    );
  }

  /** As the planner, at its sidecar. */
  async ask(method: string, path: string, payload?: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    const response = await fetch(`http://127.0.0.1:${this.senderPort}${path}`, {
      method,
      headers: { authorization: `Bearer ${PLANNER}`, 'content-type': 'application/json', ...headers },
      ...(payload === undefined ? {} : { body: JSON.stringify(payload) }),
    });
    return { status: response.status, headers: response.headers, body: (await response.json()) as Body };
  }

  async state(task: unknown): Promise<Body> {
    return (await this.ask('GET', `/v1/tasks/${String(task)}`)).body;
  }

  async reachctl(...args: readonly string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const env = { REACH_SERVER: `http://127.0.0.1:${this.planePort}`, REACH_TOKEN: OPERATOR };
    const ran = startProgram('control-plane/cli/main.ts', args, { env, cwd: this.folder });
    const { code } = await ran.ended(20_000);
    return { code, stdout: ran.stdout, stderr: ran.stderr };
  }

  #joined(): string {
    return `  state_dir: ./state\n  log: {level: info}\n  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}\n  registry: {nats: "${this.#nats.url}", env: ${ENV}, addresses: {loopback: true}}\n`;
  }

  #start(program: string, file: string, settings: string): Program {
    const path = join(this.folder, file);
    writeFileSync(path, settings);
    const started = startProgram(program, ['run', path]);
    this.#t.teardown(() => started.stop(15_000));
    return started;
  }
}

t.test('an agent gives work to one behind another sidecar, whose process is killed in the middle', async (t) => {
  const whole = t;
  const team = await Team.make(t);
  const begun: string[] = [];
  let letGo: () => void = () => undefined;
  let held = Promise.resolve();
  const hold = (): void => {
    held = new Promise<void>((done) => (letGo = done));
  };
  const agent = await TestAgent.listen('worker', async ({ json }) => {
    const { order } = json as { order: string };
    begun.push(order);
    await held;
    return { body: { order, state: 'shipped' } };
  });
  t.teardown(() => agent.close());
  team.plane();
  team.sender();
  let worker = team.worker(agent.url);
  const cast = (payload: Body, headers: Readonly<Record<string, string>> = {}): Promise<Answer> =>
    team.ask('POST', `/v1/cast/${NAME}`, payload, headers);

  await t.test('it is accepted, carried out, and its result is in the inbox until it is acknowledged', async (t) => {
    let first: Answer | null = null;

    await waitUntil(
      'the capability is known at the sender',
      async () => (first = await cast({ order: '1' }).catch(() => null))?.status === 202,
      30_000,
    );
    const { body, headers } = first as unknown as Answer;
    t.match(body, { durable: 'stream', capability: NAME, version: '1.0.0', lane: 'normal' });
    t.equal(headers.get('location'), `/v1/tasks/${String(body['task_id'])}`);
    t.match((await team.ask('GET', `/v1/tasks/${String(body['task_id'])}?wait=15s`)).body, {
      state: 'done',
      is_final: true,
      by: AGENT,
      attempts: 1,
      result: { order: '1', state: 'shipped' },
    });
    const inbox = await team.ask('GET', '/v1/inbox?wait=5s');
    t.match(inbox.body, { entries: [{ task_id: body['task_id'], state: 'done', by: AGENT, data: { order: '1', state: 'shipped' } }] });
    const { entries } = inbox.body as { entries: readonly { seq: number }[] };
    t.equal(entries.length, 1);
    t.equal((await team.ask('POST', '/v1/inbox/ack', { seq: entries[0]?.seq })).status, 200);
    t.match((await team.ask('GET', '/v1/inbox')).body, { entries: [] }, 'acknowledged, it is not given again');
  });

  await t.test('its worker is killed: what may be begun again is, and what runs once is in doubt and waits for a person', async (t) => {
    hold();
    const idempotent = (await cast({ order: '2' })).body['task_id'];
    const once = (await cast({ order: '3' }, { 'reach-execution': 'once' })).body['task_id'];
    await waitUntil('the agent has both', () => begun.length === 3, 10_000);
    for (const task of [idempotent, once])
      await waitUntil('the sender hears that it is received', async () => (await team.state(task))['state'] === 'received', 5_000);
    t.match(await team.state(idempotent), { by: AGENT, is_final: false }, 'and who has it');
    worker.signal('SIGKILL');
    t.strictSame(await worker.ended(), { code: null, signal: 'SIGKILL' });
    const queued = await cast({ order: '4' });
    t.equal(queued.status, 202, 'meanwhile more is taken');
    letGo();
    held = Promise.resolve();
    worker = team.worker(agent.url);
    whole.teardown(() => worker.stop());
    for (const task of [idempotent, queued.body['task_id']])
      t.match((await team.ask('GET', `/v1/tasks/${String(task)}?wait=30s`)).body, { state: 'done', result: { state: 'shipped' } });
    t.match((await team.ask('GET', `/v1/tasks/${String(once)}?wait=30s`)).body, { state: 'in_doubt', is_final: true, code: 7003 });
    t.strictSame(
      ['1', '2', '3', '4'].map((order) => begun.filter((each) => each === order).length),
      [1, 2, 1, 1],
      'only what may be begun again was',
    );
    const seen: Body[] = [];
    await waitUntil(
      'all three ends are in the inbox',
      async () => {
        const { entries } = (await team.ask('GET', '/v1/inbox')).body as { entries: readonly Body[] };
        // `received` on the way is no end.
        seen.splice(0, seen.length, ...entries.filter(({ state }) => FINAL_STATES.has(state as TaskState)));
        return seen.length >= 3;
      },
      10_000,
    );
    t.strictSame(
      seen.map(({ task_id: task, state }) => `${String(task)} ${String(state)}`).sort(),
      [`${String(idempotent)} done`, `${String(queued.body['task_id'])} done`, `${String(once)} in_doubt`].sort(),
      'one end each',
    );
    const listed = await team.reachctl('tasks', 'list', '--json');
    t.match(JSON.parse(listed.stdout), { entries: [{ task_id: once, kind: 'in_doubt' }] });
  });

  await t.test('a person looks at it and lets it be carried out', async (t) => {
    const { entries } = JSON.parse((await team.reachctl('tasks', 'list', '--json')).stdout) as { entries: readonly { task_id: string }[] };
    const task = entries[0]?.task_id as string;
    const released = await team.reachctl('tasks', 'release', task, '--reason', 'the order was not changed');
    t.equal(released.code, 0, released.stderr);
    await waitUntil('it was begun again', () => begun.filter((each) => each === '3').length === 2, 15_000);
    await waitUntil('its sender hears of it', async () => (await team.state(task))['state'] === 'done', 10_000);
    t.match(JSON.parse((await team.reachctl('tasks', 'list', '--json')).stdout), { entries: [] });
  });

  await t.test('a message for whom nobody is there waits where operators see it, and can be called off', async (t) => {
    const sent = await team.ask('POST', '/v1/messages', { target_role: 'retriever', message_type: 'task_request', payload: { q: 1 } });
    t.match(sent, { status: 202, body: { state: 'parked' } });
    const parked = await team.reachctl('tasks', 'parked', '--json');
    t.match(parked.stdout, /retriever/, parked.stderr);
    const calledOff = await team.ask('DELETE', `/v1/tasks/${String(sent.body['task_id'])}`);
    t.match(calledOff, { status: 202, body: { outcome: 'requested' } }, 'nobody is there who could confirm it');
  });
});
