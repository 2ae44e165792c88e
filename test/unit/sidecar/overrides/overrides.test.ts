/** What overrides do to calls: which begin, which end, who serves instead, in which words. The live engine on a virtual clock. */
import t, { type Test } from 'tap';
import type { Override } from '../../../../proto/language/types.ts';
import { type OverrideEntry, rulesOf } from '../../../../proto/wire/overrides.ts';
import { Call } from '../../../../sidecar/call/call.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import { detailOf } from '../../../../sidecar/call/result.ts';
import { explain } from '../../../../sidecar/explain.ts';
import { tokenOf } from '../../../../sidecar/lab/tokens.ts';
import { Cutter } from '../../../../sidecar/overrides/cut.ts';
import { heldBy } from '../../../../sidecar/deliver/seats.ts';
import { outcomeOf } from '../../../../sidecar/deliver/outcome.ts';
import { inbound } from '../../../../sidecar/pipeline.ts';
import { type Begun, VIRTUAL_CALLER, VirtualRig } from '../../../support/virtual-rig.ts';

const TABLE = `
contracts:
  - {name: crm.order.query, version: 2.0.0, acl: public, execution: idempotent, fallback: [{static: {text: later}}]}
  - {name: crm.order.query, version: 1.0.0, acl: public, execution: idempotent, fallback: [{static: {text: later}}]}
  - {name: crm.order.legacy, version: 1.0.0, acl: public, execution: idempotent}
  - {name: crm.secret.read, version: 1.0.0, acl: ["team:nobody"], execution: idempotent}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0], endpoint: {type: mock, latency: 100ms}}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0, crm.order.query@1.0.0], endpoint: {type: mock, latency: 100ms}}
  - {agent_id: crm.old.1, offers: [crm.order.legacy@1.0.0], endpoint: {type: mock}}
  - {agent_id: crm.secret.1, offers: [crm.secret.read@1.0.0], endpoint: {type: mock}}
policies: [{capability: "*", load: primary_backup}]
`;

class Rig extends VirtualRig {
  readonly cutter = new Cutter(this.world.table, this.world.engine.underway, this.world.clock);
  #count = 0;

  constructor() {
    super(TABLE);
    this.world.table.onInstall = () => this.cutter.look();
  }

  entry(more: Partial<OverrideEntry>): OverrideEntry {
    const at = this.world.clock.wallMs();
    const id = `o-${++this.#count}`;
    return {
      id,
      action: 'block',
      target: { all: true },
      to: null,
      cut: false,
      reason: 'a fire',
      author: 'dana',
      at,
      expires_at: at + 60_000,
      ...more,
    };
  }

  press(...entries: Partial<OverrideEntry>[]): readonly Override[] {
    const rules = rulesOf(
      entries.map((each) => this.entry(each)),
      0,
    );
    this.world.table.installOverrides(rules);
    return rules;
  }

  lift(): void {
    this.world.table.installOverrides([]);
  }

  /** Who served it, or the code. */
  async who(asked = 'crm.order.query', wish: Parameters<VirtualRig['call']>[1] = {}): Promise<string> {
    const { call, result } = await this.call(asked, wish);
    if (result?.entry.code !== 0) return String(result?.entry.code);
    return call.degraded ? 'degraded' : `${result.provider ?? ''}@${result.version ?? ''}`;
  }
}

t.test('a block of everything refuses everything at once, with its id, reason, author and end', async (t) => {
  const rig = new Rig();
  const before = rig.world.table.current().version;
  rig.press({ id: 'incident-17' });
  t.equal(rig.world.table.current().version, before + 1, 'another table, of the same parts');
  t.equal(rig.world.table.current().capabilities.size, 3 + 0);
  const refused = await rig.call('crm.order.query');
  t.equal(refused.code, 2006);
  t.match(detailOf(refused.call), /override incident-17 blocks it: a fire \(by dana, until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\)/);
  t.strictSame(refused.reasons.slice(-2), ['overrides.blocked', 'fallback.not_for_this'], 'a block is not answered by a fallback');
  rig.lift();
  t.equal(await rig.who(), 'crm.order.1@2.0.0');
  await rig.finish(t, { 'crm.order.1': 1 });
});

t.test('it ends by itself, and explain says all that the call would have said', async (t) => {
  const rig = new Rig();
  rig.press({ id: 'x', target: { capability: 'crm.order.*' } });
  const headers = { authorization: `Bearer ${tokenOf(VIRTUAL_CALLER)}` };
  const asking = new Call('sandbox', 'crm.order.query', headers, Buffer.from('{}'), 'application/json', false, rig.world.clock);
  const explained = explain(rig.world.engine, asking, false);
  t.match(explained.refusal, { code: 2006, detail: /override x blocks it: a fire \(by dana, until/ });
  t.match(explained.decision.at(-1), { stage: 'overrides', reason: 'blocked' });
  await rig.wait(59_999);
  t.equal(await rig.who(), '2006');
  await rig.wait(1);
  t.equal(await rig.who(), 'crm.order.1@2.0.0');
  await rig.finish(t, { 'crm.order.1': 1 });
});

t.test('targets: all that is given must match; an agent is meant on either side', async (t) => {
  const rig = new Rig();
  const cases: readonly (readonly [OverrideEntry['target'], string])[] = [
    [{ capability: 'crm.order.query' }, '2006'],
    [{ capability: 'crm.order.legacy' }, 'crm.order.1@2.0.0'],
    [{ capability: 'crm.order.*', caller: 'team:web' }, '2006'],
    [{ capability: 'crm.order.*', caller: 'team:ops' }, 'crm.order.1@2.0.0'],
    [{ caller: VIRTUAL_CALLER }, '2006'],
    [{ caller: 'web.desk.2' }, 'crm.order.1@2.0.0'],
    [{ provider: 'crm.order.1' }, 'crm.order.2@2.0.0'],
    [{ provider: 'team:crm' }, '2006'],
    [{ provider: 'crm.order.1', caller: 'web.desk.2' }, 'crm.order.1@2.0.0'],
    [{ agent: 'crm.order.1' }, 'crm.order.2@2.0.0'],
    [{ agent: VIRTUAL_CALLER }, '2006'],
    [{ all: true }, '2006'],
  ];
  for (const [target, expected] of cases) {
    rig.press({ target });
    t.equal(await rig.who(), expected, JSON.stringify(target));
  }
  await rig.finish(t);
});

t.test(
  'drain: nothing new begins at that provider, a conversation goes on there; degrade: the declared fallback; the strongest word counts',
  async (t) => {
    const rig = new Rig();
    const held = { headers: { 'reach-pin': 'crm.order.1' } };
    rig.press({ action: 'drain', target: { provider: 'crm.order.1' } });
    t.equal(await rig.who(), 'crm.order.2@2.0.0');
    t.equal(await rig.who('crm.order.query', held), 'crm.order.1@2.0.0');
    rig.press({ action: 'block', target: { provider: 'crm.order.1' } });
    t.equal(await rig.who('crm.order.query', held), '2006');
    rig.press({ action: 'drain', target: { capability: 'crm.order.query' } });
    t.equal(await rig.who(), '2006');
    rig.press({ action: 'degrade', target: { capability: 'crm.order.query' } });
    t.equal(await rig.who(), 'degraded');
    t.equal(await rig.who('crm.order.legacy'), 'crm.old.1@1.0.0');
    rig.press({ action: 'degrade', target: { capability: 'crm.order.legacy' } });
    t.equal(await rig.who('crm.order.legacy'), '2006', 'without a fallback');
    rig.press({ action: 'degrade', target: { capability: 'crm.order.query' } }, { action: 'block', target: { capability: 'crm.*' } });
    t.equal(await rig.who(), '2006');
    rig.press({ action: 'degrade', target: { provider: 'crm.order.1' } });
    t.equal(await rig.who(), 'crm.order.2@2.0.0', 'one of two that is degraded: the other one serves');
    rig.press({ action: 'degrade', target: { provider: 'role:order' } });
    t.equal(await rig.who(), 'degraded', 'nobody is left');
    await rig.finish(t);
  },
);

t.test('reroute: to a capability, a version, a provider; one step; what is blocked there stays blocked, and its ACL counts', async (t) => {
  const rig = new Rig();
  const from = { capability: 'crm.order.query' };
  const cases: readonly (readonly [string, string])[] = [
    ['crm.order.legacy', 'crm.old.1@1.0.0'],
    ['crm.order.query@^1.0', 'crm.order.2@1.0.0'],
    ['@^1.0', 'crm.order.2@1.0.0'],
    ['provider:crm.order.2', 'crm.order.2@2.0.0'],
    ['crm.secret.read', '4002'],
    ['hr.leave.book', '2006'],
  ];
  for (const [to, expected] of cases) {
    rig.press({ action: 'reroute', target: from, to });
    t.equal(await rig.who(), expected, to);
  }
  rig.press({ action: 'reroute', target: from, to: 'crm.order.legacy' }, { target: { capability: 'crm.order.legacy' } });
  t.equal(await rig.who(), '2006', 'no way round a block');
  rig.press(
    { action: 'reroute', target: from, to: 'crm.order.legacy' },
    { action: 'reroute', target: { capability: 'crm.order.legacy' }, to: 'crm.order.query' },
  );
  t.equal(await rig.who(), 'crm.old.1@1.0.0', 'one step');
  rig.press({ action: 'reroute', target: { provider: 'crm.order.1' }, to: 'provider:crm.order.2' });
  t.equal(await rig.who(), 'crm.order.2@2.0.0');
  t.equal(
    await rig.who('crm.order.query', { headers: { 'reach-pin': 'crm.order.1' } }),
    'crm.order.2@2.0.0',
    'also who asked for it by name',
  );
  rig.press({ action: 'reroute', target: { provider: 'role:order' }, to: 'crm.order.legacy' });
  const moved = await rig.call('crm.order.query');
  t.equal(moved.result?.provider, 'crm.old.1', 'nobody else is left');
  t.match(
    moved.call.trace.lines().find(({ reason }) => reason === 'provider_rerouted')?.words,
    /leaves nobody here to serve it and sends it to crm\.order\.legacy: a fire \(by dana/,
  );
  await rig.finish(t);
});

t.test('calls under way end in peace; with cut they end at once as blocked, those of others go on', async (t) => {
  const rig = new Rig();
  const calls = (): Begun[] => [rig.begin('crm.order.query'), rig.begin('crm.order.query', { as: 'web.desk.2' })];
  const peaceful = calls();
  await rig.wait(50);
  rig.press({ target: { all: true } });
  await rig.wait(60);
  t.strictSame(
    peaceful.map((one) => one.code),
    [0, 0],
  );
  rig.lift();
  const cut = calls();
  const streamed = rig.begin('crm.order.query', { stream: true });
  await rig.wait(50);
  rig.press({ target: { caller: VIRTUAL_CALLER }, cut: true, id: 'cutting' });
  await rig.wait(0);
  t.equal(cut[0]?.code, 2006);
  t.match(cut[0]?.call.attempts, [{ code: 2006, started: 'started' }]);
  t.match(detailOf((cut[0] as Begun).call), /override cutting cuts it: a fire \(by dana, until/);
  t.equal(streamed.code, 2006);
  t.equal(rig.cutter.cut, 2);
  t.equal(cut[1]?.result, null, 'somebody else’s goes on');
  await rig.wait(60);
  t.equal(cut[1]?.code, 0);
  t.equal(rig.cell('crm.order.1', 'crm.order.query').failuresInWindow(rig.now), 0, 'the provider is not to blame');
  const again = rig.begin('crm.order.query', { as: 'web.desk.2' });
  await rig.wait(10);
  rig.world.table.installOverrides([...rig.world.table.current().overrides]);
  await rig.wait(100);
  t.equal(again.code, 0, 'the same rule cuts once');
  await rig.finish(t);
});

t.test('a block that comes during a call lets no further attempt of it begin', async (t) => {
  const rig = new Rig();
  rig.mock('crm.order.1', { latency: '100ms', error_rate: 1 });
  const call = rig.begin('crm.order.query');
  await rig.wait(50);
  rig.press({ target: { capability: 'crm.order.query' } });
  await rig.wait(1_000);
  t.equal(call.code, 2006);
  t.match(call.call.attempts, [{ code: 6001 }]);
  await rig.finish(t, { 'crm.order.2': 0 });
});

t.test('nor one of a call that waited for its key meanwhile', async (t) => {
  const rig = new Rig();
  rig.mock('crm.old.1', { latency: '100ms', error_rate: 1 });
  const headers = { 'reach-power-id': 'the-key' };
  const first = rig.begin('crm.order.legacy', { headers });
  const twin = rig.begin('crm.order.legacy', { headers });
  await rig.wait(50);
  rig.press({ target: { all: true } });
  await rig.wait(2_000);
  t.not(first.code, 0);
  t.equal(twin.code, 2006);
  await rig.finish(t, { 'crm.old.1': 1 });
});

t.test('a provider that is blocked during a call gets no attempt of it; a reroute that comes meanwhile moves nothing', async (t) => {
  const rig = new Rig();
  rig.mock('crm.order.1', { latency: '100ms', error_rate: 1 });
  const call = rig.begin('crm.order.query');
  await rig.wait(50);
  rig.press({ target: { provider: 'crm.order.2' } });
  await rig.wait(1_000);
  t.match(call.call.attempts, [{ code: 6001 }, { code: 2006, started: 'not_started', detail: /override o-1 blocks it: a fire/ }]);
  t.equal(rig.executions('crm.order.2'), 0);
  rig.lift();
  const other = rig.begin('crm.order.query');
  await rig.wait(50);
  rig.press({ action: 'reroute', target: { capability: 'crm.order.query' }, to: 'crm.order.legacy' });
  await rig.wait(1_000);
  t.match([other.code, other.result?.provider, other.call.reroutedBy], [0, 'crm.order.2', null]);
  await rig.finish(t, { 'crm.order.2': 1 });
});

t.test('a block that comes during a call is none that its fallback could go round', async (t) => {
  const rig = new VirtualRig(`
contracts:
  - {name: crm.order.query, version: 1.0.0, acl: public, execution: idempotent, fallback: [{capability: crm.order.legacy}]}
  - {name: crm.order.legacy, version: 1.0.0, acl: public, execution: idempotent}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@1.0.0], endpoint: {type: mock, latency: 100ms, error_rate: 1}}
  - {agent_id: crm.old.1, offers: [crm.order.legacy@1.0.0], endpoint: {type: mock}}
`);
  const call = rig.begin('crm.order.query');
  await rig.wait(50);
  const target = { capability: 'crm.order.legacy' };
  const entry = {
    id: 'red',
    action: 'block',
    target,
    to: null,
    cut: false,
    reason: 'a fire',
    author: 'dana',
    at: 1,
    expires_at: null,
  } as const;
  rig.world.table.installOverrides(rulesOf([entry], 0));
  await rig.wait(1_000);
  t.not(call.code, 0);
  await rig.finish(t, { 'crm.old.1': 0 });
});

t.test('where the provider is hosted, a caller that has not heard of the block gets no further', async (t: Test) => {
  const rig = new Rig();
  const { document } = rig.world.table.current();
  const name = rig.world.engine.config.name;
  rig.world.table.install({ ...document, providers: document.providers.map((each) => ({ ...each, via: name })) }, 'test');
  const arrive = async (agent: string, headers: Record<string, string> = {}): Promise<Call> => {
    const call = new Call('message', 'crm.order.query', headers, Buffer.from('{}'), 'application/json', false, rig.world.clock);
    call.principal = new Principal(VIRTUAL_CALLER, 'two');
    call.totalMs = 1_000;
    const done = inbound(rig.world.engine, call, agent, '2.0.0');
    await rig.wait(200);
    await done;
    return call;
  };
  const cases: readonly (readonly [Partial<OverrideEntry>, number, Record<string, string>?])[] = [
    [{ target: { all: true } }, 2006],
    [{ target: { provider: 'crm.order.1' } }, 2006],
    [{ target: { provider: 'crm.order.1' } }, 2006, { 'reach-pin': 'crm.order.1' }],
    [{ target: { agent: 'crm.order.1' } }, 2006],
    [{ target: { agent: VIRTUAL_CALLER } }, 2006],
    [{ target: { provider: 'crm.order.2' } }, 0],
    [{ target: { provider: 'crm.order.1', caller: 'team:ops' } }, 0],
    [{ action: 'drain', target: { provider: 'crm.order.1' } }, 2006],
    [{ action: 'drain', target: { provider: 'crm.order.1' } }, 0, { 'reach-pin': 'crm.order.1' }],
    [{ action: 'degrade', target: { capability: 'crm.order.query' } }, 2006],
    [{ action: 'reroute', target: { capability: 'crm.order.query' }, to: 'crm.order.legacy' }, 0],
  ];
  let served = 0;
  for (const [entry, code, headers] of cases) {
    rig.press(entry);
    const call = await arrive('crm.order.1', headers);
    t.equal(call.code, code, JSON.stringify(entry));
    if (code === 0) served++;
    else t.equal(call.attempts.length, 0);
  }
  t.equal(rig.executions('crm.order.1'), served);
});

t.test('queued messages wait while they are held back, and what a cut stopped begins again unless it may run only once', (t) => {
  const rig = new Rig();
  const table = rig.world.table.current();
  const candidate = table.capabilities.get('crm.order.query')?.versions[0]?.candidates[0];
  if (candidate === undefined) throw new Error('no candidate');
  const holds = (entry: Partial<OverrideEntry>, sender: string | null): boolean => {
    rig.press(entry);
    return heldBy(candidate, sender, rig.world.table.current(), rig.world.clock.wallMs()) !== null;
  };
  t.ok(holds({ target: { all: true } }, null));
  t.ok(holds({ target: { provider: candidate.provider.agentId } }, null));
  t.ok(holds({ action: 'drain', target: { capability: 'crm.*' } }, null));
  t.ok(holds({ action: 'degrade', target: { capability: 'crm.*' } }, null));
  t.notOk(holds({ target: { caller: 'team:web' } }, null), 'of one sender: looked at for each message');
  t.ok(holds({ target: { caller: 'team:web' } }, 'web.desk.1'));
  t.notOk(holds({ target: { caller: 'team:web' } }, 'ops.desk.1'));
  t.notOk(holds({ action: 'reroute', target: { capability: 'crm.order.query' }, to: 'crm.order.legacy' }, null));
  const ended = { code: 2006, status: 0, retryable: true, noRetry: false, tries: 1, maxTries: 7, stoppedBy: 'no' } as const;
  t.equal(outcomeOf({ ...ended, started: 'not_started', execution: 'once' }), 'wait');
  t.equal(outcomeOf({ ...ended, started: 'started', execution: 'once' }), 'in_doubt');
  t.equal(outcomeOf({ ...ended, started: 'started', execution: 'idempotent', tries: 7 }), 'wait', 'a cut is no failed try');
  t.equal(outcomeOf({ ...ended, started: 'started', execution: 'keyed', stoppedBy: 'draining' }), 'give_back');
  t.end();
});
