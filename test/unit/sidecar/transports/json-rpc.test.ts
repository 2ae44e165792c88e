import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { Code } from '../../../../proto/wire/codes.ts';
import { judgeAnswer } from '../../../../sidecar/attempt/judge.ts';
import { answered, type Reply } from '../../../../sidecar/call/reply.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { notified, RpcAsked, understood } from '../../../../sidecar/transports/json-rpc-answer.ts';
import { EventTexts } from '../../../../sidecar/transports/json-rpc-events.ts';
import { JsonRpcTransport, jsonRpcKind } from '../../../../sidecar/transports/json-rpc.ts';
import { startReach } from '../../../../sidecar/embedded.ts';
import type { Exchange } from '../../../../sidecar/transports/transport.ts';
import { waitUntil } from '../../../support/settle.ts';
import { candidateOf, type CandidateParts, contextOf, type ExchangeParts, exchangeOf } from './exchanges.ts';

interface Seen {
  readonly text: string;
  readonly headers: IncomingHttpHeaders;
  readonly path: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into whatever came
  readonly json: any;
}

type Answer = (seen: Seen, response: ServerResponse) => void;

/** A JSON-RPC agent over HTTP: each test says what it answers. */
class Peer {
  readonly seen: Seen[] = [];
  readonly url: string;
  answer: Answer;

  private constructor(url: string, answer: Answer) {
    this.url = url;
    this.answer = answer;
  }

  static async start(t: Test, answer: Answer): Promise<Peer> {
    const holder: { peer: Peer | null } = { peer: null };
    const server = createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        const seen = { text, headers: request.headers, path: request.url ?? '', json: JSON.parse(text) as unknown };
        holder.peer?.seen.push(seen);
        holder.peer?.answer(seen, response);
      });
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    t.teardown(() => {
      server.closeAllConnections();
      server.close();
    });
    holder.peer = new Peer(`http://127.0.0.1:${(server.address() as AddressInfo).port}/rpc`, answer);
    return holder.peer;
  }
}

const say =
  (text: string | ((seen: Seen) => string), status = 200, contentType = 'application/json'): Answer =>
  (seen, response) => {
    response.writeHead(status, { 'content-type': contentType });
    response.end(typeof text === 'string' ? text : text(seen));
  };
const result = (text: string): Answer => say((seen) => `{"jsonrpc":"2.0","result":${text},"id":${seen.json.id}}`);
const error = (text: string, status = 200): Answer => say((seen) => `{"jsonrpc":"2.0","error":${text},"id":${seen.json.id}}`, status);

function transportFor(t: Test, secrets: Record<string, string> = {}): JsonRpcTransport {
  const transport = new JsonRpcTransport(contextOf({ secrets }));
  t.teardown(() => transport.close());
  return transport;
}

function ask(peer: Peer, parts: ExchangeParts = {}, candidate: CandidateParts = {}): Exchange {
  const endpoint = { type: 'jsonrpc', address: peer.url, ...candidate.endpoint };
  return exchangeOf(candidateOf({ ...candidate, endpoint }), parts);
}

async function invoke(
  t: Test,
  answer: Answer,
  parts: ExchangeParts = {},
  candidate: CandidateParts = {},
): Promise<{ reply: Reply; peer: Peer }> {
  const peer = await Peer.start(t, answer);
  return { peer, reply: await transportFor(t).invoke(ask(peer, parts, candidate)) };
}

const json = (): unknown => undefined;

t.test('a request is JSON-RPC 2.0 with the payload as params, byte for byte, and the result comes back byte for byte', async (t) => {
  const number = '{"id": 9007199254740993, "price":1.0,"none":-0, "text":"\\u00e9"}';
  const { reply, peer } = await invoke(t, result('  {"big":12345678901234567890, "x":[1.50]} '), {
    body: ` ${number}\n`,
    own: ['reach-deadline-ms', '900'],
  });
  t.equal(reply.code, Code.ok);
  t.equal(reply.status, 200);
  t.equal(reply.started, 'done');
  t.equal(reply.body.toString(), '{"big":12345678901234567890, "x":[1.50]}');
  t.equal(reply.headers['content-type'], 'application/json');
  const [seen] = peer.seen as [Seen];
  t.equal(seen.text, `{"jsonrpc":"2.0","id":1,"method":"crm.order.query","params":${number}}`);
  t.equal(seen.path, '/rpc');
  t.equal(seen.headers['content-type'], 'application/json');
  t.equal(seen.headers['reach-deadline-ms'], '900');
  t.equal(seen.headers['reach-capability'], 'crm.order.query');
  t.equal(seen.headers['reach-version'], '2.1.0');
});

t.test(
  'params are what JSON-RPC allows: an object or a list as it is, anything else in a list, nothing when there is no payload',
  async (t) => {
    const rows: readonly [string, string | undefined, string | undefined][] = [
      ['{"a":1}', undefined, '{"a":1}'],
      ['[1,2]', undefined, '[1,2]'],
      ['"hello"', undefined, '["hello"]'],
      ['7', undefined, '[7]'],
      ['true', undefined, '[true]'],
      ['', undefined, undefined],
      ['null', undefined, undefined],
      [' null ', undefined, undefined],
      ['\ufeff{"a":1}', undefined, '{"a":1}'],
      ['{"a":1}', 'by_position', '[{"a":1}]'],
      ['[1,2]', 'by_position', '[1,2]'],
    ];
    const peer = await Peer.start(t, result('null'));
    const transport = transportFor(t);
    for (const [body, params, wanted] of rows) {
      const options = params === undefined ? {} : { params };
      const reply = await transport.invoke(ask(peer, { body }, { endpoint: { options } }));
      t.equal(reply.code, Code.ok, body);
      const { text } = peer.seen.at(-1) as Seen;
      t.equal(text.includes('"params"'), wanted !== undefined, body);
      if (wanted !== undefined) t.ok(text.endsWith(`"params":${wanted}}`), `${body} → ${text}`);
    }
  },
);

t.test(
  'a payload that is not one whole JSON value is refused before anything is sent, so that no payload can write the request',
  async (t) => {
    const peer = await Peer.start(t, result('1'));
    const transport = transportFor(t);
    for (const body of ['1],"method":"admin.all","x":[1', '{"a":1},"method":"x"', 'hello', '{', '{}{}', '\u0000', '"open']) {
      const reply = await transport.invoke(ask(peer, { body, contentType: 'text/plain' }));
      t.equal(reply.code, Code.invalid_request, body);
      t.equal(reply.started, 'not_started');
    }
    t.equal(peer.seen.length, 0);
  },
);

t.test('a capability may have a method name of its own; what is not named keeps its name', async (t) => {
  const peer = await Peer.start(t, result('1'));
  const transport = transportFor(t);
  const endpoint = { options: { methods: { 'crm.order.query': 'orders."query"' } } };
  await transport.invoke(ask(peer, {}, { endpoint }));
  await transport.invoke(ask(peer, {}, { endpoint, capability: 'crm.order.list' }));
  t.strictSame(
    peer.seen.map((seen) => seen.json.method),
    ['orders."query"', 'crm.order.list'],
  );
});

t.test(
  'C108 ids are counted here: a thousand at once are all different, and an answer with another id is nobody else’s answer',
  async (t) => {
    const held: { seen: Seen; response: ServerResponse }[] = [];
    const peer = await Peer.start(t, (seen, response) => {
      held.push({ seen, response });
      if (held.length < 64) return;
      // In reverse order of arrival.
      for (const each of held.splice(0).reverse())
        say(JSON.stringify({ jsonrpc: '2.0', id: each.seen.json.id, result: each.seen.json.params }))(each.seen, each.response);
    });
    const transport = transportFor(t);
    const asked = Array.from({ length: 1_024 }, (_, i) => i);
    const replies = await Promise.all(asked.map((i) => transport.invoke(ask(peer, { body: JSON.stringify({ i, id: 1 }) }))));
    t.strictSame(
      replies.map((reply) => (JSON.parse(reply.body.toString()) as { i: number }).i),
      asked,
    );
    t.equal(new Set(peer.seen.map((seen) => seen.json.id as number)).size, asked.length);
    for (const id of ['2', '"1025"', '1025.0', '{}', 'null', '10250']) {
      peer.answer = say(`{"jsonrpc":"2.0","id":${id},"result":{"secret":true}}`);
      const reply = await transport.invoke(ask(peer));
      t.equal(reply.code, Code.bad_response, id);
      t.equal(reply.body.length, 0);
    }
  },
);

t.test('an error is judged as the HTTP answer that it would have been, and its object is the body', async (t) => {
  const rows: readonly [string, number, number, 'success' | 'failure' | 'ignored'][] = [
    ['{"code":-32700,"message":"Parse error"}', 200, 400, 'success'],
    ['{"code":-32600,"message":"Invalid Request"}', 200, 400, 'success'],
    ['{"code":-32602,"message":"Invalid params"}', 500, 400, 'success'],
    ['{"code":-32601,"message":"Method not found"}', 200, 404, 'success'],
    ['{"code":-32603,"message":"Internal error"}', 200, 500, 'failure'],
    ['{"code":-32000,"message":"overloaded"}', 200, 500, 'failure'],
    ['{"code":-32099,"message":"x"}', 503, 503, 'failure'],
    ['{"code":-32000,"message":"x"}', 429, 429, 'ignored'],
    ['{"code":17,"message":"no such order"}', 200, 422, 'success'],
    ['{"code":17,"message":"no such order"}', 409, 409, 'success'],
    ['{"code":404,"message":"no such order"}', 200, 404, 'success'],
    ['{"code":-32000,"message":"x","data":{"status":409}}', 200, 409, 'success'],
    ['{"code":-32003,"message":"x","data":{"code":3004,"name":"rate_limited","retry_after_ms":1500}}', 200, 429, 'ignored'],
    ['{"code":-32004,"message":"x","data":{"code":4002,"name":"forbidden"}}', 200, 403, 'success'],
    ['{"code":-32000,"message":"x","data":{"code":4002,"name":"something of its own"}}', 200, 500, 'failure'],
    ['{"code":-32000,"message":"x","data":"text"}', 200, 500, 'failure'],
  ];
  const peer = await Peer.start(t, result('1'));
  const transport = transportFor(t);
  for (const [text, httpStatus, status, outcome] of rows) {
    peer.answer = error(text, httpStatus);
    const reply = await transport.invoke(ask(peer));
    t.equal(reply.code, Code.ok, text);
    t.equal(reply.status, status, text);
    t.strictSame(JSON.parse(reply.body.toString()), JSON.parse(text), text);
    const judged = judgeAnswer(reply, null, json);
    t.equal(judged.outcome, outcome, text);
    t.equal(judged.code, status === 429 ? Code.rate_limited : Code.provider_error, text);
  }
  peer.answer = error('{"code":-32601,"message":"Method not found"}');
  t.match(judgeAnswer(await transport.invoke(ask(peer)), null, json).detail, /404.*has no method "crm.order.query".*-32601/);
  peer.answer = error('{"code":-32003,"message":"x","data":{"code":3004,"name":"rate_limited","retry_after_ms":1500}}');
  t.equal((await transport.invoke(ask(peer))).retryAfterMs, 1_500);
  peer.answer = error('{"code":-32003,"message":"x","data":{"retry_after_ms":1e300}}');
  t.equal((await transport.invoke(ask(peer))).retryAfterMs, 999_999_999_000, 'no longer than Retry-After can say');
  peer.answer = say('{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}');
  t.equal((await transport.invoke(ask(peer))).status, 400, 'an agent that could not read the request does not know its id');
});

t.test('what is no answer of JSON-RPC 2.0 is a bad response that says why', async (t) => {
  const rows: readonly [string, RegExp][] = [
    ['', /without a body/],
    ['hello', /not well-formed JSON/],
    ['{"jsonrpc":"2.0","id":ID,"result":1} x', /not well-formed JSON/],
    ['{"jsonrpc":"2.0","id":ID}', /./],
    ['{"id":ID,"result":1}', /jsonrpc/],
    ['{"jsonrpc":"1.0","id":ID,"result":1}', /jsonrpc/],
    ['{"jsonrpc":2.0,"id":ID,"result":1}', /jsonrpc/],
    ['{"jsonrpc":"2.0","result":1}', /id/],
    ['[{"jsonrpc":"2.0","id":ID,"result":1}]', /batch|list/],
    ['"text"', /object/],
    ['{"jsonrpc":"2.0","id":ID,"result":1,"error":{"code":1,"message":"x"}}', /both/],
    ['{"jsonrpc":"2.0","id":ID,"result":1,"result":2}', /twice/],
    ['{"jsonrpc":"2.0","id":ID,"error":"broken"}', /error/],
    ['{"jsonrpc":"2.0","id":ID,"error":{"code":"x","message":"y"}}', /code/],
    ['{"jsonrpc":"2.0","id":ID,"error":null}', /error/],
    ['{"jsonrpc":"2.0","id":ID,"method":"ping"}', /request/],
  ];
  const peer = await Peer.start(t, result('1'));
  const transport = transportFor(t);
  for (const [text, words] of rows) {
    peer.answer = say((seen) => text.replace('ID', String(seen.json.id)));
    const reply = await transport.invoke(ask(peer));
    t.equal(reply.code, Code.bad_response, text);
    t.match(reply.detail, words, text);
  }
  peer.answer = (_seen, response) => response.writeHead(204).end();
  t.equal((await transport.invoke(ask(peer))).code, Code.bad_response, '204');
});

t.test('a result beside an error that is null is a result, as older servers write it', async (t) => {
  const { reply } = await invoke(
    t,
    say((seen) => `{"jsonrpc":"2.0","id":${seen.json.id},"result":{"a":1},"error":null}`),
  );
  t.equal(reply.body.toString(), '{"a":1}');
});

t.test('an HTTP error without JSON-RPC in it is passed on as what it is', async (t) => {
  for (const status of [302, 401, 404, 429, 502]) {
    const { reply } = await invoke(t, say('<html>no</html>', status, 'text/html'));
    t.equal(reply.code, Code.ok);
    t.equal(reply.status, status);
    t.equal(reply.body.toString(), '<html>no</html>');
  }
});

t.test('an answer that comes as events is found among them; a stream of events without it is a bad response', async (t) => {
  const note = 'event: message\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\r\n\r\n';
  const events = (seen: Seen): string =>
    `: hello\n\n${note}event: message\nid: 4\ndata: {"jsonrpc":"2.0","id":${seen.json.id},\ndata: "result":{"a":1}}\n\n`;
  const found = await invoke(t, say(events, 200, 'text/event-stream; charset=utf-8'));
  t.equal(found.reply.body.toString(), '{"a":1}');
  t.equal(found.reply.headers['content-type'], 'application/json');
  t.match(found.peer.seen[0]?.headers.accept, /application\/json.*text\/event-stream/);
  for (const text of [
    note,
    '',
    'data: hello\n\n',
    'data: {"jsonrpc":"2.0","id":77,"result":1}\n\n',
    'data: {"jsonrpc":"2.0","id":1,"result":1}',
  ]) {
    const { reply } = await invoke(t, say(text, 200, 'text/event-stream'));
    t.equal(reply.code, Code.bad_response, text);
  }
});

t.test(
  'a stream of events is read as far as the answer: one that stays open is let go, one that ends in time keeps its connection',
  async (t) => {
    let left = 0;
    let ends = false;
    const sockets = new Set<unknown>();
    const peer = await Peer.start(t, ({ json: { id } }, response) => {
      sockets.add(response.socket);
      response.on('close', () => left++);
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': hello\r\n\r\ndata: {"jsonrpc":"2.0","id":77,"result":0}\r\n\r\ndata: {"jsonrpc":"2.0",');
      setTimeout(() => {
        response.write(`\r\ndata: "id":${id},"result":{"a":1}}\r`);
        setTimeout(() => {
          response.write('\n\r\ndata: {"jsonrpc":"2.0","method":"notifications/more"}\n\n');
          if (ends) setTimeout(() => response.end(), 5);
        }, 5);
      }, 5);
    });
    const clock = new VirtualClock();
    const transport = new JsonRpcTransport(contextOf({ clock }));
    t.teardown(() => transport.close());
    const open = await transport.invoke(ask(peer));
    t.equal(open.body.toString(), '{"a":1}');
    t.equal(left, 0, 'its end may come yet');
    t.not(clock.nextAt(), null);
    await clock.advance(100);
    await waitUntil('the stream is let go', () => left === 1);
    t.equal(clock.nextAt(), null, 'no timer is left');
    ends = true;
    for (const n of [2, 3]) {
      t.equal((await transport.invoke(ask(peer))).body.toString(), '{"a":1}');
      await waitUntil('it has ended', () => left === n && clock.nextAt() === null);
    }
    t.equal(sockets.size, 2, 'the third request went over the connection of the second');
    ends = false;
    peer.answer = (_seen, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    };
    t.match(await transport.cast(ask(peer)), { code: Code.ok, status: 200 }, 'nothing is due to a notification');
  },
);

t.test('texts in events are the same however their bytes come', async (t) => {
  const line = fc.constantFrom('data: {"a":', 'data: 1}', 'data:2', '', ': c', 'data', 'event: x', 'data: "ü"');
  fc.assert(
    fc.property(
      fc.array(line, { maxLength: 12 }),
      fc.constantFrom('\n', '\r', '\r\n'),
      fc.array(fc.nat(200), { maxLength: 20 }),
      fc.constantFrom('', '\ufeff'),
      (lines, end, at, mark) => {
        const bytes = Buffer.from(mark + lines.map((one) => one + end).join(''));
        const cuts = [...new Set(at.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
        const texts = new EventTexts();
        const found = [0, ...cuts].flatMap((from, i) => texts.take(bytes.subarray(from, cuts[i] ?? bytes.length)));
        t.same(found.map(String), new EventTexts().take(bytes).map(String));
      },
    ),
    { numRuns: 200 },
  );
  t.same(new EventTexts().take(Buffer.from('\ufeffdata: {"a":\r\ndata:1}\r\rdata: no\n\ndata: 2\n')).map(String), ['{"a":\n1}']);
});

t.test('a cast is a notification: no id, any 2xx is fine, and an error is heard', async (t) => {
  const peer = await Peer.start(t, (_seen, response) => response.writeHead(204).end());
  const transport = transportFor(t);
  t.equal((await transport.cast(ask(peer))).status, 204);
  t.equal(peer.seen[0]?.text, '{"jsonrpc":"2.0","method":"crm.order.query","params":{"id":7}}');
  peer.answer = say('', 200);
  t.equal((await transport.cast(ask(peer))).status, 200);
  peer.answer = say('{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"},"id":null}');
  t.equal((await transport.cast(ask(peer))).status, 400);
  peer.answer = say('busy', 503, 'text/plain');
  t.equal((await transport.cast(ask(peer))).status, 503);
});

t.test('the limit on an answer counts the result, not the envelope around it', async (t) => {
  const text = JSON.stringify('x'.repeat(998));
  t.equal((await invoke(t, result(text), { maxResponseBytes: 1_000 })).reply.code, Code.ok);
  t.equal((await invoke(t, result(text), { maxResponseBytes: 999 })).reply.code, Code.response_too_large);
  t.equal((await invoke(t, result(JSON.stringify('x'.repeat(9_000))), { maxResponseBytes: 999 })).reply.code, Code.response_too_large);
});

t.test('the credential is put in by the sidecar, and no caller can send one in its place', async (t) => {
  const peer = await Peer.start(t, result('1'));
  const transport = transportFor(t, { RPC_KEY: 'k-1' });
  const endpoint = { credential: { header: 'x-api-key', prefix: 'Key ', secret: { env: 'RPC_KEY' } } };
  await transport.invoke(
    ask(
      peer,
      { incoming: { 'x-api-key': 'mine', authorization: 'Bearer of-the-caller', accept: 'text/html', 'x-note': 'yes' } },
      { endpoint },
    ),
  );
  const { headers } = peer.seen[0] as Seen;
  t.equal(headers['x-api-key'], 'Key k-1');
  t.equal(headers.authorization, undefined);
  t.equal(headers['x-note'], 'yes');
  const missing = { credential: { header: 'x-api-key', prefix: '', secret: { env: 'NOT_SET' } } };
  const reply = await transport.invoke(ask(peer, {}, { endpoint: missing }));
  t.equal(reply.code, Code.internal);
  t.equal(reply.started, 'not_started');
  t.match(reply.detail, /credential/);
});

t.test('a call for a stream gets the answer whole; abort settles at once; a closed port has not started', async (t) => {
  const peer = await Peer.start(t, result('{"a":1}'));
  const transport = transportFor(t);
  const streamed = await transport.invokeStream(ask(peer));
  t.equal(streamed.stream, null);
  t.equal(streamed.body.toString(), '{"a":1}');
  peer.answer = () => {};
  const exchange = ask(peer);
  const waiting = transport.invoke(exchange);
  while (peer.seen.length < 2) await new Promise((done) => setImmediate(done));
  exchange.abort?.();
  const stopped = await waiting;
  t.equal(stopped.code, Code.cancelled);
  t.equal(stopped.started, 'started');
  const away = await transport.invoke(exchangeOf(candidateOf({ endpoint: { type: 'jsonrpc', address: 'http://127.0.0.1:1/rpc' } })));
  t.equal(away.code, Code.connect_timeout);
  t.equal(away.started, 'not_started');
});

t.test('whatever comes as an answer is judged and never throws, and a result gets through only under its own id', (t) => {
  const part = fc.oneof(
    fc.json(),
    fc.constantFrom(
      '"2.0"',
      '"1.0"',
      'null',
      '7',
      '"7"',
      '{"code":1,"message":"x"}',
      '{"code":-32601}',
      '',
      '"jsonrpc"',
      '{"code":1e400,"message":"x"}',
    ),
  );
  const member = fc
    .tuple(fc.constantFrom('jsonrpc', 'id', 'result', 'error', 'method', 'json\\u0072pc'), part)
    .map(([name, value]) => `"${name}":${value}`);
  const good = fc
    .tuple(fc.json(), fc.constantFrom('7', '7', '8', '"7"', '7.0'), fc.constantFrom('', ' ', '\r\n\t'))
    .map(([value, id, space]) => `${space}{"result":${space}${value},"id"${space}:${id},"jsonrpc":"2.0"}${space}`);
  let successes = 0;
  const message = fc.oneof(
    good,
    fc.array(member, { maxLength: 6 }).map((members) => `{${members.join(',')}}`),
    fc
      .array(
        fc.array(member, { maxLength: 4 }).map((members) => `{${members.join(',')}}`),
        { maxLength: 3 },
      )
      .map((items) => `[${items.join(',')}]`),
    fc.json(),
    fc.string(),
  );
  const body = fc.oneof(
    message.map((text) => Buffer.from(text)),
    message.map((text) => Buffer.from(`data: ${text}\n\n`)),
    fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
  );
  const type = fc.constantFrom('application/json', 'text/event-stream', 'text/html', undefined);
  fc.assert(
    fc.property(body, type, fc.constantFrom(200, 204, 400, 429, 500), (bytes, contentType, status) => {
      const headers = contentType === undefined ? {} : { 'content-type': contentType };
      const reply = understood(answered(status, headers, bytes), new RpcAsked(7, 'm', 1_000));
      notified(answered(status, headers, bytes));
      if (reply.code === Code.ok && reply.status < 300) {
        const text = bytes
          .toString()
          .replace(/^data: /, '')
          .trim();
        successes++;
        const whole = JSON.parse(text) as { jsonrpc: unknown; id: unknown; result: unknown };
        return (
          whole.jsonrpc === '2.0' && whole.id === 7 && JSON.stringify(JSON.parse(reply.body.toString())) === JSON.stringify(whole.result)
        );
      }
      return reply.code === Code.ok ? reply.status >= 400 : reply.code === Code.bad_response && status < 300;
    }),
    { numRuns: 2_000, seed: 4 },
  );
  t.ok(successes > 50, `${successes} results got through`);
  t.end();
});

t.test('the `/rpc` of another sidecar is a provider as well: its data is the answer, its errors keep their meaning', async (t) => {
  const reach = await startReach({
    settings: {
      sidecar: {
        name: 'far',
        listen: '127.0.0.1:0',
        callers: [{ agent: 'near.sidecar.1', token: 'token-of-the-near' }],
        state_dir: 'none',
      },
    },
    log: 'silent',
  });
  t.teardown(() => reach.stop(0));
  const agent = { agent: 'shop.order.1' };
  await reach.serve('crm.order.query@1.0.0', (request) => ({ got: request.payload }), { ...agent, contract: { acl: 'public' } });
  await reach.serve('crm.order.hidden@1.0.0', () => 1, { ...agent, contract: { acl: ['role:nobody'] } });
  await reach.serve('crm.order.broken@1.0.0', () => Promise.reject(new Error('the database is away')), {
    ...agent,
    contract: { acl: 'public' },
  });
  const transport = transportFor(t, { TOKEN: 'token-of-the-near' });
  const endpoint = {
    type: 'jsonrpc',
    address: `${reach.url}/rpc`,
    credential: { header: 'authorization', prefix: 'Bearer ', secret: { env: 'TOKEN' } },
  };
  const send = (capability: string): Promise<Reply> => transport.invoke(exchangeOf(candidateOf({ endpoint, capability })));
  const good = await send('crm.order.query');
  t.equal(good.body.toString(), '{"got":{"id":7}}', good.detail);
  const rows: readonly [string, number, string][] = [
    ['crm.order.hidden', 403, 'success'],
    ['crm.order.nothing', 404, 'success'],
    ['crm.order.broken', 500, 'failure'],
  ];
  for (const [capability, status, outcome] of rows) {
    const reply = await send(capability);
    t.equal(reply.status, status, `${capability}: ${reply.body.toString()}`);
    t.equal(judgeAnswer(reply, null, json).outcome, outcome);
  }
});

t.test('what is written for it is read with the table, and refused with a suggestion', async (t) => {
  const problems = (options: Record<string, unknown>, address = 'http://127.0.0.1:8080/rpc'): string =>
    jsonRpcKind.problems({ type: 'jsonrpc', address, path: null, mapping: {}, credential: null, options }).join(' | ');
  t.equal(problems({}), '');
  t.equal(problems({ methods: { 'crm.order.query': 'q' }, params: 'by_position', version: '2.0' }), '');
  t.equal(problems({ version: 2 }), '', 'unquoted in YAML');
  t.match(problems({ version: '1.0' }), /2\.0/);
  t.match(problems({ method: {} }), /unknown key "method".*methods/);
  t.match(problems({ params: 'by_nam' }), /by_name/);
  t.match(problems({ methods: { 'Crm.Order': 'q' } }), /methods/);
  t.match(problems({}, ''), /address is missing/);
  t.match(problems({}, 'nats://127.0.0.1:4222'), /http/);
});
