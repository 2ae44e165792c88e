/**
 * Inboxes: results of tasks through a real nats-server and control plane to the agents that sent them, over HTTP and over
 * channels; from a position, after cuts, restarts and beyond what is kept.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { INBOX_STREAM } from '../../proto/wire/subjects.ts';
import { TestAgent } from '../support/agent.ts';
import { ChannelPeer } from '../support/channel-peer.ts';
import { Fleet, knows } from '../support/fleet.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import { CALLER, type Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';

t.setTimeout(118_000);
const before = takeBase();
const NAME = 'crm.order.query';
const OTHER = 'support.planner.2';
const OTHER_TOKEN = 'token-of-the-other';
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const RATE = 'rate: {per_sec: 100000, burst: 100000}';

interface World {
  readonly fleet: Fleet;
  readonly agent: TestAgent;
  readonly home: Rig;
  restart(): Promise<Rig>;
}

async function world(t: Test, inbox = '', more = ''): Promise<World> {
  const fleet = await Fleet.start(t, more);
  const agent = await TestAgent.listen('order');
  t.teardown(() => agent.close());
  const table = `contracts: [{name: ${NAME}, version: 1.0.0, description: x, acl: public, execution: idempotent}]
providers:
  - {agent_id: crm.order.1, offers: [${NAME}@1.0.0], via: home, endpoint: {type: http, address: "${agent.url}"}}
`;
  const folder = mkdtempSync(join(tmpdir(), 'reach-inbox-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const start = (): Promise<Rig> =>
    fleet.sidecar('home', table, `  messages: {${RATE}${inbox}}\n`, { folder, callers: { [OTHER]: OTHER_TOKEN } });
  const home = await start();
  await knows(home, NAME);
  return { fleet, agent, home, restart: start };
}

async function send(rig: Rig, from: number, to: number, token = TOKEN): Promise<void> {
  for (let n = from; n < to; n++) {
    const answer = await rig.ask(`/v1/cast/${NAME}`, { method: 'POST', payload: { n }, token });
    if (answer.status !== 202) throw new Error(`not accepted: ${answer.status} ${answer.bytes.toString('utf8')}`);
  }
}

/** Positions of what is in an agent's inbox, as the stream has them. */
async function positions(fleet: Fleet, agent: string): Promise<number[]> {
  const found = await fleet.bus.history(INBOX_STREAM, fleet.subjects.inboxesOf(agent)[1] as string, 10_000);
  if ('failed' in found) throw new Error(found.failed);
  return found.map(({ seq }) => seq);
}

async function stored(fleet: Fleet, agent: string, count: number): Promise<number[]> {
  await waitUntil(`${count} entries are stored`, async () => (await positions(fleet, agent)).length >= count, 20_000);
  return await positions(fleet, agent);
}

// biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
type Any = any;

/** An agent's end that keeps what its inbox brings. */
class Reader {
  readonly entries: Any[] = [];
  readonly ended: string[] = [];
  hello: Any = null;
  peer: ChannelPeer | null = null;

  static async dial(rig: Rig, resumeFrom: unknown, token = TOKEN): Promise<Reader> {
    const reader = new Reader();
    const { peer, hello } = await ChannelPeer.greet(
      rig.url,
      token,
      { serve: false, ...(resumeFrom === undefined ? {} : { resume_from: resumeFrom }) },
      {
        asked: ({ method, params }) => {
          if (method === 'reach.message') reader.entries.push(params);
          else if (method === 'reach.messages_end') reader.ended.push(params.why);
        },
      },
    );
    reader.peer = peer;
    reader.hello = hello;
    return reader;
  }

  get seqs(): number[] {
    return this.entries.map(({ seq }) => seq);
  }

  async ask(method: string, params: object): Promise<Any> {
    return await (this.peer as ChannelPeer).ask(method, JSON.stringify(params)).answer;
  }

  async has(count: number): Promise<void> {
    await waitUntil(`${count} entries have come`, () => this.entries.length >= count, 10_000);
  }
}

async function finish(t: Test, { fleet, agent, home }: World, rigs: readonly Rig[] = [home], expected = agent.executions): Promise<void> {
  await fleet.emptied(10_000);
  for (const rig of rigs) await rig.stop();
  await agent.close();
  await fleet.plane.control.stop(0);
  await fleet.bus.close();
  await fleet.nats.stop();
  await assertQuiet(t, {
    before,
    engines: rigs.map((rig) => rig.quiet),
    providers: [{ name: agent.name, count: () => agent.executions, expected }],
  });
}

t.test('C099 resume from a position: cut, again, trimmed, ahead, refused, two at once, and nobody else’s', async (t) => {
  const w = await world(t, ', inbox: {agent_count: 20}');
  const { fleet, home } = w;
  await send(home, 0, 60);
  await send(home, 0, 3, OTHER_TOKEN);
  await stored(fleet, OTHER, 3);
  const mine = await stored(fleet, CALLER, 60);
  const theirs = await positions(fleet, OTHER);
  const at41 = mine[40] as number;
  const rest = mine.slice(40);

  await t.test('what came is all there, in order, once', async (t) => {
    const first = await Reader.dial(home, at41);
    t.strictSame(first.hello.resume, { from: at41, floor: 0 });
    // Cut before any event: the agent has seen nothing of it.
    first.peer?.terminate();
    const again = await Reader.dial(home, at41);
    await again.has(rest.length);
    t.strictSame(again.hello.resume, { from: at41, floor: 0 });
    t.strictSame(again.seqs, rest, 'the second one begins with the same entry');
    await sleep(100);
    t.equal(again.entries.length, rest.length, 'and no entry comes twice');
    t.match(again.entries[0], { kind: 'state', state: 'done', by: 'crm.order.1', data: { agent: 'order' } });
    await again.peer?.close();
  });

  await t.test('it was cut in the midst, and goes on behind the last one that was seen', async (t) => {
    const first = await Reader.dial(home, mine[5]);
    await first.has(7);
    first.peer?.terminate();
    const seen = first.seqs.slice(0, 7);
    const second = await Reader.dial(home, (seen.at(-1) as number) + 1);
    await second.has(mine.length - 5 - 7);
    t.strictSame([...seen, ...second.seqs], mine.slice(5), 'out of the stream and out of memory, without a seam');
    await second.peer?.close();
  });

  await t.test('trimmed: an explicit gap, by every way in', async (t) => {
    const keepFrom = mine[20] as number;
    for (let seq = 1; seq < keepFrom; seq++) await fleet.bus.deleteMessage(INBOX_STREAM, seq);
    const old = mine[9] as number;
    const { hello, peer } = await Reader.dial(home, old);
    t.match(hello.resume, { from: null, why: 'gone', available_from: keepFrom });
    t.match(hello.resume.reason, /gone/);
    const reader = new Reader();
    reader.peer = peer;
    const asked = await reader.ask('reach.resume', { from: old });
    t.match(asked, { error: { data: { status: 410, inbox: { why: 'gone', from: keepFrom } } } });
    const page = await home.ask(`/v1/inbox?from=${old}`);
    t.equal(page.status, 410);
    t.match(page.json, { code: 4003, inbox: { why: 'gone', from: keepFrom } });
    const stream = await home.ask('/v1/inbox', { headers: { accept: 'text/event-stream', 'last-event-id': String(old - 1) } });
    t.equal(stream.status, 410, 'an event source is not put off with silence either');
    const whole = await home.ask(`/v1/inbox?from=${keepFrom}&limit=1000`);
    t.strictSame(
      whole.json.entries.map(({ seq }: Any) => seq),
      mine.slice(20),
      'from what is kept it goes on',
    );
    await peer?.close();
  });

  await t.test('the future and what is no position are refused', async (t) => {
    const reader = await Reader.dial(home, 9_999);
    t.match(reader.hello.resume, { from: null, why: 'ahead', available_from: (mine.at(-1) as number) + 1 });
    t.match((await Reader.dial(home, -1)).hello.resume, { from: null, why: 'invalid' });
    for (const from of [-1, 1.5, '41', true])
      t.match(await reader.ask('reach.resume', { from }), { error: { code: -32602 } }, String(from));
    t.match(await reader.ask('reach.resume', { from: 9_999 }), { error: { data: { status: 409, inbox: { why: 'ahead' } } } });
    t.equal((await home.ask('/v1/inbox?from=9999')).status, 409);
    for (const from of ['-1', '1e3', '041', '9007199254740993', 'x']) t.equal((await home.ask(`/v1/inbox?from=${from}`)).status, 400, from);
    // Right behind the last one is where an agent is that has seen all.
    t.match(await reader.ask('reach.resume', { from: (mine.at(-1) as number) + 1 }), { result: { from: (mine.at(-1) as number) + 1 } });
    await sleep(50);
    t.equal(reader.entries.length, 0);
    await reader.peer?.close();
  });

  await t.test('two at once: the last one wins, and nothing is doubled', async (t) => {
    const [one, two] = await Promise.all([Reader.dial(home, at41), Reader.dial(home, at41)]);
    await waitUntil('one of them is told', () => one.ended.length + two.ended.length === 1, 5_000);
    const [winner, loser] = one.ended.length === 0 ? [one, two] : [two, one];
    t.strictSame(loser.ended, ['replaced']);
    await winner.has(rest.length);
    const soFar = loser.entries.length;
    await send(home, 60, 65);
    await winner.has(rest.length + 5);
    await sleep(100);
    t.strictSame(winner.seqs, [...new Set(winner.seqs)]);
    t.equal(winner.entries.length, rest.length + 5);
    t.equal(loser.entries.length, soFar, 'the other one gets nothing new');
    // Over HTTP as well: an event source takes over from a channel.
    const taking = new Events(home, TOKEN, { 'last-event-id': String(winner.seqs.at(-1)) });
    await waitUntil('the channel is told', () => winner.ended.length === 1, 5_000);
    taking.close();
    await Promise.all([one.peer?.close(), two.peer?.close()]);
  });

  await t.test('positions of one agent open nothing to another, and tell it nothing', async (t) => {
    const spy = await Reader.dial(home, mine[50], OTHER_TOKEN);
    t.match(spy.hello.resume, (theirs.at(-1) as number) >= (mine[50] as number) - 1 ? { from: mine[50] } : { from: null, why: 'ahead' });
    const all = await home.ask(`/v1/inbox?from=${theirs[0]}&limit=1000`, { token: OTHER_TOKEN });
    t.strictSame(
      all.json.entries.map(({ seq }: Any) => seq),
      theirs,
      'only its own',
    );
    const page = await home.ask('/v1/inbox?from=9999', { token: OTHER_TOKEN });
    t.match(page.json.inbox, { why: 'ahead' });
    t.equal((await home.ask('/v1/inbox/ack', { method: 'POST', payload: { seq: 9_999 }, token: OTHER_TOKEN })).status, 409);
    await sleep(50);
    for (const { seq } of spy.entries) t.ok(theirs.includes(seq));
    await spy.peer?.close();
  });
  await finish(t, w);
});

/** An event source. */
class Events {
  text = '';
  status = 0;
  readonly #request: ReturnType<typeof httpRequest>;

  constructor(rig: Rig, token: string, headers: Readonly<Record<string, string>> = {}, path = '/v1/inbox') {
    this.#request = httpRequest(
      `${rig.url}${path}`,
      { agent: false, headers: { authorization: `Bearer ${token}`, accept: 'text/event-stream', ...headers } },
      (response) => {
        this.status = response.statusCode ?? 0;
        response.setEncoding('utf8');
        response.on('data', (piece: string) => (this.text += piece));
        response.on('error', () => undefined);
      },
    );
    this.#request.on('error', () => undefined);
    this.#request.end();
  }

  /** Positions, as event ids. */
  get ids(): number[] {
    return [...this.text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id));
  }

  close(): void {
    this.#request.destroy();
  }
}

t.test('C099 variant: acknowledged positions outlive the process, and reading goes on behind them', async (t) => {
  const w = await world(t);
  const { fleet, home } = w;
  await send(home, 0, 12);
  const mine = await stored(fleet, CALLER, 12);
  const page = await home.ask('/v1/inbox?limit=5&wait=5s');
  t.strictSame(
    page.json.entries.map(({ seq }: Any) => seq),
    mine.slice(0, 5),
  );
  t.equal(page.json.next, (mine[4] as number) + 1);
  t.match((await home.ask('/v1/inbox/ack', { method: 'POST', payload: { seq: mine[4] } })).json, { floor: mine[4] });
  t.match(
    (await home.ask('/v1/inbox/ack', { method: 'POST', payload: { seq: mine[1] } })).json,
    { floor: mine[4] },
    'a floor never goes back',
  );
  for (const body of ['{}', '{"seq":-1}', '{"seq":"4"}', '[]', 'x'])
    t.equal((await home.ask('/v1/inbox/ack', { method: 'POST', body })).status, 400, body);
  // A long poll that nothing answers, and one that something does.
  const idle = await home.ask(`/v1/inbox?from=${(mine.at(-1) as number) + 1}&wait=200ms`);
  t.match(idle.json, { entries: [], next: (mine.at(-1) as number) + 1 });
  t.ok(idle.elapsedMs >= 190);
  const waiting = home.ask(`/v1/inbox?from=${(mine.at(-1) as number) + 1}&wait=20s`);
  await sleep(50);
  await send(home, 12, 13);
  t.equal((await waiting).json.entries.length, 1);
  await home.stop();

  const second = await w.restart();
  await knows(second, NAME);
  const all = await stored(fleet, CALLER, 13);
  const after = await second.ask('/v1/inbox?limit=100&wait=5s');
  t.equal(after.status, 200, after.bytes.toString('utf8'));
  t.strictSame(
    after.json.entries.map(({ seq }: Any) => seq),
    all.slice(5),
    'what was not acknowledged is there again',
  );
  t.equal(after.json.floor, mine[4]);
  const replayed = await second.ask(`/v1/inbox?from=${mine[2]}&limit=2`);
  t.strictSame(
    replayed.json.entries.map(({ seq }: Any) => seq),
    mine.slice(2, 4),
    'and so is what was, for who asks',
  );
  t.match((await second.ask('/v1/inbox/ack', { method: 'POST', payload: { seq: all.at(-1) } })).json, { floor: all.at(-1) });
  t.strictSame((await second.ask('/v1/inbox')).json.entries, []);

  const events = new Events(second, TOKEN, { 'last-event-id': String(all[9]) });
  await waitUntil('the rest has come', () => events.ids.length === 3, 5_000);
  t.strictSame(events.ids, all.slice(10));
  await send(second, 13, 14);
  await waitUntil('and what is new', () => events.ids.length === 4, 5_000);
  t.match(events.text, /^event: state\ndata: \{"seq":\d+,"wire":1,"kind":"state".*"data":\{"agent":"order","payload":\{"n":13\}\}\}$/m);
  const pending = async (): Promise<number> => {
    const facts = await fleet.bus.consumer(INBOX_STREAM, 'inbox_home');
    return facts === null || 'failed' in facts ? -1 : facts.ackPending;
  };
  await waitUntil('the server holds what is not acknowledged, and nothing else', async () => (await pending()) === 1, 5_000);
  events.close();
  await finish(t, w, [home, second]);
});

t.test('C099 variant: a reader that stops reading holds back what comes for it, and misses nothing', async (t) => {
  const w = await world(t, ', inbox: {agent_count: 50, agent_size: 2MiB}');
  const { fleet, agent, home } = w;
  agent.behaviour = ({ json }) => ({ body: { n: (json as { n: number }).n, text: 'x'.repeat(150_000) } });
  const reader = await Reader.dial(home, 'floor');
  t.match(reader.hello.resume, { floor: 0 });
  reader.peer?.pause();
  await send(home, 0, 60);
  const mine = await stored(fleet, CALLER, 60);
  const waiting = home.started.front.channels?.waitingBytes ?? 0;
  t.ok(waiting < 3_000_000, `${waiting} of 9 million bytes wait on the channel`);
  reader.peer?.resume();
  await reader.has(60);
  t.strictSame(reader.seqs, mine);
  t.strictSame(
    reader.entries.map(({ data }) => data.n).sort((a, b) => a - b),
    Array.from({ length: 60 }, (_, n) => n),
  );
  t.match(await reader.ask('reach.ack', { seq: mine[49] }), { result: { floor: mine[49] } });
  t.match(await reader.ask('reach.ack', { seq: (mine.at(-1) as number) + 50 }), { error: { data: { inbox: { why: 'ahead' } } } });
  await reader.peer?.close();
  const again = await Reader.dial(home, 'floor');
  await again.has(10);
  t.strictSame(again.seqs, mine.slice(50));
  await again.peer?.close();
  await finish(t, w);
});

t.test('C099 variant: an agent that is at home with another sidecar finds there what it has not acknowledged', async (t) => {
  const fleet = await Fleet.start(t);
  const agent = await TestAgent.listen('order');
  t.teardown(() => agent.close());
  const table = `contracts: [{name: ${NAME}, version: 1.0.0, description: x, acl: public, execution: idempotent}]
providers:
  - {agent_id: crm.order.1, offers: [${NAME}@1.0.0], via: worker, endpoint: {type: http, address: "${agent.url}"}}
`;
  const worker = await fleet.sidecar('worker', table);
  const NOMAD = 'support.nomad.1';
  const NOMAD_TOKEN = 'token-of-the-nomad';
  const start = (name: string): Promise<Rig> =>
    fleet.sidecar(name, 'contracts: []\nproviders: []\n', `  messages: {${RATE}}\n`, { callers: { [NOMAD]: NOMAD_TOKEN } });
  const first = await start('first');
  await knows(first, NAME);
  await send(first, 0, 8, NOMAD_TOKEN);
  const mine = await stored(fleet, NOMAD, 8);
  const page = await first.ask('/v1/inbox?limit=8&wait=5s', { token: NOMAD_TOKEN });
  const tasks = page.json.entries.map(({ task_id }: Any) => task_id);
  t.equal(tasks.length, 8);
  await first.ask('/v1/inbox/ack', { method: 'POST', payload: { seq: mine[2] }, token: NOMAD_TOKEN });
  await first.stop();
  const second = await start('second');
  await knows(second, NAME);
  const atOld = async (): Promise<number> => {
    const found = await fleet.bus.history(INBOX_STREAM, fleet.subjects.inbox('first', NOMAD), 100);
    return 'failed' in found ? -1 : found.filter(({ seq }) => seq > (mine[2] as number)).length;
  };
  await waitUntil('what was not acknowledged has followed it', async () => (await atOld()) === 0, 20_000);
  await send(second, 8, 9, NOMAD_TOKEN);
  const got: Any[] = [];
  for (let from = ''; got.length < 6; ) {
    const next = await second.ask(`/v1/inbox?wait=5s${from}`, { token: NOMAD_TOKEN });
    t.equal(next.status, 200, next.bytes.toString('utf8'));
    if (next.json.entries.length === 0) break;
    t.equal(next.json.floor, mine[2], 'its floor has come along');
    got.push(...next.json.entries);
    from = `&from=${next.json.next}`;
  }
  t.strictSame(
    got.slice(0, 5).map(({ task_id }) => task_id),
    tasks.slice(3),
    'all of it, in order, and what comes new behind it',
  );
  t.equal(got.length, 6);
  t.strictSame(
    got.map(({ seq }) => seq),
    [...got.map(({ seq }) => seq)].sort((a, b) => a - b),
  );
  await finish(t, { fleet, agent, home: worker, restart: () => start('second') }, [first, second, worker]);
});
