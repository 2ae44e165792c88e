/** What delivery decides without doing anything: turns of the lanes, pauses, what follows from an end, the server's time. */
import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { pauseAfter, pauseWhenBusy } from '../../../../sidecar/deliver/backoff.ts';
import { Cancelled } from '../../../../sidecar/deliver/cancelled.ts';
import { failpointFrom } from '../../../../sidecar/deliver/failpoint.ts';
import { LaneTurns } from '../../../../sidecar/deliver/lanes.ts';
import { type Ended, outcomeOf } from '../../../../sidecar/deliver/outcome.ts';
import { ServerTime } from '../../../../sidecar/deliver/server-time.ts';
import { DELIVER_DEFAULTS } from '../../../../sidecar/deliver/settings.ts';
import { Tries } from '../../../../sidecar/deliver/tries.ts';

const HIGH = 1;
const NORMAL = 2;
const LOW = 4;

t.test('lanes', (t) => {
  const share = (turns: LaneTurns, has: number, count: number): number[] => {
    const started = [0, 0, 0];
    for (let i = 0; i < count; i++) {
      const lane = turns.next(has);
      started[lane] = (started[lane] as number) + 1;
    }
    return started;
  };

  t.test('sixty, thirty and ten of a hundred, in every window of ten', (t) => {
    const turns = new LaneTurns();
    for (let window = 0; window < 10; window++) t.strictSame(share(turns, HIGH | NORMAL | LOW, 10), [6, 3, 1]);
    t.end();
  });

  t.test('a lane that has nothing gives its share to the others, in their proportion', (t) => {
    t.strictSame(share(new LaneTurns(), NORMAL | LOW, 400), [0, 300, 100]);
    t.strictSame(share(new LaneTurns(), HIGH | LOW, 700), [600, 0, 100]);
    t.strictSame(share(new LaneTurns(), LOW, 7), [0, 0, 7]);
    t.equal(new LaneTurns().next(0), -1, 'nobody has anything');
    t.end();
  });

  t.test('an idle lane saves up no credit: when it comes back it has its share, not more', (t) => {
    const turns = new LaneTurns();
    share(turns, LOW, 1_000);
    t.strictSame(share(turns, HIGH | NORMAL | LOW, 10), [6, 3, 1]);
    t.end();
  });

  t.test('what is started out of turn is put down to its lane', (t) => {
    const turns = new LaneTurns();
    for (let i = 0; i < 30; i++) turns.charge(2, HIGH | NORMAL | LOW);
    const [high, normal, low] = share(turns, HIGH | NORMAL | LOW, 100) as [number, number, number];
    t.equal(low, 0, 'it has had its turns');
    t.ok(high + normal === 100);
    t.end();
  });
  t.end();
});

t.test('pauses', (t) => {
  t.strictSame(
    [1, 2, 3, 4, 5, 6, 7, 60].map((tries) => pauseAfter(tries, 0, DELIVER_DEFAULTS)),
    [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000, 32_000],
    '1, 2, 4 … 32 s',
  );
  t.equal(pauseAfter(3, 0.5, DELIVER_DEFAULTS), 4_400, 'and up to a fifth by chance');
  t.ok(pauseAfter(6, 0.999, DELIVER_DEFAULTS) <= 38_400);
  t.equal(pauseWhenBusy(0, 0, DELIVER_DEFAULTS), 1_000, 'busy: a second, unless told otherwise');
  t.equal(pauseWhenBusy(5_000, 0, DELIVER_DEFAULTS), 5_000);
  t.equal(pauseWhenBusy(900_000, 0, DELIVER_DEFAULTS), 32_000, 'nobody is away for ever');
  t.end();
});

t.test('what follows from how a hand-over ended', (t) => {
  const base: Ended = {
    code: Code.ok,
    status: 200,
    started: 'done',
    execution: 'idempotent',
    retryable: true,
    noRetry: false,
    tries: 1,
    maxTries: 7,
    stoppedBy: 'no',
  };
  const rows: readonly [string, Partial<Ended>, ReturnType<typeof outcomeOf>][] = [
    ['a good answer', {}, 'done'],
    ['a 202', { status: 202 }, 'goes_on'],
    ['busy', { code: Code.provider_busy, started: 'not_started' }, 'wait'],
    ['busy, once', { code: Code.provider_busy, started: 'not_started', execution: 'once' }, 'wait'],
    ['draining', { code: Code.blocked_by_operator, started: 'not_started', execution: 'once' }, 'wait'],
    ['the breaker is open', { code: Code.breaker_open, started: 'not_started', tries: 7 }, 'wait'],
    ['gone from the table', { code: Code.no_provider, started: 'not_started' }, 'wait'],
    ['it limits its callers', { code: Code.rate_limited, status: 429, execution: 'once' }, 'wait'],
    ['it limits its callers and wants no repeat', { code: Code.rate_limited, status: 429, noRetry: true }, 'failed'],
    ['no connection', { code: Code.connect_timeout, started: 'not_started' }, 'again'],
    ['no connection, once: it provably did not begin', { code: Code.connect_timeout, started: 'not_started', execution: 'once' }, 'again'],
    ['no connection, for the seventh time', { code: Code.connect_timeout, started: 'not_started', execution: 'once', tries: 7 }, 'dead'],
    ['no connection, and the sender wants one try', { code: Code.connect_timeout, started: 'not_started', retryable: false }, 'failed'],
    ['not allowed', { code: Code.forbidden, started: 'not_started' }, 'failed'],
    ['it breaks the contract', { code: Code.invalid_request, started: 'not_started', execution: 'once' }, 'failed'],
    ['a loop', { code: Code.loop_detected, started: 'not_started' }, 'failed'],
    ['no time left', { code: Code.deadline_exceeded, started: 'not_started' }, 'failed'],
    ['the agent says 404', { code: Code.provider_error, status: 404 }, 'failed'],
    ['the agent says 500', { code: Code.provider_error, status: 500 }, 'again'],
    ['the agent says 500, keyed', { code: Code.provider_error, status: 500, execution: 'keyed' }, 'again'],
    ['the agent says 500, once: a whole answer stands', { code: Code.provider_error, status: 500, execution: 'once' }, 'failed'],
    ['the agent says 500 and wants no repeat', { code: Code.provider_error, status: 500, noRetry: true }, 'failed'],
    ['the agent says 500, and the sender wants one try', { code: Code.provider_error, status: 500, retryable: false }, 'failed'],
    ['the agent says 500 for the seventh time', { code: Code.provider_error, status: 500, tries: 7 }, 'dead'],
    ['the agent says 408', { code: Code.provider_error, status: 408 }, 'again'],
    ['an answer that breaks the contract', { code: Code.invalid_response }, 'failed'],
    ['an answer that is none', { code: Code.bad_response }, 'again'],
    ['too large an answer', { code: Code.response_too_large, started: 'started' }, 'failed'],
    ['the connection broke', { code: Code.connection_lost, started: 'started' }, 'again'],
    ['the connection broke, keyed', { code: Code.connection_lost, started: 'started', execution: 'keyed' }, 'again'],
    ['the connection broke, once', { code: Code.connection_lost, started: 'started', execution: 'once' }, 'in_doubt'],
    [
      'the connection broke, once, one try',
      { code: Code.connection_lost, started: 'started', execution: 'once', retryable: false },
      'in_doubt',
    ],
    ['no answer in time', { code: Code.response_timeout, started: 'started' }, 'again'],
    ['no answer in time, once', { code: Code.response_timeout, started: 'started', execution: 'once' }, 'in_doubt'],
    ['the time of the task is over', { code: Code.deadline_exceeded, started: 'started' }, 'failed'],
    ['called off while at work', { code: Code.cancelled, started: 'started', stoppedBy: 'cancel', execution: 'once' }, 'cancelled'],
    ['called off too late', { stoppedBy: 'cancel' }, 'done'],
    ['somebody else has it', { stoppedBy: 'lost' }, 'dropped'],
    ['somebody else has it, and it failed', { code: Code.cancelled, started: 'started', stoppedBy: 'lost', execution: 'once' }, 'dropped'],
    ['stopping', { code: Code.cancelled, started: 'started', stoppedBy: 'draining' }, 'give_back'],
    ['stopping, once', { code: Code.cancelled, started: 'started', stoppedBy: 'draining', execution: 'once' }, 'in_doubt'],
    ['stopping before it began', { code: Code.cancelled, started: 'not_started', stoppedBy: 'draining', execution: 'once' }, 'give_back'],
    ['a fault of ours', { code: Code.internal, started: 'started' }, 'again'],
  ];
  for (const [name, parts, expected] of rows) t.equal(outcomeOf({ ...base, ...parts }), expected, name);

  t.test('once is never started again after it may have begun, whatever the end', (t) => {
    for (const code of Object.values(Code)) {
      if (code === Code.ok) continue;
      for (const stoppedBy of ['no', 'cancel', 'draining', 'lost'] as const) {
        const outcome = outcomeOf({ ...base, code, status: 0, started: 'started', execution: 'once', stoppedBy });
        if (code === Code.rate_limited && stoppedBy !== 'lost' && stoppedBy !== 'cancel') continue; // a definitive refusal
        t.ok(['in_doubt', 'cancelled', 'dropped'].includes(outcome), `${code} ${stoppedBy}: ${outcome}`);
      }
    }
    t.end();
  });
  t.end();
});

t.test("the server's time is never guessed too late", (t) => {
  const time = new ServerTime();
  t.equal(time.at(5), Number.NEGATIVE_INFINITY, 'nothing is known');
  t.ok(time.isDue(5));
  time.seen(10_000, 100);
  t.equal(time.at(100), 10_000);
  time.seen(9_000, 200);
  t.equal(time.at(200), 10_100, 'an older stamp says nothing new');
  time.told(20_000, 300);
  t.equal(time.at(400), 20_100, 'asked and answered');
  t.notOk(time.isDue(400));
  t.ok(time.isDue(700_000), 'and again after a while');
  t.end();
});

t.test('failpoints', (t) => {
  let killed = 0;
  const kill = (): void => void killed++;
  const random = new SeededRandom(1);
  t.equal(failpointFrom(undefined, random, kill), null);
  t.equal(failpointFrom('', random, kill), null);
  const always = failpointFrom('before_ack', random, kill);
  always?.pass('after_effect');
  t.equal(killed, 0, 'another place');
  always?.pass('before_ack');
  t.equal(killed, 1);
  const some = failpointFrom('after_result:0.25', random, kill);
  for (let i = 0; i < 1_000; i++) some?.pass('after_result');
  t.ok(killed > 200 && killed < 320, `a share of passes: ${killed}`);
  for (const wrong of ['before', 'before_ack:x', 'before_ack:2', 'before_ack:-1']) {
    t.throws(() => failpointFrom(wrong, random, kill), /REACH_FAILPOINT must read like/, wrong);
  }
  t.end();
});

t.test('what is remembered is bounded', (t) => {
  const tries = new Tries();
  for (let i = 0; i < 25_000; i++) tries.remember(`task${i}`);
  t.equal(tries.of('task0'), null, 'the oldest is forgotten');
  t.not(tries.of('task24999'), null);
  tries.forget('task24999');
  t.equal(tries.of('task24999'), null);
  for (let i = 0; i < 25_000; i++) tries.unstarted(`back${i}`);
  t.not(tries.of('task24998'), null, 'what was never taken here pushes nothing else out');
  t.equal(tries.of('back24999'), null, 'and nothing but that is known of it');
  t.notOk(tries.isUntried('back0'), 'the oldest is forgotten');
  t.ok(tries.isUntried('back24999'));
  t.ok(tries.remember('back24999').untried && tries.isUntried('back24999'), 'also once something else is known of it');
  tries.forget('back24998');
  t.notOk(tries.isUntried('back24998'));
  t.notOk(tries.remember('back24998').untried);
  const cancelled = new Cancelled();
  for (let i = 0; i < 60_000; i++) cancelled.add(`task${i}`, 'a.b.c', 'home-1');
  t.notOk(cancelled.has('task0', 'a.b.c', 'home-1'));
  t.ok(cancelled.has('task59999', 'a.b.c', 'home-1'));
  t.notOk(cancelled.has('task59999', 'x.y.z', 'home-1'), "a stranger's word does not count");
  t.notOk(cancelled.has('task59999', 'a.b.c', 'home-2'), 'nor that of a sidecar where the sender is not at home');
  cancelled.add('plain', 'a.b.c', null);
  t.ok(cancelled.has('plain', 'a.b.c', 'home-2'), 'the version before says it without a name');
  t.end();
});
