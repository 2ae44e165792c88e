/**
 * Streams from end to end, on real sidecars and sockets, straight to the provider and over another sidecar: clocks, pace,
 * leaving, and what is told and recorded at the end must be the same on both ways and in every form.
 */
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import t from 'tap';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { TestAgent } from '../support/agent.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { FORMS, StreamClient } from '../support/stream-client.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(60_000);
const before: Base = takeBase();
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const NAME = 'nlp.answer.generate';
const MESH = 'a-mesh-token';

function table(urls: readonly string[], meshUrl: string | null): string {
  const via = meshUrl === null ? '' : ', via: two';
  const providers = urls.map(
    (url, i) => `  - {agent_id: nlp.writer.${i + 1}, offers: [${NAME}@1.0.0], endpoint: {type: http, address: "${url}"}${via}}`,
  );
  return `contracts:
  - {name: ${NAME}, version: 1.0.0, acl: public, execution: idempotent, timeout: 1s, deadline: 20s, streaming: {first_chunk: 700ms, idle: 800ms},
     retry: {max: 2}, breaker: {slow_call: 300ms}}
providers:
${providers.join('\n')}
policies: [{capability: "*", load: primary_backup}]
${meshUrl === null ? '' : `sidecars: [{name: two, mesh: "${meshUrl}"}]`}`;
}

/** Until more can be written, or nothing ever will. */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((done) => {
    const over = (): void => {
      response.off('drain', over).off('close', over);
      done();
    };
    response.on('drain', over).on('close', over);
  });
}

class Bench {
  readonly rigs: readonly Rig[];
  readonly agents: readonly TestAgent[];
  constructor(rigs: readonly Rig[], agents: readonly TestAgent[]) {
    this.rigs = rigs;
    this.agents = agents;
  }
  get one(): Rig {
    return this.rigs[0] as Rig;
  }
  /** The sidecar that is next to the provider. */
  get last(): Rig {
    return this.rigs.at(-1) as Rig;
  }
  cell(rig: Rig) {
    for (const cell of rig.started.front.engine.health.cells()) if (cell.agentId === 'nlp.writer.1') return cell;
    throw new Error('no breaker');
  }
  async stop(t: Test, executions: readonly number[]): Promise<void> {
    for (const rig of this.rigs) await waitUntil('rest', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
    const counts = this.agents.map((agent, i) => ({ name: agent.name, count: agent.executions, expected: executions[i] ?? 0 }));
    for (const rig of this.rigs) await rig.stop();
    for (const agent of this.agents) await agent.close();
    for (const rig of this.rigs) await rig.finish(t, before, counts);
  }
}

async function bench(t: Test, mesh: boolean, serve: (response: ServerResponse, act: string) => unknown): Promise<Bench> {
  const agents: TestAgent[] = [];
  for (const name of ['nlp.writer.1', 'nlp.writer.2'])
    agents.push(
      await TestAgent.listen(name, async (request, response) => {
        await serve(response, (request.json as { act: string }).act);
        return undefined;
      }),
    );
  const urls = agents.map((agent) => agent.url);
  for (const agent of agents) t.teardown(() => agent.close());
  if (!mesh) return new Bench([await Rig.start(t, { table: table(urls, null) })], agents);
  const two = await Rig.start(t, { name: 'two', table: table(urls, 'http://127.0.0.1:1'), meshToken: MESH });
  return new Bench([await Rig.start(t, { name: 'one', table: table(urls, two.started.meshUrl ?? ''), meshToken: MESH }), two], agents);
}

const lines = (rig: Rig): Record<string, unknown>[] => rig.logged.filter((line) => line['msg'] === 'call');

for (const mesh of [false, true]) {
  const way = mesh ? 'over another sidecar' : 'straight';

  t.test(`every clock of a stream cuts the provider off and says so in every form, ${way}`, async (t) => {
    const run = await bench(t, mesh, async (response, act) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream' });
      response.flushHeaders();
      if (act === 'first') return;
      response.write('one,');
      if (act === 'idle') return;
      for (let i = 0; i < 100 && !response.destroyed; i++) {
        await sleep(100);
        response.write('more,');
      }
    });
    const table: [string, number, RegExp, number, Record<string, string>][] = [
      ['first', 1003, /no chunk of the body within 700 ms/, 700, {}],
      ['idle', 1006, /nothing came for 800 ms/, 800, {}],
      ['total', 5001, /the total time was over before the stream ended/, 1_600, { 'reach-deadline-ms': '1600' }],
    ];
    let asked = 0;
    const runs = table.flatMap(([act, code, words, ms, headers]) =>
      FORMS.map((form) => ({ act, code, words, ms, form, client: new StreamClient(run.one, NAME, form, { act }, headers) })),
    );
    for (const { act, code, words, ms, form, client } of runs) {
      const outcome = await client.over();
      const name = `${act} as ${form}`;
      t.equal(client.status, 200, name);
      t.ok(client.overMs >= ms - 20 && client.overMs < ms + 2_000, `${name}: at its time (${client.overMs.toFixed(0)} ms)`);
      t.equal(outcome.ending, form === 'plain' ? 'cut' : 'error', name);
      if (form === 'plain') continue;
      t.match(
        outcome.result,
        { code, error: { code, detail: words }, attempts: [{ code, provider: 'nlp.writer.1', started: 'started' }] },
        name,
      );
      t.equal(outcome.result.attempts.length, 1, 'nobody else is asked once the head was passed on');
    }
    asked += runs.length;
    await waitUntil('the provider was cut off every time', () => run.agents[0]?.abandoned === asked, 3_000);
    for (const rig of run.rigs) {
      await waitUntil('rest', () => rig.quiet.inFlight() === 0);
      const codes = lines(rig).map((line) => line['code']);
      // When the total time is over both ends know it at once; the caller's may be gone before the other one has said so.
      const known = codes.map((code) => (rig !== run.one && code === 5003 ? 5001 : code));
      t.same(known.sort(), table.flatMap(([, code]) => [code, code, code]).sort(), 'each has its record, with its code');
      for (const line of lines(rig)) t.equal(line['provider'] ?? 'nlp.writer.1', 'nlp.writer.1');
    }
    const cell = run.cell(run.last);
    const now = run.last.started.front.engine.clock.now();
    t.equal(cell.failuresInWindow(now), asked, 'and each counts against the provider, where the traffic is judged');
    await run.stop(t, [asked, 0]);
  });

  t.test(`slow means the first piece: neither the head nor the length of the stream counts, ${way}`, async (t) => {
    const run = await bench(t, mesh, async (response, act) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.flushHeaders();
      if (act === 'slow') await sleep(450);
      response.write('a');
      await sleep(act === 'slow' ? 0 : 450);
      response.end('b');
    });
    const cell = run.cell(run.last);
    const { clock } = run.last.started.front.engine;
    t.match(await new StreamClient(run.one, NAME, 'frames', { act: 'long' }).over(), { ending: 'end', data: 'ab' });
    await waitUntil('judged', () => cell.callsInWindow(clock.now()) === 1);
    t.equal(cell.slowInWindow(clock.now()), 0, 'a long stream that begins at once is not slow');
    t.match(await new StreamClient(run.one, NAME, 'frames', { act: 'slow' }).over(), { ending: 'end', data: 'ab' });
    await waitUntil('judged', () => cell.callsInWindow(clock.now()) === 2);
    t.equal(cell.slowInWindow(clock.now()), 1, 'a quick head with a late first piece is');
    await run.stop(t, [2, 0]);
  });

  t.test(`the time of one attempt is that to the head: the body has what is left of the total, ${way}`, async (t) => {
    const run = await bench(t, mesh, async (response) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      for (let i = 0; i < 8; i++) {
        response.write(String(i));
        await sleep(200);
      }
      response.end();
    });
    const client = new StreamClient(run.one, NAME, 'frames', { act: '' });
    t.match(await client.over(), { ending: 'end', data: '01234567' });
    t.ok(client.overMs > 1_400, 'longer than `timeout`, which is a second');
    const told = Number(run.agents[0]?.requests[0]?.headers['reach-deadline-ms']);
    t.ok(told > 18_000 && told <= 20_000, `the provider is told what it really has (${told} ms)`);
    await run.stop(t, [1, 0]);
  });

  t.test(`who does not read holds the provider back through every hop, and loses nothing, ${way}`, async (t) => {
    let sent = 0;
    const BYTES = 64 * 1_048_576;
    const run = await bench(t, mesh, async (response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream' });
      const piece = Buffer.alloc(65_536, 'p');
      while (sent < BYTES && !response.destroyed) {
        sent += piece.length;
        if (!response.write(piece)) await drained(response);
      }
      response.end();
    });
    for (const form of ['plain', 'frames'] as const) {
      sent = 0;
      const client = new StreamClient(run.one, NAME, form, { act: '' });
      await waitUntil('it has begun', () => client.chunks.length > 0);
      client.response?.pause();
      let last = -1;
      await waitUntil('the provider stands still', async () => {
        const stood = sent === last;
        last = sent;
        await sleep(100);
        return stood;
      });
      t.ok(sent < 24 * 1_048_576, `it got rid of ${(sent / 1_048_576).toFixed(1)} MiB, which is what the sockets on the way hold`);
      // Longer than `idle`: that nobody reads is no silence of the provider.
      await sleep(1_000);
      t.equal(client.isOver, false);
      client.response?.resume();
      const outcome = await client.over(20_000);
      t.match([outcome.ending, outcome.data.length], ['end', BYTES], form);
    }
    await run.stop(t, [2, 0]);
  });

  t.test(`who leaves ends the work of everybody behind, ${way}`, async (t) => {
    const run = await bench(t, mesh, (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: 1\n\n');
      const timer = setInterval(() => response.write('data: 2\n\n'), 50);
      response.on('close', () => clearInterval(timer));
    });
    for (const form of FORMS) {
      const client = new StreamClient(run.one, NAME, form, { act: '' });
      await waitUntil('it has begun', () => client.chunks.length > 0);
      const gone = run.agents[0]?.abandoned ?? 0;
      client.leave();
      await waitUntil('the provider is told', () => (run.agents[0]?.abandoned ?? 0) > gone, 1_000);
    }
    for (const rig of run.rigs) {
      await waitUntil('rest', () => rig.quiet.inFlight() === 0);
      t.same(
        lines(rig).map((line) => line['code']),
        [5003, 5003, 5003],
      );
    }
    const cell = run.cell(run.last);
    t.equal(cell.failuresInWindow(run.last.started.front.engine.clock.now()), 0, 'which says nothing about the provider');
    await run.stop(t, [3, 0]);
  });

  t.test(`a provider that dies in the middle: told, counted, recorded, and not repeated, ${way}`, async (t) => {
    const run = await bench(t, mesh, async (response) => {
      response.writeHead(200, { 'content-type': 'application/x-ndjson' });
      response.write('{"n":1}\n{"half":');
      await sleep(50);
      response.destroy();
    });
    for (const form of FORMS) {
      const client = new StreamClient(run.one, NAME, form, { act: '' });
      const outcome = await client.over();
      t.equal(outcome.ending, form === 'plain' ? 'cut' : 'error', form);
      t.equal(outcome.data, form === 'events' ? '{"n":1}' : '{"n":1}\n{"half":', 'what came is there; half a line is no event');
      if (form !== 'plain')
        t.match(outcome.result, {
          code: 1006,
          status: 200,
          provider: 'nlp.writer.1',
          error: {
            ambiguous: true,
            detail: /^nlp\.writer\.1: the body is cut: the connection was (closed|reset) after 16 bytes, before its end \(after \d+ ms\)$/,
          },
        });
    }
    for (const rig of run.rigs) {
      await waitUntil('rest', () => rig.quiet.inFlight() === 0);
      const records = lines(rig);
      t.equal(records.length, 3, 'one record each, at the end of the stream');
      for (const line of records)
        t.ok(line['code'] === 1006 && Number(line['ms'] ?? line['elapsed_ms'] ?? 50) >= 40, JSON.stringify(line).slice(0, 300));
    }
    await run.stop(t, [3, 0]);
  });

  t.test(`before the first byte a stream may go elsewhere, ${way}`, async (t) => {
    let first = true;
    const run = await bench(t, mesh, (response) => {
      if (first) {
        first = false;
        response.destroy();
        return;
      }
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.end('from the other');
    });
    t.match(await new StreamClient(run.one, NAME, 'frames', { act: '' }).over(), {
      ending: 'end',
      data: 'from the other',
      result: { code: 0, provider: 'nlp.writer.2', attempts: [{ code: 1002 }, { code: 0 }] },
    });
    await run.stop(t, [1, 1]);
  });
}

t.test('the hosting sidecar stops in the middle of a stream: no form takes it for the end, and it says where to go on', async (t) => {
  const run = await bench(t, true, (response) => {
    response.writeHead(200, { 'content-type': 'text/plain' });
    response.write('half');
  });
  const clients = FORMS.map((form) => new StreamClient(run.one, NAME, form, { act: '' }));
  await waitUntil('all have begun', () => clients.every((client) => client.chunks.length > 0));
  await run.last.stop();
  for (const client of clients) {
    const outcome = await client.over();
    t.equal(outcome.ending, client.form === 'plain' ? 'cut' : 'going_away');
    if (client.form !== 'plain') t.match(outcome.result, { code: 2006, resume: /./ });
  }
  await run.stop(t, [3, 0]);
});

t.test('a caller that does not read is told of the cut for a while, then its connection is closed', async (t) => {
  const clock = new VirtualClock();
  const agent = await TestAgent.listen('nlp.writer.1', async (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' });
    while (!response.destroyed) if (!response.write('x'.repeat(65_536))) await drained(response);
    return undefined;
  });
  t.teardown(() => agent.close());
  const rig = await Rig.start(t, { table: table([agent.url], null), clock });
  const sockets = [];
  for (const accept of ['text/event-stream', 'application/vnd.agent-reach.frames']) {
    const socket = connect(rig.port, '127.0.0.1');
    socket.on('error', () => {});
    const head = `POST /v1/stream/${NAME} HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nauthorization: Bearer ${TOKEN}`;
    socket.write(`${head}\r\naccept: ${accept}\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"act":"any"}`);
    sockets.push(socket);
  }
  await waitUntil('both are served', () => agent.executions === 2);
  await sleep(300);
  await clock.advance(20_100);
  await waitUntil('both calls are over', () => rig.quiet.inFlight() === 0);
  t.strictSame(
    rig.logged.filter((line) => line['msg'] === 'call').map((line) => line['code']),
    [5001, 5001],
    'and say why',
  );
  await waitUntil('the agent is let go', () => agent.openConnections === 0);
  const open = (): number => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  const both = open();
  await clock.advance(10_000);
  await sleep(50);
  t.equal(open(), both, 'the words of the cut are still to be read');
  await clock.advance(20_100);
  await waitUntil("the sidecar's ends of both are closed", () => open() <= both - 2, 2_000);
  for (const socket of sockets) socket.destroy();
  const stopping = rig.stop();
  let isStopped = false;
  void stopping.then(() => (isStopped = true));
  while (!isStopped) {
    await clock.advance(50);
    await sleep(5);
  }
});
