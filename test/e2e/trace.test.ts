/**
 * One trace through everything at once: a call from sidecar to sidecar, on to agents by JSON-RPC and by NATS, and a message whose worker's
 * sidecar is killed in the midst of it; told to a real control plane over a real nats-server, and read with the real reachctl. And the
 * same spans, exported as OTLP, as a real OpenTelemetry collector understands them.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'nats';
import t, { type Test } from 'tap';
import { realClock } from '../../base/clock.ts';
import type { TraceAnswer } from '../../control-plane/api/trace-shapes.ts';
import { runReachctl } from '../../control-plane/cli/program.ts';
import type { Terminal } from '../../control-plane/cli/terminal.ts';
import { TestAgent } from '../support/agent.ts';
import { OPERATOR, Plane, VIEWER } from '../support/control-plane.ts';
import { goProgram } from '../support/grpcurl.ts';
import { MARK } from '../support/credential-mark.ts';
import { Fleet, knows } from '../support/fleet.ts';
import { OtelCollector, otelCollector, type ReceivedSpan } from '../support/otel-collector.ts';
import { CALLER, type Rig, TOKEN } from '../support/rig.ts';
import { waitUntil } from '../support/settle.ts';
import { type Program, startProgram } from '../support/sockets.ts';

t.setTimeout(110_000);

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const MIDDLE = 'crm.middle.m1';
const MIDDLE_TOKEN = `token-of-the-middle-${MARK}`;
const WORKER = 'crm.clerk.w1';
const WORK = 'crm.middle.work';
const NOTE = 'crm.note.write';

const contract = (name: string, more = ''): string =>
  `{name: ${name}, version: 1.0.0, description: x, acl: public, execution: idempotent${more}}`;

/** The programs, and what the agents do. */
class World {
  readonly fleet: Fleet;
  readonly front: Rig;
  readonly #t: Test;
  readonly #folder: string;
  readonly #clerk: TestAgent;
  #worker: Program | null = null;
  /** The clerk never answers. */
  isStuck = true;

  static async start(t: Test): Promise<World> {
    const fleet = await Fleet.start(t, '  messages: {ack_wait: 2s}\n');
    const rpc = await TestAgent.listen('rpc', ({ json }) => {
      const { id, params } = json as { id: unknown; params: unknown };
      return { body: { jsonrpc: '2.0', id, result: { found: params } } };
    });
    const connection = await connect({ servers: fleet.nats.url, name: 'the stock' });
    connection.subscribe('shop.stock', { callback: (_error, message) => void message.respond('{"level":3}') });
    let middle: Rig | null = null;
    const agent = await TestAgent.listen('middle', async ({ headers, json }) => {
      const ask = (path: string): ReturnType<Rig['ask']> =>
        (middle as Rig).ask(path, {
          method: 'POST',
          payload: json,
          token: MIDDLE_TOKEN,
          headers: { traceparent: headers['traceparent'] as string, 'reach-path': (headers['reach-path'] as string | undefined) ?? '' },
        });
      const answers = [await ask('/v1/invoke/crm.rpc.find'), await ask('/v1/invoke/crm.stock.level'), await ask(`/v1/cast/${NOTE}`)];
      return { body: { statuses: answers.map(({ status }) => status), task: answers[2]?.json.task_id } };
    });
    const table = `contracts: [${contract(WORK, ', timeout: 5s')}, ${contract('crm.rpc.find')}, ${contract('crm.stock.level')}]
providers:
  - {agent_id: ${MIDDLE}, offers: ["${WORK}@1.0.0"], via: middle, endpoint: {type: http, address: "${agent.url}", path: /}}
  - {agent_id: crm.rpc.r1, offers: ["crm.rpc.find@1.0.0"], via: middle, endpoint: {type: jsonrpc, address: "${rpc.url}/rpc"}}
  - {agent_id: crm.stock.s1, offers: ["crm.stock.level@1.0.0"], via: middle, endpoint: {type: nats, address: "${fleet.nats.url}", subject: shop.stock}}
`;
    middle = await fleet.sidecar('middle', table, '', { callers: { [MIDDLE]: MIDDLE_TOKEN }, seed: 2 });
    const front = await fleet.sidecar('front', 'contracts: []\nproviders: []\n');
    const clerk = await TestAgent.listen('clerk');
    const world = new World(t, fleet, front, clerk);
    clerk.behaviour = async () => {
      if (world.isStuck) await new Promise<void>((done) => setTimeout(done, 60_000).unref());
      return { body: { written: true } };
    };
    t.teardown(async () => {
      await Promise.all([agent.close(), rpc.close(), clerk.close(), connection.close()]);
    });
    await world.startWorker();
    await Promise.all([knows(front, WORK), knows(middle, 'crm.stock.level'), knows(middle, NOTE)]);
    return world;
  }

  private constructor(t: Test, fleet: Fleet, front: Rig, clerk: TestAgent) {
    this.#t = t;
    this.fleet = fleet;
    this.front = front;
    this.#clerk = clerk;
    this.#folder = mkdtempSync(join(tmpdir(), 'reach-trace-'));
    t.teardown(() => rmSync(this.#folder, { recursive: true, force: true }));
  }

  get begun(): number {
    return this.#clerk.begun;
  }

  async startWorker(): Promise<void> {
    const file = join(this.#folder, 'worker.yaml');
    writeFileSync(
      file,
      `sidecar:\n  name: worker\n  listen: 127.0.0.1:0\n  claims: {lease: 2s}\n  mesh: {listen: "127.0.0.1:0", token: token-of-the-mesh}\n${this.fleet.registryLines()}contracts: [${contract(NOTE, ', timeout: 30s, deadline: 60s')}]
providers:
  - {agent_id: ${WORKER}, offers: ["${NOTE}@1.0.0"], via: worker, endpoint: {type: http, address: "${this.#clerk.url}"}}
`,
    );
    const worker = startProgram('sidecar/main.ts', ['run', file]);
    this.#worker = worker;
    this.#t.teardown(() => worker.stop());
  }

  async killWorker(): Promise<void> {
    this.#worker?.signal('SIGKILL');
    await this.#worker?.ended(5_000);
  }

  async trace(id = TRACE): Promise<TraceAnswer> {
    return (await this.fleet.plane.ask(`/v1/traces/${id}`)).body as unknown as TraceAnswer;
  }
}

interface Ran {
  readonly exit: number;
  readonly out: string;
  readonly err: string;
}

async function reachctl(plane: Plane, args: readonly string[], terminal?: Terminal): Promise<Ran> {
  const out: string[] = [];
  const err: string[] = [];
  const exit = await runReachctl(
    args,
    {
      out: (text) => out.push(text),
      err: (text) => err.push(text),
      env: { REACH_SERVER: plane.url, REACH_TOKEN: VIEWER, COLUMNS: '140' },
      clock: realClock,
      stdin: async () => '',
      ...(terminal === undefined ? null : { terminal }),
    },
    '1.2.3',
  );
  return { exit, out: out.join('\n'), err: err.join('\n') };
}

t.test('one trace through sidecars, protocols and a message whose worker is killed', async (t) => {
  const world = await World.start(t);
  const { fleet, front } = world;
  const tailed = reachctl(fleet.plane, ['tail', '--count', '1', '--capability', 'crm.middle.*', '--json']);
  // It listens before anything ends.
  await new Promise<void>((done) => setTimeout(done, 100));
  const answer = await front.invoke(WORK, { payload: { n: 1 }, headers: { traceparent: `00-${TRACE}-${PARENT}-01` } });
  t.equal(answer.status, 200, answer.bytes.toString('utf8'));
  t.match(answer.json.data, { statuses: [200, 200, 202] });

  await waitUntil('the clerk has begun', () => world.begun === 1, 10_000);
  await t.test('while the work goes on, the message is under way and nothing is missing', async (t) => {
    await waitUntil('its calls are told', async () => (await world.trace()).spans?.some(({ stage }) => stage === 'queue') === true, 10_000);
    const shown = await world.trace();
    t.match(shown, { complete: false, gaps: [], orphans: 0 });
    t.match(shown.under_way, [new RegExp(`${NOTE} .*is being worked on by ${WORKER}`)]);
  });
  await world.killWorker();
  world.isStuck = false;
  await world.startWorker();
  // Without a terminal each new span is a line, until there is nothing more to come.
  const followed = await reachctl(fleet.plane, ['trace', TRACE, '--follow']);
  t.equal(followed.exit, 0, followed.err);
  t.match(followed.out, new RegExp(`^\\+.*${CALLER} calls ${WORK}@1.0.0 by http: ok$`, 'm'));

  await t.test('the tree is whole: every hop below the one that made it, and both tries of the message', async (t) => {
    const shown = await world.trace();
    t.same({ complete: shown.complete, gaps: shown.gaps, orphans: shown.orphans }, { complete: true, gaps: [], orphans: 0 });
    const lines = shown.spans.map((span) =>
      `${'  '.repeat(span.depth)}${span.stage} ${span.capability} ${span.sidecar} ${span.way ?? ''}`.trimEnd(),
    );
    const one = (line: string, count = 1): void => void t.equal(lines.filter((each) => each === line).length, count, line);
    one(`outbound ${WORK} front http`);
    one(`  attempt ${WORK} front mesh`);
    one(`    inbound ${WORK} middle mesh`);
    one(`      attempt ${WORK} middle http`);
    one('        outbound crm.rpc.find middle http');
    one('          attempt crm.rpc.find middle jsonrpc');
    one('        outbound crm.stock.level middle http');
    one('          attempt crm.stock.level middle nats');
    t.match(shown.spans[0], { remote_parent: true, parent_span_id: PARENT, caller: CALLER, provider: MIDDLE, version: '1.0.0' });
    const at = (stage: string) => shown.spans.filter((span) => span.stage === stage && span.capability === NOTE);
    t.equal(at('send').length, 1);
    t.equal(at('send')[0]?.depth, 4, 'below the work that it was sent in');
    t.match(at('deliver'), { length: 1, 0: { tries: 2, code: 0, provider: WORKER } }, 'of the try that was killed nobody can tell');
    t.match(shown.notes, [new RegExp(`the message ${NOTE} .*: try 1 ended without a word`)]);
    t.ok(at('queue').length >= 1);
    t.equal(at('result').length, 1);
    for (const span of shown.spans) t.ok(span.depth === 0 || span.parent_span_id !== '', span.span_id);
    t.match(shown.why.join('\n'), new RegExp(`worked on 2 times: try 1 ended without a word.*; then ${WORKER} \\(1\\.0\\.0\\) did it`));
    t.match(shown.why.join('\n'), /where the time went: /);
  });

  await t.test('reachctl trace shows it, at a terminal, narrow, in a file, and for programs', async (t) => {
    // It is asked for everywhere first.
    const unknown = reachctl(fleet.plane, ['trace', 'ab'.repeat(16)]);
    const plain = await reachctl(fleet.plane, ['trace', TRACE, '--why']);
    t.equal(plain.exit, 0, plain.err);
    t.match(plain.out, new RegExp(`^trace ${TRACE} .* complete$`, 'm'));
    t.match(plain.out, /^ +└ at crm\.stock\.s1@1\.0\.0 by nats +\S+ +ok +█+$/m);
    t.match(plain.out, /^why$/m);
    t.notMatch(plain.out, /\u001B/, 'no colours where stdout is no terminal');
    const written: string[] = [];
    const terminal = (columns: number): Terminal => ({
      columns,
      rows: 50,
      write: (text) => void written.push(text),
      keys: () => () => {},
      resized: () => () => {},
    });
    t.match((await reachctl(fleet.plane, ['trace', TRACE], terminal(120))).out, /\u001B\[32mok/);
    const narrow = await reachctl(fleet.plane, ['trace', TRACE], terminal(60));
    for (const line of narrow.out.split('\n').slice(2)) t.ok(Array.from(line.replaceAll(/\u001B\[\d+m/g, '')).length <= 60, line);
    t.match(JSON.parse((await reachctl(fleet.plane, ['trace', TRACE, '--json'])).out), { trace_id: TRACE, complete: true });
    const list = await reachctl(fleet.plane, ['trace', '--capability', 'crm.stock.*', '--agent', MIDDLE]);
    t.match(list.out, new RegExp(`^${TRACE} .* ${CALLER} +${WORK} +\\d+ +ok$`, 'm'));
    t.equal((await reachctl(fleet.plane, ['trace', '--failed', '--capability', 'crm.stock.level'])).out, 'no trace fits');
    t.match(await reachctl(fleet.plane, ['trace', 'nonsense']), { exit: 1, err: /is no trace id/ });
    t.match(await unknown, { exit: 1, err: /no trace abab.* is known/ });
    t.match(await reachctl(fleet.plane, ['trace', TRACE, '--failed']), { exit: 2 });
    t.match(await reachctl(fleet.plane, ['trace', '--why']), { exit: 2 });
  });

  await t.test('reachctl tail had it as it ended', async (t) => {
    const { exit, out } = await tailed;
    t.equal(exit, 0);
    const hop = JSON.parse(out);
    t.match(hop, { trace_id: TRACE, stage: 'outbound', capability: WORK, code: 0 });
    t.notOk('decision' in hop);
  });

  await t.test('reachctl top shows what is offered', async (t) => {
    const { exit, out, err } = await reachctl(fleet.plane, ['top', '--once', '--sort', 'name', '--capability', 'crm.*']);
    t.equal(exit, 0, err);
    t.match(out, new RegExp(`^${WORK} +\\S+ .* 1 +-`, 'm'));
    t.notMatch(out, /agent\.message/);
  });

  await t.test('another replica, which has just started, has it too when it is asked', async (t) => {
    const second = await Plane.start(t, fleet.nats, 'cp-2');
    await second.follows();
    const { status, body } = await second.ask(`/v1/traces/${TRACE}`, { token: VIEWER });
    t.equal(status, 200);
    t.match(body, { complete: true, spans: { length: (await world.trace()).spans.length } });
  });

  await t.test('the API refuses what it does not understand', async (t) => {
    for (const [path, words] of [
      ['/v1/traces?code=x', /code must be/],
      ['/v1/traces?failed=yes', /failed must be 1 or 0/],
      ['/v1/traces?min_ms=-1', /min_ms must be/],
      ['/v1/traces?since=yesterday', /since must be/],
      ['/v1/traces?limit=0', /limit must be/],
      ['/v1/tail?stage=guess', /stage must be/],
      ['/v1/tail?max_per_sec=0', /max_per_sec must be/],
      ['/v1/traces?colour=red', /unknown query parameter/],
    ] as const) {
      const { status, body } = await fleet.plane.ask(path);
      t.equal(status, 400, path);
      t.match(body['detail'], words);
    }
    t.equal((await fleet.plane.ask('/v1/traces', { token: null })).status, 401);
  });
});

t.test('a real collector takes the export, and understands it', async (t) => {
  const program = otelCollector();
  if (program === null) {
    // It is built with Go: where there is one, it cannot be missing.
    if (goProgram() !== null || (process.env['CI'] ?? '') !== '') t.fail('there is no collector: `make peers` could not build it');
    else t.pass('a collector', { skip: 'there is none: `make peers` builds it where there is Go' });
    return;
  }
  const collector = await OtelCollector.start(t, program);
  const fleet = await Fleet.start(t);
  const agent = await TestAgent.listen('order', ({ number }) =>
    number === 1 ? { status: 503, body: { sorry: true } } : { body: { ok: true } },
  );
  t.teardown(() => agent.close());
  const otlp = `  traces: {otlp: {url: "${collector.url}"}}\n`;
  const table = `contracts: [${contract('crm.order.query')}]
providers: [{agent_id: crm.order.a1, offers: ["crm.order.query@1.0.0"], via: order-a, endpoint: {type: http, address: "${agent.url}", path: /}}]
`;
  await fleet.sidecar('order-a', table, otlp, { seed: 2 });
  const front = await fleet.sidecar('front-a', 'contracts: []\nproviders: []\n', otlp);
  await knows(front, 'crm.order.query');
  const call = () => front.invoke('crm.order.query', { headers: { traceparent: `00-${TRACE}-${PARENT}-01` }, token: TOKEN });
  t.ok((await call()).status >= 500);
  t.equal((await call()).status, 200);
  await waitUntil(
    'the collector has both calls',
    () => collector.spans().filter(({ traceId }) => traceId === TRACE).length >= 8,
    15_000,
  ).catch(() => undefined);
  const spans = collector.spans().filter(({ traceId }) => traceId === TRACE);
  t.equal(spans.length, 8, collector.said);
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  t.equal(byId.size, 8);
  const stages = (span: ReceivedSpan): string[] => {
    const parent = byId.get(span.parentSpanId);
    return [...(parent === undefined ? [span.parentSpanId] : stages(parent)), String(span.attributes['reach.stage'])];
  };
  const leaves = spans.filter(({ spanId }) => !spans.some(({ parentSpanId }) => parentSpanId === spanId));
  t.same(
    leaves.map(stages),
    [1, 2].map(() => [PARENT, 'outbound', 'attempt', 'inbound', 'attempt']),
    'each below the one that made it',
  );
  const SERVER = 2;
  const CLIENT = 3;
  const ERROR = 2;
  for (const span of spans) {
    const stage = String(span.attributes['reach.stage']);
    t.equal(span.kind, stage === 'attempt' ? CLIENT : SERVER, `the kind of ${stage}`);
    t.equal(span.name, 'crm.order/query');
    t.ok(span.endNs >= span.startNs && span.startNs > 1_600_000_000_000_000_000n);
    const isCallers = [span, byId.get(span.parentSpanId)].some((each) => each?.attributes['reach.stage'] === 'outbound');
    t.equal(span.resource['service.name'], isCallers ? 'front-a' : 'order-a');
    t.equal(span.resource['service.namespace'], 'agent-reach');
    t.ok(span.resource['service.instance.id'] !== undefined && span.resource['service.version'] !== undefined);
  }
  const failed = spans.filter(({ status }) => status === ERROR);
  t.equal(failed.length, 4, 'the whole first call');
  const told = (await fleet.plane.ask(`/v1/traces/${TRACE}`, { token: OPERATOR })).body as unknown as TraceAnswer;
  t.same(told.spans.map(({ span_id: id }) => id).sort(), [...byId.keys()].sort(), 'the control plane was told the same');
});
