import t from 'tap';
import { CallLedger } from '../../../sidecar/claim/call-ledger.ts';
import type { Claim, Claimed, KeptResult, TaskLedger } from '../../../sidecar/ledger/ledger.ts';
import { VirtualRig } from '../../support/virtual-rig.ts';

const X = 'crm.order.query';
const TABLE = `
contracts: [{name: ${X}, version: 2.0.0, acl: public, retry: {max: 0}}]
providers: [{agent_id: crm.order.1, offers: ["${X}@2.0.0"]}]
mocks: {crm.order.1: {latency: 10ms}}`;
const KEY = { headers: { 'idempotency-key': 'k' } };
const EXECUTING: Claimed = { kind: 'executing', againInMs: 500, taskId: 'other', worker: 'crm.order.9' };
const AWAY: Claimed = { kind: 'unreachable', why: 'no connection to NATS' };

class Scripted implements TaskLedger {
  asked = 0;
  readonly answer: (n: number) => Claimed;
  constructor(answer: (n: number) => Claimed) {
    this.answer = answer;
  }
  /** Not at once: an answer from elsewhere is never sooner than those who wait here have begun to wait. */
  async claim(): Promise<Claimed> {
    this.asked++;
    const answer = this.answer(this.asked);
    for (let i = 0; i < 10; i++) await null;
    return answer;
  }
  look(): Promise<Claimed | null> {
    return Promise.resolve(null);
  }
  close(): Promise<void> {
    return Promise.resolve();
  }
}

function rigWith(tasks: TaskLedger, whenUnreachable: 'refuse' | 'pass' = 'refuse'): { rig: VirtualRig; ledger: CallLedger } {
  const rig = new VirtualRig(TABLE);
  const { engine, clock } = rig.world;
  const ledger = new CallLedger(tasks, clock, { ...engine.config.claims, whenUnreachable });
  Object.assign(engine, { ledger });
  return { rig, ledger };
}

const kept: KeptResult = {
  code: 0,
  status: 200,
  contentType: 'application/json',
  provider: 'crm.order.9',
  version: '2.0.0',
  detail: '',
  body: Buffer.from('{"first":true}'),
  leftOutBytes: 0,
  marks: null,
};

t.test('a twin at another sidecar is asked for again, more and more slowly, until it has ended', async (t) => {
  const tasks = new Scripted((n) => (n < 5 ? EXECUTING : { kind: 'done', result: kept, taskId: 'other' }));
  const { rig, ledger } = rigWith(tasks);
  const twins = [rig.begin(X, KEY), rig.begin(X, KEY), rig.begin(X, KEY)];
  await rig.rest(() => twins.every((each) => each.result !== null));
  t.equal(tasks.asked, 5, 'one of them asks for all');
  t.equal(rig.now, 20 + 40 + 80 + 160);
  for (const { call, result } of twins) {
    t.strictSame(call.replay, { provider: 'crm.order.9', version: '2.0.0' });
    t.equal(result?.data.toString(), '{"first":true}');
  }
  t.equal(ledger.size, 0);
  await rig.finish(t, { 'crm.order.1': 0 });
});

t.test('a twin that does not end in time is in flight, and says when to ask again', async (t) => {
  const { rig } = rigWith(new Scripted(() => EXECUTING));
  const call = await rig.call(X, { ...KEY, deadlineMs: 300 });
  t.equal(call.code, 4007);
  t.equal(call.result?.retryAfterMs, 500);
  t.ok(rig.now < 300, `after ${rig.now} ms`);
  const leaving = rig.begin(X, KEY);
  await rig.wait(100);
  leaving.call.cancel();
  await rig.rest(() => leaving.result !== null);
  t.equal(leaving.code, 5003);
  await rig.finish(t, { 'crm.order.1': 0 });
});

t.test('without the ledger a key is refused, or passed on where that is set; a call without a key never asks', async (t) => {
  for (const [setting, code] of [
    ['refuse', 7001],
    ['pass', 0],
  ] as const) {
    const tasks = new Scripted(() => AWAY);
    const { rig } = rigWith(tasks, setting);
    t.equal((await rig.call(X)).code, 0);
    t.equal(tasks.asked, 0);
    const keyed = await rig.call(X, KEY);
    t.equal(keyed.code, code);
    t.ok(keyed.reasons.includes('claim.unreachable'));
    await rig.finish(t, { 'crm.order.1': code === 0 ? 2 : 1 });
  }
});

t.test('a record that takes its time does not keep the answer back for long, and is tried again', async (t) => {
  let tries = 0;
  const claim: Claim = {
    id: 'x',
    tries: 1,
    held: true,
    onLost: null,
    done: () => Promise.resolve(++tries < 4 ? 'unreachable' : 'stored'),
    release: () => Promise.resolve(true),
    unknown: () => Promise.resolve(true),
    ended: () => Promise.resolve(false),
    abandon: () => undefined,
  };
  const { rig, ledger } = rigWith(new Scripted(() => ({ kind: 'claimed', claim })));
  const call = await rig.call(X, KEY);
  t.equal(call.code, 0);
  t.equal(rig.now, 1_010);
  t.equal(ledger.size, 1, 'the key is not free yet');
  const repeat = rig.begin(X, KEY);
  await rig.rest(() => repeat.result !== null);
  t.ok(repeat.call.replay !== null, 'a twin here gets the answer once it is recorded');
  t.equal(tries, 4);
  await rig.finish(t, { 'crm.order.1': 1 });
});

t.test('a twin that was seen at work is in flight, also when the last look at it has no answer in time', async (t) => {
  let asked = 0;
  let answer: (claimed: Claimed) => void = () => undefined;
  const tasks: TaskLedger = {
    claim: () => (++asked === 1 ? Promise.resolve(EXECUTING) : new Promise((done) => (answer = done))),
    look: () => Promise.resolve(null),
    close: () => Promise.resolve(),
  };
  const { rig, ledger } = rigWith(tasks);
  const call = await rig.call(X, { ...KEY, deadlineMs: 300 });
  t.equal(asked, 2);
  t.equal(call.code, 4007);
  t.equal(call.result?.retryAfterMs, 500);
  answer(EXECUTING);
  await rig.wait(10);
  t.equal(ledger.size, 0);
  await rig.finish(t, { 'crm.order.1': 0 });
});

t.test('a ledger that stands still holds nobody up beyond the time of the call, and a claim that comes late is given back', async (t) => {
  let answer: (claimed: Claimed) => void = () => undefined;
  const tasks: TaskLedger = {
    claim: () => new Promise((done) => (answer = done)),
    look: () => Promise.resolve(null),
    close: () => Promise.resolve(),
  };
  const { rig, ledger } = rigWith(tasks);
  const call = await rig.call(X, { ...KEY, deadlineMs: 300 });
  t.equal(call.code, 7001);
  t.ok(call.reasons.includes('claim.no_answer'));
  t.ok(rig.now <= 300, `after ${rig.now} ms`);
  t.equal(ledger.size, 1, 'whether it is ours is not known yet');
  const ends: string[] = [];
  answer({
    kind: 'claimed',
    claim: {
      id: 'x',
      tries: 1,
      held: true,
      onLost: null,
      done: () => Promise.resolve('fenced'),
      release: (counts) => Promise.resolve(ends.push(`released ${counts}`) > 0),
      unknown: () => Promise.resolve(false),
      ended: () => Promise.resolve(false),
      abandon: () => undefined,
    },
  });
  await rig.wait(10);
  t.strictSame(ends, ['released false']);
  t.equal(ledger.size, 0);
  const leaving = rig.begin(X, KEY);
  await rig.wait(100);
  const leftAt = rig.now;
  leaving.call.cancel();
  await rig.rest(() => leaving.result !== null);
  t.equal(leaving.code, 5003);
  t.equal(rig.now, leftAt, 'at once');
  answer(AWAY);
  await rig.wait(10);
  t.equal(ledger.size, 0);
  await rig.finish(t, { 'crm.order.1': 0 });
});
