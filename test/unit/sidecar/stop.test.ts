/** What a stop is made of: whose calls are taken meanwhile, when agents have finished, which are dead, and where a cut stream goes on. */
import t from 'tap';
import { VirtualClock } from '../../../base/virtual-clock.ts';
import { Finishing } from '../../../sidecar/accept/finishing.ts';
import { readResume, resumeToken } from '../../../sidecar/accept/resume.ts';
import { EventMaker, EventRelay, LineEvents } from '../../../sidecar/accept/sse.ts';
import type { Engine } from '../../../sidecar/engine.ts';
import type { ShutdownSettings } from '../../../sidecar/shutdown-config.ts';
import { isClean, Stop, type StopParts, type StopReport, stopWords } from '../../../sidecar/stop.ts';
import { OwnAgents } from '../../../sidecar/table/own-agents.ts';
import { type Condition, OwnProbes } from '../../../sidecar/table/own-probes.ts';
import { contractOf, providerOf } from '../../support/route-table.ts';

/** Calls under way by agent, and traces that have one. */
class World {
  readonly clock = new VirtualClock();
  readonly calls = new Map<string, number>();
  readonly traces = new Set<string>();
  readonly serving = new Set<string>();
  readonly holding = new Set<string>();

  finishing(settings: Partial<ShutdownSettings> = {}): Finishing {
    const engine = {
      clock: this.clock,
      limits: { callers: () => new Set(this.calls.keys()), inFlightOf: (agent: string) => this.calls.get(agent) ?? 0 },
      underway: { has: (trace: string) => this.traces.has(trace) },
    } as unknown as Engine;
    return new Finishing(
      engine,
      { graceMs: 10_000, quietMs: 1_500, ownCalls: 'finishing', ...settings },
      { serves: (agent) => this.serving.has(agent), holds: (agent) => this.holding.has(agent) },
    );
  }
}

const A = 'crm.worker.a';
const B = 'crm.worker.b';

t.test('whose calls are taken while the sidecar stops', async (t) => {
  await t.test('of an agent that serves here all, until shortly before the end of the grace', async (t) => {
    const world = new World();
    world.serving.add(A);
    const finishing = world.finishing();
    finishing.begin(10_000);
    world.calls.set(A, 7);
    t.ok(finishing.admits(A, ''));
    await world.clock.advanceTo(9_499);
    t.ok(finishing.admits(A, ''));
    await world.clock.advanceTo(9_500);
    t.notOk(finishing.admits(A, ''), 'what would only be cut is not begun');
  });

  await t.test(
    'of one that only calls: the next step, and what belongs to a trace under way; nothing beside calls under way',
    async (t) => {
      const world = new World();
      world.calls.set(A, 0);
      world.calls.set(B, 2);
      const finishing = world.finishing();
      finishing.begin(10_000);
      t.ok(finishing.admits(A, ''), 'it called before, and has nothing under way');
      t.notOk(finishing.admits(B, ''), 'new, beside calls under way');
      world.traces.add('t1');
      t.ok(finishing.admits(B, 't1'), 'part of what is under way');
      t.notOk(finishing.admits('crm.stranger.c', ''), 'it has never called');
      await world.clock.advanceTo(1_400);
      t.ok(finishing.admits(A, ''), 'within the time of quiet');
      await world.clock.advanceTo(2_900);
      t.notOk(finishing.admits(A, ''), 'it has been quiet for too long');
    },
  );

  await t.test('as the settings say: all, or none', async (t) => {
    const world = new World();
    const all = world.finishing({ ownCalls: 'all' });
    all.begin(10_000);
    t.ok(all.admits('crm.stranger.c', ''));
    const none = world.finishing({ ownCalls: 'none' });
    world.serving.add(A);
    none.begin(10_000);
    t.notOk(none.admits(A, ''));
    t.ok(none.look(), 'and nobody is waited for');
  });
});

t.test('when the agents beside it have finished', async (t) => {
  await t.test('nobody has called: at once', async (t) => {
    const finishing = new World().finishing();
    finishing.begin(10_000);
    t.ok(finishing.look());
  });

  await t.test('quiet counts from the last call or the last work in hand, and begins with the signal', async (t) => {
    const world = new World();
    world.calls.set(A, 1);
    const finishing = world.finishing();
    await world.clock.advanceTo(60_000);
    finishing.begin(70_000);
    await world.clock.advanceTo(63_000);
    t.notOk(finishing.look(), 'a call is under way');
    world.calls.set(A, 0);
    await world.clock.advanceTo(64_400);
    t.notOk(finishing.look());
    world.holding.add(A);
    t.notOk(finishing.look());
    world.holding.delete(A);
    await world.clock.advanceTo(65_800);
    t.notOk(finishing.look(), 'it had a message in hand');
    await world.clock.advanceTo(65_900);
    t.ok(finishing.look());
  });

  await t.test('or when each has said so, unless it calls again', async (t) => {
    const world = new World();
    world.calls.set(A, 0);
    world.calls.set(B, 0);
    const finishing = world.finishing({ quietMs: 60_000 });
    finishing.said(A);
    finishing.begin(10_000);
    t.notOk(finishing.look(), 'one has not');
    finishing.said(B);
    t.ok(finishing.look());
    t.ok(finishing.admits(A, ''));
    t.notOk(finishing.look(), 'it had not finished after all');
  });

  await t.test('what was said long before the signal was not about it', async (t) => {
    const world = new World();
    world.calls.set(A, 0);
    const finishing = world.finishing();
    finishing.said(A);
    await world.clock.advanceTo(61_000);
    finishing.begin(71_000);
    t.notOk(finishing.look());
  });
});

t.test('where a stream goes on that was cut', async (t) => {
  const headers: Record<string, string | undefined> = { 'reach-resume': resumeToken('crm.order.1', 'ev-7') };
  t.equal(readResume(headers), null);
  t.match(headers, { 'reach-pin': 'crm.order.1', 'last-event-id': 'ev-7' });
  const said = { 'reach-resume': resumeToken('crm.order.1', 'ev-7'), 'reach-pin': 'crm.order.2', 'last-event-id': 'mine' };
  t.equal(readResume(said), null);
  t.match(said, { 'reach-pin': 'crm.order.2', 'last-event-id': 'mine' }, 'what the caller says itself stands');
  t.equal(resumeToken(null, ''), '', 'before anybody gave anything there is nothing to go on from');
  const crafted = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  for (const bad of [
    'x',
    '',
    crafted(null),
    crafted({ provider: 'no agent', position: '' }),
    crafted({ provider: 'crm.order.1', position: 'a\r\nreach-caller: b' }),
    crafted({ provider: 'crm.order.1', position: 'x'.repeat(300) }),
    'A'.repeat(2_000),
  ]) {
    const given = { 'reach-resume': bad };
    t.match(readResume(given), /must be the token/, bad.slice(0, 30));
    t.strictSame(Object.keys(given), ['reach-resume'], 'nothing of it is used');
  }

  const relay = new EventRelay(1_000);
  t.equal(relay.position(), '');
  relay.chunk(Buffer.from('id: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: half'));
  t.equal(relay.position(), '2', 'of whole events');
  t.equal(relay.goAway('{}'), 'event: going_away\ndata: {}\n\n', 'the half one is nobody’s');
  const lines = new LineEvents(1_000);
  lines.chunk(Buffer.from('{"n":1}\n{"n":2}\n{"n'));
  t.equal(lines.position(), '2', 'where events have no ids: how many');
  const made = new EventMaker('text/plain');
  made.chunk(Buffer.from('a'));
  t.equal(made.position(), '1');
});

t.test('what a stop says', async (t) => {
  const clean: StopReport = { tookMs: 1, callsCut: 0, streamsTold: 0, givenBack: 0, kept: 0, inDoubt: 0, unsent: 0 };
  t.equal(stopWords(clean), 'everything that was under way has ended');
  t.ok(isClean({ ...clean, streamsTold: 2, givenBack: 3, unsent: 4 }), 'what goes on elsewhere is not lost');
  t.equal(
    stopWords({ ...clean, callsCut: 1, inDoubt: 2, streamsTold: 1, givenBack: 3, kept: 1, unsent: 4 }),
    '1 call cut, 2 messages of kind once in doubt, 1 stream told to go on elsewhere, 3 messages given back for others, 1 message at agents that go on, for the next start, 4 messages on disk for the next start',
  );
  for (const [name, bad] of Object.entries({ call: { callsCut: 1 }, once: { inDoubt: 1 } })) t.notOk(isClean({ ...clean, ...bad }), name);
});

t.test('health checks of the agents here', async (t) => {
  const QUERY = 'crm.order.query';
  const setUp = (interval = 5_000) => {
    const clock = new VirtualClock();
    const own = new OwnAgents();
    const endpoint = { type: 'http', address: 'http://127.0.0.1:9/base/', path: null, mapping: {}, credential: null, options: {} };
    const record = providerOf('crm.order.1', [`${QUERY}@1.0.0`], {
      endpoint,
      via: 'one',
      healthCheck: { path: '/health', intervalMs: interval },
    });
    const agent = own.put({ contracts: [contractOf(QUERY, '1.0.0')], record }, 'file', 0);
    const seen = { condition: 'well' as Condition, asked: [] as string[], events: [] as string[], inFlight: 0, lastAnswerAt: -1 };
    const probes = new OwnProbes({
      own,
      clock,
      log: { info: () => undefined, warn: () => undefined } as never,
      activity: () => ({ lastAnswerAt: seen.lastAnswerAt, inFlight: seen.inFlight, busySince: 0 }),
      ask: (url) => {
        seen.asked.push(`${clock.now()} ${url}`);
        return Promise.resolve(seen.condition);
      },
      onLost: ({ agentId }) => seen.events.push(`lost ${agentId}`),
      onBack: ({ agentId }) => seen.events.push(`back ${agentId}`),
    });
    probes.start();
    return { clock, own, agent, seen, probes };
  };

  await t.test('two failures soon after one another, and it is gone; one success, and it is back', async (t) => {
    const { clock, agent, seen, probes } = setUp();
    await clock.advanceTo(4_900);
    t.strictSame(seen.asked, ['0 http://127.0.0.1:9/base/health'], 'once an interval while it is well');
    seen.condition = 'unwell';
    await clock.advanceTo(5_100);
    t.strictSame(seen.events, [], 'one failure may be chance');
    await clock.advanceTo(5_600);
    t.strictSame(seen.events, ['lost crm.order.1']);
    t.ok(agent.isUnwell);
    await clock.advanceTo(8_000);
    t.strictSame(seen.events, ['lost crm.order.1'], 'said once');
    seen.condition = 'well';
    await clock.advanceTo(9_500);
    t.strictSame(seen.events, ['lost crm.order.1', 'back crm.order.1']);
    t.notOk(agent.isUnwell);
    probes.stop();
    const asked = seen.asked.length;
    await clock.advanceTo(60_000);
    t.equal(seen.asked.length, asked, 'nobody is asked any more');
  });

  await t.test('busy is not dead: it answers calls, or lets the check wait while it is at work', async (t) => {
    const { clock, seen, probes } = setUp(1_000);
    seen.condition = 'late';
    seen.inFlight = 1;
    await clock.advanceTo(10_000);
    t.strictSame(seen.events, []);
    seen.inFlight = 0;
    seen.condition = 'unwell';
    seen.lastAnswerAt = Number.POSITIVE_INFINITY;
    await clock.advanceTo(20_000);
    t.strictSame(seen.events, []);
    seen.lastAnswerAt = 0;
    await clock.advanceTo(23_000);
    t.strictSame(seen.events, ['lost crm.order.1']);
    probes.stop();
  });

  await t.test('an agent that registers anew begins anew', async (t) => {
    const { clock, own, agent, seen, probes } = setUp(1_000);
    seen.condition = 'unwell';
    await clock.advanceTo(2_000);
    t.strictSame(seen.events, ['lost crm.order.1']);
    seen.condition = 'well';
    const again = own.put(agent.registration, 'api', clock.now());
    await clock.advanceTo(4_000);
    t.notOk(again.isUnwell);
    t.strictSame(seen.events, ['lost crm.order.1'], 'it has announced itself');
    probes.stop();
  });
});

t.test('a last step that hangs or fails takes nothing from those behind it', async (t) => {
  const clock = new VirtualClock();
  const did: string[] = [];
  const warned: string[] = [];
  const never = new Promise<void>(() => undefined);
  const logger = {
    info: () => undefined,
    warn: (what: { readonly what?: string }, words: string) => warned.push(`${what.what}: ${words}`),
  };
  const parts = {
    clock,
    log: { logger, flush: () => did.push('log') },
    front: {
      draining: false,
      channels: null,
      finishing: null,
      observation: { inFlight: () => 0 },
      submitting: 0,
      streamsTold: 0,
      outbox: null,
      close: () => undefined,
    },
    ports: [],
    grpc: null,
    delivery: null,
    inbox: null,
    joined: null,
    unwatch: () => undefined,
    flush: [
      ['spans', () => void did.push('spans')],
      ['outbox', () => never],
      ['digests', () => Promise.reject(new Error('no'))],
      [
        'odd',
        () => {
          throw new Error('at once');
        },
      ],
      ['nats', async () => void did.push('nats')],
    ],
    beside: [['recording', () => never]],
  } as unknown as StopParts;
  let report: StopReport | null = null;
  void new Stop(parts).run(1_000).then((done) => {
    report = done;
  });
  await clock.advanceTo(1_500);
  t.strictSame(warned, ['recording: stops without waiting longer for what does not end'], 'a disk that hangs waits beside the others');
  await clock.advanceTo(10_000);
  t.match(report, { callsCut: 0 });
  t.strictSame(did, ['spans', 'nats', 'log']);
  t.strictSame(
    warned.slice(1).map((each) => each.split(':')[0]),
    ['outbox', 'digests', 'odd'],
  );
});
