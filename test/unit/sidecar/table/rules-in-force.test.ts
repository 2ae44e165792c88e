/** The rules that count at a sidecar: compiled, counted, remembered. How they get here is in tails.test.ts. */
import t from 'tap';
import { VirtualClock } from '../../../../base/virtual-clock.ts';
import type { Rule, RuleSubject } from '../../../../proto/language/rule.ts';
import { shareOf } from '../../../../proto/language/share.ts';
import type { RulesState } from '../../../../proto/wire/messages.ts';
import { RulesInForce } from '../../../../sidecar/table/rules-in-force.ts';
import { RulesTail } from '../../../../sidecar/table/work-view.ts';

const rule = (name: string, targetRole: string, more: Partial<Rule> = {}): Rule => ({
  name,
  when: { messageType: null, sourceRole: null, targetRole, capability: null, tags: {} },
  dispatch: 'random',
  stickyBy: null,
  priority: null,
  fallback: null,
  ...more,
});
const subject = (targetRole: string, tags: Readonly<Record<string, string>> = {}): RuleSubject => ({
  messageType: 'task_request',
  sourceRole: 'planner',
  targetRole,
  capability: null,
  tags,
});

class World {
  readonly clock = new VirtualClock();
  readonly tail = new RulesTail('here');
  readonly rules = new RulesInForce(this.tail, this.clock);
  #seq = 0;

  push(state: Partial<RulesState>): string {
    const value = { version: 1, rules: [], staged: null, ...state };
    return this.tail.take(++this.#seq, { epoch: 'e1', value: JSON.parse(JSON.stringify(value)) as Record<string, unknown> }, true);
  }

  names(targetRole: string): string[] {
    return this.rules
      .current()
      .match(subject(targetRole))
      .map(({ name }) => name);
  }
}

t.test('before anything is pushed there are none', async (t) => {
  const world = new World();
  t.same(world.names('a'), []);
  t.match(world.rules.report(), { version: 0, staged: false, seq: 0, messages: 0, hits: {} });
  t.same(world.rules.recorded(10), []);
});

t.test('what is pushed decides from the next message on, the staged rules where this sidecar is in the share', async (t) => {
  const world = new World();
  t.equal(world.push({ version: 3, rules: [rule('one', 'a')] }), 'taken');
  t.equal(world.rules.current().version, 3);
  t.same(world.names('a'), ['one']);
  const staged = { version: 4, share: shareOf('here') + 0.001, rules: [rule('two', 'a')] };
  world.push({ version: 3, rules: [rule('one', 'a')], staged });
  t.same([world.rules.current().version, world.names('a')], [4, ['two']]);
  t.match(world.rules.report(), { version: 4, staged: true, seq: 2 });
  world.push({ version: 3, rules: [rule('one', 'a')], staged: { ...staged, share: shareOf('here') } });
  t.same([world.rules.current().version, world.names('a')], [3, ['one']]);
});

t.test('a set that the language would not have made is refused as a whole, and what was in force stays', async (t) => {
  const world = new World();
  world.push({ rules: [rule('one', 'a')] });
  const wrong: readonly (readonly [Partial<RulesState>, RegExp])[] = [
    [{ rules: [rule('one', 'a'), rule('one', 'b')] }, /rule 1: there is a rule one already/],
    [{ rules: [rule('x', 'a', { dispatch: 'sticky' })] }, /rule 0: sticky needs sticky_by/],
    [{ rules: [rule('x', 'a', { fallback: { kind: 'capability', target: 'nothing here' } })] }, /rule 0: .*is not a capability name/],
    [{ rules: [], staged: { version: 2, share: 0.1, rules: [rule('__proto__', 'a')] } }, /rule 0: .*is not a name/],
  ];
  for (const [state, words] of wrong) {
    t.equal(world.push(state), 'refused');
    t.match(world.tail.problem, words);
    t.same(world.names('a'), ['one']);
  }
  t.equal(world.rules.report().seq, 1 + wrong.length, 'it has looked at the newest one');
});

t.test('counts what each rule decided, from the moment these rules came into force', async (t) => {
  const world = new World();
  world.push({ version: 3, rules: [rule('one', 'a')] });
  world.rules.decided(subject('a'), 'one');
  world.rules.decided(subject('a'), 'one');
  world.rules.decided(subject('b'), null);
  await world.clock.advance(2_000);
  t.match(world.rules.report(), { version: 3, messages: 3, forMs: 2_000, hits: { one: 2 } });
  world.push({ version: 4, rules: [rule('one', 'a')] });
  t.match(world.rules.report(), { version: 4, messages: 3, forMs: 2_000, hits: { one: 2 } }, 'the same rules');
  world.push({ version: 5, rules: [rule('one', 'b')] });
  t.same(world.rules.report(), { version: 5, staged: false, seq: 3, messages: 0, forMs: 0, hits: {} }, 'other rules');
  world.rules.decided(subject('b'), 'one');
  t.same([world.rules.messages, [...world.rules.hits]], [1, [['one', 1]]]);
});

t.test('remembers the last thousand messages as rules see them, newest first, and tells no more than fits', async (t) => {
  const world = new World();
  for (let i = 0; i < 1_500; i++) world.rules.decided(subject(`r${i}`), i % 2 === 0 ? 'even' : null);
  t.same(world.rules.recorded(2), [
    { message_type: 'task_request', source_role: 'planner', target_role: 'r1499', capability: null, tags: {}, rule: null },
    { message_type: 'task_request', source_role: 'planner', target_role: 'r1498', capability: null, tags: {}, rule: 'even' },
  ]);
  const all = world.rules.recorded(5_000);
  t.equal(all.length, 1_000);
  t.equal(all.at(-1)?.target_role, 'r500');
  const large = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`t${i}`, 'x'.repeat(128)]));
  for (let i = 0; i < 1_000; i++) world.rules.decided(subject('r', large), null);
  const told = world.rules.recorded(1_000);
  t.ok(told.length > 50 && told.length < 200, `${told.length}`);
});
