import { isDeepStrictEqual } from 'node:util';
import t, { type Test } from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { judgeAcl } from '../../../../control-plane/registry/acl-judge.ts';
import { type Change, isQuiet } from '../../../../control-plane/registry/change.ts';
import { Registry } from '../../../../control-plane/registry/registry.ts';
import { shrinks, tallyOf } from '../../../../control-plane/registry/shrink.ts';
import type { AgentRegistration, CapabilityState } from '../../../../proto/wire/registry.ts';
import { PROVIDERS_PER_SHARD } from '../../../../proto/wire/subjects.ts';
import { agent, arrive, contract, fresh, hello, mergeChanges, pushed, record, Store } from '../../../support/registrations.ts';

const alive = { idleMs: 0, inFlight: 0 };
const bare = (id: string, offers: readonly string[], via = 's1', more = ''): AgentRegistration => ({
  contracts: [],
  record: record(id, offers, via, more),
});

t.test('the state of a capability', async (t) => {
  t.test('carries what operators set for its providers, and the same state again is the same text', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [agent('crm.order.b', ['crm.order.query@2.0.0']), agent('crm.order.a', ['crm.order.query@1.0.0'])]));
    t.equal(registry.setProvider('crm.order.a', { drain: true, weight: 3 }).problem, null);
    const text = JSON.stringify(registry.capabilityStates('crm.order.query'));
    const [state] = registry.capabilityStates('crm.order.query');
    t.same(
      state?.providers.map(({ record }) => [record.agentId, record.drain, record.weight]),
      [
        ['crm.order.a', true, 3],
        ['crm.order.b', false, 1],
      ],
    );
    t.same(
      state?.contracts.map((each) => each.version),
      ['1.0.0', '2.0.0'],
    );
    t.ok(isQuiet(registry.setProvider('crm.order.a', { drain: true }).change), 'said before');
    t.equal(JSON.stringify(registry.capabilityStates('crm.order.query')), text);
    registry.setProvider('crm.order.a', { drain: null, weight: null });
    t.same(registry.operators().providers.providers, {});
    t.same(pushed(registry, 'crm.order.query').length, 2);
    t.match(
      registry.setProvider('crm.order.aa', { drain: true }).problem,
      /no provider is called crm\.order\.aa; did you mean crm\.order\.a\?/,
    );
    t.match(registry.setProvider('crm.order.a', { weight: -1 }).problem, /a weight is a number from 0/);
  });

  t.test('is told to people version by version', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(
      registry,
      hello('s1', [
        agent('crm.order.a', ['crm.order.query@1.0.0']),
        agent('crm.order.b', ['crm.order.query@1.0.0', 'crm.order.query@2.0.0']),
      ]),
    );
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'crm.order.a' });
    t.match(registry.capabilities(), [
      {
        capability: 'crm.order.query',
        online: 1,
        providers: 2,
        versions: [
          { version: '2.0.0', online: 1, providers: 1, acl: ['public'], execution: 'once' },
          { version: '1.0.0', online: 1, providers: 2 },
        ],
      },
    ]);
  });

  t.test('of what nobody knows is empty', async (t) => {
    t.match(fresh(new VirtualClock()).capabilityStates('crm.order.query'), [
      { shard: 0, shards: 1, contracts: [], policies: [], providers: [], staged: null },
    ]);
  });

  t.test('keeps the contracts of providers that are offline for the moment', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [agent('crm.order.a', ['crm.order.query@2.0.0'])], { callers: ['web.front.f1'] }));
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: null });
    const [state] = registry.capabilityStates('crm.order.query');
    t.same([state?.contracts.length, state?.providers.length], [1, 0], 'so that "none is there" can be told from "no such thing"');
    t.same(registry.scope('s1').capabilities, ['crm.order.query'], 'and no scope is rewritten when a provider restarts');
  });

  t.test('moves to another mesh address with its sidecar', async (t) => {
    const registry = fresh(new VirtualClock());
    const agents = [agent('crm.order.a', ['crm.order.query@2.0.0'])];
    arrive(registry, hello('s1', agents));
    t.same(arrive(registry, hello('s1', agents, { instance: 'i2', mesh: 'http://10.0.0.9:7701' })).capabilities, ['crm.order.query']);
    t.match(registry.capabilityStates('crm.order.query')[0]?.providers[0], { mesh: 'http://10.0.0.9:7701', instance: 'i2' });
  });

  t.test('says that its sidecar was started anew, also at the same address', async (t) => {
    const registry = fresh(new VirtualClock());
    const agents = [agent('crm.order.a', ['crm.order.query@2.0.0'])];
    arrive(registry, hello('s1', agents));
    t.equal(registry.capabilityStates('crm.order.query')[0]?.providers[0]?.instance, 'i1');
    t.same(arrive(registry, hello('s1', agents)).capabilities, [], 'the same process says hello again');
    t.same(arrive(registry, hello('s1', agents, { instance: 'i2' })).capabilities, ['crm.order.query']);
    t.equal(registry.capabilityStates('crm.order.query')[0]?.providers[0]?.instance, 'i2');
  });
});

t.test('shards', async (t) => {
  const many = (from: number, to: number, sidecar: string) =>
    Array.from({ length: to - from }, (_, i) =>
      i === 0
        ? agent(`crm.order.a${from}`, ['crm.order.query@1.0.0'], sidecar)
        : bare(`crm.order.a${from + i}`, ['crm.order.query@1.0.0'], sidecar),
    );

  t.test('hold 64 providers at most, all of them once, and one provider that comes or goes changes one message', async (t) => {
    const registry = fresh(new VirtualClock());
    for (let s = 0; s < 20; s++) arrive(registry, hello(`s${s}`, many(s * 50, s * 50 + 50, `s${s}`)));
    const before = registry.capabilityStates('crm.order.query');
    t.ok(before.length > 15);
    t.ok(before.every((state, i) => state.providers.length <= PROVIDERS_PER_SHARD && state.shard === i && state.shards === before.length));
    t.ok(before.slice(1).every((state) => state.contracts.length === 0));
    t.equal(new Set(before.flatMap((state) => state.providers.map(({ record }) => record.agentId))).size, 1_000);
    registry.leave({ wire: 1, sidecar: 's3', instance: 'i1', agent: 'crm.order.a170' });
    const after = registry.capabilityStates('crm.order.query');
    t.equal(after.filter((state, i) => JSON.stringify(state) !== JSON.stringify(before[i])).length, 1);
  });

  t.test('split when their records are large', async (t) => {
    const registry = fresh(new VirtualClock());
    const mapping = Array.from({ length: 20 }, (_, i) => `"crm.order.q${i}": { path: "/${'x'.repeat(800)}" }`).join(', ');
    const offers = Array.from({ length: 20 }, (_, i) => `crm.order.q${i}@1.0.0`);
    for (let s = 0; s < 4; s++)
      arrive(
        registry,
        hello(
          `s${s}`,
          Array.from({ length: 10 }, (_, i) =>
            agent(
              `crm.order.a${s}x${i}`,
              offers,
              `s${s}`,
              `endpoint: { type: http, address: "http://127.0.0.1:1", mapping: { ${mapping} } }`,
            ),
          ),
        ),
      );
    const states = registry.capabilityStates('crm.order.q1');
    t.ok(states.length > 1);
    t.ok(states.every((state) => JSON.stringify(state).length < 700_000));
    t.equal(
      states.reduce((sum, state) => sum + state.providers.length, 0),
      40,
    );
  });

  t.test('are written so that no reader misses a provider in between, however their number changes', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    const store = new Store();
    const step = (change: Change) => {
      const was = store.readers('crm.order.query');
      const will = new Set(pushed(registry, 'crm.order.query'));
      const lasting = [...was].filter((id) => will.has(id));
      store.write(change, registry, () => {
        const now = store.readers('crm.order.query');
        const missing = lasting.filter((id) => !now.has(id));
        if (missing.length > 0) t.fail(`${missing.length} providers are missing for a moment`);
      });
      t.same([...store.readers('crm.order.query')].sort(), [...will].sort());
    };
    for (const [s, count] of [40, 30, 60, 200, 1, 300].entries())
      step(arrive(registry, hello(`s${s}`, many(s * 1_000, s * 1_000 + count, `s${s}`))));
    const shards: number[] = [];
    for (const s of [5, 3, 0, 4, 2, 1]) {
      step(registry.leave({ wire: 1, sidecar: `s${s}`, instance: 'i1', agent: null }));
      shards.push(registry.capabilityStates('crm.order.query').length);
    }
    t.same(
      shards,
      [...shards].sort((a, b) => b - a),
    );
    t.equal(shards.at(-1), 1);
    t.ok((shards[0] as number) > 4);
  });

  t.test('a provider that moves from one capability to another is in both for a moment, and what was said stands first', async (t) => {
    const registry = fresh(new VirtualClock());
    const store = new Store();
    store.write(arrive(registry, hello('s1', [agent('crm.order.a', ['crm.order.old@1.0.0'])], { callers: ['web.front.f1'] })), registry);
    const writes = store.write(
      arrive(registry, hello('s1', [agent('crm.order.a', ['crm.order.new@1.0.0'])], { callers: ['web.front.f1'] })),
      registry,
    );
    t.same(
      writes.map((each) => each.tail),
      ['reg.s1', 'cap.crm.order.new', 'scope.s1', 'cap.crm.order.old'],
    );
  });
});

t.test('who may call a capability learns of it before who may not any more forgets it', async (t) => {
  const registry = fresh(new VirtualClock());
  const store = new Store();
  const order = (acl: string): AgentRegistration => ({
    contracts: [contract('crm.order.query', '1.0.0', `acl: [${acl}]`)],
    record: record('crm.order.a', ['crm.order.query@1.0.0']),
  });
  for (const message of [
    hello('s1', [order('team:aa')]),
    hello('aa', [], { callers: ['aa.x.1'] }),
    hello('bb', [], { callers: ['bb.x.1'] }),
  ])
    store.write(arrive(registry, message), registry);
  t.same([store.scope('aa'), store.scope('bb')], [['crm.order.query'], []]);
  const writes = store.write(arrive(registry, hello('s1', [order('team:bb')])), registry);
  t.same(
    writes.map((each) => each.tail),
    ['reg.s1', 'cap.crm.order.query', 'scope.bb', 'scope.aa'],
  );
});

t.test('scopes', async (t) => {
  t.test('have what a caller may call in any version, what is hosted, and where fallbacks lead', async (t) => {
    const registry = fresh(new VirtualClock());
    const crm = (name: string, version: string, acl: string, more = '') => contract(name, version, `acl: [${acl}]${more}`);
    const order: AgentRegistration = {
      contracts: [
        crm('crm.order.query', '1.0.0', '"web.*.*"'),
        crm('crm.order.query', '2.0.0', 'team:crm', ', fallback: [{ capability: "cached@^1" }]'),
        crm('crm.order.cached', '1.0.0', 'role:nobody', ', aliases: [cached], fallback: [{ capability: crm.order.last }]'),
        crm('crm.order.last', '1.0.0', 'role:nobody'),
        crm('crm.order.secret', '1.0.0', 'role:nobody'),
      ],
      record: record('crm.order.a', ['crm.order.query@1.0.0']),
    };
    arrive(registry, hello('s1', [order]));
    arrive(registry, hello('web', [], { callers: ['web.front.f1'] }));
    arrive(registry, hello('none', [], { callers: ['ops.desk.d1'] }));
    arrive(registry, hello('one', [], { callers: ['ops.nobody.d1'] }));
    t.same(registry.scope('web').capabilities, ['crm.order.cached', 'crm.order.last', 'crm.order.query']);
    t.same(registry.scope('s1').capabilities, ['crm.order.cached', 'crm.order.last', 'crm.order.query'], 'what it hosts');
    t.same(registry.scope('none').capabilities, []);
    t.same(registry.scope('one').capabilities, ['crm.order.cached', 'crm.order.last', 'crm.order.secret']);
    const change = registry.applyPolicies('policies: [{ capability: crm.order.query, fallback: none }]', { author: 'op' }).change;
    t.same([...change.scopes].sort(), ['s1', 'web']);
    t.same(registry.scope('web').capabilities, ['crm.order.query']);
    const opened = registry.applyPolicies(
      'contracts: [{ name: crm.order.secret, version: 1.0.0, acl: [team:ops] }]\npolicies: [{ capability: crm.order.query, fallback: none }]',
      { author: 'op' },
    );
    t.same(opened.problems, []);
    t.same(registry.scope('none').capabilities, ['crm.order.secret']);
    t.same(registry.scope('one').capabilities, ['crm.order.cached', 'crm.order.last', 'crm.order.secret']);
  });

  t.test('have what only audits its list, for everybody; by a policy or by the contract itself', async (t) => {
    const registry = fresh(new VirtualClock());
    const order: AgentRegistration = {
      contracts: [
        contract('crm.order.query', '1.0.0', 'acl: ["team:crm"]'),
        contract('crm.order.open', '1.0.0', 'acl: {allow: ["team:crm"], mode: audit}'),
      ],
      record: record('crm.order.a', ['crm.order.query@1.0.0', 'crm.order.open@1.0.0']),
    };
    arrive(registry, hello('s1', [order]));
    arrive(registry, hello('ops', [], { callers: ['ops.desk.d1'] }));
    t.same(registry.scope('ops').capabilities, ['crm.order.open']);
    const [state] = registry.capabilityStates('crm.order.open') as [CapabilityState];
    t.equal(state.contracts[0]?.acl.mode, 'audit', 'it comes through the registration');
    t.match(judgeAcl(state, 'ops.desk.d1', '^1'), [{ version: '1.0.0', by: null, mode: 'audit', mode_by: 'its contract', admits: true }]);
    registry.applyPolicies('policies: [{ capability: "*", acl_mode: audit }]', { author: 'op' });
    t.same(registry.scope('ops').capabilities, ['crm.order.open', 'crm.order.query']);
    const [asked] = registry.capabilityStates('crm.order.query') as [CapabilityState];
    t.match(judgeAcl(asked, 'ops.desk.d1', '^2'), [
      { is_in_range: false, by: null, mode: 'audit', mode_by: 'the policy for *', admits: true },
    ]);
    t.match(judgeAcl(asked, 'crm.bot.a', null), [{ is_in_range: true, by: 'team:crm', admits: true }]);
    const held = registry.applyPolicies('policies: [{ capability: crm.*, acl_mode: enforce }]', { author: 'op' });
    t.same(held.problems, []);
    t.same(registry.scope('ops').capabilities, []);
    t.match(held.diff.lines.join('\n'), /acl_mode/);
  });

  t.test('a sidecar that was forgotten and comes back begins with nothing', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [agent('crm.order.a', ['crm.order.query@1.0.0'])]));
    arrive(registry, hello('web', [], { callers: ['web.front.f1'] }));
    await clock.advance(86_400_000);
    registry.heartbeat({ wire: 1, sidecar: 's1', instance: 'i1', agents: { 'crm.order.a': alive } });
    const change = registry.sweep();
    t.same([change.registrations, change.scopes, [...change.forgotten].sort()], [['web'], ['web'], ['reg.web', 'scope.web']]);
    t.same([registry.scope('web').capabilities, registry.registration('web').hello.instance], [[], '']);
    arrive(registry, hello('web', []));
    t.same(registry.scope('web').capabilities, []);
  });

  t.test('a caller that comes or goes changes the scope of its sidecar only', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [agent('crm.order.a', ['crm.order.query@1.0.0'])]));
    arrive(registry, hello('web', [], {}));
    const change = arrive(registry, hello('web', [], { callers: ['web.front.f1'] }));
    t.same([change.scopes, change.capabilities], [['web'], []]);
    t.same(registry.scope('web').capabilities, ['crm.order.query']);
    t.same(arrive(registry, hello('web', [], { callers: [] })).scopes, ['web']);
    t.same(registry.scope('web').capabilities, []);
  });
});

t.test('the shrink guard', async (t) => {
  const state = (name: string, agents: number, shard = 0, shards = 1): CapabilityState => ({
    wire: 1,
    epoch: 'e1',
    name,
    shard,
    shards,
    contracts: [],
    policies: [],
    staged: null,
    providers: Array.from({ length: agents }, (_, i) => ({ record: record(`crm.order.a${shard}x${i}`, [`${name}@1.0.0`]), mesh: null })),
  });

  t.test('stands in the way when most providers go without a trace, and not when they go for a reason', async (t) => {
    const before = tallyOf([state('crm.order.query', 10)]);
    const half = tallyOf([state('crm.order.query', 5)]);
    const few = tallyOf([state('crm.order.query', 4)]);
    const none = tallyOf([state('crm.order.query', 0)]);
    t.equal(shrinks(before, half), null);
    t.match(shrinks(before, few), /6 of 10 providers would go without a known reason/);
    t.match(shrinks(before, none), /10 of 10/);
    t.equal(
      shrinks(before, none, () => true),
      null,
    );
    t.equal(shrinks(tallyOf([state('crm.order.query', 3)]), none), null, 'three providers that go are no catastrophe');
  });

  t.test('counts capabilities too, and void shards not at all', async (t) => {
    const names = Array.from({ length: 10 }, (_, i) => `crm.order.q${i}`);
    const big = state('crm.order.big', 40);
    const lonely = names.map((name) => ({
      ...state(name, 1),
      providers: [{ record: record(`crm.one.${name.slice(-2)}`, [`${name}@1.0.0`]), mesh: null }],
    }));
    t.match(shrinks(tallyOf([big, ...lonely]), tallyOf([big])), /10 of 11 capabilities would have no provider left/);
    t.equal(tallyOf([state('crm.order.query', 5, 1, 2), state('crm.order.query', 3, 0, 1)]).providers.size, 3);
  });
});

const SEEDS = Number(process.env['LIFE_SEEDS'] ?? 6);

t.test('random lives of a registry', async (t) => {
  const SIDECARS = ['s0', 's1', 's2', 's3', 's4'];
  const NAMES = Array.from({ length: 8 }, (_, i) => `crm.order.q${i}`);
  const CALLERS = ['web.front.f1', 'crm.planner.p1', 'ops.desk.d1'];
  const ACLS = ['public', '[team:crm]', '[role:front]', '["ops.desk.d1", role:planner]'];
  /** Fixed for a name, so that registrations do not contest each other. */
  const CONTRACTS = NAMES.map((name, i) =>
    contract(name, '1.0.0', `acl: ${ACLS[i % ACLS.length]}${i % 3 === 0 ? `, fallback: [{ capability: ${NAMES[(i + 1) % 8]} }]` : ''}`),
  );

  interface Model {
    /** Agent id → what is registered by whom, and until when it is alive (null = it is not). */
    readonly agents: Map<string, { sidecar: string; offers: string[]; deadline: number; state: 'online' | 'lease' | 'left' }>;
    readonly sidecars: Map<string, { instance: string; left: boolean; callers: string[] }>;
  }

  const run = async (t: Test, seed: number, steps: number) => {
    /** Speaks up only when they differ: thousands of comparisons a life. */
    const same = (found: unknown, wanted: unknown, words: string) => {
      compared++;
      if (!isDeepStrictEqual(found, wanted)) t.same(found, wanted, words);
    };
    let compared = 0;
    const random = new SeededRandom(seed);
    const int = (n: number) => Math.floor(random.next() * n);
    const pick = <T>(list: readonly T[]): T => list[int(list.length)] as T;
    const clock = new VirtualClock();
    let registry = fresh(clock);
    const store = new Store();
    const model: Model = { agents: new Map(), sidecars: new Map() };
    const idsOf = (sidecar: string) => Array.from({ length: 4 }, (_, i) => `crm.order.${sidecar}x${i}`);
    const make = (sidecar: string, id: string): AgentRegistration => {
      const names = NAMES.filter(() => int(3) === 0);
      if (names.length === 0) names.push(pick(NAMES));
      return {
        contracts: CONTRACTS.filter((each) => names.includes(each.name)),
        record: record(
          id,
          names.map((name) => `${name}@1.0.0`),
          sidecar,
          `weight: ${1 + int(3)}`,
        ),
      };
    };
    const registered = (sidecar: string, each: AgentRegistration) =>
      model.agents.set(each.record.agentId, {
        sidecar,
        offers: each.record.offers.map((offer) => offer.name),
        deadline: clock.now() + 135_000,
        state: 'online',
      });
    const mayTake = (sidecar: string, id: string) => {
      const known = model.agents.get(id);
      return known === undefined || known.sidecar === sidecar || known.state !== 'online';
    };
    let change: Change = registry.everything();
    let did = '';

    const actions: Record<string, () => void> = {
      hello: () => {
        const sidecar = pick(SIDECARS);
        const known = model.sidecars.get(sidecar);
        const instance = known === undefined || int(2) === 0 ? `i${clock.now()}x${int(1e9)}` : known.instance;
        const ids = [...idsOf(sidecar).filter(() => int(2) === 0), ...(int(4) === 0 ? ['crm.order.shared'] : [])];
        const agents = ids.map((id) => make(sidecar, id));
        const callers = CALLERS.filter(() => int(2) === 0).sort();
        change = arrive(registry, hello(sidecar, agents, { instance, callers }));
        model.sidecars.set(sidecar, { instance, left: false, callers });
        const taken = agents.filter((each) => mayTake(sidecar, each.record.agentId));
        same(change.refused.length, agents.length - taken.length, did);
        for (const each of taken) registered(sidecar, each);
        for (const [id, known_] of model.agents)
          if (known_.sidecar === sidecar && !taken.some((each) => each.record.agentId === id)) known_.state = 'left';
      },
      register: () => {
        const sidecar = pick(SIDECARS);
        const known = model.sidecars.get(sidecar);
        const each = make(sidecar, int(6) === 0 ? 'crm.order.shared' : pick(idsOf(sidecar)));
        change = registry.register({ wire: 1, sidecar, instance: known?.instance ?? 'i0', agent: each });
        const isTaken = known !== undefined && !known.left && mayTake(sidecar, each.record.agentId);
        same(change.refused.length === 0, isTaken, did);
        if (isTaken) registered(sidecar, each);
      },
      leave: () => {
        const sidecar = pick(SIDECARS);
        const known = model.sidecars.get(sidecar);
        const all = int(3) === 0;
        const id = pick(idsOf(sidecar));
        change = registry.leave({ wire: 1, sidecar, instance: known?.instance ?? 'i0', agent: all ? null : id });
        if (known === undefined || known.left) return;
        if (all) known.left = true;
        for (const [each, state] of model.agents) if (state.sidecar === sidecar && (all || each === id)) state.state = 'left';
      },
      beat: () => {
        const sidecar = pick(SIDECARS);
        const known = model.sidecars.get(sidecar);
        const listed = [...model.agents].filter(([, state]) => state.sidecar === sidecar && int(4) > 0).map(([id]) => id);
        change = registry.heartbeat({
          wire: 1,
          sidecar,
          instance: known?.instance ?? 'i0',
          agents: Object.fromEntries(listed.map((id) => [id, alive])),
        }).change;
        if (known === undefined || known.left) return;
        for (const id of listed) {
          const state = model.agents.get(id) as NonNullable<ReturnType<Model['agents']['get']>>;
          state.deadline = clock.now() + 135_000;
          if (state.state === 'lease') state.state = 'online';
        }
      },
      sweep: () => {
        // a sudden loss is confirmed at once: what is held back is tested elsewhere
        change = mergeChanges([registry.sweep(), registry.confirm()]);
        for (const state of model.agents.values()) if (state.state === 'online' && state.deadline <= clock.now()) state.state = 'lease';
      },
      drain: () => {
        const id = pick(idsOf(pick(SIDECARS)));
        change = registry.setProvider(id, { drain: int(2) === 0, weight: int(3) }).change;
      },
      canary: () => {
        change = registry.shiftCanary(pick(NAMES), int(2) === 0 ? null : { '1.0.0': int(11) / 10 }).change;
      },
      policies: () => {
        const lines = NAMES.filter(() => int(3) === 0).map(
          (name) => `  - { capability: ${name}, timeout: ${1 + int(3)}s${int(3) === 0 ? ', fallback: none' : ''} }`,
        );
        const outcome = registry.applyPolicies(`policies:${lines.length === 0 ? ' []' : `\n${lines.join('\n')}`}\n`, {
          author: 'op',
          share: int(3) === 0 ? 0.5 : null,
        });
        change = outcome.change;
      },
      abort: () => {
        change = (int(2) === 0 ? registry.abort() : registry.promote({ force: true })).change;
      },
      restart: () => {
        const next = new Registry(clock);
        same(next.load('e1', store.registrations(), store.operators()), [], did);
        same(store.write(next.everything(), next), [], `a new leader writes nothing: ${did}`);
        registry = next;
        for (const state of model.agents.values()) if (state.state === 'online') state.deadline = clock.now() + 135_000;
        for (const sidecar of model.sidecars.values()) sidecar.left = false;
        change = next.everything();
      },
    };
    const order = [
      'hello',
      'hello',
      'register',
      'register',
      'register',
      'leave',
      'beat',
      'beat',
      'beat',
      'sweep',
      'drain',
      'canary',
      'policies',
      'abort',
      'restart',
    ];

    for (let i = 0; i < steps; i++) {
      did = `seed ${seed} step ${i} ${pick(order)}`;
      // leases that ran out before an action belong to a sweep of their own
      await clock.advance(pick([200, 1_500, 1_500, 20_000, 60_000]));
      (actions['sweep'] as () => void)();
      store.write(change, registry);
      (actions[did.split(' ').at(-1) as string] as () => void)();
      const guard = new Map<string, [Set<string>, Set<string>]>();
      for (const name of change.capabilities) guard.set(name, [store.readers(name), new Set(pushed(registry, name))]);
      store.write(change, registry, () => {
        for (const [name, [was, will]] of guard) {
          const now = store.readers(name);
          for (const id of was) if (will.has(id) && !now.has(id)) t.fail(`${did}: ${id} is missing from ${name} for a moment`);
        }
      });
      for (let wait = 0; change.deferred.length > 0 && wait < 10; wait++) {
        await clock.advance(1_100);
        (actions['sweep'] as () => void)();
        store.write(change, registry);
      }
      // what the changes named is all that has changed
      same(store.write(registry.everything(), registry), [], `everything was named: ${did}`);
      for (const name of NAMES) {
        const expected = [...model.agents].filter(([, state]) => state.state === 'online' && state.offers.includes(name)).map(([id]) => id);
        same([...store.readers(name)].sort(), expected.sort(), `${name}: ${did}`);
      }
      // scopes kept up step by step are the scopes worked out anew
      const again = new Registry(clock);
      again.load('e1', store.registrations(), store.operators());
      for (const sidecar of registry.sidecarNames()) same(registry.scope(sidecar), again.scope(sidecar), `scope of ${sidecar}: ${did}`);
    }
    return compared;
  };

  for (let seed = 1; seed <= SEEDS; seed++)
    t.test(`seed ${seed}: pushed is what a model says, nothing is left out, a new leader agrees`, async (t) => {
      const compared = await run(t, seed, Number(process.env['LIFE_STEPS'] ?? 100));
      t.ok(compared > 1_000);
    });
});

t.test('at size', async (t) => {
  const clock = new VirtualClock();
  const registry = fresh(clock);
  const contracts = Array.from({ length: 1_000 }, (_, i) => contract(`crm.d${i % 50}.q${i}`, '1.0.0', `acl: [team:t${i % 50}]`));
  const base = record('crm.order.a', ['crm.d0.q0@1.0.0']);
  const sidecars = Array.from({ length: 200 }, (_, s) => {
    const agents = Array.from({ length: 50 }, (_, i): AgentRegistration => {
      const own = contracts[(s * 50 + i) % 1_000] as (typeof contracts)[number];
      return {
        contracts: [own],
        record: { ...base, agentId: `crm.order.s${s}x${i}`, via: `s${s}`, offers: [{ name: own.name, version: '1.0.0' }] },
      };
    });
    return hello(`s${s}`, agents, { callers: [`t${s % 50}.front.f1`] });
  });

  t.test('10,000 providers of 200 sidecars register in seconds, and one more costs a moment', async (t) => {
    const before = process.cpuUsage();
    for (const each of sidecars) t.same(registry.hello(each).refused, []);
    const ms = cpuMs(before);
    t.ok(ms < 5_000, `${ms} ms`);
    t.equal(
      registry.scope('s3').capabilities.length,
      new Set([
        ...(sidecars[3]?.agents ?? []).map((each) => each.record.offers[0]?.name),
        ...contracts.filter((_, i) => i % 50 === 3).map((each) => each.name),
      ]).size,
    );
    const one = process.cpuUsage();
    for (let i = 0; i < 100; i++) {
      registry.register({
        wire: 1,
        sidecar: 's0',
        instance: 'i1',
        agent: { contracts: [], record: { ...base, agentId: `crm.order.n${i}`, via: 's0' } },
      });
      for (const state of registry.capabilityStates('crm.d0.q0')) JSON.stringify(state);
    }
    t.ok(cpuMs(one) < 1_500, `${cpuMs(one) / 100} ms each`);
  });

  t.test('500 providers that beat in the same second cost less than 5 % of it, and a sweep over all of them next to nothing', async (t) => {
    const beats = sidecars.slice(0, 10).map((each) => ({
      wire: 1,
      sidecar: each.sidecar,
      instance: 'i1',
      agents: Object.fromEntries(each.agents.map((one) => [one.record.agentId, alive])),
    }));
    const before = process.cpuUsage();
    for (let second = 0; second < 20; second++) for (const beat of beats) t.ok(isQuiet(registry.heartbeat(beat).change));
    t.ok(cpuMs(before) / 20 < 50, `${cpuMs(before) / 20} ms a second`);
    const sweeps = process.cpuUsage();
    for (let i = 0; i < 40; i++) {
      await clock.advance(250);
      registry.sweep();
    }
    t.ok(cpuMs(sweeps) / 40 < 12, `${cpuMs(sweeps) / 40} ms a sweep`);
  });

  t.test('a new leader is ready in a second or two', async (t) => {
    const regs = registry.sidecarNames().map((name) => registry.registration(name));
    const before = process.cpuUsage();
    const next = new Registry(clock);
    next.load('e1', regs, registry.operators());
    for (const name of next.capabilityNames()) next.capabilityStates(name);
    t.ok(cpuMs(before) < 3_000, `${cpuMs(before)} ms`);
    t.equal(next.providers().length, registry.providers().length);
  });
});

function cpuMs(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return (user + system) / 1_000;
}
