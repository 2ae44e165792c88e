/** The channel over gRPC: what a WebSocket channel does, it does. A client as a program would write it, and a real sidecar. */
import { EventEmitter } from 'node:events';
import t, { type Test } from 'tap';
import { type Clock, realClock } from '../../../../base/clock.ts';
import { Frame, frameHead } from '../../../../proto/wire/frames.ts';
import { headLength, WrittenFrames } from '../../../../sidecar/accept/channel/written-frames.ts';
import { GrpcClient, type Talk } from '../../../support/grpc-client.ts';
import { takeBase } from '../../../support/invariants.ts';
import { Rig, TOKEN } from '../../../support/rig.ts';
import { waitUntil } from '../../../support/settle.ts';

t.setTimeout(60_000);
const before = takeBase();
const PATH = '/agentreach.v1.Reach/Channel';
const AGENT_TOKEN = 'token-of-the-agent';
const TABLE = `contracts:
  - {name: crm.order.query, version: 1.0.0, description: x, acl: public}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@1.0.0], endpoint: {type: channel}}
`;

// biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
type Any = any;

class Peer extends EventEmitter {
  readonly said: Any[] = [];
  readonly frames: { type: number; payload: Buffer }[] = [];
  readonly talk: Talk;
  #lastId = 0;

  constructor(client: GrpcClient, token: string | null) {
    super();
    this.talk = client.talk(PATH, { token }, (message) => {
      const { text, binary } = message as { text: string; binary: Buffer };
      if (binary.length > 0) this.frames.push({ type: binary[1] as number, payload: binary.subarray(6) });
      else this.#heard(JSON.parse(text));
    });
  }

  #heard(message: Any): void {
    this.said.push(message);
    this.emit(message.method === undefined ? `answer ${message.id}` : 'asked', message);
  }

  async ask(method: string, params: object): Promise<Any> {
    const id = ++this.#lastId;
    return await new Promise((done) => {
      this.once(`answer ${id}`, done);
      this.text({ jsonrpc: '2.0', id, method, params });
    });
  }

  text(message: object): void {
    this.talk.write({ text: JSON.stringify(message) });
  }
}

async function world(t: Test): Promise<{ rig: Rig; client: GrpcClient }> {
  const settings = '  grpc: {listen: "127.0.0.1:0"}\n  channel: {heartbeat: 200ms, offline_after: 600ms}\n';
  const rig = await Rig.start(t, { table: TABLE, settings, callers: { 'crm.order.1': AGENT_TOKEN } });
  const client = new GrpcClient(rig.started.grpcAddress as string);
  t.teardown(() => client.close());
  return { rig, client };
}

t.test('an agent without a port is called over it, and calls', async (t) => {
  const { rig, client } = await world(t);
  const agent = new Peer(client, AGENT_TOKEN);
  agent.on('asked', ({ id, params }: Any) => {
    if (params.stream === true) {
      agent.text({ jsonrpc: '2.0', method: 'reach.head', params: { id, content_type: 'text/plain' } });
      for (const piece of ['one ', 'two ']) agent.talk.write({ binary: Buffer.concat([frameHead(Frame.data, id), Buffer.from(piece)]) });
      agent.text({ jsonrpc: '2.0', id, result: {} });
    } else agent.text({ jsonrpc: '2.0', id, result: { payload: { got: params.payload } } });
  });
  t.match(await agent.ask('reach.hello', { wire: 1 }), {
    result: { agent: 'crm.order.1', offers: ['crm.order.query@1.0.0'], resume: null },
  });
  t.match((await rig.invoke('crm.order.query', { payload: { n: 1 } })).json, { code: 0, provider: 'crm.order.1', data: { got: { n: 1 } } });

  // Larger than one slice of a connection, in both directions.
  const text = 'ä'.repeat(300_000);
  t.equal((await rig.invoke('crm.order.query', { payload: { text } })).json.data.got.text, text);

  const caller = new Peer(client, TOKEN);
  t.match(await caller.ask('reach.invoke', { capability: 'crm.order.query', payload: 7 }), { result: { code: 0, data: { got: 7 } } });
  const streamed = await caller.ask('reach.stream', { capability: 'crm.order.query', payload: 1 });
  t.match(streamed, { result: { status: 200, content_type: 'text/plain' } });
  await waitUntil('the stream has ended', () => caller.frames.some(({ type }) => type === Frame.end), 3_000);
  const pieces = caller.frames.filter(({ type }) => type === Frame.data).map(({ payload }) => payload.toString());
  t.equal(pieces.join(''), 'one two ');
  t.match(await caller.ask('reach.resume', { from: 1 }), { error: { data: { code: 7001 } } }, 'there are no inboxes without a registry');

  // Silent for longer than an agent may be: HTTP/2 has signs of life of its own.
  await new Promise((done) => setTimeout(done, 1_000));
  t.match(await caller.ask('reach.heartbeat', {}), { result: {} });

  caller.talk.end();
  t.match(await caller.talk.outcome, { status: 0 }, 'a client that has said all is done');

  const second = new Peer(client, AGENT_TOKEN);
  t.match(await second.ask('reach.hello', { wire: 1 }), { result: { agent: 'crm.order.1' } });
  t.match(await agent.talk.outcome, { message: /taken over \(4001\)/ }, 'who is replaced is told');
  const call = rig.invoke('crm.order.query', { payload: 1 });
  await waitUntil('it is asked', () => second.said.some(({ method }) => method === 'reach.invoke'), 3_000);
  second.talk.cancel();
  t.match((await call).json, { code: 1002 }, 'a call to an agent that leaves fails');
  await waitUntil('its channel is gone', () => rig.started.front.channels?.size === 0, 3_000);
  await rig.finish(t, before);
});

t.test('frames that are written in slices are whole again, and a large one is joined once', async (t) => {
  const frameOf = (bytes: number): Buffer => {
    const head = bytes < 126 ? Buffer.from([0x82, bytes]) : Buffer.alloc(bytes < 65_536 ? 4 : 10);
    if (bytes >= 126) head[0] = 0x82;
    if (bytes >= 65_536) {
      head[1] = 127;
      head.writeBigUInt64BE(BigInt(bytes), 2);
    } else if (bytes >= 126) {
      head[1] = 126;
      head.writeUInt16BE(bytes, 2);
    }
    return Buffer.concat([head, Buffer.alloc(bytes, bytes % 251)]);
  };
  const all = [0, 1, 125, 126, 300, 65_535, 65_536, 70_000, 2].map(frameOf);
  const written = Buffer.concat(all);
  for (const slice of [1, 2, 3, 7, 127, 65_536, written.length]) {
    const frames = new WrittenFrames();
    const found: Buffer[] = [];
    for (let at = 0; at < written.length; at += slice) {
      frames.push(written.subarray(at, at + slice));
      for (let frame = frames.take(); frame !== null; frame = frames.take()) found.push(frame);
    }
    t.equal(found.length, all.length, `in slices of ${slice}`);
    t.ok(Buffer.concat(found).equals(written));
    for (const [i, frame] of found.entries())
      t.equal(frame.length - headLength(frame), (all[i] as Buffer).length - headLength(all[i] as Buffer));
  }
  const frames = new WrittenFrames();
  const large = frameOf(8_388_608);
  const concat = Buffer.concat;
  let copied = 0;
  Buffer.concat = (list: readonly Uint8Array[], length?: number) => {
    for (const one of list) copied += one.length;
    return concat(list, length);
  };
  t.teardown(() => void (Buffer.concat = concat));
  for (let at = 0; at < large.length; at += 16_384) {
    frames.push(large.subarray(at, at + 16_384));
    if (at + 16_384 < large.length && frames.take() !== null) t.fail('it is not whole yet');
  }
  t.equal(frames.take()?.length, large.length);
  t.ok(copied <= large.length + 16_384, `${copied} bytes were copied for ${large.length}`);
});

t.test('who may not, and what cannot be read', async (t) => {
  const { rig, client } = await world(t);
  t.match(await new Peer(client, 'wrong').talk.outcome, { status: 16, trailers: { 'reach-code': '4001' } });
  t.match(await new Peer(client, null).talk.outcome, { status: 16 });
  const peer = new Peer(client, TOKEN);
  peer.talk.write({ text: '{' });
  t.match(await peer.ask('reach.heartbeat', {}), { result: {} });
  t.match(peer.said[0], { error: { code: -32700 } }, 'what is no JSON is said, and the channel goes on');
  peer.talk.write({ binary: Buffer.from([9, 9, 9]) });
  t.match(await peer.talk.outcome, { status: 3 }, 'a frame that is none ends it');
  await waitUntil('nothing is open', () => rig.started.front.channels?.size === 0, 3_000);
  await rig.finish(t, before);
});

t.test('a client that does not read holds back what is sent to it', async (t) => {
  const { rig, client } = await world(t);
  const agent = new Peer(client, AGENT_TOKEN);
  agent.on('asked', ({ id }: Any) => agent.text({ jsonrpc: '2.0', id, result: { payload: 'x'.repeat(400_000) } }));
  await agent.ask('reach.hello', { wire: 1 });
  const caller = new Peer(new GrpcClient(rig.started.grpcAddress as string), TOKEN);
  await caller.ask('reach.heartbeat', {});
  caller.talk.pause();
  const asked = Array.from({ length: 30 }, () => caller.ask('reach.invoke', { capability: 'crm.order.query', payload: 1 }));
  await new Promise((done) => setTimeout(done, 700));
  t.ok((rig.started.front.channels?.waitingBytes ?? 0) < 6_000_000, `${rig.started.front.channels?.waitingBytes} bytes wait`);
  caller.talk.resume();
  const codes = (await Promise.all(asked)).map(({ result, error }) => result?.code ?? error.data.code);
  t.ok(codes.filter((code) => code === 0).length >= 2 && codes.every((code) => code === 0 || code === 3002), `${codes}`);
  caller.talk.cancel();
  agent.talk.cancel();
  await waitUntil('nothing is open', () => rig.started.front.channels?.size === 0, 3_000);
  await rig.finish(t, before);
});

t.test('a sidecar that stops says so, and lets what is under way end', async (t) => {
  const { rig, client } = await world(t);
  const agent = new Peer(client, AGENT_TOKEN);
  agent.on('asked', ({ id, method }: Any) => {
    if (method === 'reach.invoke') setTimeout(() => agent.text({ jsonrpc: '2.0', id, result: { payload: 'late' } }), 200);
  });
  await agent.ask('reach.hello', { wire: 1 });
  const call = rig.invoke('crm.order.query', { payload: 1 });
  await waitUntil('it is asked', () => agent.said.some(({ method }) => method === 'reach.invoke'), 3_000);
  const stopped = rig.started.stop(5_000);
  t.match((await call).json, { code: 0, data: 'late' });
  t.match(await agent.talk.outcome, { trailers: { 'reach-code': '2006' } });
  t.ok(agent.said.some(({ method }) => method === 'reach.goodbye'));
  await stopped;
});

t.test('a channel that is closed in good order is over at once, and nothing waits for it to be', async (t) => {
  const waiting = new Set<number>();
  const clock: Clock = Object.create(realClock) as Clock;
  let last = 0;
  clock.after = (ms, act) => {
    if (ms !== 2_000) return realClock.after(ms, act);
    const id = ++last;
    waiting.add(id);
    // Much later than it says: that it has been cancelled shall be seen, however slow the machine is.
    const timer = realClock.after(30_000, () => {
      waiting.delete(id);
      act();
    });
    return {
      cancel: () => {
        waiting.delete(id);
        timer.cancel();
      },
    };
  };
  const rig = await Rig.start(t, { table: TABLE, settings: '  grpc: {listen: "127.0.0.1:0"}', clock });
  const client = new GrpcClient(rig.started.grpcAddress as string);
  t.teardown(() => client.close());
  const peer = new Peer(client, TOKEN);
  await peer.ask('reach.hello', { wire: 1, serve: false });
  peer.talk.end();
  t.match(await peer.talk.outcome, { status: 0 });
  t.ok(last > 0, 'the client was given time to read the closing word');
  await waitUntil('it needs none', () => waiting.size === 0);
  await rig.finish(t, before);
});
