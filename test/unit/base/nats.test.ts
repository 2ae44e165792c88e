/** The bus on a real nats-server: what it sends, what it makes of answers, and how it lives through the server's faults. */
import t from 'tap';
import { type BusMessage, republished } from '../../../base/bus-message.ts';
import { realClock } from '../../../base/clock.ts';
import { differences, type StreamSpec, versionWarning } from '../../../base/jetstream.ts';
import { Bus, type BusState } from '../../../base/nats.ts';
import { SeededRandom } from '../../../base/random.ts';
import { DEFAULT_PACE, waitBeforeDial } from '../../../base/reconnect.ts';
import { readServerAddress } from '../../../base/server-address.ts';
import { headerProblem, MAX_SUBJECT_CHARS, patternProblem, subjectProblem } from '../../../base/subject.ts';
import { NatsProxy } from '../../support/nats-proxy.ts';
import { NatsServer } from '../../support/nats.ts';
import { waitUntil } from '../../support/settle.ts';

const bytes = (text: string): Buffer => Buffer.from(text, 'utf8');
const aTurn = (): Promise<void> => new Promise((done) => setImmediate(done));
const words = (message: BusMessage): string => message.data.toString('utf8');

const HOSTILE_SUBJECTS: readonly string[] = [
  'crm.order query',
  'crm..query',
  'crm.*',
  'crm.>',
  'crm.order\r\nPUB x 0',
  `crm.${'x'.repeat(5_000)}`,
  '$SYS.x',
  '',
  '.crm',
  'crm.',
  'crm.\u0000',
  'crm.\tx',
  'crm.bücher',
  'crm.order\nMSG',
  'crm.o*r',
];

const CFG: StreamSpec = {
  name: 'AR_CFG',
  subjects: ['ar.x.cfg.>'],
  storage: 'file',
  maxMsgsPerSubject: 1,
  allowDirect: true,
  republish: { source: 'ar.x.cfg.>', destination: 'ar.x.push.>' },
};

t.test('what may stand in a subject', async (t) => {
  t.test('names of tokens with points between them', async (t) => {
    for (const good of ['a', 'ar.prod.cfg.cap.crm.order.query', 'a.B-9_~!', '_INBOX.x', 'x'.repeat(MAX_SUBJECT_CHARS)])
      t.equal(subjectProblem(good), null);
  });
  t.test('and nothing that would change what is said to the server', async (t) => {
    for (const bad of HOSTILE_SUBJECTS) t.type(subjectProblem(bad), 'string', JSON.stringify(bad.slice(0, 40)));
  });
  t.test('a pattern has wildcards, as whole tokens, the long one at the end', async (t) => {
    for (const good of ['a.*.c', '*', '>', 'a.>', '*.*.>', '$JS.EVENT.>']) t.equal(patternProblem(good), null, good);
    for (const bad of ['a.b*', '*b', 'a.>.c', '>>', 'a..>', 'a b', '', 'a.>x']) t.type(patternProblem(bad), 'string', bad);
  });
  t.test('a header has no character that ends a line, nor any other that controls', async (t) => {
    t.equal(headerProblem('Reach-Name', 'grün, 100 % "ok"'), null);
    for (const value of ['a\r\nX: y', 'a\nb', 'a\rb', '\u0000', '\u007f', '\u0085', 'x'.repeat(10_000)])
      t.type(headerProblem('a', value), 'string');
    for (const name of ['', 'a b', 'a:b', 'a\n', 'ä', 'x'.repeat(200)]) t.type(headerProblem(name, 'v'), 'string', name);
  });
});

t.test('how long it waits before it dials', async (t) => {
  const { spreadMs, firstMs, mostMs } = DEFAULT_PACE;
  const at = (chance: number) => ({ next: () => chance });
  t.test('after a good connection, anything up to the spread', async (t) => {
    t.equal(waitBeforeDial(DEFAULT_PACE, 0, true, at(0)), 0);
    t.equal(waitBeforeDial(DEFAULT_PACE, 0, true, at(0.5)), spreadMs / 2);
  });
  t.test('after failures twice as long each time, half of it by chance, up to a bound', async (t) => {
    t.equal(waitBeforeDial(DEFAULT_PACE, 1, false, at(0)), firstMs / 2);
    t.equal(waitBeforeDial(DEFAULT_PACE, 2, false, at(0)), firstMs);
    t.equal(waitBeforeDial(DEFAULT_PACE, 3, false, at(1)), firstMs * 4);
    t.equal(waitBeforeDial(DEFAULT_PACE, 1_000_000, false, at(1)), mostMs);
  });
  t.test('a connection that did not last counts as a failure, and the spread remains', async (t) => {
    t.equal(waitBeforeDial(DEFAULT_PACE, 1, true, at(0.9)), 0.9 * spreadMs);
    t.equal(waitBeforeDial(DEFAULT_PACE, 9, true, at(0)), mostMs / 2);
  });
  t.test('of 20 clients that are dropped at once, never a third comes back within a tenth of a second', async (t) => {
    const randoms = Array.from({ length: 20 }, (_, i) => new SeededRandom(i + 1));
    for (let drop = 0; drop < 30; drop++) {
      const waits = randoms.map((random) => waitBeforeDial(DEFAULT_PACE, drop, true, random)).sort((a, b) => a - b);
      const most = Math.max(...waits.map((from) => waits.filter((each) => each >= from && each < from + 100).length));
      t.ok(most <= 6, `drop ${drop}: ${most} of 20`);
    }
  });
});

t.test('what it reads', async (t) => {
  t.test('addresses of servers', async (t) => {
    const good = { host: 'nats', port: 4222, isTls: false, login: null };
    t.strictSame(readServerAddress('nats://nats'), good);
    t.strictSame(readServerAddress('nats'), good);
    t.strictSame(readServerAddress('tls://[::1]:4333'), { host: '::1', port: 4333, isTls: true, login: null });
    t.strictSame(readServerAddress('nats://me:a%40b@h:1'), { host: 'h', port: 1, isTls: false, login: { user: 'me', password: 'a@b' } });
    t.strictSame(readServerAddress('nats://t0k@h:1'), { host: 'h', port: 1, isTls: false, login: { token: 't0k' } });
    for (const bad of ['', 'http://x', 'nats://', 'nats://h:99999', 'nats://h/x', 'a b']) t.type(readServerAddress(bad), 'string', bad);
  });
  t.test('versions: below 2.10.27 it warns, loudly below 2.9', async (t) => {
    for (const fine of ['2.10.27', '2.14.0', '2.15.3', '3.0.0', '2.14.0-RC.1', '']) t.equal(versionWarning(fine), null, fine);
    t.match(versionWarning('2.9.10'), /below 2\.10\.27/);
    t.match(versionWarning('2.10.26'), /below 2\.10\.27/);
    t.match(versionWarning('2.8.4'), /too old/);
  });
  t.test('what a server did not take over of a stream’s configuration', async (t) => {
    const wanted = {
      name: 'A',
      storage: 'file',
      allow_direct: true,
      deny_purge: false,
      republish: { src: 'a', dest: 'b' },
      subjects: ['a'],
    };
    t.strictSame(
      differences(wanted, { ...wanted, deny_purge: undefined, republish: { src: 'a', dest: 'b', headers_only: false }, extra: 1 }),
      [],
    );
    t.strictSame(differences(wanted, { name: 'A', storage: 'memory', subjects: ['a', 'b'], republish: { src: 'a', dest: 'c' } }), [
      'storage: "file" (the server has "memory")',
      'allow_direct: true (the server has nothing)',
      'republish: {"src":"a","dest":"b"} (the server has {"src":"a","dest":"c"})',
      'subjects: ["a"] (the server has ["a","b"])',
    ]);
  });
  t.test('sequence numbers of a republished message, or that it is none', async (t) => {
    const message = (headers: Record<string, string>): BusMessage => ({
      subject: 'p.a',
      data: bytes('x'),
      reply: '',
      header: (name) => headers[name] ?? null,
    });
    const good = { 'Nats-Stream': 'S', 'Nats-Subject': 's.a', 'Nats-Sequence': '7', 'Nats-Last-Sequence': '0' };
    t.match(republished(message(good)), { stream: 'S', subject: 's.a', seq: 7, lastSeq: 0 });
    t.equal(republished(message({})), null);
    t.equal(
      republished({ ...message(good), reply: '$JS.ACK.S.c.1.1.1.1.0' }),
      null,
      'given out by a consumer, to a subject that somebody chose',
    );
    for (const bad of ['', '-1', '1.5', 'x', '0', '99999999999999999999'])
      t.equal(republished(message({ ...good, 'Nats-Sequence': bad })), null, bad);
  });
  t.test('options that make no sense are refused at once', async (t) => {
    const options = { name: 'x', clock: realClock, random: new SeededRandom(1) };
    t.throws(() => Bus.open({ ...options, servers: [] }), /address/);
    t.throws(() => Bus.open({ ...options, servers: ['http://x'] }), /nats:\/\//);
    t.throws(() => Bus.open({ ...options, servers: ['nats://x'], inboxPrefix: 'mine' }), /_INBOX/);
    t.throws(() => Bus.open({ ...options, servers: ['nats://x'], inboxPrefix: '_INBOX.>' }), /wildcard/);
  });
});

t.test('messages and requests', async (t) => {
  const server = await NatsServer.start(t);
  const notices: string[] = [];
  const bus = await server.connect({ notice: (level, text) => notices.push(`${level} ${text}`) });
  const other = await server.connect();

  t.test('what is published arrives with its headers at everybody, and at one of a queue', async (t) => {
    const got: string[] = [];
    const listen = (who: string) => (message: BusMessage) =>
      void got.push(`${who} ${message.subject} ${words(message)} ${message.header('Reach-X')} ${message.header('none')}`);
    const open = [
      bus.subscribe('m.*', listen('a')),
      other.subscribe('m.1', listen('b')),
      bus.subscribe('m.1', listen('q'), { queue: 'q' }),
      bus.subscribe('m.1', listen('q'), { queue: 'q' }),
    ];
    await other.request('nobody', bytes(''), 1_000); // the server has read the subscriptions
    t.equal(bus.publish('m.1', bytes('hi'), { 'Reach-X': 'grün' }), true);
    await waitUntil('three copies', () => got.length >= 3);
    t.strictSame(got.sort(), ['a m.1 hi grün null', 'b m.1 hi grün null', 'q m.1 hi grün null']);
    for (const each of open) each.close();
    bus.publish('m.1', bytes('again'));
    await bus.request('nobody', bytes(''), 1_000);
    t.equal(got.length, 3, 'a closed subscription gets nothing');
  });

  t.test('a handler that throws, now or later, is reported and harms nobody', async () => {
    const got: string[] = [];
    bus.subscribe('h.1', () => {
      throw new Error('at once');
    });
    bus.subscribe('h.1', async () => {
      await aTurn();
      throw new Error('later');
    });
    bus.subscribe('h.1', (message) => void got.push(words(message)));
    bus.publish('h.1', bytes('1'));
    bus.publish('h.1', bytes('2'));
    await waitUntil('both arrive', () => got.length === 2);
    await waitUntil('both are reported', () =>
      ['at once', 'later'].every((text) => notices.filter((each) => each.includes(text)).length === 2),
    );
  });

  t.test('a request is answered, or meets nobody, or silence, or a handler that breaks', async (t) => {
    other.serve('r.echo', (message) => bytes(`${words(message)}!`));
    other.serve('r.broken', () => Promise.reject(new Error('no')));
    other.serve('r.silent', () => null);
    await other.request('nobody', bytes(''), 1_000);
    const reply = await bus.request('r.echo', bytes('hi'), 1_000);
    t.equal(reply.kind === 'ok' && words(reply.message), 'hi!');
    t.strictSame(await bus.request('r.nobody', bytes(''), 1_000), { kind: 'no_responder' });
    t.strictSame(await bus.request('r.silent', bytes(''), 50), { kind: 'timeout' });
    t.match(await bus.request('r.broken', bytes(''), 1_000), { kind: 'refused', why: /broke/ });
  });

  t.test('whoever is asked by name answers at an address of its own, which says nothing of where other answers come to', async (t) => {
    const places: string[] = [];
    other.serve('r.who', (message) => {
      places.push(message.reply);
      return message.data.length === 0 ? null : message.data;
    });
    await other.request('nobody', bytes(''), 1_000);
    const replies = await Promise.all(['a', 'b'].map((each) => bus.request('r.who', bytes(each), 1_000, undefined, 'one')));
    t.same(
      replies.map((reply) => reply.kind === 'ok' && words(reply.message)),
      ['a', 'b'],
    );
    t.ok(places.every((place) => /^_INBOX\.(?:[^.]+\.)?told\.one\.[a-z2-7]{22}$/.test(place)) && places[0] !== places[1], places.join(' '));
    t.strictSame(await bus.request('r.nobody', bytes('x'), 1_000, undefined, 'one'), { kind: 'no_responder' });
    t.strictSame(await bus.request('r.who', bytes(''), 50, undefined, 'one'), { kind: 'timeout' });
    t.match(await bus.request('r.who', bytes('x'), 50, undefined, 'one.>'), { kind: 'refused', why: /name/ });
  });

  t.test('many requests at a time each get their own answer', async (t) => {
    const replies = await Promise.all(Array.from({ length: 500 }, (_, i) => bus.request('r.echo', bytes(String(i)), 5_000)));
    t.ok(replies.every((reply, i) => reply.kind === 'ok' && words(reply.message) === `${i}!`));
  });

  t.test('an answer is never sent to anything but an inbox: else whoever asks could publish as we', async (t) => {
    const got: string[] = [];
    let asked = 0;
    const serving = bus.serve('r.deputy', () => {
      asked++;
      return bytes('secret');
    });
    other.subscribe('ar.push.scope', (message) => void got.push(words(message)));
    await other.request('nobody', bytes(''), 1_000);
    const { connect } = await import('nats');
    const rogue = await connect({ servers: server.url });
    rogue.publish('r.deputy', bytes(''), { reply: 'ar.push.scope' });
    rogue.publish('r.deputy', bytes(''));
    await rogue.flush();
    await rogue.close();
    await waitUntil('both are noted', () => notices.filter((each) => each.includes('no inbox')).length === 2);
    await other.request('nobody', bytes(''), 1_000);
    t.strictSame({ asked, got }, { asked: 0, got: [] });
    serving.close();
  });

  t.test('hostile subjects and headers are refused before a byte leaves, and the connection is the same after', async (t) => {
    const before = await server.connections();
    const mine = (list: readonly { cid: number; in_msgs?: number; name?: string }[]) => list.find((each) => each.name === before[0]?.name);
    await bus.request('nobody', bytes(''), 1_000);
    const sentBefore = mine(await server.connections())?.in_msgs;
    for (const subject of HOSTILE_SUBJECTS) {
      t.equal(bus.publish(subject, bytes('x')), false, JSON.stringify(subject.slice(0, 30)));
      t.match(await bus.request(subject, bytes('x'), 100), { kind: 'refused', why: /subject/ });
      t.match(await bus.append(subject, bytes('x')), { failed: /subject/, ambiguous: false });
      t.match(await bus.last('AR_CFG', subject), { failed: /subject/ });
    }
    for (const pattern of ['a b', 'a..b', 'a\r\nPUB x 0\r\n\r\n', 'a.b*']) t.match(bus.subscribe(pattern, () => {}).refused, /subscribe/);
    t.match(bus.subscribe('a', () => {}, { queue: 'q 1' }).refused, /subscribe/);
    t.equal(bus.publish('a', bytes('x'), { X: 'a\r\nY: b' }), false);
    t.match(await bus.request('a', bytes('x'), 100, { 'X\r\n': 'a' }), { kind: 'refused', why: /header/ });
    t.match(await bus.append('a', bytes('x'), { msgId: 'a\nb' }), { failed: /header/, ambiguous: false });
    t.match(await bus.last('AR CFG', 'a'), { failed: /subject/ });
    t.match(await bus.stream('A.*'), { failed: /subject/ });
    const after = await server.connections();
    t.strictSame(new Set(after.map((each) => each.cid)), new Set(before.map((each) => each.cid)), 'nobody had to connect anew');
    t.type(sentBefore, 'number');
    t.equal(mine(after)?.in_msgs, sentBefore, 'and nothing was sent');
    t.match(await bus.request('r.echo', bytes('still'), 1_000), { kind: 'ok' });
  });

  t.test('what is larger than the server takes is refused here, headers counted', async (t) => {
    t.equal(bus.maxPayload, 1_048_576);
    t.match(await bus.request('r.echo', Buffer.alloc(1_048_577), 1_000), { kind: 'refused', why: /1048577 bytes/ });
    t.match(await bus.request('r.echo', Buffer.alloc(1_048_570), 1_000, { a: 'b' }), { kind: 'refused', why: /bytes/ });
    t.equal(bus.publish('m.1', Buffer.alloc(1_048_577)), false);
    t.match(await bus.append('m.1', Buffer.alloc(1_048_577)), { failed: /bytes/, ambiguous: false });
    t.equal(bus.publish('m.1', Buffer.alloc(1_048_576)), true);
    t.match(await bus.request('r.echo', bytes('still'), 1_000), { kind: 'ok' });
  });

  t.test('the version of the server is known, and what is wrong with it', async (t) => {
    t.match(bus.serverVersion, /^\d+\.\d+\.\d+/);
    t.equal(bus.serverWarning, versionWarning(bus.serverVersion));
    t.equal(notices.filter((each) => each.includes('below 2.10.27')).length, bus.serverWarning === null ? 0 : 1);
  });
});

t.test('streams', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await server.connect();

  t.test('a stream is made, found as it should be, changed, and read back', async (t) => {
    t.equal(await bus.stream('AR_CFG'), null);
    t.match(await bus.ensureStream(CFG), { change: 'created', ignored: [], facts: { name: 'AR_CFG', lastSeq: 0, consumers: 0 } });
    t.match(await bus.ensureStream(CFG), { change: 'none', ignored: [] });
    t.match(await bus.ensureStream({ ...CFG, maxBytes: 50_000_000, description: 'd' }), { change: 'updated', ignored: [] });
    t.match(await bus.ensureStream(CFG), { change: 'none' }, 'what is not said stays');
    t.match(await bus.stream('AR_CFG'), { name: 'AR_CFG', subjects: ['ar.x.cfg.>'], created: /^\d{4}-/ });
  });

  t.test('what the server does not know is named, what it cannot change fails in its words', async (t) => {
    const ready = await bus.ensureStream({ ...CFG, extra: { no_such_field: true } });
    if ('ignored' in ready) t.strictSame(ready.ignored, ['no_such_field: true (the server has nothing)']);
    else t.match(ready.failed, /no_such_field|invalid/, 'newer servers refuse what they do not know');
    t.match(await bus.ensureStream({ ...CFG, storage: 'memory' }), { failed: /storage/ });
    t.match(
      await bus.ensureStream({ ...CFG, subjects: ['ar.y.cfg.>'] }),
      { failed: /holds something else: ar\.x\.cfg\.>/ },
      'another environment’s stream is not taken over',
    );
    t.match(await bus.ensureStream({ name: 'B', subjects: ['ar.x.>'] }), { failed: /overlap/ });
  });

  t.test('ten that make the same stream at a time all have it', async (t) => {
    const all = await Promise.all(
      Array.from({ length: 10 }, () => bus.ensureStream({ name: 'TEN', subjects: ['ten.>'], maxMsgsPerSubject: 1 })),
    );
    for (const each of all) t.match(each, { ignored: [], facts: { name: 'TEN' } });
  });

  t.test('a write with an expectation: of the stream’s sequence, of the subject’s, of an id', async (t) => {
    t.match(await bus.append('ar.x.cfg.a', bytes('1'), { expectLastSeq: 0 }), { seq: 1, duplicate: false });
    t.strictSame(await bus.append('ar.x.cfg.b', bytes('x'), { expectLastSeq: 0 }), { conflict: 1 });
    t.match(await bus.append('ar.x.cfg.b', bytes('2'), { expectLastSeq: 1, stream: 'AR_CFG' }), { seq: 2 });
    t.strictSame(await bus.append('ar.x.cfg.b', bytes('x'), { expectLastSubjectSeq: 0 }), { conflict: 2 });
    t.match(await bus.append('ar.x.cfg.a', bytes('3'), { expectLastSubjectSeq: 1 }), { seq: 3 });
    t.match(await bus.append('ar.x.cfg.c', bytes('4'), { expectLastSubjectSeq: 0, msgId: 'once' }), { seq: 4, duplicate: false });
    t.match(await bus.append('ar.x.cfg.c', bytes('4'), { msgId: 'once' }), { seq: 4, duplicate: true });
    t.match(await bus.append('ar.x.cfg.d', bytes('x'), { stream: 'TEN' }), { failed: /stream/, ambiguous: false });
    t.match(await bus.append('ar.x.nothing', bytes('x')), { failed: /no stream takes it/, ambiguous: false });
  });

  t.test('of a hundred that write with the same expectation one is stored', async (t) => {
    const all = await Promise.all(
      Array.from({ length: 100 }, (_, i) => bus.append('ar.x.cfg.race', bytes(String(i)), { expectLastSeq: 4 })),
    );
    t.equal(all.filter((each) => 'seq' in each).length, 1);
    t.equal(all.filter((each) => 'conflict' in each).length, 99);
  });

  t.test('an answer that is not JetStream’s is no success', async (t) => {
    bus.serve('fake', () => bytes('{}'));
    t.match(await bus.append('fake', bytes('x')), { failed: /JetStream/, ambiguous: true });
  });

  t.test('the last message of a subject, null for none, words for no stream', async (t) => {
    t.match(await bus.last('AR_CFG', 'ar.x.cfg.a'), { subject: 'ar.x.cfg.a', seq: 3, data: bytes('3') });
    const stored = await bus.last('AR_CFG', 'ar.x.cfg.a');
    t.ok(stored !== null && 'seq' in stored && Math.abs(stored.timestampMs - realClock.wallMs()) < 60_000);
    t.equal(await bus.last('AR_CFG', 'ar.x.cfg.none'), null);
    t.match(await bus.last('NONE', 'ar.x.cfg.a', 200), { failed: /reading/ });
  });

  t.test('all the last messages of a pattern, by sequence, and the sequence from before', async (t) => {
    for (let i = 0; i < 300; i++) await bus.append(`ar.x.cfg.reg.n${i % 150}`, bytes(String(i)));
    const all = await bus.readAll('AR_CFG', 'ar.x.cfg.reg.*');
    t.ok('messages' in all);
    if (!('messages' in all)) return;
    t.strictSame(
      all.messages.map((each) => each.data.toString()),
      Array.from({ length: 150 }, (_, i) => String(i + 150)),
    );
    const facts = await bus.stream('AR_CFG');
    t.equal(all.lastSeq, facts !== null && 'lastSeq' in facts ? facts.lastSeq : -1);
    t.match(await bus.readAll('AR_CFG', 'ar.x.cfg.none.*'), { messages: [] });
    t.match(await bus.readAll('NONE', 'a'), { failed: /not found/ });
  });

  t.test('the history of a subject, oldest first, from a sequence on, up to a limit', async (t) => {
    await bus.ensureStream({ name: 'AR_OPS', subjects: ['ar.x.ops.>'] });
    for (let i = 1; i <= 5; i++) for (const tail of ['policies', 'audit']) await bus.append(`ar.x.ops.${tail}`, bytes(`${tail}${i}`));
    const texts = async (limit?: number, fromSeq?: number): Promise<string[]> => {
      const found = await bus.history('AR_OPS', 'ar.x.ops.policies', limit, fromSeq);
      return 'failed' in found ? [found.failed] : found.map((each) => each.data.toString());
    };
    t.strictSame(await texts(), ['policies1', 'policies2', 'policies3', 'policies4', 'policies5']);
    t.strictSame(await texts(2, 4), ['policies3', 'policies4']);
    t.strictSame(await texts(10, 100), []);
  });

  t.test('what is stored is published again, with its own and the last sequence of its subject', async (t) => {
    const seen: string[] = [];
    const hear = (message: BusMessage): void => {
      const it = republished(message);
      seen.push(`${it?.subject} ${it?.stream} ${(it?.seq ?? 0) - (it?.lastSeq ?? 0)} ${it?.lastSeq === 0} ${words(message)}`);
    };
    const watching = bus.subscribe('ar.x.push.cap.>', hear, { pushed: true });
    await bus.append('ar.x.cfg.cap.q', bytes('1'));
    await bus.append('ar.x.cfg.other', bytes('-'));
    await bus.append('ar.x.cfg.cap.q', bytes('2'));
    await waitUntil('both', () => seen.length === 2);
    t.match(seen[0], /^ar\.x\.cfg\.cap\.q AR_CFG \d+ true 1$/);
    t.equal(seen[1], 'ar.x.cfg.cap.q AR_CFG 2 false 2');
    watching.close();
  });

  t.test('and after all this reading there is no consumer', async (t) => {
    t.equal(await server.consumers(), 0);
  });
});

t.test('when the server goes and comes', async (t) => {
  const server = await NatsServer.start(t);
  const states: BusState[] = [];
  const notices: string[] = [];
  const bus = await server.connect({ notice: (level, text) => notices.push(`${level} ${text}`) });
  bus.onState((state) => states.push(state));
  bus.onState(() => {
    throw new Error('a listener');
  });
  const got: string[] = [];
  bus.subscribe('g.>', (message) => void got.push(words(message)));
  const echo = bus.serve('g2.echo', (message) => message.data);
  bus.serve('g2.silent', () => null);

  t.test('who waits for an answer is told at once, and nothing is taken meanwhile', async (t) => {
    const waiting = bus.request('g2.silent', bytes(''), 60_000);
    const reading = bus.append('g2.silent', bytes(''), { timeoutMs: 60_000 });
    await bus.request('nobody', bytes(''), 1_000);
    await server.kill();
    t.strictSame(await waiting, { kind: 'unreachable', sent: true });
    t.match(await reading, { failed: /broke/, ambiguous: true });
    await waitUntil('it is known', () => !bus.connected);
    t.equal(bus.publish('g.1', bytes('lost')), false);
    t.strictSame(await bus.request('g2.echo', bytes(''), 1_000), { kind: 'unreachable', sent: false });
    t.match(await bus.append('g.1', bytes('')), { failed: /no connection/, ambiguous: false });
    t.match(await bus.last('A', 'g.1'), { failed: /no connection/ });
    t.match(bus.state, { connected: false, reconnects: 0, why: /./ });
    t.equal(await bus.ready(30), false);
  });

  t.test('and then everything is as it was: subscriptions stand before the connection is told', async (t) => {
    let isHeard: Promise<unknown> | null = null;
    const listening = bus.onState((state) => {
      if (state.connected) isHeard ??= bus.request('g2.echo', bytes('x'), 1_000);
    });
    await server.restart();
    t.equal(await bus.ready(10_000), true);
    t.match(await (isHeard as Promise<unknown> | null), { kind: 'ok' });
    listening.close();
    bus.publish('g.1', bytes('back'));
    await waitUntil('it arrives', () => got.includes('back'));
    t.strictSame(got, ['back']);
    t.match(bus.state, { connected: true, reconnects: 1, why: '' });
    t.equal(states.at(-1)?.connected, true);
    t.equal(states[0]?.connected, false);
    t.ok(
      notices.some((each) => each.includes('a listener')),
      'a listener that throws is reported',
    );
    echo.close();
    t.match(await bus.request('g2.echo', bytes(''), 500), { kind: 'no_responder' });
  });

  t.test('a server that is halted is found out by its silence, and used again when it goes on; no connection is left behind', async (t) => {
    const said: string[] = [];
    const hasty = await server.connect({ name: 'hasty', pingEveryMs: 60, dialTimeoutMs: 80, notice: (_, text) => said.push(text) });
    server.pause();
    const waiting = hasty.request('g2.silent', bytes(''), 20_000);
    await waitUntil('it is given up', () => !hasty.connected);
    t.strictSame(await waiting, { kind: 'unreachable', sent: true });
    t.ok(said.some((text) => text.includes('no sign of life')));
    await waitUntil('it was dialled in vain', () => hasty.state.why.includes('no word'), 5_000);
    t.equal(hasty.publish('g.1', bytes('x')), false);
    await new Promise((done) => setTimeout(done, 1_000)); // some more attempts
    server.resume();
    t.equal(await hasty.ready(10_000), true);
    t.match(await hasty.request('nobody', bytes(''), 1_000), { kind: 'no_responder' });
    await waitUntil('one connection each', async () => (await server.connections()).filter((each) => each.name !== undefined).length === 2);
    await waitUntil('and none without a name', async () => (await server.connections()).length === 2);
    await hasty.close();
  });

  t.test('what a halted server does not read is not piled up without end', async (t) => {
    const sender = await server.connect({ name: 'sender', pingEveryMs: 60_000 });
    server.pause();
    const megabyte = Buffer.alloc(1_000_000);
    let sent = 0;
    while (sent < 100 && sender.publish('g3.x', megabyte)) sent++;
    t.ok(sent >= 10 && sent < 40, `${sent} MB`);
    server.resume();
    await waitUntil('it takes more when the server has read', () => sender.publish('g3.x', megabyte), 10_000);
    await sender.close();
  });

  t.test('a halted server is given up also when the way to it is full', async (t) => {
    const sender = await server.connect({ name: 'full', pingEveryMs: 100 });
    server.pause();
    while (sender.publish('g3.x', Buffer.alloc(1_000_000)));
    const begun = performance.now();
    await waitUntil('it is given up', () => !sender.connected, 5_000);
    t.ok(performance.now() - begun < 2_000);
    server.resume();
    t.equal(await sender.ready(10_000), true);
    await sender.close();
  });

  t.test('a server that is not there at the start is waited for', async (t) => {
    await server.stop();
    const early = server.open({ name: 'early' });
    const hears: string[] = [];
    early.subscribe('e.1', (message) => void hears.push(words(message)));
    t.equal(await early.ready(150), false);
    t.match(early.state.why, /ECONNREFUSED/);
    await server.restart();
    t.equal(await early.ready(10_000), true);
    t.equal(early.state.reconnects, 0);
    early.publish('e.1', bytes('1'));
    await waitUntil('it hears', () => hears.length === 1);
  });

  t.test('of several servers one that is there is used', async (t) => {
    const some = server.open({ servers: ['nats://127.0.0.1:1', server.url, 'nats://127.0.0.1:2'], name: 'some' });
    t.equal(await some.ready(5_000), true);
    await some.close();
  });

  t.test('closing ends it: told to everybody, nothing is dialled again, also while it waits', async (t) => {
    const some = await server.connect({ name: 'to-close' });
    const told: boolean[] = [];
    some.onState((state) => told.push(state.connected));
    const waiting = some.request('g2.silent', bytes(''), 60_000);
    await some.close();
    await some.close();
    t.strictSame(await waiting, { kind: 'unreachable', sent: true });
    t.strictSame(told, [false]);
    t.match(some.state, { connected: false, why: 'closed' });
    t.equal(await some.ready(10_000), false);
    const idle = Bus.open({ servers: ['nats://127.0.0.1:1'], name: 'x', clock: realClock, random: new SeededRandom(1) });
    const ready = idle.ready(60_000);
    await waitUntil('it has tried', () => idle.state.why.includes('REFUSED'));
    await idle.close();
    t.equal(await ready, false);
  });

  t.test('what was published just before closing arrives', async () => {
    const some = await server.connect({ name: 'last-words' });
    for (let i = 0; i < 100; i++) some.publish('g.last', bytes('last'));
    await some.close();
    await waitUntil('all of it', () => got.filter((each) => each === 'last').length === 100);
  });
});

t.test('twenty clients that are dropped again and again come back spread out, and leave nothing behind at the server', async (t) => {
  const server = await NatsServer.start(t);
  const proxy = await NatsProxy.start(t, server.process.port);
  let backAt: number[] = [];
  const buses = Array.from({ length: 20 }, (_, i) => {
    const bus = server.open({ servers: [proxy.url], name: `storm-${i}`, pace: DEFAULT_PACE, random: new SeededRandom(100 + i) });
    bus.onState((state) => {
      if (state.connected) backAt.push(performance.now());
    });
    bus.subscribe('ar.x.push.>', () => {});
    return bus;
  });
  await waitUntil('all are there', () => backAt.length === 20);
  for (let drop = 1; drop <= 3; drop++) {
    backAt = [];
    proxy.cut();
    await waitUntil('all are back', () => backAt.length === 20 && buses.every((bus) => bus.connected), 6_000);
    const most = Math.max(...backAt.map((from) => backAt.filter((at) => at >= from && at < from + 100).length));
    t.ok(most <= 6, `drop ${drop}: at most ${most} of 20 within a tenth of a second`);
    t.ok(buses.every((bus) => bus.state.reconnects === drop));
  }
  await waitUntil('the server has one connection each', async () => (await server.connections()).length === 20);
  t.equal(await server.consumers(), 0);
  t.ok(proxy.accepted <= 20 * 2 * 4, `${proxy.accepted} connections were made in all`);
});

t.test('what the server does not allow', async (t) => {
  const server = await NatsServer.start(
    t,
    `authorization { users = [
       { user: all, password: all }
       { user: one, password: one, permissions: {
           publish: ["ar.x.report.one", "$JS.API.DIRECT.GET.AR_CFG.ar.x.cfg.scope.one"]
           subscribe: ["_INBOX_one.>", "ar.x.push.scope.one"] } } ] }`,
  );
  const all = await server.connect({ credential: () => ({ user: 'all', password: 'all' }) });
  await all.ensureStream(CFG);
  await all.append('ar.x.cfg.scope.one', bytes('mine'));
  await all.append('ar.x.cfg.scope.two', bytes('not mine'));
  const notices: string[] = [];
  const one = await server.connect({
    credential: () => ({ user: 'one', password: 'one' }),
    inboxPrefix: '_INBOX_one',
    notice: (level, text) => notices.push(`${level} ${text}`),
  });

  t.test('is refused at once and by name, and nothing else suffers', async (t) => {
    t.match(await one.last('AR_CFG', 'ar.x.cfg.scope.one'), { data: bytes('mine') });
    const begun = performance.now();
    t.match(await one.last('AR_CFG', 'ar.x.cfg.scope.two'), { failed: /no permission/ });
    t.match(await one.append('ar.x.cfg.scope.one', bytes('forged')), { failed: /no permission/, ambiguous: false });
    t.match(await one.request('ar.x.ctl.hello', bytes(''), 5_000), { kind: 'refused', why: /no permission/ });
    t.match(await one.readAll('AR_CFG', 'ar.x.cfg.>'), { failed: /no permission/ });
    t.ok(performance.now() - begun < 2_000, 'without waiting for a time-out');
    t.match(await one.last('AR_CFG', 'ar.x.cfg.scope.one'), { data: bytes('mine') });
    t.equal(one.state.reconnects, 0);
  });

  t.test('a subscription says that it is not in force', async (t) => {
    const wide = one.subscribe('ar.x.push.>', () => {});
    const own = one.subscribe('ar.x.push.scope.one', () => {});
    await waitUntil('it is known', () => wide.refused !== null);
    t.match(wide.refused, /no permission to subscribe to "ar\.x\.push\.>"/);
    t.equal(own.refused, null);
    t.ok(notices.some((each) => each.includes('no permission to subscribe')));
  });

  t.test('a refused credential is tried again until it is right, however often it was wrong', async (t) => {
    let password = 'wrong';
    let asked = 0;
    const late = server.open({
      credential: () => {
        asked++;
        return { user: 'all', password };
      },
    });
    await waitUntil('four attempts', () => asked >= 4, 10_000);
    t.match(late.state.why, /Authorization/i);
    password = 'all';
    t.equal(await late.ready(10_000), true);
  });

  t.test('a login in the address works too', async (t) => {
    const url = server.url.replace('nats://', 'nats://all:all@');
    t.equal(await server.open({ servers: [url] }).ready(5_000), true);
  });
});
