/** Faults around JSON-RPC ids and batches, at the way in and, where the case is about it, at a provider that speaks it. */
import { Agent, createServer, request as httpRequest, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { CODES } from '../../proto/wire/codes.ts';
import { TestAgent } from '../support/agent.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { type Answer, type Asking, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { tableOf } from './http-table.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(110_000);
const before: Base = takeBase();

/** The provider answers to the alias `m`, the method of the cases. */
async function rigWith(t: Test, settings = '', extra: readonly string[] = []): Promise<{ rig: Rig; agent: TestAgent }> {
  const agent = await TestAgent.listen('crm.order-query.1', (request) => ({ body: { got: request.json ?? null } }));
  t.teardown(() => agent.close());
  const table = tableOf([
    { name: 'crm.order.query', at: [agent.url], extra: ['aliases: [m]', ...extra] },
    { name: 'crm.order.secret', at: [agent.url], extra: [] },
  ]).replace(
    'name: crm.order.secret\n    version: "2.0.0"\n    acl: public',
    'name: crm.order.secret\n    version: "2.0.0"\n    acl: [sales.*.*]',
  );
  const rig = await Rig.start(t, settings === '' ? { table } : { table, settings });
  return { rig, agent };
}

const rpc = (rig: Rig, body: string, asking: Asking = {}): Promise<Answer> => rig.ask('/rpc', { method: 'POST', body, ...asking });

async function done(t: Test, rig: Rig, agent: TestAgent, executions: number): Promise<void> {
  await agent.close();
  await rig.finish(t, before, [{ name: 'the provider', count: () => agent.executions, expected: executions }]);
}

const MESSAGE = (id: string | null, method = 'm'): string => `{"jsonrpc":"2.0","method":"${method}"${id === null ? '' : `,"id":${id}`}}`;

/** Nothing but what JSON-RPC allows, and the fields of the Result in `data` of an error. */
function isAnswer(t: Test, answer: Record<string, unknown>, id: unknown): void {
  t.equal(answer['jsonrpc'], '2.0');
  t.strictSame(answer['id'], id);
  t.not('result' in answer, 'error' in answer, 'a result or an error, not both');
  t.strictSame(Object.keys(answer).sort(), ['id', 'jsonrpc', 'result' in answer ? 'result' : 'error'].sort());
  const error = answer['error'] as { code?: unknown; message?: unknown; data?: { code?: number } } | undefined;
  if (error === undefined) return;
  t.ok(Number.isInteger(error.code) && typeof error.message === 'string' && error.message !== '');
  t.ok(
    CODES.some((entry) => entry.code === error.data?.code),
    'our code stands in data',
  );
}

t.test('C106 a missing id is a notification, and an id of null is not', async (t) => {
  await t.test('one message at a time', async (t) => {
    const { rig, agent } = await rigWith(t);
    let executions = 0;
    const silent = await rpc(rig, MESSAGE(null));
    executions++;
    t.equal(silent.status, 204);
    t.equal(silent.bytes.length, 0, 'and no body');
    // A cast: nobody waits for its end.
    await waitUntil('it was executed', () => agent.executions === executions);
    for (const id of ['null', '0', '""', '1.5', '-7', '"a\\u0062"', '9007199254740993', '1.0']) {
      const answer = await rpc(rig, MESSAGE(id));
      executions++;
      t.equal(answer.status, 200, id);
      isAnswer(t, answer.json, JSON.parse(id));
      t.ok(answer.bytes.toString('utf8').endsWith(`,"id":${id}}`), `${id} comes back as it was written`);
      t.same(answer.json.result.data, { got: null });
    }
    for (const id of ['{}', '[]', '[1]', 'true', 'false', '{"id":1}']) {
      const answer = await rpc(rig, MESSAGE(id));
      t.equal(answer.status, 200);
      isAnswer(t, answer.json, null);
      t.equal(answer.json.error.code, -32600, id);
    }
    await done(t, rig, agent, executions);
  });

  await t.test('all of them in one batch', async (t) => {
    const { rig, agent } = await rigWith(t);
    const ids = [null, 'null', '0', '""', '1.5', '{}', null];
    const answer = await rpc(rig, `[${ids.map((id) => MESSAGE(id)).join(',')}]`);
    t.equal(answer.status, 200);
    t.equal(answer.json.length, 5, 'only what is no notification is answered');
    t.strictSame(
      answer.json.map((one: { id: unknown }) => one.id),
      [null, 0, '', 1.5, null],
      'in the order of the messages',
    );
    t.strictSame(
      answer.json.map((one: { error?: { code: number } }) => one.error?.code ?? 0),
      [0, 0, 0, 0, -32600],
    );
    await done(t, rig, agent, 6);
  });

  await t.test('a notification that fails, or asks for nothing, is not answered either', async (t) => {
    const { rig, agent } = await rigWith(t);
    for (const method of ['nobody.offers.this', 'crm.order.secret', 'rpc.discover', 'reach.nothing', 'not a name']) {
      const answer = await rpc(rig, MESSAGE(null, method));
      t.equal(answer.status, 204, method);
      t.equal(answer.bytes.length, 0);
    }
    const broken = await rpc(rig, '{"jsonrpc":"2.0","method":7}');
    t.equal(broken.json.error.code, -32600, 'but what is no message at all is');
    t.equal(broken.json.id, null);
    await done(t, rig, agent, 0);
  });
});

t.test('C107 batches: empty, huge, nested', async (t) => {
  await t.test('as written', async (t) => {
    const { rig, agent } = await rigWith(t, '  limits: {batch: 100}');
    const empty = await rpc(rig, '[]');
    t.equal(empty.status, 200);
    t.notOk(Array.isArray(empty.json), 'one error, no list');
    isAnswer(t, empty.json, null);
    t.equal(empty.json.error.code, -32600);

    const numbers = await rpc(rig, '[1,2]');
    t.equal(numbers.json.length, 2);
    for (const one of numbers.json) {
      isAnswer(t, one, null);
      t.equal(one.error.code, -32600);
    }

    const silent = await rpc(rig, `[${MESSAGE(null)},${MESSAGE(null)},${MESSAGE(null)}]`);
    t.equal(silent.status, 204);
    t.equal(silent.bytes.length, 0, 'not even an empty list');
    await waitUntil('all three were executed', () => agent.executions === 3);

    const nested = await rpc(rig, '[[{}]]');
    t.equal(nested.json.length, 1);
    isAnswer(t, nested.json[0], null);
    t.equal(nested.json[0].error.code, -32600);

    const twins = await rpc(
      rig,
      '[{"jsonrpc":"2.0","method":"m","params":{"n":1},"id":1},{"jsonrpc":"2.0","method":"m","params":{"n":2},"id":1}]',
    );
    t.strictSame(
      twins.json.map((one: { id: number; result: { data: unknown } }) => [one.id, one.result.data]),
      [
        [1, { got: { n: 1 } }],
        [1, { got: { n: 2 } }],
      ],
      'both are answered, each with its own',
    );

    const huge = await rpc(rig, `[${new Array(100_000).fill(MESSAGE('1')).join(',')}]`);
    t.equal(huge.status, 200);
    t.notOk(Array.isArray(huge.json));
    isAnswer(t, huge.json, null);
    t.equal(huge.json.error.code, -32600);
    t.match(huge.json.error.data.detail, /more than 100 messages/);
    t.ok(huge.elapsedMs < 2_000, 'without reading them all');
    t.equal(agent.executions, 5, 'and none of them was executed');

    const most = await rpc(rig, `[${new Array(100).fill(MESSAGE('1')).join(',')}]`);
    t.equal(most.json.length, 100, 'the limit itself is allowed');
    t.ok(most.json.every((one: { error?: unknown }) => one.error === undefined));
    const deep = await rpc(rig, '['.repeat(100_000) + ']'.repeat(100_000));
    t.equal(deep.json.length, 1, 'a hundred thousand levels are one bad message');
    await done(t, rig, agent, 105);
  });

  await t.test('every message passes limits and ACL by itself', async (t) => {
    const { rig, agent } = await rigWith(t, '', ['limits: {per_caller: 1}']);
    agent.behaviour = async () => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      return { body: {} };
    };
    const slow = await rpc(rig, `[${MESSAGE('1')},${MESSAGE('2')},${MESSAGE('3')},${MESSAGE('4', 'crm.order.secret')}]`);
    t.strictSame(
      slow.json.map((one: { error?: { code: number; data: { code: number; name: string } } }) => one.error?.data.name ?? 'ok'),
      ['ok', 'caller_busy', 'caller_busy', 'forbidden'],
    );
    t.strictSame(
      slow.json.map((one: { error?: { code: number } }) => one.error?.code ?? 0),
      [0, -32003, -32003, -32004],
    );
    const stranger = await rpc(rig, `[${MESSAGE('1')},${MESSAGE(null)}]`, { token: null });
    t.equal(stranger.status, 200);
    t.equal(stranger.json.length, 1);
    t.match(stranger.json[0], { id: 1, error: { code: -32004, data: { code: 4001 } } });
    await done(t, rig, agent, 1);
  });

  await t.test('a caller that leaves takes the whole batch with it', async (t) => {
    const { rig, agent } = await rigWith(t);
    agent.behaviour = () => undefined;
    const leaving = rpc(rig, `[${new Array(50).fill(MESSAGE('1')).join(',')}]`, { hangUpAfterMs: 1_000 });
    await t.rejects(leaving);
    await waitUntil('the provider has been told', () => agent.abandoned === 16 && rig.quiet.inFlight() === 0);
    await new Promise((resolve) => setTimeout(resolve, 100));
    t.equal(agent.executions, 16, 'of fifty messages those at a time were begun');
    t.equal(rig.quiet.inFlight(), 0, 'and nothing is under way any more');
    t.equal(agent.abandoned, 16, 'the provider has been told');
    await done(t, rig, agent, 16);
  });
});

/** One keep-alive client of one agent. */
class Client {
  readonly #pool: Agent;
  readonly #port: number;
  readonly #token: string;

  constructor(port: number, token: string, sockets: number) {
    this.#pool = new Agent({ keepAlive: true, maxSockets: sockets });
    this.#port = port;
    this.#token = token;
  }

  ask(body: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const request = httpRequest(
        {
          agent: this.#pool,
          host: '127.0.0.1',
          port: this.#port,
          path: '/rpc',
          method: 'POST',
          headers: {
            authorization: `Bearer ${this.#token}`,
            'content-type': 'application/json',
            'content-length': Buffer.byteLength(body),
          },
        },
        (response) => {
          const chunks: Buffer[] = [];
          response.on('data', (chunk: Buffer) => chunks.push(chunk));
          response.on('end', () => resolve(JSON.parse(Buffer.concat(chunks).toString('utf8'))));
          response.on('error', reject);
        },
      );
      request.on('error', reject);
      request.end(body);
    });
  }

  close(): void {
    this.#pool.destroy();
  }
}

/** Answers a group of requests, once it is complete, last come first. */
class Reverser {
  /** What the requests said of themselves. */
  readonly ids = new Set<string>();
  executions = 0;
  readonly #held: (() => void)[] = [];
  readonly #group: number;
  readonly #isRpc: boolean;
  readonly #server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => this.#hold(JSON.parse(Buffer.concat(chunks).toString('utf8')), response));
  });

  constructor(group: number, isRpc: boolean) {
    this.#group = group;
    this.#isRpc = isRpc;
  }

  async listen(): Promise<string> {
    await new Promise<void>((ready) => this.#server.listen(0, '127.0.0.1', ready));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((closed) => this.#server.close(() => closed()));
  }

  // biome-ignore lint/suspicious/noExplicitAny: whatever was sent
  #hold(body: any, response: ServerResponse): void {
    this.executions++;
    if (this.#isRpc) this.ids.add(JSON.stringify(body.id));
    const answer = this.#isRpc ? { jsonrpc: '2.0', result: { echo: body.params }, id: body.id } : { echo: body };
    this.#held.push(() => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(answer));
    });
    if (this.#held.length < this.#group) return;
    for (const answering of this.#held.splice(0).reverse()) answering();
  }
}

/** 10 000 as written, three calls each, would take half a minute and more: 1 500, and a fifth of them with the second provider. */
const ROUNDS = 1_500;

t.test('C108 an answer goes to whoever asked, whatever ids they use', async (t) => {
  for (const type of ['http', 'jsonrpc']) {
    await t.test(`two agents, one id, answers in reverse order, from a provider behind ${type}`, async (t) => {
      const provider = new Reverser(3, type === 'jsonrpc');
      const url = await provider.listen();
      t.teardown(() => provider.close());
      const rounds = type === 'http' ? ROUNDS : ROUNDS / 5;
      const rig = await Rig.start(t, {
        table: tableOf([{ name: 'crm.order.query', at: [url] }]).replace('type: http', `type: ${type}`),
      });
      const one = new Client(rig.port, TOKEN, 2);
      const two = new Client(rig.port, 'token-of-the-helper', 1);
      const wrong: string[] = [];
      const message = (text: string): string => `{"jsonrpc":"2.0","method":"crm.order.query","params":{"who":"${text}"},"id":1}`;
      for (let round = 0; round < rounds; round++) {
        const texts = [`A ${round}`, `B ${round}`, `A again ${round}`];
        const answers = await Promise.all([
          one.ask(message(texts[0] as string)),
          two.ask(message(texts[1] as string)),
          one.ask(message(texts[2] as string)),
        ]);
        answers.forEach((answer, i) => {
          const { id, result } = answer as { id: unknown; result?: { data?: { echo?: { who?: string } } } };
          if (id !== 1 || result?.data?.echo?.who !== texts[i]) wrong.push(`${texts[i]}: ${JSON.stringify(answer).slice(0, 300)}`);
        });
        if (wrong.length > 3) break;
      }
      t.strictSame(wrong, [], `no mix-up in ${rounds} rounds`);
      if (type === 'jsonrpc') t.equal(provider.ids.size, rounds * 3, 'the ids that the provider sees are ours, and no two are the same');
      one.close();
      two.close();
      await provider.close();
      await rig.finish(t, before, [{ name: 'the provider', count: provider.executions, expected: rounds * 3 }]);
    });
  }

  await t.test('a thousand calls within a millisecond or so have a thousand ids at the provider', async (t) => {
    const provider = new Reverser(100, true);
    const url = await provider.listen();
    t.teardown(() => provider.close());
    const rig = await Rig.start(t, {
      table: tableOf([{ name: 'crm.order.query', at: [url], extra: ['limits: {per_caller: 2000, per_provider: 2000}'] }]).replace(
        'type: http',
        'type: jsonrpc',
      ),
      settings: '  connections_per_origin: 128',
    });
    const clients = Array.from({ length: 100 }, (_, i) => new Client(rig.port, i % 2 === 0 ? TOKEN : 'token-of-the-helper', 10));
    const asking: Promise<unknown>[] = [];
    for (let n = 0; n < 1_000; n++)
      asking.push((clients[n % 100] as Client).ask(`{"jsonrpc":"2.0","method":"crm.order.query","params":[${n}],"id":${n % 10}}`));
    const answers = await Promise.all(asking);
    const wrong = answers.filter((answer, n) => {
      const { id, result } = answer as { id: number; result?: { data?: { echo?: number[] } } };
      return id !== n % 10 || result?.data?.echo?.[0] !== n;
    });
    t.strictSame(wrong.slice(0, 3), []);
    t.equal(provider.ids.size, 1_000);
    for (const client of clients) client.close();
    await provider.close();
    await rig.finish(t, before, [{ name: 'the provider', count: provider.executions, expected: 1_000 }]);
  });

  await t.test('what an agent has in flight twice under one id is answered twice: on HTTP nothing hangs on the id', async (t) => {
    const { rig, agent } = await rigWith(t);
    const message = (n: number): string => `{"jsonrpc":"2.0","method":"m","params":{"n":${n}},"id":"x"}`;
    const [first, second] = await Promise.all([rpc(rig, message(1)), rpc(rig, message(2))]);
    t.same([first?.json.id, first?.json.result.data], ['x', { got: { n: 1 } }]);
    t.same([second?.json.id, second?.json.result.data], ['x', { got: { n: 2 } }]);
    await done(t, rig, agent, 2);
  });
});
