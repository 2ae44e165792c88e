import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { isQuiet } from '../../../../control-plane/registry/change.ts';
import { type PolicyOutcome, Registry } from '../../../../control-plane/registry/registry.ts';
import { shareOf } from '../../../../proto/language/share.ts';
import type { CapabilityState, Report } from '../../../../proto/wire/registry.ts';
import { agent, arrive, contract, fresh, hello, record, Store } from '../../../support/registrations.ts';

const AUTHOR = { author: 'op' };

function team(): { clock: VirtualClock; registry: Registry } {
  const clock = new VirtualClock();
  const registry = fresh(clock);
  arrive(
    registry,
    hello(
      's1',
      [agent('crm.order.a1', ['crm.order.query@2.0.0']), agent('crm.order.b1', ['crm.order.query@2.1.0', 'crm.order.cached@1.0.0'])],
      { callers: ['web.front.f1'] },
    ),
  );
  return { clock, registry };
}

const places = (outcome: PolicyOutcome) => outcome.problems.map((each) => `${each.line}:${each.column} ${each.message}`);
const cautions = (outcome: PolicyOutcome) => outcome.warnings.map((each) => `${each.line}:${each.column} ${each.message}`);
const state = (registry: Registry, name = 'crm.order.query') => registry.capabilityStates(name)[0] as CapabilityState;

t.test('a document', async (t) => {
  t.test('is judged as a whole, each problem with its line and column, and changes nothing when there is one', async (t) => {
    const { registry } = team();
    registry.applyPolicies('policies: [{ capability: crm.order.query, timeout: 3s }]', AUTHOR);
    const before = JSON.stringify([state(registry), registry.operators()]);
    const outcome = registry.applyPolicies(
      `policies:
  - capability: crm.order.query
    timout: 5s
  - capability: crm.Order
  - capability: crm.*
  - capability: nlp.*
    retry: { max: 9 }
  - capability: crm.*
contracts:
  - name: crm.refund.apply
    version: 2.0
providers: []
rulez: []
`,
      AUTHOR,
    );
    t.notOk(outcome.ok);
    t.same(
      places(outcome).map((each) => each.split(' ')[0]),
      ['3:5', '4:17', '7:19', '8:17', '10:5', '11:14', '12:1', '13:1'],
    );
    const text = places(outcome).join('\n');
    for (const part of [
      'did you mean timeout?',
      'is not a pattern of capabilities',
      'whole number from 0 to 2',
      'there is a policy for crm.* already (line 5)',
      'acl is missing',
      'quote it: "2.0.0"',
      'providers register themselves',
      'unknown key "rulez": did you mean rules?',
    ])
      t.match(text, part);
    t.ok(isQuiet(outcome.change));
    t.equal(outcome.entry, null);
    t.equal(JSON.stringify([state(registry), registry.operators()]), before);
  });

  t.test('that is empty, no map, no text or too large is refused', async (t) => {
    const { registry } = team();
    for (const [text, part] of [
      ['', 'the file is empty'],
      ['- a', 'is a map with policies, rules and contracts, not a list'],
      ['policies: [', '1:'],
      ['sidecar: { name: x }', "this is a sidecar's own file"],
      [`policies: []\n# ${'x'.repeat(600_000)}`, 'is larger than 524288 bytes'],
    ] as const)
      t.match(places(registry.applyPolicies(text, AUTHOR)).join('\n'), part);
  });

  t.test('costs little to judge, whatever it says: every viewer may ask for that', async (t) => {
    const registry = fresh(new VirtualClock());
    const many = (count: number, line: (i: number) => string): string => Array.from({ length: count }, (_, i) => line(i)).join('');
    const chain = (i: number): string =>
      `  - {name: crm.c${i}.do, version: 1.0.0, input: {type: object}, output: {type: object}, acl: public, fallback: [{capability: crm.c${i + 1}.do}]}\n`;
    t.ok(registry.applyPolicies(`contracts:\n${many(1_000, chain)}`, AUTHOR).ok);
    const begun = process.cpuUsage();
    // Each unknown name is held against every known one, and each chain leads on to all that come after it.
    const unknown = registry.previewPolicies(
      `policies:\n${many(4_000, (i) => `  - {capability: crm.cc${i}.do, fallback: [{capability: crm.d${i}.do}]}\n`)}contracts:\n${many(800, chain)}`,
    );
    t.ok(unknown.ok);
    t.equal(unknown.warnings.length, 50);
    const circle = registry.previewPolicies(
      `policies: [{capability: crm.c700.do, fallback: [{capability: crm.c7.do}]}]\ncontracts:\n${many(800, chain)}`,
    );
    t.match(places(circle), [/^1:48 the fallback comes back to where it began: crm\.c7\.do@1\.0\.0 > crm\.c8\.do@1\.0\.0 > /]);
    t.match(places(registry.previewPolicies(`policies:\n${'  - [[[[1]],[[1]],[[1]]]]\n'.repeat(20_000)}`)), [
      /more than 262144 words, marks and gaps/,
    ]);
    t.match(places(registry.previewPolicies(`policies:\n${'  - [[[[1]],[[1]],[[1]]]]\n'.repeat(60_000)}`)), [
      /is larger than 524288 bytes/,
    ]);
    t.match(places(registry.previewPolicies(`policies:\n${'  - }\n'.repeat(40_000)}`)), { length: 50 });
    // What this process has worked, however busy the machine is: about two seconds.
    const { user, system } = process.cpuUsage(begun);
    const workedMs = Math.round((user + system) / 1_000);
    t.ok(workedMs < 15_000, `${workedMs} ms`);
  });

  t.test('may name what is not there yet: a warning with the place, and it is applied', async (t) => {
    const { registry } = team();
    const outcome = registry.applyPolicies(
      `policies:
  - capability: crm.ordr.query
  - capability: crm.order.query
    default_range: ^3
    canary: { "2.2.0": 5% }
    fallback: [{ capability: crm.order.nowhere }, { provider: crm.order.zz }]
    providers: { crm.order.a2: { weight: 2 } }
`,
      AUTHOR,
    );
    t.ok(outcome.ok);
    const text = cautions(outcome).join('\n');
    for (const part of [
      '2:17 no contract is called "crm.ordr.query"; did you mean crm.order.query?',
      '4:20 crm.order.query has no version that meets "^3"',
      '5:15 crm.order.query has no version 2.2.0',
      '6:30 no contract is called "crm.order.nowhere"',
      '6:63 no provider is called "crm.order.zz"',
      '7:18 no provider is called "crm.order.a2"; did you mean crm.order.a1?',
    ])
      t.match(text, part);
    t.equal(outcome.warnings.length, 6);
    arrive(
      registry,
      hello('s2', [
        {
          contracts: [contract('crm.refund.apply', '1.0.0', 'aliases: [crm.refunds.give]')],
          record: record('crm.refund.r1', ['crm.refund.apply@1.0.0'], 's2'),
        },
      ]),
    );
    t.same(cautions(registry.previewPolicies('policies: [{ capability: crm.refunds.give }]')), [
      '1:26 crm.refunds.give is an alias: write crm.refund.apply',
    ]);
    t.match(cautions(registry.previewPolicies('policies: [{ capability: crm.refund.apply, fallback: [{ provider: crm.order.a1 }] }]')), [
      /crm\.order\.a1 does not offer "crm\.refund\.apply"/,
    ]);
    t.same(
      cautions(
        registry.previewPolicies(
          'policies: [{ capability: crm.order.query, fallback: [{ capability: crm.refunds.give }, { provider: crm.order.a1 }], default_range: ^2 }]',
        ),
      ),
      [],
    );
  });

  t.test('sends no fallback in a circle, also not with the help of what agents registered', async (t) => {
    const { registry } = team();
    const outcome = registry.applyPolicies(
      'policies:\n  - capability: crm.order.cached\n    fallback: [{ capability: "crm.order.query@^2" }]\n  - capability: crm.order.query\n    fallback: [{ capability: crm.order.cached }]\n',
      AUTHOR,
    );
    t.equal(outcome.problems.length, 1);
    t.match(
      places(outcome)[0],
      /^3:15 the fallback comes back to where it began: crm\.order\.query@2\.0\.0 > crm\.order\.cached@1\.0\.0 > crm\.order\.query@2\.0\.0/,
    );
  });

  t.test('lays down contracts: another ACL for a registered version, but not another input', async (t) => {
    const { registry } = team();
    const good = registry.applyPolicies('contracts: [{ name: crm.order.query, version: 2.0.0, acl: [team:ops], timeout: 4s }]', AUTHOR);
    t.same(places(good), []);
    t.match(state(registry).contracts[0], { version: '2.0.0', timeoutMs: 4_000, acl: { isPublic: false } });
    t.match(registry.capabilities().find((each) => each.capability === 'crm.order.query')?.versions, [
      { source: 'agents' },
      { source: 'operator', acl: ['team:ops'] },
    ]);
    t.ok(
      isQuiet(
        arrive(
          registry,
          hello(
            's1',
            [agent('crm.order.a1', ['crm.order.query@2.0.0']), agent('crm.order.b1', ['crm.order.query@2.1.0', 'crm.order.cached@1.0.0'])],
            { callers: ['web.front.f1'] },
          ),
        ),
      ),
      'the agents go on with theirs',
    );
    const bad = registry.applyPolicies(
      'contracts:\n  - name: crm.order.query\n    version: 2.0.0\n    acl: public\n    input: { type: object }\n    streaming: true\n',
      AUTHOR,
    );
    t.match(places(bad)[0], /^3:14 agents have registered crm\.order\.query@2\.0\.0 with other content \(input, streaming\)/);
    const breaking = registry.applyPolicies(
      'contracts: [{ name: crm.order.query, version: 2.2.0, acl: public, input: { type: object, required: [id] } }]',
      AUTHOR,
    );
    t.match(places(breaking)[0], /breaks 2\.0\.0 of the same major: input/);
    const clash = registry.applyPolicies(
      'contracts: [{ name: crm.refund.apply, version: 1.0.0, acl: public, aliases: [crm.order.query] }]',
      AUTHOR,
    );
    t.match(places(clash)[0], /the alias crm\.order\.query is the name of another capability/);
    arrive(
      registry,
      hello('s2', [
        {
          contracts: [contract('crm.refund.apply', '1.0.0', 'aliases: [refund, crm.refunds.give]')],
          record: record('crm.refund.r1', ['crm.refund.apply@1.0.0'], 's2'),
        },
      ]),
    );
    const lay = (name: string, aliases: string) =>
      places(registry.applyPolicies(`contracts: [{ name: ${name}, version: 3.0.0, acl: public, aliases: [${aliases}] }]`, AUTHOR)).join();
    t.match(lay('crm.order.list', 'refund'), /the alias refund belongs to crm\.refund\.apply already/);
    t.match(lay('crm.refunds.give', 'x'), /the name crm\.refunds\.give is an alias of crm\.refund\.apply/);
    t.equal(lay('crm.refund.apply', 'refund, free'), '');
    const circle = registry.applyPolicies(
      'contracts:\n  - { name: a.b.c, version: 1.0.0, acl: public }\n  - name: crm.order.cached\n    version: 1.0.0\n    acl: public\n    fallback: [{ capability: crm.order.cached }]\n',
      AUTHOR,
    );
    t.match(places(circle), [/^6:15 the fallback comes back to where it began: crm\.order\.cached@1\.0\.0 > crm\.order\.cached@1\.0\.0/]);
  });

  t.test('an agent may rely on a contract that operators lay down, and must not contradict it', async (t) => {
    const { registry } = team();
    registry.applyPolicies('contracts: [{ name: crm.refund.apply, version: 1.0.0, acl: public, input: { type: object } }]', AUTHOR);
    const offer = (contracts: ReturnType<typeof contract>[]) =>
      registry.register({
        wire: 1,
        sidecar: 's1',
        instance: 'i1',
        agent: { contracts, record: record('crm.refund.r1', ['crm.refund.apply@1.0.0']) },
      });
    t.match(
      offer([contract('crm.refund.apply', '1.0.0')]).refused[0]?.problems.join(),
      /is laid down by the operators with other content \(input\)/,
    );
    t.same(offer([]).refused, []);
    t.equal(state(registry, 'crm.refund.apply').providers.length, 1);
    const lost = registry.applyPolicies('policies: []', AUTHOR);
    t.match(
      cautions(lost)[0],
      /crm\.refund\.apply@1\.0\.0 is offered by agents that did not register its contract, and it is no longer laid down/,
    );
    t.same(state(registry, 'crm.refund.apply').contracts, []);
  });
});

t.test('applying', async (t) => {
  t.test('reaches the capabilities that it says something about, and only those', async (t) => {
    const { registry } = team();
    t.same(registry.applyPolicies('policies: [{ capability: crm.order.cached, timeout: 3s }]', AUTHOR).change.capabilities, [
      'crm.order.cached',
    ]);
    t.same(
      registry.applyPolicies('policies: [{ capability: crm.order.cached, timeout: 3s }, { capability: crm.order.*, load: random }]', AUTHOR)
        .change.capabilities.length,
      2,
    );
    t.same(
      state(registry, 'crm.order.cached').policies.map((each) => each.capability),
      ['crm.order.*', 'crm.order.cached'],
    );
    t.equal(state(registry).policiesVersion, 2);
    registry.applyPolicies('policies: [{ capability: crm.order.cached, timeout: 4s }, { capability: crm.order.*, load: random }]', AUTHOR);
    t.same([state(registry).policiesVersion, state(registry, 'crm.order.cached').policiesVersion], [2, 3]);
    registry.applyPolicies('policies: [{ capability: crm.order.cached, timeout: 4s }]', AUTHOR);
    t.equal(state(registry).policiesVersion, 4, 'what went away has changed too');
  });

  t.test('gives versions, says what differs, and the same text again changes nothing', async (t) => {
    const { registry } = team();
    const first = 'policies:\n  - capability: crm.order.query\n    timeout: 3s\n    canary: { "2.1.0": 5% }\n';
    t.match(registry.applyPolicies(first, { author: 'ann', note: 'first' }).entry, {
      version: 1,
      author: 'ann',
      note: 'first',
      text: first,
      atMs: 1_700_000_000_000,
    });
    const again = registry.applyPolicies(first, AUTHOR);
    t.same([again.ok, again.entry, isQuiet(again.change)], [true, null, true]);
    const second =
      'policies:\n  - capability: crm.order.query\n    timeout: 90s\n    canary: { "2.1.0": 20% }\n    panic: false\n    fallback: none\n  - capability: crm.*\n    retry: { max: 1, min_remaining: 10% }\n';
    const preview = registry.previewPolicies(second);
    t.same(preview.diff.lines, [
      '+ policy crm.*',
      '    retry.max: 1',
      '    retry.min_remaining: 10%',
      '~ policy crm.order.query',
      '    canary.2.1.0: 5% -> 20%',
      '    panic: (not said) -> false',
      '    timeout: 3s -> 90s',
      '    fallback: (not said) -> none',
    ]);
    t.ok(isQuiet(preview.change));
    t.equal(registry.operators().policies.active?.version, 1, 'a preview changes nothing');
    const less = registry.previewPolicies(
      'policies:\n  - capability: crm.order.query\n    fallback: [{ static: { a: 1 } }]\n    providers: { crm.order.a1: { weight: 2 } }\ncontracts: [{ name: crm.order.new, version: 1.0.0, acl: [team:crm], affinity: { from: /id } }]\n',
    );
    t.same(less.diff.lines, [
      '~ policy crm.order.query',
      '    canary.2.1.0: 5% -> (not said)',
      '    timeout: 3s -> (not said)',
      '    fallback: (not said) -> [{"static":{"a":1}}]',
      '    providers.crm.order.a1.weight: (not said) -> 2',
      '+ contract crm.order.new@1.0.0',
      '    execution: once',
      '    affinity: {"required":false,"from":{"pointer":"/id"},"mode":"soft"}',
      '    acl: ["team:crm"]',
    ]);
    const gone = registry.previewPolicies('policies: []');
    t.same(gone.diff.lines, ['- policy crm.order.query', '    canary.2.1.0: 5%', '    timeout: 3s']);
    const comment = registry.applyPolicies(`# a comment\n${first}`, AUTHOR);
    t.same(
      [comment.entry?.version, comment.diff.entries, comment.change.capabilities, comment.change.operators],
      [2, [], [], ['policies']],
    );
  });

  t.test('an old version comes back as a new one', async (t) => {
    const { registry } = team();
    const first = registry.applyPolicies('policies: [{ capability: crm.*, timeout: 3s }]', AUTHOR).entry;
    registry.applyPolicies('policies: [{ capability: crm.*, timeout: 9s }]', AUTHOR);
    const back = registry.rollback(first as NonNullable<typeof first>, 'ann');
    t.match(back.entry, { version: 3, author: 'ann', note: 'rollback to version 1', text: first?.text });
    t.equal(state(registry).policies[0]?.timeoutMs, 3_000);
    t.same(back.diff.lines, ['~ policy crm.*', '    timeout: 9s -> 3s']);
  });

  t.test('survives a restart, and a stored document that cannot be read keeps a replica from leading', async (t) => {
    const { clock, registry } = team();
    const store = new Store();
    store.write(registry.everything(), registry);
    for (const change of [
      registry.applyPolicies('policies: [{ capability: crm.*, timeout: 3s }]', AUTHOR).change,
      registry.shiftCanary('crm.order.query', { '2.1.0': 0.2 }).change,
      registry.setProvider('crm.order.a1', { weight: 5 }).change,
      registry.applyPolicies('policies: [{ capability: crm.*, timeout: 4s }]', { ...AUTHOR, share: 0.5 }).change,
    ])
      store.write(change, registry);
    const next = new Registry(clock);
    t.same(next.load('e1', store.registrations(), store.operators()), []);
    t.same(next.capabilityStates('crm.order.query'), registry.capabilityStates('crm.order.query'));
    t.match(state(next), { staged: { version: 2, share: 0.5 } });
    const operators = store.operators();
    const torn = {
      ...operators,
      policies: {
        ...operators.policies,
        active: { ...(operators.policies.active as never as object), text: 'policies: [{ capability: crm.*, later: 1 }]' } as never,
      },
    };
    t.match(new Registry(clock).load('e1', [], torn), [
      /version 1 of the operators' document, which is in force, cannot be read: unknown key "later"/,
    ]);
  });
});

t.test('a canary shift', async (t) => {
  t.test('is stronger than the document until that speaks anew', async (t) => {
    const { registry } = team();
    registry.applyPolicies('policies: [{ capability: crm.order.query, timeout: 3s, canary: { "2.1.0": 5% } }]', AUTHOR);
    t.same(registry.shiftCanary('crm.order.query', { '2.1.0': 0.5 }).change.capabilities, ['crm.order.query']);
    t.same(
      state(registry).policies.map((each) => [each.canary, each.timeoutMs]),
      [[{ '2.1.0': 0.5 }, 3_000]],
    );
    t.ok(isQuiet(registry.shiftCanary('crm.order.query', { '2.1.0': 0.5 }).change));
    registry.applyPolicies('policies: [{ capability: crm.order.query, timeout: 4s, canary: { "2.1.0": 5% } }]', AUTHOR);
    t.same(state(registry).policies[0]?.canary, { '2.1.0': 0.5 }, 'the document says what it said before');
    const spoken = registry.applyPolicies('policies: [{ capability: crm.order.query, timeout: 4s, canary: { "2.1.0": 100% } }]', AUTHOR);
    t.same([...spoken.change.operators].sort(), ['canary', 'policies']);
    t.same(state(registry).policies[0]?.canary, { '2.1.0': 1 });
    registry.shiftCanary('crm.order.query', { '2.1.0': 0 });
    registry.shiftCanary('crm.order.query', null);
    t.same(state(registry).policies[0]?.canary, { '2.1.0': 1 });
  });

  t.test('needs no policy, and names versions that exist', async (t) => {
    const { registry } = team();
    t.equal(registry.shiftCanary('crm.order.query', { '2.1.0': 0.1, '2.0.0': 0.9 }).problem, null);
    t.match(state(registry).policies, [{ capability: 'crm.order.query', canary: { '2.1.0': 0.1, '2.0.0': 0.9 }, timeoutMs: null }]);
    for (const [name, shares, part] of [
      ['crm.order.query', { '2.2.0': 0.1 }, /has no version 2\.2\.0; it has 2\.0\.0, 2\.1\.0/],
      ['crm.order.query', { '2.0.0': 0.6, '2.1.0': 0.6 }, /add up to 120%/],
      ['crm.order.query', { '2.0.0': 1.5 }, /write 0 to 1/],
      ['crm.order.query', { '2.0.0': Number.NaN }, /write 0 to 1/],
      ['crm.order.query', {}, /at least one version/],
      ['crm.order.qery', { '2.0.0': 1 }, /did you mean crm\.order\.query\?/],
    ] as const)
      t.match(registry.shiftCanary(name, shares).problem, part);
  });
});

t.test('a staged roll-out', async (t) => {
  const report = (sidecar: string, policies: Report['policies'], refused: Report['refused'] = []): Report => ({
    wire: 1,
    sidecar,
    instance: 'i1',
    version: '0',
    epoch: 'e1',
    appliedSeq: 1,
    tableVersion: 1,
    capabilities: 1,
    providers: 1,
    staleBecause: '',
    refused,
    policies,
  });
  const text = 'policies: [{ capability: crm.order.query, timeout: 9s }]';
  /** Twenty sidecars that call, of which about half are in the share. */
  const rolling = () => {
    const { clock, registry } = team();
    for (let i = 0; i < 20; i++) arrive(registry, hello(`web${i}`, [], { callers: ['web.front.f1'] }));
    registry.applyPolicies('policies: [{ capability: crm.order.query, timeout: 3s }]', AUTHOR);
    const outcome = registry.applyPolicies(text, { ...AUTHOR, share: 0.5, lastSeq: 100 });
    const inShare = registry.sidecarNames().filter((name) => shareOf(name) < 0.5);
    return { clock, registry, outcome, inShare };
  };

  t.test('is pushed beside what is in force, to the capabilities that it concerns, and is promoted when its share uses it', async (t) => {
    const { registry, outcome, inShare } = rolling();
    t.match(outcome, { ok: true, entry: { version: 2 } });
    t.same(outcome.change.capabilities, ['crm.order.query']);
    t.match(state(registry), {
      policies: [{ timeoutMs: 3_000 }],
      policiesVersion: 1,
      staged: { version: 2, share: 0.5, policies: [{ timeoutMs: 9_000 }] },
    });
    t.equal(state(registry, 'crm.order.cached').staged, null);
    t.same(registry.rollout()?.expected, inShare);
    t.ok(inShare.length > 4 && inShare.length < 17);
    t.match(registry.promote().problem, /is not in force yet on \d+ of the sidecars/);
    t.match(registry.applyPolicies('policies: []', AUTHOR).problems, [
      { message: /version 2 is being rolled out by op: promote or abort it first/ },
    ]);
    for (const sidecar of inShare) registry.report(report(sidecar, { version: 2, staged: true }));
    t.same([registry.rollout()?.inForce, registry.rollout()?.missing], [inShare, []]);
    t.same(registry.promote().change.capabilities, ['crm.order.query']);
    t.match(state(registry), { policies: [{ timeoutMs: 9_000 }], policiesVersion: 2, staged: null });
    t.equal(registry.rollout(), null);
    t.match(registry.operators().policies, { last: 2, active: { version: 2, text }, staged: null });
  });

  t.test('stops at the first refusal of a later message, and is pushed to nobody any more', async (t) => {
    const { registry, inShare } = rolling();
    const [first = ''] = inShare;
    const old = registry.report(report(first, { version: 1, staged: false }, [{ tail: 'cap.crm.order.query', seq: 100, why: 'old' }]));
    t.ok(isQuiet(old), 'refused before it began');
    const change = registry.report(
      report(first, { version: 1, staged: false }, [{ tail: 'cap.crm.order.query', seq: 101, why: 'no such load mode' }]),
    );
    t.same([change.capabilities, change.operators], [['crm.order.query'], ['policies']]);
    t.match(change.events, [{ kind: 'rollout-halted', words: /refused cap\.crm\.order\.query: no such load mode/ }]);
    t.equal(state(registry).staged, null);
    t.match(registry.rollout(), { version: 2, halted: /no such load mode/ });
    t.match(registry.promote({ force: true }).problem, /was halted/);
    t.match(registry.widen(0.9).problem, /was halted/);
    t.equal(registry.abort().problem, null);
    t.equal(registry.rollout(), null);
    t.equal(registry.applyPolicies('policies: []', AUTHOR).entry?.version, 3, 'a version is never given twice');
  });

  t.test('a halted one makes room for the next document', async (t) => {
    const { registry, inShare } = rolling();
    registry.report(report(inShare[0] as string, { version: 1, staged: false }, [{ tail: 'cap.crm.order.query', seq: 101, why: 'no' }]));
    t.equal(registry.applyPolicies('policies: [{ capability: crm.order.query, timeout: 8s }]', AUTHOR).entry?.version, 3);
    t.equal(registry.rollout(), null);
  });

  t.test('stops when too few of its share say that they use it, and not when one restarts', async (t) => {
    for (const [missing, isHalted] of [
      [1, false],
      [5, true],
    ] as const) {
      const { clock, registry, inShare } = rolling();
      for (const sidecar of inShare.slice(missing)) registry.report(report(sidecar, { version: 2, staged: true }));
      await clock.advance(29_000);
      registry.sweep();
      t.equal(registry.rollout()?.halted, '');
      await clock.advance(2_000);
      registry.sweep();
      t.equal(registry.rollout()?.halted !== '', isHalted, `${missing} of ${inShare.length} missing`);
      if (isHalted)
        t.match(
          registry.rollout()?.halted,
          new RegExp(`in force on ${inShare.length - missing} of ${inShare.length} sidecars of its share; missing: ${inShare[0]}`),
        );
    }
  });

  t.test('is widened and aborted', async (t) => {
    const { registry, inShare } = rolling();
    t.match(registry.widen(0.4).problem, /a wider one is above that/);
    t.same(registry.widen(0.9).change.capabilities, ['crm.order.query']);
    t.equal(state(registry).staged?.share, 0.9);
    const wider = registry.rollout()?.expected ?? [];
    t.ok(wider.length > inShare.length && inShare.every((sidecar) => wider.includes(sidecar)), 'who had it keeps it');
    t.same(registry.abort().change.capabilities, ['crm.order.query']);
    t.equal(state(registry).staged, null);
    t.match(registry.abort().problem, /no roll-out runs/);
    t.match(registry.promote().problem, /no roll-out runs/);
  });

  t.test('waits only for sidecars that it concerns and that are up, and says so when there is none', async (t) => {
    const { clock, registry } = rolling();
    arrive(registry, hello('aside', [], { callers: [] }));
    t.notOk(registry.rollout()?.expected.includes('aside'));
    await clock.advance(140_000);
    t.same(registry.rollout()?.expected, []);
    registry.abort();
    t.match(
      cautions(registry.applyPolicies(text, { ...AUTHOR, share: 0.5 }))[0],
      /no sidecar that is up and that this concerns is in the share of 0\.5/,
    );
    t.match(registry.applyPolicies('policies: []', { ...AUTHOR, share: 1.5 }).problems[0]?.message, /the share 1\.5 is not above 0/);
  });

  t.test('goes on under a new leader', async (t) => {
    const { clock, registry, inShare } = rolling();
    const store = new Store();
    store.write(registry.everything(), registry);
    const next = new Registry(clock);
    next.load('e1', store.registrations(), { ...registry.operators() });
    t.same(next.rollout()?.missing, inShare, 'everybody is asked anew');
    for (const sidecar of inShare) next.report(report(sidecar, { version: 2, staged: true }));
    t.equal(next.promote().problem, null);
  });
});

t.test('the share of a sidecar is its own, the same everywhere, and spread evenly', async (t) => {
  const shares = Array.from({ length: 10_000 }, (_, i) => shareOf(`sidecar-${i}`));
  t.equal(shareOf('sidecar-7'), shares[7]);
  t.ok(shares.every((share) => share >= 0 && share < 1));
  for (const share of [0.05, 0.5, 0.9]) t.ok(Math.abs(shares.filter((each) => each < share).length / 10_000 - share) < 0.02);
});
