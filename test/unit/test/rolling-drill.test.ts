/**
 * The judge of the rolling drill is tried here: evidence in which nothing is wrong is falsified in one place at a time, and each
 * falsification must be seen. What it takes from the judge of messages is tried in `message-drills.test.ts`.
 */
import t from 'tap';
import type { Call, Lapse } from '../../drills/generator.ts';
import type { Verdict } from '../../drills/messages/judge.ts';
import { brokenRolling, type CallEvidence, judgeCalls, type RollingEvidence } from '../../drills/rolling/judge.ts';
import { NAMES, PASSES, type Roll } from '../../drills/rolling/roll.ts';

const SLOT_MS = 10_000;
const WORKER = 'drill.worker.w1';

/** One after another, each gone after 1 s and ready after 2. */
const ROLLS: readonly Roll[] = PASSES.flatMap((pass, p) =>
  NAMES.map((what, i): Roll => {
    const fromMs = (p * NAMES.length + i + 1) * SLOT_MS;
    const kind = what.startsWith('w') ? 'worker' : what.startsWith('s') ? 'caller' : what === 'nats' ? 'nats' : 'control';
    const codes = pass === 'SIGKILL' ? [null] : kind === 'nats' ? [] : [0];
    const times = { fromMs, goneMs: fromMs + 1_000, readyMs: fromMs + 2_000, fromWallMs: fromMs, readyWallMs: fromMs + 2_000 };
    return { pass, what, kind, ...times, codes, didLead: what === 'cp-1' };
  }),
);

const call = (n: number, endedMs: number): Call => ({
  n,
  dueMs: endedMs - 5,
  endedMs,
  tookMs: 5,
  lane: 0,
  provider: WORKER,
  refusals: 0,
  cuts: 0,
  attempts: 1,
});
/** One within each replacement. */
const CALLS: readonly Call[] = ROLLS.map(({ fromMs }, n) => call(n, fromMs + 500));
const lapse = (lane: string, atMs: number): Lapse => ({ n: 1, lane, atMs, words: 'ECONNRESET' });
const rollOf = (pass: Roll['pass'], what: string): Roll => ROLLS.find((each) => each.pass === pass && each.what === what) as Roll;

const GOOD_CALLS: CallEvidence = {
  calls: CALLS,
  failures: [],
  turnedAway: [lapse('s1', rollOf('SIGTERM', 's1').fromMs + 1_200)],
  cuts: [lapse('s2', rollOf('SIGKILL', 's2').fromMs + 10)],
  rolls: ROLLS,
  counted: { starts: {}, ends: {}, by: Object.fromEntries(CALLS.map(({ n }) => [n, [WORKER]])) },
};

const NOTHING = { accepted: 0, done: 0, dead: 0, inDoubt: 0, failed: 0, lost: 0, replayed: 0, restarted: 0, interrupted: 0 };
const MESSAGES = {
  figures: { accepted: 100 },
  kinds: { keyed: NOTHING, idempotent: NOTHING, once: { ...NOTHING, inDoubt: 2 } },
} as unknown as Verdict;
const FLEET = '{"sidecars":["w1 current"]}';

const GOOD: RollingEvidence = {
  calls: CALLS,
  rolls: ROLLS,
  figures: judgeCalls(GOOD_CALLS).figures,
  messages: MESSAGES,
  silences: [],
  doubts: [],
  before: FLEET,
  after: FLEET,
  demands: { leastCalls: 10, leastMessages: 100, inHand: 1 },
};

t.test('calls that were answered, and were sent again only where they may be, have not failed', async (t) => {
  const { figures, problems } = judgeCalls(GOOD_CALLS);
  t.strictSame(problems, []);
  t.strictSame(figures, { calls: CALLS.length, failed: 0, reconnects: 1, cut: 1 });
});

t.test('every falsification of what callers saw is a failed call', async (t) => {
  const falsified: readonly (readonly [string, Partial<CallEvidence>, RegExp])[] = [
    ['no answer', { failures: [{ dueMs: 1_000, lane: 's1', words: 'HTTP 503' }] }, /due at 1\.00 s: HTTP 503/],
    ['nobody has written it down', { counted: { starts: {}, ends: {}, by: {} } }, /call 0 was answered by drill\.worker\.w1, and nobody/],
    ['no provider takes calls', { counted: undefined }, /nobody has carried it out/],
    [
      'another one has',
      { counted: { starts: {}, ends: {}, by: { ...GOOD_CALLS.counted?.by, 3: ['drill.worker.w2'] } } },
      /call 3 was answered by drill\.worker\.w1, and was carried out by drill\.worker\.w2/,
    ],
    ['turned away while nobody replaced it', { turnedAway: [lapse('s1', 5_000)] }, /call 1 was not taken by s1 at 5\.00 s/],
    ['turned away while another one was replaced', { turnedAway: [lapse('s2', rollOf('SIGTERM', 's1').fromMs)] }, /not taken by s2/],
    ['turned away after it was back', { turnedAway: [lapse('s1', rollOf('SIGTERM', 's1').readyMs + 500)] }, /not taken by s1/],
    ['cut by a sidecar that was asked to stop', { cuts: [lapse('s1', rollOf('SIGTERM', 's1').fromMs + 500)] }, /cut by s1/],
    ['cut while another one was killed', { cuts: [lapse('s1', rollOf('SIGKILL', 'w1').fromMs)] }, /cut by s1/],
    ['cut after it was back', { cuts: [lapse('s1', rollOf('SIGKILL', 's1').readyMs + 500)] }, /cut by s1/],
    ['answered twice', { calls: [...CALLS, call(0, 1_000)] }, /1 calls were answered twice/],
  ];
  for (const [what, change, words] of falsified) {
    const { figures, problems } = judgeCalls({ ...GOOD_CALLS, ...change });
    t.ok(figures.failed > 0, what);
    t.match(problems.join('\n'), words, what);
  }
});

t.test('a call that was cut twice fails once', async (t) => {
  t.equal(judgeCalls({ ...GOOD_CALLS, cuts: [lapse('s1', 100), lapse('s1', 300)] }).figures.failed, 1);
});

t.test('a drill in which everything was replaced and nothing was lost is passed', async (t) => {
  t.strictSame(brokenRolling(GOOD), []);
});

t.test('a drill that has shown less, or something else, is not passed', async (t) => {
  const without = (pass: Roll['pass'], what: string): readonly Roll[] => ROLLS.filter((each) => each.pass !== pass || each.what !== what);
  const changed = (pass: Roll['pass'], what: string, change: Partial<Roll>): readonly Roll[] =>
    ROLLS.map((each) => (each.pass === pass && each.what === what ? { ...each, ...change } : each));
  const silence = { n: 1, gate: 's1', key: '', words: 'ECONNRESET' };
  const falsified: readonly (readonly [Partial<RollingEvidence>, string])[] = [
    [{ figures: { ...GOOD.figures, failed: 1 } }, 'failed: 1'],
    [{ figures: { ...GOOD.figures, calls: 9 } }, 'only 9 calls of 10'],
    [{ demands: { ...GOOD.demands, leastMessages: 101 } }, 'only 100 messages of 101'],
    [{ demands: { ...GOOD.demands, inHand: 0 } }, '2 of once work are in doubt, more than 3 killed workers can have had in hand'],
    [{ rolls: without('SIGTERM', 'nats') }, 'SIGTERM never came to nats'],
    [{ rolls: without('SIGKILL', 'w2') }, 'SIGKILL never came to w2'],
    [{ rolls: changed('SIGKILL', 'cp-1', { didLead: false }) }, 'SIGKILL never came to the replica that leads'],
    [{ rolls: changed('SIGTERM', 'w3', { codes: [4, 0] }) }, 'w3 was asked to stop and ended with 4, 0'],
    [{ rolls: changed('SIGTERM', 'cp-2', { codes: [null] }) }, 'cp-2 was asked to stop and ended with null'],
    [{ calls: CALLS.slice(1) }, 'no call was answered while w1 was replaced (SIGTERM)'],
    [{ silences: [{ ...silence, atMs: SLOT_MS }] }, '1 submissions were not answered although nothing had been killed: s1 ECONNRESET'],
    [
      { silences: [{ ...silence, atMs: rollOf('SIGKILL', 'w1').fromMs }] },
      '1 submissions were not answered by a sidecar that nobody was killing: s1 ECONNRESET',
    ],
    [{ doubts: [{ atMs: SLOT_MS, sidecar: 'w1' }] }, '1 messages were in doubt although nothing had been killed'],
    [{ doubts: [{ atMs: 5 * SLOT_MS, sidecar: '' }] }, '1 messages were in doubt although nothing had been killed'],
    [{ after: '{}' }, `the fleet is not as it was: {}; before: ${FLEET}`],
    [{ before: null, after: null }, 'the fleet is not as it was: nobody can say; before: nobody could say'],
  ];
  for (const [change, words] of falsified) t.strictSame(brokenRolling({ ...GOOD, ...change }), [words], words);
  const later = rollOf('SIGKILL', 's1').fromMs;
  const doubts = [
    { atMs: later, sidecar: '' },
    { atMs: rollOf('SIGTERM', 'w1').readyWallMs + 1, sidecar: 'w1' },
  ];
  t.strictSame(brokenRolling({ ...GOOD, silences: [{ ...silence, atMs: later }], doubts }), [], 'a kill may leave both');
});
