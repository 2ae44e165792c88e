/** Rules for messages at the control plane: in the document, what is pushed, roll-outs, how often they decide, dry runs. */
import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import { rulesMessages } from '../../../../control-plane/push/derive-writes.ts';
import type { Registry } from '../../../../control-plane/registry/registry.ts';
import { readReport } from '../../../../control-plane/registry/requests.ts';
import { RuleHits } from '../../../../control-plane/rules/hits.ts';
import { readRecorded, readRecording } from '../../../../control-plane/rules/recorded.ts';
import { tryRules } from '../../../../control-plane/rules/trial.ts';
import { shareOf } from '../../../../proto/language/share.ts';
import type { Report, RulesReport } from '../../../../proto/wire/registry.ts';
import { Tail } from '../../../../proto/wire/subjects.ts';
import { agent, arrive, fresh, hello } from '../../../support/registrations.ts';

const AUTHOR = { author: 'op' };
const ONE = 'rules:\n  - { name: one, when: { target_role: order } }\n';
const TWO = `${ONE}  - { name: two, when: { source_role: front }, action: { priority: high }, fallback: { if_no_available_agent: fail } }\n`;

function team(): { clock: VirtualClock; registry: Registry } {
  const clock = new VirtualClock();
  const registry = fresh(clock);
  arrive(registry, hello('s1', [agent('crm.order.a1', ['crm.order.query@2.0.0'])], { callers: ['web.front.f1'] }));
  return { clock, registry };
}

const report = (sidecar: string, rules: Partial<RulesReport> | null, more: Partial<Report> = {}): Report => ({
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
  refused: [],
  policies: { version: 0, staged: false },
  ...(rules === null ? {} : { rules: { version: 1, staged: false, seq: 1, forMs: 1_000, messages: 0, hits: {}, ...rules } }),
  ...more,
});

t.test('rules in the document', async (t) => {
  t.test('are pushed as they are read, under the version in which they last changed', async (t) => {
    const { registry } = team();
    t.same(
      rulesMessages(registry, () => null),
      [],
      'there were never any',
    );
    t.equal(registry.applyPolicies(ONE, AUTHOR).ok, true);
    t.match(registry.rules(), { version: 1, rules: [{ name: 'one', when: { targetRole: 'order' } }], staged: null });
    const [first] = rulesMessages(registry, () => null);
    t.equal(first?.tail, Tail.rules);
    t.same(
      rulesMessages(registry, () => first?.text ?? null),
      [],
      'the same again is not written',
    );
    registry.applyPolicies(`${ONE}policies: [{ capability: crm.*, timeout: 3s }]`, AUTHOR);
    t.match(registry.rules(), { version: 1 }, 'policies are no rules');
    t.same(registry.applyPolicies(`# in other words\n${ONE}policies: [{ capability: crm.*, timeout: 3s }]`, AUTHOR).diff.lines, []);
    registry.applyPolicies(TWO, AUTHOR);
    t.match(registry.rules(), { version: 4, rules: [{ name: 'one' }, { name: 'two' }] });
    registry.applyPolicies('policies: []', AUTHOR);
    t.match(registry.rules(), { version: 5, rules: [], staged: null });
    t.match(
      rulesMessages(registry, () => first?.text ?? null),
      [{ tail: Tail.rules }],
      'that there are none any more is said',
    );
  });

  t.test('a bad one changes nothing, and is named with its place', async (t) => {
    const { registry } = team();
    registry.applyPolicies(ONE, AUTHOR);
    const before = JSON.stringify(registry.rules());
    const outcome = registry.applyPolicies(`${TWO}  - { name: two }\n  - { name: x, when: { sorce_role: front } }\n`, AUTHOR);
    t.match(
      outcome.problems.map(({ line, column, message }) => `${line}:${column} ${message}`),
      [/^4:13 there is a rule two already \(line 3\)/, /^5:24 .*did you mean source_role\?/],
    );
    t.equal(JSON.stringify(registry.rules()), before);
  });

  t.test('differ field by field, and by their order', async (t) => {
    const { registry } = team();
    registry.applyPolicies(TWO, AUTHOR);
    const outcome = registry.previewPolicies(`rules:
  - { name: two, when: { source_role: front, tags: { tier: gold } }, action: { dispatch: sticky, sticky_by: source }, fallback: { if_no_available_agent: { capability: crm.order.query } } }
  - { name: one, when: { target_role: order } }
  - { name: three, when: { message_type: task_result } }
`);
    t.same(outcome.diff.lines, [
      '+ rule three',
      '    when.message_type: task_result',
      '    dispatch: random',
      '~ rule two',
      '    when.tags.tier: (not said) -> gold',
      '    dispatch: random -> sticky',
      '    sticky_by: (not said) -> source',
      '    priority: high -> (not said)',
      '    fallback: {"if_no_available_agent":"fail"} -> {"if_no_available_agent":{"capability":"crm.order.query"}}',
      '~ rules (order)',
      '    order: ["one","two"] -> ["two","one"]',
    ]);
    t.same(registry.previewPolicies(ONE).diff.lines.slice(0, 1), ['- rule two']);
  });

  t.test('are looked through with what is registered: warnings, with their places', async (t) => {
    const { registry } = team();
    const outcome = registry.applyPolicies(
      `rules:
  - { name: fine, when: { source_role: front, target_role: order, capability: crm.order.query } }
  - { name: later, when: { target_role: retriever } }
  - { name: laid, when: { capability: nlp.text.read } }
  - { name: onward, when: { source_role: order }, fallback: { if_no_available_agent: { capability: crm.order.qury } } }
contracts: [{ name: nlp.text.read, version: "1.0.0", acl: public }]
`,
      AUTHOR,
    );
    t.ok(outcome.ok);
    t.match(
      outcome.warnings.map(({ line, column, message }) => `${line}:${column} ${message}`),
      [/^3:13 rule later is unreachable: .*role or tag retriever/, /^5:86 .*did you mean crm\.order\.query/],
    );
  });

  t.test('come back with an old version, and survive a restart', async (t) => {
    const { clock, registry } = team();
    const first = registry.applyPolicies(ONE, AUTHOR).entry;
    registry.applyPolicies(TWO, AUTHOR);
    if (first === null) throw new Error('nothing was applied');
    registry.rollback(first, 'op');
    t.match(registry.rules(), { version: 3, rules: [{ name: 'one' }] });
    const next = fresh(clock);
    t.same(next.load('e1', [registry.registration('s1')], registry.operators()), []);
    t.same(next.rules(), registry.rules());
    const [stored] = rulesMessages(registry, () => null);
    t.same(
      rulesMessages(next, () => stored?.text ?? null),
      [],
      'a new leader writes nothing',
    );
  });
});

t.test('a roll-out of rules', async (t) => {
  const rolling = (text = TWO) => {
    const { clock, registry } = team();
    for (let i = 0; i < 20; i++) arrive(registry, hello(`web${i}`, [], { callers: ['web.front.f1'] }));
    registry.applyPolicies(ONE, AUTHOR);
    const outcome = registry.applyPolicies(text, { ...AUTHOR, share: 0.5, lastSeq: 100 });
    return { clock, registry, outcome, inShare: registry.sidecarNames().filter((name) => shareOf(name) < 0.5) };
  };

  t.test('stands beside those in force, concerns every sidecar of the share, and is promoted when they use it', async (t) => {
    const { registry, inShare, outcome } = rolling();
    t.ok(outcome.ok);
    t.same(outcome.change.capabilities, [], 'no capability is touched');
    t.match(registry.rules(), { version: 1, rules: [{ name: 'one' }], staged: { version: 2, share: 0.5, rules: [{}, { name: 'two' }] } });
    t.same(registry.rollout()?.missing, inShare);
    for (const sidecar of inShare)
      registry.report(report(sidecar, { version: 1, staged: false }, { policies: { version: 2, staged: true } }));
    t.same(registry.rollout()?.inForce, [], 'that of policies is another matter');
    for (const sidecar of inShare) registry.report(report(sidecar, { version: 2, staged: true }));
    t.same(registry.rollout()?.missing, []);
    t.same(registry.promote().change.operators, ['policies']);
    t.match(registry.rules(), { version: 2, rules: [{ name: 'one' }, { name: 'two' }], staged: null });
  });

  t.test('of rules and policies together waits for both', async (t) => {
    const { registry, inShare } = rolling(`${TWO}policies: [{ capability: crm.order.query, timeout: 9s }]`);
    for (const sidecar of inShare) registry.report(report(sidecar, { version: 2, staged: true }));
    t.same(registry.rollout()?.inForce, []);
    for (const sidecar of inShare)
      registry.report(report(sidecar, { version: 2, staged: true }, { policies: { version: 2, staged: true } }));
    t.same(registry.rollout()?.missing, []);
  });

  t.test('is taken back when it is stopped: by a refusal, by time, by a person', async (t) => {
    const refusal = rolling();
    const [first = ''] = refusal.inShare;
    refusal.registry.report(report(first, {}, { refused: [{ tail: Tail.rules, seq: 101, why: 'rule 1: no' }] }));
    t.match(refusal.registry.rollout()?.halted, /refused rules: rule 1: no/);
    t.equal(refusal.registry.rules().staged, null);
    const time = rolling();
    await time.clock.advance(31_000);
    t.same(time.registry.sweep().operators, ['policies']);
    t.match(time.registry.rollout()?.halted, /in force on 0 of/);
    t.equal(time.registry.rules().staged, null);
    const person = rolling();
    person.registry.widen(0.8);
    t.equal(person.registry.rules().staged?.share, 0.8);
    person.registry.abort();
    t.match(person.registry.rules(), { version: 1, staged: null });
  });
});

t.test('hits', async (t) => {
  t.test('are summed over sidecars that use the rules, and a restarted one loses none', async (t) => {
    const hits = new RuleHits();
    hits.take(report('a', { messages: 10, hits: { one: 4 }, forMs: 5_000 }));
    hits.take(report('b', { messages: 5, hits: { one: 1, two: 2 } }));
    hits.take(report('c', { version: 2, staged: true, messages: 7, hits: { one: 7 } }));
    hits.take(report('d', null));
    const flat = (version: number) => {
      const { hits: byRule, ...rest } = hits.traffic(version);
      return { ...rest, ...Object.fromEntries(byRule) };
    };
    t.same(flat(1), { messages: 15, forMs: 5_000, sidecars: 2, one: 5, two: 2 });
    t.same(flat(2), { messages: 7, forMs: 1_000, sidecars: 1, one: 7 });
    hits.take(report('a', { messages: 12, hits: { one: 5 }, forMs: 6_000 }));
    hits.take(report('a', { messages: 1, hits: { two: 1 }, forMs: 100 }, { instance: 'i2' }));
    t.same(flat(1), { messages: 18, forMs: 6_000, sidecars: 2, one: 6, two: 3 });
    hits.forget('b');
    t.same(flat(1), { messages: 18, forMs: 6_000, sidecars: 1, one: 6, two: 3 });
    hits.take(report('a', { version: 3, messages: 0, hits: {}, forMs: 5 }, { instance: 'i2' }));
    t.same(flat(1), { messages: 18, forMs: 6_000, sidecars: 0, one: 6, two: 3 }, 'counted under the old rules');
    t.same(flat(3), { messages: 0, forMs: 5, sidecars: 1 });
  });

  t.test('that a sidecar reports are read with distrust', async (t) => {
    const read = (rules: unknown) => readReport(JSON.parse(JSON.stringify({ ...report('a', null), rules })))?.rules;
    t.equal(read(undefined), undefined);
    t.same(read({ version: 'x', staged: 1, seq: -1, forMs: null, messages: -5, hits: { one: 3, 'a b': 1, two: 'x' } }), {
      version: 0,
      staged: false,
      seq: 0,
      forMs: 0,
      messages: 0,
      hits: { one: 3, two: 0 },
    });
  });
});

t.test('a recording', async (t) => {
  t.test('holds heads, envelopes or messages as they are sent; of each only what rules ask for counts', async (t) => {
    const tags = { tier: 'gold' };
    t.same(readRecorded({ message_type: 'task_result', source_role: 'front', target_role: 'order', capability: null, tags, rule: 'x' }), {
      messageType: 'task_result',
      sourceRole: 'front',
      targetRole: 'order',
      capability: null,
      tags,
    });
    t.same(
      readRecorded({
        wire: 1,
        message_type: 'task_request',
        source: 'web.front.f1',
        target: { capability: null, role: 'order', agent: null },
        capability: 'agent.message.handle',
        tags: {},
      }),
      { messageType: 'task_request', sourceRole: 'front', targetRole: 'order', capability: null, tags: {} },
    );
    t.match(readRecorded({ target: 'crm.order.query@^2.0', custom_tags: tags }), {
      messageType: 'task_request',
      sourceRole: '',
      targetRole: null,
      capability: 'crm.order.query',
      tags,
    });
    t.match(readRecorded({ target_agent: 'crm.order.a1' }), { targetRole: 'order', capability: null });
    for (const [value, words] of [
      [7, /is an object/],
      [{}, /names nobody/],
      [{ target: 'crm.order.query@' }, /empty range/],
      [{ target_agent: 'x' }, /not an agent id/],
      [{ capability: 'a.b.c', tags: { n: 1 } }, /tags must be/],
    ] as const)
      t.match(readRecorded(value), words);
    t.equal(readRecording('{"capability":"a.b.c"}\n\n{"target_role":"r"}\n').length, 2);
    t.equal(readRecording('{"capability":"a.b.c"}\n{"capability":\n'), 'line 2 is not JSON');
    t.match(readRecording('\n{}\n'), /^line 2: it names nobody/);
  });

  t.test('shows what other rules would decide, and what they would not change', async (t) => {
    const { registry } = team();
    registry.applyPolicies(TWO, AUTHOR);
    const before = registry.rules().rules;
    registry.applyPolicies(
      `rules:
  - { name: two, when: { source_role: front }, action: { priority: low }, fallback: { if_no_available_agent: fail } }
  - { name: one, when: { target_role: order } }
  - { name: both, when: { source_role: front, target_role: order } }
`,
      AUTHOR,
    );
    const subject = (sourceRole: string, targetRole: string) => ({ messageType: 't', sourceRole, targetRole, capability: null, tags: {} });
    const messages = [
      subject('x', 'order'),
      subject('front', 'order'),
      subject('front', 'order'),
      subject('front', 'y'),
      subject('x', 'y'),
    ];
    t.same(tryRules(before, before, messages).changed, 0);
    t.same(tryRules(before, registry.rules().rules, messages), {
      messages: 5,
      changed: 3,
      rules: [
        { rule: 'two', before: 1, after: 1 },
        { rule: 'one', before: 3, after: 1 },
        { rule: 'both', before: 0, after: 2 },
        { rule: null, before: 1, after: 1 },
      ],
      changes: [
        {
          message: 'message_type t, source_role front, target_role order',
          count: 2,
          before: { rule: 'one', dispatch: 'random', priority: null, tried: ['one', 'two'], if_nobody: 'fail' },
          after: { rule: 'both', dispatch: 'random', priority: null, tried: ['both', 'two'], if_nobody: 'fail' },
        },
        {
          message: 'message_type t, source_role front, target_role y',
          count: 1,
          before: { rule: 'two', dispatch: 'random', priority: 'high', tried: ['two'], if_nobody: 'fail' },
          after: { rule: 'two', dispatch: 'random', priority: 'low', tried: ['two'], if_nobody: 'fail' },
        },
      ],
      left_out: 0,
    });
  });
});
