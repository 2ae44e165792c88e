import fc from 'fast-check';
import t from 'tap';
import { Frame, FRAME_HEAD_BYTES, FRAME_VERSION, frameHead, type FrameType, MAX_FRAME_BYTES } from '../../../../proto/wire/frames.ts';
import { FrameReader, type FrameReading, readFrame } from '../../../../proto/wire/frame-reader.ts';

type Seen = { type: FrameType; payload: string };

class Collected {
  readonly frames: Seen[] = [];
  frame(type: FrameType, payload: Buffer): void {
    this.frames.push({ type, payload: payload.toString('latin1') });
  }
}

function bytesOf(frames: readonly { type: FrameType; payload: Buffer }[]): Buffer {
  return Buffer.concat(frames.flatMap(({ type, payload }) => [frameHead(type, payload.length), payload]));
}

/** Cuts at the given places (fractions of the whole). */
function cutUp(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [...new Set(places.map((place) => Math.floor(place * bytes.length)))].sort((a, b) => a - b);
  return [0, ...at].map((from, i) => bytes.subarray(from, at[i] ?? bytes.length));
}

function read(pieces: readonly Buffer[], reading: FrameReading): { seen: Seen[]; problem: string | null; reader: FrameReader } {
  const seen = new Collected();
  const reader = new FrameReader(seen, reading);
  let problem: string | null = null;
  for (const piece of pieces) problem = reader.push(piece);
  return { seen: seen.frames, problem, reader };
}

const payload = fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes));
const middle = fc.oneof(
  payload.map((bytes) => ({ type: Frame.data as FrameType, payload: bytes })),
  fc.constant<{ type: FrameType; payload: Buffer }>({ type: Frame.keepAlive, payload: Buffer.alloc(0) }),
);
const last = fc.tuple(fc.constantFrom<FrameType>(Frame.end, Frame.error), payload).map(([type, bytes]) => ({ type, payload: bytes }));
const stream = fc.tuple(fc.array(middle, { maxLength: 12 }), last).map(([frames, end]) => [...frames, end]);
const places = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 40 });

t.test('any split of the bytes gives the same frames', async (t) => {
  fc.assert(
    fc.property(stream, places, (frames, cuts) => {
      const { seen, problem, reader } = read(cutUp(bytesOf(frames), cuts), 'whole');
      t.equal(problem, null);
      t.strictSame(
        seen,
        frames.map(({ type, payload: bytes }) => ({ type, payload: bytes.toString('latin1') })),
      );
      t.ok(reader.isOver);
      t.equal(reader.finish(), null);
    }),
    { numRuns: 200 },
  );
  const frames = [
    { type: Frame.data as FrameType, payload: Buffer.from('ab') },
    { type: Frame.end as FrameType, payload: Buffer.from('{}') },
  ];
  const each = [...bytesOf(frames)].map((byte) => Buffer.from([byte]));
  t.strictSame(read(each, 'whole').seen, [
    { type: Frame.data, payload: 'ab' },
    { type: Frame.end, payload: '{}' },
  ]);
});

t.test('read in pieces, the data are the same bytes and the other frames are whole', async (t) => {
  fc.assert(
    fc.property(stream, places, (frames, cuts) => {
      const { seen, problem } = read(cutUp(bytesOf(frames), cuts), 'pieces');
      t.equal(problem, null);
      const joined = (all: readonly Seen[]): string =>
        all.map((one) => (one.type === Frame.data ? one.payload : `<${one.type}:${one.payload}>`)).join('');
      t.equal(joined(seen), joined(frames.map(({ type, payload: bytes }) => ({ type, payload: bytes.toString('latin1') }))));
    }),
    { numRuns: 200 },
  );
  const chunk = Buffer.alloc(40_000, 'x');
  const got: Buffer[] = [];
  const reader = new FrameReader({ frame: (_type, bytes) => got.push(bytes) }, 'pieces');
  reader.push(frameHead(Frame.data, 80_000));
  reader.push(chunk);
  t.equal(got[0], chunk, 'a piece is handed on as it is, before its frame is whole, and is not copied');
});

t.test('whatever bytes come, the reader answers with frames or with words and never throws', async (t) => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 10 }), (pieces) => {
      const { problem, reader } = read(
        pieces.map((bytes) => Buffer.from(bytes)),
        'whole',
      );
      if (problem !== null) {
        t.match(problem, /^[a-z].*[a-z0-9]$/);
        t.equal(reader.push(bytesOf([{ type: Frame.data, payload: Buffer.from('x') }])), problem, 'wrong once is wrong for good');
        t.equal(reader.finish(), problem);
      }
    }),
    { numRuns: 500 },
  );
});

t.test('what cannot be a frame is refused in words, before its payload is waited for', async (t) => {
  const head = (version: number, type: number, length: number): Buffer => {
    const bytes = frameHead(Frame.data, length);
    bytes[0] = version;
    bytes[1] = type;
    return bytes;
  };
  const refused: [Buffer, RegExp][] = [
    [Buffer.from([2]), /version 2 cannot be read here, only version 1/],
    [Buffer.from('HTTP/1.1 200 OK'), /version 72/],
    [Buffer.from([FRAME_VERSION, 0]), /no frame of type 0/],
    [Buffer.from([FRAME_VERSION, 6]), /no frame of type 6/],
    [head(1, Frame.data, MAX_FRAME_BYTES + 1), /16777217 bytes is above the limit of 16777216/],
    [head(1, Frame.end, 0xffff_ffff), /4294967295 bytes is above the limit/],
    [head(1, Frame.keepAlive, 1), /a keep-alive frame carries nothing, not 1 bytes/],
    [head(1, Frame.credit, 4), /belongs on a channel/],
    [Buffer.concat([frameHead(Frame.end, 0), Buffer.from([1])]), /bytes follow the end frame/],
  ];
  for (const [bytes, words] of refused) {
    const { seen, problem } = read([bytes], 'whole');
    t.match(problem, words);
    t.ok(seen.every((frame) => frame.type === Frame.end));
  }
  t.equal(read([head(1, Frame.data, MAX_FRAME_BYTES)], 'whole').problem, null, 'the limit itself is allowed');
});

t.test('an end of the bytes before the end frame is told for what it is', async (t) => {
  const after = (...pieces: Buffer[]): string | null => read(pieces, 'whole').reader.finish();
  t.equal(after(), 'the frames ended without an end frame');
  t.equal(after(frameHead(Frame.keepAlive, 0)), 'the frames ended without an end frame');
  t.equal(after(frameHead(Frame.data, 5).subarray(0, 3)), 'the frames ended inside the head of a frame');
  t.equal(after(frameHead(Frame.data, 5), Buffer.from('ab')), 'the frames ended inside a frame, 3 of 5 bytes before its end');
  t.equal(after(frameHead(Frame.error, 2), Buffer.from('{}')), null);
});

t.test("a frame that is a message of its own is read by its head and the message's length", async (t) => {
  t.strictSame(readFrame(Buffer.concat([frameHead(Frame.data, 7), Buffer.from('xyz')])), {
    type: Frame.data,
    number: 7,
    payload: Buffer.from('xyz'),
  });
  t.match(readFrame(Buffer.concat([frameHead(Frame.credit, 9), Buffer.alloc(4)])), { type: Frame.credit, number: 9 });
  t.match(readFrame(Buffer.from([1, 1])), /a head of 6 bytes, this message has 2/);
  t.match(readFrame(Buffer.concat([frameHead(Frame.credit, 9), Buffer.alloc(3)])), /a credit frame carries 4 bytes, not 3/);
  t.match(readFrame(Buffer.concat([frameHead(Frame.keepAlive, 9), Buffer.alloc(3)])), /carries nothing/);
  t.match(readFrame(Buffer.alloc(FRAME_HEAD_BYTES)), /version 0/);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      const frame = readFrame(Buffer.from(bytes));
      t.ok(typeof frame === 'string' || frame.payload.length === bytes.length - FRAME_HEAD_BYTES);
    }),
  );
});
