import t from 'tap';
import type { Test } from 'tap';
import { realClock } from '../../../../base/clock.ts';
import type { Bus } from '../../../../base/nats.ts';
import { SeededRandom } from '../../../../base/random.ts';
import { LEDGER_STREAM, Subjects } from '../../../../proto/wire/subjects.ts';
import type { Claim, ClaimAsk, Claimed, KeptResult } from '../../../../sidecar/ledger/ledger.ts';
import { NatsLedger } from '../../../../sidecar/ledger/nats-ledger.ts';
import { NatsServer } from '../../../support/nats.ts';
import { waitUntil } from '../../../support/settle.ts';

const subjects = new Subjects('test');
const sleep = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));
const warnings: string[] = [];

async function opened(t: Test, server: NatsServer, maxMsgs = 0, maxBytes = 0): Promise<Bus> {
  const bus = server.open();
  t.ok(await bus.ready(5_000));
  const ready = await bus.ensureStream({
    name: LEDGER_STREAM,
    description: 'keys',
    subjects: [subjects.ledger],
    storage: 'file',
    retention: 'limits',
    discard: 'new',
    maxMsgsPerSubject: 1,
    maxAgeMs: 86_400_000,
    allowDirect: true,
    ...(maxMsgs === 0 ? {} : { maxMsgs }),
    ...(maxBytes === 0 ? {} : { maxBytes }),
  });
  t.notOk('failed' in ready);
  return bus;
}

function ledgerOn(t: Test, bus: Bus, self: string, leaseMs = 15_000): NatsLedger {
  const log = { warn: (words: string) => void warnings.push(words) };
  const ledger = new NatsLedger({
    bus,
    subjects,
    clock: realClock,
    random: new SeededRandom(self.length),
    log,
    self,
    leaseMs,
    maxResultBytes: 1_000,
  });
  t.teardown(() => ledger.close());
  return ledger;
}

function askOf(id: string, more: Partial<ClaimAsk> = {}): ClaimAsk {
  return {
    id,
    caller: 'a.b.1',
    capability: 'crm.order.query',
    version: '2.0.0',
    payloadHash: 'h',
    execution: 'once',
    key: 'k',
    taskId: `t-${id}`,
    worker: 'w.w.1',
    ...more,
  };
}

function result(body: string): KeptResult {
  return {
    code: 0,
    status: 200,
    contentType: 'application/json',
    provider: 'w.w.1',
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

t.test('a call with a key costs two words to the server: its claim and its end; to be answered as before costs two as well', async (t) => {
  const server = await NatsServer.start(t);
  const one = ledgerOn(t, await opened(t, server), 'one');
  const two = ledgerOn(t, await opened(t, server), 'two');
  const watching = await opened(t, server);
  const heard: string[] = [];
  const watch = watching.subscribe('>', ({ subject }) => {
    // Answers go to inboxes; who asks for them is counted.
    if (!subject.startsWith('_INBOX')) heard.push(subject);
  });
  t.teardown(() => watch.close());
  const mark = async (name: string): Promise<void> => {
    await waitUntil(`${name} is heard`, () => {
      watching.publish(name, Buffer.alloc(0));
      return heard.includes(name);
    });
    heard.length = 0;
  };
  await mark('before');
  const claim = held(await one.claim(askOf('cost')));
  t.equal(await claim.done(result('{}')), 'stored');
  await waitUntil('both are heard', () => heard.filter((subject) => subject !== 'before').length >= 2);
  t.strictSame(
    heard.filter((subject) => subject !== 'before'),
    [subjects.idem('cost'), subjects.idem('cost')],
  );
  await mark('between');
  t.match(await two.claim(askOf('cost')), { kind: 'done' });
  const asked = heard.filter((subject) => subject !== 'between');
  t.ok(asked.length <= 2 && asked[0] === subjects.idem('cost'), asked.join(' '));
});

t.test('of two who claim, one has it; the other gets the result, from whatever sidecar', async (t) => {
  const server = await NatsServer.start(t);
  const one = ledgerOn(t, await opened(t, server), 'one');
  const two = ledgerOn(t, await opened(t, server), 'two');
  const claims = await Promise.all([one.claim(askOf('x')), two.claim(askOf('x')), one.claim(askOf('x')), two.claim(askOf('x'))]);
  t.strictSame(claims.map(({ kind }) => kind).sort(), ['claimed', 'executing', 'executing', 'executing']);
  const claim = held(claims.find(({ kind }) => kind === 'claimed') as Claimed);
  t.equal(claim.tries, 1);
  t.match(await two.look('x'), { kind: 'executing', worker: 'w.w.1', taskId: 't-x' });
  t.match(await two.claim(askOf('x', { payloadHash: 'other' })), { kind: 'reused' });
  t.match(await two.claim(askOf('x', { version: '3.0.0' })), { kind: 'reused' });
  t.equal(await claim.done(result('{"a":"\\n"}\nmore')), 'stored');
  t.equal(claim.held, false);
  const done = await two.claim(askOf('x', { version: '2.7.1' }));
  t.match(done, { kind: 'done', taskId: 't-x' });
  t.equal(done.kind === 'done' && done.result.body.toString(), '{"a":"\\n"}\nmore', 'byte by byte');
  t.equal(await claim.done(result('late')), 'stored', 'once more by the same worker is its own record');

  const large = held(await one.claim(askOf('large')));
  t.equal(await large.done(result('x'.repeat(1_001))), 'too_large');
  const left = await two.claim(askOf('large'));
  t.ok(left.kind === 'done' && left.result.leftOutBytes === 1_001 && left.result.body.length === 0);

  const free = held(await one.claim(askOf('free')));
  t.equal(await free.release(true), true);
  const second = held(await two.claim(askOf('free')));
  t.equal(second.tries, 2, 'tries are remembered');
  t.equal(await second.release(false), true);
  const third = held(await one.claim(askOf('free')));
  t.equal(third.tries, 2, 'but not those that did not count');
  t.equal(await free.done(result('late')), 'fenced', 'who has let go has nothing to say');
  t.equal(await third.unknown('gone'), true);
  t.match(await two.claim(askOf('free')), { kind: 'in_doubt', moved: false, tries: 2 });
  t.equal(await held(await two.claim(askOf('over'))).ended(), true);
  t.strictSame(await one.claim(askOf('over')), { kind: 'ended' }, 'the same task does not get it again');
  t.equal(await held(await one.claim(askOf('over', { taskId: 'other' }))).release(false), true, 'another one does');
  t.equal(await two.look('nothing'), null);
  t.equal(one.size + two.size, 0, 'nothing is held');
});

t.test('a worker that vanished: taken over when that is harmless, in doubt when not, and fenced off when it comes back', async (t) => {
  const server = await NatsServer.start(t);
  const gone = ledgerOn(t, await opened(t, server), 'gone', 2_500);
  const here = ledgerOn(t, await opened(t, server), 'here', 2_500);
  const safe = held(await gone.claim(askOf('safe', { execution: 'idempotent' })));
  const once = held(await gone.claim(askOf('once')));
  let lost = 0;
  safe.onLost = () => lost++;
  await gone.close(); // it renews nothing any more
  t.equal(lost, 1);
  t.match(await here.claim(askOf('safe', { execution: 'idempotent' })), { kind: 'executing' });
  t.match(await here.claim(askOf('once')), { kind: 'executing' });
  await sleep(2_600);
  const taken = held(await here.claim(askOf('safe', { execution: 'idempotent' })));
  t.equal(taken.tries, 2);
  t.match(await here.claim(askOf('once')), { kind: 'in_doubt', moved: true, worker: 'w.w.1' });
  t.match(await here.claim(askOf('once')), { kind: 'in_doubt', moved: false });
  t.equal(await taken.done(result('1')), 'stored');
  t.equal(once.held, false);
});

t.test('a claim is extended for as long as it lives, and one that is short costs nothing more', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server);
  const one = ledgerOn(t, bus, 'one', 2_000);
  const two = ledgerOn(t, await opened(t, server), 'two', 2_000);
  const seqOf = async (): Promise<number> => {
    const facts = await bus.stream(LEDGER_STREAM);
    return facts !== null && 'lastSeq' in facts ? facts.lastSeq : -1;
  };
  const short = held(await one.claim(askOf('short')));
  t.equal(await short.done(result('1')), 'stored');
  t.equal(await seqOf(), 2, 'two writes: the claim and the result');
  const long = held(await one.claim(askOf('long', { execution: 'idempotent' })));
  for (let i = 0; i < 5; i++) {
    await sleep(800);
    t.match(await two.claim(askOf('long', { execution: 'idempotent' })), { kind: 'executing' });
  }
  t.ok((await seqOf()) >= 6, 'it has been extended');
  t.equal(long.held, true);
  // Somebody writes over it, as a person may who frees a key.
  const facts = await bus.last(LEDGER_STREAM, subjects.idem('long'));
  t.ok(facts !== null && 'seq' in facts && (await bus.deleteMessage(LEDGER_STREAM, facts.seq)));
  const other = held(await two.claim(askOf('long', { execution: 'idempotent' })));
  await waitUntil('it is known to be lost', () => !long.held, 2_000);
  t.equal(await long.done(result('late')), 'fenced');
  t.equal(await other.done(result('mine')), 'stored');
});

t.test('who hears nothing knows when the lease is over, not when the answer to its renewal is', async (t) => {
  const server = await NatsServer.start(t);
  const one = ledgerOn(t, await opened(t, server), 'one', 1_200);
  const claim = held(await one.claim(askOf('k', { execution: 'keyed' })));
  const heldSince = performance.now();
  const lost: [string, number][] = [];
  claim.onLost = (by) => void lost.push([by, performance.now() - heldSince]);
  server.pause();
  await waitUntil('it is known', () => lost.length > 0, 4_000);
  server.resume();
  const [by, afterMs] = lost[0] as [string, number];
  t.equal(by, 'lapsed');
  t.ok(afterMs >= 1_150 && afterMs < 2_300, `after ${afterMs.toFixed(0)} ms; one renewal alone may wait for 2.5 s`);
  claim.abandon();
});

t.test('a sidecar that was killed takes up its claims again in its next life, unless somebody else has', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server);
  const first = ledgerOn(t, bus, 'one', 1_500);
  for (const id of ['kept', 'lapsed', 'taken', 'ended', 'other']) held(await first.claim(askOf(id, { execution: 'idempotent' })));
  t.equal(await first.resume('kept', 'w.w.1', 't-kept'), 'gone', 'not in the same life: it has it');
  await first.close(); // nothing is said of what it had
  const second = ledgerOn(t, bus, 'two', 1_500);
  const next = ledgerOn(t, bus, 'one', 1_500);
  const kept = await next.resume('kept', 'w.w.1', 't-kept');
  if (typeof kept === 'string') throw new Error(kept);
  t.equal(kept.tries, 1);
  t.equal(await next.resume('other', 'w.w.2', 't-other'), 'gone', 'another agent’s');
  t.equal(await next.resume('other', 'w.w.1', 't-more'), 'gone', 'another task’s');
  t.equal(await next.resume('never', 'w.w.1', 't-never'), 'gone');
  await second.claim(askOf('taken', { execution: 'idempotent' }));
  await sleep(2_500);
  const taken = held(await second.claim(askOf('taken', { execution: 'idempotent' })));
  t.match(await second.claim(askOf('kept', { execution: 'idempotent' })), { kind: 'executing' }, 'it is extended');
  t.equal(await next.resume('taken', 'w.w.1', 't-taken'), 'gone');
  const lapsed = await next.resume('lapsed', 'w.w.1', 't-lapsed');
  if (typeof lapsed === 'string') throw new Error(lapsed);
  t.ok(lapsed.held, 'nobody wanted it meanwhile');
  t.equal(await kept.done(result('{}')), 'stored');
  t.equal(await taken.done(result('{}')), 'stored');
  t.ok(await lapsed.release(true));
});

t.test('a ledger without a byte to spare refuses what is new, and every claim that is held is extended and ends', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server, 0, 65_536);
  const one = ledgerOn(t, bus, 'one', 3_000);
  const claims: Claim[] = [];
  for (let i = 0; i < 5; i++) claims.push(held(await one.claim(askOf(`held${i}`, { execution: 'keyed' }))));
  const [done, large, released, doubt, waits] = claims as [Claim, Claim, Claim, Claim, Claim];
  // To the last byte, which 2.9 must not be led near: there it drops its oldest message (30 bytes and the subject lie around each).
  const filler = (i: number): string => subjects.idem(`filler${i}`);
  const free = async (): Promise<number> => {
    const facts = await bus.stream(LEDGER_STREAM);
    return facts === null || 'failed' in facts ? 0 : facts.maxBytes - facts.bytes - 30 - filler(0).length;
  };
  for (let i = 0; (await free()) > 0; i++) {
    const left = await free();
    t.match(await bus.append(filler(i), Buffer.alloc(left > 20_000 ? 10_000 : left)), { duplicate: false });
  }
  t.match(await bus.append(subjects.idem('more'), Buffer.alloc(0)), { full: true }, 'not the smallest message has room');
  t.match(await one.claim(askOf('new')), { kind: 'full' });

  let isLost = false;
  waits.onLost = () => {
    isLost = true;
  };
  await sleep(4_500);
  t.ok(waits.held, 'a lease is extended');
  t.notOk(isLost);

  const details = 'x'.repeat(400);
  // That it is done stands there, though its bytes do not.
  t.equal(await large.done({ ...result('x'.repeat(900)), detail: details, contentType: `text/plain; x=${'y'.repeat(300)}` }), 'too_large');
  t.ok(await doubt.unknown(details), 'whatever words there are for it');
  t.equal(await done.done(result('{}')), 'stored', 'a claim has kept room for the end of it');
  t.ok(await released.release(true));
  const look = ledgerOn(t, bus, 'two');
  t.match(await look.look('held0'), { kind: 'done', result: { status: 200, leftOutBytes: 0 } });
  t.match(await look.look('held1'), { kind: 'done', result: { status: 200, leftOutBytes: 900 } });
  t.equal(await look.look('held2'), null, 'free');
  t.match(await look.look('held3'), { kind: 'in_doubt' });
  t.match(await look.look('held4'), { kind: 'executing' });
  t.equal(await waits.done(result('')), 'stored');
});

t.test('without NATS nothing is claimed; a full ledger refuses what is new and lets what is held end', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server, 2);
  const one = ledgerOn(t, bus, 'one');
  const a = held(await one.claim(askOf('a')));
  const b = held(await one.claim(askOf('b')));
  t.match(await one.claim(askOf('c')), { kind: 'full', why: /full/ });
  t.equal(await a.done(result('1')), 'stored');
  t.match(await one.claim(askOf('a')), { kind: 'done' });
  t.ok(warnings.some((words) => words.includes('full')));
  await server.kill();
  await waitUntil('the connection is gone', () => !bus.connected, 5_000);
  t.match(await one.claim(askOf('d')), { kind: 'unreachable' });
  t.equal(await b.done(result('2')), 'unreachable');
  t.equal(b.held, true, 'nobody knows, for now');
  await server.restart();
  t.ok(await bus.ready(10_000));
  t.equal(await b.done(result('2')), 'stored');
  t.match(await one.claim(askOf('b')), { kind: 'done' });
});

t.test('an answer that is lost is looked up', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server);
  const one = ledgerOn(t, bus, 'one');
  const claim = held(await one.claim(askOf('x')));
  server.pause();
  const done = claim.done(result('1'));
  const other = one.claim(askOf('y'));
  await sleep(2_700);
  server.resume();
  t.equal(await done, 'stored');
  t.match(await other, { kind: 'claimed' });
  t.match(await one.claim(askOf('x')), { kind: 'done' });
});

t.test('an end that could not be written is written later, and its lease is not extended for ever', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server);
  const one = ledgerOn(t, bus, 'one', 1_200);
  const ends = ['released', 'unknown', 'done', 'abandoned'] as const;
  const claims = new Map<string, Claim>();
  for (const end of ends) claims.set(end, held(await one.claim(askOf(end, { execution: 'idempotent' }))));
  await server.kill();
  await waitUntil('the connection is gone', () => !bus.connected, 5_000);
  t.equal(await claims.get('released')?.release(false), false);
  t.equal(await claims.get('unknown')?.unknown('why'), false);
  t.equal(await claims.get('done')?.done(result('1')), 'unreachable');
  claims.get('abandoned')?.abandon();
  await sleep(1_500);
  await server.restart();
  t.ok(await bus.ready(10_000));
  await waitUntil('nothing is held any more', () => one.size === 0, 3_000);
  t.equal(await claims.get('done')?.done(result('1')), 'stored', 'whoever goes on saying it is told so');
  t.equal(await claims.get('released')?.release(false), true);
  const two = ledgerOn(t, bus, 'two', 1_200);
  t.match(await two.claim(askOf('released', { execution: 'idempotent' })), { kind: 'claimed', claim: { tries: 1 } });
  t.match(await two.claim(askOf('unknown', { execution: 'idempotent' })), { kind: 'in_doubt' });
  t.match(await two.claim(askOf('done', { execution: 'idempotent' })), { kind: 'done' });
  let after = (await two.claim(askOf('abandoned', { execution: 'idempotent' }))).kind;
  if (after === 'executing') {
    await sleep(1_300);
    after = (await two.claim(askOf('abandoned', { execution: 'idempotent' }))).kind;
  }
  t.equal(after, 'claimed', 'its lease has run out');
});

t.test('a claim whose answer was lost with the server is given back, and is not taken for a worker that vanished', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server);
  const one = ledgerOn(t, bus, 'one', 1_000);
  server.pause();
  const asked = await one.claim(askOf('x'));
  t.match(asked, { kind: 'unreachable' });
  server.resume();
  await waitUntil('it was given back', () => one.size === 0, 5_000);
  await sleep(1_100);
  t.match(await one.claim(askOf('x')), { kind: 'claimed', claim: { tries: 1 } }, 'nothing was ever started');
});

t.test('once work that outlives its lease while the ledger is away is done all the same when nobody has touched it', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server);
  const one = ledgerOn(t, bus, 'one', 1_000);
  const claim = held(await one.claim(askOf('x')));
  const lost: string[] = [];
  claim.onLost = (by) => void lost.push(by);
  server.pause();
  await waitUntil('its lease is over', () => lost.length > 0, 4_000);
  t.strictSame(lost, ['lapsed']);
  t.equal(claim.held, false);
  server.resume();
  await waitUntil('it is ours again', () => claim.held, 6_000);
  t.equal(await claim.done(result('1')), 'stored');
  t.match(await one.claim(askOf('x')), { kind: 'done' });
});

t.test('a worker that ends its work while the server is away for longer than a lease is not taken for one that vanished', async (t) => {
  const server = await NatsServer.start(t);
  const owner = ledgerOn(t, await opened(t, server), 'owner', 2_000);
  const bus = await opened(t, server);
  const other = ledgerOn(t, bus, 'other', 2_000);
  const claim = held(await owner.claim(askOf('x')));
  await server.kill();
  const ending = claim.done(result('1'));
  await sleep(2_500);
  await server.restart();
  t.ok(await bus.ready(5_000));
  // As the deliverer does, which has the message in hand again before its worker has found the server.
  other.noteServerTime(Date.now());
  t.match(await other.claim(askOf('x')), { kind: /executing|done/ });
  await ending;
  let found = await other.claim(askOf('x'));
  await waitUntil('the end is there', async () => (found = await other.claim(askOf('x'))).kind !== 'executing', 5_000);
  t.match(found, { kind: 'done', result: { body: Buffer.from('1') } });
});

t.test('a result for which the ledger has no room is left out, and the key is done', async (t) => {
  const server = await NatsServer.start(t);
  const bus = await opened(t, server, 0);
  const facts = await bus.ensureStream({
    name: LEDGER_STREAM,
    description: 'keys',
    subjects: [subjects.ledger],
    storage: 'file',
    retention: 'limits',
    discard: 'new',
    maxMsgsPerSubject: 1,
    maxAgeMs: 86_400_000,
    allowDirect: true,
    maxBytes: 2_600,
  });
  t.notOk('failed' in facts);
  const one = ledgerOn(t, bus, 'one');
  const claim = held(await one.claim(askOf('x')));
  t.equal(await claim.done(result('r'.repeat(999))), 'stored', 'it fits');
  const second = held(await one.claim(askOf('y')));
  t.equal(await second.done(result('r'.repeat(999))), 'too_large');
  t.match(await one.claim(askOf('y')), { kind: 'done', result: { leftOutBytes: 999 } });
  t.equal(one.size, 0);
});
