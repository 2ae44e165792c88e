import t from 'tap';
import { SeededRandom } from '../../../base/random.ts';
import type { Override } from '../../../proto/language/types.ts';
import type { Attempt, Started } from '../../../sidecar/call/attempt-record.ts';
import { Call, headerOf, NO_HEADERS, payloadOf, record } from '../../../sidecar/call/call.ts';
import { Principal } from '../../../sidecar/call/principal.ts';
import { answered, failed, NO_BODY, type Reply } from '../../../sidecar/call/reply.ts';
import { isAmbiguous, resultOf } from '../../../sidecar/call/result.ts';
import { type Verdict, wordsOf } from '../../../sidecar/call/verdict.ts';
import { acl, aclOf } from '../../../sidecar/acl/acl.ts';
import { judgeAnswer, judgeFailure, retryAfterMsOf } from '../../../sidecar/attempt/judge.ts';
import { affinityKeyOf } from '../../../sidecar/contract/affinity-key.ts';
import { contract } from '../../../sidecar/contract/contract.ts';
import { deadline } from '../../../sidecar/deadline/deadline.ts';
import { identify, identifyPeer } from '../../../sidecar/identify/identify.ts';
import { StaticTokens } from '../../../sidecar/identify/static-tokens.ts';
import { CallerLimits } from '../../../sidecar/limits/limits.ts';
import { loops, pathWith } from '../../../sidecar/loops/loops.ts';
import { name, targetOf } from '../../../sidecar/name/name.ts';
import { overrides } from '../../../sidecar/overrides/overrides.ts';
import { inbound, outbound } from '../../../sidecar/pipeline.ts';
import { RetryBudget } from '../../../sidecar/retry/budget.ts';
import { backoffMs, retry } from '../../../sidecar/retry/retry.ts';
import { readScenario } from '../../../sidecar/lab/read-scenario.ts';
import { World } from '../../../sidecar/lab/world.ts';
import type { Engine } from '../../../sidecar/engine.ts';
import type { Capability, Version } from '../../../sidecar/table/snapshot.ts';
import { resolve } from '../../../sidecar/resolve/resolve.ts';

/** A lab over a table in YAML. */
function lab(table: string): World {
  const reading = readScenario(`scenario: stages\nas: web.desk.1\n${table}\nsteps: [{wait: 0s}]\n`, 'table.yaml');
  if ('problems' in reading) throw new Error(reading.problems.map((each) => `${each.line}: ${each.path} ${each.message}`).join('\n'));
  return new World(reading.scenario);
}

interface Parts {
  readonly as?: string;
  readonly headers?: Readonly<Record<string, string | string[]>>;
  readonly body?: string;
  readonly contentType?: string;
}

/** A call that has its table and its caller. */
function ask(world: World, asked: string, parts: Parts = {}): Call {
  const call = new Call(
    'sandbox',
    asked,
    parts.headers ?? NO_HEADERS,
    Buffer.from(parts.body ?? '{}'),
    parts.contentType ?? 'application/json',
    false,
    world.clock,
  );
  call.table = world.table.current();
  call.principal = new Principal(parts.as ?? 'web.desk.1');
  call.traceId = '0af7651916cd43dd8448eb211c80319c';
  return call;
}

/** The same, and `name` has passed. */
function named(world: World, asked: string, parts: Parts = {}): Call {
  const call = ask(world, asked, parts);
  if (!record(call, name(call))) throw new Error(said(name(call)).words);
  return call;
}

/** Through the whole pipeline, time moving as it must. */
async function go(world: World, call: Call, engine: Engine = world.engine): Promise<Call> {
  let isOver = false;
  void outbound(engine, call).then(() => (isOver = true));
  await world.clock.advance(0);
  for (let next = world.clock.nextAt(); !isOver && next !== null; next = world.clock.nextAt()) await world.clock.advanceTo(next);
  return call;
}

/** The engine with another way out. */
function withTransport(world: World, transport: { invoke(): Promise<Reply> }): Engine {
  return { ...world.engine, transports: { for: () => transport } as unknown as Engine['transports'] };
}

function said(verdict: Verdict): { name: string; code: number; passes: boolean; words: string } {
  const { reason } = verdict;
  return {
    name: `${reason.stage}.${reason.name}`,
    code: reason.code,
    passes: reason.passes,
    words: wordsOf(reason, verdict.a, verdict.b, verdict.c),
  };
}

const reasonsOf = (call: Call): string[] => call.trace.lines().map((line) => `${line.stage}.${line.reason}`);
const detailOf = (call: Call): string => resultOf(call, true).detail;

const ORDER = `
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, execution: idempotent, aliases: [order]}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0]}
`;

t.test('identify', async (t) => {
  const tokens = new StaticTokens(
    [
      { agent: 'web.desk.1', token: 'secret-1' },
      { agent: 'web.desk.2', token: 'secret-2' },
    ],
    [{ name: 'sidecar-b', token: 'peer-1' }],
    null,
  );
  const world = lab(ORDER);
  const at = (headers: Parts['headers'], identities = tokens): { call: Call; verdict: ReturnType<typeof said> } => {
    const call = new Call('http', 'order', headers ?? NO_HEADERS, NO_BODY, '', false, world.clock);
    return { call, verdict: said(identify(identities, call)) };
  };
  t.test('a token stands for its agent', async (t) => {
    const { call, verdict } = at({ authorization: 'Bearer secret-2' });
    t.match(verdict, { name: 'identify.known', passes: true });
    t.match(call.principal, { agent: 'web.desk.2', team: 'web', role: 'desk', id: '2', via: null });
  });
  t.test('no credential, a strange one, another scheme and half a token are refused, and the token is in no word', async (t) => {
    t.match(at({}).verdict, { name: 'identify.no_credential', code: 4001 });
    for (const authorization of ['Bearer secret-3', 'Bearer secret-', 'secret-1', 'Basic secret-1', 'Bearer ', '', 'bearer secret-1']) {
      const { verdict } = at({ authorization });
      t.match(verdict, { name: 'identify.unknown_credential', code: 4001 }, authorization);
      t.notMatch(verdict.words, /secret/);
    }
  });
  t.test('anonymous is for calls without any credential, not for wrong ones', async (t) => {
    const open = new StaticTokens([], [], 'dev.any.1');
    t.equal(at({}, open).call.principal?.agent, 'dev.any.1');
    t.match(at({ authorization: 'Bearer wrong' }, open).verdict, { code: 4001 });
  });
  t.test('a caller that the way in knows already is kept', async (t) => {
    const call = new Call('channel', 'order', NO_HEADERS, NO_BODY, '', false, world.clock);
    call.principal = new Principal('web.desk.9');
    t.match(said(identify(tokens, call)), { passes: true, words: 'web.desk.9 is calling' });
  });
  t.test("on the mesh port the sidecar shows itself and names the agent; an agent's token counts for nothing there", async (t) => {
    const peer = (headers: Record<string, string>): Call & { verdict: ReturnType<typeof said> } => {
      const call = new Call('mesh', 'order', headers, NO_BODY, '', false, world.clock);
      return Object.assign(call, { verdict: said(identifyPeer(tokens, call)) });
    };
    const good = peer({ authorization: 'Bearer peer-1', 'reach-caller': 'web.desk.1' });
    t.match(good.verdict, { name: 'identify.vouched', passes: true });
    t.match(good.principal, { agent: 'web.desk.1', via: 'sidecar-b' });
    t.match(peer({ authorization: 'Bearer secret-1', 'reach-caller': 'web.desk.1' }).verdict, {
      name: 'identify.unknown_peer',
      code: 4001,
    });
    t.match(peer({ 'reach-caller': 'web.desk.1' }).verdict, { code: 4001 });
    t.match(peer({ authorization: 'Bearer peer-1' }).verdict, { name: 'identify.no_caller', code: 4001 });
  });
});

t.test('name', async (t) => {
  const world = lab(ORDER);
  t.test('a name, an alias, a range and tags are read once into canonical form', async (t) => {
    t.match(said(name(ask(world, 'crm.order.query'))), { name: 'name.named' });
    const alias = ask(world, 'order@^2.0', { headers: { 'reach-tags': 'tier=gold, lang=de' } });
    t.match(said(name(alias)), { name: 'name.alias', words: 'order is an alias of crm.order.query' });
    t.equal(alias.capability?.name, 'crm.order.query');
    t.equal(alias.range, '^2.0');
    t.equal(alias.tags, 'lang=de,tier=gold');
  });
  t.test('what is not well formed is 4006 and shows the rule; what nobody offers is 2001 and names the nearest', async (t) => {
    for (const bad of [
      'crm.Order.query',
      'crm.order',
      'crm.order.query.more',
      'crm..query',
      'crm.order.query@',
      'crm.order.query@junk',
      '../etc',
      'crm.order.query ',
      '',
    ]) {
      const verdict = said(name(ask(world, bad)));
      t.equal(verdict.code, 4006, `${bad}: ${verdict.code} ${verdict.words}`);
    }
    t.match(
      said(name(ask(world, 'crm.order'))).words,
      /no.* alias crm\.order.* exactly three segments/,
      'a name of two segments could only be an alias',
    );
    t.match(said(name(ask(world, 'ordr'))).words, 'did you mean order?');
    t.match(said(name(ask(world, 'crm.ordr.query'))), {
      name: 'name.unknown',
      code: 2001,
      words: 'nobody offers crm.ordr.query; did you mean crm.order.query?',
    });
    t.match(said(name(ask(world, 'hr.leave.book'))), { code: 2001, words: 'nobody offers hr.leave.book' });
    t.match(said(name(ask(world, 'order', { headers: { 'reach-tags': 'no equals sign' } }))), { code: 4006 });
  });
  t.test('a bad name is refused a second time too, and many names do not fill memory', async (t) => {
    for (let i = 0; i < 3_000; i++) name(ask(world, `crm.order.query@^2.${i}`));
    t.match(said(name(ask(world, 'crm.order.query@^2.0'))), { passes: true });
    t.match(said(name(ask(world, 'CRM'))), { code: 4006 });
    t.match(said(name(ask(world, 'CRM'))), { code: 4006 });
  });
  t.test('targets of policies are found in the same way', async (t) => {
    t.match(targetOf(world.table.current(), 'order@^2'), { capability: { name: 'crm.order.query' }, range: '^2' });
    t.equal(targetOf(world.table.current(), 'hr.leave.book'), null);
    t.equal(targetOf(world.table.current(), 'not a name'), null);
  });
});

t.test('acl', async (t) => {
  const world = lab(`
contracts:
  - {name: crm.order.query, version: 1.0.0, description: x, acl: ["web.*.*"], aliases: [order]}
  - {name: crm.order.query, version: 2.0.0, description: x, acl: ["web.desk.7", "team:ops"]}
  - {name: crm.refund.apply, version: 1.0.0, description: x, acl: ["role:desk", "agent:bot.helper.a"]}
  - {name: open.data.read, version: 1.0.0, description: x, acl: public}
providers: []
`);
  const may = (asked: string, as: string): { code: number; words: string } => said(acl(named(world, asked, { as })));
  t.test('patterns over team, role and id; the words name the entry that let in, or the list that did not', async (t) => {
    t.match(may('open.data.read', 'any.body.1'), { code: 0, words: 'any.body.1 may call open.data.read: admitted by public' });
    t.match(may('crm.refund.apply', 'web.desk.1'), { code: 0, words: /admitted by role:desk$/ });
    t.match(may('crm.refund.apply', 'bot.helper.a'), { code: 0, words: /admitted by agent:bot\.helper\.a$/ });
    t.match(may('crm.refund.apply', 'bot.helper.b'), {
      code: 4002,
      words: 'bot.helper.b may not call crm.refund.apply: no entry of its ACL (role:desk, agent:bot.helper.a) names it',
    });
  });
  t.test('an alias is held against the list of what it stands for', async (t) => {
    t.match(may('order', 'bot.helper.a'), { code: 4002, words: /may not call crm\.order\.query/ });
  });
  t.test('a version that is named from outside is held against its own list', async (t) => {
    const call = named(world, 'crm.order.query', { as: 'web.shop.1' });
    const [newest, oldest] = (call.capability as Capability).versions as [Version, Version];
    t.equal(aclOf(call, oldest), null);
    t.match(said(aclOf(call, newest) as Verdict), {
      code: 4002,
      words: /may not call crm\.order\.query@2\.0\.0: no entry of its ACL \(web\.desk\.7, team:ops\)/,
    });
  });
  t.test('where the provider is hosted, a peer that names a version does not get round that version’s list', async (t) => {
    const hosted = lab(`
contracts:
  - {name: crm.order.query, version: 1.0.0, description: x, acl: ["team:web"]}
  - {name: crm.order.query, version: 2.0.0, description: x, acl: ["team:ops"]}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@1.0.0, crm.order.query@2.0.0], endpoint: {type: mock, address: crm.order.1}}
`);
    const { document } = hosted.table.current();
    hosted.table.install(
      { ...document, providers: document.providers.map((each) => ({ ...each, via: hosted.engine.config.name })) },
      'test',
    );
    const arrive = async (agent: string, version: string): Promise<Call> => {
      const call = new Call('message', 'crm.order.query', NO_HEADERS, Buffer.from('{}'), 'application/json', false, hosted.clock);
      call.principal = new Principal(agent, 'two');
      call.totalMs = 1_000;
      const done = inbound(hosted.engine, call, 'crm.order.1', version);
      await hosted.clock.advance(1_000);
      await done;
      return call;
    };
    t.match(await arrive('web.desk.1', '1.0.0'), { code: 0, attempts: { length: 1 } });
    t.match(await arrive('ops.night.1', '2.0.0'), { code: 0, attempts: { length: 1 } });
    const refused = await arrive('web.desk.1', '2.0.0');
    t.match(said(refused.refusal as Verdict), { code: 4002, words: /may not call crm\.order\.query@2\.0\.0/ });
    t.equal(refused.attempts.length, 0, 'nothing reached the provider');
  });
  t.test('a list in audit lets in and says whom it would not: by the contract, by a policy, by this sidecar', async (t) => {
    const text = (own: string, policies: string): string => `
contracts:
  - {name: crm.order.query, version: 1.0.0, description: x, acl: ${own}}
providers: []
${policies}`;
    const ask1 = (table: string): Call => named(lab(table), 'crm.order.query', { as: 'bot.helper.a' });
    const judged = (call: Call): unknown => ({ ...said(acl(call)), isLetIn: call.letIn !== null });
    const words =
      'bot.helper.a would not be let in to crm.order.query: no entry of its ACL (team:web) names it; the list is in audit, so it goes on';
    t.match(judged(ask1(text('{allow: ["team:web"], mode: audit}', ''))), { code: 0, words, isLetIn: true });
    t.match(judged(ask1(text('{allow: ["team:web"]}', ''))), { code: 4002, isLetIn: false });
    t.match(judged(ask1(text('["team:web"]', 'policies: [{capability: "*", acl_mode: audit}]'))), { code: 0, words, isLetIn: true });
    t.match(judged(ask1(text('{allow: ["team:web"], mode: audit}', 'policies: [{capability: crm.*, acl_mode: enforce}]'))), { code: 4002 });
    t.match(judged(ask1(text('{allow: ["team:bot"], mode: audit}', ''))), { code: 0, words: /admitted by team:bot/, isLetIn: false });
  });
  t.test('versions with different lists: who is in any may go on, and gets only a version that admits him', async (t) => {
    t.match(may('crm.order.query', 'ops.night.1'), { code: 0 });
    t.match(may('crm.order.query', 'web.shop.1'), { code: 0 });
    t.match(may('crm.order.query', 'x.y.z'), { code: 4002, words: /web\.\*\.\*/ });
  });
});

t.test('overrides', async (t) => {
  const world = lab(
    `${ORDER}  - {agent_id: crm.old.1, offers: [crm.order.legacy@1.0.0]}
`.replace(
      'contracts:',
      'contracts:\n  - {name: crm.order.legacy, version: 1.0.0, description: x, acl: ["team:nobody"], execution: idempotent}',
    ),
  );
  const document = world.table.current().document;
  const base: Override = {
    name: 'rule',
    action: 'block',
    capability: null,
    provider: null,
    caller: null,
    to: null,
    data: null,
    cut: false,
    reason: 'a test',
    author: 'ann',
    expiresAtMs: null,
  };
  const under = (rules: readonly Partial<Override>[], parts: Parts = {}): { call: Call; verdict: ReturnType<typeof said> } => {
    world.install({ ...document, overrides: rules.map((rule, i) => ({ ...base, name: `rule-${i}`, ...rule })) }, 'test');
    const call = named(world, 'order', parts);
    const verdict = said(overrides(call));
    // What the pipeline finds, it is to find itself.
    call.reroutedBy = null;
    return { call, verdict };
  };
  t.test('none is the usual case', async (t) => {
    t.match(under([]).verdict, { name: 'overrides.none', passes: true });
  });
  t.test('block and drain refuse with reason and author', async (t) => {
    t.match(under([{ capability: 'crm.order.query' }]).verdict, {
      name: 'overrides.blocked',
      code: 2006,
      words: 'override rule-0 blocks it: a test (by ann)',
    });
  });
  t.test('selectors: capability patterns, callers by agent, team, role and stars; both must fit', async (t) => {
    const hits = (rule: Partial<Override>, as = 'web.desk.1'): boolean => under([rule], { as }).verdict.code === 2006;
    for (const capability of ['crm.order.query', 'crm.order.*', 'crm.*', '*']) t.ok(hits({ capability }), capability);
    for (const capability of ['crm.order.legacy', 'crm.ord.*', 'crm.o.*', 'cr.*', 'web.*']) t.notOk(hits({ capability }), capability);
    for (const caller of ['web.desk.1', 'web.desk.*', 'web.*.*', '*.desk.*', 'team:web', 'role:desk', 'agent:web.desk.1'])
      t.ok(hits({ caller }), caller);
    for (const caller of ['web.desk.2', 'team:we', 'role:des', 'agent:web.desk.11', '*.shop.*']) t.notOk(hits({ caller }), caller);
    t.notOk(hits({ capability: 'crm.*', caller: 'team:ops' }));
  });
  t.test('an expired rule counts as absent, to the millisecond', async (t) => {
    const ends = world.clock.wallMs() + 10;
    t.match(under([{ capability: '*', expiresAtMs: ends }]).verdict, { code: 2006 });
    await world.clock.advance(9);
    t.match(said(overrides(named(world, 'order'))), { code: 2006 });
    await world.clock.advance(1);
    t.match(said(overrides(named(world, 'order'))), { name: 'overrides.none' });
  });
  t.test('a rule for one provider is left to choose', async (t) => {
    t.match(under([{ provider: 'crm.order.1' }]).verdict, { name: 'overrides.none' });
  });
  t.test('degrade answers with its data; without data and without a fallback it refuses', async (t) => {
    const plain = under([{ action: 'degrade', capability: 'crm.*', data: { text: 'later' } }]).call;
    await go(world, plain);
    t.match(resultOf(plain, true), { entry: { code: 0 }, provider: null, call: { degraded: true } });
    t.equal(resultOf(plain, true).data.toString(), '{"text":"later"}');
    t.strictSame(reasonsOf(plain).slice(-2), ['overrides.degraded', 'fallback.static']);
    const empty = await go(world, under([{ action: 'degrade', capability: 'crm.*' }]).call);
    t.equal(empty.code, 2006);
  });
  t.test('reroute serves by another capability, whose own ACL counts', async (t) => {
    const moved = await go(world, under([{ action: 'reroute', capability: 'crm.order.query', to: 'crm.order.legacy' }]).call);
    t.equal(moved.code, 4002);
    t.match(detailOf(moved), /may not call crm\.order\.legacy/);
    const ours = await go(
      world,
      under([{ action: 'reroute', capability: 'crm.order.query', to: 'crm.order.legacy' }], { as: 'nobody.at.1' }).call,
    );
    t.match(resultOf(ours, true), { entry: { code: 0 }, provider: 'crm.old.1', version: '1.0.0' });
    const lost = await go(world, under([{ action: 'reroute', capability: 'crm.order.query', to: 'hr.leave.book' }]).call);
    t.equal(lost.code, 2006);
    t.match(detailOf(lost), /sends it to hr\.leave\.book, which is not in the table/);
  });
  t.test('a reroute in a circle ends', async (t) => {
    const call = await go(
      world,
      under(
        [
          { action: 'reroute', capability: 'crm.order.query', to: 'crm.order.legacy' },
          { action: 'reroute', capability: 'crm.order.legacy', to: 'crm.order.query' },
        ],
        { as: 'nobody.at.1' },
      ).call,
    );
    t.equal(call.code, 0);
  });
});

t.test('limits', async (t) => {
  const world = lab(`
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, execution: idempotent, limits: {per_caller: 2}, fallback: [{capability: crm.order.lookup}]}
  - {name: crm.order.lookup, version: 1.0.0, description: x, acl: public, execution: idempotent, limits: {per_caller: 2}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.look.1, offers: [crm.order.lookup@1.0.0]}
mocks:
  crm.order.1: {refuse_connect: true}
  crm.look.1: {latency: 100ms}
`);
  t.test('so many of one caller at once, no more; others and other capabilities have their own', async (t) => {
    const limits = new CallerLimits();
    const take = (asked: string, as = 'web.desk.1'): Call => {
      const call = named(world, asked, { as });
      record(call, limits.check(call));
      return call;
    };
    const held = [take('crm.order.query'), take('crm.order.query')];
    t.match(
      held.map((call) => call.code),
      [0, 0],
    );
    const third = take('crm.order.query');
    t.equal(third.code, 3002);
    t.match(detailOf(third), 'web.desk.1 has 2 calls to crm.order.query in flight, its limit');
    t.equal(third.callerSlot, null, 'a refused call holds nothing');
    t.equal(take('crm.order.query', 'web.desk.2').code, 0);
    t.equal(take('crm.order.lookup').code, 0);
    t.equal(limits.inFlight(), 4);
    held[0]?.callerSlot?.release();
    t.equal(take('crm.order.query').code, 0);
  });
  t.test('a fallback moves the slot to the other capability, and the end gives it back', async (t) => {
    const call = ask(world, 'crm.order.query');
    const over = go(world, call);
    t.equal(world.engine.limits.inFlight(), 1, 'one slot, though two capabilities were asked');
    await over;
    t.match([call.code, call.capability?.name, call.degraded], [0, 'crm.order.lookup', true]);
    t.equal(world.engine.limits.inFlight(), 0);
  });
  t.test('callers that come and go leave nothing behind that counts', async (t) => {
    const limits = new CallerLimits();
    const held = named(world, 'crm.order.query', { as: 'web.desk.held' });
    limits.check(held);
    for (let i = 0; i < 10_500; i++) {
      const call = named(world, 'crm.order.query', { as: `web.desk.n${i}` });
      limits.check(call);
      call.callerSlot?.release();
    }
    t.equal(limits.inFlight(), 1);
    held.callerSlot?.release();
    t.equal(limits.inFlight(), 0);
  });
});

t.test('contract', async (t) => {
  const world = lab(`
contracts:
  - name: crm.order.query
    version: 2.0.0
    description: x
    acl: public
    execution: once
    limits: {request: 200B}
    input: {type: object, required: [id], properties: {id: {type: integer}}}
    affinity: {from: /session/id, required: true}
  - {name: doc.text.store, version: 1.0.0, description: x, acl: public}
  - {name: web.page.show, version: 1.0.0, description: x, acl: public, affinity: {from: "header:x-session"}}
providers: []
`);
  const check = (asked: string, parts: Parts): { call: Call; code: number; name: string; words: string } => {
    const call = named(world, asked, parts);
    call.affinityKey = affinityKeyOf(call);
    return { call, ...said(contract(call, call.capability?.versions[0] as Version)) };
  };
  const GOOD = '{"id":7,"session":{"id":"s1"}}';
  t.test('size, form, schema and key', async (t) => {
    t.match(check('crm.order.query', { body: GOOD }), {
      name: 'contract.kept',
      code: 0,
      words: 'the request fits crm.order.query@2.0.0 (once)',
    });
    t.match(check('crm.order.query', { body: `{"id":7,"session":{"id":"${'s'.repeat(200)}"}}` }), {
      code: 4005,
      words: /the body has 2\d\d bytes, 200 are allowed/,
    });
    t.match(check('crm.order.query', { body: '{"id":7' }), { code: 4009, name: 'contract.affinity_key' });
    t.match(check('crm.order.query', { body: '{"id":7', headers: { 'reach-affinity': 'k' } }), { code: 4003, name: 'contract.not_json' });
    t.match(check('crm.order.query', { body: '{"id":"7","session":{"id":"s"}}' }), { code: 4003, name: 'contract.input', words: /\/id/ });
    t.match(check('crm.order.query', { body: '{"session":{"id":"s"}}' }), { code: 4003, words: /id/ });
    t.match(check('crm.order.query', { body: '{"id":7}' }), { code: 4009, words: /payload \/session\/id/ });
  });
  t.test('a body that claims to be JSON must be, also without a schema; another type is passed on', async (t) => {
    t.match(check('doc.text.store', { body: '{', contentType: 'application/json; charset=utf-8' }), { code: 4003 });
    t.match(check('doc.text.store', { body: '{', contentType: 'application/vnd.api+json' }), { code: 4003 });
    t.match(check('doc.text.store', { body: '{', contentType: 'text/plain' }), { code: 0 });
    t.match(check('doc.text.store', { body: '', contentType: 'application/json' }), { code: 0 });
  });
  t.test("how often it may run: the contract's word, or the caller's for this call", async (t) => {
    t.equal(check('crm.order.query', { body: GOOD }).call.execution, 'once');
    t.equal(check('crm.order.query', { body: GOOD, headers: { 'reach-execution': 'idempotent' } }).call.execution, 'idempotent');
    t.match(check('crm.order.query', { body: GOOD, headers: { 'reach-execution': 'twice' } }), {
      code: 4003,
      words: /twice is none of once, idempotent, keyed/,
    });
  });
  t.test('one key, in either header; two different ones are not guessed at', async (t) => {
    const keyed = (headers: Record<string, string | string[]>): [string | null, number] => {
      const { call, code } = check('doc.text.store', { headers });
      return [call.powerId, code];
    };
    t.strictSame(keyed({ 'idempotency-key': 'a:1' }), ['a:1', 0]);
    t.strictSame(keyed({ 'reach-power-id': 'a:1', 'idempotency-key': 'a:1' }), ['a:1', 0]);
    t.strictSame(keyed({ 'reach-power-id': 'a:1', 'idempotency-key': 'a:2' }), [null, 4003]);
    for (const bad of ['', 'a b', 'a\u0007', 'ä', 'x'.repeat(257)])
      t.strictSame(keyed({ 'idempotency-key': bad }), [null, 4003], JSON.stringify(bad.slice(0, 9)));
    t.strictSame(keyed({ 'idempotency-key': ['a', 'b'] }), [null, 4003]);
  });
  t.test("the key of the conversation: the contract's place, then Reach-Affinity, then the sequence", async (t) => {
    const key = (asked: string, parts: Parts): string | null => affinityKeyOf(named(world, asked, parts));
    t.equal(key('crm.order.query', { body: GOOD, headers: { 'reach-affinity': 'other' } }), 's1');
    t.equal(key('crm.order.query', { body: '{"session":{"id":42}}' }), '42', 'a number is a key too');
    t.equal(key('crm.order.query', { body: '{"session":{"id":""}}', headers: { 'reach-sequence-id': 'q' } }), 'q');
    for (const body of ['{"session":{"id":null}}', '{"session":{"id":{}}}', '{"session":7}', '[]', 'null', 'junk'])
      t.equal(key('crm.order.query', { body }), null, body);
    t.equal(key('web.page.show', { headers: { 'x-session': 'h', 'reach-affinity': 'a' } }), 'h');
    t.equal(key('web.page.show', { headers: { 'reach-affinity': 'a', 'reach-sequence-id': 'q' } }), 'a');
    const long = key('web.page.show', { headers: { 'x-session': 'k'.repeat(10_000) } }) as string;
    t.ok(
      long.length < 100 && long === key('web.page.show', { headers: { 'x-session': 'k'.repeat(10_000) } }),
      'a long one is kept as a digest',
    );
    t.not(long, key('web.page.show', { headers: { 'x-session': 'k'.repeat(10_001) } }));
  });
  t.test('a payload is parsed once, and a header given twice is no header', async (t) => {
    const call = named(world, 'doc.text.store', { body: '{"a":1}', headers: { 'x-a': ['1', '2'], 'x-b': '1' } });
    t.equal(payloadOf(call), payloadOf(call));
    t.equal(headerOf(call, 'x-a'), null);
    t.equal(headerOf(call, 'x-b'), '1');
  });
});

t.test('deadline', async (t) => {
  const world = lab(ORDER.replace('aliases', 'deadline: 4s, aliases'));
  const at = (
    headers: Record<string, string | string[]>,
    maxMs = 600_000,
  ): { call: Call; verdict: ReturnType<typeof said>; left: number; step: number } => {
    const call = named(world, 'order', { headers });
    const verdict = said(deadline(call, call.capability?.versions[0] as Version, maxMs));
    return { call, verdict, left: call.deadlineAt - call.startedAt, step: call.stepEndsAt - call.startedAt };
  };
  t.test("the caller's word, else the contract's", async (t) => {
    t.match(at({}), { verdict: { name: 'deadline.by_contract' }, left: 4_000, step: 4_000, call: { totalMs: 4_000 } });
    t.match(at({ 'reach-deadline-ms': '2500' }), { verdict: { name: 'deadline.given' }, left: 2_500, call: { totalMs: 2_500 } });
    t.match(at({ 'reach-deadline-ms': '2500', 'reach-deadline-total-ms': '10000' }), { left: 2_500, call: { totalMs: 10_000 } });
    t.match(at({ 'reach-deadline-total-ms': '9000' }), { left: 9_000, call: { totalMs: 9_000 } });
    t.match(
      at({ 'reach-deadline-ms': '9000', 'reach-deadline-total-ms': '1000' }),
      { left: 1_000, call: { totalMs: 1_000 } },
      'of two that contradict each other the smaller counts',
    );
  });
  t.test("nothing left is 5001 and nobody is contacted; what is no number, or above the maximum, is the caller's mistake", async (t) => {
    for (const over of ['0', '-5']) t.match(at({ 'reach-deadline-ms': over }).verdict, { code: 5001, name: 'deadline.over' });
    for (const bad of ['', 'abc', '1.5', '1e3', '10s', '2030-01-01T00:00:00Z', '600001', '9'.repeat(40)])
      t.match(at({ 'reach-deadline-ms': bad }).verdict, { code: 4003, name: 'deadline.malformed' }, bad);
    t.match(at({ 'reach-deadline-total-ms': 'x' }).verdict, { code: 4003, words: /Reach-Deadline-Total-Ms/ });
    t.match(at({ 'reach-deadline-ms': ['1', '2'] }).verdict, { code: 4003 });
  });
  t.test('a step may use what is left minus what later steps are given', async (t) => {
    const BUDGET = 'intent=1500, sentiment=1000, order=2500, knowledge=3000, generation=2000';
    const steps: readonly (readonly [step: string, left: string, may: number])[] = [
      ['intent', '10000', 1_500],
      ['order', '10000', 5_000],
      ['generation', '3000', 3_000],
      ['knowledge', '2001', 1],
    ];
    for (const [step, left, may] of steps)
      t.match(
        at({ 'reach-deadline-ms': left, 'reach-budget': BUDGET, 'reach-step': step }),
        { verdict: { name: 'deadline.step' }, step: may },
        step,
      );
    t.match(at({ 'reach-deadline-ms': '2000', 'reach-budget': BUDGET, 'reach-step': 'knowledge' }).verdict, {
      code: 5002,
      name: 'deadline.no_share',
    });
    t.match(at({ 'reach-deadline-ms': '2000', 'reach-budget': BUDGET, 'reach-step': 'lunch' }).verdict, { code: 4003, words: /lunch/ });
    t.match(at({ 'reach-step': 'order' }).verdict, { code: 4003 });
    t.match(at({ 'reach-budget': 'order' }).verdict, { code: 4003 });
    t.match(at({ 'reach-budget': BUDGET }), { verdict: { passes: true }, left: 4_000, step: 4_000 }, 'a budget carried along binds nobody');
  });
  t.test('a fallback brings no time of its own: the task keeps the time that it was given first', async (t) => {
    const two = lab(`
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, execution: idempotent, deadline: 1s, fallback: [{capability: crm.order.lookup}]}
  - {name: crm.order.lookup, version: 1.0.0, description: x, acl: public, execution: idempotent, deadline: 60s, timeout: 30s}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.look.1, offers: [crm.order.lookup@1.0.0]}
mocks:
  crm.order.1: {latency: 600ms, status: 500}
  crm.look.1: {hang: true}
`);
    const call = await go(two, ask(two, 'crm.order.query'));
    t.match([call.code, two.clock.now() - call.startedAt], [5001, 1_000]);
  });
});

t.test('loops', async (t) => {
  const world = lab(ORDER);
  const hop = (path: string | undefined, max = 16): { verdict: ReturnType<typeof said>; sent: string } => {
    const call = named(world, 'order', { headers: path === undefined ? {} : { 'reach-path': path } });
    call.chosen = world.table.current().capabilities.get('crm.order.query')?.versions[0]?.candidates[0] ?? null;
    return { verdict: said(loops(call, max)), sent: pathWith(call) };
  };
  t.match(hop(undefined), { verdict: { passes: true }, sent: 'crm.order.1>crm.order.query' });
  t.match(hop('a.b.c>x.y.z'), { verdict: { words: 'hop 2 of 16 allowed' }, sent: 'a.b.c>x.y.z, crm.order.1>crm.order.query' });
  t.match(
    hop('crm.order.1>crm.refund.apply,crm.order.2>crm.order.query').verdict,
    { passes: true },
    'same agent with another capability, same capability of another agent',
  );
  t.match(hop('x.y.z>a.b.c , crm.order.1>crm.order.query').verdict, {
    code: 2005,
    words:
      'crm.order.1>crm.order.query is already in the path of this call: x.y.z>a.b.c → crm.order.1>crm.order.query → crm.order.1>crm.order.query',
  });
  const long = Array.from({ length: 15 }, (_, i) => `a.b.${i}>x.y.z`);
  t.match(hop(long.join(',')).verdict, { passes: true, words: 'hop 16 of 16 allowed' });
  t.match(hop([...long, 'a.b.16>x.y.z'].join(',')).verdict, { code: 2005, name: 'loops.too_many_hops', words: /^17 hops, 16 allowed/ });
});

t.test('judge', async (t) => {
  const reply = (status: number, headers: Record<string, string> = {}, body = ''): Reply => answered(status, headers, Buffer.from(body));
  const json = (body: unknown) => (): unknown => body;
  const none = json(undefined);
  t.test("what a status means: for the caller, and for the provider's health", async (t) => {
    const rows: readonly (readonly [status: number, code: number, outcome: string])[] = [
      [200, 0, 'success'],
      [201, 0, 'success'],
      [204, 0, 'success'],
      [304, 0, 'success'],
      [301, 1004, 'failure'],
      [302, 1004, 'failure'],
      [400, 6001, 'success'],
      [404, 6001, 'success'],
      [422, 6001, 'success'],
      [408, 6001, 'ignored'],
      [425, 6001, 'ignored'],
      [429, 3004, 'ignored'],
      [500, 6001, 'failure'],
      [501, 6001, 'failure'],
      [503, 6001, 'failure'],
    ];
    for (const [status, code, outcome] of rows)
      t.match(judgeAnswer(reply(status), null, none), { code, outcome, definitely: false }, String(status));
  });
  t.test("the provider's own word makes it a definite success, whatever the status", async (t) => {
    for (const status of [200, 404, 500])
      t.match(judgeAnswer(reply(status, { 'reach-definitely-success': 'true' }), null, none), {
        code: 0,
        outcome: 'success',
        definitely: true,
      });
    t.match(judgeAnswer(reply(500, { 'reach-definitely-success': 'false' }), null, none), { code: 6001 });
  });
  t.test("the contract's conditions", async (t) => {
    const nothing = { status: null, pointer: null, empty: null, equals: undefined, below: null, above: null };
    const rule = (definitely: object[], unless: object[] = []): never =>
      ({ definitely: definitely.map((one) => ({ ...nothing, ...one })), unless: unless.map((one) => ({ ...nothing, ...one })) }) as never;
    const answer = (body: unknown, rules: never, status = 200): { code: number; definitely: boolean; outcome: string } =>
      judgeAnswer(reply(status), rules, json(body));
    const empty = rule([{ pointer: '/items', empty: true }]);
    for (const body of [{ items: [] }, { items: null }, {}, { items: '' }, { items: {} }])
      t.ok(answer(body, empty).definitely, JSON.stringify(body));
    t.notOk(answer({ items: [0] }, empty).definitely);
    t.notOk(answer({ items: [] }, empty, 500).definitely, 'an error is no success, unless its status is named');
    t.match(answer({}, rule([{ status: 404 }]), 404), { code: 0, definitely: true });
    t.ok(answer({ label: 'neutral' }, rule([{ pointer: '/label', equals: 'neutral' }])).definitely);
    t.ok(answer({ a: { 'x/y': [1, 2] } }, rule([{ pointer: '/a/x~1y', equals: [1, 2] }])).definitely);
    t.ok(answer({ score: 0.2 }, rule([{ pointer: '/score', below: 0.3 }])).definitely);
    t.notOk(answer({ score: '0.2' }, rule([{ pointer: '/score', below: 0.3 }])).definitely, 'text is no number');
    t.match(answer({ error: 'x' }, rule([], [{ pointer: '/error', empty: false }])), { code: 1004, outcome: 'failure' });
    t.match(
      answer({ error: 'x', score: 1 }, rule([{ pointer: '/score', above: 0.5 }], [{ pointer: '/error', empty: false }])),
      { code: 0, definitely: true },
      'definite comes first',
    );
    t.match(
      judgeAnswer(reply(200), rule([], [{ pointer: '/error', empty: false }]), none),
      { code: 0 },
      'what is no JSON has no such place',
    );
  });
  t.test('failures that say nothing about the provider are ignored, the others count', async (t) => {
    for (const code of [3001, 3003, 3004, 2006, 4002, 4003, 4005, 4006, 4007, 4008, 2005, 5003, 9001] as const)
      t.equal(judgeFailure(failed(code, 'not_started', 'x')).outcome, 'ignored', String(code));
    for (const code of [1001, 1002, 1003, 1004, 1005, 1006, 1007, 4004, 5001] as const)
      t.equal(judgeFailure(failed(code, 'started', 'x')).outcome, 'failure', String(code));
  });
  t.test('Retry-After, as seconds, as a date, as junk', async (t) => {
    const now = Date.parse('2030-01-31T18:00:00Z');
    t.equal(retryAfterMsOf(reply(429, { 'retry-after': '7' }), now), 7_000);
    t.equal(retryAfterMsOf(reply(429, { 'retry-after': 'Thu, 31 Jan 2030 18:01:00 GMT' }), now), 60_000);
    for (const value of ['Thu, 31 Jan 2030 17:00:00 GMT', 'soon', '-3', '1.5'])
      t.equal(retryAfterMsOf(reply(429, { 'retry-after': value }), now), 0, value);
    t.equal(retryAfterMsOf(failed(3001, 'not_started', 'x', false, 1_234), now), 1_234);
  });
});

t.test('attempt', async (t) => {
  const table = (mock: string, more = ''): World =>
    lab(`
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, timeout: 1s, deadline: 3s, breaker: {min_calls: 2}${more}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
mocks:
  crm.order.1: ${mock}
`);
  const atRest = (t: { strictSame(a: unknown, b: unknown): void }, world: World): void => {
    const { health } = [...world.table.current().providers.values()][0] as { health: { inFlight: number } };
    t.strictSame(
      [health.inFlight, world.engine.limits.inFlight(), world.mock.open, world.clock.nextAt(), world.witness.attemptsEnded],
      [0, 0, 0, null, world.witness.attemptsRecorded],
    );
  };
  const rows: readonly (readonly [
    what: string,
    mock: string,
    more: string,
    expected: { code: number; ms: number; ambiguous: boolean; started: string; failures: number },
  ])[] = [
    ['an answer', '{latency: 20ms}', '', { code: 0, ms: 20, ambiguous: false, started: 'done', failures: 0 }],
    [
      "no answer within the attempt's time",
      '{hang: true}',
      '',
      { code: 1003, ms: 1_000, ambiguous: true, started: 'started', failures: 1 },
    ],
    [
      'no end of the answer',
      '{hang: mid_body, slow_body: {chunks: 4, every: 10ms}}',
      '',
      { code: 1003, ms: 1_000, ambiguous: true, started: 'started', failures: 1 },
    ],
    ['no connection', '{refuse_connect: true}', '', { code: 1001, ms: 0, ambiguous: false, started: 'not_started', failures: 1 }],
    ['a reset', '{reset: before_head, latency: 5ms}', '', { code: 1002, ms: 5, ambiguous: true, started: 'started', failures: 1 }],
    ['a cut body', '{reset: mid_body}', '', { code: 1004, ms: 0, ambiguous: true, started: 'started', failures: 1 }],
    [
      'an answer above the limit',
      '{body: {text: "12345678901234567890"}}',
      ', limits: {response: 20B}',
      { code: 1005, ms: 0, ambiguous: true, started: 'started', failures: 1 },
    ],
    [
      'an answer that breaks the output schema',
      '{body: {id: x}}',
      ', output: {type: object, properties: {id: {type: integer}}}',
      { code: 4004, ms: 0, ambiguous: false, started: 'done', failures: 1 },
    ],
    ['an error of the agent', '{status: 500}', '', { code: 6001, ms: 0, ambiguous: false, started: 'done', failures: 1 }],
    ['a refusal of the agent', '{status: 404}', '', { code: 6001, ms: 0, ambiguous: false, started: 'done', failures: 0 }],
    [
      'a definite success with an error status',
      '{status: 500, headers: {reach-definitely-success: true}}',
      '',
      { code: 0, ms: 0, ambiguous: false, started: 'done', failures: 0 },
    ],
  ];
  for (const [what, mock, more, expected] of rows) {
    t.test(what, async (t) => {
      const world = table(mock, more);
      const call = await go(world, ask(world, 'crm.order.query'));
      const result = resultOf(call, true);
      const cell = [...world.health.cells()][0];
      t.strictSame(
        {
          code: result.entry.code,
          ms: result.elapsedMs,
          ambiguous: result.ambiguous,
          started: call.attempts[0]?.started,
          failures: cell?.failuresInWindow(world.clock.now()),
        },
        expected,
      );
      atRest(t, world);
    });
  }
  t.test("the caller's time is over before the attempt's: 5001", async (t) => {
    const world = table('{hang: true}');
    const call = await go(world, ask(world, 'crm.order.query', { headers: { 'reach-deadline-ms': '300' } }));
    t.match([call.code, world.clock.now(), detailOf(call)], [5001, 300, /no answer within the 300 ms that were left/]);
    atRest(t, world);
  });
  t.test('a caller that leaves early says nothing about the provider; one that leaves when its time is nearly over does', async (t) => {
    for (const [afterMs, failures] of [
      [500, 0],
      [960, 1],
    ] as const) {
      const world = table('{hang: true}');
      const call = ask(world, 'crm.order.query');
      world.clock.after(afterMs, () => call.cancel());
      await go(world, call);
      t.match([call.code, world.clock.now()], [5003, afterMs]);
      t.equal([...world.health.cells()][0]?.failuresInWindow(world.clock.now()), failures, `after ${afterMs} ms`);
      atRest(t, world);
    }
  });
  t.test(
    "the provider sees who asks, what is left, the trace, the key and the path; the caller's own headers of that kind are not believed",
    async (t) => {
      const world = table(
        '{body: {caller: $header.reach-caller, left: $header.reach-deadline-ms, total: $header.reach-deadline-total-ms, trace: $header.traceparent, key: $header.idempotency-key, path: $header.reach-path}}',
      );
      const call = await go(
        world,
        ask(world, 'crm.order.query', {
          headers: { 'reach-caller': 'root.root.1', 'reach-deadline-ms': '800', 'idempotency-key': 'k-1', traceparent: 'junk' },
        }),
      );
      t.match(JSON.parse(resultOf(call, true).data.toString()), {
        caller: 'web.desk.1',
        left: '800',
        total: '800',
        trace: /^00-0af7651916cd43dd8448eb211c80319c-[0-9a-f]{16}-01$/,
        key: 'k-1',
        path: 'crm.order.1>crm.order.query',
      });
    },
  );
  t.test('an open breaker is refused without an attempt, and says when to come back', async (t) => {
    const world = table('{latency: 10ms, status: 500}', ', execution: once');
    for (let i = 0; i < 2; i++) await go(world, ask(world, 'crm.order.query'));
    await world.clock.advance(20_000);
    const open = resultOf(await go(world, ask(world, 'crm.order.query')), true);
    t.match(
      [open.entry.code, open.call.attempts.length, open.retryAfterMs, open.detail],
      [3001, 0, 100_000, /breaker open for another 100 s/],
    );
  });
  t.test(
    'an idle connection that was closed under us: once more on a fresh one, only for work that may run again, where nobody else may take it',
    async (t) => {
      const send = async (world: World, headers: Record<string, string> = {}): Promise<[code: number, sent: number, attempts: number]> => {
        let sent = 0;
        const transport = {
          invoke: () => Promise.resolve(++sent === 1 ? failed(1002, 'started', 'reset', true) : answered(200, {}, NO_BODY)),
        };
        const engine = withTransport(world, transport);
        const call = await go(world, ask(world, 'order', { headers }), engine);
        t.equal(
          [...world.health.providers()].every((one) => one.inFlight === 0),
          true,
        );
        return [call.code, sent, call.attempts.length];
      };
      const alone = ORDER.replace(/ {2}- \{agent_id: crm\.order\.2.*\n/, '');
      t.strictSame(await send(lab(alone)), [0, 2, 1]);
      t.strictSame(await send(lab(alone), { 'reach-execution': 'once' }), [1002, 1, 1]);

      const other = 'crm.order.2,';
      const asked = lab(ORDER);
      t.strictSame(await send(asked), [0, 2, 2], 'where somebody else may, he does');
      t.strictSame(await send(lab(ORDER), { 'reach-pin': 'crm.order.1' }), [0, 2, 1], 'pinned');
      t.strictSame(await send(lab(ORDER.replace(other, `${other} weight: 0,`))), [0, 2, 1], 'the other has no weight');
      t.strictSame(await send(lab(ORDER.replace(other, `${other} drain: true,`))), [0, 2, 1], 'the other is drained');
      t.strictSame(await send(lab(ORDER.replace('idempotent,', 'idempotent, retry: {max: 0},'))), [0, 2, 1], 'there are no retries');
      const away = lab(ORDER);
      away.health.provider('crm.order.2').offline = true;
      t.strictSame(await send(away), [0, 2, 1], 'the other is not there');
      const busy = lab(ORDER);
      busy.health.provider('crm.order.2').limit = 0;
      t.strictSame(await send(busy), [0, 2, 1], 'the other is busy');
      const ruled = lab(ORDER);
      const { document } = ruled.table.current();
      const rule = { name: 'night', reason: 'x', by: 'y', provider: 'crm.order.2', capability: null, caller: null, to: null, data: null };
      ruled.install(
        { ...document, overrides: [{ ...rule, action: 'drain', expiresAtMs: null }] as unknown as readonly Override[] },
        'test',
      );
      t.strictSame(await send(ruled), [0, 2, 1], 'an operator holds the other back');
      const strict = (): World => lab(ORDER.replace('idempotent,', 'idempotent, affinity: {from: "header:x-session", mode: strict},'));
      t.strictSame(await send(strict(), { 'x-session': 's' }), [0, 2, 1], 'the conversation is there and nowhere else');
      t.strictSame(await send(strict()), [0, 2, 2], 'no conversation');

      const host = lab(ORDER);
      const here = host.table.current().document;
      host.table.install({ ...here, providers: here.providers.map((each) => ({ ...each, via: host.engine.config.name })) }, 'test');
      let sent = 0;
      const engine = withTransport(host, {
        invoke: () => Promise.resolve(++sent === 1 ? failed(1002, 'started', 'reset', true) : answered(200, {}, NO_BODY)),
      });
      const call = new Call('message', 'crm.order.query', NO_HEADERS, NO_BODY, '', false, host.clock);
      call.principal = new Principal('web.desk.1', 'two');
      await inbound(engine, call, 'crm.order.1', '2.0.0');
      t.strictSame([call.code, sent, call.attempts.length], [0, 2, 1], "at the provider's end there is one attempt, whoever else there is");
    },
  );
  t.test('a transport that throws is a fault of ours: 9001, permit and slot given back, no word about the provider', async (t) => {
    const world = lab(ORDER);
    const call = ask(world, 'order');
    await outbound(withTransport(world, { invoke: () => Promise.reject(new TypeError('boom')) }), call);
    t.match([call.code, isAmbiguous(call), world.clock.nextAt()], [9001, true, null]);
    for (const cell of world.health.cells()) t.match([cell.provider.inFlight, cell.callsInWindow(0)], [0, 0]);
  });
});

t.test('retry', async (t) => {
  const table = (mocks: string, contract = 'execution: idempotent', sidecar = ''): World =>
    lab(`
${sidecar}
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, timeout: 1s, breaker: {enabled: false}, ${contract}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0], weight: 1000}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0], tier: backup}
  - {agent_id: crm.order.3, offers: [crm.order.query@2.0.0], tier: backup, weight: 0.001}
mocks:
${mocks}
`);
  const FAULTS: readonly (readonly [what: string, mock: string, once: number, idempotent: number])[] = [
    ['not sent', '{refuse_connect: true}', 2, 2],
    ['a reset while it works', '{reset: before_head}', 1, 2],
    ['no answer in time', '{hang: true}', 1, 2],
    ['a cut answer', '{reset: mid_body}', 1, 2],
    ['an error', '{status: 500}', 1, 2],
    ['busy', '{status: 503}', 1, 2],
    ['a rate limit', '{status: 429}', 1, 2],
    ['too early', '{status: 425}', 2, 2],
    ['a time-out of its own', '{status: 408}', 1, 2],
    ["the caller's mistake", '{status: 400}', 1, 1],
    ['not found', '{status: 404}', 1, 1],
    ['an error that says no', '{status: 500, headers: {reach-retry: none}}', 1, 1],
    ['a redirect', '{status: 302}', 1, 2],
    ['a definite success', '{status: 500, headers: {reach-definitely-success: "true"}}', 1, 1],
    ['an answer above the limit', '{body: {text: "1234567890123456789012345678901234567890"}}', 1, 1],
  ];
  for (const [what, mock, once, idempotent] of FAULTS) {
    t.test(`${what}: attempts of work that runs once, and that may run again`, async (t) => {
      for (const [execution, attempts] of [
        ['once', once],
        ['idempotent', idempotent],
        ['keyed', idempotent],
      ] as const) {
        const world = table(`  crm.order.1: ${mock}`, `execution: ${execution}, limits: {response: 70B}`);
        const call = await go(
          world,
          ask(world, 'crm.order.query', { headers: { 'idempotency-key': 'k' }, body: '{"order_id":1234567890}' }),
        );
        t.equal(call.attempts.length, attempts, `${execution}: ${reasonsOf(call).join(' ')}`);
        if (attempts === 2) t.match([call.code, call.chosen?.provider.agentId], [0, 'crm.order.2'], 'elsewhere it went well');
      }
    });
  }
  t.test('never to a provider already tried, at most as often as the policy says, at last what the last attempt said', async (t) => {
    const all = '  crm.order.1: {status: 500}\n  crm.order.2: {status: 502}\n  crm.order.3: {status: 503}';
    for (const [max, statuses] of [
      [0, [500]],
      [1, [500, 502]],
      [2, [500, 502, 503]],
    ] as const) {
      const world = table(all, `execution: idempotent, retry: {max: ${max}}`);
      const call = await go(world, ask(world, 'crm.order.query'));
      t.strictSame(
        call.attempts.map((one) => one.status),
        statuses,
      );
      t.match([call.code, call.status], [6001, statuses.at(-1)]);
      t.equal(reasonsOf(call).includes('retry.spent'), true);
    }
  });
  t.test(
    'a provider whose own sidecar turns the call away, since it is drained, gone or stopping: elsewhere, whatever the work is',
    async (t) => {
      const world = table('  crm.order.1: {status: 500}', 'execution: once');
      const judged = async (code: number, started: Started): Promise<string> => {
        const call = await go(world, ask(world, 'crm.order.query'));
        const last = call.attempts[0] as Attempt;
        last.code = code as Attempt['code'];
        last.started = started;
        return retry(call, world.engine.retryBudget, world.engine.random).reason.name;
      };
      for (const code of [2006, 2001]) {
        t.equal(await judged(code, 'not_started'), 'elsewhere', String(code));
        t.equal(await judged(code, 'started'), 'not_repeatable', `${code}, if it had begun`);
      }
      for (const code of [4002, 4003, 4005, 2005])
        t.equal(await judged(code, 'not_started'), 'not_repeatable', `${code}: the others would say the same`);
    },
  );
  t.test('a caller that wants no attempt repeated gets the failure of the first, or the fallback', async (t) => {
    const headers = { 'reach-retry': 'none' };
    for (const mock of ['status: 500', 'refuse_connect: true']) {
      const world = table(`  crm.order.1: {${mock}}`);
      const call = await go(world, ask(world, 'crm.order.query', { headers }));
      t.equal(call.attempts.length, 1, mock);
      t.ok(reasonsOf(call).includes('retry.not_wanted'), reasonsOf(call).join(' '));
      t.equal((await go(world, ask(world, 'crm.order.query'))).attempts.length, 2, `${mock}, without the wish`);
    }
  });
  t.test('backoff: none where nothing began, else doubling with chance, within bounds', async (t) => {
    const random = new SeededRandom(1);
    for (let i = 0; i < 200; i++) {
      for (const [retries, full] of [
        [0, 25],
        [1, 50],
        [2, 100],
        [9, 250],
      ] as const) {
        const pause = backoffMs(retries, 25, 250, random);
        if (pause < full / 2 || pause > full) t.fail(`${pause} for ${retries}`);
      }
    }
    const refused = table('  crm.order.1: {refuse_connect: true}');
    await go(refused, ask(refused, 'crm.order.query'));
    t.equal(refused.clock.now(), 0);
    const broken = table('  crm.order.1: {status: 500}');
    await go(broken, ask(broken, 'crm.order.query'));
    t.ok(broken.clock.now() >= 12.5 && broken.clock.now() <= 25, String(broken.clock.now()));
  });
  t.test('not when less than a fifth of the *total* time is left, also where this hop has more', async (t) => {
    const tries = async (headers: Record<string, string>, latency: string): Promise<[number, string]> => {
      const world = table(`  crm.order.1: {latency: ${latency}, status: 500}`);
      const call = await go(world, ask(world, 'crm.order.query', { headers }));
      return [
        call.attempts.length,
        reasonsOf(call).at(-1) === 'fallback.none' ? (reasonsOf(call).at(-2) as string) : (reasonsOf(call).at(-1) as string),
      ];
    };
    t.strictSame(await tries({ 'reach-deadline-ms': '1000' }, '700ms'), [2, 'attempt.served']);
    t.strictSame(await tries({ 'reach-deadline-ms': '1000' }, '810ms'), [1, 'retry.too_late']);
    t.strictSame(await tries({ 'reach-deadline-ms': '1000', 'reach-deadline-total-ms': '10000' }, '100ms'), [1, 'retry.too_late']);
  });
  t.test('a caller that leaves during the pause ends it', async (t) => {
    const world = table(
      '  crm.order.1: {status: 500}',
      'execution: idempotent, retry: {backoff: 10s, backoff_max: 10s, min_remaining: 0}, deadline: 60s',
    );
    const call = ask(world, 'crm.order.query');
    world.clock.after(100, () => call.cancel());
    await go(world, call);
    t.match([call.code, call.attempts.length, world.clock.now(), world.clock.nextAt()], [5003, 1, 100, null]);
  });
  t.test('where nobody else can serve, nothing is waited for and nothing is taken from the budget', async (t) => {
    const alone = async (world: World, headers: Record<string, string> = {}): Promise<void> => {
      const call = await go(world, ask(world, 'crm.order.query', { headers }));
      t.match([call.code, call.attempts.length, world.clock.now(), world.engine.retryBudget.recent().retries], [6001, 1, 0, 0]);
      t.ok(reasonsOf(call).includes('retry.nobody_else'), reasonsOf(call).join(' '));
    };
    await alone(lab(ORDER.replace(/ {2}- \{agent_id: crm\.order\.2.*\n/, '').concat('mocks: {crm.order.1: {status: 500}}')));
    await alone(table('  crm.order.1: {status: 500}'), { 'reach-pin': 'crm.order.1' });
    const offline = table('  crm.order.1: {status: 500}');
    for (const agent of ['crm.order.2', 'crm.order.3']) offline.health.provider(agent).offline = true;
    await alone(offline);
    const drained = lab(ORDER.replace('crm.order.2,', 'crm.order.2, drain: true,').concat('mocks: {crm.order.1: {status: 500}}'));
    await alone(drained);
  });
  t.test('a strict conversation can go on with nobody else; where it could not even begin, it begins elsewhere', async (t) => {
    const strict = 'execution: idempotent, retry: {backoff: 400ms}, affinity: {from: "header:x-session", mode: strict}';
    const failing = table('  crm.order.1: {status: 503}\n  crm.order.2: {status: 503}\n  crm.order.3: {status: 503}', strict);
    const call = await go(failing, ask(failing, 'crm.order.query', { headers: { 'x-session': 's' } }));
    t.match([call.code, call.attempts.length, failing.clock.now(), failing.engine.retryBudget.recent().retries], [6001, 1, 0, 0]);
    t.ok(reasonsOf(call).includes('retry.nobody_else'), reasonsOf(call).join(' '));
    const refusing = table('  crm.order.1: {refuse_connect: true}\n  crm.order.2: {refuse_connect: true}', strict);
    let elsewhere = 0;
    for (const session of ['a', 'b', 'c', 'd']) {
      const begun = await go(refusing, ask(refusing, 'crm.order.query', { headers: { 'x-session': session } }));
      if (begun.attempts.length > 1) elsewhere++;
    }
    t.ok(elsewhere > 0);
  });
  t.test('the budget: a share of the recent calls and a floor; what is over it fails with 3005 and its cause', async (t) => {
    const world = table(
      '  crm.order.1: {status: 500}\n  crm.order.2: {status: 500}\n  crm.order.3: {status: 500}',
      'execution: idempotent, retry: {backoff: 0s, backoff_max: 0s}',
      'sidecar: {retry_budget: {ratio: 10%, min_per_sec: 0.1}}',
    );
    const codes: number[] = [];
    let attempts = 0;
    for (let i = 0; i < 100; i++) {
      const call = await go(world, ask(world, 'crm.order.query'));
      codes.push(call.code);
      attempts += call.attempts.length;
      if (call.code === 3005)
        t.match(detailOf(call), /too many calls are being retried \(\d+ of the last \d+\); the attempt failed with 6001/);
    }
    t.equal(attempts, 111, 'one of the floor, ten of a hundred');
    t.equal(codes.filter((code) => code === 3005).length, 89);
  });
  t.test('the budget forgets after ten seconds, and time that stands or jumps does not confuse it', async (t) => {
    const budget = new RetryBudget(0.5, 0);
    for (let i = 0; i < 10; i++) budget.noteCall(500);
    t.strictSame(
      [1, 2, 3, 4, 5, 6].map(() => budget.take(500)),
      [true, true, true, true, true, false],
    );
    t.notOk(budget.take(9_999));
    budget.noteCall(10_000);
    budget.noteCall(10_000);
    t.strictSame(budget.recent(), { calls: 2, retries: 0 });
    t.ok(budget.take(10_500));
    t.notOk(budget.take(10_600));
    budget.noteCall(1e9);
    t.strictSame(budget.recent(), { calls: 1, retries: 0 });
  });
});

t.test('fallback', async (t) => {
  const table = (fallback: string, mock = '{status: 500}', more = ''): World =>
    lab(`
contracts:
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, execution: idempotent, timeout: 1s, retry: {max: 0}, fallback: ${fallback}}
  - {name: crm.order.lookup, version: 1.0.0, description: x, acl: [web.desk.1], execution: idempotent, fallback: [{static: never}]}
  - {name: crm.order.cache, version: 1.0.0, description: x, acl: public, execution: idempotent}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.order.9, offers: [crm.order.query@2.0.0], weight: 0.000001, tier: backup}
  - {agent_id: crm.look.1, offers: [crm.order.lookup@1.0.0]}
  - {agent_id: crm.cache.1, offers: [crm.order.cache@1.0.0]}
mocks:
  crm.order.1: ${mock}
${more}
`);
  const outcome = async (
    world: World,
    parts: Parts = {},
  ): Promise<{
    code: number;
    provider: string | null;
    degraded: boolean;
    data: string;
    cause: string | null;
    last: string;
    attempts: number;
  }> => {
    const call = await go(world, ask(world, 'crm.order.query', parts));
    const result = resultOf(call, true);
    return {
      code: result.entry.code,
      provider: result.provider,
      degraded: call.degraded,
      data: result.data.toString(),
      cause: call.cause,
      last: reasonsOf(call).at(-1) as string,
      attempts: call.attempts.length,
    };
  };
  const CHAIN = '[{capability: crm.order.lookup}, {capability: crm.order.cache}, {static: {text: later}}]';
  t.test('nothing said and explicitly none are failures, told apart in the trace', async (t) => {
    t.match(await outcome(table('none')), { code: 6001, degraded: false, last: 'fallback.explicitly_none' });
    const unsaid = table('none').table.current().document;
    const world = table('none');
    world.install({ ...unsaid, contracts: unsaid.contracts.map((one) => ({ ...one, fallback: null })) }, 'test');
    t.match(await outcome(world), { code: 6001, degraded: false, last: 'fallback.none' });
  });
  t.test('a chain is walked in order, marked degraded, with the cause kept', async (t) => {
    t.match(await outcome(table(CHAIN)), {
      code: 0,
      provider: 'crm.look.1',
      degraded: true,
      cause: /^6001 crm\.order\.1: the provider answered 500/,
      attempts: 2,
    });
    t.match(await outcome(table(CHAIN, '{status: 500}', '  crm.look.1: {status: 500}')), {
      code: 0,
      provider: 'crm.cache.1',
      degraded: true,
      cause: /^6001 crm\.order\.1/,
      attempts: 3,
    });
    t.match(await outcome(table(CHAIN, '{status: 500}', '  crm.look.1: {status: 500}\n  crm.cache.1: {refuse_connect: true}')), {
      code: 0,
      provider: null,
      degraded: true,
      data: '{"text":"later"}',
      last: 'fallback.static',
    });
    t.match(await outcome(table('[{capability: crm.order.cache}]', '{status: 500}', '  crm.cache.1: {status: 503}')), {
      code: 6001,
      last: 'fallback.exhausted',
      attempts: 2,
    });
  });
  t.test('a step that the caller may not use is passed over', async (t) => {
    const call = await outcome(table(CHAIN), { as: 'web.desk.2' });
    t.match(call, { code: 0, degraded: true, cause: /^6001 crm\.order\.1/ }, 'what comes after it in the chain answers');
    const none = await outcome(table('[{capability: crm.order.lookup}]'), { as: 'web.desk.2' });
    t.match(
      none,
      { code: 6001, degraded: false, last: 'fallback.exhausted' },
      'and when nothing does, the failure that there was stands, not the refusal of a capability that was never asked for',
    );
  });
  t.test('a provider of its own is asked by name', async (t) => {
    t.match(await outcome(table('[{provider: crm.order.9}, {static: x}]')), {
      code: 0,
      provider: 'crm.order.9',
      degraded: true,
      attempts: 2,
    });
  });
  t.test("it runs for time and transport failures while there is time, not for the caller's mistakes or what does not exist", async (t) => {
    for (const mock of ['{hang: true}', '{refuse_connect: true}', '{reset: before_head}', '{status: 429}', '{status: 302}'])
      t.match(await outcome(table('[{static: x}]', mock)), { code: 0, data: '"x"', degraded: true }, mock);
    for (const mock of ['{status: 400}', '{status: 404}'])
      t.match(await outcome(table('[{static: x}]', mock)), { code: 6001, degraded: false, last: 'fallback.not_for_this' }, mock);
    t.match(await outcome(table('[{static: x}]'), { body: '{' }), { code: 4003, degraded: false });
    t.match(await outcome(table('[{static: x}]', '{hang: true}'), { headers: { 'reach-deadline-ms': '500' } }), {
      code: 5001,
      degraded: false,
      last: 'fallback.no_time',
    });
    const world = table('[{static: x}]');
    const call = await go(world, ask(world, 'crm.order.query@^3.0'));
    t.match([call.code, call.degraded], [2002, false]);
  });
  t.test('work that runs once and may have been done is not begun again by a step to the same capability', async (t) => {
    const once = (mock: string, fallback: string, second = '1.0.0'): World =>
      lab(`
contracts:
  - {name: crm.order.pay, version: 1.0.0, description: x, acl: public, execution: once, timeout: 200ms, retry: {max: 0}, fallback: ${fallback}}
  - {name: crm.order.pay, version: 2.0.0, description: x, acl: public, execution: once}
  - {name: crm.order.note, version: 1.0.0, description: x, acl: public, execution: idempotent, timeout: 200ms, retry: {max: 0}}
providers:
  - {agent_id: crm.pay.1, offers: [crm.order.pay@1.0.0]}
  - {agent_id: crm.pay.2, offers: [crm.order.pay@${second}], tier: backup}
  - {agent_id: crm.note.1, offers: [crm.order.note@1.0.0]}
mocks:
  crm.pay.1: ${mock}
  crm.note.1: {hang: true}
`);
    const served = async (world: World): Promise<readonly [number, ...(string | undefined)[]]> => {
      const call = await go(world, ask(world, 'crm.order.pay@1.0.0'));
      return [call.code, ...call.attempts.map(({ candidate }) => candidate.provider.agentId)];
    };
    const PROVIDER = '[{provider: crm.pay.2}]';
    for (const mock of ['{latency: 600ms}', '{reset: before_head}', '{reset: mid_body}']) {
      const world = once(mock, PROVIDER);
      const call = await go(world, ask(world, 'crm.order.pay@1.0.0'));
      t.equal(call.attempts.length, 1, mock);
      t.match(
        call.trace.lines().filter(({ stage }) => stage === 'fallback'),
        [
          { reason: 'not_twice', words: /crm\.pay\.2 is passed over: crm\.order\.pay runs at most once and crm\.pay\.1 may have acted/ },
          {},
        ],
      );
    }
    t.strictSame(await served(once('{latency: 600ms}', '[{capability: crm.order.pay@2.0.0}]', '2.0.0')), [1003, 'crm.pay.1']);
    t.strictSame(await served(once('{latency: 600ms}', '[{provider: crm.pay.2}, {static: x}]')), [0, 'crm.pay.1'], 'what comes after it');
    t.strictSame(await served(once('{refuse_connect: true}', PROVIDER)), [0, 'crm.pay.1', 'crm.pay.2'], 'it was never begun');
    t.strictSame(await served(once('{status: 500}', PROVIDER)), [0, 'crm.pay.1', 'crm.pay.2'], 'its agent said that it was not done');
    const world = once('{latency: 600ms}', '[{capability: crm.order.note}]');
    const result = resultOf(await go(world, ask(world, 'crm.order.pay@1.0.0')), true);
    t.match(result, { entry: { code: 1003 }, ambiguous: true, retryable: false }, 'also when what stood in may be repeated');
  });
  t.test('nobody healthy: the fallback is that of the version that was asked for', async (t) => {
    const world = lab(`
contracts:
  - {name: crm.order.query, version: 1.0.0, description: x, acl: public, fallback: [{static: old text}]}
  - {name: crm.order.query, version: 2.0.0, description: x, acl: public, fallback: [{static: new text}]}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@1.0.0], drain: true}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0], drain: true}
`);
    for (const [asked, text] of [
      ['crm.order.query@^1.0', '"old text"'],
      ['crm.order.query@^2.0', '"new text"'],
      ['crm.order.query', '"new text"'],
    ] as const) {
      t.equal(resultOf(await go(world, ask(world, asked)), true).data.toString(), text, asked);
    }
  });
});

t.test('a fault of ours inside the pipeline is 9001 for this caller, is told with its stack, and leaves nothing open', async (t) => {
  const world = lab(ORDER);
  const call = ask(world, 'order');
  Object.defineProperty(call, 'headers', {
    get: () => {
      throw new TypeError('boom');
    },
  });
  await go(world, call);
  t.match([call.code, detailOf(call)], [9001, 'a fault in Agent-Reach: TypeError']);
  t.match(world.witness.bugs, [/TypeError: boom/]);
  t.match([world.engine.limits.inFlight(), world.witness.callsEnded], [0, 1]);
});

t.test('resolve is asked through the same tables: a caller in no list of any matching version is refused there', async (t) => {
  const world = lab(`
contracts:
  - {name: crm.order.query, version: 1.0.0, description: x, acl: ["web.*.*"]}
  - {name: crm.order.query, version: 2.0.0, description: x, acl: ["ops.*.*"]}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@1.0.0, crm.order.query@2.0.0]}
`);
  const call = named(world, 'crm.order.query@^2.0');
  t.match(said(resolve(call, new VirtualRandom())), { code: 4002 });
});

class VirtualRandom {
  next(): number {
    return 0.5;
  }
}
