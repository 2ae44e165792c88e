/** Overrides as they travel: a list is read as a whole or not at all. */
import t from 'tap';
import {
  type OverrideEntry,
  OVERRIDES_MAX,
  overrideProblem,
  OVERRIDES_WIRE,
  readInForce,
  readOverrideBeacon,
  readOverrideState,
  rulesOf,
} from '../../../../proto/wire/overrides.ts';

const ENTRY: OverrideEntry = {
  id: 'block-1',
  action: 'block',
  target: { capability: 'crm.order.query' },
  to: null,
  cut: false,
  reason: 'wrong prices',
  author: 'dana',
  at: 1_000,
  expires_at: 5_000,
};
const bytes = (value: unknown): Buffer => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value));
const state = (overrides: readonly unknown[], more: object = {}): Buffer =>
  bytes({ wire: OVERRIDES_WIRE, epoch: 'e1', revision: 3, overrides, ...more });

t.test('a list that can be read is read as it was written, and what a newer writer says beside it is left alone', (t) => {
  t.strictSame(readOverrideState(state([ENTRY])), { wire: 1, epoch: 'e1', revision: 3, overrides: [ENTRY] });
  t.strictSame(readOverrideState(state([{ ...ENTRY, ticket: 'INC-17' }], { by: 'x' })), readOverrideState(state([ENTRY])));
  t.end();
});

t.test('one entry that cannot be used spoils the list: the readable half would lift a block', (t) => {
  const bad: readonly (readonly [string, unknown, RegExp])[] = [
    ['no JSON', '{', /not JSON/],
    ['a list', [], /not a map/],
    ['a newer wire version', { wire: 2, epoch: 'e', revision: 1, overrides: [] }, /version 2 of overrides/],
    ['no epoch', { wire: 1, revision: 1, overrides: [] }, /no epoch/],
    ['no list', { wire: 1, epoch: 'e', revision: 1 }, /no list/],
    ['an unknown action', state([ENTRY, { ...ENTRY, id: 'x', action: 'freeze' }]), /no action "freeze"/],
    ['an unknown selector', state([ENTRY, { ...ENTRY, id: 'x', target: { region: 'eu' } }]), /its region is none|no "region"/],
    ['an unknown selector with a text', state([{ ...ENTRY, target: { capability: 'crm.*', region: 'eu' } }]), /a target has no "region"/],
    ['an empty target', state([{ ...ENTRY, target: {} }]), /say what it is for/],
    ['a name that is none', state([{ ...ENTRY, target: { capability: 'CRM' } }]), /not a pattern of capabilities/],
    ['an agent that is none', state([{ ...ENTRY, target: { provider: 'x' } }]), /provider: .*not a pattern of agents/],
    ['all beside another', state([{ ...ENTRY, target: { all: true, caller: 'team:web' } }]), /all stands alone/],
    ['all that is not true', state([{ ...ENTRY, target: { all: 'yes' } }]), /its all is none/],
    ['agent beside provider', state([{ ...ENTRY, target: { agent: 'a.b.c', provider: 'a.b.c' } }]), /either side/],
    ['two of one id', state([ENTRY, ENTRY]), /two overrides block-1/],
    ['no time', state([{ ...ENTRY, at: null }]), /milliseconds/],
    ['an end before its beginning', state([{ ...ENTRY, expires_at: 1_000 }]), /end before it begins/],
    ['no reason', state([{ ...ENTRY, reason: ' ' }]), /a reason is needed/],
    ['too many', state(Array.from({ length: OVERRIDES_MAX + 1 }, (_, i) => ({ ...ENTRY, id: `b-${i}` }))), /more than 256/],
  ];
  for (const [what, data, words] of bad) {
    const read = readOverrideState(Buffer.isBuffer(data) ? data : bytes(data));
    t.match('problem' in read ? read.problem : 'it was taken', words, what);
  }
  t.end();
});

t.test('what does not go together is refused in words, by writers and readers alike', (t) => {
  const bad: readonly (readonly [Partial<OverrideEntry>, RegExp])[] = [
    [{ id: 'A B' }, /not an id/],
    [{ to: 'crm.order.legacy' }, /to belongs to reroute/],
    [{ action: 'reroute' }, /a reroute needs to/],
    [{ action: 'reroute', to: 'crm.order.query' }, /sent to itself/],
    [{ action: 'reroute', to: 'provider:crm.order.a', target: { provider: 'crm.order.a' } }, /sent to itself/],
    [{ action: 'reroute', to: 'provider:crm' }, /not an agent id/],
    [{ action: 'reroute', to: '@no range' }, /./],
    [{ action: 'drain', cut: true }, /cut goes with block/],
  ];
  for (const [change, words] of bad) t.match(overrideProblem({ ...ENTRY, ...change }), words, JSON.stringify(change));
  for (const to of ['crm.order.legacy', 'crm.order.query@^1.0', '@^1.0', 'provider:crm.order.b'])
    t.equal(overrideProblem({ ...ENTRY, action: 'reroute', to }), null, to);
  t.end();
});

t.test('the engine gets blocks first, an agent for either side, everything as a star, and ends by its own clock', (t) => {
  const rules = rulesOf(
    [
      { ...ENTRY, id: 'r', action: 'reroute', to: 'crm.order.legacy' },
      { ...ENTRY, id: 'd', action: 'drain', target: { provider: 'crm.order.a' } },
      { ...ENTRY, id: 'a', target: { agent: 'crm.order.b', capability: 'crm.*' }, cut: true },
      { ...ENTRY, id: 'e', target: { all: true }, expires_at: null },
    ],
    600,
  );
  t.match(rules, [
    { name: 'a', capability: 'crm.*', caller: 'crm.order.b', provider: null, cut: true, expiresAtMs: 4_400 },
    { name: 'a', capability: 'crm.*', caller: null, provider: 'crm.order.b' },
    { name: 'e', capability: '*', caller: null, provider: null, expiresAtMs: null },
    { name: 'd', action: 'drain', provider: 'crm.order.a' },
    { name: 'r', action: 'reroute', to: 'crm.order.legacy' },
  ]);
  t.equal(rules.length, 5);
  t.end();
});

t.test('beacons and words of sidecars: what is none is none', (t) => {
  const beacon = { wire: 1, from: 'cp-1', epoch: 'e', seq: 4, at: 1_000 };
  t.strictSame(readOverrideBeacon(bytes(beacon)), beacon);
  t.strictSame(readOverrideBeacon(bytes({ ...beacon, tell: true })), { ...beacon, tell: true });
  for (const bad of ['x', [], { ...beacon, wire: 2 }, { ...beacon, seq: -1 }, { ...beacon, at: '1' }])
    t.equal(readOverrideBeacon(bytes(bad)), null);
  const said = { wire: 1, sidecar: 'one', instance: 'i', epoch: 'e', seq: 4 };
  t.strictSame(readInForce(bytes(said)), said);
  t.strictSame(readInForce(bytes({ ...said, refused: { seq: 5, why: 'newer' } })), { ...said, refused: { seq: 5, why: 'newer' } });
  for (const bad of ['x', null, { ...said, seq: 'x' }, { ...said, sidecar: 1 }]) t.equal(readInForce(bytes(bad)), null);
  t.end();
});
