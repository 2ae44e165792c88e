/**
 * Order per key (SPEC R9.9) with real processes: two senders, two workers: one of them stands still (SIGSTOP) while it has work, loses its
 * partitions, and comes back; both are stopped, killed and started again. Everything is judged by what the agents saw and what is in the senders' inboxes.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { FINAL_STATES, type TaskEvent } from '../../proto/wire/messages.ts';
import { TestAgent } from '../support/agent.ts';
import { ENV, OPERATOR, settingsText } from '../support/control-plane.ts';
import { NatsServer } from '../support/nats.ts';
import { waitUntil } from '../support/settle.ts';
import { freePort, type Program, startProgram } from '../support/sockets.ts';

t.setTimeout(150_000);

type Body = Readonly<Record<string, unknown>>;
const IDEMPOTENT = 'crm.order.change';
const ONCE = 'crm.refund.apply';
const KEYS = ['k0', 'k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7'];
const RULES = `rules:
  - {name: together, when: {capability: crm.*}, action: {dispatch: sticky, sticky_by: sequence_id}}
`;

interface Start {
  readonly agent: string;
  readonly task: string;
  readonly key: string;
  readonly n: number;
}

/** The programs, and everything that was sent, begun and told. */
class Team {
  readonly starts: Start[] = [];
  readonly workers: Program[] = [];
  readonly sent = new Map<string, { name: string; key: string; n: number }>();
  n = 0;
  readonly #t: Test;
  readonly #nats: NatsServer;
  readonly #lease: string;
  readonly #folder = mkdtempSync(join(tmpdir(), 'reach-sticky-'));
  readonly #agents: TestAgent[] = [];
  #planePort = 0;
  #senderPorts: number[] = [];

  /** @param lease silence after which an owner is gone for good: programs start slowly here */
  static async start(t: Test, lease: string): Promise<Team> {
    const team = new Team(t, await NatsServer.start(t), lease);
    await team.#begin();
    return team;
  }

  private constructor(t: Test, nats: NatsServer, lease: string) {
    this.#lease = lease;
    this.#t = t;
    this.#nats = nats;
    t.teardown(() => rmSync(this.#folder, { recursive: true, force: true }));
  }

  async #begin(): Promise<void> {
    for (const name of ['a1', 'a2']) {
      const agent = await TestAgent.listen(name, async ({ json, headers }) => {
        const { key, n } = json as { key: string; n: number };
        this.starts.push({ agent: name, task: String(headers['idempotency-key']), key, n });
        await new Promise((done) => setTimeout(done, 40));
        return { body: { key, n, by: name } };
      });
      this.#t.teardown(() => agent.close());
      this.#agents.push(agent);
    }
    this.#planePort = await freePort();
    this.#run(
      'control-plane/main.ts',
      'control-plane.yaml',
      settingsText(
        'cp-1',
        this.#nats.url,
        `  leases: {heartbeat: 500ms, offline_after: ${this.#lease}}\n  messages: {ack_wait: 2s, sticky_grace: ${this.#lease}}\n`,
        this.#planePort,
      ),
    );
    this.#senderPorts = [await freePort(), await freePort()];
    for (const [i, port] of this.#senderPorts.entries())
      this.#run(
        'sidecar/main.ts',
        `sender${i}.yaml`,
        `sidecar:\n  name: sender${i}\n  listen: 127.0.0.1:${port}\n  callers: [{agent: sales.planner.p${i}, token: token-of-planner-${i}}]\n${this.#joined()}`,
      );
    for (const i of [0, 1]) this.startWorker(i);
    await waitUntil('everything is there', () => this.#isThere(), 40_000);
    await this.submitAll();
    await waitUntil(
      'both own partitions',
      async () =>
        (await this.owners()).length === 2 && (await this.owners()).every((owners) => new Set(owners).size === 2 && !owners.includes('')),
      20_000,
    );
  }

  startWorker(i: number): void {
    const agent = this.#agents[i] as TestAgent;
    this.workers[i] = this.#run(
      'sidecar/main.ts',
      `worker${i}.yaml`,
      `sidecar:\n  name: worker${i}\n  listen: 127.0.0.1:0\n${this.#joined()}contracts:
  - {name: ${IDEMPOTENT}, version: 1.0.0, description: d, acl: public, execution: idempotent, timeout: 5s, deadline: 60s}
  - {name: ${ONCE}, version: 1.0.0, description: d, acl: public, execution: once, timeout: 5s, deadline: 60s}
providers:
  - {agent_id: crm.order.${agent.name}, offers: ["${IDEMPOTENT}@1.0.0", "${ONCE}@1.0.0"], via: worker${i}, endpoint: {type: http, address: "${agent.url}"}}\n`,
    );
  }

  signal(i: number, signal: NodeJS.Signals): void {
    process.kill((this.workers[i] as Program).pid, signal);
  }

  #joined(): string {
    return `  state_dir: ./state\n  log: {level: info}\n  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}\n  claims: {lease: 2s}\n  registry: {nats: "${this.#nats.url}", env: ${ENV}, addresses: {loopback: true}, heartbeat: 500ms, lease: ${this.#lease}}\n`;
  }

  #run(program: string, file: string, settings: string): Program {
    const path = join(this.#folder, file);
    writeFileSync(path, settings);
    const started = startProgram(program, ['run', path]);
    this.#t.teardown(async () => {
      if (started.exit !== null) return;
      process.kill(started.pid, 'SIGCONT');
      await started.stop(15_000);
    });
    return started;
  }

  async #isThere(): Promise<boolean> {
    try {
      const applied = await fetch(`http://127.0.0.1:${this.#planePort}/v1/policies`, {
        method: 'POST',
        headers: { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/yaml' },
        body: RULES,
      });
      if (applied.status >= 300) return false;
      for (const i of [0, 1]) {
        const { status, body } = await this.ask(
          i,
          'POST',
          `/v1/cast/${IDEMPOTENT}`,
          { key: 'warm', n: 0 },
          { 'reach-sequence-id': 'warm' },
        );
        if (status !== 202 || body['rule'] !== 'together') return false;
      }
      return true;
    } catch {
      return false;
    }
  }

  async ask(
    sender: number,
    method: string,
    path: string,
    payload?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ status: number; body: Body }> {
    const response = await fetch(`http://127.0.0.1:${this.#senderPorts[sender]}${path}`, {
      method,
      headers: { authorization: `Bearer token-of-planner-${sender}`, 'content-type': 'application/json', ...headers },
      ...(payload === undefined ? {} : { body: JSON.stringify(payload) }),
    });
    return { status: response.status, body: (await response.json()) as Body };
  }

  async #pools(): Promise<readonly { owners: readonly string[]; sticky: boolean; messages: number }[]> {
    const response = await fetch(`http://127.0.0.1:${this.#planePort}/v1/pools`, { headers: { authorization: `Bearer ${OPERATOR}` } });
    return ((await response.json()) as { pools: { owners: readonly string[]; sticky: boolean; messages: number }[] }).pools.filter(
      ({ sticky }) => sticky,
    );
  }

  async owners(): Promise<readonly (readonly string[])[]> {
    return (await this.#pools()).map(({ owners }) => owners);
  }

  /** One of each key and kind, in turn by one of the senders: the next of a key is submitted when this one is durable. */
  async submitAll(): Promise<void> {
    this.n++;
    const { n } = this;
    for (const name of [IDEMPOTENT, ONCE])
      await Promise.all(
        KEYS.map(async (key) => {
          const { status, body } = await this.ask(
            n % 2,
            'POST',
            `/v1/cast/${name}`,
            { key: `${name} ${key}`, n },
            { 'reach-sequence-id': key },
          );
          if (status !== 202) throw new Error(JSON.stringify(body));
          this.sent.set(String(body['task_id']), { name, key: `${name} ${key}`, n });
        }),
      );
  }

  async done(withinMs: number): Promise<void> {
    await waitUntil('all is done', async () => (await this.#pools()).every(({ messages }) => messages === 0), withinMs);
  }

  /** Every message has one end, its sender was told once, and nothing is said of it afterwards. */
  async checkEnds(t: Test): Promise<void> {
    const ends = new Map<string, string[]>();
    for (const i of [0, 1]) {
      for (let from = ''; ; ) {
        const { body } = await this.ask(i, 'GET', `/v1/inbox?limit=100${from}`);
        const entries = body['entries'] as TaskEvent[];
        if (entries.length === 0) break;
        for (const { task_id: task, state, by } of entries) {
          if (FINAL_STATES.has(state)) ends.set(task, [...(ends.get(task) ?? []), state]);
          else if (ends.has(task)) t.fail(`${task} is ${state} after it has ended: ${by}`);
        }
        from = `&from=${String(body['next'])}`;
      }
    }
    const counted: Record<string, number> = {};
    for (const [task, { name, key, n }] of this.sent) {
      const told = ends.get(task) ?? [];
      if (told.length !== 1) t.fail(`${task} (${key} ${n}): ${told.join()}`);
      const what = `${name === ONCE ? 'once' : 'idempotent'} ${told[0] ?? 'nothing'}`;
      counted[what] = (counted[what] ?? 0) + 1;
    }
    t.comment(JSON.stringify(counted));
    t.same(
      Object.keys(counted).filter((what) => !['once done', 'once in_doubt', 'idempotent done'].includes(what)),
      [],
    );
    t.equal(counted['idempotent done'], this.n * KEYS.length);
  }

  /** Nothing is begun, be it once more, after a later one of its key; and nothing of `once` work once more. */
  checkOrder(t: Test, mostAgain: number): void {
    const latest = new Map<string, number>();
    const seen = new Set<string>();
    let again = 0;
    for (const { key, n, agent } of this.starts) {
      if (key === 'warm') continue;
      const before = latest.get(key) ?? 0;
      if (n < before) t.fail(`${key}: ${n} was begun after ${before}, by ${agent}`);
      latest.set(key, Math.max(before, n));
      const id = `${key} ${n}`;
      if (seen.has(id)) {
        again++;
        if (key.startsWith(ONCE)) t.fail(`${id} was begun once more`);
      }
      seen.add(id);
    }
    t.ok(again <= mostAgain, `${again} begun again`);
  }
}

t.test('an owner that stands still is taken over for, and does nothing that counts when it comes back', async (t) => {
  const team = await Team.start(t, '3s');
  const { starts } = team;
  for (let i = 0; i < 10; i++) await team.submitAll();
  await waitUntil('it is at work', () => starts.some(({ agent, n }) => agent === 'a1' && n >= 2), 10_000);

  // It stands still in the midst of its work; more comes meanwhile.
  team.signal(0, 'SIGSTOP');
  for (let i = 0; i < 5; i++) await team.submitAll();
  await waitUntil(
    'the other one has taken over',
    async () => (await team.owners()).every((owners) => owners.every((owner) => owner.endsWith('.a2'))),
    30_000,
  );
  await waitUntil(
    'and gets on with it',
    () => KEYS.every((key) => starts.some((each) => each.agent === 'a2' && each.key === `${IDEMPOTENT} ${key}` && each.n >= team.n - 2)),
    30_000,
  );
  const cut = starts.length;
  team.signal(0, 'SIGCONT');
  for (let i = 0; i < 3; i++) {
    await team.submitAll();
    await new Promise((done) => setTimeout(done, 500));
  }
  await team.done(40_000);
  const after = starts.slice(cut).filter(({ agent, key }) => agent === 'a1' && key !== 'warm');
  t.same(after, [], 'nothing more was begun by the one that came back');
  await team.checkEnds(t);
  team.checkOrder(t, 2 * KEYS.length);
});

t.test('workers are stopped, killed and started again: order holds, what was at work comes first', async (t) => {
  const team = await Team.start(t, '30s');
  let isOver = false;
  const flowing = (async () => {
    while (!isOver) {
      await team.submitAll();
      await new Promise((done) => setTimeout(done, 150));
    }
  })();
  for (const [i, signal] of [
    [0, 'SIGTERM'],
    [1, 'SIGKILL'],
    [0, 'SIGKILL'],
  ] as const) {
    await new Promise((done) => setTimeout(done, 2_000));
    const { length } = team.starts;
    team.signal(i, signal);
    await (team.workers[i] as Program).ended(20_000);
    team.startWorker(i);
    const name = `a${i + 1}`;
    await waitUntil(
      `${name} is at work again`,
      () => team.starts.slice(length).some(({ agent, key }) => agent === name && key !== 'warm'),
      30_000,
    );
  }
  await new Promise((done) => setTimeout(done, 2_000));
  isOver = true;
  await flowing;
  await team.done(60_000);
  t.same(new Set((await team.owners()).flat()).size, 2, 'a restart moves nothing');
  await team.checkEnds(t);
  team.checkOrder(t, 3 * 2 * KEYS.length);
});
