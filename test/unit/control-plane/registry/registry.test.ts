import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { Change } from '../../../../control-plane/registry/change.ts';
import { isQuiet } from '../../../../control-plane/registry/change.ts';
import { noOperators } from '../../../../control-plane/registry/operators.ts';
import type { Registry } from '../../../../control-plane/registry/registry.ts';
import {
  readAgent,
  readHello,
  readHeartbeat,
  readLeave,
  readRegister,
  readRegistration,
} from '../../../../control-plane/registry/requests.ts';
import type { AgentRegistration } from '../../../../proto/wire/registry.ts';
import { AllowList } from '../../../../base/address-guard.ts';
import { judgeEndpoint, ownPort } from '../../../../control-plane/registry/address-guard.ts';
import { agent, arrive, contract, fresh, hello, pushed, record, Store } from '../../../support/registrations.ts';

const HALF_BEAT = 22_500;

function beat(registry: Registry, sidecar: string, agents: Record<string, { idleMs: number; inFlight: number }>, instance = 'i1') {
  return registry.heartbeat({ wire: 1, sidecar, instance, agents });
}

const alive = { idleMs: 0, inFlight: 0 };

function words(change: Change): string {
  return change.refused.flatMap((each) => each.problems.map((problem) => `${each.agent} ${each.code} ${problem}`)).join('\n');
}

t.test('registering', async (t) => {
  t.test('a hello makes its agents known, and the same hello again changes nothing', async (t) => {
    const registry = fresh(new VirtualClock());
    const message = hello('s1', [agent('crm.order.a1', ['crm.order.query@2.0.0'])], { callers: ['web.front.f1'] });
    const change = arrive(registry, message);
    t.same(change.refused, []);
    t.same(change.registrations, ['s1']);
    t.same(change.capabilities, ['crm.order.query']);
    t.same(change.scopes, ['s1']);
    t.same(registry.scope('s1').capabilities, ['crm.order.query']);
    const [state] = registry.capabilityStates('crm.order.query');
    t.equal(state?.providers[0]?.mesh, 'http://10.0.0.1:7701');
    t.ok(isQuiet(arrive(registry, message)));
    t.equal(registry.providers().length, 1);
  });

  t.test('the order in which one hello lists agents does not matter for the contracts that they share', async (t) => {
    const registry = fresh(new VirtualClock());
    const bare: AgentRegistration = { contracts: [], record: record('crm.order.a1', ['crm.order.query@1.0.0']) };
    const change = arrive(registry, hello('s1', [bare, agent('crm.order.a2', ['crm.order.query@1.0.0'])]));
    t.same(change.refused, []);
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1', 'crm.order.a2']);
  });

  t.test('an offer without a known contract is refused, the other agents of the hello are in force', async (t) => {
    const registry = fresh(new VirtualClock());
    const bare: AgentRegistration = { contracts: [], record: record('crm.order.a1', ['crm.order.cancel@1.0.0']) };
    const change = arrive(registry, hello('s1', [bare, agent('crm.order.a2', ['crm.order.query@1.0.0'])]));
    t.match(words(change), /^crm\.order\.a1 4003 it offers crm\.order\.cancel@1\.0\.0, and no contract of that name and version is known/);
    t.same(
      registry.providers().map((each) => each.agent),
      ['crm.order.a2'],
    );
  });

  t.test('what a hello no longer lists is offline at once, what is refused in a running process stays as it was', async (t) => {
    const registry = fresh(new VirtualClock());
    const [a1, a2] = [agent('crm.order.a1', ['crm.order.query@1.0.0']), agent('crm.order.a2', ['crm.order.query@1.0.0'])];
    arrive(registry, hello('s1', [a1, a2]));
    arrive(registry, hello('s1', [a1]));
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1']);
    const bad: AgentRegistration = { contracts: [], record: record('crm.order.a1', ['crm.order.cancel@1.0.0']) };
    arrive(registry, hello('s1', [bad]));
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1'], 'the same process goes on with what it had');
    arrive(registry, hello('s1', [bad], { instance: 'i2' }));
    t.same(pushed(registry, 'crm.order.query'), [], 'a new process has only what it says');
  });

  t.test('a sidecar registers only what it hosts, or third parties', async (t) => {
    const registry = fresh(new VirtualClock());
    const change = arrive(
      registry,
      hello('s1', [agent('crm.order.a1', ['crm.order.query@1.0.0'], 's2'), agent('ext.pay.p1', ['ext.pay.charge@1.0.0'], null)]),
    );
    t.match(words(change), /crm\.order\.a1 4002 via is s2, and the sidecar s1 registers only what it hosts itself/);
    t.same(pushed(registry, 'ext.pay.charge'), ['ext.pay.p1']);
    t.equal(registry.capabilityStates('ext.pay.charge')[0]?.providers[0]?.mesh, null);
  });

  t.test('registering and leaving need a hello of the same process', async (t) => {
    const registry = fresh(new VirtualClock());
    const a1 = agent('crm.order.a1', ['crm.order.query@1.0.0']);
    t.match(words(registry.register({ wire: 1, sidecar: 's1', instance: 'i1', agent: a1 })), /say hello first/);
    arrive(registry, hello('s1', []));
    t.same(registry.register({ wire: 1, sidecar: 's1', instance: 'i1', agent: a1 }).refused, []);
    t.match(words(registry.leave({ wire: 1, sidecar: 's1', instance: 'i0', agent: null })), /say hello first/);
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1'], 'the late goodbye of an old process changes nothing');
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'crm.order.a1' });
    t.same(pushed(registry, 'crm.order.query'), []);
  });

  t.test('a sidecar is seen as it says it is', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    const message = hello('s1', [agent('crm.order.a1', ['crm.order.query@1.0.0'])], { region: 'eu', zone: 'a', callers: ['web.front.f1'] });
    const joins = (change: Change) => change.events.filter((each) => each.kind === 'sidecar-joined').length;
    t.equal(joins(arrive(registry, message)), 1);
    t.equal(joins(arrive(registry, message)), 0);
    const moved = arrive(registry, { ...message, zone: 'b', mesh: null });
    t.same([moved.registrations, moved.capabilities, moved.scopes], [['s1'], ['crm.order.query'], []]);
    t.match(registry.registration('s1').hello, { region: 'eu', zone: 'b', mesh: null, instance: 'i1' });
    await clock.advance(10_000);
    t.match(registry.sidecars(), [
      {
        sidecar: 's1',
        status: 'online',
        zone: 'b',
        lastBeatMs: 10_000,
        agents: 1,
        agentsOnline: 1,
        capabilities: 1,
        callers: ['web.front.f1'],
      },
    ]);
    t.match(registry.providers(), [{ leaseLeftMs: 125_000, offlineSinceMs: null, lastActivityMs: 10_000, probe: null, operator: null }]);
    beat(registry, 's1', { 'crm.order.a1': { idleMs: 5_000, inFlight: 3 } });
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: null });
    t.match(registry.sidecars(), [{ status: 'left', agents: 1, agentsOnline: 0 }]);
    t.match(registry.providers(), [{ status: 'offline', leaseLeftMs: null, offlineSinceMs: clock.wallMs(), inFlight: 0 }]);
    t.equal(joins(arrive(registry, message)), 1, 'it is back');
    await clock.advance(135_000);
    t.match(registry.sidecars(), [{ status: 'offline' }]);
  });

  t.test('two processes of one name: the newer one is listened to', async (t) => {
    const registry = fresh(new VirtualClock());
    const a1 = agent('crm.order.a1', ['crm.order.query@1.0.0']);
    arrive(registry, hello('s1', [a1]));
    arrive(registry, hello('s1', [a1], { instance: 'i2' }));
    const outcome = beat(registry, 's1', { 'crm.order.a1': alive }, 'i1');
    t.equal(outcome.askHello, false, 'or both would say hello in turn for ever');
    t.equal(outcome.change.events[0]?.kind, 'twin');
    t.match(words(arrive(registry, hello('s1', [a1]))), /another process calls itself s1 and is the newer one/);
  });

  t.test('an agent id belongs to one sidecar: it is taken over only when that one is gone', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    const at = (sidecar: string) => agent('crm.order.a1', ['crm.order.query@1.0.0'], sidecar);
    arrive(registry, hello('s1', [at('s1')]));
    await clock.advance(3_000);
    t.match(
      words(arrive(registry, hello('s2', [at('s2')]))),
      /crm\.order\.a1 4003 .* registered by the sidecar s1 \(online, last sign of life 3 s ago\)/,
    );
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: null });
    const change = arrive(registry, hello('s2', [at('s2')]));
    t.same(change.refused, []);
    t.same([...change.registrations].sort(), ['s1', 's2'], 'the old registration no longer holds it');
    t.equal(registry.providers()[0]?.sidecar, 's2');
    t.same(registry.registration('s1').hello.agents, []);
    const third = arrive(registry, hello('s3', [agent('crm.order.a1', ['crm.order.query@1.0.0'], null)]));
    t.match(
      words(third),
      /registered by the sidecar s2 .*: an agent id belongs to one sidecar at a time/,
      'a third party takes nobody over',
    );
  });

  t.test('several sidecars may describe the same third party, if they say the same', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    const pay = (weight: number) => agent('ext.pay.p1', ['ext.pay.charge@1.0.0'], null, `weight: ${weight}`);
    arrive(registry, hello('s1', [pay(1)]));
    t.same(arrive(registry, hello('s2', [pay(1)])).refused, []);
    t.same(pushed(registry, 'ext.pay.charge'), ['ext.pay.p1'], 'pushed once');
    t.match(
      words(arrive(registry, hello('s3', [pay(2)]))),
      /with another record \(weight\): sidecars that describe the same third party must say the same/,
    );
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'ext.pay.p1' });
    t.same(pushed(registry, 'ext.pay.charge'), ['ext.pay.p1'], 'one of those that describe it is enough');
  });
});

t.test('contracts', async (t) => {
  const order = (version: string, more = '') => contract('crm.order.query', version, more);
  const with_ = (id: string, contracts: AgentRegistration['contracts'], via = 's1'): AgentRegistration => ({
    contracts,
    record: record(
      id,
      contracts.map((each) => `${each.name}@${each.version}`),
      via,
    ),
  });

  t.test('a version that breaks an earlier one of its major is refused with everything that broke', async (t) => {
    const registry = fresh(new VirtualClock());
    const first = order(
      '2.0.0',
      'input: { type: object, properties: { id: { type: string }, note: { type: string } } }, output: { type: object, properties: { state: {}, eta: {} } }',
    );
    const second = order(
      '2.1.0',
      'input: { type: object, required: [id], properties: { id: { type: integer }, note: { type: string } } }, output: { type: object, properties: { state: {} } }',
    );
    arrive(registry, hello('s1', [with_('crm.order.a1', [first])]));
    const change = arrive(registry, hello('s2', [with_('crm.order.a2', [second], 's2')]));
    t.equal(change.refused[0]?.code, 4003);
    const text = words(change);
    for (const part of [
      'crm.order.query@2.1.0 breaks 2.0.0 of the same major',
      'input /id no longer takes the type string',
      'input /id is newly required',
      'output /eta was removed',
      'Give it a new major',
    ])
      t.match(text, part);
    t.same(
      arrive(registry, hello('s2', [with_('crm.order.a2', [{ ...second, version: '3.0.0' }], 's2')])).refused,
      [],
      'a new major is free',
    );
  });

  t.test('an older version that a registered one breaks is refused as well', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [with_('crm.order.a1', [order('1.5.0', 'output: { type: object, properties: { state: {} } }')])]));
    const change = arrive(
      registry,
      hello('s2', [with_('crm.order.a2', [order('1.4.0', 'output: { type: object, properties: { state: {}, eta: {} } }')], 's2')]),
    );
    t.match(words(change), /crm\.order\.query@1\.4\.0 is broken by 1\.5\.0, which is registered already: output \/eta was removed/);
  });

  t.test('the guard remembers for a day what nobody serves any more, also over a restart', async (t) => {
    const clock = new VirtualClock();
    let registry = fresh(clock);
    const store = new Store();
    const old = order('1.0.0', 'output: { type: object, properties: { state: {}, eta: {} } }');
    const breaking = order('1.1.0', 'output: { type: object, properties: { state: {} } }');
    store.write(arrive(registry, hello('s1', [with_('crm.order.a1', [old])])), registry);
    // the agent moves on to 2.0.0: the contract of 1.0.0 is held by nobody
    store.write(arrive(registry, hello('s1', [with_('crm.order.a1', [order('2.0.0')])])), registry);
    t.same(
      registry.capabilities()[0]?.versions.map((each) => `${each.version} ${each.source}`),
      ['2.0.0 agents', '1.0.0 retired'],
    );
    registry = fresh(clock);
    registry.load('e1', store.registrations(), noOperators('e1'));
    t.match(words(arrive(registry, hello('s2', [with_('crm.order.a2', [breaking], 's2')]))), /breaks 1\.0\.0/);
    await clock.advance(86_400_000 - 1_000);
    beat(registry, 's1', { 'crm.order.a1': alive });
    registry.sweep();
    t.match(words(arrive(registry, hello('s2', [with_('crm.order.a2', [breaking], 's2')]))), /breaks 1\.0\.0/, 'a second before');
    await clock.advance(2_000);
    t.same(registry.sweep().capabilities, ['crm.order.query']);
    t.same(arrive(registry, hello('s2', [with_('crm.order.a2', [breaking], 's2')])).refused, []);
  });

  t.test('an operator can let go of a contract that nobody online holds', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [with_('crm.order.a1', [order('1.0.0')])]));
    t.match(registry.forgetContract('crm.order.query', '1.0.0').problem, /is online and holds/);
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'crm.order.a1' });
    const { problem, change } = registry.forgetContract('crm.order.query', '1.0.0');
    t.equal(problem, null);
    t.same(change.forgotten, ['cap.crm.order.query']);
    t.same(registry.capabilityNames(), []);
    t.match(registry.forgetContract('crm.order.query', '1.0.0').problem, /no contract .* is known/);
  });

  t.test('the same content from elsewhere is fine, another input is refused and says where it differs', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [with_('crm.order.a1', [order('1.0.0')])]));
    t.same(arrive(registry, hello('s2', [with_('crm.order.a2', [order('1.0.0')], 's2')])).refused, []);
    const other = order('1.0.0', 'input: { type: object }, description: other');
    const change = arrive(registry, hello('s3', [with_('crm.order.a3', [other], 's3')]));
    t.match(
      words(change),
      /crm\.order\.query@1\.0\.0 is registered by the sidecar s1 with other content \(description, input\): one version is the same everywhere/,
    );
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1', 'crm.order.a2']);
  });

  t.test(
    'a changed ACL rolls through the fleet: who comes early serves under the old one, the last one brings the new one in force',
    async (t) => {
      const clock = new VirtualClock();
      const registry = fresh(clock);
      const [x, y] = [order('1.0.0', 'acl: [team:crm]'), order('1.0.0', 'acl: [team:web]')];
      for (const n of [1, 2, 3]) arrive(registry, hello(`s${n}`, [with_(`crm.order.a${n}`, [x], `s${n}`)]));
      const aclNow = () => registry.capabilities()[0]?.versions[0]?.acl;
      for (const n of [1, 2]) {
        const change = arrive(registry, hello(`s${n}`, [with_(`crm.order.a${n}`, [y], `s${n}`)], { instance: 'i2' }));
        t.same(change.refused, []);
        t.match(change.warned, [
          { agent: `crm.order.a${n}`, problems: [/other content \(acl\).*until then the registered one is in force, for this agent too/] },
        ]);
        t.ok(change.events.some((each) => each.kind === 'contested'));
        t.same(aclNow(), ['team:crm']);
        t.equal(pushed(registry, 'crm.order.query').length, 3, 'nobody goes missing');
      }
      t.equal(beat(registry, 's2', { 'crm.order.a2': alive }, 'i2').askHello, false, 'nothing has changed');
      const last = arrive(registry, hello('s3', [with_('crm.order.a3', [y], 's3')], { instance: 'i2' }));
      t.same(last.refused, []);
      t.same(aclNow(), ['team:web']);
      t.same([...last.registrations].sort(), ['s1', 's2', 's3']);
      t.equal(beat(registry, 's1', { 'crm.order.a1': alive }, 'i2').askHello, true, 'it is asked again');
      t.same(arrive(registry, hello('s1', [with_('crm.order.a1', [y], 's1')], { instance: 'i2' })).refused, []);
      t.equal(beat(registry, 's1', { 'crm.order.a1': alive }, 'i2').askHello, false);
    },
  );

  t.test('the only sidecar that holds a version may change its words, not break it', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(
      registry,
      hello('s1', [with_('crm.order.a1', [order('1.0.0', 'description: before, output: { type: object, properties: { a: {} } }')])]),
    );
    const change = arrive(
      registry,
      hello('s1', [with_('crm.order.a1', [order('1.0.0', 'description: after, output: { type: object, properties: { a: {}, b: {} } }')])]),
    );
    t.same(change.refused, []);
    t.equal(registry.capabilities()[0]?.versions[0]?.description, 'after');
    const broken = arrive(
      registry,
      hello('s1', [with_('crm.order.a1', [order('1.0.0', 'output: { type: object, properties: { b: {} } }')])]),
    );
    t.match(words(broken), /breaks what was registered as crm\.order\.query@1\.0\.0 before: output \/a was removed/);
  });

  t.test('an alias that is given up is free', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [with_('crm.order.a1', [order('1.0.0', 'aliases: [orders]')])]));
    const other = hello('s2', [with_('crm.order.a2', [contract('crm.order.list', '1.0.0', 'aliases: [orders]')], 's2')]);
    t.equal(arrive(registry, other).refused.length, 1);
    arrive(registry, hello('s1', [with_('crm.order.a1', [order('1.0.0', 'aliases: []')])]));
    t.same(arrive(registry, other).refused, []);
    t.same(
      registry.capabilities().map((each) => each.aliases),
      [['orders'], []],
    );
  });

  t.test('aliases stand for one thing', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [with_('crm.order.a1', [order('1.0.0', 'aliases: [order_query, crm.orders.get]')])]));
    const clash = (name: string, aliases: string) =>
      words(arrive(registry, hello('s2', [with_('crm.order.a2', [contract(name, '1.0.0', `aliases: [${aliases}]`)], 's2')])));
    t.match(clash('crm.refund.apply', 'order_query'), /the alias order_query belongs to crm\.order\.query already/);
    t.match(clash('crm.refund.apply', 'crm.order.query'), /the alias crm\.order\.query is the name of another capability/);
    t.match(clash('crm.orders.get', 'x'), /the name crm\.orders\.get is an alias of crm\.order\.query/);
    t.equal(clash('crm.refund.apply', 'refund'), '');
  });

  t.test('a fallback that comes back to where it began is refused', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [with_('crm.order.a1', [order('1.0.0', 'fallback: [{ capability: crm.order.cached }]')])]));
    const change = arrive(
      registry,
      hello('s2', [with_('crm.order.a2', [contract('crm.order.cached', '1.0.0', 'fallback: [{ capability: crm.order.query }]')], 's2')]),
    );
    t.match(
      words(change),
      /the fallback comes back to where it began: crm\.order\.cached@1\.0\.0 > crm\.order\.query@1\.0\.0 > crm\.order\.cached@1\.0\.0/,
    );
  });

  t.test('what would not fit into one message is refused', async (t) => {
    const registry = fresh(new VirtualClock());
    const long = 'x'.repeat(4_000);
    const large = (name: string, version: string) =>
      contract(
        name,
        version,
        `input: { type: object, properties: { ${Array.from({ length: 14 }, (_, i) => `p${i}: { description: "${long}" }`).join(', ')} } }`,
      );
    const versions = Array.from({ length: 8 }, (_, i) => large('crm.order.query', `${i + 1}.0.0`));
    t.match(
      words(arrive(registry, hello('s1', [with_('crm.order.a1', versions)]))),
      /the versions of crm\.order\.query would have \d+ bytes together/,
    );
    const many = Array.from({ length: 20 }, (_, i) => with_(`crm.order.b${i}`, [large(`crm.order.q${i}`, '1.0.0')]));
    t.match(words(arrive(registry, hello('s1', many))), /the sidecar s1 would register \d+ bytes, and at most/);
    t.ok(registry.providers().length > 5, 'those that fit are in force');
  });
});

t.test('requests', async (t) => {
  const good = hello('s1', [agent('crm.order.a1', ['crm.order.query@1.0.0'])]);
  type Draft = { -readonly [K in keyof typeof good]: unknown };
  const wire = (change: (copy: Draft) => unknown) => {
    const copy = JSON.parse(JSON.stringify(good)) as Draft;
    change(copy);
    return readHello(copy);
  };
  const problems = (reading: { refused: readonly { problems: readonly string[] }[] }) =>
    reading.refused.flatMap((each) => each.problems).join('\n');

  t.test('what comes over the wire is what the languages would have made of a file', async (t) => {
    const whole = contract(
      'crm.order.query',
      '2.0.0',
      `description: All of it, examples: [1, null, { a: [] }], aliases: [orders], tags: { lang: de }, input: { type: object, properties: { a: { const: null } } }, output: true, execution: keyed,
       affinity: { required: true, from: /session/id, mode: strict }, timeout: 1500ms, deadline: 24h, retry: { max: 1, backoff: 5ms, min_remaining: 7% }, breaker: { ramp: [1, 2], failure_ratio: 0.333, open: 90s },
       limits: { request: 1KiB, per_caller: 3, event: 2MiB }, fallback: [{ capability: "crm.order.cached@^1" }, { provider: crm.order.b1 }, { static: null }], acl: [role:front, "crm.*.*", agent:web.front.f1], streaming: { done: "[DONE]", idle: 90s },
       success: { definitely: [{ pointer: /a, equals: null }, { status: 204 }], unless: [{ below: 0.5, empty: false }] }`,
    );
    const third = record(
      'ext.pay.p1',
      ['ext.pay.charge@1.0.0'],
      null,
      `tags: { tier: gold }, target: { lang: de }, locality: { region: eu, zone: a }, weight: 0.5, tier: backup, limits: { per_provider: 2 }, drain: true, health_check: { path: /health, interval: 20s },
       endpoint: { type: http, address: "https://api.example.com/v1", mapping: { ext.pay.charge: { method: GET, path: "/x/{/id}", query: { q: "{/q}" }, headers: { x-a: b } }, "*": { path: /y, body: { a: ["{/b}", 1, null] } } }, credential: { header: x-key, prefix: "Key ", secret: { env: PAY_KEY } } }`,
    );
    const mock = record('lab.mock.m1', ['lab.mock.run@1.0.0'], null, 'endpoint: { type: mock, latency: 5ms, script: [{ status: 200 }] }');
    for (const each of [third, mock]) {
      const json = JSON.parse(JSON.stringify({ contracts: [whole], record: each }));
      t.same(readAgent(json), json);
    }
    const none = JSON.parse(
      JSON.stringify({
        contracts: [contract('a.b.c', '1.0.0', 'streaming: true, fallback: none, affinity: { from: "header:X-Session" }')],
        record: mock,
      }),
    );
    t.same(readAgent(none), none);
  });

  t.test('fields that are not known are left out, not stored', async (t) => {
    const json = JSON.parse(JSON.stringify({ ...good.agents[0], extra: 1 }));
    json.record.extra = 2;
    json.contracts[0].extra = 3;
    t.same(readAgent(json), JSON.parse(JSON.stringify(good.agents[0])));
  });

  t.test('everything that is wrong with an agent is named, and the others are read', async (t) => {
    const [first] = good.agents as [AgentRegistration];
    const bad = {
      contracts: [{ ...first.contracts[0], acl: undefined, timeoutMs: -5, name: 'crm.order query' }],
      record: { ...first.record, agentId: 'crm.order.a2', weight: -1, endpoint: { type: 'http', address: 'http://u:p@host' } },
    };
    const reading = wire((copy) => (copy.agents = [first, bad, { record: { agentId: 'crm.>' } }, 7, null]));
    t.equal(reading.request?.agents.length, 1);
    const text = problems(reading);
    for (const part of [
      'contracts/0: acl is missing',
      'timeout must be a duration',
      '"crm.order query" is not a capability name',
      'weight must be',
      'must not hold a user name or password',
      '"crm.>" is not an agent id',
    ])
      t.match(text, part);
    t.same(
      reading.refused.map((each) => each.agent),
      ['crm.order.a2', 'agents/2', 'agents/3', 'agents/4'],
    );
    t.equal(reading.refused[0]?.code, 4006, 'a bad name has its own code');
  });

  t.test('a good record does not carry a bad contract in, nor a good contract a bad record', async (t) => {
    const whole = () => JSON.parse(JSON.stringify(good.agents[0]));
    const badContract = whole();
    badContract.contracts[0].version = '1';
    t.match(readAgent(badContract), { agent: 'crm.order.a1', problems: [/^contracts\/0\/version: .* is not an exact version/] });
    const badRecord = whole();
    badRecord.record.offers = [];
    t.match(readAgent(badRecord), { agent: 'crm.order.a1', problems: [/^record\/offers: /] });
    t.match(readAgent({ ...whole(), contracts: {} }), { problems: ['contracts must be a list of at most 1000'] });
    const twice = whole();
    twice.contracts.push(twice.contracts[0]);
    t.match(readAgent(twice), { problems: ['crm.order.query@1.0.0 is listed twice'] });
    const large = whole();
    large.contracts[0].examples = ['x'.repeat(70_000)];
    large.record.tags = Object.fromEntries(Array.from({ length: 64 }, (_, i) => [`t${i}`, 'x'.repeat(120)]));
    large.record.endpoint.mapping = {
      '*': { method: 'POST', path: '/x', query: {}, headers: {}, body: { template: { a: 'y'.repeat(40_000) } } },
    };
    t.match(readAgent(large), {
      problems: [/the record has \d+ bytes, and at most 32768/, /the contract crm\.order\.query@1\.0\.0 has \d+ bytes, and at most 65536/],
    });
    t.match(wire((copy) => (copy.agents = [good.agents[0], good.agents[0]])).refused, [
      { problems: ['this agent is listed twice in one hello'] },
    ]);
  });

  t.test(
    'a gateway may have as many callers as stand behind one, is told when there are more, and is asked about each at no cost',
    async (t) => {
      const callersOf = (count: number): string[] => Array.from({ length: count }, (_, i) => `web.front.a${String(i).padStart(6, '0')}`);
      const many = wire((copy) => (copy.callers = [...callersOf(20_000), 'web.front.a000000']));
      t.match(problems(many), 'callers must be a list of at most 20000 agent ids');
      t.equal(wire((copy) => (copy.callers = callersOf(20_000))).request?.callers.length, 20_000);
      const registry = fresh(new VirtualClock());
      arrive(registry, hello('gate', [], { callers: callersOf(20_000) }));
      const startedAt = performance.now();
      for (const agentId of callersOf(20_000))
        if (!registry.isHostedAt('gate', agentId) || registry.homesOf(agentId)[0] !== 'gate') t.fail(agentId);
      const tookMs = performance.now() - startedAt;
      t.ok(tookMs < 1_000, `${Math.round(tookMs)} ms for 40,000 questions (a list that is searched takes several seconds)`);
      t.notOk(registry.isHostedAt('gate', 'web.front.b'));
      t.same(registry.homesOf('web.front.b'), []);
      arrive(registry, hello('gate', [], { callers: ['web.front.b'] }));
      t.notOk(registry.isHostedAt('gate', 'web.front.a000000'), 'another list takes its place');
      t.same(registry.homesOf('web.front.b'), ['gate']);
    },
  );

  t.test('a request that is not one is refused as a whole', async (t) => {
    const changes: readonly (readonly [(copy: Draft) => unknown, string])[] = [
      [(copy) => (copy.wire = 2), "speaks version 2 of the registry's wire, and this program version 1"],
      [(copy) => (copy.sidecar = 'a.b'), 'no dots'],
      [(copy) => (copy.sidecar = 'crm.>\r\nPUB x 0'), 'cannot be the name of a sidecar'],
      [(copy) => (copy.sidecar = undefined), 'cannot be the name of a sidecar'],
      [(copy) => (copy.instance = ''), 'instance must be'],
      [(copy) => (copy.mesh = 'http://a:b@10.0.0.1:1'), 'mesh: an address must not hold'],
      [(copy) => (copy.mesh = 5), 'mesh must be an address'],
      [(copy) => (copy.zone = 'a b'), 'zone must be'],
      [(copy) => (copy.callers = ['web.*.x']), 'is not an agent id'],
      [(copy) => (copy.callers = 'x'), 'callers must be a list'],
      [(copy) => (copy.agents = {}), 'agents must be a list'],
    ];
    for (const [change, part] of changes) {
      const reading = wire(change);
      t.equal(reading.request, null);
      t.match(problems(reading), part);
    }
    t.equal(readHello(null).request, null);
    t.equal(readHeartbeat([]), null);
    t.equal(readLeave({ wire: 1, sidecar: 's1', instance: 'i1', agent: '*' }).request, null);
    t.match(problems(readRegister({ wire: 1, sidecar: 's1', instance: 'i1' })), 'an agent is a map');
  });

  t.test('data that is nested without end is refused before anything walks it', async (t) => {
    const deep = JSON.parse(`${'['.repeat(5_000)}${']'.repeat(5_000)}`);
    const json = JSON.parse(JSON.stringify(good.agents[0]));
    json.contracts[0].examples = [deep];
    t.match(readAgent(json), { problems: [/nested more than 64 levels/] });
  });

  t.test('a heartbeat with odd figures counts as one without', async (t) => {
    t.same(
      {
        ...readHeartbeat({
          wire: 1,
          sidecar: 's1',
          instance: 'i1',
          agents: { 'a.b.c': { idleMs: -1, inFlight: 'x' }, 'a.b.d': 5, 'x y': {} },
        })?.agents,
      },
      { 'a.b.c': { idleMs: 0, inFlight: 0 } },
    );
  });

  t.test('an export that somebody edited is judged when it is read', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [agent('crm.order.a1', ['crm.order.query@1.0.0']), agent('crm.order.a2', ['crm.order.query@1.0.0'])]));
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'crm.order.a2' });
    const exported = JSON.parse(JSON.stringify(registry.registration('s1')));
    t.same(readRegistration(exported), { state: exported, problems: [] });
    const old = JSON.parse(JSON.stringify({ contract: contract('crm.order.old'), sinceMs: 7 }));
    t.same(readRegistration({ ...exported, retired: [old, 5] }).state?.retired, [old]);
    exported.hello.agents[1].record.weight = 'much';
    exported.retired = [{ contract: { name: 'x' }, sinceMs: 1 }];
    const read = readRegistration(exported);
    t.equal(read.state?.hello.agents.length, 1);
    t.match(read.problems.join('\n'), /weight must be/);
    t.match(read.problems.join('\n'), /retired\/0.*version is missing/);
    t.equal(readRegistration({ ...exported, hello: 5 }).state, null);
    t.equal(readRegistration('x').state, null);
  });
});

t.test('leases', async (t) => {
  const one = () => agent('crm.order.a1', ['crm.order.query@1.0.0']);

  t.test('silence of 135 s makes a provider offline, once, and the next beat brings it back without registering', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [one()]));
    await clock.advance(134_999);
    t.ok(isQuiet(registry.sweep()));
    await clock.advance(1);
    const change = registry.sweep();
    t.same(change.capabilities, ['crm.order.query']);
    t.match(change.events, [{ kind: 'offline', agent: 'crm.order.a1', why: 'lease' }]);
    t.ok(isQuiet(registry.sweep()), 'told once');
    t.same(pushed(registry, 'crm.order.query'), []);
    t.match(registry.providers()[0], { status: 'offline', why: 'lease', lastActivityMs: 135_000 });
    await clock.advance(10_000);
    const back = beat(registry, 's1', { 'crm.order.a1': alive });
    t.equal(back.askHello, false);
    t.same(back.change.capabilities, ['crm.order.query']);
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1']);
    t.equal(registry.providers().length, 1);
  });

  t.test('one late beat evicts nobody', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [one()]));
    for (let i = 0; i < 20; i++) {
      await clock.advance(i % 4 === 0 ? 130_000 : 45_000);
      t.ok(isQuiet(registry.sweep()));
      beat(registry, 's1', { 'crm.order.a1': { idleMs: 600_000, inFlight: 0 } });
    }
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1'], 'an agent that nobody calls is alive as long as its sidecar lists it');
  });

  t.test('C062: blocked for 60 s in a call it stays, blocked for 140 s it goes and comes back with its next sign of life', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [one()]));
    // its sidecar beats on; the agent does not answer
    for (const [idleMs, inFlight] of [
      [45_000, 1],
      [60_000, 1],
    ] as const) {
      await clock.advance(30_000);
      beat(registry, 's1', { 'crm.order.a1': { idleMs, inFlight } });
      t.ok(isQuiet(registry.sweep()));
    }
    beat(registry, 's1', { 'crm.order.a1': alive });
    for (let at = 45_000; at <= 135_000; at += 45_000) {
      await clock.advance(45_000);
      beat(registry, 's1', { 'crm.order.a1': { idleMs: at, inFlight: 1 } });
    }
    registry.sweep();
    t.same(pushed(registry, 'crm.order.query'), [], 'no new calls at 135 s');
    await clock.advance(5_000);
    const back = beat(registry, 's1', { 'crm.order.a1': { idleMs: 0, inFlight: 0 } });
    t.equal(back.askHello, false);
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1']);
  });

  t.test('an agent that rested for an hour and has just begun a call is not taken for stuck', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [one()]));
    for (let i = 1; i <= 80; i++) {
      await clock.advance(45_000);
      beat(registry, 's1', { 'crm.order.a1': { idleMs: i * 45_000, inFlight: 0 } });
    }
    await clock.advance(45_000);
    beat(registry, 's1', { 'crm.order.a1': { idleMs: 81 * 45_000, inFlight: 1 } });
    await clock.advance(80_000);
    t.ok(isQuiet(registry.sweep()), 'a whole lease since it was last seen at rest');
    await clock.advance(20_000);
    t.same(registry.sweep().capabilities, ['crm.order.query'], 'and no longer');
  });

  t.test('calls that succeed keep a busy agent', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [one()]));
    for (let i = 0; i < 20; i++) {
      await clock.advance(45_000);
      beat(registry, 's1', { 'crm.order.a1': { idleMs: 2_000, inFlight: 8 } });
      t.ok(isQuiet(registry.sweep()));
    }
    t.match(registry.providers()[0], { status: 'online', inFlight: 8, lastActivityMs: 2_000 });
  });

  t.test('a heartbeat of a stranger, of another process or of an agent that is not known asks for a hello', async (t) => {
    const registry = fresh(new VirtualClock());
    t.equal(beat(registry, 's1', {}).askHello, true);
    arrive(registry, hello('s1', [one()]));
    t.equal(beat(registry, 's1', { 'crm.order.a1': alive }).askHello, false);
    t.equal(beat(registry, 's1', {}, 'i2').askHello, true);
    t.equal(beat(registry, 's1', { 'crm.order.a9': alive }).askHello, true);
  });

  t.test('after a goodbye a late beat changes nothing', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [one()]));
    const change = registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: null });
    t.same(change.capabilities, ['crm.order.query'], 'at once');
    const late = beat(registry, 's1', { 'crm.order.a1': alive });
    t.same([late.askHello, isQuiet(late.change)], [false, true]);
    t.same(pushed(registry, 'crm.order.query'), []);
    await clock.advance(6_000);
    t.equal(beat(registry, 's1', { 'crm.order.a1': alive }).askHello, true, 'it is there after all');
  });

  t.test('C063: the list is the union over live providers, and who is gone is gone from everything', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('old', [agent('crm.desk.old', ['crm.desk.a@1.0.0', 'crm.desk.b@1.0.0'], 'old')], { callers: ['web.front.f1'] }));
    const change = arrive(
      registry,
      hello('new', [agent('crm.desk.new', ['crm.desk.a@1.0.0', 'crm.desk.b@1.0.0', 'crm.desk.c@1.0.0'], 'new')]),
    );
    t.ok(change.capabilities.includes('crm.desk.c'));
    t.same(registry.scope('old').capabilities, ['crm.desk.a', 'crm.desk.b', 'crm.desk.c'], 'callable as soon as it is registered');
    for (let i = 0; i < 3; i++) {
      await clock.advance(45_000);
      beat(registry, 'new', { 'crm.desk.new': alive });
    }
    const gone = registry.sweep();
    t.same([...gone.capabilities].sort(), ['crm.desk.a', 'crm.desk.b']);
    t.equal(gone.events.length, 1, 'one event');
    for (const name of ['crm.desk.a', 'crm.desk.b', 'crm.desk.c']) t.same(pushed(registry, name), ['crm.desk.new']);
    t.same(
      registry.capabilities().map((each) => [each.capability, each.online]),
      [
        ['crm.desk.a', 1],
        ['crm.desk.b', 1],
        ['crm.desk.c', 1],
      ],
    );
  });

  t.test('what is offline is forgotten after a day, its capability and its sidecar with it', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [one()]));
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: null });
    await clock.advance(86_399_000);
    t.ok(isQuiet(registry.sweep()));
    t.equal(registry.capabilities().length, 1);
    await clock.advance(1_000);
    const change = registry.sweep();
    t.same([...change.forgotten].sort(), ['cap.crm.order.query', 'reg.s1', 'scope.s1']);
    t.same([registry.capabilityNames(), registry.sidecarNames(), registry.providers()], [[], [], []]);
    t.same(registry.capabilityStates('crm.order.query')[0]?.contracts, []);
  });

  t.test('a restart grants everybody a whole lease, and asks each for a hello once', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    const store = new Store();
    store.write(arrive(registry, hello('s1', [one(), agent('crm.order.a2', ['crm.order.query@1.0.0'])])), registry);
    store.write(registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'crm.order.a2' }), registry);
    await clock.advance(130_000);
    const next = fresh(clock);
    t.same(next.load('e1', store.registrations(), noOperators('e1')), []);
    t.same(store.write(next.everything(), next), [], 'nothing to write');
    await clock.advance(134_000);
    t.ok(isQuiet(next.sweep()));
    t.same(pushed(next, 'crm.order.query'), ['crm.order.a1'], 'who was offline stays so');
    t.equal(beat(next, 's1', { 'crm.order.a1': alive }).askHello, true);
    t.equal(beat(next, 's1', { 'crm.order.a1': alive }).askHello, false);
    t.match(
      next.providers().find((each) => each.agent === 'crm.order.a2'),
      { status: 'offline', why: 'left' },
    );
  });

  t.test('a registration of a version that this one does not read keeps it from leading', async (t) => {
    const registry = fresh(new VirtualClock());
    arrive(registry, hello('s1', [one()]));
    const state = registry.registration('s1');
    t.match(fresh(new VirtualClock()).load('e1', [{ ...state, wire: 9 }], noOperators('e1')), [/s1 is in version 9/]);
  });

  t.test('a leader that died between the two writes of a take-over: the newer claim has the agent', async (t) => {
    const clock = new VirtualClock();
    const [first, second] = ['s1', 's2'].map((name) => {
      const registry = fresh(clock);
      arrive(registry, hello(name, [agent('crm.order.a1', ['crm.order.query@1.0.0'], name)]));
      return registry.registration(name);
    });
    for (const [newer, older] of [
      ['s1', 's2'],
      ['s2', 's1'],
    ] as const) {
      const next = fresh(clock);
      next.load('e1', [first as never, second as never], noOperators('e1'), (name) => (name === newer ? 2 : 1));
      t.equal(next.providers()[0]?.sidecar, newer);
      t.same(next.registration(older).hello.agents, []);
    }
  });

  t.test('the wall clock may jump as it likes', async (t) => {
    const clock = new VirtualClock();
    let wallMs = clock.wallMs();
    clock.wallMs = () => wallMs;
    const registry = fresh(clock);
    const store = new Store();
    store.write(arrive(registry, hello('s1', [one(), agent('crm.order.a2', ['crm.order.query@1.0.0'])])), registry);
    store.write(registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'crm.order.a2' }), registry);
    for (const jump of [86_400_000 * 365, -86_400_000 * 700]) {
      wallMs += jump;
      t.ok(isQuiet(registry.sweep()));
      const next = fresh(clock);
      next.load('e1', store.registrations(), noOperators('e1'));
      t.ok(isQuiet(next.sweep()));
      t.equal(next.providers().length, 2, 'nothing is forgotten at once');
    }
  });
});

t.test('a sudden loss', async (t) => {
  const fleet = async (sidecars: number, each: number) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    for (let s = 0; s < sidecars; s++)
      arrive(
        registry,
        hello(
          `s${s}`,
          Array.from({ length: each }, (_, i) => agent(`crm.order.a${s}x${i}`, [`crm.order.q${i % 3}@1.0.0`], `s${s}`)),
        ),
      );
    const beatAll = (from: number) => {
      for (let s = from; s < sidecars; s++)
        beat(registry, `s${s}`, Object.fromEntries(Array.from({ length: each }, (_, i) => [`crm.order.a${s}x${i}`, alive])));
    };
    return { clock, registry, beatAll };
  };
  const online = (registry: Registry) => registry.providers().filter((each) => each.status === 'online').length;

  t.test('of most of the fleet is not believed until it is confirmed', async (t) => {
    const { clock, registry } = await fleet(5, 4);
    await clock.advance(135_000);
    const change = registry.sweep();
    t.ok(isQuiet(change));
    t.match(change.events, [{ kind: 'held' }]);
    t.match(registry.held(), /20 of 20 providers on 5 sidecars fell silent within 1m/);
    t.equal(registry.providers()[0]?.status, 'overdue');
    t.ok(isQuiet(registry.sweep()));
    t.equal(pushed(registry, 'crm.order.q0').length, 10, 'they are still pushed');
    const confirmed = registry.confirm();
    t.equal(confirmed.capabilities.length, 3);
    t.equal(registry.held(), null);
    t.equal(registry.providers().filter((each) => each.status === 'offline').length, 20);
  });

  t.test('heals by itself when they come back', async (t) => {
    const { clock, registry, beatAll } = await fleet(5, 4);
    await clock.advance(135_000);
    registry.sweep();
    beatAll(0);
    t.ok(isQuiet(registry.sweep()));
    t.equal(registry.held(), null);
    t.equal(online(registry), 20);
  });

  t.test('when most are back, those that are not are believed to be gone', async (t) => {
    const { clock, registry, beatAll } = await fleet(5, 4);
    await clock.advance(135_000);
    registry.sweep();
    beatAll(1);
    t.notOk(isQuiet(registry.sweep()));
    t.equal(registry.held(), null);
    t.equal(online(registry), 16);
  });

  t.test('of one sidecar with most of the agents is believed: one process can die', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(
      registry,
      hello(
        'big',
        Array.from({ length: 20 }, (_, i) => agent(`crm.order.a${i}`, ['crm.order.query@1.0.0'], 'big')),
      ),
    );
    arrive(registry, hello('s2', [agent('crm.order.z', ['crm.order.query@1.0.0'], 's2')]));
    await clock.advance(134_000);
    beat(registry, 's2', { 'crm.order.z': alive });
    await clock.advance(1_000);
    registry.sweep();
    t.same(pushed(registry, 'crm.order.query'), ['crm.order.z']);
  });

  t.test('of goodbyes is believed, and so is that of a small registry', async (t) => {
    const { registry } = await fleet(5, 4);
    for (let s = 0; s < 5; s++) registry.leave({ wire: 1, sidecar: `s${s}`, instance: 'i1', agent: null });
    t.equal(online(registry), 0);
    const small = await fleet(3, 2);
    await small.clock.advance(135_000);
    small.registry.sweep();
    t.equal(online(small.registry), 0);
  });

  t.test('the bus was away: everybody gets a whole lease', async (t) => {
    const { clock, registry } = await fleet(3, 2);
    await clock.advance(134_000);
    registry.grace();
    await clock.advance(134_000);
    t.ok(isQuiet(registry.sweep()));
    await clock.advance(1_000);
    registry.sweep();
    t.equal(online(registry), 0);
  });
});

t.test('what was refused is asked for again when something has changed that may let it in', async (t) => {
  const clock = new VirtualClock();
  const registry = fresh(clock);
  const at = (sidecar: string) => agent('crm.order.a1', ['crm.order.query@1.0.0'], sidecar);
  arrive(registry, hello('s1', [at('s1')]));
  t.equal(arrive(registry, hello('s2', [at('s2')])).refused.length, 1);
  t.equal(beat(registry, 's2', {}).askHello, false);
  await clock.advance(135_000);
  registry.sweep();
  t.equal(beat(registry, 's2', {}).askHello, true, 'the other one has fallen silent');
  t.same(arrive(registry, hello('s2', [at('s2')])).refused, []);
  t.equal(beat(registry, 's2', { 'crm.order.a1': alive }).askHello, false);
});

t.test('an agent whose sidecar hears nothing of it is offline as if its lease had run out', async (t) => {
  const registry = fresh(new VirtualClock());
  arrive(registry, hello('s1', [agent('crm.order.a1', ['crm.order.query@1.0.0'])]));
  const request = readLeave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'crm.order.a1', why: 'lease' }).request;
  t.match(registry.leave(request as NonNullable<typeof request>).events, [{ kind: 'offline', why: 'lease' }]);
  t.equal(beat(registry, 's1', { 'crm.order.a1': alive }).askHello, false);
  t.same(pushed(registry, 'crm.order.query'), ['crm.order.a1'], 'and back with the next beat that names it');
});

t.test('flapping', async (t) => {
  t.test('ten changes a second become one write a second, and the last one wins', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    const store = new Store();
    store.write(arrive(registry, hello('s1', [])), registry);
    const writesBefore = store.writes;
    const flap = (weight: number) => agent('crm.order.a1', ['crm.order.query@1.0.0'], 's1', `weight: ${weight}`);
    let deferred = 0;
    for (let i = 1; i <= 200; i++) {
      const change = registry.register({ wire: 1, sidecar: 's1', instance: 'i1', agent: flap(i) });
      deferred += change.deferred.length;
      store.write(change, registry);
      await clock.advance(100);
      store.write(registry.sweep(), registry);
    }
    const writes = store.writes - writesBefore;
    t.ok(deferred > 150);
    t.ok(writes <= 2 * (5 + 21) && writes >= 2 * 20, `${writes} writes of two messages in 20 s`);
    t.match(registry.providers()[0], { weight: 200 });
    await clock.advance(1_100);
    store.write(registry.sweep(), registry);
    t.match((store.get('cap.crm.order.query') as { providers: { record: { weight: number } }[] }).providers[0], {
      record: { weight: 200 },
    });
    t.match(store.get('reg.s1'), { hello: { agents: [{ record: { weight: 200 } }] } });
  });

  t.test('coming and going ten times a second ends as it ended', async (t) => {
    const clock = new VirtualClock();
    for (const endsOnline of [true, false]) {
      const registry = fresh(clock);
      const store = new Store();
      store.write(arrive(registry, hello('s1', [])), registry);
      for (let i = 0; i < 40; i++) {
        const isJoin = i % 2 === (endsOnline ? 1 : 0);
        store.write(
          isJoin
            ? registry.register({ wire: 1, sidecar: 's1', instance: 'i1', agent: agent('crm.order.a1', ['crm.order.query@1.0.0']) })
            : registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: 'crm.order.a1' }),
          registry,
        );
        await clock.advance(100);
        store.write(registry.sweep(), registry);
      }
      await clock.advance(1_100);
      store.write(registry.sweep(), registry);
      t.same([...store.readers('crm.order.query')], endsOnline ? ['crm.order.a1'] : []);
      t.ok(store.writes < 30, `${store.writes} writes`);
    }
  });

  t.test('the others are not made to wait', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', []));
    for (let i = 1; i <= 20; i++)
      registry.register({
        wire: 1,
        sidecar: 's1',
        instance: 'i1',
        agent: agent('crm.order.a1', ['crm.order.query@1.0.0'], 's1', `weight: ${i}`),
      });
    const change = registry.register({ wire: 1, sidecar: 's1', instance: 'i1', agent: agent('crm.order.a2', ['crm.order.query@1.0.0']) });
    t.same(change.capabilities, ['crm.order.query']);
    t.same(change.deferred, []);
  });
});

t.test('probes of third parties', async (t) => {
  const pay = () =>
    agent(
      'ext.pay.p1',
      ['ext.pay.charge@1.0.0'],
      null,
      'health_check: { path: /health, interval: 10s }, endpoint: { type: http, address: "https://api.example.com/v1" }',
    );

  t.test('are due at their interval, three failures in a row make it offline, one success brings it back', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [pay(), agent('crm.order.a1', ['crm.order.query@1.0.0'], 's1', 'health_check: { path: /health }')]));
    await clock.advance(5_000);
    t.same(
      registry.probesDue(),
      [{ agent: 'ext.pay.p1', url: 'https://api.example.com/v1/health', timeoutMs: 5_000 }],
      'what a sidecar hosts is not ours to ask',
    );
    let due = 0;
    for (let i = 0; i < 100; i++) {
      await clock.advance(1_000);
      due += registry.probesDue().length;
    }
    t.ok(due === 10, `${due} in 100 s`);
    t.ok(isQuiet(registry.probe('ext.pay.p1', false)));
    t.ok(isQuiet(registry.probe('ext.pay.p1', false)));
    t.ok(isQuiet(registry.probe('ext.pay.p1', true)));
    t.ok(isQuiet(registry.probe('ext.pay.p1', false)));
    t.ok(isQuiet(registry.probe('ext.pay.p1', false)));
    const dead = registry.probe('ext.pay.p1', false);
    t.match(dead.events, [{ kind: 'offline', why: 'probe' }]);
    t.match(
      registry.providers().find((each) => each.agent === 'ext.pay.p1'),
      { why: 'probe', probe: { failures: 3 } },
    );
    beat(registry, 's1', { 'ext.pay.p1': alive });
    t.ok(
      isQuiet(
        arrive(registry, hello('s1', [pay(), agent('crm.order.a1', ['crm.order.query@1.0.0'], 's1', 'health_check: { path: /health }')])),
      ),
    );
    t.same(pushed(registry, 'ext.pay.charge'), [], 'its sidecar does not speak for it');
    t.match(registry.probe('ext.pay.p1', true).events, [{ kind: 'online' }]);
    t.same(pushed(registry, 'ext.pay.charge'), ['ext.pay.p1']);
    t.ok(isQuiet(registry.probe('ext.pay.nobody', true)));
  });

  t.test('keep a third party alive when its sidecar falls silent, but not when it says goodbye', async (t) => {
    const clock = new VirtualClock();
    const registry = fresh(clock);
    arrive(registry, hello('s1', [pay()]));
    for (let i = 0; i < 30; i++) {
      await clock.advance(HALF_BEAT);
      registry.probe('ext.pay.p1', true);
      registry.sweep();
    }
    t.same(pushed(registry, 'ext.pay.charge'), ['ext.pay.p1']);
    registry.leave({ wire: 1, sidecar: 's1', instance: 'i1', agent: null });
    t.same(pushed(registry, 'ext.pay.charge'), ['ext.pay.p1'], 'a sidecar that restarts does not take it away');
    for (let i = 0; i < 6; i++) {
      await clock.advance(HALF_BEAT);
      registry.probe('ext.pay.p1', true);
    }
    t.match(registry.sweep().events, [{ kind: 'offline', why: 'left' }]);
  });
});

t.test('C117: addresses of endpoints', async (t) => {
  const names: Record<string, string[]> = {
    'api.example.com': ['93.184.216.34'],
    '127.0.0.1.nip-like.test': ['127.0.0.1'],
    'both.example.com': ['93.184.216.34', '10.0.0.5'],
    'meta.example.com': ['169.254.169.254'],
    'plane.example.com': ['10.0.0.9'],
  };
  const allow = AllowList.parse(['10.9.0.0/16', 'plane.example.com']) as AllowList;
  const guard = {
    direct: { allow, loopback: false, private: false },
    hosted: { allow, loopback: true, private: true },
    ownPorts: new Set(
      ['http://127.0.0.1:7800', 'http://[::1]:7701', 'http://10.9.0.1', 'http://10.0.0.9:7800'].map(
        (address) => ownPort(address) as string,
      ),
    ),
  };
  const judged = (address: string, via: string | null, type = 'http') => {
    const made = record('ext.pay.p1', ['ext.pay.charge@1.0.0'], via);
    return judgeEndpoint({ ...made, endpoint: { ...made.endpoint, type, address } }, guard, async (name) => names[name] ?? []);
  };

  t.test('of third parties are public, or on the list', async (t) => {
    for (const good of ['https://api.example.com/v1', 'http://93.184.216.34', 'http://10.9.3.4:80', 'https://unknown.example.com'])
      t.equal(await judged(good, null), null, good);
    for (const [bad, words] of [
      ['http://[::ffff:7f00:1]:8080', /loopback/],
      ['http://2130706433', /127\.0\.0\.1 is a loopback/],
      ['http://0x7f.1', /loopback/],
      ['http://127.0.0.1.nip-like.test', /"127\.0\.0\.1\.nip-like\.test" leads to 127\.0\.0\.1, which is a loopback/],
      ['http://both.example.com', /leads to 10\.0\.0\.5, which is a private/],
      ['http://meta.example.com', /credentials of a machine/],
      ['http://169.254.169.254/latest/meta-data', /credentials of a machine/],
      ['http://user:pass@api.example.com', /user name or password/],
      ['http://localhost:8080', /loopback/],
      ['ftp://api.example.com', /begins with ftp:\/\/, and the transport http takes http:\/\/ or https:\/\//],
      ['http://0.0.0.0', /no machine or for this one/],
      ['nonsense', /cannot be read/],
    ] as const)
      t.match(await judged(bad, null), words, bad);
  });

  t.test('of what a sidecar hosts are its own machine and network, never the credentials of the machine', async (t) => {
    for (const good of ['http://127.0.0.1:8080', 'http://localhost:8080', 'http://10.0.0.5:80', 'http://agent.local:80'])
      t.equal(await judged(good, 's1'), null, good);
    t.match(await judged('http://169.254.169.254', 's1'), /credentials/);
    t.match(await judged('http://meta.example.com', 's1'), /credentials/);
  });

  t.test('never lead to a port of Agent-Reach itself, however it is spelt', async (t) => {
    for (const own of [
      'http://127.0.0.1:7800',
      'http://2130706433:7800/x',
      'http://localhost:7701',
      'http://127.8.8.8:7701',
      'http://10.9.0.1',
      'http://10.9.0.1:80',
    ])
      t.match(await judged(own, 's1'), /is a port of Agent-Reach itself/, own);
    t.match(await judged('http://plane.example.com:7800', null), /is a port of Agent-Reach itself/);
    t.equal(await judged('http://127.0.0.1:7802', 's1'), null);
    t.equal(ownPort('nonsense'), null);
  });

  t.test('of other transports: their scheme, or at least their host', async (t) => {
    t.equal(await judged('grpc://api.example.com:443', null, 'grpc'), null);
    t.match(await judged('grpc://127.0.0.1:443', null, 'grpc'), /loopback/);
    t.match(await judged('nats://0x7f.1:4222', null, 'nats'), /127\.0\.0\.1 is a loopback/);
    for (const [type, good] of [
      ['nats', 'a.example.com:4222, nats://b.example.com'],
      ['grpc', 'orders.example.com:50051'],
      ['grpc', 'dns:///orders.example.com:50051'],
    ] as const)
      t.equal(await judged(good, null, type), null, good);
    for (const [type, bad] of [
      ['nats', '10.0.0.1:4222'],
      ['nats', 'nats://a.example.com, 10.0.0.1'],
      ['nats', 'tls://10.0.0.1'],
      ['grpc', '10.0.0.1:50051'],
      ['grpc', 'dns:///10.0.0.1:50051'],
    ] as const)
      t.match(await judged(bad, null, type), /10\.0\.0\.1 is a private address/, bad);
    t.match(await judged('dns://10.0.0.1/orders.example.com:50051', null, 'grpc'), /begins with dns:/);
    t.match(await judged('nats://10.9.0.1:80', null, 'nats'), /is a port of Agent-Reach itself/);
    t.equal(await judged('', null, 'mock'), null);
  });
});
