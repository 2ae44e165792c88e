import t from 'tap';
import type { ProviderRecord } from '../../../../proto/language/types.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { Attempt } from '../../../../sidecar/call/attempt-record.ts';
import type { Call } from '../../../../sidecar/call/call.ts';
import { Bindings } from '../../../../sidecar/choose/bindings.ts';
import type { Candidate } from '../../../../sidecar/table/snapshot.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { BREAKER, NAME, near, P1, P2, P3, provider, shown, three, tried, World } from '../../../support/choosing.ts';
import { contractOf, providerOf } from '../../../support/route-table.ts';

const REFUND = 'crm.refund.apply';
const INTENT = 'nlp.intent.detect';
const STRICT = { affinity: { required: false, from: { header: 'x-session' }, mode: 'strict' as const } };
const LIMIT = { maxEntries: 200_000, ttlMs: 600_000 };

const keys = (count: number): string[] => Array.from({ length: count }, (_, i) => `session-${i}`);
const both = (agentId: string): ProviderRecord => providerOf(agentId, [`${NAME}@2.0.0`, `${REFUND}@1.0.0`]);
const owners = (here: World, of: readonly string[], asked = NAME): string[] => of.map((affinityKey) => here.pick({ affinityKey }, asked));

t.test('a key meets the same agent every time, and keys are shared out by weight', (t) => {
  const here = new World([provider(P1, { weight: 2 }), provider(P2)], {}, {}, 1, LIMIT);
  const first = owners(here, keys(3_000));
  t.strictSame(owners(here, keys(3_000)), first);
  near(t, first.filter((agentId) => agentId === P1).length, 2_000, 'weight 2 of 3');
  t.equal(here.verdict({ affinityKey: 'session-1' }).name, 'affinity_bound');
  t.match(here.verdict({ affinityKey: 'fresh' }), { name: 'affinity_new', words: /by the hash of the conversation key, of 2 usable/ });
  t.end();
});

t.test('two sidecars that share nothing agree, from different zones too', (t) => {
  const providers = ['a', 'b', 'c'].flatMap((zone) => [
    provider(`crm.p.${zone}1`, { region: 'eu', zone }),
    provider(`crm.p.${zone}2`, { region: 'us', zone }),
  ]);
  const here = new World(providers, { load: 'round_robin' }, {}, 1, LIMIT);
  const there = new World([...providers].reverse(), { load: 'random' }, {}, 2, LIMIT);
  t.strictSame(owners(here, keys(500)), owners(there, keys(500)));
  t.equal(new Set(owners(here, keys(500))).size, 6, 'place plays no part');
  t.end();
});

t.test('one session finds the same agent for every capability that it offers, after others have joined as well (R4.1)', (t) => {
  const here = new World([both(P1), both(P2)], {}, {}, 1, LIMIT);
  const asked = owners(here, keys(400));
  const intent = providerOf('nlp.intent.1', [`${INTENT}@1.0.0`]);
  here.push([both(P1), both(P2), both(P3), intent]);
  t.strictSame(owners(here, keys(400), REFUND), asked);
  t.strictSame(owners(here, keys(400)), asked, 'a live key stays where it is');
  const later = owners(here, keys(900).slice(400), REFUND);
  t.ok(later.filter((agentId) => agentId === P3).length > 100, 'the newcomer gets new keys');
  t.end();
});

t.test('a session that needs several agents keeps each of them', (t) => {
  const here = new World(
    [providerOf('nlp.intent.1', [`${INTENT}@1.0.0`]), providerOf('nlp.intent.2', [`${INTENT}@1.0.0`]), both(P1), both(P2)],
    {},
    {},
    1,
    LIMIT,
  );
  const detected = owners(here, keys(300), INTENT);
  const asked = owners(here, keys(300));
  here.push([
    providerOf('nlp.intent.1', [`${INTENT}@1.0.0`]),
    providerOf('nlp.intent.2', [`${INTENT}@1.0.0`]),
    both(P1),
    both(P2),
    both(P3),
  ]);
  t.strictSame(owners(here, keys(300), REFUND), asked, 'refund follows query, though intent came first');
  t.strictSame(owners(here, keys(300), INTENT), detected);
  t.equal(here.chooser.bound, 300, 'one entry a key');
  t.end();
});

t.test('down: only its own keys move; up: exactly those come back (C055)', async (t) => {
  const here = new World(
    [
      provider(P1, { weight: 1 }),
      provider(P2, { weight: 3 }),
      provider(P3, { weight: 2 }),
      provider('crm.p.4', { weight: 5 }),
      provider('crm.p.5'),
    ],
    {},
    {},
    1,
    LIMIT,
  );
  const all = keys(10_000);
  const before = owners(here, all);
  here.break(P3);
  const during = owners(here, all);
  const moved = all.filter((_, i) => before[i] !== during[i]);
  t.strictSame(
    moved,
    all.filter((_, i) => before[i] === P3),
  );
  t.ok(moved.length > 1_000, 'the case is not empty');
  t.equal(new Set(all.filter((_, i) => before[i] === P3).map((key) => here.pick({ affinityKey: key }))).size, 4, 'spread over the others');
  t.match(here.verdict({ affinityKey: moved[0] as string }), {
    name: 'affinity_detour',
    words: /stands in for crm\.p\.3, which holds the conversation but is breaker open/,
  });
  await here.clock.advance(10_000);
  const now = here.clock.now();
  here.cell(P3).end(here.cell(P3).admit(now), 'success', 1, now);
  t.strictSame(owners(here, all), before);
});

t.test('an ejected, offline, busy or blocked holder is stood in for in the same way', async (t) => {
  const here = new World(three(), {}, {}, 1, LIMIT);
  const all = keys(300);
  const before = owners(here, all);
  const mine = all.filter((_, i) => before[i] === P1);
  const others = all.filter((_, i) => before[i] !== P1);
  const theirs = owners(here, others);
  const away = (what: string): void => {
    t.notOk(owners(here, mine).includes(P1), what);
    t.strictSame(owners(here, others), theirs, `${what}: nobody else moves`);
  };
  for (let i = 0; i < 3; i++) here.cell(P1).connectFailed(0);
  away('ejected');
  await here.clock.advance(5_000);
  t.strictSame(owners(here, all), before);
  here.health.provider(P1).offline = true;
  away('offline');
  here.health.provider(P1).offline = false;
  here.health.provider(P1).inFlight = 1_000;
  away('busy');
  here.health.provider(P1).inFlight = 0;
  here.push([provider(P1, { weight: 0 }), provider(P2), provider(P3)]);
  away('weight 0');
  here.push(three());
  t.strictSame(owners(here, all), before);
});

t.test('a conversation that began elsewhere while its owner was unfit stays there', async (t) => {
  const here = new World(three(), {}, {}, 1, LIMIT);
  here.break(P1);
  const began = owners(here, keys(100));
  await here.clock.advance(10_000);
  const now = here.clock.now();
  here.cell(P1).end(here.cell(P1).admit(now), 'success', 1, now);
  t.strictSame(owners(here, keys(100)), began);
  t.ok(owners(here, keys(300).slice(100)).includes(P1), 'new ones use it again');
});

t.test('a conversation whose first call finds nobody there begins at the next one, and stays', (t) => {
  const here = new World(three(), {}, {}, 1, LIMIT);
  const mine = keys(300).filter((key) => ownerOf(here, key) === P1);
  t.ok(mine.length > 50, 'some would begin there');
  const moved = mine.map((key) => {
    const call = here.call({ affinityKey: key });
    here.chooser.choose(call, here.clock.now());
    failAt(call, Code.connect_timeout, 'not_started');
    here.chooser.choose(call, here.clock.now());
    const at = (call.chosen as Candidate).provider.agentId;
    answerAt(call);
    here.chooser.ended(call);
    return at;
  });
  t.notOk(moved.includes(P1));
  t.strictSame(owners(here, mine), moved, 'the next call goes where the first one was served');
  const key = keys(400).find((one) => ownerOf(here, one) === P2) as string;
  const call = here.call({ affinityKey: key });
  here.chooser.choose(call, here.clock.now());
  failAt(call, Code.connection_lost, 'started');
  here.chooser.ended(call);
  t.equal(here.pick({ affinityKey: key }), P2, 'one that may have got there stays: the agent may know it');
  t.end();
});

t.test('a holder that was deregistered is replaced at once and for good (C056)', (t) => {
  const here = new World(three(), { load: 'sticky' }, {}, 1, LIMIT);
  const mine = keys(300).filter((key) => here.pick({ affinityKey: key }) === P1);
  here.push([provider(P2), provider(P3)]);
  const first = here.verdict({ affinityKey: mine[0] as string });
  t.match(first, { name: 'affinity_rebound', words: /takes over the conversation: crm\.p\.1 is gone/ });
  const after = owners(here, mine);
  for (let i = 0; i < 10; i++) t.strictSame(owners(here, mine), after);
  here.push(three());
  t.strictSame(owners(here, mine), after, 'it is back, but its old conversations are not');
  t.end();
});

t.test('strict: an unfit or lost holder is a refusal, never somebody else', async (t) => {
  const contracts = [contractOf(NAME, '2.0.0', STRICT)];
  const here = new World(three(), {}, { contracts }, 1, LIMIT);
  const key = keys(100).find((one) => here.pick({ affinityKey: one }) === P1) as string;
  here.break(P1);
  t.match(here.verdict({ affinityKey: key }), {
    code: 2004,
    words: /crm\.p\.1 held this conversation and cannot serve it now: breaker open/,
  });
  await here.clock.advance(10_000);
  t.equal(here.pick({ affinityKey: key, execution: 'once' }), P1, 'its own conversation may probe it');
  here.cell(P1).end(here.cell(P1).admit(here.clock.now()), 'success', 1, here.clock.now());
  here.health.provider(P1).inFlight = 1_000;
  t.equal(here.verdict({ affinityKey: key }).code, 3003, 'busy is not lost');
  here.health.provider(P1).inFlight = 0;
  const retry = here.call({ affinityKey: key });
  t.equal(here.chooser.choose(tried(retry, P1), here.clock.now()).reason.code, 2004, 'a retry goes nowhere else either');
  here.push(three(), {
    contracts,
    overrides: [
      {
        name: 'o',
        action: 'block',
        capability: null,
        provider: P1,
        caller: null,
        to: null,
        data: null,
        cut: false,
        reason: 'r',
        author: 'a',
        expiresAtMs: null,
      },
    ],
  });
  t.equal(here.verdict({ affinityKey: key }).code, 2006);
  here.push([provider(P1, { drain: true }), provider(P2), provider(P3)], { contracts });
  t.equal(here.pick({ affinityKey: key }), P1, 'a drain lets conversations end');
  t.notOk(owners(here, keys(300).slice(100)).includes(P1), 'and none begin');
  here.push([provider(P2), provider(P3)], { contracts });
  for (let i = 0; i < 3; i++) t.match(here.verdict({ affinityKey: key }), { code: 2004, words: /is no longer registered/ });
  t.ok(here.verdict({ affinityKey: 'another' }).code === 0);
});

t.test('strict holds over capabilities: the agent that had the context is gone, so the next question is lost too', (t) => {
  const contracts = [contractOf(NAME, '2.0.0', STRICT), contractOf(REFUND, '1.0.0', STRICT)];
  const here = new World([both(P1), both(P2)], {}, { contracts }, 1, LIMIT);
  const key = keys(100).find((one) => here.pick({ affinityKey: one }) === P1) as string;
  here.push([both(P2)], { contracts });
  t.equal(here.verdict({ affinityKey: key }, REFUND).code, 2004);
  t.end();
});

t.test('strict is not softened by a later version', (t) => {
  const contracts = [contractOf(NAME, '2.1.0', STRICT), contractOf(NAME, '2.0.0', STRICT)];
  const here = new World([providerOf(P1, [`${NAME}@2.1.0`]), providerOf(P2, [`${NAME}@2.0.0`])], {}, { contracts }, 1, LIMIT);
  t.equal(here.pick({ affinityKey: 's1' }), P1);
  here.break(P1);
  const call = here.call({ affinityKey: 's1' });
  t.equal(here.chooser.choose(call, 0).reason.code, 2004);
  call.lineIndex = 1;
  t.equal(here.chooser.choose(call, 0).reason.code, 2004);
  t.end();
});

t.test('a drained agent keeps its conversations and gets no new ones', (t) => {
  const here = new World(three(), {}, {}, 1, LIMIT);
  const before = owners(here, keys(300));
  here.push([provider(P1, { drain: true }), provider(P2), provider(P3)]);
  t.strictSame(owners(here, keys(300)), before);
  t.notOk(owners(here, keys(600).slice(300)).includes(P1));
  t.end();
});

t.test('a new version does not tear a conversation away from its agent while the old one may be used (C059)', (t) => {
  const here = new World([providerOf(P1, [`${NAME}@2.0.0`])], {}, {}, 1, LIMIT);
  t.equal(here.pick({ affinityKey: 's1' }), P1);
  here.push([providerOf(P1, [`${NAME}@2.0.0`]), providerOf(P2, [`${NAME}@2.1.0`])]);
  const call = here.call({ affinityKey: 's1' });
  t.match(shown(here.chooser.choose(call, 0)), {
    name: 'held_by_other_version',
    words: /crm\.p\.1 holds this conversation and serves 2\.0\.0, which is also allowed/,
  });
  call.lineIndex = 1;
  t.ok(here.chooser.choose(call, 0).reason.passes);
  t.equal((call.chosen as Candidate).provider.agentId, P1);
  t.equal(here.pick({ affinityKey: 's2' }), P2, 'new conversations get the new version');
  here.break(P1);
  t.equal(here.pick({ affinityKey: 's1' }), P2, 'and the old one moves when its agent is unfit');
  t.end();
});

t.test('canary and stickiness: a session changes version only when its version is switched off (C059)', (t) => {
  const providers = [providerOf(P1, [`${NAME}@1.0.0`]), providerOf(P2, [`${NAME}@1.0.0`]), providerOf(P3, [`${NAME}@1.1.0`])];
  const here = new World(providers, { canary: { '1.1.0': 0.2 } }, {}, 1, LIMIT);
  const served = (affinityKey: string): string => {
    const call = here.call({ affinityKey });
    for (call.lineIndex = 0; call.lineIndex < call.lines.length; call.lineIndex++) {
      if (here.chooser.choose(call, here.clock.now()).reason.passes)
        return `${(call.chosen as Candidate).version.text} ${(call.chosen as Candidate).provider.agentId}`;
    }
    return 'refused';
  };
  const all = keys(500);
  const first = all.map(served);
  near(t, first.filter((one) => one.startsWith('1.1.0')).length, 100, 'a fifth');
  t.strictSame(all.map(served), first);
  here.policy({ canary: { '1.1.0': 0.6 } });
  here.push(providers);
  t.strictSame(all.map(served), first, 'a growing canary takes only new sessions');
  near(
    t,
    keys(1_500)
      .slice(500)
      .map(served)
      .filter((one) => one.startsWith('1.1.0')).length,
    600,
    'new sessions',
  );
  here.policy({ canary: { '1.1.0': 0 } });
  here.push(providers);
  const off = all.map(served);
  t.notOk(
    off.some((one) => one.startsWith('1.1.0') || one === 'refused'),
    'switched off: exactly none, and no errors',
  );
  t.strictSame(
    off.filter((_, i) => first[i]?.startsWith('1.0.0')),
    first.filter((one) => one.startsWith('1.0.0')),
    'the others notice nothing',
  );
  t.end();
});

t.test('a retry of a keyed call stays in its version and goes to the next by hash', (t) => {
  const here = new World(
    [provider(P1), provider(P2), provider(P3), providerOf('crm.p.4', [`${NAME}@2.1.0`])],
    { canary: { '2.1.0': 0 } },
    {},
    1,
    LIMIT,
  );
  const right = keys(200).map((affinityKey) => {
    const call = here.call({ affinityKey });
    here.chooser.choose(call, 0);
    const first = (call.chosen as Candidate).provider.agentId;
    here.chooser.choose(tried(call, first), 0);
    const second = call.chosen as Candidate;
    const kept = here.pick({ affinityKey }) === first;
    return kept && second.version.text === '2.0.0' && second.provider.agentId !== first;
  });
  t.strictSame(new Set(right), new Set([true]), 'and the binding stays');
  t.end();
});

t.test('primaries are hashed before backups, wherever they stand; a conversation begun at a backup stays', async (t) => {
  const here = new World([provider(P1, { tier: 'backup', region: 'eu', zone: 'a' }), provider(P2), provider(P3)], {}, {}, 1, LIMIT);
  t.notOk(owners(here, keys(100)).includes(P1));
  here.break(P2);
  here.break(P3);
  t.equal(here.pick({ affinityKey: 'late' }), P1);
  await here.clock.advance(10_000);
  for (const agentId of [P2, P3]) here.cell(agentId).end(here.cell(agentId).admit(here.clock.now()), 'success', 1, here.clock.now());
  t.equal(here.pick({ affinityKey: 'late' }), P1);
  t.notOk(owners(here, keys(100)).includes(P1));
});

t.test('in primary_backup a new conversation begins at the one that serves', (t) => {
  const here = new World([provider(P1), provider(P2, { weight: 2 })], { load: 'primary_backup' }, {}, 1, LIMIT);
  t.strictSame([...new Set(owners(here, keys(100)))], [P2]);
  here.break(P2);
  t.strictSame([...new Set(owners(here, keys(100)))], [P1]);
  t.equal(here.pick({ affinityKey: 'new' }), P1);
  t.end();
});

t.test('without a key the load mode decides; an empty key is none (C054)', (t) => {
  const contracts = [contractOf(NAME, '2.0.0', { affinity: { required: false, from: { header: 'x-session' }, mode: 'soft' } })];
  for (const load of ['least_request', 'round_robin', 'sticky'] as const) {
    for (const affinityKey of [null, '']) {
      const got = new World(three(), { load }, { contracts }).counts(3_000, { affinityKey });
      for (const agentId of [P1, P2, P3]) near(t, got[agentId], 1_000, load);
    }
  }
  t.end();
});

t.test('mode sticky without any declared key sticks to the caller', (t) => {
  const here = new World(three(), { load: 'sticky' });
  t.equal(Object.keys(here.counts(100)).length, 1);
  const anonymous = new World(three(), { load: 'sticky' }).counts(3_000, { principal: null });
  t.equal(Object.keys(anonymous).length, 3, 'nobody to stick to');
  t.end();
});

t.test('panic keeps a conversation with its holder', (t) => {
  const here = new World(three(), { panic: true }, {}, 1, LIMIT);
  const before = owners(here, keys(60));
  for (const agentId of [P1, P2, P3]) here.break(agentId);
  t.strictSame(owners(here, keys(60)), before);
  t.equal(here.verdict({ affinityKey: 'session-1' }).name, 'panic');
  t.end();
});

t.test('work that may run once is not the probe of its unfit holder while others are repeatable', async (t) => {
  const here = new World([provider(P1), provider(P2)], {}, {}, 1, LIMIT);
  const key = keys(50).find((one) => here.pick({ affinityKey: one }) === P1) as string;
  here.break(P1);
  await here.clock.advance(9_900);
  here.pick({ execution: 'keyed' });
  await here.clock.advance(100);
  t.equal(here.pick({ affinityKey: key, execution: 'once' }), P2);
  t.equal(here.pick({ affinityKey: key, execution: 'keyed' }), P1, 'repeatable work goes home and probes');
  await here.clock.advance(1_000);
  t.equal(here.pick({ affinityKey: key, execution: 'once' }), P1);
});

t.test("somebody else's conversation is never diverted to probe", async (t) => {
  const here = new World([provider(P1), provider(P2)], {}, {}, 1, LIMIT);
  const theirs = keys(100).filter((one) => here.pick({ affinityKey: one }) === P2);
  here.break(P1);
  await here.clock.advance(10_000);
  t.strictSame([...new Set(owners(here, theirs))], [P2]);
  here.break(P2);
  t.equal(here.pick({ affinityKey: 'unheard' }), P1, 'a new key probes when nobody else is usable, and begins there');
  t.equal(here.verdict({ affinityKey: 'unheard' }).name, 'affinity_bound');
});

t.test('the memory of conversations is bounded, ages, and never holds a megabyte for a key', async (t) => {
  const clock = new VirtualClock();
  const small = new Bindings(clock, { maxEntries: 100, ttlMs: 1_000 });
  const one = provider(P1);
  for (const key of keys(10_000)) small.bind(key, one);
  t.equal(small.size, 100);
  t.equal(small.of('session-0', true), undefined, 'the least recently used went first');
  await clock.advance(600);
  t.equal(small.of('session-9999', false)?.[0]?.agentId, P1);
  await clock.advance(600);
  t.ok(small.of('session-9999', true), 'use keeps it alive');
  t.notOk(small.of('session-9998', true), 'the others have aged');
  await clock.advance(1_001);
  t.notOk(small.of('session-9999', false));
  const huge = 'x'.repeat(1_000_000);
  small.bind(huge, one);
  t.equal(small.of(huge, true)?.[0], one);
  t.notOk(small.of(`${huge}y`, true));
  for (let i = 0; i < 50; i++) small.bind('busy', provider(`crm.p.${i}`));
  t.ok((small.of('busy', true)?.length ?? 0) <= 16);
  const none = new Bindings(clock, { maxEntries: 0, ttlMs: 1_000 });
  none.bind('a', one);
  t.equal(none.size, 0);
});

t.test('a key that was pushed out of memory finds the same agent while the providers are the same', (t) => {
  const here = new World(three(), {}, {}, 1, { maxEntries: 10, ttlMs: 600_000 });
  const before = owners(here, keys(500));
  t.strictSame(owners(here, keys(500)), before);
  t.equal(here.chooser.bound, 10);
  t.end();
});

t.test('a half-open breaker of one agent does not disturb bound keys of ramping settings', async (t) => {
  const here = new World(three(), { breaker: { ...BREAKER, ramp: [1], rampStepMs: 60_000 } }, {}, 1, LIMIT);
  const before = owners(here, keys(100));
  here.break(P1);
  await here.clock.advance(10_000);
  const now = here.clock.now();
  here.cell(P1).end(here.cell(P1).admit(now), 'success', 1, now);
  t.strictSame(owners(here, keys(100)), before, 'room in the ramp');
  here.cell(P1).admit(now);
  const during = owners(here, keys(100));
  t.notOk(during.includes(P1), 'no room');
  t.strictSame(
    during.filter((_, i) => before[i] !== P1),
    before.filter((one) => one !== P1),
  );
});

/** Where a key would begin, without beginning there. */
function ownerOf(here: World, key: string): string {
  const { chosen } = here.chooser.foresee(here.call({ affinityKey: key }), here.clock.now());
  return (chosen as Candidate).provider.agentId;
}

function failAt(call: Call, code: Code, started: 'not_started' | 'started'): void {
  const made = new Attempt(call.chosen as Candidate, 0);
  made.code = code;
  made.started = started;
  call.attempts.push(made);
}

function answerAt(call: Call): void {
  const made = new Attempt(call.chosen as Candidate, 0);
  made.started = 'done';
  made.status = 200;
  call.attempts.push(made);
}
