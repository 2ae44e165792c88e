import fc from 'fast-check';
import t from 'tap';
import { FrameReader } from '../../../../proto/wire/frame-reader.ts';
import { Frame, MAX_FRAME_BYTES } from '../../../../proto/wire/frames.ts';
import { BinaryFraming, type Framing } from '../../../../sidecar/accept/framing.ts';
import { EventMaker, EventRelay, eventFraming, LineEvents } from '../../../../sidecar/accept/sse.ts';

const LIMIT = 1_048_576;

/** A receiver by the book: the events of a stream, its data joined; what is not finished is dropped. */
function received(text: string): { type: string; data: string }[] {
  const events: { type: string; data: string }[] = [];
  let type = '';
  let data: string[] = [];
  const lines = text.replace(/^\uFEFF/, '').split(/\r\n|\r|\n/);
  lines.pop();
  for (const line of lines) {
    if (line === '') {
      if (data.length > 0) events.push({ type: type === '' ? 'message' : type, data: data.join('\n') });
      type = '';
      data = [];
      continue;
    }
    const colon = line.indexOf(':');
    if (colon === 0) continue;
    const [name, value] = colon < 0 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, '')];
    if (name === 'event') type = value;
    else if (name === 'data') data.push(value);
  }
  return events;
}

function cutUp(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [...new Set(places.map((place) => Math.floor(place * bytes.length)))].sort((a, b) => a - b);
  return [0, ...at].map((from, i) => bytes.subarray(from, at[i] ?? bytes.length));
}

/** Everything that a framing writes for a body that comes in these pieces and ends well. */
function written(framing: Framing, pieces: readonly Buffer[]): Buffer {
  const out = pieces.map((piece) => Buffer.from(framing.chunk(piece) as Buffer));
  return Buffer.concat([...out, Buffer.from(framing.end('{"code":0}') as string)]);
}

const places = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 40 });
const lineEnd = fc.constantFrom('\n', '\r', '\r\n');
const word = fc.constantFrom('a', 'é', '漢字', '🙂', '', ' x', 'data: no', ': none', '\uFEFF');
const eventText = fc
  .tuple(fc.constantFrom('', 'event: tick', 'id: 7', ': comment', 'retry: 5'), fc.array(word, { minLength: 1, maxLength: 3 }), lineEnd)
  .map(([field, data, end]) => `${field === '' ? '' : field + end}${data.map((text) => `data: ${text}${end}`).join('')}${end}`);
const sse = fc.tuple(fc.boolean(), fc.array(eventText, { maxLength: 8 })).map(([mark, events]) => (mark ? '\uFEFF' : '') + events.join(''));

t.test("a provider's events pass unchanged, however they are cut and whatever ends their lines", async (t) => {
  fc.assert(
    fc.property(sse, places, (text, cuts) => {
      const out = written(new EventRelay(LIMIT), cutUp(Buffer.from(text), cuts));
      t.equal(out.toString(), text.replace(/^\uFEFF/, ''));
    }),
    { numRuns: 300 },
  );
});

t.test('at every moment, what was passed on is whole events: an error event after it is an event of its own', async (t) => {
  fc.assert(
    fc.property(sse, places, (text, cuts) => {
      const bytes = Buffer.from(text);
      const whole = received(text);
      const relay = new EventRelay(LIMIT);
      let out = '';
      for (const piece of cutUp(bytes, cuts)) {
        out += relay.chunk(piece).toString();
        const seen = received(`${out}${relay.keepAlive()}`);
        t.strictSame(seen, whole.slice(0, seen.length));
      }
      const last = received(out + relay.cut('{"code":1006}'));
      t.strictSame(last.at(-1), { type: 'error', data: '{"code":1006}' });
      t.strictSame(last.slice(0, -1), whole.slice(0, last.length - 1));
    }),
    { numRuns: 300 },
  );
});

t.test('an event above the limit is refused at the limit; what was whole before it is passed on', async (t) => {
  const relay = new EventRelay(1_000);
  t.equal(relay.chunk(Buffer.from(`data: fine\n\ndata: ${'x'.repeat(500)}`)).toString(), 'data: fine\n\n');
  t.equal(relay.problem, '');
  t.equal(relay.chunk(Buffer.from('y'.repeat(600))).toString(), '');
  t.equal(relay.problem, 'an event of the stream is above the limit of 1000 bytes');
  t.equal(relay.cut('{}'), 'event: error\ndata: {}\n\n');
  const atOnce = new EventRelay(1_000);
  t.equal(atOnce.chunk(Buffer.from(`data: a\n\ndata: ${'x'.repeat(2_000)}\n\ndata: b\n\n`)).toString(), 'data: a\n\n');
  t.match(atOnce.problem, /limit of 1000/, 'also one that came whole');
  const singly = new EventRelay(LIMIT);
  const before = process.memoryUsage().heapUsed;
  const byte = Buffer.from('x');
  for (let i = 0; i < 1_000_000; i++) singly.chunk(byte);
  t.ok(process.memoryUsage().heapUsed - before < 16_000_000, 'a million pieces of one byte are held as bytes');
});

t.test('lines become one event each, however they are cut', async (t) => {
  const line = fc.constantFrom('{"a":1}', '{"text":"é漢🙂"}', '[]', '"x"', '', '   ');
  fc.assert(
    fc.property(
      fc.array(line, { maxLength: 10 }),
      fc.constantFrom('\n', '\r\n'),
      fc.boolean(),
      fc.boolean(),
      places,
      (all, end, mark, open, cuts) => {
        let text = (mark ? '\uFEFF' : '') + all.map((one) => one + end).join('');
        if (open && all.length > 0) text = text.slice(0, -end.length);
        const out = written(new LineEvents(LIMIT), cutUp(Buffer.from(text), cuts)).toString();
        t.strictSame(received(out), [
          ...all.filter((one) => one.trim() !== '').map((data) => ({ type: 'message', data })),
          { type: 'end', data: '{"code":0}' },
        ]);
      },
    ),
    { numRuns: 300 },
  );
  const cut = new LineEvents(LIMIT);
  t.equal(cut.chunk(Buffer.from('{"a":1}\n{"half":')), 'data: {"a":1}\n\n');
  t.equal(cut.cut('{}'), 'event: error\ndata: {}\n\n', 'half a line is told to nobody');
  const long = new LineEvents(10);
  t.equal(long.chunk(Buffer.from('12345\n12345678901\n')), 'data: 12345\n\n');
  t.match(long.problem, /a line of the stream is above the limit of 10 bytes/);
});

const textWithLines = fc
  .array(fc.oneof(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 6 }), lineEnd, lineEnd), { minLength: 1, maxLength: 12 })
  .map((parts) => parts.join(''));

t.test('pieces of text become events without harm to any character', async (t) => {
  fc.assert(
    fc.property(textWithLines, places, (text, cuts) => {
      const bytes = Buffer.from(text);
      const pieces = cutUp(bytes, cuts).filter((piece) => piece.length > 0);
      const events = received(written(new EventMaker('text/plain; charset=utf-8'), pieces).toString());
      t.strictSame(events.at(-1), { type: 'end', data: '{"code":0}' });
      const joined = events
        .slice(0, -1)
        .map((event) => event.data)
        .join('');
      // One text, whatever its line ends are and wherever it is cut.
      t.equal(
        joined,
        bytes
          .toString()
          .replace(/^\uFEFF/, '')
          .replace(/\r\n|\r/g, '\n'),
      );
    }),
    { numRuns: 300 },
  );
});

t.test('which framing fits is told by the type of the body', async (t) => {
  t.ok(eventFraming('text/event-stream; charset=utf-8', 1) instanceof EventRelay);
  t.ok(eventFraming('Application/X-NDJSON', 1) instanceof LineEvents);
  t.ok(eventFraming('application/json', 1) instanceof EventMaker);
  t.ok(eventFraming('text/event-streams', 1) instanceof EventMaker);
  t.ok(eventFraming(undefined, 1) instanceof EventMaker);
});

t.test('binary frames carry any bytes, also more than one frame may hold', async (t) => {
  const framing = new BinaryFraming();
  const out: Buffer[] = [];
  const write = (data: Buffer): void => {
    const body = framing.chunk(data);
    out.push(framing.head(body.length), body);
  };
  const large = Buffer.alloc(2 * MAX_FRAME_BYTES + 5, 'q');
  write(Buffer.from([0, 1, 2, 255]));
  write(large);
  out.push(framing.keepAlive(), framing.end('{"text":"é"}'));
  const seen: [number, Buffer][] = [];
  const reader = new FrameReader({ frame: (type, payload) => void seen.push([type, payload]) });
  for (const piece of out) t.equal(reader.push(piece), null);
  t.equal(reader.finish(), null);
  t.strictSame(
    seen.map(([type, payload]) => [type, payload.length]),
    [
      [Frame.data, 4],
      [Frame.data, MAX_FRAME_BYTES],
      [Frame.data, MAX_FRAME_BYTES],
      [Frame.data, 5],
      [Frame.keepAlive, 0],
      [Frame.end, 13],
    ],
  );
  t.equal(seen.at(-1)?.[1].toString(), '{"text":"é"}');
});

t.test('text of another charset becomes UTF-8; one that cannot be read goes as its bytes', (t) => {
  const made = (type: string, bytes: Buffer) => {
    const framing = new EventMaker(type);
    return received(written(framing, cutUp(bytes, [0.3, 0.6])).toString('utf8'));
  };
  const joined = (events: { type: string; data: string }[]) =>
    events
      .filter(({ type }) => type === 'message')
      .map(({ data }) => data)
      .join('');
  t.equal(joined(made('text/plain; charset=ISO-8859-1', Buffer.from('grüß Gott', 'latin1'))), 'grüß Gott');
  t.equal(joined(made('text/plain;charset="utf-16le"', Buffer.from('\uFEFFgrüß 🙂', 'utf16le'))), 'grüß 🙂');
  t.equal(joined(made('text/plain; charset=utf-8', Buffer.from('grüß 🙂'))), 'grüß 🙂');
  t.match(made('text/plain; charset=klingon', Buffer.from('abc'))[0], { type: 'base64' });
  t.end();
});
