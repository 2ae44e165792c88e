/** sidecar/accept/channel over real sockets: dialling in, calls both ways, streams, windows, limits, and the end */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import t from 'tap';
import { endOfTurn } from '../../../../../base/turn.ts';
import { VirtualClock } from '../../../../../base/virtual-clock.ts';
import { WINDOW_BYTES } from '../../../../../proto/wire/channel.ts';
import { Frame } from '../../../../../proto/wire/frames.ts';
import type { AllChannels } from '../../../../../sidecar/accept/channel/all-channels.ts';
import { Asked as AskedCall, type AskedOn } from '../../../../../sidecar/accept/channel/asked.ts';
import { MAX_PER_AGENT, Tickets } from '../../../../../sidecar/accept/channel/tickets.ts';
import { Outbox } from '../../../../../sidecar/accept/channel/outbox.ts';
import { Principal } from '../../../../../sidecar/call/principal.ts';
import type { Reply } from '../../../../../sidecar/call/reply.ts';
import { TestAgent } from '../../../../support/agent.ts';
import { type ChannelMessage, ChannelPeer } from '../../../../support/channel-peer.ts';
import { takeBase } from '../../../../support/invariants.ts';
import { ENV, Plane } from '../../../../support/control-plane.ts';
import { NatsServer } from '../../../../support/nats.ts';
import { RawClient } from '../../../../support/raw-http.ts';
import { CALLER, Rig, TOKEN } from '../../../../support/rig.ts';
import { waitUntil } from '../../../../support/settle.ts';
import { clientFrame, handshake, RawChannel } from '../../../../support/websocket-bytes.ts';

t.setTimeout(60_000);
const before = takeBase();
const AGENT = 'sales.helper.2';
const AGENT_TOKEN = 'token-of-the-helper';
const QUERY = 'crm.order.query';

function table(extra = '', more = ''): string {
  return `contracts:
  - {name: ${QUERY}, version: 2.1.0, acl: public, execution: idempotent, streaming: true, deadline: 20s, breaker: {enabled: false}, limits: {per_caller: 1000, per_provider: 1000, response: 1MiB}${more}}
${extra === '' ? '' : `  - {name: nlp.answer.generate, version: 1.0.0, acl: public, execution: idempotent, streaming: true}\n`}providers:
  - {agent_id: ${AGENT}, offers: [${QUERY}@2.1.0], endpoint: {type: channel}, via: one}
${extra}`;
}

/** Ports of the peers whose connections this process holds open at the sidecar's port, as the system tells (Linux). */
function serverSockets(rig: Rig): number[] {
  const own = rig.port.toString(16).toUpperCase().padStart(4, '0');
  const inodes = new Set(readdirSync('/proc/self/fd').map((fd) => /socket:\[(\d+)\]/.exec(linkOf(`/proc/self/fd/${fd}`))?.[1]));
  return readFileSync('/proc/net/tcp', 'utf8')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter((fields) => fields[1]?.endsWith(`:${own}`) === true && inodes.has(fields[9]))
    .map((fields) => Number.parseInt(fields[2]?.slice(-4) ?? '0', 16));
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

const channelsOf = (rig: Rig): AllChannels => rig.started.front.channels as AllChannels;
type Asked = (message: ChannelMessage, payload: Buffer, peer: ChannelPeer) => void;
/** Answers calls as it is told; other messages are kept. */
const serving =
  (answer: (message: ChannelMessage, payload: Buffer) => string | null, others: ChannelMessage[] = []): Asked =>
  (message, payload, peer) => {
    if (message.method !== 'reach.invoke') {
      others.push(message);
      return;
    }
    const text = answer(message, payload);
    if (text !== null) peer.send(`{"jsonrpc":"2.0","id":${message.id},${text}}`);
  };
const dial = (rig: Rig, asked: Asked, frame?: (type: number, stream: number, payload: Buffer) => void): Promise<ChannelPeer> =>
  ChannelPeer.dial(rig.url, AGENT_TOKEN, true, { asked, ...(frame === undefined ? {} : { frame }) });

t.test('a ticket serves once, for its time, its owner, and no more than a few at once', async (t) => {
  const clock = new VirtualClock();
  const tickets = new Tickets(clock, 30_000);
  const [a, b] = [new Principal('a.b.c'), new Principal('d.e.f')];
  const first = tickets.issue(a);
  t.match(first, /^[\w-]{43}$/, '256 bits');
  t.equal(tickets.take(`${first}x`), null);
  t.equal(tickets.take(''), null);
  t.equal(tickets.take(first), a);
  t.equal(tickets.take(first), null, 'once');
  const late = tickets.issue(a);
  await clock.advance(29_999);
  const young = tickets.issue(b);
  await clock.advance(1);
  t.equal(tickets.take(late), null, 'too old at 30 s');
  t.equal(tickets.take(young), b);
  const many = Array.from({ length: MAX_PER_AGENT + 1 }, () => tickets.issue(a));
  const other = tickets.issue(b);
  t.equal(tickets.size, MAX_PER_AGENT + 1, 'bounded for each agent');
  t.equal(tickets.take(many[0] as string), null, 'its own oldest one was forgotten');
  t.equal(tickets.take(many[1] as string), a);
  t.equal(tickets.take(other), b, 'nobody else lost one');
  await clock.advance(30_000);
  tickets.forgetOld();
  t.equal(tickets.size, 0, 'unused ones are not kept');
});

t.test('dialling in: by ticket or credential; everybody else gets a problem document and no WebSocket', async (t) => {
  const rig = await Rig.start(t, { table: table(), settings: '  channel: {connections: 40}' });
  const offer = await rig.ask('/v1/channel', { method: 'POST', token: AGENT_TOKEN });
  t.equal(offer.status, 201);
  t.match(offer.json, { url: `ws://127.0.0.1:${rig.port}/v1/channel`, expires_in_ms: 30_000 });
  t.equal((await rig.ask('/v1/channel', { method: 'POST', token: 'wrong-token-here' })).status, 401);
  t.equal((await rig.ask('/v1/channel')).status, 426, 'a plain GET is told what it is for');
  const attempt = async (text: string): Promise<{ status: number; body: string; type: string | undefined }> => {
    const client = await RawClient.to(rig.port);
    client.write(text);
    const { status, body, headers } = await client.answer();
    if (status === 101) client.close();
    else t.ok(await client.closed(), 'closed after a refusal');
    return { status, body, type: headers['content-type'] };
  };
  const ticketed = handshake(rig.port, '', `?ticket=${offer.json.ticket}`);
  t.equal((await attempt(ticketed)).status, 101);
  const rows: [string, string, number][] = [
    ['the same ticket again', ticketed, 401],
    ['no credential', handshake(rig.port, ''), 401],
    ['a wrong credential', handshake(rig.port, 'wrong-token-here'), 401],
    ['a wrong ticket beside a good credential', handshake(rig.port, AGENT_TOKEN, '?ticket=x'), 401],
    ['another host', handshake(rig.port, AGENT_TOKEN).replace('127.0.0.1:', 'evil.example:'), 403],
    ['a page of another origin', handshake(rig.port, AGENT_TOKEN).replace('\r\n\r\n', '\r\norigin: http://evil.example\r\n\r\n'), 403],
    ['another path', handshake(rig.port, AGENT_TOKEN).replace('/v1/channel', '/v1/other'), 404],
    ['no key', handshake(rig.port, AGENT_TOKEN).replace(/sec-websocket-key: [^\r]*\r\n/, ''), 400],
    ['an old version', handshake(rig.port, AGENT_TOKEN).replace('version: 13', 'version: 8'), 426],
    ['a POST', handshake(rig.port, AGENT_TOKEN).replace('GET', 'POST'), 400],
    ['headers without end', handshake(rig.port, AGENT_TOKEN).replace('\r\n\r\n', `\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`), 431],
  ];
  for (const [what, text, status] of rows) {
    const found = await attempt(text);
    t.equal(found.status, status, what);
    t.match(found.type, /problem\+json/, `${what}: a problem document`);
    t.ok((JSON.parse(found.body) as { code: number }).code > 0);
  }
  const open: RawChannel[] = [];
  for (let i = 0; i < 16; i++) open.push(await RawChannel.dial(rig.port, AGENT_TOKEN));
  t.equal((await attempt(handshake(rig.port, AGENT_TOKEN))).status, 503, 'one agent cannot have them all');
  const page = (await rig.ask('/metrics')).bytes.toString();
  t.match(page, /^reach_channels 16$/m);
  t.match(page, /^reach_channels_serving 0$/m, 'nobody has said hello');
  t.match(page, /^reach_channel_waiting_bytes 0$/m);
  const [first] = open as [RawChannel];
  first.text({ jsonrpc: '2.0', id: 1, method: 'reach.hello', params: { wire: 1 } });
  await waitUntil('hello is answered', () => first.messages.length === 1);
  t.match(first.messages[0], { result: { agent: AGENT, offers: [`${QUERY}@2.1.0`] } }, 'what the table has it for');
  t.match((await rig.ask('/metrics')).bytes.toString(), /^reach_channels_serving 1$/m);
  t.equal((await attempt(handshake(rig.port, TOKEN))).status, 101);
  for (const each of open) each.client.close();
  await rig.finish(t, before);
});

t.test('the offer of another protocol is passed over, body and all, and the connection goes on', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const peer = await dial(
    rig,
    serving((_message, payload) => `"result":{"payload":${payload.toString()}}`),
  );
  const client = await RawClient.to(rig.port);
  const ask = (extra: string): string =>
    `POST /v1/invoke/${QUERY} HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nauthorization: Bearer ${TOKEN}\r\ncontent-type: application/json\r\ncontent-length: 7\r\n${extra}\r\n{"n":1}`;
  client.write(ask('connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n'));
  const first = await client.answer();
  t.equal(first.status, 200);
  t.match(JSON.parse(first.body), { data: { n: 1 } });
  client.write(ask(''));
  t.equal((await client.answer()).status, 200, 'and again on the same connection');
  client.close();
  await peer.close();
  await rig.finish(t, before);
});

t.test('a handshake is judged before the ticket, and says which version is spoken here', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const { ticket } = (await rig.ask('/v1/channel', { method: 'POST', token: AGENT_TOKEN })).json;
  const asked = async (text: string): Promise<RawClient> => {
    const client = await RawClient.to(rig.port);
    client.write(text);
    await client.until((received) => received.includes('\r\n\r\n'));
    return client;
  };
  const good = handshake(rig.port, '', `?ticket=${ticket}`);
  const old = await asked(good.replace('version: 13', 'version: 8'));
  t.match(old.text, /^HTTP\/1\.1 426 Upgrade Required\r\n[^]*\r\nsec-websocket-version: 13\r\n/);
  t.match((await asked(good.replace('AAAA==', 'AA=='))).text, /^HTTP\/1\.1 400 /);
  const among = await asked(good.replace('upgrade: websocket', 'upgrade: h2c, WebSocket'));
  t.match(among.text, /^HTTP\/1\.1 101 /, 'the ticket is still good, and the offer may stand among others');
  among.close();
  await rig.finish(t, before);
});

t.test('an upgrade asked for behind a call waits for its answer, and so does any other offer', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const waiting: { id: number; peer: ChannelPeer }[] = [];
  const peer = await dial(rig, (message, _payload, from) => {
    if (message.method === 'reach.invoke') waiting.push({ id: message.id as number, peer: from });
  });
  const call = `POST /v1/invoke/${QUERY} HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nauthorization: Bearer ${TOKEN}\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n1`;
  const health = `GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1:${rig.port}\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n`;
  for (const [behind, statuses] of [
    [handshake(rig.port, TOKEN), [200, 101]],
    [health, [200, 200]],
    [call + handshake(rig.port, TOKEN), [200, 200, 101]],
  ] as const) {
    const client = await RawClient.to(rig.port);
    client.write(call + behind);
    await waitUntil('the agent is asked', () => waiting.length > 0);
    t.equal(client.text, '', 'nothing is said before the answer');
    for (let answered = 0; answered < statuses.length - 1; answered++) {
      await waitUntil('the agent is asked', () => waiting.length > 0);
      const { id, peer: from } = waiting.shift() as { id: number; peer: ChannelPeer };
      from.send(`{"jsonrpc":"2.0","id":${id},"result":{"payload":1}}`);
    }
    const got: number[] = [];
    for (const _ of statuses) got.push((await client.answer()).status);
    t.same(got, statuses);
    client.close();
  }
  await peer.close();
  await rig.finish(t, before);
});

t.test('an answer that cannot be read fails its call at once, and is not answered: its id may be one of the agent’s own', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const agent = await RawChannel.dial(rig.port, AGENT_TOKEN);
  agent.text({ jsonrpc: '2.0', id: 'h', method: 'reach.hello', params: { wire: 1 } });
  await waitUntil('hello', () => agent.messages.length === 1);
  const deep = '['.repeat(300) + ']'.repeat(300);
  const rows = [
    ['a result and an error', '"jsonrpc":"2.0","result":{},"error":{"code":1,"message":"x"}'],
    ['no version', '"result":{"payload":1}'],
    ['too deep', `"jsonrpc":"2.0","result":{"status":200,"payload":${deep}}`],
    ['an error that is none', '"jsonrpc":"2.0","error":null'],
  ] as const;
  for (const [what, members] of rows) {
    const asked = agent.messages.length;
    const answer = rig.invoke(QUERY, { payload: 1 });
    await waitUntil('asked', () => agent.messages.length > asked);
    const { id } = agent.messages[asked] as { id: number };
    agent.text(`{"id":${id},${members}}`);
    const { json } = await answer;
    t.match(json, { code: 1004, detail: /cannot be read/ }, what);
    t.ok(json.elapsed_ms < 3_000, `${what}: long before the deadline`);
    t.notOk(
      agent.messages.slice(asked + 1).some((message) => message['id'] === id && message['error'] !== undefined),
      `${what}: no error with this id`,
    );
  }
  const answer = rig.invoke(QUERY, { payload: 1 });
  const asked = agent.messages.length;
  await waitUntil('asked', () => agent.messages.length > asked);
  const { id } = agent.messages.at(-1) as { id: number };
  agent.text(`{"jsonrpc":"2.0","method":"reach.head","params":{"id":${id}}}`);
  agent.text(`{"jsonrpc":"2.0","id":${id},"result":{"payload":1}}`);
  t.match((await answer).json, { code: 1004, detail: /payload behind the head/ }, 'nothing is left out in silence');
  agent.client.close();
  await rig.finish(t, before);
});

t.test('pieces that cost their sender nothing cost us nothing: empty ones are dropped, crumbs are joined', async (t) => {
  const on = { agentId: AGENT, forget: () => {}, tellCancelled: () => {}, sendBinary: () => {} };
  let reply: Reply | null = null;
  const asked = new AskedCall(1, 'stream', on, 1_000, (settled) => (reply = settled));
  asked.head(Buffer.from('{"id":1}'));
  for (let i = 0; i < 1_000; i++) asked.data(Buffer.alloc(0));
  for (let i = 0; i < 200_000; i++) asked.data(Buffer.from([i & 0xff]));
  asked.result(Buffer.from('{}'));
  let bytes = 0;
  let chunks = 0;
  let hasEnded = false;
  (reply as unknown as Reply).stream?.pipe({
    chunk: (data) => {
      chunks++;
      for (const byte of data) if (byte !== (bytes++ & 0xff)) throw new Error('out of order');
      return true;
    },
    end: () => (hasEnded = true),
    cut: () => t.fail('cut'),
  });
  t.same([bytes, hasEnded], [200_000, true]);
  t.ok(chunks < 4_000, `${chunks} chunks`);
});

t.test('an agent that speaks and does not read is not listened to for long, and holds nothing when it goes', async (t) => {
  const rig = await Rig.start(t, { table: table(), settings: '  limits: {body: 64KiB}\n  channel: {send_buffer: 64KiB, stall: 60s}' });
  const all = channelsOf(rig);
  const deaf = await RawChannel.dial(rig.port, AGENT_TOKEN);
  deaf.client.socket.pause();
  const pings = Buffer.concat(Array.from({ length: 20_000 }, () => clientFrame({ op: 9, payload: Buffer.alloc(125) })));
  for (let i = 0; i < 5; i++) deaf.client.write(pings);
  await waitUntil('all were read', () => deaf.client.socket.writableLength === 0);
  await new Promise((done) => setTimeout(done, 200));
  t.ok(all.waitingBytes < 65_536, `${all.waitingBytes} bytes of pongs wait: the newest takes the place of the older`);
  const junk = Buffer.concat(Array.from({ length: 100_000 }, () => clientFrame({ op: 1, payload: Buffer.from('[]') })));
  let most = 0;
  for (let i = 0; i < 5; i++) deaf.client.write(junk);
  for (let i = 0; i < 40; i++) {
    most = Math.max(most, all.waitingBytes);
    await new Promise((done) => setTimeout(done, 10));
  }
  t.ok(most > 65_536 && most < all.hardBytes + 8 * 1_048_576, `at most ${most} bytes waited`);
  await waitUntil('it is cut off', () => all.size === 0, 5_000);
  deaf.client.close();
  // One that closes in good order over what it has not read: nobody counts its connection any more, so it must not stay.
  const rude = await RawChannel.dial(rig.port, AGENT_TOKEN);
  rude.client.socket.pause();
  rude.client.write(Buffer.concat(Array.from({ length: 40_000 }, () => clientFrame({ op: 1, payload: Buffer.from('[]') }))));
  await waitUntil('answers wait', () => all.waitingBytes > 20_000);
  rude.client.write(clientFrame({ op: 8, payload: Buffer.from([3, 232]) }));
  const left = rude.client.socket.address() as { port: number };
  await waitUntil('it is gone', () => all.size === 0, 5_000);
  await waitUntil('its socket too', () => !serverSockets(rig).includes(left.port), 4_000);
  t.pass('closed within the time for the last word');
  rude.client.close();
  await rig.finish(t, before);
});

t.test('an agent that ends its side without a word is gone at once', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const agent = await RawChannel.dial(rig.port, AGENT_TOKEN);
  agent.text({ jsonrpc: '2.0', id: 'h', method: 'reach.hello', params: { wire: 1 } });
  await waitUntil('hello', () => agent.messages.length === 1);
  agent.client.socket.pause();
  agent.client.socket.end();
  await waitUntil('gone', () => channelsOf(rig).size === 0, 500);
  t.match((await rig.invoke(QUERY, { payload: 1 })).json, { code: 2003 });
  agent.client.close();
  await rig.finish(t, before);
});

t.test(
  'an answer that is wanted whole and breaks off after its first part ends at once, and never as one that has not begun',
  async (t) => {
    const on: AskedOn = { agentId: 'crm.order.1', forget: () => undefined, tellCancelled: () => undefined, sendBinary: () => undefined };
    const brokenBy = (how: (asked: AskedCall) => void): Reply => {
      const replies: Reply[] = [];
      const asked = new AskedCall(1, 'whole', on, 100, (reply) => void replies.push(reply));
      asked.head(Buffer.from('{"content_type":"text/plain"}'));
      asked.data(Buffer.from('a part'));
      how(asked);
      t.equal(replies.length, 1);
      return replies[0] as Reply;
    };
    const error = (code: number) => (asked: AskedCall) => asked.error({ kind: 'error', id: '1', code, message: 'broke', data: null });
    t.match(brokenBy(error(-32000)), { code: 0, started: 'done', status: 500 });
    t.match(
      brokenBy(error(-32601)),
      { code: 0, started: 'done', status: 500 },
      'a method that it misses itself is no call that it does not serve',
    );
    t.match(
      brokenBy((asked) => asked.broken('cut')),
      { code: 1004, started: 'started' },
    );
    t.match(
      brokenBy((asked) => asked.lost('gone')),
      { code: 1002, started: 'started' },
    );
    t.match(
      brokenBy((asked) => asked.data(Buffer.alloc(101))),
      { code: 1005, started: 'started' },
    );
    t.match(
      brokenBy((asked) => asked.stop()),
      { code: 5003, started: 'started' },
    );
  },
);

t.test('what an agent answers is judged as over HTTP: bodies, statuses, headers, errors', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  let text = '';
  const seen: ChannelMessage[] = [];
  const peer = await dial(
    rig,
    serving((message) => {
      seen.push(message);
      return text;
    }),
  );
  const raw = async (says: string, headers: Record<string, string> = {}) => {
    text = says;
    return await rig.invoke(QUERY, { payload: { q: 'é' }, headers });
  };
  t.same((await raw('"result":{"payload":{"a": 1.0}}')).bytes.includes('"data":{"a": 1.0}'), true, 'the very bytes');
  t.match(seen[0], { params: { capability: QUERY, version: '2.1.0', payload: { q: 'é' }, headers: { 'reach-caller': CALLER } } });
  t.equal((await raw('"result":{"payload":"plain","content_type":"text/plain"}')).json.data, '"plain"');
  t.same((await raw('"result":{"payload_base64":"AAE=","content_type":"image/png"}')).json.data, {
    base64: 'AAE=',
    content_type: 'image/png',
  });
  t.equal((await raw('"result":{}')).json.data, null);
  t.equal((await raw('"result":{"payload":[],"headers":{"reach-definitely-success":"true"}}')).json.definitely_success, true);
  const created = await raw('"result":{"payload":1,"status":201,"headers":{"X-Own":"v"}}', { 'reach-mode': 'raw' });
  t.match([created.status, created.headers['x-own'], created.bytes.toString()], [201, 'v', '1']);
  for (const [says, code, status] of [
    ['"error":{"code":-32000,"message":"no","data":{"status":422,"payload":{"why":"x"}}}', 6001, 422],
    ['"error":{"code":-32602,"message":"bad"}', 6001, 400],
    ['"error":{"code":1,"message":"boom"}', 6001, 500],
    ['"error":{"code":1,"message":"busy","data":{"status":429}}', 3004, 429],
    ['"error":{"code":-32601,"message":"Method not found"}', 1004, 502],
    ['"error":{"code":1,"message":"x","data":{"status":200}}', 1004, 502],
    ['"result":[]', 1004, 502],
    ['"result":5', 1004, 502],
    ['"result":{"payload":1,"status":99}', 1004, 502],
    ['"result":{"payload":1,"status":"200"}', 1004, 502],
    ['"result":{"payload":1,"headers":{"a":"b\\nc"}}', 1004, 502],
    ['"result":{"payload":1,"payload_base64":"AA=="}', 1004, 502],
    [`"result":{"payload":"${'x'.repeat(1_048_577)}"}`, 1005, 502],
  ] as const) {
    const { json, status: http } = await raw(says);
    t.equal(json.code, code, says.slice(0, 80));
    t.equal(http, status, says.slice(0, 80));
  }
  const own = await raw('"error":{"code":7,"message":"boom","data":[1]}');
  t.same(own.json.data, { code: 7, message: 'boom', data: [1] }, 'without a payload the error is the answer');
  t.equal((await raw('"error":{"code":-32601,"message":"x"}')).json.ambiguous, false, 'who serves nothing has not acted');
  const odd = await rig.invoke(QUERY, { body: '{"a":1}},"id":9,"x":{{', headers: {} });
  t.equal(
    (seen.at(-1) as ChannelMessage).params.payload_base64 !== undefined || odd.json.code === 4003,
    true,
    'a payload that is no JSON cannot close the message around it',
  );
  await peer.close();
  await rig.finish(t, before);
});

t.test('a caller that leaves cancels at the agent, and a late answer harms nobody', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const others: ChannelMessage[] = [];
  const ids: number[] = [];
  const peer = await dial(
    rig,
    serving((message) => (ids.push(message.id as number), null), others),
  );
  await rig.invoke(QUERY, { payload: 1, hangUpAfterMs: 50 }).catch(() => undefined);
  await waitUntil('the agent is told', () => others.length === 1);
  t.match(others[0], { method: 'reach.cancel', params: { id: ids[0] } });
  peer.send(`{"jsonrpc":"2.0","id":${ids[0]},"result":{"payload":"late"}}`);
  const own = peer.ask('reach.invoke', `{"capability":"${QUERY}","payload":2}`);
  await waitUntil('asked by itself', () => ids.length === 2);
  peer.send(`{"jsonrpc":"2.0","method":"reach.cancel","params":{"id":${own.id}}}`);
  await waitUntil('its own call is cancelled down to the provider', () => others.length === 2);
  await peer.close();
  await rig.finish(t, before);
});

t.test('an agent streams its answer: head, pieces in order, credit as they are taken, and an end or a cut', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  let credit = 0;
  let way: 'end' | 'error' | 'flood' | 'whole' | 'bare' = 'end';
  const total = 4 * WINDOW_BYTES;
  const PIECE = Buffer.alloc(32_768, 's');
  let sent = 0;
  let id = 0;
  const held: { peer: ChannelPeer | null } = { peer: null };
  const pump = (): void => {
    const peer = held.peer as ChannelPeer;
    while (sent < total && (way === 'flood' || sent + PIECE.length <= WINDOW_BYTES + credit)) {
      peer.sendData(id, PIECE);
      sent += PIECE.length;
    }
    if (sent === total && way !== 'error') peer.send(`{"jsonrpc":"2.0","id":${id},"result":{}}`);
    if (sent === total && way === 'error') peer.send(`{"jsonrpc":"2.0","id":${id},"error":{"code":1,"message":"the model has died"}}`);
  };
  const peer = await dial(
    rig,
    (message, _payload, peer) => {
      if (message.method !== 'reach.invoke') return;
      held.peer = peer;
      id = message.id as number;
      sent = 0;
      credit = 0;
      if (way === 'whole') peer.send(`{"jsonrpc":"2.0","id":${id},"result":{"payload":{"whole":true}}}`);
      else {
        if (way !== 'bare')
          peer.send(`{"jsonrpc":"2.0","method":"reach.head","params":{"id":${id},"content_type":"text/plain","headers":{"x-model":"m"}}}`);
        pump();
      }
    },
    (type, stream, payload) => {
      t.equal(stream, id);
      if (type !== Frame.credit) return;
      credit += payload.readUInt32BE(0);
      pump();
    },
  );
  const good = await rig.ask(`/v1/stream/${QUERY}`, { method: 'POST', payload: {} });
  t.equal(good.status, 200);
  t.equal(good.headers['x-model'], 'm');
  t.equal(good.bytes.length, total, 'all of it, four windows long');
  t.ok(credit >= total - WINDOW_BYTES);
  way = 'bare';
  t.equal((await rig.ask(`/v1/stream/${QUERY}`, { method: 'POST', payload: {} })).headers['content-type'], 'application/octet-stream');
  way = 'error';
  await t.rejects(rig.ask(`/v1/stream/${QUERY}`, { method: 'POST', payload: {} }), 'a cut never looks like an end');
  way = 'flood';
  const flood = rig.ask(`/v1/stream/${QUERY}`, { method: 'POST', payload: {} }).then(
    (answer) => answer.bytes.length,
    () => 'cut',
  );
  t.ok([total, 'cut'].includes(await flood), 'who sends past its window is cut, when its reader is slower');
  way = 'whole';
  t.same(JSON.parse((await rig.ask(`/v1/stream/${QUERY}`, { method: 'POST', payload: {} })).bytes.toString()), { whole: true });
  way = 'end';
  const whole = await rig.invoke(QUERY, { payload: {} });
  t.equal(whole.json.data.length, total, 'asked for whole, it is collected');
  way = 'end';
  await peer.close();
  await rig.finish(t, before);
});

t.test('an agent is streamed to: frames of its stream, an end that says so, a cut that says so, and cancel by stream', async (t) => {
  const provider = await TestAgent.listen('writer', (request, response) => {
    response.writeHead(200, { 'content-type': 'text/plain' });
    const { how } = request.json as { how: string };
    response.write('one ');
    if (how === 'end') response.end('two');
    if (how === 'cut') setTimeout(() => response.destroy(), 50);
    return undefined;
  });
  t.teardown(() => provider.close());
  const rig = await Rig.start(t, {
    table: table(`  - {agent_id: nlp.writer.1, offers: [nlp.answer.generate@1.0.0], endpoint: {type: http, address: "${provider.url}"}}`),
  });
  const frames: { type: number; stream: number; text: string }[] = [];
  const peer = await ChannelPeer.dial(rig.url, AGENT_TOKEN, false, {
    frame: (type, stream, payload) => void frames.push({ type, stream, text: payload.toString('utf8') }),
  });
  const ask = async (how: string) =>
    (await peer.ask('reach.stream', `{"capability":"nlp.answer.generate","payload":{"how":"${how}"}}`).answer).result;
  const first = await ask('end');
  t.match(first, { stream: 1, status: 200, content_type: 'text/plain', provider: 'nlp.writer.1' });
  await waitUntil('the end', () => frames.some(({ type }) => type === Frame.end));
  t.equal(
    frames
      .filter(({ type }) => type === Frame.data)
      .map(({ text }) => text)
      .join(''),
    'one two',
  );
  t.match(JSON.parse(frames.at(-1)!.text), { code: 0, provider: 'nlp.writer.1', error: null });
  frames.length = 0;
  t.equal((await ask('cut')).stream, 2);
  await waitUntil('the cut', () => frames.some(({ type }) => type === Frame.error));
  t.match(JSON.parse(frames.at(-1)!.text), { code: 1006, error: { name: 'stream_interrupted' } });
  const third = await ask('hang');
  peer.send(`{"jsonrpc":"2.0","method":"reach.cancel","params":{"stream":${third.stream}}}`);
  await waitUntil('the provider is let go', () => provider.abandoned >= 1);
  t.match((await peer.ask('reach.stream', `{"capability":"no.such.thing","payload":1}`).answer).error, {
    code: -32601,
    data: { code: 2001 },
  });
  t.match((await peer.ask('reach.explain', `{"capability":"nlp.answer.generate"}`).answer).result, {
    would_serve: { provider: 'nlp.writer.1' },
  });
  t.match((await peer.ask('reach.register', '{}').answer).error, { data: { code: 4003 } }, 'standalone there is nothing to register at');
  await peer.close();
  await provider.close();
  await rig.finish(t, before);
});

t.test('limits: calls under way in each direction, and a connection that only calls takes nobody’s place', async (t) => {
  const rig = await Rig.start(t, { table: table(), settings: '  channel: {in_flight: 2}' });
  const ids: number[] = [];
  const peer = await dial(
    rig,
    serving((message) => (ids.push(message.id as number), null)),
  );
  const caller = await ChannelPeer.dial(rig.url, AGENT_TOKEN, false);
  const calls = [1, 2].map((n) => caller.ask('reach.invoke', `{"capability":"${QUERY}","payload":${n}}`).answer);
  await waitUntil('two are under way', () => ids.length === 2);
  const third = await caller.ask('reach.invoke', `{"capability":"${QUERY}","payload":3}`).answer;
  t.match(third.error, { data: { code: 3002 } }, 'of the agent');
  t.match((await rig.invoke(QUERY, { payload: 4 })).json, { code: 3003, ambiguous: false }, 'to the agent');
  for (const id of ids) peer.send(`{"jsonrpc":"2.0","id":${id},"result":{"payload":${id}}}`);
  t.same(
    (await Promise.all(calls)).map(({ result }) => result.data),
    ids,
  );
  await caller.close();
  t.equal(channelsOf(rig).size, 1);
  await peer.close();
  await rig.finish(t, before);
});

t.test('a notification that is too deep is passed over in silence, and the same as a request is answered', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const raw = await RawChannel.dial(rig.port, AGENT_TOKEN);
  raw.text({ jsonrpc: '2.0', id: 'h', method: 'reach.hello', params: { wire: 1 } });
  await waitUntil('hello is answered', () => raw.messages.length === 1);
  const deep = `${'['.repeat(300)}${']'.repeat(300)}`;
  for (const method of ['reach.cancel', 'reach.head', 'no.such.method'])
    raw.text(`{"jsonrpc":"2.0","method":"${method}","params":${deep}}`);
  raw.text(`{"jsonrpc":"2.0","id":"r","method":"reach.invoke","params":${deep}}`);
  raw.text({ jsonrpc: '2.0', id: 'last', method: 'no.such.method' });
  await waitUntil('the last one is answered', () => raw.messages.some(({ id }) => id === 'last'));
  t.strictSame(
    raw.messages.map(({ id }) => id),
    ['h', 'r', 'last'],
  );
  t.match(raw.messages[1], { error: { code: -32602 } });
  raw.client.close();
  await rig.finish(t, before);
});

t.test('a sidecar that stops tells its agents, lets calls end, and closes with 1001', async (t) => {
  const rig = await Rig.start(t, { table: table(), settings: '  shutdown: {own_calls: none}' });
  const raw = await RawChannel.dial(rig.port, AGENT_TOKEN);
  raw.text({ jsonrpc: '2.0', id: 'h', method: 'reach.hello', params: { wire: 1 } });
  await waitUntil('hello is answered', () => raw.messages.length === 1);
  const pending = rig.invoke(QUERY, { payload: 1 });
  await waitUntil('asked', () => raw.messages.length === 2);
  const stopping = rig.started.stop(5_000);
  await waitUntil('told', () => raw.messages.length === 3);
  t.match(raw.messages[2], { method: 'reach.goodbye', params: { grace_ms: 5_000 } });
  raw.text({ jsonrpc: '2.0', id: 'new', method: 'reach.invoke', params: { capability: QUERY } });
  await waitUntil('refused', () => raw.messages.length === 4);
  t.match(raw.messages[3], { error: { data: { code: 2006 } } });
  t.equal(raw.closeCode, null, 'the call under way is waited for');
  raw.text({ jsonrpc: '2.0', id: 1, result: { payload: 'done' } });
  t.equal((await pending).json.data, 'done');
  await waitUntil('closed', () => raw.closeCode === 1001);
  raw.client.close();
  await stopping;
  await rig.finish(t, before);
});

t.test('an agent that dials in finishes its work while the sidecar stops: its calls are taken', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const raw = await RawChannel.dial(rig.port, AGENT_TOKEN);
  raw.text({ jsonrpc: '2.0', id: 'h', method: 'reach.hello', params: { wire: 1 } });
  await waitUntil('hello is answered', () => raw.messages.length === 1);
  const pending = rig.invoke(QUERY, { payload: 1 });
  await waitUntil('asked', () => raw.messages.length === 2);
  const stopping = rig.started.stop(5_000);
  await waitUntil('told', () => raw.messages.length === 3);
  raw.text({ jsonrpc: '2.0', id: 'more', method: 'reach.invoke', params: { capability: QUERY, payload: 'for the work' } });
  await waitUntil('its call is made: to itself, in this table', () => raw.messages.length === 4);
  t.match(raw.messages[3], { method: 'reach.invoke', params: { payload: 'for the work' } });
  raw.text({ jsonrpc: '2.0', id: 2, result: { payload: 'part' } });
  await waitUntil('answered', () => raw.messages.length === 5);
  t.match(raw.messages[4], { id: 'more', result: { code: 0, data: 'part' } });
  raw.text({ jsonrpc: '2.0', id: 1, result: { payload: 'whole' } });
  t.equal((await pending).json.data, 'whole');
  raw.client.close();
  t.match(await stopping, { callsCut: 0 });
  await rig.finish(t, before);
});

t.test('C133 while the sidecar stops an agent casts for its work as it calls, and hears of a notification that is refused', async (t) => {
  const rig = await Rig.start(t, { table: table() });
  const worker = await RawChannel.dial(rig.port, AGENT_TOKEN);
  worker.text({ jsonrpc: '2.0', id: 'h', method: 'reach.hello', params: { wire: 1 } });
  await waitUntil('hello is answered', () => worker.messages.length === 1);
  const raw = await RawChannel.dial(rig.port, TOKEN);
  raw.text({ jsonrpc: '2.0', id: 'h', method: 'reach.hello', params: { wire: 1, serve: false } });
  const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
  raw.text({ jsonrpc: '2.0', id: 'work', method: 'reach.invoke', params: { capability: QUERY, payload: 1, headers: { traceparent } } });
  await waitUntil('asked', () => worker.messages.length === 2);
  const stopping = rig.started.stop(5_000);
  const told = (): ChannelMessage[] => raw.messages.filter(({ method }) => method === 'reach.not_taken');
  const answerTo = (id: string) => raw.messages.find((one) => one.id === id);
  await waitUntil('told', () => raw.messages.some(({ method }) => method === 'reach.goodbye'));
  const cast = (id: string | null, headers: object, more: object = {}): void =>
    raw.text({
      jsonrpc: '2.0',
      ...(id === null ? {} : { id }),
      method: 'reach.cast',
      params: { target: QUERY, payload: {}, best_effort: true, headers, ...more },
    });
  cast('strange', {});
  cast('own', { traceparent });
  await waitUntil('both are answered', () => answerTo('strange') !== undefined && answerTo('own') !== undefined);
  t.match(answerTo('strange'), { error: { data: { code: 2006 } } });
  t.match(answerTo('own'), { result: { state: 'accepted' } });
  await waitUntil('it is delivered', () => worker.messages.some(({ id }) => id === 2));
  t.strictSame(told(), [], 'what is answered is not told');
  cast(null, { traceparent });
  await waitUntil('a notification is delivered too', () => worker.messages.some(({ id }) => id === 3));
  cast(null, {});
  cast(null, { traceparent }, { priority: 'urgent' });
  raw.text({ jsonrpc: '2.0', method: 'reach.cast' });
  await waitUntil('refused ones are told', () => told().length === 3);
  t.match(
    told().map(({ params }) => params),
    [
      { method: 'reach.cast', code: 2006, name: 'blocked_by_operator', detail: /stopping/ },
      { method: 'reach.cast', code: 4003, detail: /high, normal or low/ },
      { method: 'reach.cast', code: 4003, detail: /needs params/ },
    ],
  );
  for (const id of [1, 2, 3]) worker.text({ jsonrpc: '2.0', id, result: { payload: 'done' } });
  await waitUntil('the call is answered', () => answerTo('work') !== undefined);
  raw.client.close();
  worker.client.close();
  t.match(await stopping, { callsCut: 0 });
  await rig.finish(t, before);
});

t.test('a sidecar that stops gives an agent the answer of its last call, whole or streamed, before it closes', async (t) => {
  for (const method of ['reach.invoke', 'reach.stream']) {
    const rig = await Rig.start(t, { table: table() });
    const waiting: (() => void)[] = [];
    const goodbyes: unknown[] = [];
    const server = await dial(rig, (message, _payload, peer) => {
      if (message.method === 'reach.invoke')
        waiting.push(() => peer.send(`{"jsonrpc":"2.0","id":${message.id},"result":{"payload":{"last":true}}}`));
    });
    const pieces: number[] = [];
    const caller = await ChannelPeer.dial(rig.url, TOKEN, false, {
      asked: (message) => goodbyes.push(message.method),
      frame: (type) => pieces.push(type),
      closed: () => goodbyes.push('closed'),
    });
    const { answer } = caller.ask(method, `{"capability":"${QUERY}","payload":1}`);
    await waitUntil('asked', () => waiting.length === 1);
    const stopping = rig.started.stop(3_000);
    await waitUntil('told', () => goodbyes.length === 1);
    waiting[0]?.();
    const { result } = await answer;
    if (method === 'reach.invoke') t.match(result, { code: 0, data: { last: true } });
    else t.match(result, { status: 200, content_type: 'application/json' });
    await stopping;
    await waitUntil('closed', () => goodbyes.length === 2);
    t.same(goodbyes, ['reach.goodbye', 'closed']);
    t.same(pieces, method === 'reach.invoke' ? [] : [Frame.data, Frame.end], 'the end as well');
    await server.close();
    await rig.finish(t, before);
  }
});

t.test('an agent that hangs on another sidecar is reached over its mesh port', async (t) => {
  const far = await Rig.start(t, { name: 'two', meshToken: 'a-mesh-token', table: table().replace('via: one', 'via: two') });
  const near = await Rig.start(t, {
    meshToken: 'a-mesh-token',
    table: `${table().replace('via: one', 'via: two')}sidecars: [{name: two, mesh: "${far.started.meshUrl}"}]\n`,
  });
  const absent = await near.invoke(QUERY, { payload: 1 });
  t.match(absent.json, { code: 1001, ambiguous: false }, 'not dialled in there: it never started');
  t.match(absent.json.detail, /not dialled in/);
  const peer = await dial(
    far,
    serving((_message, payload) => `"result":{"payload":{"far":${payload.toString()}}}`),
  );
  t.same((await near.invoke(QUERY, { payload: 2 })).json.data, { far: 2 });
  await peer.close();
  await far.stop();
  await near.finish(t, before);
});

t.test('presence is right in every order of table and connection', async (t) => {
  const rig = await Rig.start(t, { table: table().replace(AGENT, 'sales.other.9') });
  const peer = await dial(
    rig,
    serving(() => '"result":{"payload":1}'),
  );
  t.equal((await rig.invoke(QUERY, {})).json.code, 2003, 'another is named');
  t.equal(await rig.push(table()), 'installed');
  t.equal((await rig.invoke(QUERY, {})).status, 200, 'dialled in before the table named it');
  t.equal(await rig.push(table('', ', tags: {a: b}')), 'installed');
  t.equal((await rig.invoke(QUERY, {})).status, 200, 'a push takes nobody away');
  await peer.close();
  await waitUntil('gone', () => channelsOf(rig).size === 0);
  t.equal(await rig.push(table('', ', tags: {a: c}')), 'installed');
  t.equal((await rig.invoke(QUERY, {})).json.code, 2003, 'and brings nobody back');
  t.match(
    await rig.push(table().replace('{type: channel}', '{type: channel, adress: x}')),
    'refused',
    'a misspelt option is refused with the table',
  );
  await rig.finish(t, before);
});

t.test('signs of life overtake what waits, but never inside a frame', async (t) => {
  const written: string[] = [];
  const socket = {
    writableLength: 0,
    writableNeedDrain: false,
    cork: () => {},
    uncork: () => {},
    write: (bytes: Buffer) => (written.push(`${bytes.length}`), !(socket.writableNeedDrain = true)),
  };
  const outbox = new Outbox(socket as unknown as ConstructorParameters<typeof Outbox>[0], new VirtualClock());
  outbox.send(Buffer.alloc(200_000));
  outbox.send(Buffer.alloc(10));
  outbox.sendFirst(Buffer.alloc(2));
  t.same(written, ['65536']);
  t.equal(outbox.isInside, true);
  t.equal(outbox.bytes, 200_000 - 65_536 + 12);
  for (let i = 0; i < 6; i++) {
    socket.writableNeedDrain = false;
    outbox.drained();
  }
  t.same(written, ['65536', '65536', '65536', '3392', '2', '10'], 'the ping stands before what had not begun');
  t.equal(outbox.bytes, 0);
});

t.test(
  'what is sent within a turn leaves at its end, in one write, in its order; who asks how much waits hears of no more than the socket leaves',
  async (t) => {
    const written: string[] = [];
    const socket = {
      writableLength: 0,
      writableNeedDrain: false,
      cork: () => written.push('['),
      uncork: () => written.push(']'),
      write: (bytes: Buffer) => (written.push(`${bytes.length}`), true),
    };
    const outbox = new Outbox(socket as unknown as ConstructorParameters<typeof Outbox>[0], new VirtualClock());
    outbox.send(Buffer.alloc(10));
    outbox.send(Buffer.alloc(20));
    t.same(written, []);
    t.equal(outbox.bytes, 30);
    await endOfTurn();
    t.same(written, ['[', '10', '20', ']']);
    t.equal(outbox.bytes, 0);
    outbox.send(Buffer.alloc(30));
    t.equal(outbox.isFilledTo(30), false, 'the socket takes it');
    t.same(written.splice(0), ['[', '10', '20', ']', '30']);
    outbox.send(Buffer.alloc(65_536));
    t.same(written.splice(0), ['65536'], 'a large one does not wait');
    outbox.send(Buffer.alloc(40));
    outbox.clear();
    await endOfTurn();
    t.same(written, [], 'the connection has gone meanwhile');
    socket.writableNeedDrain = true;
    outbox.send(Buffer.alloc(50));
    await endOfTurn();
    t.same(written, [], 'the peer does not read');
    t.equal(outbox.isFilledTo(50), true);
    t.equal(outbox.isFilledTo(51), false);
  },
);

t.test(
  'with a registry: a registration brings a ticket, dialling in announces the agent everywhere, and a closed channel takes it away at once',
  async (t) => {
    const nats = await NatsServer.start(t);
    const plane = await Plane.start(t, nats);
    await plane.leads();
    const joined = (name: string): Promise<Rig> =>
      Rig.start(t, {
        name,
        table: 'contracts: []\nproviders: []\n',
        settings: `  registry: {nats: "${nats.url}", env: ${ENV}}\n  mesh: {listen: "127.0.0.1:0", token: a-mesh-token}`,
      });
    const one = await joined('one');
    const two = await joined('two');
    for (const rig of [one, two]) await waitUntil('fresh', async () => (await rig.ask('/v1/health')).json.status === 'ok', 20_000);
    const registration = {
      contracts: [{ name: QUERY, version: '1.0.0', acl: 'public', execution: 'idempotent' }],
      provider: { agent_id: AGENT, offers: [`${QUERY}@1.0.0`], endpoint: { type: 'channel' } },
    };
    const said = await one.ask('/v1/agents', { method: 'POST', payload: registration, token: AGENT_TOKEN });
    t.match([said.status, said.json.state], [201, 'gone'], 'judged and known, and not there before it has dialled in');
    t.match(said.json.channel.url, /\/v1\/channel$/);
    const code = async (rig: Rig): Promise<number> => (await rig.invoke(QUERY, { payload: 1 })).json.code as number;
    t.not(await code(two), 0);
    const raw = await RawClient.to(one.port);
    raw.write(handshake(one.port, '', `?ticket=${said.json.channel.ticket}`));
    t.equal((await raw.answer()).status, 101, 'the ticket is good');
    raw.close();
    const answer = serving(() => '"result":{"payload":{"by":"channel"}}');
    let peer = await dial(one, answer);
    await waitUntil('the other sidecar can call it', async () => (await code(two)) === 0, 10_000);
    t.equal((await two.invoke(QUERY, { payload: 1 })).json.data.by, 'channel', 'over the mesh, as every hosted agent');
    t.equal((await one.ask('/v1/agents', { token: AGENT_TOKEN })).json.agents[0].state, 'in_force');
    await peer.close();
    await waitUntil('gone here', async () => (await one.ask('/v1/agents', { token: AGENT_TOKEN })).json.agents[0].state === 'gone', 1_000);
    await waitUntil('and everywhere, long before any lease', async () => ![0, 1001].includes(await code(two)), 3_000);
    peer = await dial(one, answer);
    await waitUntil('back', async () => (await code(two)) === 0, 10_000);
    // The same by a registration on the channel itself, in another version.
    const again = JSON.stringify({
      ...registration,
      contracts: [{ ...registration.contracts[0], version: '1.1.0' }],
      provider: { ...registration.provider, offers: [`${QUERY}@1.1.0`] },
    });
    t.match((await peer.ask('reach.register', again).answer).result, { agent: AGENT, state: 'in_force', offers: [`${QUERY}@1.1.0`] });
    await waitUntil('in force everywhere', async () => (await two.invoke(QUERY, { payload: 1 })).json.version === '1.1.0', 10_000);
    t.match(
      (await peer.ask('reach.register', again.replaceAll(AGENT, 'sales.other.9')).answer).error,
      { data: { code: 4002 } },
      'nobody registers another',
    );
    await peer.close();
    await one.stop();
    await two.stop();
  },
);
