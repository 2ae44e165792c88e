/** Messages by the SDKs, in both languages alike: cast, what becomes of a task, and the inbox across cuts and a restart of the sidecar. */
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { pythonPath } from '../../deploy/local/python.ts';
import { INBOX_STREAM } from '../../proto/wire/subjects.ts';
import { InboxError, type InboxMessage, Reach, ReachError } from '../../sdk/typescript/index.ts';
import { settingsOf } from '../../sdk/typescript/options.ts';
import { Context } from '../../sdk/typescript/serve/context.ts';
import { TestAgent } from '../support/agent.ts';
import { Fleet, knows } from '../support/fleet.ts';
import { repoFile } from '../support/paths.ts';
import { CALLER, Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

t.setTimeout(110_000);

const NAME = 'crm.order.query';
const PYTHON = 'sdk.python.1';
const PYTHON_TOKEN = 'token-of-python';
const ORDER_TOKEN = 'token-of-the-order';

interface World {
  readonly fleet: Fleet;
  readonly agent: TestAgent;
  home: Rig;
  restart(): Promise<void>;
}

async function world(t: Test): Promise<World> {
  const fleet = await Fleet.start(t);
  const agent = await TestAgent.listen('order', ({ json, headers }) => {
    const asked = json as { fail?: boolean; later?: boolean; n?: number } | null;
    if (asked?.later === true) return { status: 202, body: {} };
    if (asked?.fail === true) return { status: 422, body: { why: 'no such order' } };
    return { body: { n: asked?.n ?? null, type: headers['content-type'], key: headers['idempotency-key'] } };
  });
  t.teardown(() => agent.close());
  const folder = mkdtempSync(join(tmpdir(), 'reach-sdk-messages-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const table = `contracts: [{name: ${NAME}, version: 1.0.0, description: x, acl: public, execution: idempotent}]
providers:
  - {agent_id: crm.order.1, offers: [${NAME}@1.0.0], via: home, endpoint: {type: http, address: "${agent.url}"}}
`;
  const start = async (listen: string): Promise<Rig> => {
    const rig = await fleet.sidecar('home', table, '  messages: {inbox: {agent_count: 2}}\n', {
      folder,
      listen,
      callers: { [PYTHON]: PYTHON_TOKEN, 'crm.order.1': ORDER_TOKEN },
    });
    await knows(rig, NAME);
    return rig;
  };
  const made: World = {
    fleet,
    agent,
    home: await start('127.0.0.1:0'),
    restart: async () => {
      const { port } = made.home;
      await made.home.stop();
      made.home = await start(`127.0.0.1:${port}`);
    },
  };
  return made;
}

async function inboxSize(fleet: Fleet, agent: string): Promise<number> {
  const found = await fleet.bus.history(INBOX_STREAM, fleet.subjects.inboxesOf(agent)[1] as string, 1_000);
  return 'failed' in found ? -1 : found.length;
}

t.test('a sidecar without a registry has no inboxes, and says so at once', async (t) => {
  const rig = await Rig.start(t, { table: 'contracts: []\nproviders: []\n' });
  const reach = new Reach({ url: rig.url, token: TOKEN });
  t.teardown(() => reach.close());
  const read = async (): Promise<void> => {
    for await (const _ of reach.inbox()) break;
  };
  t.match(await read().catch((error: unknown) => error), { code: 7001, why: 'none', message: /no registry/ });
  t.equal((await rig.ask('/v1/inbox/ack', { method: 'POST', payload: { seq: 1 } })).status, 404);
});

t.test('messages', async (t) => {
  const w = await world(t);
  const { fleet } = w;

  await t.test('in TypeScript', async (t) => {
    const reach = new Reach({ url: w.home.url, token: TOKEN, log: () => undefined });
    t.teardown(() => reach.close());

    await t.test('a cast is durable when it is answered, and its result is the task’s', async (t) => {
      const task = await reach.cast<{ n: number; key: string }>(
        `${NAME}@^1.0`,
        { n: 1 },
        { priority: 'high', idempotencyKey: 'ts-1', tags: { a: 'b' } },
      );
      t.match(task.accepted, { taskId: task.id, durable: 'stream', capability: NAME, version: '1.0.0', lane: 'high', powerId: 'ts-1' });
      t.match(await task.result({ timeoutMs: 10_000 }), { n: 1, key: 'ts-1' });
      t.match(await task.status(), { state: 'done', isFinal: true, by: 'crm.order.1', attempts: 1, code: 0, result: { n: 1 } });
      t.match(await reach.task(task.id).wait(), { state: 'done' });
      t.equal(await task.cancel(), 'too_late');
      const failed = await reach.cast({ capability: NAME, agent: 'crm.order.1' }, { fail: true });
      await t.rejects(failed.result(), { name: 'provider_error', data: { why: 'no such order' }, ambiguous: false });
      const bytes = await reach.cast<{ type: string }>(NAME, Buffer.from('abc'), { contentType: 'text/x-own', replyTo: 'inbox' });
      t.equal((await bytes.result()).type, 'text/x-own');
      await t.rejects(reach.task('0123456789').status(), { code: 4003 });
      await t.rejects(reach.cast('crm.order.gone', 1), { name: 'no_provider' });
      const waiting = await reach.cast({ role: 'nobody_has_it' }, { n: 2 }, { expiresMs: 60_000 });
      t.match(await waiting.wait({ timeoutMs: 100 }), { isFinal: false });
      t.ok(['cancelled', 'requested'].includes(await waiting.cancel()));
      // One key for the message and for a call: the same work.
      t.match(await reach.invoke(NAME, { n: 1 }, { idempotencyKey: 'ts-1' }), { replay: true, data: { n: 1 } });
      t.equal((await reach.invoke(NAME, { n: 1 }, { idempotencyKey: 'ts-2' })).replay, false);
      const other = await reach.cast(NAME, { n: 99 }, { idempotencyKey: 'ts-1' });
      await t.rejects(other.result(), { name: 'key_reused' }, 'another payload');
    });

    await t.test('an agent that has taken work says that it takes longer, and later how it ended', async (t) => {
      const order = new Reach({ url: w.home.url, token: ORDER_TOKEN, log: () => undefined });
      t.teardown(() => order.close());
      const task = await reach.cast(NAME, { later: true }, { messageType: 'report', tags: { lang: 'de' } });
      await waitUntil('it is received', async () => (await task.status()).state === 'received', 10_000);
      t.match(await task.status(), { by: 'crm.order.1', isFinal: false });
      t.ok((await order.extend(task.id)) > 29_000);
      await t.rejects(reach.extend(task.id), { code: 4003 }, 'not by another');
      await t.rejects(reach.done(task.id, {}), { code: 4003 });
      await order.done(task.id, { sum: 3 });
      t.strictSame(await task.result({ timeoutMs: 10_000 }), { sum: 3 });
      await t.rejects(order.done(task.id, { sum: 4 }), { code: 4003 }, 'it has ended');
      const failing = await reach.cast(NAME, { later: true });
      await waitUntil('it is received', async () => (await failing.status()).state === 'received', 10_000);
      await order.done(failing.id, Buffer.from('no'), { status: 422, contentType: 'text/plain' });
      await t.rejects(failing.result({ timeoutMs: 10_000 }), { name: 'provider_error', data: 'no' });
      const { headers } = w.agent.requests.find(({ json }) => (json as { later?: boolean } | null)?.later === true) as {
        headers: Record<string, string>;
      };
      const context = new Context(settingsOf({}), NAME, '1.0.0', headers, new AbortController().signal);
      t.match(context, { taskId: task.id, messageType: 'report', inReplyTo: null, tags: { lang: 'de' }, caller: CALLER });
      t.equal(new Context(settingsOf({}), NAME, '1.0.0', {}, new AbortController().signal).taskId, null, 'a call has none');
    });

    await t.test('the inbox is read once, in order, across a restart of the sidecar', async (t) => {
      for (let n = 10; n < 14; n++) await reach.cast(NAME, { n });
      const seen: InboxMessage[] = [];
      const leaving = new AbortController();
      const reading = (async () => {
        for await (const message of reach.inbox({ signal: leaving.signal })) seen.push(message);
      })();
      const numbers = (): unknown[] => seen.map(({ data }) => (data as { n?: number } | null)?.n).filter((n) => (n ?? 0) >= 10);
      await waitUntil('the first are there', () => numbers().length === 4, 15_000);
      // It waits for the next one while its sidecar goes and comes back.
      await w.restart();
      for (let n = 14; n < 17; n++) await reach.cast(NAME, { n });
      await waitUntil('the others are there', () => numbers().length >= 7, 20_000);
      leaving.abort();
      await reading;
      t.strictSame([...numbers()].sort(), [10, 11, 12, 13, 14, 15, 16]);
      const seqs = seen.map(({ seq }) => seq);
      t.strictSame(
        seqs,
        [...new Set(seqs)].sort((a, b) => a - b),
        'in order, and none twice',
      );
      t.match(seen.at(-1), { kind: 'state', state: 'done', by: 'crm.order.1', messageType: 'task_request' });
      // What was taken is acknowledged: a new reader begins behind it.
      await reach.cast(NAME, { n: 17 });
      for await (const message of reach.inbox({ ack: 'manual' })) {
        t.match(message.data, { n: 17 });
        await message.ack();
        break;
      }
      const again: number[] = [];
      for await (const { seq } of reach.inbox({ from: seqs[0] as number, ack: 'manual' })) if (again.push(seq) === seqs.length) break;
      t.strictSame(again, seqs, 'and from a position everything comes again');
    });

    await t.test('a position that is gone or ahead is an error that says what is there', async (t) => {
      const read = async (from: number): Promise<void> => {
        for await (const _ of reach.inbox({ from })) break;
      };
      const ahead = await read(99_999).catch((error: unknown) => error);
      t.ok(ahead instanceof InboxError && ahead instanceof ReachError);
      t.match(ahead, { why: 'ahead', code: 4003 });
      const page = await w.home.ask('/v1/inbox?from=1&limit=1');
      const first = page.json.entries[0].seq as number;
      for (let seq = 1; seq <= first; seq++) await fleet.bus.deleteMessage(INBOX_STREAM, seq);
      t.match(await read(1).catch((error: unknown) => error), { why: 'gone', from: first + 1 });
    });

    await t.test('closing the client ends what waits', async (t) => {
      const other = new Reach({ url: w.home.url, token: TOKEN, log: () => undefined });
      const reading = (async () => {
        for await (const _ of other.inbox()) t.fail('nothing was to come');
      })();
      await new Promise((done) => setTimeout(done, 50));
      await other.close();
      await t.rejects(reading, { name: 'connection_lost' });
    });
  });

  await t.test('in Python', async (t) => {
    const running = new Promise<{ out: string; err: string }>((done) => {
      const args = ['-u', '-X', 'dev', '-W', 'error', repoFile('test/sdk/python_messages.py'), w.home.url, PYTHON_TOKEN, ORDER_TOKEN];
      const options = { encoding: 'utf8', timeout: 60_000, env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' } } as const;
      const child = execFile(pythonPath(), args, options, (_error, out, err) => done({ out, err }));
      let said = '';
      child.stdout?.on('data', (piece: string) => {
        said += piece;
        if (!said.includes('RESTART\n')) return;
        said = '';
        void w.restart().then(() => child.stdin?.end('go\n'));
      });
    });
    const { out, err } = await running;
    const lines = out
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as { name: string; problem: string });
    t.equal(lines.length, 5, 'all checks ran');
    for (const { name, problem } of lines) t.equal(problem, '', name);
    t.equal(err, '', 'nothing is left open, and nothing is complained of');
    t.ok((await inboxSize(fleet, PYTHON)) >= 8);
    t.ok((await inboxSize(fleet, CALLER)) >= 8);
  });
  await w.home.stop();
});
