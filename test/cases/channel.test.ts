/** Faults of WebSocket channels: peers that are silently gone, bytes that are no frames, readers that do not read, ids that collide. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import { VirtualClock } from '../../base/virtual-clock.ts';
import type { AllChannels } from '../../sidecar/accept/channel/all-channels.ts';
import { TestAgent } from '../support/agent.ts';
import { ChannelPeer, type ChannelMessage } from '../support/channel-peer.ts';
import { collected } from '../support/heap.ts';
import { type Base, takeBase } from '../support/invariants.ts';
import { CALLER, Rig, TOKEN } from '../support/rig.ts';
import { settle, waitUntil } from '../support/settle.ts';
import { clientFrame, type FrameParts, RawChannel, serverFrames } from '../support/websocket-bytes.ts';

t.setTimeout(110_000);
const before: Base = takeBase();
const HELPER = 'sales.helper.2';
const HELPER_TOKEN = 'token-of-the-helper';
const QUERY = 'crm.order.query';
const MORE = Array.from({ length: 20 }, (_, i) => `sales.reader.${i}`);

interface Providing {
  readonly execution?: string;
  readonly others?: string;
  readonly contracts?: string;
}

function table({ execution = 'idempotent', others = '', contracts = '' }: Providing = {}): string {
  return `contracts:
  - {name: ${QUERY}, version: 2.1.0, acl: public, execution: ${execution}, timeout: 60s, deadline: 120s, streaming: true, breaker: {enabled: false}, limits: {per_caller: 5000, per_provider: 5000}}
${contracts}
providers:
  - {agent_id: ${HELPER}, offers: [${QUERY}@2.1.0], endpoint: {type: channel}, via: one}
${others}`;
}

const channelsOf = (rig: Rig): AllChannels => rig.started.front.channels as AllChannels;
const lines = (rig: Rig, words: string): Record<string, unknown>[] => rig.logged.filter((line) => String(line['msg']).includes(words));

/** Heap and the buffers outside it, after collection. The resident size is no measure here: provider, agents and sidecar share this process. */
function inUse(): number {
  const heap = collected();
  return heap + process.memoryUsage().external;
}

/** Between an agent and its sidecar: forwards until it is told to swallow everything, both ways, with both sockets left open. */
class BlackHole {
  readonly #server: Server;
  readonly #pairs: Socket[] = [];
  isSwallowing = false;
  /** Sides that the sidecar has ended or reset. */
  droppedBySidecar = 0;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async to(port: number): Promise<BlackHole> {
    const server = createServer();
    const hole = new BlackHole(server);
    server.on('connection', (near: Socket) => {
      const far = connect(port, '127.0.0.1');
      hole.#pairs.push(near, far);
      near.on('data', (data) => void (hole.isSwallowing || far.write(data)));
      far.on('data', (data) => void (hole.isSwallowing || near.write(data)));
      for (const side of [near, far]) side.on('error', () => undefined);
      far.on('close', () => hole.droppedBySidecar++);
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    return hole;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    for (const socket of this.#pairs) socket.destroy();
    await new Promise<void>((done) => this.#server.close(() => done()));
  }
}

/** Answers every call with the payload and a word of its own. */
const answering =
  (word: string, seen: unknown[] = []) =>
  (message: ChannelMessage, payload: Buffer, peer: ChannelPeer): void => {
    if (message.method !== 'reach.invoke') return;
    seen.push(message.params);
    peer.send(`{"jsonrpc":"2.0","id":${message.id},"result":{"payload":{"by":"${word}","got":${payload.toString('utf8') || 'null'}}}}`);
  };

t.test('C095 a peer that is silently gone: the newer connection takes over at once, and without one it is offline at 135 s', async (t) => {
  await t.test('taken over: the old socket is cut, not asked, and its late end changes nothing', async (t) => {
    const other = await TestAgent.listen('other');
    t.teardown(() => other.close());
    const clock = new VirtualClock();
    const rig = await Rig.start(t, {
      clock,
      table: table({
        others: `  - {agent_id: sales.other.3, offers: [${QUERY}@2.1.0], tier: backup, endpoint: {type: http, address: "${other.url}"}}`,
      }),
    });
    const hole = await BlackHole.to(rig.port);
    const oldSeen: ChannelMessage[] = [];
    const old = await ChannelPeer.dial(hole.url, HELPER_TOKEN, true, { asked: (message) => void oldSeen.push(message) });
    const mayRepeat = rig.invoke(QUERY, { payload: { n: 1 } });
    const mayNot = rig.invoke(QUERY, { payload: { n: 2 }, headers: { 'reach-pin': HELPER } });
    await waitUntil('both calls are at the old connection', () => oldSeen.length === 2);
    hole.isSwallowing = true;
    await clock.advance(20_000);
    t.equal(channelsOf(rig).size, 1, 'twenty seconds of silence are nothing');
    const fresh = await ChannelPeer.dial(rig.url, HELPER_TOKEN, false, { asked: answering('fresh') });
    const resumed = await fresh.ask('reach.hello', '{"wire":1,"resume_from":41}').answer;
    t.equal(resumed.result.resume.from, null, 'what cannot be resumed is said, not pretended');
    // The sidecar's clock stands still meanwhile: had it waited for a closing handshake, it would wait for ever.
    await waitUntil('the old socket is gone: it was terminated', () => hole.droppedBySidecar === 1);
    await clock.advance(500);
    const moved = await mayRepeat;
    t.equal(moved.status, 200, 'what may be repeated has moved');
    t.equal(moved.json.attempts.length, 2, 'once');
    t.match(moved.json.attempts[0], { provider: HELPER, code: 1002, started: 'started' });
    t.equal(moved.json.provider, 'sales.other.3');
    const lost = await mayNot;
    t.equal(lost.json.code, 1002);
    t.equal(lost.json.ambiguous, true, 'the agent may have acted');
    t.match(lost.json.detail, /taken over/);
    await settle(10);
    t.equal(
      (await rig.invoke(QUERY, { payload: { n: 3 } })).json.data?.by,
      'fresh',
      'the late end of the old one has not put the agent offline',
    );
    t.match((await rig.ask(`/v1/explain/${QUERY}`)).json.would_serve, { provider: HELPER });
    t.equal(channelsOf(rig).size, 1);
    t.equal(lines(rig, 'a channel was closed').filter((line) => line['code'] === 4001).length, 1, 'one line says why');
    old.terminate();
    await fresh.close();
    await hole.close();
    await other.close();
    await rig.finish(t, before, [{ name: 'other', count: other.executions, expected: 1 }]);
  });

  await t.test('not taken over: pinged each 45 s, offline at 135 s, and every handle is given back', async (t) => {
    const clock = new VirtualClock();
    const rig = await Rig.start(t, { clock, table: table() });
    const hole = await BlackHole.to(rig.port);
    const seen: unknown[] = [];
    const peer = await ChannelPeer.dial(hole.url, HELPER_TOKEN, true, { asked: answering('old', seen) });
    // Real sockets carry the pings: they get their time between the steps of the clock that is not real.
    for (let i = 0; i < 15; i++) {
      await clock.advance(20_000);
      await new Promise((done) => setTimeout(done, 20));
    }
    t.equal((await rig.invoke(QUERY, { payload: 1 })).status, 200, 'an idle agent that answers pings stays for ever');
    await clock.advance(2_000);
    hole.isSwallowing = true;
    const pending = rig.invoke(QUERY, { payload: 2 });
    await waitUntil('the call is under way', () => rig.quiet.inFlight() > 0);
    await clock.advance(59_000);
    await clock.advance(2_000);
    t.equal((await pending).json.code, 1003, 'a call in flight fails by its own time before that');
    await clock.advance(68_000);
    t.equal(channelsOf(rig).size, 1, 'at 129 s it is still there');
    t.match((await rig.ask(`/v1/explain/${QUERY}`)).json.would_serve, { provider: HELPER });
    await clock.advance(11_000);
    t.equal(channelsOf(rig).size, 0, 'at 140 s it is not');
    await waitUntil('the socket is gone', () => hole.droppedBySidecar === 1, 1_000);
    const refused = await rig.invoke(QUERY, { payload: 3 });
    t.equal(refused.json.code, 2003);
    const explained = (await rig.ask(`/v1/explain/${QUERY}`)).json;
    t.equal(explained.would_serve, null);
    t.match(JSON.stringify(explained), /not dialled in/);
    t.equal(seen.length, 1);
    peer.terminate();
    const back = await ChannelPeer.dial(rig.url, HELPER_TOKEN, true, { asked: answering('back') });
    t.equal((await rig.invoke(QUERY, { payload: 4 })).json.data?.by, 'back', 'back as soon as it has dialled in again');
    await back.close();
    await waitUntil('a closed channel takes effect at once', () => channelsOf(rig).size === 0, 1_000);
    t.equal((await rig.invoke(QUERY, { payload: 5 })).json.code, 2003);
    await hole.close();
    await rig.finish(t, before);
  });

  await t.test('neighbours: a reset, a close without a word, and a process that stood still', async (t) => {
    const clock = new VirtualClock();
    const rig = await Rig.start(t, { clock, table: table() });
    for (const end of ['reset', 'fin', 'half'] as const) {
      const raw = await RawChannel.dial(rig.port, HELPER_TOKEN);
      raw.text({ jsonrpc: '2.0', id: 1, method: 'reach.hello', params: { wire: 1 } });
      await waitUntil('hello is answered', () => raw.messages.length === 1);
      const pending = rig.invoke(QUERY, { payload: end, headers: { 'reach-pin': HELPER } });
      await waitUntil('asked', () => raw.messages.length === 2);
      if (end === 'reset') raw.client.socket.resetAndDestroy();
      else if (end === 'fin') raw.client.socket.destroy();
      else raw.client.socket.end();
      t.equal((await pending).json.code, 1002, end);
      t.equal((await rig.invoke(QUERY, {})).json.code, 2003, 'offline at once');
      t.ok(await raw.client.closed(), 'and no socket stays half open');
    }
    const peer = await ChannelPeer.dial(rig.url, HELPER_TOKEN, true, { asked: answering('here') });
    await clock.advance(10_000);
    // The look that was due in a second comes ten minutes late, as after a halt or a sleep.
    await jump(clock, 600_000);
    t.equal(channelsOf(rig).size, 1, 'it is not blamed for our own absence');
    t.equal((await rig.invoke(QUERY, {})).status, 200);
    await peer.close();
    await rig.finish(t, before);
  });
});

/** Time passes, and no timer was served meanwhile. */
async function jump(clock: VirtualClock, ms: number): Promise<void> {
  const real = clock.now.bind(clock);
  let extra = 0;
  clock.now = () => real() + extra;
  extra = ms;
  await clock.advance(1_000);
}

t.test('C096 bytes that are no frames close one connection, with the right code and one line, and touch nobody else', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const peer = await ChannelPeer.dial(rig.url, HELPER_TOKEN, true, { asked: answering('steady') });
  const secret = 'payload-that-must-not-be-logged';
  const rows: [string, FrameParts | Buffer, number][] = [
    ['an unmasked frame', { op: 1, payload: Buffer.from(secret), mask: null }, 1002],
    ['RSV1', { op: 1, rsv: 4, payload: Buffer.from(secret) }, 1002],
    ['opcode 0x3', { op: 3, payload: Buffer.from(secret) }, 1002],
    ['a ping of 200 bytes', { op: 9, payload: Buffer.alloc(200, secret) }, 1002],
    ['a text with bad UTF-8', { op: 1, payload: Buffer.concat([Buffer.from(secret), Buffer.from([0xff, 0xfe])]) }, 1007],
    ['a frame of 2^63 bytes', { op: 2, length: 1n << 63n }, 1009],
    ['a frame above the limit', { op: 1, length: BigInt(8_388_608 + 65_537) }, 1009],
    ['bytes of another protocol', Buffer.from(`GET / HTTP/1.1\r\n${secret}\r\n\r\n`), 1002],
    ['a continuation of nothing', { op: 0, payload: Buffer.from(secret) }, 1002],
    ['a binary frame that is none of ours', { op: 2, payload: Buffer.from(secret) }, 1002],
  ];
  for (const when of ['after the handshake', 'together with it'] as const) {
    for (const [what, parts, code] of rows) {
      const bytes = Buffer.isBuffer(parts) ? parts : clientFrame(parts);
      const logged = lines(rig, 'a channel was closed').length;
      const raw = await RawChannel.dial(rig.port, TOKEN, when === 'together with it' ? bytes : undefined);
      if (when === 'after the handshake') raw.client.write(bytes);
      t.ok(await raw.client.closed(), `${what}, ${when}: closed`);
      t.equal(raw.closeCode, code, `${what}, ${when}: ${code}`);
      const said = lines(rig, 'a channel was closed').slice(logged);
      t.equal(said.length, 1, 'one line');
      t.match(said[0], { agent: CALLER, code }, 'with the agent');
    }
  }
  t.notMatch(JSON.stringify(rig.logged), new RegExp(secret), 'nothing of what was sent is logged');
  t.equal(peer.isOpen, true, 'the other connection has seen nothing of it');
  t.equal((await rig.invoke(QUERY, { payload: 1 })).json.data?.by, 'steady');

  await t.test('neighbours: what is a frame and no message is answered, and the connection stays', async (t) => {
    const raw = await RawChannel.dial(rig.port, TOKEN);
    const wrong: [string, number][] = [
      ['{"jsonrpc":', -32700],
      ['', -32700],
      ['[]', -32600],
      ['[{"jsonrpc":"2.0","id":1,"method":"reach.heartbeat"}]', -32600],
      ['{"jsonrpc":"1.0","id":1,"method":"reach.heartbeat"}', -32600],
      ['{"jsonrpc":"2.0","id":{},"method":"reach.heartbeat"}', -32600],
      ['{"jsonrpc":"2.0","id":1,"method":"reach.nothing"}', -32601],
      ['{"jsonrpc":"2.0","id":1,"method":"__proto__"}', -32601],
      ['{"jsonrpc":"2.0","id":1,"method":"reach.hello","params":{"wire":2}}', -32602],
      ['{"jsonrpc":"2.0","id":1,"method":"reach.invoke","params":{}}', -32602],
      ['{"jsonrpc":"2.0","id":1,"method":"reach.cast","params":{}}', -32602],
      ['{"jsonrpc":"2.0","id":1,"method":"reach.cast","params":{"capability":"a.b.c"}}', -32006],
      [
        `{"jsonrpc":"2.0","id":1,"method":"reach.explain","params":{"capability":"${QUERY}","payload":${'['.repeat(300)}${']'.repeat(300)}}}`,
        -32602,
      ],
    ];
    for (const [i, [text, code]] of wrong.entries()) {
      raw.text(text);
      await waitUntil(`an answer to ${text.slice(0, 60)}`, () => raw.messages.length === i + 1, 2_000);
      t.equal((raw.messages[i] as { error?: { code: number } }).error?.code, code, text.slice(0, 60));
    }
    for (const ignored of [
      '{"jsonrpc":"2.0","id":99,"result":{}}',
      '{"jsonrpc":"2.0","method":"reach.nothing"}',
      '{"jsonrpc":"2.0","method":"reach.head","params":{"id":99}}',
      '{"jsonrpc":"2.0","method":"reach.cancel","params":{"id":99}}',
    ])
      raw.text(ignored);
    raw.text('{"jsonrpc":"2.0","id":"last","method":"reach.heartbeat"}');
    await waitUntil('the heartbeat is answered', () => raw.messages.some((message) => message['id'] === 'last'));
    t.equal(raw.messages.length, wrong.length + 1, 'what nobody waits for gets no answer');
    raw.client.socket.destroy();
  });
  await peer.close();
  await rig.finish(t, before);
});

t.test(
  'C097 agents that do not read: what they are sent pauses at the limit, they are cut with a reason, and their memory comes back',
  async (t) => {
    const SEND_BUFFER = 1_048_576;
    const GIGABYTE = 1_073_741_824;
    let sent = 0;
    const provider = await TestAgent.listen('generator', (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': GIGABYTE });
      const chunk = Buffer.alloc(65_536, 'g');
      const more = (): void => {
        while (!response.destroyed && response.write(chunk)) sent += chunk.length;
      };
      response.on('drain', more);
      more();
      return undefined;
    });
    t.teardown(() => provider.close());
    // The stall limit is 10 s as shipped; 2 s here, so that the case takes seconds.
    const rig = await Rig.start(t, {
      table: table({
        contracts:
          '  - {name: nlp.answer.generate, version: 1.0.0, acl: public, execution: idempotent, deadline: 100s, streaming: {first_chunk: 50s, idle: 50s}}',
        others: `  - {agent_id: nlp.writer.1, offers: [nlp.answer.generate@1.0.0], endpoint: {type: http, address: "${provider.url}"}}`,
      }),
      settings: `  channel: {stall: 2s, heartbeat: 1s, offline_after: 60s}`,
      callers: Object.fromEntries(MORE.map((agent) => [agent, `token-of-${agent}`])),
    });
    const steady = await ChannelPeer.dial(rig.url, HELPER_TOKEN, true, { asked: answering('steady') });
    const memoryBefore = inUse();
    const readers: RawChannel[] = [];
    for (const agent of MORE) {
      const raw = await RawChannel.dial(rig.port, `token-of-${agent}`);
      raw.client.socket.pause();
      raw.text({ jsonrpc: '2.0', id: 1, method: 'reach.stream', params: { capability: 'nlp.answer.generate', payload: {} } });
      readers.push(raw);
    }
    const began = performance.now();
    let most = 0;
    await waitUntil(
      'everybody has been cut',
      () => {
        most = Math.max(most, channelsOf(rig).waitingBytes);
        return channelsOf(rig).size === 1;
      },
      15_000,
    );
    const took = performance.now() - began;
    t.ok(most <= MORE.length * (SEND_BUFFER + 131_072), `at most 1 MiB (and the chunk that was under way) waited for each: ${most} for 20`);
    t.ok(most >= (MORE.length * SEND_BUFFER) / 2, 'and it was used');
    t.ok(sent < MORE.length * 16 * SEND_BUFFER, `the provider was paused: ${sent} bytes of 20 GB`);
    t.ok(took >= 1_900 && took < 8_000, `cut after the stall limit: ${Math.round(took)} ms`);
    const reasons = lines(rig, 'a channel was closed');
    t.equal(reasons.length, MORE.length);
    t.ok(
      reasons.every((line) => line['code'] === 4003 && /does not read/.test(String(line['why']))),
      'each with the reason',
    );
    t.equal((await rig.invoke(QUERY, { payload: 1 })).json.data?.by, 'steady', 'an agent that reads is not touched');
    for (const raw of readers) raw.client.socket.destroy();
    await waitUntil('the provider is let go', () => provider.openConnections === 0, 5_000);
    await waitUntil('memory is back within 20 MB', () => inUse() - memoryBefore < 20 * 1_048_576, 30_000, 200);
    t.equal(channelsOf(rig).waitingBytes, 0);

    await t.test(
      'neighbours: a slow reader is throttled, not cut; calls to a stuck agent are refused as busy; signs of life overtake',
      async (t) => {
        const slow = await RawChannel.dial(rig.port, `token-of-${MORE[0]}`);
        slow.text({ jsonrpc: '2.0', id: 1, method: 'reach.stream', params: { capability: 'nlp.answer.generate', payload: {} } });
        await slow.client.until((text) => text.length > 3_000_000, 5_000);
        // Reads a little, ten times a second, for longer than the stall limit.
        for (let i = 0; i < 30; i++) {
          slow.client.socket.pause();
          await new Promise((done) => setTimeout(done, 90));
          slow.client.received = Buffer.alloc(0);
          slow.client.socket.resume();
          await new Promise((done) => setTimeout(done, 10));
        }
        t.equal(slow.client.isClosed, false, 'slow is not stuck');
        slow.client.socket.destroy();
        await steady.close();
        const stuck = await RawChannel.dial(rig.port, HELPER_TOKEN);
        stuck.text({ jsonrpc: '2.0', id: 1, method: 'reach.hello', params: { wire: 1 } });
        await waitUntil('hello is answered', () => stuck.messages.length === 1);
        stuck.client.socket.pause();
        const body = JSON.stringify({ x: 'y'.repeat(900_000) });
        const calls = Array.from({ length: 16 }, () => rig.invoke(QUERY, { body, headers: { 'reach-pin': HELPER } }));
        const codes = (await Promise.all(calls)).map(({ json }) => json.code as number);
        t.ok(codes.includes(3003), `some were refused as busy, not buffered: ${codes.join(' ')}`);
        t.ok(codes.includes(1002), 'and those that it had been sent were lost with it');
        t.ok(
          codes.every((code) => code === 3003 || code === 1002 || code === 2003),
          codes.join(' '),
        );
        stuck.client.socket.destroy();
      },
    );
    await provider.close();
    await rig.finish(t, before);
  },
);

t.test('C108 on a channel: equal ids of two agents do not meet, and one that is under way cannot come twice', async (t) => {
  const rig = await Rig.start(t, {
    table: table(),
    callers: Object.fromEntries(MORE.map((agent) => [agent, `token-of-${agent}`])),
    settings: '  channel: {in_flight: 2000}',
  });
  let held: { peer: ChannelPeer; id: number; payload: Buffer }[] = [];
  const upstream: number[] = [];
  const provider = await ChannelPeer.dial(rig.url, HELPER_TOKEN, true, {
    asked: (message, payload, peer) => {
      if (message.method !== 'reach.invoke') return;
      upstream.push(message.id as number);
      held.push({ peer, id: message.id as number, payload: Buffer.from(payload) });
      if (held.length < 2) return;
      // The last asked is answered first.
      for (const one of held.reverse())
        one.peer.send(`{"jsonrpc":"2.0","id":${one.id},"result":{"payload":${one.payload.toString('utf8')}}}`);
      held = [];
    },
  });
  // Five pairs of agents at once, so that ten thousand rounds take seconds; all ten use the same id.
  const pairs: [Speaker, Speaker][] = [];
  for (let i = 0; i < 10; i += 2)
    pairs.push([await Speaker.dial(rig.port, `token-of-${MORE[i]}`), await Speaker.dial(rig.port, `token-of-${MORE[i + 1]}`)]);
  const agents = pairs.flat();
  const ROUNDS = 10_000;
  let mixedUp = 0;
  let refused = 0;
  const rounds = async ([a, b]: [Speaker, Speaker], pair: number): Promise<void> => {
    for (let round = 0; round < ROUNDS / pairs.length; round++) {
      const ask = (agent: string): string =>
        `{"jsonrpc":"2.0","id":1,"method":"reach.invoke","params":{"capability":"${QUERY}","payload":"${agent}${pair} ${round}"}}`;
      const twice = round % 100 === 0;
      const answers = Promise.all([a.take(twice ? 2 : 1), b.take(1)]);
      // In one piece: the first cannot have been answered when the second is read.
      if (twice) a.say(ask('a'), ask('again'));
      else a.say(ask('a'));
      b.say(ask('b'));
      const [ofA, ofB] = await answers;
      refused += ofA.filter((message) => message.error?.code === -32600 && message.id === 1).length;
      if (!ofA.some((message) => message.result?.data === `a${pair} ${round}` && message.id === 1)) mixedUp++;
      if (ofB[0]?.result?.data !== `b${pair} ${round}` || ofB[0].id !== 1) mixedUp++;
    }
  };
  await Promise.all(pairs.map(rounds));
  t.equal(mixedUp, 0, `${ROUNDS} rounds, each agent got its own answer with its own id`);
  t.equal(refused, ROUNDS / 100, 'the second of two with one id was refused, every time');
  t.equal(upstream.length, 2 * ROUNDS, 'and never sent on');
  t.equal(new Set(upstream).size, upstream.length, 'ids to the agent are ours: none came twice');

  await t.test('neighbours: a thousand ids at once, texts that spell the same, streams, and answers to what was never asked', async (t) => {
    const a = agents[0] as Speaker;
    const ids = Array.from({ length: 1_000 }, (_, i) => `k${i}`);
    const many = a.take(ids.length);
    a.say(
      ...ids.map((id) => `{"jsonrpc":"2.0","id":"${id}","method":"reach.invoke","params":{"capability":"${QUERY}","payload":"${id}"}}`),
    );
    const answers = await many;
    t.equal(answers.filter((message) => message.result?.data === message.id).length, 1_000, 'each with its own id');
    const two = a.take(2);
    a.say(`{"jsonrpc":"2.0","id":"\\u0061","method":"reach.invoke","params":{"capability":"${QUERY}","payload":"first"}}`);
    a.say(`{"jsonrpc":"2.0","id":"a","method":"reach.invoke","params":{"capability":"${QUERY}","payload":"second"}}`);
    await waitUntil('the second is refused', () => a.taken === 1);
    const three = agents[1]!.take(1);
    agents[1]!.say(`{"jsonrpc":"2.0","id":"a","method":"reach.invoke","params":{"capability":"${QUERY}","payload":"third"}}`);
    t.match(await two, [{ error: { code: -32600 } }, { result: { data: 'first' } }]);
    t.match(await three, [{ result: { data: 'third' } }]);
    // Answers to what was never asked, to what is answered, and in another's name: nothing comes of them.
    for (const id of [1, 999_999, '"1"', -1, 1.5]) provider.send(`{"jsonrpc":"2.0","id":${id},"result":{"payload":"forged"}}`);
    provider.sendData(1, Buffer.from('forged'));
    t.equal((await provider.ask('reach.heartbeat', '{}').answer).error, undefined, 'the connection goes on');
  });
  for (const agent of agents) agent.end();
  await provider.close();
  await rig.finish(t, before);
});

/** An agent that only calls, with ids of its own choosing. */
class Speaker {
  readonly #raw: RawChannel;
  #wanted = 0;
  readonly #messages: ChannelMessage[] = [];
  #done: ((messages: ChannelMessage[]) => void) | null = null;

  private constructor(raw: RawChannel) {
    this.#raw = raw;
    const { client } = raw;
    client.received = client.received.subarray(client.received.indexOf('\r\n\r\n') + 4);
    client.socket.on('data', () => this.#read());
  }

  static async dial(port: number, token: string): Promise<Speaker> {
    return new Speaker(await RawChannel.dial(port, token));
  }

  get taken(): number {
    return this.#messages.length;
  }

  say(...texts: string[]): void {
    this.#raw.client.write(Buffer.concat(texts.map((text) => clientFrame({ op: 1, payload: Buffer.from(text) }))));
  }

  /** The next so many messages. */
  take(count: number): Promise<ChannelMessage[]> {
    this.#wanted = count;
    this.#messages.length = 0;
    return new Promise((done) => (this.#done = done));
  }

  end(): void {
    this.#raw.client.socket.destroy();
  }

  #read(): void {
    const { client } = this.#raw;
    const { frames, rest } = serverFrames(client.received);
    client.received = rest;
    for (const { op, payload } of frames) if (op === 1) this.#messages.push(JSON.parse(payload.toString('utf8')) as ChannelMessage);
    if (this.#messages.length < this.#wanted || this.#done === null) return;
    const done = this.#done;
    this.#done = null;
    done([...this.#messages]);
  }
}
