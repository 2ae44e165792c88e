/** The way past the NATS client: what is read and written there is what the client would have read and written. */
import t from 'tap';
import { type BusMessage, STATUS, WireHeaders } from '../../../base/bus-message.ts';
import { writeCommands } from '../../../base/nats-commands.ts';
import { NatsFastLane } from '../../../base/nats-fast-lane.ts';
import { NatsReader } from '../../../base/nats-reader.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

const bytes = (text: string): Buffer => Buffer.from(text, 'utf8');

function reader(): { reader: NatsReader; heard: string[]; others: string; broken: unknown[]; messages: BusMessage[] } {
  const seen = { heard: [] as string[], others: '', broken: [] as unknown[], messages: [] as BusMessage[] };
  const made = new NatsReader(
    {
      parse: (chunk) => {
        seen.others += chunk.toString('utf8');
      },
    },
    (error) => seen.broken.push(error),
  );
  made.on(7, (message) => {
    seen.messages.push(message);
    seen.heard.push(`${message.subject}|${message.reply}|${message.data.toString('utf8')}`);
    if (message.subject === 'throws') throw new Error('no');
  });
  return Object.assign(seen, { reader: made });
}

const HEADS = 'NATS/1.0\r\nA: 1\r\nB:  two \r\nA: 3\r\n\r\n';
const STREAM = [
  'PING\r\n',
  'MSG a.b 7 5\r\nhello\r\n',
  'MSG a.c 7 re.ply 0\r\n\r\n',
  `HMSG a.d 7 r ${HEADS.length} ${HEADS.length + 4}\r\n${HEADS}\r\nx\n\r\n`,
  'MSG of.others 8 2\r\nhi\r\n',
  '-ERR \'Permissions Violation for Publish to "x"\'\r\n',
  'MSG ünï.code 7 3\r\nabc\r\n',
  'PONG\r\n',
].join('');
const WHAT = ['a.b||hello', 'a.c|re.ply|', 'a.d|r|\r\nx\n', 'ünï.code||abc'];
const REST = `PING\r\nMSG of.others 8 2\r\nhi\r\n-ERR 'Permissions Violation for Publish to "x"'\r\nPONG\r\n`;

t.test('messages are cut out of what comes, wherever it is cut; all else goes to the client as it is', async (t) => {
  const whole = bytes(STREAM);
  for (let size = 1; size <= whole.length; size++) {
    const seen = reader();
    for (let at = 0; at < whole.length; at += size) seen.reader.parse(whole.subarray(at, at + size));
    t.strictSame({ heard: seen.heard, others: seen.others }, { heard: WHAT, others: REST }, `in pieces of ${size}`);
  }
});

t.test('headers are read when they are asked for', async (t) => {
  const { reader: it, messages } = reader();
  it.parse(bytes(STREAM));
  const [plain, , headed] = messages as [BusMessage, BusMessage, BusMessage];
  t.equal(plain.header('A'), null);
  t.same([headed.header('A'), headed.header('B'), headed.header('a'), headed.header(STATUS)], ['1', 'two', null, null]);
  t.same(headed.names?.(), ['A', 'B']);
  const status = 'NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n';
  it.parse(bytes(`HMSG s 7 ${status.length} ${status.length}\r\n${status}\r\n`));
  const told = messages.at(-1) as BusMessage;
  t.same([told.header(STATUS), told.header('Description'), told.header('Nats-Pending-Messages')], ['408', 'Request Timeout', '3']);
});

t.test('one who throws is reported, and the next one gets its message', async (t) => {
  const seen = reader();
  seen.reader.parse(bytes('MSG throws 7 1\r\nx\r\nMSG b 7 1\r\ny\r\n'));
  t.same([seen.heard, seen.broken.length], [['throws||x', 'b||y'], 1]);
});

t.test('who is not registered any more gets nothing', async (t) => {
  const seen = reader();
  seen.reader.off(7);
  seen.reader.parse(bytes('MSG a 7 1\r\nx\r\n'));
  t.same([seen.heard, seen.others], [[], 'MSG a 7 1\r\nx\r\n']);
});

t.test('what is not understood is left to the client, with all that follows', async (t) => {
  for (const strange of [
    'MSG a 7\r\n',
    'MSG a x 1\r\nx\r\n',
    'HMSG a 7 9 1\r\nx\r\n',
    'MSG a 7 99999999999\r\n',
    'MSGx\r\n',
    'MSG a 7 -1\r\n',
  ]) {
    const seen = reader();
    seen.reader.parse(bytes(`${strange}MSG a 7 1\r\nx\r\n`));
    seen.reader.parse(bytes('PING\r\n'));
    t.same([seen.heard, seen.others], [[], `${strange}MSG a 7 1\r\nx\r\nPING\r\n`], strange.trim());
  }
});

t.test('commands are written as the server reads them, many in one piece', async (t) => {
  const headers = new WireHeaders('Nats-Msg-Id: 1\r\n');
  const command = (subject: string, data: Buffer, reply = '', own: WireHeaders | null = null) => ({ subject, data, reply, headers: own });
  const pieces: string[] = [];
  const give = (piece: Buffer): void => void pieces.push(piece.toString('utf8'));
  writeCommands([command('a', bytes('x')), command('b', bytes(''), 'r.1'), command('ü', bytes('ä'), '', headers)], give);
  const head = 'NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n';
  t.same(pieces, [`PUB a 1\r\nx\r\nPUB b r.1 0\r\n\r\nHPUB ü ${head.length} ${head.length + 2}\r\n${head}ä\r\n`]);
  pieces.length = 0;
  const large = Buffer.alloc(200_000, 'z');
  writeCommands([command('a', large), command('b', large), command('c', Buffer.alloc(900_000, 'y'))], give);
  t.same(
    pieces.map((piece) => piece.length),
    [200_016, 200_016, 900_016],
    'large ones do not pile up',
  );
  t.same(pieces.map((piece) => piece.slice(0, 5)).join(), 'PUB a,PUB b,PUB c');
  pieces.length = 0;
  writeCommands([], give);
  t.same(pieces, []);
});

t.test('a client that is not as this was made for goes without', async (t) => {
  const sendCommand = (): void => {};
  const parser = { state: 0, parse: () => {} };
  for (const inside of [undefined, {}, { sendCommand }, { sendCommand, parser: {} }, { sendCommand, parser: { ...parser, state: 5 } }])
    t.equal(
      NatsFastLane.of({ protocol: inside }, () => {}),
      null,
    );
  t.ok(NatsFastLane.of({ protocol: { sendCommand, parser } }, () => {}));
});

t.test('the client that is installed lets us', async (t) => {
  const nats = await NatsServer.start(t);
  const { connect } = await import('nats');
  const connection = await connect({ servers: nats.url, reconnect: false });
  const lane = NatsFastLane.of(connection, (error) => t.fail(String(error)));
  t.ok(lane, 'it is as it is in the version that is pinned');
  const heard: string[] = [];
  const ours = connection.subscribe('ours.*', { callback: () => t.fail('past the client') });
  lane?.on(ours.getID(), ({ subject, reply, data }) => heard.push(`${subject}|${reply}|${data.toString('utf8')}`));
  const theirs = connection.subscribe('theirs');
  lane?.send([
    { subject: 'ours.1', reply: 'r', headers: null, data: bytes('one') },
    { subject: 'theirs', reply: '', headers: new WireHeaders('A: b\r\n'), data: bytes('two') },
    { subject: 'ours.2', reply: '', headers: new WireHeaders('A: b\r\n'), data: Buffer.alloc(100_000, 'x') },
  ]);
  for await (const message of theirs) {
    t.equal(`${message.string()} ${message.headers?.get('A') ?? ''}`, 'two b');
    break;
  }
  await waitUntil('both have come', () => heard.length === 2);
  t.same(heard, ['ours.1|r|one', `ours.2||${'x'.repeat(100_000)}`]);
  await connection.flush();
  await connection.close();
});
