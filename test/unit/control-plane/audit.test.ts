/** The audit log: chains that hold and show what was taken out, orders that are never held up by it, pages, exports. */
import { connect } from 'nats';
import t from 'tap';
import { ChainedLog } from '../../../base/chained-log.ts';
import { realClock } from '../../../base/clock.ts';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { AuditBook, readCursor } from '../../../control-plane/audit/book.ts';
import { DEFAULT_AUDIT } from '../../../control-plane/audit/config.ts';
import { RefusedRequests } from '../../../control-plane/audit/refused-requests.ts';
import { auditFullness, auditStreams } from '../../../control-plane/audit/streams.ts';
import { ChainCheck } from '../../../control-plane/audit/verify.ts';
import { runReachctl } from '../../../control-plane/cli/program.ts';
import { type AuditRecord, auditRecord, type AuditSaid, auditText, entryHash, entryText, readEntry } from '../../../proto/wire/audit.ts';
import { AUDIT_STREAM, REFUSED_STREAM, Subjects } from '../../../proto/wire/subjects.ts';
import { ENV, FakeSidecar, OPERATOR, Plane, VIEWER } from '../../support/control-plane.ts';
import { MemoryNats } from '../../support/memory-bus.ts';
import { NatsServer } from '../../support/nats.ts';
import { settle, waitUntil } from '../../support/settle.ts';

const SAID: AuditSaid = {
  actor: 'ada',
  role: 'operator',
  action: 'provider.drain',
  subject: 'crm.order.a',
  reason: 'new build',
  outcome: 'done',
};
const subjects = new Subjects(ENV);

type Entry = Omit<AuditRecord, 'n' | 'prev'>;

function chainOn(bus: ConstructorParameters<typeof ChainedLog<Entry>>[0]['bus'], clock: VirtualClock, maxWaiting = 100) {
  const failed: string[] = [];
  const log = new ChainedLog<Entry>({
    bus,
    clock,
    stream: AUDIT_STREAM,
    subject: subjects.audit('cp-1', 'act'),
    maxWaiting,
    timeoutMs: 1_000,
    firstRetryMs: 100,
    mostRetryMs: 1_000,
    textOf: entryText,
    hashOf: entryHash,
    numberOf: (text) => readEntry(text)?.n ?? null,
    stored: () => {},
    failed: (why) => void failed.push(why),
  });
  const add = (action: string, settled: ((why: string | null) => void) | null = null): void =>
    log.add(auditRecord({ ...SAID, action }, 'cp-1', clock.wallMs()), settled);
  return { log, add, failed };
}

function memory() {
  const clock = new VirtualClock();
  const nats = new MemoryNats(() => clock.wallMs());
  for (const spec of auditStreams(subjects, DEFAULT_AUDIT, 1)) nats.ensure(spec);
  const stored = (): AuditRecord[] =>
    (nats.streams.get(AUDIT_STREAM)?.messages ?? []).map(({ data }) => readEntry(data.toString('utf8')) as AuditRecord);
  return { clock, nats, stored };
}

t.test('each entry carries the hash of the one before it, over restarts too', async (t) => {
  const { clock, nats, stored } = memory();
  const bus = nats.open('cp-1');
  await settle(1);
  const first = chainOn(bus.bus, clock);
  first.add('one');
  first.add('two');
  t.equal(await first.log.flush(0), false);
  await settle(4);
  t.equal(first.log.waiting, 0);
  const second = chainOn(bus.bus, clock);
  second.add('three');
  await settle(4);
  const [one, two, three] = stored() as [AuditRecord, AuditRecord, AuditRecord];
  t.match(
    [one, two, three],
    [
      { n: 1, prev: '', action: 'one' },
      { n: 2, action: 'two' },
      { n: 3, action: 'three' },
    ],
  );
  t.equal(two.prev, entryHash(entryText(one, one.n, one.prev)));
  t.equal(three.prev, entryHash(entryText(two, two.n, two.prev)));
});

t.test('a lost answer does not store an entry twice, and another writer of the same name cannot fork the chain', async (t) => {
  const { clock, nats, stored } = memory();
  const { bus } = nats.open('cp-1');
  await settle(1);
  let lose = 0;
  const lossy = {
    append: async (...args: Parameters<typeof bus.append>) => {
      const appended = await bus.append(...args);
      return lose-- > 0 ? { failed: 'no answer came', ambiguous: true as const } : appended;
    },
    last: (stream: string, subject: string) => bus.last(stream, subject),
  };
  const one = chainOn(lossy, clock);
  const other = chainOn(bus, clock);
  one.add('a');
  await settle(4);
  lose = 1;
  one.add('b');
  await settle(4);
  other.add('c');
  await settle(4);
  one.add('d');
  await settle(6);
  t.same(
    stored().map(({ action, n }) => `${n} ${action}`),
    ['1 a', '2 b', '3 c', '4 d'],
  );
  const check = new ChainCheck();
  for (const [i, entry] of stored().entries()) check.add(`a${i + 1}`, entry);
  t.same(check.problems, []);
});

t.test('while NATS is away entries wait, in order, so many at most; the reason is told once', async (t) => {
  const { clock, nats, stored } = memory();
  const bus = nats.open('cp-1');
  await settle(1);
  nats.down();
  const { log, add, failed } = chainOn(bus.bus, clock, 2);
  const settled: (string | null)[] = [];
  for (const action of ['one', 'two', 'three']) add(action, (why) => void settled.push(why));
  t.match(settled, [/2 entries wait already/]);
  t.equal(log.lost, 1);
  await clock.advance(5_000);
  t.equal(failed.length, 1, failed.join());
  nats.up();
  log.nudge();
  await settle(6);
  t.same(
    stored().map(({ action }) => action),
    ['one', 'two'],
  );
  t.same(settled.slice(1), [null, null]);
  t.equal(log.why, '');
});

t.test('what was changed, taken out or put in between is seen', async (t) => {
  const { clock, nats, stored } = memory();
  const { bus } = nats.open('cp-1');
  await settle(1);
  const { add } = chainOn(bus, clock);
  for (const action of ['one', 'two', 'three', 'four']) add(action);
  await settle(10);
  const whole = stored();
  const problems = (entries: readonly AuditRecord[]): string[] => {
    const check = new ChainCheck();
    for (const [i, entry] of entries.entries()) check.add(`a${i + 1}`, entry);
    return check.problems;
  };
  const [one, two, three, four] = whole as [AuditRecord, AuditRecord, AuditRecord, AuditRecord];
  t.same(problems(whole), []);
  t.same(problems([three, four]), [], 'the beginning may be gone by age');
  t.match(problems([one, three, four]), [/entry 3 of cp-1\) follows entry 1: 1 entry is missing/]);
  t.match(problems([one, { ...two, reason: 'nothing' }, three, four]), [/does not follow from entry 2/]);
  t.match(problems([one, two, { ...two, n: 3 }, { ...four }]), [/does not follow from entry 2/, /does not follow from entry 3/]);
  t.match(problems([one, two, one]), [/the numbers go back/]);
  t.match(problems([{ ...one, prev: 'x' }]), [/says that it is the first one/]);
});

t.test('text is bounded and printable, and what looks like a credential is cut out', (t) => {
  const jwt = `eyJhbGciOiJFZERTQSJ9.${'a'.repeat(30)}.${'b'.repeat(40)}`;
  const entry = auditRecord(
    {
      ...SAID,
      reason: `see ${jwt} and\nBearer abcdefghij`,
      detail: { note: 'x'.repeat(5_000), seed: `SU${'A'.repeat(56)}`, 'bad key': 1, n: Number.NaN, ok: true },
    },
    'cp-1',
    0,
  );
  t.notMatch(JSON.stringify(entry), /eyJ|abcdefghij|SUAAAA|\\n|bad key/);
  t.match(entry.reason, /^see \[a credential, cut out\] and\\u000a\[a credential, cut out\]$/);
  t.equal(entry.detail['n'], null);
  t.ok(String(entry.detail['note']).length <= 2_001);
  t.equal(auditText('x'.repeat(1_000_000), 10).length, 11);
  t.equal(readEntry('{"v":1}'), null);
  t.equal(readEntry('no'), null);
  t.equal(readCursor('1.x'), null);
  t.end();
});

t.test('refused requests are told once and then summed, and a flood of kinds is a few entries', async (t) => {
  const clock = new VirtualClock();
  const told: AuditSaid[] = [];
  const sums = new RefusedRequests(clock, (said) => void told.push(said));
  const add = (route: string): void => sums.add({ actor: '', role: '', route, code: 4001 });
  for (let i = 0; i < 1_000; i++) add('GET /v1/providers');
  t.match(told, [{ action: 'request.refused', subject: 'GET /v1/providers', code: 4001, count: 1 }]);
  await clock.advance(10_000);
  t.match(told[1], { count: 999, sinceMs: clock.wallMs() - 10_000 });
  await clock.advance(20_000);
  t.equal(told.length, 2, 'silence ends it');
  for (let i = 0; i < 5_000; i++) add(`GET /v1/${i}`);
  t.equal(told.length, 2 + 201);
  t.equal(clock.nextAt() === null, false);
  sums.flush();
  t.match(told.at(-1), { subject: 'several routes', count: 4_799 });
  t.equal(clock.nextAt(), null);
});

t.test('a warning comes at 80 per cent, and says what happens when it is full', (t) => {
  const facts = {
    messages: 1,
    firstSeq: 1,
    lastSeq: 1,
    lastAtMs: 0,
    maxMessages: -1,
    consumers: 0,
    created: '',
    subjects: [],
    name: AUDIT_STREAM,
  };
  t.equal(auditFullness(null), null);
  t.equal(auditFullness({ ...facts, bytes: 79, maxBytes: 100 }), null);
  t.match(
    auditFullness({ ...facts, bytes: 80, maxBytes: 100 }),
    /AR_AUDIT is full to more than 80 %.*orders go on, and are not in the audit log/,
  );
  t.match(auditFullness({ ...facts, bytes: 100, maxBytes: 100 }), /AR_AUDIT is full \(/);
  t.end();
});

t.test('on a real server', async (t) => {
  const nats = await NatsServer.start(t);
  const plane = await Plane.start(t, nats, 'cp-1', '  audit: {size: 1MiB}\n');
  await plane.leads();
  const sidecar = await FakeSidecar.join(nats, 'order-a', { 'crm.order.a': ['crm.order.query@2.0.0'] });
  await sidecar.hello();
  const bus = await nats.connect();
  const administrator = await connect({ servers: nats.url });
  t.teardown(() => administrator.close());
  const run = async (...args: string[]): Promise<{ exit: number; out: string; err: string }> => {
    const out: string[] = [];
    const err: string[] = [];
    const env = { REACH_SERVER: plane.url, REACH_TOKEN: OPERATOR };
    const io = {
      out: (text: string) => void out.push(text),
      err: (text: string) => void err.push(text),
      env,
      clock: realClock,
      stdin: async () => exported,
    };
    const exit = await runReachctl(args, io, '1.2.3');
    return { exit, out: out.join('\n'), err: err.join('\n') };
  };
  let exported = '';
  const weigh = (weight: number, reason = '') => plane.ask('/v1/providers/crm.order.a/weight', { method: 'PUT', json: { weight, reason } });
  const entries = async (query: string): Promise<{ id: string; action: string; count: number }[]> =>
    (await plane.ask(`/v1/audit?${query}`)).body['entries'] as { id: string; action: string; count: number }[];

  await t.test('an order is in the log when it is answered; what was refused is counted; looking is not recorded', async (t) => {
    const answer = await weigh(2, 'more room');
    t.equal(answer.headers.get('reach-audit-pending'), null);
    t.match(await entries('limit=1'), [
      { id: 'a1', action: 'provider.weight', actor: 'ada', detail: { 'after.weight': 2 }, outcome: 'done' },
    ]);
    for (let i = 0; i < 3; i++) await plane.ask('/v1/providers/crm.order.a/drain', { method: 'POST', token: VIEWER });
    await plane.ask('/v1/providers', { token: 'a-wrong-token' });
    await plane.ask('/v1/providers/crm.order.zz/drain', { method: 'POST' });
    await plane.ask('/v1/providers', { token: VIEWER });
    await waitUntil('they are stored', async () => (await entries('outcome=refused')).length === 3);
    t.match(await entries('outcome=refused&order=oldest'), [
      { id: 'r1', action: 'request.refused', actor: 'vic', role: 'viewer', subject: 'POST /v1/providers/:id/drain', code: 4002, count: 1 },
      { actor: '', subject: 'GET /v1/providers', code: 4001 },
      { actor: 'ada', subject: 'POST /v1/providers/:id/drain', code: 4003 },
    ]);
    t.notMatch(JSON.stringify(await entries('limit=100')), /a-wrong-token/);
    await plane.ask('/v1/export');
    t.match(
      await entries('limit=1'),
      [{ action: 'state.export', actor: 'ada' }],
      'an order that records nothing itself is recorded all the same',
    );
  });

  await t.test('pages join without a gap or a repeat while entries come in; filters and spans hold', async (t) => {
    for (let i = 3; i < 10; i++) await weigh(i);
    const all = (await entries('limit=1000')).map(({ id }) => id);
    const paged: string[] = [];
    let cursor = '';
    do {
      const { body } = await plane.ask(`/v1/audit?limit=2${cursor}`);
      paged.push(...(body['entries'] as { id: string }[]).map(({ id }) => id));
      if (paged.length === 4) await weigh(11);
      cursor = body['next'] === null ? '' : `&cursor=${String(body['next'])}`;
    } while (cursor !== '');
    t.same(paged, all);
    const oldest = (await entries('limit=1000&order=oldest')).map(({ id }) => id);
    t.same(oldest.slice(0, all.length), all.toReversed());
    t.ok((await entries('action=provider.*&actor=ada&subject=crm.order.a')).length >= 9);
    t.same(await entries('actor=nobody'), []);
    t.same(await entries('until=1h'), []);
    t.same((await entries('since=1h&limit=1000')).length, oldest.length);
    t.same(await entries('since=2100-01-01T00:00:00Z'), []);
    t.match((await plane.ask('/v1/audit/a1')).body, { id: 'a1', subject: 'crm.order.a' });
    t.equal((await plane.ask('/v1/audit/a999')).status, 404);
    for (const bad of ['since=yesterday', 'until=x', 'cursor=x', 'order=best', 'outcome=maybe', 'limit=1001'])
      t.equal((await plane.ask(`/v1/audit?${bad}`)).status, 400, bad);
  });

  await t.test('reachctl lists, shows, exports and verifies; an export that was tampered with is found', async (t) => {
    t.match((await run('audit')).out, /ada +provider\.weight +crm\.order\.a +more room +done$/m);
    t.match(
      (await run('audit', 'list', '--outcome', 'refused')).out,
      /\(nobody known\) +request\.refused +GET \/v1\/providers +- +refused 4001/,
    );
    t.match((await run('audit', 'show', 'a1')).out, /^reason +more room$/m);
    const verified = await run('audit', 'verify');
    t.equal(verified.exit, 0);
    t.match(verified.out, /^cp-1 +acts +\d+ +1 +\d+ /m);
    t.match(verified.out, /nothing changed or taken out/);
    exported = (await run('audit', 'export', '--since', '1h')).out;
    t.equal((await run('audit', 'verify', '--file', '-')).exit, 0);
    exported = exported.replace('more room', 'less room');
    const broken = await run('audit', 'verify', '--file', '-');
    t.equal(broken.exit, 1);
    t.match(broken.out, /broken: a2 \(entry 2 of cp-1\) does not follow from entry 1/);
    const [head, line] = (await run('audit', 'export', '--format', 'csv', '--action', 'provider.weight')).out.split('\n');
    t.match(head, /^id,stored_at_ms,/);
    t.match(
      line,
      /^a1,\d+,1,cp-1,1,,\d+,ada,operator,provider\.weight,crm\.order\.a,more room,"\{""after\.drain"":null,""after\.weight"":2\}",done,,1,/,
    );
  });

  await t.test('whoever follows sees entries as they come', async (t) => {
    const abort = new AbortController();
    t.teardown(() => abort.abort());
    const response = await fetch(`${plane.url}/v1/audit/follow?action=provider.restore`, {
      headers: { authorization: `Bearer ${VIEWER}` },
      signal: abort.signal,
    });
    let seen = '';
    void (async () => {
      for await (const chunk of response.body as AsyncIterable<Uint8Array>) seen += Buffer.from(chunk).toString('utf8');
    })().catch(() => {});
    await waitUntil('it began', () => seen.includes('hello'));
    await weigh(4);
    await plane.ask('/v1/providers/crm.order.a/restore', { method: 'POST' });
    await waitUntil('it is told', () => seen.includes('provider.restore'));
    t.notMatch(seen, /provider\.weight/);
  });

  await t.test('the server deletes and purges nothing', async (t) => {
    const manager = await administrator.jetstreamManager();
    for (const stream of [AUDIT_STREAM, REFUSED_STREAM]) {
      const before = await bus.stream(stream);
      t.not(await bus.deleteMessage(stream, 1), true);
      await t.rejects(manager.streams.purge(stream), /not permitted/);
      const after = await bus.stream(stream);
      t.ok(before !== null && 'messages' in before && before.messages > 0);
      t.match(after, { messages: (before as { messages: number }).messages, firstSeq: 1 });
    }
  });

  await t.test(
    'when the log is full an order is carried out and says that it is not in it; it is written when there is room',
    async (t) => {
      const filler = await bus.append(subjects.audit('filler', 'act'), Buffer.alloc(1_000_000, 0x20), { stream: AUDIT_STREAM });
      t.match(filler, { seq: Number });
      let answer = await weigh(7, 'an emergency');
      for (let i = 0; i < 200 && answer.headers.get('reach-audit-pending') === null; i++)
        answer = await weigh(7 + i, 'an emergency '.repeat(30));
      t.equal(answer.status, 200);
      t.match(answer.headers.get('reach-audit-pending'), /maximum bytes exceeded/);
      t.match((await run('providers', 'weight', 'crm.order.a', '3')).err, /done, and not in the audit log yet \(.*maximum bytes/);
      await waitUntil(
        'health says it',
        async () => /the audit log takes nothing at present|AR_AUDIT is full/.test(JSON.stringify((await plane.ask('/v1/health')).body)),
        4_000,
      );
      await (await administrator.jetstreamManager()).streams.delete(AUDIT_STREAM);
      await waitUntil('it is written', async () => (await entries('action=provider.weight')).length >= 2, 8_000);
      t.ok(plane.said(/THE AUDIT LOG WAS DELETED/));
    },
  );

  await t.test('one page looks at so many entries and no more', async (t) => {
    const book = new AuditBook(bus, subjects);
    const page = await book.page({
      actor: 'x',
      action: null,
      subject: null,
      outcome: null,
      sinceMs: 0,
      untilMs: Number.MAX_SAFE_INTEGER,
      limit: 5,
      order: 'newest',
      cursor: null,
    });
    t.match(page, { entries: [], next: null });
  });
});
