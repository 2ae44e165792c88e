/** sidecar/accept/channel: bytes to messages and back (websocket-reader, websocket-frame, quick-answer, message) */
import type { Writable } from 'node:stream';
import fc from 'fast-check';
import t from 'tap';
import * as ws from 'ws';
import { Crumbs } from '../../../../../sidecar/accept/channel/crumbs.ts';
import { readRpc } from '../../../../../proto/wire/json-rpc.ts';
import { ownId, readAsk, readContent, readHeaders } from '../../../../../sidecar/accept/channel/message.ts';
import { quick, readQuick } from '../../../../../sidecar/accept/channel/quick-answer.ts';
import {
  binaryFrame,
  closeFrame,
  controlFrame,
  latin1Frame,
  Opcode,
  textFrame,
} from '../../../../../sidecar/accept/channel/websocket-frame.ts';
import { type FrameSink, WebSocketReader } from '../../../../../sidecar/accept/channel/websocket-reader.ts';
import { clientFrame, type FrameParts, serverFrames } from '../../../../support/websocket-bytes.ts';

class Heard implements FrameSink {
  readonly events: string[] = [];
  isOver = false;
  text(payload: Buffer): void {
    this.events.push(`text ${payload.toString('utf8')}`);
  }
  binary(payload: Buffer): void {
    this.events.push(`binary ${payload.toString('hex')}`);
  }
  ping(payload: Buffer): void {
    this.events.push(`ping ${payload.toString('utf8')}`);
  }
  pong(): void {
    this.events.push('pong');
  }
  close(code: number): void {
    this.events.push(`close ${code}`);
    this.isOver = true;
  }
  broken(code: number, words: string): void {
    this.events.push(`broken ${code} ${words}`);
    this.isOver = true;
  }
}

function read(bytes: Buffer, cuts: readonly number[] = [], maxBytes = 100_000): string[] {
  const heard = new Heard();
  const reader = new WebSocketReader(maxBytes);
  let at = 0;
  for (const cut of [...cuts, bytes.length]) {
    if (heard.isOver || cut <= at) continue;
    reader.push(Buffer.from(bytes.subarray(at, cut)), heard);
    at = cut;
  }
  return heard.events;
}

const text = (words: string): Buffer => Buffer.from(words);
const one = (parts: FrameParts): string[] => read(clientFrame(parts));

t.test('a message comes through whatever its length, its mask and the cuts on the way', async (t) => {
  fc.assert(
    fc.property(
      fc.array(
        fc.tuple(
          fc.nat({ max: 70_000 }).map((n) => (n % 5 === 0 ? n : n % 300)),
          fc.uint8Array({ minLength: 4, maxLength: 4 }),
          fc.boolean(),
        ),
        { minLength: 1, maxLength: 4 },
      ),
      fc.array(fc.nat({ max: 200_000 }), { maxLength: 6 }),
      (messages, cuts) => {
        const payloads = messages.map(([length], i) => Buffer.alloc(length, i % 2 === 0 ? 'héllo wörld ' : 'x').subarray(0, length));
        const sent = messages.map(([, mask, isText], i) => {
          const payload = isText
            ? text(
                payloads[i]!.toString('latin1')
                  .slice(0, 60_000)
                  .replace(/[^a-z ]/g, '?'),
              )
            : payloads[i]!;
          return {
            parts: { op: isText ? 1 : 2, payload, mask: Buffer.from(mask) },
            says: isText ? `text ${payload.toString('utf8')}` : `binary ${payload.toString('hex')}`,
          };
        });
        const events = read(
          Buffer.concat(sent.map(({ parts }) => clientFrame(parts))),
          [...cuts].sort((a, b) => a - b),
        );
        return JSON.stringify(events) === JSON.stringify(sent.map(({ says }) => says));
      },
    ),
    { numRuns: 150 },
  );
  t.pass('150 runs');
});

t.test('a message in pieces is put together, with signs of life between the pieces', async (t) => {
  const bytes = Buffer.concat([
    clientFrame({ op: 1, fin: false, payload: text('one ') }),
    clientFrame({ op: 9, payload: text('alive?') }),
    clientFrame({ op: 0, fin: false, payload: text('two ') }),
    clientFrame({ op: 10 }),
    clientFrame({ op: 0, payload: text('thrée') }),
    clientFrame({ op: 2, payload: text('x') }),
  ]);
  t.same(read(bytes), ['ping alive?', 'pong', 'text one two thrée', 'binary 78']);
  t.same(
    read(
      bytes,
      Array.from({ length: bytes.length }, (_, i) => i),
    ),
    ['ping alive?', 'pong', 'text one two thrée', 'binary 78'],
    'byte by byte as well',
  );
});

t.test('what breaks the protocol is told with its code, and nothing behind it is read', async (t) => {
  const rows: [string, FrameParts, string][] = [
    ['not masked', { op: 1, payload: text('x'), mask: null }, 'broken 1002'],
    ['RSV1', { op: 1, rsv: 4, payload: text('x') }, 'broken 1002'],
    ['RSV2', { op: 1, rsv: 2 }, 'broken 1002'],
    ['RSV3', { op: 2, rsv: 1 }, 'broken 1002'],
    ['opcode 3', { op: 3 }, 'broken 1002'],
    ['opcode 7', { op: 7 }, 'broken 1002'],
    ['opcode 11', { op: 11 }, 'broken 1002'],
    ['opcode 15', { op: 15 }, 'broken 1002'],
    ['a ping of 126 bytes', { op: 9, payload: Buffer.alloc(126) }, 'broken 1002'],
    ['a ping in pieces', { op: 9, fin: false }, 'broken 1002'],
    ['a continuation of nothing', { op: 0, payload: text('x') }, 'broken 1002'],
    ['a text that is not UTF-8', { op: 1, payload: Buffer.from([0x61, 0xc3, 0x28]) }, 'broken 1007'],
    ['a text cut in a character', { op: 1, payload: Buffer.from([0xe2, 0x82]) }, 'broken 1007'],
    ['2^63 bytes', { op: 2, length: 1n << 63n }, 'broken 1009'],
    ['2^64 - 1 bytes', { op: 2, length: (1n << 64n) - 1n }, 'broken 1009'],
    ['one byte above the limit', { op: 2, length: 100_001n }, 'broken 1009'],
    ['a close of one byte', { op: 8, payload: text('x') }, 'broken 1002'],
    ['a close with 1005', { op: 8, payload: Buffer.from([0x03, 0xed]) }, 'broken 1002'],
    ['a close with 999', { op: 8, payload: Buffer.from([0x03, 0xe7]) }, 'broken 1002'],
    ['a close with bad UTF-8', { op: 8, payload: Buffer.from([0x03, 0xe8, 0xff]) }, 'broken 1007'],
  ];
  for (const [what, parts, says] of rows) {
    const events = read(Buffer.concat([clientFrame(parts), clientFrame({ op: 1, payload: text('behind') })]));
    t.equal(events.length, 1, what);
    t.equal((events[0] as string).slice(0, says.length), says, `${what}: ${says}`);
  }
  t.same(
    read(Buffer.concat([clientFrame({ op: 1, fin: false }), clientFrame({ op: 1 })]))[0]?.slice(0, 11),
    'broken 1002',
    'a message inside a message',
  );
  t.same(one({ op: 8 }), ['close 1005'], 'a close without a code is none of this');
  t.same(one({ op: 8, payload: Buffer.from([0x03, 0xe8]) }), ['close 1000']);
});

t.test('a limit counts the message, not the frame, and the head alone is enough to refuse', async (t) => {
  const half = Buffer.alloc(60_000, 'a');
  t.match(read(Buffer.concat([clientFrame({ op: 2, fin: false, payload: half }), clientFrame({ op: 0, payload: half })])), [
    /^broken 1009/,
  ]);
  t.match(read(clientFrame({ op: 2, length: 5_000_000n, payload: text('') }).subarray(0, 14)), [/^broken 1009/]);
  const crumbs = Buffer.concat(
    Array.from({ length: 17_000 }, (_, i) => clientFrame({ op: i === 0 ? 2 : 0, fin: false, payload: text('x') })),
  );
  t.match(read(crumbs), [/^broken 1009 .*pieces/], 'crumbs cost more than their bytes');
});

t.test('no bytes make the reader throw, hold more than its limit, or speak after the end', async (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), fc.array(fc.nat({ max: 400 }), { maxLength: 5 }), (bytes, cuts) => {
      const events = read(
        Buffer.from(bytes),
        [...cuts].sort((a, b) => a - b),
        200,
      );
      const ending = events.findIndex((event) => event.startsWith('close') || event.startsWith('broken'));
      return ending < 0 || ending === events.length - 1;
    }),
    { numRuns: 2_000 },
  );
  t.pass('2000 runs');
});

/** Exported by the library and missing in its typings. */
const { Receiver } = ws as unknown as { readonly Receiver: new (options: object) => Writable };

/** What the receiver of `ws` makes of the same bytes. */
async function readByWs(bytes: Buffer, cuts: readonly number[], maxBytes: number): Promise<string[]> {
  const events: string[] = [];
  const receiver = new Receiver({ isServer: true, maxPayload: maxBytes, allowSynchronousEvents: true, binaryType: 'nodebuffer' });
  receiver.setMaxListeners(0);
  let isOver = false;
  receiver.on('message', (data: Buffer, isBinary: boolean) =>
    events.push(isBinary ? `binary ${data.toString('hex')}` : `text ${data.toString('utf8')}`),
  );
  receiver.on('ping', (data: Buffer) => events.push(`ping ${data.toString('utf8')}`));
  receiver.on('pong', () => events.push('pong'));
  receiver.on('conclude', (code: number) => {
    isOver = true;
    events.push(`close ${code}`);
  });
  receiver.on('error', (error: Error) => {
    isOver = true;
    const code = Object.getOwnPropertySymbols(error).map((symbol) => (error as unknown as Record<symbol, unknown>)[symbol])[0];
    events.push(`broken ${String(code)}`);
  });
  let at = 0;
  for (const cut of [...cuts, bytes.length]) {
    if (isOver || cut <= at) continue;
    const chunk = Buffer.from(bytes.subarray(at, cut));
    at = cut;
    await new Promise<void>((done) => {
      receiver.once('error', () => done());
      receiver.write(chunk, () => done());
    });
  }
  return events;
}

t.test('the same bytes are the same messages, or the same fault, as for the receiver of `ws`', async (t) => {
  const payload = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 30 }).map((words) => Buffer.from(words)),
    fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
    fc.nat({ max: 301 }).map((length) => Buffer.alloc(length, 'é')),
    // Cut characters, surrogates, too large, overlong; closing codes that may and may not travel; control frames at their limit.
    fc
      .constantFrom('e282', 'ac', 'eda080', 'f4908080', 'c080', '03e8', '03e8ff', '03f7', '0bb8', '03', '03ec')
      .map((hex) => Buffer.from(hex, 'hex')),
    fc.constantFrom(125, 126, 127).map((length) => Buffer.alloc(length, 'a')),
  );
  const rarely = <T>(often: T, rare: fc.Arbitrary<T>): fc.Arbitrary<T> =>
    fc.oneof({ weight: 60, arbitrary: fc.constant(often) }, { weight: 1, arbitrary: rare });
  const frame = fc
    .record({
      op: fc.oneof({ weight: 40, arbitrary: fc.constantFrom(9, 10) }, { weight: 1, arbitrary: fc.nat({ max: 15 }) }),
      fin: rarely(true, fc.constant(false)),
      rsv: rarely(0, fc.nat({ max: 7 })),
      mask: rarely<Buffer | null>(
        Buffer.from([1, 2, 3, 4]),
        fc.option(fc.uint8Array({ minLength: 4, maxLength: 4 }).map((bytes) => Buffer.from(bytes))),
      ),
      payload,
    })
    .map((parts) => [parts]);
  const pieces = fc
    .tuple(fc.constantFrom(1, 2), fc.array(payload, { minLength: 1, maxLength: 4 }))
    .map(([op, list]) => list.map((each, i) => ({ op: i === 0 ? op : 0, fin: i === list.length - 1, payload: each })));
  const seen = new Map<string, number>();
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.oneof({ weight: 2, arbitrary: pieces }, { weight: 1, arbitrary: frame }), { minLength: 1, maxLength: 8 }),
      fc.oneof(fc.array(fc.nat({ max: 900 }), { maxLength: 8 }), fc.constant(Array.from({ length: 900 }, (_, i) => i))),
      async (groups, cuts) => {
        const bytes = Buffer.concat(groups.flat().map((parts) => clientFrame(parts)));
        const sorted = [...cuts].sort((a, b) => a - b);
        const own = read(bytes, sorted, 300).map((event) => (event.startsWith('broken') ? event.slice(0, 11) : event));
        const kind = own.at(-1)?.split(' ', 2).join(' ').slice(0, 12) ?? 'nothing';
        seen.set(kind, (seen.get(kind) ?? 0) + 1);
        const theirs = await readByWs(bytes, sorted, 300);
        if (JSON.stringify(own) !== JSON.stringify(theirs)) throw new Error(`${JSON.stringify(own)}, and ws: ${JSON.stringify(theirs)}`);
      },
    ),
    { numRuns: 1_500 },
  );
  for (const code of [1002, 1007, 1009]) t.ok((seen.get(`broken ${code}`) ?? 0) > 10, `${code} was among them`);
});

t.test('a sign of life between the pieces of a message does not count towards its limit', async (t) => {
  const bytes = Buffer.concat([
    clientFrame({ op: 2, fin: false, payload: Buffer.alloc(300) }),
    clientFrame({ op: 9, payload: text('x'.repeat(100)) }),
    clientFrame({ op: 0 }),
  ]);
  t.same(
    read(bytes, [], 300).map((event) => event.slice(0, 6)),
    ['ping x', 'binary'],
  );
});

t.test('bytes in crumbs are kept whole and in order, and cost about what they hold', async (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.oneof(fc.nat({ max: 5 }), fc.nat({ max: 3_000 })), { maxLength: 300 }),
      fc.nat({ max: 200 }),
      (lengths, takes) => {
        const crumbs = new Crumbs();
        const sent: Buffer[] = [];
        const taken: Buffer[] = [];
        lengths.forEach((length, i) => {
          const piece = Buffer.alloc(length, i);
          sent.push(piece);
          crumbs.add(piece);
          if (i < takes && i % 3 === 0) taken.push(crumbs.take() ?? Buffer.alloc(0));
        });
        const all = Buffer.concat([...taken, crumbs.whole()]);
        return all.equals(Buffer.concat(sent)) && crumbs.bytes === crumbs.whole().length;
      },
    ),
    { numRuns: 300 },
  );
  const crumbs = new Crumbs();
  const chunk = Buffer.from(new ArrayBuffer(65_536));
  for (let i = 0; i < 100_000; i++) crumbs.add(chunk.subarray(i & 0xfff, (i & 0xfff) + 1));
  for (let i = 0; i < 1_000; i++) crumbs.add(chunk.subarray(0, 0));
  t.equal(crumbs.bytes, 100_000);
  t.ok(crumbs.count < 2_000, `${crumbs.count} pieces of 100000`);
  t.not(crumbs.take()?.buffer, chunk.buffer, 'and none keeps the chunk alive in which it came');
  const behind = new Crumbs();
  for (let i = 0; i < 100_000; i++) {
    behind.add(Buffer.alloc(1_024 + (i & 1)));
    if (i >= 3 && behind.take()?.length !== 1_024 + ((i - 3) & 1)) t.fail(`${i} is out of order`);
  }
  t.ok(behind.places < 200, `${behind.places} places for 3 pieces: a reader that is always behind costs no more`);
});

t.test('the number of a request of ours is known in every spelling of it, and nothing else is one', async (t) => {
  for (const spelt of ['7', '7.0', '7e0', '0.7e1', '70e-1']) t.equal(ownId(spelt), 7, spelt);
  for (const other of ['"7"', 'null', '-7', '7.5', '1e400', '99999999999999999']) t.equal(ownId(other), -1, other);
});

t.test('frames of ours are read by a strict client as what they are', async (t) => {
  for (const length of [0, 1, 125, 126, 65_535, 65_536, 200_000]) {
    const payload = Buffer.alloc(length, 'é').subarray(0, length);
    const { frames, rest } = serverFrames(
      Buffer.concat([binaryFrame(Buffer.from([1]), payload), textFrame('a', payload, 'z'), latin1Frame('b'.repeat(length))]),
    );
    t.equal(rest.length, 0);
    t.same(
      frames.map(({ op, payload }) => [op, payload.length]),
      [
        [2, length + 1],
        [1, length + 2],
        [1, length],
      ],
    );
  }
  t.equal(serverFrames(textFrame('ключ ', Buffer.from('"é"'), ' конец')).frames[0]?.payload.toString('utf8'), 'ключ "é" конец');
  t.same(serverFrames(controlFrame(Opcode.ping, text('x'))).frames, [{ op: 9, payload: text('x') }]);
  const { payload } = serverFrames(closeFrame(4001, 'é'.repeat(200))).frames[0]!;
  t.equal(payload.readUInt16BE(0), 4001);
  t.ok(payload.length <= 125 && !payload.toString('utf8', 2).includes('\ufffd'), 'a long reason is cut at a character');
});

t.test('the quick way finds in an answer what the long way finds, or nothing', async (t) => {
  const said = (frame: string): string | null =>
    readQuick(Buffer.from(frame)) ? `${quick.id} ${frame.slice(quick.from, quick.to)}` : null;
  t.equal(said('{"jsonrpc":"2.0","id":7,"result":{"payload":{"a":[1,"}}"]}}}'), '7 {"a":[1,"}}"]}');
  t.equal(said(' { "jsonrpc" : "2.0", "id": 12, "result": { "payload": 1.0 } }\n'), '12 1.0', 'as other serializers write it');
  for (const other of [
    '{"jsonrpc":"2.0","id":7,"result":{"payload":1},"x":{"y":2}}',
    '{"jsonrpc":"2.0","id":7,"result":{"payload":1,"status":201}}',
    '{"jsonrpc":"2.0","id":7,"result":{"payload":1},"id":{"payload":2}}',
    '{"jsonrpc":"2.0","id":-7,"result":{"payload":1}}',
    '{"jsonrpc":"2.0","id":"7","result":{"payload":1}}',
    '{"jsonrpc":"2.0","id":7,"result":{"payload":}}',
    '{"jsonrpc":"2.0","id":7,"result":{"payload":{]}}}',
    '{"jsonrpc":"2.0","id":7,"error":{"payload":1}}',
    '{"id":7,"jsonrpc":"2.0","result":{"payload":1}}',
    '{"jsonrpc":"2.0","id":7,"result":{}}',
    '{"jsonrpc":"2.0","id":7',
    '',
  ])
    t.equal(said(other), null, other);
  fc.assert(
    fc.property(fc.jsonValue(), fc.nat(), fc.constantFrom('', ' ', '\n  '), (value, id, space) => {
      const frame = Buffer.from(
        `{${space}"jsonrpc":${space}"2.0",${space}"id":${space}${id},${space}"result":${space}{"payload":${space}${JSON.stringify(value)}${space}}}`,
      );
      const reading = readRpc(frame, { batch: 0 });
      if (!readQuick(frame) || reading.isBatch || reading.message.kind !== 'result') return false;
      return reading.message.id === String(quick.id) && frame.toString('utf8', quick.from, quick.to) === JSON.stringify(value);
    }),
    { numRuns: 500 },
  );
  t.pass('500 runs');
});

t.test('a call is read with the bytes of its payload, and everything odd in it is named', async (t) => {
  const ask = (value: string) => readAsk(Buffer.from(value));
  const good = ask('{"capability":"crm.order.query@^2.0","payload":{"n": 1.0},"headers":{"Reach-Budget":"a=1","traceparent":"x"}}');
  if (typeof good === 'string') throw new Error(good);
  t.equal(good.capability, 'crm.order.query@^2.0');
  t.equal(good.body.toString('utf8'), '{"n": 1.0}', 'as it was written');
  t.equal(good.contentType, 'application/json');
  t.same({ ...good.headers }, { 'reach-budget': 'a=1', traceparent: 'x' }, 'names in lower case');
  const bytes = ask('{"capability":"a.b.c","payload_base64":"AAH/","content_type":"image/png"}');
  if (typeof bytes === 'string') throw new Error(bytes);
  t.same([...bytes.body], [0, 1, 255]);
  t.equal(bytes.contentType, 'image/png');
  for (const [value, says] of [
    ['[]', /must be an object/],
    ['{"payload":1}', /capability/],
    ['{"capability":7}', /capability/],
    ['{"capability":"a.b.c","payload":1,"payload_base64":"AA=="}', /not both/],
    ['{"capability":"a.b.c","payload_base64":"!!"}', /base64/],
    ['{"capability":"a.b.c","payload_base64":"A"}', /base64/],
    ['{"capability":"a.b.c","payload_base64":7}', /base64/],
    ['{"capability":"a.b.c","payload":1,"content_type":"a\\r\\nb: c"}', /content_type/],
    ['{"capability":"a.b.c","headers":[]}', /headers/],
    ['{"capability":"a.b.c","headers":{"a":1}}', /must be a text/],
    ['{"capability":"a.b.c","headers":{"a\\r\\nb":"c"}}', /not the name/],
    ['{"capability":"a.b.c","headers":{"a":"b\\r\\nc: d"}}', /control characters/],
    ['{"capability":"a.b.c","headers":{"":"b"}}', /not the name/],
    ['{"capability":"a.b.c","headers":{"A":"1","a":"2"}}', /twice/],
  ] as const)
    t.match(ask(value), says, value);
  t.match(readHeaders(Buffer.from(JSON.stringify(Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`x-${i}`, '1']))))), /at most/);
  t.match(readHeaders(Buffer.from(JSON.stringify({ a: 'x'.repeat(13_000) }))), /at most/);
  t.same(Object.keys(readHeaders(Buffer.from('{"__proto__":"x","a":"b"}')) as object).sort(), ['__proto__', 'a'], 'no name is special');
  t.same(readContent(null, null, null), { body: Buffer.alloc(0), contentType: '' });
});
