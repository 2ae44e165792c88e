import t from 'tap';
import { NO_CHANGES, readChanges, type Changes } from '../../../../sidecar/replay/changes.ts';
import { replay, type ReplayReport } from '../../../../sidecar/replay/replay.ts';
import { sendToSandbox } from '../../../../sidecar/replay/send.ts';
import { jsonOf, linesOf, sideBySide } from '../../../../sidecar/replay/report.ts';
import { readRecording, type Recording } from '../../../../sidecar/record/reading.ts';
import { RecordedWorld } from '../../../support/recorded-world.ts';

t.setTimeout(60_000);

/** Three that serve orders, the first of them failing now and then; notes in two versions; a desk for what must be done once. */
const TABLE = `
scenario: recorded
as: crm.web.1
contracts:
  - {name: crm.order.query, version: 2.0.0, description: Orders., acl: public, execution: idempotent, timeout: 300ms, deadline: 2s, fallback: [{capability: crm.order.cached}, {static: {order: null}}], input: {type: object, properties: {n: {type: integer}}}, output: {type: object}}
  - {name: crm.order.cached, version: 1.0.0, description: Copies., acl: public, execution: idempotent}
  - {name: crm.note.read, version: 1.0.0, description: Notes., acl: public, execution: idempotent, affinity: {from: /session}}
  - {name: crm.note.read, version: 1.1.0, description: Notes., acl: public, execution: idempotent, affinity: {from: /session}}
  - {name: crm.text.write, version: 1.0.0, description: Streams., acl: public, execution: idempotent, streaming: {first_chunk: 1s}}
  - {name: pay.order.charge, version: 1.0.0, description: Once., acl: [crm.web.*], execution: once, success: {unless: [{pointer: /state, equals: refused}]}}
providers:
  - {agent_id: crm.order.1, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.order.2, offers: [crm.order.query@2.0.0]}
  - {agent_id: crm.order.3, offers: [crm.order.query@2.0.0], weight: 3}
  - {agent_id: crm.copy.1, offers: [crm.order.cached@1.0.0]}
  - {agent_id: crm.note.1, offers: [crm.note.read@1.0.0]}
  - {agent_id: crm.note.2, offers: [crm.note.read@1.1.0]}
  - {agent_id: crm.note.3, offers: [crm.note.read@1.1.0]}
  - {agent_id: crm.text.1, offers: [crm.text.write@1.0.0]}
  - {agent_id: pay.desk.1, offers: [pay.order.charge@1.0.0]}
policies:
  - {capability: crm.note.read, canary: {"1.1.0": 30%}}
mocks:
  crm.order.1: {latency: 20ms, error_rate: 30%}
  crm.order.2: {latency: 30ms}
  crm.order.3: {latency: 25ms, error_rate: 5%}
  crm.copy.1: {latency: 1ms}
  crm.note.1: {latency: 5ms}
  crm.note.2: {latency: 5ms}
  crm.note.3: {latency: 5ms}
  crm.text.1: {latency: 5ms, slow_body: {chunks: 4, every: 5ms}}
  pay.desk.1: {latency: 5ms, body: {state: refused}}
steps:
  - {call: crm.order.query}
`;

function read(folder: string): Recording {
  const recording = readRecording(folder);
  if (typeof recording === 'string') throw new Error(recording);
  return recording;
}

function changed(withText: string | null, ...sets: string[]): Changes {
  const changes = readChanges(withText === null ? null : { text: withText, file: 'policies.yaml' }, sets);
  if (!('words' in changes)) throw new Error(changes.join('; '));
  return changes;
}

async function recorded(world: RecordedWorld, times: number, name = 'crm.order.query', atOnce = 8): Promise<void> {
  for (let n = 0; n < times; n += atOnce) {
    const asked = Array.from({ length: Math.min(atOnce, times - n) }, (_, i) => ({ name, body: { n: n + i, session: `s${(n + i) % 9}` } }));
    await world.calls(asked);
  }
}

const identical = (report: ReplayReport): readonly (string | null)[] =>
  report.calls.filter(({ broken }) => broken !== null).map(({ broken }) => broken);

t.test('ten thousand recorded calls are decided anew as they were, bit by bit, in less than two seconds', async (t) => {
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  await recorded(world, 10_000, 'crm.order.query', 50);
  const recording = read(await world.written());
  t.equal(world.recorder.counts.recorded, 10_000);
  const from = process.cpuUsage();
  const report = await replay(recording, { changes: NO_CHANGES, limit: Number.POSITIVE_INFINITY });
  const { user, system } = process.cpuUsage(from);
  const seconds = (user + system) / 1_000_000;
  t.comment(`${seconds.toFixed(2)} s of processor time`);
  t.strictSame(identical(report).slice(0, 3), []);
  t.equal(report.calls.length, 10_000);
  t.ok(seconds < 2, `${seconds} s`);
  const attempts = report.calls.filter(({ record }) => record.decision.attempts.length > 1).length;
  t.ok(attempts > 500, `${attempts} calls were retried`);

  const stricter = await replay(recording, { changes: changed(null, 'breaker.failure_ratio=15%', 'breaker.min_calls=5'), limit: 2_000 });
  const sums = stricter.sums;
  t.equal(sums.broken, 0);
  t.ok(sums.different + sums.undecided > 100, JSON.stringify(sums));
  const lines = linesOf(stricter).join('\n');
  t.match(
    lines,
    /With --set breaker\.failure_ratio=15% --set breaker\.min_calls=5 \(breakers are judged from the recorded contents of their windows\)/,
  );
  t.match(lines, /call \d+ crm\.order\.query by crm\.web\.1/);
  const one = stricter.calls.find(({ differences, miss }) => differences.length > 0 || miss !== null);
  t.ok(one !== undefined && sideBySide(one, 120).some((line) => line.includes('≠')));
  t.same((jsonOf(stricter) as { calls: number }).calls, 2_000);
});

t.test('an answer that ended without its last word, and one with it, are decided anew as they were, without their bodies', async (t) => {
  const world = new RecordedWorld(`
scenario: recorded
as: crm.web.1
contracts:
  - {name: nlp.text.cut, version: 1.0.0, description: x, acl: public, execution: idempotent, streaming: {done: finished}}
  - {name: nlp.text.whole, version: 1.0.0, description: x, acl: public, execution: idempotent, streaming: {done: finished}}
providers:
  - {agent_id: nlp.cut.1, offers: [nlp.text.cut@1.0.0]}
  - {agent_id: nlp.whole.1, offers: [nlp.text.whole@1.0.0]}
mocks:
  nlp.cut.1: {body: {token: a}, headers: {content-type: application/x-ndjson}}
  nlp.whole.1: {body: {type: finished}, headers: {content-type: application/x-ndjson}}
steps:
  - {call: nlp.text.cut}
`);
  t.teardown(() => world.remove());
  const cut = await world.call({ name: 'nlp.text.cut' });
  const whole = await world.call({ name: 'nlp.text.whole' });
  t.match([cut.code, cut.attempts[0]?.started, whole.code], [1004, 'started', 0]);
  const recording = read(await world.written());
  const report = await replay(recording, { changes: NO_CHANGES, limit: 10 });
  t.strictSame(identical(report), []);
  t.same(
    (await sendToSandbox(recording, NO_CHANGES, 10)).sent.map(({ code, diff, miss }) => [code, diff, miss]),
    [
      [1004, [], null],
      [0, [], null],
    ],
  );
});

t.test('conversations, canaries, streams, keys, fallbacks, refusals and callers that leave are decided as they were', async (t) => {
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  await recorded(world, 60, 'crm.note.read', 5);
  for (let n = 0; n < 4; n++) await world.call({ name: 'crm.text.write', stream: true });
  await world.call({ name: 'crm.text.write', stream: true, leaveAfterMs: 12 });
  await world.call({ name: 'crm.order.query', leaveAfterMs: 7 });
  await world.call({ name: 'pay.order.charge', headers: { 'idempotency-key': 'order-77' } });
  await world.call({ name: 'pay.order.charge', headers: { 'idempotency-key': 'order-77' } });
  await world.call({ name: 'pay.order.charge', headers: { 'reach-deadline-ms': '3' } });
  await world.call({ name: 'crm.order.query', body: { n: 'no number' } });
  await world.call({ name: 'crm.order.query', bytes: Buffer.from('{"n": ') });
  await world.call({ name: 'crm.order.quary' });
  await world.call({ name: 'crm.order.query@^3' });
  await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.2' } });
  await world.call({ name: 'crm.order.query', headers: { 'reach-pin': 'crm.order.9' } });
  await world.call({ name: 'crm.order.query', caller: 'no.body.1' });
  await world.call({ name: 'crm.order.query', headers: { 'reach-budget': 'a=10ms', 'reach-step': 'a', 'reach-deadline-ms': '500' } });
  const report = await replay(read(await world.written()), { changes: NO_CHANGES, limit: 1_000 });
  t.strictSame(identical(report), []);
  const codes = new Set(report.calls.map(({ record }) => record.decision.code));
  for (const code of [0, 1004, 2001, 4001, 4003, 5003]) t.ok(codes.has(code), `${code} is among ${[...codes].join()}`);
  t.ok(report.calls.length >= 75);
});

t.test('breakers, ramps, full providers, turns, overrides that come and quotas are decided as they were', async (t) => {
  const text = TABLE.replace(
    'policies:\n',
    'policies:\n  - {capability: crm.order.query, load: round_robin, breaker: {min_calls: 4, failure_ratio: 50%, open: 2s, ramp: [1, 2], ramp_step: 1s}, limits: {per_provider: 2, per_caller: 5}}\n',
  ).replace('error_rate: 30%', 'error_rate: 80%');
  const world = new RecordedWorld(text);
  t.teardown(() => world.remove());
  const { clock, engine, table } = world.world;
  const states = new Set<string>();
  for (let round = 0; round < 12; round++) {
    await recorded(world, 12, 'crm.order.query', 7);
    for (const cell of world.world.health.cells()) states.add(cell.stateName);
    await clock.advance(700);
  }
  t.strictSame(
    [...states].sort().filter((state) => state !== 'half_open'),
    ['closed', 'open', 'ramping'],
  );
  const rule = { provider: null, caller: null, to: null, data: undefined, cut: false, reason: 'a test', author: 'ops', expiresAtMs: null };
  table.installOverrides([{ ...rule, name: 'no-one', action: 'block', capability: 'crm.order.query', provider: 'crm.order.3' }]);
  await recorded(world, 10);
  // While they are under way, and between two attempts.
  const late = recorded(world, 8, 'crm.order.query', 8);
  table.installOverrides([{ ...rule, name: 'all', action: 'block', capability: 'crm.order.query' }]);
  await late;
  await recorded(world, 2);
  table.installOverrides([{ ...rule, name: 'moved', action: 'reroute', capability: 'crm.order.query', to: 'crm.order.cached' }]);
  await recorded(world, 2);
  table.installOverrides([{ ...rule, name: 'poor', action: 'degrade', capability: 'crm.order.query', data: { order: 'later' } }]);
  await recorded(world, 2);
  table.installOverrides([]);
  engine.quotas.replace([
    { kind: 'agent', target: 'crm.web.1', calls: { perSec: 1, burst: 3 }, messages: null, inFlight: null, expiresAtMs: null } as never,
    { kind: 'provider', target: 'crm.order.2', calls: { perSec: 1, burst: 1 }, messages: null, inFlight: null, expiresAtMs: null } as never,
  ]);
  await recorded(world, 8);
  const report = await replay(read(await world.written()), { changes: NO_CHANGES, limit: 1_000 });
  t.strictSame(identical(report), []);
  t.ok(report.calls.length > 150);
  const codes = new Set(report.calls.map(({ record }) => record.decision.code));
  for (const code of [0, 2006, 3002, 3004]) t.ok(codes.has(code), `${code} is among ${[...codes].join()}`);
});

t.test('other policies are tried on what was recorded, and who was not asked then is a miss', async (t) => {
  const world = new RecordedWorld(TABLE.replace('error_rate: 30%', 'error_rate: 0%').replace('error_rate: 5%', 'error_rate: 0%'));
  t.teardown(() => world.remove());
  await recorded(world, 40);
  const recording = read(await world.written());
  const drained = changed('policies: [{capability: crm.order.query, providers: {crm.order.3: {drain: true}}}]\n');
  const report = await replay(recording, { changes: drained, limit: 1_000 });
  const was = report.calls.filter(({ record }) => record.decision.provider === 'crm.order.3');
  t.ok(was.length > 5);
  for (const { miss, changed: now } of was) {
    t.equal(now, null, 'nothing is made up');
    t.match(miss?.asked, /crm\.order\.[12] for crm\.order\.query@2\.0\.0, attempt 1/);
    t.match(miss?.recorded, /crm\.order\.3 for crm\.order\.query@2\.0\.0/);
  }
  const sums = report.sums;
  t.equal(sums.undecided, report.calls.filter(({ miss }) => miss !== null).length);
  t.match(linesOf(report).join('\n'), /REPLAY_MISS: the answer: asked crm\.order\.[12]/);

  const hurried = await replay(recording, { changes: changed('policies: [{capability: "*", timeout: 10ms}]\n'), limit: 1_000 });
  t.ok(
    hurried.calls.every(({ differences, miss }) => differences.length > 0 || miss !== null),
    'an answer that came after 20 ms is none within 10 ms',
  );
  const blocked = changed('overrides: [{name: stop, action: block, capability: crm.order.query, reason: a test, author: ops}]\n');
  const stopped = await replay(recording, { changes: blocked, limit: 1_000 });
  t.ok(stopped.calls.every(({ changed: now }) => now?.code === 2006));
});

t.test('a longer time than was waited for is undecided: what would have come is not known', async (t) => {
  const world = new RecordedWorld(TABLE.replace('crm.copy.1: {latency: 1ms}', 'crm.copy.1: {latency: 40s}'));
  t.teardown(() => world.remove());
  await world.call({ name: 'crm.order.cached', headers: { 'reach-deadline-ms': '50000' } });
  const recording = read(await world.written());
  const timeoutMs = recording.files[0]?.calls[0]?.decision.attempts[0]?.elapsed_ms ?? 0;
  t.ok(timeoutMs > 0);
  const report = await replay(recording, { changes: changed(null, 'timeout=45s'), limit: 10 });
  t.match(report.calls[0]?.miss, { what: 'the answer', recorded: /had not answered when it was given up after \d+ ms/ });
  t.strictSame((await replay(recording, { changes: NO_CHANGES, limit: 10 })).calls[0]?.broken, null);
});

t.test('a recording that was tampered with says so loudly, with the first difference', async (t) => {
  const world = new RecordedWorld(TABLE);
  t.teardown(() => world.remove());
  await recorded(world, 3);
  const recording = read(await world.written());
  const call = recording.files[0]?.calls[1] as { seed: number; decision: { code: number } };
  call.decision.code = 1002;
  const report = await replay(recording, { changes: changed(null, 'load=random'), limit: 10 });
  t.equal(report.sums.broken, 1);
  const [first, second] = linesOf(report);
  t.match(first, /^NOT IDENTICAL: 1 of 3 calls/);
  t.match(second, /call 2: code: recorded 1002, now 0/);
});

t.test('what cannot be changed is refused with a sentence', (t) => {
  for (const [sets, words] of [
    [['breaker.failure_ration=3'], /failure_ratio/],
    [['breaker'], /name=value/],
    [['sidecar.listen=1'], /sidecar\.max_hops/],
    [['breaker.failure_ratio=300%'], /./],
  ] as const) {
    const changes = readChanges(null, sets);
    t.notOk('words' in changes, sets.join());
    if (!('words' in changes)) t.match(changes.join(), words);
  }
  const file = readChanges({ text: 'contracts: []\n', file: 'x.yaml' }, []);
  t.match('words' in file ? '' : file.join(), /neither policies nor overrides/);
  t.end();
});
