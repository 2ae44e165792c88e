import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { ProviderRecord, TableDocument } from '../../../../proto/language/types.ts';
import type { Call } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { wordsOf } from '../../../../sidecar/call/verdict.ts';
import { Health } from '../../../../sidecar/health/health.ts';
import { resolve } from '../../../../sidecar/resolve/resolve.ts';
import { compile } from '../../../../sidecar/table/compile.ts';
import type { Snapshot } from '../../../../sidecar/table/snapshot.ts';
import { callOf, contractOf, documentOf, policyOf, providerOf } from '../../../support/route-table.ts';

const NAME = 'crm.order.query';
const clock = new VirtualClock();
const random = new SeededRandom(1);

interface World {
  readonly table: Snapshot;
  readonly health: Health;
}

function world(providers: readonly ProviderRecord[], parts: Partial<TableDocument> = {}): World {
  const health = new Health(clock, { consecutive: 5, forMs: 10_000 });
  return { table: compile(documentOf(providers, parts), health, { name: 'here', region: null, zone: null }, 1), health };
}

/** One provider for each version, `crm.p0.1` for the first and so on. */
function versions(...texts: string[]): ProviderRecord[] {
  return texts.map((text, i) => providerOf(`crm.p${i}.1`, [`${NAME}@${text}`]));
}

function ask(
  { table }: World,
  range: string | null,
  parts: Partial<Call> = {},
): { lines: string[]; code: number; words: string; reason: string } {
  const call = callOf(clock, table, range === null ? NAME : `${NAME}@${range}`, parts);
  const { reason, a, b, c } = resolve(call, random);
  return { lines: call.lines.map((line) => line.text), code: reason.code, words: wordsOf(reason, a, b, c), reason: reason.name };
}

t.test('a range gives the newest version that satisfies it, then the others of that major', (t) => {
  const here = world(versions('1.8.0', '2.0.0', '2.1.0', '2.1.3', '3.0.0'));
  t.strictSame(ask(here, '^2.0').lines, ['2.1.3', '2.1.0', '2.0.0']);
  t.strictSame(ask(here, '~2.1.0').lines, ['2.1.3', '2.1.0']);
  t.strictSame(ask(here, '>=1.8 <3').lines, ['2.1.3', '2.1.0', '2.0.0'], 'failover never changes the major');
  t.strictSame(ask(here, '^1.0 || ^3').lines, ['3.0.0']);
  t.strictSame(ask(here, '2.0.0').lines, ['2.0.0']);
  t.strictSame(ask(here, '1.8 - 2.0').lines, ['2.0.0']);
  t.match(ask(here, '^2.0').words, /2\.1\.3 is the newest of the living versions that match \(\^2\.0\)/);
  t.end();
});

t.test('pre-releases serve only when the range names one of the same tuple (C065)', (t) => {
  const here = world(versions('1.6.0', '1.7.0-rc.0', '2.0.0-0', '0.2.3-alpha'));
  const table: readonly [string, string | number][] = [
    ['^1', '1.6.0'],
    ['1.x', '1.6.0'],
    ['*', '1.6.0'],
    ['^1.7.0-rc', '1.7.0-rc.0'],
    ['^2', 2002],
    ['^0.2.3', 2002],
    ['>=1.6.0 <2.0.0', '1.6.0'],
  ];
  for (const [range, wanted] of table) {
    const got = ask(here, range);
    t.equal(typeof wanted === 'number' ? got.code : got.lines[0], wanted, range);
  }
  t.strictSame(ask(here, null).lines, ['1.6.0'], 'and none without a range');
  t.end();
});

t.test('never an older version than asked: the refusal lists what exists (R3.2)', (t) => {
  const here = world([providerOf('crm.p1.1', [`${NAME}@1.8.0`]), providerOf('crm.p2.1', [`${NAME}@1.8.0`])], {
    contracts: [contractOf(NAME, '2.0.0')],
  });
  const got = ask(here, '^2.0');
  t.equal(got.code, 2002);
  t.equal(got.words, 'crm.order.query: asked ^2.0; exists: 1.8.0 (2 providers)');
  t.strictSame(got.lines, []);
  t.end();
});

t.test('a version whose providers are all offline counts as absent, and comes back with them', (t) => {
  const here = world([...versions('1.8.0', '2.0.0', '2.1.0'), providerOf('crm.p3.1', [`${NAME}@2.1.0`])]);
  here.health.provider('crm.p2.1').offline = true;
  t.strictSame(ask(here, '^2').lines, ['2.1.0', '2.0.0'], 'one of two is enough');
  here.health.provider('crm.p3.1').offline = true;
  t.strictSame(ask(here, '^2').lines, ['2.0.0']);
  here.health.provider('crm.p1.1').offline = true;
  const got = ask(here, '^2');
  t.equal(got.code, 2002, 'only 1.8 is alive');
  t.match(
    got.words,
    /asked \^2, whose providers are all offline; exists: 2\.1\.0 \(2 providers, offline\), 2\.0\.0 \(1 provider, offline\), 1\.8\.0 \(1 provider\)/,
  );
  here.health.provider('crm.p0.1').offline = true;
  t.equal(ask(here, '^2').code, 2003, 'when nobody at all is alive this is an outage, which a fallback may mend');
  here.health.provider('crm.p1.1').offline = false;
  t.strictSame(ask(here, '^2').lines, ['2.0.0']);
  t.end();
});

t.test('a capability without any provider is none: 2001', (t) => {
  const here = world([], { contracts: [contractOf(NAME, '1.0.0')] });
  t.equal(ask(here, null).code, 2001);
  t.equal(ask(here, '^1').code, 2001);
  t.end();
});

t.test("without a range: the operator's, else the newest stable major", (t) => {
  t.strictSame(ask(world(versions('1.8.0', '2.0.0', '2.2.0', '3.0.0-rc.1')), null).lines, ['2.2.0', '2.0.0']);
  const ruled = world(versions('1.8.0', '2.0.0'), { policies: [policyOf(NAME, { defaultRange: '^1' })] });
  t.strictSame(ask(ruled, null).lines, ['1.8.0']);
  t.match(ask(ruled, null).words, /the operator's range \^1/);
  t.strictSame(ask(ruled, '^2').lines, ['2.0.0'], "the caller's own range wins");
  t.end();
});

t.test('without a range, an outage of the newest major is no silent downgrade', (t) => {
  const here = world(versions('1.8.0', '2.0.0'));
  here.health.provider('crm.p1.1').offline = true;
  t.equal(ask(here, null).code, 2002);
  t.end();
});

t.test('without a range, a major that takes no traffic yet is not the newest one', (t) => {
  const [old, staged] = versions('1.8.0', '2.0.0') as [ProviderRecord, ProviderRecord];
  t.strictSame(ask(world([old, { ...staged, weight: 0 }]), null).lines, ['1.8.0']);
  const canary = world([old, staged], { policies: [policyOf(NAME, { canary: { '2.0.0': 0 } })] });
  t.strictSame(ask(canary, null).lines, ['1.8.0']);
  t.end();
});

t.test('without a range, the canary of a new major takes its share and no more', (t) => {
  const here = world(versions('1.8.0', '2.0.0'), { policies: [policyOf(NAME, { canary: { '2.0.0': 0.05 } })] });
  let fresh = 0;
  for (let i = 0; i < 10_000; i++) if (ask(here, null, { affinityKey: `s${i}` }).lines[0] === '2.0.0') fresh++;
  t.ok(fresh > 400 && fresh < 600, `${fresh} of about 500`);
  t.strictSame(ask(here, '^2').lines, ['2.0.0'], 'who asks for it gets it');
  t.end();
});

t.test("a tag selector sees the provider's tags over the contract's", (t) => {
  const here = world(
    [
      providerOf('crm.p1.1', [`${NAME}@2.0.0`], { tags: { tier: 'gold', model: 'big' } }),
      providerOf('crm.p2.1', [`${NAME}@2.0.0`]),
      providerOf('crm.p3.1', [`${NAME}@1.0.0`], { tags: { model: 'big' } }),
    ],
    { contracts: [contractOf(NAME, '2.0.0', { tags: { tier: 'basic', lang: 'en' } })] },
  );
  const agents = (tags: string, range: string | null = null): string[] => {
    const call = callOf(clock, here.table, range === null ? NAME : `${NAME}@${range}`, { tags });
    resolve(call, random);
    return call.lines.flatMap((line) => line.candidates.map((candidate) => candidate.provider.agentId));
  };
  t.strictSame(agents('tier=gold'), ['crm.p1.1']);
  t.strictSame(agents('tier=basic'), ['crm.p2.1']);
  t.strictSame(agents('lang=en'), ['crm.p1.1', 'crm.p2.1']);
  t.strictSame(agents('lang=en,model=big'), ['crm.p1.1']);
  t.strictSame(agents('model=big'), ['crm.p1.1'], 'newest major that carries it');
  t.strictSame(agents('model=big', '^1'), ['crm.p3.1']);
  const none = ask(here, null, { tags: 'lang=fr' });
  t.equal(none.code, 2001);
  t.match(none.words, /no provider of crm\.order\.query carries lang=fr/);
  const other = ask(here, '^1', { tags: 'lang=en' });
  t.equal(other.code, 2002);
  t.match(other.words, /exists: 2\.0\.0 \(2 providers\)/, 'only what carries the tags is listed');
  t.strictSame(agents('constructor=x'), [], 'inherited names are no tags');
  t.end();
});

t.test('versions whose ACL does not name the caller are left out; if that leaves none, 4002', (t) => {
  const team = (team: string) => ({ isPublic: false, patterns: [{ text: `${team}.*`, team, role: null, id: null }] });
  const here = world(versions('1.0.0', '2.0.0', '2.1.0'), {
    contracts: [
      contractOf(NAME, '1.0.0'),
      contractOf(NAME, '2.0.0', { acl: team('crm') }),
      contractOf(NAME, '2.1.0', { acl: team('ops') }),
    ],
  });
  const desk = { principal: new Principal('crm.desk.1') };
  const guest = { principal: new Principal('web.guest.1') };
  t.strictSame(ask(here, '^2', desk).lines, ['2.0.0']);
  t.strictSame(ask(here, '^2', { principal: new Principal('ops.bot.1') }).lines, ['2.1.0']);
  t.strictSame(ask(here, null, guest).lines, ['1.0.0'], 'the newest of those that they may call');
  t.equal(ask(here, '^2', guest).code, 4002);
  const missing = ask(here, '^3', guest);
  t.equal(missing.code, 2002);
  t.notMatch(missing.words, /2\.1\.0|2\.0\.0/, 'what they may not call is not listed');
  t.end();
});

t.test('a canary is stable per key and takes its share', (t) => {
  const here = world(versions('2.0.0', '2.1.0'), { policies: [policyOf(NAME, { canary: { '2.1.0': 0.05 } })] });
  let fresh = 0;
  let unstable = 0;
  for (let i = 0; i < 10_000; i++) {
    const first = ask(here, '^2', { affinityKey: `s${i}`, traceId: 'a' }).lines[0];
    if (first === '2.1.0') fresh++;
    if (ask(here, '^2', { affinityKey: `s${i}`, traceId: 'b' }).lines[0] !== first) unstable++;
  }
  t.equal(unstable, 0);
  t.ok(fresh > 400 && fresh < 600, `${fresh} of about 500`);
  const got = ask(here, '^2', { affinityKey: 's1' });
  t.equal(got.reason, 'canary');
  t.match(got.words, /2\.1\.0 5 %, 2\.0\.0 95 %; the draw of this conversation key/);
  t.strictSame([...got.lines].sort(), ['2.0.0', '2.1.0'], 'the other one stands by');
  t.end();
});

t.test('without a key the trace decides, without a trace chance does', (t) => {
  const here = world(versions('2.0.0', '2.1.0'), { policies: [policyOf(NAME, { canary: { '2.1.0': 0.5 } })] });
  const traces = Array.from({ length: 100 }, (_, i) => i.toString(16).padStart(32, '0'));
  const byTrace = traces.map((traceId) => ask(here, '^2', { traceId }).lines[0]);
  t.equal(new Set(byTrace).size, 2);
  t.strictSame(
    traces.map((traceId) => ask(here, '^2', { traceId }).lines[0]),
    byTrace,
  );
  t.equal(new Set(Array.from({ length: 50 }, () => ask(here, '^2').lines[0])).size, 2);
  t.equal(
    new Set(Array.from({ length: 50 }, () => ask(here, '^2', { affinityKey: '', traceId: 'x' }).lines[0])).size,
    1,
    'an empty key is none',
  );
  t.end();
});

t.test('a growing share keeps every key it had', (t) => {
  const shares = [0, 0.004, 0.05, 0.2, 0.6, 1];
  let before = new Set<number>();
  for (const share of shares) {
    const here = world(versions('2.0.0', '2.1.0'), { policies: [policyOf(NAME, { canary: { '2.1.0': share } })] });
    const now = new Set<number>();
    for (let i = 0; i < 5_000; i++) if (ask(here, '^2', { affinityKey: `s${i}` }).lines[0] === '2.1.0') now.add(i);
    t.strictSame(
      [...before].filter((key) => !now.has(key)),
      [],
      `${share}: none is lost`,
    );
    t.ok(Math.abs(now.size - 5_000 * share) <= 5 * Math.sqrt(5_000 * share), `${share}: ${now.size}`);
    before = now;
  }
  t.end();
});

t.test('a share of 0 is never served, not even when nobody else is left (C057)', (t) => {
  const off = world(versions('2.0.0', '2.1.0'), { policies: [policyOf(NAME, { canary: { '2.1.0': 0 } })] });
  const lines = new Set(Array.from({ length: 10_000 }, (_, i) => ask(off, '^2', { affinityKey: `s${i}` }).lines.join(' ')));
  t.strictSame([...lines], ['2.0.0']);
  off.health.provider('crm.p0.1').offline = true;
  const none = ask(off, '^2');
  t.equal(none.code, 2003);
  t.match(none.words, /2\.1\.0 \(share 0\), 2\.0\.0 \(offline\)/);
  const both = world(versions('2.0.0', '2.1.0'), { policies: [policyOf(NAME, { canary: { '2.0.0': 0, '2.1.0': 0 } })] });
  t.equal(ask(both, '^2').code, 2003);
  t.end();
});

t.test('0.4 % is honoured (C057)', (t) => {
  const here = world(versions('2.0.0', '2.1.0'), { policies: [policyOf(NAME, { canary: { '2.1.0': 0.004, '2.0.0': 0.996 } })] });
  let fresh = 0;
  for (let i = 0; i < 10_000; i++) if (ask(here, '^2', { affinityKey: `s${i}` }).lines[0] === '2.1.0') fresh++;
  t.ok(fresh > 15 && fresh < 75, `${fresh} of about 40`);
  t.match(ask(here, '^2').words, /2\.1\.0 0\.4 %, 2\.0\.0 99\.6 %/);
  t.end();
});

t.test('several shares at once; what they leave over goes to the newest that is not named; the range counts first', (t) => {
  const here = world(versions('1.0.0', '2.0.0', '2.1.0', '2.2.0', '2.3.0'), {
    policies: [policyOf(NAME, { canary: { '2.3.0': 0.1, '2.1.0': 0.2, '1.0.0': 0.5 } })],
  });
  const counts: Record<string, number> = {};
  for (let i = 0; i < 10_000; i++) {
    const first = ask(here, '^2', { affinityKey: `s${i}` }).lines[0] as string;
    counts[first] = (counts[first] ?? 0) + 1;
  }
  t.strictSame(Object.keys(counts).sort(), ['2.1.0', '2.2.0', '2.3.0']);
  t.ok(Math.abs((counts['2.3.0'] ?? 0) - 1_000) < 160);
  t.ok(Math.abs((counts['2.1.0'] ?? 0) - 2_000) < 210);
  t.strictSame(ask(here, '2.1.0').lines, ['2.1.0'], 'a single match takes all');
  t.equal(ask(here, '~2.3').lines[0], '2.3.0');
  t.end();
});

t.test('when the version picked has nobody alive, its share goes to those that are left, and only while it lasts', (t) => {
  const here = world(versions('2.0.0', '2.1.0'), { policies: [policyOf(NAME, { canary: { '2.1.0': 0.3 } })] });
  const keys = Array.from({ length: 300 }, (_, i) => `s${i}`);
  const pick = (): (string | undefined)[] => keys.map((affinityKey) => ask(here, '^2', { affinityKey }).lines[0]);
  const before = pick();
  here.health.provider('crm.p1.1').offline = true;
  t.strictSame(new Set(pick()), new Set(['2.0.0']));
  here.health.provider('crm.p1.1').offline = false;
  t.strictSame(pick(), before);
  t.end();
});

t.test('one session meets the canary of every capability that is split alike', (t) => {
  const refund = 'crm.refund.apply';
  const here = world(
    [providerOf('crm.old.1', [`${NAME}@2.0.0`, `${refund}@2.0.0`]), providerOf('crm.new.1', [`${NAME}@2.1.0`, `${refund}@2.1.0`])],
    {
      policies: [policyOf('crm.*', { canary: { '2.1.0': 0.3 } })],
    },
  );
  const first = (name: string, affinityKey: string): string | undefined => {
    const call = callOf(clock, here.table, name, { affinityKey });
    resolve(call, random);
    return call.lines[0]?.text;
  };
  const keys = Array.from({ length: 500 }, (_, i) => `s${i}`);
  t.strictSame(
    keys.map((key) => first(NAME, key)),
    keys.map((key) => first(refund, key)),
  );
  t.end();
});

t.test('junk that reached it is refused as a bad name, and what callers ask cannot fill the memory', (t) => {
  const here = world(versions('1.0.0'));
  t.equal(ask(here, 'undefined').code, 4006);
  t.equal(ask(here, '^1 ||').code, 4006);
  for (let i = 0; i < 1_000; i++) ask(here, `^1.0.0 || ${i + 5}.0.0`);
  const capability = here.table.capabilities.get(NAME);
  t.ok((capability?.resolved.size ?? 0) <= 256);
  t.strictSame(ask(here, '^1').lines, ['1.0.0']);
  t.end();
});
