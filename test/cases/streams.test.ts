/** Faults of streams: characters cut in two, line ends of every kind, events without end, and connections closed cleanly too soon. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import t from 'tap';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { Reach } from '../../sdk/typescript/index.ts';
import { TestAgent } from '../support/agent.ts';
import { ChannelPeer } from '../support/channel-peer.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { nodeArgs, REPO } from '../support/paths.ts';
import { Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { eventsIn, type Form, FORMS, type Outcome, StreamClient } from '../support/stream-client.ts';
import { rawAnswer, type StubConnection, TcpStub } from '../support/tcp-stub.ts';

type Test = Parameters<typeof Rig.start>[0];

t.setTimeout(110_000);
const before: Base = takeBase();
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const TALK = 'nlp.answer.generate';
const MESH = 'a-mesh-token';

/** Contracts that differ in how the end of the stream is told; the provider of each is at `url`. */
function table(url: string, meshUrl: string | null): string {
  const via = meshUrl === null ? '' : ', via: two';
  const contract = (name: string, streaming: string): string =>
    `  - {name: ${name}, version: 1.0.0, acl: public, execution: idempotent, deadline: 30s, streaming: ${streaming}}`;
  const names = [TALK, `${TALK}_until`, `${TALK}_quick`];
  return `contracts:
${contract(TALK, 'true')}
${contract(`${TALK}_until`, '{done: finished}')}
${contract(`${TALK}_quick`, '{first_chunk: 300ms, idle: 400ms}')}
providers:
  - {agent_id: nlp.writer.1, offers: [${names.map((name) => `${name}@1.0.0`).join(', ')}], endpoint: {type: http, address: "${url}"}${via}}
  - {agent_id: nlp.writer.2, offers: [${names.map((name) => `${name}@1.0.0`).join(', ')}], endpoint: {type: http, address: "${url}"}${via}}
${meshUrl === null ? '' : `sidecars: [{name: two, mesh: "${meshUrl}"}]`}`;
}

/** The caller's sidecar, and with `mesh` the one that hosts the providers. */
async function rigs(t: Test, url: string, mesh: boolean): Promise<Rig[]> {
  if (!mesh) return [await Rig.start(t, { table: table(url, null) })];
  const two = await Rig.start(t, { name: 'two', table: table(url, 'http://127.0.0.1:1'), meshToken: MESH });
  return [await Rig.start(t, { name: 'one', table: table(url, two.started.meshUrl ?? ''), meshToken: MESH }), two];
}

async function quiet(t: Test, all: readonly Rig[], stub: TcpStub | TestAgent, expected: number): Promise<void> {
  for (const rig of all) await waitUntil('calls under way have ended', () => rig.quiet.inFlight() === 0, 5_000).catch(() => undefined);
  const count = stub.requests.length;
  for (const rig of all) await rig.stop();
  await stub.close();
  for (const rig of all) await rig.finish(t, before, [{ name: 'the provider', count, expected }]);
}

const accessLines = (rig: Rig): Record<string, unknown>[] => rig.logged.filter((line) => line['msg'] === 'call');

const HEAD = (type: string): string => rawAnswer(200, { 'content-type': type, 'transfer-encoding': 'chunked' });
const CLOSE_HEAD = (type: string): string => rawAnswer(200, { 'content-type': type, connection: 'close' });
const chunk = (bytes: Buffer | string): Buffer => {
  const data = typeof bytes === 'string' ? Buffer.from(bytes) : bytes;
  return Buffer.concat([Buffer.from(`${data.length.toString(16)}\r\n`), data, Buffer.from('\r\n')]);
};
const LAST = '0\r\n\r\n';

t.test('C019 a character that is cut in two comes through whole', async (t) => {
  const words = '🙂 漢字仮名 é 🏳️‍🌈';
  const bodies: Readonly<Record<string, string>> = {
    'text/event-stream': `data: ${words}\n\n`,
    'application/x-ndjson': `{"text":"${words}"}\n`,
    'text/plain; charset=utf-8': words,
  };
  /** What the client must have, by the type of the body and the form. */
  const wanted = (type: string, form: Form): string => {
    if (form !== 'events') return bodies[type] as string;
    return type === LINES ? `{"text":"${words}"}` : words;
  };
  let type = '';
  let pieces: Buffer[] = [];
  const stub = await TcpStub.listen(async (connection) => {
    await connection.write(Buffer.concat([Buffer.from(HEAD(type)), ...pieces.map(chunk), Buffer.from(LAST)]));
  });
  t.teardown(() => stub.close());
  for (const mesh of [false, true]) {
    const all = await rigs(t, stub.url, mesh);
    const [one] = all as [Rig];
    const get = (form: Form): Promise<Outcome> => new StreamClient(one, TALK, form).over();
    let asked = stub.requests.length;
    const joined = (outcome: Outcome): string => (type.startsWith('text/plain') ? outcome.data.replaceAll('\n', '') : outcome.data);
    for (type of Object.keys(bodies)) {
      const whole = Buffer.from(bodies[type] as string);
      for (const form of FORMS) {
        pieces = [...whole].map((byte) => Buffer.from([byte]));
        t.match(await get(form), { ending: 'end' }, `${type} as ${form}, byte by byte`);
        t.equal(joined(await get(form)), wanted(type, form));
        asked += 2;
      }
      const problems: string[] = [];
      for (let cut = 1; cut < whole.length; cut++) {
        pieces = [whole.subarray(0, cut), whole.subarray(cut)];
        const outcome = await get('events');
        asked++;
        if (outcome.ending !== 'end' || joined(outcome) !== wanted(type, 'events'))
          problems.push(`cut at ${cut}: ${JSON.stringify(outcome)}`);
      }
      t.strictSame(problems, [], `${type}: the same text for every cut`);

      pieces = [whole, Buffer.from([0xc3])];
      const lone = await get('events');
      asked++;
      t.equal(lone.ending, 'end', 'half a character at the end is no fault of the stream');
      t.ok((lone.data.match(/\uFFFD/g) ?? []).length <= 1, 'and at most one replacement character');
      t.ok(joined(lone).startsWith(wanted(type, 'events')));

      pieces = [...Buffer.from('\uFEFF'), ...whole].map((byte) => Buffer.from([byte]));
      const marked = await get('events');
      asked++;
      t.equal(joined(marked), wanted(type, 'events'), 'a byte order mark at the start is dropped');
      if (type === 'text/plain; charset=utf-8') {
        pieces = [Buffer.from(`\uFEFF\uFEFF${words}`)];
        t.equal((await get('events')).data, `\uFEFF${words}`, 'once');
        asked++;
      }
    }
    t.equal(stub.requests.length, asked, 'every stream was asked for once');
    for (const rig of all) await waitUntil('rest', () => rig.quiet.inFlight() === 0);
    t.ok(accessLines(one).every((line) => line['code'] === 0));
    if (mesh) await quiet(t, all, stub, stub.requests.length);
    else for (const rig of all) await rig.stop();
  }

  await t.test('also one whose halves an agent gives on two pieces', async (t) => {
    const HELPER = 'sales.helper.2';
    const rig = await Rig.start(t, {
      table: `contracts: [{name: ${TALK}, version: 1.0.0, acl: public, streaming: true}]
providers: [{agent_id: ${HELPER}, offers: [${TALK}@1.0.0], endpoint: {type: channel}}]`,
    });
    const agent = new Reach({ url: rig.url, token: 'token-of-the-helper' });
    agent.serve(`${TALK}@1.0.0`, () => [...words.split(''), 'a\ud83d'].values());
    await agent.start();
    for (const form of FORMS) {
      const outcome = await new StreamClient(rig, TALK, form).over();
      t.equal(outcome.ending, 'end');
      t.equal(outcome.data.replaceAll('\n', ''), `${words}a\ufffd`, `as ${form}; half a character that stays alone is one mark`);
    }
    await agent.close();
    await rig.finish(t, before);
  });
});

t.test('C020 lines may end with CR, LF or both, and an event that does not end fills no memory', async (t) => {
  const EVENTS = 10_000;
  const bodyOf = (i: number): string => `${String(i).padStart(6, '0')} ${'x'.repeat(1_010)}`;
  for (const [name, end] of [
    ['CR LF', '\r\n'],
    ['a lone CR', '\r'],
    ['LF', '\n'],
  ] as const) {
    await t.test(name, async (t) => {
      const gate: { go: (() => void) | null } = { go: null };
      const agent = await TestAgent.listen('nlp.writer.1', async (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(`data: ${bodyOf(0)}${end}${end}`);
        await new Promise<void>((done) => (gate.go = done));
        for (let i = 1; i < EVENTS && !response.destroyed; i++)
          if (!response.write(`data: ${bodyOf(i)}${end}${end}`)) await new Promise<void>((done) => response.once('drain', done));
        response.end();
        return undefined;
      });
      const all = await rigs(t, agent.url, name === 'CR LF');
      const [one] = all as [Rig];
      const client = new StreamClient(one, TALK, 'events');
      await waitUntil('the agent has sent its first event', () => gate.go !== null, 3_000, 1);
      // Everybody on the way lives in this process: a time for which it was not let run is nobody's delay.
      const halted = monitorEventLoopDelay({ resolution: 1 });
      halted.enable();
      const sentAt = performance.now();
      await waitUntil('the first event is here', () => client.chunks.length > 0, 3_000, 1);
      const tookMs = performance.now() - sentAt;
      halted.disable();
      t.ok(tookMs < 100 + halted.max / 1e6, `it came within 100 ms (${tookMs.toFixed(1)})`);
      t.equal(client.text.replaceAll(/[\r\n]/g, ''), `data: ${bodyOf(0)}`);
      gate.go?.();
      const { ending } = await client.over();
      t.equal(ending, 'end');
      const events = eventsIn(client.text);
      t.equal(events.length, EVENTS);
      t.ok(events.every((event, i) => event.data === bodyOf(i)));
      await quiet(t, all, agent, 1);
    });
  }

  await t.test('50 MB without a line end', async (t) => {
    let sent = 0;
    let closed = 0;
    const agent = await TestAgent.listen('nlp.writer.1', async (request, response) => {
      response.on('close', () => closed++);
      const type = (request.json as { type?: string } | null)?.type ?? 'text/event-stream';
      response.writeHead(200, { 'content-type': type });
      const piece = Buffer.alloc(65_536, 'x');
      const isGood = (request.json as { good?: boolean } | null)?.good === true;
      if (isGood) {
        piece.write('data: ', 0);
        piece.write('\n\n', piece.length - 2);
      }
      response.write('data: begin\n\n');
      for (let i = 0; i < (isGood ? 200 : 800) && !response.destroyed; i++) {
        sent += piece.length;
        if (!response.write(piece)) await Promise.race([new Promise((done) => response.once('drain', done)), sleep(2_000)]);
      }
      response.end();
      return undefined;
    });
    // A process of its own, so that its memory is nobody else's.
    const folder = mkdtempSync(join(tmpdir(), 'reach-c020-'));
    const settings = `sidecar: {name: one, listen: "127.0.0.1:0", callers: [{agent: support.planner.1, token: ${TOKEN}}]}\n${table(agent.url, null)}`;
    writeFileSync(join(folder, 's.yaml'), settings);
    const child = spawn(process.execPath, [...nodeArgs('sidecar/main.ts'), 'run', join(folder, 's.yaml')], {
      cwd: REPO,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let output = '';
    child.stdout.on('data', (text: Buffer) => (output += text.toString()));
    t.teardown(() => {
      child.kill();
      rmSync(folder, { recursive: true, force: true });
      return agent.close();
    });
    await waitUntil('it listens', () => /listens on (http:\S+)/.test(output), 20_000);
    const rig = { url: /listens on (http:[^\s,]+)/.exec(output)?.[1] ?? '' } as Rig;
    // What any first streams cost is not what is asked here.
    for (let i = 0; i < 4; i++) t.equal((await new StreamClient(rig, TALK, 'events', { good: true }).over()).ending, 'end');
    t.equal((await new StreamClient(rig, TALK, 'events').over()).ending, 'error');

    for (const type of ['text/event-stream', 'application/x-ndjson']) {
      sent = 0;
      const closedBefore = closed;
      await sleep(200);
      const start = rssMb(child.pid as number);
      let most = start;
      const watch = setInterval(() => (most = Math.max(most, rssMb(child.pid as number))), 5);
      const outcome = await new StreamClient(rig, TALK, 'events', { type }).over();
      await waitUntil('the provider is cut off', () => closed > closedBefore, 2_000);
      clearInterval(watch);
      t.match(
        outcome,
        { ending: 'error', result: { code: 1005, error: { name: 'response_too_large', detail: /above the limit of 1048576 bytes/ } } },
        type,
      );
      t.match(outcome.data, /begin/, 'what was whole before it has come');
      t.ok(sent < 20_000_000, `the provider got rid of ${sent} bytes of its 52 MB`);
      if (start > 0) t.ok(most - start < 4.2, `memory grew by ${(most - start).toFixed(1)} MB (4 MiB are allowed)`);
    }
    // As it comes there are no events, and no limit on them.
    const plain = await new StreamClient(rig, TALK, 'frames').over();
    t.match([plain.ending, plain.data.length], ['end', 13 + 800 * 65_536], 'binary frames carry all of it');
    child.kill();
    await new Promise((done) => child.once('exit', done));
  });

  await t.test('an answer that comes whole, with a line or an event above the limit', async (t) => {
    const HELPER = 'sales.helper.2';
    const rig = await Rig.start(t, {
      table: `contracts: [{name: ${TALK}, version: 1.0.0, acl: public, streaming: true, limits: {event: 1KiB}}]
providers: [{agent_id: ${HELPER}, offers: [${TALK}@1.0.0], endpoint: {type: channel}}]`,
    });
    const long = 'x'.repeat(2_000);
    const texts: Readonly<Record<string, string>> = {
      'application/x-ndjson': `{"n":1}\n{"n":"${long}"}\n{"n":3}\n`,
      'text/event-stream': `data: {"n":1}\n\ndata: ${long}\n\ndata: {"n":3}\n\n`,
    };
    let asked = 0;
    const peer = await ChannelPeer.dial(rig.url, 'token-of-the-helper', true, {
      asked: ({ id, params }, _payload, peer) => {
        asked++;
        const { type } = params.payload as { type: string };
        const payload_base64 = Buffer.from(texts[type] ?? '').toString('base64');
        peer.send(JSON.stringify({ jsonrpc: '2.0', id, result: { payload_base64, content_type: type } }));
      },
    });
    for (const type of Object.keys(texts)) {
      const outcome = await new StreamClient(rig, TALK, 'events', { type }).over();
      t.match(
        outcome,
        {
          ending: 'error',
          data: '{"n":1}',
          result: { code: 1005, error: { name: 'response_too_large', detail: /above the limit of 1024 bytes/ } },
        },
        `${type}: what is whole comes, and the end says that it is cut`,
      );
      t.match(outcome.result, { attempts: [{ provider: HELPER, code: 1005, started: 'done' }] }, 'the record says the same');
      t.equal((await new StreamClient(rig, TALK, 'frames', { type }).over()).data, texts[type], 'binary frames carry all of it');
    }
    const keyed = {
      method: 'POST',
      payload: { type: 'application/x-ndjson' },
      headers: { accept: 'text/event-stream', 'idempotency-key': 'one' },
    };
    asked = 0;
    t.match((await rig.ask(`/v1/stream/${TALK}`, keyed)).bytes.toString(), /^event: error$/m);
    t.match(
      (await rig.ask(`/v1/stream/${TALK}`, keyed)).json,
      { error: { code: 7003 } },
      'its work was done: with a key it is not begun again',
    );
    t.equal(asked, 1);
    t.strictSame(
      accessLines(rig).map((line) => line['code']),
      [1005, 0, 1005, 0, 1005, 7003],
    );
    t.match((await rig.ask('/metrics')).bytes.toString(), /reach_calls_total\{[^}]*code="1005"[^}]*\} 3/);
    await peer.close();
    await rig.finish(t, before);
  });
});

/** Resident memory of a process; 0 where the system does not tell. */
function rssMb(pid: number): number {
  try {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) / 1_000;
  } catch {
    return 0;
  }
}

/** How a provider's body ends, and what a caller may make of it. */
interface Ending {
  readonly name: string;
  readonly capability: string;
  readonly type: string;
  /** Head, then what comes before the silence, then what comes after it, before FIN. */
  readonly head: string;
  readonly first: string;
  readonly last: string;
  readonly isWhole: boolean;
}

const SSE = 'text/event-stream';
const LINES = 'application/x-ndjson';
const WORKING = 'event: status\ndata: {"state":"working"}\n\n';
const WORKING_LINE = '{"type":"status","state":"working"}\n';
const framed = (text: string): string => chunk(text).toString();

const ENDINGS: readonly Ending[] = [
  { name: 'events, ended by the connection', capability: TALK, type: SSE, head: CLOSE_HEAD(SSE), first: WORKING, last: '', isWhole: false },
  {
    name: 'events over HTTP/1.0',
    capability: TALK,
    type: SSE,
    head: `HTTP/1.0 200 OK\r\ncontent-type: ${SSE}\r\n\r\n`,
    first: WORKING,
    last: '',
    isWhole: false,
  },
  {
    name: 'lines, ended by the connection',
    capability: TALK,
    type: LINES,
    head: CLOSE_HEAD(LINES),
    first: WORKING_LINE,
    last: '',
    isWhole: false,
  },
  { name: 'chunks without the last one', capability: TALK, type: SSE, head: HEAD(SSE), first: framed(WORKING), last: '', isWhole: false },
  {
    name: 'a length that is not reached',
    capability: TALK,
    type: SSE,
    head: rawAnswer(200, { 'content-type': SSE, 'content-length': 1_000 }),
    first: WORKING,
    last: '',
    isWhole: false,
  },
  {
    name: 'a declared end that does not come, though the chunks end well',
    capability: `${TALK}_until`,
    type: SSE,
    head: HEAD(SSE),
    first: framed(WORKING),
    last: LAST,
    isWhole: false,
  },
  {
    name: 'a declared end that does not come, ended by the connection',
    capability: `${TALK}_until`,
    type: SSE,
    head: CLOSE_HEAD(SSE),
    first: WORKING,
    last: 'data: [DONE]\n\n',
    isWhole: false,
  },
  {
    name: 'a declared end of lines that does not come',
    capability: `${TALK}_until`,
    type: LINES,
    head: HEAD(LINES),
    first: framed(WORKING_LINE),
    last: LAST,
    isWhole: false,
  },
  {
    name: 'the declared end, ended by the connection',
    capability: `${TALK}_until`,
    type: SSE,
    head: CLOSE_HEAD(SSE),
    first: WORKING,
    last: 'event: finished\ndata: {}\n\n',
    isWhole: true,
  },
  {
    name: 'the declared end of lines',
    capability: `${TALK}_until`,
    type: LINES,
    head: CLOSE_HEAD(LINES),
    first: WORKING_LINE,
    last: '{"type":"finished"}\n',
    isWhole: true,
  },
  {
    name: 'the usual last event, not declared, ended by the connection',
    capability: TALK,
    type: SSE,
    head: CLOSE_HEAD(SSE),
    first: WORKING,
    last: 'data: [DONE]\n\n',
    isWhole: true,
  },
  { name: 'the last chunk', capability: TALK, type: SSE, head: HEAD(SSE), first: framed(WORKING), last: LAST, isWhole: true },
];

t.test('C022 a clean FIN is not taken for the end of a stream that has not said its last word', async (t) => {
  const stub = await TcpStub.listen(async (connection: StubConnection, request) => {
    const ending = ENDINGS[(JSON.parse(request.body.toString()) as { at: number }).at] as Ending;
    await connection.write(ending.head + ending.first);
    await sleep(2_000);
    if (ending.last !== '') await connection.write(ending.last);
    connection.fin();
  });
  t.teardown(() => stub.close());
  let asked = 0;
  for (const mesh of [false, true]) {
    const all = await rigs(t, stub.url, mesh);
    const [one] = all as [Rig];
    const runs = ENDINGS.flatMap((ending, at) =>
      FORMS.map((form) => ({ ending, form, client: new StreamClient(one, ending.capability, form, { at }, { 'last-event-id': '7' }) })),
    );
    asked += runs.length;
    for (const { ending, form, client } of runs) {
      const outcome = await client.over();
      const name = `${ending.name}, as ${form}${mesh ? ', over another sidecar' : ''}`;
      t.ok(client.overMs >= 1_900, 'what came before was not lost to the silence');
      t.match(outcome.data, /"state":"working"/, `${name}: what came is there`);
      if (ending.isWhole) {
        t.equal(outcome.ending, 'end', name);
        continue;
      }
      // Events of a provider are told as events whatever was asked for.
      const isTold = form !== 'plain' || ending.type === SSE;
      const seen = form === 'plain' && isTold ? { ...outcome, ending: eventsIn(client.text).at(-1)?.type } : outcome;
      t.equal(seen.ending, isTold ? 'error' : 'cut', name);
      const result = form === 'plain' && isTold ? JSON.parse(eventsIn(client.text).at(-1)?.data ?? 'null') : outcome.result;
      if (isTold)
        t.match(
          result,
          { code: 1006, error: { name: 'stream_interrupted', ambiguous: true }, attempts: [{ code: 1006, started: 'started' }] },
          name,
        );
      if (isTold) t.equal(result.attempts.length, 1, 'once a byte was passed on nobody else is asked');
    }
    for (const rig of all) await waitUntil('rest', () => rig.quiet.inFlight() === 0);
    for (const rig of all) {
      const codes = accessLines(rig).map((line) => line['code']);
      t.equal(
        codes.filter((code) => code === 1006).length,
        ENDINGS.filter((each) => !each.isWhole).length * FORMS.length,
        'the records say so',
      );
      t.equal(codes.filter((code) => code === 0).length, ENDINGS.filter((each) => each.isWhole).length * FORMS.length);
    }
    if (mesh) await quiet(t, all, stub, asked);
    else for (const rig of all) await rig.stop();
  }
});

t.test('C022 the own stream never idles for longer than 15 s', async (t) => {
  const clock = new VirtualClock();
  const stub = await TcpStub.listen((connection) => connection.write(HEAD(SSE) + framed(WORKING)));
  t.teardown(() => stub.close());
  const rig = await Rig.start(t, {
    table: `contracts: [{name: ${TALK}, version: 1.0.0, acl: public, deadline: 200s, streaming: {idle: 100s}}]
providers: [{agent_id: nlp.writer.1, offers: [${TALK}@1.0.0], endpoint: {type: http, address: "${stub.url}"}}]`,
    clock,
  });
  for (const form of ['events', 'frames'] as const) {
    const client = new StreamClient(rig, TALK, form);
    await waitUntil('the first event is here', () => client.chunks.length > 0);
    for (let i = 1; i <= 5; i++) {
      const bytes = client.bytes.length;
      await clock.advance(15_000);
      await waitUntil('a sign of life', () => client.bytes.length > bytes, 1_000);
    }
    t.equal(client.isOver, false);
    await clock.advance(26_000);
    t.match(await client.over(), { ending: 'error', result: { code: 1006, error: { detail: /nothing came for 100000 ms/ } } });
  }
  const stopping = rig.stop();
  let isStopped = false;
  void stopping.then(() => (isStopped = true));
  while (!isStopped) {
    await clock.advance(50);
    await sleep(5);
  }
  await quiet(t, [rig], stub, 2);
});
