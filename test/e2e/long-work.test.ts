/**
 * Work that an agent has taken with 202, while its sidecar is killed, or stopped, and started again: the agent lives and reports. Every
 * program is a process of its own: nats-server, control plane, the sender's sidecar and the worker's.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { TestAgent } from '../support/agent.ts';
import { ENV, settingsText } from '../support/control-plane.ts';
import { NatsServer } from '../support/nats.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort, type Program, startProgram } from '../support/sockets.ts';

t.setTimeout(110_000);

const AGENT = 'crm.order.a1';
const KINDS = ['once', 'idempotent', 'keyed'] as const;
type Body = Readonly<Record<string, unknown>>;

class World {
  readonly folder = mkdtempSync(join(tmpdir(), 'reach-long-'));
  readonly #t: Test;
  readonly #nats: NatsServer;
  readonly #ports: readonly [number, number];
  #worker: Program | null = null;

  static async start(t: Test, agent: TestAgent): Promise<World> {
    const world = new World(t, await NatsServer.start(t), [await freePort(), await freePort()]);
    t.teardown(() => rmSync(world.folder, { recursive: true, force: true }));
    world.#run('control-plane/main.ts', 'cp.yaml', settingsText('cp-1', world.#nats.url, '  messages: {ack_wait: 4s}\n', await freePort()));
    world.#run('sidecar/main.ts', 'sender.yaml', world.#sidecar('sender', 0, 'sales.planner.p1', ''));
    world.work(agent);
    return world;
  }

  private constructor(t: Test, nats: NatsServer, ports: readonly [number, number]) {
    this.#t = t;
    this.#nats = nats;
    this.#ports = ports;
  }

  /** Starts the worker's sidecar. */
  work(agent: TestAgent): void {
    const contracts = KINDS.map(
      (kind) =>
        `  - {name: crm.order.${kind}, version: 1.0.0, description: Work, acl: public, execution: ${kind}, timeout: 30s, deadline: 60s}`,
    );
    const offers = KINDS.map((kind) => `"crm.order.${kind}@1.0.0"`).join(', ');
    const table = `contracts:\n${contracts.join('\n')}\nproviders:\n  - {agent_id: ${AGENT}, offers: [${offers}], via: worker, endpoint: {type: http, address: "${agent.url}"}}\n`;
    this.#worker = this.#run('sidecar/main.ts', 'worker.yaml', this.#sidecar('worker', 1, AGENT, table));
  }

  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    this.#worker?.signal(signal);
    await this.#worker?.ended(20_000);
  }

  asPlanner(method: string, path: string, payload?: unknown): Promise<{ status: number; body: Body }> {
    return this.#ask(0, method, path, payload, {});
  }

  asAgent(path: string, payload?: unknown, headers: Readonly<Record<string, string>> = {}): Promise<{ status: number; body: Body }> {
    return this.#ask(1, 'POST', path, payload, headers);
  }

  /** Gives work, waits until the agent has had it for a while, and gives its id. */
  async give(kind: string, agent: TestAgent): Promise<string> {
    const before = agent.requests.length;
    let sent: { status: number; body: Body } | null = null;
    await waitUntil(
      'it is taken',
      async () => (sent = await this.asPlanner('POST', `/v1/cast/crm.order.${kind}`, { kind }).catch(() => null))?.status === 202,
      20_000,
    );
    const task = String((sent as { body: Body } | null)?.body['task_id']);
    await waitUntil('the agent has it', () => agent.requests.length > before, 20_000);
    await waitUntil('it is received', async () => (await this.state(task))['state'] === 'received', 10_000);
    return task;
  }

  async state(task: string): Promise<Body> {
    return (await this.asPlanner('GET', `/v1/tasks/${task}`)).body;
  }

  async ends(task: string): Promise<Body> {
    await waitUntil(
      `${task} has ended`,
      async () => !['received', 'accepted', 'waiting'].includes(String((await this.state(task))['state'])),
      25_000,
    );
    return await this.state(task);
  }

  /** Final events in the sender's inbox. */
  async finals(task: string): Promise<unknown[]> {
    const { body } = await this.asPlanner('GET', '/v1/inbox?from=1&limit=1000');
    const entries = (body['entries'] ?? body['messages'] ?? []) as readonly Body[];
    return entries
      .filter((entry) => JSON.stringify(entry).includes(task))
      .map((entry) => JSON.stringify(entry))
      .filter((text) => /"state":"(done|failed|in_doubt|dead_lettered|expired|cancelled)"/.test(text));
  }

  async #ask(
    port: 0 | 1,
    method: string,
    path: string,
    payload: unknown,
    headers: Readonly<Record<string, string>>,
  ): Promise<{ status: number; body: Body }> {
    const response = await fetch(`http://127.0.0.1:${this.#ports[port]}${path}`, {
      method,
      headers: { authorization: `Bearer token-of-${port}`, 'content-type': 'application/json', ...headers },
      ...(payload === undefined ? {} : { body: JSON.stringify(payload) }),
    });
    return { status: response.status, body: (await response.json()) as Body };
  }

  #sidecar(name: string, port: 0 | 1, caller: string, table: string): string {
    return `sidecar:
  name: ${name}
  listen: 127.0.0.1:${this.#ports[port]}
  callers: [{agent: ${caller}, token: token-of-${port}}]
  claims: {lease: 4s}
  state_dir: ./state
  log: {level: info}
  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}
  registry: {nats: "${this.#nats.url}", env: ${ENV}, addresses: {loopback: true}}
${table}`;
  }

  #run(program: string, file: string, settings: string): Program {
    const path = join(this.folder, file);
    writeFileSync(path, settings);
    const started = startProgram(program, ['run', path]);
    this.#t.teardown(() => started.stop(15_000));
    return started;
  }
}

for (const signal of ['SIGKILL', 'SIGTERM'] as const)
  t.test(`an agent reports work that it took before its sidecar got ${signal}: it counts, once, and nothing is begun again`, async (t) => {
    const agent = await TestAgent.listen('order', () => ({ status: 202, body: {} }));
    t.teardown(() => agent.close());
    const world = await World.start(t, agent);
    const once = await world.give('once', agent);
    const idempotent = await world.give('idempotent', agent);
    const keyed = await world.give('keyed', agent);
    const fails = await world.give('once', agent);
    const starts = agent.requests.length;
    t.equal(starts, 4);
    await new Promise((done) => setTimeout(done, 1_000)); // long enough to be remembered
    await world.end(signal);
    world.work(agent);

    // At once, before the queue has brought anything again.
    let first: { status: number; body: Body } | null = null;
    await waitUntil(
      'the sidecar is there again',
      async () => (first = await world.asAgent(`/v1/tasks/${once}/done`, { sum: 1 }).catch(() => null)) !== null,
      20_000,
    );
    t.match(first, { status: 200, body: { outcome: 'stored' } });
    t.match(await world.asAgent(`/v1/tasks/${idempotent}/extend`), { status: 200 }, 'or it says that it takes longer');
    t.match(await world.asAgent('/v1/tasks/nosuch00/done', {}), { status: 404 });
    // Held until the message is at hand, since what follows from a failure is in it.
    t.match(await world.asAgent(`/v1/tasks/${fails}/done`, { why: 'no stock' }, { 'reach-status': '422' }), { status: 200 });
    // The message has come again by now, and is waited for.
    await new Promise((done) => setTimeout(done, 6_000));
    t.match(await world.asAgent(`/v1/tasks/${keyed}/done`, { sum: 3 }), { status: 200, body: { outcome: 'stored' } });
    t.match(await world.asAgent(`/v1/tasks/${idempotent}/done`, { sum: 2 }), { status: 200, body: { outcome: 'stored' } });

    t.match(await world.ends(once), { state: 'done', result: { sum: 1 }, by: AGENT });
    t.match(await world.ends(idempotent), { state: 'done', result: { sum: 2 } });
    t.match(await world.ends(keyed), { state: 'done', result: { sum: 3 } });
    t.match(await world.ends(fails), { state: 'failed', code: 6001 });
    for (const task of [once, idempotent, keyed, fails]) t.equal((await world.finals(task)).length, 1, 'its sender is told once');
    t.equal(agent.requests.length, starts, 'nothing was begun again');
    t.match(await world.asAgent(`/v1/tasks/${once}/done`, { sum: 9 }), { status: 404 }, 'it has ended');
  });
