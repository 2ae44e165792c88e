/** proto/language/rule-reading.ts, rule-tree.ts, rule-lint.ts: rules as people write them, what they match, what is said of them. */
import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { readOperatorsDocument } from '../../../../control-plane/rules/document.ts';
import { BAD, openSource, Place } from '../../../../proto/language/reader.ts';
import type { Rule, RuleCondition, RuleSubject } from '../../../../proto/language/rule.ts';
import { covers, lintRules, MIN_MESSAGES, type RuleWorld } from '../../../../proto/language/rule-lint.ts';
import { MAX_RULES, rereadRules } from '../../../../proto/language/rule-reading.ts';
import { compareSpecificity, compileRules } from '../../../../proto/language/rule-tree.ts';
import { coversName } from '../../../../proto/language/covers.ts';

/** As it stands in SPEC section 10. */
const EXAMPLE = `rules:
  - name: route_to_retriever
    when: { message_type: task_request, target_role: retriever }
    action: { dispatch: random, priority: high }
  - name: route_to_aggregator             # parts of one sequence meet at one aggregator
    when: { message_type: task_result, source_role: retriever }
    action: { dispatch: sticky, sticky_by: sequence_id }
  - name: fallback_to_human_review        # same condition as the first: taken when the first finds nobody
    when: { message_type: task_request, target_role: retriever }
    action: { dispatch: random, priority: normal }
    fallback: { if_no_available_agent: notify_admin }
`;

function rulesOf(text: string): readonly Rule[] {
  const { document, problems } = readOperatorsDocument(text, 'rules.yaml', null);
  if (document === null) throw new Error(problems.map(({ line, column, message }) => `${line}:${column} ${message}`).join('\n'));
  return document.rules;
}

const problemsOf = (text: string): string[] =>
  readOperatorsDocument(text, 'rules.yaml', null).problems.map(({ line, column, message }) => `${line}:${column} ${message}`);

const message = (parts: Partial<RuleSubject>): RuleSubject => ({
  messageType: 'task_request',
  sourceRole: 'planner',
  targetRole: null,
  capability: null,
  tags: {},
  ...parts,
});

const named = (text: string, parts: Partial<RuleSubject>): string[] =>
  compileRules(rulesOf(text), 1)
    .match(message(parts))
    .map(({ name }) => name);

t.test('the example of the specification', async (t) => {
  t.test('is read as it is written', async (t) => {
    const nothing = { messageType: null, sourceRole: null, targetRole: null, capability: null, tags: {} };
    t.same(rulesOf(EXAMPLE), [
      {
        name: 'route_to_retriever',
        when: { ...nothing, messageType: 'task_request', targetRole: 'retriever' },
        dispatch: 'random',
        stickyBy: null,
        priority: 'high',
        fallback: null,
      },
      {
        name: 'route_to_aggregator',
        when: { ...nothing, messageType: 'task_result', sourceRole: 'retriever' },
        dispatch: 'sticky',
        stickyBy: 'sequence_id',
        priority: null,
        fallback: null,
      },
      {
        name: 'fallback_to_human_review',
        when: { ...nothing, messageType: 'task_request', targetRole: 'retriever' },
        dispatch: 'random',
        stickyBy: null,
        priority: 'normal',
        fallback: { kind: 'notify_admin' },
      },
    ]);
  });

  t.test('matches in its order: the second of two with one condition is what follows when nobody is there', async (t) => {
    t.same(named(EXAMPLE, { targetRole: 'retriever' }), ['route_to_retriever', 'fallback_to_human_review']);
    t.same(named(EXAMPLE, { messageType: 'task_result', sourceRole: 'retriever', targetRole: 'aggregator' }), ['route_to_aggregator']);
    t.same(named(EXAMPLE, { targetRole: 'aggregator' }), []);
    t.same(named(EXAMPLE, { messageType: 'task_result' }), []);
  });

  t.test('is found to be in order', async (t) => {
    t.same(lintRules(rulesOf(EXAMPLE), null, null), []);
  });
});

t.test('reading', async (t) => {
  t.test('takes every form of a fallback, custom_tags for tags, and leaves what is not said open', async (t) => {
    const [all, onward, text, bare] = rulesOf(`rules:
  - name: all
    when: { message_type: health_check, source_role: planner, target_role: gpu.large, capability: crm.order.*, custom_tags: { tier: gold } }
    action: { dispatch: sticky, sticky_by: tags.customer, priority: low }
    fallback: { if_no_available_agent: queue_task }
  - name: onward
    fallback: { if_no_available_agent: { capability: "crm.order.cached@^1.0" } }
  - name: text
    fallback: { if_no_available_agent: "capability: crm.order.cached" }
  - name: bare
`);
    t.match(all, {
      when: {
        messageType: 'health_check',
        sourceRole: 'planner',
        targetRole: 'gpu.large',
        capability: 'crm.order.*',
        tags: { tier: 'gold' },
      },
      dispatch: 'sticky',
      stickyBy: 'tags.customer',
      priority: 'low',
      fallback: { kind: 'queue_task' },
    });
    t.same(onward?.fallback, { kind: 'capability', target: 'crm.order.cached@^1.0' });
    t.same(text?.fallback, { kind: 'capability', target: 'crm.order.cached' });
    t.same(bare, {
      name: 'bare',
      when: { messageType: null, sourceRole: null, targetRole: null, capability: null, tags: {} },
      dispatch: 'random',
      stickyBy: null,
      priority: null,
      fallback: null,
    });
  });

  t.test('names every mistake with its line and column, and reads nothing when there is one', async (t) => {
    const cases: readonly (readonly [string, string, RegExp])[] = [
      ['{ when: {} }', '2:5', /name is missing/],
      ['{ name: "a b" }', '2:13', /is not a name/],
      ['{ name: a, wen: {} }', '2:16', /did you mean when\?/],
      ['{ name: a, when: { mesage_type: x } }', '2:24', /did you mean message_type\?/],
      ['{ name: a, when: { message_type: Task } }', '2:38', /is not a type of messages/],
      ['{ name: a, when: { message_type: "*" } }', '2:38', /leave the key out to mean any/],
      ['{ name: a, when: { source_role: "a b" } }', '2:37', /is not a role/],
      ['{ name: a, when: { capability: crm } }', '2:36', /is not a pattern of capabilities/],
      ['{ name: a, when: { tags: { t: "" } } }', '2:35', /is empty/],
      ['{ name: a, when: { tags: { t: x }, custom_tags: { u: x } } }', '2:40', /write one of the two/],
      ['{ name: a, action: { dispatch: stiky } }', '2:36', /did you mean sticky\?/],
      ['{ name: a, action: { dispatch: sticky } }', '2:36', /needs sticky_by/],
      ['{ name: a, action: { dispatch: random, sticky_by: source } }', '2:44', /belongs to dispatch: sticky/],
      ['{ name: a, action: { dispatch: sticky, sticky_by: customer } }', '2:55', /none of sequence_id, source, tags\.<name>/],
      ['{ name: a, action: { priority: urgent } }', '2:36', /one of high, normal, low/],
      ['{ name: a, priority: high }', '2:16', /it belongs under action/],
      ['{ name: a, fallback: { if_no_available_agent: notify } }', '2:51', /must be one of queue_task, notify_admin, fail/],
      ['{ name: a, fallback: { if_no_available_agent: 7 } }', '2:51', /or capability: <name>/],
      ['{ name: a, fallback: { if_no_available_agent: { capability: "crm.order.query@" } } }', '2:65', /empty range/],
      ['{ name: a, fallback: { if_nobody: fail } }', '2:28', /unknown key/],
      ['{ name: a, fallback: }', '2:16', /fallback is empty/],
    ];
    for (const [rule, place, words] of cases) {
      const text = `rules:\n  - ${rule}\n`;
      const found = problemsOf(text);
      t.ok(
        found.some((each) => each.startsWith(`${place} `) && words.test(each)),
        `${rule}\n${found.join('\n')}`,
      );
      t.equal(readOperatorsDocument(text, 'rules.yaml', null).document, null);
    }
    t.match(problemsOf('rules:\n  - { name: a }\n  - { name: b }\n  - { name: a }\n'), ['4:13 there is a rule a already (line 2)']);
    t.match(problemsOf('rules: { name: a }\n'), [/1:8 rules must be a list/]);
  });

  t.test('bounds their number, and their size as they are pushed', async (t) => {
    const many = Array.from({ length: MAX_RULES + 1 }, (_, i) => `  - { name: r${i} }`).join('\n');
    t.match(problemsOf(`rules:\n${many}\n`), [/at most 2000 are allowed/]);
    const long = Array.from({ length: 1_500 }, (_, i) => `  - { name: r${i}, when: { tags: { t: ${'x'.repeat(128)} } } }`).join('\n');
    t.match(problemsOf(`rules:\n${long}\n`), [/^2:3 the rules have \d+ bytes in the form in which they are pushed/]);
  });

  t.test('takes back what it wrote: rules that come over the wire are judged as those of a file', async (t) => {
    const rules = rulesOf(
      `${EXAMPLE}  - { name: onward, when: { tags: { a: b } }, fallback: { if_no_available_agent: { capability: a.b.c } } }\n`,
    );
    const place = (): Place => new Place(openSource('[]', 'rules').source);
    t.same(rereadRules(JSON.parse(JSON.stringify(rules)), place()), rules);
    for (const [change, words] of [
      [{ dispatch: 'sticky' }, /sticky needs sticky_by/],
      [{ dispatch: 7 }, /must be one of random/],
      [{ when: { messageType: 'X' } }, /is not a type of messages/],
      [{ when: { tags: { __proto__: null, constructor: 'x' } } }, /is not a tag/],
      [{ fallback: { kind: 'later' } }, /must be one of queue_task/],
      [{ name: 'constructor' }, /is not a name/],
    ] as const) {
      const bad = place();
      t.equal(rereadRules([{ ...rules[0], ...change }], bad), BAD);
      t.match(bad.source.problems[0]?.message, words);
    }
    const twice = place();
    t.equal(rereadRules([rules[0], rules[0]], twice), BAD);
    t.equal(rereadRules({ 0: rules[0] }, place()), BAD);
    t.equal(rereadRules([null], place()), BAD);
  });
});

t.test('the tree', async (t) => {
  t.test('puts the rule that names more first, every tag counting, then the longer capability, then the file', async (t) => {
    const text = `rules:
  - { name: any }
  - { name: star, when: { capability: "*" } }
  - { name: crm, when: { capability: crm.* } }
  - { name: order, when: { capability: crm.order.* } }
  - { name: query, when: { capability: crm.order.query } }
  - { name: typed, when: { message_type: task_request } }
  - { name: typed_again, when: { message_type: task_request } }
  - { name: two_tags, when: { tags: { tier: gold, lang: de } } }
  - { name: three, when: { message_type: task_request, source_role: planner, tags: { lang: de } } }
  - { name: other, when: { message_type: task_request, tags: { lang: fr } } }
`;
    t.same(named(text, { capability: 'crm.order.query', tags: { lang: 'de', tier: 'gold', more: 'x' } }), [
      'three',
      'two_tags',
      'query',
      'order',
      'crm',
      'star',
      'typed',
      'typed_again',
      'any',
    ]);
    t.same(named(text, { targetRole: 'x' }), ['typed', 'typed_again', 'any'], 'no capability is addressed');
    t.same(named(text, { messageType: 'other', capability: 'crm.orders.query' }), ['crm', 'star', 'any']);
    t.same(named(text, { messageType: 'other', capability: 'crmx.order.query' }), ['star', 'any']);
  });

  t.test('is not taken in by names that every object has', async (t) => {
    const text = 'rules:\n  - { name: a, when: { tags: { lang: de } } }\n';
    const tags = JSON.parse('{"__proto__":{"lang":"de"},"constructor":"x","lang":"toString"}') as Record<string, string>;
    t.same(named(text, { tags }), []);
    t.same(named(text, { messageType: '__proto__', sourceRole: 'constructor', targetRole: 'hasOwnProperty', capability: 'a.b.c' }), []);
  });

  t.test('says the same as asking every rule, one after the other', async (t) => {
    const random = new SeededRandom(11);
    const pick = <T>(values: readonly T[]): T => values[Math.floor(random.next() * values.length)] as T;
    const tagsOf = (): Record<string, string> =>
      Object.fromEntries(['a', 'b', 'c'].filter(() => random.next() < 0.4).map((name) => [name, pick(['x', 'y'])]));
    let matched = 0;
    for (let round = 0; round < 60; round++) {
      const rules = Array.from(
        { length: 40 },
        (_, i): Rule => ({
          name: `r${i}`,
          when: {
            messageType: pick([null, 't1', 't2']),
            sourceRole: pick([null, null, 's1', 's2']),
            targetRole: pick([null, null, 'd1', 'd2']),
            capability: pick([null, null, 'a.b.c', 'a.b.*', 'a.*', '*', 'a.x.c']),
            tags: tagsOf(),
          },
          dispatch: 'random',
          stickyBy: null,
          priority: null,
          fallback: null,
        }),
      );
      const compiled = compileRules(rules, round);
      t.equal(compiled.version, round);
      for (let i = 0; i < 40; i++) {
        const subject: RuleSubject = {
          messageType: pick(['t1', 't2', 't3']),
          sourceRole: pick(['s1', 's2', 's3']),
          targetRole: pick([null, 'd1', 'd2', 'd3']),
          capability: pick([null, 'a.b.c', 'a.x.c', 'z.b.c']),
          tags: tagsOf(),
        };
        const expected = rules
          .filter(({ when }) => meets(subject, when))
          .toSorted((one, other) => compareSpecificity(one.when, other.when) || rules.indexOf(one) - rules.indexOf(other))
          .map(({ name }) => name);
        const found = compiled.match(subject).map(({ name }) => name);
        matched += found.length;
        if (JSON.stringify(found) !== JSON.stringify(expected)) t.same(found, expected);
        for (const [at, name] of found.entries())
          for (const after of found.slice(at + 1)) {
            const [narrow, wide] = [whenOf(rules, name), whenOf(rules, after)];
            if (covers(narrow, wide) && !covers(wide, narrow)) t.fail(`${after} says more than ${name} and comes after it`);
          }
      }
    }
    t.ok(matched > 1_000, `${matched} matches`);
  });
});

const whenOf = (rules: readonly Rule[], name: string): RuleCondition => (rules.find((rule) => rule.name === name) as Rule).when;

function meets(subject: RuleSubject, when: RuleCondition): boolean {
  return (
    (when.messageType === null || when.messageType === subject.messageType) &&
    (when.sourceRole === null || when.sourceRole === subject.sourceRole) &&
    (when.targetRole === null || when.targetRole === subject.targetRole) &&
    (when.capability === null || (subject.capability !== null && coversName(when.capability, subject.capability))) &&
    Object.keys(when.tags).every((name) => Object.hasOwn(subject.tags, name) && subject.tags[name] === when.tags[name])
  );
}

t.test('the lint', async (t) => {
  const found = (text: string, world: RuleWorld | null = null): string[] =>
    lintRules(rulesOf(text), world, null).map(({ rule, kind, other, words }) => `${rule} ${kind} ${other ?? '-'}: ${words}`);

  t.test('names rules that never decide', async (t) => {
    t.match(
      found(`rules:
  - { name: a, when: { target_role: r, tags: { x: "1", y: "2" } }, fallback: { if_no_available_agent: fail } }
  - { name: b, when: { custom_tags: { y: "2", x: "1" }, target_role: r }, fallback: { if_no_available_agent: queue_task } }
  - { name: c, when: { source_role: s } }
  - { name: d, when: { source_role: s }, action: { priority: high } }
  - { name: e, when: { source_role: s }, fallback: { if_no_available_agent: { capability: a.b.c } } }
  - { name: f, when: { source_role: s }, fallback: { if_no_available_agent: notify_admin } }
  - { name: g, when: { source_role: s }, fallback: { if_no_available_agent: fail } }
`).filter((each) => each.includes(' shadowed ')),
      [
        /^b shadowed a: .*a has the same condition, comes before it, and ends the matter with fail/,
        /^d shadowed c: .*tried only when nobody is there, and has no fallback/,
        /^g shadowed f: .*notify_admin/,
      ],
    );
  });

  t.test('says "shadowed" of the very rules that no message is decided by, whoever is there', async (t) => {
    const random = new SeededRandom(23);
    const pick = <T>(values: readonly T[]): T => values[Math.floor(random.next() * values.length)] as T;
    // Small enough to be gone through, and with a word in each place that no rule says.
    const TYPES = ['t1', 't9'];
    const SENDERS = ['s1', 's9'];
    const ROLES = [null, 'd1', 'd9'];
    const NAMES = [null, 'a.b.c', 'a.x.c', 'z.z.z'];
    const TAGS: readonly RuleSubject['tags'][] = [{}, { k: 'x' }, { k: 'y' }];
    const TARGETS = ['a.b.c', 'f.f.f'];
    const subjects: RuleSubject[] = [];
    for (const messageType of TYPES)
      for (const sourceRole of SENDERS)
        for (const targetRole of ROLES)
          for (const capability of NAMES)
            for (const tags of TAGS)
              if (targetRole !== null || capability !== null) subjects.push({ messageType, sourceRole, targetRole, capability, tags });
    const place = (capability: string | null, role: string | null): string => `${capability ?? ''}|${role ?? ''}`;
    let [shadowed, all] = [0, 0];
    for (let round = 0; round < 300; round++) {
      const wide = round % 3 === 0;
      const rules = Array.from(
        { length: 5 },
        (_, i): Rule => ({
          name: `r${i}`,
          when: {
            messageType: pick(wide ? [null] : [null, 't1']),
            sourceRole: pick(wide ? [null, 's1'] : [null, null, 's1']),
            targetRole: pick([null, null, 'd1']),
            capability: pick(wide ? [null, 'a.b.c'] : [null, null, 'a.b.c', 'a.*', '*']),
            tags: pick<Record<string, string>>(wide ? [{}] : [{}, {}, { k: 'x' }]),
          },
          dispatch: pick(['random', 'sticky']),
          stickyBy: 'source',
          priority: null,
          fallback: pick([
            null,
            null,
            { kind: 'fail' },
            { kind: 'notify_admin' },
            { kind: 'queue_task' },
            { kind: 'capability', target: pick(TARGETS) },
            { kind: 'capability', target: pick(TARGETS) },
          ] as const),
        }),
      );
      const compiled = compileRules(rules, 1);
      const deciding = new Set<string>();
      for (const subject of subjects) {
        const matching = compiled.match(subject);
        if (matching.length === 0) continue;
        const own = place(subject.capability, subject.targetRole);
        const places = [...new Set([own, ...TARGETS.map((target) => place(target, null))])];
        for (let who = 0; who < 2 ** places.length; who++) {
          const isThere = (where: string): boolean => (who & (1 << places.indexOf(where))) !== 0;
          const first = matching.find(
            ({ fallback }) =>
              isThere(own) || (fallback !== null && (fallback.kind !== 'capability' || isThere(place(fallback.target, null)))),
          );
          deciding.add((first ?? matching[0]!).name);
        }
      }
      const said = new Set(
        lintRules(rules, null, null)
          .filter(({ kind }) => kind === 'shadowed')
          .map(({ rule }) => rule),
      );
      for (const { name } of rules) {
        all++;
        if (!deciding.has(name)) shadowed++;
        if (said.has(name) === deciding.has(name))
          t.fail(
            `${name} ${said.has(name) ? 'is said to be shadowed and decides' : 'never decides and is not said to'}: ${JSON.stringify(rules)}`,
          );
      }
    }
    t.ok(shadowed > 100 && shadowed < all / 2, `${shadowed} of ${all}`);
  });

  t.test('names pairs that meet in some messages, which ones, and which rule decides', async (t) => {
    t.same(
      found(`rules:
  - { name: by_sender, when: { message_type: t, source_role: s }, action: { priority: high } }
  - { name: by_target, when: { message_type: t, target_role: r }, action: { priority: low } }
  - { name: alike, when: { target_role: r, capability: a.* }, action: { priority: low } }
  - { name: far, when: { message_type: u, target_role: q }, action: { priority: low } }
  - { name: wide, when: { message_type: t } }
  - { name: exact, when: { capability: a.b.c }, action: { priority: normal } }
`),
      [
        'by_sender overlapping alike: messages with message_type t, source_role s, target_role r, capability a.* meet both alike and by_sender, and alike decides because its condition says more',
        'by_target overlapping by_sender: messages with message_type t, source_role s, target_role r meet both by_sender and by_target, and by_sender decides because it stands first in the file; write a rule for what both meet, or say more in one of them',
        'wide overlapping alike: messages with message_type t, target_role r, capability a.* meet both alike and wide, and alike decides because its condition says more',
        'wide overlapping exact: messages with message_type t, capability a.b.c meet both exact and wide, and exact decides because its condition says more',
        'exact overlapping by_sender: messages with message_type t, source_role s, capability a.b.c meet both by_sender and exact, and by_sender decides because its condition says more',
        'exact overlapping by_target: messages with message_type t, target_role r, capability a.b.c meet both by_target and exact, and by_target decides because its condition says more',
        'exact overlapping alike: messages with target_role r, capability a.b.c meet both alike and exact, and alike decides because its condition says more',
        'exact overlapping far: messages with message_type u, target_role q, capability a.b.c meet both far and exact, and far decides because its condition says more',
      ],
    );
    t.same(found('rules:\n  - { name: a, when: { source_role: s } }\n  - { name: b, when: { target_role: r } }\n'), [], 'both do the same');
    t.same(
      found('rules:\n  - { name: a, when: { tags: { t: x } } }\n  - { name: b, when: { tags: { t: z } }, action: { priority: low } }\n'),
      [],
      'nothing meets both',
    );
  });

  t.test('names what no message can meet as far as is known', async (t) => {
    const world: RuleWorld = {
      senders: new Set(['planner']),
      targets: new Set(['retriever', 'gpu']),
      capabilities: new Set(['crm.order.query']),
      ownerOf: (alias) => (alias === 'crm.order.ask' ? 'crm.order.query' : null),
    };
    t.match(
      found(
        `rules:
  - { name: ok, when: { source_role: planner, target_role: gpu } }
  - { name: ok2, when: { capability: crm.order.* } }
  - { name: ok3, when: { capability: "*", target_role: retriever } }
  - { name: sender, when: { source_role: planer } }
  - { name: target, when: { target_role: retreiver } }
  - { name: gone, when: { capability: crm.refund.apply } }
  - { name: alias, when: { capability: crm.order.ask } }
  - { name: none, when: { capability: nlp.* } }
`,
        world,
      ),
      [
        /^sender unreachable -: .*no sender with the role planer/,
        /^target unreachable -: .*role or tag retreiver/,
        /^gone unreachable -: .*crm\.refund\.apply is not known/,
        /^alias unreachable -: .*is an alias.*write crm\.order\.query/,
        /^none unreachable -: .*no capability of nlp\.\*/,
      ],
    );
  });

  t.test('names fallbacks that go round', async (t) => {
    t.match(
      found(`rules:
  - { name: a, when: { capability: x.y.a }, fallback: { if_no_available_agent: { capability: x.y.b } } }
  - { name: b, when: { capability: x.y.b }, fallback: { if_no_available_agent: "capability: x.y.a@^1" } }
  - { name: self, when: { capability: z.* }, fallback: { if_no_available_agent: { capability: z.y.x } } }
  - { name: fine, when: { capability: w.v.u }, fallback: { if_no_available_agent: { capability: q.v.u } } }
`),
      [/^a circular -: .*x\.y\.b > x\.y\.a > x\.y\.b$/, /^b circular -: .*x\.y\.a > x\.y\.b > x\.y\.a$/],
    );
  });

  t.test('names what real messages did not use, once there were enough of them', async (t) => {
    const rules = rulesOf('rules:\n  - { name: a, when: { source_role: s } }\n  - { name: b, when: { target_role: r } }\n');
    const hits = new Map([['a', 5]]);
    t.same(lintRules(rules, null, { hits, messages: MIN_MESSAGES - 1, forMs: 1_000 }), []);
    t.match(lintRules(rules, null, { hits, messages: 4_000, forMs: 3 * 86_400_000 + 5 }), [
      { kind: 'unused', rule: 'b', words: 'it decided none of 4000 messages in 3d' },
    ]);
  });

  t.test('of 2,000 rules takes less than a second or two', async (t) => {
    const text = Array.from(
      { length: MAX_RULES },
      (_, i) =>
        `  - { name: r${i}, when: { source_role: s${i % 50}, target_role: t${i % 47} }, action: { priority: ${i % 2 === 0 ? 'high' : 'low'} } }`,
    ).join('\n');
    const rules = rulesOf(`rules:\n${text}\n`);
    const before = process.cpuUsage();
    lintRules(rules, null, null);
    const { user, system } = process.cpuUsage(before);
    t.ok(user + system < 2_500_000, `${(user + system) / 1_000} ms`);
  });
});
