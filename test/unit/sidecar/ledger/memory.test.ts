/** The ledger's parts that need no NATS: the record as it is written, leases of others, and the ledger of a process without a bus. */
import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { Claim, ClaimAsk, Claimed, KeptResult } from '../../../../sidecar/ledger/ledger.ts';
import { Leases } from '../../../../sidecar/ledger/leases.ts';
import { MemoryLedger } from '../../../../sidecar/ledger/memory-ledger.ts';
import { bare, ClaimRecord, encodeRecord, fitted, hashWith, readRecord, reuseOf } from '../../../../sidecar/ledger/record.ts';

const DAY_MS = 86_400_000;

function askOf(id: string, more: Partial<ClaimAsk> = {}): ClaimAsk {
  return {
    id,
    caller: 'web.desk.1',
    capability: 'crm.order.query',
    version: '2.0.0',
    payloadHash: 'h',
    execution: 'once',
    key: 'käy "1"',
    taskId: `t-${id}`,
    worker: 'crm.order.1',
    ...more,
  };
}

function result(body: string): KeptResult {
  return {
    code: 0,
    status: 200,
    contentType: 'application/json',
    provider: 'crm.order.1',
    version: '2.0.0',
    detail: '',
    body: Buffer.from(body),
    leftOutBytes: 0,
    marks: null,
  };
}

function held(claimed: Claimed): Claim {
  if (claimed.kind !== 'claimed') throw new Error(`not claimed: ${JSON.stringify(claimed)}`);
  return claimed.claim;
}

t.test('a record is read as it was written, whatever bytes its result has', (t) => {
  const bytes = Buffer.from([0x0a, 0, 0xff, 0x7b, 0x0a]);
  for (const record of [
    new ClaimRecord('executing', askOf('x'), 'n', 0, 1, 15_000, null, ''),
    new ClaimRecord('done', askOf('x', { execution: 'keyed' }), 'n', 3, 2, 15_000, { ...result(''), body: bytes }, ''),
    new ClaimRecord('done', askOf('x'), 'n', 3, 2, 15_000, fitted(result('12345'), 4), ''),
    ...[
      { degraded: true, definitely: false, headers: null },
      { degraded: false, definitely: true, headers: null },
      { degraded: false, definitely: false, headers: { location: '/orders/7', etag: '"7"' } },
    ].map((marks) => new ClaimRecord('done', askOf('x'), 'n', 3, 2, 15_000, { ...result('1'), marks }, '')),
    new ClaimRecord('released', askOf('x'), 'n', 1, 0, 15_000, null, ''),
    new ClaimRecord('released', askOf('x'), 'n', 1, 1, 15_000, null, '', true),
    new ClaimRecord('unknown', askOf('x', { worker: '' }), 'n', 1, 7, 15_000, null, 'crm.order.1 vanished\n'),
  ]) {
    const data = encodeRecord(record);
    t.strictSame(readRecord('x', data), record);
    const read = readRecord('x', data);
    data.fill(0x20);
    t.strictSame(read, record, 'nothing of it is a view into what was received');
  }
  t.end();
});

t.test('what is no record of this form is none', (t) => {
  const good = JSON.parse(encodeRecord(new ClaimRecord('executing', askOf('x'), 'n', 0, 1, 15_000, null, '')).toString()) as object;
  const read = (line: unknown): ClaimRecord | null => readRecord('x', Buffer.from(`${JSON.stringify(line)}\n`));
  t.not(read(good), null);
  for (const other of [
    { wire: 2 },
    { wire: undefined },
    { state: 'finished' },
    { execution: 'twice' },
    { state: 'done' },
    { state: 'done', result: 1 },
  ])
    t.equal(read({ ...good, ...other }), null, JSON.stringify(other));
  for (const text of ['', '{}', 'null\n', '[]\n', '{"wire":1', 'x\n', '\n'])
    t.equal(readRecord('x', Buffer.from(text)), null, JSON.stringify(text));
  t.match(read({ ...good, tries: -1, step: 1.5, lease_ms: '15' }), { tries: 0, step: 0, leaseMs: 0 }, 'a number that is none is 0');
  t.end();
});

t.test('a key belongs to one payload and one major version', (t) => {
  const record = new ClaimRecord('executing', askOf('x'), 'n', 0, 1, 15_000, null, '');
  t.equal(reuseOf(record, askOf('x', { version: '2.9.1' })), null);
  t.match(reuseOf(record, askOf('x', { version: '20.0.0' })), /another major version than 20\.0\.0/);
  t.match(reuseOf(record, askOf('x', { payloadHash: 'other' })), /another payload/);
  const { payloadHash } = askOf('x');
  const of = (hash: string) => new ClaimRecord('executing', askOf('x', { payloadHash: hash }), 'n', 0, 1, 15_000, null, '');
  const asked = (credentials: string) => askOf('x', { payloadHash: hashWith(payloadHash, credentials) });
  t.equal(reuseOf(of(hashWith(payloadHash, 'c')), asked('c')), null);
  t.match(reuseOf(of(hashWith(payloadHash, 'd')), asked('c')), /other credentials/);
  t.match(reuseOf(of(hashWith(payloadHash, '')), asked('c')), /other credentials/, 'nothing is a credential of its own');
  t.match(reuseOf(of(hashWith('other', 'c')), asked('c')), /another payload/);
  t.equal(reuseOf(of(payloadHash), asked('c')), null, 'a record of before credentials were looked at');
  t.match(reuseOf(of('other'), asked('c')), /another payload/);
  t.end();
});

t.test('a result is kept whole, or not at all', (t) => {
  t.equal(fitted(result('1234'), 4).body.toString(), '1234');
  t.match(fitted(result('12345'), 4), { leftOutBytes: 5, status: 200 });
  t.equal(fitted(result('12345'), 4).body.length, 0);
  t.equal(fitted(result(''), 0).leftOutBytes, 0, 'nothing is no loss');
  const marks = { degraded: true, definitely: true, headers: { location: '/1' } };
  t.match(fitted({ ...result('12345'), marks }, 4), { marks });
  t.strictSame(bare({ ...result('12345'), marks }).marks, { ...marks, headers: null }, 'a claim has room for no more');
  t.end();
});

t.test('a lease of another is over when nothing was seen of it for so long, or by what the server has stamped since', async (t) => {
  const clock = new VirtualClock();
  const leases = new Leases(clock);
  const left = (seq: number, atMs = 1_000_000): number => leases.leftMs('x', seq, atMs, 15_000);
  t.equal(left(1), 15_000, 'however old it looks by a clock of ours');
  await clock.advance(10_000);
  t.equal(left(1), 5_000);
  t.equal(left(2), 15_000, 'extended: another sequence');
  await clock.advance(14_999);
  t.equal(left(2), 1);
  await clock.advance(1);
  t.equal(left(2), 0);
  t.equal(left(3), 15_000);
  leases.noteServerTime(1_014_000);
  t.equal(left(3), 1_000, 'the server is that far already');
  leases.noteServerTime(900_000);
  t.equal(left(3), 1_000, 'and never goes back');
  leases.noteServerTime(1_015_000);
  t.equal(left(3), 0);
  t.equal(left(4, 1_014_000), 14_000);
});

t.test('when the server was away and is back, every lease begins anew: nobody could extend one meanwhile', async (t) => {
  const clock = new VirtualClock();
  const leases = new Leases(clock);
  const left = (atMs: number): number => leases.leftMs('x', 1, atMs, 15_000);
  t.equal(left(1_000_000), 15_000);
  await clock.advance(60_000);
  leases.noteReturn();
  leases.noteServerTime(1_060_000);
  t.equal(left(1_000_000), 15_000, 'over by our clock and by that of the server');
  await clock.advance(14_999);
  t.equal(left(1_000_000), 1);
  await clock.advance(1);
  t.equal(left(1_000_000), 0, 'its worker has had the time to say a word');
});

t.test('what is remembered of leases is bounded, and the oldest go first', async (t) => {
  const clock = new VirtualClock();
  const leases = new Leases(clock);
  for (let i = 0; i < 10_001; i++) leases.leftMs(`x${i}`, 1, 0, 15_000);
  await clock.advance(5_000);
  t.equal(leases.leftMs('x10000', 1, 0, 15_000), 10_000);
  t.equal(leases.leftMs('x0', 1, 0, 15_000), 15_000, 'seen anew: later than need be, never too early');
});

t.test('in memory: one has the key, others wait, then get its result, until its time is over', async (t) => {
  const clock = new VirtualClock();
  const ledger = new MemoryLedger(clock, { maxKeys: 10, maxBytes: 1_000, maxResultBytes: 100, keepMs: DAY_MS });
  const claim = held(await ledger.claim(askOf('x')));
  t.match(await ledger.claim(askOf('x')), { kind: 'executing', worker: 'crm.order.1' });
  t.match(await ledger.claim(askOf('x', { payloadHash: 'other' })), { kind: 'reused' });
  t.match(await ledger.look('x'), { kind: 'executing' });
  const bytes = Buffer.from('{"n":1}');
  t.equal(await claim.done({ ...result(''), body: bytes }), 'stored');
  bytes.fill(0);
  const done = await ledger.claim(askOf('x'));
  t.equal(done.kind === 'done' && done.result.body.toString(), '{"n":1}', 'a copy');
  t.equal(await claim.done(result('late')), 'fenced');
  t.equal(claim.held, false);
  t.equal(ledger.bytes, 7);
  await clock.advance(DAY_MS);
  t.equal(await ledger.look('x'), null);
  t.equal(ledger.size + ledger.bytes, 0);
  t.match(await ledger.claim(askOf('x')), { kind: 'claimed' });
});

t.test('in memory: what was released is free with its tries, what is unknown is in doubt', async (t) => {
  const ledger = new MemoryLedger(new VirtualClock(), { maxKeys: 10, maxBytes: 1_000, maxResultBytes: 100, keepMs: DAY_MS });
  t.equal(await held(await ledger.claim(askOf('x'))).release(true), true);
  const second = held(await ledger.claim(askOf('x')));
  t.equal(second.tries, 2);
  t.equal(await second.release(false), true);
  const third = held(await ledger.claim(askOf('x'), 5));
  t.equal(third.tries, 6, 'tries that are known from elsewhere count');
  t.equal(await second.release(true), false, 'who has let go has nothing to say');
  t.equal(await third.unknown('gone'), true);
  t.match(await ledger.claim(askOf('x')), { kind: 'in_doubt', tries: 6, moved: false });
});

t.test('in memory: a task that has ended does not get its key again, and others do', async (t) => {
  const ledger = new MemoryLedger(new VirtualClock(), { maxKeys: 10, maxBytes: 1_000, maxResultBytes: 100, keepMs: DAY_MS });
  t.equal(await held(await ledger.claim(askOf('x'))).ended(), true);
  t.strictSame(await ledger.claim(askOf('x')), { kind: 'ended' });
  const other = held(await ledger.claim(askOf('x', { taskId: 'other' })));
  t.equal(await other.release(true), true);
  t.match(await ledger.claim(askOf('x')), { kind: 'claimed' }, 'what was said of it was overwritten by the other one');
});

t.test('in memory: whoever leaves without a word is taken for one that vanished', async (t) => {
  const ledger = new MemoryLedger(new VirtualClock(), { maxKeys: 10, maxBytes: 1_000, maxResultBytes: 100, keepMs: DAY_MS });
  held(await ledger.claim(askOf('once'))).abandon();
  t.match(await ledger.claim(askOf('once')), { kind: 'in_doubt' });
  held(await ledger.claim(askOf('keyed', { execution: 'keyed' }))).abandon();
  const again = held(await ledger.claim(askOf('keyed', { execution: 'keyed' })));
  t.equal(again.tries, 2);
  t.equal(await again.done(result('1')), 'stored');
  again.abandon();
  t.match(await ledger.claim(askOf('keyed')), { kind: 'done' }, 'after its end it has nothing to leave');
});

t.test('in memory: full is said, and nothing is dropped before its time', async (t) => {
  const clock = new VirtualClock();
  const ledger = new MemoryLedger(clock, { maxKeys: 2, maxBytes: 150, maxResultBytes: 100, keepMs: DAY_MS });
  const a = held(await ledger.claim(askOf('a')));
  await clock.advance(1_000);
  const b = held(await ledger.claim(askOf('b')));
  t.match(await ledger.claim(askOf('c')), { kind: 'full', why: /memory_keys/ });
  t.equal(await a.done(result('x'.repeat(101))), 'too_large');
  t.match(await ledger.claim(askOf('a')), { kind: 'done', result: { leftOutBytes: 101 } });
  t.equal(await b.done(result('x'.repeat(100))), 'stored');
  await clock.advance(DAY_MS - 1_000);
  const c = held(await ledger.claim(askOf('c')));
  t.equal(await c.done(result('x'.repeat(60))), 'too_large', 'no room for it beside what is kept');
  t.match(await ledger.claim(askOf('b')), { kind: 'done' }, 'the other one is still there');
  await clock.advance(1_000);
  t.equal(await ledger.look('b'), null);
  t.equal(ledger.bytes, 0);
  t.equal(ledger.size, 1);
});

t.test('in memory: work that outlives the time of its key is told', async (t) => {
  const clock = new VirtualClock();
  const ledger = new MemoryLedger(clock, { maxKeys: 2, maxBytes: 150, maxResultBytes: 100, keepMs: 1_000 });
  const claim = held(await ledger.claim(askOf('a')));
  const lost: string[] = [];
  claim.onLost = (by) => void lost.push(by);
  await clock.advance(1_000);
  held(await ledger.claim(askOf('b')));
  t.strictSame(lost, ['fenced']);
  t.equal(claim.held, false);
  t.equal(await claim.done(result('1')), 'fenced');
});
