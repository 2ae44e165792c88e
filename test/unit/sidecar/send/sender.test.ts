import t from 'tap';
import { SeededRandom } from '../../../../base/random.ts';
import { decide } from '../../../../control-plane/rules/trial.ts';
import type { Rule } from '../../../../proto/language/rule.ts';
import { compileRules } from '../../../../proto/language/rule-tree.ts';
import { Code } from '../../../../proto/wire/codes.ts';
import { decodeEnvelope, encodeEnvelope } from '../../../../proto/wire/envelope.ts';
import { partitionOf, poolId } from '../../../../proto/wire/pool.ts';
import { Principal } from '../../../../sidecar/call/principal.ts';
import type { Submitted } from '../../../../sidecar/send/door.ts';
import { tellOutbox } from '../../../../sidecar/send/send-span.ts';
import { contractOf, policyOf, providerOf } from '../../../support/route-table.ts';
import { ASKER, rulesOf, ScriptedOutbox, SendWorld, submission } from './world.ts';

const NAME = 'crm.order.query';
const worker = (id: string, version = '2.1.0', parts: Parameters<typeof providerOf>[2] = {}) =>
  providerOf(`crm.order.${id}`, [`${NAME}@${version}`], { via: 'two', ...parts });
const code = (came: Submitted): number => (came.ok ? 0 : came.code);
const words = (came: Submitted): string => (came.ok ? '' : came.detail);

t.test('an accepted message is stamped, and lies under the subject of its pool, lane and sender', async (t) => {
  const world = new SendWorld([worker('a')]);
  const came = await world.submit(
    `${NAME}@^2.0`,
    {
      authorization: 'Bearer secret',
      'x-tenant': 'acme',
      'reach-message-type': 'health_check',
      'reach-priority': 'high',
      'reach-tags': 'lang=de',
      'reach-sequence-id': 'conv-1',
      'reach-expires': '10m',
      'reach-deadline-total-ms': '9000',
      'reach-path': 'a.b.c>x.y.z',
      'reach-retryable': 'false',
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    },
    '{"n": 1.0}',
  );
  t.match(came, {
    ok: true,
    taskId: /^abcdefgh01[0-9a-z]+$/,
    durable: 'stream',
    state: 'accepted',
    capability: NAME,
    version: '2.1.0',
    lane: 'high',
    rule: null,
    traceId: '0af7651916cd43dd8448eb211c80319c',
  });
  const pool = poolId({ capability: NAME, version: '2.1.0', role: null, agent: null, tags: {}, sticky: false });
  const sent = world.stream.sent[0] as { subject: string; data: Buffer; msgId: string };
  t.equal(sent.subject, `ar.t.task.${pool}.high.0.one`);
  t.equal(sent.msgId, came.ok ? came.taskId : '');
  const { envelope, payload } = decodeEnvelope(sent.data) as NonNullable<ReturnType<typeof decodeEnvelope>>;
  t.equal(payload.toString('utf8'), '{"n": 1.0}', 'byte for byte');
  t.match(envelope, {
    source: 'support.planner.1',
    home: 'one',
    reply_to: 'support.planner.1',
    message_type: 'health_check',
    timeout_ms: 5_000,
    expires_ms: 600_000,
    deadline_ms: 9_000,
    keyed: false,
    retryable: false,
    tags: { lang: 'de' },
    sequence_id: 'conv-1',
    path: ['a.b.c>x.y.z'],
    payload_hash: '',
    headers: { 'x-tenant': 'acme' },
  });
  t.match(envelope.traceparent, /^00-0af7651916cd43dd8448eb211c80319c-(?!b7ad6b7169203331)[0-9a-f]{16}-01$/);
  t.match(envelope.power_id, new RegExp(`^support\\.planner\\.1:${envelope.task_id}:\\d+$`));
  t.notOk(JSON.stringify(envelope).includes('secret'), 'the credential stays here');
  t.equal(world.home.of('support.planner.1', envelope.task_id)?.state, 'accepted');
  t.equal(world.home.of('sales.helper.2', envelope.task_id), null, 'nobody else sees it');
  world.close();
});

t.test('what a call would be refused for, a message is refused for at once', async (t) => {
  const acl = { isPublic: false, patterns: [{ text: 'team:sales', team: 'sales', role: null, id: null }] };
  const world = new SendWorld(
    [worker('a'), providerOf('crm.vault.1', ['crm.vault.open@1.0.0'], { via: 'two' }), providerOf('x.third.1', ['x.third.party@1.0.0'])],
    {
      contracts: [
        contractOf('crm.vault.open', '1.0.0', { acl }),
        contractOf(NAME, '2.1.0', {
          limits: { perCaller: null, perProvider: null, requestBytes: 64, responseBytes: null, eventBytes: null },
        }),
      ],
    },
  );
  t.equal(code(await world.submit('crm.nobody.here')), Code.no_provider);
  t.equal(code(await world.submit('crm.order')), Code.bad_name);
  t.equal(code(await world.submit(`${NAME}@^9.0`)), Code.no_matching_version, 'no silent other version');
  t.equal(code(await world.submit('crm.vault.open')), Code.forbidden);
  t.equal(code(await world.submit(NAME, {}, `"${'x'.repeat(100)}"`)), Code.payload_too_large, 'above the limit of the contract');
  t.equal(code(await world.submit(NAME, {}, '{')), Code.invalid_request, 'no JSON');
  t.match(words(await world.submit('x.third.party')), /third parties only/);
  t.equal(code(await world.submit(NAME, { 'idempotency-key': 'sales.helper.2:abcdefgh:1' })), Code.key_reused, "another agent's key");
  t.equal(code(await world.submit(NAME, { 'idempotency-key': 'support.planner.1:abcdefgh:1' })), 0);
  t.equal(world.envelope().keyed, true);
  t.match(world.envelope().payload_hash, /^[A-Za-z0-9_-]{43}$/, 'a claim will need it');
  t.equal(world.stream.sent.length, 1, 'of all these one has left');
  for (const key of [
    'sales.order.42:retry',
    'sales.helper.2:abc:1:2',
    'sales.helper.2::1',
    'sales.helper.2:abc:',
    `sales.helper.2:a:${'1'.repeat(17)}`,
  ])
    t.equal(code(await world.submit(NAME, { 'idempotency-key': key })), 0, `${key} is none that we have minted, whatever it looks like`);
  world.close();
});

t.test('a message to an agent that takes none as work goes into its inbox, if the sender may ask the agent for anything', async (t) => {
  const closed = { isPublic: false, patterns: [{ text: 'finance.*.*', team: 'finance', role: null, id: null }] };
  const world = new SendWorld(
    [
      worker('a'),
      worker('deaf'),
      providerOf('crm.vault.1', ['crm.vault.open@1.0.0'], { via: 'two' }),
      providerOf('x.third.1', ['x.third.party@1.0.0']),
      providerOf('crm.order.b', ['agent.message.handle@1.0.0', `${NAME}@2.1.0`], { via: 'two' }),
    ],
    { contracts: [contractOf('crm.vault.open', '1.0.0', { acl: closed }), contractOf('agent.message.handle', '1.0.0', { acl: closed })] },
  );
  const came = await world.submit(
    null,
    { 'reach-agent': 'crm.order.a', 'reach-tags': 'k=v', 'reach-message-type': 'hint', 'idempotency-key': 'k-1' },
    '{"n":1}',
  );
  t.match(came, { ok: true, durable: 'stream', state: 'accepted', capability: 'agent.message.handle' });
  const sent = world.stream.sent.at(-1);
  t.equal(sent?.subject, 'ar.t.inbox.two.crm.order.a');
  const [head = '', body] = (sent?.data.toString() ?? '').split('\n');
  const taskId = came.ok ? came.taskId : '';
  t.equal(sent?.msgId, taskId);
  t.match(JSON.parse(head), {
    kind: 'message',
    task_id: taskId,
    power_id: 'k-1',
    message_type: 'hint',
    source: 'support.planner.1',
    home: 'one',
    reply_to: 'support.planner.1',
    tags: { k: 'v' },
  });
  t.equal(body, '{"n":1}');
  t.strictSame(world.bus.asked, [], 'nobody is asked about a pool');
  t.equal(world.home.of('support.planner.1', taskId)?.state, 'accepted');

  const count = world.stream.sent.length;
  t.match(await world.submit(null, { 'reach-agent': 'crm.vault.1' }), { ok: true, state: 'parked' }, 'it may ask that one for nothing');
  t.match(world.stream.sent.at(-1)?.subject, /^ar\.t\.task\./, 'and so it waits until the agent takes messages');
  t.match(
    await world.submit(null, { 'reach-agent': 'x.third.1' }),
    { ok: true, state: 'parked' },
    'nobody keeps an inbox for a third party',
  );
  t.equal(code(await world.submit(null, { 'reach-agent': 'crm.order.b' })), Code.forbidden, 'that one takes messages, and says from whom');
  t.match(await world.submit(null, { 'reach-agent': 'crm.order.b' }, '{}', new Principal('finance.clerk.1')), { ok: true });
  t.match(world.stream.sent.at(-1)?.subject, /^ar\.t\.task\./, 'as work');
  t.equal(world.stream.sent.length, count + 3);
  world.bus.maxPayload = 900;
  t.equal(code(await world.submit(null, { 'reach-agent': 'crm.order.a' }, `"${'x'.repeat(500)}"`)), Code.payload_too_large);
  world.close();
});

t.test('above what NATS takes it is refused before anything is stored', async (t) => {
  const world = new SendWorld([worker('a')]);
  world.bus.maxPayload = 4_000;
  const came = await world.submit(NAME, {}, `"${'x'.repeat(4_000)}"`);
  t.equal(code(came), Code.payload_too_large);
  t.match(words(came), /NATS takes 4000/);
  t.equal(world.stream.sent.length, 0);
  // With the words for the person who is to decide it is larger than it was.
  world.rules = rulesOf({ name: 'human', fallback: { kind: 'notify_admin' } });
  let bytes = 1_000;
  for (; code(await world.submit(null, { 'reach-role': 'nobody' }, `"${'x'.repeat(bytes)}"`)) === 0; bytes += 10);
  t.equal(code(await world.submit(null, { 'reach-role': 'nobody' }, `"${'x'.repeat(bytes)}"`)), Code.payload_too_large);
  t.ok((world.stream.sent.at(-1)?.data.length ?? 0) > 3_700, 'the whole entry is counted');
  t.ok((world.stream.sent.at(-1)?.data.length ?? 0) <= 4_000);
  world.close();
});

t.test('a burst is taken, then the rate holds; it can be raised while it runs', async (t) => {
  const world = new SendWorld([worker('a')], {}, { rate: { perSec: 100, burst: 100 } });
  let taken = 0;
  for (let i = 0; i < 150; i++) if ((await world.submit(NAME)).ok) taken++;
  t.equal(taken, 100);
  const refused = await world.submit(NAME);
  t.match(refused, { ok: false, code: Code.rate_limited, retryAfterMs: 10, rate: { limit: 100, remaining: 0 } });
  t.ok((await world.submit(NAME, {}, '{}', new Principal('sales.helper.2'))).ok, 'each agent has its own');
  await world.clock.advance(50);
  for (let i = 0; i < 10; i++) if ((await world.submit(NAME)).ok) taken++;
  t.equal(taken, 105);
  world.rates.set('support.planner.1', { perSec: 1_000, burst: 1_000 }, world.clock.now());
  await world.clock.advance(1_000);
  t.equal(world.rates.view('support.planner.1', world.clock.now()).remaining, 1_000);
  world.close();
});

t.test('nobody there: it waits for the version it asked for, and the sender is told', async (t) => {
  const world = new SendWorld([worker('a', '2.1.0', { drain: true }), worker('b', '3.0.0')]);
  t.match(await world.submit(`${NAME}@^2.0`), { ok: true, state: 'parked', version: '2.1.0' }, 'drained is not there');
  t.match(await world.submit(NAME), { ok: true, state: 'accepted', version: '3.0.0' });
  world.push([], { contracts: [contractOf(NAME, '2.1.0'), contractOf(NAME, '2.2.0-rc.1')] });
  t.match(await world.submit(NAME), { ok: true, state: 'parked', version: '2.1.0' }, 'no provider at all; never a pre-release');
  t.match(await world.submit(null, { 'reach-role': 'retriever' }), {
    ok: true,
    state: 'parked',
    capability: 'agent.message.handle',
    version: null,
  });
  world.close();
});

t.test('an agent or a role that has stayed with an earlier version is reached there, within the range', async (t) => {
  const world = new SendWorld([worker('old', '1.4.0'), worker('new', '2.1.0', { tags: { retriever: 'yes' } })]);
  t.match(await world.submit(NAME, { 'reach-agent': 'crm.order.old' }), { version: '1.4.0', state: 'accepted' });
  t.equal(world.envelope().target.agent, 'crm.order.old');
  t.match(await world.submit(NAME, { 'reach-role': 'retriever' }), { version: '2.1.0', state: 'accepted' }, 'a tag is a role');
  t.match(
    await world.submit(`${NAME}@^2.0`, { 'reach-agent': 'crm.order.old' }),
    { version: '2.1.0', state: 'parked' },
    'never outside it',
  );
  world.close();
});

t.test('canary: the shares of the versions are those of calls', async (t) => {
  const world = new SendWorld([worker('a', '2.0.0'), worker('b', '2.1.0')], { policies: [policyOf(NAME, { canary: { '2.1.0': 0.2 } })] });
  let young = 0;
  for (let i = 0; i < 1_000; i++) if (((await world.submit(NAME)) as { version?: string }).version === '2.1.0') young++;
  t.ok(young > 140 && young < 260, `${young} of 1000`);
  const kept = new Set<string>();
  for (let i = 0; i < 20; i++)
    kept.add(String(((await world.submit(NAME, { 'reach-sequence-id': 'c1' })) as { version?: string }).version));
  t.equal(kept.size, 1, 'a conversation stays where it is');
  world.close();
});

t.test('tags make a pool only where a provider asks for them', async (t) => {
  const world = new SendWorld([worker('a', '2.1.0', { target: { lang: 'de' } }), worker('b')]);
  await world.submit(NAME, { 'reach-tags': 'lang=de,tenant=acme' });
  const german = world.envelope().pool;
  t.equal(german, poolId({ capability: NAME, version: '2.1.0', role: null, agent: null, tags: { lang: 'de' }, sticky: false }));
  await world.submit(NAME, { 'reach-tags': 'lang=de,tenant=other' });
  t.equal(world.envelope().pool, german, 'the tenant makes no other pool');
  await world.submit(NAME);
  t.not(world.envelope().pool, german);
  world.push([worker('a', '2.1.0', { target: { lang: 'de' } })]);
  t.match(await world.submit(NAME, { 'reach-tags': 'lang=fr' }), { state: 'parked' }, 'nobody is fit for it');
  t.match(await world.submit(NAME, { 'reach-tags': 'lang=de' }), { state: 'accepted' });
  world.close();
});

t.test('rules: the first that finds somebody decides; fallbacks of one that does not', async (t) => {
  const world = new SendWorld([worker('a'), providerOf('crm.spare.1', ['crm.spare.query@1.0.0'], { via: 'two' })]);
  world.rules = rulesOf({ name: 'fast', priority: 'high' });
  t.match(await world.submit(NAME, { 'reach-priority': 'low' }), { lane: 'high', rule: 'fast' }, "a rule's priority beats the sender's");
  t.match(world.decided, [
    { subject: { messageType: 'task_request', sourceRole: 'planner', targetRole: null, capability: NAME }, rule: 'fast' },
  ]);
  const alone = { 'reach-role': 'retriever' };
  world.rules = rulesOf({ name: 'first' }, { name: 'second', priority: 'low', fallback: { kind: 'queue_task' } });
  t.match(await world.submit(null, alone), { ok: true, state: 'parked', lane: 'low', rule: 'second' }, 'the next match');
  world.rules = rulesOf({ name: 'first', priority: 'high' }, { name: 'second', priority: 'low' });
  t.match(
    await world.submit(null, alone),
    { ok: true, state: 'parked', lane: 'high', rule: 'first' },
    'at last it waits, by the first one',
  );
  world.rules = rulesOf({ name: 'strict', fallback: { kind: 'fail' } });
  t.match(await world.submit(null, alone), { ok: false, code: Code.none_healthy, detail: /strict/ });
  t.equal(world.decided.at(-1)?.rule, 'strict', 'a refusal is a decision too');
  world.rules = rulesOf({ name: 'spare', fallback: { kind: 'capability', target: 'crm.spare.query' } });
  t.match(await world.submit(null, alone), { ok: true, capability: 'crm.spare.query', state: 'accepted', rule: 'spare' });
  world.rules = rulesOf({ name: 'human', fallback: { kind: 'notify_admin' } });
  const held = await world.submit(null, alone);
  t.match(held, { ok: true, state: 'parked', rule: 'human' });
  const sent = world.stream.sent.at(-1) as { subject: string; data: Buffer };
  t.equal(sent.subject, `ar.t.kept.review.${held.ok ? held.taskId : ''}`, 'a person decides');
  const [entry = '', ...message] = sent.data.toString('utf8').split('\n');
  t.match(JSON.parse(entry), { kind: 'review', rule: 'human', code: Code.parked });
  t.match(JSON.parse(message[0] ?? ''), { task_id: held.ok ? held.taskId : '', target: { role: 'retriever' } });
  world.close();
});

t.test('a dry run says what is decided when it is sent, whoever is there', async (t) => {
  const random = new SeededRandom(5);
  const pick = <T>(values: readonly T[]): T => values[Math.floor(random.next() * values.length)] as T;
  const there = new SendWorld([worker('a'), providerOf('crm.spare.1', ['crm.spare.query@1.0.0'], { via: 'two' })]);
  const empty = new SendWorld([]);
  empty.push([], { contracts: [contractOf(NAME, '2.1.0')] });
  let ways = 0;
  for (let round = 0; round < 400; round++) {
    const rules = Array.from(
      { length: 6 },
      (_, i): Rule => ({
        name: `r${i}`,
        when: {
          messageType: pick([null, null, 'task_request', 'other']),
          sourceRole: pick([null, null, 'planner', 'other']),
          targetRole: pick([null, null, 'retriever']),
          capability: pick([null, null, NAME, 'crm.*', '*']),
          tags: pick<Record<string, string>>([{}, {}, { tier: 'gold' }]),
        },
        dispatch: 'random',
        stickyBy: null,
        priority: pick([null, 'high', 'low']),
        fallback: pick([null, null, { kind: 'fail' }, { kind: 'notify_admin' }, { kind: 'queue_task' }] as const),
      }),
    );
    const compiled = compileRules(rules, 1);
    const target = pick([NAME, null]);
    const headers = {
      ...(target === null ? { 'reach-role': 'retriever' } : {}),
      ...(random.next() < 0.5 ? { 'reach-tags': 'tier=gold,other=x' } : {}),
      ...(random.next() < 0.3 ? { 'reach-message-type': 'other' } : {}),
    };
    for (const world of [there, empty]) {
      world.rules = compiled;
      const isThere = world === there && target !== null;
      const submitted = await world.submit(target, headers);
      const { subject, rule } = world.decided.at(-1) as (typeof world.decided)[number];
      const { rule: first, tried, priority, if_nobody: onward } = decide(compiled, subject);
      if (isThere) t.equal(rule, first);
      else
        t.equal(
          rule,
          onward.startsWith('queue_task') && rules.find(({ name }) => name === tried.at(-1))?.fallback === null
            ? first
            : (tried.at(-1) ?? null),
        );
      ways++;
      if (!submitted.ok) t.equal(onward, 'fail', submitted.detail);
      else {
        t.equal(submitted.rule, rule);
        if (isThere) t.equal(submitted.lane, priority ?? 'normal');
        const sent = world.stream.sent.at(-1) as { subject: string };
        t.equal(sent.subject.startsWith('ar.t.kept.review.'), !isThere && onward === 'notify_admin');
      }
    }
  }
  t.equal(ways, 800);
  there.close();
  empty.close();
});

t.test('sticky: one key, one partition, whoever sends it; without a key anybody', async (t) => {
  const world = new SendWorld([worker('a')]);
  world.rules = rulesOf({ name: 'together', dispatch: 'sticky', stickyBy: 'sequence_id' });
  await world.submit(NAME, { 'reach-sequence-id': 'conv-7' });
  const { pool, sticky_key: key } = world.envelope();
  t.equal(key, 'conv-7');
  t.equal(world.stream.sent[0]?.subject, `ar.t.task.${pool}.normal.${partitionOf('conv-7')}.one`);
  await world.submit(NAME);
  t.not(world.envelope().pool, pool, 'no conversation, no order to keep');
  t.notOk('sticky_key' in world.envelope());
  world.rules = rulesOf({ name: 'by_tag', dispatch: 'sticky', stickyBy: 'tags.tenant' });
  await world.submit(NAME, { 'reach-tags': 'tenant=acme' });
  t.equal(world.envelope().sticky_key, 'acme');
  world.close();
});

t.test('sticky: a canary does not tear apart what a rule keeps together, by whatever it does', async (t) => {
  const world = new SendWorld([worker('a', '2.0.0'), worker('b', '2.1.0')], { policies: [policyOf(NAME, { canary: { '2.1.0': 0.5 } })] });
  for (const [stickyBy, headers] of [
    ['sequence_id', (key: string) => ({ 'reach-sequence-id': key, 'reach-affinity': `other-${Math.random()}` })],
    ['tags.tenant', (key: string) => ({ 'reach-tags': `tenant=${key}` })],
  ] as const) {
    world.rules = rulesOf({ name: 'together', dispatch: 'sticky', stickyBy });
    const pools = new Map<string, Set<string>>();
    const versions = new Set<string>();
    for (let i = 0; i < 40; i++)
      for (const key of ['k1', 'k2', 'k3', 'k4', 'k5', 'k6', 'k7', 'k8']) {
        await world.submit(NAME, headers(key));
        const { pool, version } = world.envelope();
        pools.set(key, (pools.get(key) ?? new Set()).add(pool));
        versions.add(String(version));
      }
    for (const [key, each] of pools) t.equal(each.size, 1, `${stickyBy} ${key}: one pool`);
    t.equal(versions.size, 2, 'and other keys go to the other version');
  }
  world.rules = rulesOf({ name: 'by_sender', dispatch: 'sticky', stickyBy: 'source' });
  const versions = new Set<string>();
  for (let i = 0; i < 40; i++) {
    await world.submit(NAME);
    versions.add(String(world.envelope().version));
  }
  t.equal(versions.size, 1);
  world.close();
});

t.test('a pool is asked for once; a refusal reaches the sender, silence does not hold it up for long', async (t) => {
  const world = new SendWorld([worker('a')]);
  for (let i = 0; i < 5; i++) await world.submit(NAME);
  t.equal(world.bus.asked.length, 1);
  t.match(world.bus.asked[0], { subject: 'ar.t.ctl.pool', body: { sidecar: 'one', pool: { capability: NAME, version: '2.1.0' } } });
  world.bus.answer = () => ({ wire: 1, ok: false, why: 'there are 600 pools already' });
  t.match(await world.submit(null, { 'reach-role': 'other' }), { ok: false, code: Code.delivery_unavailable, detail: /600 pools/ });
  world.bus.answer = () => null;
  const waiting = world.submit(null, { 'reach-role': 'third' });
  await world.clock.advance(2_100);
  t.match(await waiting, { ok: true, durable: 'stream' }, 'it lies in the stream until the control plane is back');
  const asked = world.bus.asked.length;
  await world.clock.advance(10_000);
  t.ok(world.bus.asked.length > asked, 'which goes on being asked');
  world.close();
});

t.test('no answer of the stream: again with the same id, for ten seconds', async (t) => {
  const world = new SendWorld([worker('a')]);
  await world.submit(NAME);
  world.stream.auto = (count) => (count < 6 ? { failed: 'no answer in time', ambiguous: true } : { seq: 9, duplicate: true });
  const waiting = world.submit(NAME);
  await world.clock.advance(9_000);
  t.match(await waiting, { ok: true, durable: 'stream' });
  const ids = world.stream.sent.slice(1).map(({ msgId }) => msgId);
  t.equal(ids.length, 5);
  t.equal(new Set(ids).size, 1);
  world.stream.auto = () => ({ failed: 'no answer in time', ambiguous: true });
  let came: Submitted | null = null;
  void world.submit(NAME).then((it) => {
    came = it;
  });
  await world.clock.advance(9_500);
  t.equal(came, null, 'not given up before');
  await world.clock.advance(1_500);
  t.match(came, { ok: false, code: Code.delivery_unavailable, detail: /same key/ });
  const id = world.stream.sent.at(-1)?.msgId as string;
  t.equal(world.cancels.size, 1, 'refused, so it is called off');
  await world.clock.advance(6_000);
  t.match(world.bus.published.at(-1), { subject: 'ar.t.cancel', body: { task_id: id, source: 'support.planner.1' } });
  world.close();
});

t.test('NATS away: the disk, behind what waits there already; full and broken are told', async (t) => {
  const world = new SendWorld([worker('a')]);
  const outbox = new ScriptedOutbox();
  world.outbox = outbox;
  world.bus.go(false);
  world.stream.isOpen = false;
  t.match(await world.submit(NAME), { ok: true, durable: 'local-disk' });
  t.equal(outbox.kept.length, 1);
  world.bus.go(true);
  world.stream.isOpen = true;
  t.match(await world.submit(NAME), { ok: true, durable: 'local-disk' }, 'not past those that wait');
  outbox.pending = 0;
  t.match(await world.submit(NAME), { ok: true, durable: 'stream' });
  world.bus.go(false);
  world.stream.isOpen = false;
  outbox.outcome = 'full';
  t.match(await world.submit(NAME), { ok: false, code: Code.delivery_unavailable, detail: /outbox.*full/ });
  outbox.outcome = 'broken';
  t.match(await world.submit(NAME), { ok: false, code: Code.delivery_unavailable, detail: /nothing was accepted/ });
  t.equal(world.cancels.size, 0);
  world.close();
});

t.test('in doubt, then the disk: with the same id, and one answer', async (t) => {
  const world = new SendWorld([worker('a')]);
  await world.submit(NAME);
  const outbox = new ScriptedOutbox();
  world.outbox = outbox;
  world.stream.auto = null;
  const waiting = world.submit(NAME);
  await world.clock.advance(0);
  world.stream.isOpen = false;
  world.bus.go(false);
  world.stream.waiting[0]?.({ failed: 'the connection broke', ambiguous: true });
  t.match(await waiting, { ok: true, durable: 'local-disk' });
  t.equal(outbox.kept[0]?.msgId, world.stream.sent.at(-1)?.msgId);
  world.close();
});

t.test('a stream that stands still: the disk at once, with the same id; one that cannot be written is no reason to give up', async (t) => {
  const world = new SendWorld([worker('a')]);
  await world.submit(NAME);
  const outbox = new ScriptedOutbox();
  world.outbox = outbox;
  world.stream.auto = () => ({ failed: 'no answer in time', ambiguous: true });
  const sent = world.stream.sent.length;
  t.match(await world.submit(NAME), { ok: true, durable: 'local-disk' }, 'no clock has moved: nothing was waited for beyond the one try');
  t.equal(world.stream.sent.length, sent + 1);
  t.equal(outbox.kept[0]?.msgId, world.stream.sent.at(-1)?.msgId);
  t.match(await world.submit(NAME), { ok: true, durable: 'local-disk' });
  t.equal(world.stream.sent.length, sent + 1, 'those that follow are not tried');
  outbox.pending = 0;
  outbox.outcome = 'full';
  world.stream.auto = (count) => (count < sent + 4 ? { failed: 'no answer in time', ambiguous: true } : { seq: 9, duplicate: true });
  const waiting = world.submit(NAME);
  await world.clock.advance(1_000);
  t.match(await waiting, { ok: true, durable: 'stream' });
  t.equal(new Set(world.stream.sent.slice(sent + 1).map(({ msgId }) => msgId)).size, 1);
  t.equal(world.cancels.size, 0);
  world.close();
});

t.test('a connection that comes back in time is waited for where there is no disk', async (t) => {
  const world = new SendWorld([worker('a')]);
  await world.submit(NAME);
  world.bus.go(false);
  world.stream.isOpen = false;
  const waiting = world.submit(NAME);
  await world.clock.advance(5_000);
  world.stream.isOpen = true;
  world.bus.go(true);
  t.match(await waiting, { ok: true, durable: 'stream' });
  world.bus.go(false);
  world.stream.isOpen = false;
  const lost = world.submit(NAME);
  await world.clock.advance(10_100);
  t.match(await lost, { ok: false, code: Code.delivery_unavailable, detail: /nothing was accepted/ });
  world.close();
});

t.test('what waits for the stream is bounded; above it a submission is refused at once', async (t) => {
  const world = new SendWorld([worker('a')], {}, { inFlight: 3 });
  await world.submit(NAME);
  world.stream.auto = null;
  const waiting = [world.submit(NAME), world.submit(NAME), world.submit(NAME)];
  await world.clock.advance(0);
  t.equal(world.post.open, 3);
  t.match(await world.submit(NAME), { ok: false, code: Code.delivery_unavailable, detail: /in_flight/ });
  for (const [i, answer] of world.stream.waiting.entries()) answer({ seq: i + 2, duplicate: false });
  for (const each of waiting) t.match(await each, { ok: true });
  t.equal(world.post.open, 0);
  world.close();
});

t.test('a full queue is said to be full', async (t) => {
  const world = new SendWorld([worker('a')]);
  world.stream.auto = () => ({ failed: 'storing x: maximum messages exceeded', ambiguous: false, full: true });
  t.match(await world.submit(NAME), { ok: false, code: Code.delivery_unavailable, detail: /queue is full/, retryAfterMs: 1_000 });
  world.stream.auto = () => ({ failed: 'storing x: no permission to publish there', ambiguous: false });
  t.match(await world.submit(NAME), { ok: false, code: Code.delivery_unavailable, detail: /no permission/ }, 'not tried for ten seconds');
  world.close();
});

t.test('what a message cannot say is refused with the place', (t) => {
  const bad = (headers: Record<string, string>): string => {
    try {
      submission(NAME, headers);
      return '';
    } catch (error) {
      return (error as Error).message;
    }
  };
  t.match(bad({ 'reach-priority': 'urgent' }), /high, normal or low/);
  t.match(bad({ 'reach-message-type': 'Task Request' }), /message-type/);
  t.match(bad({ 'reach-expires': '10' }), /unit/);
  for (const none of ['-1', '0']) t.match(bad({ 'reach-deadline-total-ms': none }), /above 0/, none);
  for (const odd of ['1e3', '0x10', '5.0', 'abc', '', '+5']) {
    t.match(bad({ 'reach-deadline-total-ms': odd }), /reach-deadline-total-ms must be whole milliseconds/, odd);
    t.match(bad({ 'reach-deadline-ms': odd }), /reach-deadline-ms must be whole milliseconds/, odd);
  }
  t.match(bad({ 'reach-deadline-total-ms': '100, 9000' }), /more than once/);
  t.match(bad({ 'reach-deadline-total-ms': '99999999999999' }), /above the maximum of 2592000000 ms/);
  t.match(submission(NAME, { 'reach-deadline-ms': '0' }), { deadlineMs: null }, 'what is left of a call is not what a message has');
  t.match(submission(NAME, { 'reach-deadline-total-ms': ' 500 ' }), { deadlineMs: 500 });
  t.match(bad({ 'reach-tags': 'nonsense' }), /key=value/);
  t.match(bad({ 'reach-agent': 'x' }), /agent id/);
  t.match(bad({ 'idempotency-key': 'a b' }), /printable/);
  t.match(bad({ 'idempotency-key': 'a', 'reach-power-id': 'b' }), /differ/);
  t.match(bad({ 'reach-reply-to': 'elsewhere' }), /inbox or none/);
  t.equal(ASKER.role, 'planner');
  t.end();
});

const FLAGS = [
  ['00', true, '00'],
  ['01', true, '01'],
  ['02', true, '02'],
  ['03', true, '03'],
  ['00', false, '00'],
  ['01', false, '00'],
  ['02', false, '02'],
  ['03', false, '02'],
] as const;

t.test('the span of a submission', async (t) => {
  const TRACE = '0af7651916cd43dd8448eb211c80319c';
  const from = { traceparent: `00-${TRACE}-b7ad6b7169203331-01` };

  await t.test('is the one that the envelope names, below that of the sender', async (t) => {
    const world = new SendWorld([worker('a')]);
    await world.submit(NAME, from);
    const envelope = world.envelope();
    const [span] = world.stages.told;
    t.equal(envelope.traceparent, `00-${TRACE}-${span?.span_id}-01`);
    t.equal(envelope.sent_in, 'b7ad6b7169203331');
    t.match(span, {
      trace_id: TRACE,
      parent_span_id: 'b7ad6b7169203331',
      stage: 'send',
      code: 0,
      capability: NAME,
      version: '2.1.0',
      task_id: envelope.task_id,
      pool: envelope.pool,
    });
    await world.submit(NAME, {});
    t.equal(world.envelope().sent_in, undefined, 'where the trace begins nothing stands above it');
    t.equal(world.stages.told[1]?.parent_span_id, '');
  });

  await t.test('says where there is nobody, and why one was refused', async (t) => {
    const world = new SendWorld([worker('a')]);
    await world.submit('crm.no.body', from);
    t.match(world.stages.told[0], { trace_id: TRACE, parent_span_id: 'b7ad6b7169203331', stage: 'send', capability: 'crm.no.body' });
    t.not(world.stages.told[0]?.code, 0);
    await world.submit('crm.no.body', {});
    t.match(world.stages.told[1], { trace_id: /^[0-9a-f]{32}$/, parent_span_id: '' });
  });

  await t.test('a trace that there is no room for is not picked further on either', async (t) => {
    const world = new SendWorld([worker('a')]);
    world.stages.picksAll = false;
    await world.submit(NAME, from);
    t.match(world.envelope().traceparent, /-00$/);
    t.same(world.stages.picked, [false]);
  });

  await t.test('the flags that the sender wrote go on, but for that of a trace that is not picked', async (t) => {
    for (const [came, picksAll, leaves] of FLAGS) {
      const world = new SendWorld([worker('a')]);
      world.stages.picksAll = picksAll;
      await world.submit(NAME, { traceparent: `00-${TRACE}-b7ad6b7169203331-${came}` });
      t.equal(world.envelope().traceparent.slice(-2), leaves, `${came}, ${picksAll ? 'picked' : 'not picked'}`);
    }
  });

  await t.test('its time on the disk is one of its own', async (t) => {
    const world = new SendWorld([worker('a')]);
    await world.submit(NAME, from);
    const envelope = world.envelope();
    const data = encodeEnvelope(envelope, Buffer.from('{}'));
    tellOutbox(world.stages, data, envelope.accepted_at_ms + 5_000, '');
    tellOutbox(world.stages, data, envelope.accepted_at_ms + 5_000, 'the server takes less');
    tellOutbox(world.stages, Buffer.from('nonsense'), 1, '');
    const [well, never] = world.stages.of('outbox');
    t.match(well, { parent_span_id: world.stages.of('send')[0]?.span_id, elapsed_ms: 5_000, code: 0, task_id: envelope.task_id });
    t.match(never, { code: Code.payload_too_large, detail: 'the server takes less' });
    t.equal(world.stages.of('outbox').length, 2);
  });
});
