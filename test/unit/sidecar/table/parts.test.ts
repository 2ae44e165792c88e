/** The pure parts of the sidecar's side of the registry. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import type { CapabilityState } from '../../../../proto/wire/registry.ts';
import { readAnswer } from '../../../../sidecar/table/answer.ts';
import { covers, judge } from '../../../../sidecar/table/chain.ts';
import { type CapabilityParts, partsOf } from '../../../../sidecar/table/compile.ts';
import { DurableFile } from '../../../../sidecar/table/durable-file.ts';
import { absentProviders, isSuspiciouslySmall } from '../../../../sidecar/table/guard.ts';
import { assemble, documentOf as documentIn } from '../../../../sidecar/table/parts.ts';
import { open, readBeacon } from '../../../../sidecar/table/readable.ts';
import { capabilityTail, scopeChange, tailsOf } from '../../../../sidecar/table/scope.ts';
import { shared } from '../../../../sidecar/table/sharing.ts';
import { documentOf, statesOf } from '../../../support/registry-writer.ts';
import { tableOf } from '../../../support/virtual-registry.ts';

const QUERY = 'crm.order.query';
const partsIn = (counts: Readonly<Record<string, number>>): CapabilityParts => partsOf(documentOf(tableOf(counts)));
const shardsOf = (count: number, more: Partial<CapabilityState> = {}): CapabilityState[] =>
  JSON.parse(JSON.stringify(statesOf(tableOf({ [QUERY]: count }), QUERY, more))) as CapabilityState[];

t.test('what a sequence means', async (t) => {
  for (const [held, seq, before, expected] of [
    [0, 1, 0, 'next'],
    [0, 9, 5, 'next'],
    [5, 9, 5, 'next'],
    [5, 9, 0, 'next'],
    [5, 9, 4, 'next'],
    [5, 9, 7, 'gap'],
    [5, 9, null, 'next'],
    [9, 9, 5, 'old'],
    [9, 8, 5, 'old'],
    [9, 8, null, 'old'],
  ] as const)
    t.equal(judge(held, seq, before), expected, `held ${held}, seq ${seq}, before ${before}`);
});

t.test('what a beacon covers', async (t) => {
  const recent = [['cap.a.b.c', 12] as const];
  for (const [what, beacon, seen, pauseMs, expected] of [
    ['nothing is new', { lastSeq: 10, recent: [], since: null }, 10, 99_999, true],
    ['the writer says since when its list is whole', { lastSeq: 12, recent, since: 9 }, 10, 99_999, true],
    ['the list begins after what was seen', { lastSeq: 12, recent, since: 11 }, 10, 1_000, false],
    ['an old writer whose list has the newest change', { lastSeq: 12, recent, since: null }, 10, 1_000, true],
    ['the same after a long pause', { lastSeq: 12, recent, since: null }, 10, 9_000, false],
    ['an old writer that does not know the newest change', { lastSeq: 13, recent, since: null }, 10, 1_000, false],
    [
      'a list that was cut',
      { lastSeq: 300, recent: Array.from({ length: 200 }, (_, i) => [`cap.a.b.c${i}`, 101 + i] as const), since: null },
      10,
      1_000,
      false,
    ],
  ] as const)
    t.equal(covers(beacon, seen, pauseMs), expected, what);
});

t.test('scopes and tails', async (t) => {
  t.strictSame(scopeChange(new Set(['a', 'b']), new Set(['b', 'c'])), { added: ['c'], removed: ['a'] });
  t.strictSame(capabilityTail('cap.crm.order.query'), { name: QUERY, shard: 0 });
  t.strictSame(capabilityTail('cap.crm.order.query.12'), { name: QUERY, shard: 12 });
  for (const bad of [
    'scope.here',
    'cap.crm.order',
    'cap.crm.order.query.0',
    'cap.crm.order.query.01',
    'cap.crm.order.query.-1',
    'cap.crm.order.query.x',
    'cap.crm.order.query.1.2',
    'cap.',
    'cap.crm.order.query.99999999',
  ])
    t.equal(capabilityTail(bad), null, bad);
  t.strictSame(tailsOf(QUERY, 3), ['cap.crm.order.query', 'cap.crm.order.query.1', 'cap.crm.order.query.2']);
  t.strictSame(tailsOf(QUERY, 0), ['cap.crm.order.query']);
});

t.test('a capability out of its shards', async (t) => {
  const all = (): boolean => true;
  const [one] = shardsOf(3) as [CapabilityState];
  t.test('one thing once: the registry’s word before what stands beside it', async (t) => {
    const own = documentOf(tableOf({ [QUERY]: 4 }, '1.0.0'));
    const drained = { ...(own.providers[0] as (typeof own.providers)[number]), drain: true };
    const beside = {
      contracts: own.contracts,
      providers: [drained, own.providers[3]].map((record) => ({ record: record as typeof drained, mesh: '' })),
    };
    const part = assemble(QUERY, [one], 0.5, [beside], all, null);
    t.strictSame(
      part?.providers.map(({ record }) => record.agentId),
      ['crm.order.1', 'crm.order.2', 'crm.order.3', 'crm.order.4'],
    );
    t.equal(part?.providers[0]?.record.drain, false);
    t.equal(part?.contracts.length, 1);
  });
  t.test('which process a sidecar is comes with its providers, and another one makes another part', async (t) => {
    const saying = (instance: string): CapabilityState => ({ ...one, providers: one.providers.map((each) => ({ ...each, instance })) });
    const before = assemble(QUERY, [saying('i1')], 0.5, [], all, null);
    t.equal(before?.providers[0]?.instance, 'i1');
    t.equal(assemble(QUERY, [saying('i1')], 0.5, [], all, before), before);
    const after = assemble(QUERY, [saying('i2')], 0.5, [], all, before);
    t.equal(after?.providers[0]?.instance, 'i2');
    t.notOk('instance' in (assemble(QUERY, [one], 0.5, [], all, null)?.providers[0] ?? {}), 'an older control plane does not say it');
  });
  t.test('a provider that stands in two shards for a moment is one', async (t) => {
    const part = assemble(QUERY, [one, { ...one, shard: 1, contracts: [] }], 0.5, [], all, null);
    t.equal(part?.providers.length, 3);
  });
  t.test('the same content is the same object', async (t) => {
    const before = assemble(QUERY, [one], 0.5, [], all, null);
    t.equal(assemble(QUERY, shardsOf(3), 0.5, [], all, before), before);
    const after = assemble(QUERY, shardsOf(4), 0.5, [], all, before);
    t.not(after, before);
    t.equal(after?.contracts, before?.contracts);
    t.equal(after?.providers[0], before?.providers[0]);
  });
  t.test('without a contract there is nothing', async (t) => {
    t.equal(assemble(QUERY, [], 0.5, [], all, null), null);
    t.equal(assemble(QUERY, [{ ...one, contracts: [] }], 0.5, [], all, null), null);
  });
  t.test('whoever is below the share takes part in a staged roll-out', async (t) => {
    const contract = { ...(one.contracts[0] as CapabilityState['contracts'][number]), version: '1.1.0' };
    const staged = { ...one, policiesVersion: 4, staged: { version: 5, share: 0.3, contracts: [contract], policies: [] } };
    t.equal(assemble(QUERY, [staged], 0.29, [], all, null)?.contracts[0]?.version, '1.1.0');
    t.equal(assemble(QUERY, [staged], 0.3, [], all, null)?.contracts[0]?.version, '1.0.0');
    t.strictSame(documentIn([staged], 0.29), { version: 5, staged: true });
    t.strictSame(documentIn([staged], 0.3), { version: 4, staged: false });
    t.strictSame(documentIn([], 0.3), { version: 0, staged: false });
  });
  t.test('a state shares what it can with the one before', async (t) => {
    const [next] = shardsOf(4) as [CapabilityState];
    const merged = shared(next, one);
    t.equal(merged.contracts, one.contracts);
    t.equal(merged.providers[0], one.providers[0]);
    t.equal(merged.providers.length, 4);
    const [reordered] = shardsOf(3) as [CapabilityState];
    const [first] = reordered.providers as [CapabilityState['providers'][number]];
    const turned = { ...reordered, providers: [...reordered.providers.slice(1), { mesh: first.mesh, record: first.record }] };
    t.strictSame(shared(turned, one).providers[2], one.providers[0]);
    t.equal(shared(turned, one).providers[2], one.providers[0], 'the order of keys means nothing');
    const changed = { ...one, providers: [{ ...first, record: { ...first.record, weight: 2 } }, ...one.providers.slice(1)] };
    t.equal(shared(changed, one).providers[0]?.record.weight, 2);
  });
});

t.test('the guard of a new epoch', async (t) => {
  for (const [was, is, expected] of [
    [0, 0, false],
    [0, 5, false],
    [1, 0, true],
    [3, 1, false],
    [4, 2, false],
    [4, 1, true],
    [100, 50, false],
    [100, 49, true],
    [100, 200, false],
  ] as const)
    t.equal(isSuspiciouslySmall(partsIn({ [QUERY]: was }), partsIn({ [QUERY]: is })), expected, `${was} to ${is}`);
  const kept = absentProviders(partsIn({ [QUERY]: 3, 'crm.refund.apply': 1 }), partsIn({ [QUERY]: 1 }), (agent) => agent !== 'crm.order.3');
  t.strictSame([...kept.keys()], [QUERY, 'crm.refund.apply']);
  t.strictSame(
    kept.get(QUERY)?.providers.map(({ record }) => record.agentId),
    ['crm.order.2'],
  );
  t.strictSame(
    kept.get('crm.refund.apply')?.contracts.map(({ version }) => version),
    ['1.0.0'],
    'with the contract, which the new registry may not know',
  );
});

t.test('what comes over the bus is opened with care', async (t) => {
  const bytes = (value: unknown): Buffer => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
  for (const [value, why] of [
    ['', /not JSON/],
    ['\u0000', /not JSON/],
    ['[]', /not a JSON object/],
    ['null', /not a JSON object/],
    [{ epoch: 'e' }, /version unknown/],
    [{ wire: '1', epoch: 'e' }, /version "1"/],
    [{ wire: 1 }, /no epoch/],
    [{ wire: 1, epoch: '' }, /no epoch/],
    [{ wire: 1, epoch: 'x'.repeat(200) }, /no epoch/],
    [{ wire: 1, epoch: {} }, /no epoch/],
  ] as const)
    t.match(open(bytes(value)), { problem: why }, JSON.stringify(value));
  t.match(open(bytes({ wire: 1, epoch: 'e', later: 'field' })), { epoch: 'e' }, 'fields that it does not know are let be');
  const good = { wire: 1, epoch: 'e', lastSeq: 3, recent: [['cap.a.b.c', 3]], since: 1, term: 1 };
  t.strictSame(readBeacon(bytes(good)), { epoch: 'e', lastSeq: 3, recent: [['cap.a.b.c', 3]], since: 1, speech: 'plain' });
  const speeches = ['named', 'asks', 'plain', 'nonsense', undefined].map((speech) => readBeacon(bytes({ ...good, speech }))?.speech);
  t.strictSame(speeches, ['named', 'asks', 'plain', 'plain', 'plain'], 'a leader that says nothing of it is of the version before');
  for (const bad of [
    { lastSeq: -1 },
    { lastSeq: '3' },
    { lastSeq: 2 ** 60 },
    { recent: {} },
    { recent: [['x']] },
    { recent: [[3, 'x']] },
    { recent: [null] },
  ])
    t.equal(readBeacon(bytes({ ...good, ...bad })), null, JSON.stringify(bad));
  const answer = { wire: 1, ok: true, refused: [], seq: 3, epoch: 'e' };
  t.strictSame(readAnswer(bytes(answer)), answer);
  for (const bad of [
    { wire: 2 },
    { ok: 1 },
    { seq: -1 },
    { epoch: null },
    { refused: null },
    { refused: [{ agent: 'a', code: 1, problems: [] }] },
  ])
    t.equal(typeof readAnswer(bytes({ ...answer, ...bad })), 'string', JSON.stringify(bad));
  t.equal(typeof readAnswer(bytes('nonsense')), 'string');
});

t.test('the durable file', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'reach-durable-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const file = new DurableFile(join(folder, 'deep', 'down', 'x'));
  t.equal(file.read(), null);
  t.equal(await file.write(['one', '{"two":2}']), null);
  t.strictSame(file.read(), ['one', '{"two":2}']);
  t.equal(await file.write(Array.from({ length: 20_000 }, (_, i) => `line ${i}`)), null, 'more than one piece');
  t.equal(file.read()?.length, 20_000);
  const whole = readFileSync(file.file);
  for (const spoilt of [
    whole.subarray(0, -1),
    whole.subarray(0, 70_000),
    Buffer.concat([whole, whole]),
    Buffer.concat([Buffer.from('x'), whole]),
    Buffer.alloc(0),
  ]) {
    writeFileSync(file.file, spoilt);
    t.strictSame(file.read(), ['one', '{"two":2}'], 'the one before');
  }
  const blocked = new DurableFile(join(file.file, 'not-a-folder'));
  t.match(await blocked.write(['x']), /cannot be written: (ENOTDIR|EEXIST)/);
});
