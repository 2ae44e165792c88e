/** Routing and health, registry and versions: who is chosen when everybody is unfit, what a conversation key holds on to, what a weight or a range means. */
import { performance } from 'node:perf_hooks';
import t from 'tap';
import { VirtualClock } from '../../base/virtual-clock.ts';
import { readTable } from '../../proto/language/document.ts';
import { Bindings } from '../../sidecar/choose/bindings.ts';
import type { Result } from '../../sidecar/call/result.ts';
import { TestAgent } from '../support/agent.ts';
import { collected } from '../support/heap.ts';
import { assertQuiet, takeBase } from '../support/invariants.ts';
import { contractLine, metricIn, mockLine, Offline, type OfflineCall } from '../support/offline.ts';
import { Rig } from '../support/rig.ts';
import { providerOf } from '../support/route-table.ts';
import { tableOf } from './http-table.ts';

type Test = Parameters<typeof Rig.start>[0];

// Other tests share the machine.
t.setTimeout(110_000);
const before = takeBase();
const NAME = 'crm.order.query';
const P = (n: number): string => `crm.order.p${n}`;
const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

interface Parts {
  /** One line a provider. */
  readonly providers: readonly string[];
  readonly contracts?: readonly string[];
  readonly policy?: string;
}

/** `count` mock providers of one capability unless lines are given. */
function table(parts: Parts): string {
  const policies = parts.policy === undefined ? '' : `policies:\n  - {capability: ${NAME}, ${parts.policy}}\n`;
  return `contracts:\n${(parts.contracts ?? [contractLine(NAME, '2.0.0')]).join('\n')}\nproviders:\n${parts.providers.join('\n')}\n${policies}`;
}

const plain = (n: number, extra = '', script = ''): string => mockLine(P(n), [`${NAME}@2.0.0`], extra, script);
const session = (key: string): OfflineCall => ({ headers: { 'x-session': key } });
const BY_HEADER = 'affinity: {from: "header:x-session"}';
const keyed = [contractLine(NAME, '2.0.0', BY_HEADER)];

/** Nothing is left of these worlds, and every provider was asked just as often as said. */
async function quiet(t: Test, worlds: readonly Offline[], executions: Readonly<Record<string, number>> = {}): Promise<void> {
  const providers = Object.entries(executions).map(([name, expected]) => ({
    name,
    count: worlds.reduce((sum, world) => sum + world.mock.executions(name), 0),
    expected,
  }));
  await assertQuiet(t, { before, engines: worlds.map((world) => world.quiet), providers });
}

const sum = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((total, count) => total + count, 0);
const hasReason = (result: Result, name: string): boolean =>
  result.call.trace.lines().some((line) => `${line.stage}.${line.reason}` === name);

/** Opens the breaker of a provider as failed calls of somebody else would. */
function breakDown(world: Offline, agentId: string): void {
  const cell = world.cell(agentId, NAME);
  for (let i = 0; i < 20_000 && cell.stateName !== 'open'; i++) cell.end(cell.admit(world.clock.now()), 'failure', 1, world.clock.now());
  if (cell.stateName !== 'open') throw new Error(`the breaker of ${agentId} should be open`);
}

/** Ejects a provider as three refused connections would. */
function eject(world: Offline, agentId: string): void {
  const { clock } = world;
  const provider = world.health.provider(agentId);
  while (provider.ejectedUntil <= clock.now()) provider.connectFailed(clock.now());
}

t.test('C053 nothing healthy is left: fail fast with every reason, or panic over all of them, and nothing in between', async (t) => {
  // Two are broken for good; the third failed its first ten calls and has been well ever since.
  const providers = [
    plain(1, '', 'status: 500'),
    plain(2, '', 'status: 500'),
    plain(3, '', 'status: 500, behaviours: [{after: 10, status: 200}]'),
  ];
  const allDown = async (t: Test, world: Offline): Promise<void> => {
    for (const n of [1, 2, 3]) t.strictSame(await world.counts(10, NAME, { headers: { 'reach-pin': P(n) } }), { 6001: 10 });
    for (const n of [1, 2, 3]) t.equal(world.cell(P(n), NAME).stateName, 'open');
  };

  await t.test('fail fast: not one of 100 calls reaches anybody', async (t) => {
    const world = new Offline(table({ providers, policy: 'retry: {max: 0}' }));
    await allDown(t, world);
    const began = performance.now();
    for (let i = 0; i < 100; i++) {
      const result = await world.call(NAME);
      t.equal(result.entry.code, 3001);
      t.equal(result.entry.http, 503);
      t.equal(result.retryable, true);
      t.equal(result.call.attempts.length, 0);
      for (const n of [1, 2, 3]) t.match(result.detail, new RegExp(`${P(n)}: breaker open for another 120 s \\(10 of 10 calls failed`));
    }
    t.ok((performance.now() - began) / 100 < 20, 'each in less than 20 ms');
    t.equal(world.clock.now(), 0, 'and without any waiting');
    t.equal(metricIn(await world.metrics(), 'reach_panic_total'), 0);
    await quiet(t, [world], { [P(1)]: 10, [P(2)]: 10, [P(3)]: 10 });
  });

  await t.test('down for different reasons is none_healthy, each with its own', async (t) => {
    const world = new Offline(table({ providers: [plain(1), plain(2), plain(3, 'drain: true'), plain(4, 'weight: 0')] }));
    breakDown(world, P(1));
    eject(world, P(2));
    const result = await world.call(NAME);
    t.equal(result.entry.code, 2003);
    t.match(result.detail, /crm\.order\.p1: breaker open/);
    t.match(result.detail, /crm\.order\.p2: ejected for another 5 s/);
    t.match(result.detail, /crm\.order\.p3: draining/);
    t.match(result.detail, /crm\.order\.p4: weight 0/);
    await quiet(t, [world], { [P(1)]: 0, [P(2)]: 0, [P(3)]: 0, [P(4)]: 0 });
  });

  await t.test('with a fallback the fallback answers instead, at once', async (t) => {
    const world = new Offline(table({ providers, policy: 'retry: {max: 0}, fallback: [{static: {text: later}}]' }));
    for (const n of [1, 2, 3]) breakDown(world, P(n));
    const result = await world.call(NAME);
    t.equal(result.entry.code, 0);
    t.equal(result.call.degraded, true);
    t.equal(result.data.toString(), '{"text":"later"}');
    await quiet(t, [world], { [P(1)]: 0 });
  });

  await t.test('panic: all of them, and all calls; and out of it as soon as one has recovered', async (t) => {
    const world = new Offline(table({ providers, policy: 'retry: {max: 0}, panic: true' }));
    await allDown(t, world);
    const served: Record<string, number> = {};
    for (let i = 0; i < 100; i++) {
      const result = await world.call(NAME);
      t.ok(hasReason(result, 'choose.panic'), 'every call is in panic, and its trace says so');
      const who = result.call.attempts[0]?.candidate.provider.agentId ?? 'nobody';
      served[who] = (served[who] ?? 0) + 1;
      t.equal(result.entry.code, who === P(3) ? 0 : 6001, 'whoever can answer does');
    }
    t.equal(sum(served), 100);
    for (const n of [1, 2, 3]) t.ok((served[P(n)] ?? 0) >= 15, `${P(n)} had ${served[P(n)] ?? 0} of 100`);
    t.equal(metricIn(await world.metrics(), 'reach_panic_total', { capability: NAME }), 100);

    await world.clock.advance(120_000);
    for (let i = 0; i < 40; i++) {
      const result = await world.call(NAME);
      t.notOk(hasReason(result, 'choose.panic'), 'somebody may be tried again: no panic');
      await world.clock.advance(100);
    }
    t.equal(world.cell(P(1), NAME).stateName, 'open');
    t.equal(world.cell(P(2), NAME).stateName, 'open');
    const seen = [1, 2, 3].map((n) => world.mock.executions(P(n)));
    t.strictSame(await world.counts(100, NAME), { [P(3)]: 100 }, 'only the one that is well');
    t.equal(metricIn(await world.metrics(), 'reach_panic_total', { capability: NAME }), 100, 'no panic since');
    await quiet(t, [world], { [P(1)]: seen[0] as number, [P(2)]: seen[1] as number, [P(3)]: (seen[2] as number) + 100 });
  });
});

t.test('C054 a call without the affinity key is balanced, and a huge key costs nothing', async (t) => {
  const three = [1, 2, 3].map((n) => plain(n));
  const third = (counts: Readonly<Record<string, number>>, about: string): void => {
    t.equal(sum(counts), 3_000);
    for (const n of [1, 2, 3])
      t.ok(Math.abs((counts[P(n)] ?? 0) / 3_000 - 1 / 3) <= 0.05, `${about}: ${P(n)} had ${counts[P(n)] ?? 0} of 3000`);
  };

  await t.test('missing, empty, or sent twice', async (t) => {
    for (const load of ['least_request', 'round_robin', 'random', 'sticky']) {
      const world = new Offline(table({ providers: three, contracts: keyed, policy: `load: ${load}` }));
      third(await world.counts(3_000, NAME), `${load}, none`);
      third(await world.counts(3_000, NAME, { headers: { 'x-session': '' } }), `${load}, empty`);
      third(await world.counts(3_000, NAME, { headers: { 'x-session': ['a', 'b'] } }), `${load}, two of them`);
      t.equal(world.engine.chooser.bound, 0, 'nothing is remembered of them');
      await quiet(t, [world]);
    }
  });

  await t.test('a key out of the payload that is missing, empty, or no text', async (t) => {
    const world = new Offline(table({ providers: three, contracts: [contractLine(NAME, '2.0.0', 'affinity: {from: /session/id}')] }));
    const payloads = [
      {},
      { session: null },
      { session: { id: '' } },
      { session: { id: null } },
      { session: { id: {} } },
      { session: { id: ['x'] } },
    ];
    third(await world.counts(3_000, NAME, (n) => ({ payload: payloads[n % payloads.length] })), 'payload');
    t.equal(world.engine.chooser.bound, 0);
    await quiet(t, [world]);
  });

  await t.test('a megabyte is kept as a digest', async (t) => {
    const world = new Offline(table({ providers: three, contracts: keyed }));
    const huge = 'k'.repeat(1_048_576);
    // 3000 calls as written; the first hundred also warm up what is measured.
    const first = await world.counts(100, NAME, session(huge));
    const heapBefore = collected();
    const counts = await world.counts(2_900, NAME, session(huge));
    t.ok(collected() - heapBefore < 8_000_000, 'no memory growth');
    t.equal(Object.keys(first).length, 1, 'one key, one agent');
    t.strictSame(Object.keys(counts), Object.keys(first));
    t.equal(world.engine.chooser.bound, 1);
    const others = await world.counts(200, NAME, (n) => session(`${n}${huge}`));
    t.ok(Object.keys(others).length === 3, 'other huge keys meet other agents');
    t.ok(collected() - heapBefore < 8_000_000, 'and none of them is kept as it came');
    await quiet(t, [world]);
  });

  await t.test('on the wire the header limit comes first; a payload may be as large as its limit', async (t) => {
    const agents = await Promise.all([1, 2].map((n) => TestAgent.listen(`a${n}`)));
    const one = { name: NAME, at: agents.map((agent) => agent.url), extra: ['affinity: {from: "header:x-session"}'] };
    const two = { name: 'crm.order.list', at: agents.map((agent) => agent.url), extra: ['affinity: {from: /session}'] };
    const rig = await Rig.start(t, { table: tableOf([one, two]) });
    const refused = await rig.invoke(NAME, { headers: { 'x-session': 'k'.repeat(1_048_576) } }).catch((error: Error) => error);
    // The connection may be closed while the caller is still writing its megabyte.
    if (!(refused instanceof Error)) t.match(refused, { status: 431, json: { code: 4005 } });
    const taken = await rig.invoke('crm.order.list', { payload: { session: 'k'.repeat(1_000_000) } });
    t.equal(taken.status, 200);
    const again = await rig.invoke('crm.order.list', { payload: { session: 'k'.repeat(1_000_000) } });
    t.equal(again.json.provider, taken.json.provider);
    const sent = agents.flatMap((agent) => agent.requests);
    t.equal(sent.length, 2);
    for (const request of sent) t.ok(String(request.headers['reach-affinity']).length <= 128, 'the provider gets the digest');
    await rig.stop();
    await Promise.all(agents.map((agent) => agent.close()));
    await rig.finish(t, before);
  });
});

t.test('C055 when one provider goes down only its keys move, and exactly those come back', async (t) => {
  const weights = [1, 2, 3, 5, 9];
  const KEYS = 10_000;
  const text = table({ providers: weights.map((weight, i) => plain(i + 1, `weight: ${weight}`)), contracts: keyed });
  const owners = async (world: Offline): Promise<string[]> => {
    const found: string[] = [];
    for (let n = 0; n < KEYS; n++) found.push(await world.served(NAME, session(`key-${n}`)));
    return found;
  };
  const moved = (from: readonly string[], to: readonly string[]): { of: Set<string>; count: number; to: Set<string> } => {
    const changed = from.flatMap((who, n) => (who === to[n] ? [] : [[who, to[n] as string] as const]));
    return { of: new Set(changed.map(([who]) => who)), count: changed.length, to: new Set(changed.map(([, who]) => who)) };
  };
  const downs: readonly (readonly [string, (world: Offline) => void, (world: Offline) => Promise<void>])[] = [
    ['ejected', (world) => eject(world, P(3)), (world) => world.clock.advance(5_000)],
    [
      'offline',
      (world) => {
        world.health.provider(P(3)).offline = true;
      },
      async (world) => {
        world.health.provider(P(3)).offline = false;
      },
    ],
    [
      'breaker open',
      (world) => breakDown(world, P(3)),
      async (world) => {
        await world.clock.advance(120_000);
        const cell = world.cell(P(3), NAME);
        for (let i = 0; i < 30 && cell.stateName !== 'closed'; i++) {
          const permit = cell.admit(world.clock.now());
          if (permit !== 0) cell.end(permit, 'success', 1, world.clock.now());
          await world.clock.advance(10_000);
        }
      },
    ],
  ];
  for (const [memory, settings] of [
    ['remembered', ''],
    ['found by the hash alone', '  affinity: {entries: 100}'],
  ] as const) {
    // By the hash alone one way of being down is as good as another.
    for (const [how, down, up] of settings === '' ? downs : downs.slice(0, 1)) {
      const world = new Offline(text, { settings });
      const at = await owners(world);
      const counts = range(5).map((n) => at.filter((who) => who === P(n)).length);
      for (const [i, weight] of weights.entries())
        t.ok(Math.abs((counts[i] as number) / KEYS - weight / 20) < 0.02, `${P(i + 1)} holds ${counts[i]}, weight ${weight} of 20`);
      down(world);
      const during = await owners(world);
      const away = moved(at, during);
      t.strictSame([...away.of], [P(3)], `${how}, ${memory}: only the keys of the one that is down move`);
      t.equal(away.count, counts[2], 'all of them');
      t.ok(away.to.size === 4 && !away.to.has(P(3)), 'to all the others');
      await up(world);
      t.strictSame(
        moved(at, await owners(world)),
        { of: new Set(), count: 0, to: new Set() },
        `${how}, ${memory}: exactly those come back`,
      );
      await quiet(t, [world]);
    }
  }
});

t.test('C056 a conversation whose agent is deregistered goes on with another one, for good', async (t) => {
  await t.test('ten calls after the removal, then the agent returns under another address', async (t) => {
    const agents = await Promise.all(range(5).map((n) => TestAgent.listen(`agent-${n}`)));
    const offered = (at: readonly (string | null)[]): string =>
      `contracts:\n  - {name: ${NAME}, version: "2.0.0", acl: public, execution: once, affinity: {from: "header:x-session"}}\nproviders:\n${at
        .map((address, i) =>
          address === null ? '' : `  - {agent_id: ${P(i + 1)}, offers: ["${NAME}@2.0.0"], endpoint: {type: http, address: "${address}"}}\n`,
        )
        .join('')}policies:\n  - {capability: ${NAME}, load: sticky}\n`;
    const urls = agents.map((agent) => agent.url);
    const rig = await Rig.start(t, { table: offered(urls) });
    const call = async (key: string): Promise<string> => {
      const answer = await rig.invoke(NAME, { headers: { 'x-session': key } });
      t.equal(answer.status, 200);
      return answer.json.provider as string;
    };
    const bound: string[] = [];
    for (let n = 0; bound.length < 2; n++) if ((await call(`s${n}`)) === P(5)) bound.push(`s${n}`);
    const [s1, idle] = bound as [string, string];
    const [gone] = agents.slice(4) as [TestAgent];
    const executed = gone.executions;

    t.equal(await rig.push(offered([...urls.slice(0, 4), null])), 'installed');
    await gone.close();
    const heir = await call(s1);
    t.not(heir, P(5));
    for (let i = 0; i < 9; i++) t.equal(await call(s1), heir, 'rebound at the first call');

    const back = await TestAgent.listen('agent-5 again');
    t.equal(await rig.push(offered([...urls.slice(0, 4), back.url])), 'installed');
    for (let i = 0; i < 10; i++) t.equal(await call(s1), heir, 'the old binding is not revived');
    t.equal(gone.executions, executed, 'nothing was sent to the old address');

    // A conversation that made no call meanwhile: who came back is a newcomer, and its key goes by the hash like any new one.
    const decision = (await rig.invoke(NAME, { headers: { 'x-session': idle, 'reach-explain': '1' } })).json.decision as {
      reason: string;
    }[];
    t.ok(
      decision.some((line) => line.reason === 'affinity_rebound'),
      'what was bound to the agent before it left is not revived either',
    );
    await rig.stop();
    await Promise.all([...agents, back].map((agent) => agent.close()));
    await rig.finish(t, before);
  });

  await t.test('strict: whoever asks for a context that is gone is told so, also when the agent has come back', async (t) => {
    const strict = [contractLine(NAME, '2.0.0', 'affinity: {from: "header:x-session", mode: strict}')];
    const world = new Offline(table({ providers: [plain(1), plain(2)], contracts: strict }));
    let key = '';
    for (let n = 0; key === ''; n++) if ((await world.served(NAME, session(`s${n}`))) === P(2)) key = `s${n}`;
    world.push(table({ providers: [plain(1)], contracts: strict }));
    t.equal(await world.served(NAME, session(key)), '2004');
    world.push(table({ providers: [plain(1), plain(2)], contracts: strict }));
    t.equal(await world.served(NAME, session(key)), '2004', 'the process that came back does not know the conversation');
    t.equal((await world.counts(50, NAME, (n) => session(`new-${n}`)))[P(2)] !== undefined, true, 'new conversations begin there');
    await quiet(t, [world]);
  });

  await t.test('a push that keeps the agent keeps its conversations, whatever else changes about it', async (t) => {
    const world = new Offline(table({ providers: [plain(1), plain(2)], contracts: keyed }));
    const at = await Promise.all(range(50).map((n) => world.served(NAME, session(`s${n}`))));
    world.push(table({ providers: [plain(1, 'weight: 7'), plain(2, 'tags: {tier: gold}'), plain(3)], contracts: keyed }));
    t.strictSame(await Promise.all(range(50).map((n) => world.served(NAME, session(`s${n}`)))), at);
    await quiet(t, [world]);
  });

  await t.test('a million sessions', async (t) => {
    const clock = new VirtualClock();
    const bindings = new Bindings(clock, { maxEntries: 100_000, ttlMs: 1_800_000 });
    const holder = { record: providerOf(P(1), [`${NAME}@2.0.0`]), health: {} } as unknown as Parameters<typeof bindings.bind>[1];
    const heapBefore = collected();
    for (let n = 0; n < 1_000_000; n++) bindings.bind(`session-${n}`, holder);
    const grown = collected() - heapBefore;
    t.equal(bindings.size, 100_000, 'the default bound');
    t.ok(grown < 40_000_000, `about 300 bytes each: ${grown} bytes in all`);
    t.equal(bindings.of('session-0', true), undefined, 'the oldest went first');
    t.equal(bindings.of('session-999999', true)?.length, 1);
    await clock.advance(1_800_001);
    t.equal(bindings.of('session-999999', false), undefined, 'half an hour without a call');
    await assertQuiet(t, { before });
  });
});

t.test('C057 a weight of 0 is none, and never "not set"', async (t) => {
  const versions = [contractLine(NAME, '1.0.0'), contractLine(NAME, '1.1.0')];
  const providers = [mockLine(P(1), [`${NAME}@1.0.0`]), mockLine(P(2), [`${NAME}@1.1.0`])];

  await t.test('of 10,000 calls not one goes to weight 0, in every mode', async (t) => {
    for (const load of ['least_request', 'round_robin', 'random', 'sticky', 'primary_backup']) {
      const world = new Offline(
        table({ providers: [plain(1, 'weight: 100'), plain(2, 'weight: 0')], contracts: keyed, policy: `load: ${load}` }),
      );
      t.strictSame(await world.counts(10_000, NAME), { [P(1)]: 10_000 }, load);
      t.strictSame(await world.counts(500, NAME, (n) => session(`s${n}`)), { [P(1)]: 500 }, `${load}, with keys`);
      t.equal(await world.served(NAME, { headers: { 'reach-pin': P(2) } }), '2003', 'not even by name');
      await quiet(t, [world], { [P(1)]: 10_500, [P(2)]: 0 });
    }
    const canary = new Offline(table({ providers, contracts: versions, policy: 'canary: {"1.1.0": 0}' }));
    t.strictSame(await canary.counts(10_000, `${NAME}@^1.0`), { [P(1)]: 10_000 }, 'a share of 0');
    t.equal(await canary.served(`${NAME}@1.1.0`), '2003', 'also when it is named: it is switched off');
    await quiet(t, [canary], { [P(2)]: 0 });
  });

  await t.test('a failed call does not spill over to weight 0', async (t) => {
    const world = new Offline(table({ providers: [plain(1, 'weight: 100', 'status: 503'), plain(2, 'weight: 0')] }));
    t.strictSame(await world.counts(5, NAME), { 6001: 5 });
    breakDown(world, P(1));
    t.match((await world.call(NAME)).detail, /p1: breaker open.*p2: weight 0/);
    const panic = new Offline(table({ providers: [plain(1, 'weight: 100', 'status: 503'), plain(2, 'weight: 0')], policy: 'panic: true' }));
    breakDown(panic, P(1));
    t.strictSame(await panic.counts(20, NAME), { 6001: 20 }, 'nor does panic');
    await quiet(t, [world, panic], { [P(2)]: 0 });
  });

  await t.test('both 0: unavailable, with the reason', async (t) => {
    const world = new Offline(table({ providers: [plain(1, 'weight: 0'), plain(2, 'weight: 0')] }));
    const result = await world.call(NAME);
    t.equal(result.entry.code, 2003);
    t.match(result.detail, /p1: weight 0; crm\.order\.p2: weight 0/);
    const canary = new Offline(table({ providers, contracts: versions, policy: 'canary: {"1.0.0": 0, "1.1.0": 0}' }));
    const off = await canary.call(NAME);
    t.equal(off.entry.code, 2003);
    t.match(off.detail, /no version that matches .* may serve: .*1\.1\.0.*1\.0\.0/);
    await quiet(t, [world, canary], { [P(1)]: 0, [P(2)]: 0 });
  });

  await t.test('what is no weight is refused, with its place', (t) => {
    for (const value of ['null', '~', '', '""', '-1', '-0.001', '"5"', '.nan', '.inf', 'true', '[1]', '{a: 1}', '1e400']) {
      for (const [where, text] of [
        ['weight', table({ providers: [plain(1), plain(2, `weight: ${value}`)] })],
        ['weight', table({ providers: [plain(1)], policy: `providers: {${P(1)}: {weight: ${value}}}` })],
        ['1.1.0', table({ providers, contracts: versions, policy: `canary: {"1.1.0": ${value}}` })],
      ] as const) {
        // a share may be written as a text, but not as 500 %
        const reading = readTable(text, 'table.yaml');
        if (!('problems' in reading)) t.fail(`${where}: ${value} was taken`);
        else
          t.ok(
            reading.problems.some((each) => each.path.endsWith(`/${where}`) && each.line > 0),
            `${where}: ${value || 'nothing'}: ${reading.problems[0]?.message}`,
          );
      }
    }
    t.end();
  });

  await t.test('a part of one is honoured', async (t) => {
    for (const load of ['least_request', 'round_robin', 'random']) {
      const world = new Offline(table({ providers: [plain(1, 'weight: 99.6'), plain(2, 'weight: 0.4')], policy: `load: ${load}` }));
      const counts = await world.counts(10_000, NAME);
      const got = counts[P(2)] ?? 0;
      t.ok(got >= 20 && got <= 64, `${load}: about 40 of 10,000, found ${got}`);
      await quiet(t, [world], { [P(2)]: got });
    }
    const world = new Offline(table({ providers, contracts: versions, policy: 'canary: {"1.1.0": 0.4%}' }));
    const got = (await world.counts(10_000, NAME))[P(2)] ?? 0;
    t.ok(got >= 20 && got <= 64, `a share of 0.4 %: about 40 of 10,000, found ${got}`);
    await quiet(t, [world], { [P(2)]: got });
  });
});

t.test('C059 a canary and sticky sessions: a session never changes its version while that may serve', async (t) => {
  const affinity = 'affinity: {from: "header:x-session"}';
  const contracts = [contractLine(NAME, '2.0.0', affinity), contractLine(NAME, '2.1.0', affinity)];
  const providers = [
    mockLine(P(1), [`${NAME}@2.0.0`], '', 'error_rate: 5%'),
    mockLine(P(2), [`${NAME}@2.0.0`]),
    mockLine(P(3), [`${NAME}@2.1.0`], '', 'error_rate: 5%'),
    mockLine(P(4), [`${NAME}@2.1.0`]),
  ];
  const share = (percent: string): string => table({ providers, contracts, policy: `canary: {"2.1.0": ${percent}}, retry: {max: 1}` });
  const world = new Offline(share('20%'));
  const SESSIONS = 500;
  const seen = range(SESSIONS).map(() => new Set<string>());
  const round = async (): Promise<number> => {
    let failed = 0;
    for (let s = 0; s < SESSIONS; s++) {
      const result = await world.call(NAME, session(`session-${s}`));
      if (result.entry.code !== 0) failed++;
      for (const attempt of result.call.attempts) seen[s]?.add(attempt.candidate.version.text);
      await world.clock.advance(1);
    }
    return failed;
  };
  for (let n = 0; n < 10; n++) t.equal(await round(), 0, 'retries mend what fails');
  t.ok(metricIn(await world.metrics(), 'reach_retries_total') > 50, 'there were retries');
  t.ok(
    seen.every((versions) => versions.size === 1),
    'and no session ever met another version, not even for a retry',
  );
  const onNew = seen.filter((versions) => versions.has('2.1.0')).length;
  t.ok(Math.abs(onNew / SESSIONS - 0.2) <= 0.04, `${onNew} of 500 sessions on 2.1.0`);

  // The other ten rounds, with the canary switched off in the middle of the first.
  world.push(share('20%'));
  const oldVersion = seen.map((versions) => versions.has('2.0.0'));
  const before21 = (): number => world.mock.executions(P(3)) + world.mock.executions(P(4));
  for (const versions of seen) versions.clear();
  for (let s = 0; s < SESSIONS / 2; s++) await world.call(NAME, session(`session-${s}`));
  world.push(share('0'));
  const atOff = before21();
  for (let n = 0; n < 10; n++) t.equal(await round(), 0, 'no error');
  t.equal(before21(), atOff, 'a share of 0 takes effect with the next call, also for sessions that were there');
  t.ok(
    seen.every((versions) => versions.size === 1 && versions.has('2.0.0')),
    'everybody is served by 2.0.0',
  );
  // And on again: nobody is torn from the version that serves it now.
  world.push(share('20%'));
  t.equal(await round(), 0);
  t.ok(
    seen.every((versions, s) => versions.size === 1 || !oldVersion[s]),
    'whoever was never on 2.1.0 does not get there',
  );
  t.ok(
    seen.every((versions) => versions.size === 1),
    'and a conversation under way stays where it is',
  );
  await t.test('strict: a conversation whose version is switched off is lost, not quietly moved', async (t) => {
    const strict = 'affinity: {from: "header:x-session", mode: strict}';
    const both = [contractLine(NAME, '2.0.0', strict), contractLine(NAME, '2.1.0', strict)];
    const lines = [mockLine(P(1), [`${NAME}@2.0.0`]), mockLine(P(3), [`${NAME}@2.1.0`])];
    const world = new Offline(table({ providers: lines, contracts: both, policy: 'canary: {"2.1.0": 50%}' }));
    const at: string[] = [];
    for (let s = 0; s < 40; s++) at.push(await world.served(NAME, session(`s${s}`)));
    t.ok(at.includes(P(1)) && at.includes(P(3)));
    world.push(table({ providers: lines, contracts: both, policy: 'canary: {"2.1.0": 0}' }));
    for (let s = 0; s < 40; s++) t.equal(await world.served(NAME, session(`s${s}`)), at[s] === P(3) ? '2004' : P(1));
    t.equal(await world.served(NAME, session('new')), P(1));
    world.push(table({ providers: lines, contracts: both, policy: 'canary: {"2.1.0": 50%}' }));
    for (let s = 0; s < 40; s++) t.equal(await world.served(NAME, session(`s${s}`)), at[s], 'and is there again with its version');
    await quiet(t, [world]);
  });
  t.equal(
    await world.served(`${NAME}@~2.1.0`, session('session-0')),
    (await world.call(`${NAME}@~2.1.0`, session('session-0'))).provider ?? '',
  );
  await quiet(t, [world]);
});

t.test('C060 round robin starts anywhere, and a push does not start it anew', async (t) => {
  const four = range(4).map((n) => plain(n));
  for (const load of ['round_robin', 'least_request', 'random']) {
    const counts: Record<string, number> = {};
    const worlds: Offline[] = [];
    for (let seed = 1; seed <= 200; seed++) {
      const world = new Offline(table({ providers: four, policy: `load: ${load}` }), { seed });
      worlds.push(world);
      const who = await world.served(NAME);
      counts[who] = (counts[who] ?? 0) + 1;
    }
    for (const n of range(4))
      t.ok(Math.abs((counts[P(n)] ?? 0) / 200 - 0.25) <= 0.1, `${load}: ${P(n)} had ${counts[P(n)] ?? 0} of 200 first calls`);
    await quiet(t, worlds, Object.fromEntries(range(4).map((n) => [P(n), counts[P(n)] ?? 0])));
  }
  await t.test('with weights too', async (t) => {
    const counts: Record<string, number> = {};
    for (let seed = 1; seed <= 200; seed++) {
      const weighted = new Offline(
        table({ providers: [1, 2, 3, 4].map((n) => plain(n, `weight: ${n === 4 ? 2 : 1}`)), policy: 'load: round_robin' }),
        { seed },
      );
      const who = await weighted.served(NAME);
      counts[who] = (counts[who] ?? 0) + 1;
      await quiet(t, [weighted]);
    }
    for (const n of range(4)) t.ok(Math.abs((counts[P(n)] ?? 0) / 200 - (n === 4 ? 0.4 : 0.2)) <= 0.1, `${P(n)} had ${counts[P(n)] ?? 0}`);
  });

  await t.test('the order goes on over pushes', async (t) => {
    const text = (rest = ''): string => `${table({ providers: four, policy: 'load: round_robin' })}${rest}`;
    const world = new Offline(text());
    const order: string[] = [];
    for (let n = 0; n < 40; n++) {
      order.push(await world.served(NAME));
      // The same table again, and a table with something else in it.
      if (n % 3 === 0) world.push(text());
      if (n % 3 === 1) world.push(text('overrides:\n  - {name: other, action: block, caller: team:nobody, reason: test}\n'));
    }
    t.equal(new Set(order.slice(0, 4)).size, 4);
    for (let n = 4; n < 40; n++) t.equal(order[n], order[n - 4], 'everybody in turn');
    await quiet(t, [world], Object.fromEntries(range(4).map((n) => [P(n), 10])));
  });
});

t.test('C065 pre-releases are chosen only by a range that names one of the same version', async (t) => {
  const versions = ['1.6.0', '1.7.0-rc.0', '2.0.0-0', '0.2.3-alpha'];
  const world = new Offline(
    table({
      contracts: versions.map((version) => contractLine(NAME, version)),
      providers: versions.map((version, i) => mockLine(P(i + 1), [`${NAME}@${version}`])),
    }),
  );
  const asked: readonly (readonly [string, string])[] = [
    ['^1', '1.6.0'],
    ['1.x', '1.6.0'],
    ['*', '1.6.0'],
    ['^1.7.0-rc', '1.7.0-rc.0'],
    ['^2', '2002'],
    ['^0.2.3', '2002'],
    ['>=1.6.0 <2.0.0', '1.6.0'],
    // Neighbours.
    ['x', '1.6.0'],
    ['>=1', '1.6.0'],
    ['>1.6.0', '2002'],
    ['<2.0.0', '1.6.0'],
    ['<=2.0.0', '1.6.0'],
    ['1.6.0 - 2.0.0', '1.6.0'],
    ['~1.7', '2002'],
    ['~1.7.0-rc.0', '1.7.0-rc.0'],
    ['1.7.0-rc.0', '1.7.0-rc.0'],
    ['1.7.0-rc.1', '2002'],
    ['^1.7.0-rc.1', '2002'],
    ['^1.6.0-rc.0', '1.6.0'],
    ['2.0.0-0', '2.0.0-0'],
    ['^2.0.0-0', '2.0.0-0'],
    ['^0.2.3-alpha', '0.2.3-alpha'],
    ['0.x', '2002'],
    ['^2 || ^1', '1.6.0'],
    ['^2.0.0-0 || ^1', '2.0.0-0'],
  ];
  for (const [text, wanted] of asked) {
    const result = await world.call(`${NAME}@${text}`);
    t.equal(result.entry.code === 0 ? result.version : String(result.entry.code), wanted, text);
    if (wanted === '2002') for (const version of versions) t.ok(result.detail.includes(version), `${text}: the refusal lists ${version}`);
  }
  t.equal((await world.call(NAME)).version, '1.6.0', 'no range: the newest stable one');
  t.equal(
    world.mock.executions(P(3)),
    asked.filter(([, wanted]) => wanted === '2.0.0-0').length,
    'a range below 2.0.0 never calls 2.0.0-0',
  );
  const onlyPre = new Offline(table({ contracts: [contractLine(NAME, '2.0.0-0')], providers: [mockLine(P(1), [`${NAME}@2.0.0-0`])] }));
  t.equal((await onlyPre.call(NAME)).entry.code, 2002, 'nor is it what a call without a range gets when there is nothing else');
  await quiet(t, [world, onlyPre], { [P(1)]: asked.filter(([, wanted]) => wanted === '1.6.0').length + 1 });
});

t.test('C066 a range that is empty, blank or a word of a template is refused, never "any"', async (t) => {
  const agent = await TestAgent.listen('order');
  const rig = await Rig.start(t, { table: tableOf([{ name: NAME, at: [agent.url], extra: ['aliases: [orders]'] }]) });
  const blank = ['', ' ', '||', '^2 ||', 'undefined', 'null'];
  const neighbours = [
    '|| ^2',
    '^2 || || ^3',
    '  ||  ',
    '\t',
    '\u00a0',
    '\u3000',
    'NaN',
    'None',
    'nil',
    'true',
    'latest',
    'any',
    '[object Object]',
    '""',
    "''",
    '{}',
    '^',
    '~',
    '>=',
    '=',
    'v',
    '-',
    ',',
    '^2,^3',
    '^2 undefined',
    '@^2',
    '2.0.0.0',
    '^02',
    '$VERSION',
    '{{version}}',
    '%s',
    '\u0000',
    '9'.repeat(300),
  ];
  for (const text of [...blank, ...neighbours]) {
    for (const name of [NAME, 'orders']) {
      for (const path of [`/v1/invoke/${name}@${encodeURIComponent(text)}`, `/v1/stream/${name}@${encodeURIComponent(text)}`]) {
        const answer = await rig.ask(path, { method: 'POST' });
        t.equal(answer.status, 400, JSON.stringify(`${name}@${text}`.slice(0, 60)));
        t.equal(answer.json.code, 4006);
        t.ok(String(answer.json.detail).length > 20 && String(answer.json.detail).length < 700, 'says what is wrong');
      }
    }
  }
  t.equal((await rig.ask(`/v1/explain/${NAME}@`)).json.refusal.code, 4006, 'explain says the same');
  t.equal((await rig.invoke(NAME)).status, 200, 'no @ at all is the documented default');
  t.equal((await rig.invoke(`${NAME}@${encodeURIComponent(' ^2 || ^3 ')}`)).status, 200, 'blanks around a range are nothing');
  t.equal(agent.executions, 2);

  // Where operators write ranges the same holds.
  const inTable = (line: string): string =>
    `contracts:\n  - {name: ${NAME}, version: "2.0.0", acl: public}\n  - {name: crm.order.list, version: "2.0.0", acl: public}\nproviders:\n  - {agent_id: ${P(1)}, offers: ["${NAME}@2.0.0"], endpoint: {type: mock}}\n${line}\n`;
  t.notOk('problems' in readTable(inTable('policies: [{capability: crm.order.query, default_range: "^2"}]'), 't.yaml'));
  for (const text of ['', ' ', '||', '^1 ||', 'undefined', 'null']) {
    for (const line of [
      `policies: [{capability: ${NAME}, default_range: "${text}"}]`,
      `policies: [{capability: ${NAME}, fallback: [{capability: "crm.order.list@${text}"}]}]`,
      `overrides: [{name: o1, reason: test, action: reroute, capability: ${NAME}, to: "crm.order.list@${text}"}]`,
    ]) {
      const reading = readTable(inTable(line), 't.yaml');
      t.ok('problems' in reading && reading.problems.length > 0, line);
    }
  }
  await rig.stop();
  await agent.close();
  await rig.finish(t, before, [{ name: 'order', count: agent.executions, expected: 2 }]);
});
